package projections

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// Apply queues the writes of all projections for events in log order. The
// events are folded first to one row a key: an UPDATE … FROM unnest with two rows
// for one key would silently apply one. It depends on the events alone.
func Apply(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
	f := fold{
		organizations: map[domain.OrganizationID]*organizationChange{},
		members:       map[domain.MemberID]*domain.Event{},
		grants:        map[grantKey]*domain.Event{},
		documents:     map[domain.DocumentID]*domain.Event{},
		reserved:      map[versionKey]*domain.Event{},
		usage:         map[domain.UsageKey]int64{},
	}
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
		known, err := queueCertification(b, shard, e)
		if err == nil && !known {
			err = fmt.Errorf("no projection knows a body of type %T", e.Body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type grantKey struct {
	key     domain.KeyID
	company domain.CompanyID
}

type versionKey struct {
	document domain.DocumentID
	version  int32
}

// fold is what a run of events amounts to, by table.
type fold struct {
	organizations     map[domain.OrganizationID]*organizationChange
	organizationOrder []domain.OrganizationID
	memberAdded       []*domain.Event
	members           map[domain.MemberID]*domain.Event // the last change
	keyCreated        []*domain.Event
	keyExpiry         []*domain.Event
	keyRevoked        []*domain.Event
	companyCreated    []*domain.Event
	grants            map[grantKey]*domain.Event          // the last change
	documents         map[domain.DocumentID]*domain.Event // the highest registration
	documentOrder     []domain.DocumentID
	reserved          map[versionKey]*domain.Event // the last
	reservedOrder     []versionKey
	registered        []*domain.Event
	versions          []domain.Version // of registered
	revoked           []*domain.Event
	feed              []*domain.Event
	webhooks          []*domain.Event // whatever happened to destinations
	usage             map[domain.UsageKey]int64
	usageOrder        []domain.UsageKey
	links             []*domain.Event // whatever happened to links to OAuth subjects
	certification     []*domain.Event
}

// organizationChange is what a run of events does to one organization.
type organizationChange struct {
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
	o := f.organizations[e.Organization]
	if o == nil {
		o = &organizationChange{}
		f.organizations[e.Organization] = o
		f.organizationOrder = append(f.organizationOrder, e.Organization)
	}
	o.sequence = e.Sequence
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
		f.feed = append(f.feed, e)
	case *domain.RecordRevokedBody:
		f.revoked = append(f.revoked, e)
		f.feed = append(f.feed, e)
	default:
		f.certification = append(f.certification, e)
	}
	return nil
}

func (f *fold) addReserved(e *domain.Event, o *organizationChange, body *domain.VersionReservedBody) {
	k := versionKey{body.DocumentID, body.Version}
	if f.reserved[k] == nil {
		f.reservedOrder = append(f.reservedOrder, k)
	}
	f.reserved[k] = e
	if !body.Renewed {
		o.unfinalized++
	}
}

func (f *fold) addRegistered(e *domain.Event, body *domain.RecordRegisteredBody) error {
	version, err := body.Registered()
	if err != nil {
		return err
	}
	f.registered, f.versions = append(f.registered, e), append(f.versions, version)
	f.feed = append(f.feed, e)
	known := f.documents[body.DocumentID]
	if known == nil {
		f.documentOrder = append(f.documentOrder, body.DocumentID)
	}
	if known == nil || known.Body.(*domain.RecordRegisteredBody).Version < body.Version {
		f.documents[body.DocumentID] = e
	}
	for _, company := range []domain.CompanyID{{}, e.Company} {
		k := domain.UsageKey{Organization: e.Organization, Period: body.Period, Company: company}
		if f.usage[k] == 0 {
			f.usageOrder = append(f.usageOrder, k)
		}
		f.usage[k]++
	}
	return nil
}

const insertOrganizations = `INSERT INTO organization_state (shard, organization_id, sequence, name_id, plan, internal, per_minute, companies, created_at,
		unfinalized, unfinalized_limit)
	SELECT s.shard, n.id, 0, n.name_id, '', false, NULL, 0, n.created_at, 0, NULL
	FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS n(id, name_id, created_at) WHERE s.shard = $1`

// LIMIT makes the planner expect a short list and look each key up, whatever its
// statistics say (see Load).

// atOrganization ends an UPDATE of organization_state from a list n: each row is
// looked up by its full key, and then by its place. A plain join would allow a walk
// over the shard, which PostgreSQL 17 prefers until the first ANALYZE: it takes the
// fill factor into account and so expects a single row there. Every writer of the
// table has the shard's lock, so that no row moves in between.
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
	var created, names, planned, all [][16]byte
	var createdAt []time.Time
	var plans []string
	var internal []bool
	var perMinute []*int32
	var sequences, companies, unfinalized []int64
	for _, id := range f.organizationOrder {
		o := f.organizations[id]
		if o.created != nil {
			name := o.created.Body.(*domain.OrganizationCreatedBody).Name.ID
			created, names, createdAt = append(created, id), append(names, name), append(createdAt, o.created.OccurredAt)
		}
		if o.plan != nil {
			planned, plans = append(planned, id), append(plans, o.plan.Plan)
			internal, perMinute = append(internal, o.plan.Internal), append(perMinute, o.plan.PerMinute)
		}
		all, sequences, companies = append(all, id), append(sequences, o.sequence), append(companies, o.companies)
		unfinalized = append(unfinalized, o.unfinalized)
	}
	if created != nil {
		b.Queue(insertOrganizations, shard, created, names, createdAt)
	}
	if planned != nil {
		b.Queue(updatePlans, shard, planned, plans, internal, perMinute)
	}
	b.Queue(updateOrganizations, shard, all, sequences, companies, unfinalized)
	for _, id := range f.organizationOrder { // a statement each: an operator's work
		if limits := f.organizations[id].limits; limits != nil {
			b.Queue(updateLimits, shard, [16]byte(id), limits.UnfinalizedLimit)
		}
	}
}

const insertMembers = `INSERT INTO members (shard, organization_id, member_id, email_id, role, status, created_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[]) AS n WHERE s.shard = $1`

const updateMember = `UPDATE members SET role = $4, status = $5 WHERE shard = $1 AND organization_id = $2 AND member_id = $3`

func (f *fold) queueMembers(b *pgx.Batch, shard domain.Shard) {
	var organizations, ids, emails [][16]byte
	var roles, statuses []string
	var createdAt []time.Time
	for _, e := range f.memberAdded {
		body := e.Body.(*domain.MemberAddedBody)
		organizations, ids, emails = append(organizations, e.Organization), append(ids, body.MemberID), append(emails, body.Email.ID)
		roles, statuses = append(roles, string(body.Role)), append(statuses, string(domain.MemberActive))
		createdAt = append(createdAt, e.OccurredAt)
	}
	if ids != nil {
		b.Queue(insertMembers, shard, organizations, ids, emails, roles, statuses, createdAt)
	}
	for id, e := range f.members {
		body := e.Body.(*domain.MemberChangedBody)
		b.Queue(updateMember, shard, [16]byte(e.Organization), [16]byte(id), body.Role, body.Status)
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
		b.Queue(insertKey, shard, [16]byte(body.KeyID), [16]byte(e.Organization), [16]byte(body.MemberID), body.SecretSHA256, body.Scopes,
			body.Source, body.Network, body.MaxVersionStep, e.OccurredAt, body.ExpiresAt)
	}
	for _, e := range f.keyExpiry {
		body := e.Body.(*domain.KeyExpiryChangedBody)
		b.Queue(changeKeyExpiry, shard, [16]byte(body.KeyID), body.ExpiresAt)
	}
	for _, e := range f.keyRevoked {
		b.Queue(revokeKey, shard, [16]byte(e.Body.(*domain.KeyRevokedBody).KeyID), e.OccurredAt)
	}
}

const insertCompanies = `INSERT INTO companies (shard, company_id, organization_id, reference, created_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[]) AS n WHERE s.shard = $1`

func (f *fold) queueCompanies(b *pgx.Batch, shard domain.Shard) {
	var ids, organizations [][16]byte
	var references []string
	var createdAt []time.Time
	for _, e := range f.companyCreated {
		ids, organizations = append(ids, e.Company), append(organizations, e.Organization)
		references, createdAt = append(references, e.Body.(*domain.CompanyCreatedBody).Reference), append(createdAt, e.OccurredAt)
	}
	if ids != nil {
		b.Queue(insertCompanies, shard, ids, organizations, references, createdAt)
	}
}

const upsertGrants = `INSERT INTO grants (shard, key_id, company_id, enabled, updated_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::boolean[], $5::timestamptz[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, key_id, company_id) DO UPDATE SET enabled = excluded.enabled, updated_at = excluded.updated_at`

func (f *fold) queueGrants(b *pgx.Batch, shard domain.Shard) {
	var keys, companies [][16]byte
	var enabled []bool
	var at []time.Time
	for k, e := range f.grants {
		keys, companies = append(keys, k.key), append(companies, k.company)
		enabled, at = append(enabled, e.Body.(*domain.AccessChangedBody).Enabled), append(at, e.OccurredAt)
	}
	if keys != nil {
		b.Queue(upsertGrants, shard, keys, companies, enabled, at)
	}
}

const insertFeed = `INSERT INTO feed (shard, company_id, sequence, event_id, type, status, version, occurred_at, document_id, public_id)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::smallint[], $7::int[],
		$8::timestamptz[], $9::uuid[], $10::uuid[]) AS n WHERE s.shard = $1`

func (f *fold) queueFeed(b *pgx.Batch, shard domain.Shard) {
	n := len(f.feed)
	if n == 0 {
		return
	}
	companies, sequences, ids := make([][16]byte, n), make([]int64, n), make([][16]byte, n)
	types, statuses, versions := make([]int16, n), make([]int16, n), make([]int32, n)
	times, documents, publicIDs := make([]time.Time, n), make([][16]byte, n), make([][16]byte, n)
	for i, e := range f.feed {
		companies[i], sequences[i], ids[i], times[i] = e.Company, e.Sequence, e.ID, e.OccurredAt
		publicID, _ := domain.ParsePublicID(e.Subject)
		publicIDs[i] = publicID
		switch body := e.Body.(type) {
		case *domain.RecordRegisteredBody:
			types[i], statuses[i], versions[i], documents[i] = FeedRegistered, feedStatusCode(body.Status), body.Version, body.DocumentID
		case *domain.RecordSupersededBody:
			types[i], statuses[i], versions[i], documents[i] = feedSuperseded, feedStatusSuperseded, body.Version, body.DocumentID
		case *domain.RecordRevokedBody:
			types[i], statuses[i], versions[i], documents[i] = feedRevoked, feedStatusRevoked, body.Version, body.DocumentID
		}
	}
	b.Queue(insertFeed, shard, companies, sequences, ids, types, statuses, versions, times, documents, publicIDs)
}

const addUsage = `INSERT INTO usage (shard, organization_id, period, company_id, used)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::uuid[], $5::bigint[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, organization_id, period, company_id) DO UPDATE SET used = usage.used + excluded.used`

func (f *fold) queueUsage(b *pgx.Batch, shard domain.Shard) {
	n := len(f.usageOrder)
	if n == 0 {
		return
	}
	organizations, periods, companies, used := make([][16]byte, n), make([]int32, n), make([][16]byte, n), make([]int64, n)
	for i, k := range f.usageOrder {
		organizations[i], periods[i], companies[i], used[i] = k.Organization, int32(k.Period), k.Company, f.usage[k]
	}
	b.Queue(addUsage, shard, organizations, periods, companies, used)
}
