package query_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

func TestLastUsesOfKeysAreWrittenByFlush(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	first, second := l.Organization(t, 0, "gratis"), l.Organization(t, 3, "gratis")
	used := func(o ledgertest.Organization) *time.Time {
		t.Helper()
		k, err := store.Key(ctx, o.Key.ID)
		if err != nil {
			t.Fatal(err)
		}
		return k.LastUsedAt
	}
	if used(first) != nil {
		t.Error("a key that was never used has a last use")
	}
	at := time.Date(2026, 11, 20, 10, 0, 59, 0, time.UTC)
	var one, other query.KeyUses // two processes
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			one.Note(first.Key.ID, at.Add(-time.Duration(i)*time.Minute))
			one.Note(second.Key.ID, at)
			other.Note(second.Key.ID, at.Add(time.Minute))
			other.Note(first.Key.ID, at.Add(-time.Hour))
		})
	}
	wg.Wait()

	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := one.Flush(gone, store); err == nil {
		t.Error("a flush without a database succeeded")
	}
	for range 2 { // both at once, in both key orders; the second round has nothing to write
		for _, uses := range []*query.KeyUses{&one, &other} {
			wg.Go(func() {
				if err := uses.Flush(ctx, store); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if got := used(first); got == nil || !got.Equal(at.Truncate(time.Minute)) {
		t.Errorf("last use %v, want the minute of %s", got, at)
	}
	if got := used(second); got == nil || !got.Equal(at.Add(time.Minute).Truncate(time.Minute)) {
		t.Errorf("last use %v: an earlier one has overwritten a later one", got)
	}
	list, err := store.Keys(ctx, second.ID)
	if err != nil || len(list) != 1 || list[0].LastUsedAt == nil {
		t.Errorf("keys %+v, %v", list, err)
	}
}

func TestExpiringKeysStillWork(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	now := l.Now()
	var want []domain.KeyID
	for shard, lifetime := range []time.Duration{48 * time.Hour, 24 * time.Hour} {
		o := l.Organization(t, domain.Shard(shard), "gratis") // its own key ends in a year
		for _, end := range []string{"as it is", "revoked", "disabled"} {
			email := "other@example.com"
			if end != "disabled" {
				email = o.Email
			} else {
				l.Must(t, &domain.AddMember{Origin: o.Operator(), Email: email, Role: domain.Viewer})
			}
			create, _ := domain.NewCreateKey(domain.CreateKey{
				Origin: o.Operator(), Email: email, Scopes: []domain.Scope{domain.IntegrityRead}, Lifetime: lifetime,
			}, now)
			l.Must(t, create)
			switch end {
			case "as it is":
				want = append(want, create.Outcome.ID)
			case "revoked":
				l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: create.Outcome.ID})
			case "disabled":
				disabled := domain.MemberDisabled
				l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Email: email, Status: &disabled})
			}
		}
	}
	slices.Reverse(want) // the earliest end first
	list, err := store.ExpiringKeys(ctx, now, now.Add(30*24*time.Hour))
	if err != nil || len(list) != 2 || list[0].ID != want[0] || list[1].ID != want[1] {
		t.Errorf("keys %+v, %v, want %v", list, err, want)
	}
	if list, err := store.ExpiringKeys(ctx, now.Add(60*time.Hour), now.Add(30*24*time.Hour)); err != nil ||
		len(list) != 0 {
		t.Errorf("ended keys are listed: %+v, %v", list, err)
	}
}

// TestKeyWorksInsideItsNetworkOnly: a key may act only from inside its network, and refused requests are not counted.
func TestKeyWorksInsideItsNetworkOnly(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 2, "gratis")
	for network, clients := range map[string]map[string]bool{
		"192.0.2.0/24":    {"192.0.2.7": true, "192.0.3.7": false, "::1": false, "2001:db8::1": false},
		"2001:db8::/32":   {"2001:db8::1": true, "2001:db9::1": false, "192.0.2.7": false},
		"192.0.2.7/32":    {"192.0.2.7": true, "192.0.2.8": false},
		"0.0.0.0/0":       {"192.0.2.7": true, "::1": false},
		"10.0.0.128/25":   {"10.0.0.127": false, "10.0.0.128": true, "10.0.0.255": true},
		"2001:db8::1/128": {"2001:db8::1": true, "2001:db8::2": false},

		"192.0.2.0/24 2001:db8::/32 10.0.0.7/32": {
			"192.0.2.7": true, "2001:db8::1": true, "10.0.0.7": true, "10.0.0.8": false, "192.0.3.7": false,
		},
	} {
		create, text := domain.NewCreateKey(domain.CreateKey{
			Origin: o.Operator(), Email: o.Email, Scopes: []domain.Scope{domain.IntegrityRead}, Lifetime: time.Hour,
			KeyLimits: domain.KeyLimits{Networks: strings.Fields(network)},
		}, l.Now())
		l.Must(t, create)
		id, secret, _ := domain.ParseAPIKey(text)
		at := l.Now()
		used := 0
		if before, err := store.Authenticate(ctx, o.Key.ID, secretOf(t, o), netip.Addr{}, at); err != nil {
			t.Fatal(err)
		} else {
			used = before.UsedMinute
		}
		for client, allowed := range clients {
			_, err := store.Authenticate(ctx, id, secret, netip.MustParseAddr(client), at)
			_, again := store.Reauthenticate(ctx, id, secret, netip.MustParseAddr(client), at)
			if allowed {
				used++
			} else {
				refuses(t, err, domain.InvalidKey)
				refuses(t, again, domain.InvalidKey)
				err, again = nil, nil
			}
			if err != nil || again != nil {
				t.Errorf("%s in %s: %v, %v", client, network, err, again)
			}
		}
		_, err := store.Authenticate(ctx, id, secret, netip.Addr{}, at)
		refuses(t, err, domain.InvalidKey)
		if after, err := store.Authenticate(ctx, o.Key.ID, secretOf(t, o), netip.Addr{}, at); err != nil ||
			after.UsedMinute != used+1 {
			t.Errorf("%s: %d requests counted, want %d: %v", network, after.UsedMinute, used+1, err)
		}
	}
}

// TestRotateKeyInTheLedger rotates a key with many grants and audits the ledger.
func TestRotateKeyInTheLedger(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, "gratis")
	for _, reference := range []string{"company-2", "company-3"} {
		l.Grant(t, o, o.Key.ID, l.Company(t, o, reference).ID, reference == "company-2")
	}
	rotate, text := domain.NewRotateKey(domain.RotateKey{
		Origin: o.Operator(), Key: o.Key.ID, Lifetime: time.Hour, Overlap: 2 * time.Hour, CopyGrants: true,
	}, l.Now())
	l.Must(t, rotate)
	if len(rotate.Outcome.Granted) != 2 {
		t.Errorf("copied grants: %v", rotate.Outcome.Granted)
	}
	id, secret, _ := domain.ParseAPIKey(text)
	now := l.Now()
	for what, c := range map[string]struct {
		key    domain.KeyID
		secret [32]byte
		at     time.Time
		works  bool
	}{
		"the successor":         {id, secret, now, true},
		"the former key":        {o.Key.ID, secretOf(t, o), now, true},
		"after the overlap":     {o.Key.ID, secretOf(t, o), now.Add(2*time.Hour + time.Second), false},
		"with the other secret": {o.Key.ID, secret, now, false},
	} {
		if _, err := store.Authenticate(ctx, c.key, c.secret, netip.Addr{}, c.at); (err == nil) != c.works {
			t.Errorf("%s: %v", what, err)
		}
	}
	successor := o
	successor.Key, successor.Secret = rotate.Outcome.Key, text
	l.Must(t, l.Register(t, successor, o.Declaration("d", 1, "x")))

	plain, _ := domain.NewRotateKey(domain.RotateKey{Origin: o.Operator(), Key: id, Lifetime: time.Hour}, l.Now())
	l.Must(t, plain)
	_, err := store.Authenticate(ctx, id, secret, netip.Addr{}, l.Now())
	refuses(t, err, domain.InvalidKey)
	successor.Key = plain.Outcome.Key
	refuses(t, l.Do(ctx, l.Register(t, successor, o.Declaration("d", 2, "x"))), domain.CompanyNotAuthorized)
	l.Audit(t)
}

func secretOf(t *testing.T, o ledgertest.Organization) [32]byte {
	t.Helper()
	_, secret, ok := domain.ParseAPIKey(o.Secret)
	if !ok {
		t.Fatal("the key does not parse")
	}
	return secret
}
