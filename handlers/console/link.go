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

// signInCookie is the cookie of a sign-in in progress: language, a random text and the link's code. State, nonce and
// PKCE verifier are derived from the random text, so the service stores nothing. Browsers send the cookie only to
// SignedInRoute, to which the provider redirects them.
const signInCookie = "integrity_sign_in"

func (s linkDoor) cookie(value string, age int) string {
	cookie := http.Cookie{ //nolint:gosec // Secure unless the service itself is http on loopback
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

// linkPage shows the scopes to consent to and the organization.
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

// signIn redirects the browser to the provider. Only linkPage leads here: neither a page of another site nor a mailed
// address can start a sign-in, so every person who returns has seen the consent. (Browsers that do not say where a
// request began are let through: versions from before 2023, or all if the service is plain http.)
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

// signedIn is the address to which the provider redirects the browser. It redeems the cookie's link for the identity
// that has signed in. With the console's cookie it signs in to the console instead.
func (s linkDoor) signedIn(r *http.Request) (any, error) {
	if answer, ours, err := s.fromProvider(r); ours {
		return answer, err
	}
	c := edge.CallOf(r)
	cookie, err := r.Cookie(signInCookie)
	if err != nil && s.console != nil {
		if resp, yes := s.console.elsewhere(r); yes {
			// on loopback the provider redirects to the address, but the console's cookie is bound to the host name
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
	redeemed, err := s.Redeem(r.Context(), c, link, secret, s.OAuthSubject(person.Subject), nil)
	if err != nil {
		return s.linkFailure(shown, err)
	}
	shown.State, shown.LinkID, shown.Endpoint = web.Linked, redeemed.Outcome.ID.String(), s.OAuth.Audience
	return s.showLink(shown, http.StatusOK)
}

// linkFailure explains a refusal to the person.
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
		s.Log.Info("sign-in refused", "error", err)
		shown.State = web.LinkNotSignedIn
		return s.showLink(shown, http.StatusUnauthorized)
	}
	return edge.Response{}, err
}

// showLink renders the page. It deletes the cookie when there is nothing left to sign in for.
func (s linkDoor) showLink(shown web.Link, status int) (edge.Response, error) {
	resp, err := edge.Page(s.site.Link(shown))
	resp.Status = status
	if shown.State != web.LinkOffered {
		resp.Header.Set("Set-Cookie", s.cookie("", -1))
	}
	return resp, err
}

// endpoints returns the pages that link an identity of the provider to a member.
func (s linkDoor) endpoints() (endpoints []edge.Endpoint) {
	if s.OAuth == nil || !s.OAuth.CanSignIn() {
		return nil
	}
	// Codes are secrets and cause requests to the provider, so the limit is lower than for pages.
	shown := edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Answer: edge.AsPage}
	for _, prefix := range []string{"", "/en"} {
		endpoints = append(endpoints,
			edge.Get(prefix+"/oauth/link/{code}", s.linkPage, shown),
			edge.Get(prefix+"/oauth/link/{code}/sign-in", s.signIn, shown))
	}
	return append(endpoints, edge.Get(edge.SignedInRoute, s.signedIn, shown))
}
