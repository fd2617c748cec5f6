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
	"integrityledger/eventstore/history"
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

// FeedCompany finds the company that a feed reader waits for, with the same checks as Changes. It is zero for a reader
// of all companies.
func (s HistoryReader) FeedCompany(ctx context.Context, a domain.Access, reference string) (domain.CompanyID, error) {
	granted, err := s.feedHead(ctx, a, reference)
	return granted.ID, err
}

// organizationHead is findGrantedCompany for all companies of a key that has any.
var organizationHead = cluster.SQL(`SELECT o.sequence, (SELECT greatest(epoch, feed_epoch) FROM ledger WHERE id = 1)
	FROM {organization_state} o WHERE o.shard = $1 AND o.organization_id = $2
		AND EXISTS (SELECT FROM {grants} g WHERE g.shard = $1 AND g.key_id = $3 AND g.enabled)`)

// feedHead is grantedCompany, or the head of a feed over all companies of the key if reference is empty.
func (s HistoryReader) feedHead(ctx context.Context, a domain.Access, reference string) (grantedCompany, error) {
	if reference != "" {
		return s.grantedCompany(ctx, a, reference)
	}
	return statement.One(ctx, s.Pool, "read the head of the feed", domain.ErrUnauthorizedCompany,
		func(row pgx.CollectableRow) (head grantedCompany, err error) {
			err = row.Scan(&head.Head, &head.Epoch)
			return head, err
		}, organizationHead, a.Organization.Shard(), a.Organization, a.Key)
}

// ChangesQuery is the statement behind Changes. Its arguments are shard, company, cursor and limit.
var ChangesQuery = cluster.SQL(`SELECT ` + feedColumns + `, ''
	FROM (SELECT event_id, sequence, type, occurred_at, public_id, company_id, document_id, version, status FROM {feed}
		WHERE shard = $1 AND company_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4) f` + feedVersion + `
	ORDER BY f.sequence`)

// FeedPage is a part of a company's feed, or of the feed over all companies of a key.
type FeedPage struct {
	Events []FeedEvent
	Cursor int64 // after which the next page begins
	More   bool  // more events may follow
	Epoch  int64 // in which the page's cursors are valid

	// Of a feed over all companies only: the organization's last sequence when the page was read, and the companies that
	// the key was granted by events of the page. A page read before a grant lacks the events of its company.
	Head    int64
	Granted []GrantedAt
}

// GrantedAt is a company with the sequence of the event that granted it.
type GrantedAt struct {
	Reference string
	Sequence  int64
}

// feedWindow is how many sequences a page over all companies looks at for each event that it may show: a key that may
// use few companies of a busy organization must not make the service read the whole log for one page.
const feedWindow = 5

// AllChangesQuery is the statement behind Changes over all companies. Its arguments are shard, organization, cursor,
// the last sequence to look at, key, types and limit.
var AllChangesQuery = cluster.SQL(`SELECT e.id, e.sequence, e.company_id
	FROM {events} e
	JOIN LATERAL (SELECT FROM {grants} WHERE shard = $1 AND key_id = $5 AND company_id = e.company_id AND enabled OFFSET 0) g ON true
	WHERE e.shard = $1 AND e.organization_id = $2 AND e.sequence > $3 AND e.sequence <= $4 AND e.type = ANY($6)
	ORDER BY e.sequence LIMIT $7`)

func scanPlace(row pgx.CollectableRow) (e domain.Event, err error) {
	err = row.Scan(&e.ID, &e.Sequence, &e.Company)
	return e, err
}

// grantedBetween finds the companies that a key may use and was granted by the events of a page. Its arguments are
// shard, organization, cursor, the page's last sequence, key and subject.
var grantedBetween = cluster.SQL(`SELECT c.reference, max(e.sequence)
	FROM {events} e
	JOIN LATERAL (SELECT FROM {grants} WHERE shard = $1 AND key_id = $5 AND company_id = e.company_id AND enabled OFFSET 0) g ON true
	JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = e.company_id OFFSET 0) c ON true
	WHERE e.shard = $1 AND e.organization_id = $2 AND e.sequence > $3 AND e.sequence <= $4 AND e.subject = $6
		AND e.type = '` + string(domain.CompanyAccessChanged) + `'
	GROUP BY c.reference ORDER BY max(e.sequence)`)

// allChanges completes an empty page over all companies of a key. The sequences of an organization have no gaps, so
// the page covers all of them up to its new cursor, whether it shows them or not.
func allChanges(ctx context.Context, from source, a domain.Access, page FeedPage, limit int) (_ FeedPage, err error) {
	shard, after := a.Organization.Shard(), page.Cursor
	page.Cursor = min(after+int64(limit)*feedWindow, page.Head)
	found, err := statement.All(ctx, from, "read the changes of all companies", scanPlace, AllChangesQuery,
		shard, a.Organization, after, page.Cursor, a.Key, projections.FeedTypes(), limit)
	if err != nil {
		return page, err
	}
	if len(found) == limit {
		page.Cursor = found[limit-1].Sequence
	}
	page.More = page.Cursor < page.Head
	if page.Events, err = eventsOf(ctx, from, shard, found); err != nil {
		return page, err
	}
	page.Granted, err = statement.All(ctx, from, "read the grants of a page", pgx.RowToStructByPos[GrantedAt],
		grantedBetween, shard, a.Organization, after, page.Cursor, a.Key, a.Key.String())
	return page, err
}

// AnyEpoch is the epoch of a reader that does not send one.
const AnyEpoch = -1

// Changes reads up to limit events of a granted company, or of all companies of the key if company is empty, after a
// sequence. Every call reads the grant and the epoch again, so that all processes of a ledger give the same answer. The
// events are read later, so that events from before a rebuild are never returned with the epoch after it. A cursor of
// another epoch is refused. A cursor beyond the organization's head comes from a database that was lost since. The head
// is read before the events, so that a cursor of this history is never ahead. Both are read on the primary. A replica
// that has replayed the cursor may answer with a full page of a company, which changes only with the epoch. It may
// answer with the end of the feed only if it is as new as the caller requires.
func (s HistoryReader) Changes(
	ctx context.Context, a domain.Access, company string, epoch, after int64, limit int,
) (page FeedPage, err error) {
	granted, err := s.feedHead(ctx, a, company)
	if err != nil {
		return page, err
	}
	page.Epoch, page.Cursor = granted.Epoch, after
	if company == "" {
		page.Head = granted.Head
	}
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
	if company == "" {
		// A replica must know every grant up to the head, or its page would pass events of a company that the key may use.
		a.ReadAfter = new(max(granted.Head, newEnough(a)))
		return readMuch(ctx, s.reader, a, func(from source) (FeedPage, error) {
			if from.replica && from.epoch < granted.Epoch {
				return page, errAskPrimary
			}
			return allChanges(ctx, from, a, page, limit)
		})
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
	if n := len(page.Events); n > 0 {
		page.Cursor = page.Events[n-1].Sequence
	}
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
	found, err := eventsOf(ctx, s.Pool, shard, shown)
	if err != nil {
		return nil, err
	}
	list := make([]StreamEvent, len(shown))
	for i, e := range shown {
		list[i] = StreamEvent{found[i], e.Position, e.Organization}
	}
	return list, nil
}

// eventsOf finds events of the log in the feeds of their companies, in the same order. An event missing in the
// projections is an error.
func eventsOf(
	ctx context.Context, from history.Querier, shard domain.Shard, events []domain.Event,
) ([]FeedEvent, error) {
	if len(events) == 0 {
		return nil, nil
	}
	found, err := statement.All(ctx, from, "events of the feed", scanFeedEvent, streamEvents, shard,
		statement.Column(events, func(e domain.Event) domain.CompanyID { return e.Company }),
		statement.Column(events, func(e domain.Event) int64 { return e.Sequence }))
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if i >= len(found) || found[i].ID != e.ID {
			return nil, eventMissing(e.ID)
		}
	}
	return found, nil
}
