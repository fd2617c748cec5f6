package consumer

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// Pages is a Sharded source of a shard's log. Its row is in the table consumers. Events reads its messages.
type Pages struct {
	Name  string // of the consumer; never change it, because positions are stored under it
	Shard domain.Shard
	Limit int // maximum number of events in a page

	// Take processes further events, in order, and returns the number done. The remaining events are delivered again,
	// after a pause if Take returned an error. It must be idempotent, and must change nothing once the deadline of the
	// page's context has passed.
	Take func(page *Message) (done int, err error)

	limit    int
	position int64
	head     int64
	length   int // of the last page's payload, an estimate for the next
}

var (
	beginPages = cluster.SQL(
		`INSERT INTO {consumers} (shard, consumer, position) VALUES ($1, $2, 0) ON CONFLICT (shard, consumer) DO NOTHING`,
	)
	// PostgreSQL checks the condition again on a position that another process has moved since the snapshot. So a head
	// older than the position never looks as if events were lost.
	claimPages = cluster.SQL(`SELECT c.position, h.position FROM {consumers} c JOIN {shard_heads} h ON h.shard = c.shard
		WHERE c.shard = $1 AND c.consumer = $2 AND h.position > c.position FOR UPDATE OF c SKIP LOCKED`)
	readPages = cluster.SQL(`SELECT position, uuid_send(organization_id), sequence, uuid_send(id), v,
		uuid_send(company_id), type, subject, occurred_at, actor, request_id, data
		FROM {events} WHERE shard = $1 AND position > $2 ORDER BY position LIMIT $3`)
	advancePages = cluster.SQL(`UPDATE {consumers} SET position = $3 WHERE shard = $1 AND consumer = $2`)
	// behindPages is run over all shards.
	behindPages = cluster.SQL(
		`SELECT h.shard FROM {shard_heads} h LEFT JOIN {consumers} c ON c.shard = h.shard AND c.consumer = $1 WHERE h.position > coalesce(c.position, 0)`,
	)
)

// Behind implements Config.News for Pages with a name. Each source's index must equal its shard.
func Behind(ctx context.Context, pool *pgxpool.Pool, nodes *Nodes, shards int, name string) ([]int, error) {
	return cluster.Everywhere(ctx, pool, nodes, shards, pgx.RowTo[int], behindPages, name)
}

// InShard implements Sharded.
func (p *Pages) InShard() domain.Shard { return p.Shard }

// Begin implements Source.
func (p *Pages) Begin() Query { return Query{Query: beginPages, Args: []any{p.Shard, p.Name}} }

// Claim implements Source.
func (p *Pages) Claim(failures int) Query {
	p.limit = max(1, p.Limit>>min(failures, 30))
	return Query{Query: claimPages, Args: []any{p.Shard, p.Name}}
}

// Scan implements Source.
func (p *Pages) Scan(row Row) (int64, error) {
	err := row.Scan(&p.position, &p.head)
	return p.position, err
}

// event is a line of a page's payload. The next line is the event's data. Nonces and hashes are left out, because only
// proofs need them.
type event struct {
	Actor        domain.Actor          `json:"actor"`
	Company      domain.CompanyID      `json:"company,omitzero"`
	ID           domain.EventID        `json:"id"`
	OccurredAt   time.Time             `json:"occurredAt"`
	Organization domain.OrganizationID `json:"organization"`
	Position     int64                 `json:"position"`
	RequestID    string                `json:"requestId"`
	Sequence     int64                 `json:"sequence"`
	Subject      string                `json:"subject"`
	Type         domain.EventType      `json:"type"`
	V            int16                 `json:"v"`
}

var eventForm = strictjson.FormOf[event]()

// Read implements Source. The metadata contains the shard and the positions of the first and the last event.
func (p *Pages) Read(tx *sql.Tx, page *Message) error {
	failed := func(err error) error {
		return say.Errorf("read events of shard %d after %d: %w", p.Shard, p.position, err)
	}
	rows, err := tx.QueryContext(page.Context(), readPages, p.Shard, p.position, p.limit)
	if err != nil {
		return failed(err)
	}
	defer rows.Close()
	page.Payload = make([]byte, 0, p.length)
	last := p.position
	for ; rows.Next(); last++ {
		var e event
		var organization, id, company, data sql.RawBytes
		if err := rows.Scan(&e.Position, &organization, &e.Sequence, &id, &e.V, &company, &e.Type, &e.Subject,
			&e.OccurredAt, &e.Actor, &e.RequestID, &data); err != nil {
			return failed(err)
		}
		if e.Position != last+1 {
			return say.Errorf("shard %d has no event at position %d: the log was damaged", p.Shard, last+1)
		}
		copy(e.Organization[:], organization)
		copy(e.ID[:], id)
		copy(e.Company[:], company)
		e.OccurredAt = e.OccurredAt.UTC()
		page.Payload = append(append(append(eventForm.Append(page.Payload, &e), '\n'), data...), '\n')
	}
	if err := rows.Err(); err != nil {
		return failed(err)
	}
	p.length = len(page.Payload)
	if last == p.position {
		return say.Errorf("shard %d has no event after position %d, but its head says %d: %w",
			p.Shard, p.position, p.head, history.ErrDamaged)
	}
	for name, value := range map[string]int64{"shard": int64(p.Shard), "first": p.position + 1, "last": last} {
		page.Metadata.Set(name, strconv.FormatInt(value, 10))
	}
	return nil
}

// Events returns the events of a page, without nonces, hashes and decoded bodies. Their Data share memory with the
// payload.
func Events(page *Message) (events []domain.Event, err error) {
	events = make([]domain.Event, 0, bytes.Count(page.Payload, []byte("\n"))/2)
	for rest := page.Payload; len(rest) > 0; {
		var line, data []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		data, rest, _ = bytes.Cut(rest, []byte("\n"))
		var e event
		if !eventForm.Scan(line, &e) {
			e = event{}
			err = json.Unmarshal(line, &e)
		}
		if err == nil && !e.Type.Known() {
			err = say.Errorf("event type %q is not known to this program", e.Type)
		}
		if err != nil {
			return nil, say.Errorf("event %d of page %s: %w", len(events)+1, page.UUID, err)
		}
		events = append(events, domain.Event{
			Shard: e.Organization.Shard(), Position: e.Position, Organization: e.Organization, Sequence: e.Sequence,
			ID: e.ID, V: e.V, Type: e.Type, Company: e.Company, Subject: e.Subject, OccurredAt: e.OccurredAt,
			Actor: e.Actor, RequestID: e.RequestID, Data: data,
		})
	}
	return events, nil
}

// Handle implements Source.
func (p *Pages) Handle(_ *sql.Tx, page *Message) (Progress, error) {
	done, err := p.Take(page)
	p.position += int64(done)
	return Progress{Position: p.position, More: p.position < p.head}, err
}

// Advance implements Source.
func (p *Pages) Advance() Query {
	return Query{Query: advancePages, Args: []any{p.Shard, p.Name, p.position}}
}

// Lag describes how far a consumer is behind the log of a shard.
type Lag struct {
	Events int64
	Since  time.Time // time of the first event that it has not handled; zero if it has handled all
}

// ReadLag returns the lag of the consumer with a name in each shard.
func ReadLag(ctx context.Context, pool *pgxpool.Pool, name string) (map[domain.Shard]Lag, error) {
	query := cluster.SQL(`SELECT h.shard, h.position - coalesce(c.position, 0), e.occurred_at FROM {shard_heads} h
		LEFT JOIN {consumers} c ON c.shard = h.shard AND c.consumer = $1
		LEFT JOIN {events} e ON e.shard = h.shard AND e.position = coalesce(c.position, 0) + 1`)
	rows, _ := pool.Query(ctx, query, name)
	lag := map[domain.Shard]Lag{}
	var shard domain.Shard
	var l Lag
	if _, err := pgx.ForEachRow(rows, []any{&shard, &l.Events, (*zeronull.Timestamptz)(&l.Since)}, func() error {
		lag[shard] = l
		return nil
	}); err != nil {
		return nil, say.Errorf("lag of consumer %s: %w", name, err)
	}
	return lag, nil
}
