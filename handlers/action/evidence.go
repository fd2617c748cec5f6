package action

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// errTampered is internal: the database was changed behind the ledger's back, which no caller can repair.
var errTampered = errors.New("stored evidence does not verify, or belongs to another record")

// receiptOf makes the envelope of a stored record. Evidence signed by a revoked key is still answered, although no
// verifier accepts it. Evidence of another record is refused.
func (s *Service) receiptOf(
	trust *evidence.TrustedKeys, id domain.PublicID, stored *query.Evidence,
) (evidence.Envelope, error) {
	record := &stored.Record
	key, _ := trust.Lookup(record.KeyID)
	if key.KeyID == "" {
		return evidence.Envelope{}, domain.Unavailable(
			"The key that signed this record is not among the service's trusted keys at the moment; send the request again " +
				"later.",
		)
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

// ExportQuestion asks for the evidence of a record.
type ExportQuestion struct {
	publicID   domain.PublicID
	at         *query.Moment // nil: now
	timestamps bool          // include the tokens of timestamp authorities
}

// ReadExport reads the public id of a record, the moment (now if at is absent), and whether to include timestamps.
func ReadExport(o *strictjson.Object) ExportQuestion {
	return ExportQuestion{edge.ReadPublicID(o), readMoment(o), o.Bool("timestamps", strictjson.Optional)}
}

// Inclusion says whether evidence has a proof that the transparency log includes the registration.
type Inclusion string

const (
	Included  Inclusion = "included"
	Pending   Inclusion = "pending" // the published tree lacks the registration, or could not be read in time
	NotLogged Inclusion = "none"    // there will be none: the service keeps no log, or the record was healed
)

// Exported is evidence, and whether it has a proof of inclusion.
type Exported struct {
	Evidence  wire.Evidence
	Inclusion Inclusion
}

// Evidence answers the private export: receipt, references, and a fresh observation of the state or the state as of an
// earlier moment.
func (s *Proofs) Evidence(ctx context.Context, c *edge.Call, asked ExportQuestion) (wire.Evidence, error) {
	exported, err := s.Export(ctx, c, asked)
	return exported.Evidence, err
}

// Export answers what Evidence answers, and says whether the evidence has a proof of inclusion.
func (s *Proofs) Export(ctx context.Context, c *edge.Call, asked ExportQuestion) (exported Exported, err error) {
	// Read the time before the state: a state must not be dated later than it was read.
	observedAt, err := s.observationTime(ctx)
	if err != nil {
		return exported, err
	}
	record := &export{id: asked.publicID}
	record.stored, err = edge.Asked(&s.Identity, c, func(records query.RecordReader) (stored *query.Evidence, err error) {
		if asked.at == nil {
			return records.Evidence(ctx, c.Access, asked.publicID)
		}
		record.then = &query.AsOf{}
		stored, *record.then, err = evidenceAsOf(ctx, records, c.Access, asked.publicID, *asked.at, observedAt)
		return stored, err
	})
	if err != nil {
		return exported, err
	}
	s.prove(ctx, record, asked.timestamps)
	envelope, err := s.seal(record, observedAt)
	return Exported{wire.Evidence{Envelope: envelope}, s.inclusionOf(record)}, err
}

// export is a record that becomes evidence, and what the log proves about it.
type export struct {
	id     domain.PublicID
	stored *query.Evidence
	then   *query.AsOf // the state to sign; nil: the present one
	proof  *evidence.Inclusion
	stamps []evidence.Timestamp

	changed error // why there can be no proof: the event or the tree was changed
}

// prove asks the log for the proof of inclusion that the record still lacks, and for its timestamps.
func (s *Proofs) prove(ctx context.Context, e *export, timestamps bool) {
	if restored(e.stored) {
		return
	}
	if e.proof == nil {
		e.proof, e.changed = ofTree(ctx, s, &s.unproven, "proof of inclusion", e.stored, (*transparency.Reader).Inclusion)
	}
	if timestamps && e.proof != nil {
		e.stamps, _ = ofTree(ctx, s, &s.unstamped, "timestamps", e.stored, (*transparency.Reader).Stamped)
	}
}

func (s *Proofs) inclusionOf(e *export) Inclusion {
	switch {
	case e.proof != nil:
		return Included
	case s.Transparency == nil || restored(e.stored):
		return NotLogged
	}
	return Pending
}

// seal signs the state of a record, observed at a time, and returns its evidence.
func (s *Proofs) seal(e *export, observedAt time.Time) (evidence.Envelope, error) {
	stored := e.stored
	signer, err := s.signer()
	if err != nil {
		return evidence.Envelope{}, err
	}
	id := stored.SignedID(e.id)
	receipt, err := s.receiptOf(s.Keys().Trusted, id, stored)
	if err != nil {
		return evidence.Envelope{}, err
	}
	// Clocks may differ, but a record is received before its events and observed after them.
	asOf := stored.ReceivedAt
	if e.then != nil {
		asOf = slices.MaxFunc([]time.Time{e.then.Time, asOf}, time.Time.Compare)
	}
	if observedAt, err = notBefore(asOf, observedAt); err != nil {
		return evidence.Envelope{}, err
	}
	state := evidence.StatusPayload{
		PublicID: id.String(), PayloadSHA256: sha256.Sum256(stored.Record.Payload), Status: stored.Status,
		ObservedAt: observedAt.UTC().Truncate(time.Microsecond), Sequence: stored.Sequence,
	}
	receipt.References = &stored.Record.References
	if e.then == nil {
		receipt.StatusObservation, err = signed(signer, state.AppendCanonical(nil))
	} else {
		state.Status = e.then.Status
		payload := evidence.StatusAsOfPayload{
			StatusPayload: state, AsOf: asOf.UTC().Truncate(time.Microsecond), AsOfSequence: e.then.Sequence,
		}
		receipt.StatusAsOf, err = signed(signer, payload.AppendCanonical(nil))
	}
	if err != nil {
		return evidence.Envelope{}, err
	}
	if receipt.Inclusion = e.proof; e.proof != nil {
		receipt.Timestamps = e.stamps
		fitTimestamps(&receipt)
	}
	return receipt, nil
}

// signed signs the state of a record, or refuses as domain.Sign does.
func signed(signer *evidence.Signer, payload []byte) (*evidence.Signed, error) {
	signature, err := domain.Sign(signer, payload)
	if err != nil {
		return nil, err
	}
	return new(evidence.NewSigned(payload, signature, signer.Key())), nil
}

// restored reports whether the log holds the record as a healed one or as an alias, not as a registration. Evidence has
// no proof of inclusion then: verifiers take the leaf of another type for a forged one.
func restored(stored *query.Evidence) bool {
	return stored.Alias != nil || stored.Event.Type == domain.RecordHealed
}

// observationTime returns the time for a signed observation. Nothing is signed while the clocks disagree or while the
// database lacks events that were committed.
func (s *Proofs) observationTime(ctx context.Context) (time.Time, error) {
	now, err := s.ledger.Agreed(ctx)
	if clocks, ok := errors.AsType[*eventstore.ClockError](err); ok {
		return now, clocks.Refusal()
	}
	if lost, ok := errors.AsType[*eventstore.LostError](err); ok {
		return now, lost.Refusal()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", domain.Unavailable("The database cannot be reached; send the request again."), err)
	}
	return now, err
}

// receivedAhead is how far in the future a record may have been received: it may have been registered since observedAt
// was read, or by a clock that agrees with this one. A later date comes from a clock that was wrong.
const receivedAhead = time.Minute

// notBefore returns the later of the two times, since a record is received before it is observed. It refuses if
// receivedAt is ahead by more than receivedAhead.
func notBefore(receivedAt, observedAt time.Time) (time.Time, error) {
	ahead := receivedAt.Sub(observedAt)
	if ahead > receivedAhead {
		return observedAt, domain.Unavailable(
			"This record carries the future date %s because a clock was wrong. Its state can be signed after that date; its "+
				"receipt is available now.",
			evidence.FormatTime(receivedAt),
		).After(ahead)
	}
	return slices.MaxFunc([]time.Time{observedAt, receivedAt}, time.Time.Compare), nil
}

// finalAfter is how long ago a moment must be for the state as of it to be signed. The time of an event is taken before
// its commit, which a group reaches within 30 seconds or never; the rest allows for servers whose clocks are behind,
// within the tolerance of both clocks.
const finalAfter = time.Minute

const momentRule = "must be an RFC 3339 time such as 2026-11-20T14:03:00Z, or the sequence of an event in plain digits"

var sequencePattern = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// parseMoment reads a sequence or a time. Fractions of a microsecond are cut off: no event has them.
func parseMoment(text string) (at query.Moment, ok bool) {
	if sequencePattern.MatchString(text) {
		sequence, err := strconv.ParseInt(text, 10, 64)
		return query.Moment{Sequence: sequence}, err == nil && sequence <= strictjson.MaxInteger
	}
	at.Time, ok = edge.ParseInstant(text)
	at.Time = at.Time.Truncate(time.Microsecond)
	return at, ok
}

// readMoment reads the member at; it returns nil if at is absent.
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

// evidenceAsOf reads a record with its state as of an earlier moment, which must be final at observedAt.
func evidenceAsOf(
	ctx context.Context, records query.RecordReader, a domain.Access, id domain.PublicID, at query.Moment,
	observedAt time.Time,
) (*query.Evidence, query.AsOf, error) {
	if at.Sequence == 0 && at.Time.After(observedAt.Add(-finalAfter)) {
		return nil, query.AsOf{}, domain.InvalidMember(
			"/at", strictjson.CodeRange,
			"must be a time at least a minute ago, or the sequence of an event: later events may still be on their way into "+
				"the log",
		)
	}
	stored, then, err := records.EvidenceAsOf(ctx, a, id, at)
	if err == nil && at.Sequence == 0 && at.Time.Before(stored.ReceivedAt) {
		err = query.ErrBeforeRecord
	}
	switch {
	case errors.Is(err, query.ErrBeforeRecord):
		err = domain.InvalidMember(
			"/at", strictjson.CodeRange,
			"must be a moment at or after the registration of this record: earlier, it did not exist yet",
		)
	case errors.Is(err, query.ErrBeyondHead):
		err = domain.InvalidMember(
			"/at", strictjson.CodeRange,
			"must be a sequence of this organization, whose last one is %d", stored.Sequence,
		)
	}
	return stored, then, err
}

const (
	proofTimeout = 300 * time.Millisecond
	proofPause   = 5 * time.Second // after an unanswered wait, evidence is made without asking for a proof for this long

	checkpointType = "text/plain; charset=utf-8"
	tileType       = "application/octet-stream"
)

// logFailure turns an error of the transparency log into one that callers may see.
func logFailure(err error) error {
	switch {
	case errors.Is(err, transparency.ErrNoCheckpoint):
		return domain.Unavailable("The transparency log has not signed a checkpoint yet; send the request again.")
	case errors.Is(err, transparency.ErrNoTile):
		return domain.Refuse(
			domain.NotFound,
			"The published tree has no such tile. A tile is <level>/<n> or <level>/<n>.p/<width>, of hashes that the "+
				"checkpoint covers.",
		)
	case errors.Is(err, transparency.ErrNotIntegrated):
		return domain.Refuse(
			domain.InvalidState,
			"The registration is not in the published tree of the transparency log yet; that takes a few seconds. Ask again "+
				"later.",
		)
	case changed(err):
		return fmt.Errorf(
			"transparency log: %w: %w",
			domain.Refuse(
				domain.Internal,
				"The stored event is damaged, or does not agree with the transparency log. Sending the request again does not "+
					"help; report this to the operator.",
			), err,
		)
	case err != nil:
		return fmt.Errorf(
			"transparency log: %w: %w",
			domain.Unavailable("The transparency log cannot be read at the moment; send the request again."), err,
		)
	}
	return nil
}

func noLog() error {
	return domain.Refuse(domain.NotFound, "This service keeps no transparency log.")
}

// Checkpoint answers the newest signed tree head in the format of C2SP tlog-checkpoint.
func (s *Proofs) Checkpoint(ctx context.Context, _ *edge.Call, _ struct{}) (edge.Response, error) {
	if s.Transparency == nil {
		return edge.Response{}, noLog()
	}
	note, err := s.Transparency.Checkpoint(ctx)
	return edge.Response{Raw: []byte(note), ContentType: checkpointType, Cache: edge.NoStore}, logFailure(err)
}

// ReadTile reads the tile in the path.
func ReadTile(o *strictjson.Object) string { return o.String("tile", strictjson.Required) }

// Tile answers a hash tile by its C2SP tlog-tiles name. There are no entry tiles: the contents of events belong to the
// organization alone.
func (s *Proofs) Tile(ctx context.Context, _ *edge.Call, tile string) (edge.Response, error) {
	if s.Transparency == nil {
		return edge.Response{}, noLog()
	}
	hashes, err := s.Transparency.Tile(ctx, tile)
	return edge.Response{Raw: hashes, ContentType: tileType, Cache: edge.PublicForever}, logFailure(err)
}

// Inclusion answers the proof that the registration of a record is in the published tree. The leaf of a healed record
// is of another type, integrity.healed. A former public id has no leaf of its own.
func (s *Proofs) Inclusion(ctx context.Context, c *edge.Call, id domain.PublicID) (*evidence.Inclusion, error) {
	stored, err := s.Store.Evidence(ctx, c.Access, id)
	if err == nil && stored.Alias != nil {
		err = domain.ErrUnknownRecord
	}
	if err != nil {
		return nil, err
	}
	if s.Transparency == nil {
		return nil, noLog()
	}
	proof, err := s.Transparency.Inclusion(ctx, stored.Event.Shard, stored.Event.Position, stored.Leaf())
	return proof, logFailure(err)
}

// timestampPage is the number of tokens after which a page is full.
const timestampPage = 20

// ReadTimestamps reads the tree size after which a page begins.
func ReadTimestamps(o *strictjson.Object) int64 {
	return edge.Integer(o, "after", 0, strictjson.MaxInteger, 0)
}

// Timestamps answers tokens over checkpoints. A page has all tokens of the tree sizes it covers. A page with successors
// may be cached for minutes: it changes only if a slower authority's token of an earlier checkpoint arrives after it,
// or the database is restored.
func (s *Proofs) Timestamps(ctx context.Context, _ *edge.Call, after int64) (edge.Response, error) {
	if s.Transparency == nil {
		return edge.Response{}, noLog()
	}
	stamps, err := s.Transparency.Timestamps(ctx, after, timestampPage)
	page := wire.LogTimestamps{Timestamps: wire.Each(stamps, func(t transparency.Stamp) wire.LogTimestamp {
		return wire.LogTimestamp{
			TreeSize: t.TreeSize, Authority: t.Authority, GenTime: evidence.FormatTime(t.GenTime), Checkpoint: t.Checkpoint,
			Token: t.Token,
		}
	})}
	if err == nil && len(stamps) >= timestampPage {
		var next []transparency.Stamp
		next, err = s.Transparency.Timestamps(ctx, stamps[len(stamps)-1].TreeSize, 1)
		page.HasMore = len(next) > 0
	}
	if err != nil {
		return edge.Response{}, logFailure(err)
	}
	raw, err := edge.Encode(page)
	resp := edge.Cacheable(raw, edge.JSONType)
	if !page.HasMore {
		resp.Cache = edge.NoStore
	}
	return resp, err
}

// ofTree asks the log for an optional part of evidence, for which evidence does not wait long. It returns zero if there
// is no log, the log has not reached the event, or the log does not answer in time. After a failure it does not ask
// again until the pause is over. If the event or the tree was changed, it returns why, and pauses nothing: that says
// nothing about other events.
func ofTree[T any](ctx context.Context, s *Proofs, pause *atomic.Int64, what string, stored *query.Evidence,
	ask func(
		r *transparency.Reader, ctx context.Context, shard domain.Shard, position int64, leaf []byte,
	) (T, error)) (answer T, damage error) {
	if until := pause.Load(); s.Transparency == nil || until > 0 && s.Now().UnixNano() < until {
		return answer, nil
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(s.ProofTimeout, proofTimeout))
	defer cancel()
	answer, err := ask(s.Transparency, limited, stored.Event.Shard, stored.Event.Position, stored.Leaf())
	switch {
	case err == nil, errors.Is(err, transparency.ErrNotIntegrated), ctx.Err() != nil:
		// If the caller has left, the error says nothing about the log.
	case changed(err):
		s.Log.ErrorContext(ctx, "evidence made without "+what, "error", err)
		return answer, err
	default:
		pause.Store(s.Now().Add(proofPause).UnixNano())
		s.Log.WarnContext(ctx, "evidence made without "+what, "error", err, "pause", proofPause)
	}
	return answer, nil
}

// changed reports whether an error says that an event and the transparency log do not agree.
func changed(err error) bool {
	return errors.Is(err, history.ErrDamaged) || errors.Is(err, transparency.ErrChanged)
}

// fitTimestamps drops timestamps that are not of the tree in the proof of inclusion, which happens if the database is
// restored between the two reads. It also drops the last tokens until the evidence is no longer than verifiers accept.
func fitTimestamps(e *evidence.Envelope) {
	if slices.ContainsFunc(e.Timestamps, func(t evidence.Timestamp) bool { return t.LeafIndex != e.Inclusion.LeafIndex }) {
		e.Timestamps = nil
	}
	for last := len(e.Timestamps) - 1; last >= 0 &&
		len(wire.Evidence{Envelope: *e}.AppendJSON(nil)) >= evidence.MaxReceiptBytes; {
		// a line feed follows
		t := &e.Timestamps[last]
		if t.Tokens = t.Tokens[:len(t.Tokens)-1]; len(t.Tokens) == 0 {
			e.Timestamps, last = e.Timestamps[:last], last-1
		}
	}
}
