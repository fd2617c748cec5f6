package domain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSecretKeys: the first key encrypts, every key decrypts what it encrypted, and a key that is missing is named.
func TestSecretKeys(t *testing.T) {
	first, firstText := NewSecretKey()
	second, secondText := NewSecretKey()
	id := NewID[WebhookID](time.Unix(0, 0))
	keys, err := ParseSecretKeys(secondText + "\n" + firstText + ",\t")
	if err != nil || !slices.Equal(keys, SecretKeys{second, first}) {
		t.Fatal(keys, err)
	}
	if back, err := ParseSecretKeys(keys.Text()); err != nil || !slices.Equal(back, keys) {
		t.Errorf("%v, %v", back, err)
	}
	for _, key := range keys {
		sealed := key.Seal(id, "secret")
		if secret, err := keys.Open(id, sealed); err != nil || secret != "secret" || SealedWith(sealed) != key.ID() {
			t.Errorf("%q, %v, %s", secret, err, SealedWith(sealed))
		}
		sealed[len(sealed)-1] ^= 1
		if _, err := keys.Open(id, sealed); err == nil || errors.Is(err, ErrOtherSecretKey) {
			t.Errorf("a damaged secret: %v", err)
		}
	}
	if _, err := keys[:1].Open(id, first.Seal(id, "secret")); !errors.Is(err, ErrOtherSecretKey) {
		t.Errorf("without its key: %v", err)
	}
	if _, err := keys[:0].Open(id, first.Seal(id, "secret")); err == nil {
		t.Error("without keys")
	}
	for text, want := range map[string]string{
		"": "32 bytes", " ,\n": "32 bytes", firstText + " short": "32 bytes",
		firstText + " " + secondText + " " + firstText: "twice",
	} {
		if _, err := ParseSecretKeys(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), firstText) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if SealedWith(nil) != "" || SealedWith([]byte{2, 0, 0, 0, 0, 0}) != "" {
		t.Error("the key of a malformed secret")
	}
}

// TestReencryptWebhook: both secrets stay the same while the previous one signs. Afterwards it is dropped. Nothing
// changes if the secrets were replaced meanwhile.
func TestReencryptWebhook(t *testing.T) {
	former, _ := NewSecretKey()
	next, _ := NewSecretKey()
	w := newWorld(t, testSigner(t), 100)
	keys, now := SecretKeys{next, former}, w.now
	do := func(c Command) {
		t.Helper()
		if code := w.execute(c); code != "" {
			t.Fatal(code)
		}
	}
	create, secret := NewCreateWebhook(CreateWebhook{Origin: w.origin, URL: "https://a.example"}, former, now)
	do(create)
	rotate, newer := NewRotateSecret(RotateSecret{Origin: w.origin, Webhook: create.Outcome.ID, Overlap: time.Hour}, former)
	do(rotate)
	before := *w.state.webhook(w.origin.Organization, create.Outcome.ID)
	if _, err := NewReencryptWebhook(w.origin, before, keys[:1], now); !errors.Is(err, ErrOtherSecretKey) {
		t.Errorf("without the former key: %v", err)
	}
	c, err := NewReencryptWebhook(w.origin, before, keys, now)
	if err != nil {
		t.Fatal(err)
	}
	do(c)
	after := *w.state.webhook(w.origin.Organization, before.ID)
	current, err := keys[:1].Open(before.ID, after.Secret)
	previous, err2 := keys[:1].Open(before.ID, after.PreviousSecret)
	if !c.Changed || current != newer || previous != secret || errors.Join(err, err2) != nil ||
		!after.PreviousUntil.Equal(*before.PreviousUntil) || !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("%q %q %v %v", current, previous, err, err2)
	}
	if do(c); c.Changed {
		t.Error("it replaces secrets that it has not read")
	}
	if c, err = NewReencryptWebhook(w.origin, after, keys, after.PreviousUntil.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	do(c)
	if after = *w.state.webhook(w.origin.Organization, before.ID); after.PreviousSecret != nil || after.PreviousUntil != nil {
		t.Errorf("the previous secret has ended: %v", after.PreviousUntil)
	}
}
