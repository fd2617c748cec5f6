package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"integrityledger/domain/strictjson"
)

// TextRule describes the texts that ValidText accepts.
const TextRule = strictjson.TextRule

// ValidText reports whether the ledger can store a text. PostgreSQL refuses any other text, together with the whole
// statement.
func ValidText(text string) bool { return strictjson.ValidText(text) }

// ValidName reports whether a text can be the name of something: 1 to most characters on one line, none of which is a
// control character or changes the direction of writing.
func ValidName(text string, most int) bool {
	return text != "" && utf8.ValidString(text) && utf8.RuneCountInString(text) <= most &&
		!strings.ContainsFunc(text, misleading)
}

// misleading characters break a line or change how the rest of it reads.
func misleading(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// Text is free text or an address that an operator can erase later. Events name it by Ref and never hold it.
type Text struct {
	ID   TextID
	Salt [16]byte
	Body string
}

// TextRef is an event's reference to a Text: its id and SHA-256(salt || body), so that an auditor can distinguish
// "erased" from "tampered".
type TextRef struct {
	ID     TextID `json:"id"`
	SHA256 string `json:"sha256"`
}

// NewText returns a text with a new id and salt.
func NewText(now time.Time, body string) Text {
	t := Text{ID: NewID[TextID](now), Body: body}
	rand.Read(t.Salt[:])
	return t
}

// draw creates a text from the body once, so that a repeated decision gets the same text.
func (t *Text) draw(now time.Time, body string) Text {
	if t.ID.IsZero() {
		*t = NewText(now, body)
	}
	return *t
}

// Ref returns the text's id and salted hash.
func (t Text) Ref() TextRef {
	sum := sha256.Sum256(append(t.Salt[:], t.Body...))
	return TextRef{ID: t.ID, SHA256: hex.EncodeToString(sum[:])}
}

// text returns the text of a reference in a new event, without a body if the event is replayed.
func (e *Event) text(ref TextRef) Text {
	for _, t := range e.Texts {
		if t.ID == ref.ID {
			return t
		}
	}
	return Text{ID: ref.ID}
}

// optionalText returns the text of a reference that may be missing.
func (e *Event) optionalText(ref *TextRef) *Text {
	if ref == nil {
		return nil
	}
	return new(e.text(*ref))
}

// TypesWithTexts lists the types of events that name texts.
func TypesWithTexts() []EventType {
	return slices.DeleteFunc(EventTypes(), func(t EventType) bool { return !t.NamesTexts() })
}

// TextRefs returns all texts that an event names, erasable or not.
func TextRefs(body Body) []TextRef {
	var list []TextRef
	if k := rowByBody[reflect.TypeOf(body)]; k != nil && k.texts != nil {
		for _, ref := range k.texts(body) {
			list = append(list, *ref)
		}
	}
	return list
}

// ErasableTexts returns the erasable texts that an event names. The signed bytes of a certificate that publishes
// nothing contain no personal data and are not included.
func ErasableTexts(body Body) []TextRef {
	if b, ok := body.(*CertificateIssuedBody); ok && len(b.PublicFields) == 0 {
		return nil
	}
	return TextRefs(body)
}

// EraseTexts permanently erases texts. Only their ids and salted hashes remain in the log, which reveal nothing about
// them.
type EraseTexts struct {
	Origin
	Subject string // the id of the object they belong to
	Texts   []TextID
}

func (c *EraseTexts) Need(n *Needs) {
	if member, err := ParseID[MemberID](c.Subject); err == nil {
		n.addMember(c.Organization, member, "")
	}
	if _, err := ParseID[WebhookID](c.Subject); err == nil {
		n.Webhooks = append(n.Webhooks, c.Organization)
	}
	if _, err := ParseID[StatementID](c.Subject); err == nil {
		n.Publishers = append(n.Publishers, c.Organization)
	}
}

// Decide implements Command. A membership must have ended, because a member without an address could still act. An
// active destination is disabled, because nothing can be sent to an erased address. Its owner must set a new one or
// delete it. A statement about the organization is ended.
func (c *EraseTexts) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	var drafts []Draft
	if id, err := ParseID[MemberID](c.Subject); err == nil {
		if m := s.memberNamed(c.Organization, id, ""); m != nil && m.Status != MemberEnded {
			return nil, Refuse(
				InvalidState, "This membership is %s; end it first with: integrity member end --organization %s --member %s",
				m.Status, c.Organization, id,
			)
		}
	}
	if id, err := ParseID[WebhookID](c.Subject); err == nil {
		if w := s.webhook(c.Organization, id); w != nil && w.Status == WebhookActive && w.URL.Body != "" {
			body := w.updated()
			body.Status = WebhookDisabled
			drafts = append(drafts, Draft{Subject: c.Subject, Body: body})
		}
	}
	if id, err := ParseID[StatementID](c.Subject); err == nil {
		if d := s.publisherDomain(c.Organization, id); d != nil {
			drafts = append(drafts, d.ended())
		} else if n := s.publisherNames[c.Organization]; n != nil && n.ID == id {
			drafts = append(drafts, n.ended())
		}
	}
	return append(drafts, erased(c.Subject, c.Texts)), nil
}

// erased returns the event that erases texts of a subject.
func erased(subject string, texts []TextID) Draft {
	return Draft{Subject: subject, Body: &TextsErasedBody{Subject: subject, Texts: texts}}
}

// TextsErasedBody records the texts of a subject that were erased.
type TextsErasedBody struct {
	Subject string   `json:"subject"`
	Texts   []TextID `json:"texts"`
}

// apply removes the texts from the state.
func (b *TextsErasedBody) apply(s *State, _ *Event) error {
	texts := make(map[TextID]bool, len(b.Texts))
	for _, id := range b.Texts {
		texts[id] = true
	}
	erased := func(id TextID) bool { return texts[id] }
	for _, m := range s.members {
		if erased(m.EmailID) {
			m.Email = ""
		}
	}
	for _, w := range s.webhooks {
		if erased(w.URL.ID) {
			w.URL.Body = ""
		}
		if w.Description != nil && erased(w.Description.ID) {
			w.Description = nil
		}
	}
	maps.DeleteFunc(s.titles, func(_ ArtifactVersionID, title Text) bool { return erased(title.ID) })
	maps.DeleteFunc(s.names, func(_ OrganizationID, name Text) bool { return erased(name.ID) })
	maps.DeleteFunc(s.keyNames, func(_ KeyID, name Text) bool { return erased(name.ID) })
	return nil
}
