package projections

import (
	"context"

	"integrityledger/domain"
)

// Comparison reads a registration for anyone who has its public id.
func (s *Store) Comparison(ctx context.Context, id domain.PublicID) (StoredEvidence, error) {
	const query = evidenceColumns + ` WHERE i.shard = $1 AND i.public_id = $2`
	unknown := domain.Refuse(domain.RecordNotFound, "There is no record with this publicId.")
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return StoredEvidence{}, unknown
	}
	e, found, err := first(ctx, s.Public, "read a record for comparison", scanEvidence, query, shard, [16]byte(id))
	if err == nil && !found {
		err = unknown
	}
	return e, err
}
