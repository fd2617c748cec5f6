package evidence

import (
	"regexp"

	"integrityledger/domain/strictjson"
)

// CertificateContract fixes the meaning of a certificate's payload.
const CertificateContract = "certificate-v1"

// CertificatePayload is what the service attests of a version that an organization registered, reviewed and approved in
// certification: these bytes, at this time of the service's clock. It says nothing about who reviewed or approved.
// Title and OrganizationName stand in it only where the organization authorized their publication; they are its words.
type CertificatePayload struct {
	Issuer           string
	PublicID         string
	SHA256           string // lower-case hexadecimal
	SizeBytes        int64
	IssuedAt         string // written by FormatTime
	Title            *string
	OrganizationName *string
}

// AppendCanonical appends the RFC 8785 form, which is what is signed. It is the
// payload's only encoding: MarshalJSON gives the same.
func (p CertificatePayload) AppendCanonical(dst []byte) []byte {
	dst = append(dst, `{"algorithm":"`+hashAlgorithm+`","contract":"`+CertificateContract+`"`...)
	dst = appendText(dst, `,"issuedAt":`, p.IssuedAt)
	dst = appendText(dst, `,"issuer":`, p.Issuer)
	if p.OrganizationName != nil {
		dst = appendText(dst, `,"organizationName":`, *p.OrganizationName)
	}
	dst = appendText(dst, `,"publicId":`, p.PublicID)
	dst = appendText(dst, `,"sha256":`, p.SHA256)
	dst = appendNumber(dst, `,"sizeBytes":`, p.SizeBytes)
	dst = append(dst, `,"timeSource":"`+timeSource+`"`...)
	if p.Title != nil {
		dst = appendText(dst, `,"title":`, *p.Title)
	}
	return append(dst, '}')
}

// MarshalJSON writes the members of the payload.
func (p CertificatePayload) MarshalJSON() ([]byte, error) { return p.AppendCanonical(nil), nil }

// publishedPattern is a title or a name: one line of 1 to 200 characters.
var publishedPattern = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,200}$`)

// ParseCertificatePayload reads the signed bytes of a certificate, contract
// certificate-v1, as strictly as ParseRecordPayload.
func ParseCertificatePayload(payload []byte) (CertificatePayload, error) {
	return parsePayload(payload, CertificateContract, readCertificatePayload)
}

func readCertificatePayload(o *strictjson.Object) CertificatePayload {
	constant(o, "algorithm", hashAlgorithm)
	constant(o, "timeSource", timeSource)
	return CertificatePayload{
		Issuer:           o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
		PublicID:         readPublicID(o),
		SHA256:           o.Match("sha256", strictjson.Required, sha256Pattern.MatchString, sha256Rule),
		SizeBytes:        o.Int("sizeBytes", 0, strictjson.MaxInteger, strictjson.Required),
		IssuedAt:         readTime(o, "issuedAt"),
		Title:            readPublished(o, "title"),
		OrganizationName: readPublished(o, "organizationName"),
	}
}

func readPublished(o *strictjson.Object, name string) *string {
	if !o.Has(name) {
		return nil
	}
	s := o.Match(name, strictjson.Required, publishedPattern.MatchString, "must be 1 to 200 characters without controls")
	return &s
}

// VerifyCertificate checks the signature over the stored bytes and then reads them (contract, section 4.1, steps 2 to
// 5). The payload is zero unless Valid. The caller checks that the payload's PublicID is the one it was asked for.
func VerifyCertificate(trust *TrustedKeys, keyID string, payload []byte, signature string) (CertificatePayload, Finding) {
	return verifyPayload(trust, keyID, payload, signature, ParseCertificatePayload)
}
