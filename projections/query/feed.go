package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// FeedEvent is one change of a company's versions (contract section 3).
type FeedEvent struct {
	ID                domain.EventID
	Sequence          int64 // the organization's
	Type              domain.EventType
	OccurredAt        time.Time
	PublicID          domain.PublicID
	Source            string
	DocumentReference string
	Version           int32
	Status            domain.Status // right after the event
}

// FeedCompany finds the company that a feed reader waits for, granted as Changes requires.
func (s *Store) FeedCompany(ctx context.Context, a domain.Access, reference string) (domain.CompanyID, error) {
	granted, err := s.grantedCompany(ctx, a, reference)
	return granted.id, err
}

// ChangesQuery is the statement behind Changes; its arguments are shard, company, cursor and the most rows.
const ChangesQuery = `SELECT f.event_id, f.sequence, f.type, f.occurred_at, f.public_id, d.source, d.reference, f.version, f.status
	FROM feed f
	JOIN documents d ON d.shard = $1 AND d.document_id = f.document_id
	WHERE f.shard = $1 AND f.company_id = $2 AND f.sequence > $3
	ORDER BY f.sequence LIMIT $4`

// Changes reads up to limit events of a granted company after a sequence, and whether more follow. Every call reads the
// grant again. A cursor beyond the organization's head comes from a database that has since been lost; the head is read
// before the events, so that a cursor of this history is never ahead. Both are read on the primary. A replica that has
// replayed the cursor may answer with a full page, which never changes; with the end of the feed only if it is as new
// as the caller requires.
func (s *Store) Changes(ctx context.Context, a domain.Access, company string, after int64, limit int) (events []FeedEvent, more bool, err error) {
	granted, err := s.grantedCompany(ctx, a, company)
	if err != nil {
		return nil, false, err
	}
	if after > granted.head {
		return nil, false, domain.Refuse(domain.CursorAhead,
			"The cursor lies beyond the last event of this organization: the database was restored to an earlier state. Read the feed again from a cursor you trust, or from 0.")
	}
	if after == granted.head {
		return nil, false, nil
	}
	end := granted.head
	if a.ReadAfter != nil {
		end = *a.ReadAfter
	}
	err = s.read(ctx, a, after, func(from source) (err error) {
		if events, err = changes(ctx, from, a, granted.id, after, limit); err != nil || !from.replica {
			return err
		}
		// A synchronous standby shows a commit before the primary does, which waits for it: a cursor that the primary
		// does not know yet must not be given out.
		for len(events) > 0 && events[len(events)-1].Sequence > granted.head {
			events = events[:len(events)-1]
		}
		if len(events) <= limit && from.sequence < end {
			return errAskPrimary
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	events, more = statement.Page(events, limit)
	return events, more, nil
}

// changes reads up to limit+1 events.
func changes(ctx context.Context, from source, a domain.Access, company domain.CompanyID, after int64, limit int) ([]FeedEvent, error) {
	return statement.All(ctx, from, "read the change feed", func(row pgx.CollectableRow) (FeedEvent, error) {
		var e FeedEvent
		var kind, status int16
		err := row.Scan(&e.ID, &e.Sequence, &kind, &e.OccurredAt, &e.PublicID, &e.Source, &e.DocumentReference, &e.Version, &status)
		e.Type, e.Status = projections.FeedType(kind), projections.FeedStatus(status)
		return e, err
	}, ChangesQuery, a.Organization.Shard(), company, after, limit+1)
}
