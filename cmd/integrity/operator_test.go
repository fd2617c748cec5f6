package main

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/wire"
)

// account is an organization with a member, a company and a granted key, created with an operator's commands.
type account struct {
	organization operator.OrganizationView
	key          operator.KeyView
	company      operator.CompanyView
}

func makeAccount(t *testing.T, dir string) (a account) {
	t.Helper()
	at := []string{"--data-dir", dir}
	mustJSON(t, nil, &a.organization,
		append([]string{"organization", "create", "Example GmbH", "--plan", "internal"}, at...)...)
	in := append([]string{"--organization", a.organization.ID}, at...)
	var member operator.MemberView
	mustJSON(t, nil, &member, append([]string{"member", "add", "--email", "ana@example.org", "--role", "admin"}, in...)...)
	if member.Role != "admin" || member.Status != "active" || *member.Email != "ana@example.org" {
		t.Errorf("member: %+v", member)
	}
	mustJSON(t, nil, &a.company, append([]string{"company", "create", "c-7f3a"}, in...)...)
	mustJSON(t, nil, &a.key,
		append([]string{
			"apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:read,integrity:write", "--expires", "90d",
		}, in...)...)
	if a.key.Key == "" || len(a.key.Scopes) != 2 {
		t.Errorf("key: %+v", a.key)
	}
	var grant wire.KeyAccess
	mustJSON(t, nil, &grant, append([]string{"apikey", "grant", a.key.ID, "--company", "c-7f3a"}, at...)...)
	if !grant.Enabled || grant.CompanyID != a.company.ID || grant.KeyID != a.key.ID {
		t.Errorf("grant: %+v", grant)
	}
	return a
}

// TestOperatorEffects changes access while the service runs; the next request must see each change.
func TestOperatorEffects(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	must(t, nil, append([]string{"migrate"}, at...)...) // no service runs: the command starts a server for a moment
	s := start(t, dir)
	a := makeAccount(t, dir)
	in := append([]string{"--organization", a.organization.ID}, at...)
	with := func(words ...string) []string { return append(words, in...) }

	client := plainHTTP()
	wantStatus := func(what string, want int) {
		t.Helper()
		status, err := call(
			client, http.MethodGet, s.base+"/api/v1/integrity/changes?companyReference=c-7f3a", a.key.Key, nil, nil,
		)
		if err != nil || status != want {
			t.Errorf("%s: want status %d, not %d, %v", what, want, status, err)
		}
	}
	wantStatus("a granted key", http.StatusOK)
	must(t, nil, append([]string{"apikey", "grant", a.key.ID, "--company", "c-7f3a", "--revoke"}, at...)...)
	wantStatus("without the grant", http.StatusForbidden)
	must(t, nil, append([]string{"apikey", "grant", a.key.ID, "--company", "c-7f3a"}, at...)...)
	must(t, nil, with("member", "disable", "--email", "ana@example.org")...)
	wantStatus("a disabled member", http.StatusUnauthorized)
	must(t, nil, with("member", "enable", "--email", "ana@example.org")...)
	wantStatus("an enabled member", http.StatusOK)

	must(t, nil, with("member", "role", "--email", "ana@example.org", "--role", "viewer")...)
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	env := []string{config.VariableAPIKey + "=" + a.key.Key, config.VariableBaseURL + "=" + s.base}
	register := []string{"register", file, "--company", "c-7f3a", "--source", "s", "--version", "1"}
	if r := integrity(t, env, register...); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ROLE_REQUIRED") {
		t.Errorf("a viewer registers: %d %s", r.code, r.errs)
	}
	must(t, nil, with("member", "role", "--email", "ana@example.org", "--role", "analyst")...)
	if out := must(t, env, register...); !strings.Contains(out, "document      a.pdf, version 1, current") {
		t.Errorf("register: %s", out)
	}
	expireKey(t, dir, a.key.ID, "-1 second")
	wantStatus("an expired key", http.StatusUnauthorized)
	expireKey(t, dir, a.key.ID, "1 hour")
	wantStatus("a key that has not expired", http.StatusOK)
	must(t, nil, append([]string{"apikey", "revoke", a.key.ID}, at...)...)
	wantStatus("a revoked key", http.StatusUnauthorized)
	must(t, nil, with("member", "end", "--email", "ana@example.org")...)

	var keys struct{ Keys []operator.KeyView }
	mustJSON(t, nil, &keys, with("apikey", "list")...)
	if len(keys.Keys) != 1 || keys.Keys[0].RevokedAt == nil || keys.Keys[0].Key != "" {
		t.Errorf("keys: %+v", keys)
	}
	var members struct{ Members []operator.MemberView }
	mustJSON(t, nil, &members, with("member", "list")...)
	if len(members.Members) != 1 || members.Members[0].Status != "ended" {
		t.Errorf("members: %+v", members)
	}
	var organization operator.OrganizationView
	mustJSON(t, nil, &organization,
		append([]string{"organization", "plan", a.organization.ID, "--plan", "pro", "--per-minute", "7"}, at...)...)
	if organization.Plan != "pro" || organization.PerMinuteLimit != 7 || organization.Internal {
		t.Errorf("plan: %+v", organization)
	}
	// Values that are not given stay.
	for _, c := range []struct {
		args      string
		plan      string
		internal  bool
		perMinute int
	}{
		{"--internal", "pro", true, 7},
		{"--plan escala", "escala", true, 7},
		{"--per-minute 9", "escala", true, 9},
		{"--plan gratis --internal=false", "gratis", false, 9},
		{"--per-minute default", "gratis", false, 30},
		{"--plan internal", "internal", true, 60_000},
		{"--plan pro --per-minute 7", "pro", false, 7},
	} {
		mustJSON(t, nil, &organization,
			append(append([]string{"organization", "plan", a.organization.ID}, strings.Fields(c.args)...), at...)...)
		if organization.Plan != c.plan || organization.Internal != c.internal || organization.PerMinuteLimit != c.perMinute {
			t.Errorf("plan %s: %+v", c.args, organization)
		}
	}
	mustJSON(t, nil, &organization,
		append([]string{"organization", "limits", a.organization.ID, "--unfinalized", "20000"}, at...)...)
	if organization.UnfinalizedLimit != 20_000 || organization.Unfinalized != 0 || organization.PerMinuteLimit != 7 {
		t.Errorf("limits: %+v", organization)
	}
	mustJSON(t, nil, &organization,
		append([]string{"organization", "limits", a.organization.ID, "--unfinalized", "default"}, at...)...)
	if organization.UnfinalizedLimit != domain.MaxUnfinalized {
		t.Errorf("limits: %+v", organization)
	}
	for _, c := range []struct {
		words []string
		left  int64
	}{{[]string{"--versions", "5"}, 5}, {nil, 5}, {[]string{"--versions", "0"}, 0}} {
		var backfill struct{ Versions, Used, Remaining int64 }
		mustJSON(t, nil, &backfill, slices.Concat([]string{"organization", "backfill", a.organization.ID}, c.words, at)...)
		if backfill.Versions != c.left || backfill.Used != 0 || backfill.Remaining != c.left {
			t.Errorf("backfill %v: %+v", c.words, backfill)
		}
	}
	var organizations struct{ Organizations []operator.OrganizationView }
	mustJSON(t, nil, &organizations, append([]string{"organization", "list"}, at...)...)
	var companies struct{ Companies []operator.CompanyView }
	mustJSON(t, nil, &companies, with("company", "list")...)
	if len(organizations.Organizations) != 1 || len(companies.Companies) != 1 || companies.Companies[0] != a.company {
		t.Errorf("lists: %+v %+v", organizations, companies)
	}

	for _, c := range [][2]string{{"close", "closed"}, {"close", "closed"}, {"open", "active"}} {
		var company operator.CompanyView
		mustJSON(t, nil, &company, with("company", c[0], "c-7f3a")...)
		if company.ID != a.company.ID || string(company.Status) != c[1] || (company.ClosedAt != nil) != (c[1] == "closed") {
			t.Errorf("company %s: %+v", c[0], company)
		}
	}
	if r := integrity(t, nil, with("company", "close", "absent")...); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "no company with that reference") {
		t.Errorf("an absent company: %d %s", r.code, r.errs)
	}

	// The operator's own commands are in the history too, and a stopped ledger can be read.
	s.stop()
	var types []string
	for line := range strings.Lines(must(t, nil, with("replay")...)) {
		var e operator.EventView
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "ana@example.org") || strings.Contains(line, "Example GmbH") {
			t.Errorf("the log holds the name of a person or organization: %s", line)
		}
		types = append(types, string(e.Type))
	}
	end := []string{
		"organization.limits_changed", "organization.limits_changed", "organization.backfill_changed",
		"organization.backfill_changed", "company.status_changed", "company.status_changed",
	}
	if len(types) != 28 || types[0] != "organization.created" || !slices.Equal(types[len(types)-len(end):], end) {
		t.Errorf("history: %v", types)
	}
	wantClean(t, s.log, "c-7f3a", "ana@example.org", "Example GmbH", a.key.Key[30:])
}

// expireKey changes the projected time, because the shortest lifetime is longer than a test.
func expireKey(t *testing.T, dir, id, in string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	server, err := postgres.Attach(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tag, err := conn.Exec(ctx, "UPDATE api_keys SET expires_at = now() + $1::interval", in)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("expire %s: %v %v", id, tag, err)
	}
}

// TestOperatorRefusals requires clear messages and the right exit codes.
func TestOperatorRefusals(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	a := makeAccount(t, dir)
	in := append([]string{"--organization", a.organization.ID}, at...)
	unknown := "org_01m7xgk6epffy9mxnr16w1j000"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{
			append([]string{"organization", "create", "X", "--plan", "gold"}, at...), cli.ExitNegative,
			"must be one of escala, gratis, internal, pro",
		},
		{
			append([]string{"organization", "plan", unknown, "--plan", "pro"}, at...), cli.ExitNegative,
			"no organization with that id",
		},
		{append([]string{"organization", "plan", a.organization.ID}, at...), cli.ExitFailed, "at least one of"},
		{
			append([]string{"organization", "plan", a.organization.ID, "--per-minute", "many"}, at...), cli.ExitFailed,
			"must be default, or a number",
		},
		{
			append([]string{"organization", "plan", a.organization.ID, "--per-minute", "0"}, at...), cli.ExitNegative,
			"must be at least 1",
		},
		{
			append([]string{"company", "create", "service:webhook-test"}, in...), cli.ExitNegative,
			"must not be service:webhook-test",
		},
		{
			append([]string{"organization", "limits", unknown, "--unfinalized", "5"}, at...), cli.ExitNegative,
			"no organization with that id",
		},
		{
			append([]string{"organization", "limits", a.organization.ID, "--unfinalized", "0"}, at...), cli.ExitNegative,
			"at least 1",
		},
		{append([]string{"organization", "backfill", unknown}, at...), cli.ExitNegative, "no organization with that id"},
		{
			append([]string{"organization", "backfill", a.organization.ID, "--versions", "-1"}, at...), cli.ExitFailed,
			"must be a number from 0 to 1000000000",
		},
		{
			append([]string{"organization", "backfill", a.organization.ID, "--versions", "1000000001"}, at...), cli.ExitFailed,
			"must be a number from 0 to 1000000000",
		},
		{
			append([]string{"organization", "backfill", a.organization.ID, "--versions", "all"}, at...), cli.ExitFailed,
			"must be a number from 0 to 1000000000",
		},
		{
			append([]string{"member", "list", "--organization", unknown}, at...), cli.ExitNegative,
			"no organization with that id",
		},
		{
			append([]string{"member", "list", "--organization", "acme"}, at...), cli.ExitFailed,
			"--organization: must be an id of the form org_",
		},
		{append([]string{"member", "add", "--email", "Ana <ana@x>", "--role", "owner"}, in...), cli.ExitFailed, "--email"},
		{
			append([]string{"member", "add", "--email", "b@example.org", "--role", "boss"}, in...), cli.ExitFailed,
			"--role must be owner, admin, reviewer, analyst or viewer",
		},
		{append([]string{"member", "disable", "--email", "b@example.org"}, in...), cli.ExitNegative, "no such member"},
		{
			append([]string{"apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:everything"}, in...),
			cli.ExitFailed, "unknown scope",
		},
		{
			append([]string{
				"apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:read", "--expires", "731d",
			}, in...),
			cli.ExitFailed, "from 1h to 730d",
		},
		{
			append([]string{"apikey", "grant", a.key.ID, "--company", "other"}, at...), cli.ExitNegative,
			"integrity company create",
		},
		{append([]string{"apikey", "revoke", a.key.Key}, at...), cli.ExitFailed, "not the key's text"},
		{
			append([]string{"apikey", "revoke", a.key.ID, "--url", ""}, at...), cli.ExitFailed,
			"--url must be the address of a service",
		},
		{append([]string{"company", "create", "-a b"}, in...), cli.ExitFailed, ""},
		{append([]string{"keys", "generate"}, at...), cli.ExitFailed, "is not overwritten"},
		{append([]string{"organization", "burn"}, at...), cli.ExitFailed, ""},
		{[]string{"organization"}, cli.ExitFailed, "needs a subcommand"},
		{[]string{"unknown"}, cli.ExitFailed, "unknown"},
		{[]string{"verify", "receipt.json"}, cli.ExitFailed, "integrity verify RECEIPT TRUSTED [DOCUMENT]"},
		{append([]string{"migrate", "now"}, at...), cli.ExitFailed, "integrity migrate"},
	} {
		r := integrity(t, nil, c.args...)
		if r.code != c.code || r.errs == "" || r.out != "" || !strings.Contains(r.errs, c.says) {
			t.Errorf("integrity %v: want exit code %d and %q: %d %s%s", c.args, c.code, c.says, r.code, r.out, r.errs)
		}
		if strings.Contains(r.errs, a.key.Key) {
			t.Errorf("integrity %v quotes a key", c.args)
		}
	}
	s.stop()
}
