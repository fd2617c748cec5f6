package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/session"
)

// datedAhead creates a ledger in which a program with a wrong clock has dated one of two shards in the future.
func datedAhead(
	t *testing.T, by time.Duration,
) (l *ledgertest.Ledger, env []string, wrong, right ledgertest.Organization) {
	t.Helper()
	l = ledgertest.New(t)
	wrong, right = l.Organization(t, 1, "gratis"), l.Organization(t, 2, "gratis")
	old := *l
	old.Now = func() time.Time { return time.Now().Add(by) }
	old.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(old.Now) })
	old.Must(t, old.Register(t, wrong, wrong.Declaration("a", 1, "x")))
	return l, []string{"INTEGRITY_DATABASE_URL=" + l.URL, "INTEGRITY_DATA_DIR=" + dataDir(t)}, wrong, right
}

// TestClockReset: an operator finds a shard dated in the future and resets it, and every reader of the history
// understands the reset.
func TestClockReset(t *testing.T) {
	t.Parallel()
	l, env, wrong, right := datedAhead(t, 40*24*time.Hour)
	wantFindings(
		t, examine(t, cli.ExitNegative, env), "fail clock: shard 1 is dated ",
		"ahead of this machine's clock and of the database's",
	)
	if r := integrity(
		t, env, "company", "create", "another", "--organization", wrong.ID.String(),
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "clocks of the service disagree") {
		t.Errorf("a command in that shard: %+v", r)
	}
	must(t, env, "company", "create", "another", "--organization", right.ID.String())
	var resets []operator.ClockResetView
	mustJSON(t, env, &resets, "clock", "reset")
	if len(resets) != 1 || resets[0].Shard != 1 || len(resets[0].Organizations) != 1 ||
		resets[0].Organizations[0] != wrong.ID.String() || resets[0].From <= resets[0].To {
		t.Errorf("%+v", resets)
	}
	if r := integrity(t, env, "clock", "reset"); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "no shard is dated ahead") {
		t.Errorf("a second time: %+v", r)
	}
	must(t, env, "company", "create", "another", "--organization", wrong.ID.String())
	wantFindings(t, examine(t, cli.ExitNegative, env), "ok clock: no shard is dated ahead of it") // there are no keys
	must(t, env, "rebuild", "--check")
	keys := filepath.Join(t.TempDir(), keyfiles.TrustedKeysFile)
	text, err := l.Trusted.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(t, keys, string(text))
	must(t, env, "audit", "--trusted-keys", keys)
	bundle := filepath.Join(t.TempDir(), "bundle")
	must(t, env, "export", "--out", bundle, "--organization", wrong.ID.String(), "--trusted-keys", keys)
	must(t, nil, "audit", bundle, "--trusted-keys", keys)
	l.Audit(t)
}

// TestReadyWithoutAnyShard: if no shard can commit, /readyz says so.
func TestReadyWithoutAnyShard(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir)
	var organization operator.OrganizationView
	mustJSON(t, nil, &organization, "organization", "create", "X", "--plan", "internal", "--data-dir", dir)
	ready := func() int {
		response, err := plainHTTP().Get(s.base + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if code := ready(); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	spoil(t, dir, "UPDATE shard_heads SET occurred_at = occurred_at + interval '1 day' WHERE position > 0")
	eventually(t, "the answer that is remembered for a second", func() error {
		if code := ready(); code != http.StatusServiceUnavailable {
			return fmt.Errorf("ready with every shard ahead: %d", code)
		}
		return nil
	})
	if r := integrity(
		t, nil, "company", "create", "x", "--organization", organization.ID, "--data-dir", dir,
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "clocks of the service disagree") {
		t.Errorf("%+v", r)
	}
}

// TestSessionsStayWhileTheClockIsWrong: a process whose clock is ahead ends no sessions.
func TestSessionsStayWhileTheClockIsWrong(t *testing.T) {
	t.Parallel()
	l := ledgertest.New(t)
	o := l.Organization(t, 1, "gratis")
	ahead := func() time.Time { return time.Now().Add(24 * time.Hour) }
	current := &session.Session{
		ID: domain.NewID[domain.SessionID](time.Now()), Organization: o.ID, Member: o.Key.Member, Role: domain.Owner,
		CreatedAt: time.Now(), ProvedAt: time.Now(),
	}
	current.Begin()
	sessions := session.Sessions{Store: l.Sessions(t), Now: time.Now}
	if err := sessions.CommitCtx(
		session.With(t.Context(), o.ID.Shard(), current), "AAAA", []byte("x"), time.Time{},
	); err != nil {
		t.Fatal(err)
	}
	wrong := l.Process(t, l.URL, func(c *eventstore.Config) {
		c.Clock = eventstore.NewClock(eventstore.ClockConfig{Now: ahead})
	})
	s := &service{
		app: &app{App: &cli.App{Now: ahead}}, log: slog.New(slog.DiscardHandler), sessions: l.Sessions(t), ledger: wrong,
	}
	s.forgetSessions(t.Context())
	var left int
	if err := l.Pool.QueryRow(t.Context(), "SELECT count(*) FROM console_sessions").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d sessions are left: %v", left, err)
	}
}
