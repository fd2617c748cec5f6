package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const loadRequests = `SELECT u.organization_id, u.period, u.used, u.reached_80, u.reached_95, u.reached_100, u.limit_80, u.limit_95, u.limit_100
	FROM unnest($2::uuid[]) AS n(id) CROSS JOIN unnest($3::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, used, reached_80, reached_95, reached_100, limit_80, limit_95, limit_100 FROM request_usage
		WHERE shard = $1 AND organization_id = n.id AND period = p.period OFFSET 0) u ON true`

func queueRequestNeeds(b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, periods []int32, s *domain.State) {
	lookUp(b, shard, loadRequests, organizations, func(rows pgx.Rows) error {
		var id domain.OrganizationID
		var period domain.Period
		var u domain.RequestUsage
		err := rows.Scan(&id, (*int32)(&period), &u.Used, &u.ReachedAt[0], &u.ReachedAt[1], &u.ReachedAt[2],
			&u.Limits[0], &u.Limits[1], &u.Limits[2])
		s.AddRequests(id, period, u)
		return err
	}, periods)
}
