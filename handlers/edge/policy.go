package edge

import (
	"net/http"
	"time"

	"integrityledger/domain"
)

// Policy states everything that the middleware does before and after the handler of an endpoint.
type Policy struct {
	Caller Caller
	Scope  domain.Scope // that the key or token must have
	// Bucket is the limit by client address that counts the request: Minute, Pages or none. Requests with a key also share
	// the limit of their organization.
	Bucket string
	// KeyLimit names a further limit of keyPerMinute requests for every key; empty means none.
	KeyLimit string
	// Monthly consumes one of the organization's monthly requests.
	Monthly bool
	Body    BodyRule
	// NoQuery refuses any query parameter. Otherwise the handler reads the query, or ignores it.
	NoQuery bool
	Answer  AnswerKind
	// AnyOrigin lets pages of every origin read the answer (contract section 4.2).
	AnyOrigin bool
	// Replica lets a replica answer (readAfterHeader). The endpoint only reads.
	Replica bool
	// Queues marks endpoints that write without the ledger, so that no group judges the caller.
	Queues bool
	// Foreign answers a request made by a page of another site, before anything is counted. Nil means that such requests
	// are treated like any other.
	Foreign func(*http.Request) *Response
	// Enter makes the checks of the endpoint's own face after the limits have been counted. The handler gets the request
	// that Enter returns, unless Enter returns an answer. It may be nil.
	Enter func(r *http.Request, p Policy) (with *http.Request, answer *Response, err error)
	// Compressed answers are compressed if the caller accepts it: they contain no secret next to text that a stranger
	// could choose (contract).
	Compressed bool
	// Probe marks requests that ask after the process's health every few seconds. They are logged at debug unless the
	// answer says that something is wrong.
	Probe bool
	// Unattended marks requests that a page sends by itself, perhaps with no person present: they do not extend the
	// session.
	Unattended bool
	// Judged marks endpoints with a single command, whose group judges the caller and counts the request, and endpoints
	// with a question that does so (Asked).
	Judged bool
	// TakesAway marks endpoints with a single command that may take something away (domain.TakesAway): such a command is
	// executed even after the organization's minute is used up.
	TakesAway bool
}

// Caller says who may call an endpoint.
type Caller int

const (
	WithKey        Caller = iota // an API key
	WithKeyOrToken               // an API key, or an access token while OAuth is configured
	Anyone                       // a credential, if any, is read by the handler itself
	WithSession                  // the cookie of a console session, and no other credential
)

// withCredential reports whether callers authenticate with each request, as programs do.
func (c Caller) withCredential() bool { return c == WithKey || c == WithKeyOrToken }

// AnyScope marks endpoints that every active key may call.
const AnyScope domain.Scope = ""

// AnswerKind is the kind of answer that the handler gives.
type AnswerKind int

const (
	InEnvelope AnswerKind = iota // JSON, which Accept must allow
	AsFile                       // any media type
	AsPage                       // like AsFile, but a browser that asks for a page gets failures as pages
)

// keyPerMinute is how often a key may call an endpoint that has a KeyLimit (specification, Limits).
const keyPerMinute = 10

// timeout returns how long a request may take.
func (p Policy) timeout() time.Duration {
	if p.Body.ReadByHandler() {
		return p.Body.timeout() + AnalysisPatience
	}
	return p.Body.timeout() + RequestTimeout
}

// IsMessage reports whether the endpoint is MCP: the body of a message is judged after the request has been paid for.
func (p Policy) IsMessage() bool { return p.Body == BodyMessage }

// Handler answers a request with the data of its answer, or with a Response that also sets a status or headers.
type Handler func(r *http.Request) (any, error)

// Endpoint is a method on a path.
type Endpoint struct {
	Method, Template string
	Handle           Handler
	Policy
}

// Method makes an Endpoint from a path, its handler and its policy.
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
