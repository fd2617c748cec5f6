package operator

import (
	"context"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// CompanyView is a company as the API shows it.
type CompanyView struct{ wire.Company }

func viewCompany(c domain.Company) CompanyView {
	return CompanyView{
		wire.Company{
			ID: c.ID.String(), Reference: c.Reference, Status: c.Status(), CreatedAt: cli.TimeText(c.CreatedAt),
			ClosedAt: cli.TimeOrNull(c.ClosedAt),
		},
	}
}

func (v CompanyView) line() say.Phrase {
	return say.Sentencef("%s  %s  (%s)\n", v.ID, v.Reference, v.Status)
}

func (a *app) companyCommand() *cobra.Command {
	return cli.Group("company", "Companies: internal partitions of an organization",
		a.companyCreateCommand(), list(a, "company list", "companies", companies, viewCompany),
		a.companyStatusCommand("company close", domain.CompanyClosedStatus),
		a.companyStatusCommand("company open", domain.CompanyActive))
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

// companyStatusCommand creates the command that sets a company's status.
func (a *app) companyStatusCommand(name string, status domain.CompanyStatus) *cobra.Command {
	v, organization := a.organizationVerb(name)
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		company, err := l.Store.CompanyByReference(ctx, *organization, v.args[0])
		if err != nil {
			return err
		}
		change := &domain.SetCompanyStatus{Origin: ledger.Origin(a.App, *organization), Company: company.ID, Status: status}
		return v.changes(ctx, l, change, func() shown { return viewCompany(change.Outcome) })
	})
}

// companies returns all companies of an organization.
func companies(s *query.Store, ctx context.Context, id domain.OrganizationID) (all []domain.Company, err error) { //nolint:revive // the signature of the store's methods
	for after, more := "", true; more; {
		var page []domain.Company
		if page, more, err = s.Companies(ctx, domain.Access{Organization: id}, true, "", after, 1000); err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) > 0 {
			after = page[len(page)-1].Reference
		}
	}
	return all, nil
}
