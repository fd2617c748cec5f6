package domain

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/strictjson"
	"integrityledger/domain/strictjson/jsontest"
)

var (
	noHash   = strings.Repeat("0", 64)
	fileText = func(path string, size any) string {
		quoted, err := json.Marshal(path)
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf(`{"path":%s,"size":%v,"sha256":"%s"}`, quoted, size, noHash)
	}
	manifestText = func(files ...string) string {
		return `{"kind":"service-file-manifest","version":1,"algorithm":"SHA-256","files":[` + strings.Join(files, ",") + `]}`
	}
)

// TestManifestProblems: all violations are reported at once, with their pointers.
func TestManifestProblems(t *testing.T) {
	good := fileText("a", 1)
	long := strings.Repeat("é", MaxManifestPath)
	many := make([]string, MaxManifestFiles+1)
	for i := range many {
		many[i] = fileText(fmt.Sprint("f", i), 0)
	}
	heavy := make([]string, 11)
	for i := range heavy {
		heavy[i] = fileText(fmt.Sprint("f", i), 50_000_000)
	}
	for name, c := range map[string]struct {
		text string
		want []string // pointer and code
	}{
		"good":           {manifestText(good), nil},
		"most files":     {manifestText(many[:MaxManifestFiles]...), nil},
		"longest path":   {manifestText(fileText(long, 0)), nil},
		"largest file":   {manifestText(fileText("a", 52428800)), nil},
		"largest total":  {manifestText(append(slices.Clone(heavy[:10]), fileText("z", 24288000))...), nil},
		"dots in a name": {manifestText(fileText("...a/b..c/.d", 0)), nil},
		"no members":     {`{}`, []string{"/kind REQUIRED", "/version REQUIRED", "/algorithm REQUIRED", "/files REQUIRED"}},
		"other constants": {
			`{"kind":"service-file-manifest ","version":2,"algorithm":"sha-256","files":[` + good + `]}`,
			[]string{"/kind FORMAT", "/version RANGE", "/algorithm FORMAT"},
		},
		"version 1.0": {
			strings.Replace(manifestText(good), `"version":1`, `"version":1.0`, 1), []string{"/version INTEGER"},
		},
		"no files":       {manifestText(), []string{"/files LENGTH"}},
		"too many files": {manifestText(many...), []string{"/files LENGTH"}},
		"far too many":   {manifestText(strings.Repeat("{},", 60_000) + "{}"), []string{"/files LENGTH"}},
		"too large":      {manifestText(heavy...), []string{"/files RANGE"}},
		"a large file": {
			manifestText(fileText("a", 52428801), fileText("b", -1)), []string{"/files/0/size RANGE", "/files/1/size RANGE"},
		},
		"no object": {manifestText("7", good), []string{"/files/0 TYPE"}},
		"members": {
			manifestText(`{"path":"a","Size":1,"sha256":"` + strings.Repeat("A", 64) + `"}`),
			[]string{"/files/0/size REQUIRED", "/files/0/sha256 FORMAT", "/files/0/Size UNKNOWN_MEMBER"},
		},
		"twice a member": {
			manifestText(`{"path":"a","path":"b","size":1,"sha256":"` + noHash + `"}`),
			[]string{"/files/0/path DUPLICATE_MEMBER"},
		},
		"long path":  {manifestText(fileText(long+"x", 0)), []string{"/files/0/path LENGTH"}},
		"empty path": {manifestText(fileText("", 0)), []string{"/files/0/path LENGTH"}},
		"same path":  {manifestText(fileText("a/b", 0), fileText("a/b", 1)), []string{"/files/1/path DUPLICATE_PATH"}},
		"unsafe paths": {
			manifestText(fileText("/a", 0), fileText("../a", 0), fileText("a/../b", 0), fileText("a//b", 0), fileText("a/", 0),
				fileText("./a", 0), fileText(`a\b`, 0),
				fileText("C:a", 0), fileText("a\nb", 0), fileText("a\u0085b", 0), fileText("e\u0301", 0)),
			[]string{
				"/files/0/path FORMAT", "/files/1/path FORMAT", "/files/2/path FORMAT", "/files/3/path FORMAT",
				"/files/4/path FORMAT", "/files/5/path FORMAT", "/files/6/path FORMAT",
				"/files/7/path FORMAT", "/files/8/path FORMAT", "/files/9/path FORMAT", "/files/10/path FORMAT",
			},
		},
	} {
		m, _, err := ReadManifest(new(strictjson.Meter), []byte(c.text))
		var got []string
		var refused *Error
		if errors.As(err, &refused) {
			for _, f := range refused.Fields {
				got = append(got, f.Pointer+" "+f.Code)
			}
		}
		if !slices.Equal(got, c.want) || (err == nil) != (c.want == nil) || (err == nil) == (len(m.Files) == 0) {
			t.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
		}
	}
}

func TestManifestText(t *testing.T) {
	padded := manifestText(fileText("a", 1)) + strings.Repeat(" ", MaxManifestBytes)
	for text, want := range map[string]Code{
		"": MalformedJSON, "{} {}": MalformedJSON, "\xef\xbb\xbf{}": MalformedJSON, `{"kind":"\ud800"}`: MalformedJSON,
		`[`: MalformedJSON, `[]`: InvalidData,
		padded: PayloadTooLarge,
	} {
		_, _, err := ReadManifest(new(strictjson.Meter), []byte(text))
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("%.20q: %v, not %s", text, err, want)
		}
	}
	if _, _, err := ReadManifest(new(strictjson.Meter), []byte(padded[:MaxManifestBytes])); err != nil {
		t.Errorf("the longest text: %v", err)
	}
}

func TestManifestWarnings(t *testing.T) {
	m, warnings, err := ReadManifest(
		new(strictjson.Meter),
		[]byte(manifestText(fileText("Straße", 0), fileText("b", 0), fileText("STRASSE", 0), fileText("B", 0))),
	)
	if err != nil || len(m.Files) != 4 {
		t.Fatal(m, err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.Pointer+" "+w.Code)
	}
	if want := []string{"/files/2/path SIMILAR_PATH", "/files/3/path SIMILAR_PATH"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestManifestWork: even the longest manifests take work in proportion to their length, whatever their content.
func TestManifestWork(t *testing.T) {
	for _, place := range []struct {
		begin, end string
		members    []string
	}{{"", "", []string{"kind", "version", "files"}}, {`{"files":[`, `]}`, []string{"path", "size", "sha256"}}} {
		for _, shape := range jsontest.Shapes(MaxManifestBytes-len(place.begin)-len(place.end), place.members...) {
			var meter strictjson.Meter
			text := []byte(place.begin + string(shape.Text) + place.end)
			if _, _, err := ReadManifest(&meter, text); err == nil {
				t.Errorf("%s%s was accepted", place.begin, shape.Name)
			}
			if steps := meter.Steps(); steps > 16*int64(len(text))+50_000 {
				t.Errorf("%s%s: %d bytes took %d steps", place.begin, shape.Name, len(text), steps)
			}
		}
	}
	hundred := make([]string, MaxManifestFiles)
	for i := range hundred {
		hundred[i] = fileText(strings.Repeat("\ufb03", MaxManifestPath-3)+fmt.Sprintf("%03d", i), 0)
	}
	var meter strictjson.Meter
	text := []byte(manifestText(hundred...))
	if _, _, err := ReadManifest(&meter, text); err != nil || meter.Steps() > 16*int64(len(text)) {
		t.Errorf("%d files of the longest paths, %d bytes: %d steps, %v", len(hundred), len(text), meter.Steps(), err)
	}
}

// TestTitleLengths: a title's length is checked before it is normalized. A title that is too long in any form is not
// examined further.
func TestTitleLengths(t *testing.T) {
	read := func(title string) (string, []FieldError) {
		text, err := json.Marshal(map[string]string{"title": title})
		if err != nil {
			t.Fatal(err)
		}
		value, err := strictjson.Parse(text, 2)
		if err != nil {
			t.Fatal(err)
		}
		o := strictjson.Decode(value)
		return ReadTitle(o, "title"), o.Problems()
	}
	for title, want := range map[string]string{
		strings.Repeat("é", MaxTitle):                        strings.Repeat("é", MaxTitle),
		strings.Repeat("e\u0301", MaxTitle):                  strings.Repeat("é", MaxTitle),
		strings.Repeat("\u03b1\u0313\u0300\u0345", MaxTitle): strings.Repeat("\u1f82", MaxTitle),
		strings.Repeat("\U0001f600", MaxTitle):               strings.Repeat("\U0001f600", MaxTitle),
		strings.Repeat("é", MaxTitle+1):                      "", strings.Repeat("\u0301", 1<<20): "",
		strings.Repeat("a", maxTitleBytes+1): "",
	} {
		got, problems := read(title)
		if want != "" && (got != want || problems != nil) || want == "" && (len(problems) != 1 ||
			problems[0].Code != strictjson.CodeFormat) {
			t.Errorf("%d bytes became %d: %v", len(title), len(got), problems)
		}
	}
}

// FuzzManifest: an accepted manifest follows every rule, and its canonical bytes conform to RFC 8785 and parse to
// themselves.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestText(fileText("a/b", 1), fileText("é\"\u2028", 52428800))))
	f.Add([]byte(manifestText(fileText("..", 1))))
	f.Add([]byte(`{"files":[{}]}`))
	for _, shape := range jsontest.Shapes(1000, "kind", "files") {
		f.Add(shape.Text)
	}
	f.Add([]byte(manifestText(strings.Repeat("{},", MaxManifestFiles) + "{}")))
	f.Add([]byte(manifestText(
		fileText(strings.Repeat("\u0301", MaxManifestPath), 0), fileText(strings.Repeat("\ufb03", MaxManifestPath), 0),
	)))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, _, err := ReadManifest(new(strictjson.Meter), text)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if err := CheckManifestFile(file.Path, file.Size); err != nil {
				t.Fatalf("%q was accepted: %v", file.Path, err)
			}
		}
		canonical := m.Canonical()
		if transformed, err := jcs.Transform(text); err != nil || !bytes.Equal(transformed, canonical) {
			t.Fatalf("%s is %s for us and %s for jcs (%v)", text, canonical, transformed, err)
		}
		again, _, err := ReadManifest(new(strictjson.Meter), canonical)
		if err != nil || !slices.Equal(again.Files, m.Files) || m.SHA256() != sha256.Sum256(canonical) ||
			m.Total() > MaxManifestTotal {
			t.Fatalf("%s reads as %+v: %v", canonical, again, err)
		}
	})
}
