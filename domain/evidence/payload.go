// Package evidence implements the formats that the ledger signs, and their verification: canonical payloads, keys, the
// pinned set of trusted keys, the portable envelope and receipts. The server's public comparison, the command line and
// the tests share this implementation.
//
// It follows three rules. Signed bytes are created once and kept; verification never encodes them again. A key found in
// a receipt proves nothing: only the pinned set can name a key (RFC 8037 keys, RFC 7638 names). A verdict is a set of
// findings, never one boolean.
//
// The package is pure: it reads no clock, no file and no network. All it knows about a company, organization or
// document comes from a payload.
package evidence

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Contract identifiers determine the meaning of a payload and its algorithms. No other member selects an algorithm.
const (
	RecordContract     = "integrity-v1"
	StatusContract     = "integrity-status-v1"
	StatusAsOfContract = "integrity-status-as-of-v1"
	EnvelopeContract   = "integrity-evidence-v1"

	hashAlgorithm = "SHA-256"
	timeSource    = "service-clock"
)

// Status is the state of a version at a time.
type Status string

// The states of a version.
const (
	Current    Status = "current"
	Superseded Status = "superseded"
	Revoked    Status = "revoked"
)

// Hash is a SHA-256, in text 64 lower-case hexadecimal characters.
type Hash [sha256.Size]byte

// String writes the 64 characters.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// AppendText appends the 64 characters.
func (h Hash) AppendText(dst []byte) ([]byte, error) { return hex.AppendEncode(dst, h[:]), nil }

// MarshalText writes the 64 characters.
func (h Hash) MarshalText() ([]byte, error) { return h.AppendText(nil) }

// UnmarshalText reads the 64 characters, in lower case only.
func (h *Hash) UnmarshalText(text []byte) error {
	if !plainSHA256(string(text)) {
		return say.Errorf(sha256Rule)
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// DeclaredTime is a time declared by an origin, as NormalizeGeneratedAt writes it. It stays text because its fraction
// may be finer than the service's clock. Equal instants have equal texts.
type DeclaredTime string

// attested are the members common to every payload about bytes.
type attested struct {
	Algorithm  string `json:"algorithm"`
	TimeSource string `json:"timeSource"`
}

// canonical returns the RFC 8785 form of rarely signed values. A Form writes the payloads of registrations and exports.
func canonical(members any) []byte {
	text, err := json.Marshal(members)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		panic(fmt.Sprintf("canonical form of a %T: %v", members, err)) // cannot happen: texts and integers always have one
	}
	return text
}

// RecordPayload is what the service attests of one version for ever: contract integrity-v1, algorithm SHA-256, time
// source service-clock. SizeBytes, MimeType and GeneratedAt are the origin's claims.
type RecordPayload struct {
	Issuer           string       `json:"issuer"`
	PublicID         string       `json:"publicId"` // 26 characters a-z and 2-7; this ledger may never have issued it
	SHA256           Hash         `json:"sha256"`
	SizeBytes        int64        `json:"sizeBytes"` // 0 to 2^53−1
	MimeType         string       `json:"mimeType"`  // type/subtype, lower case
	GeneratedAt      DeclaredTime `json:"generatedAt"`
	ReceivedAt       time.Time    `json:"receivedAt"`       // UTC, microseconds
	ReferencesSHA256 Hash         `json:"referencesSha256"` // References.SHA256
}

type recordFields RecordPayload // without methods

// recordMembers are all members of the signed text.
type recordMembers struct {
	attested
	Contract string `json:"contract"`
	recordFields
}

func (p RecordPayload) members() recordMembers {
	return recordMembers{attested{hashAlgorithm, timeSource}, RecordContract, recordFields(p)}
}

var recordForm = strictjson.FormOf[recordMembers]()

// AppendCanonical appends the RFC 8785 form, which is the signed form and the payload's only encoding.
func (p RecordPayload) AppendCanonical(dst []byte) []byte {
	return recordForm.Append(dst, new(p.members()))
}

// MarshalJSON writes all eleven members of the payload.
func (p RecordPayload) MarshalJSON() ([]byte, error) { return p.AppendCanonical(nil), nil }

// StatusPayload is a dated observation of a version's state: its state at ObservedAt, not its current state. Contract
// integrity-status-v1.
type StatusPayload struct {
	PublicID      string    `json:"publicId"`
	PayloadSHA256 Hash      `json:"payloadSha256"` // of the record's signed bytes
	Status        Status    `json:"status"`
	ObservedAt    time.Time `json:"observedAt"` // UTC, microseconds
	Sequence      int64     `json:"sequence"`   // the organization's, as observed
}

type statusMembers struct {
	Contract string `json:"contract"`
	StatusPayload
}

var statusForm = strictjson.FormOf[statusMembers]()

// AppendCanonical appends the RFC 8785 form, which is the signed form.
func (p StatusPayload) AppendCanonical(dst []byte) []byte {
	return statusForm.Append(dst, &statusMembers{StatusContract, p})
}

// StatusAsOfPayload is the state at an earlier time. Its contract, integrity-status-as-of-v1, is never accepted in the
// place of an observation, so that history cannot be mistaken for a fresh observation.
type StatusAsOfPayload struct {
	StatusPayload
	AsOf         time.Time `json:"asOf"` // UTC, microseconds
	AsOfSequence int64     `json:"asOfSequence"`
}

// AppendCanonical appends the RFC 8785 form, which is the signed form.
func (p StatusAsOfPayload) AppendCanonical(dst []byte) []byte {
	return append(dst, canonical(struct {
		Contract string `json:"contract"`
		StatusAsOfPayload
	}{StatusAsOfContract, p})...)
}

// References are the origin's names for a version. The public payload contains only their hash, and the salt prevents
// guessing them from it.
type References struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int64  `json:"version"`
	Salt              string `json:"salt"` // base64url of 16 random bytes, one a record
}

var referencesForm = strictjson.FormOf[References]()

// AppendCanonical appends the RFC 8785 form, which the record's payload commits to.
func (r References) AppendCanonical(dst []byte) []byte { return referencesForm.Append(dst, &r) }

// SHA256 returns the hash of the canonical form.
func (r References) SHA256() Hash { return sha256.Sum256(r.AppendCanonical(nil)) }

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// CertificateContract fixes the meaning of a certificate's payload.
const CertificateContract = "certificate-v1"

// CertificatePayload is what the service attests of a version that an organization registered, reviewed and approved in
// certification: these bytes, at this time of the service's clock. It does not name the reviewers or approvers. Title
// and OrganizationName are present only if the organization authorized their publication; they are the organization's
// claims.
type CertificatePayload struct {
	Issuer           string    `json:"issuer"`
	PublicID         string    `json:"publicId"`
	SHA256           Hash      `json:"sha256"`
	SizeBytes        int64     `json:"sizeBytes"`
	IssuedAt         time.Time `json:"issuedAt"` // UTC, microseconds
	Title            *string   `json:"title,omitempty"`
	OrganizationName *string   `json:"organizationName,omitempty"`
}

type certificateFields CertificatePayload // without methods

// AppendCanonical appends the RFC 8785 form, which is the signed form and the payload's only encoding.
func (p CertificatePayload) AppendCanonical(dst []byte) []byte {
	return append(dst, canonical(struct {
		attested
		Contract string `json:"contract"`
		certificateFields
	}{attested{hashAlgorithm, timeSource}, CertificateContract, certificateFields(p)})...)
}

// MarshalJSON writes the members of the payload.
func (p CertificatePayload) MarshalJSON() ([]byte, error) { return p.AppendCanonical(nil), nil }

// publishedPattern matches a title or a name: one line of 1 to 200 characters.
var publishedPattern = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,200}$`)

// ParseCertificatePayload reads the signed bytes of a certificate as strictly as ParseRecordPayload.
func ParseCertificatePayload(payload []byte) (CertificatePayload, error) {
	return parsePayload(payload, CertificateContract, func(o *strictjson.Object) CertificatePayload {
		constant(o, "algorithm", hashAlgorithm)
		constant(o, "timeSource", timeSource)
		return CertificatePayload{
			Issuer:           o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
			PublicID:         readPublicID(o),
			SHA256:           readHash(o, "sha256"),
			SizeBytes:        o.Int("sizeBytes", 0, strictjson.MaxInteger, strictjson.Required),
			IssuedAt:         readInstant(o, "issuedAt"),
			Title:            readPublished(o, "title"),
			OrganizationName: readPublished(o, "organizationName"),
		}
	})
}

func readPublished(o *strictjson.Object, name string) *string {
	if !o.Has(name) {
		return nil
	}
	s := o.Match(name, strictjson.Required, publishedPattern.MatchString, "must be 1 to 200 characters without controls")
	return &s
}

// VerifyCertificate checks the signature over the stored bytes and then reads them (contract, section 4.1, steps 2 to
// 5). The payload is zero unless Valid. The caller checks that the payload's PublicID is the requested one.
func VerifyCertificate(
	trust *TrustedKeys, keyID string, payload []byte, signature string,
) (CertificatePayload, Finding) {
	return verifyPayload(trust, keyID, payload, signature, ParseCertificatePayload)
}

var (
	timestampPattern = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$`)
	// ISO 8601 as systems write it, in the extended form and in the basic one: groups 1 to 7 and 8 to 14.
	generatedAtPattern = regexp.MustCompile(`^(?:(\d{4})-(\d\d)-(\d\d)[Tt](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?|` +
		`(\d{4})(\d\d)(\d\d)[Tt](\d\d)(?:(\d\d)(?:(\d\d)(?:[.,](\d{1,9}))?)?)?)([Zz]|[+-]\d\d(?::?\d\d)?)$`)
)

var (
	errTimestampForm = say.Errorf(
		"must be a timestamp such as 2026-11-20T14:03:00Z: date, T, time, at most 9 digits of fraction, Z or an offset",
	)
	errGeneratedAtForm = say.Errorf("must be a date and time such as 2026-11-20T14:03:00Z or 20261120T140300Z: date, " +
		"T, hours, perhaps minutes, " +
		"perhaps seconds with at most 9 digits of fraction, and Z or an offset such as +01, +0100 or +01:00")
	errTimestampDate = say.Errorf(
		"must be a real date and time: a day of that month, 00:00:00 to 23:59:59, an offset of at most 23:59",
	)
	errTimestampYear = say.Errorf("must have a year from 0001 to 9999 in UTC")
)

// NormalizeGeneratedAt writes an origin's timestamp in UTC with Z, without trailing zeros in the fraction. It stays
// text because the fraction may be finer than the service's clock. Omitted minutes and seconds are 0, and 24:00:00 is
// the midnight at the end of the day. Equal instants have one normal form, and normalizing again changes nothing.
// Contract, sections 3, 11 and 12.
func NormalizeGeneratedAt(s string) (DeclaredTime, error) {
	// Most origins send a normal form of whole seconds. The colon proves that the hour has the two digits for which Parse
	// does not ask.
	if len(s) == len(civil)+1 && s[len("2006-01-02T15")] == ':' && s[:4] != "0000" {
		if _, err := time.Parse(civil+"Z", s); err == nil {
			return DeclaredTime(s), nil
		}
	}
	found := generatedAtPattern.FindStringSubmatch(s)
	if found == nil {
		return "", errGeneratedAtForm
	}
	parts := found[1:8]
	if parts[0] == "" {
		parts = found[8:15]
	}
	hours, minutes, seconds, fraction := parts[3], cmp.Or(parts[4], "00"), cmp.Or(parts[5], "00"), parts[6]
	days := 0
	if hours == "24" && minutes == "00" && seconds == "00" && strings.Trim(fraction, "0") == "" {
		hours, days = "00", 1
	}
	normal, err := normalize(
		parts[0]+"-"+parts[1]+"-"+parts[2]+"T"+hours+":"+minutes+":"+seconds, days, fraction, found[15],
	)
	return DeclaredTime(normal), err
}

// NormalizeTimestamp is NormalizeGeneratedAt for RFC 3339 in capitals only, the one form that files for verifiers may
// contain.
func NormalizeTimestamp(s string) (string, error) {
	found := timestampPattern.FindStringSubmatch(s)
	if found == nil {
		return "", errTimestampForm
	}
	return normalize(found[1], 0, found[2], found[3])
}

// normalize takes a date and time without a zone, the days to add, the digits of the fraction, and the offset, whose
// colon or minutes may be missing.
func normalize(at string, days int, fraction, zone string) (string, error) {
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		fraction = "." + fraction
	}
	t, err := time.Parse(civil, at)
	if err != nil {
		return "", errTimestampDate
	}
	t = t.AddDate(0, 0, days)
	if zone != "Z" && zone != "z" {
		hours, minutes := digits(zone[1:3]), digits(strings.TrimPrefix(zone[3:], ":"))
		if hours > 23 || minutes > 59 {
			return "", errTimestampDate
		}
		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if zone[0] == '+' {
			offset = -offset
		}
		t = t.Add(offset)
	}
	if t.Year() < 1 || t.Year() > 9999 {
		return "", errTimestampYear
	}
	return t.Format(civil) + fraction + "Z", nil
}

// civil is the layout of a date and time without a zone. The year 0000 is accepted here: only the result in UTC is
// checked.
const civil = "2006-01-02T15:04:05"

// digits parses two decimal digits; the empty string is 0.
func digits(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// FormatTime writes an instant in the form of all responses and payloads: RFC 3339, UTC with Z, truncated to
// microseconds, without trailing zeros in the fraction.
func FormatTime(t time.Time) string {
	return t.UTC().Truncate(time.Microsecond).Format("2006-01-02T15:04:05.999999Z")
}

// parseServiceTime reads what FormatTime writes and nothing else.
func parseServiceTime(s string) (time.Time, error) {
	if err := checkNormalized(s); err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, say.Errorf("timestamp: %w", err)
	}
	if FormatTime(t) != s {
		return time.Time{}, say.Errorf("must be a timestamp of at most microseconds")
	}
	return t, nil
}

// checkNormalized accepts the results of NormalizeGeneratedAt.
func checkNormalized(s string) error {
	normal, err := NormalizeTimestamp(s)
	if err != nil {
		return err
	}
	if normal != s {
		return say.Errorf("must be a timestamp in UTC with Z and without zeros at the end of its fraction: %s", normal)
	}
	return nil
}
