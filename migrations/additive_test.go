package migrations_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// firstAdditive is the first migration under the rule. The baseline before it makes the schema of the first release.
const firstAdditive = 2

// taking matches statements that break the previous version's code while it still runs on the newer schema: a name that
// goes away, a required column that it does not fill, a check that its rows may fail, and a lock for as long as a table
// takes to be rewritten.
var taking = regexp.MustCompile(
	`(?is)\bDROP\s+(TABLE|COLUMN|VIEW|FUNCTION|SCHEMA|TYPE|INDEX|TRIGGER|ROLE)\b|\bRENAME\b|\bSET\s+SCHEMA\b|\bALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE\b|\bSET\s+NOT\s+NULL\b|\bTRUNCATE\b|\bREVOKE\b|\bADD\s+(CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b|\bCREATE\s+UNIQUE\s+INDEX\b|\bCREATE\s+TRIGGER\b|\bVACUUM\s+FULL\b|\bSET\s+TABLESPACE\b`,
)

// unfilled matches a new column that every insert must fill, unless it has a default.
var unfilled = regexp.MustCompile(
	`(?is)\bADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?\w+\s+[^,;]*?\bNOT\s+NULL\b[^,;]*`,
)

// offences lists the parts of a migration that would break the previous version.
func offences(migration string) (found []string) {
	up, _, _ := strings.Cut(migration, "-- +goose Down")
	up = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(up, "")
	found = taking.FindAllString(up, -1)
	for _, column := range unfilled.FindAllString(up, -1) {
		if !regexp.MustCompile(`(?i)\bDEFAULT\b`).MatchString(column) {
			found = append(found, column)
		}
	}
	return found
}

// TestMigrationsOnlyAdd: during a rolling restart the previous version works on the newer schema. An unused column
// or table is dropped one version later, by a migration that says so in a line "-- unused since <number>".
func TestMigrationsOnlyAdd(t *testing.T) {
	paths, err := filepath.Glob("*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var number int
		if _, err := fmt.Sscanf(path, "%05d_", &number); err != nil {
			t.Fatal(err)
		}
		if number < firstAdditive {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := offences(string(text)); found != nil && !regexp.MustCompile(`(?m)^-- unused since \d{5}$`).Match(text) {
			t.Errorf("%s breaks the previous version: %q", path, found)
		}
	}
	if paths == nil {
		t.Error("no migration was found")
	}
	for _, bad := range []string{
		"ALTER TABLE feed DROP COLUMN status", "ALTER TABLE feed RENAME COLUMN a TO b", "DROP TABLE feed",
		"ALTER TABLE feed ALTER COLUMN version TYPE bigint",
		"ALTER TABLE feed ALTER COLUMN x SET NOT NULL", "ALTER TABLE feed ADD COLUMN x integer NOT NULL",
		"ALTER TABLE feed ADD CHECK (version > 0)",
		"CREATE UNIQUE INDEX x ON feed (shard, event_id)", "ALTER TABLE feed ADD x int,\n ADD COLUMN y text NOT NULL;",
		"REVOKE SELECT ON feed FROM integrity_service",
	} {
		if offences(bad) == nil {
			t.Errorf("%s: not found", bad)
		}
	}
	for _, good := range []string{
		"ALTER TABLE feed ADD COLUMN x integer NOT NULL DEFAULT 0;", "ALTER TABLE feed ADD COLUMN x text;",
		"CREATE TABLE x (shard int NOT NULL, PRIMARY KEY (shard));",
		"CREATE INDEX CONCURRENTLY x ON feed (shard, event_id);", "SELECT 1;\n-- +goose Down\nDROP TABLE x;",
		"-- DROP TABLE x\nSELECT 1;",
	} {
		if found := offences(good); found != nil {
			t.Errorf("%s: %q", good, found)
		}
	}
}
