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

// These two meet the row that is there by its whole key, whatever statistics say
// (see Load).

const reserveVersions = `INSERT INTO versions (shard, document_id, version, organization_id, public_id, expires_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::int[], $4::uuid[], $5::uuid[], $6::timestamptz[]) AS n WHERE s.shard = $1
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = excluded.expires_at`

const finalizeVersions = insertVersions + `
	ON CONFLICT (shard, document_id, version) DO UPDATE SET expires_at = NULL, record_id = excluded.record_id,
		previous_version = excluded.previous_version, sha256 = excluded.sha256, size_bytes = excluded.size_bytes,
		mime_type = excluded.mime_type, generated_at = excluded.generated_at, received_at = excluded.received_at,
		position = excluded.position`

const revokeVersion = `UPDATE versions SET revoked_at = $4 WHERE shard = $1 AND document_id = $2 AND version = $3`

// After the upsert: a revoked version that is still the highest leaves its
// document without a current one.
const revokeHighest = `UPDATE documents SET highest_revoked = true WHERE shard = $1 AND document_id = $2 AND highest_version = $3`

// queueVersions writes documents and versions. Within a run reservations come
// before the registrations that finalize them, and the upsert before the
// revocations, which ask for the highest version as it is then. Where a run holds
// no reservation and finalizes none, there is no statement about them.
func (f *fold) queueVersions(b *pgx.Batch, shard domain.Shard) {
	if n := len(f.documentOrder); n > 0 {
		ids, organizations, companies := make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		sources, references, highest := make([]string, n), make([]string, n), make([]int32, n)
		for i, id := range f.documentOrder {
			e := f.documents[id]
			body := e.Body.(*domain.RecordRegisteredBody)
			ids[i], organizations[i], companies[i] = id, e.Organization, e.Company
			sources[i], references[i], highest[i] = body.Source, body.DocumentReference, body.Version
		}
		b.Queue(upsertDocuments, shard, ids, organizations, companies, sources, references, highest)
	}
	if len(f.reservedOrder) > 0 {
		f.queueReservations(b, shard)
	}
	if len(f.registered) > 0 {
		f.queueIdentities(b, shard)
	}
	for _, e := range f.revoked { // a statement each: revocations are rare
		body := e.Body.(*domain.RecordRevokedBody)
		b.Queue(revokeVersion, shard, [16]byte(body.DocumentID), body.Version, e.OccurredAt)
		b.Queue(revokeHighest, shard, [16]byte(body.DocumentID), body.Version)
	}
}

func (f *fold) queueReservations(b *pgx.Batch, shard domain.Shard) {
	var documents, owners, companies [][16]byte // of documents that may be new
	var sources, references []string
	n := len(f.reservedOrder)
	ids, versions, organizations := make([][16]byte, n), make([]int32, n), make([][16]byte, n)
	publicIDs, expiries := make([][16]byte, n), make([]time.Time, n)
	seen := map[domain.DocumentID]bool{}
	for i, k := range f.reservedOrder {
		e := f.reserved[k]
		body := e.Body.(*domain.VersionReservedBody)
		ids[i], versions[i], organizations[i] = k.document, k.version, e.Organization
		publicIDs[i], expiries[i] = body.PublicID, body.ExpiresAt
		if f.documents[k.document] == nil && !seen[k.document] {
			seen[k.document] = true
			documents, owners, companies = append(documents, k.document), append(owners, e.Organization), append(companies, e.Company)
			sources, references = append(sources, body.Source), append(references, body.DocumentReference)
		}
	}
	if documents != nil {
		b.Queue(reserveDocuments, shard, documents, owners, companies, sources, references)
	}
	b.Queue(reserveVersions, shard, ids, versions, organizations, publicIDs, expiries)
}

// identityRows are the columns of registrations.
type versionRows struct {
	documents, organizations, publicIDs, records [][16]byte
	versions                                     []int32
	previous                                     []*int32
	sums                                         [][]byte
	sizes, positions                             []int64
	mimes, generated                             []string
	received                                     []time.Time
}

func (r *versionRows) add(e *domain.Event, body *domain.RecordRegisteredBody, i *domain.Version) {
	r.documents, r.organizations = append(r.documents, body.DocumentID), append(r.organizations, e.Organization)
	r.publicIDs, r.records = append(r.publicIDs, i.PublicID), append(r.records, i.RecordID)
	r.versions, r.previous = append(r.versions, i.Version), append(r.previous, i.PreviousVersion)
	r.sums, r.sizes, r.positions = append(r.sums, i.SHA256[:]), append(r.sizes, i.SizeBytes), append(r.positions, e.Position)
	r.mimes, r.generated, r.received = append(r.mimes, i.MimeType), append(r.generated, i.GeneratedAt), append(r.received, i.ReceivedAt)
}

func (f *fold) queueIdentities(b *pgx.Batch, shard domain.Shard) {
	var fresh, finalized versionRows
	for k, e := range f.registered {
		body := e.Body.(*domain.RecordRegisteredBody)
		if body.Reserved {
			finalized.add(e, body, &f.versions[k])
		} else {
			fresh.add(e, body, &f.versions[k])
		}
	}
	fresh.queue(b, insertVersions, shard)
	finalized.queue(b, finalizeVersions, shard)
}

func (r *versionRows) queue(b *pgx.Batch, sql string, shard domain.Shard) {
	if r.documents != nil {
		b.Queue(sql, shard, r.documents, r.versions, r.organizations, r.publicIDs, r.records, r.previous, r.sums, r.sizes,
			r.mimes, r.generated, r.received, r.positions)
	}
}
