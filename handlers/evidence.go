package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// errTampered is internal: it says that the database was changed behind the ledger's back, which no caller can mend.
var errTampered = errors.New("stored evidence does not verify, or belongs to another record")

// receiptOf makes the envelope of a stored record. Evidence of a key that has been revoked is still given out, and
// verifies nowhere; evidence that is not this record's is not.
func (s *server) receiptOf(trust *evidence.TrustedKeys, id domain.PublicID, stored *query.Evidence) (evidence.Envelope, error) {
	record := &stored.Record
	key, _ := trust.Lookup(record.KeyID)
	if key.KeyID == "" {
		return evidence.Envelope{}, domain.Unavailable("The key that signed this record is not among the service's trusted keys at the moment; send the request again later.")
	}
	_, finding := s.records.verify(trust, id, stored.Event.Data)
	if finding == evidence.Untrusted {
		if payload, err := evidence.ParseRecordPayload(record.Payload); err != nil || !bound(payload, id, record) {
			finding = evidence.Invalid
		}
	}
	if finding == evidence.Invalid {
		return evidence.Envelope{}, fmt.Errorf("evidence: %w", errTampered)
	}
	return evidence.NewEnvelope(evidence.NewSigned(record.Payload, record.Signature, key.PublicKey)), nil
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
	return response{data: wire.Evidence{Envelope: envelope}, bare: true}, err
}

// export makes the private export of the record with this public id. at is nil for the present; otherwise the state as
// of that earlier moment stands in the place of the present one.
func (s *server) export(ctx context.Context, c *call, id domain.PublicID, at *query.Moment) (evidence.Envelope, error) {
	// Before the state is read: a state must not be dated later than it was seen.
	observedAt, err := s.observationTime(ctx)
	if err != nil {
		return evidence.Envelope{}, err
	}
	var stored *query.Evidence
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
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored)
	if err != nil {
		return evidence.Envelope{}, err
	}
	// The record is received before its events, and seen after them, whatever clocks say.
	asOf := slices.MaxFunc([]time.Time{then.Time, stored.ReceivedAt}, time.Time.Compare)
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
		receipt.StatusObservation = new(signer.SignPayload(state.AppendCanonical(nil)))
	} else {
		state.Status = then.Status
		payload := evidence.StatusAsOfPayload{StatusPayload: state, AsOf: evidence.FormatTime(asOf), AsOfSequence: then.Sequence}
		receipt.StatusAsOf = new(signer.SignPayload(payload.AppendCanonical(nil)))
	}
	receipt.Inclusion = s.inclusionIfThere(ctx, stored)
	return receipt, nil
}

// observationTime is what a signed observation is dated with: nothing is signed while the clocks disagree.
func (s *server) observationTime(ctx context.Context) (time.Time, error) {
	now, err := s.Ledger.Agreed(ctx)
	if clocks, ok := errors.AsType[*eventstore.ClockError](err); ok {
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
	return slices.MaxFunc([]time.Time{observedAt, receivedAt}, time.Time.Compare), nil
}

// settled is how long ago a time must lie for the state as of it to be signed. An event's time is taken before its
// commit, which a group reaches within 30 seconds or never; the rest is for servers whose clocks are behind this one's,
// by the tolerance of both.
const settled = time.Minute

const momentRule = "must be an RFC 3339 time such as 2026-11-20T14:03:00Z, or the sequence of an event in plain digits"

var sequencePattern = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// parseMoment reads a sequence or a time, of which finer parts than microseconds are cut off: no event has them.
func parseMoment(text string) (at query.Moment, ok bool) {
	if sequencePattern.MatchString(text) {
		sequence, err := strconv.ParseInt(text, 10, 64)
		return query.Moment{Sequence: sequence}, err == nil && sequence <= strictjson.MaxInteger
	}
	at.Time, ok = parseInstant(text)
	at.Time = at.Time.Truncate(time.Microsecond)
	return at, ok
}

func parseInstant(text string) (at time.Time, ok bool) {
	normal, err := evidence.NormalizeTimestamp(text)
	if err == nil {
		at, err = time.Parse(time.RFC3339Nano, normal)
	}
	return at.UTC(), err == nil
}

func (q *parameters) moment() *query.Moment {
	text, given := q.text("at", strictjson.Optional)
	if !given {
		return nil
	}
	at, ok := parseMoment(text)
	if !ok {
		q.problem("at", strictjson.CodeFormat, momentRule)
	}
	return &at
}

// readMoment reads the member at of a tool's input.
func readMoment(o *strictjson.Object) *query.Moment {
	if !o.Has("at") {
		return nil
	}
	at, ok := parseMoment(o.String("at", strictjson.Optional))
	if o.OK("at") && !ok {
		o.Problem("at", strictjson.CodeFormat, momentRule)
	}
	return &at
}

// evidenceAsOf reads a record with its state as of an earlier moment, which must be settled at observedAt.
func (s *server) evidenceAsOf(ctx context.Context, c *call, id domain.PublicID, at query.Moment, observedAt time.Time) (*query.Evidence, query.AsOf, error) {
	if at.Sequence == 0 && at.Time.After(observedAt.Add(-settled)) {
		return nil, query.AsOf{}, invalidParameter("at", "must be a time at least a minute ago, or the sequence of an event: later events may still be on their way into the log")
	}
	stored, then, err := s.Store.EvidenceAsOf(ctx, c.access, id, at)
	if err == nil && at.Sequence == 0 && at.Time.Before(stored.ReceivedAt) {
		err = query.ErrBeforeRecord
	}
	switch {
	case errors.Is(err, query.ErrBeforeRecord):
		err = invalidParameter("at", "must be a moment at or after the registration of this record: earlier, it did not exist yet")
	case errors.Is(err, query.ErrBeyondHead):
		err = invalidParameter("at", "must be a sequence of this organization, whose last one is "+strconv.FormatInt(stored.Sequence, 10))
	}
	return stored, then, err
}

const (
	// proofTimeout is for how long evidence waits for the proof of inclusion, and proofPause for how long it does not
	// ask for one after it has waited in vain.
	proofTimeout = 300 * time.Millisecond
	proofPause   = 5 * time.Second

	checkpointType = "text/plain; charset=utf-8"
	tileType       = "application/octet-stream"
)

// logFailure is what a caller may know of a question that the log has not answered.
func logFailure(err error) error {
	switch {
	case errors.Is(err, transparency.ErrNoCheckpoint):
		return domain.Unavailable("The transparency log has not signed a checkpoint yet; send the request again.")
	case errors.Is(err, transparency.ErrNoTile):
		return domain.Refuse(domain.NotFound, "The published tree has no such tile. A tile is <level>/<n> or <level>/<n>.p/<width>, of hashes that the checkpoint covers.")
	case errors.Is(err, transparency.ErrNotIntegrated):
		return domain.Refuse(domain.InvalidState, "The registration is not in the published tree of the transparency log yet; that takes a few seconds. Ask again later.")
	case err != nil:
		return fmt.Errorf("transparency log: %w: %w", domain.Unavailable("The transparency log cannot be read at the moment; send the request again."), err)
	}
	return nil
}

func noLog() error {
	return domain.Refuse(domain.NotFound, "This service keeps no transparency log.")
}

// checkpoint answers the newest signed tree head, as C2SP tlog-checkpoint has it.
func (s *server) checkpoint(r *http.Request) (any, error) {
	if s.Transparency == nil {
		return nil, noLog()
	}
	note, err := s.Transparency.Checkpoint(r.Context())
	return response{raw: []byte(note), contentType: checkpointType, cache: noStore}, logFailure(err)
}

// tile answers a hash tile, as C2SP tlog-tiles names it. There are no entry tiles: what the events say is nobody's but
// the organization's.
func (s *server) tile(r *http.Request) (any, error) {
	if s.Transparency == nil {
		return nil, noLog()
	}
	hashes, err := s.Transparency.Tile(r.Context(), variable(r, "tile"))
	return response{raw: hashes, contentType: tileType, cache: publicForever}, logFailure(err)
}

// inclusion answers the proof that the registration of a record is in the published tree.
func (s *server) inclusion(r *http.Request) (any, error) {
	stored, err := s.Store.Evidence(r.Context(), callOf(r).access, publicID(variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	if s.Transparency == nil {
		return nil, noLog()
	}
	proof, err := s.Transparency.Inclusion(r.Context(), stored.Event.Shard, stored.Event.Position, stored.Leaf())
	return proof, logFailure(err)
}

// inclusionIfThere is the same proof for evidence, which never waits for it: nil where the log is not kept, has not
// come so far, or does not answer at once.
func (s *server) inclusionIfThere(ctx context.Context, stored *query.Evidence) *evidence.Inclusion {
	if pause := s.unproven.Load(); s.Transparency == nil || pause > 0 && s.Now().UnixNano() < pause {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	proof, err := s.Transparency.Inclusion(ctx, stored.Event.Shard, stored.Event.Position, stored.Leaf())
	if err == nil || errors.Is(err, transparency.ErrNotIntegrated) {
		return proof
	}
	s.unproven.Store(s.Now().Add(proofPause).UnixNano())
	s.Log.WarnContext(ctx, "evidence goes without proof of inclusion for a while", "error", err, "pause", proofPause)
	return nil
}
