package handlers

import (
	"encoding/base64"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

func viewCompany(c domain.Company) wire.Company {
	return wire.Company{ID: c.ID.String(), Reference: c.Reference, Status: "active", CreatedAt: evidence.FormatTime(c.CreatedAt)}
}

// createCompany answers 201, or 200 where the reference exists.
func (s *server) createCompany(r *http.Request) (response, error) {
	var reference string
	if err := decode(r, func(o *strictjson.Object) { reference = domain.ReadReference(o, "reference") }); err != nil {
		return response{}, err
	}
	command, err := domain.NewCreateCompany(origin(r), reference, s.Now(), s.Random)
	if err != nil {
		return response{}, err
	}
	if err := s.execute(r.Context(), command); err != nil {
		return response{}, err
	}
	return response{status: created(command.Outcome.Replayed), data: wire.CreatedCompany{
		Company: viewCompany(command.Outcome.Company), Replayed: command.Outcome.Replayed,
	}}, nil
}

func created(replayed bool) int {
	if replayed {
		return http.StatusOK
	}
	return http.StatusCreated
}

// listCompanies shows the companies granted to the key; all of them to who may
// administer them.
func (s *server) listCompanies(r *http.Request) (response, error) {
	q := newQuery(r)
	all := q.boolean("all")
	limit := int(q.integer("limit", 1, 1000, 100, strictjson.Optional))
	after := q.cursor("after", domain.ValidReference)
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	access := callOf(r).access
	if all {
		if err := access.Authorize(domain.IntegrityAdmin); err != nil {
			return response{}, err
		}
	}
	companies, more, err := s.Store.Companies(r.Context(), access, all, after, limit)
	if err != nil {
		return response{}, err
	}
	var answer wire.Companies
	answer.Companies, answer.HasMore = make([]wire.Company, len(companies)), more
	for i, c := range companies {
		answer.Companies[i] = viewCompany(c)
	}
	if len(companies) > 0 {
		next := formatCursor(companies[len(companies)-1].Reference)
		answer.NextCursor = &next
	} else if given := q.values.Get("after"); given != "" {
		answer.NextCursor = &given
	}
	return response{data: answer}, nil
}

// A cursor is opaque to callers: it is what the last entry of the page before is ordered by.
func formatCursor(text string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// cursor reads a cursor whose text must be valid; "" where none is given.
func (q *parameters) cursor(name string, valid func(text string) bool) string {
	value, given := q.text(name, strictjson.Optional)
	if !given {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || !valid(string(text)) || formatCursor(string(text)) != value {
		q.problem(name, strictjson.CodeFormat, "the nextCursor of an earlier page was expected")
	}
	return string(text)
}

// readAccess reads who is given access to the company of the path, or has it taken
// away: the member name holds an id that parse knows.
func readAccess[ID any](r *http.Request, name string, parse func(string) (ID, error)) (company domain.CompanyID, id ID, enabled bool, err error) {
	err = decode(r, func(o *strictjson.Object) {
		text := o.String(name, strictjson.Required)
		enabled = o.Bool("enabled", strictjson.Required)
		if o.OK(name) {
			var err error
			if id, err = parse(text); err != nil {
				o.Problem(name, strictjson.CodeFormat, err.Error())
			}
		}
	})
	if err != nil {
		return company, id, false, err
	}
	company, err = domain.ParseID[domain.CompanyID](variable(r, "companyId"))
	if err != nil {
		company = domain.CompanyID{} // names no company: answers as an unknown one
	}
	return company, id, enabled, nil
}

// setAccess grants a key a company or takes the grant back.
func (s *server) setAccess(r *http.Request) (response, error) {
	company, key, enabled, err := readAccess(r, "keyId", domain.ParseID[domain.KeyID])
	if err != nil {
		return response{}, err
	}
	command, err := domain.NewSetAccess(origin(r), company, key, enabled, s.Now(), s.Random)
	if err != nil {
		return response{}, err
	}
	if err := s.execute(r.Context(), command); err != nil {
		return response{}, err
	}
	return response{data: wire.KeyAccess{
		CompanyID: company.String(), KeyID: key.String(), Enabled: enabled, UpdatedAt: evidence.FormatTime(command.Outcome.UpdatedAt),
	}}, nil
}
