package handlers

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections/query"
)

// settled is how long ago a time must lie for the state as of it to be signed. An event's time is taken before its
// commit, which a group reaches within 30 seconds or never; the rest is for servers whose clocks are behind this one's,
// by the tolerance of both.
const settled = time.Minute

const momentRule = "must be an RFC 3339 time such as 2026-11-20T14:03:00Z, or the sequence of an event in plain digits"

var sequencePattern = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// parseMoment reads a sequence or a time, of which finer parts than microseconds are cut off: no event has them.
func parseMoment(text string) (at query.Moment, ok bool) {
	if sequencePattern.MatchString(text) {
		sequence, err := strconv.ParseInt(text, 10, 64)
		return query.Moment{Sequence: sequence}, err == nil && sequence <= strictjson.MaxInteger
	}
	normal, err := evidence.NormalizeTimestamp(text)
	if err == nil {
		at.Time, err = time.Parse(time.RFC3339Nano, normal)
	}
	at.Time = at.Time.UTC().Truncate(time.Microsecond)
	return at, err == nil
}

func (q *parameters) moment() *query.Moment {
	text, given := q.text("at", strictjson.Optional)
	if !given {
		return nil
	}
	at, ok := parseMoment(text)
	if !ok {
		q.problem("at", strictjson.CodeFormat, momentRule)
	}
	return &at
}

// readMoment reads the member at of a tool's input.
func readMoment(o *strictjson.Object) *query.Moment {
	if !o.Has("at") {
		return nil
	}
	at, ok := parseMoment(o.String("at", strictjson.Optional))
	if o.OK("at") && !ok {
		o.Problem("at", strictjson.CodeFormat, momentRule)
	}
	return &at
}

// evidenceAsOf reads a record with its state as of an earlier moment, which must be settled at observedAt.
func (s *server) evidenceAsOf(ctx context.Context, c *call, id domain.PublicID, at query.Moment, observedAt time.Time) (query.Evidence, query.AsOf, error) {
	if at.Sequence == 0 && at.Time.After(observedAt.Add(-settled)) {
		return query.Evidence{}, query.AsOf{}, invalidParameter("at", "must be a time at least a minute ago, or the sequence of an event: later events may still be on their way into the log")
	}
	stored, then, err := s.Store.EvidenceAsOf(ctx, c.access, id, at)
	if err == nil && at.Sequence == 0 && at.Time.Before(stored.ReceivedAt) {
		err = query.ErrBeforeRecord
	}
	switch {
	case errors.Is(err, query.ErrBeforeRecord):
		err = invalidParameter("at", "must be a moment at or after the registration of this record: earlier, it did not exist yet")
	case errors.Is(err, query.ErrBeyondHead):
		err = invalidParameter("at", "must be a sequence of this organization, whose last one is "+strconv.FormatInt(stored.Sequence, 10))
	}
	return stored, then, err
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
