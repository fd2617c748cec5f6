package domain

import "net/netip"

// IsLoopbackHost is true of an address that cannot leave this machine, and of the name localhost.
func IsLoopbackHost(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
