package evidence

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"integrityledger/domain/strictjson"
)

// KeyStatus says whether a trusted key still signs. A retired key stays trusted.
type KeyStatus string

// The states of a trusted key.
const (
	KeyActive  KeyStatus = "active"
	KeyRetired KeyStatus = "retired"
)

// TrustedKey is a pinned key. Status and Since are information only.
type TrustedKey struct {
	PublicKey
	Status KeyStatus // empty means active
	Since  string    // a timestamp; may be empty for an active key
}

// Reasons why a key was revoked.
const (
	ReasonCompromised = "compromised"
	ReasonRevoked     = "revoked"
)

// RevokedKey names a key of which nothing verifies, whatever the times.
type RevokedKey struct {
	KeyID             string `json:"keyId"`
	FingerprintSHA256 string `json:"fingerprintSha256"`
	Reason            string `json:"reason"` // ReasonCompromised or ReasonRevoked
	Since             string `json:"since"`  // a timestamp; information only
}

// TrustedKeys is the pinned set: the file that an operator distributes and verifiers obtain through a trusted channel.
// It is immutable and safe for concurrent use; a nil set trusts nothing.
type TrustedKeys struct {
	keys    []TrustedKey
	revoked []RevokedKey
	logKeys []LogKey
	byID    map[string]int  // into keys
	barred  map[string]bool // keyIds and fingerprints of revoked keys
}

// NewTrustedKeys makes a set. It refuses a repeated keyId in either list, a repeated
// log key, a log key that signs or signed records too, and entries that a file could
// not hold. A retired log key stays in logKeys: old checkpoints must verify.
func NewTrustedKeys(keys []TrustedKey, revoked []RevokedKey, logKeys []LogKey) (*TrustedKeys, error) {
	t := &TrustedKeys{
		keys: slices.Clone(keys), revoked: slices.Clone(revoked), logKeys: slices.Clone(logKeys),
		byID: make(map[string]int, len(keys)), barred: make(map[string]bool, 2*len(revoked)),
	}
	for i := range t.keys {
		k := &t.keys[i]
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("trusted key %d: %w", i, err)
		}
		if _, twice := t.byID[k.KeyID]; twice {
			return nil, fmt.Errorf("trusted key %d: keyId %s is repeated", i, k.KeyID)
		}
		t.byID[k.KeyID] = i
	}
	for i, r := range t.revoked {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("revoked key %d: %w", i, err)
		}
		if t.barred[r.KeyID] {
			return nil, fmt.Errorf("revoked key %d: keyId %s is repeated", i, r.KeyID)
		}
		t.barred[r.KeyID], t.barred[r.FingerprintSHA256] = true, true
	}
	if err := t.checkLogKeys(); err != nil {
		return nil, err
	}
	return t, nil
}

func (k *TrustedKey) check() error {
	if again, err := NewPublicKey(k.raw[:]); err != nil || again != k.PublicKey {
		return errors.New("must be a key made by NewPublicKey")
	}
	switch k.Status {
	case "":
		k.Status = KeyActive
	case KeyActive, KeyRetired:
	default:
		return fmt.Errorf("status %q is neither active nor retired", k.Status)
	}
	if k.Since == "" && k.Status == KeyActive {
		return nil
	}
	if _, err := NormalizeTimestamp(k.Since); err != nil {
		return fmt.Errorf("since: %w", err)
	}
	return nil
}

func (r RevokedKey) check() error {
	if _, ok := decodeBase64URL(r.KeyID, 32); !ok {
		return errors.New("keyId: must be 43 base64url characters")
	}
	if !sha256Pattern.MatchString(r.FingerprintSHA256) {
		return errors.New("fingerprintSha256: " + sha256Rule)
	}
	if r.Reason != ReasonCompromised && r.Reason != ReasonRevoked {
		return fmt.Errorf("reason %q is neither compromised nor revoked", r.Reason)
	}
	if _, err := NormalizeTimestamp(r.Since); err != nil {
		return fmt.Errorf("since: %w", err)
	}
	return nil
}

// ParseTrustedKeys reads a trusted-keys file (contract, sections 4 and 4.1 step 3), or the bare array of its keys. One
// fault refuses the file whole: a member that is unknown or given twice, a repeated keyId, a JWK other than exactly
// kty, crv and x, a keyId or fingerprint that does not recompute, a log key whose name or keyHash does not, or that is
// a signing key too.
func ParseTrustedKeys(file []byte) (*TrustedKeys, error) {
	t, err := parseTrustedKeys(new(strictjson.Meter), file)
	if err != nil {
		return nil, fmt.Errorf("trusted keys: %w", err)
	}
	return t, nil
}

func parseTrustedKeys(m *strictjson.Meter, file []byte) (*TrustedKeys, error) {
	const most = 1 << 20
	if len(file) > most {
		return nil, fmt.Errorf("must be at most %d bytes", most)
	}
	v, err := m.Parse(file, maxDepth)
	if err != nil {
		return nil, err
	}
	if v.Kind() == strictjson.Array {
		keys, err := readTrustedArray(m, v.Elements())
		if err != nil {
			return nil, err
		}
		return NewTrustedKeys(keys, nil, nil)
	}
	o := m.Decode(v)
	entries := o.Values("keys", strictjson.Required, 0, strictjson.AnyLength)
	statuses := o.Object("keyStatus", strictjson.Optional)
	revokedObjects := o.Objects("revokedKeys", strictjson.Optional, 0, strictjson.AnyLength)
	logKeys := o.Values("logKeys", strictjson.Optional, 0, strictjson.AnyLength)
	revoked := make([]RevokedKey, len(revokedObjects))
	named := make(map[string]bool) // keyIds that keyStatus may hold
	for i, r := range revokedObjects {
		revoked[i] = RevokedKey{
			KeyID:             r.String("keyId", strictjson.Required),
			FingerprintSHA256: r.String("fingerprintSha256", strictjson.Required),
			Reason:            r.String("reason", strictjson.Required),
			Since:             r.String("since", strictjson.Required),
		}
		named[revoked[i].KeyID] = true
	}
	keys, err := readTrustedArray(m, entries)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]int, len(keys))
	for i, k := range keys {
		byID[k.KeyID], named[k.KeyID] = i, true
	}
	for _, id := range statuses.Names() {
		s := statuses.Object(id, strictjson.Required)
		status := KeyStatus(s.Match("status", strictjson.Required, keyStatusPattern.MatchString, "must be active or retired"))
		since := s.String("since", strictjson.Required)
		if _, err := NormalizeTimestamp(since); err != nil {
			s.Problem("since", strictjson.CodeFormat, err.Error())
		}
		if !named[id] {
			statuses.Problem(id, strictjson.CodeFormat, "must be the keyId of a listed key")
		}
		if i, ok := byID[id]; ok {
			keys[i].Status, keys[i].Since = status, since
		}
	}
	if err := refusal(o.Problems()); err != nil {
		return nil, err
	}
	logs, err := readLogKeys(m, logKeys)
	if err != nil {
		return nil, err
	}
	return NewTrustedKeys(keys, revoked, logs)
}

func readTrustedArray(m *strictjson.Meter, entries []strictjson.Value) ([]TrustedKey, error) {
	keys := make([]TrustedKey, len(entries))
	for i, entry := range entries {
		o := m.Decode(entry)
		names := readKeyNames(o)
		if err := refusal(o.Problems()); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		x, ok := decodeBase64URL(names.JWK.X, ed25519.PublicKeySize)
		if !ok || names.JWK.Kty != "OKP" || names.JWK.Crv != "Ed25519" {
			return nil, fmt.Errorf("key %d: must be a JWK of kty OKP, crv Ed25519 and 32 bytes of x", i)
		}
		key, err := NewPublicKey(x)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		if key.KeyNames != names {
			return nil, fmt.Errorf("key %d: keyId or fingerprintSha256 does not belong to the key", i)
		}
		keys[i].PublicKey = key
	}
	return keys, nil
}

// Lookup finds a pinned key. trusted is false for a key that is not pinned, in
// which case the key is zero, and for one that is revoked besides.
func (t *TrustedKeys) Lookup(keyID string) (key TrustedKey, trusted bool) {
	if t == nil {
		return TrustedKey{}, false
	}
	i, ok := t.byID[keyID]
	if !ok {
		return TrustedKey{}, false
	}
	key = t.keys[i]
	return key, !t.barred[key.KeyID] && !t.barred[key.FingerprintSHA256]
}

// Trusts reports whether exactly this key is pinned and not revoked: the condition for a server to sign with it.
func (t *TrustedKeys) Trusts(key PublicKey) bool {
	pinned, trusted := t.Lookup(key.KeyID)
	return trusted && pinned.PublicKey == key
}

// Keys lists the pinned keys in the file's order, revoked ones included.
func (t *TrustedKeys) Keys() []TrustedKey { return slices.Clone(t.keys) }

// Revoked lists the revoked keys in the file's order.
func (t *TrustedKeys) Revoked() []RevokedKey { return slices.Clone(t.revoked) }

// LogKeys lists the keys of the transparency log in the file's order, retired ones included.
func (t *TrustedKeys) LogKeys() []LogKey { return slices.Clone(t.logKeys) }

// Marshal writes the file as it is published: indented JSON that ParseTrustedKeys reads back to an equal set.
func (t *TrustedKeys) Marshal() ([]byte, error) {
	type keyStatus struct {
		Status KeyStatus `json:"status"`
		Since  string    `json:"since"`
	}
	var file struct {
		Keys        []PublicKey          `json:"keys"`
		KeyStatus   map[string]keyStatus `json:"keyStatus"`
		RevokedKeys []RevokedKey         `json:"revokedKeys"`
		LogKeys     []LogKey             `json:"logKeys"`
	}
	file.Keys, file.KeyStatus = make([]PublicKey, len(t.keys)), make(map[string]keyStatus)
	for i, k := range t.keys {
		file.Keys[i] = k.PublicKey
		if k.Since != "" {
			file.KeyStatus[k.KeyID] = keyStatus{k.Status, k.Since}
		}
	}
	file.RevokedKeys = append([]RevokedKey{}, t.revoked...)
	file.LogKeys = append([]LogKey{}, t.logKeys...)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(file); err != nil {
		return nil, fmt.Errorf("trusted keys: %w", err)
	}
	return b.Bytes(), nil
}

// The changes that an operator makes to a pinned set. Each makes a new set and leaves the old one as it is. A key
// leaves no set: what it signed stays to be judged, and its keyId can never name another key.

// ErrUnknownKey says that a set does not hold the key.
var ErrUnknownKey = errors.New("the key is not among the trusted keys")

// ErrRevokedKey says that a key was revoked, which nothing undoes.
var ErrRevokedKey = errors.New("the key is revoked")

// Add pins one more key, as active. A set that trusts the key already is returned as it is.
func (t *TrustedKeys) Add(key PublicKey, since string) (*TrustedKeys, error) {
	if t.Trusts(key) {
		return t, nil
	}
	if t.barred[key.KeyID] || t.barred[key.FingerprintSHA256] {
		return nil, ErrRevokedKey
	}
	return NewTrustedKeys(append(t.Keys(), TrustedKey{PublicKey: key, Status: KeyActive, Since: since}), t.revoked, t.logKeys)
}

// AddLogKey is the set with one more key of the transparency log; a key that is in it
// already changes nothing. The errors are those of NewTrustedKeys.
func (t *TrustedKeys) AddLogKey(key LogKey) (*TrustedKeys, error) {
	if t.TrustsLogKey(key) {
		return t, nil
	}
	return NewTrustedKeys(t.keys, t.revoked, append(t.LogKeys(), key))
}

// TrustsLogKey reports whether exactly this key of the log is pinned.
func (t *TrustedKeys) TrustsLogKey(key LogKey) bool { return slices.Contains(t.logKeys, key) }

// Retire says that a key signs no more; it stays trusted. A set in which the key
// is retired already is returned as it is.
func (t *TrustedKeys) Retire(keyID, since string) (*TrustedKeys, error) {
	key, trusted := t.Lookup(keyID)
	switch {
	case key.KeyID == "":
		return nil, ErrUnknownKey
	case !trusted:
		return nil, ErrRevokedKey
	case key.Status == KeyRetired:
		return t, nil
	}
	keys := t.Keys()
	keys[t.byID[keyID]].Status, keys[t.byID[keyID]].Since = KeyRetired, since
	return NewTrustedKeys(keys, t.revoked, t.logKeys)
}

// Revoke says that nothing signed by a key verifies from now on. The key's public half stays in the set, so that what
// it signed can still be shown, and is left out where the set is published. A set in which the key is revoked already
// is returned as it is, with its first reason.
func (t *TrustedKeys) Revoke(keyID, reason, since string) (*TrustedKeys, error) {
	if t.barred[keyID] {
		return t, nil
	}
	key, _ := t.Lookup(keyID)
	if key.KeyID == "" {
		return nil, ErrUnknownKey
	}
	entry := RevokedKey{KeyID: keyID, FingerprintSHA256: key.FingerprintSHA256, Reason: reason, Since: since}
	changed, err := NewTrustedKeys(t.keys, append(t.Revoked(), entry), t.logKeys)
	if err != nil {
		return nil, fmt.Errorf("revoke a key: %w", err)
	}
	return changed, nil
}

// Published is the set as readers get it: revoked keys stand among the revoked
// only, so that a reader who takes the keys alone does not trust them.
func (t *TrustedKeys) Published() (*TrustedKeys, error) {
	keys := slices.DeleteFunc(t.Keys(), func(k TrustedKey) bool {
		return t.barred[k.KeyID] || t.barred[k.FingerprintSHA256]
	})
	return NewTrustedKeys(keys, t.revoked, t.logKeys)
}
