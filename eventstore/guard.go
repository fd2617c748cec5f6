package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Guard detects that the database has lost events that this process has seen in it: a standby without the last commits
// was promoted, or an earlier state was restored. Continuing would assign the same positions and leaves to another
// history. While something is missing, the ledger therefore commits nothing and signs no checkpoint.
//
// A process remembers, for each shard, its own last event whose commit was acknowledged. Commits of other processes do
// not count: with a synchronous standby, a commit that was never acknowledged may be visible for a while and then be
// lost. Every group compares its locked head with that event's position and time. If its connection is new or leads to
// another server, the group also compares the event itself, because another process may have continued from an earlier
// one.
//
// Once the ledger's epoch is higher than the epoch that the process knows, the Guard accepts every loss: an operator
// has run integrity restore since, and so knows of it.
//
// A Guard is safe for concurrent use.
type Guard struct {
	log     *slog.Logger
	conns   atomic.Uint64 // connections seen so far; numbers them
	stopped atomic.Pointer[LostError]
	wake    chan struct{} // holds one when there may be a loss

	mu        sync.Mutex
	epoch     int64 // 0: not read yet
	marks     map[domain.Shard]mark
	suspected bool // a group suspects a loss; Look decides
	lost      map[Knowledge]string
}

// Knowledge is the source from which a loss is known.
type Knowledge string

// Sources of knowledge about a loss. A witness proves nothing, so its word stops only the signing of checkpoints.
const (
	ByCommits    Knowledge = "commits"
	BySignedHead Knowledge = "signed_head"
	ByWitness    Knowledge = "witness"
)

// mark is the last acknowledged event of this process in a shard.
type mark struct {
	position int64
	at       time.Time // zero: the event was found, and the head's time is not compared
	hash     [32]byte
	on       connected // the newest connection to its server that found it
}

// connected identifies a connection by number, and its server by start time. During a failover two servers may accept
// commits, and a pool may hold connections to both.
type connected struct {
	number uint64
	server time.Time
}

// proves reports whether an event found on c must also be visible on another connection.
func (c connected) proves(other connected) bool {
	return c.server.Equal(other.server) && other.number <= c.number
}

// LostError means that the database lacks events that this process has seen in it.
type LostError struct{ Reason string }

func (e *LostError) Error() string { return "the database has lost committed events: " + e.Reason }

// Refusal returns the error for clients.
func (e *LostError) Refusal() *domain.Error {
	return domain.Unavailable("Nothing can be committed: %s. The log of the service says what to do.", e.Error())
}

// Remedy tells an operator how to repair a loss.
const Remedy = "make a server that has everything the primary again; if none has, run integrity restore --external, " +
	"which raises the epoch, and then integrity log resume (operators' manual: Disasters, Commits are lost)"

// NewGuard returns a Guard that knows the ledger's epoch, or reads it from the database if it is 0.
func NewGuard(epoch int64, log *slog.Logger) *Guard {
	return &Guard{
		epoch: epoch, log: log, wake: make(chan struct{}, 1), marks: map[domain.Shard]mark{}, lost: map[Knowledge]string{},
	}
}

// Err returns a *LostError while nothing may be committed or signed.
func (g *Guard) Err() error {
	if lost := g.stopped.Load(); lost != nil {
		return lost
	}
	return nil
}

// Epoch returns the ledger's epoch that this process has accepted.
func (g *Guard) Epoch() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.epoch
}

// Lost reports for each source whether something is missing.
func (g *Guard) Lost() map[Knowledge]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := map[Knowledge]bool{}
	for _, by := range []Knowledge{ByCommits, BySignedHead, ByWitness} {
		is[by] = g.lost[by] != ""
	}
	return is
}

// Missing records a loss known from a source. The reason names the missing events.
func (g *Guard) Missing(by Knowledge, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost[by] == "" {
		stands := "nothing is committed or signed"
		if by == ByWitness {
			stands = "no checkpoint is signed"
		}
		g.log.Error("the database has lost committed events: "+stands, "missing", reason, "known_by", by, "remedy", Remedy)
	}
	g.lost[by] = reason
	g.judge()
}

// Found withdraws the loss that Missing recorded for a source.
func (g *Guard) Found(by Knowledge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost[by] != "" {
		delete(g.lost, by)
		g.log.Info("lost events are in the database again", "known_by", by)
	}
	g.judge()
}

// judge updates stopped. The caller must hold the lock.
func (g *Guard) judge() {
	var reasons []string
	for _, by := range []Knowledge{ByCommits, BySignedHead} {
		if reason := g.lost[by]; reason != "" {
			reasons = append(reasons, reason)
		}
	}
	switch {
	case reasons != nil:
		g.stopped.Store(&LostError{strings.Join(reasons, "; ")})
	case g.suspected:
		g.stopped.Store(&LostError{"a shard is behind the last commit of this process; the cause is being checked"})
	default:
		g.stopped.Store(nil)
	}
}

// comparison is the event that a group compares its shard with.
type comparison struct {
	mark  mark
	on    *connected
	asked bool
	hash  []byte // nil: there is no event
}

// guardKey is the key of the *connected in a connection's CustomData.
const guardKey = "guard"

const readServer = "SELECT pg_postmaster_start_time()"

// readEventHash finds the first event after a position. Do not compare the position with =: without statistics,
// PostgreSQL would then use the index of sequences.
var readEventHash = cluster.SQL(
	"SELECT hash FROM {events} WHERE shard = $1 AND position > $2 ORDER BY position LIMIT 1",
)

// begin queues a query for the mark's event in the first round trip of a group, unless this connection or a newer one
// to the same server has found it.
func (g *Guard) begin(b *pgx.Batch, conn *pgx.Conn, shard domain.Shard) *comparison {
	custom := conn.PgConn().CustomData()
	on, known := custom[guardKey].(*connected)
	if !known {
		on = &connected{number: g.conns.Add(1)}
		b.Queue(readServer).QueryRow(func(row pgx.Row) error {
			custom[guardKey] = on
			return row.Scan(&on.server)
		})
	}
	g.mu.Lock()
	c := &comparison{mark: g.marks[shard], on: on}
	g.mu.Unlock()
	if c.asked = c.mark.position > 0 && !c.mark.on.proves(*on); c.asked {
		b.Queue(readEventHash, shard, c.mark.position-1).Query(func(rows pgx.Rows) error {
			hashes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			if len(hashes) > 0 {
				c.hash = hashes[0]
			}
			return err
		})
	}
	return c
}

// compare compares the locked head of a group with the mark. The error is a *LostError.
func (g *Guard) compare(of *group) error {
	c, m := of.guarded, of.guarded.mark
	if of.position < m.position ||
		m.position > 0 && of.position == m.position && !of.last.Equal(m.at) && !m.at.IsZero() ||
		c.asked && !bytes.Equal(c.hash, m.hash[:]) {
		g.mu.Lock()
		g.suspected = true
		g.judge()
		g.mu.Unlock()
		wake(g.wake)
	} else if c.asked {
		g.mu.Lock()
		if now, ok := g.marks[of.shard]; ok && now.hash == m.hash {
			now.on = *c.on
			g.marks[of.shard] = now
		}
		g.mu.Unlock()
	}
	return g.Err()
}

// acknowledged remembers the last event of a group once the server has confirmed its commit.
func (g *Guard) acknowledged(of *group) {
	if len(of.events) == 0 {
		return
	}
	last := &of.events[len(of.events)-1]
	g.mu.Lock()
	defer g.mu.Unlock()
	on := g.marks[of.shard].on
	if !on.proves(*of.guarded.on) {
		on = *of.guarded.on
	}
	g.marks[of.shard] = mark{last.Position, of.now, last.Hash, on}
}

// lookEvery is how often Run calls Look, and so the longest time until a raised epoch is accepted.
const lookEvery = 2 * time.Second

// Run calls Look regularly until ctx ends.
func (g *Guard) Run(ctx context.Context, db Database, shards int) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	failed := false
	for {
		looking, cancel := context.WithTimeout(ctx, readyTimeout)
		err := g.Look(looking, db, shards)
		cancel()
		if err != nil && ctx.Err() == nil && !failed {
			g.log.Warn("the database could not be checked for lost commits; trying again", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-g.wake:
		}
	}
}

// Head is the position of a shard's last event.
type Head struct {
	Shard    domain.Shard
	Position int64
}

// HeadsQuery reads the heads of all shards that have events. Its condition on shard lets it use the index.
var HeadsQuery = cluster.SQL("SELECT shard, position FROM {shard_heads} WHERE shard >= 0 AND position > 0")

// ReadHeads reads the heads of all shards that have events. If it returns an error, some may be missing.
func ReadHeads(ctx context.Context, db Database, shards int) ([]Head, error) {
	return Everywhere(ctx, db, shards, func(row pgx.CollectableRow) (h Head, err error) {
		var shard int32
		err = row.Scan(&shard, &h.Position)
		h.Shard = domain.Shard(shard)
		return h, err
	}, HeadsQuery)
}

// Look compares the database with all marks and accepts a raised epoch.
func (g *Guard) Look(ctx context.Context, db Database, shards int) error {
	g.mu.Lock()
	marks, known, doubt := maps.Clone(g.marks), g.epoch, g.suspected || g.lost[ByCommits] != ""
	g.mu.Unlock()
	var epoch int64
	if err := db.QueryRow(ctx, "SELECT epoch FROM ledger WHERE id = 1").Scan(&epoch); err != nil {
		return say.Errorf("read the ledger's epoch: %w", err)
	}
	switch {
	case known == 0 || epoch > known:
		g.accept(epoch)
		return nil
	case epoch < known:
		g.Missing(ByCommits, fmt.Sprintf("the ledger's epoch was %d, and is %d", known, epoch))
		return nil
	case len(marks) == 0:
		g.found()
		return nil
	}
	heads, err := ReadHeads(ctx, db, shards)
	if err != nil && !doubt {
		return err
	}
	at := map[domain.Shard]int64{}
	for _, head := range heads {
		at[head.Shard] = head.Position
	}
	for shard, m := range marks {
		doubt = doubt || at[shard] < m.position
	}
	if !doubt {
		return nil
	}
	return g.lookAtEvents(ctx, db, marks)
}

// lookAtEvents compares the events themselves.
func (g *Guard) lookAtEvents(ctx context.Context, db Database, marks map[domain.Shard]mark) error {
	var missing []string
	for _, shard := range slices.Sorted(maps.Keys(marks)) {
		var hash []byte
		err := db.QueryRow(ctx, readEventHash, shard, marks[shard].position-1).Scan(&hash)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return say.Errorf("look for the last event of shard %d: %w", shard, err)
		}
		if m := marks[shard]; !bytes.Equal(hash, m.hash[:]) {
			missing = append(
				missing, fmt.Sprintf("shard %d lacks the event that was committed at position %d", shard, m.position),
			)
		}
	}
	if missing != nil {
		g.Missing(ByCommits, strings.Join(missing, ", "))
		return nil
	}
	g.mu.Lock()
	for shard, m := range marks {
		if now := g.marks[shard]; now.hash == m.hash {
			now.at = time.Time{}
			g.marks[shard] = now
		}
	}
	g.mu.Unlock()
	g.found()
	return nil
}

func (g *Guard) found() {
	g.mu.Lock()
	g.suspected = false
	g.mu.Unlock()
	g.Found(ByCommits)
}

// accept forgets all marks and losses: by raising the epoch, the operator has accepted the database as it is.
func (g *Guard) accept(epoch int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.epoch != 0 {
		g.log.Warn("the ledger's epoch was raised: losses are accepted", "epoch", epoch, "before", g.epoch)
	}
	g.epoch, g.suspected = epoch, false
	clear(g.marks)
	clear(g.lost)
	g.judge()
}
