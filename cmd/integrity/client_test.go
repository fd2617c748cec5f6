package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// ask runs a command in this process.
func ask(environ []string, args ...string) result {
	var out, errs bytes.Buffer
	a := &app{&cli.App{Out: &out, Errs: &errs, Environ: environ, Now: time.Now}}
	code := a.Run(context.Background(), a.rootCommand(), args)
	return result{out.String(), errs.String(), code}
}

func testKey(t *testing.T) string {
	t.Helper()
	id := domain.NewKeyID(time.Now(), 0)
	text, _ := domain.NewAPIKey(id)
	return text
}

// TestCompareAnswers returns every answer that a service, or another server, may give. Only the known results count as
// answers.
func TestCompareAnswers(t *testing.T) {
	id := strings.Repeat("a", 26)
	file := write(t, filepath.Join(t.TempDir(), "f"), "x")
	result := func(name string, verified bool) string {
		return fmt.Sprintf(`{"data":{"publicId":%q,"result":%q,"verified":%t},"error":null,"meta":{}}`, id, name, verified)
	}
	failure := func(code string) string {
		return fmt.Sprintf(`{"data":null,"error":{"code":%q,"detail":"d"},"meta":{}}`, code)
	}
	for _, c := range []struct {
		status int
		body   string
		want   int
	}{
		{200, result("MATCH_CURRENT", true), cli.ExitOK},
		{200, result("MATCH_CURRENT", false), cli.ExitNegative},
		{200, result("MATCH_HISTORICAL", false), cli.ExitNegative},
		{200, result("HASH_MISMATCH", false), cli.ExitNegative},
		{200, result("RECORD_REVOKED", false), cli.ExitNegative},
		{200, result("SIGNATURE_INVALID", false), cli.ExitNegative},
		{200, result("FILE_NOT_COMPARED", false), cli.ExitNegative},
		{200, result("REGISTRATION_PENDING", false), cli.ExitNegative},
		{404, failure("RECORD_NOT_FOUND"), cli.ExitNegative},
		{404, failure("NOT_FOUND"), cli.ExitFailed},
		{404, "<html>", cli.ExitFailed},
		{429, failure("RATE_LIMITED"), cli.ExitFailed},
		{503, failure("TEMPORARILY_UNAVAILABLE"), cli.ExitFailed},
		{500, failure("INTERNAL"), cli.ExitFailed},
		{302, "", cli.ExitFailed},
		{200, "<html>", cli.ExitFailed},
		{200, `{"data":null}`, cli.ExitFailed},
		{200, result("SOMETHING_NEW", true), cli.ExitFailed},
		{200, strings.Replace(result("MATCH_CURRENT", true), id, strings.Repeat("b", 25)+"a", 1), cli.ExitFailed},
		{200, strings.Repeat(" ", client.MaxAnswer+1), cli.ExitFailed},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body)) // fails when the client stops reading
		}))
		r := ask([]string{config.VariableAPIKey + "=" + testKey(t)}, "compare", file, server.URL+"/integrity/"+id)
		server.Close()
		if r.code != c.want {
			t.Errorf("%d %.80s: exit code %d, want %d: %s", c.status, c.body, r.code, c.want, r.errs)
		}
		if c.want == cli.ExitFailed && (!strings.Contains(r.errs, "not a mismatch") || r.out != "") {
			t.Errorf("%d %.80s: %s%s", c.status, c.body, r.out, r.errs)
		}
		if len(asked) != 1 || asked[0] != "GET /api/public/integrity/"+id+" " {
			t.Errorf("%d: want one question without a key: %q", c.status, asked)
		}
		if strings.Contains(r.errs, "sha256") {
			t.Errorf("an error shows the query: %s", r.errs)
		}
	}
}

// TestKeyIsNotSentElsewhere: a key is never sent to another service.
func TestKeyIsNotSentElsewhere(t *testing.T) {
	key := config.VariableAPIKey + "=" + testKey(t)
	id := strings.Repeat("a", 26)
	file := write(t, filepath.Join(t.TempDir(), "f"), "x")
	register := []string{"register", file, "--company", "c", "--source", "s", "--version", "1"}
	for _, c := range []struct {
		environ []string
		args    []string
		says    string
	}{
		{[]string{key}, append([]string{"--url", "http://ledger.example.org"}, register...), "must be https"},
		{[]string{key, config.VariableBaseURL + "=http://ledger.example.org"}, register, "must be https"},
		{[]string{key, config.VariableBaseURL + "=http://127.0.0.1.example.org"}, register, "must be https"},
		{[]string{key, config.VariableBaseURL + "=https://u:p@ledger.example.org"}, register, "without path, query or user"},
		{[]string{key}, []string{"evidence", "https://elsewhere.example.org/integrity/" + id}, "the key is for"},
		{[]string{key}, []string{"revoke", "https://elsewhere.example.org/integrity/" + id}, "the key is for"},
		{nil, register, config.VariableAPIKey},
		{[]string{key + "x"}, register, config.VariableAPIKey},
		{[]string{key}, []string{"compare", file, "http://ledger.example.org/integrity/" + id}, "must be https"},
	} {
		args := c.args
		if args[0] == "--url" {
			args = append(args[2:len(args):len(args)], args[:2]...)
		}
		if r := ask(c.environ, args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, c.says) ||
			strings.Contains(r.errs, "ik_0") {
			t.Errorf("%v %v: %d %s", c.environ, args, r.code, r.errs)
		}
	}
}

// TestRegisterFiles declares several files, and none at all if one of them cannot be declared.
func TestRegisterFiles(t *testing.T) {
	dir := t.TempDir()
	one := write(t, filepath.Join(dir, "one.pdf"), "1")
	two := write(t, filepath.Join(dir, "two.unknown"), "%PDF-1.4")
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"data":{"publicId":"x","verificationUrl":"https://x/y"}}`))
	}))
	defer server.Close()
	environ := []string{config.VariableAPIKey + "=" + testKey(t), config.VariableBaseURL + "=" + server.URL}
	common := []string{"--company", "c", "--source", "s", "--version", "1"}
	run := func(args ...string) result {
		return ask(environ, append(append([]string{"register"}, args...), common...)...)
	}

	if r := run(one, two, "--quiet"); r.code != cli.ExitOK || r.out != "https://x/y\nhttps://x/y\n" || asked != 2 {
		t.Errorf("two files: %+v, %d", r, asked)
	}
	for says, args := range map[string][]string{
		"one document":         {one, two, "--document", "d"},
		"would both be":        {one, one},
		"no such file":         {one, filepath.Join(dir, "three")},
		"a regular file":       {one, dir},
		"must be 1 to 128":     {one, "--document", "a b"},
		"if any flags":         {one, "--quiet", "--json"},
		"invalid argument":     {one, "--previous-version", "x"},
		"\"integrity register": {},
	} {
		if r := run(args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, says) || asked != 2 {
			t.Errorf("%v: want %q, and nothing sent: %+v, %d", args, says, r, asked)
		}
	}
	declared, err := clientcmd.Declare(
		&cli.App{}, wire.Declaration{CompanyReference: "c", Source: "s", Version: 1}, []string{one, two},
	)
	if err != nil || declared[0].MimeType != "application/pdf" || declared[1].MimeType != "application/pdf" ||
		declared[0].DocumentReference != "one.pdf" || declared[1].SizeBytes != 8 ||
		!strings.HasSuffix(declared[0].GeneratedAt, "Z") {
		t.Errorf("%+v, %v", declared, err)
	}
}
