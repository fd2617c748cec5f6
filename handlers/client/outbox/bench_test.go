package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox/outboxtest"
	"integrityledger/handlers/wire"
)

var testTime = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

func TestMain(m *testing.M) { pgtest.Main(m) }

// databases are the addresses of an empty database of each kind.
func databases() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return pgtest.New(t) },
		"MariaDB":    func(t *testing.T) string { return outboxtest.NewMariaDB(t).Database("origin") },
		"SQLite": func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "origin.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return "sqlite:" + path
		},
	}
}

// bench is an outbox with its worker, a scripted service, and a clock that only sleeping advances: the worker's, and the
// skew of the database's.
type bench struct {
	t       *testing.T
	db      *sql.DB
	outbox  *Outbox
	worker  *Worker
	now     time.Time
	slept   []time.Duration
	reports []Report
	batches []Batch
	// The service: bodies has the declarations of each document, accepted the registrations by document and version, and
	// sizes the number of declarations in each batch.
	requests []string
	bodies   map[string][]string
	accepted map[string]bool
	sizes    []int
	mu       sync.Mutex
	// refuse answers a request instead of the service; nil or false lets the request through. refuseItem overrides the
	// results of documents. evidence is the evidence of every record; empty while its proof of inclusion may still come.
	refuse     func(n int, w http.ResponseWriter, r *http.Request) bool
	refuseItem map[string]string
	evidence   string
}

// receipt has the form of complete evidence.
const receipt = `{"contract":"integrity-evidence-v1","payload":"x","inclusion":{"leafIndex":0}}`

// newBench empties the outbox at an address.
func newBench(t *testing.T, address string) *bench {
	t.Helper()
	b := &bench{
		t: t, now: testTime, bodies: map[string][]string{}, accepted: map[string]bool{}, refuseItem: map[string]string{},
		evidence: receipt,
	}
	var err error
	if b.outbox, err = Open(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.outbox.Close() })
	b.db = b.outbox.db
	b.exec(`DELETE FROM integrity_outbox`)
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	b.worker = b.newWorker(b.client(server.URL))
	return b
}

func (b *bench) exec(statement string, args ...any) {
	b.t.Helper()
	if _, err := b.db.ExecContext(context.Background(), b.outbox.dialect.bind(statement), args...); err != nil {
		b.t.Fatal(err)
	}
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
		Outbox: b.outbox, Client: c, Now: func() time.Time { return b.now }, Poll: time.Minute,
		Report: func(r Report) { b.reports = append(b.reports, r) },
		Batch:  func(r Batch) { b.batches = append(b.batches, r) },
	})
	w.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) { b.pass(d) }
	return w
}

// pass lets time pass on both clocks.
func (b *bench) pass(d time.Duration) {
	b.slept, b.now, b.outbox.skew = append(b.slept, d), b.now.Add(d), b.outbox.skew+d
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
		var asked wire.EvidenceRequest
		if err := json.Unmarshal(body, &asked); err != nil {
			b.t.Error(err)
		}
		result := `{"status":200,"data":` + b.evidence + `,"error":null}`
		if b.evidence == "" {
			result = refusedItem(409, "INCLUSION_PENDING", true)
		}
		results := slices.Repeat([]string{result}, len(asked.PublicIDs))
		_, _ = fmt.Fprintf(w, `{"data":{"results":[%s]},"error":null,"meta":{}}`, strings.Join(results, ","))
	}
}

func (b *bench) record(document string, version int32) string {
	return fmt.Sprintf(`{"publicId":%q,"documentReference":%q,"version":%d,"sha256":%q,"replayed":%t,"verificationUrl":"https://ledger.example/%s","usage":{"period":"2026-03"}}`,
		publicID(document), document, version, strings.Repeat("a", 64), b.accepted[key(document, version)],
		publicID(document))
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
	if err := b.outbox.Add(b.t.Context(), tx, d); err != nil {
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

// wantStates compares the states of all rows, in the order of documents and versions.
func (b *bench) wantStates(want string) {
	b.t.Helper()
	items, err := b.outbox.query(b.t.Context(), b.db, `SELECT `+columns+` FROM integrity_outbox`)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.SortFunc(items, func(one, other Item) int {
		return cmp.Or(
			cmp.Compare(one.Declaration.DocumentReference, other.Declaration.DocumentReference),
			cmp.Compare(one.Declaration.Version, other.Declaration.Version),
		)
	})
	var states []string
	for _, i := range items {
		state := string(i.State)
		switch {
		case i.Complete:
			state = "done"
		case i.Halted:
			state = "halted"
		case i.Sent:
			state = "sent"
		}
		states = append(states, key(i.Declaration.DocumentReference, i.Declaration.Version)+" "+state)
	}
	if got := strings.Join(states, ", "); got != want {
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
