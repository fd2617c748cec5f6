package domain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestJudgeOfTheConsole: a signed-in member may do what the role allows while the member is active. The group checks
// this, whatever the session contains.
func TestJudgeOfTheConsole(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	add := &AddMember{Origin: w.origin, Email: "ana@example.com", Role: Analyst}
	w.execute(add)
	ana := add.Outcome.ID
	acts := func(change func(*Origin)) Code {
		origin := Origin{Organization: w.origin.Organization, Actor: MemberActor(ana), Console: true, Scope: IntegrityWrite}
		if change != nil {
			change(&origin)
		}
		var refused *Error
		if err := w.state.Judge(origin, 0, w.now); errors.As(err, &refused) {
			return refused.Code
		}
		return ""
	}
	for what, c := range map[string]struct {
		change func(*Origin)
		want   Code
	}{
		"a scope of the role":        {nil, ""},
		"no scope":                   {func(c *Origin) { c.Scope = "" }, ""},
		"a scope above the role":     {func(c *Origin) { c.Scope = IntegrityAdmin }, RoleRequired},
		"a key in the console":       {func(c *Origin) { c.Actor = KeyActor(w.key) }, InvalidState},
		"the operator's name":        {func(c *Origin) { c.Actor = ParseActor("usr_x") }, InvalidState},
		"another organization":       {func(c *Origin) { c.Organization[0]++ }, InvalidState},
		"a member without a session": {func(c *Origin) { c.Console = false }, MissingScope},
	} {
		if got := acts(c.change); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	disabled := MemberDisabled
	w.execute(&ChangeMember{Origin: w.origin, Member: ana, Status: &disabled})
	if got := acts(nil); got != InvalidState {
		t.Errorf("a disabled member: %q", got)
	}
}

// TestPasskeys: only the member may add or remove the member's passkeys, except that the operator may remove one.
func TestPasskeys(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	add := func(email string) Origin {
		c := &AddMember{Origin: w.origin, Email: email, Role: Viewer}
		w.execute(c)
		return Origin{Organization: w.origin.Organization, Actor: MemberActor(c.Outcome.ID), RequestID: "r", Console: true}
	}
	ana, ben := add("ana@example.com"), add("ben@example.com")
	member := func(o Origin) MemberID { return o.Actor.Member() }
	passkey := func(by Origin, of MemberID, name string, id byte) *AddPasskey {
		return &AddPasskey{
			Origin: by, Member: of, Name: name, Credential: Credential{CredentialID: []byte{id}, PublicKey: []byte{1}},
		}
	}
	first := passkey(ana, member(ana), "laptop", 0)
	for what, c := range map[string]struct {
		command Command
		want    Code
	}{
		"another's":     {passkey(ben, member(ana), "laptop", 9), InvalidState},
		"the operator":  {passkey(w.origin, member(ana), "laptop", 9), InvalidState},
		"without name":  {passkey(ana, member(ana), "", 9), InvalidData},
		"a long name":   {passkey(ana, member(ana), strings.Repeat("é", 101), 9), InvalidData},
		"spaces":        {passkey(ana, member(ana), " laptop", 9), InvalidData},
		"no credential": {&AddPasskey{Origin: ana, Member: member(ana), Name: "x"}, InvalidData},
	} {
		if got := w.execute(c.command); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if got := w.execute(first); got != "" {
		t.Fatalf("an own passkey: %q", got)
	}
	if got := w.execute(passkey(ana, member(ana), "again", 0)); got != InvalidState {
		t.Errorf("the same credential twice: %q", got)
	}
	for i := range MaxPasskeys {
		if got, want := w.execute(passkey(ana, member(ana), fmt.Sprint(i), byte(i+1))), Code(""); got != want &&
			i < MaxPasskeys-1 || i == MaxPasskeys-1 && got != InvalidState {
			t.Errorf("passkey %d: %q", i+2, got)
		}
	}
	for _, c := range []struct {
		what    string
		command *RemovePasskey
		want    Code
	}{
		{"another's passkey", &RemovePasskey{Origin: ben, Member: member(ben), Passkey: first.Outcome.ID}, NotFound},
		{"in another's name", &RemovePasskey{Origin: ben, Member: member(ana), Passkey: first.Outcome.ID}, InvalidState},
		{"an own passkey", &RemovePasskey{Origin: ana, Member: member(ana), Passkey: first.Outcome.ID}, ""},
		{"it again", &RemovePasskey{Origin: ana, Member: member(ana), Passkey: first.Outcome.ID}, NotFound},
	} {
		if got := w.execute(c.command); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	for _, p := range w.state.passkeys {
		if got := w.execute(&RemovePasskey{Origin: w.origin, Member: member(ana), Passkey: p.ID}); got != "" {
			t.Errorf("removed by the operator: %q", got)
		}
		break
	}
}
