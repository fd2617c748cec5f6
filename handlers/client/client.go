// Package client is an origin system's client of the integrity API. It declares the hashes of final files, reserves
// links, looks up records, follows the change feed, compares files, and keeps evidence that can be verified offline. It
// never sends the bytes of a file.
//
// A client uses https, or http to this machine only. It follows no redirects, limits the time of every request, and
// sends the API key only to the configured service, never with a public request.
//
// # The outcome of a write
//
// The client never repeats a write. If a write fails, check two conditions. [Refused] means that the service decided
// against the write: sending it again does not help, it needs correction. [Unknown] means that the write may have
// happened: look up the version and send the exact same declaration again. If it was already registered, the answer is
// a replay, which consumes nothing. If both are false, nothing was done, and the same write may be sent again after
// [RetryAfter]. Package outbox does all of this and survives crashes. schemas/outcome-vectors.json defines these rules.
//
// # The consistency of reads
//
// A read shows everything that was committed before it. Within ten seconds of a write by the same client, look-ups and
// lists may come from a read replica of the service. They then show at least everything that this client has written or
// has read in the feed.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
	"integrityledger/handlers/wire"
)

// MaxAnswer is the largest answer that the client reads, in bytes.
const MaxAnswer = 8 << 20

// Config configures a Client.
type Config struct {
	// BaseURL is the origin of the service, https://host[:port] without a path. http is only for loopback addresses.
	BaseURL string
	// APIKey is sent with every request except public ones. Without a key, only public requests work.
	APIKey string
	// Timeout bounds each request and its answer, including waits for the feed; 0 means a minute.
	Timeout time.Duration
	// UserAgent names the origin system in the logs of a proxy; it may be empty. The name of this client follows it.
	UserAgent string
	// Language is the language of the service's explanations of errors ([Error.Detail] and the messages of its fields);
	// empty means English.
	Language evidence.Language
	// Name is the program's name in Integrity-Version, which the service logs: at most 40 letters, digits and . _ - ;
	// empty means integrity-go.
	Name string
}

// Client calls one service. It is safe for concurrent use.
type Client struct {
	base, key, agent, version string
	language                  evidence.Language
	http                      *outbound.Client
	session                   session
}

// New makes a client. It refuses an address to which a key must not be sent, and a text that is not an API key; the
// error never shows the key.
func New(c Config) (*Client, error) {
	base, err := ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, say.Errorf("BaseURL %w", err)
	}
	if c.APIKey != "" {
		if _, _, ok := domain.ParseAPIKey(c.APIKey); !ok {
			return nil, say.Errorf("APIKey must be the text of an API key (ik_…)")
		}
	}
	version := cmp.Or(c.Name, "integrity-go") + "/" + moduleVersion()
	return &Client{
		base: base, key: c.APIKey, agent: strings.TrimSpace(c.UserAgent + " " + version), version: version,
		language: c.Language, session: session{now: time.Now},
		http: outbound.New(outbound.Config{Timeout: c.Timeout, Answer: MaxAnswer, Idle: 16, Proxy: true}),
	}, nil
}

// moduleVersion is the version of this module in the running program, or devel if the build does not know it.
var moduleVersion = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "devel"
	}
	for _, module := range append(info.Deps, &info.Main) {
		if version := strings.TrimPrefix(module.Version, "v"); module.Path == "integrityledger" && version != "" &&
			version != "(devel)" {
			return version
		}
	}
	return "devel"
})

// BaseURL returns the origin of the service.
func (c *Client) BaseURL() string { return c.base }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ParseBaseURL parses the origin of a service: only scheme, host and port. It refuses http unless the host is this
// machine.
func ParseBaseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", say.Errorf("must be an http or https URL without path, query or user")
	}
	if u.Scheme == "http" && !domain.IsLoopbackHost(u.Hostname()) {
		return "", say.Errorf("must be https; http is only for this machine: others on the network could read and answer")
	}
	return u.Scheme + "://" + u.Host, nil
}

// ask is one request. Public requests carry no key.
type ask struct {
	method, path string
	query        url.Values
	document     any // the body as JSON; a []byte is sent unchanged
	public       bool
	newest       bool  // the answer must include everything that was committed
	raw          bool  // the answer is not JSON
	wrong        error // why the request cannot be sent
}

// envelope surrounds every answer except raw evidence.
type envelope = wire.Envelope[json.RawMessage]

// read sends one request and decodes the member data.
func read[Data any](ctx context.Context, c *Client, a ask) (data Data, err error) {
	_, err = c.read(ctx, a, &data)
	return data, err
}

// get sends a GET request.
func get[Data any](ctx context.Context, c *Client, path string, query url.Values) (Data, error) {
	return read[Data](ctx, c, ask{method: http.MethodGet, path: path, query: query})
}

// post sends a document.
func post[Data any](ctx context.Context, c *Client, path string, document any) (Data, error) {
	return read[Data](ctx, c, ask{method: http.MethodPost, path: path, document: document})
}

// about refuses an answer that does not match the request.
func about[Data any](data Data, err error, asked bool) (Data, error) {
	if err == nil && !asked {
		err = errOther
	}
	return data, err
}

// errOther means that an answer belongs to another request.
var errOther = say.Errorf("the answer does not match the request")

// read decodes the member data of a successful answer.
func (c *Client) read(ctx context.Context, a ask, to any) (wire.Meta, error) {
	body, err := c.do(ctx, a)
	if err != nil {
		return wire.Meta{}, err
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil || !utf8.Valid(body) || !hasMembers(e.Data) {
		return wire.Meta{}, say.Errorf(
			"the answer of %s must be JSON with an object data; is this the address of the service?", c.base,
		)
	}
	if a.query.Has("limit") {
		if err := checkPage(e.Data, a.query.Get("after")); err != nil {
			return wire.Meta{}, say.Errorf("the answer of %s: %w", c.base, err)
		}
	}
	if err := json.Unmarshal(e.Data, to); err != nil {
		return wire.Meta{}, say.Errorf("the answer of %s has a form that this program does not know: %w", c.base, err)
	}
	return e.Meta, nil
}

// hasMembers reports whether JSON text is an object with at least one member.
func hasMembers(data json.RawMessage) bool {
	return len(data) > 0 && data[0] == '{' && bytes.TrimSpace(data[1:])[0] != '}'
}

// checkPage requires that a page says whether there is more, and that its cursor then differs from after.
func checkPage(data json.RawMessage, after string) error {
	var page struct {
		HasMore    *bool `json:"hasMore"`
		NextCursor any   `json:"nextCursor"` // a number in the feed, which has its own check
	}
	if err := json.Unmarshal(data, &page); err != nil || page.HasMore == nil {
		return say.Errorf("a page must say whether there is more")
	}
	cursor, isText := page.NextCursor.(string)
	if *page.HasMore && (page.NextCursor == nil || isText && (cursor == "" || cursor == after)) {
		return say.Errorf("the cursor does not move")
	}
	return nil
}

// Walk calls ask for page after page until there is no more. If a broken service repeats its cursors, Walk fails
// instead of running without end.
func Walk(ask func(after string) (wire.Next, error)) error {
	after, mark := "", "" // Brent's algorithm: a cycle returns to the mark, which moves after 1, 2, 4, … pages
	for n := 1; ; n++ {
		next, err := ask(after)
		if err != nil || !next.HasMore || next.NextCursor == nil {
			return err
		}
		if after = *next.NextCursor; after == mark {
			return say.Errorf("the cursors of the service's pages repeat")
		}
		if n&(n-1) == 0 {
			mark = after
		}
	}
}

// request makes the HTTP request.
func (c *Client) request(ctx context.Context, a ask) (*http.Request, error) {
	if a.wrong != nil {
		return nil, a.wrong
	}
	body, ok := a.document.([]byte)
	if a.document != nil && !ok {
		var err error
		if body, err = json.Marshal(a.document); err != nil {
			return nil, err
		}
	}
	address := c.base + a.path
	if len(a.query) > 0 {
		address += "?" + a.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, a.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, say.Errorf("%s: %w", c.base, err)
	}
	if !a.raw {
		request.Header.Set("Accept", "application/json")
	}
	request.Header.Set("User-Agent", c.agent)
	request.Header.Set("Integrity-Version", c.version)
	if c.language != "" {
		request.Header.Set("Accept-Language", string(c.language))
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	switch {
	case a.public:
	case c.key == "":
		return nil, say.Errorf("an API key is required: only public requests work without one")
	default:
		request.Header.Set("Authorization", "Bearer "+c.key)
		if a.method == http.MethodGet && !a.newest {
			c.session.read(request.Header)
		}
	}
	return request, nil
}

// do sends one request and returns the body of a successful answer. Its errors never contain the query, which may
// contain a hash, and never the key.
func (c *Client) do(ctx context.Context, a ask) ([]byte, error) {
	connected := false // set before Do returns
	request, err := c.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		connected = true
	}}), a)
	if err != nil {
		return nil, notSentError{err}
	}
	response, err := c.http.Do(request)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		if err = say.Errorf("the service at %s did not answer: %w", c.base, err); !connected {
			err = notSentError{err}
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case errors.Is(err, outbound.ErrTooLong):
		return nil, say.Errorf("the service at %s: %w", c.base, err)
	case err != nil:
		return nil, say.Errorf("the answer of %s broke off: %w", c.base, err)
	case response.StatusCode >= 200 && response.StatusCode < 300:
		c.session.written(response.Header)
		return body, nil
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, say.Errorf(
			"%s redirects (%d), which is not followed: use the address that it redirects to", c.base, response.StatusCode,
		)
	}
	var e envelope
	wait := retryAfter(response.Header.Get("Retry-After"), time.Now())
	if err := json.Unmarshal(body, &e); err != nil || e.Error == nil || e.Error.Code == "" {
		// A 404 of a proxy says nothing about the service.
		return nil, unexplainedError{
			say.Errorf("%s answered %d without a reason; is this the address of the service?", c.base, response.StatusCode),
			wait,
		}
	}
	e.Error.Status = response.StatusCode
	refused := newError(e.Error)
	refused.RequestID, refused.RetryAfter, refused.Address = e.Meta.RequestID, wait, c.base
	return nil, refused
}

// sessionLength is how long after a write the client accepts answers that may miss newer events of others, as long as
// they include everything it has seen. The answer to a write names the organization's sequence, so no answer in this
// time is older than the write.
const sessionLength = 10 * time.Second

// session lets a read replica answer a client that has just written. The replica answers only if it has replayed the
// highest sequence seen, so the client sees its own writes and everything it has read in the feed. Before the first
// write, and some time after the last, requests name no sequence and the answer includes everything.
type session struct {
	now func() time.Time

	mu    sync.Mutex
	seen  int64
	until time.Time
}

// written notes the sequence in the answer to a write.
func (s *session) written(h http.Header) {
	sequence, err := strconv.ParseInt(h.Get("Integrity-Sequence"), 10, 64)
	if err != nil {
		return // not a write
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.until = max(s.seen, sequence), s.now().Add(sessionLength)
}

// saw notes the sequence of a feed event.
func (s *session) saw(sequence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, sequence)
}

// read requests, within a session, a state that includes everything the client has seen.
func (s *session) read(h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.until) {
		h.Set("Integrity-Read-After", strconv.FormatInt(s.seen, 10))
	}
}
