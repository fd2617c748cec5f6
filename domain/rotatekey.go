package domain

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Overlaps of a rotation: how long the former key may go on working.
const (
	DefaultKeyOverlap = 24 * time.Hour
	MaxKeyOverlap     = 30 * 24 * time.Hour
)

// RotateKey gives a key a successor: another id and secret with the same member,
// scopes and limits. The former key's end is brought forward to the overlap's.
// Grants are copied only where asked for (specification, Authentication 6).
type RotateKey struct {
	Origin
	Key        KeyID
	Lifetime   time.Duration // of the successor
	Overlap    time.Duration // 0 revokes the former key at once
	CopyGrants bool

	id           KeyID
	secretSHA256 [32]byte
	drawn        []Drawn // created, former key's end
	// How many grants there are is known under the shard's lock only, so their
	// random values are drawn there, from a generator whose own seed was drawn before.
	grantRandom [32]byte
	preparedAt  time.Time

	Outcome KeyRotation
}

// KeyRotation answers a RotateKey.
type KeyRotation struct {
	Key     APIKey
	Former  APIKey
	Granted []CompanyID // copied grants
}

// NewRotateKey prepares a rotation and returns the successor's text, which is shown once.
func NewRotateKey(c RotateKey, now time.Time, random io.Reader) (command *RotateKey, text string, err error) {
	if c.id, err = NewKeyID(now, random, c.Organization.Shard()); err != nil {
		return nil, "", err
	}
	if c.drawn, err = Draw(now, random, 2); err != nil {
		return nil, "", err
	}
	if _, err = io.ReadFull(random, c.grantRandom[:]); err != nil {
		return nil, "", fmt.Errorf("random bytes for a rotation: %w", err)
	}
	if text, c.secretSHA256, err = NewAPIKey(random, c.id); err != nil {
		return nil, "", err
	}
	c.preparedAt = now
	return &c, text, nil
}

// Need implements Command.
func (c *RotateKey) Need(n *Needs) {
	n.Members = append(n.Members, c.Organization)
	n.Keys = append(n.Keys, c.Key, c.id)
	n.KeyGrants = append(n.KeyGrants, c.Key, c.id)
}

// Decide implements Command. Only a key that still works has a successor: one
// that was revoked or has expired says nothing about who may have the next.
func (c *RotateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	former := s.keys[c.Key]
	if former == nil || former.Organization != c.Organization {
		return nil, Refuse(NotFound, "This organization has no API key with that id.")
	}
	if known := s.keys[c.id]; known != nil {
		c.Outcome = KeyRotation{Key: *known, Former: *former, Granted: s.grantedTo(c.id)}
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
		return nil, Invalid([]FieldError{{Pointer: "/overlap", Code: "RANGE", Message: "the overlap is at least 0 and at most 30 days"}})
	}

	successor := *former
	successor.ID, successor.CreatedAt, successor.ExpiresAt = c.id, now, now.Add(c.Lifetime)
	drafts := []Draft{{
		Drawn: c.drawn[0], Subject: c.id.String(),
		Body: &KeyCreatedBody{
			KeyID: c.id, MemberID: former.Member, SecretSHA256: c.secretSHA256[:], Scopes: former.Scopes, ExpiresAt: successor.ExpiresAt,
			Source: former.Source, Network: former.Network, MaxVersionStep: former.MaxVersionStep,
		},
	}}
	var granted []CompanyID
	if c.CopyGrants {
		granted = s.grantedTo(c.Key)
		drawn, err := Draw(c.preparedAt, rand.NewChaCha8(c.grantRandom), len(granted))
		if err != nil {
			return nil, err
		}
		for i, company := range granted {
			drafts = append(drafts, Draft{
				Drawn: drawn[i], Company: company, Subject: c.id.String(), Body: &AccessChangedBody{KeyID: c.id, Enabled: true},
			})
		}
	}
	c.Outcome = KeyRotation{Key: successor, Former: *former, Granted: granted}
	end := now.Add(c.Overlap)
	switch {
	case c.Overlap == 0:
		c.Outcome.Former.RevokedAt = &now
		drafts = append(drafts, Draft{Drawn: c.drawn[1], Subject: c.Key.String(), Body: &KeyRevokedBody{KeyID: c.Key}})
	case end.Before(former.ExpiresAt): // a rotation never lengthens a key's life
		c.Outcome.Former.ExpiresAt = end
		drafts = append(drafts, Draft{Drawn: c.drawn[1], Subject: c.Key.String(), Body: &KeyExpiryChangedBody{KeyID: c.Key, ExpiresAt: end}})
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
		return Invalid([]FieldError{{Pointer: "/expires", Code: "RANGE", Message: "a key lives at least 1 hour and at most 730 days"}})
	}
	return nil
}
