package evidence

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"math/big"
	"regexp"
	"strings"
	"time"

	"integrityledger/domain/say"

	"golang.org/x/crypto/cryptobyte"
	der "golang.org/x/crypto/cryptobyte/asn1"
)

// Token is the statement of a timestamp authority (RFC 3161, section 2.4.2).
type Token struct {
	GenTime  time.Time     // UTC, with at most six fractional digits
	Accuracy time.Duration // how far the authority's clock may be off; 0 if not stated
	Nonce    *big.Int      // nil: none
	Imprint  [32]byte      // SHA-256 of the stamped bytes
}

// Latest returns the latest time at which the stamped bytes can have come into existence, as the authority states:
// GenTime plus Accuracy.
func (t Token) Latest() time.Time { return t.GenTime.Add(t.Accuracy) }

// signedToken is a token with a valid signature by a signer that may not be trusted.
type signedToken struct {
	Token
	certificates [][]byte          // DER, with well-formed outlines
	signer       *x509.Certificate // one of them
}

var (
	oidSignedData           = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo              = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType          = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSigningCertificate   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 12}
	oidSigningCertificateV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
)

const rsaEncryption = "1.2.840.113549.1.1.1"

var (
	tokenHashes = map[string]crypto.Hash{
		"2.16.840.1.101.3.4.2.1": crypto.SHA256, "2.16.840.1.101.3.4.2.2": crypto.SHA384,
		"2.16.840.1.101.3.4.2.3": crypto.SHA512,
	}
	tokenSignatures = map[string]x509.SignatureAlgorithm{
		"1.2.840.113549.1.1.11": x509.SHA256WithRSA, "1.2.840.113549.1.1.12": x509.SHA384WithRSA,
		"1.2.840.113549.1.1.13": x509.SHA512WithRSA,
		"1.2.840.10045.4.3.2":   x509.ECDSAWithSHA256, "1.2.840.10045.4.3.3": x509.ECDSAWithSHA384,
		"1.2.840.10045.4.3.4": x509.ECDSAWithSHA512,
	}
	signatureHashes = map[x509.SignatureAlgorithm]crypto.Hash{
		x509.SHA256WithRSA: crypto.SHA256, x509.SHA384WithRSA: crypto.SHA384, x509.SHA512WithRSA: crypto.SHA512,
		x509.ECDSAWithSHA256: crypto.SHA256, x509.ECDSAWithSHA384: crypto.SHA384, x509.ECDSAWithSHA512: crypto.SHA512,
	}
	generalizedTime = regexp.MustCompile(`^([0-9]{14})(?:\.([0-9]{0,5}[1-9]))?Z$`)
)

// field reads DER element by element, and stops at the first element that is missing or malformed. cryptobyte refuses
// indefinite and non-minimal lengths, and non-minimal integers.
type field struct {
	cryptobyte.String
	err *error // of the whole token
}

func (f field) fail(format string, args ...any) {
	if *f.err == nil {
		*f.err = say.Errorf(format, args...)
	}
}

func (f *field) read(what string, tag der.Tag) field {
	var content cryptobyte.String
	if *f.err == nil && !f.ReadASN1(&content, tag) {
		f.fail("%s is missing or malformed", what)
	}
	if *f.err != nil {
		f.String, content = nil, nil
	}
	return field{content, f.err}
}

// optional reads the next element if it has the tag.
func (f *field) optional(what string, tag der.Tag) (field, bool) {
	if *f.err != nil || !f.PeekASN1Tag(tag) {
		return field{nil, f.err}, false
	}
	return f.read(what, tag), *f.err == nil
}

func (f *field) oid(what string) (oid asn1.ObjectIdentifier) {
	if *f.err == nil && !f.ReadASN1ObjectIdentifier(&oid) {
		f.fail("%s is missing or malformed", what)
	}
	return oid
}

func (f *field) integer(what string) *big.Int {
	n := new(big.Int)
	if *f.err == nil && !f.ReadASN1Integer(n) {
		f.fail("%s is missing or malformed", what)
	}
	return n
}

func (f *field) version(what string, want int64) {
	if n := f.integer(what); *f.err == nil && (!n.IsInt64() || n.Int64() != want) {
		f.fail("%s must be %d", what, want)
	}
}

// boolean reads an optional BOOLEAN, false if absent.
func (f *field) boolean(what string) bool {
	var set bool
	if *f.err == nil && f.PeekASN1Tag(der.BOOLEAN) && !f.ReadASN1Boolean(&set) {
		f.fail("%s is malformed", what)
	}
	return set
}

// done requires that nothing follows.
func (f *field) done(what string) {
	if !f.Empty() {
		f.fail("%s holds more than it may", what)
	}
}

// algorithm reads an AlgorithmIdentifier without parameters, or with NULL.
func (f *field) algorithm(what string) string {
	a := f.read(what, der.SEQUENCE)
	oid := a.oid(what)
	if null, there := a.optional(what, der.NULL); there {
		null.done(what)
	}
	a.done(what)
	return oid.String()
}

func (f *field) hash(what string) crypto.Hash {
	h, ok := tokenHashes[f.algorithm(what)]
	if !ok {
		f.fail("%s must be SHA-256, SHA-384 or SHA-512 without parameters", what)
	}
	return h
}

// digest hashes b with a hash linked by crypto/x509. SHA-1 is among them: the first version of the signing-certificate
// attribute (RFC 2634) names certificates by it, but no signature depends on it.
func digest(h crypto.Hash, b []byte) []byte {
	sum := h.New()
	sum.Write(b)
	return sum.Sum(nil)
}

var (
	context0 = der.Tag(0).ContextSpecific()
	context1 = der.Tag(1).ContextSpecific()
)

// parseToken reads a TimeStampToken: CMS SignedData (RFC 5652) by one signer over a TSTInfo, in DER. Unsigned
// attributes and revocation lists are refused, because neither the signature nor a certificate binds them.
func parseToken(text []byte) (t signedToken, err error) {
	if len(text) > maxTokenBytes {
		return t, say.Errorf("must be at most %d bytes", maxTokenBytes)
	}
	if err := checkDER(text, 0); err != nil {
		return t, err
	}
	whole := field{text, &err}
	info := whole.read("the content", der.SEQUENCE)
	whole.done("the token")
	if oid := info.oid("the content type"); !oid.Equal(oidSignedData) {
		info.fail("it is no CMS SignedData")
	}
	explicit := info.read("the signed data", context0.Constructed())
	info.done("the content")
	data := explicit.read("the signed data", der.SEQUENCE)
	explicit.done("the signed data")

	data.version("the version of the signed data", 3)
	algorithms := data.read("the digest algorithms", der.SET)
	listed := algorithms.hash("the digest algorithm")
	algorithms.done("the digest algorithms")
	content := data.read("the encapsulated content", der.SEQUENCE)
	if oid := content.oid("the encapsulated content's type"); !oid.Equal(oidTSTInfo) {
		content.fail("what it signs is no TSTInfo")
	}
	octets := content.read("the TSTInfo", context0.Constructed())
	content.done("the encapsulated content")
	tstInfo := octets.read("the TSTInfo", der.OCTET_STRING)
	octets.done("the TSTInfo")
	certificates := data.read("the certificates", context0.Constructed())
	signers := data.read("the signer", der.SET)
	data.done("the signed data")
	signer := signers.read("the signer", der.SEQUENCE)
	signers.done("the set of signers")

	t.readCertificates(certificates)
	if err == nil {
		t.readSigner(signer, tstInfo.String, listed)
	}
	if err == nil {
		t.readTSTInfo(tstInfo)
	}
	return t, err
}

func (t *signedToken) readCertificates(f field) {
	for n := 0; *f.err == nil && !f.Empty(); n++ {
		var raw cryptobyte.String
		if n == maxCertificates || !f.ReadASN1Element(&raw, der.SEQUENCE) {
			f.fail("the certificates must be 1 to %d X.509 certificates", maxCertificates)
			return
		}
		t.certificates = append(t.certificates, raw)
	}
}

// readSigner checks the signature over the attributes, which in turn contain the digest of the TSTInfo.
func (t *signedToken) readSigner(f field, tstInfo []byte, listed crypto.Hash) {
	f.version("the version of the signer", 1)
	id := f.read("the signer's name", der.SEQUENCE)
	issuer, serial := id.read("the signer's issuer", der.SEQUENCE), id.read("the signer's serial number", der.INTEGER)
	id.done("the signer's name")
	var own []byte
	for _, raw := range t.certificates {
		c := readOutline(raw, f.err)
		if bytes.Equal(c.issuer.String, issuer.String) && bytes.Equal(c.serial.String, serial.String) {
			if own != nil && !bytes.Equal(own, raw) {
				f.fail("two of its certificates have the name of the signer, and are not the same")
			}
			own = raw
		}
	}
	if own == nil {
		f.fail("it lacks the signer's certificate")
	}
	if *f.err == nil {
		var err error
		if t.signer, err = parseCertificate(own); err != nil {
			f.fail("the signer's certificate cannot be read: %w", err)
		}
	}
	hash := f.hash("the signer's digest algorithm")
	if hash != listed {
		f.fail("the signer's digest algorithm is not the listed one")
	}
	attributes := f.read("the signed attributes", context0.Constructed())
	algorithm := f.algorithm("the signature's algorithm")
	signature := f.read("the signature", der.OCTET_STRING)
	f.done("the signer") // unsigned attributes would follow here
	if *f.err != nil {
		return
	}
	// The signature covers the set itself, not its implicit tag (RFC 5652, section 5.4).
	var b cryptobyte.Builder
	b.AddASN1(der.SET, func(b *cryptobyte.Builder) { b.AddBytes(attributes.String) })
	signed, err := b.Bytes()
	if err != nil {
		f.fail("the signed attributes are malformed")
		return
	}
	t.readAttributes(attributes, tstInfo, hash)
	if *f.err == nil {
		if err := t.checkSignature(algorithm, hash, signed, signature.String); err != nil {
			f.fail("%w", err)
		}
	}
}

// readAttributes requires the signed attributes of RFC 3161, in DER order, each type once.
func (t *signedToken) readAttributes(f field, tstInfo []byte, hash crypto.Hash) {
	var last []byte
	seen := map[string]bool{}
	for *f.err == nil && !f.Empty() {
		before := f.String
		attribute := f.read("a signed attribute", der.SEQUENCE)
		element := before[:len(before)-len(f.String)]
		oid := attribute.oid("a signed attribute's type")
		values := attribute.read("a signed attribute's value", der.SET)
		attribute.done("a signed attribute")
		name := oid.String()
		if seen[name] || last != nil && bytes.Compare(last, element) >= 0 {
			f.fail("the signed attributes must stand in the order of DER, each type once")
		}
		seen[name], last = true, element
		switch {
		case oid.Equal(oidContentType):
			if got := values.oid("the signed content type"); !got.Equal(oidTSTInfo) {
				f.fail("the signed content type is no TSTInfo")
			}
		case oid.Equal(oidMessageDigest):
			if got := values.read("the message digest", der.OCTET_STRING); !bytes.Equal(got.String, digest(hash, tstInfo)) {
				f.fail("the signed digest is not the TSTInfo's")
			}
		case oid.Equal(oidSigningCertificate), oid.Equal(oidSigningCertificateV2):
			t.bindSigner(&values, oid.Equal(oidSigningCertificateV2))
		default:
			var value cryptobyte.String
			var tag der.Tag
			if !values.ReadAnyASN1Element(&value, &tag) {
				f.fail("a signed attribute's value is missing or malformed")
			}
		}
		values.done("a signed attribute's value")
	}
	if !seen[oidContentType.String()] || !seen[oidMessageDigest.String()] ||
		!seen[oidSigningCertificate.String()] && !seen[oidSigningCertificateV2.String()] {
		f.fail("a signed attribute is missing: content type, message digest or signing certificate")
	}
}

// bindSigner requires that the first certificate that the attribute names is the signer's (RFC 5816, section 2.2).
func (t *signedToken) bindSigner(values *field, second bool) {
	attribute := values.read("the signing certificate", der.SEQUENCE)
	ids := attribute.read("the signing certificate", der.SEQUENCE)
	id := ids.read("the signing certificate", der.SEQUENCE)
	hash := crypto.SHA1
	if second {
		hash = crypto.SHA256
		if id.PeekASN1Tag(der.SEQUENCE) {
			hash = id.hash("the signing certificate's digest algorithm")
		}
	}
	sum := id.read("the signing certificate's digest", der.OCTET_STRING)
	id.optional("the signing certificate's name", der.SEQUENCE)
	id.done("the signing certificate")
	attribute.optional("the signing certificate's policies", der.SEQUENCE)
	attribute.done("the signing certificate")
	if *values.err == nil && !bytes.Equal(sum.String, digest(hash, t.signer.Raw)) {
		values.fail("the signing certificate that it names is not the signer's")
	}
}

// Bits of an RSA modulus: a shorter one is weak; a longer one is expensive to verify, and anonymous clients can send
// it.
const minRSABits, maxRSABits = 2048, 8192

// strongKey reports whether signatures by a certificate's key are accepted.
func strongKey(c *x509.Certificate) bool {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits && key.N.BitLen() <= maxRSABits
	case *ecdsa.PublicKey:
		return key.Curve != elliptic.P224()
	}
	return false
}

func (t *signedToken) checkSignature(name string, hash crypto.Hash, signed, signature []byte) error {
	algorithm, known := tokenSignatures[name]
	if name == rsaEncryption {
		known = true
		for a, h := range signatureHashes {
			if h == hash && strings.HasSuffix(a.String(), "-RSA") {
				algorithm = a
			}
		}
	}
	if !known || signatureHashes[algorithm] != hash {
		return say.Errorf("its signature must be RSA (PKCS #1, version 1.5) or ECDSA, with the signer's digest algorithm")
	}
	if !strongKey(t.signer) {
		return say.Errorf(
			"the signer's key must be RSA of %d to %d bits, or on P-256, P-384 or P-521", minRSABits, maxRSABits,
		)
	}
	if err := t.signer.CheckSignature(algorithm, signed, signature); err != nil {
		return say.Errorf("the signature does not belong to it")
	}
	return nil
}

func (t *signedToken) readTSTInfo(f field) {
	if *f.err == nil && checkDER(f.String, 0) != nil {
		f.fail("the TSTInfo is not in DER")
	}
	info := f.read("the TSTInfo", der.SEQUENCE)
	f.done("the TSTInfo")
	info.version("the version of the TSTInfo", 1)
	info.oid("the policy")
	imprint := info.read("the imprint", der.SEQUENCE)
	if imprint.hash("the imprint's digest algorithm") != crypto.SHA256 {
		imprint.fail("its imprint must be SHA-256")
	}
	sum := imprint.read("the imprint", der.OCTET_STRING)
	imprint.done("the imprint")
	if copy(t.Imprint[:], sum.String) != len(t.Imprint) || len(sum.String) != len(t.Imprint) {
		imprint.fail("its imprint must have %d bytes", len(t.Imprint))
	}
	info.integer("the serial number")
	t.GenTime = info.time()
	if accuracy, there := info.optional("the accuracy", der.SEQUENCE); there {
		t.Accuracy = accuracy.duration()
	}
	info.boolean("the ordering")
	if info.PeekASN1Tag(der.INTEGER) {
		t.Nonce = info.integer("the nonce")
	}
	info.optional("the authority's name", context0.Constructed())
	if extensions, there := info.optional("the extensions", context1.Constructed()); there {
		readExtensions(&extensions, func(_ asn1.ObjectIdentifier, critical bool, _ []byte) {
			if critical {
				f.fail("it has an extension that is critical")
			}
		})
	}
	info.done("the TSTInfo")
}

// time reads a GeneralizedTime in the form of DER and RFC 3161, section 2.4.2, with at most six fractional digits.
func (f *field) time() time.Time {
	text := f.read("the time", der.GeneralizedTime)
	parts := generalizedTime.FindStringSubmatch(string(text.String))
	if parts == nil {
		f.fail("its time must be in UTC with at most six digits of a fraction")
		return time.Time{}
	}
	at, err := time.Parse("20060102150405.000000", parts[1]+"."+(parts[2] + "000000")[:6])
	if err != nil {
		f.fail("its time is no time: %w", err)
	}
	return at
}

const maxAccuracy = time.Hour

// duration reads an Accuracy.
func (f *field) duration() time.Duration {
	var d time.Duration
	part := func(tag der.Tag, least, most int64, unit time.Duration) {
		if !f.PeekASN1Tag(tag) {
			return
		}
		content := f.read("the accuracy", tag)
		var b cryptobyte.Builder
		b.AddASN1(der.INTEGER, func(b *cryptobyte.Builder) { b.AddBytes(content.String) })
		again := field{b.BytesOrPanic(), f.err}
		n := again.integer("the accuracy")
		if !n.IsInt64() || n.Int64() < least || n.Int64() > most {
			f.fail("its accuracy is out of bounds")
			return
		}
		d += time.Duration(n.Int64()) * unit
	}
	part(der.INTEGER, 0, int64(maxAccuracy/time.Second), time.Second)
	part(context0, 1, 999, time.Millisecond)
	part(context1, 1, 999, time.Microsecond)
	f.done("the accuracy")
	if d > maxAccuracy {
		f.fail("its accuracy is out of bounds")
	}
	return d
}
