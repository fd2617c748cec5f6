package judges

import (
	"bytes"
	"maps"
	"testing"

	"github.com/xuri/excelize/v2"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain/analysis"
)

// TestWorkbook: workbooks written by a library can be read, and a link in one is found.
func TestWorkbook(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"", "https://example.org/"} {
		f := excelize.NewFile()
		defer f.Close()
		if err := f.SetCellValue("Sheet1", "A1", 42); err != nil {
			t.Fatal(err)
		}
		if link != "" {
			if err := f.SetCellHyperLink("Sheet1", "A1", link, "External"); err != nil {
				t.Fatal(err)
			}
		}
		text, err := f.WriteToBuffer()
		if err != nil {
			t.Fatal(err)
		}
		const workbook = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
		found := map[string]analysis.Outcome{}
		in := detect.Input{Content: bytes.NewReader(text.Bytes()), Size: int64(text.Len()), DeclaredType: workbook}
		detect.Analyze(in, func(r analysis.Result) {
			if r.Outcome != analysis.NotApplicable && r.Outcome != analysis.Clear {
				found[r.ID] = r.Outcome
			}
		})
		want := map[string]analysis.Outcome{}
		if link != "" {
			want["office-external-targets"] = analysis.Finding
		}
		if !maps.Equal(found, want) {
			t.Errorf("with the link %q: %v", link, found)
		}
	}
}
