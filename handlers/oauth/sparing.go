package oauth

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// How old the provider's answer must be before the same question is put again. Any token under an unknown key makes the
// key set be read anew, and anybody can send such tokens. A new key, or that the provider is back, is noticed so much
// later at most.
const (
	leastAge   = 10 * time.Second
	failureAge = 5 * time.Second // from the end of the attempt, which may have taken as long
)

// mostBytes is the longest answer that is read: key sets and discovery documents are far shorter.
const mostBytes = 1 << 20

// sparing repeats the answer to a GET, or that there was none, while it is young, instead of asking again. Anything but
// 200 is a failure, whose body nobody sees. It is safe for concurrent use.
type sparing struct {
	now  func() time.Time
	next http.RoundTripper

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	at     time.Time
	header http.Header
	body   []byte
	err    error
}

func (a answer) young(now time.Time) bool {
	if a.err != nil {
		return now.Sub(a.at) < failureAge
	}
	return now.Sub(a.at) < leastAge
}

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return s.next.RoundTrip(r)
	}
	s.mu.Lock()
	a, ok := s.known[r.URL.String()]
	s.mu.Unlock()
	if !ok || !a.young(s.now()) {
		a = s.ask(r)
		s.mu.Lock()
		if s.known == nil {
			s.known = map[string]answer{}
		}
		s.known[r.URL.String()] = a
		s.mu.Unlock()
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
	}, nil
}

// ask puts the question. A good answer is as old as the question.
func (s *sparing) ask(r *http.Request) answer {
	asked := s.now()
	response, err := s.next.RoundTrip(r)
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", response.Status)
	}
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	return answer{at: asked, header: response.Header.Clone(), body: body}
}
