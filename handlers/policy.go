package handlers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
)

// policy states, in one value, all that the middleware does before and after the handler of an endpoint.
type policy struct {
	caller caller
	scope  domain.Scope // of a key or token
	// bucket is the limit of a client address that counts the request. A key has its own limit of the minute besides.
	bucket bucket
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
}

// caller says who may call.
type caller int

const (
	withKey        caller = iota // an API key
	withKeyOrToken               // an API key, or an access token while OAuth is configured
	anyone                       // also with a credential that the handler itself reads
)

// anyScope is of endpoints that every active key may call.
const anyScope domain.Scope = ""

// bucket is one of the limits of a client address. A visit to a page takes several requests and one comparison, and a
// whole office may share an address, so that pages have a limit of their own.
type bucket int

const (
	noBucket         bucket = iota
	pageBucket              // pages, documents and downloads
	comparisonBucket        // comparisons, and what else is expensive
)

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
