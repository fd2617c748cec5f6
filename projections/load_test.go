package projections_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// A group's declarations come from many companies and keys: each gets the document, the version and the grant of its own,
// also beside a company that does not exist.
func TestLoadOfDeclarationsOfManyCompanies(t *testing.T) {
	l := ledgertest.New(t)
	type declared struct {
		o       ledgertest.Organization
		current *domain.Register
	}
	var all []declared
	for range 2 {
		o := l.Organization(t, 0, domain.InternalPlan)
		for _, reference := range []string{"company-1", "company-2"} {
			if o.Company.Reference != reference {
				o.Company = l.Company(t, o, reference)
				l.Grant(t, o, o.Key.ID, o.Company.ID, true)
			}
			l.Must(t, l.Register(t, o, o.Declaration("same", 1, "first")))
			current := l.Register(t, o, o.Declaration("same", 2, "second"))
			l.Must(t, current)
			all = append(all, declared{o, current})
		}
	}
	stranger, _ := l.Key(t, all[0].o, domain.Scopes()...)
	var needs domain.Needs
	organizations := []domain.OrganizationID{}
	need := func(o ledgertest.Organization, key domain.KeyID, company, document string, version int32) {
		organizations = append(organizations, o.ID)
		needs.Declarations = append(needs.Declarations, domain.DeclarationNeed{Organization: o.ID, Key: key,
			VersionReference: domain.VersionReference{CompanyReference: company, Source: "billing", DocumentReference: document, Version: version}})
	}
	for _, d := range all {
		need(d.o, d.o.Key.ID, "missing", "other", 1)
		need(d.o, d.o.Key.ID, d.o.Company.Reference, "other", 1)
		need(d.o, d.o.Key.ID, d.o.Company.Reference, "same", 1)
		need(d.o, stranger.ID, d.o.Company.Reference, "same", 3)
	}
	state := domain.NewState(nil)
	b := &pgx.Batch{}
	projections.Load(b, 0, organizations, needs, l.Now(), state)
	if err := l.Pool.SendBatch(context.Background(), b).Close(); err != nil {
		t.Fatal(err)
	}
	for i, d := range all {
		document := state.Document(d.o.Company.ID, "billing", "same")
		switch {
		case document == nil || document.Highest != 2 || document.HighestPublicID != d.current.Outcome.PublicID || document.Organization != d.o.ID:
			t.Errorf("%d: document %+v", i, document)
		case state.Version(document.ID, 1) == nil || state.Version(document.ID, 3) != nil:
			t.Errorf("%d: version 1 %+v, version 3 %+v", i, state.Version(document.ID, 1), state.Version(document.ID, 3))
		case state.Document(d.o.Company.ID, "billing", "other") != nil || state.CompanyByReference(d.o.ID, "missing") != nil:
			t.Errorf("%d: what is not there was loaded", i)
		case !state.Granted(d.o.Key.ID, d.o.Company.ID) || state.Granted(stranger.ID, d.o.Company.ID):
			t.Errorf("%d: grants of another key", i)
		case state.CompanyByReference(d.o.ID, d.o.Company.Reference).ID != d.o.Company.ID:
			t.Errorf("%d: another company", i)
		case state.Used(domain.UsageKey{Organization: d.o.ID, Period: domain.PeriodOf(l.Now()), Company: d.o.Company.ID}) != 2:
			t.Errorf("%d: usage of the company", i)
		}
	}
}
