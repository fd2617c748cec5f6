package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// logHead is a checkpoint verified with the log keys of a trusted-keys file.
type logHead struct {
	tlog.Tree
	text, key string
}

func (s *running) logHead() (h logHead, err error) {
	response, err := s.client.Get(s.base + "/api/public/log/checkpoint")
	if err != nil {
		return h, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return h, fmt.Errorf("checkpoint: %d %s %w", response.StatusCode, text, err)
	}
	trusted, err := keyfiles.ReadTrusted(filepath.Join(s.dir, keyfiles.TrustedKeysFile))
	if err != nil {
		return h, err
	}
	var known []note.Verifier
	for _, k := range trusted.LogKeys() {
		v, err := note.NewVerifier(k.VerifierKey)
		if err != nil {
			return h, err
		}
		known = append(known, v)
	}
	opened, err := note.Open(text, note.VerifierList(known...))
	if err != nil {
		return h, err
	}
	lines := strings.Split(opened.Text, "\n")
	h.text, h.key = string(text), fmt.Sprintf("%08x", opened.Sigs[0].Hash)
	if _, err := fmt.Sscan(lines[1], &h.N); err != nil {
		return h, err
	}
	h.Hash, err = tlog.ParseHash(lines[2])
	return h, err
}

// included waits until a record's evidence has its inclusion proof, and verifies that as a third party would.
func (s *running) included(id string) (at logHead) {
	s.t.Helper()
	eventually(s.t, "the record is in the log", func() error {
		request, err := http.NewRequest(http.MethodGet, s.base+"/api/v1/integrity/records/"+id+"/evidence", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+s.demo().Keys.Worker)
		response, err := plainHTTP().Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var export evidence.Envelope
		if err := json.NewDecoder(response.Body).Decode(&export); err != nil {
			return err
		}
		if export.Inclusion == nil {
			return fmt.Errorf("evidence without inclusion: %d", response.StatusCode)
		}
		if at, err = s.logHead(); err != nil {
			return err
		}
		if at.text != export.Inclusion.Checkpoint {
			return fmt.Errorf("another checkpoint was signed meanwhile")
		}
		var proof tlog.RecordProof
		for _, text := range export.Inclusion.Hashes {
			hash, err := tlog.ParseHash(text)
			if err != nil {
				return err
			}
			proof = append(proof, hash)
		}
		return tlog.CheckRecord(
			proof, at.N, at.Hash, export.Inclusion.LeafIndex, domain.LeafHash([]byte(export.Inclusion.Leaf)),
		)
	})
	return at
}

func (s *running) registerOne(document string) (publicID string) {
	s.t.Helper()
	var record struct{ PublicID string }
	body := map[string]any{
		"companyReference": s.demo().CompanyReference, "source": "s", "documentReference": document, "version": 1,
		"sha256": strings.Repeat("ab", 32), "sizeBytes": 1,
		"mimeType": "text/plain", "generatedAt": "2026-01-02T03:04:05Z",
	}
	if status, err := call(
		plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records", s.demo().Keys.Worker, body, &record,
	); err != nil || status != http.StatusCreated {
		s.t.Fatalf("register: %d %v", status, err)
	}
	return record.PublicID
}

// TestTransparencyLog: the demo keeps the log, which survives a kill of the service and a key rotation. Without its key
// the log stops, and registrations still work.
func TestTransparencyLog(t *testing.T) {
	dir := dataDir(t)
	s := start(t, dir, "--demo")
	id := s.registerOne("d-1")
	first := s.included(id)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s = start(t, dir, "--demo", "--listen", strings.TrimPrefix(s.base, "http://"))
	second := s.included(s.registerOne("d-2"))
	if second.N <= first.N || second.key != first.key {
		t.Errorf("from %d leaves to %d", first.N, second.N)
	}

	env := []string{"INTEGRITY_DATA_DIR=" + dir}
	var staged, activated struct{ KeyHash, Step string }
	mustJSON(t, env, &staged, "keys", "rotate", "--transparency-log", "--stage")
	mustJSON(t, env, &staged, "keys", "rotate", "--transparency-log", "--stage") // again, after an interruption
	if list := must(t, env, "keys", "list"); strings.Count(list, " log ") != 2 || !strings.Contains(list, "staged") {
		t.Errorf("keys list: %s", list)
	}
	mustJSON(t, env, &activated, "keys", "rotate", "--transparency-log", "--activate")
	if activated.KeyHash != staged.KeyHash || activated.Step != "activated" ||
		keyfiles.Exists(filepath.Join(dir, "log-key.next.pem")) {
		t.Errorf("staged %+v, activated %+v", staged, activated)
	}
	s.reload()
	var third logHead
	document := 0
	eventually(t, "the new key signs", func() error { // a checkpoint in progress is signed by the former key
		document++
		if third = s.included(s.registerOne(fmt.Sprint("d-3-", document))); third.key == second.key {
			return fmt.Errorf("signed by %s", third.key)
		}
		return nil
	})
	if third.key != activated.KeyHash {
		t.Errorf("signed by %s, the key is %s", third.key, activated.KeyHash)
	}
	var status operator.LogStatusView
	mustJSON(t, env, &status, "log", "status")
	if status.Published != third.N || status.Halted || *status.Checkpoint != third.text {
		t.Errorf("log status: %+v", status)
	}
	if out := must(t, env, "log", "check"); !strings.Contains(out, third.Hash.String()) {
		t.Errorf("log check: %s", out)
	}

	// After a restore the log is stopped until it was compared with a published checkpoint.
	s.stop()
	alone(t, dir, "UPDATE ledger SET epoch = epoch + 1")
	s = start(t, dir, "--demo", "--listen", strings.TrimPrefix(s.base, "http://"))
	restored := s.registerOne("d-restored")
	if r := integrity(t, env, "log", "status"); r.code != cli.ExitNegative || !strings.Contains(r.out, "STOPPED") {
		t.Errorf("log status: %d %s", r.code, r.out)
	}
	if out := integrity(t, env, "doctor").out; !strings.Contains(out, "the log has been stopped") {
		t.Errorf("doctor: %s", out)
	}
	known := write(t, filepath.Join(t.TempDir(), "checkpoint"), third.text+"\n") // as jq -r writes it
	for want, args := range map[string][]string{
		"--published FILE or --fork": {},
		"signed by a trusted log key": {
			"--published", write(t, filepath.Join(t.TempDir(), "x"), strings.Replace(third.text, "log", "dog", 1)),
		},
		"must not sign another": {"--fork"},
	} {
		if r := integrity(t, env, append([]string{"log", "resume"}, args...)...); r.code == cli.ExitOK ||
			!strings.Contains(r.errs, want) {
			t.Errorf("log resume %v: %d %s", args, r.code, r.errs)
		}
	}
	if out := must(t, env, "log", "resume", "--published", known); !strings.Contains(
		out, "no published leaf is lost",
	) {
		t.Errorf("log resume: %s", out)
	}
	s.included(restored)

	if err := os.Remove(filepath.Join(dir, keyfiles.LogKeyFile)); err != nil {
		t.Fatal(err)
	}
	s.reload()
	eventually(t, "the log has no worker", func() error { // a checkpoint may have been in progress
		if held := askOf[bool](
			t, dir,
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'integrity consumer' AND xact_start IS "+
				"NOT NULL)",
		); held {
			return fmt.Errorf("its transaction is open")
		}
		return nil
	})
	last, err := s.logHead()
	if err != nil {
		t.Fatal(err)
	}
	s.registerOne("d-4")
	if out := integrity(t, env, "doctor").out; !strings.Contains(out, "there is no log key") {
		t.Errorf("doctor: %s", out)
	}
	if head, err := s.logHead(); err != nil || head.text != last.text {
		t.Errorf("without its key the log went on: %v", err)
	}
	s.stop()
	s = start(t, dir, "--demo", "--listen", strings.TrimPrefix(s.base, "http://"), "--transparency", "off")
	s.registerOne("d-5")
	if _, err := s.logHead(); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a log that is off: %v", err)
	}
}

// reload makes the service reload its key files, and waits until it has.
func (s *running) reload() {
	s.t.Helper()
	before := strings.Count(s.logText(), "key files reloaded")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the key files are read", func() error {
		if strings.Count(s.logText(), "key files reloaded") == before {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

func (s *running) logText() string {
	s.t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}
