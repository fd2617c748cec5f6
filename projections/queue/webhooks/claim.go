package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections"
)

const (
	destinationsPerClaim = 64
	databaseTimeout      = 10 * time.Second
)

// findDue lists destinations that have something due, by jumping from one to the next in the index of due rows, except
// those of which this process holds enough.
const findDue = `WITH RECURSIVE d AS (
		(SELECT webhook_id, due_at FROM webhook_deliveries
			WHERE shard = $1 AND webhook_id > $2 ORDER BY webhook_id, due_at LIMIT 1)
		UNION ALL
		SELECT n.webhook_id, n.due_at
		FROM d, LATERAL (SELECT webhook_id, due_at FROM webhook_deliveries
			WHERE shard = $1 AND webhook_id > d.webhook_id ORDER BY webhook_id, due_at LIMIT 1) n
	), due AS (
		SELECT webhook_id FROM d WHERE due_at <= $3 AND webhook_id <> ALL($4::uuid[]) LIMIT $5
	)
	SELECT w.webhook_id, w.organization_id, w.status, coalesce(u.body, ''), w.secret, w.previous_secret, w.previous_until, o.plan, o.internal
	FROM due
	JOIN LATERAL (SELECT webhook_id, organization_id, status, url_id, secret, previous_secret, previous_until FROM webhooks
		WHERE shard = $1 AND webhook_id = due.webhook_id OFFSET 0) w ON true
	LEFT JOIN LATERAL (SELECT body FROM texts
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.url_id OFFSET 0) u ON true
	JOIN LATERAL (SELECT plan, internal FROM organization_state
		WHERE shard = $1 AND organization_id = w.organization_id OFFSET 0) o ON true`

// takeRows leases due rows of one destination and reads everything that their bodies say. The array is built once; a
// join might lock its rows again for each row of the queue.
const takeRows = `WITH taken AS (
		UPDATE webhook_deliveries q SET leased_until = $4
		WHERE q.shard = $1 AND q.delivery_id = ANY(ARRAY(
			SELECT delivery_id FROM webhook_deliveries
			WHERE shard = $1 AND webhook_id = $2 AND due_at <= $3 AND (leased_until IS NULL OR leased_until <= $3)
			ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED))
		RETURNING q.delivery_id, q.company_id, q.sequence, q.event_id, q.type, q.created_at, q.attempts
	)
	SELECT t.delivery_id, t.company_id, t.sequence, t.event_id, t.type, t.created_at, t.attempts, coalesce(a.enabled, false),
		c.reference, d.source, d.reference, f.version, f.status, f.public_id, f.occurred_at
	FROM taken t
	LEFT JOIN LATERAL (SELECT enabled FROM company_webhooks
		WHERE shard = $1 AND company_id = t.company_id AND webhook_id = $2 OFFSET 0) a ON true
	LEFT JOIN LATERAL (SELECT reference FROM companies WHERE shard = $1 AND company_id = t.company_id OFFSET 0) c ON true
	LEFT JOIN LATERAL (SELECT document_id, version, status, public_id, occurred_at FROM feed
		WHERE shard = $1 AND company_id = t.company_id AND sequence = t.sequence OFFSET 0) f ON true
	LEFT JOIN LATERAL (SELECT source, reference FROM documents
		WHERE shard = $1 AND document_id = f.document_id OFFSET 0) d ON true
	ORDER BY t.delivery_id`

// claim takes due rows of up to destinationsPerClaim destinations, each as many as it has room for, and begins to send
// them. more asks for another call at once.
func (s *shardWorker) claim(ctx context.Context) (more bool, err error) {
	if s.held.Load() >= maxHeld {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	// A shutdown does not interrupt it: rows that were leased without this process knowing would wait for the end of
	// the lease.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	now := s.Now().UTC().Truncate(time.Microsecond)
	found, err := s.findDue(ctx, now)
	if err != nil {
		return false, err
	}
	full := len(found) == destinationsPerClaim
	if s.after = (domain.WebhookID{}); full {
		s.after = found[len(found)-1].id
	}
	if len(found) == 0 {
		return false, nil
	}
	items, err := s.take(ctx, found, now)
	if err != nil {
		return false, err
	}
	if err := s.charge(ctx, items, now); err != nil {
		s.release(items)
		return false, err
	}
	more = full
	for i, f := range found {
		sendable := s.split(items[i])
		filled := len(items[i]) == f.room
		s.add(f.destination, sendable, filled, now)
		more = more || filled
	}
	return more, nil
}

// release gives back rows that were not sent.
func (s *shardWorker) release(items [][]*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range items {
		for _, it := range list {
			s.put(result{item: it, kind: released})
		}
	}
}

// found is a destination that has something due.
type found struct {
	*destination
	target *target
	room   int
}

func (s *shardWorker) findDue(ctx context.Context, now time.Time) ([]found, error) {
	s.mu.Lock()
	s.forget(now)
	enough := []domain.WebhookID{}
	for id, d := range s.destinations {
		if d.room() == 0 {
			enough = append(enough, id)
		}
	}
	s.mu.Unlock()
	rows, err := s.Pool.Query(ctx, findDue, s.shard, s.after, now, enough, destinationsPerClaim)
	if err != nil {
		return nil, fmt.Errorf("find what is due: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (found, error) {
		var id domain.WebhookID
		t := &target{}
		err := row.Scan(&id, &t.organization, &t.status, &t.url, &t.sealed, &t.sealedPrevious, &t.previousUntil, &t.plan, &t.internal)
		return found{destination: &destination{id: id}, target: t}, err
	})
	if err != nil {
		return nil, fmt.Errorf("find what is due: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		f := &list[i]
		s.open(f.id, f.target, now)
		known := s.destinations[f.id]
		if known == nil {
			known = &destination{id: f.id, parallel: firstParallel, window: firstWindow, claimed: now}
			s.destinations[f.id] = known
		}
		f.destination, f.room = known, max(1, known.room())
	}
	return list, nil
}

// open decrypts the signing secrets. A secret that cannot be opened fails every attempt, which then says so.
func (s *shardWorker) open(id domain.WebhookID, t *target, now time.Time) {
	sealed := [][]byte{t.sealed}
	if t.previousUntil != nil && t.previousUntil.After(now) {
		sealed = append(sealed, t.sealedPrevious)
	}
	for _, text := range sealed {
		secret, err := "", errors.New("there is no INTEGRITY_SECRET_KEY")
		if s.SecretKey != nil {
			secret, err = s.SecretKey.Open(id, text)
		}
		if err != nil {
			s.Log.Error("deliveries to a webhook destination cannot be signed", "webhook", id, "error", err)
			t.unreadable = true
			return
		}
		t.secrets = append(t.secrets, secret)
	}
}

// take leases rows of each destination in one round trip.
func (s *shardWorker) take(ctx context.Context, list []found, now time.Time) ([][]*item, error) {
	until := now.Add(lease)
	items := make([][]*item, len(list))
	b := &pgx.Batch{}
	for i, f := range list {
		b.Queue(takeRows, s.shard, f.id, now, until, f.room).Query(func(rows pgx.Rows) error {
			var err error
			items[i], err = pgx.CollectRows(rows, scanItem)
			for _, it := range items[i] {
				it.destination, it.target, it.claimedAt, it.leasedUntil = f.destination, f.target, now, until
			}
			return err
		})
	}
	if err := s.Pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("take due deliveries: %w", err)
	}
	for i := range items {
		s.held.Add(int64(len(items[i])))
	}
	return items, nil
}

// payload is the body of a delivery: exactly the nine members of the specification.
type payload struct {
	ID                domain.EventID  `json:"id"`
	OccurredAt        string          `json:"occurredAt"`
	PublicID          domain.PublicID `json:"publicId"`
	CompanyReference  string          `json:"companyReference"`
	Source            string          `json:"source"`
	DocumentReference string          `json:"documentReference"`
	DocumentVersion   int32           `json:"documentVersion"`
	RecordStatus      domain.Status   `json:"recordStatus"`
	Version           int             `json:"version"` // of the protocol
}

const protocolVersion = 1

// scanItem builds the body from columns that never change, so that every attempt sends the same bytes.
func scanItem(row pgx.CollectableRow) (*item, error) {
	it := &item{}
	p := payload{Version: protocolVersion}
	var company *domain.CompanyID
	var publicID *domain.PublicID
	var kind int16
	var created time.Time
	var reference, source, document *string
	var version *int32
	var status *int16
	var occurred *time.Time
	err := row.Scan(&it.id, &company, &it.sequence, &p.ID, &kind, &created, &it.attempts, &it.authorized,
		&reference, &source, &document, &version, &status, &publicID, &occurred)
	if err != nil {
		return nil, err
	}
	switch {
	case company == nil:
		it.eventType, it.authorized = projections.WebhookTest, true
		p.OccurredAt = evidence.FormatTime(created)
		p.CompanyReference, p.Source, p.DocumentReference = domain.TestCompany, domain.TestCompany, domain.TestCompany
		p.DocumentVersion, p.RecordStatus = 1, domain.StatusSuperseded // never the current version of anything
	case occurred == nil || reference == nil || source == nil || document == nil:
		it.authorized = false // the feed lacks the event: never sent
	default:
		it.company, it.eventType = *company, projections.FeedType(kind)
		p.OccurredAt, p.PublicID = evidence.FormatTime(*occurred), *publicID
		p.CompanyReference, p.Source, p.DocumentReference = *reference, *source, *document
		p.DocumentVersion, p.RecordStatus = *version, projections.FeedStatus(*status)
	}
	it.body, err = json.Marshal(p)
	return it, err
}

// chargeAttempts takes attempts from the month's allowance and returns how many have been taken in all.
const chargeAttempts = `INSERT INTO webhook_usage (shard, organization_id, period, used)
	SELECT s.shard, n.id, $2, n.wanted FROM shard_heads s, unnest($3::uuid[], $4::bigint[]) AS n(id, wanted) WHERE s.shard = $1
	ORDER BY n.id
	ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = webhook_usage.used + excluded.used
	RETURNING organization_id, used`

// charge takes an attempt of the month for every row that can be sent, up to the limit of the organization's plan; the
// other rows stay uncharged. Unused attempts are given back with the results.
func (s *shardWorker) charge(ctx context.Context, items [][]*item, now time.Time) error {
	wanted := map[domain.OrganizationID][]*item{}
	limits := map[domain.OrganizationID]int64{}
	for _, list := range items {
		for _, it := range list {
			if it.refusal() != "" {
				continue
			}
			limit := s.Plans.WebhookAttempts(it.target.plan, it.target.internal)
			if limit == nil {
				it.charged = true // from no allowance
				continue
			}
			o := it.target.organization
			wanted[o], limits[o] = append(wanted[o], it), *limit
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var ids []domain.OrganizationID
	var counts []int64
	for o, list := range wanted {
		ids, counts = append(ids, o), append(counts, int64(len(list)))
	}
	period := domain.PeriodOf(now)
	rows, err := s.Pool.Query(ctx, chargeAttempts, s.shard, int32(period), ids, counts)
	if err != nil {
		return fmt.Errorf("charge webhook attempts: %w", err)
	}
	excess := map[domain.OrganizationID]int64{}
	var o domain.OrganizationID
	var used int64
	_, err = pgx.ForEachRow(rows, []any{&o, &used}, func() error {
		granted := max(0, int64(len(wanted[o]))-max(0, used-limits[o]))
		for _, it := range wanted[o][:granted] {
			it.charged = true
		}
		if n := int64(len(wanted[o])) - granted; n > 0 {
			excess[o] = n
		}
		return nil
	})
	if err == nil {
		err = s.refund(ctx, period, excess)
	}
	if err != nil {
		return fmt.Errorf("charge webhook attempts: %w", err)
	}
	return nil
}

const refundAttempts = `UPDATE webhook_usage SET used = greatest(0, used - $4) WHERE shard = $1 AND organization_id = $2 AND period = $3`

func (s *shardWorker) refund(ctx context.Context, period domain.Period, counts map[domain.OrganizationID]int64) error {
	b := &pgx.Batch{}
	ids := make([]domain.OrganizationID, 0, len(counts))
	for o := range counts {
		ids = append(ids, o)
	}
	slices.SortFunc(ids, func(a, b domain.OrganizationID) int { return slices.Compare(a[:], b[:]) })
	for _, o := range ids {
		b.Queue(refundAttempts, s.shard, o, int32(period), counts[o])
	}
	if b.Len() == 0 {
		return nil
	}
	return s.Pool.SendBatch(ctx, b).Close()
}

// refusal says why a row must not be sent; it is empty if the row may be sent.
func (it *item) refusal() string {
	switch {
	case it.target.status == "deleted":
		return "DELETED"
	case it.target.status != string(domain.WebhookActive):
		return "DISABLED"
	case !it.authorized:
		return "NOT_AUTHORIZED"
	case it.target.url == "":
		return "URL_ERASED"
	default:
		return ""
	}
}

// split returns the rows to send, and ends the others.
func (s *shardWorker) split(items []*item) (sendable []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range items {
		switch why := it.refusal(); {
		case why != "":
			s.put(result{item: it, kind: ended, status: projections.DeliveryCancelled, reason: why})
		case !it.charged:
			s.put(result{item: it, kind: ended, status: projections.DeliverySuppressed, reason: "ALLOWANCE_EXHAUSTED"})
		default:
			sendable = append(sendable, it)
		}
	}
	return sendable
}
