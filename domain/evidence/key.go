package evidence

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// JWK is an Ed25519 public key of RFC 8037: exactly these three members.
type JWK struct {
	Kty string `json:"kty"` // OKP
	Crv string `json:"crv"` // Ed25519
	X   string `json:"x"`   // base64url of the 32 bytes
}

// KeyNames are the names of an Ed25519 key.
type KeyNames struct {
	KeyID             string `json:"keyId"` // RFC 7638 thumbprint, base64url
	JWK               JWK    `json:"publicKeyJwk"`
	FingerprintSHA256 string `json:"fingerprintSha256"` // of the SPKI DER, lower-case hexadecimal
}

// PublicKey is an Ed25519 key with the names that follow from it. The names are always computed from the key, so a
// KeyID cannot name another key. Values are comparable; the zero PublicKey verifies nothing.
type PublicKey struct {
	KeyNames
	raw [ed25519.PublicKeySize]byte
}

// NewPublicKey computes a key's names. It fails only if the key is not 32 bytes long.
func NewPublicKey(key ed25519.PublicKey) (PublicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return PublicKey{}, say.Errorf("must be an Ed25519 public key of %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, say.Errorf("SPKI of an Ed25519 key: %w", err)
	}
	x := base64.RawURLEncoding.EncodeToString(key)
	// RFC 7638, section 3: the required members, sorted, without white space.
	thumbprint := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	names := KeyNames{
		base64.RawURLEncoding.EncodeToString(thumbprint[:]), JWK{Kty: "OKP", Crv: "Ed25519", X: x}, hexSHA256(der),
	}
	return PublicKey{names, [ed25519.PublicKeySize]byte(key)}, nil
}

// Ed25519 returns the key's 32 bytes.
func (k PublicKey) Ed25519() ed25519.PublicKey { return k.raw[:] }

// verify checks pure Ed25519 (RFC 8032, section 5.1.7; S < L).
func (k PublicKey) verify(payload, signature []byte) bool {
	return k.KeyID != "" && ed25519.Verify(k.raw[:], payload, signature)
}

// decodeBase64URL accepts only the canonical encoding of exactly size bytes: no padding, no line break, no set bits
// after the last byte. Go's decoder accepts variants, with which a changed text could keep its meaning.
func decodeBase64URL(s string, size int) ([]byte, bool) {
	b, ok := decodeOneSpelling(base64.RawURLEncoding, s)
	return b, ok && len(b) == size
}

func decodeOneSpelling(encoding *base64.Encoding, s string) ([]byte, bool) {
	b, err := encoding.DecodeString(s)
	return b, err == nil && encoding.EncodeToString(b) == s
}

// Signer signs with a private key that it holds, or that another program keeps, such as an ssh-agent. When printed, it
// shows only the key's name.
type Signer struct {
	private crypto.Signer // an ed25519.PrivateKey, or a key that another program keeps
	public  PublicKey
	begin   func() (end func()) // nil: no observer
}

// NewSigner returns a Signer for a private key: an ed25519.PrivateKey, or a key that another program keeps. Such a key
// is given the whole message and signs pure Ed25519, like an ed25519.PrivateKey. NewSigner fails only if the key is
// malformed.
func NewSigner(private crypto.Signer) (*Signer, error) {
	if own, ok := private.(ed25519.PrivateKey); ok {
		if len(own) != ed25519.PrivateKeySize {
			return nil, say.Errorf("must be an Ed25519 private key of %d bytes, not %d", ed25519.PrivateKeySize, len(own))
		}
		// Derive the public half again: signing with another key's public half would leak the private key.
		private = ed25519.NewKeyFromSeed(own.Seed())
	}
	key, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, say.Errorf("must be an Ed25519 private key")
	}
	public, err := NewPublicKey(key)
	if err != nil {
		return nil, err
	}
	return &Signer{private: private, public: public}, nil
}

// GenerateSigner generates a new key.
func GenerateSigner() *Signer {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	s, err := NewSigner(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		panic(err) // cannot happen: a key derived from a seed is well formed
	}
	return s
}

const pemType = "PRIVATE KEY"

// ParseSignerPEM reads one PKCS#8 private key in PEM (RFC 7468, section 10). Errors never quote the text.
func ParseSignerPEM(text []byte) (*Signer, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, say.Errorf("must be a signing key in PEM")
	case block.Type != pemType:
		return nil, say.Errorf("must be PEM of type %s", pemType)
	}
	if more, _ := pem.Decode(rest); more != nil {
		return nil, say.Errorf("must be exactly one signing key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, say.Errorf("must be a PKCS#8 private key")
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, say.Errorf("must be an Ed25519 private key")
	}
	return NewSigner(private)
}

// MarshalSignerPEM encodes the private key in the form that ParseSignerPEM reads. The result is a secret. It fails if
// another program keeps the key.
func MarshalSignerPEM(s *Signer) ([]byte, error) {
	if s.Kept() {
		return nil, say.Errorf("another program keeps the private key %s, so it cannot be copied", s.public.KeyID)
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.private)
	if err != nil {
		return nil, say.Errorf("PKCS#8 of a signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}

// Key returns the public half.
func (s *Signer) Key() PublicKey { return s.public }

// Kept reports whether another program keeps the private key, so that signing can fail.
func (s *Signer) Kept() bool {
	_, own := s.private.(ed25519.PrivateKey)
	return !own
}

// Observed returns a Signer with the same key that calls begin before each signature, and the function that begin
// returned after it. Neither may block.
func (s *Signer) Observed(begin func() (end func())) *Signer {
	return &Signer{private: s.private, public: s.public, begin: begin}
}

// ErrWrongSignature means that the program that keeps the key returned a signature that does not verify.
var ErrWrongSignature = say.New("the program that keeps the key returned a wrong signature")

// Sign signs the bytes and returns the signature as 86 characters of base64url. It fails only if another program keeps
// the key and does not sign. A signature by another program is verified first, so a wrong one is never returned.
func (s *Signer) Sign(payload []byte) (string, error) {
	if s.begin != nil {
		defer s.begin()()
	}
	signature, err := s.private.Sign(nil, payload, crypto.Hash(0))
	if err == nil && s.Kept() && !s.public.verify(payload, signature) {
		err = ErrWrongSignature
	}
	if err != nil {
		return "", say.Errorf("sign with the key %s: %w", s.public.KeyID, err)
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

// checked is what Check has signed. Its contract is in no role, so a signature over it proves nothing.
const checked = `{"contract":"integrity-signer-check-v1"}`

// Check reports whether the key can sign: if another program keeps it, that program is asked for a signature that no
// verifier accepts.
func (s *Signer) Check() error {
	if !s.Kept() {
		return nil
	}
	_, err := s.Sign([]byte(checked))
	return err
}

// SignPayload signs the bytes and returns them with the signature and the key's names. It fails as Sign does.
func (s *Signer) SignPayload(payload []byte) (Signed, error) {
	signature, err := s.Sign(payload)
	if err != nil {
		return Signed{}, err
	}
	return NewSigned(payload, signature, s.public), nil
}

// String returns the key's name, so that a log line never contains the private half.
func (s *Signer) String() string { return "signer " + s.public.KeyID }

// GoString is String, for %#v.
func (s *Signer) GoString() string { return s.String() }

// logNamePattern is narrower than C2SP signed-note, which refuses only white space
// and "+": every implementation reads ASCII alike.
var logNamePattern = regexp.MustCompile(`^[!-*,-~]{1,512}$`)

// CheckListedName checks the name of a witness or a log that stands in a list of the settings: a comma would end it
// there, and a # at its start would make it a comment.
func CheckListedName(name string) error {
	if !logNamePattern.MatchString(name) || strings.Contains(name, ",") || name[0] == '#' {
		return say.Errorf("name: must be 1 to 512 visible ASCII characters without + and comma, and must not begin with #")
	}
	return nil
}

// Signature types of C2SP signed-note: a log's own, and a witness's (C2SP tlog-cosignature, cosignature/v1).
const (
	noteEd25519        = 0x01
	cosignatureEd25519 = 0x04
)

// LogKey is a pinned key of the transparency log (contract, section 4.3). Name is the origin of the checkpoints that it
// signs. The three members are computed from the name and the key, so they always belong together. Values are
// comparable; the zero LogKey verifies nothing.
type LogKey struct {
	Name        string `json:"name"`        // 1 to 512 visible ASCII characters without "+"
	KeyHash     string `json:"keyHash"`     // the four bytes of C2SP signed-note's key ID, lower-case hexadecimal
	VerifierKey string `json:"verifierKey"` // C2SP signed-note: <name>+<key ID>+<base64 of type and key>

	raw [ed25519.PublicKeySize]byte
}

// WitnessKey is a pinned key of a witness, which cosigns checkpoints of logs (C2SP tlog-cosignature). It is like a
// LogKey except for the type byte in the verifier key, so neither can be mistaken for the other.
type WitnessKey LogKey

// NewLogKey computes the names of a log key. It fails if a note cannot contain the name, or if the key is not 32 bytes
// long.
func NewLogKey(name string, key ed25519.PublicKey) (LogKey, error) {
	return newNoteKey(noteEd25519, name, key)
}

// NewWitnessKey computes the names of a witness key. It returns the same errors as NewLogKey.
func NewWitnessKey(name string, key ed25519.PublicKey) (WitnessKey, error) {
	k, err := newNoteKey(cosignatureEd25519, name, key)
	return WitnessKey(k), err
}

func newNoteKey(kind byte, name string, key ed25519.PublicKey) (LogKey, error) {
	if !logNamePattern.MatchString(name) {
		return LogKey{}, say.Errorf("name: must be 1 to 512 visible ASCII characters without +")
	}
	if len(key) != ed25519.PublicKeySize {
		return LogKey{}, say.Errorf("must be an Ed25519 public key of %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	typed := append([]byte{kind}, key...)
	sum := sha256.Sum256(append([]byte(name+"\n"), typed...))
	hash := hex.EncodeToString(sum[:keyHashSize])
	return LogKey{
		Name: name, KeyHash: hash, VerifierKey: name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(typed),
		raw: [ed25519.PublicKeySize]byte(key),
	}, nil
}

// ParseLogKey parses a canonical verifier key of C2SP signed-note.
func ParseLogKey(verifierKey string) (LogKey, error) {
	return parseNoteKey(noteEd25519, "a signed note's Ed25519 key (type 0x01)", verifierKey)
}

// ParseWitnessKey parses a canonical verifier key of C2SP tlog-cosignature.
func ParseWitnessKey(verifierKey string) (WitnessKey, error) {
	k, err := parseNoteKey(cosignatureEd25519, "an Ed25519 cosignature's key (type 0x04)", verifierKey)
	return WitnessKey(k), err
}

func parseNoteKey(kind byte, what, verifierKey string) (LogKey, error) {
	expected := say.Errorf("verifierKey: must be <name>+<8 hexadecimal digits>+<base64> of %s", what)
	parts := strings.SplitN(verifierKey, "+", 3) // base64 may hold a +, a name may not
	if len(parts) != 3 {
		return LogKey{}, expected
	}
	typed, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(typed) != 1+ed25519.PublicKeySize || typed[0] != kind {
		return LogKey{}, expected
	}
	key, err := newNoteKey(kind, parts[0], typed[1:])
	if err != nil {
		return LogKey{}, err
	}
	if key.VerifierKey != verifierKey {
		return LogKey{}, say.Errorf(
			"verifierKey: its hash does not belong to the name and the key, or it has another spelling",
		)
	}
	return key, nil
}

// Verify checks pure Ed25519 over the text of a note.
func (k LogKey) Verify(text, signature []byte) bool {
	return k.Name != "" && ed25519.Verify(k.raw[:], text, signature)
}

// Verify checks a cosignature of the text of a checkpoint: eight bytes of time, in seconds since 1970, and the
// signature. The time is the witness's own claim, not a trusted timestamp.
func (k WitnessKey) Verify(text, cosignature []byte) (at time.Time, ok bool) {
	if k.Name == "" || len(cosignature) != cosignatureSize-keyHashSize {
		return time.Time{}, false
	}
	seconds := binary.BigEndian.Uint64(cosignature)
	if seconds == 0 || seconds > uint64(strictjson.MaxInteger) {
		return time.Time{}, false
	}
	signed := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, text)
	return time.Unix(int64(seconds), 0), ed25519.Verify(k.raw[:], signed, cosignature[8:])
}

// KeyID returns the thumbprint of the key (RFC 7638), by which a revocation names it.
func (k LogKey) KeyID() string { return k.names().KeyID }

// PublicKey returns the key as it would be if it signed records.
func (k LogKey) PublicKey() PublicKey {
	key, _ := NewPublicKey(k.raw[:]) // never fails: the array has the right length
	return key
}

// names returns the names that the key would have as a signing key; a revocation uses them.
func (k LogKey) names() KeyNames { return k.PublicKey().KeyNames }

// readNoteKeys reads the member logKeys or witnessKeys; name and keyHash must match verifierKey.
func readNoteKeys[K LogKey | WitnessKey](
	m *strictjson.Meter, what string, entries []strictjson.Value, parse func(string) (K, error),
) ([]K, error) {
	keys := make([]K, len(entries))
	for i, entry := range entries {
		o := m.Decode(entry)
		name, hash := o.String("name", strictjson.Required), o.String("keyHash", strictjson.Required)
		verifierKey := o.String("verifierKey", strictjson.Required)
		if err := refusal(o.Problems()); err != nil {
			return nil, say.Errorf("%s %d: %w", what, i, err)
		}
		key, err := parse(verifierKey)
		if err != nil {
			return nil, say.Errorf("%s %d: %w", what, i, err)
		}
		if k := LogKey(key); k.Name != name || k.KeyHash != hash {
			return nil, say.Errorf("%s %d: name or keyHash does not belong to verifierKey", what, i)
		}
		keys[i] = key
	}
	return keys, nil
}

// checkLogKeys refuses a key that NewLogKey did not create, two keys with the same name and hash, and a key that signs
// records too: a signature in one role must never be valid in the other.
func (t *TrustedKeys) checkLogKeys() error {
	seen := make(map[string]bool, len(t.logKeys))
	for i, k := range t.logKeys {
		if err := k.check(noteEd25519, seen); err != nil {
			return say.Errorf("log key %d: %w", i, err)
		}
		if _, signs := t.byID[k.names().KeyID]; signs {
			return say.Errorf("log key %d: it is the same key as one that signs records", i)
		}
	}
	return nil
}

// checkWitnessKeys is checkLogKeys for the pinned witnesses. It refuses a revoked key, and a log key, because the log
// would be its own witness.
func (t *TrustedKeys) checkWitnessKeys() error {
	seen := make(map[string]bool, len(t.witnesses))
	for i, k := range t.witnesses {
		if err := LogKey(k).check(cosignatureEd25519, seen); err != nil {
			return say.Errorf("witness key %d: %w", i, err)
		}
		names := LogKey(k).names()
		_, signs := t.byID[names.KeyID]
		_, revoked := t.revocation(names)
		if signs || revoked || slices.ContainsFunc(t.logKeys, func(l LogKey) bool { return l.raw == k.raw }) {
			return say.Errorf("witness key %d: it is the same key as one that signs records or checkpoints, or is revoked", i)
		}
	}
	return nil
}

// check requires a key that newNoteKey can have created, with a name and hash not seen before.
func (k LogKey) check(kind byte, seen map[string]bool) error {
	if again, err := newNoteKey(kind, k.Name, k.raw[:]); err != nil || again != k {
		return say.Errorf("must be a key made of its name and its bytes")
	}
	id := k.Name + "+" + k.KeyHash
	if seen[id] {
		return say.Errorf("%s is repeated", id)
	}
	seen[id] = true
	return nil
}
