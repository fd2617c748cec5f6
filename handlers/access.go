package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// authenticate finds the organization, member and key of the credential, and counts the request. Nothing about a key is
// remembered from one request to the next.
func (s *server) authenticate(r *http.Request, p policy) error {
	c := callOf(r)
	text, ok := bearerText(r.Header)
	if ok && s.challenged(p) && !domain.HasAPIKeyForm(text) {
		return s.authenticateToken(r, text)
	}
	key, secret, formed := domain.ParseAPIKey(text)
	if !ok || !formed {
		return s.refuseKey(r, domain.ErrKeyRefused)
	}
	access, err := s.Store.Authenticate(r.Context(), key, secret, s.clientAddress(r), c.start)
	if err != nil {
		return s.refuseKey(r, err)
	}
	c.access, c.secret = access, secret
	if s.KeyUsed != nil {
		s.KeyUsed(key, c.start)
	}
	return c.held(newLimitState(minute, access.PerMinute, access.UsedMinute, c.start))
}

// judgeAgain looks at the key of a request that has waited, and takes no part of any limit. What the ledger writes is
// judged by the group; this is for what is answered or queued without it.
func (s *server) judgeAgain(r *http.Request) error {
	c := callOf(r)
	access, err := s.Store.Reauthenticate(r.Context(), c.access.Key, c.secret, s.clientAddress(r), s.Now())
	if err != nil || c.scope == anyScope {
		return err
	}
	return access.Authorize(c.scope)
}

// refuseKey counts a refused credential against the caller's address.
func (s *server) refuseKey(r *http.Request, err error) error {
	if refused := refusal(err); refused == nil || refused.Code != domain.InvalidKey && refused.Code != domain.IdentityNotLinked {
		return err
	}
	c := callOf(r)
	if limit := s.refused.count(s.clientAddress(r), c.start); limit.used > limit.most {
		return c.held(limit)
	}
	return err
}

// bearerText reads the one Authorization header (RFC 6750, section 2.1).
func bearerText(h http.Header) (text string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	text = strings.TrimSpace(token)
	return text, found && strings.EqualFold(scheme, "Bearer") && text != ""
}

// ordinaryMCPRoute is the one route that takes access tokens beside API keys (specification, Authentication 10).
const ordinaryMCPRoute = "/api/v1/mcp"

// OAuthAudience is the resource that access tokens are for.
func OAuthAudience(baseURL string) string { return strings.TrimRight(baseURL, "/") + ordinaryMCPRoute }

// OAuthRedirect is where a person comes back to after signing in.
func OAuthRedirect(baseURL string) string { return strings.TrimRight(baseURL, "/") + signedInRoute }

const resourceMetadataRoute = "/.well-known/oauth-protected-resource" + ordinaryMCPRoute

// resourceMetadata tells clients where to get tokens (RFC 9728). It stands at the path of the ordinary endpoint alone:
// at the root it would also be taken for that of the integrity endpoint, which takes keys only.
func (s *server) resourceMetadata(r *http.Request) (any, error) {
	raw, err := encode(wire.ProtectedResource{
		Resource: s.OAuth.Audience, AuthorizationServers: []string{s.OAuth.Issuer}, ScopesSupported: domain.OAuthScopes(),
		BearerMethods: []string{"header"}, ResourceName: "Integrity Ledger",
	})
	return cacheable(r, raw), err
}

// challenged is true of requests whose refusals tell where to get a token.
func (s *server) challenged(p policy) bool { return s.OAuth != nil && p.caller == withKeyOrToken }

// challenge is WWW-Authenticate of a refusal (RFC 6750, section 3; RFC 9728, section 5.1).
func (s *server) challenge(code domain.Code, presented bool) string {
	scopes := strings.Trim(fmt.Sprint(domain.OAuthScopes()), "[]")
	text := `Bearer resource_metadata="` + s.BaseURL + resourceMetadataRoute + `", scope="` + scopes + `"`
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
func (s *server) authenticateToken(r *http.Request, raw string) error {
	c := callOf(r)
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		s.Log.Debug("an access token was not accepted", "requestId", c.requestID, "error", err)
		return s.refuseKey(r, err)
	}
	access, err := s.Store.AuthenticateSubject(r.Context(), s.oauthSubject(token.Subject), c.start)
	if err != nil {
		return s.refuseKey(r, err)
	}
	access.Scopes = slices.DeleteFunc(slices.Clone(access.Scopes), func(scope domain.Scope) bool { return !slices.Contains(token.Scopes, string(scope)) })
	c.access = access
	if err := c.held(newLimitState(minute, access.PerMinute, access.UsedMinute, c.start)); err != nil {
		return err
	}
	if len(access.Scopes) == 0 {
		return domain.Refuse(domain.MissingScope, "No scope is common to this token, the consent and the role of the member.")
	}
	return nil
}

// oauthSubject stands for a subject of the provider.
func (s *server) oauthSubject(subject string) domain.OAuthSubject {
	return domain.NewOAuthSubject(s.Installation.Secret, s.OAuth.Issuer, subject)
}
