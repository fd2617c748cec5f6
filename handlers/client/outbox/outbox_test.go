package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/clienttest"
	"integrityledger/handlers/wire"
)

var testTime = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// bench is an outbox with its worker, a scripted service and a clock that only sleeping moves.
type bench struct {
	t       *testing.T
	db      *sql.DB
	outbox  *Outbox
	worker  *Worker
	now     time.Time
	slept   []time.Duration
	reports []Report
	// The service: bodies holds what was declared for each document, accepted what is registered by document and version,
	// sizes how many declarations each batch had.
	requests []string
	bodies   map[string][]string
	accepted map[string]bool
	sizes    []int
	mu       sync.Mutex
	// refuse answers a request instead of the service; nil, or false, lets it through. refuseItem has results of documents
	// instead of the service's.
	refuse     func(n int, w http.ResponseWriter, r *http.Request) bool
	refuseItem map[string]string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: testTime, bodies: map[string][]string{}, accepted: map[string]bool{}, refuseItem: map[string]string{}}
	var err error
	if b.db, err = sql.Open("sqlite", filepath.Join(t.TempDir(), "origin.db")+"?_txlock=immediate&_pragma=synchronous(OFF)"); err != nil {
		t.Fatal(err)
	}
	b.db.SetMaxOpenConns(1)
	t.Cleanup(func() { b.db.Close() })
	if b.outbox, err = New(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	b.worker = b.newWorker(b.client(server.URL))
	return b
}

func (b *bench) client(base string) *client.Client {
	b.t.Helper()
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	c, err := client.New(client.Config{BaseURL: base, APIKey: key})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func (b *bench) newWorker(c *client.Client) *Worker {
	w := NewWorker(Config{
		Outbox: b.outbox, Client: c, Now: func() time.Time { return b.now },
		Report: func(r Report) { b.reports = append(b.reports, r) },
	})
	w.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		b.slept, b.now = append(b.slept, d), b.now.Add(d)
	}
	return w
}

func (b *bench) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	b.mu.Lock() // a connection that breaks tells the client nothing of when its handler has ended
	defer b.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	b.requests = append(b.requests, name)
	var batch struct{ Declarations []json.RawMessage }
	if name == "batch" {
		if err := json.Unmarshal(body, &batch); err != nil {
			b.t.Error(err)
		}
		b.sizes = append(b.sizes, len(batch.Declarations))
	}
	declared := make([]wire.Declaration, len(batch.Declarations))
	documents := map[string]bool{}
	for k, text := range batch.Declarations {
		if err := json.Unmarshal(text, &declared[k]); err != nil {
			b.t.Error(err)
		}
		document := declared[k].DocumentReference
		if documents[document] {
			b.t.Errorf("two versions of %s are under way together", document)
		}
		documents[document] = true
		b.bodies[document] = append(b.bodies[document], string(text))
	}
	if b.refuse != nil && b.refuse(len(b.requests), w, r) {
		return
	}
	version, _ := strconv.Atoi(r.URL.Query().Get("version"))
	sought := wire.VersionReference{DocumentReference: r.URL.Query().Get("documentReference"), Version: int32(version)}
	switch {
	case name == "batch":
		results := make([]string, len(declared))
		for k, d := range declared {
			if code := b.refuseItem[d.DocumentReference]; code != "" {
				results[k] = code
				continue
			}
			results[k] = `{"status":201,"data":` + b.record(d.DocumentReference, d.Version) + `,"error":null}`
			b.accepted[key(d.DocumentReference, d.Version)] = true
		}
		_, _ = fmt.Fprintf(w, `{"data":{"results":[%s]},"error":null,"meta":{}}`, strings.Join(results, ","))
	case name == "lookup" && b.accepted[key(sought.DocumentReference, sought.Version)]:
		_, _ = fmt.Fprintf(w, `{"data":%s,"error":null,"meta":{}}`, b.record(sought.DocumentReference, sought.Version))
	case name == "lookup":
		refused(404, "RECORD_NOT_FOUND")(w)
	default:
		_, _ = io.WriteString(w, `{"contract":"integrity-evidence-v1"}`)
	}
}

func (b *bench) record(document string, version int32) string {
	return fmt.Sprintf(`{"publicId":%q,"documentReference":%q,"version":%d,"sha256":%q,"replayed":%t,"usage":{"period":"2026-03"}}`,
		publicID(document), document, version, strings.Repeat("a", 64), b.accepted[key(document, version)])
}

func key(document string, version int32) string { return fmt.Sprintf("%s v%d", document, version) }

// publicID of d-1 is bbb…
func publicID(document string) string {
	return strings.Repeat(string('a'+document[len(document)-1]-'0'), 25) + "a"
}

// refusedItem is a result of a batch.
func refusedItem(status int, code string, retryable bool) string {
	return fmt.Sprintf(`{"status":%d,"data":null,"error":{"code":%q,"retryable":%t,"detail":"d"}}`, status, code, retryable)
}

func refused(status int, code string, header ...string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		retryable := status == 429 || status == 503
		_, _ = fmt.Fprintf(w, `{"data":null,"error":{"code":%q,"retryable":%t,"detail":"d"},"meta":{}}`, code, retryable)
	}
}

func declared(document string) wire.Declaration {
	return wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: document, Version: 1,
		SHA256: strings.Repeat("a", 64), SizeBytes: 1, MimeType: "application/pdf", GeneratedAt: "2026-03-01T09:29:00Z",
	}
}

func (b *bench) add(documents ...string) {
	b.t.Helper()
	for _, document := range documents {
		if err := b.addOne(declared(document)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) addOne(d wire.Declaration) error {
	tx, err := b.db.BeginTx(b.t.Context(), nil)
	if err != nil {
		return err
	}
	if err := b.outbox.Add(b.t.Context(), tx, d, b.now); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (b *bench) addVersion(document string, version int32) {
	b.t.Helper()
	d := declared(document)
	d.Version = version
	if err := b.addOne(d); err != nil {
		b.t.Fatal(err)
	}
}

// wantStates compares the states of all items, in the order of documents and versions.
func (b *bench) wantStates(want string) {
	b.t.Helper()
	var got string
	if err := b.db.QueryRowContext(b.t.Context(), `SELECT group_concat(document_reference || ' v' || version || ' ' || state, ', ')
		FROM (SELECT document_reference, version, state FROM integrity_outbox ORDER BY document_reference, version)`).Scan(&got); err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Errorf("states: %s\nwant: %s", got, want)
	}
}

// run works until nothing waits.
func (b *bench) run() {
	b.t.Helper()
	b.worker.Finish()
	if err := b.worker.Run(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) item(document string) Item {
	b.t.Helper()
	i, err := b.outbox.Find(b.t.Context(), declared(document).VersionReference())
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

func (b *bench) kinds() string {
	var kinds []string
	for _, r := range b.reports {
		kinds = append(kinds, string(r.Kind))
	}
	return strings.Join(kinds, " ")
}

func (b *bench) wantRequests(requests string) {
	b.t.Helper()
	if got := strings.Join(b.requests, " "); got != requests {
		b.t.Errorf("requests: %s\nwant: %s", got, requests)
	}
}

func (b *bench) want(requests, kinds string) {
	b.t.Helper()
	b.wantRequests(requests)
	if got := b.kinds(); got != kinds {
		b.t.Errorf("reports: %s\nwant: %s", got, kinds)
	}
}

func TestWorker(t *testing.T) {
	b := newBench(t)
	b.add("d-1", "d-2")
	b.run()
	b.want("batch evidence evidence", "sending sending answered answered stored stored exported exported finished finished")
	if i := b.item("d-2"); i.State != Done || i.Attempts != 1 || i.Response.PublicID != publicID("d-2") || string(i.Evidence) != `{"contract":"integrity-evidence-v1"}` || i.Problem != "" {
		t.Errorf("%+v", i)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || len(counts) != 1 || counts[Done] != 2 {
		t.Errorf("%v, %v", counts, err)
	}
}

// TestCorrection stops an item that needs it, with what is behind it of its document, and nothing else, and takes it up
// again when told to.
func TestCorrection(t *testing.T) {
	for status, code := range map[int]string{401: "INVALID_KEY", 403: "COMPANY_NOT_AUTHORIZED", 409: "VERSION_CONFLICT", 422: "INVALID_DATA"} {
		b := newBench(t)
		b.refuseItem["d-1"] = refusedItem(status, code, false)
		b.add("d-1", "d-2")
		b.addVersion("d-1", 2)
		b.addVersion("d-2", 2)
		b.run()
		b.want("batch batch evidence evidence", "sending sending answered halted stored sending answered stored exported exported finished finished")
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
		if bodies := b.bodies["d-1"]; len(bodies) != 3 || bodies[0] != bodies[1] || !strings.Contains(bodies[2], `"version":2`) {
			t.Errorf("%d, mended: declared %q", status, bodies)
		}
	}
}

// TestAbandon gives up what cannot be mended, for those behind it.
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

// TestOrder registers the versions of a document one after the other, in the order in which they were added, beside
// those of others.
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
	// The tables themselves refuse two at once.
	if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET state = 'waiting', response = NULL WHERE document_reference = 'd-1'`); err == nil || !strings.Contains(err.Error(), "UNIQUE") {
		t.Errorf("two versions of a document to be sent: %v", err)
	}
}

// TestBatches are of 500 at most, and a declaration for which a whole batch is refused is found and stopped alone.
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

// TestItemsWait: of a batch of which something was decided, only what was not waits; a limit makes everything wait.
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
	b.refuseItem["d-1"] = strings.Replace(refusedItem(429, "REGISTRATION_QUOTA_EXHAUSTED", true), `"retryable"`, `"retryAfter":1000,"retryable"`, 1)
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

// TestLimitedLookUps: however few requests a minute there are, look-ups that were made are not made again.
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

// TestEvidenceWaitsAlone: what keeps evidence away keeps no declaration.
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

// TestEarlierTable goes on with a table that an earlier version has made.
func TestEarlierTable(t *testing.T) {
	b := newBench(t)
	earlier, err := os.ReadFile(filepath.Join("testdata", "earlier.sql"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.ExecContext(t.Context(), `DROP TABLE integrity_outbox;`+string(earlier)); err != nil {
		t.Fatal(err)
	}
	for id, state := range map[int]string{1: "sent", 2: "waiting", 3: "sent"} {
		d := declared("d-1")
		d.Version = int32(id)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		attempts := 0
		if state == "sent" {
			attempts = 1
		}
		if _, err := b.db.ExecContext(t.Context(), `INSERT INTO integrity_outbox (id, company_reference, source, document_reference, version, declaration, state, attempts, due_at)
			VALUES (?, 'c', 's', 'd-1', ?, ?, ?, ?, 0)`, id, id, string(text), state, attempts); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing left to do
		if b.outbox, err = New(t.Context(), b.db); err != nil {
			t.Fatal(err)
		}
	}
	b.worker.config.Outbox = b.outbox
	b.wantStates("d-1 v1 sent, d-1 v2 queued, d-1 v3 queued")
	b.run()
	b.wantStates("d-1 v1 done, d-1 v2 done, d-1 v3 done")
	b.wantRequests("lookup batch batch lookup batch evidence evidence evidence")
	if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET declaration = '{}'`); err == nil || !strings.Contains(err.Error(), "never changed") {
		t.Errorf("a declaration was changed: %v", err)
	}
}

// run2 goes on with a new worker, as a new process does.
func (b *bench) run2() {
	b.t.Helper()
	b.worker = b.newWorker(b.worker.config.Client)
	b.run()
}

// TestOutcomes: the worker makes of an answer what every client must (schemas/outcome-vectors.json): it stops, or looks up
// and sends again, or sends again, and waits no shorter than it is asked to.
func TestOutcomes(t *testing.T) {
	vectors, err := clienttest.OutcomeVectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		b := newBench(t)
		b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				v.Serve(w)
			}
			return n == 1
		}
		b.add("d-1")
		answered, away := b.worker.config.Client, b.client("http://127.0.0.1:1")
		if v.Break == clienttest.NoConnection {
			b.worker.config.Client = away
			b.refuse = nil
		}
		b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
			if v.Want.RetryAfterAtLeast > 0 {
				d = math.MaxInt64 // the worker looks every minute
			}
			b.now = b.now.Add(d)
			b.worker.config.Client = answered
			if want := map[bool]State{true: Sent, false: Waiting}[v.Want.OutcomeUnknown]; b.item("d-1").State != want && len(b.slept) == 0 {
				t.Errorf("%s: %s, want %s", v.Name, b.item("d-1").State, want)
			}
			b.slept = append(b.slept, d)
		}
		b.run()
		if v.Want.Refused {
			if i := b.item("d-1"); i.State != Stopped || len(b.slept) > 0 {
				t.Errorf("%s: %+v, slept %v", v.Name, i, b.slept)
			}
			continue
		}
		least := time.Duration(max(v.Want.RetryAfter, v.Want.RetryAfterAtLeast)) * time.Second
		if i := b.item("d-1"); i.State != Done || b.now.Sub(testTime) < least || slices.Contains(b.requests, "lookup") != v.Want.OutcomeUnknown {
			t.Errorf("%s: %+v after %s, requests %v", v.Name, i, b.now.Sub(testTime), b.requests)
		}
	}
}

// TestWaits gives the service the time that it asks for, and everything behind waits as well.
func TestWaits(t *testing.T) {
	b := newBench(t)
	var at []time.Time
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		at = append(at, b.now)
		switch n {
		case 1:
			refused(429, "REGISTRATION_QUOTA_EXHAUSTED", "Retry-After", "1000")(w)
		case 2:
			refused(503, "TEMPORARILY_UNAVAILABLE", "Retry-After", "60")(w)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		}
		return n <= 3
	}
	b.add("d-1", "d-2")
	b.run()
	if len(at) < 5 || at[1].Sub(at[0]) < 1000*time.Second || at[2].Sub(at[1]) < time.Minute || at[4].Sub(at[2]) < 4*time.Second {
		t.Errorf("requests at %v", at)
	}
	// A 429 was decided; the outcome of a 503 or of a proxy's answer is not known, so these are looked up.
	if slices.Contains(b.requests[:2], "lookup") || !slices.Contains(b.requests, "lookup") {
		t.Errorf("requests: %v", b.requests)
	}
	for _, document := range []string{"d-1", "d-2"} {
		if i := b.item(document); i.State != Done {
			t.Errorf("%+v", i)
		}
	}
}

// TestAmbiguous loses the answer of a registration that arrived, and of one that did not: both end registered once, by
// a look-up and the very same bytes.
func TestAmbiguous(t *testing.T) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		b := newBench(t)
		b.refuse = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				b.accepted[key("d-1", 1)] = arrived
				panic(http.ErrAbortHandler) // the connection breaks
			}
			return false
		}
		b.add("d-1")
		b.run()
		found := "not-found"
		if arrived {
			found = "found"
		}
		b.want("batch lookup batch evidence", "sending postponed ambiguous "+found+" sending answered stored exported finished")
		if i := b.item("d-1"); i.State != Done || i.Response.Replayed != arrived || i.Attempts != 2 || b.bodies["d-1"][0] != b.bodies["d-1"][1] {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// TestInterrupted ends a worker at every step, as a crash does, and goes on with another.
func TestInterrupted(t *testing.T) {
	for _, kind := range []Kind{Sending, Answered, Stored, Exported, Finished} {
		b := newBench(t)
		b.add("d-1")
		ctx, cancel := context.WithCancel(t.Context())
		report := b.worker.config.Report
		b.worker.config.Report = func(r Report) {
			report(r)
			if r.Kind == kind {
				cancel()
			}
		}
		if err := b.worker.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", kind, err)
		}
		cancel()
		before := len(b.requests)
		b.run2()
		// What was sent, and has no answer in the database, is looked up first.
		if next := append(b.requests[before:], "nothing")[0]; next != map[Kind]string{Sending: "lookup", Answered: "evidence", Stored: "evidence", Exported: "nothing", Finished: "nothing"}[kind] {
			t.Errorf("%s: the next worker began with %s", kind, next)
		}
		if i := b.item("d-1"); i.State != Done || len(slices.Compact(slices.Clone(b.bodies["d-1"]))) != 1 {
			t.Errorf("%s: %+v %q", kind, i, b.bodies)
		}
	}
}

// TestAnswersOfOthers stops at an answer that is about something else.
func TestAnswersOfOthers(t *testing.T) {
	b := newBench(t)
	b.refuse = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w, `{"data":{"results":[{"status":201,"data":{"publicId":%q,"documentReference":"d-1","version":1,"sha256":%q,"usage":{"period":"2026-03"}}}]}}`,
			publicID("d-1"), strings.Repeat("b", 64))
		return true
	}
	b.add("d-1")
	b.run()
	b.want("batch", "sending halted")
	if i := b.item("d-1"); i.State != Stopped || i.Response != nil {
		t.Errorf("%+v", i)
	}
}

// TestAdd refuses what could never be registered, and every change of what was added.
func TestAdd(t *testing.T) {
	b := newBench(t)
	b.add("d-1")
	wrong := map[string]func(*wire.Declaration){
		"companyReference": func(d *wire.Declaration) { d.CompanyReference = "" },
		"source":           func(d *wire.Declaration) { d.Source = "a b" },
		"sha256":           func(d *wire.Declaration) { d.SHA256 = "x" },
		"version":          func(d *wire.Declaration) { d.Version = 0 },
		"mimeType":         func(d *wire.Declaration) { d.MimeType = "application/pdf; x=y" },
		"UNIQUE":           func(d *wire.Declaration) { d.DocumentReference = "d-1" },
	}
	for name, change := range wrong {
		d := declared("d-2")
		change(&d)
		if err := b.addOne(d); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET declaration = '{}'`); err == nil || !strings.Contains(err.Error(), "never changed") {
		t.Fatalf("a declaration was changed: %v", err)
	}
	// A transaction that does not commit leaves nothing to register.
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.outbox.Add(t.Context(), tx, declared("d-3"), b.now); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.run()
	if len(b.bodies) != 1 {
		t.Errorf("declared: %v", b.bodies)
	}
}

// TestUntrusted stops at evidence that does not verify, with the registration kept.
func TestUntrusted(t *testing.T) {
	b := newBench(t)
	trusted, err := evidence.NewTrustedKeys(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.worker.config.Trusted = trusted
	b.add("d-1")
	b.run()
	b.want("batch evidence", "sending answered stored halted")
	if i := b.item("d-1"); i.State != Stopped || i.Response == nil || i.Evidence != nil {
		t.Errorf("%+v", i)
	}
}

// TestWake registers what is added while the worker waits, and ends after Finish.
func TestWake(t *testing.T) {
	b := newBench(t)
	waiting := make(chan struct{}, 1)
	b.worker.sleep = func(ctx context.Context, _ time.Duration, added <-chan struct{}) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		sleep(ctx, time.Hour, added)
	}
	ended := make(chan error)
	go func() { ended <- b.worker.Run(t.Context()) }()
	<-waiting
	b.add("d-1")
	b.worker.Wake()
	<-waiting // it has nothing to do again
	b.worker.Finish()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if i := b.item("d-1"); i.State != Done {
		t.Errorf("%+v", i)
	}
}
