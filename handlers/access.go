package handlers

import (
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/projections"
)

// authenticate finds who stands behind the key and counts the request. Nothing
// about a key is remembered from one request to the next.
func (s *server) authenticate(r *http.Request) error {
	c := callOf(r)
	key, secret, ok := bearer(r.Header)
	if !ok {
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

// refuseKey counts an invalid key against the caller's address.
func (s *server) refuseKey(r *http.Request, err error) error {
	if refused := refusal(err); refused == nil || refused.Code != domain.InvalidKey {
		return err
	}
	c := callOf(r)
	if limit := s.refused.count(s.clientAddress(r), c.start); limit.used > limit.most {
		return c.held(limit)
	}
	return err
}

// bearer reads the one Authorization header (RFC 6750, section 2.1).
func bearer(h http.Header) (key domain.KeyID, secret [32]byte, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return key, secret, false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return key, secret, false
	}
	return domain.ParseAPIKey(strings.TrimSpace(token))
}
