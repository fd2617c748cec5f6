package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// MemberView is a membership as JSON shows it.
type MemberView struct {
	ID             string `json:"id"`
	OrganizationID string `json:"organizationId"`
	Email          string `json:"email"`
	Role           string `json:"role"`
	Status         string `json:"status"`
	CreatedAt      string `json:"createdAt"`
}

func viewMember(m domain.Member) MemberView {
	return MemberView{
		ID: m.ID.String(), OrganizationID: m.Organization.String(), Email: m.Email, Role: string(m.Role), Status: string(m.Status),
		CreatedAt: cli.TimeText(m.CreatedAt),
	}
}

func (v MemberView) line() string {
	return fmt.Sprintf("%s  %s  (%s, %s)\n", v.ID, cli.Visible(v.Email), v.Role, v.Status)
}

func (a *app) memberCommand() *cobra.Command {
	return cli.Group("member", "Members of an organization and their roles",
		a.memberAddCommand(), list(a, "member list", "members", (*query.Store).Members, viewMember), a.memberChangeCommand("member role", nil),
		a.memberChangeCommand("member disable", new(domain.MemberDisabled)), a.memberChangeCommand("member enable", new(domain.MemberActive)),
		a.memberChangeCommand("member end", new(domain.MemberEnded)),
		a.memberSignInLinkCommand(), a.memberLinkCommand(), a.memberLinksCommand(), a.memberUnlinkCommand(),
	)
}

// readMember tells an id from an address.
func readMember(text string) (id domain.MemberID, email string, err error) {
	if !strings.HasPrefix(text, "usr_") {
		return id, text, nil
	}
	if id, err = domain.ParseID[domain.MemberID](text); err != nil {
		err = fmt.Errorf("--member: %w", err)
	}
	return id, "", err
}

// email adds the flag of that name.
func (v *verb) email() *string { return v.Flags().String("email", "", "address of the member") }

func checkEmail(text string) error {
	if !domain.ValidEmail(text) {
		return errors.New("--email " + domain.EmailRule)
	}
	return nil
}

// member adds the flags that name a membership, by its id or by an address, and answers the one that was given.
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

// role adds the flag of that name.
func (v *verb) role() *domain.Role {
	var role domain.Role
	v.Flags().StringVar((*string)(&role), "role", "", fmt.Sprintf("one of %v", domain.Roles()))
	cli.Require(v.Command, "role")
	v.must(fmt.Sprintf("--role must be one of %v", domain.Roles()), func() bool { return slices.Contains(domain.Roles(), role) })
	return &role
}

func (a *app) memberAddCommand() *cobra.Command {
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

// memberChangeCommand is every command that changes a membership: to the status, or without one to the role of a flag.
func (a *app) memberChangeCommand(name string, status *domain.MemberStatus) *cobra.Command {
	v, organization := a.organizationVerb(name)
	var role *domain.Role // nil: as it is
	if status == nil {
		role = v.role()
	}
	member, email := v.member()
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		change := &domain.ChangeMember{Origin: ledger.Origin(a.App, *organization), Member: *member, Email: *email, Role: role, Status: status}
		return v.changes(ctx, l, change, func() shown { return viewMember(change.Outcome) })
	})
}

// SignInLinkView is a link that signs a member in to the console.
type SignInLinkView struct {
	MemberID  string `json:"memberId"`
	ExpiresAt string `json:"expiresAt"`
	URL       string `json:"url"` // a path alone where the service's address is not set
}

func (v SignInLinkView) line() string { return v.URL + "\n" }

func (a *app) memberSignInLinkCommand() *cobra.Command {
	v, organization := a.organizationVerb("member sign-in-link")
	v.Long = fmt.Sprintf(v.Long, query.SignInLifetime)
	config.AddFlags(v.Command, "BASE_URL")
	member, email := v.member()
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		all, err := l.Store.Members(ctx, *organization)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(m domain.Member) bool {
			return m.Status == domain.MemberActive && (m.ID == *member || member.IsZero() && strings.EqualFold(m.Email, *email))
		})
		if i < 0 {
			return errors.New("this organization has no such active member")
		}
		code, err := l.Store.AddOperatorLink(ctx, *organization, all[i].ID, a.Now())
		if err != nil {
			return err
		}
		return v.show(SignInLinkView{
			MemberID: all[i].ID.String(), ExpiresAt: cli.TimeText(a.Now().Add(query.SignInLifetime)), URL: handlers.SignInURL(l.Config.BaseURL, evidence.English, code),
		})
	})
}

// LinkView is a link to an OAuth subject.
type LinkView struct{ wire.OAuthLink }

func (a *app) viewLink(l domain.OAuthLink) LinkView {
	return LinkView{wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(a.Now()), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: cli.TimeText(l.CreatedAt), ExpiresAt: cli.TimeText(l.ExpiresAt),
		LinkedAt: cli.TimeOrNull(l.LinkedAt), WithdrawnAt: cli.TimeOrNull(l.WithdrawnAt),
	}}
}

func (v LinkView) line() string {
	scopes := v.ConsentedScopes
	if scopes == nil {
		scopes = v.Scopes
	}
	return fmt.Sprintf("%s  %s  %s  %v\n", v.ID, v.MemberID, v.Status, scopes)
}

func (a *app) memberLinkCommand() *cobra.Command {
	v, organization := a.organizationVerb("member link")
	v.Long = fmt.Sprintf(v.Long, domain.LinkLifetime)
	config.AddFlags(v.Command, "BASE_URL", "OAUTH_ISSUER", "OAUTH_CLIENT_ID")
	member, email := v.member()
	start := domain.StartLink{}
	v.scopes(&start.Scopes, texts(domain.OAuthScopes()), "what can be consented to, separated by commas")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		start.Origin, start.Member, start.Email = ledger.Origin(a.App, *organization), *member, *email
		c, code := domain.NewStartLink(start, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		view := wire.StartedLink{OAuthLink: a.viewLink(c.Outcome).OAuthLink, Code: code}
		text := fmt.Sprintf("%s  until %s\n%s\n", view.ID, view.ExpiresAt, code)
		if l.Config.BaseURL != "" && l.Config.OAuthClientID != "" {
			address := handlers.LinkURL(l.Config.BaseURL, code)
			view.URL, text = &address, text+address+"\n"
		}
		return v.print(view, text)
	})
}

// linksShown is how many links of an organization are listed, the newest.
const linksShown = 1000

func (a *app) memberLinksCommand() *cobra.Command {
	newest := func(s *query.Store, ctx context.Context, id domain.OrganizationID) ([]domain.OAuthLink, error) {
		all, _, err := s.Links(ctx, id, domain.MemberID{}, linksShown, 0)
		return all, err
	}
	c := list(a, "member links", "links", newest, a.viewLink)
	c.Short = fmt.Sprintf(c.Short, linksShown)
	return c
}

func (a *app) memberUnlinkCommand() *cobra.Command {
	v := a.ledgerVerb("member unlink")
	id := idArgument(v, "LINK_ID: %w (it is not the code; integrity member links shows the ids)", func(text string) (domain.LinkID, error) {
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
