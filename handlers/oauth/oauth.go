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
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// Config configures a Provider.
type Config struct {
	Issuer   string // exactly as in its tokens and its discovery document
	Audience string // the resource that access tokens must be for
	// ClientID is the registration of this service with the provider, for SignIn; empty if it has none. ClientSecret is
	// empty for a public client.
	ClientID     string
	ClientSecret string
	RedirectURL  string
	Now          func() time.Time
}

// Provider is a client of one OpenID provider. It is safe for concurrent use.
type Provider struct {
	Config
	client *outbound.Client

	mu    sync.Mutex
	found *discovered
}

// discovered is the content of the discovery document.
type discovered struct {
	provider *oidc.Provider
	keys     oidc.KeySet
}

// Algorithms lists the accepted signature algorithms of tokens. All are asymmetric, whatever the provider announces:
// "none" would need no key, and HMAC could be computed with the public key.
func Algorithms() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512,
		oidc.EdDSA,
	}
}

// askTimeout bounds each request to the provider.
const askTimeout = 5 * time.Second

// New makes a Provider. It does not contact the provider yet.
func New(c Config) *Provider {
	client := outbound.New(outbound.Config{Timeout: askTimeout, Answer: maxBytes, Proxy: true})
	client.Transport = &sparing{now: c.Now, next: client.Transport}
	return &Provider{Config: c, client: client}
}

// Token has the claims of an access token.
type Token struct {
	Subject string
	Scopes  []string
}

// Verify checks an access token: its signature with one of Algorithms under a key that the provider publishes (see
// keysAge), its issuer, its audience, its times (exp; nbf with 5 minutes of tolerance), and that it is an access token
// that any bearer may use. It refuses with INVALID_KEY, or with TEMPORARILY_UNAVAILABLE if it must ask the provider and
// gets no answer.
func (p *Provider) Verify(ctx context.Context, raw string) (Token, error) {
	if !accessTokenType(raw) {
		return Token{}, refuseToken("it is not an access token", errors.New("header typ"))
	}
	token, err := p.verify(ctx, raw, p.Audience)
	if err != nil {
		return Token{}, err
	}
	var claims struct {
		Scope        string          `json:"scope"`
		Scp          json.RawMessage `json:"scp"` // some providers use scp instead
		Confirmation json.RawMessage `json:"cnf"`
	}
	if err := token.Claims(&claims); err != nil {
		return Token{}, refuseToken("its claims cannot be read", err)
	}
	if len(claims.Confirmation) > 0 {
		return Token{}, refuseToken("it is bound to a key, and only bearer tokens are accepted", errors.New("claim cnf"))
	}
	return Token{Subject: token.Subject, Scopes: append(strings.Fields(claims.Scope), scp(claims.Scp)...)}, nil
}

// scp reads a list of strings or a single string.
func scp(raw json.RawMessage) []string {
	var list []string
	var text string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	_ = json.Unmarshal(raw, &text)
	return strings.Fields(text)
}

// accessTokenType reports whether the token's type is a type of access tokens (RFC 9068, section 2.1), the general JWT,
// which other providers write, or absent. A logout token or a DPoP proof is not an access token, even with the right
// claims.
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
		return nil, refuseToken("it has expired", err)
	case err != nil:
		return nil, refuseToken("this service does not accept its signature, issuer, audience or time", err)
	case token.Subject == "" || token.Issuer != p.Issuer:
		return nil, refuseToken("it names no subject of the issuer", errors.New("claims iss, sub"))
	}
	return token, nil
}

// discover returns the provider's document, and reads it if that has not succeeded yet. If the provider does not
// answer, requests that wait here get the failure that sparing caches.
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

// Discover asks the provider for its document, whatever is known of it.
func (p *Provider) Discover(ctx context.Context) error {
	_, err := p.ask(ctx)
	return err
}

// ask reads the provider's document. It continues when the request that caused it is cancelled, because other requests
// wait for the answer.
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
		return nil, say.Errorf("discover %s: %w", p.Issuer, err)
	}
	read := func() oidc.KeySet { return oidc.NewRemoteKeySet(ctx, document.JWKS) }
	return &discovered{provider: provider, keys: &currentKeys{now: p.Now, read: read}}, nil
}

// refuseToken returns the refusal of a token; only the log shows why.
func refuseToken(reason string, why error) error {
	return say.Errorf("%w: %w", domain.Refuse(domain.InvalidKey, "The access token is not accepted: %s.", reason), why)
}

func unavailable(why error) error {
	return say.Errorf(
		"%w: %w", domain.Unavailable("The identity provider cannot be asked at the moment; send the request again."), why,
	)
}

// Minimum ages of the provider's answer before the same request is sent again. Any client can send tokens under unknown
// keys, and each of them causes the key set to be read. These ages also bound how late a new key, or the provider's
// return, is noticed.
const (
	minAnswerAge  = 10 * time.Second
	minFailureAge = 5 * time.Second // from the end of the attempt, which may have taken as long
)

// maxBytes is the largest answer that is read. Key sets and discovery documents are far smaller.
const maxBytes = 1 << 20

// sparing caches the answer to a GET, or its failure, for a short time instead of sending it again. Any status but 200
// is a failure, and its body is dropped. It is safe for concurrent use.
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
		return now.Sub(a.at) < minFailureAge
	}
	return now.Sub(a.at) < minAnswerAge
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

// ask sends the request. The age of a good answer counts from the request.
func (s *sparing) ask(r *http.Request) answer {
	asked := s.now()
	response, err := s.next.RoundTrip(r)
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusOK {
		err = say.Errorf("it answers %s", response.Status)
	}
	if err != nil {
		return answer{at: s.now(), err: err}
	}
	return answer{at: asked, header: response.Header.Clone(), body: body}
}

// keysAge is how long a key may be trusted after the provider stopped publishing it. A new key is read as soon as a
// token names it.
const keysAge = 5 * time.Minute

// currentKeys are the keys that the provider publishes, read again after keysAge. If the provider cannot be reached,
// the former keys remain in use. It is safe for concurrent use.
type currentKeys struct {
	now  func() time.Time
	read func() oidc.KeySet // returns an empty set, which asks the provider on first use

	mu     sync.Mutex
	keys   oidc.KeySet
	former oidc.KeySet // until keys has been read
	since  time.Time   // of keys
}

// VerifySignature implements oidc.KeySet. If keys refuses a token, VerifySignature reads the keys once more for this
// token alone: keys may have joined a request whose answer arrived before the token and is older.
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

// notAsked tells whether keys could not be fetched, rather than the signature being wrong: only an error of fetching is
// wrapped.
func notAsked(err error) bool { return errors.Unwrap(err) != nil }

// judgedKeys records why keys could not be fetched, which the verifier's own error does not say.
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

// Attempt is a sign-in in progress. Only the person's browser knows it.
type Attempt struct {
	State, Nonce string
	Verifier     string // of PKCE (RFC 7636)
	Email        bool   // ask for the person's address, in addition to the identity
	Anew         bool   // ask for credentials even if the person has a session with the provider
}

// Person is the person who has signed in.
type Person struct {
	Subject string
	// Only if Attempt.Email was set.
	Email    string    // verified by the provider; otherwise empty
	AuthTime time.Time // when the person authenticated; zero if the provider does not say
}

// CanSignIn reports whether this service is registered with the provider.
func (p *Provider) CanSignIn() bool { return p.ClientID != "" }

// SignIn returns the URL to which the browser is sent.
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

// SignedIn exchanges the code that the browser brought back and returns the person. It refuses with INVALID_KEY if the
// provider does not confirm the sign-in.
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
		why := fmt.Errorf("it answers %s %q", refused.Response.Status, refused.ErrorCode) // the body is not logged
		if refused.Response.StatusCode >= http.StatusInternalServerError {
			return person, unavailable(why)
		}
		return person, refuseToken("the provider does not confirm the sign-in", why)
	case err != nil:
		return person, unavailable(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := p.verify(ctx, raw, p.ClientID)
	if err != nil {
		return person, err
	}
	if token.Nonce != a.Nonce {
		return person, refuseToken("it belongs to another sign-in", errors.New("claim nonce"))
	}
	if !p.askedFor(token) {
		return person, refuseToken("it was issued to another client", errors.New("claim azp"))
	}
	if !a.Email {
		return Person{Subject: token.Subject}, nil
	}
	return readPerson(token)
}

// askedFor checks the authorized party of an ID token (OpenID Connect Core, section 3.1.3.7). If the token names one,
// it must be this service; a token with several audiences must name one. Access tokens are not checked: their
// authorized party is the client that calls the resource, not this service.
func (p *Provider) askedFor(token *oidc.IDToken) bool {
	var claims struct {
		Party *string `json:"azp"`
	}
	if token.Claims(&claims) != nil {
		return false
	}
	return claims.Party == nil && len(token.Audience) == 1 || claims.Party != nil && *claims.Party == p.ClientID
}

// readPerson reads an ID token. The address counts only if email_verified is the JSON value true.
func readPerson(token *oidc.IDToken) (Person, error) {
	var claims struct {
		Email    string          `json:"email"`
		Verified json.RawMessage `json:"email_verified"`
		AuthTime json.Number     `json:"auth_time"`
	}
	if err := token.Claims(&claims); err != nil {
		return Person{}, refuseToken("its claims cannot be read", err)
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
