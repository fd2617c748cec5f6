package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"integrityledger/domain"
)

const variablePrefix = "INTEGRITY_"

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

	shardsGiven    bool   // not only the default
	metricsGiven   bool   // likewise
	signingKeyFile string // that SIGNING_KEY was read from
	logKeyFile     string // likewise LOG_KEY
	ofLog          bool   // the signing key is that of the log: see forLog
}

// setting describes one variable to people.
type setting struct {
	field, name   string
	expects, help string
	// secret variables have no flag, for process lists show flags, but may be read from a file: name_FILE.
	secret bool
}

func settings() []setting {
	return []setting{
		{field: "Listen", name: "LISTEN", expects: "host:port", help: "address to listen on"},
		{field: "BaseURL", name: "BASE_URL", expects: "an http or https URL without path, query or user", help: "public address of the service, from which every link is made (default: the listening address, where that is loopback)"},
		{field: "Issuer", name: "ISSUER", expects: "1 to 512 characters without controls", help: "name that signs the records; read when the ledger is made and fixed from then on (default: the base URL)"},
		{field: "DatabaseURL", name: "DATABASE_URL", expects: "a PostgreSQL URL (postgres://…), whose target_session_attrs, where it has one, is read-write or primary", help: "PostgreSQL to use, several servers separated by commas; without it the service runs its own in the data directory", secret: true},
		{field: "ReplicaURL", name: "REPLICA_URL", expects: "a PostgreSQL URL (postgres://…), together with INTEGRITY_DATABASE_URL", help: "hot standby of that PostgreSQL, which answers the feed, lists and look-ups where it is new enough", secret: true},
		{field: "Shards", name: "SHARDS", expects: "a whole number from 1 to 65535", help: "number of ordered logs; read when the ledger is made, and may be raised later"},
		{field: "DataDir", name: "DATA_DIR", expects: "a directory", help: "directory of the embedded PostgreSQL and of the key files"},
		{field: "SigningKey", name: "SIGNING_KEY", expects: "an Ed25519 private key, PKCS#8 in PEM", help: "signing key (default: signing-key.pem in the data directory)", secret: true},
		{field: "TrustedKeys", name: "TRUSTED_KEYS", expects: "the path of a trusted-keys file", help: "trusted-keys file (default: trusted-keys.json in the data directory)"},
		{field: "Plans", name: "PLANS", expects: "the path of a plan table in JSON", help: "file that replaces the built-in table of plans"},
		{field: "LogFormat", name: "LOG_FORMAT", expects: "json or text", help: "form of the log, json or text"},
		{field: "LogLevel", name: "LOG_LEVEL", expects: "debug, info, warn or error", help: "least level that is logged: debug, info, warn or error"},
		{field: "TrustedProxies", name: "TRUSTED_PROXIES", expects: "addresses or networks, separated by commas", help: "proxies whose X-Forwarded-For is believed: addresses or networks, separated by commas"},
		{field: "RelationshipES", name: "RELATIONSHIP_ES", expects: "a text", help: "operator's words, in Spanish, on its relationship with an origin system"},
		{field: "RelationshipEN", name: "RELATIONSHIP_EN", expects: "a text", help: "the same in English"},
		{field: "InsecureHTTP", name: "INSECURE_HTTP", expects: "true or false", help: "allow a base URL that is http and not loopback"},
		{field: "PublicPerMinute", name: "PUBLIC_PER_MINUTE", expects: "a whole number of at least 1", help: "public comparisons a minute and client address, in each process"},
		{field: "PagesPerMinute", name: "PUBLIC_PAGES_PER_MINUTE", expects: "a whole number of at least 1", help: "pages, public documents and downloads a minute and client address, in each process"},
		{field: "SMTPURL", name: "SMTP_URL", expects: "smtp://, smtp+starttls:// or smtps://, with [user:password@]host[:port]", help: "mail server for quota warnings; without it they are shown but not mailed", secret: true},
		{field: "MailFrom", name: "MAIL_FROM", expects: "a mail address (needed with SMTP_URL)", help: "sender of the mails"},
		{field: "SecretKey", name: "SECRET_KEY", expects: "32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints", help: "key that webhook secrets are encrypted with (default: secret-key in the data directory)", secret: true},
		{field: "WebhookDeny", name: "WEBHOOK_DENY", expects: "addresses or networks, separated by commas", help: "addresses or networks that webhooks are never sent to, besides those that are not globally reachable"},
		{field: "WebhookInsecure", name: "WEBHOOK_ALLOW_INSECURE", expects: "true or false", help: "for development: webhooks over http, and to every address"},
		{field: "TLSCert", name: "TLS_CERT", expects: "the path of a certificate chain in PEM, together with INTEGRITY_TLS_KEY", help: "certificate chain, PEM: with it the service speaks https itself, with HTTP/2"},
		{field: "TLSKey", name: "TLS_KEY", expects: "the path of the certificate's private key in PEM, together with INTEGRITY_TLS_CERT", help: "the certificate's private key, PEM"},
		{field: "BlobURL", name: "BLOB_URL", expects: "file:///directory or s3://bucket", help: "store of the bytes that organizations have kept, file:///directory or s3://bucket (default: blobs in the data directory)"},
		{field: "NATSURL", name: "NATS_URL", expects: "nats:// or tls://, with [user:password@]host[:port]", help: "NATS server with JetStream that the events of all feeds are forwarded to", secret: true},
		{field: "NATSCredentials", name: "NATS_CREDENTIALS", expects: "the path of a credentials file of NATS, together with INTEGRITY_NATS_URL", help: "credentials file (JWT and key) for INTEGRITY_NATS_URL"},
		{field: "DrainDelay", name: "DRAIN_DELAY", expects: "a duration from 0s to 15s", help: "how long a process that stops goes on serving while /readyz answers 503: twice the interval of the proxy's health check"},
		{field: "ClockTolerance", name: "CLOCK_TOLERANCE", expects: "a duration from 1s to 15s", help: "how far apart the clocks of this machine, of the database and of the ledger's last event may be; beyond it nothing is committed"},
		{field: "MetricsListen", name: "METRICS_LISTEN", expects: "host:port, or off", help: "address of metrics, the page /ops and profiles, for operators alone; off: not served"},
		{field: "OAuthIssuer", name: "OAUTH_ISSUER", expects: "the https address of an OpenID provider, exactly as its tokens write it", help: "OpenID provider whose access tokens the ordinary MCP endpoint takes beside API keys; without it keys alone"},
		{field: "OAuthClientID", name: "OAUTH_CLIENT_ID", expects: "the client id of this service at the provider, together with INTEGRITY_OAUTH_ISSUER", help: "this service's registration at the provider, with which people link their identity on a page; without it by API alone"},
		{field: "TransparencyLog", name: "LOG", expects: "on or off", help: "on: keep the transparency log, a public tree of hashes over all events; off: keep and publish none"},
		{field: "LogKey", name: "LOG_KEY", expects: "an Ed25519 private key, PKCS#8 in PEM, that is not the signing key", help: "key that signs the checkpoints of the log (default: log-key.pem in the data directory)", secret: true},
		{field: "Witnesses", name: "WITNESSES", expects: "the path of a file, or a list separated by commas, of witnesses: a verifier key, a space, an https address", help: "witnesses that cosign the checkpoints of the log (C2SP tlog-witness): a file with one a line, or a list"},
		{field: "OAuthClientSecret", name: "OAUTH_CLIENT_SECRET", expects: "the secret of INTEGRITY_OAUTH_CLIENT_ID", help: "secret of that registration; without it a public client", secret: true},
	}
}

func (s setting) variable() string { return variablePrefix + s.name }
func (s setting) flag() string     { return strings.ToLower(strings.ReplaceAll(s.name, "_", "-")) }

// clientVariables are not the server's, but no misspellings of the server's either.
func clientVariables() []string { return []string{variableAPIKey} }

// addSettings gives a command the flags of the named variables, or of all, and tells of the secret ones in its help.
func addSettings(c *cobra.Command, names ...string) {
	defaults := map[string]string{}
	if params, err := env.GetFieldParams(&Config{}); err == nil { // fails only on a struct that is none
		for _, p := range params {
			defaults[p.Key] = p.DefaultValue
		}
	}
	var secrets []string
	for _, s := range settings() {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if s.secret {
			secrets = append(secrets, fmt.Sprintf("  %-24s %s", s.variable(), s.help))
			continue
		}
		value := new(string)
		c.Flags().StringVar(value, s.flag(), defaults[s.name], s.help+" ("+s.variable()+")")
		if s.name == "INSECURE_HTTP" || s.name == "WEBHOOK_ALLOW_INSECURE" {
			c.Flags().Lookup(s.flag()).NoOptDefVal = "true"
		}
	}
	if secrets != nil {
		c.Long += "\n\nSecrets are read from the environment, or from the file that the variable with _FILE at its end names:\n" + strings.Join(secrets, "\n")
	}
}

// loadConfig reads the environment with the command's flags laid over it. Whatever is wrong is told at once.
func (a *app) loadConfig(c *cobra.Command) (Config, error) {
	vars := map[string]string{}
	for _, entry := range a.environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, variablePrefix) {
			vars[name] = value
		}
	}
	var wrong []error
	for _, s := range settings() {
		if s.secret {
			wrong = append(wrong, readSecretFile(vars, s))
		}
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		for _, s := range settings() {
			if !s.secret && s.flag() == f.Name {
				vars[s.variable()] = f.Value.String()
			}
		}
	})
	cfg := Config{shardsGiven: vars[variablePrefix+"SHARDS"] != "", metricsGiven: vars[variablePrefix+"METRICS_LISTEN"] != "",
		signingKeyFile: vars[variablePrefix+"SIGNING_KEY_FILE"], logKeyFile: vars[variablePrefix+"LOG_KEY_FILE"]}
	bad, err := unparsed(env.ParseWithOptions(&cfg, env.Options{Environment: vars, Prefix: variablePrefix}))
	cfg.check(bad)
	for _, s := range settings() {
		if bad[s.field] {
			wrong = append(wrong, s.wrong())
		}
	}
	return cfg, errors.Join(append(wrong, err)...)
}

// unknownVariables lists variables that look like ours and have no effect: misspelt ones, or some of a later version. They
// are told and not refused, because a Kubernetes service of our name makes such variables too.
func (a *app) unknownVariables() []string {
	known := clientVariables()
	for _, s := range settings() {
		known = append(known, s.variable())
		if s.secret {
			known = append(known, s.variable()+"_FILE")
		}
	}
	var unknown []string
	for _, entry := range a.environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// readSecretFile puts the content of the file that NAME_FILE names in the place of NAME.
func readSecretFile(vars map[string]string, s setting) error {
	path := vars[s.variable()+"_FILE"]
	if path == "" {
		return nil
	}
	if vars[s.variable()] != "" {
		return fmt.Errorf("%s and %s_FILE are both set: one of them was expected", s.variable(), s.variable())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s_FILE: %w", s.variable(), err)
	}
	if vars[s.variable()] = strings.TrimSpace(string(text)); vars[s.variable()] == "" {
		return fmt.Errorf("%s_FILE: the file %s is empty: %s was expected", s.variable(), path, s.expects)
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
func (s setting) wrong() error {
	if s.secret {
		return fmt.Errorf("%s: %s was expected", s.variable(), s.expects)
	}
	return fmt.Errorf("%s (--%s): %s was expected", s.variable(), s.flag(), s.expects)
}

// check adds the fields that hold what a type alone does not exclude.
func (c *Config) check(bad map[string]bool) {
	is := func(field string, wrong bool) { bad[field] = bad[field] || wrong }
	_, _, err := net.SplitHostPort(c.Listen)
	is("Listen", err != nil)
	if c.MetricsListen != metricsOff {
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
	is("DrainDelay", c.DrainDelay < 0 || c.DrainDelay > maxDrainDelay)
	is("ClockTolerance", c.ClockTolerance < minClockTolerance || c.ClockTolerance > maxClockTolerance)
	is("LogFormat", c.LogFormat != "json" && c.LogFormat != "text")
	is("PublicPerMinute", c.PublicPerMinute < 1)
	is("PagesPerMinute", c.PagesPerMinute < 1)
	if c.SMTPURL != "" {
		_, err := parseSMTP(c.SMTPURL)
		is("SMTPURL", err != nil)
	}
	if c.SMTPURL != "" || c.MailFrom != "" {
		_, err := mail.ParseAddress(c.MailFrom)
		is("MailFrom", err != nil)
	}
	if c.SecretKey != "" {
		_, err := domain.ParseSecretKey(c.SecretKey)
		is("SecretKey", err != nil)
	}
	is("TLSCert", c.TLSCert == "" && c.TLSKey != "")
	is("TLSKey", c.TLSKey == "" && c.TLSCert != "")
	is("NATSURL", c.NATSURL != "" && checkNATSURL(c.NATSURL) != nil)
	is("NATSCredentials", c.NATSCredentials != "" && c.NATSURL == "")
	is("OAuthIssuer", c.OAuthIssuer != "" && !isIssuer(c.OAuthIssuer))
	is("OAuthClientID", c.OAuthClientID != "" && c.OAuthIssuer == "")
	is("OAuthClientSecret", c.OAuthClientSecret != "" && c.OAuthClientID == "")
	is("BlobURL", c.BlobURL != "" && checkBlobURL(c.BlobURL) != nil)
	if c.DatabaseURL != "" {
		writable, err := writableURL(c.DatabaseURL)
		is("DatabaseURL", err != nil)
		c.DatabaseURL = writable
	}
	is("TransparencyLog", c.TransparencyLog != "on" && c.TransparencyLog != "off")
	if _, err := c.witnesses(); err != nil {
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
func (c *Config) defaultBaseURL(listening net.Addr) error {
	if c.BaseURL == "" {
		address, err := netip.ParseAddrPort(listening.String())
		if err != nil || !address.Addr().IsLoopback() {
			return fmt.Errorf("%sBASE_URL (--base-url) is needed where the service listens on more than loopback: set it to the public https address", variablePrefix)
		}
		if c.BaseURL = "http://" + listening.String(); c.encrypted() {
			c.BaseURL = "https://" + listening.String()
		}
	}
	if strings.HasPrefix(c.BaseURL, "http://") && !isLoopbackURL(c.BaseURL) && !c.InsecureHTTP {
		return fmt.Errorf("%sBASE_URL (--base-url) is http and not loopback: use https, or set %sINSECURE_HTTP=true if you accept that keys travel in the clear", variablePrefix, variablePrefix)
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
func isLoopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isLoopbackHost(u.Hostname())
}

func isLoopbackHost(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// plans is the table that INTEGRITY_PLANS names, or the built-in one.
func (c *Config) plans() (domain.Plans, error) {
	if c.Plans == "" {
		return domain.DefaultPlans()
	}
	text, err := os.ReadFile(c.Plans)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %w", variablePrefix, err)
	}
	plans, err := domain.ParsePlans(text)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %s: %w", variablePrefix, c.Plans, err)
	}
	return plans, nil
}

func (c *Config) inDataDir(name string) string { return filepath.Join(c.DataDir, name) }

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
