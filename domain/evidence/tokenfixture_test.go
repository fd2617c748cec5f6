package evidence

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"
)

// testAuthority signs tokens, or certificates, with a key that is the same in every run.
type testAuthority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	chain       [][]byte // the certificates in its tokens, its own first
}

// curveKey returns a key derived from a seed.
func curveKey(t testing.TB, curve elliptic.Curve, seed byte) crypto.Signer {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(curve, bytes.Repeat([]byte{seed}, (curve.Params().BitSize+7)/8))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t testing.TB, file string) crypto.Signer {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*rsa.PrivateKey)
}

// certify issues a certificate for a key; by is nil for a root. change may be nil.
func certify(
	t testing.TB, name string, key crypto.Signer, by *testAuthority, change func(c *x509.Certificate),
) *testAuthority {
	t.Helper()
	serial := sha256.Sum256([]byte(name))
	c := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:8]), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if change != nil {
		change(c)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(nil, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &testAuthority{made, key, [][]byte{der}}
	if by != nil && by.certificate.CheckSignatureFrom(by.certificate) != nil { // an intermediate
		a.chain = append(a.chain, by.chain...)
	}
	return a
}

var timeStamping = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}

// usage returns an extendedKeyUsage extension.
func usage(t testing.TB, critical bool, purposes ...asn1.ObjectIdentifier) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal(purposes)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: oidExtKeyUsage, Critical: critical, Value: value}
}

// stamping turns a certificate into a timestamp authority's and then applies changes.
func stamping(t testing.TB, changes ...func(c *x509.Certificate)) func(c *x509.Certificate) {
	return func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.ExtraExtensions = false, x509.KeyUsageDigitalSignature, []pkix.Extension{
			usage(t, true, timeStamping),
		}
		for _, change := range changes {
			change(c)
		}
	}
}

// tlv returns an element of DER.
func tlv(tag byte, contents ...[]byte) []byte {
	content := slices.Concat(contents...)
	length := []byte{byte(len(content))}
	switch n := len(content); {
	case n > 0xffff:
		length = []byte{0x83, byte(n >> 16), byte(n >> 8), byte(n)}
	case n > 0xff:
		length = []byte{0x82, byte(n >> 8), byte(n)}
	case n > 0x7f:
		length = []byte{0x81, byte(n)}
	}
	return slices.Concat([]byte{tag}, length, content)
}

// Tags of DER.
const (
	tagBoolean, tagInteger, tagOctets, tagNull, tagTime, tagSequence, tagSet = 0x01, 0x02, 0x04, 0x05, 0x18, 0x30, 0x31
	tagContext0, tagContext1                                                 = 0xa0, 0xa1
)

func oidDER(oid asn1.ObjectIdentifier) []byte {
	der, err := asn1.Marshal(oid)
	if err != nil {
		panic(err)
	}
	return der
}

var (
	oidSHA1   = asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}
	oidSHA256 = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidSHA384 = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2}
	oidSHA512 = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3}
	oidRSA    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	null      = []byte{tagNull, 0}
)

func algorithmDER(oid asn1.ObjectIdentifier, parameters ...[]byte) []byte {
	return tlv(tagSequence, append([][]byte{oidDER(oid)}, parameters...)...)
}

func attributeDER(oid asn1.ObjectIdentifier, values ...[]byte) []byte {
	return tlv(tagSequence, oidDER(oid), tlv(tagSet, values...))
}

// stampSpec describes a token to create. Each part is valid unless edit changes it.
type stampSpec struct {
	by      *testAuthority
	genTime string // of GeneralizedTime
	hash    crypto.Hash
	edit    map[string]func(part []byte) []byte
}

func (s stampSpec) part(name string, parts ...[]byte) []byte {
	whole := slices.Concat(parts...)
	if edit := s.edit[name]; edit != nil {
		return edit(whole)
	}
	return whole
}

// with returns the spec with further edits.
func (s stampSpec) with(name string, edit func(part []byte) []byte) stampSpec {
	next := map[string]func([]byte) []byte{name: edit}
	for n, e := range s.edit {
		next[n] = e
	}
	s.edit = next
	return s
}

// token returns a TimeStampToken.
func (s stampSpec) token(t testing.TB, stamped string) []byte {
	t.Helper()
	hashOID := map[crypto.Hash]asn1.ObjectIdentifier{
		crypto.SHA256: oidSHA256, crypto.SHA384: oidSHA384, crypto.SHA512: oidSHA512,
	}[s.hash]
	imprint := sha256.Sum256([]byte(stamped))
	tstInfo := s.part("tstInfo", tlv(tagSequence,
		s.part("tstInfo version", tlv(tagInteger, []byte{1})), oidDER(asn1.ObjectIdentifier{1, 2, 3, 4}),
		s.part("imprint", tlv(tagSequence, algorithmDER(oidSHA256, null), tlv(tagOctets, imprint[:]))),
		tlv(tagInteger, []byte{0x2a}), s.part("genTime", tlv(tagTime, []byte(s.genTime))),
		s.part("accuracy"), s.part("ordering"), s.part("nonce"), s.part("tsa"), s.part("extensions")))
	certificate := sha256.Sum256(s.by.certificate.Raw)
	attributes := [][]byte{
		s.part("contentType", attributeDER(oidContentType, oidDER(oidTSTInfo))),
		s.part("messageDigest", attributeDER(oidMessageDigest, tlv(tagOctets, digest(s.hash, tstInfo)))),
		s.part(
			"signingCertificate",
			attributeDER(
				oidSigningCertificateV2, tlv(tagSequence, tlv(tagSequence, tlv(tagSequence, tlv(tagOctets, certificate[:])))),
			),
		),
		s.part("attribute"),
	}
	slices.SortFunc(attributes, bytes.Compare)
	signed := s.part("attributes", attributes...)
	signature, err := s.by.key.Sign(nil, digest(s.hash, tlv(tagSet, signed)), s.hash)
	if err != nil {
		t.Fatal(err)
	}
	algorithm := algorithmDER(oidRSA, null)
	if _, ok := s.by.key.(*ecdsa.PrivateKey); ok {
		algorithm = algorithmDER(map[crypto.Hash]asn1.ObjectIdentifier{
			crypto.SHA256: {1, 2, 840, 10045, 4, 3, 2}, crypto.SHA384: {1, 2, 840, 10045, 4, 3, 3},
			crypto.SHA512: {1, 2, 840, 10045, 4, 3, 4},
		}[s.hash])
	}
	serial, err := asn1.Marshal(s.by.certificate.SerialNumber)
	if err != nil {
		t.Fatal(err)
	}
	signer := s.part("signer", tlv(tagSequence,
		s.part("signer version", tlv(tagInteger, []byte{1})),
		s.part("signer name", tlv(tagSequence, s.by.certificate.RawIssuer, serial)),
		s.part("signer digest", algorithmDER(hashOID, null)), tlv(tagContext0, signed), s.part("algorithm", algorithm),
		s.part("signature", tlv(tagOctets, signature)), s.part("unsigned")))
	data := tlv(tagSequence, s.part("version", tlv(tagInteger, []byte{3})),
		s.part("digests", tlv(tagSet, algorithmDER(hashOID, null))),
		tlv(tagSequence, s.part("type", oidDER(oidTSTInfo)), s.part("content", tlv(tagContext0, tlv(tagOctets, tstInfo)))),
		s.part("certificates", tlv(tagContext0, s.part("chain", s.by.chain...))), s.part("crls"),
		s.part("signers", tlv(tagSet, signer)))
	return s.part("token", tlv(tagSequence, oidDER(oidSignedData), tlv(tagContext0, data)))
}

// stampFixture has everything needed to create and check timestamps.
type stampFixture struct {
	fixture
	root, otherRoot, foreignRoot *testAuthority
	alpha, beta, foreign         stampSpec // by authorities of which Alpha and Beta are pinned, by their roots
	witnesses                    []testWitness
}

// testWitness cosigns checkpoints.
type testWitness struct {
	WitnessKey
	t      testing.TB
	signer *Signer
}

func newTestWitness(t testing.TB, name string, seed byte) testWitness {
	t.Helper()
	s := testSigner(t, seed)
	key, err := NewWitnessKey(name, s.private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return testWitness{key, t, s}
}

// goodTime is a minute after the record was received.
const goodTime = "20261119093100Z"

func newStampFixture(t testing.TB) stampFixture {
	t.Helper()
	f := stampFixture{fixture: newFixture(t)}
	f.root = certify(t, "Alpha Root", curveKey(t, elliptic.P256(), 21), nil, nil)
	f.otherRoot = certify(t, "Beta Root", curveKey(t, elliptic.P384(), 22), nil, nil)
	f.foreignRoot = certify(t, "Foreign Root", curveKey(t, elliptic.P256(), 23), nil, nil)
	spec := func(name string, seed byte, root *testAuthority) stampSpec {
		return stampSpec{
			by: certify(t, name, curveKey(t, elliptic.P256(), seed), root, stamping(t)), genTime: goodTime, hash: crypto.SHA256,
		}
	}
	f.alpha, f.beta, f.foreign = spec("Alpha Timestamps", 24, f.root), spec(
		"Beta Timestamps", 25, f.otherRoot,
	), spec("Foreign Timestamps", 26, f.foreignRoot)
	f.witnesses = []testWitness{
		newTestWitness(t, "witness.example/1", 31), newTestWitness(t, "witness.example/2", 32),
		newTestWitness(t, "witness.example/3", 33),
	}
	f.trust = f.pinned(t, func(t *TrustedKeys) {})
	return f
}

// pinned returns the standard set with the fixture's authorities and witnesses, and a change.
func (f stampFixture) pinned(t testing.TB, change func(*TrustedKeys)) *TrustedKeys {
	t.Helper()
	trust, err := newFixture(t).trust.with(func(set *TrustedKeys) {
		for name, root := range map[string]*testAuthority{"Alpha": f.root, "Beta": f.otherRoot} {
			a, err := NewAuthority(name, root.chain)
			if err != nil {
				t.Fatal(err)
			}
			set.authorities = append(set.authorities, a)
		}
		slices.SortFunc(set.authorities, func(a, b Authority) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		for _, w := range f.witnesses {
			set.witnesses = append(set.witnesses, w.WitnessKey)
		}
		change(set)
	})
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// stamped returns the proof of the record in a tree of a size, with tokens by authority.
func (f stampFixture) stamped(t testing.TB, size int64, tokens ...StampToken) Timestamp {
	t.Helper()
	i := f.inclusion(t, string(f.leaf().AppendCanonical(nil)), 4, size)
	s := Timestamp{i.LeafIndex, i.TreeSize, i.Hashes, i.Checkpoint, tokens}
	return s
}

// stampToken returns a token in the form of evidence. genTime is the token's time as FormatTime writes it.
func stampToken(authority string, der []byte, genTime string) StampToken {
	return StampToken{authority, genTime, base64.StdEncoding.EncodeToString(der)}
}
