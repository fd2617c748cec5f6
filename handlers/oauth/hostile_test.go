package oauth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers/oauth"
)

// A provider that delays the service at any of its addresses counts as unavailable.
func TestHostileProviders(t *testing.T) {
	var all sync.WaitGroup
	for name, shape := range peertest.Shapes() {
		hostile := peertest.Serve(t, shape)
		discovered := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"issuer":"http://%s","jwks_uri":"%s/keys","token_endpoint":"%[2]s/token"}`, r.Host, hostile)
		}))
		t.Cleanup(discovered.Close)
		asks := func(what, issuer string, ask func(*oauth.Provider) error) {
			all.Go(func() {
				p := oauth.New(oauth.Config{Issuer: issuer, Audience: "https://ledger.example", ClientID: "ledger", Now: time.Now})
				if ask(p) == nil {
					t.Errorf("%s, %s: no error", name, what)
				}
			})
		}
		verify := func(p *oauth.Provider) error {
			_, err := p.Verify(t.Context(), "eyJhbGciOiJSUzI1NiJ9.e30.AA")
			return err
		}
		asks("discovery", hostile, verify)
		asks("keys", discovered.URL, verify)
		asks("token", discovered.URL, func(p *oauth.Provider) error {
			_, err := p.SignedIn(t.Context(), oauth.Attempt{}, "code")
			return err
		})
	}
	all.Wait()
}
