package query

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// turns admits one question of an organization at a time. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[domain.OrganizationID]*turn
}

type turn struct {
	held  chan struct{} // full while a question is under way
	users int           // the question under way and those that wait
}

// take waits for an organization's turn until ctx ends; give ends the turn.
func (t *turns) take(ctx context.Context, o domain.OrganizationID) (give func(), err error) {
	t.mu.Lock()
	own := t.of[o]
	if own == nil {
		if t.of == nil {
			t.of = map[domain.OrganizationID]*turn{}
		}
		own = &turn{held: make(chan struct{}, 1)}
		t.of[o] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, o)
		}
	}
	select {
	case own.held <- struct{}{}:
		return func() { <-own.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%w: %w", domain.Unavailable("Other questions of this organization that read much are still being answered; send the request again."), ctx.Err())
	}
}

// scan asks a question that may read many rows: one of an organization at a time, and never on a connection that
// authentication needs.
func scan[T any](ctx context.Context, s *Store, o domain.OrganizationID, ask func(*pgxpool.Pool) (T, error)) (answer T, err error) {
	waiting, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	give, err := s.scanning.take(waiting, o)
	if err != nil {
		return answer, err
	}
	defer give()
	return ask(cmp.Or(s.Scans, s.Pool))
}
