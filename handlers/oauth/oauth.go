// Package oauth verifies what an external OpenID provider signs: access tokens for one resource (RFC 9068, RFC 6750),
// and the sign-in of a person (OpenID Connect Core, authorization code with PKCE).
//
// It knows nothing of members, links or consents: who an identity is here, and what it may do, is for its caller to
// say. Nothing is asked of the provider before the first token comes, so one that is away keeps nobody from starting.
package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"integrityledger/domain"
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
	client *http.Client

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
	return []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}
}

// askTimeout bounds one question to the provider.
const askTimeout = 5 * time.Second

// New makes a Provider. It asks nothing yet.
func New(c Config) *Provider {
	return &Provider{Config: c, client: &http.Client{Timeout: askTimeout, Transport: &sparing{now: c.Now, next: http.DefaultTransport}}}
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
	token, err := oidc.NewVerifier(p.Issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: Algorithms(), Now: p.Now}).Verify(ctx, raw)
	var expired *oidc.TokenExpiredError
	switch {
	case keys.failure != nil:
		return nil, unavailable(keys.failure)
	case errors.As(err, &expired):
		return nil, refuse("it has expired", err)
	case err != nil:
		return nil, refuse("its signature, issuer, audience or time is not what this service accepts", err)
	case token.Subject == "" || token.Issuer != p.Issuer:
		return nil, refuse("it names no subject of the issuer", errors.New("claims iss, sub"))
	}
	return token, nil
}

// discover reads the provider's document, once it has been reached. Requests that wait here for one that does not answer then
// gets the failure that sparing remembers.
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
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), p.client)
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", p.Issuer, err)
	}
	var document struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
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
	return fmt.Errorf("%w: %w", domain.Unavailable("The identity provider cannot be asked at the moment; send the request again."), why)
}
