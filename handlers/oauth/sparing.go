package oauth

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// leastAge is how old the provider's answer must be before the same question is
// put again. Any token under an unknown key makes the key set be read anew, and
// anybody can send such tokens; a new key is noticed so much later at most.
const leastAge = 10 * time.Second

// mostBytes is the longest answer that is read: key sets and discovery documents are far shorter.
const mostBytes = 1 << 20

// sparing repeats a good answer to a GET that is younger than leastAge, instead of
// asking again. It is safe for concurrent use.
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
}

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return s.next.RoundTrip(r)
	}
	now := s.now()
	s.mu.Lock()
	known, ok := s.known[r.URL.String()]
	s.mu.Unlock()
	if ok && now.Sub(known.at) < leastAge {
		return &http.Response{
			Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: known.header.Clone(), Body: io.NopCloser(bytes.NewReader(known.body)), ContentLength: int64(len(known.body)),
		}, nil
	}
	response, err := s.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]answer{}
	}
	s.known[r.URL.String()] = answer{at: now, header: response.Header.Clone(), body: body}
	return response, nil
}
