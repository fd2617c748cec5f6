package handlers

import (
	"cmp"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/handlers/web"
	"integrityledger/handlers/web/reference"
	"integrityledger/schemas"
)

// developerPage is the same for everybody and for the life of the process.
func (s *server) developerPage(r *http.Request) (any, error) {
	pages, err := s.guides()
	if err != nil {
		return nil, err
	}
	body, ok := pages[r.URL.Path]
	if !ok {
		return nil, domain.Refuse(domain.NotFound, "There is no such page.")
	}
	resp := cacheable(r, body)
	resp.contentType = htmlType
	for name, values := range web.PageHeader() {
		resp.header[name] = values
	}
	return resp, nil
}

// renderGuides makes the pages for developers from what this service publishes.
func (s *server) renderGuides() (map[string][]byte, error) {
	d := web.Developers{BaseURL: s.BaseURL, Operating: s.Operating}
	for _, contract := range []struct{ address, file string }{{"/api/integrity-openapi", schemas.OpenAPIFile}, {"/api/openapi", schemas.CertificationOpenAPIFile}} {
		text, err := schemas.OpenAPI(contract.file, s.BaseURL)
		if err != nil {
			return nil, err
		}
		document, err := reference.Parse(text)
		if err != nil {
			return nil, err
		}
		d.Contracts = append(d.Contracts, web.Contract{Document: document, Address: contract.address})
	}
	for _, file := range s.downloads {
		d.Downloads = append(d.Downloads, web.Download{Name: file.Name, Size: len(file.Body), SHA256: file.SHA256})
	}
	for _, name := range s.Store.Plans.Names() {
		if plan := s.Store.Plans[name]; name != domain.InternalPlan {
			d.Plans = append(d.Plans, web.Plan{Name: name, Plan: plan})
		}
	}
	slices.SortStableFunc(d.Plans, func(a, b web.Plan) int { return cmp.Compare(a.PerMinute, b.PerMinute) })
	var err error
	if d.Codes, err = ErrorCodes(); err != nil {
		return nil, err
	}
	return s.site.Developers(d)
}
