package projections

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// IntegrityUsage is an organization's month and what each company that the key
// may use contributed to it.
type IntegrityUsage struct {
	Plan      string
	Total     domain.Usage
	Companies []CompanyUsage
}

// CompanyUsage is one company's contribution of new versions.
type CompanyUsage struct {
	CompanyReference string
	Used             int64
}

// Usage reads the new versions of a month.
func (s *Store) Usage(ctx context.Context, a domain.Access, period domain.Period) (IntegrityUsage, error) {
	const total = `SELECT o.plan, o.internal, coalesce(u.used, 0)
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
		err := row.Scan(&u.Plan, &internal, &u.Total.Used)
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
