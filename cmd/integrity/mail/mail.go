// Package mail writes the service's mails and sends them through an SMTP server.
package mail

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/net/idna"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/projections/queue"
)

// Schemes of INTEGRITY_SMTP_URL.
const (
	schemeSMTP     = "smtp"          // STARTTLS if the server offers it
	schemeStartTLS = "smtp+starttls" // STARTTLS required
	schemeSMTPS    = "smtps"         // TLS from the first byte
)

// Server is a mail server from INTEGRITY_SMTP_URL.
type Server struct {
	Scheme, Host, User, Password string
	Port                         int
}

// ParseServer parses scheme://[user:password@]host[:port]. Its errors never quote the URL, because it contains a
// password.
func ParseServer(text string) (s Server, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return s, say.New("not a mail server's URL")
	}
	s = Server{
		Scheme: u.Scheme, Host: u.Hostname(),
		Port: map[string]int{schemeSMTP: 25, schemeStartTLS: 587, schemeSMTPS: 465}[u.Scheme],
	}
	if s.Port == 0 {
		return s, say.New("not a mail server's scheme")
	}
	if u.Port() != "" {
		if s.Port, err = strconv.Atoi(u.Port()); err != nil || s.Port < 1 || s.Port > 65535 {
			return s, say.New("not a port")
		}
	}
	s.User = u.User.Username()
	s.Password, _ = u.User.Password()
	return s, nil
}

// greeting returns the name for EHLO: the host of the service's base URL, or an address literal (RFC 5321, section
// 4.1.3). The machine's own name is often unqualified, which strict servers reject with 504.
func greeting(baseURL string) string {
	base, err := url.Parse(baseURL)
	if err != nil || base.Hostname() == "" {
		return "localhost"
	}
	address, err := netip.ParseAddr(base.Hostname())
	switch address = address.Unmap().WithZone(""); {
	case err != nil:
		host := strings.TrimSuffix(base.Hostname(), ".")
		if ascii, err := idna.Lookup.ToASCII(host); err == nil {
			return ascii
		}
		return host
	case address.Is6():
		return "[IPv6:" + address.String() + "]"
	}
	return "[" + address.String() + "]"
}

// Options returns the options of a client that greets with the host of baseURL. A password is never sent unencrypted to
// another machine.
func (s Server) Options(baseURL string, timeout time.Duration) []gomail.Option {
	options := []gomail.Option{
		gomail.WithHELO(greeting(baseURL)), gomail.WithPort(s.Port), gomail.WithTimeout(timeout), gomail.WithoutNoop(),
	}
	switch {
	case s.Scheme == schemeSMTPS:
		options = append(options, gomail.WithSSL())
	case s.Scheme == schemeStartTLS || s.User != "" && !domain.IsLoopbackHost(s.Host):
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	}
	if s.User != "" {
		options = append(
			options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(s.User),
			gomail.WithPassword(s.Password),
		)
	}
	return options
}

// smtpTimeout limits each step with the mail server.
const smtpTimeout = 20 * time.Second

// NewSender returns a function that sends mails through the server at url. It opens a connection for every mail,
// because there are few. now is the clock that dates the mails.
func NewSender(
	url, from, baseURL string, now func() time.Time, more ...gomail.Option,
) (func(context.Context, queue.Mail) error, error) {
	server, err := ParseServer(url)
	if err != nil {
		return nil, say.Errorf("INTEGRITY_SMTP_URL: %w", err)
	}
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return nil, say.Errorf("INTEGRITY_MAIL_FROM: %w", err)
	}
	_, host, _ := strings.Cut(sender.Address, "@")
	return func(ctx context.Context, m queue.Mail) error {
		message := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
		message.FromMailAddress(sender)
		if err := message.To(m.To); err != nil {
			return say.New("the address of a member is malformed") // never quote the address
		}
		message.SetMessageIDWithValue(messageID(m, host))
		message.SetDateWithValue(now().UTC())
		message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
		subject, body := mailText(m, baseURL)
		message.Subject(subject)
		message.SetBodyString(gomail.TypeTextPlain, body)
		client, err := gomail.NewClient(server.Host, append(server.Options(baseURL, smtpTimeout), more...)...)
		if err != nil {
			return say.Errorf("mail server: %w", err)
		}
		err = client.DialAndSendWithContext(ctx, message)
		var refused *gomail.SendError
		if errors.As(err, &refused) { // the error's text names the recipient
			return say.Errorf("the mail server did not accept the mail: %s, code %d", refused.Reason, refused.ErrorCode())
		}
		if err != nil {
			return say.Errorf("the mail server could not be used: %w", err)
		}
		return nil
	}, nil
}

// messageID is the same in every attempt. A person who signs up has no member ID yet, and the message ID must not end
// with a dot (RFC 5322, section 3.2.3).
func messageID(m queue.Mail, host string) string {
	if m.Member.IsZero() {
		return fmt.Sprintf("%s@%s", m.ID, host)
	}
	return fmt.Sprintf("%s.%s@%s", m.ID, m.Member, host)
}

//go:embed texts.txt
var texts string

var templates = sync.OnceValue(func() *template.Template { return template.Must(template.New("").Parse(texts)) })

// readable formats a time to the minute, rounded down so that a deadline is never shown later than it is.
func readable(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// mailText renders a mail from texts.txt.
func mailText(m queue.Mail, baseURL string) (subject, body string) {
	name, data := "disabled", map[string]any{"Organization": m.Organization, "At": readable(m.At), "BaseURL": baseURL}
	switch l, q, i := m.SignIn, m.Quota, m.Invitation; {
	case l != nil:
		name, data["URL"], data["Until"] = "sign-in", l.URL, readable(l.Until)
		if l.Newcomer {
			name = "sign-up"
		}
	case i != nil:
		name, data["Role"], data["Until"] = "invitation", i.Role, readable(i.ExpiresAt)
		data["ES"], data["EN"] = i.URL[evidence.Spanish], i.URL[evidence.English]
	case q != nil:
		name = "quota"
		maps.Copy(data, map[string]any{
			"Allowance": q.Allowance.String(), "Percent": q.Percent, "Period": q.Period, "Used": q.Used, "Limit": q.Limit,
			"Resets": readable(q.Period.End()), "Monthly": q.Allowance < domain.PendingAllowance,
		})
	case m.Domain != "":
		name, data["Lapsed"] = "domain", m.Domain == domain.DomainLapsed
	default:
		data["WebhookID"], data["Gone"] = m.Webhook.WebhookID, m.Webhook.Reason == domain.DisabledGone
	}
	var text strings.Builder
	if err := templates().ExecuteTemplate(&text, name, data); err != nil {
		panic(err) // the templates are compiled in, and every mail has these values
	}
	subject, body, _ = strings.Cut(text.String(), "\n")
	return subject, body
}
