package operator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/action"
	"integrityledger/handlers/client"
	"integrityledger/handlers/console"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// MemberView is a membership in JSON output.
type MemberView struct {
	wire.FullMember
	OrganizationID string `json:"organizationId,omitempty"` // only when read from the database
}

func viewMember(m domain.Member) MemberView {
	return MemberView{action.ViewMember(m), m.Organization.String()}
}

// viewFullMember converts a member from the service's API.
func viewFullMember(m wire.FullMember) MemberView { return MemberView{FullMember: m} }

func (v MemberView) line() say.Phrase {
	email := ""
	if v.Email != nil {
		email = *v.Email
	}
	state := say.Sentencef("%s", v.Status)
	if v.InvitationExpiresAt != nil {
		state = say.Sentencef("%s until %s", v.Status, *v.InvitationExpiresAt)
	}
	return say.Sentencef("%s  %s  (%s, %s)\n", v.ID, cli.Visible(email), v.Role, state)
}

func (a members) memberCommand() *cobra.Command {
	return cli.Group("member", "Members of an organization and their roles",
		a.memberAddCommand(), a.memberInviteCommand(), a.memberListCommand(), a.memberChangeCommand("member role", ""),
		a.memberChangeCommand("member disable", domain.MemberDisabled),
		a.memberChangeCommand("member enable", domain.MemberActive),
		a.memberChangeCommand("member end", domain.MemberEnded),
		a.memberSignInLinkCommand(), a.memberLinkCommand(), a.memberLinksCommand(), a.memberUnlinkCommand(),
	)
}

func (a members) memberListCommand() *cobra.Command {
	return apiList(a.app, "member list", "members",
		func(
			ctx context.Context, s *query.Store, id domain.OrganizationID, after string,
		) ([]domain.Member, bool, string, error) {
			from, _ := domain.ParseID[domain.MemberID](after) // empty for the first page
			page, more, err := s.MembersPage(ctx, id, from, 1000)
			if len(page) > 0 {
				after = page[len(page)-1].ID.String()
			}
			return page, more, after, err
		}, viewMember,
		func(ctx context.Context, service *client.Client, after string) ([]MemberView, wire.Next, error) {
			page, err := service.Members(ctx, after)
			return each(page.Members, viewFullMember), page.Next, err
		})
}

// readMember parses a member's ID or address.
func readMember(text string) (id domain.MemberID, email string, err error) {
	if !strings.HasPrefix(text, "usr_") {
		return id, text, nil
	}
	if id, err = domain.ParseID[domain.MemberID](text); err != nil {
		err = say.Errorf("--member: %w", err)
	}
	return id, "", err
}

// email adds the flag --email.
func (v *verb) email() *string { return v.Flags().String("email", "", "address of the member") }

func checkEmail(text string) error {
	if !domain.ValidEmail(text) {
		return say.Errorf("--email " + domain.EmailRule)
	}
	return nil
}

// member adds --member, which takes an ID or an address. It sets one of the two results.
func (v *verb) member() (id *domain.MemberID, email *string) {
	id, email = new(domain.MemberID), v.email()
	member := v.Flags().String("member", "", "id (usr_…) or address of the member")
	v.MarkFlagsOneRequired("email", "member")
	v.MarkFlagsMutuallyExclusive("email", "member")
	v.check(func() (err error) {
		if *id, *email, err = readMember(cmp.Or(*member, *email)); err == nil && id.IsZero() {
			err = checkEmail(*email)
		}
		return err
	})
	return id, email
}

// role adds the flag --role.
func (v *verb) role() *domain.Role {
	var role domain.Role
	roles := domain.OneOf(domain.Roles())
	v.Flags().StringVar((*string)(&role), "role", "", "")
	cli.DescribeFlag(v.Flags().Lookup("role"), say.Sentencef("%s", roles))
	cli.Require(v.Command, "role")
	v.check(func() error {
		if !slices.Contains(domain.Roles(), role) {
			return say.Errorf("--role must be %s", roles)
		}
		return nil
	})
	return &role
}

func (a members) memberAddCommand() *cobra.Command {
	v, organization := a.organizationVerb("member add")
	email := v.email()
	v.check(func() error { return checkEmail(*email) })
	cli.Require(v.Command, "email")
	role := v.role()
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		add := &domain.AddMember{Origin: ledger.Origin(a.App, *organization), Email: *email, Role: *role}
		return v.changes(ctx, l, add, func() shown { return viewMember(add.Outcome) })
	})
}

// InvitationView is an invited member, and the link unless the service mails it.
type InvitationView struct {
	wire.InvitedMember
	OrganizationID string `json:"organizationId,omitempty"`
}

func (v InvitationView) line() say.Phrase {
	lines := text{MemberView{FullMember: v.FullMember}.line()}
	if v.InvitationURLs != nil {
		lines.Sayf("%s\n%s\n", v.InvitationURLs.ES, v.InvitationURLs.EN)
	} else {
		lines.Sayf("the service mails the invitation\n")
	}
	return lines
}

func (a members) memberInviteCommand() *cobra.Command {
	v, organization := a.organizationAPIVerb("member invite", "email", "role")
	config.AddFlags(v.Command, "LISTEN", "BASE_URL")
	email := v.email()
	v.check(func() error { return checkEmail(*email) })
	cli.Require(v.Command, "email")
	role := v.role()
	v.ask = func(ctx context.Context, service *client.Client) error {
		invited, err := service.InviteMember(ctx, *email, *role)
		if err != nil {
			return clientcmd.Unconfirmed(err, "the same command creates another link, and the former one stops working")
		}
		return v.show(InvitationView{InvitedMember: invited})
	}
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		invite, code := domain.NewInviteMember(
			domain.InviteMember{Origin: ledger.Origin(a.App, *organization), Email: *email, Role: *role}, nil,
		)
		return v.changes(ctx, l, invite, func() shown {
			return InvitationView{wire.InvitedMember{
				FullMember: action.ViewMember(invite.Outcome), Renewed: invite.Renewed,
				InvitationURLs: new(action.InvitationURLs(cmp.Or(l.Config.BaseURL, "http://"+l.Config.Listen), code)),
			}, organization.String()}
		})
	})
}

// memberChangeCommand creates a command that changes a membership: to the given status or, if that is empty, to the
// role in --role.
func (a members) memberChangeCommand(name string, status domain.MemberStatus) *cobra.Command {
	v, organization := a.organizationAPIVerb(name, "member", "email", "role")
	role := new(domain.Role)
	if status == "" {
		role = v.role()
	}
	member, email := v.member()
	v.ask = func(ctx context.Context, service *client.Client) error {
		id, err := memberNamed(ctx, service, *member, *email)
		if err != nil {
			return err
		}
		var changed wire.FullMember
		if status == domain.MemberEnded {
			changed, err = service.EndMember(ctx, id)
		} else {
			changed, err = service.UpdateMember(ctx, id, wire.MemberChange{Role: *role, Status: status})
		}
		if err != nil {
			return clientcmd.Unconfirmed(err, "run the same command again")
		}
		return v.show(viewFullMember(changed))
	}
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		change := &domain.ChangeMember{Origin: ledger.Origin(a.App, *organization), Member: *member, Email: *email}
		if status == "" {
			change.Role = role
		} else {
			change.Status = &status
		}
		return v.changes(ctx, l, change, func() shown { return viewMember(change.Outcome) })
	})
}

// memberNamed returns the ID of the member with this ID or address. An address has at most one membership that has not
// ended.
func memberNamed(ctx context.Context, service *client.Client, id domain.MemberID, email string) (string, error) {
	if !id.IsZero() {
		return id.String(), nil
	}
	found := ""
	err := client.Walk(func(after string) (wire.Next, error) {
		page, err := service.Members(ctx, after)
		for _, m := range page.Members {
			if m.Email != nil && domain.SameEmail(*m.Email, email) && m.Status != domain.MemberEnded {
				found, page.HasMore = m.ID, false
			}
		}
		return page.Next, err
	})
	if err != nil || found != "" {
		return found, clientcmd.Refusal(err)
	}
	return "", cli.Negativef("the organization has no member with this address")
}

// SignInLinkView is a link that signs a member in to the console.
type SignInLinkView struct {
	MemberID  string `json:"memberId"`
	ExpiresAt string `json:"expiresAt"`
	URL       string `json:"url"` // only the path if the service's address is not set
}

func (v SignInLinkView) line() say.Phrase { return say.Sentencef("%s\n", v.URL) }

func (a members) memberSignInLinkCommand() *cobra.Command {
	v := a.ledgerVerb("member sign-in-link")
	organization := v.organization("id of the organization (org_…), for an address with several", false)
	cli.Fill(v.Command, session.LinkLifetime)
	config.AddFlags(v.Command, "BASE_URL")
	member, email := v.member()
	v.must("give the organization with --organization, or the member's address", func() bool {
		return !organization.IsZero() || *email != ""
	})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) (err error) {
		if organization.IsZero() {
			if *organization, err = onlyOrganization(ctx, l, *email); err != nil {
				return err
			}
		}
		link, code := domain.NewMakeSignInLink(
			domain.MakeSignInLink{Origin: ledger.Origin(a.App, *organization), Member: *member, Email: *email}, a.Now(),
		)
		if err := l.Do(ctx, link); err != nil {
			return err
		}
		if err := l.Sessions.AddOperatorLink(ctx, link.Outcome, a.Now()); err != nil {
			return err
		}
		return v.show(SignInLinkView{
			MemberID: link.Outcome.Member.String(), ExpiresAt: cli.TimeText(a.Now().Add(session.LinkLifetime)),
			URL: console.SignInURL(l.Config.BaseURL, a.Language(), code),
		})
	})
}

// onlyOrganization returns the organization of which an address is an active member.
func onlyOrganization(ctx context.Context, l *ledger.Opened, email string) (none domain.OrganizationID, err error) {
	found, err := l.Sessions.Memberships(ctx, domain.EmailSHA256(email))
	switch {
	case err != nil:
		return none, err
	case len(found) == 0:
		return none, cli.Negativef("no organization has an active member with this address")
	case len(found) == 1:
		return found[0].Organization, nil
	}
	var several []string
	for _, m := range found {
		several = append(several, strings.TrimSpace(m.Organization.String()+" "+m.OrganizationName))
	}
	return none, cli.Negativef(
		"the address is a member of several organizations; choose one with --organization:\n%s", strings.Join(several, "\n"),
	)
}

// LinkView is a link to an OAuth subject.
type LinkView struct{ wire.OAuthLink }

func (a members) viewLink(l domain.OAuthLink) LinkView {
	return LinkView{wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(a.Now()), Scopes: l.Scopes,
		ConsentedScopes: l.Consented,
		CreatedAt:       cli.TimeText(l.CreatedAt), ExpiresAt: cli.TimeText(l.ExpiresAt),
		LinkedAt: cli.TimeOrNull(l.LinkedAt), WithdrawnAt: cli.TimeOrNull(l.WithdrawnAt),
	}}
}

func (v LinkView) line() say.Phrase {
	scopes := v.ConsentedScopes
	if scopes == nil {
		scopes = v.Scopes
	}
	return say.Sentencef("%s  %s  %s  %v\n", v.ID, v.MemberID, v.Status, scopes)
}

func (a members) memberLinkCommand() *cobra.Command {
	v, organization := a.organizationVerb("member link")
	cli.Fill(v.Command, domain.LinkLifetime)
	config.AddFlags(v.Command, "BASE_URL", "OAUTH_ISSUER", "OAUTH_CLIENT_ID")
	member, email := v.member()
	start := domain.StartLink{}
	v.scopes(&start.Scopes, texts(domain.OAuthScopes()), "scopes that the member can consent to, separated by commas")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		start.Origin, start.Member, start.Email = ledger.Origin(a.App, *organization), *member, *email
		c, code := domain.NewStartLink(start, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		view := wire.StartedLink{OAuthLink: a.viewLink(c.Outcome).OAuthLink, Code: code}
		lines := text{say.Sentencef("%s  until %s\n%s\n", view.ID, view.ExpiresAt, code)}
		if l.Config.BaseURL != "" && l.Config.OAuthClientID != "" {
			address := action.LinkURL(l.Config.BaseURL, code)
			view.URL = &address
			lines.Sayf("%s\n", address)
		}
		return v.print(view, lines)
	})
}

// linksShown is how many of an organization's newest links are listed.
const linksShown = 1000

func (a members) memberLinksCommand() *cobra.Command {
	newest := func(s *query.Store, ctx context.Context, id domain.OrganizationID) ([]domain.OAuthLink, error) {
		all, _, err := s.Links(ctx, id, domain.MemberID{}, linksShown, 0)
		return all, err
	}
	c := list(a.app, "member links", "links", newest, a.viewLink)
	cli.Fill(c, linksShown)
	return c
}

func (a members) memberUnlinkCommand() *cobra.Command {
	v := a.ledgerVerb("member unlink")
	id := idArgument(v, "LINK_ID: %w (give the id, not the code; integrity member links shows the ids)",
		func(text string) (domain.LinkID, error) {
			return domain.ParseID[domain.LinkID](strings.TrimSpace(text))
		})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		known, err := l.Store.Link(ctx, *id)
		if err != nil {
			return err
		}
		withdraw := &domain.WithdrawConsent{Origin: ledger.Origin(a.App, known.Organization), Link: *id}
		return v.changes(ctx, l, withdraw, func() shown { return a.viewLink(withdraw.Outcome) })
	})
}
