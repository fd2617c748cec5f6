package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// grantedCompany is a company that a key may use, and its organization's last sequence.
type grantedCompany struct {
	id   domain.CompanyID
	head int64
}

// grantedCompany finds a company by reference. An unknown one and one without a grant answer alike.
func (s *Store) grantedCompany(ctx context.Context, a domain.Access, reference string) (grantedCompany, error) {
	const query = `SELECT c.company_id, o.sequence
		FROM companies c
		JOIN grants g ON g.shard = $1 AND g.key_id = $2 AND g.company_id = c.company_id AND g.enabled
		JOIN organization_state o ON o.shard = $1 AND o.organization_id = $3
		WHERE c.shard = $1 AND c.organization_id = $3 AND c.reference = $4`
	return statement.One(ctx, s.Pool, "find a granted company", domain.UnauthorizedCompany(), func(row pgx.CollectableRow) (grantedCompany, error) {
		var c grantedCompany
		err := row.Scan(&c.id, &c.head)
		return c, err
	}, query, a.Organization.Shard(), a.Key, a.Organization, reference)
}

// Companies lists up to limit companies after a reference, in the order of their references, and whether more follow:
// those granted to the key, or all of the organization.
func (s *Store) Companies(ctx context.Context, a domain.Access, all bool, after string, limit int) (companies []domain.Company, more bool, err error) {
	const query = `SELECT c.company_id, c.reference, c.created_at
		FROM companies c
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference > $3
			AND ($4 OR EXISTS (SELECT FROM grants g WHERE g.shard = $1 AND g.key_id = $5 AND g.company_id = c.company_id AND g.enabled))
		ORDER BY c.reference LIMIT $6`
	err = s.read(ctx, a, newEnough(a), func(from source) (err error) {
		companies, err = statement.All(ctx, from, "list companies", scanCompany(a.Organization), query, a.Organization.Shard(), a.Organization, after, all, a.Key, limit+1)
		if err != nil || all {
			return err
		}
		return s.stillGranted(ctx, from, a, statement.Column(companies, func(c domain.Company) string { return c.Reference })...)
	})
	if err != nil {
		return nil, false, err
	}
	companies, more = statement.Page(companies, limit)
	return companies, more, nil
}

func scanCompany(organization domain.OrganizationID) pgx.RowToFunc[domain.Company] {
	return func(row pgx.CollectableRow) (domain.Company, error) {
		c := domain.Company{Organization: organization}
		err := row.Scan(&c.ID, &c.Reference, &c.CreatedAt)
		return c, err
	}
}
