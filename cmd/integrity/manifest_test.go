package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

func manifestDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "d")
	for _, path := range []string{"z.txt", "a/b.txt", "a/.hidden", "Ä.txt"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, path), "content of "+path)
	}
	return dir
}

// TestManifestStory creates a manifest, verifies the directory, and changes it.
func TestManifestStory(t *testing.T) {
	t.Parallel()
	dir := manifestDir(t)
	file := filepath.Join(dir, "manifest.json") // in the directory, but not part of the manifest
	created := must(t, nil, "manifest", "create", dir, "-o", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	m, _, err := domain.ReadManifest(new(strictjson.Meter), text)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range m.Files {
		paths = append(paths, f.Path)
	}
	if want := []string{"a/.hidden", "a/b.txt", "z.txt", "Ä.txt"}; !slices.Equal(paths, want) {
		t.Errorf("the manifest lists %v, not %v", paths, want)
	}
	if !strings.Contains(created, hex.EncodeToString(sum[:])) {
		t.Errorf("%q does not tell the hash of the written file", created)
	}
	if out := must(
		t, nil, "manifest", "create", dir, "-o", filepath.Join(t.TempDir(), "m"),
	); strings.Contains(out, hex.EncodeToString(sum[:])) {
		t.Error("a manifest inside, which is another file now, is left out")
	}
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "manifest.json")
	if err := os.Rename(filepath.Join(dir, "manifest.json.away"), file); err != nil {
		t.Fatal(err)
	}
	if out := must(t, nil, "manifest", "create", dir); out != string(text) {
		t.Errorf("the same files gave %s and then %s", text, out)
	}
	must(t, nil, "manifest", "verify", dir, file)

	write(t, filepath.Join(dir, "z.txt"), "content of Z.txt") // the same length
	write(t, filepath.Join(dir, "Ä.txt"), "longer than it was before")
	write(t, filepath.Join(dir, "new"), "")
	if err := os.Remove(filepath.Join(dir, "a/b.txt")); err != nil {
		t.Fatal(err)
	}
	r := integrity(t, nil, "manifest", "verify", dir, file, "--json")
	var got clientcmd.ComparedDirectory
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if r.code != cli.ExitNegative || got.Matches || !slices.Equal(got.Changed, []string{"z.txt", "Ä.txt"}) ||
		!slices.Equal(got.Missing, []string{"a/b.txt"}) || !slices.Equal(got.Extra, []string{"new"}) ||
		got.SHA256 != hex.EncodeToString(sum[:]) || got.Files != 4 {
		t.Errorf("exit code %d, %s", r.code, r.out)
	}
}

func TestManifestExtra(t *testing.T) {
	t.Parallel()
	dir := manifestDir(t)
	file := filepath.Join(t.TempDir(), "m")
	must(t, nil, "manifest", "create", dir, "-o", file)
	for i := range domain.MaxManifestFiles { // more than a manifest may list
		write(t, filepath.Join(dir, fmt.Sprint("extra", i)), "")
	}
	if r := integrity(t, nil, "manifest", "verify", dir, file); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, `extra   "extra7"`) {
		t.Errorf("exit code %d, %s%s", r.code, r.out, r.errs)
	}
	must(t, nil, "manifest", "verify", dir, file, "--ignore-extra")
	if r := integrity(t, nil, "manifest", "verify", t.TempDir(), file); r.code != cli.ExitNegative ||
		strings.Count(r.out, "missing") != 4 {
		t.Errorf("an empty directory: exit code %d, %s%s", r.code, r.out, r.errs)
	}
	if r := integrity(t, nil, "manifest", "create", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "104 files") || r.out != "" {
		t.Errorf("too many files: exit code %d, %s%s", r.code, r.out, r.errs)
	}
}

// TestManifestRefuses: everything that cannot be listed is reported at once, and nothing is written.
func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	good := manifestDir(t)
	manifest := filepath.Join(t.TempDir(), "m")
	must(t, nil, "manifest", "create", good, "-o", manifest)
	large := func(dir, name string, size int64) {
		write(t, filepath.Join(dir, name), "")
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(dir string)
		want   []string
		verify bool // verify refuses it too
	}{
		"symbolic links": {func(dir string) {
			for link, target := range map[string]string{
				"to-file": "z.txt", "to-directory": "a", "to-nothing": "nowhere", "out": "/etc/passwd",
			} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{`"to-file": it is a symbolic link`, `"to-directory"`, `"to-nothing"`, `"out"`}, true},
		"pipe": {func(dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{`"pipe": it is not a regular file`}, true},
		"names": {func(dir string) {
			for _, bad := range []string{"e\u0301", `back\slash`, "new\nline", "\xff", "c:x"} {
				write(t, filepath.Join(dir, bad), "")
			}
		}, []string{`"e`, `"back\\slash"`, `"new\nline"`, `"\xff": its name is not UTF-8`, `"c:x"`}, false},
		"large file": {
			func(dir string) { large(dir, "large", domain.MaxManifestFileSize+1) },
			[]string{`"large": it is larger than 52428800 bytes`}, false,
		},
		"large directory": {func(dir string) {
			for i := range 11 {
				large(dir, fmt.Sprint("large", i), 50_000_000)
			}
		}, []string{"at most 524288000"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := manifestDir(t)
			c.change(dir)
			output := filepath.Join(t.TempDir(), "m")
			r := integrity(t, nil, "manifest", "create", dir, "-o", output)
			if r.code != cli.ExitFailed || r.out != "" {
				t.Errorf("exit code %d, %s", r.code, r.out)
			}
			for _, want := range c.want {
				if !strings.Contains(r.errs, want) {
					t.Errorf("%q is not in %s", want, r.errs)
				}
			}
			if _, err := os.Stat(output); err == nil {
				t.Error("a manifest was written")
			}
			if r := integrity(t, nil, "manifest", "verify", dir, manifest); c.verify != (r.code == cli.ExitFailed) ||
				!c.verify && r.code != cli.ExitNegative {
				t.Errorf("verify: exit code %d, %s%s", r.code, r.out, r.errs)
			}
		})
	}
	if err := os.Symlink(good, good+"-link"); err != nil {
		t.Fatal(err)
	}
	bad := write(
		t, filepath.Join(t.TempDir(), "bad"),
		`{"kind":"x","version":1,"algorithm":"SHA-256","files":[{"path":"../a","size":0,"sha256":""}]}`,
	)
	for _, args := range [][]string{
		{"create", good + "-link"}, {"create", manifest}, {"create", "/nowhere"}, {"verify", good, bad},
		{"verify", good, "/nowhere"}, {"create", good, "--json"},
	} {
		if r := integrity(t, nil, append([]string{"manifest"}, args...)...); r.code != cli.ExitFailed || r.out != "" ||
			r.errs == "" {
			t.Errorf("%v: exit code %d, %s%s", args, r.code, r.out, r.errs)
		}
	}
	if r := integrity(t, nil, "manifest", "verify", good, bad); !strings.Contains(r.errs, "/files/0/path") ||
		!strings.Contains(r.errs, "/kind") {
		t.Errorf("what is wrong with the manifest is not told: %s", r.errs)
	}
}
