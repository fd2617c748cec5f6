package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/integritytest"
)

// TestWarningIsMailed runs the program: a smaller plan in the middle of the month is worth a warning, which reaches the
// member; and a table without that plan keeps the next start back.
func TestWarningIsMailed(t *testing.T) {
	t.Parallel()
	box := &integritytest.Mailbox{}
	port, _ := integritytest.ServeMail(t, box, false, false)
	dir := dataDir(t)
	plans := write(t, filepath.Join(t.TempDir(), "plans.json"),
		fmt.Sprintf(`{"gratis": {"perMinute": 100, "versionsPerMonth": 10, %[1]s}, "small": {"perMinute": 100, "versionsPerMonth": 5, %[1]s},
			"internal": {"perMinute": 1000, "versionsPerMonth": null, %[1]s}}`,
			`"requestsPerMonth": null, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null`))
	s := surroundings{env: []string{
		fmt.Sprintf("INTEGRITY_SMTP_URL=smtp://127.0.0.1:%d", port), "INTEGRITY_MAIL_FROM=ledger@example.org", "INTEGRITY_PLANS=" + plans,
	}}.start(t, dir)
	a := makeAccount(t, dir)
	env := []string{config.VariableAPIKey + "=" + a.key.Key, config.VariableBaseURL + "=" + s.base}
	for version := range 4 {
		file := write(t, filepath.Join(t.TempDir(), "a.pdf"), fmt.Sprint("%PDF ", version))
		must(t, env, "register", file, "--company", a.company.Reference, "--source", "s", "--document", "d", "--version", fmt.Sprint(version+1))
	}
	must(t, nil, "organization", "plan", a.organization.ID, "--plan", "small", "--plans", plans, "--data-dir", dir)
	select {
	case <-box.Arrived:
	case <-time.After(patient):
		t.Fatalf("no mail arrived: %s", tail(s.log))
	}
	box.Mu.Lock()
	if len(box.Mails) != 1 || !strings.HasPrefix(box.Mails[0], "ana@example.org\n") || !strings.Contains(box.Mails[0], "80 % of") {
		t.Errorf("mails %q", box.Mails)
	}
	box.Mu.Unlock()
	s.stop()
	wantClean(t, s.log, "ana@example.org")

	r := integrity(t, nil, "serve", "--data-dir", dir, "--listen", freeAddress(t))
	if r.code != 2 || !strings.Contains(r.errs, "organizations have plans that the table of plans lacks (small)") || !strings.Contains(r.errs, "INTEGRITY_PLANS") {
		t.Errorf("a plan is missing: %+v", r)
	}
}
