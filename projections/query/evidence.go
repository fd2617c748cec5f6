package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Evidence is a registration in the log, which the caller must verify, and the version's state in the same snapshot. A
// comparison reads only status, Pending, Released, Published, the organization and the event's data.
type Evidence struct {
	Record     domain.SignedRecord // parsed event data; empty, and so not verifiable, if parsing fails
	ReceivedAt time.Time           // from the projection; never shown, only a lower bound for observations
	Status     domain.Status
	Sequence   int64 // the organization's
	Pending    bool  // only reserved; the other fields but Released have no meaning
	Released   bool  // of a pending one: the organization has released the reservation
	// Published is set, for a comparison, if the organization has proven a domain that has not lapsed.
	Published bool
	// Alias is set if the evidence was asked for by a former public id.
	Alias *domain.RecordAliasedBody
	// Event is the registration's event without Hash and Body, for computing its leaf.
	Event domain.Event
}

// Leaf returns the registration's leaf in the transparency log.
func (e *Evidence) Leaf() []byte { return e.Event.LeafOf(e.Record.Payload) }

// eventAtPosition looks up an event by its key. Two indexes begin with the shard, and for an equality they have the
// same cost while statistics say that the table is nearly empty. ORDER BY makes the planner use the right one.
const eventAtPosition = `FROM {events} WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1`

// wholeEvent reads an event with the members that its leaf commits to; eventColumns are these members.
const (
	wholeEvent = `SELECT data, organization_id, sequence, id, v, company_id, type, subject, occurred_at, actor, request_id, nonce
		` + eventAtPosition
	eventColumns = `,
		i.position, e.organization_id, e.sequence, e.id, e.v, e.company_id, e.type, e.subject, e.occurred_at, e.actor,
		e.request_id, e.nonce`
)

// evidenceQuestion asks for one record, and holds the answer.
type evidenceQuestion struct {
	id      domain.PublicID
	access  domain.Access
	judging *Judgement

	evidence *Evidence // nil if not found
	err      error
}

// The signed bytes come from the event, never from columns.
var loadEvidence = cluster.SQL(`SELECT n.place, e.data, i.version, i.revoked_at, d.highest_version, false, false, i.received_at, o.sequence` + eventColumns + `
	FROM unnest($2::uuid[], $3::uuid[], $4::uuid[]) WITH ORDINALITY AS n(id, key_id, organization_id, place)
	JOIN LATERAL (SELECT document_id, version, received_at, revoked_at, position FROM {versions}
		WHERE shard = $1 AND public_id = n.id AND organization_id = n.organization_id AND record_id IS NOT NULL OFFSET 0) i ON true
	JOIN LATERAL (SELECT company_id, highest_version FROM {documents} WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	LEFT JOIN LATERAL (SELECT true AS granted FROM {grants} WHERE shard = $1 AND key_id = n.key_id AND company_id = d.company_id AND enabled OFFSET 0) g ON true
	JOIN LATERAL (SELECT sequence FROM {organization_state} WHERE shard = $1 AND organization_id = n.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (` + wholeEvent + `) e ON true
	WHERE n.key_id IS NULL OR g.granted`)

var (
	loadComparisons = loadPublished(`, i.organization_id, coalesce(p.published, false)`, `SELECT data `+eventAtPosition+`) e ON true
	LEFT JOIN LATERAL (SELECT true AS published FROM {publisher_domains}
		WHERE shard = $1 AND organization_id = i.organization_id AND removed_at IS NULL AND checked_at IS NOT NULL AND lapsed_at IS NULL LIMIT 1) p ON true`)
	loadLeaves = loadPublished(eventColumns, wholeEvent+`) e ON true`)
)

// loadPublished returns a statement that reads registrations with more columns; event ends the join of the event.
func loadPublished(columns, event string) string {
	return cluster.SQL(`SELECT n.place, e.data, i.version, i.revoked_at, d.highest_version, i.record_id IS NULL,
		coalesce(i.released_at = i.expires_at, false)` + columns + `
	FROM unnest($2::uuid[]) WITH ORDINALITY AS n(id, place)
	JOIN LATERAL (SELECT organization_id, document_id, version, revoked_at, record_id, position, expires_at, released_at FROM {versions}
		WHERE shard = $1 AND public_id = n.id OFFSET 0) i ON true
	JOIN LATERAL (SELECT highest_version FROM {documents} WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	LEFT JOIN LATERAL (` + event)
}

// Evidence reads a registration for a granted key. Concurrent questions of a shard share a round trip. A former public
// id leads to the record that is kept (Evidence.Alias).
func (s RecordReader) Evidence(ctx context.Context, a domain.Access, id domain.PublicID) (*Evidence, error) {
	e, err := s.registration(ctx, a, id, s.judging)
	if isUnknown(err) {
		return keptFor(ctx, s.Pool, a.Organization.Shard(), a.Organization, id, err, func(former *alias) (*Evidence, error) {
			e, err := s.registration(ctx, a, former.body.AliasOf, nil)
			if err != nil {
				return nil, err
			}
			return e.under(former), nil
		})
	}
	return e, err
}

func (s RecordReader) registration(
	ctx context.Context, a domain.Access, id domain.PublicID, j *Judgement,
) (*Evidence, error) {
	q := &evidenceQuestion{id: id, access: a, judging: j}
	asking := s.evidence.Ask(ctx, a.Organization.Shard(), q, func(shard domain.Shard, batch []*evidenceQuestion) {
		s.readEvidence(context.Background(), shard, batch) // for callers of their own
	})
	if asking != nil {
		j.giveUp()
	}
	e, err := q.answer(asking, domain.ErrUnknownRecord)
	if err == nil {
		e.Record, _ = domain.ReadSignedRecord(e.Event.Data)
	}
	return e, err
}

// EvidenceOfMany is Evidence for several records of an organization, in the order of ids, in at most three statements.
// It returns nil for a record that is unknown to the key.
func (s RecordReader) EvidenceOfMany(
	ctx context.Context, a domain.Access, ids []domain.PublicID,
) ([]*Evidence, error) {
	all, err := s.registrations(ctx, a, ids)
	if err != nil {
		return nil, err
	}
	var unknown, kept []domain.PublicID
	var places []int // of unknown, then of kept
	for i, e := range all {
		if e == nil {
			unknown, places = append(unknown, ids[i]), append(places, i)
		}
	}
	if len(unknown) == 0 {
		return all, nil
	}
	former, err := aliasesOf(ctx, s.Pool, a.Organization.Shard(), unknown...)
	if err != nil {
		return nil, err
	}
	n := 0
	for i, f := range former {
		if f != nil && f.organization == a.Organization {
			kept, former[n], places[n] = append(kept, f.body.AliasOf), f, places[i]
			n++
		}
	}
	if n == 0 {
		return all, nil
	}
	records, err := s.registrations(ctx, a, kept)
	for i, e := range records {
		if e != nil {
			all[places[i]] = e.under(former[i])
		}
	}
	return all, err
}

// registrations reads registrations in the order of ids; nil for one that is unknown to the key.
func (s RecordReader) registrations(
	ctx context.Context, a domain.Access, ids []domain.PublicID,
) ([]*Evidence, error) {
	batch, found := make([]*evidenceQuestion, len(ids)), make([]*Evidence, len(ids))
	for i, id := range ids {
		batch[i] = &evidenceQuestion{id: id, access: a}
	}
	s.readEvidence(ctx, a.Organization.Shard(), batch)
	for i, q := range batch {
		if q.err != nil {
			return nil, q.err
		}
		if found[i] = q.evidence; q.evidence != nil {
			q.evidence.Record, _ = domain.ReadSignedRecord(q.evidence.Event.Data)
		}
	}
	return found, nil
}

// Comparison reads a registration, or whether there is only a reservation, for anyone with its public id. Concurrent
// comparisons in a shard share a round trip.
func (s RecordReader) Comparison(ctx context.Context, id domain.PublicID) (*Evidence, error) {
	return s.published(ctx, id, &s.comparisons, s.compare)
}

// Published is Comparison with all members of the event, so that its leaf can be computed.
func (s RecordReader) Published(ctx context.Context, id domain.PublicID) (*Evidence, error) {
	e, err := s.published(ctx, id, &s.leaves, s.readLeaves)
	if err == nil {
		e.Record, _ = domain.ReadSignedRecord(e.Event.Data)
	}
	return e, err
}

func (s RecordReader) published(
	ctx context.Context, id domain.PublicID, questions *eventstore.Batcher[domain.Shard, *evidenceQuestion],
	read func(domain.Shard, []*evidenceQuestion),
) (*Evidence, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.Installation.Has(shard) {
		return nil, ErrUnknownPublicID
	}
	ask := func(id domain.PublicID) (*Evidence, error) {
		q := &evidenceQuestion{id: id}
		return q.answer(questions.Ask(ctx, shard, q, read), ErrUnknownPublicID)
	}
	e, err := ask(id)
	if isUnknown(err) {
		return keptFor(ctx, s.Public, shard, domain.OrganizationID{}, id, err, func(former *alias) (*Evidence, error) {
			e, err := ask(former.body.AliasOf)
			if err != nil {
				return nil, err
			}
			return e.under(former), nil
		})
	}
	return e, err
}

// answer returns the answer of a question. Call it only after the question was asked.
func (q *evidenceQuestion) answer(asking error, unknown *domain.Error) (*Evidence, error) {
	switch {
	case asking != nil:
		return nil, statement.Failed("read evidence", asking)
	case q.err == nil && q.evidence == nil:
		return nil, unknown
	}
	return q.evidence, q.err
}

// ErrUnknownPublicID is the error for a public id that was never assigned, and for a malformed one.
var ErrUnknownPublicID = domain.Refuse(domain.RecordNotFound, "There is no record with this publicId.")

func (s RecordReader) compare(shard domain.Shard, batch []*evidenceQuestion) {
	answerBatch(context.Background(), s.Public, batch, func(e *Evidence) []any {
		return []any{&e.Event.Organization, &e.Published}
	}, loadComparisons, shard)
}

func (s RecordReader) readLeaves(shard domain.Shard, batch []*evidenceQuestion) {
	answerBatch(context.Background(), s.Public, batch, eventTargets, loadLeaves, shard)
}

// eventTargets are the targets of eventColumns. If the event of a registration is missing, its evidence cannot be
// verified.
func eventTargets(e *Evidence) []any {
	r := &e.Event
	return []any{(*zeronull.Int8)(&r.Position), &r.Organization, (*zeronull.Int8)(&r.Sequence), &r.ID,
		(*zeronull.Int2)(&r.V), &r.Company,
		(*zeronull.Text)(&r.Type), (*zeronull.Text)(&r.Subject), (*zeronull.Timestamptz)(&r.OccurredAt), &r.Actor,
		(*zeronull.Text)(&r.RequestID), &r.Nonce}
}

func (s RecordReader) readEvidence(ctx context.Context, shard domain.Shard, batch []*evidenceQuestion) {
	answerBatch(ctx, s.Pool, batch, func(e *Evidence) []any {
		return append([]any{&e.ReceivedAt, &e.Sequence}, eventTargets(e)...)
	}, loadEvidence, shard,
		statement.Column(batch, func(q *evidenceQuestion) *domain.KeyID { return needsGrant(q.access) }),
		statement.Column(batch, func(q *evidenceQuestion) domain.OrganizationID { return q.access.Organization }))
}

// answerBatch runs a query for a batch. The public ids are the first argument after the shard. A row has the columns of
// a comparison, then more columns. All rows are scanned into the same variables and copied.
func answerBatch(
	ctx context.Context, from eventstore.Database, batch []*evidenceQuestion, more func(*Evidence) []any, sql string,
	shard domain.Shard, args ...any,
) {
	var place int
	var e Evidence
	var d domain.Document
	var i domain.Version
	targets := append([]any{
		&place, &e.Event.Data, &i.Version, &i.RevokedAt, &d.Highest, &e.Pending, &e.Released,
	}, more(&e)...)
	ids := statement.Column(batch, func(q *evidenceQuestion) domain.PublicID { return q.id })
	b := &pgx.Batch{}
	b.Queue(sql, append([]any{shard, ids}, args...)...).Query(func(rows pgx.Rows) error {
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
			e, i = Evidence{}, domain.Version{Document: &d}
			err := row.Scan(targets...)
			if err == nil {
				e.Event.Shard, e.Status = shard, i.Status()
				answer := e
				batch[place-1].evidence = &answer
			}
			return struct{}{}, err
		})
		return err
	})
	err := sendJudged(ctx, from, "read evidence", b, shard,
		statement.Column(batch, func(q *evidenceQuestion) *Judgement { return q.judging }))
	for _, q := range batch {
		q.err = err
	}
}
