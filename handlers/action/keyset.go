package action

import (
	"context"
	"errors"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// KeySetProof answers the trusted keys that were published last, with the proof that the transparency log contains
// them (C2SP tlog-proof@v1). A reader who pins the log key or witnesses obtains all other keys from it.
func (s *Proofs) KeySetProof(ctx context.Context, _ *edge.Call, _ struct{}) (edge.Response, error) {
	if s.Transparency == nil {
		return edge.Response{}, noLog()
	}
	last, proof, err := s.publicLog().PublishedKeys(ctx)
	switch {
	case errors.Is(err, transparency.ErrNoKeySet):
		return edge.Response{}, domain.Refuse(
			domain.NotFound, "The operator has not published the trusted keys in the transparency log.",
		)
	case errors.Is(err, transparency.ErrNotIntegrated):
		return edge.Response{}, domain.Unavailable(
			"The published keys are not in a checkpoint of the transparency log yet; that takes a few seconds. Ask again later.",
		)
	case err != nil:
		return edge.Response{}, logFailure(err)
	}
	resp := edge.Response{Raw: last.AppendProof(nil, *proof), ContentType: proofType, Cache: edge.PublicSeconds}
	resp.Header = http.Header{
		"Content-Disposition": {`attachment; filename="integrity-trusted-keys` + evidence.ProofExtension + `"`},
	}
	return resp, nil
}

// readKeySet describes the trusted keys that were published last beside those that are served now. A description is
// returned with KeySetPublished only.
func (s *Service) readKeySet(
	ctx context.Context, trusted *evidence.TrustedKeys,
) (*wire.PublishedKeySet, wire.KeySetState) {
	last, proof, err := s.publicLog().PublishedKeys(ctx)
	switch {
	case errors.Is(err, transparency.ErrNoKeySet):
		return nil, wire.KeySetNone
	case changed(err):
		s.Log.ErrorContext(ctx, "published keys do not agree with the transparency log", "error", err)
		return nil, wire.KeySetDiffers
	case err != nil && !errors.Is(err, transparency.ErrNotIntegrated):
		s.Log.WarnContext(ctx, "published keys not shown", "error", err)
		return nil, wire.KeySetUnknown
	}
	view := &wire.PublishedKeySet{
		PayloadSHA256: last.SHA256().String(), PublishedAt: evidence.FormatTime(last.Event.OccurredAt),
	}
	if proof != nil {
		view.LeafIndex, view.TreeSize = &proof.LeafIndex, &proof.TreeSize
	}
	if trusted != nil {
		served, err := evidence.NewKeySet(last.Issuer, trusted)
		view.Newest = err == nil && served.SHA256() == last.SHA256()
	}
	return view, wire.KeySetPublished
}
