package query_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// twoNodes holds odd shards on node 1, where every statement fails.
type twoNodes struct {
	eventstore.Database
	failure error
	asked   int // statements for node 1
}

func (d *twoNodes) NodeOf(_ context.Context, shard domain.Shard) (int32, error) {
	return int32(shard % 2), nil
}

func (d *twoNodes) away(args []any) bool {
	away := args[0].(domain.Shard)%2 == 1
	if away {
		d.asked++
	}
	return away
}

func (d *twoNodes) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if d.away(args) {
		return pgconn.CommandTag{}, d.failure
	}
	return d.Database.Exec(ctx, sql, args...)
}

func (d *twoNodes) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if d.away(args) {
		return pgx.FailedBatchResults(&pgx.Batch{}, d.failure).Query()
	}
	return d.Database.Query(ctx, sql, args...)
}

// TestAShardThatIsAwayHoldsUpNoOther runs each kind of upkeep while a node is unreachable. The work of the other node
// is done, the upkeep returns an error, and it waits once per round for a node that does not answer. Once the node is
// back, nothing is left.
func TestAShardThatIsAwayHoldsUpNoOther(t *testing.T) {
	for name, kind := range map[string]struct {
		failure error
		asked   int // in a round over both shards of the node
	}{
		"refuses": {&net.OpError{Op: "dial", Err: net.ErrClosed}, 2},
		"silent":  {fmt.Errorf("connect: %w", context.DeadlineExceeded), 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			l := ledgertest.New(t)
			store, sessions := l.Store(t), l.Sessions(t)
			db := &twoNodes{Database: store.Pool, failure: kind.failure}
			now := l.Now()
			var uses query.KeyUses
			for shard := range domain.Shard(4) {
				o := l.Organization(t, shard, "gratis")
				uses.Note(o.Key.ID, now)
				for _, sql := range []string{
					cluster.SQL(`INSERT INTO {idempotency_keys}
						(shard, organization_id, route, key, token, fingerprint, created_at, lease_until)
						VALUES ($1, gen_random_uuid(), 'x', 'x', gen_random_uuid(), '', 'epoch', 'epoch')`),
					cluster.SQL("INSERT INTO {console_challenges} (shard, id_sha256, expires_at) VALUES ($1, '', 'epoch')"),
				} {
					if _, err := store.Pool.Exec(ctx, sql, shard); err != nil {
						t.Fatal(err)
					}
				}
			}
			upkeep := []struct {
				name, left string // left counts the remaining work in a shard
				do         func() error
			}{
				{"answers", "SELECT count(*) FROM idempotency_keys WHERE shard = $1", func() error {
					return store.ForgetAnswers(ctx, now)
				}},
				{"sessions", "SELECT count(*) FROM console_challenges WHERE shard = $1", func() error {
					return sessions.Forget(ctx, now)
				}},
				{"uses of keys", "SELECT 1 - count(*) FROM api_key_uses WHERE shard = $1", func() error {
					return uses.Flush(ctx, store)
				}},
			}
			wants := func(name, left string, want ...int) {
				t.Helper()
				for shard, want := range want {
					var n int
					if err := l.Pool.QueryRow(ctx, left, domain.Shard(shard)).Scan(&n); err != nil || n != want {
						t.Errorf("%s: %d left in shard %d, not %d: %v", name, n, shard, want, err)
					}
				}
			}
			told := func(name string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), "shard 1: ") || db.asked != kind.asked {
					t.Errorf("%s: the node was asked %d times, not %d: %v", name, db.asked, kind.asked, err)
				}
				db.asked = 0
			}
			store.Pool, sessions.Pool = db, db
			for _, u := range upkeep {
				told(u.name, u.do())
				wants(u.name, u.left, 0, 1, 0, 1)
			}
			keys, err := store.ExpiringKeys(ctx, now, now.Add(10*365*24*time.Hour))
			if told("keys that end soon", err); len(keys) != 2 {
				t.Errorf("%d keys that end soon were found, not 2", len(keys))
			}
			owner := domain.EmailSHA256("owner@example.com")
			found, err := sessions.Memberships(ctx, owner)
			if told("memberships", err); len(found) != 2 {
				t.Errorf("%d memberships were found, not 2", len(found))
			}
			if list, err := store.Organizations(ctx); err == nil || len(list) > 0 {
				t.Errorf("%d organizations are said to be all: %v", len(list), err)
			}
			store.Pool, sessions.Pool = db.Database, db.Database
			for _, u := range upkeep {
				if err := u.do(); err != nil {
					t.Errorf("%s: %v", u.name, err)
				}
				wants(u.name, u.left, 0, 0, 0, 0)
			}
		})
	}
}
