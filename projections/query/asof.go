package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections/internal/statement"
)

// Moment is a moment in an organization's history: a sequence, or a time if that is 0.
type Moment struct {
	Sequence int64
	Time     time.Time
}

// AsOf is a version's state at an earlier moment.
type AsOf struct {
	Sequence int64     // the last event at or before the moment
	Time     time.Time // the moment's time, or the time of the event at its sequence
	Status   domain.Status
}

// Reasons why a version has no state at a moment.
var (
	ErrBeforeRecord = say.New("the record did not exist yet")
	ErrBeyondHead   = say.New("the organization has no such sequence yet")
)

// sequenceAt finds the last event at or before the time $4, among the events up to $3, or 0 if the first event is
// later. An event counts from its date, or from an earlier date of a later clock reset. These times never decrease
// along a history, so it uses binary search: event low is no later than the time, and each event after high is later.
var sequenceAt = cluster.SQL(`WITH RECURSIVE resets AS MATERIALIZED (
		SELECT sequence, occurred_at FROM {events}` + clockResets + `
	), ` + halving + `occurred_at <= $4 OR EXISTS (SELECT FROM resets r WHERE r.sequence > m.middle AND r.occurred_at <= $4)` + halved)

// allBefore finds the last event up to which all events are dated at or before the time $4, among the events up to $3,
// or 0. The latest date up to an event is its own date, or the date of the event before a reset.
var allBefore = cluster.SQL(`WITH RECURSIVE resets AS MATERIALIZED (
		SELECT z.sequence, b.occurred_at FROM (SELECT sequence FROM {events}` + clockResets + ` OFFSET 0) z
		JOIN LATERAL (SELECT occurred_at FROM {events}
			WHERE shard = $1 AND organization_id = $2 AND sequence >= z.sequence - 1 AND sequence <= z.sequence - 1 ORDER BY sequence LIMIT 1) b ON true
	), ` + halving + `occurred_at <= $4 AND NOT EXISTS (SELECT FROM resets r WHERE r.sequence <= m.middle AND r.occurred_at > $4)` + halved)

const clockResets = `
		WHERE shard = $1 AND organization_id = $2 AND subject = $5 AND type <> 'integrity.registered' AND type = 'clock.reset' AND sequence <= $3`

// The condition between halving and halved must be true for all events up to the one searched.
const (
	halving = `search(low, high) AS (
		SELECT 0::bigint, $3::bigint
		UNION ALL
		SELECT CASE WHEN e.no_later THEN m.middle ELSE s.low END, CASE WHEN e.no_later THEN s.high ELSE m.middle - 1 END
		FROM search s
		CROSS JOIN LATERAL (SELECT (s.low + s.high + 1) / 2 AS middle OFFSET 0) m
		JOIN LATERAL (SELECT `
	halved = ` AS no_later FROM {events}
			WHERE shard = $1 AND organization_id = $2 AND sequence >= m.middle AND sequence <= m.middle ORDER BY sequence LIMIT 1) e ON true
		WHERE s.low < s.high)
	SELECT low FROM search WHERE low = high`
)

// findSequence runs sequenceAt or allBefore for an organization whose events up to head are known to be committed.
func findSequence(
	ctx context.Context, from history.Querier, sql string, o domain.OrganizationID, head int64, at time.Time,
) (int64, error) {
	hole := say.New("find the last event before a time: the history has a hole")
	return statement.One(
		ctx, from, "find the last event before a time", hole, pgx.RowTo[int64], sql, o.Shard(), o, head, at, o.String(),
	)
}

// loadAsOf reads the sequence of a registered version, the time from which event $4 counts, whether a higher version of
// its document had been registered by then, and whether the version had been revoked.
var loadAsOf = cluster.SQL(`SELECT r.sequence, LEAST(t.occurred_at, (SELECT min(z.occurred_at) FROM {events} z
			WHERE z.shard = $1 AND z.organization_id = $2 AND z.subject = $6 AND z.type <> 'integrity.registered' AND z.type = 'clock.reset' AND z.sequence > $4)),
		EXISTS (SELECT FROM {versions} h WHERE h.shard = $1 AND h.document_id = i.document_id AND h.version > i.version AND h.position <= t.position),
		EXISTS (SELECT FROM {events} e WHERE e.shard = $1 AND e.organization_id = $2 AND e.subject = $5
			AND e.type <> 'integrity.registered' AND e.type = 'integrity.revoked' AND e.sequence <= $4)
	FROM (SELECT document_id, version, position FROM {versions}
		WHERE shard = $1 AND public_id = $3 AND organization_id = $2 AND record_id IS NOT NULL OFFSET 0) i
	JOIN LATERAL (SELECT sequence FROM {events}
		WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1) r ON true
	JOIN LATERAL (SELECT position, occurred_at FROM {events}
		WHERE shard = $1 AND organization_id = $2 AND sequence >= $4 AND sequence <= $4 ORDER BY sequence LIMIT 1) t ON true`)

// EvidenceAsOf is Evidence together with the state at a moment. The state follows from the document's events up to that
// moment, which never change, so neither does the answer. The caller must refuse a time that is not in the past,
// because events at that time may still be committed.
func (s RecordReader) EvidenceAsOf(
	ctx context.Context, a domain.Access, id domain.PublicID, at Moment,
) (stored *Evidence, then AsOf, err error) {
	if stored, err = s.Evidence(ctx, a, id); err != nil {
		return stored, then, err
	}
	then.Sequence = at.Sequence
	switch {
	case at.Sequence > stored.Sequence:
		return stored, then, ErrBeyondHead
	case at.Sequence == 0:
		if then.Sequence, err = findSequence(ctx, s.Pool, sequenceAt, a.Organization, stored.Sequence, at.Time); err != nil {
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
	if stored.Alias != nil {
		id = stored.Alias.AliasOf
	}
	missing := say.New("read the state as of a moment: the events are missing")
	known, err := statement.One(ctx, s.Pool, "read the state as of a moment", missing, pgx.RowToStructByPos[facts],
		loadAsOf,
		a.Organization.Shard(), a.Organization, id, then.Sequence, id.String(), a.Organization.String())
	switch {
	case err != nil:
		return stored, then, err
	case known.Registered > then.Sequence:
		return stored, then, ErrBeforeRecord
	}
	then.Time, then.Status = at.Time, domain.StatusCurrent
	if at.Sequence > 0 {
		then.Time = known.Occurred
	}
	switch {
	case known.Revoked:
		then.Status = domain.StatusRevoked
	case known.Superseded:
		then.Status = domain.StatusSuperseded
	}
	return stored, then, nil
}
