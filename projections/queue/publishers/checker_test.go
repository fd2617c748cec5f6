package publishers_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/queue/publishers"
	"integrityledger/projections/queue/webhooks"
)

// house is a ledger with two organizations, a DNS server and a web server for every domain, and a clock.
type house struct {
	*ledgertest.Ledger
	t           *testing.T
	org, second ledgertest.Organization
	dns         *peertest.DNS
	web         *httptest.Server
	config      publishers.Config
	skew        atomic.Int64

	mu    sync.Mutex
	files map[string]http.HandlerFunc // by host
}

func build(t *testing.T) *house {
	h := &house{t: t, dns: peertest.ServeDNS(t), files: map[string]http.HandlerFunc{}}
	h.Ledger = ledgertest.New(t, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(h.now) })
	h.Now = h.now
	h.org, h.second = h.Organization(t, 1, "gratis"), h.Organization(t, 2, "gratis")
	h.web = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.web.Close)
	pool, err := cluster.At(h.URL).QueuePool(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	roots := x509.NewCertPool()
	roots.AddCert(h.web.Certificate()) // valid for example.com and its names
	_, port, _ := net.SplitHostPort(h.web.Listener.Addr().String())
	h.config = publishers.Config{
		Pool: pool, Shards: h.Installation.Shards, Do: h.Do, Now: h.now, Log: slog.New(slog.DiscardHandler),
		Allows:   webhooks.EgressPolicy{Loopback: true}.Allows,
		Resolver: publishers.NewResolver(h.dns.Address), RootCAs: roots, Port: port,
	}
	return h
}

func (h *house) now() time.Time { return time.Now().Add(time.Duration(h.skew.Load())) }

func (h *house) pass(d time.Duration) { h.skew.Add(int64(d)) }

func (h *house) serve(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.Host)
	h.mu.Lock()
	file := h.files[host]
	h.mu.Unlock()
	if file == nil || r.URL.Path != domain.PublisherFile {
		http.NotFound(w, r)
		return
	}
	file(w, r)
}

// file serves a file for a host, which leads to the web server.
func (h *house) file(host string, file http.HandlerFunc) {
	h.dns.Host(host, "127.0.0.1")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[host] = file
}

func proof(ids ...domain.OrganizationID) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var names []string
		for _, id := range ids {
			names = append(names, fmt.Sprintf("%q", id))
		}
		fmt.Fprintf(w, `{"organizations":[%s]}`, strings.Join(names, ","))
	}
}

// record sets the TXT records of a domain to the ids of organizations.
func (h *house) record(name string, ids ...domain.OrganizationID) {
	var texts []string
	for _, id := range ids {
		texts = append(texts, domain.PublisherToken+id.String())
	}
	h.dns.Text(domain.PublisherHost+"."+name, texts...)
}

func (h *house) checker(change ...func(*publishers.Config)) *publishers.Checker {
	h.t.Helper()
	c := h.config
	for _, f := range change {
		f(&c)
	}
	checker, err := publishers.New(c)
	if err != nil {
		h.t.Fatal(err)
	}
	return checker
}

func (h *house) add(o ledgertest.Organization, name string) domain.PublisherDomain {
	h.t.Helper()
	c := &domain.AddDomain{Origin: o.Operator(), Domain: name}
	h.Must(h.t, c)
	return c.Outcome
}

// states returns what the projection says about the domains of an organization.
func (h *house) state(d domain.PublisherDomain) domain.DomainState {
	h.t.Helper()
	err := h.Pool.QueryRow(context.Background(), `SELECT checked_at, failed_days, lapsed_at FROM publisher_domains
		WHERE shard = $1 AND statement_id = $2`, d.Organization.Shard(), d.ID).Scan(&d.CheckedAt, &d.FailedDays, &d.LapsedAt)
	if err != nil {
		h.t.Fatal(err)
	}
	return d.State(h.now())
}

func (h *house) round(c *publishers.Checker) {
	h.t.Helper()
	if _, err := c.Round(context.Background()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) expect(d domain.PublisherDomain, what string, want domain.DomainState) {
	h.t.Helper()
	if got := h.state(d); got != want {
		h.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestDomainsAreProven: a TXT record or a file with the organization's own id proves a domain, and nothing else does.
func TestDomainsAreProven(t *testing.T) {
	h := build(t)
	own, other := h.org.ID, h.second.ID
	token := domain.PublisherToken + own.String()
	text := func(name string, texts ...string) func() { return func() { h.dns.Text(name, texts...) } }
	under := domain.PublisherHost + ".example.com"
	file := func(do http.HandlerFunc) func() { return func() { h.file("example.com", do) } }
	plain := func(body string) func() {
		return file(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	}
	status := func(code int) func() {
		return file(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code); proof(own)(w, r) })
	}
	for what, c := range map[string]struct {
		prepare func()
		want    publishers.Sighting
	}{
		"nothing":                    {func() {}, publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a record":                   {text(under, token), publishers.Sighting{DNS: "proves", HTTPS: "nothing"}},
		"a record among others":      {text(under, "v=spf1 -all", " "+token+" "), publishers.Sighting{DNS: "proves", HTTPS: "nothing"}},
		"a record of both":           {func() { h.record("example.com", other, own) }, publishers.Sighting{DNS: "proves", HTTPS: "nothing"}},
		"another's record":           {func() { h.record("example.com", other) }, publishers.Sighting{DNS: "other", HTTPS: "nothing"}},
		"a record that begins alike": {text(under, token+"x", token[:len(token)-1]), publishers.Sighting{DNS: "other", HTTPS: "nothing"}},
		"a record elsewhere":         {text("example.com", token), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"another's wildcard":         {text("*.example.com", domain.PublisherToken+other.String()), publishers.Sighting{DNS: "other", HTTPS: "nothing"}},
		"60 KB of records": {
			text(under, strings.Repeat("x", 30_000), strings.Repeat("y", 29_000)), publishers.Sighting{DNS: "other", HTTPS: "nothing"},
		},
		"a file":                 {file(proof(own)), publishers.Sighting{DNS: "nothing", HTTPS: "proves"}},
		"a file of both":         {file(proof(other, own)), publishers.Sighting{DNS: "nothing", HTTPS: "proves"}},
		"another's file":         {file(proof(other)), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a text":                 {plain(own.String()), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a file of other form":   {plain(`{"organizations":"` + own.String() + `"}`), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"deep JSON":              {plain(strings.Repeat("[", 4000)), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a file that is missing": {status(404), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a server that fails":    {status(503), publishers.Sighting{DNS: "nothing", HTTPS: "unsure"}},
		"a page with no content": {status(203), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a giant file": {
			plain(`{"organizations":["` + own.String() + `"],"x":"` + strings.Repeat("x", 1<<20) + `"}`),
			publishers.Sighting{DNS: "nothing", HTTPS: "nothing"},
		},
		"a redirect": {file(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("again") {
				proof(own)(w, r)
				return
			}
			http.Redirect(w, r, domain.PublisherFile+"?again", http.StatusFound)
		}), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
	} {
		h.dns.Text(under)
		h.dns.Text("example.com")
		h.dns.Text("*.example.com")
		h.file("example.com", nil)
		c.prepare()
		if got := h.checker().Look(context.Background(), "example.com", own); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// TestChecksAreBounded: neither a silent resolver nor a slow server holds a check, and no answer of a DNS server leads
// to an address that is not globally reachable.
func TestChecksAreBounded(t *testing.T) {
	h := build(t)
	h.file("example.com", proof(h.org.ID))
	strict := h.checker(func(c *publishers.Config) { c.Allows = webhooks.EgressPolicy{}.Allows })
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "fd00::1"} {
		h.dns.Host("example.com", address)
		began := time.Now()
		if got := strict.Look(context.Background(), "example.com", h.org.ID); got.HTTPS != publishers.Nothing {
			t.Errorf("%s: %+v", address, got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: refused after %s", address, took)
		}
	}
	h.file("www.other.example", proof(h.org.ID)) // the certificate has another name
	if got := h.checker().Look(context.Background(), "www.other.example", h.org.ID); got.HTTPS != publishers.Nothing {
		t.Errorf("a wrong certificate: %+v", got)
	}
	over := make(chan struct{})
	defer close(over)
	h.file("example.com", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4000")
		for {
			fmt.Fprint(w, " ")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-over:
				return
			case <-r.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	h.record("example.com", h.org.ID)
	for what, c := range map[string]struct {
		fails dnsmessage.RCode
		mute  bool
		want  publishers.Sighting
	}{
		"a slow file": {0, false, publishers.Sighting{DNS: "proves", HTTPS: "unsure"}},
		"SERVFAIL":    {dnsmessage.RCodeServerFailure, false, publishers.Sighting{DNS: "unsure", HTTPS: "unsure"}},
		"REFUSED":     {dnsmessage.RCodeRefused, false, publishers.Sighting{DNS: "unsure", HTTPS: "unsure"}},
		"silence":     {0, true, publishers.Sighting{DNS: "unsure", HTTPS: "unsure"}},
	} {
		h.dns.Fail(c.fails, c.mute)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		began := time.Now()
		if got := h.checker().Look(ctx, "example.com", h.org.ID); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", what, took)
		}
		cancel()
	}
}

// TestProofsLapse: rounds prove a domain, count one failed day a day, let it lapse after three, and never count a
// failure of the service's own network.
func TestProofsLapse(t *testing.T) {
	h := build(t)
	c := h.checker()
	d, both := h.add(h.org, "example.com"), h.add(h.second, "example.com")
	h.round(c)
	h.expect(d, "before it is due", domain.DomainWaiting)
	h.record("example.com", h.org.ID, h.second.ID)
	h.pass(time.Hour)
	h.round(c)
	h.expect(d, "with a record", domain.DomainProven)
	h.expect(both, "the same domain of another organization", domain.DomainProven)
	asked := h.dns.Asked()
	h.round(c)
	if h.dns.Asked() != asked {
		t.Error("a domain is checked before it is due")
	}
	h.record("example.com", h.second.ID)
	h.dns.Fail(dnsmessage.RCodeServerFailure, false)
	for range 5 {
		h.pass(24 * time.Hour)
		h.round(c)
	}
	h.expect(d, "while the resolver fails", domain.DomainProven)
	h.pass(48 * time.Hour)
	h.expect(d, "a week after the last proof", domain.DomainStale)
	h.dns.Fail(0, false)
	h.round(c)
	h.expect(both, "when the resolver answers again", domain.DomainProven)
	for day := range domain.LapseDays {
		for range 4 { // checks of one day
			h.round(c)
			h.pass(6 * time.Hour)
		}
		if got := h.state(d); (got == domain.DomainLapsed) != (day == domain.LapseDays-1) {
			t.Errorf("day %d without a record: %s", day+1, got)
		}
	}
	h.expect(both, "of the organization that keeps its record", domain.DomainProven)
	h.record("example.com", h.org.ID, h.second.ID)
	h.pass(48 * time.Hour)
	h.round(c)
	h.expect(d, "a lapsed domain is proven again only when its owner asks", domain.DomainLapsed)
	sighting, err := c.Ask(context.Background(), d, func(m domain.ProofMethod) error {
		return h.Do(context.Background(), &domain.RecordDomainCheck{Origin: h.org.Operator(), Domain: d.ID, Method: m})
	})
	if err != nil || sighting.Method() != domain.ProvenByDNS {
		t.Errorf("asked: %+v, %v", sighting, err)
	}
	h.expect(d, "asked", domain.DomainProven)
}

// TestRoundsThatFailCountForNobody: if every one of several proven domains fails at once, the service's network is the
// likely cause.
func TestRoundsThatFailCountForNobody(t *testing.T) {
	h := build(t)
	c := h.checker()
	var all []domain.PublisherDomain
	for i := range 3 {
		name := fmt.Sprintf("a%d.example.com", i)
		all = append(all, h.add(h.org, name))
		h.record(name, h.org.ID)
	}
	h.pass(time.Hour)
	h.round(c)
	for i := range 3 {
		h.record(fmt.Sprintf("a%d.example.com", i))
	}
	for range 2 * domain.LapseDays {
		h.pass(24 * time.Hour)
		h.round(c)
	}
	h.expect(all[0], "while all fail", domain.DomainProven)
	h.record("a1.example.com", h.org.ID)
	h.pass(12 * time.Hour)
	h.round(c)
	h.expect(all[0], "while another is proven", domain.DomainFailing)
	h.expect(all[1], "proven", domain.DomainProven)
}

// TestOneProcessChecks: of several processes, one checks a domain that is due.
func TestOneProcessChecks(t *testing.T) {
	h := build(t)
	for i := range domain.MaxPublisherDomains {
		h.add(h.org, fmt.Sprintf("a%d.example.com", i))
	}
	h.pass(time.Hour)
	var all sync.WaitGroup
	for range 8 {
		c := h.checker()
		all.Go(func() {
			if _, err := c.Round(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if asked := h.dns.Asked(); asked > 3*domain.MaxPublisherDomains { // TXT, A and AAAA
		t.Errorf("%d questions for %d domains", asked, domain.MaxPublisherDomains)
	}
}

// TestAskingIsLimited: an owner asks at most once a minute for each domain, and a failure that an owner has seen does
// not count.
func TestAskingIsLimited(t *testing.T) {
	h := build(t)
	c := h.checker()
	d := h.add(h.org, "example.com")
	h.record("example.com", h.org.ID)
	ask := func() (publishers.Sighting, error) {
		return c.Ask(context.Background(), d, func(m domain.ProofMethod) error {
			return h.Do(context.Background(), &domain.RecordDomainCheck{Origin: h.org.Operator(), Domain: d.ID, Method: m})
		})
	}
	if s, err := ask(); err != nil || s.Method() != domain.ProvenByDNS {
		t.Fatalf("%+v, %v", s, err)
	}
	h.expect(d, "asked", domain.DomainProven)
	_, err := ask()
	if refused, ok := errors.AsType[*domain.Error](err); !ok || refused.Code != domain.RateLimited {
		t.Errorf("asked twice: %v", err)
	}
	h.record("example.com")
	h.pass(publishers.AskEvery)
	if s, err := ask(); err != nil || s.Method() != "" {
		t.Errorf("without a record: %+v, %v", s, err)
	}
	h.expect(d, "an owner has seen that it fails", domain.DomainProven)
}
