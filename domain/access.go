package domain

import (
	"slices"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Scope is one permission of an API key.
type Scope string

// Scopes (specification, Authentication 4).
const (
	VerifyRead        Scope = "verify:read"
	ArtifactsRead     Scope = "artifacts:read"
	ArtifactsWrite    Scope = "artifacts:write"
	AnalysesRead      Scope = "analyses:read"
	ReviewsWrite      Scope = "reviews:write"
	ApprovalsWrite    Scope = "approvals:write"
	CertificatesRead  Scope = "certificates:read"
	CertificatesWrite Scope = "certificates:write"
	AuditRead         Scope = "audit:read"
	MetricsRead       Scope = "metrics:read"
	IntegrityRead     Scope = "integrity:read"
	IntegrityWrite    Scope = "integrity:write"
	IntegrityRevoke   Scope = "integrity:revoke"
	IntegrityAdmin    Scope = "integrity:admin"
	OrganizationAdmin Scope = "organization:admin"
)

// Scopes lists all scopes.
func Scopes() []Scope {
	return []Scope{
		VerifyRead, ArtifactsRead, ArtifactsWrite, AnalysesRead, ReviewsWrite, ApprovalsWrite, CertificatesRead,
		CertificatesWrite, AuditRead, MetricsRead, IntegrityRead, IntegrityWrite, IntegrityRevoke, IntegrityAdmin,
		OrganizationAdmin,
	}
}

// RolesFor lists the roles that may use a scope: a scope never raises a role.
func RolesFor(scope Scope) []Role {
	switch scope {
	case IntegrityWrite, ArtifactsWrite:
		return []Role{Owner, Admin, Analyst}
	case ReviewsWrite:
		return []Role{Owner, Admin, Reviewer}
	case IntegrityRevoke, IntegrityAdmin, OrganizationAdmin, ApprovalsWrite, CertificatesWrite:
		return []Role{Owner, Admin}
	default:
		return Roles()
	}
}

// Access is the caller's data as read by authentication, for one request only.
type Access struct {
	Organization OrganizationID
	Key          KeyID  // zero for a caller with an OAuth token
	Link         LinkID // zero for a caller with an API key
	Member       MemberID
	Role         Role
	Scopes       []Scope
	Console      bool // a signed-in member, without a key
	Limits       KeyLimits
	ExpiresAt    time.Time
	Plan         string
	Internal     bool // no monthly limits
	PerMinute    int  // the organization's limit
	UsedMinute   int  // requests of this UTC minute, including this one

	Sequence  int64  // the organization's, when the key was looked up
	ReadAfter *int64 // the lowest sequence at which the caller may be answered; nil: Sequence
}

// Credential returns the id by which the caller is counted, in addition to the organization.
func (a Access) Credential() [16]byte {
	if a.Key.IsZero() {
		return a.Link
	}
	return a.Key
}

// Actor returns the caller's actor for events.
func (a Access) Actor() Actor {
	if a.Key.IsZero() {
		return MemberActor(a.Member)
	}
	return KeyActor(a.Key)
}

// Authorize refuses a key without the scope, then a role that may not use it.
func (a Access) Authorize(scope Scope) error {
	if !slices.Contains(a.Scopes, scope) {
		return Refuse(MissingScope, "This %s lacks the scope %s.", a.kind(), scope)
	}
	if !a.Role.Allows(scope) {
		return Refuse(
			RoleRequired, "The scope %s needs the role %s; the %s's member is %s.", scope, OneOf(RolesFor(scope)), a.kind(),
			a.Role,
		)
	}
	return nil
}

func (a Access) kind() string {
	if a.Key.IsZero() {
		return "token"
	}
	return "key"
}

// MinuteCount counts several requests of an organization in a UTC minute at once.
type MinuteCount struct {
	Organization OrganizationID
	Minute       int64
	Requests     int
	Used         int // requests of the minute including these, once they are counted
	Refused      int // part of Requests with an invalid credential, to be subtracted again
}

// Add adds the needs of a command: the data that its Decide reads, and the key, the link and the member that it acts
// with. It is the only way from a command to the load statement of its group, and leaves out texts that PostgreSQL
// refuses.
func (n *Needs) Add(c Command) {
	by := c.CommandOrigin()
	switch by.Actor.Kind() {
	case ActorKey:
		n.Keys = append(n.Keys, by.Actor.Key())
	case ActorMember:
		n.addMember(by.Organization, by.Actor.Member(), "")
	case ActorOperator, ActorSystem, ActorNobody:
	}
	if !by.Link.IsZero() {
		n.Links = append(n.Links, by.Link)
	}
	if administrative(c) {
		n.Administered = append(n.Administered, by.Organization)
	}
	companies, declarations, claims := len(n.Companies), len(n.Declarations), len(n.Certification.Claims)
	c.Need(n)
	n.Companies = known(n.Companies, companies, CompanyNeed.texts)
	n.Declarations = known(n.Declarations, declarations, DeclarationNeed.texts)
	n.Certification.Claims = known(n.Certification.Claims, claims, Claim.texts)
}

// known removes needs, from an index on, with a text that the ledger cannot keep. Nothing in the ledger has such a
// name, and the text would make the statement of the whole group fail.
func known[Need any](needs []Need, from int, texts func(Need) [3]string) []Need {
	return slices.Delete(needs, from+len(slices.DeleteFunc(needs[from:], func(need Need) bool {
		for _, text := range texts(need) {
			if !ValidText(text) {
				return true
			}
		}
		return false
	})), len(needs))
}

// texts returns the text parameters of a need's statement.
func (n CompanyNeed) texts() [3]string { return [3]string{n.Reference} }
func (n DeclarationNeed) texts() [3]string {
	return [3]string{n.CompanyReference, n.Source, n.DocumentReference}
}
func (c Claim) texts() [3]string { return [3]string{c.Route, c.Caller.String(), c.Key} }

// Decide checks the actor's authorization, decides the command and charges its events. It is the only way from a group
// to a command's Decide, because the actor's access may have ended while the command was queued. used is the number of
// the command's request in its organization's minute, if its group has counted it.
func (s *State) Decide(c Command, used int, now time.Time) ([]Draft, error) {
	by, spent := c.CommandOrigin(), error(nil)
	if by.Organization == InstallationID && !ofInstallation(c) {
		return nil, errUnknownOrganization
	}
	if TakesAway(c) {
		spent = s.withinMinute(by, used, now)
		by.Minute, by.Spent = 0, nil
	}
	if err := s.Judge(by, used, now); err != nil {
		return nil, err
	}
	drafts, err := c.Decide(s, now)
	if spent != nil && (len(drafts) == 0 || !TakesAway(c)) { // the command takes nothing away
		return nil, spent
	}
	if err != nil {
		return nil, err
	}
	for i := range drafts {
		if err := drafts[i].checkTexts(); err != nil {
			return nil, err
		}
	}
	if err := s.administer(c, drafts, now); err != nil {
		return nil, err
	}
	return drafts, nil
}

// checkTexts refuses texts that the ledger cannot keep. Commands check their own texts, with an error that names the
// member; this is a second line of defence.
func (d *Draft) checkTexts() error {
	valid := ValidText(d.Subject)
	for _, t := range d.Texts {
		valid = valid && ValidText(t.Body)
	}
	if !valid {
		return InvalidMember("", strictjson.CodeFormat, "every text "+TextRule)
	}
	return nil
}

// PerMinute returns an organization's limit of requests per minute.
func (s *State) PerMinute(id OrganizationID) (int, error) {
	o := s.organizations[id]
	if o == nil {
		return 0, say.Errorf("organization %s does not exist", id)
	}
	if _, ok := s.plans[o.Plan]; !ok {
		return 0, say.Errorf("organization %s has the plan %q, which the table of plans lacks", id, o.Plan)
	}
	return s.plans.PerMinute(o.Plan, o.PerMinute), nil
}

// Judge refuses an actor that may not act now, with the same code as authentication. It checks the credential, then the
// limit of the minute, then scope and role. Operators and the service itself are not checked. Any other actor without a
// key or a member is refused.
func (s *State) Judge(c Origin, used int, now time.Time) error {
	switch {
	case !c.Actor.Judged():
		return nil
	case c.Console:
		return s.judgeConsole(c)
	}
	switch c.Actor.Kind() {
	case ActorKey:
		return s.judgeKey(c, used, now)
	case ActorMember:
		return s.judgeLink(c)
	case ActorOperator, ActorSystem, ActorNobody:
	}
	return ErrKeyRefused
}

// judgeKey refuses a key that has ended or whose member may no longer act.
func (s *State) judgeKey(c Origin, used int, now time.Time) error {
	key := s.keys[c.Actor.Key()]
	if key == nil || key.Organization != c.Organization || key.ended(now) {
		return ErrKeyRefused
	}
	member := s.activeMember(c.Organization, key.Member)
	if member == nil {
		return ErrKeyRefused
	}
	if err := s.withinMinute(c, used, now); err != nil {
		return err
	}
	return c.authorize(Access{Key: key.ID, Scopes: key.Scopes, Role: member.Role})
}

// judgeLink refuses a member who acts through an OAuth link without an effective consent.
func (s *State) judgeLink(c Origin) error {
	id := c.Actor.Member()
	member := s.activeMember(c.Organization, id)
	if c.Link.IsZero() { // redeeming a link, before there is a consent
		if member == nil {
			return Refuse(InvalidState, "The member of this link is no longer active.")
		}
		return c.authorize(Access{Role: member.Role})
	}
	link := s.links[c.Link]
	if member == nil || link == nil || link.Organization != c.Organization || link.Member != id || link.Subject == nil ||
		link.WithdrawnAt != nil {
		return ErrLinkRefused
	}
	return c.authorize(Access{Link: c.Link, Scopes: link.Consented, Role: member.Role})
}

// judgeConsole refuses a signed-in member who may no longer act or whose role may not use the scope.
func (s *State) judgeConsole(c Origin) error {
	member := s.activeMember(c.Organization, c.Actor.Member())
	if member == nil {
		return ErrSessionEnded
	}
	if c.Scope != "" && !member.Role.Allows(c.Scope) {
		return Refuse(RoleRequired, "This needs the role %s; this member is %s.", OneOf(RolesFor(c.Scope)), member.Role)
	}
	return nil
}

// withinMinute refuses a request above the limit of its minute.
func (s *State) withinMinute(c Origin, used int, now time.Time) error {
	if c.Spent != nil {
		return c.Spent
	}
	if c.Minute == 0 {
		return nil
	}
	most, err := s.PerMinute(c.Organization)
	if err == nil && used > most {
		// it may have waited until another minute
		err = MinuteUsed(OrganizationMinute, most, max(time.Second, time.Unix((c.Minute+1)*60, 0).Sub(now)))
	}
	return err
}

func (c Origin) authorize(a Access) error {
	if c.Scope == "" {
		return nil
	}
	return a.Authorize(c.Scope)
}

// MayAct returns the condition that an actor fails to meet at a moment, zero if the actor may act. It is Judge without
// scope and role, for a replay: the state must have seen every earlier event of the organization.
func (s *State) MayAct(o OrganizationID, actor Actor, at time.Time) (expected say.Sentence) {
	member := actor.Member()
	switch actor.Kind() {
	case ActorOperator, ActorSystem:
		return say.Sentence{}
	case ActorNobody:
		return say.Sentencef("an act of a key, a member, the operator or the service")
	case ActorKey:
		key := s.keys[actor.Key()]
		switch {
		case key == nil || key.Organization != o:
			return say.Sentencef("an act of a key of the organization")
		case key.RevokedAt != nil:
			return say.Sentencef("no act of the key after it was revoked at %s", evidence.FormatTime(*key.RevokedAt))
		case !at.Before(key.ExpiresAt):
			return say.Sentencef("no act of the key after it expired at %s", evidence.FormatTime(key.ExpiresAt))
		}
		member = key.Member
	case ActorMember:
	}
	if s.activeMember(o, member) == nil {
		return say.Sentencef("an act of an active member, not of %s", member)
	}
	return say.Sentence{}
}

// actingKey returns the key of a command's actor, nil for members, operators and the service itself.
func (s *State) actingKey(c Origin) *APIKey { return s.keys[c.Actor.Key()] }

// actingMember returns the member behind a command, zero for operators and the service itself.
func (s *State) actingMember(c Origin) MemberID {
	if key := s.actingKey(c); key != nil {
		return key.Member
	}
	return c.Actor.Member()
}

// mayActAs refuses to create another member's key with a scope to review, approve or certify, because such declarations
// must come from the member. Operators and the service itself may create one.
func (s *State) mayActAs(c Origin, member MemberID, scopes []Scope) error {
	if id := s.actingMember(c); id.IsZero() || id == member {
		return nil
	}
	for _, scope := range []Scope{ReviewsWrite, ApprovalsWrite, CertificatesWrite} {
		if slices.Contains(scopes, scope) {
			return Refuse(
				RoleRequired,
				"Only the member of a key with the scope %s makes or rotates it; anybody who administers the organization may "+
					"revoke it.",
				scope,
			)
		}
	}
	return nil
}

// mayChange refuses an actor that is not an owner to create, change, end or act as an owner. Operators and the service
// itself may do so.
func (s *State) mayChange(c Origin, roles ...Role) error {
	if !c.Actor.Judged() || !slices.Contains(roles, Owner) {
		return nil
	}
	if m := s.activeMember(c.Organization, s.actingMember(c)); m == nil || m.Role != Owner {
		return Refuse(RoleRequired, "Only an owner makes, changes or ends an owner, or rotates the key of one.")
	}
	return nil
}

// activeMember finds an active member of an organization, or nil.
func (s *State) activeMember(o OrganizationID, id MemberID) *Member {
	if m := s.members[id]; m != nil && m.Organization == o && m.Status == MemberActive {
		return m
	}
	return nil
}

// ended reports whether a key has been revoked or has expired.
func (k *APIKey) ended(now time.Time) bool { return k.RevokedAt != nil || !now.Before(k.ExpiresAt) }

// EndsSoon reports whether a key still works and ends within KeyWarning.
func (k *APIKey) EndsSoon(now time.Time) bool { return !k.ended(now) && k.ended(now.Add(KeyWarning)) }
