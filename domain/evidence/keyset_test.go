package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/schemas"
)

// keySetVector is the proof of a key set, what its reader pins, and what every verifier finds.
type keySetVector struct {
	Name      string        `json:"name"`
	Proof     string        `json:"proof"`
	LogKeys   []LogKey      `json:"logKeys"`
	Witnesses []WitnessKey  `json:"witnessKeys"`
	Revoked   []RevokedKey  `json:"revokedKeys"`
	Origin    string        `json:"origin"`
	Issuer    string        `json:"issuer"`
	Require   int           `json:"requireWitnesses"`
	Expect    *keySetExpect `json:"expect"` // null: refused
}

type keySetExpect struct {
	Issuer       string   `json:"issuer"`
	PublishedAt  string   `json:"publishedAt"`
	SHA256       string   `json:"payloadSha256"`
	KeyIDs       []string `json:"keyIds"`
	TreeSize     int64    `json:"treeSize"`
	Witnesses    []string `json:"witnesses"`
	CosignedAt   *string  `json:"cosignedAt"`
	LogKeyPinned bool     `json:"logKeyPinned"`
	LogKeyListed bool     `json:"logKeyListed"`
}

// keySetBook makes vectors.
type keySetBook struct {
	fixture
	witnesses []testWitness
	t         *testing.T
	set       KeySet
	list      []keySetVector
}

const keySetDescription = "Proofs of published key sets (GET /api/public/log/keys), and what every verifier finds in " +
	"them at the time now. logKeys, witnessKeys and revokedKeys are what the reader pins, as members of a trusted-keys " +
	"file. origin is the name of the log and issuer the issuer that the reader expects, empty for any; without an " +
	"issuer, the log must be named after the issuer of the keys. expect is null if the proof must be refused. witnesses are the pinned ones that cosigned the checkpoint, and cosignedAt is the latest of their times."

const keySetIssuer = "https://ledger.example"

// leafOf returns the leaf of the event that published a payload.
func (b *keySetBook) leafOf(payload []byte) Leaf {
	return Leaf{
		ID: "evt_01kbq3v8y6fq0a6rx6zcsm7d1e", Type: keysPublishedType, OccurredAt: instant("2026-11-19T09:30:05.25Z"),
		PayloadSHA256: new(KeySet{Payload: payload}.SHA256()), BodySHA256: Hash{7}, Nonce: Nonce{8},
	}
}

// proof returns the proof of a set in a log, cosigned by the first witnesses.
func (b *keySetBook) proof(set KeySet, change func(*Leaf), cosigned ...int) string {
	leaf := b.leafOf(set.Payload)
	change(&leaf)
	i := b.inclusion(b.t, string(leaf.AppendCanonical(nil)), 4, 7)
	note := i.Checkpoint
	for _, w := range cosigned {
		i.Checkpoint += b.witnesses[w].cosign(note, uint64(1_795_080_660+w))
	}
	return string(set.AppendProof(nil, i))
}

func unchanged(*Leaf) {}

// add adds a vector whose reader pins the log key.
func (b *keySetBook) add(name, proof string, expect *keySetExpect, change ...func(*keySetVector)) {
	v := keySetVector{
		Name: name, Proof: proof, LogKeys: []LogKey{b.logSigner.key}, Witnesses: []WitnessKey{}, Revoked: []RevokedKey{},
		Expect: expect,
	}
	for _, do := range change {
		do(&v)
	}
	b.list = append(b.list, v)
}

func newKeySetBook(t *testing.T) *keySetBook {
	t.Helper()
	b := &keySetBook{fixture: newFixture(t), t: t}
	for i := range byte(2) {
		b.witnesses = append(b.witnesses, newTestWitness(t, fmt.Sprintf("witness.example/%d", i+1), 31+i))
	}
	set, err := NewKeySet(keySetIssuer, b.trust)
	if err != nil {
		t.Fatal(err)
	}
	b.set = set
	good := func(change ...func(*keySetExpect)) *keySetExpect {
		e := &keySetExpect{
			Issuer: keySetIssuer, PublishedAt: "2026-11-19T09:30:05.25Z", SHA256: set.SHA256().String(), TreeSize: 7,
			Witnesses: []string{}, LogKeyPinned: true, LogKeyListed: true,
		}
		for _, k := range set.Trusted.Keys() {
			e.KeyIDs = append(e.KeyIDs, k.KeyID)
		}
		for _, do := range change {
			do(e)
		}
		return e
	}
	bare := b.proof(set, unchanged)
	cosigned := b.proof(set, unchanged, 0, 1)
	pinned := func(v *keySetVector) {
		for _, w := range b.witnesses {
			v.Witnesses = append(v.Witnesses, w.WitnessKey)
		}
	}
	witnessed := func(e *keySetExpect) {
		e.Witnesses = []string{"witness.example/1", "witness.example/2"}
		e.CosignedAt = new(FormatTime(time.Unix(1_795_080_661, 0).UTC()))
	}
	noLogKey := func(v *keySetVector) { v.LogKeys = []LogKey{} }
	origin := func(v *keySetVector) { v.Origin = testLogName }
	alone := func(e *keySetExpect) { e.LogKeyPinned = false }
	required := func(n int) func(*keySetVector) { return func(v *keySetVector) { v.Require = n } }

	b.add("by the pinned log key", bare, good())
	b.add("by the pinned log key of its origin", bare, good(), origin)
	b.add("cosigned by two pinned witnesses", cosigned, good(witnessed), pinned, required(2))
	b.add("cosigned, none pinned", cosigned, good())
	b.add("by witnesses alone", cosigned, good(witnessed, alone), noLogKey, pinned, origin)
	b.add("by witnesses alone, two required", cosigned, good(witnessed, alone), noLogKey, pinned, origin, required(2))
	b.add("by witnesses alone, three required", cosigned, nil, noLogKey, pinned, origin, required(3))
	b.add("by witnesses alone, without an origin", cosigned, nil, noLogKey, pinned)
	b.add("by witnesses alone, of another origin", cosigned, nil, noLogKey, pinned, func(v *keySetVector) {
		v.Origin = "other.example/log"
	})
	b.add("by witnesses alone, not cosigned", bare, nil, noLogKey, pinned, origin)
	b.add("nothing pinned", cosigned, nil, noLogKey, origin)
	b.add("of another origin", bare, nil, func(v *keySetVector) { v.Origin = "other.example/log" })
	b.add("one witness required, none there", bare, nil, pinned, required(1))
	b.add("another log key pinned", bare, nil, func(v *keySetVector) { v.LogKeys = []LogKey{b.foreignLog.key} })
	b.add("the pinned log key was revoked", bare, nil, func(v *keySetVector) {
		k := b.logSigner.key.names()
		v.Revoked = []RevokedKey{{k.KeyID, k.FingerprintSHA256, ReasonCompromised, "2026-10-01T00:00:00Z"}}
	})

	// A set that says something about the log key itself.
	with := func(change func(*TrustedKeys)) KeySet {
		return must(NewKeySet(keySetIssuer, must(b.trust.with(change))))
	}
	revoking := with(func(set *TrustedKeys) {
		k := b.logSigner.key.names()
		set.revoked = append(slices.Clone(set.revoked), RevokedKey{
			k.KeyID, k.FingerprintSHA256, ReasonCompromised, "2026-10-01T00:00:00Z",
		})
	})
	b.add("the set revokes the log key", b.proof(revoking, unchanged), nil)
	b.add(
		"the set revokes the log key, by witnesses alone", b.proof(revoking, unchanged, 0, 1), nil, noLogKey, pinned, origin,
	)
	older := with(func(set *TrustedKeys) { set.logKeys = []LogKey{b.foreignLog.key} })
	b.add("the set does not list the log key", b.proof(older, unchanged), good(func(e *keySetExpect) {
		e.SHA256, e.LogKeyListed = older.SHA256().String(), false
	}))

	// The log is named after the issuer of the keys, unless the reader names the issuer.
	of := func(issuer string) KeySet { return must(NewKeySet(issuer, b.trust)) }
	by := func(set KeySet) func(*keySetExpect) {
		return func(e *keySetExpect) { e.Issuer, e.SHA256 = set.Issuer, set.SHA256().String() }
	}
	named := func(issuer string) func(*keySetVector) { return func(v *keySetVector) { v.Issuer = issuer } }
	b.add("the named issuer", bare, good(), named(keySetIssuer))
	b.add("another issuer is named", bare, nil, named(keySetIssuer+"/"))
	for _, issuer := range []string{
		"ledger.example", "http://ledger.example", "HTTPS://Ledger.Example//", "ledger.example/",
	} {
		b.add("issuer: "+issuer, b.proof(of(issuer), unchanged), good(by(of(issuer))))
	}
	for _, issuer := range []string{
		"https://other.example", "https://ledger.example:443", "https://ledger.example/a", "https://ledger.example/log",
		"https://ledger.example.", "Ledger.Example", "ledger.example ", "https:ledger.example", "https:///ledger.example",
		// Go's net/url finds the same host in these. Other libraries may not, so no verifier does.
		"//ledger.example", "https://a@ledger.example", "https://ledger.example?a", "https://ledger.example#a",
		"https://ledger.example/<é>", "https://ledger.example/%2e",
	} {
		b.add("issuer: "+issuer, b.proof(of(issuer), unchanged), nil)
	}
	for _, issuer := range []string{"https://other.example", "https://ledger.example/<é>"} {
		set := of(issuer)
		b.add("issuer: "+issuer+", named", b.proof(set, unchanged), good(by(set)), named(issuer))
		b.add("issuer: "+issuer+", by witnesses alone", b.proof(set, unchanged, 0), nil, noLogKey, pinned, origin)
	}
	for issuer, name := range map[string]string{
		"Año & Sons + 2":                       "A%C3%B1o%20&%20Sons%20%2B%202/log",
		"https://Ledger.Example:8443/A/b_c~1/": "ledger.example:8443/A/b_c~1/log",
		"a:b//c%":                              "a:b//c%/log",
	} {
		g := *b
		g.logSigner = testLogSigner(t, name, 11)
		set := of(issuer)
		b.add("issuer: "+issuer, g.proof(set, unchanged), good(by(set), func(e *keySetExpect) { e.LogKeyListed = false }),
			func(v *keySetVector) { v.LogKeys = []LogKey{g.logSigner.key} })
	}
	empty := Inclusion{Checkpoint: sign(t, checkpointText(testLogName, tlog.Tree{}), b.logSigner), Hashes: []string{}}
	leaf := b.leafOf(set.Payload)
	empty.Leaf = string(leaf.AppendCanonical(nil))
	b.add("a tree of size 0", string(set.AppendProof(nil, empty)), nil)

	// The leaf belongs to this event and to this payload.
	other := must(NewKeySet("https://other.example", b.trust))
	b.add("the leaf of another set", b.proof(set, func(l *Leaf) { l.PayloadSHA256 = new(other.SHA256()) }), nil)
	b.add("a leaf without a payload", b.proof(set, func(l *Leaf) { l.PayloadSHA256 = nil }), nil)
	b.add("the leaf of a registration", b.proof(set, func(l *Leaf) { l.Type = registeredType }), nil)
	b.add("the leaf of another event", b.proof(set, func(l *Leaf) { l.Type = "organization.created" }), nil)
	lines := func(change func(l []string)) string {
		l := strings.Split(bare, "\n")
		change(l)
		return strings.Join(l, "\n")
	}
	b.add("another index", lines(func(l []string) { l[2] = "index 5" }), nil)
	b.add("two hashes exchanged", lines(func(l []string) { l[3], l[4] = l[4], l[3] }), nil)
	b.add("another version of proofs", strings.Replace(bare, "@v1", "@v2", 1), nil)
	b.add("the proof of a record", (&vectorBook{t: t, f: b.fixture}).proofOf(func(*fixture, *Envelope) {}), nil)

	// The payload has one form. These are in the log, so only their form is wrong.
	for name, payload := range map[string]string{
		"white space":              strings.Replace(string(set.Payload), `,"issuer"`, `, "issuer"`, 1),
		"another contract":         strings.Replace(string(set.Payload), KeySetContract, "integrity-key-set-v2", 1),
		"an unknown member":        strings.Replace(string(set.Payload), `{"contract"`, `{"a":1,"contract"`, 1),
		"a member twice":           strings.Replace(string(set.Payload), `,"issuer"`, `,"contract":"x","issuer"`, 1),
		"no issuer":                strings.Replace(string(set.Payload), `,"issuer":"`+keySetIssuer+`"`, "", 1),
		"a list of keys":           `{"contract":"integrity-key-set-v1","issuer":"ledger.example","trustedKeys":[]}`,
		"keys that are not":        `{"contract":"integrity-key-set-v1","issuer":"ledger.example","trustedKeys":{"keys":[{}]}}`,
		"members in another order": `{"issuer":"ledger.example","contract":"integrity-key-set-v1","trustedKeys":{"keys":[]}}`,
	} {
		b.add("payload: "+name, b.proof(KeySet{Payload: []byte(payload)}, unchanged), nil)
	}
	unknown := `{"contract":"integrity-key-set-v1","issuer":"ledger.example","trustedKeys":{"keys":[],"later":{"a":[1,"é"]}}}`
	later := b.proof(KeySet{Payload: []byte(unknown)}, unchanged)
	b.add("payload: an unknown member of the file", later, good(func(e *keySetExpect) {
		e.Issuer, e.KeyIDs, e.LogKeyListed = "ledger.example", []string{}, false
		e.SHA256 = KeySet{Payload: []byte(unknown)}.SHA256().String()
	}))
	critical := strings.Replace(unknown, `"keys":[]`, `"critical":["later"],"keys":[]`, 1)
	b.add("payload: a critical member of the file", b.proof(KeySet{Payload: []byte(critical)}, unchanged), nil)
	for name, change := range map[string]func(string) string{
		"another contract": func(s string) string { return strings.Replace(s, KeySetProofContract, ProofContract, 1) },
		"white space":      func(s string) string { return strings.Replace(s, `,"leaf"`, ` ,"leaf"`, 1) },
		"a member more":    func(s string) string { return strings.Replace(s, `,"payload"`, `,"note":"","payload"`, 1) },
		"no payload":       func(s string) string { return s[:strings.Index(s, `,"payload"`)] + "}" },
	} {
		b.add("extra data: "+name, extraChanged(t, bare, change), nil)
	}
	slices.SortFunc(b.list, func(x, y keySetVector) int { return strings.Compare(x.Name, y.Name) }) // maps have no order
	return b
}

func (v keySetVector) verify() (ProvenKeySet, error) {
	trusted, err := NewTrustedKeys(nil, v.Revoked, v.LogKeys)
	if err == nil {
		trusted, err = trusted.with(func(t *TrustedKeys) { t.witnesses = v.Witnesses })
	}
	if err != nil {
		return ProvenKeySet{}, err
	}
	return VerifyKeySet([]byte(v.Proof), KeySetPins{
		Trusted: trusted, Origin: v.Origin, Issuer: v.Issuer, Witnesses: v.Require, Now: testNow,
	})
}

// TestKeySetProofs: a reader who pins a log key or witnesses obtains the published keys, and nothing else passes.
func TestKeySetProofs(t *testing.T) {
	b := newKeySetBook(t)
	for _, v := range b.list {
		found, err := v.verify()
		if (err == nil) != (v.Expect != nil) {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if err != nil {
			continue
		}
		got := &keySetExpect{
			Issuer: found.Issuer, PublishedAt: FormatTime(found.PublishedAt), SHA256: found.SHA256().String(),
			KeyIDs: []string{}, TreeSize: found.Checkpoint.Size, Witnesses: append([]string{}, found.Witnesses...),
			LogKeyPinned: found.LogKeyPinned, LogKeyListed: found.LogKeyListed,
		}
		for _, k := range found.Trusted.Keys() {
			got.KeyIDs = append(got.KeyIDs, k.KeyID)
		}
		if found.CosignedAt != nil {
			got.CosignedAt = new(FormatTime(*found.CosignedAt))
		}
		if !reflect.DeepEqual(got, v.Expect) {
			t.Errorf("%s: %+v, want %+v", v.Name, got, v.Expect)
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(struct {
		Description string         `json:"description"`
		Now         string         `json:"now"`
		Vectors     []keySetVector `json:"vectors"`
	}{keySetDescription, FormatTime(testNow), b.list}); err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../schemas/"+schemas.KeySetVectorsFile, text.Bytes())
}

// A negative number of witnesses is an error: it must not mean that none is required.
func TestNegativeNumberOfWitnesses(t *testing.T) {
	b := newKeySetBook(t)
	v := keySetVector{Proof: b.proof(b.set, unchanged), LogKeys: []LogKey{b.logSigner.key}, Require: -1}
	if _, err := v.verify(); err == nil || !strings.Contains(err.Error(), "must be 0 or more") {
		t.Errorf("of a key set: %v", err)
	}
	book := &vectorBook{t: t, f: b.fixture}
	proof := []byte(book.proofOf(func(*fixture, *Envelope) {}))
	for n, want := range map[int]int{0: 0, -1: 1} {
		if f := Verify(proof, b.trust, Options{Now: testNow, RequireWitnesses: n}); f.ExitCode() != want {
			t.Errorf("%d of a record: %v", n, f.Reasons)
		}
	}
}

// No byte of a proof can change. Only cosignatures may become ones that do not count.
func TestKeySetProofBytes(t *testing.T) {
	b := newKeySetBook(t)
	proof := b.proof(b.set, unchanged)
	v := keySetVector{LogKeys: []LogKey{b.logSigner.key}}
	for at := range proof {
		changed := []byte(proof)
		changed[at] ^= 0x01
		v.Proof = string(changed)
		if _, err := v.verify(); err == nil {
			t.Errorf("byte %d of %d is not read", at, len(proof))
		}
	}
}

// The set contains exactly what the service publishes, and is compared with files as readers have them.
func TestKeySetFile(t *testing.T) {
	b := newKeySetBook(t)
	published := must(must(b.set.Trusted.Published()).Marshal())
	file, err := b.set.File()
	if err != nil || !bytes.Equal(file, published) {
		t.Errorf("%v: the file is\n%s\nwant\n%s", err, file, published)
	}
	own := must(b.trust.Marshal())
	if bytes.Equal(own, published) {
		t.Fatal("the operator's own file must list a revoked key that the published one does not")
	}
	retired := must(must(b.trust.Retire(b.signer.Key().KeyID, "2026-11-20T00:00:00Z")).Marshal())
	for _, c := range []struct {
		name string
		file []byte
		same bool
	}{
		{"as published", published, true},
		{"without white space", must(compact(published)), true},
		{"the operator's own", own, true},
		{"a status changed", retired, false},
		{"an unknown member", bytes.Replace(published, []byte("{"), []byte(`{"later": 1,`), 1), false},
	} {
		if got, err := b.set.Contains(c.file); got != c.same || err != nil {
			t.Errorf("%s: %t, %v", c.name, got, err)
		}
	}
	if _, err := b.set.Contains([]byte("{}")); err == nil {
		t.Error("a file without keys is compared")
	}
	later := must(ParseKeySet([]byte(
		`{"contract":"integrity-key-set-v1","issuer":"ledger.example","trustedKeys":{"keys":[],"later":{"a":[1,"é"]}}}`,
	)))
	if file, err := later.File(); err != nil || !bytes.Contains(file, []byte(`"later"`)) {
		t.Errorf("a member that this program does not know is lost: %v %s", err, file)
	}
	big := bytes.Repeat([]byte{'x'}, MaxKeySetBytes)
	if _, err := ParseKeySet(fmt.Appendf(nil, `{"contract":"integrity-key-set-v1","issuer":"%s"}`, big)); err == nil {
		t.Error("a set that is too large is read")
	}
}

func compact(text []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, text)
	return b.Bytes(), err
}
