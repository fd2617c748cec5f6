package projections_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// damagedLedger is a ledger with some history whose tables the test can damage.
type damagedLedger struct {
	*ledgertest.Ledger
	owner  *pgxpool.Pool
	orgs   []ledgertest.Organization // two of shard 0, one of shard 2
	number atomic.Int64
}

func newDamagedLedger(t *testing.T) *damagedLedger {
	t.Helper()
	r := &damagedLedger{Ledger: ledgertest.New(t)}
	var err error
	if r.owner, err = cluster.At(r.URL).RebuildPool(context.Background(), 4); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.owner.Close)
	for _, shard := range []domain.Shard{0, 0, 2} {
		o := r.Organization(t, shard, domain.InternalPlan)
		r.orgs = append(r.orgs, o)
		r.destination(t, o)
		for i := range 12 {
			r.register(t, o, fmt.Sprintf("d-%d", i), 1)
			r.register(t, o, fmt.Sprintf("d-%d", i), 2)
		}
		withdrawn := r.register(t, o, "withdrawn", 1)
		r.Must(t, r.Revoke(t, o, withdrawn))
		r.Must(t, r.Reserve(t, o, "reserved", 1))
	}
	return r
}

func (r *damagedLedger) register(
	t *testing.T, o ledgertest.Organization, document string, version int32,
) domain.PublicID {
	t.Helper()
	c := r.Register(t, o, o.Declaration(document, version, fmt.Sprint(r.number.Add(1))))
	r.Must(t, c)
	return c.Outcome.PublicID
}

// destination adds a webhook, so that every event of the organization's company queues a delivery.
func (r *damagedLedger) destination(t *testing.T, o ledgertest.Organization) {
	t.Helper()
	key, _ := domain.NewSecretKey()
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{
			Origin: o.Origin(), URL: "https://receiver.example/hook", Types: domain.MaskOf(domain.WebhookTypes()),
		},
		key, r.Now(),
	)
	r.Must(t, create)
	r.Must(
		t, &domain.SetWebhookAccess{Origin: o.Origin(), Company: o.Company.ID, Webhook: create.Outcome.ID, Enabled: true},
	)
}

func (r *damagedLedger) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if tag, err := r.owner.Exec(context.Background(), sql, args...); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%s: %v, %v", sql, tag, err)
	}
}

// between runs statements between two groups of a shard. They run under the shard's lock, so they cannot deadlock.
func (r *damagedLedger) between(t *testing.T, shard domain.Shard, statements ...string) {
	t.Helper()
	ctx := context.Background()
	if err := pgx.BeginFunc(ctx, r.owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM public.shard_heads WHERE shard = $1 FOR UPDATE", shard); err != nil {
			return err
		}
		for _, sql := range statements {
			if tag, err := tx.Exec(ctx, sql); err != nil || tag.RowsAffected() == 0 {
				return fmt.Errorf("%s: %v, %w", sql, tag, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (r *damagedLedger) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := r.owner.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// node returns a session on the server that commits a shard's groups, which on Citus differs from the coordinator.
func (r *damagedLedger) node(t *testing.T, shard uint16) *pgxpool.Conn {
	t.Helper()
	ctx := context.Background()
	var conn *pgxpool.Conn
	var err error
	if pgtest.OnCitus() {
		var holders *cluster.Holders
		if holders, err = cluster.At(r.URL).Holders(ctx); err == nil {
			t.Cleanup(holders.Close)
			conn, _, err = holders.Nodes(1, (*cluster.Primary).CommitPool).Acquire(ctx, shard)
		}
	} else {
		conn, err = r.owner.Acquire(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn
}

// spoil removes a row of every projection of a shard, changes others and adds rows without an event. It returns the
// number of wrong rows.
func (r *damagedLedger) spoil(t *testing.T, shard domain.Shard) (wrong int) {
	t.Helper()
	tables, err := projections.Projections(context.Background(), r.owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		wrong += r.count(t, fmt.Sprintf(`WITH gone AS (DELETE FROM public.%[1]s WHERE shard = $1 AND ctid =
			(SELECT ctid FROM public.%[1]s WHERE shard = $1 ORDER BY ctid DESC LIMIT 1) RETURNING 1) SELECT count(*) FROM gone`, table), shard)
	}
	for _, change := range []string{
		"UPDATE public.documents SET highest_version = highest_version + 1 WHERE shard = $1 AND reference = 'd-1'",
		"UPDATE public.versions SET sha256 = sha256('x'), size_bytes = 7 WHERE shard = $1 AND version = 1 AND record_id " +
			"IS NOT NULL",
		"UPDATE public.feed SET status = 3 WHERE shard = $1 AND version = 2",
		"INSERT INTO public.usage SELECT shard, organization_id, period + 1, company_id, 99 FROM public.usage WHERE " +
			"shard = $1 LIMIT 1",
		"INSERT INTO public.feed SELECT shard, company_id, sequence + 1000, event_id, type, status, version, " +
			"occurred_at, document_id, public_id FROM public.feed WHERE shard = $1 LIMIT 3",
		"INSERT INTO public.feed SELECT shard, company_id, -sequence, event_id, type, status, version, " +
			"occurred_at, document_id, public_id FROM public.feed WHERE shard = $1 LIMIT 3",
	} {
		tag, err := r.owner.Exec(context.Background(), change, shard)
		if err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", change, tag, err)
		}
		wrong += int(tag.RowsAffected())
	}
	return wrong
}

// swapPublicIDs swaps the unique publicIds of the first and the last registered version of a shard.
func (r *damagedLedger) swapPublicIDs(t *testing.T, shard domain.Shard) {
	t.Helper()
	const find = `SELECT public_id FROM public.versions WHERE shard = $1 AND record_id IS NOT NULL ORDER BY document_id %s, version LIMIT 1`
	const set = `UPDATE public.versions SET public_id = $3 WHERE shard = $1 AND public_id = $2`
	var first, last [16]byte
	for order, id := range map[string]*[16]byte{"ASC": &first, "DESC": &last} {
		if err := r.owner.QueryRow(context.Background(), fmt.Sprintf(find, order), shard).Scan(id); err != nil {
			t.Fatal(err)
		}
	}
	r.exec(t, set, shard, first, [16]byte{1})
	r.exec(t, set, shard, last, first)
	r.exec(t, set, shard, [16]byte{1}, last)
}

func (r *damagedLedger) rebuild(
	t *testing.T, shard domain.Shard, change func(*projections.Rebuild),
) (projections.Rebuilt, []projections.Difference) {
	t.Helper()
	var mu sync.Mutex
	var found []projections.Difference
	b := &projections.Rebuild{Pool: r.owner, Program: "test", RangeRows: 7, MendRows: 2,
		Found: func(d projections.Difference) {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, d)
		}}
	if change != nil {
		change(b)
	}
	result, err := b.Shard(context.Background(), shard)
	if err != nil {
		t.Fatal(err)
	}
	return result, found
}

// TestRebuildRepairsEveryKindOfDamage: the check finds every wrong row and changes none. The rebuild repairs them, and
// later events are projected onto correct rows.
func TestRebuildRepairsEveryKindOfDamage(t *testing.T) {
	r := newDamagedLedger(t)
	if result, _ := r.rebuild(t, 0, nil); result.Differences != 0 || result.Events == 0 {
		t.Fatalf("of a sound shard: %+v", result)
	}
	wrong := r.spoil(t, 0)
	before := r.count(t, "SELECT count(*) FROM public.feed")
	checked, found := r.rebuild(t, 0, func(b *projections.Rebuild) { b.Check = true })
	if int(checked.Differences) != wrong || len(found) != wrong || checked.Mended != 0 ||
		r.count(t, "SELECT count(*) FROM public.feed") != before {
		t.Errorf("check: %+v, want %d differences and nothing changed", checked, wrong)
	}
	for _, change := range []func(*projections.Rebuild){
		func(*projections.Rebuild) {},
		func(b *projections.Rebuild) { b.Organization = r.orgs[0].ID },
		func(b *projections.Rebuild) { b.Only = []string{"companies", "feed"} },
		func(b *projections.Rebuild) { b.Only = []string{"usage"} },
	} {
		one, want := r.rebuild(t, 0, func(b *projections.Rebuild) { change(b); b.Check = true })
		for _, parts := range []int{3, 7} {
			several, got := r.rebuild(t, 0, func(b *projections.Rebuild) { change(b); b.Check, b.Parts = true, parts })
			if one != several || len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%d sessions: %+v %v, want %+v %v", parts, several, got, one, want)
			}
		}
	}
	kinds := map[projections.DifferenceKind]int{}
	for _, d := range found {
		kinds[d.Kind]++
		if d.Shard != 0 || len(d.Key) == 0 || (d.Kind == projections.DifferentRow) != (len(d.Columns) > 0) {
			t.Errorf("difference %+v", d)
		}
		if d.Projection == "versions" && d.Kind == projections.DifferentRow &&
			!slices.Equal(d.Columns, []string{"sha256", "size_bytes"}) {
			t.Errorf("columns of %s", d)
		}
	}
	if kinds[projections.MissingRow] == 0 || kinds[projections.ExtraRow] == 0 || kinds[projections.DifferentRow] == 0 {
		t.Errorf("kinds found: %v", kinds)
	}
	mended, again := r.rebuild(t, 0, nil)
	if int(mended.Mended) != wrong || len(again) != len(found) || mended.LongestPause == 0 {
		t.Errorf("rebuild: %+v, want %d mended", mended, wrong)
	}
	r.register(t, r.orgs[0], "d-1", 3)
	r.register(t, r.orgs[1], "d-1", 3)
	if result, found := r.rebuild(t, 0, func(b *projections.Rebuild) { b.Check = true }); result.Differences != 0 {
		t.Errorf("after the rebuild: %+v %v", result, found)
	}
	b := &projections.Rebuild{Pool: r.owner}
	if err := b.Clear(context.Background()); err != nil {
		t.Error(err)
	}
	if n := r.count(t, "SELECT count(*) FROM rebuild.versions"); n != 0 {
		t.Errorf("%d rebuilt rows after Clear", n)
	}
	r.Audit(t)
}

// TestCheckIsInOrder: a check finds the same in the same order, however many shards and parts it does at once.
func TestCheckIsInOrder(t *testing.T) {
	r := newDamagedLedger(t)
	wrong := r.spoil(t, 0) + r.spoil(t, 2)
	pool, err := cluster.At(r.URL).RebuildPool(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var want string
	for _, jobs := range []int{1, 2, 8} {
		var found []projections.Difference
		b := &projections.Rebuild{
			Pool: pool, Program: "test", RangeRows: 7, Check: true, Parts: projections.PartsOf(jobs, 2),
			Found: func(d projections.Difference) { found = append(found, d) },
		}
		done := 0
		if err := b.Shards(t.Context(), []domain.Shard{0, 2}, jobs, func(result projections.Rebuilt, err error) error {
			done += int(result.Differences)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = fmt.Sprint(found)
		}
		if got := fmt.Sprint(found); got != want || len(found) != wrong || done != wrong {
			t.Errorf("%d jobs: %d of %d differences: %s, want %s", jobs, len(found), wrong, got, want)
		}
	}
}

// TestRebuildOfSwappedRows: rows that hold each other's unique value are repaired, although neither can be repaired
// before the other.
func TestRebuildOfSwappedRows(t *testing.T) {
	r := newDamagedLedger(t)
	r.swapPublicIDs(t, 0)
	if result, found := r.rebuild(t, 0, nil); result.Differences != 2 || result.Mended != 2 {
		t.Errorf("%+v %v", result, found)
	}
	r.Audit(t)
}

// TestRebuildStaysInItsScope: one organization, one projection.
func TestRebuildStaysInItsScope(t *testing.T) {
	r := newDamagedLedger(t)
	const spoil = "UPDATE public.usage SET used = used + 5 WHERE shard = $1 AND organization_id = $2"
	for _, o := range r.orgs {
		r.exec(t, spoil, o.ID.Shard(), o.ID)
		r.exec(t, "UPDATE public.feed SET version = 9 WHERE shard = $1 AND company_id = $2", o.ID.Shard(), o.Company.ID)
	}
	only := func(b *projections.Rebuild) { b.Organization, b.Only = r.orgs[1].ID, []string{"usage"} }
	result, found := r.rebuild(t, 0, only)
	if result.Mended != 2 { // the organization's and its company's
		t.Errorf("one organization's usage: %+v %v", result, found)
	}
	for i, o := range r.orgs {
		used := r.count(
			t, "SELECT used FROM public.usage WHERE shard = $1 AND organization_id = $2 AND company_id = $3", o.ID.Shard(),
			o.ID, [16]byte{},
		)
		if want := map[bool]int{true: 25, false: 30}[i == 1]; used != want {
			t.Errorf("organization %d: %d used, want %d", i, used, want)
		}
	}
	if result, _ := r.rebuild(
		t, 0, func(b *projections.Rebuild) { b.Organization = r.orgs[1].ID },
	); result.Differences == 0 {
		t.Error("the feed of the organization was mended too")
	}
	r.rebuild(t, 0, nil)
	r.rebuild(t, 2, nil)
	r.Audit(t)
}

// TestRebuildBesideWritersLosesNothing: registrations continue during a rebuild of the rows that they change, all rows
// are correct afterwards, and no delivery is queued twice.
func TestRebuildBesideWritersLosesNothing(t *testing.T) {
	r := newDamagedLedger(t)
	ctx, stop := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for w := range 4 {
		o := r.orgs[w%2]
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				d := o.Declaration(fmt.Sprintf("w-%d-%d", w, i%5), int32(1+i/5), fmt.Sprint(r.number.Add(1)))
				c := r.Registrar.PrepareUnsigned(o.Origin(), o.Key.ID, domain.KeyLimits{}, d, r.Now())
				if err := r.Do(context.Background(), c); err != nil {
					t.Errorf("registration during the rebuild: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		check := func(b *projections.Rebuild) { b.Check, b.MendRows, b.RangeRows = true, 500, 1000 }
		if result, found := r.rebuild(t, 0, check); result.Differences != 0 {
			t.Errorf("of sound tables: %+v, first %v", result, found[0])
		}
		r.between(t, 0,
			"UPDATE public.versions SET mime_type = 'text/x-wrong' WHERE shard = 0 AND version = 1 AND record_id IS NOT NULL",
			"UPDATE public.feed SET status = 3 WHERE shard = 0 AND version = 1",
			"DELETE FROM public.feed WHERE shard = 0 AND version = 2",
			"UPDATE public.usage SET used = used + 1 WHERE shard = 0")
		result, _ := r.rebuild(t, 0, func(b *projections.Rebuild) { b.MendRows, b.RangeRows = 500, 1000 })
		if result.Mended == 0 {
			t.Error("nothing was mended")
		}
	}
	stop()
	writers.Wait()
	if result, found := r.rebuild(t, 0, func(b *projections.Rebuild) { b.Check = true }); result.Differences != 0 {
		t.Errorf("after the writers: %+v, first %v", result, found[0])
	}
	logs := r.Audit(t)
	events := 0
	for _, e := range slices.Concat(logs[0], logs[2]) {
		switch e.Body.(type) {
		case *domain.RecordRegisteredBody, *domain.RecordSupersededBody, *domain.RecordRevokedBody:
			events++
		}
	}
	if n := r.count(t, "SELECT count(*) FROM webhook_deliveries"); n != events {
		t.Errorf("%d deliveries for %d events of the feed", n, events)
	}
}

// TestMendWaitsForTheGroupUnderWay: a rebuild waits if a group has written a row that it needs to replace but has not
// committed yet.
func TestMendWaitsForTheGroupUnderWay(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *damagedLedger){
		"a row that the group changes": func(t *testing.T, r *damagedLedger) {
			r.exec(t, "UPDATE public.usage SET used = used + 5 WHERE shard = 0 AND organization_id = $1", r.orgs[0].ID)
		},
		"rows that have to wait for others": func(t *testing.T, r *damagedLedger) { r.swapPublicIDs(t, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newDamagedLedger(t)
			ctx := context.Background()
			spoil(t, r)
			gatekeeper := r.node(t, 0)
			if _, err := gatekeeper.Exec(ctx, "SELECT pg_advisory_lock(77)"); err != nil {
				t.Fatal(err)
			}
			slow := r.Process(t, r.URL, func(c *eventstore.Config) {
				c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
					err := projections.Apply(b, shard, events)
					b.Queue("SET LOCAL lock_timeout = '4min'")
					b.Queue("SET LOCAL statement_timeout = '4min'")
					b.Queue("SELECT pg_advisory_xact_lock(77)")
					return err
				}
			})
			wait := func(sessions int) {
				for r.count(t, pgtest.LockWaits()) < sessions {
				}
			}
			o := r.orgs[0]
			command := r.Register(t, o, o.Declaration("d-1", 3, "three"))
			var wg sync.WaitGroup
			begin := sync.OnceFunc(func() {
				wg.Go(func() {
					if err := slow.Do(ctx, command); err != nil {
						t.Error(err)
					}
				})
				wait(1)
				wg.Go(func() {
					wait(2) // the rebuild too
					if _, err := gatekeeper.Exec(ctx, "SELECT pg_advisory_unlock(77)"); err != nil {
						t.Error(err)
					}
				})
			})
			result, _ := r.rebuild(t, 0, func(b *projections.Rebuild) {
				b.MendRows, b.Found = 1, func(projections.Difference) { begin() }
			})
			wg.Wait()
			if result.Mended == 0 {
				t.Error("nothing was mended")
			}
			r.Audit(t)
		})
	}
}

// letGo waits for the end of a cancelled session, which releases its lock on the shard.
func (r *damagedLedger) letGo(t *testing.T) {
	t.Helper()
	pgtest.Eventually(t, "no rebuild has its lock", func() (bool, error) {
		return pgtest.Ask[bool](r.URL, `SELECT NOT EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
}

// TestInterruptedRebuildIsContinued: an interrupted rebuild is continued by the same program, and repairs each row
// once.
func TestInterruptedRebuildIsContinued(t *testing.T) {
	r := newDamagedLedger(t)
	wrong := r.spoil(t, 0)
	mended := 0
	for broken := 0; ; broken++ {
		ctx, breakOff := context.WithCancel(context.Background())
		seen := 0
		b := &projections.Rebuild{Pool: r.owner, Program: "test", RangeRows: 5, MendRows: 2,
			Found: func(projections.Difference) {
				if seen++; seen == 6 {
					breakOff()
				}
			}}
		result, err := b.Shard(ctx, 0)
		breakOff()
		r.letGo(t)
		if broken > 0 && result.Resumed == 0 {
			t.Errorf("rebuild %d began anew: %+v", broken, result)
		}
		mended += int(result.Mended)
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if broken > wrong {
			t.Fatal("it never ends")
		}
	}
	if mended != wrong {
		t.Errorf("%d rows were mended, %d were wrong", mended, wrong)
	}
	ctx, breakOff := context.WithCancel(context.Background())
	b := &projections.Rebuild{Pool: r.owner, Program: "test", Replayed: func(domain.Shard, int64, int64) { breakOff() }}
	if _, err := b.Shard(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("broken off: %v", err)
	}
	r.letGo(t)
	if result, _ := r.rebuild(t, 0, func(b *projections.Rebuild) { b.Program = "another" }); result.Resumed != 0 ||
		result.Differences != 0 {
		t.Errorf("by another program: %+v", result)
	}
	r.Audit(t)
}

// TestTwoRebuildsOfAShardExcludeEachOther: rebuilds of the same shard exclude each other, but rebuilds of two shards do
// not.
func TestTwoRebuildsOfAShardExcludeEachOther(t *testing.T) {
	r := newDamagedLedger(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := &projections.Rebuild{Pool: r.owner, Program: "test", Replayed: func(domain.Shard, int64, int64) {
		once.Do(func() { close(entered) })
		<-leave
	}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := first.Shard(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	<-entered
	second := &projections.Rebuild{Pool: r.owner, Program: "test"}
	if _, err := second.Shard(context.Background(), 0); !errors.Is(err, projections.ErrRebuilding) {
		t.Errorf("the same shard: %v", err)
	}
	if _, err := second.Shard(context.Background(), 2); err != nil {
		t.Errorf("another shard: %v", err)
	}
	if err := second.Clear(context.Background()); err != nil {
		t.Error(err)
	}
	close(leave)
	wg.Wait()
	unlocked := func(after string) {
		t.Helper()
		if n := r.count(
			t,
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = x'72656275'::int::oid AND database = "+
				"(SELECT oid FROM pg_database WHERE datname = current_database())",
		); n != 0 {
			t.Errorf("after %s %d shards stay locked", after, n)
		}
	}
	unlocked("two rebuilds")
	// A broken connection would release the lock by itself, so use another error.
	stranger := domain.NewOrganizationID(r.Now(), 0)
	if _, err := (&projections.Rebuild{
		Pool: r.owner, Program: "test", Organization: stranger,
	}).Shard(context.Background(), 0); !errors.Is(err, projections.ErrNoOrganization) {
		t.Errorf("of nobody: %v", err)
	}
	unlocked("one that failed")
	if result, _ := r.rebuild(t, 0, nil); result.Differences != 0 {
		t.Errorf("after both: %+v", result)
	}
}
