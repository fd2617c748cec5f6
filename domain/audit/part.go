package audit

import (
	"fmt"
	"io"
	"strconv"
	"sync"

	"integrityledger/domain"
)

// part is the replay of one part: of every document and artifact whose events are in it, from its first event.
type part struct {
	state    *domain.State
	findings map[domain.OrganizationID]*findings
	claims   map[claimKey]claimed
	texts    int64
	// next is the superseded event that must follow a registration at once.
	next map[domain.DocumentID]superseding
	// contents is what each version of an artifact is of: hash and size.
	contents map[domain.ArtifactVersionID]string
}

type claimKey struct {
	kind claimKind
	key  [16]byte
}

type superseding struct {
	sequence, version, by int64
	subject               string
	event                 *Event
}

// replayParts replays all parts, several at a time, and returns how many texts the
// history names. done is called with how many parts are through.
func (c *Checker) replayParts(done func(parts int)) (texts int64, err error) {
	var mu sync.Mutex // of all that follows
	through := 0
	Spread(PartCount, func(n int) {
		p, failed := replayPart(c.Parts.Open(n))
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			err = failed
			return
		}
		texts += p.texts
		for id, found := range p.findings {
			h := c.history(id)
			h.findings.count += found.count - int64(len(found.all))
			h.findings.add(found.all...)
		}
		through++
		if done != nil {
			done(through)
		}
	})
	return texts, err
}

func replayPart(r io.Reader) (*part, error) {
	p := &part{
		state: domain.NewState(domain.Plans{}), findings: map[domain.OrganizationID]*findings{}, claims: map[claimKey]claimed{},
		next: map[domain.DocumentID]superseding{}, contents: map[domain.ArtifactVersionID]string{},
	}
	if err := readPart(r, p.event, p.claim); err != nil {
		return nil, err
	}
	for id := range p.next {
		p.expectNext(id)
	}
	return p, nil
}

func (p *part) fail(id domain.OrganizationID, f Finding) {
	if p.findings[id] == nil {
		p.findings[id] = &findings{}
	}
	p.findings[id].add(f)
}

func (p *part) claim(c claimed) {
	k := claimKey{c.kind, c.key}
	known, ok := p.claims[k]
	if !ok {
		p.claims[k] = c
		if c.kind == claimText {
			p.texts++
		}
		return
	}
	if known.means != c.means {
		p.fail(c.organization, Finding{
			Check: CheckUnique, Organization: c.organization.String(), Sequence: c.sequence, Event: c.id.String(),
			Expected: "a " + c.kind.String() + " that means one thing",
			Found:    fmt.Sprintf("that of the event of sequence %d of %s, which means another", known.sequence, known.organization),
		})
	}
}

// event replays one event. The organization's own counters are no part of it: they
// are set so that the state takes any event as the next.
func (p *part) event(e *Event, certificate string) {
	fail := func(expected, found string) { p.fail(e.Organization, finding(e, CheckHistory, expected, found)) }
	p.state.AddOrganization(domain.Organization{ID: e.Organization})
	p.state.Organization(e.Organization).Sequence = e.Sequence - 1
	var after func()
	switch b := e.Body.(type) {
	case *domain.RecordRegisteredBody:
		after = p.registered(e, b, fail)
	case *domain.VersionReservedBody:
		after = func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
	case *domain.RecordSupersededBody:
		p.superseded(e, b, fail)
	case *domain.RecordRevokedBody:
		i := p.state.Version(b.DocumentID, b.Version)
		if i != nil && i.RevokedAt != nil {
			fail("a version that was not revoked before", "one that was")
		}
		after = func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
	case *domain.ArtifactVersionRegisteredBody:
		p.contents[b.VersionID] = b.SHA256 + "/" + strconv.FormatInt(b.SizeBytes, 10)
	case *domain.CertificateIssuedBody:
		if want := p.contents[b.VersionID]; certificate != "" && certificate != want {
			fail("a certificate of the version's hash and size "+want, certificate)
		}
	}
	if err := p.state.Apply(&e.Event); err != nil {
		fail("an event that can follow those before it", err.Error())
		return
	}
	if after != nil {
		after()
	}
}

// registered checks the status that the event says, by the highest version before it,
// and expects the former current version to be superseded.
func (p *part) registered(e *Event, b *domain.RecordRegisteredBody, fail func(expected, found string)) func() {
	p.expectNext(b.DocumentID)
	status := domain.StatusCurrent
	if d := p.state.Document(e.Company, b.Source, b.DocumentReference); d != nil && d.Highest > 0 {
		switch {
		case d.Highest > b.Version:
			status = domain.StatusSuperseded
		case !d.HighestRevoked:
			p.next[b.DocumentID] = superseding{e.Sequence + 1, int64(d.Highest), int64(b.Version), d.HighestPublicID.String(), e}
		}
	}
	if b.Status != status {
		fail("status "+string(status)+" by the versions before it", string(b.Status))
	}
	return func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
}

// superseded checks that it follows the registration that caused it.
func (p *part) superseded(e *Event, b *domain.RecordSupersededBody, fail func(expected, found string)) {
	want, ok := p.next[b.DocumentID]
	delete(p.next, b.DocumentID)
	found := superseding{sequence: e.Sequence, version: int64(b.Version), by: int64(b.ByVersion), subject: e.Subject, event: want.event}
	if !ok || found != want || want.event.Company != e.Company {
		fail("integrity.superseded only of the version that was current, right after a higher one was registered", "another")
	}
}

// expectNext finds that a superseded event did not come.
func (p *part) expectNext(id domain.DocumentID) {
	if want, ok := p.next[id]; ok {
		delete(p.next, id)
		f := finding(want.event, CheckHistory, fmt.Sprintf("integrity.superseded of version %d next", want.version), "none")
		f.Sequence, f.Event, f.Position, f.Shard = want.sequence, "", 0, nil
		p.fail(want.event.Organization, f)
	}
}

// sameDocument checks, after an event of a version, that the version belongs to the
// event's document and company, and the event to the version's public id.
func (p *part) sameDocument(e *Event, id domain.DocumentID, version int32, fail func(expected, found string)) {
	i := p.state.Version(id, version)
	switch {
	case i == nil:
		fail("the document of that reference", "another document's id, "+id.String())
	case i.Document.Company != e.Company || i.Document.Organization != e.Organization:
		fail("the document's company "+i.Document.Company.String(), e.Company.String())
	case i.PublicID.String() != e.Subject:
		fail("the version's publicId "+i.PublicID.String()+" as subject", strconv.Quote(e.Subject))
	}
}
