// Package consumer runs the work that follows the log after the commit. It uses Watermill's router with watermill-sql
// subscribers whose topics are rows of our own tables.
//
// A Source is one topic: the work, and a row that stores how far the work has progressed. Each message is a page of
// events:
//
//	BEGIN ── Claim locks the row, unless another process has it ── Read ── Handle ── Advance ── COMMIT
//
// The subscriber's message names the page that it has claimed. The router's middlewares end the message, limit its time
// and recover from panics. The last middleware reads the events into the message, so that the time limit and the
// recovery apply to reading too.
//
// The row lock is the lease. Only one process at a time works on a Source, no clocks are compared, and the end of a
// process or connection frees the row. If a process freezes while it holds the row, PostgreSQL's
// idle_in_transaction_session_timeout ends its transaction after two seconds, so it can no longer write.
//
// A page has 1.5 s, and no transaction stays open for longer than 2 s. Slow external work (a broker) does as much as it
// can in that time, advances that far, and leaves the rest to the next page. If Handle fails or panics, it is retried
// outside the transaction with growing backoff and smaller pages. No event is skipped.
//
// After a crash before the COMMIT, the page is delivered again; after the COMMIT, the next page is. Commits of the
// position are not flushed, so a crash of the database may lose them, and pages are then delivered again. Effects
// outside the transaction must therefore be idempotent. Effects inside it happen once.
package consumer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/wait"
)

// Query, Row and Message are Watermill's types. Nodes are connections to Citus nodes.
type (
	Query   = watermillsql.Query
	Row     = watermillsql.Scanner
	Message = message.Message
	Nodes   = cluster.Nodes
)

// Source is an ordered sequence of work and the row that stores its position. Its methods are called by one goroutine
// at a time. Scan, Read, Handle and Advance are called in the transaction of the preceding Claim.
type Source interface {
	// Begin creates the row if it does not exist.
	Begin() Query
	// Claim locks the row, unless another process has locked it, and selects the columns for Scan. No row means that there
	// is nothing to do. After consecutive failures the page should be smaller.
	Claim(failures int) Query
	// Scan reads the columns of Claim and returns the row's position.
	Scan(row Row) (position int64, err error)
	// Read fills the message: the payload is the page, and the metadata describes it.
	Read(tx *sql.Tx, page *Message) error
	// Handle processes the page. If the position does not advance, with or without an error, the transaction is rolled
	// back.
	Handle(tx *sql.Tx, page *Message) (Progress, error)
	// Advance stores the position that Handle has reached. It may be empty if Handle has stored it.
	Advance() Query
}

// Progress is the result of Handle.
type Progress struct {
	Position int64 // the new position of the row; if unchanged, the transaction is rolled back
	More     bool  // another page is available
}

// Config configures a Consumer.
type Config struct {
	Name string
	Pool *pgxpool.Pool // from Primary.ConsumerPool: half of it holds transactions, half reads beside them
	// Nodes, also from Primary.ConsumerPool, are used only for the transactions of Sharded sources. Nil means Pool.
	Nodes   *Nodes
	Sources []Source
	// News returns the indexes of the sources that have work, with one query for all of them. Sources that were not woken
	// are claimed only if News returns them. If it is nil, all are claimed.
	News func(context.Context) ([]int, error)
	Log  *slog.Logger
	// Poll is the time between two calls of News, in case a wake-up was lost. It grows up to four times while no source is
	// woken. 0 means 1 s.
	Poll time.Duration
	// Gather is the shortest time between a page and the next claim, if no further page is available. It combines events
	// that are committed in quick succession into one page. 0 means 50 ms. Hasten ends it early.
	Gather time.Duration
	// Advanced is called after the commit of a page, even if the commit failed. It must not block. It may be nil.
	Advanced func()
}

const (
	// ackDeadline ends a transaction whose Handle has not returned. handleTimeout ends Handle before that.
	ackDeadline   = 2 * time.Second
	handleTimeout = 1500 * time.Millisecond
	// maxOpen ends a transaction whose database has vanished. A database that answers has ended it before.
	maxOpen = 3 * ackDeadline
	// apart is the shortest time between two claims that find nothing.
	apart = 50 * time.Millisecond
	// linger is the time until the next claim after a page, unless Gather is longer: another process may have found the
	// row locked.
	linger = 100 * time.Millisecond
	// maxPause is the longest pause after consecutive failures.
	maxPause = 30 * time.Second
	// maxQuiet is how often the pause between two calls of News is doubled while no source is woken.
	maxQuiet = 2
	// unwoken is how long the pause is not doubled after News has led to a page: another process may have no such
	// consumer, or one that fails, and leave its work to this one.
	unwoken = 10 * time.Minute
	// newsTimeout limits a call of News, in case a server never answers.
	newsTimeout = 5 * time.Second
)

// Consumer processes its sources, each event at least once and in order. Among all processes that run a consumer of the
// same name, only one at a time works on a source.
type Consumer struct {
	Config
	topics   []*topic
	failures atomic.Int64
	stirred  atomic.Bool  // a source was woken since the last call of News
	found    atomic.Int64 // Unix nanoseconds of the last page of a source that was not woken
}

// New returns a Consumer. Run starts it.
func New(c Config) (*Consumer, error) {
	if c.Name == "" || c.Pool == nil || c.Pool.Config().MaxConns < 2 || len(c.Sources) == 0 || c.Log == nil {
		return nil, errors.New("a consumer needs Name, Pool of at least two connections, Sources and Log") //nolint:forbidigo // a bug
	}
	c.Poll, c.Gather = cmp.Or(c.Poll, time.Second), cmp.Or(c.Gather, apart)
	k := &Consumer{Config: c}
	for i, s := range c.Sources {
		k.topics = append(
			k.topics,
			&topic{
				Source: s, consumer: k, name: fmt.Sprintf("%s.%d", c.Name, i), woken: make(chan struct{}, 1),
				news: make(chan struct{}, 1), hastened: make(chan struct{}, 1),
			},
		)
	}
	return k, nil
}

// Wake signals that the source with an index has work. It never blocks.
func (c *Consumer) Wake(source int) {
	if source < len(c.topics) {
		put(c.topics[source].woken)
	}
}

// put sends to a channel of capacity one unless it is full.
func put(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Hasten ends the Gather time of a source. It reports whether the source was woken, so that a page follows now. It
// never blocks.
func (c *Consumer) Hasten(source int) bool {
	t := c.topics[source]
	woken := len(t.woken) > 0 // read before the source continues and receives it
	put(t.hastened)
	return woken
}

// Failures returns the number of failed pages since the start.
func (c *Consumer) Failures() int64 { return c.failures.Load() }

// Run processes the sources until ctx ends.
func (c *Consumer) Run(ctx context.Context) {
	var looking sync.WaitGroup
	looking.Go(func() { c.look(ctx) })
	defer looking.Wait()
	for failures := 0; ctx.Err() == nil; failures++ {
		err := c.route(ctx)
		if ctx.Err() == nil { // starting failed
			if err == nil {
				err = errors.New("the router has ended by itself") //nolint:forbidigo // logged
			}
			_ = wait.For(ctx, c.failed("start", err, failures))
		}
	}
}

// look finds work for which no source was woken.
func (c *Consumer) look(ctx context.Context) {
	for quiet := 0; wait.For(ctx, c.Poll<<quiet) == nil; {
		for _, source := range c.news(ctx) {
			put(c.topics[source].news)
		}
		if c.stirred.Swap(false) || time.Since(time.Unix(0, c.found.Load())) <= unwoken {
			quiet = 0
		} else {
			quiet = min(quiet+1, maxQuiet)
		}
	}
}

// news returns the sources that have work, or all of them if News fails: then their own failures report the reason.
func (c *Consumer) news(ctx context.Context) []int {
	if c.News != nil {
		ctx, cancel := context.WithTimeout(ctx, newsTimeout)
		defer cancel()
		sources, err := c.News(ctx)
		if err == nil {
			return sources
		}
		c.Log.Debug("consumer: no news", "consumer", c.Name, "error", cluster.Loggable(err))
	}
	every := make([]int, len(c.topics))
	for i := range every {
		every[i] = i
	}
	return every
}

// route runs Watermill's router with one subscriber per source.
func (c *Consumer) route(ctx context.Context) error {
	// The library logs its routine work at level info.
	log := watermill.NewSlogLoggerWithLevelMapping(
		c.Log.With("consumer", c.Name), map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug - 4},
	)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 2 * ackDeadline}, log)
	if err != nil {
		return err
	}
	dbs := c.databases()
	defer dbs.close()
	deadline := ackDeadline
	for _, t := range c.topics {
		t.stopped = ctx.Done()
		subscriber, err := watermillsql.NewSubscriber(dbs.of(t), watermillsql.SubscriberConfig{
			ConsumerGroup: c.Name, AckDeadline: &deadline, SchemaAdapter: t, OffsetsAdapter: t, BackoffManager: t,
		}, log)
		if err != nil {
			return err
		}
		router.AddConsumerHandler(t.name, t.name, subscriber, t.handle).
			AddMiddleware(t.conclude, middleware.Timeout(handleTimeout), middleware.Recoverer, t.read)
	}
	return router.Run(ctx)
}

// failed counts and logs a failure, and returns the pause after a number of consecutive failures.
func (c *Consumer) failed(what string, err error, failures int) time.Duration {
	c.failures.Add(1)
	d := min(maxPause, time.Second<<min(failures, 5))
	c.Log.Warn("consumer", "consumer", c.Name, "source", what, "error", cluster.Loggable(err), "pause", d)
	return d
}

// topic adapts a Source to watermill-sql: it is a SchemaAdapter, an OffsetsAdapter and a BackoffManager.
type topic struct {
	Source
	consumer *Consumer
	name     string
	woken    chan struct{} // holds a value when there may be work
	news     chan struct{} // holds a value when News has found work
	hastened chan struct{} // holds a value when Gather must end
	stopped  <-chan struct{}

	mu       sync.Mutex     // held while a page is handled
	piece    *cluster.Piece // held by its transaction; nil without nodes
	position int64          // of the page
	reached  int64          // the position that the last page reached
	handled  bool           // the following fields are the result of a page
	progress Progress
	err      error
	failures int  // consecutive
	unasked  bool // the current claim was not caused by Wake
}

// errForgotten means that the row is behind the position that the last page reached. The commit failed, which the
// library only logs, or the database lost it in a crash.
var errForgotten = errors.New("the position that the last page reached was lost") //nolint:forbidigo // logged

// read is the middleware that reads the page into the message.
func (t *topic) read(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		if t.position < t.reached {
			t.reached = t.position
			return nil, errForgotten
		}
		m.SetContext(cluster.Holding(m.Context(), t.piece))
		if err := t.Read(transaction(m), m); err != nil {
			return nil, err
		}
		return next(m)
	}
}

// handle is the handler of the router.
func (t *topic) handle(m *message.Message) (err error) {
	t.progress, err = t.Handle(transaction(m), m)
	return err
}

// transaction returns the transaction in which the subscriber has claimed the page.
func transaction(m *message.Message) *sql.Tx {
	tx, _ := watermillsql.TxFromContext(m.Context())
	return tx
}

// conclude records the result of a page and always acknowledges the message, because a refused message would be
// delivered again within the transaction. If the page has not advanced, it rolls the transaction back first.
func (t *topic) conclude(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if m.Context().Err() != nil {
			return nil, nil // the process was frozen, and the transaction is over
		}
		select {
		case <-t.hastened: // this page
		default:
		}
		t.progress = Progress{Position: t.position}
		_, t.err = next(m)
		t.handled = true
		if t.progress.Position == t.position {
			_ = transaction(m).Rollback() // then the library cannot advance, and reports that to HandleError
		}
		return nil, nil
	}
}

// HandleError implements watermillsql.BackoffManager. It is called after every claim, outside of the transaction, and
// returns when the next claim is due: at a wake-up, when News finds work, or after the pause that follows a failure. It
// waits for a late handler, so that two pages of a source are never handled at once.
func (t *topic) HandleError(_ watermill.LoggerAdapter, _ bool, err error) time.Duration {
	if !t.mu.TryLock() {
		select {
		case <-t.stopped:
		default:
			t.consumer.Log.Warn("consumer: a page lost its transaction but is still being handled; this source waits until "+
				"it ends",
				"consumer", t.consumer.Name, "source", t.name)
		}
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	advanced := t.handled && t.progress.Position != t.position
	switch {
	case t.handled:
		err = t.err
	case errors.Is(err, context.Canceled):
		err = nil
	}
	t.handled = false
	if advanced {
		t.reached = t.progress.Position
		if t.consumer.Advanced != nil {
			t.consumer.Advanced()
		}
	}
	if err != nil {
		select {
		case <-t.stopped:
		default:
			wait.Interrupted(t.consumer.failed(t.name, err, t.failures), t.stopped, nil)
		}
		t.failures++
		return 0
	}
	t.failures = 0
	if advanced {
		if t.unasked {
			t.consumer.found.Store(time.Now().UnixNano())
		}
		t.unasked = false
		if t.progress.More {
			return 0
		}
		wait.Interrupted(t.consumer.Gather, t.stopped, t.hastened)
		wait.Interrupted(max(0, linger-t.consumer.Gather), t.stopped, t.woken)
		return 0
	}
	wait.Interrupted(apart, t.stopped, nil)
	t.unasked = false
	select {
	case <-t.stopped:
	case <-t.woken:
		t.consumer.stirred.Store(true)
	case <-t.news:
		t.unasked = true
	}
	return 0
}

// SelectQuery implements watermillsql.SchemaAdapter.
func (t *topic) SelectQuery(string, string, watermillsql.OffsetsAdapter) Query {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Claim(t.failures)
}

// UnmarshalMessage implements watermillsql.SchemaAdapter.
func (t *topic) UnmarshalMessage(row watermillsql.Scanner) (r watermillsql.Row, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.position, err = t.Scan(row); err != nil {
		return r, fmt.Errorf("claim: %w", err) //nolint:forbidigo // logged
	}
	m := message.NewMessage(fmt.Sprintf("%s.%d", t.name, t.position), nil) // read, the middleware, adds the payload
	middleware.SetCorrelationID(m.UUID, m)
	return watermillsql.Row{Offset: 1, Msg: m}, nil
}

// AckMessageQuery implements watermillsql.OffsetsAdapter.
func (t *topic) AckMessageQuery(string, watermillsql.Row, string) Query { return t.Advance() }

// SubscribeIsolationLevel implements watermillsql.SchemaAdapter.
func (t *topic) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// The other adapter methods are for tables that the library creates and publishes to.

// InsertQuery implements watermillsql.SchemaAdapter.
func (t *topic) InsertQuery(string, message.Messages) (Query, error) {
	return Query{}, errors.New("only the ledger appends events") //nolint:forbidigo // a bug
}

// SchemaInitializingQueries implements both adapters.
func (t *topic) SchemaInitializingQueries(string) []Query { return nil }

// ConsumedMessageQuery implements watermillsql.OffsetsAdapter.
func (t *topic) ConsumedMessageQuery(string, watermillsql.Row, string, []byte) Query { return Query{} }

// BeforeSubscribingQueries implements watermillsql.OffsetsAdapter. It returns nothing, because beginner creates the
// rows.
func (t *topic) BeforeSubscribingQueries(string, string) []Query { return nil }

// NextOffsetQuery implements watermillsql.OffsetsAdapter. Claim knows the offset.
func (t *topic) NextOffsetQuery(string, string) Query { return Query{} }
