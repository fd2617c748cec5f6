// Package config holds the settings of the service: variables, flags, their defaults and their checks.
package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"integrityledger/projections/queue/webhooks"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"integrityledger/cmd/integrity/blobs"
	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/mail"
	"integrityledger/cmd/integrity/stream"
	"integrityledger/domain"
	"integrityledger/eventstore/transparency"
)

// secretKeyPath is the file that the key of webhook secrets is read from; empty where a variable holds the key itself.
func (c *Config) SecretKeyPath() string {
	if c.SecretKey != "" {
		return ""
	}
	return c.InDataDir(keyfiles.SecretKeyFile)
}

const (
	VariableAPIKey  = Prefix + "API_KEY"
	VariableBaseURL = Prefix + "BASE_URL"
)

// A state as of a time is signed once the time is a minute past: half of that is for a group on its way, half for two
// processes of which one is ahead and one behind by the tolerance.
const (
	minClockTolerance = time.Second
	maxClockTolerance = 15 * time.Second
)

const Prefix = "INTEGRITY_"

// Config is what the environment and the flags say. A flag is nothing but another way to set its variable.
type Config struct {
	Listen          string     `env:"LISTEN" envDefault:"127.0.0.1:8080"`
	BaseURL         string     `env:"BASE_URL"`
	Issuer          string     `env:"ISSUER"`
	DatabaseURL     string     `env:"DATABASE_URL"`
	ReplicaURL      string     `env:"REPLICA_URL"`
	Shards          int        `env:"SHARDS" envDefault:"4"`
	DataDir         string     `env:"DATA_DIR" envDefault:"./data"`
	SigningKey      string     `env:"SIGNING_KEY"`
	TrustedKeys     string     `env:"TRUSTED_KEYS"`
	Plans           string     `env:"PLANS"`
	LogFormat       string     `env:"LOG_FORMAT" envDefault:"text"`
	LogLevel        slog.Level `env:"LOG_LEVEL" envDefault:"info"`
	TrustedProxies  prefixes   `env:"TRUSTED_PROXIES"`
	RelationshipES  string     `env:"RELATIONSHIP_ES"`
	RelationshipEN  string     `env:"RELATIONSHIP_EN"`
	InsecureHTTP    bool       `env:"INSECURE_HTTP" envDefault:"false"`
	PublicPerMinute int        `env:"PUBLIC_PER_MINUTE" envDefault:"60"`
	PagesPerMinute  int        `env:"PUBLIC_PAGES_PER_MINUTE" envDefault:"600"`
	SMTPURL         string     `env:"SMTP_URL"`
	MailFrom        string     `env:"MAIL_FROM"`
	SecretKey       string     `env:"SECRET_KEY"`
	WebhookDeny     prefixes   `env:"WEBHOOK_DENY"`
	WebhookInsecure bool       `env:"WEBHOOK_ALLOW_INSECURE" envDefault:"false"`
	TLSCert         string     `env:"TLS_CERT"`
	TLSKey          string     `env:"TLS_KEY"`
	BlobURL         string     `env:"BLOB_URL"`
	MetricsListen   string     `env:"METRICS_LISTEN" envDefault:"127.0.0.1:18080"`
	NATSURL         string     `env:"NATS_URL"`
	NATSCredentials string     `env:"NATS_CREDENTIALS"`

	OAuthIssuer       string        `env:"OAUTH_ISSUER"`
	OAuthClientID     string        `env:"OAUTH_CLIENT_ID"`
	OAuthClientSecret string        `env:"OAUTH_CLIENT_SECRET"`
	DrainDelay        time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`
	ClockTolerance    time.Duration `env:"CLOCK_TOLERANCE" envDefault:"10s"`

	TransparencyLog string `env:"LOG" envDefault:"on"`
	LogKey          string `env:"LOG_KEY"`
	Witnesses       string `env:"WITNESSES"`

	ShardsGiven    bool   // not only the default
	MetricsGiven   bool   // likewise
	signingKeyFile string // that SIGNING_KEY was read from
	logKeyFile     string // likewise LOG_KEY
}

// setting describes one variable to people.
type Setting struct {
	Field, Name   string
	Expects, Help string
	// secret variables have no flag, for process lists show flags, but may be read from a file: name_FILE.
	Secret bool
}

func Settings() []Setting {
	return []Setting{
		{Field: "Listen", Name: "LISTEN", Expects: "host:port", Help: "address to listen on"},
		{Field: "BaseURL", Name: "BASE_URL", Expects: "an http or https URL without path, query or user", Help: "public address of the service, from which every link is made (default: the listening address, where that is loopback)"},
		{Field: "Issuer", Name: "ISSUER", Expects: "1 to 512 characters without controls", Help: "name that signs the records; read when the ledger is made and fixed from then on (default: the base URL)"},
		{Field: "DatabaseURL", Name: "DATABASE_URL", Expects: "a PostgreSQL URL (postgres://…), whose target_session_attrs, where it has one, is read-write or primary", Help: "PostgreSQL to use, several servers separated by commas; without it the service runs its own in the data directory", Secret: true},
		{Field: "ReplicaURL", Name: "REPLICA_URL", Expects: "a PostgreSQL URL (postgres://…), together with INTEGRITY_DATABASE_URL", Help: "hot standby of that PostgreSQL, which answers the feed, lists and look-ups where it is new enough", Secret: true},
		{Field: "Shards", Name: "SHARDS", Expects: "a whole number from 1 to 65535", Help: "number of ordered logs; read when the ledger is made, and may be raised later"},
		{Field: "DataDir", Name: "DATA_DIR", Expects: "a directory", Help: "directory of the embedded PostgreSQL and of the key files"},
		{Field: "SigningKey", Name: "SIGNING_KEY", Expects: "an Ed25519 private key, PKCS#8 in PEM", Help: "signing key (default: signing-key.pem in the data directory)", Secret: true},
		{Field: "TrustedKeys", Name: "TRUSTED_KEYS", Expects: "the path of a trusted-keys file", Help: "trusted-keys file (default: trusted-keys.json in the data directory)"},
		{Field: "Plans", Name: "PLANS", Expects: "the path of a plan table in JSON", Help: "file that replaces the built-in table of plans"},
		{Field: "LogFormat", Name: "LOG_FORMAT", Expects: "json or text", Help: "form of the log, json or text"},
		{Field: "LogLevel", Name: "LOG_LEVEL", Expects: "debug, info, warn or error", Help: "least level that is logged: debug, info, warn or error"},
		{Field: "TrustedProxies", Name: "TRUSTED_PROXIES", Expects: "addresses or networks, separated by commas", Help: "proxies whose X-Forwarded-For is believed: addresses or networks, separated by commas"},
		{Field: "RelationshipES", Name: "RELATIONSHIP_ES", Expects: "a text", Help: "operator's words, in Spanish, on its relationship with an origin system"},
		{Field: "RelationshipEN", Name: "RELATIONSHIP_EN", Expects: "a text", Help: "the same in English"},
		{Field: "InsecureHTTP", Name: "INSECURE_HTTP", Expects: "true or false", Help: "allow a base URL that is http and not loopback"},
		{Field: "PublicPerMinute", Name: "PUBLIC_PER_MINUTE", Expects: "a whole number of at least 1", Help: "public comparisons a minute and client address, in each process"},
		{Field: "PagesPerMinute", Name: "PUBLIC_PAGES_PER_MINUTE", Expects: "a whole number of at least 1", Help: "pages, public documents and downloads a minute and client address, in each process"},
		{Field: "SMTPURL", Name: "SMTP_URL", Expects: "smtp://, smtp+starttls:// or smtps://, with [user:password@]host[:port]", Help: "mail server for quota warnings; without it they are shown but not mailed", Secret: true},
		{Field: "MailFrom", Name: "MAIL_FROM", Expects: "a mail address (needed with SMTP_URL)", Help: "sender of the mails"},
		{Field: "SecretKey", Name: "SECRET_KEY", Expects: "32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints", Help: "key that webhook secrets are encrypted with (default: secret-key in the data directory)", Secret: true},
		{Field: "WebhookDeny", Name: "WEBHOOK_DENY", Expects: "addresses or networks, separated by commas", Help: "addresses or networks that webhooks are never sent to, besides those that are not globally reachable"},
		{Field: "WebhookInsecure", Name: "WEBHOOK_ALLOW_INSECURE", Expects: "true or false", Help: "for development: webhooks over http, and to every address"},
		{Field: "TLSCert", Name: "TLS_CERT", Expects: "the path of a certificate chain in PEM, together with INTEGRITY_TLS_KEY", Help: "certificate chain, PEM: with it the service speaks https itself, with HTTP/2"},
		{Field: "TLSKey", Name: "TLS_KEY", Expects: "the path of the certificate's private key in PEM, together with INTEGRITY_TLS_CERT", Help: "the certificate's private key, PEM"},
		{Field: "BlobURL", Name: "BLOB_URL", Expects: "file:///directory or s3://bucket", Help: "store of the bytes that organizations have kept, file:///directory or s3://bucket (default: blobs in the data directory)"},
		{Field: "NATSURL", Name: "NATS_URL", Expects: "nats:// or tls://, with [user:password@]host[:port]", Help: "NATS server with JetStream that the events of all feeds are forwarded to", Secret: true},
		{Field: "NATSCredentials", Name: "NATS_CREDENTIALS", Expects: "the path of a credentials file of NATS, together with INTEGRITY_NATS_URL", Help: "credentials file (JWT and key) for INTEGRITY_NATS_URL"},
		{Field: "DrainDelay", Name: "DRAIN_DELAY", Expects: "a duration from 0s to 15s", Help: "how long a process that stops goes on serving while /readyz answers 503: twice the interval of the proxy's health check"},
		{Field: "ClockTolerance", Name: "CLOCK_TOLERANCE", Expects: "a duration from 1s to 15s", Help: "how far apart the clocks of this machine, of the database and of the ledger's last event may be; beyond it nothing is committed"},
		{Field: "MetricsListen", Name: "METRICS_LISTEN", Expects: "host:port, or off", Help: "address of metrics, the page /ops and profiles, for operators alone; off: not served"},
		{Field: "OAuthIssuer", Name: "OAUTH_ISSUER", Expects: "the https address of an OpenID provider, exactly as its tokens write it", Help: "OpenID provider whose access tokens the ordinary MCP endpoint takes beside API keys; without it keys alone"},
		{Field: "OAuthClientID", Name: "OAUTH_CLIENT_ID", Expects: "the client id of this service at the provider, together with INTEGRITY_OAUTH_ISSUER", Help: "this service's registration at the provider, with which people link their identity on a page; without it by API alone"},
		{Field: "TransparencyLog", Name: "LOG", Expects: "on or off", Help: "on: keep the transparency log, a public tree of hashes over all events; off: keep and publish none"},
		{Field: "LogKey", Name: "LOG_KEY", Expects: "an Ed25519 private key, PKCS#8 in PEM, that is not the signing key", Help: "key that signs the checkpoints of the log (default: log-key.pem in the data directory)", Secret: true},
		{Field: "Witnesses", Name: "WITNESSES", Expects: "the path of a file, or a list separated by commas, of witnesses: a verifier key, a space, an https address", Help: "witnesses that cosign the checkpoints of the log (C2SP tlog-witness): a file with one a line, or a list"},
		{Field: "OAuthClientSecret", Name: "OAUTH_CLIENT_SECRET", Expects: "the secret of INTEGRITY_OAUTH_CLIENT_ID", Help: "secret of that registration; without it a public client", Secret: true},
	}
}

func (s Setting) Variable() string { return Prefix + s.Name }

func (s Setting) Flag() string { return strings.ToLower(strings.ReplaceAll(s.Name, "_", "-")) }

// clientVariables are not the server's, but no misspellings of the server's either.
func ClientVariables() []string { return []string{VariableAPIKey} }

// addSettings gives a command the flags of the named variables, or of all, and tells of the secret ones in its help.
func AddFlags(c *cobra.Command, names ...string) {
	defaults := map[string]string{}
	if params, err := env.GetFieldParams(&Config{}); err == nil { // fails only on a struct that is none
		for _, p := range params {
			defaults[p.Key] = p.DefaultValue
		}
	}
	var secrets []string
	for _, s := range Settings() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.Secret {
			secrets = append(secrets, fmt.Sprintf("  %-24s %s", s.Variable(), s.Help))
			continue
		}
		value := new(string)
		c.Flags().StringVar(value, s.Flag(), defaults[s.Name], s.Help+" ("+s.Variable()+")")
		if s.Name == "INSECURE_HTTP" || s.Name == "WEBHOOK_ALLOW_INSECURE" {
			c.Flags().Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
	if secrets != nil {
		c.Long += "\n\nSecrets are read from the environment, or from the file that the variable with _FILE at its end names:\n" + strings.Join(secrets, "\n")
	}
}

// loadConfig reads the environment with the command's flags laid over it. Whatever is wrong is told at once.
func Load(a *cli.App, c *cobra.Command) (Config, error) {
	vars := map[string]string{}
	for _, entry := range a.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, Prefix) {
			vars[name] = value
		}
	}
	var wrong []error
	for _, s := range Settings() {
		if s.Secret {
			wrong = append(wrong, readSecretFile(vars, s))
		}
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		for _, s := range Settings() {
			if !s.Secret && s.Flag() == f.Name {
				vars[s.Variable()] = f.Value.String()
			}
		}
	})
	cfg := Config{ShardsGiven: vars[Prefix+"SHARDS"] != "", MetricsGiven: vars[Prefix+"METRICS_LISTEN"] != "",
		signingKeyFile: vars[Prefix+"SIGNING_KEY_FILE"], logKeyFile: vars[Prefix+"LOG_KEY_FILE"]}
	bad, err := unparsed(env.ParseWithOptions(&cfg, env.Options{Environment: vars, Prefix: Prefix}))
	cfg.check(bad)
	for _, s := range Settings() {
		if bad[s.Field] {
			wrong = append(wrong, s.wrong())
		}
	}
	return cfg, errors.Join(append(wrong, err)...)
}

// unknownVariables lists variables that look like ours and have no effect: misspelt ones, or some of a later version. They
// are told and not refused, because a Kubernetes service of our name makes such variables too.
func UnknownVariables(a *cli.App) []string {
	known := ClientVariables()
	for _, s := range Settings() {
		known = append(known, s.Variable())
		if s.Secret {
			known = append(known, s.Variable()+"_FILE")
		}
	}
	var unknown []string
	for _, entry := range a.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, Prefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// readSecretFile puts the content of the file that NAME_FILE names in the place of NAME.
func readSecretFile(vars map[string]string, s Setting) error {
	path := vars[s.Variable()+"_FILE"]
	if path == "" {
		return nil
	}
	if vars[s.Variable()] != "" {
		return fmt.Errorf("%s and %s_FILE are both set: one of them was expected", s.Variable(), s.Variable())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s_FILE: %w", s.Variable(), err)
	}
	if vars[s.Variable()] = strings.TrimSpace(string(text)); vars[s.Variable()] == "" {
		return fmt.Errorf("%s_FILE: the file %s is empty: %s was expected", s.Variable(), path, s.Expects)
	}
	return nil
}

// unparsed names the fields whose values do not even parse, and returns whatever else went wrong.
func unparsed(err error) (map[string]bool, error) {
	bad := map[string]bool{}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return bad, err
	}
	var others []error
	for _, err := range all.Errors {
		var parse env.ParseError
		if errors.As(err, &parse) {
			bad[parse.Name] = true
		} else {
			others = append(others, err)
		}
	}
	return bad, errors.Join(others...)
}

// wrong says which variable it is and what is right. The value is not quoted.
func (s Setting) wrong() error {
	if s.Secret {
		return fmt.Errorf("%s: %s was expected", s.Variable(), s.Expects)
	}
	return fmt.Errorf("%s (--%s): %s was expected", s.Variable(), s.Flag(), s.Expects)
}

// check adds the fields that hold what a type alone does not exclude.
func (c *Config) check(bad map[string]bool) {
	is := func(field string, wrong bool) { bad[field] = bad[field] || wrong }
	_, _, err := net.SplitHostPort(c.Listen)
	is("Listen", err != nil)
	if c.MetricsListen != MetricsOff {
		_, _, err := net.SplitHostPort(c.MetricsListen)
		is("MetricsListen", err != nil)
	}
	if c.BaseURL != "" {
		origin, err := parseOrigin(c.BaseURL)
		is("BaseURL", err != nil)
		c.BaseURL = origin
	}
	is("Issuer", len([]rune(c.Issuer)) > 512 || strings.ContainsFunc(c.Issuer, func(r rune) bool { return r < ' ' || r == 0x7f }))
	is("Shards", c.Shards < 1 || c.Shards > 65535)
	is("DrainDelay", c.DrainDelay < 0 || c.DrainDelay > MaxDrainDelay)
	is("ClockTolerance", c.ClockTolerance < minClockTolerance || c.ClockTolerance > maxClockTolerance)
	is("LogFormat", c.LogFormat != "json" && c.LogFormat != "text")
	is("PublicPerMinute", c.PublicPerMinute < 1)
	is("PagesPerMinute", c.PagesPerMinute < 1)
	if c.SMTPURL != "" {
		_, err := mail.ParseServer(c.SMTPURL)
		is("SMTPURL", err != nil)
	}
	if c.SMTPURL != "" || c.MailFrom != "" {
		_, err := netmail.ParseAddress(c.MailFrom)
		is("MailFrom", err != nil)
	}
	if c.SecretKey != "" {
		_, err := domain.ParseSecretKey(c.SecretKey)
		is("SecretKey", err != nil)
	}
	is("TLSCert", c.TLSCert == "" && c.TLSKey != "")
	is("TLSKey", c.TLSKey == "" && c.TLSCert != "")
	is("NATSURL", c.NATSURL != "" && stream.CheckURL(c.NATSURL) != nil)
	is("NATSCredentials", c.NATSCredentials != "" && c.NATSURL == "")
	is("OAuthIssuer", c.OAuthIssuer != "" && !isIssuer(c.OAuthIssuer))
	is("OAuthClientID", c.OAuthClientID != "" && c.OAuthIssuer == "")
	is("OAuthClientSecret", c.OAuthClientSecret != "" && c.OAuthClientID == "")
	is("BlobURL", c.BlobURL != "" && blobs.CheckURL(c.BlobURL) != nil)
	if c.DatabaseURL != "" {
		writable, err := writableURL(c.DatabaseURL)
		is("DatabaseURL", err != nil)
		c.DatabaseURL = writable
	}
	is("TransparencyLog", c.TransparencyLog != "on" && c.TransparencyLog != "off")
	if _, err := c.WitnessList(); err != nil {
		is("Witnesses", true)
	}
	is("ReplicaURL", c.ReplicaURL != "" && (c.DatabaseURL == "" || !isPostgresURL(c.ReplicaURL)))
}

func isPostgresURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// writableURL makes every connection of a database URL look for the server that takes writes, whichever of several it is.
func writableURL(text string) (string, error) {
	parsed, err := url.Parse(text)
	if err != nil || !isPostgresURL(text) {
		return "", errors.New("a PostgreSQL URL was expected")
	}
	const attributes = "target_session_attrs"
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "", fmt.Errorf("query of the URL: %w", err)
	}
	switch query.Get(attributes) {
	case "read-write", "primary":
		return text, nil
	case "":
	default:
		return "", fmt.Errorf("%s does not say that writes are taken", attributes)
	}
	query.Set(attributes, "read-write")
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}

// settleBaseURL fixes the public address once the listening one is known. It fails closed: keys would travel in the clear
// over an http address that is not this machine's own.
func (c *Config) DefaultBaseURL(listening net.Addr) error {
	if c.BaseURL == "" {
		address, err := netip.ParseAddrPort(listening.String())
		if err != nil || !address.Addr().IsLoopback() {
			return fmt.Errorf("%sBASE_URL (--base-url) is needed where the service listens on more than loopback: set it to the public https address", Prefix)
		}
		if c.BaseURL = "http://" + listening.String(); c.Encrypted() {
			c.BaseURL = "https://" + listening.String()
		}
	}
	if strings.HasPrefix(c.BaseURL, "http://") && !IsLoopbackURL(c.BaseURL) && !c.InsecureHTTP {
		return fmt.Errorf("%sBASE_URL (--base-url) is http and not loopback: use https, or set %sINSECURE_HTTP=true if you accept that keys travel in the clear", Prefix, Prefix)
	}
	return nil
}

// parseOrigin reads scheme://host[:port] and writes it without a slash at the end.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errors.New("an http or https URL without path, query or user was expected")
	}
	return u.Scheme + "://" + u.Host, nil
}

// isLoopbackURL is true of addresses that cannot leave this machine, and of the name localhost.
func IsLoopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && domain.IsLoopbackHost(u.Hostname())
}

// plans is the table that INTEGRITY_PLANS names, or the built-in one.
func (c *Config) PlanTable() (domain.Plans, error) {
	if c.Plans == "" {
		return domain.DefaultPlans()
	}
	text, err := os.ReadFile(c.Plans)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %w", Prefix, err)
	}
	plans, err := domain.ParsePlans(text)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %s: %w", Prefix, c.Plans, err)
	}
	return plans, nil
}

// signingSource says where the signing key is.
func (c *Config) SigningSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.SigningKeyFile, Variable: Prefix + "SIGNING_KEY", Text: c.SigningKey, File: c.signingKeyFile, Trusted: c.TrustedKeysPath(),
	}
}

// logSource says where the key of the transparency log is.
func (c *Config) LogSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.LogKeyFile, Variable: Prefix + "LOG_KEY", Text: c.LogKey, File: c.logKeyFile, Trusted: c.TrustedKeysPath(),
	}
}

func (c *Config) TrustedKeysPath() string {
	if c.TrustedKeys != "" {
		return c.TrustedKeys
	}
	return c.InDataDir(keyfiles.TrustedKeysFile)
}

func (c *Config) InDataDir(name string) string { return filepath.Join(c.DataDir, name) }

// prefixes are networks; a single address is a network of one.
type prefixes []netip.Prefix

// UnmarshalText reads them separated by commas.
func (p *prefixes) UnmarshalText(text []byte) error {
	*p = nil
	for part := range strings.SplitSeq(string(text), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			address, addressErr := netip.ParseAddr(part)
			if addressErr != nil {
				return err
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		// Addresses are judged as IPv4 where they are IPv4 inside IPv6.
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		*p = append(*p, prefix.Masked())
	}
	return nil
}

// blobURL is the configured store, or a directory in the data directory.
func (c *Config) BlobStore() (string, error) {
	if c.BlobURL != "" {
		return c.BlobURL, nil
	}
	return blobs.DirectoryURL(c.InDataDir("blobs"))
}

// spoolDir is where uploads lie while they are looked at: in the data directory, where there is one, because the
// system's directory for temporary files may be memory.
func (c *Config) SpoolDir() (string, error) {
	if c.DatabaseURL != "" {
		return "", nil
	}
	dir := c.InDataDir("spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory of uploads: %w", err)
	}
	return dir, nil
}

// metricsOff in METRICS_LISTEN turns the listener off.
const MetricsOff = "off"

// isIssuer judges the address of an identity provider (OpenID Connect Discovery, section 3). Keys that came over plain http
// could be anybody's.
func isIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" && domain.IsLoopbackHost(u.Hostname())) && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// egress is what webhooks may be sent to.
func (c *Config) Egress() webhooks.EgressPolicy {
	return webhooks.EgressPolicy{Deny: c.WebhookDeny, Insecure: c.WebhookInsecure}
}

const MaxDrainDelay = 15 * time.Second

// loadCertificate reads what the service shows of itself.
func (c *Config) LoadCertificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("%sTLS_CERT, %sTLS_KEY: %w", Prefix, Prefix, err)
	}
	return &pair, nil
}

// encrypted says whether the service itself speaks https.
func (c *Config) Encrypted() bool { return c.TLSCert != "" }

func (c *Config) KeepsLog() bool { return c.TransparencyLog == "on" }

// witnesses are those of a file, where the text is not itself a list.
func (c *Config) WitnessList() ([]*transparency.Witness, error) {
	text := c.Witnesses
	if text != "" && !strings.Contains(text, "+") {
		read, err := os.ReadFile(text)
		if err != nil {
			return nil, fmt.Errorf("%sWITNESSES: %w", Prefix, err)
		}
		text = string(read)
	}
	witnesses, err := transparency.ParseWitnesses(text)
	if err != nil {
		return nil, fmt.Errorf("%sWITNESSES: %w", Prefix, err)
	}
	return witnesses, nil
}
