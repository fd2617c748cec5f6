package eventstore

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
)

// GroupOutcome is how a transaction of commands ended.
type GroupOutcome string

// Outcomes of groups. One that was split is followed by its halves.
const (
	GroupCommitted GroupOutcome = "committed"
	GroupFailed    GroupOutcome = "failed"  // nothing was committed
	GroupUnknown   GroupOutcome = "unknown" // no caller was answered with success
	GroupSplit     GroupOutcome = "split"
	GroupClocks    GroupOutcome = "clocks" // refused because clocks disagree; nothing was committed
)

// GroupReport is what became of a group. Nothing in it may be changed.
type GroupReport struct {
	Shard    domain.Shard
	Commands int
	Outcome  GroupOutcome
	Refused  []error        // answers of a committed group's commands that were refused
	Events   []domain.Event // of a committed group
	// Duration is from the moment at which a connection was there, repetitions included.
	Duration time.Duration
}

// QueueState is how full the queue of a shard is.
type QueueState struct {
	Waiting, Capacity int
	Refused           int64 // commands turned away because it was full, since the start
}

// Queues are the states of the queues of all shards that had a command.
func (l *Ledger) Queues() map[domain.Shard]QueueState {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := map[domain.Shard]QueueState{}
	for shard, q := range l.shards {
		q.mu.Lock()
		states[shard] = QueueState{q.size, q.capacity, q.refused}
		q.mu.Unlock()
	}
	return states
}

// startSpan begins a group's span where any of its requests is traced: in the trace of the first of these, whose
// sampling it shares, and linked to all of them. The context is that of the workers, not of any request.
func (l *Ledger) startSpan(shard domain.Shard, items []item) (context.Context, trace.Span) {
	if l.Tracer == nil {
		return l.running, nil
	}
	var links []trace.Link
	seen := map[*submission]bool{}
	for _, it := range items {
		if s := it.submission; s.span.IsSampled() && !seen[s] {
			seen[s] = true
			links = append(links, trace.Link{SpanContext: s.span})
		}
	}
	if links == nil {
		return l.running, nil
	}
	return l.Tracer.Start(trace.ContextWithSpanContext(l.running, links[0].SpanContext), "group", trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("integrity.shard", int(shard)), attribute.Int("integrity.commands", len(items))))
}

func endSpan(span trace.Span, r GroupReport) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("integrity.outcome", string(r.Outcome)),
		attribute.Int("integrity.refused", len(r.Refused)), attribute.Int("integrity.events", len(r.Events)))
	if r.Outcome == GroupFailed || r.Outcome == GroupClocks || r.Outcome == GroupUnknown {
		span.SetStatus(codes.Error, string(r.Outcome))
	}
	span.End()
}
