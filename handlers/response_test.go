package handlers

import (
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
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

// slowReader takes in a few bytes each second, until its connection's deadline. Its time is the bubble's.
type slowReader struct {
	http.ResponseWriter
	perSecond, taken int
	deadline         time.Time
}

func (c *slowReader) SetWriteDeadline(at time.Time) error { c.deadline = at; return nil }

func (c *slowReader) Write(part []byte) (n int, err error) {
	for ; n < len(part); n += c.perSecond {
		if time.Sleep(time.Second); time.Now().After(c.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
	}
	c.taken += len(part)
	return len(part), nil
}

// Whoever takes in a long answer too slowly is cut off; whoever keeps pace may take for ever.
func TestLongAnswerIsTakenInAtAPace(t *testing.T) {
	for perSecond, whole := range map[int]bool{pieceRate: true, 2 * pieceRate: true, pieceRate / 2: false, 1: false} {
		synctest.Test(t, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			s, c, w := &server{Config: Config{Log: log}}, &call{}, &slowReader{ResponseWriter: httptest.NewRecorder(), perSecond: perSecond}
			const pieces = 500 // at this pace longer than anybody's patience
			sent := 0
			written := s.writePieces(w, httptest.NewRequest(http.MethodGet, "/", nil), c, func(yield func([]byte, error) bool) {
				for sent < pieces && yield(make([]byte, pieceRate), nil) {
					sent++
				}
			})
			if c.cutOff == whole || written != w.taken || whole != (sent == pieces) || !whole && sent > 2*int(piecePatience.Seconds()) {
				t.Errorf("%d bytes a second: cut off %t after %d pieces, %d bytes", perSecond, c.cutOff, sent, written)
			}
		})
	}
}
