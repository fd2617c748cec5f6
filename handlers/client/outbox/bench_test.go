package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

var testTime = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// bench is an outbox with its worker, a scripted service, and a clock that only sleeping advances.
type bench struct {
	t       *testing.T
	db      *sql.DB
	outbox  *Outbox
	worker  *Worker
	now     time.Time
	slept   []time.Duration
	reports []Report
	// The service: bodies has the declarations of each document, accepted the registrations by document and version, and
	// sizes the number of declarations in each batch.
	requests []string
	bodies   map[string][]string
	accepted map[string]bool
	sizes    []int
	mu       sync.Mutex
	// refuse answers a request instead of the service; nil or false lets the request through. refuseItem overrides the
	// results of documents.
	refuse     func(n int, w http.ResponseWriter, r *http.Request) bool
	refuseItem map[string]string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		t: t, now: testTime, bodies: map[string][]string{}, accepted: map[string]bool{}, refuseItem: map[string]string{},
	}
	var err error
	if b.db, err = sql.Open(
		"sqlite", filepath.Join(t.TempDir(), "origin.db")+"?_txlock=immediate&_pragma=synchronous(OFF)",
	); err != nil {
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
	b.mu.Lock() // after a broken connection the handler may still be running
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
		_, _ = io.WriteString(w, `{"contract":"integrity-evidence-v1","payload":"x"}`)
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

// refusedItem is a refused result in a batch.
func refusedItem(status int, code string, retryable bool) string {
	return fmt.Sprintf(
		`{"status":%d,"data":null,"error":{"code":%q,"retryable":%t,"detail":"d"}}`, status, code, retryable,
	)
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
	if err := b.db.QueryRowContext(b.t.Context(),
		`SELECT group_concat(document_reference || ' v' || version || ' ' || state, ', ')
		FROM (SELECT document_reference, version, state FROM integrity_outbox ORDER BY document_reference, version)`).Scan(&got); err != nil {
		b.t.Fatal(err)
	}
	if got != want {
		b.t.Errorf("states: %s\nwant: %s", got, want)
	}
}

// run works until no item waits.
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

// run2 continues with a new worker, as a new process does.
func (b *bench) run2() {
	b.t.Helper()
	b.worker = b.newWorker(b.worker.config.Client)
	b.run()
}
