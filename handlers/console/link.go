package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
)

// The cookie of a sign-in under way: language, a random text and the link's code. State, nonce and PKCE verifier are
// derived from the random text, so that nothing is kept here. It goes to SignedInRoute alone, where the provider sends
// the browser.
const signInCookie = "integrity_sign_in"

func (s linkDoor) cookie(value string, age int) string {
	cookie := http.Cookie{ //nolint:gosec // Secure, but where the service itself is http on loopback
		Name: signInCookie, Value: value, Path: edge.SignedInRoute, MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
		Secure:   strings.HasPrefix(s.BaseURL, "https://"),
	}
	return cookie.String()
}

func attempt(random string) oauth.Attempt {
	derived := func(what string) string {
		sum := sha256.Sum256([]byte(what + "." + random))
		return base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return oauth.Attempt{State: derived("state"), Nonce: derived("nonce"), Verifier: random}
}

// linkPage shows what the person would consent to, and for which organization.
func (s linkDoor) linkPage(r *http.Request) (any, error) {
	code := edge.Variable(r, "code")
	c := edge.CallOf(r)
	shown := web.Link{
		Language: edge.Language(r), Path: "/oauth/link/" + code, Issuer: s.OAuth.Issuer, State: web.LinkOffered,
	}
	link, _, err := s.LinkOf(r.Context(), code)
	if err != nil {
		return s.linkFailure(shown, err)
	}
	if status := link.Status(c.Start); status != "pending" {
		shown.State = web.LinkOver
		return s.showLink(shown, http.StatusConflict)
	}
	organization, err := s.Store.Organization(r.Context(), link.Organization)
	if err != nil {
		return nil, err
	}
	shown.Organization, shown.ExpiresAt, shown.Scopes = organization.Name, link.ExpiresAt, link.Scopes
	return s.showLink(shown, http.StatusOK)
}

// signIn sends the browser to the provider. Only linkPage leads here: neither a page of another site nor an address
// that was mailed can begin it, so whoever comes back has seen what they consent to. (Browsers that do not say where a
// request began, because they are of before 2023 or the service is plain http, are let through.)
func (s linkDoor) signIn(r *http.Request) (any, error) {
	code, shown := edge.Variable(r, "code"), edge.Language(r)
	begun := r.Header.Get("Sec-Fetch-Site")
	if _, _, ok := domain.ParseLinkCode(code); !ok || begun != "" && begun != "same-origin" {
		return edge.Redirect(web.Path(shown, "/oauth/link/"+code)), nil
	}
	random := rand.Text() + rand.Text() // a PKCE verifier has at least 43 characters (RFC 7636, section 4.1)
	url, err := s.OAuth.SignIn(r.Context(), attempt(random))
	if err != nil {
		return nil, err
	}
	resp := edge.Redirect(url)
	resp.Header.Set("Set-Cookie", s.cookie(string(shown)+"."+random+"."+code, int(domain.LinkLifetime.Seconds())))
	return resp, nil
}

// signedIn is where the provider sends the browser back to. It redeems the link of the cookie for the identity that has
// signed in, or signs in to the console, whose cookie is another.
func (s linkDoor) signedIn(r *http.Request) (any, error) {
	if answer, ours, err := s.fromProvider(r); ours {
		return answer, err
	}
	c := edge.CallOf(r)
	cookie, err := r.Cookie(signInCookie)
	if err != nil && s.console != nil {
		if resp, yes := s.console.elsewhere(r); yes {
			// on loopback the provider knows the address, and the console's cookie is the name's
			return resp, nil
		}
	}
	var parts []string
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	if len(parts) != 3 && s.console != nil {
		return s.providerMessage(
			r, providerSignIn{language: evidence.Spanish, purpose: toSignIn}, "provider-refused", http.StatusUnauthorized,
		)
	}
	if len(parts) != 3 {
		return s.showLink(web.Link{Language: evidence.Spanish, State: web.LinkNotSignedIn}, http.StatusUnauthorized)
	}
	shown := web.Link{
		Language: evidence.Spanish, Path: "/oauth/link/" + parts[2], Issuer: s.OAuth.Issuer, State: web.LinkNotSignedIn,
	}
	if parts[0] == string(evidence.English) {
		shown.Language = evidence.English
	}
	try, query := attempt(parts[1]), r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(try.State)) == 0 || query.Get("code") == "" {
		return s.showLink(shown, http.StatusUnauthorized)
	}
	link, secret, err := s.LinkOf(r.Context(), parts[2])
	if err != nil {
		return s.linkFailure(shown, err)
	}
	person, err := s.OAuth.SignedIn(r.Context(), try, query.Get("code"))
	if err != nil {
		return s.linkFailure(shown, err)
	}
	redeemed, err := s.Redeem(r.Context(), c, link, secret, s.OauthSubject(person.Subject), nil)
	if err != nil {
		return s.linkFailure(shown, err)
	}
	shown.State, shown.LinkID, shown.Endpoint = web.Linked, redeemed.Outcome.ID.String(), s.OAuth.Audience
	return s.showLink(shown, http.StatusOK)
}

// linkFailure shows what the person can do about a refusal.
func (s linkDoor) linkFailure(shown web.Link, err error) (edge.Response, error) {
	refused := edge.Refusal(err)
	if refused == nil {
		return edge.Response{}, err
	}
	switch refused.Code {
	case domain.NotFound, domain.InvalidState:
		shown.State = web.LinkOver
		return s.showLink(shown, s.Codes[refused.Code].Status)
	case domain.InvalidKey:
		s.Log.Info("a sign-in was not accepted", "error", err)
		shown.State = web.LinkNotSignedIn
		return s.showLink(shown, http.StatusUnauthorized)
	}
	return edge.Response{}, err
}

// showLink renders the page. Once there is nothing more to sign in for, the cookie goes.
func (s linkDoor) showLink(shown web.Link, status int) (edge.Response, error) {
	resp, err := edge.Page(s.site.Link(shown))
	resp.Status = status
	if shown.State != web.LinkOffered {
		resp.Header.Set("Set-Cookie", s.cookie("", -1))
	}
	return resp, err
}

// endpoints are the pages that tie an identity of a provider to a member.
func (s linkDoor) endpoints() (endpoints []edge.Endpoint) {
	if s.OAuth == nil || !s.OAuth.CanSignIn() {
		return nil
	}
	// Their codes are secrets, and the provider is asked: not as often as a page.
	shown := edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Answer: edge.AsPage}
	for _, prefix := range []string{"", "/en"} {
		endpoints = append(endpoints,
			edge.Get(prefix+"/oauth/link/{code}", s.linkPage, shown),
			edge.Get(prefix+"/oauth/link/{code}/sign-in", s.signIn, shown))
	}
	return append(endpoints, edge.Get(edge.SignedInRoute, s.signedIn, shown))
}
