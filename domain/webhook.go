package domain

import (
	"slices"
	"time"
)

// Limits of webhook destinations (contract section 5).
const (
	MaxWebhooks           = 50 // of an organization
	MaxWebhooksPerCompany = 20
	MaxSecretOverlap      = 7 * 24 * time.Hour
	DefaultSecretOverlap  = 24 * time.Hour
)

// WebhookTypes are the kinds of events that a destination can receive, which are
// those of the change feed, in the order of their bits in a WebhookMask.
func WebhookTypes() []EventType {
	return []EventType{RecordRegistered, RecordSuperseded, RecordRevoked}
}

// WebhookMask is a set of WebhookTypes: bit i stands for the ith.
type WebhookMask int16

// MaskOf is the set of the given types; those that are no WebhookTypes are left out.
func MaskOf(types []EventType) WebhookMask {
	var m WebhookMask
	for i, t := range WebhookTypes() {
		if slices.Contains(types, t) {
			m |= 1 << i
		}
	}
	return m
}

// Types lists the set in the order of WebhookTypes.
func (m WebhookMask) Types() []EventType {
	types := []EventType{}
	for i, t := range WebhookTypes() {
		if m&(1<<i) != 0 {
			types = append(types, t)
		}
	}
	return types
}

// WebhookStatus tells whether anything is sent to a destination.
type WebhookStatus string

// Only an active destination is sent anything.
const (
	WebhookActive   WebhookStatus = "active"
	WebhookDisabled WebhookStatus = "disabled"
)

// DisableReason is why the service disabled a destination by itself.
type DisableReason string

// Reasons (contract section 5).
const (
	DisabledGone    DisableReason = "gone"    // it answered 410
	DisabledFailing DisableReason = "failing" // five days of nothing but failures
)

// Webhook is a destination of deliveries. Its address and description are
// erasable texts: an address may hold a token or a name.
type Webhook struct {
	ID             WebhookID
	Organization   OrganizationID
	URL            Text
	Description    *Text
	Types          WebhookMask
	Status         WebhookStatus
	DisabledReason *DisableReason // nil: by the organization itself, or not at all
	Secret         []byte         // sealed
	PreviousSecret []byte         // sealed; what it was before the last rotation
	PreviousUntil  *time.Time     // signatures carry the previous secret too until then
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// WebhookCreatedBody adds an active destination.
type WebhookCreatedBody struct {
	WebhookID   WebhookID   `json:"webhookId"`
	URL         TextRef     `json:"url"`
	Description *TextRef    `json:"description"`
	Types       []EventType `json:"types"`
	Secret      []byte      `json:"secret"` // sealed (SecretKey)
}

// WebhookUpdatedBody replaces everything that an organization can change about a
// destination but its secret.
type WebhookUpdatedBody struct {
	WebhookID   WebhookID     `json:"webhookId"`
	URL         TextRef       `json:"url"`
	Description *TextRef      `json:"description"`
	Types       []EventType   `json:"types"`
	Status      WebhookStatus `json:"status"`
}

// WebhookSecretRotatedBody replaces the secret; the former one still signs besides until PreviousUntil.
type WebhookSecretRotatedBody struct {
	WebhookID     WebhookID `json:"webhookId"`
	Secret        []byte    `json:"secret"` // sealed
	PreviousUntil time.Time `json:"previousUntil"`
}

// WebhookDisabledBody says that the service disabled a destination by itself.
type WebhookDisabledBody struct {
	WebhookID WebhookID     `json:"webhookId"`
	Reason    DisableReason `json:"reason"`
}

// WebhookDeletedBody ends a destination with all its authorizations.
type WebhookDeletedBody struct {
	WebhookID WebhookID `json:"webhookId"`
}

// WebhookAccessBody authorizes a destination for the event's company, or takes that back.
type WebhookAccessBody struct {
	WebhookID WebhookID `json:"webhookId"`
	Enabled   bool      `json:"enabled"`
}

func (*WebhookCreatedBody) eventType() EventType       { return WebhookCreated }
func (*WebhookUpdatedBody) eventType() EventType       { return WebhookUpdated }
func (*WebhookSecretRotatedBody) eventType() EventType { return WebhookSecretRotated }
func (*WebhookDisabledBody) eventType() EventType      { return WebhookAutoDisabled }
func (*WebhookDeletedBody) eventType() EventType       { return WebhookDeleted }
func (*WebhookAccessBody) eventType() EventType        { return CompanyWebhookChanged }

func (b *WebhookCreatedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *WebhookUpdatedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *WebhookSecretRotatedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *WebhookDisabledBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *WebhookDeletedBody) appendCanonical(dst []byte) ([]byte, error)  { return appendJCS(dst, b) }
func (b *WebhookAccessBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }

// UnknownWebhook answers an unknown destination and one of another organization alike.
func UnknownWebhook() *Error {
	return Refuse(NotFound, "This organization has no webhook destination with that id.")
}

// webhook finds a destination of an organization that was not deleted, or nil.
func (s *State) webhook(o OrganizationID, id WebhookID) *Webhook {
	if w := s.webhooks[id]; w != nil && w.Organization == o {
		return w
	}
	return nil
}

// AddWebhook loads a destination that was not deleted.
func (s *State) AddWebhook(w Webhook) {
	if s.webhooks[w.ID] == nil {
		s.webhooks[w.ID] = &w
	}
}

// AddWebhookAccess loads that a destination is authorized for a company.
func (s *State) AddWebhookAccess(company CompanyID, webhook WebhookID) {
	if s.authorized[company] == nil {
		s.authorized[company] = map[WebhookID]bool{}
	}
	s.authorized[company][webhook] = true
}

// applyWebhook brings the destinations past one event; others leave it alone.
// What was never loaded is not there to be changed.
func (s *State) applyWebhook(e *Event) {
	switch b := e.Body.(type) {
	case *WebhookCreatedBody:
		w := Webhook{
			ID: b.WebhookID, Organization: e.Organization, URL: e.text(b.URL), Types: MaskOf(b.Types), Status: WebhookActive,
			Secret: b.Secret, CreatedAt: e.OccurredAt, UpdatedAt: e.OccurredAt,
		}
		if b.Description != nil {
			text := e.text(*b.Description)
			w.Description = &text
		}
		s.AddWebhook(w)
	case *WebhookUpdatedBody:
		if w := s.webhooks[b.WebhookID]; w != nil {
			if b.URL.ID != w.URL.ID {
				w.URL = e.text(b.URL)
			}
			switch {
			case b.Description == nil:
				w.Description = nil
			case w.Description == nil || w.Description.ID != b.Description.ID:
				text := e.text(*b.Description)
				w.Description = &text
			}
			w.Types, w.Status, w.DisabledReason, w.UpdatedAt = MaskOf(b.Types), b.Status, nil, e.OccurredAt
		}
	case *WebhookSecretRotatedBody:
		if w := s.webhooks[b.WebhookID]; w != nil {
			until := b.PreviousUntil
			w.PreviousSecret, w.Secret, w.PreviousUntil, w.UpdatedAt = w.Secret, b.Secret, &until, e.OccurredAt
		}
	case *WebhookDisabledBody:
		if w := s.webhooks[b.WebhookID]; w != nil {
			reason := b.Reason
			w.Status, w.DisabledReason, w.UpdatedAt = WebhookDisabled, &reason, e.OccurredAt
		}
	case *WebhookDeletedBody:
		delete(s.webhooks, b.WebhookID)
		for company := range s.authorized {
			delete(s.authorized[company], b.WebhookID)
		}
	case *WebhookAccessBody:
		if b.Enabled {
			s.AddWebhookAccess(e.Company, b.WebhookID)
			if c := s.companies[e.Company]; c != nil {
				c.HasWebhooks = true
			}
		} else {
			delete(s.authorized[e.Company], b.WebhookID)
		}
	}
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
