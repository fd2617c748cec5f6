package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// Error is an answer of the service that is no success. Every other error of this package means that the service has
// not answered, or that something else has.
type Error struct {
	Status     int
	Code       domain.Code
	Detail     string              // one sentence that a person can act on
	Fields     []domain.FieldError // every offending member
	Existing   *wire.Existing      // of VERSION_CONFLICT: the accepted version
	Retryable  bool                // time alone may help
	RetryAfter time.Duration       // how long until it can succeed; 0 where the service says nothing
	RequestID  string              // names the request to the service's operator
	Address    string              // that was asked: the service's origin; empty for an item of a batch
}

func newError(f *wire.Failure) *Error {
	return &Error{
		Status: f.Status, Code: f.Code, Detail: f.Detail, Fields: f.Errors, Existing: f.Existing, Retryable: f.Retryable,
		RetryAfter: time.Duration(f.RetryAfter) * time.Second,
	}
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d): %s", e.Code, e.Status, e.Detail)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "\n  %s %s", f.Pointer, f.Message)
	}
	if e.Existing != nil {
		fmt.Fprintf(&b, "\n  the accepted one is %s, received at %s", e.Existing.PublicID, e.Existing.ReceivedAt)
	}
	switch {
	case e.Address == "":
	case e.Status == http.StatusUnauthorized:
		fmt.Fprintf(&b, "\n  %s was asked; the key must be one of this service", e.Address)
	case e.Status == http.StatusForbidden: // the service knows the key
		fmt.Fprintf(
			&b, "\n  %s was asked; %[1]s/errors/%s says what to do", e.Address,
			strings.ToLower(strings.ReplaceAll(string(e.Code), "_", "-")),
		)
	}
	if e.Retryable && e.RetryAfter > 0 {
		fmt.Fprintf(&b, "\n  try again in %d s", int64((e.RetryAfter+time.Second-1)/time.Second))
	}
	return b.String()
}

// notSentError means that nothing was sent: the request could not be made, or no connection.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// unexplainedError is a refusal that is not the service's word.
type unexplainedError struct {
	error
	wait time.Duration // that it asks for
}

// Refused is true when the service has decided: nothing was done, and the same request again does not help (401, 403,
// 409, 422 and the like, specification "Errors", and a limit that does not pass with time). It is false for what
// waiting may mend: what the service calls retryable, 408, 5xx, and no answer at all.
func Refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500 && !e.Retryable && e.Status != http.StatusRequestTimeout
}

// Unknown is true when a write that failed may have happened all the same: look it up, and send the exact same one
// again. What could not be asked, a connection that was never made, and any answer of the service below 500 (a 408 too:
// the request had not arrived) mean that nothing was done.
func Unknown(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Status >= 500
	}
	return err != nil && !errors.As(err, new(notSentError))
}

// RetryAfter is how long the service, or a proxy before it, asks to wait; 0 where it says nothing, or time does not
// help.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && !Refused(err) {
		return e.RetryAfter
	}
	var u unexplainedError
	errors.As(err, &u)
	return u.wait
}

// retryAfter reads both forms of the header (RFC 9110, section 10.2.3). Ten digits are no wait: they are a Unix time
// that somebody has put there.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil && len(text) < 10 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

const (
	firstBackoff = time.Second
	mostBackoff  = time.Minute
)

// Backoff says how long to wait between attempts: 1 s, doubled up to a minute, each up to a quarter longer so that
// clients do not come back at once.
type Backoff struct {
	Failures int // so far
}

// Next is the wait after one more failure.
func (b *Backoff) Next(err error) time.Duration {
	wait := min(firstBackoff<<min(b.Failures, 10), mostBackoff)
	b.Failures++
	wait += rand.N(wait / 4) //nolint:gosec // spreads load; guessing it gains nothing
	return max(wait, RetryAfter(err))
}
