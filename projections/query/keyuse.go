package query

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// KeyUses remembers when keys were last used, to the minute, until Flush writes them: a request costs a map entry and
// no statement. A process that is killed loses what was not flushed; access never depends on it. It is safe for
// concurrent use; its zero value is empty.
type KeyUses struct {
	mu   sync.Mutex
	last map[domain.KeyID]int64 // UTC minute, since the last flush
}

// Note remembers a use.
func (u *KeyUses) Note(key domain.KeyID, at time.Time) {
	minute := at.Unix() / 60
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[domain.KeyID]int64{}
	}
	u.last[key] = max(u.last[key], minute)
}

// Rows are written in the order of keys, so that two processes cannot deadlock.
const writeKeyUses = `INSERT INTO api_key_uses (shard, key_id, last_used_at)
	SELECT s.shard, n.* FROM shard_heads s, unnest($2::uuid[], $3::timestamptz[]) AS n(key_id, last_used_at) WHERE s.shard = $1
	ORDER BY n.key_id
	ON CONFLICT (shard, key_id) DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE api_key_uses.last_used_at < excluded.last_used_at`

// Flush writes what was noted since the last flush, one statement per shard. What could not be written stays noted.
func (u *KeyUses) Flush(ctx context.Context, s *Store) error {
	u.mu.Lock()
	noted := u.last
	u.last = nil
	u.mu.Unlock()
	if len(noted) == 0 {
		return nil
	}
	type uses struct {
		keys []domain.KeyID
		at   []time.Time
	}
	shards := map[domain.Shard]uses{}
	for id, minute := range noted {
		n := shards[id.Shard()]
		shards[id.Shard()] = uses{append(n.keys, id), append(n.at, time.Unix(minute*60, 0).UTC())}
	}
	ctx, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	var failed error
	for shard, n := range shards {
		if _, err := s.Pool.Exec(ctx, writeKeyUses, shard, n.keys, n.at); err != nil {
			failed = statement.Failed("write when keys were used", err)
			for i, id := range n.keys {
				u.Note(id, n.at[i])
			}
		}
	}
	return failed
}

// ExpiringKeys lists the keys of all organizations that still work and end before until, the earliest first.
func (s *Store) ExpiringKeys(ctx context.Context, now, until time.Time) ([]domain.APIKey, error) {
	const query = keyColumns + ` AND k.revoked_at IS NULL AND k.expires_at > $2 AND k.expires_at <= $3
		AND EXISTS (SELECT 1 FROM members m WHERE m.shard = $1 AND m.organization_id = k.organization_id
			AND m.member_id = k.member_id AND m.status = 'active')`
	used, err := allShards(ctx, s, "list keys that end soon", pgx.RowToStructByPos[UsedKey], query, now, until)
	all := statement.Column(used, func(k UsedKey) domain.APIKey { return k.APIKey })
	slices.SortFunc(all, func(a, b domain.APIKey) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return all, err
}
