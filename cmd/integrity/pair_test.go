package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/handlers/wire"
)

// paired is an installation with a witness process, which was paired with another.
type paired struct {
	*running
	dir, name, listen, address string
	witness                    *witnessProcess
}

func (p *paired) serve(t *testing.T) {
	t.Helper()
	p.running = start(t, p.dir, "--demo", "--listen", p.listen, "--witness-name", p.name, "--witness-url", "http://"+p.address)
}

func newPaired(t *testing.T, name string) *paired {
	t.Helper()
	p := &paired{dir: dataDir(t), name: name, listen: freeAddress(t), address: freeAddress(t)}
	p.serve(t)
	return p
}

// asks is the command that pairs an installation with another.
func (p *paired) asks(with *paired) []string {
	return []string{
		"witness", "pair", with.base, "--data-dir", p.dir, "--witness-name", p.name, "--witness-url", "http://" + p.address,
	}
}

// pair pairs an installation with another, whose fingerprint somebody has read out.
func (p *paired) pair(t *testing.T, with *paired, fingerprint string) result {
	t.Helper()
	return integrity(t, nil, append(p.asks(with), "--json", "--yes", fingerprint)...)
}

// document reads what a service publishes about the parties that vouch for it.
func (p *paired) document(t *testing.T) (view wire.Independence) {
	t.Helper()
	if err := json.Unmarshal(fetched(t, p.base+"/api/public/log/independence", ""), &view); err != nil {
		t.Fatal(err)
	}
	return view
}

// TestPairedWitnesses: two installations become each other's witnesses with one command each. Then the history of one is
// rewritten: the other does not cosign it, and the page of the first says so.
func TestPairedWitnesses(t *testing.T) {
	t.Parallel()
	a, b := newPaired(t, "a.example/witness"), newPaired(t, "b.example/witness")
	fingerprints := map[*paired]string{}
	for one, other := range map[*paired]*paired{a: b, b: a} {
		wrong := one.pair(t, other, strings.Repeat("0", 64))
		if wrong.code != cli.ExitNegative || !strings.Contains(wrong.errs, "nothing was written") {
			t.Errorf("another fingerprint: %+v", wrong)
		}
		if asked := integrity(t, nil, one.asks(other)...); asked.code == cli.ExitOK ||
			!strings.Contains(asked.errs, "its fingerprint") {
			t.Errorf("without an answer: %+v", asked)
		}
		for _, file := range []string{config.WitnessesFile, config.WitnessLogsFile} {
			if _, err := os.Stat(filepath.Join(one.dir, file)); err == nil {
				t.Errorf("%s was written without a confirmation", file)
			}
		}
		_, read, _ := strings.Cut(wrong.errs, "fingerprint is ")
		read, _, _ = strings.Cut(read, ",")
		fingerprints[other] = read
	}
	for one, other := range map[*paired]*paired{a: b, b: a} {
		var view operator.PairView
		r := one.pair(t, other, fingerprints[other])
		if err := json.Unmarshal([]byte(r.out), &view); err != nil || r.code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
		if len(view.Changed) != 3 || view.Witness.Name != other.name ||
			view.OwnFingerprint != strings.ReplaceAll(fingerprints[one], " ", "") {
			t.Errorf("%+v", view)
		}
		if r = one.pair(t, other, fingerprints[other]); r.code != cli.ExitOK || !strings.Contains(r.out, `"changed": []`) {
			t.Errorf("again: %+v", r)
		}
	}
	if self := a.pair(t, a, fingerprints[a]); self.code == cli.ExitOK {
		t.Errorf("paired with itself: %+v", self)
	}
	for _, p := range []*paired{a, b} {
		p.stop()
		p.serve(t)
		p.witness = &witnessProcess{
			t: t, address: p.address, metrics: freeAddress(t), dir: p.dir, name: p.name,
			logPath: filepath.Join(t.TempDir(), "witness.log"),
		}
		p.witness.start()
		t.Cleanup(p.witness.stop)
	}
	n := 0
	register := func() {
		t.Helper()
		access := a.demo()
		n++
		var record wire.Registration
		mustJSON(t, []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + a.base},
			&record, "register", write(t, filepath.Join(t.TempDir(), "document"), fmt.Sprintf("%%PDF %d", n)), "--company",
			access.CompanyReference, "--source", "p", "--document", fmt.Sprintf("d-%d", n), "--version", "1")
	}
	page := func() string { return string(fetched(t, a.base+"/en/trust", "")) }
	cosigned := func(leaves int64) int64 {
		t.Helper()
		var size int64
		eventually(t, "the newest checkpoint is cosigned", func() error {
			view := a.document(t)
			if len(view.Witnesses) != 1 || !view.Witnesses[0].Pinned || view.Witnesses[0].Cosignature == nil ||
				!view.Witnesses[0].Cosignature.Newest || view.Checkpoint.TreeSize < leaves {
				return fmt.Errorf("%+v", view)
			}
			size = view.Checkpoint.TreeSize
			return nil
		})
		return size
	}
	register()
	first := cosigned(1)
	text := page()
	if !strings.Contains(text, "Of the witnesses that count, 1 of 1 cosigned the newest checkpoint.") {
		t.Error(text)
	}
	// The reader runs the command as it is printed.
	_, command, _ := strings.Cut(text, "<pre><code>curl -fsS -o ")
	command, _, _ = strings.Cut(command, "</code></pre>")
	run := exec.Command("bash", "-euo", "pipefail", "-c", "curl -fsS -o "+html.UnescapeString(command))
	run.Dir = t.TempDir()
	run.Env = cleanEnviron("PATH=" + filepath.Dir(os.Getenv(binaryVariable)) + ":" + os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(command, "--require-witnesses 1") ||
		!strings.Contains(string(out), "witnessed: 1 of 1") {
		t.Errorf("%s: %v: %s", command, err, out)
	}
	eventually(t, "b is cosigned by a", func() error {
		view := b.document(t)
		if len(view.Witnesses) != 1 || view.Witnesses[0].Name != a.name || view.Witnesses[0].Cosignature == nil {
			return fmt.Errorf("%+v", view.Witnesses)
		}
		return nil
	})

	// The history of a is rewritten under the same key.
	a.witness.stop()
	a.stop()
	if out, err := exec.Command("cp", "-a", a.dir, a.dir+".earlier").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.serve(t)
	register()
	register()
	known := cosigned(first + 2)
	a.stop()
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.dir+".earlier", a.dir); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
	eventually(t, "the rewritten log has outgrown the first one", func() error {
		register()
		if view := a.document(t); view.Checkpoint == nil || view.Checkpoint.TreeSize <= known {
			return fmt.Errorf("%+v", view.Checkpoint)
		}
		return nil
	})
	eventually(t, "the page says so", func() error {
		text := page()
		for _, words := range []string{
			"Only this service vouches for its newest checkpoint.", "0 of 1 cosigned the newest checkpoint.",
			"It has NOT cosigned the newest checkpoint.",
			"the witness says that the checkpoint does not continue the history that it has cosigned.",
		} {
			if !strings.Contains(text, words) {
				return fmt.Errorf("the page does not say %q: %s", words, text)
			}
		}
		return nil
	})
	if view := a.document(t); view.Witnesses[0].Refusal == nil || view.Witnesses[0].Refusal.Reason != "other-history" ||
		view.Witnesses[0].Cosignature == nil || view.Witnesses[0].Cosignature.TreeSize >= known {
		t.Errorf("%+v %+v, known %d", view.Witnesses[0].Refusal, view.Witnesses[0].Cosignature, known)
	}
}

// TestOwnWitnessWithExternalDatabase: a service without its own database creates no witness key, because each of several
// servers would create another. It publishes the one of integrity keys witness.
func TestOwnWitnessWithExternalDatabase(t *testing.T) {
	t.Parallel()
	dir, _ := keyDir(t)
	env := []string{
		"INTEGRITY_DATABASE_URL=" + foreignDatabase(t.Context(), t), "INTEGRITY_DATA_DIR=" + dir,
		"INTEGRITY_WITNESS_NAME=a.example/witness", "INTEGRITY_WITNESS_URL=https://witness.a.example",
	}
	must(t, env, "migrate", "--issuer", "a.example")
	p := &paired{running: surroundings{env: env}.start(t, dir)}
	if view := p.document(t); view.Witness != nil || !strings.Contains(readLog(t, p.running), "integrity keys witness") {
		t.Errorf("%+v", view.Witness)
	}
	key := strings.TrimSpace(must(t, env, "keys", "witness"))
	hangUp(t, p.running)
	if own := p.document(t).Witness; own == nil || own.VerifierKey != key || *own.Address != "https://witness.a.example" {
		t.Errorf("%+v, not %s", own, key)
	}
}

// TestWitnessWithoutLogs: the error names the file that pairing writes.
func TestWitnessWithoutLogs(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	must(t, nil, "keys", "witness", "--data-dir", dir, "--witness-name", "a.example/witness")
	r := integrity(t, nil, "witness", "--data-dir", dir, "--witness-name", "a.example/witness", "--witness-listen", "127.0.0.1:0")
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, filepath.Join(dir, config.WitnessLogsFile)) ||
		!strings.Contains(r.errs, "integrity witness pair") {
		t.Errorf("%+v", r)
	}
	write(t, filepath.Join(dir, config.WitnessLogsFile), "x\n")
	r = integrity(t, nil, "witness", "--data-dir", dir, "--witness-name", "a.example/witness", "--witness-listen", "127.0.0.1:0")
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, filepath.Join(dir, config.WitnessLogsFile)+": ") {
		t.Errorf("a fault in the file: %+v", r)
	}
}
