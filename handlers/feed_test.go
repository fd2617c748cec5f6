package handlers_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers"
)

func TestFeedPages(t *testing.T) {
	s := open(t, options{})
	for version := range 7 {
		s.registered("a", version+1, fmt.Sprint(version))
	}
	seen, cursor, pages := []any{}, float64(0), 0
	for more := true; more; pages++ {
		a := s.get(fmt.Sprintf("%s/changes?companyReference=company-1&limit=3&after=%d", integrity, int64(cursor)))
		page := a.is(http.StatusOK)
		for _, e := range page["events"].([]any) {
			event := e.(map[string]any)
			seen = append(seen, event["sequence"])
			for _, name := range []string{"id", "type", "occurredAt", "publicId", "companyReference", "source", "documentReference", "version", "recordStatus"} {
				if event[name] == nil {
					t.Errorf("event without %s", name)
				}
			}
		}
		cursor, more = page["nextCursor"].(float64), page["hasMore"].(bool)
	}
	if len(seen) != 13 || pages != 5 {
		t.Errorf("%d events in %d pages", len(seen), pages)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].(float64) <= seen[i-1].(float64) {
			t.Errorf("sequences %v", seen)
		}
	}
	empty := s.get(fmt.Sprintf("%s/changes?companyReference=company-1&after=%d", integrity, int64(cursor))).is(http.StatusOK)
	equal(t, "after the end", empty, map[string]any{"events": []any{}, "nextCursor": cursor, "hasMore": false})
	s.get(fmt.Sprintf("%s/changes?companyReference=company-1&after=%d", integrity, int64(cursor)+1)).refuses(http.StatusUnprocessableEntity, domain.CursorAhead)
	bad := s.get(integrity+"/changes?after=-1&limit=1001&wait=26&offset=0").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if got := pointers(bad); got != "/companyReference REQUIRED, /after RANGE, /limit RANGE, /wait RANGE, /offset UNKNOWN_PARAMETER" {
		t.Errorf("errors %s", got)
	}
	s.get(integrity+"/changes?companyReference=company-2").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
}

func TestFeedEpoch(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Installation = eventstore.Installation{Epoch: 7} }})
	a := s.get(integrity + "/changes?companyReference=company-1")
	a.is(http.StatusOK)
	if want := fmt.Sprintf(`"meta":{"requestId":"%s","epoch":7}`, a.header.Get("X-Request-Id")); !contains(a.body, want) {
		t.Errorf("%s lacks %s", a.body, want)
	}
}

func TestFeedWait(t *testing.T) {
	closing := make(chan struct{})
	s := open(t, options{config: func(c *handlers.Config) { c.Closing = closing }})
	// waiting returns once the request has been authenticated.
	waiting := func(secret string) <-chan answer {
		head := s.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
		const requests = "SELECT coalesce(sum(used), 0) FROM meters WHERE shard = $1 AND subject = $2"
		before := s.number(requests)
		r := s.request(http.MethodGet, fmt.Sprintf("%s/changes?companyReference=company-1&wait=25&after=%d", integrity, head), secret, nil)
		answers := make(chan answer, 1)
		go func() {
			defer close(answers)
			if a, err := s.tryExchange(r); err != nil {
				t.Error(err)
			} else {
				answers <- a
			}
		}()
		for s.number(requests) == before {
			runtime.Gosched()
		}
		return answers
	}
	arrives := waiting(s.org.Secret)
	s.registered("a", 1, "one")
	if events := (<-arrives).is(http.StatusOK)["events"].([]any); len(events) != 1 {
		t.Errorf("events %v", events)
	}

	// A key that ended while it waited is told so, and gets no events.
	key, secret := s.Key(t, s.org, domain.IntegrityRead)
	s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
	ended := waiting(secret)
	revoke, err := domain.NewRevokeKey(s.org.Operator(), key.ID, s.Now(), random)
	must(s, revoke, err)
	s.registered("a", 2, "two")
	(<-ended).refuses(http.StatusUnauthorized, domain.InvalidKey)

	stops := waiting(s.org.Secret)
	close(closing)
	if events := (<-stops).is(http.StatusOK)["events"].([]any); len(events) != 0 {
		t.Errorf("events %v", events)
	}
}
