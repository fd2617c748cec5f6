package eventstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// ConsumerConfig is what a Consumer is made of.
type ConsumerConfig struct {
	Pool   *pgxpool.Pool // from QueuePool: a position that a crash loses makes events come again
	Name   string        // of the consumer; its positions are kept under it for ever
	Shards int
	Log    *slog.Logger

	// Handle takes further events of a shard, in order, and says how many of them
	// it is done with. Those after them come again, with an error after a pause.
	// It must be idempotent: after a crash, or when this process was frozen for
	// longer than the lease, events come a second time. Shards are handled at the
	// same time.
	Handle func(ctx context.Context, shard domain.Shard, events []domain.Event) (done int, err error)

	Batch int           // most events of a call; 0 means 500
	Lease time.Duration // 0 means 15 s
	Poll  time.Duration // between two looks at a shard whose wake-up was lost; 0 means 1 s
}

// Consumer reads the log after the commit, each event of each shard at least once
// and in order, and never skips one. Of all processes that run a consumer of the
// same name one at a time has a shard: it holds a lease on it, which another takes
// over when it is not renewed. Handle works outside of every transaction, so a slow
// consumer delays nobody.
type Consumer struct {
	ConsumerConfig
	leases []*Lease // by shard
	wake   []chan struct{}
}

// NewConsumer makes one; Run starts it.
func NewConsumer(c ConsumerConfig) (*Consumer, error) {
	if c.Pool == nil || c.Name == "" || c.Shards < 1 || c.Log == nil || c.Handle == nil {
		return nil, errors.New("a consumer needs Pool, Name, Shards, Log and Handle")
	}
	if c.Batch == 0 {
		c.Batch = 500
	}
	if c.Lease == 0 {
		c.Lease = 15 * time.Second
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	k := &Consumer{ConsumerConfig: c}
	for shard := range domain.Shard(c.Shards) {
		lease, err := NewLease(c.Pool, shard, c.Name, c.Lease)
		if err != nil {
			return nil, err
		}
		k.leases, k.wake = append(k.leases, lease), append(k.wake, make(chan struct{}, 1))
	}
	return k, nil
}

// Wake tells that a shard has new events. It never waits.
func (c *Consumer) Wake(shard domain.Shard) {
	if int(shard) < len(c.wake) {
		wake(c.wake[shard])
	}
}

// Run works until ctx ends, and then gives its leases back.
func (c *Consumer) Run(ctx context.Context) {
	var shards sync.WaitGroup
	for shard := range domain.Shard(c.Shards) {
		shards.Go(func() { c.follow(ctx, shard) })
	}
	shards.Wait()
}

// mostPause is the longest pause after failures in a row.
const mostPause = 30 * time.Second

// follow has one shard's lease, or waits for it.
func (c *Consumer) follow(ctx context.Context, shard domain.Shard) {
	failures := 0
	for ctx.Err() == nil {
		held, err := c.turn(ctx, shard)
		pause := c.Poll
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause = min(mostPause, time.Second<<min(failures, 5))
			failures++
			c.Log.Warn("consumer", "consumer", c.Name, "shard", shard, "error", cluster.Loggable(err), "pause", pause)
		case held:
			failures = 0
			continue
		default:
			pause = c.Lease / 3 // another process has it
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if err := c.leases[shard].Give(ctx); err != nil {
		c.Log.Warn("consumer keeps its lease until it ends", "consumer", c.Name, "shard", shard, "error", cluster.Loggable(err))
	}
}

// turn takes or renews the lease and handles what there is until the lease must
// be renewed; where there is nothing it waits for a wake-up. held is false where
// another process has the shard.
func (c *Consumer) turn(ctx context.Context, shard domain.Shard) (held bool, err error) {
	renewed := time.Now()
	lease := c.leases[shard]
	position, held, err := lease.Take(ctx)
	if err != nil || !held {
		return false, err
	}
	for time.Since(renewed) < c.Lease/3 && ctx.Err() == nil {
		events, err := history.NewTail(c.Pool, shard, position).Next(ctx, c.Batch)
		if err != nil {
			return true, err
		}
		if len(events) == 0 {
			select {
			case <-ctx.Done():
			case <-c.wake[shard]:
			case <-time.After(min(c.Poll, c.Lease/3)):
			}
			continue
		}
		done, handling := c.handle(ctx, renewed.Add(c.Lease*2/3), shard, events)
		if done > 0 {
			now := time.Now()
			// Also while stopping: what was done need not come again.
			held, err := lease.advance(context.WithoutCancel(ctx), position+int64(done))
			if err != nil {
				return true, errors.Join(handling, fmt.Errorf("record the position: %w", err))
			}
			if !held {
				return false, handling // the lease went to another process meanwhile
			}
			position, renewed = position+int64(done), now
		}
		if handling != nil {
			return true, handling
		}
	}
	return true, nil
}

// handle must end within the lease, so that two processes handle the same events
// at once only where one was frozen.
func (c *Consumer) handle(ctx context.Context, until time.Time, shard domain.Shard, events []domain.Event) (int, error) {
	leased, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return c.Handle(leased, shard, events)
}

// Lag is how far a consumer is behind the log of a shard.
type Lag struct {
	Events int64
	Since  time.Time // when the first event that it has not handled was decided; zero when it has handled all
}

// ConsumerLag is the lag of each shard's consumer of a name.
func ConsumerLag(ctx context.Context, pool *pgxpool.Pool, name string) (map[domain.Shard]Lag, error) {
	const query = `SELECT h.shard, h.position - coalesce(c.position, 0), e.occurred_at FROM shard_heads h
		LEFT JOIN consumers c ON c.shard = h.shard AND c.consumer = $1
		LEFT JOIN events e ON e.shard = h.shard AND e.position = coalesce(c.position, 0) + 1`
	rows, err := pool.Query(ctx, query, name)
	if err != nil {
		return nil, fmt.Errorf("lag of consumer %s: %w", name, err)
	}
	lag := map[domain.Shard]Lag{}
	var shard domain.Shard
	var behind int64
	var since *time.Time
	if _, err := pgx.ForEachRow(rows, []any{&shard, &behind, &since}, func() error {
		lag[shard] = Lag{Events: behind}
		if since != nil {
			lag[shard] = Lag{behind, since.UTC()}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("lag of consumer %s: %w", name, err)
	}
	return lag, nil
}
