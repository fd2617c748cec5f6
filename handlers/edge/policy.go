package edge

import (
	"net/http"
	"time"

	"integrityledger/domain"
)

// Policy states, in one value, all that the middleware does before and after the handler of an endpoint.
type Policy struct {
	Caller Caller
	Scope  domain.Scope // of a key or token
	// Bucket is the limit of a client address that counts the request: Minute, Pages or none. A key shares the
	// limit of its organization besides.
	Bucket string
	// KeyLimit names a further limit, of keyPerMinute for every key; empty means none.
	KeyLimit string
	// Monthly takes one of the organization's requests of the month.
	Monthly bool
	Body    BodyRule
	// NoQuery refuses any query parameter. Otherwise the handler reads the query, or ignores it.
	NoQuery bool
	Answer  AnswerKind
	// AnyOrigin lets pages of every origin read the answer (contract section 4.2).
	AnyOrigin bool
	// Replica lets a replica answer (readAfterHeader). The endpoint only reads.
	Replica bool
	// Queues is true of endpoints that write without the ledger, so that no group judges the actor.
	Queues bool
	// Foreign answers a request that a page of another site has made, before anything is counted. Nil: nobody asks.
	Foreign func(*http.Request) *Response
	// Enter takes the checks of the endpoint's own face, once the limits are counted. The request that it returns goes
	// on, unless there is an answer. It may be nil.
	Enter func(r *http.Request, p Policy) (with *http.Request, answer *Response, err error)
	// Compressed answers are compressed where the caller accepts it: they hold nothing secret beside what a stranger
	// could choose (contract).
	Compressed bool
	// Unattended is true of what a page asks by itself, perhaps with nobody there: it is no use of the session.
	Unattended bool
	// Judged is true of endpoints whose one command has its actor judged, and the request counted, by its group.
	Judged bool
	// TakesAway is true of endpoints whose one command may take something away (domain.TakesAway): such a command is
	// executed after the organization's minute is used up, too.
	TakesAway bool
}

// Caller says who may call.
type Caller int

const (
	WithKey        Caller = iota // an API key
	WithKeyOrToken               // an API key, or an access token while OAuth is configured
	Anyone                       // also with a credential that the handler itself reads
	WithSession                  // the cookie of a session of the console, and no other credential
)

// withCredential is true of callers that authenticate with each request, as programs do.
func (c Caller) withCredential() bool { return c == WithKey || c == WithKeyOrToken }

// AnyScope is of endpoints that every active key may call.
const AnyScope domain.Scope = ""

// AnswerKind is what the handler answers.
type AnswerKind int

const (
	InEnvelope AnswerKind = iota // JSON, which Accept must allow
	AsFile                       // of any type
	AsPage                       // as AsFile; a failure is a page for a browser that asks for one
)

// keyPerMinute is how often a key may call an endpoint that has a limit of its own (specification, Limits).
const keyPerMinute = 10

// timeout is how long a request may take.
func (p Policy) timeout() time.Duration {
	if p.Body.ReadByHandler() {
		return p.Body.most() + AnalysisPatience
	}
	return p.Body.most() + RequestTimeout
}

// IsMessage is true of MCP: what is wrong with the body is found after it is paid for.
func (p Policy) IsMessage() bool { return p.Body == BodyMessage }

// Handler answers a request with the data of its answer, or with a Response that also sets a status or headers.
type Handler func(r *http.Request) (any, error)

// Endpoint is a method on a path.
type Endpoint struct {
	Method, Template string
	Handle           Handler
	Policy
}

// Method makes an Endpoint of a path, its handler and its policy.
type Method func(template string, handle Handler, p Policy) Endpoint

// Get makes an endpoint for GET, which also answers HEAD.
func Get(template string, handle Handler, p Policy) Endpoint {
	return Endpoint{http.MethodGet, template, handle, p}
}

// Post makes an endpoint for POST.
func Post(template string, handle Handler, p Policy) Endpoint {
	return Endpoint{http.MethodPost, template, handle, p}
}

// Patch makes an endpoint for PATCH.
func Patch(template string, handle Handler, p Policy) Endpoint {
	return Endpoint{http.MethodPatch, template, handle, p}
}

// Delete makes an endpoint for DELETE.
func Delete(template string, handle Handler, p Policy) Endpoint {
	return Endpoint{http.MethodDelete, template, handle, p}
}
