package query

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
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
