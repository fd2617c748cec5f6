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
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// Config configures an Edge.
type Config struct {
	Store        *query.Store
	Sessions     *session.Store
	Installation eventstore.Installation
	BaseURL      string // without a trailing slash; the only source of URLs, never Host
	Now          func() time.Time
	Log          *slog.Logger
	// Requests logs requests that did not fail because of the service; it may write later. Nil means Log.
	Requests *slog.Logger
	// TrustedProxies are the networks of proxies whose X-Forwarded-For entries are believed.
	TrustedProxies []netip.Prefix
	// BodyGrace is how long a body may take before it must arrive at 64 KiB a second; 0 means ten seconds.
	BodyGrace time.Duration
	// PublicPerMinute is the number of comparisons and other expensive public requests allowed per client address; 0 means
	// 60.
	PublicPerMinute int
	// PublicPagesPerMinute is the number of pages, documents and downloads allowed per client address; 0 means 600.
	PublicPagesPerMinute int
	// KeyUsed is called for every request that a key has authenticated. It may be nil.
	KeyUsed func(key domain.KeyID, at time.Time)
	// Spool stores uploads while they are processed. Nil means a spool in the system's directory for temporary files.
	Spool *Spool
	// OAuth verifies access tokens for the ordinary MCP endpoint. Nil means that only API keys are accepted.
	OAuth *oauth.Provider
	// Closing, once closed, makes waiting requests answer with what they have. Nil means never.
	Closing <-chan struct{}
	// Observe is called for every request after its answer; it must not block. It may be nil.
	Observe func(Observation)
	// Tracer makes a span for every request. Nil means no spans.
	Tracer trace.Tracer
}

// Edge surrounds the requests of one service. It is safe for concurrent use.
type Edge struct {
	Identity
	bodies  *fair.Semaphore[domain.OrganizationID] // large bodies, from before they are read until they are answered
	version []string                               // of the service: the value of versionHeader
	spanish say.Catalogue
	faces   Faces
}

// Identity identifies the caller of a request and checks that it may act, within the limits of its address and its
// organization.
type Identity struct {
	Config
	Codes     map[domain.Code]web.Code
	addresses map[string]*AddressLimit // of public routes, by bucket
	refused   *AddressLimit            // answers with 401
	callers   *callers
}

// Faces are the ways in which the console and the public pages answer a failure.
type Faces struct {
	// Onward answers a refusal that only the console has, such as a missing session, with the way on. It returns nil for
	// all other outcomes.
	Onward func(r *http.Request, p Policy, err error) *Response
	// FailurePage shows a failure to a person.
	FailurePage func(r *http.Request, failed Response, err error) Response
}

// New makes an Edge. It panics only if the program itself is broken: an embedded file does not parse.
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
					name: Minute, Max: c.PublicPerMinute,
					says: "One network address may send %d comparisons and sign-ins a minute" + shared,
				},
				Pages: {
					name: Pages, Max: c.PublicPagesPerMinute,
					says: "One network address may send %d requests for pages and downloads a minute" + shared,
				},
			},
			refused: &AddressLimit{
				name: Minute, Max: refusedPerMinute,
				says: "One network address may send %d requests without a valid key a minute" + shared,
			},
			callers: newCallers(),
		},
		bodies:  newBodies(c.Closing),
		version: []string{"integrity-ledger/" + ReadBuild().Semantic()},
		spanish: say.Spanish(),
	}
	for _, code := range Must(ErrorCodes()) {
		e.Codes[code.Code] = code
	}
	return e
}

// Router returns the handler of all endpoints. If two match a path, the first one answers.
func (s *Edge) Router(endpoints []Endpoint, faces Faces) http.Handler {
	s.faces = faces
	return NewRouter(RoutesOf(endpoints), s.serve)
}

// Must returns v, or panics: err means that an embedded file is broken.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
