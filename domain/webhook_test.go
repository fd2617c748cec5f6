package domain

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSecretKey(t *testing.T) {
	key, text := NewSecretKey()
	back, err := ParseSecretKey(text)
	if err != nil || back != key {
		t.Errorf("a key does not read back: %v", err)
	}
	if hexadecimal, err := ParseSecretKey(strings.Repeat("0a", 32)); err != nil || hexadecimal[0] != 10 {
		t.Error("hexadecimal is not read")
	}
	for _, wrong := range []string{"", "x", text[:40], text + text, strings.Repeat("zz", 32)} {
		if _, err := ParseSecretKey(wrong); err == nil {
			t.Errorf("%q was read as a key", wrong)
		}
	}
	mine := NewID[WebhookID](noon())
	other := NewID[WebhookID](noon())
	secret, sealed := key.newSecret(mine)
	if !regexp.MustCompile("^whsec_[0-9A-Za-z]{44}$").MatchString(secret) || bytes.Contains(sealed, []byte(secret[6:])) {
		t.Fatalf("%q", secret)
	}
	if opened, err := key.Open(mine, sealed); err != nil || opened != secret {
		t.Errorf("%q %v", opened, err)
	}
	if _, err := key.Open(other, sealed); err == nil {
		t.Error("a secret opens for another destination")
	}
	strange, _ := NewSecretKey()
	if _, err := strange.Open(mine, sealed); !errors.Is(err, ErrOtherSecretKey) {
		t.Errorf("another key: %v", err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := key.Open(mine, changed); err == nil {
			t.Errorf("a secret with another byte at %d opens", i)
		}
	}
	if bytes.Equal(key.Seal(mine, secret), sealed) {
		t.Error("a nonce was used twice")
	}
	// The sealed form, built by hand: stored secrets must stay readable in all later versions.
	block, _ := aes.NewCipher(key[:])
	gcm, _ := cipher.NewGCM(block)
	sum, nonce := sha256.Sum256(key[:]), []byte("twelve bytes")
	sealed = gcm.Seal(slices.Concat([]byte{1}, sum[:4], nonce), nonce, []byte(secret), []byte(mine.String()))
	if opened, err := key.Open(mine, sealed); err != nil || opened != secret {
		t.Errorf("the sealed form has changed: %q %v", opened, err)
	}
}

// TestSignWebhook: the form is fixed, because receivers in any language depend on it.
func TestSignWebhook(t *testing.T) {
	got := SignWebhook(time.Unix(1700000000, 5), []byte(`{"a":1}`), "whsec_x", "whsec_y")
	const want = "t=1700000000,v1=b3438763ab46d9634b9844c8722818eaf523f803db1327484c6067462a5fd6d1" +
		",v1=d4872fee0ef1df0d0a8f3087a4e503d4f5643d087951ce0fe98e617bd72b8d82"
	if got != want {
		t.Errorf("%s", got)
	}
}

// TestWebhookLimits: an organization has at most 50 destinations, and a company 20 authorized ones. Deleting one makes
// room and ends its authorizations.
func TestWebhookLimits(t *testing.T) {
	w := newWorld(t, testSigner(t), 100)
	origin := w.origin
	var key SecretKey
	create := func() (*CreateWebhook, Code) {
		c, _ := NewCreateWebhook(CreateWebhook{Origin: origin, URL: "https://r.example", Types: 7}, key, w.now)
		return c, w.execute(c)
	}
	company := w.state.CompanyByReference(origin.Organization, "company-1")
	authorize := func(id WebhookID, enabled bool) Code {
		return w.execute(&SetWebhookAccess{Origin: origin, Company: company.ID, Webhook: id, Enabled: enabled})
	}
	var ids []WebhookID
	for range MaxWebhooks {
		c, code := create()
		if code != "" {
			t.Fatal(code)
		}
		ids = append(ids, c.Outcome.ID)
	}
	if _, code := create(); code != WebhookLimit {
		t.Errorf("destination 51: %q", code)
	}
	if company.HasWebhooks {
		t.Error("a company without destinations has some")
	}
	for i, id := range ids[:MaxWebhooksPerCompany] {
		if code := authorize(id, true); code != "" {
			t.Fatalf("%d: %s", i, code)
		}
	}
	// A later registration in the same group depends on this to queue its deliveries.
	if !w.state.Company(company.ID).HasWebhooks {
		t.Error("the company does not know that it has destinations")
	}
	if code := authorize(ids[0], true); code != "" {
		t.Errorf("once more: %q", code)
	}
	if code := authorize(ids[30], true); code != WebhookLimit {
		t.Errorf("destination 21 of a company: %q", code)
	}
	if code := w.execute(&DeleteWebhook{Origin: origin, Webhook: ids[0]}); code != "" {
		t.Fatal(code)
	}
	if code := authorize(ids[30], true); code != "" {
		t.Errorf("after a deletion: %q", code)
	}
	for range 2 { // revoking a missing authorization makes no room
		if code := authorize(ids[30], false); code != "" {
			t.Errorf("taken back: %q", code)
		}
	}
	if code := authorize(ids[31], true); code != "" {
		t.Errorf("after it was taken back: %q", code)
	}
	if code := authorize(ids[30], true); code != WebhookLimit {
		t.Errorf("destination 21 of a company, again: %q", code)
	}
	if code := authorize(ids[0], true); code != NotFound {
		t.Errorf("a deleted destination: %q", code)
	}
	if _, code := create(); code != "" {
		t.Errorf("after a deletion: %q", code)
	}
	foreign := origin
	foreign.Organization[0] ^= 1
	stranger := &DeleteWebhook{Origin: foreign, Webhook: ids[1]}
	if _, err := stranger.Decide(w.state, w.now); !isCode(err, NotFound) {
		t.Errorf("another organization's: %v", err)
	}
}

func isCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
