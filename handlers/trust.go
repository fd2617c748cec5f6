package handlers

import (
	"net/http"

	"integrityledger/domain"
)

// trustedKeys publishes the operator's file as the service knows it. A key from here must be pinned through a trusted
// channel before anything is believed of it.
func (s *server) trustedKeys(r *http.Request) (any, error) {
	trusted := s.Keys().Trusted
	if trusted == nil {
		return nil, domain.Unavailable("The service has no trusted-keys file at the moment; send the request again later.")
	}
	published, err := trusted.Published()
	if err != nil {
		return nil, err
	}
	raw, err := published.Marshal()
	return cacheable(r, raw), err
}
