package projections

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Meters count the requests of a UTC minute. Rows are locked in key order, so that two processes that count the same
// organizations cannot deadlock.
var (
	CountMinutes = cluster.SQL(`INSERT INTO {meters} AS meters (shard, subject, minute, used)
	SELECT s.shard, n.* FROM {shard_heads} s, unnest($2::uuid[], $3::bigint[], $4::bigint[]) AS n(subject, minute, used) WHERE s.shard = $1
	ORDER BY n.subject, n.minute
	ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + excluded.used
	RETURNING subject, minute, used`)

	// ClearMinutes removes the earlier minutes of subjects, except rows that another session has locked. If it fails,
	// the request is still counted, and the next minute removes the remaining rows.
	ClearMinutes = cluster.SQL(`DELETE FROM {meters} m USING (
		SELECT ctid AS place FROM {meters} WHERE shard = $1 AND subject = ANY($2::uuid[]) AND minute < $3 FOR UPDATE SKIP LOCKED
	) d WHERE m.shard = $1 AND m.ctid = d.place`)

	returnMinute = cluster.SQL(`UPDATE {meters} SET used = used - $4 WHERE shard = $1 AND subject = $2 AND minute = $3`)
)

// Count queues the count of a group's requests and sets Used of each count. There must be one count per organization
// and minute.
func Count(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount) {
	b.Queue(CountMinutes, shard,
		column(counts, func(c *domain.MinuteCount) domain.OrganizationID { return c.Organization }),
		column(counts, func(c *domain.MinuteCount) int64 { return c.Minute }),
		column(counts, func(c *domain.MinuteCount) int64 { return int64(c.Requests) })).Query(func(rows pgx.Rows) error {
		var organization domain.OrganizationID
		var minute int64
		var used int
		_, err := pgx.ForEachRow(rows, []any{&organization, &minute, &used}, func() error {
			i := slices.IndexFunc(counts, func(c *domain.MinuteCount) bool {
				return c.Organization == organization && c.Minute == minute
			})
			if i < 0 {
				return fmt.Errorf("a minute of organization %s was counted without a request", organization) //nolint:forbidigo // a bug
			}
			counts[i].Used = used
			return nil
		})
		return err
	})
}

// Refund queues statements that subtract the refused requests from the counts, and that clear earlier minutes if the
// counts began a new one. It locks rows in the same order as Count.
func Refund(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount) {
	counts = slices.SortedFunc(slices.Values(counts), func(a, b *domain.MinuteCount) int {
		return cmp.Or(bytes.Compare(a.Organization[:], b.Organization[:]), cmp.Compare(a.Minute, b.Minute))
	})
	var began []domain.OrganizationID
	oldest := int64(math.MaxInt64)
	for _, c := range counts {
		if c.Refused > 0 {
			b.Queue(returnMinute, shard, c.Organization, c.Minute, c.Refused)
		}
		if c.Used == c.Requests {
			began, oldest = append(began, c.Organization), min(oldest, c.Minute)
		}
	}
	if began != nil {
		b.Queue(ClearMinutes, shard, began, oldest-1)
	}
}
