package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/projections/session"
)

// openToAll is a service with sign-up. Requests from its machine may claim any client address.
func openToAll(t *testing.T) *consoleService {
	t.Helper()
	return openConsoleWith(t, options{config: func(c *handlers.Config) {
		c.SignUp, c.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
}

const addressName = "__Host-integrity-address"

// asks types an address into the page for signing up.
func (p *guest) asks(address string) *guest {
	p.t.Helper()
	p.press("/en/console/sign-up", "email", address).leads("/en/console/sign-up/sent")
	return p
}

// count counts rows of a table as the owner of the database.
func (s *service) count(what string, arguments ...any) (n int) {
	s.t.Helper()
	check(s.t, s.Pool.QueryRow(context.Background(), "SELECT count(*) FROM "+what, arguments...).Scan(&n))
	return n
}

// A person who reads the mail of an address creates an organization with it, once, in the browser that asked, and owns
// it.
func TestSignUp(t *testing.T) {
	s := openToAll(t)
	const address = "Ana.New@example.com"
	p := s.guest()
	p.visit("/en/console/sign-in").says(http.StatusOK, `href="/en/console/sign-up"`)
	p.visit("/en/console/sign-up").says(http.StatusOK, `id="sign-up"`, `name="email"`)
	for _, wrong := range []string{"", "nobody", "Ana <ana@example.com>"} {
		p.press("/en/console/sign-up", "email", wrong).says(http.StatusUnprocessableEntity, "Enter an address")
	}
	p.do(
		http.MethodPost, "/en/console/sign-up", url.Values{"email": {address}}, "Sec-Fetch-Site", "cross-site",
	).says(http.StatusForbidden)

	// The answer is the same for every address. The page for signing in mails nothing to an unknown address.
	p.press("/en/console/sign-in", "email", address).leads("/en/console/sign-in/sent")
	known, unknown := s.guest().press("/en/console/sign-up", "email", s.org.Email), s.guest().press(
		"/en/console/sign-up", "email", "nobody@example.com",
	)
	for _, header := range []http.Header{known.header, unknown.header} {
		for _, own := range []string{"Date", "X-Request-Id", "Set-Cookie", "Ratelimit"} {
			header.Del(own)
		}
	}
	equal(
		t, "the answers to a known and an unknown address", []any{known.status, known.header, string(known.body)},
		[]any{unknown.status, unknown.header, string(unknown.body)},
	)
	if m := s.mail(); m.To != s.org.Email || m.SignIn.Newcomer {
		t.Errorf("mailed to a member: %+v", m)
	}
	if m := s.mail(); m.To != "nobody@example.com" || !m.SignIn.Newcomer {
		t.Errorf("mailed to a newcomer: %+v", m)
	}

	p.asks(address)
	p.visit("/en/console/sign-up/sent").says(http.StatusOK, "A link will arrive")
	link, organizations := s.mailed(), s.count("organization_state")
	s.guest().visit(link).says(http.StatusOK, "Press the button")
	s.guest().press(link, "name", "Stolen").says(http.StatusForbidden, "another browser")
	p.visit(link).says(http.StatusOK, `id="organization"`, `name="name"`, address, "gratis", "1000", "3000")
	p.press(link).says(http.StatusOK, `id="organization"`)
	for _, wrong := range []string{"", "  ", "a\nb", strings.Repeat("x", 201)} {
		p.press(link, "name", wrong).says(http.StatusUnprocessableEntity, "Enter 1 to 200 characters", `aria-invalid="true"`)
	}
	p.press(link, "name", "\xff").says(http.StatusUnprocessableEntity) // as in every form
	p.do(http.MethodPost, link, url.Values{"name": {"Forged"}}, "Sec-Fetch-Site", "cross-site").says(http.StatusForbidden)
	if n := s.count("organization_state"); n != organizations {
		t.Fatalf("%d organizations were made before anybody has pressed the button", n-organizations)
	}
	if n := s.count("texts WHERE body ILIKE '%example.com' AND body <> $1", s.org.Email); n != 0 {
		t.Errorf("%d addresses of strangers are stored", n)
	}
	again := &guest{
		s,
		map[string]string{
			"__Host-integrity-browser": p.cookies["__Host-integrity-browser"], addressName: p.cookies[addressName],
		},
	}
	p.press(link, "name", " Ana & Sons ").leads("/en/console")
	if p.cookies[addressName] != "" {
		t.Error("the browser keeps the address")
	}
	p.visit("/en/console").says(http.StatusOK, "Ana &amp; Sons", address, "owner", "First steps", "Create a key")
	p.visit("/en/console/history").says(http.StatusOK, "organization.created", "member.added")
	p.visit("/en/console/sign-up").leads("/en/console")
	again.press(link, "name", "Twice").says(http.StatusNotFound, "cannot be used")
	if n := s.count("organization_state WHERE plan = 'gratis' AND NOT internal"); n != 1 ||
		s.count("organization_state") != organizations+1 {
		t.Errorf("%d organizations on the free plan", n)
	}

	// From now on the address signs in like any other, and its owner cannot create a second organization.
	p = s.guest().asks(address)
	p.press(s.mailed(), "name", "Second").leads("/en/console")
	if s.count("organization_state") != organizations+1 {
		t.Error("the owner of an organization has made another")
	}
	if log := s.log.String(); strings.Contains(log, address) || strings.Contains(log, "is_") {
		t.Error("an address or a link stands in the log")
	}
	s.Audit(t)
}

// If the browser no longer has the address, it must be typed again: the link is only for this address.
func TestSignUpWithoutCookie(t *testing.T) {
	s := openToAll(t)
	p := s.guest().asks("ana.new@example.com")
	link := s.mailed()
	for name, kept := range map[string]string{"gone": "", "another's": "bm9ib2R5QGV4YW1wbGUuY29t", "broken": "%"} {
		if p.cookies[addressName] = kept; kept == "" {
			delete(p.cookies, addressName)
		}
		if page := p.visit(link); !contains(page.body, `id="email"`) {
			t.Errorf("%s: no address is asked for: %s", name, page.body)
		}
		p.press(link, "name", "Example").says(http.StatusUnprocessableEntity, "Enter the address that the link was sent to")
		p.press(link, "name", "Example", "email", "nobody@example.com").says(
			http.StatusUnprocessableEntity, "Enter the address that the link was sent to",
		)
	}
	p.press(link, "name", "Example", "email", "Ana.New@example.com").leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Ana.New@example.com")
}

// A member who owns no organization may create one. Asking to sign in still signs in as before.
func TestMemberSignsUp(t *testing.T) {
	s := openToAll(t)
	member := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Viewer},
	).Outcome
	s.signedIn(member.Email).press("/en/console/sign-out")
	p := s.guest().asks(member.Email)
	link := s.mailed()
	p.press(link).says(http.StatusOK, s.org.ID.String(), `id="organization"`, "or create another")
	p.press(link, "organization", s.org.ID.String()).leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "viewer")

	p = s.guest().asks(member.Email)
	link = s.mailed()
	p.press(link, "name", "Ana's own").leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Ana&#39;s own", "owner")

	// A disabled member counts as a stranger.
	disabled := domain.MemberDisabled
	gone := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ben@example.com", Role: domain.Admin},
	).Outcome
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: gone.ID, Status: &disabled})
	p = s.guest().asks(gone.Email)
	if page := p.press(s.mailed()); contains(page.body, s.org.ID.String()) || !contains(page.body, `id="organization"`) {
		t.Errorf("a disabled member is offered: %s", page.body)
	}
	s.Audit(t)
}

// Sign-up needs the operator's setting and mail.
func TestSignUpIsClosed(t *testing.T) {
	s := openToAll(t)
	p := s.guest().asks("ana.new@example.com")
	link := s.mailed()
	closed := s.second(options{config: func(c *handlers.Config) { c.LinkMailer = s.mailer(t, c) }})
	at := &guest{&consoleService{service: closed, mails: s.mails}, p.cookies}
	at.visit("/en/console/sign-up").says(http.StatusNotFound)
	at.press("/en/console/sign-up", "email", "ben@example.com").says(http.StatusNotFound)
	at.press(link, "name", "Example").says(http.StatusNotFound, "cannot be used")
	if page := at.visit("/en/console/sign-in"); contains(page.body, "sign-up") {
		t.Errorf("the closed door is shown: %s", page.body)
	}
	if mute := s.second(options{
		config: func(c *handlers.Config) { c.SignUp = true },
	}); mute.visit("/en/console/sign-up", "", "").status != http.StatusNotFound {
		t.Error("without mail the door is open")
	}
}

// asksFrom asks to sign up from a client address.
func (c *consoleService) asksFrom(client, address string) (*guest, answer) {
	p := c.guest()
	return p, p.do(http.MethodPost, "/en/console/sign-up", url.Values{"email": {address}}, "X-Forwarded-For", client)
}

// The mails to an address and the organizations of a network are limited, and no limit reveals which addresses exist.
func TestSignUpLimits(t *testing.T) {
	s := openToAll(t)
	s.hold()

	// An address gets five links an hour.
	for range session.LinksPerHour {
		s.asksFrom("192.0.2.2", "often@example.com")
		s.mailed()
	}
	_, a := s.asksFrom("192.0.2.2", "often@example.com")
	a.leads("/en/console/sign-up/sent")
	s.guest().visit("/en/console/sign-up/sent").says(http.StatusOK, "sent five links within an hour, none will arrive")

	// A client address creates five organizations a day, and the sixth link remains valid.
	for i := range 6 {
		p, _ := s.asksFrom("192.0.2.3", fmt.Sprintf("owner-%d@example.com", i))
		link := s.mailed()
		found := func(client string) answer {
			return p.do(http.MethodPost, link, url.Values{"name": {"Example"}}, "X-Forwarded-For", client)
		}
		switch a := found("192.0.2.3"); {
		case i < 5:
			a.leads("/en/console")
		default:
			a.says(http.StatusTooManyRequests)
			found("192.0.2.4").leads("/en/console")
		}
	}
	s.Audit(t)
}

// A network may ask for twenty sign-up links in an hour, from any client addresses and for any mail addresses. A few
// more are mailed later, and all others are refused.
func TestSignUpOfANetwork(t *testing.T) {
	s := openToAll(t)
	s.hold()
	const mostNow, mostLater = 20, 5
	for i := range mostNow {
		client := fmt.Sprintf("192.0.2.%d", i)
		if i%2 > 0 {
			_, a := s.asksFrom(client, fmt.Sprintf("new-%d@example.com", i))
			a.leads("/en/console/sign-up/sent")
			s.mailed()
			continue
		}
		_, a := s.asksFrom(client, s.org.Email)
		a.leads("/en/console/sign-up/sent")
		if i/2 < session.LinksPerHour {
			s.mailed()
		}
	}
	for i := range mostLater {
		p, a := s.asksFrom(fmt.Sprintf("192.0.2.%d", 100+i), fmt.Sprintf("later-%d@example.com", i))
		a.leads("/en/console/sign-up/later")
		p.visit("/en/console/sign-up/later").says(http.StatusOK, "within two hours")
	}
	for _, address := range []string{s.org.Email, "nobody@example.com"} {
		if _, a := s.asksFrom("192.0.2.200", address); a.says(http.StatusTooManyRequests).header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if len(s.mails) > 0 {
		t.Error("those that wait are mailed at once")
	}
	s.guest().press("/en/console/sign-in", "email", "new-1@example.com").leads("/en/console/sign-in/sent")
	_, a := s.asksFrom("198.51.100.1", "elsewhere@example.com")
	a.leads("/en/console/sign-up/sent")
	if m := s.mail(); m.To != "elsewhere@example.com" {
		t.Errorf("mailed to %s", m.To)
	}
	s.end() // the process mails the waiting links
	for range mostLater {
		if m := s.mail(); !strings.HasPrefix(m.To, "later-") {
			t.Errorf("mailed to %s", m.To)
		}
	}
}

// Networks that ask for more links than all networks together may have do not keep out another network.
func TestFloodOfSignUps(t *testing.T) {
	s := openToAll(t)
	s.hold()
	for i := range 20 {
		for network := range 11 {
			_, a := s.asksFrom(fmt.Sprintf("198.51.%d.7", network), fmt.Sprintf("flood-%d-%d@example.com", network, i))
			switch to := a.header.Get("Location"); {
			case to == "/en/console/sign-up/sent":
				s.mailed()
			case to != "/en/console/sign-up/later" && a.status != http.StatusTooManyRequests:
				t.Fatalf("%d %s", a.status, to)
			}
		}
	}
	for _, client := range []string{"203.0.113.9", "2001:db8:1::1"} {
		_, a := s.asksFrom(client, "honest-"+client[:3]+"@example.com")
		a.leads("/en/console/sign-up/sent")
		if m := s.mail(); m.To != "honest-"+client[:3]+"@example.com" {
			t.Errorf("mailed to %s", m.To)
		}
	}
	s.end()
}
