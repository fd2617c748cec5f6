package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

const later = domain.ThisRelease + 1000 // the next minor version

// of makes a process use another program.
func of(p eventstore.Program, outdated func(*eventstore.OutdatedError)) func(*eventstore.Config) {
	return func(c *eventstore.Config) { c.Gate = eventstore.NewGate(p, outdated) }
}

func direct(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// raise is what a migration does that breaks older programs.
const raise = "UPDATE shard_heads SET minimum_version = greatest(minimum_version, $1) RETURNING shard, position"

// TestNothingIsCommittedAfterTheGate: two versions register in one ledger while its minimum is raised above the older
// version. From each head's position at that moment on, every event comes from the newer version, which continues.
func TestNothingIsCommittedAfterTheGate(t *testing.T) {
	l := ledgertest.New(t)
	var closings atomic.Int64
	former := l.Process(t, l.URL, of(eventstore.ThisProgram(), func(*eventstore.OutdatedError) { closings.Add(1) }))
	newer := l.Process(t, l.URL, of(eventstore.Program{Version: later, Rules: domain.Rules()}, nil))
	var orgs []ledgertest.Organization
	for shard := range domain.Shard(4) {
		orgs = append(orgs, l.Organization(t, shard, domain.InternalPlan))
	}
	const writersOfEach, enough = 3, 20
	var done [2]atomic.Int64 // registrations since the start, or since the raise
	var stopped atomic.Bool
	var writing sync.WaitGroup
	for i, process := range []*eventstore.Ledger{former, newer} {
		name := []string{"former", "newer"}[i]
		for w := range writersOfEach * len(orgs) {
			writing.Go(func() {
				o := orgs[w%len(orgs)]
				for n := int32(1); !stopped.Load(); n++ {
					c := l.Register(t, o, o.Declaration(fmt.Sprintf("%s-%d", name, w), n, "x"))
					c.RequestID = name
					err := process.Do(context.Background(), c)
					if refused, ok := errors.AsType[*domain.Error](err); ok && refused.Code == domain.TemporarilyUnavailable &&
						process == former {
						return // refused permanently
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					done[i].Add(1)
				}
			})
		}
	}
	some := func(from [2]int64, which ...int) {
		pgtest.Eventually(t, "registrations go on", func() (bool, error) {
			return t.Failed() || !slices.ContainsFunc(which, func(i int) bool { return done[i].Load() < from[i]+enough }), nil
		})
	}
	some([2]int64{}, 0, 1)
	conn := direct(t, l.URL)
	heads := map[domain.Shard]int64{}
	rows, err := conn.Query(t.Context(), raise, later)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var shard domain.Shard
		var position int64
		if err := rows.Scan(&shard, &position); err != nil {
			t.Fatal(err)
		}
		heads[shard] = position
	}
	if err := rows.Err(); err != nil || len(heads) != 4 {
		t.Fatal(heads, err)
	}
	some([2]int64{0, done[1].Load()}, 1)
	pgtest.Eventually(t, "the former version has stopped", func() (bool, error) { return former.Gate.Err() != nil, nil })
	stopped.Store(true)
	writing.Wait()
	if closings.Load() != 1 {
		t.Errorf("the gate closed %d times", closings.Load())
	}
	want := "this program is version " + domain.ThisRelease.String() + " and the ledger takes " + later.String() +
		" or later: install that version and start it again"
	if err := former.Gate.Err(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	after := 0
	for shard, events := range l.Audit(t) {
		for _, e := range events {
			if e.Position > heads[shard] {
				after++
				if e.RequestID != "newer" {
					t.Errorf(
						"shard %d position %d, after the raise at %d, is of the %s version", shard, e.Position, heads[shard],
						e.RequestID,
					)
				}
			}
		}
	}
	if after == 0 {
		t.Error("nothing was registered after the raise")
	}
}

// TestTheGateIsReadWithTheLock: a group that waits for the head while the gate is raised sees the raised gate.
func TestTheGateIsReadWithTheLock(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	conn := direct(t, l.URL)
	before := len(l.Events(t, 1))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(
		t.Context(), strings.Replace(raise, "RETURNING", "WHERE shard = 1 RETURNING", 1), later,
	); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error)
	go func() { answer <- l.Do(context.Background(), l.Register(t, o, o.Declaration("d", 1, "x"))) }()
	pgtest.Eventually(t, "the group waits", func() (bool, error) {
		n, err := pgtest.Ask[int](l.URL, pgtest.LockWaits())
		return n > 0, err
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if refused, ok := errors.AsType[*domain.Error](<-answer); !ok || refused.Code != domain.TemporarilyUnavailable {
		t.Errorf("%v", refused)
	}
	if events := l.Events(t, 1); len(events) != before {
		t.Errorf("%d events, %d before", len(events), before)
	}
}

// next is the program of the next minor version, with a made-up rule.
func next() eventstore.Program {
	rule := domain.RuleEntry{Name: madeUp, Since: later, Changes: "nothing"}
	return eventstore.Program{Version: later, Rules: append(domain.Rules(), rule)}
}

const madeUp domain.Rule = "made-up"

// observing is a command that changes nothing. It records whether the made-up rule was on when it was decided.
type observing struct {
	domain.Origin
	on bool
}

func (*observing) Need(*domain.Needs) {}

func (c *observing) Decide(s *domain.State, _ time.Time) ([]domain.Draft, error) {
	c.on = s.Follows(madeUp)
	return nil, nil
}

// TestRulesAreSwitchedOn: a rule is switched on only once every live process knows it, and never off again.
func TestRulesAreSwitchedOn(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	newer := l.Process(t, l.URL, of(next(), nil))
	version := int32(0)
	registers := func(process *eventstore.Ledger) error {
		version++
		return process.Do(t.Context(), l.Register(t, o, o.Declaration("d", version, "x")))
	}
	decides := func(process *eventstore.Ledger, byRule bool) {
		t.Helper()
		c := &observing{Origin: o.Origin()}
		if err := process.Do(t.Context(), c); err != nil || c.on != byRule {
			t.Errorf("decided by the rule: %t, %v, want %t", c.on, err, byRule)
		}
		if err := registers(process); err != nil {
			t.Error(err)
		}
	}
	pool, err := cluster.At(l.URL).QueuePool(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	knowing := beating(eventstore.Heartbeat{Pool: pool, Gate: eventstore.NewGate(next(), nil), Name: "knowing"})
	lagging := beating(eventstore.Heartbeat{
		Pool: pool, Gate: eventstore.NewGate(eventstore.ThisProgram(), nil), Name: "lagging",
	})
	for _, h := range []*eventstore.Heartbeat{knowing, lagging} {
		if err := h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = next().SwitchOn(t.Context(), l.URL)
	if lags, ok := errors.AsType[*eventstore.LaggingError](err); !ok || len(lags.Processes) != 1 ||
		lags.Processes[0].Name != "lagging" {
		t.Fatalf("a process does not know the rules: %v", err)
	}
	decides(l.Ledger, false)
	decides(newer, false)
	// The process has died, and its row has expired by the database's clock.
	pgtest.Exec(t, l.URL, "UPDATE processes SET seen_at = now() - interval '31 seconds' WHERE name = 'lagging'")
	if switched, in, err := next().SwitchOn(t.Context(), l.URL); err != nil ||
		!slices.Equal(switched, []domain.Rule{madeUp}) || in.Minimum != later {
		t.Fatal(switched, in, err)
	}
	decides(newer, true)
	// The process was only frozen. It does not decide without the rule, whatever version it claims.
	for revived, why := range map[*eventstore.Ledger]string{
		l.Ledger: later.String(),
		l.Process(t, l.URL, of(eventstore.Program{Version: later, Rules: domain.Rules()}, nil)): string(madeUp),
	} {
		if err := registers(revived); err == nil || revived.Gate.Err() == nil ||
			!strings.Contains(revived.Gate.Err().Error(), why) {
			t.Errorf("%v, %v, want %s", err, revived.Gate.Err(), why)
		}
	}
	if err := lagging.Beat(t.Context()); err == nil || lagging.Gate.Err() == nil {
		t.Errorf("its heartbeat: %v", err)
	}
	if switched, _, err := next().SwitchOn(t.Context(), l.URL); err != nil || len(switched) > 0 {
		t.Errorf("nothing is left to switch on: %v, %v", switched, err)
	}
	// Added shards get the same gate.
	in, err := eventstore.Ensure(t.Context(), l.URL, eventstore.Settings{Issuer: "x", Shards: 6, Now: time.Now})
	if err != nil || in.Shards != 6 {
		t.Fatal(in, err)
	}
	if n, err := pgtest.Ask[int](
		l.URL,
		"SELECT count(*)::int FROM shard_heads h, ledger l WHERE h.minimum_version = l.minimum_version AND h.rules = "+
			"l.rules AND 'made-up' = ANY(h.rules)",
	); n != 6 || err != nil {
		t.Errorf("%d heads have the gate: %v", n, err)
	}
	l.Audit(t)
}

// TestNewLedgerHasTheFloor: a program older than the first release may not write a new ledger, in which every rule is
// on.
func TestNewLedgerHasTheFloor(t *testing.T) {
	l := ledgertest.New(t)
	in, err := eventstore.ReadInstallation(t.Context(), direct(t, l.URL))
	if err != nil || in.Minimum < domain.Floor || !slices.Equal(in.Rules, eventstore.ThisProgram().RuleNames()) {
		t.Errorf("%+v, %v", in, err)
	}
	older := l.Process(t, l.URL, of(eventstore.Program{Version: domain.Floor - 1}, nil))
	if err := older.Do(t.Context(), &observing{Origin: l.Organization(t, 1, domain.InternalPlan).Origin()}); err == nil {
		t.Error("an older program writes")
	}
}

// TestSwitchIsCompleted: a switch that ended after the ledger's row is completed by the next process that starts.
func TestSwitchIsCompleted(t *testing.T) {
	l := ledgertest.New(t)
	pgtest.Exec(t, l.URL, fmt.Sprintf("UPDATE ledger SET minimum_version = %d, rules = '{one,two}'", later))
	pgtest.Exec(t, l.URL, "UPDATE shard_heads SET rules = CASE shard WHEN 2 THEN '{two,three}'::text[] ELSE '{}' END")
	if _, err := eventstore.Ensure(
		t.Context(), l.URL, eventstore.Settings{Issuer: "x", Shards: 4, Now: time.Now},
	); err != nil {
		t.Fatal(err)
	}
	got, err := pgtest.Ask[string](
		l.URL,
		"SELECT string_agg(format('%s %s %s', shard, minimum_version, array_to_string(rules, ',')), '; ' ORDER BY shard) "+
			"FROM shard_heads",
	)
	if want := fmt.Sprintf(
		"0 %[1]d one,two; 1 %[1]d one,two; 2 %[1]d two,three,one; 3 %[1]d one,two", later,
	); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestHeartbeat: a process is listed while it runs, rows of dead processes are deleted, and an idle process learns that
// it is outdated.
func TestHeartbeat(t *testing.T) {
	l := ledgertest.New(t)
	pool, err := cluster.At(l.URL).QueuePool(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Exec(
		t, l.URL,
		"INSERT INTO processes (id, name, version, rules, seen_at) VALUES ('a', 'dead', 1, '{}', now() - interval '61 "+
			"minutes'), ('b', 'dying', 1, '{}', now() - interval '31 seconds')",
	)
	h := beating(eventstore.Heartbeat{
		Pool: pool, Gate: eventstore.NewGate(eventstore.ThisProgram(), nil), Name: "a \xff name " + strings.Repeat("x", 300),
	})
	for range 2 {
		if err := h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	live, err := eventstore.Processes(t.Context(), pool)
	if err != nil || len(live) != 1 || live[0].Version != domain.ThisRelease ||
		!slices.Equal(live[0].Rules, eventstore.ThisProgram().RuleNames()) || !strings.HasPrefix(live[0].Name, "a ? name x") ||
		!slices.Equal(live[0].SecretKeys, []string{"0a0b0c0d"}) {
		t.Fatal(live, err)
	}
	if n, err := pgtest.Ask[int](l.URL, "SELECT count(*)::int FROM processes"); n != 2 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	pgtest.Exec(t, l.URL, fmt.Sprintf("UPDATE ledger SET minimum_version = %d", later))
	if err := h.Beat(t.Context()); err == nil || h.Gate.Err() == nil {
		t.Errorf("a ledger of version %s: %v", later, err)
	}
	select {
	case <-h.Gate.Closed():
	default:
		t.Error("the gate is open")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Run(ctx, func(err error) { t.Error(err) })
	if live, err := eventstore.Processes(t.Context(), pool); err != nil || len(live) != 0 {
		t.Error(live, err)
	}
}

// TestOldProgramDoesNotStart: opening a ledger is refused with one sentence; opening another database is not refused.
func TestOldProgramDoesNotStart(t *testing.T) {
	l := ledgertest.New(t)
	program := eventstore.ThisProgram()
	if err := program.AdmittedAt(t.Context(), l.URL); err != nil {
		t.Error(err)
	}
	for spoil, want := range map[string]string{
		fmt.Sprintf("UPDATE ledger SET rules = '{}', minimum_version = %d", later): "this program is version " +
			domain.ThisRelease.String() + " and the ledger takes " + later.String() +
			" or later: install that version and start it again",
		"UPDATE ledger SET minimum_version = 1000000, rules = '{unheard-of}'": "the ledger decides by the rule " +
			"unheard-of, which this program (version " + domain.ThisRelease.String() + ") does not know: " +
			"install the version that the other processes run (integrity upgrade status) and start it again",
	} {
		pgtest.Exec(t, l.URL, spoil)
		if err := program.AdmittedAt(t.Context(), l.URL); err == nil || err.Error() != want {
			t.Errorf("%s: %v", spoil, err)
		}
	}
	pgtest.Exec(t, l.URL, "DELETE FROM ledger")
	if err := program.AdmittedAt(t.Context(), l.URL); err != nil {
		t.Errorf("without a ledger: %v", err)
	}
}

// beating returns a heartbeat of a process with a secret key.
func beating(h eventstore.Heartbeat) *eventstore.Heartbeat {
	h.SecretKeys = func() []string { return []string{"0a0b0c0d"} }
	return eventstore.NewHeartbeat(h)
}
