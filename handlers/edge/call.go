package edge

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

// Call is the state of the request in progress: where it came from, who acts, what it carries, and what happens to it.
type Call struct {
	RequestID string
	Template  string // of the route
	Method    string
	Path      string
	Start     time.Time // everything about the request is decided as of this moment
	client    string    // product that the request names, or empty
	repeated  []string  // the values of idempotencyHeader
	languages []string  // the values of Accept-Language

	Decision
	Content

	Limits  []*LimitState // to show in the answer
	Written func()        // called after the answer has been written; may be nil
	reached int64         // the organization's sequence after what the request has written
	over    []func()      // called after the handler has returned
	// challenged reports whether a refusal says how to get a token.
	challenged bool
	cutOff     bool // the answer was not written to its end
	// failedItems counts failures inside the answer, apart from its own status: items of a batch, calls of MCP tools.
	failedItems map[domain.Code]int
}

// Content is the body of a request.
type Content struct {
	Body       []byte
	ReceivedAt time.Time  // when the body was read
	Arrived    bool       // the whole body has been read
	Unread     error      // why an MCP message has no body
	form       url.Values // of a body that is a form
	unwanted   io.Reader  // the body, to be skipped if it was not read
	arriving   *pacedBody // nil if no body was read
	Meter      strictjson.Meter
}

// Language returns the language that the caller of the API prefers: English unless Accept-Language says otherwise.
func (c *Call) Language() evidence.Language { return PreferredLanguage(c.languages, evidence.English) }

// Form returns the fields of a form that the request has sent.
func Form(r *http.Request) url.Values { return CallOf(r).form }

// Enforce adds a limit to the answer, and refuses the request if it exceeds the limit.
func (c *Call) Enforce(l *LimitState) error {
	c.Limits = append(c.Limits, l)
	return l.refusal()
}

// idempotencyHeader is defined in draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey returns the request's key, or an empty string if it has none.
func (c *Call) IdempotencyKey() (string, error) {
	if len(c.repeated) == 0 {
		return "", nil
	}
	key := c.repeated[0]
	unseen := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if len(c.repeated) != 1 || len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, unseen) {
		return "", domain.InvalidMember(
			"", strictjson.CodeFormat, idempotencyHeader+" must be one value of 1 to 255 visible ASCII characters",
		)
	}
	return key, nil
}

type callKey struct{}

// CallOf returns the state of a request.
func CallOf(r *http.Request) *Call { return CallIn(r.Context()) }

// CallIn returns the state of the request that ctx belongs to.
func CallIn(ctx context.Context) *Call { return ctx.Value(callKey{}).(*Call) }

// Origin returns the origin of commands that the request sends.
func Origin(r *http.Request) domain.Origin { return CallOf(r).Origin() }

func (c *Call) Origin() domain.Origin {
	o := domain.Origin{
		Organization: c.Access.Organization, Actor: c.Access.Actor(), Link: c.Access.Link, Console: c.Access.Console,
		Scope: c.Scope, RequestID: c.RequestID,
	}
	if o.Spent = c.spent; c.standing != judged {
		o.Minute = c.Start.Unix() / 60
	}
	return o
}
