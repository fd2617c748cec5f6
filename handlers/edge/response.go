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
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// CreatedStatus is 201 for what was made, or 200 for what existed before.
func CreatedStatus(existed bool) int {
	if existed {
		return http.StatusOK
	}
	return http.StatusCreated
}

// StatusCode is the status of the answer to a caller that has nothing of it yet.
func (r Response) StatusCode() int { return cmp.Or(r.Status, http.StatusOK) }

// statusFor is the status that will be answered: 304 to a caller that has what stands under the tag (RFC 9110, section
// 13.1.2).
func (r Response) statusFor(asked *http.Request) int {
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

// Response is what a handler answers. Data goes into the wire.Envelope; Raw replaces it.
type Response struct {
	Status      int // 0 means 200
	Data        any
	Bare        bool   // Data is a wire.Appender, and stands without Envelope
	Epoch       *int64 // meta.epoch, of the feed
	Failure     *wire.Failure
	Raw         []byte
	Pieces      iter.Seq2[[]byte, error] // in the place of Raw, where the answer is long: read while it is written
	Crowded     func() bool              // of Pieces: whether others wait until they are written; see pace
	ContentType string                   // of Raw or Pieces; empty means JSON
	Empty       bool                     // no body at all
	Cache       string                   // Cache-Control; empty means the route's default
	Tag         string                   // the inside of the entity tag of Raw: who has it gets 304 in its place
	Header      http.Header
	Code        domain.Code // of a failure, for the log
}

// Values of Cache-Control.
const (
	NoStore        = "no-store"
	privateNoStore = "private, no-store"
	PublicMinutes  = "public, max-age=300"
	PublicForever  = "public, max-age=31536000, immutable" // of what another content has another address
)

const JSONType = "application/json"

// codesFile is the one table of error codes (contract section 2): status, whether a repetition helps, Retry-After, and
// the words of the page in both languages.
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

// failure is the one place that turns an error into an answer. Any other error than a domain.Error is internal and
// never shown.
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

// Explain makes the member error of an answer, in Spanish when Accept-Language prefers that, else in English. Codes and
// pointers are the same in both.
func (s *Edge) Explain(c *Call, err error) (*domain.Error, web.Code, *wire.Failure) {
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
	language := PreferredLanguage(c.languages, evidence.English)
	body := &wire.Failure{
		Type: s.BaseURL + code.Address(), Title: code.Text[language].Title, Status: code.Status, Detail: refused.Message,
		Code: refused.Code, Errors: slices.Clone(refused.Fields), Retryable: code.Retryable,
	}
	if body.Errors == nil {
		body.Errors = []domain.FieldError{}
	}
	if language == evidence.Spanish {
		body.Detail = refused.In(s.translated)
		for i, field := range body.Errors {
			body.Errors[i].Message = field.In(s.translated)
		}
	}
	if e := refused.Existing; e != nil {
		body.Existing = &wire.Existing{PublicID: e.PublicID.String(), ReceivedAt: evidence.FormatTime(e.ReceivedAt)}
	}
	return refused, code, body
}

// ItemError is explain for what has no headers of its own.
func (s *Edge) ItemError(c *Call, err error) *wire.Failure {
	refused, code, body := s.Explain(c, err)
	if c.failedItems == nil {
		c.failedItems = map[domain.Code]int{}
	}
	c.failedItems[body.Code]++
	body.RetryAfter = retryAfter(refused, code)
	return body
}

// retryAfter is what a refusal says in seconds, or else what its code does; 0 for a code after which waiting does not
// help. It is rounded up, so that a client never retries too early.
func retryAfter(refused *domain.Error, code web.Code) int64 {
	if code.RetryAfter == 0 || refused.RetryAfter <= 0 {
		return code.RetryAfter
	}
	return int64((refused.RetryAfter + time.Second - 1) / time.Second)
}

// answers are buffers for those of busy routes; longer ones than maxPooled bytes are not kept.
var answers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 16 << 10

// write is the only function that writes an answer. It returns the bytes of the body.
func (s *Edge) write(w http.ResponseWriter, r *http.Request, c *Call, resp Response) int {
	body := resp.Raw
	if resp.Status == http.StatusNotModified {
		body = nil
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
				// Nothing that handlers answer can fail to encode.
				s.Log.ErrorContext(r.Context(), "an answer cannot be encoded", "requestId", c.RequestID, "error", err)
				w.WriteHeader(http.StatusInternalServerError)
				return 0
			}
		}
	}
	if r.ContentLength != 0 && !c.Arrived && resp.Status != http.StatusRequestTimeout {
		passOver(w, c.unwanted, r.Header.Get("Expect") == "")
	}
	h := w.Header()
	varies := h["Vary"] // by what surrounds the route
	maps.Copy(h, resp.Header)
	if len(varies) > 0 {
		h["Vary"] = slices.Concat(varies, resp.Header["Vary"])
	}
	// As Set, in one piece of memory.
	values := []string{
		c.RequestID, cmp.Or(resp.Cache, NoStore), cmp.Or(resp.ContentType, JSONType), strconv.Itoa(len(body)),
	}
	h["X-Request-Id"], h["Cache-Control"] = values[0:1:1], values[1:2:2]
	setLimits(h, c.Limits)
	if resp.Tag != "" {
		h["Etag"] = []string{resp.entityTag()}
	}
	if resp.Status == http.StatusNotModified {
		h.Del("Content-Encoding") // of a body that is not there
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
	n, _ := w.Write(body) // a caller that has gone away gets nothing
	return n
}

// A client must take in each pieceRate bytes of a long answer within piecePatience. One that must keep up takes in more
// than pieceRate bytes a second, over as long as it has kept the service waiting for paceWindow, or crowdedWindow while
// others wait for its place. With each crowdedWindow in which others waited, the rate doubles: any client gives its
// place up after a few minutes of waiting for it, and a fast one has got much by then.
const (
	piecePatience = RequestTimeout + answerTime
	pieceRate     = 64 << 10
	paceWindow    = piecePatience
	crowdedWindow = 15 * time.Second
	paceTick      = time.Second
)

var errTooSlow = errors.New("the client takes it in too slowly")

// writePieces writes a long answer. One that cannot be finished is cut off, so that nobody takes what has arrived for
// the whole.
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
	<-stopped // it uses the connection
	if err != nil {
		s.Log.WarnContext(r.Context(), "an answer was cut off", "requestId", c.RequestID, "error", err)
		c.cutOff = true
	}
	return written
}

// pace measures how fast a client takes in a long answer. The time in which the answer is made does not count.
type pace struct {
	control *http.ResponseController
	crowded func() bool // whether others wait for the client's place; nil: it must keep up in any case

	mu     sync.Mutex
	since  time.Time     // when the write under way began, or counts from; zero: there is no such write
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
	_ = p.control.SetWriteDeadline(p.since.Add(piecePatience)) // a connection that is gone shows when the part is written
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

// watch ends the answer of a client that is too slow, also in the middle of a write.
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

// Encode writes a value as JSON, with a new line after it.
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

// Cacheable answers raw bytes that anyone may keep for five minutes, under an entity tag of their own (RFC 9110,
// section 8.8.3).
func Cacheable(raw []byte, contentType string) Response {
	sum := sha256.Sum256(raw)
	return Response{
		Raw: raw, ContentType: contentType, Cache: PublicMinutes, Tag: base64.RawURLEncoding.EncodeToString(sum[:16]),
		Header: http.Header{},
	}
}

// acceptsJSON reports whether Accept allows application/json (RFC 9110, section 12.5.1): the most specific range that
// matches decides, no header allows all.
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

// Refusal finds the domain's error in err, or nil for an internal one.
func Refusal(err error) *domain.Error {
	refused, _ := errors.AsType[*domain.Error](err)
	return refused
}
