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
	"fmt"
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
	"integrityledger/eventstore/outbound"
	"integrityledger/handlers/wire"
)

// MaxAnswer is the most bytes of an answer that are read.
const MaxAnswer = 8 << 20

// Config says whose client it is.
type Config struct {
	// BaseURL is the origin of the service, https://host[:port] without a path. http is for loopback addresses only.
	BaseURL string
	// APIKey is sent with everything but public questions. Without one, only those can be asked.
	APIKey string
	// Timeout bounds each request and its answer, waits for the feed included; 0 means a minute.
	Timeout time.Duration
	// UserAgent names the origin system in the logs of a proxy; it may be empty. This client's own name follows it.
	UserAgent string
	// Name is that of the program in Integrity-Version, which the service logs: at most 40 letters, digits and . _ - ;
	// empty means integrity-go.
	Name string
}

// Client speaks to one service. It is safe for concurrent use.
type Client struct {
	base, key, agent, version string
	http                      *outbound.Client
	session                   session
}

// New makes a client. It refuses an address to which a key must not travel, and a text that is no API key; the error
// never shows the key.
func New(c Config) (*Client, error) {
	base, err := ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("BaseURL %w", err)
	}
	if c.APIKey != "" {
		if _, _, ok := domain.ParseAPIKey(c.APIKey); !ok {
			return nil, errors.New("APIKey must be the text of an API key (ik_…)")
		}
	}
	version := cmp.Or(c.Name, "integrity-go") + "/" + moduleVersion()
	return &Client{
		base: base, key: c.APIKey, agent: strings.TrimSpace(c.UserAgent + " " + version), version: version,
		session: session{now: time.Now},
		http:    outbound.New(outbound.Config{Timeout: c.Timeout, Answer: MaxAnswer, Idle: 16, Proxy: true}),
	}, nil
}

// moduleVersion is the version of this module in the program that runs; devel where the build does not know it.
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

// BaseURL is the origin of the service.
func (c *Client) BaseURL() string { return c.base }

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ParseBaseURL reads the origin of a service: scheme, host and port, and nothing else. http is refused unless the host
// is this machine.
func ParseBaseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errors.New("must be an http or https URL without path, query or user")
	}
	if u.Scheme == "http" && !domain.IsLoopbackHost(u.Hostname()) {
		return "", errors.New("must be https; http goes to this machine only, because anybody between could read and answer")
	}
	return u.Scheme + "://" + u.Host, nil
}

// ask is one request; public ones carry no key.
type ask struct {
	method, path string
	query        url.Values
	document     any // the body as JSON; bytes are sent as they stand
	public       bool
	newest       bool  // everything that was committed is to be in the answer
	raw          bool  // the answer is no JSON
	wrong        error // why it cannot be asked
}

// envelope is every answer but raw evidence.
type envelope = wire.Envelope[json.RawMessage]

// read asks once and reads the member data.
func read[Data any](ctx context.Context, c *Client, a ask) (data Data, err error) {
	_, err = c.read(ctx, a, &data)
	return data, err
}

// get reads the answer to a question.
func get[Data any](ctx context.Context, c *Client, path string, query url.Values) (Data, error) {
	return read[Data](ctx, c, ask{method: http.MethodGet, path: path, query: query})
}

// post sends a document once.
func post[Data any](ctx context.Context, c *Client, path string, document any) (Data, error) {
	return read[Data](ctx, c, ask{method: http.MethodPost, path: path, document: document})
}

// about refuses an answer to another question.
func about[Data any](data Data, err error, asked bool) (Data, error) {
	if err == nil && !asked {
		err = errOther
	}
	return data, err
}

// errOther means that an answer came, and not to the question.
var errOther = errors.New("the answer is about something else than what was asked")

// read reads the member data of a success.
func (c *Client) read(ctx context.Context, a ask, to any) (wire.Meta, error) {
	body, err := c.do(ctx, a)
	if err != nil {
		return wire.Meta{}, err
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil || !utf8.Valid(body) || !hasMembers(e.Data) {
		return wire.Meta{}, fmt.Errorf(
			"the answer of %s must be JSON with an object data; is this the address of the service?", c.base,
		)
	}
	if a.query.Has("limit") {
		if err := checkPage(e.Data, a.query.Get("after")); err != nil {
			return wire.Meta{}, fmt.Errorf("the answer of %s: %w", c.base, err)
		}
	}
	if err := json.Unmarshal(e.Data, to); err != nil {
		return wire.Meta{}, fmt.Errorf("the answer of %s is of another form than this program knows: %w", c.base, err)
	}
	return e.Meta, nil
}

// hasMembers reports whether a text of JSON is an object that is not empty.
func hasMembers(data json.RawMessage) bool {
	return len(data) > 0 && data[0] == '{' && bytes.TrimSpace(data[1:])[0] != '}'
}

// checkPage requires of a page that it says whether there is more, and then a cursor other than the one asked with.
func checkPage(data json.RawMessage, after string) error {
	var page struct {
		HasMore    *bool `json:"hasMore"`
		NextCursor any   `json:"nextCursor"` // a number in the feed, which has its own check
	}
	if err := json.Unmarshal(data, &page); err != nil || page.HasMore == nil {
		return errors.New("a page must say whether there is more")
	}
	cursor, isText := page.NextCursor.(string)
	if *page.HasMore && (page.NextCursor == nil || isText && (cursor == "" || cursor == after)) {
		return errors.New("the cursor does not move")
	}
	return nil
}

// Walk asks for page after page until there is no more. It fails when the cursors repeat, as a broken service's do: the
// walk would never end.
func Walk(ask func(after string) (wire.Next, error)) error {
	after, mark := "", "" // Brent's algorithm: a circle comes back to a mark, which is set ever more rarely
	for n := 1; ; n++ {
		next, err := ask(after)
		if err != nil || !next.HasMore || next.NextCursor == nil {
			return err
		}
		if after = *next.NextCursor; after == mark {
			return errors.New("the cursors of the service's pages repeat")
		}
		if n&(n-1) == 0 {
			mark = after
		}
	}
}

// request makes what is sent.
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
		return nil, fmt.Errorf("%s: %w", c.base, err)
	}
	if !a.raw {
		request.Header.Set("Accept", "application/json")
	}
	request.Header.Set("User-Agent", c.agent)
	request.Header.Set("Integrity-Version", c.version)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	switch {
	case a.public:
	case c.key == "":
		return nil, errors.New("an API key must be set: only public questions can be asked without one")
	default:
		request.Header.Set("Authorization", "Bearer "+c.key)
		if a.method == http.MethodGet && !a.newest {
			c.session.read(request.Header)
		}
	}
	return request, nil
}

// do asks once and returns the body of a success. Its errors never hold a query, which may hold a hash, and never the
// key.
func (c *Client) do(ctx context.Context, a ask) ([]byte, error) {
	connected := false // Do returns after the connection was made, if any
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
		if err = fmt.Errorf("the service at %s did not answer: %w", c.base, err); !connected {
			err = notSentError{err}
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case errors.Is(err, outbound.ErrTooLong):
		return nil, fmt.Errorf("the service at %s: %w", c.base, err)
	case err != nil:
		return nil, fmt.Errorf("the answer of %s broke off: %w", c.base, err)
	case response.StatusCode >= 200 && response.StatusCode < 300:
		c.session.written(response.Header)
		return body, nil
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, fmt.Errorf(
			"%s redirects (%d), which is not followed: use the address that it redirects to", c.base, response.StatusCode,
		)
	}
	var e envelope
	wait := retryAfter(response.Header.Get("Retry-After"), time.Now())
	if err := json.Unmarshal(body, &e); err != nil || e.Error == nil || e.Error.Code == "" {
		// A proxy's 404 is not the service's word on anything.
		return nil, unexplainedError{
			fmt.Errorf("%s answered %d without a reason; is this the address of the service?", c.base, response.StatusCode),
			wait,
		}
	}
	e.Error.Status = response.StatusCode
	refused := newError(e.Error)
	refused.RequestID, refused.RetryAfter, refused.Address = e.Meta.RequestID, wait, c.base
	return nil, refused
}

// sessionLength is for how long after a write its client is content with any state that has what it has seen. A write
// tells the organization's sequence after it, so nothing that is read within that time is older than that.
const sessionLength = 10 * time.Second

// session lets a read replica answer a client that has just written, and yet shows it its own writes and whatever it
// has read in the feed: the replica answers where it has come to the highest sequence seen. Before the first write and
// some time after the last no sequence is named, and an answer shows everything.
type session struct {
	now func() time.Time

	mu    sync.Mutex
	seen  int64
	until time.Time
}

// written takes note of a write's answer.
func (s *session) written(h http.Header) {
	sequence, err := strconv.ParseInt(h.Get("Integrity-Sequence"), 10, 64)
	if err != nil {
		return // no write
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.until = max(s.seen, sequence), s.now().Add(sessionLength)
}

// saw takes note of an event of the feed.
func (s *session) saw(sequence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, sequence)
}

// read asks, within a session, for a state that has all that was seen.
func (s *session) read(h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.until) {
		h.Set("Integrity-Read-After", strconv.FormatInt(s.seen, 10))
	}
}
