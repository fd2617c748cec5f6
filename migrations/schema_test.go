package migrations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
)

//go:generate go test -count=1 -run ^TestSchemaIsGenerated$ . -update

var update = flag.Bool("update", false, "write schema.json again")

func actual(t *testing.T, conn *pgx.Conn) []migrations.Object {
	t.Helper()
	all, err := migrations.Actual(context.Background(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSchemaIsGenerated: schema.json is what the migrations make, on every version of PostgreSQL and on Citus.
func TestSchemaIsGenerated(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("[")
	for i, o := range actual(t, connect(t, pgtest.New(t))) {
		if i > 0 {
			text.WriteString(",")
		}
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n" + string(line))
	}
	text.WriteString("\n]\n")
	if *update && !pgtest.OnCitus() {
		if err := os.WriteFile("schema.json", text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	expected, err := migrations.Expected()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range migrations.Compare(expected, actual(t, connect(t, pgtest.New(t)))) {
		t.Errorf(
			"schema.json is not what the migrations make (go generate ./migrations): %s: %s, not %s", d.Object, d.Found, d.SQL,
		)
	}
	if file, err := os.ReadFile("schema.json"); !pgtest.OnCitus() && (err != nil || !bytes.Equal(file, text.Bytes())) {
		t.Errorf("schema.json is not as it is generated: go generate ./migrations (%v)", err)
	}
}

// TestCompareFindsDrift: each kind of change is found, by a role that may read nothing but the catalogue.
func TestCompareFindsDrift(t *testing.T) {
	pgtest.OneServer(t, "tables are changed by hand")
	expected, err := migrations.Expected()
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]string{
		"DROP TABLE feed":                                       "table public.feed",
		"ALTER TABLE feed RENAME TO feed_away":                  "table public.feed",
		"DROP TABLE rebuild.feed":                               "table rebuild.feed",
		"DROP INDEX members_email":                              "index members_email of public.members",
		"DROP TRIGGER events_append_only ON events":             "trigger events_append_only of public.events",
		"ALTER TABLE events DISABLE TRIGGER events_append_only": "trigger events_append_only of public.events",
		"ALTER TABLE versions DROP CONSTRAINT versions_reserved_or_registered": "constraint " +
			"versions_reserved_or_registered of public.versions",
		"ALTER TABLE versions DROP CONSTRAINT versions_shard_public_id_key":                                      "constraint versions_shard_public_id_key of public.versions",
		"ALTER TABLE companies DROP COLUMN closed_at":                                                            "column closed_at of public.companies",
		"ALTER TABLE usage ALTER COLUMN used TYPE integer":                                                       "column used of public.usage",
		"ALTER TABLE usage ALTER COLUMN used DROP NOT NULL":                                                      "column used of public.usage",
		"ALTER TABLE usage RESET (fillfactor)":                                                                   "options of public.usage",
		"REVOKE INSERT ON feed FROM integrity_service":                                                           "grant of public.feed",
		"REVOKE SELECT ON feed FROM integrity_reader":                                                            "grant integrity_reader of public.feed",
		"ALTER TABLE feed ADD CHECK (version < 9)":                                                               "constraint feed_version_check of public.feed",
		"CREATE UNIQUE INDEX mine ON feed (shard, event_id)":                                                     "index mine of public.feed",
		"CREATE INDEX mine ON feed (shard, event_id)":                                                            "",
		"CREATE TABLE mine (id int PRIMARY KEY)":                                                                 "",
		"ALTER TABLE rebuild.feed SET LOGGED":                                                                    "",
		"CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'": "function public.refuse_change()",
	} {
		url := pgtest.New(t)
		pgtest.Exec(t, url, change)
		reader := connect(t, url)
		if _, err := reader.Exec(context.Background(), "SET ROLE pg_monitor"); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, d := range migrations.Compare(expected, actual(t, reader)) {
			found = append(found, d.String())
		}
		if want == "" && found != nil || want != "" && !slices.Equal(found, []string{want}) {
			t.Errorf("%s: found %q, want %q", change, found, want)
		}
	}
}

// TestEditedMigration: a program whose migrations have other statements than those that were applied is found; mended
// comments are not.
func TestEditedMigration(t *testing.T) {
	url := pgtest.New(t)
	conn := connect(t, url)
	edited := func() []string {
		t.Helper()
		found, err := migrations.Edited(context.Background(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const name, added = "99998_made_up.sql", "-- +goose Up\nCREATE TABLE made_up (shard integer NOT NULL PRIMARY KEY);\n"
	migrations.AddFile(t, name, added)
	for range 2 { // it is recorded once
		if err := migrations.Up(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	}
	if found := edited(); found != nil {
		t.Errorf("as they were applied: %q", found)
	}
	migrations.AddFile(t, name, "-- mended\n"+added)
	if found := edited(); found != nil {
		t.Errorf("with another comment: %q", found)
	}
	migrations.AddFile(t, name, strings.Replace(added, "integer", "bigint", 1))
	if err := migrations.Up(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	if found := edited(); !slices.Equal(found, []string{name}) {
		t.Errorf("found %q", found)
	}
}

// TestRecreate: a projection that was dropped, in either copy, is made again exactly, and the service has no right to
// it before it is released.
func TestRecreate(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	conn := connect(t, url)
	expected, err := migrations.Expected()
	if err != nil {
		t.Fatal(err)
	}
	lost := func() []string {
		t.Helper()
		names, err := migrations.Lost(ctx, conn)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	var all []string
	for _, o := range expected {
		if o.Kind == migrations.TableObject && migrations.IsProjection(o.Table) {
			pgtest.Exec(t, url, "DROP TABLE "+o.Table)
			if name, live := strings.CutPrefix(o.Table, "public."); live {
				all = append(all, name)
			}
		}
	}
	if len(all) < 20 || !slices.Equal(lost(), all) {
		t.Fatalf("lost %q of %q", lost(), all)
	}
	pgtest.Exec(t, url, "INSERT INTO rebuild.progress (shard, scope, program, reached) VALUES (0, '', 'this', 9)")
	if err := migrations.Recreate(ctx, url, lost()); err != nil {
		t.Fatal(err)
	}
	if n, err := pgtest.Ask[int](url, "SELECT count(*)::int FROM rebuild.progress"); n != 0 || err != nil {
		t.Errorf("a rebuild would go on with empty copies: %d, %v", n, err)
	}
	if !slices.Equal(lost(), all) {
		t.Errorf("before they are released: lost %q", lost())
	}
	for _, d := range migrations.Compare(expected, actual(t, conn)) {
		if d.Kind != migrations.GrantObject {
			t.Errorf("made again: %s is %q, not %q", d.Object, d.Found, d.SQL)
		}
	}
	if err := migrations.Release(ctx, url, lost()); err != nil {
		t.Fatal(err)
	}
	for _, d := range migrations.Compare(expected, actual(t, conn)) {
		t.Errorf("released: %s is %q, not %q", d.Object, d.Found, d.SQL)
	}
	pgtest.Exec(t, url, "ALTER TABLE feed RENAME TO feed_away")
	const advice = "ALTER TABLE public.feed_away RENAME TO feed"
	if err := migrations.Recreate(ctx, url, lost()); err == nil || !strings.Contains(err.Error(), advice) {
		t.Errorf("of a renamed table: %v", err)
	}
}
