package query

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// NamedOrganization is an organization as an operator sees it; the name is empty once erased.
type NamedOrganization struct {
	domain.Organization
	Name string
}

const organizationColumns = `SELECT ` + projections.OrganizationColumns + `, coalesce(t.body, '')
	FROM organization_state o
	LEFT JOIN texts t ON t.shard = $1 AND t.organization_id = o.organization_id AND t.id = o.name_id
	WHERE o.shard = $1`

// Organizations lists every organization, shard by shard, oldest first within one.
func (s *Store) Organizations(ctx context.Context) ([]NamedOrganization, error) {
	const query = organizationColumns + ` ORDER BY o.organization_id`
	return allShards(ctx, s, "list organizations", scanOrganization, query)
}

// Organization finds one organization, or refuses with NOT_FOUND.
func (s *Store) Organization(ctx context.Context, id domain.OrganizationID) (NamedOrganization, error) {
	const query = organizationColumns + ` AND o.organization_id = $2`
	return statement.One(ctx, s.Pool, "find organization", domain.Refuse(domain.NotFound, "There is no organization with that id."), scanOrganization, query, id.Shard(), id)
}

func scanOrganization(row pgx.CollectableRow) (o NamedOrganization, err error) {
	o.Organization, err = projections.ScanOrganization(row, &o.Name)
	return o, err
}

// MissingPlans lists the plans that organizations have and the table of plans lacks: their limits would be unknown.
func (s *Store) MissingPlans(ctx context.Context) ([]string, error) {
	const query = `SELECT DISTINCT plan FROM organization_state WHERE shard = $1 AND plan <> ALL($2) ORDER BY plan`
	missing, err := allShards(ctx, s, "list plans in use", pgx.RowTo[string], query, s.Plans.Names())
	slices.Sort(missing)
	return slices.Compact(missing), err
}

// Members lists an organization's memberships with their addresses, oldest first.
func (s *Store) Members(ctx context.Context, organization domain.OrganizationID) ([]domain.Member, error) {
	const query = `SELECT m.member_id, m.organization_id, m.email_id, coalesce(t.body, ''), m.role, m.status, m.created_at
		FROM members m
		LEFT JOIN texts t ON t.shard = $1 AND t.organization_id = $2 AND t.id = m.email_id
		WHERE m.shard = $1 AND m.organization_id = $2
		ORDER BY m.member_id`
	return statement.All(ctx, s.Pool, "list members", pgx.RowToStructByPos[domain.Member], query, organization.Shard(), organization)
}

// UsedKey is an API key with the minute of its last use, nil for never. Serving processes write uses down once a
// minute.
type UsedKey struct {
	domain.APIKey
	LastUsedAt *time.Time
}

const keyColumns = `SELECT ` + projections.KeyColumns + `, u.last_used_at
	FROM api_keys k
	LEFT JOIN api_key_uses u ON u.shard = $1 AND u.key_id = k.key_id
	WHERE k.shard = $1`

// Keys lists an organization's API keys, oldest first, revoked and expired ones included.
func (s *Store) Keys(ctx context.Context, organization domain.OrganizationID) ([]UsedKey, error) {
	const query = keyColumns + ` AND k.organization_id = $2 ORDER BY k.key_id`
	return statement.All(ctx, s.Pool, "list keys", pgx.RowToStructByPos[UsedKey], query, organization.Shard(), organization)
}

// Key finds one API key, or refuses with NOT_FOUND.
func (s *Store) Key(ctx context.Context, id domain.KeyID) (UsedKey, error) {
	const query = keyColumns + ` AND k.key_id = $2`
	return statement.One(ctx, s.Pool, "find key", domain.Refuse(domain.NotFound, "There is no API key with that id."), pgx.RowToStructByPos[UsedKey], query, id.Shard(), id)
}

// CompanyByReference finds a company of an organization, with or without grants, or refuses with NOT_FOUND.
func (s *Store) CompanyByReference(ctx context.Context, organization domain.OrganizationID, reference string) (domain.Company, error) {
	const query = `SELECT ` + projections.CompanyColumns + ` FROM companies c
		WHERE c.shard = $1 AND c.organization_id = $2 AND c.reference = $3`
	return statement.One(ctx, s.Pool, "find company", domain.Refuse(domain.NotFound, "This organization has no company with that reference."),
		pgx.RowToStructByPos[domain.Company], query, organization.Shard(), organization, reference)
}
