package domain

import (
	"bytes"
	"strings"
	"time"
)

// Passkey is a WebAuthn credential with which a member signs in to the console.
type Passkey struct {
	ID           PasskeyID
	Organization OrganizationID
	Member       MemberID
	Credential
	CreatedAt time.Time
}

// Credential is an authenticator's data about a new passkey.
type Credential struct {
	CredentialID []byte   `json:"credentialId"`
	PublicKey    []byte   `json:"publicKey"` // COSE
	Transports   []string `json:"transports"`
	// BackupEligible is set if the passkey may be on several devices. It never changes for a credential.
	BackupEligible bool `json:"backupEligible"`
}

// MaxPasskeys is the maximum number of passkeys of a member.
const MaxPasskeys = 20

// MaxNameLength is the maximum number of characters in the name of a passkey.
const MaxNameLength = 100

// maxCredential limits an authenticator's data: ids have at most 1023 bytes (WebAuthn, 6.1), and keys are far shorter.
const maxCredential = 4 << 10

// PasskeyAddedBody adds a passkey of a member. Its private key never leaves the authenticator.
type PasskeyAddedBody struct {
	PasskeyID PasskeyID `json:"passkeyId"`
	MemberID  MemberID  `json:"memberId"`
	Credential
	Name TextRef `json:"name"`
}

func (b *PasskeyAddedBody) apply(s *State, e *Event) error {
	s.AddPasskey(Passkey{
		ID: b.PasskeyID, Organization: e.Organization, Member: b.MemberID, Credential: b.Credential, CreatedAt: e.OccurredAt,
	})
	return nil
}

// PasskeyRemovedBody ends a passkey.
type PasskeyRemovedBody struct {
	PasskeyID PasskeyID `json:"passkeyId"`
}

func (b *PasskeyRemovedBody) apply(s *State, _ *Event) error {
	delete(s.passkeys, b.PasskeyID)
	return nil
}

// AddPasskey adds a passkey to the signed-in member.
type AddPasskey struct {
	Origin
	Member     MemberID
	Credential Credential
	Name       string

	id   PasskeyID
	name Text

	Outcome Passkey
}

func (c *AddPasskey) Need(n *Needs) { n.Passkeys = append(n.Passkeys, c.Member) }

// Decide implements Command. Only the signed-in member may add a passkey, because any other actor could then sign in as
// the member.
func (c *AddPasskey) Decide(s *State, now time.Time) ([]Draft, error) {
	if !c.Console || c.Actor != MemberActor(c.Member) {
		return nil, ErrSessionEnded
	}
	if !ValidName(c.Name, MaxNameLength) || strings.TrimSpace(c.Name) != c.Name {
		return nil, InvalidMember("/name", "RANGE", "must have 1 to 100 characters on one line, without spaces at its ends, "+
			"control characters and characters that change the direction of writing")
	}
	if len(c.Credential.CredentialID) == 0 || len(c.Credential.CredentialID) > maxCredential ||
		len(c.Credential.PublicKey) == 0 || len(c.Credential.PublicKey) > maxCredential {
		return nil, InvalidMember("/credential", "RANGE", "must have an id and a public key of at most 4096 bytes")
	}
	count := 0
	for _, p := range s.passkeys {
		if p.Member != c.Member {
			continue
		}
		if p.ID == c.id {
			c.Outcome = *p
			return nil, nil // an earlier attempt of this command: the id is new
		}
		if bytes.Equal(p.CredentialID, c.Credential.CredentialID) {
			return nil, Refuse(InvalidState, "This passkey is known already.")
		}
		count++
	}
	if count >= MaxPasskeys {
		return nil, Refuse(InvalidState, "A member may have at most %d passkeys; remove one first.", MaxPasskeys)
	}
	c.Outcome = Passkey{
		ID: c.id.draw(now), Organization: c.Organization, Member: c.Member, Credential: c.Credential, CreatedAt: now,
	}
	return []Draft{{
		Subject: c.id.String(), Texts: []Text{c.name.draw(now, c.Name)},
		Body: &PasskeyAddedBody{PasskeyID: c.id, MemberID: c.Member, Credential: c.Credential, Name: c.name.Ref()},
	}}, nil
}

// RemovePasskey removes a passkey of the signed-in member, or of any member for the operator.
type RemovePasskey struct {
	Origin
	Member  MemberID
	Passkey PasskeyID
}

func (c *RemovePasskey) Need(n *Needs) { n.Passkeys = append(n.Passkeys, c.Member) }

func (c *RemovePasskey) Decide(s *State, _ time.Time) ([]Draft, error) {
	if c.Actor != OperatorActor && (!c.Console || c.Actor != MemberActor(c.Member)) {
		return nil, ErrSessionEnded
	}
	known := s.passkeys[c.Passkey]
	if known == nil || known.Organization != c.Organization || known.Member != c.Member {
		return nil, errUnknownPasskey
	}
	return []Draft{{Subject: c.Passkey.String(), Body: &PasskeyRemovedBody{PasskeyID: c.Passkey}}}, nil
}
