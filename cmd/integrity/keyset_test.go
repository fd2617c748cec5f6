package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// TestKeysPublish takes the trusted keys through a life: published, obtained with one pinned key, published again after
// a rotation, audited, rebuilt, exported, and changed in the database by someone who should not.
func TestKeysPublish(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir, "--demo", "--shards", "4")
	at := func(words ...string) []string { return append(words, "--data-dir", dir) }
	trustedPath := filepath.Join(dir, keyfiles.TrustedKeysFile)
	work := t.TempDir()

	var status operator.LogStatusView
	mustJSON(t, nil, &status, at("log", "status")...)
	if text := must(t, nil, at("log", "status")...); status.KeysPublished ||
		!strings.Contains(text, "WARNING: the trusted keys are not published in the transparency log: integrity keys pub") {
		t.Errorf("before: %+v %s", status, text)
	}
	wantFindings(t, examine(t, cli.ExitOK, nil, at()...),
		"warn transparency: the trusted keys are not published in the transparency log")

	var first, again, second operator.KeySetView
	mustJSON(t, nil, &first, at("keys", "publish")...)
	mustJSON(t, nil, &again, at("keys", "publish")...)
	if !first.Published || again.Published || again.Event != first.Event || again.SHA256 != first.SHA256 {
		t.Errorf("first %+v, again %+v", first, again)
	}
	if text := must(t, nil, at("keys", "publish", "--base-url", s.base)...); !strings.Contains(text, "nothing to do") ||
		!strings.Contains(text, s.base+"/api/public/log/keys") {
		t.Errorf("again: %s", text)
	}
	if text := must(t, nil, at("log", "status")...); strings.Contains(text, "not published") {
		t.Errorf("after: %s", text)
	}

	// One key, read to the auditor by telephone, is enough to obtain all others.
	trusted := trustedAt(t, dir)
	logKey := trusted.LogKeys()[0].VerifierKey
	proof, got := filepath.Join(work, "keys.tlog-proof"), filepath.Join(work, "got.json")
	fetch := func() { write(t, proof, string(s.provenKeys(t))) }
	fetch()
	published := filepath.Join(work, "published.json")
	write(t, published, string(fetched(t, s.base+"/.well-known/integrity-trusted-keys.json", "")))
	nowhere := []string{"INTEGRITY_DATABASE_URL=postgres://127.0.0.1:1/none", "INTEGRITY_DATA_DIR=/nonexistent"}
	text := must(t, nowhere, "verify-keys", proof, published, "--log-key", logKey, "--output", got)
	if !strings.Contains(text, trusted.Keys()[0].KeyID) || !strings.Contains(text, "has the same content") ||
		!strings.Contains(text, "no pinned witness") || !strings.Contains(text, "nor that no later ones were published") {
		t.Errorf("verify-keys: %s", text)
	}
	a, b := read(t, got), read(t, published)
	if !bytes.Equal(a, b) {
		t.Errorf("obtained\n%s\npublished\n%s", a, b)
	}
	must(t, nowhere, "verify-keys", proof, trustedPath, "--pinned", published)
	_, issuer, _ := strings.Cut(text, "published by ")
	issuer, _, _ = strings.Cut(issuer, " at ")
	must(t, nowhere, "verify-keys", proof, "--pinned", published, "--issuer", issuer)
	stranger, err := evidence.NewLogKey("other.example/log", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitFailed, "give --log-key, or --witness-key with --origin", nil},
		{cli.ExitNegative, "no pinned log key", []string{"--log-key", stranger.VerifierKey}},
		{cli.ExitNegative, "signed the checkpoint, not other.example/log", []string{"--log-key", logKey, "--origin", "other.example/log"}},
		{cli.ExitNegative, "the keys belong to the issuer ", []string{"--log-key", logKey, "--issuer", "https://other.example"}},
		{cli.ExitNegative, "needs cosignatures of pinned witnesses: 1, and has 0", []string{"--log-key", logKey, "--require-witnesses", "1"}},
		{cli.ExitFailed, "--require-witnesses", []string{"--log-key", logKey, "--require-witnesses", "-1"}},
		{cli.ExitFailed, "--log-key: ", []string{"--log-key", "no key"}},
	} {
		r := integrity(t, nowhere, append([]string{"verify-keys", proof}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.errs, c.says) {
			t.Errorf("%v: %d %s%s", c.args, r.code, r.out, r.errs)
		}
	}

	// A rotation is published again. The earlier file is another one now.
	must(t, nil, at("keys", "rotate", "--stage")...)
	s.reload()
	if text := must(t, nil, at("log", "status")...); !strings.Contains(text, "have changed since they were published") {
		t.Errorf("after --stage: %s", text)
	}
	mustJSON(t, nil, &second, at("keys", "publish")...)
	if !second.Published || second.SHA256 == first.SHA256 {
		t.Errorf("second %+v", second)
	}
	eventually(t, "the second set is proven", func() error {
		fetch()
		r := integrity(t, nowhere, "verify-keys", proof, published, "--log-key", logKey)
		if r.code != cli.ExitNegative || !strings.Contains(r.out, "DIFFERS") {
			return fmt.Errorf("%d %s%s", r.code, r.out, r.errs)
		}
		return nil
	})
	must(t, nowhere, "verify-keys", proof, trustedPath, "--log-key", logKey)

	// The installation is no tenant, and its history is audited, rebuilt and restored like any other.
	if list := must(t, nil, at("organization", "list")...); strings.Contains(list, domain.InstallationID.String()) {
		t.Errorf("the installation is a tenant: %s", list)
	}
	installation := domain.InstallationID.String()
	r := integrity(
		t, nil, at("member", "add", "--organization", installation, "--email", "a@b.example", "--role", "owner")...,
	)
	if r.code == cli.ExitOK {
		t.Errorf("a member of the installation: %+v", r)
	}
	audited := func(dir string) (view map[string]any, r result) {
		t.Helper()
		r = integrity(t, nil, "audit", "--json", "--data-dir", dir)
		if err := json.Unmarshal([]byte(r.out), &view); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return view, r
	}
	if view, r := audited(dir); view["clean"] != true || !strings.Contains(r.out, domain.InstallationID.String()) {
		t.Errorf("audit: %+v", r)
	}
	if out := must(t, nil, at("rebuild", "--check")...); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("rebuild --check: %s", out)
	}
	must(t, nil, at("rebuild")...)
	mustJSON(t, nil, &again, at("keys", "publish")...)
	if again.Published || again.Event != second.Event || again.LeafIndex == nil {
		t.Errorf("after a rebuild: %+v", again)
	}
	must(t, nil, at("log", "check")...)
	bundle := filepath.Join(work, "bundle")
	must(t, nil, at("export", "--organization", domain.InstallationID.String(), "--out", bundle)...)
	must(t, nowhere, "audit", bundle, "--trusted-keys", trustedPath)

	// A file that the service would refuse is not published.
	other, _ := keyDir(t)
	r = integrity(t, nil, at("keys", "publish", "--trusted-keys", filepath.Join(other, keyfiles.TrustedKeysFile))...)
	if r.code == cli.ExitOK || !strings.Contains(r.errs, "is not trusted by") {
		t.Errorf("a foreign file: %+v", r)
	}
	broken := filepath.Join(work, "broken.json")
	write(t, broken, `{"keys": []`)
	if r := integrity(t, nil, at("keys", "publish", "--trusted-keys", broken)...); r.code == cli.ExitOK {
		t.Errorf("a broken file: %+v", r)
	}

	// Another key in the published set: the leaf no longer fits, and the proof is refused.
	spoil(t, dir, "ALTER TABLE events DISABLE TRIGGER ALL",
		`UPDATE events SET data = convert_to(replace(convert_from(data, 'UTF8'), '"status":"active"', '"status":"retired"'), 'UTF8') WHERE type = 'keys.published'`)
	view, r := audited(dir)
	if view["clean"] == true || r.code != cli.ExitNegative || !strings.Contains(r.out, "recomputed from the stored") {
		t.Errorf("audit of a changed set: %+v", r)
	}
}

// provenKeys fetches the proof of the published keys, once a checkpoint covers them.
func (s *running) provenKeys(t *testing.T) (proof []byte) {
	t.Helper()
	eventually(t, "the published keys are proven", func() error {
		response, err := s.client.Get(s.base + "/api/public/log/keys")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(response.Body); err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %s %w", response.StatusCode, b.Bytes(), err)
		}
		proof = b.Bytes()
		return nil
	})
	return proof
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
