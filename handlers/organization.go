package handlers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// organization shows an organization and what is left of its month, to any of its keys.
func (s *server) organization(r *http.Request) (any, error) {
	c := callOf(r)
	o, err := s.Store.Organization(r.Context(), c.access.Organization)
	if err != nil {
		return nil, err
	}
	months, err := s.Store.MonthlyLimits(r.Context(), c.access, domain.PeriodOf(c.start))
	if err != nil {
		return nil, err
	}
	day, limit, err := s.Store.Administered(r.Context(), c.access, c.start)
	if err != nil {
		return nil, err
	}
	view := func(u domain.Usage) wire.MonthlyLimit {
		return wire.MonthlyLimit{Quota: viewAllowance(u), ResetsAt: evidence.FormatTime(u.Period.End())}
	}
	return wire.FullOrganization{
		Organization: wire.Organization{ID: o.ID.String(), Name: o.Name, Plan: o.Plan}, CreatedAt: evidence.FormatTime(o.CreatedAt),
		Limits: wire.OrganizationLimits{
			Versions: view(months[0].Versions), Requests: view(months[0].Requests), Registrations: view(months[0].Registrations), WebhookAttempts: view(months[0].WebhookAttempts),
			AdministrativeEvents: wire.MonthlyLimit{Quota: viewAllowance(domain.Usage{Limit: limit, Used: day.Used}),
				ResetsAt: evidence.FormatTime(day.End())},
		},
	}, nil
}

// ViewAPIKey shows a key as the administration of an organization does, never with its secret.
func ViewAPIKey(k query.GrantedKey) wire.APIKey {
	return wire.APIKey{
		ID: k.ID.String(), Name: k.Name, MemberID: k.Member.String(), Scopes: k.Scopes, Source: k.Source, MaxVersionStep: k.MaxVersionStep,
		Networks: append([]string{}, k.AllNetworks()...), Grants: wire.KeyGrants{Companies: append([]string{}, k.Companies...), HasMore: k.More},
		CreatedBy: orNull(k.CreatedBy.String()), CreatedAt: evidence.FormatTime(k.CreatedAt), ExpiresAt: evidence.FormatTime(k.ExpiresAt),
		LastUsedAt: timeOrNull(k.LastUsedAt), RevokedAt: timeOrNull(k.RevokedAt),
	}
}

func keyID(r *http.Request) domain.KeyID { return pathID(r, "keyId", domain.ParseID[domain.KeyID]) }

// listKeys shows every API key of the organization, oldest first.
func (s *server) listKeys(r *http.Request) (any, error) {
	q := newQuery(r)
	limit, after := readLimit(q), cursorID(q, domain.ParseID[domain.KeyID])
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	keys, more, err := s.Store.KeysPage(r.Context(), callOf(r).access.Organization, after, limit)
	next := nextPage(q, keys, more, func(k query.GrantedKey) string { return k.ID.String() })
	return wire.APIKeys{Keys: each(keys, ViewAPIKey), Next: next}, err
}

func (s *server) key(r *http.Request) (any, error) {
	found, err := s.Store.KeyOf(r.Context(), callOf(r).access.Organization, keyID(r))
	return ViewAPIKey(found), err
}

// keyAfter shows a key after a change that is committed: as it is read now, or as the change left it where that fails.
func (s *server) keyAfter(ctx context.Context, key domain.APIKey) wire.APIKey {
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
	if err != nil || at.IsZero() { // which would be none
		o.Problem(name, strictjson.CodeFormat, "must be a time such as 2026-12-31T23:00:00Z")
	}
	return at
}

func readKeyName(o *strictjson.Object) string {
	return o.Match("name", strictjson.Required, domain.ValidKeyName, domain.KeyNameRule)
}

func readNewKey(o *strictjson.Object) (k domain.CreateKey) {
	k.Name = readKeyName(o)
	k.Scopes = readNames(o, "scopes", domain.Scopes(), codeUnknownValue, "must be one of the scopes that the reference lists")
	if !o.Has("scopes") || o.OK("scopes") && len(k.Scopes) == 0 {
		o.Problem("scopes", strictjson.CodeLength, "must name at least one scope")
	}
	k.ExpiresAt = readTime(o, "expiresAt")
	if k.Source = o.NullableString("source", strictjson.Optional); k.Source != nil && !domain.ValidReference(*k.Source) {
		o.Problem("source", strictjson.CodeFormat, domain.ReferenceRule)
	}
	for i, text := range o.StringList("networks", strictjson.Optional, domain.MaxKeyNetworks) {
		network, err := domain.ParseNetwork(text)
		if err != nil {
			o.ElementProblem("networks", i, strictjson.CodeFormat, "must be an address or a network such as 192.0.2.0/24 or 2001:db8::/32")
		} else if slices.Contains(k.Networks, network) {
			o.ElementProblem("networks", i, strictjson.CodeDuplicate, "must appear once")
		}
		k.Networks = append(k.Networks, network)
	}
	if step := o.NullableInt("maxVersionStep", 1, domain.MaxVersion, strictjson.Optional); step != nil {
		k.MaxVersionStep = new(int32(*step))
	}
	k.Companies = o.StringList("companies", strictjson.Optional, domain.MaxKeyCompanies)
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

// createKey makes a key of the caller's member; its text is in this answer only.
func (s *server) createKey(ctx context.Context, c *call, create domain.CreateKey) (any, error) {
	create.Origin, create.Member = c.origin(), c.access.Member
	command, text := domain.NewCreateKey(create, s.Now())
	return s.done(ctx, command, func() any {
		return response{status: http.StatusCreated, data: wire.CreatedAPIKey{APIKey: s.keyAfter(ctx, command.Outcome), Key: text}}
	})
}

func readKeyChange(o *strictjson.Object) (change domain.ChangeKey) {
	if o.Has("name") {
		change.Name = new(readKeyName(o))
	}
	if end := readTime(o, "expiresAt"); !end.IsZero() {
		change.ExpiresAt = &end
	}
	return change
}

// updateKey renames a key, or brings its end forward.
func (s *server) updateKey(r *http.Request) (any, error) {
	change, err := bodyOf(r, readKeyChange)
	if err != nil {
		return nil, err
	}
	command := &change
	command.Origin, command.Key = origin(r), keyID(r)
	return s.done(r.Context(), command, func() any { return s.keyAfter(r.Context(), command.Outcome) })
}

func (s *server) revokeKey(r *http.Request) (any, error) {
	command := &domain.RevokeKey{Origin: origin(r), Key: keyID(r)}
	return s.done(r.Context(), command, func() any { return s.keyAfter(r.Context(), command.Outcome) })
}

// defaultKeyOverlap is how long the former key goes on working after a rotation that names no overlap.
const defaultKeyOverlap = 24 * time.Hour

func readKeyRotation(o *strictjson.Object) domain.RotateKey {
	rotate := domain.RotateKey{Overlap: defaultKeyOverlap}
	if o.Has("overlapSeconds") {
		rotate.Overlap = time.Duration(o.Int("overlapSeconds", 0, int64(domain.MaxKeyOverlap/time.Second), strictjson.Required)) * time.Second
	}
	rotate.CopyGrants = o.Bool("copyGrants", strictjson.Optional)
	rotate.ExpiresAt = readTime(o, "expiresAt")
	return rotate
}

// rotateKey gives a key a successor, whose text is in this answer only.
func (s *server) rotateKey(r *http.Request) (any, error) {
	rotate := domain.RotateKey{Overlap: defaultKeyOverlap}
	if err := decode(r, func(o *strictjson.Object) { rotate = readKeyRotation(o) }); err != nil {
		return nil, err
	}
	rotate.Origin, rotate.Key = origin(r), keyID(r)
	command, text := domain.NewRotateKey(rotate, s.Now())
	return s.done(r.Context(), command, func() any {
		return response{status: http.StatusCreated, data: wire.RotatedAPIKey{
			CreatedAPIKey: wire.CreatedAPIKey{APIKey: s.keyAfter(r.Context(), command.Outcome.Key), Key: text},
			FormerKey:     s.keyAfter(r.Context(), command.Outcome.Former),
		}}
	})
}

// ViewMember shows a membership as the administration of an organization does.
func ViewMember(m domain.Member) wire.FullMember {
	v := wire.FullMember{ID: m.ID.String(), Email: orNull(m.Email), Role: m.Role, Status: m.Status, CreatedAt: evidence.FormatTime(m.CreatedAt)}
	if m.Status == domain.MemberInvited {
		v.InvitationExpiresAt = timeOrNull(m.InvitedUntil)
	}
	return v
}

// listMembers shows every membership of the organization, oldest first, ended ones included.
func (s *server) listMembers(r *http.Request) (any, error) {
	q := newQuery(r)
	limit, after := readLimit(q), cursorID(q, domain.ParseID[domain.MemberID])
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	members, more, err := s.Store.MembersPage(r.Context(), callOf(r).access.Organization, after, limit)
	next := nextPage(q, members, more, func(m domain.Member) string { return m.ID.String() })
	return wire.Members{Members: each(members, ViewMember), Next: next}, err
}

func readRole(o *strictjson.Object) domain.Role {
	return domain.Role(o.Match("role", strictjson.Required, func(text string) bool { return slices.Contains(domain.Roles(), domain.Role(text)) }, roleRule))
}

const roleRule = "must be owner, admin, reviewer, analyst or viewer"

func readEmail(o *strictjson.Object) string {
	return o.Match("email", strictjson.Required, domain.ValidEmail, domain.EmailRule)
}

func readInvitation(o *strictjson.Object) domain.InviteMember {
	return domain.InviteMember{Email: readEmail(o), Role: readRole(o)}
}

// invitationPath leads to the page on which an invitation is accepted.
const invitationPath = "/console/invitation/"

// InvitationURLs are the addresses of the page of an invitation.
func InvitationURLs(baseURL, code string) wire.InvitationURLs {
	return wire.InvitationURLs{ES: InvitationURL(baseURL, evidence.Spanish, code), EN: InvitationURL(baseURL, evidence.English, code)}
}

// InvitationURL is one of InvitationURLs.
func InvitationURL(baseURL string, language evidence.Language, code string) string {
	return consoleURL(strings.TrimRight(baseURL, "/")) + web.Path(language, invitationPath+code)
}

// inviteMember mails an invitation, or where no mail can be sent answers with its link, which is shown nowhere else.
func (s *server) inviteMember(ctx context.Context, c *call, invite domain.InviteMember) (any, error) {
	invite.Origin = c.origin()
	command, code, err := s.invite(ctx, invite)
	if err != nil {
		return nil, err
	}
	v := wire.InvitedMember{FullMember: ViewMember(command.Outcome), Renewed: command.Renewed, Mailed: code == ""}
	if !v.Mailed {
		v.InvitationURLs = new(InvitationURLs(s.BaseURL, code))
	}
	return response{status: createdStatus(v.Renewed), data: v}, nil
}

// invite invites an address. The code of the link is empty where it is mailed.
func (s *server) invite(ctx context.Context, invite domain.InviteMember) (command *domain.InviteMember, code string, err error) {
	var seal *domain.SecretKey
	if s.mailsInvitations() {
		seal = s.SecretKey
	}
	command, code = domain.NewInviteMember(invite, seal)
	if seal != nil {
		code = ""
	}
	return command, code, s.execute(ctx, command)
}

// mailsInvitations reports whether an invitation shows that its reader reads the address: its link is in the mail alone.
func (s *server) mailsInvitations() bool { return s.MailsInvitations && s.SecretKey != nil }

func memberID(r *http.Request) domain.MemberID {
	return pathID(r, "memberId", domain.ParseID[domain.MemberID])
}

// updateMember changes the role of a member, or disables or enables one.
func (s *server) updateMember(r *http.Request) (any, error) {
	command := &domain.ChangeMember{Origin: origin(r), Member: memberID(r)}
	err := decode(r, func(o *strictjson.Object) {
		if o.Has("role") {
			command.Role = new(readRole(o))
		}
		if o.Has("status") {
			command.Status = new(domain.MemberStatus(o.Match("status", strictjson.Required, func(text string) bool {
				return text == string(domain.MemberActive) || text == string(domain.MemberDisabled)
			}, "must be active or disabled; DELETE ends the membership")))
		}
	})
	if err != nil {
		return nil, err
	}
	return s.changeMember(r, command)
}

// endMember ends a membership for good, or withdraws an invitation.
func (s *server) endMember(r *http.Request) (any, error) {
	return s.changeMember(r, &domain.ChangeMember{Origin: origin(r), Member: memberID(r), Status: new(domain.MemberEnded)})
}

func (s *server) changeMember(r *http.Request, command *domain.ChangeMember) (any, error) {
	if command.Member.IsZero() { // which would name a member by an address
		_, err := s.Store.Member(r.Context(), command.Organization, command.Member)
		return nil, err
	}
	return s.done(r.Context(), command, func() any { return ViewMember(command.Outcome) })
}
