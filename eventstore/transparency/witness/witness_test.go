package witness

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections/ledgertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		child()
	}
	pgtest.Main(m)
}

// tester is a test, including one of package rapid.
type tester interface {
	Helper()
	Fatal(...any)
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const origin = "log.example/log"

// fakeLog is a log whose leaves are texts.
type fakeLog struct {
	key    string // verifier key
	signer note.Signer
	leaves []string
	hashes []tlog.Hash // as tlog stores them
}

func (h *fakeLog) reader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, h.hashes[i])
		}
		return list, nil
	})
}

// grow appends leaves. fork distinguishes the leaves of different histories.
func (h *fakeLog) grow(t tester, n int, fork string) *fakeLog {
	t.Helper()
	for range n {
		leaf := fmt.Sprintf("%s %d", fork, len(h.leaves))
		stored, err := tlog.StoredHashes(int64(len(h.leaves)), []byte(leaf), h.reader())
		check(t, err)
		h.leaves, h.hashes = append(h.leaves, leaf), append(h.hashes, stored...)
	}
	return h
}

// branch returns another history that begins with the same leaves, under the same key.
func (h *fakeLog) branch(t tester, leaves int) *fakeLog {
	t.Helper()
	b := &fakeLog{signer: h.signer}
	for _, leaf := range h.leaves[:leaves] {
		fork, _, _ := strings.Cut(leaf, " ")
		b.grow(t, 1, fork)
	}
	return b
}

func (h *fakeLog) root(t tester) tlog.Hash {
	t.Helper()
	if len(h.leaves) == 0 {
		return emptyRoot
	}
	root, err := tlog.TreeHash(int64(len(h.leaves)), h.reader())
	check(t, err)
	return root
}

func (h *fakeLog) checkpoint(t tester) string {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", origin, len(h.leaves), h.root(t))}, h.signer)
	check(t, err)
	return string(signed)
}

// body returns a submission of the checkpoint with the proof from an old size.
func (h *fakeLog) body(t tester, old int) string {
	t.Helper()
	text := fmt.Sprintf("old %d\n", old)
	if old > 0 && old < len(h.leaves) {
		hashes, err := tlog.ProveTree(int64(len(h.leaves)), int64(old), h.reader())
		check(t, err)
		for _, hash := range hashes {
			text += hash.String() + "\n"
		}
	}
	return text + "\n" + h.checkpoint(t)
}

func newFakeLog(t testing.TB) (*fakeLog, Logs) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, origin)
	check(t, err)
	signer, err := note.NewSigner(private)
	check(t, err)
	logs, err := ParseLogs(public)
	check(t, err)
	return &fakeLog{key: public, signer: signer}, logs
}

func newWitness(t testing.TB, url string, signer *Signer) *Witness {
	t.Helper()
	pool, err := cluster.At(url).WitnessPool(context.Background(), 4)
	check(t, err)
	t.Cleanup(pool.Close)
	return &Witness{Pool: pool, Signer: signer, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func newSigner(t testing.TB) *Signer {
	t.Helper()
	s, err := NewSigner("witness.example/w", evidence.GenerateSigner())
	check(t, err)
	return s
}

// submit opens and cosigns a submission. The line must verify under the verifier that logs use.
func submit(t testing.TB, w *Witness, logs Logs, body string) error {
	t.Helper()
	s, err := logs.Open([]byte(body))
	if err != nil {
		return err
	}
	line, err := w.Cosign(context.Background(), s)
	if err != nil {
		if line != "" {
			t.Errorf("a refusal comes with a cosignature: %v, %s", err, line)
		}
		return err
	}
	verifier, verifierErr := transparency.NewWitness(w.Signer.VerifierKey, "http://127.0.0.1:1")
	check(t, verifierErr)
	_, signed, _ := strings.Cut(body, "\n\n")
	text, _, _ := strings.Cut(signed, "\n\n")
	opened, noteErr := note.Open([]byte(text+"\n\n"+line), note.VerifierList(verifier))
	if noteErr != nil || len(opened.Sigs) != 1 || len(opened.UnverifiedSigs) != 0 {
		t.Errorf("the cosignature does not hold: %v", noteErr)
	}
	return nil
}

func wantStale(t testing.TB, err error, size int64) {
	t.Helper()
	if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Size != size {
		t.Errorf("%v, want a stale size and %d", err, size)
	}
}

func remembered(t testing.TB, pool *pgxpool.Pool) Cosigned {
	t.Helper()
	list, err := ReadCosigned(context.Background(), pool)
	check(t, err)
	if len(list) != 1 {
		t.Fatalf("%d logs are remembered", len(list))
	}
	return list[0]
}

// TestCosign: a log is followed from its beginning. A submission that does not continue it is refused and changes
// nothing.
func TestCosign(t *testing.T) {
	l := ledgertest.New(t)
	w := newWitness(t, l.URL, newSigner(t))
	h, logs := newFakeLog(t)
	check(t, submit(t, w, logs, h.body(t, 0))) // an empty log
	h.grow(t, 5, "a")
	at5 := h.branch(t, 5)
	wantStale(t, submit(t, w, logs, h.body(t, 3)), 0)
	check(t, submit(t, w, logs, h.body(t, 0)))
	check(t, submit(t, w, logs, h.body(t, 5))) // again
	h.grow(t, 8, "a")
	wantStale(t, submit(t, w, logs, h.body(t, 0)), 5)
	wantStale(t, submit(t, w, logs, h.body(t, 4)), 5)
	if err := submit(
		t, w, logs, strings.Replace(h.body(t, 5), "\n\n", "\n"+tlog.Hash{}.String()+"\n\n", 1),
	); !errors.Is(err, ErrProof) {
		t.Errorf("a longer proof: %v", err)
	}
	if err := submit(t, w, logs, "old 5\n\n"+h.checkpoint(t)); !errors.Is(err, ErrProof) || SplitView(err) {
		t.Errorf("no proof: %v", err)
	}
	check(t, submit(t, w, logs, h.body(t, 5)))
	wantStale(t, submit(t, w, logs, at5.body(t, 5)), 13)
	if err := submit(t, w, logs, at5.body(t, 13)); !errors.Is(err, ErrOldSize) {
		t.Errorf("a smaller tree: %v", err)
	}
	if err := submit(
		t, w, logs, strings.Replace(h.body(t, 13), "\n\n", "\n"+tlog.Hash{}.String()+"\n\n", 1),
	); !errors.Is(err, ErrProof) {
		t.Errorf("a proof between trees of one size: %v", err)
	}
	if got := remembered(t, l.Pool); got.Size != 13 || got.Note != h.checkpoint(t) || got.At == nil || got.Halted {
		t.Errorf("%+v", got)
	}
	if found, err := ReadContradictions(context.Background(), l.Pool); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// TestSplitView: two histories under one key are detected, and both checkpoints are stored with the proof.
func TestSplitView(t *testing.T) {
	l := ledgertest.New(t)
	w := newWitness(t, l.URL, newSigner(t))
	var told bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&told, nil))
	h, logs := newFakeLog(t)
	h.grow(t, 6, "a")
	check(t, submit(t, w, logs, h.body(t, 0)))
	other := h.branch(t, 3).grow(t, 3, "b")
	if err := submit(t, w, logs, other.body(t, 6)); !errors.Is(err, ErrOtherRoot) || !SplitView(err) {
		t.Errorf("another root of one size: %v", err)
	}
	other.grow(t, 5, "b")
	for range 2 { // stored only once
		if err := submit(t, w, logs, other.body(t, 6)); !errors.Is(err, ErrProof) || !SplitView(err) {
			t.Errorf("another history: %v", err)
		}
	}
	if got := remembered(t, l.Pool); got.Size != 6 || got.Note != h.checkpoint(t) {
		t.Errorf("%+v", got)
	}
	found, err := ReadContradictions(context.Background(), l.Pool)
	if err != nil || len(found) != 2 || found[0].Cosigned != h.checkpoint(t) || len(found[0].Proof) != 0 ||
		found[1].Refused != other.checkpoint(t) || len(found[1].Proof) == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if text := told.String(); strings.Count(text, "SPLIT VIEW") != 3 ||
		!strings.Contains(text, strconv.Quote(other.checkpoint(t))) {
		t.Error(text)
	}
	// The proof convinces others: it leads from another root than the cosigned one to the refused checkpoint.
	var proof tlog.TreeProof
	for _, line := range found[1].Proof {
		hash, err := tlog.ParseHash(line)
		check(t, err)
		proof = append(proof, hash)
	}
	check(t, tlog.CheckTree(proof, 11, other.root(t), 6, other.branch(t, 6).root(t)))
	h.grow(t, 1, "a")
	check(t, submit(t, w, logs, h.body(t, 6))) // the first history goes on
}

// TestRewritten: whatever two histories have in common, a submission is accepted if one continues the other, and an
// honest log is never accused. A log with two histories is accused if the submission has its own proof from a size that
// is not a power of two.
func TestRewritten(t *testing.T) {
	h, logs := newFakeLog(t)
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.IntRange(1, 40).Draw(t, "old")
		shared := rapid.IntRange(0, old).Draw(t, "shared")
		size := rapid.IntRange(old, 60).Draw(t, "size")
		known := (&fakeLog{signer: h.signer}).grow(t, old, "a")
		other := known.branch(t, shared).grow(t, old-shared, "b").grow(t, size-old, "c")
		body := other.body(t, old)
		garbled := rapid.Bool().Draw(t, "garbled") && size > old
		s, err := logs.Open([]byte(body))
		check(t, err)
		if garbled && len(s.proof) > 0 {
			s.proof[rapid.IntRange(0, len(s.proof)-1).Draw(t, "at")][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		}
		continues := shared == old && !garbled
		if taken := s.judge(known.root(t)) == nil; taken != continues {
			t.Fatalf("taken: %v, want %v", taken, continues)
		}
		switch accused := s.rewritten(known.root(t)); {
		case accused && (shared == old || garbled):
			t.Fatal("a log that did nothing wrong is accused")
		case !accused && shared < old && !garbled && (size == old || old&(old-1) != 0):
			t.Fatal("a rewritten history is not found out")
		}
	})
}

// TestManyProcesses: processes on one database that concurrently receive two histories in any order cosign only one of
// them, and never a smaller tree after a larger one.
func TestManyProcesses(t *testing.T) {
	l := ledgertest.New(t)
	signer := newSigner(t)
	processes := []*Witness{newWitness(t, l.URL, signer), newWitness(t, l.URL, signer)}
	h, logs := newFakeLog(t)
	forks := []*fakeLog{h, h.branch(t, 0)}
	var bodies [2][]string // by fork
	for f, name := range []string{"a", "b"} {
		for size := 1; size <= 12; size++ {
			forks[f].grow(t, 1, name)
			for old := range size + 1 {
				bodies[f] = append(bodies[f], forks[f].body(t, old))
			}
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	cosigned := [2]int{}
	for i, w := range processes {
		for f := range forks {
			for part := range 3 {
				all.Go(func() {
					for n := range bodies[f] {
						err := submit(t, w, logs, bodies[f][(n*7+part*29+i*53)%len(bodies[f])])
						_, stale := errors.AsType[*StaleError](err)
						switch {
						case err == nil:
							mu.Lock()
							cosigned[f]++
							mu.Unlock()
						case !stale && !errors.Is(err, ErrProof) && !errors.Is(err, ErrOtherRoot):
							t.Error(err)
						}
					}
				})
			}
		}
	}
	all.Wait()
	if (cosigned[0] == 0) == (cosigned[1] == 0) {
		t.Errorf("%v of both histories were cosigned", cosigned)
	}
}

// TestOneAtATime: while one process checks a checkpoint, another waits, and then sees the one that the first has
// stored.
func TestOneAtATime(t *testing.T) {
	l := ledgertest.New(t)
	signer := newSigner(t)
	a, b := newWitness(t, l.URL, signer), newWitness(t, l.URL, signer)
	h, logs := newFakeLog(t)
	h.grow(t, 3, "a")
	check(t, submit(t, a, logs, h.body(t, 0)))
	other := h.branch(t, 3).grow(t, 3, "b")
	h.grow(t, 2, "a")
	judging, release := make(chan struct{}), make(chan struct{})
	a.Now = func() time.Time { // called under the lock
		close(judging)
		<-release
		return time.Now()
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- submit(t, a, logs, h.body(t, 3)) }()
	<-judging
	go func() { second <- submit(t, b, logs, other.body(t, 3)) }()
	integritytest.Eventually(t, "the second waits", func() error {
		waiting, err := pgtest.Ask[int](
			l.URL, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
		)
		if err == nil && waiting == 0 && len(second) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	wantStale(t, <-second, 5)
}

// TestRestored: a witness on a restored database cosigns nothing until its operator resumes it.
func TestRestored(t *testing.T) {
	l := ledgertest.New(t)
	w := newWitness(t, l.URL, newSigner(t))
	h, logs := newFakeLog(t)
	h.grow(t, 2, "a")
	check(t, submit(t, w, logs, h.body(t, 0)))
	owner, err := pgxpool.New(context.Background(), l.URL)
	check(t, err)
	t.Cleanup(owner.Close)
	_, err = owner.Exec(context.Background(), "UPDATE ledger SET epoch = epoch + 1")
	check(t, err)
	for _, old := range []int{0, 2} {
		if err := submit(t, w, logs, h.body(t, old)); !errors.Is(err, ErrRestored) {
			t.Errorf("old %d: %v", old, err)
		}
	}
	if !remembered(t, l.Pool).Halted {
		t.Error("the log is not shown as halted")
	}
	if n, err := Resume(context.Background(), l.Pool); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	check(t, submit(t, w, logs, h.body(t, 2)))
}

// TestRestoredWithoutTheRow: a log that the restored database does not know may have been cosigned after the backup.
func TestRestoredWithoutTheRow(t *testing.T) {
	l := ledgertest.New(t)
	w := newWitness(t, l.URL, newSigner(t))
	h, logs := newFakeLog(t)
	h.grow(t, 2, "a")
	owner, err := pgxpool.New(context.Background(), l.URL)
	check(t, err)
	t.Cleanup(owner.Close)
	for range 2 { // a later restore, to a point after the first --resume, halts it again
		_, err = owner.Exec(context.Background(), "UPDATE ledger SET epoch = epoch + 1")
		check(t, err)
		_, err = owner.Exec(context.Background(), "DELETE FROM witness_logs WHERE origin <> ''")
		check(t, err)
		if err := submit(t, w, logs, h.body(t, 0)); !errors.Is(err, ErrRestored) {
			t.Errorf("%v", err)
		}
		if _, err := Resume(context.Background(), l.Pool); err != nil {
			t.Error(err)
		}
		check(t, submit(t, w, logs, h.body(t, 0)))
		if c := remembered(t, l.Pool); c.Halted {
			t.Error("the log is shown as halted")
		}
	}
}

// TestUnknownCommit: unless the server confirms that the commit is safe, nothing is cosigned. The same submission, or
// one from the stored size, is cosigned later.
func TestUnknownCommit(t *testing.T) {
	l := ledgertest.New(t)
	w := newWitness(t, l.URL, newSigner(t))
	h, logs := newFakeLog(t)
	h.grow(t, 3, "a")
	// A server that did not wait for its synchronous standby sends a warning at the commit.
	owner, err := pgxpool.New(context.Background(), l.URL)
	check(t, err)
	t.Cleanup(owner.Close)
	_, err = owner.Exec(context.Background(), `
		CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'not waited for'; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER warned AFTER UPDATE ON witness_logs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()`)
	check(t, err)
	if err := submit(t, w, logs, h.body(t, 0)); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("%v", err)
	}
	_, err = owner.Exec(context.Background(), "DROP TRIGGER warned ON witness_logs")
	check(t, err)
	wantStale(t, submit(t, w, logs, h.body(t, 0)), 3)
	check(t, submit(t, w, logs, h.body(t, 3)))
}

// TestFlushed: no cosignature is returned before its commit has waited for the disk, whatever the database settings
// are.
func TestFlushed(t *testing.T) {
	l := ledgertest.New(t)
	owner, err := pgxpool.New(context.Background(), l.URL)
	check(t, err)
	t.Cleanup(owner.Close)
	_, err = owner.Exec(context.Background(), `
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$;
		CREATE TABLE seen (setting text); GRANT INSERT ON seen TO integrity_service;
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER seeing AFTER INSERT OR UPDATE ON witness_logs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	check(t, err)
	w := newWitness(t, l.URL, newSigner(t))
	h, logs := newFakeLog(t)
	h.grow(t, 1, "a")
	check(t, submit(t, w, logs, h.body(t, 0)))
	check(t, submit(t, w, logs, h.body(t, 1)))
	var off, on int
	check(
		t,
		owner.QueryRow(
			context.Background(),
			"SELECT count(*) FILTER (WHERE setting = 'off'), count(*) FILTER (WHERE setting = 'on') FROM seen",
		).Scan(&off, &on),
	)
	if off != 0 || on < 2 {
		t.Errorf("%d commits do not wait for the disk, %d do", off, on)
	}
}

func TestParseLogs(t *testing.T) {
	_, key, err := note.GenerateKey(rand.Reader, "a.example/log")
	check(t, err)
	_, second, err := note.GenerateKey(rand.Reader, "a.example/log")
	check(t, err)
	logs, err := ParseLogs("# logs, one a line\n" + key + "\n" + second + "\n\n" + key + " go.sum database tree\n")
	if err != nil || len(logs) != 2 || len(logs["a.example/log"]) != 2 || len(logs["go.sum database tree"]) != 1 {
		t.Errorf("%v, %v", logs, err)
	}
	for _, wrong := range []string{"x", key + "," + key, strings.Replace(key, "a.", "b.", 1), newSigner(t).VerifierKey} {
		if _, err := ParseLogs(wrong); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}

// TestOpen: each malformed body is refused with its reason, without a database query.
func TestOpen(t *testing.T) {
	h, logs := newFakeLog(t)
	h.grow(t, 5, "a")
	good := h.body(t, 3)
	root := h.root(t).String()
	signed := func(text string) string {
		out, err := note.Sign(&note.Note{Text: text}, h.signer)
		check(t, err)
		return "old 0\n\n" + string(out)
	}
	stranger, _ := newFakeLog(t)
	stranger.grow(t, 5, "a")
	extended, err := logs.Open([]byte(signed(origin + "\n5\n" + root + "\nextension\n")))
	check(t, err)
	if !strings.HasSuffix(extended.text, "\nextension\n") {
		t.Errorf("extension lines are not cosigned: %q", extended.text)
	}
	for want, bodies := range map[error][]string{
		nil: {good, good + "— witness.example/x AAAAAAAAAAAAAAAAAAAA\n"},
		ErrMalformed: {
			"", "old", "old 0", "old 0\n", "\n\n", "new 0\n\n" + h.checkpoint(t), strings.Replace(good, "old 3", "old 03", 1),
			strings.Replace(good, "old 3", "old -3", 1),
			strings.Replace(good, "old 3", "old  3", 1), strings.Replace(good, "old 3", "old 9223372036854775808", 1),
			strings.Replace(good, "old 3\n", "old 3\nAAAA\n", 1),
			strings.Replace(good, "old 3\n", "old 3\n"+strings.Repeat(root+"\n", 64), 1),
			strings.Replace(good, "old 3\n", "old 3\n"+strings.TrimSuffix(root, "=")+"\n", 1), strings.TrimSuffix(good, "\n"),
			strings.TrimSuffix(good, "=\n") + "\n",
			signed(origin + "\n5\n"), signed(origin + "\n05\n" + root + "\n"), signed(origin + "\n-5\n" + root + "\n"),
			signed(origin + "\n5\nAAAA\n"), signed(origin + "\n5\n" + root + "\n\nx\n"),
		},
		ErrUnknownLog: {"old 0\n\nother.example/log\n5\n" + root + "\n\n— x AAAA\n", "old 0\n\n\n5\n"},
		ErrUnsigned:   {stranger.body(t, 3), strings.Replace(good, "\n5\n", "\n6\n", 1)},
		ErrOldSize:    {strings.Replace(good, "old 3", "old 6", 1)},
	} {
		for _, body := range bodies {
			if _, err := logs.Open([]byte(body)); !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", body, err, want)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	h, logs := newFakeLog(f)
	h.grow(f, 5, "a")
	f.Add([]byte(h.body(f, 3)))
	f.Add([]byte("old 0\n\n" + origin + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, err := logs.Open(body); err == nil && (s.Origin != origin || s.old > s.Size ||
			!strings.HasPrefix(s.text, origin+"\n")) {
			t.Errorf("%+v", s)
		}
	})
}

// TestHugeSize: a log that signs a size too large for tree arithmetic is refused and does not keep the process busy.
func TestHugeSize(t *testing.T) {
	h, logs := newFakeLog(t)
	for _, size := range []string{"4611686018427387905", "9223372036854775807"} {
		signed, err := note.Sign(&note.Note{Text: origin + "\n" + size + "\n" + emptyRoot.String() + "\n"}, h.signer)
		check(t, err)
		s, err := logs.Open([]byte("old 3\n" + emptyRoot.String() + "\n\n" + string(signed)))
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", size, err)
		}
		if err == nil {
			_ = s.judge(emptyRoot)
		}
	}
}
