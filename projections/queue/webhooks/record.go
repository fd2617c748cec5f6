package webhooks

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// resultKind says what happens to the row of a result.
type resultKind int

const (
	ended    resultKind = iota // to the log
	retried                    // due again later
	released                   // was not sent; due as before
)

// result is the outcome of a claimed row.
type result struct {
	item     *item
	kind     resultKind
	attempt  attempt // zero where none was made
	attempts int
	status   projections.DeliveryStatus // of ended
	due      time.Time                  // of retried
	reason   string
}

// OutcomeRetried is the outcome of a failed attempt that is repeated later.
const OutcomeRetried = "retried"

const recordMost = 1000

// record writes results until stop is closed and nothing is left: all that have accumulated in one statement, without
// waiting for a timer. It repeats a write that fails; meanwhile leases may run out and deliveries be repeated.
func (s *shardWorker) record(ctx context.Context, stop <-chan struct{}) {
	stopped := false
	for {
		s.mu.Lock()
		n := min(len(s.results), recordMost)
		batch := slices.Clone(s.results[:n])
		s.results = append(s.results[:0], s.results[n:]...)
		s.mu.Unlock()
		if n == 0 {
			if stopped {
				return
			}
			select {
			case <-stop:
				stopped = true
			case <-s.finished:
			}
			continue
		}
		for {
			err := s.write(ctx, batch)
			if err == nil {
				break
			}
			s.Log.Warn("results of webhook deliveries could not be recorded", "shard", s.shard, "results", n, "error", err)
			if ctx.Err() != nil {
				break // shutting down: the leases run out
			}
			select {
			case <-ctx.Done():
			case <-time.After(pollEvery):
			}
		}
		s.held.Add(-int64(n))
	}
}

// A held row still has the lease that was taken. Each is looked up by its key and then by its place, whatever the
// planner believes about the size of the queue; another condition would allow a walk over the shard.
const (
	heldRow = `JOIN LATERAL (SELECT ctid AS place FROM webhook_deliveries
			WHERE shard = $1 AND delivery_id = n.delivery_id AND leased_until = n.lease OFFSET 0 FOR UPDATE) q ON true`

	writeEnded = `WITH held AS MATERIALIZED (
			SELECT q.place, n.status, n.attempts, n.attempted, n.response, n.reason
			FROM unnest($2::uuid[], $3::timestamptz[], $4::smallint[], $5::int[], $6::timestamptz[], $7::int[], $8::text[])
				AS n(delivery_id, lease, status, attempts, attempted, response, reason)
			` + heldRow + `
		), gone AS (
			DELETE FROM webhook_deliveries d USING held n WHERE d.ctid = n.place
			RETURNING d.webhook_id, d.delivery_id, d.organization_id, d.company_id, d.sequence, d.event_id, d.type, d.created_at,
				n.attempts, coalesce(n.attempted, d.attempted_at) AS attempted_at, coalesce(n.response, d.response_status) AS response_status,
				n.reason, n.status
		)
		INSERT INTO webhook_log (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at,
			attempts, attempted_at, response_status, reason, status, finished_at)
		SELECT $1, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at,
			attempts, attempted_at, response_status, reason, status, $9 FROM gone` + replaceLogged

	replaceLogged = `
		ON CONFLICT (shard, webhook_id, delivery_id) DO UPDATE SET attempts = excluded.attempts, attempted_at = excluded.attempted_at,
			response_status = excluded.response_status, reason = excluded.reason, status = excluded.status, finished_at = excluded.finished_at`

	writeRetried = `WITH held AS MATERIALIZED (
			SELECT q.place, n.attempts, n.attempted, n.due, n.response, n.reason
			FROM unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::int[], $8::text[])
				AS n(delivery_id, lease, attempts, attempted, due, response, reason)
			` + heldRow + `
		)
		UPDATE webhook_deliveries d SET attempts = n.attempts, attempted_at = n.attempted, due_at = n.due, leased_until = NULL,
			response_status = n.response, reason = n.reason
		FROM held n WHERE d.ctid = n.place`

	writeReleased = `WITH held AS MATERIALIZED (
			SELECT q.place FROM unnest($2::uuid[], $3::timestamptz[]) AS n(delivery_id, lease)
			` + heldRow + `
		)
		UPDATE webhook_deliveries d SET leased_until = NULL FROM held n WHERE d.ctid = n.place`

	writeWorking = `UPDATE webhook_health h SET failing_since = NULL
		FROM (SELECT webhook_id FROM unnest($2::uuid[]) AS u(webhook_id) LIMIT cardinality($2::uuid[])) AS n
		WHERE h.shard = $1 AND h.webhook_id = n.webhook_id AND h.failing_since IS NOT NULL`

	writeFailing = `INSERT INTO webhook_health (shard, webhook_id, failing_since)
		SELECT s.shard, n.webhook_id, $3 FROM shard_heads s, unnest($2::uuid[]) AS n(webhook_id) WHERE s.shard = $1
		ON CONFLICT (shard, webhook_id) DO UPDATE SET failing_since = excluded.failing_since WHERE webhook_health.failing_since IS NULL`

	findFailing = `SELECT h.webhook_id FROM unnest($2::uuid[]) AS n(webhook_id)
		JOIN LATERAL (SELECT webhook_id FROM webhook_health
			WHERE shard = $1 AND webhook_id = n.webhook_id AND failing_since <= $3 OFFSET 0) h ON true`
)

// tries is the number of attempts that a row has had with this result.
func (r result) tries() int32 {
	if r.attempt.at.IsZero() {
		return int32(r.item.attempts)
	}
	return int32(r.attempts)
}

func (r result) attemptedAt() *time.Time {
	if r.attempt.at.IsZero() {
		return nil
	}
	return &r.attempt.at
}

func (r result) response() *int32 {
	if r.attempt.status == 0 {
		return nil
	}
	return new(int32(r.attempt.status))
}

func (r result) delivery() domain.DeliveryID { return r.item.id }

func (r result) lease() time.Time { return r.item.leasedUntil }

func (r result) why() string { return r.reason }

// Citus runs none of these on one node. There the same happens in a transaction: lockHeld locks the rows, so that they
// do not change between the other statements.
const (
	lockHeld = `SELECT delivery_id FROM webhook_deliveries WHERE shard = $1 AND delivery_id = ANY($2::uuid[]) ORDER BY delivery_id FOR UPDATE`

	heldKey = ` d.shard = $1 AND d.delivery_id = n.delivery_id AND d.leased_until = n.lease`

	logEnded = `INSERT INTO webhook_log (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at,
			attempts, attempted_at, response_status, reason, status, finished_at)
		SELECT d.shard, d.webhook_id, d.delivery_id, d.organization_id, d.company_id, d.sequence, d.event_id, d.type, d.created_at,
			n.attempts, coalesce(n.attempted, d.attempted_at), coalesce(n.response, d.response_status), n.reason, n.status, $9
		FROM unnest($2::uuid[], $3::timestamptz[], $4::smallint[], $5::int[], $6::timestamptz[], $7::int[], $8::text[])
			AS n(delivery_id, lease, status, attempts, attempted, response, reason)
		JOIN webhook_deliveries d ON` + heldKey + ` WHERE d.shard = $1` + replaceLogged

	endHeld = `DELETE FROM webhook_deliveries d USING unnest($2::uuid[], $3::timestamptz[]) AS n(delivery_id, lease) WHERE` + heldKey

	retryHeld = `UPDATE webhook_deliveries d SET attempts = n.attempts, attempted_at = n.attempted, due_at = n.due, leased_until = NULL,
			response_status = n.response, reason = n.reason
		FROM unnest($2::uuid[], $3::timestamptz[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::int[], $8::text[])
			AS n(delivery_id, lease, attempts, attempted, due, response, reason)
		WHERE` + heldKey

	releaseHeld = `UPDATE webhook_deliveries d SET leased_until = NULL FROM unnest($2::uuid[], $3::timestamptz[]) AS n(delivery_id, lease) WHERE` + heldKey
)

// tally is what a batch of results amounts to.
type tally struct {
	of        map[resultKind][]result
	delivered int
	working   map[domain.WebhookID]bool                         // destinations that received something
	failing   map[domain.WebhookID]domain.OrganizationID        // those that did nothing but fail
	gone      map[domain.WebhookID]domain.OrganizationID        // those that said that they are gone for good
	unused    map[domain.Period]map[domain.OrganizationID]int64 // attempts that were charged and not made
}

func (s *shardWorker) tally(batch []result) tally {
	t := tally{
		of: map[resultKind][]result{}, working: map[domain.WebhookID]bool{}, failing: map[domain.WebhookID]domain.OrganizationID{},
		gone: map[domain.WebhookID]domain.OrganizationID{}, unused: map[domain.Period]map[domain.OrganizationID]int64{},
	}
	for _, r := range batch {
		t.of[r.kind] = append(t.of[r.kind], r)
		id, to := r.item.destination.id, r.item.target
		switch {
		case r.kind == released && r.item.charged && s.Plans.WebhookAttempts(to.plan, to.internal) != nil:
			period := domain.PeriodOf(r.item.claimedAt)
			if t.unused[period] == nil {
				t.unused[period] = map[domain.OrganizationID]int64{}
			}
			t.unused[period][to.organization]++
		case r.status == projections.DeliveryDelivered:
			t.working[id] = true
			t.delivered++
		case !r.attempt.at.IsZero():
			t.failing[id] = to.organization
			if r.attempt.status == http.StatusGone {
				t.gone[id] = to.organization
			}
		}
	}
	for id := range t.working {
		delete(t.failing, id)
	}
	return t
}

// write records results in one transaction, gives unused attempts back, and disables what must not go on.
func (s *shardWorker) write(ctx context.Context, batch []result) error {
	// A shutdown does not interrupt it: what was sent must not be sent again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	now, t := s.Now().UTC(), s.tally(batch)
	overdue, err := s.store(ctx, t, now)
	if err != nil {
		return err
	}
	s.observe(batch)
	for period, counts := range t.unused {
		if err := s.refund(ctx, period, counts); err != nil {
			s.Log.Warn("unused webhook attempts could not be given back", "shard", s.shard, "error", err)
		}
	}
	s.Log.Info("webhooks", "shard", s.shard, "delivered", t.delivered, "ended", len(t.of[ended])-t.delivered,
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
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // which closes it where the transaction has not ended
	b, onCitus := &pgx.Batch{}, cluster.OnCitus(conn.Conn())
	if onCitus {
		b.Queue("BEGIN")
	}
	s.queueRows(b, t, now, onCitus)
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
	if onCitus {
		b.Queue("COMMIT")
	}
	err = conn.SendBatch(ctx, b).Close()
	return overdue, err
}

func (s *shardWorker) queueRows(b *pgx.Batch, t tally, now time.Time, onCitus bool) {
	endedSQL, retriedSQL, releasedSQL := writeEnded, writeRetried, writeReleased
	if onCitus {
		endedSQL, retriedSQL, releasedSQL = logEnded, retryHeld, releaseHeld
		b.Queue(lockHeld, s.shard, statement.Column(slices.Concat(t.of[ended], t.of[retried], t.of[released]), result.delivery))
	}
	if list := t.of[ended]; len(list) > 0 {
		deliveries, leases := statement.Column(list, result.delivery), statement.Column(list, result.lease)
		b.Queue(endedSQL, s.shard, deliveries, leases,
			statement.Column(list, func(r result) int16 { return r.status.Code() }), statement.Column(list, result.tries),
			statement.Column(list, result.attemptedAt), statement.Column(list, result.response), statement.Column(list, result.why), now)
		if onCitus {
			b.Queue(endHeld, s.shard, deliveries, leases)
		}
	}
	if list := t.of[retried]; len(list) > 0 {
		b.Queue(retriedSQL, s.shard, statement.Column(list, result.delivery), statement.Column(list, result.lease),
			statement.Column(list, result.tries), statement.Column(list, result.attemptedAt),
			statement.Column(list, func(r result) time.Time { return r.due }), statement.Column(list, result.response), statement.Column(list, result.why))
	}
	if list := t.of[released]; len(list) > 0 {
		b.Queue(releasedSQL, s.shard, statement.Column(list, result.delivery), statement.Column(list, result.lease))
	}
}

func (s *shardWorker) observe(batch []result) {
	if s.Observe == nil {
		return
	}
	outcomes := map[string]int{}
	for _, r := range batch {
		switch r.kind {
		case ended:
			outcomes[string(r.status)]++
		case retried:
			outcomes[OutcomeRetried]++
		case released:
		}
	}
	for outcome, n := range outcomes {
		s.Observe(outcome, n)
	}
}

// disable executes a command on the ledger. If that fails, the next failed attempt repeats it.
func (s *shardWorker) disable(ctx context.Context, o domain.OrganizationID, id domain.WebhookID, reason domain.DisableReason) {
	origin := domain.Origin{Organization: o, Actor: domain.SystemActor, RequestID: "webhooks"}
	if err := s.Do(ctx, &domain.DisableWebhook{Origin: origin, Webhook: id, Reason: reason}); err != nil {
		s.Log.Warn("a webhook destination could not be disabled", "webhook", id, "reason", reason, "error", err)
		return
	}
	s.Log.Warn("a webhook destination was disabled", "webhook", id, "reason", reason)
}

// sorted lists the keys in one order, so that two processes that lock them never wait for each other.
func sorted[V any](set map[domain.WebhookID]V) []domain.WebhookID {
	return slices.SortedFunc(maps.Keys(set), func(a, b domain.WebhookID) int { return slices.Compare(a[:], b[:]) })
}
