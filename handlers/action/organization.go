package action

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// ConsoleURL returns the address under which browsers must open the console. WebAuthn needs a host name, so a loopback
// address becomes localhost.
func ConsoleURL(baseURL string) string {
	base, err := url.Parse(baseURL)
	if err != nil || base.Scheme != "http" || net.ParseIP(base.Hostname()) == nil ||
		!domain.IsLoopbackHost(base.Hostname()) {
		return baseURL
	}
	base.Host = strings.TrimSuffix("localhost:"+base.Port(), ":")
	return base.String()
}

// Organization shows an organization and its remaining monthly limits, to any of its keys.
func (s *Administration) Organization(
	ctx context.Context, c *edge.Call, _ struct{},
) (shown wire.FullOrganization, err error) {
	o, err := s.Store.Organization(ctx, c.Access.Organization)
	if err != nil {
		return shown, err
	}
	months, err := s.Store.MonthlyLimits(ctx, c.Access, domain.PeriodOf(c.Start))
	if err != nil {
		return shown, err
	}
	day, limit, err := s.Store.Administered(ctx, c.Access, c.Start)
	if err != nil {
		return shown, err
	}
	view := func(u domain.Usage) wire.MonthlyLimit {
		return wire.MonthlyLimit{Quota: viewAllowance(u), ResetsAt: evidence.FormatTime(u.Period.End())}
	}
	return wire.FullOrganization{
		Organization: wire.Organization{ID: o.ID.String(), Name: o.Name, Plan: o.Plan},
		CreatedAt:    evidence.FormatTime(o.CreatedAt),
		Limits: wire.OrganizationLimits{
			Versions: view(months[0].Versions), Requests: view(months[0].Requests),
			Registrations: view(months[0].Registrations), WebhookAttempts: view(months[0].WebhookAttempts),
			AdministrativeEvents: wire.MonthlyLimit{Quota: viewAllowance(domain.Usage{Limit: limit, Used: day.Used}),
				ResetsAt: evidence.FormatTime(day.End())},
		},
	}, nil
}

// ViewAPIKey shows a key to the administration of its organization, without its secret.
func ViewAPIKey(k query.GrantedKey) wire.APIKey {
	return wire.APIKey{
		ID: k.ID.String(), Name: k.Name, MemberID: k.Member.String(), Scopes: k.Scopes, Source: k.Source,
		MaxVersionStep: k.MaxVersionStep,
		Networks:       append([]string{}, k.AllNetworks()...),
		Grants:         wire.KeyGrants{Companies: append([]string{}, k.Companies...), HasMore: k.More},
		CreatedBy:      wire.OrNull(k.CreatedBy.String()), CreatedAt: evidence.FormatTime(k.CreatedAt),
		ExpiresAt:  evidence.FormatTime(k.ExpiresAt),
		LastUsedAt: wire.TimeOrNull(k.LastUsedAt), RevokedAt: wire.TimeOrNull(k.RevokedAt),
	}
}

// ReadKeyID reads the key in the path.
func ReadKeyID(o *strictjson.Object) domain.KeyID {
	return edge.ReadID(o, "keyId", domain.ParseID[domain.KeyID])
}

// ReadKeysPage reads which page of keys is wanted.
func ReadKeysPage(o *strictjson.Object) edge.Paging[domain.KeyID] {
	return edge.ReadPaging(o, domain.ParseID[domain.KeyID])
}

// ListKeys lists every API key of the organization, oldest first.
func (s *Administration) ListKeys(
	ctx context.Context, c *edge.Call, asked edge.Paging[domain.KeyID],
) (wire.APIKeys, error) {
	keys, more, err := s.Store.KeysPage(ctx, c.Access.Organization, asked.After, asked.Limit)
	next := edge.NextPage(asked, keys, more, func(k query.GrantedKey) string { return k.ID.String() })
	return wire.APIKeys{Keys: wire.Each(keys, ViewAPIKey), Next: next}, err
}

// Key shows a key of the organization, revoked or not.
func (s *Administration) Key(ctx context.Context, c *edge.Call, id domain.KeyID) (wire.APIKey, error) {
	found, err := s.Store.KeyOf(ctx, c.Access.Organization, id)
	return ViewAPIKey(found), err
}

// keyAfter shows a key after a committed change: as the database has it now, or as the change left it if the read
// fails.
func (s *Administration) keyAfter(ctx context.Context, key domain.APIKey) wire.APIKey {
	found, err := s.Store.KeyOf(ctx, key.Organization, key.ID)
	if err != nil {
		found = query.GrantedKey{UsedKey: query.UsedKey{APIKey: key}}
	}
	return ViewAPIKey(found)
}

// readTime reads an optional member that holds a time.
func readTime(o *strictjson.Object, name string) (at time.Time) {
	text := o.NullableString(name, strictjson.Optional)
	if text == nil {
		return at
	}
	at, err := time.Parse(time.RFC3339, *text)
	if err != nil || at.IsZero() { // the zero time means no time
		o.Problem(name, strictjson.CodeFormat, "must be a time such as 2026-12-31T23:00:00Z")
	}
	return at
}

func readKeyName(o *strictjson.Object) string {
	return o.Match("name", strictjson.Required, domain.ValidKeyName, domain.KeyNameRule)
}

// ReadNewKey reads a key to create. A name and a scope are required; the other members restrict the key.
func ReadNewKey(o *strictjson.Object) (k domain.CreateKey) {
	k.Name = readKeyName(o)
	k.Scopes = edge.ReadNames(
		o, "scopes", domain.Scopes(), edge.CodeUnknownValue, "must be one of the scopes that the reference lists",
	)
	if !o.Has("scopes") || o.OK("scopes") && len(k.Scopes) == 0 {
		o.Problem("scopes", strictjson.CodeLength, "must name at least one scope")
	}
	k.ExpiresAt = readTime(o, "expiresAt")
	if k.Source = o.NullableString("source", strictjson.Optional); k.Source != nil && !domain.ValidReference(*k.Source) {
		o.Problem("source", strictjson.CodeFormat, domain.ReferenceRule)
	}
	for i, text := range o.StringList("networks", strictjson.Optional, 0, domain.MaxKeyNetworks) {
		network, err := domain.ParseNetwork(text)
		if err != nil {
			o.ElementProblem(
				"networks", i, strictjson.CodeFormat, "must be an address or a network such as 192.0.2.0/24 or 2001:db8::/32",
			)
		} else if slices.Contains(k.Networks, network) {
			o.ElementProblem("networks", i, strictjson.CodeDuplicate, "must appear once")
		}
		k.Networks = append(k.Networks, network)
	}
	if step := o.NullableInt("maxVersionStep", 1, domain.MaxVersion, strictjson.Optional); step != nil {
		k.MaxVersionStep = new(int32(*step))
	}
	k.Companies = o.StringList("companies", strictjson.Optional, 0, domain.MaxKeyCompanies)
	for i, reference := range k.Companies {
		switch {
		case !domain.ValidReference(reference):
			o.ElementProblem("companies", i, strictjson.CodeFormat, domain.ReferenceRule)
		case slices.Contains(k.Companies[:i], reference):
			o.ElementProblem("companies", i, strictjson.CodeDuplicate, "must appear once")
		}
	}
	return k
}

// MadeKey is a new key with its text, which is never shown again.
type MadeKey struct {
	domain.APIKey
	Text   string
	Former domain.APIKey // the key that it succeeds, if any
}

// MakeKey creates a key of the caller's member.
func (s *Administration) MakeKey(ctx context.Context, c *edge.Call, create domain.CreateKey) (MadeKey, error) {
	create.Origin, create.Member = c.Origin(), c.Access.Member
	command, text := domain.NewCreateKey(create, s.Now())
	if err := s.execute(ctx, command); err != nil {
		return MadeKey{}, err
	}
	return MadeKey{APIKey: command.Outcome, Text: text}, nil
}

// CreateKey creates a key and shows it.
func (s *Administration) CreateKey(
	ctx context.Context, c *edge.Call, create domain.CreateKey,
) (wire.CreatedAPIKey, error) {
	made, err := s.MakeKey(ctx, c, create)
	if err != nil {
		return wire.CreatedAPIKey{}, err
	}
	return s.viewMade(ctx, made), nil
}

func (s *Administration) viewMade(ctx context.Context, made MadeKey) wire.CreatedAPIKey {
	return wire.CreatedAPIKey{APIKey: s.keyAfter(ctx, made.APIKey), Key: made.Text}
}

// ReadKeyChange reads the key in the path, and its new name or end. Absent members do not change.
func ReadKeyChange(o *strictjson.Object) domain.ChangeKey {
	change := domain.ChangeKey{Key: ReadKeyID(o)}
	if o.Has("name") {
		change.Name = new(readKeyName(o))
	}
	if end := readTime(o, "expiresAt"); !end.IsZero() {
		change.ExpiresAt = &end
	}
	return change
}

// UpdateKey renames a key or makes it end earlier.
func (s *Administration) UpdateKey(ctx context.Context, c *edge.Call, change domain.ChangeKey) (wire.APIKey, error) {
	change.Origin = c.Origin()
	return done(ctx, s.Service, &change, func() wire.APIKey { return s.keyAfter(ctx, change.Outcome) })
}

// RevokeKey revokes a key for good, at once. A revoked key does not change.
func (s *Administration) RevokeKey(ctx context.Context, c *edge.Call, id domain.KeyID) (wire.APIKey, error) {
	command := &domain.RevokeKey{Origin: c.Origin(), Key: id}
	return done(ctx, s.Service, command, func() wire.APIKey { return s.keyAfter(ctx, command.Outcome) })
}

// DefaultKeyOverlap is how long the former key keeps working after a rotation that names no overlap.
const DefaultKeyOverlap = 24 * time.Hour

// ReadKeyRotation reads the key in the path and the properties of its successor. Without overlapSeconds the former key
// keeps working for DefaultKeyOverlap. Grants are copied only on request.
func ReadKeyRotation(o *strictjson.Object) domain.RotateKey {
	rotate := domain.RotateKey{Key: ReadKeyID(o), Overlap: DefaultKeyOverlap}
	if o.Has("overlapSeconds") {
		rotate.Overlap = time.Duration(o.Int(
			"overlapSeconds", 0, int64(domain.MaxKeyOverlap/time.Second), strictjson.Required,
		)) * time.Second
	}
	rotate.CopyGrants = o.Bool("copyGrants", strictjson.Optional)
	rotate.ExpiresAt = readTime(o, "expiresAt")
	return rotate
}

// Succeed creates the successor of a key.
func (s *Administration) Succeed(ctx context.Context, c *edge.Call, rotate domain.RotateKey) (MadeKey, error) {
	rotate.Origin = c.Origin()
	command, text := domain.NewRotateKey(rotate, s.Now())
	if err := s.execute(ctx, command); err != nil {
		return MadeKey{}, err
	}
	return MadeKey{command.Outcome.Key, text, command.Outcome.Former}, nil
}

// RotateKey creates the successor of a key and shows both.
func (s *Administration) RotateKey(
	ctx context.Context, c *edge.Call, rotate domain.RotateKey,
) (wire.RotatedAPIKey, error) {
	made, err := s.Succeed(ctx, c, rotate)
	if err != nil {
		return wire.RotatedAPIKey{}, err
	}
	return wire.RotatedAPIKey{CreatedAPIKey: s.viewMade(ctx, made), FormerKey: s.keyAfter(ctx, made.Former)}, nil
}

// ViewMember shows a membership to the administration of its organization.
func ViewMember(m domain.Member) wire.FullMember {
	v := wire.FullMember{
		ID: m.ID.String(), Email: wire.OrNull(m.Email), Role: m.Role, Status: m.Status,
		CreatedAt: evidence.FormatTime(m.CreatedAt),
	}
	if m.Status == domain.MemberInvited {
		v.InvitationExpiresAt = wire.TimeOrNull(m.InvitedUntil)
	}
	return v
}

// ReadMembersPage reads which page of members is wanted.
func ReadMembersPage(o *strictjson.Object) edge.Paging[domain.MemberID] {
	return edge.ReadPaging(o, domain.ParseID[domain.MemberID])
}

// ListMembers lists every membership of the organization, oldest first, including ended ones.
func (s *Administration) ListMembers(
	ctx context.Context, c *edge.Call, asked edge.Paging[domain.MemberID],
) (wire.Members, error) {
	members, more, err := s.Store.MembersPage(ctx, c.Access.Organization, asked.After, asked.Limit)
	next := edge.NextPage(asked, members, more, func(m domain.Member) string { return m.ID.String() })
	return wire.Members{Members: wire.Each(members, ViewMember), Next: next}, err
}

// ReadRole reads a required role.
func ReadRole(o *strictjson.Object) domain.Role {
	return domain.Role(o.Match("role", strictjson.Required, func(text string) bool {
		return slices.Contains(domain.Roles(), domain.Role(text))
	}, roleRule))
}

const roleRule = "must be owner, admin, reviewer, analyst or viewer"

// ReadEmail reads a required address that follows the rules of domain.ValidEmail.
func ReadEmail(o *strictjson.Object) string {
	return o.Match("email", strictjson.Required, domain.ValidEmail, domain.EmailRule)
}

// ReadInvitation reads the address and the role of an invitation. Both are required.
func ReadInvitation(o *strictjson.Object) domain.InviteMember {
	return domain.InviteMember{Email: ReadEmail(o), Role: ReadRole(o)}
}

// invitationPath is the page on which an invitation is accepted.
const invitationPath = "/console/invitation/"

// InvitationURLs returns the addresses of the page of an invitation in both languages.
func InvitationURLs(baseURL, code string) wire.InvitationURLs {
	return wire.InvitationURLs{
		ES: InvitationURL(baseURL, evidence.Spanish, code), EN: InvitationURL(baseURL, evidence.English, code),
	}
}

// InvitationURL returns the address of the page of an invitation in one language.
func InvitationURL(baseURL string, language evidence.Language, code string) string {
	return ConsoleURL(strings.TrimRight(baseURL, "/")) + web.Path(language, invitationPath+code)
}

// InviteMember mails an invitation. If no mail can be sent, the answer contains the link, which is shown nowhere else.
func (s *Administration) InviteMember(
	ctx context.Context, c *edge.Call, invite domain.InviteMember,
) (wire.InvitedMember, error) {
	command, code, err := s.Invite(ctx, c, invite)
	if err != nil {
		return wire.InvitedMember{}, err
	}
	v := wire.InvitedMember{FullMember: ViewMember(command.Outcome), Renewed: command.Renewed, Mailed: code == ""}
	if !v.Mailed {
		v.InvitationURLs = new(InvitationURLs(s.BaseURL, code))
	}
	return v, nil
}

// Invite invites an address. The returned code of the link is empty if the invitation is mailed.
func (s *Administration) Invite(
	ctx context.Context, c *edge.Call, invite domain.InviteMember,
) (command *domain.InviteMember, code string, err error) {
	invite.Origin = c.Origin()
	var seal *domain.SecretKey
	if keys := s.SecretKeys(); s.MailsInvitations && len(keys) > 0 {
		seal = &keys[0]
	}
	command, code = domain.NewInviteMember(invite, seal)
	if seal != nil {
		code = ""
	}
	return command, code, s.execute(ctx, command)
}

// InvitationsAreMailed reports whether invitations are mailed. Their link is then only in the mail, so accepting one
// proves that the person reads the address.
func (s *Administration) InvitationsAreMailed() bool {
	return s.MailsInvitations && len(s.SecretKeys()) > 0
}

// ReadMemberID reads the member in the path.
func ReadMemberID(o *strictjson.Object) domain.MemberID {
	return edge.ReadID(o, "memberId", domain.ParseID[domain.MemberID])
}

// ReadMemberChange reads the member in the path, and the new role or status. Absent members of the body do not change.
// EndMember ends a membership.
func ReadMemberChange(o *strictjson.Object) domain.ChangeMember {
	change := domain.ChangeMember{Member: ReadMemberID(o)}
	if o.Has("role") {
		change.Role = new(ReadRole(o))
	}
	if o.Has("status") {
		change.Status = new(domain.MemberStatus(o.Match("status", strictjson.Required, func(text string) bool {
			return text == string(domain.MemberActive) || text == string(domain.MemberDisabled)
		}, "must be active or disabled; DELETE ends the membership")))
	}
	return change
}

// UpdateMember changes the role of a member, or disables or enables the member.
func (s *Administration) UpdateMember(
	ctx context.Context, c *edge.Call, change domain.ChangeMember,
) (wire.FullMember, error) {
	change.Origin = c.Origin()
	if change.Member.IsZero() { // ChangeMember without an id names the member by address
		_, err := s.Store.Member(ctx, change.Organization, change.Member)
		return wire.FullMember{}, err
	}
	return done(ctx, s.Service, &change, func() wire.FullMember { return ViewMember(change.Outcome) })
}

// EndMember ends a membership for good, or withdraws an invitation.
func (s *Administration) EndMember(ctx context.Context, c *edge.Call, id domain.MemberID) (wire.FullMember, error) {
	return s.UpdateMember(ctx, c, domain.ChangeMember{Member: id, Status: new(domain.MemberEnded)})
}
