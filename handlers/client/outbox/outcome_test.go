package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/internal/clienttest"
	"integrityledger/handlers/wire"
)

// The worker treats every answer as clients must (schemas/outcome-vectors.json): it stops, looks up and sends again, or
// sends again, and waits at least as long as it is asked to.
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
			if want := map[bool]State{true: Sent, false: Waiting}[v.Want.OutcomeUnknown]; b.item("d-1").State != want &&
				len(b.slept) == 0 {
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
		if i := b.item("d-1"); i.State != Done || b.now.Sub(testTime) < least ||
			slices.Contains(b.requests, "lookup") != v.Want.OutcomeUnknown {
			t.Errorf("%s: %+v after %s, requests %v", v.Name, i, b.now.Sub(testTime), b.requests)
		}
	}
}

// The worker gives the service the time it asks for, and all later items wait too.
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
	if len(at) < 5 || at[1].Sub(at[0]) < 1000*time.Second || at[2].Sub(at[1]) < time.Minute ||
		at[4].Sub(at[2]) < 4*time.Second {
		t.Errorf("requests at %v", at)
	}
	// A 429 is a decision. The outcome of a 503 or of a proxy's answer is unknown, so those are looked up.
	if slices.Contains(b.requests[:2], "lookup") || !slices.Contains(b.requests, "lookup") {
		t.Errorf("requests: %v", b.requests)
	}
	for _, document := range []string{"d-1", "d-2"} {
		if i := b.item(document); i.State != Done {
			t.Errorf("%+v", i)
		}
	}
}

// The answer to a registration is lost, once after it arrived and once before. Both end up registered once, by a
// look-up and the very same bytes.
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
		b.want(
			"batch lookup batch evidence", "sending postponed ambiguous "+found+" sending answered stored exported finished",
		)
		if i := b.item("d-1"); i.State != Done || i.Response.Replayed != arrived || i.Attempts != 2 ||
			b.bodies["d-1"][0] != b.bodies["d-1"][1] {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// A worker ends at every step, as in a crash, and another continues.
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
		// An item that was sent and has no stored answer is looked up first.
		if next := append(b.requests[before:], "nothing")[0]; next != map[Kind]string{
			Sending: "lookup", Answered: "evidence", Stored: "evidence", Exported: "nothing", Finished: "nothing",
		}[kind] {
			t.Errorf("%s: the next worker began with %s", kind, next)
		}
		if i := b.item("d-1"); i.State != Done || len(slices.Compact(slices.Clone(b.bodies["d-1"]))) != 1 {
			t.Errorf("%s: %+v %q", kind, i, b.bodies)
		}
	}
}

// The worker stops at an answer about another declaration.
func TestAnswersOfOthers(t *testing.T) {
	b := newBench(t)
	b.refuse = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w,
			`{"data":{"results":[{"status":201,"data":{"publicId":%q,"documentReference":"d-1","version":1,"sha256":%q,"usage":{"period":"2026-03"}}}]}}`,
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

// Add refuses a declaration that could never be registered, and the tables refuse every change of a declaration.
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
	if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET declaration = '{}'`); err == nil ||
		!strings.Contains(err.Error(), "never changed") {
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

// The worker stops at evidence that does not verify, and keeps the registration.
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

// An item that is added while the worker waits is registered, and Run ends after Finish.
func TestWake(t *testing.T) {
	b := newBench(t)
	waiting := make(chan struct{}, 1)
	b.worker.sleep = func(ctx context.Context, _ time.Duration, added <-chan struct{}) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		wait.Interrupted(time.Hour, ctx.Done(), added)
	}
	ended := make(chan error)
	go func() { ended <- b.worker.Run(t.Context()) }()
	<-waiting
	b.add("d-1")
	b.worker.Wake()
	<-waiting // the worker is idle again
	b.worker.Finish()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if i := b.item("d-1"); i.State != Done {
		t.Errorf("%+v", i)
	}
}
