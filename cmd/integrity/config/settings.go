package config

import (
	"errors"
	"log/slog"
	"math"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/cmd/integrity/blobs"
	"integrityledger/cmd/integrity/mail"
	"integrityledger/cmd/integrity/stream"
	"integrityledger/domain"
)

// Setting is one variable and, unless it is secret, the flag of the same name.
type Setting struct {
	Name, Default string
	// Former is the name of earlier releases. It is read for one release more, and shown nowhere.
	Former  string
	Expects string // what the value must be
	Help    string
	// Secret variables have no flag, for process lists show flags, but may be read from a file: NAME_FILE.
	Secret bool
	Needs  string // a setting without which this one means nothing

	set func(text string) error // says only that the text is not what Expects says
}

// Variable is the setting's name in the environment.
func (s Setting) Variable() string { return Prefix + s.Name }

// Flag is the setting's name on a command line.
func (s Setting) Flag() string { return flagOf(s.Name) }

func flagOf(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// Settings are all of them, for whoever lists or describes them.
func Settings() []Setting { return new(Config).settings() }

// A state as of a time is signed once the time is a minute past: half of that is for a group on its way, half for two
// processes of which one is ahead and one behind by the tolerance.
const (
	minClockTolerance = time.Second
	maxClockTolerance = 15 * time.Second
)

// MaxDrainDelay leaves the requests under way most of the time that a shutdown may take.
const MaxDrainDelay = 15 * time.Second

// settings are bound to the fields of c.
func (c *Config) settings() []Setting {
	return []Setting{
		{
			Name: "LISTEN", Default: "127.0.0.1:8080",
			Expects: "host:port",
			Help:    "address to listen on",
			set:     checked(&c.Listen, hostPort),
		},
		{
			Name:    "BASE_URL",
			Expects: "an http or https URL without path, query or user",
			Help:    "public address of the service, from which every link is made (default: the listening address, where that is loopback)",
			set:     checked(&c.BaseURL, parseOrigin),
		},
		{
			Name:    "ISSUER",
			Expects: "1 to 512 characters without controls",
			Help:    "name that signs the records; read when the ledger is made and fixed from then on (default: the base URL)",
			set:     checked(&c.Issuer, issuer),
		},
		{
			Name: "DATABASE_URL", Secret: true,
			Expects: "a PostgreSQL URL (postgres://…), whose target_session_attrs, where it has one, is read-write or primary",
			Help:    "PostgreSQL to use, several servers separated by commas; without it the service runs its own in the data directory",
			set:     checked(&c.DatabaseURL, writableURL),
		},
		{
			Name: "REPLICA_URL", Secret: true, Needs: "DATABASE_URL",
			Expects: "a PostgreSQL URL (postgres://…), together with INTEGRITY_DATABASE_URL",
			Help:    "hot standby of that PostgreSQL, which answers the feed, lists and look-ups where it is new enough",
			set:     checked(&c.ReplicaURL, postgresURL),
		},
		{
			Name: "SHARDS", Default: "4",
			Expects: "a whole number from 1 to 65535",
			Help:    "number of ordered logs; read when the ledger is made, and may be raised later",
			set:     number(&c.Shards, 65535),
		},
		{
			Name: "DATA_DIR", Default: "./data",
			Expects: "a directory",
			Help:    "directory of the embedded PostgreSQL and of the key files",
			set:     text(&c.DataDir),
		},
		{
			Name: "SIGNING_KEY", Secret: true,
			Expects: "an Ed25519 private key, PKCS#8 in PEM",
			Help:    "signing key (default: signing-key.pem in the data directory)",
			set:     text(&c.SigningKey),
		},
		{
			Name:    "TRUSTED_KEYS",
			Expects: "the path of a trusted-keys file",
			Help:    "trusted-keys file (default: trusted-keys.json in the data directory)",
			set:     text(&c.TrustedKeys),
		},
		{
			Name:    "PLANS",
			Expects: "the path of a plan table in JSON",
			Help:    "file that replaces the built-in table of plans",
			set:     text(&c.Plans),
		},
		{
			Name: "LOG_FORMAT", Default: "text",
			Expects: "json or text",
			Help:    "form of the log, json or text",
			set:     one(&c.LogFormat, "json", "text"),
		},
		{
			Name: "LOG_LEVEL", Default: "info",
			Expects: "debug, info, warn or error",
			Help:    "least level that is logged: debug, info, warn or error",
			set:     parsed(&c.LogLevel, logLevel),
		},
		{
			Name:    "TRUSTED_PROXIES",
			Expects: "addresses or networks, separated by commas",
			Help:    "proxies whose X-Forwarded-For is believed: addresses or networks, separated by commas",
			set:     parsed(&c.TrustedProxies, networks),
		},
		{
			Name:    "RELATIONSHIP_ES",
			Expects: "a text",
			Help:    "operator's words, in Spanish, on its relationship with an origin system",
			set:     text(&c.RelationshipES),
		},
		{
			Name:    "RELATIONSHIP_EN",
			Expects: "a text",
			Help:    "the same in English",
			set:     text(&c.RelationshipEN),
		},
		{
			Name: "INSECURE_HTTP", Default: "false",
			Expects: trueOrFalse,
			Help:    "allow a base URL that is http and not loopback",
			set:     parsed(&c.InsecureHTTP, strconv.ParseBool),
		},
		{
			Name: "PUBLIC_PER_MINUTE", Default: "60",
			Expects: "a whole number of at least 1",
			Help:    "public comparisons a minute and client address, in each process",
			set:     number(&c.PublicPerMinute, math.MaxInt32),
		},
		{
			Name: "PUBLIC_PAGES_PER_MINUTE", Default: "600",
			Expects: "a whole number of at least 1",
			Help:    "pages, public documents and downloads a minute and client address, in each process",
			set:     number(&c.PagesPerMinute, math.MaxInt32),
		},
		{
			Name: "SMTP_URL", Secret: true, Needs: "MAIL_FROM",
			Expects: "smtp://, smtp+starttls:// or smtps://, with [user:password@]host[:port]",
			Help:    "mail server for quota warnings; without it they are shown but not mailed",
			set:     checked(&c.SMTPURL, readBy(mail.ParseServer)),
		},
		{
			Name:    "MAIL_FROM",
			Expects: "a mail address (needed with SMTP_URL)",
			Help:    "sender of the mails",
			set:     checked(&c.MailFrom, readBy(netmail.ParseAddress)),
		},
		{
			Name: "SECRET_KEY", Secret: true,
			Expects: "32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints",
			Help:    "key that webhook secrets are encrypted with (default: secret-key in the data directory)",
			set:     checked(&c.SecretKey, readBy(domain.ParseSecretKey)),
		},
		{
			Name:    "WEBHOOK_DENY",
			Expects: "addresses or networks, separated by commas",
			Help:    "addresses or networks that webhooks are never sent to, besides those that are not globally reachable",
			set:     parsed(&c.WebhookDeny, networks),
		},
		{
			Name: "WEBHOOK_ALLOW_INSECURE", Default: "false",
			Expects: trueOrFalse,
			Help:    "for development: webhooks over http, and to every address",
			set:     parsed(&c.WebhookInsecure, strconv.ParseBool),
		},
		{
			Name: "TLS_CERT", Needs: "TLS_KEY",
			Expects: "the path of a certificate chain in PEM, together with INTEGRITY_TLS_KEY",
			Help:    "certificate chain, PEM: with it the service speaks https itself, with HTTP/2",
			set:     text(&c.TLSCert),
		},
		{
			Name: "TLS_KEY", Needs: "TLS_CERT",
			Expects: "the path of the certificate's private key in PEM, together with INTEGRITY_TLS_CERT",
			Help:    "the certificate's private key, PEM",
			set:     text(&c.TLSKey),
		},
		{
			Name:    "BLOB_URL",
			Expects: "file:///directory or s3://bucket",
			Help:    "store of the bytes that organizations have kept, file:///directory or s3://bucket (default: blobs in the data directory)",
			set:     checked(&c.BlobURL, unchanged(blobs.CheckURL)),
		},
		{
			Name: "NATS_URL", Secret: true,
			Expects: "nats:// or tls://, with [user:password@]host[:port]",
			Help:    "NATS server with JetStream that the events of all feeds are forwarded to",
			set:     checked(&c.NATSURL, unchanged(stream.CheckURL)),
		},
		{
			Name: "NATS_CREDENTIALS", Needs: "NATS_URL",
			Expects: "the path of a credentials file of NATS, together with INTEGRITY_NATS_URL",
			Help:    "credentials file (JWT and key) for INTEGRITY_NATS_URL",
			set:     text(&c.NATSCredentials),
		},
		{
			Name: "DRAIN_DELAY", Default: "0s",
			Expects: "a duration from 0s to 15s",
			Help:    "how long a process that stops goes on serving while /readyz answers 503: twice the interval of the proxy's health check",
			set:     span(&c.DrainDelay, 0, MaxDrainDelay),
		},
		{
			Name: "CLOCK_TOLERANCE", Default: "10s",
			Expects: "a duration from 1s to 15s",
			Help:    "how far apart the clocks of this machine, of the database and of the ledger's last event may be; beyond it nothing is committed",
			set:     span(&c.ClockTolerance, minClockTolerance, maxClockTolerance),
		},
		{
			Name: "METRICS_LISTEN", Default: "127.0.0.1:18080",
			Expects: "host:port, or off",
			Help:    "address of metrics, the page /ops and profiles, for operators alone; off: not served",
			set:     checked(&c.MetricsListen, metricsAddress),
		},
		{
			Name:    "OAUTH_ISSUER",
			Expects: "the https address of an OpenID provider, exactly as its tokens write it",
			Help:    "OpenID provider whose access tokens the ordinary MCP endpoint takes beside API keys; without it keys alone",
			set:     checked(&c.OAuthIssuer, oauthIssuer),
		},
		{
			Name: "OAUTH_CLIENT_ID", Needs: "OAUTH_ISSUER",
			Expects: "the client id of this service at the provider, together with INTEGRITY_OAUTH_ISSUER",
			Help:    "this service's registration at the provider, with which people link their identity on a page; without it by API alone",
			set:     text(&c.OAuthClientID),
		},
		{
			Name: "TRANSPARENCY", Former: "LOG", Default: "on",
			Expects: "on or off",
			Help:    "on: keep the transparency log, a public tree of hashes over all events; off: keep and publish none",
			set:     parsed(&c.Transparency, onOff),
		},
		{
			Name: "TRANSPARENCY_KEY", Former: "LOG_KEY", Secret: true,
			Expects: "an Ed25519 private key, PKCS#8 in PEM, that is not the signing key",
			Help:    "key that signs the checkpoints of the transparency log (default: log-key.pem in the data directory)",
			set:     text(&c.TransparencyKey),
		},
		{
			Name:    "WITNESSES",
			Expects: "the path of a file, or a list separated by commas, of witnesses: a verifier key, a space, an https address",
			Help:    "witnesses that cosign the checkpoints of the transparency log (C2SP tlog-witness): a file with one a line, or a list",
			set:     checked(&c.Witnesses, witnesses),
		},
		{
			Name: "OAUTH_CLIENT_SECRET", Secret: true, Needs: "OAUTH_CLIENT_ID",
			Expects: "the secret of INTEGRITY_OAUTH_CLIENT_ID",
			Help:    "secret of that registration; without it a public client",
			set:     text(&c.OAuthClientSecret),
		},
	}
}

// trueOrFalse marks a flag that means true without a value.
const trueOrFalse = "true or false"

var errUnexpected = errors.New("not what the setting expects")

func parsed[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*to, err = parse(text)
		return err
	}
}

// text takes every value.
func text(to *string) func(string) error {
	return func(text string) error { *to = text; return nil }
}

// checked takes a text as check writes it, and leaves an empty one.
func checked(to *string, check func(string) (string, error)) func(string) error {
	return parsed(to, func(text string) (string, error) {
		if text == "" {
			return "", nil
		}
		return check(text)
	})
}

// unchanged is a check that writes a text as it was.
func unchanged(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

// readBy is a check that another reader of the text makes.
func readBy[T any](read func(string) (T, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		_, err := read(text)
		return text, err
	}
}

func number(to *int, most int) func(string) error {
	return parsed(to, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err == nil && (n < 1 || n > most) {
			err = errUnexpected
		}
		return n, err
	})
}

func span(to *time.Duration, least, most time.Duration) func(string) error {
	return parsed(to, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && (d < least || d > most) {
			err = errUnexpected
		}
		return d, err
	})
}

func one(to *string, of ...string) func(string) error {
	return parsed(to, func(text string) (string, error) {
		if !slices.Contains(of, text) {
			return "", errUnexpected
		}
		return text, nil
	})
}

func onOff(text string) (bool, error) {
	if text != "on" && text != "off" {
		return false, errUnexpected
	}
	return text == "on", nil
}

func logLevel(text string) (level slog.Level, err error) {
	return level, level.UnmarshalText([]byte(text))
}

func hostPort(text string) (string, error) {
	_, _, err := net.SplitHostPort(text)
	return text, err
}

func metricsAddress(text string) (string, error) {
	if text == MetricsOff {
		return text, nil
	}
	return hostPort(text)
}

func issuer(text string) (string, error) {
	if len([]rune(text)) > 512 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", errUnexpected
	}
	return text, nil
}

func witnesses(text string) (string, error) {
	_, err := (&Config{Witnesses: text}).WitnessList()
	return text, err
}

// oauthIssuer judges the address of an identity provider (OpenID Connect Discovery, section 3). Keys that came over plain http
// could be anybody's.
func oauthIssuer(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !domain.IsLoopbackHost(u.Hostname())) || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errUnexpected
	}
	return text, nil
}

// postgresURL accepts the two schemes of PostgreSQL's own programs.
func postgresURL(text string) (string, error) {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return "", errUnexpected
	}
	return text, nil
}

// writableURL makes every connection of a database URL look for the server that takes writes, whichever of several it is.
func writableURL(text string) (string, error) {
	const attributes = "target_session_attrs"
	if _, err := postgresURL(text); err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil {
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

// parseOrigin reads scheme://host[:port] and writes it without a slash at the end.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", errUnexpected
	}
	return u.Scheme + "://" + u.Host, nil
}

// networks reads networks, separated by commas; a single address is a network of one.
func networks(text string) (all []netip.Prefix, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			address, addressErr := netip.ParseAddr(part)
			if addressErr != nil {
				return nil, err
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		// Addresses are judged as IPv4 where they are IPv4 inside IPv6.
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}
