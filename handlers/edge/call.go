package edge

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

// Call is what is known about the request under way: how it came, who acts in it, what it carries, and what becomes of
// it.
type Call struct {
	RequestID string
	Template  string // of the route
	Method    string
	Path      string
	Start     time.Time // the moment at which everything about the request is decided
	client    string    // that the request names: a product, or empty
	repeated  []string  // the values of idempotencyHeader
	languages []string  // the values of Accept-Language

	Decision
	Content

	Limits  []*LimitState // that the answer shows
	Written func()        // when the answer is written; may be nil
	reached int64         // the organization's sequence after what the request has written
	over    []func()      // when the handler has returned
	// challenged is true where a refusal tells how to get a token.
	challenged bool
	cutOff     bool // the answer ends before its end
	// failedItems counts failures that the answer holds beside its own status: items of a batch, calls of MCP tools.
	failedItems map[domain.Code]int
}

// Content is what a request carries.
type Content struct {
	Body       []byte
	ReceivedAt time.Time  // when the body was read
	Arrived    bool       // the whole body has
	Unread     error      // of an MCP message: why there is no body
	form       url.Values // of the body, if it is a form
	unwanted   io.Reader  // the body, if it is skipped
	arriving   *pacedBody // nil: no body was read
	Meter      strictjson.Meter
}

// Form is the body of a form.
func Form(r *http.Request) url.Values { return CallOf(r).form }

// Held puts a limit on the answer and refuses a request that goes beyond it.
func (c *Call) Held(l *LimitState) error {
	c.Limits = append(c.Limits, l)
	return l.refusal()
}

// idempotencyHeader is that of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// IdempotencyKey is the one of the request; empty without one.
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

// CallOf is what is known about a request.
func CallOf(r *http.Request) *Call { return CallIn(r.Context()) }

// CallIn is the request under way, which a context of it knows.
func CallIn(ctx context.Context) *Call { return ctx.Value(callKey{}).(*Call) }

// Origin is on whose behalf the request acts.
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
