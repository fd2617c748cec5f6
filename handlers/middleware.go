package handlers

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore"
	"integrityledger/handlers/mcp"
)

// call is what is known about the request under way.
type call struct {
	requestID  string
	start      time.Time // the moment at which everything about the request is decided
	access     domain.Access
	scope      domain.Scope // that the action under way needs; of an MCP request, the tool's
	secret     [32]byte     // SHA-256, to look the key up again after a wait
	body       []byte
	unread     error     // of an MCP message: why there is no body
	receivedAt time.Time // when the body was read
	arrived    bool      // the whole body has
	unwanted   io.Reader // the body, where it is passed over
	limits     []*limitState
	reached    int64    // the organization's sequence after what the request has written
	over       []func() // when the handler has returned
	challenged bool     // a refusal tells where to get a token
	meter      strictjson.Meter
}

type callKey struct{}

// reach raises reached to the sequence of an answer.
func (c *call) reach(answer eventstore.Answer) { c.reached = max(c.reached, answer.Sequence) }

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

const (
	// requestTimeout ends a request that nothing else has ended, counted from the moment at which its body is there:
	// after the longest wait of the feed (25 s), before the server's write timeout (40 s).
	requestTimeout = 35 * time.Second
	// answerTime is how long an answer may take to be written.
	answerTime = 5 * time.Second
)

// serve surrounds a route. Nothing is written before the handler has returned, so a panic is an ordinary 500.
func (s *server) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{requestID: requestID(r), start: s.Now(), challenged: s.challenged(rt.policy), unwanted: r.Body}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callKey{}, c), rt.timeout())
		defer cancel()
		ctx, span := s.startSpan(ctx, rt, r)
		r = r.WithContext(ctx)
		c.meter.Stop = func() bool { return ctx.Err() != nil }
		s.securityHeaders(w.Header(), rt, r)
		var resp response
		err := contain(func() (err error) {
			resp, err = s.run(w, r, rt)
			return err
		})
		for _, release := range c.over {
			release()
		}
		if err != nil {
			resp = s.failure(r, resp.header, err)
			if rt.wantsPage(r) {
				resp = s.failurePage(r, resp, err)
			}
		}
		resp.status = resp.statusCode()
		if resp.cache == "" && rt.policy.caller != anyone {
			resp.cache = privateNoStore
		}
		if rt.policy.caller != anyone && !rt.policy.isMessage() && r.Method != http.MethodGet && r.Method != http.MethodHead && resp.status < http.StatusMultipleChoices {
			w.Header().Set(sequenceHeader, strconv.FormatInt(max(c.access.Sequence, c.reached), 10))
		}
		written := s.write(w, r, c, resp)
		o := Observation{Route: rt.template, Method: rt.method(r), Status: resp.status, Code: resp.code, Duration: s.Now().Sub(c.start), Steps: c.meter.Steps()}
		s.logRequest(r, c, o, written, err)
		endSpan(span, o)
		if s.Observe != nil {
			s.Observe(o)
		}
	})
}

// run takes the checks that come before a handler, in the order of contract section 2, then calls it.
func (s *server) run(w http.ResponseWriter, r *http.Request, rt route) (response, error) {
	if rt.methods == nil {
		return response{}, domain.Refuse(domain.NotFound, "There is nothing at this path.")
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
	if e.isMessage() && !s.ownOrigin(r) {
		body := mcp.InvalidRequest("Pages of other sites may not call this endpoint, nor may it be called under another name than its own.").JSON(nil)
		return response{status: http.StatusForbidden, raw: body}, nil
	}
	if err := s.admit(r, e.policy); err != nil {
		return response{}, err
	}
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
	if err := s.limitAddress(r, p.bucket); err != nil || p.caller == anyone {
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
		if err := c.held(newLimitState(p.keyLimit, keyPerMinute, used, c.start)); err != nil {
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
	if p.queues {
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
		return newQuery(r).refusal()
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
		"Access-Control-Allow-Headers": {"X-Request-Id, If-None-Match"},
		"Access-Control-Max-Age":       {"86400"},
	}}
}

// contain makes an error of a panic.
func contain(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = mcp.NewPanicError(value)
		}
	}()
	return do()
}

// securityHeaders are on every answer. Only the public API may be read by pages of other origins, its errors included.
func (s *server) securityHeaders(h http.Header, rt route, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if strings.HasPrefix(s.BaseURL, "https://") {
		h.Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
	}
	if rt.methods != nil && rt.policy.anyOrigin || rt.methods == nil && strings.HasPrefix(r.URL.Path, "/api/public/") {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "Retry-After, RateLimit, RateLimit-Policy, X-Request-Id")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	} else {
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
	}
}

var requestIDPattern = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)

// requestID echoes the caller's id where it is well formed.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDPattern.MatchString(id) {
		return id
	}
	return rand.Text()
}

// logRequest writes the one line of a request.
func (s *server) logRequest(r *http.Request, c *call, o Observation, written int, err error) {
	attributes := []slog.Attr{
		slog.String("route", o.Route), slog.String("method", o.Method), slog.Int("status", o.Status),
		slog.String("code", string(o.Code)), slog.Duration("duration", o.Duration),
		slog.Int("bytes", written), slog.String("requestId", c.requestID),
	}
	if span := trace.SpanContextFromContext(r.Context()); span.IsSampled() {
		attributes = append(attributes, slog.String("traceId", span.TraceID().String()))
	}
	level := slog.LevelInfo
	if o.Status >= http.StatusInternalServerError {
		level = slog.LevelError
		if o.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
		attributes = append(attributes, faultAttributes(err)...)
	}
	s.Log.LogAttrs(r.Context(), level, "request", attributes...)
}

// faultAttributes is a fault of the service in the log, with the stack of a panic.
func faultAttributes(err error) []slog.Attr {
	attributes := []slog.Attr{slog.Any("error", err)}
	if p, ok := errors.AsType[*mcp.PanicError](err); ok {
		attributes = append(attributes, slog.String("stack", p.Stack))
	}
	return attributes
}

func variable(r *http.Request, name string) string { return mux.Vars(r)[name] }

// pathID reads an id of the path. A malformed id is the zero id, which is answered as an unknown one.
func pathID[ID any](r *http.Request, name string, parse func(string) (ID, error)) ID {
	id, _ := parse(variable(r, name))
	return id
}

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
