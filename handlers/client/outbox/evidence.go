package outbox

import (
	"context"
	"encoding/json"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// fetchEvidence fetches the evidence of rows in one request. It is the only place that asks for evidence. The evidence
// of a row whose proof of inclusion may still come is errIncomplete.
func (w *Worker) fetchEvidence(ctx context.Context, items []Item) []error {
	asked := wire.EvidenceRequest{Timestamps: w.config.Timestamps}
	for _, i := range items {
		asked.PublicIDs = append(asked.PublicIDs, i.Record.PublicID)
	}
	results, err := w.config.Client.EvidenceOfMany(ctx, asked)
	errs := make([]error, len(items))
	for k := range items {
		switch {
		case err != nil:
			errs[k] = err
		case results[k].Err == nil:
			items[k].Evidence = results[k].Evidence
		case results[k].Err.Code == domain.InclusionPending:
			errs[k] = errIncomplete
		default:
			errs[k] = results[k].Err
		}
	}
	return errs
}

// errIncomplete means that evidence does not have its inclusion or its token yet.
var errIncomplete = say.New("the record is not in the transparency log yet, or not stamped")

// evidenceError is evidence that the pinned keys do not verify.
type evidenceError struct{ error }

func (e evidenceError) Unwrap() error { return e.error }

// export fetches, verifies and stores the evidence of registered rows.
func (w *Worker) export(ctx context.Context, c claimed) error {
	began, items := w.config.Now(), c.items
	errs := w.fetchEvidence(ctx, items)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for k := range items {
		i := &items[k]
		if errs[k] == nil && w.config.Trusted != nil {
			if _, wrong := client.VerifyDeclared(i.Evidence, w.config.Trusted, i.Declaration, began); wrong != nil {
				errs[k], i.Evidence = evidenceError{wrong}, nil
			}
		}
		switch {
		case ofKey(errs[k]):
			return say.Errorf("the service refuses the key: %w", errs[k])
		case errs[k] != nil:
			continue
		}
		i.Complete = w.complete(i.Evidence)
		if !i.Complete {
			errs[k] = errIncomplete
		}
	}
	return w.saveOutcomes(ctx, &w.exporting, c, errs, began)
}

// complete reports whether evidence has everything that the worker waits for. Evidence that comes without a proof of
// inclusion never gets one, nor a token.
func (w *Worker) complete(receipt []byte) bool {
	var has struct {
		Inclusion  *json.RawMessage
		Timestamps []json.RawMessage
	}
	err := json.Unmarshal(receipt, &has)
	return err == nil && (has.Inclusion == nil || !w.config.Timestamps || len(has.Timestamps) > 0)
}
