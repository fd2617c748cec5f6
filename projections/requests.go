package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// TakeRequests takes n of the organization's requests of the UTC month in which
// now falls, all or none, exactly: the last one is given once, whatever the number of
// callers and processes. A month without n left is refused with
// REQUEST_QUOTA_EXHAUSTED, a plan that has none with PLAN_REQUIRED; both take
// nothing. The statement also notes when a part of the allowance was reached, once each.
func (s *Store) TakeRequests(ctx context.Context, a domain.Access, n int, now time.Time) error {
	const take = `INSERT INTO request_usage AS r (shard, organization_id, period, used, reached_80, reached_95, reached_100)
		VALUES ($1, $2, $3, $6::bigint, CASE WHEN 100 * $6 >= 80 * $4::bigint THEN $5::timestamptz END, CASE WHEN 100 * $6 >= 95 * $4 THEN $5 END,
			CASE WHEN $6 >= $4 THEN $5 END)
		ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = r.used + $6,
			reached_80 = coalesce(r.reached_80, CASE WHEN 100 * (r.used + $6) >= 80 * $4 THEN $5 END),
			reached_95 = coalesce(r.reached_95, CASE WHEN 100 * (r.used + $6) >= 95 * $4 THEN $5 END),
			reached_100 = coalesce(r.reached_100, CASE WHEN r.used + $6 >= $4 THEN $5 END)
		WHERE $4 IS NULL OR r.used + $6 <= $4
		RETURNING used`
	limit := s.requestsPerMonth(a)
	if limit != nil && *limit == 0 {
		return domain.Refuse(domain.PlanRequired, "The plan %s includes no requests to this part of the service.", a.Plan)
	}
	period := domain.PeriodOf(now)
	taken, err := false, error(nil)
	if limit == nil || int64(n) <= *limit { // of a month's first row nothing else judges it
		_, taken, err = first(ctx, s.Pool, "take requests of the month", pgx.RowTo[int64], take,
			a.Organization.Shard(), [16]byte(a.Organization), int32(period), limit, now, n)
	}
	if err == nil && !taken {
		fewer := ""
		if n > 1 {
			fewer = fmt.Sprintf(", or fewer are left than the %d of this batch", n)
		}
		err = &domain.Error{Code: domain.RequestQuotaExhausted, RetryAfter: period.End().Sub(now),
			Message: fmt.Sprintf("The %d requests of this month are used up%s; wait until %s, or ask for another plan.", *limit, fewer, period.End().Format(time.RFC3339))}
	}
	return err
}

// ReturnRequest gives back a request that TakeRequest took at now, because it was
// refused by plan or quota after all. A warning that it gave reason for stays: the
// allowance had been reached.
func (s *Store) ReturnRequest(ctx context.Context, a domain.Access, now time.Time) error {
	const query = `UPDATE request_usage SET used = used - 1 WHERE shard = $1 AND organization_id = $2 AND period = $3 AND used > 0`
	return s.settle(ctx, "give a request of the month back", query, a.Organization.Shard(), [16]byte(a.Organization), int32(domain.PeriodOf(now)))
}

// requestsPerMonth is the organization's allowance; nil means none.
func (s *Store) requestsPerMonth(a domain.Access) *int64 {
	if a.Internal {
		return nil
	}
	return s.Plans[a.Plan].RequestsPerMonth
}

// AccountUsage is an organization's month at the endpoints beside the integrity API.
type AccountUsage struct {
	Requests      domain.Usage
	Registrations domain.Usage
	Credits       int64     // registrations left of file credit packs
	Warnings      []Warning // of the requests, in the order of their percentages
}

// AccountUsage reads a month; it takes no request of it.
func (s *Store) AccountUsage(ctx context.Context, a domain.Access, period domain.Period) (AccountUsage, error) {
	const query = `SELECT used, reached_80, reached_95, reached_100 FROM request_usage
		WHERE shard = $1 AND organization_id = $2 AND period = $3`
	u, _, err := first(ctx, s.Pool, "read the month's requests", func(row pgx.CollectableRow) (AccountUsage, error) {
		var u AccountUsage
		var reached [3]*time.Time
		err := row.Scan(&u.Requests.Used, &reached[0], &reached[1], &reached[2])
		for i, percent := range domain.WarningPercents() {
			if reached[i] != nil {
				u.Warnings = append(u.Warnings, Warning{percent, reached[i].UTC()})
			}
		}
		return u, err
	}, query, a.Organization.Shard(), [16]byte(a.Organization), int32(period))
	u.Requests.Period, u.Requests.Limit = period, s.requestsPerMonth(a)
	if err != nil {
		return u, err
	}
	r, err := s.Registrations(ctx, a.Organization, period)
	u.Registrations, u.Credits = domain.Usage{Period: period, Used: r.Used}, r.Credits
	if !a.Internal {
		u.Registrations.Limit = s.Plans[a.Plan].RegistrationsPerMonth
	}
	return u, err
}
