package edge

import (
	"net/http"
	"net/netip"
	"testing"
	"time"
)

func TestClientAddress(t *testing.T) {
	s := &Identity{
		Config: Config{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		},
	}
	for _, c := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:99", nil, "192.0.2.1"},
		{"192.0.2.1:99", []string{"198.51.100.7"}, "192.0.2.1"}, // who is no proxy is not believed
		{"10.0.0.1:99", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"203.0.113.9", "198.51.100.7, 10.2.3.4"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"203.0.113.9, nonsense, 10.2.3.4"}, "10.2.3.4"},
		{"10.0.0.1:99", []string{""}, "10.0.0.1"},
		{"10.0.0.1:99", []string{"203.0.113.9, 198.51.100.7,"}, "198.51.100.7"}, // empty elements (RFC 9110, section 5.6.1)
		{"10.0.0.1:99", []string{"203.0.113.9", "198.51.100.7", " , ,\t"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"203.0.113.9,198.51.100.7", "", "10.2.3.4"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.1:99", []string{"198.51.100.7, [fd00::2], [fd00::3]:8080,"}, "198.51.100.7"},
		{"10.0.0.1:99", []string{"203.0.113.9, [198.51.100.7]"}, "10.0.0.1"}, // only IPv6 has brackets
		{"10.0.0.1:99", []string{"203.0.113.9, [2001:db8::1"}, "10.0.0.1"},
		{"10.0.0.1:99", []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"10.0.0.1:99", []string{"203.0.113.9, 198.51.100.7:"}, "10.0.0.1"},
		{"10.0.0.1:99", []string{",,, ,"}, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:99", []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		{"[fd00::1]:99", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := s.ClientAddress(r).String(); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}

func TestAddressLimit(t *testing.T) {
	now := time.Date(2026, 11, 1, 10, 0, 15, 0, time.UTC)
	l := &AddressLimit{name: Minute, Max: 3}
	refused := func(address string) bool { return l.Count(netip.MustParseAddr(address), now).refusal() != nil }
	for i := range 5 {
		if got := refused("192.0.2.1"); got != (i >= 3) {
			t.Errorf("request %d refused: %t", i, got)
		}
	}
	if refused("192.0.2.2") {
		t.Error("another IPv4 address shares the count")
	}
	for i := range 5 {
		address := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
		if got := refused(address.String()); got != (i >= 3) {
			t.Errorf("request %d of a /64 refused: %t", i, got)
		}
	}
	for i := range 40 { // 3 requests were counted above
		address := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: byte(i + 1)})
		if got := refused(address.String()); got != (i >= 27) {
			t.Errorf("request %d of a /48 refused: %t", i, got)
		}
	}
	if state := l.Count(netip.MustParseAddr("192.0.2.1"), now); state.Reset != 45*time.Second {
		t.Errorf("reset in %s", state.Reset)
	}
	now = now.Add(time.Minute)
	if refused("192.0.2.1") {
		t.Error("a new minute begins with the old count")
	}
}

func TestAddressLimitIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	l := &AddressLimit{name: Minute, Max: 1}
	first := netip.MustParseAddr("10.0.0.0")
	address := first
	for range maxAddresses + 1 {
		l.Count(address, now)
		address = address.Next()
	}
	if l.counts.Len() != maxAddresses {
		t.Errorf("%d addresses are held", l.counts.Len())
	}
	if l.Count(first, now).refusal() != nil {
		t.Error("the oldest address is still held")
	}
}
