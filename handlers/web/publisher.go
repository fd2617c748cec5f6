package web

import (
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// Publisher is what an organization says about itself, as the public sees it. Without a domain it is nothing.
type Publisher struct {
	Domains []PublisherDomain
	Name    string // in its own words; may be empty
}

// PublisherDomain is a domain with its last proof.
type PublisherDomain struct {
	Domain    string // ASCII
	CheckedAt time.Time
}

// publisherLines are the lines about a Publisher, with their texts.
type publisherLines struct {
	T       map[string]any
	Domains []publisherLine
	Name    string
}

// publisherLine is the line about a domain. Unicode is its other spelling, if that can mislead nobody.
type publisherLine struct{ Domain, Unicode, Day string }

// lines returns nil for nothing.
func (t *texts) lines(language evidence.Language, p Publisher) *publisherLines {
	if len(p.Domains) == 0 {
		return nil
	}
	l := &publisherLines{T: t.words, Name: p.Name}
	for _, d := range p.Domains {
		l.Domains = append(l.Domains, publisherLine{
			d.Domain, domain.UnicodeDomain(d.Domain), day(language, d.CheckedAt),
		})
	}
	return l
}

// PublisherPage is the page of what the organization says about itself.
type PublisherPage struct {
	Console    Console
	Domains    []OwnDomain
	Most, Days int // domains of an organization, and failed days until one lapses
	MaxName    int
	Name       string
	StatedAt   *time.Time
	StatedBy   string    // address of the member; empty once erased
	Public     Publisher // what a recipient sees
	Prove      string    // the page for an owner's proof of identity; empty if the last one is recent

	Typed, TypedName string // refused input
	Problem          Problem
	NotYet           bool   // the service takes no statements before integrity upgrade finish
	TooSoon          string // the id of the domain for which an owner has asked too often
}

// OwnDomain is a domain of the signed-in person's organization.
type OwnDomain struct {
	ID, Domain             string
	State                  domain.DomainState
	CheckedAt, TriedAt     *time.Time // the last proof, and the last check
	Method                 domain.ProofMethod
	FailedDays             int32
	DNS, HTTPS             string // answers of the last check; empty without one
	Record, Value, Address string // of the TXT record, and of the file
	File                   string // its content
}

// Unicode returns the other spelling of the domain, if that can mislead nobody.
func (d OwnDomain) Unicode() string { return domain.UnicodeDomain(d.Domain) }

// Publisher renders the page of what the organization says about itself.
func (s ConsolePages) Publisher(p PublisherPage) ([]byte, error) {
	f := s.consoleFrame(p.Console)
	return s.renderConsole("publisher.html", struct {
		consoleFrame
		PublisherPage
		Lines *publisherLines
		May   bool // the person may change it
	}{f, p, s.catalogue(p.Console.Language, Record).lines(p.Console.Language, p.Public), p.Console.Role == domain.Owner})
}
