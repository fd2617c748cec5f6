package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

const (
	// RequestTimeout bounds a request that nothing else has ended, from the moment its body has been read. It is longer
	// than the longest wait of the feed (25 s) and shorter than the server's write timeout (40 s).
	RequestTimeout = 35 * time.Second
	// answerTime is the time allowed for writing an answer.
	answerTime = 5 * time.Second
)

// serve surrounds a route. Nothing is written before the handler has returned, so a panic becomes an ordinary 500.
func (s *Edge) serve(rt Route) http.Handler {
	timeout, own, public := rt.timeout(), s.securityHeaders(rt.Policy.AnyOrigin), s.securityHeaders(true)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now() // costs less than the service's clock, and a duration needs no agreement about the time
		c := &Call{RequestID: requestID(r), client: clientVersion(r), Template: rt.Template, Start: s.Now(),
			challenged: s.challenged(rt.Policy), Content: Content{unwanted: r.Body},
			Method: r.Method, Path: r.URL.Path, repeated: r.Header.Values(idempotencyHeader),
			languages: r.Header.Values("Accept-Language")}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), timeout)
		defer cancel()
		ctx, span := s.startSpan(ctx, rt, r)
		r = r.WithContext(ctx)
		c.Meter.Stop = func() bool { return ctx.Err() != nil }
		if rt.Methods == nil && strings.HasPrefix(r.URL.Path, "/api/public/") {
			public.set(w.Header())
		} else {
			own.set(w.Header())
		}
		if strings.HasPrefix(r.URL.Path, "/api/") {
			w.Header()[versionHeader] = s.version
		}
		var resp Response
		err := Contain(func() (err error) {
			resp, err = s.run(w, r, rt)
			return err
		})
		for _, release := range c.over {
			release()
		}
		if onward := s.faces.Onward(r, rt.Policy, err); onward != nil {
			resp = *onward
		} else if err != nil {
			resp = s.failure(r, resp.Header, err)
			if rt.wantsPage(r) {
				resp = s.faces.FailurePage(r, resp, err)
			}
		}
		resp.Status = resp.StatusFor(r)
		if resp.Cache == "" && rt.Policy.Caller != Anyone {
			resp.Cache = privateNoStore
		}
		if rt.Policy.Caller.withCredential() && !rt.Policy.IsMessage() && r.Method != http.MethodGet &&
			r.Method != http.MethodHead && resp.Status < http.StatusMultipleChoices {
			w.Header().Set(sequenceHeader, strconv.FormatInt(max(c.Access.Sequence, c.reached), 10))
		}
		written := s.write(w, r, c, resp)
		if c.Written != nil {
			c.Written()
		}
		o := Observation{
			Route: rt.Template, Method: rt.method(r), Status: resp.Status, Code: resp.Code, FailedItems: c.failedItems,
			Start: c.Start, Duration: time.Since(began), Steps: c.Meter.Steps(),
			Organization: c.Access.Organization, Received: c.arriving.bytes(), Sent: int64(written),
		}
		s.logRequest(ctx, c, rt.Policy, o, written, err)
		endSpan(span, o)
		if s.Observe != nil {
			s.Observe(o)
		}
		if c.cutOff {
			panic(http.ErrAbortHandler)
		}
	})
	if rt.Policy.Compressed {
		h = gzhttp.GzipHandler(h)
	}
	return h
}

// run makes the checks that precede a handler, in the order of contract section 2, then calls the handler.
func (s *Edge) run(w http.ResponseWriter, r *http.Request, rt Route) (Response, error) {
	if !domain.ValidText(r.URL.Path) {
		return Response{}, domain.Refuse(domain.MalformedPath, "The path %s.", domain.TextRule)
	}
	if rt.Methods == nil {
		return Elsewhere(r, domain.Refuse(domain.NotFound, "There is nothing at this path."))
	}
	if rt.Policy.AnyOrigin && r.Method == http.MethodOptions {
		return preflight(rt), nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	e, ok := rt.Methods[method]
	if !ok {
		return Response{Header: http.Header{"Allow": {rt.allow()}}},
			domain.Refuse(domain.MethodNotAllowed, "This path supports only %s.", rt.allow())
	}
	if e.Foreign != nil {
		if resp := e.Foreign(r); resp != nil {
			return *resp, nil
		}
	}
	if err := s.decide(r, e); err != nil {
		return Response{}, err
	}
	if e.Enter != nil {
		with, resp, err := e.Enter(r, e.Policy)
		if err != nil || resp != nil {
			if resp == nil {
				resp = &Response{}
			}
			return *resp, err
		}
		r = with
	}
	var resp Response
	err := Contain(func() (err error) {
		resp, err = s.answer(w, r, e)
		return err
	})
	return s.settle(r, e.Policy, resp, err)
}

// answer reads the request and calls the handler.
func (s *Edge) answer(w http.ResponseWriter, r *http.Request, e Endpoint) (Response, error) {
	err := s.takeIn(w, r, e.Policy)
	if e.IsMessage() {
		CallOf(r).Unread, err = err, nil
	}
	if err != nil {
		return Response{}, err
	}
	if !e.Body.ReadByHandler() { // bound the time after the body has been read
		ctx, cancel := context.WithTimeout(r.Context(), RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	answer, err := e.Handle(r)
	if e.Monthly {
		s.returnRequest(r, err)
	}
	switch resp, whole := answer.(Response); {
	case err != nil:
		return Response{}, err
	case whole:
		return resp, nil
	default:
		return Response{Data: answer}, nil
	}
}

// takeIn checks and reads the request: Accept, body, query.
func (s *Edge) takeIn(w http.ResponseWriter, r *http.Request, p Policy) error {
	if p.Answer == InEnvelope && !acceptsJSON(r.Header.Values("Accept")) {
		return domain.Refuse(domain.NotAcceptable, "The answer is application/json, which the Accept header excludes.")
	}
	if err := s.readBody(w, r, p.Body); err != nil {
		return err
	}
	if r.URL.RawQuery != "" { // even if the handler reads no query
		if err := Invalid(strictjson.Query(r.URL.Query()).Wrong()); err != nil {
			return err
		}
	}
	if p.Queues || p.Caller == WithSession && p.Body != BodyNone && !p.Body.ReadByHandler() {
		// The session may have ended while the body arrived.
		if err := s.JudgeAgain(r.Context()); err != nil {
			return err
		}
	}
	if p.Replica {
		if err := readAfter(r); err != nil {
			return err
		}
	}
	if p.NoQuery {
		return Invalid(NewQuery(r).Problems())
	}
	return nil
}

// returnRequest returns the monthly request if the handler refused it because of key, scope, role, plan or quota: such
// a refusal costs nothing (specification, Errors).
func (s *Edge) returnRequest(r *http.Request, err error) {
	refused := Refusal(err)
	free := []domain.Code{
		domain.InvalidKey, domain.MissingScope, domain.RoleRequired, domain.ArtifactQuotaExhausted, domain.PlanRequired,
	}
	if refused == nil || !slices.Contains(free, refused.Code) {
		return
	}
	c := CallOf(r)
	if err := s.Store.ReturnRequest(r.Context(), c.Access, c.Start); err != nil {
		s.Log.WarnContext(r.Context(), "monthly request not returned", "requestId", c.RequestID, "error", err)
	}
}

func preflight(rt Route) Response {
	return Response{Status: http.StatusNoContent, Cache: NoStore, Header: http.Header{
		"Allow":                        {rt.allow()},
		"Access-Control-Allow-Methods": {rt.allow()},
		"Access-Control-Allow-Headers": {"X-Request-Id, If-None-Match, Integrity-Version"},
		"Access-Control-Max-Age":       {"86400"},
	}}
}

// fixedHeaders are the same on every answer of a route. Their values are shared: replace a header, never change its
// values.
type fixedHeaders []struct {
	name   string // in canonical form
	values []string
}

func (f fixedHeaders) set(h http.Header) {
	for _, line := range f {
		h[line.name] = line.values
	}
}

// securityHeaders are on every answer. Only the public API, including its errors, may be read by pages of other
// origins.
func (s *Edge) securityHeaders(anyOrigin bool) fixedHeaders {
	headers := fixedHeaders{
		{"X-Content-Type-Options", []string{"nosniff"}},
		{"X-Frame-Options", []string{"DENY"}},
		{"Referrer-Policy", []string{"no-referrer"}},
		{
			"Content-Security-Policy",
			[]string{"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
		},
		{"Cross-Origin-Resource-Policy", []string{"same-origin"}},
	}
	if anyOrigin {
		headers[len(headers)-1].values = []string{"cross-origin"}
		headers = append(headers, fixedHeaders{
			{"Access-Control-Allow-Origin", []string{"*"}},
			{
				"Access-Control-Expose-Headers",
				[]string{"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Integrity-Version"},
			},
		}...)
	}
	if strings.HasPrefix(s.BaseURL, "https://") {
		headers = append(headers,
			fixedHeaders{{"Strict-Transport-Security", []string{"max-age=31536000; includeSubDomains"}}}...)
	}
	return headers
}

// requestID returns the caller's id if it is well formed, [A-Za-z0-9._-]{1,64}, and otherwise a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	malformed := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}
	if len(id) < 1 || len(id) > 64 || strings.ContainsFunc(id, malformed) {
		return rand.Text()
	}
	return id
}

// logRequest writes the log line of a request. The line of a fault is written at once.
func (s *Edge) logRequest(ctx context.Context, c *Call, p Policy, o Observation, written int, err error) {
	log, level := s.Requests, slog.LevelInfo
	if p.Probe {
		level = slog.LevelDebug
	}
	if o.Status >= http.StatusInternalServerError {
		log, level = s.Log, slog.LevelError
		if o.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
	}
	if !log.Enabled(ctx, level) {
		return
	}
	record := slog.NewRecord(time.Now(), level, "request", 0) // like LogAttrs, but without looking up the caller
	record.AddAttrs(
		slog.String("route", o.Route), slog.String("method", o.Method), slog.Int("status", o.Status),
		slog.String("code", string(o.Code)), slog.Duration("duration", o.Duration),
		slog.Int("bytes", written), slog.String("requestId", c.RequestID), slog.String("service", s.version[0]))
	if !o.Organization.IsZero() {
		record.AddAttrs(slog.String("organization", o.Organization.String()))
	}
	if c.client != "" {
		record.AddAttrs(slog.String("client", c.client))
	}
	if o.FailedItems != nil {
		record.AddAttrs(slog.Any("failedItems", o.FailedItems))
	}
	if s.Tracer != nil {
		if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
			record.AddAttrs(slog.String("traceId", span.TraceID().String()))
		}
	}
	if level > slog.LevelInfo {
		record.AddAttrs(FaultAttributes(err)...)
	}
	_ = log.Handler().Handle(ctx, record) // LogAttrs ignores the error too
}

// FaultAttributes describes a fault of the service for the log, with the stack of a panic.
func FaultAttributes(err error) []slog.Attr {
	attributes := []slog.Attr{slog.Any("error", err)}
	if p, ok := errors.AsType[*panicError](err); ok {
		attributes = append(attributes, slog.String("stack", p.Stack))
	}
	return attributes
}

// Observation is what the service measures of a request. It contains no text chosen by the caller.
type Observation struct {
	Route  string // template; "unknown" if no route matches
	Method string // "other" if the route does not have the method
	Status int
	Code   domain.Code // of a failure
	// FailedItems counts failures within the answer, whatever its status: items of a batch, calls of MCP tools.
	FailedItems map[domain.Code]int
	Start       time.Time
	Duration    time.Duration
	Steps       int64 // spent on reading the request: strictjson.Meter
	// Organization owns the request's credential; it is zero without a valid one. It must not become a label of a metric.
	Organization   domain.OrganizationID
	Received, Sent int64 // bytes of the two bodies
}

// method returns the request's method, or "other" if the route does not have it.
func (rt Route) method(r *http.Request) string {
	if _, ok := rt.Methods[r.Method]; !ok && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		return "other" // the caller may send any text
	}
	return r.Method
}

// startSpan starts the span of a request, in the caller's trace if the request names one (W3C Trace Context, header
// traceparent). The span omits tracestate, which may be any text, and also path, query and headers.
func (s *Edge) startSpan(ctx context.Context, rt Route, r *http.Request) (context.Context, trace.Span) {
	if s.Tracer == nil {
		return ctx, nil
	}
	caller := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header)))
	if caller.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, caller.WithTraceState(trace.TraceState{}))
	}
	method := rt.method(r)
	return s.Tracer.Start(ctx, method+" "+rt.Template, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", rt.Template)))
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
