package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// openToProvider opens a console to which the provider signs people in.
func openToProvider(t *testing.T, change func(*handlers.Config)) (*consoleService, *identityProvider) {
	t.Helper()
	p := startProvider(t)
	s := openConsoleWith(t, options{config: func(c *handlers.Config) {
		if c.OAuth = p.oauth(c); change != nil {
			change(c)
		}
	}})
	return s, p
}

const providerName = "__Host-integrity-provider"

// sent presses the button of a page and returns the address at the provider.
func (p *guest) sent(page string, form ...string) *url.URL {
	p.t.Helper()
	a := p.press(page+"/provider", form...).says(http.StatusOK, `data-page="provider"`)
	to, ok := strings.CutPrefix(a.header.Get("Refresh"), "0;url=")
	if !ok {
		p.t.Fatalf("the page leads nowhere: %v", a.header)
	}
	at, err := url.Parse(to)
	check(p.t, err)
	return at
}

// byProvider presses the button, signs in with the provider and returns.
func (p *guest) byProvider(page string, form ...string) answer {
	p.t.Helper()
	return p.visit(newVisitor(p.t).signIn(p.sent(page, form...).String()).RequestURI())
}

// proves removes a passkey that does not exist: the answer is 404 if the proof of identity is recent.
func (p *guest) proves(want bool) {
	p.t.Helper()
	a := p.press("/en/console/security/passkeys/" + domain.NewID[domain.PasskeyID](p.Now()).String() + "/remove")
	if want != (a.status == http.StatusNotFound) || !want && !strings.Contains(a.header.Get("Location"), "/prove") {
		p.t.Errorf("a recent proof: %d to %q, want %t", a.status, a.header.Get("Location"), want)
	}
}

// A person signs in with the address that the provider has verified, once, in the browser that began the sign-in.
func TestSignInByProvider(t *testing.T) {
	s, idp := openToProvider(t, nil)
	host := strings.TrimPrefix(idp.issuer, "http://")
	idp.says(map[string]any{"email": strings.ToUpper(s.org.Email), "email_verified": true})
	p := s.guest()

	// If the provider is unavailable, the person is not blamed.
	idp.away.Store(true)
	p.press("/en/console/sign-in/provider").says(
		http.StatusServiceUnavailable, "is not responding", `href="/en/console/sign-in"`,
	)
	idp.away.Store(false)
	s.skew.Add(int64(time.Minute))

	p.visit("/en/console/sign-in").says(http.StatusOK, `id="provider"`, "Sign in with "+host)
	p.do(http.MethodPost, "/en/console/sign-in/provider", nil, "Sec-Fetch-Site", "cross-site").says(http.StatusForbidden)
	if a := p.visit("/en/console/sign-in/provider"); a.status != http.StatusMethodNotAllowed ||
		p.cookies[providerName] != "" {
		t.Errorf("an address begins a sign-in: %d", a.status)
	}
	to := p.sent("/en/console/sign-in")
	asked := to.Query()
	if asked.Get("scope") != "openid email" || asked.Get("code_challenge_method") != "S256" ||
		asked.Get("nonce") == "" || asked.Get("prompt") != "" ||
		asked.Get("redirect_uri") != baseURL+"/oauth/signed-in" {
		t.Errorf("sent to %s", to)
	}
	back := newVisitor(t).signIn(to.String())
	cookie := p.cookies[providerName]
	with := func(name, value string) string {
		q := back.Query()
		q.Set(name, value)
		return "/oauth/signed-in?" + q.Encode()
	}
	for name, attempt := range map[string][2]string{
		"another browser": {back.RequestURI(), ""}, "another state": {with("state", "x"), cookie},
		"no code":         {with("code", ""), cookie},
		"another purpose": {back.RequestURI(), strings.Replace(cookie, ".sign-in.", ".prove.", 1)},
		"a broken cookie": {back.RequestURI(), "x.y"},
		"cancelled":       {"/oauth/signed-in?error=access_denied&state=" + back.Query().Get("state"), cookie},
	} {
		other := s.guest()
		if other.cookies[providerName] = attempt[1]; attempt[1] == "" {
			delete(other.cookies, providerName)
		}
		if a := other.visit(attempt[0]); a.status != http.StatusUnauthorized || !contains(a.body, "/console/sign-in") ||
			other.cookies[sessionName] != "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	p.visit(back.RequestURI()).leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Example", s.org.Email)
	if p.cookies[providerName] != "" {
		t.Error("the attempt goes on")
	}
	p.proves(true)
	again := s.guest()
	again.cookies[providerName] = cookie
	again.visit(back.RequestURI()).says(http.StatusUnauthorized, "You are not signed in")

	// An ID token for another attempt, and one that arrives too late.
	idp.says(map[string]any{"email": s.org.Email, "email_verified": true, "nonce": "x"})
	s.guest().byProvider("/en/console/sign-in").says(http.StatusUnauthorized, "You are not signed in")
	idp.says(map[string]any{"email": s.org.Email, "email_verified": true})
	p = s.guest()
	back = newVisitor(t).signIn(p.sent("/console/sign-in").String())
	s.skew.Add(int64(11 * time.Minute))
	p.visit(back.RequestURI()).says(http.StatusUnauthorized, "No ha entrado")

	// The provider becomes unavailable meanwhile.
	p = s.guest()
	back = newVisitor(t).signIn(p.sent("/en/console/sign-in").String())
	idp.away.Store(true)
	p.visit(back.RequestURI()).says(http.StatusServiceUnavailable, "is not responding")
	if log := s.log.String(); strings.Contains(log, s.org.Email) {
		t.Error("an address stands in the log")
	}
	s.Audit(t)
}

// An ID token for another client of the provider does not sign in (OpenID Connect Core, section 3.1.3.7).
func TestProviderNamesAnotherClient(t *testing.T) {
	s, idp := openToProvider(t, nil)
	two := []string{pageClient, "another"}
	for name, c := range map[string]struct {
		audience any
		azp      any
		good     bool
	}{
		"our own": {pageClient, pageClient, true}, "none": {pageClient, nil, true},
		"our own, of two audiences": {two, pageClient, true},
		"another":                   {pageClient, "another", false}, "another, of two audiences": {two, "another", false},
		"none, of two audiences": {two, nil, false}, "empty": {pageClient, "", false},
		"a list":           {pageClient, []string{pageClient}, false},
		"another spelling": {pageClient, strings.ToUpper(pageClient), false},
	} {
		idp.says(map[string]any{"email": s.org.Email, "email_verified": true, "aud": c.audience, "azp": c.azp})
		p := s.guest()
		if a := p.byProvider("/en/console/sign-in"); (p.cookies[sessionName] != "") != c.good ||
			!c.good && (a.status != http.StatusUnauthorized || !contains(a.body, "You are not signed in")) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// An address counts only if the provider says that it has verified it.
func TestProviderMustVerifyTheAddress(t *testing.T) {
	s, idp := openToProvider(t, nil)
	for name, claims := range map[string]map[string]any{
		"not verified":     {"email": s.org.Email, "email_verified": false},
		"a text":           {"email": s.org.Email, "email_verified": "true"},
		"a number":         {"email": s.org.Email, "email_verified": 1},
		"nothing said":     {"email": s.org.Email, "email_verified": nil},
		"no address":       {"email": "", "email_verified": true},
		"a name beside it": {"email": "Ana <" + s.org.Email + ">", "email_verified": true},
	} {
		idp.says(claims)
		p := s.guest()
		if a := p.byProvider("/en/console/sign-in"); a.status != http.StatusForbidden ||
			!contains(a.body, "not verified") || p.cookies[sessionName] != "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	idp.says(map[string]any{"email": []string{s.org.Email}, "email_verified": true})
	s.guest().byProvider("/en/console/sign-in").says(http.StatusUnauthorized, "You are not signed in")
}

// The address determines the memberships, as with a mailed link.
func TestProviderChoosesOrganization(t *testing.T) {
	s, idp := openToProvider(t, nil)
	idp.says(map[string]any{"email": "nobody@example.com", "email_verified": true})
	s.guest().byProvider("/en/console/sign-in").says(http.StatusForbidden, "not a member of any organization here")
	disabled := domain.MemberDisabled
	gone := must(
		s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ben@example.com", Role: domain.Admin},
	).Outcome
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: gone.ID, Status: &disabled})
	idp.says(map[string]any{"email": gone.Email, "email_verified": true})
	s.guest().byProvider("/en/console/sign-in").says(http.StatusForbidden, "not a member of any organization here")

	// With several memberships the person chooses, in this browser, and the age of the proof does not change.
	second := s.Organization(t, 3, domain.InternalPlan)
	for age, recent := range map[time.Duration]bool{0: true, time.Hour: false} {
		idp.says(map[string]any{"email": s.org.Email, "email_verified": true, "auth_time": s.Now().Add(-age).Unix()})
		p := s.guest()
		a := p.byProvider("/en/console/sign-in")
		link := a.header.Get("Location")
		p.visit(link).says(http.StatusOK, "Press the button")
		s.guest().press(link).says(http.StatusForbidden, "another browser")
		code, _, _ := strings.Cut(link, "~")
		for _, changed := range []string{code, code + "~0", code + "~9999999999", code + "~", link + "0"} {
			p.press(changed).says(http.StatusNotFound, "cannot be used")
		}
		p.press(link).says(http.StatusOK, "Choose an organization", s.org.ID.String(), second.ID.String())
		p.press(link, "organization", second.ID.String()).leads("/en/console")
		p.proves(recent)
		p.press(link, "organization", second.ID.String()).says(http.StatusNotFound, "cannot be used")
	}
	if len(s.mails) != 0 {
		t.Error("somebody was mailed")
	}
}

// If sign-up is allowed, the provider confirms the address instead of a mail.
func TestSignUpByProvider(t *testing.T) {
	s, idp := openToProvider(t, func(c *handlers.Config) { c.SignUp = true })
	idp.says(map[string]any{"email": "Ana.New@example.com", "email_verified": true})
	for _, page := range []string{"/en/console/sign-in", "/en/console/sign-up"} {
		p := s.guest()
		p.visit(page).says(http.StatusOK, `action="`+page+`/provider"`)
		a := p.byProvider(page)
		p.visit(a.header.Get("Location")).says(http.StatusOK, `id="organization"`, "Ana.New@example.com")
	}
	p := s.guest()
	link := p.byProvider("/en/console/sign-up").header.Get("Location")
	p.press(link, "name", "Ana").leads("/en/console")
	p.visit("/en/console").says(http.StatusOK, "Ana.New@example.com", "owner")
	p.proves(true)

	// A member who owns no organization signs in, or creates another organization on the page for signing up. An owner
	// signs in there too.
	must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ben@example.com", Role: domain.Viewer})
	idp.says(map[string]any{"email": "ben@example.com", "email_verified": true})
	s.guest().byProvider("/en/console/sign-in").leads("/en/console")
	p = s.guest()
	p.press(p.byProvider("/en/console/sign-up").header.Get("Location")).says(
		http.StatusOK, `id="organization"`, s.org.ID.String(),
	)
	idp.says(map[string]any{"email": s.org.Email, "email_verified": true})
	s.guest().byProvider("/en/console/sign-up").leads("/en/console")
	s.Audit(t)
}

// A silent single sign-on does not prove that the person is present: the provider must say how old the proof is, and a
// new proof needs a new sign-in.
func TestProofByProvider(t *testing.T) {
	s, idp := openToProvider(t, nil)
	says := func(email string, authTime any) {
		idp.says(map[string]any{"email": email, "email_verified": true, "auth_time": authTime})
	}
	for name, c := range map[string]struct {
		authTime any
		recent   bool
	}{
		"not said": {nil, false}, "of an hour ago": {s.Now().Add(-time.Hour).Unix(), false}, "of now": {s.Now().Unix(), true},
		"of the future": {s.Now().Add(time.Hour).Unix(), true}, "before time": {-1, false}, "absurd": {1e18, true},
		"before every calendar": {-1e18, false},
	} {
		says(s.org.Email, c.authTime)
		p := s.guest()
		if a := p.byProvider("/en/console/sign-in"); a.status != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		p.proves(c.recent)
		if s.skew.Add(int64(6 * time.Minute)); c.recent {
			p.proves(false)
		}
		s.skew.Add(int64(-6 * time.Minute))
	}

	says(s.org.Email, s.Now().Add(-time.Hour).Unix())
	p := s.guest()
	p.byProvider("/en/console/sign-in").leads("/en/console")
	p.visit("/en/console/prove?to=/en/console/security").says(
		http.StatusOK, `id="provider"`, `name="to" value="/en/console/security"`,
	)
	const page, to = "/en/console/prove", "/en/console/security"
	if asked := p.sent(page, "to", to).Query(); asked.Get("prompt") != "login" || asked.Get("max_age") != "0" {
		t.Errorf("asked with %v", asked)
	}
	for name, c := range map[string]struct {
		email    string
		authTime any
		says     string
	}{
		"of an hour ago":  {s.org.Email, s.Now().Add(-time.Hour).Unix(), "some time ago"},
		"not said":        {s.org.Email, nil, "some time ago"},
		"just before":     {s.org.Email, s.Now().Add(-time.Minute).Unix(), "some time ago"},
		"another address": {"ben@example.com", s.Now().Unix(), "must sign in there with the address"},
	} {
		says(c.email, c.authTime)
		if a := p.byProvider(page, "to", to); a.status != http.StatusForbidden || !contains(a.body, c.says) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		p.proves(false)
	}
	says(s.org.Email, s.Now().Unix())
	before := p.cookies[sessionName]
	p.byProvider(page, "to", to).leads(to)
	if p.cookies[sessionName] == before {
		t.Error("the proof has kept the token")
	}
	p.proves(true)
	p.byProvider(page, "to", "//elsewhere.example").leads("/en/console")

	// After signing out, a returning sign-in is no proof.
	back := newVisitor(t).signIn(p.sent(page).String())
	p.press("/en/console/sign-out")
	p.visit(back.RequestURI()).says(http.StatusUnauthorized, "You are not signed in")
	s.guest().press("/en/console/prove/provider").leads("/en/console/sign-in")
}

// On loopback the provider redirects to the address, but the console uses the host name.
func TestProviderOnLoopback(t *testing.T) {
	s, _ := openToProvider(t, func(c *handlers.Config) { c.BaseURL = "http://127.0.0.1:9" })
	for host, want := range map[string]string{
		"127.0.0.1:9": "http://localhost:9/oauth/signed-in?code=x&state=y", "localhost:9": "",
	} {
		r := s.request(http.MethodGet, "/oauth/signed-in?code=x&state=y", "", nil)
		r.Host = host
		client := *s.http.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		a, err := s.through(&client, r)
		check(t, err)
		if a.header.Get("Location") != want {
			t.Errorf("%s: %d to %q", host, a.status, a.header.Get("Location"))
		}
	}
}
