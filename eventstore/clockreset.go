package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// ClockReset is what a reset of one shard has done.
type ClockReset struct {
	Shard         domain.Shard
	From, To      time.Time
	Organizations []domain.OrganizationID // with an event of it
}

// ErrClockRight says that a shard's head is not dated ahead of the clocks.
var ErrClockRight = errors.New("the shard's last event is not dated ahead of the clocks by more than the tolerance")

// datedLater lists the organizations whose last event is later than a time.
const datedLater = `SELECT o.organization_id FROM organization_state o
	JOIN LATERAL (SELECT occurred_at FROM events WHERE shard = $1 AND organization_id = o.organization_id
		AND sequence >= o.sequence AND sequence <= o.sequence ORDER BY sequence LIMIT 1) e ON true
	WHERE o.shard = $1 AND e.occurred_at > $2 ORDER BY o.organization_id`

// ResetClock takes a shard whose head is dated ahead of the clocks, while these agree, back to their time: in one
// transaction, an event for each organization that has a later one, so that every history by itself shows why its time
// goes back. Nothing else changes: what was dated and charged wrongly stays so.
func (l *Ledger) ResetClock(ctx context.Context, shard domain.Shard, requestID string) (ClockReset, error) {
	conn, err := l.acquire()
	if err != nil {
		return ClockReset{}, fmt.Errorf("connect to reset a shard: %w", err)
	}
	defer conn.Release()
	g := &group{shard: shard, state: domain.NewState(l.Plans)}
	reset, err := l.resetClock(ctx, conn.Conn(), g, requestID)
	if err != nil {
		rollBack(context.WithoutCancel(ctx), conn.Conn())
	} else if l.Committed != nil {
		l.Committed(shard)
	}
	return reset, err
}

func (l *Ledger) resetClock(ctx context.Context, conn *pgx.Conn, g *group, requestID string) (ClockReset, error) {
	var clocks *ClockError
	err := l.lock(ctx, conn, g, func(*pgx.Batch) {})
	switch {
	case err == nil:
		return ClockReset{}, ErrClockRight
	case !errors.As(err, &clocks) || clocks.Cause != ClockHead: // any other head is left alone
		return ClockReset{}, err
	}
	reset := ClockReset{Shard: g.shard, From: g.last.UTC(), To: g.clock.wall.Truncate(time.Microsecond)}
	rows, _ := conn.Query(ctx, datedLater, g.shard, reset.To) // its error is that of the rows
	if reset.Organizations, err = pgx.CollectRows(rows, pgx.RowTo[domain.OrganizationID]); err != nil {
		return reset, fmt.Errorf("look for histories of the future: %w", err)
	}
	if len(reset.Organizations) == 0 {
		return reset, errors.New("no event is dated as late as the shard's head: the database was changed behind the ledger's back")
	}
	for _, o := range reset.Organizations {
		cause := domain.Origin{Organization: o, Actor: domain.OperatorActor, RequestID: requestID}
		g.items = append(g.items, item{command: &domain.ResetClock{Origin: cause, From: reset.From}})
	}
	g.answers = make([]Answer, len(g.items))
	b := &pgx.Batch{}
	l.Load(b, g.shard, reset.Organizations, domain.Needs{}, reset.To, g.state)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return reset, fmt.Errorf("load the state of a reset: %w", err)
	}
	g.now = reset.To
	if err := l.decide(g); err != nil {
		return reset, err
	}
	for _, answer := range g.answers {
		if answer.Err != nil {
			return reset, answer.Err
		}
	}
	return reset, l.write(ctx, conn, g)
}
