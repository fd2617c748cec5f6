package handlers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/projections"
)

func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	unknown := domain.NewKeyID(s.Now(), s.org.ID.Shard())
	distant := domain.NewKeyID(s.Now(), 60_000)
	text := func(id domain.KeyID) string {
		text, _ := domain.NewAPIKey(id)
		return text
	}
	want := s.send(http.MethodGet, integrity+"/usage", "", nil, "X-Request-Id", "r")
	want.refuses(http.StatusUnauthorized, domain.InvalidKey)
	if got := want.header.Get("WWW-Authenticate"); got != "Bearer" {
		t.Errorf("WWW-Authenticate %q", got)
	}
	wrongSum := s.org.Secret[:len(s.org.Secret)-1] + "!"
	for name, key := range map[string]string{
		"unknown": text(unknown), "shard beyond": text(distant), "other secret": text(s.org.Key.ID), "checksum": wrongSum,
		"short": "ik_",
	} {
		if got := s.send(
			http.MethodGet, integrity+"/usage", key, nil, "X-Request-Id", "r",
		); string(got.body) != string(want.body) {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	basic := s.send(http.MethodGet, integrity+"/usage", "", nil, "Authorization", "Basic "+s.org.Secret)
	basic.refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.registered("a", 1, "x") // from now on the key is known
	s.send(
		http.MethodPost, integrity+"/records", "", declaration("a", 2, "x"), "Authorization", "Basic "+s.org.Secret,
	).refuses(http.StatusUnauthorized, domain.InvalidKey)
	twice := s.request(http.MethodGet, integrity+"/usage", s.org.Secret, nil)
	twice.Header.Add("Authorization", "Bearer "+s.org.Secret)
	s.exchange(twice).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.send(http.MethodGet, integrity+"/usage", "", nil, "Authorization", "bearer "+s.org.Secret).is(http.StatusOK)
}

// A change to a key or its member takes effect on the very next request.
func TestAccessIsReadEveryTime(t *testing.T) {
	s := open(t, options{})
	use := func(secret string) answer { return s.send(http.MethodGet, integrity+"/usage", secret, nil) }
	now := s.Now()

	key, secret := s.Key(t, s.org, domain.IntegrityRead)
	use(secret).is(http.StatusOK)
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
	use(secret).refuses(http.StatusUnauthorized, domain.InvalidKey)

	create, short := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Email: s.org.Email, Scopes: []domain.Scope{domain.IntegrityRead}, Lifetime: time.Hour,
		},
		now,
	)
	must(s, create)
	use(short).is(http.StatusOK)
	s.skew.Store(int64(time.Hour + time.Second))
	use(short).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.skew.Store(0)

	const email = "second@example.com"
	must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Admin})
	create, admin := domain.NewCreateKey(domain.CreateKey{
		Origin: s.org.Operator(), Email: email,
		Scopes: []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite, domain.IntegrityAdmin}, Lifetime: time.Hour,
	}, now)
	must(s, create)
	company := func() answer { return s.send(http.MethodPost, integrity+"/companies", admin, body{"reference": "x"}) }
	register := func() answer {
		return s.send(http.MethodPost, integrity+"/records", admin, declaration("a", 1, "one"))
	}
	change := func(role *domain.Role, status *domain.MemberStatus) {
		t.Helper()
		must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Role: role, Status: status})
	}
	company().is(http.StatusCreated)
	register().refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	s.Grant(t, s.org, create.Outcome.ID, s.org.Company.ID, true)
	register().is(http.StatusCreated)
	s.Grant(t, s.org, create.Outcome.ID, s.org.Company.ID, false)
	register().refuses(http.StatusForbidden, domain.CompanyNotAuthorized)

	role, disabled, active := domain.Viewer, domain.MemberDisabled, domain.MemberActive
	change(&role, nil)
	company().refuses(http.StatusForbidden, domain.RoleRequired)
	register().refuses(http.StatusForbidden, domain.RoleRequired)
	use(admin).is(http.StatusOK)
	change(nil, &disabled)
	use(admin).refuses(http.StatusUnauthorized, domain.InvalidKey)
	change(nil, &active)
	use(admin).is(http.StatusOK)

	_, reader := s.Key(t, s.org, domain.VerifyRead)
	use(reader).refuses(http.StatusForbidden, domain.MissingScope)
}

// The checks come in the order of contract section 2: a request that fails all of them gets the answer of the first.
func TestOrderOfChecks(t *testing.T) {
	plans := parsePlans(t, `{"gratis": {"perMinute": 1, "versionsPerMonth": 0}}`)
	s := open(t, options{plan: "gratis", plans: plans})
	minute := s.freshMinute()
	const path = integrity + "/records"
	const email = "viewer@example.com"
	now := s.Now()
	must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Analyst})
	create, weak := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Email: email, Scopes: []domain.Scope{domain.IntegrityWrite}, Lifetime: time.Hour,
		},
		now,
	)
	must(s, create)
	viewer := domain.Viewer
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Role: &viewer})
	_, scopeless := s.Key(t, s.org, domain.IntegrityRead)

	large := strings.Repeat("x", 9000)
	s.send(http.MethodPost, path, "", large).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.send(http.MethodPost, path, scopeless, large).refuses(http.StatusForbidden, domain.MissingScope)
	limited := s.send(http.MethodPost, path, scopeless, large)
	if said := limited.detail(http.StatusTooManyRequests, domain.RateLimited); !strings.Contains(
		said, "requests a minute, which all its keys, tokens and console sessions share",
	) {
		t.Errorf("the organization's minute: %s", said)
	}
	wait, err := strconv.Atoi(limited.header.Get("Retry-After"))
	check(t, err)
	next := minute.Add(time.Minute)
	if until := next.Sub(s.Now()); time.Duration(wait)*time.Second < until ||
		time.Duration(wait)*time.Second > until+11*time.Second {
		t.Errorf("Retry-After %d, the minute ends in %s", wait, until)
	}
	for _, step := range []struct {
		key, body string
		status    int
		code      domain.Code
	}{
		{weak, large, 403, domain.RoleRequired},
		{s.org.Secret, large, 413, domain.PayloadTooLarge},
		{s.org.Secret, "x", 400, domain.MalformedJSON},
		{s.org.Secret, `{"companyReference":"absent"}`, 422, domain.InvalidData},
		{s.org.Secret, strings.ReplaceAll(full, "company-1", "absent"), 403, domain.CompanyNotAuthorized},
		{s.org.Secret, full, 403, domain.PlanRequired},
	} {
		s.skew.Add(int64(time.Minute)) // another minute, another request
		s.send(http.MethodPost, path, step.key, step.body).refuses(step.status, step.code)
	}
}

const full = `{"companyReference":"company-1","source":"s","documentReference":"d","version":1,"sha256":"` +
	`0000000000000000000000000000000000000000000000000000000000000000","sizeBytes":1,"mimeType":"a/b","generatedAt":"2026-11-01T10:00:00Z"}`

func TestRateLimitHeaders(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.freshMinute()
	for i := range 31 {
		a := s.get(integrity + "/usage")
		if got := a.header.Get("RateLimit-Policy"); got != `"minute";q=30;w=60` {
			t.Fatalf("RateLimit-Policy %s", got)
		}
		var remaining, reset int
		_, err := fmt.Sscanf(a.header.Get("RateLimit"), `"minute";r=%d;t=%d`, &remaining, &reset)
		check(t, err)
		if want := max(0, 29-i); remaining != want || reset < 1 || reset > 60 {
			t.Errorf("request %d: RateLimit %s", i, a.header.Get("RateLimit"))
		}
		if i == 30 {
			a.refuses(http.StatusTooManyRequests, domain.RateLimited)
			if got := a.header.Get("Retry-After"); got != strconv.Itoa(reset) {
				t.Errorf("Retry-After %s, RateLimit resets in %d", got, reset)
			}
		} else {
			a.is(http.StatusOK)
		}
	}
	s.skew.Add(int64(time.Minute))
	s.get(integrity + "/usage").is(http.StatusOK)
	if minutes := s.number("SELECT count(*) FROM meters WHERE shard = $1 AND subject = $2"); minutes > 2 {
		t.Errorf("%d minutes are kept", minutes)
	}
}

func TestAddressLimits(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.PublicPerMinute = 3 }})
	s.freshMinute()
	path := "/api/public/integrity/unknown"
	for range 3 {
		a := s.public(path)
		a.refuses(http.StatusNotFound, domain.RecordNotFound)
		if got := a.header.Get("RateLimit-Policy"); got != `"minute";q=3;w=60` {
			t.Errorf("RateLimit-Policy %s", got)
		}
	}
	// Other expensive requests share the limit of comparisons. Pages, documents and downloads have their own.
	s.public("/api/v1/certificates/unknown/verify").refuses(http.StatusTooManyRequests, domain.RateLimited)
	if a := s.plainly(s.request(
		http.MethodPost, "/integrity/unknown", "", strings.NewReader(""),
	)); a.status != http.StatusTooManyRequests {
		t.Errorf("a hash pasted into a page: %d", a.status)
	}
	s.public(path+"?sha256=").refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.public("/healthz").is(http.StatusOK)

	for range 60 {
		s.public(integrity+"/usage").refuses(http.StatusUnauthorized, domain.InvalidKey)
	}
	s.public(integrity+"/usage").refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.get(integrity + "/usage").is(http.StatusOK)
	s.skew.Add(int64(time.Minute))
	s.public(path).refuses(http.StatusNotFound, domain.RecordNotFound)
	s.public(integrity+"/usage").refuses(http.StatusUnauthorized, domain.InvalidKey)
}

// Twenty people behind one address open a page, scan its code, compare a file and download the receipt within a minute.
func TestManyVisitorsShareAnAddress(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.PublicPerMinute, c.PublicPagesPerMinute = 0, 0 }})
	s.freshMinute()
	id := s.registered("a", 1, "one")
	visit := func(path, policy string) int {
		t.Helper()
		a := s.plainly(s.request(http.MethodGet, path, "", nil))
		if got := a.header.Get("RateLimit-Policy"); got != policy {
			t.Errorf("%s: RateLimit-Policy %s, want %s", path, got, policy)
		}
		return a.status
	}
	const asPage, asComparison = `"pages";q=600;w=60`, `"minute";q=60;w=60`
	counted := []string{
		"/integrity/" + id, "/integrity/" + id + "/qr.svg", "/api/public/integrity/" + id + "/receipt", "/developers",
		"/api/integrity-openapi",
		"/.well-known/integrity-trusted-keys.json", "/limits", "/api/public/log/checkpoint", "/api/public/log/timestamps",
	}
	for range 20 {
		for _, path := range counted {
			if status := visit(path, asPage); status == http.StatusTooManyRequests {
				t.Fatalf("%s was refused", path)
			}
		}
		if status := visit("/api/public/integrity/"+id+"?sha256="+hash("one"), asComparison); status != http.StatusOK {
			t.Fatalf("a comparison was answered %d", status)
		}
	}
	for n := 20 * len(counted); n < 600; n++ {
		visit("/limits", asPage)
	}
	for _, path := range counted {
		if status := visit(path, asPage); status != http.StatusTooManyRequests {
			t.Errorf("%s: %d after 600 pages", path, status)
		}
	}
	// Neither limit uses up the other.
	for n := 20; n < 60; n++ {
		visit("/api/public/integrity/"+id, asComparison)
	}
	if status := visit("/api/public/integrity/"+id, asComparison); status != http.StatusTooManyRequests {
		t.Errorf("the comparison after sixty was answered %d", status)
	}
}

// However many requests arrive at the same time, a minute admits exactly as many as the limit allows.
func TestRateLimitUnderLoad(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.freshMinute()
	var allowed, refused atomic.Int64
	var group sync.WaitGroup
	for range 60 {
		r := s.request(http.MethodGet, integrity+"/usage", s.org.Secret, nil)
		group.Go(func() {
			a, err := s.tryExchange(r)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusOK:
				allowed.Add(1)
			case a.status == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if allowed.Load() != 30 || refused.Load() != 30 {
		t.Errorf("%d allowed, %d refused", allowed.Load(), refused.Load())
	}
}

// The group of the next write judges a known key. It sees every change to the key, its member, its organization and the
// minute, in the order of contract section 2. If no group decides, the request is judged all the same.
func TestWritesOfAKnownKey(t *testing.T) {
	plans := parsePlans(t, `{"gratis": {"perMinute": 4, "versionsPerMonth": 1000}}`)
	s := open(t, options{plan: "gratis", plans: plans})
	s.freshMinute()
	const path = integrity + "/records"
	documents := 0
	write := func(secret string) answer {
		documents++
		return s.send(http.MethodPost, path, secret, declaration(fmt.Sprint("d", documents), 1, "x"))
	}
	left := func(a answer, status int, code domain.Code, want int) {
		t.Helper()
		if a.is(status); code != "" {
			a.refuses(status, code)
		}
		if got := a.header.Get("RateLimit"); !strings.HasPrefix(got, fmt.Sprintf(`"minute";r=%d;`, want)) {
			t.Errorf("RateLimit %s, must have %d left", got, want)
		}
	}
	nextMinute := func() { s.skew.Add(int64(time.Minute)) }

	// Every request is counted once, by the group or without one.
	left(write(s.org.Secret), http.StatusCreated, "", 3)
	left(write(s.org.Secret), http.StatusCreated, "", 2)
	left(s.send(http.MethodPost, path, s.org.Secret, "x"), http.StatusBadRequest, domain.MalformedJSON, 1)
	left(
		s.send(http.MethodPost, path, s.org.Secret, strings.ReplaceAll(full, "company-1", "absent")), http.StatusForbidden,
		domain.CompanyNotAuthorized, 0,
	)
	for range 2 { // the first is refused by its group, the next before it is read
		limited := write(s.org.Secret)
		left(limited, http.StatusTooManyRequests, domain.RateLimited, 0)
		if wait, err := strconv.Atoi(limited.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
			t.Errorf("Retry-After %d, %v", wait, err)
		}
	}
	s.send(http.MethodPost, path, s.org.Secret, "x").refuses(http.StatusTooManyRequests, domain.RateLimited)
	nextMinute()
	left(write(s.org.Secret), http.StatusCreated, "", 3)

	// First the limit, then the role, then the key.
	nextMinute()
	two := int32(2)
	must(s, &domain.ChangePlan{Origin: s.org.Operator(), KeepInternal: true, PerMinute: &two})
	left(write(s.org.Secret), http.StatusCreated, "", 1)
	nextMinute()
	const email = "analyst@example.com"
	must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Analyst})
	create, weak := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Email: email, Scopes: []domain.Scope{domain.IntegrityWrite}, Lifetime: time.Hour,
		},
		s.Now(),
	)
	must(s, create)
	s.Grant(t, s.org, create.Outcome.ID, s.org.Company.ID, true)
	write(weak).is(http.StatusCreated)
	viewer := domain.Viewer
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Role: &viewer})
	left(write(weak), http.StatusForbidden, domain.RoleRequired, 0)
	nextMinute()
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: create.Outcome.ID})
	write(weak).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.send(http.MethodPost, path, weak, "x").refuses(http.StatusUnauthorized, domain.InvalidKey)
	left(write(s.org.Secret), http.StatusCreated, "", 1) // nothing of a refused key is counted
	nextMinute()
	member := s.org
	key, secret := s.Key(t, member, domain.IntegrityWrite)
	s.Grant(t, member, key.ID, member.Company.ID, true)
	write(secret).is(http.StatusCreated)
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
	s.send(http.MethodPost, path, secret, "x").refuses(http.StatusUnauthorized, domain.InvalidKey)
	left(write(s.org.Secret), http.StatusCreated, "", 0)
	s.Audit(t)
}

// A write with a known key that no group decides is still judged, and counted once, whether the handler or the group
// fails.
func TestFailedWritesOfAKnownKey(t *testing.T) {
	var noKeys, noState atomic.Bool
	s := open(t, options{
		config: func(c *handlers.Config) {
			keys := c.Keys
			c.Keys = func() action.Keys {
				if noKeys.Load() {
					panic("no keys")
				}
				return keys()
			}
		},
		ledger: func(c *eventstore.Config) {
			c.Load = func(
				b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
				state *domain.State,
			) {
				if noState.Load() {
					b.Queue("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$")
				}
				projections.Load(b, shard, organizations, needs, now, state)
			}
		},
	})
	s.freshMinute()
	write := func() answer { return s.post(integrity+"/records", declaration("a", 1, "x")) }
	counted := func(a answer, status int, want int64) {
		t.Helper()
		a.is(status)
		if used := s.number("SELECT sum(used) FROM meters WHERE shard = $1 AND subject = $2"); used != want {
			t.Errorf("%d requests are counted, not %d", used, want)
		}
		if left := a.header.Get("RateLimit"); !strings.HasPrefix(left, fmt.Sprintf(`"minute";r=%d;`, 60_000-want)) {
			t.Errorf("RateLimit %q after %d requests", left, want)
		}
	}
	counted(write(), http.StatusCreated, 1)
	noKeys.Store(true)
	counted(write(), http.StatusInternalServerError, 2)
	noKeys.Store(false)
	noState.Store(true)
	counted(write(), http.StatusServiceUnavailable, 3)
	noState.Store(false)
	s.revokeKey(s.org.Key.ID)
	noKeys.Store(true)
	write().refuses(http.StatusUnauthorized, domain.InvalidKey)
}

// A key that is restricted to a network is only known at addresses from which it was accepted.
func TestKnownKeyStaysInItsNetwork(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	network := "192.0.2.0/24"
	create, secret := domain.NewCreateKey(domain.CreateKey{
		Origin: s.org.Operator(), Email: s.org.Email, Scopes: []domain.Scope{domain.IntegrityWrite}, Lifetime: time.Hour,
		KeyLimits: domain.KeyLimits{Network: &network},
	}, s.Now())
	must(s, create)
	s.Grant(t, s.org, create.Outcome.ID, s.org.Company.ID, true)
	for i, from := range []string{"192.0.2.1", "192.0.2.1", "198.51.100.1", "192.0.2.1", "192.0.2.2"} {
		a := s.send(
			http.MethodPost, integrity+"/records", secret, declaration(fmt.Sprint("d", i), 1, "x"), "X-Forwarded-For", from,
		)
		if from == "198.51.100.1" {
			a.refuses(http.StatusUnauthorized, domain.InvalidKey)
		} else {
			a.is(http.StatusCreated)
		}
	}
}

// A write with a known key sends no statement before its group's.
func TestWritesOfAKnownKeyAskOnce(t *testing.T) {
	s := open(t, options{})
	write := func(document string) {
		s.post(integrity+"/records", declaration(document, 1, "x")).is(http.StatusCreated)
		s.post(integrity+"/reservations", version(document, 2)).is(http.StatusCreated)
	}
	write("a")
	var held []*pgxpool.Conn
	for range s.Pool.Config().MaxConns { // no reader gets a connection
		conn, err := s.Pool.Acquire(t.Context())
		check(t, err)
		held = append(held, conn)
	}
	write("b")
	for _, conn := range held {
		conn.Release()
	}
	write("c")
}
