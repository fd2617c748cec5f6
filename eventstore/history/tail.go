// Package history reads the log: Tail follows it as replay, rebuild, consumers and waiting readers do; Reader reads it
// for an audit, with whatever is damaged; CheckHeads, StillPresent and Misplaced compare it with what stands beside it.
package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// Querier is a pool, or a transaction whose snapshot the reader wants to keep.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Tail is the one cursor over a log: replay, rebuild, consumers and audits read through it. Positions are gapless in a
// shard and in commit order, sequences in an organization, so a reader that has passed one has missed nothing before
// it. Not safe for concurrent use.
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

// NewOrganizationTail starts after a sequence of an organization; 0 is the beginning of its history. Position and Next
// then count by sequence.
func NewOrganizationTail(from Querier, organization domain.OrganizationID, after int64) *Tail {
	return &Tail{from: from, shard: organization.Shard(), organization: organization, position: after}
}

// Position is that of the last event that Next returned.
func (t *Tail) Position() int64 { return t.position }

const (
	eventColumns = `SELECT position, organization_id, sequence, id, v, company_id, type, subject, occurred_at, actor,
		request_id, data, nonce, hash
	FROM events `
	readEvents             = eventColumns + `WHERE shard = $1 AND position > $2 ORDER BY position LIMIT $3`
	readOrganizationEvents = eventColumns + `WHERE shard = $1 AND sequence > $2 AND organization_id = $4 ORDER BY sequence LIMIT $3`
)

// Next returns up to limit further events, none at the head of the log. A hole in the numbers or an event that cannot
// be read is an error, and the cursor stays before it.
func (t *Tail) Next(ctx context.Context, limit int) ([]domain.Event, error) {
	events, err := readRows(ctx, t.from, t.shard, t.organization, t.position, limit, scanEvent)
	if err != nil {
		return nil, err
	}
	for i := range events {
		want := t.position + 1 + int64(i)
		switch {
		case t.organization.IsZero() && events[i].Position != want:
			return nil, fmt.Errorf("shard %d has no event at position %d: the log was damaged", t.shard, want)
		case !t.organization.IsZero() && events[i].Sequence != want:
			return nil, fmt.Errorf("organization %s has no event of sequence %d: the log was damaged", t.organization, want)
		}
	}
	t.position += int64(len(events))
	return events, nil
}

// readRows reads events of a shard or an organization in order.
func readRows[E any](ctx context.Context, from Querier, shard domain.Shard, organization domain.OrganizationID, after int64, limit int, scan func(pgx.CollectableRow, domain.Shard) (E, error)) ([]E, error) {
	sql, args := readEvents, []any{shard, after, limit}
	if !organization.IsZero() {
		sql, args = readOrganizationEvents, append(args, organization)
	}
	rows, _ := from.Query(ctx, sql, args...) // its error is that of the rows
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (E, error) { return scan(row, shard) })
	if err != nil {
		return nil, fmt.Errorf("read events of shard %d after %d: %w", shard, after, err)
	}
	return events, nil
}

// scanEvent reads a row that must hold an event.
func scanEvent(row pgx.CollectableRow, shard domain.Shard) (domain.Event, error) {
	e, err := scanRow(row, shard)
	if err == nil && e.Fault != "" {
		err = fmt.Errorf("there is no event but %s: %w", e.Fault, ErrDamaged)
	}
	if err == nil {
		e.Body, err = domain.DecodeBody(e.Type, e.V, e.Data)
	}
	if err != nil {
		return e.Event, fmt.Errorf("position %d: %w", e.Position, err)
	}
	return e.Event, nil
}

const readHashes = `SELECT position, hash FROM events WHERE shard = $1 AND position > $2 ORDER BY position LIMIT $3`

// ErrDamaged says that events are missing, or not what they were.
var ErrDamaged = errors.New("the log was damaged")

// Hashes reads the leaf hashes of up to limit events of a shard after a position, without the events.
func Hashes(ctx context.Context, from Querier, shard domain.Shard, after int64, limit int) ([][32]byte, error) {
	rows, _ := from.Query(ctx, readHashes, shard, after, limit)
	var hashes [][32]byte
	var position int64
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&position, &hash}, func() error {
		if want := after + 1 + int64(len(hashes)); position != want {
			return fmt.Errorf("there is no event at position %d: %w", want, ErrDamaged)
		}
		if len(hash) != 32 {
			return fmt.Errorf("event at position %d: its hash has the wrong length: %w", position, ErrDamaged)
		}
		hashes = append(hashes, [32]byte(hash))
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read hashes of shard %d: %w", shard, err)
	}
	return hashes, nil
}
