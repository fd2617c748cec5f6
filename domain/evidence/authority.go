package evidence

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"regexp"
	"slices"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

const (
	maxAuthorities  = 16
	maxCertificates = 8       // pinned for one authority, or in one token
	maxTokenBytes   = 8 << 10 // of a token, or of a pinned certificate, in DER
)

var authorityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Authority is a pinned timestamp authority (RFC 3161). Each of its certificates is a trust anchor, whether root,
// intermediate or signing certificate. The zero Authority accepts no token.
type Authority struct {
	Name         string   `json:"name"`         // 1 to 64 characters A-Z a-z 0-9 . _ -, the first a letter or digit
	Certificates [][]byte `json:"certificates"` // DER

	anchors []*x509.Certificate
}

// NewAuthority pins 1 to 8 distinct X.509 certificates in DER, each at most 8 KiB. The authority takes ownership of the
// slices.
func NewAuthority(name string, certificates [][]byte) (Authority, error) {
	a := Authority{Name: name, Certificates: certificates}
	if err := CheckAuthorityName(name); err != nil {
		return Authority{}, err
	}
	if n := len(certificates); n < 1 || n > maxCertificates {
		return Authority{}, say.Errorf("certificates: must be 1 to %d, not %d", maxCertificates, n)
	}
	for i, der := range certificates {
		if len(der) > maxTokenBytes {
			return Authority{}, say.Errorf("certificates/%d: must be at most %d bytes", i, maxTokenBytes)
		}
		certificate, err := parseCertificate(der)
		if err != nil {
			return Authority{}, say.Errorf("certificates/%d: must be an X.509 certificate in DER: %w", i, err)
		}
		if a.holds(certificate) {
			return Authority{}, say.Errorf("certificates/%d: it is given twice", i)
		}
		a.anchors = append(a.anchors, certificate)
	}
	return a, nil
}

// CheckAuthorityName returns an error if the name is not a valid name of an authority.
func CheckAuthorityName(name string) error {
	if !authorityPattern.MatchString(name) {
		return say.Errorf("name: must be 1 to 64 characters A-Z a-z 0-9 . _ -, the first a letter or digit")
	}
	return nil
}

// Anchors returns the pinned certificates, parsed.
func (a Authority) Anchors() []*x509.Certificate { return slices.Clone(a.anchors) }

func (a Authority) holds(c *x509.Certificate) bool { return slices.ContainsFunc(a.anchors, c.Equal) }

// readAuthorities reads the member timestampAuthorities.
func readAuthorities(m *strictjson.Meter, entries []strictjson.Value) ([]Authority, error) {
	var list []Authority
	for i, entry := range entries {
		o := m.Decode(entry)
		name, texts := o.String("name", strictjson.Required), o.StringList(
			"certificates", strictjson.Required, 0, maxCertificates,
		)
		if err := refusal(o.Problems()); err != nil {
			return nil, say.Errorf("timestamp authority %d: %w", i, err)
		}
		certificates := make([][]byte, len(texts))
		for n, text := range texts {
			der, ok := decodeOneSpelling(base64.StdEncoding, text)
			if !ok {
				return nil, say.Errorf("timestamp authority %d: certificates/%d: must be in the one spelling of base64", i, n)
			}
			certificates[n] = der
		}
		a, err := NewAuthority(name, certificates)
		if err != nil {
			return nil, say.Errorf("timestamp authority %d: %w", i, err)
		}
		list = append(list, a)
	}
	return list, nil
}

// checkAuthorities refuses an authority that NewAuthority did not create, and a repeated name.
func (t *TrustedKeys) checkAuthorities() error {
	if len(t.authorities) > maxAuthorities {
		return say.Errorf("timestamp authorities: must be at most %d", maxAuthorities)
	}
	seen := make(map[string]bool, len(t.authorities))
	for i, a := range t.authorities {
		if len(a.anchors) == 0 || !slices.EqualFunc(a.anchors, a.Certificates, func(c *x509.Certificate, der []byte) bool {
			return bytes.Equal(c.Raw, der)
		}) {
			return say.Errorf("timestamp authority %d: must be one made by NewAuthority", i)
		}
		if seen[a.Name] {
			return say.Errorf("timestamp authority %d: %s is repeated", i, a.Name)
		}
		seen[a.Name] = true
	}
	return nil
}

// CheckToken checks a TimeStampToken of RFC 3161 in DER, at most 8 KiB, over a SHA-256 imprint: its form, its
// signature, the key usage of its signer, and that the signer's certificate was valid at the token's time and chains to
// a pinned certificate through other certificates of the token. Only the outline of the remaining certificates is read,
// and they are otherwise ignored: authorities add duplicates and certificates of other chains, and no signature covers
// the set. However, no other certificate may have the same issuer and serial number as the signer's. CheckToken reads
// no clock: the caller compares the token's time, and the nonce if the caller sent one.
//
// The error wraps ErrUntrustedToken if the token is well formed but its signer is not trusted.
func (a Authority) CheckToken(der []byte, imprint [32]byte) (Token, error) {
	t, err := parseToken(der)
	if err != nil {
		return Token{}, say.Errorf("token: %w", err)
	}
	if t.Imprint != imprint {
		return Token{}, say.Errorf("token: it stamps something else: its imprint is another")
	}
	if err := checkSigner(t.signer); err != nil {
		return Token{}, say.Errorf("token: key usage: %w", err)
	}
	if err := a.checkChain(t); err != nil {
		return Token{}, say.Errorf("token: %w: %w", ErrUntrustedToken, err)
	}
	return t.Token, nil
}

// ErrUntrustedToken means that a token's certificates do not chain to a pinned certificate, or had expired.
var ErrUntrustedToken = say.Errorf("its certificate is not trusted")

// checkSigner requires the certificate of a timestamp authority (RFC 3161, section 2.3).
func checkSigner(c *x509.Certificate) error {
	critical := slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool {
		return e.Critical && e.Id.Equal(oidExtKeyUsage)
	})
	switch {
	case c.IsCA:
		return say.Errorf("the signer's certificate belongs to a certification authority")
	case !critical || len(c.UnknownExtKeyUsage) > 0 ||
		!slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}):
		return say.Errorf("the signer's certificate must be for time stamping alone, and say so critically")
	case c.KeyUsage != 0 && c.KeyUsage&(x509.KeyUsageDigitalSignature|x509.KeyUsageContentCommitment) == 0:
		return say.Errorf("the signer's certificate is not for signatures")
	}
	return nil
}

// checkChain requires that the signer's certificate chains to a pinned one at the token's time.
func (a Authority) checkChain(t signedToken) error {
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: t.GenTime,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
	}
	for _, c := range a.anchors {
		opts.Roots.AddCert(c)
	}
	for _, der := range t.certificates {
		// No signature covers the set, so it may contain anything, including keys of any size.
		if c, err := parseCertificate(der); err == nil && strongKey(c) {
			opts.Intermediates.AddCert(c)
		}
	}
	if expired(t.signer, t.GenTime) {
		return say.Errorf("the signer's certificate was not valid at the token's time, but from %s to %s",
			FormatTime(t.signer.NotBefore), FormatTime(t.signer.NotAfter))
	}
	chains, err := t.signer.Verify(opts)
	if err != nil || !slices.ContainsFunc(chains, strongChain) {
		return say.Errorf("the signer's certificate does not lead to one that is pinned for %s", a.Name)
	}
	return nil
}

// maxChain is the signer's certificate, three intermediates and the pinned certificate.
const maxChain = 5

// strongChain checks the requirements on a chain that crypto/x509 does not: its length, extensions that every verifier
// knows, and the kinds of keys and signatures allowed in a token.
func strongChain(chain []*x509.Certificate) bool {
	for i, c := range chain {
		if !understood(c) || i > 0 && (!c.IsCA || !strongKey(c)) ||
			i < len(chain)-1 && signatureHashes[c.SignatureAlgorithm] == 0 {
			return false
		}
	}
	return len(chain) <= maxChain
}

func expired(c *x509.Certificate, at time.Time) bool {
	return at.Before(c.NotBefore) || at.After(c.NotAfter)
}
