// Package config defines the settings of the service. settings.go declares each setting once, with its name, default,
// check and help. A command-line flag is only another way to set the setting's variable.
package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	"integrityledger/domain"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/projections/queue/webhooks"
)

// Prefix is what the names of all variables begin with.
const Prefix = "INTEGRITY_"

// Variables of the commands that use the API.
const (
	VariableAPIKey  = Prefix + "API_KEY"
	VariableBaseURL = Prefix + "BASE_URL"
)

// MetricsOff as METRICS_LISTEN turns the listener off.
const MetricsOff = "off"

// Config is what the environment and the flags say.
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
	RelationshipES, RelationshipEN  string
	SecurityContact                 string
	InsecureHTTP, WebhookInsecure   bool
	PublicPerMinute, PagesPerMinute int
	SMTPURL, MailFrom               string
	SignUp                          SignUp
	SecretKey                       string
	TLSCert, TLSKey                 string
	BlobURL                         string
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
	WitnessPerMinute                int

	ShardsGiven, MetricsGiven bool // not only the default
	// Files that the keys were read from; empty where a variable held the key itself, or nothing did.
	signingKeyFile, transparencyKeyFile, witnessKeyFile string
	// The variable that each setting was read from, and the file that the variable names, by setting.
	variables, files map[string]string
}

// SignUp says who becomes a member by themselves.
type SignUp struct {
	Invited bool // whoever is invited
	Anybody bool // whoever can read the mail of an address, as owner of an organization of their own
}

// SecretKeyPath is the file that the key of webhook secrets is read from; empty where a variable holds the key itself.
func (c *Config) SecretKeyPath() string {
	if c.SecretKey != "" {
		return ""
	}
	return c.InDataDir(keyfiles.SecretKeyFile)
}

// DefaultBaseURL fixes the public address once the listening one is known. It fails closed: keys would travel in the
// clear over an http address that is not this machine's own.
func (c *Config) DefaultBaseURL(listening net.Addr) error {
	if c.BaseURL == "" {
		address, err := netip.ParseAddrPort(listening.String())
		if err != nil || !address.Addr().IsLoopback() {
			return fmt.Errorf(
				"%sBASE_URL (--base-url) is needed where the service listens on more than loopback: set it to the public https "+
					"address",
				Prefix,
			)
		}
		if c.BaseURL = "http://" + listening.String(); c.Encrypted() {
			c.BaseURL = "https://" + listening.String()
		}
	}
	if strings.HasPrefix(c.BaseURL, "http://") && !IsLoopbackURL(c.BaseURL) && !c.InsecureHTTP {
		return fmt.Errorf(
			"%sBASE_URL (--base-url) is http and not loopback: use https, or set %sINSECURE_HTTP=true if you accept that "+
				"keys travel in the clear",
			Prefix, Prefix,
		)
	}
	return nil
}

// IsLoopbackURL is true of addresses that cannot leave this machine, and of the name localhost.
func IsLoopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && domain.IsLoopbackHost(u.Hostname())
}

// PlanTable is the one that INTEGRITY_PLANS names, or the built-in one.
func (c *Config) PlanTable() (domain.Plans, error) {
	if c.Plans == "" {
		return domain.DefaultPlans()
	}
	text, err := keyfiles.ReadFile(c.Plans)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %w", Prefix, err)
	}
	plans, err := domain.ParsePlans(text)
	if err != nil {
		return nil, fmt.Errorf("%sPLANS: %s: %w", Prefix, c.Plans, err)
	}
	return plans, nil
}

// SigningSource says where the signing key is.
func (c *Config) SigningSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.SigningKeyFile, Variable: Prefix + "SIGNING_KEY", Text: c.SigningKey,
		File: c.signingKeyFile, Trusted: c.TrustedKeysPath(),
	}
}

// LogSource says where the key of the transparency log is.
func (c *Config) LogSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.LogKeyFile, Variable: Prefix + "TRANSPARENCY_KEY", Text: c.TransparencyKey,
		File: c.transparencyKeyFile, Trusted: c.TrustedKeysPath(),
	}
}

// WitnessSource says where the key is with which this installation cosigns other logs. No trusted-keys file of its own
// names that key.
func (c *Config) WitnessSource() keyfiles.Source {
	return keyfiles.Source{
		DataDir: c.DataDir, Name: keyfiles.WitnessKeyFile, Variable: Prefix + "WITNESS_KEY", Text: c.WitnessKey,
		File: c.witnessKeyFile,
	}
}

// TrustedKeysPath is the file that is given, or that of the data directory.
func (c *Config) TrustedKeysPath() string {
	return cmp.Or(c.TrustedKeys, c.InDataDir(keyfiles.TrustedKeysFile))
}

// InDataDir is the path of a file in the data directory.
func (c *Config) InDataDir(name string) string { return filepath.Join(c.DataDir, name) }

// BlobStore is the configured store, or a directory in the data directory.
func (c *Config) BlobStore() (string, error) {
	if c.BlobURL != "" {
		return c.BlobURL, nil
	}
	return blobs.DirectoryURL(c.InDataDir("blobs"))
}

// SpoolDir is where uploads lie while they are looked at: in the data directory, where there is one, because the
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

// Egress is what webhooks may be sent to.
func (c *Config) Egress() webhooks.EgressPolicy {
	return webhooks.EgressPolicy{Deny: c.WebhookDeny, Insecure: c.WebhookInsecure}
}

// LoadCertificate reads what the service shows of itself.
func (c *Config) LoadCertificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("%sTLS_CERT, %sTLS_KEY: %w", Prefix, Prefix, err)
	}
	return &pair, nil
}

// Encrypted reports whether the service itself speaks https.
func (c *Config) Encrypted() bool { return c.TLSCert != "" }

// WitnessList are the witnesses of a file, where the text is not itself a list.
func (c *Config) WitnessList() ([]*transparency.Witness, error) {
	return listed("WITNESSES", c.Witnesses, "+", transparency.ParseWitnesses)
}

// TimestampAuthorityList are the authorities of a file, where the text is not itself a list.
func (c *Config) TimestampAuthorityList() ([]*transparency.TimestampAuthority, error) {
	return listed("TIMESTAMP_AUTHORITIES", c.TimestampAuthorities, "://", transparency.ParseTimestampAuthorities)
}

// LogList are the logs that this installation cosigns, of a file where the text is not itself a list.
func (c *Config) LogList() (witness.Logs, error) {
	return listed("WITNESS_LOGS", c.WitnessLogs, "+", witness.ParseLogs)
}

// listed reads a list, whose elements have a mark, as a verifier key has a plus sign; a text without it names the file
// of one.
func listed[T any](setting, text, mark string, parse func(string) (T, error)) (list T, err error) {
	if text != "" && !strings.Contains(text, mark) {
		var read []byte
		if read, err = keyfiles.ReadFile(text); err != nil {
			return list, fmt.Errorf("%s%s: %w", Prefix, setting, err)
		}
		text = string(read)
	}
	if list, err = parse(text); err != nil {
		return list, fmt.Errorf("%s%s: %w", Prefix, setting, err)
	}
	return list, nil
}

// AddFlags gives a command the flags of the named settings, or of all that the service has, and lists the secret
// variables in its help.
func AddFlags(c *cobra.Command, names ...string) {
	var secrets []string
	for _, s := range Settings() {
		if len(names) == 0 && s.Witness || len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if s.Secret {
			secrets = append(secrets, fmt.Sprintf("  %-29s %s", s.Variable(), s.Help))
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
		c.Long += "\n\nSecrets are read from the environment, or from the file that the variable with _FILE at its end " +
			"names:\n" + strings.Join(secrets, "\n")
	}
}

// Load reads the environment with the command's flags laid over it, and reports every fault at once.
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
	cfg.variables, cfg.files = map[string]string{}, files
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
			faults = append(faults, fmt.Errorf("%s must be set together with %s%s", s.Variable(), Prefix, s.Needs))
		}
	}
	if cfg.SignUp.Anybody && !given["SMTP_URL"] {
		faults = append(faults, fmt.Errorf("%sSIGNUP=open needs %sSMTP_URL: addresses are confirmed by mail", Prefix, Prefix))
	}
	cfg.ShardsGiven, cfg.MetricsGiven = given["SHARDS"], given["METRICS_LISTEN"]
	cfg.signingKeyFile, cfg.transparencyKeyFile, cfg.witnessKeyFile = files["SIGNING_KEY"], files["TRANSPARENCY_KEY"],
		files["WITNESS_KEY"]
	return cfg, errors.Join(faults...)
}

// read is what the flag, the variable or the variable's file says, under which name, and in which file; the value is
// empty where none is given. Two names of one setting in one place are refused, for nobody can know which was meant.
func (s Setting) read(vars map[string]string, c *cobra.Command) (name, value, file string, err error) {
	var variables, flags []string // that are given
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
			return name, "", "", fmt.Errorf("%s are both set: only one may be", strings.Join(several, " and "))
		}
	}
	if file == "" {
		return name, value, "", nil
	}
	value, err = s.readFile(variables[0], file)
	return name, value, file, err
}

// readFile is what the file says that a variable names.
func (s Setting) readFile(variable, file string) (value string, err error) {
	text, err := keyfiles.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		err = fmt.Errorf("%s: the file %s is empty; it must hold %s", variable, file, s.Expects)
	}
	return value, err
}

// GivenBy is the variable that a setting was read from, for errors.
func (c *Config) GivenBy(setting string) string { return cmp.Or(c.variables[setting], Prefix+setting) }

// Database is INTEGRITY_DATABASE_URL as it stands at the moment; see follow.
func (c *Config) Database(warn func(error)) connect.Source {
	return c.follow("DATABASE_URL", func(c *Config) string { return c.DatabaseURL }, warn)
}

// Replica is INTEGRITY_REPLICA_URL as it stands at the moment; see follow.
func (c *Config) Replica(warn func(error)) connect.Source {
	return c.follow("REPLICA_URL", func(c *Config) string { return c.ReplicaURL }, warn)
}

// NodeTemplate is INTEGRITY_NODE_URL as it stands at the moment; see follow.
func (c *Config) NodeTemplate(warn func(error)) connect.Source {
	return c.follow("NODE_URL", func(c *Config) string { return c.NodeURL }, warn)
}

// follow reads a setting's file again at each call, because a password in it may be rotated. A file that cannot be
// read, or is half written at the moment, leaves the value that was read before in use, and warn gets the reason.
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
				err = fmt.Errorf("%s must be %s", variable, s.Expects)
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

// wrong says which variable it is, by the name that was given, and what is right. The value is not quoted.
func (s Setting) wrong(name string) error {
	if s.Secret {
		return fmt.Errorf("%s%s must be %s", Prefix, name, s.Expects)
	}
	return fmt.Errorf("%s%s (--%s) must be %s", Prefix, name, flagOf(name), s.Expects)
}

// UnknownVariables lists variables that look like ours and have no effect: misspelt ones, or some of a later version.
// They are reported and not refused, because a Kubernetes service of our name makes such variables too.
func UnknownVariables(a *cli.App) []string {
	// What the pages for developers have their readers set, and no misspelling of one of the server's.
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
