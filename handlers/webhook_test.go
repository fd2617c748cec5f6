package handlers_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

const hooks = integrity + "/webhooks"

func (s *service) webhook(url string) (id, secret string) {
	s.t.Helper()
	w := s.post(hooks, body{"url": url}).is(http.StatusCreated)
	return w["id"].(string), w["secret"].(string)
}

func (s *service) authorized(webhook string, enabled bool) answer {
	s.t.Helper()
	return s.post(
		integrity+"/companies/"+s.org.Company.ID.String()+"/webhooks", body{"webhookId": webhook, "enabled": enabled},
	)
}

func TestWebhookLife(t *testing.T) {
	s := open(t, options{})
	made := s.post(
		hooks,
		body{
			"url": "https://receiver.example:8443/hook?a=b", "description": "billing ü",
			"types": []string{"integrity.revoked"},
		},
	)
	w := made.is(http.StatusCreated)
	equal(t, "created",
		[]any{
			w["url"], w["description"], w["types"], w["status"], w["authorizedCompanies"], w["disabledReason"],
			w["previousSecretUntil"],
		},
		[]any{"https://receiver.example:8443/hook?a=b", "billing ü", []string{"integrity.revoked"}, "active", 0, nil, nil})
	id, secret := w["id"].(string), w["secret"].(string)
	path := hooks + "/" + id
	if strings.Contains(s.log.String(), secret) || contains(s.get(path).body, secret) ||
		contains(s.get(hooks).body, "whsec_") {
		t.Error("a secret is shown a second time")
	}
	if n := s.number(
		"SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND position(convert_to('" + secret +
			"', 'UTF8') in data) > 0",
	); n != 0 {
		t.Error("a secret stands in an event")
	}
	if n := s.number(
		"SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND " +
			"position(convert_to('receiver.example', 'UTF8') in data) > 0",
	); n != 0 {
		t.Error("an address stands in an event, so that it can never be erased")
	}
	equal(t, "authorized", s.authorized(id, true).is(http.StatusOK)["enabled"], true)
	equal(t, "companies", s.get(path).is(http.StatusOK)["authorizedCompanies"], 1)

	patched := s.send(
		http.MethodPatch, path, s.org.Secret,
		body{
			"url": "https://other.example/", "description": nil, "enabled": false,
			"types": []string{"integrity.registered", "integrity.superseded"},
		},
	).is(http.StatusOK)
	equal(t, "patched", []any{patched["url"], patched["description"], patched["types"], patched["status"]},
		[]any{"https://other.example/", nil, []string{"integrity.registered", "integrity.superseded"}, "disabled"})
	unchanged := s.send(http.MethodPatch, path, s.org.Secret, body{}).is(http.StatusOK)
	equal(t, "an empty change", unchanged, patched)
	s.post(path+"/test", body{}).refuses(http.StatusConflict, domain.InvalidState)
	s.post(path+"/replay", body{"fromSequence": 1, "dryRun": true}).refuses(http.StatusConflict, domain.InvalidState)
	equal(
		t, "enabled", s.send(http.MethodPatch, path, s.org.Secret, body{"enabled": true}).is(http.StatusOK)["status"],
		"active",
	)

	rotated := s.post(path+"/secret/rotate", body{"overlapSeconds": 3600}).is(http.StatusOK)
	if rotated["secret"] == secret || rotated["previousSecretUntil"] == nil {
		t.Errorf("%v", rotated)
	}
	s.post(path+"/secret/rotate", nil).is(http.StatusOK)
	if now := s.post(path+"/secret/rotate", body{"overlapSeconds": 0}).is(http.StatusOK); now["previousSecretUntil"] !=
		nil {
		t.Errorf("%v", now)
	}

	equal(
		t, "deleted", s.send(http.MethodDelete, path, s.org.Secret, nil).is(http.StatusOK), body{"id": id, "deleted": true},
	)
	if n := s.number("SELECT sum(webhooks) FROM companies WHERE shard = $1 AND organization_id = $2"); n != 0 {
		t.Errorf("%d authorizations are left of a deleted destination", n)
	}
	s.get(path).refuses(http.StatusNotFound, domain.NotFound)
	s.authorized(id, true).refuses(http.StatusNotFound, domain.NotFound)
	equal(t, "list", s.get(hooks).is(http.StatusOK)["webhooks"], []any{})
	s.Audit(t)
}

func TestWebhookRefusals(t *testing.T) {
	s := open(t, options{})
	id, _ := s.webhook("https://receiver.example/")
	for _, c := range []struct {
		in       any
		code     domain.Code
		pointers string
	}{
		{body{}, domain.InvalidData, "/url REQUIRED"},
		{body{"url": "http://receiver.example/"}, domain.InvalidData, "/url FORMAT"},
		{
			body{"url": 1, "types": []string{}, "description": strings.Repeat("x", 201)}, domain.InvalidData,
			"/url TYPE, /description LENGTH, /types LENGTH",
		},
		{
			body{"url": "https://r.example", "types": []string{"a", "integrity.revoked", "integrity.revoked"}, "x": 1},
			domain.InvalidData, "/types/0 UNKNOWN, /types/2 DUPLICATE_MEMBER, /x UNKNOWN_MEMBER",
		},
		{body{"url": "https://127.0.0.1/"}, domain.WebhookURLBlocked, "/url BLOCKED"},
		{body{"url": "https://169.254.169.254/", "types": []string{"a"}}, domain.InvalidData, "/types/0 UNKNOWN"},
	} {
		e := s.post(hooks, c.in).refuses(http.StatusUnprocessableEntity, c.code)
		if got := pointers(e); got != c.pointers {
			t.Errorf("%v: %s, want %s", c.in, got, c.pointers)
		}
	}
	e := s.send(
		http.MethodPatch, hooks+"/"+id, s.org.Secret, body{"url": nil, "types": nil, "enabled": "yes", "description": 1},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if got := pointers(e); got != "/url TYPE, /description TYPE, /types TYPE, /enabled TYPE" {
		t.Errorf("%s", got)
	}
	s.send(
		http.MethodPatch, hooks+"/"+id, s.org.Secret, body{"url": "https://[::1]/"},
	).refuses(http.StatusUnprocessableEntity, domain.WebhookURLBlocked)
	e = s.post(
		hooks+"/"+id+"/replay", body{"fromSequence": 5, "toSequence": 4, "companyReference": "?", "dryRun": 1},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if got := pointers(e); got != "/toSequence RANGE, /companyReference FORMAT, /dryRun TYPE" {
		t.Errorf("%s", got)
	}
	e = s.post(
		hooks+"/"+id+"/replay", body{"fromSequence": 1, "companyReference": "company-1", "dryRun": true},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	equal(t, "a company that the destination is not authorized for", pointers(e), "/companyReference UNKNOWN")
	s.post(hooks+"/"+id+"/secret/rotate", body{"overlapSeconds": 604801}).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
	s.post(hooks+"/"+id+"/test", body{"x": 1}).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.get(hooks+"/"+id+"/deliveries?status=none&limit=0&after=x").refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
	equal(t, "nothing has changed", read[wire.Webhooks](s.get(hooks), http.StatusOK).Webhooks[0].URL,
		"https://receiver.example/")

	// The destination of another organization, a key without the scope, and a member without the role.
	other := s.Organization(t, 1, "internal")
	_, reader := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	for method, path := range map[string]string{
		"GET": hooks + "/" + id, "PATCH": hooks + "/" + id, "DELETE": hooks + "/" + id, "POST": hooks + "/" + id + "/test",
	} {
		var in any
		if method == "PATCH" || method == "POST" {
			in = body{}
		}
		s.send(method, path, other.Secret, in).refuses(http.StatusNotFound, domain.NotFound)
		s.send(method, path, reader, in).refuses(http.StatusForbidden, domain.MissingScope)
	}
	s.send(
		http.MethodPost, integrity+"/companies/"+other.Company.ID.String()+"/webhooks", other.Secret,
		body{"webhookId": id, "enabled": true},
	).refuses(http.StatusNotFound, domain.NotFound)
	s.send(
		http.MethodPost, integrity+"/companies/"+other.Company.ID.String()+"/webhooks", s.org.Secret,
		body{"webhookId": id, "enabled": true},
	).refuses(http.StatusNotFound, domain.NotFound)
	s.post(hooks+"/deliveries/dlv_x/redeliver", nil).refuses(http.StatusNotFound, domain.NotFound)
	s.send(http.MethodPost, hooks+"/"+id+"/secret/rotate", other.Secret, nil).refuses(http.StatusNotFound, domain.NotFound)
	s.send(
		http.MethodPost, hooks+"/"+id+"/replay", other.Secret, body{"fromSequence": 1, "dryRun": true},
	).refuses(http.StatusNotFound, domain.NotFound)
	s.send(http.MethodGet, hooks+"/"+id+"/deliveries", other.Secret, nil).refuses(http.StatusNotFound, domain.NotFound)

	for range domain.MaxWebhooks - 1 {
		s.webhook("https://receiver.example/")
	}
	a := s.post(hooks, body{"url": "https://receiver.example/"})
	a.refuses(http.StatusTooManyRequests, domain.WebhookLimit)
	s.Audit(t)
}

func TestNoSecretKey(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.SecretKeys = domain.FixedSecretKeys() }})
	s.post(hooks, body{"url": "https://receiver.example/"}).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	s.get(hooks).is(http.StatusOK)
}

// Deliveries have pages, can be redelivered and are replayed. Tests and redeliveries are limited to ten a minute over
// all processes.
func TestDeliveries(t *testing.T) {
	s := open(t, options{})
	id, _ := s.webhook("https://receiver.example/")
	path := hooks + "/" + id
	s.registered("before", 1, "before")
	s.authorized(id, true).is(http.StatusOK)
	for i := range 5 {
		s.registered(fmt.Sprint("d-", i), 1, fmt.Sprint(i))
	}
	deliveries := func(query string) wire.Deliveries {
		t.Helper()
		return read[wire.Deliveries](s.get(path+"/deliveries"+query), http.StatusOK)
	}
	var seen []string
	cursor := ""
	for more := true; more; {
		page := deliveries("?limit=2" + cursor)
		for _, d := range page.Deliveries {
			seen = append(seen, d.ID)
			equal(t, "delivery", []any{d.Status, d.Attempts, d.Type, d.CompanyID, d.Reason},
				[]any{"pending", 0, "integrity.registered", s.org.Company.ID.String(), nil})
		}
		more, cursor = page.HasMore, "&after="+*page.NextCursor
	}
	if len(seen) != 5 {
		t.Fatalf("%d deliveries", len(seen))
	}
	last := base64.RawURLEncoding.EncodeToString([]byte(seen[4]))
	equal(t, "an empty page keeps the cursor", deliveries("?after="+last).NextCursor, last)
	s.owner(`INSERT INTO webhook_log (shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at, attempts, attempted_at, response_status, reason, status, finished_at)
		SELECT shard, webhook_id, delivery_id, organization_id, company_id, sequence, event_id, type, created_at, 10, now(), 500, 'HTTP_STATUS', 2, now() FROM webhook_deliveries`,
		`DELETE FROM webhook_deliveries`)
	exhausted := deliveries("?status=exhausted").Deliveries
	equal(t, "exhausted", []any{len(exhausted), exhausted[0].Reason, exhausted[0].ResponseStatus},
		[]any{5, "HTTP_STATUS", 500})
	equal(t, "delivered", len(deliveries("?status=delivered").Deliveries), 0)

	s.freshMinute()
	again := s.post(hooks+"/deliveries/"+seen[0]+"/redeliver", nil).is(http.StatusAccepted)
	equal(t, "again", []any{again["id"], again["status"], again["attempts"]}, []any{seen[0], "pending", 0})
	count := s.post(path+"/replay", body{"fromSequence": 1, "dryRun": true}).is(http.StatusOK)
	// four, and the event from before the authorization
	equal(t, "counted", count, body{"dryRun": true, "count": 5, "nextSequence": nil})
	queued := s.post(
		path+"/replay", body{"fromSequence": 1, "companyReference": "company-1", "toSequence": nil, "dryRun": false},
	).is(http.StatusAccepted)
	equal(t, "queued", queued["count"], 5)
	equal(
		t, "nothing is missing", s.post(path+"/replay", body{"fromSequence": 1, "dryRun": true}).is(http.StatusOK)["count"],
		0,
	)

	test := s.post(path+"/test", body{}).is(http.StatusAccepted)
	equal(
		t, "test", []any{test["type"], test["sequence"], test["companyId"], test["status"]},
		[]any{"webhook.test", nil, nil, "pending"},
	)
	second := s.second(options{})
	for i := range 9 {
		at := s
		if i%2 == 0 {
			at = second
		}
		at.post(path+"/test", nil).is(http.StatusAccepted)
	}
	for _, at := range []*service{s, second} {
		at.post(path+"/test", nil).refuses(http.StatusTooManyRequests, domain.RateLimited)
	}
	for range 9 {
		s.post(hooks+"/deliveries/"+seen[0]+"/redeliver", nil).is(http.StatusAccepted)
	}
	s.post(hooks+"/deliveries/"+seen[0]+"/redeliver", nil).refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.send(http.MethodPatch, path, s.org.Secret, body{"enabled": false}).is(http.StatusOK)
	s.skew.Add(int64(time.Minute))
	s.post(hooks+"/deliveries/"+seen[0]+"/redeliver", nil).refuses(http.StatusConflict, domain.InvalidState)
	s.Audit(t)
}
