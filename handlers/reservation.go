package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// reserve gives a version its public id: 201 for a new one, 200 again.
func (s *server) reserve(r *http.Request) (any, error) {
	var version domain.VersionReference
	if err := decode(r, func(o *strictjson.Object) { version = domain.ReadVersionReference(o) }); err != nil {
		return nil, err
	}
	reserved, err := s.reserveVersion(r.Context(), callOf(r), version)
	return response{status: created(reserved.Replayed), data: reserved}, err
}

func (s *server) reserveVersion(ctx context.Context, c *call, version domain.VersionReference) (wire.Reservation, error) {
	release, err := s.admitSingle(ctx, c)
	if err != nil {
		return wire.Reservation{}, err
	}
	defer release()
	command := &domain.Reserve{
		Origin: c.origin(), Key: c.access.Key, Limits: c.access.Limits, Version: version,
		PublicID: domain.NewPublicID(s.Installation.Secret, c.access.Organization.Shard()),
	}
	if err := s.execute(ctx, command); err != nil {
		return wire.Reservation{}, err
	}
	reservation := command.Outcome.Reservation
	id := reservation.PublicID.String()
	return wire.Reservation{
		PublicID: id, VerificationURL: s.verificationURL(id), ExpiresAt: evidence.FormatTime(reservation.ExpiresAt),
		Status: reservation.Status, Replayed: command.Outcome.Replayed,
	}, nil
}

// verificationURL is the link that may stand in the document.
func (s *server) verificationURL(publicID string) string {
	return s.BaseURL + web.Record.Path(publicID)
}
