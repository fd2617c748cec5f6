package domain

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestKeyLimitsAgainstNaiveModel registers at random with a key that has a version step: a new version is accepted
// exactly if it is at most the step above the highest one, whichever key registered that. A replay is always accepted.
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
		"192.0.2.7/24": "192.0.2.0/24", "192.0.2.7": "192.0.2.7/32", "2001:DB8::1/32": "2001:db8::/32", "::1": "::1/128",
		"::ffff:192.0.2.7": "192.0.2.7/32",
		"0.0.0.0/0":        "0.0.0.0/0",
	} {
		if got, err := ParseNetwork(text); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "x", "192.0.2.0/33", "192.0.2/24", "fe80::1%eth0", "fe80::1%eth0/64", "::ffff:192.0.2.0/120", " 192.0.2.1",
	} {
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
			Origin: w.origin, Email: "owner@example.com", Scopes: Scopes(), Lifetime: time.Hour,
			KeyLimits: KeyLimits{Source: &source, Network: &network, MaxVersionStep: &step},
		}, w.now)
		_, err := c.Decide(w.state, w.now)
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != InvalidData || len(refused.Fields) != 3 {
			t.Fatalf("limits that cannot be enforced: %v", err)
		}
	})
}

// TestRotateKey: the successor equals the former key except in id, secret, lifetime and, unless requested, grants, and
// the events contain everything.
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
			Origin: w.origin, Key: w.key, Lifetime: 90 * 24 * time.Hour, Overlap: overlap,
			CopyGrants: rapid.Bool().Draw(t, "copy"),
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
		if got == nil || got.Member != former.Member || !slices.Equal(got.Scopes, former.Scopes) ||
			got.MaxVersionStep != former.MaxVersionStep ||
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
		// Once more, as after a commit with unknown outcome.
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
			"unknown": {change: func(r *RotateKey) { r.Key = KeyID{1} }, want: NotFound},
			"foreign": {change: func(r *RotateKey) { r.Organization = OrganizationID{1} }, want: NotFound},
			"expired": {prepare: func(w *world) { w.now = w.state.keys[w.key].ExpiresAt }, want: InvalidState},
			"revoked": {prepare: func(w *world) {
				r := &RevokeKey{Origin: w.origin, Key: w.key}
				w.execute(r)
			}, want: InvalidState},
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

// TestNobodyActsAsAnother: only the person or the operator may create a key with which the person reviews, approves or
// certifies.
func TestNobodyActsAsAnother(t *testing.T) {
	for _, scope := range Scopes() {
		w := newWorld(t, testSigner(t), 1)
		colleague := &AddMember{Origin: w.origin, Email: "colleague@example.com", Role: Admin}
		w.execute(colleague)
		of, _ := NewCreateKey(
			CreateKey{Origin: w.origin, Member: colleague.Outcome.ID, Scopes: []Scope{scope}, Lifetime: time.Hour}, w.now,
		)
		if code := w.execute(of); code != "" {
			t.Fatal(code)
		}
		byKey, acting := w.acting(Admin, MaxKeyLifetime, KeyLimits{}, Scopes()...)
		want := Code("")
		if slices.Contains([]Scope{ReviewsWrite, ApprovalsWrite, CertificatesWrite}, scope) {
			want = RoleRequired
		}
		member := Origin{
			Organization: w.origin.Organization, Actor: MemberActor(acting.Member), RequestID: "r", Console: true,
		}
		self := Origin{
			Organization: w.origin.Organization, Actor: MemberActor(of.Outcome.Member), RequestID: "r", Console: true,
		}
		for by, origin := range map[string]Origin{"a key": byKey, "a member": member, "itself": self} {
			want := want
			if by == "itself" {
				want = ""
			}
			create, _ := NewCreateKey(
				CreateKey{Origin: origin, Member: colleague.Outcome.ID, Scopes: []Scope{scope}, Lifetime: time.Hour}, w.now,
			)
			if code := w.execute(create); code != want {
				t.Errorf("%s makes a key with %s: %q, want %q", by, scope, code, want)
			}
			rotate, _ := NewRotateKey(
				RotateKey{Origin: origin, Key: of.Outcome.ID, Lifetime: time.Hour, Overlap: time.Hour}, w.now,
			)
			if code := w.execute(rotate); code != want {
				t.Errorf("%s rotates a key with %s: %q, want %q", by, scope, code, want)
			}
		}
	}
}

// TestGrantsThatARotationCopies: no tenant request creates thousands of events.
func TestGrantsThatARotationCopies(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	w.grantMore(2*MaxCopiedGrants + 1)
	origin := Origin{
		Organization: w.origin.Organization, Actor: MemberActor(w.state.keys[w.key].Member), RequestID: "r", Console: true,
	}
	for _, c := range []struct {
		origin Origin
		copy   bool
		want   Code
	}{{origin, true, InvalidState}, {origin, false, ""}, {w.origin, true, ""}} {
		rotate, _ := NewRotateKey(
			RotateKey{Origin: c.origin, Key: w.key, Lifetime: time.Hour, Overlap: time.Hour, CopyGrants: c.copy}, w.now,
		)
		if code := w.execute(rotate); code != c.want {
			t.Errorf("%s copies %t: %q, want %q", c.origin.Actor, c.copy, code, c.want)
		}
	}
}

// changeMember changes the first owner, next to a second one.
func (w *world) changeMember(role *Role, status *MemberStatus) {
	w.execute(&AddMember{Origin: w.origin, Email: "other@example.com", Role: Owner})
	w.execute(&ChangeMember{Origin: w.origin, Email: "owner@example.com", Role: role, Status: status})
}

// acting creates a key with limits and uses it from then on.
func (w *world) acting(role Role, lifetime time.Duration, limits KeyLimits, scopes ...Scope) (Origin, *APIKey) {
	member := &AddMember{Origin: w.origin, Email: string(role) + "-acting@example.com", Role: role}
	w.execute(member)
	c, _ := NewCreateKey(
		CreateKey{Origin: w.origin, Member: member.Outcome.ID, Scopes: scopes, Lifetime: lifetime, KeyLimits: limits}, w.now,
	)
	if code := w.execute(c); code != "" {
		w.t.Fatal(code)
	}
	return Origin{
		Organization: w.origin.Organization, Actor: KeyActor(c.Outcome.ID), RequestID: "r", Scope: OrganizationAdmin,
	}, &c.Outcome
}

// TestKeysGiveWhatTheyHave creates and rotates keys with a limited key: no key may do more than its creator, and limits
// left open are copied from the creator.
func TestKeysGiveWhatTheyHave(t *testing.T) {
	signer := testSigner(t)
	source, step := "billing", int32(5)
	narrow := KeyLimits{Source: &source, MaxVersionStep: &step}.from([]string{"192.0.2.0/24", "2001:db8::/32"})
	for name, c := range map[string]struct {
		change func(*CreateKey, time.Time)
		want   Code
		field  string
	}{
		"nothing but a scope": {change: func(*CreateKey, time.Time) {}},
		"narrower": {change: func(k *CreateKey, now time.Time) {
			k.KeyLimits = KeyLimits{Source: &source, MaxVersionStep: new(int32(1))}.from([]string{"192.0.2.128/25"})
			k.ExpiresAt = now.Add(time.Hour)
		}},
		"a scope that it lacks": {func(k *CreateKey, _ time.Time) {
			k.Scopes = []Scope{IntegrityRevoke}
		}, MissingScope, ""},
		"a longer lifetime": {
			func(k *CreateKey, _ time.Time) { k.Lifetime = 25 * time.Hour }, InvalidData, "/expiresAt",
		},
		"a later end": {func(k *CreateKey, now time.Time) {
			k.ExpiresAt = now.Add(24*time.Hour + time.Second)
		}, InvalidData, "/expiresAt"},
		"another source": {func(k *CreateKey, _ time.Time) { k.Source = new("payroll") }, InvalidData, "/source"},
		"a larger step": {
			func(k *CreateKey, _ time.Time) { k.MaxVersionStep = new(int32(6)) }, InvalidData, "/maxVersionStep",
		},
		"a wider network": {func(k *CreateKey, _ time.Time) {
			k.Networks = []string{"2001:db8:1::/48", "192.0.0.0/16"}
		}, InvalidData, "/networks/1"},
		"companies without admin": {func(k *CreateKey, _ time.Time) {
			k.Companies = []string{"company-1"}
		}, MissingScope, ""},
	} {
		w := newWorld(t, signer, 1)
		origin, by := w.acting(Admin, 24*time.Hour, narrow, OrganizationAdmin, IntegrityRead)
		create := CreateKey{Origin: origin, Member: by.Member, Scopes: []Scope{IntegrityRead}}
		c.change(&create, w.now)
		command, _ := NewCreateKey(create, w.now)
		_, err := w.state.Decide(command, 0, w.now)
		if c.want != "" {
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != c.want || c.field != "" && (len(refused.Fields) != 1 ||
				refused.Fields[0].Pointer != c.field) {
				t.Errorf("%s: %v, want %s of %s", name, err, c.want, c.field)
			}
			continue
		}
		if code := w.execute(command); code != "" {
			t.Fatalf("%s: %s %v", name, code, err)
		}
		made := w.replay().keys[command.Outcome.ID]
		if made.ExpiresAt.After(by.ExpiresAt) || *made.Source != source || *made.MaxVersionStep > step ||
			made.Network == nil || made.CreatedBy != origin.Actor ||
			name == "nothing but a scope" && !slices.Equal(made.AllNetworks(), narrow.Networks) {
			t.Errorf("%s: the key is %+v, made by %+v", name, made, by)
		}
	}
	w := newWorld(t, signer, 1)
	origin, by := w.acting(Admin, 24*time.Hour, KeyLimits{}, OrganizationAdmin, IntegrityRead)
	_, other := w.acting(Analyst, DefaultKeyLifetime, KeyLimits{}, IntegrityRead)
	_, wide := w.acting(Analyst, DefaultKeyLifetime, KeyLimits{}, IntegrityWrite)
	for _, c := range []struct {
		name string
		key  KeyID
		c    RotateKey
		want Code
	}{
		{"a key of an owner", w.key, RotateKey{}, RoleRequired},
		{"a scope that it lacks", wide.ID, RotateKey{}, MissingScope},
		{"a later end", other.ID, RotateKey{Lifetime: 25 * time.Hour}, InvalidData},
		{"grants without admin", other.ID, RotateKey{CopyGrants: true}, MissingScope},
		{"as long as it lives", other.ID, RotateKey{}, ""},
		{"itself", by.ID, RotateKey{Overlap: time.Hour}, ""},
	} {
		c.c.Origin, c.c.Key = origin, c.key
		command, _ := NewRotateKey(c.c, w.now)
		if code := w.execute(command); code != c.want || code == "" && !command.Outcome.Key.ExpiresAt.Equal(by.ExpiresAt) {
			t.Errorf("rotates %s: %q until %s, want %q", c.name, code, command.Outcome.Key.ExpiresAt, c.want)
		}
	}
}

// TestCreateKeyGrants grants companies in the command that creates a key: all of them are granted, or the key is not
// created.
func TestCreateKeyGrants(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	origin := Origin{Organization: w.origin.Organization, Actor: KeyActor(w.key), RequestID: "r"}
	second := &CreateCompany{Origin: w.origin, Reference: "company-2"}
	w.execute(second)
	create := CreateKey{
		Origin: origin, Email: "owner@example.com", Name: "Büro", Scopes: []Scope{IntegrityRead},
		Companies: []string{"company-1", "missing", "company-2"},
	}
	command, _ := NewCreateKey(create, w.now)
	_, err := w.state.Decide(command, 0, w.now)
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Fields) != 1 || refused.Fields[0].Pointer != "/companies/1" ||
		!strings.Contains(refused.Fields[0].Message, `"missing"`) {
		t.Fatalf("an unknown company: %+v", refused)
	}
	create.Companies = []string{"company-1", "company-2"}
	command, _ = NewCreateKey(create, w.now)
	if code := w.execute(command); code != "" {
		t.Fatal(code)
	}
	if granted := w.replay().grantedTo(command.Outcome.ID); len(granted) != 2 ||
		!slices.Contains(granted, second.Outcome.ID) {
		t.Fatalf("granted: %v", granted)
	}
	if name := w.state.keyNames[command.Outcome.ID]; name.Body != "Büro" {
		t.Fatalf("name %+v", name)
	}
	rotate, _ := NewRotateKey(RotateKey{Origin: origin, Key: command.Outcome.ID, CopyGrants: true}, w.now)
	before := len(w.events)
	if code := w.execute(rotate); code != "" || len(w.replay().grantedTo(rotate.Outcome.Key.ID)) != 2 {
		t.Fatalf("the successor: %q", code)
	}
	former := w.state.keyNames[command.Outcome.ID]
	if body, ok := w.events[before].Body.(*KeyCreatedBody); !ok || body.Name == nil || *body.Name != former.Ref() {
		t.Fatalf("the successor's event is %+v", w.events[before].Body)
	}
	for _, name := range []string{strings.Repeat("é", MaxKeyName+1), "a\nb", "\xff"} {
		create.Name = name
		if command, _ := NewCreateKey(create, w.now); w.execute(command) != InvalidData {
			t.Errorf("the name %q was taken", name)
		}
	}
}

// TestChangeKey renames a key and shortens its lifetime, but cannot extend it.
func TestChangeKey(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	end := w.state.keys[w.key].ExpiresAt
	at := func(d time.Duration) *time.Time { return new(w.now.Add(d)) }
	for _, c := range []struct {
		name string
		c    ChangeKey
		want Code
		end  time.Time
	}{
		{"a name", ChangeKey{Name: new("accounting")}, "", end},
		{"no name", ChangeKey{Name: new("")}, InvalidData, end},
		{"a later end", ChangeKey{ExpiresAt: new(end.Add(time.Second))}, InvalidData, end},
		{"an end that is over", ChangeKey{ExpiresAt: at(0)}, InvalidData, end},
		{"both", ChangeKey{Name: new("x"), ExpiresAt: at(time.Hour)}, "", *at(time.Hour)},
		{"the same end", ChangeKey{ExpiresAt: at(time.Hour)}, "", *at(time.Hour)},
		{"a later end than the new one", ChangeKey{ExpiresAt: at(2 * time.Hour)}, InvalidData, *at(time.Hour)},
		{"a key of nobody", ChangeKey{Key: KeyID{1}, Name: new("x")}, NotFound, *at(time.Hour)},
	} {
		c.c.Origin = w.origin
		if c.c.Key.IsZero() {
			c.c.Key = w.key
		}
		if code := w.execute(&c.c); code != c.want || !w.replay().keys[w.key].ExpiresAt.Equal(c.end) {
			t.Errorf("%s: %q, the key ends at %s, want %q at %s", c.name, code, w.state.keys[w.key].ExpiresAt, c.want, c.end)
		}
	}
	if name := w.state.keyNames[w.key]; name.Body != "x" {
		t.Errorf("the name is %q", name.Body)
	}
	w.now = w.now.Add(time.Hour)
	if code := w.execute(&ChangeKey{Origin: w.origin, Key: w.key, ExpiresAt: at(time.Minute)}); code != InvalidState {
		t.Errorf("a key that has ended: %q", code)
	}
}

// grantMore adds companies, grants them to the key, and revokes every second grant.
func (w *world) grantMore(n int) {
	for i := range n {
		company := &CreateCompany{Origin: w.origin, Reference: fmt.Sprintf("more-%d", i)}
		w.execute(company)
		for _, enabled := range []bool{true, i%2 == 0} {
			w.execute(&SetAccess{Origin: w.origin, Company: company.Outcome.ID, Key: w.key, Enabled: enabled})
		}
	}
}

// replay returns a state replayed from the stored events.
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

// FuzzParseNetwork: a parsed network has one spelling, which parses to itself and contains the original address.
func FuzzParseNetwork(f *testing.F) {
	for _, seed := range []string{
		"192.0.2.7/24", "2001:db8::1", "::ffff:192.0.2.7", "::ffff:192.0.2.0/120", "fe80::1%eth0", "0.0.0.0/0",
		"1.2.3.4/033",
	} {
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

// TestMaxActiveKeys: an organization may have 1000 active keys. A rotation that keeps the former key active needs room,
// any other does not.
func TestMaxActiveKeys(t *testing.T) {
	w := newWorld(t, testSigner(t), 1) // has one key
	create := func() Code {
		c, _ := NewCreateKey(
			CreateKey{
				Origin: w.origin, Email: "owner@example.com", Scopes: []Scope{IntegrityRead}, Lifetime: DefaultKeyLifetime,
			},
			w.now,
		)
		return w.execute(c)
	}
	rotate := func(overlap time.Duration) Code {
		c, _ := NewRotateKey(RotateKey{Origin: w.origin, Key: w.key, Lifetime: DefaultKeyLifetime, Overlap: overlap}, w.now)
		code := w.execute(c)
		if code == "" {
			w.key = c.Outcome.Key.ID
		}
		return code
	}
	for i := range 999 {
		if code := create(); code != "" {
			t.Fatalf("key %d: %s", i+2, code)
		}
	}
	if code := create(); code != InvalidState {
		t.Errorf("one more: %q", code)
	}
	if with, without := rotate(time.Hour), rotate(0); with != InvalidState || without != "" {
		t.Errorf("rotated with an overlap %q, without %q", with, without)
	}
	w.execute(&RevokeKey{Origin: w.origin, Key: w.key})
	if first, second := create(), create(); first != "" || second != InvalidState {
		t.Errorf("after one was revoked: %q, then %q", first, second)
	}
}
