package evidence

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// KeyStatus tells whether a trusted key still signs. A retired key stays trusted.
type KeyStatus string

// The states of a trusted key.
const (
	KeyActive  KeyStatus = "active"
	KeyRetired KeyStatus = "retired"
)

// TrustedKey is a pinned key. Status and Since are informative only.
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

// RevokedKey names a revoked signing key or log key. Its signatures no longer verify by themselves, whatever times they
// claim. A record that a pinned authority stamped before Since can still be accepted (see Options).
type RevokedKey struct {
	KeyID             string `json:"keyId"`
	FingerprintSHA256 string `json:"fingerprintSha256"`
	Reason            string `json:"reason"` // ReasonCompromised or ReasonRevoked
	Since             string `json:"since"`  // a timestamp
}

func (r RevokedKey) since() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, r.Since) // checked when the set was created
	return at
}

// TrustedKeys is the pinned set: the content of the file that an operator distributes and that verifiers obtain through
// a trusted channel. It is immutable and safe for concurrent use; a nil set trusts nothing.
type TrustedKeys struct {
	keys        []TrustedKey
	revoked     []RevokedKey
	logKeys     []LogKey
	witnesses   []WitnessKey
	authorities []Authority
	ignored     []string       // unknown members of the file, and critical
	byID        map[string]int // into keys
	barred      map[string]int // into revoked, by keyId and by fingerprint
}

// NewTrustedKeys returns a set. It refuses a repeated keyId in either list, a repeated log key, a log key that signs
// records too, and entries that a file cannot contain. A retired or revoked log key stays in logKeys, because old
// checkpoints must still be checked.
func NewTrustedKeys(keys []TrustedKey, revoked []RevokedKey, logKeys []LogKey) (*TrustedKeys, error) {
	return new(TrustedKeys).with(func(t *TrustedKeys) {
		t.keys, t.revoked, t.logKeys = slices.Clone(keys), slices.Clone(revoked), slices.Clone(logKeys)
	})
}

// with returns a changed copy of the set. change must not modify the slices in place.
func (t *TrustedKeys) with(change func(*TrustedKeys)) (*TrustedKeys, error) {
	next := *t
	next.keys = slices.Clone(t.keys)
	change(&next)
	next.byID, next.barred = make(map[string]int, len(next.keys)), make(map[string]int, 2*len(next.revoked))
	if err := next.index(); err != nil {
		return nil, err
	}
	return &next, nil
}

func (t *TrustedKeys) index() error {
	for i := range t.keys {
		k := &t.keys[i]
		if err := k.check(); err != nil {
			return say.Errorf("trusted key %d: %w", i, err)
		}
		if _, twice := t.byID[k.KeyID]; twice {
			return say.Errorf("trusted key %d: keyId %s is repeated", i, k.KeyID)
		}
		t.byID[k.KeyID] = i
	}
	for i, r := range t.revoked {
		if err := r.check(); err != nil {
			return say.Errorf("revoked key %d: %w", i, err)
		}
		if _, twice := t.barred[r.KeyID]; twice {
			return say.Errorf("revoked key %d: keyId %s is repeated", i, r.KeyID)
		}
		t.barred[r.KeyID], t.barred[r.FingerprintSHA256] = i, i
	}
	if err := t.checkLogKeys(); err != nil {
		return err
	}
	if err := t.checkWitnessKeys(); err != nil {
		return err
	}
	return t.checkAuthorities()
}

func (k *TrustedKey) check() error {
	if again, err := NewPublicKey(k.raw[:]); err != nil || again != k.PublicKey {
		return say.Errorf("must be a key made by NewPublicKey")
	}
	switch k.Status {
	case "":
		k.Status = KeyActive
	case KeyActive, KeyRetired:
	default:
		return say.Errorf("status %q is neither active nor retired", k.Status)
	}
	if k.Since == "" && k.Status == KeyActive {
		return nil
	}
	if _, err := NormalizeTimestamp(k.Since); err != nil {
		return say.Errorf("since: %w", err)
	}
	return nil
}

func (r RevokedKey) check() error {
	if _, ok := decodeBase64URL(r.KeyID, 32); !ok {
		return say.Errorf("keyId: must be 43 base64url characters")
	}
	if !sha256Pattern.MatchString(r.FingerprintSHA256) {
		return say.Errorf("fingerprintSha256: %s", say.Sentencef(sha256Rule))
	}
	if r.Reason != ReasonCompromised && r.Reason != ReasonRevoked {
		return say.Errorf("reason %q is neither compromised nor revoked", r.Reason)
	}
	if _, err := NormalizeTimestamp(r.Since); err != nil {
		return say.Errorf("since: %w", err)
	}
	return nil
}

// ParseTrustedKeys reads a trusted-keys file (contract, sections 4 and 4.1 step 3), or the bare array of its keys.
//
// An unknown member of the file is ignored, unless the file's own member critical names it (as in RFC 7515, section
// 4.1.11) or it differs from a known name only in the case of letters. Any other fault refuses the whole file: an
// unknown member of an entry, a duplicate member, a repeated keyId, a JWK other than exactly kty, crv and x, a keyId or
// fingerprint that does not recompute, a log key or witness key whose name or keyHash does not, a key that also signs
// in another role, or a certificate that cannot be read.
func ParseTrustedKeys(file []byte) (*TrustedKeys, error) {
	t, err := parseTrustedKeys(new(strictjson.Meter), file)
	if err != nil {
		return nil, say.Errorf("trusted keys: %w", err)
	}
	return t, nil
}

func parseTrustedKeys(m *strictjson.Meter, file []byte) (*TrustedKeys, error) {
	const most = 1 << 20
	if len(file) > most {
		return nil, say.Errorf("must be at most %d bytes", most)
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
	witnessKeys := o.Values("witnessKeys", strictjson.Optional, 0, strictjson.AnyLength)
	authorities := o.Values("timestampAuthorities", strictjson.Optional, 0, maxAuthorities)
	ignored := ignoreUnknown(o)
	revoked := make([]RevokedKey, len(revokedObjects))
	named := make(map[string]bool) // keyIds that keyStatus may name
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
			s.Problem("since", strictjson.CodeFormat, "%s", err)
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
	t := &TrustedKeys{keys: keys, revoked: revoked, ignored: ignored}
	if t.logKeys, err = readNoteKeys(m, "log key", logKeys, ParseLogKey); err != nil {
		return nil, err
	}
	if t.witnesses, err = readNoteKeys(m, "witness key", witnessKeys, ParseWitnessKey); err != nil {
		return nil, err
	}
	if t.authorities, err = readAuthorities(m, authorities); err != nil {
		return nil, err
	}
	return t.with(func(*TrustedKeys) {})
}

// ignoreUnknown skips the unknown members of a trusted-keys file, after the known ones were read. It returns the
// members that Marshal would not write.
func ignoreUnknown(o *strictjson.Object) (ignored []string) {
	known := map[string]bool{"critical": true} // in lower case
	for _, name := range []string{"keys", "keyStatus", "revokedKeys", "logKeys", "witnessKeys", "timestampAuthorities"} {
		known[strings.ToLower(name)] = true
	}
	for _, name := range o.Names() {
		if !known[lowerASCII(name)] {
			o.Has(name) // counts as reading it, so it is not reported as unknown
			ignored = append(ignored, name)
		}
	}
	if !o.Has("critical") {
		return ignored
	}
	ignored = append(ignored, "critical")
	critical := o.StringList("critical", strictjson.Required, 0, strictjson.AnyLength)
	if len(critical) == 0 && o.OK("critical") {
		o.Problem("critical", strictjson.CodeLength, "must name at least one member")
	}
	present, seen := make(map[string]bool), make(map[string]bool, len(critical))
	for _, name := range o.Names() {
		present[name] = true
	}
	for i, name := range critical {
		switch {
		case seen[name] || !present[name]:
			o.ElementProblem("critical", i, strictjson.CodeFormat, "must be the name of a member of the file, and stand once")
		case !known[lowerASCII(name)]:
			o.ElementProblem(
				"critical", i, strictjson.CodeUnknown,
				"the file says that %s must be understood, and this program does not know it: use a newer one", shortened(name),
			)
		}
		seen[name] = true
	}
	return ignored
}

// lowerASCII lowers only A to Z, so that all implementations agree.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func shortened(name string) string {
	const most = 200
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

func readTrustedArray(m *strictjson.Meter, entries []strictjson.Value) ([]TrustedKey, error) {
	keys := make([]TrustedKey, len(entries))
	for i, entry := range entries {
		o := m.Decode(entry)
		names := readKeyNames(o)
		if err := refusal(o.Problems()); err != nil {
			return nil, say.Errorf("key %d: %w", i, err)
		}
		x, ok := decodeBase64URL(names.JWK.X, ed25519.PublicKeySize)
		if !ok || names.JWK.Kty != "OKP" || names.JWK.Crv != "Ed25519" {
			return nil, say.Errorf("key %d: must be a JWK of kty OKP, crv Ed25519 and 32 bytes of x", i)
		}
		key, err := NewPublicKey(x)
		if err != nil {
			return nil, say.Errorf("key %d: %w", i, err)
		}
		if key.KeyNames != names {
			return nil, say.Errorf("key %d: keyId or fingerprintSha256 does not belong to the key", i)
		}
		keys[i].PublicKey = key
	}
	return keys, nil
}

// Lookup returns a pinned key. trusted is false if the key is revoked, or not pinned, in which case the key is zero.
func (t *TrustedKeys) Lookup(keyID string) (key TrustedKey, trusted bool) {
	if t == nil {
		return TrustedKey{}, false
	}
	i, ok := t.byID[keyID]
	if !ok {
		return TrustedKey{}, false
	}
	key = t.keys[i]
	_, revoked := t.revocation(key.KeyNames)
	return key, !revoked
}

// revocation finds the entry that revokes a key.
func (t *TrustedKeys) revocation(names KeyNames) (RevokedKey, bool) {
	if t == nil {
		return RevokedKey{}, false
	}
	i, ok := t.barred[names.KeyID]
	if !ok {
		i, ok = t.barred[names.FingerprintSHA256]
	}
	if !ok {
		return RevokedKey{}, false
	}
	return t.revoked[i], true
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

// LogKeys lists the keys of the transparency log in the file's order, retired and revoked ones included.
func (t *TrustedKeys) LogKeys() []LogKey { return slices.Clone(t.logKeys) }

// WitnessKeys lists the pinned witnesses in the file's order.
func (t *TrustedKeys) WitnessKeys() []WitnessKey { return slices.Clone(t.witnesses) }

// Witnesses lists the names of the pinned witnesses, each once: a witness whose key was rotated has several
// WitnessKeys.
func (t *TrustedKeys) Witnesses() (names []string) {
	for _, w := range t.witnesses {
		if !slices.Contains(names, w.Name) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Authorities lists the pinned timestamp authorities in the file's order.
func (t *TrustedKeys) Authorities() []Authority { return slices.Clone(t.authorities) }

// Ignored lists the members of the parsed file that Marshal does not write: unknown members, and critical. A program
// that rewrites a file must not lose them.
func (t *TrustedKeys) Ignored() []string { return slices.Clone(t.ignored) }

// Marshal returns the published file: indented JSON that ParseTrustedKeys parses to an equal set.
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
		Witnesses   []WitnessKey         `json:"witnessKeys,omitempty"`
		Authorities []Authority          `json:"timestampAuthorities,omitempty"`
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
	file.Witnesses, file.Authorities = t.witnesses, t.authorities
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(file); err != nil {
		return nil, say.Errorf("trusted keys: %w", err)
	}
	return b.Bytes(), nil
}

// Changes that an operator makes to a pinned set. Each returns a new set and leaves the old one unchanged. A key is
// never removed, because its signatures must still be checked and its keyId can never name another key.

// ErrUnknownKey means that a set does not contain the key.
var ErrUnknownKey = say.Errorf("the key is not among the trusted keys")

// ErrRevokedKey means that a key was revoked, which cannot be undone.
var ErrRevokedKey = say.Errorf("the key is revoked")

// ErrUnknownAuthority means that a set does not contain the timestamp authority.
var ErrUnknownAuthority = say.Errorf("the timestamp authority is not among the trusted ones")

// Add pins a key as active. A set that already trusts the key is returned unchanged.
func (t *TrustedKeys) Add(key PublicKey, since string) (*TrustedKeys, error) {
	if t.Trusts(key) {
		return t, nil
	}
	if _, revoked := t.revocation(key.KeyNames); revoked {
		return nil, ErrRevokedKey
	}
	return t.with(func(t *TrustedKeys) {
		t.keys = append(t.keys, TrustedKey{PublicKey: key, Status: KeyActive, Since: since})
	})
}

// AddLogKey returns the set with one more key of the transparency log; adding a key twice changes nothing. It returns
// the errors of NewTrustedKeys, and ErrRevokedKey.
func (t *TrustedKeys) AddLogKey(key LogKey) (*TrustedKeys, error) {
	if slices.Contains(t.logKeys, key) {
		return t, nil
	}
	return t.with(func(t *TrustedKeys) { t.logKeys = append(t.LogKeys(), key) })
}

// TrustsLogKey reports whether exactly this key of the log is pinned and not revoked.
func (t *TrustedKeys) TrustsLogKey(key LogKey) bool {
	_, revoked := t.revocation(key.names())
	return slices.Contains(t.logKeys, key) && !revoked
}

// LogKeyRevocation returns the entry that revokes a log key.
func (t *TrustedKeys) LogKeyRevocation(key LogKey) (RevokedKey, bool) {
	return t.revocation(key.names())
}

// AddWitnessKey returns the set with one more pinned witness key; adding a key twice changes nothing.
func (t *TrustedKeys) AddWitnessKey(key WitnessKey) (*TrustedKeys, error) {
	if slices.Contains(t.witnesses, key) {
		return t, nil
	}
	return t.with(func(t *TrustedKeys) { t.witnesses = append(t.WitnessKeys(), key) })
}

// RemoveWitnessKey returns the set without the witness keys of a name. The error is ErrUnknownKey.
func (t *TrustedKeys) RemoveWitnessKey(name string) (*TrustedKeys, error) {
	left := slices.DeleteFunc(t.WitnessKeys(), func(k WitnessKey) bool { return k.Name == name })
	if len(left) == len(t.witnesses) {
		return nil, ErrUnknownKey
	}
	return t.with(func(t *TrustedKeys) { t.witnesses = left })
}

// Authority returns the pinned timestamp authority of a name.
func (t *TrustedKeys) Authority(name string) (Authority, bool) {
	if t != nil {
		for _, a := range t.authorities {
			if a.Name == name {
				return a, true
			}
		}
	}
	return Authority{}, false
}

// PutAuthority returns the set with a timestamp authority, replacing an authority of the same name.
func (t *TrustedKeys) PutAuthority(authority Authority) (*TrustedKeys, error) {
	list := slices.DeleteFunc(t.Authorities(), func(a Authority) bool { return a.Name == authority.Name })
	return t.with(func(t *TrustedKeys) { t.authorities = append(list, authority) })
}

// RemoveAuthority returns the set without the timestamp authority of a name. The error is ErrUnknownAuthority.
func (t *TrustedKeys) RemoveAuthority(name string) (*TrustedKeys, error) {
	if _, pinned := t.Authority(name); !pinned {
		return nil, ErrUnknownAuthority
	}
	return t.with(func(t *TrustedKeys) {
		t.authorities = slices.DeleteFunc(t.Authorities(), func(a Authority) bool { return a.Name == name })
	})
}

// Retire marks a key as no longer signing; it stays trusted. A set in which the key is already retired is returned
// unchanged.
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
	return t.with(func(t *TrustedKeys) {
		i := t.byID[keyID]
		t.keys[i].Status, t.keys[i].Since = KeyRetired, since
	})
}

// Revoke revokes a signing key or log key: from now on its signatures do not verify by themselves. The public half
// stays in the set, so that its signatures can still be checked; a signing key's is left out of the published set. A
// set in which the key is already revoked is returned unchanged, with the first reason and time.
func (t *TrustedKeys) Revoke(keyID, reason, since string) (*TrustedKeys, error) {
	if _, revoked := t.revocation(KeyNames{KeyID: keyID}); revoked {
		return t, nil
	}
	key, _ := t.Lookup(keyID)
	names := key.KeyNames
	for _, k := range t.logKeys {
		if n := k.names(); n.KeyID == keyID {
			names = n
		}
	}
	if names.KeyID == "" {
		return nil, ErrUnknownKey
	}
	entry := RevokedKey{KeyID: keyID, FingerprintSHA256: names.FingerprintSHA256, Reason: reason, Since: since}
	changed, err := t.with(func(t *TrustedKeys) { t.revoked = append(t.Revoked(), entry) })
	if err != nil {
		return nil, say.Errorf("revoke a key: %w", err)
	}
	return changed, nil
}

// Published returns the set in its published form: revoked signing keys are listed only among the revoked, so that a
// reader of the keys alone does not trust them.
func (t *TrustedKeys) Published() (*TrustedKeys, error) {
	return t.with(func(t *TrustedKeys) {
		t.keys = slices.DeleteFunc(t.keys, func(k TrustedKey) bool {
			_, revoked := t.revocation(k.KeyNames)
			return revoked
		})
	})
}
