package main

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/client/outbox/outboxtest"
	"integrityledger/handlers/wire"
)

// TestReconcileAgainst compares a feed with the tables of an origin in SQLite and in PostgreSQL: exactly the spoiled,
// missing and extra versions are found, and nothing is written on either side.
func TestReconcileAgainst(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	access := s.demo()
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	registerMany(t, s, access, "doc", 20)
	dir := t.TempDir()
	copied := filepath.Join(dir, "copy.db")
	must(t, env, "reconcile", copied, "--company", access.CompanyReference)
	hash, other := strings.Repeat("a", 64), strings.Repeat("b", 64)

	// The origin holds doc-0 to doc-9, of which doc-3 is spoiled, doc-5 has a second hash, and doc-7 lacks version 2, and a
	// version of its own. Hashes are digits and bytes.
	type origin struct {
		address, bytes, literal string
		exec                    func(statement string)
	}
	file, postgres, maria := filepath.Join(dir, "origin.db"), pgtest.New(t), outboxtest.NewMariaDB(t).Database("origin")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(address string) func(string) {
		db, _, err := outbox.OpenDatabase(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return func(statement string) {
			t.Helper()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	origins := map[string]origin{
		"SQLite":     {"sqlite:" + file, "blob", "x'%s'", open("sqlite:" + file)},
		"PostgreSQL": {postgres, "bytea", `'\x%s'`, open(postgres)},
		"MariaDB":    {maria, "varbinary(32)", "x'%s'", open(maria)},
	}
	for _, o := range origins {
		o.exec("CREATE TABLE doc (company text, number text, version integer, digits text, bytes " + o.bytes + ")")
	}
	row := func(company, number string, version int, digits string) {
		t.Helper()
		for _, o := range origins {
			o.exec(fmt.Sprintf("INSERT INTO doc VALUES ('%s', '%s', %d, '%s', ", company, number, version, digits) +
				fmt.Sprintf(o.literal, digits) + ")")
		}
	}
	for i := range 10 {
		for version := 1; version <= 2; version++ {
			switch {
			case i == 3 && version == 1:
				row(access.CompanyReference, "doc-3", 1, other)
			case i == 7 && version == 2:
			default:
				row(access.CompanyReference, fmt.Sprint("doc-", i), version, hash)
			}
		}
	}
	row(access.CompanyReference, "doc-5", 1, other)
	row(access.CompanyReference, "doc-10", 1, other)
	row("another company", "doc-1", 1, other)

	const from = "SELECT company AS company_reference, 'test' AS source, number AS document_reference, version, "
	var extra int // versions of the demo, which the origin does not hold
	ledger, err := sql.Open("sqlite", copied)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	if err := ledger.QueryRow("SELECT count(*) FROM versions WHERE source <> 'test'").Scan(&extra); err != nil {
		t.Fatal(err)
	}
	for database, o := range origins {
		ask := func(query string, more ...string) result {
			t.Helper()
			return integrity(t, env, append([]string{"reconcile", copied, "--company", access.CompanyReference,
				"--database", o.address, "--against", query}, more...)...)
		}
		want := []string{
			"missing in the ledger: test doc-10 v1, at the origin " + other,
			"different: test doc-3 v1, at the origin " + other + ", in the ledger " + hash,
			"different: test doc-5 v1, at the origin " + other + ", in the ledger " + hash,
			"missing at the origin: test doc-7 v2, in the ledger " + hash,
		}
		for _, column := range []string{"upper(digits)", "bytes"} {
			r := ask(from + column + " AS sha256 FROM doc")
			if r.code != cli.ExitNegative || !strings.Contains(r.errs, "1 rows of other companies") {
				t.Fatalf("%s, %s: %+v", database, column, r)
			}
			got := slices.DeleteFunc(strings.Split(r.out, "\n"), func(l string) bool { return !strings.Contains(l, ": test ") })
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: %q", database, column, got)
			}
			counts := fmt.Sprintf(": 1 missing in the ledger, %d missing at the origin, 2 different\n", 1+extra)
			if !strings.HasSuffix(r.out, counts) {
				t.Errorf("%s, %s: %q lacks %q", database, column, r.out, counts)
			}
		}
		for query, says := range map[string]string{
			"SELECT 1 AS version":             "must return the columns company_reference, source",
			from + "'x' AS sha256":            "",
			"no query":                        "--against: ",
			from + "digits AS other FROM doc": "and no others",
			from + "'x' AS sha256 FROM doc":   "row 1: sha256 must be 64 hexadecimal digits or 32 bytes",
			strings.Replace(from, "number", "NULL", 1) + "digits AS sha256 FROM doc":          "row 1: document_reference must be",
			strings.Replace(from, "version", "0 AS version", 1) + "digits AS sha256 FROM doc": "row 1: version must be",
		} {
			if r := ask(query); r.code != cli.ExitFailed || !strings.Contains(r.errs, says) {
				t.Errorf("%s, %q: %+v", database, query, r)
			}
		}
		// A query that writes changes nothing.
		ask(strings.Replace(from, "SELECT", "DELETE FROM doc RETURNING", 1) + "digits AS sha256")
		r := ask(from+"digits AS sha256 FROM doc", "--csv")
		table, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
		if err != nil || len(table) != 1+len(want)+extra || !slices.Contains(table[0], "origin_sha256") {
			t.Errorf("%s: %v: %q", database, err, table)
		}
		r = ask(from+"digits AS sha256 FROM doc", "--json")
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		var counts struct{ MissingInLedger, MissingAtOrigin, Different, OtherCompanies int }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &counts); err != nil || len(lines) != len(want)+1+extra ||
			counts.MissingInLedger != 1 || counts.MissingAtOrigin != 1+extra || counts.Different != 2 || counts.OtherCompanies != 1 {
			t.Errorf("%s: %v: %+v in %q", database, err, counts, lines)
		}
	}
	// A copy of all companies also holds the versions of a company that the key is granted after the copy was begun.
	all := filepath.Join(dir, "all.db")
	must(t, env, "reconcile", all)
	administer := func(path string, body, data any) {
		t.Helper()
		status, err := call(plainHTTP(), "POST", s.base+"/api/v1/integrity/companies"+path, access.Keys.Admin, body, data)
		if err != nil || status/100 != 2 {
			t.Fatalf("%s: %d %v", path, status, err)
		}
	}
	var created wire.Company
	administer("", map[string]string{"reference": "later"}, &created)
	administer("/"+created.ID+"/access", wire.KeyAccessRequest{KeyID: "key_" + access.Keys.Worker[3:29], Enabled: true}, nil)
	later := access
	later.CompanyReference = "later"
	registerMany(t, s, later, "doc", 2)
	r := integrity(t, env, "reconcile", all, "--database", origins["SQLite"].address,
		"--against", from+"digits AS sha256 FROM doc")
	for _, line := range []string{
		"missing in the ledger: another company test doc-1 v1, at the origin " + other,
		"missing at the origin: later test doc-0 v2, in the ledger " + hash,
		"different: " + access.CompanyReference + " test doc-3 v1, at the origin " + other + ", in the ledger " + hash,
		fmt.Sprintf(": 2 missing in the ledger, %d missing at the origin, 2 different", 1+extra+2),
	} {
		if r.code != cli.ExitNegative || !strings.Contains(r.out, line) || strings.Contains(r.errs, "other companies") {
			t.Errorf("%+v lacks %q", r, line)
		}
	}
	if r := integrity(t, env, "reconcile", all, "--company", "later"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "the feed of all companies") {
		t.Errorf("another feed: %+v", r)
	}
	if r := integrity(t, env, "reconcile", filepath.Join(dir, "all.jsonl")); r.code != cli.ExitFailed {
		t.Errorf("JSON lines of all companies: %+v", r)
	}
	if out := must(t, env, "changes"); !strings.Contains(out, " later test doc-0 v2 ") {
		t.Errorf("changes of all companies: %s", out)
	}

	for _, args := range [][]string{
		{copied, "--against", "SELECT 1"}, {copied, "--database", "sqlite:" + file}, {copied, "--csv"},
		{filepath.Join(dir, "x.jsonl"), "--against", "SELECT 1", "--database", "sqlite:" + file},
		{copied, "--against", "SELECT 1", "--database", "sqlite:" + file, "--follow"},
	} {
		args = append([]string{"reconcile", "--company", access.CompanyReference}, args...)
		if r := integrity(t, env, args...); r.code != cli.ExitFailed {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
