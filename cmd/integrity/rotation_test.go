package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// persistent registers versions of a document, each until it is accepted. It records every answer other than a success
// or a retryable 503.
type persistent struct {
	base, key      string
	client         *http.Client
	taken, refused atomic.Int64
	stop           chan struct{}
}

// begin runs four clients until end is called, or the test ends, and waits for their first registrations.
func (p *persistent) begin(t *testing.T) (end func()) {
	t.Helper()
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { p.run(t, fmt.Sprint("document-", i)) })
	}
	end = sync.OnceFunc(func() {
		close(p.stop)
		clients.Wait()
	})
	t.Cleanup(end)
	more(t, "registrations", &p.taken, 20)
	return end
}

func (p *persistent) run(t *testing.T, document string) {
	for version := int32(1); ; version++ {
		for taken := false; !taken; {
			select {
			case <-p.stop:
				return
			default:
			}
			status, answer, err := p.post(document, version)
			var envelope struct{ Error struct{ Retryable bool } }
			later := json.Unmarshal(answer, &envelope) == nil && envelope.Error.Retryable
			switch {
			case err != nil:
				t.Error(err)
				return
			case status == http.StatusCreated || status == http.StatusOK:
				taken = true
				p.taken.Add(1)
			case status == http.StatusServiceUnavailable && later:
				p.refused.Add(1)
			default:
				t.Errorf("%s, version %d: %d %s", document, version, status, answer)
				return
			}
		}
	}
}

func (p *persistent) post(document string, version int32) (status int, answer []byte, err error) {
	body, err := json.Marshal(wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: document, Version: version,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	})
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequest(http.MethodPost, p.base+"/api/v1/integrity/records", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// more waits until a counter has grown.
func more(t *testing.T, what string, counter *atomic.Int64, by int64) {
	t.Helper()
	from := counter.Load()
	eventually(t, what, func() error {
		if t.Failed() {
			t.FailNow()
		}
		if now := counter.Load(); now < from+by {
			return fmt.Errorf("%d", now-from)
		}
		return nil
	})
}

// TestPasswordRotation: existing connections stay, and new ones read the password from the file again.
// Until the new password is there, requests get a retryable 503, and a starting process waits for it.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	role := pgtest.NewPasswordRole(t, "app", "former-horse")
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	file := filepath.Join(filepath.Dir(dir), "url")
	say := func(password string) {
		t.Helper()
		write(t, file+".new", role.URL(t, password)+"\n")
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	say("former-horse")
	env := []string{"INTEGRITY_DATABASE_URL_FILE=" + file}
	s := surroundings{env: env}.start(t, dir, "--issuer", "ledger-of-the-test", "--shards", "2")
	p := &persistent{
		base: s.base, client: &http.Client{Timeout: patient}, key: externalAccount(t, env), stop: make(chan struct{}),
	}
	end := p.begin(t)

	role.Rotate(t, "newer-staple")
	refusals := p.refused.Load()
	more(t, "registrations on the connections that exist", &p.taken, 50)
	if now := p.refused.Load(); now != refusals {
		t.Errorf("%d requests were refused, although no connection was lost", now-refusals)
	}
	const endAll = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'"
	if _, err := pgtest.Ask[int](role.Superuser, endAll); err != nil {
		t.Fatal(err)
	}
	more(t, "refusals while the file has the former password", &p.refused, 4)
	eventually(t, "the service is not ready", func() error {
		status, err := call(plainHTTP(), http.MethodGet, s.base+"/readyz", "", nil, nil)
		if err == nil && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("readyz answers %d", status)
		}
		return err
	})
	second := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", second)
	starting := begin(t, second, env...)
	starting.says("waiting for one")
	say("newer-staple")
	starting.says("msg=ready")
	more(t, "registrations with the new password", &p.taken, 20)

	write(t, file, "postg") // the next password is being written
	if _, err := pgtest.Ask[int](role.Superuser, endAll); err != nil {
		t.Fatal(err)
	}
	more(t, "registrations while the file is half written", &p.taken, 20)
	s.says("the previous URL stays in use")
	end()
	starting.stop()
	s.stop()
	for _, log := range []string{readLog(t, s), readLog(t, starting)} {
		if strings.Contains(log, "former-horse") || strings.Contains(log, "newer-staple") {
			t.Errorf("a password is logged: %s", log)
		}
	}
}

// TestStartSurvivesAnyLostConnection: whichever startup connection a failover breaks, the start continues once a
// server is back.
func TestStartSurvivesAnyLostConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, []string{"INTEGRITY_DATABASE_URL=" + url}, "migrate", "--issuer", "ledger-of-the-test")
	proxy := pgtest.NewProxy(t, url)
	for n, needed := 0, 1; n <= needed; n++ {
		proxy.RefuseNext(n)
		s := begin(t, dir, "INTEGRITY_DATABASE_URL="+proxy.URL)
		s.says("msg=ready")
		if arrived := proxy.RefuseNext(0); n == 0 {
			needed = arrived
			t.Logf("a start makes %d connections", needed)
		}
		s.stop()
	}
}
