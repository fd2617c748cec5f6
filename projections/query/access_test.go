package query_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// TestMetersAreExactOverProcesses: two processes authenticate the same organizations in opposite orders. There is no
// deadlock, no request fails, and each gets its own ordinal, 1 to n without gaps.
func TestMetersAreExactOverProcesses(t *testing.T) {
	l := ledgertest.New(t)
	const organizations, rounds = 12, 8
	type account struct {
		o      ledgertest.Organization
		key    domain.KeyID
		secret [32]byte
	}
	var accounts []account
	for range organizations {
		a := account{o: l.Organization(t, 1, domain.InternalPlan)}
		a.key, a.secret, _ = domain.ParseAPIKey(a.o.Secret)
		accounts = append(accounts, a)
	}
	now := time.Date(2026, 11, 20, 10, 0, 59, 0, time.UTC)
	var mu sync.Mutex
	ordinals := map[domain.OrganizationID]map[int64][]int{}
	var group sync.WaitGroup
	for process := range 2 {
		store := l.Store(t) // with its own Batcher, like another process
		order := slices.Clone(accounts)
		if process == 1 {
			slices.Reverse(order)
		}
		for round := range rounds {
			at := now.Add(time.Duration(round%3) * time.Second * 60) // three minutes at once: old ones are cleared meanwhile
			for _, a := range order {
				group.Go(func() {
					access, err := store.Authenticate(context.Background(), a.key, a.secret, netip.Addr{}, at)
					if err != nil || access.Organization != a.o.ID || access.Key != a.key {
						t.Errorf("access %+v, %v", access, err)
						return
					}
					if rand.IntN(4) == 0 {
						if again, err := store.Reauthenticate(context.Background(), a.key, a.secret, netip.Addr{}, at); err != nil ||
							again.UsedMinute != 0 {
							t.Errorf("looked up again: %+v, %v", again, err)
						}
						_, err := store.Authenticate(context.Background(), a.key, [32]byte{1}, netip.Addr{}, at)
						refuses(t, err, domain.InvalidKey)
					}
					mu.Lock()
					defer mu.Unlock()
					if ordinals[a.o.ID] == nil {
						ordinals[a.o.ID] = map[int64][]int{}
					}
					minute := at.Unix() / 60
					ordinals[a.o.ID][minute] = append(ordinals[a.o.ID][minute], access.UsedMinute)
				})
			}
		}
	}
	group.Wait()
	newest := now.Add(2*time.Minute).Unix() / 60
	for _, a := range accounts {
		for minute, got := range ordinals[a.o.ID] {
			if minute == newest-2 {
				continue // may have been cleared between two of its requests
			}
			slices.Sort(got)
			for i, ordinal := range got {
				if ordinal != i+1 {
					t.Fatalf("ordinals of a minute: %v", got)
				}
			}
		}
	}
}

// TestKeyRevokedBetweenTwoRequestsIsRefused: under load on the same shard, the first request after a revocation is
// refused, whatever its batch.
func TestKeyRevokedBetweenTwoRequestsIsRefused(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	own, ownSecret, _ := domain.ParseAPIKey(o.Secret)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := store.Authenticate(ctx, own, ownSecret, netip.Addr{}, l.Now()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		key, text := l.Key(t, o, domain.IntegrityRead)
		id, secret, _ := domain.ParseAPIKey(text)
		if _, err := store.Authenticate(ctx, id, secret, netip.Addr{}, l.Now()); err != nil {
			t.Error(err)
		}
		l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: key.ID})
		_, err := store.Authenticate(ctx, id, secret, netip.Addr{}, l.Now())
		refuses(t, err, domain.InvalidKey)
	}
	close(stop)
	group.Wait()
}

// TestUnknownPlanIsAFault: a plan missing from the table is an internal error, not a limit of the caller.
func TestUnknownPlanIsAFault(t *testing.T) {
	l := ledgertest.New(t)
	store := l.Store(t)
	store.Plans = domain.Plans{"gratis": {PerMinute: 1}}
	o := l.Organization(t, 1, "pro")
	key, secret, _ := domain.ParseAPIKey(o.Secret)
	a, err := store.Authenticate(context.Background(), key, secret, netip.Addr{}, l.Now())
	if err == nil || a.PerMinute != 0 {
		t.Errorf("access %+v, %v", a, err)
	}
	missing, err := store.MissingPlans(context.Background())
	if err != nil || !slices.Equal(missing, []string{"pro"}) {
		t.Errorf("missing plans %v, %v", missing, err)
	}
	store.Plans = domain.Plans{"gratis": {PerMinute: 1}, "pro": {PerMinute: 1}}
	if missing, err = store.MissingPlans(context.Background()); err != nil || missing != nil {
		t.Errorf("missing plans %v, %v", missing, err)
	}
}

// TestUnknownShardAsksNothing: an id contains its shard, so a client can send a shard that the ledger lacks. It is
// refused like every wrong key, without a statement: the test has no database.
func TestUnknownShardAsksNothing(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	store := query.New(query.Config{Pool: away, Installation: eventstore.Installation{Shards: 4}})
	for shard, want := range map[domain.Shard]domain.Code{
		3: domain.TemporarilyUnavailable, 4: domain.InvalidKey, 65535: domain.InvalidKey,
	} {
		key := domain.NewKeyID(now, shard)
		_, err = store.Authenticate(ctx, key, [32]byte{}, netip.Addr{}, now)
		refuses(t, err, want)
		_, err = store.Reauthenticate(ctx, key, [32]byte{}, netip.Addr{}, now)
		refuses(t, err, want)
	}
}

// TestMembershipDecidesAtOnce: a change of role or status is written with its event and applies to the member's keys
// from the next request.
func TestMembershipDecidesAtOnce(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	l.SecondOwner(t, o)
	key, secret, _ := domain.ParseAPIKey(o.Secret)
	for _, want := range []struct {
		role   domain.Role
		status domain.MemberStatus
	}{{domain.Owner, domain.MemberDisabled}, {domain.Analyst, domain.MemberActive}, {domain.Analyst, domain.MemberEnded}} {
		change := &domain.ChangeMember{Origin: o.Operator(), Email: o.Email, Role: &want.role, Status: &want.status}
		if want.status == domain.MemberEnded {
			change.Role = nil
		}
		l.Must(t, change)
		members, err := store.Members(ctx, o.ID)
		if err != nil || len(members) != 2 || members[0].Role != want.role || members[0].Status != want.status {
			t.Errorf("members %+v, %v, want %+v", members, err, want)
		}
		access, err := store.Authenticate(ctx, key, secret, netip.Addr{}, l.Now())
		if want.status != domain.MemberActive {
			refuses(t, err, domain.InvalidKey)
		} else if err != nil || access.Role != want.role {
			t.Errorf("access %+v, %v, want %+v", access, err, want)
		}
	}
}

// TestSubjectsAreAuthenticatedAsKeysAre: the current link, consent and membership apply, scopes are the consented ones
// that the role allows, and requests are counted in the organization's only meter.
func TestSubjectsAreAuthenticatedAsKeysAre(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	l.SecondOwner(t, o)
	now := time.Now()
	subject := domain.NewOAuthSubject(l.Installation.Secret, "https://id.example", "somebody")
	_, err := store.AuthenticateSubject(ctx, subject, now)
	refuses(t, err, domain.IdentityNotLinked)

	start, code := domain.NewStartLink(
		domain.StartLink{Origin: o.Operator(), Email: o.Email, Scopes: domain.OAuthScopes()}, now,
	)
	l.Must(t, start)
	id, secret, _ := domain.ParseLinkCode(code)
	if err := store.ClaimOAuthSubject(ctx, subject, start.Outcome, now); err != nil {
		t.Fatal(err)
	}
	_, err = store.AuthenticateSubject(ctx, subject, now)
	refuses(t, err, domain.IdentityNotLinked) // claimed but not redeemed
	l.Must(
		t,
		&domain.RedeemLink{
			Origin: domain.Origin{Organization: o.ID, Actor: domain.MemberActor(start.Outcome.Member)}, Link: id,
			SecretSHA256: secret, Subject: subject,
		},
	)

	change := func(role domain.Role, status domain.MemberStatus) {
		t.Helper()
		l.Must(t, &domain.ChangeMember{Origin: o.Operator(), Email: o.Email, Role: &role, Status: &status})
	}
	key, keySecret, _ := domain.ParseAPIKey(o.Secret)
	for n, role := range []domain.Role{domain.Owner, domain.Viewer} {
		change(role, domain.MemberActive)
		a, err := store.AuthenticateSubject(ctx, subject, now)
		allowed := slices.DeleteFunc(domain.OAuthScopes(), func(s domain.Scope) bool { return !role.Allows(s) })
		if err != nil || a.Link != id || !a.Key.IsZero() || a.Organization != o.ID || a.Member != o.Key.Member ||
			a.Role != role ||
			!slices.Equal(a.Scopes, allowed) || a.UsedMinute != 2*n+1 || a.PerMinute == 0 || a.Sequence == 0 ||
			!a.ExpiresAt.IsZero() {
			t.Errorf("access %+v, %v", a, err)
		}
		if a, err = store.Authenticate(ctx, key, keySecret, netip.Addr{}, now); err != nil || a.UsedMinute != 2*n+2 ||
			!a.Link.IsZero() {
			t.Errorf("access of the key %+v, %v", a, err)
		}
	}
	change(domain.Owner, domain.MemberDisabled)
	_, err = store.AuthenticateSubject(ctx, subject, now)
	refuses(t, err, domain.IdentityNotLinked)
	change(domain.Owner, domain.MemberActive)
	l.Must(t, &domain.WithdrawConsent{Origin: o.Operator(), Link: id})
	_, err = store.AuthenticateSubject(ctx, subject, now)
	refuses(t, err, domain.IdentityNotLinked)
	if a, err := store.Authenticate(ctx, key, keySecret, netip.Addr{}, now); err != nil || a.UsedMinute != 5 {
		t.Errorf("what was refused was counted: %+v, %v", a, err)
	}
}
