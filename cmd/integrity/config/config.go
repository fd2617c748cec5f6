// Package config defines the settings of the service. settings.go declares each setting once, with its name, default,
// check and help. A command-line flag is only another way to set the setting's variable.
package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/projections/queue/webhooks"
)

// Prefix begins the name of every variable.
const Prefix = "INTEGRITY_"

// Variables of the commands that use the API.
const (
	VariableAPIKey  = Prefix + "API_KEY"
	VariableBaseURL = Prefix + "BASE_URL"
)

// MetricsOff is the value of METRICS_LISTEN that turns the listener off.
const MetricsOff = "off"

// Config holds the values of all settings.
type Config struct {
	Listen, MetricsListen           string
	BaseURL, Issuer                 string
	DatabaseURL, ReplicaURL         string
	NodeURL                         string
	Shards                          int
	DataDir                         string
	SigningKey, TrustedKeys         string
	Plans                           string
	LogFormat                       string
	LogLevel                        slog.Level
	TrustedProxies, WebhookDeny     []netip.Prefix
	Resolver                        string
	RelationshipES, RelationshipEN  string
	OperatorName, SecurityContact   string
	InsecureHTTP, WebhookInsecure   bool
	PublicPerMinute, PagesPerMinute int
	SMTPURL, MailFrom               string
	SignUp                          SignUp
	SecretKey                       string
	TLSCert, TLSKey                 string
	BlobURL                         string
	Worm                            string
	NATSURL, NATSCredentials        string
	OAuthIssuer                     string
	OAuthClientID                   string
	OAuthClientSecret               string
	DrainDelay, ClockTolerance      time.Duration
	Transparency                    bool
	TransparencyKey, Witnesses      string
	TimestampAuthorities            string
	TimestampInterval               time.Duration
	WitnessListen, WitnessLogs      string
	WitnessName, WitnessKey         string
	WitnessURL                      string
	WitnessPerMinute                int

	ShardsGiven, MetricsGiven bool // set explicitly, not by default
	// The files that hold the keys. They are empty if a variable holds the key, or if there is no key.
	signingKeyFile, transparencyKeyFile, witnessKeyFile string
	// By setting: the variable that its value came from, and the file that the variable names.
	variables, files map[string]string
	agents           *sshagent.Agents
}

// SignUp controls how people become members without an operator.
type SignUp struct {
	Invited bool // by invitation of an organization
	Open    bool // anyone with a mail address, as the owner of a new organization
}

// SecretSource returns the location of the keys that encrypt webhook secrets. They are not in the trusted-keys file.
func (c *Config) SecretSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.SecretKeyFile, Variable: Prefix + "SECRET_KEY", Text: c.SecretKey,
		File: c.files["SECRET_KEY"],
	}
}

// DefaultBaseURL derives the public address from the listening address, unless one is configured. It rejects http
// addresses other than loopback, because API keys would travel unencrypted.
func (c *Config) DefaultBaseURL(listening net.Addr) error {
	if c.BaseURL == "" {
		address, err := netip.ParseAddrPort(listening.String())
		if err != nil || !address.Addr().IsLoopback() {
			return say.Errorf(
				"%sBASE_URL (--base-url) is required if the service listens on more than loopback: set it to the public https "+
					"address",
				Prefix,
			)
		}
		if c.BaseURL = "http://" + listening.String(); c.Encrypted() {
			c.BaseURL = "https://" + listening.String()
		}
	}
	if strings.HasPrefix(c.BaseURL, "http://") && !IsLoopbackURL(c.BaseURL) && !c.InsecureHTTP {
		return say.Errorf(
			"%sBASE_URL (--base-url) is http and not loopback: use https, or set %sINSECURE_HTTP=true if you accept that "+
				"keys travel unencrypted",
			Prefix, Prefix,
		)
	}
	return nil
}

// IsLoopbackURL reports whether the host is a loopback address or localhost.
func IsLoopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && domain.IsLoopbackHost(u.Hostname())
}

// PlanTable returns the plan table in INTEGRITY_PLANS, or the built-in one.
func (c *Config) PlanTable() (domain.Plans, error) {
	if c.Plans == "" {
		return domain.DefaultPlans()
	}
	text, err := keyfiles.ReadFile(c.Plans)
	if err != nil {
		return nil, say.Errorf("%sPLANS: %w", Prefix, err)
	}
	plans, err := domain.ParsePlans(text)
	if err != nil {
		return nil, say.Errorf("%sPLANS: %s: %w", Prefix, c.Plans, err)
	}
	return plans, nil
}

// SigningSource returns the location of the signing key.
func (c *Config) SigningSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.SigningKeyFile, Variable: Prefix + "SIGNING_KEY", Text: c.SigningKey,
		File: c.signingKeyFile, Trusted: c.TrustedKeysPath(), Agents: c.agents,
	}
}

// LogSource returns the location of the log key.
func (c *Config) LogSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.LogKeyFile, Variable: Prefix + "TRANSPARENCY_KEY", Text: c.TransparencyKey,
		File: c.transparencyKeyFile, Trusted: c.TrustedKeysPath(), Agents: c.agents,
	}
}

// WitnessSource returns the location of the key that cosigns other logs. This key is not in the trusted-keys file.
func (c *Config) WitnessSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.WitnessKeyFile, Variable: Prefix + "WITNESS_KEY", Text: c.WitnessKey,
		File: c.witnessKeyFile, Agents: c.agents,
	}
}

// SecretFiles lists the files that only the service may read: private keys, with staged and former ones beside them,
// and passwords that variables name.
func (c *Config) SecretFiles() []string {
	files := append(slices.Collect(maps.Values(c.files)), c.TLSKey, c.NATSCredentials)
	for _, source := range []keyfiles.Source{c.SigningSource(), c.LogSource(), c.WitnessSource(), c.SecretSource()} {
		path := source.Path()
		beside, _ := filepath.Glob(strings.TrimSuffix(path, ".pem") + ".*.pem") // none in a directory that is a pattern
		files = append(append(files, path), beside...)
	}
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(path string) bool { return path == "" })
}

// TrustedKeysPath returns the configured trusted-keys file, or the one in the data directory.
func (c *Config) TrustedKeysPath() string {
	return cmp.Or(c.TrustedKeys, c.InDataDir(keyfiles.TrustedKeysFile))
}

// InDataDir returns the path of a file in the data directory.
func (c *Config) InDataDir(name string) string { return filepath.Join(c.DataDir, name) }

// BlobStore returns the URL of the configured content store, by default a directory in the data directory.
func (c *Config) BlobStore() (string, error) {
	if c.BlobURL != "" {
		return c.BlobURL, nil
	}
	return blobs.DirectoryURL(c.InDataDir("blobs"))
}

// SpoolDir returns the directory for uploads in progress. It is in the data directory, if there is one, because the
// system's temporary directory may be in memory.
func (c *Config) SpoolDir() (string, error) {
	if c.DatabaseURL != "" {
		return "", nil
	}
	dir := c.InDataDir("spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", say.Errorf("directory of uploads: %w", err)
	}
	return dir, nil
}

// Egress returns the policy for webhook destinations.
func (c *Config) Egress() webhooks.EgressPolicy {
	return webhooks.EgressPolicy{Deny: c.WebhookDeny, Insecure: c.WebhookInsecure}
}

// LoadCertificate loads the TLS certificate and its private key.
func (c *Config) LoadCertificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, say.Errorf("%sTLS_CERT, %sTLS_KEY: %w", Prefix, Prefix, err)
	}
	return &pair, nil
}

// Encrypted reports whether the service itself serves https.
func (c *Config) Encrypted() bool { return c.TLSCert != "" }

// WitnessesFile and WitnessLogsFile are the files in the data directory that are read if the setting is empty. The
// command witness pair writes them.
const (
	WitnessesFile   = "witnesses"
	WitnessLogsFile = "witnessed"
)

// WitnessList returns the witnesses in INTEGRITY_WITNESSES, which is either a list or names a file.
func (c *Config) WitnessList() ([]*transparency.Witness, error) {
	return listed("WITNESSES", c.orFile(c.Witnesses, WitnessesFile), "+", transparency.ParseWitnesses)
}

// orFile returns a setting or, if it is empty, the path of a file in the data directory if that exists.
func (c *Config) orFile(setting, name string) string {
	if path := c.InDataDir(name); setting == "" && c.DataDir != "" && keyfiles.Exists(path) {
		return path
	}
	return setting
}

// TimestampAuthorityList returns the timestamp authorities in INTEGRITY_TIMESTAMP_AUTHORITIES, which is either a list
// or names a file.
func (c *Config) TimestampAuthorityList() ([]*transparency.TimestampAuthority, error) {
	return listed("TIMESTAMP_AUTHORITIES", c.TimestampAuthorities, "://", transparency.ParseTimestampAuthorities)
}

// LogList returns the logs in INTEGRITY_WITNESS_LOGS, which is either a list or names a file.
func (c *Config) LogList() (witness.Logs, error) {
	return listed("WITNESS_LOGS", c.orFile(c.WitnessLogs, WitnessLogsFile), "+", witness.ParseLogs)
}

// listed parses a setting that is a list or names a file with one. A text that contains mark is a list: every element
// contains it, as every verifier key contains a plus sign. Errors name the file, which no setting may name.
func listed[T any](setting, text, mark string, parse func(string) (T, error)) (list T, err error) {
	from := Prefix + setting
	if text != "" && !strings.Contains(text, mark) {
		path := text
		read, err := keyfiles.ReadFile(path)
		if err != nil {
			return list, say.Errorf("%s: %w", from, err)
		}
		from, text = path, string(read)
	}
	if list, err = parse(text); err != nil {
		return list, say.Errorf("%s: %w", from, err)
	}
	return list, nil
}

// AddFlags adds the flags of the named settings, or of all the service's settings, and lists the secret variables in
// the command's help.
func AddFlags(c *cobra.Command, names ...string) {
	var secrets []Setting
	for _, s := range Settings() {
		if len(names) == 0 && s.Witness || len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.Secret {
			secrets = append(secrets, s)
			continue
		}
		flags := c.Flags()
		flags.String(s.Flag(), s.Default, s.Help+" ("+s.Variable()+")")
		if s.Expects == trueOrFalse {
			flags.Lookup(s.Flag()).NoOptDefVal = "true"
		}
		if s.Former != "" {
			flags.String(flagOf(s.Former), "", "former name of --"+s.Flag())
			flags.Lookup(flagOf(s.Former)).Hidden = true
		}
	}
	if secrets != nil {
		cli.AppendLong(c, func(in say.Catalogue) string {
			text := "\n\n" + say.In(in, say.Sentencef(
				"Secrets are read from the environment, or from the file that the variable with _FILE at its end names:",
			))
			for _, s := range secrets {
				text += fmt.Sprintf("\n  %-29s %s", s.Variable(), in.Text(s.Help))
			}
			return text
		})
	}
}

// Load reads the environment and the command's flags, which override it. It reports all errors at once.
func Load(a *cli.App, c *cobra.Command) (Config, error) {
	vars := map[string]string{}
	for _, entry := range a.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, Prefix) {
			vars[name] = value
		}
	}
	var cfg Config
	var faults []error
	given, files := map[string]bool{}, map[string]string{}
	cfg.variables, cfg.files, cfg.agents = map[string]string{}, files, &sshagent.Agents{}
	all := cfg.settings()
	for _, s := range all {
		name, value, file, err := s.read(vars, c)
		given[s.Name], files[s.Name] = value != "" || err != nil, file
		if cfg.variables[s.Name] = Prefix + cmp.Or(name, s.Name); file != "" {
			cfg.variables[s.Name] += "_FILE"
		}
		if value = cmp.Or(value, s.Default); err == nil && value != "" && s.set(value) != nil {
			err = s.wrong(name)
		}
		faults = append(faults, err)
	}
	for _, s := range all {
		if given[s.Name] && s.Needs != "" && !given[s.Needs] {
			faults = append(faults, say.Errorf("%s must be set together with %s%s", s.Variable(), Prefix, s.Needs))
		}
	}
	if cfg.SignUp.Open && !given["SMTP_URL"] {
		faults = append(faults, say.Errorf("%sSIGNUP=open needs %sSMTP_URL: addresses are confirmed by mail", Prefix, Prefix))
	}
	cfg.ShardsGiven, cfg.MetricsGiven = given["SHARDS"], given["METRICS_LISTEN"]
	cfg.signingKeyFile, cfg.transparencyKeyFile, cfg.witnessKeyFile = files["SIGNING_KEY"], files["TRANSPARENCY_KEY"],
		files["WITNESS_KEY"]
	return cfg, errors.Join(faults...)
}

// read returns a setting's value, the name of the flag or variable that it came from, and the file if the variable
// names one. The value is empty if none was given. It is an error to use both names of a setting, because the intended
// one is unknown.
func (s Setting) read(vars map[string]string, c *cobra.Command) (name, value, file string, err error) {
	var variables, flags []string // that were given
	for _, known := range []string{s.Name, s.Former} {
		if known == "" {
			continue
		}
		if text := vars[Prefix+known]; text != "" {
			variables, name, value = append(variables, Prefix+known), known, text
		}
		if path := vars[Prefix+known+"_FILE"]; path != "" && s.Secret {
			variables, name, file = append(variables, Prefix+known+"_FILE"), known, path
		}
	}
	for _, known := range []string{s.Name, s.Former} {
		if f := c.Flags().Lookup(flagOf(known)); f != nil && f.Changed && !s.Secret {
			flags, name, value = append(flags, "--"+f.Name), known, f.Value.String()
		}
	}
	for _, several := range [][]string{variables, flags} {
		if len(several) > 1 {
			return name, "", "", say.Errorf("%s and %s are both set: only one may be", several[0], several[1])
		}
	}
	if file == "" {
		return name, value, "", nil
	}
	value, err = s.readFile(variables[0], file)
	return name, value, file, err
}

// readFile reads the value from the file that the variable names.
func (s Setting) readFile(variable, file string) (value string, err error) {
	text, err := keyfiles.ReadFile(file)
	if err != nil {
		return "", say.Errorf("%s: %w", variable, err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		err = say.Errorf("%s: the file %s is empty; it must hold %s", variable, file, s.Expects)
	}
	return value, err
}

// GivenBy returns the variable that a setting was read from, for use in errors.
func (c *Config) GivenBy(setting string) string { return cmp.Or(c.variables[setting], Prefix+setting) }

// Database returns the current value of INTEGRITY_DATABASE_URL; see follow.
func (c *Config) Database(warn func(error)) connect.Source {
	return c.follow("DATABASE_URL", func(c *Config) string { return c.DatabaseURL }, warn)
}

// Replica returns the current value of INTEGRITY_REPLICA_URL; see follow.
func (c *Config) Replica(warn func(error)) connect.Source {
	return c.follow("REPLICA_URL", func(c *Config) string { return c.ReplicaURL }, warn)
}

// NodeTemplate returns the current value of INTEGRITY_NODE_URL; see follow.
func (c *Config) NodeTemplate(warn func(error)) connect.Source {
	return c.follow("NODE_URL", func(c *Config) string { return c.NodeURL }, warn)
}

// follow reads a setting's file again at each call, because the password in it may be rotated. If the file is
// unreadable or half written, the previous value stays in use and warn gets the error.
func (c *Config) follow(setting string, field func(*Config) string, warn func(error)) connect.Source {
	last, file, variable := field(c), c.files[setting], c.GivenBy(setting)
	if file == "" {
		return connect.Fixed(last)
	}
	var mu sync.Mutex
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		var fresh Config
		for _, s := range fresh.settings() {
			if s.Name != setting {
				continue
			}
			value, err := s.readFile(variable, file)
			if err == nil && s.set(value) != nil {
				err = say.Errorf("%s must be %s", variable, s.Expects)
			}
			if err != nil {
				warn(err)
				return last
			}
			last = field(&fresh)
		}
		return last
	}
}

// wrong returns an error that names the variable as the user wrote it, and says which values are valid. It never quotes
// the value.
func (s Setting) wrong(name string) error {
	if s.Secret {
		return say.Errorf("%s%s must be %s", Prefix, name, s.Expects)
	}
	return say.Errorf("%s%s (--%s) must be %s", Prefix, name, flagOf(name), s.Expects)
}

// UnknownVariables lists variables with our prefix that are unknown: misspelt, or from a later version. They are
// reported and not rejected, because Kubernetes sets such variables for a service called integrity.
func UnknownVariables(a *cli.App) []string {
	// The developer pages have their readers set these. They are not misspelt server variables.
	known := []string{VariableAPIKey, Prefix + "COMPANY", Prefix + "WEBHOOK_SECRET"}
	for _, s := range Settings() {
		for _, name := range []string{s.Name, s.Former} {
			known = append(known, Prefix+name)
			if s.Secret {
				known = append(known, Prefix+name+"_FILE")
			}
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
