package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// Mail is a message to one person. Exactly one of Quota, Webhook, Domain, Invitation and SignIn is set.
type Mail struct {
	ID           domain.EventID
	Organization domain.OrganizationID
	Member       domain.MemberID
	To           string
	At           time.Time // of the event that it reports
	Quota        *domain.QuotaWarningReachedBody
	Webhook      *domain.WebhookDisabledBody
	Domain       domain.DomainState // failing or lapsed
	Invitation   *Invitation
	SignIn       *SignIn
}

// SignIn is a link that signs its reader in to the console. It is mailed at once and never queued, because it is a
// secret.
type SignIn struct {
	URL      string
	Until    time.Time
	Newcomer bool // the reader has no membership and has asked to sign up
}

// Invitation is the content of a mail to an invited member.
type Invitation struct {
	Role      domain.Role
	ExpiresAt time.Time
	URL       map[evidence.Language]string // contains the code, which is a secret
}

// Mailer sends queued mails: warnings and notices to the currently active owners and admins, and invitations to the
// invited members. A mail is sent at least once: if the process dies between sending and recording, it is sent again
// under the same Message-ID.
type Mailer struct {
	Pool   eventstore.Database
	Shards int
	Now    func() time.Time
	Log    *slog.Logger
	// Send passes a mail to the mail server. Nil means that there is no mail server, and mails wait until they are too
	// old.
	Send func(context.Context, Mail) error
	// SecretKeys decrypt the codes of invitations. Without a key, invitations are not sent.
	SecretKeys func() domain.SecretKeys
	// InvitationURL returns the address of the page that accepts a code.
	InvitationURL func(language evidence.Language, code string) string
	// Observe counts mails by outcome: sent, failed (tried again later) or dropped. It may be nil.
	Observe func(outcome string, mails int)

	invited *invitedAddresses
}

// MaxInvitations is the maximum number of invitations that each process mails to an address in a UTC day, for all
// organizations together: if anyone may create organizations, a limit per organization would not protect the recipient.
// Further invitations wait like failed mails.
const MaxInvitations = 20

// invitedAddresses counts the invitations mailed to each address. It is safe for concurrent use.
type invitedAddresses struct {
	mu     sync.Mutex
	day    time.Time
	counts map[[32]byte]int // by domain.EmailSHA256; at most one entry per mail sent
}

var errInvitedOften = say.New("the address has reached the daily limit of invitations")

// count adds n invitations to an address, or refuses if the day's limit is used up.
func (i *invitedAddresses) count(address string, n int, now time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if day := now.UTC().Truncate(24 * time.Hour); i.counts == nil || !day.Equal(i.day) {
		i.day, i.counts = day, map[[32]byte]int{}
	}
	email := domain.EmailSHA256(address)
	if i.counts[email] >= MaxInvitations {
		return errInvitedOften
	}
	if n > 0 {
		i.counts[email] += n
	}
	return nil
}

const (
	mailEvery   = 10 * time.Second // between two checks of the queue
	mailLease   = 10 * time.Minute
	mailAttempt = 5 * time.Minute  // all recipients of a row; well within the lease
	mailTimeout = 30 * time.Second // one recipient
	// mailLifetime is the age at which a warning is dropped.
	mailLifetime = domain.WarningLifetime
	maxMailDelay = time.Hour
)

// mailDelay returns the wait after the nth failure: a minute, doubled each time, up to an hour.
func mailDelay(attempts int) time.Duration {
	return min(maxMailDelay, time.Minute<<min(attempts-1, 10))
}

// NewMailer returns the loop of a Mailer. Its Work returns database errors. A mail that could not be sent is logged and
// retried later.
func NewMailer(m Mailer) *Loop {
	if m.Observe == nil {
		m.Observe = func(string, int) {}
	}
	if m.SecretKeys == nil {
		m.SecretKeys = domain.FixedSecretKeys()
	}
	m.invited = &invitedAddresses{}
	q := Leased[queuedMail]{
		Pool: m.Pool, What: "take a mail", Take: takeMail, Lease: mailLease, Scan: scanMail, Act: m.deliver,
		Now: func(context.Context) (time.Time, error) { return m.Now(), nil },
	}
	invitations := Leased[invitationMail]{
		Pool: m.Pool, What: "take an invitation", Take: takeInvitation, Lease: mailLease,
		Scan: pgx.RowToStructByPos[invitationMail], Act: m.invite, Now: q.Now,
	}
	return NewLoop(Loop{Pool: m.Pool, Shards: Shards(m.Shards), Every: mailEvery, Log: m.Log,
		Failure: "the queue of mails could not be worked off",
		Due: func(ctx context.Context) ([]domain.Shard, error) {
			return DueIn(ctx, m.Pool, m.Shards, mailDue, m.Now())
		},
		Work: func(ctx context.Context, shard domain.Shard) (more bool, err error) {
			if err = m.drop(ctx, shard); err == nil {
				err = m.dropInvitations(ctx, shard)
			}
			if err != nil || m.Send == nil {
				return false, err
			}
			if len(m.SecretKeys()) > 0 {
				_, err = invitations.Work(ctx, shard)
			}
			more, failed := q.Work(ctx, shard)
			return more, errors.Join(err, failed)
		}})
}

var mailDue = Due(
	`SELECT FROM {mails} WHERE shard = s.shard AND due_at <= $2`,
	`SELECT FROM {invitation_mails} WHERE shard = s.shard AND due_at <= $2`)

// queuedMail is a row that this worker holds until its lease ends.
type queuedMail struct {
	mail     Mail
	attempts int
	sent     []domain.MemberID
}

// drop deletes mails that are too old.
func (m Mailer) drop(ctx context.Context, shard domain.Shard) error {
	query := cluster.SQL(`DELETE FROM {mails}
		WHERE shard = $1 AND due_at <= $2 AND created_at <= $3 RETURNING organization_id`)
	dropped, err := statement.All(
		ctx, m.Pool, "drop old mails", pgx.RowTo[domain.OrganizationID], query, shard, m.Now(), m.Now().Add(-mailLifetime),
	)
	if len(dropped) > 0 {
		m.Log.Warn(
			"mails dropped: they could not be sent in time", "shard", shard, "mails", len(dropped), "configured",
			m.Send != nil,
		)
		m.Observe(MailDropped, len(dropped))
	}
	return err
}

var takeMail = cluster.SQL(`UPDATE {mails} m SET due_at = $3, attempts = m.attempts + 1
	FROM (SELECT mail_id FROM {mails} WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) d
	WHERE m.shard = $1 AND m.mail_id = d.mail_id
	RETURNING m.mail_id, m.organization_id, m.period, m.percent, m.used, m.allowance, m.of_allowance, m.webhook_id, m.reason, m.created_at, m.attempts, m.sent`)

func scanMail(row pgx.CollectableRow) (queuedMail, error) {
	var q queuedMail
	var quota domain.QuotaWarningReachedBody
	var webhook domain.WebhookDisabledBody
	var percent zeronull.Int4
	var of []byte
	err := row.Scan(&q.mail.ID, &q.mail.Organization, (*zeronull.Int4)(&quota.Period), &percent,
		(*zeronull.Int8)(&quota.Used),
		(*zeronull.Int8)(&quota.Limit), &of, &webhook.WebhookID, (*zeronull.Text)(&webhook.Reason), &q.mail.At, &q.attempts,
		&q.sent)
	switch state, ok := strings.CutPrefix(string(webhook.Reason), projections.DomainMail); {
	case err == nil && ok: // webhook_id is the id of the statement
		q.mail.Domain = domain.DomainState(state)
		return q, nil
	case err != nil || !webhook.WebhookID.IsZero():
		q.mail.Webhook = &webhook
		return q, err
	}
	quota.Percent, q.mail.Quota = int(percent), &quota
	return q, quota.Allowance.UnmarshalText(of)
}

// invitationMail is a row that this worker holds until its lease ends.
type invitationMail struct {
	ID           domain.EventID
	Organization domain.OrganizationID
	Member       domain.MemberID
	SecretSHA256 []byte
	Sealed       []byte
	CreatedAt    time.Time
	ExpiresAt    time.Time
	Attempts     int
}

var takeInvitation = cluster.SQL(`UPDATE {invitation_mails} SET due_at = $3, attempts = attempts + 1
	WHERE shard = $1 AND mail_id = (SELECT mail_id FROM {invitation_mails} WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
	RETURNING mail_id, organization_id, member_id, secret_sha256, sealed, created_at, expires_at, attempts`)

// dropInvitations deletes invitations that have ended without having been sent.
func (m Mailer) dropInvitations(ctx context.Context, shard domain.Shard) error {
	query := cluster.SQL(`DELETE FROM {invitation_mails}
		WHERE shard = $1 AND due_at <= $2 AND expires_at <= $2 RETURNING mail_id`)
	dropped, err := statement.All(ctx, m.Pool, "drop old invitations", pgx.RowTo[domain.EventID], query, shard, m.Now())
	if len(dropped) > 0 {
		m.Log.Warn(
			"invitations dropped: they expired before they could be sent", "shard", shard, "mails", len(dropped), "configured",
			m.Send != nil,
		)
		m.Observe(MailDropped, len(dropped))
	}
	return err
}

// findInvited returns the address and the role of a member if the mail's invitation is still the current one.
var findInvited = cluster.SQL(`SELECT t.body, m.role
	FROM {members} m
	JOIN {texts} t ON t.shard = $1 AND t.organization_id = $2 AND t.id = m.email_id
	WHERE m.shard = $1 AND m.organization_id = $2 AND m.member_id = $3 AND m.status = 'invited' AND m.invitation_sha256 = $4 AND t.body IS NOT NULL`)

// invite sends an invitation, unless it was withdrawn, renewed or accepted meanwhile, and deletes the row with its
// code.
func (m Mailer) invite(ctx context.Context, shard domain.Shard, _ time.Time, q invitationMail) error {
	type invited struct {
		Address string
		Role    domain.Role
	}
	to, found, err := statement.First(
		ctx, m.Pool, "find whom to invite", pgx.RowToStructByPos[invited], findInvited, shard, q.Organization, q.Member,
		q.SecretSHA256,
	)
	if err != nil {
		return err
	}
	if found {
		var code string
		if code, err = m.SecretKeys().Open(q.Organization, q.Sealed); err == nil {
			err = m.invited.count(to.Address, 0, m.Now())
		}
		if err == nil {
			one, done := context.WithTimeout(ctx, mailTimeout)
			err = m.Send(one, Mail{
				ID: q.ID, Organization: q.Organization, Member: q.Member, To: to.Address, At: q.CreatedAt,
				Invitation: &Invitation{Role: to.Role, ExpiresAt: q.ExpiresAt, URL: map[evidence.Language]string{
					evidence.Spanish: m.InvitationURL(evidence.Spanish, code),
					evidence.English: m.InvitationURL(evidence.English, code),
				}},
			})
			done()
		}
	}
	if err != nil {
		delay := mailDelay(q.Attempts)
		m.Observe(MailFailed, 1)
		m.Log.Warn(
			"sending an invitation failed; retrying later", "mail", q.ID, "attempt", q.Attempts, "delay", delay, "error",
			err,
		)
		again := cluster.SQL(`UPDATE {invitation_mails} SET due_at = $4 WHERE shard = $1 AND mail_id = $2 AND attempts = $3`)
		return statement.Exec(ctx, m.Pool, "record what was mailed", again, shard, q.ID, q.Attempts, m.Now().Add(delay))
	}
	if found {
		_ = m.invited.count(to.Address, 1, m.Now()) // checked before
		m.Observe(MailSent, 1)
	}
	// If another worker has taken the row meanwhile, its number of attempts differs and this changes nothing.
	done := cluster.SQL(`DELETE FROM {invitation_mails} WHERE shard = $1 AND mail_id = $2 AND attempts = $3`)
	return statement.Exec(ctx, m.Pool, "record what was mailed", done, shard, q.ID, q.Attempts)
}

// deliver sends a row's mail to every recipient that has not received it, and records the recipients.
func (m Mailer) deliver(ctx context.Context, shard domain.Shard, _ time.Time, q queuedMail) error {
	recipients, err := m.recipients(ctx, shard, q)
	if err != nil {
		return err
	}
	sending, cancel := context.WithTimeout(ctx, mailAttempt)
	defer cancel()
	var failures []error
	for _, to := range recipients {
		if slices.Contains(q.sent, to.Member) {
			continue
		}
		one, done := context.WithTimeout(sending, mailTimeout)
		err := m.Send(one, to)
		done()
		if err != nil {
			failures = append(failures, err)
			m.Observe(MailFailed, 1)
			continue
		}
		m.Observe(MailSent, 1)
		q.sent = append(q.sent, to.Member)
	}
	// If another worker has taken the row meanwhile, its number of attempts differs and this changes nothing.
	if failures == nil {
		done := cluster.SQL(`DELETE FROM {mails} WHERE shard = $1 AND mail_id = $2 AND attempts = $3`)
		return statement.Exec(ctx, m.Pool, "record what was mailed", done, shard, q.mail.ID, q.attempts)
	}
	delay := mailDelay(q.attempts)
	m.Log.Warn("sending a mail failed for some recipients; retrying later", "mail", q.mail.ID, "attempt", q.attempts,
		"failures", len(failures), "delay", delay, "error", failures[0])
	again := cluster.SQL(`UPDATE {mails} SET due_at = $4, sent = $5 WHERE shard = $1 AND mail_id = $2 AND attempts = $3`)
	return statement.Exec(
		ctx, m.Pool, "record what was mailed", again, shard, q.mail.ID, q.attempts, m.Now().Add(delay),
		append([]domain.MemberID{}, q.sent...),
	)
}

// Outcomes of a mail.
const (
	MailSent    = "sent"
	MailFailed  = "failed"
	MailDropped = "dropped" // the row is too old; counts once for all recipients
)

// recipients returns the current owners and admins whose address was not erased.
func (m Mailer) recipients(ctx context.Context, shard domain.Shard, q queuedMail) ([]Mail, error) {
	query := cluster.SQL(`SELECT m.member_id, t.body
		FROM {members} m
		JOIN {texts} t ON t.shard = $1 AND t.organization_id = $2 AND t.id = m.email_id AND t.body IS NOT NULL
		WHERE m.shard = $1 AND m.organization_id = $2 AND m.status = 'active' AND m.role IN ('owner', 'admin')
		ORDER BY m.member_id`)
	return statement.All(ctx, m.Pool, "find whom to warn", func(row pgx.CollectableRow) (Mail, error) {
		mail := q.mail
		err := row.Scan(&mail.Member, &mail.To)
		return mail, err
	}, query, shard, q.mail.Organization)
}
