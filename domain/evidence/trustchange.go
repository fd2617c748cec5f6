package evidence

import (
	"errors"
	"fmt"
	"slices"
)

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
