package domain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// publisherWorld is a world whose rules are on, with an owner and an admin in the console.
type publisherWorld struct {
	*world
	owner, admin Origin
}

func newPublisherWorld(t *testing.T) *publisherWorld {
	w := &publisherWorld{world: newWorld(t, testSigner(t), 10)}
	w.state.Follow(PublisherStatements)
	person := func(email string, role Role) Origin {
		c := &AddMember{Origin: w.origin, Email: email, Role: role}
		w.execute(c)
		return Origin{Organization: w.origin.Organization, Actor: MemberActor(c.Outcome.ID), RequestID: "r", Console: true}
	}
	w.owner, w.admin = person("owner@example.com", Owner), person("admin@example.com", Admin)
	return w
}

func (w *publisherWorld) add(t *testing.T, domain string) StatementID {
	t.Helper()
	c := &AddDomain{Origin: w.owner, Domain: domain}
	if code := w.execute(c); code != "" {
		t.Fatal(domain, code)
	}
	return c.Outcome.ID
}

func (w *publisherWorld) check(t *testing.T, id StatementID, method ProofMethod) DomainState {
	t.Helper()
	c := &RecordDomainCheck{
		Origin: Origin{Organization: w.owner.Organization, Actor: SystemActor, RequestID: "r"}, Domain: id, Method: method,
	}
	if code := w.execute(c); code != "" {
		t.Fatal(code)
	}
	return w.state.publisherDomains[id].State(w.now)
}

func ascii(domain string) string {
	text, ok := ParseDomain(domain)
	if !ok {
		panic(domain)
	}
	return text
}

// TestDomainsAreParsed: a domain has one spelling, and only a name that somebody can register is one.
func TestDomainsAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"transportes.example": "transportes.example", "Transportes.Example.": "transportes.example",
		"www.garcia.co.uk": "www.garcia.co.uk", "españa.example": "xn--espaa-rta.example",
		"ESPAÑA.example": "xn--espaa-rta.example", "xn--espaa-rta.example": "xn--espaa-rta.example",
		"аpple.example":                      "xn--pple-43d.example", // with a Cyrillic letter
		strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",
		"":                                   "", ".": "", "example": "", "localhost": "", "com": "", "co.uk": "", "github.io": "",
		"127.0.0.1": "", "1.2.3": "", "[::1]": "", "::1": "", "0x7f.1": "", "a.0x7f000001": "",
		"a..example": "", ".a.example": "", "a.example..": "", "-a.example": "", "a-.example": "", "a_b.example": "",
		"www.transportes.example": "www.transportes.example", "shop.github.io": "shop.github.io", "gob.es": "",
		"metadata.google.internal": "", "a.local": "", "wiki.localhost": "", "a.test": "", "a.invalid": "",
		"kubernetes.default": "", "1.0.0.127.in-addr.arpa": "", "home.arpa": "", "a.onion": "", "a.home": "",
		"a b.example": "", "a.example/x": "", "https://a.example": "", "a.example:443": "", "*.a.example": "",
		"a\x00.example": "", "a\u202e.example": "", "a\n.example": "", "\xff.example": "", "xn--a.example": "",
		strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 130) + "example": "",
		strings.Repeat("a", 2000) + ".example": "",
	} {
		got, ok := ParseDomain(text)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%.40q: %q, %v", text, got, ok)
		}
		if again, ok := ParseDomain(got); want != "" && (!ok || again != got) {
			t.Errorf("%q is parsed again as %q", got, again)
		}
	}
	for domain, want := range map[string]string{
		"xn--espaa-rta.example": "españa.example", "xn--pple-43d.example": "", "transportes.example": "",
		"xn--80ak6aa92e.com": "", "xn--fiq228c.com": "",
		ascii("peña-íñigo.es"): "peña-íñigo.es", ascii("œuvre-çà.fr"): "œuvre-çà.fr", ascii("gıthub.com"): "",
		ascii("ɡoogle.com"): "", ascii("paypaḷ.com"): "", ascii("ɑpple.com"): "", ascii("ƅank.com"): "", ascii("caiхa.es"): "",
	} {
		if got := UnicodeDomain(domain); got != want {
			t.Errorf("%s is shown as %q", domain, got)
		}
	}
}

// TestPublisherNeedsTheRule: no event of a new type is decided before every process knows it.
func TestPublisherNeedsTheRule(t *testing.T) {
	w := newPublisherWorld(t)
	w.state.rules = nil
	for _, c := range []Command{
		&AddDomain{Origin: w.owner, Domain: "transportes.example"},
		&RecordDomainCheck{Origin: w.owner, Method: ProvenByDNS},
		&DeclareName{Origin: w.owner, Name: "x", NoPrivatePerson: true},
	} {
		if code := w.execute(c); code != InvalidState {
			t.Errorf("%T: %q", c, code)
		}
	}
}

// TestOnlyOwnersSayWhoTheyAre: neither an admin nor a key of an owner changes what an organization says about itself.
func TestOnlyOwnersSayWhoTheyAre(t *testing.T) {
	w := newPublisherWorld(t)
	id := w.add(t, "transportes.example")
	if code := w.execute(&DeclareName{Origin: w.owner, Name: "x", NoPrivatePerson: true}); code != "" {
		t.Fatal(code)
	}
	key := Origin{Organization: w.owner.Organization, Actor: KeyActor(w.key), RequestID: "r"}
	token := w.owner // an owner outside the console
	token.Console = false
	for name, by := range map[string]Origin{"admin": w.admin, "key": key, "token": token} {
		for _, c := range []Command{
			&AddDomain{Origin: by, Domain: "other.example"}, &RecordDomainCheck{Origin: by, Domain: id, Method: ProvenByDNS},
			&RemoveDomain{Origin: by, Domain: id}, &DeclareName{Origin: by, Name: "y", NoPrivatePerson: true},
			&WithdrawName{Origin: by},
		} {
			if code := w.execute(c); code != RoleRequired {
				t.Errorf("%s: %T: %q", name, c, code)
			}
		}
	}
	if code := w.execute(&DeclareName{Origin: w.origin, Name: "y", NoPrivatePerson: true}); code != RoleRequired {
		t.Errorf("the operator declares a name: %q", code)
	}
}

// TestDomainsAreBounded: an organization has few domains, each once.
func TestDomainsAreBounded(t *testing.T) {
	w := newPublisherWorld(t)
	for i := range MaxPublisherDomains {
		w.add(t, fmt.Sprintf("transportes%d.example", i))
	}
	for domain, want := range map[string]Code{
		"one.example": InvalidState, "TRANSPORTES1.example": InvalidState, "localhost": InvalidData,
	} {
		if code := w.execute(&AddDomain{Origin: w.owner, Domain: domain}); code != want {
			t.Errorf("%s: %q", domain, code)
		}
	}
	for _, d := range w.state.publisherDomains {
		if code := w.execute(&RemoveDomain{Origin: w.owner, Domain: d.ID}); code != "" {
			t.Error(code)
		}
		break
	}
	w.add(t, "one.example")
	if code := w.execute(&RemoveDomain{Origin: w.owner, Domain: StatementID{1}}); code != NotFound {
		t.Errorf("an unknown domain: %q", code)
	}
}

// TestDomainsLapse: three failed days in a row end a proof, whatever the number of attempts; a proof begins it again.
func TestDomainsLapse(t *testing.T) {
	w := newPublisherWorld(t)
	id := w.add(t, "transportes.example")
	expect := func(what string, got, want DomainState) {
		t.Helper()
		if d := w.state.publisherDomains[id]; got != want || d.Public(w.now) != (want == DomainProven || want == DomainFailing) {
			t.Errorf("%s: %s, want %s; public: %v", what, got, want, d.Public(w.now))
		}
	}
	for range 5 {
		w.now = w.now.Add(24 * time.Hour)
		expect("never proven", w.check(t, id, ""), DomainWaiting)
	}
	expect("proven", w.check(t, id, ProvenByDNS), DomainProven)
	events := len(w.events)
	expect("proven again on that day", w.check(t, id, ProvenByDNS), DomainProven)
	if len(w.events) != events {
		t.Error("a second proof of a day is an event")
	}
	w.now = w.now.Add(24 * time.Hour)
	for range 3 * LapseDays { // attempts of one day
		w.now = w.now.Add(time.Hour)
		expect("a failed day", w.check(t, id, ""), DomainFailing)
	}
	if days := w.state.publisherDomains[id].FailedDays; days != 1 {
		t.Errorf("%d days failed, want 1", days)
	}
	expect("proven after a failed day", w.check(t, id, ProvenByHTTPS), DomainProven)
	for day := range LapseDays {
		w.now = w.now.Add(FailedDay)
		want := DomainFailing
		if day == LapseDays-1 {
			want = DomainLapsed
		}
		expect(fmt.Sprintf("failed day %d", day+1), w.check(t, id, ""), want)
	}
	events = len(w.events)
	w.now = w.now.Add(24 * time.Hour)
	expect("a lapsed domain", w.check(t, id, ""), DomainLapsed)
	if len(w.events) != events {
		t.Error("a lapsed domain fails again")
	}
	expect("proven after it lapsed", w.check(t, id, ProvenByDNS), DomainProven)
	w.now = w.now.Add(ProofLifetime)
	expect("not checked for a week", w.state.publisherDomains[id].State(w.now), DomainStale)
}

// TestPublisherNames: a name needs the owner's declaration, one replaces another, and what ends loses its text.
func TestPublisherNames(t *testing.T) {
	w := newPublisherWorld(t)
	if code := w.execute(&DeclareName{Origin: w.owner, Name: "García"}); code != InvalidData {
		t.Errorf("without the declaration: %q", code)
	}
	for _, name := range []string{
		"", " a", strings.Repeat("é", 201), "a\u202eb", "a\nb", "a\x00", "\xff", "a\u200b", "\u200b", "a\u00ad", "\ufeffa",
		"a\U000e0041", "\u2800", "a\u2800", "\u3164", "\u1160a", "...", "(«»)", "\u0301", "a\u0301\u0302\u0303b",
	} {
		if code := w.execute(&DeclareName{Origin: w.owner, Name: name, NoPrivatePerson: true}); code != InvalidData {
			t.Errorf("%.10q: %q", name, code)
		}
	}
	erasedTexts := func() (n int) {
		for _, e := range w.events {
			if _, ok := e.Body.(*TextsErasedBody); ok {
				n++
			}
		}
		return n
	}
	for _, name := range []string{"3", "a\u0323\u0302", "नमस्ते", "Łódź & Søn, S. A."} {
		if !ValidPublisherName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for i, name := range []string{"García", "García", "Transportes García SL"} {
		if code := w.execute(&DeclareName{Origin: w.owner, Name: name, NoPrivatePerson: true}); code != "" {
			t.Fatal(code)
		}
		if got := w.state.publisherNames[w.owner.Organization]; got.Name.Body != name || got.Member != w.owner.Actor.Member() {
			t.Errorf("the name is %+v", got)
		}
		if got, want := erasedTexts(), max(0, i-1); got != want {
			t.Errorf("%d texts are erased, want %d", got, want)
		}
	}
	if code := w.execute(&WithdrawName{Origin: w.owner}); code != "" || w.state.publisherNames[w.owner.Organization] != nil {
		t.Errorf("withdrawn: %q", code)
	}
	if got := erasedTexts(); got != 2 {
		t.Errorf("%d texts are erased, want 2", got)
	}
}

// TestErasedStatementsEnd: an operator who erases the text of a statement ends the statement, too.
func TestErasedStatementsEnd(t *testing.T) {
	w := newPublisherWorld(t)
	id := w.add(t, "transportes.example")
	w.check(t, id, ProvenByDNS)
	declare := &DeclareName{Origin: w.owner, Name: "García", NoPrivatePerson: true}
	w.execute(declare)
	for subject, text := range map[StatementID]TextID{
		id: w.state.publisherDomains[id].Domain.ID, declare.Outcome.ID: declare.Outcome.Name.ID,
	} {
		if code := w.execute(&EraseTexts{Origin: w.origin, Subject: subject.String(), Texts: []TextID{text}}); code != "" {
			t.Fatal(code)
		}
	}
	if len(w.state.publisherDomains) > 0 || len(w.state.publisherNames) > 0 {
		t.Error("statements without texts are left")
	}
	var refused *Error
	if _, err := (&RecordDomainCheck{Origin: w.owner, Domain: id}).Decide(w.state, w.now); !errors.As(err, &refused) ||
		refused.Code != NotFound {
		t.Errorf("a check of an erased domain: %v", err)
	}
}
