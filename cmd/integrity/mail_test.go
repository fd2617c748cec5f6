package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	gomail "github.com/wneessen/go-mail"

	"integrityledger/domain"
	"integrityledger/projections/queue"
)

// mailbox is a real SMTP server that keeps what it is given.
type mailbox struct {
	password string // of the user "ledger"; empty: nobody needs to say who he is
	mu       sync.Mutex
	mails    []string // recipient, a line, content
	arrived  chan struct{}
}

type mailSession struct {
	*mailbox
	conn *smtp.Conn
	to   string
	in   bool
}

func (m *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &mailSession{mailbox: m, conn: c, in: m.password == ""}, nil
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if _, secure := s.conn.TLSConnectionState(); !secure || user != "ledger" || password != s.password {
			return errors.New("not he")
		}
		s.in = true
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if strings.HasPrefix(to, "gone") {
		return &smtp.SMTPError{Code: 550, Message: "no " + to + " here"}
	}
	s.to = to
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mails = append(s.mails, s.to+"\n"+string(text))
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return err
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// serveMail answers the server's port and the TLS configuration of who trusts it.
func serveMail(t *testing.T, m *mailbox, implicitTLS, startTLS bool) (port int, trusting *tls.Config) {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
	m.arrived = make(chan struct{}, 1)
	server := smtp.NewServer(m)
	server.Domain, server.AllowInsecureAuth, server.ErrorLog = "mail.example", true, log.New(io.Discard, "", 0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = listener.Addr().(*net.TCPAddr).Port
	if startTLS {
		server.TLSConfig = config
	}
	if implicitTLS {
		listener = tls.NewListener(listener, config)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	trusting = certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusting.ServerName = "127.0.0.1"
	return port, trusting
}

func testMail(to string) queue.Mail {
	id, _ := domain.ParseID[domain.EventID]("evt_01jd7z0000000000000000000a")
	return queue.Mail{
		ID: id, To: to, At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Quota: &domain.QuotaWarningReachedBody{Percent: 95, Period: 202611, Used: 96, Limit: 100},
	}
}

func TestMailServers(t *testing.T) {
	for _, c := range []struct {
		name, url, password   string
		implicitTLS, startTLS bool
		fails                 bool
	}{
		{name: "plain", url: "smtp://127.0.0.1:%d"},
		{name: "STARTTLS where it is offered", url: "smtp://ledger:s%%2Fecret@127.0.0.1:%d", password: "s/ecret", startTLS: true},
		{name: "STARTTLS", url: "smtp+starttls://ledger:secret@127.0.0.1:%d", password: "secret", startTLS: true},
		{name: "STARTTLS that is not offered", url: "smtp+starttls://127.0.0.1:%d", fails: true},
		{name: "TLS", url: "smtps://ledger:secret@127.0.0.1:%d", password: "secret", implicitTLS: true},
		{name: "TLS with a wrong password", url: "smtps://ledger:wrong@127.0.0.1:%d", password: "secret", implicitTLS: true, fails: true},
		{name: "TLS where there is none", url: "smtps://127.0.0.1:%d", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := &mailbox{password: c.password}
			port, trusting := serveMail(t, box, c.implicitTLS, c.startTLS)
			server, err := parseSMTP(fmt.Sprintf(c.url, port))
			if err != nil {
				t.Fatal(err)
			}
			from := &mail.Address{Name: "Ledger", Address: "ledger@example.org"}
			send := newMailSender(server, from, "https://ledger.example", time.Now, gomail.WithTLSConfig(trusting))
			err = send(context.Background(), testMail("ana@example.org"))
			if c.fails {
				if err == nil || strings.Contains(err.Error(), "wrong") || len(box.mails) != 0 {
					t.Errorf("error %v, mails %q", err, box.mails)
				}
				return
			}
			if err != nil || len(box.mails) != 1 {
				t.Fatalf("error %v, mails %q", err, box.mails)
			}
			text := strings.ReplaceAll(box.mails[0], "=\r\n", "") // quoted-printable
			for _, part := range []string{
				"ana@example.org\n", "From: \"Ledger\" <ledger@example.org>", "To: <ana@example.org>", "95 % of the new versions of 2026-11",
				"Auto-Submitted: auto-generated", "96 of 100", "2026-12-01T00:00:00Z", "Message-ID: <evt_01jd7z0000000000000000000a.",
			} {
				if !strings.Contains(text, part) {
					t.Errorf("the mail lacks %q:\n%s", part, text)
				}
			}
			err = send(context.Background(), testMail("gone@example.org"))
			if err == nil || strings.Contains(err.Error(), "gone") {
				t.Errorf("a refused recipient: %v", err)
			}
		})
	}
	if err := newMailSender(smtpServer{scheme: schemeSMTP, host: "127.0.0.1", port: 1}, &mail.Address{Address: "l@example.org"}, "", time.Now)(context.Background(), testMail("ana@example.org")); err == nil {
		t.Error("a mail server that is away took a mail")
	}
}

func TestParseSMTP(t *testing.T) {
	for text, want := range map[string]smtpServer{
		"smtp://mail.example":                      {scheme: "smtp", host: "mail.example", port: 25},
		"smtp+starttls://u:p%40@mail.example/":     {scheme: "smtp+starttls", host: "mail.example", user: "u", password: "p@", port: 587},
		"smtps://mail.example:2465":                {scheme: "smtps", host: "mail.example", port: 2465},
		"http://mail.example":                      {},
		"smtp://":                                  {},
		"smtp://mail.example/path":                 {},
		"smtp://mail.example?starttls=required":    {},
		"smtp://mail.example:0":                    {},
		"smtp://u:secret%zz@mail.example":          {},
		"mail.example:25":                          {},
		"smtps://mail.example:99999#some-fragment": {},
	} {
		got, err := parseSMTP(text)
		if want.host == "" {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %+v, %v", text, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestWarningIsMailed runs the program: a smaller plan in the middle of the month
// is worth a warning, which reaches the member; and a table without that plan
// keeps the next start back.
func TestWarningIsMailed(t *testing.T) {
	t.Parallel()
	box := &mailbox{}
	port, _ := serveMail(t, box, false, false)
	dir := dataDir(t)
	plans := write(t, filepath.Join(t.TempDir(), "plans.json"),
		fmt.Sprintf(`{"gratis": {"perMinute": 100, "versionsPerMonth": 10, %[1]s}, "small": {"perMinute": 100, "versionsPerMonth": 5, %[1]s},
			"internal": {"perMinute": 1000, "versionsPerMonth": null, %[1]s}}`,
			`"requestsPerMonth": null, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null`))
	s := surroundings{env: []string{
		fmt.Sprintf("INTEGRITY_SMTP_URL=smtp://127.0.0.1:%d", port), "INTEGRITY_MAIL_FROM=ledger@example.org", "INTEGRITY_PLANS=" + plans,
	}}.start(t, dir)
	a := makeAccount(t, dir)
	env := []string{variableAPIKey + "=" + a.key.Key, variableBaseURL + "=" + s.base}
	for version := range 4 {
		file := write(t, filepath.Join(t.TempDir(), "a.pdf"), fmt.Sprint("%PDF ", version))
		must(t, env, "register", file, "--company", a.company.Reference, "--source", "s", "--document", "d", "--version", fmt.Sprint(version+1))
	}
	must(t, nil, "organization", "plan", a.organization.ID, "--plan", "small", "--plans", plans, "--data-dir", dir)
	select {
	case <-box.arrived:
	case <-time.After(patient):
		t.Fatalf("no mail arrived: %s", tail(s.log))
	}
	box.mu.Lock()
	if len(box.mails) != 1 || !strings.HasPrefix(box.mails[0], "ana@example.org\n") || !strings.Contains(box.mails[0], "80 % of") {
		t.Errorf("mails %q", box.mails)
	}
	box.mu.Unlock()
	s.stop()
	wantClean(t, s.log, "ana@example.org")

	r := integrity(t, nil, "serve", "--data-dir", dir, "--listen", freeAddress(t))
	if r.code != 2 || !strings.Contains(r.errs, "organizations have plans that the table of plans lacks (small)") || !strings.Contains(r.errs, "INTEGRITY_PLANS") {
		t.Errorf("a plan is missing: %+v", r)
	}
}

func TestTextOfADisabledDestination(t *testing.T) {
	id, err := domain.ParseID[domain.WebhookID]("whk_01jd7z0000000000000000000a")
	if err != nil {
		t.Fatal(err)
	}
	for reason, words := range map[domain.DisableReason]string{domain.DisabledGone: "410", domain.DisabledFailing: "five days"} {
		m := testMail("a@example.org")
		m.Quota, m.Webhook = nil, &domain.WebhookDisabledBody{WebhookID: id, Reason: reason}
		subject, body := mailText(m, "https://ledger.example")
		for _, part := range []string{words, id.String(), `"enabled": true`, "2026-11-20T10:00:00Z", "El destino de webhook", "https://ledger.example"} {
			if !strings.Contains(body, part) || !strings.Contains(subject, id.String()) {
				t.Errorf("%s: without %q: %s\n%s", reason, part, subject, body)
			}
		}
	}
}
