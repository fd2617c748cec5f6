package handlers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

func TestLife(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.hold()
	const document = "invoice-4711"

	first := s.post(
		integrity+"/records", declaration(document, 1, "one").with(body{"sha256": strings.ToUpper(hash("one"))}),
	)
	one, usage := first.is(http.StatusCreated), read[wire.Registration](first, http.StatusCreated).Usage
	id := one["publicId"].(string)
	for name, want := range map[string]any{
		"sha256": hash("one"), "companyReference": "company-1", "source": "billing", "documentReference": document,
		"version":         1,
		"previousVersion": nil, "sizeBytes": 3, "mimeType": "application/pdf", "generatedAt": "2026-11-01T10:00:00Z",
		"status": "current", "supersededByVersion": nil, "revokedAt": nil, "replayed": false,
		"verificationUrl": baseURL + "/integrity/" + id, "evidenceUrl": baseURL + integrity + "/records/" + id + "/evidence",
		"consumption":         wire.Consumption{Applied: 1},
		"companyContribution": wire.CompanyUsage{CompanyReference: "company-1", Used: 1},
	} {
		got, present := one[name]
		if !present {
			t.Errorf("member %s is missing", name)
		}
		equal(t, name, got, want)
	}
	equal(t, "usage", usage.Quota, quotaOf(1000, 1))
	if cache := first.header.Get("Cache-Control"); cache != "private, no-store" {
		t.Errorf("Cache-Control %q", cache)
	}

	replay := read[wire.Registration](
		s.post(integrity+"/records",
			declaration(document, 1, "one").with(body{"generatedAt": "2026-11-01T11:00:00.000+01:00"})), http.StatusOK)
	equal(t, "replay", []any{replay.Replayed, replay.Consumption.Applied, replay.PublicID}, []any{true, 0, id})

	conflict := s.post(
		integrity+"/records", declaration(document, 1, "other").with(body{"mimeType": "text/plain"}),
	).refuses(http.StatusConflict, domain.VersionConflict)
	if got := pointers(conflict); got != "/sha256 DIFFERS, /sizeBytes DIFFERS, /mimeType DIFFERS" {
		t.Errorf("conflict names %s", got)
	}
	equal(t, "existing", conflict.Existing, wire.Existing{PublicID: id, ReceivedAt: one["receivedAt"].(string)})

	if got := s.compared(id, "one"); got.Result != "MATCH_CURRENT" || !got.Verified {
		t.Errorf("comparison %v", got)
	}
	three := s.registered(document, 3, "three")
	late := s.post(integrity+"/records", declaration(document, 2, "two")).is(http.StatusCreated)
	equal(t, "late lower version", []any{late["status"], late["supersededByVersion"]}, []any{"superseded", 3})
	record := s.get(integrity + "/records/" + id).is(http.StatusOK)
	equal(t, "first version", []any{record["status"], record["supersededByVersion"]}, []any{"superseded", 3})
	looked := s.get(
		integrity + "/lookup?companyReference=company-1&source=billing&version=1&documentReference=" + document,
	).is(http.StatusOK)
	equal(t, "lookup", looked, record)
	equal(t, "lookup of its link", s.get(integrity+"/lookup?publicId="+id).is(http.StatusOK), record)

	if got := s.compared(id, "one"); got.Result != "MATCH_HISTORICAL" || got.Verified {
		t.Errorf("comparison %v", got)
	}
	got := s.compared(three, "changed")
	equal(t, "mismatch", []any{got.Result, got.Verified, got.Checks},
		[]any{wire.HashMismatch, false,
			wire.ComparisonChecks{FileMatch: new(false), Signature: new(evidence.Valid), VersionState: new(evidence.Current)}})
	got = s.compared(three, "")
	equal(t, "not compared", []any{got.Result, got.Verified, got.Checks},
		[]any{wire.FileNotCompared, false,
			wire.ComparisonChecks{Signature: new(evidence.Valid), VersionState: new(evidence.Current)}})
	equal(t, "comparison", []any{got.PublicID, got.KeyID, got.ReceiptURL, got.LimitsURL},
		[]any{
			three, s.Registrar.Signer.Key().KeyID, baseURL + "/api/public/integrity/" + three + "/receipt", baseURL + "/limits",
		})
	s.public("/api/public/integrity/"+strings.Repeat("a", 26)).refuses(http.StatusNotFound, domain.RecordNotFound)

	revoked := s.post(integrity+"/records/"+three+"/revoke", body{"reason": "declared by mistake"}).is(http.StatusOK)
	equal(t, "revoked", []any{revoked["status"], revoked["replayed"]}, []any{"revoked", false})
	if _, err := time.Parse(time.RFC3339Nano, revoked["revokedAt"].(string)); err != nil {
		t.Error(err)
	}
	again := s.post(integrity+"/records/"+three+"/revoke", nil).is(http.StatusOK)
	equal(t, "revoked again", []any{again["replayed"], again["revokedAt"]}, []any{true, revoked["revokedAt"]})
	if got := s.compared(three, "three"); got.Result != "RECORD_REVOKED" || got.Verified {
		t.Errorf("comparison %v", got)
	}
	if got := s.compared(id, "one"); got.Result != "MATCH_HISTORICAL" {
		t.Errorf("a lower version became current again: %v", got)
	}
	withdrawn := s.post(integrity+"/records", declaration(document, 3, "three")).is(http.StatusOK)
	equal(t, "declared again", []any{withdrawn["status"], withdrawn["replayed"]}, []any{"revoked", true})
	s.post(integrity+"/records", declaration(document, 3, "3")).refuses(http.StatusConflict, domain.VersionConflict)

	answered := s.get(integrity + "/usage")
	if members := `"organization":{"limit":1000,"unlimited":false,"used":3,"remaining":997,"resetsAt":"`; !strings.Contains(string(answered.body), members) {
		t.Errorf("the month's members are not in the contract's order: %s", answered.body)
	}
	month := read[wire.Allowance](answered, http.StatusOK)
	equal(t, "usage", []any{month.Plan, month.Companies, month.Warnings, month.Organization.Used,
		month.Organization.Remaining, month.Organization.Unlimited},
		[]any{"gratis", []any{wire.CompanyUsage{CompanyReference: "company-1", Used: 3}}, []any{}, 3, 997, false})

	var types []any
	for _, event := range s.changes("").Events {
		types = append(types, []any{event.Type, event.Version, event.RecordStatus})
	}
	equal(t, "feed", types, []any{
		[]any{"integrity.registered", 1, "current"}, []any{"integrity.registered", 3, "current"},
		[]any{"integrity.superseded", 1, "superseded"},
		[]any{"integrity.registered", 2, "superseded"}, []any{"integrity.revoked", 3, "revoked"},
	})
	s.Audit(t)
	s.quietLog(document, one["receivedAt"].(string))
}

// quietLog requires that the log of the whole run contains no document, hash, reference or key. It contains the
// organization.
func (s *service) quietLog(more ...string) {
	s.t.Helper()
	s.logged(`"route":"/api/v1/integrity/records/{publicId}","method":"GET","status":200,"code":"",`)
	s.logged(`"status":409,"code":"VERSION_CONFLICT"`)
	log := s.log.String()
	secrets := append(more, "company-1", "billing", "declared by mistake", s.org.Secret, s.org.Secret[30:], "Bearer",
		s.org.Key.ID.String(),
		s.org.Email, "sha256", s.Registrar.Signer.Key().KeyID)
	for _, content := range []string{"one", "two", "three", "changed", "other"} {
		secrets = append(secrets, hash(content), strings.ToUpper(hash(content)))
	}
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			s.t.Errorf("the log contains %q", secret)
		}
	}
}

func TestEvidence(t *testing.T) {
	s := open(t, options{})
	id := s.registered("invoice", 1, "one")
	envelope := s.get(integrity + "/records/" + id + "/evidence")
	if envelope.status != http.StatusOK || envelope.header.Get("Content-Type") != "application/json" {
		t.Fatalf("evidence: %d %s", envelope.status, envelope.body)
	}
	verify := func(receipt []byte, o evidence.Options) evidence.Findings {
		o.Now, o.Document = s.Now(), &evidence.Document{SHA256: hash("one"), Size: 3}
		return evidence.Verify(receipt, s.Trusted, o)
	}
	if f := verify(envelope.body, evidence.Options{RequireReferences: true, RequireCurrent: true}); f.ExitCode() != 0 {
		t.Errorf("evidence: %v", f.Reasons)
	}

	receipt := s.public("/api/public/integrity/" + id + "/receipt")
	if f := verify(receipt.body, evidence.Options{}); f.ExitCode() != 0 || f.References != evidence.NotSupplied ||
		f.Observation != evidence.NotSupplied {
		t.Errorf("receipt: %+v", f)
	}
	for _, name := range []string{"company-1", "billing", "invoice", "references", "statusObservation"} {
		if strings.Contains(string(receipt.body), `"`+name+`"`) {
			t.Errorf("the public receipt contains %s", name)
		}
	}
	if receipt.header.Get("Cache-Control") != "public, max-age=300" ||
		receipt.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("receipt: %v", receipt.header)
	}
	tag := receipt.header.Get("ETag")
	known := s.send(http.MethodGet, "/api/public/integrity/"+id+"/receipt", "", nil, "If-None-Match", `"other", W/`+tag)
	if known.status != http.StatusNotModified || len(known.body) != 0 || known.header.Get("ETag") != tag {
		t.Errorf("conditional receipt: %d %q", known.status, known.body)
	}

	s.public("/api/public/integrity/"+strings.Repeat("a", 26)+"/receipt").refuses(
		http.StatusNotFound, domain.RecordNotFound,
	)

	s.registered("invoice", 2, "two")
	historical := s.get(integrity + "/records/" + id + "/evidence")
	if f := verify(historical.body, evidence.Options{}); f.ExitCode() != 0 || *f.ObservedStatus != evidence.Superseded {
		t.Errorf("historical evidence: %+v", f)
	}
	s.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	withdrawn := s.get(integrity + "/records/" + id + "/evidence")
	if f := verify(withdrawn.body, evidence.Options{}); f.ExitCode() != 1 || *f.ObservedStatus != evidence.Revoked {
		t.Errorf("revoked evidence: %+v", f)
	}

	published := s.public("/.well-known/integrity-trusted-keys.json")
	trusted, err := evidence.ParseTrustedKeys(published.body)
	check(t, err)
	if !trusted.Trusts(s.Registrar.Signer.Key()) || published.header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("trusted keys: %v", published.header)
	}
	if published.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("only the public API has CORS")
	}
}

// A difference in any single member of a declaration is a conflict that names the member.
func TestConflictOfEveryMember(t *testing.T) {
	s := open(t, options{})
	accepted := declaration("d", 5, "five").with(body{
		"previousVersion": 2, "generatedAt": "2026-11-01T10:00:00.000000001Z",
	})
	s.post(integrity+"/records", accepted).is(http.StatusCreated)
	for member, values := range map[string][]any{
		"sha256":          {hash("other")},
		"sizeBytes":       {0},
		"mimeType":        {"text/plain"},
		"generatedAt":     {"2026-11-01T10:00:00Z", "2026-11-01T10:00:00.000000002Z"},
		"previousVersion": {3, nil},
	} {
		for _, value := range values {
			conflict := s.post(integrity+"/records", accepted.with(body{member: value})).refuses(
				http.StatusConflict, domain.VersionConflict,
			)
			if got, want := pointers(conflict), "/"+member+" DIFFERS"; got != want {
				t.Errorf("%s %v: conflict names %s", member, value, got)
			}
		}
	}
	s.post(
		integrity+"/records", accepted.with(body{"mimeType": "Application/PDF", "sha256": strings.ToUpper(hash("five"))}),
	).is(http.StatusOK)
	s.Audit(t)
}
