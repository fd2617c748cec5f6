package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// CompanyView is a company as the API shows it.
type CompanyView struct{ wire.Company }

func viewCompany(c domain.Company) CompanyView {
	return CompanyView{wire.Company{ID: c.ID.String(), Reference: c.Reference, Status: "active", CreatedAt: cli.TimeText(c.CreatedAt)}}
}

func (v CompanyView) line() string { return fmt.Sprintf("%s  %s\n", v.ID, v.Reference) }

func (a *app) companyCommand() *cobra.Command {
	return cli.Group("company", "Companies: internal partitions of an organization",
		a.companyCreateCommand(), list(a, "company list", "companies", companies, viewCompany))
}

func (a *app) companyCreateCommand() *cobra.Command {
	v, organization := a.organizationVerb("company create")
	v.must("REFERENCE: "+domain.ReferenceRule, func() bool { return domain.ValidReference(v.args[0]) })
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		create := &domain.CreateCompany{Origin: ledger.Origin(a.App, *organization), Reference: v.args[0]}
		if err := l.Do(ctx, create); err != nil {
			return err
		}
		view := viewCompany(create.Outcome)
		return v.print(wire.CreatedCompany{Company: view.Company, Replayed: create.Replayed}, view.line())
	})
}

// companies are all of an organization.
func companies(s *query.Store, ctx context.Context, id domain.OrganizationID) (all []domain.Company, err error) { //nolint:revive // the form of the store's methods
	for after, more := "", true; more; {
		var page []domain.Company
		if page, more, err = s.Companies(ctx, domain.Access{Organization: id}, true, after, 1000); err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) > 0 {
			after = page[len(page)-1].Reference
		}
	}
	return all, nil
}
