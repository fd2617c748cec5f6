package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Finding is the verdict on one part of a receipt.
type Finding string

// Findings of a part. Untrusted means that the key is not pinned, or is revoked.
const (
	Valid       Finding = "valid"
	Invalid     Finding = "invalid"
	Untrusted   Finding = "untrusted"
	NotSupplied Finding = "not-supplied"
	NotChecked  Finding = "not-checked"
)

// CheckSignature checks a detached signature over stored bytes: Valid, Invalid or Untrusted. It does not parse the
// payload.
func CheckSignature(trust *TrustedKeys, keyID string, payload []byte, signature string) Finding {
	finding, _, _ := checkSignature(trust, keyID, payload, signature)
	return finding
}

func checkSignature(trust *TrustedKeys, keyID string, payload []byte, signature string) (Finding, TrustedKey, error) {
	raw, ok := decodeBase64URL(signature, ed25519.SignatureSize)
	if !ok {
		return Invalid, TrustedKey{}, errSignatureForm
	}
	key, trusted := trust.Lookup(keyID)
	switch {
	case key.KeyID == "" && !trust.isRevoked(keyID):
		return Untrusted, key, ErrUnknownKey
	case !trusted:
		return Untrusted, key, errRevokedSigner
	case !key.verify(payload, raw):
		return Invalid, key, errForeignSignature
	}
	return Valid, key, nil
}

// Reasons why a signature does not hold.
var (
	errSignatureForm    = say.Errorf("the signature is not 86 base64url characters in their one spelling")
	errRevokedSigner    = say.Errorf("the key has been revoked")
	errForeignSignature = say.Errorf("the signature does not belong to the payload")
	errOtherKey         = say.Errorf("the receipt's key differs from the trusted key of the same keyId")
)

// VerifyRecord checks the signature over the stored bytes and then reads them (contract, section 4.1, steps 2 to 5).
// The payload is zero unless Valid: the hash of a record that does not verify must not be used for a comparison. The
// caller checks that the payload's PublicID is the requested one.
func VerifyRecord(trust *TrustedKeys, keyID string, payload []byte, signature string) (RecordPayload, Finding) {
	return verifyPayload(trust, keyID, payload, signature, ParseRecordPayload)
}

func verifyPayload[P any](
	trust *TrustedKeys, keyID string, payload []byte, signature string, parse func([]byte) (P, error),
) (p P, finding Finding) {
	if finding = CheckSignature(trust, keyID, payload, signature); finding != Valid {
		return p, finding
	}
	if p, err := parse(payload); err == nil {
		return p, Valid
	}
	return p, Invalid
}

// checkSigned is checkSignature with the receipt's names of the key, which must equal the pinned ones (step 3).
func checkSigned(trust *TrustedKeys, s Signed) (Finding, TrustedKey, error) {
	finding, key, reason := checkSignature(trust, s.KeyID, []byte(s.Payload), s.Signature)
	if finding == Valid && (s.KeyNames != key.KeyNames) {
		return Invalid, key, errOtherKey
	}
	return finding, key, reason
}

// Document is a file to compare, represented by the values computed from its bytes.
type Document struct {
	SHA256 string // hexadecimal, of either case
	Size   int64  // bytes; negative if unknown
}

// Options are the options of Verify.
type Options struct {
	// Now is the verifier's clock: an observation more than 300 seconds ahead of it is invalid.
	Now time.Time
	// Document is compared with the record; nil compares nothing.
	Document *Document
	// RequireReferences makes absent references a failure.
	RequireReferences bool
	// RequireCurrent makes anything but a valid observation of a current version a failure.
	RequireCurrent bool
	// RequireInclusion makes an absent or unchecked proof of inclusion a failure.
	RequireInclusion bool
	// RequireTimestamp makes anything but a valid token of a pinned timestamp authority a failure.
	RequireTimestamp bool
	// RequireWitnesses is the number of pinned witnesses that must have cosigned the checkpoint of the proof of inclusion.
	RequireWitnesses int
	// AcceptStampedBeforeRevocation accepts a record whose signing key was revoked if a pinned authority stamped the
	// record before the revocation's since.
	AcceptStampedBeforeRevocation bool
}

// Findings are the results for a receipt, part by part. A part that was not reached because an earlier part failed is
// NotChecked. A result that could not be established is nil.
type Findings struct {
	Signature      Finding `json:"signature"`
	References     Finding `json:"references"`
	Observation    Finding `json:"observation"`
	ObservedStatus *Status `json:"observedStatus"`
	ObservedAt     *string `json:"observedAt"`
	FileMatch      *bool   `json:"fileMatch"`
	Inclusion      Finding `json:"inclusion"`
	Checkpoint     string  `json:"-"` // of a valid Inclusion
	// Witnessed is the number of pinned witnesses that cosigned the checkpoint of a valid Inclusion, nil if none are
	// pinned.
	Witnessed *int `json:"witnessed"`

	// Time is the finding on the tokens of timestamp authorities. According to TimeAuthority, the record existed before
	// ExistedBefore.
	Time          Finding `json:"time"`
	ExistedBefore *string `json:"existedBefore"`
	TimeAuthority *string `json:"timeAuthority"`

	// The state at an earlier moment: history, never the observed status.
	StatusAsOf   Finding `json:"statusAsOf"`
	AsOfStatus   *Status `json:"asOfStatus"`
	AsOf         *string `json:"asOf"`
	AsOfSequence *int64  `json:"asOfSequence"`

	// Record or Certificate is the verified payload, whichever was supplied; both are nil unless Signature is Valid.
	Record      *RecordPayload      `json:"record"`
	Certificate *CertificatePayload `json:"certificate"`
	// Publisher is the verified statement about an organization, if one was supplied instead of them.
	Publisher *PublisherPayload `json:"publisher,omitempty"`
	// Reasons are the failures in words. ExitCode returns 1 exactly if there are any.
	Reasons []say.Sentence `json:"reasons"`
	// Notes are further remarks for the reader. They are not failures.
	Notes []say.Sentence `json:"notes"`

	accepted bool // the record was accepted although its key was revoked
}

// ExitCode returns 0 if everything supplied or required is valid, 1 otherwise. A superseded version is not a failure; a
// revoked version is.
func (f Findings) ExitCode() int {
	return min(len(f.Reasons), 1)
}

func (f *Findings) fail(part, format string, args ...any) {
	f.Reasons = append(f.Reasons, say.Sentencef("%s: %s", part, say.Sentencef(format, args...)))
}

func (f *Findings) note(format string, args ...any) {
	f.Notes = append(f.Notes, say.Sentencef(format, args...))
}

// Verify takes a receipt, or a downloaded certificate of certification, through the nine steps of the contract, section
// 4.1, or a statement about an organization through the first five of them. It also checks a proof of inclusion by the
// steps of section 4.3 if the trusted keys name a log key, and tokens of timestamp authorities if they name them. It
// proves the preserved signature, not present validity: only the service knows the current status. A text without
// the member contract is read as a certificate; a payload with another role makes any of them invalid. A transparency
// log proof (C2SP tlog-proof@v1) is read as the receipt in its extra data with that proof of inclusion, which is
// required.
func Verify(receipt []byte, trust *TrustedKeys, opts Options) Findings {
	f := newFindings()
	if isProof(receipt) {
		opts.RequireInclusion = true // a proof of inclusion that was not checked proves nothing
		f.verifyParsed(trust, opts, func() (Envelope, error) { return ParseProof(receipt) })
		return f
	}
	o, err := openReceipt(new(strictjson.Meter), receipt)
	if err != nil {
		f.fail("signature", "%s", err)
		return f
	}
	switch {
	case !o.Has("contract"):
		f.verifyCertificate(o, trust, opts)
	case o.String("contract", strictjson.Required) == PublisherContract:
		f.verifyPublisher(o, trust, opts)
	default:
		f.verifyParsed(trust, opts, func() (Envelope, error) { return readEnvelope(o) })
	}
	return f
}

func newFindings() Findings {
	return Findings{
		Signature: Invalid, References: NotChecked, Observation: NotChecked, Inclusion: NotChecked, StatusAsOf: NotChecked,
		Time:    NotChecked,
		Reasons: []say.Sentence{}, Notes: []say.Sentence{},
	}
}

func (f *Findings) verifyParsed(trust *TrustedKeys, opts Options, parse func() (Envelope, error)) {
	e, err := parse()
	if err != nil {
		f.fail("signature", "%s", err)
		return
	}
	f.verifyEnvelope(e, trust, opts)
}

func (f *Findings) verifyEnvelope(e Envelope, trust *TrustedKeys, opts Options) {
	for part, supplied := range map[*Finding]bool{
		&f.References: e.References != nil, &f.Observation: e.StatusObservation != nil, &f.StatusAsOf: e.StatusAsOf != nil,
		&f.Inclusion: e.Inclusion != nil, &f.Time: e.Timestamps != nil,
	} {
		if !supplied {
			*part = NotSupplied
		}
	}
	if opts.AcceptStampedBeforeRevocation && trust.isRevoked(e.KeyID) {
		f.acceptStamped(e, trust, opts.Now)
	} else if f.Record, _ = verifySigned(f, e.Signed, trust, ParseRecordPayload); f.Record != nil {
		judgeTime(e, trust, f.Record.ReceivedAt, opts.Now).tell(f)
	}
	if f.Record != nil {
		f.verifyReferences(e.References)
		f.verifyObservation(e, trust, opts.Now)
		f.verifyInclusion(e, trust, opts)
		f.verifyAsOf(e, trust, opts.Now)
		f.compare(opts.Document, f.Record.SHA256.String(), f.Record.SizeBytes)
	}
	f.require(trust, opts)
}

// isRevoked reports whether a key that signed records is revoked.
func (t *TrustedKeys) isRevoked(keyID string) bool {
	key, _ := t.Lookup(keyID)
	_, revoked := t.revocation(KeyNames{KeyID: keyID, FingerprintSHA256: key.FingerprintSHA256})
	return revoked
}

// acceptStamped performs steps 2 to 5 for a record whose key is revoked: it is accepted if a pinned authority stamped
// it before the revocation.
func (f *Findings) acceptStamped(e Envelope, trust *TrustedKeys, now time.Time) {
	refuse := func(finding Finding, reason error) {
		f.Signature = finding
		f.fail("signature", "%s", reason)
	}
	key, err := trust.revokedKey(e.KeyNames)
	if err != nil {
		refuse(Untrusted, err)
		return
	}
	raw, ok := decodeBase64URL(e.Signature, ed25519.SignatureSize)
	if !ok || !key.verify([]byte(e.Payload), raw) {
		refuse(Invalid, errForeignSignature)
		return
	}
	p, err := ParseRecordPayload([]byte(e.Payload))
	if err != nil {
		refuse(Invalid, err)
		return
	}
	r, _ := trust.revocation(key.KeyNames)
	timing := judgeTime(e, trust, p.ReceivedAt, now)
	if timing == nil || timing.finding != Valid || !timing.stamp.before.Before(r.since()) {
		refuse(
			Untrusted, say.Errorf("the key has been revoked, and no pinned authority stamped the record before %s", r.Since),
		)
		return
	}
	f.Signature, f.Record, f.accepted = Valid, &p, true
	timing.tell(f)
	f.note(
		"The signing key was revoked (%s) since %s; a pinned authority had stamped the record before.", r.Reason, r.Since,
	)
}

// revokedKey returns a revoked key by its names. A published set omits the key itself and names it by two hashes: then
// the receipt's key is used if it matches both.
func (t *TrustedKeys) revokedKey(names KeyNames) (PublicKey, error) {
	key, _ := t.Lookup(names.KeyID)
	if key.KeyID == "" {
		x, ok := decodeBase64URL(names.JWK.X, ed25519.PublicKeySize)
		if !ok {
			return PublicKey{}, say.Errorf("the receipt's key cannot be read")
		}
		key.PublicKey, _ = NewPublicKey(x) // never fails: x has the right length
	}
	r, _ := t.revocation(key.KeyNames)
	if key.KeyNames != names || r.KeyID != key.KeyID || r.FingerprintSHA256 != key.FingerprintSHA256 {
		return PublicKey{}, say.Errorf("the receipt's key differs from the revoked key of the same keyId")
	}
	return key.PublicKey, nil
}

// verifyCertificate performs steps 1 to 5 and 8. A certificate has no references, observation, history or inclusion, so
// its current validity is never established.
func (f *Findings) verifyCertificate(o *strictjson.Object, trust *TrustedKeys, opts Options) {
	s := readSigned(o)
	if err := refusal(o.Problems()); err != nil {
		f.fail("signature", "certificate: %s", err)
		return
	}
	certificate, signed := verifySigned(f, s, trust, ParseCertificatePayload)
	if signed && certificate == nil {
		return
	}
	if f.Certificate = certificate; certificate != nil {
		f.References, f.Observation, f.StatusAsOf, f.Inclusion, f.Time = NotSupplied, NotSupplied, NotSupplied, NotSupplied,
			NotSupplied
		f.note(
			"Whether the certificate is still valid, or was replaced or revoked, is not established: only the service can " +
				"say, online.",
		)
		f.compare(opts.Document, f.Certificate.SHA256.String(), f.Certificate.SizeBytes)
	}
	f.require(trust, opts)
}

// require adds a failure for each required part that is missing or was not checked. If the signature failed, nothing
// else was checked, and the signature's failure says enough.
func (f *Findings) require(trust *TrustedKeys, opts Options) {
	if opts.RequireReferences && f.References == NotSupplied {
		f.fail("references", "they are required and not supplied")
	}
	if opts.RequireCurrent && (f.ObservedStatus == nil || *f.ObservedStatus != Current) {
		f.fail("observation", "a valid observation that the version was current is required")
	}
	switch {
	case !opts.RequireInclusion:
	case f.Inclusion == NotSupplied:
		f.fail("inclusion", "a valid proof of inclusion in the transparency log is required")
	case f.Inclusion == NotChecked && f.Record != nil && len(trust.LogKeys()) == 0:
		f.fail(
			"inclusion", "a proof was supplied, but it could not be checked, because the trusted keys name no key of its log: "+
				"obtain that key from a source that you trust, and add it to logKeys in the trusted-keys file",
		)
	case f.Inclusion == NotChecked && f.Record != nil:
		f.fail("inclusion", "%s", ErrOtherLeaf)
	}
	switch {
	case !opts.RequireTimestamp:
	case f.Time == NotSupplied:
		f.fail("time", "a valid token of a pinned timestamp authority is required")
	case f.Time == NotChecked && f.Record != nil:
		f.fail("time", "tokens were supplied, but none could be checked")
	}
	if n := opts.RequireWitnesses; n < 0 {
		f.fail("witnesses", "the number of required witnesses must be 0 or more")
	} else if n > 0 && (f.Witnessed == nil || *f.Witnessed < n) {
		f.fail(
			"witnesses", "the checkpoint of a valid proof of inclusion must have cosignatures of pinned witnesses: %d", n,
		)
	}
}

// verifySigned performs steps 2 to 5 and returns nil if one of them fails. signed reports whether the steps before
// reading the payload succeeded.
func verifySigned[P any](f *Findings, s Signed, trust *TrustedKeys, parse func([]byte) (P, error)) (p *P, signed bool) {
	finding, key, reason := checkSigned(trust, s)
	f.Signature = finding
	if finding != Valid {
		f.fail("signature", "%s", reason)
		return nil, false
	}
	if key.Status == KeyRetired {
		f.note("The signing key has been retired; it stays trusted.")
	}
	read, err := parse([]byte(s.Payload))
	if err != nil {
		f.Signature = Invalid
		f.fail("signature", "%s", err)
		return nil, true
	}
	return &read, true
}

// verifyReferences performs step 7. Parsing the receipt already checked that there are exactly five members.
func (f *Findings) verifyReferences(r *References) {
	if r == nil {
		f.note("Without the references nothing is said about company, source, document and version.")
		return
	}
	err := r.check()
	if err == nil && r.SHA256() != f.Record.ReferencesSHA256 {
		err = say.Errorf("they are not those that the record was signed with")
	}
	if f.References = Valid; err != nil {
		f.References = Invalid
		f.fail("references", "%s", err)
	}
}

// verifyObservation performs steps 2 to 6 for the observation, with its own key.
func (f *Findings) verifyObservation(e Envelope, trust *TrustedKeys, now time.Time) {
	if e.StatusObservation == nil {
		f.note("Without an observation nothing is said about the version's state.")
		return
	}
	p, finding := verifyState(f, "observation", e, *e.StatusObservation, trust, now, ParseStatusPayload)
	if f.Observation = finding; finding != Valid {
		return
	}
	if p.ObservedAt.Before(f.Record.ReceivedAt) {
		f.Observation = Invalid
		f.fail("observation", "it is older than the record")
		return
	}
	observedAt := FormatTime(p.ObservedAt)
	f.ObservedStatus, f.ObservedAt = &p.Status, &observedAt
	switch p.Status {
	case Revoked:
		f.fail("observation", "the record had been revoked by %s", observedAt)
	case Superseded:
		f.note("The version is historical: a version with a higher number was registered by %s.", observedAt)
	default:
		f.note("The version was current at %s; that is not its present state.", observedAt)
	}
}

// compare performs step 8: the hash decides, and a differing length is only reported.
func (f *Findings) compare(d *Document, sha256 string, size int64) {
	if d == nil {
		f.note("No document was compared.")
		return
	}
	hash := strings.ToLower(d.SHA256)
	if !sha256Pattern.MatchString(hash) {
		f.fail("file", "must be a SHA-256 of 64 hexadecimal characters")
		return
	}
	f.FileMatch = new(hash == sha256)
	certified, otherSize := f.Certificate != nil, d.Size >= 0 && d.Size != size
	switch {
	case *f.FileMatch:
	case certified:
		f.fail("file", "its SHA-256 is not the certified one: it may be another version, or its metadata may have changed")
	default:
		f.fail("file", "its SHA-256 is not the registered one: it may be another version, or its metadata may have changed")
	}
	switch {
	case !otherSize:
	case certified:
		f.note("The document has %d bytes where the service counted %d.", d.Size, size)
	default:
		f.note("The document has %d bytes where the origin declared %d.", d.Size, size)
	}
}

// clockTolerance is how far the service's clock may be ahead of a verifier's.
const clockTolerance = 300 * time.Second

// ParseStatusAsOfPayload reads the signed bytes of a state as of an earlier moment,
// contract integrity-status-as-of-v1, as strictly as ParseRecordPayload.
func ParseStatusAsOfPayload(payload []byte) (StatusAsOfPayload, error) {
	return parsePayload(payload, StatusAsOfContract, func(o *strictjson.Object) StatusAsOfPayload {
		return StatusAsOfPayload{
			readStatus(o), readInstant(o, "asOf"), o.Int("asOfSequence", 1, strictjson.MaxInteger, strictjson.Required),
		}
	})
}

func (p StatusPayload) state() StatusPayload { return p }

// verifyState performs steps 2 to 5 for a state of the record. It refuses a state of another record, and a state
// observed in the verifier's future, and returns the reason.
func verifyState[P interface{ state() StatusPayload }](
	f *Findings, part string, e Envelope, s Signed, trust *TrustedKeys, now time.Time, parse func([]byte) (P, error),
) (p P, finding Finding) {
	finding, _, reason := checkSigned(trust, s)
	if finding == Valid {
		p, err := parse([]byte(s.Payload))
		state := p.state()
		switch {
		case err != nil:
			reason = err
		case state.PublicID != f.Record.PublicID || state.PayloadSHA256 != sha256.Sum256([]byte(e.Payload)):
			reason = say.Errorf("it is about another record")
		case state.ObservedAt.After(now.Add(clockTolerance)):
			reason = say.Errorf("it lies in the future of this computer's clock")
		default:
			return p, Valid
		}
		finding = Invalid
	}
	if f.accepted && finding == Untrusted && trust.isRevoked(s.KeyID) {
		f.note("The %s was signed with a revoked key: it says nothing.", part)
		return p, finding
	}
	f.fail(part, "%s", reason)
	return p, finding
}

// verifyAsOf performs steps 2 to 6 for the state as of an earlier moment, which is history: it never becomes the
// observed status. receivedAt ≤ asOf ≤ observedAt, and asOfSequence ≤ sequence.
func (f *Findings) verifyAsOf(e Envelope, trust *TrustedKeys, now time.Time) {
	if e.StatusAsOf == nil {
		return
	}
	p, finding := verifyState(f, "status as of", e, *e.StatusAsOf, trust, now, ParseStatusAsOfPayload)
	if f.StatusAsOf = finding; finding != Valid {
		return
	}
	f.StatusAsOf = Invalid
	switch {
	case p.AsOf.Before(f.Record.ReceivedAt):
		f.fail("status as of", "its moment lies before the record")
		return
	case p.AsOf.After(p.ObservedAt) || p.AsOfSequence > p.Sequence:
		f.fail("status as of", "its moment lies after it was observed")
		return
	}
	f.StatusAsOf, f.AsOfStatus, f.AsOf, f.AsOfSequence = Valid, &p.Status, new(FormatTime(p.AsOf)), &p.AsOfSequence
	when := say.Sentencef("%s (sequence %d)", *f.AsOf, p.AsOfSequence)
	switch p.Status {
	case Revoked:
		f.fail("status as of", "the record had been revoked by %s", when)
	case Superseded:
		f.note("History: by %s a version with a higher number was registered.", when)
	default:
		f.note("History: the version was current as of %s; this says nothing about any later time.", when)
	}
}
