package handlers_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"

	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
)

// identityProvider is a real OpenID provider (zitadel's library, with the login page of its example and users id1 and
// id2). A test may change its keys.
type identityProvider struct {
	*storage.Storage
	t      *testing.T
	issuer string
	away   atomic.Bool // answers every request with 503
	// Numbers of requests for its keys, and of all requests while it was away.
	asked, refused atomic.Int64

	mu    sync.Mutex
	alter func(claims map[string]any) // changes ID tokens before they are signed again; may be nil
	key   *providerKey
	extra []op.Key // published in addition
}

const (
	pageClient = "integrity-ledger" // the service's own registration
	person     = "id1"
	stranger   = "id2"
	allScopes  = "openid verify:read artifacts:read"
)

func startProvider(t *testing.T) *identityProvider {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	p := &identityProvider{t: t, issuer: "http://" + server.Listener.Addr().String()}
	storage.RegisterClients(storage.NativeClient(pageClient, edge.OAuthRedirect(baseURL)))
	p.Storage = storage.NewStorage(storage.NewUserStore(p.issuer))
	p.rotate(newProviderKey(t, "first", jose.RS256))
	handler := exampleop.SetupServer(p.issuer, p, slog.New(slog.DiscardHandler), false)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.away.Load() {
			p.refused.Add(1)
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/keys" {
			p.asked.Add(1)
		}
		if r.URL.Path == "/oauth/token" {
			p.answerToken(w, r, handler)
			return
		}
		handler.ServeHTTP(w, r)
	})
	server.Start()
	t.Cleanup(server.Close)
	return p
}

// answerToken answers a code like the provider, with an ID token that has the claims of the test.
func (p *identityProvider) answerToken(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	answered := httptest.NewRecorder()
	handler.ServeHTTP(answered, r)
	p.mu.Lock()
	alter := p.alter
	p.mu.Unlock()
	var answer map[string]any
	if err := json.Unmarshal(answered.Body.Bytes(), &answer); alter != nil && err == nil && answer["id_token"] != nil {
		_, rest, _ := strings.Cut(answer["id_token"].(string), ".")
		middle, _, _ := strings.Cut(rest, ".")
		text, err := base64.RawURLEncoding.DecodeString(middle)
		check(p.t, err)
		claims := map[string]any{}
		check(p.t, json.Unmarshal(text, &claims))
		alter(claims)
		key := p.current()
		answer["id_token"] = p.forge(key.algorithm, key.private, "JWT", claims)
		answered.Body.Reset()
		check(p.t, json.NewEncoder(answered.Body).Encode(answer))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answered.Code)
	_, _ = w.Write(answered.Body.Bytes())
}

// says adds or replaces claims of the provider's ID tokens.
func (p *identityProvider) says(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alter = func(all map[string]any) { maps.Copy(all, claims) }
}

// providerKey implements op.SigningKey and op.Key.
type providerKey struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
	public    bool // the public half
}

func newProviderKey(t *testing.T, id string, algorithm jose.SignatureAlgorithm) *providerKey {
	t.Helper()
	k := &providerKey{id: id, algorithm: algorithm}
	var err error
	switch algorithm {
	case jose.RS256, jose.PS256:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, k.private, err = ed25519.GenerateKey(rand.Reader)
	default:
		t.Fatalf("no key for %s", algorithm)
	}
	check(t, err)
	return k
}

func (k *providerKey) ID() string                                  { return k.id }
func (k *providerKey) SignatureAlgorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k *providerKey) Algorithm() jose.SignatureAlgorithm          { return k.algorithm }
func (k *providerKey) Use() string                                 { return "sig" }
func (k *providerKey) Key() any {
	if k.public {
		return k.private.Public()
	}
	return k.private
}

// rotate makes key the only key that the provider signs with and publishes.
func (p *identityProvider) rotate(key *providerKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
}

func (p *identityProvider) current() *providerKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key
}

// SigningKey implements op.Storage.
func (p *identityProvider) SigningKey(context.Context) (op.SigningKey, error) {
	return p.current(), nil
}

// KeySet implements op.Storage.
func (p *identityProvider) KeySet(context.Context) ([]op.Key, error) {
	public := *p.current()
	public.public = true
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]op.Key{&public}, p.extra...), nil
}

// sharedSecret is a symmetric key, which no provider should publish.
type sharedSecret []byte

func (sharedSecret) ID() string                         { return "shared" }
func (sharedSecret) Algorithm() jose.SignatureAlgorithm { return "" }
func (sharedSecret) Use() string                        { return "sig" }
func (s sharedSecret) Key() any                         { return []byte(s) }

// SignatureAlgorithms implements op.Storage.
func (p *identityProvider) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{p.current().algorithm}, nil
}

// GetPrivateClaimsFromScopes implements op.Storage: access tokens name their scopes (RFC 9068, section 2.2.3).
func (p *identityProvider) GetPrivateClaimsFromScopes(
	_ context.Context, _, _ string, scopes []string,
) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(scopes, " ")}, nil
}

// asking is a request for an access token in the provider's own flow.
type asking struct {
	subject, audience, scope string
	issuer                   string // empty means the provider's own
	expires                  time.Time
}

func (a asking) GetSubject() string    { return a.subject }
func (a asking) GetAudience() []string { return []string{a.audience, "something-else"} }
func (a asking) GetScopes() []string   { return strings.Fields(a.scope) }

// issue makes the provider issue an access token.
func (p *identityProvider) issue(a asking) string {
	p.t.Helper()
	if a.issuer == "" {
		a.issuer = p.issuer
	}
	token, err := op.CreateJWT(
		context.Background(), a.issuer, a, a.expires, fmt.Sprint(time.Now().UnixNano()), storage.NativeClient("mcp-client"),
		p,
	)
	check(p.t, err)
	return token
}

// token returns a valid token of a subject.
func (p *identityProvider) token(subject, scope string) string {
	p.t.Helper()
	return p.issue(asking{
		subject: subject, audience: edge.OAuthAudience(baseURL), scope: scope, expires: time.Now().Add(time.Hour),
	})
}

// forge signs claims with a key and header chosen by the test.
func (p *identityProvider) forge(algorithm jose.SignatureAlgorithm, key any, typ string, claims map[string]any) string {
	p.t.Helper()
	id := p.current().id
	if shared, ok := key.(sharedSecret); ok {
		id, key = shared.ID(), []byte(shared)
	}
	all := map[string]any{
		"iss": p.issuer, "sub": person, "aud": edge.OAuthAudience(baseURL), "scope": allScopes,
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
	for name, value := range claims {
		all[name] = value
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", id))
	check(p.t, err)
	text, err := json.Marshal(all)
	check(p.t, err)
	signed, err := signer.Sign(text)
	check(p.t, err)
	compact, err := signed.CompactSerialize()
	check(p.t, err)
	return compact
}

// oauth configures a service to use the provider.
func (p *identityProvider) oauth(c *handlers.Config) *oauth.Provider {
	return oauth.New(oauth.Config{
		Issuer: p.issuer, Audience: edge.OAuthAudience(baseURL), ClientID: pageClient,
		RedirectURL: edge.OAuthRedirect(baseURL), Now: c.Now,
	})
}

// withProvider opens a service whose ordinary MCP endpoint accepts the provider's tokens.
func withProvider(t *testing.T, o options) (*service, *identityProvider) {
	t.Helper()
	p := startProvider(t)
	change := o.config
	o.config = func(c *handlers.Config) {
		c.OAuth = p.oauth(c)
		if change != nil {
			change(c)
		}
	}
	return open(t, o), p
}
