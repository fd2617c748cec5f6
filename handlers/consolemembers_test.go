package handlers_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
)

const membersPage = "/en/console/members"

// added is a signed-in member whom the operator has added.
func (c *consoleService) added(email string, role domain.Role) (*guest, domain.Member) {
	c.t.Helper()
	m := must(c.service, &domain.AddMember{Origin: c.org.Operator(), Email: email, Role: role}).Outcome
	return c.signedIn(email), m
}

var invitationLink = regexp.MustCompile(`/en/console/invitation/in_[0-9A-Za-z_]+`)

// Owners and admins invite, change and end members; other roles see no members. An admin may not take the steps of an
// owner, and sees no buttons for them.
func TestMembersInTheConsole(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	manager, admin := s.added("admin@example.com", domain.Admin)
	reader, viewer := s.added("viewer@example.com", domain.Viewer)
	if page := reader.visit("/en/console").says(http.StatusOK); contains(page.body, membersPage) {
		t.Error("a viewer is led to the members")
	}
	if page := reader.visit("/en/console/history").says(
		http.StatusOK, admin.ID.String(),
	); contains(page.body, admin.Email) {
		t.Error("a viewer sees the addresses of others")
	}
	path, mine := membersPage+"/"+viewer.ID.String(), membersPage+"/"+s.org.Key.Member.String()
	reader.visit(membersPage).says(http.StatusForbidden)
	for _, page := range []string{path, path + "/disable", path + "/end"} {
		reader.visit(page).says(http.StatusForbidden)
	}
	for _, act := range []string{
		"", "/" + viewer.ID.String() + "/invite", "/" + viewer.ID.String() + "/role", "/" + viewer.ID.String() + "/enable",
		"/" + admin.ID.String() + "/disable", "/" + admin.ID.String() + "/end",
	} {
		reader.press(membersPage+act, "email", "x@example.com", "role", "owner").says(http.StatusForbidden)
	}

	shown := owner.press(
		membersPage, "email", "new@example.com", "role", "analyst",
	).says(http.StatusOK, "Invitation for", "new@example.com", "not shown again", "no address here is verified")
	owner.visit(path).says(http.StatusOK, "no address here is verified")
	link := string(invitationLink.Find(shown.body))
	if again := owner.visit(membersPage).says(
		http.StatusOK, "new@example.com", "invited", "Invitation expires",
	); invitationLink.Match(again.body) {
		t.Error("an invitation is shown twice")
	}
	s.guest().press(link).leads("/en/console")
	for name, c := range map[string]struct {
		email, role string
		status      int
		words       []string
	}{
		"no address": {
			"nobody", "viewer", 422, []string{"Enter an address such as", `value="nobody"`, `value="viewer" required checked`},
		},
		"no role": {"x@example.com", "king", 422, []string{"Choose one of the roles", `value="x@example.com"`}},
		"a member": {
			"VIEWER@example.com", "admin", 409, []string{"already belongs to a member", `value="admin" required checked`},
		},
	} {
		if a := owner.press(membersPage, "email", c.email, "role", c.role).says(c.status, c.words...); !contains(
			a.body, `aria-describedby="refused"`,
		) {
			t.Errorf("%s: the field does not say what is wrong", name)
		}
	}
	manager.press(membersPage, "email", "x@example.com", "role", "owner").says(http.StatusForbidden)

	// An admin sees no button that changes an owner or creates one.
	if page := manager.visit(membersPage).says(
		http.StatusOK, "Only an owner can make",
	); contains(page.body, `value="owner"`) {
		t.Error("an admin is offered to invite an owner")
	}
	if page := manager.visit(mine).says(
		http.StatusOK, "Only an owner can change", s.org.Email,
	); contains(page.body, "/role") || contains(page.body, "/end") {
		t.Errorf("an admin is offered to change an owner: %s", page.body)
	}
	if page := manager.visit(path).says(http.StatusOK, viewer.Email); contains(page.body, `value="owner"`) {
		t.Error("an admin is offered to make an owner")
	}
	manager.press(mine+"/role", "role", "viewer").says(http.StatusForbidden)
	manager.press(path+"/role", "role", "owner").says(http.StatusForbidden)

	manager.visit(mine + "/end").leads(mine)

	// The last owner cannot be ended, and the page says so.
	owner.visit(mine + "/end").leads(mine)
	if page := owner.visit(mine).says(http.StatusOK, "last active owner"); contains(page.body, "/role") ||
		contains(page.body, "/end") {
		t.Error("there are buttons for the last owner")
	}
	for _, act := range []string{"/role", "/disable", "/end"} {
		owner.press(mine+act, "role", "viewer").says(http.StatusConflict, "Nothing was changed", "last active owner")
	}

	// The effect of a step is shown before it is taken.
	key, _ := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Member: viewer.ID, Name: "payroll reader", Scopes: []domain.Scope{domain.IntegrityRead},
		},
		s.Now(),
	)
	must(s.service, key)
	manager.press(path+"/role", "role", "king").says(http.StatusUnprocessableEntity)
	manager.press(path+"/role", "role", "reviewer").leads(path)
	reader.visit("/en/console").leads(sessionEnded)
	s.signedIn(viewer.Email)
	manager.visit(path+"/disable").says(
		http.StatusOK, viewer.Email, "payroll reader", "Sessions that end at once: 1.", "at any time",
	)
	manager.press(path + "/disable").leads(path)
	manager.visit(path).says(http.StatusOK, "disabled", path+"/enable")
	manager.press(path + "/enable").leads(path)
	manager.visit(path+"/end").says(http.StatusOK, "payroll reader", "cannot be undone", "Sessions that end at once: 0.")
	must(s.service, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.Outcome.ID})
	manager.visit(path+"/end").says(http.StatusOK, "no working API keys")
	manager.press(path + "/end").leads(path)
	manager.visit(path).says(http.StatusOK, "ended for good")
	manager.press(path+"/enable").says(http.StatusConflict, "Nothing was changed")
	manager.visit(path + "/disable").leads(path)

	for _, id := range []string{
		s.Organization(t, s.org.ID.Shard(), domain.InternalPlan).Key.Member.String(),
		domain.NewID[domain.MemberID](s.Now()).String(), "usr_x",
	} {
		for _, page := range []string{"", "/disable", "/end"} {
			owner.visit(membersPage + "/" + id + page).says(http.StatusNotFound)
		}
		for _, act := range []string{"/invite", "/role", "/enable", "/disable", "/end"} {
			owner.press(membersPage+"/"+id+act, "role", "viewer").says(http.StatusNotFound)
		}
	}
	if got := s.Events(t, s.org.ID.Shard()); !slices.ContainsFunc(got, func(e domain.Event) bool {
		return e.Type == domain.InvitationMade && e.Actor == domain.MemberActor(s.org.Key.Member)
	}) {
		t.Error("the invitation is not the member's")
	}
	s.Audit(t)
}

// An invitation is renewed with another link, after a wait, and can be withdrawn. If the service mails invitations, no
// page shows the link.
func TestInvitingAgain(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	former := string(invitationLink.Find(
		owner.press(membersPage, "email", "new@example.com", "role", "viewer").says(http.StatusOK).body,
	))
	page := owner.visit(membersPage).says(http.StatusOK)
	path := ""
	for _, id := range regexp.MustCompile(`usr_[0-9a-z]{26}`).FindAllString(string(page.body), -1) {
		if id != s.org.Key.Member.String() {
			path = membersPage + "/" + id
		}
	}
	owner.visit(path).says(http.StatusOK, "Invite again", "Withdraw the invitation")
	owner.press(membersPage, "email", "new@example.com", "role", "viewer").says(
		http.StatusTooManyRequests, "ten minutes", `value="new@example.com"`,
	)
	owner.press(path+"/invite").says(http.StatusTooManyRequests, "less than ten minutes ago")
	owner.press(path+"/enable").says(http.StatusConflict, "Nothing was changed")
	s.skew.Add(int64(domain.InvitationPause))
	link := string(invitationLink.Find(owner.press(path+"/invite").says(http.StatusOK, "not shown again").body))
	s.guest().visit(former).says(http.StatusNotFound)
	s.guest().visit(link).says(http.StatusOK, "new@example.com")
	s.skew.Add(int64(domain.InvitationLifetime))
	owner = s.signedIn(s.org.Email)
	owner.visit(membersPage).says(http.StatusOK, "invitation expired")
	owner.visit(path+"/end").says(http.StatusOK, "Withdraw the invitation", "stops working")
	owner.press(path + "/end").leads(path)
	owner.visit(path).says(http.StatusOK, "withdrawn before it was accepted")

	// The expired invitation is not left behind; the new one and the destination are, also if they were made with a key.
	leaver, member := s.added("leaver@example.com", domain.Admin)
	leaver.press(membersPage, "email", "friend@example.com", "role", "admin").says(http.StatusOK)
	leaver.sendForm(webhooksPath, "url", "https://drop.example/hook", "types", "integrity.registered").says(http.StatusOK)
	made := leaver.sendForm("/en/console/keys/new", "name", "x", "scopes", "integrity:admin").says(http.StatusOK)
	s.send(
		http.MethodPost, hooks, string(keyText.FindSubmatch(made.body)[1]), body{"url": "https://second.example/"},
	).is(http.StatusCreated)
	owner.sendForm(webhooksPath, "url", "https://kept.example/hook", "types", "integrity.registered").says(http.StatusOK)
	left := membersPage + "/" + member.ID.String()
	for _, step := range []string{"/disable", "/end"} {
		a := owner.visit(left+step).says(
			http.StatusOK, "friend@example.com</a> (", "https://drop.example/hook", "https://second.example/", "stay valid",
		)
		if contains(a.body, "new@example.com") || contains(a.body, "kept.example") {
			t.Errorf("%s names what another member made: %s", step, a.body)
		}
	}
	if contains(owner.visit(left).body, "left behind") {
		t.Error("an active member has left something behind")
	}
	owner.press(left + "/end").leads(left)
	a := owner.visit(left).says(http.StatusOK, "left behind", "friend@example.com", "https://drop.example/hook")
	withdraw := regexp.MustCompile(`href="(/en/console/members/usr_[0-9a-z]{26}/end)"`).FindSubmatch(a.body)
	owner.visit(string(withdraw[1])).says(http.StatusOK, "Withdraw the invitation", "friend@example.com")
	withdrawn := strings.TrimSuffix(string(withdraw[1]), "/end")
	owner.press(string(withdraw[1])).leads(withdrawn)
	for path, words := range map[string]string{
		withdrawn: "<dd>invitation withdrawn</dd>", strings.TrimPrefix(withdrawn, "/en"): "<dd>invitación retirada</dd>",
		membersPage: "invitation withdrawn</td>", historyPage: "<td data-label=\"Action\">Invitation withdrawn <code", left: "<dd>ended</dd>",
	} {
		owner.visit(path).says(http.StatusOK, words)
	}
	if contains(owner.visit(withdrawn).body, "membership has ended") {
		t.Error("a withdrawn invitation reads as an ended membership")
	}
	drop := regexp.MustCompile(`/en/console/webhooks/whk_[0-9a-z]{26}`).Find(a.body)
	owner.visit(string(drop)).says(
		http.StatusOK, `<dt>Created by</dt><dd><a href="`+left+`">leaver@example.com</a>`, "https://drop.example/hook",
	)

	key, _ := domain.NewSecretKey()
	mailing := *s
	mailing.service = s.second(options{config: func(c *handlers.Config) { c.MailsInvitations, c.SecretKeys = true, domain.FixedSecretKeys(key) }})
	writer := &guest{&mailing, owner.cookies}
	if a := writer.press(
		membersPage, "email", "other@example.com", "role", "viewer",
	).says(http.StatusOK, "arrive by email"); invitationLink.Match(a.body) {
		t.Error("the link is mailed and shown")
	}
	mailing.service = s.second(options{config: func(c *handlers.Config) { c.NoInvitations = true }})
	if a := writer.visit(membersPage).says(http.StatusOK, "does not accept invitations"); contains(a.body, `id="email"`) {
		t.Error("there is a form for what cannot be accepted")
	}
	writer.press(membersPage, "email", "third@example.com", "role", "viewer").says(http.StatusMethodNotAllowed)

	s.Audit(t)
}

// Creating, changing and ending an owner need a recent proof of identity; changes of other members do not.
func TestOwnersNeedRecentProof(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	second := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "second@example.com", Role: domain.Owner},
	).Outcome
	viewer := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "viewer@example.com", Role: domain.Viewer},
	).Outcome
	s.skew.Add(int64(5*time.Minute + time.Second))
	before := s.sequence()
	proves := func(a answer) {
		t.Helper()
		if to := a.header.Get("Location"); a.status != http.StatusSeeOther ||
			!strings.HasPrefix(to, "/en/console/prove?to=") {
			t.Errorf("%d, leads to %q", a.status, to)
		}
	}
	path := membersPage + "/" + second.ID.String()
	// Fields that need the proof appear after it, so that no input is lost.
	for page, fresh := range map[string]string{
		path: path + "/role", "/en/console/security": `data-new-passkey`,
	} {
		if a := owner.visit(page).says(
			http.StatusOK, "/en/console/prove?to="+url.QueryEscape(page),
		); contains(a.body, fresh) {
			t.Errorf("%s offers what asks for a proof", page)
		}
	}
	// A role is offered at any time: the page asks for the proof after it was chosen, and keeps what was typed.
	owner.visit(membersPage).says(http.StatusOK, `value="owner"`)
	owner.press(membersPage, "email", "x@example.com", "role", "owner").says(
		http.StatusForbidden, "/en/console/prove?to="+url.QueryEscape(membersPage), `target="_blank"`, `value="x@example.com"`,
		"/en/console/prove?to="+url.QueryEscape("/en/console/prove/done"),
		`value="owner" required checked`,
	)
	proves(owner.press(path+"/role", "role", "viewer"))
	proves(owner.press(path + "/disable"))
	proves(owner.visit(path + "/end"))
	proves(owner.press(path + "/end"))
	owner.press(membersPage+"/"+viewer.ID.String()+"/role", "role", "owner").says(
		http.StatusForbidden, "/en/console/prove?to="+url.QueryEscape(membersPage+"/"+viewer.ID.String()),
		`value="owner" required checked`,
	)
	if after := s.sequence(); after != before {
		t.Errorf("%d events without a proof", after-before)
	}
	owner.press(membersPage+"/"+viewer.ID.String()+"/role", "role", "analyst").leads(
		membersPage + "/" + viewer.ID.String(),
	)
	proves(owner.visit("/en/console/prove/done"))
	owner = s.signedIn(s.org.Email)
	owner.visit("/en/console/prove/done").says(http.StatusOK, "Go back to your other tab")
	for page, fresh := range map[string]string{
		membersPage: `value="owner"`, path: path + "/role", membersPage + "/" + viewer.ID.String(): `value="owner"`,
		"/en/console/security": `data-new-passkey`,
	} {
		if a := owner.visit(page).says(http.StatusOK, fresh); contains(a.body, "/console/prove") {
			t.Errorf("%s asks for a proof that is there", page)
		}
	}
	owner.visit(path).says(http.StatusOK, `value="owner" required checked`)
	owner.press(path+"/role", "role", "admin").leads(path)
}

// If the service mails invitations, no page calls addresses unverified.
func TestMailedInvitationsVerify(t *testing.T) {
	s := openConsoleWith(t, options{config: func(c *handlers.Config) {
		c.MailsInvitations, c.SecretKeys = true, domain.FixedSecretKeys(domain.SecretKey{})
	}})
	owner := s.signedIn(s.org.Email)
	for _, path := range []string{membersPage, membersPage + "/" + s.org.Key.Member.String()} {
		if page := owner.visit(path).says(http.StatusOK); contains(page.body, "no address here is verified") {
			t.Errorf("%s calls addresses unverified", path)
		}
	}
}
