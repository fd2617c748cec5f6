package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/statement"
)

// EraserConfig is what an Eraser is made of.
type EraserConfig struct {
	Pool   *pgxpool.Pool
	Ledger *eventstore.Ledger
	Shards int
	Log    *slog.Logger
	// Delete removes bytes from the blob store; bytes that are not there are no error.
	Delete func(context.Context, domain.OrganizationID, domain.ArtifactVersionID) error
}

// Eraser erases kept bytes when they are due, and records it as an event. Several
// processes may each have one: a row is taken for eraseLease by moving its due_at.
// Bytes are deleted before that is recorded, so that what the log calls erased is
// gone; a process that dies in between leaves the row to the next.
type Eraser struct {
	EraserConfig
}

const (
	eraseEvery = 30 * time.Second // between two looks at the queue
	eraseLease = 10 * time.Minute
)

// Run works until ctx ends.
func (e *Eraser) Run(ctx context.Context) {
	look := time.NewTicker(eraseEvery)
	defer look.Stop()
	for {
		if err := e.Erase(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("kept bytes could not be erased; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

type dueContent struct {
	version      domain.ArtifactVersionID
	organization domain.OrganizationID
	claimed      time.Time
}

// Erase erases everything that is due, once. A row that cannot be erased stays for
// a later look, and holds up no other.
func (e *Eraser) Erase(ctx context.Context) error {
	var failed error
	for shard := range domain.Shard(e.Shards) {
		for {
			due, found, err := e.claim(ctx, shard)
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if err := e.erase(ctx, shard, due); err != nil {
				failed = fmt.Errorf("version %s: %w", due.version, err)
			}
		}
	}
	return failed
}

const takeDue = `UPDATE kept_contents k SET due_at = $3
	FROM (SELECT version_id FROM kept_contents WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) d
	WHERE k.shard = $1 AND k.version_id = d.version_id
	RETURNING k.version_id, k.organization_id`

func (e *Eraser) claim(ctx context.Context, shard domain.Shard) (due dueContent, found bool, err error) {
	now, err := e.Ledger.Agreed(ctx) // a clock ahead would erase for ever what is to be kept
	if err != nil {
		return dueContent{}, false, err
	}
	return statement.First(ctx, e.Pool, "take bytes to erase", func(row pgx.CollectableRow) (dueContent, error) {
		d := dueContent{claimed: now}
		err := row.Scan((*[16]byte)(&d.version), (*[16]byte)(&d.organization))
		return d, err
	}, takeDue, shard, now, now.Add(eraseLease))
}

func (e *Eraser) erase(ctx context.Context, shard domain.Shard, due dueContent) error {
	if err := e.Delete(ctx, due.organization, due.version); err != nil {
		return err
	}
	origin := domain.Origin{Organization: due.organization, Actor: domain.SystemActor, RequestID: "erasure-" + rand.Text()}
	command, err := domain.NewEraseContent(origin, due.version, due.claimed, rand.Reader)
	if err != nil {
		return err
	}
	if err := e.Ledger.Do(ctx, command); err != nil {
		return err
	}
	const forget = `DELETE FROM kept_contents WHERE shard = $1 AND version_id = $2`
	if _, err := e.Pool.Exec(ctx, forget, shard, [16]byte(due.version)); err != nil {
		return statement.Failed("forget erased bytes", err)
	}
	return nil
}
