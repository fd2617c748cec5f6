package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// comparison is one public id to look up, with its answer.
type comparison struct {
	id domain.PublicID

	evidence Evidence
	found    bool
	err      error
}

const loadComparisons = `SELECT n.place, e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, i.record_id IS NULL
	FROM unnest($2::int[], $3::uuid[]) AS n(place, id)
	JOIN LATERAL (SELECT document_id, organization_id, version, received_at, revoked_at, record_id, position FROM versions
		WHERE shard = $1 AND public_id = n.id OFFSET 0) i ON true
	JOIN LATERAL (SELECT highest_version FROM documents WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = i.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT data ` + eventAtPosition + `) e ON true`

// Comparison reads a registration, or that there is only a reservation, for any holder of its public id. Concurrent
// comparisons of a shard share a round trip.
func (s *Store) Comparison(ctx context.Context, id domain.PublicID) (Evidence, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return Evidence{}, UnknownPublicID()
	}
	c := &comparison{id: id}
	if err := s.comparisons.Ask(ctx, shard, c, s.compare); err != nil {
		return Evidence{}, statement.Failed("read a record for comparison", err)
	}
	if c.err == nil && !c.found {
		c.err = UnknownPublicID()
	}
	return c.evidence, c.err
}

// compare answers a batch.
func (s *Store) compare(shard domain.Shard, batch []*comparison) {
	_, err := statement.All(context.Background(), s.Public, "read records for comparison", func(row pgx.CollectableRow) (struct{}, error) {
		place, e, err := scanEvidence(row)
		if err == nil {
			batch[place].evidence, batch[place].found = e, true
		}
		return struct{}{}, err
	}, loadComparisons, shard, places(batch), statement.Column(batch, func(c *comparison) domain.PublicID { return c.id }))
	for _, c := range batch {
		c.err = err
	}
}

// UnknownPublicID answers a public id that was never given out. A malformed one is answered as an unknown one.
func UnknownPublicID() *domain.Error {
	return domain.Refuse(domain.RecordNotFound, "There is no record with this publicId.")
}
