package worm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
)

const (
	example = "2026-11-29T103000Z-000000001234"
	earlier = "2026-11-28T103000Z-000000001234"
)

func manifest() Manifest {
	note, token := stampFiles("FreeTSA")
	return Manifest{
		Contract: Contract, Issuer: "https://ledger.example", ExportedAt: "2026-11-29T10:30:00Z", TreeSize: 1234,
		RootHash: "root", Checkpoint: bundle.Describe(bundle.CheckpointFile, nil),
		TrustedKeys: bundle.Describe(bundle.TrustedKeysFile, nil), Previous: &Previous{earlier, sha256Of(nil)},
		Stamps: []Stamp{{
			"FreeTSA", "2026-11-29T10:29:00Z", 1200, bundle.Describe(note, nil), bundle.Describe(token, nil),
		}},
	}
}

// TestManifest: a manifest is read as it is written, and in no other form.
func TestManifest(t *testing.T) {
	m := manifest()
	text, err := m.text()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(text, []byte(`{"checkpoint":{"bytes":0,"file":"checkpoint","sha256":"e3b0`)) {
		t.Errorf("not in RFC 8785 form: %s", text)
	}
	if _, err := readManifest(text, example); err != nil {
		t.Error(err)
	}
	for what, changed := range map[string]string{
		"cut off": string(text[:len(text)-1]), "more": string(text) + "\n", "twice": string(text) + string(text),
		"another member": strings.Replace(string(text), "{", `{"a":1,`, 1),
		"a number":       "1", "empty": "",
	} {
		if _, err := readManifest([]byte(changed), example); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	for what, change := range map[string]func(*Manifest){
		"contract":          func(m *Manifest) { m.Contract = "integrity-worm-v2" },
		"size":              func(m *Manifest) { m.TreeSize++ },
		"time":              func(m *Manifest) { m.ExportedAt = "2026-11-29T10:30:01Z" },
		"no time":           func(m *Manifest) { m.ExportedAt = "" },
		"checkpoint's name": func(m *Manifest) { m.Checkpoint.File = "../checkpoint" },
		"keys' name":        func(m *Manifest) { m.TrustedKeys.File = bundle.CheckpointFile },
		"no hash":           func(m *Manifest) { m.Checkpoint.SHA256 = "" },
		"authority":         func(m *Manifest) { m.Stamps[0].Authority = "../a" },
		"another authority": func(m *Manifest) { m.Stamps[0].Authority = "Sigstore" },
		"an authority twice": func(m *Manifest) {
			m.Stamps = append(m.Stamps, m.Stamps[0])
		},
		"no stamps": func(m *Manifest) { m.Stamps = nil },
		"itself":    func(m *Manifest) { m.Previous.Export = example },
		"elsewhere": func(m *Manifest) { m.Previous.Export = "../" + earlier },
	} {
		m := manifest()
		change(&m)
		text, err := m.text()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readManifest(text, example); err == nil {
			t.Errorf("another %s: no error", what)
		}
	}
}

func FuzzManifest(f *testing.F) {
	m := manifest()
	text, err := m.text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readManifest(text, example)
		if err != nil {
			return
		}
		if again, err := m.text(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%v: %s is read from %s", err, again, text)
		}
	})
}

// TestNames: only names that an export writes are read.
func TestNames(t *testing.T) {
	at, size, ok := parseName(example)
	if !ok || size != 1234 || !at.Equal(time.Date(2026, 11, 29, 10, 30, 0, 0, time.UTC)) || nameOf(at, size) != example {
		t.Errorf("the name %s was read as %s with %d leaves", example, at, size)
	}
	for _, name := range []string{
		"", "readme", example + "0", "0" + example, "2026-13-29T103000Z-000000001234", "2026-11-29T103000Z-0000000001234",
		"2026-11-29T103000Z-99999999999999999",
	} {
		if _, _, ok := parseName(name); ok {
			t.Errorf("%q is taken for an export", name)
		}
	}
	for file, want := range map[string]bool{
		"manifest.json": true, "checkpoint": true, "trusted-keys.json": true, "stamps/a.tst": true,
		"stamps/a.b.checkpoint": true, "": false, "other": false, "stamps/a": false, "stamps/.tst": false,
		"stamps/../x.tst": false, "stamps/a/b.tst": false,
	} {
		if exported(file) != want {
			t.Errorf("%q: %t", file, !want)
		}
	}
}

// TestOriginalVersion: the first version counts, whatever was written later, in the same second or over a marker.
func TestOriginalVersion(t *testing.T) {
	at := time.Date(2026, 11, 29, 10, 30, 0, 0, time.UTC)
	version := func(id string, after time.Duration, deleted bool) blobs.Version {
		return blobs.Version{Name: "x", ID: id, At: at.Add(after), Deleted: deleted}
	}
	listed := func(list ...blobs.Version) map[string]*versions {
		f := &versions{}
		for _, v := range list {
			f.add(v)
		}
		return map[string]*versions{manifestFile: f}
	}
	e := Export{Name: example, At: at, files: listed(
		version("marker", 2, true), version("later", 1, false), version("same second", 0, false), version("first", 0, false),
		version("first", 0, false),
	)}
	first, ok := e.original(manifestFile)
	if f := e.files[manifestFile]; !ok || first.ID != "first" || !f.deleted || f.later != 2 || !e.Complete() ||
		f.newest[0].ID != "later" || f.newest[1].ID != "same second" {
		t.Errorf("%+v, %+v", first, f)
	}
	if _, ok := e.original(bundle.CheckpointFile); ok {
		t.Error("a file that is not there has a version")
	}
	gone := Export{At: at, files: listed(version("marker", 0, true))}
	if gone.Complete() {
		t.Error("an export of which only a marker is left is complete")
	}
	// A writer can add any number of versions and markers. List keeps the first and the newest, in any order.
	many := make([]blobs.Version, 3000)
	for i := range many {
		many[i] = version(fmt.Sprint(i), time.Duration(i), i%3 == 1)
	}
	for range 2 {
		slices.Reverse(many)
		f := listed(many...)[manifestFile]
		if f.first.ID != "0" || f.later != 1999 || !f.deleted || len(f.newest) != maxReplacements ||
			f.newest[0].ID != "2999" || f.newest[7].ID != "2988" {
			t.Errorf("of many versions these are kept: %+v", f)
		}
	}
	future := e
	future.At = at.AddDate(1, 0, 0)
	l := Listing{Exports: []*Export{{At: at.AddDate(0, 0, -1), files: e.files}, &e, &gone, &future}}
	if newest := l.Newest(at.Add(time.Hour)); len(newest) != 2 || newest[0] != &e || newest[1] != &future {
		t.Errorf("the newest are %v", newest)
	}
	if len((Listing{}).Newest(at)) != 0 || l.On(at) != &e || l.On(at.AddDate(0, 0, 1)) != nil {
		t.Error("the exports of a day are others")
	}
}

// TestCompare: a key may be retired or revoked later. Nothing may differ otherwise, or vanish.
func TestCompare(t *testing.T) {
	const now, later = "2026-11-29T10:30:00Z", "2026-11-30T10:30:00Z"
	signer, second := evidence.GenerateSigner(), evidence.GenerateSigner()
	newSet := func(keys ...evidence.TrustedKey) *evidence.TrustedKeys {
		return must(evidence.NewTrustedKeys(keys, nil, nil))
	}
	id := signer.Key().KeyID
	set, dated := newSet(evidence.TrustedKey{PublicKey: signer.Key()}), newSet(evidence.TrustedKey{PublicKey: signer.Key(), Since: now})
	moved := newSet(evidence.TrustedKey{PublicKey: signer.Key(), Since: later})
	larger := must(set.Add(second.Key(), now))
	retired, retiredLater := must(larger.Retire(id, now)), must(larger.Retire(id, later))
	revoked := must(retired.Revoke(id, evidence.ReasonCompromised, now))
	published := must(revoked.Published())
	authority, renewed := stamptest.New(t, "good").Pinned(), stamptest.New(t, "good").Pinned()
	key := must(evidence.NewWitnessKey("w.example", second.Key().Ed25519()))
	logKey := must(transparency.NewSigner("log.example", evidence.GenerateSigner())).LogKey
	for what, c := range map[string]struct {
		earlier, later *evidence.TrustedKeys
		want           []string
	}{
		"the same": {set, set, nil}, "one more": {set, larger, nil}, "retired": {larger, retired, nil},
		"revoked": {retired, revoked, nil}, "revoked and published": {larger, published, nil},
		"one less": {larger, set, []string{"the signing key " + second.Key().KeyID + ": none"}},
		"revived":  {retired, larger, []string{"the signing key " + id + ", retired since " + now + ": active"}},
		"dated":    {set, dated, nil}, "no longer dated": {dated, set, nil},
		"the same instant": {dated, newSet(evidence.TrustedKey{PublicKey: signer.Key(), Since: "2026-11-29T10:30:00.000Z"}), nil},
		"another since":    {dated, moved, []string{"the signing key " + id + ", active since " + now + ": active since " + later}},
		"retired at another time": {
			retired, retiredLater, []string{"the signing key " + id + ", retired since " + now + ": retired since " + later},
		},
		"pardoned": {revoked, retired, []string{"the revocation of the key " + id + ": none"}},
		"another reason": {
			revoked, must(retired.Revoke(id, evidence.ReasonRevoked, now)),
			[]string{"the revocation of the key " + id + ", compromised since " + now + ": revoked since " + now},
		},
		"revoked at another time": {
			revoked, must(retired.Revoke(id, evidence.ReasonCompromised, later)),
			[]string{"the revocation of the key " + id + ", compromised since " + now + ": compromised since " + later},
		},
		"no log key":      {must(set.AddLogKey(logKey)), set, []string{"the log key " + logKey.VerifierKey + ": none"}},
		"no witness key":  {must(set.AddWitnessKey(key)), set, []string{"the witness key " + key.VerifierKey + ": none"}},
		"no authority":    {must(set.PutAuthority(authority)), set, []string{"the certificate " + authority.Fingerprints()[0] + " of good: none"}},
		"other authority": {must(set.PutAuthority(authority)), must(set.PutAuthority(renewed)), []string{"the certificate " + authority.Fingerprints()[0] + " of good: none"}},
		"none": {larger, newSet(), []string{
			"the signing key " + id + ": none", "the signing key " + second.Key().KeyID + ": none",
		}},
	} {
		var got []string
		for _, d := range compare(newKeySet(c.earlier), newKeySet(c.later)) {
			got = append(got, d.expected.String()+": "+d.found.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestKeysOfExports: the keys of exports are compared with one another, with those of the ledger, and with the pinned
// ones, each at its time.
func TestKeysOfExports(t *testing.T) {
	day := time.Date(2026, 11, 29, 10, 30, 0, 0, time.UTC)
	on := func(days int) string { return evidence.FormatTime(day.AddDate(0, 0, days)) }
	first, second, staged := evidence.GenerateSigner(), evidence.GenerateSigner(), evidence.GenerateSigner()
	one := must(evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: first.Key(), Since: on(-9)}}, nil, nil))
	two := must(must(one.Add(second.Key(), on(2))).Retire(first.Key().KeyID, on(2)))
	next := must(two.Add(staged.Key(), on(4)))
	witness := must(evidence.NewWitnessKey("w.example", staged.Key().Ed25519()))
	watched := must(one.AddWitnessKey(witness))
	revoked := must(two.Revoke(first.Key().KeyID, evidence.ReasonRevoked, on(3)))
	authority := stamptest.New(t, "good").Pinned()
	certificate := authority.Fingerprints()[0]
	certified, renewed := must(one.PutAuthority(authority)), must(one.PutAuthority(stamptest.New(t, "good").Pinned()))
	for what, c := range map[string]struct {
		exports         []*evidence.TrustedKeys // of day 1, 3, 5 …
		pinned          *evidence.TrustedKeys
		ledger          *evidence.TrustedKeys
		at              int // day of the ledger's
		findings, notes []string
		open            []string // not checked
	}{
		"pinned long ago": {
			exports: []*evidence.TrustedKeys{one, two, next}, pinned: one, ledger: two, at: 2,
			open: []string{"(the trusted keys do not have them): the signing key " + second.Key().KeyID + ", the signing key " + staged.Key().KeyID},
		},
		"pinned now, staged since": {
			exports: []*evidence.TrustedKeys{one}, pinned: next, ledger: one, at: 0,
			notes: []string{"no export has these, which the trusted keys have: the signing key " + second.Key().KeyID},
		},
		"nothing published": {exports: []*evidence.TrustedKeys{one}, pinned: one, open: []string{"it has published none"}},
		"a pinned key of before": {
			exports: []*evidence.TrustedKeys{one, one, one}, pinned: must(one.Add(staged.Key(), on(1))),
			notes: []string{"no export has these, which the trusted keys have: the signing key " + staged.Key().KeyID},
			open:  []string{"it has published none"},
		},
		"a key is missing between": {
			exports: []*evidence.TrustedKeys{next, one, next}, pinned: next, ledger: next, at: 6,
			findings: []string{
				"expected the signing key " + first.Key().KeyID + ", retired since " + on(2) + ", as in the export e0, found active",
				"the signing key " + second.Key().KeyID + ", as in the export e0", "the signing key " + staged.Key().KeyID + ", as in the export e0",
			},
		},
		"the ledger has lost a key": {
			exports: []*evidence.TrustedKeys{two}, pinned: one, ledger: one, at: 2,
			findings: []string{
				"keys.published: expected the signing key " + first.Key().KeyID + ", retired", "the signing key " + second.Key().KeyID + ", as in the export e0",
			},
			open: []string{second.Key().KeyID},
		},
		"a revocation is pinned only": {
			exports: []*evidence.TrustedKeys{two}, pinned: revoked, ledger: two, at: 2,
			notes: []string{"no export has these, which the trusted keys have: the revocation of the key " + first.Key().KeyID},
		},
		"a revocation is exported only": {
			exports: []*evidence.TrustedKeys{revoked}, pinned: two, ledger: revoked, at: 2,
			open: []string{"do not have them): the revocation of the key " + first.Key().KeyID},
		},
		"another reason is pinned": {
			exports: []*evidence.TrustedKeys{revoked}, ledger: revoked, at: 0,
			pinned:   must(two.Revoke(first.Key().KeyID, evidence.ReasonCompromised, on(3))),
			findings: []string{", compromised since", ", compromised since"},
		},
		"a pinned witness vanishes": {
			exports: []*evidence.TrustedKeys{watched, one}, pinned: watched, ledger: watched, at: 0,
			findings: []string{"e1/trusted-keys.json: expected the witness key " + witness.VerifierKey + ", as in the trusted keys, found none: it was removed or replaced; ask the operator"},
			notes:    []string{"does not have these, which are in the export e0: the witness key"},
		},
		"a pinned witness comes back": {
			exports: []*evidence.TrustedKeys{watched, one, watched}, pinned: watched, ledger: watched, at: 6,
			notes: []string{"e1/trusted-keys.json does not have these, which are in the export e0: the witness key " + witness.VerifierKey},
		},
		"a pinned witness is new": {
			exports: []*evidence.TrustedKeys{one}, pinned: watched, ledger: watched, at: 2,
		},
		"an authority's certificate is renewed": {
			exports: []*evidence.TrustedKeys{certified, renewed}, pinned: certified, ledger: renewed, at: 6,
			findings: []string{
				"e1/trusted-keys.json: expected the certificate " + certificate + " of good, as in the trusted keys, found none: it was removed or replaced",
				"keys.published: expected the certificate " + certificate,
			},
			notes: []string{"which are in the export e0: the certificate " + certificate},
			open:  []string{"the certificate "},
		},
		"pinned as a bare array": {
			exports: []*evidence.TrustedKeys{one, two}, ledger: two, at: 6,
			pinned: must(evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: first.Key()}, {PublicKey: second.Key()}}, nil, nil)),
		},
		"published on another host": {
			exports: []*evidence.TrustedKeys{one, one, two}, pinned: two, ledger: two, at: 2,
			notes: []string{"e1/trusted-keys.json does not have these, which are in the keys of the ledger: the signing key " + first.Key().KeyID + ", retired since " + on(2) + ", the signing key " + second.Key().KeyID},
		},
		"published on another host only": {
			exports: []*evidence.TrustedKeys{one, one}, pinned: one, ledger: two, at: 2,
			findings: []string{"found active", "e1/trusted-keys.json: expected the signing key " + second.Key().KeyID + ", as in the keys of the ledger, found none"},
			open:     []string{second.Key().KeyID},
		},
		"another witness vanishes": {
			exports: []*evidence.TrustedKeys{watched, one}, pinned: one, ledger: watched, at: 0,
			notes: []string{"does not have these, which are in the export e0: the witness key " + witness.VerifierKey},
			open:  []string{"do not have them): the witness key " + witness.VerifierKey},
		},
	} {
		var read []*reading
		q := Question{Trusted: c.pinned, Now: day.AddDate(0, 0, 10), Ledger: Keys{Missing: say.Sentencef("it has published none")}}
		if c.ledger != nil {
			q.Ledger = Keys{TrustedKeys: must(c.ledger.Published()), At: day.AddDate(0, 0, c.at), Place: "keys.published"}
		}
		for i, keys := range c.exports {
			read = append(read, &reading{
				Export:   &Export{Name: fmt.Sprint("e", i), At: day.AddDate(0, 0, 2*i+1)},
				Question: q, bucket: &blobs.Locked{Name: "s3://b"}, keys: newKeySet(keys),
			})
		}
		var r Report
		if err := r.keys(t.Context(), read, q); err != nil {
			t.Fatal(err)
		}
		var findings, notes, open []string
		for _, f := range r.Findings {
			findings = append(findings, f.String())
		}
		for _, n := range r.Notes {
			notes = append(notes, n.String())
		}
		for _, n := range r.NotChecked {
			open = append(open, n.String())
		}
		for kind, lists := range map[string][2][]string{"findings": {findings, c.findings}, "notes": {notes, c.notes}, "not checked": {open, c.open}} {
			ok := len(lists[0]) == len(lists[1])
			for _, want := range lists[1] {
				ok = ok && slices.ContainsFunc(lists[0], func(s string) bool { return strings.Contains(s, want) })
			}
			if !ok {
				t.Errorf("%s: %s %q, want %q", what, kind, lists[0], lists[1])
			}
		}
	}
}

// TestManyKeys: exports with the same file share its keys. Both the number of key sets and the number of differences have
// a limit.
func TestManyKeys(t *testing.T) {
	var all []evidence.TrustedKey
	for range 30 {
		all = append(all, evidence.TrustedKey{PublicKey: evidence.GenerateSigner().Key()})
	}
	file := must(must(evidence.NewTrustedKeys(all, nil, nil)).Marshal())
	known := &sets{}
	parsed := func(s *sets, file []byte, surplus, wrong bool) *keySet {
		t.Helper()
		set, more, err := s.parse(file)
		if more != surplus || (err != nil) != wrong || (set == nil) != (surplus || wrong) {
			t.Fatalf("%+v, surplus %t, %v", set, more, err)
		}
		return set
	}
	for i := range maxSets { // files that are no keys do not count
		parsed(known, []byte{'x', byte(i), byte(i >> 8)}, false, true)
	}
	set := parsed(known, file, false, false)
	if parsed(known, slices.Clone(file), false, false) != set || len(set.list) != 30 {
		t.Errorf("parsed again: %+v", set)
	}
	other := func(i int) []byte {
		key := evidence.TrustedKey{PublicKey: all[0].PublicKey, Since: evidence.FormatTime(time.Unix(int64(i), 0))}
		return must(must(evidence.NewTrustedKeys([]evidence.TrustedKey{key}, nil, nil)).Marshal())
	}
	for i := range maxSets - 1 {
		parsed(known, other(i), false, false)
	}
	parsed(known, other(maxSets), true, false)
	if parsed(known, file, false, false) != set {
		t.Error("a known file is refused")
	}
	full := &sets{bytes: maxSetBytes - len(file) + 1}
	parsed(full, file, true, false)
	parsed(full, other(0), false, false)
	read := func(name string, keys *keySet, day int) *reading {
		at := time.Date(2026, 11, day, 10, 0, 0, 0, time.UTC)
		return &reading{Export: &Export{Name: name, At: at}, Question: Question{Now: at}, bucket: &blobs.Locked{}, keys: keys}
	}
	none := must(evidence.NewTrustedKeys(nil, nil, nil))
	exports := []*reading{read("a", set, 1), read("b", newKeySet(none), 2)}
	var r Report
	if err := r.keys(t.Context(), exports, Question{Trusted: none}); err != nil || len(r.Findings) != maxListed+1 ||
		!strings.HasSuffix(r.Findings[maxListed].String(), "expected the keys in the export a, found 10 more differences") {
		t.Errorf("%v %v", err, r.Findings)
	}
	exports[1].keys, exports[1].surplus = nil, true
	r = Report{}
	if err := r.keys(t.Context(), exports, Question{Trusted: none}); err != nil || len(r.Findings) != 1 || !strings.Contains(
		fmt.Sprint(r.Findings, r.NotChecked), "Exports whose file was not compared: 1. The first: b] [whether keys vanished or changed",
	) {
		t.Errorf("%v %v %v", err, r.Findings, r.NotChecked)
	}
	exports[1].keys = newKeySet(none)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.keys(ended, exports, Question{Trusted: none}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
