package handlers_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

func (s *service) credits(n int64) {
	s.t.Helper()
	must(s, &domain.AddCredits{Origin: s.org.Operator(), Credits: n})
}

// Monthly registrations are counted exactly, credits increase them, and hash-only quotas do not depend on either.
func TestMonthlyRegistrations(t *testing.T) {
	s := open(t,
		options{plan: "gratis",
			plans: parsePlans(t,
				`{"gratis": {"perMinute": 10000, "versionsPerMonth": 1, "requestsPerMonth": 1000, "registrationsPerMonth": 3},
		"none": {"perMinute": 10000, "registrationsPerMonth": 0}, "internal": {"perMinute": 10000}}`)})
	s.hold()
	text := body{"title": "x", "kind": "text", "text": "x"}
	attempts := func(n int) (taken int64) {
		var count atomic.Int64
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				a, err := s.trySend(certificationAction+"/artifacts", text)
				switch {
				case err != nil:
					t.Error(err)
				case a.status == http.StatusCreated:
					count.Add(1)
				case a.status != http.StatusTooManyRequests || !contains(a.body, string(domain.ArtifactQuotaExhausted)):
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		group.Wait()
		return count.Load()
	}
	if taken := attempts(12); taken != 3 {
		t.Errorf("%d registrations of 3", taken)
	}
	// A refusal by quota costs no monthly request, and every other request costs one.
	if got := s.allowance(s.org.Secret); got != "1000 3 997 []" {
		t.Errorf("after 3 registrations and 9 refusals: %s", got)
	}
	s.credits(2)
	usage := s.get("/api/v1/usage").is(http.StatusOK)
	equal(
		t, "usage", []any{usage["registrations"], usage["credits"]},
		[]any{body{"limit": 3, "used": 3, "remaining": 0}, body{"balance": 2}},
	)
	if taken := attempts(6); taken != 2 {
		t.Errorf("%d registrations out of 2 credits", taken)
	}
	usage = s.get("/api/v1/usage").is(http.StatusOK)
	equal(
		t, "usage", []any{usage["registrations"], usage["credits"]},
		[]any{body{"limit": 3, "used": 3, "remaining": 0}, body{"balance": 0}},
	)
	refused := s.post(certificationAction+"/artifacts", text)
	refused.refuses(http.StatusTooManyRequests, domain.ArtifactQuotaExhausted)
	seconds, err := strconv.Atoi(refused.header.Get("Retry-After"))
	check(t, err)
	if wait := time.Duration(seconds) * time.Second; s.Now().Add(wait).Before(domain.PeriodOf(s.Now()).End()) {
		t.Errorf("Retry-After %d ends within the month", seconds)
	}
	s.credits(5)
	s.registered("a", 1, "one")
	s.post(integrity+"/records", declaration("a", 2, "two")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	s.skew.Add(int64(32 * 24 * time.Hour))
	s.post(certificationAction+"/artifacts", text).is(http.StatusCreated)
	usage = s.get("/api/v1/usage").is(http.StatusOK)
	equal(
		t, "the next month uses its own first", []any{usage["registrations"], usage["credits"]},
		[]any{body{"limit": 3, "used": 1, "remaining": 2}, body{"balance": 5}},
	)

	none := s.Organization(t, 1, "none")
	s.send(http.MethodPost, certificationAction+"/artifacts", none.Secret, text).refuses(
		http.StatusForbidden, domain.PlanRequired,
	)
	if got := s.allowance(none.Secret); got != "<nil> 0 <nil> []" {
		t.Errorf("after a refusal by plan: %s", got)
	}
	s.Audit(t)
}

func TestManifestEndpoint(t *testing.T) {
	s := open(t, options{})
	file := body{"path": "a/b.txt", "size": 3, "sha256": hash("abc")}
	manifest := body{"kind": "service-file-manifest", "version": 1, "algorithm": "SHA-256", "files": []any{file}}
	verdict := read[wire.Manifest](s.post(certificationAction+"/manifests/validate", manifest), http.StatusOK)
	registered := s.post(certificationAction+"/artifacts",
		body{"title": "Files", "kind": "manifest", "manifest": manifest})
	v := read[wire.ArtifactRegistration](registered, http.StatusCreated).Version
	equal(t, "the registered hash", []any{v.SHA256, v.Kind, verdict.Files, verdict.TotalBytes},
		[]any{verdict.SHA256, "manifest", 1, 3})
	bad := manifest.with(body{"files": []any{file, file.with(body{"path": "../x"})}})
	equal(
		t, "a path that leads out",
		strings.Contains(
			pointers(s.post(certificationAction+"/manifests/validate", bad).refuses(
				http.StatusUnprocessableEntity, domain.InvalidData,
			)),
			"/files/1/path",
		),
		true,
	)
	in := pointers(s.post(
		certificationAction+"/artifacts", body{"title": "Files", "kind": "manifest", "manifest": bad},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData))
	equal(t, "within the artifact", strings.Contains(in, "/manifest/files/1/path"), true)
}
