package projections

import (
	"encoding/json"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// WebhookEvent is the content of a delivery. It is read from immutable columns, so that every attempt sends the same
// bytes, and a member can be shown them later.
type WebhookEvent struct {
	ID                        domain.EventID
	Test                      bool
	Known                     bool // the feed and the references are there; an unknown event is never sent
	Company, Source, Document string
	Version                   int32
	Status                    int16 // as in the feed
	PublicID                  domain.PublicID
	OccurredAt                time.Time
}

// WebhookEventColumns are the columns of a WebhookEvent from Known to OccurredAt, of a delivery t that has been joined
// with WebhookEventJoins.
const (
	WebhookEventColumns = `c.reference IS NOT NULL AND d.reference IS NOT NULL, coalesce(c.reference, ''), coalesce(d.source, ''), coalesce(d.reference, ''),
		coalesce(f.version, 0), coalesce(f.status, 0), f.public_id, coalesce(f.occurred_at, t.created_at)`
	WebhookEventJoins = `
	LEFT JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = t.company_id OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT document_id, version, status, public_id, occurred_at FROM {feed}
		WHERE shard = $1 AND company_id = t.company_id AND sequence = t.sequence OFFSET 0) f ON true
	LEFT JOIN LATERAL (SELECT source, reference FROM {documents}
		WHERE shard = $1 AND document_id = f.document_id OFFSET 0) d ON true`
)

// Columns returns the destinations of WebhookEventColumns.
func (e *WebhookEvent) Columns() []any {
	return []any{
		&e.Known, &e.Company, &e.Source, &e.Document, &e.Version, &e.Status, &e.PublicID, &e.OccurredAt,
	}
}

// webhookProtocol is the version of the protocol of deliveries.
const webhookProtocol = 1

// Body returns the body of a delivery: exactly the nine members of the specification.
func (e *WebhookEvent) Body() ([]byte, error) {
	body := struct {
		ID                domain.EventID  `json:"id"`
		OccurredAt        string          `json:"occurredAt"`
		PublicID          domain.PublicID `json:"publicId"`
		CompanyReference  string          `json:"companyReference"`
		Source            string          `json:"source"`
		DocumentReference string          `json:"documentReference"`
		DocumentVersion   int32           `json:"documentVersion"`
		RecordStatus      domain.Status   `json:"recordStatus"`
		Version           int             `json:"version"` // of the protocol
	}{
		e.ID, evidence.FormatTime(e.OccurredAt), e.PublicID, e.Company, e.Source, e.Document, e.Version, "", webhookProtocol,
	}
	switch {
	case e.Test:
		body.CompanyReference, body.Source = domain.TestCompany, domain.TestCompany
		body.DocumentReference = domain.TestCompany
		body.DocumentVersion, body.RecordStatus = 1, domain.StatusSuperseded // never a current version
	case e.Known:
		body.RecordStatus = FeedStatus(e.Status)
	}
	return json.Marshal(body)
}
