package outbox

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWorker(t *testing.T) {
	b := newBench(t)
	b.add("d-1", "d-2")
	b.run()
	b.want(
		"batch evidence evidence", "sending sending answered answered stored stored exported exported finished finished",
	)
	if i := b.item("d-2"); i.State != Done || i.Attempts != 1 || i.Response.PublicID != publicID("d-2") ||
		string(i.Evidence) != `{"contract":"integrity-evidence-v1","payload":"x"}` || i.Problem != "" {
		t.Errorf("%+v", i)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || len(counts) != 1 || counts[Done] != 2 {
		t.Errorf("%v, %v", counts, err)
	}
}

// An item that needs correction stops with the later versions of its document, and nothing else. Retry resumes it.
func TestCorrection(t *testing.T) {
	for status, code := range map[int]string{
		401: "INVALID_KEY", 403: "COMPANY_NOT_AUTHORIZED", 409: "VERSION_CONFLICT", 422: "INVALID_DATA",
	} {
		b := newBench(t)
		b.refuseItem["d-1"] = refusedItem(status, code, false)
		b.add("d-1", "d-2")
		b.addVersion("d-1", 2)
		b.addVersion("d-2", 2)
		b.run()
		b.want(
			"batch evidence batch evidence",
			"sending sending answered halted stored exported finished sending answered stored exported finished",
		)
		if i := b.item("d-1"); i.State != Stopped || !strings.Contains(i.Problem, code) || len(b.slept) != 0 {
			t.Errorf("%d: %+v, slept %v", status, i, b.slept)
		}
		b.wantStates("d-1 v1 stopped, d-1 v2 queued, d-2 v1 done, d-2 v2 done")
		if n, err := b.outbox.Retry(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		delete(b.refuseItem, "d-1")
		b.run2()
		b.wantStates("d-1 v1 done, d-1 v2 done, d-2 v1 done, d-2 v2 done")
		if bodies := b.bodies["d-1"]; len(bodies) != 3 || bodies[0] != bodies[1] ||
			!strings.Contains(bodies[2], `"version":2`) {
			t.Errorf("%d, mended: declared %q", status, bodies)
		}
	}
}

// Abandon gives up an item that cannot be corrected, so that later versions can proceed.
func TestAbandon(t *testing.T) {
	b := newBench(t)
	b.refuseItem["d-1"] = refusedItem(409, "VERSION_CONFLICT", false)
	b.add("d-1")
	if err := b.outbox.Abandon(t.Context(), declared("d-1").VersionReference()); err == nil {
		t.Error("what has not stopped was abandoned")
	}
	b.run()
	b.addVersion("d-1", 2)
	b.addVersion("d-1", 3)
	delete(b.refuseItem, "d-1")
	b.run2()
	b.wantStates("d-1 v1 stopped, d-1 v2 queued, d-1 v3 queued")
	if err := b.outbox.Abandon(t.Context(), declared("d-1").VersionReference()); err != nil {
		t.Fatal(err)
	}
	b.run2()
	b.wantStates("d-1 v1 abandoned, d-1 v2 done, d-1 v3 done")
	if n, err := b.outbox.Retry(t.Context()); err != nil || n != 0 {
		t.Errorf("%d were taken up again, %v", n, err)
	}
}

// The versions of a document are registered one after another in the order in which they were added, independently of
// other documents.
func TestOrder(t *testing.T) {
	b := newBench(t)
	for _, version := range []int32{2, 1, 3} {
		b.addVersion("d-1", version)
	}
	b.add("d-2", "d-3")
	b.run()
	var versions []string
	for _, body := range b.bodies["d-1"] {
		versions = append(versions, body[strings.Index(body, `"version"`):][10:11])
	}
	if got := strings.Join(versions, ""); got != "213" || !slices.Equal(b.sizes, []int{3, 1, 1}) {
		t.Errorf("registered in the order %s, in batches of %v", got, b.sizes)
	}
	// The tables themselves refuse two versions at the same time.
	if _, err := b.db.ExecContext(
		t.Context(), `UPDATE integrity_outbox SET state = 'waiting', response = NULL WHERE document_reference = 'd-1'`,
	); err == nil || !strings.Contains(err.Error(), "UNIQUE") {
		t.Errorf("two versions of a document to be sent: %v", err)
	}
}

// Batches have at most 500 declarations. A single declaration for which a whole batch is refused is found and stopped.
func TestBatches(t *testing.T) {
	b := newBench(t)
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const spoilt = "d-701"
	for n := range 1100 {
		if err := b.outbox.Add(t.Context(), tx, declared(fmt.Sprintf("d-%d", n)), b.now); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/batch") {
			return false
		}
		if bodies := b.bodies[spoilt]; len(bodies) > asked {
			asked = len(bodies)
			refused(422, "INVALID_DATA")(w)
			return true
		}
		return false
	}
	b.run()
	if b.sizes[0] != 500 || b.sizes[1] != 500 || slices.Max(b.sizes) != 500 || b.item(spoilt).State != Stopped {
		t.Errorf("batches of %v", b.sizes)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts[Done] != 1099 || counts[Stopped] != 1 {
		t.Errorf("%v, %v", counts, err)
	}
	for document, bodies := range b.bodies {
		if len(slices.Compact(slices.Clone(bodies))) != 1 {
			t.Errorf("%s was declared in different ways", document)
		}
	}
	if slices.Contains(b.requests, "lookup") {
		t.Error("what a whole batch was refused for was looked up: nothing of it was done")
	}
}

// If part of a batch was decided, only the undecided items wait. A limit makes all items wait.
func TestItemsWait(t *testing.T) {
	b := newBench(t)
	b.refuseItem["d-1"] = refusedItem(503, "TEMPORARILY_UNAVAILABLE", true)
	b.add("d-1", "d-2")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if b.slept = append(b.slept, d); len(b.slept) == 1 {
			b.wantStates("d-1 v1 sent, d-2 v1 done")
			b.add("d-3") // it goes on meanwhile
			return
		}
		b.now = b.now.Add(d)
		b.wantStates("d-1 v1 sent, d-2 v1 done, d-3 v1 done")
		delete(b.refuseItem, "d-1")
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done, d-3 v1 done")
	if !slices.Contains(b.requests, "lookup") {
		t.Error("the outcome of a 503 is not known, and was not looked up")
	}

	b = newBench(t)
	b.refuseItem["d-1"] = strings.Replace(
		refusedItem(429, "REGISTRATION_QUOTA_EXHAUSTED", true), `"retryable"`, `"retryAfter":1000,"retryable"`, 1,
	)
	b.add("d-1", "d-2")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if b.now = b.now.Add(d); len(b.slept) == 0 {
			b.add("d-3")
		}
		b.slept = append(b.slept, d)
		if b.now.Sub(testTime) < 1000*time.Second {
			b.wantStates("d-1 v1 waiting, d-2 v1 done, d-3 v1 waiting")
		} else {
			delete(b.refuseItem, "d-1")
		}
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done, d-3 v1 done")
	if len(b.slept) < 2 || slices.Contains(b.requests, "lookup") {
		t.Errorf("slept %v, requests %v", b.slept, b.requests)
	}
}

// However few requests a minute are allowed, look-ups are not repeated.
func TestLimitedLookUps(t *testing.T) {
	b := newBench(t)
	const least = 5 // requests a minute
	left := 0
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			panic(http.ErrAbortHandler)
		}
		if left--; left < 0 {
			refused(429, "RATE_LIMITED", "Retry-After", "60")(w)
			return true
		}
		return false
	}
	sleep := b.worker.sleep
	b.worker.sleep = func(ctx context.Context, d time.Duration, added <-chan struct{}) {
		left = least
		sleep(ctx, d, added)
	}
	for n := range 40 {
		b.add(fmt.Sprintf("d-%d", n))
	}
	b.run()
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts[Done] != 40 || len(b.bodies["d-0"]) > 3 {
		t.Errorf("%v, %v; declared %d times", counts, err, len(b.bodies["d-0"]))
	}
}

// A problem with evidence delays no declaration.
func TestEvidenceWaitsAlone(t *testing.T) {
	b := newBench(t)
	away := true
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if away && strings.HasSuffix(r.URL.Path, "/evidence") {
			refused(503, "TEMPORARILY_UNAVAILABLE", "Retry-After", "3600")(w)
			return true
		}
		return false
	}
	b.add("d-1")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if b.slept = append(b.slept, d); len(b.slept) == 1 {
			b.add("d-2")
			return
		}
		b.wantStates("d-1 v1 registered, d-2 v1 registered")
		b.now = b.now.Add(time.Hour)
		away = false
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done")
}

// A steady flow of declarations that fills no batch does not delay evidence.
func TestEvidenceBesideDeclarations(t *testing.T) {
	b := newBench(t)
	added := 1
	report := b.worker.config.Report
	b.worker.config.Report = func(r Report) {
		if report(r); r.Kind == Stored && added < 40 {
			added++
			b.add(fmt.Sprintf("d-%d", added))
		}
	}
	b.add("d-1")
	b.run()
	if first := slices.Index(b.requests, "evidence"); first != 1 || b.item("d-40").State != Done {
		t.Errorf("requests: %v", b.requests)
	}
}

// A batch that the service never answers, for example because a proxy finds it too large, is split into smaller ones.
func TestTooMuchTogether(t *testing.T) {
	b := newBench(t)
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/batch") && b.sizes[len(b.sizes)-1] > 3 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return true
		}
		return false
	}
	for n := range 20 {
		b.add(fmt.Sprintf("d-%d", n))
	}
	b.run()
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts[Done] != 20 {
		t.Errorf("%v, %v; batches of %v", counts, err, b.sizes)
	}
}

// An item that was added while the clock was ahead is still sent.
func TestClockPutBack(t *testing.T) {
	b := newBench(t)
	b.now = testTime.AddDate(10, 0, 0)
	b.add("d-1")
	b.now = testTime
	b.worker.sleep = func(context.Context, time.Duration, <-chan struct{}) {
		b.slept, b.now = append(b.slept, 0), b.now.AddDate(10, 0, 0)
	}
	b.run()
	if b.item("d-1").State != Done || len(b.slept) != 0 {
		t.Errorf("%+v, slept %v", b.item("d-1"), b.slept)
	}
}

// A late update by one worker overwrites neither the progress of another worker nor a decision of the operator.
func TestTwoWorkers(t *testing.T) {
	b := newBench(t)
	b.add("d-1", "d-2")
	late, given := b.item("d-1"), b.item("d-2")
	b.refuseItem["d-2"] = refusedItem(409, "VERSION_CONFLICT", false)
	b.addVersion("d-2", 2)
	b.addVersion("d-2", 3)
	b.run()
	if err := b.outbox.Abandon(t.Context(), declared("d-2").VersionReference()); err != nil {
		t.Fatal(err)
	}
	done := b.item("d-1")
	for _, state := range []State{Sent, Stopped, Registered} {
		late.State, late.Response = state, done.Response
		given.State = state
		if state == Registered {
			given.Response = done.Response
		}
		if err := b.outbox.save(t.Context(), late, given); err != nil {
			t.Fatal(err)
		}
		b.wantStates("d-1 v1 done, d-2 v1 abandoned, d-2 v2 waiting, d-2 v3 queued")
	}
	if i := b.item("d-1"); string(i.Evidence) != string(done.Evidence) || i.Response == nil {
		t.Errorf("%+v", i)
	}
}
