package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
)

// TestLineWithMore: of a line that holds anything else nothing is taken, so that the history's digest differs too.
func TestLineWithMore(t *testing.T) {
	e := audit.Event{Event: domain.Event{Sequence: 1, V: 1, OccurredAt: time.Unix(0, 0), Data: []byte("{}"), Hash: [32]byte{1}}}
	e.ID[15] = 1
	text, err := line(&e, true)
	if err != nil {
		t.Fatal(err)
	}
	if read := readLine(text, e.Organization, 1); read.Fault != "" || read.Hash != e.Hash {
		t.Fatalf("%s: %+v", text, read)
	}
	good := string(text)
	for more, fault := range map[string]string{
		strings.Replace(good, "{", `{"more":1,`, 1):              `unknown field "more"`,
		strings.TrimSuffix(good, "\n") + "{}\n":                  "more than one value",
		strings.TrimSuffix(good, "\n") + " \x00\n":               "more than one value",
		strings.Replace(good, `"texts":[]`, `"texts":1`, 1):      "must be an array",
		strings.Replace(good, `"texts":[]`, `"texts":[{},1]`, 1): "element 0 is not whole", // the rest is not looked at
	} {
		if read := readLine([]byte(more), e.Organization, 7); !strings.Contains(read.Fault, fault) || read.Hash != [32]byte{} || read.Sequence != 7 {
			t.Errorf("%s: %+v", more, read)
		}
	}
}

// archived is an empty history in a zip file.
func archived(t *testing.T) []byte {
	t.Helper()
	var made bytes.Buffer
	organization := domain.OrganizationID{1}
	if _, err := NewArchive(&made, Config{Organization: organization, Issuer: "https://ledger.example", Texts: true, TrustedKeys: []byte("{}"), Now: "2026-11-01T10:00:00Z"}).Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// nothing is a zip file with a manifest of empty segments: the first is looked at, and no other.
func nothing(t *testing.T) []byte {
	t.Helper()
	var made bytes.Buffer
	w := zip.NewWriter(&made)
	file, err := w.Create(ManifestFile)
	if err == nil {
		_, err = file.Write([]byte(`{"segments":[{},1]}`))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// TestArchive: a zip file is read as the directory would be. One that was cut off is refused, and one in which a name is
// there twice, where two readers could see different files.
func TestArchive(t *testing.T) {
	whole := archived(t)
	var twice bytes.Buffer
	source, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(&twice)
	for _, f := range append(source.File, source.File[0]) {
		if err := w.Copy(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		archive []byte
		wrong   string
	}{
		"whole": {whole, ""}, "cut off": {whole[:len(whole)-30], "not a valid zip file"}, "a name twice": {twice.Bytes(), "duplicate entries"},
		"segments of nothing": {nothing(t), "element 0 is not whole"},
		"no zip file":         {[]byte("{}"), "not a valid zip file"},
	} {
		path := filepath.Join(t.TempDir(), "bundle.zip")
		if err := os.WriteFile(path, c.archive, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		keys, wrong, err := b.TrustedKeys()
		if err != nil || wrong != nil || string(keys) != "{}" || b.Events != 0 {
			t.Errorf("%s: %q, %v, %v, %+v", name, keys, wrong, err, b.Manifest)
		}
		b.Close()
	}
}

// reads is the memory that a reader and the audit allocate for one line, and what the audit finds.
func reads(t *testing.T, text []byte) (allocated uint64, found []audit.Finding) {
	t.Helper()
	checker, err := audit.New(audit.Config{Parts: discarded{}, Trusted: &evidence.TrustedKeys{}})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = checker.Add([]audit.Event{readLine(text, domain.OrganizationID{1}, 1)})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	report, err := checker.Finish(nil)
	if err != nil {
		t.Fatal(err)
	}
	return after.TotalAlloc - before.TotalAlloc, report.Findings
}

// discarded keeps nothing that is set aside.
type discarded struct{}

func (discarded) Append(int, []byte) error { return nil }
func (discarded) Open(int) io.Reader       { return strings.NewReader("") }

// TestLineOfManyValues: a line takes a bounded amount of memory, whatever is in it. The audit says what is
// wrong with it.
func TestLineOfManyValues(t *testing.T) {
	const most = 600 << 20
	hostile := func(typ domain.EventType, data string) []byte {
		e := audit.Event{Event: domain.Event{Organization: domain.OrganizationID{1}, Sequence: 1, V: 1, Type: typ, OccurredAt: time.Unix(0, 0), Data: []byte(data)}}
		e.ID[15] = 1
		e.Hash = domain.LeafHash(e.Leaf())
		text, err := line(&e, true)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	repeated := func(unit string, bytes int) string {
		return strings.TrimSuffix(strings.Repeat(unit+",", bytes/(len(unit)+1)), ",")
	}
	for name, c := range map[string]struct {
		text  []byte
		found string
	}{
		"64 MB of short values":     {[]byte(`{"detectors":[` + repeated("{}", 64<<20) + "]}\n"), "it has more than 8388608 bytes"},
		"8 MB of short values":      {hostile(domain.AnalysisCompleted, `{"detectors":[`+repeated("{}", 8000000)+`]}`), "it has more than 250000 values"},
		"as many as may be":         {hostile(domain.AnalysisCompleted, `{"detectors":[`+repeated("{}", 370000)+`]}`), "other bytes"},
		"2 MB of names":             {hostile(domain.AnalysisCompleted, `{"limitations":[`+repeated(`"`+strings.Repeat("\\u0000", 5)+`"`, 2000000)+`]}`), "other bytes"},
		"a member that is not read": {hostile(domain.AnalysisCompleted, `{"x":[`+repeated("[[]]", 8000000)+`]}`), "it has more than 250000 values"},
	} {
		allocated, found := reads(t, c.text)
		if allocated > most {
			t.Errorf("%s: %d MB", name, allocated>>20)
		}
		if !slices.ContainsFunc(found, func(f audit.Finding) bool { return strings.Contains(f.Found, c.found) }) {
			t.Errorf("%s: %v", name, found)
		}
	}
}
