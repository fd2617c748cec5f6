package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"integrityledger/domain/strictjson"
)

// logNamePattern is narrower than C2SP signed-note, which refuses only white space
// and "+": every implementation reads ASCII alike.
var logNamePattern = regexp.MustCompile(`^[!-*,-~]{1,512}$`)

const noteEd25519 = 0x01 // the signature type of C2SP signed-note

// LogKey is a pinned key of the transparency log (contract, section 4.3). Name is the origin of the checkpoints that it
// signs. The three members are computed from the name and the key, so none can name another. Values are comparable; the
// zero LogKey verifies nothing.
type LogKey struct {
	Name        string `json:"name"`        // 1 to 512 visible ASCII characters without "+"
	KeyHash     string `json:"keyHash"`     // the four bytes of C2SP signed-note's key ID, lower-case hexadecimal
	VerifierKey string `json:"verifierKey"` // C2SP signed-note: <name>+<key ID>+<base64 of type and key>

	raw [ed25519.PublicKeySize]byte
}

// NewLogKey names a key of the log. The errors are a name that a note cannot hold,
// and a key of another length than 32 bytes.
func NewLogKey(name string, key ed25519.PublicKey) (LogKey, error) {
	if !logNamePattern.MatchString(name) {
		return LogKey{}, errors.New("name: must be 1 to 512 visible ASCII characters without +")
	}
	if len(key) != ed25519.PublicKeySize {
		return LogKey{}, fmt.Errorf("must be an Ed25519 public key of %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	typed := append([]byte{noteEd25519}, key...)
	sum := sha256.Sum256(append([]byte(name+"\n"), typed...))
	hash := hex.EncodeToString(sum[:4])
	return LogKey{
		Name: name, KeyHash: hash, VerifierKey: name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(typed),
		raw: [ed25519.PublicKeySize]byte(key),
	}, nil
}

// ParseLogKey reads a verifier key of C2SP signed-note in its one spelling.
func ParseLogKey(verifierKey string) (LogKey, error) {
	expected := errors.New("verifierKey: must be <name>+<8 hexadecimal digits>+<base64> of a signed note's Ed25519 key")
	parts := strings.SplitN(verifierKey, "+", 3) // base64 may hold a +, a name may not
	if len(parts) != 3 {
		return LogKey{}, expected
	}
	typed, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(typed) != 1+ed25519.PublicKeySize || typed[0] != noteEd25519 {
		return LogKey{}, expected
	}
	key, err := NewLogKey(parts[0], typed[1:])
	if err != nil {
		return LogKey{}, err
	}
	if key.VerifierKey != verifierKey {
		return LogKey{}, errors.New("verifierKey: its hash does not belong to the name and the key, or it has another spelling")
	}
	return key, nil
}

// Verify checks pure Ed25519 over the text of a note.
func (k LogKey) Verify(text, signature []byte) bool {
	return k.Name != "" && ed25519.Verify(k.raw[:], text, signature)
}

// readLogKeys reads the member logKeys; name and keyHash must be those of verifierKey.
func readLogKeys(m *strictjson.Meter, entries []strictjson.Value) ([]LogKey, error) {
	keys := make([]LogKey, len(entries))
	for i, entry := range entries {
		o := m.Decode(entry)
		name, hash := o.String("name", strictjson.Required), o.String("keyHash", strictjson.Required)
		verifierKey := o.String("verifierKey", strictjson.Required)
		if err := refusal(o.Problems()); err != nil {
			return nil, fmt.Errorf("log key %d: %w", i, err)
		}
		key, err := ParseLogKey(verifierKey)
		if err != nil {
			return nil, fmt.Errorf("log key %d: %w", i, err)
		}
		if key.Name != name || key.KeyHash != hash {
			return nil, fmt.Errorf("log key %d: name or keyHash does not belong to verifierKey", i)
		}
		keys[i] = key
	}
	return keys, nil
}

// checkLogKeys refuses a key that NewLogKey did not make, one that two entries would name alike, and one that signs
// records too: a signature in one role must never be one in the other.
func (t *TrustedKeys) checkLogKeys() error {
	seen := make(map[string]bool, len(t.logKeys))
	for i, k := range t.logKeys {
		if again, err := NewLogKey(k.Name, k.raw[:]); err != nil || again != k {
			return fmt.Errorf("log key %d: must be a key made by NewLogKey", i)
		}
		id := k.Name + "+" + k.KeyHash
		if seen[id] {
			return fmt.Errorf("log key %d: %s is repeated", i, id)
		}
		seen[id] = true
		key, err := NewPublicKey(k.raw[:])
		if err != nil {
			return fmt.Errorf("log key %d: %w", i, err)
		}
		if _, signs := t.byID[key.KeyID]; signs || t.barred[key.KeyID] || t.barred[key.FingerprintSHA256] {
			return fmt.Errorf("log key %d: it is the same key as one that signs or signed records", i)
		}
	}
	return nil
}
