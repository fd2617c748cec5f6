package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

func viewAllowance(u domain.Usage) wire.Quota {
	return wire.Quota{Limit: u.Limit, Used: u.Used, Remaining: u.Remaining()}
}

// accountUsage shows what is left of the month at the certification API. It consumes none of it, so it also answers
// when the month is used up.
func (s *server) accountUsage(r *http.Request) (any, error) {
	return s.monthOf(r.Context(), callOf(r))
}

func (s *server) monthOf(ctx context.Context, c *call) (wire.AccountUsage, error) {
	month, err := s.quotaOf(ctx, c)
	return wire.AccountUsage{Plan: c.access.Plan, Month: month, PerMinuteLimit: c.access.PerMinute}, err
}

func (s *server) quotaOf(ctx context.Context, c *call) (wire.Month, error) {
	period := domain.PeriodOf(c.start)
	u, err := s.Store.AccountUsage(ctx, c.access, period)
	end := evidence.FormatTime(period.End())
	return wire.Month{
		Period: wire.Period{Start: evidence.FormatTime(period.Start()), End: end}, ResetsAt: end,
		Requests: viewAllowance(u.Requests), Registrations: viewAllowance(u.Registrations),
		Credits: wire.Credits{Balance: u.Credits}, Warnings: viewWarnings(u.Warnings),
	}, err
}

// me shows the organization, the key and the member of a request, and what is left of the organization's month, this
// request included.
func (s *server) me(r *http.Request) (any, error) {
	c := callOf(r)
	a := c.access
	o, err := s.Store.Organization(r.Context(), a.Organization)
	if err != nil {
		return nil, err
	}
	quota, err := s.quotaOf(r.Context(), c)
	if err != nil {
		return nil, err
	}
	versions, err := s.Store.Usage(r.Context(), a, domain.PeriodOf(c.start))
	quota.Warnings = append(viewWarnings(versions.Warnings), quota.Warnings...)
	return wire.Me{
		Organization:   wire.Organization{ID: o.ID.String(), Name: o.Name, Plan: o.Plan},
		Key:            wire.Key{ID: a.Key.String(), Scopes: a.Scopes, ExpiresAt: evidence.FormatTime(a.ExpiresAt)},
		Member:         wire.Member{ID: a.Member.String(), Role: a.Role},
		PerMinuteLimit: a.PerMinute,
		Quota:          wire.FullMonth{Versions: viewAllowance(versions.Total), Month: quota},
	}, err
}
