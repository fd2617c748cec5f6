package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// TestWarningIsMailed runs the program. A smaller plan in the middle of the month triggers a warning, which the member
// receives; an invitation reaches its address, with a link that the answer does not contain; and a plan table without
// that plan prevents the next start.
func TestWarningIsMailed(t *testing.T) {
	t.Parallel()
	box, port := integritytest.ServeMail(t)
	dir := dataDir(t)
	plans := write(t, filepath.Join(t.TempDir(), "plans.json"),
		fmt.Sprintf(`{"gratis": {"perMinute": 100, "versionsPerMonth": 10, %[1]s}, "small": {"perMinute": 100, "versionsPerMonth": 5, %[1]s},
			"internal": {"perMinute": 1000, "versionsPerMonth": null, %[1]s}}`,
			`"requestsPerMonth": null, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null, "administrativeEventsPerDay": 10000`))
	s := surroundings{env: []string{
		fmt.Sprintf("INTEGRITY_SMTP_URL=smtp://127.0.0.1:%d", port), "INTEGRITY_MAIL_FROM=ledger@example.org",
		"INTEGRITY_PLANS=" + plans,
	}}.start(t, dir)
	a := makeAccount(t, dir)
	env := []string{config.VariableAPIKey + "=" + a.key.Key, config.VariableBaseURL + "=" + s.base}
	for version := range 4 {
		file := write(t, filepath.Join(t.TempDir(), "a.pdf"), fmt.Sprint("%PDF ", version))
		must(
			t, env, "register", file, "--company", a.company.Reference, "--source", "s", "--document", "d", "--version",
			fmt.Sprint(version+1),
		)
	}
	must(t, nil, "organization", "plan", a.organization.ID, "--plan", "small", "--plans", plans, "--data-dir", dir)
	select {
	case <-box.Arrived:
	case <-time.After(patient):
		t.Fatalf("no mail arrived: %s", tail(s.log))
	}
	box.Mu.Lock()
	if len(box.Mails) != 1 || !strings.HasPrefix(box.Mails[0], "ana@example.org\n") ||
		!strings.Contains(box.Mails[0], "80% of") {
		t.Errorf("mails %q", box.Mails)
	}
	box.Mu.Unlock()

	var admin operator.KeyView
	mustJSON(
		t, nil, &admin, "apikey", "create", "--organization", a.organization.ID, "--member", "ana@example.org", "--scopes",
		"organization:admin", "--data-dir", dir,
	)
	var invited wire.InvitedMember
	status, err := call(
		plainHTTP(), http.MethodPost, s.base+"/api/v1/organization/members", admin.Key,
		map[string]string{"email": "bob@example.org", "role": "analyst"}, &invited,
	)
	if err != nil || status != http.StatusCreated || !invited.Mailed || invited.InvitationURLs != nil {
		t.Fatalf("%d, %v, %+v", status, err, invited)
	}
	select {
	case <-box.Arrived:
	case <-time.After(patient):
		t.Fatalf("no invitation arrived: %s", tail(s.log))
	}
	box.Mu.Lock()
	last := strings.ReplaceAll(box.Mails[len(box.Mails)-1], "=\r\n", "") // quoted-printable
	code := regexp.MustCompile(`in_[0-9A-Za-z]{26}_[0-9A-Za-z]{49}`).FindString(last)
	if !strings.HasPrefix(last, "bob@example.org\n") ||
		!strings.Contains(last, strings.Replace(s.base, "127.0.0.1", "localhost", 1)+"/en/console/invitation/"+code) {
		t.Errorf("mail %s", last)
	}
	box.Mu.Unlock()
	if id, _, ok := domain.ParseInvitationCode(code); !ok || id.String() != a.organization.ID {
		t.Errorf("code %q", code)
	}
	s.stop()
	wantClean(t, s.log, "ana@example.org")
	wantClean(t, s.log, "bob@example.org")
	wantClean(t, s.log, code)

	r := integrity(t, nil, "serve", "--data-dir", dir, "--listen", freeAddress(t))
	if r.code != 2 || !strings.Contains(r.errs, "organizations have plans that the table of plans lacks (small)") ||
		!strings.Contains(r.errs, "INTEGRITY_PLANS") {
		t.Errorf("a plan is missing: %+v", r)
	}
}
