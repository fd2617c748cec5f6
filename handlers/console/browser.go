package console

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"integrityledger/domain"
	"integrityledger/handlers/edge"
	"integrityledger/projections/session"
)

// Cookies of the console. On https each is bound to the host (prefix __Host-).
const (
	sessionCookie   = "integrity-session"
	browserCookie   = "integrity-browser"   // the browser that asked for a link
	challengeCookie = "integrity-challenge" // the challenge that an authenticator is signing
	addressCookie   = "integrity-address"   // the address that signs up, in base64url: it is stored nowhere else
	providerCookie  = "integrity-provider"  // a sign-in with the OpenID provider in progress: providerSignIn
	knownCookie     = "integrity-known"     // the browser has signed in with an address
	passkeyCookie   = "integrity-passkey"   // a passkey was made or used in the browser
	returnCookie    = "integrity-return"    // the page that asked a member for a proof of identity
)

func (s *Console) consoleCookie(name, value string, age time.Duration) string {
	secure := strings.HasPrefix(s.BaseURL, "https://")
	if secure {
		name = "__Host-" + name
	}
	seconds := int(age.Seconds())
	if value == "" {
		seconds = -1
	}
	cookie := http.Cookie{ //nolint:gosec // Secure unless the service itself is http on loopback
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure,
	}
	return cookie.String()
}

// cookieValue reads one of the cookies of the console.
func (s *Console) cookieValue(r *http.Request, name string) string {
	if strings.HasPrefix(s.BaseURL, "https://") {
		name = "__Host-" + name
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// shardAndSecret splits a cookie's value into its shard and the secret after it.
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

// resume finds the session of the request's cookie, or refuses with ErrSignedOut. The returned request carries the
// session.
func (s *Console) resume(r *http.Request, p edge.Policy) (*http.Request, error) {
	shard, token, ok := shardAndSecret(s.cookieValue(r, sessionCookie))
	if !ok {
		return r, edge.ErrSignedOut
	}
	c, current := edge.CallOf(r), &session.Session{}
	ctx, err := s.console.sessions.Load(session.With(r.Context(), shard, current), token)
	if err == nil && s.console.sessions.Token(ctx) == "" {
		err = edge.ErrSignedOut
	}
	if err != nil {
		return r, err
	}
	c.Session, c.Access = current, accessOf(current)
	if !p.Unattended && c.Start.Sub(current.UsedAt) >= touchEvery {
		if _, _, err := s.console.sessions.Commit(ctx); err != nil {
			return r, err
		}
	}
	c.Scope = p.Scope
	return r.WithContext(ctx), roleAllows(current.Role, p.Scope)
}

func accessOf(current *session.Session) domain.Access {
	return domain.Access{
		Console: true, Organization: current.Organization, Member: current.Member, Role: current.Role, Plan: current.Plan,
		Internal: current.Internal, PerMinute: current.PerMinute, Sequence: current.Sequence,
	}
}

// roleAllows refuses a member whose role may not use a page.
func roleAllows(role domain.Role, scope domain.Scope) error {
	if scope == edge.AnyScope || role.Allows(scope) {
		return nil
	}
	return domain.Refuse(
		domain.RoleRequired, "This page is for the role %s; you are %s.", domain.OneOf(domain.RolesFor(scope)), role,
	)
}

// begin signs a person in to a membership and returns the cookies of the session and of the known browser. The token is
// always new, and a session that the browser had before ends, so no attacker can have chosen the token in advance.
// provedAt is the time of the proof of identity, or zero if it is unknown.
func (s *Console) begin(r *http.Request, m session.Membership, provedAt time.Time) (cookies []string, err error) {
	if err := s.end(r); err != nil {
		return nil, err
	}
	now := s.Now()
	current := &session.Session{
		ID: domain.NewID[domain.SessionID](now), Organization: m.Organization, Member: m.Member, Role: m.Role,
		UserAgent: shortUserAgent(r), CreatedAt: now, ProvedAt: provedAt,
	}
	ctx, err := s.console.sessions.Load(
		session.With(context.WithoutCancel(r.Context()), m.Organization.Shard(), current), "",
	)
	if err != nil {
		return nil, err
	}
	cookie, err := s.renew(ctx, current)
	return []string{cookie, s.knownCookieFor(m.Email, now)}, err
}

// knownBrowserFor is how long a browser is known after its last sign-in.
const knownBrowserFor = 90 * 24 * time.Hour

// knownCookieFor returns a cookie that says that this browser has signed in with an address. Only the last address of a
// browser is known. The cookie only allows more mails in an hour, so nothing revokes it: neither signing out, here or
// everywhere, nor a change of the member.
func (s *Console) knownCookieFor(address string, now time.Time) string {
	return s.consoleCookie(
		knownCookie, domain.NewKnownBrowser(s.Installation.Secret, domain.EmailSHA256(address), now.Add(knownBrowserFor)),
		knownBrowserFor,
	)
}

// knowsBrowser reports whether the request's browser has recently signed in with an address.
func (s *Console) knowsBrowser(r *http.Request, emailSHA256 [32]byte) bool {
	return domain.KnowsBrowser(s.Installation.Secret, s.cookieValue(r, knownCookie), emailSHA256, edge.CallOf(r).Start)
}

// renew stores a session under a new token.
func (s *Console) renew(ctx context.Context, current *session.Session) (cookie string, err error) {
	current.Begin()
	if err := s.console.sessions.RenewToken(ctx); err != nil {
		return "", err
	}
	if current.Ended() {
		return "", edge.ErrSignedOut
	}
	token, _, err := s.console.sessions.Commit(ctx)
	return s.consoleCookie(sessionCookie, withShard(current.Organization.Shard(), token), session.Lifetime), err
}

// proved records a new proof of identity in the session, under a new token.
func (s *Console) proved(r *http.Request, at time.Time) (cookie string, err error) {
	session := edge.CallOf(r).Session
	session.ProvedAt = at
	return s.renew(r.Context(), session)
}

// end ends the session of the request's cookie, if there is one.
func (s *Console) end(r *http.Request) error {
	shard, token, ok := shardAndSecret(s.cookieValue(r, sessionCookie))
	if !ok {
		return nil
	}
	ctx, err := s.console.sessions.Load(session.With(context.WithoutCancel(r.Context()), shard, &session.Session{}), token)
	if err != nil || s.console.sessions.Token(ctx) == "" {
		return err
	}
	return s.console.sessions.Destroy(ctx)
}

// maxUserAgent is the number of characters that are stored of a browser's User-Agent.
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
