package handlers_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

const links = "/api/v1/oauth/links"

// listLinks lists the links that a key may see.
func (s *service) listLinks(key string) []wire.OAuthLink {
	s.t.Helper()
	return read[wire.OAuthLinks](s.send(http.MethodGet, links, key, nil), http.StatusOK).Links
}

// started starts a link of the key's member and returns its id and code.
func (s *service) started(key string, scopes ...string) (id, code string) {
	s.t.Helper()
	var wanted any
	if scopes != nil {
		wanted = body{"scopes": scopes}
	}
	data := s.send(http.MethodPost, links, key, wanted).is(http.StatusCreated)
	return data["id"].(string), data["code"].(string)
}

func (s *service) redeem(code, token string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, links+"/redeem", token, body{"code": code})
}

// linked links the subject of a token to the owner of the organization.
func (s *service) linked(token string) (id string) {
	s.t.Helper()
	id, code := s.started(s.org.Secret)
	s.redeem(code, token).is(http.StatusOK)
	return id
}

// refusedToken requires a refusal of the ordinary MCP endpoint that says where to get a token.
func (s *service) refusedToken(token string, status int, code domain.Code, challenge string) {
	s.t.Helper()
	a := s.rpc(ordinaryMCP, token, request("ping", "{}"))
	if e := a.is(status); e["code"] != string(code) {
		s.t.Errorf("code %v, want %s: %s", e["code"], code, a.body)
	}
	want := `Bearer resource_metadata="` + baseURL +
		`/.well-known/oauth-protected-resource/api/v1/mcp", scope="verify:read artifacts:read"` + challenge
	if got := a.header.Get("WWW-Authenticate"); got != want && status != http.StatusServiceUnavailable {
		s.t.Errorf("WWW-Authenticate: %s, want %s", got, want)
	}
	judgeCode(s.t, a.body)
}

// judgeCode checks a refusal of the MCP endpoints, which the documents do not describe, against their schema of an
// error.
func judgeCode(t *testing.T, text []byte) {
	t.Helper()
	p, err := published()
	check(t, err)
	var failure struct{ Error struct{ Code string } }
	var value any
	check(t, json.Unmarshal(text, &failure))
	check(t, json.Unmarshal(text, &value))
	check(t, p.older.Components.Schemas["ApiFailure"].Value.VisitJSON(value))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[failure.Error.Code] = true
}

const invalidToken = `, error="invalid_token"`

// A linked identity may call the tools that token, consent and role all allow.
func TestOAuthAtTheOrdinaryEndpoint(t *testing.T) {
	s, p := withProvider(t, options{})
	token := p.token(person, allScopes)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")
	s.linked(token)

	all := s.offered(ordinaryMCP, token)
	for _, tool := range []string{
		"verificar_documento", "verificar_certificado", "listar_documentos", "consultar_consumo",
	} {
		if !strings.Contains(all, tool) {
			t.Errorf("%s is not offered: %s", tool, all)
		}
	}
	if _, failed := s.tool(ordinaryMCP, token, "listar_documentos", body{}); failed {
		t.Error("listar_documentos failed")
	}
	narrow := p.token(person, "openid verify:read")
	if offered := s.offered(ordinaryMCP, narrow); strings.Contains(offered, "listar_documentos") ||
		!strings.Contains(offered, "verificar_documento") {
		t.Errorf("offered to a token with verify:read alone: %s", offered)
	}
	s.toolRefuses(ordinaryMCP, narrow, "listar_documentos", body{}, domain.MissingScope)
	s.refusedToken(
		p.token(person, "openid profile"), http.StatusForbidden, domain.MissingScope, `, error="insufficient_scope"`,
	)
	s.refusedToken(p.token(stranger, allScopes), http.StatusForbidden, domain.IdentityNotLinked, "")
	s.refusedToken("", http.StatusUnauthorized, domain.InvalidKey, "")
	s.refusedToken(strings.Replace(s.org.Secret, "_", "_0", 1), http.StatusUnauthorized, domain.InvalidKey, invalidToken)

	// Keys work as before, and other endpoints refuse tokens.
	if offered := s.offered(ordinaryMCP, s.org.Secret); offered != all {
		t.Errorf("offered to a key: %s", offered)
	}
	for _, path := range []string{integrityMCP, "/api/v1/me", integrity + "/usage"} {
		method := http.MethodGet
		if path == integrityMCP {
			method = http.MethodPost
		}
		r := s.request(method, path, token, nil)
		a := s.plainly(r)
		if e := a.is(http.StatusUnauthorized); e["code"] != string(domain.InvalidKey) ||
			a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %v %v", path, a.header, e)
		}
	}
	s.Audit(t)
}

// Consent and role are read on every request.
func TestOAuthScopesAreAnIntersection(t *testing.T) {
	s, p := withProvider(t, options{})
	token := p.token(person, allScopes)
	_, code := s.started(s.org.Secret)
	data := s.send(
		http.MethodPost, links+"/redeem", token, body{"code": code, "scopes": []string{"artifacts:read"}},
	).is(http.StatusOK)
	equal(t, "consented", data["consentedScopes"], []string{"artifacts:read"})
	if offered := s.offered(ordinaryMCP, token); strings.Contains(offered, "verificar") ||
		!strings.Contains(offered, "listar_documentos") {
		t.Errorf("beyond the consent: %s", offered)
	}
	if e := s.send(
		http.MethodPost, links+"/redeem", token, body{"code": code, "scopes": []string{"integrity:admin"}},
	).refuses(422, domain.InvalidData); pointers(e) != "/scopes/0 UNKNOWN" {
		t.Error(pointers(e))
	}
}

// Only valid tokens of this provider for this endpoint are accepted.
func TestOAuthTokens(t *testing.T) {
	s, p := withProvider(t, options{})
	good := p.token(person, allScopes)
	s.linked(good)
	key := p.current()
	audience, hour := edge.OAuthAudience(baseURL), time.Now().Add(time.Hour)
	shared := sharedSecret(strings.Repeat("s", 32))
	p.extra = append(p.extra, shared)
	other := startProvider(t)
	other.key.id = key.id // the same name, another key

	publicKey, err := jose.JSONWebKey{Key: key.private.Public(), KeyID: key.id}.MarshalJSON()
	check(t, err)
	segment := func(v any) string {
		text, err := json.Marshal(v)
		check(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	unsigned := segment(map[string]any{"alg": "none", "typ": "JWT"}) + "." + strings.Split(good, ".")[1] + "."
	parts := strings.Split(good, ".")
	claims := map[string]any{}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	check(t, err)
	check(t, json.Unmarshal(raw, &claims))
	claims["sub"] = stranger
	changed := parts[0] + "." + segment(claims) + "." + parts[2]

	for name, token := range map[string]string{
		"expired": p.issue(asking{
			subject: person, audience: audience, scope: allScopes, expires: time.Now().Add(-time.Second),
		}),
		"wrong audience": p.issue(asking{
			subject: person, audience: baseURL + "/api/v1/integrity/mcp", scope: allScopes, expires: hour,
		}),
		"own audience": p.issue(asking{subject: person, audience: pageClient, scope: allScopes, expires: hour}),
		"wrong issuer": p.issue(asking{
			subject: person, audience: audience, scope: allScopes, expires: hour, issuer: "https://other.example",
		}),
		"other provider": other.token(person, allScopes),
		"other's key": other.issue(asking{
			subject: person, audience: audience, scope: allScopes, expires: hour, issuer: p.issuer,
		}),
		"alg none":      unsigned,
		"HS256":         p.forge(jose.HS256, publicKey, "JWT", nil),
		"shared secret": p.forge(jose.HS256, shared, "JWT", nil),
		"changed":       changed,
		"no subject":    p.forge(jose.RS256, key.private, "JWT", map[string]any{"sub": ""}),
		"no expiry":     p.forge(jose.RS256, key.private, "JWT", map[string]any{"exp": nil}),
		"not yet": p.forge(
			jose.RS256, key.private, "JWT", map[string]any{"nbf": time.Now().Add(10 * time.Minute).Unix()},
		),
		"logout token":    p.forge(jose.RS256, key.private, "logout+jwt", nil),
		"bound to a key":  p.forge(jose.RS256, key.private, "at+jwt", map[string]any{"cnf": map[string]any{"jkt": "x"}}),
		"nested":          p.forge(jose.RS256, key.private, "JWT", nil) + ".x",
		"no token at all": "eyJhbGciOiJSUzI1NiJ9",
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			s.refusedToken(token, http.StatusUnauthorized, domain.InvalidKey, invalidToken)
		})
	}
	for name, token := range map[string]string{
		"at+jwt":             p.forge(jose.RS256, key.private, "at+jwt", nil),
		"application/at+jwt": p.forge(jose.RS256, key.private, "application/at+jwt", nil),
		"PS256":              p.forge(jose.PS256, key.private, "JWT", nil),
		"scp": p.forge(
			jose.RS256, key.private, "JWT", map[string]any{"scope": nil, "scp": []string{"verify:read"}},
		),
		"scp as a text": p.forge(
			jose.RS256, key.private, "JWT", map[string]any{"scope": nil, "scp": "verify:read artifacts:read"},
		),
	} {
		if offered := s.offered(ordinaryMCP, token); !strings.Contains(offered, "verificar_documento") {
			t.Errorf("%s: offered %s", name, offered)
		}
	}
}

// The provider's keys may change at any time, and if it is unavailable, tokens are not blamed.
func TestOAuthKeysRotate(t *testing.T) {
	s, p := withProvider(t, options{})
	s.hold() // the provider is only asked again when its answer is old
	p.away.Store(true)
	first := p.token(person, allScopes)
	id, code := s.started(s.org.Secret) // does not need the provider
	s.refusedToken(first, http.StatusServiceUnavailable, domain.TemporarilyUnavailable, "")
	s.redeem(code, first).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	p.away.Store(false)
	s.skew.Add(int64(10 * time.Second))
	s.redeem(code, first).is(http.StatusOK)
	s.offered(ordinaryMCP, first)

	for i, algorithm := range []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA, jose.RS256} {
		former := p.token(person, allScopes)
		p.rotate(newProviderKey(t, fmt.Sprint("key-", i), algorithm))
		s.skew.Add(int64(15 * time.Second))
		if offered := s.offered(ordinaryMCP, p.token(person, allScopes)); offered == "" {
			t.Errorf("after the rotation to %s nothing is offered", algorithm)
		}
		s.refusedToken(former, http.StatusUnauthorized, domain.InvalidKey, invalidToken)
	}
	asked := p.asked.Load()
	for range 5 {
		s.refusedToken(first, http.StatusUnauthorized, domain.InvalidKey, invalidToken)
	}
	if more := p.asked.Load() - asked; more != 0 {
		t.Errorf("tokens under unknown keys made it ask %d times", more)
	}
	// Known keys work without the provider. Tokens that cannot be verified are not refused as invalid.
	known := p.token(person, allScopes)
	p.away.Store(true)
	s.skew.Add(int64(15 * time.Second))
	s.offered(ordinaryMCP, known)
	s.refusedToken(first, http.StatusServiceUnavailable, domain.TemporarilyUnavailable, "")
	if link := s.listLinks(s.org.Secret)[0]; link.ID != id || link.Status != "linked" {
		t.Errorf("%+v", link)
	}
}

// A key that the provider no longer publishes is soon refused, even if no token under another key arrives. While the
// provider is unavailable, it is not asked for every token.
func TestOAuthWithdrawnKey(t *testing.T) {
	s, p := withProvider(t, options{})
	s.hold()
	token := p.token(person, allScopes)
	s.linked(token)
	s.offered(ordinaryMCP, token)
	p.away.Store(true)
	s.skew.Add(int64(5 * time.Minute))
	s.offered(ordinaryMCP, token)
	before := p.refused.Load()
	for range 5 {
		s.offered(ordinaryMCP, token)
	}
	if more := p.refused.Load() - before; more != 0 {
		t.Errorf("while away it was asked %d times more", more)
	}
	p.away.Store(false)
	p.rotate(newProviderKey(t, "second", jose.RS256))
	s.skew.Add(int64(5 * time.Minute))
	s.refusedToken(token, http.StatusUnauthorized, domain.InvalidKey, invalidToken)
}

// A link works once, within ten minutes.
func TestOAuthLinks(t *testing.T) {
	s, p := withProvider(t, options{})
	s.hold()
	one, two := p.token(person, allScopes), p.token(stranger, allScopes)

	id, code := s.started(s.org.Secret)
	data := s.redeem(code, one).is(http.StatusOK)
	if data["id"] != id || data["status"] != "linked" || data["replayed"] != false || data["linkedAt"] == nil {
		t.Error(data)
	}
	if again := s.redeem(code, one).is(http.StatusOK); again["replayed"] != true || again["linkedAt"] != data["linkedAt"] {
		t.Error(again)
	}
	s.redeem(code, two).refuses(http.StatusConflict, domain.InvalidState)

	// An identity has one link at a time.
	_, second := s.started(s.org.Secret)
	s.redeem(second, one).refuses(http.StatusConflict, domain.InvalidState)
	s.send(http.MethodDelete, links+"/"+id, s.org.Secret, nil).is(http.StatusOK)
	s.redeem(code, one).refuses(http.StatusConflict, domain.InvalidState)
	s.redeem(second, one).is(http.StatusOK)

	// A link works for ten minutes and no longer.
	for _, c := range []struct {
		age    time.Duration
		status int
	}{{9*time.Minute + 50*time.Second, 200}, {11 * time.Minute, 409}} {
		_, late := s.started(s.org.Secret)
		s.skew.Add(int64(c.age))
		if a := s.redeem(late, p.token(stranger, allScopes)); a.status != c.status {
			t.Errorf("after %s: %d %s", c.age, a.status, a.body)
		}
		if c.status == 200 {
			s.send(http.MethodDelete, links+"/"+s.listLinks(s.org.Secret)[0].ID, s.org.Secret, nil).is(200)
		}
	}

	id, cancelled := s.started(s.org.Secret)
	if data := s.send(http.MethodDelete, links+"/"+id, s.org.Secret, nil).is(http.StatusOK); data["status"] !=
		"withdrawn" || data["replayed"] != false {
		t.Error(data)
	}
	if data := s.send(http.MethodDelete, links+"/"+id, s.org.Secret, nil).is(http.StatusOK); data["replayed"] != true {
		t.Error(data)
	}
	s.redeem(cancelled, p.token(stranger, allScopes)).refuses(http.StatusConflict, domain.InvalidState)
	_, wrong := s.started(s.org.Secret)
	_, guessed := s.started(s.org.Secret)
	forged := wrong[:30] + guessed[30:] // the id of one link with the secret of the other; the checksum covers both
	s.redeem(forged, two).refuses(422, domain.InvalidData)
	unknown := "il_01kabcdefghjkmnpqrstvw0001_jG9Sw02PCNFSPS2Xb3vt2DS5JfD90SkJbHvb5EaCIPf3VqkT0"
	s.redeem(unknown, two).refuses(http.StatusNotFound, domain.NotFound)
	s.send(http.MethodDelete, links+"/lnk_x", s.org.Secret, nil).refuses(http.StatusNotFound, domain.NotFound)
	s.redeem(guessed, s.org.Secret).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.Audit(t)
	for _, secret := range []string{code, one, person, p.issuer} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
	for _, e := range slices.Concat(slices.Collect(maps.Values(s.Audit(t)))...) {
		if strings.Contains(string(e.Data), p.issuer) || strings.Contains(string(e.Data), `"`+person+`"`) ||
			strings.Contains(string(e.Data), code) {
			t.Errorf("an event names the identity or holds the code: %s", e.Data)
		}
	}
}

// Consent, membership and role are read anew for every request.
func TestOAuthEndsAtOnce(t *testing.T) {
	s, p := withProvider(t, options{})
	s.SecondOwner(t, s.org)
	token := p.token(person, allScopes)
	status := func(to domain.MemberStatus) {
		t.Helper()
		must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: s.org.Email, Status: &to})
	}
	id := s.linked(token)
	s.offered(ordinaryMCP, token)
	status(domain.MemberDisabled)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")
	status(domain.MemberActive)
	s.offered(ordinaryMCP, token)
	s.send(http.MethodDelete, links+"/"+id, s.org.Secret, nil).is(http.StatusOK)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")

	s.linked(token)
	s.offered(ordinaryMCP, token)
	status(domain.MemberEnded)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")

	// The identity can be linked again, to another member of any organization.
	other := s.Organization(t, 2, domain.InternalPlan)
	_, code := s.started(other.Secret)
	s.redeem(code, token).is(http.StatusOK)
	s.offered(ordinaryMCP, token)
	s.Audit(t)
}

// A link belongs to its member. Owners and admins see and end the links of all members.
func TestOAuthLinksOfOthers(t *testing.T) {
	s, p := withProvider(t, options{})
	add := &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.org", Role: domain.Analyst}
	must(s, add)
	create, analyst := domain.NewCreateKey(domain.CreateKey{
		Origin: s.org.Operator(), Email: "ana@example.org", Scopes: []domain.Scope{domain.VerifyRead},
		Lifetime: time.Hour * 2,
	}, s.Now())
	must(s, create)

	own, code := s.started(analyst)
	list := s.listLinks(analyst)
	equal(t, "scopes of the key", list[0].Scopes, []string{"verify:read"})
	if list[0].MemberID != add.Outcome.ID.String() {
		t.Errorf("%+v", list[0])
	}
	s.send(
		http.MethodPost, links, analyst, body{"scopes": []string{"artifacts:read"}},
	).refuses(http.StatusForbidden, domain.MissingScope)
	s.send(http.MethodPost, links, analyst, body{"scopes": []string{}}).refuses(422, domain.InvalidData)
	s.send(
		http.MethodPost, links, analyst, body{"scopes": []string{"verify:read", "verify:read"}},
	).refuses(422, domain.InvalidData)
	s.send(http.MethodGet, links+"?all=true", analyst, nil).refuses(http.StatusForbidden, domain.RoleRequired)
	beyond := s.send(
		http.MethodPost, links+"/redeem", p.token(person, allScopes),
		body{"code": code, "scopes": []string{"verify:read", "artifacts:read"}},
	)
	if e := beyond.refuses(422, domain.InvalidData); pointers(e) != "/scopes UNKNOWN" {
		t.Error(pointers(e))
	}
	s.redeem(code, p.token(person, allScopes)).is(http.StatusOK)

	owners, _ := s.started(s.org.Secret)
	s.send(http.MethodDelete, links+"/"+owners, analyst, nil).refuses(http.StatusNotFound, domain.NotFound)
	if total := s.get(links).is(200)["total"]; total != 1.0 {
		t.Errorf("own: %v", total)
	}
	if total := s.get(links + "?all=true").is(200)["total"]; total != 2.0 {
		t.Errorf("all: %v", total)
	}
	stranger := s.Organization(t, 1, domain.InternalPlan)
	s.send(http.MethodDelete, links+"/"+own, stranger.Secret, nil).refuses(http.StatusNotFound, domain.NotFound)
	s.send(http.MethodDelete, links+"/"+own, s.org.Secret, nil).is(http.StatusOK)
	s.refusedToken(p.token(person, allScopes), http.StatusForbidden, domain.IdentityNotLinked, "")
}

// Of two links that are redeemed at the same time, one gets the identity, whatever their shards and processes.
func TestOAuthIdentityIsClaimedOnce(t *testing.T) {
	s, p := withProvider(t, options{})
	token := p.token(person, allScopes)
	var codes []string
	for shard := range domain.Shard(4) {
		_, code := s.started(s.Organization(t, shard, domain.InternalPlan).Secret)
		codes = append(codes, code)
	}
	statuses := make([]int, len(codes))
	var all sync.WaitGroup
	for i, code := range codes {
		all.Go(func() {
			text, _ := json.Marshal(body{"code": code})
			r := s.request(http.MethodPost, links+"/redeem", token, strings.NewReader(string(text)))
			r.Header.Set("Content-Type", "application/json")
			if a, err := s.tryExchange(r); err == nil {
				statuses[i] = a.status
			}
		})
	}
	all.Wait()
	slices.Sort(statuses)
	equal(t, "statuses", statuses, []int{200, 409, 409, 409})
	s.offered(ordinaryMCP, token)
}

// Of links that find an identity unclaimed at the same moment, one gets it.
func TestOAuthClaimsAtTheSameMoment(t *testing.T) {
	s, p := withProvider(t, options{})
	store := query.New(query.Config{Pool: s.Pool, Public: s.Pool, Installation: s.Installation})
	rivals := make([]domain.OAuthLink, 4)
	for i := range rivals {
		id, _ := s.started(s.org.Secret)
		parsed, err := domain.ParseID[domain.LinkID](id)
		check(t, err)
		rivals[i], err = store.Link(t.Context(), parsed)
		check(t, err)
	}
	for round := range 20 {
		identity := domain.NewOAuthSubject(s.Installation.Secret, p.issuer, fmt.Sprint(round))
		outcomes := make([]error, len(rivals))
		var all sync.WaitGroup
		for i, link := range rivals {
			all.Go(func() { outcomes[i] = store.ClaimOAuthSubject(t.Context(), identity, link, s.Now()) })
		}
		all.Wait()
		got := 0
		for _, err := range outcomes {
			var refused *domain.Error
			switch {
			case err == nil:
				got++
			case !errors.As(err, &refused) || refused.Code != domain.InvalidState:
				t.Error(err)
			}
		}
		if got != 1 {
			t.Fatalf("round %d: %d links claimed the same identity", round, got)
		}
	}
}

// If two people redeem a link at the same time, one of them gets it.
func TestOAuthLinkIsRedeemedOnce(t *testing.T) {
	s, p := withProvider(t, options{})
	_, code := s.started(s.org.Secret)
	text, err := json.Marshal(body{"code": code})
	check(t, err)
	tokens := []string{p.token(person, allScopes), p.token(stranger, allScopes)}
	statuses := make([]int, len(tokens))
	var all sync.WaitGroup
	for i, token := range tokens {
		all.Go(func() {
			r := s.request(http.MethodPost, links+"/redeem", token, strings.NewReader(string(text)))
			r.Header.Set("Content-Type", "application/json")
			if a, err := s.tryExchange(r); err == nil {
				statuses[i] = a.status
			}
		})
	}
	all.Wait()
	winner := slices.Index(statuses, http.StatusOK)
	if winner < 0 || statuses[1-winner] != http.StatusConflict {
		t.Fatalf("statuses %v", statuses)
	}
	s.offered(ordinaryMCP, tokens[winner])
	s.refusedToken(tokens[1-winner], http.StatusForbidden, domain.IdentityNotLinked, "")

	// The other identity is not linked, and may be linked elsewhere at once.
	s.linked(tokens[1-winner])
	s.offered(ordinaryMCP, tokens[1-winner])
	s.Audit(t)
}

// Tokens use the same minute and month of the organization as keys.
func TestOAuthIsMetered(t *testing.T) {
	plans := parsePlans(t, `{"gratis": {"perMinute": 6, "versionsPerMonth": 1, "requestsPerMonth": 3}}`)
	s, p := withProvider(t, options{plan: "gratis", plans: plans})
	s.freshMinute()
	token := p.token(person, allScopes)
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "") // costs nothing
	s.linked(token)                                                           // one request of the minute
	ping := func() answer { return s.rpc(ordinaryMCP, token, request("ping", "{}")) }
	for range 3 {
		ping().message(http.StatusOK)
	}
	a := ping()
	if e := a.is(http.StatusTooManyRequests); e["code"] != string(domain.RequestQuotaExhausted) {
		t.Error(e)
	}
	if got := a.header.Get("RateLimit"); !strings.HasPrefix(got, `"minute";r=1;`) {
		t.Errorf("RateLimit: %s", got)
	}
	s.get("/api/v1/usage").is(http.StatusOK)
	if e := ping().is(http.StatusTooManyRequests); e["code"] != string(domain.RateLimited) {
		t.Error(e)
	}
	if used := s.number(`SELECT used FROM request_usage WHERE shard = $1 AND organization_id = $2`); used != 3 {
		t.Errorf("used %d requests of the month", used)
	}
}

func TestOAuthMetadata(t *testing.T) {
	const path = "/.well-known/oauth-protected-resource"
	s, p := withProvider(t, options{})
	a := s.public(path + ordinaryMCP)
	var metadata map[string]any
	check(t, json.Unmarshal(a.body, &metadata))
	equal(t, "metadata", metadata, map[string]any{
		"resource": baseURL + "/api/v1/mcp", "authorization_servers": []string{p.issuer},
		"scopes_supported":         []string{"verify:read", "artifacts:read"},
		"bearer_methods_supported": []string{"header"}, "resource_name": "Integrity Ledger",
	})
	if known := s.send(
		http.MethodGet, path+ordinaryMCP, "", nil, "If-None-Match", a.header.Get("ETag"),
	); known.status != http.StatusNotModified {
		t.Errorf("conditional: %d", known.status)
	}
	for _, elsewhere := range []string{path, path + integrityMCP} {
		s.public(elsewhere).is(http.StatusNotFound)
	}
}

// Without configuration there are no OAuth endpoints, and all others work as usual.
func TestOAuthNotConfigured(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.OAuth = nil }})
	p := startProvider(t)
	for _, path := range []string{
		"/.well-known/oauth-protected-resource" + ordinaryMCP, links, "/oauth/link/x", "/oauth/signed-in",
	} {
		if a := s.plainly(s.request(http.MethodGet, path, s.org.Secret, nil)); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, credential := range []string{"", p.token(person, allScopes)} {
		a := s.rpc(ordinaryMCP, credential, request("ping", "{}"))
		if a.is(http.StatusUnauthorized); a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("WWW-Authenticate: %s", a.header.Get("WWW-Authenticate"))
		}
	}
	s.offered(ordinaryMCP, s.org.Secret)
}

// After a crash between claim and event the link can still be redeemed. Until it expires, no other link can use the
// identity; after that the claim has no effect.
func TestOAuthClaimOutlivesACrash(t *testing.T) {
	s, p := withProvider(t, options{})
	token := p.token(person, allScopes)
	store := query.New(query.Config{Pool: s.Pool, Public: s.Pool, Installation: s.Installation})
	claimed := func() (code string) {
		t.Helper()
		id, code := s.started(s.org.Secret)
		parsed, err := domain.ParseID[domain.LinkID](id)
		check(t, err)
		link, err := store.Link(t.Context(), parsed)
		check(t, err)
		check(
			t,
			store.ClaimOAuthSubject(t.Context(), domain.NewOAuthSubject(s.Installation.Secret, p.issuer, person), link, s.Now()),
		)
		return code
	}
	interrupted := claimed()
	s.refusedToken(token, http.StatusForbidden, domain.IdentityNotLinked, "")
	_, other := s.started(s.org.Secret)
	s.redeem(other, token).refuses(http.StatusConflict, domain.InvalidState)
	id := s.redeem(interrupted, token).is(http.StatusOK)["id"].(string)
	s.offered(ordinaryMCP, token)
	s.send(http.MethodDelete, links+"/"+id, s.org.Secret, nil).is(http.StatusOK)

	abandoned := claimed()
	s.skew.Add(int64(11*time.Minute + time.Second))
	s.redeem(abandoned, token).refuses(http.StatusConflict, domain.InvalidState)
	s.linked(token)
	s.offered(ordinaryMCP, token)
	s.Audit(t)
}
