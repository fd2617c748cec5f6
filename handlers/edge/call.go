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
	"integrityledger/eventstore"
	"integrityledger/projections/session"
)

// Held puts a limit on the answer and refuses a request that goes beyond it.
func (c *Call) Held(l *LimitState) error {
	c.Limits = append(c.Limits, l)
	return l.refusal()
}

// Form is the body of a form.
func Form(r *http.Request) url.Values { return CallOf(r).form }

// Call is what is known about the request under way.
type Call struct {
	RequestID  string
	client     string // that the request names: a product, or empty
	Template   string // of the route
	Method     string
	Path       string
	repeated   []string  // the values of idempotencyHeader
	Start      time.Time // the moment at which everything about the request is decided
	Access     domain.Access
	presumed   bool         // access is remembered of an earlier request, and nobody has judged it yet
	counted    bool         // by a group that may not have judged the caller
	Scope      domain.Scope // that the action under way needs; of an MCP request, the tool's
	caller     callerName   // to look the key up again after a wait
	Body       []byte
	form       url.Values // of the body, where that is a form
	Unread     error      // of an MCP message: why there is no body
	ReceivedAt time.Time  // when the body was read
	Arrived    bool       // the whole body has
	unwanted   io.Reader  // the body, where it is passed over
	arriving   *pacedBody // nil: no body was read
	Limits     []*LimitState
	Spent      *domain.Error    // the minute's refusal, of a request that may still take something away
	TookAway   bool             // it did
	reached    int64            // the organization's sequence after what the request has written
	over       []func()         // when the handler has returned
	Written    func()           // when the answer is written; may be nil
	challenged bool             // a refusal tells where to get a token
	Session    *session.Session // of the console; nil elsewhere
	cutOff     bool             // the answer ends before its end
	Meter      strictjson.Meter
	// failedItems counts failures that the answer holds beside its own status: items of a batch, calls of MCP tools.
	failedItems map[domain.Code]int
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
		return "", InvalidField(
			"", strictjson.CodeFormat, idempotencyHeader+" must be one value of 1 to 255 visible ASCII characters",
		)
	}
	return key, nil
}

type callKey struct{}

// Reach takes in what a group says besides its decision: the organization's sequence, and what became of a caller that
// was presumed.
func (s *Edge) Reach(c *Call, answer eventstore.Answer) {
	c.reached = max(c.reached, answer.Sequence)
	c.counted = answer.Counted
	if c.presumed && answer.Used > 0 {
		c.presumed = false
		s.accepted(c, answer.Used, answer.Most)
	}
}

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
	if o.Spent = c.Spent; c.presumed {
		o.Minute = c.Start.Unix() / 60
	}
	return o
}
