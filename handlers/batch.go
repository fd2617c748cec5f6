package handlers

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// maxDeclarations is the most items of a batch (contract section 3).
const maxDeclarations = 500

// registerBatch registers up to 500 declarations with one wait for the ledger. An
// item that is refused costs the others nothing; pointers of its errors begin at
// the item.
func (s *server) registerBatch(r *http.Request) (response, error) {
	var items []strictjson.Value
	err := decode(r, func(o *strictjson.Object) {
		items = o.Values("declarations", strictjson.Required)
		if o.OK("declarations") && (len(items) < 1 || len(items) > maxDeclarations) {
			o.Problem("declarations", strictjson.CodeLength, fmt.Sprintf("1 to %d declarations were expected", maxDeclarations))
		}
	})
	if err != nil {
		return response{}, err
	}
	registrar, err := s.registrar()
	if err != nil {
		return response{}, err
	}
	registrations, errs := s.prepare(r, registrar, items)
	var commands []domain.Command
	var sent []int // the item of each command
	for i, registration := range registrations {
		if errs[i] == nil {
			commands, sent = append(commands, registration), append(sent, i)
		}
	}
	for k, err := range s.Ledger.Execute(r.Context(), commands...) {
		errs[sent[k]] = err
	}
	results := make([]wire.BatchResult, len(items))
	for i, registration := range registrations {
		if errs[i] == nil {
			view := s.viewRegistration(registration.Outcome)
			results[i] = wire.BatchResult{Status: created(registration.Outcome.Replayed), Data: &view}
			continue
		}
		if refusal(errs[i]) == nil {
			s.Log.ErrorContext(r.Context(), "item of a batch", "requestId", callOf(r).requestID, "item", i, "error", errs[i])
		}
		explained := s.itemError(errs[i])
		results[i] = wire.BatchResult{Status: explained.Status, Error: explained}
	}
	return response{data: wire.Batch{Results: results}}, nil
}

// prepare reads and signs the items on all cores. Exactly one of registration and
// error is set for each.
func (s *server) prepare(r *http.Request, registrar domain.Registrar, items []strictjson.Value) ([]*domain.Register, []error) {
	c := callOf(r)
	registrations, errs := make([]*domain.Register, len(items)), make([]error, len(items))
	one := func(i int) error {
		object := strictjson.Decode(items[i])
		declaration := domain.ReadDeclaration(object)
		if problems := object.Problems(); len(problems) > 0 {
			return domain.Invalid(problems)
		}
		var err error
		registrations[i], err = registrar.Prepare(cause(r), c.access.Key, c.access.Limits, declaration, c.receivedAt)
		return err
	}
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(items))
	for first := range workers {
		wg.Go(func() {
			for i := first; i < len(items); i += workers {
				_, errs[i] = s.contain(func() (response, error) { return response{}, one(i) })
			}
		})
	}
	wg.Wait()
	return registrations, errs
}
