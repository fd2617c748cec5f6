package projections

import (
	"context"

	"integrityledger/domain"
)

// Comparison reads a registration, or that there is only a reservation, for anyone
// who has its public id.
func (s *Store) Comparison(ctx context.Context, id domain.PublicID) (StoredEvidence, error) {
	const query = evidenceColumns + ` WHERE i.shard = $1 AND i.public_id = $2`
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return StoredEvidence{}, UnknownPublicID()
	}
	e, found, err := first(ctx, s.Public, "read a record for comparison", scanEvidence, query, shard, [16]byte(id))
	if err == nil && !found {
		err = UnknownPublicID()
	}
	return e, err
}

// UnknownPublicID answers a public id that was never given out, and a text that is none.
func UnknownPublicID() *domain.Error {
	return domain.Refuse(domain.RecordNotFound, "There is no record with this publicId.")
}
