package handlers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// behindNginx puts nginx, in Debian's usual manual setup, in front of the service: an upstream with a name, which
// becomes the Host of its requests unless more sets another. It returns a client that reaches the service through
// nginx.
func (s *service) behindNginx(more string) *http.Client {
	t := s.t
	t.Helper()
	var nginx string
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if found, err := exec.LookPath(name); err == nil && nginx == "" {
			nginx = found
		}
	}
	if nginx == "" {
		t.Fatal("nginx is needed (Debian package nginx): make test fetches it")
	}
	dir, err := os.MkdirTemp("", "nginx") // short, as the name of a socket must be
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	conf := filepath.Join(dir, "nginx.conf")
	check(t, os.WriteFile(conf, fmt.Appendf(nil, `%s
pid %[2]s/pid; worker_processes 1; events {}
http {
	access_log off; client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	upstream ledger { server %[3]s; }
	server { listen unix:%[2]s/socket; location / { proxy_pass http://ledger; %[4]s } }
}`, user, dir, s.http.Listener.Addr(), more), 0o600))
	run := func(ctx context.Context, arguments ...string) error {
		out, err := exec.CommandContext(ctx, nginx,
			append(arguments, "-p", dir, "-e", dir+"/log", "-c", conf)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nginx: %w: %s", err, out)
		}
		return nil
	}
	check(t, run(t.Context())) // it listens once the first process has ended
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/socket")
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		check(t, run(context.Background(), "-s", "quit"))
	})
	return &http.Client{Transport: transport}
}

// proxied sends an MCP message with a client to the public name.
func (s *service) proxied(client *http.Client, path, key string, header ...string) answer {
	s.t.Helper()
	r := s.request(http.MethodPost, path, key, strings.NewReader(ping))
	public, err := url.Parse(baseURL)
	check(s.t, err)
	r.URL.Host = public.Host
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := s.through(client, r)
	check(s.t, err)
	return a
}

// nginx by default passes the name of its upstream as Host. A key shows that the request is not from a page of another
// site. Without a key, the proxy must be trusted or pass the original Host.
func TestMCPBehindNginx(t *testing.T) {
	trusting := func(c *handlers.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	for _, c := range []struct {
		name, more string
		config     func(*handlers.Config)
		keyless    int
	}{
		{"as it is", "", nil, http.StatusForbidden},
		{"trusted", "", trusting, http.StatusUnauthorized},
		{"another is trusted", "", func(c *handlers.Config) {
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, http.StatusForbidden},
		{"with the Host", "proxy_set_header Host $host;", nil, http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p := withProvider(t, options{config: c.config})
			client := s.behindNginx(c.more)
			for _, path := range []string{ordinaryMCP, integrityMCP} {
				if m := s.proxied(client, path, s.org.Secret).message(http.StatusOK); m.Error != nil {
					t.Errorf("%s with a key: %+v", path, m)
				}
				a := s.proxied(client, path, "")
				if a.status != c.keyless {
					t.Errorf("%s without a key: %d %s", path, a.status, a.body)
				}
				if challenge := a.header.Get("WWW-Authenticate"); a.status == http.StatusUnauthorized && path == ordinaryMCP &&
					!strings.Contains(challenge, "resource_metadata") {
					t.Errorf("a client with OAuth is not told where to get a token: %q", challenge)
				}
				if a.status == http.StatusForbidden && !contains(a.body, "INTEGRITY_TRUSTED_PROXIES") {
					t.Errorf("the refusal does not say what to do: %s", a.body)
				}
				s.proxied(client, path, s.org.Secret+"x").refuses(http.StatusUnauthorized, domain.InvalidKey)
				s.proxied(client, path, s.org.Secret, "Origin", "https://page.example").invalid(http.StatusForbidden, -32600)
			}
			s.proxied(client, ordinaryMCP, p.token(stranger, allScopes)).refuses(http.StatusForbidden, domain.IdentityNotLinked)
		})
	}
}
