package evidence

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPublicKeyNames(t *testing.T) {
	// RFC 8037, appendix A.3: the thumbprint of the key of RFC 8032, section 7.1, test 1.
	x, ok := decodeBase64URL("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", 32)
	if !ok {
		t.Fatal("x")
	}
	key, err := NewPublicKey(x)
	if err != nil {
		t.Fatal(err)
	}
	if key.KeyID != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(key.KeyID)
	}
	if _, err := NewPublicKey(x[1:]); err == nil {
		t.Error("31 bytes were accepted")
	}
	if (PublicKey{}).verify(nil, make([]byte, 64)) {
		t.Error("the zero key verifies")
	}
}

func TestSignerPEM(t *testing.T) {
	s := testSigner(t, 9)
	text, err := MarshalSignerPEM(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSignerPEM(text)
	if err != nil || back.Key() != s.Key() || must(back.Sign([]byte("a"))) != must(s.Sign([]byte("a"))) || len(must(s.Sign(nil))) != 86 {
		t.Fatalf("%v, %v", back, err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "text": []byte("key"), "two keys": append(bytes.Clone(text), text...),
		"another type": bytes.ReplaceAll(text, []byte("PRIVATE KEY"), []byte("EC PRIVATE KEY")),
		"P-256":        pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}),
		"broken":       pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der[1:]}),
	} {
		if _, err := ParseSignerPEM(bad); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if first, second := GenerateSigner(), GenerateSigner(); first.Key() == second.Key() {
		t.Error("two new keys are the same")
	}
}

func TestObservedSigner(t *testing.T) {
	s := testSigner(t, 9)
	var told []string
	observed := s.Observed(func() func() {
		told = append(told, "begin")
		return func() { told = append(told, "end") }
	})
	if observed.Key() != s.Key() || must(observed.Sign([]byte("a"))) != must(s.Sign([]byte("a"))) {
		t.Error("it signs otherwise")
	}
	if !slices.Equal(told, []string{"begin", "end"}) {
		t.Errorf("told %v", told)
	}
}

func TestSignerPrintsNoSecret(t *testing.T) {
	s := testSigner(t, 9)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, s); got != "signer "+s.Key().KeyID {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	if got := string(marshal(t, s)); got != "{}" {
		t.Error(got)
	}
}

func TestTrustedKeysRoundTrip(t *testing.T) {
	f := newFixture(t)
	file, err := f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseTrustedKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Marshal()
	if err != nil || !bytes.Equal(file, again) {
		t.Errorf("%s, %v", again, err)
	}
	if !reflect.DeepEqual(back.Keys(), f.trust.Keys()) || !reflect.DeepEqual(back.Revoked(), f.trust.Revoked()) ||
		!reflect.DeepEqual(back.LogKeys(), f.trust.LogKeys()) {
		t.Error("lists differ")
	}
	bare, err := ParseTrustedKeys(marshal(t, []PublicKey{f.both.Key()}))
	if err != nil || !bare.Trusts(f.both.Key()) {
		t.Error("a bare array of keys", err)
	}
	empty, err := NewTrustedKeys(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if file, err = empty.Marshal(); err != nil || strings.Contains(string(file), "null") {
		t.Errorf("%s, %v", file, err)
	}
	if empty.Trusts(f.signer.Key()) || (*TrustedKeys)(nil).Trusts(f.signer.Key()) {
		t.Error("nothing trusts something")
	}
}

func TestTrusts(t *testing.T) {
	f := newFixture(t)
	for name, c := range map[string]struct {
		signer *Signer
		want   bool
	}{
		"active": {f.signer, true}, "retired": {f.retired, true}, "revoked": {f.revoked, false}, "both": {f.both, false},
		"foreign": {f.foreign, false},
	} {
		if got := f.trust.Trusts(c.signer.Key()); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if f.trust.Trusts(PublicKey{}) {
		t.Error("the zero key is trusted")
	}
	forged := f.foreign.Key()
	forged.KeyID = f.signer.Key().KeyID
	if f.trust.Trusts(forged) {
		t.Error("a name is enough")
	}
	if k, ok := f.trust.Lookup(f.retired.Key().KeyID); !ok || k.Status != KeyRetired {
		t.Error(k, ok)
	}
	// A matching fingerprint alone revokes a key: a typing error in the keyId must not save it.
	t2, err := NewTrustedKeys(
		f.trust.Keys(),
		[]RevokedKey{{f.foreign.Key().KeyID, f.signer.Key().FingerprintSHA256, ReasonRevoked, "2026-01-01T00:00:00Z"}}, nil,
	)
	if err != nil || t2.Trusts(f.signer.Key()) {
		t.Error("revoked by fingerprint", err)
	}
}

func TestTrustedKeysFileIsRefusedWhole(t *testing.T) {
	f := newFixture(t)
	files := refusedTrustFiles(t, f)
	files["too large"] = `[` + strings.Repeat(" ", 1<<20) + `]`
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			if set, err := ParseTrustedKeys([]byte(text)); err == nil || set != nil {
				t.Errorf("accepted: %v", set)
			}
		})
	}
	if _, err := NewTrustedKeys(
		[]TrustedKey{{PublicKey: PublicKey{KeyNames: KeyNames{KeyID: f.signer.Key().KeyID, JWK: f.signer.Key().JWK}}}}, nil,
		nil,
	); err == nil {
		t.Error("a key that was not made by NewPublicKey was accepted")
	}
}

// refusedTrustFiles returns trusted-keys files with one fault each.
func refusedTrustFiles(t *testing.T, f fixture) map[string]string {
	t.Helper()
	file, err := f.trust.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	id, x := f.signer.Key().KeyID, f.signer.Key().JWK.X
	change := func(from, to string) string {
		if !strings.Contains(string(file), from) {
			t.Fatalf("%q does not occur", from)
		}
		return strings.Replace(string(file), from, to, 1)
	}
	key := string(marshal(t, f.signer.Key()))
	logs := func(entries string) string { return `{"keys":[` + key + `],"logKeys":[` + entries + `]}` }
	// logKey returns the entry of a log key with one more member.
	logKey := func(k LogKey, more string) string {
		entry := string(marshal(t, k))
		if more == "" {
			return entry
		}
		return `{` + more + `,` + entry[1:]
	}
	logKeyChanged := func(change func(k *LogKey)) string {
		k := f.logSigner.key
		change(&k)
		return logs(string(marshal(t, k)))
	}
	// named returns the entry of a name and typed key with the matching hash.
	named := func(name string, typed []byte) string {
		sum := sha256.Sum256(append([]byte(name+"\n"), typed...))
		hash := hex.EncodeToString(sum[:4])
		return logs(string(marshal(
			t,
			LogKey{Name: name, KeyHash: hash, VerifierKey: name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(typed)},
		)))
	}
	spelled := func(name string) string { return named(name, append([]byte{noteEd25519}, f.logSigner.key.raw[:]...)) }
	typed := func(kind byte, size int) string {
		return named(testLogName, append([]byte{kind}, make([]byte, size-1)...))
	}
	// renamed names another JWK by its own thumbprint.
	renamed := func(jwk JWK) string {
		k := f.signer.Key()
		sum := sha256.Sum256([]byte(`{"crv":"` + jwk.Crv + `","kty":"` + jwk.Kty + `","x":"` + jwk.X + `"}`))
		k.JWK, k.KeyID = jwk, base64.RawURLEncoding.EncodeToString(sum[:])
		return `[` + string(marshal(t, k)) + `]`
	}
	// shaped names a key of another length by its own thumbprint.
	shaped := func(raw []byte) string {
		return renamed(JWK{"OKP", "Ed25519", base64.RawURLEncoding.EncodeToString(raw)})
	}
	return map[string]string{
		"not JSON":            "keys",
		"a string":            `"keys"`,
		"no keys":             `{"revokedKeys":[]}`,
		"keys twice":          change(`"revokedKeys"`, `"keys": [], "revokedKeys"`),
		"a case variant":      change(`"revokedKeys"`, `"revokedkeys"`),
		"unknown key member":  change(`"fingerprintSha256"`, `"name": "a", "fingerprintSha256"`),
		"private key":         change(`"kty": "OKP"`, `"kty": "OKP", "d": "`+x+`"`),
		"JWK with use":        change(`"kty": "OKP"`, `"kty": "OKP", "use": "sig"`),
		"another type":        change(`"kty": "OKP"`, `"kty": "EC"`),
		"another curve":       change(`"crv": "Ed25519"`, `"crv": "X25519"`),
		"another x":           change(x, f.foreign.Key().JWK.X),
		"padded x":            change(x, x+"="),
		"other spelling of x": change(x, respell(t, x)),
		"another keyId":       change(id, f.foreign.Key().KeyID),
		"another fingerprint": change(f.signer.Key().FingerprintSHA256, f.foreign.Key().FingerprintSHA256),
		"upper fingerprint": change(
			f.signer.Key().FingerprintSHA256, strings.ToUpper(f.signer.Key().FingerprintSHA256),
		),
		"repeated keyId":       `{"keys":[` + key + `,` + key + `]}`,
		"repeated in an array": `[` + key + `,` + key + `]`,
		"unknown status":       change(`"status": "active"`, `"status": "paused"`),
		"status without since": change(`"since": "2026-11-01T00:00:00Z"`, `"since": ""`),
		"since is no time":     change(`"since": "2026-11-01T00:00:00Z"`, `"since": "soon"`),
		"status of no key": change(
			`"keyStatus": {`,
			`"keyStatus": {"`+f.foreign.Key().KeyID+`": {"status": "active", "since": "2026-11-01T00:00:00Z"},`,
		),
		"status twice": change(
			`"keyStatus": {`, `"keyStatus": {"`+id+`": {"status": "active", "since": "2026-11-01T00:00:00Z"},`,
		),
		"unknown reason": change(`"reason": "revoked"`, `"reason": "lost"`),
		"revocation twice": change(
			f.both.Key().KeyID+`",`+"\n      \"fingerprintSha256\": \""+f.both.Key().FingerprintSHA256+"\",\n      \"reason\"",
			f.revoked.Key().KeyID+`",`+"\n      \"fingerprintSha256\": \""+f.both.Key().FingerprintSHA256+
				"\",\n      \"reason\"",
		),
		"revoked without keyId":     change(f.revoked.Key().KeyID, ""),
		"keys is an object":         `{"keys":{}}`,
		"another type, well named":  renamed(JWK{"EC", "Ed25519", x}),
		"another curve, well named": renamed(JWK{"OKP", "X25519", x}),
		"deep log keys":             logs(strings.Repeat("[", 7) + strings.Repeat("]", 7)),
		"byte order mark":           "\ufeff" + string(file),
		"two values":                string(file) + "[]",
		"log keys in an object":     `{"keys":[` + key + `],"logKeys":{}}`,
		"null log keys":             `{"keys":[` + key + `],"logKeys":null}`,
		"log key: text":             logs(`"` + f.logSigner.key.VerifierKey + `"`),
		"log key: null":             logs(`null`),
		"log key: unknown member":   logs(logKey(f.logSigner.key, `"since":""`)),
		"log key: member twice":     logs(logKey(f.logSigner.key, `"n\u0061me":"ledger.example/log"`)),
		"log key: case variant":     logs(strings.Replace(logKey(f.logSigner.key, ""), `"keyHash"`, `"keyhash"`, 1)),
		"log key: no verifierKey":   logs(`{"name":"a","keyHash":"01020304"}`),
		"log key: lone surrogate":   logs(strings.Replace(logKey(f.logSigner.key, ""), `"ledger`, `"\ud800ledger`, 1)),
		"log key: another name":     logKeyChanged(func(k *LogKey) { k.Name = "other.example/log" }),
		"log key: another hash":     logKeyChanged(func(k *LogKey) { k.KeyHash = f.retiredLog.key.KeyHash }),
		"log key: upper-case hash": logKeyChanged(func(k *LogKey) {
			k.KeyHash = strings.ToUpper(k.KeyHash)
		}),
		"log key: upper-case hash in both": logKeyChanged(func(k *LogKey) {
			k.VerifierKey = strings.Replace(k.VerifierKey, k.KeyHash, strings.ToUpper(k.KeyHash), 1)
			k.KeyHash = strings.ToUpper(k.KeyHash)
		}),
		"log key: another key under its hash": logKeyChanged(func(k *LogKey) {
			k.VerifierKey = k.VerifierKey[:len(k.VerifierKey)-44] + f.retiredLog.key.VerifierKey[len(k.VerifierKey)-44:]
		}),
		"log key: hash does not belong": logKeyChanged(func(k *LogKey) {
			k.VerifierKey = strings.Replace(k.VerifierKey, k.KeyHash, "01020304", 1)
			k.KeyHash = "01020304"
		}),
		"log key: newline in the base64": logKeyChanged(func(k *LogKey) {
			k.VerifierKey = k.VerifierKey[:40] + "\n" + k.VerifierKey[40:]
		}),
		"log key: newline at the end":     logKeyChanged(func(k *LogKey) { k.VerifierKey += "\n" }),
		"log key: base64url":              urlSafe(t),
		"log key: a cosignature key":      typed(0x04, 33),
		"log key: 31 bytes":               typed(noteEd25519, 32),
		"log key: 33 bytes":               typed(noteEd25519, 34),
		"log key: repeated":               logs(logKey(f.logSigner.key, "") + "," + logKey(f.logSigner.key, "")),
		"log key: space in the name":      spelled("a b"),
		"log key: plus in the name":       spelled("a+b"),
		"log key: empty name":             spelled(""),
		"log key: name beyond ASCII":      spelled("lédger.example/log"),
		"log key: control in the name":    spelled("a\u007f"),
		"log key: name of 513 characters": spelled(strings.Repeat("a", 513)),
		"log key: it signs records":       logs(logKey(testLogSigner(t, testLogName, 1).key, "")),
		"revoked in its keyStatus": change(
			`"keyStatus": {`,
			`"keyStatus": {"`+f.revoked.Key().KeyID+`": {"status": "revoked", "since": "2026-11-01T00:00:00Z"},`,
		),
		"revoked key since soon": change(
			`"keyStatus": {`, `"keyStatus": {"`+f.revoked.Key().KeyID+`": {"status": "active", "since": "soon"},`,
		),
		"year 0":        change(`"since": "2026-11-01T00:00:00Z"`, `"since": "0000-12-31T23:30:00-00:29"`),
		"year 10000":    change(`"since": "2026-11-01T00:00:00Z"`, `"since": "9999-12-31T23:30:00-00:30"`),
		"x of 31 bytes": shaped(make([]byte, 31)),
		"x of 33 bytes": shaped(make([]byte, 33)),
		"an RSA key": `{"keys":[` + key +
			`,{"keyId":"rsa","publicKeyJwk":{"kty":"RSA","n":"AQAB","e":"AQAB"},"fingerprintSha256":"` +
			f.signer.Key().FingerprintSHA256 + `"}]}`,
		"null keyStatus":       `{"keys":[` + key + `],"keyStatus":null}`,
		"null revokedKeys":     `{"keys":[` + key + `],"revokedKeys":null}`,
		"null in the array":    `[null]`,
		"since with a newline": change(`"since": "2026-11-01T00:00:00Z"`, `"since": "2026-11-01T00:00:00Z\n"`),
	}
}

// urlSafe returns a trusted-keys file whose log key is encoded in base64url.
func urlSafe(t *testing.T) string {
	t.Helper()
	for seed := byte(20); ; seed++ {
		k := testLogSigner(t, testLogName, seed).key
		encoded := k.VerifierKey[len(k.VerifierKey)-44:]
		if other := strings.NewReplacer("+", "-", "/", "_").Replace(encoded); other != encoded {
			k.VerifierKey = strings.TrimSuffix(k.VerifierKey, encoded) + other
			return `{"keys":[],"logKeys":[` + string(marshal(t, k)) + `]}`
		}
	}
}

// respell changes the last character of base64url text so that a lenient decoder reads the same bytes.
func respell(t *testing.T, s string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, s[len(s)-1])
	return s[:len(s)-1] + string(alphabet[last^1])
}

// FuzzTrustedKeys: no file causes a panic, and an accepted file names every key by its own bytes.
func FuzzTrustedKeys(f *testing.F) {
	x := newFixture(f)
	file, err := x.trust.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, file []byte) {
		set, err := ParseTrustedKeys(file)
		if err != nil {
			return
		}
		for _, k := range set.Keys() {
			if again, err := NewPublicKey(k.raw[:]); err != nil || again != k.PublicKey {
				t.Fatal(k)
			}
		}
		text, err := set.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseTrustedKeys(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

// TestTrustChangesAgainstNaiveModel makes random changes. In any order, a key is trusted exactly if it was added and
// never revoked, no earlier set changes, and every set is read back from its file.
func TestTrustChangesAgainstNaiveModel(t *testing.T) {
	const since = "2026-11-20T12:00:00Z"
	var signers []*Signer
	for seed := range byte(5) {
		signers = append(signers, testSigner(t, 40+seed))
	}
	rapid.Check(t, func(t *rapid.T) {
		set, err := NewTrustedKeys(nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		added, retired, revoked := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			key := rapid.SampledFrom(signers).Draw(t, "key").Key()
			id := key.KeyID
			var want error
			var next *TrustedKeys
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				next, err = set.Add(key, since)
				if want = map[bool]error{true: ErrRevokedKey}[revoked[id]]; want == nil {
					added[id] = true
				}
			case 1:
				next, err = set.Retire(id, since)
				switch {
				case !added[id]:
					want = ErrUnknownKey
				case revoked[id]:
					want = ErrRevokedKey
				default:
					retired[id] = true
				}
			default:
				next, err = set.Revoke(id, ReasonCompromised, since)
				if want = map[bool]error{true: ErrUnknownKey}[!added[id]]; want == nil {
					revoked[id] = true
				}
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Fatalf("%v, want %v", err, want)
			}
			if err != nil {
				continue
			}
			text, err := next.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if set, err = ParseTrustedKeys(text); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			published, err := set.Published()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range signers {
				k, id := s.Key(), s.Key().KeyID
				if trusts := added[id] && !revoked[id]; set.Trusts(k) != trusts || published.Trusts(k) != trusts {
					t.Fatalf("trusts %t and published %t, want %t", set.Trusts(k), published.Trusts(k), trusts)
				}
				if pinned, trusted := set.Lookup(id); trusted && (pinned.Status == KeyRetired) != retired[id] {
					t.Fatalf("status %s, retired %t", pinned.Status, retired[id])
				}
				// The set still has a revoked key, but the published set does not.
				if pinned, _ := set.Lookup(id); (pinned.KeyID != "") != added[id] {
					t.Fatal("a key has left the set")
				}
				if text, err = published.Marshal(); err != nil || revoked[id] && strings.Contains(string(text), k.JWK.X) {
					t.Fatalf("a revoked key is published: %v %s", err, text)
				}
			}
		}
	})
}
