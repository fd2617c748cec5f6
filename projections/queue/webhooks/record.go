package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/wait"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// resultKind determines what happens to the row of a result.
type resultKind int

const (
	ended    resultKind = iota // moved to the log
	retried                    // due again later
	released                   // was not sent; due as before
)

// result is the outcome of a claimed row, as its columns.
type result struct {
	item        *item
	kind        resultKind
	status      projections.DeliveryStatus // of ended
	attempts    int
	attemptedAt *time.Time // nil if no attempt was made
	due         time.Time  // of retried
	response    *int32     // status of the answer
	reason      string
	answer      []byte // the beginning of its body
	took        *int32 // milliseconds; nil if no attempt was made
}

// OutcomeRetried is the outcome of a failed attempt that is retried later.
const OutcomeRetried = "retried"

const recordMost = 1000

// record writes results until finished is closed and none is left. It writes all accumulated results in one statement,
// without waiting for a timer. It retries a failed write; meanwhile leases may expire and deliveries be repeated.
func (s *shardWorker) record(ctx context.Context) {
	for more := true; ; {
		s.mu.Lock()
		n := min(len(s.results), recordMost)
		batch := slices.Clone(s.results[:n])
		s.results = append(s.results[:0], s.results[n:]...)
		s.mu.Unlock()
		if n == 0 {
			if !more {
				return
			}
			_, more = <-s.finished
			continue
		}
		for {
			err := s.write(ctx, batch)
			if err == nil {
				break
			}
			s.Log.Warn("recording results of webhook deliveries failed", "shard", s.shard, "results", n, "error", err)
			if ctx.Err() != nil {
				break // shutting down: the leases will expire
			}
			_ = wait.For(ctx, pollEvery)
		}
		s.held.Add(-int64(n))
	}
}

// A row is held while it still has the worker's lease. lockHeld locks the rows, so that they neither change nor move
// between the other statements, each of which Citus runs on the shard's node. Each row is looked up by key, and then by
// place, whatever the planner's estimate of the queue's size. A plain join would scan a shard that was nearly empty at
// the last ANALYZE.
const (
	results = `unnest($2::uuid[], $3::timestamptz[], $4::smallint[], $5::int[], $6::timestamptz[], $7::timestamptz[], $8::int[], $9::text[], $10::bytea[], $11::int[])
		AS n(delivery_id, lease, status, attempts, attempted, due, response, reason, answer, took)`
	few = `(SELECT delivery_id, lease, attempts, attempted, due, response, reason, answer, took FROM ` + results +
		` LIMIT cardinality($2::uuid[])) AS n
		CROSS JOIN LATERAL (SELECT ctid AS place FROM {webhook_deliveries}
			WHERE shard = $1 AND delivery_id = n.delivery_id AND leased_until = n.lease OFFSET 0) p`
	isHeld = ` d.shard = $1 AND d.ctid = p.place`
)

var (
	lockHeld = cluster.SQL(`SELECT q.delivery_id FROM unnest($2::uuid[]) AS n(delivery_id)
		JOIN LATERAL (SELECT delivery_id FROM {webhook_deliveries} WHERE shard = $1 AND delivery_id = n.delivery_id OFFSET 0 FOR UPDATE) q ON true`)
	logEnded = cluster.SQL(`INSERT INTO {webhook_log} (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at,
			attempts, attempted_at, response_status, reason, status, finished_at, answer, took_ms)
		SELECT d.shard, d.webhook_id, d.delivery_id, d.organization_id, d.company_id, d.sequence, d.event_id, d.type, d.created_at,
			n.attempts, coalesce(n.attempted, d.attempted_at), CASE WHEN n.attempted IS NULL THEN d.response_status ELSE n.response END, n.reason, n.status, $12,
			CASE WHEN n.attempted IS NULL THEN d.answer ELSE n.answer END, CASE WHEN n.attempted IS NULL THEN d.took_ms ELSE n.took END
		FROM {shard_heads} s CROSS JOIN ` + results + `
		LEFT JOIN {webhook_deliveries} d ON d.shard = $1 AND d.delivery_id = n.delivery_id AND d.leased_until = n.lease
		WHERE s.shard = $1 AND CASE WHEN d.delivery_id IS NOT NULL THEN true END
		ON CONFLICT (shard, webhook_id, delivery_id) DO UPDATE SET attempts = excluded.attempts, attempted_at = excluded.attempted_at,
			response_status = excluded.response_status, reason = excluded.reason, status = excluded.status,
			finished_at = excluded.finished_at,
			answer = excluded.answer, took_ms = excluded.took_ms`)
	removeEnded  = cluster.SQL(`DELETE FROM {webhook_deliveries} d USING ` + few + ` WHERE` + isHeld)
	writeRetried = cluster.SQL(`UPDATE {webhook_deliveries} d SET attempts = n.attempts, attempted_at = n.attempted, due_at = n.due, leased_until = NULL,
			response_status = n.response, reason = n.reason, answer = n.answer, took_ms = n.took
		FROM ` + few + ` WHERE` + isHeld)
	writeReleased = cluster.SQL(`UPDATE {webhook_deliveries} d SET leased_until = NULL FROM ` + few + ` WHERE` + isHeld)
	writeWorking  = cluster.SQL(`UPDATE {webhook_health} h SET failing_since = NULL
		FROM (SELECT webhook_id FROM unnest($2::uuid[]) AS u(webhook_id) LIMIT cardinality($2::uuid[])) AS n
		WHERE h.shard = $1 AND h.webhook_id = n.webhook_id AND h.failing_since IS NOT NULL`)
	writeFailing = cluster.SQL(`INSERT INTO {webhook_health} AS webhook_health (shard, webhook_id, failing_since)
		SELECT s.shard, n.webhook_id, $3 FROM {shard_heads} s, unnest($2::uuid[]) AS n(webhook_id) WHERE s.shard = $1
		ON CONFLICT (shard, webhook_id) DO UPDATE SET failing_since = excluded.failing_since WHERE webhook_health.failing_since IS NULL`)
	findFailing = cluster.SQL(`SELECT h.webhook_id FROM unnest($2::uuid[]) AS n(webhook_id)
		JOIN LATERAL (SELECT webhook_id FROM {webhook_health}
			WHERE shard = $1 AND webhook_id = n.webhook_id AND failing_since <= $3 OFFSET 0) h ON true`)
)

// tally summarizes a batch of results.
type tally struct {
	of       map[resultKind][]result
	outcomes map[string]int                                    // for Observe
	working  map[domain.WebhookID]bool                         // destinations that received something
	failing  map[domain.WebhookID]domain.OrganizationID        // destinations with only failures
	gone     map[domain.WebhookID]domain.OrganizationID        // destinations that answered 410
	unused   map[domain.Period]map[domain.OrganizationID]int64 // attempts charged but not made
}

func (s *shardWorker) tally(batch []result) tally {
	t := tally{
		of: map[resultKind][]result{}, outcomes: map[string]int{}, working: map[domain.WebhookID]bool{},
		failing: map[domain.WebhookID]domain.OrganizationID{}, gone: map[domain.WebhookID]domain.OrganizationID{},
		unused: map[domain.Period]map[domain.OrganizationID]int64{},
	}
	for _, r := range batch {
		t.of[r.kind] = append(t.of[r.kind], r)
		if r.kind != released {
			t.outcomes[cmp.Or(string(r.status), OutcomeRetried)]++
		}
		id, to := r.item.destination.id, r.item.target
		switch {
		case r.kind == released && r.item.charged:
			period := domain.PeriodOf(r.item.claimedAt)
			if t.unused[period] == nil {
				t.unused[period] = map[domain.OrganizationID]int64{}
			}
			t.unused[period][to.organization]++
		case r.status == projections.DeliveryDelivered:
			t.working[id] = true
		case r.attemptedAt != nil:
			t.failing[id] = to.organization
			if r.response != nil && *r.response == http.StatusGone {
				t.gone[id] = to.organization
			}
		}
	}
	for id := range t.working {
		delete(t.failing, id)
	}
	return t
}

// write records results in one transaction, returns unused attempts, and disables destinations that are gone or have
// failed for too long.
func (s *shardWorker) write(ctx context.Context, batch []result) error {
	// A shutdown must not interrupt it, because sent deliveries must not be sent again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statement.Timeout)
	defer cancel()
	now, t := s.Now().UTC(), s.tally(batch)
	overdue, err := s.store(ctx, t, now)
	if err != nil {
		return err
	}
	for outcome, n := range t.outcomes {
		if s.Observe != nil {
			s.Observe(outcome, n)
		}
	}
	for period, counts := range t.unused {
		if err := s.refund(ctx, period, counts); err != nil {
			s.Log.Warn("refunding unused webhook attempts failed", "shard", s.shard, "error", err)
		}
	}
	delivered := t.outcomes[string(projections.DeliveryDelivered)]
	s.Log.Info("webhooks", "shard", s.shard, "delivered", delivered, "ended", len(t.of[ended])-delivered,
		"retried", len(t.of[retried]), "released", len(t.of[released]), "duration", s.Now().Sub(now))
	for id, o := range t.gone {
		s.disable(ctx, o, id, domain.DisabledGone)
	}
	for _, id := range overdue {
		if _, isGone := t.gone[id]; !isGone {
			s.disable(ctx, t.failing[id], id, domain.DisabledFailing)
		}
	}
	return nil
}

// store writes rows and the health of destinations in one round trip. It returns the destinations that have failed for
// too long.
func (s *shardWorker) store(ctx context.Context, t tally, now time.Time) (overdue []domain.WebhookID, err error) {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	ids := statement.Column(slices.Concat(t.of[ended], t.of[retried], t.of[released]), func(r result) domain.DeliveryID {
		return r.item.id
	})
	// in one order, so that two processes cannot deadlock
	slices.SortFunc(ids, func(a, b domain.DeliveryID) int { return bytes.Compare(a[:], b[:]) })
	b.Queue(lockHeld, s.shard, ids)
	if list := t.of[ended]; list != nil {
		b.Queue(logEnded, append(s.columns(list), now)...)
		b.Queue(removeEnded, s.columns(list)...)
	}
	if list := t.of[retried]; list != nil {
		b.Queue(writeRetried, s.columns(list)...)
	}
	if list := t.of[released]; list != nil {
		b.Queue(writeReleased, s.columns(list)...)
	}
	if len(t.working) > 0 {
		b.Queue(writeWorking, s.shard, sorted(t.working))
	}
	if len(t.failing) > 0 {
		ids := sorted(t.failing)
		b.Queue(writeFailing, s.shard, ids, now)
		b.Queue(findFailing, s.shard, ids, now.Add(-failingLimit)).Query(func(rows pgx.Rows) (err error) {
			overdue, err = pgx.CollectRows(rows, pgx.RowTo[domain.WebhookID])
			return err
		})
	}
	b.Queue("COMMIT")
	return overdue, s.Pool.SendBatch(ctx, b).Close() // if the transaction has not ended, the connection is closed
}

// columns returns the arguments of the statements on results.
func (s *shardWorker) columns(list []result) []any {
	return []any{
		s.shard,
		statement.Column(list, func(r result) domain.DeliveryID { return r.item.id }),
		statement.Column(list, func(r result) time.Time { return r.item.leasedUntil }),
		statement.Column(list, func(r result) int16 { return r.status.Code() }),
		statement.Column(list, func(r result) int32 { return int32(r.attempts) }),
		statement.Column(list, func(r result) *time.Time { return r.attemptedAt }),
		statement.Column(list, func(r result) time.Time { return r.due }),
		statement.Column(list, func(r result) *int32 { return r.response }),
		statement.Column(list, func(r result) string { return r.reason }),
		statement.Column(list, func(r result) []byte { return r.answer }),
		statement.Column(list, func(r result) *int32 { return r.took }),
	}
}

// disable executes a command on the ledger. If that fails, the next failed attempt repeats it.
func (s *shardWorker) disable(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID, reason domain.DisableReason,
) {
	origin := domain.Origin{Organization: o, Actor: domain.SystemActor, RequestID: "webhooks"}
	if err := s.Do(ctx, &domain.DisableWebhook{Origin: origin, Webhook: id, Reason: reason}); err != nil {
		s.Log.Warn("disabling a webhook destination failed", "webhook", id, "reason", reason, "error", err)
		return
	}
	s.Log.Warn("webhook destination disabled", "webhook", id, "reason", reason)
}

// sorted returns the keys in one order, so that two processes that lock them cannot deadlock.
func sorted[K ~[16]byte, V any](set map[K]V) []K {
	return slices.SortedFunc(maps.Keys(set), func(a, b K) int { return bytes.Compare(a[:], b[:]) })
}
