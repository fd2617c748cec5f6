package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"integrityledger/eventstore/outbound"
)

// releaseLedger is the ledger of all releases, in a data directory of the service.
type releaseLedger struct {
	dir  string
	base string // the address at which it is published; empty: this machine's
	pins []byte // its trusted-keys file before the build; nil for a new ledger
}

// What the release ledger signs into each record, and the names of its organization, company and origin system.
const (
	issuer       = "integrity-ledger releases"
	organization = "Releases"
	company      = "integrity-ledger"
	member       = "release@localhost.localdomain"
	origin       = "release"
)

const trustedKeys = "trusted-keys.json"

// outside refuses a ledger among the sources or in the release: a build must neither contain nor remove its key.
func (l *releaseLedger) outside(dirs ...string) error {
	for _, dir := range dirs {
		if inside, err := filepath.Rel(dir, l.dir); err != nil || filepath.IsLocal(inside) {
			return fmt.Errorf("the release ledger %s must be outside of %s: choose another with -ledger", l.dir, dir)
		}
	}
	return nil
}

// pin reads the keys that the ledger had before this release. Records are verified with these alone.
func (l *releaseLedger) pin() (err error) {
	l.pins, err = os.ReadFile(filepath.Join(l.dir, trustedKeys))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(l.dir, "pgdata")); err == nil {
		return fmt.Errorf("%s has records and no %s: bring that file back from a backup", l.dir, trustedKeys)
	}
	fmt.Printf("%s is a new release ledger. Keep copies of it: its signing key stands for all releases.\n", l.dir)
	return nil
}

// register registers each file and compares it with its record. The evidence of each goes into the directory receipts
// beside the files.
func (l *releaseLedger) register(ctx context.Context, s source, files []file) (err error) {
	service, err := l.serve(ctx, filepath.Join(filepath.Dir(files[0].path),
		fmt.Sprintf("integrity_%s_linux_%s", s.version, runtime.GOARCH)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	if l.pins == nil {
		if l.pins, err = os.ReadFile(filepath.Join(l.dir, trustedKeys)); err != nil {
			return err
		}
	}
	if err := service.enter(ctx); err != nil {
		return err
	}
	receipts := filepath.Join(filepath.Dir(files[0].path), "receipts")
	if err := os.MkdirAll(receipts, 0o755); err != nil { //nolint:gosec // everybody may read a release
		return err
	}
	pinned, err := os.CreateTemp("", trustedKeys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pinned.Close(), os.Remove(pinned.Name())) }()
	if _, err := pinned.Write(l.pins); err != nil {
		return err
	}
	for _, f := range files {
		id, err := service.register(ctx, s, f)
		if err != nil {
			return err
		}
		evidence := filepath.Join(receipts, filepath.Base(f.path)+".json")
		if _, err := service.run(ctx, nil, "evidence", id, "-o", evidence); err != nil {
			return err
		}
		if _, err := service.run(ctx, nil, "verify", evidence, pinned.Name(), f.path); err != nil {
			return fmt.Errorf("%s has no evidence that the pinned keys verify: %w", filepath.Base(f.path), err)
		}
		result, err := service.compare(ctx, f.path, id)
		if err != nil {
			return err
		}
		fmt.Printf("%-14s %s  %s\n", result, filepath.Base(f.path), id)
		if result != "MATCH_CURRENT" {
			return fmt.Errorf("%s is %s in the release ledger", filepath.Base(f.path), result)
		}
	}
	fmt.Printf("The release is in %s. Its keys are pinned in %s.\n", filepath.Dir(files[0].path),
		filepath.Join(l.dir, trustedKeys))
	return nil
}

// service is the running release ledger.
type service struct {
	program, dir, address string
	environ               []string
	process               *exec.Cmd
	output                bytes.Buffer
	key                   string
}

// serve starts the service on a free port of this machine.
func (l *releaseLedger) serve(ctx context.Context, program string) (*service, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{program: program, dir: l.dir, address: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "INTEGRITY_") && !strings.HasPrefix(variable, "LC_") {
			s.environ = append(s.environ, variable)
		}
	}
	s.environ = append(s.environ, "LC_ALL=C", "INTEGRITY_DATA_DIR="+l.dir, "INTEGRITY_ISSUER="+issuer,
		"INTEGRITY_METRICS_LISTEN=off")
	//nolint:gosec,noctx // the program is the one just built; stop ends it in order
	s.process = exec.Command(program, "serve", "--listen", s.address)
	if l.base != "" {
		s.process.Args = append(s.process.Args, "--base-url", l.base)
	}
	s.process.Env, s.process.Stdout, s.process.Stderr = s.environ, &s.output, &s.output
	s.environ = append(s.environ, "INTEGRITY_BASE_URL=http://"+s.address)
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the release ledger: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// patience is the time within which the service becomes ready.
const patience = 2 * time.Minute

func (s *service) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := outbound.New(outbound.Config{})
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err == nil {
			_ = answer.Body.Close() // only the status counts
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the release ledger did not become ready: %w", ctx.Err())
		case <-time.After(time.Second / 10):
		}
	}
}

// stop ends the service. If it failed, the error has what the service said.
func (s *service) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("the release ledger: %w\n%s", err, s.output.Bytes())
	}
	return nil
}

// run runs a command of the program. Its output becomes the value of to, if there is one.
func (s *service) run(ctx context.Context, to any, args ...string) (output []byte, err error) {
	if to != nil {
		args = append(args, "--json")
	}
	c := exec.CommandContext(ctx, s.program, args...) //nolint:gosec // the program is the one just built
	var failure bytes.Buffer
	c.Env, c.Stderr = append(s.environ, "INTEGRITY_API_KEY="+s.key), &failure
	if output, err = c.Output(); err != nil {
		err = fmt.Errorf("integrity %s: %w: %s%s", args[0], err, output, failure.Bytes())
	}
	if to != nil && (err == nil || len(output) > 0) { // a negative answer has output too
		err = errors.Join(err, json.Unmarshal(output, to))
	}
	return output, err
}

// enter makes a key of an hour, and before the first release the organization and the company.
func (s *service) enter(ctx context.Context) error {
	var all struct {
		Organizations []struct{ ID, Name string }
	}
	if _, err := s.run(ctx, &all, "organization", "list"); err != nil {
		return err
	}
	id := ""
	for _, o := range all.Organizations {
		if o.Name == organization {
			id = o.ID
		}
	}
	if id == "" {
		var made struct{ ID string }
		if _, err := s.run(ctx, &made, "organization", "create", organization, "--plan", "internal"); err != nil {
			return err
		}
		id = made.ID
	}
	// Each may exist since an earlier release, which may have ended in between.
	for _, command := range [][]string{
		{"member", "add", "--email", member, "--role", "owner"}, {"company", "create", company},
	} {
		if out, err := s.run(ctx, nil, append(command, "--organization", id)...); err != nil &&
			!strings.Contains(err.Error(), "exists") {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	var key struct{ Key string }
	_, err := s.run(ctx, &key, "apikey", "create", "--organization", id, "--member", member, "--company", company,
		"--name", "make release", "--scopes", "integrity:write,integrity:read", "--expires", "1h")
	s.key = key.Key
	return err
}

// register registers a file as the release's version of its document, and returns the public id. The same file again is
// a replay.
func (s *service) register(ctx context.Context, from source, f file) (id string, err error) {
	var record struct {
		PublicID string `json:"publicId"`
	}
	out, err := s.run(ctx, &record, "register", f.path, "--company", company, "--source", origin, "--document", f.document,
		"--version", fmt.Sprint(int64(from.version)), "--mime-type", f.mediaType,
		"--generated-at", from.time.Format(time.RFC3339))
	if err != nil && strings.Contains(err.Error(), "VERSION_CONFLICT") {
		return "", fmt.Errorf("release %s is registered with another %s: raise domain.ThisRelease for a new release, or "+
			"name a ledger for trials with -ledger", from.version, filepath.Base(f.path))
	}
	if err == nil && record.PublicID == "" {
		err = fmt.Errorf("integrity register: unexpected output %s", out)
	}
	return record.PublicID, err
}

// compare returns the result of the public comparison of a file with a record.
func (s *service) compare(ctx context.Context, path, id string) (string, error) {
	var answer struct{ Result string }
	if _, err := s.run(ctx, &answer, "compare", path, id); err != nil && answer.Result == "" {
		return "", err
	}
	return answer.Result, nil
}
