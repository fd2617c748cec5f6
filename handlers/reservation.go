package handlers

import (
	"context"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// reserve gives a version its public id: 201 for a new one, 200 again.
func (s *server) reserve(ctx context.Context, c *call, version domain.VersionReference) (any, error) {
	release, err := s.admitSingle(ctx, c)
	if err != nil {
		return nil, err
	}
	defer release()
	command := &domain.Reserve{
		Origin: c.origin(), Key: c.access.Key, Limits: c.access.Limits, Version: version,
		PublicID: domain.NewPublicID(s.Installation.Secret, c.access.Organization.Shard()),
	}
	return s.done(ctx, command, func() any {
		reservation, replayed := command.Outcome, command.Replayed
		id := reservation.PublicID.String()
		return response{status: createdStatus(replayed), data: wire.Reservation{
			PublicID: id, VerificationURL: s.verificationURL(id), ExpiresAt: evidence.FormatTime(reservation.ExpiresAt),
			Status: reservation.Status, Replayed: replayed,
		}}
	})
}

// verificationURL is the link that may stand in the document.
func (s *server) verificationURL(publicID string) string {
	return s.BaseURL + web.Record.Path(publicID)
}
