// Package history reads the log. Tail follows it for replay, rebuild, consumers and waiting readers. Reader reads it
// for an audit and also returns damaged events. CheckHeads, StillPresent and Misplaced compare the log with the tables
// beside it.
package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Querier is a pool, or a transaction with the snapshot to read from.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Tail is the only cursor over a log. Replay, rebuild, consumers and audits read through it. Positions in a shard and
// sequences in an organization are gapless and in commit order, so a reader that has passed one has missed nothing
// before it. Tail is not safe for concurrent use.
type Tail struct {
	from         Querier
	shard        domain.Shard
	organization domain.OrganizationID // zero: the whole shard
	position     int64
}

// NewTail starts after a position of a shard; 0 is the beginning of its log.
func NewTail(from Querier, shard domain.Shard, after int64) *Tail {
	return &Tail{from: from, shard: shard, position: after}
}

// NewOrganizationTail starts after a sequence of an organization; 0 is the beginning of its history.
func NewOrganizationTail(from Querier, organization domain.OrganizationID, after int64) *Tail {
	return &Tail{from: from, shard: organization.Shard(), organization: organization, position: after}
}

const (
	eventColumns = `SELECT position, organization_id, sequence, id, v, company_id, type, subject, occurred_at, actor,
		request_id, data, nonce, hash
	FROM {events} `
)

var (
	readEvents             = cluster.SQL(eventColumns + `WHERE shard = $1 AND position > $2 ORDER BY position LIMIT $3`)
	readOrganizationEvents = cluster.SQL(
		eventColumns + `WHERE shard = $1 AND sequence > $2 AND organization_id = $4 ORDER BY sequence LIMIT $3`,
	)
)

// Next returns up to limit further events, none at the head of the log. It returns an error for a gap in the numbers
// and for an unreadable event, and the cursor stays before it.
func (t *Tail) Next(ctx context.Context, limit int) ([]domain.Event, error) {
	events, err := readRows(ctx, t.from, t.shard, t.organization, t.position, limit, scanEvent)
	if err != nil {
		return nil, err
	}
	for i := range events {
		want := t.position + 1 + int64(i)
		switch {
		case t.organization.IsZero() && events[i].Position != want:
			return nil, say.Errorf("shard %d has no event at position %d: %w", t.shard, want, ErrDamaged)
		case !t.organization.IsZero() && events[i].Sequence != want:
			return nil, say.Errorf("organization %s has no event of sequence %d: %w", t.organization, want, ErrDamaged)
		}
	}
	t.position += int64(len(events))
	return events, nil
}

// readRows reads events of a shard or an organization in order.
func readRows[E any](
	ctx context.Context, from Querier, shard domain.Shard, organization domain.OrganizationID, after int64, limit int,
	scan func(pgx.CollectableRow, domain.Shard) (E, error),
) ([]E, error) {
	sql, args := readEvents, []any{shard, after, limit}
	if !organization.IsZero() {
		sql, args = readOrganizationEvents, append(args, organization)
	}
	rows, _ := from.Query(ctx, sql, args...) // rows carry its error
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (E, error) { return scan(row, shard) })
	if err != nil {
		return nil, say.Errorf("read events of shard %d after %d: %w", shard, after, err)
	}
	return events, nil
}

// scanEvent scans a row that must hold a valid event.
func scanEvent(row pgx.CollectableRow, shard domain.Shard) (domain.Event, error) {
	e, err := scanRow(row, shard)
	if err == nil && e.Fault.Format != "" {
		err = say.Errorf("there is no event but %s: %w", e.Fault, ErrDamaged)
	}
	if err == nil {
		e.Body, err = domain.DecodeBody(e.Type, e.V, e.Data)
		if _, damaged := errors.AsType[*domain.BodyError](err); damaged {
			err = say.Errorf("%w: %w", err, ErrDamaged)
		}
	}
	if err != nil {
		return e.Event, say.Errorf("position %d: %w", e.Position, err)
	}
	return e.Event, nil
}

var readHashes = cluster.SQL(`SELECT position, hash FROM {events} WHERE shard = $1 AND position > $2 ORDER BY position
	LIMIT $3`)

// ErrDamaged means that events are missing or were changed.
var ErrDamaged = say.New("the log was damaged")

// Hashes reads the leaf hashes of up to limit events of a shard after a position, without the events.
func Hashes(ctx context.Context, from Querier, shard domain.Shard, after int64, limit int) ([][32]byte, error) {
	rows, _ := from.Query(ctx, readHashes, shard, after, limit)
	var hashes [][32]byte
	var position int64
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&position, &hash}, func() error {
		if want := after + 1 + int64(len(hashes)); position != want {
			return say.Errorf("there is no event at position %d: %w", want, ErrDamaged)
		}
		if len(hash) != 32 {
			return say.Errorf("event at position %d: its hash has the wrong length: %w", position, ErrDamaged)
		}
		hashes = append(hashes, [32]byte(hash))
		return nil
	}); err != nil {
		return nil, say.Errorf("read hashes of shard %d: %w", shard, err)
	}
	return hashes, nil
}

// Reader reads a log for an audit. It returns rows as stored, including damaged ones, with the texts that they name,
// and does not stop at gaps. It follows the positions of a shard or the sequences of one organization.
type Reader struct {
	Pool         *pgxpool.Pool // used by Walk and Length
	Shard        domain.Shard
	Organization domain.OrganizationID // zero: the whole shard
	// After is the position or sequence to begin after. Valid numbers begin at 1. BeforeFirst also finds rows with lower
	// ones.
	After int64
}

// BeforeFirst is the value of After to read all rows, including those with invalid numbers.
const BeforeFirst = math.MinInt64

// Beside is the state of the tables beside a log, in the snapshot in which its last events were read.
type Beside struct {
	audit.Beside
	Texts int64 // rows of texts
}

const page = 2000

// Walk calls take with all events in order, then returns the end. It reads long histories in short statements, so that
// no snapshot of an audit blocks vacuuming. Only the last events and the end share a snapshot.
func (s Reader) Walk(ctx context.Context, take func([]audit.Event) error) (end Beside, err error) {
	if err := s.pages(ctx, s.Pool, page, take); err != nil {
		return end, err
	}
	err = pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			end.Shard = s.Shard
			err := tx.QueryRow(
				ctx, cluster.SQL("SELECT position, occurred_at FROM {shard_heads} WHERE shard = $1"), s.Shard,
			).Scan(&end.Position, &end.OccurredAt)
			if end.Missing = errors.Is(err, pgx.ErrNoRows); err != nil && !end.Missing {
				return say.Errorf("read the head of shard %d: %w", s.Shard, err)
			}
			sql, args := cluster.SQL("SELECT count(*) FROM {texts} WHERE shard = $1"), []any{s.Shard}
			if !s.Organization.IsZero() {
				sql, args = sql+" AND organization_id = $2", append(args, s.Organization)
			}
			if err := tx.QueryRow(ctx, sql, args...).Scan(&end.Texts); err != nil {
				return say.Errorf("count the texts of shard %d: %w", s.Shard, err)
			}
			return s.pages(ctx, tx, 1, take)
		})
	return end, err
}

// pages calls take with page after page, until one has fewer than least events.
func (s *Reader) pages(ctx context.Context, from Querier, least int, take func([]audit.Event) error) error {
	ended := false
	return Ahead(ctx, func(ctx context.Context) ([]audit.Event, error) {
		if ended {
			return nil, nil
		}
		events, err := s.Next(ctx, from, page)
		ended = len(events) < least
		return events, err
	}, take)
}

// Ahead calls take with the pages that next reads, in order, until one is empty. It reads the next page while take
// runs.
func Ahead[E any](ctx context.Context, next func(context.Context) ([]E, error), take func([]E) error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pages := make(chan []E)
	var unread error
	go func() {
		defer close(pages)
		for {
			var events []E
			if events, unread = next(ctx); unread != nil || len(events) == 0 {
				return
			}
			select {
			case pages <- events:
			case <-ctx.Done():
				unread = ctx.Err()
				return
			}
		}
	}()
	for events := range pages {
		if err == nil {
			err = take(events)
		}
		if err != nil {
			stop() // and wait for the reader
		}
	}
	return cmp.Or(err, unread)
}

// Length returns the number of events that Walk will read, to show progress.
func (s Reader) Length(ctx context.Context) (n int64, err error) {
	sql, args := cluster.SQL("SELECT coalesce(max(position), 0) FROM {events} WHERE shard = $1"), []any{s.Shard}
	if !s.Organization.IsZero() {
		sql, args = cluster.SQL(
			"SELECT coalesce(max(sequence), 0) FROM {events} WHERE shard = $1 AND organization_id = $2",
		), append(args, s.Organization)
	}
	if err := s.Pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, say.Errorf("read the length of shard %d: %w", s.Shard, err)
	}
	return max(0, n-max(0, s.After)), nil
}

// Next returns up to limit further events with the texts that they name, none at the end.
func (s *Reader) Next(ctx context.Context, from Querier, limit int) ([]audit.Event, error) {
	events, err := readRows(ctx, from, s.Shard, s.Organization, s.After, limit, scanRow)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if last := &events[len(events)-1]; s.Organization.IsZero() {
		s.After = last.Position
	} else {
		s.After = last.Sequence
	}
	return events, s.addTexts(ctx, from, events)
}

// scanRow scans any row. Fault describes a value that no event can have.
func scanRow(row pgx.CollectableRow, shard domain.Shard) (audit.Event, error) {
	e := audit.Event{Event: domain.Event{Shard: shard}}
	var at pgtype.Timestamptz
	var nonce, hash []byte
	if err := row.Scan(&e.Position, &e.Organization, &e.Sequence, &e.ID, &e.V, &e.Company, &e.Type, &e.Subject, &at,
		&e.Actor, &e.RequestID, &e.Data, &nonce, &hash); err != nil {
		return e, err
	}
	e.OccurredAt = at.Time.UTC()
	switch {
	case at.InfinityModifier != pgtype.Finite:
		e.Fault, e.OccurredAt = say.Sentencef("one whose time is infinite"), time.Time{}
	case copy(e.Nonce[:], nonce) != len(nonce) || len(nonce) != len(e.Nonce):
		e.Fault = say.Sentencef("one with a nonce of %d bytes", len(nonce))
	case copy(e.Hash[:], hash) != len(hash) || len(hash) != len(e.Hash):
		e.Fault = say.Sentencef("one with a hash of %d bytes", len(hash))
	}
	return e, nil
}

var readTexts = cluster.SQL(`SELECT t.organization_id, t.id, t.salt, t.body
	FROM (SELECT o, i FROM unnest($2::uuid[], $3::uuid[]) AS u(o, i) LIMIT cardinality($2::uuid[])) n
	JOIN LATERAL (SELECT organization_id, id, salt, body FROM {texts} WHERE shard = $1 AND organization_id = n.o AND id = n.i OFFSET 0) t ON true`)

// addTexts adds the texts that events name.
func (s *Reader) addTexts(ctx context.Context, from Querier, events []audit.Event) error {
	type key struct{ organization, id [16]byte }
	wanted := map[key][]*audit.Event{}
	var organizations, ids [][16]byte
	for i := range events {
		e := &events[i]
		if !e.Type.NamesTexts() {
			continue
		}
		body, err := domain.DecodeBody(e.Type, e.V, e.Data)
		if err != nil {
			continue // the audit reports it
		}
		for _, ref := range domain.TextRefs(body) {
			k := key{e.Organization, ref.ID}
			if wanted[k] == nil {
				organizations, ids = append(organizations, k.organization), append(ids, k.id)
			}
			wanted[k] = append(wanted[k], e)
		}
	}
	if ids == nil {
		return nil
	}
	rows, _ := from.Query(ctx, readTexts, s.Shard, organizations, ids)
	var k key
	var salt []byte
	var body *string
	_, err := pgx.ForEachRow(rows, []any{&k.organization, &k.id, &salt, &body}, func() error {
		for _, e := range wanted[k] {
			e.Stored = append(e.Stored, audit.Text{ID: k.id, Salt: append([]byte(nil), salt...), Body: body})
		}
		return nil
	})
	if err != nil {
		return say.Errorf("read texts of shard %d: %w", s.Shard, err)
	}
	return nil
}

// StillPresent returns the erased texts that still exist. The events that erased them must have been read before.
func StillPresent(
	ctx context.Context, pool *pgxpool.Pool, erased []audit.Erasure,
) (present []audit.Erasure, err error) {
	shards := map[domain.Shard][]audit.Erasure{}
	for _, e := range erased {
		shards[e.Organization.Shard()] = append(shards[e.Organization.Shard()], e)
	}
	for shard, all := range shards {
		for some := range slices.Chunk(all, page) {
			organizations, ids := make([]domain.OrganizationID, len(some)), make([]domain.TextID, len(some))
			sequences := make(map[audit.Erasure]int64, len(some)) // by the rest of the erasure
			for i, e := range some {
				organizations[i], ids[i] = e.Organization, e.Text
				sequences[audit.Erasure{Organization: e.Organization, Text: e.Text}] = e.Sequence
			}
			rows, _ := pool.Query(ctx, readTexts, shard, organizations, ids)
			var organization domain.OrganizationID
			var id domain.TextID
			var body *string
			if _, err := pgx.ForEachRow(rows, []any{&organization, &id, nil, &body}, func() error {
				if e := (audit.Erasure{Organization: organization, Text: id}); body != nil {
					e.Sequence = sequences[e]
					present = append(present, e)
				}
				return nil
			}); err != nil {
				return nil, say.Errorf("look for erased texts of shard %d: %w", shard, err)
			}
		}
	}
	slices.SortFunc(present, func(a, b audit.Erasure) int {
		return cmp.Or(
			bytes.Compare(a.Organization[:], b.Organization[:]), cmp.Compare(a.Sequence, b.Sequence),
			bytes.Compare(a.Text[:], b.Text[:]),
		)
	})
	return present, nil
}

// Misplaced counts, by table, the rows with a shard that the ledger does not have, which no query would find.
func Misplaced(ctx context.Context, pool *pgxpool.Pool, tables []string, shards int) (map[string]int64, error) {
	stray := map[string]int64{}
	for _, table := range tables {
		var n int64
		name := pgx.Identifier{"public", table}.Sanitize()
		if err := pool.QueryRow(
			ctx, "SELECT count(*) FROM "+name+" WHERE shard < 0 OR shard >= $1", shards,
		).Scan(&n); err != nil {
			return nil, say.Errorf("look for stray rows of %s: %w", table, err)
		}
		if n > 0 {
			stray[table] = n
		}
	}
	return stray, nil
}

// HeadError is a head that contradicts its log: another program has changed the database.
type HeadError struct {
	Shard      int
	Head, Last int64 // positions of the head and of the last event
}

func (e HeadError) sentence() say.Sentence {
	return say.Sentencef("shard %d: its head says position %d, its last event is %d", e.Shard, e.Head, e.Last)
}

func (e HeadError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e HeadError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// CheckHeads compares every shard head with the last event of its log. It returns a HeadError for each head that
// differs. After any other error, nothing is known about them.
func CheckHeads(ctx context.Context, pool *pgxpool.Pool) error {
	query := cluster.SQL(`SELECT h.shard, h.position, coalesce(e.position, 0)
		FROM {shard_heads} h
		LEFT JOIN LATERAL (SELECT position FROM {events} AS events WHERE events.shard = h.shard ORDER BY position DESC LIMIT 1) e ON true
		WHERE h.position <> coalesce(e.position, 0) ORDER BY h.shard`)
	rows, _ := pool.Query(ctx, query)
	faults, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (error, error) {
		var e HeadError
		err := row.Scan(&e.Shard, &e.Head, &e.Last)
		return e, err
	})
	if err != nil {
		return say.Errorf("check shard heads: %w", err)
	}
	return errors.Join(faults...)
}
