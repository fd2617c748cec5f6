package handlers

import (
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections"
)

type auditActor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"` // null of operator and system
}

type auditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type auditEventView struct {
	ID         string           `json:"id"`
	Sequence   int64            `json:"sequence"`
	OccurredAt string           `json:"occurredAt"`
	Actor      auditActor       `json:"actor"`
	Action     domain.EventType `json:"action"`
	Target     auditTarget      `json:"target"`
	RequestID  string           `json:"requestId"`
	Reason     *string          `json:"reason"`
}

// targets are the kinds of things by the prefix of their ids.
func targets() map[string]string {
	return map[string]string{
		"org": "organization", "usr": "member", "key": "key", "com": "company", "whk": "webhook", "art": "artifact", "ver": "version",
		"ana": "analysis", "rvw": "review", "apr": "approval", "lnk": "oauth_link",
	}
}

// targetOf names what an event is about. A public id has no prefix: the event says
// whose it is.
func targetOf(e projections.AuditEvent) auditTarget {
	prefix, _, found := strings.Cut(e.Subject, "_")
	kind := targets()[prefix]
	switch {
	case found && kind != "":
	case strings.HasPrefix(string(e.Action), "certificate."):
		kind = "certificate"
	case e.Action == domain.IdentityReserved:
		kind = "reservation"
	case strings.HasPrefix(string(e.Action), "integrity."):
		kind = "record"
	default:
		kind = "subject"
	}
	return auditTarget{kind, e.Subject}
}

func actorOf(e projections.AuditEvent) auditActor {
	switch e.Actor {
	case domain.OperatorActor, domain.SystemActor:
		return auditActor{Type: e.Actor}
	}
	if strings.HasPrefix(e.Actor, "usr_") {
		return auditActor{"user", &e.Actor}
	}
	return auditActor{"key", &e.Actor}
}

// auditEvents shows the history of the organization, newest first.
func (s *server) auditEvents(r *http.Request) (response, error) {
	q := newQuery(r)
	limit, offset := q.page()
	before := q.integer("before", 1, strictjson.MaxInteger, 0, strictjson.Optional)
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	events, total, err := s.Store.AuditEvents(r.Context(), callOf(r).access, before, limit, offset)
	if err != nil {
		return response{}, err
	}
	answer := struct {
		Events []auditEventView `json:"events"`
		Limit  int              `json:"limit"`
		Offset int              `json:"offset"`
		Total  int64            `json:"total"`
	}{make([]auditEventView, len(events)), limit, offset, total}
	for i, e := range events {
		answer.Events[i] = auditEventView{
			ID: e.ID.String(), Sequence: e.Sequence, OccurredAt: evidence.FormatTime(e.OccurredAt), Actor: actorOf(e), Action: e.Action,
			Target: targetOf(e), RequestID: e.RequestID, Reason: e.Reason,
		}
	}
	return response{data: answer}, nil
}

type detectorMetricView struct {
	ID       string           `json:"id"`
	Version  int32            `json:"version"`
	Runs     int64            `json:"runs"`
	Outcomes map[string]int64 `json:"outcomes"`
	MedianMs float64          `json:"medianMs"`
	P95Ms    float64          `json:"p95Ms"`
}

// detectorMetrics shows what the organization's analyses came to.
func (s *server) detectorMetrics(r *http.Request) (response, error) {
	if err := newQuery(r).refusal(); err != nil {
		return response{}, err
	}
	metrics, err := s.Store.DetectorMetrics(r.Context(), callOf(r).access)
	if err != nil {
		return response{}, err
	}
	answer := struct {
		Detectors []detectorMetricView `json:"detectors"`
	}{make([]detectorMetricView, len(metrics))}
	for i, m := range metrics {
		answer.Detectors[i] = detectorMetricView{
			m.ID, m.Version, m.Runs, m.Outcomes, float64(m.Median.Microseconds()) / 1000, float64(m.P95.Microseconds()) / 1000,
		}
	}
	return response{data: answer}, nil
}
