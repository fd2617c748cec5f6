package client

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

// Error is an unsuccessful answer of the service. Every other error of this package means that the service has not
// answered, or that another server has.
type Error struct {
	Status     int
	Code       domain.Code
	Detail     string              // one sentence that a person can act on
	Fields     []domain.FieldError // every offending member
	Existing   *wire.Existing      // for VERSION_CONFLICT: the accepted version
	Retryable  bool                // the same request may succeed later
	RetryAfter time.Duration       // time until the request can succeed; 0 if the service does not say
	RequestID  string              // names the request to the service's operator
	Address    string              // the origin of the service; empty for an item of a batch
}

func newError(f *wire.Failure) *Error {
	return &Error{
		Status: f.Status, Code: f.Code, Detail: f.Detail, Fields: f.Errors, Existing: f.Existing, Retryable: f.Retryable,
		RetryAfter: time.Duration(f.RetryAfter) * time.Second,
	}
}

func (e *Error) Error() string { return e.lines().String() }

// Say implements say.Phrase. The service explains the error in the client's language (Config.Language).
func (e *Error) Say(c say.Catalogue) (string, bool) { return e.lines().Say(c) }

func (e *Error) lines() say.List {
	lines := []say.Sentence{say.Sentencef("%s (%d): %s", e.Code, e.Status, e.Detail)}
	for _, f := range e.Fields {
		lines = append(lines, say.Sentencef("  %s %s", f.Pointer, f.Message))
	}
	if e.Existing != nil {
		lines = append(lines, say.Sentencef(
			"  the accepted version is %s, received at %s", e.Existing.PublicID, e.Existing.ReceivedAt,
		))
	}
	switch {
	case e.Address == "":
	case e.Status == http.StatusUnauthorized:
		lines = append(lines, say.Sentencef("  the key must belong to the service at %s", e.Address))
	case e.Status == http.StatusForbidden: // the service knows the key
		lines = append(lines, say.Sentencef(
			"  %s/errors/%s says what to do", e.Address, strings.ToLower(strings.ReplaceAll(string(e.Code), "_", "-")),
		))
	}
	if e.Retryable && e.RetryAfter > 0 {
		lines = append(lines, say.Sentencef("  try again in %d s", int64((e.RetryAfter+time.Second-1)/time.Second)))
	}
	return say.Join(lines, "\n")
}

// notSentError means that nothing was sent: the request could not be made, or there was no connection.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// Say implements say.Phrase.
func (e notSentError) Say(c say.Catalogue) (string, bool) { return c.Error(e.error) }

// unexplainedError is an error answer that is not from the service.
type unexplainedError struct {
	error
	wait time.Duration // from Retry-After
}

// Say implements say.Phrase.
func (e unexplainedError) Say(c say.Catalogue) (string, bool) { return c.Error(e.error) }

// Refused reports whether the service decided against the request: nothing was done, and the same request would fail
// again (401, 403, 409, 422 and others, specification "Errors", and limits that do not pass with time). It is false if
// waiting may help: for errors that the service calls retryable, 408, 5xx, and no answer.
func Refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500 && !e.Retryable && e.Status != http.StatusRequestTimeout
}

// Unknown reports whether a failed write may have happened: look it up, and send the exact same write again. It is
// false if the request was never sent, and for every answer of the service below 500, because then nothing was done.
// (After a 408 the request had not fully arrived.)
func Unknown(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Status >= 500
	}
	return err != nil && !errors.As(err, new(notSentError))
}

// RetryAfter returns the wait that the service, or a proxy in front of it, asks for. It is 0 if none is given or
// waiting does not help.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && !Refused(err) {
		return e.RetryAfter
	}
	var u unexplainedError
	errors.As(err, &u)
	return u.wait
}

// retryAfter reads both forms of the header (RFC 9110, section 10.2.3). It ignores ten or more digits: they are a Unix
// time sent by mistake.
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
	maxBackoff   = time.Minute
)

// Backoff is the wait between attempts: 1 s, doubled with each failure up to a minute. Each wait is extended at random
// by up to a quarter, so that clients do not all return at once.
type Backoff struct {
	Failures int // so far
}

// Next returns the wait after another failure.
func (b *Backoff) Next(err error) time.Duration {
	wait := min(firstBackoff<<min(b.Failures, 10), maxBackoff)
	b.Failures++
	wait += rand.N(wait / 4) //nolint:gosec // spreads load; guessing it gains nothing
	return max(wait, RetryAfter(err))
}
