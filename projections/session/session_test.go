package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/session"
)

// TestSessions: a session is valid for 30 minutes without a request and at most 12 hours, while its member is active in
// the original role. Once ended, it stays ended.
func TestSessions(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 3, domain.InternalPlan)
	now := time.Now().UTC().Truncate(time.Microsecond)
	store := l.Sessions(t)
	sessions := session.Sessions{Store: store, Now: func() time.Time { return now }}
	ctx, member := context.Background(), o.Key.Member
	number := 0
	begin := func() (token string) {
		t.Helper()
		number++
		sum := sha256.Sum256([]byte{byte(number)})
		token = base64.RawURLEncoding.EncodeToString(sum[:])
		s := &session.Session{
			ID: domain.NewID[domain.SessionID](now), Organization: o.ID, Member: member, Role: domain.Owner, CreatedAt: now,
			ProvedAt: now,
		}
		s.Begin()
		if err := sessions.CommitCtx(session.With(ctx, o.ID.Shard(), s), token, []byte("data"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		return token
	}
	find := func(token string, shard domain.Shard) (s session.Session, found bool) {
		t.Helper()
		data, found, err := sessions.FindCtx(session.With(ctx, shard, &s), token)
		if err != nil || found != (string(data) == "data") {
			t.Fatalf("%q, %v", data, err)
		}
		return s, found
	}
	touch := func(token string, s session.Session) {
		t.Helper()
		if err := sessions.CommitCtx(session.With(ctx, o.ID.Shard(), &s), token, []byte("data"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	token := begin()
	began := now
	s, found := find(token, 3)
	if !found || s.Organization != o.ID || s.Member != member || s.Role != domain.Owner ||
		s.OrganizationName != "Example" || s.Email != o.Email || s.Plan != domain.InternalPlan {
		t.Fatalf("%v, %+v", found, s)
	}
	for what, shard := range map[string]domain.Shard{"another shard": 2, "no shard": 99} {
		if _, found := find(token, shard); found {
			t.Errorf("found in %s", what)
		}
	}
	for now.Before(began.Add(session.Lifetime - 29*time.Minute)) { // used every 29 minutes
		now = now.Add(29 * time.Minute)
		if s, found = find(token, 3); !found {
			t.Fatalf("gone after %s", now.Sub(began))
		}
		touch(token, s)
	}
	if now = began.Add(session.Lifetime); func() bool { _, found := find(token, 3); return found }() {
		t.Error("used all the time, it holds longer than 12 hours")
	}
	token = begin()
	if now = now.Add(session.Idle); func() bool { _, found := find(token, 3); return found }() {
		t.Error("without a request, it holds for 30 minutes")
	}

	// A session that ended during a request is not restored by the end of the request.
	token = begin()
	s, _ = find(token, 3)
	if err := store.EndSession(ctx, o.ID, member, s.ID); err != nil {
		t.Fatal(err)
	}
	touch(token, s)
	if _, found := find(token, 3); found {
		t.Error("an ended session has come back")
	}

	// Another role or status ends it permanently.
	l.Must(t, &domain.AddMember{Origin: o.Operator(), Email: "second@example.com", Role: domain.Owner})
	admin, owner, disabled, active := domain.Admin, domain.Owner, domain.MemberDisabled, domain.MemberActive
	for what, change := range map[string][2]domain.ChangeMember{
		"role":   {{Role: &admin}, {Role: &owner}},
		"status": {{Status: &disabled}, {Status: &active}},
	} {
		token = begin()
		for _, c := range change {
			c.Origin, c.Member = o.Operator(), member
			l.Must(t, &c)
			if _, found := find(token, 3); found {
				t.Errorf("found after a change of %s", what)
			}
		}
	}
	// A session that began at the moment of the change has another role.
	l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Member: member, Role: &admin})
	if _, found := find(begin(), 3); found {
		t.Error("a session of a former role was found")
	}
	l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Member: member, Role: &owner})

	// If there are too many, the least recently used one ends, never the new one.
	first := begin()
	now = now.Add(time.Minute)
	second := begin()
	now = now.Add(time.Minute)
	firsts, _ := find(first, 3)
	touch(first, firsts)
	for range session.MaxPerMember - 2 {
		begin()
	}
	now = now.Add(-time.Hour) // a process whose clock is behind
	last := begin()
	now = now.Add(time.Hour)
	for name, c := range map[string]struct {
		token string
		want  bool
	}{"the first, which was used": {first, true}, "the second": {second, false}} {
		if _, found := find(c.token, 3); found != c.want {
			t.Errorf("%s holds: %v", name, found)
		}
	}
	if all, err := store.SessionsOf(ctx, o.ID, member, now.Add(-time.Hour)); err != nil ||
		len(all) != session.MaxPerMember {
		t.Errorf("%d sessions, %v", len(all), err)
	}
	now = now.Add(-time.Hour)
	if _, found := find(last, 3); !found {
		t.Error("a new session has ended itself")
	}
	now = now.Add(time.Hour)
	if err := store.EndSessions(ctx, o.ID, member); err != nil {
		t.Fatal(err)
	}

	begin()
	kept, err := store.SessionsOf(ctx, o.ID, member, now)
	if err != nil || len(kept) != 1 {
		t.Errorf("%d sessions, %v", len(kept), err)
	}
	if err := store.EndSessions(ctx, o.ID, member); err != nil {
		t.Fatal(err)
	}
	if kept, err = store.SessionsOf(ctx, o.ID, member, now); err != nil || len(kept) != 0 {
		t.Errorf("after their end: %v, %v", kept, err)
	}
}

// TestMemberships: an address is found in any letter case, in every organization, until the membership ends or the
// address is erased.
func TestMemberships(t *testing.T) {
	l := ledgertest.New(t)
	store, reader, ctx := l.Sessions(t), l.Store(t), context.Background()
	first, second := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 3, domain.InternalPlan)
	of := func(address string) (names []domain.OrganizationID) {
		t.Helper()
		list, err := store.Memberships(ctx, domain.EmailSHA256(address))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			names = append(names, m.Organization)
		}
		return names
	}
	if got := of("OWNER@Example.com"); len(got) != 2 || got[0] != first.ID || got[1] != second.ID {
		t.Fatalf("%v", got)
	}
	if got := of("nobody@example.com"); got != nil {
		t.Errorf("nobody: %v", got)
	}
	add := &domain.AddMember{Origin: first.Operator(), Email: "Ana@Example.org", Role: domain.Viewer}
	l.Must(t, add)
	if got := of("ana@example.org"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	ana := domain.Origin{
		Organization: first.ID, Actor: domain.MemberActor(add.Outcome.ID), RequestID: "test", Console: true,
	}
	l.Must(
		t,
		&domain.AddPasskey{
			Origin: ana, Member: add.Outcome.ID, Name: "Ana's",
			Credential: domain.Credential{CredentialID: []byte{1}, PublicKey: []byte{1}},
		},
	)
	ended := domain.MemberEnded
	l.Must(t, &domain.ChangeMember{Origin: first.Operator(), Member: add.Outcome.ID, Status: &ended})
	if got := of("ana@example.org"); got != nil {
		t.Errorf("an ended membership: %v", got)
	}
	texts, err := reader.TextsOf(ctx, first.ID, add.Outcome.ID.String())
	if err != nil || len(texts) != 2 {
		t.Errorf("an address and the name of a passkey: %v, %v", texts, err)
	}
	l.Must(t, &domain.EraseTexts{Origin: first.Operator(), Subject: add.Outcome.ID.String(), Texts: texts})
	if left, err := reader.TextsOf(ctx, first.ID, add.Outcome.ID.String()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	var kept int
	if err := l.Pool.QueryRow(
		ctx, "SELECT count(*) FROM members WHERE shard = $1 AND member_id = $2 AND email_sha256 IS NOT NULL",
		first.ID.Shard(), add.Outcome.ID,
	).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("the hash of an erased address is kept: %d, %v", kept, err)
	}
	l.Audit(t)
}

// TestSignInLinks: a link works once, before it expires, with its secret. An address gets five an hour.
func TestSignInLinks(t *testing.T) {
	l := ledgertest.New(t)
	store, ctx, now := l.Sessions(t), context.Background(), time.Now()
	address := domain.EmailSHA256("owner@example.com")
	add := func(at time.Time) (session.SignInLink, bool) {
		t.Helper()
		id, _, secret := domain.NewSignInLink(at, 2)
		link := session.SignInLink{ID: id, SecretSHA256: secret, EmailSHA256: &address, BrowserSHA256: &[32]byte{1}}
		added, err := store.AddSignInLink(ctx, link, at)
		if err != nil {
			t.Fatal(err)
		}
		return link, added
	}
	for i := range session.LinksPerHour + 1 {
		if _, added := add(now); added != (i < session.LinksPerHour) {
			t.Errorf("link %d of the hour: %v", i+1, added)
		}
	}
	now = now.Add(time.Hour)
	link, added := add(now)
	if !added {
		t.Fatal("no link in the next hour")
	}
	use := func(l session.SignInLink, at time.Time) bool {
		t.Helper()
		used, err := store.UseSignInLink(ctx, l, at)
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	wrong := link
	wrong.SecretSHA256[0]++
	for what, got := range map[string]bool{
		"a wrong secret": use(wrong, now), "too late": use(link, now.Add(session.LinkLifetime)),
	} {
		if got {
			t.Errorf("used with %s", what)
		}
	}
	if _, found, err := store.SignInLink(ctx, link.ID, wrong.SecretSHA256); found || err != nil {
		t.Errorf("found with a wrong secret: %v", err)
	}
	if known, found, err := store.SignInLink(ctx, link.ID, link.SecretSHA256); !found || err != nil ||
		*known.EmailSHA256 != address || *known.BrowserSHA256 != [32]byte{1} || known.UsedAt != nil {
		t.Errorf("%+v, %v, %v", known, found, err)
	}
	if !use(link, now) || use(link, now) {
		t.Error("a link is used once")
	}

	for i, want := range []bool{true, false} {
		if used, err := store.UseChallenge(ctx, [32]byte{255, 255}, now.Add(time.Minute)); err != nil || used != want {
			t.Errorf("use %d of a challenge: %v, %v", i+1, used, err)
		}
	}

	passkey := domain.Passkey{ID: domain.NewID[domain.PasskeyID](now), Organization: domain.NewOrganizationID(now, 1)}
	for _, c := range []struct {
		count int64
		want  bool
	}{{0, true}, {0, true}, {5, true}, {5, false}, {4, false}, {0, false}, {6, true}} {
		if counted, err := store.UsePasskey(ctx, passkey, c.count, now); err != nil || counted != c.want {
			t.Errorf("counter %d: %v, %v", c.count, counted, err)
		}
	}

	if err := store.Forget(ctx, now.Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := l.Pool.Query(ctx, "SELECT count(*) FROM console_links")
	if n, err2 := pgx.CollectOneRow(left, pgx.RowTo[int]); err != nil || err2 != nil || n != 0 {
		t.Errorf("%d links are left a day later: %v, %v", n, err, err2)
	}
}
