package webhooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
)

// verify checks both signatures of a delivery like a receiver with one secret: HMAC-SHA256 over "<time>.<body>" with
// the whole secret as key, and over "<id>.<time>.<body>" with the decoded secret. Third-party libraries verify them in
// cmd/lab/judges.
func verify(a arrival, secret string) error {
	at := a.header.Get("webhook-timestamp")
	if !slices.Contains(
		strings.Split(a.header.Get("Service-Signature"), ","),
		"v1="+hex.EncodeToString(sum([]byte(secret), at, string(a.body))),
	) {
		return errors.New("Service-Signature is not that of the secret")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	signature := "v1," + base64.StdEncoding.EncodeToString(sum(key, a.header.Get("webhook-id"), at, string(a.body)))
	if err != nil || !slices.Contains(strings.Fields(a.header.Get("webhook-signature")), signature) {
		return fmt.Errorf("webhook-signature is not that of the secret: %w", err)
	}
	return nil
}

func sum(key []byte, parts ...string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(strings.Join(parts, "."))) // a hash never fails
	return mac.Sum(nil)
}

// TestSignatures: a delivery is signed with the secret as shown, even during a rotation, and no other body or secret
// gives the same signatures. Every attempt has the event's id, and its own time and signatures.
func TestSignatures(t *testing.T) {
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
	check(t, verify(a, secret))
	changed := arrival{header: a.header, body: bytes.Replace(a.body, []byte(`"version":1}`), []byte(`"version":2}`), 1)}
	if verify(changed, secret) == nil || verify(a, secret[:len(secret)-4]+"AAAA") == nil {
		t.Error("another body or secret has the same signatures")
	}
	matchesSchema(t, a.body)
	if a.header.Get("Service-Event-Type") != "integrity.registered" || a.header.Get("Service-Event-Sequence") == "" ||
		a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", a.header)
	}

	rotate, next := domain.NewRotateSecret(
		domain.RotateSecret{Origin: h.org.Origin(), Webhook: w.ID, Overlap: time.Hour}, h.key,
	)
	h.Must(t, rotate)
	h.pass(10 * time.Second)
	_, err := h.store.Redeliver(context.Background(), h.org.ID, h.inStatus(w.ID, 1, "delivered")[0].ID, h.now())
	check(t, err)
	h.pass(0)
	b := arrivals(2)[1]
	check(t, verify(b, secret))
	check(t, verify(b, next))
	var body struct{ ID string }
	check(t, json.Unmarshal(a.body, &body))
	for _, each := range []arrival{a, b} {
		at := each.header.Get("webhook-timestamp")
		if each.header.Get("webhook-id") != body.ID ||
			!strings.HasPrefix(each.header.Get("Service-Signature"), "t="+at+",v1=") {
			t.Errorf("%v", each.header)
		}
	}
	if !bytes.Equal(a.body, b.body) || a.header.Get("webhook-timestamp") == b.header.Get("webhook-timestamp") ||
		strings.Count(b.header.Get("webhook-signature"), " ") != 1 {
		t.Errorf("%v\n%v", a.header, b.header)
	}
	h.Audit(t)
}
