package evidence

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"
)

// primeKey is an RSA key whose modulus is a Mersenne prime, so every run has the same key without a search for primes.
type primeKey struct{ rsa.PublicKey }

func mersenne(bits uint, exponent int) primeKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits)
	return primeKey{rsa.PublicKey{N: n.Sub(n, big.NewInt(1)), E: exponent}}
}

func (k primeKey) Public() crypto.PublicKey { return &k.PublicKey }

// Sign signs with PKCS #1, version 1.5, and SHA-256.
func (k primeKey) Sign(_ io.Reader, sum []byte, _ crypto.SignerOpts) ([]byte, error) {
	info := tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, sum))
	size := (k.N.BitLen() + 7) / 8
	padded := slices.Concat([]byte{0, 1}, bytes.Repeat([]byte{0xff}, size-3-len(info)), []byte{0}, info)
	d := new(big.Int).ModInverse(big.NewInt(int64(k.E)), new(big.Int).Sub(k.N, big.NewInt(1)))
	return new(big.Int).Exp(new(big.Int).SetBytes(padded), d, k.N).FillBytes(make([]byte, size)), nil
}

// reissued returns a certificate by an ECDSA key with old replaced by changed in its signed part. Both must have the
// same length unless they are direct elements of the signed part.
func (s stampBook) reissued(a, by *testAuthority, old, changed []byte) *testAuthority {
	s.t.Helper()
	content := a.certificate.RawTBSCertificate[headOf(a.certificate.RawTBSCertificate):]
	if bytes.Count(content, old) != 1 {
		s.t.Fatalf("%x does not stand once", old)
	}
	tbs := tlv(tagSequence, bytes.Replace(content, old, changed, 1))
	signature, err := by.key.(*ecdsa.PrivateKey).Sign(nil, digest(crypto.SHA256, tbs), crypto.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	der := tlv(
		tagSequence, tbs, algorithmDER(asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}), tlv(3, []byte{0}, signature),
	)
	chain := append([][]byte{der}, a.chain[1:]...)
	return &testAuthority{
		&x509.Certificate{Raw: der, RawIssuer: a.certificate.RawIssuer, SerialNumber: a.certificate.SerialNumber}, a.key,
		chain,
	}
}

// strict adds tokens and certificates on which libraries disagree.
func (s stampBook) strict() {
	add := func(finding Finding, name string, spec stampSpec, expect ...func(*vector)) {
		s.add("strict: "+name, s.export(s.by(spec, goodGenTime)), append([]func(*vector){timed(finding)}, expect...)...)
	}
	by := func(a *testAuthority) stampSpec { return stampSpec{by: a, genTime: goodTime, hash: crypto.SHA256} }
	leaf := func(by *testAuthority, changes ...func(c *x509.Certificate)) *testAuthority {
		return certify(s.t, "strict", curveKey(s.t, elliptic.P256(), 41), by, stamping(s.t, changes...))
	}
	ca := func(name string, change func(c *x509.Certificate)) *testAuthority {
		return certify(s.t, name, curveKey(s.t, elliptic.P256(), 42), s.root, change)
	}
	extended := func(critical bool, id asn1.ObjectIdentifier, value []byte) func(c *x509.Certificate) {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: id, Critical: critical, Value: value})
		}
	}
	unknown, policies := asn1.ObjectIdentifier{1, 2, 3, 4}, tlv(
		tagSequence, tlv(tagSequence, oidDER(asn1.ObjectIdentifier{1, 2, 3})),
	)
	names := tlv(tagSequence, tlv(tagContext0, tlv(tagSequence, tlv(0x82, []byte("example.org")))))
	for name, c := range map[string]struct {
		finding Finding
		change  func(c *x509.Certificate)
	}{
		"an unknown extension":          {Valid, extended(false, unknown, null)},
		"an unknown critical extension": {Untrusted, extended(true, unknown, null)},
		"critical policies":             {Valid, extended(true, oidPolicies, policies)},
		"critical constraints of policies": {
			Untrusted, extended(true, asn1.ObjectIdentifier{2, 5, 29, 54}, []byte{tagInteger, 1, 0}),
		},
		"a critical alternative name": {
			Untrusted, extended(true, asn1.ObjectIdentifier{2, 5, 29, 17}, tlv(tagSequence, tlv(0x82, []byte("a.example")))),
		},
		"constraints of names":          {Untrusted, extended(false, oidNameConstraints, names)},
		"critical constraints of names": {Untrusted, extended(true, oidNameConstraints, names)},
		"key usage without a bit, which is any": {Valid, func(c *x509.Certificate) {
			c.KeyUsage = 0
			extended(true, oidKeyUsage, []byte{3, 1, 0})(c)
		}},
	} {
		add(c.finding, "its certificate with "+name, by(leaf(s.root, c.change)))
		add(c.finding, "its issuer with "+name, by(leaf(ca("Alpha Strict", c.change))))
	}

	beside := func(finding Finding, name string, others ...[]byte) {
		add(finding, "beside its own certificate "+name, s.alpha.with("chain", func(b []byte) []byte {
			return slices.Concat(b, slices.Concat(others...))
		}))
	}
	beside(Valid, "one that had expired", ca("Alpha Former", func(c *x509.Certificate) {
		c.NotAfter = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	}).chain[0])
	beside(Valid, "one that is not valid yet", ca("Alpha Later", func(c *x509.Certificate) {
		c.NotBefore = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	}).chain[0])
	beside(Valid, "the root's key in another certificate",
		certify(s.t, "Alpha Root", s.root.key, nil, func(c *x509.Certificate) {
			c.SerialNumber = big.NewInt(77)
		}).chain[0])
	servers := ca("Alpha Servers", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	server := certify(s.t, "server", curveKey(s.t, elliptic.P256(), 43), servers, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
	})
	beside(Valid, "one by an issuer for servers", server.chain[0], servers.chain[0])

	for name, c := range map[string]struct {
		finding Finding
		key     primeKey
	}{
		"RSA of 4423 bits": {Valid, mersenne(4423, 65537)}, "RSA of 9689 bits": {Invalid, mersenne(9689, 65537)},
		"an RSA exponent of 2^31-1":     {Valid, mersenne(4423, 1<<31-1)},
		"an RSA exponent beyond 2^31-1": {Invalid, mersenne(4423, 1<<31+11)},
	} {
		a := certify(s.t, "strict", curveKey(s.t, elliptic.P256(), 41), s.root, stamping(s.t))
		made := s.reissued(
			a, s.root, a.certificate.RawSubjectPublicKeyInfo, rsaSPKI(c.key.N, int64(c.key.E), algorithmDER(oidRSA, null)),
		)
		made.key = c.key
		add(c.finding, name, by(made))
	}
	a := leaf(s.root)
	spki := a.certificate.RawSubjectPublicKeyInfo
	rekeyed := func(finding Finding, name string, key crypto.Signer, changed []byte) {
		made := s.reissued(a, s.root, spki, changed)
		made.key = key
		add(finding, name, by(made))
	}
	rsaSigner := rsaKey(s.t, "timestamp-rsa-key.pem").(*rsa.PrivateKey)
	rekeyed(Valid, "an RSA key", rsaSigner, rsaSPKI(rsaSigner.N, 65537, algorithmDER(oidRSA, null)))
	rekeyed(Invalid, "an RSA key without NULL", rsaSigner, rsaSPKI(rsaSigner.N, 65537, algorithmDER(oidRSA)))
	rekeyed(
		Invalid, "an RSA key for PSS alone", rsaSigner,
		rsaSPKI(rsaSigner.N, 65537, algorithmDER(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10})),
	)
	rekeyed(
		Invalid, "an RSA key with exponent 1", exponentOne{rsaSigner.N}, rsaSPKI(rsaSigner.N, 1, algorithmDER(oidRSA, null)),
	)
	ec := a.key.(*ecdsa.PrivateKey)
	curve := algorithmDER(
		asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, oidDER(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}),
	)
	rekeyed(
		Invalid, "a compressed point", ec,
		tlv(tagSequence, curve, tlv(3, []byte{0}, elliptic.MarshalCompressed(elliptic.P256(), ec.X, ec.Y))),
	)
	rekeyed(Invalid, "a key with more after its bits", ec, tlv(tagSequence, spki[headOf(spki):], null))

	mid := ca("Alpha Strict", nil)
	for name, changed := range map[string][]byte{"version 1": {}, "version 2": version(1), "version 35": version(34)} {
		below := leaf(mid)
		below.chain = [][]byte{below.chain[0], s.reissued(mid, s.root, version(2), changed).chain[0]}
		add(Untrusted, "an issuer of "+name+" with extensions", by(below))
	}
	validity := tlv(tagSequence, tlv(0x17, []byte("260101000000Z")), tlv(0x17, []byte("270101000000Z")))
	add(
		Invalid, "its certificate with three times",
		by(s.reissued(a, s.root, validity, tlv(tagSequence, validity[2:], tlv(0x17, []byte("270101000000Z"))))),
	)
	subject := a.certificate.RawSubject
	pair := subject[4:]
	add(
		Invalid, "its certificate with a name of three parts",
		by(s.reissued(a, s.root, subject, tlv(tagSequence, tlv(tagSet, tlv(tagSequence, pair[headOf(pair):], null))))),
	)
	add(Invalid, "its extended key usage with more after it", by(leaf(s.root, func(c *x509.Certificate) {
		c.ExtraExtensions[0].Value = append(c.ExtraExtensions[0].Value, null...)
	})))

	one := tlv(tagSequence, oidDER(unknown), tlv(tagOctets))
	sum := digest(crypto.SHA256, s.alpha.by.certificate.Raw)
	naming := func(id, list, whole []byte) []byte {
		return attributeDER(
			oidSigningCertificateV2, tlv(tagSequence, tlv(tagSequence, tlv(tagSequence, tlv(tagOctets, sum), id), list), whole),
		)
	}
	for name, edit := range map[string][2]any{
		"an authority's name with a needless byte of length": {"tsa", tlv(tagContext0, []byte{0x82, 0x81, 1, 'a'})},
		"an extension twice":                             {"extensions", tlv(tagContext1, one, one)},
		"an extension with more after it":                {"extensions", tlv(tagContext1, tlv(tagSequence, one[2:], null))},
		"an extension without value":                     {"extensions", tlv(tagContext1, tlv(tagSequence, oidDER(unknown)))},
		"milliseconds with a needless zero":              {"accuracy", tlv(tagSequence, []byte{0x80, 2, 0, 5})},
		"an attribute with a bit too many":               {"attribute", attributeDER(unknown, []byte{3, 2, 1, 1})},
		"a signing certificate with more after it":       {"signingCertificate", naming(null, nil, nil)},
		"signing certificates with more after them":      {"signingCertificate", naming(nil, nil, null)},
		"an attribute whose value has an OID of no arcs": {"attribute", attributeDER(unknown, tlv(6))},
	} {
		add(Invalid, name, s.alpha.with(edit[0].(string), replaced(edit[1].([]byte))))
	}
	add(
		Valid, "a signing certificate with its issuer, and policies",
		s.alpha.with("signingCertificate", replaced(naming(tlv(tagSequence), nil, tlv(tagSequence)))),
	)

	root, text := s.root.certificate.Raw, base64.StdEncoding.EncodeToString
	for name, altered := range map[string][]byte{
		"a root of version 35":      respelled(s.t, root, version(2), version(34)),
		"a root on brainpoolP256r1": unrelatedCertificates(s.t)["with a key of brainpoolP256r1"],
	} {
		s.trust[name] = strings.Replace(s.trust[stampedKeys], text(root), text(altered), 1)
		s.add("strict: pinned, "+name, s.export(s.good()), func(v *vector) {
			v.TrustedKeys, v.Expect = name, expectation{ExitCode: 2}
		})
	}
	key := s.logSigner.key.names()
	s.trusts("log key revoked within the microsecond", s.pinned(s.t, func(t *TrustedKeys) {
		t.revoked = append(
			slices.Clone(t.revoked),
			RevokedKey{key.KeyID, key.FingerprintSHA256, ReasonCompromised, "2026-11-19T09:31:00.0000005Z"},
		)
	}))
	for name, c := range map[string]struct {
		since   string
		finding Finding
	}{"before": {"2026-11-19T09:30:59Z", Untrusted}, "after": {"2026-11-19T09:31:01Z", Valid}} {
		former := s.retiredLog.key.names()
		s.trusts("former log key revoked "+name+" the token", s.pinned(s.t, func(t *TrustedKeys) {
			t.revoked = append(
				slices.Clone(t.revoked), RevokedKey{former.KeyID, former.FingerprintSHA256, ReasonCompromised, c.since},
			)
		}))
		s.add("strict: stamped under one log key, the proof under another that was revoked "+name,
			s.export(s.good(), func(e *Envelope) {
				text := e.Inclusion.Checkpoint[:strings.Index(e.Inclusion.Checkpoint, "\n\n")+1]
				e.Inclusion.Checkpoint = sign(s.t, text, s.retiredLog)
			}), timed(Valid), included(c.finding), trusting("former log key revoked "+name+" the token"), func(v *vector) {
				if c.finding != Valid {
					v.Expect.Findings.Witnessed, v.Expect.ExitCode = nil, 1
				}
			})
	}
	s.add(
		"strict: log key revoked within the microsecond of the token", s.export(s.good()), timed(Valid),
		trusting("log key revoked within the microsecond"),
	)
}

func rsaSPKI(n *big.Int, exponent int64, algorithm []byte) []byte {
	key, err := asn1.Marshal(struct {
		N *big.Int
		E int64
	}{n, exponent})
	if err != nil {
		panic(err)
	}
	return tlv(tagSequence, algorithm, tlv(3, []byte{0}, key))
}

// exponentOne signs like an RSA key with exponent 1, which needs no private key.
type exponentOne struct{ n *big.Int }

func (k exponentOne) Public() crypto.PublicKey { return nil }

func (k exponentOne) Sign(_ io.Reader, sum []byte, _ crypto.SignerOpts) ([]byte, error) {
	info := tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, sum))
	return slices.Concat([]byte{0, 1}, bytes.Repeat([]byte{0xff}, k.n.BitLen()/8-3-len(info)), []byte{0}, info), nil
}
