package edge

import (
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A long answer is written in pieces, and an answer that cannot be finished never looks complete.
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
		s := &Edge{
			Identity: Identity{Config: Config{Now: time.Now, Log: log, Requests: log}},
			faces:    Faces{Onward: func(*http.Request, Policy, error) *Response { return nil }},
		}
		p := Policy{Caller: Anyone, Answer: AsFile}
		server := httptest.NewServer(s.serve(Route{"/file", p,
			map[string]Endpoint{http.MethodGet: {http.MethodGet, "/file", func(*http.Request) (any, error) {
				return Response{Pieces: pieces, ContentType: "text/csv"}, nil
			}, p}}}))
		answer, err := server.Client().Get(server.URL + "/file")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		server.Close()
		if answer.StatusCode != http.StatusOK || answer.ContentLength >= 0 ||
			answer.Header.Get("Content-Type") != "text/csv" {
			t.Errorf("%s: %d %v", name, answer.StatusCode, answer.Header)
		}
		if (err == nil) != c.whole || c.whole && string(body) != begin+"end" {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
	}
}

// slowReader reads a few bytes each second, until its connection's deadline. It uses the time of the synctest bubble.
type slowReader struct {
	http.ResponseWriter
	perSecond, taken int
	mu               sync.Mutex
	deadline         time.Time
}

func (c *slowReader) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = at
	return nil
}

func (c *slowReader) Write(part []byte) (n int, err error) {
	for ; n < len(part); n += c.perSecond {
		time.Sleep(time.Second * time.Duration(min(c.perSecond, len(part)-n)) / time.Duration(c.perSecond))
		synctest.Wait() // for the tick at this moment
		c.mu.Lock()
		late := !time.Now().Before(c.deadline)
		c.mu.Unlock()
		if late {
			return 0, os.ErrDeadlineExceeded
		}
	}
	c.taken += len(part)
	return len(part), nil
}

// A client that reads a long answer too slowly is cut off. If it holds a place, it is cut off only while others wait
// for the place. A client that keeps the pace may read without end.
func TestLongAnswerIsTakenInAtAPace(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	begun := time.Time{}
	later := func() bool { return time.Since(begun) > 5*time.Minute }
	for name, test := range map[string]struct {
		perSecond int
		crowded   func() bool
		after     time.Duration // time until it is cut off; 0 means never
	}{
		"keeps pace":                        {2 * pieceRate, nil, 0},
		"half the pace":                     {pieceRate / 2, nil, paceWindow},
		"nothing":                           {1, nil, paceWindow},
		"twice the pace, others wait":       {2 * pieceRate, yes, 2 * crowdedWindow},
		"eight times, others wait":          {8 * pieceRate, yes, 4 * crowdedWindow},
		"no more than the pace, others too": {pieceRate, yes, crowdedWindow},
		"half the pace, others wait":        {pieceRate / 2, yes, crowdedWindow},
		"nothing, others wait":              {1, yes, crowdedWindow},
		"half the pace, nobody waits":       {pieceRate / 2, no, 0},
		"nothing, nobody waits":             {1, no, piecePatience},
		"half the pace, others come":        {pieceRate / 2, later, 5*time.Minute + crowdedWindow},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun = time.Now()
			log := slog.New(slog.DiscardHandler)
			s, c, w := &Edge{Identity: Identity{Config: Config{Log: log}}}, &Call{}, &slowReader{
				ResponseWriter: httptest.NewRecorder(), perSecond: test.perSecond,
			}
			const pieces = 1500 // at these paces longer than any patience
			sent := 0
			written := s.writePieces(w, httptest.NewRequest(http.MethodGet, "/", nil), c,
				Response{Crowded: test.crowded, Pieces: func(yield func([]byte, error) bool) {
					for sent < pieces && yield(make([]byte, pieceRate), nil) {
						sent++
						time.Sleep(time.Second) // making the next piece takes as long
					}
				}})
			whole, took := sent == pieces, time.Since(begun)
			if c.cutOff == whole || written != w.taken || whole != (test.after == 0) {
				t.Errorf("%s: cut off %t after %d pieces, %d bytes", name, c.cutOff, sent, written)
			}
			// A window ends with a tick, and a second passes while each piece is made.
			made := test.after * time.Duration(max(1, test.perSecond/pieceRate))
			if !whole && (took < test.after || took > test.after+made+2*paceTick) {
				t.Errorf("%s: cut off after %s", name, took)
			}
		})
	}
}
