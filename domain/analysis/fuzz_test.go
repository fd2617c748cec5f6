package analysis

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// fuzzFamily feeds the detectors of one family with changed files of the corpus. Whatever arrives, each answers in its form,
// twice the same, and no parser's panic comes through. Large samples are left to the table of outcomes.
func fuzzFamily(f *testing.F, detectors []detector, extensions ...string) {
	for _, s := range corpus(f) {
		for _, extension := range extensions {
			if strings.HasSuffix(s.name, extension) && len(s.content) < 16<<10 {
				f.Add(s.content, s.declared)
			}
		}
	}
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, content []byte, declared string) {
		run := func() []Result {
			s := newSubject(Input{Content: bytes.NewReader(content), Size: int64(len(content)), DeclaredType: declared})
			var list []Result
			for _, d := range detectors {
				list = append(list, d.decide(s))
			}
			return list
		}
		first := run()
		for i, r := range first {
			if r.ID != detectors[i].ID {
				t.Fatalf("%s answers for %s", r.ID, detectors[i].ID)
			}
			form(t, "fuzz", r)
		}
		if a, b := must[[]byte](t)(json.Marshal(first)), must[[]byte](t)(json.Marshal(run())); !bytes.Equal(a, b) {
			t.Fatalf("the same bytes gave\n%s\nand then\n%s", a, b)
		}
	})
}

func FuzzContent(f *testing.F) {
	fuzzFamily(f, contentDetectors(), ".pdf", ".gif", ".docx", ".doc", ".zip", ".txt", ".bin")
}
func FuzzPDF(f *testing.F)    { fuzzFamily(f, pdfDetectors(), ".pdf", ".gif") }
func FuzzOffice(f *testing.F) { fuzzFamily(f, officeDetectors(), ".docx", ".docm", ".xlsx", ".doc") }
func FuzzImage(f *testing.F)  { fuzzFamily(f, imageDetectors(), ".png", ".jpg", ".gif") }
func FuzzArchive(f *testing.F) {
	fuzzFamily(f, archiveDetectors(), ".zip", ".gz", ".tar", ".7z", ".docx")
}
func FuzzText(f *testing.F) { fuzzFamily(f, textDetectors(), ".txt", ".json", ".bin") }
