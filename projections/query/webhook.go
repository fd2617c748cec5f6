package query

import (
	"bytes"
	"context"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// WebhookEntry is a destination, for its organization.
type WebhookEntry struct {
	domain.Webhook
	Companies    int        // number of companies it is authorized for
	FailingSince *time.Time // all attempts have failed since then
}

var findWebhooks = cluster.SQL(`SELECT ` + projections.WebhookColumns + `,
		(SELECT count(*) FROM {company_webhooks} a WHERE a.shard = $1 AND a.webhook_id = w.webhook_id AND a.enabled),
		(SELECT h.failing_since FROM {webhook_health} h WHERE h.shard = $1 AND h.webhook_id = w.webhook_id)
	FROM {webhooks} w` + projections.WebhookTexts + `
	WHERE w.shard = $1 AND w.organization_id = $2 AND w.status <> 'deleted' AND ($3::uuid IS NULL OR w.webhook_id = $3)
	ORDER BY w.webhook_id`)

// Webhooks lists the destinations of an organization, oldest first: at most MaxWebhooks.
func (s WebhookReader) Webhooks(ctx context.Context, o domain.OrganizationID) ([]WebhookEntry, error) {
	return statement.All(ctx, s.Pool, "list webhook destinations", scanWebhookEntry, findWebhooks, o.Shard(), o, nil)
}

// Webhook finds a destination. One of another organization counts as unknown.
func (s WebhookReader) Webhook(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID,
) (WebhookEntry, error) {
	return statement.One(
		ctx, s.Pool, "find a webhook destination", domain.ErrUnknownWebhook, scanWebhookEntry, findWebhooks, o.Shard(), o,
		id,
	)
}

func scanWebhookEntry(row pgx.CollectableRow) (e WebhookEntry, err error) {
	e.Webhook, err = projections.ScanWebhook(row, &e.Companies, &e.FailingSince)
	return e, err
}

// AuthorizedCompany is a company of the organization, and whether a destination is authorized for it.
type AuthorizedCompany struct {
	ID         domain.CompanyID
	Reference  string
	Authorized bool
}

var findAuthorized = cluster.SQL(`SELECT c.company_id, c.reference, coalesce(a.enabled, false)
	FROM (SELECT company_id, reference FROM {companies} WHERE shard = $1 AND organization_id = $2 AND reference > $4 ORDER BY reference LIMIT $5) c
	LEFT JOIN LATERAL (SELECT enabled FROM {company_webhooks} WHERE shard = $1 AND company_id = c.company_id AND webhook_id = $3 OFFSET 0) a ON true
	ORDER BY c.reference`)

// AuthorizedCompanies lists up to limit companies of the organization after a reference, ordered by reference, and
// reports whether more follow. The destination must be one of the organization's. The zero id is authorized for
// nothing.
func (s WebhookReader) AuthorizedCompanies(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID, after string, limit int,
) ([]AuthorizedCompany, bool, error) {
	list, err := statement.All(
		ctx, s.Pool, "list authorized companies", pgx.RowToStructByPos[AuthorizedCompany], findAuthorized, o.Shard(), o, id,
		after, limit+1,
	)
	return statement.Page(list, limit, err)
}

// Delivery is the pending or ended delivery of an event to a destination.
type Delivery struct {
	ID             domain.DeliveryID
	Webhook        domain.WebhookID
	Event          domain.EventID
	Type           domain.EventType // WebhookTest for a test
	Sequence       int64            // 0 for a test
	Company        *domain.CompanyID
	Status         projections.DeliveryStatus
	Attempts       int
	CreatedAt      time.Time
	AttemptedAt    *time.Time
	NextAttemptAt  *time.Time // while it is pending
	FinishedAt     *time.Time
	ResponseStatus *int
	Reason         string // reason why the last attempt failed or nothing was sent
}

const deliveryColumns = `delivery_id, webhook_id, event_id, type, sequence, company_id, status, attempts, created_at, attempted_at,
		due_at, finished_at, response_status, reason`

const pendingColumns = `delivery_id, webhook_id, event_id, type, sequence, company_id, 0::smallint AS status, attempts, created_at, attempted_at,
		due_at, NULL::timestamptz AS finished_at, response_status, reason`

const finishedColumns = `delivery_id, webhook_id, event_id, type, sequence, company_id, status, attempts, created_at, attempted_at,
		NULL::timestamptz AS due_at, finished_at, response_status, reason`

var findDeliveries = cluster.SQL(`SELECT ` + deliveryColumns + ` FROM (
		(SELECT ` + deliveryColumns + ` FROM (SELECT ` + pendingColumns + ` FROM {webhook_deliveries}
			WHERE shard = $1 AND webhook_id = $2 AND delivery_id < $3 AND $5::smallint IN (-1, 0) OFFSET 0) p ORDER BY delivery_id DESC LIMIT $4)
		UNION ALL
		(SELECT ` + finishedColumns + ` FROM {webhook_log}
			WHERE shard = $1 AND webhook_id = $2 AND delivery_id < $3 AND $5::smallint IN (-1, status) ORDER BY delivery_id DESC LIMIT $4)
	) d ORDER BY delivery_id DESC LIMIT $4`)

// Deliveries lists up to limit deliveries of a destination, newest first, after a given one (zero: from the newest),
// and reports whether more follow. A status of "" means all.
func (s WebhookReader) Deliveries(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID, status projections.DeliveryStatus,
	after domain.DeliveryID, limit int,
) (list []Delivery, more bool, err error) {
	if _, err := s.Webhook(ctx, o, id); err != nil {
		return nil, false, err
	}
	if after.IsZero() {
		after = domain.DeliveryID(bytes.Repeat([]byte{0xff}, len(after)))
	}
	list, err = scan(ctx, s.reader, o, func(from eventstore.Database) ([]Delivery, error) { // a status may be rare
		return statement.All(
			ctx, from, "list deliveries", scanDelivery, findDeliveries, o.Shard(), id, after, limit+1, status.Code(),
		)
	})
	return statement.Page(list, limit, err)
}

func scanDelivery(row pgx.CollectableRow) (Delivery, error) { return scanDeliveryAnd(row) }

// scanDeliveryAnd scans a delivery, and the columns that follow it into more.
func scanDeliveryAnd(row pgx.CollectableRow, more ...any) (Delivery, error) {
	var d Delivery
	var kind, status int16
	err := row.Scan(append([]any{&d.ID, &d.Webhook, &d.Event, &kind, &d.Sequence, &d.Company, &status, &d.Attempts,
		&d.CreatedAt, &d.AttemptedAt, &d.NextAttemptAt, &d.FinishedAt, &d.ResponseStatus, &d.Reason}, more...)...)
	if err != nil {
		return d, err
	}
	if d.Type = projections.WebhookTest; kind != 0 {
		d.Type = projections.FeedType(kind)
	}
	d.Status = projections.DeliveryStatuses()[status]
	return d, nil
}

// SentDelivery is a delivery with the body that the service sent and the answer. The receiver chose the answer, which
// may hold any bytes.
type SentDelivery struct {
	Delivery
	Body   []byte // the signed body; nil if the event is unknown, so that nothing is sent
	Answer []byte // at most 1,024 bytes of the body of the last attempt's answer; nil without an answer
	TookMS *int32 // of the last attempt
}

var findSent = cluster.SQL(`SELECT t.delivery_id, t.webhook_id, t.event_id, t.type, t.sequence, t.company_id, t.status, t.attempts,
		t.created_at, t.attempted_at, t.due_at, t.finished_at, t.response_status, t.reason, t.answer, t.took_ms, ` +
	projections.WebhookEventColumns + ` FROM (
		(SELECT ` + pendingColumns + `, answer, took_ms FROM {webhook_deliveries} WHERE shard = $1 AND delivery_id = $3 OFFSET 0)
		UNION ALL
		(SELECT ` + finishedColumns + `, answer, took_ms FROM {webhook_log} WHERE shard = $1 AND webhook_id = $2 AND delivery_id = $3)
	) t` + projections.WebhookEventJoins + ` WHERE t.webhook_id = $2 LIMIT 1`)

// SentDelivery finds a delivery of a destination, or refuses with NOT_FOUND.
func (s WebhookReader) SentDelivery(
	ctx context.Context, o domain.OrganizationID, webhook domain.WebhookID, id domain.DeliveryID,
) (SentDelivery, error) {
	if _, err := s.Webhook(ctx, o, webhook); err != nil {
		return SentDelivery{}, err
	}
	return statement.One(
		ctx, s.Pool, "find a delivery", unknownDelivery(), scanSent, findSent, o.Shard(), webhook, id,
	)
}

func scanSent(row pgx.CollectableRow) (sent SentDelivery, err error) {
	var e projections.WebhookEvent
	sent.Delivery, err = scanDeliveryAnd(row, append([]any{&sent.Answer, &sent.TookMS}, e.Columns()...)...)
	if e.ID, e.Test = sent.Event, sent.Company == nil; err == nil && (e.Test || e.Known) {
		sent.Body, err = e.Body()
	}
	return sent, err
}

func unknownDelivery() *domain.Error {
	return domain.Refuse(domain.NotFound, "This organization has no delivery with that id, or it is older than 30 days.")
}

// active returns a refusal if the destination is disabled.
func (s WebhookReader) active(ctx context.Context, o domain.OrganizationID, id domain.WebhookID) error {
	w, err := s.Webhook(ctx, o, id)
	if err == nil && w.Status != domain.WebhookActive {
		err = domain.Refuse(
			domain.InvalidState, "This destination is disabled. Enable it first: change it with \"enabled\": true.",
		)
	}
	return err
}

// TestDelivery queues a delivery with made-up references to an active destination, whatever its authorizations.
func (s WebhookReader) TestDelivery(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID, delivery domain.DeliveryID, event domain.EventID,
	now time.Time,
) (Delivery, error) {
	query := cluster.SQL(`INSERT INTO {webhook_deliveries} (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type,
			created_at, due_at, attempts, reason)
		VALUES ($1, $2, $3, $4, 0, $5, 0, $6, $6, 0, '')
		RETURNING ` + pendingColumns)
	if err := s.active(ctx, o, id); err != nil {
		return Delivery{}, err
	}
	if err := s.meter(ctx, o, "webhook test", now); err != nil {
		return Delivery{}, err
	}
	d, _, err := statement.First(ctx, s.Pool, "queue a test delivery", scanDelivery, query,
		o.Shard(), id, delivery, o, event, now)
	return d, err
}

// findRedelivered searches the queue, then the log of each of the organization's destinations, because the log's key
// begins with the destination.
var findRedelivered = cluster.SQL(`SELECT w.webhook_id FROM {webhooks} w
	LEFT JOIN LATERAL (SELECT webhook_id FROM {webhook_deliveries} WHERE shard = $1 AND delivery_id = $3 OFFSET 0) q ON true
	LEFT JOIN LATERAL (SELECT true AS ended FROM {webhook_log}
		WHERE shard = $1 AND webhook_id = w.webhook_id AND delivery_id = $3 OFFSET 0) l ON true
	WHERE w.shard = $1 AND w.organization_id = $2 AND w.status <> 'deleted' AND (w.webhook_id = q.webhook_id OR l.ended)`)

// A delivery that is queued again leaves the log. Each of these statements runs on one node of Citus; a single
// statement for all three would not.
var (
	lockEnded = cluster.SQL(`SELECT true FROM {webhook_log}
		WHERE shard = $1 AND webhook_id = $2 AND delivery_id = $3 FOR UPDATE`)

	queueEnded = cluster.SQL(`INSERT INTO {webhook_deliveries} (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type,
			created_at, due_at, attempts, attempted_at, response_status, reason, answer, took_ms)
		SELECT shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at, $4, 0, attempted_at, response_status, '',
			answer, took_ms
		FROM {webhook_log} WHERE shard = $1 AND webhook_id = $2 AND delivery_id = $3
		RETURNING ` + pendingColumns)

	forgetEnded = cluster.SQL(`DELETE FROM {webhook_log}
		WHERE shard = $1 AND webhook_id = $2 AND delivery_id = ANY($3::uuid[])`)

	hurryDelivery = cluster.SQL(`UPDATE {webhook_deliveries} SET due_at = $3, attempts = 0, leased_until = NULL WHERE shard = $1 AND delivery_id = $2
		RETURNING ` + pendingColumns)
)

// Redeliver starts a new schedule for a delivery, due now, whatever its status. An event that was delivered before is
// sent again with the same id. The lease of an attempt in progress ends, so that its result cannot undo this.
func (s WebhookReader) Redeliver(
	ctx context.Context, o domain.OrganizationID, id domain.DeliveryID, now time.Time,
) (Delivery, error) {
	webhook, err := statement.One(
		ctx, s.Pool, "find a delivery", unknownDelivery(), pgx.RowTo[domain.WebhookID], findRedelivered, o.Shard(), o, id,
	)
	if err == nil {
		err = s.active(ctx, o, webhook)
	}
	if err == nil {
		err = s.meter(ctx, o, "webhook redelivery", now)
	}
	if err != nil {
		return Delivery{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	var d Delivery
	err = eventstore.Within(ctx, s.Pool, o.Shard(), func(tx pgx.Tx) error {
		_, again, err := statement.First(ctx, tx, "redeliver", pgx.RowTo[bool], lockEnded, o.Shard(), webhook, id)
		if err != nil {
			return err
		}
		if !again {
			ended := domain.Unavailable("The delivery has just changed; send the request again.") // between the two statements
			d, err = statement.One(ctx, tx, "redeliver", ended, scanDelivery, hurryDelivery, o.Shard(), id, now)
			return err
		}
		if d, _, err = statement.First(
			ctx, tx, "redeliver", scanDelivery, queueEnded, o.Shard(), webhook, id, now,
		); err == nil {
			_, err = tx.Exec(ctx, forgetEnded, o.Shard(), webhook, []domain.DeliveryID{id})
		}
		return err
	})
	if err != nil {
		return Delivery{}, statement.Failed("redeliver", err)
	}
	return d, nil
}

// MaxReplay is the maximum number of deliveries that one replay queues.
const MaxReplay = 10_000

// Replay is a range of the feed that a destination has missed.
type Replay struct {
	From, To int64   // sequences, both inclusive; To 0 means up to the last
	Company  *string // reference; nil: every company that the destination is authorized for
	DryRun   bool    // count only
}

// Replayed is the result of a Replay.
type Replayed struct {
	Count int    // missing deliveries, at most MaxReplay
	Next  *int64 // start of the next replay, if there are more than MaxReplay
}

// missed lists the events that a destination has missed, by sequence: events of the range, of its types and of the
// companies that it is authorized for now, without a pending or delivered delivery. Each is looked up by key, whatever
// the planner's estimates of the table sizes, and a company's feed is read up to $6 missing events.
const missed = `SELECT w.shard, m.company_id, m.sequence, m.event_id, m.type, m.occurred_at, w.webhook_id, w.organization_id, m.delivery_id
	FROM (SELECT shard, webhook_id, organization_id, status, types FROM {webhooks} WHERE shard = $1 AND webhook_id = $2 OFFSET 0) w
	JOIN (
		SELECT a.company_id FROM {company_webhooks} a
		JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = a.company_id OFFSET 0) c ON $5::text IS NULL OR c.reference = $5
		WHERE a.shard = $1 AND a.webhook_id = $2 AND a.enabled OFFSET 0
	) a ON true
	JOIN LATERAL (
		SELECT n.company_id, n.sequence, n.event_id, n.type, n.occurred_at, x.delivery_id
		FROM {feed} n
		JOIN LATERAL (SELECT ` + projections.DeliveryID + ` AS delivery_id OFFSET 0) x ON true
		LEFT JOIN LATERAL (SELECT true AS pending FROM {webhook_deliveries}
			WHERE shard = $1 AND delivery_id = x.delivery_id OFFSET 0) q ON true
		LEFT JOIN LATERAL (SELECT status FROM {webhook_log}
			WHERE shard = $1 AND webhook_id = w.webhook_id AND delivery_id = x.delivery_id OFFSET 0) l ON true
		WHERE n.shard = $1 AND n.company_id = a.company_id AND n.sequence BETWEEN $3 AND $4 AND w.types::int & (1 << (n.type - 1)) <> 0
			AND q.pending IS NULL AND l.status IS DISTINCT FROM 1
		ORDER BY n.sequence LIMIT $6
	) m ON true
	WHERE w.status = 'active'
	ORDER BY m.sequence LIMIT $6`

// queueMissing must be followed by forgetEnded, for deliveries that had ended without success.
var queueMissing = cluster.SQL(`INSERT INTO {webhook_deliveries} (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type,
		created_at, due_at, attempts, reason)
	SELECT shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, occurred_at, $7, 0, '' FROM (` + missed + `) m
	ON CONFLICT (shard, delivery_id) DO NOTHING
	RETURNING delivery_id`)

var findAuthorization = cluster.SQL(`SELECT true FROM {company_webhooks} a
	JOIN LATERAL (SELECT reference FROM {companies} WHERE shard = $1 AND company_id = a.company_id OFFSET 0) c ON c.reference = $3
	WHERE a.shard = $1 AND a.webhook_id = $2 AND a.enabled LIMIT 1`)

// ReplayWebhook queues the deliveries that an active destination has missed, at most MaxReplay, or only counts them.
// Deliveries that ended without success are queued again, and missing ones are created. Current authorizations apply. A
// company without authorization is refused.
func (s WebhookReader) ReplayWebhook(
	ctx context.Context, o domain.OrganizationID, id domain.WebhookID, r Replay, now time.Time,
) (Replayed, error) {
	if err := s.active(ctx, o, id); err != nil {
		return Replayed{}, err
	}
	if r.Company != nil {
		unknown := domain.Invalid([]domain.FieldError{
			{
				Pointer: "/companyReference", Code: "UNKNOWN",
				Message: "must be a company that this destination is authorized for",
			},
		})
		if _, err := statement.One(
			ctx, s.Pool, "find an authorization", unknown, pgx.RowTo[bool], findAuthorization, o.Shard(), id, *r.Company,
		); err != nil {
			return Replayed{}, err
		}
	}
	if r.To == 0 {
		r.To = 1<<63 - 1
	}
	return scan(ctx, s.reader, o, func(from eventstore.Database) (Replayed, error) {
		return replay(ctx, from, o, id, r, now)
	})
}

func replay(
	ctx context.Context, from eventstore.Database, o domain.OrganizationID, id domain.WebhookID, r Replay, now time.Time,
) (Replayed, error) {
	count := cluster.SQL(`SELECT sequence FROM (` + missed + `) m ORDER BY sequence`)
	args := []any{o.Shard(), id, r.From, r.To, r.Company, MaxReplay + 1}
	sequences, err := statement.All(ctx, from, "count missing deliveries", pgx.RowTo[int64], count, args...)
	if err != nil {
		return Replayed{}, err
	}
	answer := Replayed{Count: len(sequences)}
	if len(sequences) > MaxReplay {
		answer.Count, answer.Next = MaxReplay, &sequences[MaxReplay]
	}
	if r.DryRun || answer.Count == 0 {
		return answer, nil
	}
	args[3], args[5] = sequences[answer.Count-1], MaxReplay
	queuing, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	err = eventstore.Within(queuing, from, o.Shard(), func(tx pgx.Tx) error {
		queued, err := statement.All(queuing, tx, "queue missing deliveries", pgx.RowTo[domain.DeliveryID], queueMissing,
			append(args, now)...)
		if answer.Count = len(queued); err == nil {
			_, err = tx.Exec(queuing, forgetEnded, o.Shard(), id, queued)
		}
		return err
	})
	if err != nil {
		return Replayed{}, statement.Failed("queue missing deliveries", err)
	}
	return answer, nil
}

// webhookActionsPerMinute limits an organization's tests, and its redeliveries.
const webhookActionsPerMinute = 10

// meter counts an action of an organization in the UTC minute, over all processes, and refuses it above
// webhookActionsPerMinute.
func (s WebhookReader) meter(ctx context.Context, o domain.OrganizationID, action string, now time.Time) error {
	sum := sha256.Sum256(append(o[:], action...))
	used, err := s.CountMinute(ctx, o.Shard(), [16]byte(sum[:16]), 1, now)
	if err == nil && used > webhookActionsPerMinute {
		return domain.Refuse(
			domain.RateLimited,
			"An organization may send %d of these a minute, which all its keys and console sessions share; wait until the "+
				"next minute.",
			webhookActionsPerMinute,
		).After(now.Truncate(time.Minute).Add(time.Minute).Sub(now)).Of(domain.WebhookActions, webhookActionsPerMinute)
	}
	return err
}

// Forgive resets the failures of a destination that was enabled again.
func (s WebhookReader) Forgive(ctx context.Context, o domain.OrganizationID, id domain.WebhookID) error {
	query := cluster.SQL(
		`UPDATE {webhook_health} SET failing_since = NULL WHERE shard = $1 AND webhook_id = $2 AND failing_since IS NOT NULL`,
	)
	return statement.Exec(ctx, s.Pool, "forget failures", query, o.Shard(), id)
}
