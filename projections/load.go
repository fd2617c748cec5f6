package projections

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// How lists become look-ups: while PostgreSQL's statistics still say that the tables are nearly empty, it would read a
// whole shard and filter it by the list. A LATERAL subquery with OFFSET 0 is planned on its own, with the full key, so
// it is always one descent of one index per element.

const loadOrganizations = `SELECT o.organization_id, o.sequence, o.name_id, o.plan, o.internal, o.per_minute, o.companies, o.created_at,
		o.unfinalized, o.unfinalized_limit, o.warned_period, o.warned_80, o.warned_95, o.warned_100
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT organization_id, sequence, name_id, plan, internal, per_minute, companies, created_at,
			unfinalized, unfinalized_limit, warned_period, warned_80, warned_95, warned_100 FROM organization_state
		WHERE shard = $1 AND organization_id = n.id OFFSET 0) o ON true`

const loadTotals = `SELECT u.organization_id, u.period, u.company_id, u.used
	FROM unnest($2::uuid[]) AS n(id) CROSS JOIN unnest($3::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, company_id, used FROM usage
		WHERE shard = $1 AND organization_id = n.id AND period = p.period
			AND company_id = '00000000-0000-0000-0000-000000000000' OFFSET 0) u ON true`

const loadCompanies = `SELECT c.company_id, c.organization_id, c.reference, c.created_at, c.webhooks > 0
	FROM unnest($2::uuid[], $3::text[]) AS n(organization_id, reference)
	JOIN LATERAL (SELECT company_id, organization_id, reference, created_at, webhooks FROM companies
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.reference OFFSET 0) c ON true`

const loadContributions = `SELECT u.organization_id, u.period, u.company_id, u.used
	FROM unnest($2::uuid[], $3::text[]) AS n(organization_id, reference)
	JOIN LATERAL (SELECT company_id FROM companies
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.reference OFFSET 0) c ON true
	CROSS JOIN unnest($4::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, company_id, used FROM usage
		WHERE shard = $1 AND organization_id = n.organization_id AND period = p.period AND company_id = c.company_id OFFSET 0) u ON true`

const loadDeclarations = `SELECT n.key_id, c.company_id, coalesce(g.enabled, false), n.source, n.reference,
		d.document_id, d.highest_version, d.highest_revoked, h.public_id,
		i.version, i.public_id, i.record_id, i.previous_version, i.sha256, i.size_bytes, i.mime_type, i.generated_at,
		i.received_at, i.revoked_at, i.expires_at, c.organization_id
	FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::int[])
		AS n(organization_id, key_id, company, source, reference, version)
	JOIN LATERAL (SELECT company_id, organization_id FROM companies
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.company OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT enabled FROM grants
		WHERE shard = $1 AND key_id = n.key_id AND company_id = c.company_id OFFSET 0) g ON true
	LEFT JOIN LATERAL (SELECT document_id, highest_version, highest_revoked FROM documents
		WHERE shard = $1 AND company_id = c.company_id AND source = n.source AND reference = n.reference OFFSET 0) d ON true
	LEFT JOIN LATERAL (SELECT public_id FROM versions
		WHERE shard = $1 AND document_id = d.document_id AND version = d.highest_version OFFSET 0) h ON true
	LEFT JOIN LATERAL (SELECT version, public_id, record_id, previous_version, sha256, size_bytes, mime_type, generated_at,
			received_at, revoked_at, expires_at FROM versions
		WHERE shard = $1 AND document_id = d.document_id AND version = n.version OFFSET 0) i ON true`

const loadRecords = `SELECT n.key_id, c.company_id, coalesce(g.enabled, false), d.source, d.reference,
		d.document_id, d.highest_version, d.highest_revoked, h.public_id,
		i.version, i.public_id, i.record_id, i.previous_version, i.sha256, i.size_bytes, i.mime_type, i.generated_at,
		i.received_at, i.revoked_at, i.expires_at, c.organization_id, c.reference, c.created_at, c.webhooks > 0
	FROM unnest($2::uuid[], $3::uuid[]) AS n(key_id, public_id)
	JOIN LATERAL (SELECT document_id, version, public_id, record_id, previous_version, sha256, size_bytes, mime_type, generated_at,
			received_at, revoked_at, expires_at FROM versions WHERE shard = $1 AND public_id = n.public_id OFFSET 0) i ON true
	JOIN LATERAL (SELECT document_id, company_id, source, reference, highest_version, highest_revoked FROM documents
		WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT company_id, organization_id, reference, created_at, webhooks FROM companies
		WHERE shard = $1 AND company_id = d.company_id OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT public_id FROM versions
		WHERE shard = $1 AND document_id = d.document_id AND version = d.highest_version OFFSET 0) h ON true
	LEFT JOIN LATERAL (SELECT enabled FROM grants
		WHERE shard = $1 AND key_id = n.key_id AND company_id = d.company_id OFFSET 0) g ON true`

const loadCompanyIDs = `SELECT c.company_id, c.organization_id, c.reference, c.created_at, c.webhooks > 0
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT company_id, organization_id, reference, created_at, webhooks FROM companies
		WHERE shard = $1 AND company_id = n.id OFFSET 0) c ON true`

const loadKeys = `SELECT k.key_id, k.organization_id, k.member_id, k.scopes, k.source, k.network, k.max_version_step,
		k.created_at, k.expires_at, k.revoked_at, m.email_id, m.role, m.status, m.created_at
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT key_id, organization_id, member_id, scopes, source, network, max_version_step, created_at, expires_at,
			revoked_at FROM api_keys WHERE shard = $1 AND key_id = n.id OFFSET 0) k ON true
	JOIN LATERAL (SELECT email_id, role, status, created_at FROM members
		WHERE shard = $1 AND organization_id = k.organization_id AND member_id = k.member_id OFFSET 0) m ON true`

const loadKeyGrants = `SELECT g.key_id, g.company_id, g.enabled
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT key_id, company_id, enabled FROM grants WHERE shard = $1 AND key_id = n.id OFFSET 0) g ON true`

const loadMembers = `SELECT m.member_id, m.organization_id, m.email_id, coalesce(t.body, ''), m.role, m.status, m.created_at
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT member_id, organization_id, email_id, role, status, created_at FROM members
		WHERE shard = $1 AND organization_id = n.id OFFSET 0) m ON true
	LEFT JOIN LATERAL (SELECT body FROM texts
		WHERE shard = $1 AND organization_id = m.organization_id AND id = m.email_id OFFSET 0) t ON true`

// The group's decision time is never before the shard's last event, so a reservation that had expired by then is
// expired in the group, whatever the clocks say. The limit of reservations held then, so it bounds the rows that this
// reads of an organization.
const loadPending = `SELECT i.organization_id, i.public_id, i.expires_at
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT organization_id, public_id, expires_at FROM versions
		WHERE shard = $1 AND organization_id = n.id AND record_id IS NULL
			AND expires_at > (SELECT occurred_at FROM shard_heads WHERE shard = $1) OFFSET 0) i ON true`

// Load queues the queries of a group's first round trip: everything that its commands need, and every organization with
// its usage of this and the neighbouring months (the decision may fall on the other side of midnight). The state covers
// these months: a group that is decided in another month is refused.
func Load(b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time, s *domain.State) {
	period := domain.PeriodOf(now)
	periods := []int32{int32(period.Previous()), int32(period), int32(period.Next())}
	s.Cover(period.Previous(), period, period.Next())

	queueOrganizationNeeds(b, shard, organizations, needs, periods, s)
	addCompany := func(rows pgx.Rows) error {
		var c domain.Company
		err := rows.Scan(&c.ID, &c.Organization, &c.Reference, &c.CreatedAt, &c.HasWebhooks)
		s.AddCompany(c)
		return err
	}
	queueVersionNeeds(b, shard, needs, periods, addCompany, s)
	loadCertification(b, shard, needs.Certification, periods, s)
	queueLinkNeeds(b, shard, needs, s)
	lookUp(b, shard, loadCompanyIDs, needs.CompanyIDs, addCompany)
	queueKeyNeeds(b, shard, needs, s)
	queueWebhookNeeds(b, shard, needs, s)
}

// queueOrganizationNeeds reads the organizations of the commands, and what their months have used up.
func queueOrganizationNeeds(b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, periods []int32, s *domain.State) {
	lookUp(b, shard, loadOrganizations, organizations, func(rows pgx.Rows) error {
		var o domain.Organization
		w := &o.Warned[domain.VersionsAllowance]
		err := rows.Scan(&o.ID, &o.Sequence, &o.NameID, &o.Plan, &o.Internal, &o.PerMinute, &o.Companies, &o.CreatedAt,
			&o.Unfinalized, &o.UnfinalizedLimit, (*int32)(&w.Period), &w.ReachedAt[0], &w.ReachedAt[1], &w.ReachedAt[2])
		s.AddOrganization(o)
		return err
	})
	if needs.Totals || len(needs.Declarations) > 0 {
		lookUp(b, shard, loadTotals, organizations, addUsageTo(s), periods)
	}
	if len(needs.Requests) > 0 || len(needs.Certification.Accounts) > 0 {
		queueWarningNeeds(b, shard, organizations, s)
	}
	queueRequestNeeds(b, shard, needs.Requests, periods, s)
}

func addUsageTo(s *domain.State) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var k domain.UsageKey
		var used int64
		err := rows.Scan(&k.Organization, (*int32)(&k.Period), &k.Company, &used)
		s.AddUsage(k, used)
		return err
	}
}

// queueVersionNeeds reads companies by their references, what they contributed to the months, and versions with their
// documents and grants: by what their origin calls them, by public id, and those that are only reserved.
func queueVersionNeeds(b *pgx.Batch, shard domain.Shard, needs domain.Needs, periods []int32, addCompany func(pgx.Rows) error, s *domain.State) {
	companies := slices.Clone(needs.Companies)
	for _, n := range needs.Declarations {
		companies = append(companies, domain.CompanyNeed{Organization: n.Organization, Reference: n.CompanyReference})
	}
	if companies = distinct(companies); len(companies) > 0 {
		owners := column(companies, func(n domain.CompanyNeed) domain.OrganizationID { return n.Organization })
		references := column(companies, func(n domain.CompanyNeed) string { return n.Reference })
		b.Queue(loadCompanies, shard, owners, references).Query(each(addCompany))
		if len(needs.Declarations) > 0 {
			b.Queue(loadContributions, shard, owners, references, periods).Query(each(addUsageTo(s)))
		}
	}
	if list := needs.Declarations; len(list) > 0 {
		b.Queue(loadDeclarations, shard,
			column(list, func(d domain.DeclarationNeed) domain.OrganizationID { return d.Organization }),
			column(list, func(d domain.DeclarationNeed) domain.KeyID { return d.Key }),
			column(list, func(d domain.DeclarationNeed) string { return d.CompanyReference }),
			column(list, func(d domain.DeclarationNeed) string { return d.Source }),
			column(list, func(d domain.DeclarationNeed) string { return d.DocumentReference }),
			column(list, func(d domain.DeclarationNeed) int32 { return d.Version }),
		).Query(each(func(rows pgx.Rows) error { return scanVersion(rows, s, nil) }))
	}
	if list := needs.Records; len(list) > 0 {
		b.Queue(loadRecords, shard,
			column(list, func(r domain.RecordNeed) domain.KeyID { return r.Key }),
			column(list, func(r domain.RecordNeed) domain.PublicID { return r.PublicID }),
		).Query(each(func(rows pgx.Rows) error { return scanVersion(rows, s, &domain.Company{}) }))
	}
	lookUp(b, shard, loadPending, needs.Pending, func(rows pgx.Rows) error {
		var o domain.OrganizationID
		var id domain.PublicID
		var expires time.Time
		err := rows.Scan(&o, &id, &expires)
		s.AddPending(o, id, expires)
		return err
	})
}

// queueKeyNeeds reads members, API keys and their grants.
func queueKeyNeeds(b *pgx.Batch, shard domain.Shard, needs domain.Needs, s *domain.State) {
	lookUp(b, shard, loadMembers, needs.Members, func(rows pgx.Rows) error {
		var m domain.Member
		err := rows.Scan(&m.ID, &m.Organization, &m.EmailID, &m.Email, &m.Role, &m.Status, &m.CreatedAt)
		s.AddMember(m)
		return err
	})
	// The member of a key comes without the address, so after the members that come with it.
	lookUp(b, shard, loadKeys, needs.Keys, func(rows pgx.Rows) error {
		var k domain.APIKey
		var m domain.Member
		err := rows.Scan(&k.ID, &k.Organization, &k.Member, &k.Scopes, &k.Source,
			&k.Network, &k.MaxVersionStep, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &m.EmailID, &m.Role, &m.Status, &m.CreatedAt)
		m.ID, m.Organization = k.Member, k.Organization
		s.AddKey(k)
		s.AddMember(m)
		return err
	})
	lookUp(b, shard, loadKeyGrants, needs.KeyGrants, func(rows pgx.Rows) error {
		var key domain.KeyID
		var company domain.CompanyID
		var enabled bool
		err := rows.Scan(&key, &company, &enabled)
		s.AddGrant(key, company, enabled)
		return err
	})
}

// scanVersion reads a row of the grant, the document and the version, whose columns are NULL without a document or a
// version. The row ends with the organization and, where company is not nil, with the rest of the company.
func scanVersion(rows pgx.Rows, s *domain.State, company *domain.Company) error {
	var key domain.KeyID
	var granted bool
	var d domain.Document
	var documentID *domain.DocumentID
	var publicID, highestID *domain.PublicID
	var recordID *domain.RecordID
	var highest, version, previous *int32
	var highestRevoked *bool
	var sum []byte
	var size *int64
	var mime, generated *string
	var received, revoked, expires *time.Time
	targets := []any{
		&key, &d.Company, &granted, &d.Source, &d.Reference, &documentID, &highest, &highestRevoked, &highestID,
		&version, &publicID, &recordID, &previous, &sum, &size, &mime, &generated, &received, &revoked, &expires, &d.Organization,
	}
	if company != nil {
		targets = append(targets, &company.Reference, &company.CreatedAt, &company.HasWebhooks)
	}
	if err := rows.Scan(targets...); err != nil {
		return err
	}
	s.AddGrant(key, d.Company, granted)
	if company != nil {
		company.ID, company.Organization = d.Company, d.Organization
		s.AddCompany(*company)
	}
	if documentID == nil {
		return nil
	}
	d.ID, d.Highest, d.HighestRevoked = *documentID, *highest, *highestRevoked
	if highestID != nil {
		d.HighestPublicID = *highestID
	}
	document := s.AddDocument(d)
	if version == nil {
		return nil
	}
	v := domain.Version{Document: document, Version: *version, PublicID: *publicID}
	if recordID == nil {
		v.ExpiresAt = *expires
	} else {
		v.RecordID, v.PreviousVersion, v.ReceivedAt, v.RevokedAt = *recordID, previous, *received, revoked
		v.SizeBytes, v.MimeType, v.GeneratedAt = *size, *mime, *generated
		copy(v.SHA256[:], sum)
	}
	s.AddVersion(v)
	return nil
}

// lookUp queues a query of rows by their ids, of which the second argument is the list; no ids, no query.
func lookUp[T comparable](b *pgx.Batch, shard domain.Shard, sql string, ids []T, scan func(pgx.Rows) error, more ...any) {
	if len(ids) > 0 {
		b.Queue(sql, append([]any{shard, distinct(ids)}, more...)...).Query(each(scan))
	}
}

// each calls scan for every row of a queued query.
func each(scan func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// distinct keeps the first of each id.
func distinct[T comparable](ids []T) []T {
	seen := make(map[T]bool, 1)
	var out []T
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
