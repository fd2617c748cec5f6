package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
	"integrityledger/projections/ledgertest"
)

// holding is how long a drill's load runs between two faults.
const holding = 7 * time.Second

// failOnLie is a transport that fails the test on a 5xx answer other than 503, and on a 503 without Retry-After.
type failOnLie struct{ t *testing.T }

func (h failOnLie) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	unavailable := response.StatusCode == http.StatusServiceUnavailable
	if response.StatusCode >= http.StatusInternalServerError && !unavailable ||
		unavailable && response.Header.Get("Retry-After") == "" {
		h.t.Errorf("%s %s: %d, Retry-After %q", r.Method, r.URL.Path, response.StatusCode, response.Header.Get("Retry-After"))
	}
	return response, nil
}

// drill is a load on one service: writers, a feed reader and a comparing reader, all at once.
type drill struct {
	t       *testing.T
	dir     string
	base    string
	key     string
	client  *http.Client
	writers []*writer
	stop    atomic.Bool
	count   atomic.Int64
	all     sync.WaitGroup

	compared atomic.Int64 // comparisons that had a result
	followed map[string]int
	cursor   int64
}

// startDrill creates a ledger in an external database and an account, and serves it.
func startDrill(t *testing.T, env ...string) *drill {
	t.Helper()
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, env, "migrate", "--issuer", "ledger-of-the-drill")
	for _, step := range []string{"--stage", "--activate"} {
		must(t, env, "keys", "rotate", "--transparency-log", step, "--data-dir", dir)
	}
	key := externalAccount(t, env)
	s := surroundings{env: append(env, "INTEGRITY_PUBLIC_PER_MINUTE=10000000")}.start(t, dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tail(s.log))
		}
	})
	l := &drill{
		t: t, dir: dir, base: s.base, key: key, client: &http.Client{Transport: failOnLie{t}, Timeout: 45 * time.Second},
		followed: map[string]int{},
	}
	l.begin(16)
	return l
}

// beside adds another organization's load to the same service, in a separate shard.
func (l *drill) beside(key string, writers int) *drill {
	o := &drill{t: l.t, dir: l.dir, base: l.base, key: key, client: l.client, followed: map[string]int{}}
	o.begin(writers)
	return o
}

func (l *drill) begin(writers int) {
	for i := range writers {
		w := &writer{client: l.client}
		l.writers = append(l.writers, w)
		l.all.Go(func() { w.run(l.t, "writer"+strconv.Itoa(i), l.base, l.key, "c", &l.stop, &l.count) })
	}
	l.all.Go(l.compare)
	l.all.Go(l.follow)
	l.t.Cleanup(l.end)
}

func (l *drill) end() {
	l.stop.Store(true)
	l.all.Wait()
	l.client.CloseIdleConnections()
}

// hold keeps the load running, requires acknowledged registrations, and logs how many there are a second.
func (l *drill) hold(name string) {
	l.t.Helper()
	from, began := l.count.Load(), time.Now()
	eventually(l.t, name+": registrations go on", func() error {
		if n := l.count.Load() - from; n < 200 || time.Since(began) < holding {
			return fmt.Errorf("%d acknowledged in %s", n, time.Since(began))
		}
		return nil
	})
	l.t.Logf("%s: %.0f registrations a second", name, float64(l.count.Load()-from)/time.Since(began).Seconds())
}

// compare compares one record with the right hash, again and again: the only allowed result is a match.
func (l *drill) compare() {
	d := wire.Declaration{
		CompanyReference: "c", Source: "drill", DocumentReference: "compared", Version: 1, SHA256: strings.Repeat("ab", 32),
		MimeType:    "text/plain",
		GeneratedAt: "2026-01-02T03:04:05Z",
	}
	var record wire.Registration
	for record.PublicID == "" && !l.stop.Load() {
		// until it is acknowledged
		_, _ = call(l.client, http.MethodPost, l.base+"/api/v1/integrity/records", l.key, d, &record)
	}
	for !l.stop.Load() {
		var comparison struct{ Result string }
		status, err := call(
			l.client, http.MethodGet, l.base+"/api/public/integrity/"+record.PublicID+"?sha256="+d.SHA256, "", nil, &comparison,
		)
		switch {
		case err != nil || status == http.StatusServiceUnavailable:
		case status != http.StatusOK || comparison.Result != "MATCH_CURRENT":
			l.t.Errorf("a comparison was answered with %d %q", status, comparison.Result)
			return
		default:
			l.compared.Add(1)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// follow reads the feed from the beginning: sequences must grow.
func (l *drill) follow() {
	for !l.stop.Load() {
		l.page()
		time.Sleep(20 * time.Millisecond)
	}
}

// page reads the next page; more reports whether it had any events.
func (l *drill) page() (more bool) {
	var page struct {
		Events     []wire.FeedEvent
		NextCursor int64
	}
	status, err := call(
		l.client, http.MethodGet,
		l.base+"/api/v1/integrity/changes?companyReference=c&limit=200&after="+strconv.FormatInt(l.cursor, 10), l.key, nil,
		&page,
	)
	if err != nil || status != http.StatusOK {
		if err == nil && status != http.StatusServiceUnavailable {
			l.t.Errorf("the feed after %d was answered with %d", l.cursor, status)
		}
		return true
	}
	for _, e := range page.Events {
		if e.Sequence <= l.cursor {
			l.t.Errorf("the feed goes from sequence %d to %d", l.cursor, e.Sequence)
		}
		if l.cursor = e.Sequence; e.Type == domain.RecordRegistered {
			l.followed[e.PublicID]++
		}
	}
	return len(page.Events) > 0
}

// silence returns the longest time without an acknowledgement between two non-zero times. The load must have ended.
func (l *drill) silence(from, to time.Time) time.Duration {
	var times []time.Time
	for _, w := range l.writers {
		for _, ack := range w.acks {
			if ack.at.After(from) && (to.IsZero() || ack.at.Before(to)) {
				times = append(times, ack.at)
			}
		}
	}
	for _, end := range []time.Time{from, to} {
		if !end.IsZero() {
			times = append(times, end)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	longest := time.Duration(0)
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i].Sub(times[i-1]))
	}
	return longest
}

// nothingLost ends the load, sends every acknowledged declaration again, and requires that it is in the log once and in
// the feed that was read. database is the ledger's current URL.
func (l *drill) nothingLost(database string) {
	l.t.Helper()
	l.stop.Store(true)
	l.all.Wait()
	if l.t.Failed() {
		return
	}
	l.found(ledgertest.Attach(l.t, database).Audit(l.t))
}

// found looks for the acknowledged declarations in the log of the organization's shard, after the load.
func (l *drill) found(logs map[domain.Shard][]domain.Event) {
	l.t.Helper()
	var acks []acknowledged
	attempts := 0
	for _, w := range l.writers {
		acks, attempts = append(acks, w.acks...), attempts+w.attempts
	}
	for some := range slices.Chunk(acks, 500) {
		l.replay(some)
	}
	const compared = 1 // the record that compare uses
	registered := map[string]int{}
	for _, e := range logs[domain.Shard(shardOf(l.t, l.key))] {
		if e.Type == domain.RecordRegistered {
			registered[e.Subject]++
		}
	}
	eventually(l.t, "the feed is read to its end", func() error {
		if l.page() {
			return fmt.Errorf("it goes on at %d", l.cursor)
		}
		return nil
	})
	for name, seen := range map[string]map[string]int{"log": registered, "feed": l.followed} {
		if len(seen) != len(acks)+compared {
			l.t.Errorf("%d registrations in the %s, %d were acknowledged", len(seen), name, len(acks)+compared)
		}
		for _, ack := range acks {
			if seen[ack.publicID] != 1 {
				l.t.Errorf("%s is %d times in the %s", ack.publicID, seen[ack.publicID], name)
			}
		}
	}
	l.t.Logf("%d registrations acknowledged in %d attempts, %d comparisons; lost 0, doubled 0; longest silence %s",
		len(acks), attempts, l.compared.Load(), l.silence(time.Time{}, time.Time{}).Round(time.Millisecond))
}

// replay sends acknowledged declarations once more.
func (l *drill) replay(acks []acknowledged) {
	l.t.Helper()
	declarations := make([]wire.Declaration, len(acks))
	for i, ack := range acks {
		declarations[i] = ack.declaration
	}
	var answer wire.Results[wire.Registration]
	eventually(l.t, "replay", func() error {
		answer = wire.Results[wire.Registration]{}
		status, err := call(
			l.client, http.MethodPost, l.base+"/api/v1/integrity/records/batch", l.key,
			map[string]any{"declarations": declarations}, &answer,
		)
		if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable ||
			status == http.StatusOK && len(answer.Results) != len(acks) {
			l.t.Fatalf("replay: %d with %d results", status, len(answer.Results))
		}
		if err == nil && slices.ContainsFunc(answer.Results, func(r wire.Result[wire.Registration]) bool {
			return r.Status == http.StatusServiceUnavailable
		}) {
			status = http.StatusServiceUnavailable
		}
		if err != nil || status != http.StatusOK { // however busy the machine, acknowledged declarations stay
			return fmt.Errorf("%d %w", status, err)
		}
		return nil
	})
	for i, r := range answer.Results {
		if r.Status != http.StatusOK || r.Data == nil || !r.Data.Replayed || r.Data.PublicID != acks[i].publicID {
			l.t.Errorf("%s was acknowledged; now %+v", acks[i].publicID, r)
		}
	}
}

// TestFailover kills the primary of a synchronous pair under load and promotes the standby, then brings the killed
// server back as a second primary that does not know of the promotion. The service runs throughout.
func TestFailover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	cluster := pgtest.NewCluster(t, true)
	metrics := freeAddress(t)
	l := startDrill(
		t, "INTEGRITY_DATABASE_URL="+cluster.URL(t), "INTEGRITY_REPLICA_URL="+cluster.StandbyURL(),
		"INTEGRITY_METRICS_LISTEN="+metrics,
	)
	l.hold("with both servers")
	eventually(t, "the replica answers readers", func() error {
		now := scrapeOf(t, metrics)
		if answered, found := now.Sum("integrity_replica_reads_total", "outcome", "answered"); !found || answered < 1 {
			return fmt.Errorf("%v answers", answered)
		}
		return now.Want(16, "integrity_pool_max_connections", "pool", "replica")
	})
	cluster.Kill(t, cluster.Primary)
	killed := time.Now()
	cluster.Promote(t)
	t.Logf("promoted %s after the loss", time.Since(killed).Round(time.Millisecond))
	l.hold("after the promotion")
	cluster.ReturnPrimary(t)
	const heads = "SELECT sum(position)::bigint FROM shard_heads"
	former, err := pgtest.Ask[int64](cluster.PrimaryURL(), heads)
	if err != nil {
		t.Fatal(err)
	}
	// Every connection is opened again, and the former primary comes first in the URL.
	pgtest.Exec(
		t, cluster.StandbyURL(),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'integrity %'",
	)
	l.hold("with two primaries")
	l.nothingLost(cluster.StandbyURL())
	if now, err := pgtest.Ask[int64](cluster.PrimaryURL(), heads); err != nil || now != former {
		t.Errorf("the former primary was written: %d events became %d: %v", former, now, err)
	}
}

// TestFaultsBeforeTheDatabase injects network faults between the service and its database, under load. No answer is
// wrong meanwhile, and afterwards the service recovers by itself.
func TestFaultsBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for weather")
	}
	cluster := pgtest.NewCluster(t, false)
	proxy := pgtest.NewProxy(t, cluster.PrimaryURL())
	l := startDrill(t, "INTEGRITY_DATABASE_URL="+proxy.URL)
	l.hold("fair weather")
	faults := []struct {
		name  string
		lasts time.Duration
		begin func()
	}{
		{"latency", holding, func() { proxy.Set(pgtest.Weather{Latency: 15 * time.Millisecond}) }},
		{"slow drip", holding, func() { proxy.Set(pgtest.Weather{Latency: time.Millisecond, Piece: 512}) }},
		{"cut", 0, proxy.Cut},
		{"cut again", 0, proxy.Cut},
		{"database away", 2 * time.Second, func() { proxy.Set(pgtest.Weather{Away: true}); proxy.Cut() }},
		{"hole", 3 * time.Second, func() { proxy.Set(pgtest.Weather{Hole: true}) }},
		{"half-open connections", 0, proxy.Strand},
		{"long hole", 20 * time.Second, func() { proxy.Set(pgtest.Weather{Hole: true}) }},
	}
	for _, fault := range faults {
		before := l.count.Load()
		fault.begin()
		time.Sleep(fault.lasts) // the fault lasts this long
		if n := l.count.Load() - before; fault.lasts > 0 {
			t.Logf("%s for %s: %d registrations", fault.name, fault.lasts, n)
		}
		proxy.Set(pgtest.Weather{})
		l.hold("after " + fault.name)
	}
	l.nothingLost(cluster.PrimaryURL())
}
