package projections

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// AuditEvent is an event as the organization's history shows it: ids, never references.
type AuditEvent struct {
	ID         domain.EventID
	Sequence   int64
	OccurredAt time.Time
	Actor      string
	Action     domain.EventType
	Subject    string
	RequestID  string
	Reason     *string // of a revocation that gave one, unless it was erased
}

// AuditEvents reads an organization's history, newest first, beginning offset
// events before the sequence before, which 0 leaves open; and how many events the
// whole history has. It is the log itself: sequences have no hole, so a page is a
// range.
func (s *Store) AuditEvents(ctx context.Context, a domain.Access, before int64, limit, offset int) (events []AuditEvent, total int64, err error) {
	err = s.read(ctx, a, newEnough(a), func(from source) (err error) {
		events, total, err = auditEvents(ctx, from, a.Organization, before, limit, offset)
		return err
	})
	return events, total, err
}

func auditEvents(ctx context.Context, from source, o domain.OrganizationID, before int64, limit, offset int) (events []AuditEvent, total int64, err error) {
	const head = `SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2`
	const page = `SELECT id, sequence, occurred_at, actor, type, subject, request_id,
			CASE WHEN type IN ('integrity.revoked', 'certificate.revoked') THEN data END
		FROM events WHERE shard = $1 AND organization_id = $2 AND sequence > $3 AND sequence <= $4 ORDER BY sequence DESC`
	const texts = `SELECT id, body FROM texts WHERE shard = $1 AND organization_id = $2 AND id = ANY($3) AND body IS NOT NULL`
	shard, id := o.Shard(), [16]byte(o)
	total, _, err = first(ctx, from, "read the length of the history", pgx.RowTo[int64], head, shard, id)
	if err != nil {
		return nil, 0, err
	}
	last := total
	if before > 0 {
		last = min(last, before-1)
	}
	last -= int64(offset)
	reasons := map[int]domain.TextID{}
	var wanted [][16]byte
	events, err = collect(ctx, from, "read the history", func(row pgx.CollectableRow) (AuditEvent, error) {
		var e AuditEvent
		var data []byte
		if err := row.Scan((*[16]byte)(&e.ID), &e.Sequence, &e.OccurredAt, &e.Actor, &e.Action, &e.Subject, &e.RequestID, &data); err != nil {
			return e, err
		}
		e.OccurredAt = e.OccurredAt.UTC()
		var revoked struct{ Reason *domain.TextRef }
		if data != nil {
			if err := json.Unmarshal(data, &revoked); err != nil {
				return e, err
			}
		}
		if revoked.Reason != nil {
			reasons[int(last-e.Sequence)] = revoked.Reason.ID
			wanted = append(wanted, revoked.Reason.ID)
		}
		return e, nil
	}, page, shard, id, last-int64(limit), last)
	if err != nil || wanted == nil {
		return events, total, err
	}
	type text struct {
		ID   [16]byte
		Body string
	}
	known, err := collect(ctx, from, "read reasons", pgx.RowToStructByPos[text], texts, shard, id, wanted)
	bodies := map[domain.TextID]string{}
	for _, t := range known {
		bodies[t.ID] = t.Body
	}
	for i := range events {
		if body, ok := bodies[reasons[i]]; ok {
			events[i].Reason = &body
		}
	}
	return events, total, err
}

// DetectorMetric is what an organization's analyses came to, by detector and version.
type DetectorMetric struct {
	ID       string
	Version  int32
	Runs     int64
	Outcomes map[string]int64
	// Median and 95th percentile of the time a run took.
	Median, P95 time.Duration
}

// DetectorMetrics reads those of an organization, in the order of detectors and versions.
func (s *Store) DetectorMetrics(ctx context.Context, a domain.Access) ([]DetectorMetric, error) {
	const query = `SELECT detector, detector_version, count(*),
			count(*) FILTER (WHERE outcome = 'clear'), count(*) FILTER (WHERE outcome = 'finding'),
			count(*) FILTER (WHERE outcome = 'inconclusive'), count(*) FILTER (WHERE outcome = 'not_applicable'),
			percentile_disc(0.5) WITHIN GROUP (ORDER BY micros), percentile_disc(0.95) WITHIN GROUP (ORDER BY micros)
		FROM detector_runs WHERE shard = $1 AND organization_id = $2
		GROUP BY detector, detector_version ORDER BY detector, detector_version`
	var metrics []DetectorMetric
	err := s.read(ctx, a, newEnough(a), func(from source) (err error) {
		metrics, err = collect(ctx, from, "read detector metrics", scanDetectorMetric, query, a.Organization.Shard(), [16]byte(a.Organization))
		return err
	})
	return metrics, err
}

func scanDetectorMetric(row pgx.CollectableRow) (DetectorMetric, error) {
	var m DetectorMetric
	var clean, finding, inconclusive, notApplicable, median, p95 int64
	err := row.Scan(&m.ID, &m.Version, &m.Runs, &clean, &finding, &inconclusive, &notApplicable, &median, &p95)
	m.Outcomes = map[string]int64{"clear": clean, "finding": finding, "inconclusive": inconclusive, "not_applicable": notApplicable}
	m.Median, m.P95 = time.Duration(median)*time.Microsecond, time.Duration(p95)*time.Microsecond
	return m, err
}
