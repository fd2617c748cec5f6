package handlers

import (
	"fmt"
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

// limitState is a caller's UTC minute, this request included.
type limitState struct {
	name       string
	most, used int
	reset      time.Duration // until the next minute
}

func newLimitState(name string, most, used int, now time.Time) *limitState {
	return &limitState{name: name, most: most, used: used, reset: now.Truncate(time.Minute).Add(time.Minute).Sub(now)}
}

// setLimits writes the headers of draft-ietf-httpapi-ratelimit-headers, an item a limit.
func setLimits(h http.Header, limits []*limitState) {
	if len(limits) == 0 {
		return
	}
	policies, states := make([]string, len(limits)), make([]string, len(limits))
	for i, l := range limits {
		policies[i] = `"` + l.name + `";q=` + strconv.Itoa(l.most) + ";w=60"
		states[i] = `"` + l.name + `";r=` + strconv.Itoa(max(0, l.most-l.used)) + ";t=" + strconv.Itoa(int((l.reset+time.Second-1)/time.Second))
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// held puts a limit on the answer and refuses a request that goes beyond it.
func (c *call) held(l *limitState) error {
	c.limits = append(c.limits, l)
	return l.refusal()
}

func (l *limitState) refusal() error {
	if l.used <= l.most {
		return nil
	}
	return &domain.Error{
		Code: domain.RateLimited, RetryAfter: l.reset,
		Message: fmt.Sprintf("At most %d requests a minute are answered; wait until the next minute.", l.most),
	}
}

// Names of limits in the headers of answers: that of most, and that of pages.
const (
	minute = "minute"
	pages  = "pages"
)

const (
	maxAddresses = 100_000
	siteMultiple = 10 // a /48 may have the requests of ten /64
	ipv6HostBits = 64
	ipv6SiteBits = 48
)

// addressLimit counts requests of a UTC minute by client address: IPv4 by address, IPv6 by /64 and by /48. The table
// begins anew every minute and is bounded; what was counted longest ago goes out first. It is safe for concurrent use.
type addressLimit struct {
	name string
	most int

	mu     sync.Mutex
	minute int64
	counts *simplelru.LRU[netip.Prefix, int]
}

// count adds a request of an address.
func (l *addressLimit) count(address netip.Addr, now time.Time) *limitState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if current := now.Unix() / 60; current != l.minute {
		l.minute = current
		l.counts, _ = simplelru.NewLRU[netip.Prefix, int](maxAddresses, nil) // fails for a size below 1 only
	}
	if address.Is4() {
		return newLimitState(l.name, l.most, l.add(address, address.BitLen()), now)
	}
	// What is refused by its /64 is not counted against its neighbours in the /48.
	used := l.add(address, ipv6HostBits)
	if used <= l.most && l.add(address, ipv6SiteBits) > l.most*siteMultiple {
		used = l.most + 1
	}
	return newLimitState(l.name, l.most, used, now)
}

func (l *addressLimit) add(address netip.Addr, bits int) int {
	prefix, _ := address.Prefix(bits) // malformed addresses share one count
	used, _ := l.counts.Get(prefix)
	l.counts.Add(prefix, used+1)
	return used + 1
}

// limitAddress counts a request against the bucket of its client address.
func (s *server) limitAddress(r *http.Request, b bucket) error {
	if b == noBucket {
		return nil
	}
	limit, c := s.addresses, callOf(r)
	if b == pageBucket {
		limit = s.pages
	}
	return c.held(limit.count(s.clientAddress(r), c.start))
}

// clientAddress is the right-most address that is no trusted proxy: the connection's own, then X-Forwarded-For from its
// end. Entries are believed only as far as trusted proxies wrote them.
func (s *server) clientAddress(r *http.Request) netip.Addr {
	var address netip.Addr
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		address = peer.Addr().Unmap().WithZone("")
	}
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && s.trustedProxy(address); i-- {
		entry, ok := forwardedAddress(strings.TrimSpace(entries[i]))
		if !ok {
			break
		}
		address = entry
	}
	return address
}

func (s *server) trustedProxy(address netip.Addr) bool {
	return slices.ContainsFunc(s.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// forwardedAddress reads an entry with or without a port.
func forwardedAddress(entry string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(entry)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(entry)
		address = withPort.Addr()
	}
	return address.Unmap().WithZone(""), err == nil
}
