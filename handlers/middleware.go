package handlers

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
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
	"integrityledger/eventstore"
	"integrityledger/handlers/edge"
	"integrityledger/projections/query"
)

// call is what is known about the request under way.
type call struct {
	requestID  string
	client     string    // that the request names: a product, or empty
	template   string    // of the route
	start      time.Time // the moment at which everything about the request is decided
	access     domain.Access
	presumed   bool         // access is remembered of an earlier request, and nobody has judged it yet
	counted    bool         // by a group that may not have judged the caller
	scope      domain.Scope // that the action under way needs; of an MCP request, the tool's
	caller     callerName   // to look the key up again after a wait
	body       []byte
	form       url.Values // of the body, where that is a form
	unread     error      // of an MCP message: why there is no body
	receivedAt time.Time  // when the body was read
	arrived    bool       // the whole body has
	unwanted   io.Reader  // the body, where it is passed over
	arriving   *pacedBody // nil: no body was read
	limits     []*limitState
	spent      *domain.Error  // the minute's refusal, of a request that may still take something away
	tookAway   bool           // it did
	reached    int64          // the organization's sequence after what the request has written
	over       []func()       // when the handler has returned
	written    func()         // when the answer is written; may be nil
	challenged bool           // a refusal tells where to get a token
	session    *query.Session // of the console; nil elsewhere
	cutOff     bool           // the answer ends before its end
	meter      strictjson.Meter
	// failedItems counts failures that the answer holds beside its own status: items of a batch, calls of MCP tools.
	failedItems map[domain.Code]int
}

type callKey struct{}

// reach takes in what a group says besides its decision: the organization's sequence, and what became of a caller that
// was presumed.
func (s *server) reach(c *call, answer eventstore.Answer) {
	c.reached = max(c.reached, answer.Sequence)
	c.counted = answer.Counted
	if c.presumed && answer.Used > 0 {
		c.presumed = false
		s.accepted(c, answer.Used, answer.Most)
	}
}

// faces are what the console and the pages for people do with an outcome.
type faces struct {
	// onward is the answer to what only the console refuses: the way on. Nil: the outcome is any other.
	onward func(r *http.Request, p policy, err error) *response
	// failurePage shows a failure to a person.
	failurePage func(r *http.Request, failed response, err error) response
}

// callOf is what is known about a request.
func callOf(r *http.Request) *call { return callIn(r.Context()) }

// callIn is the request under way, which a context of it knows.
func callIn(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

const (
	// requestTimeout ends a request that nothing else has ended, counted from the moment at which its body is there:
	// after the longest wait of the feed (25 s), before the server's write timeout (40 s).
	requestTimeout = 35 * time.Second
	// answerTime is how long an answer may take to be written.
	answerTime = 5 * time.Second
)

// serve surrounds a route. Nothing is written before the handler has returned, so a panic is an ordinary 500.
func (s *server) serve(rt route) http.Handler {
	timeout, own, public := rt.timeout(), s.securityHeaders(rt.policy.anyOrigin), s.securityHeaders(true)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{requestID: requestID(r), client: clientVersion(r), template: rt.template, start: s.Now(), challenged: s.challenged(rt.policy), unwanted: r.Body}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), timeout)
		defer cancel()
		ctx, span := s.startSpan(ctx, rt, r)
		r = r.WithContext(ctx)
		c.meter.Stop = func() bool { return ctx.Err() != nil }
		if rt.methods == nil && strings.HasPrefix(r.URL.Path, "/api/public/") {
			public.set(w.Header())
		} else {
			own.set(w.Header())
		}
		if strings.HasPrefix(r.URL.Path, "/api/") {
			w.Header()[versionHeader] = s.version
		}
		var resp response
		err := edge.Contain(func() (err error) {
			resp, err = s.run(w, r, rt)
			return err
		})
		for _, release := range c.over {
			release()
		}
		if onward := s.faces.onward(r, rt.policy, err); onward != nil {
			resp = *onward
		} else if err != nil {
			resp = s.failure(r, resp.header, err)
			if rt.wantsPage(r) {
				resp = s.faces.failurePage(r, resp, err)
			}
		}
		resp.status = resp.statusCode()
		if resp.cache == "" && rt.policy.caller != anyone {
			resp.cache = privateNoStore
		}
		if rt.policy.caller.withCredential() && !rt.policy.isMessage() && r.Method != http.MethodGet && r.Method != http.MethodHead && resp.status < http.StatusMultipleChoices {
			w.Header().Set(sequenceHeader, strconv.FormatInt(max(c.access.Sequence, c.reached), 10))
		}
		written := s.write(w, r, c, resp)
		if c.written != nil {
			c.written()
		}
		o := Observation{
			Route: rt.template, Method: rt.method(r), Status: resp.status, Code: resp.code, FailedItems: c.failedItems,
			Duration: s.Now().Sub(c.start), Steps: c.meter.Steps(),
			Organization: c.access.Organization, Received: c.arriving.bytes(), Sent: int64(written),
		}
		s.logRequest(ctx, c, o, written, err)
		endSpan(span, o)
		if s.Observe != nil {
			s.Observe(o)
		}
		if c.cutOff {
			panic(http.ErrAbortHandler)
		}
	})
	if rt.policy.compressed {
		h = gzhttp.GzipHandler(h)
	}
	return h
}

// run takes the checks that come before a handler, in the order of contract section 2, then calls it.
func (s *server) run(w http.ResponseWriter, r *http.Request, rt route) (response, error) {
	if !domain.ValidText(r.URL.Path) {
		return response{}, domain.Refuse(domain.MalformedPath, "The path %s.", domain.TextRule)
	}
	if rt.methods == nil {
		return elsewhere(r, domain.Refuse(domain.NotFound, "There is nothing at this path."))
	}
	if rt.policy.anyOrigin && r.Method == http.MethodOptions {
		return preflight(rt), nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	e, ok := rt.methods[method]
	if !ok {
		return response{header: http.Header{"Allow": {rt.allow()}}},
			domain.Refuse(domain.MethodNotAllowed, "This path answers %s only.", rt.allow())
	}
	if e.foreign != nil {
		if resp := e.foreign(r); resp != nil {
			return *resp, nil
		}
	}
	c := callOf(r)
	if c.presumed = e.judged && s.presume(r, e.policy); !c.presumed {
		if err := s.admit(r, e.policy); err != nil {
			return response{}, err
		}
	}
	if e.enter != nil {
		with, resp, err := e.enter(r, e.policy)
		if err != nil || resp != nil {
			if resp == nil {
				resp = &response{}
			}
			return *resp, err
		}
		r = with
	}
	var resp response
	err := edge.Contain(func() (err error) {
		resp, err = s.answer(w, r, e)
		return err
	})
	if c.presumed {
		if refused := s.judgeLate(r, e.policy); refused != nil {
			return response{}, refused
		}
	}
	return resp, s.afterSpent(r, err)
}

// answer takes in what the request carries and calls the handler.
func (s *server) answer(w http.ResponseWriter, r *http.Request, e endpoint) (response, error) {
	err := s.takeIn(w, r, e.policy)
	if e.isMessage() {
		callOf(r).unread, err = err, nil
	}
	if err != nil {
		return response{}, err
	}
	if !e.body.readByHandler() { // what follows once the body is there is bounded
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	answer, err := e.handle(r)
	if e.monthly {
		s.returnRequest(r, err)
	}
	switch resp, whole := answer.(response); {
	case err != nil:
		return response{}, err
	case whole:
		return resp, nil
	default:
		return response{data: answer}, nil
	}
}

// admit takes the checks of the caller, in the order of contract section 2: key, rate, scope, role, request of the month.
func (s *server) admit(r *http.Request, p policy) error {
	if err := s.limitAddress(r, p.bucket); err != nil || !p.caller.withCredential() {
		return err
	}
	if err := s.authenticate(r, p); err != nil {
		return err
	}
	c := callOf(r)
	c.scope = p.scope
	if p.keyLimit != "" {
		used, err := s.Store.CountMinute(r.Context(), c.access.Organization.Shard(), c.access.Credential(), 1, c.start)
		if err != nil {
			return err
		}
		if err := c.held(newLimitState(p.keyLimit, "This key may send %d of these requests a minute, a limit of its own beside the organization's", keyPerMinute, used, c.start)); err != nil {
			return err
		}
	}
	if err := allows(c.access, p.scope); err != nil {
		return err
	}
	if p.monthly {
		return s.Store.TakeRequests(r.Context(), c.access, 1, c.start)
	}
	return nil
}

// takeIn judges and reads what the request carries: Accept, body, query.
func (s *server) takeIn(w http.ResponseWriter, r *http.Request, p policy) error {
	if p.answer == inEnvelope && !acceptsJSON(r.Header.Values("Accept")) {
		return domain.Refuse(domain.NotAcceptable, "The answer is application/json, which the Accept header excludes.")
	}
	if err := s.readBody(w, r, p.body); err != nil {
		return err
	}
	if r.URL.RawQuery != "" { // also for handlers that read no query
		if err := invalid(strictjson.Query(r.URL.Query()).Wrong()); err != nil {
			return err
		}
	}
	if p.queues || p.caller == withSession && p.body != bodyNone && !p.body.readByHandler() { // a session may end while the body travels
		if err := s.judgeAgain(r); err != nil {
			return err
		}
	}
	if p.replica {
		if err := readAfter(r); err != nil {
			return err
		}
	}
	if p.noQuery {
		return invalid(newQuery(r).Problems())
	}
	return nil
}

// returnRequest gives the request of the month back where a handler refused it by key, scope, role, plan or quota: such
// a refusal costs nothing (specification, Errors).
func (s *server) returnRequest(r *http.Request, err error) {
	refused := refusal(err)
	free := []domain.Code{domain.InvalidKey, domain.MissingScope, domain.RoleRequired, domain.ArtifactQuotaExhausted, domain.PlanRequired}
	if refused == nil || !slices.Contains(free, refused.Code) {
		return
	}
	c := callOf(r)
	if err := s.Store.ReturnRequest(r.Context(), c.access, c.start); err != nil {
		s.Log.WarnContext(r.Context(), "a refused request stays counted", "requestId", c.requestID, "error", err)
	}
}

func preflight(rt route) response {
	return response{status: http.StatusNoContent, cache: noStore, header: http.Header{
		"Allow":                        {rt.allow()},
		"Access-Control-Allow-Methods": {rt.allow()},
		"Access-Control-Allow-Headers": {"X-Request-Id, If-None-Match, Integrity-Version"},
		"Access-Control-Max-Age":       {"86400"},
	}}
}

// fixedHeaders are the same on every answer of a route. Their values are shared: headers are replaced, never changed.
type fixedHeaders []struct {
	name   string // in canonical form
	values []string
}

func (f fixedHeaders) set(h http.Header) {
	for _, line := range f {
		h[line.name] = line.values
	}
}

// securityHeaders are on every answer. Only the public API may be read by pages of other origins, its errors included.
func (s *server) securityHeaders(anyOrigin bool) fixedHeaders {
	headers := fixedHeaders{
		{"X-Content-Type-Options", []string{"nosniff"}},
		{"X-Frame-Options", []string{"DENY"}},
		{"Referrer-Policy", []string{"no-referrer"}},
		{"Content-Security-Policy", []string{"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}},
		{"Cross-Origin-Resource-Policy", []string{"same-origin"}},
	}
	if anyOrigin {
		headers[len(headers)-1].values = []string{"cross-origin"}
		headers = append(headers, fixedHeaders{
			{"Access-Control-Allow-Origin", []string{"*"}},
			{"Access-Control-Expose-Headers", []string{"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Integrity-Version"}},
		}...)
	}
	if strings.HasPrefix(s.BaseURL, "https://") {
		headers = append(headers, fixedHeaders{{"Strict-Transport-Security", []string{"max-age=31536000; includeSubDomains"}}}...)
	}
	return headers
}

// requestID echoes the caller's id where it is well formed: [A-Za-z0-9._-]{1,64}.
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

// logRequest writes the one line of a request. That of a fault is written at once.
func (s *server) logRequest(ctx context.Context, c *call, o Observation, written int, err error) {
	log, level := s.Requests, slog.LevelInfo
	if o.Status >= http.StatusInternalServerError {
		log, level = s.Log, slog.LevelError
		if o.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
	}
	if !log.Enabled(ctx, level) {
		return
	}
	record := slog.NewRecord(time.Now(), level, "request", 0) // as LogAttrs, which looks for its caller
	record.AddAttrs(
		slog.String("route", o.Route), slog.String("method", o.Method), slog.Int("status", o.Status),
		slog.String("code", string(o.Code)), slog.Duration("duration", o.Duration),
		slog.Int("bytes", written), slog.String("requestId", c.requestID), slog.String("service", s.version[0]))
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
		record.AddAttrs(faultAttributes(err)...)
	}
	_ = log.Handler().Handle(ctx, record) // as LogAttrs
}

// faultAttributes is a fault of the service in the log, with the stack of a panic.
func faultAttributes(err error) []slog.Attr {
	attributes := []slog.Attr{slog.Any("error", err)}
	if p, ok := errors.AsType[*edge.PanicError](err); ok {
		attributes = append(attributes, slog.String("stack", p.Stack))
	}
	return attributes
}

// pathID reads an id of the path. A malformed id is the zero id, which is answered as an unknown one.
func pathID[ID any](r *http.Request, name string, parse func(string) (ID, error)) ID {
	id, _ := parse(variable(r, name))
	return id
}

// Observation is what is measured of a request. None of it is the caller's own text.
type Observation struct {
	Route  string // template; "unknown" where nothing answers
	Method string // "other" where the route does not have it
	Status int
	Code   domain.Code // of a failure
	// FailedItems counts failures within the answer, whatever its status: items of a batch, calls of MCP tools.
	FailedItems map[domain.Code]int
	Duration    time.Duration
	Steps       int64 // of reading what the request carried: strictjson.Meter
	// Organization is whose credential the request had; zero without a valid one. It is no label of a metric.
	Organization   domain.OrganizationID
	Received, Sent int64 // bytes of the two bodies
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
