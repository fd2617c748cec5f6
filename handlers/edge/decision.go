package edge

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// Decision says who acts in a request, for which organization, and whether the caller is authorized. decide makes it
// before the request is read. For a cached caller the group of its command makes the final decision (Reach), or settle
// does if no group has.
type Decision struct {
	Access  domain.Access
	Scope   domain.Scope     // that the action needs; in an MCP request, the tool's
	Session *session.Session // in the console; otherwise nil

	name     callerName // the credential, to be looked up again after a wait
	standing standing
	spent    *domain.Error // the refusal for a used-up minute, while the request may still take something away
	tookAway bool          // the request did so
}

// standing tells how far the caller of a request has been judged.
type standing int

const (
	judged     standing = iota // or there is no caller to judge
	remembered                 // in the cache, after an earlier request with the same credential
	counted                    // remembered, and counted by a group, which perhaps did not judge the caller
)

// decide identifies the caller and checks that it is authorized. For an endpoint that is Judged it reuses the access
// that this credential had on an earlier request, so the request needs no statement before its group's or its
// question's. A replica must know how far the organization has come before it is asked.
func (s *Identity) decide(r *http.Request, e Endpoint) error {
	if e.Judged && (!e.Replica || s.Store.Replica == nil) && s.remember(r, e.Policy) {
		return nil
	}
	return s.admit(r, e.Policy)
}

// remember reports whether the credential is in the cache. A remembered request may cost a signature and a place in the
// queue before it is refused. Requests that would be refused as far as the cache knows, or that come in a minute that
// is used up, are therefore treated as unknown.
func (s *Identity) remember(r *http.Request, p Policy) bool {
	c := CallOf(r)
	name, formed := s.callerOf(r)
	if !formed {
		return false
	}
	access, known := s.callers.known.Get(name)
	if full, _ := s.callers.full.Get(access.Organization); !known || full == c.Start.Unix()/60 ||
		Allows(access, p.Scope) != nil {
		return false
	}
	c.Decision = Decision{Access: access, Scope: p.Scope, name: name, standing: remembered}
	return true
}

// admit checks the caller in the order of contract section 2: key, rate, scope, role, monthly requests.
func (s *Identity) admit(r *http.Request, p Policy) error {
	if err := s.limitAddress(r, p.Bucket); err != nil || !p.Caller.withCredential() {
		return err
	}
	if err := s.authenticate(r, p); err != nil {
		return err
	}
	c := CallOf(r)
	c.Scope = p.Scope
	if p.KeyLimit != "" {
		used, err := s.Store.CountMinute(r.Context(), c.Access.Organization.Shard(), c.Access.Credential(), 1, c.Start)
		if err != nil {
			return err
		}
		if err := c.Enforce(NewLimitState(
			p.KeyLimit, "This key may send %d of these requests a minute, in addition to the organization's limit",
			keyPerMinute, used, c.Start,
		)); err != nil {
			return err
		}
	}
	if err := Allows(c.Access, p.Scope); err != nil {
		return err
	}
	if p.Monthly {
		return s.TakeOfMonth(r.Context(), c, 1)
	}
	return nil
}

// minuteSpent refuses a request that came after the organization's minute was used up, unless it may take something
// away. Such a request counts as a refusal against the client address until it has taken something away, so that
// endless attempts that take nothing away are refused too.
func (s *Identity) minuteSpent(r *http.Request, p Policy) error {
	c := CallOf(r)
	err := c.Limits[len(c.Limits)-1].refusal()
	if !p.TakesAway {
		return err
	}
	if limit := s.refused.Count(s.ClientAddress(r), c.Start); limit.Used > limit.Max {
		return err
	}
	c.spent = Refusal(err)
	return nil
}

// Spent returns the refusal of a request that came after its organization's minute was used up and was let through
// because it may take something away. It is nil for all other requests.
func (d *Decision) Spent() error {
	if d.spent == nil {
		return nil
	}
	return d.spent
}

// Room checks that n commands of the request fit into its organization's minute. Commands of the console are counted
// here; requests with a key were counted on arrival.
func (s *Identity) Room(ctx context.Context, c *Call, n int) error {
	if !c.Access.Console {
		return c.Spent()
	}
	return s.CountInMinute(ctx, c, n)
}

// CountInMinute counts n more requests in the organization's minute, and refuses them if they do not fit.
func (s *Identity) CountInMinute(ctx context.Context, c *Call, n int) error {
	o := c.Access.Organization
	used, err := s.Store.CountMinute(ctx, o.Shard(), o, n, c.Start)
	if err != nil {
		return err
	}
	return c.Enforce(NewLimitState(Minute, domain.OrganizationMinute, c.Access.PerMinute, used, c.Start))
}

// TakeOfMonth takes n of the organization's monthly requests, or refuses if fewer are left.
func (s *Identity) TakeOfMonth(ctx context.Context, c *Call, n int) error {
	return s.Store.TakeRequests(ctx, c.Access, n, c.Start)
}

// Reach records what a group answers besides its decision: the organization's sequence, and its judgement of a
// remembered caller.
func (s *Identity) Reach(c *Call, answer eventstore.Answer) {
	c.reached = max(c.reached, answer.Sequence)
	c.tookAway = c.spent != nil && answer.Err == nil
	switch {
	case c.standing == judged:
	case answer.Used > 0:
		c.standing = judged
		s.accepted(c, answer.Used, answer.Most)
	case answer.Counted:
		c.standing = counted
	}
}

// Asked asks a question for the request's caller. A remembered caller is judged in the question's round trip. If it may
// not act, nothing is answered.
func Asked[R query.Asker, T any](s *Identity, c *Call, ask func(R) (T, error)) (answer T, err error) {
	if c.standing != remembered {
		return ask(R(s.Store.RecordReader))
	}
	var none T
	reader, j := s.Store.Judging(c.name.key, c.name.secret, c.name.client, c.Start)
	answer, err = ask(R(reader))
	access, given, failed := j.Access()
	if errors.Is(failed, domain.ErrKeyRefused) {
		return none, cmp.Or(err, errUnjudged) // settle refuses
	}
	c.standing = judged // and counted, if the database has answered
	if !given || failed != nil {
		return none, cmp.Or(err, failed)
	}
	c.Access = access
	s.accepted(c, access.UsedMinute, access.PerMinute)
	if access.UsedMinute > access.PerMinute {
		return none, c.Limits[len(c.Limits)-1].refusal()
	}
	if err := Allows(access, c.Scope); err != nil {
		s.Forget(c)
		return none, err
	}
	return answer, err
}

var errUnjudged error = domain.Unavailable("The caller's rights have just changed; send the request again.")

// settle makes the final decision on a request whose handler has returned. It judges a remembered caller that no group
// has judged. A request that came after its minute was used up gets the minute's refusal, unless it took something away
// or the service failed.
func (s *Identity) settle(r *http.Request, p Policy, resp Response, err error) (Response, error) {
	if refused := s.judgeLate(r, p); refused != nil {
		return Response{}, refused
	}
	c := CallOf(r)
	if c.tookAway {
		s.refused.giveBack(s.ClientAddress(r), c.Start)
		return resp, err
	}
	if refused := Refusal(err); c.spent != nil && refused != nil &&
		s.Codes[refused.Code].Status < http.StatusInternalServerError {
		return Response{}, c.spent
	}
	return resp, err
}

// judgeLate checks a remembered caller that no group has judged. If a group has counted the request, its command may be
// committed, so only a refused key changes the answer.
func (s *Identity) judgeLate(r *http.Request, p Policy) error {
	r = r.WithContext(context.WithoutCancel(r.Context())) // the caller may have gone away
	c := CallOf(r)
	switch c.standing {
	case judged:
	case remembered:
		return s.admit(r, p)
	case counted:
		o := c.Access.Organization
		access, err := s.reauthenticate(r.Context(), c, c.Start)
		if err == nil {
			access.UsedMinute, err = s.Store.CountMinute(r.Context(), o.Shard(), o, 0, c.Start)
		}
		err = s.identify(r, c.name, access, err)
		if err == nil {
			s.callers.known.Add(c.name, access)
		}
		if refused := Refusal(err); refused != nil && refused.Code != domain.TemporarilyUnavailable {
			return err
		}
	}
	return nil
}

// JudgeAgain checks the key or the session of a request that has waited, without counting it against any limit. A
// session also ends when its member's role changes. Groups judge the caller of every write to the ledger; JudgeAgain is
// for answers and queued work that need no group, and for bodies that took long to arrive.
func (s *Identity) JudgeAgain(ctx context.Context) error {
	c := CallIn(ctx)
	if c.Session != nil {
		sessions, err := s.Sessions.SessionsOf(ctx, c.Session.Organization, c.Session.Member, s.Now())
		if err == nil && !slices.ContainsFunc(sessions, func(one session.Session) bool { return one.ID == c.Session.ID }) {
			err = ErrSignedOut
		}
		return err
	}
	access, err := s.reauthenticate(ctx, c, s.Now())
	return cmp.Or(err, Allows(access, c.Scope))
}

// reauthenticate looks up the request's credential again without counting anything.
func (s *Identity) reauthenticate(ctx context.Context, c *Call, at time.Time) (domain.Access, error) {
	return s.Store.Reauthenticate(ctx, c.name.key, c.name.secret, c.name.client, at)
}
