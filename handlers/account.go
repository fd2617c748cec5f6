package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

type allowanceView struct {
	Limit     *int64 `json:"limit"`
	Used      int64  `json:"used"`
	Remaining *int64 `json:"remaining"`
}

func viewAllowance(u domain.Usage) allowanceView {
	return allowanceView{Limit: u.Limit, Used: u.Used, Remaining: u.Remaining()}
}

// accountUsage shows what is left of the month at the certification endpoints. It
// consumes none of it, so it answers when the month is used up.
func (s *server) accountUsage(r *http.Request) (response, error) {
	usage, err := s.monthOf(r.Context(), callOf(r))
	return response{data: usage}, err
}

type accountUsageView struct {
	Plan string `json:"plan"`
	quotaView
	PerMinuteLimit int `json:"perMinuteLimit"`
}

// quotaView is what is left of the month at the certification endpoints.
type quotaView struct {
	Period struct {
		Start string `json:"start"`
		End   string `json:"end"`
	} `json:"period"`
	Requests      allowanceView `json:"requests"`
	Registrations allowanceView `json:"registrations"`
	Credits       struct {
		Balance int64 `json:"balance"`
	} `json:"credits"`
	ResetsAt string         `json:"resetsAt"`
	Warnings []wire.Warning `json:"warnings"`
}

// monthOf reads the organization's month at the certification endpoints.
func (s *server) monthOf(ctx context.Context, c *call) (accountUsageView, error) {
	quota, err := s.quotaOf(ctx, c)
	return accountUsageView{Plan: c.access.Plan, quotaView: quota, PerMinuteLimit: c.access.PerMinute}, err
}

func (s *server) quotaOf(ctx context.Context, c *call) (answer quotaView, err error) {
	period := domain.PeriodOf(c.start)
	u, err := s.Store.AccountUsage(ctx, c.access, period)
	if err != nil {
		return answer, err
	}
	answer.Period.Start, answer.Period.End = evidence.FormatTime(period.Start()), evidence.FormatTime(period.End())
	answer.ResetsAt = answer.Period.End
	answer.Requests, answer.Registrations = viewAllowance(u.Requests), viewAllowance(u.Registrations)
	answer.Credits.Balance = u.Credits
	answer.Warnings = viewWarnings(u.Warnings)
	return answer, nil
}

// me shows the organization, the key and the member of a request, and what is
// left of the organization's month, this request included.
func (s *server) me(r *http.Request) (response, error) {
	c := callOf(r)
	a := c.access
	o, err := s.Store.Organization(r.Context(), a.Organization)
	if err != nil {
		return response{}, err
	}
	quota, err := s.quotaOf(r.Context(), c)
	if err != nil {
		return response{}, err
	}
	versions, err := s.Store.Usage(r.Context(), a, domain.PeriodOf(c.start))
	if err != nil {
		return response{}, err
	}
	quota.Warnings = append(viewWarnings(versions.Warnings), quota.Warnings...)
	type organizationView struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Plan string `json:"plan"`
	}
	type keyView struct {
		ID        string         `json:"id"`
		Scopes    []domain.Scope `json:"scopes"`
		ExpiresAt string         `json:"expiresAt"`
	}
	type memberView struct {
		ID   string      `json:"id"`
		Role domain.Role `json:"role"`
	}
	return response{data: struct {
		Organization   organizationView `json:"organization"`
		Key            keyView          `json:"key"`
		Member         memberView       `json:"member"`
		PerMinuteLimit int              `json:"perMinuteLimit"`
		Quota          any              `json:"quota"`
	}{
		organizationView{o.ID.String(), o.Name, o.Plan},
		keyView{a.Key.String(), a.Scopes, evidence.FormatTime(a.ExpiresAt)},
		memberView{a.Member.String(), a.Role},
		a.PerMinute,
		struct {
			Versions allowanceView `json:"versions"`
			quotaView
		}{viewAllowance(versions.Total), quota},
	}}, nil
}
