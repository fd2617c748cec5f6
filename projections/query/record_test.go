package query_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestEvidenceHoldsTheLeaf: evidence includes the registration's leaf in the transparency log. If the event is gone,
// the result is neither evidence nor an unknown record.
func TestEvidenceHoldsTheLeaf(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 2, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("d", 1, "x")))
	events := l.Events(t, 2)
	e := events[len(events)-1]
	id, _ := domain.ParsePublicID(e.Subject)
	access := domain.Access{Organization: o.ID, Key: o.Key.ID}
	found, err := store.Evidence(ctx, access, id)
	if err != nil || found.Event.Shard != 2 || found.Event.Position != e.Position || !bytes.Equal(found.Leaf(), e.Leaf()) {
		t.Errorf(
			"event %d of shard %d with the leaf %s, %v, where it is %d with %s", found.Event.Position, found.Event.Shard,
			found.Leaf(), err, e.Position, e.Leaf(),
		)
	}
	pgtest.OneServer(t, "the guards of its tables cannot be taken away")
	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	for _, sql := range []string{
		"ALTER TABLE events DISABLE TRIGGER USER", "DELETE FROM events WHERE shard = 2 AND subject = '" + e.Subject + "'",
	} {
		if _, err := owner.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if found, err = store.Evidence(ctx, access, id); err != nil || found.Event.Position != e.Position ||
		found.Record.Signature != "" || bytes.Equal(found.Leaf(), e.Leaf()) {
		t.Errorf("the event is gone: %+v, %v", found, err)
	}
}
