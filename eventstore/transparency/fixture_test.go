package transparency

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		child()
	}
	pgtest.Main(m)
}

const logName = "ledger.example/log"

func newSigner(t testing.TB) *Signer {
	t.Helper()
	private := evidence.GenerateSigner()
	s, err := NewSigner(logName, private)
	check(t, err)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process returns the Keeper of one process. It does nothing by itself.
func process(t testing.TB, l *ledgertest.Ledger, signer *Signer, change ...func(*Config)) *Keeper {
	t.Helper()
	pool, err := cluster.At(l.URL).ConsumerPool(context.Background(), 4)
	check(t, err)
	t.Cleanup(pool.Close)
	c := Config{Pool: pool, Signer: func() *Signer { return signer }, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	k, err := New(c)
	check(t, err)
	return k
}

// claimed is a transaction that has locked the tree's row.
type claimed struct {
	*sql.Tx
	close func() error
}

// claim locks the row like the consumer. It returns nil if another process has locked it or there are no new events.
func (k *Keeper) claim(ctx context.Context) (*claimed, error) {
	db := stdlib.OpenDBFromPool(k.Pool)
	begin, claim := k.growth.Begin(), k.growth.Claim(0)
	if _, err := db.ExecContext(ctx, begin.Query, begin.Args...); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if _, err = k.growth.Scan(tx.QueryRowContext(ctx, claim.Query, claim.Args...)); err == nil {
		return &claimed{tx, db.Close}, nil
	}
	_ = tx.Rollback()
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return nil, errors.Join(err, db.Close())
}

func (c *claimed) end(err error) error {
	if err == nil {
		err = c.Commit()
	} else {
		_ = c.Rollback()
	}
	return errors.Join(err, c.close())
}

// integrate grows the tree by a page and returns the number of leaves added.
func (k *Keeper) integrate(ctx context.Context) (int64, error) {
	tx, err := k.claim(ctx)
	if tx == nil || err != nil {
		return 0, err
	}
	before := k.growth.row.size
	progress, err := k.grow(ctx, tx)
	return progress.Position - before, tx.end(err)
}

// grow handles a page.
func (k *Keeper) grow(ctx context.Context, tx *claimed) (consumer.Progress, error) {
	page := new(consumer.Message)
	page.SetContext(ctx)
	if err := k.growth.Read(tx.Tx, page); err != nil {
		return consumer.Progress{Position: k.growth.row.size}, err
	}
	return k.growth.Handle(tx.Tx, page)
}

// turn does the work of Run after a wake-up.
func (k *Keeper) turn(ctx context.Context) error {
	for {
		n, err := k.integrate(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	if err := k.publish(ctx); err != nil {
		return err
	}
	k.ask(ctx)
	return nil
}

// turned calls turn, which must succeed.
func (k *Keeper) turned(t testing.TB) {
	t.Helper()
	check(t, k.turn(context.Background()))
}

// stores grows the tree by the test's own leaves.
func (k *Keeper) stores(ctx context.Context, positions []int64, leaves [][32]byte, runs []run) error {
	db := stdlib.OpenDBFromPool(k.Pool)
	begin := k.growth.Begin()
	if _, err := db.ExecContext(ctx, begin.Query, begin.Args...); err != nil {
		return errors.Join(err, db.Close())
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if _, err = k.growth.Scan(tx.QueryRowContext(ctx, claimTree, []int64{-1}, true)); err == nil {
		if err = k.growth.load(ctx); err == nil {
			err = k.growth.grow(ctx, tx, positions, leaves, runs)
		}
	}
	return (&claimed{tx, db.Close}).end(err)
}

func register(t testing.TB, l *ledgertest.Ledger, o ledgertest.Organization, from, n int) {
	t.Helper()
	var commands []domain.Command
	for i := from; i < from+n; i++ {
		commands = append(commands, l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", i), 1, fmt.Sprint(i))))
	}
	for _, answer := range l.Execute(context.Background(), commands...) {
		check(t, answer.Err)
	}
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	check(t, err)
}

// owner connects as the role that owns the tables.
func owner(t testing.TB, l *ledgertest.Ledger) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), l.URL)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// published opens the served checkpoint like an outside verifier.
func published(t testing.TB, l *ledgertest.Ledger, keys ...*Signer) (size int64, root []byte) {
	t.Helper()
	text, err := (&Reader{Pool: l.Pool}).Checkpoint(context.Background())
	check(t, err)
	var known []note.Verifier
	for _, key := range keys {
		v, err := note.NewVerifier(key.VerifierKey)
		check(t, err)
		known = append(known, v)
	}
	opened, err := note.Open([]byte(text), note.VerifierList(known...))
	check(t, err)
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != logName || lines[3] != "" {
		t.Fatalf("checkpoint %q", opened.Text)
	}
	if _, err := fmt.Sscan(lines[1], &size); err != nil {
		t.Fatal(err)
	}
	root, err = base64.StdEncoding.DecodeString(lines[2])
	check(t, err)
	return size, root
}

// complete fails unless all events of the ledger are published, each with a proof that the go command's log code
// accepts.
func complete(t testing.TB, l *ledgertest.Ledger, keys ...*Signer) {
	t.Helper()
	size, root := published(t, l, keys...)
	reader, all := &Reader{Pool: l.Pool}, int64(0)
	seen := map[int64]bool{}
	for shard := range domain.Shard(l.Installation.Shards) {
		for _, e := range l.Events(t, shard) {
			all++
			inclusion, err := reader.Inclusion(context.Background(), shard, e.Position, e.Leaf())
			check(t, err)
			if inclusion.Leaf != string(e.Leaf()) || inclusion.TreeSize != size {
				t.Fatalf("inclusion of %s: %+v", e.ID, inclusion)
			}
			check(t, tlog.CheckRecord(parseHashes(t, inclusion.Hashes), size, hashOf(root), inclusion.LeafIndex,
				tlog.RecordHash([]byte(inclusion.Leaf))))
			seen[inclusion.LeafIndex] = true
		}
	}
	if all != size || int64(len(seen)) != size {
		t.Fatalf("%d events, %d leaves of them, a tree of %d", all, len(seen), size)
	}
	d, err := Check(context.Background(), l.Pool, nil)
	if err != nil || d.Leaves != size || d.Published != size || d.Root != base64.StdEncoding.EncodeToString(root) {
		t.Fatalf("derived anew: %+v, %v", d, err)
	}
}

// consistent fails unless the published tree extends the tree of a size and root, according to the go command's log
// code.
func consistent(t testing.TB, l *ledgertest.Ledger, size int64, root []byte, later int64, laterRoot []byte) {
	t.Helper()
	proof, err := tlog.ProveTree(later, size, storedHashes(context.Background(), l.Pool))
	check(t, err)
	check(t, tlog.CheckTree(proof, later, hashOf(laterRoot), size, hashOf(root)))
}

func parseHashes(t testing.TB, texts []string) (hashes []tlog.Hash) {
	t.Helper()
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		check(t, err)
		hashes = append(hashes, hash)
	}
	return hashes
}
