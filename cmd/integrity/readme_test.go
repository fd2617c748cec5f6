package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
	"integrityledger/schemas"
)

// readmeTable returns the rows of the table whose head begins with the given cell, by the code-formatted names in their
// first cells; a row that names several is found by each.
func readmeTable(t *testing.T, first string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| "+first+" |")
	if !found {
		t.Fatalf("README.md has no table of %s", first)
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
				t.Errorf("README.md has two rows of %s", match[1])
			}
			rows[match[1]] = cells
		}
	}
	return rows
}

// sameNames requires that README and program know the same.
func sameNames(t *testing.T, what string, rows map[string][]string, names []string) {
	t.Helper()
	for _, name := range names {
		if rows[name] == nil {
			t.Errorf("README.md does not list the %s %s", what, name)
		}
	}
	for name := range rows {
		if !slices.Contains(names, name) {
			t.Errorf("README.md lists the %s %s, which does not exist", what, name)
		}
	}
}

func TestReadmeVariables(t *testing.T) {
	rows := readmeTable(t, "variable")
	names := config.ClientVariables()
	form := reflect.TypeFor[config.Config]()
	for _, s := range config.Settings() {
		names = append(names, s.Variable())
		field, _ := form.FieldByName(s.Field)
		if standard := field.Tag.Get("envDefault"); standard != "" && rows[s.Variable()] != nil && !strings.Contains(rows[s.Variable()][1], "`"+standard+"`") {
			t.Errorf("README.md does not say that %s is %s by default", s.Variable(), standard)
		}
		if rows[s.Variable()] != nil && s.Secret != strings.Contains(strings.Join(rows[s.Variable()][1:], " "), "secret") {
			t.Errorf("README.md does not say right whether %s is secret", s.Variable())
		}
	}
	sameNames(t, "variable", rows, names)
}

func TestReadmeScopesAndRoles(t *testing.T) {
	scopes := readmeTable(t, "scope")
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
			t.Errorf("README.md gives %s to %s, not to %s", scope, row[1], want)
		}
	}
	sameNames(t, "scope", scopes, names)
	names = nil
	for _, role := range domain.Roles() {
		names = append(names, string(role))
	}
	sameNames(t, "role", readmeTable(t, "role"), names)
}

func TestReadmePlans(t *testing.T) {
	plans, err := domain.DefaultPlans()
	if err != nil {
		t.Fatal(err)
	}
	rows := readmeTable(t, "plan")
	sameNames(t, "plan", rows, plans.Names())
	for name, plan := range plans {
		price, versions, attempts := "–", "none", "none"
		if plan.PriceEUR != nil {
			price = strconv.FormatFloat(*plan.PriceEUR, 'f', -1, 64)
		}
		if plan.VersionsPerMonth != nil {
			versions = thousands(*plan.VersionsPerMonth)
		}
		if plan.WebhookAttemptsPerMonth != nil {
			attempts = thousands(*plan.WebhookAttemptsPerMonth)
		}
		if want := []string{price, thousands(int64(plan.PerMinute)), versions, attempts}; rows[name] != nil && !slices.Equal(rows[name][1:], want) {
			t.Errorf("README.md says %v of the plan %s, not %v", rows[name][1:], name, want)
		}
	}
}

// thousands writes 25000 as 25,000.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// TestReadmeLimitValues holds the limits against the constants they come from, where there are any.
func TestReadmeLimitValues(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	if domain.DefaultKeyLifetime != 365*day || domain.MaxKeyLifetime != 730*day || domain.MinKeyLifetime != time.Hour {
		t.Error("the lifetimes of keys have changed, README.md has not")
	}
	for _, row := range []string{
		fmt.Sprintf("| version | 1 to %d |", domain.MaxVersion),
		fmt.Sprintf("| size | 0 to %d bytes |", int64(1)<<53-1),
		"| reference | `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}` |",
		fmt.Sprintf("| webhook destinations | %d an organization, %d authorized for a company; URL 2,048 and description 200 characters |", domain.MaxWebhooks, domain.MaxWebhooksPerCompany),
		fmt.Sprintf("| files | 1 to %d, of at most %s bytes each and %s together |", domain.MaxManifestFiles, thousands(domain.MaxManifestFileSize), thousands(domain.MaxManifestTotal)),
		fmt.Sprintf("| JSON text | %s bytes |", thousands(domain.MaxManifestBytes)),
		fmt.Sprintf("| uploaded file | %s bytes, at 64 KiB/s or faster; 2 GiB of uploads at once |", thousands(domain.MaxFileBytes)),
		fmt.Sprintf("| text of an artifact | %s bytes |", thousands(domain.MaxTextBytes)),
		fmt.Sprintf("| title, statement | %d and %s characters |", domain.MaxTitle, thousands(domain.MaxStatement)),
		fmt.Sprintf("| versions of an artifact, reviews of a version | %s, %d |", thousands(domain.MaxArtifactVersions), domain.MaxReviewsOfAVersion),
		"| lifetime of a key | 365 days by default, 1 hour to 730 days |",
	} {
		if !strings.Contains(string(text), "\n"+row+"\n") {
			t.Errorf("README.md lacks the row %s", row)
		}
	}
}

func TestReadmeErrors(t *testing.T) {
	rows := readmeTable(t, "code")
	var names []string
	for _, code := range domain.Codes() {
		names = append(names, string(code))
	}
	sameNames(t, "error code", rows, names)

	// The published contract says with which status a code comes.
	text, err := schemas.File(schemas.OpenAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	type content struct {
		Examples map[string]struct {
			Value struct{ Error struct{ Status int } }
		}
	}
	var document struct {
		Components struct {
			Responses map[string]struct{ Content map[string]content }
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, response := range document.Components.Responses {
		for code, example := range response.Content["application/json"].Examples {
			if row := rows[code]; row != nil {
				compared++
				if row[1] != strconv.Itoa(example.Value.Error.Status) {
					t.Errorf("README.md says that %s is %s, the OpenAPI document %d", code, row[1], example.Value.Error.Status)
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d codes were compared", compared)
	}
}
