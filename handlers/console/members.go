package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// membersShown is the number of memberships on a page, and keysNamed the number of a member's keys that a page names.
const (
	membersShown = 100
	keysNamed    = 20
)

// endpoints adds the pages of the organization's members.
func (s memberPages) endpoints(both addition) {
	manage := edge.Policy{
		Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.OrganizationAdmin,
	}
	act := manage
	act.Body = edge.BodyForm
	both(edge.Get, "/members", s.members, manage)
	if !s.NoInvitations {
		both(edge.Post, "/members", s.inviteByForm, act)
		both(edge.Post, "/members/{memberId}/invite", s.inviteAgain, act)
	}
	both(edge.Get, "/members/{memberId}", s.memberPage, manage)
	both(edge.Post, "/members/{memberId}/role", s.changeRole, act)
	both(edge.Post, "/members/{memberId}/enable", s.changeStatus(domain.MemberActive), act)
	for step, status := range map[string]domain.MemberStatus{"disable": domain.MemberDisabled, "end": domain.MemberEnded} {
		both(edge.Get, "/members/{memberId}/"+step, s.confirmStatus(step), manage)
		both(edge.Post, "/members/{memberId}/"+step, s.changeStatus(status), act)
	}
}

// members lists the memberships of the organization to those who manage them.
func (s memberPages) members(r *http.Request) (any, error) {
	return s.showMembers(r, web.Members{}, nil)
}

// showMembers lists the members after an invitation. failed says why the invitation was refused, if it was.
func (s memberPages) showMembers(r *http.Request, shown web.Members, failed error) (edge.Response, error) {
	status, refused := http.StatusOK, edge.Refusal(failed)
	if errors.Is(failed, errProofNeeded) {
		shown.Problem.Prove, status = s.proveInTab(r), http.StatusForbidden
	} else if failed != nil {
		if shown.Refused, status = refusedWord(refused); status == 0 {
			return edge.Response{}, failed
		}
		shown.Until = edge.CallOf(r).Start.Add(refused.RetryAfter)
	}
	c := edge.CallOf(r)
	after, _ := domain.ParseID[domain.MemberID](r.URL.Query().Get("after"))
	all, more, err := s.Store.MembersPage(r.Context(), c.Session.Organization, after, membersShown)
	if err != nil {
		return edge.Response{}, err
	}
	shown.Console, shown.Roles, shown.Invites = s.frameOf(r, "members"), s.rolesToGive(r), !s.NoInvitations
	shown.Unverified = !s.InvitationsAreMailed()
	if c.Session.Role == domain.Owner {
		shown.Prove = s.proveFirst(r, "/members")
	}
	ended := slices.DeleteFunc(slices.Clone(all), func(m domain.Member) bool { return m.Status != domain.MemberEnded })
	withdrawn, err := s.withdrawn(
		r.Context(), c, wire.Each(ended, func(m domain.Member) domain.MemberID { return m.ID })...,
	)
	if err != nil {
		return edge.Response{}, err
	}
	shown.All = wire.Each(all, func(m domain.Member) web.Member {
		v := viewMember(c, m)
		v.Withdrawn = withdrawn[v.ID]
		return v
	})
	list := web.Path(shown.Console.Language, web.ConsoleRoot+"/members")
	if !after.IsZero() {
		shown.First = list
	}
	if more {
		shown.Next = list + "?after=" + all[len(all)-1].ID.String()
	}
	resp, err := consolePageOf(s.site.Members(shown))
	return afterForm(resp, status, refused), err
}

// refusedWord returns the template's word for a refused invitation or change, and the status. The status is 0 if the
// input is not to blame.
func refusedWord(refused *domain.Error) (word string, status int) {
	switch {
	case refused == nil || refused.Limit != nil:
		return "", 0
	case refused.Code == domain.InvalidData && refused.Fields[0].Pointer == "/email":
		return "Address", http.StatusUnprocessableEntity
	case refused.Code == domain.InvalidData:
		return "Role", http.StatusUnprocessableEntity
	case refused.Code == domain.InvalidState:
		return "State", http.StatusConflict
	case refused.Code == domain.RateLimited:
		return "Wait", http.StatusTooManyRequests
	}
	return "", 0
}

// afterForm sets the status and the code of a refused form on its page.
func afterForm(resp edge.Response, status int, refused *domain.Error) edge.Response {
	if resp.Status = status; refused != nil {
		resp.Code = refused.Code
	}
	return resp
}

// rolesToGive returns the roles that the person may assign. An owner who has chosen owner is asked for a recent proof
// of identity on the same page, so that no input is lost.
func (s memberPages) rolesToGive(r *http.Request) []domain.Role {
	if edge.CallOf(r).Session.Role == domain.Owner {
		return domain.Roles()
	}
	return slices.DeleteFunc(domain.Roles(), func(role domain.Role) bool { return role == domain.Owner })
}

func viewMember(c *edge.Call, m domain.Member) web.Member {
	view := web.Member{
		ID: m.ID.String(), Email: m.Email, Role: m.Role, Status: m.Status, Since: m.CreatedAt, Own: m.ID == c.Session.Member,
	}
	if m.Status == domain.MemberInvited {
		view.InvitedUntil, view.Expired = m.InvitedUntil, !c.Start.Before(*m.InvitedUntil)
	}
	return view
}

// withdrawn reports, by id, which ended memberships were invitations that nobody accepted.
func (s *Console) withdrawn(ctx context.Context, c *edge.Call, ended ...domain.MemberID) (map[string]bool, error) {
	if len(ended) == 0 {
		return nil, nil
	}
	o := c.Session.Organization
	invited, err := s.Store.Inviters(ctx, o, ended)
	if err != nil {
		return nil, err
	}
	joined, err := s.Store.Creators(ctx, o, domain.MemberJoined, slices.Collect(maps.Keys(invited)))
	withdrawn := map[string]bool{}
	for id := range invited {
		_, accepted := joined[id]
		withdrawn[id] = !accepted
	}
	return withdrawn, err
}

// ownerProved requires a recent proof of identity if an owner is created, changed or ended.
func (s memberPages) ownerProved(r *http.Request, roles ...domain.Role) error {
	if !slices.Contains(roles, domain.Owner) {
		return nil
	}
	return s.recentlyProved(r)
}

// inviteByForm invites an address. If no mail can be sent, the page shows the link, which is not shown again.
func (s memberPages) inviteByForm(r *http.Request) (any, error) {
	invite, wrong := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadInvitation)
	typed := web.Members{Typed: edge.Form(r).Get("email"), Chosen: domain.Role(edge.Form(r).Get("role"))}
	if wrong == nil {
		wrong = s.ownerProved(r, invite.Role)
	}
	if wrong != nil {
		return s.showMembers(r, typed, wrong)
	}
	command, code, err := s.Invite(r.Context(), edge.CallOf(r), invite)
	if err != nil {
		return s.showMembers(r, typed, err)
	}
	return s.showInvited(r, command, code)
}

// inviteAgain renews the invitation of a member who has not joined.
func (s memberPages) inviteAgain(r *http.Request) (any, error) {
	m, err := s.memberOfPath(r)
	if err != nil {
		return nil, err
	}
	if err := s.ownerProved(r, m.Role); err != nil {
		return nil, err
	}
	command, code, err := s.Invite(r.Context(), edge.CallOf(r), domain.InviteMember{Email: m.Email, Role: m.Role})
	if err != nil {
		return s.showMember(r, m, err)
	}
	return s.showInvited(r, command, code)
}

// showInvited lists the members after an invitation, with its link if it is not mailed.
func (s memberPages) showInvited(r *http.Request, command *domain.InviteMember, code string) (any, error) {
	shown := web.Members{Invited: command.Outcome.Email}
	if code != "" {
		shown.Link = action.InvitationURL(s.BaseURL, edge.Language(r), code)
	}
	return s.showMembers(r, shown, nil)
}

func (s memberPages) memberOfPath(r *http.Request) (domain.Member, error) {
	return s.Store.Member(
		r.Context(), edge.CallOf(r).Session.Organization, edge.PathID(r, "memberId", domain.ParseID[domain.MemberID]),
	)
}

func (s memberPages) memberPage(r *http.Request) (any, error) {
	m, err := s.memberOfPath(r)
	if err != nil {
		return nil, err
	}
	return s.showMember(r, m, nil)
}

// showMember shows a member and the possible changes. failed says why a change was refused, if it was, and typed is the
// role that was chosen.
func (s memberPages) showMember(
	r *http.Request, m domain.Member, failed error, typed ...domain.Role,
) (edge.Response, error) {
	c, status, refused := edge.CallOf(r), http.StatusOK, edge.Refusal(failed)
	shown := web.MemberPage{
		Console: s.frameOf(r, "member"), Member: viewMember(c, m), Chosen: m.Role,
		Invites: !s.NoInvitations && m.Email != "", Unverified: !s.InvitationsAreMailed(),
	}
	if errors.Is(failed, errProofNeeded) {
		shown.Problem.Prove, status = s.proveInTab(r), http.StatusForbidden
	} else if failed != nil {
		if shown.Refused, status = refusedWord(refused); status == 0 {
			return edge.Response{}, failed
		}
		shown.Until = c.Start.Add(refused.RetryAfter)
	}
	if len(typed) > 0 {
		shown.Chosen = typed[0]
	}
	shown.Console.Path = web.ConsoleRoot + "/members/" + m.ID.String()
	if m.Status == domain.MemberActive && m.Email != "" {
		s.withoutMail(r, &shown.Console, m.Email)
	}
	var err error
	if m.Status == domain.MemberEnded {
		withdrawn, err := s.withdrawn(r.Context(), c, m.ID)
		if err != nil {
			return edge.Response{}, err
		}
		shown.Member.Withdrawn = withdrawn[shown.Member.ID]
	}
	if shown.ByOwners, shown.LastOwner, err = s.unchangeable(r, m); err != nil {
		return edge.Response{}, err
	}
	if !shown.LastOwner && !shown.ByOwners && m.Status != domain.MemberEnded {
		shown.Roles = s.rolesToGive(r)
		if c.Session.Role == domain.Owner {
			shown.Prove = s.proveFirst(r, "/members/"+m.ID.String())
		}
	}
	if m.Status == domain.MemberEnded || m.Status == domain.MemberDisabled {
		if shown.Left, err = s.leftBehind(r.Context(), c, m); err != nil {
			return edge.Response{}, err
		}
	}
	resp, err := consolePageOf(s.site.MemberPage(shown))
	return afterForm(resp, status, refused), err
}

// unchangeable reports why the person cannot change an owner: only owners may, or this is the last active owner.
func (s memberPages) unchangeable(r *http.Request, m domain.Member) (byOwners, last bool, err error) {
	if m.Role != domain.Owner || m.Status != domain.MemberActive {
		return m.Role == domain.Owner && edge.CallOf(r).Session.Role != domain.Owner, false, nil
	}
	beside, err := s.Store.HasOwnerBeside(r.Context(), m.Organization, m.ID)
	return edge.CallOf(r).Session.Role != domain.Owner, !beside, err
}

func (s memberPages) changeRole(r *http.Request) (any, error) {
	role, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadRole)
	if err != nil {
		return nil, err
	}
	return s.changeByForm(r, domain.ChangeMember{Role: &role}, role)
}

// changeStatus disables, enables or ends the member in the path.
func (s memberPages) changeStatus(status domain.MemberStatus) edge.Handler {
	return func(r *http.Request) (any, error) {
		return s.changeByForm(r, domain.ChangeMember{Status: &status})
	}
}

// changeByForm changes the member in the path. roles has the new role, if any.
func (s memberPages) changeByForm(r *http.Request, change domain.ChangeMember, roles ...domain.Role) (any, error) {
	m, err := s.memberOfPath(r)
	if err != nil {
		return nil, err
	}
	if err := s.ownerProved(r, append(roles, m.Role)...); err != nil {
		if len(roles) == 0 || m.Role == domain.Owner {
			return nil, err
		}
		return s.showMember(r, m, err, roles...)
	}
	change.Member = m.ID
	if _, err := s.UpdateMember(r.Context(), edge.CallOf(r), change); err != nil {
		return s.showMember(r, m, err)
	}
	return onward(r, "/members/"+m.ID.String()), nil
}

// confirmStatus explains the effect of a status change before it is made. For a member that cannot be changed it
// redirects to the member's page, which says why. For an owner it asks for the proof of identity now, so that the
// following action is not interrupted.
func (s memberPages) confirmStatus(step string) edge.Handler {
	return func(r *http.Request) (any, error) {
		c := edge.CallOf(r)
		m, err := s.memberOfPath(r)
		if err != nil {
			return nil, err
		}
		if byOwners, last, err := s.unchangeable(r, m); err != nil || byOwners || last || m.Status == domain.MemberEnded {
			return onward(r, "/members/"+m.ID.String()), err
		}
		if err := s.ownerProved(r, m.Role); err != nil {
			return nil, err
		}
		keys, more, err := s.Store.KeysOfMember(r.Context(), m.Organization, m.ID, c.Start, keysNamed)
		if err != nil {
			return nil, err
		}
		sessions, err := s.Sessions.SessionsOf(r.Context(), m.Organization, m.ID, c.Start)
		if err != nil {
			return nil, err
		}
		name := "member-" + step
		if m.Status == domain.MemberInvited {
			name = "member-withdraw"
		}
		shown := web.MemberStep{
			Console: s.frameOf(r, name), Step: step, Member: viewMember(c, m), More: more, Sessions: len(sessions),
		}
		shown.Keys = wire.Each(keys, func(k query.UsedKey) string {
			if k.Name != nil {
				return *k.Name
			}
			return k.ID.String()
		})
		if shown.Left, err = s.leftBehind(r.Context(), c, m); err != nil {
			return nil, err
		}
		return consolePageOf(s.site.MemberStep(shown))
	}
}

// leftBehind returns the valid invitations and the webhook destinations that a member made, also with a key. They stay
// when the membership ends: the ledger has no rule that withdraws them, because the organization may still want them.
func (s memberPages) leftBehind(ctx context.Context, c *edge.Call, m domain.Member) (left web.LeftBehind, err error) {
	o := m.Organization
	members, err := s.Store.Members(ctx, o)
	if err != nil {
		return left, err
	}
	members = slices.DeleteFunc(members, func(m domain.Member) bool {
		return m.Status != domain.MemberInvited || !c.Start.Before(*m.InvitedUntil)
	})
	inviters, err := s.Store.Inviters(ctx, o, wire.Each(members, func(m domain.Member) domain.MemberID { return m.ID }))
	if err != nil {
		return left, err
	}
	var destinations []wire.Webhook
	if c.Session.Role.Allows(domain.IntegrityAdmin) {
		list, err := s.ListWebhooks(ctx, c, struct{}{})
		if err != nil {
			return left, err
		}
		destinations = list.Webhooks
	}
	creators, err := s.Store.Creators(
		ctx, o, domain.WebhookCreated, wire.Each(destinations, func(w wire.Webhook) string { return w.ID }),
	)
	if err != nil {
		return left, err
	}
	keys, err := s.Store.Keys(ctx, o)
	own := map[domain.KeyID]bool{}
	for _, key := range keys {
		own[key.ID] = key.Member == m.ID
	}
	made := func(by domain.Actor) bool { return by.Member() == m.ID || own[by.Key()] }
	for _, invited := range members {
		if made(inviters[invited.ID.String()]) {
			left.Invitations = append(left.Invitations, viewMember(c, invited))
		}
	}
	left.Webhooks = slices.DeleteFunc(destinations, func(w wire.Webhook) bool { return !made(creators[w.ID]) })
	return left, err
}
