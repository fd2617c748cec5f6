package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
)

// countSignatures counts the service's signatures from now on.
func (s *service) countSignatures() *atomic.Int64 {
	made := &atomic.Int64{}
	s.keys.Store(&action.Keys{
		Signer: s.Registrar.Signer.Observed(func() func() { made.Add(1); return func() {} }), Trusted: s.Trusted,
	})
	return made
}

// holdShard keeps every group of the organization's shard waiting until release is called.
func (s *service) holdShard() (release func()) {
	s.t.Helper()
	release, _ = s.holdRows("SELECT FROM shard_heads WHERE shard = $1 FOR UPDATE", s.org.ID.Shard())
	return release
}

// holdRows keeps the locks that a statement takes until release is called. awaited reports whether somebody waits.
func (s *service) holdRows(sql string, args ...any) (release func(), awaited func() bool) {
	s.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL)
	check(s.t, err)
	s.t.Cleanup(func() { conn.Close(ctx) })
	tx, err := conn.Begin(ctx)
	check(s.t, err)
	_, err = tx.Exec(ctx, sql, args...)
	check(s.t, err)
	return func() { check(s.t, tx.Rollback(ctx)) }, func() (yes bool) {
		const waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
		check(s.t, tx.QueryRow(ctx, waiting).Scan(&yes))
		return yes
	}
}

// batch is a batch of n declarations of documents whose references begin with a name.
func batch(name string, n int) body {
	items := make([]any, n)
	for i := range items {
		items[i] = declaration(fmt.Sprintf("%s-%d", name, i), 1, "x")
	}
	return body{"declarations": items}
}

// statuses counts the results of a batch.
func (a answer) statuses() map[int]int {
	a.t.Helper()
	count := map[int]int{}
	for _, result := range read[wire.Results[wire.Registration]](a, http.StatusOK).Results {
		count[result.Status]++
	}
	return count
}

// openCounted opens a service and counts the declarations that groups have taken from the queue.
func openCounted(t *testing.T, configure func(*eventstore.Config)) (*service, *atomic.Int64) {
	var taken atomic.Int64
	return open(t, options{ledger: func(c *eventstore.Config) {
		configure(c)
		load := c.Load
		c.Load = func(
			b *pgx.Batch, shard domain.Shard, o []domain.OrganizationID, needs domain.Needs, now time.Time, state *domain.State,
		) {
			taken.Add(int64(len(needs.Declarations)))
			load(b, shard, o, needs, now, state)
		}
	}}), &taken
}

// While nothing commits, a flooding organization causes no more signatures than its share of the queue holds. Every
// signature is committed, and another organization's registration is in the very next group.
func TestFloodOfBatches(t *testing.T) {
	const batches, size, weight, share = 12, 500, 256, 2000
	s, taken := openCounted(t, func(c *eventstore.Config) { c.GroupWeight = weight })
	quiet := *s
	quiet.org = s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	made := s.countSignatures()
	waiting := func() int { return s.Queues()[s.org.ID.Shard()].Waiting }
	release := s.holdShard()
	answers := make(chan answer, batches)
	for i := range batches {
		go func() {
			a, err := s.trySend(integrity+"/records/batch", batch(fmt.Sprintf("flood-%d", i), size))
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	s.eventually("the organization's share is prepared", func() bool { return waiting()+int(taken.Load()) == share })
	before := waiting()
	single := make(chan answer, 1)
	go func() {
		a, err := quiet.trySend(integrity+"/records", declaration("quiet", 1, "x"))
		if err != nil {
			t.Error(err)
		}
		single <- a
	}()
	s.eventually("the quiet organization's command waits", func() bool { return waiting() == before+1 })
	if n := made.Load(); n != share+1 {
		t.Errorf("%d signatures were made while nothing was committed", n)
	}
	release()
	id := (<-single).is(http.StatusCreated)["publicId"].(string)
	committed := int64(1)
	for range batches {
		a := <-answers
		if a.status == http.StatusServiceUnavailable {
			a.refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
			continue
		}
		count := a.statuses()
		committed += int64(count[http.StatusCreated])
		if count[http.StatusCreated]+count[http.StatusServiceUnavailable] != size {
			t.Errorf("a batch was answered %v", count)
		}
	}
	if committed < share+1 {
		t.Errorf("%d were committed", committed)
	}
	if n := made.Load(); n != committed {
		t.Errorf("%d signatures for %d registrations", n, committed)
	}
	var ahead int64
	check(t,
		s.Pool.QueryRow(context.Background(),
			`SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND type = 'integrity.registered'
		AND position < (SELECT position FROM events WHERE shard = $1 AND organization_id = $3 AND type = 'integrity.registered')`,
			s.org.ID.Shard(), [16]byte(s.org.ID), [16]byte(quiet.org.ID)).Scan(&ahead))
	if ahead > weight+1 {
		t.Errorf("%d registrations of the flooding organization came before %s", ahead, id)
	}
	s.Audit(t)
}

// Items beyond the queue's room are refused one by one, unsigned, and items that cannot be registered take no room.
func TestWhatIsNotAdmittedIsNotSigned(t *testing.T) {
	const share, weight = 10, 4
	s, taken := openCounted(t, func(c *eventstore.Config) { c.QueueCapacity, c.GroupWeight = 4*share, weight })
	made := s.countSignatures()
	items := batch("d", 15)["declarations"].([]any)
	items[1] = 7
	items[14] = declaration("d-14", 1, "x").with(body{"sha256": "x"})
	send := func(want map[int]int, signed int64) {
		t.Helper()
		made.Store(0)
		equal(t, "results", s.post(integrity+"/records/batch", body{"declarations": items}).statuses(), want)
		if n := made.Load(); n != signed {
			t.Errorf("%d signatures, want %d", n, signed)
		}
	}
	send(map[int]int{201: 10, 422: 2, 503: 3}, 10)
	items = append(items[11:14], items[0])
	send(map[int]int{201: 3, 200: 1}, 4)

	release := s.holdShard()
	taken.Store(0)
	answers := make(chan answer, share)
	for i := range share {
		go func() {
			a, err := s.trySend(integrity+"/records", declaration(fmt.Sprintf("single-%d", i), 1, "x"))
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	// A group holds the commands that its worker took; the rest of the share waits.
	waiting := func() int { return s.Queues()[s.org.ID.Shard()].Waiting }
	s.eventually("a group of singles is decided and the others wait", func() bool {
		return taken.Load() > 0 && waiting()+int(taken.Load()) == share
	})
	made.Store(0)
	results := make(chan answer, 1)
	go func() {
		a, err := s.trySend(integrity+"/records/batch", batch("late", 15))
		if err != nil {
			t.Error(err)
		}
		results <- a
	}()
	s.eventually("the batch's share waits", func() bool { return waiting() == share })
	s.post(integrity+"/records", declaration("one-more", 1, "x")).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	signed := int(made.Load())
	if signed != int(taken.Load()) || signed > weight {
		t.Errorf("%d signatures for the %d places that a group of singles has left", signed, taken.Load())
	}
	release()
	equal(t, "the batch", (<-results).statuses(), map[int]int{201: signed, 503: 15 - signed})
	for range share {
		(<-answers).is(http.StatusCreated)
	}
	s.Audit(t)
}

// Items beyond the month's allowance are not signed, replays succeed, and accepted items are always signed.
func TestExhaustedQuotaIsNotSigned(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 3},
		"pro": {"perMinute": 10000, "versionsPerMonth": 10}, "none": {"perMinute": 10000, "versionsPerMonth": 0}}`)})
	s.hold()
	made := s.countSignatures()
	send := func(what string, items body, signed int64, want map[int]int) {
		t.Helper()
		made.Store(0)
		equal(t, what, s.post(integrity+"/records/batch", items).statuses(), want)
		if n := made.Load(); n != signed {
			t.Errorf("%s: %d signatures, want %d", what, n, signed)
		}
	}
	send("three remain", batch("d", 20), 3, map[int]int{201: 3, 429: 17})
	send("none remains", batch("e", 20), 0, map[int]int{429: 20})
	send("replays", batch("d", 3), 0, map[int]int{200: 3})
	made.Store(0)
	s.post(integrity+"/records", declaration("e", 1, "x")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	s.post(integrity+"/records", declaration("d-0", 1, "x")).is(http.StatusOK)
	if n := made.Load(); n != 0 {
		t.Errorf("single registrations: %d signatures", n)
	}
	// Another plan takes effect at once. Seven items are signed before the decision, three of them replays. The decision
	// signs the three further items that then have room.
	s.changePlan("pro", false)
	send("seven remain", batch("d", 12), 10, map[int]int{200: 3, 201: 7, 429: 2})
	s.changePlan("none", false)
	send("a plan without versions", batch("f", 5), 0, map[int]int{403: 5})
	s.changePlan("gratis", false)
	s.at(domain.PeriodOf(s.Now()).End())
	send("another month", batch("g", 5), 3, map[int]int{201: 3, 429: 2})
	s.Audit(t)
}

// After a plan change or a revocation, at most one write of a cached key is signed in vain, and none if the key was
// only accepted beyond its limit.
func TestRefusedCallerIsForgotten(t *testing.T) {
	s := open(t,
		options{plan: "gratis",
			plans: parsePlans(
				t, `{"gratis": {"perMinute": 2, "versionsPerMonth": 10}, "none": {"perMinute": 2, "versionsPerMonth": 0}}`,
			),
			config: func(c *handlers.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }})
	s.freshMinute()
	made := s.countSignatures()
	write := func(from string, status int, signed int64) {
		t.Helper()
		made.Store(0)
		s.send(
			http.MethodPost, integrity+"/records", s.org.Secret, declaration("new", 1, "x"), "X-Forwarded-For", from,
		).is(status)
		if n := made.Load(); n != signed {
			t.Errorf("%d signatures, want %d", n, signed)
		}
	}
	s.registered("known", 1, "x")
	s.registered("known", 2, "x")
	write("192.0.2.1", http.StatusTooManyRequests, 0)
	s.skew.Add(int64(time.Minute))
	s.registered("known", 3, "x")
	s.changePlan("none", false)
	write("127.0.0.1", http.StatusForbidden, 1)
	s.skew.Add(int64(time.Minute))
	write("127.0.0.1", http.StatusForbidden, 0)
	s.skew.Add(int64(time.Minute))
	s.revokeKey(s.org.Key.ID)
	write("192.0.2.1", http.StatusUnauthorized, 0)
	write("127.0.0.1", http.StatusUnauthorized, 0)
}

// The quota that one process has cached is only a hint for its own work.
func TestAnotherProcessKnowsLess(t *testing.T) {
	o := options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 3}}`)}
	s := open(t, o)
	s.hold()
	other := s.second(o)
	equal(t, "one process", s.post(integrity+"/records/batch", batch("d", 5)).statuses(), map[int]int{201: 3, 429: 2})
	equal(t, "the other", other.post(integrity+"/records/batch", batch("d", 5)).statuses(), map[int]int{200: 3, 429: 2})
	s.Audit(t)
}

// Places in the queue for which no command arrives are released.
func TestFailedPreparationGivesItsPlaceBack(t *testing.T) {
	s := open(t, options{ledger: func(c *eventstore.Config) { c.QueueCapacity = 40 }})
	sound := s.keys.Load()
	s.keys.Store(&action.Keys{
		Signer: sound.Signer.Observed(func() func() { panic("no signature") }), Trusted: sound.Trusted,
	})
	for range 3 {
		equal(t, "results", s.post(integrity+"/records/batch", batch("d", 10)).statuses(), map[int]int{500: 10})
		s.post(integrity+"/records", declaration("e", 1, "x")).refuses(http.StatusInternalServerError, domain.Internal)
	}
	s.keys.Store(sound)
	equal(t, "results", s.post(integrity+"/records/batch", batch("d", 10)).statuses(), map[int]int{201: 10})
	s.Audit(t)
}
