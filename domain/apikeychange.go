package domain

import (
	"cmp"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
)

// ChangeKey renames an API key or shortens its lifetime.
type ChangeKey struct {
	Origin
	Key       KeyID
	Name      *string    // nil: unchanged
	ExpiresAt *time.Time // nil: unchanged

	name Text

	Outcome APIKey
}

func (c *ChangeKey) Need(n *Needs) { n.Keys = append(n.Keys, c.Key) }

// Decide implements Command. The life of a key is never lengthened.
func (c *ChangeKey) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.keys[c.Key]
	if known == nil || known.Organization != c.Organization {
		return nil, errUnknownKey
	}
	c.Outcome = *known
	var drafts []Draft
	if c.Name != nil {
		if !ValidKeyName(*c.Name) {
			return nil, InvalidMember("/name", strictjson.CodeLength, KeyNameRule)
		}
		text := c.name.draw(now, *c.Name)
		drafts = append(
			drafts, Draft{Subject: c.Key.String(), Texts: []Text{text}, Body: &KeyRenamedBody{KeyID: c.Key, Name: text.Ref()}},
		)
	}
	if c.ExpiresAt == nil {
		return drafts, nil
	}
	switch end := c.ExpiresAt.UTC().Truncate(time.Microsecond); {
	case known.ended(now):
		return nil, errEndedKey
	case end.After(known.ExpiresAt):
		return nil, InvalidMember(
			"/expiresAt", strictjson.CodeRange,
			"must be no later than %s, the end that the key has; create or rotate a key for a longer life",
			evidence.FormatTime(known.ExpiresAt),
		)
	case !now.Before(end):
		return nil, InvalidMember(
			"/expiresAt", strictjson.CodeRange, "must lie in the future; revoke the key to end it at once",
		)
	case end.Before(known.ExpiresAt):
		c.Outcome.ExpiresAt = end
		drafts = append(drafts, Draft{Subject: c.Key.String(), Body: &KeyExpiryChangedBody{KeyID: c.Key, ExpiresAt: end}})
	}
	return drafts, nil
}

// RevokeKey permanently ends an API key.
type RevokeKey struct {
	Origin
	Key KeyID

	Outcome APIKey
}

func (c *RevokeKey) Need(n *Needs) { n.Keys = append(n.Keys, c.Key) }

// Decide implements Command. It does not change a key that was already revoked.
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

// RotateKey creates a successor of a key: another id and secret with the same member, scopes and limits. The former key
// then ends after the overlap. Grants are copied only on request (specification, Authentication 6).
type RotateKey struct {
	Origin
	Key        KeyID
	Lifetime   time.Duration // of the successor
	ExpiresAt  time.Time     // of the successor if Lifetime is 0; see keyEnd
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
	c.id = NewKeyID(now, c.Organization.Shard())
	text, c.secretSHA256 = NewAPIKey(c.id)
	return &c, text
}

func (c *RotateKey) Need(n *Needs) {
	n.ActiveKeys = append(n.ActiveKeys, c.Organization)
	n.Keys = append(n.Keys, c.Key, c.id) // with their member
	n.KeyNames = append(n.KeyNames, c.Key)
	if c.CopyGrants {
		most := int32(MaxCompanies)
		if c.limited() { // one more than may be copied is enough to refuse
			most = MaxCopiedGrants + 1
		}
		n.KeyGrants = append(n.KeyGrants, KeyGrantsNeed{c.Key, most}, KeyGrantsNeed{c.id, most})
	}
}

// limited reports whether a rotation copies at most MaxCopiedGrants, because a member or a key requests it.
func (c *RotateKey) limited() bool { return c.Actor.Judged() }

// Decide implements Command. Only an active key may have a successor: a revoked or expired key gives no right to
// another.
func (c *RotateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	former := s.keys[c.Key]
	if former == nil || former.Organization != c.Organization {
		return nil, errUnknownKey
	}
	if known := s.keys[c.id]; known != nil {
		c.Outcome.Key, c.Outcome.Former, c.Outcome.Granted = *known, *former, s.grantedTo(c.id)
		return nil, nil // an earlier attempt of this command: the id is new
	}
	if former.ended(now) {
		return nil, errEndedKey
	}
	member := s.members[former.Member]
	if member == nil || member.Status != MemberActive {
		return nil, Refuse(InvalidState, "The member of this key is no longer active.")
	}
	if err := s.mayChange(c.Origin, member.Role); err != nil {
		return nil, err
	}
	if err := cmp.Or(s.mayActAs(c.Origin, member.ID, former.Scopes), checkScopes(member.Role, former.Scopes)); err != nil {
		return nil, err
	}
	acting := s.actingKey(c.Origin)
	expires, err := acting.keyEnd(c.Lifetime, c.ExpiresAt, now)
	if err != nil {
		return nil, err
	}
	if c.Overlap < 0 || c.Overlap > MaxKeyOverlap {
		return nil, InvalidMember("/overlap", "RANGE", "must be an overlap of 0 to 30 days")
	}
	if c.Overlap > 0 {
		if err := s.mayHaveKey(c.Organization); err != nil {
			return nil, err
		}
	}

	successor := *former
	successor.ID, successor.CreatedBy, successor.CreatedAt, successor.ExpiresAt = c.id, c.Actor, now, expires
	if err := acting.confine(&successor, c.CopyGrants); err != nil {
		return nil, err
	}
	created := successor.created(c.secretSHA256)
	if name, ok := s.keyNames[c.Key]; ok { // the same text
		created.Body.(*KeyCreatedBody).Name = new(name.Ref())
	}
	drafts := []Draft{created}
	var granted []CompanyID
	if c.CopyGrants {
		if granted = s.grantedTo(c.Key); c.limited() && len(granted) > MaxCopiedGrants {
			return nil, Refuse(InvalidState,
				"This key may use more than %d companies, and a rotation copies no more grants than that: "+
					"rotate without copying them and grant them one by one during the overlap, or ask the operator.", MaxCopiedGrants)
		}
		for _, company := range granted {
			drafts = append(drafts, grantOf(company, c.id))
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
