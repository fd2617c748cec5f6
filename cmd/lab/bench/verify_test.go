package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
)

// TestCountRefuses: the log must contain every acknowledged registration once, and no others.
func TestCountRefuses(t *testing.T) {
	ctx := context.Background()
	l, err := newLab(ctx, pgtest.New(t), 2, evidence.GenerateSigner())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	if err := l.fill(ctx, 400); err != nil {
		t.Fatal(err)
	}
	if err := l.count(ctx); err != nil {
		t.Fatalf("as it was written: %v", err)
	}
	const last = "shard = 1 AND position = (SELECT max(position) FROM events WHERE shard = 1)" // the last registration
	for name, change := range map[string]string{
		"an event is missing": "DELETE FROM events WHERE " + last,
		"an event is there twice": "CREATE TEMP TABLE twice ON COMMIT DROP AS TABLE events; DELETE FROM twice WHERE NOT (" +
			last + "); " +
			"UPDATE twice SET id = gen_random_uuid(), position = position + 1000000, sequence = sequence + 1000000; INSERT " +
			"INTO events TABLE twice",
		"one is missing, and another there twice": "UPDATE versions SET sha256 = (SELECT v.sha256 FROM versions v WHERE " +
			"v.shard = 1 ORDER BY v.organization_id, v.public_id LIMIT 1) " +
			"WHERE shard = 1 AND public_id = (SELECT v.public_id FROM versions v WHERE v.shard = 1 ORDER BY " +
			"v.organization_id, v.public_id OFFSET 1 LIMIT 1)",
	} {
		if err := l.exec(ctx, "BEGIN; SET LOCAL session_replication_role = replica; "+change); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := l.count(ctx); err == nil || !strings.Contains(err.Error(), "registrations were acknowledged") {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.exec(ctx, "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
	l.many[3].acknowledged.Add(1)
	if err := l.count(ctx); err == nil {
		t.Error("an acknowledgement of nothing is not refused")
	}
}

// TestLeft: leaves missing from the tree and queued deliveries are work, and a lone caller waits for their end.
func TestLeft(t *testing.T) {
	ctx := context.Background()
	l, err := newLab(ctx, pgtest.New(t), 2, evidence.GenerateSigner())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	var events int64
	if err := l.owner.QueryRow(ctx, "SELECT count(*) FROM events").Scan(&events); err != nil {
		t.Fatal(err)
	}
	leaves := fmt.Sprintf(", %d leaves of the tree to do", events) // no process works on it
	if left, err := l.left(ctx); err != nil || left != leaves {
		t.Errorf("%q, not %q: %v", left, leaves, err)
	}
	if err := l.exec(ctx,
		`INSERT INTO webhook_deliveries (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type, created_at, due_at, attempts, reason)
		VALUES (0, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, gen_random_uuid(), 0, now(), now(), 0, '')`); err != nil {
		t.Fatal(err)
	}
	if left, err := l.left(ctx); err != nil || left != leaves+", 1 webhook deliveries to do" {
		t.Errorf("%q: %v", left, err)
	}
}
