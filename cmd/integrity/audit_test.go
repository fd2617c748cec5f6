package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/bundle"
)

// TestAuditCommands audits as an auditor would: while the service runs, over a bundle, after a row was changed, and
// against an earlier bundle.
func TestAuditCommands(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir, "--demo")
	demo := s.demo()
	env := []string{config.VariableAPIKey + "=" + demo.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	register := func(version string) {
		must(
			t, env, "register", file, "--company", demo.CompanyReference, "--source", "s", "--document", "d", "--version",
			version,
		)
	}
	register("1")
	published := s.included(s.registerOne("published"))
	at := func(words ...string) []string { return append(words, "--data-dir", dir) }
	out := filepath.Join(t.TempDir(), "bundle")
	export := at("export", "--organization", demo.OrganizationID, "--out", out)
	var first, second operator.ExportView
	mustJSON(t, nil, &first, export...)
	register("2")
	if text := must(t, nil, at("audit", "--against", out)...); !strings.Contains(
		text, "verdict: everything that was checked is correct",
	) || !strings.Contains(text, "compared with a replay: ") || !strings.Contains(text, "; signatures checked: ") ||
		!strings.Contains(text, "any organization but "+demo.OrganizationID) || !strings.Contains(text, "history digest ") ||
		!strings.HasPrefix(text, "audit of ") || !strings.Contains(text, "agree with the stored tree and checkpoint") ||
		!strings.Contains(text, "were read from "+filepath.Join(dir, keyfiles.TrustedKeysFile)+" of this installation") {
		t.Errorf("audit: %s", text)
	}
	pinned := filepath.Join(dir, keyfiles.TrustedKeysFile)
	if text := must(t, nil, at("audit", "--trusted-keys", pinned)...); strings.Contains(text, "were read from") {
		t.Errorf("audit with pinned keys: %s", text)
	}
	former := filepath.Join(t.TempDir(), "former")
	if err := os.CopyFS(former, os.DirFS(out)); err != nil {
		t.Fatal(err)
	}
	mustJSON(t, nil, &second, export...)
	if second.Added != 2 || second.Events != first.Events+2 || second.HistorySHA256 == first.HistorySHA256 {
		t.Errorf("first %+v, second %+v", first, second)
	}
	nowhere := []string{"INTEGRITY_DATABASE_URL=postgres://127.0.0.1:1/none", "INTEGRITY_DATA_DIR=/nonexistent"}
	var view map[string]any
	r := integrity(
		t, nowhere, "audit", out, "--json", "--trusted-keys", filepath.Join(dir, keyfiles.TrustedKeysFile), "--against",
		former,
	)
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || r.code != cli.ExitOK || view["clean"] != true ||
		view["source"] != "bundle" || view["events"] != float64(second.Events) {
		t.Errorf("audit of the bundle: %v %d %s %s", err, r.code, r.out, r.errs)
	}
	checkpoint, err := os.ReadFile(filepath.Join(out, bundle.CheckpointFile))
	trusted, trustErr := keyfiles.ReadTrusted(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err := errors.Join(err, trustErr); err != nil {
		t.Fatal(err)
	}
	if c, err := evidence.OpenCheckpoint(string(checkpoint), trusted); err != nil || c.Size < published.N {
		t.Errorf("the bundle's checkpoint: %v, of %d leaves where %d were published before", err, c.Size, published.N)
	}
	write(t, filepath.Join(former, bundle.CheckpointFile), string(checkpoint)+"\n")
	if r := integrity(t, nowhere, "audit", former); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "file: "+bundle.CheckpointFile) {
		t.Errorf("another checkpoint: %d %s %s", r.code, r.out, r.errs)
	}
	if r := integrity(t, nowhere, "audit", former, "--against", out); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "restored to an earlier state") {
		t.Errorf("the former against the later: %d %s %s", r.code, r.out, r.errs)
	}
	s.stop() // it would repair none of this, and sign no checkpoint over it
	spoil(
		t, dir, "UPDATE transparency_tiles SET hashes = set_byte(hashes, 0, get_byte(hashes, 0) # 1)",
		"UPDATE transparency_checkpoint SET note = replace(note, ' ', '  ')",
	)
	if r := integrity(t, nil, at("audit")...); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "log: transparency_tree: expected the tree") ||
		!strings.Contains(r.out, "log: transparency_checkpoint: expected a checkpoint") {
		t.Errorf("of a changed log: %d %s %s", r.code, r.out, r.errs)
	}
	spoil(t, dir, "UPDATE transparency_tiles SET hashes = set_byte(hashes, 0, get_byte(hashes, 0) # 1)")
	if r := integrity(t, nil, at("log", "check")...); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "log: transparency_checkpoint: expected a checkpoint") {
		t.Errorf("log check of a changed checkpoint: %d %s %s", r.code, r.out, r.errs)
	}
	spoil(t, dir, "UPDATE documents SET highest_version = 9", "UPDATE usage SET used = used + 1")
	if r := integrity(t, nil, at("audit", "--organization", demo.OrganizationID)...); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "a different value in [highest_version]") ||
		!strings.Contains(r.out, "a different value in [used]") {
		t.Errorf("of changed tables: %d %s %s", r.code, r.out, r.errs)
	}
	for want, words := range map[string][]string{
		"no such file":                     {"audit", "/nonexistent"},
		"--against: bundle /nonexistent: ": {"audit", "--against", "/nonexistent"},
		"org_":                             {"audit", "--organization", "org_x"},
		"--organization: the bundle belongs to ": {
			"audit", out, "--organization", "org_01m7zv4mqaeps8r8k7qpkta000",
		},
		"give --organization and --out for a bundle": {"export", "--organization", demo.OrganizationID},
		"There is no organization with that id": {
			"export", "--organization", "org_01m7zv4mqaeps8r8k7qpkta000", "--out", filepath.Join(out, "x"),
		},
		"it holds another bundle, of " + demo.OrganizationID: {
			"export", "--without-texts", "--organization", demo.OrganizationID, "--out", out,
		},
	} {
		if r := integrity(t, nil, at(words...)...); r.code == cli.ExitOK || !strings.Contains(r.errs, want) {
			t.Errorf("%v: %d %s", words, r.code, r.errs)
		}
	}
}
