package evidence

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Signed is a payload with its signature and the names of the key. The key's names are a convenience: a verifier
// compares them with its pinned set and never uses a key from here.
type Signed struct {
	Payload   string `json:"payload"`   // canonical JSON, exactly the signed bytes
	Signature string `json:"signature"` // base64url, 86 characters
	KeyNames
}

// NewSigned combines stored signed bytes with their stored signature.
func NewSigned(payload []byte, signature string, key PublicKey) Signed {
	return Signed{string(payload), signature, key.KeyNames}
}

// Envelope is the portable evidence of one version (contract, section 4). The public receipt has none of the last five
// members. An export contains an observation of the current state or, if the client asked for an earlier moment, the
// state as of that moment. History has its own member so that it cannot be mistaken for the current state.
type Envelope struct {
	Contract string `json:"contract"` // EnvelopeContract
	Signed
	References        *References `json:"references,omitempty"`
	StatusObservation *Signed     `json:"statusObservation,omitempty"`
	StatusAsOf        *Signed     `json:"statusAsOf,omitempty"`
	Inclusion         *Inclusion  `json:"inclusion,omitempty"`
	Timestamps        []Timestamp `json:"timestamps,omitempty"`
}

// NewEnvelope returns the public receipt of a record; the private export adds members to it.
func NewEnvelope(record Signed) Envelope {
	return Envelope{Contract: EnvelopeContract, Signed: record}
}

// Inclusion proves that the record's event is in the transparency log (contract, section 4.3). It is not a timestamp.
type Inclusion struct {
	Leaf       string   `json:"leaf"`       // Leaf, canonical
	LeafIndex  int64    `json:"leafIndex"`  // from 0
	TreeSize   int64    `json:"treeSize"`   // the checkpoint's
	Hashes     []string `json:"hashes"`     // the audit path of RFC 6962, section 2.1.1; standard base64 of 32 bytes each
	Checkpoint string   `json:"checkpoint"` // the signed note, whole
}

// maxDepth bounds receipts, payloads and trusted-keys files (contract, section 4.1, step 1).
const maxDepth = 8

// Every pattern matches in full; Go's $ without (?m) is the end of the text.
var (
	issuerPattern   = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,512}$`)
	publicIDPattern = regexp.MustCompile(`^[a-z2-7]{26}$`)
	sha256Pattern   = regexp.MustCompile(`^[a-f0-9]{64}$`)
	// RFC 6838, section 4.2
	mimeTypePattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$`)
	referencePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	statusPattern    = regexp.MustCompile(`^(current|superseded|revoked)$`)
	keyStatusPattern = regexp.MustCompile(`^(active|retired)$`)
)

const (
	maxVersion = 1<<31 - 1
	saltSize   = 16
	sha256Rule = "must be 64 lower-case hexadecimal characters"
	refRule    = "must be 1 to 128 characters A-Z a-z 0-9 . _ : -, the first a letter or digit"
	issuerRule = "must be 1 to 512 characters without controls"
)

// ParseRecordPayload reads the signed bytes of a record: a closed object of contract integrity-v1 with well-formed
// members, whose RFC 8785 form equals the bytes. It does not check a signature.
func ParseRecordPayload(payload []byte) (RecordPayload, error) {
	if p, ok := scanRecordPayload(payload); ok {
		return p, nil
	}
	return readRecordPayload(payload)
}

func readRecordPayload(payload []byte) (RecordPayload, error) {
	return parsePayload(payload, RecordContract, func(o *strictjson.Object) RecordPayload {
		constant(o, "algorithm", hashAlgorithm)
		constant(o, "timeSource", timeSource)
		return RecordPayload{
			Issuer:    o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
			PublicID:  readPublicID(o),
			SHA256:    readHash(o, "sha256"),
			SizeBytes: o.Int("sizeBytes", 0, strictjson.MaxInteger, strictjson.Required),
			MimeType: o.Match(
				"mimeType", strictjson.Required, mimeTypePattern.MatchString,
				"must be a lower-case media type/subtype without parameters",
			),
			GeneratedAt:      DeclaredTime(readChecked(o, "generatedAt", checkNormalized)),
			ReceivedAt:       readInstant(o, "receivedAt"),
			ReferencesSHA256: readHash(o, "referencesSha256"),
		}
	})
}

// scanRecordPayload is the fast path of readRecordPayload: it gives the same result for ASCII text without escapes, the
// form of nearly every payload. For any other text ok is false, and readRecordPayload decides.
func scanRecordPayload(payload []byte) (RecordPayload, bool) {
	var m recordMembers
	if !recordForm.Scan(payload, &m) {
		return RecordPayload{}, false
	}
	p, at := RecordPayload(m.recordFields), m.ReceivedAt
	good := m == p.members() && plainTime(string(p.GeneratedAt), 9) && len(p.Issuer) >= 1 && len(p.Issuer) <= 512 &&
		plainMediaType(p.MimeType) && len(p.PublicID) == 26 && only(p.PublicID, letters+"234567") &&
		at.Year() >= 1 && at.Location() == time.UTC && at.Equal(at.Truncate(time.Microsecond)) &&
		// The canonical form contains no other spelling of the time.
		bytes.Equal(p.AppendCanonical(make([]byte, 0, len(payload))), payload)
	if !good {
		return RecordPayload{}, false
	}
	return p, true
}

const (
	decimals = "0123456789"
	letters  = "abcdefghijklmnopqrstuvwxyz"
)

// only reports whether a text consists only of these characters.
func only(s, these string) bool { return strings.Trim(s, these) == "" }

func plainSHA256(s string) bool { return len(s) == 64 && only(s, decimals+"abcdef") }

// plainMediaType reports whether s matches mimeTypePattern.
func plainMediaType(s string) bool {
	name := func(s string) bool {
		return len(s) >= 1 && len(s) <= 127 && only(s[:1], decimals+letters) && only(s, decimals+letters+"!#$&^_.+-")
	}
	kind, subtype, _ := strings.Cut(s, "/")
	return name(kind) && name(subtype)
}

// plainTime reports whether checkNormalized accepts s, with at most the given number of fractional digits.
func plainTime(s string, digits int) bool {
	const form = "0000-00-00T00:00:00"
	if len(s) < len(form)+1 || s[len(s)-1] != 'Z' {
		return false
	}
	var numbers [6]int
	n := 0
	for i := range len(form) {
		switch {
		case form[i] != '0':
			n++
			if s[i] != form[i] {
				return false
			}
		case s[i] < '0' || s[i] > '9':
			return false
		default:
			numbers[n] = 10*numbers[n] + int(s[i]-'0')
		}
	}
	fraction := s[len(form) : len(s)-1]
	if fraction != "" && (len(fraction) < 2 || len(fraction) > digits+1 || fraction[0] != '.' ||
		!only(fraction[1:], decimals) || fraction[len(fraction)-1] == '0') {
		return false
	}
	year, month, day := numbers[0], time.Month(numbers[1]), numbers[2]
	return year >= 1 && month >= 1 && month <= 12 && day >= 1 &&
		day <= time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day() &&
		numbers[3] <= 23 && numbers[4] <= 59 && numbers[5] <= 59
}

// ParseStatusPayload reads the signed bytes of an observation as strictly as ParseRecordPayload.
func ParseStatusPayload(payload []byte) (StatusPayload, error) {
	return parsePayload(payload, StatusContract, readStatus)
}

// readStatus reads the members common to an observation and a state as of a moment.
func readStatus(o *strictjson.Object) StatusPayload {
	return StatusPayload{
		PublicID:      readPublicID(o),
		PayloadSHA256: readHash(o, "payloadSha256"),
		Status: Status(o.Match(
			"status", strictjson.Required, statusPattern.MatchString, "must be current, superseded or revoked",
		)),
		ObservedAt: readInstant(o, "observedAt"),
		Sequence:   o.Int("sequence", 1, strictjson.MaxInteger, strictjson.Required),
	}
}

// parsePayload checks the contract first: a payload of another role has other members, and only the role is worth
// reporting. Then it refuses invalid members and any bytes but the canonical ones. On error the payload is zero.
func parsePayload[P interface{ AppendCanonical(dst []byte) []byte }](
	payload []byte, contract string, read func(*strictjson.Object) P,
) (none P, err error) {
	v, err := strictjson.Parse(payload, maxDepth)
	if err != nil {
		return none, say.Errorf("payload: %w", err)
	}
	o := strictjson.Decode(v)
	if got := o.String("contract", strictjson.Required); o.OK("contract") && got != contract {
		return none, say.Errorf("payload: contract %q in the place of %s", got, contract)
	}
	p := read(o)
	if err := refusal(o.Problems()); err != nil {
		return none, say.Errorf("payload: %w", err)
	}
	if !bytes.Equal(p.AppendCanonical(make([]byte, 0, len(payload))), payload) {
		return none, say.Errorf("payload: the text is not in the canonical form of RFC 8785")
	}
	return p, nil
}

func constant(o *strictjson.Object, name, want string) {
	if got := o.String(name, strictjson.Required); o.OK(name) && got != want {
		o.Problem(name, strictjson.CodeFormat, "must be %s", want)
	}
}

func readPublicID(o *strictjson.Object) string {
	return o.Match("publicId", strictjson.Required, publicIDPattern.MatchString, "must be 26 characters a-z and 2-7")
}

// readHash and readInstant return zero if the member is invalid; the problem is added to the object's.
func readHash(o *strictjson.Object, name string) (h Hash) {
	readChecked(o, name, func(s string) error { return h.UnmarshalText([]byte(s)) })
	return h
}

func readInstant(o *strictjson.Object, name string) (at time.Time) {
	readChecked(o, name, func(s string) (err error) {
		at, err = parseServiceTime(s)
		return err
	})
	return at
}

func readChecked(o *strictjson.Object, name string, check func(string) error) string {
	s := o.String(name, strictjson.Required)
	if o.OK(name) {
		if err := check(s); err != nil {
			o.Problem(name, strictjson.CodeFormat, "%s", err)
		}
	}
	return s
}

// MaxReceiptBytes is the largest receipt in bytes that any verifier accepts.
const MaxReceiptBytes = 64 << 10

// openReceipt reads the text given to a verifier: one JSON object of at most MaxReceiptBytes bytes.
func openReceipt(m *strictjson.Meter, receipt []byte) (*strictjson.Object, error) {
	if len(receipt) > MaxReceiptBytes {
		return nil, say.Errorf("receipt: must be at most %d bytes", MaxReceiptBytes)
	}
	v, err := m.Parse(receipt, maxDepth)
	if err != nil {
		return nil, say.Errorf("receipt: %w", err)
	}
	return m.Decode(v), nil
}

// ParseEnvelope reads a receipt: at most 64 KiB, one closed object of contract integrity-evidence-v1, whose members
// have the right types. It proves nothing: it checks no signature and parses no payload.
func ParseEnvelope(receipt []byte) (Envelope, error) {
	o, err := openReceipt(new(strictjson.Meter), receipt)
	if err != nil {
		return Envelope{}, err
	}
	return readEnvelope(o)
}

func readEnvelope(o *strictjson.Object) (Envelope, error) {
	e := Envelope{Contract: EnvelopeContract}
	constant(o, "contract", EnvelopeContract)
	e.Signed = readSigned(o)
	e.References = readReferences(o)
	if observation := o.Object("statusObservation", strictjson.Optional); o.Has("statusObservation") {
		e.StatusObservation = new(readSigned(observation))
	}
	if asOf := o.Object("statusAsOf", strictjson.Optional); o.Has("statusAsOf") {
		e.StatusAsOf = new(readSigned(asOf))
	}
	if inclusion := o.Object("inclusion", strictjson.Optional); o.Has("inclusion") {
		e.Inclusion = &Inclusion{
			Leaf:       inclusion.String("leaf", strictjson.Required),
			LeafIndex:  inclusion.Int("leafIndex", 0, strictjson.MaxInteger, strictjson.Required),
			TreeSize:   inclusion.Int("treeSize", 1, strictjson.MaxInteger, strictjson.Required),
			Hashes:     inclusion.StringList("hashes", strictjson.Required, 0, strictjson.AnyLength),
			Checkpoint: inclusion.String("checkpoint", strictjson.Required),
		}
	}
	e.Timestamps = readTimestamps(o)
	if err := refusal(o.Problems()); err != nil {
		return Envelope{}, say.Errorf("receipt: %w", err)
	}
	return e, nil
}

// readReferences reads the member references; it returns nil if the member is absent.
func readReferences(o *strictjson.Object) *References {
	references := o.Object("references", strictjson.Optional)
	if !o.Has("references") {
		return nil
	}
	return &References{
		CompanyReference:  references.String("companyReference", strictjson.Required),
		Source:            references.String("source", strictjson.Required),
		DocumentReference: references.String("documentReference", strictjson.Required),
		Version:           references.Int("version", strictjson.MinInteger, strictjson.MaxInteger, strictjson.Required),
		Salt:              references.String("salt", strictjson.Required),
	}
}

func readSigned(o *strictjson.Object) Signed {
	return Signed{
		Payload:   o.String("payload", strictjson.Required),
		Signature: o.String("signature", strictjson.Required),
		KeyNames:  readKeyNames(o),
	}
}

// readKeyNames reads a JWK of exactly kty, crv and x: a private key's d is an unknown member.
func readKeyNames(o *strictjson.Object) KeyNames {
	j := o.Object("publicKeyJwk", strictjson.Required)
	return KeyNames{
		KeyID: o.String("keyId", strictjson.Required),
		JWK: JWK{
			j.String("kty", strictjson.Required), j.String("crv", strictjson.Required), j.String("x", strictjson.Required),
		},
		FingerprintSHA256: o.String("fingerprintSha256", strictjson.Required),
	}
}

// check refuses members that no registration can have had.
func (r References) check() error {
	var wrong []say.Sentence
	for _, m := range []struct{ name, value string }{
		{"companyReference", r.CompanyReference}, {"source", r.Source}, {"documentReference", r.DocumentReference},
	} {
		if !referencePattern.MatchString(m.value) {
			wrong = append(wrong, say.Sentencef("%s: %s", m.name, say.Sentencef(refRule)))
		}
	}
	if r.Version < 1 || r.Version > maxVersion {
		wrong = append(wrong, say.Sentencef("version: must be an integer from 1 to %d", maxVersion))
	}
	if _, ok := decodeBase64URL(r.Salt, saltSize); !ok {
		wrong = append(wrong, say.Sentencef("salt: must be 22 base64url characters"))
	}
	if wrong != nil {
		return say.Errorf("%s", say.Join(wrong, "; "))
	}
	return nil
}

// refusal joins all problems into one error.
func refusal(problems []strictjson.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	words := make([]say.Sentence, len(problems))
	for i, p := range problems {
		words[i] = p.Said()
		if p.Pointer != "" {
			words[i] = say.Sentencef("%s: %s", p.Pointer, p.Said())
		}
	}
	return say.Errorf("%s", say.Join(words, "; "))
}
