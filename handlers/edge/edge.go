// Package edge handles what all requests have in common: identity, limits, bodies, answers and errors. It knows no
// resource and no face.
//
// A Handler is a func(*http.Request) (any, error): it returns the data of the answer, or a Response if it also sets a
// status or headers. One wrapper, serve, surrounds all handlers: it makes the checks in the order of contract section
// 2, writes every answer and logs one line per request. Logs contain only route templates, codes and request ids. Query
// strings contain hashes, so they are never logged.
package edge

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// Config is what an Edge is made of.
type Config struct {
	Store        *query.Store
	Sessions     *session.Store
	Installation eventstore.Installation
	BaseURL      string // without a slash at its end; the only source of URLs, never Host
	Now          func() time.Time
	Log          *slog.Logger
	// Requests writes the line of a request that has not failed for a fault of the service; it may write later. Nil
	// means Log.
	Requests *slog.Logger
	// TrustedProxies are those whose X-Forwarded-For entries are believed.
	TrustedProxies []netip.Prefix
	// BodyGrace is how long a body may take before it must arrive at 64 KiB a second; 0 means ten seconds.
	BodyGrace time.Duration
	// PublicPerMinute is the limit of a client address on comparisons and what else is public and expensive; 0 means 60.
	PublicPerMinute int
	// PublicPagesPerMinute is its limit on pages, documents and downloads; 0 means 600.
	PublicPagesPerMinute int
	// KeyUsed hears of every request that a key has authenticated. It may be nil.
	KeyUsed func(key domain.KeyID, at time.Time)
	// Spool takes uploads in. Nil means one in the system's directory for temporary files.
	Spool *Spool
	// OAuth verifies access tokens for the ordinary MCP endpoint. Nil: keys only.
	OAuth *oauth.Provider
	// Closing, once closed, makes requests that wait answer what they have. Nil means never.
	Closing <-chan struct{}
	// Observe hears of every request after its answer; it must not wait. It may be nil.
	Observe func(Observation)
	// Tracer makes a span of every request. Nil: none.
	Tracer trace.Tracer
}

// Edge surrounds the requests of one service. It is safe for concurrent use.
type Edge struct {
	Identity
	bodies  *fair.Semaphore[domain.OrganizationID] // large ones, from before they are read until they are answered
	version []string                               // of the service: the value of its header
	spanish map[string]string
	faces   Faces
}

// Identity finds who acts in a request and judges whether it may, within the limits of its address and its
// organization.
type Identity struct {
	Config
	Codes     map[domain.Code]web.Code
	addresses map[string]*AddressLimit // of public routes, by bucket
	refused   *AddressLimit            // answers with 401
	callers   *callers
}

// Faces are what the console and the pages for people do with an outcome.
type Faces struct {
	// Onward is the answer to what only the console refuses: the way on. Nil: the outcome is any other.
	Onward func(r *http.Request, p Policy, err error) *Response
	// FailurePage shows a failure to a person.
	FailurePage func(r *http.Request, failed Response, err error) Response
}

// New makes an Edge. It panics only if the program itself is broken: what it embeds does not parse.
func New(c Config) *Edge {
	c.PublicPerMinute, c.PublicPagesPerMinute = cmp.Or(c.PublicPerMinute, 60), cmp.Or(c.PublicPagesPerMinute, 600)
	c.Requests, c.BaseURL = cmp.Or(c.Requests, c.Log), strings.TrimRight(c.BaseURL, "/")
	c.BodyGrace, c.Spool = cmp.Or(c.BodyGrace, bodyGrace), cmp.Or(c.Spool, &Spool{})
	const shared = ", shared by all clients behind it"
	e := &Edge{
		Identity: Identity{
			Config: c,
			Codes:  map[domain.Code]web.Code{},
			addresses: map[string]*AddressLimit{
				Minute: {
					name: Minute, Most: c.PublicPerMinute,
					says: "One network address may send %d comparisons and sign-ins a minute" + shared,
				},
				Pages: {
					name: Pages, Most: c.PublicPagesPerMinute,
					says: "One network address may send %d requests for pages and downloads a minute" + shared,
				},
			},
			refused: &AddressLimit{
				name: Minute, Most: refusedPerMinute,
				says: "One network address may send %d requests without a valid key a minute" + shared,
			},
			callers: newCallers(),
		},
		bodies:  newBodies(c.Closing),
		version: []string{Must(serviceVersion())},
		spanish: Must(spanishMessages()),
	}
	for _, code := range Must(ErrorCodes()) {
		e.Codes[code.Code] = code
	}
	return e
}

// Router is the handler of all endpoints. Of two that match a path, the first answers.
func (s *Edge) Router(endpoints []Endpoint, faces Faces) http.Handler {
	s.faces = faces
	return NewRouter(RoutesOf(endpoints), s.serve)
}

// Must is for what is compiled in.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
