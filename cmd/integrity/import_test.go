package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
)

// TestImport registers the versions of files. Killed in the middle and started again, each version is registered once.
// Versions that are registered with other data, or that the service refuses, are named and hold up no other.
func TestImport(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	access := s.demo()
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	dir := t.TempDir()
	before := len(feedIDs(t, env, access.CompanyReference))
	registerMany(t, s, access, "import", 1) // import-0 version 1, with the hash aaa…

	const documents, versions = 700, 2
	const columns = "version,companyReference,source,documentReference,previousVersion,sha256,sizeBytes,mimeType,generatedAt\n"
	row := func(company, source, document string, version int) string {
		previous := ""
		if version > 1 {
			previous = fmt.Sprint(version - 1)
		}
		return fmt.Sprintf(
			"%d,%s,%s,%s,%s,%064x,10,application/pdf,2026-01-02T03:04:05Z\n", version, company, source, document, previous,
			version,
		)
	}
	text := "\ufeff" + columns
	for version := versions; version > 0; version-- { // the first version comes last
		for i := range documents {
			text += row(access.CompanyReference, "archive", fmt.Sprint("doc-", i), version)
		}
	}
	text += row(access.CompanyReference, "test", "import-0", 1) + row("foreign", "archive", "doc-1", 1)
	file := write(t, filepath.Join(dir, "backlog.csv"), text)
	run := func(more ...string) result { return integrity(t, env, append([]string{"import", file}, more...)...) }

	// It is killed while it registers.
	known := before + 1
	for range 2 {
		running := exec.Command(os.Getenv(binaryVariable), "import", file)
		running.Env = cleanEnviron(env...)
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = running.Wait() // killed, or it was faster
			close(ended)
		}()
		eventually(t, "it registers", func() error {
			select {
			case <-ended:
				return nil
			default:
			}
			if n := len(feedIDs(t, env, access.CompanyReference)); n == known {
				return fmt.Errorf("%d events", n)
			}
			return nil
		})
		_ = running.Process.Kill() // it may have ended
		<-ended
		known = len(feedIDs(t, env, access.CompanyReference))
	}
	const counts = "1400 registered, 1 in conflict, 1 refused, 0 still to register\n"
	r := run()
	if r.code != cli.ExitNegative || !strings.HasSuffix(r.out, counts) ||
		!strings.Contains(r.out, "in conflict: test import-0 v1, "+access.CompanyReference) ||
		!strings.Contains(r.out, "refused: archive doc-1 v1, foreign: COMPANY_NOT_AUTHORIZED") {
		t.Errorf("%+v", r)
	}
	if again := run("--retry"); again.code != r.code || !strings.HasSuffix(again.out, counts) {
		t.Errorf("again: %+v", again)
	}
	copied := filepath.Join(dir, "copy.db")
	must(t, env, "reconcile", copied, "--company", access.CompanyReference)
	const query = "SELECT company_reference, source, document_reference, version, sha256 FROM integrity_outbox " +
		"WHERE source = 'archive'"
	found := integrity(t, env, "reconcile", copied, "--company", access.CompanyReference,
		"--database", "sqlite:"+file+".import", "--against", query)
	if !strings.Contains(found.out, "1400 versions at the origin") ||
		!strings.Contains(found.out, ": 0 missing in the ledger") ||
		!strings.HasSuffix(found.out, " 0 different\n") {
		t.Errorf("%+v", found)
	}

	// The command refuses a file whose registered lines have changed, and a line that is not a declaration.
	for name, c := range map[string]struct{ text, says string }{
		"backlog.csv": {strings.Replace(text, ",10,", ",11,", 1), "line 2: an earlier line, or an earlier run, has version 2 of doc-0"},
		"column.csv":  {"version,customer\n", `line 1: "customer" is not a column`},
		"number.csv":  {columns + strings.Replace(row("c", "s", "d", 1), "1,c", "one,c", 1), "line 2: version must be a whole number"},
		"short.csv":   {columns + "1,c\n", "line 2"},
		"hash.csv":    {columns + strings.Replace(row("c", "s", "d", 1), ",000", ",xxx", 1), "line 2: outbox: sha256"},
		"x.ndjson":    {"\n{\"customer\": 1}\n", "line 2"},
		"x.jsonl":     {`{"version": "one"}`, "line 1"},
		"x.txt":       {"", "the name must end in .csv, .ndjson or .jsonl"},
	} {
		path := write(t, filepath.Join(dir, name), c.text)
		if r := integrity(t, env, "import", path); r.code != cli.ExitFailed || !strings.Contains(r.errs, c.says) {
			t.Errorf("%s: %+v", name, r)
		}
	}

	// JSON lines, of which a part was imported before.
	line := func(i int) string {
		return fmt.Sprintf(
			`{"companyReference":%q,"source":"lines","documentReference":"doc-%d","version":1,"previousVersion":null,`+
				`"sha256":"%064x","sizeBytes":1,"mimeType":"text/plain","generatedAt":"2026-01-02T03:04:05Z"}`+"\n",
			access.CompanyReference, i, i,
		)
	}
	lines := filepath.Join(dir, "backlog.ndjson")
	write(t, lines, line(1)+line(2))
	must(t, env, "import", lines)
	write(t, lines, line(1)+line(2)+line(3))
	if out := must(t, env, "import", lines, "--json"); !strings.Contains(out, `"registered":3`) {
		t.Error(out)
	}
	if n := len(feedIDs(t, env, access.CompanyReference)); n < before+1+documents*versions+3 {
		t.Errorf("%d events, %d before", n, before)
	}
}
