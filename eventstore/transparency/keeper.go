package transparency

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/consumer"
)

// Config is what a Keeper is made of.
type Config struct {
	Pool *pgxpool.Pool // from Primary.ConsumerPool; what must be flushed says so
	// Signer answers the log's key as it is now. Nil: this process leaves the tree alone.
	Signer    func() *Signer
	Witnesses []*Witness
	Now       func() time.Time
	Log       *slog.Logger // of the program

	Interval time.Duration // least time between two checkpoints; 0 means 1 s
	Poll     time.Duration // between two looks where a wake-up was lost; 0 means 1 s
	Batch    int           // most leaves of a transaction; 0 means 4,096
	Witness  time.Duration // that the witnesses have to cosign a checkpoint; 0 means 2 s
}

// Keeper puts events into the tree and signs checkpoints. Run does all of it.
type Keeper struct {
	Config
	growth   *growth
	consumer *consumer.Consumer
	grown    chan struct{} // holds one when there may be leaves that no checkpoint covers
	failures atomic.Int64  // to publish

	// Of the one goroutine that publishes.
	last   checkpoint
	signed int64 // the size of the last checkpoint that this process has signed
}

// New makes a Keeper; Run starts it.
func New(c Config) (*Keeper, error) {
	if c.Pool == nil || c.Signer == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("a keeper of the transparency tree needs Pool, Signer, Now and Log")
	}
	c.Interval, c.Poll, c.Batch, c.Witness = cmp.Or(c.Interval, time.Second), cmp.Or(c.Poll, time.Second), cmp.Or(c.Batch, 4096), cmp.Or(c.Witness, 2*time.Second)
	k := &Keeper{Config: c, growth: &growth{pool: c.Pool, signer: c.Signer, batch: c.Batch}, grown: make(chan struct{}, 1)}
	var err error
	k.consumer, err = consumer.New(consumer.Config{
		Name: "transparency", Pool: c.Pool, Sources: []consumer.Source{k.growth}, Log: c.Log, Poll: c.Poll,
		Advanced: func() {
			select {
			case k.grown <- struct{}{}:
			default:
			}
		},
	})
	return k, err
}

// Wake tells that there are new events. It never waits.
func (k *Keeper) Wake() { k.consumer.Wake(0) }

// Failures is how often growing or publishing the tree has failed since the start.
func (k *Keeper) Failures() int64 { return k.consumer.Failures() + k.failures.Load() }

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { k.consumer.Run(ctx) })
	work.Go(func() { k.publishing(ctx) })
	work.Wait()
}
