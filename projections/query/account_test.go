package query_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
	"integrityledger/projections/ledgertest"
)

func refuses(t *testing.T, err error, code domain.Code) {
	t.Helper()
	var refused *domain.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("error %v, want %s", err, code)
	}
}

func TestAccountsAreReadAsTheyWereCreated(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	first, second := l.Organization(t, 2, "pro"), l.Organization(t, 0, domain.InternalPlan)
	l.Key(t, first, domain.IntegrityRead)

	all, err := store.Organizations(ctx)
	if err != nil || len(all) != 2 || all[0].ID != second.ID || all[1].ID != first.ID {
		t.Fatalf("organizations %+v, %v", all, err)
	}
	if o := all[1]; o.Name != "Example" || o.Plan != "pro" || o.Internal || o.Companies != 1 || o.Sequence != 6 {
		t.Errorf("organization %+v", o)
	}
	one, err := store.Organization(ctx, first.ID)
	if err != nil || one.ID != all[1].ID || one.Name != all[1].Name || one.Sequence != all[1].Sequence {
		t.Errorf("organization %+v, %v", one, err)
	}
	members, err := store.Members(ctx, first.ID)
	if err != nil || len(members) != 1 || members[0].Email != first.Email || members[0].Role != domain.Owner ||
		members[0].Status != domain.MemberActive {
		t.Errorf("members %+v, %v", members, err)
	}
	keys, err := store.Keys(ctx, first.ID)
	if err != nil || len(keys) != 2 || keys[0].ID != first.Key.ID || len(keys[1].Scopes) != 1 || keys[1].RevokedAt != nil {
		t.Errorf("keys %+v, %v", keys, err)
	}
	key, err := store.Key(ctx, first.Key.ID)
	if err != nil || key.Organization != first.ID || key.Member != members[0].ID ||
		!key.ExpiresAt.Equal(first.Key.ExpiresAt) {
		t.Errorf("key %+v, %v", key, err)
	}
	company, err := store.CompanyByReference(ctx, first.ID, first.Company.Reference)
	if err != nil || company.ID != first.Company.ID {
		t.Errorf("company %+v, %v", company, err)
	}
	_, err = store.Organization(ctx, domain.OrganizationID{1})
	refuses(t, err, domain.NotFound)
	_, err = store.Key(ctx, domain.KeyID{1})
	refuses(t, err, domain.NotFound)
	_, err = store.CompanyByReference(ctx, first.ID, "absent")
	refuses(t, err, domain.NotFound)
}

func TestAuthenticateCountsTheMinute(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 3, "gratis")
	id, secret, ok := domain.ParseAPIKey(o.Secret)
	if !ok {
		t.Fatal("the key does not parse")
	}
	now := l.Now()
	for want := 1; want <= 3; want++ {
		a, err := store.Authenticate(ctx, id, secret, netip.Addr{}, now)
		if err != nil || a.UsedMinute != want || a.PerMinute != 30 || a.Role != domain.Owner || a.Organization != o.ID {
			t.Fatalf("access %+v, %v", a, err)
		}
	}
	_, err := store.Authenticate(ctx, id, [32]byte{}, netip.Addr{}, now)
	refuses(t, err, domain.InvalidKey)
	if a, err := store.Reauthenticate(ctx, id, secret, netip.Addr{}, now); err != nil || a.Organization != o.ID {
		t.Errorf("access %+v, %v", a, err)
	}
	if a, err := store.Authenticate(ctx, id, secret, netip.Addr{}, now.Add(-time.Minute)); err != nil ||
		a.UsedMinute != 1 {
		t.Errorf("a clock that is behind: %+v, %v", a, err)
	}
	if a, err := store.Authenticate(ctx, id, secret, netip.Addr{}, now); err != nil || a.UsedMinute != 4 {
		t.Errorf("what was refused or looked up again was counted: %+v, %v", a, err)
	}
	_, err = store.Authenticate(ctx, id, secret, netip.Addr{}, o.Key.ExpiresAt)
	refuses(t, err, domain.InvalidKey)
}

func TestUnreachableDatabaseIsUnavailable(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 0, "gratis")

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := store.Organizations(canceled)
	refuses(t, err, domain.TemporarilyUnavailable)

	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	store.Pool = away
	_, err = store.Keys(ctx, o.ID)
	refuses(t, err, domain.TemporarilyUnavailable)

	// A connection lost before a statement was sent, for example while it was set up.
	lost, err := pgx.Connect(ctx, l.URL)
	if err == nil {
		err = lost.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = lost.Exec(ctx, "SELECT 1")
	refuses(
		t, statement.Failed("authenticate", fmt.Errorf("prepare a connection: %w", err)), domain.TemporarilyUnavailable,
	)
}
