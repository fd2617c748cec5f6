package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const upsertDocuments = `INSERT INTO documents (shard, document_id, organization_id, company_id, source, reference, highest_version, highest_revoked)
	SELECT s.shard, n.*, false FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::int[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, document_id) DO UPDATE
	SET highest_version = excluded.highest_version, highest_revoked = false
	WHERE documents.highest_version < excluded.highest_version`

const insertVersions = `INSERT INTO versions (shard, document_id, version, organization_id, public_id, record_id, previous_version,
		sha256, size_bytes, mime_type, generated_at, received_at, position)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::uuid[], $5::uuid[], $6::uuid[], $7::int[], $8::bytea[], $9::bigint[],
		$10::text[], $11::text[], $12::timestamptz[], $13::bigint[]) AS n WHERE s.shard = $1`

// A document whose first version is only reserved has no highest version yet.
const reserveDocuments = `INSERT INTO documents (shard, document_id, organization_id, company_id, source, reference, highest_version, highest_revoked)
	SELECT s.shard, n.*, 0, false FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, document_id) DO NOTHING`

// These two find an existing row by its whole key, whatever statistics say (see loadOrganizations).

const reserveVersions = `INSERT INTO versions (shard, document_id, version, organization_id, public_id, expires_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::uuid[], $5::uuid[], $6::timestamptz[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = excluded.expires_at`

const finalizeVersions = insertVersions + `
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = NULL, record_id = excluded.record_id,
		previous_version = excluded.previous_version, sha256 = excluded.sha256, size_bytes = excluded.size_bytes,
		mime_type = excluded.mime_type, generated_at = excluded.generated_at, received_at = excluded.received_at,
		position = excluded.position`

const revokeVersion = `UPDATE versions SET revoked_at = $4 WHERE shard = $1 AND document_id = $2 AND version = $3`

// After the upsert: a revoked version that is still the highest leaves its document without a current one.
const revokeHighest = `UPDATE documents SET highest_revoked = true WHERE shard = $1 AND document_id = $2 AND highest_version = $3`

// registration is an event that registers a version.
type registration struct {
	*domain.Event
	body    *domain.RecordRegisteredBody
	version *domain.Version
}

// reservation is an event that reserves a version, or renews that.
type reservation struct {
	*domain.Event
	body *domain.VersionReservedBody
}

// queueVersions writes documents and versions. Within a run reservations come before the registrations that finalize
// them, and the upsert before the revocations, which ask for the highest version as it is then. A run without
// reservations, or without one that it finalizes, has no statement about them.
func (f *fold) queueVersions(b *pgx.Batch, shard domain.Shard) {
	if highest := f.documents.inOrder(); len(highest) > 0 {
		b.Queue(upsertDocuments, shard,
			column(highest, func(r *registration) domain.DocumentID { return r.body.DocumentID }),
			column(highest, func(r *registration) domain.OrganizationID { return r.Organization }),
			column(highest, func(r *registration) domain.CompanyID { return r.Company }),
			column(highest, func(r *registration) string { return r.body.Source }),
			column(highest, func(r *registration) string { return r.body.DocumentReference }),
			column(highest, func(r *registration) int32 { return r.body.Version }))
	}
	f.queueReservations(b, shard)
	queueRegistrations(b, insertVersions, shard, f.registered)
	queueRegistrations(b, finalizeVersions, shard, f.finalized)
	for _, e := range f.revoked { // a statement each: revocations are rare
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
		column(list, func(r registration) string { return r.version.GeneratedAt }),
		column(list, func(r registration) time.Time { return r.version.ReceivedAt }),
		column(list, func(r registration) int64 { return r.Position }))
}
