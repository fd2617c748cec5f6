package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client"
	"integrityledger/handlers/internal/clienttest"
	"integrityledger/handlers/wire"
)

// TestOutbox runs every case on every database.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := database(t)
			o, err := Open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if err := o.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "missing") {
				t.Errorf("a database without the table: %v", err)
			}
			for range 2 { // installing again changes nothing
				if err := o.Install(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if o.Dialect().Name != name {
				t.Errorf("the dialect is %s", o.Dialect().Name)
			}
			for _, c := range []struct {
				name string
				run  func(*testing.T, string)
			}{
				{"happy", testHappy}, {"insert", testInsert}, {"correction", testCorrection}, {"invalid", testInvalid},
				{"order", testOrder}, {"batches", testBatches}, {"rows wait", testRowsWait}, {"exhausted month", testExhaustedMonth},
				{"limited look-ups", testLimitedLookUps}, {"evidence", testEvidence}, {"too much", testTooMuch},
				{"outcomes", testOutcomes}, {"waits", testWaits}, {"ambiguous", testAmbiguous}, {"interrupted", testInterrupted},
				{"key", testKey}, {"other answers", testOtherAnswers}, {"untrusted", testUntrusted}, {"wake", testWake},
				{"two claims", testTwoClaims}, {"two workers", testTwoWorkers}, {"fencing", testFencing},
				{"immutable", testImmutable}, {"check", testCheck},
			} {
				t.Run(c.name, func(t *testing.T) { c.run(t, address) })
			}
		})
	}
}

func testHappy(t *testing.T, address string) {
	b := newBench(t, address)
	b.add("d-1", "d-2")
	b.run()
	b.want(
		"batch evidence", "sending sending answered answered stored stored exported exported finished finished",
	)
	if i := b.item("d-2"); i.State != Registered || !i.Complete || i.Attempts != 1 || i.Sent ||
		i.Record.PublicID != publicID("d-2") || string(i.Evidence) != receipt || i.Problem != "" {
		t.Errorf("%+v", i)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts != (Counts{Registered: 2, Evidence: 2}) {
		t.Errorf("%v, %v", counts, err)
	}
	var id, link string
	if err := b.db.QueryRowContext(t.Context(),
		`SELECT public_id, verification_url FROM integrity_outbox WHERE document_reference = 'd-1' AND registered_at IS NOT NULL
			AND evidence_at IS NOT NULL AND lease_token IS NULL`,
	).Scan(&id, &link); err != nil || id != publicID("d-1") || link != "https://ledger.example/"+id {
		t.Errorf("%q, %q, %v", id, link, err)
	}
	if len(b.batches) != 2 || b.batches[0].Done != 2 || b.batches[0].Evidence || b.batches[1].Done != 2 {
		t.Errorf("%+v", b.batches)
	}
}

// A row needs the members of its version, and the hash and size of its file. A transaction that does not commit leaves
// nothing to register.
func testInsert(t *testing.T, address string) {
	b := newBench(t, address)
	const row = `INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
		VALUES ('c', 's', ?, 1, ?, 1)`
	sum := strings.Repeat("a", 64)
	b.exec(row, "d-1", sum)
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), b.outbox.dialect.bind(row), "d-2", sum); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.wantStates("d-1 v1 done")
	if d := b.item("d-1").Declaration; d.MimeType != "application/octet-stream" || len(d.GeneratedAt) < 20 {
		t.Errorf("%+v", d)
	}
	// A and a are two documents, and a version is added once. Values that the service would refuse cannot be added.
	b.exec(row, "A", sum)
	b.exec(row, "a", sum)
	for _, args := range [][]any{{"A", sum}, {"a b", sum}, {"", sum}, {"x\n", sum}, {strings.Repeat("x", 129), sum}, {"d-3", "x"}} {
		if _, err := b.db.ExecContext(t.Context(), b.outbox.dialect.bind(row), args...); err == nil {
			t.Errorf("%q was added", args)
		}
	}
	wrong := map[string]func(*wire.Declaration){
		"companyReference": func(d *wire.Declaration) { d.CompanyReference = "" },
		"version":          func(d *wire.Declaration) { d.Version = 0 },
		"mimeType":         func(d *wire.Declaration) { d.MimeType = "application/pdf; x=y" },
		"add version 1":    func(d *wire.Declaration) { d.DocumentReference = "d-1" },
	}
	for name, change := range wrong {
		d := declared("d-2")
		change(&d)
		if err := b.addOne(d); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A row that needs correction blocks no other one, not even a later version of its document. Retry resumes it.
func testCorrection(t *testing.T, address string) {
	for status, code := range map[int]string{
		401: "INVALID_KEY", 403: "COMPANY_NOT_AUTHORIZED", 409: "VERSION_CONFLICT", 422: "INVALID_DATA",
	} {
		b := newBench(t, address)
		b.refuseItem["d-1"] = refusedItem(status, code, false)
		b.add("d-1", "d-2")
		b.run()
		b.want("batch evidence", "sending sending answered halted stored exported finished")
		state, n := Refused, int64(1)
		if status == 409 {
			state, n = Conflict, 0
		}
		if i := b.item("d-1"); i.State != state || i.Code != code || !strings.Contains(i.Problem, code) || i.Attempts != 1 {
			t.Errorf("%d: %+v", status, i)
		}
		delete(b.refuseItem, "d-1")
		b.addVersion("d-1", 2)
		b.run2()
		b.wantStates("d-1 v1 " + string(state) + ", d-1 v2 done, d-2 v1 done")
		if got, err := b.outbox.Retry(t.Context()); err != nil || got != n {
			t.Fatal(got, err)
		}
		if b.run2(); n == 1 {
			b.wantStates("d-1 v1 done, d-1 v2 done, d-2 v1 done")
		}
	}
}

// A row that a program has added with a member that the service refuses spoils no batch.
func testInvalid(t *testing.T, address string) {
	b := newBench(t, address)
	b.add("d-1", "d-2")
	b.exec(`UPDATE integrity_outbox SET generated_at = 'yesterday' WHERE document_reference = 'd-1'`)
	b.run()
	b.want("batch evidence", "halted sending answered stored exported finished")
	if i := b.item("d-1"); i.State != Refused || i.Code != "INVALID_DATA" || !strings.Contains(i.Problem, "generatedAt") ||
		i.Attempts != 0 {
		t.Errorf("%+v", i)
	}
	b.exec(`UPDATE integrity_outbox SET generated_at = '2026-03-01T09:29:00Z', state = 'pending' WHERE document_reference = 'd-1'`)
	b.run2()
	b.wantStates("d-1 v1 done, d-2 v1 done")
}

// The versions of a document are registered one after another, the lowest first, independently of other documents.
func testOrder(t *testing.T, address string) {
	b := newBench(t, address)
	for _, version := range []int32{2, 1, 3} {
		b.addVersion("d-1", version)
	}
	b.add("d-2", "d-3")
	b.run()
	var versions []string
	for _, body := range b.bodies["d-1"] {
		versions = append(versions, body[strings.Index(body, `"version"`):][10:11])
	}
	if got := strings.Join(versions, ""); got != "123" || !slices.Equal(b.sizes, []int{3, 1, 1}) {
		t.Errorf("registered in the order %s, in batches of %v", got, b.sizes)
	}
}

// Batches have at most 500 declarations. A single declaration for which a whole batch is refused is found and refused.
func testBatches(t *testing.T, address string) {
	b := newBench(t, address)
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const rows, spoilt = 510, "d-101"
	for n := range rows {
		if err := b.outbox.Add(t.Context(), tx, declared(fmt.Sprintf("d-%d", n))); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if bodies := b.bodies[spoilt]; strings.HasSuffix(r.URL.Path, "/batch") && len(bodies) > asked {
			asked = len(bodies)
			refused(422, "INVALID_DATA")(w)
			return true
		}
		return false
	}
	b.run()
	if b.sizes[0] != 500 || slices.Max(b.sizes) != 500 || b.item(spoilt).State != Refused {
		t.Errorf("batches of %v", b.sizes)
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts != (Counts{Registered: rows - 1, Evidence: rows - 1, Refused: 1}) {
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

// If part of a batch was decided, only the undecided rows wait. A limit makes all rows wait.
func testRowsWait(t *testing.T, address string) {
	b := newBench(t, address)
	b.refuseItem["d-1"] = refusedItem(503, "TEMPORARILY_UNAVAILABLE", true)
	b.add("d-1", "d-2")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if len(b.slept) == 0 {
			b.wantStates("d-1 v1 sent, d-2 v1 registered")
			delete(b.refuseItem, "d-1")
		}
		b.pass(d)
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done")
	if !slices.Contains(b.requests, "lookup") {
		t.Error("the outcome of a 503 is not known, and was not looked up")
	}

	b = newBench(t, address)
	b.refuseItem["d-1"] = strings.Replace(
		refusedItem(429, "RATE_LIMITED", true), `"retryable"`, `"retryAfter":1000,"retryable"`, 1,
	)
	b.add("d-1", "d-2")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if len(b.slept) == 0 {
			b.add("d-3")
		}
		if b.pass(d); b.now.Sub(testTime) < 1000*time.Second && b.item("d-3").State != Pending {
			t.Error("a row was sent in spite of the limit")
		}
		if len(b.sizes) == 1 {
			delete(b.refuseItem, "d-1")
		}
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done, d-3 v1 done")
	if slices.Contains(b.requests, "lookup") || b.now.Sub(testTime) < 1000*time.Second {
		t.Errorf("slept %v, requests %v", b.slept, b.requests)
	}
}

// In an exhausted month the worker looks every hour, because the plan may be raised.
func testExhaustedMonth(t *testing.T, address string) {
	b := newBench(t, address)
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n <= 3 {
			refused(429, "REGISTRATION_QUOTA_EXHAUSTED", "Retry-After", "1000000")(w)
		}
		return n <= 3
	}
	b.add("d-1")
	b.run()
	b.wantStates("d-1 v1 done")
	if took := b.now.Sub(testTime); took < 3*time.Hour || took > 3*time.Hour+5*time.Minute {
		t.Errorf("after %s: %v", took, b.batches)
	}
}

// However few requests a minute are allowed, look-ups are not repeated.
func testLimitedLookUps(t *testing.T, address string) {
	b := newBench(t, address)
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
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		left = least
		b.pass(d)
	}
	for n := range 40 {
		b.add(fmt.Sprintf("d-%d", n))
	}
	b.run()
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts.Evidence != 40 || len(b.bodies["d-0"]) > 3 {
		t.Errorf("%v, %v; declared %d times", counts, err, len(b.bodies["d-0"]))
	}
}

// Evidence is complete with its inclusion, and with its token if the worker waits for it. A problem with evidence delays
// no declaration.
func testEvidence(t *testing.T, address string) {
	b := newBench(t, address)
	away := true
	b.refuse = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if away && strings.HasSuffix(r.URL.Path, "/evidence") {
			refused(503, "TEMPORARILY_UNAVAILABLE", "Retry-After", "3600")(w)
			return true
		}
		return false
	}
	b.evidence = "" // not in the log yet
	b.add("d-1")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		switch b.pass(d); {
		case len(b.requests) < 2:
		case away && b.item("d-1").State == Registered && len(b.bodies) == 1:
			b.add("d-2")
		case away:
			b.wantStates("d-1 v1 registered, d-2 v1 registered")
			away = false
		case b.evidence == "" && len(b.worker.incomplete) == 2:
			b.wantStates("d-1 v1 registered, d-2 v1 registered")
			b.evidence = receipt
		}
	}
	b.run()
	b.wantStates("d-1 v1 done, d-2 v1 done")

	b = newBench(t, address)
	b.worker.config.Timestamps = true
	b.add("d-1")
	b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
		if b.pass(d); b.now.Sub(testTime) > 50*time.Second {
			b.evidence = strings.Replace(receipt, `"inclusion"`, `"timestamps":[{}],"inclusion"`, 1)
		}
	}
	b.run()
	if took := b.now.Sub(testTime); took < 50*time.Second || string(b.item("d-1").Evidence) != b.evidence || len(b.requests) > 10 {
		t.Errorf("after %s: %v", took, b.requests)
	}

	// Evidence of a service that has no log is complete without inclusion, and without a token.
	b = newBench(t, address)
	b.worker.config.Timestamps = true
	b.evidence = `{"contract":"integrity-evidence-v1","payload":"x"}`
	b.add("d-1")
	b.run()
	b.wantStates("d-1 v1 done")
}

// A batch that the service never answers, for example because a proxy finds it too large, is split into smaller ones.
func testTooMuch(t *testing.T, address string) {
	b := newBench(t, address)
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
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts.Evidence != 20 {
		t.Errorf("%v, %v; batches of %v", counts, err, b.sizes)
	}
}

// The worker treats every answer as clients must (schemas/outcome-vectors.json): it stops, looks up and sends again, or
// sends again, and waits at least as long as it is asked to.
func testOutcomes(t *testing.T, address string) {
	vectors, err := clienttest.OutcomeVectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		b := newBench(t, address)
		b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				v.Serve(w)
			}
			return n == 1
		}
		b.add("d-1")
		answered := b.worker.config.Client
		if v.Break == clienttest.NoConnection {
			b.worker.config.Client = b.client("http://127.0.0.1:1")
			b.refuse = nil
		}
		unknown := false
		b.worker.sleep = func(_ context.Context, d time.Duration, _ <-chan struct{}) {
			if len(b.slept) == 0 {
				unknown = b.item("d-1").Sent
			}
			if v.Want.RetryAfterAtLeast > 0 && len(b.slept) == 0 {
				d = b.reports[len(b.reports)-1].Again // the worker looks every minute
			}
			b.pass(d)
			b.worker.config.Client = answered
		}
		b.worker.Finish()
		if err := b.worker.Run(t.Context()); err != nil && (!v.Want.Refused || !client.Refused(err)) {
			t.Fatal(err)
		}
		i := b.item("d-1")
		if v.Want.Refused {
			if i.State == Registered || i.Sent || len(b.requests) != 1 {
				t.Errorf("%s: %+v, requests %v", v.Name, i, b.requests)
			}
			continue
		}
		least := min(time.Duration(max(v.Want.RetryAfter, v.Want.RetryAfterAtLeast))*time.Second, quotaPause)
		if !i.Complete || b.now.Sub(testTime) < least || unknown != v.Want.OutcomeUnknown ||
			slices.Contains(b.requests, "lookup") != v.Want.OutcomeUnknown {
			t.Errorf("%s: %+v after %s, unknown %v, requests %v", v.Name, i, b.now.Sub(testTime), unknown, b.requests)
		}
	}
}

// The worker gives the service the time it asks for, and all later rows wait too.
func testWaits(t *testing.T, address string) {
	b := newBench(t, address)
	var at []time.Time
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		at = append(at, b.now)
		switch n {
		case 1:
			refused(429, "RATE_LIMITED", "Retry-After", "1000")(w)
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
	b.wantStates("d-1 v1 done, d-2 v1 done")
}

// The answer to a registration is lost, once after it arrived and once before. Both end up registered once, by a
// look-up and the very same bytes.
func testAmbiguous(t *testing.T, address string) {
	for name, arrived := range map[string]bool{"arrived": true, "lost": false} {
		b := newBench(t, address)
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
		if i := b.item("d-1"); !i.Complete || i.Record.Replayed != arrived || i.Attempts != 2 ||
			b.bodies["d-1"][0] != b.bodies["d-1"][1] {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// A worker ends at every step, and another continues at once, because the first one has ended its leases.
func testInterrupted(t *testing.T, address string) {
	for kind, next := range map[Kind]string{
		Sending: "lookup", Answered: "evidence", Stored: "evidence", Exported: "nothing", Finished: "nothing",
	} {
		b := newBench(t, address)
		b.add("d-1")
		ctx, cancel := context.WithCancel(t.Context())
		report := b.worker.config.Report
		b.worker.config.Report = func(r Report) {
			if report(r); r.Kind == kind {
				cancel()
			}
		}
		if err := b.worker.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", kind, err)
		}
		before := len(b.requests)
		b.run2()
		if got := append(b.requests[before:], "nothing")[0]; got != next {
			t.Errorf("%s: the next worker began with %s", kind, got)
		}
		if i := b.item("d-1"); !i.Complete || len(slices.Compact(slices.Clone(b.bodies["d-1"]))) != 1 {
			t.Errorf("%s: %+v %q", kind, i, b.bodies)
		}
	}
}

// If the service refuses the key, the worker ends and the rows wait for another key.
func testKey(t *testing.T, address string) {
	for status, code := range map[int]string{401: "INVALID_KEY", 403: "MISSING_SCOPE"} {
		b := newBench(t, address)
		b.refuse = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refused(status, code)(w)
			return true
		}
		b.add("d-1", "d-2")
		b.worker.Finish()
		if err := b.worker.Run(t.Context()); !client.Refused(err) {
			t.Errorf("%v", err)
		}
		b.wantStates("d-1 v1 pending, d-2 v1 pending")
		b.refuse = nil
		b.run2()
		b.wantStates("d-1 v1 done, d-2 v1 done")
	}
}

// The worker refuses an answer about another declaration.
func testOtherAnswers(t *testing.T, address string) {
	b := newBench(t, address)
	b.refuse = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(w,
			`{"data":{"results":[{"status":201,"data":{"publicId":%q,"documentReference":"d-1","version":1,"sha256":%q,"usage":{"period":"2026-03"}}}]}}`,
			publicID("d-1"), strings.Repeat("b", 64))
		return true
	}
	b.add("d-1")
	b.run()
	b.want("batch", "sending halted")
	if i := b.item("d-1"); i.State != Refused || i.Record != nil || i.Code != UnexpectedAnswer {
		t.Errorf("%+v", i)
	}
}

// The worker does not accept evidence that does not verify, and keeps the registration.
func testUntrusted(t *testing.T, address string) {
	b := newBench(t, address)
	trusted, err := evidence.NewTrustedKeys(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.worker.config.Trusted = trusted
	b.add("d-1")
	b.run()
	b.want("batch evidence", "sending answered stored halted")
	if i := b.item("d-1"); !i.Halted || i.Record == nil || i.Evidence != nil || i.Code != EvidenceInvalid {
		t.Errorf("%+v", i)
	}
	if _, err := b.outbox.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.worker.config.Trusted = nil
	b.run2()
	b.wantStates("d-1 v1 done")
}

// A row that is added while the worker waits is registered, on PostgreSQL without a call, and Run ends after Finish.
func testWake(t *testing.T, address string) {
	b := newBench(t, address)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listening := make(chan error, 1)
	go func() { listening <- b.outbox.Listen(ctx, b.worker.Wake) }()
	waiting := make(chan struct{}, 1)
	b.worker.sleep = func(ctx context.Context, d time.Duration, added <-chan struct{}) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		if d < time.Minute {
			b.pass(d)
			return
		}
		wait.Interrupted(time.Hour, ctx.Done(), added)
	}
	ended := make(chan error)
	go func() { ended <- b.worker.Run(t.Context()) }()
	<-waiting
	b.add("d-1")
	if b.outbox.dialect.Name != "PostgreSQL" {
		b.worker.Wake()
	}
	for counts := (Counts{}); counts.Registered == 0; {
		<-waiting
		var err error
		if counts, err = b.outbox.Counts(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.worker.Finish()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-listening; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.wantStates("d-1 v1 done")
}

// Two claims never hold two versions of a document, nor the same row.
func testTwoClaims(t *testing.T, address string) {
	b := newBench(t, address)
	b.addVersion("d-1", 2)
	b.add("d-2", "d-3")
	claim := func(limit int, want ...string) claimed {
		t.Helper()
		items, token, err := b.outbox.claim(t.Context(), toSend, limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range items {
			got = append(got, key(i.Declaration.DocumentReference, i.Declaration.Version))
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %q, want %q", got, want)
		}
		return claimed{token, items}
	}
	first := claim(2, "d-1 v2", "d-2 v1")
	b.add("d-1") // the lower version comes late, and must wait for the higher one
	claim(500, "d-3 v1")
	claim(500)
	if err := b.outbox.release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	claim(500, "d-2 v1", "d-1 v1")
	claim(500)
	b.pass(DefaultLease) // both workers have died
	claim(500, "d-2 v1", "d-3 v1", "d-1 v1")
}

// Several workers share the rows: each is registered once.
func testTwoWorkers(t *testing.T, address string) {
	b := newBench(t, address)
	for n := range 150 {
		d := declared(fmt.Sprintf("d-%d", n/3))
		d.Version = int32(n%3 + 1)
		if err := b.addOne(d); err != nil {
			t.Fatal(err)
		}
	}
	const workers = 3
	ended := make(chan error, workers)
	for range workers {
		w := NewWorker(Config{Outbox: b.outbox, Client: b.worker.config.Client, Poll: 10 * time.Millisecond})
		w.batchSize = 20
		w.Finish()
		go func() { ended <- w.Run(t.Context()) }()
	}
	for range workers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if counts, err := b.outbox.Counts(t.Context()); err != nil || counts != (Counts{Registered: 150, Evidence: 150}) {
		t.Errorf("%+v, %v", counts, err)
	}
	for document, bodies := range b.bodies {
		if len(bodies) != 3 || !slices.IsSortedFunc(bodies, func(a, b string) int {
			return strings.Compare(a[strings.Index(a, `"version"`):], b[strings.Index(b, `"version"`):])
		}) {
			t.Errorf("%s: %q", document, bodies)
		}
	}
}

// A worker whose lease has ended stores nothing: another one has claimed the row.
func testFencing(t *testing.T, address string) {
	b := newBench(t, address)
	b.refuse = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n != 1 {
			return false
		}
		// While the first worker waits for its answer, its lease ends and another worker registers the row.
		b.mu.Unlock()
		b.outbox.skew += DefaultLease
		other := b.newWorker(b.worker.config.Client)
		other.Finish()
		if err := other.Run(context.Background()); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		refused(409, "VERSION_CONFLICT")(w)
		return true
	}
	b.add("d-1")
	b.run()
	b.wantStates("d-1 v1 done")
	if i := b.item("d-1"); i.Attempts != 2 || i.Code != "" {
		t.Errorf("%+v", i)
	}
	if lost := b.batches[len(b.batches)-1]; lost.Lost != 1 {
		t.Errorf("%+v", b.batches)
	}

	// A row that was claimed by another worker before it is sent is not sent.
	b = newBench(t, address)
	b.add("d-1", "d-2")
	items, token, err := b.outbox.claim(t.Context(), toSend, 2)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(`UPDATE integrity_outbox SET lease_token = 'other' WHERE document_reference = 'd-1'`)
	if left, err := b.outbox.markSent(t.Context(), token, items); err != nil || len(left) != 1 ||
		left[0].Declaration.DocumentReference != "d-2" {
		t.Errorf("%+v, %v", left, err)
	}
}

// A declaration can be corrected until it is claimed, and never after.
func testImmutable(t *testing.T, address string) {
	b := newBench(t, address)
	b.add("d-1")
	b.exec(`UPDATE integrity_outbox SET size_bytes = 2`)
	wrong := func() {
		t.Helper()
		for column, value := range map[string]string{
			"company_reference": "'x'", "source": "'x'", "document_reference": "'x'", "version": "9", "previous_version": "1",
			"sha256": "'" + strings.Repeat("f", 64) + "'", "size_bytes": "9", "mime_type": "'a/b'", "generated_at": "'x'",
			"reservation_id": "'x'",
		} {
			if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET version = 2`); err == nil {
				t.Fatal("a version was changed")
			}
			if _, err := b.db.ExecContext(t.Context(), `UPDATE integrity_outbox SET `+column+` = `+value); err == nil ||
				!strings.Contains(err.Error(), "never changed") && column != "previous_version" {
				t.Errorf("%s: %v", column, err)
			}
		}
	}
	items, token, err := b.outbox.claim(t.Context(), toSend, 1)
	if err != nil {
		t.Fatal(err)
	}
	wrong()
	if err := b.outbox.release(t.Context(), claimed{token, items}); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.wantStates("d-1 v1 done")
	wrong()
}

// Check finds what a table of another form would break, and changes nothing.
func testCheck(t *testing.T, address string) {
	b := newBench(t, address)
	if err := b.outbox.Check(t.Context()); err != nil {
		t.Error(err)
	}
	b.add("d-1")
	if first, err := b.outbox.First(t.Context(), 3); err != nil || len(first) != 1 ||
		first[0].Declaration != declared("d-1") {
		t.Errorf("%+v, %v", first, err)
	}
	b.wantStates("d-1 v1 pending")
	drop := `DROP TRIGGER integrity_outbox_immutable`
	if b.outbox.dialect.number {
		drop += ` ON integrity_outbox`
	}
	b.exec(drop)
	if err := b.outbox.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "integrity_outbox_immutable") {
		t.Errorf("without the trigger: %v", err)
	}
	if err := b.outbox.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.outbox.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// OpenDatabase names what an address must be, and never shows a password.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"oracle://u:secret@h/d": "oracle:// is not supported", "mysql://u:secret@h": "mysql://user:password@host:port/database",
		"mysql://u:secret@h/d?x=y": `parameter "x"`, "postgres://u:secret@h:port/d": "postgres://user:password@host:port/database",
		"sqlite:/nowhere/secret.db": "is not a SQLite database", "": "is not a SQLite database",
		"mariadb://u:secret@127.0.0.1:1/d": "refused",
	} {
		db, _, err := OpenDatabase(t.Context(), address)
		if err == nil {
			db.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestTriggers runs the triggers that the page for developers shows: a document adds its row in the same transaction.
func TestTriggers(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := Open(t.Context(), database(t))
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			file := map[string]string{"PostgreSQL": "postgres", "MariaDB": "mariadb", "SQLite": "sqlite"}[name]
			trigger, err := os.ReadFile("../../web/templates/samples/outbox/trigger-" + file + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Install(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := &bench{t: t, db: o.db, outbox: o}
			if o.dialect.number {
				b.exec(`DROP TABLE documents CASCADE`) // the ledger's
			}
			b.exec(`CREATE TABLE documents (company varchar(99), reference varchar(99), version int, sha256 varchar(64), size int)`)
			b.exec(string(trigger))
			for _, commits := range []bool{false, true} {
				tx, err := o.db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.ExecContext(t.Context(), `INSERT INTO documents VALUES ('c', 'd-1', 1, '`+strings.Repeat("a", 64)+`', 5)`); err != nil {
					t.Fatal(err)
				}
				end := tx.Rollback
				if commits {
					end = tx.Commit
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
			}
			b.wantStates("d-1 v1 pending")
			d, err := o.First(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if d[0].Declaration.Source != "billing" || Validate(d[0].Declaration) != nil {
				t.Errorf("%+v", d)
			}
		})
	}
}

// installed is newBench in a database that has no table yet.
func installed(t *testing.T, address string) *bench {
	t.Helper()
	o, err := Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Install(t.Context()), o.Close()); err != nil {
		t.Fatal(err)
	}
	return newBench(t, address)
}

// TestClaimReadsInOrder: on a table that was just filled and has no statistics, a claim reads rows in their order until
// it has enough. Otherwise every claim would look at the whole backlog.
func TestClaimReadsInOrder(t *testing.T) {
	t.Parallel()
	b := installed(t, pgtest.New(t))
	b.exec(`ALTER TABLE integrity_outbox SET (autovacuum_enabled = off)`)
	b.exec(`INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
		SELECT 'c-1', 's', 'd-' || n, 1, repeat('0', 64), 0 FROM generate_series(1, 5000) n`)
	if err := b.outbox.transact(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), b.outbox.dialect.lock); err != nil {
			return err
		}
		rows, err := tx.QueryContext(t.Context(), "EXPLAIN "+b.outbox.claimable(toSend, 10))
		if err != nil {
			return err
		}
		defer rows.Close()
		plan := ""
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return err
			}
			plan += line + "\n"
		}
		if strings.Contains(plan, "Sort") || !strings.Contains(plan, "Index Scan using integrity_outbox_pending") {
			t.Error(plan)
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSaveLocksItsRowsAlone: a save does not wait for an open transaction of the origin, and does not read the whole
// table.
func TestSaveLocksItsRowsAlone(t *testing.T) {
	t.Parallel()
	const add = `INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
		VALUES ('c-1', 's', '%s', 1, '` + "%064d" + `', 0)`
	for name, address := range databases() {
		t.Run(name, func(t *testing.T) {
			b := installed(t, address(t))
			b.exec(fmt.Sprintf(add, "d-1", 0))
			b.exec(fmt.Sprintf(add, "d-2", 0))
			items, token, err := b.outbox.claim(t.Context(), toSend, 1)
			if err != nil || len(items) != 1 {
				t.Fatal(items, err)
			}
			if name == SQLite().Name { // one writer at a time: the plan must not depend on the number of rows
				plan := ""
				var skip int
				if err := b.db.QueryRowContext(t.Context(), "EXPLAIN QUERY PLAN "+b.outbox.locking(items), token).Scan(
					&skip, &skip, &skip, &plan,
				); err != nil || !strings.HasPrefix(plan, "SEARCH") {
					t.Error(plan, err)
				}
				return
			}
			tx, err := b.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			for _, statement := range []string{
				fmt.Sprintf(add, "d-3", 0), `UPDATE integrity_outbox SET size_bytes = 1 WHERE company_reference = 'c-1'
					AND source = 's' AND document_reference = 'd-2' AND version = 1`,
			} {
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			items[0].State = Refused
			if stored, err := b.outbox.save(ctx, token, items); err != nil || !stored[0] {
				t.Error(stored, err)
			}
		})
	}
}

// TestSaveHostileText stores the detail of a hostile answer. PostgreSQL keeps no NUL in a text.
func TestSaveHostileText(t *testing.T) {
	t.Parallel()
	for name, address := range databases() {
		t.Run(name, func(t *testing.T) {
			b := installed(t, address(t))
			b.exec(`INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
				VALUES ('c-1', 's', 'd-1', 1, '` + strings.Repeat("0", 64) + `', 0)`)
			items, token, err := b.outbox.claim(t.Context(), toSend, 1)
			if err != nil || len(items) != 1 {
				t.Fatal(items, err)
			}
			items[0].Problem = "a\x00b'\"\\\xff\U0001F600</script>"
			if stored, err := b.outbox.save(t.Context(), token, items); err != nil || !stored[0] {
				t.Fatal(stored, err)
			}
			if items, err = b.outbox.First(t.Context(), 1); err != nil || items[0].Problem != "ab'\"\\\uFFFD\U0001F600</script>" {
				t.Errorf("%q, %v", items[0].Problem, err)
			}
		})
	}
}
