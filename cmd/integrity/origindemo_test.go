package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// killAtVariable makes the test program an integrity command that kills itself at a step.
const killAtVariable = "ORIGIN_TEST_KILL_AT"

// killer kills its own process, like kill -9, when a step is printed: nothing after the step happens.
type killer struct{ at string }

func (k killer) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"step":"`+k.at+`"`)) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return os.Stdout.Write(line)
}

func runUntilKilled() int {
	a := &app{&cli.App{Out: killer{os.Getenv(killAtVariable)}, Errs: os.Stderr, Environ: os.Environ(), Now: time.Now}}
	return a.Run(context.Background(), a.rootCommand(), os.Args[1:])
}

// emission is a data directory of origin-demo and the command's arguments.
type emission struct {
	t    *testing.T
	dir  string
	env  []string
	args []string
}

// killed runs the command until it dies at the step, and returns the steps printed before.
func (e emission) killed(at string, documents int) (names []string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], append(e.args, "--json", "--documents", fmt.Sprint(documents))...)
	c.Env = cleanEnviron(append(e.env, killAtVariable+"="+at)...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		e.t.Fatalf("kill at %s: it ended otherwise: %v\n%s%s", at, err, out, errs.String())
	}
	for line := range strings.Lines(string(out)) {
		var s demo.Step
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			e.t.Fatal(err)
		}
		names = append(names, s.Name)
	}
	return names
}

// TestOriginDemo kills an origin system at each of its steps, with and without the service, and then requires that
// every document was delivered and every declaration registered exactly once.
func TestOriginDemo(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--listen", address)
	access := s.demo()
	dir := filepath.Join(t.TempDir(), "origin")
	e := emission{
		t: t, dir: dir,
		env: []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base},
		// An unreachable service refuses at once; a slow one still gives the link.
		args: []string{"origin-demo", "--company", access.CompanyReference, "--data-dir", dir, "--serve", freeAddress(t),
			"--trusted-keys", filepath.Join(s.dir, keyfiles.TrustedKeysFile),
			"--reserve-timeout", patient.String()},
	}
	taken := integrity(
		t, e.env, "origin-demo", "--company", access.CompanyReference, "--data-dir", dir, "--serve", address,
	)
	if taken.code == cli.ExitOK || !strings.Contains(taken.errs, "--serve must be a free address") {
		t.Errorf("at an address that is taken: exit code %d, %s", taken.code, taken.errs)
	}
	documents := 0
	killedAtEach := func(steps ...string) {
		for _, at := range steps {
			documents++
			e.killed(at, documents)
		}
	}
	killedAtEach(demo.Allocated, demo.Reserved, demo.Finalized, demo.Committed, demo.Written, demo.Delivered)
	// The process may have died just after sending something that arrived. No such item may be left for the next step.
	must(t, e.env, append(e.args, "--documents", fmt.Sprint(documents))...)
	// the last two of items sent before
	killedAtEach(string(outbox.Sending), string(outbox.Ambiguous), string(outbox.NotFound),
		string(outbox.Answered), string(outbox.Found), string(outbox.Stored), string(outbox.Exported),
		string(outbox.Finished))

	// Without the service, documents are delivered without the link, and nothing is lost when the process also dies.
	s.stop()
	for _, at := range []string{string(outbox.Postponed), demo.NoLink, demo.Committed} {
		documents += 2
		e.killed(at, documents)
	}
	documents += 2
	// A process killed at a step that never comes without the service would wait forever, so it gets a signal.
	waiting := exec.Command(os.Getenv(binaryVariable), append(e.args, "--documents", fmt.Sprint(documents))...)
	waiting.Env = cleanEnviron(e.env...)
	var screen bytes.Buffer
	waiting.Stdout, waiting.Stderr = &screen, &screen
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every document is delivered while the service is away", func() error {
		files, err := filepath.Glob(filepath.Join(dir, "delivered", "*.pdf"))
		if err == nil && len(files) != documents {
			err = fmt.Errorf("%d of %d are there", len(files), documents)
		}
		return err
	})
	start(t, s.dir, "--demo", "--listen", address)
	if err := waiting.Wait(); err != nil { // it continues by itself when the service is back
		t.Fatalf("%v\n%s", err, screen.String())
	}

	r := integrity(t, e.env, append(e.args, "--documents", fmt.Sprint(documents), "--json")...)
	var summary demo.Summary
	if err := json.Unmarshal(
		[]byte(r.out[strings.LastIndex(strings.TrimSpace(r.out), "\n")+1:]), &summary,
	); err != nil || r.code != cli.ExitOK {
		t.Fatalf("%v: %+v", err, r)
	}
	if summary.Documents != documents || summary.Delivered != documents || summary.Registered != documents ||
		summary.Same != documents || summary.Stopped != 0 {
		t.Errorf("%d documents were emitted: %+v", documents, summary)
	}
	if summary.WithLink == 0 || summary.WithLink > documents-8 {
		t.Errorf("those emitted while the service was away should have no link, the others one: %+v", summary)
	}
	wantEmittedOnce(t, e, access, documents)
	if r := integrity(t, e.env,
		append(e.args[:len(e.args):len(e.args)], "--source", "other")...); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "or another directory") {
		t.Errorf("another source in the same directory: %+v", r)
	}
}

// wantEmittedOnce compares the delivered files with the service's feed.
func wantEmittedOnce(t *testing.T, e emission, access demo.Access, documents int) {
	t.Helper()
	registered := map[string]string{} // publicId by document
	for line := range strings.Lines(must(t, e.env, "changes", "--company", access.CompanyReference, "--json")) {
		var event wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		if event.Source != "origin-demo" || event.Type != domain.RecordRegistered {
			continue
		}
		if registered[event.DocumentReference] != "" {
			t.Errorf("%s was registered twice", event.DocumentReference)
		}
		registered[event.DocumentReference] = event.PublicID
	}
	files, err := filepath.Glob(filepath.Join(e.dir, "delivered", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(registered) != documents || len(files) != documents {
		t.Errorf("%d documents: %d are registered, %d delivered", documents, len(registered), len(files))
	}
	for _, file := range files {
		id := registered[strings.TrimSuffix(filepath.Base(file), "-v1.pdf")]
		if out := must(t, e.env, "compare", file, id); !strings.HasPrefix(out, "MATCH_CURRENT\n") {
			t.Errorf("%s: %s", file, out)
		}
	}
}
