package query

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/history"
	"integrityledger/projections/statement"
)

const countMinute = `INSERT INTO meters (shard, subject, minute, used) VALUES ($1, $2, $3, $4)
	ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + $4
	RETURNING used`

// clearMinutes removes the earlier minutes of subjects, except rows that another session has locked. If it fails, the
// request is still counted, and the next minute removes what was left.
const clearMinutes = `DELETE FROM meters m USING (
		SELECT ctid AS place FROM meters WHERE shard = $1 AND subject = ANY($2::uuid[]) AND minute < $3 FOR UPDATE SKIP LOCKED
	) d WHERE m.shard = $1 AND m.ctid = d.place`

// CountMinute counts n requests of a subject (an organization; a key on one path, say), in the UTC minute of now, and
// returns how many it has had in it, these included. The first request of a minute removes all minutes before the
// previous one.
func (s *Store) CountMinute(ctx context.Context, shard domain.Shard, subject [16]byte, n int, now time.Time) (int, error) {
	minute := now.Unix() / 60
	used, _, err := statement.First(ctx, s.Pool, "count a request", pgx.RowTo[int], countMinute, shard, subject, minute, n)
	if err == nil && used == n {
		_ = statement.Exec(ctx, s.Pool, "clear earlier minutes away", clearMinutes, shard, [][16]byte{subject}, minute-1)
	}
	return used, err
}

const countMinutes = `INSERT INTO meters (shard, subject, minute, used)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS n(subject, minute, used) WHERE s.shard = $1
	ORDER BY n.subject, n.minute
	ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + excluded.used
	RETURNING subject, minute, used`

// meter is a row of meters.
type meter struct {
	organization domain.OrganizationID
	minute       int64
}

// meterBatch counts the authenticated requests of a batch and gives each its ordinal.
func meterBatch(ctx context.Context, from history.Querier, shard domain.Shard, batch []*credential) error {
	requests := map[meter][]*credential{}
	for _, c := range batch {
		if c.found && c.counted {
			m := meter{c.access.Organization, c.minute()}
			requests[m] = append(requests[m], c)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	meters := slices.Collect(maps.Keys(requests))
	minutes := statement.Column(meters, func(m meter) int64 { return m.minute })
	rows, _ := from.Query(ctx, countMinutes, shard, statement.Column(meters, func(m meter) domain.OrganizationID { return m.organization }),
		minutes, statement.Column(meters, func(m meter) int64 { return int64(len(requests[m])) }))
	var began []domain.OrganizationID
	var m meter
	var used int
	if _, err := pgx.ForEachRow(rows, []any{&m.organization, &m.minute, &used}, func() error {
		for i, c := range requests[m] {
			c.access.UsedMinute = used - len(requests[m]) + i + 1
		}
		if used == len(requests[m]) {
			began = append(began, m.organization)
		}
		return nil
	}); err != nil || began == nil {
		return err
	}
	rows, _ = from.Query(ctx, clearMinutes, shard, began, slices.Min(minutes)-1)
	rows.Close()
	return nil
}
