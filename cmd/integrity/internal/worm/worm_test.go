package worm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/bundle"
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
	e := Export{Name: example, At: at, versions: map[string][]blobs.Version{manifestFile: {
		version("marker", 2, true), version("later", 1, false), version("same second", 0, false), version("first", 0, false),
	}}}
	first, ok := e.original(manifestFile)
	if !ok || first.ID != "first" || !e.hidden(manifestFile) || len(e.replacements(manifestFile)) != 2 || !e.Complete() {
		t.Errorf("%+v, %d later ones", first, len(e.replacements(manifestFile)))
	}
	if _, ok := e.original(bundle.CheckpointFile); ok {
		t.Error("a file that is not there has a version")
	}
	gone := Export{At: at, versions: map[string][]blobs.Version{manifestFile: {version("marker", 0, true)}}}
	if gone.Complete() {
		t.Error("an export of which only a marker is left is complete")
	}
	future := e
	future.At = at.AddDate(1, 0, 0)
	l := Listing{Exports: []*Export{{At: at.AddDate(0, 0, -1), versions: e.versions}, &e, &gone, &future}}
	if newest := l.Newest(at.Add(time.Hour)); len(newest) != 2 || newest[0] != &e || newest[1] != &future {
		t.Errorf("the newest are %v", newest)
	}
	if len((Listing{}).Newest(at)) != 0 || l.On(at) != &e || l.On(at.AddDate(0, 0, 1)) != nil {
		t.Error("the exports of a day are others")
	}
}

// TestLacking: a key that was retired or revoked is still there, one that was removed is not.
func TestLacking(t *testing.T) {
	const now = "2026-11-29T10:30:00Z"
	signer, second := evidence.GenerateSigner(), evidence.GenerateSigner()
	newSet := func(keys ...evidence.TrustedKey) *evidence.TrustedKeys {
		set, err := evidence.NewTrustedKeys(keys, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := newSet(evidence.TrustedKey{PublicKey: signer.Key()})
	larger, err := set.Add(second.Key(), now)
	if err != nil {
		t.Fatal(err)
	}
	retired, err := larger.Retire(signer.Key().KeyID, now)
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := retired.Revoke(signer.Key().KeyID, evidence.ReasonCompromised, now)
	if err != nil {
		t.Fatal(err)
	}
	published, err := revoked.Published()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		earlier, later *evidence.TrustedKeys
		gone           int
	}{
		"the same": {set, set, 0}, "one more": {set, larger, 0}, "one less": {larger, set, 1}, "retired": {larger, retired, 0},
		"revoked": {retired, revoked, 0}, "revoked and published": {larger, published, 0}, "revived": {revoked, retired, 1},
		"none": {larger, newSet(), 2},
	} {
		if gone := lacking(c.earlier, c.later); len(gone) != c.gone {
			t.Errorf("%s: %v", what, gone)
		}
	}
}
