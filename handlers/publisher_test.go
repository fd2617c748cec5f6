package handlers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
	"integrityledger/projections/queue/publishers"
	"integrityledger/projections/queue/webhooks"
)

// checking makes a service ask a DNS server about domains.
func checking(dns *peertest.DNS) func(*handlers.Config) {
	return func(c *handlers.Config) {
		c.Publishers, _ = publishers.New(publishers.Config{
			Pool: c.Store.Pool, Shards: c.Installation.Shards, Do: c.Ledger.Do, Now: c.Now, Log: c.Log,
			Allows: webhooks.EgressPolicy{}.Allows, Resolver: publishers.NewResolver(dns.Address),
		})
	}
}

const publisherPage = "/en/console/publisher"

// proof sets the TXT record that the page asks for.
func (s *service) proof(dns *peertest.DNS, domainName string) {
	dns.Text(domain.PublisherHost+"."+domainName, domain.PublisherToken+s.org.ID.String())
}

var statementPath = regexp.MustCompile(publisherPage + `/domains/(stm_[0-9a-z]{26})/check`)

// An owner adds a domain, sees what to publish, and asks for a check. A recipient sees the domain once it is proven,
// and the name only beside it. Nothing is left after both are taken back.
func TestPublisherInTheConsole(t *testing.T) {
	dns := peertest.ServeDNS(t)
	s := openConsoleWith(t, options{config: checking(dns)})
	id := s.registered("a", 1, "one")
	record := "/en/integrity/" + id
	silent := func() []byte { return s.page(record).body }
	before, answered := silent(), s.compared(id, "one")
	if contains(before, "controls") || answered.Publisher != nil {
		t.Errorf("something is said of an organization that has said nothing: %s", before)
	}
	owner := s.signedIn(s.org.Email)
	owner.visit("/en/console").says(http.StatusOK, publisherPage, "Your name and domains")
	owner.visit(publisherPage).says(http.StatusOK, "only that an organization declared", "Nothing yet")
	for _, wrong := range []string{"localhost", "127.0.0.1", "https://127.0.0.1/x", "https://", "co.uk", "a\u202e.example"} {
		owner.press(publisherPage+"/domains", "domain", wrong).says(
			http.StatusUnprocessableEntity, "Enter a domain that is yours", `aria-invalid="true"`,
		)
	}
	owner.press(publisherPage+"/domains", "domain", "https://Transportes.example./contacto").leads(publisherPage + "?said=domain#domains")
	page := owner.visit(publisherPage+"?said=domain").says(
		http.StatusOK, "The domain was added", "_integrity-ledger.transportes.example",
		"integrity-ledger="+s.org.ID.String(), "https://transportes.example/.well-known/integrity-ledger.json",
		"{&#34;organizations&#34;: [&#34;"+s.org.ID.String()+"&#34;]}", "Waiting for the proof", "Nothing yet",
	)
	owner.visit("/en/console/history").says(http.StatusOK, ">transportes.example</bdi>")
	// A name that is declared before waits for the domain, and the page shows the line that it will make.
	owner.press(publisherPage+"/name", "name", "García", "noPrivatePerson", "true").leads(
		publisherPage + "?said=publisher-name#name",
	)
	owner.visit(publisherPage+"?said=publisher-name").says(
		http.StatusOK, "Recipients do not see it yet", "In its own words, not verified: “<bdi>García</bdi>”.",
	)
	owner.visit("/en/console/history").says(http.StatusOK, ">García</bdi>")
	owner.press(publisherPage + "/name/withdraw")
	owner.press(publisherPage+"/domains", "domain", "transportes.example").says(http.StatusConflict, "already")
	if now := silent(); !bytes.Equal(now, before) {
		t.Error("a domain that is not proven changes the page of a record")
	}
	statement := string(statementPath.FindSubmatch(page.body)[1])
	check := publisherPage + "/domains/" + statement + "/check"
	owner.press(check).leads(publisherPage + "#" + statement)
	owner.visit(publisherPage).says(http.StatusOK, "There is no record of this name yet",
		"did not answer over https with a valid certificate")
	s.proof(dns, "transportes.example")
	owner.press(check).says(http.StatusTooManyRequests, "Each domain can be checked once a minute")
	s.skew.Add(int64(publishers.AskEvery))
	owner.press(check).leads(publisherPage + "#" + statement)
	owner.visit(publisherPage).says(http.StatusOK, "Proven.", "It proves the domain.", "controls", "transportes.example")

	today := s.Now().UTC().Format("2 January 2006")
	line := "The organization that declared the registered file controls <strong><bdi>transportes.example</bdi></strong> (checked on " + today + ")."
	if page := s.page(record).body; bytes.Count(page, []byte(line)) != 4 { // beside the record, and in the panels of three results
		t.Errorf("the page of a record says %d times %s", bytes.Count(page, []byte(line)), line)
	}
	spanish := s.page("/integrity/" + id + "?lang=es").body
	if !contains(spanish, "La organización que declaró el archivo registrado controla <strong><bdi>transportes.example</bdi></strong> (comprobado el ") {
		t.Errorf("in Spanish: %s", spanish)
	}
	if mismatch := regexp.MustCompile(`(?s)<template id="panel-HASH_MISMATCH">.*?</template>`).Find(s.page(record).body); len(mismatch) == 0 ||
		contains(mismatch, "transportes.example") {
		t.Errorf("a mismatch names the organization: %s", mismatch)
	}

	// The name needs the declaration, and is shown as the organization's own words.
	owner.press(publisherPage+"/name", "name", "Transportes García SL").says(
		http.StatusUnprocessableEntity, "Tick the declaration", `value="Transportes García SL"`,
	)
	owner.press(publisherPage+"/name", "name", "a\u202ex", "noPrivatePerson", "true").says(http.StatusUnprocessableEntity, "Enter 1 to 200")
	owner.press(publisherPage+"/name", "name", "<b>García", "noPrivatePerson", "true").leads(
		publisherPage + "?said=publisher-name#name",
	)
	if page := s.page(record).body; !contains(page, "In its own words, not verified: “<bdi>&lt;b&gt;García</bdi>”.") {
		t.Errorf("the name: %s", page)
	}
	got := s.compared(id, "two")
	if p := got.Publisher; got.Result != wire.HashMismatch || p == nil || len(p.Domains) != 1 || p.Name == nil || *p.Name != "<b>García" ||
		p.Domains[0].Domain != "transportes.example" || p.Domains[0].Method != domain.ProvenByDNS {
		t.Errorf("the public comparison: %+v", got)
	}

	// An admin reads the page and changes nothing; a viewer does not see it; a stranger's domain is unknown.
	admin, _ := s.added("admin@example.com", domain.Admin)
	seen := admin.visit(publisherPage).says(http.StatusOK, "transportes.example", "Only an owner changes")
	if contains(seen.body, "/check") || contains(seen.body, "/name\"") {
		t.Error("an admin is offered what only an owner may do")
	}
	for _, act := range []string{"/domains", "/domains/" + statement + "/remove", "/name", "/name/withdraw"} {
		admin.press(publisherPage+act, "domain", "b.example", "name", "x", "noPrivatePerson", "true").says(http.StatusForbidden)
	}
	viewer, _ := s.added("viewer@example.com", domain.Viewer)
	if page := viewer.visit("/en/console/history").says(http.StatusOK, statement); contains(page.body, "transportes.example") {
		t.Error("the history shows a domain to a viewer, who may not see the page of domains")
	}
	viewer.visit(publisherPage).says(http.StatusForbidden)
	owner.press(publisherPage + "/domains/" + domain.NewID[domain.StatementID](s.Now()).String() + "/check").says(http.StatusNotFound)
	owner.press(publisherPage + "/domains/x/remove").says(http.StatusNotFound)

	// Without a recent proof of identity nothing is added, changed or removed.
	s.skew.Add(int64(6 * time.Minute))
	owner.visit(publisherPage).says(http.StatusOK, "/en/console/prove?to=")
	for _, act := range []string{"/domains", "/domains/" + statement + "/remove", "/name", "/name/withdraw"} {
		if a := owner.press(publisherPage+act, "domain", "b.example", "name", "x", "noPrivatePerson", "true"); a.status != http.StatusSeeOther ||
			!strings.Contains(a.header.Get("Location"), "/en/console/prove") {
			t.Errorf("%s without a proof: %d", act, a.status)
		}
	}
	owner = s.signedIn(s.org.Email)
	owner.press(publisherPage + "/name/withdraw").leads(publisherPage + "?said=publisher-name-withdrawn#name")
	if page := s.page(record).body; contains(page, "own words") {
		t.Error("a withdrawn name is shown")
	}
	owner.press(publisherPage + "/domains/" + statement + "/remove").leads(publisherPage + "?said=domain-removed#domains")
	if now := silent(); !bytes.Equal(now, before) {
		t.Error("a removed domain leaves something on the page of a record")
	}
	if n := s.count(`texts WHERE body LIKE '%García%' OR body = 'transportes.example'`); n != 0 {
		t.Errorf("%d texts are left", n)
	}
}

// TestChecksAreForOwners: an admin who posts a check is refused before the service asks anybody, and leaves the owner's
// check to the owner.
func TestChecksAreForOwners(t *testing.T) {
	dns := peertest.ServeDNS(t)
	s := openConsoleWith(t, options{config: checking(dns)})
	owner := s.signedIn(s.org.Email)
	owner.press(publisherPage+"/domains", "domain", "transportes.example").leads(publisherPage + "?said=domain#domains")
	statement := string(statementPath.FindSubmatch(owner.visit(publisherPage).body)[1])
	check := publisherPage + "/domains/" + statement + "/check"
	admin, _ := s.added("admin@example.com", domain.Admin)
	admin.press(check).says(http.StatusForbidden)
	if n := dns.Asked(); n > 0 {
		t.Errorf("an admin makes the service ask %d questions", n)
	}
	s.proof(dns, "transportes.example")
	owner.press(check).leads(publisherPage + "#" + statement)
	owner.visit(publisherPage).says(http.StatusOK, "It proves the domain.")
}

// TestFormsSayWhatTheOperatorMustDo: before integrity upgrade finish the forms of the domain and of the name say why
// nothing was saved, and what to do.
func TestFormsSayWhatTheOperatorMustDo(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	known := "The organization has this domain already"
	add := []string{"domain", "transportes.example"}
	owner.press(publisherPage+"/domains", add...).leads(publisherPage + "?said=domain#domains")
	if a := owner.press(publisherPage+"/domains", add...).says(http.StatusConflict, known); contains(a.body, "upgrade finish") {
		t.Error("a domain that is known leads to the operator")
	}
	s.owner("UPDATE ledger SET rules = array_remove(rules, 'publisher-statements')",
		"UPDATE shard_heads SET rules = array_remove(rules, 'publisher-statements')")
	for act, form := range map[string][]string{
		"/domains": {"domain", "other.example"}, "/name": {"name", "García", "noPrivatePerson", "true"},
	} {
		a := owner.press(publisherPage+act, form...).says(
			http.StatusConflict, `role="alert"`, "ask the operator to run integrity upgrade finish",
		)
		if contains(a.body, known) {
			t.Errorf("%s guesses another cause", act)
		}
	}
}

// TestPublisherStatement: anyone gets a signed statement of the present, which the verifier accepts, and never for a
// file or in the place of a receipt.
func TestPublisherStatement(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	path := "/api/public/integrity/" + id + "/publisher"
	read := func() (evidence.Findings, []byte) {
		t.Helper()
		a := s.public(path)
		if a.status != http.StatusOK || a.header.Get("Cache-Control") != "no-store" || contains(a.body, s.org.ID.String()) {
			t.Fatalf("%d %v: %s", a.status, a.header, a.body)
		}
		return evidence.Verify(a.body, s.Trusted, evidence.Options{Now: s.Now()}), a.body
	}
	if f, _ := read(); f.ExitCode() != 0 || f.Publisher == nil || len(f.Publisher.Domains) != 0 || f.Publisher.Name != nil ||
		f.Publisher.PublicID != id {
		t.Errorf("of nothing: %+v", f)
	}
	member := domain.Origin{
		Organization: s.org.ID, Actor: domain.MemberActor(s.org.Key.Member), RequestID: "test", Console: true,
	}
	must(s, &domain.DeclareName{Origin: member, Name: "García & Co", NoPrivatePerson: true})
	if f, _ := read(); f.Publisher == nil || f.Publisher.Name != nil {
		t.Errorf("a name without a domain: %+v", f.Publisher)
	}
	var added domain.PublisherDomain
	for i := range 2 {
		add := must(s, &domain.AddDomain{Origin: member, Domain: fmt.Sprintf("a%d.example", i)})
		added = add.Outcome
		must(s, &domain.RecordDomainCheck{Origin: s.org.Operator(), Domain: added.ID, Method: domain.ProvenByHTTPS})
	}
	f, statement := read()
	if p := f.Publisher; f.ExitCode() != 0 || p == nil || len(p.Domains) != 2 || p.Domains[1].Domain != "a1.example" ||
		p.Domains[1].Method != "https" || p.Name == nil || *p.Name != "García & Co" || p.StatedAt == nil {
		t.Errorf("%+v", f)
	}
	var whole map[string]any
	check(t, json.Unmarshal(statement, &whole))
	for what, c := range map[string]struct {
		change func(map[string]any)
		opts   evidence.Options
	}{
		"a file":         {nil, evidence.Options{Document: &evidence.Document{SHA256: hash("one"), Size: 3}}},
		"a requirement":  {nil, evidence.Options{RequireCurrent: true}},
		"as a receipt":   {func(m map[string]any) { m["contract"] = "integrity-evidence-v1" }, evidence.Options{}},
		"as certificate": {func(m map[string]any) { delete(m, "contract") }, evidence.Options{}},
		"another text": {func(m map[string]any) {
			m["payload"] = strings.Replace(m["payload"].(string), "a1.example", "a2.example", 1)
		}, evidence.Options{}},
		"more members": {func(m map[string]any) { m["extra"] = 1 }, evidence.Options{}},
	} {
		text := statement
		if c.change != nil {
			changed := map[string]any{}
			for k, v := range whole {
				changed[k] = v
			}
			c.change(changed)
			text, _ = json.Marshal(changed)
		}
		c.opts.Now = s.Now()
		if f := evidence.Verify(text, s.Trusted, c.opts); f.ExitCode() == 0 {
			t.Errorf("%s: accepted: %+v", what, f)
		}
	}
	if f := evidence.Verify(statement, s.Trusted, evidence.Options{Now: s.Now().Add(-time.Hour)}); f.ExitCode() == 0 {
		t.Error("a statement of the future is accepted")
	}
	s.skew.Add(int64(domain.ProofLifetime))
	if f, _ := read(); f.Publisher == nil || len(f.Publisher.Domains) != 0 || f.Publisher.Name != nil {
		t.Errorf("after a week without a check: %+v", f.Publisher)
	}
	if got := s.compared(id, "one"); got.Publisher != nil {
		t.Errorf("after a week without a check the comparison says %+v", got.Publisher)
	}
	s.public("/api/public/integrity/"+strings.Repeat("a", 26)+"/publisher").refuses(http.StatusNotFound, domain.RecordNotFound)
	s.public(path+"?x=1").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
}

// Another organization's domain is not shown beside a record. Its events are in its history, without its text, and lead
// to the page.
func TestPublishersAreApart(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	other := s.Organization(t, 1, "gratis") // in the same shard
	add := &domain.AddDomain{Origin: other.Operator(), Domain: "other.example"}
	s.Must(t, add)
	s.Must(t, &domain.RecordDomainCheck{Origin: other.Operator(), Domain: add.Outcome.ID, Method: domain.ProvenByDNS})
	if got := s.compared(id, "one"); got.Publisher != nil {
		t.Errorf("%+v", got.Publisher)
	}
	var refused *domain.Error
	if err := s.Do(t.Context(), &domain.RemoveDomain{Origin: s.org.Operator(), Domain: add.Outcome.ID}); !errors.As(err, &refused) ||
		refused.Code != domain.NotFound {
		t.Errorf("another organization removes it: %v", err)
	}
	path := certificationAction + "/audit-events?limit=20"
	events := func(secret string) (about []wire.AuditEvent) {
		a := s.send(http.MethodGet, path, secret, nil)
		if contains(a.body, "other.example") {
			t.Errorf("the history has the text: %s", a.body)
		}
		for _, e := range read[wire.AuditEvents](a, http.StatusOK).Events {
			if e.Target.ID == add.Outcome.ID.String() {
				about = append(about, e)
			}
		}
		return about
	}
	if got := events(other.Secret); len(got) != 2 || got[0].Action != domain.DomainChecked || got[1].Action != domain.DomainAdded {
		t.Errorf("its history has %+v", got)
	}
	if got := events(s.org.Secret); len(got) != 0 {
		t.Errorf("another organization's history has %+v", got)
	}
}
