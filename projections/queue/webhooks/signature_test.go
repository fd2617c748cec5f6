package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v85/webhook"
	svix "github.com/svix/svix-webhooks/go"

	"integrityledger/domain"
)

// libraries verify a delivery, each by the headers that it knows, whatever time it was signed at.
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

// everyLibrary requires that a delivery just made is accepted by all of them with the secret.
func everyLibrary(t *testing.T, a arrival, secret string) {
	t.Helper()
	for name, verify := range libraries {
		if err := verify(a.header, a.body, secret); err != nil {
			t.Errorf("%s: %v in %v", name, err, a.header)
		}
	}
}

// Libraries of others accept what we sign with the secret as it was shown, also while it is rotated; they refuse what was
// changed or is old. Every attempt of an event has its id, and a time and signatures of its own.
func TestThirdPartiesAcceptTheSignatures(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, secret := h.destination(r.URL + "/hook?x=1")
	h.worker()
	h.register(1)
	arrivals := func(n int) []arrival {
		t.Helper()
		h.eventually(strconv.Itoa(n)+" arrive", func() bool { return len(r.got()) == n })
		return r.got()
	}
	a := arrivals(1)[0]
	everyLibrary(t, a, secret)
	fresh, err := standard.NewWebhook(secret)
	check(t, err)
	check(t, fresh.Verify(a.body, a.header))
	check(t, webhook.ValidatePayload(a.body, a.header.Get("Service-Signature"), secret))
	changed := bytes.Replace(a.body, []byte(`"version":1}`), []byte(`"version":2}`), 1)
	for name, verify := range libraries {
		if verify(a.header, changed, secret) == nil {
			t.Errorf("%s accepts a changed body", name)
		}
		if verify(a.header, a.body, secret[:len(secret)-4]+"AAAA") == nil {
			t.Errorf("%s accepts another secret", name)
		}
	}
	old := domain.SignWebhook(time.Now().Add(-301*time.Second), a.body, secret)
	if err := webhook.ValidatePayloadWithTolerance(a.body, old, secret, 300*time.Second); !errors.Is(err, webhook.ErrTooOld) {
		t.Errorf("301 s old: %v", err)
	}
	matchesSchema(t, a.body)
	if a.header.Get("Service-Event-Type") != "integrity.registered" || a.header.Get("Service-Event-Sequence") == "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", a.header)
	}

	rotate, next := domain.NewRotateSecret(domain.RotateSecret{Origin: h.org.Origin(), Webhook: w.ID, Overlap: time.Hour}, h.key)
	h.Must(t, rotate)
	h.pass(10 * time.Second)
	_, err = h.store.Redeliver(context.Background(), h.org.ID, h.inStatus(w.ID, 1, "delivered")[0].ID, h.now())
	check(t, err)
	h.pass(0)
	b := arrivals(2)[1]
	everyLibrary(t, b, secret)
	everyLibrary(t, b, next)
	var body struct{ ID string }
	check(t, json.Unmarshal(a.body, &body))
	for _, each := range []arrival{a, b} {
		at := each.header.Get("webhook-timestamp")
		if each.header.Get("webhook-id") != body.ID || !strings.HasPrefix(each.header.Get("Service-Signature"), "t="+at+",v1=") {
			t.Errorf("%v", each.header)
		}
	}
	if !bytes.Equal(a.body, b.body) || a.header.Get("webhook-timestamp") == b.header.Get("webhook-timestamp") || strings.Count(b.header.Get("webhook-signature"), " ") != 1 {
		t.Errorf("%v\n%v", a.header, b.header)
	}
	h.Audit(t)
}

// A secret of a length that was drawn once is no base64: it signs as before, and has no signature of the standard.
func TestSecretOfFormerLength(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	r := receive(t, nil)
	w, secret := h.destination(r.URL)
	former := secret[:len(secret)-1]
	_, err := h.Pool.Exec(context.Background(), "UPDATE webhooks SET secret = $3 WHERE shard = $1 AND webhook_id = $2", h.org.ID.Shard(), w.ID, h.key.Seal(w.ID, former))
	check(t, err)
	h.worker()
	h.register(1)
	h.eventually("it arrives", func() bool { return len(r.got()) == 1 })
	a := r.got()[0]
	check(t, libraries["stripe"](a.header, a.body, former))
	if _, there := a.header["Webhook-Signature"]; there || a.header.Get("webhook-id") == "" {
		t.Errorf("%v", a.header)
	}
}
