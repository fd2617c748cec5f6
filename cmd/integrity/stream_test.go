package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"integrityledger/cmd/postgres"
	"integrityledger/handlers/wire"
)

// broker is a NATS server whose port and files outlive it.
type broker struct {
	t    testing.TB
	port int
	dir  string
	now  *server.Server
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, dir: t.TempDir()}
	if b.port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	return b
}

func (b *broker) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.port) }

func (b *broker) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(patient) {
		b.t.Fatal("the broker is not ready")
	}
	b.now = s
}

func (b *broker) stop() {
	if b.now != nil {
		b.now.Shutdown()
		b.now.WaitForShutdown()
		b.now = nil
	}
}

// messages are all that the stream holds, in its order; none of one that is still empty. It is an error where there is no stream yet.
func (b *broker) messages() (all []*nats.RawStreamMsg, err error) {
	conn, err := nats.Connect(b.url(), nats.Timeout(patient))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stream, err := conn.JetStream(nats.MaxWait(patient))
	if err != nil {
		return nil, err
	}
	info, err := stream.StreamInfo(streamName)
	if err != nil || info.State.Msgs == 0 {
		return nil, err
	}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		m, err := stream.GetMsg(streamName, sequence)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// wantFeed waits until the stream holds as many events as the feed, and requires that they are the same, byte for byte
// and in the same order, each once.
func (b *broker) wantFeed(s *running, access demoAccess) {
	b.t.Helper()
	var feed struct{ Events []json.RawMessage }
	path := s.base + "/api/v1/integrity/changes?limit=1000&companyReference=" + access.CompanyReference
	if status, err := call(plainHTTP(), http.MethodGet, path, access.Keys.Worker, nil, &feed); err != nil || status != http.StatusOK {
		b.t.Fatalf("feed: %d %v", status, err)
	}
	var all []*nats.RawStreamMsg
	eventually(b.t, "the stream has as many events as the feed", func() (err error) {
		if all, err = b.messages(); err == nil && len(all) < len(feed.Events) {
			err = fmt.Errorf("%d of %d", len(all), len(feed.Events))
		}
		return err
	})
	if len(all) != len(feed.Events) {
		b.t.Errorf("%d messages for %d events", len(all), len(feed.Events))
	}
	for i, m := range all[:min(len(all), len(feed.Events))] {
		var e wire.FeedEvent
		if err := json.Unmarshal(feed.Events[i], &e); err != nil {
			b.t.Fatal(err)
		}
		company := m.Subject[strings.LastIndex(m.Subject, ".")+1:]
		if string(m.Data) != string(feed.Events[i]) || m.Header.Get(nats.MsgIdHdr) != e.ID ||
			m.Subject != "integrity.events."+access.OrganizationID+"."+company || !strings.HasPrefix(company, "com_") {
			b.t.Errorf("message %d: %s %v %s; the feed has %s", i, m.Subject, m.Header, m.Data, feed.Events[i])
		}
	}
}

func (a demoAccess) batch(t *testing.T, base string, from, n int) {
	t.Helper()
	declarations := make([]wire.Declaration, n)
	for i := range declarations {
		declarations[i] = wire.Declaration{
			CompanyReference: a.CompanyReference, Source: "test", DocumentReference: fmt.Sprintf("s-%d", (from+i)/2), Version: int32(1 + (from+i)%2),
			SHA256: strings.Repeat("b", 64), MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
		}
	}
	var answer struct{ Results []struct{ Status int } }
	status, err := call(plainHTTP(), http.MethodPost, base+"/api/v1/integrity/records/batch", a.Keys.Worker, map[string]any{"declarations": declarations}, &answer)
	if err != nil || status != http.StatusOK {
		t.Fatalf("register: %d %v", status, err)
	}
	for _, r := range answer.Results {
		if r.Status != http.StatusCreated {
			t.Fatalf("a registration answered %d", r.Status)
		}
	}
}

// TestStream: the stream is the feed, over a broker that is not there yet, one that goes away, a killed service, and
// two services at once.
func TestStream(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	args := []string{"--demo", "--listen", freeAddress(t)}
	in := surroundings{env: []string{"INTEGRITY_NATS_URL=" + b.url()}}
	s := in.start(t, dataDir(t), args...) // without a broker
	access := s.demo()
	access.batch(t, s.base, 0, 50)
	eventually(t, "the log says what is missing", func() error {
		if !strings.Contains(readLog(t, s), errBrokerAway.Error()) {
			return errors.New("it does not")
		}
		return nil
	})
	b.start()
	b.wantFeed(s, access)

	b.stop()
	access.batch(t, s.base, 50, 50) // undisturbed
	b.start()
	b.wantFeed(s, access)

	access.batch(t, s.base, 100, 300)
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s = in.start(t, s.dir, args...)
	b.wantFeed(s, access)

	server, err := postgres.StartOrAttach(context.Background(), postgres.Config{DataDir: s.dir, Purpose: "test"})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"--trusted-keys", filepath.Join(s.dir, trustedKeysFile), "--log-level", "info"}
	other := surroundings{env: append(in.env, "INTEGRITY_DATABASE_URL="+server.URL(postgres.Database), "INTEGRITY_SIGNING_KEY_FILE="+filepath.Join(s.dir, signingKeyFile))}.
		start(t, dataDir(t), append(keys, "--base-url", s.base)...)
	access.batch(t, s.base, 400, 100)
	access.batch(t, other.base, 500, 100)
	b.wantFeed(s, access)
	other.stop()
	if err := server.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	access.batch(t, s.base, 600, 50)
	b.wantFeed(s, access)
	wantClean(t, s.log, access.Keys.Worker)
}

// TestStreamSettings: what is wrong is told at the start.
func TestStreamSettings(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{{"INTEGRITY_NATS_URL=http://127.0.0.1:4222"}, {"INTEGRITY_NATS_URL=nats://"}, {"INTEGRITY_NATS_CREDENTIALS=x.creds"}} {
		if r := integrity(t, env, "serve", "--data-dir", dataDir(t), "--listen", "127.0.0.1:0"); r.code != exitFailed || !strings.Contains(r.errs, strings.SplitN(env[0], "=", 2)[0]) {
			t.Errorf("%v: %d %s", env, r.code, r.errs)
		}
	}
}
