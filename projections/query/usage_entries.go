package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// UsageEntry is one new version that a month's allowance was charged with: a registration, by its event.
type UsageEntry struct {
	Event             domain.EventID
	Sequence          int64 // the organization's
	OccurredAt        time.Time
	PublicID          domain.PublicID
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32

	company domain.CompanyID
}

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

// UsageEntries is a page of a month's entries.
type UsageEntries struct {
	Entries []UsageEntry
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

const loadUsageEntries = `SELECT n.place, f.event_id, f.sequence, f.occurred_at, f.public_id, d.source, d.reference, f.version
	FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS n(company_id, after, place)
	JOIN LATERAL (SELECT event_id, sequence, occurred_at, public_id, document_id, version FROM feed
		WHERE shard = $1 AND company_id = n.company_id AND sequence > n.after AND sequence <= $4 AND type = $6
		ORDER BY sequence LIMIT $5) f ON true
	JOIN LATERAL (SELECT source, reference FROM documents WHERE shard = $1 AND document_id = f.document_id OFFSET 0) d ON true
	ORDER BY n.place, f.sequence LIMIT $5`

// UsageEntries reads up to limit entries of a month behind a cursor, nil for the first page: those of companies that
// the key may use now. An entry belongs to the month of its event's time, which is the month that was charged. It
// returns ErrBeyondHead for a cursor from a history that was longer than the present one.
func (s *Store) UsageEntries(ctx context.Context, a domain.Access, period domain.Period, after *UsageCursor, limit int) (page UsageEntries, err error) {
	err = s.scan(ctx, a.Organization, func(from *pgxpool.Pool) (err error) {
		page, err = usagePage(ctx, from, a, period, after, limit)
		return err
	})
	return page, err
}

func usagePage(ctx context.Context, from *pgxpool.Pool, a domain.Access, period domain.Period, after *UsageCursor, limit int) (page UsageEntries, err error) {
	if page.Cursor, err = month(ctx, from, a, period); err != nil {
		return page, err
	}
	if after != nil {
		if after.Through > page.Cursor.Through {
			return page, ErrBeyondHead
		}
		page.Cursor = *after
	}
	// The month's events are those after begin, up to end.
	var begin, end int64
	for _, bound := range []struct {
		sequence *int64
		before   time.Time
	}{{&begin, period.Start()}, {&end, period.End()}} {
		*bound.sequence, err = findSequence(ctx, source{Querier: from}, a.Organization, page.Cursor.Through, bound.before.Add(-time.Microsecond))
		if err != nil {
			return page, err
		}
	}
	for next := page.Cursor; ; {
		companies, err := contributors(ctx, from, a, period, next, limit+1)
		if err != nil {
			return page, err
		}
		if len(companies) > 0 && companies[0].id == next.Company && next.Sequence >= end {
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
			page.Cursor.Company, page.Cursor.Sequence = page.Entries[n-1].company, page.Entries[n-1].Sequence
		}
		if page.More {
			return page, nil
		}
		// These companies have no more entries; a later one may have some.
		next.Company, next.Sequence = companies[len(companies)-1].id, end
	}
}

// month reads a month's figures as a cursor at its beginning.
func month(ctx context.Context, from *pgxpool.Pool, a domain.Access, period domain.Period) (UsageCursor, error) {
	c, found, err := statement.First(ctx, from, "read the month's usage", func(row pgx.CollectableRow) (UsageCursor, error) {
		var c UsageCursor
		err := row.Scan(&c.Through, &c.Used, &c.Visible)
		return c, err
	}, loadMonth, a.Organization.Shard(), a.Organization, int32(period), a.Key)
	if err == nil && !found {
		err = fmt.Errorf("read the month's usage: organization %s does not exist", a.Organization)
	}
	return c, err
}

// contributor is a company that has entries in the month.
type contributor struct {
	id        domain.CompanyID
	reference string
	used      int64
}

// contributors are the company of the cursor and those behind it, as many as fill a page; the first may be read in
// part.
func contributors(ctx context.Context, from *pgxpool.Pool, a domain.Access, period domain.Period, after UsageCursor, entries int) ([]contributor, error) {
	all, err := statement.All(ctx, from, "read the companies of a month", func(row pgx.CollectableRow) (contributor, error) {
		var c contributor
		err := row.Scan(&c.id, &c.reference, &c.used)
		return c, err
	}, loadContributors, a.Organization.Shard(), a.Organization, int32(period), a.Key, after.Company, entries+1)
	whole := int64(0)
	for i, c := range all {
		if i > 0 {
			whole += c.used
		}
		if whole >= int64(entries) {
			return all[:i+1], err
		}
	}
	return all, err
}

func usageEntries(ctx context.Context, from *pgxpool.Pool, a domain.Access, companies []contributor, begin, end int64, after UsageCursor, limit int) ([]UsageEntry, error) {
	return statement.All(ctx, from, "read the entries of a month", func(row pgx.CollectableRow) (UsageEntry, error) {
		var e UsageEntry
		var place int64 // of the company, from 1
		err := row.Scan(&place, &e.Event, &e.Sequence, &e.OccurredAt, &e.PublicID, &e.Source, &e.DocumentReference, &e.Version)
		if err == nil {
			e.company, e.CompanyReference = companies[place-1].id, companies[place-1].reference
		}
		return e, err
	}, loadUsageEntries, a.Organization.Shard(),
		statement.Column(companies, func(c contributor) domain.CompanyID { return c.id }),
		statement.Column(companies, func(c contributor) int64 {
			if c.id == after.Company {
				return max(begin, after.Sequence)
			}
			return begin
		}), end, limit, projections.FeedTypeCode(domain.RecordRegistered))
}
