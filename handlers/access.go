package handlers

import (
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/projections"
)

// authenticate finds who stands behind the key and counts the request. Nothing
// about a key is remembered from one request to the next.
func (s *server) authenticate(r *http.Request, rt route) error {
	c := callOf(r)
	text, ok := bearerText(r.Header)
	if ok && s.challenged(rt) && !domain.HasAPIKeyForm(text) {
		return s.authenticateToken(r, text)
	}
	key, secret, formed := domain.ParseAPIKey(text)
	if !ok || !formed {
		return s.refuseKey(r, projections.InvalidKey())
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

// refuseKey counts a credential that nobody may act with against the caller's address.
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
