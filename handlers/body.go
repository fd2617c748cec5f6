package handlers

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

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// bodyRule says what a request may carry.
type bodyRule int

const (
	bodyNone     bodyRule = iota // whatever is there is not read
	bodyRequired                 // JSON, Content-Length required
	bodyOptional                 // nothing, or JSON
	bodyBatch                    // bodyRequired, with room for many
	bodyManifest                 // bodyRequired, with room for a file manifest
	bodyContent                  // JSON with room for a text, or multipart/form-data, which the handler reads
	bodyFile                     // multipart/form-data, which the handler reads
	bodyMessage                  // JSON of MCP; its length need not be announced
	bodyForm                     // of a page, Content-Length required
	bodyLongForm                 // bodyForm, with room for many fields
)

const (
	maxBody    = 8 << 10
	maxBatch   = 4 << 20
	maxContent = 4 << 20
	maxForm    = 1 << 10
	maxLong    = 32 << 10
	maxMessage = 64 << 10
	maxDepth   = 32
	maxNames   = 100 // of a list of names such as scopes, each of which may stand in it once

	// A body may fall bodyGrace behind bodyRate.
	bodyGrace = 10 * time.Second
	bodyRate  = 64 << 10 // bytes a second

	// A body that nobody wants may be silent for restTime before the answer comes, and have maxRest bytes.
	restTime = time.Second
	maxRest  = 256 << 10
)

func bodyTime(bytes int64) time.Duration {
	return bodyGrace + time.Duration(bytes)*time.Second/bodyRate
}

// most is how long a body of the kind may take.
func (rule bodyRule) most() time.Duration {
	switch {
	case rule == bodyNone:
		return 0
	case rule.readByHandler():
		return bodyTime(domain.MaxFileBytes + maxUploadOverhead)
	default:
		return bodyTime(rule.limit())
	}
}

// readByHandler is true of bodies that the middleware does not take in.
func (rule bodyRule) readByHandler() bool { return rule == bodyContent || rule == bodyFile }

// limit is the most bytes of a body that the middleware takes in.
func (rule bodyRule) limit() int64 {
	return [...]int64{
		maxBody, maxBody, maxBody, bodyBatch: maxBatch, bodyManifest: domain.MaxManifestBytes, bodyContent: maxContent, bodyFile: maxBody,
		bodyMessage: maxMessage, bodyForm: maxForm, bodyLongForm: maxLong,
	}[rule]
}

func (rule bodyRule) mediaType() string {
	if rule.isForm() {
		return "application/x-www-form-urlencoded"
	}
	return jsonType
}

// readBody takes the body in: 415, 411, 413, 408 in this order.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, rule bodyRule) error {
	c := callOf(r)
	if rule == bodyNone || rule == bodyOptional && r.ContentLength == 0 {
		c.receivedAt = c.start
		return nil
	}
	if rule == bodyFile || rule == bodyContent && isMultipart(r.Header.Get("Content-Type")) {
		return s.admitUpload(w, r)
	}
	if !isMedia(r.Header.Get("Content-Type"), rule.mediaType()) || r.Header.Get("Content-Encoding") != "" {
		return domain.Refuse(domain.UnsupportedMediaType, "Send the body as %s in UTF-8, without Content-Encoding.", rule.mediaType())
	}
	if rule != bodyMessage && (r.ContentLength < 0 || r.Header.Get("Content-Length") == "") {
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
		return tooSlow()
	case err != nil || r.ContentLength >= 0 && int64(len(body)) != r.ContentLength:
		return domain.Refuse(domain.MalformedJSON, "The body ended before it was complete.")
	}
	c.receivedAt = s.Now()
	c.body, c.arrived = body, true
	paced.arrived()
	if rule.isForm() {
		if c.form, err = url.ParseQuery(string(body)); err != nil {
			return invalidField("", strictjson.CodeFormat, "the form is not well formed")
		}
		return invalid(strictjson.Fields(c.form).Wrong())
	}
	return nil
}

func (rule bodyRule) isForm() bool { return rule == bodyForm || rule == bodyLongForm }

// pacedBody is a body that must arrive in time. The deadlines are the connection's, so they follow the real clock.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	due     time.Time // of the first byte
	read    int64
}

// pace lets the body be read for as long as it arrives in time, and gives the answer its own time after that.
func (s *server) pace(w http.ResponseWriter, r *http.Request, rule bodyRule) (*pacedBody, error) {
	control, now := http.NewResponseController(w), time.Now()
	if err := control.SetWriteDeadline(now.Add(policy{body: rule}.timeout() + answerTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
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

// bytes is the number of bytes that have arrived; nil has none.
func (b *pacedBody) bytes() int64 {
	if b == nil {
		return 0
	}
	return b.read
}

// arrived lifts the deadline: from now on the server watches the connection for a caller who goes away.
func (b *pacedBody) arrived() {
	_ = b.control.SetReadDeadline(time.Time{}) // a connection that is gone shows when the answer is written
}

// passOver reads what is left of a body before the answer, for as long as it arrives. Without that the server itself
// waits for it until its own deadline, and then answers nothing; and a client that is still sending may lose an answer
// after which the connection ends. A body that was to be asked for is not begun.
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
		if left -= n; err != nil { // also a late one: then the server ends the connection after the answer
			return
		}
	}
}

func tooSlow() error {
	return &domain.Error{
		Code: domain.RequestTimeout, RetryAfter: time.Second,
		Message: fmt.Sprintf("The body did not arrive in time: it has %d seconds, and then must arrive at %d bytes a second or faster.", int(bodyGrace.Seconds()), bodyRate),
	}
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

// gone is the end of a request that nobody waits for any more, or whose time is over.
func gone(ctx context.Context) error {
	return fmt.Errorf("%w: %w", domain.Unavailable("The request ended before it was read; send it again."), context.Cause(ctx))
}

// parse reads one JSON value, for as long as the caller is there. what names the text in the refusal.
func parse(ctx context.Context, text []byte, what string) (strictjson.Value, error) {
	value, err := callIn(ctx).meter.Parse(text, maxDepth)
	switch {
	case errors.Is(err, strictjson.ErrStopped):
		return value, gone(ctx)
	case err != nil:
		return value, domain.Refuse(domain.MalformedJSON, "%s is not one JSON value: %s.", what, err)
	}
	return value, nil
}

// decode reads the members of the body and refuses with everything that is wrong with them, and with the query, at
// once. An absent optional body has no members.
func decode(r *http.Request, members func(*strictjson.Object)) error {
	var problems []domain.FieldError
	if r.URL.RawQuery != "" {
		problems = newQuery(r).Problems()
	}
	if body := callOf(r).body; body != nil {
		value, err := parse(r.Context(), body, "The body")
		if err != nil {
			return err
		}
		object := callOf(r).meter.Decode(value)
		members(object)
		problems = append(problems, object.Problems()...)
	}
	return invalid(problems)
}

// invalid refuses with what is wrong, if anything is.
func invalid(problems []domain.FieldError) error {
	if len(problems) == 0 {
		return nil
	}
	return domain.Invalid(problems)
}

// invalidField refuses with the one thing that is wrong.
func invalidField(pointer, code, message string) error {
	return domain.Invalid([]domain.FieldError{{Pointer: pointer, Code: code, Message: message}})
}

// action is what is done with the input of a request or of a tool of MCP.
type action[Input any] func(ctx context.Context, c *call, input Input) (any, error)

// posted is the handler of a body that is read into one value, and of what is done with it.
func posted[Input any](read func(*strictjson.Object) Input, do action[Input]) handler {
	return func(r *http.Request) (any, error) {
		input, err := bodyOf(r, read)
		if err != nil {
			return nil, err
		}
		return do(r.Context(), callOf(r), input)
	}
}

// bodyOf reads the body into one value; an absent optional body is the zero value.
func bodyOf[Input any](r *http.Request, read func(*strictjson.Object) Input) (input Input, err error) {
	err = decode(r, func(o *strictjson.Object) { input = read(o) })
	return input, err
}

// taken does what the body asks for.
func taken[Input, Result any](r *http.Request, read func(*strictjson.Object) Input, do func(*http.Request, Input) (Result, error)) (result Result, err error) {
	input, err := bodyOf(r, read)
	if err == nil {
		result, err = do(r, input)
	}
	return result, err
}

// filledIn does what the fields of a form ask for, read by the reader of the API.
func filledIn[Input, Result any](
	r *http.Request, fields *strictjson.Object, read func(*strictjson.Object) Input, do func(*http.Request, Input) (Result, error),
) (result Result, err error) {
	input, err := judged(fields, read)
	if err == nil {
		result, err = do(r, input)
	}
	return result, err
}

// readNothing reads a body that has no members.
func readNothing(*strictjson.Object) struct{} { return struct{}{} }

// readID reads a member that holds an id which parse knows.
func readID[ID any](o *strictjson.Object, name string, parse func(string) (ID, error)) ID {
	id, err := parse(o.String(name, strictjson.Required))
	if err != nil && o.OK(name) {
		o.Problem(name, strictjson.CodeFormat, err.Error())
	}
	return id
}

// readNames reads an optional list of known names, each of which may stand in it once.
func readNames[Name ~string](o *strictjson.Object, member string, known []Name, code, rule string) (names []Name) {
	for i, text := range o.StringList(member, strictjson.Optional, maxNames) {
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
