package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	nats "github.com/nats-io/nats.go"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/wire"
)

// wantFeed waits until the stream has as many events as the feed, and requires that they are the same, byte for byte,
// in the same order, each once.
func wantFeed(t testing.TB, b *integritytest.Broker, s *running, access demo.Access) {
	t.Helper()
	var feed struct{ Events []json.RawMessage }
	path := s.base + "/api/v1/integrity/changes?limit=1000&companyReference=" + access.CompanyReference
	if status, err := call(plainHTTP(), http.MethodGet, path, access.Keys.Worker, nil, &feed); err != nil ||
		status != http.StatusOK {
		t.Fatalf("feed: %d %v", status, err)
	}
	var all []*nats.RawStreamMsg
	eventually(t, "the stream has as many events as the feed", func() (err error) {
		if all, err = b.Messages(stream.Name); err == nil && len(all) < len(feed.Events) {
			err = fmt.Errorf("%d of %d", len(all), len(feed.Events))
		}
		return err
	})
	if len(all) != len(feed.Events) {
		t.Errorf("%d messages for %d events", len(all), len(feed.Events))
	}
	for i, m := range all[:min(len(all), len(feed.Events))] {
		var e wire.FeedEvent
		if err := json.Unmarshal(feed.Events[i], &e); err != nil {
			t.Fatal(err)
		}
		company := m.Subject[strings.LastIndex(m.Subject, ".")+1:]
		if string(m.Data) != string(feed.Events[i]) || m.Header.Get(nats.MsgIdHdr) != e.ID ||
			m.Subject != "integrity.events."+access.OrganizationID+"."+company || !strings.HasPrefix(company, "com_") {
			t.Errorf("message %d: %s %v %s; the feed has %s", i, m.Subject, m.Header, m.Data, feed.Events[i])
		}
	}
}

func batch(t *testing.T, a demo.Access, base string, from, n int) {
	t.Helper()
	declarations := make([]wire.Declaration, n)
	for i := range declarations {
		declarations[i] = wire.Declaration{
			CompanyReference: a.CompanyReference, Source: "test", DocumentReference: fmt.Sprintf("s-%d", (from+i)/2),
			Version: int32(1 + (from+i)%2),
			SHA256:  strings.Repeat("b", 64), MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
		}
	}
	var answer struct{ Results []struct{ Status int } }
	status, err := call(
		plainHTTP(), http.MethodPost, base+"/api/v1/integrity/records/batch", a.Keys.Worker,
		map[string]any{"declarations": declarations}, &answer,
	)
	if err != nil || status != http.StatusOK {
		t.Fatalf("register: %d %v", status, err)
	}
	for _, r := range answer.Results {
		if r.Status != http.StatusCreated {
			t.Fatalf("a registration answered %d", r.Status)
		}
	}
}

// TestStream: the stream equals the feed, although the broker starts late and goes away, a service is killed, and two
// services forward at once.
func TestStream(t *testing.T) {
	t.Parallel()
	b := integritytest.NewBroker(t)
	args := []string{"--demo", "--listen", freeAddress(t)}
	in := surroundings{env: []string{"INTEGRITY_NATS_URL=" + b.URL()}}
	s := in.start(t, dataDir(t), args...) // without a broker
	access := s.demo()
	batch(t, access, s.base, 0, 50)
	eventually(t, "the log says what is missing", func() error {
		if !strings.Contains(readLog(t, s), stream.ErrBrokerAway.Error()) {
			return errors.New("it does not")
		}
		return nil
	})
	b.Start()
	wantFeed(t, b, s, access)

	b.Stop()
	batch(t, access, s.base, 50, 50) // undisturbed
	b.Start()
	wantFeed(t, b, s, access)

	batch(t, access, s.base, 100, 300)
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s = in.start(t, s.dir, args...)
	wantFeed(t, b, s, access)

	server, err := postgres.StartOrAttach(context.Background(), postgres.Config{DataDir: s.dir, Purpose: "test"})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"--trusted-keys", filepath.Join(s.dir, keyfiles.TrustedKeysFile), "--log-level", "info"}
	other := surroundings{
		env: append(
			in.env, "INTEGRITY_DATABASE_URL="+server.URL(postgres.Database),
			"INTEGRITY_SIGNING_KEY_FILE="+filepath.Join(s.dir, keyfiles.SigningKeyFile),
		),
	}.
		start(t, dataDir(t), append(keys, "--base-url", s.base)...)
	batch(t, access, s.base, 400, 100)
	batch(t, access, other.base, 500, 100)
	wantFeed(t, b, s, access)
	other.stop()
	if err := server.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	batch(t, access, s.base, 600, 50)
	wantFeed(t, b, s, access)
	wantClean(t, s.log, access.Keys.Worker)
}

// TestStreamSettings: wrong settings are reported at startup.
func TestStreamSettings(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"INTEGRITY_NATS_URL=http://127.0.0.1:4222"}, {"INTEGRITY_NATS_URL=nats://"}, {"INTEGRITY_NATS_CREDENTIALS=x.creds"},
	} {
		if r := integrity(t, env, "serve", "--data-dir", dataDir(t), "--listen", "127.0.0.1:0"); r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, strings.SplitN(env[0], "=", 2)[0]) {
			t.Errorf("%v: %d %s", env, r.code, r.errs)
		}
	}
}
