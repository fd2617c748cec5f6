package handlers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewLink(l domain.OAuthLink, now time.Time) wire.OAuthLink {
	return wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(now), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: evidence.FormatTime(l.CreatedAt), ExpiresAt: evidence.FormatTime(l.ExpiresAt),
		LinkedAt: timeOrNull(l.LinkedAt), WithdrawnAt: timeOrNull(l.WithdrawnAt),
	}
}

// LinkURL is the page on which a code is redeemed.
func LinkURL(baseURL, code string) string { return baseURL + "/oauth/link/" + code }

// startLink begins a link for the key's own member. It can have no scope that the key has not.
func (s *server) startLink(ctx context.Context, c *call, scopes []domain.Scope) (any, error) {
	if scopes == nil {
		scopes = slices.DeleteFunc(domain.OAuthScopes(), func(scope domain.Scope) bool { return c.access.Authorize(scope) != nil })
	}
	if len(scopes) == 0 {
		return nil, domain.Refuse(domain.MissingScope, "This key does not have the scope %s, so there is nothing to consent to.", domain.OneOf(domain.OAuthScopes()))
	}
	for _, scope := range scopes {
		if err := c.access.Authorize(scope); err != nil {
			return nil, err
		}
	}
	command, code := domain.NewStartLink(domain.StartLink{Origin: c.origin(), Member: c.access.Member, Scopes: scopes}, s.Now())
	return s.done(ctx, command, func() any {
		answer := wire.StartedLink{OAuthLink: viewLink(command.Outcome, c.start), Code: code}
		if s.OAuth.CanSignIn() {
			answer.URL = new(LinkURL(s.BaseURL, code))
		}
		return response{status: http.StatusCreated, data: answer}
	})
}

// readOAuthScopes reads the optional member scopes; nil where it is absent.
func readOAuthScopes(o *strictjson.Object) []domain.Scope {
	scopes := readNames(o, "scopes", domain.OAuthScopes(), codeUnknownValue, "must be verify:read or artifacts:read")
	if o.Has("scopes") && o.OK("scopes") && len(scopes) == 0 {
		o.Problem("scopes", strictjson.CodeRange, "must name at least one scope")
	}
	return scopes
}

// listLinks shows the links of the key's member, newest first; those of all members to an owner or admin.
func (s *server) listLinks(r *http.Request) (any, error) {
	q := newQuery(r)
	all := q.Bool("all", strictjson.Optional)
	limit, offset := readPage(q)
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	c := callOf(r)
	member := c.access.Member
	if all {
		if !c.access.Role.ManagesLinks() {
			return nil, domain.Refuse(domain.RoleRequired, "The links of all members are for an owner or admin; the key's member is %s.", c.access.Role)
		}
		member = domain.MemberID{}
	}
	links, total, err := s.Store.Links(r.Context(), c.access.Organization, member, limit, offset)
	views := each(links, func(l domain.OAuthLink) wire.OAuthLink { return viewLink(l, c.start) })
	return wire.OAuthLinks{Links: views, Limit: limit, Offset: offset, Total: total}, err
}

// withdrawConsent ends a link of the key's member; of any member for an owner or admin.
func (s *server) withdrawConsent(r *http.Request) (any, error) {
	c := callOf(r)
	id := pathID(r, "linkId", domain.ParseID[domain.LinkID])
	command := &domain.WithdrawConsent{Origin: origin(r), Link: id, Member: c.access.Member}
	return s.done(r.Context(), command, func() any { return viewLinkChange(command.Outcome, command.Replayed, c.start) })
}

func viewLinkChange(link domain.OAuthLink, replayed bool, now time.Time) wire.ChangedLink {
	return wire.ChangedLink{OAuthLink: viewLink(link, now), Replayed: replayed}
}

// redeemLink ties the identity of the access token that it comes with to the member of the link. The code is looked at
// first, so that the provider is asked on behalf of invited people only.
func (s *server) redeemLink(r *http.Request) (any, error) {
	raw, ok := bearerText(r.Header)
	if !ok {
		return nil, s.refuseKey(r, domain.Refuse(domain.InvalidKey, "Send the access token of the identity as Authorization: Bearer <ACCESS_TOKEN>."))
	}
	var code string
	var scopes []domain.Scope
	if err := decode(r, func(o *strictjson.Object) {
		code = o.Match("code", strictjson.Required, func(text string) bool { _, _, ok := domain.ParseLinkCode(text); return ok }, "must be the code of a link (il_…)")
		scopes = readOAuthScopes(o)
	}); err != nil {
		return nil, err
	}
	c := callOf(r)
	link, secret, err := s.linkOf(r.Context(), code)
	if err != nil {
		return nil, err
	}
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		return nil, s.refuseKey(r, err)
	}
	redeemed, err := s.redeem(r.Context(), c, link, secret, s.oauthSubject(token.Subject), scopes)
	if err != nil {
		return nil, err
	}
	return viewLinkChange(redeemed.Outcome, redeemed.Replayed, c.start), nil
}

// linkOf finds the link of a code, whatever its state; a wrong secret finds none.
func (s *server) linkOf(ctx context.Context, code string) (link domain.OAuthLink, secretSHA256 [32]byte, err error) {
	id, secretSHA256, ok := domain.ParseLinkCode(code)
	if !ok {
		return link, secretSHA256, query.UnknownLink()
	}
	link, err = s.Store.Link(ctx, id)
	if err == nil && link.SecretSHA256 != secretSHA256 {
		return domain.OAuthLink{}, secretSHA256, query.UnknownLink()
	}
	return link, secretSHA256, err
}

// redeem claims the OAuth subject, then redeems the link in the member's name.
func (s *server) redeem(ctx context.Context, c *call, link domain.OAuthLink, secret [32]byte, subject domain.OAuthSubject, scopes []domain.Scope) (*domain.RedeemLink, error) {
	if err := link.Redeemable(secret, subject, c.start); err != nil {
		return nil, err
	}
	if err := s.Store.ClaimOAuthSubject(ctx, subject, link, c.start); err != nil {
		return nil, err
	}
	command := &domain.RedeemLink{
		Origin: domain.Origin{Organization: link.Organization, Actor: domain.MemberActor(link.Member), RequestID: c.requestID},
		Link:   link.ID, SecretSHA256: secret, Subject: subject, Scopes: scopes,
	}
	return command, s.execute(ctx, command)
}

const signedInRoute = "/oauth/signed-in"

// The cookie of a sign-in under way: language, a random text and the link's code. State, nonce and PKCE verifier are
// derived from the random text, so that nothing is kept here. It goes to signedInRoute alone, where the provider sends
// the browser.
const signInCookie = "integrity_sign_in"

func (s *server) cookie(value string, age int) string {
	cookie := http.Cookie{ //nolint:gosec // Secure, but where the service itself is http on loopback
		Name: signInCookie, Value: value, Path: signedInRoute, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(s.BaseURL, "https://"),
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
		return redirect(web.Path(shown, "/oauth/link/"+code)), nil
	}
	random := rand.Text() + rand.Text() // a PKCE verifier has at least 43 characters (RFC 7636, section 4.1)
	url, err := s.OAuth.SignIn(r.Context(), attempt(random))
	if err != nil {
		return nil, err
	}
	resp := redirect(url)
	resp.header.Set("Set-Cookie", s.cookie(string(shown)+"."+random+"."+code, int(domain.LinkLifetime.Seconds())))
	return resp, nil
}

func redirect(url string) response {
	return response{status: http.StatusSeeOther, raw: []byte{}, contentType: htmlType, cache: noStore, header: http.Header{"Location": {url}}}
}

// signedIn is where the provider sends the browser back to. It redeems the link of the cookie for the identity that has
// signed in, or signs in to the console, whose cookie is another.
func (s *server) signedIn(r *http.Request) (any, error) {
	if answer, ours, err := s.fromProvider(r); ours {
		return answer, err
	}
	c := callOf(r)
	cookie, err := r.Cookie(signInCookie)
	if err != nil && s.console != nil {
		if resp, yes := s.console.elsewhere(r); yes { // on loopback the provider knows the address, and the console's cookie is the name's
			return resp, nil
		}
	}
	var parts []string
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	if len(parts) != 3 && s.console != nil {
		return s.providerMessage(r, providerSignIn{language: evidence.Spanish, purpose: toSignIn}, "provider-refused", http.StatusUnauthorized)
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
	person, err := s.OAuth.SignedIn(r.Context(), try, query.Get("code"))
	if err != nil {
		return s.linkFailure(shown, err)
	}
	redeemed, err := s.redeem(r.Context(), c, link, secret, s.oauthSubject(person.Subject), nil)
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
		resp.header.Set("Set-Cookie", s.cookie("", -1))
	}
	return resp, err
}
