package operator

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/integritytest"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/worm"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/schemas"
)

// auditDir audits a bundle with pinned keys.
func (v *evil) auditDir(dir string) (auditView, error) {
	keys := filepath.Join(v.t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, must1(v.Trusted.Marshal()), 0o600); err != nil {
		v.t.Fatal(err)
	}
	return v.app.auditBundle(
		v.t.Context(),
		&config.Config{TrustedKeys: keys}, dir, domain.OrganizationID{}, auditOptions{Start: time.Now()},
	)
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[strings.TrimPrefix(path, dir+"/")], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestBundle: an export proves itself without the database, and a change of any byte in any file is found.
func TestBundle(t *testing.T) {
	v := newEvil(t)
	dir := v.export()
	live := v.audit()
	view, err := v.auditDir(dir)
	if err != nil || view.FindingCount != 0 || view.Organizations[0].Digest != live.Organizations[0].Digest ||
		fmt.Sprint(view.Organizations[0].Sums) != fmt.Sprint(live.Organizations[0].Sums) {
		t.Fatalf("of a sound bundle: %v, %+v; of the database: %+v", err, view, live)
	}
	whole := files(t, dir)
	t.Run("schemas", func(t *testing.T) { checkBundleSchemas(t, whole, int(live.Organizations[0].Events)) })
	t.Run("changed bytes", func(t *testing.T) {
		v.t = t
		changed := 0
		for name, text := range whole {
			step := 701
			if name == bundle.ManifestFile {
				step = 31
			}
			at := bytes.Index(text, []byte("exportedAt"))
			for i := 0; i < len(text); i += step {
				if name == bundle.ManifestFile && i > at && i < at+45 {
					continue // the time of writing; nothing depends on it
				}
				spoiled := bytes.Clone(text)
				spoiled[i] ^= 1
				integritytest.Write(t, filepath.Join(dir, name), string(spoiled))
				view, err := v.auditDir(dir)
				if changed++; err == nil && view.FindingCount == 0 {
					t.Errorf("%s byte %d, %q: not found", name, i, text[max(0, i-20):min(len(text), i+20)])
				}
			}
			integritytest.Write(t, filepath.Join(dir, name), string(text))
		}
		if changed < 90 {
			t.Errorf("only %d bytes were changed", changed)
		}
	})
	v.t = t
	last := fmt.Sprintf("events/%012d.ndjson", (live.Organizations[0].Events-1)/10*10+1)
	for name, test := range map[string]struct {
		spoil func()
		want  audit.Finding
	}{
		"a line cut in the middle": {func() {
			integritytest.Write(t, filepath.Join(dir, last), string(whole[last][:len(whole[last])-9]))
		},
			audit.Finding{Check: audit.CheckReadable, Sequence: live.Organizations[0].Events, Expected: say.Sentencef("an event")}},
		"a file gone": {
			func() { os.Remove(filepath.Join(dir, last)) },
			audit.Finding{Check: audit.CheckFile, Place: last, Found: say.Sentencef("no such file")},
		},
		"a file in the middle gone": {func() { os.Remove(filepath.Join(dir, "events/000000000011.ndjson")) },
			audit.Finding{Check: audit.CheckSequence, Sequence: 11, Expected: say.Sentencef("the event of sequence 11")}},
		"two lines swapped": {func() {
			lines := bytes.SplitAfter(whole["events/000000000011.ndjson"], []byte("\n"))
			lines[2], lines[3] = lines[3], lines[2]
			integritytest.Write(t, filepath.Join(dir, "events/000000000011.ndjson"), string(bytes.Join(lines, nil)))
		}, audit.Finding{Check: audit.CheckSequence, Sequence: 13, Expected: say.Sentencef("the event of sequence 13")}},
		"other trusted keys": {func() {
			integritytest.Write(t, filepath.Join(dir, bundle.TrustedKeysFile), `{"keys":[]}`)
		}, audit.Finding{Check: audit.CheckFile, Place: bundle.TrustedKeysFile}},
	} {
		test.spoil()
		view, err := v.auditDir(dir)
		found := false
		for _, f := range view.Findings {
			if w := test.want; f.Check == w.Check && f.Sequence == w.Sequence && strings.HasPrefix(f.Place, w.Place) &&
				strings.HasPrefix(f.Expected.String(), w.Expected.String()) && strings.HasPrefix(f.Found.String(), w.Found.String()) {
				found = true
				t.Logf("%s: %s", name, f)
			}
		}
		if err != nil || !found {
			t.Errorf("%s: %v, %v", name, err, view.Findings)
		}
		for name, text := range whole {
			integritytest.Write(t, filepath.Join(dir, name), string(text))
		}
	}
	if view, err := v.auditDir(dir); err != nil || view.FindingCount != 0 {
		t.Errorf("after all was put back: %v, %v", err, view.Findings)
	}
}

// TestAuditCannotControlTerminals: the maker of a bundle names its files, and must not be able to print a
// verdict with them.
func TestAuditCannotControlTerminals(t *testing.T) {
	v := newEvil(t)
	dir := v.export()
	integritytest.Write(t, filepath.Join(dir, "events", "\x1b[2K\rverdict: everything\nverdict: everything.ndjson"), "x")
	view, err := v.auditDir(dir)
	if err != nil || view.FindingCount != 1 {
		t.Fatalf("%v, %+v", err, view.Findings)
	}
	text := say.In(say.Catalogue{}, view.text())
	if strings.ContainsAny(text, "\x1b\r") || strings.Contains(text, "\nverdict: everything") ||
		strings.Count(text, `\x1b[2K`) != 2 {
		t.Errorf("%q", text)
	}
}

// redigest acts as a forger who changes the bundle's one file of events and writes the manifest again.
func redigest(t *testing.T, dir string, change func(text string) string) {
	t.Helper()
	var m bundle.Manifest
	path := filepath.Join(dir, bundle.ManifestFile)
	if err := json.Unmarshal(must1(os.ReadFile(path)), &m); err != nil || len(m.Segments) != 1 {
		t.Fatalf("%v, %+v", err, m)
	}
	s := &m.Segments[0]
	events := filepath.Join(dir, s.File.File)
	text := change(string(must1(os.ReadFile(events))))
	integritytest.Write(t, events, text)
	sum := sha256.Sum256([]byte(text))
	s.Bytes, s.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	integritytest.Write(t, path, string(must1(json.MarshalIndent(m, "", "  ")))+"\n")
}

// TestForgedBundle: a bundle with changed files and a matching manifest reads the same for every reader, and contains
// nothing unproven.
func TestForgedBundle(t *testing.T) {
	v := newEvil(t)
	whole := filepath.Join(t.TempDir(), "bundle")
	if err := v.tryExport(whole, func(c *bundle.Config) { c.SegmentEvents = 1000 }); err != nil {
		t.Fatal(err)
	}
	once := func(from, to string) func(string) string {
		return func(text string) string { return strings.Replace(text, from, to, 1) }
	}
	events := filepath.Join("events", "000000000001.ndjson")
	for name, test := range map[string]struct {
		change func(text string) string
		spoil  func(dir string)
		want   audit.Finding // an empty Check: refused, with Found as the message
	}{
		"as it was": {want: audit.Finding{}},
		"a member twice": {
			change: once(`{"sequence":9,`, `{"actor":"forged","sequence":9,`),
			want:   audit.Finding{Check: audit.CheckReadable, Sequence: 9},
		},
		"a member in other case": {
			change: once(`{"sequence":9,`, `{"Actor":"forged","sequence":9,`),
			want:   audit.Finding{Check: audit.CheckReadable, Sequence: 9},
		},
		"lines ended otherwise": {
			change: once("\n", "\r\n"), want: audit.Finding{Check: audit.CheckReadable, Sequence: 1},
		},
		"no line feed at the end": {
			change: strings.TrimSpace,
			want:   audit.Finding{Check: audit.CheckReadable, Sequence: v.audit().Organizations[0].Events},
		},
		"a text that no event names": {
			change: once(`"texts":[]`, `"texts":[{"id":"txt_01m7zy9mv5eprs3q8pymvbekjf","salt":"AAAA","body":"forged"}]`),
			want:   audit.Finding{Check: audit.CheckText},
		},
		"a line of 9 MB": {
			change: once(`{"sequence":9,`, `{"x":"`+strings.Repeat("x", 9<<20)+`","sequence":9,`),
			want:   audit.Finding{Check: audit.CheckReadable, Sequence: 9},
		},
		"events beside those of manifest": {spoil: func(dir string) {
			integritytest.Write(t, filepath.Join(dir, "events", "x.ndjson"), "{}\n")
		}, want: audit.Finding{Check: audit.CheckFile}},
		"a link": {spoil: func(dir string) {
			if err := errors.Join(
				os.Remove(filepath.Join(dir, events)), os.Symlink(filepath.Join(whole, events), filepath.Join(dir, events)),
			); err != nil {
				t.Fatal(err)
			}
		}, want: audit.Finding{Found: say.Sentencef("is no regular file")}},
	} {
		t.Run(name, func(t *testing.T) {
			v.t = t
			dir := filepath.Join(t.TempDir(), "bundle")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				redigest(t, dir, test.change)
			}
			if test.spoil != nil {
				test.spoil(dir)
			}
			view, err := v.auditDir(dir)
			switch w := test.want; {
			case w.Found.Format != "":
				if err == nil || !strings.Contains(err.Error(), w.Found.String()) {
					t.Errorf("%v, %v", err, view.Findings)
				}
			case err != nil:
				t.Error(err)
			case w.Check == "":
				if view.FindingCount != 0 {
					t.Errorf("%v", view.Findings)
				}
			case !slices.ContainsFunc(view.Findings, func(f audit.Finding) bool {
				return f.Check == w.Check && (w.Sequence == 0 || f.Sequence == w.Sequence)
			}):
				t.Errorf("%v", view.Findings)
			}
		})
	}
	v.t = t
}

// validator returns a function that validates a text against a published schema.
func validator(t *testing.T) func(schema string, text []byte) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	return func(schema string, text []byte) {
		t.Helper()
		raw, err := schemas.File(schema)
		if err != nil {
			t.Fatal(err)
		}
		_ = compiler.AddResource(schema, must1(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))) // again: it is there
		if err := must1(compiler.Compile(schema)).Validate(must1(
			jsonschema.UnmarshalJSON(bytes.NewReader(text)),
		)); err != nil {
			t.Errorf("%s: %v in %s", schema, err, text)
		}
	}
}

func checkBundleSchemas(t *testing.T, whole map[string][]byte, events int) {
	t.Helper()
	validate := validator(t)
	lines := 0
	for name, text := range whole {
		if name == bundle.ManifestFile {
			validate("integrity-bundle-v1.json", text)
		}
		if strings.HasPrefix(name, "events/") {
			for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
				validate("integrity-bundle-event-v1.json", line)
				lines++
			}
		}
	}
	if lines != events {
		t.Errorf("%d lines of %d events", lines, events)
	}
}

// TestExportGoesOn: an interrupted export continues after any of its files and gives the same bytes; an export of a
// grown history adds to them; another organization's bundle is not touched.
func TestExportGoesOn(t *testing.T) {
	v := newEvil(t)
	whole := files(t, v.export())
	broken := errors.New("killed")
	for after := 1; ; after++ {
		dir := filepath.Join(t.TempDir(), "bundle")
		written := 0
		err := v.tryExport(dir, func(c *bundle.Config) {
			replace := c.Replace
			c.Replace = func(path string, text []byte) error {
				if written++; written > after {
					return broken
				}
				return replace(path, text)
			}
		})
		if err == nil {
			if after < 10 {
				t.Errorf("the export wrote %d files only", after)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if _, err := bundle.Open(dir); !errors.Is(err, bundle.ErrIncomplete) {
			t.Errorf("broken off after %d files: %v", after, err)
		}
		v.exportTo(dir)
		again := files(t, dir)
		for name, text := range whole {
			if name != bundle.ManifestFile && !bytes.Equal(text, again[name]) { // it has the time of writing
				t.Errorf("broken off after %d files: %s differs", after, name)
			}
		}
	}

	dir := v.export()
	before := v.audit().Organizations[0].Events
	v.Must(t, v.Register(t, v.org, v.org.Declaration("more", 1, "more")))
	// of a killed one
	temporary := must1(keyfiles.WriteTemporary(filepath.Join(dir, "events/000000000041.ndjson"), []byte("private"), 0o600))
	v.exportTo(dir)
	if _, err := os.Stat(temporary); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed export had left: %v", err)
	}
	grown := files(t, dir)
	for name, text := range whole {
		if strings.HasPrefix(name, "events/") && !bytes.Equal(text, grown[name]) {
			t.Errorf("%s has changed", name)
		}
	}
	if view, err := v.auditDir(dir); err != nil || view.FindingCount != 0 || view.Events != before+1 ||
		len(grown) != len(whole)+1 {
		t.Errorf("of the grown bundle: %v, %+v", err, view)
	}
	for name, change := range map[string]func(*bundle.Config){
		"another organization": func(c *bundle.Config) { c.Organization = v.other.ID },
		"without texts":        func(c *bundle.Config) { c.Texts = false },
	} {
		if err := v.tryExport(dir, change); !errors.Is(err, bundle.ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
	integritytest.Write(
		t, filepath.Join(dir, "events/000000000001.ndjson"),
		strings.Replace(string(grown["events/000000000001.ndjson"]), `"v":1`, `"v":2`, 1),
	)
	if err := v.tryExport(dir); err == nil || !strings.Contains(err.Error(), "cannot be continued") {
		t.Errorf("into an altered bundle: %v", err)
	}
	v.exec("UPDATE events SET actor = 'x' WHERE organization_id = $1 AND sequence = 5", [16]byte(v.org.ID))
	var damaged bundle.DamagedError
	if err := v.tryExport(filepath.Join(t.TempDir(), "other")); !errors.As(err, &damaged) || damaged.Sequence != 5 {
		t.Errorf("of a damaged history: %v", err)
	}
}

// TestErasedTextIsBack: an erased text that is back, for example in a restored table, is found although it
// matches its hash. In a bundle from before the erasure it is legitimate, and the audit says so.
func TestErasedTextIsBack(t *testing.T) {
	v := newEvil(t)
	var id domain.TextID
	var body string
	if err := v.owner.QueryRow(
		t.Context(), "SELECT id, body FROM texts WHERE organization_id = $1 AND body IS NOT NULL ORDER BY id LIMIT 1",
		[16]byte(v.org.ID),
	).
		Scan((*[16]byte)(&id), &body); err != nil {
		t.Fatal(err)
	}
	dir := v.export()
	v.Must(t, &domain.EraseTexts{Origin: v.org.Operator(), Subject: v.org.ID.String(), Texts: []domain.TextID{id}})
	v.exportTo(dir)
	const still = "this bundle still contains 1 texts that were erased later"
	bundled := func(dir string) auditView {
		t.Helper()
		view, err := v.auditDir(dir)
		if err != nil || view.FindingCount != 0 {
			t.Fatalf("%v, %v", view.Findings, err)
		}
		return view
	}
	if view := bundled(dir); !slices.ContainsFunc(view.NotChecked, func(s say.Sentence) bool {
		return strings.HasPrefix(s.String(), still)
	}) {
		t.Errorf("a bundle from before: %q", view.NotChecked)
	}
	if view := bundled(v.export()); strings.Contains(fmt.Sprint(view.NotChecked), "this bundle still contains") {
		t.Errorf("a bundle from after: %q", view.NotChecked)
	}
	if view := v.audit(); view.FindingCount != 0 {
		t.Errorf("erased: %v", view.Findings)
	}
	v.exec("UPDATE texts SET body = $1 WHERE shard = 0 AND id = $2", body, [16]byte(id))
	log := v.Events(t, 0)
	view := v.audit()
	if view.FindingCount != 1 || view.Findings[0].Check != audit.CheckText ||
		view.Findings[0].Sequence != log[len(log)-1].Sequence ||
		!strings.Contains(view.Findings[0].Expected.String(), id.String()) {
		t.Errorf("put back: %v", view.Findings)
	}
}

// TestActsOfEndedKeys: acts of a revoked key, which an earlier release allowed, are found in the database and in a
// bundle, and reported as such; the rest is still compared.
func TestActsOfEndedKeys(t *testing.T) {
	v := newEvil(t)
	revoke := &domain.RevokeKey{Origin: v.org.Operator(), Key: v.org.Key.ID}
	v.Must(t, revoke)
	v.exec("UPDATE api_keys SET revoked_at = NULL WHERE key_id = $1", [16]byte(v.org.Key.ID))
	v.Must(t, v.Register(t, v.org, v.org.Declaration("after-the-revocation", 1, "x")))
	v.exec("UPDATE api_keys SET revoked_at = $2 WHERE key_id = $1", [16]byte(v.org.Key.ID), *revoke.Outcome.RevokedAt)
	log := v.Events(t, 0)
	bundled, err := v.auditDir(v.export())
	if err != nil {
		t.Fatal(err)
	}
	for place, view := range map[string]auditView{"database": v.audit(), "bundle": bundled} {
		if view.FindingCount != 1 || view.Findings[0].Check != audit.CheckActor ||
			view.Findings[0].Sequence != log[len(log)-1].Sequence ||
			!strings.HasPrefix(view.Findings[0].Expected.String(), "no act of the key after it was revoked at ") || view.Clean {
			t.Errorf("%s: %v", place, view.Findings)
		}
	}
}

// TestBundleWithMorePins: a bundle audits normally if its trusted-keys file has other pins and a member from a later
// release.
func TestBundleWithMorePins(t *testing.T) {
	v := newEvil(t)
	witness, err := evidence.NewWitnessKey("witness.example", make([]byte, 32))
	if err == nil {
		v.Trusted, err = v.Trusted.AddWitnessKey(witness)
	}
	if err == nil {
		v.Trusted, err = v.Trusted.PutAuthority(stamptest.New(t, "alpha").Pinned())
	}
	dir := filepath.Join(t.TempDir(), "bundle")
	if err == nil {
		err = v.tryExport(dir, func(c *bundle.Config) {
			c.TrustedKeys = append([]byte(`{"later": {},`), c.TrustedKeys[1:]...)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if view, err := v.auditDir(dir); err != nil || view.FindingCount != 0 {
		t.Errorf("%v, %v", view.Findings, err)
	}
}

// TestBundleContradictsExports: that a bundle's checkpoint has another root than an export is the first finding. A writer
// of the bucket can cause any number of others.
func TestBundleContradictsExports(t *testing.T) {
	v := newEvil(t)
	dir, zeros := filepath.Join(t.TempDir(), "bundle"), base64.StdEncoding.EncodeToString
	if err := v.tryExport(dir, func(c *bundle.Config) {
		c.Checkpoint = "log.example\n5\n" + zeros(make([]byte, 32)) + "\n\n— log.example " + zeros(make([]byte, 68)) + "\n"
	}); err != nil {
		t.Fatal(err)
	}
	b := must1(bundle.Open(dir))
	defer b.Close()
	var view auditView
	err := view.auditCheckpoint(b, v.Trusted, &worm.Report{
		Findings: []audit.Finding{{Check: audit.CheckExport, Place: "other"}},
		Heads:    []worm.Head{{Place: "export", Size: 5, Root: tlog.Hash{1}}},
	})
	if err != nil || view.FindingCount != 2 || !strings.Contains(view.Findings[0].String(), "the log has signed two histories") {
		t.Errorf("%v %v", view.Findings, err)
	}
}
