package demo

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
)

func testClient(t *testing.T, base string) *client.Client {
	t.Helper()
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	c, err := client.New(client.Config{BaseURL: base, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t *testing.T, dir, base string) *System {
	t.Helper()
	s := &System{
		Dir: dir, Company: "c", Source: "s", Public: "http://127.0.0.1:8090", Client: testClient(t, base),
		ReserveTimeout: 50 * time.Millisecond, Now: time.Now, Report: func(Step) {},
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// silent accepts requests and never answers.
func silent(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server must notice that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// away refuses connections: no process listens on this port.
const away = "http://127.0.0.1:1"

// TestEmissionNeedsNoService delivers without a service, and never touches the final bytes again.
func TestEmissionNeedsNoService(t *testing.T) {
	for name, base := range map[string]string{"away": away, "silent": silent(t)} {
		dir := filepath.Join(t.TempDir(), name)
		s := open(t, dir, base)
		for range 2 { // the second run has nothing left to do
			if _, err := s.Emit(t.Context(), 1); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		d, err := s.file(t.Context(), "d.number", 1)
		if err != nil || d.link != "" || d.deliveredAt.IsZero() {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		if delivered, err := os.ReadFile(s.deliveredPath(d)); err != nil || string(delivered) != string(d.pdf) {
			t.Errorf("%s: what was delivered is not what was finalized: %v", name, err)
		}
		if texts, _ := codes(t, d.pdf, "http://127.0.0.1:8090/documents/"+d.token); len(texts) != 1 {
			t.Errorf("%s: want one QR code, of the download: %q", name, texts)
		}
		item, err := s.outbox.Find(t.Context(), s.version(d))
		if err != nil || item.State != outbox.Pending || item.Declaration.SHA256 != hexSHA256(d.pdf) ||
			item.Declaration.SizeBytes != int64(len(d.pdf)) || item.Declaration.ReservationID != "" {
			t.Errorf("%s: the declaration: %+v, %v", name, item, err)
		}
		if sum, err := s.Summarize(t.Context()); err != nil || sum.Documents != 1 || sum.Delivered != 1 ||
			sum.Registered != 0 || sum.Same != 0 || len(sum.Problems) != 0 {
			t.Errorf("%s: %+v, %v", name, sum, err)
		}
		second := &System{Dir: s.Dir, Company: s.Company, Source: s.Source, Public: s.Public, Client: s.Client}
		if err := second.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "run only one per directory") {
			t.Errorf("%s: a second process: %v", name, err)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFinalBytes: finalized bytes cannot be changed, and changed bytes are not served.
func TestFinalBytes(t *testing.T) {
	s := open(t, t.TempDir(), away)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Emit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`UPDATE files SET pdf = x'00'`, `UPDATE files SET sha256 = ''`, `DELETE FROM files`,
		`UPDATE integrity_outbox SET attempts = 1; UPDATE integrity_outbox SET size_bytes = 0`,
	} {
		if _, err := s.db.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	before, err := s.file(t.Context(), "d.number", 1)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	get := func(token string) (int, string, http.Header) {
		t.Helper()
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL+downloadPath+token, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body), response.Header
	}
	if status, body, header := get(before.token); status != http.StatusOK || hexSHA256([]byte(body)) != before.sha256 ||
		header.Get("Content-Type") != "application/pdf" ||
		!strings.HasPrefix(header.Get("Content-Disposition"), "attachment") {
		t.Errorf("download: %d %d bytes %v", status, len(body), header)
	}
	if status, _, _ := get("x" + before.token); status != http.StatusNotFound {
		t.Errorf("an unknown token: %d", status)
	}
	if _, err := s.db.ExecContext(
		t.Context(), `DROP TRIGGER files_update; UPDATE files SET pdf = pdf || x'00'`,
	); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := get(before.token); status != http.StatusInternalServerError || strings.Contains(body, "%PDF") {
		t.Errorf("changed bytes are given out: %d", status)
	}
	if sum, err := s.Summarize(t.Context()); err != nil || len(sum.Problems) != 1 ||
		!strings.Contains(sum.Problems[0].String(), "something else has changed the database") {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestCommitIsWhole stores the final bytes and the declaration together, or neither.
func TestCommitIsWhole(t *testing.T) {
	s := open(t, t.TempDir(), away)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	d, err := s.allocate(t.Context(), 1, "doc-1", "token", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	d.pdf, d.sha256, d.finalizedAt = []byte("%PDF"), hexSHA256([]byte("%PDF")), time.Now()
	declaration, err := client.Declare(s.version(d), strings.NewReader("%PDF"), "no media type", d.finalizedAt)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.commit(t.Context(), d, declaration); err == nil || !strings.Contains(err.Error(), "mimeType") {
		t.Errorf("a declaration that cannot be registered: %v", err)
	}
	if _, err := s.file(t.Context(), "d.number", 1); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("the file is there without its declaration: %v", err)
	}
	declaration.MimeType = "application/pdf"
	if err := s.commit(t.Context(), d, declaration); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(t.Context(), d, declaration); err == nil {
		t.Error("a document was finalized twice")
	}
}
