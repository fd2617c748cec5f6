package handlers

import (
	"fmt"
	"net/http"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// health says that the process answers, and nothing about the database.
func (s *server) health(*http.Request) (any, error) {
	return wire.Health{Status: "ok"}, nil
}

// ready says whether registrations can be taken: what Ready asks, and the signing key.
func (s *server) ready(r *http.Request) (any, error) {
	if s.Ready != nil {
		if err := s.Ready(r.Context()); err != nil {
			if refusal(err) == nil {
				err = fmt.Errorf("%w: %w", domain.Unavailable("The database is not ready."), err)
			}
			return nil, err
		}
	}
	if _, err := s.signer(); err != nil {
		return nil, err
	}
	return wire.Health{Status: "ready"}, nil
}
