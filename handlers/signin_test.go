package handlers_test

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/action"
)

// visitor is a person's browser at the provider. It does not follow redirects back to the service, because the test's
// server does not have the service's public address.
type visitor struct {
	t      *testing.T
	client *http.Client
}

func newVisitor(t *testing.T) visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	check(t, err)
	return visitor{t, &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), baseURL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}}
}

var hiddenID = regexp.MustCompile(`name="id" value="([^"]*)"`)

// signIn follows the service's redirect, signs in, and returns the address to which the provider redirects.
func (b visitor) signIn(to string) *url.URL {
	b.t.Helper()
	response, err := b.client.Get(to)
	check(b.t, err)
	text, err := io.ReadAll(response.Body)
	check(b.t, err)
	check(b.t, response.Body.Close())
	found := hiddenID.FindSubmatch(text)
	if found == nil {
		b.t.Fatalf("no login page: %d %s", response.StatusCode, text)
	}
	issuer := response.Request.URL
	response, err = b.client.PostForm(issuer.Scheme+"://"+issuer.Host+"/login/username", url.Values{
		"id": {html.UnescapeString(string(found[1]))}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"},
	})
	check(b.t, err)
	check(b.t, response.Body.Close())
	back, err := response.Location()
	check(b.t, err)
	return back
}

// visit requests a page like a browser, with or without a cookie.
func (s *service) visit(path, cookie, from string) answer {
	s.t.Helper()
	r := s.request(http.MethodGet, path, "", nil)
	r.Header.Set("Accept", "text/html")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	if from != "" {
		r.Header.Set("Sec-Fetch-Site", from)
	}
	client := *s.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := s.through(&client, r)
	check(s.t, err)
	return a
}

// A person opens the link, sees its contents, signs in, and can then use an MCP client.
func TestOAuthSignIn(t *testing.T) {
	s, p := withProvider(t, options{})
	data := s.send(http.MethodPost, links, s.org.Secret, nil).is(http.StatusCreated)
	code := data["code"].(string)
	if data["url"] != action.LinkURL(baseURL, code) {
		t.Errorf("url: %v", data["url"])
	}
	path := "/en/oauth/link/" + code
	a := s.visit(path, "", "none")
	for _, part := range []string{"Example", p.issuer, "verify:read", "artifacts:read", path + "/sign-in", "one cookie"} {
		if a.status != http.StatusOK || !contains(a.body, part) {
			t.Errorf("the page (%d) does not say %s: %s", a.status, part, a.body)
		}
	}
	if a = s.visit("/oauth/link/"+code, "", ""); !contains(a.body, "Dar mi consentimiento") {
		t.Errorf("in Spanish: %s", a.body)
	}
	for _, from := range []string{"cross-site", "same-site", "none"} { // none: an address that was mailed or typed
		if a = s.visit(path+"/sign-in", "", from); a.status != http.StatusSeeOther || a.header.Get("Location") != path ||
			a.header.Get("Set-Cookie") != "" {
			t.Errorf("begun by %s, without the page that tells what it is about: %d %v", from, a.status, a.header)
		}
	}

	a = s.visit(path+"/sign-in", "", "same-origin")
	cookie := a.header.Get("Set-Cookie")
	for _, attribute := range []string{
		"; HttpOnly", "; Secure", "; SameSite=Lax", "; Path=/oauth/signed-in", "; Max-Age=600",
	} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie lacks %s: %s", attribute, cookie)
		}
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	to, err := url.Parse(a.header.Get("Location"))
	check(t, err)
	asked := to.Query()
	if !strings.HasPrefix(to.String(), p.issuer) || asked.Get("code_challenge_method") != "S256" ||
		asked.Get("nonce") == "" || asked.Get("redirect_uri") != baseURL+"/oauth/signed-in" ||
		asked.Get("scope") != "openid" {
		t.Errorf("sent to %s", to)
	}
	p.says(map[string]any{"email": 5, "auth_time": "x"}) // these claims were not requested
	back := newVisitor(t).signIn(to.String())

	// A state, code or cookie of another sign-in creates no link.
	wrong := back.Query()
	wrong.Set("state", "x")
	for name, attempt := range map[string][2]string{
		"no cookie":     {back.RequestURI(), ""},
		"other state":   {"/oauth/signed-in?" + wrong.Encode(), cookie},
		"refused there": {"/oauth/signed-in?error=access_denied&state=" + back.Query().Get("state"), cookie},
		"broken cookie": {back.RequestURI(), "integrity_sign_in=x"},
	} {
		if a := s.visit(attempt[0], attempt[1], "cross-site"); a.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	token := p.token(person, allScopes)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")

	a = s.visit(back.RequestURI(), cookie, "cross-site")
	if a.status != http.StatusOK || !contains(a.body, "Your identity is linked") ||
		!contains(a.body, data["id"].(string)) || !strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	s.offered(ordinaryMCP, token)
	if a = s.visit(back.RequestURI(), cookie, "cross-site"); a.status != http.StatusUnauthorized {
		t.Errorf("the provider's code a second time: %d", a.status)
	}
	if a = s.visit(path, "", ""); a.status != http.StatusConflict || !contains(a.body, "cannot be used") {
		t.Errorf("a used link: %d %s", a.status, a.body)
	}
	if a = s.visit("/en/oauth/link/il_x", "", ""); a.status != http.StatusNotFound || !contains(a.body, "cannot be used") {
		t.Errorf("no link: %d %s", a.status, a.body)
	}

	// A link that ends during the sign-in creates no link.
	_, late := s.started(s.org.Secret)
	a = s.visit("/oauth/link/"+late+"/sign-in", "", "same-origin")
	cookie, _, _ = strings.Cut(a.header.Get("Set-Cookie"), ";")
	back = newVisitor(t).signIn(a.header.Get("Location"))
	s.skew.Add(int64(11 * time.Minute))
	if a = s.visit(back.RequestURI(), cookie, "cross-site"); a.status != http.StatusConflict ||
		!contains(a.body, "no se puede usar") {
		t.Errorf("too late: %d %s", a.status, a.body)
	}
	p.away.Store(true)
	if a = s.visit("/oauth/link/"+late+"/sign-in", "", "same-origin"); a.status != http.StatusSeeOther {
		t.Errorf("the way there needs the provider no more: %d", a.status)
	}
	if a = s.visit(back.RequestURI(), cookie, "cross-site"); a.status != http.StatusServiceUnavailable {
		t.Errorf("the provider is away: %d", a.status)
	}
	s.Audit(t)
}
