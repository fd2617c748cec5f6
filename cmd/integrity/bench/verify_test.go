package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain/evidence"
)

const testRecords = 100 + 17*20

// testLab is a lab with some records, registered as the contenders do it.
func testLab(t *testing.T) *lab {
	t.Helper()
	ctx := context.Background()
	signer := evidence.GenerateSigner()
	l, err := newLab(ctx, pgtest.New(t), 4, signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	if err := l.fill(ctx, 100); err != nil {
		t.Fatal(err)
	}
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, o := range l.everybody() {
		if err := errors.Join(l.registerAll(ctx, ledger, o, 19), l.register(ctx, ledger, o)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestVerify(t *testing.T) {
	l := testLab(t)
	if n, err := l.verify(context.Background()); err != nil || n != testRecords {
		t.Fatalf("verified %d records, %v", n, err)
	}
}

// TestVerifyFails breaks the database behind the ledger's back, each time in another place, and wants to be told.
func TestVerifyFails(t *testing.T) {
	l := testLab(t)
	ctx := context.Background()
	// As the owner of the tables, who can switch the guard off.
	if err := l.exec(ctx, "ALTER TABLE events DISABLE TRIGGER ALL"); err != nil {
		t.Fatal(err)
	}
	tables := []string{"events", "versions", "documents", "feed", "usage", "organization_state"}
	for _, table := range tables {
		if err := l.exec(ctx, fmt.Sprintf("CREATE TABLE kept_%[1]s AS TABLE %[1]s", table)); err != nil {
			t.Fatal(err)
		}
	}
	// Position 40 of shard 2 is a registration: its organizations were made before.
	const last = "(SELECT max(position) FROM events WHERE shard = 2)"
	for name, broken := range map[string]struct{ sql, told string }{
		"lost event":            {"DELETE FROM events WHERE shard = 2 AND position = 40", "shard 2 has"},
		"lost last event":       {"DELETE FROM events WHERE shard = 2 AND position = " + last, "its last event is"},
		"lost record":           {"DELETE FROM versions WHERE position = 40 AND shard = 2", "records"},
		"lost feed entry":       {"DELETE FROM feed WHERE ctid = (SELECT min(ctid) FROM feed)", "feed"},
		"lost document":         {"DELETE FROM documents WHERE ctid = (SELECT min(ctid) FROM documents)", "documents"},
		"counted twice":         {"UPDATE usage SET used = used + 1", "usage"},
		"state behind":          {"UPDATE organization_state SET sequence = sequence - 1", "state behind the log by 1"},
		"swapped actor":         {"UPDATE events SET actor = 'operator' WHERE shard = 2 AND position = 40", "hash is not that of the event"},
		"record in another log": {"UPDATE versions SET organization_id = gen_random_uuid() WHERE position = 40 AND shard = 2", "records"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := l.exec(ctx, broken.sql); err != nil {
				t.Fatal(err)
			}
			if _, err := l.verify(ctx); err == nil || !strings.Contains(err.Error(), broken.told) {
				t.Errorf("told %v, not of %q", err, broken.told)
			}
			for _, table := range tables {
				if err := l.exec(ctx, fmt.Sprintf("DELETE FROM %[1]s; INSERT INTO %[1]s TABLE kept_%[1]s", table)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if _, err := l.verify(ctx); err != nil {
		t.Errorf("after all was put back: %v", err)
	}
}

// TestVerifyForgedEvidence: records that no trusted key has signed.
func TestVerifyForgedEvidence(t *testing.T) {
	l := testLab(t)
	ctx := context.Background()
	other := evidence.GenerateSigner()
	var err error
	if l.trusted, err = trusting(other); err != nil {
		t.Fatal(err)
	}
	if _, err := l.verify(ctx); err == nil || !strings.Contains(err.Error(), "does not verify: untrusted") {
		t.Errorf("records of an untrusted key: %v", err)
	}
}

// TestVerifyLostAcknowledgement: a registration that was answered and is not there.
func TestVerifyLostAcknowledgement(t *testing.T) {
	l := testLab(t)
	l.many[3].acknowledged.Add(1)
	if _, err := l.verify(context.Background()); err == nil || !strings.Contains(err.Error(), "acknowledged 441, records 440") {
		t.Errorf("told %v", err)
	}
}
