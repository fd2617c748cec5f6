package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
)

// TestOpsVariables: the variables in the files for operators exist.
func TestOpsVariables(t *testing.T) {
	known := []string{config.VariableAPIKey}
	for _, s := range config.Settings() {
		known = append(known, s.Variable(), s.Variable()+"_FILE")
	}
	for _, path := range []string{"ops/image.json", "ops/package/environment", "ops/integrity-ledger.service"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`INTEGRITY_[A-Z_]+`).FindAllString(string(text), -1)
		if names == nil {
			t.Errorf("%s sets nothing", path)
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s sets %s, which does not exist", path, name)
			}
		}
	}
}

// TestSystemdUnit lets systemd itself verify the unit.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text, err := os.ReadFile("ops/integrity-ledger.service")
	if err != nil {
		t.Fatal(err)
	}
	// systemd checks that the program exists.
	unit := write(
		t, filepath.Join(t.TempDir(), "integrity-ledger.service"),
		strings.ReplaceAll(string(text), "/usr/bin/integrity", os.Getenv(binaryVariable)),
	)
	for _, args := range [][]string{{"verify", unit}, {"security", "--offline=true", "--threshold=25", unit}} {
		if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %v: %v %s", args, err, out)
		}
	}
}

// container is a script that runs the program like a container engine: with a separate read-only root directory that
// contains only the program, /etc/integrity, /proc and a /tmp, and as a user without rights.
const container = `#!/bin/sh
set -e
exec unshare --mount --propagation private sh -e -c '
	mount --bind "$0" "$0"
	mount -t tmpfs tmpfs "$0/tmp"
	mount -t proc proc "$0/proc"
	mount -o remount,ro,bind "$0" "$0"
	exec chroot --userspec=65532:65532 "$0" /usr/bin/integrity "$@"' %s "$@" --data-dir /etc/integrity
`

// TestContainerRoot runs the static program as in the container image, and sends it a file to analyse.
func TestContainerRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make another root directory")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine gives nobody a mount namespace: %s", out)
	}
	root := filepath.Join(filepath.Dir(dataDir(t)), "root")
	for _, dir := range []string{"usr/bin", "etc/integrity", "tmp", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(releasedProgram(t))
	if err := errors.Join(err, os.WriteFile(filepath.Join(root, "usr/bin/integrity"), program, 0o755)); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(root, "etc/integrity")
	must(t, nil, "keys", "generate", "--data-dir", keys)
	for _, name := range []string{keyfiles.SigningKeyFile, keyfiles.TrustedKeysFile} {
		if err := os.Chown(filepath.Join(keys, name), 65532, 65532); err != nil {
			t.Fatal(err)
		}
	}
	theirs := foreignDatabase(context.Background(), t)
	database := []string{"INTEGRITY_DATABASE_URL=" + overTCP(t, theirs), "INTEGRITY_ISSUER=contained"}
	wrapper := write(t, filepath.Join(filepath.Dir(root), "contained"), fmt.Sprintf(container, root))
	if err := os.Chmod(wrapper, 0o755); err != nil {
		t.Fatal(err)
	}
	s := surroundings{
		program: wrapper, env: append([]string{"TMPDIR=/tmp"}, database...),
	}.start(t, filepath.Join(filepath.Dir(root), "data"))

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil || !regexp.MustCompile(`(?m)^Uid:\s+65532\s+65532`).Match(status) {
		t.Errorf("it runs as %s: %v", status, err)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", s.cmd.Process.Pid))
	if err != nil || !regexp.MustCompile(`(?m)^\S+ / \S+ ro[, ]`).Match(mounts) {
		t.Errorf("its root can be written: %s %v", mounts, err)
	}
	var organization operator.OrganizationView
	mustJSON(t, database, &organization, "organization", "create", "X", "--plan", "internal")
	in := []string{"--organization", organization.ID}
	must(t, database, append([]string{"member", "add", "--email", "a@example.org", "--role", "owner"}, in...)...)
	var key operator.KeyView
	mustJSON(t, database, &key,
		append([]string{"apikey", "create", "--member", "a@example.org", "--scopes", "artifacts:write,artifacts:read"},
			in...)...)
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	field, err := parts.CreatePart(map[string][]string{
		"Content-Disposition": {`form-data; name="metadata"`}, "Content-Type": {"application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(field, `{"title":"Report"}`); err != nil {
		t.Fatal(err)
	}
	file, err := parts.CreateFormFile("file", "report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(file, "hidden \u200b here"); err != nil {
		t.Fatal(err)
	}
	if err := parts.Close(); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, s.base+"/api/v1/artifacts", &form)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key.Key)
	request.Header.Set("Content-Type", parts.FormDataContentType())
	request.Header.Set("Idempotency-Key", "one")
	response, err := plainHTTP().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated ||
		!bytes.Contains(answer, []byte("text-hidden-characters")) {
		t.Errorf("a file: %d %s %v", response.StatusCode, answer, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, tail(s.log))
	}
}

// overTCP gives a server that listens only on a socket a TCP address.
func overTCP(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer to.Close()
				go func() {
					defer to.Close()
					_, _ = io.Copy(to, from)
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return fmt.Sprintf("postgres://%s@%s%s?sslmode=disable", u.Query().Get("user"), listener.Addr(), u.Path)
}
