package handlers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/klauspost/compress/gzhttp"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
	"integrityledger/projections/queue/webhooks"
	"integrityledger/schemas"
)

// Config is what the handlers are made of.
type Config struct {
	Ledger       *eventstore.Ledger
	Store        *query.Store
	Notifier     *eventstore.Notifier // wakes those who wait for the feed
	Installation eventstore.Installation
	// Keys answers the signing keys as they are now; they may be reloaded at any time.
	Keys    func() Keys
	BaseURL string // without a slash at its end; the only source of URLs, never Host
	Now     func() time.Time
	Random  io.Reader // a secure source
	Log     *slog.Logger
	// TrustedProxies are those whose X-Forwarded-For entries are believed.
	TrustedProxies []netip.Prefix
	// BodyGrace is how long a body may take before it must arrive at 64 KiB a second; 0 means ten seconds.
	BodyGrace time.Duration
	// PublicPerMinute is the limit of a client address on comparisons and what else is
	// public and dear; 0 means 60.
	PublicPerMinute int
	// PublicPagesPerMinute is its limit on pages, documents and downloads; 0 means 600.
	PublicPagesPerMinute int
	// KeyUsed is told of every request that a key has authenticated. Nil means
	// nobody asks.
	KeyUsed func(key domain.KeyID, at time.Time)
	// Analyze looks at an open file of size bytes (see cmd/analyzer).
	Analyze func(ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string) (analysis.Report, error)
	// Spool takes uploads in. Nil means one in the system's directory for temporary files.
	Spool *Spool
	// Keep stores the bytes of a version that is about to be registered, where the
	// organization's retention wants them kept. Nil means nothing is ever kept.
	Keep func(ctx context.Context, organization domain.OrganizationID, artifact domain.ArtifactID, version domain.ArtifactVersionID, content io.ReaderAt, size int64) error
	// Operating is the operators' manual, in Markdown, shown at /developers/operating. Nil: there is no such page.
	Operating []byte
	// Relationship is the operator's disclosure, shown at the end of the fixed text.
	Relationship map[evidence.Language]string
	// Ready reports why nothing can be committed; the answer shows the sentence of a *domain.Error. It is asked as
	// often as anybody likes, so it must remember. Nil means nothing is asked.
	Ready func(context.Context) error
	// SecretKey seals webhook secrets. Nil: none can be made.
	SecretKey *domain.SecretKey
	// OAuth verifies access tokens for the ordinary MCP endpoint. Nil: there are none.
	OAuth *oauth.Provider
	// Egress judges the addresses of webhook destinations.
	Egress webhooks.EgressPolicy
	// Queued is told each shard in which a request has queued deliveries. Nil means
	// that nobody asks.
	Queued func(domain.Shard)
	// Closing, once closed, makes requests that wait for the feed answer what
	// they have. Nil means never.
	Closing <-chan struct{}
	// Transparency answers what the transparency log publishes. Nil: there is none.
	Transparency *transparency.Reader
	// Observe is told of every request after its answer; it must not wait. Nil:
	// nobody is told.
	Observe func(Observation)
	// Tracer makes a span of every request. Nil: none.
	Tracer trace.Tracer
}

// Keys are the keys that the service signs and verifies with.
type Keys struct {
	Signer  *evidence.Signer // nil: the service must not sign
	Trusted *evidence.TrustedKeys
}

type server struct {
	Config
	codes     map[domain.Code]codeText
	addresses *addressLimit // public routes, but for what pages counts
	pages     *addressLimit // pages, documents and downloads
	refused   *addressLimit // answers with 401
	waiters   *waiters
	bodies    *fairSemaphore // large ones, from before they are read until they are answered
	singles   *fairSemaphore // single commands under way
	preparing *fairSemaphore // processors that prepare batches
	used      *usedVersions
	records   *verifier
	site      *web.Site
	// unproven is, in nanoseconds since 1970, until when evidence is made without asking for a proof of inclusion.
	unproven  atomic.Int64
	guides    func() (map[string][]byte, error) // pages for developers, by path
	downloads *developers.Downloads
}

// refusedPerMinute is how many 401 an address may have in a minute (contract section 2).
const refusedPerMinute = 60

// New makes the handler of every route. What is missing is found by whoever wires
// it; it panics only where the program itself is broken.
func New(c Config) http.Handler {
	if c.PublicPerMinute == 0 {
		c.PublicPerMinute = 60
	}
	if c.BodyGrace == 0 {
		c.BodyGrace = bodyGrace
	}
	if c.PublicPagesPerMinute == 0 {
		c.PublicPagesPerMinute = 600
	}
	if c.Spool == nil {
		c.Spool = &Spool{}
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	site, err := web.New(c.Relationship)
	if err != nil {
		panic(err)
	}
	downloads, err := developers.New()
	if err != nil {
		panic(err)
	}
	s := &server{
		Config:    c,
		codes:     codeTexts(),
		addresses: newAddressLimit(minute, c.PublicPerMinute),
		pages:     newAddressLimit(pages, c.PublicPagesPerMinute),
		refused:   newAddressLimit(minute, refusedPerMinute),
		waiters:   newWaiters(),
		bodies:    newBodies(c.Closing),
		singles:   newSingles(c.Closing),
		preparing: newFairSemaphore(preparers(), preparers(), math.MaxInt),
		used:      newUsedVersions(),
		records:   newVerifier(),
		site:      site,
		downloads: downloads,
	}
	s.guides = sync.OnceValues(s.renderGuides)
	router := mux.NewRouter().SkipClean(true)
	for _, r := range slices.Concat(s.developerRoutes(), s.routes(), s.certificationRoutes(), s.oauthRoutes()) {
		h := s.serve(r)
		if r.template == feedRoute {
			h = compressed(h)
		}
		router.Handle(r.template, h)
	}
	router.NotFoundHandler = s.serve(route{template: unknownRoute})
	return router
}

// compressed answers gzip to who asks for it (contract, the feed alone: its pages
// are long, and hold nothing secret beside what a stranger could choose).
func compressed(h http.Handler) http.Handler { return gzhttp.GzipHandler(h) }

// kind is what surrounds the handlers of a route.
type kind int

const (
	apiRoute      kind = iota // API key, envelope
	publicRoute               // no key, envelope, CORS, limited by address
	documentRoute             // as publicRoute, but for types other than JSON, and with the limit of pages
	pageRoute                 // no key, with the limit of pages; errors as a page to who asks for one
	openRoute                 // no key, no limit
	tokenRoute                // an access token, which the handler verifies; envelope, limited by address
	mcpRoute                  // as apiRoute, but what is wrong with the body is found after it is paid for
)

// anyOrigin is true of what pages of every origin may read (contract section 4.2).
func (k kind) anyOrigin() bool { return k == publicRoute || k == documentRoute }

// feedRoute is the one whose answers are compressed.
const feedRoute = "/api/v1/integrity/changes"

// unknownRoute stands in the log for paths that nothing answers.
const unknownRoute = "unknown"

type handler func(r *http.Request) (response, error)

// action is what a method does on a route.
type action struct {
	handle handler
	scope  domain.Scope // of apiRoute
	body   bodyRule
	// monthly takes one of the organization's requests of the month.
	monthly bool
	// replicated actions only read, and may be answered by a replica (readAfterHeader).
	replicated bool
	// queues is true of actions that write without the ledger, so that no group judges the actor.
	queues bool
	// limit replaces the limit of an address that the kind of the route has.
	limit addressPolicy
	// keyLimit names a limit of keyPerMinute of every key; empty means none.
	keyLimit string
}

// anyScope is of actions that every active key may take.
const anyScope domain.Scope = ""

// keyPerMinute is how often a key may take an action that has a limit of its own
// (specification, Limits).
const keyPerMinute = 10

type route struct {
	template string
	kind     kind
	methods  map[string]action
}

func get(handle handler) map[string]action {
	return map[string]action{http.MethodGet: {handle: handle}}
}

func read(handle handler) action { return action{handle: handle, scope: domain.IntegrityRead} }

// replicated is read for what a replica may answer too.
func replicated(handle handler) action {
	return action{handle: handle, scope: domain.IntegrityRead, replicated: true}
}

func admin(handle handler) action { return action{handle: handle, scope: domain.IntegrityAdmin} }

func (s *server) routes() []route {
	const integrity = "/api/v1/integrity"
	routes := []route{
		// The router tries them in turn, so the busiest come first.
		{integrity + "/records", apiRoute, map[string]action{
			http.MethodGet:  replicated(s.search),
			http.MethodPost: {handle: s.register, scope: domain.IntegrityWrite, body: bodyRequired},
		}},
		{"/api/public/integrity/{publicId}", publicRoute, get(s.compare)},
		{integrity + "/companies", apiRoute, map[string]action{
			http.MethodGet:  replicated(s.listCompanies),
			http.MethodPost: {handle: s.createCompany, scope: domain.IntegrityAdmin, body: bodyRequired},
		}},
		{integrity + "/companies/{companyId}/access", apiRoute, map[string]action{
			http.MethodPost: {handle: s.setAccess, scope: domain.IntegrityAdmin, body: bodyRequired},
		}},
		{integrity + "/companies/{companyId}/webhooks", apiRoute, map[string]action{
			http.MethodPost: {handle: s.setWebhookAccess, scope: domain.IntegrityAdmin, body: bodyRequired},
		}},
		{integrity + "/webhooks", apiRoute, map[string]action{
			http.MethodGet:  admin(s.listWebhooks),
			http.MethodPost: {handle: s.createWebhook, scope: domain.IntegrityAdmin, body: bodyRequired},
		}},
		{integrity + "/webhooks/{webhookId}", apiRoute, map[string]action{
			http.MethodGet:    admin(s.webhook),
			http.MethodPatch:  {handle: s.updateWebhook, scope: domain.IntegrityAdmin, body: bodyRequired},
			http.MethodDelete: admin(s.deleteWebhook),
		}},
		{integrity + "/webhooks/{webhookId}/secret/rotate", apiRoute, map[string]action{
			http.MethodPost: {handle: s.rotateSecret, scope: domain.IntegrityAdmin, body: bodyOptional},
		}},
		{integrity + "/webhooks/{webhookId}/test", apiRoute, map[string]action{
			http.MethodPost: {handle: s.testWebhook, scope: domain.IntegrityAdmin, body: bodyOptional, queues: true},
		}},
		{integrity + "/webhooks/{webhookId}/replay", apiRoute, map[string]action{
			http.MethodPost: {handle: s.replay, scope: domain.IntegrityAdmin, body: bodyRequired, queues: true},
		}},
		{integrity + "/webhooks/{webhookId}/deliveries", apiRoute, map[string]action{http.MethodGet: admin(s.listDeliveries)}},
		{integrity + "/webhooks/deliveries/{deliveryId}/redeliver", apiRoute, map[string]action{
			http.MethodPost: {handle: s.redeliver, scope: domain.IntegrityAdmin, body: bodyOptional, queues: true},
		}},
		{integrity + "/records/batch", apiRoute, map[string]action{
			http.MethodPost: {handle: s.registerBatch, scope: domain.IntegrityWrite, body: bodyBatch},
		}},
		{integrity + "/reservations", apiRoute, map[string]action{
			http.MethodPost: {handle: s.reserve, scope: domain.IntegrityWrite, body: bodyRequired},
		}},
		{integrity + "/records/{publicId}", apiRoute, map[string]action{http.MethodGet: replicated(s.record)}},
		{integrity + "/records/{publicId}/evidence", apiRoute, map[string]action{http.MethodGet: read(s.evidence)}},
		{integrity + "/records/{publicId}/inclusion", apiRoute, map[string]action{http.MethodGet: read(s.inclusion)}},
		{integrity + "/records/{publicId}/revoke", apiRoute, map[string]action{
			http.MethodPost: {handle: s.revoke, scope: domain.IntegrityRevoke, body: bodyOptional},
		}},
		{integrity + "/lookup", apiRoute, map[string]action{http.MethodGet: replicated(s.lookup)}},
		{feedRoute, apiRoute, map[string]action{http.MethodGet: replicated(s.changes)}},
		{integrity + "/usage", apiRoute, map[string]action{http.MethodGet: read(s.usage)}},
		{integrity + "/usage/entries", apiRoute, map[string]action{http.MethodGet: read(s.usageEntries)}},

		{"/api/v1/usage", apiRoute, map[string]action{http.MethodGet: {handle: s.accountUsage, scope: anyScope, keyLimit: "usage"}}},
		{"/api/v1/me", apiRoute, map[string]action{http.MethodGet: {handle: s.me, scope: anyScope, monthly: true}}},

		{ordinaryMCPRoute, mcpRoute, map[string]action{http.MethodPost: {handle: s.speak(s.ordinaryMCP())}}},
		{integrity + "/mcp", mcpRoute, map[string]action{http.MethodPost: {handle: s.speak(s.integrityMCP())}}},

		{"/api/public/integrity/{publicId}/receipt", publicRoute, map[string]action{http.MethodGet: {handle: s.receipt, limit: countedAsPage}}},

		{"/api/public/log/checkpoint", documentRoute, get(s.checkpoint)},
		{"/api/public/log/tile/{tile:.+}", documentRoute, get(s.tile)},

		{"/api/integrity-openapi", documentRoute, get(s.contract(schemas.OpenAPIFile))},
		{"/api/openapi", documentRoute, get(s.contract(schemas.OlderOpenAPIFile))},
		{"/schemas/{name}", documentRoute, get(s.schema)},
		{web.VerifyPath, pageRoute, get(s.verifyPage)},
		{"/en" + web.VerifyPath, pageRoute, get(s.verifyPage)},
		{"/developers/{file}", documentRoute, get(s.developerFile)},

		{"/.well-known/integrity-trusted-keys.json", pageRoute, get(s.trustedKeys)},
		{"/errors/{code}", pageRoute, get(s.errorPage)},
		{"/limits", pageRoute, get(s.limitsPage)},

		{"/", pageRoute, get(s.frontPage)},
		{"/en", pageRoute, get(s.frontPage)},
		{web.AssetRoute, openRoute, get(s.asset)},

		{"/healthz", openRoute, get(s.health)},
		{"/readyz", openRoute, get(s.ready)},
	}
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		path, page := kind.Path("{publicId}"), s.comparisonPage(kind)
		methods := map[string]action{http.MethodGet: {handle: page}, http.MethodPost: {handle: page, body: bodyForm, limit: countedAsComparison}}
		routes = append(routes,
			route{path, pageRoute, methods},
			route{"/en" + path, pageRoute, methods},
			route{path + "/qr.svg", pageRoute, get(s.qrCode(kind))})
	}
	return routes
}

// signer is the key to sign with, or 503: what is not trusted signs nothing.
func (s *server) signer() (*evidence.Signer, error) {
	keys := s.Keys()
	if keys.Signer == nil || !keys.Trusted.Trusts(keys.Signer.Key()) {
		return nil, domain.Unavailable("The service has no trusted signing key at the moment, so it signs nothing; send the request again later.")
	}
	return keys.Signer, nil
}

// cause is on whose behalf the request acts.
func origin(r *http.Request) domain.Origin { return callOf(r).origin() }

func (c *call) origin() domain.Origin {
	return domain.Origin{
		Organization: c.access.Organization, Actor: c.access.Actor(), Link: c.access.Link, Scope: c.scope, RequestID: c.requestID,
	}
}

// execute has the ledger decide a command of the request under way.
func (s *server) execute(ctx context.Context, command domain.Command) error {
	answer := s.Ledger.Execute(ctx, command)[0]
	ctx.Value(callKey{}).(*call).reach(answer)
	return answer.Err
}

// refusal finds the domain's error in err, or nil for an internal one.
func refusal(err error) *domain.Error {
	var refused *domain.Error
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}
