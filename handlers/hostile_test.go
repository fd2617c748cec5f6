package handlers_test

import (
	"archive/zip"
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/cmd/analyzer"
	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// analysisChild is the real child process of an analysis, built without the race detector so that its limits are the
// service's.
func analysisChild(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "child")
	out, err := exec.Command(
		"go", "build", "-buildvcs=false", "-o", program, "../cmd/analyzer/testdata/child",
	).CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return program
}

// zeros returns n bytes that compress almost completely.
func zeros(n int) []byte { return make([]byte, n) }

// zipBomb unpacks to 64 MiB.
func zipBomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	entry, err := w.Create("zeros")
	check(t, err)
	for range 64 {
		_, err := entry.Write(zeros(1 << 20))
		check(t, err)
	}
	check(t, w.Close())
	return b.String()
}

// pdfBomb keeps its objects in a stream that unpacks to 64 MiB through two filters.
func pdfBomb(t *testing.T) string {
	t.Helper()
	packed := zeros(64 << 20)
	for range 2 {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, err := w.Write(packed)
		check(t, err)
		check(t, w.Close())
		packed = b.Bytes()
	}
	head := "%PDF-1.7\n"
	objects := fmt.Sprintf(
		"1 0 obj\n<< /Type /ObjStm /N 1 /First 4 /Filter [/FlateDecode /FlateDecode] /Length %d "+
			">>\nstream\n%s\nendstream\nendobj\n",
		len(packed), packed,
	)
	start := len(head) + len(objects)
	rows := []byte{
		0, 0, 0, 255, 1, byte(len(head) >> 8), byte(len(head)), 0, 2, 0, 1, 0, 1, byte(start >> 8), byte(start), 0,
	}
	return head + objects + fmt.Sprintf(
		"3 0 obj\n<< /Type /XRef /Size 4 /W [1 2 1] /Root 2 0 R /Length %d "+
			">>\nstream\n%s\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n",
		len(rows), rows, start,
	)
}

// plainPDF has no page.
func plainPDF() string {
	var b strings.Builder
	b.WriteString("%PDF-1.7\n")
	var offsets []int
	for i, object := range []string{"<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"} {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	start := b.Len()
	fmt.Fprintf(
		&b,
		"xref\n0 3\n0000000000 65535 f \n%010d 00000 n \n%010d 00000 n \ntrailer\n<< /Size 3 /Root 1 0 R "+
			">>\nstartxref\n%d\n%%%%EOF\n",
		offsets[0], offsets[1], start,
	)
	return b.String()
}

// gifBefore is a complete GIF image before other content.
func gifBefore(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	check(t, gif.Encode(&b, image.NewPaletted(image.Rect(0, 0, 2, 2), color.Palette{color.Black, color.White}), nil))
	return b.String() + content
}

// Hostile files arrive all at once. Each is answered as specified, while every registration of another organization
// succeeds.
func TestHostileFilesWhileRegistrationsGoOn(t *testing.T) {
	patient := 2 * time.Minute // enough for a busy machine; the outcomes do not depend on it
	children, err := analyzer.New(analyzer.Config{Program: analysisChild(t), CPU: patient, Wall: patient})
	check(t, err)
	t.Cleanup(children.Close)
	spool := t.TempDir()
	s := open(t, options{config: func(c *handlers.Config) {
		c.Spool = &edge.Spool{Dir: spool}
		c.Analyze = children.Analyze
	}})
	pdf := plainPDF()
	hostile := []struct {
		name, mediaType, content string
		outcomes                 map[string]string // by detector; for a finding, its severity
	}{
		{"bomb.zip", "application/zip", zipBomb(t), map[string]string{"content-type": "clear", "archive-expansion": "high"}},
		{
			"bomb.pdf", "application/pdf", pdfBomb(t),
			map[string]string{"content-type": "clear", "pdf-structure": "medium", "pdf-active-content": "inconclusive"},
		},
		{"gif.pdf", "application/pdf", gifBefore(t, pdf), map[string]string{"content-type": "high", "pdf-structure": "low"}},
		{"gif.gif", "image/gif", gifBefore(t, pdf), map[string]string{"content-type": "high", "pdf-structure": "low"}},
		{
			"truncated.pdf", "application/pdf", pdf[:len(pdf)*2/3],
			map[string]string{"content-type": "clear", "pdf-structure": "low"},
		},
		{"large.bin", "application/octet-stream", string(zeros(domain.MaxFileBytes + 1)), nil},
	}

	other := *s
	other.org = s.Organization(t, 1, domain.InternalPlan)
	uploading, cancel := context.WithCancel(context.Background())
	var registered atomic.Int64
	var registrations, uploads sync.WaitGroup
	for worker := range 4 {
		registrations.Go(func() {
			for n := 1; uploading.Err() == nil; n++ {
				content := fmt.Sprintf("%d of %d", n, worker)
				a, err := other.trySend(integrity+"/records", declaration(fmt.Sprintf("document-%d", worker), n, content))
				if err != nil || a.status != http.StatusCreated {
					t.Errorf("a registration during the uploads: %d %s %v", a.status, a.body, err)
					return
				}
				registered.Add(1)
			}
		})
	}
	answers := make([]answer, len(hostile))
	for i, h := range hostile {
		uploads.Go(func() {
			text, kind := form(body{"title": h.name}, h.name, h.mediaType, h.content)
			r, err := http.NewRequestWithContext(
				context.Background(), http.MethodPost, s.http.URL+certificationAction+"/artifacts", strings.NewReader(text),
			)
			if err == nil {
				r.Header.Set("Authorization", "Bearer "+s.org.Secret)
				r.Header.Set("Content-Type", kind)
				answers[i], err = s.tryExchange(r)
			}
			if err != nil {
				t.Errorf("%s: %v", h.name, err)
			}
		})
	}
	uploads.Wait()
	cancel()
	registrations.Wait()
	if t.Failed() {
		return
	}
	for i, h := range hostile {
		if h.outcomes == nil {
			answers[i].refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
			continue
		}
		data := read[wire.ArtifactRegistration](answers[i], http.StatusCreated)
		equal(t, h.name, []any{data.Version.SHA256, data.Version.SizeBytes, data.Version.State},
			[]any{hash(h.content), len(h.content), "analyzed"})
		got := map[string]string{}
		for _, d := range data.Analysis.Detectors {
			got[d.ID] = d.Outcome
			if d.Outcome == "finding" {
				got[d.ID] = d.Severity
			}
		}
		for id, want := range h.outcomes {
			if got[id] != want {
				t.Errorf("%s: %s says %s, want %s", h.name, id, got[id], want)
			}
		}
	}
	t.Logf("%d registrations meanwhile", registered.Load())
	if registered.Load() == 0 {
		t.Error("nothing was registered meanwhile")
	}
	equal(t, "artifacts registered", s.get(certificationAction + "/artifacts").is(http.StatusOK)["total"], len(hostile)-1)
	empty(t, spool)
	s.Audit(t)
}
