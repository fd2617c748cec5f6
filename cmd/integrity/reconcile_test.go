package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/handlers/wire"
)

// registerMany registers versions 1 to n of documents over the API.
func registerMany(t *testing.T, s *running, access demo.Access, name string, n int) {
	t.Helper()
	client := plainHTTP()
	for i := range n {
		d := wire.Declaration{
			CompanyReference: access.CompanyReference, Source: "test", DocumentReference: fmt.Sprintf("%s-%d", name, i/2),
			Version: int32(i%2 + 1),
			SHA256:  strings.Repeat("a", 64), MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
		}
		if status, err := call(
			client, "POST", s.base+"/api/v1/integrity/records", access.Keys.Worker, d, nil,
		); err != nil || status != 201 {
			t.Fatalf("register: %d %v", status, err)
		}
	}
}

// stored reads the IDs and the cursor of a copy that no process is writing.
func stored(t *testing.T, path string) (ids []string, cursor int64) {
	t.Helper()
	ids, cursor, err := readCopy(path)
	if err != nil {
		t.Fatal(err)
	}
	return ids, cursor
}

// readCopy reads a copy. If the copy is being written, it may end within a line, or be locked: that is an error.
func readCopy(path string) (ids []string, cursor int64, err error) {
	if filepath.Ext(path) == ".jsonl" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, 0, err
		}
		for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			var e wire.FeedEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return nil, 0, fmt.Errorf("line %d: %w", i, err)
			}
			if i > 0 {
				ids, cursor = append(ids, e.ID), e.Sequence
			}
		}
		return ids, cursor, nil
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, 0, err
	}
	defer db.Close()
	rows, err := db.Query("SELECT id FROM events ORDER BY sequence")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	err = db.QueryRow("SELECT sequence FROM cursor").Scan(&cursor)
	return ids, cursor, err
}

func feedIDs(t *testing.T, env []string, company string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(must(t, env, "changes", "--company", company, "--json")) {
		var e wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// TestReconcile follows a feed into both formats. Killed in the middle and restarted, each copy has every event exactly
// once.
func TestReconcile(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	access := s.demo()
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	dir := t.TempDir()
	registerMany(t, s, access, "first", 20)
	for _, name := range []string{"copy.db", "copy.jsonl"} {
		path := filepath.Join(dir, name)
		reconcile := func(more ...string) result {
			t.Helper()
			return integrity(t, env, append([]string{"reconcile", path, "--company", access.CompanyReference}, more...)...)
		}
		same := func(what string) {
			t.Helper()
			got, _ := stored(t, path)
			if want := feedIDs(t, env, access.CompanyReference); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s, %s: %d events stored, the feed has %d", name, what, len(got), len(want))
			}
		}
		if r := reconcile(); r.code != cli.ExitOK || !strings.Contains(r.out, "new events") {
			t.Fatalf("%+v", r)
		}
		same("first")
		if r := reconcile("--json"); r.code != cli.ExitOK || !strings.Contains(r.out, `"events": 0`) {
			t.Errorf("a second time: %+v", r)
		}

		// It follows, is killed in the middle, and continues.
		for round := range 3 {
			following := exec.Command(
				os.Getenv(binaryVariable), "reconcile", path, "--company", access.CompanyReference, "--follow",
			)
			following.Env = cleanEnviron(env...)
			if err := following.Start(); err != nil {
				t.Fatal(err)
			}
			registerMany(t, s, access, fmt.Sprint(name, round), 30)
			if err := following.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = following.Wait() // killed
		}
		if name == "copy.jsonl" { // as after a crash of the machine
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(`{"id":"evt_cut o`); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		if r := reconcile(); r.code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
		same("after three kills")

		// It waits for new events, and ends cleanly.
		following := exec.Command(
			os.Getenv(binaryVariable), "reconcile", path, "--company", access.CompanyReference, "--follow", "--json",
		)
		following.Env = cleanEnviron(env...)
		if err := following.Start(); err != nil {
			t.Fatal(err)
		}
		registerMany(t, s, access, "last"+name, 2)
		want := feedIDs(t, env, access.CompanyReference)
		eventually(t, "the copy follows", func() error {
			ids, _, err := readCopy(path)
			if err == nil && len(ids) != len(want) {
				err = fmt.Errorf("%d of %d events", len(ids), len(want))
			}
			return err
		})
		if err := following.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := following.Wait(); err != nil {
			t.Errorf("interrupted: %v", err)
		}

		// Another feed is refused in the same file.
		if r := integrity(t, env, "reconcile", path, "--company", "other"); r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, "another file") {
			t.Errorf("another company: %+v", r)
		}
	}
	if r := integrity(
		t, env, "reconcile", filepath.Join(dir, "x.db"), "--company", "other",
	); r.code != cli.ExitNegative || !strings.Contains(r.errs, "COMPANY_NOT_AUTHORIZED") {
		t.Errorf("a company without a grant: %+v", r)
	}
	strange := write(t, filepath.Join(dir, "strange.jsonl"), "something else\n")
	if r := integrity(t, env, "reconcile", strange, "--company", access.CompanyReference); r.code != cli.ExitFailed {
		t.Errorf("a file of something else: %+v", r)
	}
	strange = write(
		t, filepath.Join(dir, "strange.db"),
		"something else that is no database at all, and longer than a header of one hundred bytes, so that SQLite reads it\n",
	)
	if r := integrity(t, env, "reconcile", strange, "--company", access.CompanyReference); r.code != cli.ExitFailed {
		t.Errorf("a file of something else: %+v", r)
	}

	must(t, env, "reconcile", filepath.Join(dir, "copy.db"), "--company", access.CompanyReference)

	// The view shows the state of every version.
	db, err := sql.Open("sqlite", filepath.Join(dir, "copy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var current, superseded int
	if err := db.QueryRow(
		`SELECT count(*) FILTER (WHERE record_status = 'current'), count(*) FILTER (WHERE record_status = 'superseded') FROM versions`,
	).Scan(&current, &superseded); err != nil {
		t.Fatal(err)
	}
	const example = 1 // the demo's own document has one version
	if superseded == 0 || current != superseded+example {
		t.Errorf("%d current and %d superseded versions", current, superseded)
	}

	hashes := func() (known, all int) {
		t.Helper()
		if err := db.QueryRow(
			`SELECT count(*) FILTER (WHERE sha256 = ? OR document_reference NOT LIKE '%-%'), count(*) FROM versions`,
			strings.Repeat("a", 64),
		).Scan(&known, &all); err != nil {
			t.Fatal(err)
		}
		return known, all
	}
	if known, all := hashes(); known != all {
		t.Errorf("%d of %d versions with their hash", known, all)
	}

	// A copy of events that an earlier release of the service gave gains their hashes from the start.
	if _, err := db.Exec(`UPDATE events SET event = json_remove(event, '$.sha256');
		DROP VIEW versions; CREATE VIEW versions AS SELECT 1`); err != nil {
		t.Fatal(err)
	}
	again := []string{"reconcile", filepath.Join(dir, "copy.db"), "--company", access.CompanyReference}
	must(t, env, again...)
	if known, all := hashes(); known >= all {
		t.Errorf("%d of %d versions with a hash that no event has", known, all)
	}
	must(t, env, append(again, "--from-start")...)
	if known, all := hashes(); known != all {
		t.Errorf("%d of %d versions with their hash from the start", known, all)
	}

	// After the service was restored, the copy stops, and names the events that it may have too many of.
	path := filepath.Join(dir, "copy.db")
	if _, err := db.Exec("UPDATE cursor SET epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	if r := integrity(t, env, "reconcile", path, "--company", access.CompanyReference); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "--from-start") {
		t.Errorf("another epoch: %+v", r)
	}
	if _, err := db.Exec(`UPDATE cursor SET sequence = 999999, epoch = epoch - 1;
		INSERT INTO events SELECT 'evt_lost', 999999, type, occurred_at, public_id, source, document_reference, version, record_status, event, 1 FROM events LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	if r := integrity(t, env, "reconcile", path, "--company", access.CompanyReference); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "CURSOR_AHEAD") {
		t.Errorf("a cursor ahead: %+v", r)
	}
	if r := integrity(
		t, env, "reconcile", path, "--company", access.CompanyReference, "--from-start",
	); r.code != cli.ExitOK || !strings.HasPrefix(r.out, "0 new events") {
		t.Errorf("from the start: %+v", r)
	}
	var lost string
	if err := db.QueryRow("SELECT group_concat(id) FROM events WHERE confirmed = 0").Scan(&lost); err != nil ||
		lost != "evt_lost" {
		t.Errorf("not confirmed: %s, %v", lost, err)
	}
}
