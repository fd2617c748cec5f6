package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const upsertDocuments = `INSERT INTO documents (shard, document_id, organization_id, company_id, source, reference, highest_version, highest_revoked)
	SELECT $1, n.*, false FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::int[]) AS n
	ON CONFLICT (shard, document_id) DO UPDATE
	SET highest_version = excluded.highest_version, highest_revoked = false
	WHERE documents.highest_version < excluded.highest_version`

const insertIdentities = `INSERT INTO identities (shard, document_id, version, organization_id, public_id, record_id, previous_version,
		sha256, size_bytes, mime_type, generated_at, received_at, position)
	SELECT $1, n.* FROM unnest($2::uuid[], $3::int[], $4::uuid[], $5::uuid[], $6::uuid[], $7::int[], $8::bytea[], $9::bigint[],
		$10::text[], $11::text[], $12::timestamptz[], $13::bigint[]) AS n`

const revokeIdentity = `UPDATE identities SET revoked_at = $4 WHERE shard = $1 AND document_id = $2 AND version = $3`

// After the upsert: a revoked version that is still the highest leaves its
// document without a current one.
const revokeHighest = `UPDATE documents SET highest_revoked = true WHERE shard = $1 AND document_id = $2 AND highest_version = $3`

// queueVersions writes documents and identities. Within a run the upsert comes
// before the revocations, which ask for the highest version as it is then.
func (f *fold) queueVersions(b *pgx.Batch, shard domain.Shard) {
	if n := len(f.documentOrder); n > 0 {
		ids, organizations, companies := make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
		sources, references, highest := make([]string, n), make([]string, n), make([]int32, n)
		for i, id := range f.documentOrder {
			e := f.documents[id]
			body := e.Body.(*domain.Registered)
			ids[i], organizations[i], companies[i] = id, e.Organization, e.Company
			sources[i], references[i], highest[i] = body.Source, body.DocumentReference, body.Version
		}
		b.Queue(upsertDocuments, shard, ids, organizations, companies, sources, references, highest)
	}
	if len(f.registered) > 0 {
		f.queueIdentities(b, shard)
	}
	for _, e := range f.revoked { // a statement each: revocations are rare
		body := e.Body.(*domain.Revoked)
		b.Queue(revokeIdentity, shard, [16]byte(body.DocumentID), body.Version, e.OccurredAt)
		b.Queue(revokeHighest, shard, [16]byte(body.DocumentID), body.Version)
	}
}

func (f *fold) queueIdentities(b *pgx.Batch, shard domain.Shard) {
	n := len(f.registered)
	documents, organizations := make([][16]byte, n), make([][16]byte, n)
	publicIDs, records := make([][16]byte, n), make([][16]byte, n)
	versions, previous := make([]int32, n), make([]*int32, n)
	sums, sizes, positions := make([][]byte, n), make([]int64, n), make([]int64, n)
	mimes, generated, received := make([]string, n), make([]string, n), make([]time.Time, n)
	for k, e := range f.registered {
		body, i := e.Body.(*domain.Registered), &f.identities[k]
		documents[k], organizations[k], publicIDs[k], records[k] = body.DocumentID, e.Organization, i.PublicID, i.RecordID
		versions[k], previous[k] = i.Version, i.PreviousVersion
		sums[k], sizes[k], positions[k] = i.SHA256[:], i.SizeBytes, e.Position
		mimes[k], generated[k], received[k] = i.MimeType, i.GeneratedAt, i.ReceivedAt
	}
	b.Queue(insertIdentities, shard, documents, versions, organizations, publicIDs, records, previous, sums, sizes, mimes,
		generated, received, positions)
}
