package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/handlers/wire"
)

// TestKeyLife makes a limited key, uses it, rotates it and asks what it has done.
func TestKeyLife(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	at := []string{"--data-dir", dir}
	s := start(t, dir)
	a := makeAccount(t, dir)
	in := append([]string{"--organization", a.organization.ID}, at...)
	with := func(words ...string) []string { return append(words, in...) }
	create := with("apikey", "create", "--member", "ana@example.org", "--scopes", "integrity:read,integrity:write,integrity:revoke", "--expires", "20d")

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
	mustJSON(t, nil, &key, append(create, "--source", "billing", "--network", "127.0.0.1/8", "--max-version-step", "3")...)
	if key.Source == nil || *key.Source != "billing" || key.Network == nil || *key.Network != "127.0.0.0/8" || key.MaxVersionStep == nil || *key.MaxVersionStep != 3 ||
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
	if status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records/"+record.PublicID+"/revoke", key.Key, struct{}{}, nil); err != nil || status != http.StatusOK {
		t.Errorf("revoke: %d %v", status, err)
	}

	var rotated operator.RotationView
	mustJSON(t, nil, &rotated, append([]string{"apikey", "rotate", key.ID, "--overlap", "1h", "--copy-grants", "--expires", "90d"}, at...)...)
	former := mustTime(t, rotated.FormerKey.ExpiresAt)
	if rotated.ID == key.ID || rotated.Key == "" || rotated.Key == key.Key || *rotated.Network != "127.0.0.0/8" || rotated.EndsSoon || len(rotated.GrantedTo) != 1 ||
		rotated.GrantedTo[0] != a.company.ID || former.After(time.Now().Add(time.Hour)) || former.Before(time.Now().Add(50*time.Minute)) {
		t.Errorf("rotated: %+v", rotated)
	}
	for _, text := range []string{key.Key, rotated.Key} {
		if r := register(text, "billing", "3"); r.code != cli.ExitOK || !strings.Contains(r.out, `"replayed": true`) {
			t.Errorf("during the overlap: %d %s", r.code, r.errs)
		}
	}
	var bare operator.RotationView
	mustJSON(t, nil, &bare, append([]string{"apikey", "rotate", rotated.ID, "--overlap", "0h"}, at...)...)
	if bare.FormerKey.RevokedAt == nil || len(bare.GrantedTo) != 0 {
		t.Errorf("rotated without an overlap: %+v", bare)
	}
	if r := register(rotated.Key, "billing", "3"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "INVALID_KEY") {
		t.Errorf("after the end: %d %s", r.code, r.errs)
	}
	if r := register(bare.Key, "billing", "3"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "COMPANY_NOT_AUTHORIZED") {
		t.Errorf("without grants: %d %s", r.code, r.errs)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitNegative, "has ended already", []string{"apikey", "rotate", rotated.ID}},
		{cli.ExitFailed, "from 0h to 30d", []string{"apikey", "rotate", bare.ID, "--overlap", "31d"}},
		{cli.ExitFailed, "not the text of the key", []string{"apikey", "rotate", bare.Key}},
		{cli.ExitFailed, "not the text of the key", []string{"apikey", "affected", bare.Key}},
		{cli.ExitNegative, "no API key with that id", []string{"apikey", "affected", "key_01m7xgk6epffy9mxnr16w1j000"}},
	} {
		if r := integrity(t, nil, append(c.args, at...)...); r.code != c.code || !strings.Contains(r.errs, c.says) || strings.Contains(r.errs, bare.Key) {
			t.Errorf("integrity %v: %d %s", c.args[:2], r.code, r.errs)
		}
	}

	affected := strings.Split(strings.TrimSpace(must(t, nil, append([]string{"apikey", "affected", key.ID, "--json"}, at...)...)), "\n")
	var types []string
	for _, line := range affected {
		var v operator.AffectedView
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.PublicID != record.PublicID || v.Actor != key.ID || v.Version == nil || *v.Version != 3 {
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

	// Uses are written down at the latest when the service stops; the next start warns of the keys that end soon.
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
	if len(used) != 4 || used[a.key.ID] || !used[key.ID] || !used[rotated.ID] || !used[bare.ID] {
		t.Errorf("last uses: %v", used)
	}
	eventually(t, "the warning of keys that end soon", func() error {
		if !strings.Contains(readLog(t, s), "API keys end within 30 days") {
			return errors.New("the log does not say so")
		}
		return nil
	})
	if out := must(t, nil, with("apikey", "list")...); strings.Count(out, "ENDS SOON") != 1 || !strings.Contains(out, "version step 3") {
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
