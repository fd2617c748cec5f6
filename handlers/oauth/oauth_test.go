package oauth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"integrityledger/domain"
	"integrityledger/handlers/oauth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(settled{m}) }

// settled gives connections that were closed the time that a busy machine needs to end their goroutines.
type settled struct{ goleak.TestingM }

func (s settled) Run() int {
	code := s.TestingM.Run()
	for deadline := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

// A provider that answers nothing, each time after a long wait, is asked once by all who
// wait for it; what it says besides reaches no message.
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
		pass(5 * time.Second) // until it gave up
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
		if !errors.As(err, &refused) || refused.Code != domain.TemporarilyUnavailable || strings.Contains(err.Error(), "a long page") {
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
