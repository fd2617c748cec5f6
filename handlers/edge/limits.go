package edge

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"integrityledger/domain"
)

// LimitState is the state of a limit in its window, such as the UTC minute, this request included.
type LimitState struct {
	name      string
	says      string // which limit it is, and who shares it (domain.MinuteUsed)
	Max, Used int
	Reset     time.Duration // until the next window
}

// NewLimitState returns the state of a limit per UTC minute. says must be a message with a Spanish text.
func NewLimitState(name, says string, most, used int, now time.Time) *LimitState {
	return &LimitState{
		name: name, says: says, Max: most, Used: used, Reset: now.Truncate(time.Minute).Add(time.Minute).Sub(now),
	}
}

// setLimits writes the headers of draft-ietf-httpapi-ratelimit-headers, with one item for each limit.
func setLimits(h http.Header, limits []*LimitState) {
	if len(limits) == 0 {
		return
	}
	var room [128]byte
	text := room[:0]
	for i, l := range limits {
		text = strconv.AppendInt(append(appendName(text, i, l.name), ";q="...), int64(l.Max), 10)
		text = append(text, ";w=60"...)
	}
	h["Ratelimit-Policy"] = []string{string(text)}
	text = text[:0]
	for i, l := range limits {
		text = strconv.AppendInt(append(appendName(text, i, l.name), ";r="...), int64(max(0, l.Max-l.Used)), 10)
		text = strconv.AppendInt(append(text, ";t="...), int64((l.Reset+time.Second-1)/time.Second), 10)
	}
	h["Ratelimit"] = []string{string(text)}
}

// appendName begins the item of the i-th limit.
func appendName(text []byte, i int, name string) []byte {
	if i > 0 {
		text = append(text, ", "...)
	}
	return append(append(append(text, '"'), name...), '"')
}

func (l *LimitState) refusal() error {
	if l.Used <= l.Max {
		return nil
	}
	return domain.MinuteUsed(l.says, l.Max, l.Reset)
}

// Names of limits in the headers of answers. Pages have a limit of their own: a visit to a page takes several requests
// but only one comparison, and a whole office may share an address.
const (
	Minute = "minute" // of an organization; of an address for comparisons and other expensive requests
	Pages  = "pages"  // pages, documents and downloads
)

const (
	maxAddresses = 100_000
	siteMultiple = 10 // a /48 may send as many requests as ten /64
	ipv6HostBits = 64
	IPv6SiteBits = 48
)

// AddressLimit counts requests by client address within a UTC minute or a longer window: IPv4 by address, IPv6 by /64
// and by /48. Each window starts with an empty table of bounded size, which evicts the address counted longest ago. It
// is safe for concurrent use.
type AddressLimit struct {
	name   string
	says   string // see LimitState
	Max    int
	Window time.Duration // 0 means a minute

	mu     sync.Mutex
	since  time.Time // when the window began
	counts *simplelru.LRU[netip.Prefix, int]
}

// Count counts a request from an address.
func (l *AddressLimit) Count(address netip.Addr, now time.Time) *LimitState {
	l.mu.Lock()
	defer l.mu.Unlock()
	window := cmp.Or(l.Window, time.Minute)
	if since := now.UTC().Truncate(window); !since.Equal(l.since) {
		l.since = since
		l.counts, _ = simplelru.NewLRU[netip.Prefix, int](maxAddresses, nil) // fails only for a size below 1
	}
	state := &LimitState{name: l.name, says: l.says, Max: l.Max, Reset: l.since.Add(window).Sub(now)}
	if address.Is4() {
		state.Used = l.add(address, address.BitLen(), 1)
		return state
	}
	// A request that its /64 refuses does not count against the neighbours in the /48.
	state.Used = l.add(address, ipv6HostBits, 1)
	if state.Used <= l.Max && l.add(address, IPv6SiteBits, 1) > l.Max*siteMultiple {
		state.Used = l.Max + 1
	}
	return state
}

// giveBack takes back one count of an address that was within its limit, if it was counted in the window of now.
func (l *AddressLimit) giveBack(address netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.UTC().Truncate(cmp.Or(l.Window, time.Minute)).Equal(l.since) {
		return
	}
	if address.Is4() {
		l.add(address, address.BitLen(), -1)
		return
	}
	l.add(address, ipv6HostBits, -1)
	l.add(address, IPv6SiteBits, -1)
}

func (l *AddressLimit) add(address netip.Addr, bits, n int) int {
	prefix, _ := address.Prefix(bits) // malformed addresses share one count
	used, _ := l.counts.Get(prefix)
	used = max(0, used+n)
	l.counts.Add(prefix, used)
	return used
}

// limitAddress counts a request against the limit of its client address in a bucket.
func (s *Identity) limitAddress(r *http.Request, bucket string) error {
	limit, c := s.addresses[bucket], CallOf(r)
	if limit == nil {
		return nil
	}
	return c.Enforce(limit.Count(s.ClientAddress(r), c.Start))
}

// ClientAddress returns the right-most address that is not a trusted proxy, starting with the connection's own and
// continuing with X-Forwarded-For from its end. An entry is believed only if a trusted proxy wrote it. Empty entries
// are skipped (RFC 9110, section 5.6.1).
func (s *Identity) ClientAddress(r *http.Request) netip.Addr {
	return ClientAddress(r, s.TrustedProxies)
}

// ClientNetwork returns the network that takes turns as one client: an address of IPv4 or a /64 of IPv6.
func (s *Identity) ClientNetwork(r *http.Request) netip.Prefix {
	address := s.ClientAddress(r)
	bits := address.BitLen()
	if address.Is6() {
		bits = ipv6HostBits
	}
	network, _ := address.Prefix(bits) // malformed addresses share one
	return network
}

// ClientAddress is Identity.ClientAddress with the given trusted proxies.
func ClientAddress(r *http.Request, proxies []netip.Prefix) netip.Addr {
	address := PeerAddress(r)
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && Among(proxies, address); i-- {
		text := strings.TrimSpace(entries[i])
		if text == "" {
			continue
		}
		entry, ok := forwardedAddress(text)
		if !ok {
			break
		}
		address = entry
	}
	return address
}

// PeerAddress returns the connection's own address.
func PeerAddress(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}

func Among(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}

// forwardedAddress reads an entry with or without a port. Some proxies write IPv6 in brackets even without a port.
func forwardedAddress(entry string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(entry)
	for _, port := range []string{"", ":0"} {
		if err != nil {
			var withPort netip.AddrPort
			withPort, err = netip.ParseAddrPort(entry + port)
			address = withPort.Addr()
		}
	}
	return address.Unmap().WithZone(""), err == nil
}
