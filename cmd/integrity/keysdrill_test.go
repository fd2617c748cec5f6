package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
)

// digests returns the digest and mode of every file in a directory.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = fmt.Sprintf("%v %x", entry.Type(), sha256.Sum256(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestKeysDrill: every step of the drill succeeds, no byte of the key files, the trusted keys or the database changes,
// and no copy remains.
func TestKeysDrill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("rehearses with servers of its own")
	}
	dir, temporary := dataDir(t), filepath.Dir(dataDir(t)) // where PostgreSQL's user can reach it
	s := start(t, dir, "--demo")
	s.included(s.registerOne("mine"))
	s.stop()
	before := digests(t, dir)
	env := []string{
		"INTEGRITY_DATA_DIR=" + dir, "TMPDIR=" + temporary, "INTEGRITY_DATABASE_URL=postgres://nobody@127.0.0.1:1/none",
	}
	r := integrity(t, env, "keys", "drill")
	if r.code != cli.ExitOK || !strings.Contains(r.out, "every step held") || strings.Contains(r.out, "FAIL") {
		t.Errorf("drill: %d\n%s%s", r.code, r.out, r.errs)
	}
	for _, want := range []string{
		"verify the record before the loss: signature untrusted; with --accept-stamped-before-revocation valid",
		"verify the thief's record: signature untrusted; with --accept-stamped-before-revocation untrusted",
		"under the lost key after the loss: signature untrusted; with --accept-stamped-before-revocation untrusted",
		"verify the record under the new key: signature valid",
		"under the revoked log key: valid if its checkpoint was stamped before, otherwise untrusted",
		"under the new log key: valid",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the drill does not say %q", want)
		}
	}
	if after := digests(t, dir); !maps.Equal(before, after) {
		for _, path := range slices.Sorted(maps.Keys(after)) {
			if before[path] != after[path] {
				t.Errorf("the drill changed %s", path)
			}
		}
		t.Error("the drill changed the data directory")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}

	// A step that fails: the commands do not change a file that a newer program has written.
	path := filepath.Join(dir, keyfiles.TrustedKeysFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(bytes.Replace(text, []byte("{"), []byte(`{"policies":[],`), 1)))
	var view struct {
		Held  bool
		Steps []struct{ Found string }
	}
	r = integrity(t, env, "keys", "drill", "--json")
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || r.code != cli.ExitNegative || view.Held ||
		len(view.Steps) != 1 || !strings.Contains(view.Steps[0].Found, "policies") {
		t.Errorf("with an unknown member: %+v, %+v", r, view)
	}
	write(t, path, string(text))
	if err := os.Remove(filepath.Join(dir, keyfiles.SigningKeyFile)); err != nil {
		t.Fatal(err)
	}
	if r := integrity(t, env, "keys", "drill"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "there is no signing key") {
		t.Errorf("without a signing key: %+v", r)
	}
}

// TestKeysDrillInterrupted: Ctrl-C leaves no copy of a private key behind.
func TestKeysDrillInterrupted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("rehearses with servers of its own")
	}
	dir, temporary := dataDir(t), filepath.Dir(dataDir(t))
	must(t, nil, "keys", "generate", "--data-dir", dir)
	c := exec.Command(os.Getenv(binaryVariable), "keys", "drill", "--data-dir", dir)
	c.Env, c.SysProcAttr = cleanEnviron("TMPDIR="+temporary), &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	steps := bufio.NewScanner(out)
	if !steps.Scan() || !strings.Contains(steps.Text(), "copies are made") {
		t.Errorf("%q, %v", steps.Text(), steps.Err())
	}
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
		// like a terminal, to every process of the group
		t.Error(err)
	}
	for steps.Scan() {
		if strings.Contains(steps.Text(), "every step held") {
			t.Error(steps.Text())
		}
	}
	if err := c.Wait(); err == nil {
		t.Error("it succeeds")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
