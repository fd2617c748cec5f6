package action

import (
	"context"
	"net/http"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/projections/query"
)

// C2SP tlog-proof registers no media type: a proof is lines of text, as a checkpoint is.
const proofType = checkpointType

// ProofQuestion asks for the transparency log proof of a record.
type ProofQuestion struct {
	publicID domain.PublicID
	wait     time.Duration // the longest wait for its inclusion
}

// ReadProof reads the public id of a record and how long to wait for its inclusion.
func ReadProof(o *strictjson.Object) ProofQuestion {
	return ProofQuestion{edge.ReadPublicID(o), readWait(o)}
}

// ReadProofNow reads the public id of a record whose inclusion is not waited for.
func ReadProofNow(o *strictjson.Object) ProofQuestion {
	return ProofQuestion{publicID: edge.ReadPublicID(o)}
}

// Proof answers the transparency log proof of a record (C2SP tlog-proof@v1) with its references.
func (s *Proofs) Proof(ctx context.Context, c *edge.Call, asked ProofQuestion) (edge.Response, error) {
	text, err := s.ProofText(ctx, c, asked)
	return proofFile(asked.publicID, edge.Response{Raw: []byte(text), ContentType: proofType}), err
}

// ProofText answers what Proof answers, as a text.
func (s *Proofs) ProofText(ctx context.Context, c *edge.Call, asked ProofQuestion) (string, error) {
	record, err := s.provable(ctx, c, asked.publicID)
	if err != nil {
		return "", err
	}
	if s.prove(ctx, record, false); asked.wait > 0 && s.pending(record) &&
		s.awaitInclusion(ctx, c.Access, asked.wait, []*export{record}) {
		// The key and its grants may have changed meanwhile. The proof of the record has not.
		if err := s.JudgeAgain(ctx); err != nil {
			return "", err
		}
		proof := record.proof
		if record, err = s.provable(ctx, c, asked.publicID); err != nil {
			return "", err
		}
		record.proof = proof
	}
	if record.proof == nil {
		return "", record.unproven()
	}
	receipt, err := s.receiptOf(s.Keys().Trusted, asked.publicID, record.stored)
	if err != nil {
		return "", err
	}
	receipt.References, receipt.Inclusion = &record.stored.Record.References, record.proof
	return string(receipt.AppendProof(nil)), nil
}

func (s *Proofs) provable(ctx context.Context, c *edge.Call, id domain.PublicID) (*export, error) {
	stored, err := s.Store.Evidence(ctx, c.Access, id)
	if err == nil {
		err = s.provableOf(stored)
	}
	return &export{id: id, stored: stored}, err
}

// provableOf refuses a record that never gets a transparency log proof.
func (s *Service) provableOf(stored *query.Evidence) error {
	switch {
	case s.Transparency == nil:
		return noLog()
	case restored(stored):
		return domain.Refuse(
			domain.InvalidState,
			"This record was lost and registered again, so the transparency log does not hold it as a registration. It has no "+
				"transparency log proof; its receipt proves the signature.",
		)
	}
	return nil
}

// PublicProof answers the transparency log proof of a record without its references. The leaf in it reveals nothing
// about them: it commits to the event by a hash over the record's random salt.
func (s *Proofs) PublicProof(ctx context.Context, _ *edge.Call, id domain.PublicID) (edge.Response, error) {
	stored, err := s.Store.Published(ctx, id)
	if err == nil && stored.Pending {
		err = query.ErrUnknownPublicID
	}
	if err == nil {
		err = s.provableOf(stored)
	}
	if err != nil {
		return edge.Response{}, err
	}
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored)
	if err != nil {
		return edge.Response{}, err
	}
	record := &export{id: id, stored: stored}
	if s.prove(ctx, record, false); record.proof == nil {
		return edge.Response{}, record.unproven()
	}
	receipt.Inclusion = record.proof
	return proofFile(id, edge.Cacheable(receipt.AppendProof(nil), proofType)), nil
}

// proofFile makes an answer that is saved as a file.
func proofFile(id domain.PublicID, resp edge.Response) edge.Response {
	resp.Header = http.Header{
		"Content-Disposition": {`attachment; filename="` + id.String() + evidence.ProofExtension + `"`},
	}
	return resp
}
