package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
	"integrityledger/migrations"
	"integrityledger/projections/query"
)

const readAfter = "Integrity-Read-After"

// replicated is a service with a standby whose replay a test can pause.
type replicated struct {
	*service
	cluster *pgtest.Cluster
	replica *query.Replica
}

func openReplicated(t *testing.T, now func() time.Time) *replicated {
	t.Helper()
	pgtest.OneServer(t, "a primary and its standby are servers of their own")
	r := &replicated{cluster: pgtest.NewCluster(t, false)}
	ctx := context.Background()
	check(t, migrations.Up(ctx, r.cluster.PrimaryURL()))
	pool, err := cluster.At(r.cluster.PrimaryURL()).ReplicaPool(ctx, connect.Fixed(r.cluster.StandbyURL()), 8)
	check(t, err)
	t.Cleanup(pool.Close)
	r.replica = &query.Replica{Pool: pool, Now: now, Log: slog.New(slog.DiscardHandler), Timeout: patience}
	r.service = open(t, options{url: r.cluster.PrimaryURL(), config: func(c *handlers.Config) {
		c.Store.Replica = r.replica
	}})
	pgtest.Eventually(t, "the ledger is on the replica", func() (bool, error) {
		return true, r.replica.Check(ctx, r.Installation)
	})
	return r
}

// pause stops the replay at the organization's present sequence, and returns it.
func (r *replicated) pause() int64 {
	r.t.Helper()
	head := r.head()
	pgtest.Eventually(r.t, "the standby has replayed everything", func() (bool, error) {
		return pgtest.Ask[bool](
			r.cluster.StandbyURL(), fmt.Sprintf("SELECT coalesce(max(sequence), 0) >= %d FROM organization_state", head),
		)
	})
	pgtest.Exec(r.t, r.cluster.StandbyURL(), "SELECT pg_wal_replay_pause()")
	pgtest.Eventually(r.t, "the replay is held up", func() (bool, error) {
		return pgtest.Ask[bool](r.cluster.StandbyURL(), "SELECT pg_get_wal_replay_pause_state() = 'paused'")
	})
	return head
}

func (r *replicated) head() int64 {
	return r.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
}

// answered returns the number of do's requests that the replica has answered.
func (r *replicated) answered(do func()) int64 {
	before := r.replica.Count().Answered
	do()
	return r.replica.Count().Answered - before
}

func (r *replicated) after(path, key string, sequence int64) answer {
	r.t.Helper()
	return r.send(http.MethodGet, path, key, nil, readAfter, strconv.FormatInt(sequence, 10))
}

func sequences(a answer) (list []int64) {
	a.t.Helper()
	for _, e := range read[wire.Feed[wire.FeedEvent]](a, http.StatusOK).Events {
		list = append(list, e.Sequence)
	}
	return list
}

const feed = integrity + "/changes?companyReference=company-1"

// A replica that has caught up answers all requests that it may answer, and gets no others.
func TestReplicaAnswersWhereItIsNewEnough(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	id := r.registered("a", 1, "one")
	r.pause()
	lookup := integrity + "/lookup?companyReference=company-1&source=billing&documentReference=a&version=1"
	for path, want := range map[string]int64{
		integrity + "/records/" + id: 1, lookup: 1, integrity + "/lookup?publicId=" + id: 1,
		integrity + "/records?sha256=" + hash("one"): 1, integrity + "/companies": 1,
		integrity + "/records?companyReference=company-1":                                    1,
		integrity + "/records?companyReference=company-1&source=billing&documentReference=a": 1,
		integrity + "/reservations?companyReference=company-1":                               1,
		integrity + "/companies?all=true":                                                    1, feed: 1,
		"/api/v1/artifacts": 1, "/api/v1/audit-events": 1, "/api/v1/metrics/detectors": 1,
		integrity + "/records/" + id + "/evidence": 0, integrity + "/usage": 0, "/api/v1/me": 0,
		"/api/public/integrity/" + id + "?sha256=" + hash("one"): 0,
	} {
		for _, header := range [][]string{nil, {readAfter, "1"}} {
			got := r.answered(func() {
				if a := r.send(http.MethodGet, path, r.org.Secret, nil, header...); a.status != http.StatusOK {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			})
			if got != want {
				t.Errorf("%s %v: the replica gave %d answers, want %d", path, header, got, want)
			}
		}
	}
	another := r.Installation
	another.Secret = append(domain.LedgerSecret{}, another.Secret...)
	another.Secret[0]++
	if err := r.replica.Check(context.Background(), another); !errors.Is(err, query.ErrAnotherLedger) {
		t.Errorf("a replica of another ledger: %v", err)
	}
	for _, bad := range []string{"", "-1", "01", "x", "9007199254740992"} {
		r.send(http.MethodGet, feed, r.org.Secret, nil, readAfter, bad).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)
	}
}

// While the replica is behind, every caller sees what it has written or read.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	revoked := r.registered("a", 1, "one")
	old := r.pause()

	created := r.post(integrity+"/records", declaration("b", 1, "two"))
	id := created.is(http.StatusCreated)["publicId"].(string)
	written, err := strconv.ParseInt(created.header.Get("Integrity-Sequence"), 10, 64)
	check(t, err)
	if written != old+1 || written != r.head() {
		t.Fatalf("Integrity-Sequence %d after %d", written, old)
	}
	lookup := integrity + "/lookup?companyReference=company-1&source=billing&documentReference=b&version=1"
	for _, path := range []string{integrity + "/records/" + id, lookup} {
		r.get(path).is(http.StatusOK)
		r.after(path, r.org.Secret, written).is(http.StatusOK)
		r.after(path, r.org.Secret, old).is(http.StatusOK) // only the primary may say that a record is unknown
	}
	// Evidence comes from the primary, even if the reader accepts an earlier state.
	if a := r.after(integrity+"/records/"+id+"/evidence", r.org.Secret, old); a.status != http.StatusOK {
		t.Errorf("evidence of what the replica lacks: %d %s", a.status, a.body)
	}
	search := integrity + "/records?sha256=" + hash("two")
	for sequence, want := range map[int64]int{old: 0, written: 1} {
		if got := len(r.after(search, r.org.Secret, sequence).is(http.StatusOK)["records"].([]any)); got != want {
			t.Errorf("search after %d finds %d, want %d", sequence, got, want)
		}
	}

	// A following page includes everything that existed when the previous page was read.
	r.registered("b", 2, "three")
	list := integrity + "/records?companyReference=company-1&limit=1"
	page := read[wire.Records](r.get(list), http.StatusOK)
	page = read[wire.Records](r.after(list+"&after="+*page.NextCursor, r.org.Secret, old), http.StatusOK)
	equal(t, "the page behind the newest", page.Records[0].PublicID, id)

	revocation := r.post(integrity+"/records/"+revoked+"/revoke", nil)
	revocation.is(http.StatusOK)
	revokedAt, err := strconv.ParseInt(revocation.header.Get("Integrity-Sequence"), 10, 64)
	check(t, err)
	status := func(a answer) any { return a.is(http.StatusOK)["status"] }
	path := integrity + "/records/" + revoked
	if got := status(r.get(path)); got != "revoked" {
		t.Errorf("without a header: %v", got)
	}
	if got := status(r.after(path, r.org.Secret, revokedAt)); got != "revoked" {
		t.Errorf("after the revocation: %v", got)
	}
	if got := r.answered(func() {
		if got := status(r.after(path, r.org.Secret, old)); got != "current" {
			t.Errorf("after an earlier sequence: %v", got)
		}
	}); got != 1 {
		t.Error("the replica was not asked")
	}
	if got := r.public(
		"/api/public/integrity/" + revoked + "?sha256=" + hash("one"),
	).is(http.StatusOK)["result"]; got != "RECORD_REVOKED" {
		t.Errorf("compared: %v", got)
	}
}

// While the replica lacks a client's writes, the client still sees them. Once the replica has them, it answers the
// client, even if others have written since.
func TestClientsReadTheirWrites(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	ctx := context.Background()
	c, err := client.New(client.Config{BaseURL: r.http.URL, APIKey: r.org.Secret})
	check(t, err)
	t.Cleanup(c.Close)
	register := func(document, content string) wire.Registration {
		t.Helper()
		record, err := c.Register(ctx, wire.Declaration{
			CompanyReference: "company-1", Source: "billing", DocumentReference: document, Version: 1, SHA256: hash(content),
			SizeBytes: 3, MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
		})
		check(t, err)
		return record
	}
	wantRevoked := func(publicID string, want int64) {
		t.Helper()
		got := r.answered(func() {
			found, err := c.Record(ctx, publicID)
			check(t, err)
			if found.Status != "revoked" {
				t.Errorf("the record is %s", found.Status)
			}
		})
		if got != want {
			t.Errorf("the replica gave %d answers, want %d", got, want)
		}
	}
	record := register("a", "one")
	r.pause()
	_, err = c.Revoke(ctx, record.PublicID, "")
	check(t, err)
	wantRevoked(record.PublicID, 0)
	pgtest.Exec(t, r.cluster.StandbyURL(), "SELECT pg_wal_replay_resume()")
	r.pause()
	r.registered("b", 1, "somebody else's")
	wantRevoked(record.PublicID, 1)
}

// Any mixture of servers gives the same feed: no event is missing or repeated, and only the primary says that a cursor
// is ahead.
func TestFeedOfAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	for i := range 8 {
		r.registered("a", i+1, "early")
	}
	old := r.pause()
	for i := range 5 {
		r.registered("b", i+1, "late")
	}
	head := r.head()
	want := sequences(r.get(feed))
	if len(want) != 2*(8+5)-2 || want[len(want)-1] != head {
		t.Fatalf("without a header: %v, head %d", want, head)
	}
	for _, header := range []int64{-1, 0, old - 3, old, old + 2, head} {
		for _, limit := range []int{1, 3, 7, 100} {
			var got []int64
			cursor := int64(0)
			for range 100 {
				page := feed + "&limit=" + strconv.Itoa(limit) + "&after=" + strconv.FormatInt(cursor, 10)
				a := r.get(page)
				if header >= 0 {
					a = r.after(page, r.org.Secret, header)
				}
				got = append(got, sequences(a)...)
				next := int64(a.is(http.StatusOK)["nextCursor"].(float64))
				if next < cursor {
					t.Fatalf("the cursor goes back from %d to %d", cursor, next)
				}
				if next == cursor {
					break
				}
				cursor = next
			}
			whole := want
			if 0 <= header && header <= old { // the replica's end was new enough
				whole = want[:slices.Index(want, old)+1]
			}
			equal(t, fmt.Sprintf("feed read after %d in pages of %d", header, limit), got, whole)
		}
	}
	if got := r.answered(func() { r.get(feed + "&limit=7") }); got != 1 {
		t.Error("a full page was not the replica's")
	}
	if got := r.answered(func() { sequences(r.get(feed + "&after=" + strconv.FormatInt(old, 10))) }); got != 0 {
		t.Error("the end of the feed was the replica's, who does not know it")
	}
	r.after(feed+"&after="+strconv.FormatInt(head, 10), r.org.Secret, 0).is(http.StatusOK)
	r.after(feed+"&after="+strconv.FormatInt(head+1, 10), r.org.Secret, 0).refuses(
		http.StatusUnprocessableEntity, domain.CursorAhead,
	)

	// A reader that waits at the replica's end does not wait for the replica.
	equal(
		t, "events of a wait", sequences(r.after(feed+"&wait=25&after="+strconv.FormatInt(old, 10), r.org.Secret, 0)),
		want[slices.Index(want, old)+1:],
	)

	// The primary wakes a reader that waits at the end, and the reader gets the events even if it accepts an earlier
	// state.
	type result struct {
		answer answer
		err    error
	}
	waited := make(chan result, 1)
	go func() {
		request := r.request(http.MethodGet, feed+"&wait=25&after="+strconv.FormatInt(head, 10), r.org.Secret, nil)
		request.Header.Set(readAfter, "0")
		a, err := r.tryExchange(request)
		waited <- result{a, err}
	}()
	pgtest.Eventually(t, "somebody waits", func() (bool, error) { return r.waiting() == 1, nil })
	r.registered("c", 1, "while waiting")
	got := <-waited
	check(t, got.err)
	equal(t, "events after the wait", sequences(got.answer), []int64{head + 1})

	pgtest.Exec(t, r.cluster.StandbyURL(), "SELECT pg_wal_replay_resume()")
	r.pause()
	if got := r.answered(func() { equal(t, "whole feed", len(sequences(r.get(feed))), len(want)+1) }); got != 1 {
		t.Error("a replica that has caught up was not asked")
	}
}

// A replica from before a rebuild of the feed answers no reader with the later epoch, because its rows are not
// repaired.
func TestFeedOfAReplicaFromBeforeARebuild(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	for i := range 8 {
		r.registered("a", i+1, "one")
	}
	page := func(want int64) {
		t.Helper()
		if got := r.answered(func() { r.get(feed + "&limit=7").is(http.StatusOK) }); got != want {
			t.Errorf("the replica gave %d answers, want %d", got, want)
		}
	}
	r.pause()
	page(1)
	pgtest.Exec(t, r.cluster.PrimaryURL(), "UPDATE ledger SET feed_epoch = epoch + 7")
	page(0)
	pgtest.Exec(t, r.cluster.StandbyURL(), "SELECT pg_wal_replay_resume()")
	pgtest.Eventually(t, "the replica has the new epoch", func() (bool, error) {
		return pgtest.Ask[bool](r.cluster.StandbyURL(), "SELECT feed_epoch IS NOT NULL FROM ledger")
	})
	page(1)
}

// If the primary waits for its standby, the standby has a commit before the primary shows it. The feed still returns no
// cursor that the primary would call ahead.
func TestFeedOfAReplicaThatIsAhead(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	r.registered("a", 1, "one")
	head := r.head()
	primary := r.cluster.PrimaryURL()
	// The first read of a head after a commit prunes its page, which writes WAL, so counting a request would wait too.
	pgtest.Exec(t, primary, "SELECT count(position) FROM shard_heads")
	pgtest.Exec(t, primary, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
	pgtest.Exec(t, primary, "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "commits wait", func() (bool, error) {
		return pgtest.Ask[bool](primary, "SELECT current_setting('synchronous_standby_names') = 'absent'")
	})
	type result struct {
		answer answer
		err    error
	}
	registered := make(chan result, 1)
	go func() {
		a, err := r.trySend(integrity+"/records", declaration("b", 1, "two"))
		registered <- result{a, err}
	}()
	pgtest.Eventually(t, "the standby is ahead", func() (bool, error) {
		return pgtest.Ask[bool](
			r.cluster.StandbyURL(), fmt.Sprintf("SELECT max(sequence) > %d FROM organization_state", head),
		)
	})
	if got := r.answered(func() { equal(t, "feed", sequences(r.get(feed)), []int64{head}) }); got != 1 {
		t.Error("the replica was not asked")
	}
	if r.head() != head {
		t.Error("the primary has not waited")
	}
	pgtest.Exec(t, primary, "ALTER SYSTEM RESET synchronous_standby_names")
	pgtest.Exec(t, primary, "SELECT pg_reload_conf()")
	got := <-registered
	check(t, got.err)
	got.answer.is(http.StatusCreated)
}

// A replica that lacks a grant gives no page over all companies: the page would pass events that its reader may read.
func TestFeedOfAllCompaniesAtAReplica(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	second := r.Company(t, r.org, "company-2")
	r.Grant(t, r.org, r.org.Key.ID, second.ID, true)
	r.in("company-1", r.org.Secret, 1)
	r.in("company-2", r.org.Secret, 1)
	r.Grant(t, r.org, r.org.Key.ID, second.ID, false)
	r.pause()
	shows := func(events int, answers int64) {
		t.Helper()
		got := r.answered(func() {
			if got := len(sequences(r.after(everything+"&limit=1000", r.org.Secret, 0))); got != events {
				t.Errorf("%d events, want %d", got, events)
			}
		})
		if got != answers {
			t.Errorf("the replica gave %d answers, want %d", got, answers)
		}
	}
	shows(1, 1)
	r.Grant(t, r.org, r.org.Key.ID, second.ID, true)
	shows(2, 0)
}

// A withdrawn grant gives no access, even if the replica has not replayed the withdrawal.
func TestReplicaDoesNotKnowThatAGrantIsGone(t *testing.T) {
	t.Parallel()
	r := openReplicated(t, time.Now)
	id := r.registered("a", 1, "one")
	key, secret := r.Key(t, r.org, domain.IntegrityRead)
	r.Grant(t, r.org, key.ID, r.org.Company.ID, true)
	r.pause()
	if got := r.answered(func() { r.after(integrity+"/records/"+id, secret, 0).is(http.StatusOK) }); got != 1 {
		t.Fatal("the replica was not asked")
	}
	r.Grant(t, r.org, key.ID, r.org.Company.ID, false)
	for _, header := range [][]string{nil, {readAfter, "0"}} {
		ask := func(path string) answer { return r.send(http.MethodGet, integrity+path, secret, nil, header...) }
		ask("/records/"+id).refuses(http.StatusNotFound, domain.RecordNotFound)
		ask(
			"/lookup?companyReference=company-1&source=billing&documentReference=a&version=1",
		).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
		ask("/changes?companyReference=company-1").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
		equal(t, "search", ask("/records?sha256=" + hash("one")).is(http.StatusOK)["records"], []any{})
		equal(t, "companies", ask("/companies").is(http.StatusOK)["companies"], []any{})
	}
}

// If the replica is unavailable, every request is still answered.
func TestReplicaAway(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := openReplicated(t, func() time.Time { return now })
	id := r.registered("a", 1, "one")
	r.pause()
	r.cluster.Kill(t, r.cluster.Standby)
	for range 3 {
		r.after(integrity+"/records/"+id, r.org.Secret, 0).is(http.StatusOK)
		equal(t, "feed", len(sequences(r.get(feed))), 1)
	}
	if count := r.replica.Count(); count.Failed != 1 {
		t.Errorf("%+v, want one failure and then a rest", count)
	}
}
