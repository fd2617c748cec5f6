package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"integrityledger/domain"
)

// accountsTable returns the rows of the table whose head begins with the given cell, by the code-formatted names in
// their first cells. A row with several names is found by each.
func accountsTable(t *testing.T, first string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("manual/accounts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| "+first+" |")
	if !found {
		t.Fatalf("manual/accounts.md has no table of %s", first)
	}
	name := regexp.MustCompile("`([^`]+)`")
	rows := map[string][]string{}
	for i, line := range strings.Split(table, "\n") {
		if i < 2 {
			continue // the rest of the head, and the line below it
		}
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		for _, match := range name.FindAllStringSubmatch(cells[0], -1) {
			if rows[match[1]] != nil {
				t.Errorf("manual/accounts.md has two rows of %s", match[1])
			}
			rows[match[1]] = cells
		}
	}
	return rows
}

// sameNames requires that the manual and the program have the same names.
func sameNames(t *testing.T, what string, rows map[string][]string, names []string) {
	t.Helper()
	for _, name := range names {
		if rows[name] == nil {
			t.Errorf("manual/accounts.md does not list the %s %s", what, name)
		}
	}
	for name := range rows {
		if !slices.Contains(names, name) {
			t.Errorf("manual/accounts.md lists the %s %s, which does not exist", what, name)
		}
	}
}

func TestManualScopesAndRoles(t *testing.T) {
	scopes := accountsTable(t, "scope")
	var names []string
	for _, scope := range domain.Scopes() {
		names = append(names, string(scope))
		var roles []string
		for _, role := range domain.RolesFor(scope) {
			roles = append(roles, string(role))
		}
		want := strings.Join(roles, ", ")
		if len(roles) == len(domain.Roles()) {
			want = "all"
		}
		if row := scopes[string(scope)]; row != nil && row[1] != want {
			t.Errorf("manual/accounts.md gives %s to %s, not to %s", scope, row[1], want)
		}
	}
	sameNames(t, "scope", scopes, names)
	names = nil
	for _, role := range domain.Roles() {
		names = append(names, string(role))
	}
	sameNames(t, "role", accountsTable(t, "role"), names)
}

// thousands formats 25000 as 25,000.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
