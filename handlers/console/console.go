// Package console is the face for people who have signed in: pages and forms over the actions, and the sign-in itself.
package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/projections/session"
)

// Config configures the console, in addition to the actions.
type Config struct {
	// NoInvitations removes the page on which invited people accept.
	NoInvitations bool
	// SignUp lets every person who can read the mail of an address create an organization on the free plan. It needs
	// LinkMailer.
	SignUp bool
	// LinkMailer mails links for signing in to the console. Nil means that no mail is sent.
	LinkMailer *LinkMailer
	// LinkCommand is the command that prints a link for signing in, without the address, as this installation runs it. It
	// may name paths: only people at the machine of the service see it. Empty means the command without paths.
	LinkCommand string
	// FirstAddress is the address that the command is shown with before a person has typed one. It may be empty without
	// PrintLink.
	FirstAddress string
	// PrintLink prints a link for signing in with an address where the service runs, or that the address belongs to no
	// active member. The link leads to a page in the given language. Nil means that the service has no terminal.
	PrintLink func(ctx context.Context, l evidence.Language, address string) error
}

// Console is the face for people who have signed in, and the pages for signing in.
type Console struct {
	*action.Actions
	Config
	site    web.ConsolePages
	console *core                                  // nil if the pages that need a session do not exist
	exports *fair.Semaphore[domain.OrganizationID] // exports of histories in progress
	founded *edge.AddressLimit                     // organizations created by sign-up
	printed *edge.AddressLimit                     // links printed in the terminal
}

// The parts of the console.
type (
	door           struct{ *Console } // signing in and up, invitations
	passkeyDoor    struct{ door }
	linkDoor       struct{ door } // links of a member with an identity of a provider
	securityPages  struct{ *Console }
	recordPages    struct{ *Console }
	registerPages  struct{ *Console }
	webhookPages   struct{ *Console }
	companyPages   struct{ *Console }
	keyPages       struct{ *Console }
	documentPages  struct{ *Console }
	memberPages    struct{ *Console }
	planPages      struct{ *Console }
	historyPages   struct{ *Console }
	publisherPages struct{ *Console }
)

// addition adds a page to the console, in both languages.
type addition func(method edge.Method, path string, handle edge.Handler, p edge.Policy)

// New makes the console.
func New(a *action.Actions, site *web.Site, c Config) *Console {
	return &Console{
		Actions: a, Config: c, site: web.ConsolePages{Site: site}, console: newCore(a.Edge),
		exports: newExports(a.Closing),
		founded: &edge.AddressLimit{Max: organizationsPerDay, Window: 24 * time.Hour},
		printed: &edge.AddressLimit{Max: printedPerMinute},
	}
}

// Offered reports whether a service has a console. It has none if its cookies would be sent unencrypted.
func Offered(baseURL string) bool {
	base, err := url.Parse(action.ConsoleURL(baseURL))
	return err == nil && (base.Scheme == "https" || domain.IsLoopbackHost(base.Hostname()))
}

// core has what the pages for signed-in people need in addition to the actions.
type core struct {
	sessions *scs.SessionManager
	origin   *http.CrossOriginProtection
	passkeys *passkeys // nil if the service has an IP address as its host, for which authenticators do not sign
	made     passkeysMade
	// If the service has a loopback address as its host: that host, and the URL to which browsers are redirected.
	host, named string
}

// recentProof is the largest age of a proof of identity for actions that could take over an organization.
const recentProof = 5 * time.Minute

// touchEvery is the interval at which the use of a session is stored.
const touchEvery = time.Minute

// newCore makes the core if the console is offered.
//
// scs makes tokens of 256 random bits and passes only their hashes to the store. Its middleware is not used: on every
// request it would store a session again even if the session had ended meanwhile. Here the use of a session is stored
// at most once a minute, and only if the session still exists. A token does not tell its shard, so the cookie's value
// begins with the organization's shard, which never changes.
func newCore(c *edge.Edge) *core {
	named := action.ConsoleURL(c.BaseURL)
	base, err := url.Parse(named)
	if err != nil || !Offered(c.BaseURL) {
		return nil
	}
	k := &core{origin: http.NewCrossOriginProtection(), sessions: &scs.SessionManager{
		// scs.New starts a goroutine for a store of its own
		Store: session.Sessions{Store: c.Sessions, Now: c.Now}, HashTokenInStore: true, Lifetime: session.Lifetime,
		Codec: scs.GobCodec{},
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

// elsewhere redirects a browser from the loopback address to the host name, for which passkeys and mailed links are
// made.
func (k *core) elsewhere(r *http.Request) (resp edge.Response, yes bool) {
	if yes = k.host != "" && r.Host == k.host && (r.Method == http.MethodGet || r.Method == http.MethodHead); yes {
		resp = edge.Redirect(k.named + r.URL.RequestURI())
	}
	return resp, yes
}

// recentlyProved refuses a request whose last proof of identity is too old. The answer leads to the page for a new
// proof.
func (s *Console) recentlyProved(r *http.Request) error {
	if c := edge.CallOf(r); c.Start.Sub(c.Session.ProvedAt).Abs() > recentProof { // the clock may have been set back
		return errProofNeeded
	}
	return nil
}

// proveFirst returns the page for a new proof of identity, to be visited before typing on a page. It is empty if the
// last proof is recent.
func (s *Console) proveFirst(r *http.Request, page string) string {
	if s.recentlyProved(r) == nil {
		return ""
	}
	return s.proofOf(r, web.Path(edge.Language(r), web.ConsoleRoot+page))
}

// proofOf returns the page that asks for a proof of identity and then continues to page.
func (s *Console) proofOf(r *http.Request, page string) string {
	return web.Path(edge.Language(r), web.ConsoleRoot+"/prove") + "?to=" + url.QueryEscape(page)
}

// proveInTab returns the page for a proof of identity in a new tab, so that no input is lost in the present one.
func (s *Console) proveInTab(r *http.Request) string {
	return s.proofOf(r, web.Path(edge.Language(r), web.ConsoleRoot+"/prove/done"))
}

var errProofNeeded = domain.Refuse(domain.InvalidState, "The last proof of identity is too old.")

// Onward turns refusals that only the console has into the way on: a redirect, or for a script the address of a page.
func (s *Console) Onward(r *http.Request, p edge.Policy, err error) *edge.Response {
	var to string
	var status int
	var code domain.Code
	switch {
	case errors.Is(err, edge.ErrSignedOut):
		page := "/sign-in"
		if s.cookieValue(r, sessionCookie) != "" {
			page = saying(page, "ended")
		}
		to, status = web.Path(edge.Language(r), web.ConsoleRoot+page), http.StatusUnauthorized
		code = domain.InvalidKey
	case errors.Is(err, errProofNeeded):
		to, status = s.proofOf(r, s.consolePath(r)), http.StatusForbidden
		code = errProofNeeded.Code
	default:
		return nil
	}
	if p.Answer == edge.InEnvelope {
		resp := s.toScript(status, to)
		resp.Code = code
		return &resp
	}
	resp := edge.Redirect(to)
	if errors.Is(err, edge.ErrSignedOut) && s.cookieValue(r, sessionCookie) != "" {
		resp.Header.Add("Set-Cookie", s.consoleCookie(sessionCookie, "", 0))
	}
	return &resp
}

// toScript tells a script of the console where to continue.
func (s *Console) toScript(status int, location string) edge.Response {
	body, _ := edge.Encode(map[string]string{"location": location})
	return edge.Response{Status: status, Raw: body, Cache: edge.NoStore}
}

// consolePath returns the page of the console to return to: the request's own page, or for a form the page that
// contains it. Any other origin leads to the first page.
func (s *Console) consolePath(r *http.Request) string {
	if r.Method == http.MethodGet {
		return r.URL.EscapedPath()
	}
	from, err := url.Parse(r.Referer())
	if err != nil {
		return web.Path(edge.Language(r), web.ConsoleRoot)
	}
	return consolePage(edge.Language(r), from.EscapedPath())
}

// consolePage returns text if it is the path of a page of the console in either language, and otherwise the first page.
func consolePage(l evidence.Language, text string) string {
	inner := strings.TrimPrefix(text, "/en")
	if path.Clean(text) != text || strings.ContainsAny(text, `\%?#`) ||
		inner != web.ConsoleRoot && !strings.HasPrefix(inner, web.ConsoleRoot+"/") {
		return web.Path(l, web.ConsoleRoot)
	}
	return text
}

// consolePageOf answers a page of the console, which must not be cached.
func consolePageOf(body []byte, err error, cookies ...string) (edge.Response, error) {
	resp, err := edge.Page(body, err)
	resp.Cache = edge.NoStore
	// The console's own forms must send their origin, or they would look like forms of other sites.
	resp.Header.Set("Referrer-Policy", "same-origin")
	for _, cookie := range cookies {
		resp.Header.Add("Set-Cookie", cookie)
	}
	return resp, err
}

// onward redirects to a page of the console after a form.
func onward(r *http.Request, path string, cookies ...string) edge.Response {
	resp := edge.Redirect(web.Path(edge.Language(r), web.ConsoleRoot+path))
	for _, cookie := range cookies {
		resp.Header.Add("Set-Cookie", cookie)
	}
	return resp
}

// saying adds a message to the path of a page, which shows it once. name is known to the page's template.
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

// frameOf returns the part of a page that all pages of the console share.
func (s *Console) frameOf(r *http.Request, name string) web.Console {
	path, _ := strings.CutPrefix(r.URL.EscapedPath(), "/en")
	shown := web.Console{
		Language: edge.Language(r), Name: name, Path: path, Said: r.URL.Query().Get("said"),
		Passkeys: s.console.passkeys != nil, Mail: s.LinkMailer != nil, SignUp: s.signUp(), Provider: s.provider(),
		Local: s.local(),
	}
	shown.Answers = r.Method == http.MethodPost
	if session := edge.CallOf(r).Session; session != nil {
		shown.Email, shown.Organization, shown.Role = session.Email, session.OrganizationName, session.Role
	}
	return shown
}

// Endpoints returns the pages of the console in both languages.
func (s *Console) Endpoints() []edge.Endpoint {
	entry := door{s}
	endpoints := linkDoor{entry}.endpoints()
	if s.console == nil {
		return endpoints
	}
	in := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage}
	act := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Body: edge.BodyForm}
	script := edge.Policy{Caller: edge.WithSession, Bucket: edge.Minute}
	spoken := edge.Policy{Caller: edge.WithSession, Bucket: edge.Minute, Body: edge.BodyRequired}
	open := edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsPage}
	look := edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Answer: edge.AsPage}
	knock := edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Answer: edge.AsPage, Body: edge.BodyForm}
	var both addition = func(method edge.Method, path string, handle edge.Handler, p edge.Policy) {
		p.Enter = s.checkVisitor
		for _, l := range []evidence.Language{evidence.Spanish, evidence.English} {
			endpoints = append(endpoints, method(web.Path(l, web.ConsoleRoot+path), handle, p))
		}
	}
	safety := securityPages{s}
	both(edge.Get, "", safety.overview, in)
	both(edge.Get, "/", s.WithoutSlash, open)
	both(edge.Get, "/sign-in", entry.signInPage, open)
	both(edge.Post, "/sign-in", entry.askForLink, knock)
	both(edge.Get, "/sign-in/sent", entry.linkSent, open)
	if s.PrintLink != nil {
		both(edge.Post, "/sign-in/terminal", entry.printInTerminal, knock)
		both(edge.Post, "/prove/terminal", entry.printProof, act)
	}
	if s.signUp() {
		both(edge.Get, "/sign-up", entry.signUpPage, open)
		both(edge.Post, "/sign-up", entry.askToSignUp, knock)
		both(edge.Get, "/sign-up/sent", entry.signUpSent, open)
		both(edge.Get, "/sign-up/later", entry.signUpLater, open)
	}
	both(edge.Get, "/link/{code}", entry.signInLinkPage, open)
	both(edge.Post, "/link/{code}", entry.useSignInLink, knock)
	if !s.NoInvitations {
		both(edge.Get, "/invitation/{code}", entry.invitationPage, look)
		both(edge.Post, "/invitation/{code}", entry.acceptInvitation, knock)
	}
	both(
		edge.Post, "/sign-out", entry.signOut,
		edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsPage, Body: edge.BodyForm},
	)
	both(edge.Get, "/security", safety.security, in)
	both(edge.Post, "/security/sessions/{sessionId}/end", safety.endSession, act)
	both(edge.Post, "/security/sign-out-everywhere", safety.signOutEverywhere, act)
	both(edge.Get, "/security/passkeys/{passkeyId}/remove", safety.removePasskeyPage, in)
	both(edge.Post, "/security/passkeys/{passkeyId}/remove", safety.removePasskey, act)
	both(edge.Get, "/prove", safety.provePage, in)
	both(edge.Get, "/prove/done", safety.proved, in)
	both(edge.Post, "/prove", safety.proveByMail, act)
	historyPages{s}.endpoints(both)
	if s.provider() != "" {
		both(edge.Post, "/sign-in/provider", entry.toProvider(toSignIn), knock)
		both(
			edge.Post, "/prove/provider", entry.toProvider(toProve),
			edge.Policy{Caller: edge.WithSession, Bucket: edge.Minute, Answer: edge.AsPage, Body: edge.BodyForm},
		)
		if s.signUp() {
			both(edge.Post, "/sign-up/provider", entry.toProvider(toSignUp), knock)
		}
	}
	registerPages{s}.endpoints(both)
	recordPages{s}.endpoints(both)
	webhookPages{s}.endpoints(both)
	companyPages{s}.endpoints(both)
	keyPages{s}.endpoints(both)
	documentPages{s}.endpoints(both)
	memberPages{s}.endpoints(both)
	planPages{s}.endpoints(both)
	publisherPages{s}.endpoints(both)
	if s.console.passkeys != nil {
		passkeys := passkeyDoor{entry}
		both(edge.Post, "/passkey/options", passkeys.passkeyOptions, edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute})
		both(
			edge.Post, "/passkey", passkeys.passkeySignIn,
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Body: edge.BodyRequired},
		)
		both(edge.Post, "/prove/options", passkeys.passkeyOptions, script)
		both(edge.Post, "/prove/passkey", passkeys.provePasskey, spoken)
		both(edge.Post, "/security/passkeys/options", passkeys.newPasskeyOptions, script)
		both(edge.Post, "/security/passkeys", passkeys.addPasskey, spoken)
	}
	return endpoints
}

// checkVisitor refuses a request that changes something and was caused by another site's page. It finds the session if
// the endpoint needs one.
func (s *Console) checkVisitor(r *http.Request, p edge.Policy) (*http.Request, *edge.Response, error) {
	if s.console.origin.Check(r) != nil {
		resp, err := s.fromOtherSite(r)
		return r, &resp, err
	}
	if resp, yes := s.console.elsewhere(r); yes {
		return r, &resp, nil
	}
	if p.Caller != edge.WithSession {
		return r, nil, nil
	}
	r, err := s.resume(r, p)
	return r, nil, err
}

// fromOtherSite answers a request that another site's page caused.
func (s *Console) fromOtherSite(r *http.Request) (edge.Response, error) {
	return s.refusedMessage(r, "other-site", http.StatusForbidden, domain.InvalidState)
}

// refusedMessage answers a page that says why nothing was done.
func (s *Console) refusedMessage(r *http.Request, name string, status int, code domain.Code) (edge.Response, error) {
	shown := s.frameOf(r, name)
	if name == "other-site" { // the path of the form may have no page
		shown.Path = web.ConsoleRoot
	}
	s.withoutMail(r, &shown, "")
	resp, err := consolePageOf(s.site.Message(shown))
	resp.Status, resp.Code = status, code
	return resp, err
}

// browserOf returns the hash of the browser's cookie, and the cookie to set. Without a cookie it makes a new one.
func (s *Console) browserOf(r *http.Request) (sum [32]byte, cookie string) {
	value := s.cookieValue(r, browserCookie)
	if raw, err := base64.RawURLEncoding.DecodeString(value); err != nil || len(raw) != 32 {
		value = randomSecret()
	}
	return sha256.Sum256([]byte(value)), s.consoleCookie(browserCookie, value, signUpPatience+session.LinkLifetime)
}

// provider returns the host of the OpenID provider that signs people in to the console, or an empty string if there is
// no provider.
func (s *Console) provider() string {
	if s.OAuth == nil || !s.OAuth.CanSignIn() {
		return ""
	}
	issuer, err := url.Parse(s.OAuth.Issuer)
	if err != nil {
		return ""
	}
	return issuer.Host
}

// textOf returns the text typed into a field with LF line ends; forms send CRLF.
func textOf(form url.Values, name string) string {
	return strings.TrimSpace(strings.ReplaceAll(form.Get(name), "\r\n", "\n"))
}

// problem returns the explanation of a refused form for its page, and the page's status. Both are zero if err is nil.
// An error that other input would not correct is returned as it is.
func (s *Console) problem(r *http.Request, err error) (web.Problem, int, error) {
	if err == nil {
		return web.Problem{}, 0, nil
	}
	if errors.Is(err, errProofNeeded) {
		return web.Problem{Prove: s.proveInTab(r)}, http.StatusForbidden, nil
	}
	refused := edge.Refusal(err)
	unrelated := []domain.Code{
		domain.NotFound, domain.RecordNotFound, domain.RoleRequired, domain.TemporarilyUnavailable, domain.Internal,
	}
	if refused == nil || refused.Limit != nil || slices.Contains(unrelated, refused.Code) {
		return web.Problem{}, 0, err
	}
	code := s.Codes[refused.Code]
	p := web.Problem{Fields: fieldsOf(err)}
	if len(p.Fields) == 0 {
		text := code.Text[edge.Language(r)]
		p.Text = text.Cause + " " + text.Remedy
	}
	return p, code.Status, nil
}

// signUp reports whether people may create organizations by themselves.
func (s *Console) signUp() bool { return s.SignUp && s.LinkMailer != nil }

// FailurePage shows in the console why a request failed: which limit was reached, or the sentence of the refusal. It
// returns nil for pages outside the console and for addresses that no page has.
func (s *Console) FailurePage(r *http.Request, resp edge.Response, err error) *edge.Response {
	l, path := edge.Language(r), r.URL.EscapedPath()
	if s.console == nil || consolePage(l, path) != path ||
		edge.CallOf(r).Session == nil && resp.Status == http.StatusNotFound {
		return nil
	}
	refused, _, failure := s.ExplainIn(l, err)
	shown := web.Limit{Failure: failure}
	switch {
	case refused.Limit != nil:
		shown.Failure, shown.Console, shown.Most = nil, s.frameOf(r, refused.Limit.Name+"-limit"), refused.Limit.Most
		if refused.RetryAfter > 0 {
			shown.Until = new(s.Now().Add(refused.RetryAfter).Round(time.Second))
		}
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		shown.Console = s.frameOf(r, "not-shown")
	case resp.Status < http.StatusInternalServerError:
		shown.Console = s.frameOf(r, "not-done")
	default:
		shown.Console = s.frameOf(r, "unknown-outcome")
	}
	if r.Method == http.MethodPost { // the path of the form has no page
		shown.Console.To = s.consolePath(r)
		shown.Console.Path, _ = strings.CutPrefix(shown.Console.To, "/en")
	}
	page, err := consolePageOf(s.site.Limit(shown))
	if err != nil {
		return &resp
	}
	resp.Failure, resp.Raw, resp.ContentType = nil, page.Raw, page.ContentType
	maps.Copy(resp.Header, page.Header)
	return &resp
}
