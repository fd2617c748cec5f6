package mail

import (
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections/queue"
)

func testMail(to string) queue.Mail {
	id, _ := domain.ParseID[domain.EventID]("evt_01jd7z0000000000000000000a")
	return queue.Mail{
		ID: id, Member: domain.MemberID{1}, To: to, At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Quota: &domain.QuotaWarningReachedBody{Percent: 95, Period: 202611, Used: 96, Limit: 100},
	}
}

func TestParseSMTP(t *testing.T) {
	for text, want := range map[string]Server{
		"smtp://mail.example": {Scheme: "smtp", Host: "mail.example", Port: 25},
		"smtp+starttls://u:p%40@mail.example/": {
			Scheme: "smtp+starttls", Host: "mail.example", User: "u", Password: "p@", Port: 587,
		},
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
	for reason, words := range map[domain.DisableReason]string{
		domain.DisabledGone: "410", domain.DisabledFailing: "five days",
	} {
		m := testMail("a@example.org")
		m.Quota, m.Webhook = nil, &domain.WebhookDisabledBody{WebhookID: id, Reason: reason}
		subject, body := mailText(m, "https://ledger.example")
		for _, part := range []string{
			words, id.String(), `"enabled": true`, "2026-11-20 10:00 UTC", "El destino de webhook", "https://ledger.example",
		} {
			if !strings.Contains(body, part) || !strings.Contains(subject, id.String()) {
				t.Errorf("%s: without %q: %s\n%s", reason, part, subject, body)
			}
		}
	}
}

func TestTextOfASignInLink(t *testing.T) {
	m := testMail("a@example.org")
	m.Quota, m.SignIn = nil, &queue.SignIn{
		URL: "https://ledger.example/en/console/link/is_x", Until: time.Date(2026, 11, 20, 10, 15, 0, 0, time.UTC),
	}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{
		"\n" + m.SignIn.URL + "\n", "2026-11-20 10:15 UTC", "no one has signed in", "nadie ha entrado",
	} {
		if !strings.Contains(body, part) || strings.Contains(subject, m.SignIn.URL) {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}

// TestSignUpLinkText: both languages explain the link's purpose, and that nothing is stored unless it is used.
func TestSignUpLinkText(t *testing.T) {
	m := testMail("a@example.org")
	m.Quota, m.SignIn = nil, &queue.SignIn{
		URL: "https://ledger.example/console/link/is_x", Until: time.Date(2026, 11, 20, 10, 15, 0, 0, time.UTC),
		Newcomer: true,
	}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{
		"\n" + m.SignIn.URL + "\n", "2026-11-20 10:15 UTC", "nothing was created", "no se ha creado nada",
	} {
		if !strings.Contains(body, part) || !strings.Contains(subject, "sign up") {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}

// TestMessageIDWithoutMember: the ID is well formed even without a member.
func TestMessageIDWithoutMember(t *testing.T) {
	m := testMail("a@example.org")
	if id := messageID(m, "example.org"); id != m.ID.String()+"."+m.Member.String()+"@example.org" {
		t.Errorf("of a member: %s", id)
	}
	m.Member = domain.MemberID{}
	if id := messageID(m, "example.org"); id != m.ID.String()+"@example.org" {
		t.Errorf("of a newcomer: %s", id)
	}
}

// TestInvitationText: both languages name the role and the expiry, and link to the page in that language.
func TestInvitationText(t *testing.T) {
	m := testMail("ana@example.org")
	m.Quota, m.Invitation = nil, &queue.Invitation{Role: domain.Reviewer,
		ExpiresAt: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), URL: map[evidence.Language]string{
			evidence.Spanish: "https://ledger.example/console/invitation/in_code",
			evidence.English: "https://ledger.example/en/console/invitation/in_code",
		}}
	subject, body := mailText(m, "https://ledger.example")
	for _, part := range []string{
		"as reviewer", "el rol de revisor", "https://ledger.example/en/console/invitation/in_code\n",
		"https://ledger.example/console/invitation/in_code\n", "2026-11-27 10:00 UTC",
	} {
		if !strings.Contains(body, part) || strings.Contains(subject, "in_code") {
			t.Errorf("without %q: %s\n%s", part, subject, body)
		}
	}
}

// TestTextOfADomain reads mails about a domain: each names the organization by its id, and links to the domain's page.
func TestTextOfADomain(t *testing.T) {
	for state, words := range map[domain.DomainState][]string{
		domain.DomainFailing: {"failed its daily check", "no superó su comprobación", "After three failed days"},
		domain.DomainLapsed:  {"has failed its check for three days", "durante tres días", "Check now"},
	} {
		m := testMail("a@example.org")
		m.Quota, m.Domain = nil, state
		subject, body := mailText(m, "https://ledger.example")
		for _, part := range append(words,
			"https://ledger.example/en/console/publisher", "https://ledger.example/console/publisher", "2026-11-20 10:00 UTC",
		) {
			if !strings.Contains(body, part) || strings.Contains(subject, "\n") || !strings.Contains(subject, "dominio") {
				t.Errorf("%s: without %q: %s\n%s", state, part, subject, body)
			}
		}
	}
}
