package domain

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// APIKey is a credential of a member.
type APIKey struct {
	ID           KeyID
	Organization OrganizationID
	Member       MemberID
	Scopes       []Scope
	KeyLimits
	CreatedBy Actor
	CreatedAt time.Time
	ExpiresAt time.Time
	RevokedAt *time.Time
}

// Key lifetimes (contract section 1).
const (
	DefaultKeyLifetime = 365 * 24 * time.Hour
	MaxKeyLifetime     = 730 * 24 * time.Hour
	MinKeyLifetime     = time.Hour
)

// MaxKeyOverlap is the longest time that the former key may work after a rotation.
const MaxKeyOverlap = 30 * 24 * time.Hour

// KeyWarning is how long before its end the service points out a key.
const KeyWarning = 30 * 24 * time.Hour

// MaxKeyNetworks is the maximum number of networks of an API key.
const MaxKeyNetworks = 16

// MaxKeyCompanies is the maximum number of companies granted to an API key by the command that creates it.
const MaxKeyCompanies = 100

// MaxCopiedGrants is the largest number of grants that a rotation copies, unless the operator requests it.
const MaxCopiedGrants = 1000

// Limits of an API key's name.
const (
	MaxKeyName  = 100
	KeyNameRule = "must be 1 to 100 characters on one line, without a control character and without one that " +
		"changes the direction of writing"
)

// ValidKeyName reports whether a text may be the name of an API key.
func ValidKeyName(name string) bool {
	return ValidName(name, MaxKeyName)
}

// KeyLimits are the limits of an API key for declarations. They are fixed when the key is created, so the values read
// by authentication are still valid when the group decides.
type KeyLimits struct {
	Source *string `json:"source"` // the only source that the key may declare; nil: any
	// the network from which it may be used, checked only by authentication; nil: any
	Network        *string `json:"network"`
	MaxVersionStep *int32  `json:"maxVersionStep"` // maximum step above the document's highest version; nil: any
	// all networks if there are several; Network is the first
	Networks []string `json:"networks,omitempty"`
}

// AllNetworks lists the networks from which the key may be used; empty means any.
func (l KeyLimits) AllNetworks() []string {
	if l.Networks == nil && l.Network != nil {
		return []string{*l.Network}
	}
	return l.Networks
}

// from returns the limits with other networks.
func (l KeyLimits) from(networks []string) KeyLimits {
	l.Network, l.Networks = nil, nil
	if len(networks) > 0 {
		l.Network = &networks[0]
	}
	if len(networks) > 1 {
		l.Networks = networks
	}
	return l
}

// KeyCreatedBody adds an API key. The secret itself is never stored.
type KeyCreatedBody struct {
	KeyID        KeyID     `json:"keyId"`
	MemberID     MemberID  `json:"memberId"`
	SecretSHA256 []byte    `json:"secretSha256"`
	Scopes       []Scope   `json:"scopes"`
	ExpiresAt    time.Time `json:"expiresAt"`
	KeyLimits
	Name *TextRef `json:"name,omitempty"` // since version 2, as are several networks
}

func (b *KeyCreatedBody) apply(s *State, e *Event) error {
	s.AddKey(APIKey{
		ID: b.KeyID, Organization: e.Organization, Member: b.MemberID, Scopes: b.Scopes, KeyLimits: b.KeyLimits,
		CreatedBy: e.Actor, CreatedAt: e.OccurredAt, ExpiresAt: b.ExpiresAt,
	})
	if name := e.optionalText(b.Name); name != nil {
		s.AddKeyName(b.KeyID, *name)
	}
	s.activeKeys.put(e.Organization, s.activeKeys[e.Organization]+1)
	return nil
}

// KeyRenamedBody gives an API key another name.
type KeyRenamedBody struct {
	KeyID KeyID   `json:"keyId"`
	Name  TextRef `json:"name"`
}

func (b *KeyRenamedBody) apply(s *State, e *Event) error {
	delete(s.keyNames, b.KeyID)
	s.AddKeyName(b.KeyID, e.text(b.Name))
	return nil
}

// KeyExpiryChangedBody moves the end of an API key.
type KeyExpiryChangedBody struct {
	KeyID     KeyID     `json:"keyId"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func (b *KeyExpiryChangedBody) apply(s *State, _ *Event) error {
	if k := s.keys[b.KeyID]; k != nil {
		k.ExpiresAt = b.ExpiresAt
	}
	return nil
}

// KeyRevokedBody ends an API key.
type KeyRevokedBody struct {
	KeyID KeyID `json:"keyId"`
}

func (b *KeyRevokedBody) apply(s *State, e *Event) error {
	if k := s.keys[b.KeyID]; k != nil {
		if k.RevokedAt == nil {
			s.activeKeys.put(e.Organization, s.activeKeys[e.Organization]-1)
		}
		k.RevokedAt = new(e.OccurredAt)
	}
	return nil
}

// CreateKey adds an API key of a member, and grants it companies.
type CreateKey struct {
	Origin
	Member    MemberID
	Email     string // where Member is zero
	Name      string // empty: none
	Scopes    []Scope
	Lifetime  time.Duration
	ExpiresAt time.Time // where Lifetime is 0; see keyEnd
	KeyLimits
	Companies []string // references

	id           KeyID
	secretSHA256 [32]byte
	name         Text

	Outcome APIKey
}

// NewCreateKey draws the key's id and secret, and returns the text that is shown once.
func NewCreateKey(c CreateKey, now time.Time) (command *CreateKey, text string) {
	c.id = NewKeyID(now, c.Organization.Shard())
	text, c.secretSHA256 = NewAPIKey(c.id)
	return &c, text
}

func (c *CreateKey) Need(n *Needs) {
	n.addMember(c.Organization, c.Member, c.Email)
	n.ActiveKeys = append(n.ActiveKeys, c.Organization)
	n.Keys = append(n.Keys, c.id)
	for _, reference := range c.Companies {
		n.Companies = append(n.Companies, CompanyNeed{c.Organization, reference})
	}
}

// Decide implements Command. A scope that the member's role may not use is refused, and what the acting key lacks.
func (c *CreateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	if known := s.keys[c.id]; known != nil {
		c.Outcome = *known
		return nil, nil // an earlier attempt of this very command: the id is fresh
	}
	member := s.memberNamed(c.Organization, c.Member, c.Email)
	if member == nil || member.Status != MemberActive {
		return nil, errUnknownActiveMember
	}
	if err := cmp.Or(s.mayChange(c.Origin, member.Role), s.mayHaveKey(c.Organization)); err != nil {
		return nil, err
	}
	if err := cmp.Or(s.mayActAs(c.Origin, member.ID, c.Scopes), checkScopes(member.Role, c.Scopes)); err != nil {
		return nil, err
	}
	if c.Name != "" && !ValidKeyName(c.Name) {
		return nil, InvalidMember("/name", strictjson.CodeLength, KeyNameRule)
	}
	limits, err := c.check()
	if err != nil {
		return nil, err
	}
	acting := s.actingKey(c.Origin)
	end, err := acting.keyEnd(c.Lifetime, c.ExpiresAt, now)
	if err != nil {
		return nil, err
	}
	c.Outcome = APIKey{
		ID: c.id, Organization: c.Organization, Member: member.ID, Scopes: c.Scopes, KeyLimits: limits,
		CreatedBy: c.Actor, CreatedAt: now, ExpiresAt: end,
	}
	if err := acting.confine(&c.Outcome, len(c.Companies) > 0); err != nil {
		return nil, err
	}
	grants, err := c.grants(s)
	if err != nil {
		return nil, err
	}
	created := c.Outcome.created(c.secretSHA256)
	if c.Name != "" {
		created.Texts = []Text{c.name.draw(now, c.Name)}
		created.Body.(*KeyCreatedBody).Name = new(c.name.Ref())
	}
	return append([]Draft{created}, grants...), nil
}

// MaxActiveKeys is how many keys of an organization may work at once.
const MaxActiveKeys = 1000

// mayHaveKey refuses one more key.
func (s *State) mayHaveKey(o OrganizationID) error {
	if s.activeKeys[o] >= MaxActiveKeys {
		return Refuse(
			InvalidState,
			"An organization may have at most %d API keys that work; revoke one first. A rotation without overlap needs no "+
				"room.",
			MaxActiveKeys,
		)
	}
	return nil
}

// grants drafts the grants of the named companies.
func (c *CreateKey) grants(s *State) (drafts []Draft, err error) {
	if len(c.Companies) > MaxKeyCompanies {
		return nil, InvalidMember(
			"/companies", strictjson.CodeLength,
			"must name at most %d companies; grant further ones one by one", MaxKeyCompanies,
		)
	}
	var fields []FieldError
	for i, reference := range c.Companies {
		company := s.CompanyByReference(c.Organization, reference)
		if company == nil {
			fields = append(fields, strictjson.NewProblem(
				fmt.Sprintf("/companies/%d", i), "UNKNOWN",
				"must be the reference of a company of the organization; no company has %q", reference,
			))
			continue
		}
		drafts = append(drafts, grantOf(company.ID, c.id))
	}
	if fields != nil {
		return nil, Invalid(fields)
	}
	return drafts, nil
}

func grantOf(company CompanyID, key KeyID) Draft {
	return Draft{Company: company, Subject: key.String(), Body: &AccessChangedBody{KeyID: key, Enabled: true}}
}

// created returns the event that adds the key.
func (k *APIKey) created(secretSHA256 [32]byte) Draft {
	return Draft{Subject: k.ID.String(), Body: &KeyCreatedBody{
		KeyID: k.ID, MemberID: k.Member, SecretSHA256: secretSHA256[:], Scopes: k.Scopes, ExpiresAt: k.ExpiresAt,
		KeyLimits: k.KeyLimits,
	}}
}

// grantedTo lists the companies of a key that KeyGrants has loaded, in a fixed order.
func (s *State) grantedTo(key KeyID) []CompanyID {
	var companies []CompanyID
	for k, enabled := range s.grants {
		if k.key == key && enabled {
			companies = append(companies, k.company)
		}
	}
	slices.SortFunc(companies, func(a, b CompanyID) int { return bytes.Compare(a[:], b[:]) })
	return companies
}

// checkScopes refuses a scope that the role may not use.
func checkScopes(role Role, scopes []Scope) error {
	for _, scope := range scopes {
		if !role.Allows(scope) {
			return Refuse(RoleRequired, "The scope %s needs the role %s; the member is %s.", scope, OneOf(RolesFor(scope)), role)
		}
	}
	return nil
}

// keyEnd returns the expiry of a key created by key k: after a lifetime, otherwise at a given end, otherwise after
// DefaultKeyLifetime but no later than k itself. If k is nil, a member or the operator creates the key.
func (k *APIKey) keyEnd(lifetime time.Duration, given, now time.Time) (time.Time, error) {
	end := given.UTC().Truncate(time.Microsecond)
	switch {
	case lifetime != 0:
		end = now.Add(lifetime)
	case given.IsZero():
		if end = now.Add(DefaultKeyLifetime); k != nil && k.ExpiresAt.Before(end) {
			return k.ExpiresAt, nil
		}
	}
	if life := end.Sub(now); life < MinKeyLifetime || life > MaxKeyLifetime {
		return end, InvalidMember("/expiresAt", strictjson.CodeRange, "must be a lifetime of 1 hour to 730 days")
	}
	return end, nil
}

// confine refuses a key that may do more than k, which creates it: another scope, a later end, or wider limits. Limits
// that are left open are copied from k. Granting companies needs the scope that any grant needs. If k is nil, a member
// or the operator creates the key, and only the role of its member restricts it.
func (k *APIKey) confine(made *APIKey, grants bool) error {
	if k == nil {
		return nil
	}
	for _, scope := range made.Scopes {
		if !slices.Contains(k.Scopes, scope) {
			return Refuse(MissingScope, "This key lacks the scope %s, so no key that it makes can have it.", scope)
		}
	}
	if grants && !slices.Contains(k.Scopes, IntegrityAdmin) {
		return Refuse(MissingScope, "This key lacks the scope %s, so it cannot grant companies.", IntegrityAdmin)
	}
	var fields []FieldError
	refuse := func(pointer, format string, args ...any) {
		fields = append(fields, strictjson.NewProblem(pointer, "KEY_LIMIT", format, args...))
	}
	if made.ExpiresAt.After(k.ExpiresAt) {
		refuse(
			"/expiresAt", "must be no later than %s, the end of the key that makes this one", evidence.FormatTime(k.ExpiresAt),
		)
	}
	if made.Source == nil {
		made.Source = k.Source
	} else if k.Source != nil && *made.Source != *k.Source {
		refuse("/source", "must be %s, the source of the key that makes this one", *k.Source)
	}
	if made.MaxVersionStep == nil {
		made.MaxVersionStep = k.MaxVersionStep
	} else if k.MaxVersionStep != nil && *made.MaxVersionStep > *k.MaxVersionStep {
		refuse("/maxVersionStep", "must be at most %d, as for the key that makes this one", *k.MaxVersionStep)
	}
	if own := k.AllNetworks(); made.Network == nil {
		made.KeyLimits = made.from(own)
	} else if len(own) > 0 {
		for i, network := range made.AllNetworks() {
			if !slices.ContainsFunc(own, func(wide string) bool { return networkWithin(network, wide) }) {
				refuse(
					fmt.Sprintf("/networks/%d", i),
					"must lie within a network of the key that makes this one: %s", strings.Join(own, ", "),
				)
			}
		}
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}

// networkWithin reports whether one network, in its canonical form, lies within another.
func networkWithin(network, wide string) bool {
	n, err := netip.ParsePrefix(network)
	w, wideErr := netip.ParsePrefix(wide)
	return err == nil && wideErr == nil && w.Bits() <= n.Bits() && w.Contains(n.Addr())
}

// check refuses limits that could not be enforced, and returns them in canonical form.
func (l KeyLimits) check() (KeyLimits, error) {
	var fields []FieldError
	if l.Source != nil && !ValidReference(*l.Source) {
		fields = append(fields, FieldError{Pointer: "/source", Code: strictjson.CodeFormat, Message: ReferenceRule})
	}
	networks := l.AllNetworks()
	if len(networks) > MaxKeyNetworks {
		return l, InvalidMember(
			"/networks", strictjson.CodeLength, "must name at most %d networks", MaxKeyNetworks,
		)
	}
	for i, network := range networks {
		if canonical, err := ParseNetwork(network); err != nil || canonical != network {
			fields = append(fields, FieldError{
				Pointer: fmt.Sprintf("/networks/%d", i), Code: strictjson.CodeFormat,
				Message: "must be a network in its canonical form, such as 192.0.2.0/24",
			})
		} else if slices.Contains(networks[:i], network) {
			fields = append(
				fields,
				FieldError{Pointer: fmt.Sprintf("/networks/%d", i), Code: strictjson.CodeDuplicate, Message: "must appear once"},
			)
		}
	}
	if l.MaxVersionStep != nil && *l.MaxVersionStep < 1 {
		fields = append(
			fields, FieldError{Pointer: "/maxVersionStep", Code: strictjson.CodeRange, Message: "must be at least 1"},
		)
	}
	if fields != nil {
		return l, Invalid(fields)
	}
	return l.from(networks), nil
}

// checkVersion refuses a version too far above the highest accepted one (0 for a
// new document): a stolen key must not use up the version numbers of a document.
func (l KeyLimits) checkVersion(version, highest int32) error {
	if l.MaxVersionStep == nil || int64(version) <= int64(highest)+int64(*l.MaxVersionStep) {
		return nil
	}
	return InvalidMember(
		"/version", "KEY_LIMIT",
		"must be at most %d above the document's highest accepted version, the limit of this key", *l.MaxVersionStep,
	)
}

// ParseNetwork parses a CIDR network, or a single address as a network of one, and returns its canonical form: masked,
// and never IPv4 inside IPv6.
func ParseNetwork(text string) (string, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, addressErr := netip.ParseAddr(text)
		if addressErr != nil || address.Zone() != "" {
			return "", say.Errorf("must be an address or a network such as 192.0.2.0/24 or 2001:db8::/32: %w", err)
		}
		prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
	}
	if prefix.Addr().Is4In6() {
		return "", say.New(
			"must be an address or a network such as 192.0.2.0/24 or 2001:db8::/32, not IPv4 inside IPv6",
		)
	}
	return prefix.Masked().String(), nil
}

// IsLoopbackHost reports whether a host is a loopback address or the name localhost.
func IsLoopbackHost(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
