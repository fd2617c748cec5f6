package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
)

// TestOutboxCommands: wrong input is refused by the name of its flag, and without the service the worker waits and
// reserve prints nothing.
func TestOutboxCommands(t *testing.T) {
	t.Parallel()
	text, _ := domain.NewAPIKey(domain.NewKeyID(time.Now(), 0))
	dir := t.TempDir()
	keyFile := write(t, filepath.Join(dir, "key"), text+"\n")
	file := write(t, filepath.Join(dir, "origin.db"), "")
	env := []string{
		config.VariableAPIKey + "_FILE=" + keyFile, config.VariableBaseURL + "=http://" + freeAddress(t),
		"INTEGRITY_OUTBOX_DATABASE=sqlite:" + file,
	}
	version := func(company string) string {
		return "--company " + company + " --source s --document d --version 1"
	}
	for _, c := range []struct {
		line     string
		code     int
		out, err string
	}{
		{"outbox check", cli.ExitNegative, "", "integrity_outbox is missing"},
		{"outbox run", cli.ExitFailed, "", "integrity_outbox is missing"},
		{"outbox install", cli.ExitOK, "CREATE TABLE IF NOT EXISTS integrity_outbox", ""},
		{"outbox install --apply", cli.ExitOK, "is ready (SQLite)", ""},
		{"outbox check", cli.ExitOK, "0 rows are pending", ""},
		{"outbox check --database mysql://u:secret@h", cli.ExitFailed, "", "--database: it must be mysql://"},
		{"outbox run --poll 1ms", cli.ExitFailed, "", "--poll must be"},
		{"outbox run --lease 1s", cli.ExitFailed, "", "--lease must be"},
		{"outbox run --once", cli.ExitOK, "", "ready to register"},
		{"reserve --quiet --timeout 2s " + version("c"), cli.ExitOK, "", "did not answer"},
		{"reserve --timeout 2s " + version("c"), cli.ExitFailed, "", "did not answer"},
		{"reserve --quiet --timeout 0s " + version("c"), cli.ExitFailed, "", "--timeout must be"},
		{"reserve --quiet " + version("a/b"), cli.ExitFailed, "", "--company"},
	} {
		r := integrity(t, env, strings.Fields(c.line)...)
		if r.code != c.code || !strings.Contains(r.out, c.out) || c.out == "" && r.out != "" || !strings.Contains(r.errs, c.err) ||
			strings.Contains(r.errs, "secret") {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
	address := freeAddress(t)
	worker := exec.Command(os.Getenv(binaryVariable), "outbox", "run", "--healthz", address)
	worker.Env = cleanEnviron(env...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	answers := func(path, want string, status int) {
		t.Helper()
		eventually(t, path+" says "+want, func() error {
			response, err := http.Get("http://" + address + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body := make([]byte, 1<<14)
			n, _ := response.Body.Read(body)
			if response.StatusCode != status || !strings.Contains(string(body[:n]), want) {
				return fmt.Errorf("%d %s", response.StatusCode, body[:n])
			}
			return nil
		})
	}
	answers("/healthz", "ok", http.StatusOK)
	if r := runs(t, "python3", nil, "-c", `import sqlite3
with sqlite3.connect("`+file+`") as db:
    db.execute("INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes) VALUES ('c', 's', 'd', 1, '`+
		strings.Repeat("a", 64)+`', 1)")`); r.code != 0 {
		t.Fatal(r.errs)
	}
	answers("/healthz", "away", http.StatusServiceUnavailable)
	answers("/metrics", `integrity_outbox_worker_rows_total{kind="declarations",outcome="postponed"}`, http.StatusOK)
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil {
		t.Error(err)
	}
}
