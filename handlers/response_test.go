package handlers

import (
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A long answer is written piece by piece, and one that cannot be finished never looks whole.
func TestLongAnswerIsCutOff(t *testing.T) {
	begin := strings.Repeat("begin,", 4096) // more than the server keeps back
	for name, c := range map[string]struct {
		end   func(yield func([]byte, error) bool)
		whole bool
	}{
		"whole":   {func(yield func([]byte, error) bool) { yield([]byte("end"), nil) }, true},
		"a fault": {func(yield func([]byte, error) bool) { yield(nil, errors.New("the database is away")) }, false},
		"a panic": {func(func([]byte, error) bool) { panic("a mistake") }, false},
	} {
		pieces := iter.Seq2[[]byte, error](func(yield func([]byte, error) bool) {
			if yield([]byte(begin), nil) {
				c.end(yield)
			}
		})
		log := slog.New(slog.DiscardHandler)
		s := &server{Config: Config{Now: time.Now, Log: log, Requests: log}}
		p := policy{caller: anyone, answer: asFile}
		server := httptest.NewServer(s.serve(route{"/file", p, map[string]endpoint{get: {get, "/file", func(*http.Request) (any, error) {
			return response{pieces: pieces, contentType: "text/csv"}, nil
		}, p}}}))
		answer, err := server.Client().Get(server.URL + "/file")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		server.Close()
		if answer.StatusCode != http.StatusOK || answer.ContentLength >= 0 || answer.Header.Get("Content-Type") != "text/csv" {
			t.Errorf("%s: %d %v", name, answer.StatusCode, answer.Header)
		}
		if (err == nil) != c.whole || c.whole && string(body) != begin+"end" {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
	}
}
