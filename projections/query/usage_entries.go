package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// UsageCursor is a position in a month's entries: behind an entry of a company, with companies in the order of their
// creation. It holds the month's figures as of the first page, so that figures and entries agree on all pages although
// new versions arrive meanwhile.
type UsageCursor struct {
	Through  int64 // the organization's sequence then: later entries are left out
	Used     int64 // by the organization
	Visible  int64 // of Used, by companies that the key might use
	Company  domain.CompanyID
	Sequence int64
}

// UsageEntries is a page of a month's entries: the new versions that its allowance was charged with, each a registration
// in the feed.
type UsageEntries struct {
	Entries []FeedEvent
	Cursor  UsageCursor // behind the last entry
	More    bool
}

const loadMonth = `SELECT o.sequence,
		coalesce((SELECT t.used FROM usage t WHERE t.shard = $1 AND t.organization_id = $2 AND t.period = $3
			AND t.company_id = '00000000-0000-0000-0000-000000000000'), 0),
		coalesce((SELECT sum(u.used)::bigint FROM usage u
			JOIN grants g ON g.shard = $1 AND g.key_id = $4 AND g.company_id = u.company_id AND g.enabled
			WHERE u.shard = $1 AND u.organization_id = $2 AND u.period = $3), 0)
	FROM organization_state o WHERE o.shard = $1 AND o.organization_id = $2`

const loadContributors = `SELECT u.company_id, c.reference, u.used
	FROM usage u
	JOIN grants g ON g.shard = $1 AND g.key_id = $4 AND g.company_id = u.company_id AND g.enabled
	JOIN companies c ON c.shard = $1 AND c.company_id = u.company_id
	WHERE u.shard = $1 AND u.organization_id = $2 AND u.period = $3 AND u.company_id >= $5
	ORDER BY u.company_id LIMIT $6`

const loadUsageEntries = `SELECT ` + feedColumns + `, n.reference
	FROM unnest($2::uuid[], $3::bigint[], $7::text[]) WITH ORDINALITY AS n(company_id, after, reference, place)
	JOIN LATERAL (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM feed
		WHERE shard = $1 AND company_id = n.company_id AND sequence > n.after AND sequence <= $4 AND type = $6
		ORDER BY sequence LIMIT $5) f ON true
	JOIN LATERAL (SELECT source, reference FROM documents WHERE shard = $1 AND document_id = f.document_id OFFSET 0) d ON true
	ORDER BY n.place, f.sequence LIMIT $5`

// UsageEntries reads up to limit entries of a month behind a cursor, nil for the first page: those of companies that
// the key may use now. An entry belongs to the month of its event's time, which is the month that was charged. It
// returns ErrBeyondHead for a cursor from a history that was longer than the present one.
func (s *Store) UsageEntries(ctx context.Context, a domain.Access, period domain.Period, after *UsageCursor, limit int) (UsageEntries, error) {
	return scan(ctx, s, a.Organization, func(from *pgxpool.Pool) (UsageEntries, error) { return usagePage(ctx, from, a, period, after, limit) })
}

func usagePage(ctx context.Context, from *pgxpool.Pool, a domain.Access, period domain.Period, after *UsageCursor, limit int) (page UsageEntries, err error) {
	type month struct{ Through, Used, Visible int64 }
	m, err := statement.One(ctx, from, "read the month's usage", errNoOrganization, pgx.RowToStructByPos[month],
		loadMonth, a.Organization.Shard(), a.Organization, int32(period), a.Key)
	if err != nil {
		return page, err
	}
	page.Cursor = UsageCursor{Through: m.Through, Used: m.Used, Visible: m.Visible}
	if after != nil {
		if after.Through > page.Cursor.Through {
			return page, ErrBeyondHead
		}
		page.Cursor = *after
	}
	// The month's events are those after begin, up to end.
	var begin, end int64
	for bound, before := range map[*int64]time.Time{&begin: period.Start(), &end: period.End()} {
		if *bound, err = findSequence(ctx, from, a.Organization, page.Cursor.Through, before.Add(-time.Microsecond)); err != nil {
			return page, err
		}
	}
	for next := page.Cursor; ; {
		companies, err := contributors(ctx, from, a, period, next, limit+1)
		if err != nil {
			return page, err
		}
		if len(companies) > 0 && companies[0].ID == next.Company && next.Sequence >= end {
			companies = companies[1:]
		}
		if len(companies) == 0 {
			return page, nil
		}
		entries, err := usageEntries(ctx, from, a, companies, begin, end, next, limit+1-len(page.Entries))
		if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, entries...)
		if len(page.Entries) > limit {
			page.Entries, page.More = page.Entries[:limit], true
		}
		if n := len(page.Entries); n > 0 {
			page.Cursor.Company, page.Cursor.Sequence = page.Entries[n-1].Company, page.Entries[n-1].Sequence
		}
		if page.More {
			return page, nil
		}
		// These companies have no more entries; a later one may have some.
		next.Company, next.Sequence = companies[len(companies)-1].ID, end
	}
}

// contributor is a company that has entries in the month.
type contributor struct {
	ID        domain.CompanyID
	Reference string
	Used      int64
}

// contributors are the company of the cursor and those behind it, as many as fill a page; the first may be read in
// part.
func contributors(ctx context.Context, from *pgxpool.Pool, a domain.Access, period domain.Period, after UsageCursor, entries int) ([]contributor, error) {
	all, err := statement.All(ctx, from, "read the companies of a month", pgx.RowToStructByPos[contributor],
		loadContributors, a.Organization.Shard(), a.Organization, int32(period), a.Key, after.Company, entries+1)
	whole := int64(0)
	for i, c := range all {
		if i > 0 {
			whole += c.Used
		}
		if whole >= int64(entries) {
			return all[:i+1], err
		}
	}
	return all, err
}

func usageEntries(ctx context.Context, from *pgxpool.Pool, a domain.Access, companies []contributor, begin, end int64, after UsageCursor, limit int) ([]FeedEvent, error) {
	return statement.All(ctx, from, "read the entries of a month", scanFeedEvent, loadUsageEntries, a.Organization.Shard(),
		statement.Column(companies, func(c contributor) domain.CompanyID { return c.ID }),
		statement.Column(companies, func(c contributor) int64 {
			if c.ID == after.Company {
				return max(begin, after.Sequence)
			}
			return begin
		}), end, limit, projections.FeedTypeCode(domain.RecordRegistered),
		statement.Column(companies, func(c contributor) string { return c.Reference }))
}
