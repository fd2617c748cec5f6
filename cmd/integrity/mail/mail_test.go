package mail

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"integrityledger/projections/queue"

	gomail "github.com/wneessen/go-mail"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

func testMail(to string) queue.Mail {
	id, _ := domain.ParseID[domain.EventID]("evt_01jd7z0000000000000000000a")
	return queue.Mail{
		ID: id, Member: domain.MemberID{1}, To: to, At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
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
		{name: "TLS with a server that has none", url: "smtps://127.0.0.1:%d", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			box := &integritytest.Mailbox{Password: c.password}
			port, trusting := integritytest.ServeMail(t, box, c.implicitTLS, c.startTLS)
			send, err := NewSender(fmt.Sprintf(c.url, port), "Ledger <ledger@example.org>", "https://ledger.example", time.Now, gomail.WithTLSConfig(trusting))
			if err != nil {
				t.Fatal(err)
			}
			err = send(context.Background(), testMail("ana@example.org"))
			if c.fails {
				if err == nil || strings.Contains(err.Error(), "wrong") || len(box.Mails) != 0 {
					t.Errorf("error %v, mails %q", err, box.Mails)
				}
				return
			}
			if err != nil || len(box.Mails) != 1 {
				t.Fatalf("error %v, mails %q", err, box.Mails)
			}
			text := strings.ReplaceAll(box.Mails[0], "=\r\n", "") // quoted-printable
			for _, part := range []string{
				"ana@example.org\n", "From: \"Ledger\" <ledger@example.org>", "To: <ana@example.org>", "95 % of the new versions of 2026-11",
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
	send, err := NewSender("smtp://127.0.0.1:1", "l@example.org", "", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(context.Background(), testMail("ana@example.org")); err == nil {
		t.Error("a mail server that is away took a mail")
	}
}

// TestGreeting: a strict server takes the host of the base URL, and an address only as a literal.
func TestGreeting(t *testing.T) {
	for base, want := range map[string]string{
		"https://ledger.example": "ledger.example", "https://LEDGER.example.:8443": "ledger.example", "http://192.0.2.7:8080": "[192.0.2.7]",
		"http://127.0.0.1:8080": "[127.0.0.1]", "https://[2001:DB8::7]": "[IPv6:2001:db8::7]", "https://[::ffff:192.0.2.7]": "[192.0.2.7]",
		"http://[fe80::1%25eth0]:80": "[IPv6:fe80::1]", "https://bücher.example": "xn--bcher-kva.example", "https://my_ledger.example": "my_ledger.example",
	} {
		box := &integritytest.Mailbox{}
		port, _ := integritytest.ServeMail(t, box, false, false)
		send, err := NewSender(fmt.Sprintf("smtp://127.0.0.1:%d", port), "l@example.org", base, time.Now)
		if err == nil {
			err = send(t.Context(), testMail("ana@example.org"))
		}
		if err != nil || box.Greeting != want {
			t.Errorf("%s greets with %q, want %q: %v", base, box.Greeting, want, err)
		}
	}
}

func TestParseSMTP(t *testing.T) {
	for text, want := range map[string]Server{
		"smtp://mail.example":                      {Scheme: "smtp", Host: "mail.example", Port: 25},
		"smtp+starttls://u:p%40@mail.example/":     {Scheme: "smtp+starttls", Host: "mail.example", User: "u", Password: "p@", Port: 587},
		"smtps://mail.example:2465":                {Scheme: "smtps", Host: "mail.example", Port: 2465},
		"http://mail.example":                      {},
		"smtp://":                                  {},
		"smtp://mail.example/path":                 {},
		"smtp://mail.example?starttls=required":    {},
		"smtp://mail.example:0":                    {},
		"smtp://u:secret%zz@mail.example":          {},
		"mail.example:25":                          {},
		"smtps://mail.example:99999#some-fragment": {},
	} {
		got, err := ParseServer(text)
		if want.Host == "" {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %+v, %v", text, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
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
		for _, part := range []string{words, id.String(), `"enabled": true`, "2026-11-20 10:00 UTC", "El destino de webhook", "https://ledger.example"} {
			if !strings.Contains(body, part) || !strings.Contains(subject, id.String()) {
				t.Errorf("%s: without %q: %s\n%s", reason, part, subject, body)
			}
		}
	}
}

func TestTextOfASignInLink(t *testing.T) {
	m := testMail("a@example.org")
	m.Quota, m.SignIn = nil, &queue.SignIn{URL: "https://ledger.example/en/console/link/is_x", Until: time.Date(2026, 11, 20, 10, 15, 0, 0, time.UTC)}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{"\n" + m.SignIn.URL + "\n", "2026-11-20 10:15 UTC", "nobody has signed in", "nadie ha entrado"} {
		if !strings.Contains(body, part) || strings.Contains(subject, m.SignIn.URL) {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}

// TestTextOfASignUpLink: both languages say what the link is for, and that nothing is kept without it.
func TestTextOfASignUpLink(t *testing.T) {
	m := testMail("a@example.org")
	m.Quota, m.SignIn = nil, &queue.SignIn{URL: "https://ledger.example/console/link/is_x", Until: time.Date(2026, 11, 20, 10, 15, 0, 0, time.UTC), Newcomer: true}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{"\n" + m.SignIn.URL + "\n", "2026-11-20 10:15 UTC", "nothing was made", "no se ha creado nada"} {
		if !strings.Contains(body, part) || !strings.Contains(subject, "sign up") {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}

// TestMessageIDOfANewcomer: without a member the id is well formed too.
func TestMessageIDOfANewcomer(t *testing.T) {
	m := testMail("a@example.org")
	if id := messageID(m, "example.org"); id != m.ID.String()+"."+m.Member.String()+"@example.org" {
		t.Errorf("of a member: %s", id)
	}
	m.Member = domain.MemberID{}
	if id := messageID(m, "example.org"); id != m.ID.String()+"@example.org" {
		t.Errorf("of a newcomer: %s", id)
	}
}

// TestTextOfAnInvitation: both languages name the role and the end, and lead to the page in that language.
func TestTextOfAnInvitation(t *testing.T) {
	m := testMail("ana@example.org")
	m.Quota, m.Invitation = nil, &queue.Invitation{Role: domain.Reviewer, ExpiresAt: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), URL: map[evidence.Language]string{
		evidence.Spanish: "https://ledger.example/console/invitation/in_code", evidence.English: "https://ledger.example/en/console/invitation/in_code",
	}}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{
		"as reviewer", "el rol reviewer", "https://ledger.example/en/console/invitation/in_code\n", "https://ledger.example/console/invitation/in_code\n", "2026-11-27 10:00 UTC",
	} {
		if !strings.Contains(body, part) || strings.Contains(subject, "in_code") {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}
