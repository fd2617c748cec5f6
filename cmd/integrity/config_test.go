package main

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func testApp(environ ...string) (*app, *bytes.Buffer) {
	errs := &bytes.Buffer{}
	return &app{out: &bytes.Buffer{}, errs: errs, environ: environ, now: time.Now, random: rand.Reader}, errs
}

// load reads a configuration as serve would.
func load(t *testing.T, environ []string, args ...string) (Config, error) {
	t.Helper()
	a, _ := testApp(environ...)
	var cfg Config
	var err error
	c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(c *cobra.Command, _ []string) error {
		cfg, err = a.loadConfig(c)
		return nil
	}}
	addSettings(c)
	c.SetArgs(args)
	if execErr := c.Execute(); execErr != nil {
		return cfg, execErr
	}
	return cfg, err
}

func TestEverySettingIsDescribed(t *testing.T) {
	described := map[string]setting{}
	for _, s := range settings() {
		described[s.field] = s
	}
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		if !f.IsExported() {
			continue
		}
		if s := described[f.Name]; s.name != f.Tag.Get("env") || s.help == "" || s.expects == "" {
			t.Errorf("the field %s has no setting that describes it", f.Name)
		}
	}
	if len(described) != len(settings()) {
		t.Error("two settings describe one field")
	}
}

func TestConfigDefaultsAndFlags(t *testing.T) {
	cfg, err := load(t, nil)
	if err != nil || cfg.Listen != "127.0.0.1:8080" || cfg.Shards != 4 || cfg.DataDir != "./data" || cfg.PublicPerMinute != 60 || cfg.PagesPerMinute != 600 {
		t.Fatalf("defaults: %+v, %v", cfg, err)
	}
	cfg, err = load(t, []string{"INTEGRITY_LISTEN=127.0.0.1:1", "INTEGRITY_SHARDS=9", "INTEGRITY_TRUSTED_PROXIES=10.0.0.0/8, ::1"},
		"--listen", "127.0.0.1:2", "--insecure-http", "--base-url", "https://ledger.example.org/")
	if err != nil || cfg.Listen != "127.0.0.1:2" || cfg.Shards != 9 || !cfg.InsecureHTTP || cfg.BaseURL != "https://ledger.example.org" {
		t.Fatalf("flags over variables: %+v, %v", cfg, err)
	}
	if len(cfg.TrustedProxies) != 2 || cfg.TrustedProxies[1].String() != "::1/128" {
		t.Errorf("proxies: %v", cfg.TrustedProxies)
	}
}

// TestConfigFaults wants the variable's name and what is right, and all faults at once.
func TestConfigFaults(t *testing.T) {
	for _, bad := range []string{
		"LISTEN=8080", "BASE_URL=ledger.example.org", "BASE_URL=https://a/b", "SHARDS=0", "SHARDS=many", "SHARDS=65536", "LOG_FORMAT=xml",
		"LOG_LEVEL=loud", "TRUSTED_PROXIES=proxy.example.org", "INSECURE_HTTP=perhaps", "PUBLIC_PER_MINUTE=0", "PUBLIC_PAGES_PER_MINUTE=0", "DATABASE_URL=mysql://secret@x",
	} {
		_, err := load(t, []string{variablePrefix + bad})
		name, value, _ := strings.Cut(bad, "=")
		if err == nil || !strings.Contains(err.Error(), variablePrefix+name) || !strings.Contains(err.Error(), "was expected") {
			t.Errorf("%s: %v", bad, err)
		} else if name == "DATABASE_URL" && strings.Contains(err.Error(), value) {
			t.Errorf("a secret is quoted: %v", err)
		}
	}
	_, err := load(t, []string{"INTEGRITY_LISTEN=1", "INTEGRITY_LOG_FORMAT=2", "INTEGRITY_PUBLIC_PER_MINUTE=0", "INTEGRITY_SHARDS=x"})
	if err == nil || strings.Count(err.Error(), "was expected") != 4 {
		t.Errorf("four faults: %v", err)
	}
}

func TestConfigSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte("postgres://u:p@h/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, []string{"INTEGRITY_DATABASE_URL_FILE=" + path})
	if err != nil || cfg.DatabaseURL != "postgres://u:p@h/d?target_session_attrs=read-write" {
		t.Errorf("%q, %v", cfg.DatabaseURL, err)
	}
	if _, err := load(t, []string{"INTEGRITY_DATABASE_URL_FILE=" + path, "INTEGRITY_DATABASE_URL=postgres://x"}); err == nil {
		t.Error("both are taken")
	}
	if _, err := load(t, []string{"INTEGRITY_SIGNING_KEY_FILE=" + path + "x"}); err == nil || !strings.Contains(err.Error(), "INTEGRITY_SIGNING_KEY_FILE") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := load(t, nil, "--database-url", "postgres://x"); err == nil {
		t.Error("a secret has a flag")
	}
	a, _ := testApp("INTEGRITY_SHARD=4", "INTEGRITY_SHARDS=4", "INTEGRITY_API_KEY=x", "OTHER=1")
	if unknown := a.unknownVariables(); len(unknown) != 1 || unknown[0] != "INTEGRITY_SHARD" {
		t.Errorf("unknown: %v", unknown)
	}
}

// Of several servers the one is looked for that takes writes.
func TestDatabaseURLs(t *testing.T) {
	for given, want := range map[string]string{
		"postgres://u@db1:5433,db2:5434/d?sslmode=require":        "postgres://u@db1:5433,db2:5434/d?sslmode=require&target_session_attrs=read-write",
		"postgresql:///d?host=/a,/b&target_session_attrs=primary": "postgresql:///d?host=/a,/b&target_session_attrs=primary",
	} {
		cfg, err := load(t, []string{"INTEGRITY_DATABASE_URL=" + given, "INTEGRITY_REPLICA_URL=postgres://u@db3/d"})
		if err != nil || cfg.DatabaseURL != want || cfg.ReplicaURL != "postgres://u@db3/d" {
			t.Errorf("%s: %q %q %v", given, cfg.DatabaseURL, cfg.ReplicaURL, err)
			continue
		}
		connecting, err := pgx.ParseConfig(cfg.DatabaseURL)
		if err != nil || connecting.ValidateConnect == nil || len(connecting.Fallbacks) == 0 {
			t.Errorf("%s: one server only, or any: %v", want, err)
		}
	}
	for _, bad := range [][]string{
		{"INTEGRITY_DATABASE_URL=postgres://db1,db2/d?target_session_attrs=any"}, {"INTEGRITY_DATABASE_URL=postgres://db1/d?target_session_attrs=standby"},
		{"INTEGRITY_REPLICA_URL=postgres://db2/d"}, {"INTEGRITY_DATABASE_URL=postgres://db1/d", "INTEGRITY_REPLICA_URL=db2"},
	} {
		if _, err := load(t, bad); err == nil || !strings.Contains(err.Error(), "was expected") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestBaseURL(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 9}
	for _, c := range []struct {
		cfg  Config
		at   net.Addr
		want string // empty: refused
	}{
		{Config{}, loopback, "http://127.0.0.1:9"},
		{Config{}, everywhere, ""},
		{Config{BaseURL: "https://x.example"}, everywhere, "https://x.example"},
		{Config{BaseURL: "http://x.example"}, loopback, ""},
		{Config{BaseURL: "http://x.example", InsecureHTTP: true}, loopback, "http://x.example"},
		{Config{BaseURL: "http://[::1]:9"}, loopback, "http://[::1]:9"},
	} {
		err := c.cfg.defaultBaseURL(c.at)
		if (err == nil) != (c.want != "") || err == nil && c.cfg.BaseURL != c.want {
			t.Errorf("%+v at %s: %q, %v", c.cfg, c.at, c.cfg.BaseURL, err)
		}
	}
	if err := demoAllowed(Config{BaseURL: "http://127.0.0.1:9"}, everywhere); err == nil {
		t.Error("a demo for everybody")
	}
}

func TestReadLocation(t *testing.T) {
	id := strings.Repeat("a", 26)
	for text, want := range map[string]recordLocation{
		id:                                     {"", id},
		"https://x.example/integrity/" + id:    {"https://x.example", id},
		"https://x.example/en/integrity/" + id: {"https://x.example", id},
		"http://127.0.0.1:1/api/public/integrity/" + id + "/receipt?sha256=1": {"http://127.0.0.1:1", id},
		"http://x.example/integrity/" + id:                                    {},
		"https://u:p@x.example/integrity/" + id:                               {},
		"https://x.example/other/" + id:                                       {},
		"ftp://x.example/integrity/" + id:                                     {},
		strings.ToUpper(id):                                                   {},
		"":                                                                    {},
	} {
		if got, err := readLocation(text); got != want || (err == nil) != (want.publicID != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestReferenceFromName(t *testing.T) {
	for path, want := range map[string]string{
		"/x/contract v1.pdf":     "contract-v1.pdf",
		"_Größe.pdf":             "Gr-e.pdf",
		"...":                    "",
		strings.Repeat("a", 200): strings.Repeat("a", 128),
		"a  b":                   "a-b",
		"7.pdf":                  "7.pdf",
	} {
		if got, err := referenceFrom(path); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
}

func TestLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90d": 90 * 24 * time.Hour, "1h": time.Hour, "730d": 730 * 24 * time.Hour,
		"0d": 0, "731d": 0, "90": 0, "": 0, "d": 0, "-1d": 0, "59m": 0, "99999999999999d": 0,
	} {
		if got, err := readLifetime(text); (err == nil) != (want != 0) || err == nil && got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// A network that is written as IPv4 inside IPv6 is the IPv4 network.
func TestWebhookDeny(t *testing.T) {
	cfg, err := load(t, []string{"INTEGRITY_WEBHOOK_DENY=::ffff:9.9.9.0/120, ::ffff:1.1.1.1, 8.8.0.0/16, 2620:fe::/48"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"9.9.9.9": false, "::ffff:9.9.9.9": false, "1.1.1.1": false, "8.8.8.8": false, "64:ff9b::8.8.8.8": false, "2620:fe::fe": false,
		"9.9.10.9": true, "1.1.1.2": true, "2620:fe:1::1": true,
	} {
		if got := cfg.egress().Allows(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}
