package action

import (
	"cmp"
	"context"
	"regexp"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// targets maps the prefixes of ids to the kinds of targets.
func targets() map[string]string {
	return map[string]string{
		"org": "organization", "usr": "member", "key": "key", "com": "company", "whk": "webhook", "art": "artifact",
		"ver": "version",
		"ana": "analysis", "rvw": "review", "apr": "approval", "lnk": "oauth_link",
		"psk": "passkey",
	}
}

// targetOf names the target of an event. A public id has no prefix, so the type of the event tells its kind.
func targetOf(e query.AuditEvent) wire.AuditTarget {
	prefix, _, found := strings.Cut(e.Subject, "_")
	kind := targets()[prefix]
	switch {
	case found && kind != "":
	case strings.HasPrefix(string(e.Action), "certificate."):
		kind = "certificate"
	case e.Action == domain.VersionReserved, e.Action == domain.VersionReleased:
		kind = "reservation"
	case strings.HasPrefix(string(e.Action), "integrity."):
		kind = "record"
	default:
		kind = "subject"
	}
	return wire.AuditTarget{Type: kind, ID: e.Subject}
}

func actorOf(e query.AuditEvent) wire.AuditActor {
	text := e.Actor.String()
	switch e.Actor.Kind() {
	case domain.ActorOperator, domain.ActorSystem:
		return wire.AuditActor{Type: text}
	case domain.ActorMember:
		return wire.AuditActor{Type: "user", ID: &text}
	case domain.ActorKey, domain.ActorNobody:
	}
	return wire.AuditActor{Type: "key", ID: &text}
}

// targetPattern matches every target of an event: an id or a public id.
var targetPattern = regexp.MustCompile(`^([a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}|[a-z2-7]{26})$`)

// ReadAuditQuestion reads the parameters of the history. With afterSequence, the history has the events after it,
// oldest first.
func ReadAuditQuestion(o *strictjson.Object) query.AuditQuestion {
	page := edge.ReadPage(o)
	question := query.AuditQuestion{
		Limit: page.Limit, Offset: page.Offset, Before: edge.Integer(o, "before", 1, strictjson.MaxInteger, 0),
		After: edge.Integer(o, "afterSequence", 0, strictjson.MaxInteger, 0), Forward: o.Has("afterSequence"),
	}
	question.Action, question.Target = ReadAuditFilter(o)
	return question
}

// ReadAuditFilter reads the filter by action and target.
func ReadAuditFilter(o *strictjson.Object) (action domain.EventType, target string) {
	action = domain.EventType(o.Match("action", strictjson.Optional, func(text string) bool {
		return domain.EventType(text).Known()
	},
		"must be an action as events show it, such as certificate.issued"))
	return action, o.Match(
		"target", strictjson.Optional, targetPattern.MatchString, "must be the id of a target as events show it",
	)
}

// AuditEvents lists the history of the organization: newest first, or in order after a sequence.
func (s *Audit) AuditEvents(
	ctx context.Context, c *edge.Call, question query.AuditQuestion,
) (wire.AuditEvents, error) {
	page, err := s.Store.AuditEvents(ctx, c.Access, question)
	if err != nil {
		return wire.AuditEvents{}, err
	}
	if question.After > page.Total {
		return wire.AuditEvents{}, domain.InvalidMember(
			"/afterSequence", strictjson.CodeRange,
			"must be a sequence of this organization, whose last one is %d; a cursor beyond it is older than a restored "+
				"database",
			page.Total,
		)
	}
	events := wire.Each(page.Events, func(e query.AuditEvent) (view wire.AuditEvent) {
		var failed error
		view, failed = viewAuditEvent(e)
		err = cmp.Or(err, failed)
		return view
	})
	return wire.AuditEvents{
		Events: events, Limit: question.Limit, Offset: question.Offset, Total: page.Total,
		NextCursor: page.Cursor, HasMore: page.More,
	}, err
}

func viewAuditEvent(e query.AuditEvent) (wire.AuditEvent, error) {
	details, err := e.Details()
	return wire.AuditEvent{
		ID: e.ID.String(), Sequence: e.Sequence, OccurredAt: evidence.FormatTime(e.OccurredAt), Actor: actorOf(e),
		Action: e.Action,
		Target: targetOf(e), RequestID: e.RequestID, Reason: e.Reason, Enabled: e.Enabled, Details: details,
		CompanyID: wire.ViewOrNull(wire.OrNull(e.Company), domain.CompanyID.String),
	}, err
}

// DetectorMetrics shows the findings of each detector version in the organization's documents, and its run times.
func (s *Audit) DetectorMetrics(ctx context.Context, c *edge.Call, _ struct{}) (wire.DetectorMetrics, error) {
	metrics, err := s.Store.DetectorMetrics(ctx, c.Access)
	return wire.DetectorMetrics{Detectors: wire.Each(metrics, func(m query.DetectorMetric) wire.DetectorMetric {
		return wire.DetectorMetric{
			ID: m.ID, Version: m.Version, Runs: m.Runs, Outcomes: m.Outcomes,
			MedianMs: float64(m.Median.Microseconds()) / 1000, P95Ms: float64(m.P95.Microseconds()) / 1000,
		}
	})}, err
}
