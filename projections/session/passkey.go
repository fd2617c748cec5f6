package session

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// Used challenges are kept until they expire, so that they cannot be replayed.
var useChallenge = cluster.SQL(`INSERT INTO {console_challenges} (shard, id_sha256, expires_at)
	VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING true`)

// UseChallenge uses up a challenge. Of any number of concurrent requests, only one gets true. The hash determines the
// shard.
func (s *Store) UseChallenge(ctx context.Context, sha256 [32]byte, expiresAt time.Time) (used bool, err error) {
	_, used, err = statement.First(ctx, s.Pool, "use a challenge", pgx.RowTo[bool],
		useChallenge, s.ShardOf(sha256), sha256[:], expiresAt)
	return used, err
}

// NamedPasskey is a passkey with its name, which is empty once erased.
type NamedPasskey struct {
	domain.Passkey
	Name       string
	SignCount  int64
	LastUsedAt *time.Time
}

var findPasskeys = cluster.SQL(`SELECT ` + projections.PasskeyColumns + `,
		coalesce(t.body, ''), coalesce(u.sign_count, 0), u.last_used_at
	FROM {passkeys} p
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = p.organization_id AND id = p.name_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT sign_count, last_used_at FROM {passkey_uses}
		WHERE shard = $1 AND passkey_id = p.passkey_id OFFSET 0) u ON true
	WHERE p.shard = $1 AND p.organization_id = $2 AND p.member_id = $3 AND p.removed_at IS NULL ORDER BY p.passkey_id`)

// Passkeys lists a member's passkeys, oldest first.
func (s *Store) Passkeys(ctx context.Context, o domain.OrganizationID, member domain.MemberID) ([]NamedPasskey, error) {
	if !s.Installation.Has(o.Shard()) {
		return nil, nil
	}
	return statement.All(ctx, s.Pool, "list passkeys", pgx.RowToStructByPos[NamedPasskey],
		findPasskeys, o.Shard(), o, member)
}

// An authenticator's counter only grows: an answer that does not raise it comes from a copy or is a replay.
// Authenticators without a counter always send 0.
var usePasskey = cluster.SQL(`INSERT INTO {passkey_uses} AS u (shard, passkey_id, sign_count, last_used_at)
	VALUES ($1, $2, $3, $4)
	ON CONFLICT (shard, passkey_id) DO UPDATE SET sign_count = excluded.sign_count, last_used_at = excluded.last_used_at
		WHERE excluded.sign_count > u.sign_count OR excluded.sign_count = 0 AND u.sign_count = 0
	RETURNING true`)

// UsePasskey records a use. counted is false if the authenticator's counter has not grown.
func (s *Store) UsePasskey(
	ctx context.Context, p domain.Passkey, signCount int64, now time.Time,
) (counted bool, err error) {
	_, counted, err = statement.First(ctx, s.Pool, "note the use of a passkey", pgx.RowTo[bool],
		usePasskey, p.Organization.Shard(), p.ID, signCount, now)
	return counted, err
}

var anyPasskey = cluster.SQL(`SELECT true FROM {passkeys} WHERE removed_at IS NULL LIMIT 1`)

// HasPasskeys reports whether any member of the ledger has a passkey.
func (s *Store) HasPasskeys(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	found, err := eventstore.Everywhere(ctx, s.Pool, s.Installation.Shards, pgx.RowTo[bool], anyPasskey)
	if err != nil {
		return false, statement.Failed("look for a passkey", err)
	}
	return len(found) > 0, nil
}
