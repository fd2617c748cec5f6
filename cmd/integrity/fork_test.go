package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain/evidence"
)

// copyFile copies a file from one data directory to another.
func copyFile(t *testing.T, from, to, name string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(from, name))
	if err := errors.Join(err, os.WriteFile(filepath.Join(to, name), text, mode)); err != nil {
		t.Fatal(err)
	}
}

// TestForkedLog restores a backup from before a log key rotation twice. Neither restore continues under a log key of
// the lost history or of the other restore, and a monitor of any of the three histories detects the others.
func TestForkedLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("restores a server")
	}
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--listen", address)
	access := s.demo()
	s.included(s.registerOne("kept"))
	backups := filepath.Join(dataDir(t), "backups")
	mustJSON(t, nil, &operator.BackupView{}, "backup", backups, "--data-dir", s.dir, "--with-keys")
	shared := databaseTime(t, s.dir)
	atBackup, err := s.logHead()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"--stage", "--activate"} {
		must(t, nil, "keys", "rotate", "--transparency-log", step, "--data-dir", s.dir)
	}
	s.reload()
	var lost logHead
	for n := 0; lost.key == "" || lost.key == atBackup.key; n++ { // a checkpoint in progress is signed by the former key
		lost = s.included(s.registerOne(fmt.Sprint("lost-", n)))
	}
	watch := func(s *running, state, trusted string) result {
		t.Helper()
		return integrity(
			t, nil, "monitor", s.base, "--state", state, "--trusted-keys", filepath.Join(trusted, keyfiles.TrustedKeysFile),
		)
	}
	copied := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, filepath.Join(t.TempDir(), "state.json"), string(text))
	}
	watched := filepath.Join(t.TempDir(), "watched.json")
	if r := watch(s, watched, s.dir); r.code != cli.ExitOK {
		t.Fatalf("monitor: %+v", r)
	}
	export := func(dir string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "bundle")
		must(t, nil, "export", "--organization", access.OrganizationID, "--out", out, "--data-dir", dir)
		return out
	}
	lostBundle := export(s.dir)
	published := write(t, filepath.Join(t.TempDir(), "published"), lost.text)
	older := write(t, filepath.Join(t.TempDir(), "older"), atBackup.text)
	s.stop()
	original := s.dir

	type story struct {
		dir, state, bundle string
		view               operator.RestoredView
		key                string
	}
	tell := func(former story) (told story) {
		t.Helper()
		told.dir, told.state = dataDir(t), filepath.Join(t.TempDir(), "state.json")
		mustJSON(t, nil, &told.view, "restore", backups, "--to", shared, "--data-dir", told.dir)
		copyFile(t, original, told.dir, demo.File, 0o600)
		env := []string{"INTEGRITY_DATA_DIR=" + told.dir}
		refused := func(want string, args ...string) {
			t.Helper()
			if r := integrity(t, env, append([]string{"log", "resume"}, args...)...); r.code != cli.ExitNegative ||
				!strings.Contains(r.errs, want) {
				t.Errorf("log resume %v: %d %s%s", args, r.code, r.out, r.errs)
			}
		}
		refused("must not sign another", "--fork") // the backup's own key
		// The backup's trusted-keys file lacks the key that signed the lost checkpoints.
		if r := integrity(t, env, "log", "resume", "--published", published); r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, "came from the backup") {
			t.Errorf("log resume with the keys of the backup: %d %s%s", r.code, r.out, r.errs)
		}
		refused("must not sign another", "--fork", "--published", published)
		if former.dir != "" { // the other restore's fork key, as if it were still staged here
			left, err := os.ReadFile(filepath.Join(former.dir, keyfiles.LogKeyFile))
			if err != nil {
				t.Fatal(err)
			}
			staged := write(t, filepath.Join(told.dir, "log-key.next.pem"), string(left))
			refused("was not created after the restore", "--fork", "--stage")
			if err := os.Remove(staged); err != nil {
				t.Fatal(err)
			}
		}
		// The key that came after the backup, and signed the lost checkpoints.
		for name, mode := range map[string]os.FileMode{keyfiles.LogKeyFile: 0o600, keyfiles.TrustedKeysFile: 0o644} {
			copyFile(t, original, told.dir, name, mode)
		}
		refused("must not sign another", "--fork")
		refused("must not sign another", "--fork", "--published", published)
		refused("published leaves were lost", "--published", published)
		// A key staged for a rotation does not prove when it was created.
		must(t, env, "keys", "rotate", "--transparency-log", "--stage")
		refused("was not created after the restore", "--fork", "--stage")
		must(t, env, "keys", "rotate", "--transparency-log", "--activate")
		refused("must not sign another", "--fork")
		must(t, env, "log", "resume", "--fork", "--stage")
		must(t, env, "log", "resume", "--fork", "--stage") // again, after an interruption
		refused("must not sign another", "--fork")
		must(t, env, "keys", "rotate", "--transparency-log", "--activate")
		if out := must(t, env, "log", "resume", "--fork", "--published", published); !strings.Contains(out, "DIFFERENT HISTORY") {
			t.Errorf("log resume: %s", out)
		}
		s = start(t, told.dir, "--listen", address)
		defer s.stop()
		for epoch, want := range map[int64]int{
			1: http.StatusUnprocessableEntity, former.view.Epoch: http.StatusUnprocessableEntity,
			told.view.Epoch: http.StatusOK,
		} {
			feed := fmt.Sprintf(
				"%s/api/v1/integrity/changes?companyReference=%s&epoch=%d", s.base, access.CompanyReference, epoch,
			)
			if status, err := call(plainHTTP(), http.MethodGet, feed, access.Keys.Worker, nil, nil); err != nil ||
				status != want {
				t.Errorf("the feed with the epoch %d: %d, %v", epoch, status, err)
			}
		}
		must(t, env, "keys", "rotate", "--transparency-log", "--stage") // recorded in the fork
		forked := s.included(s.registerOne("another"))
		if told.key = forked.key; told.key == atBackup.key || told.key == lost.key {
			t.Errorf("the fork is signed by %s, which signed before", told.key)
		}
		// The head at the backup is part of all three histories; the lost head is not.
		trusted, err := keyfiles.ReadTrusted(filepath.Join(told.dir, keyfiles.TrustedKeysFile))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(older)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := evidence.OpenCheckpoint(string(text), trusted); err != nil {
			t.Errorf("the former key is no longer trusted for its checkpoints: %v", err)
		}
		if r := watch(s, copied(watched), told.dir); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: ") {
			t.Errorf("who watched what is lost: %+v", r)
		}
		if r := watch(s, copied(watched), original); r.code != cli.ExitNegative ||
			!strings.Contains(r.errs, "ALARM: unknown-key") {
			t.Errorf("who watched what is lost, and has not the new key: %+v", r)
		}
		if r := watch(s, told.state, told.dir); r.code != cli.ExitOK {
			t.Errorf("who begins to watch: %+v", r)
		}
		told.bundle = export(told.dir)
		if out := must(t, env, "audit"); !strings.Contains(out, "verdict: everything that was checked is correct") {
			t.Errorf("audit: %s", out)
		}
		if out := must(t, env, "audit", told.bundle); !strings.Contains(
			out, "verdict: everything that was checked is correct",
		) {
			t.Errorf("audit of the bundle: %s", out)
		}
		if r := integrity(t, env, "audit", told.bundle, "--against", lostBundle); r.code != cli.ExitNegative {
			t.Errorf("the bundle against what is lost: %+v", r)
		}
		if text := must(t, env, "log", "check"); !strings.Contains(text, "agree with the tree") {
			t.Errorf("log check: %s", text)
		}
		return told
	}
	first := tell(story{})
	second := tell(first)
	if first.view.Epoch == second.view.Epoch || min(first.view.Epoch, second.view.Epoch) <= 1 {
		t.Errorf("two restores of one backup have the epochs %d and %d", first.view.Epoch, second.view.Epoch)
	}
	if first.key == second.key {
		t.Errorf("two restores of one backup are signed by %s", first.key)
	}
	s = start(t, second.dir, "--listen", address)
	if r := watch(s, copied(first.state), first.dir); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "ALARM: unknown-key") {
		t.Errorf("who watched the first restore: %+v", r)
	}
	if r := integrity(
		t, nil, "audit", second.bundle, "--against", first.bundle, "--trusted-keys",
		filepath.Join(second.dir, keyfiles.TrustedKeysFile),
	); r.code != cli.ExitNegative {
		t.Errorf("the bundle against the other restore's: %+v", r)
	}
}
