package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/wait"
)

// channel is the PostgreSQL channel on which processes tell each other that a shard has new events.
const channel = "integrity_committed"

const (
	// notifyEvery is the shortest time between two notifications of a process.
	notifyEvery = 5 * time.Millisecond
	// listenAgain is the pause after a connection was lost.
	listenAgain = time.Second
	tailPage    = 1000
	// announceAgain is how often announcements are checked: Citus may have moved a shard to another node.
	announceAgain = 10 * time.Second
	// answerWithin limits one statement. It is longer than the statement timeout of NotifyPool's sessions.
	answerWithin = 7 * time.Second
	// awaitedLock is the class of the advisory locks, one per shard, by which processes announce that readers wait.
	awaitedLock = 0x77616974
)

// NotifierConfig configures a Notifier.
type NotifierConfig struct {
	Pool *pgxpool.Pool // from NotifyPool: one connection listens, one notifies
	Read Database      // for reading new events
	// Nodes are the ledger's nodes, if any. Announcements are made on the nodes, where groups are committed. Notifications
	// go through Pool.
	Nodes *cluster.Nodes
	Log   *slog.Logger
	// Poll is how often a shard is read without a notification, to find events that an operator's command committed or
	// that were committed while this process did not listen. 0 means 1 s.
	Poll time.Duration
}

// Notifier wakes readers that wait for events of a company, whichever process committed them. A process listens on one
// connection and tails each shard with waiting readers once. A wake-up is only a hint: the reader must read the feed
// itself. Notifier is safe for concurrent use.
//
// If no reader waits, a commit costs nothing extra. A process knows its own readers. Readers of any process are
// announced by a lock:
//
//	waiting     LISTEN ── pg_advisory_lock_shared(shard) ── read new events ── wait
//	committing  BEGIN ── head's lock ── pg_try_advisory_xact_lock(shard) ── … ── COMMIT ── NOTIFY if not acquired
//
// A group that gets the lock holds it until its commit. If the announcement comes first, the group sends a
// notification. Otherwise the announcement waits until the group is visible, and the read that follows finds the group.
// The lock belongs to the listening connection, so it ends with it.
//
// The notification is sent after the commit, never inside the transaction, where NOTIFY would lock the whole database.
// A process sends at most one per shard every 5 ms. Polling every second makes up for lost notifications.
//
// On Citus the locks are taken on the nodes, with one connection each, and notifications go through the coordinator. An
// unreachable node affects only its own shards.
type Notifier struct {
	NotifierConfig
	mu      sync.Mutex
	tails   map[domain.Shard]*shardTail
	retail  context.CancelFunc    // tells the listener that tails has changed
	dirty   map[domain.Shard]bool // committed here, not yet notified; true if a process has announced readers
	told    chan struct{}         // holds one when dirty is not empty
	workers sync.WaitGroup
	stop    context.CancelFunc
	running context.Context //nolint:containedctx // the life of the workers, which outlives every call
}

// shardTail holds the readers of one process that wait for one shard.
type shardTail struct {
	shard   domain.Shard
	waiters map[awaited]map[chan struct{}]bool
	kick    chan struct{} // holds one when there may be new events
}

// awaited is a company, or with a zero company all of an organization, whose events readers wait for.
type awaited struct {
	organization domain.OrganizationID
	company      domain.CompanyID
}

// OpenNotifier starts listening; Close ends it.
func OpenNotifier(c NotifierConfig) (*Notifier, error) {
	if c.Pool == nil || c.Read == nil || c.Log == nil {
		return nil, errors.New("a notifier needs Pool, Read and Log") //nolint:forbidigo // a bug
	}
	w := &Notifier{
		NotifierConfig: c, tails: map[domain.Shard]*shardTail{}, retail: func() {}, dirty: map[domain.Shard]bool{},
		told: make(chan struct{}, 1),
	}
	w.Poll = cmp.Or(w.Poll, time.Second)
	w.running, w.stop = context.WithCancel(context.Background())
	w.workers.Go(w.listen)
	w.workers.Go(w.notify)
	if w.Nodes != nil {
		w.workers.Go(w.announceOnNodes)
	}
	return w, nil
}

// Close stops the notifier and waits for its goroutines. Waiting readers are not woken.
func (w *Notifier) Close() {
	w.mu.Lock()
	w.stop() // under the lock, so that no tail starts afterwards
	w.mu.Unlock()
	w.workers.Wait()
}

// Committed wakes the readers that wait for events of a shard, in every process. It never blocks.
func (w *Notifier) Committed(c Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Awaited || w.tails[c.Shard] != nil {
		w.dirty[c.Shard] = w.dirty[c.Shard] || c.Awaited
		wake(w.told)
	}
}

// Wait registers a reader that waits for events of a company, or of all companies of the organization if company is
// zero. woken receives after each event that is committed from now on, and sometimes without one. Read the feed after
// this call, not before: earlier commits cause no wake-up. The caller must call leave.
func (w *Notifier) Wait(
	organization domain.OrganizationID, company domain.CompanyID,
) (woken <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shard, of := organization.Shard(), awaited{organization, company}
	t := w.tails[shard]
	if t == nil {
		t = &shardTail{shard: shard, waiters: map[awaited]map[chan struct{}]bool{}, kick: make(chan struct{}, 1)}
		w.tails[shard] = t
		if w.running.Err() == nil {
			w.workers.Go(func() { w.tail(t) })
			w.retail()
		}
	}
	if t.waiters[of] == nil {
		t.waiters[of] = map[chan struct{}]bool{}
	}
	waiter := make(chan struct{}, 1)
	t.waiters[of][waiter] = true
	return waiter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(t.waiters[of], waiter); len(t.waiters[of]) == 0 {
			delete(t.waiters, of)
		}
	}
}

// Waiting returns the number of readers that wait in this process.
func (w *Notifier) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, t := range w.tails {
		for _, waiters := range t.waiters {
			n += len(waiters)
		}
	}
	return n
}

// wake sends to a channel of capacity one unless it is full.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notify announces this process's commits: at once after a pause, otherwise 5 ms after the previous notification.
func (w *Notifier) notify() {
	for {
		select {
		case <-w.running.Done():
			return
		case <-w.told:
		}
		var announced []domain.Shard
		w.mu.Lock()
		for shard, awaited := range w.dirty {
			if awaited {
				announced = append(announced, shard)
			} else {
				w.kick(shard)
			}
		}
		clear(w.dirty)
		w.mu.Unlock()
		if err := w.send(announced); err != nil && w.running.Err() == nil {
			w.Log.Warn("waking waiting readers failed; they are woken within a second", "error", cluster.Loggable(err))
			w.mu.Lock()
			for _, shard := range announced { // wake at least the readers of this process
				w.kick(shard)
			}
			w.mu.Unlock()
		}
		if wait.For(w.running, notifyEvery) != nil {
			return
		}
	}
}

// send tells every process, this one included, that shards have new events.
func (w *Notifier) send(shards []domain.Shard) error {
	if shards == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	_, err := w.Pool.Exec(ctx, "SELECT pg_notify($1, n::text) FROM unnest($2::int[]) AS n", channel, shards)
	return err
}

// listen receives the notifications of all processes and reconnects whenever its connection is lost.
func (w *Notifier) listen() {
	for w.running.Err() == nil {
		if err := w.hear(); err != nil && w.running.Err() == nil {
			w.Log.Warn("listening failed; waiting readers are woken only every second", "error", cluster.Loggable(err))
		}
		_ = wait.For(w.running, listenAgain)
	}
}

// hear listens until its connection is lost. On a single server, it also announces the shards with waiting readers.
func (w *Notifier) hear() error {
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	conn, err := w.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// Not released to the pool: its next user would not expect a listening connection.
	listening := conn.Hijack()
	defer closeSoon(listening)
	if _, err := listening.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	w.kickAll() // notifications of earlier commits may have been missed
	if w.Nodes != nil {
		for err == nil {
			err = w.next(w.running, listening)
		}
		return err
	}
	here := &announcer{conn: listening, made: map[domain.Shard]bool{}}
	for {
		unchanged, interrupt, awaited := w.untilChanged()
		err := w.announce(here, awaited)
		for err == nil {
			err = w.next(unchanged, listening)
		}
		interrupted := unchanged.Err() != nil && !listening.IsClosed()
		interrupt()
		if !interrupted || w.running.Err() != nil {
			return err
		}
	}
}

// untilChanged returns the shards with waiting readers, and a context that ends when they change or announcements must
// be checked.
func (w *Notifier) untilChanged() (unchanged context.Context, end context.CancelFunc, awaited []domain.Shard) {
	unchanged, end = context.WithTimeout(w.running, announceAgain)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retail = end
	return unchanged, end, slices.Collect(maps.Keys(w.tails))
}

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// announcer is a connection and the shards whose locks it holds.
type announcer struct {
	conn *pgx.Conn
	made map[domain.Shard]bool
}

// announce takes the locks of awaited shards and releases all others. It also makes newly announced shards be read,
// because earlier commits there may not have been notified.
func (w *Notifier) announce(a *announcer, awaited []domain.Shard) error {
	for shard := range a.made {
		if !slices.Contains(awaited, shard) {
			if err := w.lock(a, "SELECT pg_advisory_unlock_shared($1, $2)", shard); err != nil {
				return err
			}
			delete(a.made, shard)
		}
	}
	for _, shard := range awaited {
		if a.made[shard] {
			continue
		}
		err := w.lock(a, "SELECT pg_advisory_lock_shared($1, $2)", shard)
		if err != nil && a.conn.IsClosed() {
			return err
		}
		if err != nil { // a group has held the lock for too long
			w.Log.Warn(
				"announcing a shard failed; its readers are woken only every second", "shard", shard, "error",
				cluster.Loggable(err),
			)
			continue
		}
		a.made[shard] = true
		w.mu.Lock()
		w.kick(shard)
		w.mu.Unlock()
	}
	return nil
}

func (w *Notifier) lock(a *announcer, statement string, shard domain.Shard) error {
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	_, err := a.conn.Exec(ctx, statement, awaitedLock, int32(shard))
	return err
}

// nodeAnnouncer announces on one Citus node, independently of the others.
type nodeAnnouncer struct {
	address string
	awaited chan []domain.Shard // holds the newest shards; none: no reader waits there
}

// announceOnNodes announces each shard with waiting readers on its node.
func (w *Notifier) announceOnNodes() {
	nodes := map[string]*nodeAnnouncer{}
	places := map[domain.Shard]string{}
	for w.running.Err() == nil {
		unchanged, end, awaited := w.untilChanged()
		at := map[string][]domain.Shard{}
		w.place(places, awaited)
		for _, shard := range awaited {
			if address := places[shard]; address != "" {
				at[address] = append(at[address], shard)
			}
		}
		for address := range at {
			if nodes[address] == nil {
				n := &nodeAnnouncer{address, make(chan []domain.Shard, 1)}
				nodes[address] = n
				w.workers.Go(func() { w.announceOn(n) })
			}
		}
		for address, n := range nodes {
			select { // replace an older value; this is the only sender
			case <-n.awaited:
			default:
			}
			n.awaited <- at[address]
			if at[address] == nil {
				delete(nodes, address)
			}
		}
		<-unchanged.Done()
		end()
	}
}

// place updates the addresses of the nodes that hold the shards. If a lookup fails, the last known address stays.
func (w *Notifier) place(places map[domain.Shard]string, awaited []domain.Shard) {
	maps.DeleteFunc(places, func(shard domain.Shard, _ string) bool { return !slices.Contains(awaited, shard) })
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	for _, shard := range awaited {
		piece, err := w.Nodes.Place(ctx, uint16(shard))
		if err == nil {
			places[shard] = piece.Address()
		} else if w.running.Err() == nil {
			w.Log.Warn(
				"finding the node of a shard failed; its readers may be woken only every second", "shard", shard, "error",
				cluster.Loggable(err),
			)
		}
	}
}

// announceOn announces on a node until no reader waits there, and reconnects whenever its connection is lost.
func (w *Notifier) announceOn(n *nodeAnnouncer) {
	var held *pgxpool.Conn
	leave := func() {
		if held != nil {
			closeSoon(held.Conn()) // this releases its locks
			held.Release()
			held = nil
		}
	}
	defer func() { leave() }()
	var a *announcer
	awaited := <-n.awaited
	for awaited != nil {
		var err error
		if held != nil {
			ctx, cancel := context.WithTimeout(w.running, answerWithin)
			err = held.Ping(ctx)
			cancel()
		} else if held, err = w.connectTo(n, awaited[0]); err == nil {
			a = &announcer{conn: held.Conn(), made: map[domain.Shard]bool{}}
		}
		if err == nil {
			err = w.announce(a, awaited)
		}
		again := announceAgain
		if err != nil {
			leave()
			again = listenAgain
			if w.running.Err() == nil {
				w.Log.Warn(
					"announcing readers on a node failed; they are woken only every second", "node", n.address, "error",
					cluster.Loggable(err),
				)
			}
		}
		select {
		case <-w.running.Done():
			return
		case awaited = <-n.awaited:
		case <-time.After(again): //nolint:forbidigo // the other end holds a value
		}
	}
}

// connectTo connects to a node that holds a shard.
func (w *Notifier) connectTo(n *nodeAnnouncer, shard domain.Shard) (*pgxpool.Conn, error) {
	conn, piece, err := w.Nodes.Acquire(w.running, uint16(shard)) // Acquire has its own deadline
	if err == nil && piece.Address() != n.address {
		conn.Release()
		conn, err = nil, say.Errorf("shard %d has moved to %s", shard, piece.Address())
	}
	return conn, err
}

// next receives one notification.
func (w *Notifier) next(ctx context.Context, listening *pgx.Conn) error {
	n, err := listening.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	shard, err := strconv.ParseUint(n.Payload, 10, 16)
	if err != nil {
		return fmt.Errorf("notification %q: %w", n.Payload, err) //nolint:forbidigo // logged
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kick(domain.Shard(shard))
	return nil
}

// kickAll makes every tail read.
func (w *Notifier) kickAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard := range w.tails {
		w.kick(shard)
	}
}

// kick makes the tail of a shard, if any, read. The caller must hold the lock.
func (w *Notifier) kick(shard domain.Shard) {
	if t := w.tails[shard]; t != nil {
		wake(t.kick)
	}
}

// tail follows a shard while readers wait for it. It starts at the current head and then wakes every reader once,
// because a reader may have read the feed before that head.
func (w *Notifier) tail(t *shardTail) {
	poll := time.NewTicker(w.Poll)
	defer poll.Stop()
	var log *history.Tail
	for w.awaited(t) {
		var err error
		if log == nil {
			log, err = w.head(t.shard)
			w.wakeAll(t)
		} else {
			err = w.follow(t, log)
		}
		if err != nil && w.running.Err() == nil {
			w.Log.Warn(
				"reading a shard failed; its waiting readers were woken", "shard", t.shard, "error",
				cluster.Loggable(err),
			)
			w.wakeAll(t)
		}
		select {
		case <-w.running.Done():
			return
		case <-t.kick:
		case <-poll.C:
		}
	}
}

// head returns a tail that starts after the last event.
func (w *Notifier) head(shard domain.Shard) (*history.Tail, error) {
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	var position int64
	if err := w.Read.QueryRow(
		ctx, cluster.SQL("SELECT position FROM {shard_heads} WHERE shard = $1"), shard,
	).Scan(&position); err != nil {
		return nil, say.Errorf("read the head of shard %d: %w", shard, err)
	}
	return history.NewTail(w.Read, shard, position), nil
}

// follow reads new events and wakes the readers that wait for them.
func (w *Notifier) follow(t *shardTail, log *history.Tail) error {
	for {
		ctx, cancel := context.WithTimeout(w.running, answerWithin)
		events, err := log.Next(ctx, tailPage)
		cancel()
		if err != nil {
			return err
		}
		w.mu.Lock()
		for i := range events {
			for _, company := range []domain.CompanyID{events[i].Company, {}} {
				for waiter := range t.waiters[awaited{events[i].Organization, company}] {
					wake(waiter)
				}
			}
		}
		w.mu.Unlock()
		if len(events) < tailPage {
			return nil
		}
	}
}

// awaited reports whether any reader waits for a shard. If none does, it removes the tail; the next reader starts
// another.
func (w *Notifier) awaited(t *shardTail) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(t.waiters) == 0 {
		delete(w.tails, t.shard)
		w.retail()
	}
	return len(t.waiters) > 0
}

func (w *Notifier) wakeAll(t *shardTail) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiters := range t.waiters {
		for waiter := range waiters {
			wake(waiter)
		}
	}
}
