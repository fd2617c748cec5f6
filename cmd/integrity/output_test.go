package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
)

// TestPipesAreRefused: a pipe without a writer is refused, wherever a command takes a file.
func TestPipesAreRefused(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir(), strings.Repeat("a", 26)
	pipe, file := filepath.Join(dir, "pipe"), write(t, filepath.Join(dir, "file"), "{}")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=http://127.0.0.1:1"}
	watched := newWatchedLog(t, 1)
	for _, args := range [][]string{
		{"compare", pipe, id},
		{"register", pipe, "--company", "c", "--source", "s", "--version", "1"},
		{"verify", pipe, file},
		{"verify", file, pipe},
		{"verify", file, watched.args[3], pipe},
		{"manifest", "verify", dir, pipe},
	} {
		if r := integrity(t, env, args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, "must be a regular file") {
			t.Errorf("%v: %d %s%s", args, r.code, r.out, r.errs)
		}
	}
}

// hostileService answers every request with text that would control a terminal.
func hostileService(t *testing.T) (origin string) {
	t.Helper()
	const words = `\u001b]0;owned\u0007\u009b31m\u202e`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/evidence"):
			_, _ = fmt.Fprint(w, "{\"payload\":\"x\u009b2J\"}")
		case strings.HasSuffix(r.URL.Path, "/changes"):
			_, _ = fmt.Fprintf(w,
				`{"data":{"events":[{"id":"%s","sequence":1,"type":"%[1]s","source":"%[1]s"}],"nextCursor":1,"hasMore":false},
				"meta":{"epoch":1}}`, words)
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"error":{"code":"INVALID_STATE","detail":"%s"},"meta":{}}`, words)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestServiceCannotControlTerminals: a service's text never reaches a terminal as control sequences.
func TestServiceCannotControlTerminals(t *testing.T) {
	t.Parallel()
	env := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=" + hostileService(t)}
	for _, args := range [][]string{{"changes", "--company", "c"}, {"changes", "--company", "c", "--json"}, {"usage"}} {
		r := integrity(t, env, args...)
		if strings.ContainsAny(r.out+r.errs, "\x1b\x07\u009b\u202e") || !strings.Contains(r.out+r.errs, "owned") {
			t.Errorf("%v: %q %q", args, r.out, r.errs)
		}
	}
}

// TestDashIsStandardOutput: -o - writes no file of that name, and piped evidence is unchanged.
func TestDashIsStandardOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "files", "a"), "a")
	env := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=" + hostileService(t)}
	for want, args := range map[string][]string{
		"{\"payload\":\"x\u009b2J\"}": {"evidence", strings.Repeat("a", 26), "-o", "-"},
		`{"algorithm":`:               {"manifest", "create", "files", "-o", "-"},
	} {
		var out bytes.Buffer
		c := exec.Command(os.Getenv(binaryVariable), args...)
		c.Dir, c.Env, c.Stdout = dir, cleanEnviron(env...), &out
		if err := c.Run(); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%v: %v %q", args, err, out.String())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "-")); err == nil {
		t.Error("there is a file -")
	}
	if r := integrity(t, nil, "export", "--organization", "org_x", "-o", "-"); r.code != cli.ExitFailed {
		t.Errorf("export: %d %s", r.code, r.errs)
	}
}

// TestOutputToAFullDisk: if the output cannot be written, the command fails, whatever the answer is.
func TestOutputToAFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	env := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=" + hostileService(t)}
	receipt, watched := write(t, filepath.Join(t.TempDir(), "receipt"), "{}"), newWatchedLog(t, 1)
	for _, args := range [][]string{
		{"verify", receipt, watched.args[3]}, {"verify", receipt, watched.args[3], "--json"},
		{"changes", "--company", "c"}, {"evidence", strings.Repeat("a", 26)},
		{"--help"}, {"help"}, {"keys", "--help"},
	} {
		c := exec.Command(os.Getenv(binaryVariable), args...)
		c.Env, c.Stdout = cleanEnviron(env...), full
		if _ = c.Run(); c.ProcessState.ExitCode() != cli.ExitFailed {
			t.Errorf("%v: exit code %d", args, c.ProcessState.ExitCode())
		}
	}
}
