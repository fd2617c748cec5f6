package projections

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// StoredEvidence is what the log holds of a registration, not yet believed, and
// the version's state in the same snapshot.
type StoredEvidence struct {
	Record     domain.SignedRecord
	ReceivedAt time.Time // as projected: never shown, only a lower bound for observations
	Status     domain.Status
	Sequence   int64 // the organization's
	Pending    bool  // only reserved: of the other members none means anything
	Position   int64 // of the registration, in its shard
}

// eventAtPosition looks an event up by its key. Two indexes begin with the shard,
// and while statistics say that the table is nearly empty they cost the same for
// an equality; the order makes it this one.
const eventAtPosition = `(SELECT data FROM events
		WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1)`

// evidenceQuestion is one record that a key asks for, and its answer.
type evidenceQuestion struct {
	id     domain.PublicID
	access domain.Access

	evidence StoredEvidence
	found    bool
	err      error
}

// The signed bytes come from the event, never from columns.
const loadEvidence = `SELECT n.place, e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, false, i.position
	FROM unnest($2::int[], $3::uuid[], $4::uuid[], $5::uuid[]) AS n(place, id, key_id, organization_id)
	JOIN LATERAL (SELECT document_id, version, received_at, revoked_at, position FROM identities
		WHERE shard = $1 AND public_id = n.id AND organization_id = n.organization_id AND record_id IS NOT NULL OFFSET 0) i ON true
	JOIN LATERAL (SELECT company_id, highest_version FROM documents WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT FROM grants WHERE shard = $1 AND key_id = n.key_id AND company_id = d.company_id AND enabled OFFSET 0) g ON true
	JOIN LATERAL (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = n.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL ` + eventAtPosition + ` e ON true`

// Evidence reads a registration for a granted key. Concurrent questions of a
// shard share a round trip.
func (s *Store) Evidence(ctx context.Context, a domain.Access, id domain.PublicID) (StoredEvidence, error) {
	q := &evidenceQuestion{id: id, access: a}
	if err := s.evidence.ask(ctx, a.Organization.Shard(), q, s.readEvidence); err != nil {
		return StoredEvidence{}, databaseError("read evidence", err)
	}
	if q.err == nil && !q.found {
		q.err = domain.UnknownRecord()
	}
	return q.evidence, q.err
}

// readEvidence answers a batch.
func (s *Store) readEvidence(shard domain.Shard, batch []*evidenceQuestion) {
	n := len(batch)
	places, ids, keys, organizations := make([]int32, n), make([][16]byte, n), make([][16]byte, n), make([][16]byte, n)
	for i, q := range batch {
		places[i], ids[i], keys[i], organizations[i] = int32(i), q.id, q.access.Key, q.access.Organization
	}
	_, err := collect(context.Background(), s.Pool, "read evidence", func(row pgx.CollectableRow) (struct{}, error) {
		place, e, err := scanEvidence(row)
		if err == nil {
			batch[place].evidence, batch[place].found = e, true
		}
		return struct{}{}, err
	}, loadEvidence, shard, places, ids, keys, organizations)
	for _, q := range batch {
		q.err = err
	}
}

// scanEvidence reads a row of evidence and the place of its question.
func scanEvidence(row pgx.CollectableRow) (place int32, e StoredEvidence, err error) {
	var data []byte
	var received, revoked *time.Time
	var position *int64
	var d domain.Document
	i := domain.Identity{Document: &d}
	err = row.Scan(&place, &data, &i.Version, &received, &revoked, &d.Highest, &e.Sequence, &e.Pending, &position)
	if err != nil || e.Pending {
		return place, e, err
	}
	e.ReceivedAt, i.RevokedAt, e.Position = received.UTC(), utc(revoked), *position
	e.Status = i.Status()
	// Data that cannot be taken apart is an empty record, which verifies as nothing.
	if record, err := domain.ReadSignedRecord(data); err == nil {
		e.Record = record
	}
	return place, e, nil
}
