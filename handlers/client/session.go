package client

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// sessionLength is for how long after a write its client is content with any state that has what it has seen. A write
// tells the organization's sequence after it, so nothing that is read within that time is older than that.
const sessionLength = 10 * time.Second

// session lets a read replica answer a client that has just written, and yet shows it its own writes and whatever it
// has read in the feed: the replica answers where it has come to the highest sequence seen. Before the first write and
// some time after the last no sequence is named, and an answer shows everything.
type session struct {
	now func() time.Time

	mu    sync.Mutex
	seen  int64
	until time.Time
}

// written takes note of a write's answer.
func (s *session) written(h http.Header) {
	sequence, err := strconv.ParseInt(h.Get("Integrity-Sequence"), 10, 64)
	if err != nil {
		return // no write
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.until = max(s.seen, sequence), s.now().Add(sessionLength)
}

// saw takes note of an event of the feed.
func (s *session) saw(sequence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, sequence)
}

// read asks, within a session, for a state that has all that was seen.
func (s *session) read(h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.until) {
		h.Set("Integrity-Read-After", strconv.FormatInt(s.seen, 10))
	}
}
