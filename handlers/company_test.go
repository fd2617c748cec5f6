package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

func (s *service) setStatus(key string, company domain.CompanyID, status string) answer {
	s.t.Helper()
	return s.send(http.MethodPatch, integrity+"/companies/"+company.String(), key, body{"status": status})
}

// A closed company accepts no new versions by any route. Everything else continues, and versions reserved before can be
// registered.
func TestClosedCompany(t *testing.T) {
	s := open(t, options{})
	s.hold()
	id := s.registered("a", 1, "one")
	reserved, late := s.reserved("r", 1), s.reserved("late", 1)
	batched, told := s.reserved("batched", 1), s.reserved("told", 1)
	pending := s.post(integrity+"/reservations", version("r", 1)).is(http.StatusOK)
	webhook, _ := s.webhook("https://receiver.example/")
	s.authorized(webhook, true).is(http.StatusOK)
	s.skew.Add(int64(time.Hour))
	closed := read[wire.Company](s.setStatus(s.org.Secret, s.org.Company.ID, "closed"), http.StatusOK)
	equal(t, "closed", []any{closed.ID, closed.Reference, closed.Status, closed.ClosedAt != nil},
		[]any{s.org.Company.ID.String(), "company-1", "closed", true})
	before := s.sequence()
	equal(t, "closed again", read[wire.Company](s.setStatus(s.org.Secret, s.org.Company.ID, "closed"),
		http.StatusOK), closed)

	const records, reservations = integrity + "/records", integrity + "/reservations"
	for what, a := range map[string]answer{
		"a version":                         s.post(records, declaration("a", 2, "two")),
		"a document":                        s.post(records, declaration("b", 1, "b")),
		"with the id of another":            s.post(records, declaration("b", 1, "b").with(body{"reservationId": late})),
		"a reservation":                     s.post(reservations, version("a", 2)),
		"a reservation of another document": s.post(reservations, version("b", 1)),
	} {
		t.Run(what, func(t *testing.T) {
			a.t = t
			a.refuses(http.StatusForbidden, domain.CompanyClosed)
		})
	}
	var statuses []int
	two := declaration("a", 2, "two")
	for _, result := range s.sendBatch(declaration("a", 1, "one"), two, declaration("a", 1, "other")) {
		statuses = append(statuses, result.Status)
	}
	equal(t, "a batch", statuses, []int{200, 403, 409})
	s.toolRefuses(integrityMCP, s.org.Secret, "integrity_register", two, domain.CompanyClosed)
	// A version declared before is answered as before, and nothing changes.
	equal(t, "a replay", s.post(records, declaration("a", 1, "one")).is(http.StatusOK)["replayed"], true)
	s.post(records, declaration("a", 1, "other")).refuses(http.StatusConflict, domain.VersionConflict)
	equal(
		t, "a registered version, reserved", s.post(reservations, version("a", 1)).is(http.StatusOK)["status"], "finalized",
	)
	equal(t, "a reservation as it stands", s.post(reservations, version("r", 1)).is(http.StatusOK), pending)
	s.skew.Add(int64(domain.ReservationLife))
	equal(
		t, "an expired one", s.post(reservations, version("r", 1)).is(http.StatusOK),
		body(pending).with(body{"status": "expired"}),
	)
	if after := s.sequence(); after != before {
		t.Errorf("%d events in a closed company", after-before)
	}
	// A version reserved before is not new, whether the reservation has expired or is named in the declaration.
	equal(t, "a reserved version keeps its link", s.registered("r", 1, "r"), reserved)
	named := s.post(records, declaration("late", 1, "late").with(body{"reservationId": late})).is(http.StatusCreated)
	equal(t, "a reserved version, by its id", named["publicId"], late)
	item := s.sendBatch(declaration("batched", 1, "b"))[0]
	equal(t, "a reserved version, in a batch", []any{item.Status, item.Data.PublicID}, []any{201, batched})
	result, failed := s.tool(integrityMCP, s.org.Secret, "integrity_register", declaration("told", 1, "t"))
	equal(t, "a reserved version, over MCP", []any{failed, result["publicId"]}, []any{false, told})
	// Everything else continues.
	equal(t, "status", s.get(records + "/" + id).is(http.StatusOK)["status"], "current")
	if a := s.get(records + "/" + id + "/evidence"); a.status != http.StatusOK {
		t.Errorf("evidence: %d %s", a.status, a.body)
	}
	s.get(integrity + "/lookup?companyReference=company-1&source=billing&documentReference=a&version=1").is(http.StatusOK)
	equal(t, "comparison", s.compared(id, "one").Result, "MATCH_CURRENT")
	s.post(records+"/"+id+"/revoke", nil).is(http.StatusOK)
	equal(t, "the feed", len(s.get(feed).is(http.StatusOK)["events"].([]any)), 6)
	if n := s.number("SELECT count(*) FROM webhook_deliveries WHERE shard = $1 AND organization_id = $2"); n != 5 {
		t.Errorf("%d deliveries of the registrations and the revocation", n)
	}
	s.authorized(webhook, false).is(http.StatusOK)
	s.Grant(t, s.org, s.org.Key.ID, s.org.Company.ID, true)

	s.post(integrity+"/companies", body{"reference": "company-1"}).is(http.StatusOK)
	s.post(integrity+"/companies", body{"reference": "other"}).is(http.StatusCreated)
	for query, want := range map[string]string{
		"": "[company-1 closed]", "?status=active": "[]", "?all=true&status=active": "[other active]",
		"?all=true&status=closed": "[company-1 closed]", "?all=true": "[company-1 closed other active]",
	} {
		var got []string
		for _, c := range read[wire.Companies](s.get(integrity+"/companies"+query), http.StatusOK).Companies {
			got = append(got, fmt.Sprint(c.Reference, " ", c.Status))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("companies%s: %v, want %s", query, got, want)
		}
	}
	s.get(integrity+"/companies?status=open").refuses(http.StatusUnprocessableEntity, domain.InvalidData)

	opened := s.setStatus(s.org.Secret, s.org.Company.ID, "active").is(http.StatusOK)
	equal(t, "opened", []any{opened["status"], opened["closedAt"]}, []any{"active", nil})
	s.reserved("a", 2)
	s.Audit(t)
}

// Only owners and admins of the organization may close companies and list their access.
func TestCompanyManagement(t *testing.T) {
	s := open(t, options{})
	other, distant := s.Organization(t, 1, domain.InternalPlan), s.Organization(t, 2, domain.InternalPlan)
	analyst, admin := s.actor("analyst@example.com", domain.Analyst), s.actor("admin@example.com", domain.Admin)
	_, writer := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	webhook, _ := s.webhook("https://receiver.example/")
	s.authorized(webhook, true).is(http.StatusOK)
	s.authorized(webhook, false).is(http.StatusOK)
	s.Grant(t, s.org, analyst.key, s.org.Company.ID, false)
	empty := s.Company(t, s.org, "empty")

	own := integrity + "/companies/" + s.org.Company.ID.String()
	rows := map[string]func(company, key string) answer{
		"status": func(company, key string) answer {
			return s.send(http.MethodPatch, integrity+"/companies/"+company, key, body{"status": "active"})
		},
		"access": func(company, key string) answer {
			return s.send(http.MethodGet, integrity+"/companies/"+company+"/access", key, nil)
		},
		"webhooks": func(company, key string) answer {
			return s.send(http.MethodGet, integrity+"/companies/"+company+"/webhooks", key, nil)
		},
	}
	for name, send := range rows {
		send(s.org.Company.ID.String(), "").refuses(http.StatusUnauthorized, domain.InvalidKey)
		send(s.org.Company.ID.String(), writer).refuses(http.StatusForbidden, domain.MissingScope)
		send(s.org.Company.ID.String(), analyst.secret).refuses(http.StatusForbidden, domain.MissingScope)
		send(s.org.Company.ID.String(), admin.secret).is(http.StatusOK)
		unknown := send(
			domain.NewID[domain.CompanyID](s.Now()).String(), s.org.Secret,
		).refuses(http.StatusNotFound, domain.NotFound)
		for _, company := range []string{other.Company.ID.String(), distant.Company.ID.String(), "com_x", "x"} {
			equal(t, name+" of "+company, send(company, s.org.Secret).refuses(http.StatusNotFound, domain.NotFound), unknown)
		}
		s.changeMember(admin.email, new(domain.Viewer), nil)
		send(s.org.Company.ID.String(), admin.secret).refuses(http.StatusForbidden, domain.RoleRequired)
		s.changeMember(admin.email, new(domain.Admin), nil)
	}
	for in, want := range map[any]string{
		`{}`: "/status REQUIRED", `{"status":"open"}`: "/status FORMAT", `{"status":null}`: "/status TYPE",
		`{"status":"closed","name":"x"}`: "/name UNKNOWN_MEMBER",
	} {
		if got := pointers(s.send(http.MethodPatch, own, s.org.Secret, in).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}

	must(s, &domain.ChangeKey{Origin: s.org.Operator(), Key: analyst.key, Name: new("reports")})
	// Pages of one entry list every key ever granted, oldest first, and the former destination.
	var got []any
	for more, cursor := true, ""; more; {
		page := read[wire.KeysAccess](s.get(own+"/access?limit=1"+cursor), http.StatusOK)
		entry := page.Access[0]
		got, more, cursor = append(got,
			[]any{entry.CompanyID, entry.KeyID, entry.Enabled, entry.Name}), page.HasMore, "&after="+*page.NextCursor
		equal(t, "since", entry.UpdatedAt,
			s.history("limit=1&action=company.access_changed&target=" + entry.KeyID)[0].OccurredAt)
	}
	company := s.org.Company.ID.String()
	equal(t, "access", got, []any{
		[]any{company, s.org.Key.ID.String(), true, nil}, []any{company, analyst.key.String(), false, "reports"},
		[]any{company, admin.key.String(), true, nil},
	})
	heard := read[wire.WebhooksAccess](s.get(own+"/webhooks"), http.StatusOK)
	entry := heard.Webhooks[0]
	equal(t, "webhooks", []any{len(heard.Webhooks), entry.WebhookID, entry.Enabled, heard.HasMore},
		[]any{1, webhook, false, false})
	for _, list := range []string{"access", "webhooks"} {
		page := s.get(integrity + "/companies/" + empty.ID.String() + "/" + list).is(http.StatusOK)
		equal(t, "a company without "+list, page, body{list: []any{}, "nextCursor": nil, "hasMore": false})
		e := s.get(own+"/"+list+"?limit=0&after=x&all=true").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
		if got := pointers(e); !strings.Contains(got, "/limit RANGE") || !strings.Contains(got, "/after FORMAT") ||
			!strings.Contains(got, "/all UNKNOWN_PARAMETER") {
			t.Errorf("%s: %s", list, got)
		}
	}
}
