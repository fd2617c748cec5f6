package eventstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// Environment variables of a child process.
const (
	childURL   = "METER_CHILD_URL"
	childActor = "METER_CHILD_ACTOR"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		countForEver()
	}
	pgtest.Main(m)
}

const (
	minute = 29_000_000 // far from any clock's
	most   = 500
)

// counted returns a request that its group counts: the revocation of a missing record.
func counted(by domain.Origin) domain.Command {
	by.Minute, by.Scope = minute, domain.IntegrityRevoke
	return &domain.Revoke{Origin: by, PublicID: domain.NewPublicID(domain.LedgerSecret("secret"), by.Organization.Shard())}
}

func metered(t *testing.T, change ...func(*eventstore.Config)) (*ledgertest.Ledger, ledgertest.Organization) {
	t.Helper()
	l := ledgertest.New(t, change...)
	o := l.Organization(t, 0, domain.InternalPlan)
	limit := int32(most)
	l.Must(t, &domain.ChangePlan{Origin: o.Operator(), Plan: domain.InternalPlan, KeepInternal: true, PerMinute: &limit})
	return l, o
}

// ask sends a request and returns its ordinal within the minute, 0 if unknown.
func ask(t *testing.T, l *eventstore.Ledger, by domain.Origin) int {
	t.Helper()
	answer := l.Execute(context.Background(), counted(by))[0]
	refused, _ := errors.AsType[*domain.Error](answer.Err)
	switch {
	case answer.Used == 0:
		return 0
	case answer.Most != most || refused == nil || (refused.Code == domain.RateLimited) != (answer.Used > most):
		t.Errorf("request %d of %d: %v", answer.Used, answer.Most, answer.Err)
	}
	return answer.Used
}

func meterIs(t *testing.T, l *ledgertest.Ledger, want int) {
	t.Helper()
	got, err := pgtest.Ask[int](
		l.URL, "SELECT coalesce(max(used), 0)::int FROM meters WHERE minute = "+strconv.Itoa(minute),
	)
	if err != nil || got != want {
		t.Errorf("the meter stands at %d, want %d (%v)", got, want, err)
	}
}

// TestGroupsCountExactly: requests that two processes receive at once get different ordinals in the minute.
func TestGroupsCountExactly(t *testing.T) {
	l, o := metered(t)
	processes := []*eventstore.Ledger{l.Ledger, l.Process(t, l.URL)}
	var mu sync.Mutex
	var seen []int
	var callers sync.WaitGroup
	for i := range 100 {
		callers.Go(func() {
			for range 10 {
				used := ask(t, processes[i%2], o.Origin())
				mu.Lock()
				seen = append(seen, used)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	slices.Sort(seen)
	for i, used := range seen {
		if used != i+1 {
			t.Fatalf("request %d was counted as %d", i+1, used)
		}
	}
	meterIs(t, l, 1000)
}

// TestGroupThatFailsStaysCounted: a failed group does not undo its count, and retrying it does not count again.
func TestGroupThatFailsStaysCounted(t *testing.T) {
	var fail atomic.Bool
	l, o := metered(t, func(c *eventstore.Config) {
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			if fail.Swap(false) {
				b.Queue("DO $$ BEGIN RAISE EXCEPTION 'try again' USING ERRCODE = '40001'; END $$")
			}
			return projections.Apply(b, shard, events)
		}
	})
	by := o.Origin()
	by.Minute = minute
	for i := range 3 {
		c := l.Registrar.PrepareUnsigned(by, o.Key.ID, domain.KeyLimits{}, o.Declaration(fmt.Sprint("d", i), 1, "x"), l.Now())
		fail.Store(true)
		answer := l.Execute(context.Background(), c)[0]
		if answer.Err != nil || answer.Used != i+1 || fail.Load() {
			t.Errorf("request %d: %+v", i+1, answer)
		}
	}
	meterIs(t, l, 3)

	p := newProxy(t, l.URL)
	cut := l.Process(t, p.url, func(c *eventstore.Config) {
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			p.next.Store(int32(cutBefore)) // the next COMMIT is the group's
			return projections.Apply(b, shard, events)
		}
	})
	c := l.Registrar.PrepareUnsigned(by, o.Key.ID, domain.KeyLimits{}, o.Declaration("lost", 1, "x"), l.Now())
	if answer := cut.Execute(context.Background(), c)[0]; answer.Err == nil || answer.Used != 4 || answer.Most != most {
		t.Errorf("a request whose group was cut off: %+v", answer)
	}
	meterIs(t, l, 4)
}

// TestRefusedKeyIsNotCounted: requests with a credential that the group refuses are subtracted from the count.
func TestRefusedKeyIsNotCounted(t *testing.T) {
	l, o := metered(t)
	other, _ := l.Key(t, o, domain.Scopes()...)
	l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: other.ID})
	by := o.Origin()
	by.Actor = domain.KeyActor(other.ID)
	for i := range 3 {
		if used := ask(t, l.Ledger, o.Origin()); used != i+1 {
			t.Errorf("request %d was counted as %d", i+1, used)
		}
		answer := l.Execute(context.Background(), counted(by))[0]
		if refused, _ := errors.AsType[*domain.Error](answer.Err); refused == nil || refused.Code != domain.InvalidKey ||
			answer.Used != 0 {
			t.Errorf("a revoked key: %+v", answer)
		}
	}
	meterIs(t, l, 3)
}

// TestSplitGroupGivesBackOnce: a request refused in one half of a group is not subtracted again with the other half.
func TestSplitGroupGivesBackOnce(t *testing.T) {
	l, o := metered(t, func(c *eventstore.Config) {
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			for _, e := range events {
				if r, ok := e.Body.(*domain.RecordRegisteredBody); ok && r.DocumentReference == "poison" {
					b.Queue("SELECT 1/0")
				}
			}
			return projections.Apply(b, shard, events)
		}
	})
	by, revoked := o.Origin(), o.Origin()
	by.Minute = minute
	other, _ := l.Key(t, o, domain.Scopes()...)
	l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: other.ID})
	revoked.Actor = domain.KeyActor(other.ID)

	ctx := context.Background()
	head, err := l.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := head.Exec(ctx, "SELECT 1 FROM shard_heads WHERE shard = 0 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	callers.Go(func() { l.Execute(ctx, &domain.Revoke{Origin: o.Origin()}) })
	pgtest.Eventually(t, "a group waits for the head", func() (bool, error) {
		n, err := pgtest.Ask[int](l.URL, pgtest.LockWaits())
		return n > 0, err
	})
	callers.Go(func() {
		l.Execute(ctx, counted(revoked), counted(o.Origin()), counted(o.Origin()),
			l.Registrar.PrepareUnsigned(by, o.Key.ID, domain.KeyLimits{}, o.Declaration("poison", 1, "x"), l.Now()))
	})
	pgtest.Eventually(t, "four commands wait", func() (bool, error) { return l.Queues()[0].Waiting == 4, nil })
	if err := head.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	callers.Wait()
	meterIs(t, l, 3)
}

// TestEveryCallerIsJudged: the sender of a command that is refused before the decision is still authenticated, and a
// sender that could not be authenticated is not reported as valid.
func TestEveryCallerIsJudged(t *testing.T) {
	var fail atomic.Bool
	l, o := metered(t, func(c *eventstore.Config) {
		c.Load = func(
			b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
			s *domain.State,
		) {
			if fail.Load() {
				b.Queue("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$")
			}
			projections.Load(b, shard, organizations, needs, now, s)
		}
	})
	by := o.Origin()
	by.Minute = minute
	late := func() eventstore.Answer {
		return l.Execute(
			context.Background(),
			l.Registrar.PrepareUnsigned(by, o.Key.ID, domain.KeyLimits{}, o.Declaration("late", 1, "x"), l.Now().Add(-time.Hour)),
		)[0]
	}
	refuses := func(a eventstore.Answer, code domain.Code, used int, counted bool) {
		t.Helper()
		if refused, _ := errors.AsType[*domain.Error](a.Err); refused == nil || refused.Code != code || a.Used != used ||
			a.Counted != counted {
			t.Errorf("%+v, want %s", a, code)
		}
	}
	refuses(late(), domain.TemporarilyUnavailable, 1, false)
	fail.Store(true)
	refuses(l.Execute(context.Background(), counted(by))[0], domain.TemporarilyUnavailable, 0, true)
	fail.Store(false)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if a := l.Execute(gone, counted(by))[0]; a.Err == nil || a.Used == 0 && !a.Counted {
		t.Errorf("whose caller has gone: %+v", a)
	}
	l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: o.Key.ID})
	refuses(late(), domain.InvalidKey, 0, false)
	meterIs(t, l, 3)
}

// TestRefundWaitsForNobodyWhoWaitsForIt: rows are locked in the order in which they are counted.
func TestRefundWaitsForNobodyWhoWaitsForIt(t *testing.T) {
	l, first := metered(t)
	second := l.Organization(t, 0, domain.InternalPlan)
	if bytes.Compare(first.ID[:], second.ID[:]) > 0 {
		first, second = second, first
	}
	ask(t, l.Ledger, first.Origin())
	l.Execute(context.Background(), counted(second.Origin()))
	ctx := context.Background()
	counting, err := l.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const count = "UPDATE meters SET used = used + 1 WHERE shard = 0 AND subject = $1 AND minute = $2"
	if _, err := counting.Exec(ctx, count, first.ID, minute); err != nil {
		t.Fatal(err)
	}
	refunded := make(chan error)
	go func() {
		refunded <- l.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			b := &pgx.Batch{}
			projections.Refund(b, 0, []*domain.MinuteCount{
				{Organization: second.ID, Minute: minute, Requests: 1, Refused: 1},
				{Organization: first.ID, Minute: minute, Requests: 1, Refused: 1},
			})
			return c.SendBatch(ctx, b).Close()
		})
	}()
	pgtest.Eventually(t, "the refund waits", func() (bool, error) {
		n, err := pgtest.Ask[int](l.URL, pgtest.LockWaits())
		return n > 0, err
	})
	_, err = counting.Exec(ctx, count, second.ID, minute)
	if err := errors.Join(err, counting.Commit(ctx), <-refunded); err != nil {
		t.Error(err)
	}
}

// TestMinutesAreCleared: the first request of a minute deletes earlier minutes, except the previous one.
func TestMinutesAreCleared(t *testing.T) {
	l, o := metered(t)
	for _, m := range []int64{minute - 3, minute - 2, minute - 1, minute} {
		c := counted(o.Origin()).(*domain.Revoke)
		c.Minute = m
		l.Execute(context.Background(), c)
	}
	left, err := pgtest.Ask[[]int64](l.URL, "SELECT array_agg(minute ORDER BY minute) FROM meters")
	if err != nil || !slices.Equal(left, []int64{minute - 1, minute}) {
		t.Errorf("left are %v (%v)", left, err)
	}
}

// TestKilledProcessCountsExactly: one of two processes is killed while both count. No request passes beyond the limit,
// no ordinal is given twice, and only requests in progress are lost.
func TestKilledProcessCountsExactly(t *testing.T) {
	l, o := metered(t)
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childURL+"="+l.URL, childActor+"="+o.Key.ID.String()+" "+o.ID.String())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	var mu sync.Mutex
	var callers sync.WaitGroup
	begun := make(chan struct{})
	for range childCallers {
		callers.Go(func() {
			<-begun
			for {
				used := ask(t, l.Ledger, o.Origin())
				mu.Lock()
				seen[used]++
				mu.Unlock()
				if used > most {
					return
				}
			}
		})
	}
	lines, answered := bufio.NewScanner(out), 0
	for lines.Scan() {
		used, err := strconv.Atoi(lines.Text())
		if err != nil {
			continue // the last line may be half a line
		}
		mu.Lock()
		seen[used]++
		mu.Unlock()
		if answered++; answered == 20 {
			close(begun)
		}
		if answered == 100 {
			_ = child.Process.Kill()
		}
	}
	if err := child.Wait(); err == nil || answered < 100 {
		t.Fatalf("the child gave %d answers and ended with %v", answered, err)
	}
	callers.Wait()
	passed := 0
	for used, times := range seen {
		if used == 0 || times != 1 {
			t.Errorf("%d requests were counted as %d", times, used)
		}
		if used <= most {
			passed++
		}
	}
	if passed > most || passed < most-childCallers-1 {
		t.Errorf("%d of %d requests passed, with %d under way in the killed process", passed, most, childCallers)
	}
	t.Logf("%d passed, %d of %d answered by the killed process", passed, answered, len(seen))
}

const childCallers = 8

// countForEver sends requests and prints their ordinals until it is killed.
func countForEver() {
	var key, organization string
	_, err := fmt.Sscan(os.Getenv(childActor), &key, &organization)
	id, idErr := domain.ParseID[domain.OrganizationID](organization)
	if err = errors.Join(err, idErr); err != nil {
		panic(err)
	}
	pool, err := cluster.At(os.Getenv(childURL)).CommitPool(context.Background(), 8)
	if err != nil {
		panic(err)
	}
	l, err := ledgertest.Open(pool)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	for range childCallers {
		go func() {
			for {
				answer := l.Execute(
					context.Background(), counted(domain.Origin{Organization: id, Actor: domain.ParseActor(key)}),
				)[0]
				mu.Lock()
				fmt.Println(answer.Used)
				mu.Unlock()
			}
		}()
	}
	select {}
}
