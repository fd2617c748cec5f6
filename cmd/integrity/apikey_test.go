package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// TestKeyLife creates a limited key, uses it, rotates it and lists its acts.
func TestKeyLife(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	a := makeAccount(t, dir)
	in := append([]string{"--organization", a.organization.ID}, at...)
	with := func(words ...string) []string { return append(words, in...) }
	create := with(
		"apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:read,integrity:write,integrity:revoke",
		"--expires", "20d",
	)

	for says, flags := range map[string][]string{
		"--source":           {"--source", "not a reference"},
		"--network":          {"--network", "192.0.2.0/33"},
		"--max-version-step": {"--max-version-step", "0"},
		"from 1h to 730d":    {"--expires", "1m"},
	} {
		if r := integrity(t, nil, append(create, flags...)...); r.code != cli.ExitFailed || !strings.Contains(r.errs, says) {
			t.Errorf("apikey create %v: %d %s", flags, r.code, r.errs)
		}
	}
	var key operator.KeyView
	mustJSON(t, nil, &key,
		append(
			create, "--source", "billing", "--network", "127.0.0.1/8,192.0.2.0/24", "--max-version-step", "3", "--name",
			"emission",
		)...)
	if key.Source == nil || *key.Source != "billing" ||
		!slices.Equal(key.Networks, []string{"127.0.0.0/8", "192.0.2.0/24"}) || key.Name == nil ||
		*key.Name != "emission" || key.MaxVersionStep == nil || *key.MaxVersionStep != 3 ||
		!key.EndsSoon || key.LastUsedAt != nil || key.Key == "" {
		t.Errorf("key: %+v", key)
	}
	must(t, nil, append([]string{"apikey", "grant", key.ID, "--company", "c-7f3a"}, at...)...)
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	register := func(key, source, version string) result {
		return integrity(t, []string{config.VariableAPIKey + "=" + key, config.VariableBaseURL + "=" + s.base},
			"register", file, "--company", "c-7f3a", "--source", source, "--version", version, "--json")
	}
	if r := register(key.Key, "payroll", "1"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "/source") {
		t.Errorf("another source: %d %s", r.code, r.errs)
	}
	if r := register(key.Key, "billing", "4"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "/version") {
		t.Errorf("a version too far: %d %s", r.code, r.errs)
	}
	registered := register(key.Key, "billing", "3")
	var record wire.Registration
	if err := json.Unmarshal([]byte(registered.out), &record); err != nil || registered.code != cli.ExitOK {
		t.Fatalf("register: %+v %v", registered, err)
	}
	if status, err := call(
		plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records/"+record.PublicID+"/revoke", key.Key, struct{}{},
		nil,
	); err != nil || status != http.StatusOK {
		t.Errorf("revoke: %d %v", status, err)
	}

	var rotated operator.RotationView
	mustJSON(t, nil, &rotated,
		append([]string{"apikey", "rotate", key.ID, "--overlap", "1h", "--copy-grants", "--expires", "90d"}, at...)...)
	former := mustTime(t, rotated.FormerKey.ExpiresAt)
	if rotated.ID == key.ID || rotated.Key == "" || rotated.Key == key.Key || len(rotated.Networks) != 2 ||
		*rotated.Name != "emission" || rotated.EndsSoon ||
		!slices.Equal(rotated.Grants.Companies, []string{a.company.Reference}) || former.After(time.Now().Add(time.Hour)) ||
		former.Before(time.Now().Add(50*time.Minute)) {
		t.Errorf("rotated: %+v", rotated)
	}
	for _, text := range []string{key.Key, rotated.Key} {
		if r := register(text, "billing", "3"); r.code != cli.ExitOK || !strings.Contains(r.out, `"replayed": true`) {
			t.Errorf("during the overlap: %d %s", r.code, r.errs)
		}
	}
	var bare operator.RotationView
	mustJSON(t, nil, &bare, append([]string{"apikey", "rotate", rotated.ID, "--overlap", "0h"}, at...)...)
	if bare.FormerKey.RevokedAt == nil || len(bare.Grants.Companies) != 0 {
		t.Errorf("rotated without an overlap: %+v", bare)
	}
	if r := register(rotated.Key, "billing", "3"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "INVALID_KEY") {
		t.Errorf("after the end: %d %s", r.code, r.errs)
	}
	if r := register(bare.Key, "billing", "3"); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "COMPANY_NOT_AUTHORIZED") {
		t.Errorf("without grants: %d %s", r.code, r.errs)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitNegative, "has ended already", []string{"apikey", "rotate", rotated.ID}},
		{cli.ExitFailed, "from 0h to 30d", []string{"apikey", "rotate", bare.ID, "--overlap", "31d"}},
		{cli.ExitFailed, "not the key's text", []string{"apikey", "rotate", bare.Key}},
		{cli.ExitFailed, "not the key's text", []string{"apikey", "affected", bare.Key}},
		{cli.ExitNegative, "no API key with that id", []string{"apikey", "affected", "key_01m7xgk6epffy9mxnr16w1j000"}},
	} {
		if r := integrity(t, nil, append(c.args, at...)...); r.code != c.code || !strings.Contains(r.errs, c.says) ||
			strings.Contains(r.errs, bare.Key) {
			t.Errorf("integrity %v: %d %s", c.args[:2], r.code, r.errs)
		}
	}

	affected := strings.Split(
		strings.TrimSpace(must(t, nil, append([]string{"apikey", "affected", key.ID, "--json"}, at...)...)), "\n",
	)
	var types []string
	for _, line := range affected {
		var v operator.AffectedView
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.PublicID != record.PublicID || v.Actor != key.ID ||
			v.Version == nil || *v.Version != 3 {
			t.Errorf("affected: %s %v", line, err)
		}
		types = append(types, v.Type)
	}
	if strings.Join(types, " ") != "registered revoked" {
		t.Errorf("affected: %v", affected)
	}
	if out := must(t, nil, append([]string{"apikey", "affected", a.key.ID}, at...)...); out != "" {
		t.Errorf("a key that did nothing: %s", out)
	}

	apikeysOverAPI(t, s, a, bare.Key, in)

	// Uses are saved when the service stops, at the latest. The next start warns of keys that expire soon.
	s.stop()
	s = start(t, dir)
	var list struct{ Keys []operator.KeyView }
	mustJSON(t, nil, &list, with("apikey", "list")...)
	used := map[string]bool{}
	for _, k := range list.Keys {
		used[k.ID] = k.LastUsedAt != nil
		if k.LastUsedAt != nil && mustTime(t, *k.LastUsedAt).Second() != 0 {
			t.Errorf("last use %s", *k.LastUsedAt)
		}
	}
	if len(used) != 7 || used[a.key.ID] || !used[key.ID] || !used[rotated.ID] || !used[bare.ID] {
		t.Errorf("last uses: %v", used)
	}
	eventually(t, "the warning of keys that end soon", func() error {
		if !strings.Contains(readLog(t, s), "API keys expire within 30 days") {
			return errors.New("the log does not say so")
		}
		return nil
	})
	if out := must(t, nil, with("apikey", "list")...); strings.Count(out, "ENDS SOON") != 1 ||
		!strings.Contains(out, "version step 3") {
		t.Errorf("list: %s", out)
	}
	wantClean(t, s.log, key.Key, rotated.Key, bare.Key, "c-7f3a")
	s.stop()
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// apikeysOverAPI does with an organization's own key what the operator does with the database. It leaves three keys,
// one of which works.
func apikeysOverAPI(t *testing.T, s *running, a account, worker string, in []string) {
	t.Helper()
	must(t, nil, append([]string{"member", "add", "--email", "owner@example.org", "--role", "owner"}, in...)...)
	var admin operator.KeyView
	mustJSON(t, nil, &admin, append([]string{
		"apikey", "create", "--member", "owner@example.org", "--scopes",
		"organization:admin,integrity:admin,integrity:read,integrity:write", "--expires", "60d",
	}, in...)...)
	env := []string{config.VariableAPIKey + "=" + admin.Key}
	url := []string{"--url", s.base}
	api := func(words ...string) []string { return append(words, url...) }

	var made operator.KeyView
	mustJSON(t, env, &made,
		api(
			"apikey", "create", "--name", "over the API", "--scopes", "integrity:read", "--company", a.company.Reference,
			"--network", "127.0.0.0/8", "--max-version-step", "2",
		)...)
	if made.Key == "" || *made.Name != "over the API" ||
		!slices.Equal(made.Grants.Companies, []string{a.company.Reference}) ||
		!slices.Equal(made.Networks, []string{"127.0.0.0/8"}) ||
		*made.MaxVersionStep != 2 || made.ExpiresAt != admin.ExpiresAt {
		t.Errorf("made: %+v", made)
	}
	must(t, []string{config.VariableAPIKey + "=" + made.Key},
		append([]string{"changes", "--company", a.company.Reference}, url...)...)
	var rotated operator.RotationView
	mustJSON(t, env, &rotated, api("apikey", "rotate", made.ID, "--overlap", "0h", "--copy-grants", "--expires", "10d")...)
	if rotated.Key == "" || rotated.FormerKey.ID != made.ID || rotated.FormerKey.RevokedAt == nil ||
		len(rotated.Grants.Companies) != 1 || !rotated.EndsSoon {
		t.Errorf("rotated: %+v", rotated)
	}
	if out := must(t, env, api("apikey", "revoke", rotated.ID)...); !strings.Contains(out, rotated.ID) ||
		!strings.Contains(out, "revoked ") {
		t.Errorf("revoked: %s", out)
	}
	// Both ways show the same keys.
	var ours, theirs struct{ Keys []operator.KeyView }
	mustJSON(t, nil, &ours, append([]string{"apikey", "list"}, in...)...)
	mustJSON(t, env, &theirs, api("apikey", "list")...)
	var ourKey, theirKey operator.KeyView
	mustJSON(t, nil, &ourKey, append([]string{"apikey", "show", made.ID}, in[2:]...)...)
	mustJSON(t, env, &theirKey, api("apikey", "show", made.ID)...)
	for i, k := range append(ours.Keys, ourKey) {
		all := append(theirs.Keys, theirKey)
		if k.OrganizationID = ""; len(all) != len(ours.Keys)+1 || !reflect.DeepEqual(k, all[i]) || k.Key != "" {
			t.Errorf("the database shows %+v, the service %+v", k, all)
			break
		}
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitFailed, "--organization applies to the database only", api("apikey", "list", "--organization", a.organization.ID)},
		{
			cli.ExitFailed, "--member applies to the database only",
			api("apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:read"),
		},
		{cli.ExitFailed, "--data-dir applies to the database only", api("apikey", "show", made.ID, "--data-dir", s.dir)},
		{cli.ExitFailed, "--name must be", api("apikey", "create", "--scopes", "integrity:read")},
		{cli.ExitFailed, "with --organization, or its service with --url", append([]string{"apikey", "list"}, in[2:]...)},
		{
			cli.ExitFailed, "name the member with --member",
			append([]string{"apikey", "create", "--scopes", "integrity:read"}, in...),
		},
		{cli.ExitFailed, "not the key's text", api("apikey", "revoke", made.Key)},
		{cli.ExitNegative, "MISSING_SCOPE", api("apikey", "create", "--name", "more", "--scopes", "integrity:revoke")},
		{
			cli.ExitNegative, "/expiresAt",
			api("apikey", "create", "--name", "longer", "--scopes", "integrity:read", "--expires", "90d"),
		},
		{cli.ExitNegative, "NOT_FOUND", api("apikey", "show", "key_01m7xgk6epffy9mxnr16w1j000")},
	} {
		if r := integrity(t, env, c.args...); r.code != c.code || !strings.Contains(r.errs, c.says) || r.out != "" ||
			strings.Contains(r.errs, made.Key) {
			t.Errorf("integrity %v: %+v", c.args, r)
		}
	}
	if r := integrity(t, []string{config.VariableAPIKey + "=" + worker},
		api("apikey", "list")...); r.code != cli.ExitNegative || !strings.Contains(r.errs, "MISSING_SCOPE") {
		t.Errorf("a worker's key: %+v", r)
	}

	var invited operator.InvitationView
	mustJSON(t, env, &invited, api("member", "invite", "--email", "new@example.org", "--role", "reviewer")...)
	if invited.InvitationURLs == nil || invited.Mailed || invited.Renewed || invited.Status != domain.MemberInvited {
		t.Errorf("invited: %+v", invited)
	}
	if out := must(t, nil,
		append([]string{"member", "invite", "--email", "other@example.org", "--role", "viewer"},
			in...)...); strings.Count(out, "/invitation/") != 2 || !strings.Contains(out, "(viewer, invited until ") {
		t.Errorf("invited by the operator: %s", out)
	}
	var members, listed struct{ Members []operator.MemberView }
	mustJSON(t, nil, &members, append([]string{"member", "list"}, in...)...)
	mustJSON(t, env, &listed, api("member", "list")...)
	for i, m := range members.Members {
		if m.OrganizationID = ""; len(listed.Members) != len(members.Members) || !reflect.DeepEqual(m, listed.Members[i]) {
			t.Errorf("the database shows %+v, the service %+v", m, listed.Members)
			break
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"ana@example.org  (reviewer, active)", api("member", "role", "--email", "ana@example.org", "--role", "reviewer")},
		{"ana@example.org  (reviewer, disabled)", api("member", "disable", "--email", "ana@example.org")},
		{"ana@example.org  (reviewer, active)", api("member", "enable", "--member", "ana@example.org")},
		{"ana@example.org  (admin, active)", api("member", "role", "--email", "ana@example.org", "--role", "admin")},
		{"new@example.org  (reviewer, ended)", api("member", "end", "--member", invited.ID)},
	} {
		if out := must(t, env, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("integrity %v: %s", c.args, out)
		}
	}
	for says, args := range map[string][]string{
		"INVALID_STATE":               api("member", "end", "--email", "owner@example.org"),
		"no member with this address": api("member", "end", "--email", "nobody@example.org"),
	} {
		if r := integrity(t, env, args...); r.code != cli.ExitNegative || !strings.Contains(r.errs, says) {
			t.Errorf("integrity %v: %+v", args, r)
		}
	}
	wantClean(t, s.log, made.Key, rotated.Key, "new@example.org")
}
