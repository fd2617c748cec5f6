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

// The signed bytes come from the event, never from columns.
const evidenceColumns = `SELECT e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, i.record_id IS NULL
		FROM identities i
		JOIN documents d ON d.shard = $1 AND d.document_id = i.document_id
		JOIN organization_state o ON o.shard = $1 AND o.organization_id = i.organization_id
		LEFT JOIN events e ON e.shard = $1 AND e.position = i.position`

// Evidence reads a registration for a granted key.
func (s *Store) Evidence(ctx context.Context, a domain.Access, id domain.PublicID) (StoredEvidence, error) {
	const query = evidenceColumns + `
		JOIN grants g ON g.shard = $1 AND g.key_id = $3 AND g.company_id = d.company_id AND g.enabled
		WHERE i.shard = $1 AND i.public_id = $2 AND i.organization_id = $4 AND i.record_id IS NOT NULL`
	e, found, err := first(ctx, s.Pool, "read evidence", scanEvidence, query,
		a.Organization.Shard(), [16]byte(id), [16]byte(a.Key), [16]byte(a.Organization))
	if err == nil && !found {
		err = domain.UnknownRecord()
	}
	return e, err
}

func scanEvidence(row pgx.CollectableRow) (StoredEvidence, error) {
	var data []byte
	var received, revoked *time.Time
	var d domain.Document
	i := domain.Identity{Document: &d}
	var e StoredEvidence
	if err := row.Scan(&data, &i.Version, &received, &revoked, &d.Highest, &e.Sequence, &e.Pending); err != nil || e.Pending {
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
