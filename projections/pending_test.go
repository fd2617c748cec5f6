package projections

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
)

// TestReleasedReservationIsLoadedAsInactive: a released reservation is not active, even in a shard whose clock was then
// set back. Once renewed, it is.
func TestReleasedReservationIsLoadedAsInactive(t *testing.T) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	o := domain.NewOrganizationID(time.Now(), 0)
	head := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	later := head.Add(time.Hour)
	if _, err := conn.Exec(
		ctx,
		"INSERT INTO shard_heads (shard, position, occurred_at) VALUES (0, 1, $1) ON CONFLICT (shard) DO UPDATE SET "+
			"occurred_at = $1",
		head,
	); err != nil {
		t.Fatal(err)
	}
	for version, expires := range map[int]time.Time{1: later, 2: later.Add(time.Hour)} {
		if _, err := conn.Exec(ctx,
			`INSERT INTO versions (shard, document_id, version, organization_id, public_id, expires_at, released_at)
			VALUES (0, $1, $2, $3, gen_random_uuid(), $4, $5)`, domain.DocumentID{1}, version, o, expires, later); err != nil {
			t.Fatal(err)
		}
	}
	rows, _ := conn.Query(ctx, loadPending, 0, []domain.OrganizationID{o})
	active := 0
	loaded, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row3[domain.OrganizationID, domain.PublicID, time.Time]])
	for _, r := range loaded {
		if r.C.After(head) {
			active++
		}
	}
	if err != nil || len(loaded) != 2 || active != 1 {
		t.Errorf("%d of %d reservations are active, want 1 of 2: %v", active, len(loaded), err)
	}
}
