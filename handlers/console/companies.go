package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// Numbers of companies on a page, and of keys in its matrix. A saved form names all of them.
const (
	companyRows = 25
	keyColumns  = 12
)

// endpoints adds the pages of companies and of their access by keys.
func (s companyPages) endpoints(both addition) {
	manage := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityAdmin}
	act := manage
	act.Body = edge.BodyForm
	both(
		edge.Get, "/companies", s.companiesPage,
		edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityRead},
	)
	both(edge.Post, "/companies", s.createCompanyByForm, act)
	for step, status := range map[string]domain.CompanyStatus{
		"close": domain.CompanyClosedStatus, "open": domain.CompanyActive,
	} {
		both(edge.Get, "/companies/{reference}/"+step, s.confirmCompanyStatus(status), manage)
		both(edge.Post, "/companies/{reference}/"+step, s.changeCompanyStatus(status), act)
	}
	act.Body = edge.BodyLongForm
	both(edge.Post, "/companies/access", s.saveAccess, act)
}

// placeOf reads from the query where a list of companies and the columns of its matrix begin. Malformed values mean the
// beginning.
func placeOf(r *http.Request) (after string, key domain.KeyID) {
	q := r.URL.Query()
	if after = q.Get("after"); !domain.ValidReference(after) {
		after = ""
	}
	key, _ = domain.ParseID[domain.KeyID](q.Get("keys"))
	return after, key
}

// companiesAt returns the address of the companies after a place.
func companiesAt(r *http.Request, path, after string, key domain.KeyID) string {
	place := url.Values{}
	if after != "" {
		place.Set("after", after)
	}
	if !key.IsZero() {
		place.Set("keys", key.String())
	}
	if len(place) > 0 {
		path += "?" + place.Encode()
	}
	return web.Path(edge.Language(r), web.ConsoleRoot+path)
}

func (s companyPages) companiesPage(r *http.Request) (any, error) {
	return s.showCompanies(r, web.Companies{})
}

// showCompanies shows a page of companies, and to members who manage access the matrix of active keys.
func (s companyPages) showCompanies(r *http.Request, shown web.Companies) (any, error) {
	ctx, c := r.Context(), edge.CallOf(r)
	after, firstKey := placeOf(r)
	list, more, err := s.Store.Companies(ctx, c.Access, true, "", after, companyRows)
	if err != nil {
		return nil, err
	}
	shown.Console, shown.Manages = s.frameOf(r, "companies"), c.Session.Role.Allows(domain.IntegrityAdmin)
	shown.Rows = wire.Each(list, func(company domain.Company) web.Company {
		return web.Company{
			ID: company.ID.String(), Reference: company.Reference, CreatedAt: company.CreatedAt, ClosedAt: company.ClosedAt,
		}
	})
	shown.Save = companiesAt(r, "/companies/access", after, firstKey)
	if after != "" {
		shown.First = companiesAt(r, "/companies", "", firstKey)
	}
	if more {
		shown.Next = companiesAt(r, "/companies", list[len(list)-1].Reference, firstKey)
	}
	if shown.Manages {
		keys, more, err := s.Store.LivingKeys(ctx, c.Access.Organization, c.Start, firstKey, keyColumns)
		if err != nil {
			return nil, err
		}
		granted, err := s.Store.GrantsAmong(ctx, c.Access.Organization,
			wire.Each(keys, func(k query.GrantedKey) domain.KeyID {
				return k.ID
			}),
			wire.Each(list, func(company domain.Company) domain.CompanyID { return company.ID }))
		if err != nil {
			return nil, err
		}
		for i, company := range list {
			shown.Rows[i].Granted = wire.Each(keys, func(k query.GrantedKey) bool {
				return granted[query.KeyCompany{Key: k.ID, Company: company.ID}]
			})
		}
		shown.Keys = wire.Each(keys, func(k query.GrantedKey) web.KeyName { return keyName(k.UsedKey) })
		if !firstKey.IsZero() {
			shown.FirstKeys = companiesAt(r, "/companies", after, domain.KeyID{})
		}
		if more {
			shown.NextKeys = companiesAt(r, "/companies", after, keys[len(keys)-1].ID)
		}
	}
	resp, err := consolePageOf(s.site.Companies(shown))
	if shown.Error != "" {
		resp.Status, resp.Code = http.StatusUnprocessableEntity, domain.InvalidData
	}
	return resp, err
}

// keyName returns the name of a key for people.
func keyName(k query.UsedKey) web.KeyName {
	name := web.KeyName{ID: k.ID.String()}
	if k.Name != nil {
		name.Name = *k.Name
	}
	return name
}

// createCompanyByForm creates a company with the typed reference.
func (s companyPages) createCompanyByForm(r *http.Request) (any, error) {
	refuse := func(rule string) (any, error) {
		return s.showCompanies(r, web.Companies{Error: rule, Typed: edge.Form(r).Get("reference")})
	}
	reference, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadCompany)
	if err != nil {
		return refuse("Malformed")
	}
	created, err := s.CreateCompany(r.Context(), edge.CallOf(r), reference)
	switch {
	case err != nil && edge.Refusal(err) != nil && edge.Refusal(err).Code == domain.CompanyLimit:
		return refuse("Limit")
	case err != nil && edge.Refusal(err) != nil && edge.Refusal(err).Code == domain.InvalidData:
		return refuse("Reserved")
	case err != nil:
		return nil, err
	case created.Replayed:
		return refuse("Exists")
	}
	return onward(r, saying("/companies", "company")), nil
}

// confirmCompanyStatus explains the effect of closing or reopening a company before the change is made.
func (s companyPages) confirmCompanyStatus(status domain.CompanyStatus) edge.Handler {
	return func(r *http.Request) (any, error) {
		company, err := s.Store.CompanyByReference(
			r.Context(), edge.CallOf(r).Access.Organization, edge.Variable(r, "reference"),
		)
		if err != nil {
			return nil, err
		}
		name := "company-open"
		if status == domain.CompanyClosedStatus {
			name = "company-close"
		}
		return consolePageOf(s.site.CompanyStatus(s.frameOf(r, name), company.Reference))
	}
}

func (s companyPages) changeCompanyStatus(status domain.CompanyStatus) edge.Handler {
	return func(r *http.Request) (any, error) {
		company, err := s.Store.CompanyByReference(
			r.Context(), edge.CallOf(r).Access.Organization, edge.Variable(r, "reference"),
		)
		if err != nil {
			return nil, err
		}
		_, err = s.SetCompanyStatus(r.Context(), edge.CallOf(r), domain.SetCompanyStatus{Company: company.ID, Status: status})
		return onward(r, "/companies"), err
	}
}

// formChanges is the number of changes that one form may make. Each is a command. It fits into the minute of every plan
// in the embedded table.
const formChanges = 25

// boundForm refuses a form with more changes to a field than formChanges or the organization's minute allows: such a
// form could never be saved.
func (s *Console) boundForm(r *http.Request, field string, changes int) error {
	limit := min(formChanges, edge.CallOf(r).Access.PerMinute)
	if changes <= limit {
		return nil
	}
	err := domain.InvalidMember("/"+field, strictjson.CodeLength,
		"must change at most %d entries in one form; save in several steps", limit)
	return err.Of(field, int64(limit))
}

// saveAccess grants the ticked cells and withdraws the others. The form says which state it showed, so changes that
// others have made meanwhile remain.
func (s companyPages) saveAccess(r *http.Request) (any, error) {
	f := edge.Form(r)
	if len(f["company"]) > companyRows || len(f["key"]) > keyColumns {
		return nil, s.boundForm(r, "cell", companyRows*keyColumns) // no page of the console sends this
	}
	var changes []domain.SetAccess
	for i, row := range f["company"] {
		company, _ := domain.ParseID[domain.CompanyID](row)
		for j, column := range f["key"] {
			key, _ := domain.ParseID[domain.KeyID](column)
			cell := fmt.Sprintf("%d.%d", i, j)
			if ticked := slices.Contains(f["cell"], cell); ticked != slices.Contains(f["was"], cell) {
				changes = append(changes, domain.SetAccess{Company: company, Key: key, Enabled: ticked})
			}
		}
	}
	if err := s.boundForm(r, "cell", len(changes)); err != nil {
		return nil, err
	}
	if err := s.ChangeAccess(r.Context(), edge.CallOf(r), changes); err != nil {
		return nil, err
	}
	after, key := placeOf(r)
	return edge.Redirect(saying(companiesAt(r, "/companies", after, key)+"#access", "access")), nil
}
