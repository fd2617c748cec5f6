package handlers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// callers remembers who stands behind the credentials that were used last. What is relied on of that never changes: the
// key's secret, organization, member, scopes, network, source and version step. Role and plan may have changed since, and
// tell only whether to presume the caller. Whether it may act, and whether there is room in the minute, is judged anew for each request: by its group where it is presumed, else before the request is
// taken in. It is safe for concurrent use.
type callers struct {
	known *lru.Cache[callerName, domain.Access]
	full  *lru.Cache[domain.OrganizationID, int64] // the last minute that an organization was seen to use up
}

// callerName is a credential and the address that it was good from.
type callerName struct {
	key    domain.KeyID
	secret [32]byte
	client netip.Addr
}

const maxCallers = 10_000

func newCallers() *callers {
	known, _ := lru.New[callerName, domain.Access](maxCallers) // both fail for a size below 1 only
	full, _ := lru.New[domain.OrganizationID, int64](maxCallers)
	return &callers{known, full}
}

// presume takes the caller for the one that the same credential was before, so that the request needs no statement
// before its group's: it may cost a signature and a place in the queue before it is refused. So a request that would be
// refused as far as is known, or comes in a minute that is used up, is not presumed.
func (s *server) presume(r *http.Request, p policy) bool {
	c := callOf(r)
	text, _ := bearerText(r.Header)
	key, secret, formed := domain.ParseAPIKey(text)
	if !formed {
		return false
	}
	name := callerName{key, secret, s.clientAddress(r)}
	access, known := s.callers.known.Get(name)
	if full, _ := s.callers.full.Get(access.Organization); !known || full == c.start.Unix()/60 || allows(access, p.scope) != nil {
		return false
	}
	c.access, c.caller, c.scope = access, name, p.scope
	return true
}

// accepted notes a request whose credential was found good and which was counted in its organization's minute.
func (s *server) accepted(c *call, used, most int) {
	if s.KeyUsed != nil {
		s.KeyUsed(c.access.Key, c.start)
	}
	if used >= most {
		s.callers.full.Add(c.access.Organization, c.start.Unix()/60)
	}
	c.limits = append(c.limits, newLimitState(minute, domain.OrganizationMinute, most, used, c.start))
}

// authenticate finds the organization, member and key of the credential, and counts the request.
func (s *server) authenticate(r *http.Request, p policy) error {
	c := callOf(r)
	text, ok := bearerText(r.Header)
	if ok && s.challenged(p) && !domain.HasAPIKeyForm(text) {
		return s.authenticateToken(r, text)
	}
	key, secret, formed := domain.ParseAPIKey(text)
	if !ok || !formed {
		return s.refuseKey(r, domain.ErrKeyRefused)
	}
	name, find := callerName{key, secret, s.clientAddress(r)}, s.Store.Authenticate
	if c.counted {
		find = s.Store.Reauthenticate
	}
	access, err := find(r.Context(), key, secret, name.client, c.start)
	if err == nil && c.counted {
		access.UsedMinute, err = s.Store.CountMinute(r.Context(), access.Organization.Shard(), access.Organization, 0, c.start)
	}
	if err != nil {
		s.callers.known.Remove(name)
		return s.refuseKey(r, err)
	}
	c.access, c.caller = access, name
	s.accepted(c, access.UsedMinute, access.PerMinute)
	if err := c.limits[len(c.limits)-1].refusal(); err != nil && !c.counted {
		return s.spent(r, p, err)
	}
	s.callers.known.Add(name, access) // within its limit, or one tenant with many addresses could drive all others out
	return nil
}

// judgeLate takes the checks of a caller who was presumed, and whom no group has judged. What a group counts is perhaps
// committed, so that nothing but a refused key changes the answer then.
func (s *server) judgeLate(r *http.Request, p policy) error {
	r = r.WithContext(context.WithoutCancel(r.Context())) // the caller may have gone away
	c := callOf(r)
	if !c.counted {
		return s.admit(r, p)
	}
	err := s.authenticate(r, p)
	if refused := refusal(err); refused == nil || refused.Code == domain.TemporarilyUnavailable {
		return nil
	}
	return err
}

// judgeAgain looks at the key of a request that has waited, or at the session, which another role of its member ends too,
// and takes no part of any limit. What the ledger writes is judged by the group; this is for what is answered or queued
// without it, and for bodies that have travelled for long.
func (s *server) judgeAgain(r *http.Request) error {
	c := callOf(r)
	if c.session != nil {
		sessions, err := s.Store.SessionsOf(r.Context(), c.session.Organization, c.session.Member, s.Now())
		if err == nil && !slices.ContainsFunc(sessions, func(one query.Session) bool { return one.ID == c.session.ID }) {
			err = errSignedOut
		}
		return err
	}
	access, err := s.Store.Reauthenticate(r.Context(), c.caller.key, c.caller.secret, c.caller.client, s.Now())
	return cmp.Or(err, allows(access, c.scope))
}

// allows judges a scope, and the role that it needs.
func allows(a domain.Access, scope domain.Scope) error {
	if scope == anyScope {
		return nil
	}
	return a.Authorize(scope)
}

// spent takes in a request that came after the organization's minute was used up, and refuses it unless it may take
// something away. It counts as a refusal against the caller's address until it has done so: what is tried without end
// takes nothing away.
func (s *server) spent(r *http.Request, p policy, err error) error {
	if !p.takesAway {
		return err
	}
	c := callOf(r)
	if limit := s.refused.count(s.clientAddress(r), c.start); limit.used > limit.most {
		return err
	}
	c.spent = refusal(err)
	return nil
}

// afterSpent gives a request that was taken in by spent the refusal of its minute, unless it took something away or the
// service failed on it.
func (s *server) afterSpent(r *http.Request, err error) error {
	c := callOf(r)
	if c.tookAway {
		s.refused.giveBack(s.clientAddress(r), c.start)
		return err
	}
	if refused := refusal(err); c.spent != nil && refused != nil && s.codes[refused.Code].Status < http.StatusInternalServerError {
		return c.spent
	}
	return err
}

// refuseKey counts a refused credential against the caller's address.
func (s *server) refuseKey(r *http.Request, err error) error {
	if refused := refusal(err); refused == nil || refused.Code != domain.InvalidKey && refused.Code != domain.IdentityNotLinked {
		return err
	}
	c := callOf(r)
	limit := s.refused.count(s.clientAddress(r), c.start)
	limited := limit.used > limit.most
	s.logRefusal(r, limited)
	if limited {
		return c.held(limit)
	}
	return err
}

// logRefusal says why an API key was refused, and never its secret. The limit of the caller's address bounds the
// statements.
func (s *server) logRefusal(r *http.Request, limited bool) {
	text, _ := bearerText(r.Header)
	if !domain.HasAPIKeyForm(text) {
		return
	}
	c, reason := callOf(r), "form or checksum wrong"
	key, secret, formed := domain.ParseAPIKey(text)
	switch {
	case limited:
		reason = "address limited"
	case formed:
		reason = s.Store.WhyRefused(r.Context(), key, secret, s.clientAddress(r), c.start)
	}
	s.Log.Info("API key refused", "reason", reason, "key", key.String(), "requestId", c.requestID)
}

// bearerText reads the one Authorization header (RFC 6750, section 2.1).
func bearerText(h http.Header) (text string, ok bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	text = strings.TrimSpace(token)
	return text, found && strings.EqualFold(scheme, "Bearer") && text != ""
}

// ordinaryMCPRoute is the one route that takes access tokens beside API keys (specification, Authentication 10).
const ordinaryMCPRoute = "/api/v1/mcp"

// OAuthAudience is the resource that access tokens are for.
func OAuthAudience(baseURL string) string { return strings.TrimRight(baseURL, "/") + ordinaryMCPRoute }

// OAuthRedirect is where a person comes back to after signing in.
func OAuthRedirect(baseURL string) string { return strings.TrimRight(baseURL, "/") + signedInRoute }

const resourceMetadataRoute = "/.well-known/oauth-protected-resource" + ordinaryMCPRoute

// resourceMetadata tells clients where to get tokens (RFC 9728). It stands at the path of the ordinary endpoint alone:
// at the root it would also be taken for that of the integrity endpoint, which takes keys only.
func (s *server) resourceMetadata(r *http.Request) (any, error) {
	raw, err := encode(wire.ProtectedResource{
		Resource: s.OAuth.Audience, AuthorizationServers: []string{s.OAuth.Issuer}, ScopesSupported: domain.OAuthScopes(),
		BearerMethods: []string{"header"}, ResourceName: "Integrity Ledger",
	})
	return cacheable(r, raw), err
}

// challenged is true of requests whose refusals tell where to get a token.
func (s *server) challenged(p policy) bool { return s.OAuth != nil && p.caller == withKeyOrToken }

// challenge is WWW-Authenticate of a refusal (RFC 6750, section 3; RFC 9728, section 5.1).
func (s *server) challenge(code domain.Code, presented bool) string {
	scopes := strings.Trim(fmt.Sprint(domain.OAuthScopes()), "[]")
	text := `Bearer resource_metadata="` + s.BaseURL + resourceMetadataRoute + `", scope="` + scopes + `"`
	switch {
	case code == domain.InvalidKey && presented:
		text += `, error="invalid_token"`
	case code == domain.MissingScope:
		text += `, error="insufficient_scope"`
	}
	return text
}

// authenticateToken finds who stands behind an access token and counts the request. Link, consent, membership and role
// are those of this moment. What may be done is what the token, the consent and the role all allow.
func (s *server) authenticateToken(r *http.Request, raw string) error {
	c := callOf(r)
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		s.Log.Debug("an access token was not accepted", "requestId", c.requestID, "error", err)
		return s.refuseKey(r, err)
	}
	access, err := s.Store.AuthenticateSubject(r.Context(), s.oauthSubject(token.Subject), c.start)
	if err != nil {
		return s.refuseKey(r, err)
	}
	access.Scopes = slices.DeleteFunc(slices.Clone(access.Scopes), func(scope domain.Scope) bool { return !slices.Contains(token.Scopes, string(scope)) })
	c.access = access
	if err := c.held(newLimitState(minute, domain.OrganizationMinute, access.PerMinute, access.UsedMinute, c.start)); err != nil {
		return err
	}
	if len(access.Scopes) == 0 {
		return domain.Refuse(domain.MissingScope, "No scope is common to this token, the consent and the role of the member.")
	}
	return nil
}

// oauthSubject stands for a subject of the provider.
func (s *server) oauthSubject(subject string) domain.OAuthSubject {
	return domain.NewOAuthSubject(s.Installation.Secret, s.OAuth.Issuer, subject)
}

// limitState is a caller's UTC minute, or another window, this request included.
type limitState struct {
	name       string
	says       string // which limit it is, and who shares it (domain.MinuteUsed)
	most, used int
	reset      time.Duration // until the next one
}

func newLimitState(name, says string, most, used int, now time.Time) *limitState {
	return &limitState{name: name, says: says, most: most, used: used, reset: now.Truncate(time.Minute).Add(time.Minute).Sub(now)}
}

// setLimits writes the headers of draft-ietf-httpapi-ratelimit-headers, an item a limit.
func setLimits(h http.Header, limits []*limitState) {
	if len(limits) == 0 {
		return
	}
	var room [128]byte
	text := room[:0]
	for i, l := range limits {
		text = strconv.AppendInt(append(appendName(text, i, l.name), ";q="...), int64(l.most), 10)
		text = append(text, ";w=60"...)
	}
	h["Ratelimit-Policy"] = []string{string(text)}
	text = text[:0]
	for i, l := range limits {
		text = strconv.AppendInt(append(appendName(text, i, l.name), ";r="...), int64(max(0, l.most-l.used)), 10)
		text = strconv.AppendInt(append(text, ";t="...), int64((l.reset+time.Second-1)/time.Second), 10)
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

// held puts a limit on the answer and refuses a request that goes beyond it.
func (c *call) held(l *limitState) error {
	c.limits = append(c.limits, l)
	return l.refusal()
}

func (l *limitState) refusal() error {
	if l.used <= l.most {
		return nil
	}
	return domain.MinuteUsed(l.says, l.most, l.reset)
}

// Names of limits in the headers of answers. A visit to a page takes several requests and one comparison, and a whole
// office may share an address, so that pages have a limit of their own.
const (
	minute = "minute" // of a key; of an address for comparisons, and what else is expensive
	pages  = "pages"  // pages, documents and downloads
)

const (
	maxAddresses = 100_000
	siteMultiple = 10 // a /48 may have the requests of ten /64
	ipv6HostBits = 64
	ipv6SiteBits = 48
)

// addressLimit counts requests of a UTC minute, or of a longer window, by client address: IPv4 by address, IPv6 by /64
// and by /48. The table begins anew with every window and is bounded; what was counted longest ago goes out first. It is
// safe for concurrent use.
type addressLimit struct {
	name   string
	says   string // see limitState
	most   int
	window time.Duration // 0: a minute

	mu     sync.Mutex
	since  time.Time // when the window began
	counts *simplelru.LRU[netip.Prefix, int]
}

// count adds a request of an address.
func (l *addressLimit) count(address netip.Addr, now time.Time) *limitState {
	l.mu.Lock()
	defer l.mu.Unlock()
	window := cmp.Or(l.window, time.Minute)
	if since := now.UTC().Truncate(window); !since.Equal(l.since) {
		l.since = since
		l.counts, _ = simplelru.NewLRU[netip.Prefix, int](maxAddresses, nil) // fails for a size below 1 only
	}
	state := &limitState{name: l.name, says: l.says, most: l.most, reset: l.since.Add(window).Sub(now)}
	if address.Is4() {
		state.used = l.add(address, address.BitLen(), 1)
		return state
	}
	// What is refused by its /64 is not counted against its neighbours in the /48.
	state.used = l.add(address, ipv6HostBits, 1)
	if state.used <= l.most && l.add(address, ipv6SiteBits, 1) > l.most*siteMultiple {
		state.used = l.most + 1
	}
	return state
}

// giveBack takes back one count of an address that was within its limit, if that was in the window of now.
func (l *addressLimit) giveBack(address netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.UTC().Truncate(cmp.Or(l.window, time.Minute)).Equal(l.since) {
		return
	}
	if address.Is4() {
		l.add(address, address.BitLen(), -1)
		return
	}
	l.add(address, ipv6HostBits, -1)
	l.add(address, ipv6SiteBits, -1)
}

func (l *addressLimit) add(address netip.Addr, bits, n int) int {
	prefix, _ := address.Prefix(bits) // malformed addresses share one count
	used, _ := l.counts.Get(prefix)
	used = max(0, used+n)
	l.counts.Add(prefix, used)
	return used
}

// limitAddress counts a request against the bucket of its client address.
func (s *server) limitAddress(r *http.Request, bucket string) error {
	limit, c := s.addresses[bucket], callOf(r)
	if limit == nil {
		return nil
	}
	return c.held(limit.count(s.clientAddress(r), c.start))
}

// clientAddress is the right-most address that is no trusted proxy: the connection's own, then X-Forwarded-For from its
// end. Entries are believed only as far as trusted proxies wrote them. Empty ones say nothing (RFC 9110, section 5.6.1).
func (s *server) clientAddress(r *http.Request) netip.Addr { return clientAddress(r, s.TrustedProxies) }

func clientAddress(r *http.Request, proxies []netip.Prefix) netip.Addr {
	address := peerAddress(r)
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0 && among(proxies, address); i-- {
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

// peerAddress is the connection's own address.
func peerAddress(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}

func among(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}

// forwardedAddress reads an entry with or without a port. Some proxies put IPv6 into brackets even without one.
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
