package audit

import (
	"crypto/sha256"
	"strconv"

	"integrityledger/domain"
)

// apply takes the state past an event, or sets the event aside where it concerns a document or an artifact.
func (c *Checker) apply(e *Event, h *history, v *verdict) error {
	if found := c.known(e); found != "" {
		h.findings.add(finding(e, CheckHistory, found, "none before it"))
	}
	if err := c.unique(e); err != nil {
		return err
	}
	if id, ok := concerns(e.Body); ok {
		c.skip(e)
		return c.Parts.Append(partOf(id), aside(e, v.certificate))
	}
	if err := c.state.Apply(&e.Event); err != nil {
		h.findings.add(finding(e, CheckHistory, "an event that can follow those before it", err.Error()))
		c.skip(e)
	}
	return nil
}

// known names what an event refers to and no event before it has made.
func (c *Checker) known(e *Event) string {
	company := func(reference string) string {
		k := c.state.Company(e.Company)
		if k == nil || k.Organization != e.Organization || k.Reference != reference {
			return "the company " + e.Company.String() + " of that reference"
		}
		return c.granted(e)
	}
	switch b := e.Body.(type) {
	case *domain.MemberChangedBody:
		return c.member(e, b.MemberID)
	case *domain.KeyCreatedBody:
		return c.member(e, b.MemberID)
	case *domain.KeyRevokedBody:
		return c.key(e, b.KeyID)
	case *domain.KeyExpiryChangedBody:
		return c.key(e, b.KeyID)
	case *domain.AccessChangedBody:
		if k := c.state.Company(e.Company); k == nil || k.Organization != e.Organization {
			return "the company " + e.Company.String()
		}
		return c.key(e, b.KeyID)
	case *domain.RecordRegisteredBody:
		return company(b.CompanyReference)
	case *domain.VersionReservedBody:
		return company(b.CompanyReference)
	case *domain.RecordRevokedBody:
		return c.granted(e)
	case *domain.ReviewDeclaredBody:
		return c.member(e, b.MemberID)
	case *domain.ArtifactVersionApprovedBody:
		return c.member(e, b.MemberID)
	case *domain.CertificateIssuedBody:
		return c.member(e, b.MemberID)
	}
	return ""
}

func (c *Checker) member(e *Event, id domain.MemberID) string {
	if m := c.state.Member(id); m == nil || m.Organization != e.Organization {
		return "the member " + id.String()
	}
	return ""
}

func (c *Checker) key(e *Event, id domain.KeyID) string {
	if k := c.state.Key(id); k == nil || k.Organization != e.Organization {
		return "the key " + id.String()
	}
	return ""
}

// granted asks for the grant that was needed for what the event says, where a key acted.
func (c *Checker) granted(e *Event) string {
	if key, err := domain.ParseID[domain.KeyID](e.Actor); err == nil && !c.state.Granted(key, e.Company) {
		return "the grant of the company to " + e.Actor
	}
	return ""
}

// concerns is the id of the document or artifact that an event belongs to.
func concerns(body domain.Body) (id [16]byte, ok bool) {
	switch b := body.(type) {
	case *domain.VersionReservedBody:
		return b.DocumentID, true
	case *domain.RecordRegisteredBody:
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

// partOf spreads by the last byte, which is random in every id that it is asked for.
func partOf(id [16]byte) int { return int(id[15]) % PartCount }

// unique sets aside what must mean one thing in the whole ledger.
func (c *Checker) unique(e *Event) (err error) {
	claim := func(kind claimKind, key [16]byte, means string) {
		if err == nil {
			err = c.Parts.Append(partOf(key), claimed{kind, key, digest(means), e.Organization, e.Sequence, e.ID}.bytes())
		}
	}
	version := func(publicID domain.PublicID, document domain.DocumentID, source, reference string, number int32) {
		claim(claimDocument, digest(e.Company.String()+"\x00"+source+"\x00"+reference), document.String())
		claim(claimPublicID, publicID, document.String()+"\x00"+strconv.Itoa(int(number)))
	}
	claim(claimEvent, e.ID, e.Organization.String()+"\x00"+strconv.FormatInt(e.Sequence, 10))
	if !c.WithoutTexts {
		for _, ref := range domain.TextRefs(e.Body) {
			claim(claimText, ref.ID, ref.SHA256)
		}
	}
	switch b := e.Body.(type) {
	case *domain.RecordRegisteredBody:
		publicID, _ := domain.ParsePublicID(b.Record.PublicID) // read strictly with the event
		claim(claimRecord, b.RecordID, e.ID.String())
		version(publicID, b.DocumentID, b.Source, b.DocumentReference, b.Version)
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
