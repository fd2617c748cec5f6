package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// A new month's first warning replaces those of the month before, which stay in the log.

const updateWarnings = `UPDATE organization_state o SET warned_period = n.period,
		warned_80  = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_80, n.at_80) ELSE n.at_80 END,
		warned_95  = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_95, n.at_95) ELSE n.at_95 END,
		warned_100 = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_100, n.at_100) ELSE n.at_100 END
	FROM (SELECT id, period, at_80, at_95, at_100
		FROM unnest($2::uuid[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[]) AS u(id, period, at_80, at_95, at_100)
		LIMIT cardinality($2::uuid[])) AS n` + atOrganization

// Warnings of versions are columns of organization_state, which every group reads.
const upsertWarnings = `INSERT INTO allowance_warnings AS w (shard, organization_id, allowance, period, at_80, at_95, at_100)
	SELECT s.shard, n.id, $7, n.period, n.at_80, n.at_95, n.at_100
	FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[]) AS n(id, period, at_80, at_95, at_100)
	WHERE s.shard = $1
	ON CONFLICT (shard, organization_id, allowance) DO UPDATE SET period = excluded.period,
		at_80  = CASE WHEN w.period = excluded.period THEN coalesce(w.at_80, excluded.at_80) ELSE excluded.at_80 END,
		at_95  = CASE WHEN w.period = excluded.period THEN coalesce(w.at_95, excluded.at_95) ELSE excluded.at_95 END,
		at_100 = CASE WHEN w.period = excluded.period THEN coalesce(w.at_100, excluded.at_100) ELSE excluded.at_100 END`

func (f *fold) queueWarnings(b *pgx.Batch, shard domain.Shard) {
	for _, a := range domain.Allowances() {
		warned := only(f.organizations.inOrder(), func(o *organizationChange) bool { return o.warned[a].Period != 0 })
		if len(warned) == 0 {
			continue
		}
		reached := func(i int) []*time.Time {
			return column(warned, func(o *organizationChange) *time.Time { return o.warned[a].ReachedAt[i] })
		}
		args := []any{shard, column(warned, idOfChange),
			column(warned, func(o *organizationChange) int32 { return int32(o.warned[a].Period) }), reached(0), reached(1), reached(2)}
		if a == domain.VersionsAllowance {
			b.Queue(updateWarnings, args...)
		} else {
			b.Queue(upsertWarnings, append(args, a.String())...)
		}
	}
}
