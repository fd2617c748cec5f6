package audit

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// apply applies an event to the state, or sets the event aside if it concerns a document or an artifact.
func (c *Checker) apply(e *Event, h *history, v *verdict) error {
	if found := c.known(e); found.Format != "" {
		h.findings.add(finding(e, CheckHistory, found, say.Sentencef("none before it")))
	}
	if err := c.unique(e); err != nil {
		return err
	}
	if id, ok := concerns(e.Body); ok {
		c.skip(e)
		c.aside = appendAside(c.aside[:0], e, v.certificate)
		return c.Parts.Append(partOf(id), c.aside)
	}
	if _, ok := e.Body.(*domain.TextsErasedBody); ok {
		c.skip(e) // the state has no texts, so a search through all members is unnecessary
		return nil
	}
	err := say.Errorf("%d bytes of data", len(e.Data))
	if len(e.Data) <= maxKept {
		err = c.state.Apply(&e.Event)
	}
	if err != nil {
		h.findings.add(finding(
			e, CheckHistory, say.Sentencef("an event that can follow those before it"), say.Sentencef("%v", err),
		))
		c.skip(e)
	}
	return nil
}

// maxKept exceeds the data of any event that the state keeps to the end: events of keys, members, companies and
// destinations. Without it, memory would grow with the length of a history of larger events.
const maxKept = 64 << 10

// known names an object that the event refers to although no event before it created the object.
func (c *Checker) known(e *Event) say.Sentence {
	company := func(reference string, reserved bool) say.Sentence {
		k := c.state.Company(e.Company)
		if k == nil || k.Organization != e.Organization || k.Reference != reference {
			return say.Sentencef("the company %s of that reference", e.Company)
		}
		if k.ClosedAt != nil && !reserved {
			return say.Sentencef("the opening of the closed company %s", e.Company)
		}
		return c.granted(e)
	}
	switch b := e.Body.(type) {
	case *domain.MemberChangedBody:
		return c.member(e, b.MemberID)
	case *domain.MemberInvitedBody:
		if m := c.state.Member(b.MemberID); m != nil && (m.Organization != e.Organization ||
			m.Status != domain.MemberInvited) {
			return say.Sentencef("the member %s, new or invited", b.MemberID)
		}
	case *domain.MemberJoinedBody:
		return c.member(e, b.MemberID)
	case *domain.SignInLinkMadeBody:
		if e.Actor != domain.OperatorActor {
			return say.Sentencef("an act of the operator")
		}
		return c.member(e, b.MemberID)
	case *domain.PasskeyAddedBody:
		if e.Actor != domain.MemberActor(b.MemberID) {
			return say.Sentencef("an act of the member %s, who signs in with the passkey", b.MemberID)
		}
	case *domain.PublisherNameDeclaredBody:
		if e.Actor != domain.MemberActor(b.MemberID) || !b.NoPrivatePerson {
			return say.Sentencef("an act of the member %s, who declares that the name names no private person", b.MemberID)
		}
	case *domain.KeyCreatedBody:
		return c.member(e, b.MemberID)
	case *domain.KeyRevokedBody:
		return c.key(e, b.KeyID)
	case *domain.KeyExpiryChangedBody:
		return c.key(e, b.KeyID)
	case *domain.KeyRenamedBody:
		return c.key(e, b.KeyID)
	case *domain.CompanyStatusChangedBody:
		if k := c.state.Company(e.Company); k == nil || k.Organization != e.Organization || k.Status() == b.Status {
			return say.Sentencef("the company %s of another status", e.Company)
		}
	case *domain.AccessChangedBody:
		if k := c.state.Company(e.Company); k == nil || k.Organization != e.Organization {
			return say.Sentencef("the company %s", e.Company)
		}
		return c.key(e, b.KeyID)
	case *domain.RecordRegisteredBody:
		return company(b.CompanyReference, b.Reserved) // the document's history proves the rest
	case *domain.RecordHealedBody:
		return c.healed(e, company(b.CompanyReference, true)) // the record is older than the company's closing
	case *domain.RecordAliasedBody:
		return c.healed(e, company(b.CompanyReference, true))
	case *domain.VersionReservedBody:
		return company(b.CompanyReference, false)
	case *domain.VersionReleasedBody, *domain.RecordRevokedBody:
		return c.granted(e)
	case *domain.ReviewDeclaredBody:
		return c.member(e, b.MemberID)
	case *domain.ArtifactVersionApprovedBody:
		return c.member(e, b.MemberID)
	case *domain.CertificateIssuedBody:
		return c.member(e, b.MemberID)
	}
	return say.Sentence{}
}

func (c *Checker) member(e *Event, id domain.MemberID) say.Sentence {
	if m := c.state.Member(id); m == nil || m.Organization != e.Organization {
		return say.Sentencef("the member %s", id)
	}
	return say.Sentence{}
}

func (c *Checker) key(e *Event, id domain.KeyID) say.Sentence {
	if k := c.state.Key(id); k == nil || k.Organization != e.Organization {
		return say.Sentencef("the key %s", id)
	}
	return say.Sentence{}
}

// healed checks that the operator healed a record, and returns the finding about its company otherwise.
func (c *Checker) healed(e *Event, company say.Sentence) say.Sentence {
	if e.Actor != domain.OperatorActor {
		return say.Sentencef("an act of the operator")
	}
	return company
}

// granted checks that a key that acted had the grant needed for the event.
func (c *Checker) granted(e *Event) say.Sentence {
	if key := e.Actor.Key(); !key.IsZero() && !c.state.Granted(key, e.Company) {
		return say.Sentencef("the grant of the company to %s", key)
	}
	return say.Sentence{}
}

// concerns returns the id of the document or artifact that an event belongs to.
func concerns(body domain.Body) (id [16]byte, ok bool) {
	switch b := body.(type) {
	case *domain.VersionReservedBody:
		return b.DocumentID, true
	case *domain.VersionReleasedBody:
		return b.DocumentID, true
	case *domain.RecordRegisteredBody:
		return b.DocumentID, true
	case *domain.RecordHealedBody:
		return b.DocumentID, true
	case *domain.RecordAliasedBody:
		return b.DocumentID, true
	case *domain.RecordSupersededBody:
		return b.DocumentID, true
	case *domain.RecordRevokedBody:
		return b.DocumentID, true
	case *domain.ArtifactVersionRegisteredBody:
		return b.ArtifactID, true
	case *domain.AnalysisCompletedBody:
		return b.ArtifactID, true
	case *domain.ReviewDeclaredBody:
		return b.ArtifactID, true
	case *domain.ArtifactVersionApprovedBody:
		return b.ArtifactID, true
	case *domain.CertificateIssuedBody:
		return b.ArtifactID, true
	case *domain.CertificateReplacedBody:
		return b.ArtifactID, true
	case *domain.CertificateRevokedBody:
		return b.ArtifactID, true
	case *domain.ContentErasedBody:
		return b.ArtifactID, true
	}
	return id, false
}

// partOf distributes ids by their last byte, which is random in all of them.
func partOf(id [16]byte) int { return int(id[15]) % PartCount }

// unique sets aside the ids that must be unique in the whole ledger.
func (c *Checker) unique(e *Event) (err error) {
	claim := func(kind claimKind, key [16]byte, means string) {
		if err == nil {
			c.aside = claimed{key, digest(means), e.Organization, e.Sequence, e.ID}.append(append(c.aside[:0], byte(kind)))
			err = c.Parts.Append(partOf(key), c.aside)
		}
	}
	version := func(publicID domain.PublicID, document domain.DocumentID, source, reference string, number int32) {
		of := e.Company.String() + "\x00" + source + "\x00" + reference
		claim(claimDocument, digest(of), document.String())
		claim(claimDocumentID, document, of)
		claim(claimPublicID, publicID, document.String()+"\x00"+strconv.Itoa(int(number)))
	}
	claim(claimEvent, e.ID, e.Organization.String()+"\x00"+strconv.FormatInt(e.Sequence, 10))
	if !c.WithoutTexts {
		for _, ref := range domain.TextRefs(e.Body) {
			claim(claimText, ref.ID, ref.SHA256)
		}
	}
	if b := domain.Registration(e.Body); b != nil {
		claim(claimRecord, b.RecordID, e.ID.String())
		version(b.PublicID, b.DocumentID, b.Source, b.DocumentReference, b.Version)
	}
	switch b := e.Body.(type) {
	case *domain.RecordAliasedBody:
		claim(claimPublicID, b.PublicID, "alias of "+b.AliasOf.String())
	case *domain.VersionReservedBody:
		version(b.PublicID, b.DocumentID, b.Source, b.DocumentReference, b.Version)
	case *domain.CertificateIssuedBody:
		claim(claimPublicID, b.PublicID, b.VersionID.String())
	}
	return err
}

func digest(text string) [16]byte {
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}

// part is the replay of one part: all its documents and artifacts, from their first events.
type part struct {
	state    *domain.State
	findings map[domain.OrganizationID]*findings
	claims   map[claimKey]claimed
	earlier  [claimKinds]earlierClaims
	// next holds the superseded event that must immediately follow a registration.
	next map[domain.DocumentID]superseding
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

// replayParts replays all parts concurrently and returns the number of texts that the history names. It takes their
// results in order. done is called with the number of finished parts.
func (c *Checker) replayParts(done func(parts int)) (texts int64, err error) {
	var mu sync.Mutex // guards the variables below
	turn, through := sync.NewCond(&mu), 0
	spread(PartCount, 1, func(n int) {
		p, failed := c.replayPart(n)
		var saved []byte
		if failed == nil && c.Save != nil {
			saved = p.save()
		}
		mu.Lock()
		defer mu.Unlock()
		for through != n {
			turn.Wait()
		}
		if err == nil && failed == nil && c.Save != nil {
			failed = c.Save(saved)
		}
		if err = cmp.Or(err, failed); err == nil {
			texts += p.texts()
			for id, found := range p.findings {
				c.history(id).findings.merge(found)
			}
			if done != nil {
				done(through + 1)
			}
		}
		through++
		turn.Broadcast()
	})
	return texts, err
}

func (c *Checker) replayPart(n int) (*part, error) {
	p := &part{
		state: domain.NewState(domain.Plans{}), findings: map[domain.OrganizationID]*findings{},
		claims: map[claimKey]claimed{}, next: map[domain.DocumentID]superseding{},
	}
	if err := c.loadPart(p, n); err != nil {
		return nil, err
	}
	if err := readPart(c.Parts.Open(n), p.event, p.claim); err != nil {
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

func (p *part) claim(kind claimKind, c claimed) {
	k := claimKey{kind, c.Key}
	first := say.Sentencef("that of an event up to the mark, which means another")
	means, ok := p.earlier[kind].means(kind, c.Key)
	if known, again := p.claims[k]; again {
		first = say.Sentencef(
			"that of the event of sequence %d of %s, which means another", known.Sequence, known.Organization,
		)
		means, ok = known.Means, true
	}
	switch {
	case !ok:
		p.claims[k] = c
	case means != c.Means:
		p.fail(c.Organization, Finding{
			Check: CheckUnique, Organization: c.Organization.String(), Sequence: c.Sequence, Event: c.ID.String(),
			Expected: say.Sentencef("a %s that means one thing", kind.word()), Found: first,
		})
	}
}

// event replays one event. The organization's own counters are not replayed: they are set so that the state accepts any
// event as the next.
func (p *part) event(e *Event, certificate string) {
	fail := func(expected, found say.Sentence) { p.fail(e.Organization, finding(e, CheckHistory, expected, found)) }
	p.state.AddOrganization(domain.Organization{ID: e.Organization})
	p.state.Organization(e.Organization).Sequence = e.Sequence - 1
	var after func()
	if b := domain.Registration(e.Body); b != nil {
		after = p.registered(e, b, fail)
	}
	switch b := e.Body.(type) {
	case *domain.RecordAliasedBody:
		if i := p.state.Version(b.DocumentID, b.Version); i != nil &&
			(i.Document.Company != e.Company || i.Document.Organization != e.Organization ||
				i.Document.Source != b.Source || i.Document.Reference != b.DocumentReference) {
			fail(
				say.Sentencef("an alias of a version of the event's company and document"), say.Sentencef("one of another"),
			)
		} else if r, err := evidence.ParseRecordPayload(b.Payload); i != nil && err == nil &&
			(r.SHA256 != i.SHA256 || r.SizeBytes != i.SizeBytes || r.MimeType != i.MimeType || r.GeneratedAt != i.GeneratedAt) {
			fail(say.Sentencef("a former receipt of the content that is kept"), say.Sentencef("one of other content"))
		}
	case *domain.VersionReservedBody:
		after = func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
	case *domain.VersionReleasedBody:
		if i := p.state.Version(b.DocumentID, b.Version); i != nil {
			if is := i.Reservation(e.OccurredAt).Status; is != domain.ReservationPending {
				fail(say.Sentencef("a reservation that was pending"), say.Sentencef("one that was %s", is))
			}
		}
		after = func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
	case *domain.RecordSupersededBody:
		p.superseded(e, b, fail)
	case *domain.RecordRevokedBody:
		i := p.state.Version(b.DocumentID, b.Version)
		if i != nil && i.RevokedAt != nil {
			fail(say.Sentencef("a version that was not revoked before"), say.Sentencef("one that was"))
		}
		after = func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
	case *domain.CertificateIssuedBody:
		want := ""
		if v := p.state.ArtifactVersion(b.VersionID); v != nil {
			want = content(v.SHA256, v.SizeBytes)
		}
		if certificate != "" && certificate != want {
			fail(say.Sentencef("a certificate of the version's hash and size %s", want), say.Sentencef("%s", certificate))
		}
	}
	if err := p.state.Apply(&e.Event); err != nil {
		fail(say.Sentencef("an event that can follow those before it"), say.Sentencef("%v", err))
		return
	}
	if after != nil {
		after()
	}
}

// registered checks the event's status against the highest earlier version, and expects the former current version to
// be superseded.
func (p *part) registered(e *Event, b *domain.RecordRegisteredBody, fail func(expected, found say.Sentence)) func() {
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
		fail(say.Sentencef("status %s by the versions before it", status), say.Sentencef("%s", b.Status))
	}
	return func() { p.sameDocument(e, b.DocumentID, b.Version, fail) }
}

// superseded checks that the event follows the registration that caused it.
func (p *part) superseded(e *Event, b *domain.RecordSupersededBody, fail func(expected, found say.Sentence)) {
	want, ok := p.next[b.DocumentID]
	delete(p.next, b.DocumentID)
	found := superseding{
		sequence: e.Sequence, version: int64(b.Version), by: int64(b.ByVersion), subject: e.Subject, event: want.event,
	}
	if !ok || found != want || want.event.Company != e.Company {
		fail(
			say.Sentencef(
				"integrity.superseded only of the version that was current, right after a higher one was registered",
			),
			say.Sentencef("another"),
		)
	}
}

// expectNext reports a missing superseded event.
func (p *part) expectNext(id domain.DocumentID) {
	if want, ok := p.next[id]; ok {
		delete(p.next, id)
		f := finding(
			want.event, CheckHistory, say.Sentencef("integrity.superseded of version %d next", want.version),
			say.Sentencef("none"),
		)
		f.Sequence, f.Event, f.Position, f.Shard = want.sequence, "", 0, nil
		p.fail(want.event.Organization, f)
	}
}

// sameDocument checks, after an event of a version, that the version belongs to the
// event's document and company, and the event to the version's public id.
func (p *part) sameDocument(e *Event, id domain.DocumentID, version int32, fail func(expected, found say.Sentence)) {
	i := p.state.Version(id, version)
	switch {
	case i == nil:
		fail(say.Sentencef("the document of that reference"), say.Sentencef("another document's id, %s", id))
	case i.Document.Company != e.Company || i.Document.Organization != e.Organization:
		fail(say.Sentencef("the document's company %s", i.Document.Company), say.Sentencef("%s", e.Company))
	case i.PublicID.String() != e.Subject:
		fail(say.Sentencef("the version's publicId %s as subject", i.PublicID), say.Sentencef("%q", e.Subject))
	}
}

// The records of a part: events of documents and artifacts, and claims of ids, in the order of the history. Each begins
// with its kind. asideEvent is the kind of an event.
const asideEvent = 0

// claimKind is the kind of thing that an id identifies.
type claimKind byte

const (
	claimEvent      claimKind = iota + 1 // an event's id: one event
	claimRecord                          // a record's id: one registration
	claimPublicID                        // a publicId: one version or certificate
	claimDocument                        // company, source and reference: one document
	claimText                            // a text's id: one salted hash
	claimDocumentID                      // a document's id: one company, source and reference
	claimKinds
)

func (k claimKind) word() say.Word {
	return [...]say.Word{"", "event id", "record id", "publicId", "document reference", "text id", "document id"}[k]
}

// claimed assigns a meaning to a key; equal keys must have equal meanings. Its fields are written in order, after its
// kind.
type claimed struct {
	Key, Means   [16]byte
	Organization domain.OrganizationID
	Sequence     int64
	ID           domain.EventID
}

const claimedSize = 3*16 + 8 + 16

func (c claimed) append(dst []byte) []byte {
	dst = append(append(append(dst, c.Key[:]...), c.Means[:]...), c.Organization[:]...)
	return append(binary.BigEndian.AppendUint64(dst, uint64(c.Sequence)), c.ID[:]...)
}

func readClaimed(r io.Reader) (c claimed, err error) {
	var b [claimedSize]byte
	_, err = io.ReadFull(r, b[:])
	copy(c.Key[:], b[:])
	copy(c.Means[:], b[16:])
	copy(c.Organization[:], b[32:])
	c.Sequence = int64(binary.BigEndian.Uint64(b[48:]))
	copy(c.ID[:], b[56:])
	return c, err
}

// asideHead is the length of the fixed part of a set-aside event, after its kind: three ids, three 64-bit and two
// 16-bit numbers, and the lengths of the following type, subject, certified content, and data.
const asideHead = 3*16 + 3*8 + 2*2 + 4*4

// appendAside appends the members of an event that the replay of its part needs. certificate is the content that a
// certificate was signed for.
func appendAside(dst []byte, e *Event, certificate string) []byte {
	dst = append(dst, asideEvent)
	dst = append(append(append(dst, e.Organization[:]...), e.ID[:]...), e.Company[:]...)
	for _, n := range [...]int64{e.Sequence, e.Position, e.OccurredAt.UnixMicro()} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.Shard))
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.V))
	for _, n := range [...]int{len(e.Type), len(e.Subject), len(certificate), len(e.Data)} {
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	}
	return append(append(append(append(dst, e.Type...), e.Subject...), certificate...), e.Data...)
}

func readAside(r io.Reader) (e Event, certificate string, err error) {
	var h [asideHead]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return e, "", err
	}
	var texts [4][]byte
	for i := range texts {
		texts[i] = make([]byte, binary.BigEndian.Uint32(h[76+4*i:]))
		if _, err := io.ReadFull(r, texts[i]); err != nil {
			return e, "", err
		}
	}
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(h[at:])) }
	e.Event = domain.Event{
		Organization: domain.OrganizationID(h[:16]), ID: domain.EventID(h[16:32]), Company: domain.CompanyID(h[32:48]),
		Sequence: number(48), Position: number(56),
		OccurredAt: time.UnixMicro(number(64)).UTC(), Shard: domain.Shard(binary.BigEndian.Uint16(h[72:])),
		V:    int16(binary.BigEndian.Uint16(h[74:])),
		Type: domain.EventType(texts[0]), Subject: string(texts[1]), Data: texts[3],
	}
	e.Body, err = domain.DecodeBody(e.Type, e.V, e.Data)
	return e, string(texts[2]), err
}

// readPart calls event or claim for everything in a part.
func readPart(part io.Reader, event func(*Event, string), claim func(claimKind, claimed)) error {
	r := bufio.NewReaderSize(part, 1<<14)
	for {
		kind, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && kind == asideEvent {
			var e Event
			var certificate string
			if e, certificate, err = readAside(r); err == nil {
				event(&e, certificate)
			}
		} else if err == nil {
			var c claimed
			if c, err = readClaimed(r); err == nil {
				claim(claimKind(kind), c)
			}
		}
		if err != nil {
			return say.Errorf("read back what was set aside: %w", err)
		}
	}
}
