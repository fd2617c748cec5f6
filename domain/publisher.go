package domain

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"integrityledger/domain/strictjson"
)

// PublisherStatements is the rule that lets organizations say who they are: a program that does not know it could not
// read the events.
const PublisherStatements Rule = "publisher-statements"

const (
	// MaxPublisherDomains is the maximum number of domains of an organization.
	MaxPublisherDomains = 5
	// LapseDays is the number of failed days in a row after which a proven domain lapses.
	LapseDays = 3
	// FailedDay is the least time between two failed checks that count as two days. It is less than 24 hours, so that a
	// check that comes a little early still counts.
	FailedDay = 20 * time.Hour
	// ProofLifetime is the age of a proof from which it is no longer shown, also if no check could be made since.
	ProofLifetime = 7 * 24 * time.Hour
	// PublisherToken begins the value that proves control of a domain; the organization's id follows.
	PublisherToken = "integrity-ledger="
	// PublisherHost is the label before a domain under which the TXT record may be.
	PublisherHost = "_integrity-ledger"
	// PublisherFile is the path of the file that proves control of a domain.
	PublisherFile = "/.well-known/integrity-ledger.json"
)

// ProofMethod is the way in which an organization has proven that it controls a domain.
type ProofMethod string

const (
	ProvenByDNS   ProofMethod = "dns"   // a TXT record
	ProvenByHTTPS ProofMethod = "https" // the file PublisherFile
)

// PublisherDomain is a domain that an organization says it controls. The public sees it only while it is proven.
type PublisherDomain struct {
	ID           StatementID
	Organization OrganizationID
	Domain       Text // as ParseDomain returns it; empty once erased
	AddedAt      time.Time
	Method       ProofMethod // of the last proof; empty without one
	CheckedAt    *time.Time  // the last proof; nil without one
	FailedDays   int32       // in a row
	FailedAt     *time.Time  // the last failed day that was counted
	LapsedAt     *time.Time  // nil unless it has lapsed
}

// DomainState is the state of a PublisherDomain.
type DomainState string

const (
	DomainWaiting DomainState = "waiting" // never proven
	DomainProven  DomainState = "proven"
	DomainFailing DomainState = "failing" // proven, and its last checks failed
	DomainStale   DomainState = "stale"   // proven, but not checked for ProofLifetime
	DomainLapsed  DomainState = "lapsed"
)

// State returns the state at a time.
func (d *PublisherDomain) State(now time.Time) DomainState {
	switch {
	case d.LapsedAt != nil:
		return DomainLapsed
	case d.CheckedAt == nil:
		return DomainWaiting
	case now.Sub(*d.CheckedAt) >= ProofLifetime:
		return DomainStale
	case d.FailedDays > 0:
		return DomainFailing
	default:
		return DomainProven
	}
}

// Public reports whether the public may see the domain at a time.
func (d *PublisherDomain) Public(now time.Time) bool {
	state := d.State(now)
	return d.Domain.Body != "" && (state == DomainProven || state == DomainFailing)
}

// PublisherName is the name that an organization gives itself. It is not checked.
type PublisherName struct {
	ID           StatementID
	Organization OrganizationID
	Name         Text // empty once erased
	Member       MemberID
	StatedAt     time.Time
}

// DomainRule describes the texts that ParseDomain accepts.
const DomainRule = "must be a registered domain or a name below it, such as transportes.example: no address, no name " +
	"without a dot, no suffix under which others register, and no name of private networks, such as .internal or .local"

// ParseDomain returns a domain in its one spelling: ASCII (IDNA), in lower case, without the root's dot. ok is false
// for text that is no domain which one organization can control.
func ParseDomain(text string) (domain string, ok bool) {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 1000 || !utf8.ValidString(text) {
		return "", false
	}
	domain, err := idna.Lookup.ToASCII(text)
	if err == nil {
		_, err = idna.Registration.ToUnicode(domain) // refuses labels that no registry accepts
	}
	if err != nil || len(domain) > 253-len(PublisherHost)-1 {
		return "", false
	}
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return "", false
		}
	}
	if last := labels[len(labels)-1]; strings.ContainsAny(last[:1], "0123456789") { // also every IPv4 address
		return "", false
	}
	_, err = publicsuffix.EffectiveTLDPlusOne(domain)
	return domain, err == nil && registry(domain)
}

// registry reports whether people register names in the domain's top-level domain. The public suffix list has all of
// those, and arpa and onion, which have other purposes. The name example is reserved for documents (RFC 2606): the
// public DNS has no name below it, so that none is ever proven, and documents and tests may use it.
func registry(domain string) bool {
	switch top := domain[strings.LastIndexByte(domain, '.')+1:]; top {
	case "arpa", "onion":
		return false
	case "example":
		return true
	default:
		_, listed := publicsuffix.PublicSuffix(top)
		return listed
	}
}

// plainLetters are the letters outside ASCII that UnicodeDomain shows. Each looks like no other letter of its size.
const plainLetters = "áéíóúüñçàèìòùâêîôûäëïöåøæßœãõý"

// UnicodeDomain returns the spelling of a domain for readers if it differs and all its characters are ASCII or
// plainLetters. Other letters, also Latin ones, can look like these, so that a reader would take the domain for
// another.
func UnicodeDomain(domain string) string {
	text, err := idna.Registration.ToUnicode(domain)
	if err != nil || text == domain || strings.ContainsFunc(text, func(r rune) bool {
		return r >= utf8.RuneSelf && !strings.ContainsRune(plainLetters, r)
	}) {
		return ""
	}
	return text
}

// PublisherNameRule describes the texts that ValidPublisherName accepts.
const PublisherNameRule = "must be 1 to 200 characters on one line, neither begin nor end with a space, have a " +
	"letter or digit, and have no control character, no invisible one, and none that changes the direction of writing"

// ValidPublisherName reports whether a text can be the name that an organization gives itself. The public pages show
// it, so that it must be visible and keep to its line.
func ValidPublisherName(text string) bool {
	visible, marks := false, 0
	for _, r := range text {
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		if marks > 2 || unicode.Is(unicode.Cf, r) || strings.ContainsRune(blankLetters, r) {
			return false
		}
		visible = visible || unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	return visible && ValidOrganizationName(text)
}

// blankLetters are letters and symbols that look like a space: the fillers of Hangul, and the empty Braille pattern.
const blankLetters = "\u115f\u1160\u3164\uffa0\u2800"

// AddPublisherDomain loads a domain that is not removed.
func (s *Loaded) AddPublisherDomain(d PublisherDomain) { addOnce(&s.publisherDomains, d.ID, d) }

// AddPublisherName loads an organization's name that is not withdrawn.
func (s *Loaded) AddPublisherName(n PublisherName) { addOnce(&s.publisherNames, n.Organization, n) }

// publisherDomain returns a domain of an organization, or nil.
func (s *State) publisherDomain(o OrganizationID, id StatementID) *PublisherDomain {
	if d := s.publisherDomains[id]; d != nil && d.Organization == o {
		return d
	}
	return nil
}

// DomainAddedBody adds a domain, which is not proven yet.
type DomainAddedBody struct {
	StatementID StatementID `json:"statementId"`
	Domain      TextRef     `json:"domain"`
}

func (b *DomainAddedBody) apply(s *State, e *Event) error {
	s.AddPublisherDomain(PublisherDomain{
		ID: b.StatementID, Organization: e.Organization, Domain: e.text(b.Domain), AddedAt: e.OccurredAt,
	})
	return nil
}

// DomainCheckedBody records that a check has proven control of a domain, at the time of the event.
type DomainCheckedBody struct {
	StatementID StatementID `json:"statementId"`
	Method      ProofMethod `json:"method"`
}

func (b *DomainCheckedBody) apply(s *State, e *Event) error {
	if d := s.publisherDomains[b.StatementID]; d != nil {
		d.Method, d.CheckedAt, d.FailedDays, d.FailedAt, d.LapsedAt = b.Method, &e.OccurredAt, 0, nil, nil
	}
	return nil
}

// DomainFailedBody records a day on which a proven domain could not be proven again.
type DomainFailedBody struct {
	StatementID StatementID `json:"statementId"`
	FailedDays  int32       `json:"failedDays"` // in a row, with this one
}

func (b *DomainFailedBody) apply(s *State, e *Event) error {
	if d := s.publisherDomains[b.StatementID]; d != nil {
		d.FailedDays, d.FailedAt = b.FailedDays, &e.OccurredAt
	}
	return nil
}

// DomainLapsedBody ends the proof of a domain.
type DomainLapsedBody struct {
	StatementID StatementID `json:"statementId"`
}

func (b *DomainLapsedBody) apply(s *State, e *Event) error {
	if d := s.publisherDomains[b.StatementID]; d != nil {
		d.LapsedAt = &e.OccurredAt
	}
	return nil
}

// DomainRemovedBody removes a domain.
type DomainRemovedBody struct {
	StatementID StatementID `json:"statementId"`
}

func (b *DomainRemovedBody) apply(s *State, _ *Event) error {
	delete(s.publisherDomains, b.StatementID)
	return nil
}

// PublisherNameDeclaredBody declares the name of an organization. The member has declared that it names no private
// person.
type PublisherNameDeclaredBody struct {
	StatementID     StatementID `json:"statementId"`
	Name            TextRef     `json:"name"`
	MemberID        MemberID    `json:"memberId"`
	NoPrivatePerson bool        `json:"noPrivatePerson"`
}

func (b *PublisherNameDeclaredBody) apply(s *State, e *Event) error {
	delete(s.publisherNames, e.Organization)
	s.AddPublisherName(PublisherName{
		ID: b.StatementID, Organization: e.Organization, Name: e.text(b.Name), Member: b.MemberID, StatedAt: e.OccurredAt,
	})
	return nil
}

// PublisherNameWithdrawnBody withdraws the name of an organization.
type PublisherNameWithdrawnBody struct {
	StatementID StatementID `json:"statementId"`
}

func (b *PublisherNameWithdrawnBody) apply(s *State, e *Event) error {
	if n := s.publisherNames[e.Organization]; n != nil && n.ID == b.StatementID {
		delete(s.publisherNames, e.Organization)
	}
	return nil
}

var errUnknownDomain = Refuse(NotFound, "This organization has no such domain.")

// ErrNoStatementsYet refuses what an organization says about itself while some process may not know such events.
var ErrNoStatementsYet = Refuse(InvalidState,
	"An organization cannot say who it is yet: ask the operator to run integrity upgrade finish.")

// ErrNotOwner refuses a change by anyone but an owner.
var ErrNotOwner = Refuse(RoleRequired, "Only an owner changes what the organization says about itself.")

// ownerOnly refuses everyone but an active owner who has signed in, the operator and the service itself.
func (s *State) ownerOnly(c Origin) error {
	if !c.Actor.Judged() {
		return nil
	}
	if m := s.activeMember(c.Organization, c.Actor.Member()); !c.Console || m == nil || m.Role != Owner {
		return ErrNotOwner
	}
	return nil
}

// mayState refuses a statement by anyone but an owner, or before every process knows the events.
func (s *State) mayState(c Origin) error {
	switch {
	case s.Organization(c.Organization) == nil:
		return errUnknownOrganization
	case !s.Follows(PublisherStatements):
		return ErrNoStatementsYet
	}
	return s.ownerOnly(c)
}

// AddDomain adds a domain that an organization says it controls.
type AddDomain struct {
	Origin
	Domain string

	id     StatementID
	domain Text

	Outcome PublisherDomain
}

func (c *AddDomain) Need(n *Needs) { n.Publishers = append(n.Publishers, c.Organization) }

// Decide implements Command. Two organizations may have the same domain, because each proves it with its own id.
func (c *AddDomain) Decide(s *State, now time.Time) ([]Draft, error) {
	if err := s.mayState(c.Origin); err != nil {
		return nil, err
	}
	domain, ok := ParseDomain(c.Domain)
	if !ok {
		return nil, InvalidMember("/domain", strictjson.CodeFormat, DomainRule)
	}
	count := 0
	for _, d := range s.publisherDomains {
		switch {
		case d.Organization != c.Organization:
			continue
		case d.ID == c.id:
			c.Outcome = *d
			return nil, nil // an earlier attempt of this command: the id is new
		case d.Domain.Body == domain:
			return nil, Refuse(InvalidState, "The organization has this domain already.")
		}
		count++
	}
	if count >= MaxPublisherDomains {
		return nil, Refuse(
			InvalidState, "An organization may have at most %d domains; remove one first.", MaxPublisherDomains,
		)
	}
	c.Outcome = PublisherDomain{
		ID: c.id.draw(now), Organization: c.Organization, Domain: c.domain.draw(now, domain), AddedAt: now,
	}
	return []Draft{{
		Subject: c.id.String(), Texts: []Text{c.domain}, Body: &DomainAddedBody{StatementID: c.id, Domain: c.domain.Ref()},
	}}, nil
}

// RecordDomainCheck records the outcome of a check of a domain.
type RecordDomainCheck struct {
	Origin
	Domain StatementID
	Method ProofMethod // empty if the domain was not proven

	Outcome PublisherDomain
}

func (c *RecordDomainCheck) Need(n *Needs) { n.Publishers = append(n.Publishers, c.Organization) }

// Decide implements Command. A day is recorded once: a proof on the day of a proof changes nothing, and neither does a
// failure less than FailedDay after one. Only a proven domain can fail.
func (c *RecordDomainCheck) Decide(s *State, now time.Time) ([]Draft, error) {
	if err := s.mayState(c.Origin); err != nil {
		return nil, err
	}
	known := s.publisherDomain(c.Organization, c.Domain)
	if known == nil || known.Domain.Body == "" {
		return nil, errUnknownDomain
	}
	c.Outcome = *known
	subject, state := c.Domain.String(), known.State(now)
	if c.Method != "" {
		if state == DomainProven && c.Method == known.Method && sameDay(now, *known.CheckedAt) {
			return nil, nil
		}
		c.Outcome.Method, c.Outcome.CheckedAt, c.Outcome.FailedDays, c.Outcome.LapsedAt = c.Method, &now, 0, nil
		return []Draft{{Subject: subject, Body: &DomainCheckedBody{StatementID: c.Domain, Method: c.Method}}}, nil
	}
	if state == DomainWaiting || state == DomainLapsed || known.FailedAt != nil && now.Sub(*known.FailedAt) < FailedDay {
		return nil, nil
	}
	c.Outcome.FailedDays++
	drafts := []Draft{{
		Subject: subject, Body: &DomainFailedBody{StatementID: c.Domain, FailedDays: c.Outcome.FailedDays},
	}}
	if c.Outcome.FailedDays >= LapseDays {
		c.Outcome.LapsedAt = &now
		drafts = append(drafts, Draft{Subject: subject, Body: &DomainLapsedBody{StatementID: c.Domain}})
	}
	return drafts, nil
}

// sameDay reports whether two times are on the same day of UTC.
func sameDay(a, b time.Time) bool {
	return a.UTC().Truncate(24 * time.Hour).Equal(b.UTC().Truncate(24 * time.Hour))
}

// RemoveDomain removes a domain and erases its text.
type RemoveDomain struct {
	Origin
	Domain StatementID
}

func (c *RemoveDomain) Need(n *Needs) { n.Publishers = append(n.Publishers, c.Organization) }

func (c *RemoveDomain) Decide(s *State, _ time.Time) ([]Draft, error) {
	if err := s.ownerOnly(c.Origin); err != nil {
		return nil, err
	}
	known := s.publisherDomain(c.Organization, c.Domain)
	if known == nil {
		return nil, errUnknownDomain
	}
	return withoutText(known.ended(), known.Domain), nil
}

// ended returns the event that removes the domain.
func (d *PublisherDomain) ended() Draft {
	return Draft{Subject: d.ID.String(), Body: &DomainRemovedBody{StatementID: d.ID}}
}

// withoutText adds the erasure of the text that an event has ended.
func withoutText(end Draft, text Text) []Draft {
	if text.Body == "" {
		return []Draft{end}
	}
	return []Draft{end, erased(end.Subject, []TextID{text.ID})}
}

// DeclareName declares the name that an organization gives itself.
type DeclareName struct {
	Origin
	Name string
	// NoPrivatePerson is the member's declaration that the name names no private person. It is required.
	NoPrivatePerson bool

	id   StatementID
	name Text

	Outcome PublisherName
}

func (c *DeclareName) Need(n *Needs) { n.Publishers = append(n.Publishers, c.Organization) }

// Decide implements Command. A new name ends the former one and erases its text.
func (c *DeclareName) Decide(s *State, now time.Time) ([]Draft, error) {
	if err := s.mayState(c.Origin); err != nil {
		return nil, err
	}
	member := c.Actor.Member()
	switch {
	case member.IsZero(): // neither the operator nor the service can declare it
		return nil, ErrNotOwner
	case !ValidPublisherName(c.Name):
		return nil, InvalidMember("/name", strictjson.CodeFormat, PublisherNameRule)
	case !c.NoPrivatePerson:
		return nil, InvalidMember(
			"/noPrivatePerson", "REQUIRED", "must be true: an owner declares that the name names no private person",
		)
	}
	var drafts []Draft
	if known := s.publisherNames[c.Organization]; known != nil {
		if known.ID == c.id || known.Name.Body == c.Name {
			c.Outcome = *known
			return nil, nil
		}
		drafts = withoutText(known.ended(), known.Name)
	}
	c.Outcome = PublisherName{
		ID: c.id.draw(now), Organization: c.Organization, Name: c.name.draw(now, c.Name), Member: member, StatedAt: now,
	}
	return append(drafts, Draft{
		Subject: c.id.String(), Texts: []Text{c.name},
		Body: &PublisherNameDeclaredBody{
			StatementID: c.id, Name: c.name.Ref(), MemberID: member, NoPrivatePerson: true,
		},
	}), nil
}

// ended returns the event that withdraws the name.
func (n *PublisherName) ended() Draft {
	return Draft{Subject: n.ID.String(), Body: &PublisherNameWithdrawnBody{StatementID: n.ID}}
}

// WithdrawName withdraws the name of an organization and erases its text.
type WithdrawName struct{ Origin }

func (c *WithdrawName) Need(n *Needs) { n.Publishers = append(n.Publishers, c.Organization) }

func (c *WithdrawName) Decide(s *State, _ time.Time) ([]Draft, error) {
	if err := s.ownerOnly(c.Origin); err != nil {
		return nil, err
	}
	known := s.publisherNames[c.Organization]
	if known == nil {
		return nil, nil
	}
	return withoutText(known.ended(), known.Name), nil
}
