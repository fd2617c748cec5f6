package query

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// FeedEvent is one change of a company's versions (contract section 3).
type FeedEvent struct {
	ID                domain.EventID
	Sequence          int64 // the organization's
	Type              domain.EventType
	OccurredAt        time.Time
	PublicID          domain.PublicID
	Company           domain.CompanyID
	Source            string
	DocumentReference string
	Version           int32
	SHA256            evidence.Hash // as declared
	Status            domain.Status // right after the event
	CompanyReference  string        // empty if the reader selected the company
}

const feedColumns = `f.event_id, f.sequence, f.type, f.occurred_at, f.public_id, f.company_id, d.source, d.reference, f.version, i.sha256, f.status`

// feedVersion looks up the document and the version of the feed's row f, by their keys.
const feedVersion = `
	LEFT JOIN LATERAL (SELECT source, reference FROM {documents} WHERE shard = $1 AND document_id = f.document_id OFFSET 0) d ON true
	LEFT JOIN LATERAL (SELECT sha256 FROM {versions} WHERE shard = $1 AND document_id = f.document_id AND version = f.version OFFSET 0) i ON true`

// scanFeedEvent scans feedColumns and a company's reference. An event whose document or version is missing in the
// projections is an error: a reader that did not get the event would never miss it.
func scanFeedEvent(row pgx.CollectableRow) (e FeedEvent, err error) {
	var kind, status int16
	var sum []byte
	err = row.Scan(
		&e.ID, &e.Sequence, &kind, &e.OccurredAt, &e.PublicID, &e.Company, (*zeronull.Text)(&e.Source),
		(*zeronull.Text)(&e.DocumentReference), &e.Version, &sum, &status, &e.CompanyReference,
	)
	if err == nil && (e.Source == "" || copy(e.SHA256[:], sum) != len(e.SHA256)) {
		err = eventMissing(e.ID)
	}
	if err == nil {
		e.Type, e.Status = projections.FeedType(kind), projections.FeedStatus(status)
	}
	return e, err
}

func eventMissing(id domain.EventID) error {
	return say.Errorf("the projections lack event %s or its document: run integrity rebuild", id)
}

// FeedCompany finds the company that a feed reader waits for, with the same checks as Changes.
func (s HistoryReader) FeedCompany(ctx context.Context, a domain.Access, reference string) (domain.CompanyID, error) {
	granted, err := s.grantedCompany(ctx, a, reference)
	return granted.ID, err
}

// ChangesQuery is the statement behind Changes. Its arguments are shard, company, cursor and limit.
var ChangesQuery = cluster.SQL(`SELECT ` + feedColumns + `, ''
	FROM (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM {feed}
		WHERE shard = $1 AND company_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4) f` + feedVersion + `
	ORDER BY f.sequence`)

// FeedPage is a part of a company's feed.
type FeedPage struct {
	Events []FeedEvent
	More   bool  // more events follow
	Epoch  int64 // in which the page's cursors are valid
}

// AnyEpoch is the epoch of a reader that does not send one.
const AnyEpoch = -1

// Changes reads up to limit events of a granted company after a sequence. Every call reads the grant and the epoch
// again, so that all processes of a ledger give the same answer. The events are read later, so that events from before
// a rebuild are never returned with the epoch after it. A cursor of another epoch is refused. A cursor beyond the
// organization's head comes from a database that was lost since. The head is read before the events, so that a cursor
// of this history is never ahead. Both are read on the primary. A replica that has replayed the cursor may answer with
// a full page, which changes only with the epoch. It may answer with the end of the feed only if it is as new as the
// caller requires.
func (s HistoryReader) Changes(
	ctx context.Context, a domain.Access, company string, epoch, after int64, limit int,
) (page FeedPage, err error) {
	granted, err := s.grantedCompany(ctx, a, company)
	if err != nil {
		return page, err
	}
	page.Epoch = granted.Epoch
	if epoch != AnyEpoch && epoch != granted.Epoch {
		return page, domain.Refuse(domain.CursorAhead,
			"The cursor is of epoch %d, the ledger's is %d: unless it was mistyped, the database was restored, or the feed "+
				"mended, since. "+
				"Read the feed again from a cursor you trust, or from 0.", epoch, granted.Epoch)
	}
	if after > granted.Head {
		return page, domain.Refuse(domain.CursorAhead,
			"The cursor %d lies beyond the last event of this organization, whose sequence is %d. Either it is not one that "+
				"the feed gave out, "+
				"or the database was restored to an earlier state since. Read the feed again from a cursor you trust, or from 0.",
			after, granted.Head)
	}
	if after == granted.Head {
		return page, nil
	}
	end := granted.Head
	if a.ReadAfter != nil {
		end = *a.ReadAfter
	}
	events, err := read(ctx, s.reader, a, after, func(from source) ([]FeedEvent, error) {
		events, err := statement.All(
			ctx, from, "read the change feed", scanFeedEvent, ChangesQuery, a.Organization.Shard(), granted.ID, after, limit+1,
		)
		if err != nil || !from.replica {
			return events, err
		}
		// A synchronous standby shows a commit earlier than the primary, which waits for it. Do not return a cursor that the
		// primary does not know yet.
		for len(events) > 0 && events[len(events)-1].Sequence > granted.Head {
			events = events[:len(events)-1]
		}
		if len(events) <= limit && from.sequence < end || from.epoch < granted.Epoch {
			return nil, errAskPrimary
		}
		return events, nil
	})
	page.Events, page.More, err = statement.Page(events, limit, err)
	return page, err
}

// StreamEvent is a feed event with its position in the shard's log.
type StreamEvent struct {
	FeedEvent
	Position     int64
	Organization domain.OrganizationID
}

var streamEvents = cluster.SQL(`SELECT ` + feedColumns + `, c.reference
	FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS n(company_id, sequence, place)
	JOIN LATERAL (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM {feed}
		WHERE shard = $1 AND company_id = n.company_id AND sequence = n.sequence OFFSET 0) f ON true` + feedVersion + `
	JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = n.company_id OFFSET 0) c ON true
	ORDER BY n.place`)

// StreamEvents finds events of a shard's log in the feeds of their companies, in the same order. It leaves out events
// that are not in any feed. An event missing in the projections is an error and never skipped.
func (s HistoryReader) StreamEvents(
	ctx context.Context, shard domain.Shard, events []domain.Event,
) ([]StreamEvent, error) {
	shown := slices.DeleteFunc(slices.Clone(events), func(e domain.Event) bool {
		return projections.FeedTypeCode(e.Type) == 0
	})
	if len(shown) == 0 {
		return nil, nil
	}
	found, err := statement.All(ctx, s.Pool, "events of the stream", scanFeedEvent, streamEvents, shard,
		statement.Column(shown, func(e domain.Event) domain.CompanyID { return e.Company }),
		statement.Column(shown, func(e domain.Event) int64 { return e.Sequence }))
	if err != nil {
		return nil, err
	}
	list := make([]StreamEvent, len(shown))
	for i, e := range shown {
		if i >= len(found) || found[i].ID != e.ID {
			return nil, eventMissing(e.ID)
		}
		list[i] = StreamEvent{found[i], e.Position, e.Organization}
	}
	return list, nil
}
