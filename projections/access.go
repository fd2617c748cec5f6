package projections

import (
	"context"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// usableKey finds a key that may act now: right secret, neither expired nor
// revoked, its member active, the client inside its network where it has one (an
// address that is not known is inside none). The secret is 256 random bits and
// only its hash is compared, so that the comparison's time tells nothing.
const usableKey = `SELECT k.organization_id, k.member_id, m.role, k.scopes, k.source, k.max_version_step, k.expires_at, o.plan, o.per_minute
	FROM api_keys k
	JOIN members m ON m.shard = $1 AND m.organization_id = k.organization_id AND m.member_id = k.member_id
	JOIN organization_state o ON o.shard = $1 AND o.organization_id = k.organization_id
	WHERE k.shard = $1 AND k.key_id = $2 AND k.secret_sha256 = $3 AND k.revoked_at IS NULL AND k.expires_at > $4
		AND m.status = 'active' AND (k.network IS NULL OR $5::inet <<= k.network::cidr)`

// The first request of a minute clears the organization's earlier minutes away;
// the minute before stays, for a process whose clock is a little behind.
const authenticate = `WITH usable AS (` + usableKey + `), metered AS (
		INSERT INTO meters (shard, subject, minute, used)
		SELECT $1, organization_id, $6, 1 FROM usable
		ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + 1
		RETURNING shard, subject, used
	), cleared AS (
		DELETE FROM meters USING metered
		WHERE meters.shard = $1 AND metered.used = 1 AND meters.subject = metered.subject AND meters.minute < $6 - 1
	)
	SELECT u.organization_id, u.member_id, u.role, u.scopes, u.source, u.max_version_step, u.expires_at, u.plan, u.per_minute, n.used
	FROM usable u CROSS JOIN metered n`

// Authenticate reads who stands behind a key and counts the request in the
// organization's UTC minute, in one round trip. Whatever is wrong with the key,
// the answer is one INVALID_KEY, and nothing is counted.
func (s *Store) Authenticate(ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time) (domain.Access, error) {
	return s.access(ctx, key, authenticate, key.Shard(), [16]byte(key), secretSHA256[:], now, inet(client), now.Unix()/60)
}

// Reauthenticate is Authenticate for a request that is already counted and has waited since.
func (s *Store) Reauthenticate(ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time) (domain.Access, error) {
	const again = `SELECT u.organization_id, u.member_id, u.role, u.scopes, u.source, u.max_version_step, u.expires_at, u.plan, u.per_minute, 0
		FROM (` + usableKey + `) u`
	return s.access(ctx, key, again, key.Shard(), [16]byte(key), secretSHA256[:], now, inet(client))
}

// inet is an address as PostgreSQL knows it; nil where there is none.
func inet(client netip.Addr) *netip.Addr {
	if !client.IsValid() {
		return nil
	}
	return &client
}

func (s *Store) access(ctx context.Context, key domain.KeyID, sql string, args ...any) (domain.Access, error) {
	if !s.known(key.Shard()) {
		return domain.Access{}, InvalidKey()
	}
	a, found, err := first(ctx, s.Pool, "authenticate", func(row pgx.CollectableRow) (domain.Access, error) {
		a := domain.Access{Key: key}
		var own *int32
		err := row.Scan((*[16]byte)(&a.Organization), (*[16]byte)(&a.Member), &a.Role, &a.Scopes,
			&a.Limits.Source, &a.Limits.MaxVersionStep, &a.ExpiresAt, &a.Plan, &own, &a.UsedMinute)
		a.ExpiresAt = a.ExpiresAt.UTC()
		a.PerMinute = s.Plans.PerMinute(a.Plan, own)
		return a, err
	}, sql, args...)
	if err == nil && !found {
		err = InvalidKey()
	}
	return a, err
}

// InvalidKey is the one answer to every key that may not act.
func InvalidKey() *domain.Error {
	return domain.Refuse(domain.InvalidKey, "Send a valid API key as Authorization: Bearer <API_KEY>.")
}
