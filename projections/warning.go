package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// A new month's first warning puts the old month's away: the log keeps them.
const updateWarnings = `UPDATE organization_state o SET warned_period = n.period,
		warned_80  = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_80, n.at_80) ELSE n.at_80 END,
		warned_95  = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_95, n.at_95) ELSE n.at_95 END,
		warned_100 = CASE WHEN o.warned_period = n.period THEN coalesce(o.warned_100, n.at_100) ELSE n.at_100 END
	FROM (SELECT id, period, at_80, at_95, at_100
		FROM unnest($2::uuid[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[]) AS u(id, period, at_80, at_95, at_100)
		LIMIT cardinality($2::uuid[])) AS n
	WHERE o.shard = $1 AND o.organization_id = n.id`

func (f *fold) queueWarnings(b *pgx.Batch, shard domain.Shard) {
	var ids [][16]byte
	var periods []int32
	var at [3][]*time.Time
	for _, id := range f.organizationOrder {
		w := f.organizations[id].warned
		if w.Period == 0 {
			continue
		}
		ids, periods = append(ids, id), append(periods, int32(w.Period))
		for i := range at {
			at[i] = append(at[i], w.ReachedAt[i])
		}
	}
	if ids != nil {
		b.Queue(updateWarnings, shard, ids, periods, at[0], at[1], at[2])
	}
}
