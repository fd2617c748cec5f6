package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/web"
	"integrityledger/projections/session"
)

// Signing in to the console with the OpenID provider. The member is found by the address that the provider has
// verified, as with a mailed link, and never by a link of consent (link.go). A link of consent only allows a program
// two narrow scopes, but the console allows everything that a role may do.

// purpose is the purpose of a sign-in with the provider.
type purpose string

const (
	toSignIn purpose = "sign-in"
	toSignUp purpose = "sign-up" // even if the address already belongs to a member
	toProve  purpose = "prove"   // of the signed-in member
)

// providerSignIn is a sign-in with the provider in progress. It exists only in the browser's cookie.
type providerSignIn struct {
	language evidence.Language
	purpose  purpose
	begun    time.Time // in whole seconds
	to       string    // the page to continue to after a proof
	random   string    // the PKCE verifier, of at least 43 characters (RFC 7636, section 4.1)
}

// The time that a person may take at the provider, and the tolerance for its clock. auth_time has whole seconds, so a
// sign-in may seem older than the attempt that caused it.
const (
	providerPatience  = 10 * time.Minute
	providerTolerance = 30 * time.Second
)

func (p providerSignIn) String() string {
	return strings.Join([]string{
		string(p.language), string(p.purpose), strconv.FormatInt(p.begun.Unix(), 10),
		base64.RawURLEncoding.EncodeToString([]byte(p.to)), p.random,
	}, ".")
}

func parseProviderSignIn(text string) (p providerSignIn, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 5 {
		return p, false
	}
	begun, wrong := strconv.ParseInt(parts[2], 10, 64)
	to, alsoWrong := base64.RawURLEncoding.DecodeString(parts[3])
	p = providerSignIn{
		language: evidence.Spanish, purpose: purpose(parts[1]), begun: time.Unix(begun, 0), to: string(to), random: parts[4],
	}
	if parts[0] == string(evidence.English) {
		p.language = evidence.English
	}
	return p, wrong == nil && alsoWrong == nil
}

// providerAttempt returns the attempt of a cookie. State and nonce are derived from the whole cookie with the ledger's
// secret, so a browser that changes the purpose or the beginning cannot compute them.
func (s door) providerAttempt(p providerSignIn) oauth.Attempt {
	derived := func(what string) string {
		mac := hmac.New(sha256.New, s.Installation.Secret)
		mac.Write([]byte("console-" + what + "." + p.String()))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return oauth.Attempt{
		State: derived("state"), Nonce: derived("nonce"), Verifier: p.random, Email: true, Anew: p.purpose == toProve,
	}
}

// toProvider sends the browser to the provider. Only a form of the console leads here, so no other site can start a
// sign-in. It answers a page that forwards the browser: the page's policy does not let a form be redirected to other
// sites, and the provider may use hosts that are not known.
func (s door) toProvider(what purpose) edge.Handler {
	return func(r *http.Request) (any, error) {
		attempt := providerSignIn{
			language: edge.Language(r), purpose: what, begun: edge.CallOf(r).Start.Truncate(time.Second),
			random: rand.Text() + rand.Text(),
		}
		if what == toProve {
			attempt.to = consolePage(attempt.language, edge.Form(r).Get("to"))
		}
		to, err := s.OAuth.SignIn(r.Context(), s.providerAttempt(attempt))
		if err != nil {
			return s.providerFailure(r, attempt, err)
		}
		shown := s.frameOf(r, "provider")
		shown.To, shown.Path = to, web.ConsoleRoot+"/"+string(what)
		resp, err := consolePageOf(s.site.ToProvider(shown))
		resp.Header.Set("Refresh", "0;url="+to)
		resp.Header.Add("Set-Cookie", s.consoleCookie(providerCookie, attempt.String(), providerPatience))
		return resp, err
	}
}

// fromProvider answers a browser that returns from the provider, if the console sent it there; otherwise ours is false.
func (s door) fromProvider(r *http.Request) (answer edge.Response, ours bool, err error) {
	attempt, ok := parseProviderSignIn(s.cookieValue(r, providerCookie))
	if s.console == nil || !ok {
		return answer, false, nil
	}
	asked, q := s.providerAttempt(attempt), r.URL.Query()
	if !hmac.Equal([]byte(q.Get("state")), []byte(asked.State)) {
		return answer, false, nil
	}
	answer, err = s.enterByProvider(r, attempt, asked, q.Get("code"))
	if err == nil {
		answer.Header.Add("Set-Cookie", s.consoleCookie(providerCookie, "", 0))
	}
	return answer, true, err
}

// enterByProvider signs the person in, or proves the person's identity, if the provider confirms it.
func (s door) enterByProvider(
	r *http.Request, attempt providerSignIn, asked oauth.Attempt, code string,
) (edge.Response, error) {
	now := edge.CallOf(r).Start
	if code == "" || now.Sub(attempt.begun) > providerPatience {
		return s.providerMessage(r, attempt, "provider-refused", http.StatusUnauthorized)
	}
	person, err := s.OAuth.SignedIn(r.Context(), asked, code)
	if err != nil {
		return s.providerFailure(r, attempt, err)
	}
	if !domain.ValidEmail(person.Email) {
		return s.providerMessage(r, attempt, "provider-unverified", http.StatusForbidden)
	}
	if person.AuthTime.After(now) {
		person.AuthTime = now
	}
	if attempt.purpose == toProve {
		return s.proveByProvider(r, attempt, person)
	}
	link := &usableLink{provedAt: person.AuthTime}
	link.EmailSHA256 = new(domain.EmailSHA256(person.Email))
	found, err := s.membershipsOf(r, link)
	if err != nil {
		return edge.Response{}, err
	}
	offered := s.mayFound(link, found)
	switch {
	case len(found) == 1 && (!offered || attempt.purpose != toSignUp):
		return s.enterIn(r, attempt.language, found[0], person.AuthTime)
	case len(found) == 0 && !offered:
		return s.providerMessage(r, attempt, "provider-unknown", http.StatusForbidden)
	}
	return s.chooseAfterProvider(r, attempt, link, found, person.Email)
}

// chooseAfterProvider redirects to the page of a link that is not mailed, on which the person chooses or creates an
// organization.
func (s door) chooseAfterProvider(
	r *http.Request, attempt providerSignIn, link *usableLink, found []session.Membership, address string,
) (edge.Response, error) {
	shard := s.Sessions.ShardOf(*link.EmailSHA256)
	if len(found) > 0 {
		shard = found[0].Organization.Shard()
	}
	now := edge.CallOf(r).Start
	browser, cookie := s.browserOf(r)
	id, code, secret := domain.NewSignInLink(now, shard)
	code, link.SecretSHA256 = provedCode(code, secret, link.provedAt)
	link.ID, link.BrowserSHA256, link.KnownBrowser = id, &browser, true
	added, err := s.Sessions.AddSignInLink(r.Context(), link.SignInLink, now)
	if err != nil {
		return edge.Response{}, err
	}
	if !added {
		return s.providerMessage(r, attempt, "provider-often", http.StatusTooManyRequests)
	}
	resp := edge.Redirect(web.Path(attempt.language, web.ConsoleRoot+"/link/"+code))
	for _, cookie := range []string{cookie, s.keepAddress(address)} {
		resp.Header.Add("Set-Cookie", cookie)
	}
	return resp, nil
}

// proveByProvider accepts a sign-in as a proof of identity only if the person has authenticated anew with the member's
// own address: a silent single sign-on does not prove who sits at the browser.
func (s door) proveByProvider(r *http.Request, attempt providerSignIn, person oauth.Person) (edge.Response, error) {
	r, err := s.resume(r, edge.Policy{})
	if err != nil {
		return s.providerMessage(r, attempt, "provider-refused", http.StatusUnauthorized)
	}
	if domain.EmailSHA256(edge.CallOf(r).Session.Email) != domain.EmailSHA256(person.Email) {
		return s.providerMessage(r, attempt, "provider-other", http.StatusForbidden)
	}
	if person.AuthTime.Before(attempt.begun.Add(-providerTolerance)) {
		return s.providerMessage(r, attempt, "provider-stale", http.StatusForbidden)
	}
	cookie, err := s.proved(r, person.AuthTime)
	if err != nil {
		return edge.Response{}, err
	}
	resp := edge.Redirect(consolePage(attempt.language, attempt.to))
	resp.Header.Add("Set-Cookie", cookie)
	resp.Header.Add("Set-Cookie", s.consoleCookie(returnCookie, "", 0))
	return resp, nil
}

// providerFailure explains that the provider is unavailable or has not confirmed the identity.
func (s door) providerFailure(r *http.Request, attempt providerSignIn, err error) (edge.Response, error) {
	switch refused := edge.Refusal(err); {
	case refused == nil:
		return edge.Response{}, err
	case refused.Code == domain.TemporarilyUnavailable:
		s.Log.Warn("identity provider unavailable for a console sign-in", "error", err)
		return s.providerMessage(r, attempt, "provider-away", http.StatusServiceUnavailable)
	case refused.Code == domain.InvalidKey:
		s.Log.Info("console sign-in refused", "error", err)
		return s.providerMessage(r, attempt, "provider-refused", http.StatusUnauthorized)
	}
	return edge.Response{}, err
}

// providerMessage explains why the sign-in failed, and links back to the page where it began.
func (s door) providerMessage(r *http.Request, attempt providerSignIn, name string, status int) (edge.Response, error) {
	shown := s.frameOf(r, name)
	shown.Back = "/" + string(attempt.purpose)
	shown.Language, shown.Path = attempt.language, web.ConsoleRoot+shown.Back
	resp, err := consolePageOf(s.site.Message(shown))
	resp.Status = status
	return resp, err
}

// provedCode adds the time of the proof to the code of a link. The time also becomes part of the secret, so it cannot
// be changed.
func provedCode(code string, secret [32]byte, at time.Time) (string, [32]byte) {
	seconds := "0"
	if !at.IsZero() {
		seconds = strconv.FormatInt(at.Unix(), 10)
	}
	return code + "~" + seconds, provedSecret(secret, seconds)
}

func provedSecret(secret [32]byte, seconds string) [32]byte {
	return sha256.Sum256(append(secret[:], "proved at "+seconds...))
}
