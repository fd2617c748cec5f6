package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
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
	status := func(s domain.MemberStatus) (*domain.Role, *domain.MemberStatus) { return nil, &s }
	return cli.Group("member", "Members of an organization and their roles",
		a.memberAddCommand(), a.memberListCommand(), a.memberRoleCommand(),
		a.memberChangeCommand("disable", "Stop every key of a member at once", func() (*domain.Role, *domain.MemberStatus) { return status(domain.MemberDisabled) }),
		a.memberChangeCommand("enable", "Let the keys of a disabled member work again", func() (*domain.Role, *domain.MemberStatus) { return status(domain.MemberActive) }),
		a.memberChangeCommand("end", "End a membership for good; the address may be added again", func() (*domain.Role, *domain.MemberStatus) { return status(domain.MemberEnded) }),
		a.memberLinkCommand(), a.memberLinksCommand(), a.memberUnlinkCommand(),
	)
}

// memberFlags name a membership, by address or by id.
type memberFlags struct {
	organization organizationFlag
	email        string
	member       string
	json         bool
}

func (f *memberFlags) add(c *cobra.Command) {
	ledger.AddFlags(c)
	f.organization.add(c)
	c.Flags().StringVar(&f.email, "email", "", "address of the member")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// addOne adds the flags of a command on a member that there is.
func (f *memberFlags) addOne(c *cobra.Command) {
	f.add(c)
	c.Flags().StringVar(&f.member, "member", "", "id (usr_…) or address of the member")
	c.MarkFlagsOneRequired("email", "member")
	c.MarkFlagsMutuallyExclusive("email", "member")
}

// readOne is the organization with the member's id; zero where the address names the member.
func (f *memberFlags) readOne() (organization domain.OrganizationID, member domain.MemberID, err error) {
	if member, f.email, err = readMember(cmp.Or(f.member, f.email)); err == nil && member.IsZero() {
		organization, err = f.read()
		return organization, member, err
	}
	if err == nil {
		organization, err = f.organization.id()
	}
	return organization, member, err
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

func (f *memberFlags) read() (domain.OrganizationID, error) {
	id, err := f.organization.id()
	if err != nil {
		return id, err
	}
	if address, err := mail.ParseAddress(f.email); err != nil || address.Address != f.email || len(f.email) > 254 {
		return id, fmt.Errorf("--email must be an address such as name@example.org")
	}
	return id, nil
}

func addRole(c *cobra.Command, role *string) {
	c.Flags().StringVar(role, "role", "", fmt.Sprintf("one of %v", domain.Roles()))
	cli.Require(c, "role")
}

func readRole(text string) (domain.Role, error) {
	if role := domain.Role(text); slices.Contains(domain.Roles(), role) {
		return role, nil
	}
	return "", fmt.Errorf("--role must be one of %v", domain.Roles())
}

func (a *app) memberAddCommand() *cobra.Command {
	var flags memberFlags
	var role string
	c := &cobra.Command{Use: "add", Short: "Give a person a role in an organization", Args: cli.Arguments(0, 0)}
	flags.add(c)
	cli.Require(c, "email")
	addRole(c, &role)
	c.RunE = func(c *cobra.Command, _ []string) error {
		organization, err := flags.read()
		if err != nil {
			return err
		}
		r, err := readRole(role)
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			add := &domain.AddMember{Origin: ledger.Origin(a.App, organization), Email: flags.email, Role: r}
			if err := l.Do(ctx, add); err != nil {
				return err
			}
			v := viewMember(add.Outcome.Member)
			return a.Print(flags.json, v, v.line())
		})
	}
	return c
}

func (a *app) memberRoleCommand() *cobra.Command {
	var text string
	var role domain.Role
	c := a.memberChangeCommand("role", "Change a member's role", func() (*domain.Role, *domain.MemberStatus) { return &role, nil })
	addRole(c, &text)
	c.PreRunE = func(*cobra.Command, []string) (err error) {
		role, err = readRole(text)
		return err
	}
	return c
}

// memberChangeCommand is every command that changes a membership; nil means as it is.
func (a *app) memberChangeCommand(use, short string, change func() (*domain.Role, *domain.MemberStatus)) *cobra.Command {
	var flags memberFlags
	c := &cobra.Command{Use: use, Short: short, Args: cli.Arguments(0, 0)}
	flags.addOne(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		organization, member, err := flags.readOne()
		if err != nil {
			return err
		}
		role, status := change()
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			command := &domain.ChangeMember{Origin: ledger.Origin(a.App, organization), Email: flags.email, Role: role, Status: status}
			command.Member = member
			if err := l.Do(ctx, command); err != nil {
				return err
			}
			v := viewMember(command.Outcome.Member)
			return a.Print(flags.json, v, v.line())
		})
	}
	return c
}

func (a *app) memberListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the members of an organization", Args: cli.Arguments(0, 0)}
	return a.organizationList(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error {
		all, err := l.Store.Members(ctx, id)
		if err != nil {
			return err
		}
		return printList(a, asJSON, "members", all, viewMember, MemberView.line)
	})
}
