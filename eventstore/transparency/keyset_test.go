package transparency

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/history"
	"integrityledger/projections/ledgertest"
)

// publishKeys publishes the trusted keys of a ledger with a log key.
func publishKeys(t *testing.T, l *ledgertest.Ledger, signer *Signer) evidence.KeySet {
	t.Helper()
	trusted, err := l.Trusted.AddLogKey(signer.LogKey)
	check(t, err)
	set, err := evidence.NewKeySet(l.Installation.Issuer, trusted)
	check(t, err)
	_, sequence, err := ReadPublishedKeys(context.Background(), l.Pool)
	if !errors.Is(err, ErrNoKeySet) {
		check(t, err)
	}
	l.Must(t, &domain.PublishKeys{
		Origin: domain.Origin{Organization: domain.InstallationID, Actor: domain.OperatorActor, RequestID: "r"},
		Set:    set, After: sequence,
	})
	return set
}

// TestPublishedKeys: the last published keys are proven by the tree to a reader who knows only the log key, also among
// the events of tenants. A changed row is not served.
func TestPublishedKeys(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	o := l.Organization(t, domain.InstallationID.Shard(), domain.InternalPlan)
	signer := newSigner(t)
	k, reader := process(t, l, signer), &Reader{Pool: l.Pool}
	if _, _, err := reader.PublishedKeys(ctx); !errors.Is(err, ErrNoKeySet) {
		t.Errorf("before the first: %v", err)
	}
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	publishKeys(t, l, newSigner(t))
	l.Must(t, l.Register(t, o, o.Declaration("a", 2, "x")))
	set := publishKeys(t, l, signer)
	if _, _, err := reader.PublishedKeys(ctx); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("before the tree grows: %v", err)
	}
	check(t, k.turn(ctx))
	last, proof, err := reader.PublishedKeys(ctx)
	check(t, err)
	pins, err := evidence.NewTrustedKeys(nil, nil, []evidence.LogKey{signer.LogKey})
	check(t, err)
	found, err := evidence.VerifyKeySet(last.AppendProof(nil, *proof), evidence.KeySetPins{Trusted: pins, Now: time.Now()})
	check(t, err)
	if string(found.Payload) != string(set.Payload) || !found.LogKeyListed ||
		!found.PublishedAt.Equal(last.Event.OccurredAt) || !found.Trusted.Trusts(l.Registrar.Signer.Key()) {
		t.Errorf("found %+v", found)
	}
	l.Audit(t)
	if all, err := l.Store(t).Organizations(ctx); err != nil || len(all) != 1 {
		t.Errorf("%d organizations, %v", len(all), err)
	}

	// The database is changed by someone who can, with a payload that is a key set.
	conn, err := pgx.Connect(ctx, l.URL)
	check(t, err)
	defer conn.Close(ctx)
	for _, sql := range []string{
		`ALTER TABLE events DISABLE TRIGGER ALL`,
		`UPDATE events SET data = convert_to(replace(convert_from(data, 'UTF8'), '"issuer":"', '"issuer":"x'), 'UTF8') WHERE type = 'keys.published'`,
	} {
		_, err = conn.Exec(ctx, sql)
		check(t, err)
	}
	if _, _, err := reader.PublishedKeys(ctx); err == nil || errors.Is(err, ErrNotIntegrated) {
		t.Errorf("a changed key set is served: %v", err)
	}
	_, err = conn.Exec(ctx, `UPDATE events SET data = 'x' WHERE type = 'keys.published'`)
	check(t, err)
	if _, _, err := reader.PublishedKeys(ctx); err == nil || !strings.Contains(err.Error(), "position") {
		t.Errorf("a spoiled key set is served: %v", err)
	}
	_, err = conn.Exec(ctx, `DELETE FROM events WHERE type = 'keys.published' AND position = $1`, last.Event.Position)
	check(t, err)
	if _, err := Check(ctx, l.Pool, nil); !errors.Is(err, ErrDiffers) {
		t.Errorf("the tree of a ledger without the event: %v", err)
	}
}

// TestKeySetsOfRule: an upgraded ledger publishes no keys until every process knows the event.
func TestKeySetsOfRule(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	_, err := l.Pool.Exec(ctx, `UPDATE shard_heads SET rules = array_remove(rules, $1)`, string(domain.KeySets))
	check(t, err)
	set, err := evidence.NewKeySet(l.Installation.Issuer, l.Trusted)
	check(t, err)
	by := domain.Origin{Organization: domain.InstallationID, Actor: domain.OperatorActor, RequestID: "r"}
	if err := l.Do(ctx, &domain.PublishKeys{Origin: by, Set: set}); !errors.Is(err, domain.ErrNoKeySetsYet) {
		t.Errorf("published: %v", err)
	}
	if events, err := history.NewTail(l.Pool, 0, 0).Next(ctx, 10); err != nil || len(events) != 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
}
