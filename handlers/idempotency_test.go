package handlers_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

const idempotencyKey = "Idempotency-Key"

func (s *service) sequence() int64 {
	s.t.Helper()
	return s.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
}

func TestIdempotentReplay(t *testing.T) {
	s := open(t, options{})
	s.hold()
	path, text := certificationAction+"/artifacts", body{"title": "Once", "kind": "text", "text": "once"}
	first := s.send(http.MethodPost, path, s.org.Secret, text, idempotencyKey, "k1")
	data := first.is(http.StatusCreated)
	before := s.sequence()
	again := s.send(http.MethodPost, path, s.org.Secret, text.with(body{"text": "once"}), idempotencyKey, "k1")
	equal(t, "the stored answer", again.is(http.StatusCreated), data)
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("Idempotent-Replayed: %v, %v", first.header, again.header)
	}
	s.send(
		http.MethodPost, path, s.org.Secret, text.with(body{"text": "twice"}), idempotencyKey, "k1",
	).refuses(http.StatusUnprocessableEntity, domain.IdempotencyKeyReused)
	if after := s.sequence(); after != before {
		t.Errorf("replays made %d events", after-before)
	}
	// Other routes and other organizations have separate keys.
	v := work(first, "once")
	s.send(
		http.MethodPost, path+"/"+v.artifact+"/versions", s.org.Secret, text, idempotencyKey, "k1",
	).is(http.StatusCreated)
	other := s.Organization(t, 1, domain.InternalPlan)
	s.send(http.MethodPost, path, other.Secret, text, idempotencyKey, "k1").is(http.StatusCreated)

	// A conflict is stored as an answer; a refusal of data is not.
	approve, consent := certificationAction+"/versions/"+v.version+"/approve", body{
		"statement": "x", "acceptResponsibility": true,
	}
	refused := s.send(
		http.MethodPost, approve, s.org.Secret, consent, idempotencyKey, "k2",
	).refuses(http.StatusConflict, domain.InvalidState)
	reviews := certificationAction + "/artifacts/" + v.artifact + "/reviews"
	s.upload(
		reviews, s.org.Secret, reviewOf(v.version, "accepted"), "a", "", "tampered", idempotencyKey, "k3",
	).refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	s.upload(
		reviews, s.org.Secret, reviewOf(v.version, "accepted"), "a", "", v.content, idempotencyKey, "k3",
	).is(http.StatusCreated)
	replayed := s.send(http.MethodPost, approve, s.org.Secret, consent, idempotencyKey, "k2")
	equal(t, "the stored refusal", replayed.refuses(http.StatusConflict, domain.InvalidState), refused)
	if replayed.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a stored refusal does not say so")
	}
	s.send(http.MethodPost, approve, s.org.Secret, consent, idempotencyKey, "k4").is(http.StatusCreated)

	// Another version is other content, although the bodies are equal.
	next := s.laterText(v.artifact, "Next", "next")
	s.reviewed(next, "accepted").is(http.StatusCreated)
	s.send(
		http.MethodPost, certificationAction+"/versions/"+next.version+"/approve", s.org.Secret, consent, idempotencyKey,
		"k4",
	).refuses(http.StatusUnprocessableEntity, domain.IdempotencyKeyReused)

	// After 24 hours, and not before, the key can be used anew.
	s.skew.Add(int64(24*time.Hour - time.Minute))
	equal(
		t, "after nearly 24 hours",
		s.send(http.MethodPost, path, s.org.Secret, text, idempotencyKey, "k1").is(http.StatusCreated), data,
	)
	s.skew.Add(int64(time.Minute))
	fresh := s.send(http.MethodPost, path, s.org.Secret, text.with(body{"text": "later"}), idempotencyKey, "k1")
	if work(fresh, "later").artifact == v.artifact {
		t.Error("the old answer after 24 hours")
	}
	for _, bad := range []string{strings.Repeat("k", 256), "a b", "é"} {
		s.send(http.MethodPost, path, s.org.Secret, text, idempotencyKey, bad).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)
	}
	s.Audit(t)
}

// A stored answer is only for callers that may send the request now: the key and the member's role are checked first.
func TestReplayIsAuthorized(t *testing.T) {
	s := open(t, options{})
	admin := s.member(domain.Admin)
	_, reader := s.Key(t, s.org, domain.ArtifactsRead)
	text := body{"title": "Once", "kind": "text", "text": "once"}
	send := func(key string) answer {
		return s.send(http.MethodPost, certificationAction+"/artifacts", key, text, idempotencyKey, "k")
	}
	send(admin).is(http.StatusCreated)
	send(reader).refuses(http.StatusForbidden, domain.MissingScope)
	viewer := domain.Viewer
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: "admin@example.com", Role: &viewer})
	send(admin).refuses(http.StatusForbidden, domain.RoleRequired)
}

// Callers of an organization that choose the same key each get their own answer: two API keys of one member or of two,
// and a member in the console. An answer stored by the previous version of the program names no caller. It is still the
// answer to a repetition of the very same request, and to no other.
func TestIdempotencyKeyBelongsToItsCaller(t *testing.T) {
	s := open(t, options{})
	admin := s.member(domain.Admin)
	_, second := s.Key(t, s.org, domain.Scopes()...)
	send := func(key, text, name string) answer {
		return s.send(http.MethodPost, certificationAction+"/artifacts", key, body{"title": "Once", "kind": "text",
			"text": text}, idempotencyKey, name)
	}
	seen := map[string]bool{}
	for _, key := range []string{s.org.Secret, second, admin} {
		first := read[wire.ArtifactRegistration](send(key, "once", "k"), http.StatusCreated)
		seen[first.Artifact.ID] = true
		again := send(key, "once", "k")
		equal(t, "its own answer", read[wire.ArtifactRegistration](again, http.StatusCreated), first)
		equal(t, "Idempotent-Replayed", again.header.Get("Idempotent-Replayed"), "true")
		send(key, "twice", "k").refuses(http.StatusUnprocessableEntity, domain.IdempotencyKeyReused)
	}
	equal(t, "artifacts", len(seen), 3)

	s.owner("UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() + interval '1 hour'")
	equal(t, "while it runs", send(s.org.Secret, "once", "k").is(http.StatusConflict)["code"], domain.RequestInProgress)
	s.skew.Add(int64(24 * time.Hour))
	s.owner("UPDATE idempotency_keys SET status = 201, answer = '{}'")
	if fresh := send(s.org.Secret, "once", "k").is(http.StatusCreated); fresh["artifact"] == nil {
		t.Error("an answer of more than a day ago")
	}
	s.Audit(t)
}

// A request whose process died holds its key until the lease ends, and after that only for the same content.
func TestIdempotentAbandoned(t *testing.T) {
	s := open(t, options{})
	text := body{"title": "x", "kind": "text", "text": "x"}
	send := func(content string) answer {
		return s.send(
			http.MethodPost, certificationAction+"/artifacts", s.org.Secret, text.with(body{"text": content}), idempotencyKey,
			"k",
		)
	}
	send("x").is(http.StatusCreated)
	s.owner("UPDATE idempotency_keys SET status = NULL, answer = NULL")
	equal(t, "before the lease ends", send("x").is(http.StatusConflict)["code"], domain.RequestInProgress)
	s.skew.Add(int64(4 * time.Minute))
	send("y").refuses(http.StatusUnprocessableEntity, domain.IdempotencyKeyReused)
	send("x").is(http.StatusCreated)
}

// Of equal concurrent requests one runs. The others are refused as in progress or get its answer, and there is one
// event of each kind.
func TestIdempotentAtOnce(t *testing.T) {
	s := open(t, options{})
	second := s.second(options{})
	v := s.registeredText("Race", "race")
	s.reviewed(v, "accepted").is(http.StatusCreated)
	before := s.sequence()
	var group sync.WaitGroup
	for i := range 16 {
		p := s
		if i%2 == 1 {
			p = second
		}
		r := p.request(
			http.MethodPost, certificationAction+"/versions/"+v.version+"/approve", s.org.Secret,
			strings.NewReader(`{"statement":"x","acceptResponsibility":true}`),
		)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(idempotencyKey, "same")
		group.Go(func() {
			a, err := p.tryExchange(r)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusCreated:
			case a.status == http.StatusConflict && contains(a.body, string(domain.RequestInProgress)):
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if made := s.sequence() - before; made != 1 {
		t.Errorf("%d events of 16 equal requests", made)
	}
}

// A request whose lease ended while it was running has lost its claim: only the request that took the claim over
// counts.
func TestIdempotentLeaseLost(t *testing.T) {
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	s := open(t, options{config: func(c *handlers.Config) {
		c.Analyze = func(
			ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string,
		) (analysis.Report, error) {
			entered <- struct{}{}
			<-leave
			return analyze(ctx, o, file, size, declaredType, fileName)
		}
	}})
	text := `{"title":"Slow","kind":"text","text":"slow"}`
	send := func() chan answer {
		r := s.request(http.MethodPost, certificationAction+"/artifacts", s.org.Secret, strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(idempotencyKey, "slow")
		got := make(chan answer, 1)
		go func() {
			a, err := s.tryExchange(r)
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
		return got
	}
	first := send()
	<-entered
	e := (<-send()).is(http.StatusConflict)
	equal(t, "its twin", []any{e["code"], e["retryable"]}, []any{"REQUEST_IN_PROGRESS", true})
	s.skew.Add(int64(4 * time.Minute))
	heir := send()
	<-entered
	close(leave)
	statuses := map[int]int{}
	for _, got := range []chan answer{first, heir} {
		statuses[(<-got).status]++
	}
	if total := s.get(certificationAction + "/artifacts").is(http.StatusOK)["total"]; statuses[http.StatusCreated] !=
		1 || statuses[http.StatusConflict] != 1 || total != float64(1) {
		t.Errorf("answers %v, artifacts %v", statuses, total)
	}
	if a := <-send(); a.status != http.StatusCreated || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// While a request runs, its repetition is refused on every route that takes a key.
func TestIdempotentInProgress(t *testing.T) {
	s := open(t, options{})
	v, certificate := s.certificate("a", "a")
	text := body{"title": "x", "kind": "text", "text": "x"}
	consent := body{"statement": "x", "acceptResponsibility": true}
	for _, send := range []func() answer{
		func() answer {
			return s.send(http.MethodPost, certificationAction+"/artifacts", s.org.Secret, text, idempotencyKey, "r")
		},
		func() answer {
			return s.send(
				http.MethodPost, certificationAction+"/artifacts/"+v.artifact+"/versions", s.org.Secret, text, idempotencyKey, "r",
			)
		},
		func() answer {
			return s.upload(
				certificationAction+"/artifacts/"+v.artifact+"/reviews", s.org.Secret, reviewOf(v.version, "accepted"), "a", "",
				"a", idempotencyKey, "r",
			)
		},
		func() answer {
			return s.send(
				http.MethodPost, certificationAction+"/versions/"+v.version+"/approve", s.org.Secret, consent, idempotencyKey, "r",
			)
		},
		func() answer {
			return s.send(
				http.MethodPost, certificationAction+"/versions/"+v.version+"/certificates", s.org.Secret,
				body{"publicationAuthorized": true}, idempotencyKey, "r",
			)
		},
		func() answer {
			return s.send(
				http.MethodPost, certificationAction+"/certificates/"+certificate+"/revoke", s.org.Secret, body{"reason": "x"},
				idempotencyKey, "r",
			)
		},
	} {
		send()
		s.owner("UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() + interval '1 hour'")
		if e := send().is(http.StatusConflict); e["code"] != string(domain.RequestInProgress) || e["retryable"] != true {
			t.Errorf("%v", e)
		}
	}
}
