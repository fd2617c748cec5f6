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

// Query, Row and Message are those of Watermill; Nodes are what a consumer goes to the nodes of Citus with.
type (
	Query   = watermillsql.Query
	Row     = watermillsql.Scanner
	Message = message.Message
	Nodes   = cluster.Nodes
)

// Source is one ordered piece of work and the row that remembers how far it has come. Its methods are called by one
// goroutine at a time, Scan, Read, Handle and Advance in the transaction of the Claim before them.
type Source interface {
	// Begin makes the row where it is missing.
	Begin() Query
	// Claim locks the row unless another process has locked it, and selects what Scan reads. No row means that nothing
	// is to be done. After failures in a row the page should be smaller.
	Claim(failures int) Query
	// Scan reads what Claim has selected, and answers the position that the row holds.
	Scan(row Row) (position int64, err error)
	// Read puts what Claim has found into the message: the payload is the page, the metadata says of what.
	Read(tx *sql.Tx, page *Message) error
	// Handle works on the page. Where it does not advance, with or without an error, the transaction is rolled back.
	Handle(tx *sql.Tx, page *Message) (Progress, error)
	// Advance moves the row to where Handle has come. It may be empty where Handle has moved it.
	Advance() Query
}

// Progress is what Handle has achieved.
type Progress struct {
	Position int64 // that the row has or gets; the same as before means that nothing is kept
	More     bool  // a further page is there already
}

// Config is what a Consumer is made of.
type Config struct {
	Name string
	Pool *pgxpool.Pool // from Primary.ConsumerPool: half of it holds transactions, half reads beside them
	// Nodes, also from Primary.ConsumerPool, hold the transactions of sources that are Sharded, and nothing else. Nil:
	// Pool does.
	Nodes   *Nodes
	Sources []Source
	// News says which sources, by index, have work, by one question about all of them: of those that nobody has woken only
	// these are claimed. Nil: all are.
	News func(context.Context) ([]int, error)
	Log  *slog.Logger
	// between two looks for news where a wake-up was lost, and up to four times that where none was; 0 means 1 s
	Poll time.Duration
	// Gather is how long after a page the next look comes at the earliest, where no further page is there: it lets what is
	// committed at short intervals become one page. 0 means 50 ms. Hasten ends it.
	Gather time.Duration
	// Advanced is called after the commit of a page, which may have failed. It must not wait. It may be nil.
	Advanced func()
}

const (
	// ackDeadline ends a transaction whose Handle has not come back. handleTimeout ends Handle before.
	ackDeadline   = 2 * time.Second
	handleTimeout = 1500 * time.Millisecond
	// mostOpen ends a transaction with a database that has vanished without a word. One that answers has ended it before.
	mostOpen = 3 * ackDeadline
	// apart is the least time between two looks that find nothing.
	apart = 50 * time.Millisecond
	// linger is how soon is looked again after a page, because another process may have found the row locked, unless
	// more is gathered until then.
	linger = 100 * time.Millisecond
	// mostPause is the longest pause after failures in a row.
	mostPause = 30 * time.Second
	// mostQuiet is how often the pause between two looks for news is doubled while nobody wakes a source.
	mostQuiet = 2
	// unwoken is for how long the pause is not doubled after such a look has led to a page: another process may have no
	// such consumer, or one that fails, and leave its work to this one.
	unwoken = 10 * time.Minute
	// newsTimeout ends a look for news that a server without a word has swallowed.
	newsTimeout = 5 * time.Second
)

// Consumer works on its sources, each event at least once and in order. Of all processes that run a consumer of the
// same name, one at a time works on a source.
type Consumer struct {
	Config
	topics   []*topic
	failures atomic.Int64
	stirred  atomic.Bool  // a source was woken since the last look for news
	found    atomic.Int64 // when a source that nobody had woken has last got to a page, in Unix nanoseconds
}

// New makes a Consumer; Run starts it.
func New(c Config) (*Consumer, error) {
	if c.Name == "" || c.Pool == nil || c.Pool.Config().MaxConns < 2 || len(c.Sources) == 0 || c.Log == nil {
		return nil, errors.New("a consumer needs Name, Pool of at least two connections, Sources and Log")
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

// Wake tells that a source, by its index, has work. It never waits.
func (c *Consumer) Wake(source int) {
	if source < len(c.topics) {
		put(c.topics[source].woken)
	}
}

// put puts one into a channel that holds at most one.
func put(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Hasten ends the gathering of a source after its last page. It reports whether the source is woken, so that a page
// comes now, and never waits.
func (c *Consumer) Hasten(source int) bool {
	t := c.topics[source]
	woken := len(t.woken) > 0 // before it goes on, and takes that
	put(t.hastened)
	return woken
}

// Failures is how often a page has failed since the start.
func (c *Consumer) Failures() int64 { return c.failures.Load() }

// Run works until ctx ends.
func (c *Consumer) Run(ctx context.Context) {
	var looking sync.WaitGroup
	looking.Go(func() { c.look(ctx) })
	defer looking.Wait()
	for failures := 0; ctx.Err() == nil; failures++ {
		err := c.route(ctx)
		if ctx.Err() == nil { // it could not begin
			if err == nil {
				err = errors.New("the router has ended by itself")
			}
			_ = wait.For(ctx, c.failed("start", err, failures))
		}
	}
}

// look finds what nobody has woken a source for.
func (c *Consumer) look(ctx context.Context) {
	for quiet := 0; wait.For(ctx, c.Poll<<quiet) == nil; {
		for _, source := range c.news(ctx) {
			put(c.topics[source].news)
		}
		if c.stirred.Swap(false) || time.Since(time.Unix(0, c.found.Load())) <= unwoken {
			quiet = 0
		} else {
			quiet = min(quiet+1, mostQuiet)
		}
	}
}

// news are the sources that have work, and all of them where that cannot be asked: then their own failures tell why.
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

// route runs Watermill's router over a subscriber a source.
func (c *Consumer) route(ctx context.Context) error {
	// The library tells at level info what it does all day long.
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

// failed counts and logs a failure, and answers how long to pause after so many.
func (c *Consumer) failed(what string, err error, failures int) time.Duration {
	c.failures.Add(1)
	d := min(mostPause, time.Second<<min(failures, 5))
	c.Log.Warn("consumer", "consumer", c.Name, "source", what, "error", cluster.Loggable(err), "pause", d)
	return d
}

// topic is a Source as watermill-sql wants it: SchemaAdapter, OffsetsAdapter and BackoffManager in one.
type topic struct {
	Source
	consumer *Consumer
	name     string
	woken    chan struct{} // holds one when there may be work
	news     chan struct{} // holds one when there may be work that nobody has woken it for
	hastened chan struct{} // holds one when a gathering is to end
	stopped  <-chan struct{}

	mu       sync.Mutex     // held while a page is handled
	piece    *cluster.Piece // that its transaction holds; nil: there are no nodes
	position int64          // of the page
	reached  int64          // the position that the last page was advanced to
	handled  bool           // what follows is the result of a page
	progress Progress
	err      error
	failures int  // in a row
	unasked  bool // nobody has woken it for the look under way
}

// errForgotten: the row is behind what was advanced. The commit failed, which the library only logs, or the database
// has lost it in a crash.
var errForgotten = errors.New("the position that the last page reached was not kept")

// read is the middleware that puts the page into the message.
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

// transaction is the one that the subscriber has claimed the page in.
func transaction(m *message.Message) *sql.Tx {
	tx, _ := watermillsql.TxFromContext(m.Context())
	return tx
}

// conclude notes the result of a page, and acknowledges the message in any case: a refused one would be sent again
// within the transaction. What must not be kept is rolled back first.
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
			_ = transaction(m).Rollback() // then the library cannot advance, and says so to HandleError
		}
		return nil, nil
	}
}

// HandleError implements watermillsql.BackoffManager. It is called after every look, outside of the transaction, and
// returns when the next one is due: at a wake-up, at news, or after the pause that follows a failure. A handler
// that is late is waited for, so that no two pages of a source are handled at once.
func (t *topic) HandleError(_ watermill.LoggerAdapter, _ bool, err error) time.Duration {
	if !t.mu.TryLock() {
		select {
		case <-t.stopped:
		default:
			t.consumer.Log.Warn("consumer: a page has lost its transaction and is still being handled; nothing else of this "+
				"source is until it ends",
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
		return r, fmt.Errorf("claim: %w", err)
	}
	m := message.NewMessage(fmt.Sprintf("%s.%d", t.name, t.position), nil) // the payload is read with a time and recovery
	middleware.SetCorrelationID(m.UUID, m)
	return watermillsql.Row{Offset: 1, Msg: m}, nil
}

// AckMessageQuery implements watermillsql.OffsetsAdapter.
func (t *topic) AckMessageQuery(string, watermillsql.Row, string) Query { return t.Advance() }

// SubscribeIsolationLevel implements watermillsql.SchemaAdapter.
func (t *topic) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// The rest of the adapters is for tables that the library makes and publishes to itself.

// InsertQuery implements watermillsql.SchemaAdapter.
func (t *topic) InsertQuery(string, message.Messages) (Query, error) {
	return Query{}, errors.New("events are appended by the ledger alone")
}

// SchemaInitializingQueries implements both adapters.
func (t *topic) SchemaInitializingQueries(string) []Query { return nil }

// ConsumedMessageQuery implements watermillsql.OffsetsAdapter.
func (t *topic) ConsumedMessageQuery(string, watermillsql.Row, string, []byte) Query { return Query{} }

// BeforeSubscribingQueries implements watermillsql.OffsetsAdapter. The rows are made before the router starts, which
// could not start again beside subscriptions that were made.
func (t *topic) BeforeSubscribingQueries(string, string) []Query { return nil }

// NextOffsetQuery implements watermillsql.OffsetsAdapter. Claim knows the offset.
func (t *topic) NextOffsetQuery(string, string) Query { return Query{} }
