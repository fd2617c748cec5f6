package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

type reservationView struct {
	PublicID        string                   `json:"publicId"`
	VerificationURL string                   `json:"verificationUrl"`
	ExpiresAt       string                   `json:"expiresAt"`
	Status          domain.ReservationStatus `json:"status"`
	Replayed        bool                     `json:"replayed"`
	Consumption     consumption              `json:"consumption"`
}

// reserve gives a version identity its public id: 201 for a new one, 200 again.
func (s *server) reserve(r *http.Request) (response, error) {
	var version domain.VersionReference
	if err := decode(r, func(o *strictjson.Object) { version = domain.ReadVersionReference(o) }); err != nil {
		return response{}, err
	}
	reserved, err := s.reserveVersion(r.Context(), callOf(r), version)
	return response{status: created(reserved.Replayed), data: reserved}, err
}

func (s *server) reserveVersion(ctx context.Context, c *call, version domain.VersionReference) (reservationView, error) {
	command, err := domain.NewReserve(c.cause(), c.access.Key, c.access.Limits, version, s.Installation.Secret, s.Now(), s.Random)
	if err != nil {
		return reservationView{}, err
	}
	if err := s.Ledger.Do(ctx, command); err != nil {
		return reservationView{}, err
	}
	reservation := command.Outcome.Reservation
	id := reservation.PublicID.String()
	return reservationView{
		PublicID: id, VerificationURL: s.verificationURL(id), ExpiresAt: evidence.FormatTime(reservation.ExpiresAt),
		Status: reservation.Status, Replayed: command.Outcome.Replayed,
	}, nil
}

// verificationURL is the link that may stand in the document.
func (s *server) verificationURL(publicID string) string { return s.BaseURL + "/integrity/" + publicID }
