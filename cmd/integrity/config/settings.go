package config

import (
	"cmp"
	"log/slog"
	"math"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/mail"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

// Setting is one variable and, unless it is secret, the flag of the same name.
type Setting struct {
	Name, Default, Help string
	// Former is the setting's name in the previous release. It is still accepted, but shown nowhere.
	Former string
	// Secret settings have no flag, because process lists show flags. They can be read from a file: NAME_FILE.
	Secret bool
	Needs  string // another setting that this one requires
	// Witness marks settings of integrity witness. The service ignores them.
	Witness bool
	value
}

// value parses and stores a setting's text.
type value struct {
	Expects string                  // describes the valid values
	set     func(text string) error // its error says only that the text is invalid; Expects says which values are valid
}

// Variable returns the setting's name in the environment.
func (s Setting) Variable() string { return Prefix + s.Name }

// Flag returns the setting's name on the command line.
func (s Setting) Flag() string { return flagOf(s.Name) }

func flagOf(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// Settings returns all settings.
func Settings() []Setting { return new(Config).settings() }

// A state as of a time is signed once that time is a minute past. Half of the minute allows for groups being committed,
// half for two processes whose clocks differ by the tolerance in opposite directions.
const (
	minClockTolerance = time.Second
	maxClockTolerance = 15 * time.Second
)

// MaxDrainDelay leaves most of the shutdown timeout to requests in progress.
const MaxDrainDelay = 15 * time.Second

// settings returns the settings, bound to the fields of c.
func (c *Config) settings() []Setting {
	return []Setting{
		{Name: "LISTEN", Default: "127.0.0.1:8080", value: checked(&c.Listen, "host:port", hostPort),
			Help: "address to listen on"},
		{Name: "BASE_URL", value: parsed(&c.BaseURL, "an http or https URL without path, query or user", parseOrigin),
			Help: "public address of the service, used in every link (default: the listening address, if that " +
				"is loopback)"},
		{Name: "ISSUER", value: checked(&c.Issuer, "1 to 512 characters without control characters", issuer),
			Help: "name that signs the records; fixed when the ledger is created (default: the base URL)"},
		{Name: "DATABASE_URL", Secret: true,
			value: parsed(
				&c.DatabaseURL,
				"a PostgreSQL URL (postgres://…), with target_session_attrs read-write or primary, if any",
				writableURL,
			),
			Help: "PostgreSQL to use, with several servers separated by commas; by default the service runs its own in the " +
				"data directory"},
		{Name: "REPLICA_URL", Secret: true, Needs: "DATABASE_URL",
			value: checked(&c.ReplicaURL, "a PostgreSQL URL (postgres://…), together with INTEGRITY_DATABASE_URL", postgresURL),
			Help:  "hot standby of that PostgreSQL; it answers the feed, lists and look-ups if it is recent enough"},
		{Name: "NODE_URL", Secret: true, Needs: "DATABASE_URL",
			value: checked(
				&c.NodeURL, "a PostgreSQL URL (postgres://…) with {host} and {port}, together with INTEGRITY_DATABASE_URL",
				nodeURL,
			),
			Help: "URL for the nodes of a Citus cluster (default: the database URL with their host and port)"},
		{Name: "SHARDS", Default: "1", value: between(&c.Shards, "a whole number from 1 to 65535", strconv.Atoi, 1, 65535),
			Help: "number of ordered logs; set when the ledger is created, and can be raised later"},
		{Name: "DATA_DIR", Default: "./data", value: text(&c.DataDir, "a directory"),
			Help: "directory of the embedded PostgreSQL and of the key files"},
		{Name: "SIGNING_KEY", Secret: true,
			value: text(
				&c.SigningKey,
				"an Ed25519 private key, PKCS#8 in PEM, or agent:///SOCKET?key=SHA256:… for one that an ssh-agent keeps",
			),
			Help: "signing key (default: signing-key.pem in the data directory)"},
		{Name: "TRUSTED_KEYS", value: text(&c.TrustedKeys, "the path of a trusted-keys file"),
			Help: "trusted-keys file (default: trusted-keys.json in the data directory)"},
		{Name: "PLANS", value: text(&c.Plans, "the path of a plan table in JSON"),
			Help: "file that replaces the built-in table of plans"},
		{Name: "LOG_FORMAT", Default: "text",
			value: parsed(&c.LogFormat, "json or text", oneOf(map[string]string{"json": "json", "text": "text"})),
			Help:  "format of the log, json or text"},
		{Name: "LOG_LEVEL", Default: "info", value: parsed(&c.LogLevel, "debug, info, warn or error", logLevel),
			Help: "lowest level to log: debug, info, warn or error"},
		{Name: "TRUSTED_PROXIES", value: parsed(&c.TrustedProxies, "addresses or networks, separated by commas", networks),
			Help: "proxies whose X-Forwarded-For is trusted: addresses or networks, separated by commas"},
		{Name: "OPERATOR_NAME",
			value: checked(&c.OperatorName, "1 to 200 characters on one line", func(text string) error {
				if !domain.ValidName(text, maxOperatorName) {
					return say.Errorf("no name")
				}
				return nil
			}),
			Help: "name of the person or company that operates the service, shown on its pages; empty shows no name"},
		{Name: "RELATIONSHIP_ES", value: text(&c.RelationshipES, "a text"),
			Help: "operator's statement, in Spanish, on its relationship with an origin system"},
		{Name: "RELATIONSHIP_EN", value: text(&c.RelationshipEN, "a text"),
			Help: "the same in English"},
		{Name: "SECURITY_CONTACT",
			value: checked(&c.SecurityContact, "mailto:, https: or tel: URIs, separated by commas", contacts),
			Help:  "where to report vulnerabilities, for /.well-known/security.txt"},
		{Name: "INSECURE_HTTP", Default: "false", value: parsed(&c.InsecureHTTP, trueOrFalse, strconv.ParseBool),
			Help: "allow a base URL that is http and not loopback"},
		{Name: "PUBLIC_PER_MINUTE", Default: "60",
			value: between(&c.PublicPerMinute, "a whole number of at least 1", strconv.Atoi, 1, math.MaxInt32),
			Help:  "public comparisons per minute and client address, in each process"},
		{Name: "PUBLIC_PAGES_PER_MINUTE", Default: "600",
			value: between(&c.PagesPerMinute, "a whole number of at least 1", strconv.Atoi, 1, math.MaxInt32),
			Help:  "pages, public documents and downloads per minute and client address, in each process"},
		{Name: "SMTP_URL", Secret: true, Needs: "MAIL_FROM",
			value: checked(
				&c.SMTPURL, "smtp://, smtp+starttls:// or smtps://, with [user:password@]host[:port]", readBy(mail.ParseServer),
			),
			Help: "mail server for quota warnings and for links that sign people in; without it warnings are shown but not " +
				"mailed"},
		{Name: "SIGNUP", Default: "invite",
			value: parsed(
				&c.SignUp, "off, invite or open",
				oneOf(map[string]SignUp{"off": {}, "invite": {Invited: true}, "open": {Invited: true, Open: true}}),
			),
			Help: "who can become a member without an operator: invite, people whom an organization invites; open, also " +
				"anyone with a mail address, " +
				"as owner of a new organization on the free plan (needs INTEGRITY_SMTP_URL); off, no one"},
		{Name: "MAIL_FROM",
			value: checked(&c.MailFrom, "a mail address (needed with SMTP_URL)", readBy(netmail.ParseAddress)),
			Help:  "sender of the mails"},
		{Name: "SECRET_KEY", Secret: true,
			value: checked(
				&c.SecretKey, "32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints",
				readBy(domain.ParseSecretKeys),
			),
			Help: "key that encrypts webhook secrets (default: secret-key in the data directory); during a rotation several " +
				"keys, separated by spaces: the first encrypts, all decrypt"},
		{Name: "WEBHOOK_DENY", value: parsed(&c.WebhookDeny, "addresses or networks, separated by commas", networks),
			Help: "addresses or networks that webhooks are never sent to, in addition to those that are not globally reachable"},
		{Name: "WEBHOOK_ALLOW_INSECURE", Default: "false", value: parsed(&c.WebhookInsecure, trueOrFalse, strconv.ParseBool),
			Help: "for development: allow webhooks over http and to any address (demo: loopback)"},
		{Name: "RESOLVER", value: checked(&c.Resolver, "host:port", hostAndPort),
			Help: "DNS server that is asked about the domains of organizations, host:port (default: the system's)"},
		{Name: "TLS_CERT", Needs: "TLS_KEY",
			value: text(&c.TLSCert, "the path of a certificate chain in PEM, together with INTEGRITY_TLS_KEY"),
			Help:  "certificate chain, PEM; with it the service itself serves https, with HTTP/2"},
		{Name: "TLS_KEY", Needs: "TLS_CERT",
			value: text(&c.TLSKey, "the path of the certificate's private key in PEM, together with INTEGRITY_TLS_CERT"),
			Help:  "the certificate's private key, PEM"},
		{Name: "BLOB_URL", value: checked(&c.BlobURL, "file:///directory or s3://bucket", blobs.CheckURL),
			Help: "store for the content that organizations keep, file:///directory or s3://bucket (default: blobs in the " +
				"data directory)"},
		{Name: "WORM",
			value: checked(&c.Worm, "s3://bucket/prefix?object-lock=compliance&days=3650", blobs.CheckLockedURL),
			Help: "bucket with object lock that integrity export writes the transparency log's checkpoints to, " +
				"s3://bucket/prefix?object-lock=compliance&days=3650; integrity doctor says when the last was written"},
		{Name: "NATS_URL", Secret: true,
			value: checked(&c.NATSURL, "nats:// or tls://, with [user:password@]host[:port]", stream.CheckURL),
			Help:  "NATS server with JetStream that the events of all feeds are forwarded to"},
		{Name: "NATS_CREDENTIALS", Needs: "NATS_URL",
			value: text(&c.NATSCredentials, "the path of a credentials file of NATS, together with INTEGRITY_NATS_URL"),
			Help:  "credentials file (JWT and key) for INTEGRITY_NATS_URL"},
		{Name: "DRAIN_DELAY", Default: "0s",
			value: between(&c.DrainDelay, "a duration from 0s to 15s", time.ParseDuration, 0, MaxDrainDelay),
			Help: "how long a stopping process keeps serving while /readyz answers 503: twice the interval of the " +
				"proxy's health check"},
		{Name: "CLOCK_TOLERANCE", Default: "10s",
			value: between(
				&c.ClockTolerance, "a duration from 1s to 15s", time.ParseDuration, minClockTolerance, maxClockTolerance,
			),
			Help: "how far the clocks of this machine, of the database and of the ledger's last event may differ; beyond " +
				"that nothing is committed"},
		{Name: "METRICS_LISTEN", Default: "127.0.0.1:18080",
			value: checked(&c.MetricsListen, "host:port, or off", metricsAddress),
			Help:  "address of metrics, the page /ops and profiles, for operators only; off: not served"},
		{Name: "OAUTH_ISSUER",
			value: checked(
				&c.OAuthIssuer, "the https address of an OpenID provider, exactly as in its tokens", oauthIssuer,
			),
			Help: "OpenID provider whose access tokens the standard MCP endpoint accepts in addition to API keys; by default " +
				"only API keys"},
		{Name: "OAUTH_CLIENT_ID", Needs: "OAUTH_ISSUER",
			value: text(&c.OAuthClientID, "the client id of this service at the provider, together with INTEGRITY_OAUTH_ISSUER"),
			Help: "this service's client id at the provider, with which people sign in to the console and link their " +
				"identity on a page; without it they can only link with the API"},
		{Name: "TRANSPARENCY", Former: "LOG", Default: "on",
			value: parsed(&c.Transparency, "on or off", oneOf(map[string]bool{"on": true, "off": false})),
			Help:  "on: keep and publish the transparency log, a tree of hashes over all events; off: none"},
		{Name: "TRANSPARENCY_KEY", Former: "LOG_KEY", Secret: true,
			value: text(
				&c.TransparencyKey,
				"an Ed25519 private key, PKCS#8 in PEM, or agent:///SOCKET?key=SHA256:…, that is not the signing key",
			),
			Help: "log key, which signs the transparency log's checkpoints (default: log-key.pem in the data directory)"},
		{Name: "WITNESSES",
			value: checked(
				&c.Witnesses,
				"the path of a file, or a list separated by commas, of witnesses: a verifier key, a space, an https address",
				witnesses,
			),
			Help: "witnesses that cosign the checkpoints of the transparency log (C2SP tlog-witness): a file with one per " +
				"line, or a list (default: the file witnesses in the data directory, if it exists)"},
		{Name: "TIMESTAMP_AUTHORITIES",
			value: checked(
				&c.TimestampAuthorities,
				"the path of a file, or a list separated by commas, of at most 4: a name, a space, an https address",
				timestampAuthorities,
			),
			Help: "authorities that stamp the checkpoints of the transparency log (RFC 3161): a file with one per line, or a " +
				"list"},
		{Name: "TIMESTAMP_INTERVAL", Default: "60s",
			value: between(&c.TimestampInterval, "a duration from 1s to 1h", time.ParseDuration, time.Second, time.Hour),
			Help:  "interval between an authority's tokens while the transparency log grows"},
		{Name: "WITNESS_LISTEN", Witness: true, Default: "127.0.0.1:8081",
			value: checked(&c.WitnessListen, "host:port", hostPort),
			Help:  "address that integrity witness listens on"},
		{Name: "WITNESS_NAME",
			value: checked(
				&c.WitnessName,
				"1 to 512 printable ASCII characters without space, plus sign and comma, the first not #, such as "+
					"ledger.example/witness",
				evidence.CheckListedName,
			),
			Help: "name of this installation as a witness of other logs, usually an address without the scheme; it is " +
				"part of the verifier key"},
		{Name: "WITNESS_URL", Needs: "WITNESS_NAME",
			value: checked(
				&c.WitnessURL, "an https address without user, query, fragment and comma, or http on this machine",
				transparency.CheckAddress,
			),
			Help: "public address of integrity witness, at which other logs submit their checkpoints; the service " +
				"publishes it with the witness's key"},
		{Name: "WITNESS_KEY", Secret: true,
			value: text(
				&c.WitnessKey, "an Ed25519 private key, PKCS#8 in PEM, or agent:///SOCKET?key=SHA256:…, that signs nothing else",
			),
			Help: "key with which integrity witness cosigns (default: witness-key.pem in the data directory)"},
		{Name: "WITNESS_LOGS", Witness: true,
			value: checked(
				&c.WitnessLogs,
				"the path of a file, or a list separated by commas, of logs: a verifier key and, if it differs from the "+
					"key's name, a space and the origin",
				witnessLogs,
			),
			Help: "logs whose checkpoints integrity witness cosigns: a file with one key per line, or a list (default: the " +
				"file witnessed in the data directory, if it exists)"},
		{Name: "WITNESS_PER_MINUTE", Witness: true, Default: "240",
			value: between(&c.WitnessPerMinute, "a whole number of at least 1", strconv.Atoi, 1, math.MaxInt32),
			Help: "submissions per minute and client address, and larger trees per minute and log, in each process of " +
				"integrity witness"},
		{Name: "OAUTH_CLIENT_SECRET", Secret: true, Needs: "OAUTH_CLIENT_ID",
			value: text(&c.OAuthClientSecret, "the secret of INTEGRITY_OAUTH_CLIENT_ID"),
			Help:  "secret of that client id; without it a public client"},
	}
}

// trueOrFalse marks a flag that means true without a value.
const trueOrFalse = "true or false"

var errUnexpected = say.Errorf("not what the setting expects")

func parsed[T any](to *T, expects string, parse func(string) (T, error)) value {
	return value{expects, func(text string) (err error) {
		*to, err = parse(text)
		return err
	}}
}

// maxOperatorName is the largest number of characters of the operator's name.
const maxOperatorName = 200

// contacts checks contacts as defined in RFC 9116, section 2.5.3.
func contacts(text string) error {
	for contact := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(contact))
		if err != nil || u.Scheme == "https" && u.Host == "" ||
			u.Scheme != "https" && (u.Scheme != "mailto" && u.Scheme != "tel" || u.Opaque == "") {
			return say.Errorf("no contact")
		}
	}
	return nil
}

// text accepts any text.
func text(to *string, expects string) value {
	return parsed(to, expects, func(text string) (string, error) { return text, nil })
}

// checked accepts a text that passes check, and stores it unchanged.
func checked(to *string, expects string, check func(string) error) value {
	return parsed(to, expects, func(text string) (string, error) { return text, check(text) })
}

// hostAndPort refuses text that is not host:port.
func hostAndPort(text string) error {
	host, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || host == "" || wrong != nil || n == 0 {
		return say.New("not a host and a port")
	}
	return nil
}

// readBy turns a parser into a check.
func readBy[T any](read func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := read(text)
		return err
	}
}

func between[T cmp.Ordered](to *T, expects string, parse func(string) (T, error), least, most T) value {
	return parsed(to, expects, func(text string) (T, error) {
		v, err := parse(text)
		if err == nil && (v < least || v > most) {
			err = errUnexpected
		}
		return v, err
	})
}

func oneOf[T any](of map[string]T) func(string) (T, error) {
	return func(text string) (T, error) {
		v, known := of[text]
		if !known {
			return v, errUnexpected
		}
		return v, nil
	}
}

func logLevel(text string) (level slog.Level, err error) {
	return level, level.UnmarshalText([]byte(text))
}

func hostPort(text string) error {
	_, _, err := net.SplitHostPort(text)
	return err
}

func metricsAddress(text string) error {
	if text == MetricsOff {
		return nil
	}
	return hostPort(text)
}

func issuer(text string) error {
	if len([]rune(text)) > 512 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errUnexpected
	}
	return nil
}

func witnesses(text string) error {
	_, err := (&Config{Witnesses: text}).WitnessList()
	return err
}

func timestampAuthorities(text string) error {
	_, err := (&Config{TimestampAuthorities: text}).TimestampAuthorityList()
	return err
}

func witnessLogs(text string) error {
	_, err := (&Config{WitnessLogs: text}).LogList()
	return err
}

// oauthIssuer checks an identity provider's address (OpenID Connect Discovery, section 3). Plain http is invalid,
// because anyone on the path could replace the provider's keys.
func oauthIssuer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !domain.IsLoopbackHost(u.Hostname())) ||
		u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return errUnexpected
	}
	return nil
}

// postgresURL checks for the two schemes that PostgreSQL's own programs accept.
func postgresURL(text string) error {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return errUnexpected
	}
	return nil
}

// nodeURL checks a URL with placeholders for a node's address.
func nodeURL(text string) error {
	if !strings.Contains(text, "{host}") || !strings.Contains(text, "{port}") {
		return errUnexpected
	}
	return postgresURL(text)
}

// writableURL adds target_session_attrs=read-write, so that each connection goes to the server that accepts writes.
func writableURL(text string) (string, error) {
	const attributes = "target_session_attrs"
	u, err := url.Parse(text)
	if err = cmp.Or(postgresURL(text), err); err != nil {
		return "", err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", err
	}
	switch query.Get(attributes) {
	case "read-write", "primary":
		return text, nil
	case "":
	default:
		return "", errUnexpected
	}
	query.Set(attributes, "read-write")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// parseOrigin parses scheme://host[:port], and removes a trailing slash.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errUnexpected
	}
	return u.Scheme + "://" + u.Host, nil
}

// networks parses networks separated by commas; a single address is a network of one address.
func networks(text string) (all []netip.Prefix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if address, notOne := netip.ParseAddr(part); notOne == nil {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, err
		}
		// IPv4-mapped IPv6 addresses are matched as IPv4.
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}
