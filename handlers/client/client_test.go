package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/internal/clienttest"
	"integrityledger/handlers/wire"
)

const publicID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

func newKey(t *testing.T) string {
	t.Helper()
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	return key
}

// against makes a client of a server with one handler.
func against(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(Config{BaseURL: server.URL, APIKey: newKey(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func failure(code string, status int) string {
	retryable := status == 503 || status == 429 && code != "COMPANY_LIMIT" || code == "REQUEST_IN_PROGRESS"
	return fmt.Sprintf(
		`{"data":null,"error":{"retryable":%t,"status":%d,"code":%q,"detail":"d","errors":[{"pointer":"/x","code":"C","message":"m"}]},"meta":{"requestId":"r-1"}}`,
		retryable, status, code,
	)
}

func TestBaseURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://ledger.example.org":       "https://ledger.example.org",
		"https://ledger.example.org:8443/": "https://ledger.example.org:8443",
		"http://127.0.0.1:8080":            "http://127.0.0.1:8080", "http://[::1]:8080": "http://[::1]:8080",
		"http://localhost":          "http://localhost",
		"http://ledger.example.org": "", "http://127.0.0.1.example.org": "", "https://u:p@ledger.example.org": "",
		"https://ledger.example.org/api": "",
		"https://ledger.example.org?x":   "", "ftp://ledger.example.org": "", "ledger.example.org": "", "": "",
		"https://": "",
	} {
		got, err := ParseBaseURL(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := New(Config{BaseURL: "https://ledger.example.org", APIKey: "ik_secret"}); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("a text that is no key: %v", err)
	}
}

// The client distinguishes refused, unknown and worth repeating, as every client does (schemas/outcome-vectors.json),
// and sends every write once.
func TestOutcomes(t *testing.T) {
	vectors, err := clienttest.OutcomeVectors()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		var requests atomic.Int64
		client := against(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if r.Header.Get("Authorization") == "" || r.URL.Path != "/api/v1/integrity/records" {
				t.Errorf("%s: %s %s", v.Name, r.Method, r.URL.Path)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			v.Serve(w)
		})
		if v.Break == clienttest.NoConnection {
			client.base = "http://127.0.0.1:1" // no server listens on this port
		}
		_, err := client.Register(t.Context(), wire.Declaration{SHA256: strings.Repeat("a", 64)})
		if wait := RetryAfter(err); err == nil || Refused(err) != v.Want.Refused || Unknown(err) != v.Want.OutcomeUnknown ||
			!v.Waits(wait) {
			t.Errorf("%s: refused %t, unknown %t, wait %s: %v", v.Name, Refused(err), Unknown(err), wait, err)
		}
		if n := requests.Load(); n != 1 && v.Break != clienttest.NoConnection {
			t.Errorf("%s: the write was sent %d times", v.Name, n)
		}
		var e *Error
		if errors.As(err, &e) && (e.RequestID != "r-1" || e.Address != client.base) {
			t.Errorf("%s: %+v", v.Name, e)
		}
	}
	if Refused(nil) || Unknown(nil) {
		t.Error("a success is neither refused nor unknown")
	}
	// A refusal names every offending member. A request that cannot be made was not sent.
	client := against(t, answer(422, failure("INVALID_DATA", 422)))
	if _, err := client.Register(t.Context(), wire.Declaration{}); err == nil || !strings.Contains(err.Error(), "/x m") {
		t.Errorf("a refused member: %v", err)
	}
	// A refused key may belong to another service. For a known key, the page of the code says what to do.
	for status, code := range map[int]string{401: "INVALID_KEY", 403: "MISSING_SCOPE"} {
		client := against(t, answer(status, failure(code, status)))
		hint := map[int]string{
			401: "the key must belong to the service at " + client.base,
			403: client.base + "/errors/missing-scope says what to do",
		}[status]
		if _, err := client.Register(t.Context(), wire.Declaration{}); err == nil ||
			!strings.HasSuffix(err.Error(), "\n  "+hint) {
			t.Errorf("%s: %v", code, err)
		}
	}
	if _, err := client.Revoke(t.Context(), "x", ""); err == nil || Unknown(err) || Refused(err) {
		t.Errorf("a request that cannot be made: %v", err)
	}
	client.key = ""
	if _, err := client.Register(t.Context(), wire.Declaration{}); err == nil || Unknown(err) {
		t.Errorf("without a key: %v", err)
	}
}

// An answer one byte beyond the bound is refused, compressed or not.
func TestAnswersAreBounded(t *testing.T) {
	const data = `{"data":{"a":1}}`
	padded := func(size int) string { return data + strings.Repeat(" ", size-len(data)) }
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := io.WriteString(zip, padded(4*MaxAnswer)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		ok     bool
	}{
		"at the bound": {answer(200, padded(MaxAnswer)), true},
		"beyond it":    {answer(200, padded(MaxAnswer+1)), false},
		"packed":       {answer(200, packed.String(), "Content-Encoding", "gzip"), false},
	} {
		_, err := get[map[string]any](t.Context(), against(t, c.answer), "/", nil)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A query may contain a hash, and errors are logged.
func TestErrorsHoldNoQuery(t *testing.T) {
	for name, failing := range map[string]http.HandlerFunc{
		"broken off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"redirect":   answer(307, "", "Location", "/elsewhere"),
		"a proxy":    answer(502, "<html>"),
		"no data":    answer(200, "[]"),
	} {
		client := against(t, failing)
		_, err := get[any](t.Context(), client, "/path", url.Values{"sha256": {"private-hash"}})
		if err == nil || strings.Contains(err.Error(), "private-hash") || strings.Contains(err.Error(), client.key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A malformed id is refused before it becomes part of an address: the error for an unparsable address would contain the
// query.
func TestMalformedIDs(t *testing.T) {
	client, err := New(Config{BaseURL: "http://127.0.0.1:1"}) // without a key
	if err != nil {
		t.Fatal(err)
	}
	const malformed = "not a public id\n"
	_, compared := client.Compare(t.Context(), malformed, "private-hash")
	_, found := client.Record(t.Context(), malformed)
	_, exported := client.Evidence(t.Context(), malformed)
	_, asOf := client.Evidence(t.Context(), malformed, AsOf("1"))
	_, revoked := client.Revoke(t.Context(), malformed, "")
	for name, err := range map[string]error{
		"Compare": compared, "Record": found, "Evidence": exported, "AsOf": asOf, "Revoke": revoked,
	} {
		if err == nil || err.Error() != "publicId must be 26 characters a-z and 2-7" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, granted := client.GrantKey(t.Context(), malformed, "key", true)
	_, listed := client.Deliveries(t.Context(), malformed, "", "")
	_, redelivered := client.Redeliver(t.Context(), malformed)
	for want, err := range map[string]error{"companyId": granted, "webhookId": listed, "deliveryId": redelivered} {
		if err == nil || !strings.HasPrefix(err.Error(), want+" must be an id of the form ") ||
			strings.Contains(err.Error(), malformed) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func answer(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may stop reading
	}
}

func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-5": 0, "86400": 24 * time.Hour, "Sun, 01 Mar 2026 09:30:40 GMT": 40 * time.Second,
		"Sun, 01 Mar 2026 09:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	var b Backoff
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		least := time.Duration(seconds) * time.Second
		if got := b.Next(nil); got < least || got >= least*5/4 {
			t.Errorf("attempt %d waits %s", i, got)
		}
	}
	if got := b.Next(&Error{Status: 503, RetryAfter: time.Hour}); got != time.Hour {
		t.Errorf("the service asked for an hour: %s", got)
	}
}

// Public requests carry no key, and every known result is an answer.
func TestPublicQuestions(t *testing.T) {
	body, status := "", 200
	client := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the key was sent with a public question")
		}
		answer(status, body)(w, r)
	})
	for _, result := range []wire.ComparisonResult{
		wire.MatchCurrent, wire.MatchHistorical, wire.HashMismatch, wire.RecordRevoked, wire.FileNotCompared,
		wire.SignatureInvalid, wire.RegistrationPending,
	} {
		body = fmt.Sprintf(`{"data":{"publicId":%q,"result":%q,"verified":true},"error":null,"meta":{}}`, publicID, result)
		got, err := client.Compare(t.Context(), publicID, "")
		if err != nil || got.Result != result || got.Verified != (result == wire.MatchCurrent) {
			t.Errorf("%s: %+v, %v", result, got, err)
		}
	}
	status, body = 404, failure("RECORD_NOT_FOUND", 404)
	if got, err := client.Compare(t.Context(), publicID, ""); err != nil || got.Result != wire.RecordNotFound ||
		got.Verified {
		t.Errorf("unknown: %+v, %v", got, err)
	}
	for _, wrong := range []string{
		`{"data":{"publicId":"x","result":"MATCH_CURRENT","verified":true}}`,
		fmt.Sprintf(`{"data":{"publicId":%q,"result":"NEW","verified":true}}`, publicID),
	} {
		if status, body = 200, wrong; true {
			if got, err := client.Compare(t.Context(), publicID, ""); err == nil || got.Verified {
				t.Errorf("%s: %+v", wrong, got)
			}
		}
	}
	if _, err := client.Compare(t.Context(), "../../x", ""); err == nil {
		t.Error("a path was taken for a publicId")
	}
	keyless, err := New(Config{BaseURL: client.BaseURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer keyless.Close()
	if _, err := keyless.Usage(t.Context()); err == nil || !strings.Contains(err.Error(), "API key") {
		t.Errorf("a question that needs a key: %v", err)
	}
}

// The client sends only a hash, and accepts no answer about another certificate.
func TestCertificates(t *testing.T) {
	asked := ""
	client := against(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.URL.Path + string(body)
		answer(200, fmt.Sprintf(`{"data":{"publicId":%q,"verified":true,"reason":"MATCH"}}`, publicID))(w, r)
	})
	got, err := client.VerifyHash(t.Context(), publicID, "h")
	if err != nil || !got.Verified || asked != `/api/v1/verify{"publicId":"`+publicID+`","sha256":"h"}` {
		t.Errorf("%+v, %v, asked %s", got, err, asked)
	}
	if _, err := client.VerifyHash(t.Context(), strings.Repeat("b", 25)+"a", "h"); err == nil {
		t.Error("an answer about another certificate was taken")
	}
}

func TestBatchResults(t *testing.T) {
	body := `{"data":{"results":[{"status":201,"data":{"publicId":"p"},"error":null},{"status":429,"data":null,"error":{"code":"REGISTRATION_QUOTA_EXHAUSTED","retryAfter":60}}]}}`
	client := against(t, func(w http.ResponseWriter, r *http.Request) { answer(200, body)(w, r) })
	results, err := client.RegisterBatch(t.Context(), make([]wire.Declaration, 2))
	if err != nil || results[0].Registration.PublicID != "p" || results[0].Err != nil || results[1].Registration != nil ||
		results[1].Err.Status != 429 || results[1].Err.RetryAfter != time.Minute {
		t.Errorf("%+v, %v", results, err)
	}
	for _, n := range []int{1, 3} {
		if _, err := client.RegisterBatch(t.Context(), make([]wire.Declaration, n)); !errors.Is(err, errOther) {
			t.Errorf("%d declarations, two results: %v", n, err)
		}
	}
	body = `{"data":{"results":[{"status":201,"data":null,"error":null}]}}`
	if _, err := client.RegisterBatch(t.Context(), make([]wire.Declaration, 1)); !errors.Is(err, errOther) {
		t.Errorf("a result of nothing: %v", err)
	}
}

// The follower survives outages, waits as long as it is asked to, and stops at a restored service.
func TestFollower(t *testing.T) {
	event := func(n int) string { return fmt.Sprintf(`{"id":"evt_%d","sequence":%d,"more":"kept"}`, n, n) }
	page := func(cursor int, more bool, epoch int, events ...string) http.HandlerFunc {
		return answer(
			200,
			fmt.Sprintf(
				`{"data":{"events":[%s],"nextCursor":%d,"hasMore":%t},"meta":{"epoch":%d}}`, strings.Join(events, ","), cursor,
				more, epoch,
			),
		)
	}
	script := []http.HandlerFunc{
		page(2, true, 1, event(1), event(2)),
		answer(503, failure("TEMPORARILY_UNAVAILABLE", 503), "Retry-After", "120"),
		answer(502, "<html>"),
		page(3, false, 1, event(3)),
		page(3, false, 2),
	}
	var asked []string
	client := against(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("after")+" "+q.Get("wait"))
		next := script[0]
		script = script[1:]
		next(w, r)
	})
	var ids []string
	var waits []time.Duration
	err := Follower{
		Client: client, Company: "c", Live: true,
		Take: func(p Page) error {
			for _, e := range p.Events {
				ids = append(ids, e.ID)
				if !strings.Contains(string(e.Raw), "kept") {
					t.Errorf("the event is not as the service gave it: %s", e.Raw)
				}
			}
			return nil
		},
		Failed: func(error, time.Duration) {},
		sleep:  func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	}.Run(t.Context())
	var restored *RestoredError
	if !errors.As(err, &restored) || restored.Known != 1 || restored.Now != 2 {
		t.Errorf("a restored service: %v", err)
	}
	if fmt.Sprint(ids) != "[evt_1 evt_2 evt_3]" || fmt.Sprint(asked) != "[0 25 2 25 2 25 2 25 3 25]" {
		t.Errorf("%v, asked %v", ids, asked)
	}
	if len(waits) != 2 || waits[0] != 2*time.Minute || waits[1] < 2*time.Second || waits[1] > 3*time.Second {
		t.Errorf("waits %v", waits)
	}

	script = []http.HandlerFunc{page(0, true, 1)}
	if err := (Follower{
		Client: client, Company: "c", Take: func(Page) error { return nil },
	}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "does not move") {
		t.Errorf("a cursor that does not move: %v", err)
	}
	script = []http.HandlerFunc{answer(422, failure("CURSOR_AHEAD", 422))}
	if err := (Follower{Client: client, Company: "c", Cursor: 9, Live: true}).Run(t.Context()); !Refused(err) {
		t.Errorf("a cursor ahead: %v", err)
	}
}

// TestRecordOfFormerID: an answer with another publicId is the record only if the public comparison says that the
// publicId asked for is a former one of it.
func TestRecordOfFormerID(t *testing.T) {
	kept := strings.Repeat("b", 26)
	for alias, want := range map[string]error{
		fmt.Sprintf(`,"alias":{"publicId":%q,"statement":{}}`, kept):     nil,
		fmt.Sprintf(`,"alias":{"publicId":%q,"statement":{}}`, publicID): errOther,
		"": errOther,
	} {
		c := against(t, func(w http.ResponseWriter, r *http.Request) {
			data := fmt.Sprintf(`{"publicId":%q,"version":1}`, kept)
			if strings.HasPrefix(r.URL.Path, "/api/public/") {
				data = fmt.Sprintf(`{"publicId":%q,"result":"FILE_NOT_COMPARED"%s}`, publicID, alias)
			}
			fmt.Fprintf(w, `{"data":%s,"error":null,"meta":{"requestId":"r-1"}}`, data)
		})
		if r, err := c.Record(t.Context(), publicID); !errors.Is(err, want) || err == nil && r.PublicID != kept {
			t.Errorf("alias %q: %+v, %v", alias, r, err)
		}
	}
}
