package domain

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestKeyLimitsAgainstNaiveModel registers at random with a key that has a version step: a new version is accepted
// exactly when it is at most the step above the highest one, whoever registered that, and a replay always.
func TestKeyLimitsAgainstNaiveModel(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 1000)
		step := rapid.OneOf(rapid.Int32Range(1, 5), rapid.Just(int32(MaxVersion))).Draw(t, "step")
		accepted, highest := map[int32]bool{}, int32(0)
		for range rapid.IntRange(1, 30).Draw(t, "declarations") {
			version := rapid.OneOf(rapid.Int32Range(1, 20), rapid.Just(int32(MaxVersion))).Draw(t, "version")
			limited := rapid.Bool().Draw(t, "limited")
			w.limits = KeyLimits{}
			if limited {
				w.limits.MaxVersionStep = &step
			}
			want := Code("")
			if limited && !accepted[version] && int64(version)-int64(highest) > int64(step) {
				want = InvalidData
			}
			if _, code := w.register("d", version, "x", nil); code != want {
				t.Fatalf("version %d above %d with step %d (limited %t): %q, want %q", version, highest, step, limited, code, want)
			}
			if want == "" {
				accepted[version], highest = true, max(highest, version)
			}
		}
	})
}

func TestKeySource(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 10)
		own, other := "billing", "payroll" // w declares billing
		w.limits.Source = &other
		if _, code := w.reserve("d", 1); code != InvalidData {
			t.Fatalf("a reservation of another source: %q", code)
		}
		c, code := w.register("d", 1, "x", nil)
		if code != InvalidData {
			t.Fatalf("another source: %q", code)
		}
		_, err := c.Decide(w.state, w.now)
		var refused *Error
		if !errors.As(err, &refused) || len(refused.Fields) != 1 || refused.Fields[0].Pointer != "/source" {
			t.Fatalf("another source: %+v", refused)
		}
		w.limits.Source = &own
		if _, code := w.register("d", 1, "x", nil); code != "" {
			t.Fatalf("its own source: %q", code)
		}
		w.limits.Source = &other
		if _, code := w.register("d", 1, "x", nil); code != InvalidData {
			t.Fatalf("a replay of another source: %q", code)
		}
	})
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7/24": "192.0.2.0/24", "192.0.2.7": "192.0.2.7/32", "2001:DB8::1/32": "2001:db8::/32", "::1": "::1/128", "::ffff:192.0.2.7": "192.0.2.7/32",
		"0.0.0.0/0": "0.0.0.0/0",
	} {
		if got, err := ParseNetwork(text); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "192.0.2.0/33", "192.0.2/24", "fe80::1%eth0", "fe80::1%eth0/64", "::ffff:192.0.2.0/120", " 192.0.2.1"} {
		if got, err := ParseNetwork(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

func TestKeyLimitsAreChecked(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 1)
		source, network, step := "not a reference", "192.0.2.1/24", int32(0)
		c, _ := NewCreateKey(CreateKey{
			Origin: w.origin, Email: "owner@example.com", Scopes: Scopes(), Lifetime: time.Hour, KeyLimits: KeyLimits{&source, &network, &step},
		}, w.now)
		_, err := c.Decide(w.state, w.now)
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != InvalidData || len(refused.Fields) != 3 {
			t.Fatalf("limits that cannot be enforced: %v", err)
		}
	})
}

// TestRotateKey wants the successor to be the former key in everything but id, secret, life and, unless asked for, grants;
// and the events alone to say all of it.
func TestRotateKey(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, signer, 1)
		w.grantMore(rapid.IntRange(0, 3).Draw(t, "more companies"))
		former := *w.state.keys[w.key]
		overlap := rapid.SampledFrom([]time.Duration{0, time.Hour, MaxKeyOverlap}).Draw(t, "overlap")
		if rapid.Bool().Draw(t, "ends sooner") {
			w.now = former.ExpiresAt.Add(-time.Minute)
		}
		c, text := NewRotateKey(RotateKey{
			Origin: w.origin, Key: w.key, Lifetime: 90 * 24 * time.Hour, Overlap: overlap, CopyGrants: rapid.Bool().Draw(t, "copy"),
		}, w.now)
		first, err := c.Decide(w.state, w.now)
		if err != nil {
			t.Fatal(err)
		}
		second, err := c.Decide(w.state, w.now)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("a decision that is repeated differs: %v", err)
		}
		if code := w.execute(c); code != "" {
			t.Fatal(code)
		}
		id, secret, ok := ParseAPIKey(text)
		if !ok || id == w.key || id != c.Outcome.Key.ID || c.secretSHA256 != secret {
			t.Fatalf("text of the successor: %s is %s", c.Outcome.Key.ID, id)
		}

		replayed := w.replay()
		got, gone := replayed.keys[id], replayed.keys[w.key]
		if got == nil || got.Member != former.Member || !slices.Equal(got.Scopes, former.Scopes) || got.MaxVersionStep != former.MaxVersionStep ||
			!got.ExpiresAt.Equal(w.now.Add(90*24*time.Hour)) || got.RevokedAt != nil {
			t.Fatalf("successor %+v of %+v", got, former)
		}
		switch end := w.now.Add(overlap); {
		case overlap == 0:
			if gone.RevokedAt == nil {
				t.Fatal("without an overlap the former key goes on")
			}
		case end.Before(former.ExpiresAt):
			if !gone.ExpiresAt.Equal(end) {
				t.Fatalf("the former key ends at %s, want %s", gone.ExpiresAt, end)
			}
		case !gone.ExpiresAt.Equal(former.ExpiresAt):
			t.Fatal("a rotation has lengthened the life of a key")
		}
		want := []CompanyID(nil)
		if c.CopyGrants {
			want = replayed.grantedTo(w.key)
		}
		if !slices.Equal(replayed.grantedTo(id), want) || !slices.Equal(c.Outcome.Granted, want) {
			t.Fatalf("grants %v, outcome %v, want %v", replayed.grantedTo(id), c.Outcome.Granted, want)
		}
		// Again, as after a commit whose outcome was unknown.
		if again, err := c.Decide(w.state, w.now); err != nil || again != nil || c.Outcome.Key.ID != id {
			t.Fatalf("a second attempt: %v, %v", again, err)
		}
	})
}

func TestRotateKeyRefusals(t *testing.T) {
	signer := testSigner(t)
	disabled, viewer := MemberDisabled, Viewer
	rapid.Check(t, func(t *rapid.T) {
		for name, c := range map[string]struct {
			prepare func(*world)
			change  func(*RotateKey)
			want    Code
		}{
			"unknown":    {change: func(r *RotateKey) { r.Key = KeyID{1} }, want: NotFound},
			"foreign":    {change: func(r *RotateKey) { r.Organization = OrganizationID{1} }, want: NotFound},
			"expired":    {prepare: func(w *world) { w.now = w.state.keys[w.key].ExpiresAt }, want: InvalidState},
			"revoked":    {prepare: func(w *world) { r := &RevokeKey{Origin: w.origin, Key: w.key}; w.execute(r) }, want: InvalidState},
			"disabled":   {prepare: func(w *world) { w.changeMember(nil, &disabled) }, want: InvalidState},
			"lower role": {prepare: func(w *world) { w.changeMember(&viewer, nil) }, want: RoleRequired},
			"too long":   {change: func(r *RotateKey) { r.Lifetime = MaxKeyLifetime + 1 }, want: InvalidData},
			"overlap":    {change: func(r *RotateKey) { r.Overlap = MaxKeyOverlap + 1 }, want: InvalidData},
			"negative":   {change: func(r *RotateKey) { r.Overlap = -1 }, want: InvalidData},
		} {
			w := newWorld(t, signer, 1)
			if c.prepare != nil {
				c.prepare(w)
			}
			rotate := RotateKey{Origin: w.origin, Key: w.key, Lifetime: time.Hour, Overlap: time.Hour}
			if c.change != nil {
				c.change(&rotate)
			}
			command, _ := NewRotateKey(rotate, w.now)
			if code := w.execute(command); code != c.want {
				t.Errorf("%s: %q, want %q", name, code, c.want)
			}
		}
	})
}

func (w *world) changeMember(role *Role, status *MemberStatus) {
	w.execute(&ChangeMember{Origin: w.origin, Email: "owner@example.com", Role: role, Status: status})
}

// grantMore adds companies, granted to the key and every second one taken back.
func (w *world) grantMore(n int) {
	for i := range n {
		company := &CreateCompany{Origin: w.origin, Reference: "more-" + string(rune('a'+i))}
		w.execute(company)
		for _, enabled := range []bool{true, i%2 == 0} {
			w.execute(&SetAccess{Origin: w.origin, Company: company.Outcome.ID, Key: w.key, Enabled: enabled})
		}
	}
}

// replay makes a state of the stored events alone.
func (w *world) replay() *State {
	s := NewState(Plans{})
	for i := range w.events {
		e := w.events[i]
		body, err := DecodeBody(e.Type, e.V, bytes.Clone(e.Data))
		if err != nil {
			w.t.Fatal(err)
		}
		e.Body, e.Texts = body, nil
		if err := s.Apply(&e); err != nil {
			w.t.Fatal(err)
		}
	}
	return s
}

// FuzzParseNetwork: what is read has one spelling, which reads back as itself and holds the address that was written.
func FuzzParseNetwork(f *testing.F) {
	for _, seed := range []string{"192.0.2.7/24", "2001:db8::1", "::ffff:192.0.2.7", "::ffff:192.0.2.0/120", "fe80::1%eth0", "0.0.0.0/0", "1.2.3.4/033"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		canonical, err := ParseNetwork(text)
		if err != nil {
			return
		}
		if again, err := ParseNetwork(canonical); err != nil || again != canonical {
			t.Errorf("%q is %q, which is %q, %v", text, canonical, again, err)
		}
		address, _, _ := strings.Cut(text, "/")
		if a, err := netip.ParseAddr(address); err != nil || !netip.MustParsePrefix(canonical).Contains(a.Unmap()) {
			t.Errorf("%q is %q, which does not hold it: %v", text, canonical, err)
		}
	})
}
