package evidence

import (
	"crypto/sha256"
	"encoding/hex"
)

// Status is the state of a version at a time.
type Status string

// The states of a version.
const (
	Current    Status = "current"
	Superseded Status = "superseded"
	Revoked    Status = "revoked"
)

// RecordPayload is what the service attests of one version for ever: contract integrity-v1, algorithm SHA-256, time
// source service-clock. SizeBytes, MimeType and GeneratedAt are the origin's words.
type RecordPayload struct {
	Issuer           string
	PublicID         string
	SHA256           string // lower-case hexadecimal
	SizeBytes        int64  // 0 to 2^53−1
	MimeType         string // type/subtype, lower case
	GeneratedAt      string // normalized by NormalizeGeneratedAt
	ReceivedAt       string // written by FormatTime
	ReferencesSHA256 string // References.SHA256
}

// AppendCanonical appends the RFC 8785 form, which is what is signed. It is the
// payload's only encoding: MarshalJSON gives the same.
func (p RecordPayload) AppendCanonical(dst []byte) []byte {
	dst = append(dst, `{"algorithm":"`+hashAlgorithm+`","contract":"`+RecordContract+`"`...)
	dst = appendText(dst, `,"generatedAt":`, p.GeneratedAt)
	dst = appendText(dst, `,"issuer":`, p.Issuer)
	dst = appendText(dst, `,"mimeType":`, p.MimeType)
	dst = appendText(dst, `,"publicId":`, p.PublicID)
	dst = appendText(dst, `,"receivedAt":`, p.ReceivedAt)
	dst = appendText(dst, `,"referencesSha256":`, p.ReferencesSHA256)
	dst = appendText(dst, `,"sha256":`, p.SHA256)
	dst = appendNumber(dst, `,"sizeBytes":`, p.SizeBytes)
	return append(dst, `,"timeSource":"`+timeSource+`"}`...)
}

// MarshalJSON writes all eleven members of the payload.
func (p RecordPayload) MarshalJSON() ([]byte, error) { return p.AppendCanonical(nil), nil }

// StatusPayload is a dated observation of a version's state: what it was at
// ObservedAt, not what it is now. Contract integrity-status-v1.
type StatusPayload struct {
	PublicID      string
	PayloadSHA256 string // of the record's signed bytes, lower-case hexadecimal
	Status        Status
	ObservedAt    string // written by FormatTime
	Sequence      int64  // the organization's, as observed
}

// AppendCanonical appends the RFC 8785 form, which is what is signed.
func (p StatusPayload) AppendCanonical(dst []byte) []byte {
	dst = append(dst, `{"contract":"`+StatusContract+`"`...)
	return append(p.appendMembers(dst), '}')
}

func (p StatusPayload) appendMembers(dst []byte) []byte {
	dst = appendText(dst, `,"observedAt":`, p.ObservedAt)
	dst = appendText(dst, `,"payloadSha256":`, p.PayloadSHA256)
	dst = appendText(dst, `,"publicId":`, p.PublicID)
	dst = appendNumber(dst, `,"sequence":`, p.Sequence)
	return appendText(dst, `,"status":`, string(p.Status))
}

// StatusAsOfPayload answers what the state was at an earlier time. Its contract, integrity-status-as-of-v1, is never
// accepted where an observation belongs, so that history cannot pass for a fresh observation.
type StatusAsOfPayload struct {
	StatusPayload
	AsOf         string // written by FormatTime
	AsOfSequence int64
}

// AppendCanonical appends the RFC 8785 form, which is what is signed.
func (p StatusAsOfPayload) AppendCanonical(dst []byte) []byte {
	dst = appendText(dst, `{"asOf":`, p.AsOf)
	dst = appendNumber(dst, `,"asOfSequence":`, p.AsOfSequence)
	dst = append(dst, `,"contract":"`+StatusAsOfContract+`"`...)
	return append(p.appendMembers(dst), '}')
}

// References are the origin's names of a version. The public payload holds only
// their hash; the salt keeps anyone from guessing them from it.
type References struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int64  `json:"version"`
	Salt              string `json:"salt"` // base64url of 16 random bytes, one a record
}

// AppendCanonical appends the RFC 8785 form, which the record's payload commits to.
func (r References) AppendCanonical(dst []byte) []byte {
	dst = appendText(dst, `{"companyReference":`, r.CompanyReference)
	dst = appendText(dst, `,"documentReference":`, r.DocumentReference)
	dst = appendText(dst, `,"salt":`, r.Salt)
	dst = appendText(dst, `,"source":`, r.Source)
	dst = appendNumber(dst, `,"version":`, r.Version)
	return append(dst, '}')
}

// SHA256 is the lower-case hexadecimal hash of the canonical form.
func (r References) SHA256() string { return hexSHA256(r.AppendCanonical(nil)) }

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
