package edge

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/session"
)

// Decision is who acts in a request, on whose behalf, and whether it may. It is made once: decide makes it before the
// request is taken in; of a caller who is remembered, the group of its command has the last word (Reach), or settle
// where no group had one.
type Decision struct {
	Access  domain.Access
	Scope   domain.Scope     // that the action under way needs; of an MCP request, the tool's
	Session *session.Session // of the console; nil elsewhere

	name     callerName // the credential, to look it up again after a wait
	standing standing
	spent    *domain.Error // the minute's refusal, of a request that may still take something away
	tookAway bool          // it did
}

// standing is how far the caller of a request has been judged.
type standing int

const (
	judged     standing = iota // or nobody to be judged
	remembered                 // of an earlier request with the same credential
	counted                    // remembered; a group has counted the request, perhaps without judging the caller
)

// decide finds who acts, and judges whether it may. A caller of an endpoint that is Judged is taken for the one that
// the same credential was before, so that the request needs no statement before its group's.
func (s *Identity) decide(r *http.Request, e Endpoint) error {
	if e.Judged && s.remember(r, e.Policy) {
		return nil
	}
	return s.admit(r, e.Policy)
}

// remember is true where the credential is known. Such a request may cost a signature and a place in the queue before
// it is refused; so one that would be refused as far as is known, or comes in a minute that is used up, is not taken
// for a known one.
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

// admit takes the checks of the caller, in the order of contract section 2: key, rate, scope, role, request of the
// month.
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
		if err := c.Held(NewLimitState(
			p.KeyLimit, "This key may send %d of these requests a minute, a limit of its own beside the organization's",
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

// minuteSpent takes in a request that came after the organization's minute was used up, and refuses it unless it may
// take something away. It counts as a refusal against the caller's address until it has done so: what is tried without
// end takes nothing away.
func (s *Identity) minuteSpent(r *http.Request, p Policy) error {
	c := CallOf(r)
	err := c.Limits[len(c.Limits)-1].refusal()
	if !p.TakesAway {
		return err
	}
	if limit := s.refused.Count(s.ClientAddress(r), c.Start); limit.Used > limit.Most {
		return err
	}
	c.spent = Refusal(err)
	return nil
}

// Spent is the refusal of a request that came after its organization's minute was used up, and was taken in because it
// may take something away. It is nil of any other.
func (d *Decision) Spent() error {
	if d.spent == nil {
		return nil
	}
	return d.spent
}

// Room says whether n commands of the request fit into its organization's minute. Those of the console are counted
// here, beside the requests with a key, which were counted when they came.
func (s *Identity) Room(ctx context.Context, c *Call, n int) error {
	if !c.Access.Console {
		return c.Spent()
	}
	return s.CountInMinute(ctx, c, n)
}

// CountInMinute counts n more requests in the organization's minute, and refuses them when they do not fit.
func (s *Identity) CountInMinute(ctx context.Context, c *Call, n int) error {
	o := c.Access.Organization
	used, err := s.Store.CountMinute(ctx, o.Shard(), o, n, c.Start)
	if err != nil {
		return err
	}
	return c.Held(NewLimitState(Minute, domain.OrganizationMinute, c.Access.PerMinute, used, c.Start))
}

// TakeOfMonth takes n of the organization's requests of the month, or refuses when so many are not left.
func (s *Identity) TakeOfMonth(ctx context.Context, c *Call, n int) error {
	return s.Store.TakeRequests(ctx, c.Access, n, c.Start)
}

// Reach takes in what a group says besides its decision: the organization's sequence, and what became of a caller who
// was remembered.
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

// settle has the last word on a request whose handler has returned. A remembered caller whom no group has judged is
// judged now. A request that came after its minute was used up gets the minute's refusal, unless it took something away
// or the service failed on it.
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

// judgeLate takes the checks of a remembered caller whom no group has judged. What a group has counted is perhaps
// committed, so that nothing but a refused key changes the answer then.
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

// JudgeAgain looks at the key of a request that has waited, or at the session, which another role of its member ends
// too, and takes no part of any limit. What the ledger writes is judged by the group; this is for what is answered or
// queued without it, and for bodies that have travelled for long.
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

// reauthenticate looks the request's credential up again, and counts nothing.
func (s *Identity) reauthenticate(ctx context.Context, c *Call, at time.Time) (domain.Access, error) {
	return s.Store.Reauthenticate(ctx, c.name.key, c.name.secret, c.name.client, at)
}
