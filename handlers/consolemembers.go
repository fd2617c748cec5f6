package handlers

import (
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/handlers/web"
)

// membersShown is how many memberships a page of them shows.
const membersShown = 200

// members shows the memberships of the organization, to those who manage them.
func (s *server) members(r *http.Request) (any, error) { return s.showMembers(r, web.Members{}, nil) }

// showMembers shows them after an act, which was refused where there is an error.
func (s *server) showMembers(r *http.Request, shown web.Members, failed error) (response, error) {
	refused := refusal(failed)
	if failed != nil && (refused == nil || refused.Code == domain.TemporarilyUnavailable) {
		return response{}, failed
	}
	c := callOf(r)
	after, _ := domain.ParseID[domain.MemberID](r.URL.Query().Get("after"))
	all, more, err := s.Store.MembersPage(r.Context(), c.session.Organization, after, membersShown)
	if err != nil {
		return response{}, err
	}
	shown.Console, shown.Roles = s.frameOf(r, "members"), domain.Roles()
	shown.All = each(all, func(m domain.Member) web.Member {
		view := web.Member{
			ID: m.ID.String(), Email: m.Email, Role: m.Role, Status: string(m.Status), Since: m.CreatedAt, Own: m.ID == c.session.Member,
			Managed: m.Status != domain.MemberEnded && (m.Role != domain.Owner || c.session.Role == domain.Owner),
		}
		if m.Status == domain.MemberInvited {
			view.InvitedUntil = m.InvitedUntil
		}
		return view
	})
	if c.session.Role != domain.Owner {
		shown.Roles = slices.DeleteFunc(shown.Roles, func(role domain.Role) bool { return role == domain.Owner })
	}
	if more {
		shown.Next = web.Path(language(r), web.ConsoleRoot+"/members") + "?after=" + all[len(all)-1].ID.String()
	}
	status := http.StatusOK
	if refused != nil {
		code := s.codes[refused.Code]
		status, shown.Failed, shown.Detail = code.Status, code.Text[shown.Console.Language].Title, refused.Message
		if len(refused.Fields) > 0 {
			shown.Detail = refused.Fields[0].Message
		}
	}
	resp, err := consolePageOf(s.site.Members(shown))
	resp.status = status
	return resp, err
}

// inviteByConsole invites an address. Where no mail can be sent, the page shows the link, and nothing shows it again.
func (s *server) inviteByConsole(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	typed := form(r)
	var seal *domain.SecretKey
	if s.MailsInvitations {
		seal = s.SecretKey
	}
	command, code := domain.NewInviteMember(domain.InviteMember{Origin: origin(r), Email: typed.Get("email"), Role: domain.Role(typed.Get("role"))}, seal)
	if err := s.execute(r.Context(), command); err != nil {
		return s.showMembers(r, web.Members{Typed: typed.Get("email")}, err)
	}
	shown := web.Members{Invited: command.Outcome.Email}
	if seal == nil {
		shown.Link = InvitationURL(consoleURL(s.BaseURL), language(r), code)
	}
	return s.showMembers(r, shown, nil)
}

// changeByConsole changes the membership that the path names.
func (s *server) changeByConsole(change func(r *http.Request, c *domain.ChangeMember)) handler {
	return func(r *http.Request) (any, error) {
		if err := s.recentlyProved(r); err != nil {
			return nil, err
		}
		command := &domain.ChangeMember{Origin: origin(r), Member: memberID(r)}
		change(r, command)
		if command.Member.IsZero() || command.Role != nil && !slices.Contains(domain.Roles(), *command.Role) { // which would name a member by an address
			return nil, domain.Refuse(domain.NotFound, "This organization has no such member.")
		}
		if err := s.execute(r.Context(), command); err != nil {
			return s.showMembers(r, web.Members{}, err)
		}
		return onward(r, "/members"), nil
	}
}

func setStatus(status domain.MemberStatus) func(*http.Request, *domain.ChangeMember) {
	return func(_ *http.Request, c *domain.ChangeMember) { c.Status = &status }
}

func setRole(r *http.Request, c *domain.ChangeMember) { c.Role = new(domain.Role(form(r).Get("role"))) }
