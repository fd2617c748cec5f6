package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// groupLog counts the transactions that a ledger reports.
type groupLog struct {
	mu     sync.Mutex
	groups []int64 // commands
}

func (g *groupLog) Enabled(context.Context, slog.Level) bool { return true }
func (g *groupLog) WithAttrs([]slog.Attr) slog.Handler       { return g }
func (g *groupLog) WithGroup(string) slog.Handler            { return g }
func (g *groupLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "group committed" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "commands" {
				g.mu.Lock()
				g.groups = append(g.groups, a.Value.Int64())
				g.mu.Unlock()
			}
			return true
		})
	}
	return nil
}

func (g *groupLog) reset() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	groups := g.groups
	g.groups = nil
	return groups
}

func TestBurstTakesFewTransactions(t *testing.T) {
	groups := &groupLog{}
	l := ledgertest.New(t, func(c *eventstore.Config) { c.Log = slog.New(groups) })
	o := l.Organization(t, 0, domain.InternalPlan)
	commands := make([]*domain.Register, 1000)
	for i := range commands {
		commands[i] = l.Register(t, o, o.Declaration(fmt.Sprintf("burst-%d", i), 1, "x"))
	}
	groups.reset()
	var wg sync.WaitGroup
	for _, c := range commands {
		wg.Go(func() {
			if err := l.Do(context.Background(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sizes := groups.reset()
	if len(sizes) > 100 {
		t.Errorf("1,000 concurrent registrations took %d transactions: %v", len(sizes), sizes)
	}
	t.Logf("%d transactions: %v", len(sizes), sizes)
	l.Audit(t)
}

func TestGroupIsSplitDownToTheBadCommand(t *testing.T) {
	var log bytes.Buffer
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil)) // its handler locks
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			for _, e := range events {
				if r, ok := e.Body.(*domain.RecordRegisteredBody); ok && r.DocumentReference == "poison" {
					b.Queue("SELECT $1::text::int", "words of a tenant")
				}
			}
			return projections.Apply(b, shard, events)
		}
	})
	o := l.Organization(t, 0, domain.InternalPlan)
	var commands []domain.Command
	for i := range 50 {
		name := fmt.Sprintf("good-%d", i)
		if i == 17 || i == 40 {
			name = "poison"
		}
		commands = append(commands, l.Register(t, o, o.Declaration(name, int32(i+1), "x")))
	}
	for i, answer := range l.Execute(context.Background(), commands...) {
		err := answer.Err
		var refusal *domain.Error
		bad := i == 17 || i == 40
		if bad && (!errors.As(err, &refusal) || refusal.Code != domain.Internal) {
			t.Errorf("command %d: %v, want INTERNAL", i, err)
		}
		if !bad && err != nil {
			t.Errorf("command %d: %v", i, err)
		}
	}
	l.Audit(t)
	if n := registrations(l.Events(t, 0)); n != 48 {
		t.Errorf("%d registrations in the log, want 48", n)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, "words of a tenant") || !strings.Contains(text, "22P02") {
		t.Errorf("the log must name the error's code and quote nothing:\n%s", text)
	}
}

func registrations(events []domain.Event) int {
	n := 0
	for _, e := range events {
		if e.Type == domain.RecordRegistered {
			n++
		}
	}
	return n
}

// panics is a command whose decision panics.
type panics struct{ domain.Origin }

func (panics) Need(*domain.Needs)                                      {}
func (panics) Decide(*domain.State, time.Time) ([]domain.Draft, error) { panic("on purpose") }

func TestPanicConcernsItsCommandAlone(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	good := l.Register(t, o, o.Declaration("a", 1, "x"))
	answers := l.Execute(context.Background(), panics{o.Origin()}, good)
	var refusal *domain.Error
	if !errors.As(answers[0].Err, &refusal) || refusal.Code != domain.Internal || answers[1].Err != nil {
		t.Fatalf("answers %v", answers)
	}
	l.Audit(t)
}

func TestDecisionTimeNeverDecreases(t *testing.T) {
	var mu sync.Mutex
	clock := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Clock = ledgertest.Simulated(now)
	})
	l.Now = now
	set := func(at time.Time) { mu.Lock(); clock = at; mu.Unlock() }
	set(clock.Add(time.Hour))
	o := l.Organization(t, 0, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	set(clock.Add(-eventstore.DefaultClockTolerance))
	l.Must(t, l.Register(t, o, o.Declaration("a", 2, "x")))
	events := l.Events(t, 0)
	last, before := events[len(events)-1], events[len(events)-3]
	if last.OccurredAt.Before(before.OccurredAt) {
		t.Fatalf("occurredAt went from %s to %s", before.OccurredAt, last.OccurredAt)
	}
	l.Audit(t)
}

func TestCloseFinishesWhatWasAccepted(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	process := l.Process(t, l.URL)
	var commands []domain.Command
	for i := range 500 {
		commands = append(commands, l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", i), 1, "x")))
	}
	answers := make(chan []eventstore.Answer)
	started := make(chan struct{})
	go func() {
		first := process.Execute(context.Background(), commands[0])
		close(started)
		answers <- append(first, process.Execute(context.Background(), commands[1:]...)...)
	}()
	<-started
	if err := process.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for i, answer := range <-answers {
		err := answer.Err
		var refusal *domain.Error
		if err == nil {
			accepted++
		} else if !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable {
			t.Errorf("command %d: %v", i, err)
		}
	}
	if n := registrations(l.Events(t, 0)); n != accepted {
		t.Errorf("%d were answered as accepted, %d are in the log", accepted, n)
	}
	if err := process.Do(context.Background(), commands[0]); err == nil {
		t.Error("a closed ledger took a command")
	}
	l.Audit(t)
}

// TestEnqueueIsNoProjection: Enqueue writes in the group's transaction, and a replay (Audit) does not call it.
func TestEnqueueIsNoProjection(t *testing.T) {
	calls := 0
	insert := cluster.SQL("INSERT INTO {meters} (shard, subject, minute, used) VALUES ($1, $2, $3, 0)")
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.GroupWeight = 1
		c.Enqueue = func(b *pgx.Batch, shard domain.Shard, events []domain.Event, _ *domain.State, _ *bool) {
			calls += len(events)
			b.Queue(insert, shard, [16]byte(events[0].ID), events[0].Position)
		}
	})
	o := l.Organization(t, 0, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	before := len(l.Events(t, 0))
	l.Audit(t)
	var rows int
	if err := l.Pool.QueryRow(context.Background(), "SELECT count(*) FROM meters").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if calls != before || rows != before {
		t.Errorf("%d events were enqueued in %d rows, the log has %d", calls, rows, before)
	}
}
