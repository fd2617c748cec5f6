package handlers

import (
	"context"
	"encoding/hex"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// pendingState stands where a version's state would: there is no version yet.
const pendingState domain.Status = "pending"

// compare answers the public comparison, decided in the order of contract section 4.2: hash syntax, unknown, pending,
// signature, no hash, mismatch, state. The hash that is compared is the one inside the verified payload, and it is
// never answered.
func (s *server) compare(r *http.Request) (any, error) {
	q := newQuery(r)
	hash := q.digest("sha256", strictjson.Optional)
	if err := q.refusal(); err != nil {
		return nil, err
	}
	return s.comparison(r.Context(), publicID(variable(r, "publicId")), hash)
}

// comparison compares with the hash sum, or with none where it is nil.
func (s *server) comparison(ctx context.Context, id domain.PublicID, sum *[32]byte) (wire.Comparison, error) {
	stored, err := s.Store.Comparison(ctx, id)
	if err != nil {
		return wire.Comparison{}, err
	}
	if stored.Pending {
		state := pendingState
		return wire.Comparison{
			PublicID: id.String(), Result: wire.RegistrationPending, Checks: wire.ComparisonChecks{VersionState: &state},
			CheckedAt: evidence.FormatTime(s.Now()), LimitsURL: s.BaseURL + "/limits",
		}, nil
	}
	payload, finding := s.records.verify(s.Keys().Trusted, id, stored.Record)
	receiptURL := s.BaseURL + "/api/public/integrity/" + id.String() + "/receipt"
	view := wire.Comparison{
		PublicID: id.String(), Result: wire.SignatureInvalid, Checks: wire.ComparisonChecks{Signature: &finding},
		CheckedAt: evidence.FormatTime(s.Now()), ReceiptURL: &receiptURL, LimitsURL: s.BaseURL + "/limits",
		KeyID: orNull(stored.Record.KeyID),
	}
	if finding != evidence.Valid {
		return view, nil
	}
	view.ReceivedAt, view.Checks.VersionState = &payload.ReceivedAt, &stored.Status
	if sum == nil {
		view.Result = wire.FileNotCompared
		return view, nil
	}
	match := hex.EncodeToString(sum[:]) == payload.SHA256
	view.Checks.FileMatch = &match
	switch {
	case !match:
		view.Result = wire.HashMismatch
	case stored.Status == domain.StatusRevoked:
		view.Result = wire.RecordRevoked
	case stored.Status == domain.StatusSuperseded:
		view.Result = wire.MatchHistorical
	default:
		view.Result, view.Verified = wire.MatchCurrent, true
	}
	return view, nil
}

// receipt answers the public receipt: without references, observation and inclusion.
func (s *server) receipt(r *http.Request) (any, error) {
	id := publicID(variable(r, "publicId"))
	stored, err := s.Store.Comparison(r.Context(), id)
	if err == nil && stored.Pending {
		err = query.UnknownPublicID()
	}
	if err != nil {
		return nil, err
	}
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored.Record)
	if err != nil {
		return nil, err
	}
	raw, err := encode(receipt)
	return cacheable(r, raw), err
}
