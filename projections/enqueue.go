package projections

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Enqueue queues the effects of events: a delivery for each destination that is authorized for the event's company at
// this moment, a mail for each quota warning and each disabled destination, the storage and erasure of certified
// content, and the end of sessions. It runs in the group's transaction and never in a replay. state is the group's: if
// none of its companies has a destination, the query for deliveries is skipped. queued is set if a delivery was queued.
// Enqueue, not Apply, writes the counts of administrative events: like the meters they are not a projection, so a
// process of a version that does not count them leaves no difference for a rebuild to report.
func Enqueue(b *pgx.Batch, shard domain.Shard, events []domain.Event, state *domain.State, queued *bool) {
	enqueueDeliveries(b, shard, events, state, queued)
	for i := range events {
		enqueueMail(b, shard, &events[i])
		enqueueCertification(b, shard, &events[i])
		enqueueChecks(b, shard, &events[i])
		if body, ok := events[i].Body.(*domain.MemberChangedBody); ok {
			b.Queue(EndSessions, shard, body.MemberID)
		}
	}
	if days := state.Administered(); len(days) > 0 {
		b.Queue(countAdministered, shard, column(days,
			func(d domain.AdministeredDay) domain.OrganizationID { return d.Organization }),
			column(days, func(d domain.AdministeredDay) time.Time { return d.Day }), column(days,
				func(d domain.AdministeredDay) int64 { return d.Used }))
	}
}

// The counts were read and raised under the lock of the shard's head, so the sums are exact. The same lock keeps two
// groups from waiting for each other's rows.
var countAdministered = cluster.SQL(`INSERT INTO {administrative_usage} (shard, organization_id, day, used)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::date[]), unnest($4::bigint[]) FROM {shard_heads} s WHERE s.shard = $1
	ON CONFLICT (shard, organization_id) DO UPDATE SET day = excluded.day, used = excluded.used`)

// EndSessions permanently ends every session of a member ($2). A change of role or status does so, and a member who was
// disabled only briefly must sign in again.
var EndSessions = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND member_id = $2`)

// The destinations are read as changed by this transaction. Outer joins, and a status hidden in CASE, make each event a
// lookup; OFFSET 0, as in other statements, would make Citus run this one on the coordinator. A type is the number of
// its bit, from 1.
var insertDeliveries = cluster.SQL(`INSERT INTO {webhook_deliveries} (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type,
		created_at, due_at, attempts, reason)
	SELECT s.shard, w.webhook_id, ` + DeliveryID +
	`, w.organization_id, n.company_id, n.sequence, n.event_id, n.type, n.at, n.at, 0, ''
	FROM {shard_heads} s CROSS JOIN unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::timestamptz[]) AS n(company_id, sequence, event_id, type, at)
	LEFT JOIN {company_webhooks} a ON a.shard = $1 AND a.company_id = n.company_id AND a.enabled
	LEFT JOIN {webhooks} w ON w.shard = $1 AND w.webhook_id = a.webhook_id
	WHERE s.shard = $1 AND CASE w.status WHEN 'active' THEN w.types::int & (1 << (n.type - 1)) <> 0 END`)

func enqueueDeliveries(b *pgx.Batch, shard domain.Shard, events []domain.Event, state *domain.State, queued *bool) {
	var list []*domain.Event
	for i := range events {
		c := state.Company(events[i].Company)
		if c != nil && c.HasWebhooks && FeedTypeCode(events[i].Type) != 0 {
			list = append(list, &events[i])
		}
	}
	if list != nil {
		b.Queue(insertDeliveries, shard, column(list, func(e *domain.Event) domain.CompanyID { return e.Company }),
			column(list, func(e *domain.Event) int64 { return e.Sequence }),
			column(list, func(e *domain.Event) domain.EventID { return e.ID }),
			column(list, func(e *domain.Event) int16 { return FeedTypeCode(e.Type) }),
			column(list, func(e *domain.Event) time.Time { return e.OccurredAt })).Exec(func(tag pgconn.CommandTag) error {
			*queued = tag.RowsAffected() > 0
			return nil
		})
	}
}

var queueWarning = cluster.SQL(`INSERT INTO {mails} (shard, mail_id, organization_id, period, percent, used, allowance, of_allowance, created_at, due_at, attempts, sent)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $9, $8, $8, 0, '{}')`)

// DomainMail begins the reason of a mail about a domain.
const DomainMail = "domain-"

// queueDisabled queues the mail about a destination of webhooks, or about a domain: then webhook_id is the id of the
// statement, and the reason DomainMail with its new state.
var queueDisabled = cluster.SQL(`INSERT INTO {mails} (shard, mail_id, organization_id, webhook_id, reason, created_at, due_at, attempts, sent)
		VALUES ($1, $2, $3, $4, $5, $6, $6, 0, '{}')`)

var queueInvitation = cluster.SQL(`INSERT INTO {invitation_mails} (shard, mail_id, organization_id, member_id, secret_sha256, sealed, created_at, expires_at, due_at, attempts)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $7, 0)`)

// enqueueMail uses one statement per mail, because mails are rare.
func enqueueMail(b *pgx.Batch, shard domain.Shard, e *domain.Event) {
	switch body := e.Body.(type) {
	case *domain.MemberInvitedBody:
		if e.Sealed != nil {
			b.Queue(
				queueInvitation, shard, e.ID, e.Organization, body.MemberID, body.SecretSHA256, e.Sealed, e.OccurredAt,
				body.ExpiresAt,
			)
		}
	case *domain.QuotaWarningReachedBody:
		b.Queue(
			queueWarning, shard, e.ID, e.Organization, int32(body.Period), body.Percent, body.Used, body.Limit, e.OccurredAt,
			body.Allowance.String(),
		)
	case *domain.WebhookDisabledBody:
		b.Queue(queueDisabled, shard, e.ID, e.Organization, body.WebhookID, body.Reason, e.OccurredAt)
	case *domain.DomainFailedBody:
		if body.FailedDays == 1 {
			b.Queue(queueDisabled, shard, e.ID, e.Organization, body.StatementID, DomainMail+string(domain.DomainFailing),
				e.OccurredAt)
		}
	case *domain.DomainLapsedBody:
		b.Queue(queueDisabled, shard, e.ID, e.Organization, body.StatementID, DomainMail+string(domain.DomainLapsed),
			e.OccurredAt)
	}
}

var (
	scheduleCheck = cluster.SQL(`INSERT INTO {publisher_checks} (shard, statement_id, organization_id, due_at, found) VALUES ($1, $2, $3, $4, '')`)
	endChecks     = cluster.SQL(`DELETE FROM {publisher_checks} WHERE shard = $1 AND statement_id = $2`)
)

// enqueueChecks begins and ends the checks of a domain. The first one leaves the owner time to prepare.
func enqueueChecks(b *pgx.Batch, shard domain.Shard, e *domain.Event) {
	switch body := e.Body.(type) {
	case *domain.DomainAddedBody:
		b.Queue(scheduleCheck, shard, body.StatementID, e.Organization, e.OccurredAt.Add(time.Hour))
	case *domain.DomainRemovedBody:
		b.Queue(endChecks, shard, body.StatementID)
	}
}

var scheduleErasure = cluster.SQL(`UPDATE {kept_contents} SET due_at = $3 WHERE shard = $1 AND version_id = $2`)

var eraseTexts = cluster.SQL(`UPDATE {texts} SET body = NULL
	WHERE shard = $1 AND organization_id = $2 AND id = ANY($3)`)

// Stored answers may repeat erased texts, and fingerprints are hashes of them. The keys stay, so that a repeated
// request is not executed again.
var eraseAnswers = cluster.SQL(
	`UPDATE {idempotency_keys} SET answer = NULL, fingerprint = '' WHERE shard = $1 AND organization_id = $2 AND status IS NOT NULL`,
)

// Content that is announced but not yet registered is not part of the artifact.
var eraseContents = cluster.SQL(`UPDATE {kept_contents} k SET due_at = $4
	FROM (SELECT version_id, organization_id FROM {artifact_versions}
		WHERE shard = $1 AND artifact_id >= $3 AND artifact_id <= $3 ORDER BY artifact_id, version OFFSET 0) v
	WHERE v.organization_id = $2 AND k.shard = $1 AND k.version_id = v.version_id`)

var eraseVersionContent = cluster.SQL(`UPDATE {kept_contents} k SET due_at = $4
	FROM (SELECT version_id, organization_id FROM {artifact_versions}
		WHERE shard = $1 AND version_id >= $3 AND version_id <= $3 ORDER BY version_id LIMIT 1) v
	WHERE v.organization_id = $2 AND k.shard = $1 AND k.version_id = v.version_id`)

// enqueueCertification writes everything that is not a projection: the answer of an idempotent request, the deadline of
// kept content, and the erasure of texts.
func enqueueCertification(b *pgx.Batch, shard domain.Shard, e *domain.Event) {
	if a := e.Answer; a != nil {
		b.Queue(StoreAnswer, shard, a.Organization, a.Scope(), a.Key, a.Token, a.Status, a.Body)
	}
	switch body := e.Body.(type) {
	case *domain.ArtifactVersionRegisteredBody:
		b.Queue(scheduleErasure, shard, body.VersionID, cmp.Or(body.RetainUntil, &e.OccurredAt))
	case *domain.TextsErasedBody:
		b.Queue(eraseTexts, shard, e.Organization, body.Texts)
		if _, err := domain.ParseID[domain.WebhookID](body.Subject); err == nil {
			return // no stored answer contains a destination
		}
		if _, err := domain.ParseID[domain.StatementID](body.Subject); err == nil {
			return // nor a statement of the organization about itself
		}
		b.Queue(eraseAnswers, shard, e.Organization)
		if id, err := domain.ParseID[domain.ArtifactVersionID](body.Subject); err == nil {
			b.Queue(eraseVersionContent, shard, e.Organization, id, e.OccurredAt)
		}
		if id, err := domain.ParseID[domain.ArtifactID](body.Subject); err == nil {
			b.Queue(eraseContents, shard, e.Organization, id, e.OccurredAt)
		}
	}
}

// StoreAnswer stores the answer of a claimed request. In a group's transaction the first round trip has locked the
// claim (loadClaims).
var StoreAnswer = cluster.SQL(`UPDATE {idempotency_keys} SET status = $6, answer = $7
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4 AND token = $5`)

// DeliveryID is the id of the delivery of an event to a destination: its time and the event's, then a hash of both, so
// that a delivery always has the same id and is never queued twice. n is the event, w the destination.
const DeliveryID = `(left(n.event_id::text, 19) || '8' || substr(md5(n.event_id::text || w.webhook_id::text), 1, 3)
		|| '-' || substr(md5(n.event_id::text || w.webhook_id::text), 4, 12))::uuid`

// DeliveryStatus is the status of a delivery.
type DeliveryStatus string

// All but DeliveryPending are final.
const (
	DeliveryPending    DeliveryStatus = "pending"
	DeliveryDelivered  DeliveryStatus = "delivered"
	DeliveryExhausted  DeliveryStatus = "exhausted"  // every attempt of the schedule failed
	DeliverySuppressed DeliveryStatus = "suppressed" // the month's allowance of attempts was used up
	DeliveryCancelled  DeliveryStatus = "cancelled"  // the destination may no longer receive it
)

// DeliveryStatuses lists the statuses by their number in webhook_log.status. Append only.
func DeliveryStatuses() []DeliveryStatus {
	return []DeliveryStatus{DeliveryPending, DeliveryDelivered, DeliveryExhausted, DeliverySuppressed, DeliveryCancelled}
}

// Code returns the number of a status in the tables.
func (s DeliveryStatus) Code() int16 { return int16(slices.Index(DeliveryStatuses(), s)) }

// WebhookTest is the type of a test delivery, which is not an event of the log.
const WebhookTest domain.EventType = "webhook.test"

// The feed stores types and statuses as small numbers: their positions in these lists, from 1. Append only.

func feedTypes() []domain.EventType {
	return []domain.EventType{domain.RecordRegistered, domain.RecordSuperseded, domain.RecordRevoked}
}

// FeedTypes lists the types of the feed's events as the log names them; see FeedTypeCode.
func FeedTypes() []domain.EventType { return append(feedTypes(), domain.RecordHealed) }

func feedStatuses() []domain.Status {
	return []domain.Status{domain.StatusCurrent, domain.StatusSuperseded, domain.StatusRevoked}
}

// FeedTypeCode returns the number of a type, 0 for an event that is not in the feed. A healed record is in the feed as
// a registered one: readers lost that event, or never saw it.
func FeedTypeCode(t domain.EventType) int16 {
	if t == domain.RecordHealed {
		t = domain.RecordRegistered
	}
	return int16(slices.Index(feedTypes(), t) + 1)
}

// FeedType returns the type with a number.
func FeedType(code int16) domain.EventType { return feedTypes()[code-1] }

// FeedStatus returns the status with a number.
func FeedStatus(code int16) domain.Status { return feedStatuses()[code-1] }

func feedStatusCode(s domain.Status) int16 { return int16(slices.Index(feedStatuses(), s) + 1) }
