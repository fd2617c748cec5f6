package query

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections/internal/statement"
)

// AuditEvent is an event in the organization's history.
type AuditEvent struct {
	ID         domain.EventID
	Sequence   int64
	OccurredAt time.Time
	Actor      domain.Actor
	Action     domain.EventType
	Subject    string
	RequestID  string
	Reason     *string          // of a revocation, if given and not erased
	Company    domain.CompanyID // zero if the event belongs to no company
	Enabled    *bool            // of a change of a key's or a webhook's access to the company

	data    []byte // of the event
	granted bool
	reason  *domain.TextRef
}

// AuditQuestion selects a part of an organization's history.
type AuditQuestion struct {
	// After and Before bound the sequences, both exclusive. A Before of 0 means no bound.
	After, Before int64
	// Forward reads oldest first, for clients that follow the history.
	Forward bool
	Action  domain.EventType // empty: any
	Target  string           // an event's subject; empty: any
	Actors  []string         // nil: any
	Limit   int
	Offset  int // number of matching events to skip
}

// AuditPage is a part of a history.
type AuditPage struct {
	Events []AuditEvent
	Total  int64 // events of the whole history
	// Cursor is the last sequence searched: the next After of a Forward question, otherwise the next Before. More reports
	// that there are further events, which may not match.
	Cursor int64
	More   bool
}

// AuditDepth is the number of events that a page of registrations, or of some actors, searches. The index by action
// does not contain registrations, because most events are registrations.
const AuditDepth = 10_000

// AuditEvents reads an organization's history. It is the log itself, whose sequences have no gap: without a filter a
// page is a range. For an action or a target, pages are ranges of an index, so a rare one costs as much as a frequent
// one; only registrations without a target, and events of some actors, are found by searching at most AuditDepth
// events. The caller must refuse a bound beyond the history (Total).
func (s HistoryReader) AuditEvents(ctx context.Context, a domain.Access, q AuditQuestion) (AuditPage, error) {
	return readMuch(ctx, s.reader, a, func(from source) (AuditPage, error) {
		page, err := auditEvents(ctx, from, a, q)
		granted := func(e AuditEvent) bool { return e.granted }
		if from.replica && (q.After > page.Total || from.sequence < a.Sequence && slices.ContainsFunc(page.Events, granted)) {
			err = errAskPrimary // also if the key may have lost access to a company since
		}
		return page, err
	})
}

func auditEvents(ctx context.Context, from source, a domain.Access, q AuditQuestion) (page AuditPage, err error) {
	o := a.Organization
	head := cluster.SQL(`SELECT sequence FROM {organization_state} WHERE shard = $1 AND organization_id = $2`)
	page.Total, _, err = statement.First(ctx, from, "read the length of the history", pgx.RowTo[int64], head, o.Shard(), o)
	if err != nil {
		return page, err
	}
	// The events after low, up to high.
	low, high := q.After, page.Total
	if q.Before > 0 {
		high = min(high, q.Before-1)
	}
	depth := high - low
	switch {
	case q.Actors != nil: // which no index has
		depth = AuditDepth
	case q.Target == "" && q.Action == "" && q.Forward:
		low, depth, q.Offset = low+int64(q.Offset), int64(q.Limit), 0
	case q.Target == "" && q.Action == "":
		high, depth, q.Offset = high-int64(q.Offset), int64(q.Limit), 0
	case q.Target == "" && q.Action == domain.RecordRegistered:
		depth = AuditDepth
	}
	seenLow, seenHigh := max(low, high-depth), high
	if q.Forward {
		seenLow, seenHigh = low, min(high, low+depth)
	}
	sql, arguments := auditStatement(a, q, seenLow, seenHigh)
	page.Events, err = statement.All(ctx, from, "read the history", scanAuditEvent, sql, arguments...)
	if err != nil {
		return page, err
	}
	if q.Forward {
		page.Cursor = max(q.After, seenHigh)
	} else {
		page.Cursor = seenLow + 1
	}
	if len(page.Events) > q.Limit {
		page.Events = page.Events[:q.Limit]
		page.Cursor = page.Events[q.Limit-1].Sequence
	}
	if q.Forward {
		page.More = page.Cursor < high
	} else {
		page.More = page.Cursor > low+1
	}
	return page, addReasons(ctx, from, o, page.Events)
}

const auditColumns = `SELECT id, sequence, occurred_at, actor, type, subject, request_id, company_id, data,
		coalesce((SELECT g.enabled FROM {grants} g WHERE g.shard = $1 AND g.key_id = $7 AND g.company_id = events.company_id), false) AS granted`

const auditRange = auditColumns + `
	FROM {events} AS events WHERE shard = $1 AND organization_id = $2 AND sequence > $3 AND sequence <= $4`

const auditOrder, auditOrderForward = ` ORDER BY sequence DESC LIMIT $5 OFFSET $6`, ` ORDER BY sequence LIMIT $5 OFFSET $6`

// The partial indexes serve only statements that exclude registrations with the same condition.
const (
	auditOfRegistrations = auditRange + ` AND type = $8`
	auditOfAction        = auditRange + ` AND type <> 'integrity.registered' AND type = $8`
	auditOfTarget        = auditRange + ` AND type <> 'integrity.registered' AND subject = $8 AND ($9 = '' OR type = $9)` + auditByTarget
	auditByTarget        = ` AND ($11::text[] IS NULL OR actor = ANY($11))`

	// The registration of a record, which the index leaves out. A healed record's event is in the index. $10 is the
	// record's public id.
	auditOfRecord = `SELECT e.id, e.sequence, e.occurred_at, e.actor, e.type, e.subject, e.request_id, e.company_id, e.data, e.granted
		FROM (SELECT position FROM {versions} WHERE shard = $1 AND public_id = $10 AND organization_id = $2 AND record_id IS NOT NULL OFFSET 0) i
		JOIN LATERAL (` + auditColumns + ` FROM {events} AS events
			WHERE shard = $1 AND position >= i.position AND position <= i.position ORDER BY position LIMIT 1) e ON true
		WHERE e.type = 'integrity.registered' AND e.sequence > $3 AND e.sequence <= $4 AND ($9 = '' OR e.type = $9)` + auditByTarget
)

// auditAbout returns the events about one target: as many as a page needs from the index, and the registration.
func auditAbout(order, direction string) string {
	return cluster.SQL(`SELECT id, sequence, occurred_at, actor, type, subject, request_id, company_id, data, granted
		FROM ((` + auditOfTarget + ` ORDER BY sequence ` + direction + ` LIMIT $5::int + $6::int) UNION ALL (` +
		auditOfRecord + `)) AS about` + order)
}

// auditStatement returns a statement that reads one event more than a page holds.
func auditStatement(a domain.Access, q AuditQuestion, low, high int64) (string, []any) {
	order, direction := auditOrder, "DESC"
	if q.Forward {
		order, direction = auditOrderForward, "ASC"
	}
	arguments := []any{a.Organization.Shard(), a.Organization, low, high, q.Limit + 1, q.Offset, a.Key}
	switch {
	case q.Target != "":
		var record *domain.PublicID
		if id, ok := domain.ParsePublicID(q.Target); ok {
			record = &id
		}
		return auditAbout(order, direction), append(arguments, q.Target, string(q.Action), record, q.Actors)
	case q.Action == domain.RecordRegistered:
		arguments = append(arguments, string(q.Action))
		return auditBy(q.Actors, auditOfRegistrations, order, arguments)
	case q.Action != "":
		arguments = append(arguments, string(q.Action))
		return auditBy(q.Actors, auditOfAction, order, arguments)
	}
	return auditBy(q.Actors, auditRange, order, arguments)
}

// auditBy restricts a statement to some actors, unless they are nil.
func auditBy(actors []string, sql, order string, arguments []any) (string, []any) {
	if actors != nil {
		arguments = append(arguments, actors)
		sql += fmt.Sprintf(` AND actor = ANY($%d)`, len(arguments))
	}
	return cluster.SQL(sql + order), arguments
}

func scanAuditEvent(row pgx.CollectableRow) (AuditEvent, error) {
	var e AuditEvent
	var data []byte
	err := row.Scan(
		&e.ID, &e.Sequence, &e.OccurredAt, &e.Actor, &e.Action, &e.Subject, &e.RequestID, &e.Company, &data, &e.granted,
	)
	if err != nil {
		return e, err
	}
	switch e.Action {
	case domain.RecordRevoked, domain.CertificateRevoked, domain.CompanyAccessChanged, domain.CompanyWebhookChanged:
		var details struct {
			Reason  *domain.TextRef
			Enabled *bool
		}
		err = json.Unmarshal(data, &details)
		e.reason, e.Enabled = details.Reason, details.Enabled
	}
	e.data = data
	return e, err
}

// Details returns domain.AuditDetails, with references if the key may use the company.
func (e *AuditEvent) Details() (json.RawMessage, error) {
	return domain.AuditDetails(e.Action, e.Company, e.data, e.granted)
}

var findNames = cluster.SQL(`SELECT k.key_id, t.body FROM {api_keys} k
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = k.name_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE k.shard = $1 AND k.organization_id = $2 AND k.key_id = ANY($3)
	UNION ALL SELECT company_id, reference FROM {companies} WHERE shard = $1 AND organization_id = $2 AND company_id = ANY($4)
	UNION ALL SELECT v.version_id, t.body FROM {artifact_versions} v
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = v.title_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE v.shard = $1 AND v.organization_id = $2 AND v.version_id = ANY($5)
	UNION ALL SELECT p.statement_id, t.body FROM {publisher_domains} p
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = p.domain_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE p.shard = $1 AND p.organization_id = $2 AND p.statement_id = ANY($6)
	UNION ALL SELECT p.statement_id, t.body FROM {publisher_names} p
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = p.name_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE p.shard = $1 AND p.organization_id = $2 AND p.statement_id = ANY($6)
	UNION ALL SELECT p.passkey_id, t.body FROM {passkeys} p
		JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = p.name_id AND body IS NOT NULL OFFSET 0) t ON true
		WHERE p.shard = $1 AND p.organization_id = $2 AND p.passkey_id = ANY($7)`)

// Names reads the names of keys and passkeys, also of those that have ended, the references of companies, the titles of
// documents' versions, and the domains and the name that an organization says are its own, each by its id. It leaves
// out erased names and unknown ids.
func (s HistoryReader) Names(
	ctx context.Context, o domain.OrganizationID, keys []domain.KeyID, companies []domain.CompanyID,
	versions []domain.ArtifactVersionID, statements []domain.StatementID, passkeys []domain.PasskeyID,
) (map[[16]byte]string, error) {
	return statement.Map[[16]byte, string](ctx, s.Pool, "read names", findNames, o.Shard(), o, keys, companies, versions,
		statements, passkeys)
}

// actorOf reads the actors of an action, of the first or the last such event about each subject. The index by target
// has the events about each subject in their order, so one row of it answers unless other actions lie before it.
func actorOf(direction string) string {
	return cluster.SQL(`SELECT n.subject, e.actor FROM unnest($3::text[]) AS n(subject)
		JOIN LATERAL (SELECT actor FROM {events} WHERE shard = $1 AND organization_id = $2 AND type <> 'integrity.registered'
			AND subject = n.subject AND type = $4 ORDER BY sequence ` + direction + ` LIMIT 1) e ON true`)
}

var firstActor, lastActor = actorOf("ASC"), actorOf("DESC")

// Creators reads who created subjects with the first event about each, such as webhook destinations.
func (s HistoryReader) Creators(
	ctx context.Context, o domain.OrganizationID, created domain.EventType, subjects []string,
) (map[string]domain.Actor, error) {
	return statement.Map[string, domain.Actor](
		ctx, s.Pool, "read who created", firstActor, o.Shard(), o, subjects, string(created),
	)
}

// Inviters reads who made the newest invitation of each member. An earlier one no longer works.
func (s HistoryReader) Inviters(
	ctx context.Context, o domain.OrganizationID, members []domain.MemberID,
) (map[string]domain.Actor, error) {
	subjects := statement.Column(members, domain.MemberID.String)
	return statement.Map[string, domain.Actor](
		ctx, s.Pool, "read who invited", lastActor, o.Shard(), o, subjects, string(domain.InvitationMade),
	)
}

var setBefore = cluster.SQL(`SELECT n.sequence, e.type, e.data FROM unnest($3::bigint[], $4::text[]) AS n(sequence, subject)
	JOIN LATERAL (SELECT type, data FROM (SELECT type, data, sequence FROM {events}
			WHERE shard = $1 AND organization_id = $2 AND type <> 'integrity.registered' AND subject = n.subject
				AND sequence < n.sequence ORDER BY sequence DESC LIMIT 100) last
		WHERE type = ANY($5) ORDER BY sequence DESC LIMIT 1) e ON true`)

// StatusesBefore reads the statuses that members and webhook destinations had before changes to them, by the sequences
// of the changes. Other events are left out, and changes whose status before is not among the hundred events of the
// target before them, or cannot be read.
func (s HistoryReader) StatusesBefore(
	ctx context.Context, o domain.OrganizationID, events []AuditEvent,
) (map[int64]string, error) {
	var sequences []int64
	var subjects []string
	for _, e := range events {
		if e.Action == domain.MemberChanged || e.Action == domain.WebhookUpdated {
			sequences, subjects = append(sequences, e.Sequence), append(subjects, e.Subject)
		}
	}
	statuses := map[int64]string{}
	if len(sequences) == 0 {
		return statuses, nil
	}
	_, err := statement.All(ctx, s.Pool, "read statuses before changes", func(row pgx.CollectableRow) (int64, error) {
		var sequence int64
		var set domain.EventType
		var data []byte
		if err := row.Scan(&sequence, &set, &data); err != nil {
			return 0, err
		}
		var body struct{ Status string }
		switch err := json.Unmarshal(data, &body); {
		case err != nil:
			return sequence, nil //nolint:nilerr // a damaged event must not hide the others
		case body.Status != "":
		case set == domain.InvitationMade:
			body.Status = string(domain.MemberInvited)
		case set == domain.WebhookAutoDisabled:
			body.Status = string(domain.WebhookDisabled)
		default:
			body.Status = string(domain.MemberActive) // also of a destination
		}
		statuses[sequence] = body.Status
		return sequence, nil
	}, setBefore, o.Shard(), o, sequences, subjects, []domain.EventType{
		domain.MemberAdded, domain.InvitationMade, domain.MemberJoined, domain.MemberChanged,
		domain.WebhookCreated, domain.WebhookUpdated, domain.WebhookAutoDisabled,
	})
	return statuses, err
}

// eventsOfKeys reads the events that a rotation of a key makes, the newest ones.
var eventsOfKeys = cluster.SQL(`SELECT subject, type, request_id, occurred_at FROM {events}
	WHERE shard = $1 AND organization_id = $2 AND type <> 'integrity.registered' AND type = ANY($3)
	ORDER BY sequence DESC LIMIT $4`)

// Rotations reads which key each successor has replaced, as far as the newest events of keys say. A rotation creates a
// key and ends another one in the same request and moment. It is not found if the former key would have ended sooner by
// itself.
func (s HistoryReader) Rotations(
	ctx context.Context, o domain.OrganizationID,
) (former map[domain.KeyID]domain.KeyID, err error) {
	type moment struct {
		RequestID  string // a client may have chosen it, so it may not be unique
		OccurredAt time.Time
	}
	type event struct {
		Subject string
		Type    domain.EventType
		moment
	}
	events, err := statement.All(
		ctx, s.Pool, "read the events of keys", func(row pgx.CollectableRow) (e event, err error) {
			err = row.Scan(&e.Subject, &e.Type, &e.RequestID, &e.OccurredAt)
			return e, err
		}, eventsOfKeys, o.Shard(), o,
		[]string{string(domain.KeyCreated), string(domain.KeyRevoked), string(domain.KeyExpiryChanged)}, AuditDepth,
	)
	created, ended := map[moment]domain.KeyID{}, map[moment]domain.KeyID{}
	for _, e := range events {
		id, err := domain.ParseID[domain.KeyID](e.Subject)
		if err != nil {
			return nil, err
		}
		if e.Type == domain.KeyCreated {
			created[e.moment] = id
		} else {
			ended[e.moment] = id
		}
	}
	former = map[domain.KeyID]domain.KeyID{}
	for at, id := range created {
		if before, ok := ended[at]; ok && before != id {
			former[id] = before
		}
	}
	return former, err
}

// History reads up to limit events of an organization after a sequence, as stored in the log, with the texts that they
// name, for an export. The source has at least the events up to a.Sequence.
func (s HistoryReader) History(ctx context.Context, a domain.Access, after int64, limit int) ([]audit.Event, error) {
	return readMuch(ctx, s.reader, a, func(from source) ([]audit.Event, error) {
		log := history.Reader{Shard: a.Organization.Shard(), Organization: a.Organization, After: after}
		return log.Next(ctx, from, limit)
	})
}

// addReasons adds the reasons that events name, unless they were erased.
func addReasons(ctx context.Context, from source, o domain.OrganizationID, events []AuditEvent) error {
	texts := cluster.SQL(
		`SELECT id, body FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = ANY($3) AND body IS NOT NULL`,
	)
	var wanted []domain.TextID
	for _, e := range events {
		if e.reason != nil {
			wanted = append(wanted, e.reason.ID)
		}
	}
	if wanted == nil {
		return nil
	}
	bodies, err := statement.Map[domain.TextID, *string](ctx, from, "read reasons", texts, o.Shard(), o, wanted)
	for i := range events {
		if reason := events[i].reason; reason != nil {
			events[i].Reason = bodies[reason.ID]
		}
	}
	return err
}
