package handlers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/developers"
)

// Downloads are served as embedded, with a header to save them.
func TestDeveloperFiles(t *testing.T) {
	s := open(t, options{})
	downloads, err := developers.Downloads()
	check(t, err)
	for _, file := range downloads {
		path := "/developers/" + file.Name
		a := s.public(path)
		sum := sha256.Sum256(a.body)
		equal(t, path, []any{
			a.status, hex.EncodeToString(sum[:]), a.header.Get("Content-Type"), a.header.Get("Content-Disposition"),
			a.header.Get("X-Content-Type-Options"), a.header.Get("Access-Control-Allow-Origin"),
		}, []any{http.StatusOK, file.SHA256, file.ContentType, `attachment; filename="` + file.Name + `"`, "nosniff", "*"})
		known := s.send(http.MethodGet, path, "", nil, "If-None-Match", a.header.Get("ETag"))
		if known.status != http.StatusNotModified || len(known.body) != 0 {
			t.Errorf("%s, conditional: %d", path, known.status)
		}
		if strings.HasSuffix(file.Name, ".py") != strings.HasPrefix(file.ContentType, "text/x-python") {
			t.Errorf("%s: %s", path, file.ContentType)
		}
	}
	// The running program is served whole.
	program, err := developers.Running()
	check(t, err)
	a := s.public("/developers/" + program.Name).is200()
	sum := sha256.Sum256(a.body)
	equal(t, program.Name, []any{hex.EncodeToString(sum[:]), int64(len(a.body)), a.header.Get("Content-Length")},
		[]any{program.SHA256, program.Size, strconv.FormatInt(program.Size, 10)})
	known := s.send(http.MethodGet, "/developers/"+program.Name, "", nil, "If-None-Match", a.header.Get("ETag"))
	if known.status != http.StatusNotModified || len(known.body) != 0 {
		t.Errorf("%s, conditional: %d, %d bytes", program.Name, known.status, len(known.body))
	}
	if page := s.page("/en/developers/downloads"); !strings.Contains(string(page.body), program.SHA256) {
		t.Error("the page of downloads lacks the SHA-256 of the program")
	}
	for _, path := range []string{
		"/developers/nothing.py", "/developers/developers.go", "/developers/python/verify_integrity.py",
	} {
		if e := s.public(path).is(http.StatusNotFound); e["code"] != string(domain.NotFound) {
			t.Errorf("%s: %v", path, e)
		}
	}
}

// A download of the program takes a place until it was read: a network has two, and two more may wait.
func TestDownloadsOfTheProgramTakePlaces(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	program, err := developers.Running()
	check(t, err)
	path := "/developers/" + program.Name
	var slow []io.Closer
	for range 2 {
		response, err := s.http.Client().Transport.RoundTrip(s.request(http.MethodGet, path, "", nil)) //nolint:bodyclose // below
		check(t, err)
		equal(t, "a free place", response.StatusCode, http.StatusOK)
		slow = append(slow, response.Body)
	}
	answers := make(chan answer)
	for range 3 {
		r := s.request(http.MethodGet, path, "", nil)
		go func() {
			a, err := s.tryExchange(r)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	a := <-answers
	a.refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	for _, body := range slow {
		check(t, body.Close())
	}
	for range 2 {
		a := <-answers
		equal(t, "a place that became free", []any{a.status, int64(len(a.body))}, []any{http.StatusOK, program.Size})
	}
}
