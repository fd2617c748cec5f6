package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/eventstore/pgtest"
)

func TestMain(m *testing.M) { pgtest.Verify(m) }

// TestLongEndNamesItsReason: the end of a run has a time limit, and its error says what it was waiting for.
func TestLongEndNamesItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		ends := ""
		w.waits("the stream")
		w.limitEnd(time.Minute, func(string) { t.Error("it was over in time") })()
		w.limitEnd(time.Hour, func(why string) { ends = why })
		w.waits("the tree")
		time.Sleep(2 * time.Hour)
		if !strings.Contains(ends, "not over 1h0m0s after") || !strings.Contains(ends, "waits for: the tree") {
			t.Errorf("it says %q", ends)
		}
	})
}

// TestPreviousIsTheFirstThatBuilds: a commit that does not build does not end the drill if an earlier one builds.
func TestPreviousIsTheFirstThatBuilds(t *testing.T) {
	repository := t.TempDir()
	git := func(args ...string) string {
		out, err := exec.Command("git",
			append([]string{"-C", repository, "-c", "user.name=test", "-c", "user.email=test@example.org"},
				args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	program := filepath.Join(repository, "cmd/integrity/main.go")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(program), 0o755),
		os.WriteFile(filepath.Join(repository, "go.mod"), []byte("module former\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	git("init", "--quiet")
	var commits []string
	for _, text := range []string{
		"package main\n\nfunc main() { print(1) }\n", "package main\n\nfunc main() { print(2) }\n",
		"package main\n\nfunc main() { undefined() }\n",
	} {
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git("add", "--all")
		git("commit", "--quiet", "--message", "a commit")
		commits = append([]string{git("rev-parse", "HEAD")}, commits...)
	}
	to := filepath.Join(t.TempDir(), "former")
	buildFormer(t, repository, commits, to)
	if out, err := exec.Command(to).CombinedOutput(); err != nil || string(out) != "2" {
		t.Errorf("it prints %q: %v", out, err)
	}
}

// TestDrillFails: an error fails the run, a fatal error ends it, and both run the cleanups in reverse order.
func TestDrillFails(t *testing.T) {
	var cleaned string
	for name, f := range map[string]func(testing.TB){
		"error": func(t testing.TB) { t.Errorf("wrong: %d", 1) },
		"fatal": func(t testing.TB) { helpless(t); cleaned = "went on" },
		"none":  func(testing.TB) {},
	} {
		cleaned = ""
		var dir string
		ok := new(drill).run(func(t testing.TB) {
			dir = t.TempDir()
			for _, letter := range []string{"b", "a"} {
				t.Cleanup(func() { cleaned += letter })
			}
			f(t)
		})
		if _, err := os.Stat(dir); ok != (name == "none") || cleaned != "ab" || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %t, cleaned up %q, the directory: %v", name, ok, cleaned, err)
		}
	}
}

func helpless(t testing.TB) { t.Fatal("wrong") }
