package demo

import (
	"net"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/config"
)

func TestOnlyLoopbackHasADemo(t *testing.T) {
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 9}
	if err := Allowed(config.Config{BaseURL: "http://127.0.0.1:9"}, everywhere); err == nil {
		t.Error("a demo for everybody")
	}
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	if err := Allowed(
		config.Config{BaseURL: "https://127.0.0.1:1", TLSCert: "a.pem", TLSKey: "b.pem"}, loopback,
	); err == nil {
		t.Error("the demo runs behind a certificate that its own commands do not trust")
	}
	// A client's variable can remain from a demo with another address.
	if err := Allowed(config.Config{BaseURL: "http://127.0.0.1:8080"}, loopback); err == nil ||
		!strings.Contains(err.Error(), "INTEGRITY_BASE_URL is http://127.0.0.1:8080") {
		t.Errorf("the demo names an address where it does not listen: %v", err)
	}
	for _, base := range []string{"http://127.0.0.1:1", "http://localhost:1"} {
		if err := Allowed(config.Config{BaseURL: base}, loopback); err != nil {
			t.Error(err)
		}
	}
}
