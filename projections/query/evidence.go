package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// Evidence is what the log holds of a registration, which the caller verifies, and the version's state in the
// same snapshot.
type Evidence struct {
	Record     domain.SignedRecord
	ReceivedAt time.Time // as projected: never shown, only a lower bound for observations
	Status     domain.Status
	Sequence   int64 // the organization's
	Pending    bool  // only reserved: no other member has a meaning
	// Event is the registration without Hash and Body, from which its leaf is made. A comparison does not read it.
	Event domain.Event
}

// Leaf is the registration's in the transparency log.
func (e *Evidence) Leaf() []byte { return e.Event.LeafOf(e.Record.Payload) }

// eventAtPosition looks an event up by its key. Two indexes begin with the shard, and for an equality they cost the
// same while statistics say that the table is nearly empty; the order makes the planner use this one.
const eventAtPosition = `FROM events WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1`

// evidenceQuestion is one record that a key asks for, with its answer.
type evidenceQuestion struct {
	id     domain.PublicID
	access domain.Access

	evidence Evidence
	found    bool
	err      error
}

// The signed bytes come from the event, never from columns.
const loadEvidence = `SELECT n.place, e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, false,
		i.position, e.organization_id, e.sequence, e.id, e.v, e.company_id, e.type, e.subject, e.occurred_at, e.actor, e.request_id, e.nonce
	FROM unnest($2::int[], $3::uuid[], $4::uuid[], $5::uuid[]) AS n(place, id, key_id, organization_id)
	JOIN LATERAL (SELECT document_id, version, received_at, revoked_at, position FROM versions
		WHERE shard = $1 AND public_id = n.id AND organization_id = n.organization_id AND record_id IS NOT NULL OFFSET 0) i ON true
	JOIN LATERAL (SELECT company_id, highest_version FROM documents WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT FROM grants WHERE shard = $1 AND key_id = n.key_id AND company_id = d.company_id AND enabled OFFSET 0) g ON true
	JOIN LATERAL (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = n.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT data, organization_id, sequence, id, v, company_id, type, subject, occurred_at, actor, request_id, nonce
		` + eventAtPosition + `) e ON true`

const loadComparisons = `SELECT n.place, e.data, i.version, i.received_at, i.revoked_at, d.highest_version, o.sequence, i.record_id IS NULL
	FROM unnest($2::int[], $3::uuid[]) AS n(place, id)
	JOIN LATERAL (SELECT document_id, organization_id, version, received_at, revoked_at, record_id, position FROM versions
		WHERE shard = $1 AND public_id = n.id OFFSET 0) i ON true
	JOIN LATERAL (SELECT highest_version FROM documents WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = i.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT data ` + eventAtPosition + `) e ON true`

// Evidence reads a registration for a granted key. Concurrent questions of a shard share a round trip.
func (s *Store) Evidence(ctx context.Context, a domain.Access, id domain.PublicID) (Evidence, error) {
	q := &evidenceQuestion{id: id, access: a}
	return q.answer(s.evidence.Ask(ctx, a.Organization.Shard(), q, s.readEvidence), domain.ErrUnknownRecord)
}

// Comparison reads a registration, or that there is only a reservation, for any holder of its public id. Concurrent
// comparisons of a shard share a round trip.
func (s *Store) Comparison(ctx context.Context, id domain.PublicID) (Evidence, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return Evidence{}, UnknownPublicID()
	}
	q := &evidenceQuestion{id: id}
	return q.answer(s.comparisons.Ask(ctx, shard, q, s.compare), UnknownPublicID())
}

// answer is the answer of a question that was asked; before that, nothing of it may be read.
func (q *evidenceQuestion) answer(asking error, unknown *domain.Error) (Evidence, error) {
	switch {
	case asking != nil:
		return Evidence{}, statement.Failed("read evidence", asking)
	case q.err == nil && !q.found:
		return Evidence{}, unknown
	}
	return q.evidence, q.err
}

// UnknownPublicID answers a public id that was never given out. A malformed one is answered as an unknown one.
func UnknownPublicID() *domain.Error {
	return domain.Refuse(domain.RecordNotFound, "There is no record with this publicId.")
}

func (s *Store) compare(shard domain.Shard, batch []*evidenceQuestion) {
	answerBatch(s.Public, batch, func(row pgx.CollectableRow) (int32, Evidence, error) { return scanEvidence(row) }, loadComparisons, shard)
}

func (s *Store) readEvidence(shard domain.Shard, batch []*evidenceQuestion) {
	answerBatch(s.Pool, batch, func(row pgx.CollectableRow) (int32, Evidence, error) {
		r := domain.Event{Shard: shard}
		var at pgtype.Timestamptz
		// If the event of a registration is missing, its evidence verifies as nothing.
		place, e, err := scanEvidence(row, &r.Position, &r.Organization, (*zeronull.Int8)(&r.Sequence), &r.ID, (*zeronull.Int2)(&r.V), &r.Company,
			(*zeronull.Text)(&r.Type), (*zeronull.Text)(&r.Subject), &at, (*zeronull.Text)(&r.Actor), (*zeronull.Text)(&r.RequestID), &r.Nonce)
		r.OccurredAt, r.Data = at.Time, e.Event.Data
		e.Event = r
		return place, e, err
	}, loadEvidence, shard,
		statement.Column(batch, func(q *evidenceQuestion) domain.KeyID { return q.access.Key }),
		statement.Column(batch, func(q *evidenceQuestion) domain.OrganizationID { return q.access.Organization }))
}

// answerBatch asks about a batch, whose places and public ids are the first arguments after the shard.
func answerBatch(from *pgxpool.Pool, batch []*evidenceQuestion, scan func(pgx.CollectableRow) (int32, Evidence, error), sql string, shard domain.Shard, more ...any) {
	ids := statement.Column(batch, func(q *evidenceQuestion) domain.PublicID { return q.id })
	_, err := statement.All(context.Background(), from, "read evidence", func(row pgx.CollectableRow) (struct{}, error) {
		place, e, err := scan(row)
		if err == nil {
			batch[place].evidence, batch[place].found = e, true
		}
		return struct{}{}, err
	}, sql, append([]any{shard, places(batch), ids}, more...)...)
	for _, q := range batch {
		q.err = err
	}
}

// scanEvidence reads a row of evidence and the place of its question, then more targets.
func scanEvidence(row pgx.CollectableRow, more ...any) (place int32, e Evidence, err error) {
	var received *time.Time
	var d domain.Document
	i := domain.Version{Document: &d}
	err = row.Scan(append([]any{&place, &e.Event.Data, &i.Version, &received, &i.RevokedAt, &d.Highest, &e.Sequence, &e.Pending}, more...)...)
	if err != nil || e.Pending {
		return place, e, err
	}
	e.ReceivedAt, e.Status = *received, i.Status()
	// Data that cannot be taken apart is an empty record, which verifies as nothing.
	if record, err := domain.ReadSignedRecord(e.Event.Data); err == nil {
		e.Record = record
	}
	return place, e, nil
}
