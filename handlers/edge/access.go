package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"integrityledger/domain"
	"integrityledger/projections/session"
)

// callers remembers who stands behind the credentials that were used last. What is relied on of that never changes: the
// key's secret, organization, member, scopes, network, source and version step. Role and plan may have changed since,
// and tell only whether to presume the caller. Whether it may act, and whether there is room in the minute, is judged
// anew for each request: by its group where it is presumed, else before the request is taken in. It is safe for
// concurrent use.
type callers struct {
	known *lru.Cache[callerName, domain.Access]
	full  *lru.Cache[domain.OrganizationID, int64] // the last minute that an organization was seen to use up
}

// callerName is a credential and the address that it was good from.
type callerName struct {
	key    domain.KeyID
	secret [32]byte
	client netip.Addr
}

const maxCallers = 10_000

func newCallers() *callers {
	known, _ := lru.New[callerName, domain.Access](maxCallers) // both fail for a size below 1 only
	full, _ := lru.New[domain.OrganizationID, int64](maxCallers)
	return &callers{known, full}
}

// presume takes the caller for the one that the same credential was before, so that the request needs no statement
// before its group's: it may cost a signature and a place in the queue before it is refused. So a request that would be
// refused as far as is known, or comes in a minute that is used up, is not presumed.
func (s *Edge) presume(r *http.Request, p Policy) bool {
	c := CallOf(r)
	text, _ := BearerText(r.Header)
	key, secret, formed := domain.ParseAPIKey(text)
	if !formed {
		return false
	}
	name := callerName{key, secret, s.ClientAddress(r)}
	access, known := s.callers.known.Get(name)
	if full, _ := s.callers.full.Get(access.Organization); !known || full == c.Start.Unix()/60 ||
		Allows(access, p.Scope) != nil {
		return false
	}
	c.Access, c.caller, c.Scope = access, name, p.Scope
	return true
}

// accepted notes a request whose credential was found good and which was counted in its organization's minute.
func (s *Edge) accepted(c *Call, used, most int) {
	if s.KeyUsed != nil {
		s.KeyUsed(c.Access.Key, c.Start)
	}
	if used >= most {
		s.callers.full.Add(c.Access.Organization, c.Start.Unix()/60)
	}
	c.Limits = append(c.Limits, NewLimitState(Minute, domain.OrganizationMinute, most, used, c.Start))
}

// authenticate finds the organization, member and key of the credential, and counts the request.
func (s *Edge) authenticate(r *http.Request, p Policy) error {
	c := CallOf(r)
	text, ok := BearerText(r.Header)
	if ok && s.challenged(p) && !domain.HasAPIKeyForm(text) {
		return s.authenticateToken(r, text)
	}
	key, secret, formed := domain.ParseAPIKey(text)
	if !ok || !formed {
		return s.RefuseKey(r, domain.ErrKeyRefused)
	}
	name, find := callerName{key, secret, s.ClientAddress(r)}, s.Store.Authenticate
	if c.counted {
		find = s.Store.Reauthenticate
	}
	access, err := find(r.Context(), key, secret, name.client, c.Start)
	if err == nil && c.counted {
		access.UsedMinute, err = s.Store.CountMinute(
			r.Context(), access.Organization.Shard(), access.Organization, 0, c.Start,
		)
	}
	if err != nil {
		s.callers.known.Remove(name)
		return s.RefuseKey(r, err)
	}
	c.Access, c.caller = access, name
	s.accepted(c, access.UsedMinute, access.PerMinute)
	if err := c.Limits[len(c.Limits)-1].refusal(); err != nil && !c.counted {
		return s.spent(r, p, err)
	}
	s.callers.known.Add(name, access) // within its limit, or one tenant with many addresses could drive all others out
	return nil
}

// Forget no longer presumes who stands behind the request's credential.
func (s *Edge) Forget(c *Call) { s.callers.known.Remove(c.caller) }

// judgeLate takes the checks of a caller who was presumed, and whom no group has judged. What a group counts is perhaps
// committed, so that nothing but a refused key changes the answer then.
func (s *Edge) judgeLate(r *http.Request, p Policy) error {
	r = r.WithContext(context.WithoutCancel(r.Context())) // the caller may have gone away
	c := CallOf(r)
	if !c.counted {
		return s.admit(r, p)
	}
	err := s.authenticate(r, p)
	if refused := Refusal(err); refused == nil || refused.Code == domain.TemporarilyUnavailable {
		return nil
	}
	return err
}

// JudgeAgain looks at the key of a request that has waited, or at the session, which another role of its member ends
// too, and takes no part of any limit. What the ledger writes is judged by the group; this is for what is answered or
// queued without it, and for bodies that have travelled for long.
func (s *Edge) JudgeAgain(ctx context.Context) error {
	c := CallIn(ctx)
	if c.Session != nil {
		sessions, err := s.Sessions.SessionsOf(ctx, c.Session.Organization, c.Session.Member, s.Now())
		if err == nil && !slices.ContainsFunc(sessions, func(one session.Session) bool { return one.ID == c.Session.ID }) {
			err = ErrSignedOut
		}
		return err
	}
	access, err := s.Store.Reauthenticate(ctx, c.caller.key, c.caller.secret, c.caller.client, s.Now())
	return cmp.Or(err, Allows(access, c.Scope))
}

// Allows judges a scope, and the role that it needs.
func Allows(a domain.Access, scope domain.Scope) error {
	if scope == AnyScope {
		return nil
	}
	return a.Authorize(scope)
}

// spent takes in a request that came after the organization's minute was used up, and refuses it unless it may take
// something away. It counts as a refusal against the caller's address until it has done so: what is tried without end
// takes nothing away.
func (s *Edge) spent(r *http.Request, p Policy, err error) error {
	if !p.TakesAway {
		return err
	}
	c := CallOf(r)
	if limit := s.refused.Count(s.ClientAddress(r), c.Start); limit.Used > limit.Most {
		return err
	}
	c.Spent = Refusal(err)
	return nil
}

// afterSpent gives a request that was taken in by spent the refusal of its minute, unless it took something away or the
// service failed on it.
func (s *Edge) afterSpent(r *http.Request, err error) error {
	c := CallOf(r)
	if c.TookAway {
		s.refused.giveBack(s.ClientAddress(r), c.Start)
		return err
	}
	if refused := Refusal(err); c.Spent != nil && refused != nil &&
		s.Codes[refused.Code].Status < http.StatusInternalServerError {
		return c.Spent
	}
	return err
}

// RefuseKey counts a refused credential against the caller's address.
func (s *Edge) RefuseKey(r *http.Request, err error) error {
	if refused := Refusal(err); refused == nil ||
		refused.Code != domain.InvalidKey && refused.Code != domain.IdentityNotLinked {
		return err
	}
	c := CallOf(r)
	limit := s.refused.Count(s.ClientAddress(r), c.Start)
	limited := limit.Used > limit.Most
	s.logRefusal(r, limited)
	if limited {
		return c.Held(limit)
	}
	return err
}

// logRefusal says why an API key was refused, and never its secret. The limit of the caller's address bounds the
// statements.
func (s *Edge) logRefusal(r *http.Request, limited bool) {
	text, _ := BearerText(r.Header)
	if !domain.HasAPIKeyForm(text) {
		return
	}
	c, reason := CallOf(r), "form or checksum wrong"
	key, secret, formed := domain.ParseAPIKey(text)
	switch {
	case limited:
		reason = "address limited"
	case formed:
		reason = s.Store.WhyRefused(r.Context(), key, secret, s.ClientAddress(r), c.Start)
	}
	s.Log.Info("API key refused", "reason", reason, "key", key.String(), "requestId", c.RequestID)
}

// BearerText reads the one Authorization header (RFC 6750, section 2.1).
func BearerText(h http.Header) (text string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	text = strings.TrimSpace(token)
	return text, found && strings.EqualFold(scheme, "Bearer") && text != ""
}

// OrdinaryMCPRoute is the one route that takes access tokens beside API keys (specification, Authentication 10).
const OrdinaryMCPRoute = "/api/v1/mcp"

// OAuthAudience is the resource that access tokens are for.
func OAuthAudience(baseURL string) string { return strings.TrimRight(baseURL, "/") + OrdinaryMCPRoute }

// OAuthRedirect is where a person comes back to after signing in.
func OAuthRedirect(baseURL string) string { return strings.TrimRight(baseURL, "/") + SignedInRoute }

const ResourceMetadataRoute = "/.well-known/oauth-protected-resource" + OrdinaryMCPRoute

// challenged is true of requests whose refusals tell where to get a token.
func (s *Edge) challenged(p Policy) bool { return s.OAuth != nil && p.Caller == WithKeyOrToken }

// challenge is WWW-Authenticate of a refusal (RFC 6750, section 3; RFC 9728, section 5.1).
func (s *Edge) challenge(code domain.Code, presented bool) string {
	scopes := strings.Trim(fmt.Sprint(domain.OAuthScopes()), "[]")
	text := `Bearer resource_metadata="` + s.BaseURL + ResourceMetadataRoute + `", scope="` + scopes + `"`
	switch {
	case code == domain.InvalidKey && presented:
		text += `, error="invalid_token"`
	case code == domain.MissingScope:
		text += `, error="insufficient_scope"`
	}
	return text
}

// authenticateToken finds who stands behind an access token and counts the request. Link, consent, membership and role
// are those of this moment. What may be done is what the token, the consent and the role all allow.
func (s *Edge) authenticateToken(r *http.Request, raw string) error {
	c := CallOf(r)
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		s.Log.Debug("an access token was not accepted", "requestId", c.RequestID, "error", err)
		return s.RefuseKey(r, err)
	}
	access, err := s.Store.AuthenticateSubject(r.Context(), s.OauthSubject(token.Subject), c.Start)
	if err != nil {
		return s.RefuseKey(r, err)
	}
	access.Scopes = slices.DeleteFunc(slices.Clone(access.Scopes), func(scope domain.Scope) bool {
		return !slices.Contains(token.Scopes, string(scope))
	})
	c.Access = access
	if err := c.Held(NewLimitState(
		Minute, domain.OrganizationMinute, access.PerMinute, access.UsedMinute, c.Start,
	)); err != nil {
		return err
	}
	if len(access.Scopes) == 0 {
		return domain.Refuse(domain.MissingScope, "No scope is common to this token, the consent and the role of the member.")
	}
	return nil
}

// OauthSubject stands for a subject of the provider.
func (s *Edge) OauthSubject(subject string) domain.OAuthSubject {
	return domain.NewOAuthSubject(s.Installation.Secret, s.OAuth.Issuer, subject)
}

// ErrSignedOut is answered with the way to sign in.
var ErrSignedOut = errors.New("nobody has signed in")

const SignedInRoute = "/oauth/signed-in"

// refusedPerMinute is how many 401 an address may have in a minute (contract section 2).
const refusedPerMinute = 60

// CountCommands counts commands of the console in their organization's minute, where requests with a key count too.
func (s *Edge) CountCommands(ctx context.Context, c *Call, n int) error {
	o := c.Access.Organization
	used, err := s.Store.CountMinute(ctx, o.Shard(), o, n, c.Start)
	if err != nil {
		return err
	}
	return c.Held(NewLimitState(Minute, domain.OrganizationMinute, c.Access.PerMinute, used, c.Start))
}
