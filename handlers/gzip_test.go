package handlers_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"
)

func TestFeedIsCompressed(t *testing.T) {
	s := open(t, options{})
	for version := range 10 {
		s.registered("a", version+1, fmt.Sprint(version))
	}
	const path = integrity + "/changes?companyReference=company-1"
	ask := func(method, path, encoding string) answer {
		return s.send(method, path, s.org.Secret, nil, "Accept-Encoding", encoding, "X-Request-Id", "a")
	}
	plain := ask(http.MethodGet, path, "identity")
	packed := ask(http.MethodGet, path, "br;q=1, gzip;q=0.5")
	for name, a := range map[string]answer{"plain": plain, "packed": packed} {
		if a.status != http.StatusOK || a.header.Get("Vary") != "Accept-Encoding" ||
			a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
	if packed.header.Get("Content-Encoding") != "gzip" || plain.header.Get("Content-Encoding") != "" ||
		len(packed.body) >= len(plain.body) {
		t.Errorf("%v %v", packed.header, plain.header)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed.body))
	check(t, err)
	text, err := io.ReadAll(reader)
	check(t, err)
	if !bytes.Equal(text, plain.body) {
		t.Errorf("%s is not %s", text, plain.body)
	}
	if a := ask(http.MethodGet, path, "gzip;q=0"); a.header.Get("Content-Encoding") != "" {
		t.Errorf("gzip was refused: %v", a.header)
	}
	if head := ask(http.MethodHead, path, "gzip"); head.status != http.StatusOK || len(head.body) != 0 ||
		head.header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
	// Only the feed is compressed: for other requests with a key it is not worthwhile.
	if a := ask(http.MethodGet, integrity+"/usage", "gzip"); a.header.Get("Content-Encoding") != "" ||
		a.header.Get("Vary") != "" {
		t.Errorf("usage: %v", a.header)
	}
}

// Published documents are the same with and without compression, under different tags. Conditional requests and HEAD
// get the same tags.
func TestDocumentsAreCompressed(t *testing.T) {
	s := open(t, options{})
	for _, path := range []string{
		"/api/integrity-openapi", "/api/openapi", "/schemas/integrity-v1.json", "/developers",
		"/developers/verify_integrity.py",
	} {
		ask := func(method, encoding string, header ...string) answer {
			r := s.request(method, path, "", nil)
			r.Header.Set("Accept-Encoding", encoding)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return s.plainly(r) // pages are not operations
		}
		plain, packed := ask(http.MethodGet, "identity"), ask(http.MethodGet, "br, gzip;q=0.5")
		tags := map[string]string{"identity": plain.header.Get("Etag"), "gzip": packed.header.Get("Etag")}
		if packed.header.Get("Content-Encoding") != "gzip" || plain.header.Get("Content-Encoding") != "" ||
			tags["gzip"] == tags["identity"] || len(packed.body)*2 > len(plain.body) {
			t.Errorf("%s: %v %v", path, packed.header, plain.header)
			continue
		}
		reader, err := gzip.NewReader(bytes.NewReader(packed.body))
		check(t, err)
		text, err := io.ReadAll(reader)
		check(t, err)
		if !bytes.Equal(text, plain.body) {
			t.Errorf("%s differs when it is compressed", path)
		}
		if ask(http.MethodGet, "gzip;q=0").header.Get("Content-Encoding") != "" {
			t.Errorf("%s: gzip was refused", path)
		}
		for encoding, tag := range tags {
			full, head, known := packed, ask(http.MethodHead, encoding), ask(http.MethodGet, encoding, "If-None-Match", tag)
			if encoding == "identity" {
				full = plain
			}
			for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Vary"} {
				if head.header.Get(name) != full.header.Get(name) {
					t.Errorf("HEAD %s, %s: %s is %q", path, encoding, name, head.header.Get(name))
				}
			}
			if known.status != http.StatusNotModified || known.header.Get("Etag") != tag ||
				known.header.Get("Vary") != "Accept-Encoding" || len(known.body) != 0 {
				t.Errorf("%s, %s, again: %d %v", path, encoding, known.status, known.header)
			}
		}
		if crossed := ask(http.MethodGet, "identity", "If-None-Match", tags["gzip"]); crossed.status != http.StatusOK {
			t.Errorf("%s: %d for the tag of the other encoding", path, crossed.status)
		}
	}
	if a := s.send(
		http.MethodGet, clientAddress, "", nil, "Accept-Encoding", "gzip",
	); a.header.Get("Content-Encoding") != "" {
		t.Errorf("a package is compressed twice: %v", a.header)
	}
}
