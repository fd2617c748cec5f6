package query

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/history"
	"integrityledger/projections/statement"
)

// Moment is a moment of an organization's history: a sequence, or where that is 0 a time.
type Moment struct {
	Sequence int64
	Time     time.Time
}

// AsOf is a version's state at an earlier moment.
type AsOf struct {
	Sequence int64     // the last event at or before the moment
	Time     time.Time // the moment's, or that of the event at its sequence
	Status   domain.Status
}

// Reasons why a version has no state at a moment.
var (
	ErrBeforeRecord = errors.New("the record did not exist yet")
	ErrBeyondHead   = errors.New("the organization has no such sequence yet")
)

// sequenceAt is the last event at or before the time $4, among the events up to $3; 0 before the first event. An event
// counts as of its date, or as of the earliest reset of the clock after it where that is dated earlier: such times
// never decrease along a history, so it is found by halving: event low is no later than the time, and each event after
// high is later.
const sequenceAt = `WITH RECURSIVE resets AS MATERIALIZED (
		SELECT sequence, occurred_at FROM events
		WHERE shard = $1 AND organization_id = $2 AND subject = $5 AND type <> 'integrity.registered' AND type = 'clock.reset' AND sequence <= $3
	), search(low, high) AS (
		SELECT 0::bigint, $3::bigint
		UNION ALL
		SELECT CASE WHEN e.no_later THEN m.middle ELSE s.low END, CASE WHEN e.no_later THEN s.high ELSE m.middle - 1 END
		FROM search s
		CROSS JOIN LATERAL (SELECT (s.low + s.high + 1) / 2 AS middle OFFSET 0) m
		JOIN LATERAL (SELECT occurred_at <= $4 OR EXISTS (SELECT FROM resets r WHERE r.sequence > m.middle AND r.occurred_at <= $4) AS no_later FROM events
			WHERE shard = $1 AND organization_id = $2 AND sequence >= m.middle AND sequence <= m.middle ORDER BY sequence LIMIT 1) e ON true
		WHERE s.low < s.high)
	SELECT low FROM search WHERE low = high`

// findSequence answers for an organization whose events up to head are known to be committed.
func findSequence(ctx context.Context, from history.Querier, o domain.OrganizationID, head int64, at time.Time) (int64, error) {
	sequence, found, err := statement.First(ctx, from, "find the last event before a time", pgx.RowTo[int64], sequenceAt, o.Shard(), o, head, at, o.String())
	if err == nil && !found {
		err = errors.New("find the last event before a time: the history has a hole")
	}
	return sequence, err
}

// loadAsOf reads, of a registered version: its own sequence, the time as of which the event $4 counts, whether a higher
// version of its document had been registered by then, and whether it had been revoked.
const loadAsOf = `SELECT r.sequence, LEAST(t.occurred_at, (SELECT min(z.occurred_at) FROM events z
			WHERE z.shard = $1 AND z.organization_id = $2 AND z.subject = $6 AND z.type <> 'integrity.registered' AND z.type = 'clock.reset' AND z.sequence > $4)),
		EXISTS (SELECT FROM versions h WHERE h.shard = $1 AND h.document_id = i.document_id AND h.version > i.version AND h.position <= t.position),
		EXISTS (SELECT FROM events e WHERE e.shard = $1 AND e.organization_id = $2 AND e.subject = $5
			AND e.type <> 'integrity.registered' AND e.type = 'integrity.revoked' AND e.sequence <= $4)
	FROM (SELECT document_id, version, position FROM versions
		WHERE shard = $1 AND public_id = $3 AND organization_id = $2 AND record_id IS NOT NULL OFFSET 0) i
	JOIN LATERAL (SELECT sequence FROM events
		WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1) r ON true
	JOIN LATERAL (SELECT position, occurred_at FROM events
		WHERE shard = $1 AND organization_id = $2 AND sequence >= $4 AND sequence <= $4 ORDER BY sequence LIMIT 1) t ON true`

// EvidenceAsOf is Evidence together with the state at a moment. The state follows from the document's events up to
// then, which never change, so the answer never changes. The caller must refuse a time that is not past: events at it
// may still be committed.
func (s *Store) EvidenceAsOf(ctx context.Context, a domain.Access, id domain.PublicID, at Moment) (stored Evidence, then AsOf, err error) {
	if stored, err = s.Evidence(ctx, a, id); err != nil {
		return stored, then, err
	}
	then.Sequence = at.Sequence
	switch {
	case at.Sequence > stored.Sequence:
		return stored, then, ErrBeyondHead
	case at.Sequence == 0:
		if then.Sequence, err = findSequence(ctx, s.Pool, a.Organization, stored.Sequence, at.Time); err != nil {
			return stored, then, err
		}
	}
	if then.Sequence == 0 {
		return stored, then, ErrBeforeRecord
	}
	type facts struct {
		Registered          int64
		Occurred            time.Time
		Superseded, Revoked bool
	}
	known, found, err := statement.First(ctx, s.Pool, "read the state as of a moment", pgx.RowToStructByPos[facts], loadAsOf,
		a.Organization.Shard(), a.Organization, id, then.Sequence, id.String(), a.Organization.String())
	switch {
	case err != nil:
		return stored, then, err
	case !found:
		return stored, then, errors.New("read the state as of a moment: the events are missing")
	case known.Registered > then.Sequence:
		return stored, then, ErrBeforeRecord
	}
	then.Time = at.Time
	if at.Sequence > 0 {
		then.Time = known.Occurred
	}
	switch {
	case known.Revoked:
		then.Status = domain.StatusRevoked
	case known.Superseded:
		then.Status = domain.StatusSuperseded
	default:
		then.Status = domain.StatusCurrent
	}
	return stored, then, nil
}
