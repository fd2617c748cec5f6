package judges

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	gomail "github.com/wneessen/go-mail"

	"integrityledger/cmd/integrity/mail"
	"integrityledger/domain"
	"integrityledger/projections/queue"
)

func testMail(to string) queue.Mail {
	id, _ := domain.ParseID[domain.EventID]("evt_01jd7z0000000000000000000a")
	return queue.Mail{
		ID: id, Member: domain.MemberID{1}, To: to, At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Quota: &domain.QuotaWarningReachedBody{Percent: 95, Period: 202611, Used: 96, Limit: 100},
	}
}

// TestMailServers: a go-smtp server receives each mail over the transport in the URL, or none.
func TestMailServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url, password   string
		implicitTLS, startTLS bool
		fails                 bool
	}{
		{name: "plain", url: "smtp://127.0.0.1:%d"},
		{
			name: "STARTTLS where it is offered", url: "smtp://ledger:s%%2Fecret@127.0.0.1:%d", password: "s/ecret",
			startTLS: true,
		},
		{name: "STARTTLS", url: "smtp+starttls://ledger:secret@127.0.0.1:%d", password: "secret", startTLS: true},
		{name: "STARTTLS that is not offered", url: "smtp+starttls://127.0.0.1:%d", fails: true},
		{name: "TLS", url: "smtps://ledger:secret@127.0.0.1:%d", password: "secret", implicitTLS: true},
		{
			name: "TLS with a wrong password", url: "smtps://ledger:wrong@127.0.0.1:%d", password: "secret", implicitTLS: true,
			fails: true,
		},
		{name: "TLS with a server that has none", url: "smtps://127.0.0.1:%d", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := &mailbox{password: c.password}
			port, trusting := serveMail(t, box, c.implicitTLS, c.startTLS)
			send, err := mail.NewSender(fmt.Sprintf(c.url, port), "Ledger <ledger@example.org>", "https://ledger.example",
				time.Now,
				gomail.WithTLSConfig(trusting))
			if err != nil {
				t.Fatal(err)
			}
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
				"ana@example.org\n", "From: \"Ledger\" <ledger@example.org>", "To: <ana@example.org>",
				"95% of its allowance of new versions for 2026-11",
				"Auto-Submitted: auto-generated", "96 of 100", "2026-12-01 00:00 UTC", "<evt_01jd7z0000000000000000000a.",
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
	send, err := mail.NewSender("smtp://127.0.0.1:1", "l@example.org", "", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(context.Background(), testMail("ana@example.org")); err == nil {
		t.Error("a mail server that is away took a mail")
	}
}

// TestGreeting: a strict server accepts the base URL's host as the greeting, and an address only as a literal.
func TestGreeting(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://ledger.example": "ledger.example", "https://LEDGER.example.:8443": "ledger.example",
		"http://192.0.2.7:8080": "[192.0.2.7]",
		"http://127.0.0.1:8080": "[127.0.0.1]", "https://[2001:DB8::7]": "[IPv6:2001:db8::7]",
		"https://[::ffff:192.0.2.7]": "[192.0.2.7]",
		"http://[fe80::1%25eth0]:80": "[IPv6:fe80::1]", "https://bücher.example": "xn--bcher-kva.example",
		"https://my_ledger.example": "my_ledger.example",
	} {
		box := &mailbox{}
		port, _ := serveMail(t, box, false, false)
		send, err := mail.NewSender(fmt.Sprintf("smtp://127.0.0.1:%d", port), "l@example.org", base, time.Now)
		if err == nil {
			err = send(t.Context(), testMail("ana@example.org"))
		}
		if err != nil || box.greeting != want {
			t.Errorf("%s greets with %q, want %q: %v", base, box.greeting, want, err)
		}
	}
}
