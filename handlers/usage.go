package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// usage shows the organization's month and what the key's companies contributed.
func (s *server) usage(r *http.Request) (any, error) {
	c := callOf(r)
	u, err := s.Store.Usage(r.Context(), c.access, domain.PeriodOf(c.start))
	return wire.Allowance{
		Plan: u.Plan, Period: u.Total.Period,
		Organization: wire.MonthlyUsage{
			Limit: u.Total.Limit, Unlimited: u.Total.Limit == nil, Used: u.Total.Used, Remaining: u.Total.Remaining(),
			ResetsAt: evidence.FormatTime(u.Total.Period.End()),
		},
		Companies: each(u.Companies, func(company query.CompanyUsage) wire.CompanyUsage { return wire.CompanyUsage(company) }),
		Warnings:  viewWarnings(u.Warnings),
	}, err
}

func viewWarnings(warnings []query.Warning) []wire.Warning {
	return each(warnings, func(w query.Warning) wire.Warning {
		return wire.Warning{Allowance: w.Allowance.String(), Percent: w.Percent, ReachedAt: evidence.FormatTime(w.ReachedAt)}
	})
}
