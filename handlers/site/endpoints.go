// Package site is the public face: the pages in both languages, the documents for developers, and the health probes of
// the process.
package site

import (
	"io/fs"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/action"
	"integrityledger/handlers/developers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

// Config configures the pages, in addition to the actions.
type Config struct {
	// Manual is the operators' manual (web.Developers), shown at /developers/operating and below it.
	Manual fs.FS
	// Demo says that the service is a demo, whose terminal shows a link into the console.
	Demo bool
	// OperatorName is the name of the person or company that operates the service. If it is empty, no page names one.
	OperatorName string
	// SecurityContact is where to report a vulnerability: URIs separated by commas (RFC 9116). If it is empty, the service
	// publishes no contact.
	SecurityContact string
}

// Site is the face for the public.
type Site struct {
	*action.Actions
	Config
	site      *web.Site
	guides    func() (*web.Guides, error) // pages for developers
	downloads []developers.Download
	running   developers.Program            // without a name if it cannot be read
	programs  *fair.Semaphore[netip.Prefix] // downloads of it in progress, by network
	zipped    zipped
}

// New makes the site. It panics only if the program itself is broken: an embedded file does not parse.
func New(a *action.Actions, pages *web.Site, c Config) *Site {
	s := &Site{Actions: a, Config: c, site: pages, downloads: edge.Must(developers.Downloads())}
	s.openProgram()
	s.guides = sync.OnceValues(s.renderGuides)
	return s
}

// Endpoints returns the pages in both languages, with their assets, and the probes of the process.
func (s *Site) Endpoints() []edge.Endpoint {
	shown := edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsPage}
	unlimited := edge.Policy{Caller: edge.Anyone, Answer: edge.AsFile}
	var endpoints []edge.Endpoint
	both := func(path string, handle edge.Handler) {
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(endpoints, edge.Get(web.Path(language, path), handle, shown))
		}
	}
	for _, name := range web.DeveloperPages() {
		both(strings.TrimSuffix(web.DeveloperRoot+"/"+name, "/"), s.developerPage)
	}
	both(web.DeveloperRoot+"/reference/{group}", s.developerPage)
	both(web.SearchPath, s.searchPage)
	both(web.VerifyPath, s.verifyPage)
	both(web.TrustPath, s.trustPage)
	both("", s.frontPage)
	for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
		endpoints = append(
			endpoints,
			edge.Post(
				web.Path(language, ""), s.find,
				edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Body: edge.BodyLongForm, Answer: edge.AsPage},
			),
		)
	}
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		path, show := kind.Path("{publicId}"), s.comparisonPage(kind)
		both(path, show)
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(
				endpoints,
				edge.Post(
					web.Path(language, path), show,
					edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Body: edge.BodyForm, Answer: edge.AsPage},
				),
			)
		}
		endpoints = append(endpoints, edge.Get(path+"/qr.svg", s.qrCode(kind), shown))
	}
	endpoints = append(endpoints,
		edge.Get("/errors/{code}", s.errorPage, shown),
		edge.Get(web.LimitsPath, s.limitsPage, shown))
	for _, e := range slices.Clone(endpoints) { // the canonical address of a page has no trailing slash
		if e.Method == http.MethodGet && e.Template != "/" {
			endpoints = append(endpoints, edge.Get(e.Template+"/", s.WithoutSlash, shown))
		}
	}
	document := edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile}
	published := edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile, AnyOrigin: true, NoQuery: true}
	return append(endpoints,
		edge.Get("/api/integrity-openapi", s.contract(schemas.OpenAPIFile), published),
		edge.Get("/api/openapi", s.contract(schemas.CertificationOpenAPIFile), published),
		edge.Get("/schemas/{name}", s.schema, published),
		edge.Get("/robots.txt", s.robots, document),
		edge.Get("/favicon.ico", s.favicon, document),
		edge.Get(securityRoute, s.securityText, document),
		edge.Get(
			web.DeveloperRoot+"/{file}", s.developerFile,
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsPage, AnyOrigin: true, NoQuery: true},
		),
		edge.Get("/.well-known/integrity-trusted-keys.json", s.trustedKeys, shown),
		edge.Get(web.AssetRoute, s.asset, unlimited),
		Health(),
		edge.Get("/readyz", s.readiness, probe))
}

var probe = edge.Policy{Caller: edge.Anyone, Answer: edge.AsFile, Probe: true}

// Health returns the endpoint that shows that the process answers. It needs no database.
func Health() edge.Endpoint {
	return edge.Get("/healthz", func(*http.Request) (any, error) { return wire.Health{Status: "ok"}, nil }, probe)
}
