package handlers

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
)

const signedInRoute = "/oauth/signed-in"

// The cookie of a sign-in under way: language, a random text and the link's code. State, nonce and PKCE verifier are
// derived from the random text, so that nothing is kept here. It goes to signedInRoute alone, where the provider sends
// the browser.
const signInCookie = "integrity_sign_in"

func (s *server) setCookie(value string, age int) http.Header {
	cookie := http.Cookie{ //nolint:gosec // Secure, but where the service itself is http on loopback
		Name: signInCookie, Value: value, Path: signedInRoute, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(s.BaseURL, "https://"),
	}
	return http.Header{"Set-Cookie": {cookie.String()}}
}

func attempt(random string) oauth.Attempt {
	derived := func(what string) string {
		sum := sha256.Sum256([]byte(what + "." + random))
		return base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return oauth.Attempt{State: derived("state"), Nonce: derived("nonce"), Verifier: random}
}

// linkPage shows what the person would consent to, and for which organization.
func (s *server) linkPage(r *http.Request) (any, error) {
	code := variable(r, "code")
	c := callOf(r)
	shown := web.Link{Language: language(r), Path: "/oauth/link/" + code, Issuer: s.OAuth.Issuer, State: web.LinkOffered}
	link, _, err := s.linkOf(r.Context(), code)
	if err != nil {
		return s.linkFailure(shown, err)
	}
	if status := link.Status(c.start); status != "pending" {
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
func (s *server) signIn(r *http.Request) (any, error) {
	code, shown := variable(r, "code"), language(r)
	begun := r.Header.Get("Sec-Fetch-Site")
	if _, _, ok := domain.ParseLinkCode(code); !ok || begun != "" && begun != "same-origin" {
		return redirect(web.Path(shown, "/oauth/link/"+code), nil), nil
	}
	raw := make([]byte, 32)
	rand.Read(raw)
	random := base64.RawURLEncoding.EncodeToString(raw)
	url, err := s.OAuth.SignIn(r.Context(), attempt(random))
	if err != nil {
		return nil, err
	}
	return redirect(url, s.setCookie(string(shown)+"."+random+"."+code, int(domain.LinkLifetime.Seconds()))), nil
}

func redirect(url string, header http.Header) response {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Location", url)
	return response{status: http.StatusSeeOther, raw: []byte{}, contentType: htmlType, cache: noStore, header: header}
}

// signedIn is where the provider sends the browser back to. It redeems the link of the cookie for the identity that has signed in.
func (s *server) signedIn(r *http.Request) (any, error) {
	c := callOf(r)
	cookie, err := r.Cookie(signInCookie)
	var parts []string
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	if len(parts) != 3 {
		return s.showLink(web.Link{Language: evidence.Spanish, State: web.LinkNotSignedIn}, http.StatusUnauthorized)
	}
	shown := web.Link{Language: evidence.Spanish, Path: "/oauth/link/" + parts[2], Issuer: s.OAuth.Issuer, State: web.LinkNotSignedIn}
	if parts[0] == string(evidence.English) {
		shown.Language = evidence.English
	}
	try, query := attempt(parts[1]), r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(try.State)) == 0 || query.Get("code") == "" {
		return s.showLink(shown, http.StatusUnauthorized)
	}
	link, secret, err := s.linkOf(r.Context(), parts[2])
	if err != nil {
		return s.linkFailure(shown, err)
	}
	subject, err := s.OAuth.SignedIn(r.Context(), try, query.Get("code"))
	if err != nil {
		return s.linkFailure(shown, err)
	}
	redeemed, err := s.redeem(r.Context(), c, link, secret, s.oauthSubject(subject), nil)
	if err != nil {
		return s.linkFailure(shown, err)
	}
	shown.State, shown.LinkID, shown.Endpoint = web.Linked, redeemed.Outcome.ID.String(), s.OAuth.Audience
	return s.showLink(shown, http.StatusOK)
}

// linkFailure shows what the person can do about a refusal.
func (s *server) linkFailure(shown web.Link, err error) (response, error) {
	refused := refusal(err)
	if refused == nil {
		return response{}, err
	}
	switch refused.Code {
	case domain.NotFound, domain.InvalidState:
		shown.State = web.LinkOver
		return s.showLink(shown, s.codes[refused.Code].Status)
	case domain.InvalidKey:
		s.Log.Info("a sign-in was not accepted", "error", err)
		shown.State = web.LinkNotSignedIn
		return s.showLink(shown, http.StatusUnauthorized)
	}
	return response{}, err
}

// showLink renders the page. Once there is nothing more to sign in for, the cookie goes.
func (s *server) showLink(shown web.Link, status int) (response, error) {
	resp, err := page(s.site.Link(shown))
	resp.status = status
	if shown.State != web.LinkOffered {
		resp.header["Set-Cookie"] = s.setCookie("", -1)["Set-Cookie"]
	}
	return resp, err
}
