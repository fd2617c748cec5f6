// Package mail writes the service's mails and hands them to an SMTP server.
package mail

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections/queue"
)

// Schemes of INTEGRITY_SMTP_URL, with their ports.
const (
	schemeSMTP     = "smtp"          // STARTTLS where the server offers it
	schemeStartTLS = "smtp+starttls" // STARTTLS or nothing
	schemeSMTPS    = "smtps"         // TLS from the first byte
)

// smtpServer is a mail server as INTEGRITY_SMTP_URL names it.
type Server struct {
	Scheme, Host, User, Password string
	Port                         int
}

// parseSMTP reads scheme://[user:password@]host[:port]. Its errors never repeat the URL: it holds a password.
func ParseServer(text string) (s Server, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return s, errors.New("not a URL of a mail server")
	}
	s = Server{Scheme: u.Scheme, Host: u.Hostname()}
	switch s.Scheme {
	case schemeSMTP:
		s.Port = 25
	case schemeStartTLS:
		s.Port = 587
	case schemeSMTPS:
		s.Port = 465
	default:
		return s, errors.New("not a scheme of a mail server")
	}
	if u.Port() != "" {
		if s.Port, err = strconv.Atoi(u.Port()); err != nil || s.Port < 1 || s.Port > 65535 {
			return s, errors.New("not a port")
		}
	}
	s.User = u.User.Username()
	s.Password, _ = u.User.Password()
	return s, nil
}

// options of the client. A password never travels in the clear to another machine.
func (s Server) Options(timeout time.Duration) []gomail.Option {
	options := []gomail.Option{gomail.WithPort(s.Port), gomail.WithTimeout(timeout), gomail.WithoutNoop()}
	switch {
	case s.Scheme == schemeSMTPS:
		options = append(options, gomail.WithSSL())
	case s.Scheme == schemeStartTLS || s.User != "" && !domain.IsLoopbackHost(s.Host):
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	}
	if s.User != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(s.User), gomail.WithPassword(s.Password))
	}
	return options
}

// smtpTimeout bounds each step with the mail server.
const smtpTimeout = 20 * time.Second

// NewSender returns what sends a mail through the server of url. It opens a connection for every mail: there are few.
// now is the date of the mail.
func NewSender(url, from, baseURL string, now func() time.Time, more ...gomail.Option) (func(context.Context, queue.Mail) error, error) {
	server, err := ParseServer(url)
	if err != nil {
		return nil, fmt.Errorf("INTEGRITY_SMTP_URL: %w", err)
	}
	sender, err := mail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("INTEGRITY_MAIL_FROM: %w", err)
	}
	return newSender(server, sender, baseURL, now, more...), nil
}

func newSender(server Server, from *mail.Address, baseURL string, now func() time.Time, more ...gomail.Option) func(context.Context, queue.Mail) error {
	return func(ctx context.Context, m queue.Mail) error {
		message := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
		message.FromMailAddress(from)
		if err := message.To(m.To); err != nil {
			return errors.New("the address of a member is malformed") // never the address itself
		}
		_, host, _ := strings.Cut(from.Address, "@")
		message.SetMessageIDWithValue(fmt.Sprintf("%s.%s@%s", m.ID, m.Member, host)) // the same in every attempt
		message.SetDateWithValue(now().UTC())
		message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834
		subject, body := mailText(m, baseURL)
		message.Subject(subject)
		message.SetBodyString(gomail.TypeTextPlain, body)
		client, err := gomail.NewClient(server.Host, append(server.Options(smtpTimeout), more...)...)
		if err != nil {
			return fmt.Errorf("mail server: %w", err)
		}
		err = client.DialAndSendWithContext(ctx, message)
		var refused *gomail.SendError
		if errors.As(err, &refused) { // its text names the recipient
			return fmt.Errorf("the mail server did not take the mail: %s, code %d", refused.Reason, refused.ErrorCode())
		}
		if err != nil {
			return fmt.Errorf("the mail server could not be used: %w", err)
		}
		return nil
	}
}

// mailText names the organization by its id only: names are erasable, mails are not.
func mailText(m queue.Mail, baseURL string) (subject, body string) {
	if m.Webhook != nil {
		return disabledText(m, baseURL)
	}
	q := m.Quota
	english, spanish := allowanceWords(q.Allowance)
	resets := evidence.FormatTime(q.Period.End())
	subject = fmt.Sprintf("Integrity Ledger: %d %% of the %s of %s are used", q.Percent, english.what, q.Period)
	body = fmt.Sprintf(`Organization %[1]s reached %[2]d %% of its allowance of %[9]s for %[3]s:
%[4]d of %[5]d were used at %[6]s. The allowance resets at %[7]s.
%[10]s
Nothing is bought and no plan is changed automatically.

La organización %[1]s ha alcanzado el %[2]d %% de su cupo de %[11]s de %[3]s:
%[4]d de %[5]d a las %[6]s. El cupo se renueva a las %[7]s.
%[12]s
Nada se compra ni se cambia de plan automáticamente.

%[8]s
`, m.Organization, q.Percent, q.Period, q.Used, q.Limit, evidence.FormatTime(m.At), resets, baseURL,
		english.what, english.then, spanish.what, spanish.then)
	return subject, body
}

// quotaWords name an allowance, and say what holds when it is used up.
type quotaWords struct{ what, then string }

func allowanceWords(a domain.Allowance) (english, spanish quotaWords) {
	switch a {
	case domain.RequestsAllowance:
		return quotaWords{"requests", "When it is used up, the certification API and the ordinary MCP endpoint refuse requests until then;\n" +
				"the integrity API, public comparisons and GET /api/v1/usage stay available."},
			quotaWords{"peticiones", "Cuando se agote, la API de certificación y el MCP ordinario rechazan peticiones hasta entonces;\n" +
				"la API de integridad, las comparaciones públicas y GET /api/v1/usage siguen disponibles."}
	case domain.RegistrationsAllowance:
		return quotaWords{"registrations of artifacts", "When it is used up, registrations of artifacts take file credits, where there are any, and are refused\n" +
				"otherwise until then; hash-only registrations have an allowance of their own."},
			quotaWords{"registros de documentos", "Cuando se agote, los registros de documentos consumen créditos de archivo, si los hay, y si no se\n" +
				"rechazan hasta entonces; los registros solo de hash tienen su propio cupo."}
	default:
		return quotaWords{"new versions", "When it is used up, new versions are refused until then; records, evidence and repeated\n" +
				"declarations stay available."},
			quotaWords{"versiones nuevas", "Cuando se agote, las versiones nuevas se rechazan hasta entonces; los registros, la evidencia y\n" +
				"las declaraciones repetidas siguen disponibles."}
	}
}

// disabledText tells that nothing is sent to a webhook destination any more.
func disabledText(m queue.Mail, baseURL string) (subject, body string) {
	english, spanish := "it has answered with nothing but failures for five days", "lleva cinco días respondiendo solo con fallos"
	if m.Webhook.Reason == domain.DisabledGone {
		english, spanish = "it answered 410 (Gone)", "respondió 410 (Gone)"
	}
	subject = fmt.Sprintf("Integrity Ledger: the webhook destination %s was disabled", m.Webhook.WebhookID)
	body = fmt.Sprintf(`The webhook destination %[1]s of organization %[2]s was disabled at %[3]s,
because %[4]s. Nothing is sent to it any more. Registrations go on, and the change feed has
every event. When the receiver works again, enable the destination (PATCH, "enabled": true) and
replay the events that it has missed.

El destino de webhook %[1]s de la organización %[2]s se desactivó a las %[3]s,
porque %[5]s. Ya no se le envía nada. Los registros continúan y el canal de cambios contiene
todos los eventos. Cuando el receptor vuelva a funcionar, active el destino (PATCH, "enabled": true)
y repita los eventos que no recibió.

%[6]s
`, m.Webhook.WebhookID, m.Organization, evidence.FormatTime(m.At), english, spanish, baseURL)
	return subject, body
}
