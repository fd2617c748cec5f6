package domain

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// One address of every block of the IANA special-purpose registries, and some
// that hide another address.
func TestGloballyReachable(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1",
		"64:ff9b::1", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1",
		"2001:db8::1", "2002:a00:1::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1",
	} {
		if GloballyReachable(netip.MustParseAddr(text)) {
			t.Errorf("%s is taken for globally reachable", text)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.0.9", "192.0.0.10",
		"192.0.1.0", "192.31.196.1", "192.52.193.1", "192.175.48.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:1.1.1.1",
		"2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2620:4f:8000::1", "2001:1::1", "2001:4:112::1", "2001:20::1", "3ffe::1", "2a00::1",
	} {
		if !GloballyReachable(netip.MustParseAddr(text)) {
			t.Errorf("%s is not taken for globally reachable", text)
		}
	}
	if GloballyReachable(netip.Addr{}) || GloballyReachable(netip.MustParseAddr("2a00::1%eth0")) {
		t.Error("no address, or one with a zone, is taken for globally reachable")
	}
}

func TestEgressPolicy(t *testing.T) {
	p := EgressPolicy{Deny: []netip.Prefix{netip.MustParsePrefix("1.1.1.0/24"), netip.MustParsePrefix("2606:4700::/32")}}
	for text, allowed := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": false, "::ffff:1.1.1.1": false, "64:ff9b::101:101": false, "64:ff9b::808:808": true, "64:ff9b::a00:1": false,
		"2606:4700::1111": false, "2a00::1": true, "127.0.0.1": false,
	} {
		if p.Allows(netip.MustParseAddr(text)) != allowed {
			t.Errorf("%s: allowed is not %v", text, allowed)
		}
	}
	if !(EgressPolicy{Insecure: true}).Allows(netip.MustParseAddr("127.0.0.1")) {
		t.Error("development reaches no loopback")
	}
}

func TestWebhookURLs(t *testing.T) {
	secure, development := EgressPolicy{}, EgressPolicy{Insecure: true}
	for text, code := range map[string]Code{
		"https://receiver.example/hook?a=b":                 "",
		"https://receiver.example:8443":                     "",
		"https://8.8.8.8/":                                  "",
		"https://[2a00::1]:8443/x":                          "",
		"http://receiver.example/":                          InvalidData,
		"ftp://receiver.example/":                           InvalidData,
		"https://":                                          InvalidData,
		"https:///x":                                        InvalidData,
		"https://:443/":                                     InvalidData,
		"receiver.example":                                  InvalidData,
		"":                                                  InvalidData,
		"https://user@receiver.example/":                    InvalidData,
		"https://user:secret@receiver.example/":             InvalidData,
		"https://receiver.example/#x":                       InvalidData,
		"https://receiver.example/#":                        InvalidData,
		"https://receiver.example/a b":                      InvalidData,
		"https://receiver.example/\n":                       InvalidData,
		"https://receiver.example:0/":                       InvalidData,
		"https://receiver.example:65536/":                   InvalidData,
		"https://receiver.example:/":                        InvalidData,
		"https://r.example/" + strings.Repeat("x", 2048-18): "",
		"https://r.example/" + strings.Repeat("x", 2048-17): InvalidData,
		"https://127.0.0.1/":                                WebhookURLBlocked,
		"https://169.254.169.254/latest/meta-data":          WebhookURLBlocked,
		"https://[::1]/":                                    WebhookURLBlocked,
		"https://[::ffff:10.0.0.1]/":                        WebhookURLBlocked,
		"https://127.1/":                                    WebhookURLBlocked,
		"https://2130706433/":                               WebhookURLBlocked,
		"https://0x7f000001/":                               WebhookURLBlocked,
		"https://0177.0.0.01/":                              WebhookURLBlocked,
		"https://localhost:8443/":                           WebhookURLBlocked,
		"https://LOCALHOST./":                               WebhookURLBlocked,
		"https://a.localhost/":                              WebhookURLBlocked,
	} {
		var got Code
		if err := secure.CheckWebhookURL(text); err != nil {
			got = err.Code
			if len(err.Fields) != 1 || err.Fields[0].Pointer != "/url" {
				t.Errorf("%q: %v", text, err.Fields)
			}
		}
		if got != code {
			t.Errorf("%q: %q, want %q", text, got, code)
		}
	}
	for text, ok := range map[string]bool{"http://127.0.0.1:9/": true, "https://localhost/": true, "ftp://127.0.0.1/": false} {
		if (development.CheckWebhookURL(text) == nil) != ok {
			t.Errorf("development, %q", text)
		}
	}
}

func TestSecretKey(t *testing.T) {
	key, text, err := NewSecretKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
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
	mine, _ := NewID[WebhookID](noon(), rand.Reader)
	other, _ := NewID[WebhookID](noon(), rand.Reader)
	secret, sealed, err := key.newSecret(rand.Reader, mine)
	if err != nil || len(secret) != len("whsec_")+43 || bytes.Contains(sealed, []byte(secret[6:])) {
		t.Fatalf("%q %v", secret, err)
	}
	if opened, err := key.Open(mine, sealed); err != nil || opened != secret {
		t.Errorf("%q %v", opened, err)
	}
	if _, err := key.Open(other, sealed); err == nil {
		t.Error("a secret opens for another destination")
	}
	strange, _, _ := NewSecretKey(rand.Reader)
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
	again, err := key.Seal(rand.Reader, mine, secret)
	if err != nil || bytes.Equal(again, sealed) {
		t.Error("a nonce was used twice")
	}
}

// The form is fixed: a receiver in any language is written against it.
func TestSignWebhook(t *testing.T) {
	got := SignWebhook(time.Unix(1700000000, 5), []byte(`{"a":1}`), "whsec_x", "whsec_y")
	const want = "t=1700000000,v1=b3438763ab46d9634b9844c8722818eaf523f803db1327484c6067462a5fd6d1" +
		",v1=d4872fee0ef1df0d0a8f3087a4e503d4f5643d087951ce0fe98e617bd72b8d82"
	if got != want {
		t.Errorf("%s", got)
	}
}

// An organization has at most 50 destinations, a company 20 authorized ones; deleting one makes room, and takes its authorizations along.
func TestWebhookLimits(t *testing.T) {
	w := newWorld(t, testSigner(t), 100)
	origin := w.origin
	var key SecretKey
	create := func() (*CreateWebhook, Code) {
		c, _, err := NewCreateWebhook(origin, "https://r.example", "", 7, key, w.now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return c, w.execute(c)
	}
	company := w.state.CompanyByReference(origin.Organization, "company-1")
	authorize := func(id WebhookID, enabled bool) Code {
		c, err := NewSetWebhookAccess(origin, company.ID, id, enabled, w.now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return w.execute(c)
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
	// A registration later in the same group goes by this to queue its deliveries.
	if !w.state.Company(company.ID).HasWebhooks {
		t.Error("the company does not know that it has destinations")
	}
	if code := authorize(ids[0], true); code != "" {
		t.Errorf("once more: %q", code)
	}
	if code := authorize(ids[30], true); code != WebhookLimit {
		t.Errorf("destination 21 of a company: %q", code)
	}
	remove, err := NewDeleteWebhook(origin, ids[0], w.now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if code := w.execute(remove); code != "" {
		t.Fatal(code)
	}
	if code := authorize(ids[30], true); code != "" {
		t.Errorf("after a deletion: %q", code)
	}
	if code := authorize(ids[0], true); code != NotFound {
		t.Errorf("a deleted destination: %q", code)
	}
	if _, code := create(); code != "" {
		t.Errorf("after a deletion: %q", code)
	}
	foreign := origin
	foreign.Organization[0] ^= 1
	stranger, _ := NewDeleteWebhook(foreign, ids[1], w.now, rand.Reader)
	if _, err := stranger.Decide(w.state, w.now); !isCode(err, NotFound) {
		t.Errorf("another organization's: %v", err)
	}
}

func isCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
