package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

func TestRegisterSupersedeRevoke(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, "gratis")

	first := l.Register(t, o, o.Declaration("invoice-1", 1, "one"))
	l.Must(t, first)
	if got := first; got.Replayed || got.Outcome.Status != domain.StatusCurrent || got.Usage.Used != 1 ||
		got.CompanyUsed != 1 {
		t.Fatalf("first registration: %+v", got)
	}
	again := l.Register(t, o, o.Declaration("invoice-1", 1, "one"))
	l.Must(t, again)
	if got := again; !got.Replayed || got.Outcome != first.Outcome || got.Usage.Used != 1 {
		t.Fatalf("replay: %+v, want the record %+v", got, first.Outcome)
	}
	var refusal *domain.Error
	err := l.Do(context.Background(), l.Register(t, o, o.Declaration("invoice-1", 1, "other")))
	if !errors.As(err, &refusal) || refusal.Code != domain.VersionConflict || len(refusal.Fields) != 2 ||
		refusal.Existing.PublicID != first.Outcome.PublicID {
		t.Fatalf("conflict: %v", err)
	}
	third := l.Register(t, o, o.Declaration("invoice-1", 3, "three"))
	l.Must(t, third)
	late := l.Register(t, o, o.Declaration("invoice-1", 2, "two"))
	l.Must(t, late)
	if got := late.Outcome; got.Status != domain.StatusSuperseded || *got.SupersededByVersion != 3 {
		t.Fatalf("late lower version: %+v", got)
	}
	revoke := l.Revoke(t, o, third.Outcome.PublicID)
	l.Must(t, revoke)
	if got := revoke; got.Replayed || got.Outcome.Status != domain.StatusRevoked {
		t.Fatalf("revocation: %+v", got)
	}
	twice := l.Revoke(t, o, third.Outcome.PublicID)
	l.Must(t, twice)
	if got := twice; !got.Replayed || !got.Outcome.RevokedAt.Equal(*revoke.Outcome.RevokedAt) {
		t.Fatalf("second revocation: %+v", got)
	}
	fourth := l.Register(t, o, o.Declaration("invoice-1", 4, "four"))
	l.Must(t, fourth)
	if got := fourth.Outcome; got.Status != domain.StatusCurrent {
		t.Fatalf("after a revoked version: %+v", got)
	}

	var types []domain.EventType
	for _, e := range l.Events(t, 1) {
		if e.Company == o.Company.ID && e.Subject != o.Key.ID.String() && e.Subject != o.Company.ID.String() {
			types = append(types, e.Type)
		}
	}
	want := []domain.EventType{
		domain.RecordRegistered,                          // 1
		domain.RecordRegistered, domain.RecordSuperseded, // 3 supersedes 1
		domain.RecordRegistered, // 2, superseded from birth
		domain.RecordRevoked,    // 3
		domain.RecordRegistered, // 4: nothing is current that it could supersede
	}
	if len(types) != len(want) {
		t.Fatalf("events %v, want %v", types, want)
	}
	for i := range want {
		if types[i] != want[i] {
			t.Fatalf("events %v, want %v", types, want)
		}
	}
}

// TestGroupSpans: a group that fills while another process holds the shard has one span, in the trace of one of its
// requests, linked to every traced request in it and to no other. A group without traced requests has no span.
func TestGroupSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tracer := provider.Tracer("test")
	var mu sync.Mutex
	var reports []eventstore.GroupReport
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Tracer = tracer
		c.Observe = func(r eventstore.GroupReport) {
			// A group is reported after its callers have their answers, so the setup groups may be reported late.
			if len(r.Events) > 0 && r.Events[0].Type != domain.RecordRegistered {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, r)
		}
	})
	o := l.Organization(t, 0, domain.InternalPlan)
	if got := spans.GetSpans(); len(got) != 0 {
		t.Fatalf("nobody is traced, and there are spans: %v", got)
	}

	ctx := context.Background()
	holder, err := l.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, "SELECT FROM shard_heads WHERE shard = 0 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	const traced, untraced = 12, 3
	requests := map[trace.SpanID]trace.SpanContext{}
	var callers sync.WaitGroup
	send := func(ctx context.Context, n int) {
		c := l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", n), 1, "x"))
		callers.Go(func() {
			if err := l.Do(ctx, c); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range traced {
		traced, span := tracer.Start(ctx, "request")
		requests[span.SpanContext().SpanID()] = span.SpanContext()
		defer span.End()
		send(traced, n)
	}
	for n := range untraced {
		send(ctx, traced+n)
	}
	// A worker takes the waiting commands and waits for the shard. The other commands fill the next group.
	pgtest.Eventually(t, "a worker waits for the shard", func() (bool, error) {
		var waiting int
		err := l.Pool.QueryRow(ctx, pgtest.LockWaits()).Scan(&waiting)
		return waiting > 0, err
	})
	if err := holder.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	callers.Wait()
	pgtest.Eventually(t, "all groups are reported", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		commands := 0
		for _, r := range reports {
			commands += r.Commands
		}
		return commands == traced+untraced, nil
	})
	for _, r := range reports {
		if r.Outcome != eventstore.GroupCommitted || len(r.Events) != r.Commands || len(r.Refused) != 0 || r.Shard != 0 {
			t.Errorf("report %+v", r)
		}
	}
	linked := map[trace.SpanID]int{}
	for _, group := range spans.GetSpans() {
		if group.Name != "group" || len(group.Links) == 0 || group.Parent.SpanID() != group.Links[0].SpanContext.SpanID() ||
			group.SpanContext.TraceID() != group.Parent.TraceID() {
			t.Errorf(
				"span %s of trace %s: parent %s, links %v", group.Name, group.SpanContext.TraceID(), group.Parent.SpanID(),
				group.Links,
			)
		}
		for _, link := range group.Links {
			if requests[link.SpanContext.SpanID()].TraceID() != link.SpanContext.TraceID() {
				t.Errorf("a link to %s, which is no request", link.SpanContext.SpanID())
			}
			linked[link.SpanContext.SpanID()]++
		}
	}
	for id := range requests {
		if linked[id] != 1 {
			t.Errorf("request %s is linked by %d groups", id, linked[id])
		}
	}
	if n := len(spans.GetSpans()); n == 0 || n >= traced {
		t.Errorf("%d groups for %d requests", n, traced)
	}
	l.Audit(t)
}

// TestGroupWithoutADatabase: a group without a connection is answered and reported as failed.
func TestGroupWithoutADatabase(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	reports := make(chan eventstore.GroupReport, 1)
	process := l.Process(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable", func(c *eventstore.Config) {
		c.Observe = func(r eventstore.GroupReport) { reports <- r }
	})
	err := process.Do(t.Context(), l.Register(t, o, o.Declaration("a", 1, "x")))
	var refusal *domain.Error
	if !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable {
		t.Errorf("the answer is %v", err)
	}
	if r := <-reports; r.Outcome != eventstore.GroupFailed || r.Commands != 1 || r.Shard != 0 {
		t.Errorf("the report is %+v", r)
	}
}
