package handlers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// Every bad upload gets an answer, changes nothing, and leaves nothing behind.
func TestBadUploads(t *testing.T) {
	spool := t.TempDir()
	s := open(t, options{config: func(c *handlers.Config) { c.Spool = &edge.Spool{Dir: spool} }})
	v := s.registeredText("a", "a")
	const path = certificationAction + "/artifacts"
	before := s.sequence()
	metadata := part{name: "metadata", kind: "application/json", content: `{"title":"x"}`}
	file := part{"file", "a.txt", "text/plain", "a"}
	send := func(list ...part) answer {
		text, kind := parts(list...)
		return s.send(http.MethodPost, path, s.org.Secret, text, "Content-Type", kind)
	}
	for want, list := range map[string][]part{
		"/file REQUIRED":         {metadata},
		"/metadata REQUIRED":     {file},
		"/file DUPLICATE_MEMBER": {metadata, file, file},
		"/other UNKNOWN_MEMBER":  {metadata, file, {name: "other", content: "x"}},
		"/title FORMAT":          {file, {name: "metadata", content: `{"title":"a\u202eb"}`}},
		"/title REQUIRED":        {file, {name: "metadata", content: `{}`}},
		"/title TYPE":            {file, {name: "metadata", content: `{"title":1}`}},
		"/file FORMAT":           {metadata, {name: "file", file: strings.Repeat("a", 256), content: "a"}},
	} {
		if got := pointers(send(list...).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	send(file, part{name: "metadata", content: `{`}).refuses(http.StatusBadRequest, domain.MalformedJSON)
	send(file, part{name: "metadata", content: strings.Repeat(" ", 8<<10+1)}).refuses(
		http.StatusRequestEntityTooLarge, domain.PayloadTooLarge,
	)
	whole, kind := parts(metadata, file)
	for _, text := range []string{whole[:len(whole)-10], whole[:len(whole)/2], "", "nothing"} {
		got := pointers(s.send(
			http.MethodPost, path, s.org.Secret, text, "Content-Type", kind,
		).refuses(http.StatusUnprocessableEntity, domain.InvalidData))
		if want := " FORMAT"; got != want && strings.Contains(text, "form-data") {
			t.Errorf("%q: %s", text, got)
		}
	}
	s.send(
		http.MethodPost, path, s.org.Secret, whole, "Content-Type", kind, "Content-Encoding", "gzip",
	).refuses(http.StatusUnsupportedMediaType, domain.UnsupportedMediaType)
	s.send(
		http.MethodPost, path+"?x=1", s.org.Secret, whole, "Content-Type", kind,
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	chunked := s.request(http.MethodPost, path, s.org.Secret, struct{ io.Reader }{strings.NewReader(whole)})
	chunked.Header.Set("Content-Type", kind)
	s.exchange(chunked).refuses(http.StatusLengthRequired, domain.LengthRequired)

	reviews := path + "/" + v.artifact + "/reviews"
	for want, change := range map[string]body{
		"/statement LENGTH": {"statement": strings.Repeat("é", 2001)}, "/statement FORMAT": {"statement": " "},
		"/outcome FORMAT":              {"outcome": "fine"},
		"/acceptResponsibility FORMAT": {"acceptResponsibility": false}, "/versionId FORMAT": {"versionId": "ver_1"},
		"/more UNKNOWN_MEMBER": {"more": 1},
	} {
		if got := pointers(s.upload(
			reviews, s.org.Secret, reviewOf(v.version, "accepted").with(change), "a", "", "a",
		).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s.send(http.MethodPost, reviews, s.org.Secret, body{}).refuses(
		http.StatusUnsupportedMediaType, domain.UnsupportedMediaType,
	)
	text, kind := parts(file, part{name: "metadata", content: `[`})
	s.send(http.MethodPost, reviews, s.org.Secret, text, "Content-Type", kind).refuses(
		http.StatusBadRequest, domain.MalformedJSON,
	)
	for want, content := range map[string]body{
		"/kind FORMAT":         {"title": "x", "kind": "file"},
		"/text LENGTH":         {"title": "x", "kind": "text", "text": ""},
		"/text UNKNOWN_MEMBER": {"title": "x", "kind": "manifest", "manifest": body{}, "text": "x"},
		"/title FORMAT":        {"title": strings.Repeat("a", 201), "kind": "text", "text": "x"},
	} {
		if got := pointers(s.post(path, content).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s.post(
		path, body{"title": "x", "kind": "text", "text": strings.Repeat("é", 1<<19) + "a"},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if after := s.sequence(); after != before {
		t.Errorf("bad uploads made %d events", after-before)
	}
	empty(t, spool)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	check(t, err)
	if len(left) > 0 {
		t.Errorf("%d files are left in the spool", len(left))
	}
}

// The limit of a file is exact.
func TestLargestUpload(t *testing.T) {
	spool := t.TempDir()
	s := open(t, options{config: func(c *handlers.Config) {
		c.Spool = &edge.Spool{Dir: spool}
		c.Analyze = func(context.Context, domain.OrganizationID, *os.File, int64, string, string) (analysis.Report, error) {
			return analysis.Report{}, nil
		}
	}})
	largest := strings.Repeat("0123456789abcdef", domain.MaxFileBytes/16)
	registered := s.upload(certificationAction+"/artifacts", s.org.Secret, body{"title": "large"}, "a", "", largest)
	v := read[wire.ArtifactRegistration](registered, http.StatusCreated).Version
	equal(t, "the largest file", []any{v.SizeBytes, v.SHA256}, []any{domain.MaxFileBytes, hash(largest)})
	reviews := certificationAction + "/artifacts/" + v.ArtifactID + "/reviews"
	s.upload(
		certificationAction+"/artifacts", s.org.Secret, body{"title": "large"}, "a", "", largest+"x",
	).refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	s.upload(reviews, s.org.Secret, reviewOf(v.ID, "accepted"), "a", "",
		largest+"x").refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	s.upload(reviews, s.org.Secret, reviewOf(v.ID, "accepted"), "a", "", largest).is(http.StatusCreated)
	empty(t, spool)

	// A body with a larger Content-Length is not read at all.
	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection,
		"POST %s/artifacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; "+
			"boundary=x\r\nContent-Length: %d\r\n\r\n",
		certificationAction, s.org.Secret, domain.MaxFileBytes+1<<20)
	check(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	check(t, err)
	if answer.Body.Close(); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", answer.StatusCode)
	}
}

func TestFullSpool(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.Spool, c.BodyGrace = &edge.Spool{MaxBytes: 2600}, time.Minute }})
	s.upload(
		certificationAction+"/artifacts", s.org.Secret, body{"title": "x"}, "a", "", strings.Repeat("a", 1000),
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	for range 5 { // room is released
		s.upload(
			certificationAction+"/artifacts", s.org.Secret, body{"title": "x"}, "a", "", strings.Repeat("a", 500),
		).is(http.StatusCreated)
	}
	// One organization's uploads leave room for another's.
	text, kind := form(body{"title": "x"}, "a", "", strings.Repeat("a", 500))
	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(
		connection,
		"POST %s/artifacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: "+
			"%d\r\nExpect: 100-continue\r\n\r\n",
		certificationAction, s.org.Secret, kind, len(text),
	)
	check(t, err)
	answers := bufio.NewReader(connection)
	line, err := answers.ReadString('\n') // 100 Continue: the handler reads, so its room is reserved
	check(t, err)
	other := s.Organization(t, 1, domain.InternalPlan)
	s.upload(
		certificationAction+"/artifacts", s.org.Secret, body{"title": "x"}, "a", "", strings.Repeat("a", 500),
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	s.upload(
		certificationAction+"/artifacts", other.Secret, body{"title": "x"}, "a", "", strings.Repeat("a", 500),
	).is(http.StatusCreated)
	_, err = io.WriteString(connection, text)
	check(t, err)
	_, err = answers.ReadString('\n')
	check(t, err)
	response, err := http.ReadResponse(answers, nil)
	check(t, err)
	if response.Body.Close(); !strings.Contains(line, "100 Continue") || response.StatusCode != http.StatusCreated {
		t.Errorf("%s, then %d", line, response.StatusCode)
	}
	gone := open(t, options{config: func(c *handlers.Config) { c.Spool = &edge.Spool{Dir: "/nonexistent"} }})
	gone.upload(
		certificationAction+"/artifacts", gone.org.Secret, body{"title": "x"}, "a", "", "a",
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
}

// A client that stops sending is cut off with an explanation.
func TestSlowUpload(t *testing.T) {
	spool := t.TempDir()
	s := open(t, options{config: func(c *handlers.Config) {
		c.Spool, c.BodyGrace = &edge.Spool{Dir: spool}, time.Second
	}})
	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection,
		"POST %s/artifacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; "+
			"boundary=x\r\nContent-Length: 10000\r\n\r\n"+
			"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nabc", certificationAction, s.org.Secret)
	check(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	check(t, err)
	text, err := io.ReadAll(response.Body)
	check(t, err)
	if response.Body.Close(); response.StatusCode != http.StatusRequestTimeout || !contains(text, "REQUEST_TIMEOUT") {
		t.Errorf("%d %s", response.StatusCode, text)
	}
	empty(t, spool)
}

// A body ends at its announced length, not at the closing boundary. A client that stops in between is cut off, and
// nothing is registered. Bytes in between are ignored.
func TestUploadBeyondBoundary(t *testing.T) {
	spool := t.TempDir()
	s := open(t, options{config: func(c *handlers.Config) {
		c.Spool, c.BodyGrace = &edge.Spool{Dir: spool}, time.Second
	}})
	v := s.registeredText("a", "a")
	before := s.sequence()
	for path, metadata := range map[string]any{
		"/artifacts": body{"title": "x"}, "/artifacts/" + v.artifact + "/reviews": reviewOf(v.version, "accepted"),
	} {
		text, kind := form(metadata, "a.txt", "text/plain", "a")
		connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
		check(t, err)
		defer connection.Close()
		check(t, connection.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(connection,
			"POST %s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			certificationAction, path, s.org.Secret, kind, len(text)+1000, text)
		check(t, err)
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		check(t, err)
		said, err := io.ReadAll(response.Body)
		check(t, err)
		if response.Body.Close(); response.StatusCode != http.StatusRequestTimeout || !contains(said, "REQUEST_TIMEOUT") {
			t.Errorf("%s: %d %s", path, response.StatusCode, said)
		}
	}
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
	empty(t, spool)
	patient := open(t, options{}) // a busy machine may be slower than that
	text, kind := form(body{"title": "x"}, "a.txt", "text/plain", "a")
	patient.send(
		http.MethodPost, certificationAction+"/artifacts", patient.org.Secret, text+strings.Repeat("epilogue", 1000),
		"Content-Type", kind,
	).is(http.StatusCreated)
}

// The room for a file is only for the file: headers of parts, which are read into memory, and everything else share 64
// KiB.
func TestUploadAroundTheFile(t *testing.T) {
	s := open(t, options{})
	before := s.sequence()
	text, kind := form(body{"title": "x"}, "a.txt", "text/plain", "a")
	long := strings.Repeat("x", 100<<10)
	for name, bad := range map[string]string{
		"header":   strings.Replace(text, "Content-Type: text/plain", "Content-Type: text/plain\r\nX-Long: "+long, 1),
		"preamble": strings.Repeat("x\r\n", 30<<10) + text,
		"epilogue": text + long,
	} {
		s.send(
			http.MethodPost, certificationAction+"/artifacts", s.org.Secret, bad, "Content-Type", kind,
		).refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
		if after := s.sequence(); after != before {
			t.Errorf("%s: %d events", name, after-before)
		}
	}
	s.upload(certificationAction+"/artifacts", s.org.Secret, body{"title": "x"}, "a.txt", "", long).is(http.StatusCreated)
}

// An analysis that cannot start is answered with 503, and nothing is registered.
func TestAnalyzerIsFull(t *testing.T) {
	var broken atomic.Bool
	s := open(t, options{config: func(c *handlers.Config) {
		c.Analyze = func(context.Context, domain.OrganizationID, *os.File, int64, string, string) (analysis.Report, error) {
			full := domain.Unavailable("Too many files are being analysed; send the request again.")
			if broken.Load() {
				full.Code = domain.Internal
			}
			return analysis.Report{}, full
		}
	}})
	before := s.sequence()
	text := body{"title": "x", "kind": "text", "text": "x"}
	s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret, text, idempotencyKey, "k",
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	broken.Store(true) // another failure under the same key: the first was not stored
	s.send(
		http.MethodPost, certificationAction+"/artifacts", s.org.Secret, text, idempotencyKey, "k",
	).refuses(http.StatusInternalServerError, domain.Internal)
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
}

// If the client goes away, its analysis ends, whatever the form of the content, and nothing is registered or left in
// the spool.
func TestUploaderGoesAway(t *testing.T) {
	spool := t.TempDir()
	began, ended := make(chan domain.OrganizationID), make(chan error)
	s := open(t, options{config: func(c *handlers.Config) {
		c.Spool = &edge.Spool{Dir: spool}
		c.Analyze = func(
			ctx context.Context, o domain.OrganizationID, _ *os.File, _ int64, _, _ string,
		) (analysis.Report, error) {
			began <- o
			<-ctx.Done()
			ended <- ctx.Err()
			return analysis.Report{}, ctx.Err()
		}
	}})
	before := s.sequence()
	file, kind := form(body{"title": "x"}, "a.txt", "text/plain", "a")
	text := `{"title": "x", "kind": "text", "text": "x"}`
	for name, c := range map[string]struct{ body, contentType, key string }{
		"a file": {file, kind, ""}, "a file under a key": {file, kind, "k1"}, "a text": {text, "application/json", ""},
		"a text under a key": {text, "application/json", "k2"},
	} {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(
			ctx, http.MethodPost, s.http.URL+certificationAction+"/artifacts", strings.NewReader(c.body),
		)
		check(t, err)
		r.Header.Set("Authorization", "Bearer "+s.org.Secret)
		r.Header.Set("Content-Type", c.contentType)
		if c.key != "" {
			r.Header.Set(idempotencyKey, c.key)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := s.tryExchange(r)
			answered <- err
		}()
		if o := <-began; o != s.org.ID {
			t.Errorf("%s: analysed for %s", name, o)
		}
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the analysis ended by %v", name, err)
		}
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: answered %v", name, err)
		}
	}
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
	empty(t, spool)
}
