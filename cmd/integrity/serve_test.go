package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/pgtest/network"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/wire"
)

// TestReadmeLimits requires README to quote the fixed limits word for word.
func TestReadmeLimits(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := strings.Join(strings.Fields(string(text)), " ")
	for _, sentence := range evidence.Limits(evidence.English, "") {
		if !strings.Contains(readme, sentence) {
			t.Errorf("README.md does not say: %s", sentence)
		}
	}
}

// TestOrdinaryUser runs the service as a user without rights, if the test itself runs as root.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("every other test runs as an ordinary user already")
	}
	const nobody = 65534
	dir := dataDir(t)
	if err := os.Chown(filepath.Dir(dir), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	s := surroundings{credential: &syscall.Credential{Uid: nobody, Gid: nobody}}.start(t, dir, "--demo")
	access := s.demo()
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + access.BaseURL}
	var record wire.Registration
	mustJSON(t, env, &record, "register", file, "--company", access.CompanyReference, "--source", "s", "--version", "1")
	must(t, nil, "compare", file, record.VerificationURL)
	// An operator who is root can use the other user's running server.
	must(t, nil, "organization", "list", "--data-dir", dir)
	s.stop()
}

// TestExternalDatabase runs two servers on an external PostgreSQL, with keys that an operator has created.
func TestExternalDatabase(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	theirs := foreignDatabase(ctx, t)
	dir := dataDir(t)
	database := []string{"INTEGRITY_DATABASE_URL=" + theirs}
	if r := integrity(t, database, "organization", "list"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "integrity migrate") {
		t.Errorf("an empty database: %d %s", r.code, r.errs)
	}
	if r := integrity(t, database, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "integrity keys generate") {
		t.Errorf("without keys: %d %s", r.code, r.errs)
	}
	must(t, nil, "keys", "generate", "--data-dir", dir)
	if r := integrity(t, database, "migrate"); r.code != cli.ExitFailed || !strings.Contains(r.errs, "INTEGRITY_ISSUER") {
		t.Errorf("a ledger without a name: %d %s", r.code, r.errs)
	}
	urlFile := write(t, filepath.Join(filepath.Dir(dir), "url"), theirs+"\n")
	one := surroundings{env: []string{"INTEGRITY_DATABASE_URL_FILE=" + urlFile}}.start(
		t, dir, "--issuer", "ledger-of-the-test", "--shards", "2",
	)
	two := surroundings{env: database}.start(t, dir)
	key := externalAccount(t, database)

	client := plainHTTP()
	d := wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: "d", Version: 1, SHA256: strings.Repeat("ab", 32),
		SizeBytes: 1,
		MimeType:  "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
	var record wire.Registration
	register := func(s *running) int {
		t.Helper()
		status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/records", key, d, &record)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if status := register(one); status != http.StatusCreated {
		t.Fatalf("one registers: %d", status)
	}
	if status := register(two); status != http.StatusOK || !record.Replayed {
		t.Errorf("the other replays: %d %+v", status, record)
	}
	env := []string{config.VariableAPIKey + "=" + key, config.VariableBaseURL + "=" + two.base}
	if out := must(t, env, "evidence", record.PublicID); !strings.Contains(out, "ledger-of-the-test") {
		t.Errorf("the issuer is not in the evidence: %s", out)
	}
	if out := must(t, database, "migrate"); !strings.Contains(out, "ledger-of-the-test has 2 shards") {
		t.Errorf("a default has changed the ledger: %s", out)
	}
	reloadKeys(t, two, func(want int) error {
		d.Version++
		if status := register(two); status != want {
			return fmt.Errorf("registration answers %d, not %d", status, want)
		}
		return nil
	})
	if status, err := call(
		client, http.MethodGet, two.base+"/api/v1/integrity/records/"+record.PublicID, key, nil, nil,
	); err != nil || status != http.StatusOK {
		t.Errorf("reading: %d %v", status, err)
	}
	one.stop()
	two.stop()
	if r := integrity(
		t, append(database, "INTEGRITY_ISSUER=another"), "serve", "--listen", "127.0.0.1:0", "--data-dir", dir,
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "INTEGRITY_ISSUER") {
		t.Errorf("another issuer: %d %s", r.code, r.errs)
	}
}

// foreignDatabase creates a database on an external PostgreSQL.
func foreignDatabase(ctx context.Context, t *testing.T) (url string) {
	t.Helper()
	dir := dataDir(t)
	prepare(t, dir, modelEmpty)
	theirs, err := postgres.Start(ctx, postgres.Config{DataDir: dir, Purpose: "test", Disposable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := theirs.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return theirs.URL(postgres.Database)
}

func externalAccount(t *testing.T, database []string) string {
	t.Helper()
	var organization operator.OrganizationView
	// a fast machine reaches the plan's limit
	mustJSON(t, database, &organization, "organization", "create", "X", "--plan", "internal", "--per-minute", "1000000000")
	in := []string{"--organization", organization.ID}
	must(t, database, append([]string{"member", "add", "--email", "a@example.org", "--role", "owner"}, in...)...)
	must(t, database, append([]string{"company", "create", "c"}, in...)...)
	var key operator.KeyView
	mustJSON(t, database, &key,
		append([]string{"apikey", "create", "--member", "a@example.org", "--scopes", "integrity:read,integrity:write"},
			in...)...)
	must(t, database, "apikey", "grant", key.ID, "--company", "c")
	return key.Key
}

// reloadKeys removes the signing key from the trusted-keys file and restores it; SIGHUP makes the service reload.
func reloadKeys(t *testing.T, s *running, registers func(want int) error) {
	t.Helper()
	path := filepath.Join(s.dir, keyfiles.TrustedKeysFile)
	trusted, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		file string
		want int
	}{
		{"[]", http.StatusServiceUnavailable},
		{"not even JSON", http.StatusServiceUnavailable}, // unreadable: the previous keys stay in use
		{string(trusted), http.StatusCreated},
	} {
		before := strings.Count(readLog(t, s), "key files")
		write(t, path, step.file)
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the keys are read again", func() error {
			if strings.Count(readLog(t, s), "key files") == before {
				return errors.New("the log does not say so")
			}
			return nil
		})
		if err := registers(step.want); err != nil {
			t.Errorf("with the trusted keys %.20q: %v", step.file, err)
		}
	}
}

// TestReloadWhileStarting: a SIGHUP during startup does not end the process, and the files are reloaded after the
// start.
func TestReloadWhileStarting(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := begin(t, dir)
	// The address is bound first, and initdb comes after it.
	eventually(t, "the address is taken", func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.says("key files reloaded")
}

// begin runs serve without waiting until it answers.
func begin(t *testing.T, dir string, env ...string) *running {
	t.Helper()
	log := filepath.Join(filepath.Dir(dir), "serve.log")
	stderr, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	address := freeAddress(t)
	s := &running{t: t, dir: dir, log: log, base: "http://" + address, client: plainHTTP(), exited: make(chan struct{})}
	s.cmd = exec.Command(os.Getenv(binaryVariable), "serve", "--data-dir", dir, "--listen", address)
	s.cmd.Env, s.cmd.Stderr = cleanEnviron(env...), stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // the result is in ProcessState
	}()
	t.Cleanup(s.stop)
	return s
}

// says waits until the running process has logged a text.
func (s *running) says(what string) {
	s.t.Helper()
	eventually(s.t, what, func() error {
		select {
		case <-s.exited:
			s.t.Fatalf("serve ended: %v %s", s.cmd.ProcessState, tail(s.log))
		default:
		}
		if !strings.Contains(readLog(s.t, s), what) {
			return errors.New("the log does not say so")
		}
		return nil
	})
}

// TestServeWaitsForAPrimary: a process that starts during a failover waits until a server accepts writes, and a signal
// ends the wait. An error that waiting cannot solve ends the process at once.
func TestServeWaitsForAPrimary(t *testing.T) {
	t.Parallel()
	const waits, once = "waiting for one", "no server of the database accepts writes yet"
	c := pgtest.NewCluster(t, true)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, []string{"INTEGRITY_DATABASE_URL=" + c.PrimaryURL()}, "migrate", "--issuer", "ledger-of-the-test")
	for name, url := range map[string]string{
		"no such database": strings.Replace(c.URL(t), "/"+postgres.Database, "/nowhere", 1),
		"no URL":           c.URL(t) + "&connect_timeout=never",
	} {
		if r := integrity(
			t, []string{"INTEGRITY_DATABASE_URL=" + url}, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir,
		); r.code != cli.ExitFailed || strings.Contains(r.errs, waits) || strings.Count(r.errs, "integrity: ") != 1 {
			t.Errorf("%s: %d %s", name, r.code, r.errs)
		}
	}
	c.Kill(t, c.Primary)
	database := "INTEGRITY_DATABASE_URL=" + c.URL(t)
	told := begin(t, dir, database)
	told.says(waits)
	told.stop() // fails if the process takes long, or fails
	s := begin(t, dir, database)
	s.says(waits)
	c.Promote(t)
	s.says("msg=ready")
	if n := strings.Count(readLog(t, s), once); n != 1 {
		t.Errorf("it says %d times what it waits for: %s", n, readLog(t, s))
	}
	s.stop()
}

// TestServeSurvivesALostConnectionAtItsStart: a startup step whose connection is cut is repeated.
func TestServeSurvivesALostConnectionAtItsStart(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, []string{"INTEGRITY_DATABASE_URL=" + url}, "migrate", "--issuer", "ledger-of-the-test")
	proxy := pgtest.NewProxy(t, url)
	cut := make(chan struct{})
	proxy.AtCommit(network.CutBeforeCommit, func() { close(cut) })
	s := begin(t, dir, "INTEGRITY_DATABASE_URL="+proxy.URL)
	s.says("msg=ready")
	select {
	case <-cut:
	default:
		t.Error("nothing was cut")
	}
	if log := readLog(t, s); !strings.Contains(log, "waiting for one") {
		t.Errorf("it does not say why it began again: %s", log)
	}
	s.stop()
}

// TestProbesOfAStart: from its first moment a process answers /healthz, over a database that takes connections and says
// nothing, and refuses everything else with the reason. Once it serves, probes are logged at debug only.
func TestProbesOfAStart(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, []string{"INTEGRITY_DATABASE_URL=" + url}, "migrate", "--issuer", "ledger-of-the-test")
	proxy := pgtest.NewProxy(t, url)
	proxy.Set(network.Weather{Hole: true})
	s := begin(t, dir, "INTEGRITY_DATABASE_URL="+proxy.URL)
	eventually(t, "the process answers", func() error {
		_, err := s.failure(http.MethodGet, "/healthz")
		return err
	})
	const waits = "no server of the database accepts writes yet"
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/healthz", http.StatusOK},
		{http.MethodGet, "/readyz", http.StatusServiceUnavailable},
		{http.MethodGet, "/", http.StatusServiceUnavailable},
		{http.MethodPost, "/api/v1/integrity/records", http.StatusServiceUnavailable},
		{http.MethodDelete, "/api/v1/integrity/api-keys/x", http.StatusServiceUnavailable},
	} {
		got, err := s.failure(c.method, c.path)
		if err != nil || got.Status != c.status ||
			c.status != http.StatusOK && !strings.HasPrefix(got.Detail, "This process is starting: ") {
			t.Errorf("%s %s: %+v, %v", c.method, c.path, got, err)
		}
	}
	eventually(t, "the reason is known", func() error {
		got, err := s.failure(http.MethodGet, "/readyz")
		if err == nil && !strings.Contains(got.Detail, waits) {
			err = errors.New(got.Detail)
		}
		return err
	})
	proxy.Set(network.Weather{})
	s.says("msg=ready")
	eventually(t, "the process is ready", func() error {
		got, err := s.failure(http.MethodGet, "/readyz")
		if err == nil && got.Status != http.StatusOK {
			err = errors.New(got.Detail)
		}
		return err
	})
	s.stop()
	log := readLog(t, s)
	if !strings.Contains(log, "route=/readyz method=GET status=503") {
		t.Errorf("a probe that failed is not in the log: %s", log)
	}
	for _, quiet := range []string{"route=/healthz", "route=/readyz method=GET status=200"} {
		if strings.Contains(log, quiet) {
			t.Errorf("a probe is in the log, above debug: %s", quiet)
		}
	}
}

// failure sends a request without a body. Its answer is the member error, or only a status.
func (s *running) failure(method, path string) (got wire.Failure, err error) {
	request, err := http.NewRequest(method, s.base+path, nil)
	if err != nil {
		return got, err
	}
	response, err := plainHTTP().Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&struct{ Error *wire.Failure }{&got})
	got.Status = response.StatusCode
	return got, err
}

func readLog(t *testing.T, s *running) string {
	t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestServerLimits checks the listener itself: slow and large headers.
func TestServerLimits(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t))
	request, err := http.NewRequest(http.MethodGet, s.base+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("a", 24<<10))
	response, err := plainHTTP().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("24 KiB of headers: status %d", response.StatusCode)
	}
	began := time.Now()
	conn := dial(t, s)
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1024)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) ||
		time.Since(began) > process.ReadTimeout {
		t.Errorf("headers that never end: %v after %s", err, time.Since(began))
	}
	if r := integrity(
		t, nil, "serve", "--data-dir", s.dir, "--listen", strings.TrimPrefix(s.base, "http://"),
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "INTEGRITY_LISTEN") {
		t.Errorf("an address in use: %d %s", r.code, r.errs)
	}
	if r := integrity(
		t, nil, "serve", "--demo", "--listen", "0.0.0.0:0", "--base-url", "https://x.example",
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "loopback") {
		t.Errorf("a demo for everybody: %d %s", r.code, r.errs)
	}
}

// TestEveryRequestIsLogged: request lines are batched, and a shutdown right after the last answer loses none of them.
func TestEveryRequestIsLogged(t *testing.T) {
	s := start(t, dataDir(t))
	const callers, each = 8, 50
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := range each {
				r, err := http.NewRequest(http.MethodGet, s.base+"/robots.txt", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Request-Id", fmt.Sprintf("request-%d-%d", caller, i))
				response, err := plainHTTP().Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
		})
	}
	group.Wait()
	s.stop()
	log, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for caller := range callers {
		for i := range each {
			if id := fmt.Sprintf(
				"requestId=request-%d-%d service=integrity-ledger/", caller, i,
			); strings.Count(string(log), id) != 1 {
				t.Fatalf("%s stands %d times in the log", id, strings.Count(string(log), id))
			}
		}
	}
}
