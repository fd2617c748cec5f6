package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// balancer is a load balancer of the kind that operators use. It polls each server's /readyz and sends each request
// once, to a ready server. It holds requests while no server is ready, because on a busy machine the only server may be
// too slow for its own check.
type balancer struct {
	*httptest.Server
	ready [2]atomic.Pointer[time.Time] // when the last positive check began; nil: the last check failed
	out   [2]atomic.Bool               // taken out by hand
	asked [2]atomic.Int64              // requests that a server has not answered
	next  atomic.Uint64
}

const (
	healthInterval = 50 * time.Millisecond
	// healthAge is how old a positive check may be. It is well below drainDelay: a server whose answers come late, because
	// the machine is busy, may be about to close.
	healthAge  = drainDelay / 3
	drainDelay = 5 * time.Second
)

func (b *balancer) takes(server int) bool {
	asked := b.ready[server].Load()
	return asked != nil && time.Since(*asked) < healthAge && !b.out[server].Load()
}

// give sends a request to a server, if that takes requests.
func (b *balancer) give(server int, to http.Handler, w http.ResponseWriter, r *http.Request) bool {
	b.asked[server].Add(1) // before the question, for drain
	defer b.asked[server].Add(-1)
	if !b.takes(server) {
		return false
	}
	to.ServeHTTP(w, r)
	return true
}

// drain takes a server out by hand, and waits until it has answered all requests.
func (b *balancer) drain(t *testing.T, server int) {
	t.Helper()
	b.out[server].Store(true)
	eventually(t, fmt.Sprintf("server %d has answered", server), func() error {
		if n := b.asked[server].Load(); n > 0 {
			return fmt.Errorf("not %d requests", n)
		}
		return nil
	})
}

func newBalancer(t *testing.T, servers [2]string) *balancer {
	t.Helper()
	b := &balancer{}
	var proxies [2]*httputil.ReverseProxy
	for i, server := range servers {
		to, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
		t.Cleanup(transport.CloseIdleConnections)
		proxies[i] = &httputil.ReverseProxy{
			Transport: transport,
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				t.Errorf("the proxy cannot reach %s: %v", to.Host, err)
				w.WriteHeader(http.StatusBadGateway)
			},
		}
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for i := range servers {
		asking.Go(func() {
			for {
				asked := time.Now()
				response, err := plainHTTP().Get(servers[i] + "/readyz")
				if err == nil {
					response.Body.Close()
				}
				if err != nil || response.StatusCode != http.StatusOK {
					b.ready[i].Store(nil)
				} else {
					b.ready[i].Store(&asked)
				}
				select {
				case <-stop:
					return
				case <-time.After(healthInterval):
				}
			}
		})
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := b.next.Add(1)
		for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(healthInterval) {
			for i := range uint64(2) {
				if server := int((n + i) % 2); b.give(server, proxies[server], w, r) {
					return
				}
			}
		}
		t.Error("no server is ready")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(func() {
		close(stop)
		asking.Wait()
		b.Close()
	})
	for i := range servers {
		b.wait(t, i)
	}
	return b
}

func (b *balancer) wait(t *testing.T, server int) {
	t.Helper()
	eventually(t, fmt.Sprintf("server %d is given requests", server), func() error {
		if !b.takes(server) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

// steady registers without ever repeating a request: each must be answered with 201.
type steady struct {
	client                   *http.Client
	base, key, company, name string
	acknowledged             []acknowledged
}

func (w *steady) run(t *testing.T, stop *atomic.Bool, count *atomic.Int64) {
	for version := int32(1); !stop.Load(); version++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", w.name, version))
		d := wire.Declaration{
			CompanyReference: w.company, Source: "steady", DocumentReference: w.name, Version: version,
			SHA256: hex.EncodeToString(sum[:]), SizeBytes: 1, MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
		}
		var record wire.Registration
		if status, err := call(
			w.client, http.MethodPost, w.base+"/api/v1/integrity/records", w.key, d, &record,
		); err != nil || status != http.StatusCreated {
			t.Errorf("%s version %d: %d %v", w.name, version, status, err)
			return
		}
		w.acknowledged = append(w.acknowledged, acknowledged{declaration: d, publicID: record.PublicID})
		count.Add(1)
	}
}

// podScript runs a program under the limits of the chart's pods (ops/chart): user and group 65532, no capabilities and
// no way to new ones, a root that cannot be written, and an empty data directory of its own, $0. /tmp and the memory
// in /dev/shm can be written, as in a pod.
const podScript = `
mount -t tmpfs -o mode=0700,uid=65532,gid=65532 tmpfs "$0"
mount --bind /tmp /tmp
mount -o remount,bind,ro /
if touch /root-is-writable; then exit 1; fi
exec setpriv --reuid 65532 --regid 65532 --groups 65532 --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`

// podSecret makes a directory like a mounted Secret: its files belong to root and have the mode 0440 and the group
// 65532. It returns the variables that name them, and the directory.
func podSecret(t *testing.T, databaseURL string) (env []string) {
	t.Helper()
	secret := filepath.Dir(dataDir(t))
	must(t, nil, "keys", "generate", "--data-dir", secret)
	for variable, file := range map[string]string{
		"DATABASE_URL_FILE": "database-url", "SECRET_KEY_FILE": "secret-key", "SIGNING_KEY_FILE": "signing-key.pem",
		"TRUSTED_KEYS": keyfiles.TrustedKeysFile,
	} {
		path := filepath.Join(secret, file)
		switch variable {
		case "DATABASE_URL_FILE":
			write(t, path, databaseURL)
		case "SECRET_KEY_FILE":
			write(t, path, strings.Repeat("ab", 32))
		}
		if err := errors.Join(os.Chmod(path, 0o440), os.Chown(path, 0, 65532)); err != nil {
			t.Fatal(err)
		}
		env = append(env, config.Prefix+variable+"="+path)
	}
	return env
}

// TestRollingRestart restarts two processes behind a load balancer that follows /readyz, one after the other, twice,
// under load. No request may fail. If the test runs as root, the processes have the limits of the chart's pods.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts servers for a while")
	}
	t.Parallel()
	ctx := t.Context()
	theirs := foreignDatabase(ctx, t)
	database := []string{"INTEGRITY_DATABASE_URL=" + theirs, "INTEGRITY_ISSUER=rolling"}
	dir := dataDir(t)
	in := surroundings{env: database, pod: os.Geteuid() == 0}
	if in.pod {
		in.env = append(podSecret(t, pgtest.NewProxy(t, theirs).URL), "INTEGRITY_ISSUER=rolling")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	} else {
		must(t, nil, "keys", "generate", "--data-dir", dir)
	}
	in.env = append(in.env, "INTEGRITY_DRAIN_DELAY="+drainDelay.String())
	addresses := [2]string{freeAddress(t), freeAddress(t)}
	var servers [2]*running
	for i := range servers {
		servers[i] = in.start(t, dir, "--listen", addresses[i])
	}
	key := externalAccount(t, database)
	b := newBalancer(t, [2]string{servers[0].base, servers[1].base})

	var stop atomic.Bool
	var count atomic.Int64
	var wg sync.WaitGroup
	client := &http.Client{Timeout: patient, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	writers := make([]*steady, 6)
	for i := range writers {
		writers[i] = &steady{client: client, base: b.URL, key: key, company: "c", name: "steady" + strconv.Itoa(i)}
		wg.Go(func() { writers[i].run(t, &stop, &count) })
	}
	defer wg.Wait()
	defer stop.Store(true)
	more := func() {
		t.Helper()
		from := count.Load()
		eventually(t, "registrations go on", func() error {
			if t.Failed() || count.Load() >= from+60 {
				return nil
			}
			return fmt.Errorf("%d acknowledged", count.Load()-from)
		})
	}
	more()
	for round := range 2 {
		for i := range servers {
			began := time.Now()
			servers[i].stop()
			servers[i] = in.start(t, dir, "--listen", addresses[i])
			b.wait(t, i)
			t.Logf(
				"round %d: server %d restarted in %s, %d acknowledged so far", round, i, time.Since(began).Round(time.Millisecond),
				count.Load(),
			)
			more()
		}
	}
	stop.Store(true)
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, w := range writers {
		for _, ack := range w.acknowledged {
			var record wire.Registration
			status, err := call(client, http.MethodPost, b.URL+"/api/v1/integrity/records", key, ack.declaration, &record)
			if err != nil || status != http.StatusOK || !record.Replayed || record.PublicID != ack.publicID {
				t.Fatalf(
					"%s version %d: want a replay of %s: %d %v", ack.declaration.DocumentReference, ack.declaration.Version,
					ack.publicID, status, err,
				)
			}
		}
	}
	if out := must(t, database, "rebuild", "--check"); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("rebuild --check: %s", out)
	}
}

// TestDrain follows one process from the signal to its end: it is not ready, still serves, answers a waiting reader,
// and finishes an upload in progress.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := surroundings{
		env: []string{"INTEGRITY_DRAIN_DELAY=" + config.MaxDrainDelay.String()},
	}.start(t, dataDir(t), "--demo")
	access := s.demo()
	client := plainHTTP()
	body, err := json.Marshal(wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "s", DocumentReference: "slow", Version: 1,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
		MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	})
	if err != nil {
		t.Fatal(err)
	}
	// The first half of a request, before the signal.
	slow := dial(t, s)
	defer slow.Close()
	head := fmt.Sprintf(
		"POST /api/v1/integrity/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n",
		access.Keys.Worker, len(body),
	)
	if _, err := io.WriteString(slow, head+string(body[:10])); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() error {
		status, err := call(client, http.MethodGet, s.base+"/readyz", "", nil, nil)
		if err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("readyz: %d %w", status, err)
		}
		return nil
	})
	var view operator.UpgradeView
	if mustJSON(t, nil, &view, "upgrade", "status", "--data-dir", s.dir); len(view.Processes) != 1 {
		t.Errorf("it still commits, and others see %v", view.Processes)
	}
	if _, err := slow.Write(body[10:]); err != nil { // at once: a body has ten seconds
		t.Fatal(err)
	}
	if status, err := call(
		client, http.MethodGet, s.base+"/api/v1/integrity/usage", access.Keys.Worker, nil, nil,
	); err != nil || status != http.StatusOK {
		t.Errorf("while it drains: %d %v", status, err)
	}
	answer, err := io.ReadAll(slow)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 201 ")) {
		t.Errorf("a request under way: %v %.100s", err, answer)
	}
	<-s.exited
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, tail(s.log))
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://")); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}
