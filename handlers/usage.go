package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
	"integrityledger/projections"
)

// usage shows the organization's month and what the key's companies contributed.
func (s *server) usage(r *http.Request) (response, error) {
	c := callOf(r)
	u, err := s.Store.Usage(r.Context(), c.access, domain.PeriodOf(c.start))
	if err != nil {
		return response{}, err
	}
	var answer wire.Allowance
	answer.Plan, answer.Period = u.Plan, u.Total.Period
	o := &answer.Organization
	o.Limit, o.Unlimited, o.Used, o.Remaining = u.Total.Limit, u.Total.Limit == nil, u.Total.Used, u.Total.Remaining()
	o.ResetsAt = evidence.FormatTime(u.Total.Period.End())
	answer.Companies = make([]wire.CompanyUsage, len(u.Companies))
	for i, company := range u.Companies {
		answer.Companies[i] = wire.CompanyUsage(company)
	}
	answer.Warnings = viewWarnings(u.Warnings)
	return response{data: answer}, nil
}

func viewWarnings(warnings []projections.Warning) []wire.Warning {
	views := make([]wire.Warning, len(warnings))
	for i, w := range warnings {
		views[i] = wire.Warning{Allowance: w.Allowance.String(), Percent: w.Percent, ReachedAt: evidence.FormatTime(w.ReachedAt)}
	}
	return views
}
