package handlers

import (
	"bytes"
	"cmp"
	"compress/gzip"
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
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// response is what a handler answers. data goes into the wire.Envelope; raw replaces it.
type response struct {
	status      int // 0 means 200
	data        any
	bare        bool   // data is a wire.Appender, and stands without Envelope
	epoch       *int64 // meta.epoch, of the feed
	failure     *wire.Failure
	raw         []byte
	pieces      iter.Seq2[[]byte, error] // in the place of raw, where the answer is long: read while it is written
	crowded     func() bool              // of pieces: whether others wait until they are written; see pace
	contentType string                   // of raw or pieces; empty means JSON
	empty       bool                     // no body at all
	cache       string                   // Cache-Control; empty means the route's default
	header      http.Header
	code        domain.Code // of a failure, for the log
}

// Values of Cache-Control.
const (
	noStore        = "no-store"
	privateNoStore = "private, no-store"
	publicMinutes  = "public, max-age=300"
	publicForever  = "public, max-age=31536000, immutable" // of what another content has another address
)

const jsonType = "application/json"

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

// failure is the one place that turns an error into an answer. Any other error than a domain.Error is internal and never shown.
func (s *server) failure(r *http.Request, header http.Header, err error) response {
	refused, code, body := s.explain(err)
	h := http.Header{}
	maps.Copy(h, header)
	switch c := callOf(r); {
	case c.challenged && (body.Status == http.StatusUnauthorized || body.Status == http.StatusForbidden):
		_, presented := bearerText(r.Header)
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
	return response{status: body.Status, failure: body, cache: noStore, header: h, code: refused.Code}
}

// explain makes the member error of an answer.
func (s *server) explain(err error) (*domain.Error, web.Code, *wire.Failure) {
	refused := refusal(err)
	if refused == nil {
		refused = domain.Refuse(domain.Internal, "The service failed on this request; the failure was logged under the request id.")
	}
	code, ok := s.codes[refused.Code]
	if !ok {
		code = s.codes[domain.Internal]
	}
	body := &wire.Failure{
		Type: s.BaseURL + code.Address(), Title: code.Text[evidence.English].Title, Status: code.Status, Detail: refused.Message,
		Code: refused.Code, Errors: refused.Fields, Retryable: code.Retryable,
	}
	if body.Errors == nil {
		body.Errors = []domain.FieldError{}
	}
	if e := refused.Existing; e != nil {
		body.Existing = &wire.Existing{PublicID: e.PublicID.String(), ReceivedAt: evidence.FormatTime(e.ReceivedAt)}
	}
	return refused, code, body
}

// itemError is explain for what has no headers of its own.
func (s *server) itemError(c *call, err error) *wire.Failure {
	refused, code, body := s.explain(err)
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
func (s *server) write(w http.ResponseWriter, r *http.Request, c *call, resp response) int {
	body := resp.raw
	if body == nil && resp.pieces == nil && !resp.empty && resp.status != http.StatusNoContent && resp.status != http.StatusNotModified {
		meta := wire.Meta{RequestID: c.requestID, Epoch: resp.epoch}
		if data, ok := resp.data.(wire.Appender); ok {
			room := answers.Get().(*[]byte)
			if resp.bare {
				body = append(data.AppendJSON((*room)[:0]), '\n')
			} else {
				body = wire.AppendEnvelope((*room)[:0], data, meta)
			}
			if *room = body; len(body) <= maxPooled {
				defer answers.Put(room)
			}
		} else {
			var err error
			if body, err = encode(wire.Envelope[any]{Data: resp.data, Error: resp.failure, Meta: meta}); err != nil {
				// Nothing that handlers answer can fail to encode.
				s.Log.ErrorContext(r.Context(), "an answer cannot be encoded", "requestId", c.requestID, "error", err)
				w.WriteHeader(http.StatusInternalServerError)
				return 0
			}
		}
	}
	if r.ContentLength != 0 && !c.arrived && resp.status != http.StatusRequestTimeout {
		passOver(w, c.unwanted, r.Header.Get("Expect") == "")
	}
	h := w.Header()
	maps.Copy(h, resp.header)
	// As Set, in one piece of memory.
	values := []string{c.requestID, cmp.Or(resp.cache, noStore), cmp.Or(resp.contentType, jsonType), strconv.Itoa(len(body))}
	h["X-Request-Id"], h["Cache-Control"] = values[0:1:1], values[1:2:2]
	setLimits(h, c.limits)
	if body != nil {
		h["Content-Type"], h["Content-Length"] = values[2:3:3], values[3:4:4]
	}
	if resp.pieces != nil {
		h["Content-Type"] = values[2:3:3]
	}
	w.WriteHeader(resp.status)
	if resp.pieces != nil && r.Method != http.MethodHead {
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
// others wait for its place. With each crowdedWindow in which others waited, the rate doubles: any client gives its place
// up after a few minutes of waiting for it, and a fast one has got much by then.
const (
	piecePatience = requestTimeout + answerTime
	pieceRate     = 64 << 10
	paceWindow    = piecePatience
	crowdedWindow = 15 * time.Second
	paceTick      = time.Second
)

var errTooSlow = errors.New("the client takes it in too slowly")

// writePieces writes a long answer. One that cannot be finished is cut off, so that nobody takes what has arrived for the
// whole.
func (s *server) writePieces(w http.ResponseWriter, r *http.Request, c *call, resp response) (written int) {
	p := &pace{control: http.NewResponseController(w), crowded: resp.crowded}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); p.watch(stop) }()
	err := edge.Contain(func() error {
		for piece, err := range resp.pieces {
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
		s.Log.WarnContext(r.Context(), "an answer was cut off", "requestId", c.requestID, "error", err)
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

// each shows every item of a list; an empty list is [], never null.
func each[Item, View any](list []Item, show func(Item) View) []View {
	views := make([]View, len(list))
	for i, item := range list {
		views[i] = show(item)
	}
	return views
}

// viewOrNull shows what there is, or null.
func viewOrNull[Item, View any](item *Item, show func(Item) View) *View {
	if item == nil {
		return nil
	}
	return new(show(*item))
}

// orNull is null in the place of nothing.
func orNull[Value comparable](value Value) *Value {
	if value == *new(Value) {
		return nil
	}
	return &value
}

// encode writes a value as JSON, with a new line after it.
func encode(v any) ([]byte, error) {
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

// cacheable answers raw bytes that anyone may keep for five minutes, or 304 to a caller that has them already (RFC
// 9110, sections 8.8.3 and 13.1.2).
func cacheable(r *http.Request, raw []byte) response { return cacheableAs(r, raw, tagOf(raw)) }

// tagOf is the inside of the entity tag of these bytes.
func tagOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func cacheableAs(r *http.Request, raw []byte, tag string) response {
	tag = `"` + tag + `"`
	resp := response{raw: raw, cache: publicMinutes, header: http.Header{"Etag": {tag}}}
	for _, line := range r.Header.Values("If-None-Match") {
		for known := range strings.SplitSeq(line, ",") {
			known = strings.TrimSpace(known)
			if known == "*" || strings.TrimPrefix(known, "W/") == tag {
				resp.status, resp.raw = http.StatusNotModified, nil
				return resp
			}
		}
	}
	return resp
}

// zipped are documents as gzip, by their tags. It holds what the program and its configuration publish, which is bounded.
type zipped struct{ sync.Map }

func (z *zipped) of(tag string, raw []byte) ([]byte, error) {
	if body, ok := z.Load(tag); ok {
		return body.([]byte), nil
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	z.Store(tag, b.Bytes())
	return b.Bytes(), nil
}

// document is cacheable for what the program publishes: compressed for a caller that takes gzip, under a tag of its own.
func (s *server) document(r *http.Request, raw []byte) (resp response, err error) {
	tag := tagOf(raw)
	if !acceptsGzip(r.Header.Values("Accept-Encoding")) {
		resp = cacheableAs(r, raw, tag)
	} else {
		if raw, err = s.zipped.of(tag, raw); err != nil {
			return response{}, err
		}
		if resp = cacheableAs(r, raw, tag+"-gzip"); resp.raw != nil {
			resp.header.Set("Content-Encoding", "gzip")
		}
	}
	resp.header.Set("Vary", "Accept-Encoding")
	return resp, nil
}

// acceptsGzip reports whether Accept-Encoding asks for gzip (RFC 9110, section 12.5.3); without the header nothing does.
func acceptsGzip(lines []string) bool {
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		coding, parameters, _ := mime.ParseMediaType(part)
		if coding == "gzip" {
			q, err := strconv.ParseFloat(parameters["q"], 64)
			return err != nil || q > 0
		}
	}
	return false
}

// acceptsJSON reports whether Accept allows application/json (RFC 9110, section 12.5.1): the most specific range that
// matches decides, no header allows all.
func acceptsJSON(lines []string) bool {
	accept := strings.Join(lines, ",")
	if accept == jsonType || accept == "*/*" || strings.TrimSpace(accept) == "" {
		return true
	}
	best, allowed := -1, false
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := mime.ParseMediaType(part)
		rank := slices.Index([]string{"*/*", "application/*", jsonType}, media)
		if rank > best {
			q, err := strconv.ParseFloat(parameters["q"], 64)
			best, allowed = rank, err != nil || q > 0
		}
	}
	return allowed
}
