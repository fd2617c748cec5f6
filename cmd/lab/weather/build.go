package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clockVariable names the file with the number of seconds by which a process's clock is ahead.
const clockVariable = "WEATHER_CLOCK"

// clockFile is added only to this build of the program under test. It passes the clock's error to package time.
const clockFile = `package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

func init() {
	path := os.Getenv("` + clockVariable + `")
	if path == "" {
		return
	}
	read := func() {
		if text, err := os.ReadFile(path); err == nil {
			if seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				time.WeatherSeconds.Store(seconds)
			}
		}
	}
	read()
	go func() {
		for {
			read()
			time.Sleep(20 * time.Millisecond)
		}
	}()
}
`

// wrongNow replaces the reading of the wall clock. The monotonic clock stays correct, as when a person sets a clock.
const (
	rightNow = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	wrongNow = "sec, nsec, mono := runtimeNow()\n\tsec += WeatherSeconds.Load()\n\tif mono == 0 {"
)

// build builds a source tree so that its clock can be set wrong. LD_PRELOAD does not affect Go.
func build(t testing.TB, source, to string) error {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), rightNow, wrongNow, 1)
	if changed == string(text) {
		t.Fatalf("%s reads the clock in another way: build.go must follow it", original)
	}
	changed = strings.Replace(changed, "\nimport (", "\nimport \"sync/atomic\"\n\nimport (", 1) +
		"\n// WeatherSeconds is by how much the clock is ahead.\nvar WeatherSeconds atomic.Int64\n"
	overlay := struct{ Replace map[string]string }{map[string]string{
		original: filepath.Join(dir, "time.go"),
		filepath.Join(source, "cmd/integrity/weatherclock.go"): filepath.Join(dir, "clock.go"),
	}}
	description, err := json.Marshal(overlay)
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "time.go"), []byte(changed), 0o600),
		os.WriteFile(filepath.Join(dir, "clock.go"), []byte(clockFile), 0o600),
		os.WriteFile(filepath.Join(dir, "overlay.json"), description, 0o600)); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(
		t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", to,
		"./cmd/integrity",
	)
	command.Dir, command.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", source, err, out)
	}
	return nil
}

// buildFormer builds an earlier version of the program: the first of the commits that builds.
func buildFormer(t testing.TB, repository string, commits []string, to string) {
	t.Helper()
	var failed error
	for _, commit := range commits {
		source := t.TempDir()
		script := fmt.Sprintf("git -C %q archive %q | tar -x -C %q", repository, commit, source)
		if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("PREVIOUS must be a commit of this repository: %v: %s", err, out)
		}
		err := build(t, source, to)
		if err == nil {
			fmt.Println("The version before is that of commit", commit)
			return
		}
		failed = errors.Join(failed, fmt.Errorf("commit %s: %w", commit, err))
	}
	t.Fatal(failed)
}

//go:embed preload/faults.c
var faults string

// buildFaults builds the library that makes PostgreSQL's clock and disk fail. ok is false without a C compiler.
func buildFaults(ctx context.Context, to string) (ok bool, err error) {
	if _, missing := exec.LookPath("cc"); missing != nil {
		return false, nil //nolint:nilerr // the run continues without it, and says so
	}
	command := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", to, "-x", "c", "-", "-ldl")
	command.Stdin = strings.NewReader(faults)
	if out, err := command.CombinedOutput(); err != nil {
		return false, fmt.Errorf("cc: %w: %s", err, out)
	}
	return true, nil
}
