package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

const destinationsPerClaim = 64

// findDue lists destinations with due deliveries, by jumping from one to the next in the index of due rows. It leaves
// out destinations for which this process holds enough rows.
var findDue = cluster.SQL(`WITH RECURSIVE d AS (
		(SELECT webhook_id, due_at FROM {webhook_deliveries}
			WHERE shard = $1 AND webhook_id > $2 ORDER BY webhook_id, due_at LIMIT 1)
		UNION ALL
		SELECT n.webhook_id, n.due_at
		FROM d, LATERAL (SELECT webhook_id, due_at FROM {webhook_deliveries}
			WHERE shard = $1 AND webhook_id > d.webhook_id ORDER BY webhook_id, due_at LIMIT 1) n
	), due AS (
		SELECT webhook_id FROM d WHERE due_at <= $3 AND webhook_id <> ALL($4::uuid[]) LIMIT $5
	)
	SELECT w.webhook_id, w.organization_id, w.status, coalesce(u.body, ''), w.secret, w.previous_secret, w.previous_until, o.plan, o.internal
	FROM due
	JOIN LATERAL (SELECT webhook_id, organization_id, status, url_id, secret, previous_secret, previous_until FROM {webhooks}
		WHERE shard = $1 AND webhook_id = due.webhook_id OFFSET 0) w ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.url_id OFFSET 0) u ON true
	JOIN LATERAL (SELECT plan, internal FROM {organization_state}
		WHERE shard = $1 AND organization_id = w.organization_id OFFSET 0) o ON true`)

var findNone = cluster.SQL(`SELECT NOT EXISTS (` + fmt.Sprintf(waiting, "$1") + `)`)

// takeRows leases due rows of one destination and reads the content of their bodies. The array is built once, because a
// join might lock its rows again for each row of the queue.
var takeRows = cluster.SQL(`WITH taken AS (
		UPDATE {webhook_deliveries} q SET leased_until = $4
		WHERE q.shard = $1 AND q.delivery_id = ANY(ARRAY(
			SELECT delivery_id FROM {webhook_deliveries}
			WHERE shard = $1 AND webhook_id = $2 AND due_at <= $3 AND (leased_until IS NULL OR leased_until <= $3)
			ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED))
		RETURNING q.delivery_id, q.company_id, q.sequence, q.event_id, q.type, q.created_at, q.attempts
	)
	SELECT t.delivery_id, t.company_id, t.sequence, t.event_id, t.type, t.attempts, coalesce(a.enabled, false),
		` + projections.WebhookEventColumns + `
	FROM taken t
	LEFT JOIN LATERAL (SELECT enabled FROM {company_webhooks}
		WHERE shard = $1 AND company_id = t.company_id AND webhook_id = $2 OFFSET 0) a ON true` + projections.WebhookEventJoins + `
	ORDER BY t.delivery_id`)

// claim takes due rows of up to destinationsPerClaim destinations, as many as each has room for, and begins to send
// them. more requests another call at once.
func (s *shardWorker) claim(ctx context.Context) (more bool, err error) {
	s.empty.Store(false)
	if s.held.Load() >= maxHeld {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	// A shutdown must not interrupt it: rows leased without this process knowing would wait for the end of the lease.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statement.Timeout)
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
		var none bool
		err := s.Pool.QueryRow(ctx, findNone, s.shard).Scan(&none)
		s.empty.Store(err == nil && none)
		return false, err
	}
	if err := s.take(ctx, found, now); err != nil {
		return false, err
	}
	charging := s.charge(ctx, found, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	more = full
	for _, f := range found {
		filled := len(f.items) == f.room && f.room > 0 // without room, the next check finds it
		more = more || filled
		for _, it := range f.items {
			switch why := it.refusal(); {
			case charging != nil:
				s.put(result{item: it, kind: released, attempts: it.attempts})
			case why != "":
				s.put(result{item: it, kind: ended, attempts: it.attempts, status: projections.DeliveryCancelled, reason: why})
			case !it.charged:
				s.put(result{
					item: it, kind: ended, attempts: it.attempts, status: projections.DeliverySuppressed,
					reason: "ALLOWANCE_EXHAUSTED",
				})
			default:
				f.queue = append(f.queue, it)
			}
		}
		if charging == nil {
			f.claimed, f.more = now, filled // there may be more rows
			s.begin(f.destination)
		}
	}
	return more && charging == nil, charging
}

// found is a destination with due deliveries, and the deliveries taken from it.
type found struct {
	*destination
	target *target
	room   int
	items  []*item
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
	list, err := statement.All(ctx, s.Pool, "find what is due", func(row pgx.CollectableRow) (found, error) {
		var id domain.WebhookID
		t := &target{}
		err := row.Scan(
			&id, &t.organization, &t.status, &t.url, &t.sealed, &t.sealedPrevious, &t.previousUntil, &t.plan, &t.internal,
		)
		return found{destination: &destination{id: id}, target: t}, err
	}, findDue, s.shard, s.after, now, enough, destinationsPerClaim)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[domain.OrganizationID]int{}
	for _, d := range s.destinations {
		held[d.organization] += d.holds()
	}
	// The rest of an organization's share goes to its destinations with the fewest held rows. The others may have nothing
	// left to take, because all their rows are leased.
	least := make([]*found, len(list))
	for i := range list {
		f := &list[i]
		least[i] = f
		s.open(f.id, f.target, now)
		known := s.destinations[f.id]
		if known == nil {
			known = &destination{
				id: f.id, organization: f.target.organization, parallel: firstParallel, window: firstWindow, claimed: now,
			}
			s.destinations[f.id] = known
		}
		f.destination = known
	}
	slices.SortStableFunc(least, func(a, b *found) int { return cmp.Compare(a.holds(), b.holds()) })
	for _, f := range least {
		f.room = min(max(1, f.destination.room()), max(0, maxHeldByOne-held[f.organization]))
		held[f.organization] += f.room
	}
	return list, nil
}

// open decrypts the signing secrets. If a secret cannot be decrypted, every attempt fails with that reason.
func (s *shardWorker) open(id domain.WebhookID, t *target, now time.Time) {
	sealed := [][]byte{t.sealed}
	if t.previousUntil != nil && t.previousUntil.After(now) {
		sealed = append(sealed, t.sealedPrevious)
	}
	for _, text := range sealed {
		secret, err := s.SecretKeys().Open(id, text)
		if err != nil {
			s.Log.Error("deliveries to a webhook destination cannot be signed", "webhook", id, "error", err)
			t.unreadable = true
			return
		}
		t.secrets = append(t.secrets, secret)
	}
}

// take leases rows of each destination in one round trip.
func (s *shardWorker) take(ctx context.Context, list []found, now time.Time) error {
	until := now.Add(lease)
	b := &pgx.Batch{}
	for i := range list {
		f := &list[i]
		b.Queue(takeRows, s.shard, f.id, now, until, f.room).Query(func(rows pgx.Rows) (err error) {
			f.items, err = pgx.CollectRows(rows, scanItem)
			for _, it := range f.items {
				it.destination, it.target, it.claimedAt, it.leasedUntil = f.destination, f.target, now, until
			}
			return err
		})
	}
	if err := s.Pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("take due deliveries: %w", err)
	}
	for _, f := range list {
		s.held.Add(int64(len(f.items)))
	}
	return nil
}

// scanItem builds the body, which every attempt sends.
func scanItem(row pgx.CollectableRow) (*item, error) {
	it := &item{}
	var e projections.WebhookEvent
	var kind int16
	err := row.Scan(append(
		[]any{&it.id, &it.company, &it.sequence, &e.ID, &kind, &it.attempts, &it.authorized}, e.Columns()...,
	)...)
	if err != nil {
		return nil, err
	}
	it.event, e.Test = e.ID, it.company.IsZero()
	switch {
	case e.Test:
		it.eventType, it.authorized = projections.WebhookTest, true
	case !e.Known:
		it.authorized = false // the feed lacks the event: never sent
	default:
		it.eventType = projections.FeedType(kind)
	}
	it.body, err = e.Body()
	return it, err
}

// chargeAttempts takes attempts from the month's allowance, even if too few are left, and returns the total taken. Like
// the meter of requests, it notes when a threshold of the allowance was reached, once per limit, for queue.MeterWarner.
// An allowance of zero has no thresholds.
var chargeAttempts = cluster.SQL(`INSERT INTO {webhook_usage} AS u (shard, organization_id, period, used, reached_80, reached_95, reached_100, limit_80, limit_95, limit_100)
	SELECT s.shard, n.id, $2, n.wanted, CASE WHEN 100 * n.wanted >= 80 * n.most THEN $5::timestamptz END,
		CASE WHEN 100 * n.wanted >= 95 * n.most THEN $5 END, CASE WHEN n.wanted >= n.most THEN $5 END, n.most, n.most, n.most
	FROM {shard_heads} s, (SELECT id, wanted, nullif(most, 0) FROM unnest($3::uuid[], $4::bigint[], $6::bigint[]) AS u(id, wanted, most)) AS n(id, wanted, most)
	WHERE s.shard = $1
	ORDER BY n.id
	ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = u.used + excluded.used,
		reached_80 = CASE WHEN 100 * (u.used + excluded.used) >= 80 * excluded.limit_80
			AND (u.limit_80 = excluded.limit_80 AND u.reached_80 IS NOT NULL) IS NOT TRUE THEN $5 ELSE u.reached_80 END,
		reached_95 = CASE WHEN 100 * (u.used + excluded.used) >= 95 * excluded.limit_95
			AND (u.limit_95 = excluded.limit_95 AND u.reached_95 IS NOT NULL) IS NOT TRUE THEN $5 ELSE u.reached_95 END,
		reached_100 = CASE WHEN u.used + excluded.used >= excluded.limit_100
			AND (u.limit_100 = excluded.limit_100 AND u.reached_100 IS NOT NULL) IS NOT TRUE THEN $5 ELSE u.reached_100 END,
		limit_80 = CASE WHEN 100 * (u.used + excluded.used) >= 80 * excluded.limit_80 THEN excluded.limit_80 ELSE u.limit_80 END,
		limit_95 = CASE WHEN 100 * (u.used + excluded.used) >= 95 * excluded.limit_95 THEN excluded.limit_95 ELSE u.limit_95 END,
		limit_100 = CASE WHEN u.used + excluded.used >= excluded.limit_100 THEN excluded.limit_100 ELSE u.limit_100 END
	RETURNING organization_id, used`)

// capAttempts returns the attempts that chargeAttempts has taken beyond the limit, in the same transaction, so that
// they are never visible.
var capAttempts = cluster.SQL(`UPDATE {webhook_usage} u SET used = greatest(u.used - n.wanted, n.most)
	FROM (SELECT id, wanted, most FROM unnest($3::uuid[], $4::bigint[], $5::bigint[]) AS u(id, wanted, most) LIMIT cardinality($3::uuid[])) AS n
	WHERE u.shard = $1 AND u.organization_id = n.id AND u.period = $2 AND u.used > n.most`)

// charge takes one of the month's attempts for every row that can be sent, up to the limit of the organization's plan,
// if any. The other rows stay uncharged. Unused attempts are returned with the results.
func (s *shardWorker) charge(ctx context.Context, list []found, now time.Time) error {
	wanted := map[domain.OrganizationID][]*item{}
	limits := map[domain.OrganizationID]*int64{}
	for _, f := range list {
		limit := s.Plans.Of(f.target.plan, f.target.internal).WebhookAttemptsPerMonth
		for _, it := range f.items {
			if o := f.target.organization; it.refusal() == "" {
				wanted[o], limits[o] = append(wanted[o], it), limit
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	ids, period, charged := sorted(wanted), int32(domain.PeriodOf(now)), map[domain.OrganizationID]int64{}
	counts := statement.Column(ids, func(o domain.OrganizationID) int64 { return int64(len(wanted[o])) })
	most := statement.Column(ids, func(o domain.OrganizationID) *int64 { return limits[o] })
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(chargeAttempts, s.shard, period, ids, counts, now, most).Query(func(rows pgx.Rows) error {
		var o domain.OrganizationID
		var used int64
		_, err := pgx.ForEachRow(rows, []any{&o, &used}, func() error {
			charged[o] = used
			return nil
		})
		return err
	})
	b.Queue(capAttempts, s.shard, period, ids, counts, most)
	b.Queue("COMMIT")
	if err := s.Pool.SendBatch(ctx, b).Close(); err != nil {
		return statement.Failed("charge webhook attempts", err)
	}
	for o, used := range charged {
		granted := len(wanted[o])
		if limit := limits[o]; limit != nil {
			granted -= int(min(max(0, used-*limit), int64(granted)))
		}
		for _, it := range wanted[o][:granted] {
			it.charged = true
		}
	}
	return nil
}

// refundAttempts also removes the notes of thresholds that are no longer reached, so that a later check does not warn
// of attempts that were not made. An earlier check has counted the claimed attempts.
var refundAttempts = cluster.SQL(`UPDATE {webhook_usage} SET used = greatest(0, used - $4),
		reached_80 = CASE WHEN 100 * (used - $4) >= 80 * limit_80 THEN reached_80 END,
		reached_95 = CASE WHEN 100 * (used - $4) >= 95 * limit_95 THEN reached_95 END,
		reached_100 = CASE WHEN used - $4 >= limit_100 THEN reached_100 END
	WHERE shard = $1 AND organization_id = $2 AND period = $3`)

// refund returns attempts of a month that were charged but not made.
func (s *shardWorker) refund(ctx context.Context, period domain.Period, counts map[domain.OrganizationID]int64) error {
	b := &pgx.Batch{}
	for _, o := range sorted(counts) {
		b.Queue(refundAttempts, s.shard, o, int32(period), counts[o])
	}
	if b.Len() == 0 {
		return nil
	}
	if err := s.Pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("refund webhook attempts: %w", err)
	}
	return nil
}

// refusal returns the reason why a row must not be sent, empty if it may be sent.
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
