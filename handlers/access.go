package handlers

import (
	"net/http"
	"strings"

	"integrityledger/domain"
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
		return s.refuseKey(r, domain.KeyRefused)
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
