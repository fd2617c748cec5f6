package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client/monitor"
	"integrityledger/handlers/client/monitor/monitortest"
)

// lockedBuffer can be read while a command writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) says(text string) func() error {
	return func() error {
		if said := l.String(); !strings.Contains(said, text) {
			return fmt.Errorf("%q is not said: %s", text, said)
		}
		return nil
	}
}

// watchedLog is a log, its server, and the command's arguments.
type watchedLog struct {
	*monitortest.Log
	t          *testing.T
	signer     *evidence.Signer
	trusted    *evidence.TrustedKeys
	url, state string
	args       []string
}

func newWatchedLog(t *testing.T, size int) *watchedLog {
	t.Helper()
	w := &watchedLog{Log: monitortest.New("ledger.example/log", 1), t: t}
	w.Grow(size)
	server := httptest.NewServer(w.Log)
	t.Cleanup(server.Close)
	var err error
	w.signer = evidence.GenerateSigner()
	if w.trusted, err = evidence.NewTrustedKeys(
		[]evidence.TrustedKey{{PublicKey: w.signer.Key()}}, nil, []evidence.LogKey{w.Key()},
	); err != nil {
		t.Fatal(err)
	}
	text, err := w.trusted.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w.url, w.state = server.URL, filepath.Join(dir, "log.json")
	w.args = []string{
		"monitor", w.url, "--trusted-keys", write(t, filepath.Join(dir, "trusted-keys.json"), string(text)), "--state",
		w.state,
	}
	return w
}

func (w *watchedLog) run(more ...string) result {
	w.t.Helper()
	var out, errs bytes.Buffer
	a := &app{&cli.App{Out: &out, Errs: &errs, Now: time.Now}}
	code := a.Run(w.t.Context(), a.rootCommand(), append(w.args, more...))
	return result{out.String(), errs.String(), code}
}

// keeps requires that the state holds this checkpoint.
func (w *watchedLog) keeps(note string) {
	w.t.Helper()
	var s clientcmd.LogState
	if err := json.Unmarshal([]byte(w.file(w.state)), &s); err != nil || s.Checkpoint != note {
		w.t.Errorf("the state holds %q, %v", s.Checkpoint, err)
	}
}

func (w *watchedLog) file(path string) string {
	w.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// alarms returns the alarm files.
func (w *watchedLog) alarms() []string {
	w.t.Helper()
	files, err := filepath.Glob(w.state + ".alarm-*.json")
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

func TestMonitor(t *testing.T) {
	w := newWatchedLog(t, 3)
	if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "ledger.example/log has 3 entries") ||
		!strings.Contains(r.out, "stored as the first checkpoint") {
		t.Fatalf("%+v", r)
	}
	w.keeps(w.Checkpoint())
	w.Grow(300)
	if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "consistent with the last checkpoint") {
		t.Fatalf("%+v", r)
	}
	var printed struct {
		Result, Origin, Root string
		Size                 int64
		Witnesses            []string
	}
	r := w.run("--json")
	if err := json.Unmarshal([]byte(r.out), &printed); err != nil || printed.Result != "consistent" ||
		printed.Size != 300 || printed.Root == "" || printed.Witnesses == nil {
		t.Errorf("%v in %s", err, r.out)
	}
	good := w.Checkpoint()

	// An outage changes nothing and raises no alarm.
	w.Answer(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	if r := w.run(); r.code != cli.ExitFailed || !strings.Contains(r.errs, "which says nothing about the log") ||
		strings.Contains(r.errs, "ALARM") {
		t.Errorf("%+v", r)
	}
	w.Answer(nil)

	w.Edit(func(entries []string) []string {
		entries[7] = "another"
		return append(entries, "one more")
	})
	for range 2 {
		if r := w.run("--json"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: rewritten") ||
			!strings.Contains(r.out, `"result":"alarm","kind":"rewritten"`) {
			t.Errorf("%+v", r)
		}
		w.keeps(good)
	}
	files := w.alarms()
	if len(files) != 1 {
		t.Fatalf("alarms: %v", files)
	}
	var kept struct {
		monitor.AlarmError
		Service, DetectedAt string
	}
	if err := json.Unmarshal([]byte(w.file(files[0])), &kept); err != nil || kept.Known != good ||
		kept.Seen != w.Checkpoint() || kept.KnownFrom != w.state || kept.Service != w.url {
		t.Errorf("%v: %+v", err, kept)
	}
}

// TestMonitorFollows: a log that is replaced while it is followed, with outages in between.
func TestMonitorFollows(t *testing.T) {
	w := newWatchedLog(t, 3)
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	a := &app{&cli.App{Out: &out, Errs: &errs, Now: time.Now}}
	go func() { ended <- a.Run(t.Context(), a.rootCommand(), append(w.args, "--follow", "--every", "1s")) }()
	eventually(t, "the first checkpoint", out.says("has 3 entries"))
	w.Answer(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	eventually(t, "the outage", errs.says("trying again in"))
	w.Grow(5)
	w.Answer(nil)
	eventually(t, "the second checkpoint", out.says("has 5 entries"))
	w.keeps(w.Checkpoint())
	w.Edit(func(entries []string) []string { return append([]string{"before"}, entries...) })
	select {
	case code := <-ended:
		if code != cli.ExitNegative || !strings.Contains(errs.String(), "ALARM: rewritten") || len(w.alarms()) != 1 {
			t.Errorf("exit code %d: %s%s", code, out.String(), errs.String())
		}
	case <-time.After(patient):
		t.Fatal("nobody shouts")
	}
	if told := strings.Count(out.String(), "entries, root"); told != 2 {
		t.Errorf("%d checkpoints are reported: %s", told, out.String())
	}
}

func TestMonitorIsInterrupted(t *testing.T) {
	w := newWatchedLog(t, 3)
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs lockedBuffer
	ended := make(chan int, 1)
	a := &app{&cli.App{Out: &out, Errs: &errs, Now: time.Now}}
	go func() { ended <- a.Run(ctx, a.rootCommand(), append(w.args, "--follow", "--every", "1h")) }()
	eventually(t, "the first checkpoint", out.says("has 3 entries"))
	interrupt()
	if code := <-ended; code != cli.ExitOK || errs.String() != "" {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// proven saves evidence and a transparency log proof of a record that is the log's last entry.
func (w *watchedLog) proven() (saved, inLines string) {
	w.t.Helper()
	record := evidence.RecordPayload{
		Issuer: "https://ledger.example", PublicID: strings.Repeat("a", 26), SHA256: evidence.Hash{0xbb},
		MimeType:    "text/plain",
		GeneratedAt: "2026-11-20T09:00:00Z", ReceivedAt: time.Date(2026, 11, 20, 9, 0, 1, 0, time.UTC),
		ReferencesSHA256: evidence.Hash{0xcc},
	}
	signed, err := w.signer.SignPayload(record.AppendCanonical(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	envelope := evidence.NewEnvelope(signed)
	leaf := string(evidence.Leaf{
		ID: "evt_" + strings.Repeat("0", 26), Type: "integrity.registered", OccurredAt: record.ReceivedAt,
		PayloadSHA256: new(evidence.Hash(sha256.Sum256([]byte(envelope.Payload)))), BodySHA256: evidence.Hash{0xdd},
	}.AppendCanonical(nil))
	var size int64
	w.Edit(func(entries []string) []string {
		size = int64(len(entries)) + 1
		return append(entries, leaf)
	})
	proof, err := tlog.ProveRecord(size, size-1, w.Log)
	if err != nil {
		w.t.Fatal(err)
	}
	envelope.Inclusion = &evidence.Inclusion{
		Leaf: leaf, LeafIndex: size - 1, TreeSize: size, Hashes: []string{}, Checkpoint: w.Checkpoint(),
	}
	for _, hash := range proof {
		envelope.Inclusion.Hashes = append(envelope.Inclusion.Hashes, hash.String())
	}
	text, err := json.Marshal(envelope)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	return write(w.t, filepath.Join(dir, "evidence.json"), string(text)),
		write(w.t, filepath.Join(dir, "evidence.tlog-proof"), string(envelope.AppendProof(nil)))
}

// TestMonitorWithEvidence: saved evidence convicts a log that this monitor sees for the first time.
func TestMonitorWithEvidence(t *testing.T) {
	w := newWatchedLog(t, 20)
	saved, proof := w.proven()
	w.Grow(400)
	if r := w.run("--evidence", saved, "--evidence", proof); r.code != cli.ExitOK ||
		!strings.Contains(r.out, "consistent with the saved evidence (2)") {
		t.Fatalf("%+v", r)
	}
	if r := w.run("--evidence", w.args[3]); r.code != cli.ExitFailed || !strings.Contains(r.errs, "--evidence") {
		t.Errorf("%+v", r)
	}
	if err := os.Remove(w.state); err != nil {
		t.Fatal(err)
	}
	w.Edit(func(entries []string) []string {
		entries[20] = "the record was never here"
		return entries
	})
	for _, path := range []string{saved, proof} { // both alarms are one file, because their checkpoints are the same
		r := w.run("--evidence", path)
		if r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: rewritten") || len(w.alarms()) != 1 ||
			!strings.Contains(w.file(w.alarms()[0]), saved) {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if _, err := os.Stat(w.state); !os.IsNotExist(err) {
		t.Error("the checkpoint of a log that was rewritten is kept")
	}
}

func TestMonitorRefuses(t *testing.T) {
	w := newWatchedLog(t, 3)
	none := write(t, filepath.Join(t.TempDir(), "none.json"), `{"keys":[]}`)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no log keys":      {[]string{"monitor", w.url, "--trusted-keys", none, "--state", w.state}, "logKeys"},
		"plain http":       {append([]string{"monitor", "http://ledger.example"}, w.args[2:]...), "URL: must be https"},
		"no state":         {w.args[:4], "state"},
		"too often":        {append(w.args, "--follow", "--every", "10ms"), "--every"},
		"no keys":          {append(w.args[:2:2], "--trusted-keys", none+"x", "--state", w.state), "trusted keys"},
		"missing evidence": {append(w.args, "--evidence", none+"x"), "--evidence"},
		"another file":     {append(w.args[:4:4], "--state", none), "was not written by this command"},
		"unwritable":       {append(w.args[:4:4], "--state", filepath.Join(none, "state")), "--state"},
	} {
		var out, errs bytes.Buffer
		a := &app{&cli.App{Out: &out, Errs: &errs, Now: time.Now}}
		if code := a.Run(t.Context(), a.rootCommand(), c.args); code != cli.ExitFailed ||
			!strings.Contains(errs.String(), c.says) || out.Len() > 0 {
			t.Errorf("%s: exit code %d: %s%s", name, code, out.String(), errs.String())
		}
	}
	if len(w.alarms()) > 0 {
		t.Error(w.alarms())
	}
}
