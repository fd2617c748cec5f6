package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOwners: only an owner may create, change or end an owner, and an organization keeps an active owner, whatever the
// actor.
func TestOwners(t *testing.T) {
	owner, analyst := Owner, Analyst
	disabled, ended := MemberDisabled, MemberEnded
	for name, c := range map[string]struct {
		by     Role // empty: the operator
		member string
		role   *Role
		status *MemberStatus
		want   Code
	}{
		"an owner makes an owner":              {Owner, "analyst@example.com", &owner, nil, ""},
		"an admin makes an owner":              {Admin, "analyst@example.com", &owner, nil, RoleRequired},
		"an admin demotes an owner":            {Admin, "second@example.com", &analyst, nil, RoleRequired},
		"an admin ends an owner":               {Admin, "second@example.com", nil, &ended, RoleRequired},
		"an admin disables an analyst":         {Admin, "analyst@example.com", nil, &disabled, ""},
		"an owner ends an owner":               {Owner, "second@example.com", nil, &ended, ""},
		"the operator ends an owner":           {"", "second@example.com", nil, &ended, ""},
		"the operator ends the last owner":     {"", "last", nil, &ended, InvalidState},
		"the operator disables the last owner": {"", "last", nil, &disabled, InvalidState},
		"the operator demotes the last owner":  {"", "last", &analyst, nil, InvalidState},
		"the last owner leaves":                {Owner, "last", nil, &ended, InvalidState},
	} {
		w := newWorld(t, testSigner(t), 1)
		w.execute(&AddMember{Origin: w.origin, Email: "analyst@example.com", Role: Analyst})
		origin := w.origin
		switch {
		case c.by == Owner:
			origin.Actor = KeyActor(w.key)
		case c.by != "":
			origin, _ = w.acting(c.by, time.Hour, KeyLimits{}, OrganizationAdmin)
		}
		email := c.member
		if email == "last" {
			email = "owner@example.com"
			// Owners who are not active or have not joined do not count.
			w.execute(&AddMember{Origin: w.origin, Email: "gone@example.com", Role: Owner})
			w.execute(&ChangeMember{Origin: w.origin, Email: "gone@example.com", Status: &disabled})
			invite, _ := NewInviteMember(InviteMember{Origin: w.origin, Email: "new@example.com", Role: Owner}, nil)
			w.execute(invite)
		} else {
			w.execute(&AddMember{Origin: w.origin, Email: "second@example.com", Role: Owner})
		}
		if code := w.execute(&ChangeMember{Origin: origin, Email: email, Role: c.role, Status: c.status}); code != c.want {
			t.Errorf("%s: %q, want %q", name, code, c.want)
		}
	}
	w := newWorld(t, testSigner(t), 1)
	origin, _ := w.acting(Admin, time.Hour, KeyLimits{}, OrganizationAdmin)
	invite, _ := NewInviteMember(InviteMember{Origin: origin, Email: "new@example.com", Role: Owner}, nil)
	if code := w.execute(invite); code != RoleRequired {
		t.Errorf("an admin invites an owner: %q", code)
	}
}

// TestInvitations: an invitation makes its member active once, before it expires, and only with the last secret.
func TestInvitations(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	invite := func(email string) (*InviteMember, string, Code) {
		c, code := NewInviteMember(InviteMember{Origin: w.origin, Email: email, Role: Analyst}, nil)
		return c, code, w.execute(c)
	}
	accept := func(text string) Code {
		t.Helper()
		organization, secret, ok := ParseInvitationCode(text)
		if !ok || organization != w.origin.Organization {
			t.Fatalf("%s leads to %s", text, organization)
		}
		return w.execute(&AcceptInvitation{
			Origin: Origin{Organization: organization, Actor: SystemActor, RequestID: "r"}, SecretSHA256: secret,
		})
	}
	first, former, code := invite("ana@example.com")
	if code != "" || first.Renewed {
		t.Fatalf("invited: %q", code)
	}
	if drafts, err := first.Decide(w.state, w.now); err != nil || drafts != nil {
		t.Fatalf("a second attempt of the same command: %v, %v", drafts, err)
	}
	create, _ := NewCreateKey(CreateKey{Origin: w.origin, Member: first.Outcome.ID, Scopes: []Scope{IntegrityRead}}, w.now)
	if code := w.execute(create); code != NotFound {
		t.Errorf("a key of an invited member: %q", code)
	}
	if _, _, code := invite("ANA@example.com"); code != RateLimited {
		t.Errorf("invited again at once: %q", code)
	}
	w.now = w.now.Add(InvitationPause)
	again, present, code := invite("ANA@example.com")
	if code != "" || !again.Renewed || again.Outcome.ID != first.Outcome.ID {
		t.Fatalf("invited again: %q, %+v", code, again.Outcome)
	}
	if code := accept(former); code != NotFound {
		t.Errorf("the secret before: %q", code)
	}
	active := MemberActive
	if code := w.execute(&ChangeMember{
		Origin: w.origin, Member: first.Outcome.ID, Status: &active,
	}); code != InvalidState {
		t.Errorf("active without joining: %q", code)
	}
	viewer := Viewer
	if code := w.execute(&ChangeMember{Origin: w.origin, Member: first.Outcome.ID, Role: &viewer}); code != "" {
		t.Errorf("another role of an invited member: %q", code)
	}
	w.now = again.Outcome.InvitedUntil.Add(-time.Microsecond)
	if code := accept(present); code != "" {
		t.Fatalf("accepted: %q", code)
	}
	if m := w.replay().members[first.Outcome.ID]; m.Status != MemberActive || m.Role != Viewer {
		t.Errorf("the member is %+v", m)
	}
	if code := accept(present); code != InvalidState {
		t.Errorf("accepted again: %q", code)
	}
	if _, _, code := invite("ana@example.com"); code != InvalidState {
		t.Errorf("a member is invited: %q", code)
	}

	late, text, _ := invite("late@example.com")
	w.now = *late.Outcome.InvitedUntil
	if code := accept(text); code != InvalidState {
		t.Errorf("accepted too late: %q", code)
	}
	withdrawn, text, _ := invite("withdrawn@example.com")
	ended := MemberEnded
	w.execute(&ChangeMember{Origin: w.origin, Member: withdrawn.Outcome.ID, Status: &ended})
	if code := accept(text); code != InvalidState {
		t.Errorf("accepted after it was withdrawn: %q", code)
	}
	if _, _, code := invite("Withdrawn@example.com"); code != RateLimited {
		t.Errorf("invited again at once, as it was withdrawn: %q", code)
	}
	w.now = w.now.Add(InvitationPause)
	if _, _, code := invite("withdrawn@example.com"); code != "" {
		t.Errorf("invited again, after it was withdrawn: %q", code)
	}
	for _, wrong := range []InviteMember{
		{Email: "Ana <ana@example.com>", Role: Viewer}, {Email: "new@example.com", Role: "king"},
	} {
		wrong.Origin = w.origin
		if c, _ := NewInviteMember(wrong, nil); w.execute(c) != InvalidData {
			t.Errorf("%+v was invited", wrong)
		}
	}
}

// TestInvitationsOfADay: withdrawing an invitation does not restore the day's allowance.
func TestInvitationsOfADay(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	begin, ended := w.now, MemberEnded
	for i := range DailyInvitations {
		c, _ := NewInviteMember(InviteMember{Origin: w.origin, Email: fmt.Sprintf("%d@example.com", i), Role: Viewer}, nil)
		if code := w.execute(c); code != "" {
			t.Fatalf("invitation %d: %q", i, code)
		}
		w.execute(&ChangeMember{Origin: w.origin, Member: c.Outcome.ID, Status: &ended})
		w.now = w.now.Add(time.Minute)
	}
	c, _ := NewInviteMember(InviteMember{Origin: w.origin, Email: "one-more@example.com", Role: Viewer}, nil)
	if code := w.execute(c); code != RateLimited {
		t.Errorf("one more: %q", code)
	}
	w.now = begin.Add(24 * time.Hour)
	if code := w.execute(c); code != "" {
		t.Errorf("a day later: %q", code)
	}
	for day, want := range []Code{"", RateLimited} { // an address invited again on another day counts on that day
		w.now = w.now.Add(25 * time.Hour)
		if day > 0 {
			for i := range DailyInvitations {
				more, _ := NewInviteMember(
					InviteMember{Origin: w.origin, Email: fmt.Sprintf("%d-%d@example.com", day, i), Role: Viewer}, nil,
				)
				w.execute(more)
			}
			again, _ := NewInviteMember(
				InviteMember{Origin: w.origin, Email: fmt.Sprintf("%d-0@example.com", day), Role: Viewer}, nil,
			)
			w.now = w.now.Add(InvitationPause)
			if code := w.execute(again); code != "" {
				t.Errorf("one of the day again: %q", code)
			}
		}
		again, _ := NewInviteMember(InviteMember{Origin: w.origin, Email: "one-more@example.com", Role: Viewer}, nil)
		if code := w.execute(again); code != want {
			t.Errorf("invited again on day %d: %q, want %q", day, code, want)
		}
	}
}

// TestValidEmail: texts that are not an email address, or that look like another one, are refused.
func TestValidEmail(t *testing.T) {
	for text, want := range map[string]bool{
		"ana@example.org": true, "ñ@example.org": true, "Ana <ana@example.org>": false,
		"ana@example.org\r\nBcc: bob@example.org": false,
		"a\xff@example.org":                       false, "\u202egro.elpmaxe@ana": false, "ana\u0085@example.org": false,
		"ana\u2028@example.org": false,
		"ana@[127.0.0.1]":       false, "ana@[::1]": false, strings.Repeat("a", 250) + "@b.c": true,
		strings.Repeat("a", 251) + "@b.c": false,
	} {
		if ValidEmail(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

// TestOneRuleForAddresses: the ledger and the lookup of a link identify addresses alike: two addresses that differ in
// more than the case of A to Z have separate memberships and hashes.
func TestOneRuleForAddresses(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"ana@example.com", "ANA@Example.COM", true}, {"é@example.com", "é@EXAMPLE.com", true},
		{"k@example.com", "\u212a@example.com", false}, {"é@example.com", "É@example.com", false},
		{"s@example.com", "ſ@example.com", false},
		{"i@example.com", "İ@example.com", false}, {"fi@example.com", "ﬁ@example.com", false},
		{"ss@example.com", "ß@example.com", false},
		{"ß@example.com", "ẞ@example.com", false},
	} {
		w := newWorld(t, testSigner(t), 1)
		w.execute(&AddMember{Origin: w.origin, Email: c.a, Role: Viewer})
		if found := w.state.MemberByEmail(w.origin.Organization, c.b) != nil; found != c.same ||
			SameEmail(c.a, c.b) != c.same || (EmailSHA256(c.a) == EmailSHA256(c.b)) != c.same {
			t.Errorf(
				"%q and %q: one member %v, one address %v, one hash %v; want %v", c.a, c.b, found, SameEmail(c.a, c.b),
				EmailSHA256(c.a) == EmailSHA256(c.b), c.same,
			)
		}
	}
}

// TestOrganizationWithOwner: an organization is created together with its owner, and a repeated decision creates the
// same ones.
func TestOrganizationWithOwner(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	fresh := func(name, owner string) *CreateOrganization {
		return &CreateOrganization{
			Origin: Origin{Organization: NewOrganizationID(w.now, 3), Actor: SystemActor, RequestID: "r"}, Name: name,
			Plan: FreePlan, Owner: owner,
		}
	}
	for _, wrong := range []*CreateOrganization{
		fresh("", "ana@example.com"), fresh(" x", "ana@example.com"), fresh("a\x00", "ana@example.com"),
		fresh("Bank\u202etxe.", "ana@example.com"), fresh("Example", "nobody"),
	} {
		if code := w.execute(wrong); code != InvalidData || w.state.Organization(wrong.Organization) != nil {
			t.Errorf("%q of %q: %s", wrong.Name, wrong.Owner, code)
		}
	}
	c := fresh("Example", "Ana@example.com")
	first, err := c.Decide(w.state, w.now)
	if err != nil || len(first) != 2 {
		t.Fatalf("%d events, %v", len(first), err)
	}
	if code := w.execute(c); code != "" {
		t.Fatal(code)
	}
	owner := w.state.MemberByEmail(c.Organization, "ana@example.com")
	if owner == nil || *owner != c.Outcome || owner.Role != Owner || owner.Status != MemberActive ||
		first[1].Subject != owner.ID.String() {
		t.Errorf("%+v, want %+v", owner, c.Outcome)
	}
	if o := w.state.Organization(c.Organization); o.Internal || o.Plan != FreePlan || o.Sequence != 2 {
		t.Errorf("%+v", o)
	}
	if code := w.execute(c); code != "" || w.state.Organization(c.Organization).Sequence != 2 {
		t.Errorf("decided again: %s", code)
	}
}
