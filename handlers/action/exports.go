package action

import (
	"context"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// maxExports is the largest number of records in a request for evidence.
const maxExports = 100

// ExportsQuestion asks for the evidence of many records.
type ExportsQuestion struct {
	ids        []domain.PublicID
	timestamps bool          // include the tokens of timestamp authorities
	wait       time.Duration // the longest wait for their proofs of inclusion
}

// ReadExports reads the public ids of records, each once, whether to include timestamps, and how long to wait for
// proofs of inclusion.
func ReadExports(o *strictjson.Object) ExportsQuestion {
	texts := o.StringList("publicIds", strictjson.Required, 1, maxExports)
	asked := ExportsQuestion{timestamps: o.Bool("timestamps", strictjson.Optional), wait: readWait(o)}
	for i, text := range texts {
		if slices.Contains(texts[:i], text) {
			o.ElementProblem("publicIds", i, strictjson.CodeDuplicate, "must appear once")
		}
		asked.ids = append(asked.ids, edge.PublicID(text))
	}
	return asked
}

// ExportMany answers the evidence of each record, in the order of the public ids, as Evidence answers it alone. It
// refuses a record alone: if it is unknown to the key, or while its inclusion in the transparency log is pending. If
// inclusions are pending, the caller may wait for them.
func (s *Proofs) ExportMany(
	ctx context.Context, c *edge.Call, asked ExportsQuestion,
) (answer wire.Results[wire.Evidence], err error) {
	records, observedAt, err := s.exports(ctx, c, asked, nil)
	if err != nil {
		return answer, err
	}
	if asked.wait > 0 && slices.ContainsFunc(records, s.pending) && s.awaitInclusion(ctx, c.Access, asked.wait, records) {
		// The key, its grants and the records may have changed meanwhile.
		if err := s.JudgeAgain(ctx); err != nil {
			return answer, err
		}
		if records, observedAt, err = s.exports(ctx, c, asked, records); err != nil {
			return answer, err
		}
	}
	sealed, errs := make([]wire.Evidence, len(records)), make([]error, len(records))
	if err := s.inTurns(ctx, c.Access.Organization, len(records), func(i int) {
		errs[i] = edge.Contain(func() (err error) {
			switch e := records[i]; {
			case e.stored == nil:
				return domain.ErrUnknownRecord
			case s.inclusionOf(e) == Pending:
				return e.unproven()
			default:
				sealed[i].Envelope, err = s.seal(e, observedAt)
				return err
			}
		})
	}); err != nil {
		return answer, err
	}
	answer.Results = make([]wire.Result[wire.Evidence], len(records))
	for i, err := range errs {
		if err != nil {
			failed := s.itemFailure(ctx, c, i, err)
			answer.Results[i] = wire.Result[wire.Evidence]{Status: failed.Status, Error: failed}
		} else {
			answer.Results[i] = wire.Result[wire.Evidence]{Status: http.StatusOK, Data: &sealed[i]}
		}
	}
	return answer, nil
}

// unproven returns why a record lacks the proof of inclusion that it should have.
func (e *export) unproven() error {
	if e.changed != nil {
		return logFailure(e.changed)
	}
	return domain.Refuse(
		domain.InclusionPending,
		"The published tree of the transparency log does not include this registration yet, or could not be read in time; "+
			"ask again in a few seconds.",
	)
}

// pending reports whether a record is known and its proof of inclusion may still come.
func (s *Proofs) pending(e *export) bool {
	return e.stored != nil && e.changed == nil && s.inclusionOf(e) == Pending
}

// exports reads the records with their states and proofs, and returns the time of the observation. Known are the same
// records read earlier, whose proofs are used again; nil means none. All questions to the log share round trips.
func (s *Proofs) exports(
	ctx context.Context, c *edge.Call, asked ExportsQuestion, known []*export,
) ([]*export, time.Time, error) {
	observedAt, err := s.observationTime(ctx) // before the states are read, as in Export
	if err != nil {
		return nil, observedAt, err
	}
	stored, err := s.Store.EvidenceOfMany(ctx, c.Access, asked.ids)
	if err != nil {
		return nil, observedAt, err
	}
	records := make([]*export, len(stored))
	var asking errgroup.Group
	for i, found := range stored {
		e := &export{id: asked.ids[i], stored: found}
		if records[i] = e; found == nil {
			continue
		}
		if known != nil && known[i].proof != nil && known[i].proof.Leaf == string(found.Leaf()) {
			e.proof = known[i].proof
		}
		asking.Go(func() error {
			return edge.Contain(func() error {
				s.prove(ctx, e, asked.timestamps)
				return nil
			})
		})
	}
	return records, observedAt, asking.Wait()
}

// awaitInclusion waits until the published tree includes all records, or until the wait is over, and keeps the proofs.
// It holds no connection while it waits, and looks only after the tree has changed. It reports whether it has waited:
// it does not if too many requests wait already.
func (s *Proofs) awaitInclusion(
	ctx context.Context, access domain.Access, wait time.Duration, records []*export,
) bool {
	leave, ok := s.waiters.enter(access)
	if !ok {
		return false
	}
	defer leave()
	changed, forget := s.Transparency.Watch()
	defer forget()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		select {
		case <-waiting.Done():
			return true
		case <-s.Closing:
			return true
		case <-changed:
		}
		var asking errgroup.Group
		for _, e := range records {
			if s.pending(e) {
				asking.Go(func() error { return edge.Contain(func() error { return s.included(waiting, e) }) })
			}
		}
		// An error only means that the record is still pending.
		if asking.Wait() == nil {
			return true
		}
	}
}

// included adds the proof of inclusion to a record, or returns why it is missing.
func (s *Proofs) included(ctx context.Context, e *export) (err error) {
	event := &e.stored.Event
	e.proof, err = s.Transparency.Inclusion(ctx, event.Shard, event.Position, e.stored.Leaf())
	return err
}
