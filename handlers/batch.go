package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// maxDeclarations is the most items of a batch (contract section 3).
const maxDeclarations = 500

// maxItemProblems is how many problems of an item are listed: more than a declaration has members, and so few that the
// answer stays about as large as the largest body.
const maxItemProblems = 20

// registerBatch registers up to 500 declarations with one wait for the ledger. An item that is refused costs the others
// nothing; pointers of its errors begin at the item.
func (s *server) registerBatch(r *http.Request) (any, error) {
	c := callOf(r)
	items, err := s.readBatch(r)
	if err != nil {
		return nil, err
	}
	results, errs := make([]wire.BatchResult, len(items)), make([]error, len(items))
	read := make([]domain.Declaration, len(items))
	if err := s.inTurns(r.Context(), c.access.Organization, len(items), func(i int) {
		errs[i] = contain(func() error {
			object := c.meter.Decode(items[i])
			read[i] = domain.ReadDeclaration(object)
			return invalid(strictjson.Listed(object.Problems(), maxItemProblems))
		})
	}); err != nil {
		return response{}, err
	}
	var declarations []domain.Declaration
	var sent []int // the item of each declaration
	for i := range items {
		if errs[i] == nil {
			declarations, sent = append(declarations, read[i]), append(sent, i)
		}
	}
	registrations, refused, err := s.registerAll(r.Context(), c, declarations)
	if err != nil {
		return response{}, err
	}
	for k, i := range sent {
		if errs[i] = refused[k]; errs[i] == nil {
			view := s.viewRegistration(registrations[k])
			results[i] = wire.BatchResult{Status: createdStatus(view.Replayed), Data: &view}
		}
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		if refusal(err) == nil {
			s.Log.ErrorContext(r.Context(), "item of a batch", "requestId", c.requestID, "item", i, "error", err)
		}
		explained := s.itemError(err)
		results[i] = wire.BatchResult{Status: explained.Status, Error: explained}
	}
	return wire.Batch{Results: results}, nil
}

func (s *server) readBatch(r *http.Request) (items []strictjson.Value, err error) {
	release, err := s.preparing.acquire(r.Context(), callOf(r).access.Organization, 1)
	if err != nil {
		return nil, unprepared()
	}
	defer release()
	err = decode(r, func(o *strictjson.Object) {
		items = o.Values("declarations", strictjson.Required, 1, maxDeclarations)
	})
	return items, err
}
