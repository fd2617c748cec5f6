package console

import (
	"net/netip"
	"testing"
)

// Requests to sign up that wait for hours, from many networks, do not keep members from getting sign-in links.
func TestSignUpsLeaveSignInsTheirPlaces(t *testing.T) {
	m := NewLinkMailer(LinkMailer{})
	ask := func(network int, signUp bool) error {
		request := linkRequest{network: netip.PrefixFrom(netip.AddrFrom4([4]byte{1, byte(network >> 8), byte(network)}), 32)}
		if signUp {
			turn, err := m.signUps.Enter(request.network, 1)
			if err != nil {
				return err
			}
			request.turn = turn
		}
		return m.ask(request)
	}
	taken := 0
	for network := range 2 * maxLinkRequests {
		if ask(network, true) == nil {
			taken++
		}
	}
	if taken != maxLinkRequests {
		t.Errorf("%d requests to sign up were taken", taken)
	}
	for network := range maxLinkRequests {
		if err := ask(network, false); err != nil {
			t.Fatalf("sign-in %d: %v", network, err)
		}
	}
}
