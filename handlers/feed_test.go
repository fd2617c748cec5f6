package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

func TestFeedPages(t *testing.T) {
	s := open(t, options{})
	for version := range 7 {
		s.registered("a", version+1, fmt.Sprint(version))
	}
	seen, cursor, pages := []int64{}, int64(0), 0
	for more := true; more; pages++ {
		page := s.changes(fmt.Sprint("&limit=3&after=", cursor))
		for _, e := range page.Events {
			seen = append(seen, e.Sequence)
			of := wire.VersionReference{CompanyReference: "company-1", Source: "billing", DocumentReference: "a",
				Version: e.Version}
			if e.ID == "" || e.Type == "" || e.OccurredAt == "" || e.PublicID == "" || e.RecordStatus == "" ||
				e.SHA256 != hash(fmt.Sprint(e.Version-1)) || e.VersionReference != of || e.Version == 0 {
				t.Errorf("an event lacks a member: %+v", e)
			}
		}
		cursor, more = page.NextCursor, page.HasMore
	}
	if len(seen) != 13 || pages != 5 {
		t.Errorf("%d events in %d pages", len(seen), pages)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			t.Errorf("sequences %v", seen)
		}
	}
	equal(t, "after the end", s.changes(fmt.Sprint("&after=", cursor)),
		wire.Feed[wire.FeedEvent]{Events: []wire.FeedEvent{}, NextCursor: cursor})
	s.get(fmt.Sprintf("%s/changes?companyReference=company-1&after=%d", integrity,
		cursor+1)).refuses(http.StatusUnprocessableEntity, domain.CursorAhead)
	bad := s.get(integrity+"/changes?after=-1&limit=1001&wait=26&offset=0").refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
	if got := pointers(bad); got != "/companyReference REQUIRED, /after RANGE, /limit RANGE, /wait RANGE, /offset "+
		"UNKNOWN_PARAMETER" {
		t.Errorf("errors %s", got)
	}
	s.get(integrity+"/changes?companyReference=company-2").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
}

// A page must not pass an event that the projections can no longer show: its reader would never miss it.
func TestFeedLacksARow(t *testing.T) {
	pgtest.OneServer(t, "the rows of one node are deleted")
	for _, lost := range []string{"versions", "documents"} {
		s := open(t, options{})
		s.registered("a", 1, "one")
		s.registered("b", 1, "two")
		s.owner(fmt.Sprintf(`DELETE FROM %s i USING feed f WHERE i.shard = f.shard AND i.document_id = f.document_id
			AND f.sequence = (SELECT min(sequence) FROM feed)`, lost))
		s.get(integrity+"/changes?companyReference=company-1").refuses(http.StatusInternalServerError, domain.Internal)
		s.logged("or its document: run integrity rebuild")
		s.get(integrity+"/usage/entries").refuses(http.StatusInternalServerError, domain.Internal)
	}
}

// The next page has the current epoch, even if a restore or a rebuild has raised it since the process started.
func TestFeedEpoch(t *testing.T) {
	s := open(t, options{})
	s.get(integrity + "/changes?companyReference=company-1&epoch=1").is(http.StatusOK)
	s.owner("UPDATE ledger SET feed_epoch = 7")
	a := s.get(integrity + "/changes?companyReference=company-1")
	a.is(http.StatusOK)
	if want := fmt.Sprintf(`"meta":{"requestId":"%s","epoch":7}`, a.header.Get("X-Request-Id")); !contains(a.body, want) {
		t.Errorf("%s lacks %s", a.body, want)
	}
	// A cursor of another epoch belongs to another history, whatever its sequence.
	s.get(integrity + "/changes?companyReference=company-1&after=0&epoch=7").is(http.StatusOK)
	for _, other := range []string{"1", "8", "9007199254740991"} {
		s.get(
			integrity+"/changes?companyReference=company-1&after=0&wait=25&epoch="+other,
		).refuses(http.StatusUnprocessableEntity, domain.CursorAhead)
	}
	if got := pointers(s.get(
		integrity+"/changes?companyReference=company-1&epoch=9007199254740992",
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != "/epoch RANGE" {
		t.Errorf("errors %s", got)
	}
}

func TestFeedWait(t *testing.T) {
	closing := make(chan struct{})
	s := open(t, options{config: func(c *handlers.Config) { c.Closing = closing }})
	// waiting returns once the request waits: every later event makes it read again.
	waiting := func(secret string) <-chan answer {
		head := s.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
		r := s.request(
			http.MethodGet, fmt.Sprintf("%s/changes?companyReference=company-1&wait=25&after=%d", integrity, head), secret, nil,
		)
		answers := make(chan answer, 1)
		go func() {
			defer close(answers)
			if a, err := s.tryExchange(r); err != nil {
				t.Error(err)
			} else {
				answers <- a
			}
		}()
		for s.waiting() == 0 {
			runtime.Gosched()
		}
		return answers
	}
	arrives := waiting(s.org.Secret)
	s.registered("a", 1, "one")
	if events := (<-arrives).is(http.StatusOK)["events"].([]any); len(events) != 1 {
		t.Errorf("events %v", events)
	}

	// A key that ends while its request waits is refused and gets no events.
	key, secret := s.Key(t, s.org, domain.IntegrityRead)
	s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
	ended := waiting(secret)
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
	s.registered("a", 2, "two")
	(<-ended).refuses(http.StatusUnauthorized, domain.InvalidKey)

	stops := waiting(s.org.Secret)
	close(closing)
	if events := (<-stops).is(http.StatusOK)["events"].([]any); len(events) != 0 {
		t.Errorf("events %v", events)
	}
}

// waits starts n requests that wait, and returns once all are authenticated. If closing is not nil, a wait that ends
// without an event starts again until closing is closed: on a busy machine its 25 seconds may be over before the test
// has caused the event.
func (s *service) waits(n int, secret, company string, closing <-chan struct{}) <-chan answer {
	s.t.Helper()
	head := s.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
	const requests = "SELECT coalesce(sum(used), 0) FROM meters WHERE shard = $1 AND subject = $2"
	before := s.number(requests)
	answers := make(chan answer, n)
	for range n {
		r := s.request(
			http.MethodGet, fmt.Sprintf("%s/changes?companyReference=%s&wait=25&after=%d", integrity, company, head), secret,
			nil,
		)
		go func() {
			for {
				a, err := s.tryExchange(r.Clone(r.Context()))
				if err != nil {
					s.t.Error(err)
				}
				var page struct{ Data struct{ Events []any } }
				again := closing != nil && a.status == http.StatusOK && json.Unmarshal(a.body, &page) == nil &&
					len(page.Data.Events) == 0
				select {
				case <-closing:
					again = false
				default:
				}
				if !again {
					answers <- a
					return
				}
			}
		}()
	}
	for s.number(requests) < before+int64(n) {
		runtime.Gosched()
	}
	return answers
}

// Readers at one process wait for commits of another. They hold no connections: there are more readers than
// connections, and everything else continues.
func TestFeedWaitOverProcesses(t *testing.T) {
	closing := make(chan struct{})
	s := open(t, options{})
	s.hold() // so that the counts of an earlier minute are not deleted while requests wait
	other := s.second(options{config: func(c *handlers.Config) { c.Closing = closing }})
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	var secrets []string
	for range 4 {
		key, secret := s.Key(t, s.org, domain.IntegrityRead)
		s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
		s.Grant(t, s.org, key.ID, company.ID, true)
		secrets = append(secrets, secret)
	}
	var mine []<-chan answer
	for _, secret := range secrets {
		mine = append(mine, other.waits(4, secret, "company-1", closing))
	}
	last := other.waits(1, s.org.Secret, "company-2", closing)
	s.registered("a", 1, "one")
	for _, answers := range mine {
		for range 4 {
			if events := (<-answers).is(http.StatusOK)["events"].([]any); len(events) != 1 {
				t.Errorf("events %v", events)
			}
		}
	}
	select {
	case a := <-last:
		t.Errorf("the other company's reader was answered: %s", a.body)
	default:
	}
	// Withdrawing the grant ends the wait with the answer for an unknown company.
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	(<-last).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)

	// Shutting down answers everyone at once.
	stopping := other.waits(4, secrets[0], "company-1", closing)
	close(closing)
	for range 4 {
		if page := (<-stopping).is(http.StatusOK); len(page["events"].([]any)) != 0 || page["hasMore"] != false {
			t.Errorf("page %v", page)
		}
	}
}

// The sixth wait of a key is answered at once, as is a page with events.
func TestFeedWaitCaps(t *testing.T) {
	closing := make(chan struct{})
	s := open(t, options{config: func(c *handlers.Config) { c.Closing = closing }})
	s.hold()
	s.registered("a", 1, "one")
	answers := s.waits(6, s.org.Secret, "company-1", nil)
	if events := (<-answers).is(http.StatusOK)["events"].([]any); len(events) != 0 {
		t.Errorf("events %v", events)
	}
	select {
	case a := <-answers:
		t.Errorf("a second one was answered: %s", a.body)
	default:
	}
	if events := s.get(integrity + "/changes?companyReference=company-1&wait=25").is(http.StatusOK)["events"].([]any); len(events) != 1 {
		t.Errorf("events %v", events)
	}
	close(closing)
	for range 5 {
		(<-answers).is(http.StatusOK)
	}
}
