package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/projections/query"
)

// errTampered is internal: it says that the database was changed behind the ledger's back, which no caller can mend.
var errTampered = errors.New("stored evidence does not verify, or belongs to another record")

// receiptOf makes the envelope of a stored record. Evidence of a key that has been revoked is still given out, and
// verifies nowhere; evidence that is not this record's is not.
func (s *server) receiptOf(trust *evidence.TrustedKeys, id domain.PublicID, stored domain.SignedRecord) (evidence.Envelope, error) {
	key, _ := trust.Lookup(stored.KeyID)
	if key.KeyID == "" {
		return evidence.Envelope{}, domain.Unavailable("The key that signed this record is not among the service's trusted keys at the moment; send the request again later.")
	}
	_, finding := s.records.verify(trust, id, stored)
	if finding == evidence.Untrusted {
		if payload, err := evidence.ParseRecordPayload(stored.Payload); err != nil || !bound(payload, id, stored) {
			finding = evidence.Invalid
		}
	}
	if finding == evidence.Invalid {
		return evidence.Envelope{}, fmt.Errorf("evidence: %w", errTampered)
	}
	return evidence.NewEnvelope(evidence.NewSigned(stored.Payload, stored.Signature, key.PublicKey)), nil
}

// evidence answers the private export, raw: receipt, references and a fresh observation of the state, or the state as
// of an earlier moment.
func (s *server) evidence(r *http.Request) (any, error) {
	q := newQuery(r)
	at := q.moment()
	if err := q.refusal(); err != nil {
		return nil, err
	}
	envelope, err := s.export(r.Context(), callOf(r), publicID(variable(r, "publicId")), at)
	if err != nil {
		return nil, err
	}
	raw, err := encode(envelope)
	return response{raw: raw}, err
}

// export makes the private export of the record with this public id. at is nil for the present; otherwise the state as
// of that earlier moment stands in the place of the present one.
func (s *server) export(ctx context.Context, c *call, id domain.PublicID, at *query.Moment) (evidence.Envelope, error) {
	// Before the state is read: a state must not be dated later than it was seen.
	observedAt, err := s.observationTime(ctx)
	if err != nil {
		return evidence.Envelope{}, err
	}
	var stored query.Evidence
	var then query.AsOf
	if at == nil {
		stored, err = s.Store.Evidence(ctx, c.access, id)
	} else {
		stored, then, err = s.evidenceAsOf(ctx, c, id, *at, observedAt)
	}
	if err != nil {
		return evidence.Envelope{}, err
	}
	signer, err := s.signer()
	if err != nil {
		return evidence.Envelope{}, err
	}
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored.Record)
	if err != nil {
		return evidence.Envelope{}, err
	}
	// The record is received before its events, and seen after them, whatever clocks say.
	asOf := latest(then.Time, stored.ReceivedAt)
	if observedAt, err = notBefore(asOf, observedAt); err != nil {
		return evidence.Envelope{}, err
	}
	sum := sha256.Sum256(stored.Record.Payload)
	state := evidence.StatusPayload{
		PublicID: id.String(), PayloadSHA256: hex.EncodeToString(sum[:]), Status: stored.Status,
		ObservedAt: evidence.FormatTime(observedAt), Sequence: stored.Sequence,
	}
	receipt.References = &stored.Record.References
	if at == nil {
		signed := signer.SignPayload(state.AppendCanonical(nil))
		receipt.StatusObservation = &signed
	} else {
		state.Status = then.Status
		payload := evidence.StatusAsOfPayload{StatusPayload: state, AsOf: evidence.FormatTime(asOf), AsOfSequence: then.Sequence}
		signed := signer.SignPayload(payload.AppendCanonical(nil))
		receipt.StatusAsOf = &signed
	}
	receipt.Inclusion = s.inclusionIfThere(ctx, &stored)
	return receipt, nil
}

// observationTime is what a signed observation is dated with: nothing is signed while the clocks disagree.
func (s *server) observationTime(ctx context.Context) (time.Time, error) {
	now, err := s.Ledger.Agreed(ctx)
	var clocks *eventstore.ClockError
	if errors.As(err, &clocks) {
		return now, clocks.Refusal()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", domain.Unavailable("The database cannot be reached; send the request again."), err)
	}
	return now, err
}

// receivedAhead is how far ahead of this clock a record may have been received: registered in between, or by a clock
// that agrees with this one. A later date comes from a clock that was wrong.
const receivedAhead = time.Minute

// notBefore is observedAt, or receivedAt where that is hardly later: a record is received before it is seen.
func notBefore(receivedAt, observedAt time.Time) (time.Time, error) {
	ahead := receivedAt.Sub(observedAt)
	if ahead > receivedAhead {
		unavailable := domain.Unavailable("This record is dated " + evidence.FormatTime(receivedAt) +
			" by a clock that was wrong, which is still to come: its state can be signed from then on. Its receipt is there meanwhile.")
		unavailable.RetryAfter = ahead
		return observedAt, unavailable
	}
	return latest(observedAt, receivedAt), nil
}
