package handlers_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/console"
	"integrityledger/projections/queue"
	"integrityledger/projections/session"
)

// consoleService is a service that mails links to a test mailbox.
type consoleService struct {
	*service
	mails chan queue.Mail
	end   func() // ends the mailer's process
}

func openConsole(t *testing.T) *consoleService {
	t.Helper()
	return openConsoleWith(t, options{})
}

func openConsoleWith(t *testing.T, o options) *consoleService {
	t.Helper()
	c := &consoleService{mails: make(chan queue.Mail, 16)}
	more := o.config
	o.config = func(config *handlers.Config) {
		if config.LinkMailer = c.mailer(t, config); more != nil {
			more(config)
		}
	}
	c.service = open(t, o)
	t.Cleanup(func() {
		if line := refusalWithoutCode.FindString(c.log.String()); line != "" {
			t.Error("a refusal without its code is logged: ", line)
		}
	})
	return c
}

var refusalWithoutCode = regexp.MustCompile(
	`.*"route":"[^"]*/console[^"]*","method":"[A-Z]+","status":4[0-9]+,"code":"".*`,
)

// mailer starts a mailer that runs until the end of the test.
func (c *consoleService) mailer(t *testing.T, config *handlers.Config) *console.LinkMailer {
	m := console.NewLinkMailer(console.LinkMailer{
		Sessions: config.Sessions, BaseURL: config.BaseURL, Now: config.Now, Log: config.Log,
		Send: func(ctx context.Context, m queue.Mail) error {
			select {
			case c.mails <- m:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	c.end = func() { stop(); <-done }
	t.Cleanup(c.end)
	return m
}

// mail returns the next mailed link.
func (c *consoleService) mail() queue.Mail {
	c.t.Helper()
	select {
	case m := <-c.mails:
		return m
	case <-time.After(patience):
		c.t.Fatalf("no link was mailed:\n%s", c.log.String())
		return queue.Mail{}
	}
}

// mailed returns the path of the next mailed link.
func (c *consoleService) mailed() string {
	c.t.Helper()
	m := c.mail()
	path, ours := strings.CutPrefix(m.SignIn.URL, baseURL)
	if !ours {
		c.t.Fatalf("mailed %s", m.SignIn.URL)
	}
	return path
}

// guest is a browser with its cookies.
type guest struct {
	*consoleService
	cookies map[string]string
}

func (c *consoleService) guest() *guest { return &guest{c, map[string]string{}} }

// do sends a request as a page of the service would. header has alternating names and values.
func (p *guest) do(method, path string, body url.Values, header ...string) answer {
	p.t.Helper()
	r := p.request(method, path, "", strings.NewReader(body.Encode()))
	r.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := *p.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := p.through(&client, r)
	check(p.t, err)
	for _, cookie := range (&http.Response{Header: a.header}).Cookies() {
		if !strings.HasPrefix(cookie.Name, "__Host-integrity-") || !cookie.Secure || !cookie.HttpOnly ||
			cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.Domain != "" {
			p.t.Errorf("cookie %s", cookie)
		}
		if p.cookies[cookie.Name] = cookie.Value; cookie.MaxAge < 0 {
			delete(p.cookies, cookie.Name)
		}
	}
	if !strings.Contains(a.header.Get("Cache-Control"), "no-store") {
		p.t.Errorf("%s %s may be kept: %s", method, path, a.header.Get("Cache-Control"))
	}
	return a
}

func (p *guest) visit(path string) answer {
	p.t.Helper()
	return p.do(http.MethodGet, path, nil)
}

func (p *guest) press(path string, form ...string) answer {
	p.t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	return p.do(http.MethodPost, path, values)
}

// leads requires an answer that redirects to a path.
func (a answer) leads(to string) {
	a.t.Helper()
	if a.status != http.StatusSeeOther || a.header.Get("Location") != to {
		a.t.Fatalf("%d to %q, want %s: %s", a.status, a.header.Get("Location"), to, a.body)
	}
}

// says requires a page with these texts.
func (a answer) says(status int, words ...string) answer {
	a.t.Helper()
	for _, part := range words {
		if !contains(a.body, part) {
			a.t.Errorf("the page lacks %q: %s", part, a.body)
		}
	}
	if a.status != status {
		a.t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// operatorLink returns the code of a link that the operator makes.
func (s *service) operatorLink(member domain.MemberID) (code string) {
	s.t.Helper()
	link, code := domain.NewMakeSignInLink(domain.MakeSignInLink{Origin: s.org.Operator(), Member: member}, s.Now())
	must(s, link)
	check(s.t, s.Sessions(s.t).AddOperatorLink(context.Background(), link.Outcome, s.Now()))
	return code
}

// signedIn returns a person who has signed in with a mailed link.
func (c *consoleService) signedIn(address string) *guest {
	c.t.Helper()
	p := c.guest()
	p.press("/en/console/sign-in", "email", address).leads("/en/console/sign-in/sent")
	p.press(c.mailed()).leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Example", address)
	return p
}

const sessionName = "__Host-integrity-session"

// sessionEnded is where a browser is sent whose session has ended.
const sessionEnded = "/en/console/sign-in?said=ended"

// A mailed link signs in once, before it expires, in the browser that asked, and only when the button is pressed.
func TestSignInByMail(t *testing.T) {
	s := openConsole(t)
	p := s.guest()
	p.visit("/en/console").leads("/en/console/sign-in")
	p.visit("/console/security").leads("/console/sign-in")
	p.visit("/en/console/sign-in").says(http.StatusOK, "Send a link")
	for _, wrong := range []string{"", "nobody", "Ana <ana@example.com>", strings.Repeat("a", 250) + "@example.com"} {
		p.press("/en/console/sign-in", "email", wrong).says(http.StatusUnprocessableEntity, "Enter an address")
	}

	// The answer is the same for every address, and redirects to the same page.
	known, unknown := s.guest().press("/console/sign-in", "email", s.org.Email), s.guest().press(
		"/console/sign-in", "email", "nobody@example.com",
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
	s.mailed()

	p.press("/en/console/sign-in", "email", strings.ToUpper(s.org.Email)).leads("/en/console/sign-in/sent")
	p.visit("/en/console/sign-in/sent").says(http.StatusOK, "If the address belongs to an active member")
	link := s.mailed()
	for range 2 { // as programs that scan mails do
		s.guest().visit(link).says(http.StatusOK, "Press the button")
	}
	s.guest().press(link).says(http.StatusForbidden, "another browser")
	p.visit(link).says(http.StatusOK, "Press the button")
	p.press(link).leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Example", s.org.Email, "Overview", "Usage this month")
	p.visit("/console").says(http.StatusOK, "Resumen", "propietario")
	p.visit("/en/console/sign-in").leads("/en/console")
	other := &guest{s, map[string]string{"__Host-integrity-browser": p.cookies["__Host-integrity-browser"]}}
	other.press(link).says(http.StatusNotFound, "cannot be used")
	p.press(link).says(http.StatusNotFound, "cannot be used")
	for _, code := range []string{"is_x", link[strings.LastIndex(link, "/")+1:] + "x"} {
		p.visit("/en/console/link/"+code).says(http.StatusNotFound, "cannot be used")
	}

	late := s.guest()
	late.press("/en/console/sign-in", "email", s.org.Email)
	link = s.mailed()
	s.skew.Add(int64(15 * time.Minute))
	late.press(link).says(http.StatusNotFound, "cannot be used")

	// The limit is five links an hour; three were sent.
	for range 4 {
		late.press("/en/console/sign-in", "email", s.org.Email).leads("/en/console/sign-in/sent")
	}
	s.mailed()
	s.mailed()
	s.logged("hourly limit of sign-in links reached")
	if len(s.mails) != 0 {
		t.Error("more than five links in an hour")
	}
	if log := s.log.String(); strings.Contains(log, s.org.Email) || strings.Contains(log, "is_") {
		t.Error("an address or a link stands in the log")
	}
}

// Typing another person's address does not lock the person out: a browser that has signed in with the address gets more
// links than others.
func TestKnownBrowserIsMailedMore(t *testing.T) {
	const known = "__Host-integrity-known"
	s := openConsole(t)
	other := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Viewer},
	).Outcome
	ask := func(p *guest, address string) {
		t.Helper()
		p.press("/en/console/sign-in", "email", address).leads("/en/console/sign-in/sent")
	}
	p, stranger := s.signedIn(s.org.Email), s.signedIn(other.Email)
	cookie := p.cookies[known]
	if hash := domain.EmailSHA256(s.org.Email); cookie == "" || strings.Contains(cookie, s.org.Email) ||
		strings.Contains(cookie, base64.RawURLEncoding.EncodeToString(hash[:])) {
		t.Errorf("the cookie of the known browser is %q", cookie)
	}
	p.press("/en/console/security/sign-out-everywhere").leads("/en/console/sign-in?said=signed-out")
	p.press("/en/console/sign-out").leads("/en/console/sign-in?said=signed-out")
	if p.cookies[known] != cookie {
		t.Fatal("the browser is no longer known after signing out")
	}
	refused := 0
	is := func(what string) { // refused, with the usual answer
		t.Helper()
		refused++
		s.eventually(what, func() bool {
			return strings.Count(s.log.String(), "hourly limit of sign-in links reached") == refused
		})
		if len(s.mails) != 0 {
			t.Fatal("mailed: " + what)
		}
	}
	for range session.LinksPerHour - 1 {
		ask(stranger, s.org.Email)
		s.mailed()
	}
	ask(stranger, s.org.Email)
	is("a stranger who is known with another address")
	end, _, _ := strings.Cut(cookie, ".")
	for what, value := range map[string]string{
		"changed": cookie[:len(cookie)-2] + "AA", "prolonged": strings.Replace(cookie, end, "9"+end, 1),
		"of another": stranger.cookies[known], "nonsense": "x.y", "empty": "",
	} {
		forger := s.guest()
		forger.cookies[known] = value
		ask(forger, s.org.Email)
		is(what)
	}
	for range 5 { // ten in total
		ask(p, s.org.Email)
		p.press(s.mailed()).leads("/en/console")
		p.press("/en/console/sign-out")
	}
	ask(p, s.org.Email)
	is("more than ten")
	s.owner("DELETE FROM console_links")
	s.skew.Add(int64(90*24*time.Hour + time.Second))
	for range session.LinksPerHour {
		ask(stranger, s.org.Email)
		s.mailed()
	}
	ask(p, s.org.Email)
	is("90 days later")
}

// A person with memberships in several organizations chooses one. A person without a membership is not signed in.
func TestSignInChoosesOrganization(t *testing.T) {
	s := openConsole(t)
	second := s.Organization(t, 3, domain.InternalPlan)
	p := s.guest()
	p.press("/en/console/sign-in", "email", s.org.Email)
	link := s.mailed()
	p.press(link).says(http.StatusOK, "Choose an organization", s.org.ID.String(), second.ID.String())
	p.press(link, "organization", domain.NewOrganizationID(s.Now(), 1).String()).says(
		http.StatusOK, "Choose an organization",
	)
	p.press(link, "organization", second.ID.String()).leads("/en/console")
	p.visit("/en/console/history").says(http.StatusOK, second.Key.Member.String())

	// The operator's link is for one membership and works in any browser. If the membership ends, the link does not sign
	// in.
	if s.Sessions(t).AddOperatorLink(context.Background(), domain.OperatorLink{}, s.Now()) == nil {
		t.Error("a link without its event")
	}
	code := s.operatorLink(s.org.Key.Member)
	anybody := s.guest()
	anybody.press("/en/console/link/" + code).leads("/en/console")
	anybody.visit("/en/console").says(http.StatusOK)
	member := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Viewer},
	).Outcome
	code = s.operatorLink(member.ID)
	disabled := domain.MemberDisabled
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: member.ID, Status: &disabled})
	anybody.press("/en/console/link/"+code).says(http.StatusNotFound, "cannot be used")
}

// An invitation creates a member once, when the button is pressed, and signs the person in.
func TestInvitation(t *testing.T) {
	s := openConsole(t)
	invite, code := domain.NewInviteMember(
		domain.InviteMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Reviewer}, nil,
	)
	must(s.service, invite)
	page, p := "/en/console/invitation/"+code, s.guest()
	p.visit(page).says(http.StatusOK, "Example", "reviewer", "ana@example.com")
	// An invited person who has not joined gets no link: the next mail is for the next address.
	for _, address := range []string{"ana@example.com", s.org.Email} {
		p.press("/en/console/sign-in", "email", address).leads("/en/console/sign-in/sent")
	}
	if m := s.mail(); m.To != s.org.Email {
		t.Errorf("%s was sent a link", m.To)
	}
	p.do(http.MethodPost, page, nil, "Sec-Fetch-Site", "cross-site").says(http.StatusForbidden)
	p.press(page).leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Example", "ana@example.com", "reviewer")
	for _, again := range []string{page, "/en/console/invitation/in_x", "/en/console/invitation/" + code + "x"} {
		s.guest().visit(again).says(http.StatusNotFound, "cannot be used")
		s.guest().press(again).says(http.StatusNotFound, "cannot be used")
	}
	late, code := domain.NewInviteMember(
		domain.InviteMember{Origin: s.org.Operator(), Email: "ben@example.com", Role: domain.Viewer}, nil,
	)
	must(s.service, late)
	s.skew.Add(int64(domain.InvitationLifetime))
	s.guest().press("/en/console/invitation/"+code).says(http.StatusNotFound, "cannot be used")
	closed := s.second(options{config: func(c *handlers.Config) { c.NoInvitations = true }})
	if a := closed.visit(page, "", ""); a.status != http.StatusNotFound || contains(a.body, "cannot be used") {
		t.Errorf("without invitations: %d %s", a.status, a.body)
	}
	s.Audit(t)
}

// Only the cookie gives access to a session: the API accepts no cookie, the console accepts no key, and neither accepts
// requests of other sites.
func TestSessionAndKeyAreApart(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	cookie := sessionName + "=" + p.cookies[sessionName]
	for _, path := range []string{integrity + "/companies", "/api/v1/me", "/api/v1/usage"} {
		s.send(http.MethodGet, path, "", nil, "Cookie", cookie).refuses(http.StatusUnauthorized, domain.InvalidKey)
	}
	s.send(
		http.MethodPost, integrity+"/companies", "", body{"reference": "x"}, "Cookie", cookie,
	).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.guest().do(http.MethodGet, "/en/console", nil, "Authorization", "Bearer "+s.org.Secret).leads("/en/console/sign-in")
	s.guest().do(
		http.MethodPost, "/en/console/security/sign-out-everywhere", nil, "Authorization", "Bearer "+s.org.Secret,
	).leads("/en/console/sign-in")

	// The store has only the hash of the token.
	_, token, _ := strings.Cut(p.cookies[sessionName], ".")
	if n := s.number(`SELECT count(*) FROM console_sessions WHERE shard = $1 AND organization_id = $2`); n != 1 {
		t.Errorf("%d sessions", n)
	}
	var dump string
	check(
		t,
		s.Pool.QueryRow(
			context.Background(),
			`SELECT string_agg(s::text, ' ') || encode(string_agg(s.data, ''), 'escape') FROM console_sessions s`,
		).Scan(&dump),
	)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	check(t, err)
	if strings.Contains(dump, token) || strings.Contains(dump, hex.EncodeToString(raw)) || len(raw) != 32 {
		t.Errorf("the token %q is stored", token)
	}

	// A request caused by another site's page changes nothing, signed in or not.
	for name, headers := range map[string][]string{
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"},
		"origin":    {"Sec-Fetch-Site", "", "Origin", "https://elsewhere.example"},
		"no origin": {"Sec-Fetch-Site", "", "Origin", "null"},
	} {
		for _, path := range []string{
			"/sign-out", "/security/sign-out-everywhere", "/sign-in", "/prove", "/passkey/options",
			"/security/passkeys/options",
		} {
			p.do(http.MethodPost, "/en/console"+path, nil, headers...).says(http.StatusForbidden, "This request came from another site")
			if p.cookies[sessionName] == "" {
				t.Fatalf("%s: %s has signed out", name, path)
			}
		}
	}
	p.visit("/en/console").says(http.StatusOK)

	a := p.press("/en/console/sign-out")
	a.leads("/en/console/sign-in?said=signed-out")
	if a.header.Get("Clear-Site-Data") != `"cache", "storage"` || p.cookies[sessionName] != "" {
		t.Errorf("%v, %v", a.header, p.cookies)
	}
	p.cookies[sessionName] = strings.TrimPrefix(cookie, sessionName+"=")
	p.visit("/en/console").leads(sessionEnded)
}

// Every sign-in makes a new token and ends the browser's former session, so an attacker cannot choose the token in
// advance.
func TestSessionFixation(t *testing.T) {
	s := openConsole(t)
	victim, planted := s.guest(), s.signedIn(s.org.Email)
	former := planted.cookies[sessionName]
	for name, value := range map[string]string{
		"somebody's session": former, "a chosen token": "1." + strings.Repeat("A", 43), "nonsense": "x.y.z",
		"no shard": "65536.x",
	} {
		victim.cookies[sessionName] = value
		victim.press("/en/console/sign-in", "email", s.org.Email)
		victim.press(s.mailed()).leads("/en/console")
		if now := victim.cookies[sessionName]; now == value || now == former || now == "" {
			t.Errorf("%s: the session goes on as %s", name, now)
		}
		victim.press("/en/console/sign-out")
		s.owner("DELETE FROM console_links")
	}
	planted.visit("/en/console").leads(sessionEnded)
}

var sessionID = regexp.MustCompile(`ses_[0-9a-z]{26}`)

// A session ends when it expires, when its owner ends it on any device, and with every change of role or status.
func TestSessionsEnd(t *testing.T) {
	s := openConsole(t)
	member := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Admin},
	).Outcome
	first, second := s.signedIn(member.Email), s.signedIn(member.Email)
	stranger := s.signedIn(s.org.Email)
	shown := first.visit("/en/console/security").says(
		http.StatusOK, "this session</strong> Unknown browser", "Go-http-client",
	)
	ids := sessionID.FindAllString(string(shown.body), -1)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 2 {
		t.Fatalf("sessions %v", ids)
	}
	for _, id := range ids { // another member's sessions are neither confirmed nor ended
		stranger.press("/en/console/security/sessions/" + id + "/end").leads("/en/console/security?said=session-ended#sessions")
	}
	first.visit("/en/console").says(http.StatusOK)
	first.press("/en/console/security/sessions/" + ids[1] + "/end").leads("/en/console/security?said=session-ended#sessions")
	second.visit("/en/console").leads(sessionEnded)
	first.press("/en/console/security/sessions/" + ids[0] + "/end").leads("/en/console/sign-in?said=signed-out")
	first.visit("/en/console").leads("/en/console/sign-in")

	s.owner("DELETE FROM console_links")
	first, second = s.signedIn(member.Email), s.signedIn(member.Email)
	first.press("/en/console/security/sign-out-everywhere").leads("/en/console/sign-in?said=signed-out")
	second.visit("/en/console").leads(sessionEnded)
	stranger.visit("/en/console").says(http.StatusOK)

	viewer, admin := domain.Viewer, domain.Admin
	disabled, active := domain.MemberDisabled, domain.MemberActive
	for what, change := range map[string][]domain.ChangeMember{
		"role": {{Role: &viewer}, {Role: &admin}}, "status": {{Status: &disabled}, {Status: &active}},
	} {
		first = s.signedIn(member.Email)
		for _, c := range change {
			c.Origin, c.Member = s.org.Operator(), member.ID
			must(s.service, &c)
			cookie := first.cookies[sessionName]
			if first.visit("/en/console").leads(sessionEnded); first.cookies[sessionName] != "" {
				t.Errorf("%s: the cookie stays", what)
			}
			first.cookies[sessionName] = cookie
		}
	}

	first = s.signedIn(s.org.Email)
	s.skew.Add(int64(29 * time.Minute))
	first.visit("/en/console").says(http.StatusOK)
	s.skew.Add(int64(29 * time.Minute))
	first.visit("/en/console").says(http.StatusOK)
	s.skew.Add(int64(30 * time.Minute))
	first.visit("/en/console").leads(sessionEnded)
}

// Actions that could take over the organization need a new proof of identity after five minutes.
func TestRecentProof(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	remove := "/en/console/security/passkeys/" + domain.NewID[domain.PasskeyID](s.Now()).String() + "/remove"
	p.press(remove).says(http.StatusNotFound)
	s.skew.Add(int64(5*time.Minute + time.Second))
	p.do(http.MethodPost, remove, nil, "Referer", baseURL+"/en/console/security").leads(
		"/en/console/prove?to=%2Fen%2Fconsole%2Fsecurity",
	)
	s.skew.Add(int64(-12 * time.Minute)) // setting the clock back does not make a proof recent
	p.press(remove).leads("/en/console/prove?to=%2Fen%2Fconsole")
	s.skew.Add(int64(12 * time.Minute))
	p.do(http.MethodPost, remove, nil, "Referer", "https://elsewhere.example/x").leads(
		"/en/console/prove?to=%2Fen%2Fconsole",
	)
	a := p.do(http.MethodPost, "/en/console/security/passkeys/options", nil, "Accept", "application/json")
	if a.status != http.StatusForbidden || !contains(a.body, `"location":"/en/console/prove`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	for to, step := range map[string]string{
		"/en/console/records/x/revoke": "Revoke a record", "/console/publisher": "Your name and domains",
		"/en/console/keys/new": "New key", "/en/console/documents/certificates/x/revoke": "Revoke the certificate",
	} {
		p.visit("/en/console/prove?to="+url.QueryEscape(to)).says(http.StatusOK, "<strong>"+step+".</strong>")
	}
	if page := p.visit("/en/console/prove?to=/en/console/prove/done"); contains(page.body, "<strong>Confirm") {
		t.Error("the page of a proof names itself as the step")
	}
	s.newAuthenticator() // the page of a member without a passkey has no button
	for _, to := range []string{
		"https://elsewhere.example/", "//elsewhere.example", "/en/console/../../x", "/consoles", `/console\x`,
		"/console//elsewhere.example", "javascript:x",
	} {
		if page := p.visit("/en/console/prove?to=" + url.QueryEscape(to)).says(http.StatusOK); !contains(
			page.body, `data-to="/en/console"`,
		) {
			t.Errorf("a proof leads to %s: %s", to, page.body)
		}
	}
	// Using up the links of a person's address, or adding the person to another organization, does not prevent the proof.
	s.Organization(t, 3, domain.InternalPlan)
	for range session.LinksPerHour {
		s.guest().press("/en/console/sign-in", "email", s.org.Email)
	}
	for range session.LinksPerHour - 1 { // p has used one to sign in
		s.mailed()
	}
	s.logged("hourly limit of sign-in links reached")
	before := p.cookies[sessionName]
	p.press("/en/console/prove").leads("/en/console/sign-in/sent")
	p.press(s.mailed()).leads("/en/console")
	if p.cookies[sessionName] == before {
		t.Error("the proof has kept the token")
	}
	p.press(remove).says(http.StatusNotFound)
	for range session.LinksPerHour {
		p.press("/en/console/prove").leads("/en/console/sign-in/sent")
	}
	for range session.LinksPerHour - 1 {
		s.mailed()
	}
	s.eventually("the sixth proof by mail is refused", func() bool {
		return strings.Count(s.log.String(), "hourly limit of sign-in links reached") == 2
	})
	if len(s.mails) != 0 {
		t.Error("more than five proofs in an hour")
	}
}

// Plain http to another machine would send the cookie unencrypted, so there is no console.
func TestConsoleNeedsEncryption(t *testing.T) {
	for base, want := range map[string]int{
		"http://ledger.example": http.StatusNotFound, "http://127.0.0.1:9": http.StatusOK,
		"https://203.0.113.7": http.StatusOK,
	} {
		s := open(t, options{config: func(c *handlers.Config) { c.BaseURL = base }})
		(&consoleService{service: s}).newAuthenticator()
		a := s.visit("/en/console/sign-in", "", "")
		if a.status != want {
			t.Errorf("%s: %d", base, a.status)
		}
		if byName := base != "https://203.0.113.7"; want == http.StatusOK && contains(a.body, "data-passkey=") != byName {
			t.Errorf("%s: passkeys: %s", base, a.body)
		}
	}
}

// On loopback, a browser that uses the address is redirected to the host name, for which passkeys and mailed links are
// made. The spelling of the name does not matter.
func TestConsoleHasOneName(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.BaseURL = "http://127.0.0.1:9" }})
	ask := func(method, host, path string) answer {
		t.Helper()
		r := s.request(method, path, "", nil)
		r.Host = host
		client := *s.http.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		a, err := s.through(&client, r)
		check(t, err)
		return a
	}
	ask(http.MethodGet, "127.0.0.1:9", "/en/console/prove?to=/en/console").leads(
		"http://localhost:9/en/console/prove?to=/en/console",
	)
	if a := ask(http.MethodGet, "localhost:9", "/en/console/sign-in"); a.status != http.StatusOK {
		t.Errorf("by the name: %d", a.status)
	}
	if a := ask(http.MethodGet, "elsewhere.example", "/en/console/sign-in"); a.header.Get("Location") != "" {
		t.Errorf("by the name of another: to %s", a.header.Get("Location"))
	}
	shouted := consoleService{service: open(t, options{config: func(c *handlers.Config) {
		c.BaseURL = "https://Ledger.Example"
	}})}
	if a := shouted.guest().do(
		http.MethodPost, "/en/console/passkey/options", nil, "Accept", "*/*",
	); !contains(a.body, `"rpId":"ledger.example"`) {
		t.Errorf("passkeys for another name: %s", a.body)
	}
}

// Requests caused by pages of other sites are counted before they are answered.
func TestOtherSitesAreCounted(t *testing.T) {
	s := consoleService{service: open(t, options{config: func(c *handlers.Config) { c.PublicPerMinute = 1 }})}
	s.freshMinute()
	for _, want := range []int{http.StatusForbidden, http.StatusTooManyRequests} {
		s.guest().do(http.MethodPost, "/en/console/sign-in", nil, "Sec-Fetch-Site", "cross-site").says(want)
	}
}
