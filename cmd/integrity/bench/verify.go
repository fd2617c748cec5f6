package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/history"
)

// Sequences, records and projections of an organization, each counted by itself.
const verifyOrganization = `SELECT
	(SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND type = 'integrity.registered'),
	(SELECT count(*) FROM versions WHERE shard = $1 AND organization_id = $2 AND record_id IS NOT NULL),
	(SELECT count(DISTINCT public_id) FROM versions WHERE shard = $1 AND organization_id = $2),
	(SELECT count(*) FROM documents WHERE shard = $1 AND organization_id = $2),
	(SELECT count(*) FROM feed WHERE shard = $1 AND company_id = $3),
	(SELECT coalesce(sum(used), 0)::bigint FROM usage WHERE shard = $1 AND organization_id = $2 AND company_id = '00000000-0000-0000-0000-000000000000'),
	(SELECT coalesce(sum(used), 0)::bigint FROM usage WHERE shard = $1 AND organization_id = $2 AND company_id = $3),
	(SELECT count(*) - max(sequence) FROM events WHERE shard = $1 AND organization_id = $2),
	(SELECT max(sequence) FROM events WHERE shard = $1 AND organization_id = $2)
		- (SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2)`

const verifyShards = `SELECT shard, count(*) - max(position), max(position) FROM events GROUP BY shard ORDER BY shard`

// verify checks that every acknowledged registration, and no other, is there once in the log and in every projection,
// that positions and sequences have no hole, that public ids are unique, and that a sample of the records has the hash
// and the signature that it should. It returns the number of registrations.
func (l *lab) verify(ctx context.Context) (int64, error) {
	if err := history.CheckHeads(ctx, l.read); err != nil {
		return 0, err
	}
	// Not a read pool: these are longer than any question that a service asks.
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var faults []error
	for _, o := range l.everybody() {
		faults = append(faults, l.verifyOrganization(ctx, conn, o))
	}
	var records, distinct int64
	if err := conn.QueryRow(ctx, "SELECT count(*), count(DISTINCT public_id) FROM versions").Scan(&records, &distinct); err != nil {
		return 0, err
	}
	if want := l.records(); records != want || distinct != want {
		faults = append(faults, fmt.Errorf("acknowledged %d, records %d, different public ids %d", want, records, distinct))
	}
	rows, err := conn.Query(ctx, verifyShards)
	if err != nil {
		return 0, err
	}
	type log struct {
		shard      domain.Shard
		hole, last int64
	}
	logs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s log, err error) { return s, row.Scan(&s.shard, &s.hole, &s.last) })
	if err != nil {
		return 0, err
	}
	for _, s := range logs {
		if s.hole != 0 {
			faults = append(faults, fmt.Errorf("shard %d has %d events up to position %d", s.shard, s.last+s.hole, s.last))
			continue
		}
		faults = append(faults, l.verifySample(ctx, s.shard, s.last))
	}
	return records, errors.Join(faults...)
}

func (l *lab) verifyOrganization(ctx context.Context, conn *pgx.Conn, o *organization) error {
	var events, records, ids, documents, feed, used, contribution, hole, ahead int64
	if err := conn.QueryRow(ctx, verifyOrganization, o.id.Shard(), [16]byte(o.id), [16]byte(o.company)).
		Scan(&events, &records, &ids, &documents, &feed, &used, &contribution, &hole, &ahead); err != nil {
		return err
	}
	want := o.acknowledged.Load()
	for _, n := range []int64{events, records, ids, documents, feed, used, contribution} {
		if n != want || hole != 0 || ahead != 0 {
			return fmt.Errorf("%s: acknowledged %d; events %d, records %d, public ids %d, documents %d, feed %d, usage %d, contribution %d; events missing in the sequence %d, state behind the log by %d",
				o.id, want, events, records, ids, documents, feed, used, contribution, -hole, ahead)
		}
	}
	return nil
}

const (
	samples    = 8 // places in a shard's log
	sampleSize = 250
)

// verifySample recomputes the hashes of events and checks the signatures of
// registrations, in runs from all over a shard's log.
func (l *lab) verifySample(ctx context.Context, shard domain.Shard, last int64) error {
	for i := range int64(samples) {
		events, err := history.NewTail(l.read, shard, max(0, last-sampleSize)*i/(samples-1)).Next(ctx, sampleSize)
		if err != nil {
			return err
		}
		for k := range events {
			e := &events[k]
			if domain.LeafHash(e.Leaf()) != e.Hash {
				return fmt.Errorf("shard %d, position %d: the stored hash is not that of the event", shard, e.Position)
			}
			if e.Type != domain.RecordRegistered {
				continue
			}
			stored, err := domain.ReadSignedRecord(e.Data)
			if err != nil {
				return err
			}
			payload, finding := evidence.VerifyRecord(l.trusted, stored.KeyID, stored.Payload, stored.Signature)
			if finding != evidence.Valid || payload.PublicID != e.Subject || payload.ReferencesSHA256 != stored.References.SHA256() {
				return fmt.Errorf("shard %d, position %d: the evidence does not verify: %s", shard, e.Position, finding)
			}
		}
	}
	return nil
}
