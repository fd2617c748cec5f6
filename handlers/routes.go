package handlers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/schemas"
)

// Methods, short enough for a table.
const (
	get  = http.MethodGet
	post = http.MethodPost
)

// securityRoute is where RFC 9116 has whoever finds a weakness look.
const securityRoute = "/.well-known/security.txt"

// unknownRoute stands in the log for paths that nothing answers.
const unknownRoute = "unknown"

// endpoints are all that the service answers. Of two that match a path, the first answers.
func (s *server) endpoints() []endpoint {
	return slices.Concat(s.integrityEndpoints(), s.publicEndpoints(), s.certificationEndpoints(), s.accountEndpoints(), s.organizationEndpoints(), s.oauthEndpoints(), s.consoleEndpoints(), s.siteEndpoints())
}

// integrityEndpoints are those of hash-only registration.
func (s *server) integrityEndpoints() []endpoint {
	const integrity = "/api/v1/integrity"
	write := policy{scope: domain.IntegrityWrite, body: bodyRequired, judged: true}
	admin := policy{scope: domain.IntegrityAdmin, body: bodyRequired}
	adminRead := policy{scope: domain.IntegrityAdmin, noQuery: true}
	change := policy{scope: domain.IntegrityAdmin, body: bodyRequired, takesAway: true}
	return []endpoint{
		{post, integrity + "/records", posted(domain.ReadDeclaration, single(s, s.register)), write},
		{get, integrity + "/records", s.findRecords, policy{scope: domain.IntegrityRead, replica: true}},
		{post, integrity + "/records/batch", s.registerBatch, policy{scope: domain.IntegrityWrite, body: bodyBatch}},
		{post, integrity + "/reservations", posted(domain.ReadVersionReference, single(s, s.reserve)), write},
		{get, integrity + "/reservations", s.listReservations, policy{scope: domain.IntegrityRead, replica: true}},
		{http.MethodDelete, integrity + "/reservations/{publicId}", s.release, policy{scope: domain.IntegrityWrite, noQuery: true, judged: true, takesAway: true}},
		{get, integrity + "/records/{publicId}", s.record, policy{scope: domain.IntegrityRead, replica: true, noQuery: true}},
		{get, integrity + "/records/{publicId}/evidence", s.evidence, policy{scope: domain.IntegrityRead}},
		{get, integrity + "/records/{publicId}/inclusion", s.inclusion, policy{scope: domain.IntegrityRead, noQuery: true}},
		{post, integrity + "/records/{publicId}/revoke", s.revoke, policy{scope: domain.IntegrityRevoke, body: bodyOptional, judged: true, takesAway: true}},
		{get, integrity + "/lookup", s.lookup, policy{scope: domain.IntegrityRead, replica: true}},
		{get, integrity + "/changes", s.changes, policy{scope: domain.IntegrityRead, replica: true, compressed: true}},
		{get, integrity + "/usage", s.usage, policy{scope: domain.IntegrityRead, noQuery: true}},
		{get, integrity + "/usage/entries", s.usageEntries, policy{scope: domain.IntegrityRead}},

		{get, integrity + "/companies", s.listCompanies, policy{scope: domain.IntegrityRead, replica: true}},
		{post, integrity + "/companies", posted(readCompany, s.createCompany), admin},
		{http.MethodPatch, integrity + "/companies/{companyId}", s.setCompanyStatus, change},
		{get, integrity + "/companies/{companyId}/access", s.listAccess, policy{scope: domain.IntegrityAdmin}},
		{post, integrity + "/companies/{companyId}/access", s.setAccess, change},
		{get, integrity + "/companies/{companyId}/webhooks", s.listWebhookAccess, policy{scope: domain.IntegrityAdmin}},
		{post, integrity + "/companies/{companyId}/webhooks", s.setWebhookAccess, change},

		{get, integrity + "/webhooks", s.listWebhooks, adminRead},
		{post, integrity + "/webhooks", s.createWebhook, admin},
		{get, integrity + "/webhooks/{webhookId}", s.webhook, adminRead},
		{http.MethodPatch, integrity + "/webhooks/{webhookId}", s.updateWebhook, change},
		{http.MethodDelete, integrity + "/webhooks/{webhookId}", s.deleteWebhook, policy{scope: domain.IntegrityAdmin, noQuery: true, takesAway: true}},
		{post, integrity + "/webhooks/{webhookId}/secret/rotate", s.rotateSecret, policy{scope: domain.IntegrityAdmin, body: bodyOptional}},
		{post, integrity + "/webhooks/{webhookId}/test", s.testWebhook, policy{scope: domain.IntegrityAdmin, body: bodyOptional, queues: true}},
		{post, integrity + "/webhooks/{webhookId}/replay", s.replay, policy{scope: domain.IntegrityAdmin, body: bodyRequired, queues: true}},
		{get, integrity + "/webhooks/{webhookId}/deliveries", s.listDeliveries, policy{scope: domain.IntegrityAdmin}},
		{post, integrity + "/webhooks/deliveries/{deliveryId}/redeliver", s.redeliver, policy{scope: domain.IntegrityAdmin, body: bodyOptional, queues: true}},

		{post, integrity + "/mcp", s.speak(s.integrityMCP()), policy{foreign: s.foreign, body: bodyMessage, takesAway: true, noQuery: true}},
	}
}

// publicEndpoints need no key, and pages of every origin may read them.
func (s *server) publicEndpoints() []endpoint {
	document := policy{caller: anyone, bucket: pages, answer: asFile, anyOrigin: true, noQuery: true}
	return []endpoint{
		{get, "/api/public/integrity/{publicId}", s.compare, policy{caller: anyone, bucket: minute, anyOrigin: true}},
		{get, "/api/public/integrity/{publicId}/receipt", s.receipt, policy{caller: anyone, bucket: pages, anyOrigin: true, noQuery: true}},
		{get, "/api/v1/certificates/{id}/verify", s.verifyPublicly, policy{caller: anyone, bucket: minute, anyOrigin: true}},
		{get, "/api/public/log/checkpoint", s.checkpoint, document},
		{get, "/api/public/log/tile/{tile:.+}", s.tile, document},
		{get, "/api/public/log/timestamps", s.timestamps, policy{caller: anyone, bucket: pages, answer: asFile, anyOrigin: true}},
		{get, "/api/integrity-openapi", s.contract(schemas.OpenAPIFile), document},
		{get, "/api/openapi", s.contract(schemas.CertificationOpenAPIFile), document},
		{get, "/schemas/{name}", s.schema, document},
	}
}

// certificationEndpoints are those of artifacts, reviews, approvals and certificates. Each takes a request of the month.
func (s *server) certificationEndpoints() []endpoint {
	content := policy{scope: domain.ArtifactsWrite, monthly: true, body: bodyContent}
	certify := policy{scope: domain.CertificatesWrite, monthly: true, body: bodyRequired}
	return []endpoint{
		{post, "/api/v1/verify", posted(readVerification, s.verifyHash), policy{scope: domain.VerifyRead, monthly: true, body: bodyRequired}},
		{get, "/api/v1/artifacts", s.listArtifacts, policy{scope: domain.ArtifactsRead, monthly: true, replica: true}},
		{post, "/api/v1/artifacts", s.registerVersion, content},
		{get, "/api/v1/artifacts/{id}", s.artifact, policy{scope: domain.ArtifactsRead, monthly: true, replica: true}},
		{post, "/api/v1/artifacts/{id}/versions", s.registerVersion, content},
		{post, "/api/v1/artifacts/{id}/reviews", s.declareReview, policy{scope: domain.ReviewsWrite, monthly: true, body: bodyFile}},
		{get, "/api/v1/analyses/{id}", s.analysis, policy{scope: domain.AnalysesRead, monthly: true, replica: true, noQuery: true}},
		{post, "/api/v1/versions/{id}/approve", s.approve, policy{scope: domain.ApprovalsWrite, monthly: true, body: bodyRequired}},
		{post, "/api/v1/versions/{id}/certificates", s.issueCertificate, certify},
		{get, "/api/v1/certificates/{id}/download", s.download, policy{scope: domain.CertificatesRead, monthly: true, noQuery: true}},
		{post, "/api/v1/certificates/{id}/revoke", s.revokeCertificate, policy{scope: domain.CertificatesWrite, monthly: true, body: bodyRequired, takesAway: true}},
		{get, "/api/v1/audit-events", s.auditEvents, policy{scope: domain.AuditRead, monthly: true, replica: true}},
		{get, "/api/v1/metrics/detectors", s.detectorMetrics, policy{scope: domain.MetricsRead, monthly: true, replica: true, noQuery: true}},
		{post, "/api/v1/manifests/validate", s.validateManifest, policy{scope: domain.ArtifactsRead, monthly: true, body: bodyManifest, noQuery: true}},
	}
}

// accountEndpoints are of every key.
func (s *server) accountEndpoints() []endpoint {
	return []endpoint{
		{get, "/api/v1/usage", s.accountUsage, policy{scope: anyScope, keyLimit: "usage", noQuery: true}},
		{get, "/api/v1/me", s.me, policy{scope: anyScope, monthly: true, noQuery: true}},
		{post, ordinaryMCPRoute, s.speak(s.ordinaryMCP()), policy{foreign: s.foreign, caller: withKeyOrToken, body: bodyMessage, noQuery: true}},
	}
}

// organizationEndpoints are of the organization's own administration. None takes a request of the month: an owner must be
// able to revoke a leaked key in a month that is used up.
func (s *server) organizationEndpoints() []endpoint {
	const organization = "/api/v1/organization"
	write := policy{scope: domain.OrganizationAdmin, body: bodyRequired}
	read := policy{scope: domain.OrganizationAdmin, noQuery: true}
	remove := policy{scope: domain.OrganizationAdmin, noQuery: true, takesAway: true}
	return []endpoint{
		{get, organization, s.organization, policy{scope: anyScope, noQuery: true}},
		{get, organization + "/keys", s.listKeys, policy{scope: domain.OrganizationAdmin}},
		{post, organization + "/keys", posted(readNewKey, s.createKey), write},
		{get, organization + "/keys/{keyId}", s.key, read},
		{http.MethodPatch, organization + "/keys/{keyId}", s.updateKey, write},
		{http.MethodDelete, organization + "/keys/{keyId}", s.revokeKey, remove},
		{post, organization + "/keys/{keyId}/rotate", s.rotateKey, policy{scope: domain.OrganizationAdmin, body: bodyOptional}},
		{get, organization + "/members", s.listMembers, policy{scope: domain.OrganizationAdmin}},
		{post, organization + "/members", posted(readInvitation, s.inviteMember), write},
		{http.MethodPatch, organization + "/members/{memberId}", s.updateMember, policy{scope: domain.OrganizationAdmin, body: bodyRequired, takesAway: true}},
		{http.MethodDelete, organization + "/members/{memberId}", s.endMember, remove},
	}
}

// oauthEndpoints are there only while the adapter is configured.
func (s *server) oauthEndpoints() []endpoint {
	if s.OAuth == nil {
		return nil
	}
	endpoints := []endpoint{
		{get, resourceMetadataRoute, s.resourceMetadata, policy{caller: anyone, bucket: pages, answer: asFile, anyOrigin: true}},
		{get, "/api/v1/oauth/links", s.listLinks, policy{scope: anyScope}},
		{post, "/api/v1/oauth/links", posted(readOAuthScopes, s.startLink), policy{scope: anyScope, body: bodyOptional}},
		{post, "/api/v1/oauth/links/redeem", s.redeemLink, policy{caller: anyone, bucket: minute, body: bodyRequired}},
		{http.MethodDelete, "/api/v1/oauth/links/{linkId}", s.withdrawConsent, policy{scope: anyScope, noQuery: true, takesAway: true}},
	}
	if s.OAuth.CanSignIn() {
		// Their codes are secrets, and the provider is asked: not as often as a page.
		signIn := policy{caller: anyone, bucket: minute, answer: asPage}
		for _, prefix := range []string{"", "/en"} {
			endpoints = append(endpoints,
				endpoint{get, prefix + "/oauth/link/{code}", s.linkPage, signIn},
				endpoint{get, prefix + "/oauth/link/{code}/sign-in", s.signIn, signIn})
		}
		endpoints = append(endpoints, endpoint{get, signedInRoute, s.signedIn, signIn})
	}
	return endpoints
}

// siteEndpoints are the pages in both languages, with what they load, and the probes of the process.
func (s *server) siteEndpoints() []endpoint {
	shown := policy{caller: anyone, bucket: pages, answer: asPage}
	unlimited := policy{caller: anyone, answer: asFile}
	var endpoints []endpoint
	both := func(path string, handle handler) {
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(endpoints, endpoint{get, web.Path(language, path), handle, shown})
		}
	}
	for _, name := range web.DeveloperPages() {
		both(strings.TrimSuffix(web.DeveloperRoot+"/"+name, "/"), s.developerPage)
	}
	both(web.DeveloperRoot+"/reference/{group}", s.developerPage)
	both(web.VerifyPath, s.verifyPage)
	both("", s.frontPage)
	for _, kind := range []web.Kind{web.Record, web.Certificate} {
		path, show := kind.Path("{publicId}"), s.comparisonPage(kind)
		both(path, show)
		for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(endpoints, endpoint{post, web.Path(language, path), show, policy{caller: anyone, bucket: minute, body: bodyForm, answer: asPage}})
		}
		endpoints = append(endpoints, endpoint{get, path + "/qr.svg", s.qrCode(kind), shown})
	}
	endpoints = append(endpoints,
		endpoint{get, "/errors/{code}", s.errorPage, shown},
		endpoint{get, web.LimitsPath, s.limitsPage, shown})
	for _, e := range slices.Clone(endpoints) { // the one address of a page has no slash after it
		if e.method == get && e.template != "/" {
			endpoints = append(endpoints, endpoint{get, e.template + "/", s.withoutSlash, shown})
		}
	}
	document := policy{caller: anyone, bucket: pages, answer: asFile}
	return append(endpoints,
		endpoint{get, "/robots.txt", s.robots, document},
		endpoint{get, "/favicon.ico", s.favicon, document},
		endpoint{get, securityRoute, s.securityText, document},
		endpoint{get, web.DeveloperRoot + "/{file}", s.developerFile, policy{caller: anyone, bucket: pages, answer: asPage, anyOrigin: true, noQuery: true}},
		endpoint{get, "/.well-known/integrity-trusted-keys.json", s.trustedKeys, shown},
		endpoint{get, web.AssetRoute, s.asset, unlimited},
		endpoint{get, "/healthz", s.health, unlimited},
		endpoint{get, "/readyz", s.ready, unlimited})
}

// policy states, in one value, all that the middleware does before and after the handler of an endpoint.
type policy struct {
	caller caller
	scope  domain.Scope // of a key or token
	// bucket is the limit of a client address that counts the request: minute, pages or none. A key has its own limit of
	// the minute besides.
	bucket string
	// keyLimit names a further limit, of keyPerMinute for every key; empty means none.
	keyLimit string
	// monthly takes one of the organization's requests of the month.
	monthly bool
	body    bodyRule
	// noQuery refuses any query parameter. Otherwise the handler reads the query, or ignores it.
	noQuery bool
	answer  answerKind
	// anyOrigin lets pages of every origin read the answer (contract section 4.2).
	anyOrigin bool
	// replica lets a replica answer (readAfterHeader). The endpoint only reads.
	replica bool
	// queues is true of endpoints that write without the ledger, so that no group judges the actor.
	queues bool
	// foreign answers a request that a page of another site has made, before anything is counted. Nil: nobody asks.
	foreign func(*http.Request) *response
	// enter takes the checks of the endpoint's own face, once the limits are counted. The request that it returns goes
	// on, unless there is an answer. Nil: there are none.
	enter func(r *http.Request, p policy) (with *http.Request, answer *response, err error)
	// compressed answers are compressed where the caller accepts it: they hold nothing secret beside what a stranger
	// could choose (contract).
	compressed bool
	// unattended is true of what a page asks by itself, perhaps with nobody there: it is no use of the session.
	unattended bool
	// judged is true of endpoints whose one command has its actor judged, and the request counted, by its group.
	judged bool
	// takesAway is true of endpoints whose one command may take something away (domain.TakesAway): such a command is
	// executed after the organization's minute is used up, too.
	takesAway bool
}

// caller says who may call.
type caller int

const (
	withKey        caller = iota // an API key
	withKeyOrToken               // an API key, or an access token while OAuth is configured
	anyone                       // also with a credential that the handler itself reads
	withSession                  // the cookie of a session of the console, and no other credential
)

// withCredential is true of callers that authenticate with each request, as programs do.
func (c caller) withCredential() bool { return c == withKey || c == withKeyOrToken }

// anyScope is of endpoints that every active key may call.
const anyScope domain.Scope = ""

// answerKind is what the handler answers.
type answerKind int

const (
	inEnvelope answerKind = iota // JSON, which Accept must allow
	asFile                       // of any type
	asPage                       // as asFile; a failure is a page for a browser that asks for one
)

// keyPerMinute is how often a key may call an endpoint that has a limit of its own (specification, Limits).
const keyPerMinute = 10

// timeout is how long a request may take.
func (p policy) timeout() time.Duration {
	if p.body.readByHandler() {
		return p.body.most() + analysisPatience
	}
	return p.body.most() + requestTimeout
}

// isMessage is true of MCP: what is wrong with the body is found after it is paid for.
func (p policy) isMessage() bool { return p.body == bodyMessage }

// handler answers a request with the data of its answer, or with a response where there is more to say.
type handler func(r *http.Request) (any, error)

// endpoint is a method on a path.
type endpoint struct {
	method, template string
	handle           handler
	policy
}

// route is all the endpoints of a path.
type route struct {
	template string
	policy   policy // of one of them; caller, answer and anyOrigin are those of all
	methods  map[string]endpoint
}

// routesOf puts the endpoints of the same path together, in the order in which paths come first.
func routesOf(endpoints []endpoint) (routes []route) {
	for _, e := range endpoints {
		i := slices.IndexFunc(routes, func(rt route) bool { return rt.template == e.template })
		if i < 0 {
			i, routes = len(routes), append(routes, route{e.template, e.policy, map[string]endpoint{}})
		}
		routes[i].methods[e.method] = e
	}
	return routes
}

// pathGroups are the beginnings of paths that have a router of their own. The first that a template begins with is its.
var pathGroups = []string{
	"/api/v1/integrity", "/api/v1", "/api/public", web.DeveloperRoot, "/en" + web.DeveloperRoot, web.ConsoleRoot,
	"/en" + web.ConsoleRoot,
}

// newRouter mounts all routes. gorilla/mux tries one template after another, so a request is compared with the templates
// of its group alone.
func newRouter(routes []route, serve func(route) http.Handler) *mux.Router {
	router := mux.NewRouter().SkipClean(true)
	router.NotFoundHandler = serve(route{template: unknownRoute})
	groups := map[string]*mux.Router{"": router}
	for _, rt := range routes {
		prefix := ""
		for _, p := range pathGroups {
			if prefix == "" && (rt.template == p || strings.HasPrefix(rt.template, p+"/")) {
				prefix = p
			}
		}
		if groups[prefix] == nil {
			groups[prefix] = router.PathPrefix(prefix).Subrouter()
		}
		groups[prefix].Handle(strings.TrimPrefix(rt.template, prefix), serve(rt))
	}
	return router
}

// variable returns the value of a variable in the path's template.
func variable(r *http.Request, name string) string { return mux.Vars(r)[name] }

// timeout is how long a request of the route may take.
func (rt route) timeout() time.Duration {
	most := requestTimeout
	for _, e := range rt.methods {
		most = max(most, e.timeout())
	}
	return most
}

// allow lists the methods of a route for the Allow header.
func (rt route) allow() string {
	methods := slices.Collect(maps.Keys(rt.methods))
	if _, ok := rt.methods[http.MethodGet]; ok {
		methods = append(methods, http.MethodHead)
	}
	if rt.policy.anyOrigin {
		methods = append(methods, http.MethodOptions)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}
