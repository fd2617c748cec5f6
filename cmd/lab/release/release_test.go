package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is a release for this machine, made once from a copy of the sources.
type built struct {
	source source
	files  []file
}

var (
	directory string // of all builds
	first     = sync.OnceValues(func() (built, error) {
		return buildIn("../../..", filepath.Join(directory, "first"))
	})
)

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if directory, err = os.MkdirTemp("", "release"); err == nil {
			err = os.Chmod(directory, 0o755) // the user of the database must reach the release ledger
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer os.RemoveAll(directory)
		return m.Run()
	}()
	os.Exit(code)
}

// buildIn copies the files of a checkout, or of another copy, into a directory and builds a release there.
func buildIn(from, dir string) (b built, err error) {
	sources := filepath.Join(dir, "sources")
	copied := exec.Command("bash", "-eo", "pipefail", "-c", `mkdir -p "$1"
		cd "$0"
		if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -type f; fi |
			tar -c --ignore-failed-read -T - | tar -x -C "$1"`, from, sources)
	if out, err := copied.CombinedOutput(); err != nil {
		return b, fmt.Errorf("copy the sources: %w: %s", err, out)
	}
	commit := strings.Repeat("ab", 20)
	if b.source, err = newSource(sources, commit, time.Unix(1_795_000_000, 0).UTC()); err != nil {
		return b, err
	}
	here := []platform{{"linux", runtime.GOARCH}}
	b.files, err = build(context.Background(), b.source, filepath.Join(dir, "release"), here)
	return b, err
}

func need(t *testing.T) built {
	t.Helper()
	b, err := first()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// cacheWithoutOurs makes a build cache from which a build takes only packages of other modules: no directory of ours
// changes them, and compiling them again takes minutes. It returns the files of our packages, which a build of the same
// bytes puts into the cache under the same names.
func cacheWithoutOurs(t *testing.T, s source) (to string, left []string) {
	t.Helper()
	list := func(args ...string) string {
		t.Helper()
		c := exec.Command("go", args...)
		c.Dir, c.Env, c.Stderr = s.root, append(s.environ(), "GOOS=linux", "GOARCH="+runtime.GOARCH), os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	from, ours := list("env", "GOCACHE"), map[string]bool{}
	to = filepath.Join(directory, "cache")
	for path := range strings.SplitSeq(list("list", "-deps", "-export", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-f", "{{with .Module}}{{if .Main}}{{$.Export}}{{end}}{{end}}", "./cmd/integrity"), "\n") {
		ours[path] = true
	}
	if len(ours) < 20 {
		t.Fatalf("only %d packages of the module were compiled", len(ours))
	}
	if err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(from, path)
		switch to := filepath.Join(to, name); {
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(to, 0o755)
		case ours[path]:
			left = append(left, to)
		case strings.HasSuffix(path, "-d"):
			return os.Symlink(path, to)
		case strings.HasSuffix(path, "-a"): // the index, which a build writes
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(to, text, 0o600)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return to, left
}

// TestReleaseLedger builds a release in two directories, and compiles the module twice. Both have the same bytes, and none
// contains the name of its directory, so the second compares as current in the ledger that registered the first.
// Another file is no match, and the release cannot be registered again with other bytes.
func TestReleaseLedger(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the program twice")
	}
	b := need(t)
	// With the same cache, the second build would take what the first compiled.
	cache, ours := cacheWithoutOurs(t, b.source)
	t.Setenv("GOCACHE", cache)
	second, err := buildIn(b.source.root, filepath.Join(directory, "another/and deeper"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range ours {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("a package of the module was not compiled again to the same bytes: %v", err)
		}
	}
	for i, f := range b.files {
		one, other := content(t, f.path), content(t, second.files[i].path)
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs: %d and %d bytes", filepath.Base(f.path), len(one), len(other))
		}
		if bytes.Contains(one, []byte(directory)) {
			t.Errorf("%s names the directory of the build", filepath.Base(f.path))
		}
	}
	if len(b.files) != 5 || t.Failed() {
		t.Fatalf("%d files", len(b.files))
	}

	ctx := t.Context()
	l := releaseLedger{dir: filepath.Join(directory, "ledger")}
	for range 2 { // the second time is a replay
		l.pins = nil
		if err := l.pin(); err != nil {
			t.Fatal(err)
		}
		if err := l.register(ctx, b.source, b.files); err != nil {
			t.Fatal(err)
		}
	}
	service, err := l.serve(ctx, b.files[0].path)
	if err != nil {
		t.Fatal(err)
	}
	stopped := sync.OnceValue(service.stop)
	defer func() { _ = stopped() }() // the end of the test reports the error
	if err := service.enter(ctx); err != nil {
		t.Fatal(err)
	}
	changed := b.files[3]
	changed.path = filepath.Join(directory, "changed")
	if err := os.WriteFile(changed.path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, f := range b.files {
		id, err := service.register(ctx, b.source, f)
		if err != nil {
			t.Fatal(err)
		}
		if result, err := service.compare(ctx, second.files[i].path, id); result != "MATCH_CURRENT" {
			t.Errorf("the second %s: %s %v", filepath.Base(f.path), result, err)
		}
		if result, err := service.compare(ctx, changed.path, id); result != "HASH_MISMATCH" {
			t.Errorf("another file: %s %v", result, err)
		}
	}
	if _, err := service.register(ctx, b.source, changed); err == nil || !strings.Contains(err.Error(), "ThisRelease") {
		t.Errorf("another file as the same release: %v", err)
	}
	if err := stopped(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(l.dir, trustedKeys)); err != nil {
		t.Fatal(err)
	}
	if err := l.pin(); err == nil {
		t.Error("a ledger without its pinned keys is taken")
	}
	for _, dir := range []string{l.dir, filepath.Dir(l.dir)} {
		if err := l.outside(dir); err == nil {
			t.Errorf("a ledger in %s is taken", dir)
		}
	}
}
