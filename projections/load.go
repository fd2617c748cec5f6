package projections

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// How lists become lookups: while PostgreSQL's statistics still say that the tables are nearly empty, it would scan a
// whole shard and filter it by the list. A LATERAL subquery with OFFSET 0 is planned separately, with the full key, so
// it is always one index descent per element.
const (
	eachID    = `SELECT r.* FROM unnest($2::uuid[]) AS n(id) JOIN LATERAL (SELECT `
	eachMonth = `SELECT r.* FROM unnest($2::uuid[]) AS n(id) CROSS JOIN unnest($3::int[]) AS p(period) JOIN LATERAL (SELECT `
	atItsKey  = ` OFFSET 0) r ON true`
)

// Columns in the order of the domain's types. Readers use them, too.
const (
	OrganizationColumns = `o.organization_id, o.sequence, o.name_id, o.plan, o.internal, o.per_minute, o.companies, o.created_at,
		o.unfinalized, o.unfinalized_limit, o.warned_period, o.warned_limit, o.warned_80, o.warned_95, o.warned_100,
		coalesce(o.warned_used_80, 0), coalesce(o.warned_used_95, 0), coalesce(o.warned_used_100, 0)`
	WarningColumns = `organization_id, allowance, period, of_limit, ARRAY[at_80, at_95, at_100] AS reached_at,
		ARRAY[coalesce(used_80, 0), coalesce(used_95, 0), coalesce(used_100, 0)] AS used`
	AdministeredColumns = `organization_id, day, used`
	CompanyColumns      = `c.company_id, c.organization_id, c.reference, c.created_at, c.webhooks > 0, c.closed_at`
	KeyColumns          = `k.key_id, k.organization_id, k.member_id, k.scopes, k.source, k.networks[1], k.max_version_step,
		CASE WHEN cardinality(k.networks) > 1 THEN k.networks END, k.created_by, k.created_at, k.expires_at, k.revoked_at`
	// MemberColumns lists the columns of a member and of the text t of its address.
	MemberColumns = `m.member_id, m.organization_id, m.email_id, coalesce(t.body, ''), m.role, m.status, m.created_at,
		m.invitation_sha256, m.invited_until`
	LinkColumns = `l.link_id, l.organization_id, l.member_id, l.secret_sha256, l.scopes, l.created_at, l.expires_at,
		l.subject, l.consented, l.linked_at, l.withdrawn_at`
	PasskeyColumns = `p.passkey_id, p.organization_id, p.member_id, p.credential_id, p.public_key, p.transports, p.backup_eligible, p.created_at` //nolint:gosec // names of columns
	// PublisherDomainColumns lists the columns of a domain and of its text t.
	PublisherDomainColumns = `p.statement_id, p.organization_id, p.domain_id, coalesce(t.body, ''), p.added_at, p.method, p.checked_at,
		p.failed_days, p.failed_at, p.lapsed_at`
	PublisherNameColumns = `p.statement_id, p.organization_id, p.name_id, coalesce(t.body, ''), p.member_id, p.stated_at`
	WebhookColumns       = `w.webhook_id, w.organization_id, w.url_id, u.salt, coalesce(u.body, ''), w.description_id, d.salt, d.body,
		w.types, w.status, w.disabled_reason, w.secret, w.previous_secret, w.previous_until, w.created_at, w.updated_at`
	WebhookTexts = `
	JOIN LATERAL (SELECT salt, body FROM {texts}
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.url_id OFFSET 0) u ON true
	LEFT JOIN LATERAL (SELECT salt, coalesce(body, '') AS body FROM {texts}
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.description_id OFFSET 0) d ON true`
)

const (
	loadMeter = eachMonth + `organization_id, period, used, ARRAY[reached_80, reached_95, reached_100] AS reached_at, ARRAY[limit_80, limit_95, limit_100] AS limits
		FROM {%s} WHERE shard = $1 AND organization_id = n.id AND period = p.period` + atItsKey

	memberOwn = `
	JOIN LATERAL (SELECT member_id, organization_id, email_id, role, status, created_at, invitation_sha256, invited_until FROM {members}
		WHERE shard = $1 AND organization_id = `
	memberAddress = ` OFFSET 0) m ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = m.organization_id AND id = m.email_id OFFSET 0) t ON true`
)

var (
	loadOrganizations = cluster.SQL(
		eachID + OrganizationColumns + ` FROM {organization_state} o WHERE shard = $1 AND organization_id = n.id` + atItsKey,
	)
	loadTotals = cluster.SQL(eachMonth + `organization_id, period, company_id, used FROM {usage}
		WHERE shard = $1 AND organization_id = n.id AND period = p.period AND company_id = '00000000-0000-0000-0000-000000000000'` + atItsKey)
	// FindWarnings reads the warnings of organizations about all allowances except versions.
	FindWarnings = cluster.SQL(
		eachID + WarningColumns + ` FROM {allowance_warnings} WHERE shard = $1 AND organization_id = n.id` + atItsKey,
	)
	loadBackfills = cluster.SQL(eachID + `organization_id, sequence, versions, used FROM {backfills}
		WHERE shard = $1 AND organization_id = n.id ORDER BY sequence DESC LIMIT 1` + atItsKey)
	loadCompanyIDs = cluster.SQL(eachID + CompanyColumns + ` FROM {companies} c
		WHERE shard = $1 AND company_id = n.id` + atItsKey)
	loadAdministered = cluster.SQL(
		eachID + AdministeredColumns + ` FROM {administrative_usage} WHERE shard = $1 AND organization_id = n.id` + atItsKey,
	)
	loadAliases = cluster.SQL(eachID + `public_id, alias_of FROM {aliases} WHERE shard = $1 AND public_id = n.id` + atItsKey)
	loadLinks   = cluster.SQL(eachID + LinkColumns + ` FROM {oauth_links} l
		WHERE shard = $1 AND link_id = n.id` + atItsKey)
	loadPasskeys = cluster.SQL(
		eachID + PasskeyColumns + ` FROM {passkeys} p WHERE shard = $1 AND member_id = n.id AND removed_at IS NULL` +
			atItsKey,
	)
	loadWebhookAccess = cluster.SQL(
		eachID + `company_id, webhook_id FROM {company_webhooks} WHERE shard = $1 AND company_id = n.id AND enabled` +
			atItsKey,
	)
	// The group's decision time is never before the shard's last event, so a reservation that had expired by then is
	// expired in the group, whatever the clocks say. The limit of reservations applied then, so it bounds the rows read
	// per organization. A released reservation is never active, even if the clock was set back.
	loadPending = cluster.SQL(eachID + `organization_id, public_id, CASE WHEN released_at = expires_at THEN 'epoch' ELSE expires_at END FROM {versions}
		WHERE shard = $1 AND organization_id = n.id AND record_id IS NULL
			AND expires_at > (SELECT occurred_at FROM {shard_heads} WHERE shard = $1)` + atItsKey)
	loadKeys = cluster.SQL(`SELECT ` + KeyColumns + `, m.email_id, m.role, m.status, m.created_at
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT key_id, organization_id, member_id, scopes, source, networks, max_version_step, created_by,
			created_at, expires_at, revoked_at FROM {api_keys} WHERE shard = $1 AND key_id = n.id OFFSET 0) k ON true
	JOIN LATERAL (SELECT email_id, role, status, created_at FROM {members}
		WHERE shard = $1 AND organization_id = k.organization_id AND member_id = k.member_id OFFSET 0) m ON true`)
	// Read only the newest keys of an organization, so that one that constantly creates and revokes keys does not delay
	// others. The group's decision time is never before the shard's last event.
	loadActiveKeys = cluster.SQL(`SELECT n.id, r.count FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT count(*) FILTER (WHERE revoked_at IS NULL AND expires_at > (SELECT occurred_at FROM {shard_heads} WHERE shard = $1)) AS count
		FROM (SELECT revoked_at, expires_at FROM {api_keys} WHERE shard = $1 AND organization_id = n.id ORDER BY key_id DESC LIMIT $3) newest OFFSET 0) r ON true`)
	loadKeyNames = cluster.SQL(`SELECT k.key_id, t.id, t.salt, t.body FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT key_id, organization_id, name_id FROM {api_keys} WHERE shard = $1 AND key_id = n.id OFFSET 0) k ON true
	JOIN LATERAL (SELECT id, salt, coalesce(body, '') AS body FROM {texts}
		WHERE shard = $1 AND organization_id = k.organization_id AND id = k.name_id OFFSET 0) t ON true`)
	// At most one membership of an address has not ended, and the pause between invitations counts from the last of all
	// memberships.
	loadAddresses = cluster.SQL(`SELECT ` + MemberColumns + `
		FROM unnest($2::uuid[], $3::bytea[]) AS n(organization_id, sha256)` +
		memberOwn + `n.organization_id AND email_sha256 = n.sha256
		ORDER BY status = 'ended', invited_until DESC NULLS LAST LIMIT 2` + memberAddress)
	// The members invited last show whether the day's invitations are used up. Their addresses are not looked up.
	loadInvited = cluster.SQL(`SELECT member_id, organization_id, email_id, '', role, status, created_at, invitation_sha256, invited_until
	FROM unnest($2::uuid[]) AS n(id)` + memberOwn +
		`n.id AND invited_until IS NOT NULL ORDER BY invited_until DESC LIMIT $3 OFFSET 0) m ON true`)
	loadMemberships = cluster.SQL(`SELECT n.id, r.count FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT count(*) AS count FROM (SELECT 1 FROM {members}
		WHERE shard = $1 AND organization_id = n.id LIMIT $3) counted OFFSET 0) r ON true`)
	loadMemberIDs = cluster.SQL(`SELECT ` + MemberColumns + `
		FROM unnest($2::uuid[], $3::uuid[]) AS n(organization_id, member_id)` +
		memberOwn + `n.organization_id AND member_id = n.member_id` + memberAddress)
	loadInvitations = cluster.SQL(`SELECT ` + MemberColumns + `
		FROM unnest($2::uuid[], $3::bytea[]) AS n(organization_id, sha256)` +
		memberOwn + `n.organization_id AND invitation_sha256 = n.sha256` + memberAddress)
	// Each command about owners may end one, so it suffices to load one owner more than there are such commands.
	loadOwners = cluster.SQL(`SELECT ` + MemberColumns + ` FROM unnest($2::uuid[]) AS n(id)` +
		memberOwn + `n.id AND role = 'owner' AND status = 'active' ORDER BY member_id LIMIT $3` + memberAddress)
	loadPublisherDomains = cluster.SQL(`SELECT ` + PublisherDomainColumns + `
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT statement_id, organization_id, domain_id, added_at, method, checked_at, failed_days, failed_at, lapsed_at
		FROM {publisher_domains} WHERE shard = $1 AND organization_id = n.id AND removed_at IS NULL OFFSET 0) p ON true
	JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = p.organization_id AND id = p.domain_id OFFSET 0) t ON true`)
	loadPublisherNames = cluster.SQL(`SELECT ` + PublisherNameColumns + `
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT statement_id, organization_id, name_id, member_id, stated_at
		FROM {publisher_names} WHERE shard = $1 AND organization_id = n.id AND withdrawn_at IS NULL OFFSET 0) p ON true
	JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = p.organization_id AND id = p.name_id OFFSET 0) t ON true`)
	loadWebhooks = cluster.SQL(`SELECT ` + WebhookColumns + `
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT webhook_id, organization_id, url_id, description_id, types, status, disabled_reason, secret, previous_secret,
			previous_until, created_at, updated_at FROM {webhooks}
		WHERE shard = $1 AND organization_id = n.id AND status <> 'deleted' OFFSET 0) w ON true` + WebhookTexts)
)

const (
	companyOwn = `SELECT company_id, organization_id, reference, created_at, webhooks, closed_at FROM {companies} WHERE shard = $1 AND `
	versionOwn = `SELECT document_id, version, public_id, record_id, previous_version, sha256, size_bytes, mime_type, generated_at,
			received_at, revoked_at, expires_at, released_at FROM {versions} WHERE shard = $1 AND `
	grantOf = `
	LEFT JOIN LATERAL (SELECT enabled FROM {grants}
		WHERE shard = $1 AND key_id = n.key_id AND company_id = c.company_id OFFSET 0) g ON true`

	documentOwn = `SELECT document_id, organization_id, company_id, source, reference, highest_version, highest_revoked FROM {documents} WHERE shard = $1 AND `
	highestOwn  = `
	LEFT JOIN LATERAL (SELECT public_id FROM {versions}
		WHERE shard = $1 AND document_id = d.document_id AND version = d.highest_version OFFSET 0) h ON true`
	versionColumns = `d.document_id, d.organization_id, d.company_id, d.source, d.reference, d.highest_version, d.highest_revoked, h.public_id,
		coalesce(i.version, 0), i.public_id, i.record_id, i.previous_version, i.sha256, coalesce(i.size_bytes, 0), coalesce(i.mime_type, ''),
		coalesce(i.generated_at, ''), i.received_at, i.revoked_at, i.expires_at, coalesce(i.released_at = i.expires_at, false)`
)

var (
	loadKeyGrants = cluster.SQL(`SELECT r.* FROM unnest($2::uuid[], $3::int[]) AS n(key_id, most)
	JOIN LATERAL (SELECT key_id, company_id, enabled FROM {grants}
		WHERE shard = $1 AND key_id = n.key_id AND enabled ORDER BY company_id LIMIT n.most` + atItsKey)
	loadCompanyGrants = cluster.SQL(`SELECT r.* FROM unnest($2::uuid[], $3::uuid[]) AS n(key_id, company_id)
	JOIN LATERAL (SELECT key_id, company_id, enabled FROM {grants}
		WHERE shard = $1 AND key_id = n.key_id AND company_id = n.company_id` + atItsKey)
	loadCompanies = cluster.SQL(`SELECT r.* FROM unnest($2::uuid[], $3::text[]) AS n(organization_id, reference)
	JOIN LATERAL (SELECT ` + CompanyColumns + ` FROM {companies} c
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.reference` + atItsKey)
	loadContributions = cluster.SQL(`SELECT r.* FROM unnest($2::uuid[], $3::text[]) AS n(organization_id, reference)
	JOIN LATERAL (SELECT company_id FROM {companies}
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.reference OFFSET 0) c ON true
	CROSS JOIN unnest($4::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, company_id, used FROM {usage}
		WHERE shard = $1 AND organization_id = n.organization_id AND period = p.period AND company_id = c.company_id` +
		atItsKey)
	loadGrants = cluster.SQL(`SELECT n.key_id, coalesce(g.enabled, false), ` + CompanyColumns + `
	FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS n(organization_id, reference, key_id)
	JOIN LATERAL (` + companyOwn + `organization_id = n.organization_id AND reference = n.reference OFFSET 0) c ON true` + grantOf)
	// Each company is looked up once, however many declarations refer to it by its position in the list. A missing
	// document returns no row.
	loadDeclarations = cluster.SQL(`SELECT ` + versionColumns + `
	FROM (SELECT array_agg(c.company_id ORDER BY n.place) AS ids
		FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS n(organization_id, reference, place)
		LEFT JOIN LATERAL (SELECT company_id FROM {companies}
			WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.reference OFFSET 0) c ON true OFFSET 0) c
	CROSS JOIN unnest($4::int[], $5::text[], $6::text[], $7::int[]) AS n(company, source, reference, version)
	JOIN LATERAL (` + documentOwn + `company_id = c.ids[n.company] AND source = n.source AND reference = n.reference OFFSET 0) d ON true
	LEFT JOIN LATERAL (` + versionOwn + `document_id = d.document_id AND version = n.version OFFSET 0) i ON true` +
		highestOwn)
	loadRecords = cluster.SQL(`SELECT ` + versionColumns + `, n.key_id, coalesce(g.enabled, false), ` + CompanyColumns + `
	FROM unnest($2::uuid[], $3::uuid[]) AS n(key_id, public_id)
	JOIN LATERAL (` + versionOwn + `public_id = n.public_id OFFSET 0) i ON true
	JOIN LATERAL (` + documentOwn + `document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (` + companyOwn + `company_id = d.company_id OFFSET 0) c ON true` + highestOwn + grantOf)
)

// MeterTables maps the allowances of domain.MeteredAllowances to their tables.
var MeterTables = map[domain.Allowance]string{
	domain.RequestsAllowance: "request_usage", domain.AttemptsAllowance: "webhook_usage",
}

var loadMeters = map[domain.Allowance]string{
	domain.RequestsAllowance: cluster.SQL(fmt.Sprintf(loadMeter, MeterTables[domain.RequestsAllowance])),
	domain.AttemptsAllowance: cluster.SQL(fmt.Sprintf(loadMeter, MeterTables[domain.AttemptsAllowance])),
}

// Load queues the queries of a group's first round trip: everything that its commands need, and every organization with
// its usage in this and the adjacent months, because the decision may fall on the other side of midnight. The state
// covers these months. A group that is decided in another month is refused.
func Load(
	b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
	s *domain.State,
) {
	period := domain.PeriodOf(now)
	periods := []int32{int32(period.Previous()), int32(period), int32(period.Next())}
	s.Cover(period.Previous(), period, period.Next())
	Read(b, func(row pgx.CollectableRow) (domain.Organization, error) { return ScanOrganization(row) }, s.AddOrganization,
		loadOrganizations, shard, distinct(organizations))
	if needs.Totals || len(needs.Declarations) > 0 {
		lookUp(b, shard, loadTotals, organizations, func(u loadedUsage) { s.AddUsage(u.UsageKey, u.Used) }, periods)
	}
	if len(needs.Declarations) > 0 {
		lookUp(b, shard, loadBackfills, organizations, func(r struct {
			Organization domain.OrganizationID
			domain.Backfill
		}) {
			s.AddBackfill(r.Organization, r.Backfill)
		})
	}
	if needs.Warnings || len(needs.Metered) > 0 || len(needs.Certification.Accounts) > 0 {
		Read(b, ScanWarnings, func(w AllowanceWarnings) {
			if w.Unknown == nil { // no command decides about an unknown allowance
				s.AddWarnings(w.Organization, w.Allowance, w.Warnings)
			}
		}, FindWarnings, shard, distinct(organizations))
	}
	lookUp(b, shard, loadAdministered, needs.Administered, s.AddAdministered)
	for _, a := range domain.MeteredAllowances() {
		lookUp(b, shard, loadMeters[a], needs.Metered, func(m struct {
			Organization domain.OrganizationID
			Period       domain.Period
			domain.MeterUsage
		}) {
			s.AddMetered(m.Organization, a, m.Period, m.MeterUsage)
		}, periods)
	}

	if list := distinct(needs.Companies); len(list) > 0 {
		Read(b, pgx.RowToStructByPos, s.AddCompany, loadCompanies, companyArgs(shard, list)...)
	}
	if list := needs.Declarations; len(list) > 0 {
		loadDeclared(b, shard, list, periods, s)
	}
	if list := needs.Records; len(list) > 0 {
		Read(b, scanRecord, func(r loadedRecord) {
			r.loadedGrant.add(s)
			r.loadedVersion.add(s)
		}, loadRecords, shard,
			column(list, func(r domain.RecordNeed) domain.KeyID { return r.Key }),
			column(list, func(r domain.RecordNeed) domain.PublicID { return r.PublicID }))
	}
	lookUp(b, shard, loadAliases, needs.Aliases, s.AddAlias)
	lookUp(b, shard, loadPending, needs.Pending, triple(s.AddPending))

	loadCertification(b, shard, needs.Certification, periods, s)
	lookUp(b, shard, loadLinks, needs.Links, s.AddLink)
	lookUp(b, shard, loadPasskeys, needs.Passkeys, s.AddPasskey)
	if list := distinct(needs.Publishers); list != nil {
		Read(b, ScanPublisherDomain, s.AddPublisherDomain, loadPublisherDomains, shard, list)
		Read(b, ScanPublisherName, s.AddPublisherName, loadPublisherNames, shard, list)
	}
	lookUp(b, shard, loadCompanyIDs, needs.CompanyIDs, s.AddCompany)
	if list := distinct(needs.Addresses); list != nil {
		Read(b, pgx.RowToStructByPos, s.AddMember, loadAddresses, shard,
			column(list, func(n domain.AddressNeed) domain.OrganizationID { return n.Organization }),
			column(list, func(n domain.AddressNeed) []byte { return n.SHA256[:] }))
	}
	if list := distinct(needs.MemberIDs); list != nil {
		Read(b, pgx.RowToStructByPos, s.AddMember, loadMemberIDs, shard,
			column(list, func(n domain.MemberNeed) domain.OrganizationID { return n.Organization }),
			column(list, func(n domain.MemberNeed) domain.MemberID { return n.Member }))
	}
	if list := distinct(needs.Invitations); list != nil {
		Read(b, pgx.RowToStructByPos, s.AddMember, loadInvitations, shard,
			column(list, func(n domain.InvitationNeed) domain.OrganizationID { return n.Organization }),
			column(list, func(n domain.InvitationNeed) []byte { return n.SecretSHA256[:] }))
	}
	lookUp(b, shard, loadOwners, needs.Owners, s.AddMember, len(needs.Owners)+1)
	lookUp(b, shard, loadMemberships, needs.Invited, func(m struct {
		Organization domain.OrganizationID
		Count        int
	}) {
		s.AddMemberships(m.Organization, m.Count)
	}, domain.MaxMembers+1)
	// These members and the member of a key have no address, so they are added after the members that have one.
	lookUp(b, shard, loadInvited, needs.Invited, s.AddMember, domain.DailyInvitations+1)
	lookUp(b, shard, loadKeys, needs.Keys, func(k struct {
		domain.APIKey
		EmailID domain.TextID
		Role    domain.Role
		Status  domain.MemberStatus
		Since   time.Time
	}) {
		s.AddKey(k.APIKey)
		s.AddMember(domain.Member{
			ID: k.Member, Organization: k.Organization, EmailID: k.EmailID, Role: k.Role, Status: k.Status, CreatedAt: k.Since,
		})
	})
	lookUp(b, shard, loadKeyNames, needs.KeyNames, func(k struct {
		Key domain.KeyID
		domain.Text
	}) {
		s.AddKeyName(k.Key, k.Text)
	})
	lookUp(b, shard, loadActiveKeys, needs.ActiveKeys, func(k struct {
		Organization domain.OrganizationID
		Count        int
	}) {
		s.AddActiveKeys(k.Organization, k.Count)
	}, 10*domain.MaxActiveKeys)
	if list := distinct(needs.KeyGrants); list != nil {
		// Each grant that the group names may be revoked before the rows are counted, so read enough rows to make up for
		// them.
		most := func(n domain.KeyGrantsNeed) int32 { return n.Most + int32(len(needs.Grants)) }
		Read(b, pgx.RowToStructByPos, triple(s.AddGrant), loadKeyGrants, shard,
			column(list, func(n domain.KeyGrantsNeed) domain.KeyID { return n.Key }), column(list, most))
	}
	if list := distinct(needs.Grants); list != nil {
		Read(b, pgx.RowToStructByPos, triple(s.AddGrant), loadCompanyGrants, shard,
			column(list, func(n domain.GrantNeed) domain.KeyID { return n.Key }), column(list,
				func(n domain.GrantNeed) domain.CompanyID { return n.Company }))
	}
	if len(needs.Webhooks) > 0 {
		Read(
			b, func(row pgx.CollectableRow) (domain.Webhook, error) { return ScanWebhook(row) }, s.AddWebhook, loadWebhooks,
			shard, distinct(needs.Webhooks),
		)
	}
	lookUp(b, shard, loadWebhookAccess, needs.CompanyWebhooks, func(a struct {
		Company domain.CompanyID
		Webhook domain.WebhookID
	}) {
		s.AddWebhookAccess(a.Company, a.Webhook)
	})
}

type loadedUsage struct {
	domain.UsageKey
	Used int64
}

func companyArgs(shard domain.Shard, companies []domain.CompanyNeed) []any {
	return []any{
		shard, column(companies, func(n domain.CompanyNeed) domain.OrganizationID { return n.Organization }),
		column(companies, func(n domain.CompanyNeed) string { return n.Reference }),
	}
}

// loadDeclared queues the queries of declarations. Most declarations of a group share a company and a key with others,
// so companies and grants are looked up once.
func loadDeclared(b *pgx.Batch, shard domain.Shard, list []domain.DeclarationNeed, periods []int32, s *domain.State) {
	type grantNeed struct {
		domain.CompanyNeed
		key domain.KeyID
	}
	var places ordered[domain.CompanyNeed, int32] // positions in the list of companies, from 1
	grants := column(list, func(d domain.DeclarationNeed) grantNeed {
		company := domain.CompanyNeed{Organization: d.Organization, Reference: d.CompanyReference}
		if place := places.at(company); *place == 0 {
			*place = int32(len(places.keys))
		}
		return grantNeed{company, d.Key}
	})
	companies := companyArgs(shard, places.keys)
	Read(b, pgx.RowToStructByPos, func(u loadedUsage) { s.AddUsage(u.UsageKey, u.Used) }, loadContributions,
		append(companies, periods)...)
	Read(b, scanVersion, func(v loadedVersion) { v.add(s) },
		loadDeclarations, append(companies,
			column(grants, func(g grantNeed) int32 { return *places.of[g.CompanyNeed] }),
			column(list, func(d domain.DeclarationNeed) string { return d.Source }),
			column(list, func(d domain.DeclarationNeed) string { return d.DocumentReference }),
			column(list, func(d domain.DeclarationNeed) int32 { return d.Version }))...)
	grants = distinct(grants)
	Read(b, scanGrant, func(g loadedGrant) { g.add(s) }, loadGrants, shard,
		column(grants, func(g grantNeed) domain.OrganizationID { return g.Organization }),
		column(grants, func(g grantNeed) string { return g.Reference }),
		column(grants, func(g grantNeed) domain.KeyID { return g.key }))
}

// loadedGrant is a company and whether a key may use it.
type loadedGrant struct {
	key     domain.KeyID
	granted bool
	company domain.Company
}

func (g *loadedGrant) targets() []any {
	c := &g.company
	return []any{&g.key, &g.granted, &c.ID, &c.Organization, &c.Reference, &c.CreatedAt, &c.HasWebhooks, &c.ClosedAt}
}

func scanGrant(row pgx.CollectableRow) (g loadedGrant, err error) {
	err = row.Scan(g.targets()...)
	return g, err
}

func (g loadedGrant) add(s *domain.State) {
	s.AddCompany(g.company)
	s.AddGrant(g.key, g.company.ID, g.granted)
}

// loadedVersion is a document and one of its versions. Without a number, there is no version.
type loadedVersion struct {
	document domain.Document
	version  domain.Version
}

func (r *loadedVersion) targets() []any {
	d, v := &r.document, &r.version
	return []any{
		&d.ID, &d.Organization, &d.Company, &d.Source, &d.Reference, &d.Highest, &d.HighestRevoked, &d.HighestPublicID,
		&v.Version, &v.PublicID, &v.RecordID, &v.PreviousVersion, &v.SHA256, &v.SizeBytes, &v.MimeType, &v.GeneratedAt,
		(*zeronull.Timestamptz)(&v.ReceivedAt), &v.RevokedAt, (*zeronull.Timestamptz)(&v.ExpiresAt), &v.Released,
	}
}

func scanVersion(row pgx.CollectableRow) (r loadedVersion, err error) {
	err = row.Scan(r.targets()...)
	return r, err
}

func (r loadedVersion) add(s *domain.State) {
	if r.version.Document = s.AddDocument(r.document); r.version.Version > 0 {
		s.AddVersion(r.version)
	}
}

// loadedRecord is a version with the grant of its company.
type loadedRecord struct {
	loadedVersion
	loadedGrant
}

func scanRecord(row pgx.CollectableRow) (r loadedRecord, err error) {
	err = row.Scan(append(r.loadedVersion.targets(), r.loadedGrant.targets()...)...)
	return r, err
}

// ScanOrganization reads OrganizationColumns, then more targets.
func ScanOrganization(row pgx.CollectableRow, more ...any) (o domain.Organization, err error) {
	w := &o.Warned[domain.VersionsAllowance]
	err = row.Scan(append([]any{
		&o.ID, &o.Sequence, &o.NameID, &o.Plan, &o.Internal, &o.PerMinute, &o.Companies, &o.CreatedAt,
		&o.Unfinalized, &o.UnfinalizedLimit, &w.Period, &w.Limit, &w.ReachedAt[0], &w.ReachedAt[1], &w.ReachedAt[2],
		&w.Used[0], &w.Used[1], &w.Used[2],
	}, more...)...)
	return o, err
}

// AllowanceWarnings holds the last warnings of an organization.
type AllowanceWarnings struct {
	Organization domain.OrganizationID
	Allowance    domain.Allowance
	Unknown      error // the program does not know the allowance
	domain.Warnings
}

// ScanWarnings reads WarningColumns. An unknown allowance is no error of the row, because a statement reads the
// warnings of several organizations.
func ScanWarnings(row pgx.CollectableRow) (w AllowanceWarnings, err error) {
	var name []byte
	err = row.Scan(&w.Organization, &name, &w.Period, &w.Limit, &w.ReachedAt, &w.Used)
	w.Unknown = w.Allowance.UnmarshalText(name)
	return w, err
}

// ScanWebhook reads WebhookColumns, then more targets.
func ScanWebhook(row pgx.CollectableRow, more ...any) (w domain.Webhook, err error) {
	var description domain.Text
	var body *string
	err = row.Scan(append([]any{
		&w.ID, &w.Organization, &w.URL.ID, &w.URL.Salt, &w.URL.Body, &description.ID, &description.Salt, &body,
		&w.Types, &w.Status, &w.DisabledReason, &w.Secret, &w.PreviousSecret, &w.PreviousUntil, &w.CreatedAt, &w.UpdatedAt,
	}, more...)...)
	if body != nil {
		description.Body = *body
		w.Description = &description
	}
	return w, err
}

// ScanPublisherDomain scans PublisherDomainColumns.
func ScanPublisherDomain(row pgx.CollectableRow) (domain.PublisherDomain, error) {
	return ScanPublisherDomainAnd(row)
}

// ScanPublisherDomainAnd scans PublisherDomainColumns, then more targets.
func ScanPublisherDomainAnd(row pgx.CollectableRow, more ...any) (d domain.PublisherDomain, err error) {
	err = row.Scan(append([]any{
		&d.ID, &d.Organization, &d.Domain.ID, &d.Domain.Body, &d.AddedAt, &d.Method, &d.CheckedAt, &d.FailedDays,
		&d.FailedAt, &d.LapsedAt,
	}, more...)...)
	return d, err
}

// ScanPublisherName scans PublisherNameColumns.
func ScanPublisherName(row pgx.CollectableRow) (n domain.PublisherName, err error) {
	err = row.Scan(&n.ID, &n.Organization, &n.Name.ID, &n.Name.Body, &n.Member, &n.StatedAt)
	return n, err
}

// lookUp queues a query of rows by a list of ids, its second argument. It does nothing without ids.
func lookUp[I comparable, R any](b *pgx.Batch, shard domain.Shard, sql string, ids []I, add func(R), more ...any) {
	if len(ids) > 0 {
		Read(b, pgx.RowToStructByPos, add, sql, append([]any{shard, distinct(ids)}, more...)...)
	}
}

type row3[A, B, C any] struct {
	A A
	B B
	C C
}

// triple returns a function that calls add with the three columns of a row.
func triple[A, B, C any](add func(A, B, C)) func(row3[A, B, C]) {
	return func(r row3[A, B, C]) { add(r.A, r.B, r.C) }
}

// Read queues a query and calls add with each row.
func Read[R any](b *pgx.Batch, scan pgx.RowToFunc[R], add func(R), sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r, err := scan(rows)
			if err != nil {
				return err
			}
			add(r)
		}
		return rows.Err()
	})
}

// distinct removes duplicates.
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
