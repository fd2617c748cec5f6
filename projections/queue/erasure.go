package queue

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Eraser erases kept content at its deadline and records the erasure as an event. It deletes the content first, so that
// content recorded as erased is gone.
type Eraser struct {
	Pool   eventstore.Database
	Ledger *eventstore.Ledger
	Shards int
	Log    *slog.Logger
	// Delete removes content from the blob store; missing content is not an error.
	Delete func(context.Context, domain.OrganizationID, domain.ArtifactVersionID) error
}

const (
	eraseEvery = 30 * time.Second // between two checks of the queue
	eraseLease = 10 * time.Minute
)

// NewEraser returns the loop of an Eraser.
func NewEraser(e Eraser) *Loop {
	q := Leased[dueContent]{
		Pool: e.Pool, What: "take bytes to erase", Take: takeDue, Lease: eraseLease, Scan: pgx.RowToStructByPos[dueContent],
		Act: e.erase,
		Now: e.Ledger.Agreed, // a clock that is ahead would erase content before its deadline
	}
	return NewLoop(Loop{Pool: e.Pool, Shards: Shards(e.Shards), Every: eraseEvery, Work: q.Work, Log: e.Log,
		Failure: "kept bytes could not be erased; they are tried again",
		Due: func(ctx context.Context) ([]domain.Shard, error) {
			now, err := q.Now(ctx)
			if err != nil {
				return nil, err
			}
			return DueIn(ctx, e.Pool, e.Shards, contentDue, now)
		}})
}

var contentDue = Due(`SELECT FROM {kept_contents} WHERE shard = s.shard AND due_at <= $2`)

var takeDue = cluster.SQL(`UPDATE {kept_contents} k SET due_at = $3
	FROM (SELECT version_id FROM {kept_contents} WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) d
	WHERE k.shard = $1 AND k.version_id = d.version_id
	RETURNING k.version_id, k.organization_id`)

type dueContent struct {
	Version      domain.ArtifactVersionID
	Organization domain.OrganizationID
}

func (e Eraser) erase(ctx context.Context, shard domain.Shard, now time.Time, due dueContent) error {
	err := e.Delete(ctx, due.Organization, due.Version)
	if err == nil {
		origin := domain.Origin{
			Organization: due.Organization, Actor: domain.SystemActor, RequestID: "erasure-" + rand.Text(),
		}
		err = e.Ledger.Do(ctx, &domain.EraseContent{Origin: origin, Version: due.Version})
	}
	if err == nil {
		err = statement.Exec(
			ctx, e.Pool, "forget erased bytes", cluster.SQL(`DELETE FROM {kept_contents} WHERE shard = $1 AND version_id = $2`),
			shard, due.Version,
		)
	}
	if err != nil {
		return say.Errorf("version %s: %w", due.Version, err)
	}
	return nil
}
