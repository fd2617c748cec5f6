package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// witnessProcess is an integrity witness on a running service's database.
type witnessProcess struct {
	t                      *testing.T
	address, metrics, logs string // without logs the file in the data directory
	dir, logPath           string
	name                   string // empty: witnessName
	cmd                    *exec.Cmd
	exited                 chan struct{}
}

const witnessName = "b.example/witness"

// startWitness starts a witness for the logs in the file.
func startWitness(t *testing.T, dir, logs string) *witnessProcess {
	t.Helper()
	w := &witnessProcess{
		t: t, address: freeAddress(t), metrics: freeAddress(t), logs: logs, dir: dir,
		logPath: filepath.Join(t.TempDir(), "witness.log"),
	}
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *witnessProcess) start() {
	w.t.Helper()
	log, err := os.OpenFile(w.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.cmd = exec.Command(os.Getenv(binaryVariable), "witness", "--data-dir", w.dir, "--witness-name",
		cmp.Or(w.name, witnessName), "--witness-listen", w.address, "--metrics-listen", w.metrics, "--witness-logs", w.logs)
	w.cmd.Env, w.cmd.Stderr = cleanEnviron(), log
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.exited = make(chan struct{})
	go func() {
		defer close(w.exited)
		_ = w.cmd.Wait() // the result is in ProcessState
	}()
	eventually(w.t, "the witness is ready", func() error {
		select {
		case <-w.exited:
			w.t.Fatalf("the witness ended: %s", tail(w.logPath))
		default:
		}
		answer, err := plainHTTP().Get("http://" + w.address + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz answers %d", answer.StatusCode)
		}
		return nil
	})
}

func (w *witnessProcess) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.exited
}

func (w *witnessProcess) stop() {
	w.t.Helper()
	select {
	case <-w.exited:
		return
	default:
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.exited:
		if code := w.cmd.ProcessState.ExitCode(); code != 0 {
			w.t.Errorf("the witness ended with %d: %s", code, tail(w.logPath))
		}
	case <-time.After(patient):
		w.kill()
		w.t.Errorf("the witness did not stop: %s", tail(w.logPath))
	}
}

// says waits until the witness's log contains one of the texts.
func (w *witnessProcess) says(words ...string) {
	w.t.Helper()
	eventually(w.t, "the witness says so", func() error {
		text, err := os.ReadFile(w.logPath)
		for _, word := range words {
			if strings.Contains(string(text), word) {
				return err
			}
		}
		return errors.New(string(text))
	})
}

// TestWitnessOfAnotherInstallation: one installation cosigns another's log, across kills of the witness, and refuses
// the log once its history was rewritten under the same key.
func TestWitnessOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	mine := t.TempDir()
	b := start(t, dataDir(t))
	for _, wrong := range [][]string{
		{"witness", "--data-dir", b.dir}, {"witness", "--data-dir", b.dir, "--witness-name", witnessName},
		{"keys", "witness", "--data-dir", b.dir},
	} {
		if r := integrity(t, nil, wrong...); r.code != cli.ExitFailed {
			t.Errorf("%v: %+v", wrong, r)
		}
	}
	key := strings.TrimSpace(must(t, nil, "keys", "witness", "--data-dir", b.dir, "--witness-name", witnessName))
	if again := strings.TrimSpace(must(
		t, nil, "keys", "witness", "--data-dir", b.dir, "--witness-name", witnessName,
	)); again != key {
		t.Errorf("another key is printed: %s, %s", key, again)
	}
	pinned, err := evidence.ParseWitnessKey(key)
	if err != nil {
		t.Fatal(err)
	}
	// A log other than the expected one.
	stranger, err := evidence.NewLogKey("other.example/log", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	w := startWitness(t, b.dir, write(t, filepath.Join(mine, "logs"), stranger.VerifierKey+"\n"))

	dir := dataDir(t)
	submits := []string{"--demo", "--listen", freeAddress(t), "--witnesses", key + " http://" + w.address}
	a := start(t, dir, submits...)
	n := 0
	register := func() {
		t.Helper()
		access := a.demo()
		n++
		var record wire.Registration
		mustJSON(t, []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + a.base},
			&record, "register",
			write(t, filepath.Join(mine, "document"), fmt.Sprintf("%%PDF %d", n)), "--company", access.CompanyReference,
			"--source", "w", "--document", fmt.Sprintf("d-%d", n), "--version", "1")
	}
	trusted, err := keyfiles.ReadTrusted(filepath.Join(dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.logs, trusted.LogKeys()[0].VerifierKey+"\n")
	if trusted, err = trusted.AddWitnessKey(pinned); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	cosigned := func(leaves int64) (at logHead) {
		t.Helper()
		eventually(t, "the checkpoint is cosigned", func() (err error) {
			if at, err = a.logHead(); err == nil && (at.N < leaves ||
				len(trusted.Cosigned(at.text, time.Now().Add(time.Hour))) != 1) {
				err = fmt.Errorf("not cosigned: %s", at.text)
			}
			return err
		})
		return at
	}
	register()
	first := cosigned(1)
	w.kill()
	register()
	w.start()
	second := cosigned(first.N + 1)
	a.stop()
	if out, err := exec.Command("cp", "-a", dir, dir+".earlier").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	earlier := cosignedLogs(t, b)

	a = start(t, dir, submits...)
	register()
	register()
	last := cosigned(second.N + 2)
	a.stop()
	if logs := cosignedLogs(t, b); len(logs) != 1 || logs[0].Size < last.N || logs[0].Size <= earlier[0].Size ||
		len(logs[0].SplitViews) != 0 {
		t.Fatalf("%+v", logs)
	}

	// The log is set back to the earlier day, and continues differently under the same key.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".earlier", dir); err != nil {
		t.Fatal(err)
	}
	known := cosignedLogs(t, b)[0]
	a = start(t, dir, submits...)
	eventually(t, "the rewritten log has outgrown the first one", func() error {
		register()
		at, err := a.logHead()
		if err == nil && at.N <= known.Size {
			err = fmt.Errorf("%d of more than %d", at.N, known.Size)
		}
		return err
	})
	w.says("SPLIT VIEW", "proof does not hold")
	if at, err := a.logHead(); err != nil || len(trusted.Cosigned(at.text, time.Now().Add(time.Hour))) != 0 {
		t.Errorf("a rewritten history is cosigned: %v\n%s", err, at.text)
	}
	if now := cosignedLogs(t, b)[0]; now.Size != known.Size || now.Checkpoint != known.Checkpoint {
		t.Errorf("%+v, was %+v", now, known)
	}
	if text := string(fetched(t, "http://"+w.metrics+"/metrics", "")); !strings.Contains(text, `outcome="cosigned"`) ||
		!strings.Contains(text, "integrity_witness_cosigned_leaves{") {
		t.Error(text)
	}
	w.stop()
}

// cosignedLogs returns the logs that an installation has cosigned, and its findings.
func cosignedLogs(t *testing.T, s *running) (logs []operator.CosignedView) {
	t.Helper()
	r := integrity(t, nil, "log", "cosigned", "--json", "--data-dir", s.dir)
	if r.code == cli.ExitFailed {
		t.Fatalf("%+v", r)
	}
	if err := json.Unmarshal([]byte(r.out), &logs); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	if found := len(logs) > 0 && len(logs[0].SplitViews) > 0; found != (r.code == cli.ExitNegative) {
		t.Errorf("exit code %d for %+v", r.code, logs)
	}
	return logs
}
