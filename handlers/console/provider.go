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

// Signing in to the console by the OpenID provider. Who the person is follows from the address that the provider has
// verified, as from a mailed link, and never from a link of consent (link.go): whoever has one has allowed a program of
// theirs two narrow scopes, and the console allows all that a role does.

// purpose is what a sign-in at the provider is for.
type purpose string

const (
	toSignIn purpose = "sign-in"
	toSignUp purpose = "sign-up" // also where the address is a member already
	toProve  purpose = "prove"   // for the member who has signed in
)

// providerSignIn is a sign-in at the provider under way. The browser keeps it in a cookie, nobody else does.
type providerSignIn struct {
	language evidence.Language
	purpose  purpose
	begun    time.Time // in whole seconds
	to       string    // the page that a proof leads to
	random   string    // the PKCE verifier, of at least 43 characters (RFC 7636, section 4.1)
}

// How long a person may take at the provider, and how much its clock may differ from this one: auth_time has whole
// seconds, and a sign-in that answers an attempt may seem to be older than it.
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

// providerAttempt is what the provider is asked. State and nonce come from the whole cookie, under the ledger's secret:
// a browser that says another purpose or beginning than it was given has neither.
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

// toProvider sends the browser to the provider. Only a form of our own pages leads here, so that no other site begins a
// sign-in. The answer is a page that leads on: browsers do not follow a form's redirect to other sites, whose number
// nobody knows.
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
		shown.To = to
		resp, err := consolePageOf(s.site.ToProvider(shown))
		resp.Header.Set("Refresh", "0;url="+to)
		resp.Header.Add("Set-Cookie", s.consoleCookie(providerCookie, attempt.String(), providerPatience))
		return resp, err
	}
}

// fromProvider answers a browser that the provider has sent back, where it was sent there by the console; ours is false
// for any other.
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

// enterByProvider signs the person in, or proves who the person is, by what the provider confirms.
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

// chooseAfterProvider leads to the page of a link that nobody is mailed, on which the person chooses an organization,
// or makes one.
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

// proveByProvider takes a sign-in for a proof only where the person has signed in anew, with the member's own address:
// a silent single sign-on proves nothing about who sits there.
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
	return resp, nil
}

// providerFailure says in words that the provider is away, or has not confirmed who the person is.
func (s door) providerFailure(r *http.Request, attempt providerSignIn, err error) (edge.Response, error) {
	switch refused := edge.Refusal(err); {
	case refused == nil:
		return edge.Response{}, err
	case refused.Code == domain.TemporarilyUnavailable:
		s.Log.Warn("the identity provider cannot be asked for a sign-in to the console", "error", err)
		return s.providerMessage(r, attempt, "provider-away", http.StatusServiceUnavailable)
	case refused.Code == domain.InvalidKey:
		s.Log.Info("a sign-in to the console was not accepted", "error", err)
		return s.providerMessage(r, attempt, "provider-refused", http.StatusUnauthorized)
	}
	return edge.Response{}, err
}

// providerMessage says why nobody has signed in, and leads back to the page where it was begun.
func (s door) providerMessage(r *http.Request, attempt providerSignIn, name string, status int) (edge.Response, error) {
	shown := s.frameOf(r, name)
	shown.Back = "/" + string(attempt.purpose)
	shown.Language, shown.Path = attempt.language, web.ConsoleRoot+shown.Back
	resp, err := consolePageOf(s.site.Message(shown))
	resp.Status = status
	return resp, err
}

// provedCode adds to the code of a link when its person was proved, and to its secret, so that it cannot be changed.
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
