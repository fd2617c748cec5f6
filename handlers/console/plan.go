package console

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// Numbers of months and entries on the page of the plan, and of entries in a piece of the file.
const (
	monthsShown  = 12
	entriesShown = 50
	entriesPiece = 500
)

// Names of allowances for which there are no warnings: the daily one of administrative events and the backfill.
const (
	administrativeAllowance = "administrativeEvents"
	backfillAllowance       = "backfill"
)

// endpoints adds the page of the plan, and the month's entries as a file.
func (s planPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityRead}
	both(edge.Get, "/plan", s.plan, see)
	both(edge.Get, "/plan/entries.csv", s.usageFile, see)
}

// monthsOf returns the last months of the organization, newest first, and the month that the request names, or
// otherwise this month.
func (s planPages) monthsOf(r *http.Request) (months []domain.Period, named domain.Period, err error) {
	c := edge.CallOf(r)
	o, err := s.Store.Organization(r.Context(), c.Session.Organization)
	if err != nil {
		return nil, 0, err
	}
	named = domain.PeriodOf(c.Start)
	for p := named; len(months) == 0 || len(months) < monthsShown && p >= domain.PeriodOf(o.CreatedAt); p = p.Previous() {
		if months = append(months, p); r.URL.Query().Get("period") == p.String() {
			named = p
		}
	}
	return months, named, nil
}

// plan shows the plan, this month's use of it, the previous months, and the entries of one month.
func (s planPages) plan(r *http.Request) (any, error) {
	ctx, c := r.Context(), edge.CallOf(r)
	periods, period, err := s.monthsOf(r)
	if err != nil {
		return nil, err
	}
	months, err := s.Store.MonthlyLimits(ctx, c.Access, periods...)
	if err != nil {
		return nil, err
	}
	day, limit, err := s.Store.Administered(ctx, c.Access, c.Start)
	if err != nil {
		return nil, err
	}
	shown := web.PlanPage{
		Console: s.frameOf(r, "plan"), Plan: c.Access.Plan, Resets: periods[0].End(), Period: period,
		Day: web.Allowance{Name: administrativeAllowance, Used: day.Used, Limit: limit}, Tomorrow: day.End(),
	}
	for i, m := range months {
		uses := viewUses(m)
		if i == 0 {
			if shown.Allowances, shown.Reservations, err = s.usesOf(ctx, c, m, periods[0]); err != nil {
				return nil, err
			}
		}
		shown.Months = append(shown.Months, web.Month{
			Period: periods[i], Shown: periods[i] == period, Used: wire.Each(uses, func(a web.Allowance) int64 {
				return a.Used
			}),
		})
	}
	backfill, err := s.Store.Backfill(ctx, c.Access.Organization)
	if err != nil {
		return nil, err
	}
	if backfill.Left() > 0 {
		shown.Backfill = []web.Allowance{{Name: backfillAllowance, Used: backfill.Used, Limit: &backfill.Versions}}
	}
	return s.showEntries(r, shown, period)
}

// viewUses returns the view of a month's allowances.
func viewUses(m query.MonthlyLimits) []web.Allowance {
	return []web.Allowance{
		viewUse(domain.VersionsAllowance, m.Versions), viewUse(domain.RequestsAllowance, m.Requests),
		viewUse(domain.RegistrationsAllowance, m.Registrations), viewUse(domain.AttemptsAllowance, m.WebhookAttempts),
	}
}

func viewUse(a domain.Allowance, u domain.Usage) web.Allowance {
	return web.Allowance{Name: a.String(), Used: u.Used, Limit: u.Limit}
}

// usesOf returns this month's allowances, and the present use of reservations, with the marks at which the organization
// is warned.
func (s *Console) usesOf(
	ctx context.Context, c *edge.Call, m query.MonthlyLimits, period domain.Period,
) (month, reservations []web.Allowance, err error) {
	pending, unfinalized, err := s.Store.Reserved(ctx, c.Access, c.Start)
	if err != nil {
		return nil, nil, err
	}
	uses := append(
		viewUses(m), viewUse(domain.PendingAllowance, pending), viewUse(domain.UnfinalizedAllowance, unfinalized),
	)
	reserved := len(uses) - 2
	return uses[:reserved], uses[reserved:], s.mark(ctx, c, uses, period)
}

// mark adds the warning marks to allowances.
func (s *Console) mark(ctx context.Context, c *edge.Call, uses []web.Allowance, period domain.Period) error {
	month, err := s.Store.AccountUsage(ctx, c.Access, period)
	if err != nil {
		return err
	}
	for i := range uses {
		for _, percent := range domain.WarningPercents() {
			mark := web.Mark{Percent: percent}
			for _, w := range month.Warnings {
				if w.Allowance.String() == uses[i].Name && w.Percent == percent {
					mark.ReachedAt, mark.Used, mark.Limit = &w.ReachedAt, w.Used, w.Limit
				}
			}
			uses[i].Marks = append(uses[i].Marks, mark)
		}
	}
	return nil
}

// showEntries adds a page of a month's entries. A cursor of another month, or beyond the history, leads to the first
// page.
func (s planPages) showEntries(r *http.Request, shown web.PlanPage, period domain.Period) (any, error) {
	c, after, asked := edge.CallOf(r), (*query.UsageCursor)(nil), edge.NewQuery(r)
	edge.Cursor(asked, func(text string) bool {
		cursor, ok := action.ParseUsageCursor(text, period)
		if ok {
			after = &cursor
		}
		return ok
	})
	page, err := s.Store.UsageEntries(r.Context(), c.Access, period, after, entriesShown)
	if errors.Is(err, query.ErrBeyondHead) {
		after = nil
		page, err = s.Store.UsageEntries(r.Context(), c.Access, period, nil, entriesShown)
	}
	if err != nil {
		return nil, err
	}
	address := func(path string, q url.Values) string {
		q.Set("period", period.String())
		return web.Path(edge.Language(r), web.ConsoleRoot+path) + "?" + q.Encode()
	}
	shown.Used, shown.CSV = page.Cursor.Used, address("/plan/entries.csv", url.Values{})
	shown.Entries = wire.Each(page.Entries, func(e query.FeedEvent) web.Entry {
		return web.Entry{
			At: e.OccurredAt, PublicID: e.PublicID.String(), Company: e.CompanyReference, Source: e.Source,
			Document: e.DocumentReference, Version: e.Version,
		}
	})
	if after != nil {
		shown.First = address("/plan", url.Values{}) + "#entries"
	}
	if page.More {
		shown.Next = address(
			"/plan", url.Values{"after": {edge.FormatCursor(action.FormatUsageCursor(period, page.Cursor))}},
		) + "#entries"
	}
	return consolePageOf(s.site.PlanPage(shown))
}

// usageFile answers a month's entries as a CSV file. Only one piece is in memory at a time.
func (s planPages) usageFile(r *http.Request) (any, error) {
	_, period, err := s.monthsOf(r)
	if err != nil {
		return nil, err
	}
	access := edge.CallOf(r).Access
	first, err := s.Store.UsageEntries(r.Context(), access, period, nil, entriesPiece)
	if err != nil {
		return nil, err
	}
	return edge.Response{
		Pieces:      s.usagePieces(context.WithoutCancel(r.Context()), access, period, first),
		ContentType: "text/csv; charset=utf-8; header=present", Cache: edge.NoStore,
		Header: http.Header{"Content-Disposition": {`attachment; filename="usage-` + period.String() + `.csv"`}},
	}, nil
}

// usagePieces returns the lines of a month's entries, all as of the first page.
func (s planPages) usagePieces(
	ctx context.Context, a domain.Access, period domain.Period, page query.UsageEntries,
) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		piece := wire.AppendCSV(
			nil, "sequence", "occurredAt", "companyReference", "source", "documentReference", "version", "publicId", "eventId",
		)
		for {
			for _, e := range page.Entries {
				piece = wire.AppendCSV(piece, strconv.FormatInt(e.Sequence, 10), evidence.FormatTime(e.OccurredAt),
					e.CompanyReference, e.Source, e.DocumentReference,
					strconv.Itoa(int(e.Version)), e.PublicID.String(), e.ID.String())
			}
			if !yield(piece, nil) || !page.More {
				return
			}
			var err error
			if page, err = s.Store.UsageEntries(ctx, a, period, &page.Cursor, entriesPiece); err != nil {
				yield(nil, err)
				return
			}
			piece = piece[:0]
		}
	}
}
