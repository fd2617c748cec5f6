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
}

// eventAtPosition looks an event up by its key. Two indexes begin with the shard,
// and while statistics say that the table is nearly empty they cost the same for
// an equality; the order makes it this one.
const eventAtPosition = `(SELECT data FROM events
		WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1)`

// The signed bytes come from the event, never from columns.
const loadEvidence = `SELECT e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, false
	FROM (SELECT document_id, version, received_at, revoked_at, position FROM identities
		WHERE shard = $1 AND public_id = $2 AND organization_id = $4 AND record_id IS NOT NULL OFFSET 0) i
	JOIN LATERAL (SELECT company_id, highest_version FROM documents WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT FROM grants WHERE shard = $1 AND key_id = $3 AND company_id = d.company_id AND enabled OFFSET 0) g ON true
	JOIN LATERAL (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $4 OFFSET 0) o ON true
	LEFT JOIN LATERAL ` + eventAtPosition + ` e ON true`

// Evidence reads a registration for a granted key.
func (s *Store) Evidence(ctx context.Context, a domain.Access, id domain.PublicID) (StoredEvidence, error) {
	e, found, err := first(ctx, s.Pool, "read evidence", func(row pgx.CollectableRow) (StoredEvidence, error) { return scanEvidence(row) }, loadEvidence,
		a.Organization.Shard(), [16]byte(id), [16]byte(a.Key), [16]byte(a.Organization))
	if err == nil && !found {
		err = domain.UnknownRecord()
	}
	return e, err
}

// scanEvidence reads the columns of evidence, after others into before.
func scanEvidence(row pgx.CollectableRow, before ...any) (StoredEvidence, error) {
	var data []byte
	var received, revoked *time.Time
	var d domain.Document
	i := domain.Identity{Document: &d}
	var e StoredEvidence
	columns := append(before, &data, &i.Version, &received, &revoked, &d.Highest, &e.Sequence, &e.Pending)
	if err := row.Scan(columns...); err != nil || e.Pending {
		return e, err
	}
	e.ReceivedAt, i.RevokedAt = received.UTC(), utc(revoked)
	e.Status = i.Status()
	// Data that cannot be taken apart is an empty record, which verifies as nothing.
	if record, err := domain.ReadSignedRecord(data); err == nil {
		e.Record = record
	}
	return e, nil
}
