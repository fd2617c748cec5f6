package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
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
	return fmt.Sprintf("%s  %s  (%s, %s)\n", v.ID, visible(v.Email), v.Role, v.Status)
}

func (a *app) memberCommand() *cobra.Command {
	return cli.Group("member", "Members of an organization and their roles",
		a.memberAddCommand(), list(a, "member list", "members", (*query.Store).Members, viewMember), a.memberRoleCommand(),
		a.memberStatusCommand("disable", domain.MemberDisabled), a.memberStatusCommand("enable", domain.MemberActive),
		a.memberStatusCommand("end", domain.MemberEnded),
		a.memberLinkCommand(), a.memberLinksCommand(), a.memberUnlinkCommand(),
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
	if address, err := mail.ParseAddress(text); err != nil || address.Address != text || len(text) > 254 {
		return errors.New("--email must be an address such as name@example.org")
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
	v.check(func() error {
		if !slices.Contains(domain.Roles(), role) {
			return fmt.Errorf("--role must be one of %v", domain.Roles())
		}
		return nil
	})
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
		if err := l.Do(ctx, add); err != nil {
			return err
		}
		return v.show(viewMember(add.Outcome))
	})
}

func (a *app) memberRoleCommand() *cobra.Command {
	v, organization := a.organizationVerb("member role")
	return a.memberChange(v, organization, v.role(), nil)
}

func (a *app) memberStatusCommand(name string, status domain.MemberStatus) *cobra.Command {
	v, organization := a.organizationVerb("member " + name)
	return a.memberChange(v, organization, nil, &status)
}

// memberChange is every command that changes a membership; nil means as it is.
func (a *app) memberChange(v *verb, organization *domain.OrganizationID, role *domain.Role, status *domain.MemberStatus) *cobra.Command {
	member, email := v.member()
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		change := &domain.ChangeMember{Origin: ledger.Origin(a.App, *organization), Member: *member, Email: *email, Role: role, Status: status}
		if err := l.Do(ctx, change); err != nil {
			return err
		}
		return v.show(viewMember(change.Outcome))
	})
}
