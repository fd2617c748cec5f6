package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

const exports = integrity + "/records/evidence"

// exported asks for the evidence of records, and returns the status, or the code of the refusal, of each.
func (s *service) exported(ids []string, more ...body) (list []wire.Result[wire.Evidence], outcomes []string) {
	s.t.Helper()
	asked := body{"publicIds": ids}
	for _, m := range more {
		asked = asked.with(m)
	}
	return outcomesOf(s.post(exports, asked))
}

func outcomesOf(a answer) (list []wire.Result[wire.Evidence], outcomes []string) {
	a.t.Helper()
	list = read[wire.Results[wire.Evidence]](a, http.StatusOK).Results
	for _, r := range list {
		outcome := fmt.Sprint(r.Status)
		if r.Error != nil {
			outcome = string(r.Error.Code)
			if r.Data != nil || r.Status != r.Error.Status {
				a.t.Errorf("result %+v", r)
			}
		}
		outcomes = append(outcomes, outcome)
	}
	return list, outcomes
}

const pendingCode = string(domain.InclusionPending)

// Each record is answered as if its evidence had been asked for alone, or with the reason why it is missing.
func TestEvidenceOfMany(t *testing.T) {
	s := open(t, options{})
	ids := []string{s.registered("a", 1, "one"), s.registered("b", 1, "two"), s.registered("a", 2, "three")}
	if a := s.get(integrity + "/records/" + ids[0] + "/evidence"); a.header.Get("Integrity-Inclusion") != "pending" {
		t.Errorf("before the tree: %v", a.header)
	}
	list, outcomes := s.exported(ids)
	equal(t, "before the tree", outcomes, []string{pendingCode, pendingCode, pendingCode})
	if e := list[0].Error; e.RetryAfter == 0 || !e.Retryable {
		t.Errorf("pending: %+v", e)
	}
	s.integrate()
	lost := s.Lost(t, s.org, s.org.Declaration("lost", 1, "x"))
	s.Heal(t, s.org, lost)
	restored := lost.PublicID.String()
	revoked := s.post(integrity+"/records/"+ids[1]+"/revoke", nil).is(http.StatusOK)["status"]
	fresh := s.registered("fresh", 1, "four")
	if a := s.get(integrity + "/records/" + restored + "/evidence"); a.header.Get("Integrity-Inclusion") != "none" {
		t.Errorf("of a healed record: %v", a.header)
	}
	all := append(slices.Clone(ids), restored, fresh, "x")
	list, outcomes = s.exported(all)
	equal(t, "after the tree", outcomes, []string{"200", "200", "200", "200", pendingCode, "RECORD_NOT_FOUND"})
	for i, id := range all[:4] {
		alone := s.get(integrity + "/records/" + id + "/evidence")
		var want evidence.Envelope
		check(t, json.Unmarshal(alone.is200().body, &want))
		got := list[i].Data.Envelope
		f := evidence.Verify(list[i].Data.AppendJSON(nil), s.Trusted, evidence.Options{Now: s.Now(), RequireReferences: true})
		if observed := *f.ObservedStatus; len(f.Reasons) > 0 && (i != 1 || observed != domain.Status(revoked.(string))) {
			t.Errorf("%s: %v", id, f.Reasons)
		}
		if got.StatusObservation == nil || want.StatusObservation == nil {
			t.Fatalf("%s has no observation", id)
		}
		got.StatusObservation, want.StatusObservation = nil, nil // of other moments
		equal(t, "the evidence of "+id, got, want)
		if included := alone.header.Get("Integrity-Inclusion") == "included"; included != (got.Inclusion != nil) ||
			included == (i == 3) {
			t.Errorf("%s: %v", id, alone.header)
		}
	}
}

// The two answers of a record that the key may not see and of one that does not exist are the same.
func TestEvidenceOfManyUnknown(t *testing.T) {
	s := open(t, options{})
	other := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, other.ID, true)
	hidden := s.post(integrity+"/records", declaration("h", 1, "h").with(body{"companyReference": "company-2"})).
		is(http.StatusCreated)["publicId"].(string)
	s.Grant(t, s.org, s.org.Key.ID, other.ID, false)
	foreign := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	strange := s.Register(t, foreign, foreign.Declaration("f", 1, "f"))
	s.Must(t, strange)
	lost := s.Lost(t, foreign, foreign.Declaration("lost", 1, "x"))
	s.Must(t, s.Register(t, foreign, foreign.Declaration("lost", 1, "x")))
	if healed := s.Heal(t, foreign, lost); healed.State != domain.HealAlias {
		t.Fatalf("healed: %+v", healed)
	}
	asked := []string{
		strings.Repeat("a", 26), hidden, strange.Outcome.PublicID.String(), lost.PublicID.String(), s.reserved("r", 1),
		"", "not a public id", lost.PublicID.String()[:25] + "!", strings.Repeat("é", 300),
	}
	list, outcomes := s.exported(asked, body{"wait": 25})
	equal(t, "outcomes", outcomes, slices.Repeat([]string{"RECORD_NOT_FOUND"}, len(asked)))
	for i := range list {
		equal(t, asked[i], list[i], list[0])
	}
}

// A request is one of the organization's minute, however many records it names, and names each once.
func TestEvidenceOfManyLimits(t *testing.T) {
	s := open(t, options{})
	s.hold()
	ids := make([]string, 101)
	for i := range ids {
		ids[i] = strings.Repeat("a", 23) + string(rune('a'+i/26/26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
	}
	before := s.number("SELECT coalesce(sum(used), 0) FROM meters WHERE shard = $1 AND subject = $2")
	_, outcomes := s.exported(ids[:100])
	if used := s.number("SELECT coalesce(sum(used), 0) FROM meters WHERE shard = $1 AND subject = $2"); used != before+1 ||
		len(outcomes) != 100 {
		t.Errorf("%d results for %d requests", len(outcomes), used-before)
	}
	for name, c := range map[string]struct {
		body any
		want string
	}{
		"none":        {body{}, "/publicIds REQUIRED"},
		"empty":       {body{"publicIds": []string{}}, "/publicIds LENGTH"},
		"101":         {body{"publicIds": ids}, "/publicIds LENGTH"},
		"twice":       {body{"publicIds": []string{ids[0], ids[1], ids[0]}}, "/publicIds/2 DUPLICATE_MEMBER"},
		"numbers":     {body{"publicIds": []any{ids[0], 7}}, "/publicIds/1 TYPE"},
		"a long wait": {body{"publicIds": ids[:1], "wait": 26, "timestamps": 1}, "/timestamps TYPE, /wait RANGE"},
		"unknown":     {body{"publicIds": ids[:1], "at": "1"}, "/at UNKNOWN_MEMBER"},
	} {
		e := s.post(exports, c.body).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
		equal(t, name, pointers(e), c.want)
	}
	s.send(http.MethodPost, exports, s.org.Secret, `{"publicIds": ["`+strings.Repeat("a", 9000)+`"]}`).
		refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	_, secret := s.Key(t, s.org, domain.IntegrityWrite)
	s.send(http.MethodPost, exports, secret, body{"publicIds": ids[:1]}).refuses(http.StatusForbidden, domain.MissingScope)
}

// awaiting sends a request that waits for the inclusion of a record, and returns once it waits: the process then reads
// the size of the tree. The answer arrives when the wait is over.
func (s *service) awaiting(ctx context.Context, secret, id string) <-chan answer {
	s.t.Helper()
	r := s.request(http.MethodPost, exports, secret, strings.NewReader(`{"publicIds": ["`+id+`"], "wait": 25}`))
	r.Header.Set("Content-Type", "application/json")
	return s.awaitingAt(ctx, r)
}

// awaitingAt sends a request and returns when it waits for the tree.
func (s *service) awaitingAt(ctx context.Context, r *http.Request) <-chan answer {
	s.t.Helper()
	// The test asks on its own connection: pg_stat_activity shows only the last statement of a pooled one.
	conn, err := pgx.Connect(ctx, s.URL)
	check(s.t, err)
	defer conn.Close(context.Background())
	answers := make(chan answer, 1)
	go func() {
		defer close(answers)
		a, err := s.tryExchange(r.WithContext(ctx))
		if err == nil {
			answers <- a
		} else if ctx.Err() == nil {
			s.t.Error(err)
		}
	}()
	s.eventually("the request waits", func() (polled bool) {
		check(s.t, conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND query = 'SELECT size FROM transparency_checkpoint WHERE id = 1')`).Scan(&polled))
		return polled
	})
	return answers
}

// A wait ends with the evidence as soon as the tree is published. Key and grants are checked again before that.
func TestEvidenceOfManyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *service, key domain.APIKey)
		want      func(t *testing.T, a answer)
	}{
		"published": {func(*service, domain.APIKey) {}, func(t *testing.T, a answer) {
			list, outcomes := outcomesOf(a)
			equal(t, "outcome", outcomes, []string{"200"})
			if list[0].Data.Inclusion == nil {
				t.Error("the evidence has no proof")
			}
		}},
		"without a key": {func(s *service, key domain.APIKey) {
			must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
		}, func(_ *testing.T, a answer) { a.refuses(http.StatusUnauthorized, domain.InvalidKey) }},
		"without a grant": {func(s *service, key domain.APIKey) {
			s.Grant(s.t, s.org, key.ID, s.org.Company.ID, false)
		}, func(t *testing.T, a answer) {
			_, outcomes := outcomesOf(a)
			equal(t, "outcome", outcomes, []string{"RECORD_NOT_FOUND"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, options{})
			key, secret := s.Key(t, s.org, domain.IntegrityRead)
			s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
			id := s.registered("a", 1, "one")
			answers := s.awaiting(t.Context(), secret, id)
			c.meanwhile(s, key)
			s.integrate()
			c.want(t, <-answers)
		})
	}
}

// A process that stops answers what waits at once. A caller that leaves ends its wait. Too many callers do not wait.
func TestEvidenceOfManyWaitsEnd(t *testing.T) {
	closing := make(chan struct{})
	var mu sync.Mutex
	ended := 0
	s := open(t, options{config: func(c *handlers.Config) {
		c.Closing = closing
		c.Observe = func(o edge.Observation) {
			if o.Route == exports {
				mu.Lock()
				defer mu.Unlock()
				ended++
			}
		}
	}})
	s.hold()
	id := s.registered("a", 1, "one")
	ctx, leave := context.WithCancel(t.Context())
	gone := s.awaiting(ctx, s.org.Secret, id)
	leave()
	<-gone
	s.eventually("the request ends without its caller", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ended == 1
	})
	feeds := s.waits(5, s.org.Secret, "company-1", nil)
	s.eventually("all waits of the key are taken", func() bool { return s.waiting() == 5 })
	_, outcomes := s.exported([]string{id}, body{"wait": 25})
	equal(t, "the sixth", outcomes, []string{pendingCode})
	select {
	case a := <-feeds:
		t.Errorf("one that waited for longer was answered before it: %s", a.body)
	default:
	}
	key, secret := s.Key(t, s.org, domain.IntegrityRead)
	s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
	stops := s.awaiting(t.Context(), secret, id)
	close(closing)
	_, outcomes = outcomesOf(<-stops)
	equal(t, "at the end", outcomes, []string{pendingCode})
	for range 5 {
		(<-feeds).is(http.StatusOK)
	}
}

// A service without a log has no proof to wait for.
func TestEvidenceOfManyWithoutLog(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Transparency = nil }})
	id := s.registered("a", 1, "one")
	list, outcomes := s.exported([]string{id}, body{"wait": 25, "timestamps": true})
	equal(t, "outcomes", outcomes, []string{"200"})
	if list[0].Data.Inclusion != nil {
		t.Error("the evidence has a proof of no log")
	}
	if a := s.get(integrity + "/records/" + id + "/evidence"); a.header.Get("Integrity-Inclusion") != "none" {
		t.Errorf("alone: %v", a.header)
	}
}
