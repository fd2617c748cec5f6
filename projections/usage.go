package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// IntegrityUsage is an organization's month and what each company that the key
// may use contributed to it.
type IntegrityUsage struct {
	Plan      string
	Total     domain.Usage
	Warnings  []Warning // of the month, in the order of their percentages
	Companies []CompanyUsage
}

// Warning is a part of the month's allowance that was reached.
type Warning struct {
	Percent   int
	ReachedAt time.Time
}

// CompanyUsage is one company's contribution of new versions.
type CompanyUsage struct {
	CompanyReference string
	Used             int64
}

// Usage reads the new versions of a month.
func (s *Store) Usage(ctx context.Context, a domain.Access, period domain.Period) (IntegrityUsage, error) {
	const total = `SELECT o.plan, o.internal, coalesce(u.used, 0),
			o.warned_period, o.warned_80, o.warned_95, o.warned_100
		FROM organization_state o
		LEFT JOIN usage u ON u.shard = $1 AND u.organization_id = $2 AND u.period = $3
			AND u.company_id = '00000000-0000-0000-0000-000000000000'
		WHERE o.shard = $1 AND o.organization_id = $2`
	const companies = `SELECT c.reference, coalesce(u.used, 0)
		FROM grants g
		JOIN companies c ON c.shard = $1 AND c.company_id = g.company_id
		LEFT JOIN usage u ON u.shard = $1 AND u.organization_id = $2 AND u.period = $3 AND u.company_id = g.company_id
		WHERE g.shard = $1 AND g.key_id = $4 AND g.enabled
		ORDER BY c.reference`
	answer, found, err := first(ctx, s.Pool, "read usage", func(row pgx.CollectableRow) (IntegrityUsage, error) {
		u := IntegrityUsage{Total: domain.Usage{Period: period}}
		var internal bool
		var w domain.Warnings
		err := row.Scan(&u.Plan, &internal, &u.Total.Used, (*int32)(&w.Period), &w.ReachedAt[0], &w.ReachedAt[1], &w.ReachedAt[2])
		w = w.In(period)
		for i, percent := range domain.WarningPercents() {
			if w.ReachedAt[i] != nil {
				u.Warnings = append(u.Warnings, Warning{percent, w.ReachedAt[i].UTC()})
			}
		}
		u.Total.Limit = s.Plans.Versions(u.Plan, internal)
		return u, err
	}, total, a.Organization.Shard(), [16]byte(a.Organization), int32(period))
	if err != nil {
		return answer, err
	}
	if !found {
		return answer, fmt.Errorf("read usage: organization %s does not exist", a.Organization)
	}
	answer.Companies, err = collect(ctx, s.Pool, "read usage of companies", func(row pgx.CollectableRow) (CompanyUsage, error) {
		var u CompanyUsage
		err := row.Scan(&u.CompanyReference, &u.Used)
		return u, err
	}, companies, a.Organization.Shard(), [16]byte(a.Organization), int32(period), [16]byte(a.Key))
	return answer, err
}
