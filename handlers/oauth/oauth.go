// Package oauth verifies what an external OpenID provider signs: access tokens for one resource (RFC 9068, RFC 6750),
// and the sign-in of a person (OpenID Connect Core, authorization code with PKCE).
//
// It knows nothing about members, links or consents: its caller maps an identity to a member and decides what the
// member may do. It contacts the provider only when the first token arrives, so an unreachable provider does not
// prevent the service from starting.
package oauth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound"
)

// Config is what a Provider is made of.
type Config struct {
	Issuer   string // exactly as its tokens and its discovery document write it
	Audience string // the resource that access tokens must be for
	// ClientID is this service's own registration at the provider, for SignIn; empty where it has none. ClientSecret is
	// empty for a public client.
	ClientID     string
	ClientSecret string
	RedirectURL  string
	Now          func() time.Time
}

// Provider asks one OpenID provider. It is safe for concurrent use.
type Provider struct {
	Config
	client *outbound.Client

	mu    sync.Mutex
	found *discovered
}

// discovered is what the discovery document says.
type discovered struct {
	provider *oidc.Provider
	keys     oidc.KeySet
}

// Algorithms lists what may sign a token: asymmetric ones alone, whatever the provider announces. "none" and HMAC under
// a public key are not among them.
func Algorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512,
		oidc.EdDSA,
	}
}

// askTimeout bounds one question to the provider.
const askTimeout = 5 * time.Second

// New makes a Provider. It asks nothing yet.
func New(c Config) *Provider {
	client := outbound.New(outbound.Config{Timeout: askTimeout, Answer: mostBytes, Proxy: true})
	client.Transport = &sparing{now: c.Now, next: client.Transport}
	return &Provider{Config: c, client: client}
}

// Token is what an access token says of its bearer.
type Token struct {
	Subject string
	Scopes  []string
}

// Verify checks an access token: one of Algorithms under a key that the provider publishes (see keysAge), its issuer,
// its audience, its times (exp; nbf with 5 minutes of tolerance), and that it is a bearer's access token. It refuses
// with INVALID_KEY, or with TEMPORARILY_UNAVAILABLE where the provider has to be asked and does not answer.
func (p *Provider) Verify(ctx context.Context, raw string) (Token, error) {
	if !accessTokenType(raw) {
		return Token{}, refuse("it is no access token", errors.New("header typ"))
	}
	token, err := p.verify(ctx, raw, p.Audience)
	if err != nil {
		return Token{}, err
	}
	var claims struct {
		Scope        string          `json:"scope"`
		Scp          json.RawMessage `json:"scp"` // what some providers write instead
		Confirmation json.RawMessage `json:"cnf"`
	}
	if err := token.Claims(&claims); err != nil {
		return Token{}, refuse("its claims cannot be read", err)
	}
	if len(claims.Confirmation) > 0 {
		return Token{}, refuse("it is bound to a key that its bearer would have to prove", errors.New("claim cnf"))
	}
	return Token{Subject: token.Subject, Scopes: append(strings.Fields(claims.Scope), scp(claims.Scp)...)}, nil
}

// scp reads a list of texts, or one text.
func scp(raw json.RawMessage) []string {
	var list []string
	var text string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	_ = json.Unmarshal(raw, &text)
	return strings.Fields(text)
}

// accessTokenType accepts the types of access tokens (RFC 9068, section 2.1), the general one, which other providers
// write, and none. A logout token or a DPoP proof that carries the right claims is still no access token.
func accessTokenType(raw string) bool {
	header, _, _ := strings.Cut(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	var parsed struct {
		Type string `json:"typ"`
	}
	if err != nil || json.Unmarshal(text, &parsed) != nil {
		return false
	}
	switch strings.TrimPrefix(strings.ToLower(parsed.Type), "application/") {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}

// verify checks a token for an audience.
func (p *Provider) verify(ctx context.Context, raw, audience string) (*oidc.IDToken, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	keys := &judgedKeys{KeySet: found.keys}
	token, err := oidc.NewVerifier(
		p.Issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: Algorithms(), Now: p.Now},
	).Verify(ctx, raw)
	_, expired := errors.AsType[*oidc.TokenExpiredError](err)
	switch {
	case keys.failure != nil:
		return nil, unavailable(keys.failure)
	case expired:
		return nil, refuse("it has expired", err)
	case err != nil:
		return nil, refuse("its signature, issuer, audience or time is not what this service accepts", err)
	case token.Subject == "" || token.Issuer != p.Issuer:
		return nil, refuse("it names no subject of the issuer", errors.New("claims iss, sub"))
	}
	return token, nil
}

// discover reads the provider's document until it has been read once. Requests that wait here for a provider that does
// not answer get the failure that sparing remembers.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		found, err := p.ask(ctx)
		if err != nil {
			return nil, unavailable(err)
		}
		p.found = found
	}
	return p.found, nil
}

// ask is not ended by the request that happens to be the first.
func (p *Provider) ask(ctx context.Context) (*discovered, error) {
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), p.client.Client)
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	var document struct {
		JWKS string `json:"jwks_uri"`
	}
	if err == nil {
		err = provider.Claims(&document)
	}
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", p.Issuer, err)
	}
	read := func() oidc.KeySet { return oidc.NewRemoteKeySet(ctx, document.JWKS) }
	return &discovered{provider: provider, keys: &currentKeys{now: p.Now, read: read}}, nil
}

// refuse is the answer to a token that does not hold; why is for the log.
func refuse(reason string, why error) error {
	return fmt.Errorf("%w: %w", domain.Refuse(domain.InvalidKey, "The access token is not accepted: %s.", reason), why)
}

func unavailable(why error) error {
	return fmt.Errorf(
		"%w: %w", domain.Unavailable("The identity provider cannot be asked at the moment; send the request again."), why,
	)
}

// How old the provider's answer must be before the same question is put again. Any token under an unknown key makes the
// key set be read anew, and anybody can send such tokens. A new key, or that the provider is back, is noticed so much
// later at most.
const (
	leastAge   = 10 * time.Second
	failureAge = 5 * time.Second // from the end of the attempt, which may have taken as long
)

// mostBytes is the longest answer that is read: key sets and discovery documents are far shorter.
const mostBytes = 1 << 20

// sparing repeats the answer to a GET, or that there was none, while it is young, instead of asking again. Anything but
// 200 is a failure, whose body nobody sees. It is safe for concurrent use.
type sparing struct {
	now  func() time.Time
	next http.RoundTripper

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	at     time.Time
	header http.Header
	body   []byte
	err    error
}

func (a answer) young(now time.Time) bool {
	if a.err != nil {
		return now.Sub(a.at) < failureAge
	}
	return now.Sub(a.at) < leastAge
}

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return s.next.RoundTrip(r)
	}
	s.mu.Lock()
	a, ok := s.known[r.URL.String()]
	s.mu.Unlock()
	if !ok || !a.young(s.now()) {
		a = s.ask(r)
		s.mu.Lock()
		if s.known == nil {
			s.known = map[string]answer{}
		}
		s.known[r.URL.String()] = a
		s.mu.Unlock()
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
	}, nil
}

// ask puts the question. A good answer is as old as the question.
func (s *sparing) ask(r *http.Request) answer {
	asked := s.now()
	response, err := s.next.RoundTrip(r)
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", response.Status)
	}
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	return answer{at: asked, header: response.Header.Clone(), body: body}
}

// keysAge is how long a key that the provider no longer publishes may still be trusted. (A new one is looked for as
// soon as a token names it.)
const keysAge = 5 * time.Minute

// currentKeys are those that the provider publishes, read anew every keysAge. While it cannot be asked, those that were
// read last go on. It is safe for concurrent use.
type currentKeys struct {
	now  func() time.Time
	read func() oidc.KeySet // an empty set, which asks the provider when it is used first

	mu     sync.Mutex
	keys   oidc.KeySet
	former oidc.KeySet // until keys has been read
	since  time.Time   // of keys
}

// VerifySignature implements oidc.KeySet. What keys refuses is judged once more by keys read for it alone: others may
// join a question of keys when its answer is already there, and older than their token.
func (k *currentKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	keys, former := k.current()
	payload, err := keys.VerifySignature(ctx, jwt)
	if err != nil {
		payload, err = k.read().VerifySignature(ctx, jwt)
	}
	switch {
	case former == nil:
		return payload, err
	case notAsked(err):
		return former.VerifySignature(ctx, jwt)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == keys {
		k.former = nil
	}
	return payload, err
}

func (k *currentKeys) current() (keys, former oidc.KeySet) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil || now.Sub(k.since) >= keysAge {
		if k.former == nil {
			k.former = k.keys
		}
		k.keys, k.since = k.read(), now
	}
	return k.keys, k.former
}

// notAsked tells keys that could not be fetched from a signature that is wrong: only what fetching failed with is
// wrapped.
func notAsked(err error) bool { return errors.Unwrap(err) != nil }

// judgedKeys keeps why keys could not be fetched: the verifier's own error no longer does.
type judgedKeys struct {
	oidc.KeySet
	failure error
}

func (k *judgedKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	if notAsked(err) {
		k.failure = err
	}
	return payload, err
}

// Attempt is one sign-in under way, known to the person's browser alone.
type Attempt struct {
	State, Nonce string
	Verifier     string // of PKCE (RFC 7636)
	Email        bool   // the person's address is asked for, besides who it is
	Anew         bool   // a person who has signed in at the provider already is asked again
}

// Person is who has signed in.
type Person struct {
	Subject string
	// Where the address was asked for.
	Email    string    // that the provider has verified; empty: none
	AuthTime time.Time // when the person proved to the provider who it is; zero: it does not say
}

// CanSignIn tells whether this service is registered at the provider.
func (p *Provider) CanSignIn() bool { return p.ClientID != "" }

// SignIn is where the browser is sent.
func (p *Provider) SignIn(ctx context.Context, a Attempt) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	flow, options := p.flow(found), []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	if a.Email {
		flow.Scopes = append(flow.Scopes, "email")
	}
	if a.Anew {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return flow.AuthCodeURL(a.State, options...), nil
}

// SignedIn exchanges the code that the browser came back with, and answers who has signed in. What the provider does
// not confirm is INVALID_KEY.
func (p *Provider) SignedIn(ctx context.Context, a Attempt, code string) (person Person, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return person, err
	}
	answer, err := p.flow(found).Exchange(
		oidc.ClientContext(ctx, p.client.Client), code, oauth2.VerifierOption(a.Verifier),
	)
	switch refused, known := errors.AsType[*oauth2.RetrieveError](err); {
	case known:
		why := fmt.Errorf("it answers %s %q", refused.Response.Status, refused.ErrorCode) // its page is for nobody's log
		if refused.Response.StatusCode >= http.StatusInternalServerError {
			return person, unavailable(why)
		}
		return person, refuse("the provider does not confirm the sign-in", why)
	case err != nil:
		return person, unavailable(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := p.verify(ctx, raw, p.ClientID)
	if err != nil {
		return person, err
	}
	if token.Nonce != a.Nonce {
		return person, refuse("it answers another sign-in", errors.New("claim nonce"))
	}
	if !p.askedFor(token) {
		return person, refuse("another client asked for it", errors.New("claim azp"))
	}
	if !a.Email {
		return Person{Subject: token.Subject}, nil
	}
	return readPerson(token)
}

// askedFor judges the authorized party of an ID token (OpenID Connect Core, section 3.1.3.7): it must be this service
// where the token names one, and a token for several audiences must. That of an access token is the client that calls
// the resource, which is another program than this service.
func (p *Provider) askedFor(token *oidc.IDToken) bool {
	var claims struct {
		Party *string `json:"azp"`
	}
	if token.Claims(&claims) != nil {
		return false
	}
	return claims.Party == nil && len(token.Audience) == 1 || claims.Party != nil && *claims.Party == p.ClientID
}

// readPerson reads an ID token. An address counts only where the provider says, with the JSON value true, that it has
// verified it.
func readPerson(token *oidc.IDToken) (Person, error) {
	var claims struct {
		Email    string          `json:"email"`
		Verified json.RawMessage `json:"email_verified"`
		AuthTime json.Number     `json:"auth_time"`
	}
	if err := token.Claims(&claims); err != nil {
		return Person{}, refuse("its claims cannot be read", err)
	}
	person := Person{Subject: token.Subject}
	if string(claims.Verified) == "true" {
		person.Email = claims.Email
	}
	if seconds, err := claims.AuthTime.Int64(); err == nil && seconds > 0 {
		person.AuthTime = time.Unix(seconds, 0)
	}
	return person, nil
}

func (p *Provider) flow(found *discovered) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: p.RedirectURL,
		Endpoint: found.provider.Endpoint(), Scopes: []string{oidc.ScopeOpenID},
	}
}
