package domain

import (
	"bytes"
	"slices"
	"time"

	"integrityledger/domain/strictjson"
)

// AddressBlocked is the reason of a failed delivery if the service may not connect to the receiver's address.
const AddressBlocked = "ADDRESS_BLOCKED"

// BlockedAddressRemedy tells an operator how to allow webhooks to addresses that are refused by default.
const BlockedAddressRemedy = "For trying it out, serve --demo sends to http and https addresses of the service's " +
	"own machine, " +
	"and INTEGRITY_WEBHOOK_ALLOW_INSECURE=true, a setting of its operator, to every address."

// Limits of webhook destinations (contract section 5).
const (
	MaxWebhooks           = 50 // of an organization
	MaxWebhooksPerCompany = 20
	MaxSecretOverlap      = 7 * 24 * time.Hour
	DefaultSecretOverlap  = 24 * time.Hour
)

// WebhookTypes lists the types of events that a destination can receive. They are the events of the change feed, in the
// order of their bits in a WebhookMask.
func WebhookTypes() []EventType {
	return []EventType{RecordRegistered, RecordSuperseded, RecordRevoked}
}

// WebhookMask is a set of WebhookTypes: bit i stands for the ith.
type WebhookMask int16

// MaskOf returns the set of the given types. It ignores other types.
func MaskOf(types []EventType) WebhookMask {
	var m WebhookMask
	for i, t := range WebhookTypes() {
		if slices.Contains(types, t) {
			m |= 1 << i
		}
	}
	return m
}

// Types returns the set in the order of WebhookTypes.
func (m WebhookMask) Types() []EventType {
	types := []EventType{}
	for i, t := range WebhookTypes() {
		if m&(1<<i) != 0 {
			types = append(types, t)
		}
	}
	return types
}

// WebhookStatus is the status of a destination.
type WebhookStatus string

// Only an active destination receives anything.
const (
	WebhookActive   WebhookStatus = "active"
	WebhookDisabled WebhookStatus = "disabled"
)

// DisableReason is the reason why the service disabled a destination.
type DisableReason string

// Reasons (contract section 5).
const (
	DisabledGone    DisableReason = "gone"    // it answered 410
	DisabledFailing DisableReason = "failing" // only failures for five days
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
	DisabledReason *DisableReason // nil if the organization disabled it, or if it is not disabled
	Secret         []byte         // sealed
	PreviousSecret []byte         // sealed; the secret before the last rotation
	PreviousUntil  *time.Time     // until then the previous secret signs, too
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

func (b *WebhookCreatedBody) apply(s *State, e *Event) error {
	s.AddWebhook(Webhook{
		ID: b.WebhookID, Organization: e.Organization, URL: e.text(b.URL), Description: e.optionalText(b.Description),
		Types:  MaskOf(b.Types),
		Status: WebhookActive, Secret: b.Secret, CreatedAt: e.OccurredAt, UpdatedAt: e.OccurredAt,
	})
	return nil
}

// WebhookUpdatedBody replaces all changeable data of a destination except its secret.
type WebhookUpdatedBody struct {
	WebhookID   WebhookID     `json:"webhookId"`
	URL         TextRef       `json:"url"`
	Description *TextRef      `json:"description"`
	Types       []EventType   `json:"types"`
	Status      WebhookStatus `json:"status"`
}

func (b *WebhookUpdatedBody) apply(s *State, e *Event) error {
	w := s.webhooks[b.WebhookID]
	if w == nil { // the organization's destinations were not loaded
		return nil
	}
	if b.URL.ID != w.URL.ID {
		w.URL = e.text(b.URL)
	}
	if b.Description == nil || w.Description == nil || w.Description.ID != b.Description.ID {
		w.Description = e.optionalText(b.Description)
	}
	w.Types, w.Status, w.DisabledReason, w.UpdatedAt = MaskOf(b.Types), b.Status, nil, e.OccurredAt
	return nil
}

// WebhookSecretRotatedBody replaces the secret. The previous one also signs until PreviousUntil.
type WebhookSecretRotatedBody struct {
	WebhookID     WebhookID `json:"webhookId"`
	Secret        []byte    `json:"secret"` // sealed
	PreviousUntil time.Time `json:"previousUntil"`
}

func (b *WebhookSecretRotatedBody) apply(s *State, e *Event) error {
	if w := s.webhooks[b.WebhookID]; w != nil {
		w.PreviousSecret, w.Secret, w.PreviousUntil, w.UpdatedAt = w.Secret, b.Secret, new(b.PreviousUntil), e.OccurredAt
	}
	return nil
}

// WebhookSecretReencryptedBody replaces the sealed form of a destination's secrets after a rotation of the service's
// key. The secrets stay the same.
type WebhookSecretReencryptedBody struct {
	WebhookID      WebhookID `json:"webhookId"`
	Secret         []byte    `json:"secret"`         // sealed
	PreviousSecret []byte    `json:"previousSecret"` // sealed; null unless it still signs
}

func (b *WebhookSecretReencryptedBody) apply(s *State, _ *Event) error {
	if w := s.webhooks[b.WebhookID]; w != nil {
		w.Secret, w.PreviousSecret = b.Secret, b.PreviousSecret
		if b.PreviousSecret == nil {
			w.PreviousUntil = nil
		}
	}
	return nil
}

// WebhookDisabledBody records that the service disabled a destination.
type WebhookDisabledBody struct {
	WebhookID WebhookID     `json:"webhookId"`
	Reason    DisableReason `json:"reason"`
}

func (b *WebhookDisabledBody) apply(s *State, e *Event) error {
	if w := s.webhooks[b.WebhookID]; w != nil {
		w.Status, w.DisabledReason, w.UpdatedAt = WebhookDisabled, new(b.Reason), e.OccurredAt
	}
	return nil
}

// WebhookDeletedBody ends a destination with all its authorizations.
type WebhookDeletedBody struct {
	WebhookID WebhookID `json:"webhookId"`
}

func (b *WebhookDeletedBody) apply(s *State, _ *Event) error {
	delete(s.webhooks, b.WebhookID)
	for company := range s.authorized[b.WebhookID] {
		s.destinations[company]--
	}
	delete(s.authorized, b.WebhookID)
	return nil
}

// WebhookAccessBody authorizes a destination for the event's company, or revokes the authorization.
type WebhookAccessBody struct {
	WebhookID WebhookID `json:"webhookId"`
	Enabled   bool      `json:"enabled"`
}

func (b *WebhookAccessBody) apply(s *State, e *Event) error {
	if !b.Enabled {
		if companies := s.authorized[b.WebhookID]; companies[e.Company] {
			delete(companies, e.Company)
			s.destinations[e.Company]--
		}
		return nil
	}
	s.AddWebhookAccess(e.Company, b.WebhookID)
	if c := s.companies[e.Company]; c != nil {
		c.HasWebhooks = true
	}
	return nil
}

// webhook returns a destination of an organization, or nil if it does not exist or was deleted.
func (s *State) webhook(o OrganizationID, id WebhookID) *Webhook {
	if w := s.webhooks[id]; w != nil && w.Organization == o {
		return w
	}
	return nil
}

// AddWebhookAccess loads the authorization of a destination for a company.
func (s *Loaded) AddWebhookAccess(company CompanyID, webhook WebhookID) {
	companies := s.authorized[webhook]
	if companies[company] {
		return
	}
	companies.put(company, true)
	s.authorized.put(webhook, companies)
	s.destinations.put(company, s.destinations[company]+1)
}

// Limits of a destination's description.
const (
	MaxWebhookDescription  = 200
	WebhookDescriptionRule = "must be at most 200 characters on one line, without control characters and characters " +
		"that change " +
		"the direction of writing"
)

// checkDescription refuses an invalid description. It may be empty.
func checkDescription(text string) error {
	if text != "" && !ValidName(text, MaxWebhookDescription) {
		return InvalidMember("/description", strictjson.CodeFormat, WebhookDescriptionRule)
	}
	return nil
}

// CreateWebhook adds a destination. It receives nothing until it is authorized for a company.
type CreateWebhook struct {
	Origin
	URL         string // checked with webhooks.EgressPolicy.CheckURL
	Description string // may be empty
	Types       WebhookMask

	id               WebhookID
	url, description Text
	secret           []byte

	Outcome Webhook
}

// NewCreateWebhook generates the destination's id and secret and returns the secret, which is shown once.
func NewCreateWebhook(c CreateWebhook, key SecretKey, now time.Time) (command *CreateWebhook, secret string) {
	c.id = NewID[WebhookID](now)
	secret, c.secret = key.newSecret(c.id)
	return &c, secret
}

func (c *CreateWebhook) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

func (c *CreateWebhook) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	if known := s.webhooks[c.id]; known != nil {
		c.Outcome = *known
		return nil, nil // an earlier attempt of this command: the id is new
	}
	if err := checkDescription(c.Description); err != nil {
		return nil, err
	}
	count := 0
	for _, w := range s.webhooks {
		if w.Organization == c.Organization {
			count++
		}
	}
	if count >= MaxWebhooks {
		return nil, Refuse(
			WebhookLimit, "The organization has 50 webhook destinations and may have no more; delete one first.",
		)
	}
	texts := []Text{c.url.draw(now, c.URL)}
	body := &WebhookCreatedBody{WebhookID: c.id, URL: c.url.Ref(), Types: c.Types.Types(), Secret: c.secret}
	c.Outcome = Webhook{
		ID: c.id, Organization: c.Organization, URL: c.url, Types: c.Types, Status: WebhookActive,
		Secret: c.secret, CreatedAt: now, UpdatedAt: now,
	}
	if c.Description != "" {
		texts = append(texts, c.description.draw(now, c.Description))
		body.Description, c.Outcome.Description = new(c.description.Ref()), &c.description
	}
	return []Draft{{Subject: c.id.String(), Body: body, Texts: texts}}, nil
}

// UpdateWebhook changes a destination. Nil members stay unchanged.
type UpdateWebhook struct {
	Origin
	Webhook     WebhookID
	URL         *string
	Description *string // empty removes it
	Types       *WebhookMask
	Status      *WebhookStatus

	url, description Text

	Outcome Webhook
}

func (c *UpdateWebhook) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

// Decide implements Command. A command that changes nothing causes no event. Replaced texts are erased with the change.
func (c *UpdateWebhook) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.webhook(c.Organization, c.Webhook)
	if known == nil {
		return nil, ErrUnknownWebhook
	}
	if c.Description != nil {
		if err := checkDescription(*c.Description); err != nil {
			return nil, err
		}
	}
	after := *known
	if known.URL.Body == "" && c.URL == nil {
		return nil, Refuse(InvalidState, "The address of this destination was erased; give it a new one.")
	}
	if known.Description != nil && known.Description.Body == "" { // erased
		after.Description = nil
	}
	var texts []Text
	if c.URL != nil && *c.URL != known.URL.Body {
		after.URL = c.url.draw(now, *c.URL)
		texts = append(texts, after.URL)
	}
	cleared := false
	switch {
	case c.Description == nil:
	case *c.Description == "":
		after.Description, cleared = nil, known.Description != nil
	case known.Description == nil || known.Description.Body != *c.Description:
		after.Description = new(c.description.draw(now, *c.Description))
		texts = append(texts, *after.Description)
	}
	if c.Types != nil {
		after.Types = *c.Types
	}
	if c.Status != nil {
		after.Status, after.DisabledReason = *c.Status, nil
	}
	if texts == nil && !cleared && after.Types == known.Types && after.Status == known.Status &&
		after.DisabledReason == known.DisabledReason {
		c.Outcome = *known
		return nil, nil
	}
	after.UpdatedAt = now
	c.Outcome = after
	drafts := []Draft{{Subject: c.Webhook.String(), Body: after.updated(), Texts: texts}}
	kept := after.texts()
	replaced := slices.DeleteFunc(known.texts(), func(id TextID) bool { return slices.Contains(kept, id) })
	if len(replaced) > 0 {
		drafts = append(drafts, erased(c.Webhook.String(), replaced))
	}
	return drafts, nil
}

// updated returns the event's body with all changeable data of the destination.
func (w *Webhook) updated() *WebhookUpdatedBody {
	b := &WebhookUpdatedBody{WebhookID: w.ID, URL: w.URL.Ref(), Types: w.Types.Types(), Status: w.Status}
	if w.Description != nil && w.Description.Body != "" {
		b.Description = new(w.Description.Ref())
	}
	return b
}

// texts returns the texts of a destination that are not erased.
func (w *Webhook) texts() []TextID {
	var ids []TextID
	if w.URL.Body != "" {
		ids = append(ids, w.URL.ID)
	}
	if w.Description != nil && w.Description.Body != "" {
		ids = append(ids, w.Description.ID)
	}
	return ids
}

// RotateSecret gives a destination a new secret. The previous one also signs until the overlap ends.
type RotateSecret struct {
	Origin
	Webhook WebhookID
	Overlap time.Duration

	secret []byte

	Outcome Webhook
}

// NewRotateSecret generates a secret and returns it. It is shown once.
func NewRotateSecret(c RotateSecret, key SecretKey) (command *RotateSecret, secret string) {
	secret, c.secret = key.newSecret(c.Webhook)
	return &c, secret
}

func (c *RotateSecret) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

func (c *RotateSecret) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.webhook(c.Organization, c.Webhook)
	if known == nil {
		return nil, ErrUnknownWebhook
	}
	until := now.Add(c.Overlap)
	c.Outcome = *known
	c.Outcome.Secret, c.Outcome.PreviousSecret, c.Outcome.PreviousUntil, c.Outcome.UpdatedAt = c.secret, known.Secret,
		&until, now
	body := &WebhookSecretRotatedBody{WebhookID: c.Webhook, Secret: c.secret, PreviousUntil: until}
	return []Draft{{Subject: c.Webhook.String(), Body: body}}, nil
}

// ReencryptWebhook seals the secrets of a destination with another key of the service.
type ReencryptWebhook struct {
	Origin
	from Webhook
	body WebhookSecretReencryptedBody

	Changed bool // the outcome
}

// NewReencryptWebhook seals the secrets of w with the first key. It returns an error if no key opens them. A previous
// secret that no longer signs is dropped.
func NewReencryptWebhook(by Origin, w Webhook, keys SecretKeys, now time.Time) (*ReencryptWebhook, error) {
	c := &ReencryptWebhook{Origin: by, from: w, body: WebhookSecretReencryptedBody{WebhookID: w.ID}}
	secret, err := keys.Open(w.ID, w.Secret)
	if err != nil {
		return nil, err
	}
	c.body.Secret = keys[0].Seal(w.ID, secret)
	if w.PreviousUntil != nil && w.PreviousUntil.After(now) {
		if secret, err = keys.Open(w.ID, w.PreviousSecret); err != nil {
			return nil, err
		}
		c.body.PreviousSecret = keys[0].Seal(w.ID, secret)
	}
	return c, nil
}

func (c *ReencryptWebhook) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

// Decide implements Command. It changes nothing if the destination was deleted or its secrets were replaced since they
// were read.
func (c *ReencryptWebhook) Decide(s *State, _ time.Time) ([]Draft, error) {
	known := s.webhook(c.Organization, c.from.ID)
	c.Changed = known != nil && bytes.Equal(known.Secret, c.from.Secret) &&
		bytes.Equal(known.PreviousSecret, c.from.PreviousSecret)
	if !c.Changed {
		return nil, nil
	}
	return []Draft{{Subject: c.from.ID.String(), Body: &c.body}}, nil
}

// DisableWebhook lets the service disable a destination that cannot be delivered to.
type DisableWebhook struct {
	Origin
	Webhook WebhookID
	Reason  DisableReason
}

func (c *DisableWebhook) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

// Decide implements Command. It does not change a destination that was deleted or is already disabled.
func (c *DisableWebhook) Decide(s *State, _ time.Time) ([]Draft, error) {
	known := s.webhook(c.Organization, c.Webhook)
	if known == nil || known.Status == WebhookDisabled {
		return nil, nil
	}
	return []Draft{{Subject: c.Webhook.String(), Body: &WebhookDisabledBody{WebhookID: c.Webhook, Reason: c.Reason}}}, nil
}

// DeleteWebhook ends a destination with all its authorizations.
type DeleteWebhook struct {
	Origin
	Webhook WebhookID
}

func (c *DeleteWebhook) Need(n *Needs) { n.Webhooks = append(n.Webhooks, c.Organization) }

// Decide implements Command. The texts of the destination are erased with it.
func (c *DeleteWebhook) Decide(s *State, _ time.Time) ([]Draft, error) {
	known := s.webhook(c.Organization, c.Webhook)
	if known == nil {
		return nil, ErrUnknownWebhook
	}
	drafts := []Draft{{Subject: c.Webhook.String(), Body: &WebhookDeletedBody{WebhookID: c.Webhook}}}
	if texts := known.texts(); len(texts) > 0 {
		drafts = append(drafts, erased(c.Webhook.String(), texts))
	}
	return drafts, nil
}

// SetWebhookAccess authorizes a destination for a company or revokes the authorization.
type SetWebhookAccess struct {
	Origin
	Company CompanyID
	Webhook WebhookID
	Enabled bool

	idle bool // revokes an authorization that the destination does not have

	UpdatedAt time.Time // the outcome
}

func (c *SetWebhookAccess) Need(n *Needs) {
	n.CompanyIDs = append(n.CompanyIDs, c.Company)
	n.Webhooks = append(n.Webhooks, c.Organization)
	n.CompanyWebhooks = append(n.CompanyWebhooks, c.Company)
}

// Decide implements Command. Ids of another organization count as unknown. Every call causes an event, so that
// updatedAt and the history agree.
func (c *SetWebhookAccess) Decide(s *State, now time.Time) ([]Draft, error) {
	company := s.companies[c.Company]
	if company == nil || company.Organization != c.Organization {
		return nil, ErrUnknownCompany
	}
	if s.webhook(c.Organization, c.Webhook) == nil {
		return nil, ErrUnknownWebhook
	}
	authorized := s.authorized[c.Webhook][c.Company]
	if c.Enabled && !authorized && s.destinations[c.Company] >= MaxWebhooksPerCompany {
		return nil, Refuse(
			WebhookLimit, "The company has 20 authorized webhook destinations and may have no more; take one back first.",
		)
	}
	c.UpdatedAt, c.idle = now, !c.Enabled && !authorized
	return []Draft{
		{Company: c.Company, Subject: c.Webhook.String(), Body: &WebhookAccessBody{WebhookID: c.Webhook, Enabled: c.Enabled}},
	}, nil
}
