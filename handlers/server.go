// Package handlers is the service as HTTP shows it: it decodes a request into a command or a question, and renders what
// the ledger or a projection answers. It decides nothing about records and never speaks to the database itself.
//
// Every handler is a func(*http.Request) (any, error): it answers data, or a response where there is more to say. What a
// request and a tool of MCP have done alike is one function of the input that either has read (posted, called). One
// wrapper, serve, surrounds all handlers: it takes the checks in the order of contract section 2, writes every answer and
// logs one line a request. Logs carry route templates, codes and request ids only; a query string holds hashes, so it is
// never logged.
package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/queue/webhooks"
)

// Config is what the handlers are made of.
type Config struct {
	Ledger       *eventstore.Ledger
	Store        *query.Store
	Notifier     *eventstore.Notifier // wakes the requests that wait for the feed
	Installation eventstore.Installation
	// Keys answers the signing keys as they are now; they may be reloaded at any time.
	Keys    func() Keys
	BaseURL string // without a slash at its end; the only source of URLs, never Host
	Now     func() time.Time
	Log     *slog.Logger
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
	// Analyze looks at an open file of size bytes (see cmd/analyzer).
	Analyze func(ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string) (analysis.Report, error)
	// Spool takes uploads in. Nil means one in the system's directory for temporary files.
	Spool *Spool
	// Keep stores the bytes of a version that is about to be registered, where the organization's retention wants them
	// kept. Nil means nothing is ever kept.
	Keep func(ctx context.Context, organization domain.OrganizationID, artifact domain.ArtifactID, version domain.ArtifactVersionID, content io.ReaderAt, size int64) error
	// Operating is the operators' manual, in Markdown, shown at /developers/operating. Nil: there is no such page.
	Operating []byte
	// Demo says that the service is a demo, whose terminal shows a link into the console.
	Demo bool
	// Relationship is the operator's disclosure, shown at the end of the fixed text.
	Relationship map[evidence.Language]string
	// SecurityContact is where whoever finds a weakness may write, each a URI, separated by commas (RFC 9116); empty: the
	// service does not say.
	SecurityContact string
	// Ready reports why nothing can be committed; the answer shows the sentence of a *domain.Error. It is asked as
	// often as anybody likes, so it must remember. Nil means nothing is asked.
	Ready func(context.Context) error
	// SecretKey seals webhook secrets, and the codes of invitations for the queue of mails. Nil: no webhook can be made.
	SecretKey *domain.SecretKey
	// NoInvitations keeps invited people out: the page on which they accept is not there.
	NoInvitations bool
	// SignUp lets anybody who can read the mail of an address make an organization on the free plan. It needs LinkMailer.
	SignUp bool
	// LinkMailer mails links that sign people in to the console. Nil: no mail is sent.
	LinkMailer *LinkMailer
	// MailsInvitations says that invitations are mailed, where SecretKey is there too; otherwise they are answered.
	MailsInvitations bool
	// OAuth verifies access tokens for the ordinary MCP endpoint. Nil: keys only.
	OAuth *oauth.Provider
	// Egress judges the addresses of webhook destinations.
	Egress webhooks.EgressPolicy
	// Queued hears of each shard in which a request has queued deliveries. It may be nil.
	Queued func(domain.Shard)
	// Closing, once closed, makes requests that wait for the feed answer what they have. Nil means never.
	Closing <-chan struct{}
	// Transparency answers what the transparency log publishes. Nil: the service keeps no log.
	Transparency *transparency.Reader
	// ProofTimeout is for how long evidence waits for the log's tables before it goes without a proof; 0 means 300 ms.
	ProofTimeout time.Duration
	// Observe hears of every request after its answer; it must not wait. It may be nil.
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
	faces     faces
	codes     map[domain.Code]web.Code
	addresses map[string]*addressLimit // of public routes, by bucket
	refused   *addressLimit            // answers with 401
	founded   *addressLimit            // organizations that people have made by themselves
	waiters   *waiters
	bodies    *fairSemaphore // large ones, from before they are read until they are answered
	singles   *fairSemaphore // single commands under way
	preparing *fairSemaphore // processors that prepare batches
	exports   *fairSemaphore // of histories under way
	used      *usedVersions
	callers   *callers
	records   *verifier
	console   *console // nil: there is no console
	site      *web.Site
	// unproven and unstamped are, in nanoseconds since 1970, until when evidence is made without asking for a proof of
	// inclusion, and for timestamps.
	unproven, unstamped atomic.Int64
	guides              func() (map[string][]byte, error) // pages for developers, by path
	downloads           []developers.Download
	zipped              zipped
	version             []string // of the service: the value of its header
}

// refusedPerMinute is how many 401 an address may have in a minute (contract section 2).
const refusedPerMinute = 60

// New makes the handler of every route. It panics only if the program itself is broken: what it embeds does not parse.
func New(c Config) http.Handler {
	c.PublicPerMinute, c.PublicPagesPerMinute = cmp.Or(c.PublicPerMinute, 60), cmp.Or(c.PublicPagesPerMinute, 600)
	c.Requests = cmp.Or(c.Requests, c.Log)
	c.BodyGrace, c.Spool = cmp.Or(c.BodyGrace, bodyGrace), cmp.Or(c.Spool, &Spool{})
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	s := &server{
		Config: c,
		codes:  map[domain.Code]web.Code{},
		addresses: map[string]*addressLimit{
			minute: {name: minute, most: c.PublicPerMinute, says: "One network address may send %d comparisons and sign-ins a minute, shared by all clients behind it"},
			pages:  {name: pages, most: c.PublicPagesPerMinute, says: "One network address may send %d requests for pages and downloads a minute, shared by all clients behind it"},
		},
		refused:   &addressLimit{name: minute, most: refusedPerMinute, says: "One network address may send %d requests without a valid key a minute, shared by all clients behind it"},
		founded:   &addressLimit{most: organizationsPerDay, window: 24 * time.Hour},
		waiters:   newWaiters(),
		bodies:    newBodies(c.Closing),
		singles:   newSingles(c.Closing),
		preparing: newFairSemaphore(preparers(), preparers(), math.MaxInt),
		exports:   newExports(c.Closing),
		used:      newUsedVersions(),
		callers:   newCallers(),
		records:   newVerifier(),
		console:   newConsole(c),
		downloads: must(developers.Downloads()),
		version:   []string{must(serviceVersion())},
	}
	s.site = must(web.New(web.Config{BaseURL: c.BaseURL, Relationship: c.Relationship, Console: s.console != nil, Demo: c.Demo}))
	for _, code := range must(ErrorCodes()) {
		s.codes[code.Code] = code
	}
	s.guides = sync.OnceValues(s.renderGuides)
	s.faces = faces{
		onward: func(r *http.Request, p policy, err error) *response { return s.onward(r, p, err) },
		failurePage: func(r *http.Request, failed response, err error) response {
			if page := s.limitPage(r, failed, err); page != nil {
				return *page
			}
			return s.failurePage(r, failed, err)
		},
	}
	return newRouter(routesOf(s.endpoints()), s.serve)
}

// must is for what is compiled in.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// signer is the key to sign with, or 503: an untrusted key signs nothing.
func (s *server) signer() (*evidence.Signer, error) {
	keys := s.Keys()
	if keys.Signer == nil || !keys.Trusted.Trusts(keys.Signer.Key()) {
		return nil, domain.Unavailable("The service has no trusted signing key at the moment, so it signs nothing; send the request again later.")
	}
	return keys.Signer, nil
}

// origin is on whose behalf the request acts.
func origin(r *http.Request) domain.Origin { return callOf(r).origin() }

func (c *call) origin() domain.Origin {
	o := domain.Origin{
		Organization: c.access.Organization, Actor: c.access.Actor(), Link: c.access.Link, Console: c.access.Console, Scope: c.scope, RequestID: c.requestID,
	}
	if o.Spent = c.spent; c.presumed {
		o.Minute = c.start.Unix() / 60
	}
	return o
}

// execute has the ledger decide commands of the request under way, each as if it had been sent alone, and answers the
// first refusal. Once the organization's minute is used up, only those that take something away are executed; all the
// others are refused then, so that a form is not saved in part because the minute ended in its middle.
func (s *server) execute(ctx context.Context, commands ...domain.Command) (err error) {
	c := callIn(ctx)
	var refused error
	if c.access.Console {
		refused = s.countCommands(ctx, c, len(commands))
	} else if c.spent != nil {
		refused = c.spent
	}
	if refused != nil {
		all := len(commands)
		commands = slices.DeleteFunc(slices.Clone(commands), func(command domain.Command) bool { return !domain.TakesAway(command) })
		if len(commands) == 0 {
			return refused
		}
		if len(commands) == all {
			refused = nil
		}
	}
	for _, answer := range s.Ledger.Execute(ctx, commands...) {
		s.reach(c, answer)
		if err == nil {
			err = answer.Err
		}
	}
	c.tookAway = c.spent != nil && err == nil
	return cmp.Or(err, refused)
}

// countCommands counts commands of the console in their organization's minute, where requests with a key count too.
func (s *server) countCommands(ctx context.Context, c *call, n int) error {
	o := c.access.Organization
	used, err := s.Store.CountMinute(ctx, o.Shard(), o, n, c.start)
	if err != nil {
		return err
	}
	return c.held(newLimitState(minute, domain.OrganizationMinute, c.access.PerMinute, used, c.start))
}

// done executes a command, and then shows its outcome. Where there is an error, the command may still be under way.
func (s *server) done(ctx context.Context, command domain.Command, show func() any) (any, error) {
	if err := s.execute(ctx, command); err != nil {
		return nil, err
	}
	return show(), nil
}

// refusal finds the domain's error in err, or nil for an internal one.
func refusal(err error) *domain.Error {
	refused, _ := errors.AsType[*domain.Error](err)
	return refused
}

// health says that the process answers, and nothing about the database.
func (s *server) health(*http.Request) (any, error) {
	return wire.Health{Status: "ok"}, nil
}

// ready says whether registrations can be taken: what Ready asks, and the signing key.
func (s *server) ready(r *http.Request) (any, error) {
	if s.Ready != nil {
		if err := s.Ready(r.Context()); err != nil {
			if refusal(err) == nil {
				err = fmt.Errorf("%w: %w", domain.Unavailable("The database is not ready."), err)
			}
			return nil, err
		}
	}
	if _, err := s.signer(); err != nil {
		return nil, err
	}
	return wire.Health{Status: "ready"}, nil
}

// commit is set by the linker (-X integrityledger/handlers.commit=…) where a build cannot see the repository.
var commit = "unknown"

// Build is what is known of the program that runs.
type Build struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // of the module; (devel) where the build does not know it
	Commit   string `json:"commit"`  // unknown where the build does not know it
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// ReadBuild reads it from the program itself. It answers something, however the program was built.
func ReadBuild() Build {
	b := Build{Module: "integrityledger", Version: "(devel)", Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go, b.Module, b.Version = info.GoVersion, cmp.Or(info.Main.Path, b.Module), cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b Build) String() string {
	modified := ""
	if b.Modified {
		modified = " and changes"
	}
	return fmt.Sprintf("%s (commit %s%s)", b.Version, b.Commit, modified)
}
