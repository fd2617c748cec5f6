package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/handlers/wire"
)

// TestMonitorOfAService: a reader verifies a service's proofs and watches its log. When the service's database is set
// back to an earlier day, the monitor's state and saved evidence reveal it.
func TestMonitorOfAService(t *testing.T) {
	dir := dataDir(t)
	mine := t.TempDir()
	state, pinned := filepath.Join(mine, "log.json"), filepath.Join(mine, "trusted-keys.json")
	var s *running
	// proven registers a document, and saves evidence with a proof of inclusion, and the public report.
	proven := func(name string) (saved, document, report string) {
		t.Helper()
		access := s.demo()
		env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
		document = write(t, filepath.Join(mine, name+".pdf"), "%PDF "+name)
		var record wire.Registration
		mustJSON(
			t, env, &record, "register", document, "--company", access.CompanyReference, "--source", "s", "--document", name,
			"--version", "1",
		)
		saved = filepath.Join(mine, name+".json")
		eventually(t, "the record is in the log", func() error {
			os.Remove(saved)
			must(t, env, "evidence", record.PublicID, "-o", saved)
			text, err := os.ReadFile(saved)
			if err == nil && !strings.Contains(string(text), `"inclusion"`) {
				err = errors.New("the evidence has no inclusion")
			}
			return err
		})
		public := s.base + "/api/public/integrity/" + record.PublicID + "/report"
		report = write(t, filepath.Join(mine, name+".report.pdf"), string(fetched(t, public, "")))
		return saved, document, report
	}
	watch := func(more ...string) result {
		return integrity(t, nil, append([]string{"monitor", s.base, "--trusted-keys", pinned, "--state", state}, more...)...)
	}

	s = start(t, dir, "--demo")
	first, document, report := proven("first")
	keys, err := os.ReadFile(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	write(t, pinned, string(keys))
	if out := must(
		t, nil, "verify", first, pinned, document, "--require-inclusion",
	); !strings.Contains(out, "inclusion     valid") || !strings.Contains(out, "no independent timestamp") {
		t.Error(out)
	}
	if r := watch("--evidence", first, "--evidence", report); r.code != cli.ExitOK ||
		!strings.Contains(r.out, "consistent with the saved evidence (2)") {
		t.Fatalf("%+v", r)
	}
	if r := watch("--evidence", document); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "--evidence: "+document) || strings.Count(r.errs, document) != 1 {
		t.Errorf("%+v", r)
	}
	s.stop()
	if out, err := exec.Command("cp", "-a", dir, dir+".earlier").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	s = start(t, dir, "--demo")
	second, _, _ := proven("second")
	if r := watch("--evidence", first, "--evidence", second); r.code != cli.ExitOK {
		t.Fatalf("%+v", r)
	}
	// One record's proof is not valid for another record.
	if r := integrity(t, nil, "verify", second, pinned, document); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "inclusion     valid") {
		t.Errorf("%+v", r)
	}
	s.stop()

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".earlier", dir); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, "--demo")
	proven("another")
	if r := watch(); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "ALARM: rewritten") && !strings.Contains(r.errs, "ALARM: shrunk") {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if r := watch("--evidence", second); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: ") {
		t.Errorf("%+v", r)
	}
	if r := watch("--evidence", first); r.code != cli.ExitOK { // older than the day the database was set back to
		t.Errorf("%+v", r)
	}
}
