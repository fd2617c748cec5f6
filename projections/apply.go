// Package projections writes the tables derived from the log. Load reads the state on which a group of commands is
// decided, Apply writes the projections of the group's events, Enqueue queues the messages that they cause, and Rebuild
// derives the projections again. Package query reads the projections; package queue works through the queues.
//
// Apply depends only on the events. A group's transaction and replay both call it, and dividing one history into
// different groups must produce the same tables. Delivery queues are not projections, and Apply never writes them.
// Every statement names the shard.
package projections

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Apply queues the writes of all projections for events in log order. It first folds the events into one row per key,
// because an UPDATE with FROM unnest would silently apply only one of two rows for the same key.
func Apply(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
	return applyPart(b, shard, events, part{})
}

// applyPart queues only the rows of one part.
func applyPart(b *pgx.Batch, shard domain.Shard, events []domain.Event, of part) error {
	f := fold{part: of}
	for i := range events {
		e := &events[i]
		if f.add(e) || !of.first() {
			continue
		}
		if err := queueRare(b, shard, e); err != nil { // one statement per event, in log order
			return say.Errorf("apply event at position %d: %w", e.Position, err)
		}
	}
	f.queueOrganizations(b, shard)
	f.queueVersions(b, shard)
	f.queueFeed(b, shard)
	f.queueUsage(b, shard)
	f.queueRecharged(b, shard)
	f.queueBackfills(b, shard)
	return nil
}

// part is the share of one of count sessions in the rows of a shard. A part has the rows of the divided tables whose
// keys lead to its number. The first part has all rows of the other tables, too. The zero part has all rows.
type part struct{ number, count int }

// divided are the tables with most of the rows of a ledger. No statement about a row of theirs depends on a row with
// another document, or in the feed with another sequence, except by a unique index: if the log gives two documents one
// reference or public id, two parts do not notice. The audit of the events does. The texts are conditions on the rows
// of one part.
var divided = map[string]string{
	"documents": "get_byte(uuid_send(document_id), 15) %% %d = %d",
	"versions":  "get_byte(uuid_send(document_id), 15) %% %d = %d",
	"feed":      "abs(sequence %% %d) = %d",
}

func (p part) first() bool { return p.number == 0 }

// rows returns the condition on the rows of a divided table that are in p.
func (p part) rows(table string) string {
	if p.count <= 1 {
		return "true"
	}
	return fmt.Sprintf(divided[table], p.count, p.number)
}

func (p part) has(id domain.DocumentID) bool { return p.count <= 1 || int(id[15])%p.count == p.number }

func (p part) hasSequence(n int64) bool {
	return p.count <= 1 || max(n, -n)%int64(p.count) == int64(p.number)
}

// errNoProjection means that Apply lacks an event type of the domain.
var errNoProjection = say.New("no projection knows events of this type")

type versionKey struct {
	document domain.DocumentID
	version  int32
}

// fold combines the frequent changes of a run of events, by table.
type fold struct {
	part          part
	organizations ordered[domain.OrganizationID, organizationChange]
	documents     ordered[domain.DocumentID, documentChange]
	reserved      ordered[versionKey, reservation] // the last
	released      ordered[versionKey, release]     // the last
	registered    []registration                   // of versions that were not reserved
	finalized     []registration                   // of reserved versions
	revoked       []*domain.Event
	feed          []feedRow
	recharged     []recharge
	usage         ordered[domain.UsageKey, int64]
	backfills     ordered[backfillKey, backfillChange]
}

// documentChange is the change of one document by a run of events.
type documentChange struct {
	highest registration
	isNew   bool // no event before the run belongs to the document
}

// organizationChange is the change of one organization by a run of events.
type organizationChange struct {
	id          domain.OrganizationID
	sequence    int64
	companies   int64
	unfinalized int64
}

// add folds an event if its change is frequent, and reports whether it did. Other events need their own statements.
func (f *fold) add(e *domain.Event) (folded bool) {
	o := &organizationChange{} // of another part
	if f.part.first() {
		o = f.organizations.at(e.Organization)
	}
	o.id, o.sequence = e.Organization, e.Sequence
	switch body := e.Body.(type) {
	case *domain.CompanyCreatedBody:
		o.companies++
		return false
	case *domain.VersionReservedBody:
		if f.part.has(body.DocumentID) {
			*f.reserved.at(versionKey{body.DocumentID, body.Version}) = reservation{e, body}
		}
		if !body.Renewed {
			o.unfinalized++
		}
	case *domain.VersionReleasedBody:
		if f.part.has(body.DocumentID) {
			*f.released.at(versionKey{body.DocumentID, body.Version}) = release{e, body}
		}
	case *domain.RecordRegisteredBody:
		f.addRegistered(e, o, body, body.Charged())
	case *domain.RecordHealedBody:
		charged := body.Charged()
		f.addRegistered(e, o, &body.RecordRegisteredBody, charged)
		if f.part.first() && charged != domain.PeriodOf(e.OccurredAt) {
			f.recharged = append(f.recharged, recharge{e, charged})
		}
	case *domain.BackfillChangedBody:
		if f.part.first() {
			*f.backfills.at(backfillKey{e.Organization, e.Sequence}) = backfillChange{versions: body.Versions, last: e.Sequence}
		}
	// Only the organization's sequence changes.
	case *domain.ClockResetBody, *domain.SignInLinkMadeBody, *domain.KeysPublishedBody:
	case *domain.RecordSupersededBody:
		f.addFeed(feedRow{e, domain.StatusSuperseded, body.Version, body.DocumentID})
	case *domain.RecordRevokedBody:
		if f.part.has(body.DocumentID) {
			f.revoked = append(f.revoked, e)
		}
		f.addFeed(feedRow{e, domain.StatusRevoked, body.Version, body.DocumentID})
	default:
		return false
	}
	return true
}

// addRegistered adds a new version. It counts in a month, unless this is 0, or in a backfill allowance.
func (f *fold) addRegistered(
	e *domain.Event, o *organizationChange, body *domain.RecordRegisteredBody, charged domain.Period,
) {
	if body.Reserved {
		o.unfinalized--
	}
	if f.part.has(body.DocumentID) {
		version := body.Registered(nil)
		r := registration{e, body, &version}
		if body.Reserved {
			f.finalized = append(f.finalized, r)
		} else {
			f.registered = append(f.registered, r)
		}
		d := f.documents.at(body.DocumentID)
		d.isNew = d.isNew || body.OpensDocument()
		if d.highest.Event == nil || d.highest.body.Version < body.Version {
			d.highest = r
		}
	}
	f.addFeed(feedRow{e, body.Status, body.Version, body.DocumentID})
	if !f.part.first() {
		return
	}
	if body.FromBackfill != 0 {
		backfill := f.backfills.at(backfillKey{e.Organization, body.FromBackfill})
		backfill.used++
		backfill.last = e.Sequence
	}
	if charged == 0 {
		return
	}
	for _, company := range []domain.CompanyID{{}, e.Company} {
		*f.usage.at(domain.UsageKey{Organization: e.Organization, Period: charged, Company: company})++
	}
}

func (f *fold) addFeed(row feedRow) {
	if f.part.hasSequence(row.Sequence) {
		f.feed = append(f.feed, row)
	}
}

// Each row is looked up by its full key, and then by its place. A plain join would allow a scan of the shard, which
// PostgreSQL 17 prefers until the first ANALYZE, because with the fill factor it expects a single row. Every writer of
// the table holds the shard's lock, so no row moves in between. LIMIT makes the planner expect a short list.
var updateOrganizations = cluster.SQL(`UPDATE {organization_state} o SET sequence = n.sequence, companies = o.companies + n.companies,
		unfinalized = o.unfinalized + n.unfinalized
	FROM (SELECT id, sequence, companies, unfinalized FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
			AS u(id, sequence, companies, unfinalized)
		LIMIT cardinality($2::uuid[])) AS n
	CROSS JOIN LATERAL (SELECT ctid AS place FROM {organization_state} WHERE shard = $1 AND organization_id = n.id OFFSET 0) p
	WHERE o.shard = $1 AND o.ctid = p.place`)

func (f *fold) queueOrganizations(b *pgx.Batch, shard domain.Shard) {
	all := f.organizations.inOrder()
	if len(all) == 0 {
		return
	}
	b.Queue(updateOrganizations, shard,
		column(all, func(o *organizationChange) domain.OrganizationID { return o.id }),
		column(all, func(o *organizationChange) int64 { return o.sequence }),
		column(all, func(o *organizationChange) int64 { return o.companies }),
		column(all, func(o *organizationChange) int64 { return o.unfinalized }))
}

var insertFeed = cluster.SQL(`INSERT INTO {feed} (shard, company_id, sequence, event_id, type, status, version, occurred_at, document_id, public_id)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::bigint[]), unnest($4::uuid[]), unnest($5::smallint[]), unnest($6::smallint[]),
		unnest($7::int[]), unnest($8::timestamptz[]), unnest($9::uuid[]), unnest($10::uuid[])
	FROM {shard_heads} s WHERE s.shard = $1`)

// feedRow is an event with its additional columns in the feed.
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

var insertHealedCharges = cluster.SQL(`INSERT INTO {healed_charges} (shard, company_id, sequence, period)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::bigint[]), unnest($4::int[]) FROM {shard_heads} s WHERE s.shard = $1`)

// recharge is a healed record that does not count in the month of its event.
type recharge struct {
	*domain.Event
	charged domain.Period // 0: in none
}

func (f *fold) queueRecharged(b *pgx.Batch, shard domain.Shard) {
	if f.recharged == nil {
		return
	}
	b.Queue(insertHealedCharges, shard,
		column(f.recharged, func(r recharge) domain.CompanyID { return r.Company }),
		column(f.recharged, func(r recharge) int64 { return r.Sequence }),
		column(f.recharged, func(r recharge) int32 { return int32(r.charged) }))
}

var addUsage = cluster.SQL(`INSERT INTO {usage} AS usage (shard, organization_id, period, company_id, used)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::int[]), unnest($4::uuid[]), unnest($5::bigint[])
	FROM {shard_heads} s WHERE s.shard = $1
	ON CONFLICT (shard, organization_id, period, company_id) DO UPDATE SET used = usage.used + excluded.used`)

func (f *fold) queueUsage(b *pgx.Batch, shard domain.Shard) {
	if used := f.usage.keys; used != nil {
		b.Queue(addUsage, shard,
			column(used, func(k domain.UsageKey) domain.OrganizationID { return k.Organization }),
			column(used, func(k domain.UsageKey) int32 { return int32(k.Period) }),
			column(used, func(k domain.UsageKey) domain.CompanyID { return k.Company }),
			column(used, func(k domain.UsageKey) int64 { return *f.usage.of[k] }))
	}
}

var upsertBackfills = cluster.SQL(`INSERT INTO {backfills} AS b (shard, organization_id, sequence, versions, used, last_sequence)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::bigint[])
	FROM {shard_heads} s WHERE s.shard = $1
	ON CONFLICT (shard, organization_id, sequence) DO UPDATE SET used = b.used + excluded.used, last_sequence = excluded.last_sequence`)

type backfillKey struct {
	organization domain.OrganizationID
	sequence     int64 // of the event that gave the allowance
}

// backfillChange is a new backfill allowance or the use of one by a run of events, up to the sequence last.
type backfillChange struct{ versions, used, last int64 }

func (f *fold) queueBackfills(b *pgx.Batch, shard domain.Shard) {
	keys, changes := f.backfills.keys, f.backfills.inOrder()
	if keys == nil {
		return
	}
	b.Queue(upsertBackfills, shard,
		column(keys, func(k backfillKey) domain.OrganizationID { return k.organization }),
		column(keys, func(k backfillKey) int64 { return k.sequence }),
		column(changes, func(c *backfillChange) int64 { return c.versions }),
		column(changes, func(c *backfillChange) int64 { return c.used }),
		column(changes, func(c *backfillChange) int64 { return c.last }))
}

// ordered is a map that keeps its keys in insertion order.
type ordered[K comparable, V any] struct {
	of   map[K]*V
	keys []K
}

// at returns the value of a key, adding a new one if necessary.
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

// inOrder returns the values in insertion order of their keys.
func (o *ordered[K, V]) inOrder() []*V { return column(o.keys, func(k K) *V { return o.of[k] }) }

// column returns one column of rows, for unnest.
func column[R, V any](rows []R, value func(R) V) []V { return statement.Column(rows, value) }

// A row known to be new is inserted without ON CONFLICT, which is a third cheaper.
const documentRows = `INSERT INTO {documents} AS documents (shard, document_id, organization_id, company_id, source, reference, highest_version, highest_revoked)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::uuid[]), unnest($4::uuid[]), unnest($5::text[]), unnest($6::text[]), unnest($7::int[]), false
	FROM {shard_heads} s WHERE s.shard = $1`

var insertDocuments = cluster.SQL(documentRows)

var upsertDocuments = cluster.SQL(documentRows + `
	ON CONFLICT (shard, document_id) DO UPDATE
	SET highest_version = excluded.highest_version, highest_revoked = false
	WHERE documents.highest_version < excluded.highest_version`)

const versionRows = `INSERT INTO {versions} (shard, document_id, version, organization_id, public_id, record_id, previous_version,
		sha256, size_bytes, mime_type, generated_at, received_at, position)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::int[]), unnest($4::uuid[]), unnest($5::uuid[]), unnest($6::uuid[]), unnest($7::int[]),
		unnest($8::bytea[]), unnest($9::bigint[]), unnest($10::text[]), unnest($11::text[]), unnest($12::timestamptz[]),
		unnest($13::bigint[])
	FROM {shard_heads} s WHERE s.shard = $1`

// A document whose first version is only reserved has no highest version yet.
var reserveDocuments = cluster.SQL(`INSERT INTO {documents} (shard, document_id, organization_id, company_id, source, reference, highest_version, highest_revoked)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::uuid[]), unnest($4::uuid[]), unnest($5::text[]), unnest($6::text[]), 0, false
	FROM {shard_heads} s WHERE s.shard = $1
	ON CONFLICT (shard, document_id) DO NOTHING`)

// These two find an existing row by its whole key, whatever statistics say (see loadOrganizations).

var reserveVersions = cluster.SQL(`INSERT INTO {versions} (shard, document_id, version, organization_id, public_id, expires_at)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::int[]), unnest($4::uuid[]), unnest($5::uuid[]), unnest($6::timestamptz[])
	FROM {shard_heads} s WHERE s.shard = $1
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = excluded.expires_at`)

var insertVersions = cluster.SQL(versionRows)

var finalizeVersions = cluster.SQL(versionRows + `
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = NULL, record_id = excluded.record_id,
		previous_version = excluded.previous_version, sha256 = excluded.sha256, size_bytes = excluded.size_bytes,
		mime_type = excluded.mime_type, generated_at = excluded.generated_at, received_at = excluded.received_at,
		position = excluded.position`)

var releaseVersion = cluster.SQL(
	`UPDATE {versions} SET released_at = $4, expires_at = $5 WHERE shard = $1 AND document_id = $2 AND version = $3`,
)

var revokeVersion = cluster.SQL(`UPDATE {versions} SET revoked_at = $4
	WHERE shard = $1 AND document_id = $2 AND version = $3`)

// After the upsert: a revoked version that is still the highest leaves its document without a current one.
var revokeHighest = cluster.SQL(
	`UPDATE {documents} SET highest_revoked = true WHERE shard = $1 AND document_id = $2 AND highest_version = $3`,
)

// registration is an event that registers a version, or heals its record.
type registration struct {
	*domain.Event
	body    *domain.RecordRegisteredBody
	version *domain.Version
}

// reservation is an event that reserves a version or renews a reservation.
type reservation struct {
	*domain.Event
	body *domain.VersionReservedBody
}

// release is an event that releases a reservation.
type release struct {
	*domain.Event
	body *domain.VersionReleasedBody
}

// queueVersions writes documents and versions. Within a run, reservations and their releases come before the
// registrations that finalize them, and the upsert before the revocations, which need the final highest version.
// Statements about reservations and their finalization are left out if the run has none.
func (f *fold) queueVersions(b *pgx.Batch, shard domain.Shard) {
	var created, known []registration
	for _, d := range f.documents.inOrder() {
		if d.isNew {
			created = append(created, d.highest)
		} else {
			known = append(known, d.highest)
		}
	}
	queueDocuments(b, insertDocuments, shard, created)
	queueDocuments(b, upsertDocuments, shard, known)
	f.queueReservations(b, shard)
	f.queueReleases(b, shard)
	queueRegistrations(b, insertVersions, shard, f.registered)
	queueRegistrations(b, finalizeVersions, shard, f.finalized)
	for _, e := range f.revoked { // one statement each: revocations are rare
		body := e.Body.(*domain.RecordRevokedBody)
		b.Queue(revokeVersion, shard, body.DocumentID, body.Version, e.OccurredAt)
		b.Queue(revokeHighest, shard, body.DocumentID, body.Version)
	}
}

func (f *fold) queueReservations(b *pgx.Batch, shard domain.Shard) {
	all := f.reserved.inOrder()
	if len(all) == 0 {
		return
	}
	document := func(r *reservation) domain.DocumentID { return r.body.DocumentID }
	organization := func(r *reservation) domain.OrganizationID { return r.Organization }
	seen := map[domain.DocumentID]bool{}
	var unregistered []*reservation
	for _, r := range all {
		if id := r.body.DocumentID; f.documents.of[id] == nil && !seen[id] {
			seen[id] = true
			unregistered = append(unregistered, r)
		}
	}
	if unregistered != nil {
		b.Queue(reserveDocuments, shard, column(unregistered, document), column(unregistered, organization),
			column(unregistered, func(r *reservation) domain.CompanyID { return r.Company }),
			column(unregistered, func(r *reservation) string { return r.body.Source }),
			column(unregistered, func(r *reservation) string { return r.body.DocumentReference }))
	}
	b.Queue(reserveVersions, shard, column(all, document),
		column(all, func(r *reservation) int32 { return r.body.Version }), column(all, organization),
		column(all, func(r *reservation) domain.PublicID { return r.body.PublicID }),
		column(all, func(r *reservation) time.Time { return r.body.ExpiresAt }))
}

// queueReleases comes after queueReservations: a release followed by a renewal in the same run must keep the renewal's
// expiry.
func (f *fold) queueReleases(b *pgx.Batch, shard domain.Shard) {
	for _, key := range f.released.keys { // one statement each: releases are rare
		r := f.released.of[key]
		expires := r.OccurredAt
		if again := f.reserved.of[key]; again != nil && again.Sequence > r.Sequence {
			expires = again.body.ExpiresAt
		}
		b.Queue(releaseVersion, shard, key.document, key.version, r.OccurredAt, expires)
	}
}

func queueDocuments(b *pgx.Batch, sql string, shard domain.Shard, highest []registration) {
	if len(highest) == 0 {
		return
	}
	b.Queue(sql, shard,
		column(highest, func(r registration) domain.DocumentID { return r.body.DocumentID }),
		column(highest, func(r registration) domain.OrganizationID { return r.Organization }),
		column(highest, func(r registration) domain.CompanyID { return r.Company }),
		column(highest, func(r registration) string { return r.body.Source }),
		column(highest, func(r registration) string { return r.body.DocumentReference }),
		column(highest, func(r registration) int32 { return r.body.Version }))
}

func queueRegistrations(b *pgx.Batch, sql string, shard domain.Shard, list []registration) {
	if len(list) == 0 {
		return
	}
	b.Queue(sql, shard,
		column(list, func(r registration) domain.DocumentID { return r.body.DocumentID }),
		column(list, func(r registration) int32 { return r.version.Version }),
		column(list, func(r registration) domain.OrganizationID { return r.Organization }),
		column(list, func(r registration) domain.PublicID { return r.version.PublicID }),
		column(list, func(r registration) domain.RecordID { return r.version.RecordID }),
		column(list, func(r registration) *int32 { return r.version.PreviousVersion }),
		column(list, func(r registration) []byte { return r.version.SHA256[:] }),
		column(list, func(r registration) int64 { return r.version.SizeBytes }),
		column(list, func(r registration) string { return r.version.MimeType }),
		column(list, func(r registration) string { return string(r.version.GeneratedAt) }),
		column(list, func(r registration) time.Time { return r.version.ReceivedAt }),
		column(list, func(r registration) int64 { return r.Position }))
}
