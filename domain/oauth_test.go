package domain

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLinksAgainstNaiveModel starts, redeems and withdraws at random: a link is redeemed at most once, within ten
// minutes, and never after it was withdrawn. The events contain everything.
func TestLinksAgainstNaiveModel(t *testing.T) {
	signer := testSigner(t)
	versions := []OAuthSubject{{1}, {2}}
	type model struct {
		id        LinkID
		secret    [32]byte
		until     time.Time
		holder    *OAuthSubject
		withdrawn bool
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 1)
		var links []*model
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
				0, time.Second, 9*time.Minute + 59*time.Second, 11 * time.Minute,
			}).Draw(t, "pause"))
			if len(links) == 0 || rapid.IntRange(0, 3).Draw(t, "start") == 0 {
				c, code := NewStartLink(StartLink{Origin: w.origin, Email: "owner@example.com", Scopes: OAuthScopes()}, w.now)
				if code := w.execute(c); code != "" {
					t.Fatal(code)
				}
				id, secret, ok := ParseLinkCode(code)
				if !ok || id != c.Outcome.ID || id.Shard() != w.origin.Organization.Shard() {
					t.Fatalf("code of %s", c.Outcome.ID)
				}
				links = append(links, &model{id: id, secret: secret, until: w.now.Add(10 * time.Minute)})
				continue
			}
			m := rapid.SampledFrom(links).Draw(t, "link")
			if rapid.IntRange(0, 3).Draw(t, "withdraw") == 0 {
				c := &WithdrawConsent{Origin: w.origin, Link: m.id}
				if code := w.execute(c); code != "" || c.Replayed != m.withdrawn {
					t.Fatalf("withdraw: %q, %+v", code, c.Outcome)
				}
				m.withdrawn = true
				continue
			}
			identity := rapid.SampledFrom(versions).Draw(t, "identity")
			secret := m.secret
			want := Code("")
			switch {
			case rapid.IntRange(0, 5).Draw(t, "wrong secret") == 0:
				secret[0]++
				want = NotFound
			case m.withdrawn, m.holder != nil && *m.holder != identity, m.holder == nil && !w.now.Before(m.until):
				want = InvalidState
			}
			c := &RedeemLink{Origin: w.origin, Link: m.id, SecretSHA256: secret, Subject: identity, Scopes: []Scope{VerifyRead}}
			if code := w.execute(c); code != want {
				t.Fatalf("redeem: %q, want %q", code, want)
			}
			if want == "" {
				if c.Replayed != (m.holder != nil) {
					t.Fatalf("redeemed: %+v", c.Outcome)
				}
				m.holder = &identity
			}
		}
		replayed := w.replay()
		for _, m := range links {
			l := replayed.links[m.id]
			if l == nil || (l.WithdrawnAt != nil) != m.withdrawn || (l.Subject == nil) != (m.holder == nil) ||
				m.holder != nil && (*l.Subject != *m.holder || !slices.Equal(l.Consented, []Scope{VerifyRead})) {
				t.Fatalf("replayed %+v, want %+v", l, m)
			}
		}
	})
}

// TestStartLinkRefusals: a link has no scopes beyond the ordinary endpoint's, and another organization's member
// gets none.
func TestStartLinkRefusals(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	stranger := newWorld(t, testSigner(t), 1)
	var foreign MemberID
	for id, m := range stranger.state.members {
		foreign = id
		w.state.AddMember(*m)
	}
	for want, c := range map[Code]StartLink{
		InvalidData: {Email: "owner@example.com", Scopes: []Scope{VerifyRead, IntegrityAdmin}},
		NotFound:    {Member: foreign, Scopes: OAuthScopes()},
	} {
		c.Origin = w.origin
		start, _ := NewStartLink(c, w.now)
		if code := w.execute(start); code != want {
			t.Errorf("%+v: %q, want %q", c, code, want)
		}
	}
}

func TestOAuthIdentity(t *testing.T) {
	seen := map[OAuthSubject]bool{}
	for _, names := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc", ""}, {"a", "bd"}} {
		seen[NewOAuthSubject(LedgerSecret("one"), names[0], names[1])] = true
		seen[NewOAuthSubject(LedgerSecret("two"), names[0], names[1])] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d of 10 subjects differ", len(seen))
	}
}
