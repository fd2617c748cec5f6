package query

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections/internal/statement"
)

const recordColumns = `SELECT i.record_id, i.public_id, i.sha256, c.reference, d.source, d.reference, i.version,
		i.previous_version, i.size_bytes, i.mime_type, i.generated_at, i.received_at, i.revoked_at, d.highest_version`

// granted returns a join with the grant that the key $3 needs for company c. For a signed-in member, who sees all
// companies of the organization, the rest of the statement must restrict the organization.
func granted(a domain.Access) string {
	if a.Console {
		return ` CROSS JOIN (SELECT $3::uuid) g`
	}
	return ` JOIN {grants} g ON g.shard = $1 AND g.key_id = $3 AND g.company_id = c.company_id AND g.enabled`
}

// recordsAsked returns a statement that reads the records of recordQuestions. They are named by columns of types.
func recordsAsked(types, columns, joins string) string {
	return cluster.SQL(recordColumns + `, n.place
	FROM unnest($2::uuid[], $3::uuid[], ` + types + `) WITH ORDINALITY AS n(organization_id, key_id, ` + columns + `, place)` + joins + `
	LEFT JOIN LATERAL (SELECT true AS granted FROM {grants} WHERE shard = $1 AND key_id = n.key_id AND company_id = c.company_id AND enabled OFFSET 0) g ON true
	WHERE n.key_id IS NULL OR g.granted`)
}

const versionColumns = `record_id, public_id, sha256, version, previous_version, size_bytes, mime_type, generated_at, received_at, revoked_at`

var (
	findRecords = recordsAsked(`$4::uuid[]`, `public_id`, `
	JOIN LATERAL (SELECT document_id, `+versionColumns+` FROM {versions}
		WHERE shard = $1 AND public_id = n.public_id AND organization_id = n.organization_id AND record_id IS NOT NULL OFFSET 0) i ON true
	JOIN LATERAL (SELECT company_id, source, reference, highest_version FROM {documents}
		WHERE shard = $1 AND document_id = i.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT company_id, reference FROM {companies}
		WHERE shard = $1 AND company_id = d.company_id OFFSET 0) c ON true`)
	lookRecordsUp = recordsAsked(`$4::text[], $5::text[], $6::text[], $7::int[]`, `company, source, document, version`, `
	JOIN LATERAL (SELECT company_id, reference FROM {companies}
		WHERE shard = $1 AND organization_id = n.organization_id AND reference = n.company OFFSET 0) c ON true
	JOIN LATERAL (SELECT document_id, source, reference, highest_version FROM {documents}
		WHERE shard = $1 AND company_id = c.company_id AND source = n.source AND reference = n.document OFFSET 0) d ON true
	JOIN LATERAL (SELECT `+versionColumns+` FROM {versions}
		WHERE shard = $1 AND document_id = d.document_id AND version = n.version AND record_id IS NOT NULL OFFSET 0) i ON true`)
)

// recordQuestion asks for one record by its public id or its version, and holds the answer.
type recordQuestion struct {
	access  domain.Access
	judging *Judgement
	id      domain.PublicID
	version domain.VersionReference

	record *domain.Record // nil if not found
	err    error
}

// Record finds a record by its public id, or by a former one. A reserved version, and a record that the key may not
// see, count as unknown.
func (s RecordReader) Record(ctx context.Context, a domain.Access, id domain.PublicID) (domain.Record, error) {
	ask := func(id domain.PublicID, j *Judgement) (domain.Record, error) {
		return s.askRecord(ctx, &s.records, recordQuestion{access: a, judging: j, id: id}, answerRecords)
	}
	found, err := ask(id, s.judging)
	if isUnknown(err) {
		shard := a.Organization.Shard()
		return keptFor(ctx, s.Pool, shard, a.Organization, id, err, func(former *alias) (domain.Record, error) {
			return ask(former.body.AliasOf, nil)
		})
	}
	return found, err
}

// Lookup finds a record by the reference of its origin. An unknown company, and one without a grant, is an error of its
// own.
func (s RecordReader) Lookup(ctx context.Context, a domain.Access, v domain.VersionReference) (domain.Record, error) {
	found, err := s.askRecord(
		ctx, &s.lookups, recordQuestion{access: a, judging: s.judging, version: v}, answerLookups,
	)
	if isUnknown(err) {
		if _, refused := s.grantedCompany(ctx, a, v.CompanyReference); refused != nil {
			err = refused
		}
	}
	return found, err
}

// askRecord asks for a record; concurrent questions of a shard share a round trip.
func (s RecordReader) askRecord(
	ctx context.Context, questions *eventstore.Batcher[domain.Shard, *recordQuestion], asked recordQuestion,
	answer func(context.Context, eventstore.Database, domain.Shard, []*recordQuestion),
) (domain.Record, error) {
	return read(ctx, s.reader, asked.access, newEnough(asked.access), func(from source) (domain.Record, error) {
		q, shard := new(asked), asked.access.Organization.Shard() // without the answer of a replica that was dismissed
		if from.replica {
			answer(ctx, from, shard, []*recordQuestion{q})
		} else if err := questions.Ask(ctx, shard, q, func(shard domain.Shard, batch []*recordQuestion) {
			answer(context.Background(), s.Pool, shard, batch) // for callers of their own
		}); err != nil {
			asked.judging.giveUp()
			return domain.Record{}, statement.Failed("read records", err)
		}
		switch {
		case q.err != nil:
			return domain.Record{}, q.err
		case q.record == nil:
			return domain.Record{}, domain.ErrUnknownRecord
		}
		return *q.record, s.stillGranted(ctx, from, q.access, q.record.CompanyReference)
	})
}

func answerRecords(ctx context.Context, from eventstore.Database, shard domain.Shard, batch []*recordQuestion) {
	answerRecordsBy(ctx, from, shard, batch, findRecords,
		statement.Column(batch, func(q *recordQuestion) domain.PublicID { return q.id }))
}

func answerLookups(ctx context.Context, from eventstore.Database, shard domain.Shard, batch []*recordQuestion) {
	answerRecordsBy(ctx, from, shard, batch, lookRecordsUp,
		statement.Column(batch, func(q *recordQuestion) string { return q.version.CompanyReference }),
		statement.Column(batch, func(q *recordQuestion) string { return q.version.Source }),
		statement.Column(batch, func(q *recordQuestion) string { return q.version.DocumentReference }),
		statement.Column(batch, func(q *recordQuestion) int32 { return q.version.Version }))
}

func answerRecordsBy(
	ctx context.Context, from eventstore.Database, shard domain.Shard, batch []*recordQuestion, sql string, names ...any,
) {
	b := &pgx.Batch{}
	b.Queue(sql, append([]any{
		shard, statement.Column(batch, func(q *recordQuestion) domain.OrganizationID { return q.access.Organization }),
		statement.Column(batch, func(q *recordQuestion) *domain.KeyID { return needsGrant(q.access) }),
	}, names...)...).Query(func(rows pgx.Rows) error {
		var place int
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
			record, err := scanRecordAnd(row, &place)
			if err == nil {
				batch[place-1].record = &record
			}
			return struct{}{}, err
		})
		return err
	})
	err := sendJudged(ctx, from, "read records", b, shard,
		statement.Column(batch, func(q *recordQuestion) *Judgement { return q.judging }))
	for _, q := range batch {
		q.err = err
	}
}

// needsGrant returns the key whose grants a statement must check, or nil for a signed-in member, who sees all companies
// of the organization.
func needsGrant(a domain.Access) *domain.KeyID {
	if a.Console {
		return nil
	}
	return &a.Key
}

func scanRecord(row pgx.CollectableRow) (domain.Record, error) { return scanRecordAnd(row) }

// scanRecordAnd scans recordColumns, then more targets.
func scanRecordAnd(row pgx.CollectableRow, more ...any) (domain.Record, error) {
	var d domain.Document
	i := domain.Version{Document: &d}
	var company string
	err := row.Scan(append([]any{&i.RecordID, &i.PublicID, &i.SHA256, &company, &d.Source, &d.Reference, &i.Version,
		&i.PreviousVersion, &i.SizeBytes, &i.MimeType, &i.GeneratedAt, &i.ReceivedAt, &i.RevokedAt, &d.Highest}, more...)...)
	return i.Record(company), err
}

// RecordsNamed reads, for a signed-in member, the records with these ids, in that order, of any company. Ids that are
// not records of the organization are left out.
func (s RecordReader) RecordsNamed(
	ctx context.Context, a domain.Access, ids []domain.PublicID,
) (records []domain.Record, err error) {
	return read(ctx, s.reader, a, newEnough(a), func(from source) ([]domain.Record, error) {
		batch := statement.Column(ids, func(id domain.PublicID) *recordQuestion { return &recordQuestion{access: a, id: id} })
		answerRecords(ctx, from, a.Organization.Shard(), batch)
		var records []domain.Record
		for _, q := range batch {
			if q.err != nil {
				return nil, q.err
			}
			if q.record != nil {
				records = append(records, *q.record)
			}
		}
		return records, nil
	})
}

func searchRecords(a domain.Access) string {
	return cluster.SQL(recordColumns + `
		FROM {versions} i
		JOIN {documents} d ON d.shard = $1 AND d.document_id = i.document_id
		JOIN {companies} c ON c.shard = $1 AND c.company_id = d.company_id` + granted(a) + `
		WHERE i.shard = $1 AND i.organization_id = $2 AND substring(i.sha256 from 1 for 6) = substring($4::bytea from 1 for 6)
			AND i.sha256 = $4 AND i.record_id IS NOT NULL AND i.record_id < $5
		ORDER BY i.record_id DESC LIMIT $6`)
}

// Search lists up to limit records with a hash, newest first, and reports whether more follow. They belong to companies
// granted to the key, and were received before the last record of the previous page (a zero id starts the list). A
// record's id begins with its time, so it gives the order. The index contains only the first bytes of the hash.
func (s RecordReader) Search(
	ctx context.Context, a domain.Access, sum [32]byte, before domain.RecordID, limit int,
) (records []domain.Record, more bool, err error) {
	records, err = read(ctx, s.reader, a, newEnough(a), func(from source) ([]domain.Record, error) {
		list, err := statement.All(ctx, from, "search records", scanRecord, searchRecords(a),
			a.Organization.Shard(), a.Organization, a.Key, sum[:], behind(before), limit+1)
		if err == nil {
			err = s.stillGranted(ctx, from, a, statement.Column(list, func(r domain.Record) string {
				return r.CompanyReference
			})...)
		}
		return list, err
	})
	return statement.Page(records, limit, err)
}

// behind returns the last record of the previous page, or the highest id for the first page.
func behind(before domain.RecordID) domain.RecordID {
	if before.IsZero() {
		return domain.RecordID(bytes.Repeat([]byte{0xff}, len(before)))
	}
	return before
}

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

// Moment is a moment in an organization's history: a sequence, or a time if that is 0.
type Moment struct {
	Sequence int64
	Time     time.Time
}

// AsOf is a version's state at an earlier moment.
type AsOf struct {
	Sequence int64     // the last event at or before the moment
	Time     time.Time // the moment's time, or the time of the event at its sequence
	Status   domain.Status
}

// Reasons why a version has no state at a moment.
var (
	ErrBeforeRecord = say.New("the record did not exist yet")
	ErrBeyondHead   = say.New("the organization has no such sequence yet")
)

// sequenceAt finds the last event at or before the time $4, among the events up to $3, or 0 if the first event is
// later. An event counts from its date, or from an earlier date of a later clock reset. These times never decrease
// along a history, so it uses binary search: event low is no later than the time, and each event after high is later.
var sequenceAt = cluster.SQL(`WITH RECURSIVE resets AS MATERIALIZED (
		SELECT sequence, occurred_at FROM {events}` + clockResets + `
	), ` + halving + `occurred_at <= $4 OR EXISTS (SELECT FROM resets r WHERE r.sequence > m.middle AND r.occurred_at <= $4)` + halved)

// allBefore finds the last event up to which all events are dated at or before the time $4, among the events up to $3,
// or 0. The latest date up to an event is its own date, or the date of the event before a reset.
var allBefore = cluster.SQL(`WITH RECURSIVE resets AS MATERIALIZED (
		SELECT z.sequence, b.occurred_at FROM (SELECT sequence FROM {events}` + clockResets + ` OFFSET 0) z
		JOIN LATERAL (SELECT occurred_at FROM {events}
			WHERE shard = $1 AND organization_id = $2 AND sequence >= z.sequence - 1 AND sequence <= z.sequence - 1 ORDER BY sequence LIMIT 1) b ON true
	), ` + halving + `occurred_at <= $4 AND NOT EXISTS (SELECT FROM resets r WHERE r.sequence <= m.middle AND r.occurred_at > $4)` + halved)

const clockResets = `
		WHERE shard = $1 AND organization_id = $2 AND subject = $5 AND type <> 'integrity.registered' AND type = 'clock.reset' AND sequence <= $3`

// The condition between halving and halved must be true for all events up to the one searched.
const (
	halving = `search(low, high) AS (
		SELECT 0::bigint, $3::bigint
		UNION ALL
		SELECT CASE WHEN e.no_later THEN m.middle ELSE s.low END, CASE WHEN e.no_later THEN s.high ELSE m.middle - 1 END
		FROM search s
		CROSS JOIN LATERAL (SELECT (s.low + s.high + 1) / 2 AS middle OFFSET 0) m
		JOIN LATERAL (SELECT `
	halved = ` AS no_later FROM {events}
			WHERE shard = $1 AND organization_id = $2 AND sequence >= m.middle AND sequence <= m.middle ORDER BY sequence LIMIT 1) e ON true
		WHERE s.low < s.high)
	SELECT low FROM search WHERE low = high`
)

// findSequence runs sequenceAt or allBefore for an organization whose events up to head are known to be committed.
func findSequence(
	ctx context.Context, from history.Querier, sql string, o domain.OrganizationID, head int64, at time.Time,
) (int64, error) {
	hole := say.New("find the last event before a time: the history has a hole")
	return statement.One(
		ctx, from, "find the last event before a time", hole, pgx.RowTo[int64], sql, o.Shard(), o, head, at, o.String(),
	)
}

// loadAsOf reads the sequence of a registered version, the time from which event $4 counts, whether a higher version of
// its document had been registered by then, and whether the version had been revoked.
var loadAsOf = cluster.SQL(`SELECT r.sequence, LEAST(t.occurred_at, (SELECT min(z.occurred_at) FROM {events} z
			WHERE z.shard = $1 AND z.organization_id = $2 AND z.subject = $6 AND z.type <> 'integrity.registered' AND z.type = 'clock.reset' AND z.sequence > $4)),
		EXISTS (SELECT FROM {versions} h WHERE h.shard = $1 AND h.document_id = i.document_id AND h.version > i.version AND h.position <= t.position),
		EXISTS (SELECT FROM {events} e WHERE e.shard = $1 AND e.organization_id = $2 AND e.subject = $5
			AND e.type <> 'integrity.registered' AND e.type = 'integrity.revoked' AND e.sequence <= $4)
	FROM (SELECT document_id, version, position FROM {versions}
		WHERE shard = $1 AND public_id = $3 AND organization_id = $2 AND record_id IS NOT NULL OFFSET 0) i
	JOIN LATERAL (SELECT sequence FROM {events}
		WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1) r ON true
	JOIN LATERAL (SELECT position, occurred_at FROM {events}
		WHERE shard = $1 AND organization_id = $2 AND sequence >= $4 AND sequence <= $4 ORDER BY sequence LIMIT 1) t ON true`)

// EvidenceAsOf is Evidence together with the state at a moment. The state follows from the document's events up to that
// moment, which never change, so neither does the answer. The caller must refuse a time that is not in the past,
// because events at that time may still be committed.
func (s RecordReader) EvidenceAsOf(
	ctx context.Context, a domain.Access, id domain.PublicID, at Moment,
) (stored *Evidence, then AsOf, err error) {
	if stored, err = s.Evidence(ctx, a, id); err != nil {
		return stored, then, err
	}
	then.Sequence = at.Sequence
	switch {
	case at.Sequence > stored.Sequence:
		return stored, then, ErrBeyondHead
	case at.Sequence == 0:
		if then.Sequence, err = findSequence(ctx, s.Pool, sequenceAt, a.Organization, stored.Sequence, at.Time); err != nil {
			return stored, then, err
		}
	}
	if then.Sequence == 0 {
		return stored, then, ErrBeforeRecord
	}
	type facts struct {
		Registered          int64
		Occurred            time.Time
		Superseded, Revoked bool
	}
	if stored.Alias != nil {
		id = stored.Alias.AliasOf
	}
	missing := say.New("read the state as of a moment: the events are missing")
	known, err := statement.One(ctx, s.Pool, "read the state as of a moment", missing, pgx.RowToStructByPos[facts],
		loadAsOf,
		a.Organization.Shard(), a.Organization, id, then.Sequence, id.String(), a.Organization.String())
	switch {
	case err != nil:
		return stored, then, err
	case known.Registered > then.Sequence:
		return stored, then, ErrBeforeRecord
	}
	then.Time, then.Status = at.Time, domain.StatusCurrent
	if at.Sequence > 0 {
		then.Time = known.Occurred
	}
	switch {
	case known.Revoked:
		then.Status = domain.StatusRevoked
	case known.Superseded:
		then.Status = domain.StatusSuperseded
	}
	return stored, then, nil
}
