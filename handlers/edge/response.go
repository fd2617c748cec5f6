package edge

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// CreatedStatus is 201 for a new resource, or 200 for one that existed before.
func CreatedStatus(existed bool) int {
	if existed {
		return http.StatusOK
	}
	return http.StatusCreated
}

// StatusCode returns the status for a caller that has no copy of the answer.
func (r Response) StatusCode() int { return cmp.Or(r.Status, http.StatusOK) }

// StatusFor returns the status to send: 304 if the caller already has the body with this entity tag (RFC 9110, section
// 13.1.2).
func (r Response) StatusFor(asked *http.Request) int {
	if r.Tag != "" {
		for known := range strings.SplitSeq(strings.Join(asked.Header.Values("If-None-Match"), ","), ",") {
			known = strings.TrimSpace(known)
			if known == "*" || strings.TrimPrefix(known, "W/") == r.entityTag() {
				return http.StatusNotModified
			}
		}
	}
	return r.StatusCode()
}

func (r Response) entityTag() string { return `"` + r.Tag + `"` }

// Response is the answer of a handler. Data goes into the wire.Envelope; Raw replaces the envelope.
type Response struct {
	Status      int // 0 means 200
	Data        any
	Bare        bool   // Data is a wire.Appender and is written without the envelope
	Epoch       *int64 // meta.epoch, of the feed
	Failure     *wire.Failure
	Raw         []byte
	Pieces      iter.Seq2[[]byte, error] // replaces Raw in a long answer: read while it is written
	Crowded     func() bool              // of Pieces: whether others wait for the end of this answer; see pace
	ContentType string                   // of Raw or Pieces; empty means JSON
	Empty       bool                     // no body at all
	Cache       string                   // Cache-Control; empty means the route's default
	Tag         string                   // the entity tag of Raw or Pieces, without quotes: a caller that has it gets 304
	Header      http.Header
	Code        domain.Code // of a failure, for the log
}

// Values of Cache-Control.
const (
	NoStore        = "no-store"
	privateNoStore = "private, no-store"
	PublicSeconds  = "public, max-age=10"
	PublicMinutes  = "public, max-age=300"
	PublicForever  = "public, max-age=31536000, immutable" // for addresses whose content never changes
)

const JSONType = "application/json"

// codesFile is the table of error codes (contract section 2): status, whether a retry helps, Retry-After, and the texts
// of the page in both languages.
//
//go:embed codes.json
var codesFile []byte

// ErrorCodes lists the error codes in the order of the contract.
func ErrorCodes() ([]web.Code, error) {
	var codes []web.Code
	decoder := json.NewDecoder(bytes.NewReader(codesFile))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&codes); err != nil {
		return nil, fmt.Errorf("codes.json: %w", err)
	}
	return codes, nil
}

// failure turns an error into an answer; no other function does. An error that is no domain.Error is internal and never
// shown.
func (s *Edge) failure(r *http.Request, header http.Header, err error) Response {
	c := CallOf(r)
	refused, code, body := s.Explain(c, err)
	h := http.Header{}
	maps.Copy(h, header)
	h.Add("Vary", "Accept-Language")
	switch {
	case c.challenged && (body.Status == http.StatusUnauthorized || body.Status == http.StatusForbidden):
		_, presented := BearerText(r.Header)
		h.Set("WWW-Authenticate", s.challenge(refused.Code, presented))
	case body.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	if wait := retryAfter(refused, code); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
	if body.Status == http.StatusRequestTimeout {
		h.Set("Connection", "close") // the rest of the body would be read as the next request
	}
	return Response{Status: body.Status, Failure: body, Cache: NoStore, Header: h, Code: refused.Code}
}

// Explain makes the member error of an answer, in Spanish if Accept-Language prefers it, otherwise in English.
func (s *Edge) Explain(c *Call, err error) (*domain.Error, web.Code, *wire.Failure) {
	return s.ExplainIn(c.Language(), err)
}

// ExplainIn is Explain in a given language. Codes and pointers do not depend on it.
func (s *Edge) ExplainIn(language evidence.Language, err error) (*domain.Error, web.Code, *wire.Failure) {
	refused := Refusal(err)
	if refused == nil {
		refused = domain.Refuse(
			domain.Internal, "The service failed on this request; the failure was logged under the request id.",
		)
	}
	code, ok := s.Codes[refused.Code]
	if !ok {
		code = s.Codes[domain.Internal]
	}
	body := &wire.Failure{
		Type: s.BaseURL + code.Address(), Title: code.Text[language].Title, Status: code.Status, Detail: refused.Message,
		Code: refused.Code, Errors: slices.Clone(refused.Fields), Retryable: code.Retryable,
	}
	if body.Errors == nil {
		body.Errors = []domain.FieldError{}
	}
	if language == evidence.Spanish {
		body.Detail = say.In(s.spanish, refused.Said())
		for i, field := range body.Errors {
			body.Errors[i].Message = say.In(s.spanish, field.Said())
		}
	}
	if e := refused.Existing; e != nil {
		body.Existing = &wire.Existing{PublicID: e.PublicID.String(), ReceivedAt: evidence.FormatTime(e.ReceivedAt)}
	}
	return refused, code, body
}

// ItemError explains a failure inside an answer, which has no headers of its own.
func (s *Edge) ItemError(c *Call, err error) *wire.Failure {
	refused, code, body := s.Explain(c, err)
	if c.failedItems == nil {
		c.failedItems = map[domain.Code]int{}
	}
	c.failedItems[body.Code]++
	body.RetryAfter = retryAfter(refused, code)
	return body
}

// retryAfter returns the seconds to wait before a retry: from the refusal, or otherwise from its code. It returns 0 for
// a code after which waiting does not help. The result is rounded up so that clients never retry too early.
func retryAfter(refused *domain.Error, code web.Code) int64 {
	if code.RetryAfter == 0 || refused.RetryAfter <= 0 {
		return code.RetryAfter
	}
	return int64((refused.RetryAfter + time.Second - 1) / time.Second)
}

// answers are buffers for the answers of busy routes; buffers larger than maxPooled bytes are not kept.
var answers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 16 << 10

// write writes every answer and returns the number of bytes of its body. No other function writes one.
func (s *Edge) write(w http.ResponseWriter, r *http.Request, c *Call, resp Response) int {
	body := resp.Raw
	if resp.Status == http.StatusNotModified {
		body, resp.Pieces = nil, nil
	} else if body == nil && resp.Pieces == nil && !resp.Empty && resp.Status != http.StatusNoContent {
		meta := wire.Meta{RequestID: c.RequestID, Epoch: resp.Epoch}
		if data, ok := resp.Data.(wire.Appender); ok {
			room := answers.Get().(*[]byte)
			if resp.Bare {
				body = append(data.AppendJSON((*room)[:0]), '\n')
			} else {
				body = wire.AppendEnvelope((*room)[:0], data, meta)
			}
			if *room = body; len(body) <= maxPooled {
				defer answers.Put(room)
			}
		} else {
			var err error
			if body, err = Encode(wire.Envelope[any]{Data: resp.Data, Error: resp.Failure, Meta: meta}); err != nil {
				// Unreachable: every answer of a handler can be encoded.
				s.Log.ErrorContext(r.Context(), "answer not encoded", "requestId", c.RequestID, "error", err)
				w.WriteHeader(http.StatusInternalServerError)
				return 0
			}
		}
	}
	if r.ContentLength != 0 && !c.Arrived && resp.Status != http.StatusRequestTimeout {
		passOver(w, c.unwanted, r.Header.Get("Expect") == "")
	}
	h := w.Header()
	varies := h["Vary"] // set by the compression around the route
	maps.Copy(h, resp.Header)
	if len(varies) > 0 {
		h["Vary"] = slices.Concat(varies, resp.Header["Vary"])
	}
	// Like Set, with one allocation.
	values := []string{
		c.RequestID, cmp.Or(resp.Cache, NoStore), cmp.Or(resp.ContentType, JSONType), strconv.Itoa(len(body)),
	}
	h["X-Request-Id"], h["Cache-Control"] = values[0:1:1], values[1:2:2]
	setLimits(h, c.Limits)
	if resp.Tag != "" {
		h["Etag"] = []string{resp.entityTag()}
	}
	if resp.Status == http.StatusNotModified {
		h.Del("Content-Encoding") // there is no body
		h.Del("Content-Length")
	}
	if body != nil {
		h["Content-Type"], h["Content-Length"] = values[2:3:3], values[3:4:4]
	}
	if resp.Pieces != nil {
		h["Content-Type"] = values[2:3:3]
	}
	w.WriteHeader(resp.Status)
	if resp.Pieces != nil && r.Method != http.MethodHead {
		return s.writePieces(w, r, c, resp)
	}
	if r.Method == http.MethodHead || body == nil {
		return 0
	}
	n, _ := w.Write(body) // the caller may have gone away
	return n
}

// A client must read each pieceRate bytes of a long answer within piecePatience. A client that must keep up has to read
// more than pieceRate bytes a second, measured once it has kept the service waiting for paceWindow, or for
// crowdedWindow while others wait for its place. The required rate doubles with each crowdedWindow in which others
// waited: every client gives up its place after it has kept the service waiting for a few minutes, and a fast client
// has read a lot by then.
const (
	piecePatience = RequestTimeout + answerTime
	pieceRate     = 64 << 10
	paceWindow    = piecePatience
	crowdedWindow = 15 * time.Second
	paceTick      = time.Second
)

var errTooSlow = errors.New("client reads too slowly")

// writePieces writes a long answer. An answer that cannot be finished ends with a broken connection, so that no client
// mistakes the part for the whole.
func (s *Edge) writePieces(w http.ResponseWriter, r *http.Request, c *Call, resp Response) (written int) {
	p := &pace{control: http.NewResponseController(w), crowded: resp.Crowded}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); p.watch(stop) }()
	err := Contain(func() error {
		for piece, err := range resp.Pieces {
			if err != nil {
				return err
			}
			for part := range slices.Chunk(piece, pieceRate) {
				if err := p.begin(); err != nil {
					return err
				}
				n, err := w.Write(part)
				written += n
				if err = p.end(n, err); err != nil {
					return err
				}
			}
		}
		return nil
	})
	close(stop)
	<-stopped // watch uses the connection
	if err != nil {
		s.Log.WarnContext(r.Context(), "answer cut off", "requestId", c.RequestID, "error", err)
		c.cutOff = true
	}
	return written
}

// pace measures how fast a client reads a long answer. The time spent making the answer does not count.
type pace struct {
	control *http.ResponseController
	crowded func() bool // whether others wait for the client's place; nil means that the client must always keep up

	mu     sync.Mutex
	since  time.Time     // when the current write began or was last measured; otherwise zero
	waited time.Duration // for the client, in this window
	taken  int           // bytes, in this window
	turns  int           // windows in which others waited
	ended  bool
}

func (p *pace) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return errTooSlow
	}
	p.since = time.Now()
	_ = p.control.SetWriteDeadline(p.since.Add(piecePatience)) // a broken connection surfaces in the write
	return nil
}

func (p *pace) end(n int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited, p.taken, p.since = p.waited+time.Since(p.since), p.taken+n, time.Time{}
	if err != nil && p.ended {
		return errTooSlow
	}
	if err != nil {
		return fmt.Errorf("write a piece: %w", err)
	}
	return nil
}

// watch ends the answer of a client that reads too slowly, even in the middle of a write.
func (p *pace) watch(stop <-chan struct{}) {
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			p.judge(now)
		}
	}
}

func (p *pace) judge(now time.Time) {
	window, must := paceWindow, true
	if p.crowded != nil {
		window, must = crowdedWindow, p.crowded()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.since.IsZero() {
		p.waited, p.since = p.waited+now.Sub(p.since), now
	}
	switch {
	case must && p.waited < window:
		return
	case must && float64(p.taken) <= math.Ldexp(pieceRate, p.turns)*p.waited.Seconds():
		p.ended = true
		_ = p.control.SetWriteDeadline(now)
	case must && p.crowded != nil:
		p.turns++
	}
	p.waited, p.taken = 0, 0
}

// Encode encodes a value as JSON, followed by a line feed.
func Encode(v any) ([]byte, error) {
	if a, ok := v.(wire.Appender); ok {
		return append(a.AppendJSON(nil), '\n'), nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return b.Bytes(), nil
}

// Cacheable answers raw bytes that anyone may cache for five minutes, with an entity tag made from the bytes (RFC 9110,
// section 8.8.3).
func Cacheable(raw []byte, contentType string) Response {
	sum := sha256.Sum256(raw)
	return Response{
		Raw: raw, ContentType: contentType, Cache: PublicMinutes, Tag: base64.RawURLEncoding.EncodeToString(sum[:16]),
		Header: http.Header{},
	}
}

// acceptsJSON reports whether Accept allows application/json (RFC 9110, section 12.5.1). The most specific matching
// range decides; without a header everything is allowed.
func acceptsJSON(lines []string) bool {
	accept := strings.Join(lines, ",")
	if accept == JSONType || accept == "*/*" || strings.TrimSpace(accept) == "" {
		return true
	}
	best, allowed := -1, false
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := mime.ParseMediaType(part)
		rank := slices.Index([]string{"*/*", "application/*", JSONType}, media)
		if rank > best {
			q, err := strconv.ParseFloat(parameters["q"], 64)
			best, allowed = rank, err != nil || q > 0
		}
	}
	return allowed
}

// Refusal returns the domain's error in err, or nil if err is internal.
func Refusal(err error) *domain.Error {
	refused, _ := errors.AsType[*domain.Error](err)
	return refused
}
