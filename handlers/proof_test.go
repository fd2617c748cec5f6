package handlers_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
)

// proofsOf are the paths of the organization's proof and the public one.
func proofsOf(id string) (private, public string) {
	return integrity + "/records/" + id + "/tlog-proof", "/api/public/integrity/" + id + "/tlog-proof"
}

// pinning returns the service's trusted keys with a key of its log.
func (s *service) pinning(verifierKey string) *evidence.TrustedKeys {
	s.t.Helper()
	key, err := evidence.ParseLogKey(verifierKey)
	check(s.t, err)
	trusted, err := s.Trusted.AddLogKey(key)
	check(s.t, err)
	return trusted
}

// extraOf returns the extra data of a proof.
func extraOf(t *testing.T, proof []byte) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(proof), "\nextra ")
	text, _, _ := strings.Cut(rest, "\n")
	extra, err := base64.StdEncoding.DecodeString(text)
	check(t, err)
	return string(extra)
}

// The organization's proof and the public one verify. The public one shows no references, organization or people.
func TestProof(t *testing.T) {
	s := open(t, options{})
	id := s.registered("secret-document", 1, "one")
	private, public := proofsOf(id)
	for _, a := range []answer{s.get(private), s.public(public)} {
		if a.refuses(http.StatusConflict, domain.InclusionPending); a.header.Get("Retry-After") == "" ||
			a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("before the tree: %v", a.header)
		}
	}
	s.toolRefuses(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "tlogProof": true},
		domain.InclusionPending)
	s.page("/en/integrity/"+id).says(http.StatusOK, `href="`+public+`"`, "transparency log proof")
	trusted := s.pinning(s.integrate().VerifierKey)
	document := &evidence.Document{SHA256: declaration("secret-document", 1, "one")["sha256"].(string), Size: -1}
	inclusion := s.proven(id).Inclusion
	for path, want := range map[string]struct {
		answer answer
		cache  string
		finds  evidence.Finding
	}{
		private: {s.get(private), "private, no-store", evidence.Valid},
		public:  {s.public(public), "public, max-age=300", evidence.NotSupplied},
	} {
		a := want.answer
		if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
			a.header.Get("Cache-Control") != want.cache ||
			a.header.Get("Content-Disposition") != `attachment; filename="`+id+`.tlog-proof"` {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
		f := evidence.Verify(a.body, trusted, evidence.Options{Now: s.Now(), Document: document})
		if f.ExitCode() != 0 || f.Inclusion != evidence.Valid || f.References != want.finds || !*f.FileMatch ||
			f.Record.PublicID != id {
			t.Errorf("%s: %+v", path, f)
		}
		read, err := evidence.ParseProof(a.body)
		check(t, err)
		equal(t, "the inclusion in the evidence", *read.Inclusion, *inclusion)
	}
	extra := extraOf(t, s.public(public).body)
	for _, secret := range []string{
		"secret-document", "company-1", "billing", "salt", "references\"", "reference\"", s.org.ID.String(),
		s.org.Company.ID.String(), s.org.Key.ID.String(), "org_", "usr_", "key_",
	} {
		if strings.Contains(extra, secret) {
			t.Errorf("the public proof contains %q: %s", secret, extra)
		}
	}
	if !strings.Contains(extraOf(t, s.get(private).body), `"documentReference":"secret-document"`) {
		t.Error("the organization's proof has no references")
	}
	exported, isError := s.tool(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "tlogProof": true})
	if proof := exported["tlogProof"]; isError || proof != string(s.get(private).body) {
		t.Errorf("MCP: %v", exported)
	}
	s.toolRefuses(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "tlogProof": true, "at": 1},
		domain.InvalidData)
	tag := s.public(public).header.Get("ETag")
	if known := s.send(http.MethodGet, public, "", nil, "If-None-Match", tag); known.status != http.StatusNotModified {
		t.Errorf("conditional proof: %d", known.status)
	}
	// A proof does not depend on the status, or on a key to sign with.
	s.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	if again := s.get(private); again.status != http.StatusOK {
		t.Errorf("of a revoked record: %s", again.body)
	}
}

// No caller learns more about a record by its proof than by its evidence or its receipt.
func TestProofRefusals(t *testing.T) {
	s := open(t, options{})
	foreign := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	strange := s.Register(t, foreign, foreign.Declaration("f", 1, "f"))
	s.Must(t, strange)
	lost := s.Lost(t, s.org, s.org.Declaration("lost", 1, "x"))
	s.Heal(t, s.org, lost)
	s.integrate()
	unknown := strings.Repeat("a", 26)
	for _, id := range []string{unknown, strange.Outcome.PublicID.String(), s.reserved("r", 1), "x"} {
		private, public := proofsOf(id)
		s.get(private).refuses(http.StatusNotFound, domain.RecordNotFound)
		if id != strange.Outcome.PublicID.String() {
			s.public(public).refuses(http.StatusNotFound, domain.RecordNotFound)
		}
	}
	private, public := proofsOf(lost.PublicID.String())
	s.get(private).refuses(http.StatusConflict, domain.InvalidState)
	s.public(public).refuses(http.StatusConflict, domain.InvalidState)
	s.get(private+"?wait=26").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.public(public+"?wait=1").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	_, secret := s.Key(t, s.org, domain.IntegrityWrite)
	s.send(http.MethodGet, private, secret, nil).refuses(http.StatusForbidden, domain.MissingScope)
	s.public(private).refuses(http.StatusUnauthorized, domain.InvalidKey)
}

func TestProofWithoutLog(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Transparency = nil }})
	private, public := proofsOf(s.registered("a", 1, "one"))
	s.get(private+"?wait=25").refuses(http.StatusNotFound, domain.NotFound)
	s.public(public).refuses(http.StatusNotFound, domain.NotFound)
}

// A wait ends with the proof as soon as the tree is published. Key and grants are checked again before that.
func TestProofWaits(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *service, key domain.APIKey)
		want      func(a answer)
	}{
		"published": {func(*service, domain.APIKey) {}, func(a answer) { a.is200() }},
		"without a key": {func(s *service, key domain.APIKey) {
			must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
		}, func(a answer) { a.refuses(http.StatusUnauthorized, domain.InvalidKey) }},
		"without a grant": {func(s *service, key domain.APIKey) {
			s.Grant(s.t, s.org, key.ID, s.org.Company.ID, false)
		}, func(a answer) { a.refuses(http.StatusNotFound, domain.RecordNotFound) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, options{})
			key, secret := s.Key(t, s.org, domain.IntegrityRead)
			s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
			private, _ := proofsOf(s.registered("a", 1, "one"))
			answers := s.awaitingAt(t.Context(), s.request(http.MethodGet, private+"?wait=25", secret, nil))
			c.meanwhile(s, key)
			s.integrate()
			c.want(<-answers)
		})
	}
	s := open(t, options{})
	private, _ := proofsOf(s.registered("a", 1, "one"))
	start := time.Now()
	s.get(private+"?wait=1").refuses(http.StatusConflict, domain.InclusionPending)
	if took := time.Since(start); took < time.Second {
		t.Errorf("the wait took %s", took)
	}
}
