package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/say"
)

// LinkLifetime is the time in which a link may be redeemed.
const LinkLifetime = 10 * time.Minute

// OAuthScopes lists the scopes that an OAuth token can carry: the scopes of the tools of the ordinary MCP endpoint, the
// only place where such tokens are accepted.
func OAuthScopes() []Scope { return []Scope{VerifyRead, ArtifactsRead} }

// OAuthSubject is a digest of one subject of one issuer. Events and tables contain it instead of the names. Only a
// holder of both the names and the ledger's secret can compare them with it.
type OAuthSubject [sha256.Size]byte

// NewOAuthSubject returns the HMAC-SHA-256, with the ledger's secret, of the issuer and the subject, each preceded by
// its length.
func NewOAuthSubject(secret LedgerSecret, issuer, subject string) OAuthSubject {
	text := []byte("oauth-identity")
	for _, part := range []string{issuer, subject} {
		text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return OAuthSubject(mac.Sum(nil))
}

// OAuthLink lets a member act with tokens of an OAuth subject. It is started by the member or an operator, redeemed
// once with its code, and ended by withdrawing the consent.
type OAuthLink struct {
	ID           LinkID
	Organization OrganizationID
	Member       MemberID
	SecretSHA256 [32]byte
	Scopes       []Scope // the scopes available for consent
	CreatedAt    time.Time
	ExpiresAt    time.Time // expiry of its code

	Subject     *OAuthSubject // nil until it is redeemed
	Consented   []Scope
	LinkedAt    *time.Time
	WithdrawnAt *time.Time
}

// Status returns the status of the link, for people.
func (l *OAuthLink) Status(now time.Time) string {
	switch {
	case l.WithdrawnAt != nil:
		return "withdrawn"
	case l.Subject != nil:
		return "linked"
	case !now.Before(l.ExpiresAt):
		return "expired"
	default:
		return "pending"
	}
}

// LinkStartedBody creates a link that can be redeemed until ExpiresAt. The code itself is never stored.
type LinkStartedBody struct {
	LinkID       LinkID    `json:"linkId"`
	MemberID     MemberID  `json:"memberId"`
	SecretSHA256 []byte    `json:"secretSha256"`
	Scopes       []Scope   `json:"scopes"`
	ExpiresAt    time.Time `json:"expiresAt"`
}

func (b *LinkStartedBody) apply(s *State, e *Event) error {
	l := OAuthLink{
		ID: b.LinkID, Organization: e.Organization, Member: b.MemberID, Scopes: b.Scopes, CreatedAt: e.OccurredAt,
		ExpiresAt: b.ExpiresAt,
	}
	copy(l.SecretSHA256[:], b.SecretSHA256)
	s.AddLink(l)
	return nil
}

// LinkedBody redeems a link with an OAuth subject and the consented scopes.
type LinkedBody struct {
	LinkID  LinkID  `json:"linkId"`
	Subject []byte  `json:"identity"`
	Scopes  []Scope `json:"scopes"`
}

func (b *LinkedBody) apply(s *State, e *Event) error {
	l := s.links[b.LinkID]
	if l == nil || l.Subject != nil || l.WithdrawnAt != nil || !e.OccurredAt.Before(l.ExpiresAt) {
		return say.Errorf("event %s redeems a link that cannot be redeemed", e.ID)
	}
	l.Subject, l.Consented, l.LinkedAt = new(OAuthSubject), b.Scopes, new(e.OccurredAt)
	copy(l.Subject[:], b.Subject)
	return nil
}

// ConsentWithdrawnBody permanently ends a link.
type ConsentWithdrawnBody struct {
	LinkID LinkID `json:"linkId"`
}

func (b *ConsentWithdrawnBody) apply(s *State, e *Event) error {
	l := s.links[b.LinkID]
	if l == nil || l.WithdrawnAt != nil {
		return say.Errorf("event %s withdraws a consent that cannot be withdrawn", e.ID)
	}
	l.WithdrawnAt = new(e.OccurredAt)
	return nil
}

// ParseLinkCode splits the code of a link into its id and the SHA-256 of its
// secret. A wrong form or checksum is refused here, before any query.
func ParseLinkCode(text string) (id LinkID, secretSHA256 [32]byte, ok bool) {
	return parseSecretText[LinkID](text, linkCodePrefix)
}

// StartLink starts a link for a member, named by id or by address.
type StartLink struct {
	Origin
	Member MemberID
	Email  string // where Member is zero
	Scopes []Scope

	id           LinkID
	secretSHA256 [32]byte

	Outcome OAuthLink
}

// NewStartLink generates the link's id and secret and returns its code, which is shown once.
func NewStartLink(c StartLink, now time.Time) (command *StartLink, code string) {
	c.id = newShardID[LinkID](now, c.Organization.Shard())
	code, c.secretSHA256 = newSecretText(linkCodePrefix, c.id)
	return &c, code
}

func (c *StartLink) Need(n *Needs) {
	n.addMember(c.Organization, c.Member, c.Email)
	n.Links = append(n.Links, c.id)
}

func (c *StartLink) Decide(s *State, now time.Time) ([]Draft, error) {
	if known := s.links[c.id]; known != nil {
		c.Outcome = *known
		return nil, nil // an earlier attempt of this command: the id is new
	}
	member := s.memberNamed(c.Organization, c.Member, c.Email)
	if member == nil || member.Status != MemberActive {
		return nil, errUnknownActiveMember
	}
	if err := checkSubset("/scopes", c.Scopes, OAuthScopes()); err != nil {
		return nil, err
	}
	if err := checkScopes(member.Role, c.Scopes); err != nil {
		return nil, err
	}
	c.Outcome = OAuthLink{
		ID: c.id, Organization: c.Organization, Member: member.ID, SecretSHA256: c.secretSHA256, Scopes: c.Scopes,
		CreatedAt: now, ExpiresAt: now.Add(LinkLifetime),
	}
	return []Draft{{Subject: c.id.String(), Body: &LinkStartedBody{
		LinkID: c.id, MemberID: member.ID, SecretSHA256: c.secretSHA256[:], Scopes: c.Scopes, ExpiresAt: c.Outcome.ExpiresAt,
	}}}, nil
}

// checkSubset refuses an empty list and scopes that are not in all.
func checkSubset(pointer string, scopes, all []Scope) error {
	if len(scopes) == 0 {
		return InvalidMember(pointer, "RANGE", "must name at least one scope")
	}
	var names []string
	for _, scope := range all {
		names = append(names, string(scope))
	}
	for _, scope := range scopes {
		if !slices.Contains(names, string(scope)) {
			return InvalidMember(pointer, "UNKNOWN", "must be among %s", strings.Join(names, ", "))
		}
	}
	return nil
}

// RedeemLink links an OAuth subject to the member of a link, who is the actor, with the consented scopes. The subject
// must have been claimed for the link before (see projections.Store.ClaimOAuthSubject).
type RedeemLink struct {
	Origin
	Link         LinkID
	SecretSHA256 [32]byte
	Subject      OAuthSubject
	Scopes       []Scope // nil: all scopes of the link

	Outcome  OAuthLink
	Replayed bool
}

func (c *RedeemLink) Need(n *Needs) {
	n.Links = append(n.Links, c.Link)
}

// Decide implements Command. A link works once: a repetition by the same OAuth subject changes nothing, and any other
// subject is refused.
func (c *RedeemLink) Decide(s *State, now time.Time) ([]Draft, error) {
	link := s.links[c.Link]
	if link == nil {
		return nil, errUnknownLink
	}
	if err := link.Redeemable(c.SecretSHA256, c.Subject, now); err != nil {
		return nil, err
	}
	c.Outcome, c.Replayed = *link, link.Subject != nil
	if c.Replayed {
		return nil, nil
	}
	if member := s.members[link.Member]; member == nil || member.Status != MemberActive {
		return nil, Refuse(InvalidState, "The member of this link is no longer active.")
	}
	scopes := c.Scopes
	if scopes == nil {
		scopes = link.Scopes
	}
	if err := checkSubset("/scopes", scopes, link.Scopes); err != nil {
		return nil, err
	}
	c.Outcome.Subject, c.Outcome.Consented, c.Outcome.LinkedAt = &c.Subject, scopes, &now
	return []Draft{
		{Subject: c.Link.String(), Body: &LinkedBody{LinkID: c.Link, Subject: c.Subject[:], Scopes: scopes}},
	}, nil
}

// Redeemable refuses a wrong secret, and a link that another subject has redeemed, that was withdrawn, or that has
// expired.
func (l *OAuthLink) Redeemable(secretSHA256 [32]byte, subject OAuthSubject, now time.Time) error {
	switch {
	case subtle.ConstantTimeCompare(l.SecretSHA256[:], secretSHA256[:]) == 0:
		return errUnknownLink
	case l.WithdrawnAt != nil:
		return Refuse(InvalidState, "This link was withdrawn; ask for another.")
	case l.Subject != nil && *l.Subject != subject:
		return Refuse(InvalidState, "This link was used already, and it works once; ask for another.")
	case l.Subject == nil && !now.Before(l.ExpiresAt):
		return Refuse(
			InvalidState, "This link has expired: it lives %d minutes; ask for another.", int(LinkLifetime.Minutes()),
		)
	}
	return nil
}

// WithdrawConsent ends a link, redeemed or not.
type WithdrawConsent struct {
	Origin
	Link LinkID
	// Member, unless zero, requests the withdrawal: of its own link, or with a role that manages links.
	Member MemberID

	Outcome  OAuthLink
	Replayed bool
}

func (c *WithdrawConsent) Need(n *Needs) { n.Links = append(n.Links, c.Link) }

// Decide implements Command. It does not change a link that was already withdrawn.
func (c *WithdrawConsent) Decide(s *State, now time.Time) ([]Draft, error) {
	link := s.links[c.Link]
	if link == nil || link.Organization != c.Organization {
		return nil, errUnknownLink
	}
	if !c.Member.IsZero() && link.Member != c.Member {
		if m := s.members[c.Member]; m == nil || !m.Role.ManagesLinks() {
			return nil, errUnknownLink
		}
	}
	c.Outcome, c.Replayed = *link, link.WithdrawnAt != nil
	if c.Replayed {
		return nil, nil
	}
	c.Outcome.WithdrawnAt = &now
	return []Draft{{Subject: c.Link.String(), Body: &ConsentWithdrawnBody{LinkID: c.Link}}}, nil
}
