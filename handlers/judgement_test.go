package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

// between runs after a request was authenticated and before its command is decided.
type between struct{ act atomic.Pointer[func()] }

func (b *between) options() options {
	return options{config: func(c *handlers.Config) {
		c.KeyUsed = func(domain.KeyID, time.Time) {
			if act := b.act.Swap(nil); act != nil {
				(*act)()
			}
		}
	}}
}

func (b *between) happens(act func()) { b.act.Store(&act) }

// actor is a member with a key that has every scope and the organization's company.
type actor struct {
	email, secret string
	key           domain.KeyID
}

func (s *service) actor(email string, role domain.Role) actor {
	s.t.Helper()
	must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: role})
	var scopes []domain.Scope
	for _, scope := range domain.Scopes() {
		if role.Allows(scope) {
			scopes = append(scopes, scope)
		}
	}
	create, text := domain.NewCreateKey(domain.CreateKey{
		Origin: s.org.Operator(), Email: email, Scopes: scopes, Lifetime: domain.DefaultKeyLifetime,
	}, s.Now())
	must(s, create)
	s.Grant(s.t, s.org, create.Outcome.ID, s.org.Company.ID, true)
	return actor{email, text, create.Outcome.ID}
}

func (s *service) revokeKey(id domain.KeyID) {
	s.t.Helper()
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: id})
}

func (s *service) changeMember(email string, role *domain.Role, status *domain.MemberStatus) {
	s.t.Helper()
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Role: role, Status: status})
}

// Every kind of write with a key that may no longer act when the group decides adds nothing to the log.
func TestDecisionJudgesWhoActs(t *testing.T) {
	var b between
	s := open(t, b.options())
	webhook := s.post(integrity+"/webhooks", body{"url": "https://hooks.example/a"}).is(http.StatusCreated)["id"].(string)
	companyID := s.org.Company.ID.String()
	record := s.registered("known", 1, "known")
	v := s.registeredText("title", "text")
	s.reviewed(v, "accepted").is(http.StatusCreated)
	approvable := s.registeredText("title", "other")
	s.reviewed(approvable, "accepted").is(http.StatusCreated)
	s.approved(v).is(http.StatusCreated)
	_, certificate := s.certificate("title", "third")
	spare, _ := s.Key(t, s.org, domain.IntegrityRead)

	upload := func(path string, metadata body) func(string) answer {
		text, kind := form(metadata, "a.txt", "text/plain", "text")
		return s.posting(path, text, "Content-Type", kind)
	}
	routes := map[string]struct {
		role domain.Scope
		send func(secret string) answer
	}{
		"register": {domain.IntegrityWrite, s.posting(integrity+"/records", declaration("new", 1, "new"))},
		"replay":   {domain.IntegrityWrite, s.posting(integrity+"/records", declaration("known", 1, "known"))},
		"reserve": {
			domain.IntegrityWrite,
			s.posting(
				integrity+"/reservations",
				body{"companyReference": "company-1", "source": "billing", "documentReference": "r", "version": 1},
			),
		},
		"revoke":  {domain.IntegrityRevoke, s.posting(integrity+"/records/"+record+"/revoke", body{"reason": "x"})},
		"company": {domain.IntegrityAdmin, s.posting(integrity+"/companies", body{"reference": "company-2"})},
		"company status": {
			domain.IntegrityAdmin, s.sending(http.MethodPatch, integrity+"/companies/"+companyID, body{"status": "closed"}),
		},
		"access": {
			domain.IntegrityAdmin,
			s.posting(integrity+"/companies/"+companyID+"/access", body{"keyId": spare.ID.String(), "enabled": true}),
		},
		"webhook": {domain.IntegrityAdmin, s.posting(integrity+"/webhooks", body{"url": "https://hooks.example/b"})},
		"webhook update": {
			domain.IntegrityAdmin, s.sending(http.MethodPatch, integrity+"/webhooks/"+webhook, body{"enabled": false}),
		},
		"webhook secret": {domain.IntegrityAdmin, s.posting(integrity+"/webhooks/"+webhook+"/secret/rotate", nil)},
		"webhook access": {
			domain.IntegrityAdmin,
			s.posting(integrity+"/companies/"+companyID+"/webhooks", body{"webhookId": webhook, "enabled": true}),
		},
		"webhook test": {domain.IntegrityAdmin, s.posting(integrity+"/webhooks/"+webhook+"/test", nil)},
		"webhook replay": {
			domain.IntegrityAdmin,
			s.posting(integrity+"/webhooks/"+webhook+"/replay", body{"fromSequence": 1, "dryRun": false}),
		},
		"webhook deletion": {domain.IntegrityAdmin, s.sending(http.MethodDelete, integrity+"/webhooks/"+webhook, nil)},
		"artifact": {
			domain.ArtifactsWrite, s.posting(certificationAction+"/artifacts", body{"title": "x", "kind": "text", "text": "x"}),
		},
		"idempotent": {
			domain.ArtifactsWrite,
			s.posting(certificationAction+"/artifacts", body{"title": "x", "kind": "text", "text": "x"}, idempotencyKey, "k"),
		},
		"file": {domain.ArtifactsWrite, upload(certificationAction+"/artifacts", body{"title": "x"})},
		"review": {
			domain.ReviewsWrite,
			upload(certificationAction+"/artifacts/"+v.artifact+"/reviews", reviewOf(v.version, "accepted")),
		},
		"approval": {
			domain.ApprovalsWrite,
			s.posting(
				certificationAction+"/versions/"+approvable.version+"/approve",
				body{"statement": "x", "acceptResponsibility": true},
			),
		},
		"certificate": {
			domain.CertificatesWrite,
			s.posting(certificationAction+"/versions/"+v.version+"/certificates", body{"publicationAuthorized": true}),
		},
		"its revocation": {
			domain.CertificatesWrite,
			s.posting(certificationAction+"/certificates/"+certificate+"/revoke", body{"reason": "x"}),
		},
		"link": {"", s.posting(certificationAction+"/oauth/links", nil)},
	}
	viewer, ended, disabled := domain.Viewer, domain.MemberEnded, domain.MemberDisabled
	n := 0
	for name, route := range routes {
		for what, change := range map[string]func(actor){
			"a revoked key":     func(a actor) { s.revokeKey(a.key) },
			"an expired key":    func(actor) { s.skew.Add(int64(domain.DefaultKeyLifetime)) },
			"an ended member":   func(a actor) { s.changeMember(a.email, nil, &ended) },
			"a disabled member": func(a actor) { s.changeMember(a.email, nil, &disabled) },
			"a lower role":      func(a actor) { s.changeMember(a.email, &viewer, nil) },
		} {
			if what == "a lower role" && route.role == "" {
				continue
			}
			n++
			a := s.actor(fmt.Sprintf("member%d@example.com", n), domain.Admin)
			var before int64
			b.happens(func() { change(a); before = s.sequence() })
			got := route.send(a.secret)
			if what == "an expired key" {
				s.skew.Store(0)
			}
			t.Run(name+" by "+what, func(t *testing.T) {
				got.t = t
				if what == "a lower role" {
					got.refuses(http.StatusForbidden, domain.RoleRequired)
				} else {
					got.refuses(http.StatusUnauthorized, domain.InvalidKey)
				}
				if after := s.sequence(); after != before {
					t.Errorf("%d events", after-before)
				}
				if claims := s.number(
					"SELECT count(*) FROM idempotency_keys WHERE shard = $1 AND organization_id = $2",
				); claims != 0 {
					t.Errorf("%d claims stay", claims)
				}
			})
		}
	}
	s.Audit(t)
}

func (s *service) posting(path string, content any, header ...string) func(string) answer {
	return s.sending(http.MethodPost, path, content, header...)
}

func (s *service) sending(method, path string, content any, header ...string) func(string) answer {
	return func(secret string) answer { return s.send(method, path, secret, content, header...) }
}

// Items of a batch and MCP tools are refused as in REST.
func TestDecisionJudgesItemsAndTools(t *testing.T) {
	var b between
	s := open(t, b.options())
	a := s.actor("first@example.com", domain.Admin)
	b.happens(func() { s.revokeKey(a.key) })
	batch := s.send(http.MethodPost, integrity+"/records/batch", a.secret,
		body{"declarations": []body{declaration("a", 1, "a"), declaration("b", 1, "b")}})
	for _, result := range read[wire.Results[wire.Registration]](batch, http.StatusOK).Results {
		equal(t, "an item", []any{result.Status, result.Error.Code}, []any{401, domain.InvalidKey})
	}
	for name, arguments := range map[string]body{
		"integrity_register": declaration("a", 1, "a"),
		"integrity_reserve":  {"companyReference": "company-1", "source": "billing", "documentReference": "a", "version": 1},
		"integrity_revoke":   {"publicId": s.registered("to-revoke", 1, "x"), "reason": "x"},
	} {
		a := s.actor(name+"@example.com", domain.Admin)
		viewer := domain.Viewer
		b.happens(func() { s.changeMember(a.email, &viewer, nil) })
		before := s.sequence()
		s.toolRefuses(integrityMCP, a.secret, name, arguments, domain.RoleRequired)
		if events := s.sequence() - before; events != 1 {
			t.Errorf("%s: %d events", name, events)
		}
	}
	s.Audit(t)
}

// An upload begins before its key is revoked and ends after it.
func TestRevokedDuringUpload(t *testing.T) {
	var analysed atomic.Int64
	var during atomic.Pointer[func()]
	s := open(t, options{plan: "gratis", config: func(c *handlers.Config) {
		c.BodyGrace = time.Minute
		c.Analyze = func(
			ctx context.Context, o domain.OrganizationID, file *os.File, size int64, kind, name string,
		) (analysis.Report, error) {
			analysed.Add(1)
			if act := during.Swap(nil); act != nil {
				(*act)()
			}
			return analyze(ctx, o, file, size, kind, name)
		}
	}})
	text, kind := form(body{"title": "x"}, "a.txt", "text/plain", strings.Repeat("a", 500))
	requests := func() int64 {
		return s.number("SELECT coalesce(sum(used), 0) FROM request_usage WHERE shard = $1 AND organization_id = $2")
	}
	refused := func(what string, response *http.Response, before int64) {
		t.Helper()
		defer response.Body.Close()
		answered, err := io.ReadAll(response.Body)
		check(t, err)
		var envelope struct{ Error struct{ Code string } }
		check(t, json.Unmarshal(answered, &envelope))
		if response.StatusCode != http.StatusUnauthorized || envelope.Error.Code != string(domain.InvalidKey) {
			t.Errorf("%s: %d %s", what, response.StatusCode, answered)
		}
		if after := s.sequence(); after != before {
			t.Errorf("%s: %d events", what, after-before)
		}
		if claims := s.number(
			"SELECT count(*) FROM idempotency_keys WHERE shard = $1 AND organization_id = $2",
		); claims != 0 {
			t.Errorf("%s: %d claims stay", what, claims)
		}
	}

	a := s.actor("slow@example.com", domain.Admin)
	spent := requests()
	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection,
		"POST %s/artifacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: "+
			"%d\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\n\r\n",
		certificationAction, a.secret, kind, len(text))
	check(t, err)
	answers := bufio.NewReader(connection)
	for range 2 { // 100 Continue and an empty line: the handler reads
		_, err = answers.ReadString('\n')
		check(t, err)
	}
	s.revokeKey(a.key)
	before := s.sequence()
	_, err = io.WriteString(connection, text)
	check(t, err)
	response, err := http.ReadResponse(answers, nil) //nolint:bodyclose // refused closes it
	check(t, err)
	refused("revoked during the body", response, before)
	if analysed.Load() != 0 {
		t.Error("the bytes of a revoked key were analysed")
	}

	b := s.actor("slower@example.com", domain.Admin)
	revoke := func() { s.revokeKey(b.key); before = s.sequence() }
	during.Store(&revoke)
	r := s.request(http.MethodPost, certificationAction+"/artifacts", b.secret, strings.NewReader(text))
	r.Header.Set("Content-Type", kind)
	r.Header.Set(idempotencyKey, "k")
	response, err = s.http.Client().Do(r) //nolint:bodyclose // refused closes it
	check(t, err)
	refused("revoked during the analysis", response, before)
	if now := requests(); now != spent {
		t.Errorf("%d requests of the month were taken", now-spent)
	}
	s.Audit(t)
}

// A key that was revoked while its request arrived does not get a stored answer.
func TestReplayJudgesWhoActs(t *testing.T) {
	var b between
	s := open(t, b.options())
	text := body{"title": "Once", "kind": "text", "text": "once"}
	send := func(a actor) answer {
		return s.send(http.MethodPost, certificationAction+"/artifacts", a.secret, text, idempotencyKey, "k")
	}
	a, viewer := s.actor("first@example.com", domain.Admin), domain.Viewer
	send(a).is(http.StatusCreated)
	b.happens(func() { s.changeMember(a.email, &viewer, nil) })
	send(a).refuses(http.StatusForbidden, domain.RoleRequired)
	c := s.actor("second@example.com", domain.Admin)
	b.happens(func() { s.revokeKey(c.key) })
	send(c).refuses(http.StatusUnauthorized, domain.InvalidKey)
}

// A grant that is withdrawn between authentication and decision is missing for every command of a company, including a
// replay.
func TestDecisionJudgesGrants(t *testing.T) {
	var b between
	s := open(t, b.options())
	record := s.registered("known", 1, "known")
	for name, test := range map[string]struct {
		send   func(secret string) answer
		status int
		code   domain.Code
	}{
		"register": {
			s.posting(integrity+"/records", declaration("new", 1, "new")), http.StatusForbidden, domain.CompanyNotAuthorized,
		},
		"replay": {
			s.posting(integrity+"/records", declaration("known", 1, "known")), http.StatusForbidden,
			domain.CompanyNotAuthorized,
		},
		"reserve": {s.posting(
			integrity+"/reservations",
			body{"companyReference": "company-1", "source": "billing", "documentReference": "r", "version": 1},
		),
			http.StatusForbidden, domain.CompanyNotAuthorized},
		"revoke": {
			s.posting(integrity+"/records/"+record+"/revoke", body{"reason": "x"}), http.StatusNotFound, domain.RecordNotFound,
		},
	} {
		a := s.actor(name+"@example.com", domain.Admin)
		var before int64
		b.happens(func() { s.Grant(t, s.org, a.key, s.org.Company.ID, false); before = s.sequence() })
		test.send(a.secret).refuses(test.status, test.code)
		if after := s.sequence(); after != before {
			t.Errorf("%s: %d events", name, after-before)
		}
	}
	s.Audit(t)
}

// A read by a remembered key is judged together with its question, counted once, and refused to a key that has lost its
// rights since its last request.
func TestReadersAreJudged(t *testing.T) {
	s := open(t, options{})
	record := s.registered("known", 1, "known")
	routes := map[string]string{
		"look-up": integrity + "/lookup?companyReference=company-1&source=billing&documentReference=known&version=1",
		"link":    integrity + "/lookup?publicId=" + record,
		"record":  integrity + "/records/" + record,
		"export":  integrity + "/records/" + record + "/evidence",
		"as of":   integrity + "/records/" + record + "/evidence?at=" + fmt.Sprint(s.sequence()),
		"usage":   integrity + "/usage",
	}
	ended, disabled := domain.MemberEnded, domain.MemberDisabled
	n := 0
	for name, path := range routes {
		ask := s.sending(http.MethodGet, path, nil)
		for what, change := range map[string]func(actor){
			"a revoked key":     func(a actor) { s.revokeKey(a.key) },
			"an expired key":    func(actor) { s.skew.Add(int64(domain.DefaultKeyLifetime)) },
			"an ended member":   func(a actor) { s.changeMember(a.email, nil, &ended) },
			"a disabled member": func(a actor) { s.changeMember(a.email, nil, &disabled) },
			"a lost grant":      func(a actor) { s.Grant(t, s.org, a.key, s.org.Company.ID, false) },
		} {
			n++
			a := s.actor(fmt.Sprintf("reader%d@example.com", n), domain.Admin)
			if first, second := ask(a.secret).left(), ask(a.secret).left(); second != first-1 {
				t.Errorf("%s: %d requests are left after %d", name, second, first)
			}
			change(a)
			got := ask(a.secret)
			s.skew.Store(0)
			t.Run(name+" by "+what, func(t *testing.T) {
				got.t = t
				switch {
				case what != "a lost grant":
					got.refuses(http.StatusUnauthorized, domain.InvalidKey)
				case name == "usage":
					if u := read[wire.Allowance](got, http.StatusOK); len(u.Companies) > 0 {
						t.Errorf("%v", u.Companies)
					}
				case name == "look-up":
					got.refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
				default:
					got.refuses(http.StatusNotFound, domain.RecordNotFound)
				}
			})
		}
	}

	// The minute is used up between two requests, and is found to be by the question's judgement.
	s.freshMinute()
	ask := s.sending(http.MethodGet, routes["look-up"], nil)
	ask(s.org.Secret).is(http.StatusOK)
	two := int32(2)
	must(s, &domain.ChangePlan{Origin: s.org.Operator(), KeepInternal: true, PerMinute: &two})
	ask(s.org.Secret).is(http.StatusOK)
	for range 2 {
		ask(s.org.Secret).refuses(http.StatusTooManyRequests, domain.RateLimited)
	}
}

// left returns how many requests the organization has left in the minute after a successful one.
func (a answer) left() (n int) {
	a.t.Helper()
	_, err := fmt.Sscanf(a.is200().header.Get("RateLimit"), `"minute";r=%d`, &n)
	check(a.t, err)
	return n
}

// A read whose caller gives up while the database does not answer is counted once, by the statement that still runs.
func TestReaderWhoGivesUp(t *testing.T) {
	s := open(t, options{})
	path := integrity + "/records/" + s.registered("known", 1, "known")
	s.freshMinute()
	before := s.send(http.MethodGet, path, s.org.Secret, nil).left()
	release, awaited := s.holdRows("SELECT FROM meters WHERE shard = $1 AND subject = $2 FOR UPDATE", s.org.ID.Shard(), s.org.ID)
	r := s.request(http.MethodGet, path+"/evidence", s.org.Secret, nil)
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		answer, err := s.http.Client().Do(r.WithContext(ctx))
		if err == nil {
			answer.Body.Close()
		}
		gone <- err
	}()
	s.eventually("the judgement waits", awaited)
	giveUp()
	if err := <-gone; err == nil {
		t.Error("the request was answered")
	}
	s.logged("/records/{publicId}/evidence")
	release()
	if after := s.send(http.MethodGet, path, s.org.Secret, nil).left(); after != before-2 {
		t.Errorf("%d requests are left after %d", after, before)
	}
}
