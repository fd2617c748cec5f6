package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"
)

// Text is free text or an address that an operator can erase later. Events name
// it by Ref and never hold it.
type Text struct {
	ID   TextID
	Salt [16]byte
	Body string
}

// TextRef is how an event names a Text: its id and SHA-256(salt || body), so that
// an auditor tells "erased" from "tampered".
type TextRef struct {
	ID     TextID `json:"id"`
	SHA256 string `json:"sha256"`
}

// NewText draws the id and salt of a text.
func NewText(now time.Time, random io.Reader, body string) (Text, error) {
	id, err := NewID[TextID](now, random)
	if err != nil {
		return Text{}, err
	}
	t := Text{ID: id, Body: body}
	if _, err := io.ReadFull(random, t.Salt[:]); err != nil {
		return Text{}, fmt.Errorf("random bytes for a text: %w", err)
	}
	return t, nil
}

// Ref is the text's name and salted hash.
func (t Text) Ref() TextRef {
	sum := sha256.Sum256(append(t.Salt[:], t.Body...))
	return TextRef{ID: t.ID, SHA256: hex.EncodeToString(sum[:])}
}

// text is the text that a new event brings for a reference; without a body where the event is replayed.
func (e *Event) text(ref TextRef) Text {
	for _, t := range e.Texts {
		if t.ID == ref.ID {
			return t
		}
	}
	return Text{ID: ref.ID}
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

// TextsErasedBody says which texts an operator erased, for which subject.
type TextsErasedBody struct {
	Subject string   `json:"subject"`
	Texts   []TextID `json:"texts"`
}

// forget drops erased texts from the state.
func (s *State) forget(texts []TextID) {
	erased := map[TextID]bool{}
	for _, id := range texts {
		erased[id] = true
	}
	for _, m := range s.members {
		if erased[m.EmailID] {
			m.Email = ""
		}
	}
	for _, w := range s.webhooks {
		if erased[w.URL.ID] {
			w.URL.Body = ""
		}
		if w.Description != nil && erased[w.Description.ID] {
			w.Description = nil
		}
	}
	for version, title := range s.certification.titles {
		if erased[title.ID] {
			delete(s.certification.titles, version)
		}
	}
	for organization, name := range s.certification.names {
		if erased[name.ID] {
			delete(s.certification.names, organization)
		}
	}
}
