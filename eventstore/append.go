package eventstore

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// A row is inserted beside its shard's head, here and wherever rows come from arrays. On Citus, a SELECT that names no
// distributed table runs on the coordinator, and what it gives is copied to the node in a two-phase commit; with the
// head in it the whole statement runs on the node of the shard.

const insertEvents = `INSERT INTO events (shard, position, organization_id, sequence, id, v, company_id, type,
		subject, occurred_at, actor, request_id, data, nonce, hash)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::bigint[], $3::uuid[], $4::bigint[], $5::uuid[], $6::smallint[], $7::uuid[], $8::text[],
		$9::text[], $10::timestamptz[], $11::text[], $12::text[], $13::bytea[], $14::bytea[], $15::bytea[]) AS n WHERE s.shard = $1`

const insertTexts = `INSERT INTO texts (shard, organization_id, id, salt, body)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::uuid[], $4::bytea[], $5::text[]) AS n WHERE s.shard = $1`

// appendEvents queues the rows of new events and of their erasable texts.
func appendEvents(b *pgx.Batch, shard domain.Shard, events []domain.Event) {
	n := len(events)
	positions, sequences, versions := make([]int64, n), make([]int64, n), make([]int16, n)
	organizations, ids, companies := make([][16]byte, n), make([][16]byte, n), make([]*[16]byte, n)
	types, subjects, actors, requests := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	times := make([]time.Time, n)
	data, nonces, hashes := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	var textOrganizations, textIDs [][16]byte
	var salts [][]byte
	var bodies []string
	for i := range events {
		e := &events[i]
		positions[i], organizations[i], sequences[i], ids[i], versions[i] = e.Position, e.Organization, e.Sequence, e.ID, e.V
		if !e.Company.IsZero() {
			companies[i] = (*[16]byte)(&e.Company)
		}
		types[i], subjects[i], times[i], actors[i], requests[i] = string(e.Type), e.Subject, e.OccurredAt, e.Actor, e.RequestID
		data[i], nonces[i], hashes[i] = e.Data, e.Nonce[:], e.Hash[:]
		for _, t := range e.Texts {
			textOrganizations, textIDs = append(textOrganizations, e.Organization), append(textIDs, t.ID)
			salts, bodies = append(salts, t.Salt[:]), append(bodies, t.Body)
		}
	}
	b.Queue(insertEvents, shard, positions, organizations, sequences, ids, versions, companies, types, subjects, times,
		actors, requests, data, nonces, hashes)
	if len(textIDs) > 0 {
		b.Queue(insertTexts, shard, textOrganizations, textIDs, salts, bodies)
	}
}
