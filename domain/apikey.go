package domain

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"integrityledger/domain/strictjson"
)

// APIKey is a credential of a member.
type APIKey struct {
	ID           KeyID
	Organization OrganizationID
	Member       MemberID
	Scopes       []Scope
	KeyLimits
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

// MaxKeyOverlap is how long the former key may still work after a rotation.
const MaxKeyOverlap = 30 * 24 * time.Hour

// KeyLimits are the limits of an API key that a declaration is judged by. They are fixed when the key is made, so what
// authentication has read still holds when the group decides.
type KeyLimits struct {
	Source         *string `json:"source"`         // the one source that the key may declare; nil: any
	Network        *string `json:"network"`        // from where it may be used, which authentication alone judges; nil: anywhere
	MaxVersionStep *int32  `json:"maxVersionStep"` // how far above the document's highest version; nil: any
}

// KeyCreatedBody adds an API key. The secret itself is never stored.
type KeyCreatedBody struct {
	KeyID        KeyID     `json:"keyId"`
	MemberID     MemberID  `json:"memberId"`
	SecretSHA256 []byte    `json:"secretSha256"`
	Scopes       []Scope   `json:"scopes"`
	ExpiresAt    time.Time `json:"expiresAt"`
	KeyLimits
}

func (b *KeyCreatedBody) apply(s *State, e *Event) error {
	s.AddKey(APIKey{
		ID: b.KeyID, Organization: e.Organization, Member: b.MemberID, Scopes: b.Scopes, KeyLimits: b.KeyLimits,
		CreatedAt: e.OccurredAt, ExpiresAt: b.ExpiresAt,
	})
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
		k.RevokedAt = new(e.OccurredAt)
	}
	return nil
}

// CreateKey adds an API key of a member.
type CreateKey struct {
	Origin
	Member   MemberID
	Email    string // where Member is zero
	Scopes   []Scope
	Lifetime time.Duration
	KeyLimits

	id           KeyID
	secretSHA256 [32]byte

	Outcome APIKey
}

// NewCreateKey draws the key's id and secret, and returns the text that is shown once.
func NewCreateKey(c CreateKey, now time.Time) (command *CreateKey, text string) {
	c.id = newShardID[KeyID](now, c.Organization.Shard())
	text, c.secretSHA256 = newSecretText(apiKeyPrefix, c.id)
	return &c, text
}

func (c *CreateKey) Need(n *Needs) {
	n.Members = append(n.Members, c.Organization)
	n.Keys = append(n.Keys, c.id)
}

// Decide implements Command. A scope that the member's role may not use is refused.
func (c *CreateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	if known := s.keys[c.id]; known != nil {
		c.Outcome = *known
		return nil, nil // an earlier attempt of this very command: the id is fresh
	}
	member := s.memberNamed(c.Organization, c.Member, c.Email)
	if member == nil || member.Status != MemberActive {
		return nil, errUnknownActiveMember
	}
	if err := checkScopes(member.Role, c.Scopes); err != nil {
		return nil, err
	}
	if err := checkLifetime(c.Lifetime); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Outcome = APIKey{
		ID: c.id, Organization: c.Organization, Member: member.ID, Scopes: c.Scopes, KeyLimits: c.KeyLimits,
		CreatedAt: now, ExpiresAt: now.Add(c.Lifetime),
	}
	return []Draft{c.Outcome.created(c.secretSHA256)}, nil
}

// created is the event that adds the key.
func (k *APIKey) created(secretSHA256 [32]byte) Draft {
	return Draft{Subject: k.ID.String(), Body: &KeyCreatedBody{
		KeyID: k.ID, MemberID: k.Member, SecretSHA256: secretSHA256[:], Scopes: k.Scopes, ExpiresAt: k.ExpiresAt, KeyLimits: k.KeyLimits,
	}}
}

// RevokeKey ends an API key for good.
type RevokeKey struct {
	Origin
	Key KeyID

	Outcome APIKey
}

func (c *RevokeKey) Need(n *Needs) { n.Keys = append(n.Keys, c.Key) }

// Decide implements Command. A key that was revoked before stays as it is.
func (c *RevokeKey) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.keys[c.Key]
	if known == nil || known.Organization != c.Organization {
		return nil, errUnknownKey
	}
	c.Outcome = *known
	if known.RevokedAt != nil {
		return nil, nil
	}
	c.Outcome.RevokedAt = &now
	return []Draft{{Subject: c.Key.String(), Body: &KeyRevokedBody{KeyID: c.Key}}}, nil
}

// RotateKey gives a key a successor: another id and secret with the same member, scopes and limits. The former key's
// end is brought forward to the overlap's. Grants are copied on request only (specification, Authentication 6).
type RotateKey struct {
	Origin
	Key        KeyID
	Lifetime   time.Duration // of the successor
	Overlap    time.Duration // 0 revokes the former key at once
	CopyGrants bool

	id           KeyID
	secretSHA256 [32]byte

	Outcome struct {
		Key     APIKey
		Former  APIKey
		Granted []CompanyID // copied grants
	}
}

// NewRotateKey draws the successor's id and secret, and returns its text, which is shown once.
func NewRotateKey(c RotateKey, now time.Time) (command *RotateKey, text string) {
	c.id = newShardID[KeyID](now, c.Organization.Shard())
	text, c.secretSHA256 = newSecretText(apiKeyPrefix, c.id)
	return &c, text
}

func (c *RotateKey) Need(n *Needs) {
	n.Members = append(n.Members, c.Organization)
	n.Keys = append(n.Keys, c.Key, c.id)
	n.KeyGrants = append(n.KeyGrants, c.Key, c.id)
}

// Decide implements Command. Only a key that still works has a successor: one
// that was revoked or has expired says nothing about the right to another.
func (c *RotateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	former := s.keys[c.Key]
	if former == nil || former.Organization != c.Organization {
		return nil, errUnknownKey
	}
	if known := s.keys[c.id]; known != nil {
		c.Outcome.Key, c.Outcome.Former, c.Outcome.Granted = *known, *former, s.grantedTo(c.id)
		return nil, nil // an earlier attempt of this very command: the id is fresh
	}
	if former.RevokedAt != nil || !now.Before(former.ExpiresAt) {
		return nil, Refuse(InvalidState, "This key has ended already; create a new one instead.")
	}
	member := s.members[former.Member]
	if member == nil || member.Status != MemberActive {
		return nil, Refuse(InvalidState, "The member of this key is no longer active.")
	}
	if err := checkScopes(member.Role, former.Scopes); err != nil {
		return nil, err
	}
	if err := checkLifetime(c.Lifetime); err != nil {
		return nil, err
	}
	if c.Overlap < 0 || c.Overlap > MaxKeyOverlap {
		return nil, InvalidMember("/overlap", "RANGE", "must be an overlap of 0 to 30 days")
	}

	successor := *former
	successor.ID, successor.CreatedAt, successor.ExpiresAt = c.id, now, now.Add(c.Lifetime)
	drafts := []Draft{successor.created(c.secretSHA256)}
	var granted []CompanyID
	if c.CopyGrants {
		granted = s.grantedTo(c.Key)
		for _, company := range granted {
			drafts = append(drafts, Draft{Company: company, Subject: c.id.String(), Body: &AccessChangedBody{KeyID: c.id, Enabled: true}})
		}
	}
	c.Outcome.Key, c.Outcome.Former, c.Outcome.Granted = successor, *former, granted
	end := now.Add(c.Overlap)
	switch {
	case c.Overlap == 0:
		c.Outcome.Former.RevokedAt = &now
		drafts = append(drafts, Draft{Subject: c.Key.String(), Body: &KeyRevokedBody{KeyID: c.Key}})
	case end.Before(former.ExpiresAt): // a rotation never lengthens a key's life
		c.Outcome.Former.ExpiresAt = end
		drafts = append(drafts, Draft{Subject: c.Key.String(), Body: &KeyExpiryChangedBody{KeyID: c.Key, ExpiresAt: end}})
	}
	return drafts, nil
}

// grantedTo lists the companies of a key that KeyGrants has named, in a fixed order.
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
			return Refuse(RoleRequired, "The scope %s needs one of the roles %v; the member is %s.", scope, RolesFor(scope), role)
		}
	}
	return nil
}

func checkLifetime(lifetime time.Duration) error {
	if lifetime < MinKeyLifetime || lifetime > MaxKeyLifetime {
		return InvalidMember("/expires", "RANGE", "must be a lifetime of 1 hour to 730 days")
	}
	return nil
}

// check refuses limits that could not be enforced as they stand.
func (l KeyLimits) check() error {
	var fields []FieldError
	if l.Source != nil && !ValidReference(*l.Source) {
		fields = append(fields, FieldError{Pointer: "/source", Code: strictjson.CodeFormat, Message: ReferenceRule})
	}
	if l.Network != nil {
		if canonical, err := ParseNetwork(*l.Network); err != nil || canonical != *l.Network {
			fields = append(fields, FieldError{Pointer: "/network", Code: strictjson.CodeFormat, Message: "must be a network in its canonical form, such as 192.0.2.0/24"})
		}
	}
	if l.MaxVersionStep != nil && *l.MaxVersionStep < 1 {
		fields = append(fields, FieldError{Pointer: "/maxVersionStep", Code: strictjson.CodeRange, Message: "must be at least 1"})
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}

// checkVersion refuses a version too far above the highest accepted one (0 for a
// new document): a stolen key must not use up the version numbers of a document.
func (l KeyLimits) checkVersion(version, highest int32) error {
	if l.MaxVersionStep == nil || int64(version) <= int64(highest)+int64(*l.MaxVersionStep) {
		return nil
	}
	return InvalidMember("/version", "KEY_LIMIT", fmt.Sprintf("must be at most %d above the document's highest accepted version, the limit of this key", *l.MaxVersionStep))
}

// ParseNetwork reads a CIDR network, or a single address as a network of one,
// and writes it in its one form: masked, and never IPv4 inside IPv6.
func ParseNetwork(text string) (string, error) {
	const words = "must be an address or a network such as 192.0.2.0/24 or 2001:db8::/32"
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, addressErr := netip.ParseAddr(text)
		if addressErr != nil || address.Zone() != "" {
			return "", fmt.Errorf(words+": %w", err)
		}
		prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
	}
	if prefix.Addr().Is4In6() {
		return "", fmt.Errorf("%s, not IPv4 inside IPv6", words)
	}
	return prefix.Masked().String(), nil
}

// IsLoopbackHost is true of an address that cannot leave this machine, and of the name localhost.
func IsLoopbackHost(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
