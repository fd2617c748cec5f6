package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
)

// CompanyView is a company as the API shows it.
type CompanyView struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Status    string `json:"status"`
	CreatedAt string `json:"createdAt"`
}

func viewCompany(c domain.Company) CompanyView {
	return CompanyView{ID: c.ID.String(), Reference: c.Reference, Status: "active", CreatedAt: cli.TimeText(c.CreatedAt)}
}

func (v CompanyView) line() string { return fmt.Sprintf("%s  %s\n", v.ID, v.Reference) }

func (a *app) companyCommand() *cobra.Command {
	return cli.Group("company", "Companies: internal partitions of an organization", a.companyCreateCommand(), a.companyListCommand())
}

func (a *app) companyCreateCommand() *cobra.Command {
	var asJSON bool
	var organization organizationFlag
	c := &cobra.Command{
		Use: "create REFERENCE", Short: "Create a company; it is granted to no key",
		Long: "Creates a company. It is granted to no key: see integrity key grant. References should be random opaque identifiers,\n" +
			"never names, plates, tax identifiers or anything else of a customer.",
		Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	organization.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := organization.id()
		if err != nil {
			return err
		}
		if !domain.ValidReference(args[0]) {
			return fmt.Errorf("REFERENCE: %s", domain.ReferenceRule)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			create := &domain.CreateCompany{Origin: ledger.Origin(a.App, id), Reference: args[0]}
			if err := l.Do(ctx, create); err != nil {
				return err
			}
			v := viewCompany(create.Outcome.Company)
			return a.Print(asJSON, struct {
				CompanyView
				Replayed bool `json:"replayed"`
			}{v, create.Outcome.Replayed}, v.line())
		})
	}
	return c
}

func (a *app) companyListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the companies of an organization", Args: cli.Arguments(0, 0)}
	return a.organizationList(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error {
		var all []domain.Company
		for after, more := "", true; more; {
			page, further, err := l.Store.Companies(ctx, domain.Access{Organization: id}, true, after, 1000)
			if err != nil {
				return err
			}
			if all = append(all, page...); len(page) > 0 {
				after = page[len(page)-1].Reference
			}
			more = further
		}
		return printList(a, asJSON, "companies", all, viewCompany, CompanyView.line)
	})
}
