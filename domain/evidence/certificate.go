package evidence

import (
	"crypto/x509"
	"encoding/asn1"
	"slices"

	"integrityledger/domain/say"

	"golang.org/x/crypto/cryptobyte"
	der "golang.org/x/crypto/cryptobyte/asn1"
)

var (
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidNameConstraints  = asn1.ObjectIdentifier{2, 5, 29, 30}
	oidDistribution     = asn1.ObjectIdentifier{2, 5, 29, 31}
	oidPolicies         = asn1.ObjectIdentifier{2, 5, 29, 32}
)

var errNotDER = say.Errorf("it is not in DER")

// checkDER requires that consecutive elements and their contents are encoded in DER (X.690, sections 8 and 10), as far
// as universal types determine the encoding. Times are checked only if they matter.
func checkDER(text cryptobyte.String, depth int) error {
	const deepest = 32
	for !text.Empty() {
		var content cryptobyte.String
		var tag der.Tag
		if depth > deepest || !text.ReadAnyASN1(&content, &tag) || tag&0x1f == 0x1f || !spelledInDER(tag, content) {
			return errNotDER
		}
		if tag&0x20 != 0 {
			if err := checkDER(content, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func spelledInDER(tag der.Tag, content []byte) bool {
	n := len(content)
	switch tag {
	case der.SEQUENCE, der.SET:
		return true
	case der.BOOLEAN:
		return n == 1 && (content[0] == 0 || content[0] == 0xff)
	case der.INTEGER, der.ENUM:
		return n == 1 || n > 1 && (content[0] != 0 || content[1] > 0x7f) && (content[0] != 0xff || content[1] < 0x80)
	case der.BIT_STRING:
		return n == 1 && content[0] == 0 || n > 1 && content[0] < 8 && content[n-1]&(1<<content[0]-1) == 0
	case der.NULL:
		return n == 0
	case der.OBJECT_IDENTIFIER:
		return isOID(content)
	default:
		return tag >= 0x40 || tag > 0 && tag < 0x20
	}
}

// isOID reports whether the content is a sequence of complete, minimally encoded arcs of any size.
func isOID(content []byte) bool {
	first := true
	for _, b := range content {
		if first && b == 0x80 {
			return false
		}
		first = b < 0x80
	}
	return len(content) > 0 && first
}

// outline holds the elements of a certificate (RFC 5280, section 4.1).
type outline struct {
	version, serial, issuer, validity, subject, key, extensions field
	extended                                                    bool // it has extensions
}

// readOutline reads the elements of a certificate and refuses any others. It checks their tags, not their contents,
// which matter only for certificates between the signer and a pinned one.
func readOutline(text []byte, err *error) (o outline) {
	f := field{text, err}
	whole := f.read("a certificate", der.SEQUENCE)
	tbs := whole.read("what a certificate signs", der.SEQUENCE)
	whole.read("a certificate's signature algorithm", der.SEQUENCE)
	whole.read("a certificate's signature", der.BIT_STRING)
	whole.done("a certificate")
	o.version, _ = tbs.optional("a certificate's version", context0.Constructed())
	o.serial = tbs.read("a certificate's serial number", der.INTEGER)
	tbs.read("a certificate's signature algorithm", der.SEQUENCE)
	o.issuer = tbs.read("a certificate's issuer", der.SEQUENCE)
	o.validity = tbs.read("a certificate's validity", der.SEQUENCE)
	o.subject = tbs.read("a certificate's subject", der.SEQUENCE)
	o.key = tbs.read("a certificate's key", der.SEQUENCE)
	tbs.optional("a unique identifier", context1)
	tbs.optional("a unique identifier", der.Tag(2).ContextSpecific())
	o.extensions, o.extended = tbs.optional("the extensions", der.Tag(3).Constructed().ContextSpecific())
	tbs.done("what a certificate signs")
	return o
}

// parseCertificate reads an X.509 certificate in DER. Go's parser ignores anything after the last element that it
// knows; parseCertificate requires exactly the elements of RFC 5280, and DER within the relevant extensions.
func parseCertificate(text []byte) (*x509.Certificate, error) {
	if err := checkDER(text, 0); err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(text)
	if err != nil {
		return nil, err
	}
	o := readOutline(text, &err)
	if !o.version.Empty() {
		o.version.read("a certificate's version", der.INTEGER)
		o.version.done("a certificate's version")
	}
	o.issuer.name("a certificate's issuer")
	for range 2 {
		if _, there := o.validity.optional("a certificate's validity", der.UTCTime); !there {
			o.validity.read("a certificate's validity", der.GeneralizedTime)
		}
	}
	o.validity.done("a certificate's validity")
	o.subject.name("a certificate's subject")
	kind := o.key.read("a certificate's key", der.SEQUENCE)
	kind.oid("a certificate's key")
	if !kind.Empty() {
		kind.one("the parameters of a certificate's key")
	}
	o.key.read("a certificate's key", der.BIT_STRING)
	o.key.done("a certificate's key")
	if o.extended {
		if c.Version != 3 {
			o.extensions.fail("a certificate with extensions must be of version 3")
		}
		extensions := o.extensions.read("the extensions", der.SEQUENCE)
		o.extensions.done("the extensions")
		readExtensions(&extensions, func(id asn1.ObjectIdentifier, _ bool, value []byte) {
			switch {
			case id.Equal(oidBasicConstraints), id.Equal(oidKeyUsage), id.Equal(oidExtKeyUsage):
				one := field{value, &err}
				one.one("an extension of a certificate")
			}
		})
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// name reads the content of a Name: sets of a type and a value each.
func (f *field) name(what string) {
	for *f.err == nil && !f.Empty() {
		set := f.read(what, der.SET)
		for *f.err == nil && !set.Empty() {
			pair := set.read(what, der.SEQUENCE)
			pair.oid(what)
			pair.one(what)
		}
	}
}

// one requires one element of DER and nothing after it.
func (f *field) one(what string) {
	if *f.err == nil && checkDER(f.String, 0) != nil {
		f.fail("%s is not in DER", what)
	}
	var element cryptobyte.String
	var tag der.Tag
	if *f.err == nil && !f.ReadAnyASN1Element(&element, &tag) {
		f.fail("%s is missing or malformed", what)
	}
	f.done(what)
}

// readExtensions reads Extensions (RFC 5280, section 4.1), each of which may appear once.
func readExtensions(f *field, each func(id asn1.ObjectIdentifier, critical bool, value []byte)) {
	var seen []string
	for *f.err == nil && !f.Empty() {
		e := f.read("an extension", der.SEQUENCE)
		id := e.oid("an extension's type")
		critical := e.boolean("an extension's criticality")
		value := e.read("an extension's value", der.OCTET_STRING)
		e.done("an extension")
		if slices.Contains(seen, id.String()) {
			f.fail("an extension stands twice")
		}
		seen = append(seen, id.String())
		if *f.err == nil {
			each(id, critical, value.String)
		}
	}
}

// understood reports whether all critical extensions of a certificate are either checked here or irrelevant to these
// checks (CRL distribution points and policies). Name constraints are not checked, so they are not understood.
func understood(c *x509.Certificate) bool {
	for _, e := range c.Extensions {
		known := e.Id.Equal(oidBasicConstraints) || e.Id.Equal(oidKeyUsage) || e.Id.Equal(oidExtKeyUsage) ||
			e.Id.Equal(oidDistribution) || e.Id.Equal(oidPolicies)
		if e.Critical && !known || e.Id.Equal(oidNameConstraints) {
			return false
		}
	}
	return true
}
