package evidence

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// replaced returns an edit that replaces a part.
func replaced(part []byte) func([]byte) []byte { return func([]byte) []byte { return part } }

// tokenForms adds tokens that deviate from the profile but have a valid signature if possible.
func (s stampBook) tokenForms() {
	add := func(finding Finding, name string, spec stampSpec, expect ...func(*vector)) {
		s.add("token form: "+name, s.export(s.by(spec, goodGenTime)), append([]func(*vector){timed(finding)}, expect...)...)
	}
	one := []byte{tagInteger, 1, 1}
	sha256Sum := func(b []byte) []byte { return digest(crypto.SHA256, b) }
	certificate := s.alpha.by.certificate.Raw
	second := func(parts ...[]byte) []byte {
		return attributeDER(oidSigningCertificateV2, tlv(tagSequence, tlv(tagSequence, tlv(tagSequence, parts...))))
	}
	sum1 := sha1.Sum(certificate)
	first := attributeDER(
		oidSigningCertificate, tlv(tagSequence, tlv(tagSequence, tlv(tagSequence, tlv(tagOctets, sum1[:])))),
	)
	for name, edit := range map[string][2]any{
		"signing certificate of version 1":     {"signingCertificate", first},
		"signing certificate of both versions": {"attribute", first},
		"signing certificate with its digest's name": {
			"signingCertificate", second(algorithmDER(oidSHA512), tlv(tagOctets, digest(crypto.SHA512, certificate))),
		},
		"an attribute more":    {"attribute", attributeDER(asn1.ObjectIdentifier{1, 2, 3}, tlv(tagOctets))},
		"a nonce":              {"nonce", []byte{tagInteger, 2, 1, 2}},
		"ordering":             {"ordering", []byte{tagBoolean, 1, 0xff}},
		"the authority's name": {"tsa", tlv(tagContext0, tlv(0xa4, s.alpha.by.certificate.RawSubject))},
		"an extension": {
			"extensions", tlv(tagContext1, tlv(tagSequence, oidDER(asn1.ObjectIdentifier{1, 2, 3}), tlv(tagOctets))),
		},
		"an imprint's digest without parameters": {
			"imprint", tlv(tagSequence, algorithmDER(oidSHA256), tlv(tagOctets, sha256Sum([]byte(s.note())))),
		},
		"a signature's name with NULL": {"algorithm", algorithmDER(asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, null)},
		"digests without parameters":   {"digests", tlv(tagSet, algorithmDER(oidSHA256))},
	} {
		add(Valid, name, s.alpha.with(edit[0].(string), replaced(edit[1].([]byte))))
	}
	for name, edit := range map[string][2]any{
		"ordering of another byte than DER has": {"ordering", []byte{tagBoolean, 1, 1}},
		"an empty token":                        {"token", []byte{}},
		"a critical extension": {
			"extensions",
			tlv(
				tagContext1, tlv(tagSequence, oidDER(asn1.ObjectIdentifier{1, 2, 3}), []byte{tagBoolean, 1, 0xff}, tlv(tagOctets)),
			),
		},
		"version 1":              {"version", one},
		"version 4":              {"version", []byte{tagInteger, 1, 4}},
		"a version of two bytes": {"version", []byte{tagInteger, 2, 0, 3}},
		"no digests":             {"digests", tlv(tagSet)},
		"two digests": {
			"digests", tlv(tagSet, algorithmDER(oidSHA256, null), algorithmDER(oidSHA384, null)),
		},
		"another digest listed":          {"digests", tlv(tagSet, algorithmDER(oidSHA384, null))},
		"another digest of the signer":   {"signer digest", algorithmDER(oidSHA384, null)},
		"SHA-1 of the signer":            {"signer digest", algorithmDER(oidSHA1, null)},
		"parameters of a digest":         {"digests", tlv(tagSet, algorithmDER(oidSHA256, one))},
		"data in the place of a TSTInfo": {"type", oidDER(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1})},
		"no content":                     {"content", []byte{}},
		"no certificates":                {"certificates", []byte{}},
		"an empty set of certificates":   {"chain", []byte{}},
		"revocation lists":               {"crls", tlv(tagContext1)},
		"unsigned attributes": {
			"unsigned", tlv(tagContext1, attributeDER(asn1.ObjectIdentifier{1, 2, 3}, tlv(tagOctets))),
		},
		"an empty set of unsigned attributes": {"unsigned", tlv(tagContext1)},
		"no signer":                           {"signers", tlv(tagSet)},
		"version 3 of the signer":             {"signer version", []byte{tagInteger, 1, 3}},
		"a signer named by its key":           {"signer name", []byte{0x80, 1, 1}},
		"another serial number": {
			"signer name", tlv(tagSequence, s.alpha.by.certificate.RawIssuer, one),
		},
		"another issuer": {
			"signer name", tlv(tagSequence, s.beta.by.certificate.RawIssuer, one),
		},
		"a serial number with a needless zero": {
			"signer name",
			tlv(
				tagSequence, s.alpha.by.certificate.RawIssuer,
				tlv(tagInteger, []byte{0}, s.alpha.by.certificate.SerialNumber.Bytes()),
			),
		},
		"no signed content type": {"contentType", []byte{}},
		"another signed content type": {
			"contentType", attributeDER(oidContentType, oidDER(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1})),
		},
		"no signed digest": {"messageDigest", []byte{}},
		"another signed digest": {
			"messageDigest", attributeDER(oidMessageDigest, tlv(tagOctets, make([]byte, 32))),
		},
		"two values of the signed digest": {
			"messageDigest", attributeDER(oidMessageDigest, tlv(tagOctets, make([]byte, 32)), tlv(tagOctets, make([]byte, 32))),
		},
		"no signing certificate": {"signingCertificate", []byte{}},
		"another signing certificate": {
			"signingCertificate", second(tlv(tagOctets, sha256Sum(s.beta.by.certificate.Raw))),
		},
		"another signing certificate of version 1": {
			"attribute",
			attributeDER(
				oidSigningCertificate, tlv(tagSequence, tlv(tagSequence, tlv(tagSequence, tlv(tagOctets, make([]byte, 20))))),
			),
		},
		"a signing certificate by SHA-1 in version 2": {
			"signingCertificate", second(algorithmDER(oidSHA1), tlv(tagOctets, sum1[:])),
		},
		"a signed attribute twice":         {"attribute", attributeDER(oidContentType, oidDER(oidTSTInfo))},
		"a signed attribute without value": {"attribute", attributeDER(asn1.ObjectIdentifier{1, 2, 3})},
		"no signed attributes":             {"attributes", []byte{}},
		"version 2 of the TSTInfo":         {"tstInfo version", []byte{tagInteger, 1, 2}},
		"an imprint by SHA-384": {
			"imprint", tlv(tagSequence, algorithmDER(oidSHA384, null), tlv(tagOctets, digest(crypto.SHA384, []byte(s.note())))),
		},
		"an imprint of 31 bytes": {
			"imprint", tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, sha256Sum([]byte(s.note()))[:31])),
		},
		"an imprint of 33 bytes": {
			"imprint", tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, sha256Sum([]byte(s.note())), []byte{0})),
		},
		"another imprint": {
			"imprint", tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, make([]byte, 32))),
		},
		"more after the TSTInfo's last member": {"extensions", tlv(tagOctets)},
		"a signature of no bytes":              {"signature", tlv(tagOctets)},
	} {
		add(Invalid, name, s.alpha.with(edit[0].(string), replaced(edit[1].([]byte))))
	}
	for name, edit := range map[string]func([]byte) []byte{
		"a byte after the token": func(b []byte) []byte { return append(b, 0) },
		"a byte less":            func(b []byte) []byte { return b[:len(b)-1] },
		"indefinite length": func(b []byte) []byte {
			return slices.Concat([]byte{tagSequence, 0x80}, b[4:], []byte{0, 0})
		},
		"a length with a needless byte": func(b []byte) []byte {
			return slices.Concat([]byte{tagSequence, 0x83, 0}, b[2:])
		},
		"a set in the place of the sequence": func(b []byte) []byte { return append([]byte{tagSet}, b[1:]...) },
		"the answer of the authority": func(b []byte) []byte {
			return tlv(tagSequence, tlv(tagSequence, []byte{tagInteger, 1, 0}), b)
		},
		"more than 8 KiB": func(b []byte) []byte { return append(b, make([]byte, 8<<10)...) },
	} {
		add(Invalid, name, s.alpha.with("token", edit))
	}
	add(Invalid, "attributes in another order", s.alpha.with("attributes", func(b []byte) []byte {
		n := 2 + int(b[1])
		return slices.Concat(b[n:], b[:n])
	}))
	add(Invalid, "two signers", s.alpha.with("signers", func(b []byte) []byte {
		return tlv(tagSet, b[headOf(b):], b[headOf(b):])
	}))
	add(Invalid, "content in pieces", s.alpha.with("content", func(b []byte) []byte { // BER
		octets := b[headOf(b):]
		return tlv(tagContext0, tlv(0x24, octets))
	}))
	add(Invalid, "a certificate that cannot be read", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, tlv(tagSequence, tlv(tagOctets)))
	}))
	add(Invalid, "its certificate with more after the signature", s.alpha.with("chain", func(b []byte) []byte {
		return tlv(tagSequence, b[headOf(b):], null)
	}))
	below := stampSpec{
		by: certify(
			s.t, "below", curveKey(s.t, elliptic.P256(), 41),
			certify(s.t, "Alpha Intermediate", curveKey(s.t, elliptic.P384(), 42), s.root, nil), stamping(s.t),
		),
		genTime: goodTime, hash: crypto.SHA256,
	}
	add(Invalid, "its intermediate with more after the signature", below.with("chain", func([]byte) []byte {
		return slices.Concat(below.by.chain[0], tlv(tagSequence, below.by.chain[1][headOf(below.by.chain[1]):], null))
	}))
	add(Invalid, "an attribute certificate", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, tlv(tagContext1, tlv(tagOctets)))
	}))
	add(Valid, "its certificate twice", s.alpha.with("chain", func(b []byte) []byte { return slices.Concat(b, b) }))
	add(Invalid, "nine certificates", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, bytes.Repeat(s.root.certificate.Raw, 8))
	}))
	add(Valid, "the pinned root beside its own certificate", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, s.root.certificate.Raw)
	}))
	add(Valid, "the pinned root in front", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(s.root.certificate.Raw, b)
	}))
	add(Valid, "a foreign certificate beside its own", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, s.foreign.by.certificate.Raw)
	}))
	add(Valid, "another authority's root beside its own", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, s.otherRoot.certificate.Raw)
	}))
	add(Valid, "the pinned root, altered", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, tampered(s.root.certificate.Raw, len(s.root.certificate.Raw)-1))
	}))
	s.unrelated(add)
}

// unrelatedCertificates returns certificates that no signer needs, by name. OpenSSL ignores each of them.
func unrelatedCertificates(t testing.TB) map[string][]byte {
	t.Helper()
	day := time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)
	_, ed25519Key, err := ed25519.GenerateKey(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string, key crypto.Signer, changes ...func(*x509.Certificate)) []byte {
		return certify(t, name, key, nil, func(c *x509.Certificate) {
			for _, change := range changes {
				change(c)
			}
		}).certificate.Raw
	}
	curve := curveKey(t, elliptic.P256(), 48)
	plain, point := made("Unrelated", curve), pointOf(t, curve)
	others := map[string][]byte{
		"of Ed25519":   made("Unrelated", ed25519Key),
		"of 1024 bits": made("Unrelated", rsaKey(t, "timestamp-rsa-1024-key.pem")),
		"of P-224":     made("Unrelated", curveKey(t, elliptic.P224(), 40)),
		"that expired": made("Unrelated", curve, func(c *x509.Certificate) { c.NotAfter = day }),
		"that is not valid yet": made("Unrelated", curve, func(c *x509.Certificate) {
			c.NotBefore = day.AddDate(0, 0, 1)
		}),
		"with an unknown critical extension": made("Unrelated", curve, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: null}}
		}),
		"of the name of the pinned root":          made("Alpha Root", curve),
		"with a key that is no point":             respelled(t, plain, point, tampered(point, len(point)-1)),
		"with a point of an unknown form":         respelled(t, plain, point, tampered(point, 0)),
		"with an underscore in a PrintableString": respelled(t, plain, []byte("Unrelated"), []byte("Unrel_ted")),
		"with letters in a time":                  respelled(t, plain, []byte("260101000000Z"), []byte("2601010000xxZ")),
		"of version 2 with extensions":            respelled(t, plain, version(2), version(1)),
		"of version 35":                           respelled(t, plain, version(2), version(34)),
		"with a negative serial number": respelled(t, made("Unrelated", curve, func(c *x509.Certificate) {
			c.SerialNumber = big.NewInt(17)
		}), []byte{tagInteger, 1, 17}, []byte{tagInteger, 1, 0xef}),
		"with other basic constraints": respelled(
			t, plain, []byte{tagSequence, 3, tagBoolean, 1, 0xff}, []byte{tagSequence, 3, tagOctets, 1, 0xff},
		),
	}
	files, err := filepath.Glob("testdata/unrelated-*.der") // made by OpenSSL
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		der, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "unrelated-"), ".der")
		others["with a key of "+kind] = der
	}
	others["with a key of brainpoolP256r1, and letters in a time"] = respelled(
		t, others["with a key of brainpoolP256r1"], []byte("261127064207Z"), []byte("2611270642xxZ"),
	)
	return others
}

// respelled replaces all occurrences of a part of a certificate by a part of the same length. The signature becomes
// invalid.
func respelled(t testing.TB, certificate, part, changed []byte) []byte {
	t.Helper()
	if len(part) != len(changed) || !bytes.Contains(certificate, part) {
		t.Fatalf("%x cannot become %x", part, changed)
	}
	return bytes.ReplaceAll(certificate, part, changed)
}

// pointOf returns the public half of an ECDSA key in the form used in certificates.
func pointOf(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	point, err := key.Public().(*ecdsa.PublicKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return point
}

// version returns the version element of a certificate, which counts from 0.
func version(number byte) []byte { return tlv(tagContext0, []byte{tagInteger, 1, number}) }

// unrelated adds tokens with certificates that their signer does not need.
func (s stampBook) unrelated(add func(Finding, string, stampSpec, ...func(*vector))) {
	curve := curveKey(s.t, elliptic.P256(), 48)
	others := unrelatedCertificates(s.t)
	for name, other := range others {
		add(Valid, "an unrelated certificate "+name, s.alpha.with("chain", func(b []byte) []byte {
			return slices.Concat(b, other)
		}))
		add(Valid, "in front, an unrelated certificate "+name, s.alpha.with("chain", func(b []byte) []byte {
			return slices.Concat(other, b)
		}))
	}
	whole := others["of P-224"]
	add(Invalid, "an unrelated certificate with more after its signature", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, tlv(tagSequence, whole[headOf(whole):], null))
	}))
	middle := certify(s.t, "Alpha Intermediate", curveKey(s.t, elliptic.P384(), 42), s.root, nil)
	under := func(chain ...[]byte) stampSpec {
		by := certify(s.t, "below", curveKey(s.t, elliptic.P256(), 41), middle, stamping(s.t))
		by.chain = append(by.chain[:1], chain...)
		return stampSpec{by: by, genTime: goodTime, hash: crypto.SHA256}
	}
	intermediate, stranger := middle.certificate.Raw, certify(s.t, "Alpha Intermediate", curve, nil, nil).certificate.Raw
	utc, letters := []byte("260101000000Z"), []byte("2601010000xxZ")
	noPoint := func(key crypto.Signer) (point, changed []byte) {
		point = pointOf(s.t, key)
		return point, tampered(point, len(point)-1)
	}
	point, changed := noPoint(middle.key)
	late, off := s.reissued(middle, s.root, utc, letters).chain[0], s.reissued(middle, s.root, point, changed).chain[0]
	add(Valid, "its intermediate twice", under(intermediate, intermediate))
	add(Valid, "its intermediate, and a stranger of the same name", under(stranger, intermediate))
	add(Valid, "its intermediate, and another of its name and key with letters in a time", under(late, intermediate))
	add(Valid, "its intermediate, and another of its name with a key that is no point", under(off, intermediate))
	add(Untrusted, "in the place of its intermediate, a stranger of the same name", under(stranger))
	add(Untrusted, "in the place of its intermediate, one with letters in a time", under(late))
	add(Untrusted, "in the place of its intermediate, one with a key that is no point", under(off))
	add(Valid, "eight certificates, doubles among them", s.alpha.with("chain", func(b []byte) []byte {
		return slices.Concat(b, b, bytes.Repeat(s.root.certificate.Raw, 3), bytes.Repeat(others["of Ed25519"], 3))
	}))
	point, changed = noPoint(s.alpha.by.key)
	add(
		Invalid, "its certificate with letters in a time",
		stampSpec{by: s.reissued(s.alpha.by, s.root, utc, letters), genTime: goodTime, hash: crypto.SHA256},
	)
	add(
		Invalid, "its certificate with a key that is no point",
		stampSpec{by: s.reissued(s.alpha.by, s.root, point, changed), genTime: goodTime, hash: crypto.SHA256},
	)
	twin := certify(s.t, s.alpha.by.certificate.Subject.CommonName, curve, s.root,
		stamping(s.t, func(c *x509.Certificate) {
			c.SerialNumber = s.alpha.by.certificate.SerialNumber
		}))
	brainpool := algorithmDER(
		asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, oidDER(asn1.ObjectIdentifier{1, 3, 36, 3, 3, 2, 8, 1, 1, 7}),
	)
	for name, der := range map[string][]byte{
		"": twin.certificate.Raw,
		", on another curve": s.reissued(
			twin, s.root, twin.certificate.RawSubjectPublicKeyInfo,
			tlv(tagSequence, brainpool, tlv(3, []byte{0}, pointOf(s.t, curve))),
		).chain[0],
		", with letters in a time": respelled(s.t, s.alpha.by.certificate.Raw, utc, letters),
	} {
		add(Invalid, "another certificate of the signer's name"+name, s.alpha.with("chain", func(b []byte) []byte {
			return slices.Concat(b, der)
		}))
		add(Invalid, "in front, another certificate of the signer's name"+name, s.alpha.with("chain", func(b []byte) []byte {
			return slices.Concat(der, b)
		}))
	}
}

// headOf returns the number of bytes before the content of an element.
func headOf(b []byte) int {
	if b[1] < 0x80 {
		return 2
	}
	return 2 + int(b[1]&0x7f)
}

// chains adds valid and invalid certificate chains of authorities.
func (s stampBook) chains() {
	leaf := func(name string, by *testAuthority, changes ...func(c *x509.Certificate)) stampSpec {
		return stampSpec{
			by: certify(s.t, name, curveKey(s.t, elliptic.P256(), 41), by, stamping(s.t, changes...)), genTime: goodTime,
			hash: crypto.SHA256,
		}
	}
	ca := func(name string, by *testAuthority, change func(c *x509.Certificate)) *testAuthority {
		return certify(s.t, name, curveKey(s.t, elliptic.P384(), 42), by, change)
	}
	add := func(finding Finding, name string, spec stampSpec, expect ...func(*vector)) {
		s.add("chain: "+name, s.export(s.by(spec, goodGenTime)), append([]func(*vector){timed(finding)}, expect...)...)
	}
	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, time.UTC) }
	purposes := func(critical bool, list ...asn1.ObjectIdentifier) func(c *x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{usage(s.t, critical, list...)} }
	}
	serverAuth := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
	add(Valid, "without key usage", leaf("plain", s.root, func(c *x509.Certificate) { c.KeyUsage = 0 }))
	add(Valid, "for non-repudiation", leaf("non-repudiation", s.root, func(c *x509.Certificate) {
		c.KeyUsage = x509.KeyUsageContentCommitment
	}))
	add(Invalid, "for key agreement", leaf("agreement", s.root, func(c *x509.Certificate) {
		c.KeyUsage = x509.KeyUsageKeyAgreement
	}))
	add(Invalid, "without extended key usage", leaf("no usage", s.root, func(c *x509.Certificate) {
		c.ExtraExtensions = nil
	}))
	add(Invalid, "for time stamping, not critical", leaf("not critical", s.root, purposes(false, timeStamping)))
	add(Invalid, "for servers", leaf("server", s.root, purposes(true, serverAuth)))
	add(Invalid, "for time stamping and servers", leaf("both", s.root, purposes(true, timeStamping, serverAuth)))
	add(
		Invalid, "for time stamping and something unknown",
		leaf("unknown usage", s.root, purposes(true, timeStamping, asn1.ObjectIdentifier{1, 2, 3})),
	)
	add(Invalid, "for any purpose", leaf("any", s.root, purposes(true, asn1.ObjectIdentifier{2, 5, 29, 37, 0})))
	add(Invalid, "of a certification authority", leaf("ca", s.root, func(c *x509.Certificate) { c.IsCA = true }))
	add(Untrusted, "expired", leaf("expired", s.root, func(c *x509.Certificate) { c.NotAfter = day(19) }))
	add(Untrusted, "not valid yet", leaf("young", s.root, func(c *x509.Certificate) { c.NotBefore = day(20) }))
	add(Valid, "expired since", leaf("expired since", s.root, func(c *x509.Certificate) { c.NotAfter = day(20) }))
	add(Valid, "through an intermediate", leaf("below", ca("Alpha Intermediate", s.root, nil)))
	lost := leaf("below", ca("Alpha Intermediate", s.root, nil))
	add(Untrusted, "through an intermediate that is missing", lost.with("chain", replaced(lost.by.certificate.Raw)))
	add(Untrusted, "through an expired intermediate",
		leaf("below", ca("Alpha Intermediate", s.root, func(c *x509.Certificate) {
			c.NotAfter = day(19)
		})))
	add(Untrusted, "through one that is no authority",
		leaf("below", ca("Alpha Intermediate", s.root, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
		})))
	add(Untrusted, "through one that may not sign certificates",
		leaf("below", ca("Alpha Intermediate", s.root, func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageCRLSign
		})))
	add(Untrusted, "through one for servers", leaf("below", ca("Alpha Intermediate", s.root, func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{usage(s.t, false, serverAuth)}
	})))
	add(Valid, "through one for time stamping", leaf("below", ca("Alpha Intermediate", s.root, func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{usage(s.t, false, timeStamping, serverAuth)}
	})))
	short := func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }
	add(Valid, "within the length of its path", leaf("below", ca("Alpha Intermediate", s.root, short)))
	upper := ca("Alpha Intermediate", s.root, short)
	deep := certify(s.t, "Alpha Second Intermediate", curveKey(s.t, elliptic.P256(), 43), upper, nil)
	add(Untrusted, "beyond the length of its path", leaf("far below", deep))
	free := certify(
		s.t, "Alpha Second Intermediate", curveKey(s.t, elliptic.P256(), 43), ca("Alpha Intermediate", s.root, nil), nil,
	)
	add(Valid, "through two intermediates", leaf("far below", free))
	add(
		Valid, "through three intermediates",
		leaf("three below", certify(s.t, "Alpha Third Intermediate", curveKey(s.t, elliptic.P256(), 46), free, nil)),
	)
	add(Untrusted, "through four intermediates",
		leaf("four below", certify(s.t, "Alpha Fourth Intermediate", curveKey(s.t, elliptic.P256(), 47),
			certify(s.t, "Alpha Third Intermediate", curveKey(s.t, elliptic.P256(), 46), free, nil), nil)))
	weak := certify(s.t, "Alpha Weak Intermediate", rsaKey(s.t, "timestamp-rsa-1024-key.pem"), s.root, nil)
	add(Untrusted, "through an intermediate of 1024 bits", leaf("below", weak))
	add(
		Untrusted, "by a foreign root of the same name",
		leaf("copy", certify(s.t, "Alpha Root", curveKey(s.t, elliptic.P256(), 44), nil, nil)),
	)
	add(
		Untrusted, "signed by itself",
		stampSpec{
			by: certify(s.t, "itself", curveKey(s.t, elliptic.P256(), 41), nil, stamping(s.t)), genTime: goodTime,
			hash: crypto.SHA256,
		},
	)
	// A pinned certificate need not be a root.
	own := leaf("pinned itself", s.foreignRoot)
	pin := func(name string, certificates ...[]byte) func(*vector) {
		s.trusts(name, s.pinned(s.t, func(t *TrustedKeys) {
			a, err := NewAuthority("Alpha", certificates)
			if err != nil {
				s.t.Fatal(err)
			}
			t.authorities = []Authority{a}
		}))
		return trusting(name)
	}
	add(Valid, "its own certificate pinned", own, pin("a pinned leaf", own.by.certificate.Raw))
	old := leaf("pinned and expired", s.foreignRoot, func(c *x509.Certificate) { c.NotAfter = day(19) })
	add(
		Untrusted, "its own certificate pinned, and expired", old, pin("a pinned leaf that expired", old.by.certificate.Raw),
	)
	middle := ca("Alpha Intermediate", s.foreignRoot, nil)
	add(
		Valid, "its issuer pinned, which is no root", leaf("below", middle),
		pin("a pinned intermediate", middle.certificate.Raw),
	)
	expiredRoot := certify(s.t, "Old Root", curveKey(s.t, elliptic.P256(), 45), nil, func(c *x509.Certificate) {
		c.NotAfter = day(19)
	})
	add(
		Untrusted, "a pinned root that has expired", leaf("below the old root", expiredRoot),
		pin("an expired root", expiredRoot.certificate.Raw),
	)
	add(Valid, "a root among others", s.alpha, pin("several roots", s.foreignRoot.certificate.Raw, s.root.certificate.Raw))
}
