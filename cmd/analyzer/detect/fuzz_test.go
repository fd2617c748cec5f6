package detect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
)

// fuzzFamily runs the detectors whose IDs begin with family on mutated files of the corpus. For any input each
// detector's answer is well formed and repeatable, and no parser's panic escapes. Large samples are only in
// TestOutcomes.
func fuzzFamily(f *testing.F, family string, extensions ...string) {
	detectors := slices.DeleteFunc(slices.Clone(detectors()), func(d detector) bool {
		return !strings.HasPrefix(d.ID, family)
	})
	for _, s := range corpus(f) {
		for _, extension := range extensions {
			if strings.HasSuffix(s.name, extension) && len(s.content) < 16<<10 {
				f.Add(s.content, s.declared)
			}
		}
	}
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, content []byte, declared string) {
		run := func() []analysis.Result {
			s := newSubject(Input{Content: bytes.NewReader(content), Size: int64(len(content)), DeclaredType: declared})
			var list []analysis.Result
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
	fuzzFamily(f, "content-", ".pdf", ".gif", ".docx", ".doc", ".zip", ".asice", ".xps", ".txt", ".bin")
}
func FuzzPDF(f *testing.F)    { fuzzFamily(f, "pdf-", ".pdf", ".gif") }
func FuzzOffice(f *testing.F) { fuzzFamily(f, "office-", ".docx", ".docm", ".xlsx", ".doc") }
func FuzzImage(f *testing.F) {
	fuzzFamily(f, "image-", ".png", ".jpg", ".gif", ".webp", ".tif", ".heic")
}
func FuzzArchive(f *testing.F) {
	fuzzFamily(f, "archive-", ".zip", ".gz", ".tar", ".7z", ".docx", ".asice", ".xps")
}
func FuzzText(f *testing.F) { fuzzFamily(f, "text-", ".txt", ".json", ".bin") }

// FuzzAttachments looks for PDFs whose attached files exceed the limits, or that the parser never ends with.
func FuzzAttachments(f *testing.F) {
	for _, s := range corpus(f) {
		if strings.HasSuffix(s.name, ".pdf") && len(s.content) < 16<<10 {
			f.Add(s.content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		files, err := Attachments(bytes.NewReader(content), int64(len(content)))
		size := 0
		for _, file := range files {
			size += len(file.Content)
		}
		if err != nil && files != nil || len(files) > evidence.MaxReportFiles+1 || size > MaxAttachedBytes {
			t.Fatalf("%d files of %d bytes, %v", len(files), size, err)
		}
	})
}
