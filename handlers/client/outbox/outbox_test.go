package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
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
	// The service: bodies holds what was declared for each document, accepted what is registered.
	requests []string
	bodies   map[string][]string
	accepted map[string]bool
	mu       sync.Mutex
	// refuse answers a request instead of the service; nil, or false, lets it through.
	refuse func(n int, w http.ResponseWriter, r *http.Request) bool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: testTime, bodies: map[string][]string{}, accepted: map[string]bool{}}
	var err error
	if b.db, err = sql.Open("sqlite", filepath.Join(t.TempDir(), "origin.db")+"?_txlock=immediate"); err != nil {
		t.Fatal(err)
	}
	b.db.SetMaxOpenConns(1)
	t.Cleanup(func() { b.db.Close() })
	if b.outbox, err = New(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	c, err := client.New(client.Config{BaseURL: server.URL, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b.worker = b.newWorker(c)
	return b
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
	accept := func() {}
	document := r.URL.Query().Get("documentReference")
	if name == "records" {
		for part := range strings.SplitSeq(string(body), `"`) {
			if strings.HasPrefix(part, "d-") {
				document = part
			}
		}
		b.bodies[document] = append(b.bodies[document], string(body))
		accept = func() { b.accepted[document] = true }
	}
	if b.refuse != nil && b.refuse(len(b.requests), w, r) {
		return
	}
	record := fmt.Sprintf(`{"data":{"publicId":%q,"documentReference":%q,"version":1,"sha256":%q,"replayed":%t,"usage":{"period":"2026-03"}},"error":null,"meta":{}}`,
		publicID(document), document, strings.Repeat("a", 64), b.accepted[document])
	switch {
	case name == "records":
		accept()
		_, _ = io.WriteString(w, record)
	case name == "lookup" && b.accepted[document]:
		_, _ = io.WriteString(w, record)
	case name == "lookup":
		refused(404, "RECORD_NOT_FOUND")(w)
	default:
		_, _ = io.WriteString(w, `{"contract":"integrity-evidence-v1"}`)
	}
}

// publicID of d-1 is bbb…
func publicID(document string) string {
	if document == "" {
		return ""
	}
	return strings.Repeat(string('a'+document[len(document)-1]-'0'), 25) + "a"
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

func (b *bench) want(requests, kinds string) {
	b.t.Helper()
	if got := strings.Join(b.requests, " "); got != requests {
		b.t.Errorf("requests: %s\nwant: %s", got, requests)
	}
	if got := b.kinds(); got != kinds {
		b.t.Errorf("reports: %s\nwant: %s", got, kinds)
	}
}

func TestWorker(t *testing.T) {
	b := newBench(t)
	b.add("d-1", "d-2")
	b.run()
	b.want("records evidence records evidence", strings.TrimSpace(strings.Repeat("sending answered stored exported finished ", 2)))
	if i := b.item("d-2"); i.State != Done || i.Attempts != 1 || i.Response.PublicID != publicID("d-2") || string(i.Evidence) != `{"contract":"integrity-evidence-v1"}` || i.Problem != "" {
		t.Errorf("%+v", i)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || len(counts) != 1 || counts[Done] != 2 {
		t.Errorf("%v, %v", counts, err)
	}
}

// TestCorrection stops an item that needs it, and nothing else, and takes it up again when told to.
func TestCorrection(t *testing.T) {
	for status, code := range map[int]string{401: "INVALID_KEY", 403: "COMPANY_NOT_AUTHORIZED", 409: "VERSION_CONFLICT", 422: "INVALID_DATA"} {
		b := newBench(t)
		b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				refused(status, code)(w)
			}
			return n == 1
		}
		b.add("d-1", "d-2")
		b.run()
		b.want("records records evidence", "sending halted sending answered stored exported finished")
		if i := b.item("d-1"); i.State != Stopped || !strings.Contains(i.Problem, code) || len(b.slept) != 0 {
			t.Errorf("%d: %+v, slept %v", status, i, b.slept)
		}
		if n, err := b.outbox.Retry(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		b.run2()
		if i := b.item("d-1"); i.State != Done || len(b.bodies["d-1"]) != 2 || b.bodies["d-1"][0] != b.bodies["d-1"][1] {
			t.Errorf("%d, mended: %+v, declared %q", status, i, b.bodies["d-1"])
		}
	}
}

// run2 goes on with a new worker, as a new process does.
func (b *bench) run2() {
	b.t.Helper()
	b.worker = b.newWorker(b.worker.config.Client)
	b.run()
}

// TestLateBodyIsSentAgain: a body that was cut off for its pace was not decided about.
func TestLateBodyIsSentAgain(t *testing.T) {
	b := newBench(t)
	refusals := 0
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n > 1 {
			return false
		}
		refusals++
		refused(408, "REQUEST_TIMEOUT", "Retry-After", "1")(w)
		return true
	}
	b.add("d-1")
	b.run()
	if i := b.item("d-1"); refusals != 1 || i.State != Done {
		t.Errorf("after %d refusals: %+v", refusals, i)
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
	if len(at) < 4 || at[1].Sub(at[0]) < 1000*time.Second || at[2].Sub(at[1]) < time.Minute || at[3].Sub(at[2]) < 4*time.Second {
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
				b.accepted["d-1"] = arrived
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
		b.want("records lookup records evidence", "sending postponed ambiguous "+found+" sending answered stored exported finished")
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
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/records") {
			_, _ = fmt.Fprintf(w, `{"data":{"publicId":%q,"documentReference":"d-1","version":1,"sha256":%q,"usage":{"period":"2026-03"}}}`, publicID("d-1"), strings.Repeat("b", 64))
			return true
		}
		return false
	}
	b.add("d-1")
	b.run()
	b.want("records", "sending halted")
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
	b.want("records evidence", "sending answered stored halted")
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
