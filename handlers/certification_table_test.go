package handlers_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// member returns a key with all scopes of certification whose member now has a role.
func (s *service) member(role domain.Role) string {
	s.t.Helper()
	org := s.org
	org.Email = string(role) + "@example.com"
	must(s, &domain.AddMember{Origin: org.Operator(), Email: org.Email, Role: domain.Owner})
	_, secret := s.Key(
		s.t, org, domain.ArtifactsWrite, domain.ReviewsWrite, domain.ApprovalsWrite, domain.CertificatesWrite,
	)
	if role != domain.Owner {
		must(s, &domain.ChangeMember{Origin: org.Operator(), Email: org.Email, Role: &role})
	}
	return secret
}

// workState brings a new version to a state.
type workState struct {
	name string
	make func(s *service, title string) (v workVersion, certificate string)
}

func workStates() []workState {
	reviewed := func(outcome string) func(*service, string) (workVersion, string) {
		return func(s *service, title string) (workVersion, string) {
			v := s.registeredText(title, title)
			s.reviewed(v, outcome).is(http.StatusCreated)
			return v, ""
		}
	}
	return []workState{
		{"analyzed", func(s *service, title string) (workVersion, string) { return s.registeredText(title, title), "" }},
		{"changes requested", reviewed("changes_requested")},
		{"reviewed", reviewed("accepted")},
		{"approved", func(s *service, title string) (workVersion, string) {
			v, _ := reviewed("accepted")(s, title)
			s.approved(v).is(http.StatusCreated)
			return v, ""
		}},
		{"certified", func(s *service, title string) (workVersion, string) { return s.certificate(title, title) }},
		{"revoked", func(s *service, title string) (workVersion, string) {
			v, id := s.certificate(title, title)
			s.post(certificationAction+"/certificates/"+id+"/revoke", body{"reason": "x"}).is(http.StatusOK)
			return v, id
		}},
		{"replaced", func(s *service, title string) (workVersion, string) {
			v, id := s.certificate(title, title)
			s.certifies(s.laterText(v.artifact, title, title+" 2"))
			return v, id
		}},
		{"overtaken", func(s *service, title string) (workVersion, string) {
			// approved, but a later version has the certificate
			v := s.registeredText(title, title)
			s.certifies(s.laterText(v.artifact, title, title+" 2"))
			s.reviewed(v, "accepted").is(http.StatusCreated)
			s.approved(v).is(http.StatusCreated)
			return v, ""
		}},
	}
}

// Every state × every action × every role.
func TestCertificationTable(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	keys := map[domain.Role]string{}
	for _, role := range domain.Roles() {
		keys[role] = s.member(role)
	}
	admins := []domain.Role{domain.Owner, domain.Admin}
	const yes, state = "", domain.InvalidState
	for _, action := range []struct {
		name  string
		roles []domain.Role
		do    func(key string, v workVersion, certificate string) answer
		by    map[string]domain.Code // the code of the refusal; in all other states it succeeds
	}{
		{"register a version", append(slices.Clone(admins), domain.Analyst),
			func(key string, v workVersion, _ string) answer {
				return s.send(
					http.MethodPost, certificationAction+"/artifacts/"+v.artifact+"/versions", key,
					body{"title": "x", "kind": "text", "text": "x"},
				)
			}, nil},
		{"review", append(slices.Clone(admins), domain.Reviewer), func(key string, v workVersion, _ string) answer {
			return s.upload(
				certificationAction+"/artifacts/"+v.artifact+"/reviews", key, reviewOf(v.version, "accepted"), "a.txt",
				"text/plain", v.content,
			)
		},
			map[string]domain.Code{
				"approved": state, "certified": state, "revoked": state, "replaced": state, "overtaken": state,
			}},
		{"approve", admins, func(key string, v workVersion, _ string) answer {
			return s.send(
				http.MethodPost, certificationAction+"/versions/"+v.version+"/approve", key,
				body{"statement": "x", "acceptResponsibility": true},
			)
		},
			map[string]domain.Code{
				"analyzed": state, "changes requested": state, "approved": state, "certified": state, "revoked": state,
				"replaced": state, "overtaken": state,
			}},
		{"certify", admins, func(key string, v workVersion, _ string) answer {
			return s.send(
				http.MethodPost, certificationAction+"/versions/"+v.version+"/certificates", key,
				body{"publicationAuthorized": true},
			)
		},
			map[string]domain.Code{
				"analyzed": state, "changes requested": state, "reviewed": state, "certified": state, "revoked": state,
				"replaced": state, "overtaken": state,
			}},
		{"revoke", admins, func(key string, _ workVersion, certificate string) answer {
			return s.send(http.MethodPost, certificationAction+"/certificates/"+certificate+"/revoke", key, body{"reason": "x"})
		},
			map[string]domain.Code{"analyzed": domain.CertificateNotFound, "changes requested": domain.CertificateNotFound,
				"reviewed": domain.CertificateNotFound,
				"approved": domain.CertificateNotFound, "overtaken": domain.CertificateNotFound}},
	} {
		for _, from := range workStates() {
			v, certificate := from.make(s, action.name+from.name)
			if certificate == "" {
				certificate = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
			}
			used := false
			for _, role := range domain.Roles() {
				if !slices.Contains(action.roles, role) {
					before := s.number("SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2")
					action.do(keys[role], v, certificate).refuses(http.StatusForbidden, domain.RoleRequired)
					if after := s.number(
						"SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2",
					); after != before {
						t.Errorf("%s, %s, %s: the refusal changed something", action.name, from.name, role)
					}
				}
			}
			for _, role := range action.roles {
				if want := action.by[from.name]; want != yes {
					if got := action.do(keys[role], v, certificate).is(statusOf(want))["code"]; got != string(want) {
						t.Errorf("%s, %s, %s: %v, want %s", action.name, from.name, role, got, want)
					}
					continue
				}
				if used { // a new version, because the first is in another state now
					v, certificate = from.make(s, fmt.Sprint(action.name, from.name, role))
				}
				used = true
				if a := action.do(keys[role], v, certificate); a.status != http.StatusOK && a.status != http.StatusCreated {
					t.Errorf("%s, %s, %s: %s", action.name, from.name, role, a.body)
				}
			}
		}
	}
	s.Audit(t)
}

func statusOf(code domain.Code) int {
	if code == domain.CertificateNotFound {
		return http.StatusNotFound
	}
	return http.StatusConflict
}

// Resources of another organization are unknown, whatever the key may do.
func TestOtherOrganizationsCertification(t *testing.T) {
	s := open(t, options{})
	v, certificate := s.certificate("Secret plan", "content")
	analysis := read[wire.ArtifactHistory](
		s.get(certificationAction+"/artifacts/"+v.artifact), http.StatusOK).Versions[0].AnalysisID
	foreign := s.Organization(t, 1, domain.InternalPlan)
	text := body{"title": "x", "kind": "text", "text": "x"}
	for _, c := range []struct {
		method, path string
		body         any
		code         domain.Code
	}{
		{http.MethodGet, "/artifacts/" + v.artifact, nil, domain.NotFound},
		{http.MethodPost, "/artifacts/" + v.artifact + "/versions", text, domain.NotFound},
		{http.MethodGet, "/analyses/" + analysis, nil, domain.NotFound},
		{
			http.MethodPost, "/versions/" + v.version + "/approve", body{"statement": "x", "acceptResponsibility": true},
			domain.NotFound,
		},
		{http.MethodPost, "/versions/" + v.version + "/certificates", body{"publicationAuthorized": true}, domain.NotFound},
		{http.MethodGet, "/certificates/" + certificate + "/download", nil, domain.CertificateNotFound},
		{http.MethodPost, "/certificates/" + certificate + "/revoke", body{"reason": "x"}, domain.CertificateNotFound},
	} {
		s.send(c.method, certificationAction+c.path, foreign.Secret, c.body).refuses(http.StatusNotFound, c.code)
	}
	s.upload(
		certificationAction+"/artifacts/"+v.artifact+"/reviews", foreign.Secret, reviewOf(v.version, "accepted"), "a", "",
		v.content,
	).refuses(http.StatusNotFound, domain.NotFound)
	for _, path := range []string{"/artifacts/x", "/analyses/x", "/certificates/x/download"} {
		if s.get(certificationAction+path).status != http.StatusNotFound {
			t.Errorf("%s is known", path)
		}
	}
	// A malformed id, or an id of zeros, does not create a new artifact.
	for _, id := range []string{"x", (domain.ArtifactID{}).String()} {
		s.send(
			http.MethodPost, certificationAction+"/artifacts/"+id+"/versions", s.org.Secret, text,
		).refuses(http.StatusNotFound, domain.NotFound)
	}
	own := s.send(http.MethodPost, certificationAction+"/artifacts", foreign.Secret,
		body{"title": "x", "kind": "text", "text": "content"})
	for _, d := range read[wire.ArtifactRegistration](own, http.StatusCreated).Analysis.Detectors {
		if d.ID == domain.DuplicateDetector && d.Outcome != "clear" {
			t.Errorf("the answer shows the same bytes of another organization: %v", d)
		}
	}
	equal(
		t, "its list",
		s.send(http.MethodGet, certificationAction+"/artifacts", foreign.Secret, nil).is(http.StatusOK)["total"], 1,
	)
	other := s.registeredText("Other", "other")
	wrong := s.reviewed(
		workVersion{other.artifact, v.version, v.content}, "accepted",
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	equal(t, "a version of another artifact", pointers(wrong), "/versionId UNKNOWN")

	// Any caller with the public id may verify. A wrong public id is unknown to every caller.
	verify := s.send(
		http.MethodPost, certificationAction+"/verify", foreign.Secret,
		body{"publicId": certificate, "sha256": hash("content")},
	).is(http.StatusOK)
	equal(t, "verified by a stranger", verify["verified"], true)
	s.post(
		certificationAction+"/verify", body{"publicId": "x", "sha256": hash("content")},
	).refuses(http.StatusNotFound, domain.CertificateNotFound)
	s.public(
		certificationAction+"/certificates/aaaaaaaaaaaaaaaaaaaaaaaaaa/verify",
	).refuses(http.StatusNotFound, domain.CertificateNotFound)
	s.public(certificationAction+"/certificates/"+certificate+"/verify?sha256=0").refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
}
