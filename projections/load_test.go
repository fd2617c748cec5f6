package projections_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// TestLoadOfDeclarationsOfManyCompanies: declarations of many companies and keys in one group each get their own
// document, version and grant, even next to a company that does not exist.
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
			VersionReference: domain.VersionReference{
				CompanyReference: company, Source: "billing", DocumentReference: document, Version: version,
			}})
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
		case document == nil || document.Highest != 2 || document.HighestPublicID != d.current.Outcome.PublicID ||
			document.Organization != d.o.ID:
			t.Errorf("%d: document %+v", i, document)
		case state.Version(document.ID, 1) == nil || state.Version(document.ID, 3) != nil:
			t.Errorf("%d: version 1 %+v, version 3 %+v", i, state.Version(document.ID, 1), state.Version(document.ID, 3))
		case state.Document(d.o.Company.ID, "billing", "other") != nil || state.CompanyByReference(d.o.ID, "missing") != nil:
			t.Errorf("%d: what is not there was loaded", i)
		case !state.Granted(d.o.Key.ID, d.o.Company.ID) || state.Granted(stranger.ID, d.o.Company.ID):
			t.Errorf("%d: grants of another key", i)
		case state.CompanyByReference(d.o.ID, d.o.Company.Reference).ID != d.o.Company.ID:
			t.Errorf("%d: another company", i)
		case state.Used(domain.UsageKey{
			Organization: d.o.ID, Period: domain.PeriodOf(l.Now()), Company: d.o.Company.ID,
		}) != 2:
			t.Errorf("%d: usage of the company", i)
		}
	}
}

// TestActiveKeysAreCounted: an organization's keys are counted in the table, without revoked and expired ones.
func TestActiveKeysAreCounted(t *testing.T) {
	l := ledgertest.New(t)
	o, other := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	copies := func(keys int, revoked, expires string) {
		t.Helper()
		_, err := l.Pool.Exec(ctx,
			`INSERT INTO api_keys (shard, key_id, organization_id, member_id, secret_sha256, scopes, created_by, created_at, expires_at, revoked_at)
			SELECT shard, gen_random_uuid(), organization_id, member_id, '\x01', scopes, created_by, created_at, `+expires+
				`, `+revoked+`
			FROM api_keys CROSS JOIN generate_series(1, $2) WHERE shard = 1 AND key_id = $1`, o.Key.ID, keys)
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(o ledgertest.Organization) error {
		c, _ := domain.NewCreateKey(
			domain.CreateKey{
				Origin: o.Operator(), Email: o.Email, Scopes: []domain.Scope{domain.IntegrityRead},
				Lifetime: domain.MinKeyLifetime,
			},
			l.Now(),
		)
		return l.Do(ctx, c)
	}
	copies(domain.MaxActiveKeys-2, "NULL", "expires_at")
	copies(10, "created_at", "expires_at")
	copies(10, "NULL", "created_at")
	if err := create(o); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if refused, ok := errors.AsType[*domain.Error](create(o)); !ok || refused.Code != domain.InvalidState {
		t.Errorf("one more: %v", refused)
	}
	if err := create(other); err != nil {
		t.Errorf("of another organization: %v", err)
	}
}
