package evidence

import (
	"regexp"
	"slices"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// PublisherContract is the contract of statements about the organization of a record.
const PublisherContract = "integrity-publisher-v1"

// PublisherPayload states what the organization of a record has proven and said about itself, as the service observed
// it at ObservedAt. It says nothing about the time of the registration, and nothing about a file.
type PublisherPayload struct {
	Issuer     string            `json:"issuer"`
	PublicID   string            `json:"publicId"`
	Domains    []PublisherDomain `json:"domains"`    // that it has proven to control
	Name       *string           `json:"name"`       // in its own words; it is not checked
	StatedAt   *time.Time        `json:"statedAt"`   // when the organization stated the name
	ObservedAt time.Time         `json:"observedAt"` // UTC, microseconds
}

// PublisherDomain is a domain with its last proof.
type PublisherDomain struct {
	Domain    string    `json:"domain"` // ASCII, lower case
	Method    string    `json:"method"` // dns or https
	CheckedAt time.Time `json:"checkedAt"`
}

// PublisherStatement is a signed PublisherPayload as a file.
type PublisherStatement struct {
	Contract string `json:"contract"` // PublisherContract
	Signed
}

// AppendCanonical appends the RFC 8785 form, which is the signed form.
func (p PublisherPayload) AppendCanonical(dst []byte) []byte {
	return append(dst, canonical(struct {
		Contract string `json:"contract"`
		PublisherPayload
	}{PublisherContract, p})...)
}

const maxPublisherDomains = 20

var (
	domainPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	methodPattern = regexp.MustCompile(`^(dns|https)$`)
)

// ParsePublisherPayload reads the signed bytes of a statement as strictly as ParseRecordPayload.
func ParsePublisherPayload(payload []byte) (PublisherPayload, error) {
	return parsePayload(payload, PublisherContract, func(o *strictjson.Object) PublisherPayload {
		p := PublisherPayload{
			Issuer:     o.Match("issuer", strictjson.Required, issuerPattern.MatchString, issuerRule),
			PublicID:   readPublicID(o),
			Domains:    []PublisherDomain{},
			ObservedAt: readInstant(o, "observedAt"),
		}
		for _, d := range o.Objects("domains", strictjson.Required, 0, maxPublisherDomains) {
			name := d.Match("domain", strictjson.Required, isDomain, "must be a domain in ASCII and lower case")
			if slices.ContainsFunc(p.Domains, func(other PublisherDomain) bool { return other.Domain == name }) {
				d.Problem("domain", strictjson.CodeFormat, "must not stand twice in the list")
			}
			p.Domains = append(p.Domains, PublisherDomain{
				Domain:    name,
				Method:    d.Match("method", strictjson.Required, methodPattern.MatchString, "must be dns or https"),
				CheckedAt: readInstant(d, "checkedAt"),
			})
		}
		if o.NullableString("name", strictjson.Required) != nil {
			p.Name = readPublished(o, "name")
		}
		if o.NullableString("statedAt", strictjson.Required) != nil {
			p.StatedAt = new(readInstant(o, "statedAt"))
		}
		if (p.Name == nil) != (p.StatedAt == nil) {
			o.Problem("statedAt", strictjson.CodeFormat, "must stand beside a name, and only there")
		}
		if p.Name != nil && len(p.Domains) == 0 {
			o.Problem("name", strictjson.CodeFormat, "must be null without a domain")
		}
		return p
	})
}

func isDomain(text string) bool { return len(text) <= 253 && domainPattern.MatchString(text) }

// verifyPublisher performs steps 2 to 5 of a statement about an organization. It is about no file, so a document to
// compare is a failure.
func (f *Findings) verifyPublisher(o *strictjson.Object, trust *TrustedKeys, opts Options) {
	constant(o, "contract", PublisherContract)
	s := readSigned(o)
	if err := refusal(o.Problems()); err != nil {
		f.fail("signature", "statement: %s", err)
		return
	}
	statement, signed := verifySigned(f, s, trust, ParsePublisherPayload)
	if signed && statement == nil {
		return
	}
	if statement != nil && statement.ObservedAt.After(opts.Now.Add(clockTolerance)) {
		f.Signature = Invalid
		f.fail("signature", "%s", say.Errorf("it lies in the future of this computer's clock"))
		return
	}
	if f.Publisher = statement; statement != nil {
		f.References, f.Observation, f.StatusAsOf, f.Inclusion, f.Time = NotSupplied, NotSupplied, NotSupplied, NotSupplied,
			NotSupplied
		f.note(
			"This is what the organization of %s had proven and said about itself at %s. It says nothing about the time of the "+
				"registration.", statement.PublicID, FormatTime(statement.ObservedAt),
		)
		if opts.Document != nil {
			f.fail("file", "a statement about an organization is about no file: verify the file with its receipt")
		}
	}
	f.require(trust, opts)
}
