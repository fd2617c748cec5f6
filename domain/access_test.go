package domain

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"
)

// TestJudgeOfLinks: a member may act with a token while the consent, the membership and the role permit it.
func TestJudgeOfLinks(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	var owner MemberID
	for id := range w.state.members {
		owner = id
	}
	start, _ := NewStartLink(StartLink{Origin: w.origin, Member: owner, Scopes: OAuthScopes()}, w.now)
	w.execute(start)
	link := start.Outcome.ID
	operator := w.origin
	acts := func(change func(*Origin)) Code {
		origin := Origin{Organization: operator.Organization, Actor: MemberActor(owner), Link: link, Scope: ArtifactsRead}
		if change != nil {
			change(&origin)
		}
		var refused *Error
		if err := w.state.Judge(origin, 0, w.now); errors.As(err, &refused) {
			return refused.Code
		}
		return ""
	}
	want := func(what string, got, want Code) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("a link that nobody has redeemed", acts(nil), IdentityNotLinked)
	redeem := &RedeemLink{
		Origin: Origin{Organization: operator.Organization, Actor: MemberActor(owner)}, Link: link,
		SecretSHA256: start.Outcome.SecretSHA256, Scopes: []Scope{ArtifactsRead},
	}
	want("its redemption", w.execute(redeem), "")
	want("an act", acts(nil), "")
	want("a scope that was not consented to", acts(func(c *Origin) { c.Scope = VerifyRead }), MissingScope)
	want("a member without a link", acts(func(c *Origin) { c.Link = LinkID{} }), MissingScope)
	want("another organization", acts(func(c *Origin) { c.Organization[0]++ }), IdentityNotLinked)
	want("nobody", acts(func(c *Origin) { c.Actor = Actor{} }), InvalidKey)
	w.execute(&WithdrawConsent{Origin: operator, Link: link})
	want("a consent that was withdrawn", acts(nil), IdentityNotLinked)
}

// TestWithdrawalJudgesRole: a member who is demoted while the withdrawal of another's consent is queued does not
// withdraw it.
func TestWithdrawalJudgesRole(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	add := &AddMember{Origin: w.origin, Email: "admin@example.com", Role: Admin}
	w.execute(add)
	start, _ := NewStartLink(StartLink{Origin: w.origin, Email: "owner@example.com", Scopes: OAuthScopes()}, w.now)
	w.execute(start)
	for role, want := range map[Role]Code{Viewer: NotFound, Admin: ""} {
		w.execute(&ChangeMember{Origin: w.origin, Email: "admin@example.com", Role: &role})
		if code := w.execute(&WithdrawConsent{
			Origin: w.origin, Link: start.Outcome.ID, Member: add.Outcome.ID,
		}); code != want {
			t.Errorf("%s: %q, want %q", role, code, want)
		}
	}
}

// TestErasedWithinAGroup: after an erasure, the rest of its group uses no erased text.
func TestErasedWithinAGroup(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	var key SecretKey
	create, _ := NewCreateWebhook(
		CreateWebhook{
			Origin: w.origin, URL: "https://hooks.example/token", Description: "Ana's", Types: MaskOf(WebhookTypes()),
		},
		key, w.now,
	)
	w.execute(create)
	id := create.Outcome.ID
	if code := w.execute(&EraseTexts{
		Origin: w.origin, Subject: id.String(), Texts: create.Outcome.texts(),
	}); code != "" || w.state.webhooks[id].Status != WebhookDisabled {
		t.Fatalf("%q, %+v", code, w.state.webhooks[id])
	}
	active := WebhookActive
	if code := w.execute(&UpdateWebhook{Origin: w.origin, Webhook: id, Status: &active}); code != InvalidState {
		t.Errorf("enabled without an address: %q", code)
	}
	before := len(w.events)
	if code := w.execute(&DeleteWebhook{Origin: w.origin, Webhook: id}); code != "" || len(w.events) != before+1 {
		t.Errorf("deletion: %q and %d events", code, len(w.events)-before)
	}
}

// BenchmarkDecide compares the cost of judging the actor with the cost of the decision.
func BenchmarkDecide(b *testing.B) {
	w := newWorld(b, testSigner(b), 1<<40)
	origin := Origin{Organization: w.origin.Organization, Actor: KeyActor(w.key), RequestID: "r", Scope: IntegrityWrite}
	c := must(w.registrar.Prepare(origin, w.key, KeyLimits{}, Declaration{
		VersionReference: VersionReference{"company-1", "billing", "a", 1},
		SHA256:           sha256.Sum256([]byte("x")), MimeType: "application/pdf", GeneratedAt: "2026-11-20T09:00:00Z",
	}, w.now))
	for name, run := range map[string]func(*Needs, *State, time.Time) error{
		"alone": func(n *Needs, s *State, now time.Time) error {
			c.Need(n)
			_, err := c.Decide(s, now)
			return err
		},
		"judged": func(n *Needs, s *State, now time.Time) error {
			n.Add(c)
			_, err := s.Decide(c, 0, now)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := run(&Needs{}, w.state, w.now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCommandsAboutWhatIsMissing: commands about objects that the organization lacks are refused and change nothing:
// another organization's company, a missing organization, and a key for a disabled member.
func TestCommandsAboutWhatIsMissing(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	other := newWorld(t, testSigner(t), 10)
	w.execute(&AddMember{Origin: w.origin, Email: "ana@example.com", Role: Admin})
	disabled := MemberDisabled
	w.execute(&ChangeMember{Origin: w.origin, Email: "ana@example.com", Status: &disabled})
	key, _ := NewCreateKey(
		CreateKey{Origin: w.origin, Email: "ana@example.com", Scopes: Scopes(), Lifetime: DefaultKeyLifetime}, w.now,
	)
	company := &CreateCompany{Origin: other.origin, Reference: "theirs"}
	other.execute(company)
	access := &SetAccess{Origin: w.origin, Company: company.Outcome.ID, Key: w.key, Enabled: true}
	plan := &ChangePlan{Origin: other.origin, Plan: "gratis"}
	for name, command := range map[string]Command{
		"a key of a disabled member": key, "a company of others": access, "an organization of another ledger": plan,
	} {
		if code := w.execute(command); code != NotFound {
			t.Errorf("%s: %q, want %q", name, code, NotFound)
		}
	}
}

// TestWithdrawalSaysWhen: the answer to a withdrawal contains its time, and a second withdrawal repeats it.
func TestWithdrawalSaysWhen(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	start, _ := NewStartLink(StartLink{Origin: w.origin, Email: "owner@example.com", Scopes: OAuthScopes()}, w.now)
	w.execute(start)
	at := w.now
	for _, replayed := range []bool{false, true} {
		withdraw := &WithdrawConsent{Origin: w.origin, Link: start.Outcome.ID}
		w.execute(withdraw)
		if got := withdraw.Outcome; withdraw.Replayed != replayed || got.WithdrawnAt == nil || !got.WithdrawnAt.Equal(at) {
			t.Errorf("replayed %v: %+v", replayed, got)
		}
		w.now = w.now.Add(time.Hour)
	}
}

// TestDestinationKeepsItsDescription: changing a destination without naming its description keeps the description.
func TestDestinationKeepsItsDescription(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	create, _ := NewCreateWebhook(
		CreateWebhook{
			Origin: w.origin, URL: "https://hooks.example/token", Description: "Ana's", Types: MaskOf(WebhookTypes()),
		},
		SecretKey{}, w.now,
	)
	w.execute(create)
	for _, description := range []*string{nil, new("Eva's"), nil} {
		update := &UpdateWebhook{
			Origin: w.origin, Webhook: create.Outcome.ID, URL: new("https://hooks.example/" + w.now.Format("150405")),
			Description: description,
		}
		if code := w.execute(update); code != "" {
			t.Fatal(code)
		}
		w.now = w.now.Add(time.Minute)
	}
	if kept := w.state.webhooks[create.Outcome.ID].Description; kept == nil || kept.Body != "Eva's" {
		t.Errorf("the description is %+v", kept)
	}
}

// TestMinuteIsJudgedAfterTheCredentialAndBeforeTheScope checks the order of contract section 2 for a request counted by
// its group.
func TestMinuteIsJudgedAfterTheCredentialAndBeforeTheScope(t *testing.T) {
	w := newWorld(t, testSigner(t), 10) // one request a minute
	reader, _ := NewCreateKey(
		CreateKey{Origin: w.origin, Email: "owner@example.com", Scopes: []Scope{IntegrityRead}, Lifetime: DefaultKeyLifetime},
		w.now,
	)
	w.execute(reader)
	origin := Origin{Organization: w.origin.Organization, Actor: KeyActor(reader.Outcome.ID), Minute: w.now.Unix() / 60}
	for _, c := range []struct {
		what    string
		minute  int64
		used    int
		scope   Scope
		revoked bool
		want    Code
	}{
		{"the last request of the minute", origin.Minute, 1, IntegrityRead, false, ""},
		{"one without the scope", origin.Minute, 1, IntegrityWrite, false, MissingScope},
		{"one more", origin.Minute, 2, IntegrityRead, false, RateLimited},
		{"one more without the scope", origin.Minute, 2, IntegrityWrite, false, RateLimited},
		{"one more that has waited until the next minute", origin.Minute - 1, 2, IntegrityRead, false, RateLimited},
		{"one that was counted before", 0, 0, IntegrityRead, false, ""},
		{"one more of a revoked key", origin.Minute, 2, IntegrityWrite, true, InvalidKey},
	} {
		if c.revoked {
			w.execute(&RevokeKey{Origin: w.origin, Key: reader.Outcome.ID})
		}
		by := origin
		by.Minute, by.Scope = c.minute, c.scope
		var got Code
		err := w.state.Judge(by, c.used, w.now)
		if refused, ok := errors.AsType[*Error](err); ok {
			got = refused.Code
			if got == RateLimited && (refused.RetryAfter <= 0 || refused.RetryAfter > time.Minute) {
				t.Errorf("%s: try again after %s", c.what, refused.RetryAfter)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// must returns v; the error would be a fault of the test's own key.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
