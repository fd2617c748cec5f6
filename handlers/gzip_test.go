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
		if a.status != http.StatusOK || a.header.Get("Vary") != "Accept-Encoding" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
	if packed.header.Get("Content-Encoding") != "gzip" || plain.header.Get("Content-Encoding") != "" || len(packed.body) >= len(plain.body) {
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
	if head := ask(http.MethodHead, path, "gzip"); head.status != http.StatusOK || len(head.body) != 0 || head.header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
	// Only the feed: nowhere else is there enough to gain.
	if a := ask(http.MethodGet, integrity+"/usage", "gzip"); a.header.Get("Content-Encoding") != "" || a.header.Get("Vary") != "" {
		t.Errorf("usage: %v", a.header)
	}
}
