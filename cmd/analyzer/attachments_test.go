package analyzer

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain/evidence"
)

// portable writes a PDF with these objects, of which the first is the catalog.
func portable(objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	offsets := make([]int, len(objects))
	for i, object := range objects {
		offsets[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<</Size %d /Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, at)
	return b.Bytes()
}

const (
	catalogOf = "<</Type /Catalog /Pages 2 0 R /Names <</EmbeddedFiles 3 0 R>>>>"
	noPages   = "<</Type /Pages /Kids [] /Count 0>>"
)

// attachedAs returns the objects of a file, whose specification has number.
func attachedAs(number int, name, entries, content string) []string {
	return []string{
		fmt.Sprintf("<</Type /Filespec /F (%s) /EF <</F %d 0 R>>>>", name, number+1),
		fmt.Sprintf("<</Type /EmbeddedFile %s /Length %d>>\nstream\n%s\nendstream", entries, len(content), content),
	}
}

func packed(content []byte) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(content)
	_ = w.Close()
	return b.String()
}

// Attached files are read in a confined child. Whatever a hostile PDF holds costs bounded time and memory, and is an
// error.
func TestAttachments(t *testing.T) {
	ask := func(content []byte) ([]evidence.ReportFile, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		return Attachments(ctx, open(t, content), int64(len(content)))
	}
	tree := func(names string, more ...string) []byte {
		return portable(append([]string{catalogOf, noPages, names}, more...)...)
	}
	files, err := ask(tree(
		"<</Kids [4 0 R]>>", append(append([]string{"<</Names [(a) 5 0 R (b) 7 0 R]>>"}, attachedAs(5, "a.json", "", "{}")...),
			attachedAs(7, "b.json", "/Filter /FlateDecode", packed([]byte("[]")))...)...,
	))
	check(t, err)
	if got := fmt.Sprintf("%s", files); got != "[{a.json {}} {b.json []}]" {
		t.Errorf("files: %s", got)
	}
	if files, err := ask(portable("<</Type /Catalog /Pages 2 0 R>>", noPages)); err != nil || len(files) != 0 {
		t.Errorf("without files: %v %v", files, err)
	}
	var many, kids strings.Builder
	objects := []string{}
	for i := range 2000 {
		fmt.Fprintf(&many, "(%d) 4 0 R ", i)
		fmt.Fprintf(&kids, "%d 0 R ", 4+i)
		objects = append(objects, "<</Kids [3 0 R]>>")
	}
	if files, err := ask(tree("<</Names ["+many.String()+"]>>", attachedAs(4, "a", "", "{}")...)); err != nil ||
		len(files) != evidence.MaxReportFiles+1 {
		t.Errorf("many files: %d %v", len(files), err)
	}
	one := "<</Names [(a) 4 0 R]>>"
	bomb := packed(make([]byte, 64<<20))
	for name, content := range map[string][]byte{
		"no PDF":        []byte("{}"),
		"only a header": []byte("%PDF-1.7\n"),
		"a file of a page": portable(append(append([]string{catalogOf,
			"<</Type /Pages /Kids [<</Annots [<</Subtype /FileAttachment /FS <</F (b) /EF <</F 7 0 R>>>>>>]>>]>>", one},
			attachedAs(4, "a", "", "{}")...), attachedAs(6, "b", "", "[]")[1:]...)...),
		"two contents": tree(one, "<</Type /Filespec /F (a) /EF <</F 5 0 R /UF 6 0 R>>>>", attachedAs(4, "a", "", "{}")[1],
			attachedAs(4, "a", "", "[]")[1]),
		"a cycle":          tree("<</Kids [3 0 R]>>"),
		"many nodes":       tree("<</Kids ["+kids.String()+"]>>", objects...),
		"a bomb":           tree(one, attachedAs(4, "a", "/Filter /FlateDecode", bomb)...),
		"a bomb of bombs":  tree(one, attachedAs(4, "a", "/Filter [/FlateDecode /FlateDecode]", packed([]byte(bomb)))...),
		"a large file":     tree(one, attachedAs(4, "a", "", strings.Repeat(" ", 2<<20))...),
		"no stream":        tree(one, "<</Type /Filespec /F (a) /EF <</F 2 0 R>>>>"),
		"many large files": tree("<</Names ["+many.String()+"]>>", attachedAs(4, "a", "", strings.Repeat(" ", 1<<20))...),
		"a large PDF":      append(tree(one), make([]byte, detect.MaxAttachedPDF)...),
	} {
		start := time.Now()
		if files, err := ask(content); !errors.Is(err, evidence.ErrUnreadableReport) {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
		t.Logf("%s: %s", name, time.Since(start))
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Attachments(canceled, open(t, tree(one)), 100); err == nil {
		t.Error("a canceled request was answered")
	}
}
