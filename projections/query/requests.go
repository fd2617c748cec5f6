package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// TakeRequests takes n of the organization's requests of the UTC month of now, all or nothing. The allowance is exact:
// its last request is given once, whatever the number of callers and processes. It refuses with REQUEST_QUOTA_EXHAUSTED
// if fewer than n are left, and with PLAN_REQUIRED if the plan includes no requests. The statement also notes when a
// part of the allowance was reached, once each: queue.RequestWarner turns these notes into events, and a crash in
// between loses nothing.
func (s *Store) TakeRequests(ctx context.Context, a domain.Access, n int, now time.Time) error {
	const take = `INSERT INTO request_usage AS r (shard, organization_id, period, used, reached_80, reached_95, reached_100, limit_80, limit_95, limit_100)
		VALUES ($1, $2, $3, $6::bigint, CASE WHEN 100 * $6 >= 80 * $4::bigint THEN $5::timestamptz END, CASE WHEN 100 * $6 >= 95 * $4 THEN $5 END,
			CASE WHEN $6 >= $4 THEN $5 END, CASE WHEN 100 * $6 >= 80 * $4 THEN $4 END, CASE WHEN 100 * $6 >= 95 * $4 THEN $4 END,
			CASE WHEN $6 >= $4 THEN $4 END)
		ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = r.used + $6,
			reached_80 = coalesce(r.reached_80, CASE WHEN 100 * (r.used + $6) >= 80 * $4 THEN $5 END),
			reached_95 = coalesce(r.reached_95, CASE WHEN 100 * (r.used + $6) >= 95 * $4 THEN $5 END),
			reached_100 = coalesce(r.reached_100, CASE WHEN r.used + $6 >= $4 THEN $5 END),
			limit_80 = coalesce(r.limit_80, CASE WHEN 100 * (r.used + $6) >= 80 * $4 THEN $4 END),
			limit_95 = coalesce(r.limit_95, CASE WHEN 100 * (r.used + $6) >= 95 * $4 THEN $4 END),
			limit_100 = coalesce(r.limit_100, CASE WHEN r.used + $6 >= $4 THEN $4 END)
		WHERE $4 IS NULL OR r.used + $6 <= $4
		RETURNING coalesce($5 IN (reached_80, reached_95, reached_100), false)`
	limit := s.requestsPerMonth(a)
	if limit != nil && *limit == 0 {
		return domain.Refuse(domain.PlanRequired, "The plan %s includes no requests to this part of the service; ask the operator of the service for another plan.", a.Plan)
	}
	period := domain.PeriodOf(now)
	reached, taken, err := false, false, error(nil)
	if limit == nil || int64(n) <= *limit { // the statement does not compare the first row of a month with the limit
		reached, taken, err = statement.First(ctx, s.Pool, "take requests of the month", pgx.RowTo[bool], take,
			a.Organization.Shard(), a.Organization, int32(period), limit, now, n)
	}
	if reached && s.RequestsReached != nil {
		s.RequestsReached(a.Organization.Shard())
	}
	if err == nil && !taken {
		fewer := ""
		if n > 1 {
			fewer = fmt.Sprintf(", or fewer are left than the %d of this batch", n)
		}
		err = &domain.Error{Code: domain.RequestQuotaExhausted, RetryAfter: period.End().Sub(now),
			Message: fmt.Sprintf("The %d requests of this month are used up%s; wait until %s, or ask the operator of the service for another plan.", *limit, fewer, period.End().Format(time.RFC3339))}
	}
	return err
}

// ReturnRequest gives back a request that TakeRequests took at now and that plan or quota then refused. A warning that
// it caused stays: the allowance had been reached.
func (s *Store) ReturnRequest(ctx context.Context, a domain.Access, now time.Time) error {
	const query = `UPDATE request_usage SET used = used - 1 WHERE shard = $1 AND organization_id = $2 AND period = $3 AND used > 0`
	return statement.Exec(ctx, s.Pool, "give a request of the month back", query, a.Organization.Shard(), a.Organization, int32(domain.PeriodOf(now)))
}

// requestsPerMonth is the organization's allowance; nil means none.
func (s *Store) requestsPerMonth(a domain.Access) *int64 {
	return s.Plans.Of(a.Plan, a.Internal).RequestsPerMonth
}

// AccountUsage is an organization's month at the endpoints beside the integrity API.
type AccountUsage struct {
	Requests      domain.Usage
	Registrations domain.Usage
	Credits       int64     // registrations left of file credit packs
	Warnings      []Warning // of both, each in the order of its percentages
}

// AccountUsage reads a month; it takes no request of it.
func (s *Store) AccountUsage(ctx context.Context, a domain.Access, period domain.Period) (u AccountUsage, err error) {
	const requests = `SELECT used FROM request_usage WHERE shard = $1 AND organization_id = $2 AND period = $3`
	args := []any{a.Organization.Shard(), a.Organization, int32(period)}
	u.Requests = domain.Usage{Period: period, Limit: s.requestsPerMonth(a)}
	if u.Requests.Used, _, err = statement.First(ctx, s.Pool, "read the month's requests", pgx.RowTo[int64], requests, args...); err != nil {
		return u, err
	}
	r, err := s.Registrations(ctx, a.Organization, period)
	if err != nil {
		return u, err
	}
	u.Credits = r.Credits
	u.Registrations = domain.Usage{Period: period, Used: r.Used, Limit: s.Plans.Of(a.Plan, a.Internal).RegistrationsPerMonth}
	u.Warnings, err = s.accountWarnings(ctx, a.Organization, period)
	return u, err
}
