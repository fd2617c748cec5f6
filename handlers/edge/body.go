package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/fair"
)

// A large body is counted in units of the work it may cause: one for each item of a batch, or for each bytesPerUnit. An
// organization may have bodyShare units in progress, from before a body is read until its answer, which is about its
// share of a shard's queue. Further bodies wait unread, at almost no cost.
const (
	bytesPerUnit = 8 << 10
	bytesPerItem = 200 // a valid declaration is longer
	bodyShare    = 4 * MaxDeclarations
	bodyTotal    = 16 * bodyShare
	bodyLine     = 256
)

// bodyPatience is the longest time that a request waits for admission. It is long enough for a whole line to be served:
// a request that gives up returns to the end of the line, so with less patience the same callers would give up again
// and again, and their retries would be wasted work. It is shorter than the server's read timeout.
const (
	bodyPatience = 25 * time.Second
)

func newBodies(closing <-chan struct{}) *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: bodyTotal, Each: bodyShare, Line: bodyLine, Yields: true, Patience: bodyPatience, Closing: closing,
	})
}

func (rule BodyRule) units(bytes int64) int {
	if rule == BodyBatch {
		return min(int(bytes/bytesPerItem)+1, MaxDeclarations)
	}
	return int(bytes/bytesPerUnit) + 1
}

// admitBody waits until the organization may have another large body read and answered.
func (s *Edge) admitBody(ctx context.Context, c *Call, rule BodyRule, bytes int64) error {
	if rule.limit() <= maxMessage {
		return nil
	}
	release, err := s.bodies.Acquire(ctx, c.Access.Organization, rule.units(bytes))
	if err != nil {
		return domain.Unavailable(
			"This organization has too many large requests in progress; wait for their answers, then send this one again.",
		)
	}
	c.over = append(c.over, release)
	return nil
}

// BodyRule is the kind of body that an endpoint accepts.
type BodyRule int

const (
	BodyNone     BodyRule = iota // a body is not read
	BodyRequired                 // JSON, Content-Length required
	BodyOptional                 // no body, or JSON
	BodyBatch                    // BodyRequired, with room for a batch
	BodyManifest                 // BodyRequired, with room for a file manifest
	BodyContent                  // JSON with room for a text, or multipart/form-data, which the handler reads
	BodyFile                     // multipart/form-data, which the handler reads
	BodyMessage                  // JSON of MCP; Content-Length is optional
	BodyForm                     // the form of a page, Content-Length required
	BodyLongForm                 // BodyForm, with room for many fields
)

const (
	MaxBody    = 8 << 10
	maxBatch   = 4 << 20
	maxContent = 4 << 20
	maxForm    = 1 << 10
	maxLong    = 32 << 10
	maxMessage = 64 << 10
	maxDepth   = 32
	maxNames   = 100 // in a list of names, such as scopes; each may appear once

	// A body may arrive bodyGrace later than bodyRate allows.
	bodyGrace = 10 * time.Second
	bodyRate  = 64 << 10 // bytes a second

	// An unwanted body is read up to maxRest bytes. If it pauses for restTime, the answer is written at once.
	restTime = time.Second
	maxRest  = 256 << 10
)

func bodyTime(bytes int64) time.Duration {
	return bodyGrace + time.Duration(bytes)*time.Second/bodyRate
}

// timeout returns how long a body may take to arrive.
func (rule BodyRule) timeout() time.Duration {
	switch {
	case rule == BodyNone:
		return 0
	case rule.ReadByHandler():
		return bodyTime(domain.MaxFileBytes + maxUploadOverhead)
	default:
		return bodyTime(rule.limit())
	}
}

// ReadByHandler reports whether the handler reads the body instead of the middleware.
func (rule BodyRule) ReadByHandler() bool { return rule == BodyContent || rule == BodyFile }

// limit returns the number of bytes that the middleware reads of a body.
func (rule BodyRule) limit() int64 {
	return [...]int64{
		MaxBody, MaxBody, MaxBody, BodyBatch: maxBatch, BodyManifest: domain.MaxManifestBytes, BodyContent: maxContent,
		BodyFile:    MaxBody,
		BodyMessage: maxMessage, BodyForm: maxForm, BodyLongForm: maxLong,
	}[rule]
}

func (rule BodyRule) mediaType() string {
	if rule.IsForm() {
		return "application/x-www-form-urlencoded"
	}
	return JSONType
}

// readBody reads the body. It refuses with 415, 411, 413 or 408, in this order.
func (s *Edge) readBody(w http.ResponseWriter, r *http.Request, rule BodyRule) error {
	c := CallOf(r)
	if rule == BodyNone || rule == BodyOptional && r.ContentLength == 0 {
		c.ReceivedAt = c.Start
		return nil
	}
	if rule == BodyFile || rule == BodyContent && isMultipart(r.Header.Get("Content-Type")) {
		return s.admitUpload(w, r)
	}
	if !isMedia(r.Header.Get("Content-Type"), rule.mediaType()) || r.Header.Get("Content-Encoding") != "" {
		return domain.Refuse(
			domain.UnsupportedMediaType, "Send the body as %s in UTF-8, without Content-Encoding.", rule.mediaType(),
		)
	}
	if rule != BodyMessage && (r.ContentLength < 0 || r.Header.Get("Content-Length") == "") {
		return domain.Refuse(domain.LengthRequired, "Send the length of the body in Content-Length.")
	}
	if limit := rule.limit(); r.ContentLength > limit {
		return domain.Refuse(domain.PayloadTooLarge, "The body may have at most %d bytes.", limit)
	}
	if err := s.admitBody(r.Context(), c, rule, r.ContentLength); err != nil {
		return err
	}
	paced, err := s.pace(w, r, rule)
	if err != nil {
		return err
	}
	c.arriving = paced
	body, err := io.ReadAll(io.LimitReader(r.Body, rule.limit()+1))
	if int64(len(body)) > rule.limit() {
		return domain.Refuse(domain.PayloadTooLarge, "The body may have at most %d bytes.", rule.limit())
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return TooSlow()
	case err != nil || r.ContentLength >= 0 && int64(len(body)) != r.ContentLength:
		return domain.Refuse(domain.MalformedJSON, "The body ended before it was complete.")
	}
	c.ReceivedAt = s.Now()
	c.Body, c.Arrived = body, true
	paced.Arrived()
	if rule.IsForm() {
		if c.form, err = url.ParseQuery(string(body)); err != nil {
			return domain.InvalidMember("", strictjson.CodeFormat, "the form is not well formed")
		}
		return Invalid(strictjson.Fields(c.form).Wrong())
	}
	return nil
}

func (rule BodyRule) IsForm() bool { return rule == BodyForm || rule == BodyLongForm }

// pacedBody is a body that must arrive in time. Its deadlines are set on the connection, so they follow the real clock.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	due     time.Time // when the first byte must arrive
	read    int64
}

// pace gives the body its read deadline, which moves as bytes arrive, and gives the answer time of its own after that.
func (s *Edge) pace(w http.ResponseWriter, r *http.Request, rule BodyRule) (*pacedBody, error) {
	control, now := http.NewResponseController(w), time.Now()
	if err := control.SetWriteDeadline(now.Add(Policy{Body: rule}.timeout() + answerTime)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("write deadline of a body: %w", err)
	}
	b := &pacedBody{ReadCloser: r.Body, control: control, due: now.Add(s.BodyGrace)}
	r.Body = b
	return b, nil
}

func (b *pacedBody) Read(p []byte) (int, error) {
	due := b.due.Add(time.Duration(b.read) * time.Second / bodyRate)
	if err := b.control.SetReadDeadline(due); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, fmt.Errorf("read deadline of a body: %w", err)
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// bytes returns the number of bytes that have arrived. A nil body has none.
func (b *pacedBody) bytes() int64 {
	if b == nil {
		return 0
	}
	return b.read
}

// Arrived removes the deadline: from now on the server watches the connection for a caller who goes away.
func (b *pacedBody) Arrived() {
	_ = b.control.SetReadDeadline(time.Time{}) // a broken connection surfaces when the answer is written
}

// passOver reads the rest of a body before the answer, for as long as it keeps arriving. Otherwise the server would
// wait for the rest until its own deadline and then send no answer, and a client that is still sending may lose an
// answer after which the connection ends. If begun is false, the client has not begun to send (Expect), and nothing is
// read.
func passOver(w http.ResponseWriter, body io.Reader, begun bool) {
	control, end, buffer := http.NewResponseController(w), time.Now().Add(bodyGrace), make([]byte, 4<<10)
	for left := maxRest; left > 0; {
		due := time.Now().Add(restTime)
		if due.After(end) {
			due = end
		}
		if err := control.SetReadDeadline(due); err != nil || !begun {
			return
		}
		n, err := body.Read(buffer)
		if left -= n; err != nil { // or the body is late: the server then closes the connection after the answer
			return
		}
	}
}

// TooSlow refuses a body that did not arrive in time.
func TooSlow() error {
	return domain.Refuse(
		domain.RequestTimeout,
		"The body did not arrive in time: after the first %d seconds it must arrive at %d bytes a second or faster.",
		int(bodyGrace.Seconds()), bodyRate,
	).After(time.Second)
}

func isMedia(contentType, want string) bool {
	if contentType == want {
		return true
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || media != want {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// Gone is the error of a request whose caller has gone away or whose time is over.
func Gone(ctx context.Context) error {
	return fmt.Errorf(
		"%w: %w", domain.Unavailable("The request ended before it was read; send it again."), context.Cause(ctx),
	)
}

// Parse reads one JSON value and stops if the caller goes away. what names the text in the refusal.
func Parse(ctx context.Context, text []byte, what string) (strictjson.Value, error) {
	value, err := CallIn(ctx).Meter.Parse(text, maxDepth)
	switch {
	case errors.Is(err, strictjson.ErrStopped):
		return value, Gone(ctx)
	case err != nil:
		return value, domain.Refuse(domain.MalformedJSON, "%s is not one JSON value: %s.", what, err)
	}
	return value, nil
}

// Invalid refuses with the problems. Without problems it returns nil.
func Invalid(problems []domain.FieldError) error {
	if len(problems) == 0 {
		return nil
	}
	return domain.Invalid(problems)
}

// Action does one thing with the input of a request or of an MCP tool call.
type Action[Input, Result any] func(ctx context.Context, c *Call, input Input) (Result, error)

// Do makes a handler of an action. read takes the input from the body (for GET from the query) and from the path.
func Do[Input, Result any](read func(*strictjson.Object) Input, do Action[Input, Result]) Handler {
	return func(r *http.Request) (any, error) {
		o, err := membersOf(r)
		if err != nil {
			return nil, err
		}
		return act(r.Context(), o, read, do)
	}
}

// Read reads the input as Do does, for a handler that needs the request itself.
func Read[Input any](r *http.Request, read func(*strictjson.Object) Input) (input Input, err error) {
	o, err := membersOf(r)
	if err != nil {
		return input, err
	}
	return Judged(o, read)
}

// membersOf returns the members of the body, or for GET the parameters of the query, with the variables of the path. If
// the request has a body, every query parameter is a problem. An absent body has no members.
func membersOf(r *http.Request) (*strictjson.Object, error) {
	var o *strictjson.Object
	switch c := CallOf(r); {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		o = NewQuery(r)
	case c.Body == nil:
		o = strictjson.Query(nil)
	default:
		value, err := Parse(r.Context(), c.Body, "The body")
		if err != nil {
			return nil, err
		}
		o = c.Meter.Decode(value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.RawQuery != "" {
		o.Also(NewQuery(r).Problems())
	}
	o.Bind(mux.Vars(r))
	return o, nil
}

// ReadNothing requires that there are no members.
func ReadNothing(*strictjson.Object) struct{} { return struct{}{} }

// ReadID reads an id in the form that parse accepts. A malformed id in the path becomes the zero id, which is then
// answered like an unknown one.
func ReadID[ID any](o *strictjson.Object, name string, parse func(string) (ID, error)) ID {
	id, err := parse(o.String(name, strictjson.Required))
	if err != nil && o.OK(name) {
		o.Problem(name, strictjson.CodeFormat, "%s", err)
	}
	return id
}

// ReadNames reads an optional list of known names without duplicates.
func ReadNames[Name ~string](o *strictjson.Object, member string, known []Name, code, rule string) (names []Name) {
	for i, text := range o.StringList(member, strictjson.Optional, 0, maxNames) {
		name := Name(text)
		switch {
		case !slices.Contains(known, name):
			o.ElementProblem(member, i, code, rule)
		case slices.Contains(names, name):
			o.ElementProblem(member, i, strictjson.CodeDuplicate, "must appear once")
		}
		names = append(names, name)
	}
	return names
}

// Viewed makes an action that returns what view makes of the result of do.
func Viewed[Input, Result, View any](do Action[Input, Result], view func(Result) View) Action[Input, View] {
	return func(ctx context.Context, c *Call, input Input) (shown View, err error) {
		result, err := do(ctx, c, input)
		if err == nil {
			shown = view(result)
		}
		return shown, err
	}
}

// Created makes an action that answers 201 with the resource that do has created.
func Created[Input, Result any](do Action[Input, Result]) Action[Input, Response] {
	return Viewed(do, func(made Result) Response { return Response{Status: http.StatusCreated, Data: made} })
}

// CreatedOnce makes an action that answers 201 with a new resource, or 200 with one that existed before.
func CreatedOnce[Input any, Result interface{ Existed() bool }](do Action[Input, Result]) Action[Input, Response] {
	return Viewed(do, func(made Result) Response {
		return Response{Status: CreatedStatus(made.Existed()), Data: made}
	})
}

// Accepted makes an action that answers 202 with the work that do has queued.
func Accepted[Input, Result any](do Action[Input, Result]) Action[Input, Response] {
	return Viewed(do, func(queued Result) Response { return Response{Status: http.StatusAccepted, Data: queued} })
}

// OfRequest makes a handler of an action that needs the request itself.
func OfRequest[Result any](do func(*http.Request) (Result, error)) Handler {
	return func(r *http.Request) (any, error) { return do(r) }
}

// Called makes an MCP tool of an action and its reader.
func Called[Input, Result any](
	read func(*strictjson.Object) Input, do Action[Input, Result],
) func(context.Context, *strictjson.Object) (Result, error) {
	return func(ctx context.Context, o *strictjson.Object) (Result, error) { return act(ctx, o, read, do) }
}

// Submit runs an action on the fields of a form and the variables of the path.
func Submit[Input, Result any](
	r *http.Request, fields *strictjson.Object, read func(*strictjson.Object) Input, do Action[Input, Result],
) (Result, error) {
	fields.Bind(mux.Vars(r))
	return act(r.Context(), fields, read, do)
}

// act runs an action, unless its members have problems: then it refuses with all of them at once.
func act[Input, Result any](
	ctx context.Context, o *strictjson.Object, read func(*strictjson.Object) Input, do Action[Input, Result],
) (result Result, err error) {
	input, err := Judged(o, read)
	if err == nil {
		result, err = do(ctx, CallIn(ctx), input)
	}
	return result, err
}

// MaxDeclarations is the largest number of items in a batch (contract section 3).
const MaxDeclarations = 500
