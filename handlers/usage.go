package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections"
)

type companyUsageView struct {
	CompanyReference string `json:"companyReference"`
	Used             int64  `json:"used"`
}

type warningView struct {
	Percent   int    `json:"percent"`
	ReachedAt string `json:"reachedAt"`
}

// usage shows the organization's month and what the key's companies contributed.
func (s *server) usage(r *http.Request) (response, error) {
	if err := newQuery(r).refusal(); err != nil {
		return response{}, err
	}
	c := callOf(r)
	u, err := s.Store.Usage(r.Context(), c.access, domain.PeriodOf(c.start))
	if err != nil {
		return response{}, err
	}
	var answer struct {
		Plan         string        `json:"plan"`
		Period       domain.Period `json:"period"`
		Organization struct {
			Limit     *int64 `json:"limit"`
			Unlimited bool   `json:"unlimited"`
			Used      int64  `json:"used"`
			Remaining *int64 `json:"remaining"`
			ResetsAt  string `json:"resetsAt"`
		} `json:"organization"`
		Companies []companyUsageView `json:"companies"`
		Warnings  []warningView      `json:"warnings"`
	}
	answer.Plan, answer.Period = u.Plan, u.Total.Period
	o := &answer.Organization
	o.Limit, o.Unlimited, o.Used, o.Remaining = u.Total.Limit, u.Total.Limit == nil, u.Total.Used, u.Total.Remaining()
	o.ResetsAt = evidence.FormatTime(u.Total.Period.End())
	answer.Companies = make([]companyUsageView, len(u.Companies))
	for i, company := range u.Companies {
		answer.Companies[i] = companyUsageView(company)
	}
	answer.Warnings = viewWarnings(u.Warnings)
	return response{data: answer}, nil
}

func viewWarnings(warnings []projections.Warning) []warningView {
	views := make([]warningView, len(warnings))
	for i, w := range warnings {
		views[i] = warningView{w.Percent, evidence.FormatTime(w.ReachedAt)}
	}
	return views
}
