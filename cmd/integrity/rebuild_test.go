package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/eventstore/postgres"
)

// spoil changes the database directly, beside the service that runs in dir.
func spoil(t *testing.T, dir string, statements ...string) {
	t.Helper()
	ctx := context.Background()
	server, err := postgres.StartOrAttach(ctx, postgres.Config{DataDir: dir, Purpose: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(ctx, server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		tag, err := conn.Exec(ctx, statement)
		if err != nil || (tag.Insert() || tag.Update() || tag.Delete()) && tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", statement, tag, err)
		}
	}
}

// TestRebuildCommand repairs corrupted tables while the service runs.
func TestRebuildCommand(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir, "--demo", "--shards", "4")
	demo := s.demo()
	env := []string{config.VariableAPIKey + "=" + demo.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	must(
		t, env, "register", file, "--company", demo.CompanyReference, "--source", "s", "--document", "spoiled", "--version",
		"1",
	)

	at := func(words ...string) []string {
		return append(append([]string{"rebuild"}, words...), "--data-dir", dir)
	}
	if out := must(t, nil, at("--check")...); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("of a sound ledger: %s", out)
	}
	spoil(
		t, dir, "UPDATE documents SET highest_version = 9 WHERE reference = 'spoiled'", "DELETE FROM usage",
		"UPDATE organization_state SET companies = 5",
	)
	r := integrity(t, nil, at("--check", "--projection", "documents")...)
	if r.code != cli.ExitNegative || !strings.Contains(r.out, ": differs in highest_version\n") ||
		strings.Contains(r.out, "usage") {
		t.Errorf("check of one projection: %d %s %s", r.code, r.out, r.errs)
	}
	out := must(t, nil, at("--json", "--organization", demo.OrganizationID)...)
	var lines []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, v)
	}
	last := lines[len(lines)-1]
	if last["differences"] != float64(len(lines)-1) || last["mended"] != last["differences"] ||
		last["differences"].(float64) < 4 {
		t.Errorf("rebuild of the organization: %s", out)
	}
	if r := integrity(t, nil, at("--check")...); r.code != cli.ExitOK {
		t.Errorf("after the rebuild: %d %s %s", r.code, r.out, r.errs)
	}
	busyShard(t, dir, at())
	for want, words := range map[string][]string{
		"--projection must be one of ":          {"--projection", "feed,feeds"},
		"--shard must be a number from 0 to 3":  {"--shard", "4"},
		"org_":                                  {"--organization", "org_x"},
		"--jobs must be a number of at least 1": {"--jobs", "0"},
		"[organization shard] were all set":     {"--organization", demo.OrganizationID, "--shard", "1"},
	} {
		if r := integrity(t, nil, at(words...)...); r.code != cli.ExitFailed || !strings.Contains(r.errs, want) {
			t.Errorf("%v: %d %s", words, r.code, r.errs)
		}
	}
}

// busyShard runs a rebuild while another one is working on shard 3: all other shards are rebuilt. A check does not
// wait.
func busyShard(t *testing.T, dir string, rebuild []string) {
	t.Helper()
	ctx := context.Background()
	server, err := postgres.Attach(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(ctx, server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1, 3)", 0x72656275); err != nil {
		t.Fatal(err)
	}
	if r := integrity(t, nil, rebuild...); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "shard 3: another rebuild") || !strings.HasSuffix(r.out, "0 rows differ\n") {
		t.Errorf("beside another rebuild: %d %s %s", r.code, r.out, r.errs)
	}
	must(t, nil, append(rebuild, "--check")...)
}

// TestRebuildDroppedTable: a dropped projection is recreated completely, with its rights, while the service runs, and
// feed readers see a new epoch.
func TestRebuildDroppedTable(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir, "--demo", "--shards", "2")
	demo := s.demo()
	env := []string{config.VariableAPIKey + "=" + demo.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	register := func(document string) result {
		file := write(t, filepath.Join(t.TempDir(), "a.pdf"), document)
		return integrity(
			t, env, "register", file, "--company", demo.CompanyReference, "--source", "s", "--document", document, "--version",
			"1",
		)
	}
	type page struct {
		Data struct {
			Events []struct{ ID string } `json:"events"`
		} `json:"data"`
		Meta struct {
			Epoch int64 `json:"epoch"`
		} `json:"meta"`
	}
	feed := func() (p page) {
		t.Helper()
		request, err := http.NewRequest(
			http.MethodGet, s.base+"/api/v1/integrity/changes?companyReference="+demo.CompanyReference, nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+demo.Keys.Worker)
		answer, err := plainHTTP().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(&p); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("feed: %d %v", answer.StatusCode, err)
		}
		return p
	}
	rebuild := func(words ...string) result {
		return integrity(t, nil, append([]string{"rebuild", "--data-dir", dir}, words...)...)
	}
	for _, document := range []string{"a", "b"} {
		if r := register(document); r.code != cli.ExitOK {
			t.Fatalf("%d %s", r.code, r.errs)
		}
	}
	before := feed()
	spoil(t, dir, "DROP TABLE feed")
	if r := register("c"); r.code == cli.ExitOK {
		t.Error("registered without a feed")
	}
	if r := integrity(t, nil, "doctor", "--data-dir", dir); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "table public.feed is missing") ||
		!strings.Contains(r.out, "integrity rebuild recreates it") {
		t.Errorf("doctor: %d %s", r.code, r.out)
	}
	if r := rebuild("--check"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "feed") {
		t.Errorf("--check: %d %s %s", r.code, r.out, r.errs)
	}
	if r := rebuild("--shard", "1"); r.code != cli.ExitFailed || !strings.Contains(r.errs, "rebuild everything") {
		t.Errorf("--shard: %d %s %s", r.code, r.out, r.errs)
	}
	if r := rebuild(); r.code != cli.ExitOK || !strings.Contains(r.errs, "epoch was raised") {
		t.Errorf("rebuild: %d %s %s", r.code, r.out, r.errs)
	}
	if r := integrity(t, nil, "doctor", "--data-dir", dir); strings.Contains(r.out, "fail  schema") ||
		!strings.Contains(r.out, "agree with the migrations") {
		t.Errorf("doctor after the rebuild: %d %s", r.code, r.out)
	}
	if r := register("d"); r.code != cli.ExitOK {
		t.Errorf("register after the rebuild: %s", r.errs)
	}
	eventually(t, "readers of the feed see a new epoch", func() error {
		if epoch := feed().Meta.Epoch; epoch <= before.Meta.Epoch {
			return fmt.Errorf("epoch %d after %d", epoch, before.Meta.Epoch)
		}
		return nil
	})
	after := feed()
	if n := len(before.Data.Events); n < 2 || len(after.Data.Events) != n+1 ||
		!slices.Equal(after.Data.Events[:n], before.Data.Events) {
		t.Errorf("events %v, then %v", before.Data.Events, after.Data.Events)
	}
	spoil(t, dir, "UPDATE documents SET highest_version = 9")
	if r := rebuild(); r.code != cli.ExitOK || strings.Contains(r.errs, "epoch") {
		t.Errorf("rebuild of another table: %d %s %s", r.code, r.out, r.errs)
	}
}
