package webhooks_test

import (
	"net/netip"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/projections/queue/webhooks"
)

// TestGloballyReachable tries one address of every block of the IANA special-purpose registries, and some that hide
// another address.
func TestGloballyReachable(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
		"127.255.255.254",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1",
		"192.88.99.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
		"255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1",
		"64:ff9b::1", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
		"2001:2::1", "2001:10::1",
		"2001:db8::1", "2002:a00:1::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
		"fec0::1", "ff02::1", "4000::1",
	} {
		if webhooks.GloballyReachable(netip.MustParseAddr(text)) {
			t.Errorf("%s is taken for globally reachable", text)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
		"192.0.0.9", "192.0.0.10",
		"192.0.1.0", "192.31.196.1", "192.52.193.1", "192.175.48.1", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"::ffff:1.1.1.1",
		"2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2620:4f:8000::1", "2001:1::1", "2001:4:112::1",
		"2001:20::1", "3ffe::1", "2a00::1",
	} {
		if !webhooks.GloballyReachable(netip.MustParseAddr(text)) {
			t.Errorf("%s is not taken for globally reachable", text)
		}
	}
	if webhooks.GloballyReachable(netip.Addr{}) || webhooks.GloballyReachable(netip.MustParseAddr("2a00::1%eth0")) {
		t.Error("no address, or one with a zone, is taken for globally reachable")
	}
}

func TestEgressPolicy(t *testing.T) {
	p := webhooks.EgressPolicy{
		Deny: []netip.Prefix{netip.MustParsePrefix("1.1.1.0/24"), netip.MustParsePrefix("2606:4700::/32")},
	}
	for text, allowed := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": false, "::ffff:1.1.1.1": false, "64:ff9b::101:101": false, "64:ff9b::808:808": true,
		"64:ff9b::a00:1":  false,
		"2606:4700::1111": false, "2a00::1": true, "127.0.0.1": false,
	} {
		if p.Allows(netip.MustParseAddr(text)) != allowed {
			t.Errorf("%s: allowed is not %v", text, allowed)
		}
	}
	if !(webhooks.EgressPolicy{Insecure: true}).Allows(netip.MustParseAddr("127.0.0.1")) {
		t.Error("development reaches no loopback")
	}
	demo := webhooks.EgressPolicy{Loopback: true, Deny: []netip.Prefix{netip.MustParsePrefix("127.9.0.0/16")}}
	for text, allowed := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "::ffff:127.0.0.1": true, "127.9.0.1": false,
		"8.8.8.8":  true,
		"10.0.0.1": false, "192.168.0.1": false, "169.254.169.254": false, "172.16.0.1": false, "0.0.0.0": false,
		"::": false, "fe80::1": false, "fc00::1": false, "64:ff9b::a00:1": false,
	} {
		if demo.Allows(netip.MustParseAddr(text)) != allowed {
			t.Errorf("a demo, %s: allowed is not %v", text, allowed)
		}
	}
}

func label(n int) string { return strings.Repeat("a", n) }

// name returns a host name of n characters.
func name(n int) string { return strings.Repeat(label(49)+".", 5)[:250-1] + "." + label(n-250) }

func TestWebhookURLs(t *testing.T) {
	secure, development := webhooks.EgressPolicy{}, webhooks.EgressPolicy{Insecure: true}
	for text, code := range map[string]domain.Code{
		"https://receiver.example/hook?a=b":                 "",
		"https://receiver.example:8443":                     "",
		"https://8.8.8.8/":                                  "",
		"https://[2a00::1]:8443/x":                          "",
		"http://receiver.example/":                          domain.InvalidData,
		"ftp://receiver.example/":                           domain.InvalidData,
		"https://":                                          domain.InvalidData,
		"https:///x":                                        domain.InvalidData,
		"https://:443/":                                     domain.InvalidData,
		"receiver.example":                                  domain.InvalidData,
		"":                                                  domain.InvalidData,
		"https://user@receiver.example/":                    domain.InvalidData,
		"https://user:secret@receiver.example/":             domain.InvalidData,
		"https://receiver.example/#x":                       domain.InvalidData,
		"https://receiver.example/#":                        domain.InvalidData,
		"https://receiver.example/a b":                      domain.InvalidData,
		"https://receiver.example/\n":                       domain.InvalidData,
		"https://receiver.example:0/":                       domain.InvalidData,
		"https://receiver.example:65536/":                   domain.InvalidData,
		"https://receiver.example:/":                        domain.InvalidData,
		"https://r.example/" + strings.Repeat("x", 2048-18): "",
		"https://r.example/" + strings.Repeat("x", 2048-17): domain.InvalidData,
		"https://127.0.0.1/":                                domain.WebhookURLBlocked,
		"https://169.254.169.254/latest/meta-data":          domain.WebhookURLBlocked,
		"https://[::1]/":                                    domain.WebhookURLBlocked,
		"https://[::ffff:10.0.0.1]/":                        domain.WebhookURLBlocked,
		"https://127.1/":                                    domain.WebhookURLBlocked,
		"https://2130706433/":                               domain.WebhookURLBlocked,
		"https://0x7f000001/":                               domain.WebhookURLBlocked,
		"https://0177.0.0.01/":                              domain.WebhookURLBlocked,
		"https://localhost:8443/":                           domain.WebhookURLBlocked,
		"https://LOCALHOST./":                               domain.WebhookURLBlocked,
		"https://a.localhost/":                              domain.WebhookURLBlocked,

		// Names that no resolver accepts, and similar valid ones.
		"https://a.b.c..d/":                                domain.InvalidData,
		"https://.receiver.example/":                       domain.InvalidData,
		"https://receiver.example../":                      domain.InvalidData,
		"https://./":                                       domain.InvalidData,
		"https://../":                                      domain.InvalidData,
		"https://receiver.example./":                       "",
		"https://" + label(63) + ".example/":               "",
		"https://" + label(64) + ".example/":               domain.InvalidData,
		"https://" + name(253) + "/":                       "",
		"https://" + name(253) + "./":                      "",
		"https://" + name(254) + "/":                       domain.InvalidData,
		"https://my_receiver.example/":                     "",
		"https://_dmarc.receiver.example/":                 "",
		"https://re--ceiver.example/":                      "",
		"https://-receiver.example/":                       domain.InvalidData,
		"https://receiver-.example/":                       domain.InvalidData,
		"https://re,ceiver.example/":                       domain.InvalidData,
		"https://re*ceiver.example/":                       domain.InvalidData,
		"https://receiver.example\\@other.example/":        domain.InvalidData,
		"https://bücher.example/":                          "",
		"https://b%C3%BCcher.example/":                     "",
		"https://xn--bcher-kva.example/":                   "",
		"https://b\u202ecudos.example/":                    domain.InvalidData,
		"https://a。b。。c/":                                  domain.InvalidData,
		"https://" + strings.Repeat("ü", 63) + ".example/": domain.InvalidData, // longer in ASCII

		// Other spellings of addresses.
		"https://１２７.0.0.1/":                         domain.WebhookURLBlocked,
		"https://127。0。0。1/":                         domain.WebhookURLBlocked,
		"https://ⓛocalhost/":                         domain.WebhookURLBlocked,
		"https://127.0.0.1./":                        domain.WebhookURLBlocked,
		"https://017700000001/":                      domain.WebhookURLBlocked,
		"https://0X7F.1/":                            domain.WebhookURLBlocked,
		"https://0x7f.0.0.0x/":                       domain.WebhookURLBlocked,
		"https://1.2.3.4.5/":                         domain.WebhookURLBlocked,
		"https://0x" + strings.Repeat("f", 20) + "/": domain.WebhookURLBlocked,
		"https://receiver.example.08/":               domain.WebhookURLBlocked,
		"https://[fe80::1%25eth0]/":                  domain.WebhookURLBlocked,
		"https://[2a00::1%25eth0]/":                  domain.WebhookURLBlocked,
		"https://[::7f00:1]/":                        domain.WebhookURLBlocked,
		"https://[2a00::1]./":                        domain.InvalidData,
		"https://[8.8.8.8]/":                         domain.InvalidData,
		"https://2a00::1/":                           domain.InvalidData,
		"https://receiver.example:443:443/":          domain.InvalidData,
		"https://receiver.example:-1/":               domain.InvalidData,
		"https://receiver.example:0443/":             "",
		"https://receiver.example:١/":                domain.InvalidData,
	} {
		var got domain.Code
		if err := secure.CheckURL(text); err != nil {
			got = err.Code
			if len(err.Fields) != 1 || err.Fields[0].Pointer != "/url" {
				t.Errorf("%q: %v", text, err.Fields)
			}
		}
		if got != code {
			t.Errorf("%q: %q, want %q", text, got, code)
		}
	}
	demo := webhooks.EgressPolicy{Loopback: true}
	for text, code := range map[string]domain.Code{
		"http://127.0.0.1:9/": "", "https://127.0.0.1/": "", "http://localhost:9/": "", "http://[::1]:9/hook": "",
		"https://a.localhost/": "", "https://receiver.example/": "",
		"http://receiver.example/": domain.InvalidData, "http://10.0.0.1/": domain.InvalidData,
		"http://127.1/": domain.InvalidData, "http://user@127.0.0.1/": domain.InvalidData,
		"https://10.0.0.1/": domain.WebhookURLBlocked, "https://[64:ff9b::7f00:1]/": domain.WebhookURLBlocked,
		"https://0.0.0.0/": domain.WebhookURLBlocked, "https://169.254.169.254/": domain.WebhookURLBlocked,
		"https://127.1/": domain.WebhookURLBlocked,
	} {
		var got domain.Code
		if err := demo.CheckURL(text); err != nil {
			got = err.Code
		}
		if got != code {
			t.Errorf("a demo, %q: %q, want %q", text, got, code)
		}
	}
	// The settings that a refusal names if only the address is refused.
	for text, lifted := range map[string]bool{
		"http://receiver.example/": true, "https://127.0.0.1/": true, "https://user@receiver.example/": false,
	} {
		refused := secure.CheckURL(text)
		if says := strings.Contains(refused.Message+refused.Fields[0].Message, domain.BlockedAddressRemedy); says != lifted {
			t.Errorf("%q: %v %v", text, refused, refused.Fields)
		}
	}
	for text, ok := range map[string]bool{
		"http://127.0.0.1:9/": true, "https://localhost/": true, "ftp://127.0.0.1/": false,
	} {
		if (development.CheckURL(text) == nil) != ok {
			t.Errorf("development, %q", text)
		}
	}
}
