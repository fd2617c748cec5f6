package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
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
	return wire.AccountUsage{Plan: c.access.Plan, Month: month.Month, PerMinuteLimit: c.access.PerMinute}, err
}

func (s *server) quotaOf(ctx context.Context, c *call) (wire.FullMonth, error) {
	period := domain.PeriodOf(c.start)
	versions, u, err := s.everyAllowance(ctx, c, period)
	end := evidence.FormatTime(period.End())
	return wire.FullMonth{Versions: viewAllowance(versions), Month: wire.Month{
		Period: wire.Period{Start: evidence.FormatTime(period.Start()), End: end}, ResetsAt: end,
		Requests: viewAllowance(u.Requests), Registrations: viewAllowance(u.Registrations),
		Credits: wire.Credits{Balance: u.Credits}, Warnings: viewWarnings(u.Warnings),
	}}, err
}

// everyAllowance reads the organization's new versions, and its month at the certification API with the warnings of all
// allowances.
func (s *server) everyAllowance(ctx context.Context, c *call, period domain.Period) (domain.Usage, query.AccountUsage, error) {
	versions, err := s.Store.Usage(ctx, c.access, period)
	if err != nil {
		return versions.Total, query.AccountUsage{}, err
	}
	u, err := s.Store.AccountUsage(ctx, c.access, period)
	u.Warnings = append(versions.Warnings, u.Warnings...)
	return versions.Total, u, err
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
	return wire.Me{
		Organization:   wire.Organization{ID: o.ID.String(), Name: o.Name, Plan: o.Plan},
		Key:            wire.Key{ID: a.Key.String(), Scopes: a.Scopes, ExpiresAt: evidence.FormatTime(a.ExpiresAt)},
		Member:         wire.Member{ID: a.Member.String(), Role: a.Role},
		PerMinuteLimit: a.PerMinute,
		Quota:          quota,
		Versions:       s.versions(r),
	}, err
}

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
		return wire.Warning{Allowance: w.Allowance.String(), Percent: w.Percent, Limit: w.Limit, Used: w.Used, ReachedAt: evidence.FormatTime(w.ReachedAt)}
	})
}

func (s *server) usageEntries(r *http.Request) (any, error) {
	c := callOf(r)
	q := newQuery(r)
	period := domain.PeriodOf(c.start)
	q.Match("period", strictjson.Optional, func(text string) bool {
		return period.UnmarshalText([]byte(text)) == nil && period.String() == text
	}, "must be a month such as 2026-11")
	limit := readLimit(q)
	var after *query.UsageCursor
	cursor(q, func(text string) bool {
		cursor, ok := parseUsageCursor(text, period)
		after = &cursor
		return ok
	})
	if err := invalid(q.Problems()); err != nil {
		return response{}, err
	}
	page, err := s.Store.UsageEntries(r.Context(), c.access, period, after, limit)
	if errors.Is(err, query.ErrBeyondHead) {
		err = invalidParameter("after", "the cursor is of a longer history than there is: the database was restored to an earlier state; begin again")
	}
	if err != nil {
		return response{}, err
	}
	used := wire.EntriesUsed{Used: page.Cursor.Used, Visible: page.Cursor.Visible, NotVisible: page.Cursor.Used - page.Cursor.Visible}
	answer := wire.UsageEntries{
		Period: period, ThroughSequence: page.Cursor.Through, Organization: used, Next: wire.Next{HasMore: page.More},
		Entries: each(page.Entries, func(e query.FeedEvent) wire.UsageEntry {
			return wire.UsageEntry{
				EventID: e.ID.String(), Sequence: e.Sequence, OccurredAt: evidence.FormatTime(e.OccurredAt), PublicID: e.PublicID.String(),
				VersionReference: viewVersion(e, e.CompanyReference),
			}
		}),
	}
	if len(page.Entries) > 0 || after != nil {
		answer.NextCursor = new(formatCursor(formatUsageCursor(period, page.Cursor)))
	}
	return answer, nil
}

func formatUsageCursor(period domain.Period, c query.UsageCursor) string {
	return fmt.Sprintf("%s %d %d %d %s %d", period, c.Through, c.Used, c.Visible, c.Company, c.Sequence)
}

// parseUsageCursor reads a cursor of the same month. Only what formatUsageCursor writes is one.
func parseUsageCursor(text string, period domain.Period) (c query.UsageCursor, ok bool) {
	var month, company string
	_, err := fmt.Sscanf(text, "%s %d %d %d %s %d", &month, &c.Through, &c.Used, &c.Visible, &company, &c.Sequence)
	c.Company, _ = domain.ParseID[domain.CompanyID](company)
	return c, err == nil && formatUsageCursor(period, c) == text && c.Visible <= c.Used && min(c.Through, c.Visible, c.Sequence) >= 0
}
