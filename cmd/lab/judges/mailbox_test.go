package judges

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	sasl "github.com/emersion/go-sasl"
	smtp "github.com/emersion/go-smtp"
)

// mailbox is a real SMTP server that keeps its mails. Like Postfix with reject_non_fqdn_helo_hostname, it answers 504
// to a client that greets with an unqualified name.
type mailbox struct {
	password string // password of the user "ledger"; empty: no sign-in
	mu       sync.Mutex
	mails    []string // recipient, newline, content
	greeting string   // name in the client's last EHLO
}

// fullName matches a name that a strict server accepts as a greeting: a name with a dot, or an address literal (RFC
// 5321, section 4.1.3).
var fullName = regexp.MustCompile(`^([A-Za-z0-9_-]+(\.[A-Za-z0-9-]+)+|\[[0-9.]+\]|\[IPv6:[0-9a-f:.]+\])$`)

type mailSession struct {
	*mailbox
	conn *smtp.Conn
	to   string
	in   bool
}

func (m *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.greeting = c.Hostname(); !fullName.MatchString(m.greeting) {
		return nil, &smtp.SMTPError{
			Code: 504, EnhancedCode: smtp.EnhancedCode{5, 5, 2},
			Message: "Helo command rejected: need fully-qualified hostname",
		}
	}
	return &mailSession{mailbox: m, conn: c, in: m.password == ""}, nil
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if _, secure := s.conn.TLSConnectionState(); !secure || user != "ledger" || password != s.password {
			return errors.New("authentication failed")
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
	return err
}

func (s *mailSession) Reset() {}

func (s *mailSession) Logout() error { return nil }

// serveMail returns the server's port, and a client's TLS configuration that trusts the server.
func serveMail(t *testing.T, m *mailbox, implicitTLS, startTLS bool) (port int, trusting *tls.Config) {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // for its certificate for 127.0.0.1
	certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}
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
