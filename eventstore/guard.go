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
	"integrityledger/eventstore/cluster"
)

// Guard notices a database that has less than this process has seen in it: a standby without the last commits was
// promoted, or an earlier state was put back. Going on there would give the same positions and leaves to another
// history. So while something is missing the ledger commits nothing and no checkpoint is signed.
//
// A process remembers, for each shard, the last event of its own whose commit was acknowledged. Commits of others do
// not count: with a synchronous standby, one that was never acknowledged may be visible for a while and then be lost.
// Every group compares its locked head with that, and where its connection is new or leads to another server, the event
// itself, because another process may have gone on from an earlier one.
//
// Everything is accepted once the ledger's epoch is higher than the process knows it: somebody has run integrity
// restore since, which says that the operator knows of the loss.
//
// A Guard is safe for concurrent use.
type Guard struct {
	log     *slog.Logger
	conns   atomic.Uint64 // that were seen; each has its number
	stopped atomic.Pointer[LostError]
	wake    chan struct{} // holds one when there may be a loss

	mu        sync.Mutex
	epoch     int64 // 0: not read yet
	marks     map[domain.Shard]mark
	suspected bool // by a group; Look finds out
	lost      map[Knowledge]string
}

// Knowledge is where something is known from that the database lacks.
type Knowledge string

// What a loss is known by. A witness gives only its word, so it stops the signing of checkpoints and nothing else.
const (
	ByCommits    Knowledge = "commits"
	BySignedHead Knowledge = "signed_head"
	ByWitness    Knowledge = "witness"
)

// mark is the last acknowledged event of this process in a shard.
type mark struct {
	position int64
	at       time.Time // zero: the event was found, whatever the head says of its time
	hash     [32]byte
	on       connected // the newest connection to its server on which it was found
}

// connected is a connection, by its number, and the server that it leads to, by its start. During a failover two
// servers may take commits, and a pool may hold connections to both.
type connected struct {
	number uint64
	server time.Time
}

// proves reports whether what was found on c is there on another connection as well.
func (c connected) proves(other connected) bool {
	return c.server.Equal(other.server) && other.number <= c.number
}

// LostError says that the database lacks what this process has seen in it.
type LostError struct{ Reason string }

func (e *LostError) Error() string { return "the database has lost what was committed: " + e.Reason }

// Refusal is the answer to a client.
func (e *LostError) Refusal() *domain.Error {
	return domain.Unavailable("Nothing can be committed: %s. The log of the service says what to do.", e.Error())
}

// Remedy says what an operator does about a loss.
const Remedy = "make a server that has everything the primary again; if none has, run integrity restore --external, " +
	"which raises the epoch, and then integrity log resume (OPERATING.md, Lost commits)"

// NewGuard begins at an epoch; 0: the database's.
func NewGuard(epoch int64, log *slog.Logger) *Guard {
	return &Guard{
		epoch: epoch, log: log, wake: make(chan struct{}, 1), marks: map[domain.Shard]mark{}, lost: map[Knowledge]string{},
	}
}

// Err is nil unless everything must stand still.
func (g *Guard) Err() error {
	if lost := g.stopped.Load(); lost != nil {
		return lost
	}
	return nil
}

// Epoch is the ledger's, as this process has accepted it.
func (g *Guard) Epoch() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.epoch
}

// Lost says, for every kind of knowledge, whether something is missing by it.
func (g *Guard) Lost() map[Knowledge]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := map[Knowledge]bool{}
	for _, by := range []Knowledge{ByCommits, BySignedHead, ByWitness} {
		is[by] = g.lost[by] != ""
	}
	return is
}

// Missing notes what the database lacks.
func (g *Guard) Missing(by Knowledge, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost[by] == "" {
		stands := "nothing is committed or signed"
		if by == ByWitness {
			stands = "no checkpoint is signed"
		}
		g.log.Error("the database has lost what was committed: "+stands, "missing", reason, "known_by", by, "remedy", Remedy)
	}
	g.lost[by] = reason
	g.judge()
}

// Found takes a Missing back.
func (g *Guard) Found(by Knowledge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost[by] != "" {
		delete(g.lost, by)
		g.log.Info("the database has again what it lacked", "known_by", by)
	}
	g.judge()
}

// judge is called with the lock.
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
		g.stopped.Store(&LostError{"a shard is behind the last commit of this process, which is being looked into"})
	default:
		g.stopped.Store(nil)
	}
}

// comparison is what a group compares its shard with.
type comparison struct {
	mark  mark
	on    *connected
	asked bool
	hash  []byte // nil: there is no event
}

// guardKey is where a connection's CustomData holds its *connected.
const guardKey = "guard"

const readServer = "SELECT pg_postmaster_start_time()"

// readEventHash finds the first event after a position; an equality on the position takes the index of sequences where
// the tables have no statistics.
var readEventHash = cluster.SQL(
	"SELECT hash FROM {events} WHERE shard = $1 AND position > $2 ORDER BY position LIMIT 1",
)

// begin asks for the event of the mark, in a group's first round trip, where the connection is new to the shard.
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

// compare judges the locked head of a group. The error is a *LostError.
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

// acknowledged remembers the last event of a group whose commit the server has confirmed.
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

// lookEvery is how often a process that commits nothing compares, and how soon a raised epoch is accepted.
const lookEvery = 2 * time.Second

// Run looks until ctx ends.
func (g *Guard) Run(ctx context.Context, db Database, shards int) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	failed := false
	for {
		looking, cancel := context.WithTimeout(ctx, readyTimeout)
		err := g.Look(looking, db, shards)
		cancel()
		if err != nil && ctx.Err() == nil && !failed {
			g.log.Warn("the database cannot be compared with what was committed; it is asked again", "error", err)
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

// HeadsQuery asks about all shards that have events. It names them, so that there is a key to look up.
var HeadsQuery = cluster.SQL("SELECT shard, position FROM {shard_heads} WHERE shard >= 0 AND position > 0")

// ReadHeads reads the heads of all shards that have events. With an error some may be missing.
func ReadHeads(ctx context.Context, db Database, shards int) ([]Head, error) {
	return Everywhere(ctx, db, shards, func(row pgx.CollectableRow) (h Head, err error) {
		var shard int32
		err = row.Scan(&shard, &h.Position)
		h.Shard = domain.Shard(shard)
		return h, err
	}, HeadsQuery)
}

// Look compares the database with all that is remembered, and accepts a raised epoch.
func (g *Guard) Look(ctx context.Context, db Database, shards int) error {
	g.mu.Lock()
	marks, known, doubt := maps.Clone(g.marks), g.epoch, g.suspected || g.lost[ByCommits] != ""
	g.mu.Unlock()
	var epoch int64
	if err := db.QueryRow(ctx, "SELECT epoch FROM ledger WHERE id = 1").Scan(&epoch); err != nil {
		return fmt.Errorf("read the ledger's epoch: %w", err)
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

// lookAtEvents looks for the events themselves.
func (g *Guard) lookAtEvents(ctx context.Context, db Database, marks map[domain.Shard]mark) error {
	var missing []string
	for _, shard := range slices.Sorted(maps.Keys(marks)) {
		var hash []byte
		err := db.QueryRow(ctx, readEventHash, shard, marks[shard].position-1).Scan(&hash)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for the last event of shard %d: %w", shard, err)
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

// accept forgets everything: the operator has said by the epoch that the database is as it must be.
func (g *Guard) accept(epoch int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.epoch != 0 {
		g.log.Warn("the ledger's epoch was raised: what the database lacks is accepted", "epoch", epoch, "before", g.epoch)
	}
	g.epoch, g.suspected = epoch, false
	clear(g.marks)
	clear(g.lost)
	g.judge()
}
