package wire

import "integrityledger/domain"

// AuditActor is who caused an event; ID is null of operator and system.
type AuditActor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"`
}

type AuditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// AuditEvent is an event of the organization's history. CompanyID is of an event of a company; Enabled of a change of
// access: given, or taken back.
type AuditEvent struct {
	ID         string           `json:"id"`
	Sequence   int64            `json:"sequence"`
	OccurredAt string           `json:"occurredAt"`
	Actor      AuditActor       `json:"actor"`
	Action     domain.EventType `json:"action"`
	Target     AuditTarget      `json:"target"`
	RequestID  string           `json:"requestId"`
	Reason     *string          `json:"reason"`
	CompanyID  *string          `json:"companyId"`
	Enabled    *bool            `json:"enabled"`
}

type AuditEvents struct {
	Events     []AuditEvent `json:"events"`
	Limit      int          `json:"limit"`
	Offset     int          `json:"offset"`
	Total      int64        `json:"total"`
	NextCursor int64        `json:"nextCursor"`
	HasMore    bool         `json:"hasMore"`
}

// DetectorMetric is what the runs of a detector came to.
type DetectorMetric struct {
	ID       string           `json:"id"`
	Version  int32            `json:"version"`
	Runs     int64            `json:"runs"`
	Outcomes map[string]int64 `json:"outcomes"`
	MedianMs float64          `json:"medianMs"`
	P95Ms    float64          `json:"p95Ms"`
}

type DetectorMetrics struct {
	Detectors []DetectorMetric `json:"detectors"`
}
