package query

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// errNoOrganization is a fault of the database: whoever asks has authenticated as the organization.
var errNoOrganization = errors.New("the organization does not exist")

// IntegrityUsage is an organization's month and what each company that the key may use has contributed.
type IntegrityUsage struct {
	Plan      string
	Total     domain.Usage
	Warnings  []Warning // of the month, in the order of their percentages
	Companies []CompanyUsage
}

// Warning is a part of one of the month's allowances that was reached.
type Warning struct {
	Allowance domain.Allowance
	Percent   int
	ReachedAt time.Time
}

// warningsIn lists what an organization was warned of in a month.
func warningsIn(o *domain.Organization, period domain.Period, allowances ...domain.Allowance) (list []Warning) {
	for _, a := range allowances {
		w := o.Warned[a].In(period)
		for i, percent := range domain.WarningPercents() {
			if w.ReachedAt[i] != nil {
				list = append(list, Warning{a, percent, *w.ReachedAt[i]})
			}
		}
	}
	return list
}

// accountWarnings reads the warnings of all allowances except versions.
func (s *Store) accountWarnings(ctx context.Context, id domain.OrganizationID, period domain.Period) ([]Warning, error) {
	const query = `SELECT ` + projections.WarningColumns + ` FROM allowance_warnings WHERE shard = $1 AND organization_id = $2`
	var o domain.Organization
	known, err := statement.All(ctx, s.Pool, "read warnings", projections.ScanWarnings, query, id.Shard(), id)
	for _, w := range known {
		o.Warned[w.Allowance] = w.Warnings
	}
	return warningsIn(&o, period, domain.RequestsAllowance, domain.RegistrationsAllowance), err
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
	answer, err := statement.One(ctx, s.Pool, "read usage", errNoOrganization, func(row pgx.CollectableRow) (IntegrityUsage, error) {
		u := IntegrityUsage{Total: domain.Usage{Period: period}}
		var internal bool
		var o domain.Organization
		w := &o.Warned[domain.VersionsAllowance]
		err := row.Scan(&u.Plan, &internal, &u.Total.Used, &w.Period, &w.ReachedAt[0], &w.ReachedAt[1], &w.ReachedAt[2])
		u.Warnings = warningsIn(&o, period, domain.VersionsAllowance)
		u.Total.Limit = s.Plans.Of(u.Plan, internal).VersionsPerMonth
		return u, err
	}, total, a.Organization.Shard(), a.Organization, int32(period))
	if err != nil {
		return answer, err
	}
	answer.Companies, err = statement.All(ctx, s.Pool, "read usage of companies", pgx.RowToStructByPos[CompanyUsage], companies, a.Organization.Shard(), a.Organization, int32(period), a.Key)
	return answer, err
}
