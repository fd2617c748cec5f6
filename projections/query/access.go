package query

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/statement"
)

// One statement answers many credentials. A key may act when its secret is
// right, it is neither expired nor revoked, its member is active, and the client
// is inside its network where it has one (an address that is not known is inside
// none). The secret is 256 random bits and only its hash is compared, so that the
// comparison's time tells nothing.
//
// Meters: an organization's requests of a minute are added at once, and each
// request gets an ordinal of its own by its place in the batch. The rows are
// locked in the order of their keys, so that two processes whose batches name
// the same organizations cannot wait for each other. The first request of a
// minute clears the organization's earlier minutes away, without waiting for a
// row that somebody else holds; the minute before stays, for a process whose
// clock is a little behind. They are locked by their key and deleted at their place:
// a join by the key would allow a walk over the shard. One that changed while it was
// being locked stays for the next minute to clear.
const usableKeys = `WITH asked AS MATERIALIZED (
		SELECT n.place, n.key_id, n.secret, n.at, n.minute, n.counted, n.client
		FROM unnest($2::int[], $3::uuid[], $4::bytea[], $5::timestamptz[], $6::bigint[], $7::boolean[], $8::inet[])
			AS n(place, key_id, secret, at, minute, counted, client)
	), usable AS MATERIALIZED (
		SELECT n.place, n.minute, n.counted, k.organization_id, k.member_id, m.role, k.scopes, k.source, k.max_version_step, k.expires_at,
			o.plan, o.internal, o.per_minute, o.sequence,
			count(*) OVER (PARTITION BY k.organization_id, n.minute, n.counted) AS requests,
			row_number() OVER (PARTITION BY k.organization_id, n.minute, n.counted ORDER BY n.place) AS ordinal
		FROM asked n
		JOIN LATERAL (SELECT organization_id, member_id, secret_sha256, scopes, source, network, max_version_step, expires_at, revoked_at
			FROM api_keys WHERE shard = $1 AND key_id = n.key_id OFFSET 0) k
			ON k.secret_sha256 = n.secret AND k.revoked_at IS NULL AND k.expires_at > n.at
				AND (k.network IS NULL OR n.client <<= k.network::cidr)
		JOIN LATERAL (SELECT role, status FROM members
			WHERE shard = $1 AND organization_id = k.organization_id AND member_id = k.member_id OFFSET 0) m ON m.status = 'active'
		JOIN LATERAL (SELECT plan, internal, per_minute, sequence FROM organization_state
			WHERE shard = $1 AND organization_id = k.organization_id OFFSET 0) o ON true
	)`

const accessColumns = `u.place, u.organization_id, u.member_id, u.role, u.scopes, u.source, u.max_version_step, u.expires_at, u.plan, u.internal, u.per_minute, u.sequence`

const authenticate = usableKeys + `, metered AS (
		INSERT INTO meters (shard, subject, minute, used)
		SELECT $1, organization_id, minute, requests FROM usable WHERE counted AND ordinal = 1
		ORDER BY organization_id, minute
		ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + excluded.used
		RETURNING subject, minute, used
	), old AS (
		SELECT m.place FROM usable u
		JOIN metered n ON n.subject = u.organization_id AND n.minute = u.minute AND n.used = u.requests
		JOIN LATERAL (SELECT ctid AS place FROM meters
			WHERE shard = $1 AND subject = n.subject AND minute < n.minute - 1 OFFSET 0 FOR UPDATE SKIP LOCKED) m ON true
		WHERE u.counted AND u.ordinal = 1
	), cleared AS (
		DELETE FROM meters USING old WHERE meters.ctid = old.place
	)
	SELECT ` + accessColumns + `, coalesce(n.used - u.requests + u.ordinal, 0)
	FROM usable u
	LEFT JOIN metered n ON u.counted AND n.subject = u.organization_id AND n.minute = u.minute`

// Authenticate reads who stands behind a key and counts the request in the
// organization's UTC minute, in one round trip that concurrent requests of a
// shard share. Whatever is wrong with the key, the answer is one INVALID_KEY, and
// nothing is counted.
func (s *Store) Authenticate(ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time) (domain.Access, error) {
	return s.access(ctx, &credential{key: key, secret: secretSHA256, client: client, at: now, counted: true})
}

// Reauthenticate is Authenticate for a request that is already counted and has waited since.
func (s *Store) Reauthenticate(ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time) (domain.Access, error) {
	return s.access(ctx, &credential{key: key, secret: secretSHA256, client: client, at: now})
}

func (s *Store) access(ctx context.Context, c *credential) (domain.Access, error) {
	shard := c.key.Shard()
	if !s.known(shard) {
		return domain.Access{}, domain.KeyRefused()
	}
	if err := s.credentials.Ask(ctx, shard, c, s.authenticate); err != nil {
		return domain.Access{}, statement.Failed("authenticate", err)
	}
	switch {
	case c.err != nil:
		return domain.Access{}, c.err
	case !c.found:
		return domain.Access{}, domain.KeyRefused()
	}
	if _, ok := s.Plans[c.access.Plan]; !ok {
		return domain.Access{}, fmt.Errorf("authenticate: organization %s has the plan %q, which the table of plans lacks", c.access.Organization, c.access.Plan)
	}
	c.access.PerMinute = s.Plans.PerMinute(c.access.Plan, c.perMinute)
	return c.access, nil
}

// credential is one request to authenticate, and its answer.
type credential struct {
	key     domain.KeyID
	secret  [32]byte
	client  netip.Addr // for keys that have a network
	at      time.Time
	counted bool

	access    domain.Access
	perMinute *int32
	found     bool
	err       error
}

// authenticate answers a batch.
func (s *Store) authenticate(shard domain.Shard, batch []*credential) {
	n := len(batch)
	places, keys, secrets := make([]int32, n), make([][16]byte, n), make([][]byte, n)
	times, minutes, counted := make([]time.Time, n), make([]int64, n), make([]bool, n)
	clients := make([]*netip.Addr, n)
	for i, c := range batch {
		places[i], keys[i], secrets[i] = int32(i), c.key, c.secret[:]
		times[i], minutes[i], counted[i] = c.at, c.at.Unix()/60, c.counted
		if c.client.IsValid() {
			clients[i] = &c.client
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), statement.Timeout)
	defer cancel()
	scan := func(row pgx.CollectableRow) (struct{}, error) {
		var place int32
		var a domain.Access
		var own *int32
		err := row.Scan(&place, (*[16]byte)(&a.Organization), (*[16]byte)(&a.Member), &a.Role, &a.Scopes,
			&a.Limits.Source, &a.Limits.MaxVersionStep, &a.ExpiresAt, &a.Plan, &a.Internal, &own, &a.Sequence, &a.UsedMinute)
		if err != nil {
			return struct{}{}, err
		}
		c := batch[place]
		a.Key, a.ExpiresAt = c.key, a.ExpiresAt.UTC()
		c.access, c.perMinute, c.found = a, own, true
		return struct{}{}, nil
	}
	err := s.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		query, onCitus := authenticate, cluster.OnCitus(conn.Conn())
		if onCitus {
			query = findAccess
		}
		rows, err := conn.Query(ctx, query, shard, places, keys, secrets, times, minutes, counted, clients)
		if err == nil {
			_, err = pgx.CollectRows(rows, scan)
		}
		if err == nil && onCitus {
			err = meterBatch(ctx, conn, shard, batch)
		}
		return err
	})
	if err != nil {
		err = statement.Failed("authenticate", err)
	}
	for _, c := range batch {
		c.err = err
	}
}
