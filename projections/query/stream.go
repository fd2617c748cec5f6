package query

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// StreamEvent is an event of the feed with its owner.
type StreamEvent struct {
	FeedEvent
	Position         int64 // in the shard's log
	Organization     domain.OrganizationID
	Company          domain.CompanyID
	CompanyReference string
}

// The references of an event's document and company, which never change.
const streamReferences = `SELECT n.document_id, d.source, d.reference, c.reference
	FROM unnest($2::uuid[], $3::uuid[]) AS n(document_id, company_id)
	JOIN LATERAL (SELECT source, reference FROM documents WHERE shard = $1 AND document_id = n.document_id OFFSET 0) d ON true
	JOIN LATERAL (SELECT reference FROM companies WHERE shard = $1 AND company_id = n.company_id OFFSET 0) c ON true`

// StreamEvents turns events of a shard's log into those of the feeds of its companies, in the same order; events that
// no feed shows are left out. A document that is missing in the projections is an error; its event is never skipped.
func (s *Store) StreamEvents(ctx context.Context, shard domain.Shard, events []domain.Event) ([]StreamEvent, error) {
	var list []StreamEvent
	var asked []domain.DocumentID
	var companies []domain.CompanyID
	for i := range events {
		e := &events[i]
		s := StreamEvent{FeedEvent: FeedEvent{ID: e.ID, Sequence: e.Sequence, Type: e.Type, OccurredAt: e.OccurredAt}, Position: e.Position, Organization: e.Organization, Company: e.Company}
		var document domain.DocumentID
		switch body := e.Body.(type) {
		case *domain.RecordRegisteredBody:
			document, s.Version, s.Status = body.DocumentID, body.Version, body.Status
		case *domain.RecordSupersededBody:
			document, s.Version, s.Status = body.DocumentID, body.Version, domain.StatusSuperseded
		case *domain.RecordRevokedBody:
			document, s.Version, s.Status = body.DocumentID, body.Version, domain.StatusRevoked
		default:
			continue
		}
		var ok bool
		if s.PublicID, ok = domain.ParsePublicID(e.Subject); !ok {
			return nil, fmt.Errorf("event %s has no publicId", e.ID)
		}
		list, asked = append(list, s), append(asked, document)
		companies = append(companies, e.Company)
	}
	if list == nil {
		return nil, nil
	}
	type reference struct {
		document                   domain.DocumentID
		source, reference, company string
	}
	found, err := statement.All(ctx, s.Pool, "references of the stream", func(row pgx.CollectableRow) (r reference, err error) {
		return r, row.Scan(&r.document, &r.source, &r.reference, &r.company)
	}, streamReferences, shard, asked, companies)
	if err != nil {
		return nil, err
	}
	known := map[domain.DocumentID]reference{}
	for _, r := range found {
		known[r.document] = r
	}
	for i := range list {
		r, ok := known[asked[i]]
		if !ok {
			return nil, fmt.Errorf("the projections lack the document of event %s: run integrity rebuild", list[i].ID)
		}
		list[i].Source, list[i].DocumentReference, list[i].CompanyReference = r.source, r.reference, r.company
	}
	return list, nil
}
