package projections

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// Apply queues the writes of all projections for events in log order. The events are folded first to one row a key: an
// UPDATE … FROM unnest with two rows for one key would silently apply one. It depends on the events alone.
func Apply(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
	f := fold{members: map[domain.MemberID]*domain.Event{}, grants: map[grantKey]*domain.Event{}}
	for i := range events {
		if err := f.add(&events[i]); err != nil {
			return fmt.Errorf("apply event at position %d: %w", events[i].Position, err)
		}
	}
	f.queueOrganizations(b, shard)
	f.queueWarnings(b, shard)
	f.queueMembers(b, shard)
	f.queueKeys(b, shard)
	f.queueCompanies(b, shard)
	f.queueGrants(b, shard)
	f.queueVersions(b, shard)
	f.queueWebhooks(b, shard)
	f.queueLinks(b, shard)
	f.queueFeed(b, shard)
	f.queueUsage(b, shard)
	for _, e := range f.certification {
		if err := queueCertification(b, shard, e); err != nil {
			return fmt.Errorf("apply event at position %d: %w", e.Position, err)
		}
	}
	return nil
}

// errNoProjection is an event of a type that Apply does not know: a type of the domain's table that was forgotten here.
var errNoProjection = errors.New("no projection knows events of this type")

type grantKey struct {
	key     domain.KeyID
	company domain.CompanyID
}

type versionKey struct {
	document domain.DocumentID
	version  int32
}

// fold is the sum of a run of events, by table.
type fold struct {
	organizations  ordered[domain.OrganizationID, organizationChange]
	memberAdded    []*domain.Event
	members        map[domain.MemberID]*domain.Event // the last change
	keyCreated     []*domain.Event
	keyExpiry      []*domain.Event
	keyRevoked     []*domain.Event
	companyCreated []*domain.Event
	grants         map[grantKey]*domain.Event               // the last change
	documents      ordered[domain.DocumentID, registration] // the highest registration
	reserved       ordered[versionKey, reservation]         // the last
	registered     []registration
	revoked        []*domain.Event
	feed           []feedRow
	webhooks       []*domain.Event // whatever happened to destinations
	usage          ordered[domain.UsageKey, int64]
	links          []*domain.Event // whatever happened to links to OAuth subjects
	certification  []*domain.Event
}

// organizationChange is what a run of events does to one organization.
type organizationChange struct {
	id        domain.OrganizationID
	created   *domain.Event
	plan      *domain.PlanChangedBody
	sequence  int64
	companies int64

	unfinalized int64
	limits      *domain.LimitsChangedBody
	// warned is, by allowance, of the last month that has any among the events.
	warned [len(domain.Organization{}.Warned)]domain.Warnings
}

func (f *fold) add(e *domain.Event) error {
	o := f.organizations.at(e.Organization)
	o.id, o.sequence = e.Organization, e.Sequence
	switch body := e.Body.(type) {
	case *domain.OrganizationCreatedBody:
		o.created = e
		o.plan = &domain.PlanChangedBody{Plan: body.Plan, Internal: body.Internal, PerMinute: body.PerMinute}
	case *domain.PlanChangedBody:
		o.plan = body
	case *domain.LimitsChangedBody:
		o.limits = body
	case *domain.MemberAddedBody:
		f.memberAdded = append(f.memberAdded, e)
	case *domain.MemberChangedBody:
		f.members[body.MemberID] = e
	case *domain.KeyCreatedBody:
		f.keyCreated = append(f.keyCreated, e)
	case *domain.KeyExpiryChangedBody:
		f.keyExpiry = append(f.keyExpiry, e)
	case *domain.KeyRevokedBody:
		f.keyRevoked = append(f.keyRevoked, e)
	case *domain.CompanyCreatedBody:
		o.companies++
		f.companyCreated = append(f.companyCreated, e)
	case *domain.AccessChangedBody:
		f.grants[grantKey{body.KeyID, e.Company}] = e
	case *domain.WebhookCreatedBody, *domain.WebhookUpdatedBody, *domain.WebhookSecretRotatedBody,
		*domain.WebhookDisabledBody, *domain.WebhookDeletedBody, *domain.WebhookAccessBody:
		f.webhooks = append(f.webhooks, e)
	case *domain.LinkStartedBody, *domain.LinkedBody, *domain.ConsentWithdrawnBody:
		f.links = append(f.links, e)
	case *domain.VersionReservedBody:
		f.addReserved(e, o, body)
	case *domain.QuotaWarningReachedBody:
		o.warned[body.Allowance] = o.warned[body.Allowance].With(body.Period, body.Percent, e.OccurredAt)
	case *domain.RecordRegisteredBody:
		if body.Reserved {
			o.unfinalized--
		}
		return f.addRegistered(e, body)
	case *domain.ClockResetBody: // the organization's sequence is all that changes
	case *domain.RecordSupersededBody:
		f.feed = append(f.feed, feedRow{e, domain.StatusSuperseded, body.Version, body.DocumentID})
	case *domain.RecordRevokedBody:
		f.revoked = append(f.revoked, e)
		f.feed = append(f.feed, feedRow{e, domain.StatusRevoked, body.Version, body.DocumentID})
	default:
		f.certification = append(f.certification, e)
	}
	return nil
}

func (f *fold) addReserved(e *domain.Event, o *organizationChange, body *domain.VersionReservedBody) {
	*f.reserved.at(versionKey{body.DocumentID, body.Version}) = reservation{e, body}
	if !body.Renewed {
		o.unfinalized++
	}
}

func (f *fold) addRegistered(e *domain.Event, body *domain.RecordRegisteredBody) error {
	version, err := body.Registered()
	if err != nil {
		return err
	}
	r := registration{e, body, &version}
	f.registered = append(f.registered, r)
	f.feed = append(f.feed, feedRow{e, body.Status, body.Version, body.DocumentID})
	if highest := f.documents.at(body.DocumentID); highest.Event == nil || highest.body.Version < body.Version {
		*highest = r
	}
	for _, company := range []domain.CompanyID{{}, e.Company} {
		*f.usage.at(domain.UsageKey{Organization: e.Organization, Period: body.Period, Company: company})++
	}
	return nil
}

const insertOrganizations = `INSERT INTO organization_state (shard, organization_id, sequence, name_id, plan, internal, per_minute, companies, created_at,
		unfinalized, unfinalized_limit)
	SELECT s.shard, n.id, 0, n.name_id, '', false, NULL, 0, n.created_at, 0, NULL
	FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS n(id, name_id, created_at) WHERE s.shard = $1`

// LIMIT makes the planner expect a short list and look each key up, whatever its statistics say (see
// loadOrganizations).

// atOrganization ends an UPDATE of organization_state from a list n: each row is looked up by its full key, and then by
// its place. A plain join would allow a walk over the shard, which PostgreSQL 17 prefers until the first ANALYZE,
// because with the fill factor it expects a single row. Every writer of the table holds the shard's lock, so no row
// moves in between.
const atOrganization = ` CROSS JOIN LATERAL (SELECT ctid AS place FROM organization_state WHERE shard = $1 AND organization_id = n.id OFFSET 0) p
	WHERE o.shard = $1 AND o.ctid = p.place`

const updatePlans = `UPDATE organization_state o SET plan = n.plan, internal = n.internal, per_minute = n.per_minute
	FROM (SELECT id, plan, internal, per_minute FROM unnest($2::uuid[], $3::text[], $4::boolean[], $5::int[]) AS u(id, plan, internal, per_minute)
		LIMIT cardinality($2::uuid[])) AS n` + atOrganization

const updateLimits = `UPDATE organization_state SET unfinalized_limit = $3 WHERE shard = $1 AND organization_id = $2`

const updateOrganizations = `UPDATE organization_state o SET sequence = n.sequence, companies = o.companies + n.companies,
		unfinalized = o.unfinalized + n.unfinalized
	FROM (SELECT id, sequence, companies, unfinalized FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
			AS u(id, sequence, companies, unfinalized)
		LIMIT cardinality($2::uuid[])) AS n` + atOrganization

func (f *fold) queueOrganizations(b *pgx.Batch, shard domain.Shard) {
	all := f.organizations.inOrder()
	if created := only(all, func(o *organizationChange) bool { return o.created != nil }); len(created) > 0 {
		b.Queue(insertOrganizations, shard, column(created, idOfChange),
			column(created, func(o *organizationChange) domain.TextID {
				return o.created.Body.(*domain.OrganizationCreatedBody).Name.ID
			}),
			column(created, func(o *organizationChange) time.Time { return o.created.OccurredAt }))
	}
	if planned := only(all, func(o *organizationChange) bool { return o.plan != nil }); len(planned) > 0 {
		b.Queue(updatePlans, shard, column(planned, idOfChange),
			column(planned, func(o *organizationChange) string { return o.plan.Plan }),
			column(planned, func(o *organizationChange) bool { return o.plan.Internal }),
			column(planned, func(o *organizationChange) *int32 { return o.plan.PerMinute }))
	}
	b.Queue(updateOrganizations, shard, column(all, idOfChange),
		column(all, func(o *organizationChange) int64 { return o.sequence }),
		column(all, func(o *organizationChange) int64 { return o.companies }),
		column(all, func(o *organizationChange) int64 { return o.unfinalized }))
	for _, o := range all { // a statement each: an operator's work
		if o.limits != nil {
			b.Queue(updateLimits, shard, o.id, o.limits.UnfinalizedLimit)
		}
	}
}

const insertMembers = `INSERT INTO members (shard, organization_id, member_id, email_id, role, status, created_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[]) AS n WHERE s.shard = $1`

const updateMember = `UPDATE members SET role = $4, status = $5 WHERE shard = $1 AND organization_id = $2 AND member_id = $3`

func (f *fold) queueMembers(b *pgx.Batch, shard domain.Shard) {
	if added := f.memberAdded; added != nil {
		body := func(e *domain.Event) *domain.MemberAddedBody { return e.Body.(*domain.MemberAddedBody) }
		b.Queue(insertMembers, shard, column(added, organizationOf),
			column(added, func(e *domain.Event) domain.MemberID { return body(e).MemberID }),
			column(added, func(e *domain.Event) domain.TextID { return body(e).Email.ID }),
			column(added, func(e *domain.Event) string { return string(body(e).Role) }),
			column(added, func(*domain.Event) string { return string(domain.MemberActive) }),
			column(added, timeOf))
	}
	for id, e := range f.members {
		body := e.Body.(*domain.MemberChangedBody)
		b.Queue(updateMember, shard, e.Organization, id, body.Role, body.Status)
	}
}

const insertKey = `INSERT INTO api_keys (shard, key_id, organization_id, member_id, secret_sha256, scopes, source, network,
		max_version_step, created_at, expires_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

const changeKeyExpiry = `UPDATE api_keys SET expires_at = $3 WHERE shard = $1 AND key_id = $2`

const revokeKey = `UPDATE api_keys SET revoked_at = $3 WHERE shard = $1 AND key_id = $2`

func (f *fold) queueKeys(b *pgx.Batch, shard domain.Shard) {
	for _, e := range f.keyCreated { // a statement each: keys are rare
		body := e.Body.(*domain.KeyCreatedBody)
		b.Queue(insertKey, shard, body.KeyID, e.Organization, body.MemberID, body.SecretSHA256, body.Scopes,
			body.Source, body.Network, body.MaxVersionStep, e.OccurredAt, body.ExpiresAt)
	}
	for _, e := range f.keyExpiry {
		body := e.Body.(*domain.KeyExpiryChangedBody)
		b.Queue(changeKeyExpiry, shard, body.KeyID, body.ExpiresAt)
	}
	for _, e := range f.keyRevoked {
		b.Queue(revokeKey, shard, e.Body.(*domain.KeyRevokedBody).KeyID, e.OccurredAt)
	}
}

const insertCompanies = `INSERT INTO companies (shard, company_id, organization_id, reference, created_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[]) AS n WHERE s.shard = $1`

func (f *fold) queueCompanies(b *pgx.Batch, shard domain.Shard) {
	if created := f.companyCreated; created != nil {
		b.Queue(insertCompanies, shard, column(created, companyOf), column(created, organizationOf),
			column(created, func(e *domain.Event) string { return e.Body.(*domain.CompanyCreatedBody).Reference }), column(created, timeOf))
	}
}

const upsertGrants = `INSERT INTO grants (shard, key_id, company_id, enabled, updated_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::boolean[], $5::timestamptz[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, key_id, company_id) DO UPDATE SET enabled = excluded.enabled, updated_at = excluded.updated_at`

func (f *fold) queueGrants(b *pgx.Batch, shard domain.Shard) {
	if changed := slices.Collect(maps.Values(f.grants)); changed != nil {
		b.Queue(upsertGrants, shard,
			column(changed, func(e *domain.Event) domain.KeyID { return e.Body.(*domain.AccessChangedBody).KeyID }), column(changed, companyOf),
			column(changed, func(e *domain.Event) bool { return e.Body.(*domain.AccessChangedBody).Enabled }), column(changed, timeOf))
	}
}

const insertFeed = `INSERT INTO feed (shard, company_id, sequence, event_id, type, status, version, occurred_at, document_id, public_id)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::smallint[], $7::int[],
		$8::timestamptz[], $9::uuid[], $10::uuid[]) AS n WHERE s.shard = $1`

// feedRow is what the feed says of an event besides what every event has.
type feedRow struct {
	*domain.Event
	status   domain.Status
	version  int32
	document domain.DocumentID
}

func (f *fold) queueFeed(b *pgx.Batch, shard domain.Shard) {
	if f.feed == nil {
		return
	}
	b.Queue(insertFeed, shard,
		column(f.feed, func(r feedRow) domain.CompanyID { return r.Company }),
		column(f.feed, func(r feedRow) int64 { return r.Sequence }),
		column(f.feed, func(r feedRow) domain.EventID { return r.ID }),
		column(f.feed, func(r feedRow) int16 { return FeedTypeCode(r.Type) }),
		column(f.feed, func(r feedRow) int16 { return feedStatusCode(r.status) }),
		column(f.feed, func(r feedRow) int32 { return r.version }),
		column(f.feed, func(r feedRow) time.Time { return r.OccurredAt }),
		column(f.feed, func(r feedRow) domain.DocumentID { return r.document }),
		column(f.feed, func(r feedRow) domain.PublicID { id, _ := domain.ParsePublicID(r.Subject); return id }))
}

const addUsage = `INSERT INTO usage (shard, organization_id, period, company_id, used)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::uuid[], $5::bigint[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, organization_id, period, company_id) DO UPDATE SET used = usage.used + excluded.used`

func (f *fold) queueUsage(b *pgx.Batch, shard domain.Shard) {
	if used := f.usage.keys; used != nil {
		b.Queue(addUsage, shard,
			column(used, func(k domain.UsageKey) domain.OrganizationID { return k.Organization }),
			column(used, func(k domain.UsageKey) int32 { return int32(k.Period) }),
			column(used, func(k domain.UsageKey) domain.CompanyID { return k.Company }),
			column(used, func(k domain.UsageKey) int64 { return *f.usage.of[k] }))
	}
}

// ordered is a map that remembers the order in which its keys came.
type ordered[K comparable, V any] struct {
	of   map[K]*V
	keys []K
}

// at returns the value of a key, a new one at first.
func (o *ordered[K, V]) at(k K) *V {
	v := o.of[k]
	if v == nil {
		if o.of == nil {
			o.of = map[K]*V{}
		}
		v = new(V)
		o.of[k], o.keys = v, append(o.keys, k)
	}
	return v
}

// inOrder lists the values in the order in which their keys came.
func (o *ordered[K, V]) inOrder() []*V { return column(o.keys, func(k K) *V { return o.of[k] }) }

// column is one column of rows, as unnest takes it.
func column[R, V any](rows []R, value func(R) V) []V { return statement.Column(rows, value) }

// only keeps the rows that pass.
func only[R any](rows []R, passes func(R) bool) (kept []R) {
	for _, r := range rows {
		if passes(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

func idOfChange(o *organizationChange) domain.OrganizationID { return o.id }

func organizationOf(e *domain.Event) domain.OrganizationID { return e.Organization }

func companyOf(e *domain.Event) domain.CompanyID { return e.Company }

func timeOf(e *domain.Event) time.Time { return e.OccurredAt }
