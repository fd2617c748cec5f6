package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// keyDir returns a data directory with generated keys and no database.
func keyDir(t *testing.T) (dir string, first operator.PublishedKey) {
	t.Helper()
	dir = dataDir(t)
	mustJSON(t, nil, &first, "keys", "generate", "--data-dir", dir)
	return dir, first
}

func trustedAt(t *testing.T, dir string) *evidence.TrustedKeys {
	t.Helper()
	keys, err := keyfiles.ReadTrusted(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func trusts(keys *evidence.TrustedKeys, id string) bool {
	_, trusted := keys.Lookup(id)
	return trusted
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestKeysFiles takes the key files through a rotation without any server.
func TestKeysFiles(t *testing.T) {
	t.Parallel()
	dir, first := keyDir(t)
	trustedPath, nextPath := filepath.Join(dir, keyfiles.TrustedKeysFile), filepath.Join(dir, "signing-key.next.pem")
	if err := os.Chmod(trustedPath, 0o640); err != nil {
		t.Fatal(err)
	}
	at := func(words ...string) []string { return append(words, "--data-dir", dir) }
	refused := func(code int, says string, args ...string) {
		t.Helper()
		if r := integrity(t, nil, args...); r.code != code || !strings.Contains(r.errs, says) || r.out != "" {
			t.Errorf("integrity %v: %d %s%s, want %d %q", args, r.code, r.out, r.errs, code, says)
		}
	}
	refused(cli.ExitFailed, "stage activate", at("keys", "rotate")...)
	refused(cli.ExitFailed, "stage activate", at("keys", "rotate", "--stage", "--activate")...)
	refused(cli.ExitFailed, "no key is staged", at("keys", "rotate", "--activate")...)
	refused(cli.ExitNegative, "replace it first", append(at("keys", "retire"), "--", first.KeyID)...)
	refused(cli.ExitNegative, "not among the trusted keys", append(at("keys", "retire"), "--", strings.Repeat("A", 43))...)
	refused(cli.ExitNegative, "not among the trusted keys",
		append(at("keys", "compromise"), "--", strings.Repeat("A", 43))...)
	refused(cli.ExitFailed, "--since must be a time in the past",
		append(at("keys", "compromise", "--since", "2999-01-01T00:00:00Z"), "--", first.KeyID)...)
	refused(cli.ExitFailed, "--reason", append(at("keys", "compromise", "--reason", "lost"), "--", first.KeyID)...)

	var staged, again, activated operator.RotatedKey
	mustJSON(t, nil, &staged, at("keys", "rotate", "--stage")...)
	mustJSON(t, nil, &again, at("keys", "rotate", "--stage")...) // as after an interruption
	if staged.KeyID == first.KeyID || again.KeyID != staged.KeyID || staged.Step != "staged" ||
		staged.SigningKeyID == nil || *staged.SigningKeyID != first.KeyID {
		t.Errorf("staged %+v, then %+v", staged, again)
	}
	if mode(t, trustedPath) != 0o640 || mode(t, nextPath) != 0o600 {
		t.Errorf("modes: %o, %o", mode(t, trustedPath), mode(t, nextPath))
	}
	if out := must(t, nil, at("keys", "list")...); strings.Count(out, "  signs\n") != 1 ||
		strings.Count(out, "  staged\n") != 1 {
		t.Errorf("list: %s", out)
	}
	// Interrupted between writing the private key and the trusted keys: the same key is used.
	only, err := evidence.NewTrustedKeys(trustedAt(t, dir).Keys()[:1], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfiles.WriteTrusted(trustedPath, only); err != nil {
		t.Fatal(err)
	}
	refused(cli.ExitFailed, "is not trusted", at("keys", "rotate", "--activate")...)
	mustJSON(t, nil, &again, at("keys", "rotate", "--stage")...)
	if again.KeyID != staged.KeyID || len(trustedAt(t, dir).Keys()) != 2 {
		t.Errorf("staged again: %+v", again)
	}

	mustJSON(t, nil, &activated, at("keys", "rotate", "--activate")...)
	signer, err := new(keyfiles.Source).ReadSigner(filepath.Join(dir, keyfiles.SigningKeyFile))
	if err != nil || !keyfiles.Named(signer, staged.KeyID) || activated.KeyID != staged.KeyID ||
		activated.FormerKeyID == nil || *activated.FormerKeyID != first.KeyID {
		t.Errorf("activated: %+v, %v, %v", activated, signer, err)
	}
	previousPath := filepath.Join(dir, "signing-key.previous.pem")
	if previous, err := new(keyfiles.Source).ReadSigner(previousPath); err != nil || !keyfiles.Named(previous, first.KeyID) ||
		mode(t, previousPath) != 0o600 {
		t.Errorf("the former key: %v, %v", previous, err)
	}
	refused(cli.ExitFailed, "no key is staged", at("keys", "rotate", "--activate")...)

	for range 2 { // repeating changes nothing
		retired := retireKey(t, nil, dir, first.KeyID)
		if retired.Status != evidence.KeyRetired || retired.Since == nil {
			t.Errorf("retired: %+v", retired)
		}
	}
	if _, err := os.Stat(previousPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private half of a retired key: %v", err)
	}
	if trusted := trustedAt(t, dir); !trusts(trusted, first.KeyID) || !trusts(trusted, staged.KeyID) {
		t.Error("a retired key is not trusted any more")
	}
	if mode(t, trustedPath) != 0o640 {
		t.Errorf("mode %o", mode(t, trustedPath))
	}
	// Abandon a staged key.
	mustJSON(t, nil, &staged, at("keys", "rotate", "--stage")...)
	retireKey(t, nil, dir, staged.KeyID)
	if _, err := os.Stat(nextPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private half of a key that was given up: %v", err)
	}
	if entries, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(entries) != 0 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}

// TestKeysOfALeak: a rotation does not keep the private half of a compromised key, nor advises to retire it, and a
// compromise removes the one that a rotation has kept.
func TestKeysOfALeak(t *testing.T) {
	t.Parallel()
	env := []string{"INTEGRITY_DATABASE_URL=" + foreignDatabase(t.Context(), t)}
	dir, first := keyDir(t)
	must(t, env, "migrate", "--issuer", "ledger-of-the-test")
	at := func(words ...string) []string { return append(words, "--data-dir", dir) }
	previousPath := filepath.Join(dir, "signing-key.previous.pem")

	must(t, env, append(at("keys", "compromise"), "--", first.KeyID)...)
	must(t, env, at("keys", "rotate", "--stage")...)
	if out := must(t, env, at("keys", "rotate", "--activate")...); strings.Contains(out, "keys retire") ||
		!strings.Contains(out, "The former key is revoked") {
		t.Errorf("activated after a compromise: %s", out)
	}
	if keyfiles.Exists(previousPath) {
		t.Error("the private half of a compromised key was kept")
	}

	var staged, activated operator.RotatedKey
	mustJSON(t, env, &staged, at("keys", "rotate", "--stage")...)
	mustJSON(t, env, &activated, at("keys", "rotate", "--activate")...)
	former := *staged.SigningKeyID
	if activated.FormerKeyID == nil || *activated.FormerKeyID != former || !keyfiles.Exists(previousPath) {
		t.Errorf("activated: %+v", activated)
	}
	must(t, env, append(at("keys", "compromise"), "--", former)...)
	if keyfiles.Exists(previousPath) {
		t.Error("a compromise left the private half of the former key")
	}
}

// TestLogKeyIsNamedAfterTheLedger: the first log key of an external database needs no issuer beside the ledger's, and
// another issuer in the settings does not name it.
func TestLogKeyIsNamedAfterTheLedger(t *testing.T) {
	t.Parallel()
	dir, _ := keyDir(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + foreignDatabase(t.Context(), t), "INTEGRITY_DATA_DIR=" + dir}
	must(t, env, "migrate", "--issuer", "ledger-of-the-test")
	if r := integrity(t, env, "keys", "rotate", "--transparency-log", "--activate"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "no key is staged") {
		t.Errorf("activate before a key is staged: %d %s", r.code, r.errs)
	}
	var staged, again, activated struct{ Name, KeyHash string }
	mustJSON(t, env, &staged, "keys", "rotate", "--transparency-log", "--stage")
	mustJSON(t, env, &again, "keys", "rotate", "--transparency-log", "--stage", "--issuer", "https://other.example")
	mustJSON(t, env, &activated, "keys", "rotate", "--transparency-log", "--activate")
	if staged.Name != "ledger-of-the-test/log" || again != staged || activated != staged {
		t.Errorf("staged %+v, then %+v, activated %+v", staged, again, activated)
	}
}

// retireKey puts -- before the ID, which may begin with a hyphen.
func retireKey(t *testing.T, env []string, dir, id string) (v operator.PublishedKey) {
	t.Helper()
	if err := json.Unmarshal(
		[]byte(must(t, env, "keys", "retire", "--data-dir", dir, "--json", "--", id)), &v,
	); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestKeysCommandsDoNotInterleave runs many commands at once: only one key is staged, and no file is ever seen half
// written.
func TestKeysCommandsDoNotInterleave(t *testing.T) {
	t.Parallel()
	dir, first := keyDir(t)
	var wg sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		wg.Go(func() {
			r := integrity(t, nil, "keys", "rotate", "--stage", "--json", "--data-dir", dir)
			var v operator.RotatedKey
			if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != cli.ExitOK {
				t.Errorf("stage: %d %s %v", r.code, r.errs, err)
			}
			ids[i] = v.KeyID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == first.KeyID {
			t.Errorf("several keys were staged: %v", ids)
			break
		}
	}
	if n := len(trustedAt(t, dir).Keys()); n != 2 {
		t.Errorf("%d trusted keys", n)
	}
	activated := make([]int, 3)
	for i := range activated {
		wg.Go(func() { activated[i] = integrity(t, nil, "keys", "rotate", "--activate", "--data-dir", dir).code })
	}
	wg.Wait()
	if n := fmt.Sprint(activated); strings.Count(n, "0") != 1 {
		t.Errorf("want one activation: %s", n)
	}
	if signer, err := new(keyfiles.Source).ReadSigner(filepath.Join(dir, keyfiles.SigningKeyFile)); err != nil ||
		!keyfiles.Named(signer, ids[0]) {
		t.Errorf("signing key: %v %v", signer, err)
	}
}

// TestKeyInAVariable: no command can replace a key in a variable. A new key can be staged, and the command notices when
// the variable holds it.
func TestKeyInAVariable(t *testing.T) {
	t.Parallel()
	dir, first := keyDir(t)
	path := filepath.Join(dir, keyfiles.SigningKeyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	env := func(key []byte) []string { return []string{"INTEGRITY_SIGNING_KEY=" + string(key)} }
	var staged operator.RotatedKey
	mustJSON(t, env(text), &staged, "keys", "rotate", "--stage", "--data-dir", dir)
	if r := integrity(t, env(text), "keys", "rotate", "--activate", "--data-dir", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "INTEGRITY_SIGNING_KEY") {
		t.Errorf("activate: %d %s", r.code, r.errs)
	}
	next, err := os.ReadFile(filepath.Join(dir, "signing-key.next.pem"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, env(next), "keys", "rotate", "--activate", "--data-dir", dir)
	retireKey(t, env(next), dir, first.KeyID)
	if !trusts(trustedAt(t, dir), staged.KeyID) {
		t.Error("the new key is not trusted")
	}
}

// TestKeyFileInAVariable rotates the file in INTEGRITY_SIGNING_KEY_FILE, as root for another user's service: the owner
// stays, and a service that reloads its files signs with the new key.
func TestKeyFileInAVariable(t *testing.T) {
	t.Parallel()
	dir, first := keyDir(t)
	secrets := filepath.Join(filepath.Dir(dir), "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	signing := filepath.Join(secrets, "key")
	if err := os.Rename(filepath.Join(dir, keyfiles.SigningKeyFile), signing); err != nil {
		t.Fatal(err)
	}
	// The trusted-keys file is a symbolic link, like a mounted configuration; the link stays.
	mounted := filepath.Join(secrets, "trusted.json")
	if err := errors.Join(
		os.Rename(filepath.Join(dir, keyfiles.TrustedKeysFile), mounted),
		os.Symlink(mounted, filepath.Join(dir, keyfiles.TrustedKeysFile)),
	); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	owner := uint32(os.Geteuid())
	if owner == 0 {
		owner = nobody
		if err := errors.Join(os.Chown(signing, nobody, nobody), os.Chown(mounted, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"INTEGRITY_SIGNING_KEY_FILE=" + signing}
	a := &app{&cli.App{Environ: env}}
	c := a.serveCommand()
	if err := c.Flags().Set("data-dir", dir); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(a.App, c)
	if err != nil {
		t.Fatal(err)
	}
	signs := func(id string) {
		t.Helper()
		signer, _, why, err := cfg.SigningSource().Read()
		if err != nil || !keyfiles.Named(signer, id) {
			t.Errorf("%v signs, %v %v, want %s", signer, why, err, id)
		}
		for _, path := range []string{signing, mounted} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Sys().(*syscall.Stat_t).Uid; got != owner {
				t.Errorf("%s belongs to %d, want %d", path, got, owner)
			}
		}
	}
	signs(first.KeyID)
	var staged operator.RotatedKey
	mustJSON(t, env, &staged, "keys", "rotate", "--stage", "--data-dir", dir)
	signs(first.KeyID)
	must(t, env, "keys", "rotate", "--activate", "--data-dir", dir)
	signs(staged.KeyID)
	retireKey(t, env, dir, first.KeyID)
	signs(staged.KeyID)
	if target, err := os.Readlink(filepath.Join(dir, keyfiles.TrustedKeysFile)); err != nil || target != mounted {
		t.Errorf("the link: %s %v", target, err)
	}
}

// hangUp makes a server reload its key files, and waits until its log says so.
func hangUp(t *testing.T, s *running) {
	t.Helper()
	before := strings.Count(readLog(t, s), "key files reloaded")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keys are read again", func() error {
		if strings.Count(readLog(t, s), "key files reloaded") == before {
			return errors.New("the log does not say so")
		}
		return nil
	})
}

// TestKeyRotation takes two server processes on one database through a rotation, one step apart, and then loses a key.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	theirs := foreignDatabase(ctx, t)
	dir, first := keyDir(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + theirs}
	// Two logs, one for each server.
	one := surroundings{env: env}.start(t, dir, "--issuer", "ledger-of-the-test")
	twoDir := dataDir(t)
	two := surroundings{env: env}.start(t, twoDir, "--trusted-keys", filepath.Join(dir, keyfiles.TrustedKeysFile),
		"--data-dir", dir) // the last value of a repeated flag counts
	key := externalAccount(t, env)
	client := plainHTTP()

	signed := map[string][]string{} // public IDs by keyId
	version := 0
	register := func(s *running, want string) {
		t.Helper()
		version++
		var record wire.Registration
		status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/records", key, wire.Declaration{
			CompanyReference: "c", Source: "s", DocumentReference: fmt.Sprintf("d-%d", version), Version: 1,
			SHA256:    strings.Repeat("ab", 32),
			SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
		}, &record)
		if want == "" {
			if err != nil || status != http.StatusServiceUnavailable {
				t.Errorf("without a trusted key: %d %v", status, err)
			}
			return
		}
		if err != nil || status != http.StatusCreated {
			t.Fatalf("register: %d %v", status, err)
		}
		signed[want] = append(signed[want], record.PublicID)
	}
	compare := func(revoked string) {
		t.Helper()
		for keyID, records := range signed {
			for _, id := range records {
				for _, s := range []*running{one, two} {
					var view struct {
						Result, KeyID string
						Checks        struct{ Signature string }
					}
					status, err := call(
						client, http.MethodGet, s.base+"/api/public/integrity/"+id+"?sha256="+strings.Repeat("ab", 32), "", nil, &view,
					)
					want, signature := "MATCH_CURRENT", "valid"
					if keyID == revoked {
						want, signature = "SIGNATURE_INVALID", "untrusted"
					}
					if err != nil || status != http.StatusOK || view.KeyID != keyID || view.Result != want ||
						view.Checks.Signature != signature {
						t.Errorf("signed by %s: %d %+v %v, want %s", keyID, status, view, err, want)
					}
				}
			}
		}
	}
	at := func(words ...string) []string { return append(words, "--data-dir", dir) }
	var staged operator.RotatedKey
	mustJSON(t, env, &staged, at("keys", "rotate", "--stage")...)
	register(one, first.KeyID) // before it has reloaded the files
	hangUp(t, one)
	hangUp(t, two)
	register(one, first.KeyID)
	must(t, env, at("keys", "rotate", "--activate")...)
	hangUp(t, one)
	register(one, staged.KeyID)
	register(two, first.KeyID) // in the middle of the rotation: it still signs with the former key
	compare("")
	hangUp(t, two)
	register(two, staged.KeyID)
	retireKey(t, env, dir, first.KeyID)
	hangUp(t, one)
	hangUp(t, two)
	compare("")

	affected := affectedBy(t, must(t, env, "keys", "compromise", "--data-dir", dir, "--json", "--", first.KeyID))
	if len(affected) != len(signed[first.KeyID]) {
		t.Errorf("affected %v, want %v", affected, signed[first.KeyID])
	}
	for _, id := range signed[first.KeyID] {
		if !affected[id] {
			t.Errorf("%s is not among the affected records %v", id, affected)
		}
	}
	hangUp(t, one)
	hangUp(t, two)
	compare(first.KeyID)
	register(one, staged.KeyID)

	// The current signing key is lost too.
	if r := integrity(
		t, env, "keys", "compromise", "--data-dir", dir, "--reason", "revoked", "--", staged.KeyID,
	); r.code != cli.ExitOK || !strings.Contains(r.errs, "This is the current signing key") ||
		strings.Count(r.out, "registered") != len(signed[staged.KeyID]) {
		t.Errorf("compromise: %d %s%s", r.code, r.out, r.errs)
	}
	hangUp(t, one)
	register(one, "")
	register(two, staged.KeyID) // has not been told yet
	if again := affectedBy(
		t, must(t, env, "keys", "compromise", "--data-dir", dir, "--json", "--", staged.KeyID),
	); len(again) != len(signed[staged.KeyID]) {
		t.Errorf("listed again: %v", again)
	}
	if r := trustedAt(t, dir).Revoked(); len(r) != 2 || r[0].Reason != evidence.ReasonCompromised ||
		r[1].Reason != evidence.ReasonRevoked {
		t.Errorf("revoked keys: %+v", r)
	}
	var last operator.RotatedKey
	mustJSON(t, env, &last, at("keys", "rotate", "--stage")...)
	must(t, env, at("keys", "rotate", "--activate")...)
	hangUp(t, one)
	register(one, last.KeyID)
	wantClean(t, one.log, key)
}

// affectedBy parses the records printed by keys compromise; the first line is the key.
func affectedBy(t *testing.T, out string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var v operator.AffectedView
		if err := json.Unmarshal([]byte(line), &v); err != nil || (v.Type == "key") != (i == 0) ||
			i > 0 && (v.Type != "registered" || found[v.PublicID]) {
			t.Fatalf("line %d: %s: %v", i, line, err)
		}
		if i > 0 {
			found[v.PublicID] = true
		}
	}
	return found
}
