package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound"
	"integrityledger/projections"
)

const (
	maxAnswerHeader = 16 << 10
	maxAnswerBody   = 4 << 10 // read so that the connection can be reused
	maxAnswerKept   = 1 << 10 // shown to the members who manage the destination
)

// newClient returns the HTTP client for receivers.
func newClient(c Config) *outbound.Client {
	return outbound.New(outbound.Config{
		Timeout: c.Timeout, Connect: connectTimeout, Header: maxAnswerHeader, Answer: maxAnswerBody, Idle: maxParallel,
		Plain: true, Allows: c.Allows, Resolver: c.Resolver,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs},
	})
}

// attempt is the outcome of an attempt.
type attempt struct {
	at         time.Time
	status     int            // of the answer; 0 without an answer
	answer     []byte         // the beginning of its body; nil without an answer
	took       *time.Duration // nil if nothing was sent
	reason     string         // why it failed; empty if it succeeded
	retryAfter time.Duration
}

// attempt sends a delivery once. It uses only the status and Retry-After of the answer, and keeps the beginning of its
// body.
func (w *Worker) attempt(it *item) attempt {
	a := attempt{at: w.Now()}
	if it.target.unreadable {
		a.reason = "SECRET_UNREADABLE"
		return a
	}
	// Do not use the worker's context: a shutdown lets attempts finish.
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, it.target.url, bytes.NewReader(it.body))
	if err != nil {
		a.reason = "CONNECTION_FAILED"
		return a
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "integrity-ledger-webhook/1")
	r.Header.Set("Service-Signature", domain.SignWebhook(a.at, it.body, it.target.secrets...))
	r.Header.Set("Service-Event-Type", string(it.eventType))
	r.Header.Set("webhook-id", it.event.String())
	r.Header.Set("webhook-timestamp", strconv.FormatInt(a.at.Unix(), 10))
	r.Header.Set("webhook-signature", domain.SignStandardWebhook(it.event, a.at, it.body, it.target.secrets...))
	if !it.company.IsZero() {
		r.Header.Set("Service-Event-Sequence", strconv.FormatInt(it.sequence, 10))
	}
	answer, err := w.client.Do(r)
	if err != nil {
		a.reason = reasonOf(err)
		return a
	}
	defer answer.Body.Close()
	a.answer, _ = io.ReadAll(io.LimitReader(answer.Body, maxAnswerKept)) // the status is already known
	_, _ = io.Copy(io.Discard, answer.Body)
	if a.status = answer.StatusCode; a.status < 200 || a.status > 299 {
		a.reason = "HTTP_STATUS"
		a.retryAfter = retryAfter(answer.Header.Get("Retry-After"), a.at)
	}
	return a
}

// reasonOf returns one word for the reason why there was no answer. The error itself may contain addresses.
func reasonOf(err error) string {
	network, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, outbound.ErrBlocked):
		return domain.AddressBlocked
	case is[*net.DNSError](err):
		return "DNS_FAILED"
	case is[*tls.CertificateVerificationError](err), is[tls.AlertError](err), is[tls.RecordHeaderError](err),
		is[x509.UnknownAuthorityError](err),
		strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "TLS_FAILED"
	case ok && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "TIMEOUT"
	default:
		return "CONNECTION_FAILED"
	}
}

// is reports whether an error has type E.
func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

const maxRetryAfter = 24 * time.Hour

// retryAfter parses seconds or a date (RFC 9110, section 10.2.3), up to 24 hours.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(0, seconds), int64(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// schedule returns the wait after each failure. There is one attempt more than waits (contract, section 5).
func schedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// judge decides what happens to a delivery after an attempt.
func (w *Worker) judge(it *item, a attempt) result {
	r := result{
		item: it, attempts: it.attempts + 1, attemptedAt: &a.at, reason: a.reason, answer: a.answer,
	}
	if a.took != nil {
		r.took = new(int32(a.took.Milliseconds()))
	}
	if a.status != 0 {
		r.response = new(int32(a.status))
	}
	waits := schedule()
	switch {
	case a.reason == "":
		r.kind, r.status = ended, projections.DeliveryDelivered
	case a.status == http.StatusGone:
		r.kind, r.status = ended, projections.DeliveryCancelled
	case r.attempts > len(waits):
		r.kind, r.status = ended, projections.DeliveryExhausted
	default:
		wait := waits[r.attempts-1]
		wait += time.Duration(float64(wait) * (rand.Float64()*0.2 - 0.1)) //nolint:gosec // jitter
		r.kind, r.due = retried, w.Now().Add(max(wait, a.retryAfter))
	}
	return r
}

// String keeps an item's body and secrets out of any log.
func (it *item) String() string { return fmt.Sprintf("delivery %s", it.id) }

const (
	firstParallel = 8  // concurrent attempts to a new destination
	maxParallel   = 32 // to a destination that answers quickly
	firstWindow   = 16
	maxWindow     = 512
	// quick is the longest answer time of a destination that is not slow.
	quick = time.Second
	// staleAfter is how long a claimed row may wait for its turn. After that it is claimed again, because its
	// authorization may have been withdrawn.
	staleAfter = 2 * time.Second
)

// target is the data of a destination that attempts need, as of the last claim.
type target struct {
	organization   domain.OrganizationID
	status         string
	url            string
	secrets        []string // the current one first
	unreadable     bool     // the secret cannot be decrypted
	plan           string
	internal       bool
	sealed         []byte
	sealedPrevious []byte
	previousUntil  *time.Time
}

// item is a claimed row.
type item struct {
	destination *destination
	target      *target
	id          domain.DeliveryID
	company     domain.CompanyID // zero for a test
	sequence    int64
	event       domain.EventID
	eventType   domain.EventType
	body        []byte
	attempts    int // before this one
	authorized  bool
	claimedAt   time.Time
	leasedUntil time.Time
	charged     bool // an attempt was taken from the month's allowance
}

// destination is this process's state of a destination. The shard's mutex guards it.
type destination struct {
	id           domain.WebhookID
	organization domain.OrganizationID
	queue        []*item
	running      int
	parallel     int // concurrent attempts
	window       int // rows to hold
	claimed      time.Time
	more         bool // the last claim filled the room
}

// holds returns the number of rows waiting or being sent.
func (d *destination) holds() int { return len(d.queue) + d.running }

// room returns the number of rows to claim, 0 while enough are waiting.
func (d *destination) room() int {
	if len(d.queue) > d.window/2 {
		return 0
	}
	return d.window - len(d.queue)
}

// begin starts attempts up to the destination's concurrency. The caller must hold the mutex.
func (s *shardWorker) begin(d *destination) {
	now := s.Now()
	for len(d.queue) > 0 && (d.running < d.parallel || s.stopping) {
		it := d.queue[0]
		d.queue = d.queue[1:]
		if stale := now.Sub(it.claimedAt) > staleAfter; stale || s.stopping {
			if stale {
				d.window = max(d.parallel, d.window/2)
			}
			s.put(result{item: it, kind: released, attempts: it.attempts})
			continue
		}
		d.running++
		s.attempts.Go(func() { s.send(it) })
	}
}

// send makes one attempt and lets the destination go on.
func (s *shardWorker) send(it *item) {
	started := time.Now()
	a := s.attempt(it)
	took := time.Since(started)
	if !it.target.unreadable {
		a.took = &took
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := it.destination
	d.running--
	switch {
	case a.reason != "":
		d.parallel = max(1, d.parallel/2)
	case took > quick:
		d.parallel = max(2, d.parallel/2)
	default:
		d.parallel = min(maxParallel, d.parallel+1)
	}
	s.put(s.judge(it, a))
	s.begin(d)
	if d.more && d.room() > 0 {
		if d.more = false; took < quick && s.Now().Sub(d.claimed) < quick {
			d.window = min(maxWindow, 2*d.window)
		}
		s.claims.Wake(s.shard)
	}
}

// put passes a result to the recorder. The caller must hold the mutex.
func (s *shardWorker) put(r result) {
	s.results = append(s.results, r)
	select {
	case s.finished <- struct{}{}:
	default:
	}
}

// giveUp releases the waiting rows. Attempts in progress continue.
func (s *shardWorker) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for _, d := range s.destinations {
		s.begin(d)
	}
}

// forget drops idle destinations, so that a process keeps only the state of destinations that it serves. The caller
// must hold the mutex.
func (s *shardWorker) forget(now time.Time) {
	for id, d := range s.destinations {
		if d.holds() == 0 && now.Sub(d.claimed) > time.Minute {
			delete(s.destinations, id)
		}
	}
}
