package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
)

// outbox is a mail server that can be down.
type outbox struct {
	mu   sync.Mutex
	down map[string]bool // by address
	sent []string
}

func (o *outbox) send(_ context.Context, m queue.Mail) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down[m.To] {
		return errors.New("down")
	}
	o.sent = append(
		o.sent, fmt.Sprintf("%s %d@%s %d/%d", m.To, m.Quota.Percent, m.Quota.Period, m.Quota.Used, m.Quota.Limit),
	)
	return nil
}

func (o *outbox) wants(t *testing.T, what string, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if fmt.Sprint(o.sent) != fmt.Sprint(want) {
		t.Errorf("%s: sent %v, want %v", what, o.sent, want)
	}
	o.sent = nil
}

// warned creates an organization that has used 4 of 5 versions.
func warned(t *testing.T, l *ledgertest.Ledger) ledgertest.Organization {
	t.Helper()
	o := l.Organization(t, 2, "gratis")
	for version := range int32(4) {
		l.Must(t, l.Register(t, o, o.Declaration("a", version+1, fmt.Sprint(version))))
	}
	return o
}

// smallPlans opens a ledger whose organizations may register five versions a month. Its clock is stopped, so that no
// month ends during the test.
func smallPlans(t *testing.T) *ledgertest.Ledger {
	t.Helper()
	now := time.Now().Add(time.Minute)
	clock := func() time.Time { return now }
	l := ledgertest.New(t, func(c *eventstore.Config) {
		five := int64(5)
		c.Plans, c.Clock = domain.Plans{"gratis": {PerMinute: 1, VersionsPerMonth: &five}}, ledgertest.Simulated(clock)
	})
	l.Now = clock
	return l
}

func rows(t *testing.T, l *ledgertest.Ledger) (n int) {
	t.Helper()
	if err := l.Pool.QueryRow(context.Background(), "SELECT count(*) FROM mails").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func addMember(t *testing.T, l *ledgertest.Ledger, o ledgertest.Organization, email string, role domain.Role) {
	t.Helper()
	l.Must(t, &domain.AddMember{Origin: o.Operator(), Email: email, Role: role})
}

func TestMailReachesEveryRecipientOnce(t *testing.T) {
	ctx := context.Background()
	l := smallPlans(t)
	o := warned(t, l)
	for _, m := range []struct {
		email string
		role  domain.Role
	}{
		{"admin@example.com", domain.Admin}, {"left@example.com", domain.Admin}, {"erased@example.com", domain.Owner},
		{"analyst@example.com", domain.Analyst},
	} {
		addMember(t, l, o, m.email, m.role)
	}
	disabled := domain.MemberDisabled
	l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Email: "left@example.com", Status: &disabled})
	if _, err := l.Pool.Exec(
		ctx, "UPDATE texts SET body = NULL WHERE shard = $1 AND body = 'erased@example.com'", o.ID.Shard(),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Pool.Exec(
		ctx, "UPDATE members SET email_sha256 = NULL WHERE shard = $1 AND email_sha256 = sha256('erased@example.com')",
		o.ID.Shard(),
	); err != nil {
		t.Fatal(err)
	}
	if rows(t, l) != 1 {
		t.Fatalf("%d mails are queued", rows(t, l))
	}

	now := l.Now().Add(time.Second)
	box := &outbox{down: map[string]bool{"admin@example.com": true}}
	counted := map[string]int{}
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: func() time.Time { return now },
		Log: slog.New(slog.DiscardHandler), Send: box.send,
		Observe: func(outcome string, mails int) { counted[outcome] += mails },
	})
	deliver := func() {
		t.Helper()
		if err := mailer.Look(ctx); err != nil {
			t.Fatal(err)
		}
	}
	period := domain.PeriodOf(l.Now()).String()
	deliver()
	box.wants(t, "one address is down", "owner@example.com 80@"+period+" 4/5")
	// Retries come after one minute, then two, four and so on, never earlier, and never to a recipient that already has
	// the mail.
	for _, delay := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		now = now.Add(delay - time.Second)
		deliver()
		box.wants(t, "too early")
		now = now.Add(time.Second)
		deliver()
		box.wants(t, "still down")
	}
	box.down = nil
	now = now.Add(8 * time.Minute)
	deliver()
	box.wants(t, "up again", "admin@example.com 80@"+period+" 4/5")
	now = now.Add(24 * time.Hour)
	deliver()
	box.wants(t, "done")
	if counted[queue.MailSent] != 2 || counted[queue.MailFailed] != 4 || len(counted) != 2 {
		t.Errorf("the observer counted %v", counted)
	}
	if rows(t, l) != 0 {
		t.Errorf("%d mails are left", rows(t, l))
	}
	l.Audit(t) // a replay queues no mail
	if rows(t, l) != 0 {
		t.Error("a replay queued mails")
	}
}

// TestMailIsLeasedToOneWorker: when a worker dies, another takes its row once the lease expires. Two workers never send
// the same row at the same time.
func TestMailIsLeasedToOneWorker(t *testing.T) {
	ctx := context.Background()
	l := smallPlans(t)
	warned(t, l)
	var mu sync.Mutex
	now := l.Now().Add(time.Second)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	box := &outbox{}
	taken, die := make(chan struct{}), make(chan struct{})
	worker := func(send func(context.Context, queue.Mail) error) *queue.Loop {
		return queue.NewMailer(queue.Mailer{
			Pool: l.Pool, Shards: l.Installation.Shards, Now: clock, Log: slog.New(slog.DiscardHandler), Send: send,
		})
	}
	slow := worker(func(context.Context, queue.Mail) error {
		close(taken)
		<-die
		return errors.New("broken off")
	})
	ended := make(chan error)
	go func() { ended <- slow.Look(ctx) }()
	<-taken
	other := worker(box.send)
	if err := other.Look(ctx); err != nil {
		t.Fatal(err)
	}
	box.wants(t, "the row is taken")
	mu.Lock()
	now = now.Add(10 * time.Minute)
	mu.Unlock()
	if err := other.Look(ctx); err != nil {
		t.Fatal(err)
	}
	box.wants(t, "the lease has ended", "owner@example.com 80@"+domain.PeriodOf(l.Now()).String()+" 4/5")
	close(die)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if rows(t, l) != 0 {
		t.Error("the late worker brought the row back")
	}
}

// TestOldMailsAreDropped: without a mail server, or with one that stays down, warnings are kept but mails are dropped.
func TestOldMailsAreDropped(t *testing.T) {
	ctx := context.Background()
	l := smallPlans(t)
	o := warned(t, l)
	now := l.Now().Add(time.Second)
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Observe: func(outcome string, mails int) {
			if outcome != queue.MailDropped || mails != 1 {
				t.Errorf("the observer counted %s %d", outcome, mails)
			}
		},
	})
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{0, 1}, {71 * time.Hour, 1}, {time.Hour, 0}} {
		now = now.Add(step.after)
		if err := mailer.Look(ctx); err != nil {
			t.Fatal(err)
		}
		if rows(t, l) != step.left {
			t.Errorf("%d mails after %s more", rows(t, l), step.after)
		}
		if n, oldest := waitingMails(t, l, o.ID.Shard()); n != int64(step.left) || (oldest != nil) != (step.left > 0) ||
			step.left > 0 && !oldest.Before(now) {
			t.Errorf("%d mails wait, the oldest since %v, after %s more", n, oldest, step.after)
		}
	}
	store, five := l.Store(t), int64(5)
	store.Plans = domain.Plans{"gratis": {PerMinute: 1, VersionsPerMonth: &five}} // the plans of smallPlans
	usage, err := store.Usage(ctx, domain.Access{Organization: o.ID, Key: o.Key.ID}, domain.PeriodOf(l.Now()))
	if err != nil || len(usage.Warnings) != 1 || usage.Warnings[0].Percent != 80 {
		t.Errorf("usage %+v, %v", usage, err)
	}
}

// waitingMails returns the number of mails of a shard that operators see.
func waitingMails(t *testing.T, l *ledgertest.Ledger, shard domain.Shard) (n int64, oldest *time.Time) {
	t.Helper()
	watched, err := query.Watch(context.Background(), l.Pool)
	if err != nil {
		t.Fatal(err)
	}
	backlogs, err := query.Backlogs(context.Background(), l.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return backlogs[shard].Mails, watched.Shards[shard].Mail
}

// TestDisabledDestinationIsMailedOnce: owners and admins get one mail when a destination is disabled.
func TestDisabledDestinationIsMailedOnce(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	o := l.Organization(t, 2, "gratis")
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{Origin: o.Origin(), URL: "https://receiver.example", Types: 7}, domain.SecretKey{}, l.Now(),
	)
	l.Must(t, create)
	disable := func() {
		t.Helper()
		l.Must(
			t,
			&domain.DisableWebhook{
				Origin: domain.Origin{Organization: o.ID, Actor: domain.SystemActor}, Webhook: create.Outcome.ID,
				Reason: domain.DisabledGone,
			},
		)
	}
	disable()
	disable() // already disabled: no second mail
	var sent []queue.Mail
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: func() time.Time {
			return l.Now().Add(time.Second)
		}, Log: slog.New(slog.DiscardHandler),
		Send: func(_ context.Context, m queue.Mail) error {
			sent = append(sent, m)
			return nil
		},
	})
	if err := mailer.Look(ctx); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 1 || sent[0].Quota != nil ||
		*sent[0].Webhook != (domain.WebhookDisabledBody{WebhookID: create.Outcome.ID, Reason: domain.DisabledGone}) ||
		sent[0].To != o.Email {
		t.Errorf("%+v", sent)
	}
	l.Audit(t)
}

// TestInvitationsAreMailed: an invitation reaches the address once, and its code leaves the queue with the mail. An
// invitation that was withdrawn, renewed or has expired is not sent.
func TestInvitationsAreMailed(t *testing.T) {
	ctx := context.Background()
	began, passed := time.Now().Add(time.Minute), atomic.Int64{}
	clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	pass := func(d time.Duration) { passed.Add(int64(d)) }
	l := ledgertest.New(t, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(clock) })
	l.Now = clock
	o := l.Organization(t, 1, domain.InternalPlan)
	key, _ := domain.NewSecretKey()
	invite := func(email string) (domain.Member, string) {
		t.Helper()
		c, code := domain.NewInviteMember(domain.InviteMember{Origin: o.Operator(), Email: email, Role: domain.Analyst}, &key)
		l.Must(t, c)
		return c.Outcome, code
	}
	queued := func() (n int) {
		t.Helper()
		if err := l.Pool.QueryRow(ctx, "SELECT count(*) FROM invitation_mails").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var sent []string
	down := errors.New("the mail server is away")
	failing := down
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: clock, Log: slog.New(slog.DiscardHandler), SecretKeys: domain.FixedSecretKeys(key),
		InvitationURL: func(_ evidence.Language, code string) string { return code },
		Send: func(_ context.Context, m queue.Mail) error {
			if failing != nil {
				return failing
			}
			sent = append(sent, m.To+" "+string(m.Invitation.Role)+" "+m.Invitation.URL[evidence.English])
			return nil
		},
	})
	look := func(what string, left int, want ...string) {
		t.Helper()
		if err := mailer.Look(ctx); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sent, want) || queued() != left {
			t.Fatalf("%s: sent %q and %d queued, want %q and %d", what, sent, queued(), want, left)
		}
		sent = nil
	}
	_, code := invite("ana@example.com")
	look("the server is away", 1)
	if n, oldest := waitingMails(t, l, o.ID.Shard()); n != 1 || oldest == nil {
		t.Errorf("an invitation waits: operators see %d mails, the oldest since %v", n, oldest)
	}
	failing = nil
	pass(time.Minute - time.Second)
	look("too early", 1)
	pass(time.Second)
	look("again", 0, "ana@example.com analyst "+code)
	pass(domain.InvitationPause)
	_, again := invite("ana@example.com")
	failing = down
	look("the second time", 1)
	pass(domain.InvitationPause)
	failing = nil
	_, last := invite("ana@example.com")
	look("made again", 0, "ana@example.com analyst "+last)
	if again == last {
		t.Error("both invitations have one code")
	}
	withdrawn, _ := invite("bob@example.com")
	ended := domain.MemberEnded
	l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Member: withdrawn.ID, Status: &ended})
	look("withdrawn", 0)
	for range queue.MaxInvitations { // many organizations invite one address
		stranger := l.Organization(t, 1, "gratis")
		c, _ := domain.NewInviteMember(
			domain.InviteMember{Origin: stranger.Operator(), Email: "Victim@example.com", Role: domain.Viewer}, &key,
		)
		l.Must(t, c)
	}
	if err := mailer.Look(ctx); err != nil || len(sent) != queue.MaxInvitations {
		t.Fatalf("%d mails, %v", len(sent), err)
	}
	sent = nil
	_, code = invite("victim@example.com")
	look("one too many for the address", 1)
	pass(24 * time.Hour)
	look("the next day", 0, "victim@example.com analyst "+code)
	late, _ := invite("late@example.com")
	pass(late.InvitedUntil.Sub(clock()))
	look("too late", 0)
}

// TestMailErrorsAreReported: database errors are reported for mails and invitations: when taking one, finding its
// recipients, recording that it failed or was sent, and dropping it.
func TestMailErrorsAreReported(t *testing.T) {
	if pgtest.OnCitus() {
		t.Skip("its distributed tables have no triggers")
	}
	ctx := context.Background()
	l := smallPlans(t)
	o := warned(t, l)
	key, _ := domain.NewSecretKey()
	invitation, _ := domain.NewInviteMember(
		domain.InviteMember{Origin: o.Operator(), Email: "ana@example.com", Role: domain.Analyst}, &key,
	)
	l.Must(t, invitation)
	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := owner.Exec(ctx, fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '%% refuses', TG_TABLE_NAME; END $$`)
	now := l.Now()
	var answer error
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		SecretKeys: domain.FixedSecretKeys(key), InvitationURL: func(_ evidence.Language, code string) string { return code },
		Send: func(context.Context, queue.Mail) error { return answer },
	})
	look := func(what string, want ...string) {
		t.Helper()
		now = now.Add(time.Hour)
		err := mailer.Look(ctx)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %s", what, err, part)
			}
		}
	}
	exec("ALTER TABLE members RENAME TO away")
	look("whom to send it to", "find whom to warn", "find whom to invite")
	exec("ALTER TABLE away RENAME TO members")
	tables := []string{"mails", "invitation_mails"}
	for _, step := range []struct {
		what, when string
		answer     error
	}{
		{"taking", "UPDATE ON %s FOR EACH ROW", nil},
		{"recording a failure", "UPDATE ON %s FOR EACH ROW WHEN (NEW.attempts = OLD.attempts)", errors.New("down")},
		{"recording a success", "DELETE ON %s FOR EACH ROW", nil},
	} {
		answer = step.answer
		for _, table := range tables {
			exec("CREATE TRIGGER refuse BEFORE "+step.when+" EXECUTE FUNCTION refuse()", table)
		}
		look(step.what, "ERROR: mails refuses", "ERROR: invitation_mails refuses")
		if step.what == "recording a success" {
			break
		}
		for _, table := range tables {
			exec("DROP TRIGGER refuse ON %s", table)
		}
	}
	now = invitation.Outcome.InvitedUntil.Add(time.Hour)
	look("dropping", "drop old mails: ERROR: mails refuses")
	exec("DROP TRIGGER refuse ON mails")
	look("dropping an invitation", "drop old invitations: ERROR: invitation_mails refuses")
	exec("DROP TRIGGER refuse ON invitation_mails")
	if err := mailer.Look(ctx); err != nil || rows(t, l) != 0 {
		t.Errorf("%v, %d mails are left", err, rows(t, l))
	}
}

// Owners get a mail on the first failed day of a domain and when it lapses, and never one about a webhook instead: both
// mails share a row's form.
func TestFailingDomainsAreMailed(t *testing.T) {
	var skew atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	l := ledgertest.New(t, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(now) })
	l.Now = now
	o := l.Organization(t, 1, "gratis")
	add := &domain.AddDomain{Origin: o.Operator(), Domain: "transportes.example"}
	l.Must(t, add)
	check := func(method domain.ProofMethod) {
		t.Helper()
		l.Must(t, &domain.RecordDomainCheck{Origin: o.Operator(), Domain: add.Outcome.ID, Method: method})
	}
	check(domain.ProvenByDNS)
	for range domain.LapseDays {
		check("")
		skew.Add(int64(domain.FailedDay))
	}
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{Origin: o.Origin(), URL: "https://receiver.example", Types: 7}, domain.SecretKey{}, now(),
	)
	l.Must(t, create)
	l.Must(t, &domain.DisableWebhook{
		Origin: domain.Origin{Organization: o.ID, Actor: domain.SystemActor}, Webhook: create.Outcome.ID,
		Reason: domain.DisabledFailing,
	})
	var sent []string
	mailer := queue.NewMailer(queue.Mailer{
		Pool: l.Pool, Shards: l.Installation.Shards, Now: now, Log: slog.New(slog.DiscardHandler),
		Send: func(_ context.Context, m queue.Mail) error {
			switch {
			case m.Webhook != nil:
				sent = append(sent, "webhook "+string(m.Webhook.Reason))
			case m.To == o.Email:
				sent = append(sent, "domain "+string(m.Domain))
			}
			return nil
		},
	})
	if err := mailer.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(sent)
	if got := strings.Join(sent, ", "); got != "domain failing, domain lapsed, webhook failing" {
		t.Errorf("sent: %s", got)
	}
}
