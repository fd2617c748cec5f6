package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"integrityledger/domain"
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

const name = "test"

// open counts the transactions that consumers have open.
const open = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'integrity consumer' AND datname " +
	"= current_database() AND state LIKE 'idle in%'"

type take func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error)

// process returns one process's consumer of the first shards of a ledger. On Citus it connects to the nodes.
func process(
	ctx context.Context, url string, shards int, t take, change func(*consumer.Config),
) (_ *consumer.Consumer, end func(), err error) {
	pool, err := cluster.At(url).ConsumerPool(ctx, 4)
	if err != nil {
		return nil, nil, err
	}
	var holders *cluster.Holders
	if pgtest.OnCitus() {
		if holders, err = cluster.At(url).Holders(ctx); err != nil {
			return nil, nil, err
		}
	}
	reads := holders.Nodes(2, (*cluster.Primary).ConsumerPool)
	c := consumer.Config{
		Name: name, Pool: pool, Nodes: holders.Nodes(2, (*cluster.Primary).ConsumerPool),
		Log: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond,
		News: func(ctx context.Context) ([]int, error) {
			return consumer.Behind(ctx, pool, reads, shards, name)
		},
	}
	for shard := range domain.Shard(shards) {
		handle := func(page *consumer.Message) (int, error) {
			events, err := consumer.Events(page)
			if err != nil {
				return 0, err
			}
			return t(page.Context(), shard, events)
		}
		c.Sources = append(c.Sources, &consumer.Pages{Name: name, Shard: shard, Limit: 7, Take: handle})
	}
	if change != nil {
		change(&c)
	}
	made, err := consumer.New(c)
	return made, func() { holders.Close(); pool.Close() }, err
}

// consume runs a consumer until stop is called.
func consume(
	t testing.TB, l *ledgertest.Ledger, url string, take take, change func(*consumer.Config),
) (c *consumer.Consumer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, end, err := process(ctx, url, l.Installation.Shards, take, change)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		end()
	})
	t.Cleanup(stop)
	return c, stop
}

// reading records the events given to a consumer, by shard.
type reading struct {
	mu        sync.Mutex
	positions map[domain.Shard][]int64
	handling  map[domain.Shard]int
	beside    bool // two pages of a shard were handled at once
}

func (r *reading) take(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
	r.begin(shard)
	defer r.end(shard)
	return r.note(shard, events), nil
}

func (r *reading) begin(shard domain.Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handling == nil {
		r.handling = map[domain.Shard]int{}
	}
	r.handling[shard]++
	r.beside = r.beside || r.handling[shard] > 1
}

func (r *reading) end(shard domain.Shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handling[shard]--
}

func (r *reading) note(shard domain.Shard, events []domain.Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.positions == nil {
		r.positions = map[domain.Shard][]int64{}
	}
	for i := range events {
		r.positions[shard] = append(r.positions[shard], events[i].Position)
	}
	return len(events)
}

func (r *reading) last(shard domain.Shard) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Max(append(r.positions[shard], 0))
}

func register(t *testing.T, l *ledgertest.Ledger, o ledgertest.Organization, from, n int) {
	t.Helper()
	for i := range n {
		l.Must(t, l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", from+i), 1, fmt.Sprint(from+i))))
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	pgtest.Eventually(t, what, func() (bool, error) { return holds(), nil })
}

// gapless fails unless positions begin at 1 and are never skipped. A repetition may only go back to an earlier
// position.
func gapless(t *testing.T, positions []int64, repeats bool) {
	t.Helper()
	highest := int64(0)
	for i, p := range positions {
		if p > highest+1 || p <= highest && !repeats {
			t.Fatalf("position %d came after %v", p, positions[max(0, i-5):i])
		}
		highest = max(highest, p)
	}
}

func behind(t *testing.T, l *ledgertest.Ledger, shard domain.Shard) int64 {
	t.Helper()
	lag, err := consumer.ReadLag(context.Background(), l.Pool, name)
	if err != nil {
		t.Fatal(err)
	}
	return lag[shard].Events
}

// TestConsumer: every event of every shard is delivered once and in order, across a stop, and across a failure and a
// panic in the middle of a page, which are counted.
func TestConsumer(t *testing.T) {
	l := ledgertest.New(t)
	first, second := l.Organization(t, 0, domain.InternalPlan), l.Organization(t, 3, domain.InternalPlan)
	register(t, l, first, 0, 20)
	register(t, l, second, 0, 20)
	head := func(o ledgertest.Organization) int64 { return int64(len(l.Events(t, o.ID.Shard()))) }
	var seen reading
	faults := 0 // only in shard 3
	handle := func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		switch {
		case shard == 3 && events[0].Position > 8 && faults == 0:
			faults++ // three are done, the others are delivered again
			return seen.note(shard, events[:3]), errors.New("broken on purpose")
		case shard == 3 && events[0].Position > 11 && faults == 1:
			faults++
			panic("on purpose")
		}
		return seen.take(ctx, shard, events)
	}
	c, stop := consume(t, l, l.URL, handle, nil)
	until(t, "both shards are read", func() bool { return behind(t, l, 0) == 0 && behind(t, l, 3) == 0 }) // and committed
	stop()
	if faults != 2 || c.Failures() != 2 {
		t.Errorf("%d faults, %d counted", faults, c.Failures())
	}
	register(t, l, first, 20, 20)
	c, stop = consume(t, l, l.URL, handle, func(c *consumer.Config) { c.Poll = time.Hour })
	until(t, "what came meanwhile is read", func() bool { return seen.last(0) == head(first) })
	register(t, l, second, 20, 3)
	c.Wake(3) // the only signal
	until(t, "what came after a wake-up is read", func() bool { return seen.last(3) == head(second) })
	until(t, "nothing is behind", func() bool { return behind(t, l, 0) == 0 && behind(t, l, 3) == 0 })
	stop()
	gapless(t, seen.positions[0], false)
	gapless(t, seen.positions[3], false)
	if lag, err := consumer.ReadLag(context.Background(), l.Pool, "another"); err != nil ||
		lag[0].Events != head(first) || lag[0].Since.IsZero() {
		t.Errorf("lag of a consumer that never ran: %v %v", lag, err)
	}
}

// TestPage: a message contains its events and their positions. Events of an unknown type are refused.
func TestPage(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	command := l.Register(t, o, o.Declaration("d", 1, "x"))
	command.RequestID = "an ü \"id\"\n"
	l.Must(t, command)
	register(t, l, o, 0, 2)
	written := l.Events(t, 1)
	pages := make(chan *consumer.Message, 1)
	consume(t, l, l.URL, nil, func(c *consumer.Config) {
		source := c.Sources[1].(*consumer.Pages)
		source.Limit, source.Take = len(written), func(page *consumer.Message) (int, error) {
			pages <- page.Copy()
			return len(written), nil
		}
	})
	page := <-pages
	events, err := consumer.Events(page)
	if err != nil || len(events) != len(written) {
		t.Fatalf("%d of %d events: %v", len(events), len(written), err)
	}
	for i, want := range written {
		want.Nonce, want.Hash, want.Body = [16]byte{}, [32]byte{}, nil
		if !reflect.DeepEqual(events[i], want) {
			t.Errorf("event %d is %+v, not %+v", i, events[i], want)
		}
	}
	wantMetadata := map[string]string{
		"shard": "1", "first": "1", "last": fmt.Sprint(len(events)), "correlation_id": page.UUID,
	}
	if !maps.Equal(page.Metadata, wantMetadata) || page.UUID != "test.1.0" {
		t.Errorf("page %s has the metadata %v", page.UUID, page.Metadata)
	}
	page.Payload = bytes.ReplaceAll(page.Payload, []byte(domain.RecordRegistered), []byte("integrity.unheard"))
	if _, err := consumer.Events(page); err == nil || !strings.Contains(err.Error(), "not known to this program") {
		t.Errorf("an event of another program: %v", err)
	}
}

// BenchmarkPages reads a backlog of one shard to a handler that does nothing.
func BenchmarkPages(b *testing.B) {
	l := ledgertest.New(b)
	o := l.Organization(b, 1, domain.InternalPlan)
	commands := make([]domain.Command, 500)
	for from := 0; from < b.N; from += len(commands) {
		for i := range commands {
			commands[i] = l.Register(b, o, o.Declaration(fmt.Sprintf("d-%d", from+i), 1, "x"))
		}
		l.Execute(context.Background(), commands...)
	}
	n, ctx := int64(len(l.Events(b, 1))), context.Background()
	runtime.GC()
	used := func() int64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before, read := used(), make(chan struct{})
	b.ResetTimer()
	consume(b, l, l.URL, func(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		if shard == 1 && events[len(events)-1].Position == n {
			close(read)
		}
		return len(events), ctx.Err()
	}, func(c *consumer.Config) { c.Sources[1].(*consumer.Pages).Limit = 500 })
	<-read
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(used()-before)/1000/float64(n), "cpu-µs/event")
}

// TestOneConsumerAtATime: two consumers with the same name share the pages of a shard. Each page is delivered once, and
// never two at once.
func TestOneConsumerAtATime(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	var seen reading
	one, stopOne := consume(t, l, l.URL, seen.take, nil)
	other, stopOther := consume(t, l, l.URL, seen.take, nil)
	for i := range 40 {
		register(t, l, o, i, 1)
		one.Wake(1)
		other.Wake(1)
	}
	until(t, "all are read", func() bool { return behind(t, l, 1) == 0 })
	stopOne()
	register(t, l, o, 40, 10)
	until(t, "the other goes on", func() bool { return behind(t, l, 1) == 0 })
	stopOther()
	gapless(t, seen.positions[1], false)
	if seen.beside {
		t.Error("two pages of a shard were handled at once")
	}
}

// TestLateHandler: a handler that does not return keeps no transaction open, and this process handles no other page of
// its shard meanwhile. Another process takes over the shard.
func TestLateHandler(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 10)
	entered, release := make(chan struct{}), make(chan struct{})
	var late, other reading
	var once sync.Once
	var log strings.Builder
	_, stop := consume(t, l, l.URL, func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		late.begin(shard)
		defer late.end(shard)
		if shard == 1 {
			once.Do(func() { close(entered) })
			<-release // whatever ctx says
		}
		return len(events), ctx.Err()
	}, func(c *consumer.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	<-entered
	until(t, "its transaction is over", func() bool {
		n, err := pgtest.Ask[int](l.URL, pgtest.OnAllNodes(open))
		return err == nil && n == 0
	})
	_, stopOther := consume(t, l, l.URL, other.take, nil)
	until(t, "another process takes over", func() bool { return behind(t, l, 1) == 0 })
	close(release)
	stopOther()
	stop()
	if !strings.Contains(log.String(), "still being handled") {
		t.Errorf("nothing says that a page is late: %s", &log)
	}
	gapless(t, other.positions[1], false)
	if late.beside {
		t.Error("another page was handled beside the late one")
	}
	if n := behind(t, l, 1); n != 0 {
		t.Errorf("the late one took the position back by %d", n)
	}
}

// TestLostConnections: if the database connection is lost between a page and its commit, the page is delivered again
// and nothing is skipped.
func TestLostConnections(t *testing.T) {
	pgtest.OneServer(t, "the nodes are reached beside the proxy")
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 30)
	proxy := pgtest.NewProxy(t, l.URL)
	var seen reading
	cuts := 0
	c, stop := consume(t, l, proxy.URL, func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		if shard == 1 && cuts < 2 {
			cuts++
			proxy.Cut()
		}
		return seen.take(ctx, shard, events)
	}, nil)
	until(t, "all are read", func() bool { return behind(t, l, 1) == 0 })
	stop()
	if c.Failures() == 0 {
		t.Error("no failure is counted")
	}
	gapless(t, seen.positions[1], true)
}

// TestSilentDatabase: if the database vanishes in the middle of a transaction, the transaction ends. Once the database
// is reachable, the page is delivered again.
func TestSilentDatabase(t *testing.T) {
	pgtest.OneServer(t, "the nodes are reached beside the proxy")
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 10)
	proxy := pgtest.NewProxy(t, l.URL)
	var seen reading
	var vanish sync.Once
	c, stop := consume(t, l, proxy.URL, func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		if shard == 1 {
			vanish.Do(func() { proxy.Set(pgtest.Weather{Hole: true}) })
		}
		return seen.take(ctx, shard, events)
	}, func(c *consumer.Config) { c.Sources, c.News = c.Sources[1:2], nil })
	until(t, "the transaction has ended", func() bool { return c.Failures() > 0 })
	proxy.Set(pgtest.Weather{})
	until(t, "all are read", func() bool { return behind(t, l, 1) == 0 })
	stop()
	gapless(t, seen.positions[1], true)
}

// TestFailedCommit: a failed commit, which the library only logs, counts as a failure, and the page is delivered again.
func TestFailedCommit(t *testing.T) {
	pgtest.OneServer(t, "the trigger stands on one node")
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 10)
	pgtest.Exec(t, l.URL, `CREATE SEQUENCE refusals; GRANT USAGE ON refusals TO PUBLIC;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('refusals') <= 2 THEN RAISE 'refused on purpose'; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON consumers DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	var seen reading
	c, stop := consume(t, l, l.URL, seen.take, nil)
	until(t, "all are read", func() bool { return behind(t, l, 1) == 0 })
	stop()
	if c.Failures() != 2 {
		t.Errorf("%d failures", c.Failures())
	}
	gapless(t, seen.positions[1], true)
}

// TestMissingEvents: a head without its events is a failure, not an empty page.
func TestMissingEvents(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 3)
	var seen reading
	c, stop := consume(t, l, l.URL, seen.take, nil)
	until(t, "all are read", func() bool { return behind(t, l, 1) == 0 })
	pgtest.Exec(t, l.URL, "UPDATE shard_heads SET position = position + 1 WHERE shard = 1")
	until(t, "it fails", func() bool { return c.Failures() > 0 })
	stop()
	gapless(t, seen.positions[1], false)
}

// Environment variables of a child process.
const (
	childURL  = "CONSUMER_CHILD_URL"
	childFile = "CONSUMER_CHILD_FILE"
	childEnd  = "CONSUMER_CHILD_END"
)

// child appends the positions of shard 1 to a file, like a broker, and ends itself in its second page: it is killed
// after it has written and before the commit, or stopped before it writes.
func child() {
	at, ctx, pages := os.Getenv(childEnd), context.Background(), 0
	signal := func(s syscall.Signal) { _ = syscall.Kill(os.Getpid(), s) }
	c, _, err := process(ctx, os.Getenv(childURL), 2,
		func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
			if shard != 1 {
				return len(events), nil
			}
			if pages++; pages == 2 && at == "stop" {
				signal(syscall.SIGSTOP)
				<-ctx.Done() // the other threads stop a moment later
			}
			f, err := os.OpenFile(os.Getenv(childFile), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			for i := range events {
				if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
					return 0, context.DeadlineExceeded
				}
				fmt.Fprintln(f, events[i].Position)
			}
			if pages == 2 && at == "kill" {
				signal(syscall.SIGKILL)
				select {}
			}
			return len(events), nil
		}, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.Run(ctx)
}

// TestProcesses: one process is killed between its work and the commit, and another is frozen during its work. The
// others continue at once, nothing is skipped, only the killed process's page is repeated, and the frozen process
// writes nothing of its page after it resumes.
func TestProcesses(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 40)
	file := filepath.Join(t.TempDir(), "positions")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(end string) *osexec.Cmd {
		c := osexec.Command(os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), childURL+"="+l.URL, childFile+"="+file, childEnd+"="+end)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		return c
	}
	positions := func() (list []int64) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var p int64
			if _, err := fmt.Sscan(line, &p); err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
		return list
	}
	killed := start("kill")
	if err := killed.Wait(); err == nil || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed: %v", err)
	}
	if n := len(positions()); n != 14 {
		t.Fatalf("killed after %d positions", n)
	}
	frozen := start("stop")
	until(t, "it is frozen in its second page", func() bool {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(frozen.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		return err == nil && pid > 0 && status.Stopped()
	})
	before := len(positions())
	other := start("")
	until(t, "the other process takes over", func() bool { return behind(t, l, 1) == 0 })
	if len(positions()) <= before {
		t.Error("the other process has written nothing")
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	register(t, l, o, 40, 10) // handled by the resumed process
	until(t, "the thawed process works again", func() bool { return behind(t, l, 1) == 0 })
	list := positions()
	gapless(t, list, true)
	repeated := map[int64]int{}
	for _, p := range list {
		repeated[p]++
	}
	for p, n := range repeated {
		if killedPage := p > 7 && p <= 14; killedPage && n != 2 || !killedPage && n != 1 {
			t.Errorf("position %d was written %d times", p, n)
		}
	}
}

// TestHasten: events after a page are gathered, and become one page at once when Hasten is called. After a claim that
// has found nothing, nothing is gathered.
func TestHasten(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	head := func() int64 { return int64(len(l.Events(t, 1))) }
	r, pages := &reading{}, atomic.Int64{}
	c, _ := consume(t, l, l.URL, func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		pages.Add(1)
		return r.take(ctx, shard, events)
	}, func(c *consumer.Config) { c.Gather = time.Hour })
	until(t, "what was there", func() bool { return r.last(1) == head() })
	for round := range 3 {
		before := pages.Load()
		for i := range 5 {
			register(t, l, o, 10*round+i, 1)
			c.Wake(1)
		}
		if pages.Load() != before {
			t.Errorf("round %d: %d pages while it gathers", round, pages.Load()-before)
		}
		if !c.Hasten(1) {
			t.Errorf("round %d: it was woken", round)
		}
		until(t, "what was gathered", func() bool { return r.last(1) == head() })
		if pages.Load() != before+1 {
			t.Errorf("round %d: %d pages of five events", round, pages.Load()-before)
		}
	}
	gapless(t, r.positions[1], false)
}
