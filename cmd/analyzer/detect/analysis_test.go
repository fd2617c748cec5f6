package detect

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"integrityledger/domain/analysis"
)

var update = flag.Bool("update", false, "write the table of outcomes anew; then read every changed cell")

func analyze(content []byte, declared string) []analysis.Result {
	var list []analysis.Result
	Analyze(Input{Content: bytes.NewReader(content), Size: int64(len(content)), DeclaredType: declared},
		func(r analysis.Result) {
			list = append(list, r)
		})
	return list
}

func find(t *testing.T, list []analysis.Result, id string) analysis.Result {
	t.Helper()
	i := slices.IndexFunc(list, func(r analysis.Result) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("no result of %s", id)
	}
	return list[i]
}

// cell formats an outcome for the table.
func cell(r analysis.Result) string {
	switch r.Outcome {
	case analysis.NotApplicable:
		return "."
	case analysis.Clear:
		return "clear"
	case analysis.Inconclusive:
		return "?"
	}
	return strings.ToUpper(string(r.Severity))
}

// TestOutcomes runs every detector on every file of the corpus. In the table a word in capitals is a finding of that
// severity, ? is inconclusive and . not applicable.
func TestOutcomes(t *testing.T) {
	const golden = "testdata/outcomes.txt"
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	row := []string{"file"}
	for _, d := range analysis.Detectors() {
		row = append(row, d.ID)
	}
	_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	for _, s := range corpus(t) {
		row := []string{s.name}
		for _, r := range analyze(s.content, s.declared) {
			row = append(row, cell(r))
		}
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	check(t, w.Flush())
	t.Log("\n" + b.String())
	if *update {
		check(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want := strings.Split(string(must[[]byte](t)(os.ReadFile(golden))), "\n")
	got := strings.Split(b.String(), "\n")
	for i := range max(len(want), len(got)) {
		var have, wanted string
		if i < len(got) {
			have = got[i]
		}
		if i < len(want) {
			wanted = want[i]
		}
		if have != wanted {
			t.Errorf("got  %s\nwant %s", have, wanted)
		}
	}
}

// TestResultsAreWellFormed: for any file, each detector answers once, in order, in the contract's words, the same every
// time, and quotes nothing from the file.
func TestResultsAreWellFormed(t *testing.T) {
	for _, s := range corpus(t) {
		list := analyze(s.content, s.declared)
		wellFormed(t, s.name, list)
		first := must[[]byte](t)(json.Marshal(list))
		if again := must[[]byte](t)(json.Marshal(analyze(s.content, s.declared))); !bytes.Equal(again, first) {
			t.Errorf("%s: the same bytes gave\n%s\nand then\n%s", s.name, first, again)
		}
	}
}

func wellFormed(t *testing.T, name string, list []analysis.Result) {
	t.Helper()
	known := analysis.Detectors()
	if len(list) != len(known) {
		t.Fatalf("%s: %d results of %d detectors", name, len(list), len(known))
	}
	for i, r := range list {
		if r.ID != known[i].ID || r.Version != known[i].Version || r.Version < 1 ||
			!slices.Equal(r.Limitations, known[i].Limitations) || len(r.Limitations) == 0 {
			t.Errorf("%s: result %d is %+v, of another detector than %+v", name, i, r, known[i])
		}
		form(t, name, r)
	}
}

// form checks the properties of any result.
func form(t *testing.T, name string, r analysis.Result) {
	t.Helper()
	if !slices.Contains(analysis.Outcomes(), r.Outcome) || !slices.Contains(analysis.Severities(), r.Severity) ||
		(r.Outcome == analysis.Finding) == (r.Severity == analysis.None) {
		t.Errorf("%s: %s is %s, %s", name, r.ID, r.Outcome, r.Severity)
	}
	if r.Summary == "" || !strings.HasSuffix(r.Summary, ".") || r.Evidence == nil {
		t.Errorf("%s: %s says %q with evidence %v", name, r.ID, r.Summary, r.Evidence)
	}
	for _, e := range r.Evidence {
		if e.Structure == "" || e.Count < 0 || e.Positions == nil || len(e.Positions) > analysis.MaxPositions ||
			!slices.IsSorted(e.Positions) ||
			!slices.Contains([]analysis.Unit{analysis.Bytes, analysis.Objects, analysis.Entries}, e.Unit) {
			t.Errorf("%s: %s has evidence %+v", name, r.ID, e)
		}
	}
}

// TestEvidence checks which structures are found at which positions.
func TestEvidence(t *testing.T) {
	files := map[string]sample{}
	for _, s := range corpus(t) {
		files[s.name] = s
	}
	at := func(structure string, count int64, unit analysis.Unit, positions ...int64) analysis.Evidence {
		return analysis.Evidence{Structure: structure, Count: count, Unit: unit, Positions: append([]int64{}, positions...)}
	}
	for _, c := range []struct {
		file, detector string
		want           []analysis.Evidence
	}{
		{
			"hidden-name.pdf", "pdf-active-content",
			[]analysis.Evidence{at("JavaScript action", 1, analysis.Objects, 3), at("OpenAction", 1, analysis.Objects, 1)},
		},
		{
			"updated.pdf", "pdf-incremental-updates",
			[]analysis.Evidence{
				at("cross-reference section", 2, analysis.Bytes), at("end-of-file marker", 2, analysis.Bytes, 233, 359),
			},
		},
		{
			"signed-then-changed.pdf", "pdf-signatures",
			[]analysis.Evidence{
				at("signature", 1, analysis.Objects, 3),
				at("signature that ends before the end of the file", 1, analysis.Objects, 3),
			},
		},
		{
			"gif.pdf", "content-type",
			[]analysis.Evidence{
				at("content application/pdf", 1, analysis.Bytes, 0), at("bytes before the PDF header", 1, analysis.Bytes, 0),
			},
		},
		{
			"macro-as.docx", "content-type",
			[]analysis.Evidence{
				at("content application/vnd.ms-word.document.macroenabled.12", 1, analysis.Bytes, 0),
				at("declared "+typeDOCX, 1, analysis.Bytes),
			},
		},
		{"macro-as.docx", "office-macros", []analysis.Evidence{at("VBA project", 1, analysis.Entries, 0)}},
		{
			"template.docx", "office-external-targets",
			[]analysis.Evidence{at("external attachedTemplate", 1, analysis.Entries, 3)},
		},
		{
			"object.docx", "office-embedded-objects",
			[]analysis.Evidence{at("OLE object", 1, analysis.Entries, 0), at("oleObject relationship", 1, analysis.Entries, 3)},
		},
		{"macro.doc", "office-macros", []analysis.Evidence{at("_VBA_PROJECT", 1, analysis.Entries)}},
		{"software.png", "image-software", []analysis.Evidence{at("Adobe Photoshop", 1, analysis.Bytes, 33)}},
		{"camera.jpg", "image-location", []analysis.Evidence{at("EXIF GPS entry", 2, analysis.Bytes)}},
		{
			"names.zip", "archive-names",
			[]analysis.Evidence{
				at(nameAbsolute, 1, analysis.Entries, 0), at(nameTwice, 1, analysis.Entries, 3),
				at(nameBackslash, 1, analysis.Entries, 1), at(nameDrive, 1, analysis.Entries, 1),
			},
		},
		{"link.tar", "archive-names", []analysis.Evidence{at(nameLink, 1, analysis.Entries, 0)}},
		{
			"hidden.txt", "text-hidden-characters",
			[]analysis.Evidence{at("TAG CHARACTER", 2, analysis.Bytes, 11, 15), at("ZERO WIDTH SPACE", 1, analysis.Bytes, 3)},
		},
		{
			"override.txt", "text-bidi-controls",
			[]analysis.Evidence{
				at("ISOLATE", 1, analysis.Bytes, 12), at("OVERRIDE", 1, analysis.Bytes, 9),
				at("POP DIRECTIONAL ISOLATE", 1, analysis.Bytes, 23), at("not closed in its line", 1, analysis.Bytes, 9),
			},
		},
		{
			"mixed.txt", "text-mixed-scripts",
			[]analysis.Evidence{
				at("Cyrillic and Latin in one word", 1, analysis.Bytes, 0),
				at("Greek and Latin in one word", 1, analysis.Bytes, 12),
			},
		},
		{"utf16.txt", "text-hidden-characters", []analysis.Evidence{at("ZERO WIDTH SPACE", 1, analysis.Bytes, 16)}},
	} {
		s, ok := files[c.file]
		if !ok {
			t.Fatalf("no %s", c.file)
		}
		if got := find(t, analyze(s.content, s.declared), c.detector).Evidence; fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s, %s:\ngot  %+v\nwant %+v", c.file, c.detector, got, c.want)
		}
	}
}

// TestResultsQuoteNothing puts a word into every reported structure of a file, and checks that no result contains
// it.
func TestResultsQuoteNothing(t *testing.T) {
	const secret = "Zebra4711"
	office := officeTypes[strings.ToLower(typeDOCM)]
	for name, content := range map[string][]byte{
		"pdf": rawPDF(
			"<< /Type /Catalog /Pages 2 0 R /"+secret+" 1 /OpenAction << /S /JavaScript /JS ("+secret+") >> >>",
			"<< /Type /Pages /Kids [] /Count 0 >>", "<< /S /"+secret+" /Type /"+secret+" >>",
		),
		"office": office1(t, office, []string{"application/" + secret}, []string{secret, "hyperlink"}, []string{secret}),
		"png":    pngText(t, "Software\x00"+secret),
		"jpeg":   exifJPEG(t, secret, true),
		"zip":    zipOf(t, entry{"../" + secret, []byte(secret)}, entry{secret + ".zip", zipOf(t, entry{secret, nil})}),
		"text":   []byte(secret + "\u202e" + secret + "\u0430"),
	} {
		for _, declared := range []string{"", "application/" + secret, "text/plain"} {
			if text := string(must[[]byte](t)(json.Marshal(analyze(content, declared)))); strings.Contains(
				strings.ToLower(text), strings.ToLower(secret),
			) {
				t.Errorf("%s: the results repeat the file's words: %s", name, text)
			}
		}
	}
}

func TestExtension(t *testing.T) {
	pdf := rawPDF("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>")
	for name, want := range map[string]analysis.Outcome{
		"a.pdf": analysis.Clear, "A.PDF": analysis.Clear, "a": analysis.Clear, "a.odd": analysis.Clear,
		"a.txt": analysis.Finding, "a.pdf.docx": analysis.Finding,
	} {
		var got analysis.Result
		Analyze(Input{Content: bytes.NewReader(pdf), Size: int64(len(pdf)), DeclaredType: typePDF, FileName: name},
			func(r analysis.Result) {
				if r.ID == "content-type" {
					got = r
				}
			})
		if got.Outcome != want {
			t.Errorf("a PDF named %s is %s, not %s", name, got.Outcome, want)
		}
	}
}

// TestCatalogue: detectors.json describes every detector and its limits.
func TestCatalogue(t *testing.T) {
	for _, d := range detectors() {
		if d.run == nil || d.Version < 1 || d.Looks == "" || len(d.Limitations) == 0 {
			t.Errorf("%+v", d.Detector)
		}
	}
	if len(detectors()) != len(looks) {
		t.Errorf("%d detectors are described, and there are %d", len(detectors()), len(looks))
	}
	for prefix, bound := range map[string]string{
		"image-": fmt.Sprintf(
			"At most %d entries and %d MiB of metadata are read; makers' notes, colour profiles and content credentials "+
				"(C2PA) are not.",
			maxTags, maxMetadata>>20,
		),
		"archive-": fmt.Sprintf("At most %d MiB, %d entries and %d levels are unpacked, and from %d MiB on at most %d "+
			"times the size of the file.",
			maxUnpacked>>20, maxEntries, maxDepth, ratioFrom>>20, highRatio),
	} {
		for _, d := range detectors() {
			if strings.HasPrefix(d.ID, prefix) && !slices.Contains(d.Limitations, bound) {
				t.Errorf("%s does not say: %s", d.ID, bound)
			}
		}
	}
}

// TestPanicStaysInItsDetector: a panicking parser does not affect the other detectors.
func TestPanicStaysInItsDetector(t *testing.T) {
	d := detector{analysis.Detector{ID: "d", Version: 1, Limitations: []string{"l"}}, func(*subject) verdict {
		panic("x")
	}}
	if r := d.decide(nil); r.Outcome != analysis.Inconclusive || r.ID != "d" || r.Severity != analysis.None {
		t.Errorf("a panic became %+v", r)
	}
	if err := guarded(func() error { panic("x") }); err == nil {
		t.Error("a panic is no error")
	}
}

func TestUndecided(t *testing.T) {
	list := analysis.Undecided(analysis.ReasonTime).Results
	wellFormed(t, "undecided", list)
	for _, r := range list {
		if r.Outcome != analysis.Inconclusive || r.Summary != string(analysis.ReasonTime) {
			t.Errorf("%s: %s, %s", r.ID, r.Outcome, r.Summary)
		}
	}
}
