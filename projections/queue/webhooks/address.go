package webhooks

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"integrityledger/domain"
)

const maxWebhookURL = 2048

// EgressPolicy restricts the addresses that the service may connect to on behalf of a tenant.
type EgressPolicy struct {
	Deny     []netip.Prefix // in addition to addresses that are not globally reachable
	Insecure bool           // for development: allows http and every address
	Loopback bool           // for a demo: also allows loopback addresses, even over http
}

// CheckURL refuses a URL that cannot be a destination. It must be https with a host that a resolver accepts, have at
// most 2048 characters, none of them misleading, no user and no fragment, and no literal address that Allows refuses. A
// name is checked at every connection, after it is resolved.
func (p EgressPolicy) CheckURL(text string) *domain.Error {
	const rule = "must be an absolute https URL of at most 2048 characters with a host, without user, password and " +
		"fragment"
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || len(text) > maxWebhookURL || u.Host == "" ||
		u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" ||
		strings.ContainsAny(text, " #") || !domain.ValidName(text, maxWebhookURL) {
		return domain.Invalid([]domain.FieldError{{Pointer: "/url", Code: "FORMAT", Message: rule}})
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return domain.Invalid([]domain.FieldError{
				{Pointer: "/url", Code: "FORMAT", Message: "must have a port from 1 to 65535, or none"},
			})
		}
	}
	host, ok := hostName(u.Hostname())
	address, err := netip.ParseAddr(host)
	literal := err == nil
	if !ok && !literal {
		return domain.Invalid([]domain.FieldError{{Pointer: "/url", Code: "FORMAT",
			Message: "must name a host of at most 253 characters, " +
				"whose labels between the dots have 1 to 63 letters, digits, hyphens inside, or underscores"}})
	}
	numeric := !literal && looksNumeric(host)
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	here := p.Loopback && (local || literal && address.Unmap().IsLoopback())
	if u.Scheme == "http" && !p.Insecure && !here {
		return domain.Invalid([]domain.FieldError{
			{Pointer: "/url", Code: "FORMAT", Message: rule + ". " + domain.BlockedAddressRemedy},
		})
	}
	if !p.Insecure && (literal && !p.Allows(address) || numeric || local && !here) {
		blocked := domain.Refuse(
			domain.WebhookURLBlocked,
			"The address is not globally reachable, or the operator does not allow it; use the public address of the receiver. "+
				domain.BlockedAddressRemedy,
		)
		blocked.Fields = []domain.FieldError{
			{Pointer: "/url", Code: "BLOCKED", Message: "must name a host that is reachable from the public Internet"},
		}
		return blocked
	}
	return nil
}

// hostLabel matches a label that Go's resolver accepts.
var hostLabel = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// hostName returns a host in the form that is resolved: in ASCII (IDNA, like net/http), in lower case, without the root
// dot. ok is false if no resolver accepts it.
func hostName(text string) (name string, ok bool) {
	ascii, err := text, error(nil)
	if strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		ascii, err = idna.Lookup.ToASCII(text)
	}
	name = strings.TrimSuffix(strings.ToLower(ascii), ".")
	ok = err == nil && len(name) <= 253
	for label := range strings.SplitSeq(name, ".") {
		ok = ok && hostLabel.MatchString(label)
	}
	return name, ok
}

// looksNumeric reports whether a host's last label is a number, as in 127.1 or 0x7f000001. Some resolvers parse such
// hosts as IPv4 addresses (WHATWG URL, "ends in a number").
func looksNumeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// Allows reports whether the service may connect to an address.
func (p EgressPolicy) Allows(a netip.Addr) bool {
	if p.Insecure {
		return true
	}
	a = a.Unmap()
	for _, prefix := range p.Deny {
		if prefix.Contains(a) {
			return false
		}
	}
	if p.Loopback && a.IsLoopback() {
		return true
	}
	if embedded, ok := nat64(a); ok {
		p.Loopback = false // the translator's loopback is another machine
		return p.Allows(embedded)
	}
	return GloballyReachable(a)
}

// nat64 returns the IPv4 address inside the well-known prefix 64:ff9b::/96 (RFC 6052).
func nat64(a netip.Addr) (netip.Addr, bool) {
	if !netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
		return netip.Addr{}, false
	}
	raw := a.As16()
	return netip.AddrFrom4([4]byte(raw[12:])), true
}

// GloballyReachable follows the IANA special-purpose address registries (RFC 6890). It returns false for addresses that
// they do not list as globally reachable, for multicast, for IPv6 outside of the global unicast space 2000::/3, and for
// tunnels that hide another address (6to4, Teredo). It treats an IPv4 address inside IPv6 as IPv4.
func GloballyReachable(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
		return false
	}
	for _, exception := range reachableExceptions() {
		if exception.Contains(a) {
			return true
		}
	}
	for _, special := range specialPurpose() {
		if special.Contains(a) {
			return false
		}
	}
	return true
}

// specialPurpose returns the blocks of the IANA IPv4 and IPv6 Special-Purpose Address Registries that are not globally
// reachable, and multicast.
func specialPurpose() []netip.Prefix {
	return prefixList(
		"0.0.0.0/8",       // this network, RFC 791
		"10.0.0.0/8",      // private use, RFC 1918
		"100.64.0.0/10",   // shared address space, RFC 6598
		"127.0.0.0/8",     // loopback, RFC 1122
		"169.254.0.0/16",  // link local, cloud metadata among them, RFC 3927
		"172.16.0.0/12",   // private use, RFC 1918
		"192.0.0.0/24",    // IETF protocol assignments, RFC 6890
		"192.0.2.0/24",    // documentation, RFC 5737
		"192.88.99.0/24",  // 6to4 relay, deprecated, RFC 7526
		"192.168.0.0/16",  // private use, RFC 1918
		"198.18.0.0/15",   // benchmarking, RFC 2544
		"198.51.100.0/24", // documentation, RFC 5737
		"203.0.113.0/24",  // documentation, RFC 5737
		"224.0.0.0/4",     // multicast, RFC 5771
		"240.0.0.0/4",     // reserved and limited broadcast, RFC 1112, RFC 8190

		"2001::/23",     // IETF protocol assignments, Teredo among them, RFC 2928
		"2001:db8::/32", // documentation, RFC 3849
		"2002::/16",     // 6to4, RFC 3056
		"3fff::/20",     // documentation, RFC 9637
	)
}

// reachableExceptions returns the globally reachable parts of special-purpose blocks.
func reachableExceptions() []netip.Prefix {
	return prefixList(
		"192.0.0.9/32",    // Port Control Protocol anycast, RFC 7723
		"192.0.0.10/32",   // TURN anycast, RFC 8155
		"2001:1::1/128",   // Port Control Protocol anycast, RFC 7723
		"2001:1::2/128",   // TURN anycast, RFC 8155
		"2001:1::3/128",   // DNS-SD SRP anycast, RFC 9665
		"2001:3::/32",     // AMT, RFC 7450
		"2001:4:112::/48", // AS112, RFC 7535
		"2001:20::/28",    // ORCHIDv2, RFC 7343
		"2001:30::/28",    // drone remote ID, RFC 9374
	)
}

func prefixList(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}
