package oauth_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"integrityledger/domain"
	"integrityledger/handlers/oauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient gives closed connections the time that a busy machine needs to end their goroutines.
type patient struct{ goleak.TestingM }

func (s patient) Run() int {
	code := s.TestingM.Run()
	for deadline := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

// A provider that never answers and wastes much time is asked once for all waiting requests. Its error texts reach no
// message.
func TestProviderThatHangs(t *testing.T) {
	var mu sync.Mutex
	now, asked := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 0
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		asked++
		mu.Unlock()
		pass(5 * time.Second) // until the request gave up
		http.Error(w, strings.Repeat("a long page ", 1000), http.StatusGatewayTimeout)
	}))
	defer server.Close()
	p := oauth.New(oauth.Config{Issuer: server.URL, Audience: "https://ledger.example/api/v1/mcp", Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	verify := func() {
		_, err := p.Verify(t.Context(), "eyJhbGciOiJSUzI1NiJ9.e30.AA")
		var refused *domain.Error
		if !errors.As(err, &refused) || refused.Code != domain.TemporarilyUnavailable ||
			strings.Contains(err.Error(), "a long page") {
			t.Errorf("%v", err)
		}
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(verify)
	}
	all.Wait()
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
	pass(5 * time.Second)
	verify()
	if asked != 2 {
		t.Errorf("after a while it was asked %d times in all", asked)
	}
}

// A token under a newly published key is accepted, even if a request that was sent before the publication ends at this
// moment.
func TestKeyPublishedAMomentAgo(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var published atomic.Pointer[jose.JSONWebKeySet]
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	answer := func(path string, v func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v()); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]string{"issuer": server.URL, "jwks_uri": server.URL + "/keys"}
	})
	answer("/keys", func() any { return published.Load() })
	const audience = "https://ledger.example/api/v1/mcp"
	p := oauth.New(oauth.Config{Issuer: server.URL, Audience: audience, Now: func() time.Time { return now }})

	publish := func(id string) (token string) {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		published.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: id}}})
		signer, err := jose.NewSigner(
			jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: id}}, nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		claims := jwt.Claims{
			Issuer: server.URL, Subject: "person", Audience: jwt.Audience{audience},
			Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
		}
		if token, err = jwt.Signed(signer).Claims(claims).Serialize(); err != nil {
			t.Fatal(err)
		}
		return token
	}
	unknown := publish("unknown")
	publish("first")
	for i := range 200 {
		now = now.Add(time.Minute) // the provider may be asked again
		if _, err := p.Verify(t.Context(), unknown); err == nil {
			t.Fatal("a token under a key that is not published is accepted")
		}
		now = now.Add(time.Minute)
		if _, err := p.Verify(t.Context(), publish(fmt.Sprint(i))); err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
	}
}
