package domain

import (
	"io"
	"slices"
	"time"
)

// MaxRetentionDays is the longest that bytes are kept.
const MaxRetentionDays = 3650

// ChangeRetention sets how long the bytes of what is registered from now on are
// kept. What is kept already is erased when it was to be.
type ChangeRetention struct {
	Origin
	Days int32

	drawn []Drawn
}

// NewChangeRetention prepares a change; 0 days keeps nothing.
func NewChangeRetention(origin Origin, days int32, now time.Time, random io.Reader) (*ChangeRetention, error) {
	drawn, err := Draw(now, random, 1)
	return &ChangeRetention{Origin: origin, Days: days, drawn: drawn}, err
}

// Need implements Command.
func (c *ChangeRetention) Need(*Needs) {}

// Decide implements Command.
func (c *ChangeRetention) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, organizationNotFound()
	}
	if c.Days < 0 || c.Days > MaxRetentionDays {
		return nil, Invalid([]FieldError{{Pointer: "/retention", Code: "RANGE", Message: "must be none, or days:N with N from 1 to 3650"}})
	}
	return []Draft{{Drawn: c.drawn[0], Subject: c.Organization.String(), Body: &RetentionChangedBody{Days: c.Days}}}, nil
}

// AddCredits adds a file credit pack: registrations of artifacts beyond the
// month's allowance, until they are used. Hash-only quotas know nothing of them.
type AddCredits struct {
	Origin
	Credits int64

	drawn []Drawn

	Balance int64 // the outcome
}

// NewAddCredits prepares a pack.
func NewAddCredits(origin Origin, credits int64, now time.Time, random io.Reader) (*AddCredits, error) {
	drawn, err := Draw(now, random, 1)
	return &AddCredits{Origin: origin, Credits: credits, drawn: drawn}, err
}

// Need implements Command.
func (c *AddCredits) Need(n *Needs) {
	n.Certification.Accounts = append(n.Certification.Accounts, c.Organization)
}

// maxCredits bounds the balance, so that it can always be counted.
const maxCredits = 1_000_000_000

// Decide implements Command.
func (c *AddCredits) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, organizationNotFound()
	}
	balance := s.certification.account(c.Organization).Credits
	if c.Credits < 1 || c.Credits > maxCredits-balance {
		return nil, Invalid([]FieldError{{Pointer: "/credits", Code: "RANGE", Message: "must be at least 1, and the balance at most 1000000000"}})
	}
	c.Balance = balance + c.Credits
	return []Draft{{Drawn: c.drawn[0], Subject: c.Organization.String(), Body: &CreditsAddedBody{Credits: c.Credits}}}, nil
}

// EraseTexts erases texts for ever. What remains in the log are their ids and
// salted hashes, which tell nothing about them.
type EraseTexts struct {
	Origin
	Subject string // the id of what they belong to
	Texts   []TextID

	drawn []Drawn
}

// NewEraseTexts prepares an erasure.
func NewEraseTexts(origin Origin, subject string, texts []TextID, now time.Time, random io.Reader) (*EraseTexts, error) {
	drawn, err := Draw(now, random, 2)
	return &EraseTexts{Origin: origin, Subject: subject, Texts: texts, drawn: drawn}, err
}

// Need implements Command.
func (c *EraseTexts) Need(n *Needs) {
	if _, err := ParseID[MemberID](c.Subject); err == nil {
		n.Members = append(n.Members, c.Organization)
	}
	if _, err := ParseID[WebhookID](c.Subject); err == nil {
		n.Webhooks = append(n.Webhooks, c.Organization)
	}
}

// Decide implements Command. A membership must have ended: a member without an address
// could still act. A destination that still receives is disabled, for nothing can
// be sent to an address that is gone; its owner gives it a new one, or deletes it.
func (c *EraseTexts) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, organizationNotFound()
	}
	var drafts []Draft
	if id, err := ParseID[MemberID](c.Subject); err == nil {
		if m := s.memberNamed(c.Organization, id, ""); m != nil && m.Status != MemberEnded {
			return nil, Refuse(InvalidState, "This membership is %s; end it first with: integrity member end --organization %s --member %s", m.Status, c.Organization, id)
		}
	}
	if id, err := ParseID[WebhookID](c.Subject); err == nil {
		if w := s.webhook(c.Organization, id); w != nil && w.Status == WebhookActive && w.URL.Body != "" {
			body := w.updated()
			body.Status = WebhookDisabled
			drafts = append(drafts, Draft{Drawn: c.drawn[1], Subject: c.Subject, Body: body})
		}
	}
	return append(drafts, erased(c.drawn[0], c.Subject, c.Texts)), nil
}

// erased is the event that erases texts of a subject.
func erased(seed Drawn, subject string, texts []TextID) Draft {
	return Draft{Drawn: seed, Subject: subject, Body: &TextsErasedBody{Subject: subject, Texts: texts}}
}

// EraseContent records that the kept bytes of a version are gone from the blob store.
type EraseContent struct {
	Origin
	Version ArtifactVersionID

	drawn []Drawn
}

// NewEraseContent prepares the record.
func NewEraseContent(origin Origin, version ArtifactVersionID, now time.Time, random io.Reader) (*EraseContent, error) {
	drawn, err := Draw(now, random, 1)
	return &EraseContent{Origin: origin, Version: version, drawn: drawn}, err
}

// Need implements Command.
func (c *EraseContent) Need(n *Needs) {
	n.Certification.Versions = append(n.Certification.Versions, c.Version)
}

// Decide implements Command. Of bytes that were never committed, or were erased
// before, there is nothing to say.
func (c *EraseContent) Decide(s *State, _ time.Time) ([]Draft, error) {
	version := s.certification.versions[c.Version]
	if version == nil || version.Artifact.Organization != c.Organization || !version.Retained {
		return nil, nil
	}
	return []Draft{{
		Drawn: c.drawn[0], Subject: c.Version.String(), Body: &ContentErasedBody{ArtifactID: version.Artifact.ID, VersionID: c.Version},
	}}, nil
}

// TypesWithTexts are the types of events that name texts.
func TypesWithTexts() []EventType {
	return []EventType{
		OrganizationCreated, MemberAdded, WebhookCreated, WebhookUpdated, RecordRevoked, ArtifactVersionRegistered, ReviewDeclared,
		ArtifactVersionApproved, CertificateIssued, CertificateRevoked,
	}
}

// ErasableTexts are the texts that an event names. The signed bytes of a
// certificate that publishes nothing hold no words of anybody, and are not among them.
func ErasableTexts(body Body) []TextRef {
	switch b := body.(type) {
	case *OrganizationCreatedBody:
		return []TextRef{b.Name}
	case *MemberAddedBody:
		return []TextRef{b.Email}
	case *WebhookCreatedBody:
		return destinationTexts(b.URL, b.Description)
	case *WebhookUpdatedBody:
		return destinationTexts(b.URL, b.Description)
	case *RecordRevokedBody:
		if b.Reason != nil {
			return []TextRef{*b.Reason}
		}
	case *ArtifactVersionRegisteredBody:
		if b.FileName != nil {
			return []TextRef{b.Title, *b.FileName}
		}
		return []TextRef{b.Title}
	case *ReviewDeclaredBody:
		return []TextRef{b.Statement}
	case *ArtifactVersionApprovedBody:
		return []TextRef{b.Statement}
	case *CertificateIssuedBody:
		if len(b.PublicFields) > 0 {
			return []TextRef{b.Payload}
		}
	case *CertificateRevokedBody:
		return []TextRef{b.Reason}
	}
	return nil
}

func destinationTexts(url TextRef, description *TextRef) []TextRef {
	if description != nil {
		return []TextRef{url, *description}
	}
	return []TextRef{url}
}

// TextRefs are all the texts that an event names, erasable or not.
func TextRefs(body Body) []TextRef {
	if b, ok := body.(*CertificateIssuedBody); ok {
		return []TextRef{b.Payload}
	}
	return ErasableTexts(body)
}

// NamesTexts reports whether events of the type may name texts.
func NamesTexts(t EventType) bool { return slices.Contains(TypesWithTexts(), t) }
