package handlers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers"
	"integrityledger/handlers/client"
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
	if got := pointers(bad); got != "/after RANGE, /limit RANGE, /wait RANGE, /offset "+
		"UNKNOWN_PARAMETER" {
		t.Errorf("errors %s", got)
	}
	s.get(integrity+"/changes?companyReference=company-2").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
}

// everything is the first page of the feed over all companies of the key.
const everything = integrity + "/changes?after=0"

// all reads a page of the feed over all companies of the key, and returns its events as "company version".
func (s *service) all(after int64, limit int) (page wire.Feed[wire.FeedEvent], events []string) {
	s.t.Helper()
	page = read[wire.Feed[wire.FeedEvent]](
		s.get(fmt.Sprintf("%s/changes?after=%d&limit=%d", integrity, after, limit)), http.StatusOK,
	)
	for i, e := range page.Events {
		events = append(events, fmt.Sprint(e.CompanyReference, " ", e.Version))
		if e.Sequence <= after || e.Sequence > page.NextCursor || i > 0 && e.Sequence <= page.Events[i-1].Sequence {
			s.t.Errorf("after %d: %+v", after, page)
		}
	}
	if page.Head == nil || page.Granted == nil || page.HasMore != (page.NextCursor < *page.Head) {
		s.t.Errorf("after %d: %+v", after, page)
	}
	return page, events
}

// in registers a version of a company with its key.
func (s *service) in(company, key string, version int) {
	s.t.Helper()
	s.send(http.MethodPost, integrity+"/records", key,
		declaration("a", version, company).with(body{"companyReference": company})).is(http.StatusCreated)
}

// The feed over all companies shows the granted ones only, in the organization's order, and its work is bounded.
func TestFeedOfAllCompanies(t *testing.T) {
	s := open(t, options{})
	second, third := s.Company(t, s.org, "company-2"), s.Company(t, s.org, "company-3")
	s.Grant(t, s.org, s.org.Key.ID, second.ID, true)
	other, secret := s.Key(t, s.org, domain.IntegrityWrite)
	s.Grant(t, s.org, other.ID, third.ID, true)
	var want []string
	for version := 1; version < 5; version++ {
		s.in("company-1", s.org.Secret, version)
		s.in("company-3", secret, version)
		s.in("company-2", s.org.Secret, version)
		for _, company := range []string{"company-1", "company-2"} {
			want = append(want, fmt.Sprint(company, " ", version))
			if version > 1 {
				want = append(want, fmt.Sprint(company, " ", version-1)) // superseded
			}
		}
	}
	for _, limit := range []int{1, 2, 3, 100} {
		var seen []string
		empty := 0
		for cursor, more := int64(0), true; more; {
			page, events := s.all(cursor, limit)
			if seen = append(seen, events...); len(events) == 0 {
				empty++
			}
			if page.NextCursor-cursor > 5*int64(limit) {
				t.Errorf("a page of %d looks at %d events", limit, page.NextCursor-cursor)
			}
			cursor, more = page.NextCursor, page.HasMore
		}
		equal(t, fmt.Sprint("pages of ", limit), seen, want)
		if limit == 1 && empty == 0 { // the grants and keys at the beginning fill whole pages
			t.Errorf("no empty page")
		}
	}
	_, reader := s.Key(t, s.org, domain.IntegrityRead) // without any grant
	s.send(http.MethodGet, everything, reader, nil).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)

	// A page names a company whose earlier events its reader may lack.
	page, _ := s.all(0, 1000)
	end := page.NextCursor
	s.Grant(t, s.org, s.org.Key.ID, third.ID, true)
	page, events := s.all(end, 100)
	equal(t, "granted", page.Granted, []wire.GrantedCompany{{CompanyReference: "company-3", Sequence: end + 1}})
	if len(events) > 0 || page.NextCursor != end+1 {
		t.Errorf("after the grant: %+v", page)
	}
	if late := read[wire.Feed[wire.FeedEvent]](
		s.get(integrity+"/changes?companyReference=company-3"), http.StatusOK,
	); len(late.Events) != 7 || late.Head != nil || late.Granted != nil {
		t.Errorf("the feed of company-3: %+v", late)
	}
	if page, _ := s.all(page.NextCursor, 100); len(page.Granted) > 0 {
		t.Errorf("named again: %+v", page)
	}

	// Without its grant a company's events and its name are gone.
	s.Grant(t, s.org, s.org.Key.ID, third.ID, false)
	s.Grant(t, s.org, s.org.Key.ID, second.ID, false)
	page, events = s.all(0, 1000)
	for _, e := range events {
		if !strings.HasPrefix(e, "company-1 ") {
			t.Errorf("shows %s", e)
		}
	}
	if len(events) != 7 || len(page.Granted) != 1 || page.Granted[0].CompanyReference != "company-1" {
		t.Errorf("%v, %+v", events, page.Granted)
	}
	bad := s.get(integrity+"/changes?companyReference=").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if got := pointers(bad); got != "/companyReference FORMAT" {
		t.Errorf("errors %s", got)
	}
	s.get(fmt.Sprintf("%s/changes?after=%d", integrity, *page.Head+1)).refuses(
		http.StatusUnprocessableEntity, domain.CursorAhead,
	)
	s.owner(`DELETE FROM feed WHERE sequence = (SELECT max(sequence) FROM feed f JOIN companies c USING (shard, company_id)
		WHERE reference = 'company-1')`)
	s.get(everything+"&limit=1000").refuses(http.StatusInternalServerError, domain.Internal)
	s.logged("or its document: run integrity rebuild")
}

// Whatever is granted, withdrawn and registered between its pages, a reader holds every event of the companies that its
// key may use at the end.
func TestFollowerOfAllCompanies(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := open(t, options{})
		key, secret := s.Key(t, s.org, domain.IntegrityRead)
		companies := []domain.Company{s.org.Company, s.Company(t, s.org, "company-2"), s.Company(t, s.org, "company-3")}
		granted, version := make([]bool, len(companies)), 0
		s.Grant(t, s.org, key.ID, s.Company(t, s.org, "company-4").ID, true) // a key without a company is refused
		for _, c := range companies {
			s.Grant(t, s.org, s.org.Key.ID, c.ID, true)
			for ; version%10 < 9; version++ { // before any grant, so that a page that names a company comes too late for them
				s.in(c.Reference, s.org.Secret, version+1)
			}
			version++
		}
		change := func() {
			for range 1 + random.IntN(3) {
				at := random.IntN(len(companies))
				if random.IntN(3) == 0 {
					granted[at] = !granted[at]
					s.Grant(t, s.org, key.ID, companies[at].ID, granted[at])
					continue
				}
				version++
				s.in(companies[at].Reference, s.org.Secret, version)
			}
		}
		address, err := url.Parse(s.http.URL)
		check(t, err)
		short := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(address)
			r.Out.URL.RawQuery = strings.Replace(r.Out.URL.RawQuery, "limit=1000", "limit=2", 1)
		}})
		t.Cleanup(short.Close)
		service, err := client.New(client.Config{BaseURL: short.URL, APIKey: secret})
		check(t, err)
		held := map[string]bool{}
		f := client.Follower{Client: service, Take: func(p client.Page) error {
			for _, e := range p.Events {
				held[e.ID] = true
			}
			return nil
		}}
		for range 4 { // each run is a reader that goes on from the cursor that it stored
			change()
			run, pages := f, 0
			run.Take = func(p client.Page) error {
				f.Cursor, f.Epoch = p.Cursor, p.Epoch
				if pages++; pages < 10 {
					change()
				}
				return f.Take(p)
			}
			check(t, run.Run(t.Context()))
			last := f // reads what the last change caused
			last.Take = func(p client.Page) error {
				f.Cursor, f.Epoch = p.Cursor, p.Epoch
				return f.Take(p)
			}
			check(t, last.Run(t.Context()))
			for at, c := range companies {
				if !granted[at] {
					continue
				}
				page := read[wire.Feed[wire.FeedEvent]](
					s.get(integrity+"/changes?limit=1000&companyReference="+c.Reference), http.StatusOK,
				)
				for _, e := range page.Events {
					if !held[e.ID] {
						t.Errorf("seed %d: the reader lacks %s of %s", seed, e.ID, c.Reference)
					}
				}
			}
		}
	}
}

// An event of any company of the key wakes a reader of all companies; an event of another company does not.
func TestFeedOfAllCompaniesWaits(t *testing.T) {
	closing := make(chan struct{})
	s := open(t, options{config: func(c *handlers.Config) { c.Closing = closing }})
	s.hold()
	second, third := s.Company(t, s.org, "company-2"), s.Company(t, s.org, "company-3")
	s.Grant(t, s.org, s.org.Key.ID, second.ID, true)
	other, secret := s.Key(t, s.org, domain.IntegrityWrite)
	s.Grant(t, s.org, other.ID, third.ID, true)
	answers := s.waits(1, s.org.Secret, "", closing)
	s.in("company-3", secret, 1)
	s.in("company-2", s.org.Secret, 1)
	if events := (<-answers).is(http.StatusOK)["events"].([]any); len(events) != 1 {
		t.Errorf("events %v", events)
	}
	// Another company's events come before its grant: the cursor does not pass them, so that the reader reads them itself.
	answers = s.waits(1, s.org.Secret, "", closing)
	s.in("company-3", secret, 2)
	s.in("company-3", secret, 3)
	s.Grant(t, s.org, s.org.Key.ID, third.ID, true)
	if page := read[wire.Feed[wire.FeedEvent]](<-answers, http.StatusOK); len(page.Granted) != 1 || len(page.Events) != 4 {
		t.Errorf("page %+v", page)
	}
	answers = s.waits(1, s.org.Secret, "", closing)
	close(closing)
	(<-answers).is(http.StatusOK)
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
		path := fmt.Sprintf("%s/changes?wait=25&after=%d", integrity, head)
		if company != "" {
			path += "&companyReference=" + company
		}
		r := s.request(http.MethodGet, path, secret, nil)
		go func() {
			for {
				a, err := s.tryExchange(r.Clone(r.Context()))
				if err != nil {
					s.t.Error(err)
				}
				var page struct {
					Data struct{ Events, GrantedCompanies []any }
				}
				again := closing != nil && a.status == http.StatusOK && json.Unmarshal(a.body, &page) == nil &&
					len(page.Data.Events)+len(page.Data.GrantedCompanies) == 0
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
