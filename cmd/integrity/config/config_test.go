package config

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

func testApp(environ ...string) (*cli.App, *bytes.Buffer) {
	errs := &bytes.Buffer{}
	return &cli.App{Out: &bytes.Buffer{}, Errs: errs, Environ: environ, Now: time.Now}, errs
}

// load reads a configuration as serve does.
func load(t *testing.T, environ []string, args ...string) (Config, error) {
	t.Helper()
	a, _ := testApp(environ...)
	var cfg Config
	var err error
	c := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(c *cobra.Command, _ []string) error {
		cfg, err = Load(a, c)
		return nil
	}}
	AddFlags(c)
	c.SetArgs(args)
	if execErr := c.Execute(); execErr != nil {
		return cfg, execErr
	}
	return cfg, err
}

func TestEverySettingIsDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Settings() {
		if names[s.Name] || s.Help == "" || s.Expects == "" || s.set == nil {
			t.Errorf("%s: declared twice, or without help, expectation or field", s.Name)
		}
		names[s.Name] = true
		if s.Default != "" && s.set(s.Default) != nil {
			t.Errorf("%s: its default %s is refused", s.Name, s.Default)
		}
	}
	for _, s := range Settings() {
		if s.Needs != "" && !names[s.Needs] {
			t.Errorf("%s needs %s, which is no setting", s.Name, s.Needs)
		}
	}
}

// TestFormerNames: the previous release's names still work as variable, file and flag; using both names of a setting is
// an error.
func TestFormerNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ, args []string
		off           bool
		key, file     string
	}{
		{environ: []string{"INTEGRITY_LOG=off"}, off: true},
		{environ: []string{"INTEGRITY_TRANSPARENCY=off"}, off: true},
		{environ: []string{"INTEGRITY_LOG=on"}, args: []string{"--log", "off"}, off: true},
		{environ: []string{"INTEGRITY_LOG=off"}, args: []string{"--transparency", "on"}},
		{environ: []string{"INTEGRITY_LOG_KEY=k"}, key: "k"},
		{environ: []string{"INTEGRITY_TRANSPARENCY_KEY=k"}, key: "k"},
		{environ: []string{"INTEGRITY_LOG_KEY_FILE=" + path}, key: "of a file", file: path},
		{environ: []string{"INTEGRITY_TRANSPARENCY_KEY_FILE=" + path}, key: "of a file", file: path},
	} {
		cfg, err := load(t, c.environ, c.args...)
		if err != nil || cfg.Transparency == c.off || cfg.TransparencyKey != c.key || cfg.LogSource().File != c.file {
			t.Errorf("%v %v: %t %q %q, %v", c.environ, c.args, cfg.Transparency, cfg.TransparencyKey, cfg.LogSource().File, err)
		}
		if a, _ := testApp(c.environ...); len(UnknownVariables(a)) != 0 {
			t.Errorf("%v: unknown", c.environ)
		}
	}
	for _, c := range []struct {
		environ, args []string
		says          string
	}{
		{
			environ: []string{"INTEGRITY_LOG=off", "INTEGRITY_TRANSPARENCY=off"},
			says:    "INTEGRITY_TRANSPARENCY and INTEGRITY_LOG are both set",
		},
		{
			environ: []string{"INTEGRITY_LOG_KEY=k", "INTEGRITY_TRANSPARENCY_KEY_FILE=" + path},
			says:    "INTEGRITY_TRANSPARENCY_KEY_FILE and INTEGRITY_LOG_KEY are both set",
		},
		{args: []string{"--log", "off", "--transparency", "off"}, says: "--transparency and --log are both set"},
		{environ: []string{"INTEGRITY_LOG=maybe"}, says: "INTEGRITY_LOG (--log) must be on or off"},
		{args: []string{"--log", "maybe"}, says: "INTEGRITY_LOG (--log) must be on or off"},
		{
			environ: []string{"INTEGRITY_LOG=off"}, args: []string{"--transparency", "maybe"},
			says: "INTEGRITY_TRANSPARENCY (--transparency) must be on or off",
		},
	} {
		if _, err := load(t, c.environ, c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v %v: %v, want %q", c.environ, c.args, err, c.says)
		}
	}
	serve := &cobra.Command{}
	AddFlags(serve)
	column := strings.Index(serve.Long[strings.LastIndex(serve.Long, "\n")+1:], "secret of that client id")
	for line := range strings.Lines(serve.Long) {
		if variable, help, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(variable, Prefix) &&
			strings.Index(line, strings.TrimSpace(help)) != column {
			t.Errorf("the help of secrets has no straight edge: %q", line)
		}
	}
	if strings.Contains(serve.UsageString(), "--log ") {
		t.Error("a former name is shown")
	}
}

func TestConfigDefaultsAndFlags(t *testing.T) {
	cfg, err := load(t, nil)
	if err != nil || cfg.Listen != "127.0.0.1:8080" || cfg.Shards != 1 || cfg.DataDir != "./data" ||
		cfg.PublicPerMinute != 60 || cfg.PagesPerMinute != 600 {
		t.Fatalf("defaults: %+v, %v", cfg, err)
	}
	cfg, err = load(t,
		[]string{"INTEGRITY_LISTEN=127.0.0.1:1", "INTEGRITY_SHARDS=9", "INTEGRITY_TRUSTED_PROXIES=10.0.0.0/8, ::1"},
		"--listen", "127.0.0.1:2", "--insecure-http", "--base-url", "https://ledger.example.org/")
	if err != nil || cfg.Listen != "127.0.0.1:2" || cfg.Shards != 9 || !cfg.InsecureHTTP ||
		cfg.BaseURL != "https://ledger.example.org" {
		t.Fatalf("flags over variables: %+v, %v", cfg, err)
	}
	if len(cfg.TrustedProxies) != 2 || cfg.TrustedProxies[1].String() != "::1/128" {
		t.Errorf("proxies: %v", cfg.TrustedProxies)
	}
}

// TestConfigFaults requires that all errors are reported at once, each with the variable's name and its valid values.
func TestConfigFaults(t *testing.T) {
	for _, bad := range []string{
		"LISTEN=8080", "BASE_URL=ledger.example.org", "BASE_URL=https://a/b", "SHARDS=0", "SHARDS=many", "SHARDS=65536",
		"LOG_FORMAT=xml",
		"LOG_LEVEL=loud", "TRUSTED_PROXIES=proxy.example.org", "INSECURE_HTTP=perhaps", "PUBLIC_PER_MINUTE=0",
		"PUBLIC_PAGES_PER_MINUTE=0", "DATABASE_URL=mysql://secret@x",
	} {
		_, err := load(t, []string{Prefix + bad})
		name, value, _ := strings.Cut(bad, "=")
		if err == nil || !strings.Contains(err.Error(), Prefix+name) || !strings.Contains(err.Error(), " must be ") {
			t.Errorf("%s: %v", bad, err)
		} else if name == "DATABASE_URL" && strings.Contains(err.Error(), value) {
			t.Errorf("a secret is quoted: %v", err)
		}
	}
	_, err := load(
		t, []string{"INTEGRITY_LISTEN=1", "INTEGRITY_LOG_FORMAT=2", "INTEGRITY_PUBLIC_PER_MINUTE=0", "INTEGRITY_SHARDS=x"},
	)
	if err == nil || strings.Count(err.Error(), " must be ") != 4 {
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
	if _, err := load(
		t, []string{"INTEGRITY_DATABASE_URL_FILE=" + path, "INTEGRITY_DATABASE_URL=postgres://x"},
	); err == nil {
		t.Error("both are taken")
	}
	if _, err := load(t, []string{"INTEGRITY_SIGNING_KEY_FILE=" + path + "x"}); err == nil ||
		!strings.Contains(err.Error(), "INTEGRITY_SIGNING_KEY_FILE") {
		t.Errorf("a missing file: %v", err)
	}
	_, err = load(t, []string{"INTEGRITY_DATABASE_URL_FILE=" + path + "x", "INTEGRITY_REPLICA_URL=postgres://x"})
	if err == nil || strings.Contains(err.Error(), "together") {
		t.Errorf("a database URL whose file is missing counts as none: %v", err)
	}
	if _, err := load(t, nil, "--database-url", "postgres://x"); err == nil {
		t.Error("a secret has a flag")
	}
	a, _ := testApp(
		"INTEGRITY_SHARD=4", "INTEGRITY_SHARDS=4", "INTEGRITY_API_KEY=x", "INTEGRITY_COMPANY=c",
		"INTEGRITY_WEBHOOK_SECRET=s", "OTHER=1",
	)
	if unknown := UnknownVariables(a); len(unknown) != 1 || unknown[0] != "INTEGRITY_SHARD" {
		t.Errorf("unknown: %v", unknown)
	}
}

// TestDatabaseURLs: with several servers the service looks for the one that accepts writes.
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
		{"INTEGRITY_DATABASE_URL=postgres://db1,db2/d?target_session_attrs=any"},
		{"INTEGRITY_DATABASE_URL=postgres://db1/d?target_session_attrs=standby"},
		{"INTEGRITY_REPLICA_URL=postgres://db2/d"}, {"INTEGRITY_DATABASE_URL=postgres://db1/d", "INTEGRITY_REPLICA_URL=db2"},
		{"INTEGRITY_NODE_URL=postgres://{host}:{port}/d"},
		{"INTEGRITY_DATABASE_URL=postgres://db1/d", "INTEGRITY_NODE_URL=postgres://{host}/d"},
	} {
		if _, err := load(t, bad); err == nil || !strings.Contains(err.Error(), " must be ") {
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
		want string // empty: rejected
	}{
		{Config{}, loopback, "http://127.0.0.1:9"},
		{Config{}, everywhere, ""},
		{Config{BaseURL: "https://x.example"}, everywhere, "https://x.example"},
		{Config{BaseURL: "http://x.example"}, loopback, ""},
		{Config{BaseURL: "http://x.example", InsecureHTTP: true}, loopback, "http://x.example"},
		{Config{BaseURL: "http://[::1]:9"}, loopback, "http://[::1]:9"},
	} {
		err := c.cfg.DefaultBaseURL(c.at)
		if (err == nil) != (c.want != "") || err == nil && c.cfg.BaseURL != c.want {
			t.Errorf("%+v at %s: %q, %v", c.cfg, c.at, c.cfg.BaseURL, err)
		}
	}
}

// TestWebhookDeny: an IPv4 network written in IPv6 form denies the IPv4 network.
func TestWebhookDeny(t *testing.T) {
	cfg, err := load(t, []string{"INTEGRITY_WEBHOOK_DENY=::ffff:9.9.9.0/120, ::ffff:1.1.1.1, 8.8.0.0/16, 2620:fe::/48"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"9.9.9.9": false, "::ffff:9.9.9.9": false, "1.1.1.1": false, "8.8.8.8": false, "64:ff9b::8.8.8.8": false,
		"2620:fe::fe": false,
		"9.9.10.9":    true, "1.1.1.2": true, "2620:fe:1::1": true,
	} {
		if got := cfg.Egress().Allows(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestOAuthIssuerIsJudged(t *testing.T) {
	for issuer, good := range map[string]bool{
		"https://id.example/": true, "https://id.example/realms/one": true, "http://127.0.0.1:8090": true,
		"http://localhost/x": true,
		"http://id.example":  false, "id.example": false, "https://id.example?x=1": false, "https://u@id.example": false,
		"https://id.example#x": false, "ftp://id.example": false,
	} {
		if _, err := load(t, []string{"INTEGRITY_OAUTH_ISSUER=" + issuer}); (err == nil) != good {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

func TestTLSNeedsBothFiles(t *testing.T) {
	for _, variable := range []string{"INTEGRITY_TLS_CERT", "INTEGRITY_TLS_KEY"} {
		if _, err := load(t, []string{variable + "=x.pem"}); err == nil || !strings.Contains(err.Error(), "INTEGRITY_TLS_") {
			t.Errorf("%s alone: %v", variable, err)
		}
	}
	if _, err := load(t, []string{"INTEGRITY_TLS_CERT=a.pem", "INTEGRITY_TLS_KEY=b.pem"}); err != nil {
		t.Error(err)
	}
}

// TestOpenSignUpNeedsMail: open sign-up confirms addresses by mail, so without a mail server it is an error at startup.
func TestOpenSignUpNeedsMail(t *testing.T) {
	for signUp, want := range map[string]SignUp{"": {Invited: true}, "invite": {Invited: true}, "off": {}} {
		if cfg, err := load(t, []string{"INTEGRITY_SIGNUP=" + signUp}); err != nil || cfg.SignUp != want {
			t.Errorf("%q: %+v, %v", signUp, cfg.SignUp, err)
		}
	}
	if _, err := load(t, []string{"INTEGRITY_SIGNUP=open"}); err == nil ||
		!strings.Contains(err.Error(), "INTEGRITY_SMTP_URL") {
		t.Errorf("open without mail: %v", err)
	}
	cfg, err := load(
		t,
		[]string{"INTEGRITY_SIGNUP=open", "INTEGRITY_SMTP_URL=smtp://127.0.0.1", "INTEGRITY_MAIL_FROM=ledger@example.org"},
	)
	if err != nil || cfg.SignUp != (SignUp{Invited: true, Open: true}) {
		t.Errorf("open: %+v, %v", cfg.SignUp, err)
	}
}

// TestOperatorName: the name of the operator is one line that shows nothing else than it says.
func TestOperatorName(t *testing.T) {
	for name, valid := range map[string]bool{
		"": true, "Registros SL": true, strings.Repeat("ñ", 200): true, strings.Repeat("ñ", 201): false, "a\nb": false,
		"a\u202eb": false,
	} {
		cfg, err := load(t, []string{"INTEGRITY_OPERATOR_NAME=" + name})
		if (err == nil) != valid || valid && cfg.OperatorName != name {
			t.Errorf("%q: %q, %v", name, cfg.OperatorName, err)
		}
	}
}

// TestLists: a list of servers comes from the variable or from a file, and errors name the setting.
func TestLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authorities")
	if err := os.WriteFile(path, []byte("# who stamps\na https://a.example\nb http://127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{path, "a https://a.example, b http://127.0.0.1:1"} {
		cfg, err := load(t, []string{"INTEGRITY_TIMESTAMP_AUTHORITIES=" + text})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := cfg.TimestampAuthorityList(); err != nil || len(list) != 2 || list[1].Name() != "b" ||
			cfg.TimestampInterval != time.Minute {
			t.Errorf("%s: %v, every %s, %v", text, list, cfg.TimestampInterval, err)
		}
	}
	for _, wrong := range []string{
		"INTEGRITY_TIMESTAMP_AUTHORITIES=/nonexistent", "INTEGRITY_TIMESTAMP_AUTHORITIES=a http://a.example",
		"INTEGRITY_TIMESTAMP_INTERVAL=0s", "INTEGRITY_TIMESTAMP_INTERVAL=2h",
	} {
		name, _, _ := strings.Cut(wrong, "=")
		if _, err := load(t, []string{wrong}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
