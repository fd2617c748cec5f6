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
	h.web = httptest.NewUnstartedServer(http.HandlerFunc(h.serve))
	h.web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.web.StartTLS()
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

// state returns the state of a domain in the projection.
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
		"nothing":                    {func() {}, publishers.Sighting{DNS: "nothing", HTTPS: "unreachable"}},
		"a record":                   {text(under, token), publishers.Sighting{DNS: "proves", HTTPS: "unreachable"}},
		"a record among others":      {text(under, "v=spf1 -all", " "+token+" "), publishers.Sighting{DNS: "proves", HTTPS: "unreachable"}},
		"a record of both":           {func() { h.record("example.com", other, own) }, publishers.Sighting{DNS: "proves", HTTPS: "unreachable"}},
		"another's record":           {func() { h.record("example.com", other) }, publishers.Sighting{DNS: "other", HTTPS: "unreachable"}},
		"a record that begins alike": {text(under, token+"x", token[:len(token)-1]), publishers.Sighting{DNS: "other", HTTPS: "unreachable"}},
		"a record elsewhere":         {text("example.com", token), publishers.Sighting{DNS: "nothing", HTTPS: "unreachable"}},
		"another's wildcard":         {text("*.example.com", domain.PublisherToken+other.String()), publishers.Sighting{DNS: "other", HTTPS: "unreachable"}},
		"60 KB of records": {
			text(under, strings.Repeat("x", 30_000), strings.Repeat("y", 29_000)),
			publishers.Sighting{DNS: "other", HTTPS: "unreachable"},
		},
		"a file":                 {file(proof(own)), publishers.Sighting{DNS: "nothing", HTTPS: "proves"}},
		"a file of both":         {file(proof(other, own)), publishers.Sighting{DNS: "nothing", HTTPS: "proves"}},
		"another's file":         {file(proof(other)), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a text":                 {plain(own.String()), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a file of other form":   {plain(`{"organizations":"` + own.String() + `"}`), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"deep JSON":              {plain(strings.Repeat("[", 4000)), publishers.Sighting{DNS: "nothing", HTTPS: "other"}},
		"a file that is missing": {status(404), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a server that fails":    {status(503), publishers.Sighting{DNS: "nothing", HTTPS: "failing"}},
		"a file that is gone":    {status(410), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a server that forbids":  {status(403), publishers.Sighting{DNS: "nothing", HTTPS: "failing"}},
		"a page with no content": {status(203), publishers.Sighting{DNS: "nothing", HTTPS: "nothing"}},
		"a giant file": {
			plain(`{"organizations":["` + own.String() + `"],"x":"` + strings.Repeat("x", 1<<20) + `"}`),
			publishers.Sighting{DNS: "nothing", HTTPS: "long"},
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
		h.dns.Host("example.com", "")
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
		if got := strict.Look(context.Background(), "example.com", h.org.ID); got.HTTPS != publishers.Unreachable {
			t.Errorf("%s: %+v", address, got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: refused after %s", address, took)
		}
	}
	h.file("www.other.example", proof(h.org.ID)) // the certificate has another name
	if got := h.checker().Look(context.Background(), "www.other.example", h.org.ID); got.HTTPS != publishers.Unreachable {
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
		"a slow file": {0, false, publishers.Sighting{DNS: "proves", HTTPS: "unreachable"}},
		"SERVFAIL":    {dnsmessage.RCodeServerFailure, false, publishers.Sighting{DNS: "unsure", HTTPS: "unreachable"}},
		"REFUSED":     {dnsmessage.RCodeRefused, false, publishers.Sighting{DNS: "unsure", HTTPS: "unreachable"}},
		"silence":     {0, true, publishers.Sighting{DNS: "unsure", HTTPS: "unreachable"}},
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

// addProven adds domains of two organizations, each proven two hours after the one before.
func (h *house) addProven(c *publishers.Checker, n int) (all []domain.PublisherDomain) {
	for i := range n {
		o := []ledgertest.Organization{h.org, h.second}[i%2]
		name := fmt.Sprintf("a%d.example.com", i)
		d := h.add(o, name)
		all = append(all, d)
		h.record(name, o.ID)
		h.pass(2 * time.Hour)
		h.round(c)
		h.expect(d, "with a record", domain.DomainProven)
	}
	return all
}

// live runs the rounds of a time, one every half hour.
func (h *house) live(c *publishers.Checker, d time.Duration) {
	for ; d > 0; d -= 30 * time.Minute {
		h.pass(30 * time.Minute)
		h.round(c)
	}
}

func (h *house) count(from string) (n int) {
	h.t.Helper()
	if err := h.Pool.QueryRow(context.Background(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// TestResolversThatLieCountForNobody: if the service's resolver denies everything for days, no domain fails, although
// the checks are spread over the day. No mail is sent.
func TestResolversThatLieCountForNobody(t *testing.T) {
	h := build(t)
	c := h.checker()
	all := h.addProven(c, 4)
	h.dns.Lie()
	h.live(c, 4*24*time.Hour)
	for i, d := range all {
		h.expect(d, fmt.Sprint(i), domain.DomainProven)
	}
	if n := h.count("mails"); n != 0 {
		t.Errorf("%d mails", n)
	}
}

// TestDenialsOfAllCountForNobody: if all organizations fail within the same days, none of their domains lapses. A domain
// lapses while another organization is proven.
func TestDenialsOfAllCountForNobody(t *testing.T) {
	h := build(t)
	c := h.checker()
	all := h.addProven(c, 4)
	for i := range all {
		h.record(fmt.Sprintf("a%d.example.com", i))
	}
	h.live(c, 9*24*time.Hour)
	for i, d := range all {
		if state := h.state(d); state == domain.DomainLapsed {
			t.Errorf("%d: %s", i, state)
		}
	}
	h.record("a1.example.com", h.second.ID)
	h.live(c, 4*24*time.Hour)
	h.expect(all[0], "while another organization is proven", domain.DomainLapsed)
	h.expect(all[1], "proven", domain.DomainProven)
}

// TestTheOnlyPublisherIsJudged: without another organization, the denial of a resolver that knows the top-level domain
// counts.
func TestTheOnlyPublisherIsJudged(t *testing.T) {
	h := build(t)
	c := h.checker()
	d := h.add(h.org, "example.com")
	h.record("example.com", h.org.ID)
	h.live(c, 2*time.Hour)
	h.expect(d, "with a record", domain.DomainProven)
	h.record("example.com")
	h.live(c, 4*24*time.Hour)
	h.expect(d, "without a record", domain.DomainLapsed)
}

// TestErrorsOfWebServersCountForNobody: neither an error of the web server nor an invalid certificate ends a proof.
func TestErrorsOfWebServersCountForNobody(t *testing.T) {
	h := build(t)
	c := h.checker()
	d := h.add(h.org, "example.com")
	h.file("example.com", proof(h.org.ID))
	h.live(c, 2*time.Hour)
	h.expect(d, "with a file", domain.DomainProven)
	h.file("example.com", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	h.live(c, 3*24*time.Hour)
	h.expect(d, "while the server fails", domain.DomainProven)
	h.live(h.checker(func(c *publishers.Config) { c.RootCAs = x509.NewCertPool() }), 3*24*time.Hour)
	h.expect(d, "with an invalid certificate", domain.DomainProven)
	h.file("example.com", http.NotFound)
	h.live(c, 4*24*time.Hour)
	h.expect(d, "without a file", domain.DomainLapsed)
}

// TestRemovedDomainsLeaveTheQueue: asking for a domain that was removed meanwhile leaves nothing to check, and a round
// deletes a row without a domain.
func TestRemovedDomainsLeaveTheQueue(t *testing.T) {
	h := build(t)
	c := h.checker()
	d := h.add(h.org, "example.com")
	h.Must(t, &domain.RemoveDomain{Origin: h.org.Operator(), Domain: d.ID})
	if _, err := c.Ask(context.Background(), d, func(domain.ProofMethod) error { return nil }); err == nil {
		t.Error("a removed domain is checked")
	}
	if n := h.count("publisher_checks"); n != 0 || h.dns.Asked() != 0 {
		t.Errorf("%d rows, %d questions", n, h.dns.Asked())
	}
	kept := h.add(h.org, "www.example.com")
	if _, err := h.Pool.Exec(context.Background(), `INSERT INTO publisher_checks (shard, statement_id, organization_id, due_at, found)
		VALUES ($1, $2, $3, $4, '')`, d.Organization.Shard(), d.ID, d.Organization, h.now()); err != nil {
		t.Fatal(err)
	}
	h.pass(2 * time.Hour)
	h.round(c)
	if n := h.count("publisher_checks"); n != 1 {
		t.Errorf("%d rows after a round", n)
	}
	h.expect(kept, "another domain", domain.DomainWaiting)
}

// TestOlderLooksAreVoid: a look that began before another one neither overwrites its note nor counts.
func TestOlderLooksAreVoid(t *testing.T) {
	h := build(t)
	c := h.checker()
	d := h.add(h.org, "example.com")
	h.record("example.com", h.org.ID)
	h.live(c, 2*time.Hour)
	h.expect(d, "with a record", domain.DomainProven)
	h.pass(24 * time.Hour)
	began, over := make(chan struct{}), make(chan struct{})
	h.file("example.com", func(http.ResponseWriter, *http.Request) { close(began); <-over })
	h.record("example.com")
	done := make(chan struct{})
	go func() { defer close(done); h.round(c) }()
	<-began
	time.Sleep(100 * time.Millisecond) // the answer about the record is there
	h.file("example.com", http.NotFound)
	h.record("example.com", h.org.ID)
	if s, err := c.Ask(context.Background(), d, func(m domain.ProofMethod) error {
		return h.Do(context.Background(), &domain.RecordDomainCheck{Origin: h.org.Operator(), Domain: d.ID, Method: m})
	}); err != nil || s.Method() == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	close(over)
	<-done
	h.expect(d, "after a denial that is older than the proof", domain.DomainProven)
	if n := h.count("publisher_checks WHERE found LIKE 'proves %'"); n != 1 {
		t.Error("the older look has overwritten what the newer one found")
	}
}

// TestRoundsAreBounded: a round takes a bounded number of rows, says that there are more, and records each result before
// the last look has ended.
func TestRoundsAreBounded(t *testing.T) {
	h := build(t)
	c := h.checker()
	slow, fast := h.add(h.org, "slow.example.com"), h.add(h.second, "example.com")
	if _, err := h.Pool.Exec(context.Background(), `INSERT INTO publisher_checks (shard, statement_id, organization_id, due_at, found)
		SELECT $1, gen_random_uuid(), $2, $3, '' FROM generate_series(1, 100)`,
		h.org.ID.Shard(), h.org.ID, h.now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	h.file("slow.example.com", func(http.ResponseWriter, *http.Request) { <-over })
	h.record("example.com", h.second.ID)
	h.pass(2 * time.Hour)
	done := make(chan struct{})
	go func() { defer close(done); h.round(c) }()
	for range 100 {
		if h.state(fast) == domain.DomainProven {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	h.expect(fast, "while another check lasts", domain.DomainProven)
	close(over)
	<-done
	h.expect(slow, "without a proof", domain.DomainWaiting)
	h.pass(24 * time.Hour)
	for _, want := range []bool{true, false} {
		if more, err := c.Round(context.Background()); err != nil || more != want {
			t.Errorf("more: %v, %v", more, err)
		}
	}
	if n := h.count("publisher_checks"); n != 2 {
		t.Errorf("%d rows", n)
	}
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

// TestRemovingDomainsGivesNoMoreChecks: an owner who removes a domain and adds it again gets no more checks of it than an
// organization gets in a minute.
func TestRemovingDomainsGivesNoMoreChecks(t *testing.T) {
	h := build(t)
	c := h.checker()
	refused := 0
	ask := func(o ledgertest.Organization) {
		d := h.add(o, "example.com")
		_, err := c.Ask(context.Background(), d, func(domain.ProofMethod) error { return nil })
		if e, ok := errors.AsType[*domain.Error](err); ok && e.Code == domain.RateLimited {
			refused++
		} else if err != nil {
			t.Error(err)
		}
		h.Must(t, &domain.RemoveDomain{Origin: o.Operator(), Domain: d.ID})
	}
	for range publishers.MaxAsked + 3 {
		ask(h.org)
	}
	if refused != 3 {
		t.Errorf("%d are refused, want 3", refused)
	}
	ask(h.second)
	h.pass(publishers.AskEvery)
	ask(h.org)
	if refused != 3 {
		t.Error("another organization's checks, or another minute's, are refused")
	}
}
