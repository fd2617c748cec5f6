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

// TestLineWithMore: a line with anything else is ignored completely, so that the history's digest differs, too.
func TestLineWithMore(t *testing.T) {
	e := audit.Event{
		Event: domain.Event{Sequence: 1, V: 1, OccurredAt: time.Unix(0, 0), Data: []byte("{}"), Hash: [32]byte{1}},
	}
	e.ID[15] = 1
	text, err := line(&e, true)
	if err != nil {
		t.Fatal(err)
	}
	if read := readLine(text, e.Organization, 1); read.Fault.Format != "" || read.Hash != e.Hash {
		t.Fatalf("%s: %+v", text, read)
	}
	good := string(text)
	for more, fault := range map[string]string{
		strings.Replace(good, "{", `{"more":1,`, 1):              `unknown field "more"`,
		strings.TrimSuffix(good, "\n") + "{}\n":                  "more than one value",
		strings.TrimSuffix(good, "\n") + " \x00\n":               "more than one value",
		strings.Replace(good, `"texts":[]`, `"texts":1`, 1):      "must be an array",
		strings.Replace(good, `"texts":[]`, `"texts":[{},1]`, 1): "element 0 is not whole", // the rest is not read
	} {
		if read := readLine([]byte(more), e.Organization, 7); !strings.Contains(read.Fault.String(), fault) ||
			read.Hash != [32]byte{} || read.Sequence != 7 {
			t.Errorf("%s: %+v", more, read)
		}
	}
}

// archived returns an empty history in a zip file.
func archived(t *testing.T) []byte {
	t.Helper()
	var made bytes.Buffer
	organization := domain.OrganizationID{1}
	if _, err := NewArchive(
		&made,
		Config{
			Organization: organization, Issuer: "https://ledger.example", Texts: true, TrustedKeys: []byte("{}"),
			Now: "2026-11-01T10:00:00Z",
		},
	).Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// nothing returns a zip file with a manifest of empty segments. Only the first is read.
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

// TestArchive: a zip file is read like a directory. A truncated file is refused, and so is one with a duplicate name,
// for which two readers could see different files.
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
		"whole": {whole, ""}, "cut off": {whole[:len(whole)-30], "not a valid zip file"},
		"a name twice":        {twice.Bytes(), "duplicate entries"},
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

// hostile returns a zip file of a bundle whose only segment holds text, declared with a number of lines. files are
// additional files.
func hostile(t *testing.T, text []byte, lines int64, files ...string) string {
	t.Helper()
	m := Manifest{
		Contract: Contract, Organization: domain.OrganizationID{1}, Issuer: "https://ledger.example",
		ExportedAt: "2026-11-01T10:00:00Z", Complete: true, Events: lines,
		HistorySHA256: emptyHistory, TrustedKeys: Describe(TrustedKeysFile, []byte("{}")),
		Segments: []Segment{
			{File: Describe("events/000000000001.ndjson", text), First: 1, Last: lines, HistorySHA256: emptyHistory},
		},
	}
	manifest, err := m.text()
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	w := zip.NewWriter(&made)
	contents := map[string][]byte{ManifestFile: manifest, TrustedKeysFile: []byte("{}"), m.Segments[0].File.File: text}
	for _, name := range append([]string{ManifestFile, TrustedKeysFile, m.Segments[0].File.File}, files...) {
		file, err := w.Create(name)
		if err == nil {
			_, err = file.Write(contents[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.zip")
	if err := os.WriteFile(path, made.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHostileArchive: a small zip file is refused if reading all of it would cost too much.
func TestHostileArchive(t *testing.T) {
	for name, c := range map[string]struct {
		path, wrong string
	}{
		"more lines than bytes can hold": {
			hostile(t, bytes.Repeat([]byte("\n"), 1<<20), 1<<20),
			"segments[0] declares more events than 1048576 bytes can hold",
		},
		"zeros": {hostile(t, make([]byte, 2*expansionFrom), 1), "it unpacks to more than 16777216 bytes"},
		"names of many folders": {
			hostile(t, make([]byte, minLine), 1, strings.Repeat("a/", 100)+"a"), "a file in it lies in 100 folders",
		},
		"a long name": {
			hostile(t, make([]byte, minLine), 1, strings.Repeat("a/", 30_000)+"a"), "more than the 255 that a bundle may have",
		},
	} {
		if b, err := Open(c.path); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				b.Close()
			}
		}
	}
}

// TestWalkStops: no more lines of a segment are read than the manifest declares. If a bundle is not a history, reading
// stops once that is clear. The unread rest is a finding.
func TestWalkStops(t *testing.T) {
	noise := bytes.Repeat([]byte(strings.Repeat("x", minLine-1)+"\n"), 5000)
	for name, c := range map[string]struct {
		text        []byte
		lines, most int64 // declared lines, and the most that take may get
		found       string
	}{
		"more lines than declared": {bytes.Repeat([]byte("\n"), 1<<20), 10, 10, "or than the 10 lines of its events"},
		"lines of nothing":         {noise, 5000, 2000, "more than 1000 lines without an event"},
		"one endless line":         {make([]byte, maxLine*3/2), 10, 1, "a line of more than 8388608 bytes"},
	} {
		b, err := Open(hostile(t, c.text, c.lines))
		if err != nil {
			t.Fatal(err)
		}
		given := int64(0)
		var found []audit.Finding
		err = b.Walk(func(events []audit.Event) error { given += int64(len(events)); return nil }, func(f ...audit.Finding) {
			found = append(found, f...)
		})
		if err != nil || given > c.most || !slices.ContainsFunc(found, func(f audit.Finding) bool {
			return f.Check == audit.CheckFile && strings.Contains(f.Found.String(), c.found)
		}) {
			t.Errorf("%s: %d lines, %v, %v", name, given, found, err)
		}
		b.Close()
	}
}

// TestLongerThanDeclared: bytes after the declared ones are not read, even if there are terabytes.
func TestLongerThanDeclared(t *testing.T) {
	dir := t.TempDir()
	archive, err := zip.OpenReader(hostile(t, bytes.Repeat([]byte("\n"), minLine), 1))
	if err == nil {
		err = errors.Join(os.CopyFS(dir, archive), archive.Close())
	}
	if err == nil {
		err = os.Truncate(filepath.Join(dir, "events/000000000001.ndjson"), 1<<40)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var found []audit.Finding
	if err := b.Walk(func([]audit.Event) error { return nil }, func(f ...audit.Finding) {
		found = append(found, f...)
	}); err != nil ||
		!slices.ContainsFunc(found, func(f audit.Finding) bool {
			return strings.Contains(f.Found.String(), "the rest was not read")
		}) {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := b.Former().Next(); err == nil {
		t.Error("a former history may be longer than its manifest declares")
	}
}

// TestSegmentTwice: a manifest cannot make the same file be read for each of thousands of segments.
func TestSegmentTwice(t *testing.T) {
	text := bytes.Repeat([]byte("x"), minLine)
	first := Segment{File: Describe("events/000000000001.ndjson", text), First: 1, Last: 1, HistorySHA256: emptyHistory}
	second := first
	second.First, second.Last = 2, 2
	m := Manifest{
		Contract: Contract, Organization: domain.OrganizationID{1}, ExportedAt: "2026-11-01T10:00:00Z", Events: 2,
		HistorySHA256: emptyHistory, TrustedKeys: Describe(TrustedKeysFile, nil), Segments: []Segment{first, second},
	}
	if err := m.check(); err == nil ||
		!strings.Contains(err.Error(), "segments[1] must be the file events/000000000002.ndjson") {
		t.Error(err)
	}
	m.Segments[1].File.File = "events/000000000002.ndjson"
	if err := m.check(); err != nil {
		t.Error(err)
	}
}

// TestMinLine: no event has a shorter line.
func TestMinLine(t *testing.T) {
	e := audit.Event{Event: domain.Event{Sequence: 1, Type: domain.KeyRevoked, Data: []byte("{}")}}
	e.ID[15] = 1
	if text, err := line(&e, true); err != nil || len(text) < minLine {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// reads returns the memory that a reader and the audit allocate for one line, and the audit's findings.
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

// discarded discards everything.
type discarded struct{}

func (discarded) Append(int, []byte) error { return nil }
func (discarded) Open(int) io.Reader       { return strings.NewReader("") }

// TestLineOfManyValues: a line takes a bounded amount of memory, whatever it contains, and the audit reports the fault.
func TestLineOfManyValues(t *testing.T) {
	const most = 600 << 20
	event := func(typ domain.EventType, data string) []byte {
		e := audit.Event{
			Event: domain.Event{
				Organization: domain.OrganizationID{1}, Sequence: 1, V: 1, Type: typ, OccurredAt: time.Unix(0, 0),
				Data: []byte(data),
			},
		}
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
		"64 MB of short values": {
			[]byte(`{"detectors":[` + repeated("{}", 64<<20) + "]}\n"), "it has more than 8388608 bytes",
		},
		"8 MB of short values": {
			event(domain.AnalysisCompleted, `{"detectors":[`+repeated("{}", 8000000)+`]}`), "it has more than 250000 values",
		},
		"as many as may be": {
			event(domain.AnalysisCompleted, `{"detectors":[`+repeated("{}", 370000)+`]}`), "other bytes",
		},
		"2 MB of names": {
			event(domain.AnalysisCompleted, `{"limitations":[`+repeated(`"`+strings.Repeat("\\u0000", 5)+`"`, 2000000)+`]}`),
			"other bytes",
		},
		"a member that is not read": {
			event(domain.AnalysisCompleted, `{"x":[`+repeated("[[]]", 8000000)+`]}`), "it has more than 250000 values",
		},
	} {
		allocated, found := reads(t, c.text)
		if allocated > most {
			t.Errorf("%s: %d MB", name, allocated>>20)
		}
		if !slices.ContainsFunc(found, func(f audit.Finding) bool { return strings.Contains(f.Found.String(), c.found) }) {
			t.Errorf("%s: %v", name, found)
		}
	}
}
