package edge

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"integrityledger/domain"
)

// callers caches the access that recent credentials have. Requests rely only on the parts that never change: the key's
// secret, organization, member, scopes, network, source and version step. Role and plan may have changed since, so they
// only tell whether asking the group is worthwhile. Every request is judged again: whether the caller may act, and
// whether the minute has room (Decision). callers is safe for concurrent use.
type callers struct {
	known *lru.Cache[callerName, domain.Access]
	full  *lru.Cache[domain.OrganizationID, int64] // the latest minute that each organization is known to have used up
}

// callerName is a credential and the client address that it was accepted from.
type callerName struct {
	key    domain.KeyID
	secret [32]byte
	client netip.Addr
}

const maxCallers = 10_000

func newCallers() *callers {
	known, _ := lru.New[callerName, domain.Access](maxCallers) // lru.New fails only for a size below 1
	full, _ := lru.New[domain.OrganizationID, int64](maxCallers)
	return &callers{known, full}
}

// authenticate finds the organization, member and key of the credential, and counts the request.
func (s *Identity) authenticate(r *http.Request, p Policy) error {
	c := CallOf(r)
	text, ok := BearerText(r.Header)
	if ok && s.challenged(p) && !domain.HasAPIKeyForm(text) {
		return s.authenticateToken(r, text)
	}
	name, formed := s.callerOf(r)
	if !formed {
		return s.RefuseKey(r, domain.ErrKeyRefused)
	}
	access, err := s.Store.Authenticate(r.Context(), name.key, name.secret, name.client, c.Start)
	if err := s.identify(r, name, access, err); err != nil {
		return err
	}
	if access.UsedMinute > access.PerMinute {
		return s.minuteSpent(r, p)
	}
	s.callers.known.Add(name, access) // within its limit: one tenant with many addresses could otherwise evict all others
	return nil
}

// callerOf returns the request's API key and client address. formed is false unless the key is well formed.
func (s *Identity) callerOf(r *http.Request) (name callerName, formed bool) {
	text, ok := BearerText(r.Header)
	if !ok {
		return name, false
	}
	name.key, name.secret, formed = domain.ParseAPIKey(text)
	name.client = s.ClientAddress(r)
	return name, formed
}

// identify records the store's answer for a credential whose request has been counted.
func (s *Identity) identify(r *http.Request, name callerName, access domain.Access, err error) error {
	if err != nil {
		s.callers.known.Remove(name)
		return s.RefuseKey(r, err)
	}
	c := CallOf(r)
	c.Access, c.name, c.standing = access, name, judged
	s.accepted(c, access.UsedMinute, access.PerMinute)
	return nil
}

// accepted records a request with a valid credential that was counted in its organization's minute.
func (s *Identity) accepted(c *Call, used, most int) {
	if s.KeyUsed != nil {
		s.KeyUsed(c.Access.Key, c.Start)
	}
	if used >= most {
		s.callers.full.Add(c.Access.Organization, c.Start.Unix()/60)
	}
	c.Limits = append(c.Limits, NewLimitState(Minute, domain.OrganizationMinute, most, used, c.Start))
}

// Forget removes the request's credential from the cache.
func (s *Identity) Forget(c *Call) { s.callers.known.Remove(c.name) }

// Allows checks that the caller has the scope, and the role that the scope needs.
func Allows(a domain.Access, scope domain.Scope) error {
	if scope == AnyScope {
		return nil
	}
	return a.Authorize(scope)
}

// RefuseKey counts a refused credential against the caller's address.
func (s *Identity) RefuseKey(r *http.Request, err error) error {
	if refused := Refusal(err); refused == nil ||
		refused.Code != domain.InvalidKey && refused.Code != domain.IdentityNotLinked {
		return err
	}
	c := CallOf(r)
	limit := s.refused.Count(s.ClientAddress(r), c.Start)
	limited := limit.Used > limit.Max
	s.logRefusal(r, limited)
	if limited {
		return c.Enforce(limit)
	}
	return err
}

// logRefusal logs why an API key was refused, never its secret. The limit of refusals per client address bounds the
// number of statements.
func (s *Identity) logRefusal(r *http.Request, limited bool) {
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

// BearerText returns the token of the Authorization header, which must appear once (RFC 6750, section 2.1).
func BearerText(h http.Header) (text string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	text = strings.TrimSpace(token)
	return text, found && strings.EqualFold(scheme, "Bearer") && text != ""
}

// OrdinaryMCPRoute is the only route that accepts access tokens as well as API keys (specification, Authentication 10).
const OrdinaryMCPRoute = "/api/v1/mcp"

// OAuthAudience returns the resource that access tokens must be issued for.
func OAuthAudience(baseURL string) string { return strings.TrimRight(baseURL, "/") + OrdinaryMCPRoute }

// OAuthRedirect returns the URL to which the provider sends a person back after signing in.
func OAuthRedirect(baseURL string) string { return strings.TrimRight(baseURL, "/") + SignedInRoute }

const ResourceMetadataRoute = "/.well-known/oauth-protected-resource" + OrdinaryMCPRoute

// challenged reports whether a refusal of the request says where to get a token.
func (s *Identity) challenged(p Policy) bool { return s.OAuth != nil && p.Caller == WithKeyOrToken }

// challenge returns the WWW-Authenticate header of a refusal (RFC 6750, section 3; RFC 9728, section 5.1).
func (s *Identity) challenge(code domain.Code, presented bool) string {
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

// authenticateToken finds the identity behind an access token and counts the request. Link, consent, membership and
// role are read anew each time. The caller may do only what the token, the consent and the role all allow.
func (s *Identity) authenticateToken(r *http.Request, raw string) error {
	c := CallOf(r)
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		s.Log.Debug("access token refused", "requestId", c.RequestID, "error", err)
		return s.RefuseKey(r, err)
	}
	access, err := s.Store.AuthenticateSubject(r.Context(), s.OAuthSubject(token.Subject), c.Start)
	if err != nil {
		return s.RefuseKey(r, err)
	}
	access.Scopes = slices.DeleteFunc(slices.Clone(access.Scopes), func(scope domain.Scope) bool {
		return !slices.Contains(token.Scopes, string(scope))
	})
	c.Access = access
	if err := c.Enforce(NewLimitState(
		Minute, domain.OrganizationMinute, access.PerMinute, access.UsedMinute, c.Start,
	)); err != nil {
		return err
	}
	if len(access.Scopes) == 0 {
		return domain.Refuse(domain.MissingScope, "The token, the consent and the member's role have no scope in common.")
	}
	return nil
}

// OAuthSubject returns the pseudonym under which the ledger knows a subject of the provider.
func (s *Identity) OAuthSubject(subject string) domain.OAuthSubject {
	return domain.NewOAuthSubject(s.Installation.Secret, s.OAuth.Issuer, subject)
}

// ErrSignedOut means that the request has no valid session. The answer leads to the page for signing in.
var ErrSignedOut = errors.New("no valid session")

const SignedInRoute = "/oauth/signed-in"

// refusedPerMinute is the number of 401 answers that an address may cause in a minute (contract section 2).
const refusedPerMinute = 60
