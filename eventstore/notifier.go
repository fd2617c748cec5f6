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
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/wait"
)

// channel is where processes tell each other that a shard has new events.
const channel = "integrity_committed"

const (
	// notifyEvery is the least time between two notifications of a process.
	notifyEvery = 5 * time.Millisecond
	// listenAgain is the rest after a connection was lost.
	listenAgain = time.Second
	tailPage    = 1000
	// announceAgain is how often announcements are looked after: Citus may have moved a shard to another node.
	announceAgain = 10 * time.Second
	// answerWithin is how long a server may take for one statement: longer than a session of NotifyPool lets it run.
	answerWithin = 7 * time.Second
	// awaitedLock is the class of the advisory locks, one a shard, by which processes announce that they wait.
	awaitedLock = 0x77616974
)

// NotifierConfig is what a Notifier is made of.
type NotifierConfig struct {
	Pool *pgxpool.Pool // from NotifyPool: one connection listens, one notifies
	Read Database      // for the tails
	// Nodes, as the ledger has them, take the announcements to the nodes on which groups are committed. The
	// notifications themselves go through Pool.
	Nodes *cluster.Nodes
	Log   *slog.Logger
	// Poll is between two looks for what was committed without a notification: by an operator's command, or while this
	// process did not listen. 0 means 1 s.
	Poll time.Duration
}

// Notifier wakes those who wait for events of a company, whichever process committed them. A process listens once, and
// tails each shard in which anyone waits once. A wake-up is a hint only: a waiter that is woken reads for itself. Safe
// for concurrent use.
//
// Where nobody waits, a commit costs nothing. Waiters of the own process are known to it. That there are some in any
// process is announced by a lock:
//
//	waiting     LISTEN ── pg_advisory_lock_shared(shard) ── read what is new ── wait
//	committing  BEGIN ── head's lock ── pg_try_advisory_xact_lock(shard) ── … ── COMMIT ── NOTIFY, if it was not got
//
// A group that gets the lock has it until it is committed. So an announcement either comes before, and the group
// notifies, or waits until the group can be read, and the reading that follows it finds the group. The lock belongs to
// the connection that listens: whatever ends one ends the other.
//
// The notification comes after the commit, never inside it (a NOTIFY in a transaction takes a lock of the whole
// database), and a process sends at most one a shard and 5 ms. A look every second covers one that was lost.
//
// On Citus the locks are on the nodes, on a connection of each, and notifications go through the coordinator. One that
// is away concerns its own shards alone: no other waits for it.
type Notifier struct {
	NotifierConfig
	mu      sync.Mutex
	tails   map[domain.Shard]*shardTail
	retail  context.CancelFunc    // interrupts the listener, because tails has changed
	dirty   map[domain.Shard]bool // committed here and not told yet: whether any process has announced that it waits
	told    chan struct{}         // holds one when dirty is not empty
	workers sync.WaitGroup
	stop    context.CancelFunc
	running context.Context //nolint:containedctx // the life of the workers, which outlives every call
}

// shardTail is one shard's part of a process's waiters.
type shardTail struct {
	shard   domain.Shard
	waiters map[domain.CompanyID]map[chan struct{}]bool
	kick    chan struct{} // holds one when there may be new events
}

// OpenNotifier starts listening; Close ends it.
func OpenNotifier(c NotifierConfig) (*Notifier, error) {
	if c.Pool == nil || c.Read == nil || c.Log == nil {
		return nil, errors.New("a notifier needs Pool, Read and Log")
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

// Close ends everything. Waiters are not woken any more.
func (w *Notifier) Close() {
	w.mu.Lock()
	w.stop() // so that no tail begins any more
	w.mu.Unlock()
	w.workers.Wait()
}

// Committed wakes those who wait for events of a shard, in every process. It never waits.
func (w *Notifier) Committed(c Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Awaited || w.tails[c.Shard] != nil {
		w.dirty[c.Shard] = w.dirty[c.Shard] || c.Awaited
		wake(w.told)
	}
}

// Wait announces that somebody waits for events of a company. The channel receives after every event that is committed
// from now on, and may receive without one. The caller reads the feed after this call, never before: what was committed
// earlier is not announced. leave must be called.
func (w *Notifier) Wait(shard domain.Shard, company domain.CompanyID) (woken <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tails[shard]
	if t == nil {
		t = &shardTail{shard: shard, waiters: map[domain.CompanyID]map[chan struct{}]bool{}, kick: make(chan struct{}, 1)}
		w.tails[shard] = t
		if w.running.Err() == nil {
			w.workers.Go(func() { w.tail(t) })
			w.retail()
		}
	}
	if t.waiters[company] == nil {
		t.waiters[company] = map[chan struct{}]bool{}
	}
	waiter := make(chan struct{}, 1)
	t.waiters[company][waiter] = true
	return waiter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(t.waiters[company], waiter); len(t.waiters[company]) == 0 {
			delete(t.waiters, company)
		}
	}
}

// Waiting is how many wait in this process now.
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

// wake puts one into a channel that holds at most one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notify tells what was committed here: at once after a rest, else when 5 ms have passed since the last time.
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
			w.Log.Warn("waiting readers could not be woken; they look every second", "error", cluster.Loggable(err))
			w.mu.Lock()
			for _, shard := range announced { // those of this process at least
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

// listen hears every process's notifications, and begins again whenever its connection is lost.
func (w *Notifier) listen() {
	for w.running.Err() == nil {
		if err := w.hear(); err != nil && w.running.Err() == nil {
			w.Log.Warn("waiting readers are woken every second only: listening failed", "error", cluster.Loggable(err))
		}
		_ = wait.For(w.running, listenAgain)
	}
}

// hear listens, and on one server also announces in which shards anybody waits, until its connection is lost.
func (w *Notifier) hear() error {
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	conn, err := w.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// Not given back: it listens to more than its next user would expect.
	listening := conn.Hijack()
	defer closeSoon(listening)
	if _, err := listening.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	w.kickAll() // what was committed until now was perhaps not heard
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

// untilChanged is the shards in which anybody waits, and a context that ends when they change, or when announcements
// are looked after again.
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

// announcer is a connection and the shards whose locks it has.
type announcer struct {
	conn *pgx.Conn
	made map[domain.Shard]bool
}

// announce makes the shards that are awaited those that are announced. What was committed there until now was perhaps
// not notified, and is read.
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
		if err != nil { // a group has it for long
			w.Log.Warn("waiting readers of a shard are woken every second only", "shard", shard, "error", cluster.Loggable(err))
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

// nodeAnnouncer announces on one server of Citus, in its own time.
type nodeAnnouncer struct {
	address string
	awaited chan []domain.Shard // holds the newest; none: nobody waits there any more
}

// announceOnNodes tells the node of each shard in which anybody waits.
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
			select { // nobody else sends
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

// place keeps the addresses of the nodes that hold the shards. One that is not known now is where it was.
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
				"waiting readers of a shard may be woken every second only", "shard", shard, "error", cluster.Loggable(err),
			)
		}
	}
}

// announceOn announces on a node until nobody waits there, and begins again whenever its connection is lost.
func (w *Notifier) announceOn(n *nodeAnnouncer) {
	var held *pgxpool.Conn
	leave := func() {
		if held != nil {
			closeSoon(held.Conn()) // and with it what was announced
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
					"waiting readers of shards on a node are woken every second only", "node", n.address, "error",
					cluster.Loggable(err),
				)
			}
		}
		select {
		case <-w.running.Done():
			return
		case awaited = <-n.awaited:
		case <-time.After(again): //nolint:forbidigo // the other end has a value
		}
	}
}

// connectTo connects to a node that holds a shard.
func (w *Notifier) connectTo(n *nodeAnnouncer, shard domain.Shard) (*pgxpool.Conn, error) {
	conn, piece, err := w.Nodes.Acquire(w.running, uint16(shard)) // which has a deadline of its own
	if err == nil && piece.Address() != n.address {
		conn.Release()
		conn, err = nil, fmt.Errorf("shard %d is on %s by now", shard, piece.Address())
	}
	return conn, err
}

// next hears one notification.
func (w *Notifier) next(ctx context.Context, listening *pgx.Conn) error {
	n, err := listening.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	shard, err := strconv.ParseUint(n.Payload, 10, 16)
	if err != nil {
		return fmt.Errorf("notification %q: %w", n.Payload, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kick(domain.Shard(shard))
	return nil
}

// kickAll makes every tail look.
func (w *Notifier) kickAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard := range w.tails {
		w.kick(shard)
	}
}

// kick makes the tail of a shard look, where there is one. The caller has the lock.
func (w *Notifier) kick(shard domain.Shard) {
	if t := w.tails[shard]; t != nil {
		wake(t.kick)
	}
}

// tail follows a shard while anybody waits in it. It begins at the head of the moment and then wakes everyone once,
// because a waiter's own first look may have been earlier than that head.
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
				"a shard could not be tailed; its waiting readers look for themselves", "shard", t.shard, "error",
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

// head is a tail that begins behind the last event.
func (w *Notifier) head(shard domain.Shard) (*history.Tail, error) {
	ctx, cancel := context.WithTimeout(w.running, answerWithin)
	defer cancel()
	var position int64
	if err := w.Read.QueryRow(
		ctx, cluster.SQL("SELECT position FROM {shard_heads} WHERE shard = $1"), shard,
	).Scan(&position); err != nil {
		return nil, fmt.Errorf("read the head of shard %d: %w", shard, err)
	}
	return history.NewTail(w.Read, shard, position), nil
}

// follow reads what is new and wakes whom it concerns.
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
			for waiter := range t.waiters[events[i].Company] {
				wake(waiter)
			}
		}
		w.mu.Unlock()
		if len(events) < tailPage {
			return nil
		}
	}
}

// awaited reports whether anybody waits in a shard. Where nobody does, the next one gets another tail.
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
