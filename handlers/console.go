package handlers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/alexedwards/scs/v2"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
)

// console is what the pages for people who have signed in need besides the server.
type console struct {
	sessions *scs.SessionManager
	origin   *http.CrossOriginProtection
	passkeys *passkeys // nil: the service is named by an address, and no authenticator signs for that
	// Where the service is named by an address of loopback: that address, and the one that its browsers are led to.
	host, named string
}

// recentProof is how fresh a proof must be for what could take an organization over.
const recentProof = 5 * time.Minute

// touchEvery is how often the use of a session is written down.
const touchEvery = time.Minute

// newConsole makes the console, or nil where its cookie would travel in the clear.
//
// scs makes tokens of 256 random bits and gives the store their hashes alone. What it leaves open is decided here and in
// query.Sessions: its middleware would store a session that was ended meanwhile once more, on every request; here the
// use of a session is noted at most once a minute, and only where it still is. A token says nothing of the shard, so the
// cookie's value has that before it: the organization's, which never changes.
func newConsole(c Config) *console {
	named := consoleURL(c.BaseURL)
	base, err := url.Parse(named)
	if err != nil || base.Scheme != "https" && !domain.IsLoopbackHost(base.Hostname()) {
		return nil
	}
	k := &console{origin: http.NewCrossOriginProtection(), sessions: &scs.SessionManager{ // scs.New starts a goroutine for a store of its own
		Store: query.Sessions{Store: c.Store, Now: c.Now}, HashTokenInStore: true, Lifetime: query.SessionMost, Codec: scs.GobCodec{},
	}}
	for _, own := range []string{c.BaseURL, named} {
		if err := k.origin.AddTrustedOrigin(own); err != nil {
			return nil
		}
	}
	if net.ParseIP(base.Hostname()) == nil {
		k.passkeys = newPasskeys(strings.ToLower(base.Hostname()), named)
	}
	if named != c.BaseURL {
		_, k.host, _ = strings.Cut(c.BaseURL, "://")
		k.named = named
	}
	return k
}

// elsewhere leads a browser that has come by the address to the name: passkeys, and links that are mailed, are for that.
func (k *console) elsewhere(r *http.Request) (resp response, yes bool) {
	if yes = k.host != "" && r.Host == k.host && (r.Method == http.MethodGet || r.Method == http.MethodHead); yes {
		resp = redirect(k.named + r.URL.RequestURI())
	}
	return resp, yes
}

// consoleURL is the service's address as browsers must name it in the console: WebAuthn knows names only, and an address of
// loopback has one.
func consoleURL(baseURL string) string {
	base, err := url.Parse(baseURL)
	if err != nil || base.Scheme != "http" || net.ParseIP(base.Hostname()) == nil || !domain.IsLoopbackHost(base.Hostname()) {
		return baseURL
	}
	base.Host = strings.TrimSuffix("localhost:"+base.Port(), ":")
	return base.String()
}

// errSignedOut is answered with the way to sign in.
var errSignedOut = errors.New("nobody has signed in")

// Cookies of the console. On https each is bound to the host alone (prefix __Host-).
const (
	sessionCookie   = "integrity-session"
	browserCookie   = "integrity-browser"   // which browser has asked for a link
	challengeCookie = "integrity-challenge" // which challenge an authenticator is signing
	addressCookie   = "integrity-address"   // with which address the browser signs up, in base64url: nothing else keeps it
	providerCookie  = "integrity-provider"  // a sign-in at the OpenID provider under way: providerSignIn
	knownCookie     = "integrity-known"     // that the browser has signed in with an address
)

func (s *server) consoleCookie(name, value string, age time.Duration) string {
	secure := strings.HasPrefix(s.BaseURL, "https://")
	if secure {
		name = "__Host-" + name
	}
	seconds := int(age.Seconds())
	if value == "" {
		seconds = -1
	}
	cookie := http.Cookie{ //nolint:gosec // Secure, but where the service itself is http on loopback
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure,
	}
	return cookie.String()
}

// cookieValue reads one of the cookies of the console.
func (s *server) cookieValue(r *http.Request, name string) string {
	if strings.HasPrefix(s.BaseURL, "https://") {
		name = "__Host-" + name
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// shardAndSecret splits a cookie's value into the shard and the secret text behind it.
func shardAndSecret(value string) (shard domain.Shard, secret string, ok bool) {
	number, secret, found := strings.Cut(value, ".")
	n, err := strconv.ParseUint(number, 10, 16)
	return domain.Shard(n), secret, found && err == nil && secret != ""
}

func withShard(shard domain.Shard, secret string) string { return fmt.Sprintf("%d.%s", shard, secret) }

// randomSecret draws 256 bits.
func randomSecret() string {
	var raw [32]byte
	rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// resume finds the session of the request's cookie, or refuses with errSignedOut. The request that it returns carries
// the session.
func (s *server) resume(r *http.Request, p policy) (*http.Request, error) {
	shard, token, ok := shardAndSecret(s.cookieValue(r, sessionCookie))
	if !ok {
		return r, errSignedOut
	}
	c, session := callOf(r), &query.Session{}
	ctx, err := s.console.sessions.Load(query.WithSession(r.Context(), shard, session), token)
	if err == nil && s.console.sessions.Token(ctx) == "" {
		err = errSignedOut
	}
	if err != nil {
		return r, err
	}
	c.session, c.access = session, accessOf(session)
	if !p.unattended && c.start.Sub(session.UsedAt) >= touchEvery {
		if _, _, err := s.console.sessions.Commit(ctx); err != nil {
			return r, err
		}
	}
	c.scope = p.scope
	return r.WithContext(ctx), roleAllows(session.Role, p.scope)
}

func accessOf(session *query.Session) domain.Access {
	return domain.Access{
		Console: true, Organization: session.Organization, Member: session.Member, Role: session.Role, Plan: session.Plan,
		Internal: session.Internal, PerMinute: session.PerMinute, Sequence: session.Sequence,
	}
}

// roleAllows refuses a member whose role may not see a page, or do what is on it.
func roleAllows(role domain.Role, scope domain.Scope) error {
	if scope == anyScope || role.Allows(scope) {
		return nil
	}
	return domain.Refuse(domain.RoleRequired, "This page is for the role %s; you are %s.", domain.OneOf(domain.RolesFor(scope)), role)
}

// begin signs a person in to a membership and returns the cookies: that of the session, and of the browser that is known
// now. The token is always a new one, and the session that the browser had ends: nobody else can have chosen it.
// provedAt is when the person proved who it is; zero: nobody knows.
func (s *server) begin(r *http.Request, m query.Membership, provedAt time.Time) (cookies []string, err error) {
	if err := s.end(r); err != nil {
		return nil, err
	}
	now := s.Now()
	session := &query.Session{
		ID: domain.NewID[domain.SessionID](now), Organization: m.Organization, Member: m.Member, Role: m.Role,
		UserAgent: shortUserAgent(r), CreatedAt: now, ProvedAt: provedAt,
	}
	ctx, err := s.console.sessions.Load(query.WithSession(context.WithoutCancel(r.Context()), m.Organization.Shard(), session), "")
	if err != nil {
		return nil, err
	}
	cookie, err := s.renew(ctx, session)
	return []string{cookie, s.knownCookieFor(m.Email, now)}, err
}

// knownBrowserFor is how long a browser is known from its last sign-in on.
const knownBrowserFor = 90 * 24 * time.Hour

// knownCookieFor says that this browser has signed in with an address. Only the last address of a browser is known. The
// cookie grants nothing but more mails in an hour, so nothing takes it back: not signing out, here or everywhere, and no
// change of the member.
func (s *server) knownCookieFor(address string, now time.Time) string {
	return s.consoleCookie(knownCookie, domain.NewKnownBrowser(s.Installation.Secret, domain.EmailSHA256(address), now.Add(knownBrowserFor)), knownBrowserFor)
}

// knowsBrowser reports whether the request's browser has signed in with an address lately.
func (s *server) knowsBrowser(r *http.Request, emailSHA256 [32]byte) bool {
	return domain.KnowsBrowser(s.Installation.Secret, s.cookieValue(r, knownCookie), emailSHA256, callOf(r).start)
}

// renew gives a session a new token, under which it is stored.
func (s *server) renew(ctx context.Context, session *query.Session) (cookie string, err error) {
	session.Begin()
	if err := s.console.sessions.RenewToken(ctx); err != nil {
		return "", err
	}
	if session.Ended() {
		return "", errSignedOut
	}
	token, _, err := s.console.sessions.Commit(ctx)
	return s.consoleCookie(sessionCookie, withShard(session.Organization.Shard(), token), query.SessionMost), err
}

// proved notes when the person has proved who they are, under a new token.
func (s *server) proved(r *http.Request, at time.Time) (cookie string, err error) {
	session := callOf(r).session
	session.ProvedAt = at
	return s.renew(r.Context(), session)
}

// end ends the session of the request's cookie, where it has one.
func (s *server) end(r *http.Request) error {
	shard, token, ok := shardAndSecret(s.cookieValue(r, sessionCookie))
	if !ok {
		return nil
	}
	ctx, err := s.console.sessions.Load(query.WithSession(context.WithoutCancel(r.Context()), shard, &query.Session{}), token)
	if err != nil || s.console.sessions.Token(ctx) == "" {
		return err
	}
	return s.console.sessions.Destroy(ctx)
}

// maxUserAgent bounds what is kept of the name that a browser gives itself.
const maxUserAgent = 200

func shortUserAgent(r *http.Request) string {
	text := []rune(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(r.UserAgent(), "")))
	return string(text[:min(len(text), maxUserAgent)])
}

// recentlyProved refuses, with the way to prove it again, where the last proof of identity is too old.
func (s *server) recentlyProved(r *http.Request) error {
	if c := callOf(r); c.start.Sub(c.session.ProvedAt).Abs() > recentProof { // a clock may have stepped back
		return errProofNeeded
	}
	return nil
}

// proveFirst is where to prove who the person is before something is typed on a page; empty: the last proof is recent.
func (s *server) proveFirst(r *http.Request, page string) string {
	if s.recentlyProved(r) == nil {
		return ""
	}
	return s.proofOf(r, web.Path(language(r), web.ConsoleRoot+page))
}

// proofOf is the page that asks for a proof, and then goes on to a page.
func (s *server) proofOf(r *http.Request, page string) string {
	return web.Path(language(r), web.ConsoleRoot+"/prove") + "?to=" + url.QueryEscape(page)
}

var errProofNeeded = domain.Refuse(domain.InvalidState, "The last proof of identity is too old.")

// onward turns what only the console refuses into the way on: a page, or for a script the address of one.
func (s *server) onward(r *http.Request, p policy, err error) *response {
	var to string
	var status int
	var code domain.Code
	switch {
	case errors.Is(err, errSignedOut):
		to, status = web.Path(language(r), web.ConsoleRoot+"/sign-in"), http.StatusUnauthorized
		code = domain.InvalidKey
	case errors.Is(err, errProofNeeded):
		to, status = s.proofOf(r, s.consolePath(r)), http.StatusForbidden
		code = errProofNeeded.Code
	default:
		return nil
	}
	if p.answer == inEnvelope {
		resp := s.toScript(status, to)
		resp.code = code
		return &resp
	}
	resp := redirect(to)
	if errors.Is(err, errSignedOut) && s.cookieValue(r, sessionCookie) != "" {
		resp.header.Add("Set-Cookie", s.consoleCookie(sessionCookie, "", 0))
	}
	return &resp
}

// toScript tells a script of ours where to go on.
func (s *server) toScript(status int, location string) response {
	body, _ := encode(map[string]string{"location": location})
	return response{status: status, raw: body, cache: noStore}
}

// consolePath is the page of the console to come back to: the request's own, or for a form that of the page which has
// it. Pages of others, and whatever is no page, lead to the first one.
func (s *server) consolePath(r *http.Request) string {
	if r.Method == http.MethodGet {
		return r.URL.EscapedPath()
	}
	from, err := url.Parse(r.Referer())
	if err != nil {
		return web.Path(language(r), web.ConsoleRoot)
	}
	return consolePage(language(r), from.EscapedPath())
}

// consolePage is a path if it is one of the console's, in whatever language, and the first page otherwise.
func consolePage(l evidence.Language, text string) string {
	inner := strings.TrimPrefix(text, "/en")
	if path.Clean(text) != text || strings.ContainsAny(text, `\%?#`) || inner != web.ConsoleRoot && !strings.HasPrefix(inner, web.ConsoleRoot+"/") {
		return web.Path(l, web.ConsoleRoot)
	}
	return text
}

// consolePageOf answers a page of the console, which nobody keeps.
func consolePageOf(body []byte, err error, cookies ...string) (response, error) {
	resp, err := page(body, err)
	resp.cache = noStore
	// Our own forms must name their origin, or they look like those of other sites.
	resp.header.Set("Referrer-Policy", "same-origin")
	for _, cookie := range cookies {
		resp.header.Add("Set-Cookie", cookie)
	}
	return resp, err
}

// onward leads to a page of the console, after a form.
func onward(r *http.Request, path string, cookies ...string) response {
	resp := redirect(web.Path(language(r), web.ConsoleRoot+path))
	for _, cookie := range cookies {
		resp.header.Add("Set-Cookie", cookie)
	}
	return resp
}

// saying adds to the path of a page what it says once, by a name that its template knows.
func saying(path, name string) string {
	path, part, found := strings.Cut(path, "#")
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	if path += mark + "said=" + name; found {
		path += "#" + part
	}
	return path
}

// form is the body of a form.
func form(r *http.Request) url.Values { return callOf(r).form }

// frameOf is what every page of the console shows of the person.
func (s *server) frameOf(r *http.Request, name string) web.Console {
	path, _ := strings.CutPrefix(r.URL.EscapedPath(), "/en")
	shown := web.Console{Language: language(r), Name: name, Path: path, Said: r.URL.Query().Get("said"), Passkeys: s.console.passkeys != nil, Mail: s.LinkMailer != nil, SignUp: s.signUp(), Provider: s.provider()}
	if session := callOf(r).session; session != nil {
		shown.Email, shown.Organization, shown.Role = session.Email, session.OrganizationName, session.Role
	}
	return shown
}

// consoleEndpoints are the pages for people who have signed in, in both languages, and the way in.
func (s *server) consoleEndpoints() []endpoint {
	if s.console == nil {
		return nil
	}
	in := policy{caller: withSession, bucket: pages, answer: asPage}
	act := policy{caller: withSession, bucket: pages, answer: asPage, body: bodyForm}
	script := policy{caller: withSession, bucket: minute}
	spoken := policy{caller: withSession, bucket: minute, body: bodyRequired}
	door := policy{caller: anyone, bucket: pages, answer: asPage}
	look := policy{caller: anyone, bucket: minute, answer: asPage}
	knock := policy{caller: anyone, bucket: minute, answer: asPage, body: bodyForm}
	var endpoints []endpoint
	both := func(method, path string, handle handler, p policy) {
		p.enter = s.checkVisitor
		for _, l := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(endpoints, endpoint{method, web.Path(l, web.ConsoleRoot+path), handle, p})
		}
	}
	both(get, "", s.overview, in)
	both(get, "/", s.withoutSlash, door)
	both(get, "/sign-in", s.signInPage, door)
	both(post, "/sign-in", s.askForLink, knock)
	both(get, "/sign-in/sent", s.linkSent, door)
	if s.signUp() {
		both(get, "/sign-up", s.signUpPage, door)
		both(post, "/sign-up", s.askToSignUp, knock)
		both(get, "/sign-up/sent", s.signUpSent, door)
		both(get, "/sign-up/later", s.signUpLater, door)
	}
	both(get, "/link/{code}", s.signInLinkPage, door)
	both(post, "/link/{code}", s.useSignInLink, knock)
	if !s.NoInvitations {
		both(get, "/invitation/{code}", s.invitationPage, look)
		both(post, "/invitation/{code}", s.acceptInvitation, knock)
	}
	both(post, "/sign-out", s.signOut, policy{caller: anyone, bucket: pages, answer: asPage, body: bodyForm})
	both(get, "/security", s.security, in)
	both(post, "/security/sessions/{sessionId}/end", s.endSession, act)
	both(post, "/security/sign-out-everywhere", s.signOutEverywhere, act)
	both(post, "/security/passkeys/{passkeyId}/remove", s.removePasskey, act)
	both(get, "/prove", s.provePage, in)
	both(post, "/prove", s.proveByMail, act)
	s.historyConsole(both)
	if s.provider() != "" {
		both(post, "/sign-in/provider", s.toProvider(toSignIn), knock)
		both(post, "/prove/provider", s.toProvider(toProve), policy{caller: withSession, bucket: minute, answer: asPage, body: bodyForm})
		if s.signUp() {
			both(post, "/sign-up/provider", s.toProvider(toSignUp), knock)
		}
	}
	s.recordsConsole(both)
	s.webhooksConsole(both)
	s.companiesConsole(both)
	s.keysConsole(both)
	s.documentsConsole(both)
	s.membersConsole(both)
	s.planConsole(both)
	if s.console.passkeys != nil {
		both(post, "/passkey/options", s.passkeyOptions, policy{caller: anyone, bucket: minute})
		both(post, "/passkey", s.passkeySignIn, policy{caller: anyone, bucket: minute, body: bodyRequired})
		both(post, "/prove/options", s.passkeyOptions, script)
		both(post, "/prove/passkey", s.provePasskey, spoken)
		both(post, "/security/passkeys/options", s.newPasskeyOptions, script)
		both(post, "/security/passkeys", s.addPasskey, spoken)
	}
	return endpoints
}

// checkVisitor refuses a browser that another site's page has made write, and finds the session of whoever must have signed in.
func (s *server) checkVisitor(r *http.Request, p policy) (*http.Request, *response, error) {
	if s.console.origin.Check(r) != nil {
		resp, err := s.fromOtherSite(r)
		return r, &resp, err
	}
	if resp, yes := s.console.elsewhere(r); yes {
		return r, &resp, nil
	}
	if p.caller != withSession {
		return r, nil, nil
	}
	r, err := s.resume(r, p)
	return r, nil, err
}

// fromOtherSite answers a request that another site's page has made a browser send.
func (s *server) fromOtherSite(r *http.Request) (response, error) {
	return s.refusedMessage(r, "other-site", http.StatusForbidden, domain.InvalidState)
}

// refusedMessage answers one of the pages that say why nothing was done.
func (s *server) refusedMessage(r *http.Request, name string, status int, code domain.Code) (response, error) {
	resp, err := consolePageOf(s.site.Message(s.frameOf(r, name)))
	resp.status, resp.code = status, code
	return resp, err
}

// browserOf is the hash of the browser's cookie, which is a new one where it has none; cookie is to be set then.
func (s *server) browserOf(r *http.Request) (sum [32]byte, cookie string) {
	value := s.cookieValue(r, browserCookie)
	if raw, err := base64.RawURLEncoding.DecodeString(value); err != nil || len(raw) != 32 {
		value = randomSecret()
	}
	return sha256.Sum256([]byte(value)), s.consoleCookie(browserCookie, value, signUpPatience+query.SignInLifetime)
}

// withHeader is a response with one more header.
func withHeader(resp response, name, value string) response {
	header := http.Header{}
	maps.Copy(header, resp.header)
	header.Set(name, value)
	resp.header = header
	return resp
}
