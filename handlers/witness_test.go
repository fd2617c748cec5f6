package handlers_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
	"integrityledger/projections/ledgertest"
)

// witnessed is a witness behind its handler, and a known log with one leaf.
type witnessed struct {
	t      *testing.T
	server *httptest.Server
	pool   *pgxpool.Pool
	signer note.Signer
	now    time.Time
	seen   []string // log and outcome of each submission
}

func newWitnessed(t *testing.T, perMinute int) *witnessed {
	t.Helper()
	l := ledgertest.New(t)
	pool, err := cluster.At(l.URL).WitnessPool(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	private, public, err := note.GenerateKey(rand.Reader, "log.example/log")
	if err != nil {
		t.Fatal(err)
	}
	w := &witnessed{t: t, pool: pool, now: time.Now().Truncate(time.Minute)}
	if w.signer, err = note.NewSigner(private); err != nil {
		t.Fatal(err)
	}
	logs, err := witness.ParseLogs(public)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := witness.NewSigner("witness.example/w", evidence.GenerateSigner())
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return w.now }
	discard := slog.New(slog.DiscardHandler)
	w.server = httptest.NewServer(handlers.NewWitness(handlers.WitnessConfig{
		Witness: &witness.Witness{Pool: pool, Signer: signer, Now: clock, Log: discard}, Logs: func() witness.Logs {
			return logs
		},
		Now: clock, Log: discard, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, PerMinute: perMinute,
		Observe: func(log string, outcome handlers.WitnessOutcome, _ int64) {
			w.seen = append(w.seen, log+" "+string(outcome))
		},
	}))
	t.Cleanup(w.server.Close)
	return w
}

// checkpoint signs a tree with one leaf, or claims a tree of another size.
func (w *witnessed) checkpoint(size int64, leaf string) string {
	signed, err := note.Sign(
		&note.Note{Text: fmt.Sprintf("log.example/log\n%d\n%s\n", size, tlog.RecordHash([]byte(leaf)))}, w.signer,
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(signed)
}

func (w *witnessed) ask(method, path, from, body string) (status int, header http.Header, text string) {
	w.t.Helper()
	r, err := http.NewRequest(method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", from)
	answer, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(read)
}

// The witness gives every answer of C2SP tlog-witness, and makes its checks in that order.
func TestWitnessAnswers(t *testing.T) {
	w := newWitnessed(t, 1000)
	stranger, _, err := note.GenerateKey(rand.Reader, "log.example/log")
	if err != nil {
		t.Fatal(err)
	}
	forger, err := note.NewSigner(stranger)
	if err != nil {
		t.Fatal(err)
	}
	known := w.signer
	w.signer = forger
	forged := w.checkpoint(1, "a")
	w.signer = known
	first, log := w.checkpoint(1, "a"), "log.example/log"
	for _, step := range []struct {
		name, body string
		status     int
		media      string
		text       string // the beginning of the answer
		outcome    string
	}{
		{"malformed", "old x\n\n" + first, 400, "text/plain; charset=utf-8", "the body must be", " malformed"},
		{
			"another origin", "old 0\n\n" + strings.Replace(first, "log.example", "other.example", 1), 404,
			"text/plain; charset=utf-8", "checkpoints of this origin", " untrusted",
		},
		{
			"another key, and an old size that is too large", "old 9\n\n" + forged, 403, "text/plain; charset=utf-8",
			"the checkpoint must be signed", " untrusted",
		},
		{
			"an old size that is too large", "old 2\n\n" + first, 400, "text/plain; charset=utf-8", "the old size",
			" malformed",
		},
		{
			"a proof from nothing", "old 0\n" + tlog.Hash{}.String() + "\n\n" + first, 422, "text/plain; charset=utf-8",
			"the consistency proof", log + " bad-proof",
		},
		{"the first", "old 0\n\n" + first, 200, "text/plain; charset=utf-8", "— witness.example/w ", log + " cosigned"},
		{"a stale size", "old 0\n\n" + first, 409, "text/x.tlog.size", "1\n", log + " stale"},
		{"again", "old 1\n\n" + first, 200, "text/plain; charset=utf-8", "— witness.example/w ", log + " cosigned"},
		{
			"another root", "old 1\n\n" + w.checkpoint(1, "b"), 409, "text/plain; charset=utf-8",
			"a checkpoint of this size with another root", log + " split-view",
		},
		{
			"no proof", "old 1\n\n" + w.checkpoint(2, "b"), 422, "text/plain; charset=utf-8", "the consistency proof",
			log + " bad-proof",
		},
		{
			"too large", "old 1\n\n" + first + strings.Repeat("x", witness.MaxBodyBytes), 413, "text/plain; charset=utf-8",
			"the body must be", " malformed",
		},
	} {
		w.seen = nil
		status, header, text := w.ask(http.MethodPost, "/add-checkpoint", "192.0.2.1", step.body)
		if status != step.status || header.Get("Content-Type") != step.media || !strings.HasPrefix(text, step.text) ||
			strings.Join(w.seen, ",") != step.outcome {
			t.Errorf("%s: %d, %s, %q, seen %v", step.name, status, header.Get("Content-Type"), text, w.seen)
		}
	}
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/add-checkpoint": 405} {
		if got, _, _ := w.ask(http.MethodGet, path, "192.0.2.1", ""); got != status {
			t.Errorf("GET %s answers %d", path, got)
		}
	}
}

// An address may send a number of submissions a minute. A log is limited only for submissions that it alone can cause:
// a stranger who repeats its public checkpoints uses up none of its limit.
func TestWitnessLimits(t *testing.T) {
	w := newWitnessed(t, 3)
	first := "old 0\n\n" + w.checkpoint(1, "a")
	post := func(from, body string) (int, http.Header) {
		t.Helper()
		status, header, _ := w.ask(http.MethodPost, "/add-checkpoint", from, body)
		return status, header
	}
	for range 3 {
		if status, _ := post("192.0.2.1", "nonsense"); status != http.StatusBadRequest {
			t.Fatal(status)
		}
	}
	if status, header := post("192.0.2.1", first); status != http.StatusTooManyRequests ||
		header.Get("Retry-After") != "60" {
		t.Errorf("the fourth of an address: %d, %v", status, header)
	}
	unsigned := strings.Replace(first, "\n1\n", "\n2\n", 1)
	again := strings.Replace(first, "old 0", "old 1", 1)
	bad := "old 1\n\n" + w.checkpoint(2, "a")
	fork := "old 1\n\n" + w.checkpoint(1, "b")
	for i, step := range []struct {
		body   string
		status int
	}{
		{unsigned, 403}, {first, 200}, {unsigned, 403}, // and a submission that any client can send, because the checkpoint is public:
		{first, 409}, {again, 200}, {first, 409}, {again, 200}, {bad, 422}, {bad, 422}, {bad, 422},
		{fork, 409}, {fork, 409}, {fork, 429}, {again, 429},
	} {
		if status, _ := post(fmt.Sprintf("198.51.100.%d", i), step.body); status != step.status {
			t.Errorf("step %d: %d, want %d", i, status, step.status)
		}
	}
	w.now = w.now.Add(time.Minute)
	if status, _ := post("192.0.2.1", again); status != http.StatusOK {
		t.Errorf("in the next minute: %d", status)
	}
}

// An outage is answered with 503 and no cosignature. The submission may be sent again.
func TestWitnessWithoutDatabase(t *testing.T) {
	w := newWitnessed(t, 10)
	w.pool.Close()
	status, header, text := w.ask(http.MethodPost, "/add-checkpoint", "", "old 0\n\n"+w.checkpoint(1, "a"))
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" || strings.Contains(text, "—") ||
		strings.Join(w.seen, ",") != "log.example/log failed" {
		t.Errorf("%d, %v, %s, seen %v", status, header, text, w.seen)
	}
	if status, _, _ := w.ask(http.MethodGet, "/readyz", "", ""); status != http.StatusServiceUnavailable {
		t.Errorf("readyz answers %d", status)
	}
}
