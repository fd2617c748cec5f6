package action

import (
	"context"
	"errors"
	"fmt"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewAllowance(u domain.Usage) wire.Quota {
	return wire.Quota{Limit: u.Limit, Used: u.Used, Remaining: u.Remaining()}
}

// AccountUsage shows the remaining monthly allowance of the certification API. It consumes none of it, so it also
// answers when the month is used up.
func (s *Allowances) AccountUsage(ctx context.Context, c *edge.Call, _ struct{}) (wire.AccountUsage, error) {
	month, err := s.quotaOf(ctx, c)
	return wire.AccountUsage{Plan: c.Access.Plan, Month: month.Month, PerMinuteLimit: c.Access.PerMinute}, err
}

func (s *Allowances) quotaOf(ctx context.Context, c *edge.Call) (wire.FullMonth, error) {
	period := domain.PeriodOf(c.Start)
	u, err := s.Store.AccountUsage(ctx, c.Access, period)
	end := evidence.FormatTime(period.End())
	return wire.FullMonth{Versions: viewAllowance(u.Versions), Month: wire.Month{
		Period: wire.Period{Start: evidence.FormatTime(period.Start()), End: end}, ResetsAt: end,
		Requests: viewAllowance(u.Requests), Registrations: viewAllowance(u.Registrations),
		Credits: wire.Credits{Balance: u.Credits}, Warnings: viewWarnings(u.Warnings),
	}}, err
}

// Me shows the organization, key and member of the request, and the rest of the organization's month, this request
// included.
func (s *Allowances) Me(ctx context.Context, c *edge.Call, _ struct{}) (wire.Me, error) {
	a := c.Access
	o, err := s.Store.Organization(ctx, a.Organization)
	if err != nil {
		return wire.Me{}, err
	}
	quota, err := s.quotaOf(ctx, c)
	return wire.Me{
		Organization:   wire.Organization{ID: o.ID.String(), Name: o.Name, Plan: o.Plan},
		Key:            wire.Key{ID: a.Key.String(), Scopes: a.Scopes, ExpiresAt: evidence.FormatTime(a.ExpiresAt)},
		Member:         wire.Member{ID: a.Member.String(), Role: a.Role},
		PerMinuteLimit: a.PerMinute,
		Quota:          quota,
		Versions:       s.Versions(c),
	}, err
}

// Usage shows the organization's month and the contributions of the key's companies.
func (s *Allowances) Usage(ctx context.Context, c *edge.Call, _ struct{}) (wire.Allowance, error) {
	u, err := edge.Asked(&s.Identity, c, func(allowances query.AllowanceReader) (query.IntegrityUsage, error) {
		return allowances.Usage(ctx, c.Access, domain.PeriodOf(c.Start))
	})
	return wire.Allowance{
		Plan: u.Plan, Period: u.Total.Period,
		Organization: wire.MonthlyUsage{
			Limit: u.Total.Limit, Unlimited: u.Total.Limit == nil, Used: u.Total.Used, Remaining: u.Total.Remaining(),
			ResetsAt: evidence.FormatTime(u.Total.Period.End()),
		},
		Backfill: viewAllowance(u.Backfill.Usage()),
		Companies: wire.Each(u.Companies, func(company query.CompanyUsage) wire.CompanyUsage {
			return wire.CompanyUsage(company)
		}),
		Warnings: viewWarnings(u.Warnings),
	}, err
}

func viewWarnings(warnings []query.Warning) []wire.Warning {
	return wire.Each(warnings, func(w query.Warning) wire.Warning {
		return wire.Warning{
			Allowance: w.Allowance.String(), Percent: w.Percent, Limit: w.Limit, Used: w.Used,
			ReachedAt: evidence.FormatTime(w.ReachedAt),
		}
	})
}

// EntriesQuestion asks for the entries that count against a month's allowance.
type EntriesQuestion struct {
	period domain.Period
	limit  int
	after  *query.UsageCursor
}

// ReadUsageEntries reads an EntriesQuestion; without a period it is about the current month.
func (s *Allowances) ReadUsageEntries(o *strictjson.Object) EntriesQuestion {
	asked := EntriesQuestion{period: domain.PeriodOf(s.Now())}
	o.Match("period", strictjson.Optional, func(text string) bool {
		return asked.period.UnmarshalText([]byte(text)) == nil && asked.period.String() == text
	}, "must be a month such as 2026-11")
	asked.limit = edge.ReadLimit(o)
	edge.Cursor(o, func(text string) bool {
		cursor, ok := ParseUsageCursor(text, asked.period)
		asked.after = &cursor
		return ok
	})
	return asked
}

// UsageEntries lists the entries that count against a month's allowance. All pages of a list show the state at its
// first page. A cursor beyond the history, from before a restore, is refused.
func (s *Allowances) UsageEntries(
	ctx context.Context, c *edge.Call, asked EntriesQuestion,
) (wire.UsageEntries, error) {
	page, err := s.Store.UsageEntries(ctx, c.Access, asked.period, asked.after, asked.limit)
	if errors.Is(err, query.ErrBeyondHead) {
		err = domain.InvalidMember(
			"/after", strictjson.CodeRange,
			"the cursor is from a longer history: the database was restored to an earlier state; start again without it",
		)
	}
	if err != nil {
		return wire.UsageEntries{}, err
	}
	used := wire.EntriesUsed{
		Used: page.Cursor.Used, Visible: page.Cursor.Visible, NotVisible: page.Cursor.Used - page.Cursor.Visible,
	}
	answer := wire.UsageEntries{
		Period: asked.period, ThroughSequence: page.Cursor.Through, Organization: used, Next: wire.Next{HasMore: page.More},
		Entries: wire.Each(page.Entries, func(e query.FeedEvent) wire.UsageEntry {
			return wire.UsageEntry{
				EventID: e.ID.String(), Sequence: e.Sequence, OccurredAt: evidence.FormatTime(e.OccurredAt),
				PublicID:         e.PublicID.String(),
				VersionReference: viewVersion(e, e.CompanyReference),
			}
		}),
	}
	if len(page.Entries) > 0 || asked.after != nil {
		answer.NextCursor = new(edge.FormatCursor(FormatUsageCursor(asked.period, page.Cursor)))
	}
	return answer, nil
}

// FormatUsageCursor returns the text of a cursor within the list of a month.
func FormatUsageCursor(period domain.Period, c query.UsageCursor) string {
	return fmt.Sprintf("%s %d %d %d %s %d", period, c.Through, c.Used, c.Visible, c.Company, c.Sequence)
}

// ParseUsageCursor reads a cursor of the same month. It accepts only text that FormatUsageCursor writes.
func ParseUsageCursor(text string, period domain.Period) (c query.UsageCursor, ok bool) {
	var month, company string
	_, err := fmt.Sscanf(text, "%s %d %d %d %s %d", &month, &c.Through, &c.Used, &c.Visible, &company, &c.Sequence)
	c.Company, _ = domain.ParseID[domain.CompanyID](company)
	return c, err == nil && FormatUsageCursor(period, c) == text && c.Visible <= c.Used &&
		min(c.Through, c.Visible, c.Sequence) >= 0
}
