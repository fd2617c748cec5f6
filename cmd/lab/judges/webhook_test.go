package judges

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v85/webhook"
	svix "github.com/svix/svix-webhooks/go"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain"
	integrity "integrityledger/handlers/client"
	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

// libraries verify a delivery by the headers that each of them knows, regardless of when it was signed.
var libraries = map[string]func(header http.Header, body []byte, secret string) error{
	"stripe": func(header http.Header, body []byte, secret string) error {
		return webhook.ValidatePayloadIgnoringTolerance(body, header.Get("Service-Signature"), secret)
	},
	"standardwebhooks": func(header http.Header, body []byte, secret string) error {
		w, err := standard.NewWebhook(secret)
		if err != nil {
			return err
		}
		return w.VerifyIgnoringTimestamp(body, header)
	},
	"svix": func(header http.Header, body []byte, secret string) error {
		w, err := svix.NewWebhook(secret)
		if err != nil {
			return err
		}
		return w.VerifyIgnoringTimestamp(body, header)
	},
}

type arrival struct {
	header http.Header
	body   []byte
}

// TestWebhookLibraries: libraries accept deliveries that the program signs with the secret it has shown, and with both
// secrets during a rotation. They reject a changed body, another secret and an old signature.
func TestWebhookLibraries(t *testing.T) {
	t.Parallel()
	s := serve(t, "INTEGRITY_WEBHOOK_ALLOW_INSECURE=true")
	arrivals := make(chan arrival, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			arrivals <- arrival{r.Header, body}
		}
	}))
	defer receiver.Close()
	arrives := func() arrival {
		t.Helper()
		select {
		case a := <-arrivals:
			return a
		case <-time.After(integritytest.Patient):
			t.Fatal("no delivery arrives")
			return arrival{}
		}
	}
	ctx := t.Context()
	made, err := s.admin.CreateWebhook(ctx, wire.WebhookRequest{URL: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	companies, err := s.admin.Companies(ctx, integrity.CompaniesQuery{All: true}, "")
	if err != nil || len(companies.Companies) == 0 {
		t.Fatalf("%+v, %v", companies, err)
	}
	if _, err := s.admin.GrantWebhook(ctx, companies.Companies[0].ID, made.ID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.worker.Register(ctx, s.declaration("d-1")); err != nil {
		t.Fatal(err)
	}
	accepted := func(a arrival, secret string) {
		t.Helper()
		for name, verify := range libraries {
			if err := verify(a.header, a.body, secret); err != nil {
				t.Errorf("%s: %v in %v", name, err, a.header)
			}
		}
	}
	a := arrives()
	accepted(a, made.Secret)
	fresh, err := standard.NewWebhook(made.Secret)
	signature := a.header.Get("Service-Signature")
	if err := errors.Join(
		err, fresh.Verify(a.body, a.header), webhook.ValidatePayload(a.body, signature, made.Secret),
	); err != nil {
		t.Errorf("as new: %v", err)
	}
	changed := bytes.Replace(a.body, []byte(`"version":1}`), []byte(`"version":2}`), 1)
	if bytes.Equal(changed, a.body) {
		t.Fatalf("the body names no version: %s", a.body)
	}
	for name, verify := range libraries {
		if verify(a.header, changed, made.Secret) == nil {
			t.Errorf("%s accepts a changed body", name)
		}
		if verify(a.header, a.body, made.Secret[:len(made.Secret)-4]+"AAAA") == nil {
			t.Errorf("%s accepts another secret", name)
		}
	}
	old := domain.SignWebhook(time.Now().Add(-301*time.Second), a.body, made.Secret)
	if err := webhook.ValidatePayloadWithTolerance(
		a.body, old, made.Secret, 300*time.Second,
	); !errors.Is(err, webhook.ErrTooOld) {
		t.Errorf("301 s old: %v", err)
	}
	next, err := s.admin.RotateWebhookSecret(ctx, made.ID, wire.RotateRequest{OverlapSeconds: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.worker.Register(ctx, s.declaration("d-2")); err != nil {
		t.Fatal(err)
	}
	b := arrives()
	if !strings.Contains(string(b.body), "d-2") {
		t.Errorf("the second delivery is %s", b.body)
	}
	accepted(b, made.Secret)
	accepted(b, next.Secret)
}

// TestWebhookVectors: libraries agree with each published vector on whether it is valid.
func TestWebhookVectors(t *testing.T) {
	t.Parallel()
	text, err := schemas.File(schemas.WebhookVectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var published struct {
		Vectors []struct {
			Name, Secret, Body string
			Valid              bool
			Now                int64
			Headers            map[string]string
		}
	}
	if err := json.Unmarshal(text, &published); err != nil || len(published.Vectors) < 10 {
		t.Fatalf("%d vectors: %v", len(published.Vectors), err)
	}
	for _, v := range published.Vectors {
		header := http.Header{}
		for name, value := range v.Headers {
			header.Set(name, value)
		}
		at, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
		fresh := err == nil && v.Now-at <= 300 && at-v.Now <= 300
		for name, verify := range libraries {
			if err := verify(header, []byte(v.Body), v.Secret); v.Valid != (err == nil && fresh) {
				t.Errorf("%s, %s: %v", v.Name, name, err)
			}
		}
	}
}
