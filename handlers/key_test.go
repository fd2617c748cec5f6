package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// limitedKey is a granted key with limits that may register.
func (s *service) limitedKey(source, network *string, step *int32) (domain.APIKey, string) {
	s.t.Helper()
	create, text := domain.NewCreateKey(domain.CreateKey{
		Origin: s.org.Operator(), Email: s.org.Email, Scopes: []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite},
		Lifetime:  time.Hour,
		KeyLimits: domain.KeyLimits{Source: source, Network: network, MaxVersionStep: step},
	}, s.Now())
	must(s, create)
	s.Grant(s.t, s.org, create.Outcome.ID, s.org.Company.ID, true)
	return create.Outcome, text
}

func TestKeyLimits(t *testing.T) {
	s := open(t, options{})
	source, step := "billing", int32(2)
	_, narrow := s.limitedKey(&source, nil, &step)
	_, foreign := s.limitedKey(new("payroll"), nil, nil)
	register := func(key string, version int, content string) answer {
		return s.send(http.MethodPost, integrity+"/records", key, declaration("a", version, content))
	}
	if got := pointers(register(foreign, 1, "one").refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)); got != "/source KEY_LIMIT" {
		t.Errorf("another source: %s", got)
	}
	tooFar := func(version int) {
		t.Helper()
		if got := pointers(register(narrow, version, "x").refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != "/version KEY_LIMIT" {
			t.Errorf("version %d: %s", version, got)
		}
	}
	tooFar(3)
	register(narrow, 2, "two").is(http.StatusCreated)
	tooFar(5)
	tooFar(domain.MaxVersion)
	register(s.org.Secret, 100, "hundred").is(http.StatusCreated) // a key without limits
	register(narrow, 102, "x").is(http.StatusCreated)
	register(narrow, 1, "late").is(http.StatusCreated)
	if replayed := register(narrow, 100, "hundred").is(http.StatusOK)["replayed"]; replayed != true {
		t.Errorf("a replay: %v", replayed)
	}
	register(narrow, 100, "other").refuses(http.StatusConflict, domain.VersionConflict)
	if used := s.number(
		"SELECT sum(used) FROM usage WHERE shard = $1 AND organization_id = $2 AND company_id = " +
			"'00000000-0000-0000-0000-000000000000'",
	); used != 4 {
		t.Errorf("%d versions used, want 4", used)
	}
	s.Audit(t)
}

// From outside its network, a key is refused exactly like a missing key. X-Forwarded-For counts only as far as a
// trusted proxy has written it.
func TestKeyNetwork(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		s := open(t, options{config: func(c *handlers.Config) {
			if proxied {
				c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
			}
		}})
		_, elsewhere := s.limitedKey(nil, new("192.0.2.0/24"), nil)
		_, here := s.limitedKey(nil, new("127.0.0.0/8"), nil)
		use := func(key, forwarded string) answer {
			header := []string{"X-Request-Id", "r"}
			if forwarded != "" {
				header = append(header, "X-Forwarded-For", forwarded)
			}
			return s.send(http.MethodGet, integrity+"/usage", key, nil, header...)
		}
		without := use("", "")
		without.refuses(http.StatusUnauthorized, domain.InvalidKey)
		refused := use(elsewhere, "")
		equal(t, "a refused network", refused.body, without.body)
		equal(t, "status", refused.status, http.StatusUnauthorized)
		use(here, "").is(http.StatusOK)
		if proxied {
			use(elsewhere, "192.0.2.9").is(http.StatusOK)
			use(elsewhere, "192.0.2.9, 198.51.100.1").refuses(http.StatusUnauthorized, domain.InvalidKey)
			use(here, "192.0.2.9").refuses(http.StatusUnauthorized, domain.InvalidKey)
		} else {
			use(elsewhere, "192.0.2.9").refuses(http.StatusUnauthorized, domain.InvalidKey)
			use(here, "192.0.2.9").is(http.StatusOK)
		}
	}
}

// After a rotation both keys work until the overlap ends, and only the requested grants move.
func TestRotatedKey(t *testing.T) {
	s := open(t, options{})
	key, former := s.limitedKey(nil, nil, nil)
	rotate := func(of domain.KeyID, overlap time.Duration, copied bool) (domain.KeyID, string) {
		t.Helper()
		c, text := domain.NewRotateKey(domain.RotateKey{
			Origin: s.org.Operator(), Key: of, Lifetime: 48 * time.Hour, Overlap: overlap, CopyGrants: copied,
		}, s.Now())
		must(s, c)
		return c.Outcome.Key.ID, text
	}
	n := 0
	register := func(key string) answer {
		n++
		return s.send(http.MethodPost, integrity+"/records", key, declaration("a", n, "x"))
	}
	second, copied := rotate(key.ID, 30*time.Minute, true)
	register(former).is(http.StatusCreated)
	register(copied).is(http.StatusCreated)
	s.skew.Store(int64(30*time.Minute + time.Second))
	register(former).refuses(http.StatusUnauthorized, domain.InvalidKey)
	register(copied).is(http.StatusCreated)
	_, bare := rotate(second, 0, false)
	register(copied).refuses(http.StatusUnauthorized, domain.InvalidKey)
	register(bare).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	s.Audit(t)
}

// When a membership ends, the next request with any of its keys fails, and keys of other members continue to work.
func TestEndedMembership(t *testing.T) {
	s := open(t, options{})
	const email = "second@example.com"
	var keys []string
	join := func() {
		t.Helper()
		must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Analyst})
	}
	become := func(status domain.MemberStatus) {
		t.Helper()
		must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Status: &status})
	}
	all := func(status int) {
		t.Helper()
		for _, key := range keys {
			if got := s.send(http.MethodGet, integrity+"/usage", key, nil).status; got != status {
				t.Errorf("status %d, want %d", got, status)
			}
		}
		s.get(integrity + "/usage").is(http.StatusOK)
	}
	join()
	for range 3 {
		create, text := domain.NewCreateKey(domain.CreateKey{
			Origin: s.org.Operator(), Email: email, Scopes: []domain.Scope{domain.IntegrityRead}, Lifetime: time.Hour,
		}, s.Now())
		must(s, create)
		keys = append(keys, text)
	}
	all(http.StatusOK)
	become(domain.MemberDisabled)
	all(http.StatusUnauthorized)
	become(domain.MemberActive)
	all(http.StatusOK)
	become(domain.MemberEnded)
	all(http.StatusUnauthorized)
	join() // a new membership of the same address does not restore old keys
	all(http.StatusUnauthorized)
}

func TestKeyUsed(t *testing.T) {
	var uses query.KeyUses
	var asked atomic.Int64
	s := open(t, options{config: func(c *handlers.Config) {
		c.KeyUsed = func(key domain.KeyID, at time.Time) {
			asked.Add(1)
			uses.Note(key, at)
		}
	}})
	s.hold()
	var wg sync.WaitGroup
	for range 5 {
		r := s.request(http.MethodGet, integrity+"/usage", s.org.Secret, nil)
		wg.Go(func() {
			if a, err := s.tryExchange(r); err != nil || a.status != http.StatusOK {
				t.Errorf("%d %v", a.status, err)
			}
		})
	}
	wg.Wait()
	s.public(integrity+"/usage").refuses(http.StatusUnauthorized, domain.InvalidKey)
	if asked.Load() != 5 {
		t.Errorf("%d uses were reported, want 5", asked.Load())
	}
	store := query.New(query.Config{Pool: s.Pool, Installation: s.Installation})
	check(t, uses.Flush(t.Context(), store))
	k, err := store.Key(t.Context(), s.org.Key.ID)
	check(t, err)
	if k.LastUsedAt == nil || k.LastUsedAt.Second() != 0 || s.Now().Sub(*k.LastUsedAt) > 3*time.Minute {
		t.Errorf("last use %v", k.LastUsedAt)
	}
}

// Two servers on one database go through a rotation of the signing key, one step apart. Whichever signed, both find the
// record valid. A retired key stays trusted, and a revoked key does not.
func TestSignerRotation(t *testing.T) {
	var config handlers.Config
	s := open(t, options{config: func(c *handlers.Config) { config = *c }})
	var theirs atomic.Pointer[action.Keys]
	theirs.Store(s.keys.Load())
	config.Ledger = s.Process(t, s.URL)
	config.Keys = func() action.Keys { return *theirs.Load() }
	second := httptest.NewServer(handlers.New(config))
	t.Cleanup(second.Close)
	two := *s
	two.http = second

	since := evidence.FormatTime(s.Now())
	former := s.Registrar.Signer
	next := evidence.GenerateSigner()
	staged, err := s.Trusted.Add(next.Key(), since)
	check(t, err)
	retired, err := staged.Retire(former.Key().KeyID, since)
	check(t, err)
	revoked, err := retired.Revoke(former.Key().KeyID, evidence.ReasonCompromised, since)
	check(t, err)

	signedBy := map[string]string{} // public id to keyId
	step := func(document string, one, other action.Keys) {
		t.Helper()
		s.keys.Store(&one)
		theirs.Store(&other)
		for i, server := range []*service{s, &two} {
			id := server.registered(document, i+1, "x")
			var envelope evidence.Envelope
			check(t, json.Unmarshal(server.get(integrity+"/records/"+id+"/evidence").body, &envelope))
			signedBy[id] = envelope.KeyID
		}
		for id := range signedBy {
			for _, server := range []*service{s, &two} {
				if checks := server.compared(id, "x").Checks; *checks.Signature != evidence.Valid || !*checks.FileMatch {
					t.Errorf("step %s: %+v", document, checks)
				}
			}
		}
	}
	step("before", action.Keys{Signer: former, Trusted: s.Trusted}, action.Keys{Signer: former, Trusted: s.Trusted})
	step("staged", action.Keys{Signer: former, Trusted: staged}, action.Keys{Signer: former, Trusted: staged})
	step("activated", action.Keys{Signer: next, Trusted: staged}, action.Keys{Signer: former, Trusted: staged})
	step("everywhere", action.Keys{Signer: next, Trusted: staged}, action.Keys{Signer: next, Trusted: staged})
	step("retired", action.Keys{Signer: next, Trusted: retired}, action.Keys{Signer: next, Trusted: staged})

	s.keys.Store(&action.Keys{Signer: next, Trusted: revoked})
	counts := map[string]int{}
	for id, keyID := range signedBy {
		counts[keyID]++
		want := evidence.Valid
		if keyID == former.Key().KeyID {
			want = evidence.Untrusted
		}
		view := s.compared(id, "x")
		if *view.Checks.Signature != want || (want == evidence.Untrusted) != (view.Result == wire.SignatureInvalid) {
			t.Errorf("after the compromise: %+v, want %s", view, want)
		}
		// Evidence signed by a revoked key is still answered, and verifies nowhere.
		var receipt evidence.Envelope
		check(t, json.Unmarshal(s.public("/api/public/integrity/"+id+"/receipt").body, &receipt))
		if got := evidence.CheckSignature(revoked, receipt.KeyID, []byte(receipt.Payload), receipt.Signature); got != want {
			t.Errorf("receipt: %s, want %s", got, want)
		}
	}
	if counts[former.Key().KeyID] != 5 || counts[next.Key().KeyID] != 5 {
		t.Errorf("records by key: %v", counts)
	}
	published, err := evidence.ParseTrustedKeys(s.public("/.well-known/integrity-trusted-keys.json").body)
	check(t, err)
	if key, _ := published.Lookup(former.Key().KeyID); key.KeyID != "" || len(published.Revoked()) != 1 ||
		!published.Trusts(next.Key()) {
		t.Errorf("published keys: %v, revoked %v", published.Keys(), published.Revoked())
	}
	s.Audit(t)
}
