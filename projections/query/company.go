package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// grantedCompany is a company that a key may use, and its organization's last sequence.
type grantedCompany struct {
	ID   domain.CompanyID
	Head int64
}

// grantedCompany finds a company by reference. An unknown one and one without a grant answer alike.
func (s *Store) grantedCompany(ctx context.Context, a domain.Access, reference string) (grantedCompany, error) {
	const query = `SELECT c.company_id, o.sequence
		FROM companies c
		JOIN grants g ON g.shard = $1 AND g.key_id = $2 AND g.company_id = c.company_id AND g.enabled
		JOIN organization_state o ON o.shard = $1 AND o.organization_id = $3
		WHERE c.shard = $1 AND c.organization_id = $3 AND c.reference = $4`
	return statement.One(ctx, s.Pool, "find a granted company", domain.ErrUnauthorizedCompany, pgx.RowToStructByPos[grantedCompany], query,
		a.Organization.Shard(), a.Key, a.Organization, reference)
}

// Companies lists up to limit companies after a reference, in the order of their references, and whether more follow:
// those granted to the key, or all of the organization.
func (s *Store) Companies(ctx context.Context, a domain.Access, all bool, after string, limit int) (companies []domain.Company, more bool, err error) {
	const query = `SELECT ` + projections.CompanyColumns + ` FROM companies c
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference > $3
			AND ($4 OR EXISTS (SELECT FROM grants g WHERE g.shard = $1 AND g.key_id = $5 AND g.company_id = c.company_id AND g.enabled))
		ORDER BY c.reference LIMIT $6`
	companies, err = read(ctx, s, a, newEnough(a), func(from source) ([]domain.Company, error) {
		list, err := statement.All(ctx, from, "list companies", pgx.RowToStructByPos[domain.Company], query,
			a.Organization.Shard(), a.Organization, after, all, a.Key, limit+1)
		if err == nil && !all {
			err = s.stillGranted(ctx, from, a, statement.Column(list, func(c domain.Company) string { return c.Reference })...)
		}
		return list, err
	})
	return statement.Page(companies, limit, err)
}
