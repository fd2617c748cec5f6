package handlers

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
)

// Observation is what is measured of a request. None of it is the caller's own text.
type Observation struct {
	Route    string // template; "unknown" where nothing answers
	Method   string // "other" where the route does not have it
	Status   int
	Code     domain.Code // of a failure
	Duration time.Duration
	Steps    int64 // of reading what the request carried: strictjson.Meter
}

// method names the request's method.
func (rt route) method(r *http.Request) string {
	if _, ok := rt.methods[r.Method]; !ok && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		return "other" // free text of the caller
	}
	return r.Method
}

// startSpan begins a request's span, in the caller's trace where it names one (W3C Trace Context, header traceparent).
// tracestate is any text of the caller's, and is left out; so are path, query and headers.
func (s *server) startSpan(ctx context.Context, rt route, r *http.Request) (context.Context, trace.Span) {
	if s.Tracer == nil {
		return ctx, nil
	}
	caller := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header)))
	if caller.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, caller.WithTraceState(trace.TraceState{}))
	}
	method := rt.method(r)
	return s.Tracer.Start(ctx, method+" "+rt.template, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", rt.template)))
}

func endSpan(span trace.Span, o Observation) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.Int("http.response.status_code", o.Status))
	if o.Code != "" {
		span.SetAttributes(attribute.String("error.type", string(o.Code)))
	}
	if o.Status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, string(o.Code))
	}
	span.End()
}
