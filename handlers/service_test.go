package handlers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/manual"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
	"integrityledger/handlers/wire"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
	"integrityledger/projections/session"
)

const baseURL = "https://ledger.example"

// service is a whole server on a database of its own, with one organization that is ready to register.
type service struct {
	*ledgertest.Ledger
	t    *testing.T
	http *httptest.Server
	// waiting returns the number of this process's requests that wait for the feed.
	waiting func() int
	log     *logBuffer
	keys    *atomic.Pointer[action.Keys]
	// The service's clock runs, or is stopped at held, and is skew ahead.
	held *atomic.Pointer[time.Time]
	skew *atomic.Int64
	// clock is the ledger's clock: simulated, unless a test needs several.
	clock *eventstore.Clock
	org   ledgertest.Organization
}

// options change the defaults for a test.
type options struct {
	plan   string
	plans  domain.Plans
	config func(*handlers.Config)
	ledger func(*eventstore.Config)
	url    string            // of a migrated database; empty means a new database
	clock  *eventstore.Clock // nil means a clock on which everything agrees
}

func open(t *testing.T, o options) *service {
	t.Helper()
	s := &service{
		t: t, log: &logBuffer{}, keys: &atomic.Pointer[action.Keys]{}, held: &atomic.Pointer[time.Time]{},
		skew: &atomic.Int64{},
	}
	now := func() time.Time {
		at := time.Now()
		if held := s.held.Load(); held != nil {
			at = *held
		}
		return at.Add(time.Duration(s.skew.Load()))
	}
	if o.plans == nil {
		plans, err := domain.DefaultPlans()
		check(t, err)
		o.plans = plans
	}
	if o.url == "" {
		o.url = pgtest.New(t)
	}
	s.Ledger = ledgertest.Attach(t, o.url)
	s.Now, s.clock = now, o.clock
	if s.clock == nil {
		s.clock = ledgertest.Simulated(now)
	}
	s.keys.Store(&action.Keys{Signer: s.Registrar.Signer, Trusted: s.Trusted})
	s.process(o)
	if o.plan == "" {
		o.plan = domain.InternalPlan
	}
	s.org = s.Organization(t, 1, o.plan)
	return s
}

// process starts a server process on the database of s, and s then uses that process.
func (s *service) process(o options) {
	s.t.Helper()
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	notifier := s.Notifier(s.t)
	s.waiting = notifier.Waiting
	s.Ledger.Ledger = s.Process(s.t, s.URL, func(c *eventstore.Config) {
		c.Clock, c.Plans, c.Log, c.Committed = s.clock, o.plans, log, notifier.Committed
		if o.ledger != nil {
			o.ledger(c)
		}
	})
	ledger := s.Ledger.Ledger
	routed := s.Routed(s.t)
	warner := queue.NewMeterWarner(queue.MeterWarner{
		Pool: routed, Shards: s.Installation.Shards, Plans: o.plans, Do: ledger.Do, Now: s.Now, Log: log,
	})
	config := handlers.Config{
		Edge: handlers.Edge{
			Store: query.New(query.Config{
				Pool: routed, Public: routed, Installation: s.Installation, Plans: o.plans,
				RequestsReached: func(domain.Shard) { // immediate, so that no test has to wait
					if err := warner.Look(context.Background()); err != nil {
						s.t.Errorf("warn of requests: %v", err)
					}
				},
			}),
			Sessions:     &session.Store{Pool: routed, Installation: s.Installation, Plans: o.plans},
			Installation: s.Installation, BaseURL: baseURL, Now: s.Now, Log: log,
			PublicPerMinute: 10_000, PublicPagesPerMinute: 10_000,
			OAuth: oauth.New(oauth.Config{
				Issuer: "https://identity.example", Audience: edge.OAuthAudience(baseURL), Now: s.Now,
			}),
		},
		Ledger: ledger,
		Action: handlers.Action{
			Notifier: notifier, Keys: func() action.Keys { return *s.keys.Load() },
			SecretKeys: domain.FixedSecretKeys(domain.SecretKey{1}), Analyze: analyze,
			Transparency: &transparency.Reader{Pool: s.Pool, Limit: patience}, ProofTimeout: patience,
		},
		Site: handlers.Site{Manual: manual.Pages},
	}
	if o.config != nil {
		o.config(&config)
	}
	s.http = httptest.NewServer(handlers.New(config))
	s.t.Cleanup(s.http.Close)
}

// hold stops the service's clock: from now on only changes of skew move it, however long anything takes.
func (s *service) hold() {
	now := time.Now()
	s.held.Store(&now)
}

// at moves the service's clock to a time.
func (s *service) at(moment time.Time) { s.skew.Add(int64(moment.Sub(s.Now()))) }

// freshMinute stops the service's clock at the start of the next minute, so that the following requests fall into one
// minute.
func (s *service) freshMinute() time.Time {
	s.hold()
	minute := s.Now().Truncate(time.Minute).Add(time.Minute)
	s.at(minute)
	return minute
}

// logged waits for text in the log: the line of a request may come after its answer.
func (s *service) logged(words string) {
	s.t.Helper()
	s.eventually("the log says "+words, func() bool { return strings.Contains(s.log.String(), words) })
}

// eventually waits until a condition holds.
func (s *service) eventually(what string, holds func() bool) {
	s.t.Helper()
	pgtest.Eventually(s.t, what, func() (bool, error) { return holds(), nil })
}

// second starts another server process on the same database with the same clock.
func (s *service) second(o options) *service {
	s.t.Helper()
	if o.plans == nil {
		plans, err := domain.DefaultPlans()
		check(s.t, err)
		o.plans = plans
	}
	other, ledger := *s, *s.Ledger
	other.Ledger = &ledger
	other.process(o)
	return &other
}

// logBuffer collects the log of all goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// send sends a request. A body that is not a string is sent as JSON. header has alternating names and values.
func (s *service) send(method, path, key string, body any, header ...string) answer {
	s.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		check(s.t, err)
		reader = bytes.NewReader(text)
	}
	r := s.request(method, path, key, reader)
	if reader != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.exchange(r)
}

func (s *service) request(method, path, key string, reader io.Reader) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.http.URL+path, reader)
	check(s.t, err)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return r
}

func (s *service) exchange(r *http.Request) answer {
	s.t.Helper()
	a, err := s.tryExchange(r)
	check(s.t, err)
	return a
}

// tryExchange is exchange for goroutines other than the test's.
func (s *service) tryExchange(r *http.Request) (answer, error) {
	return s.through(recorded(s.t, s.http), r)
}

// plainly sends a request that the OpenAPI documents do not describe.
func (s *service) plainly(r *http.Request) answer {
	s.t.Helper()
	a, err := s.through(s.http.Client(), r)
	check(s.t, err)
	return a
}

func (s *service) through(client *http.Client, r *http.Request) (answer, error) {
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{s.t, response.StatusCode, response.Header, text}, err
}

// trySend posts JSON, for goroutines other than the test's.
func (s *service) trySend(path string, body any) (answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.http.URL+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+s.org.Secret)
	r.Header.Set("Content-Type", "application/json")
	return s.tryExchange(r)
}

func (s *service) get(path string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, s.org.Secret, nil)
}

func (s *service) post(path string, body any) answer {
	s.t.Helper()
	return s.send(http.MethodPost, path, s.org.Secret, body)
}

// public sends a GET request without a key.
func (s *service) public(path string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, "", nil)
}

// is requires a status and returns the member data, or error if there is one.
func (a answer) is(status int) map[string]any {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	var envelope struct {
		Data, Error, Meta map[string]any
	}
	check(a.t, json.Unmarshal(a.body, &envelope))
	if (envelope.Data == nil) == (envelope.Error == nil) {
		a.t.Fatalf("exactly one of data and error: %s", a.body)
	}
	if envelope.Meta["requestId"] != a.header.Get("X-Request-Id") {
		a.t.Fatalf("requestId of meta and header differ: %s", a.body)
	}
	if envelope.Error != nil {
		return envelope.Error
	}
	return envelope.Data
}

// read requires a status and returns the data of the answer, which must have exactly the members of T.
func read[T any](a answer, status int) T {
	a.t.Helper()
	return typed[T](a.t, a.is(status))
}

// typed converts an object to a T. The object must have exactly the members of T.
func typed[T any](t *testing.T, object map[string]any) (value T) {
	t.Helper()
	text, err := json.Marshal(object)
	check(t, err)
	check(t, json.Unmarshal(text, &value))
	text, err = json.Marshal(value)
	check(t, err)
	var again map[string]any
	check(t, json.Unmarshal(text, &again))
	equal(t, fmt.Sprintf("the object, read as %T and written again", value), again, object)
	return value
}

// refuses requires a code and the form of an error.
func (a answer) refuses(status int, code domain.Code) wire.Failure {
	a.t.Helper()
	e := read[wire.Failure](a, status)
	if e.Code != code {
		a.t.Fatalf("code %v, want %s: %s", e.Code, code, a.body)
	}
	waits := status == 429 || status == 503 || code == domain.InclusionPending
	retryable := waits && code != domain.CompanyLimit && code != domain.WebhookLimit &&
		code != domain.UnfinalizedIdentityLimit
	if e.Retryable != retryable || e.Status != status || a.header.Get("Cache-Control") != "no-store" {
		a.t.Errorf("retryable, status or Cache-Control of %s: %s, %s", code, a.body, a.header)
	}
	if (a.header.Get("Retry-After") != "") != retryable {
		a.t.Errorf("Retry-After of %s: %q", code, a.header.Get("Retry-After"))
	}
	if want := baseURL + "/errors/" + strings.ReplaceAll(strings.ToLower(string(code)), "_", "-"); e.Type != want {
		a.t.Errorf("type %s, want %s", e.Type, want)
	}
	return e
}

// pointers lists the members that an error names.
func pointers(e wire.Failure) string {
	var list []string
	for _, field := range e.Errors {
		list = append(list, fmt.Sprint(field.Pointer, " ", field.Code))
	}
	return strings.Join(list, ", ")
}

type body map[string]any

// with returns the body with changed members; nil removes a member.
func (b body) with(change body) body {
	b = maps.Clone(b)
	for name, value := range change {
		b[name] = value
		if value == nil {
			delete(b, name)
		}
	}
	return b
}

// declaration makes the declaration of a file's content.
func declaration(document string, version int, content string) body {
	return body{
		"companyReference": "company-1", "source": "billing", "documentReference": document, "version": version,
		"sha256": hash(content), "sizeBytes": len(content), "mimeType": "application/pdf",
		"generatedAt": "2026-11-01T10:00:00Z",
	}
}

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

const integrity = "/api/v1/integrity"

// registered registers a new version and returns its public id.
func (s *service) registered(document string, version int, content string) string {
	s.t.Helper()
	return s.post(integrity+"/records", declaration(document, version, content)).is(http.StatusCreated)["publicId"].(string)
}

// compared returns the result of a public comparison; empty content means no hash.
func (s *service) compared(id, content string) wire.Comparison {
	s.t.Helper()
	path := "/api/public/integrity/" + id
	if content != "" {
		path += "?sha256=" + hash(content)
	}
	return read[wire.Comparison](s.public(path), http.StatusOK)
}

// usage returns the organization's month at the integrity API.
func (s *service) usage() wire.Allowance {
	s.t.Helper()
	return read[wire.Allowance](s.get(integrity+"/usage"), http.StatusOK)
}

// history returns the page of the organization's history that the query selects.
func (s *service) history(query string) []wire.AuditEvent {
	s.t.Helper()
	return read[wire.AuditEvents](s.get(certificationAction+"/audit-events?"+query), http.StatusOK).Events
}

// changes returns a page of the feed of company-1.
func (s *service) changes(query string) wire.Feed[wire.FeedEvent] {
	s.t.Helper()
	return read[wire.Feed[wire.FeedEvent]](s.get(integrity+"/changes?companyReference=company-1"+query), http.StatusOK)
}

// owner runs statements as the owner of the tables, who can bypass their guards.
func (s *service) owner(statements ...string) {
	s.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL)
	check(s.t, err)
	defer conn.Close(ctx)
	for _, sql := range statements {
		if strings.Contains(sql, "DISABLE TRIGGER") {
			pgtest.OneServer(s.t, "the guards of its tables cannot be taken away")
		}
		_, err := conn.Exec(ctx, sql)
		check(s.t, err)
	}
}

// must executes a command prepared by an operator.
func must[C domain.Command](s *service, command C) C {
	s.t.Helper()
	s.Must(s.t, command)
	return command
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }

// number returns one number about the organization from the database.
func (s *service) number(sql string) (n int64) {
	s.t.Helper()
	check(s.t, s.Pool.QueryRow(context.Background(), sql, s.org.ID.Shard(), [16]byte(s.org.ID)).Scan(&n))
	return n
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	check(t, err)
	w, err := json.Marshal(want)
	check(t, err)
	if !bytes.Equal(g, w) {
		t.Errorf("%s: %s, want %s", what, g, w)
	}
}
