package handlers_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// prism starts a validation proxy for a document in front of a service and returns its address.
func prism(t *testing.T, directory, name, upstream string, document []byte) *url.URL {
	t.Helper()
	file := filepath.Join(directory, name+".json")
	check(t, os.WriteFile(file, document, 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := free.Addr().String()
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	check(t, free.Close())
	run := exec.Command(
		"node", "node_modules/@stoplight/prism-cli/dist/index.js", "proxy", "--host", "127.0.0.1", "--port", port, file,
		upstream,
	)
	run.Dir = directory
	out, err := run.StdoutPipe()
	check(t, err)
	check(t, run.Start())
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	said := bufio.NewScanner(out)
	for said.Scan() {
		if strings.Contains(said.Text(), "listening") {
			go func() {
				for said.Scan() { // so that it never blocks on its output
				}
			}()
			return &url.URL{Scheme: "http", Host: address}
		}
	}
	t.Fatalf("Prism does not listen: %v", said.Err())
	return nil
}

// An independent validation proxy finds no violation of the documents in the requests and answers of the clients'
// tests.
func TestValidationProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("installs a validation proxy")
	}
	directory, ok := generators(t, "what a validation proxy finds")
	if !ok {
		t.Skip(errNoNPM)
	}
	s := open(t, options{})
	s.javaScriptStoryAt(validated(s, directory).URL, installedClient(t, s.http.URL+clientAddress), clientTests)
	other := open(t, options{}) // with separate counts
	pythonClientStoryAt(t, servedPython(t), other, validated(other, directory).Config.Handler)
}

// validated is a service behind the validation proxies of both its documents. It reports their findings.
func validated(s *service, directory string) *httptest.Server {
	t := s.t
	t.Helper()
	p, err := published()
	check(t, err)
	integrityProxy := prism(t, directory, "integrity", s.http.URL, s.public("/api/integrity-openapi").body)
	certificationProxy := prism(t, directory, "certification", s.http.URL, s.public("/api/openapi").body)
	between := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target := integrityProxy
			if route, _, err := p.router.FindRoute(r.In); err == nil && p.older.Paths.Value(route.Path) != nil {
				target = certificationProxy
			}
			r.SetURL(target)
		},
		ModifyResponse: func(r *http.Response) error {
			text := r.Header.Get("Sl-Violations")
			if text == "" {
				return nil
			}
			var violations []struct {
				Location []string
				Message  string
			}
			if err := json.Unmarshal([]byte(text), &violations); err != nil {
				return fmt.Errorf("violations %s: %w", text, err)
			}
			for _, v := range violations {
				// Findings about a refused request explain its refusal.
				if r.StatusCode < http.StatusBadRequest || len(v.Location) == 0 || v.Location[0] != "request" {
					t.Errorf("%s %s answers %d: %v %s", r.Request.Method, r.Request.URL, r.StatusCode, v.Location, v.Message)
				}
			}
			return nil
		},
	})
	t.Cleanup(between.Close)
	return between
}
