package query

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// One statement authenticates many credentials of a kind, API keys or links of OAuth subjects. The actor must be an
// active member.
//
// Meters: an organization's requests of a minute are added at once, and each request gets its own ordinal from its
// place in the batch. The rows are locked in key order, so that two processes with batches of the same organizations
// cannot deadlock. The first request of a minute deletes the organization's earlier minutes, skipping rows that another
// session has locked. The previous minute stays, for a process whose clock is slightly behind. Rows are locked by key
// and deleted by place, because a join by key would allow a scan of the shard. A row that changes while it is being
// locked is left to the next minute.
var (
	authenticateKeys  = cluster.SQL(usable + usableKey + actingMember + counted)
	authenticateLinks = cluster.SQL(usable + usableLink + actingMember + counted)
)

const (
	usable = `WITH asked AS MATERIALIZED (
		SELECT n.place, n.id, n.secret, n.at, n.minute, n.requests, n.client
		FROM unnest($2::uuid[], $3::bytea[], $4::timestamptz[], $5::bigint[], $6::int[], $7::inet[])
			WITH ORDINALITY AS n(id, secret, at, minute, requests, client, place)
	), usable AS MATERIALIZED (
		SELECT n.place, n.minute, n.requests, k.organization_id, k.member_id, m.role, k.scopes, k.source, k.max_version_step, k.expires_at,
			o.plan, o.internal, o.per_minute, o.sequence,
			sum(n.requests) OVER (PARTITION BY k.organization_id, n.minute) AS of_all,
			sum(n.requests) OVER (PARTITION BY k.organization_id, n.minute ORDER BY n.place) AS so_far
		FROM asked n`

	// A key may act if its secret is correct, it is neither expired nor revoked, and the client is inside one of its
	// networks, if it has any (an unknown address is inside none). The secret is 256 random bits and only its hash is
	// compared, so the time of the comparison reveals nothing.
	usableKey = `
		JOIN LATERAL (SELECT organization_id, member_id, secret_sha256, scopes, source, networks, max_version_step, expires_at, revoked_at
			FROM {api_keys} WHERE shard = $1 AND key_id = n.id OFFSET 0) k
			ON k.secret_sha256 = n.secret AND k.revoked_at IS NULL AND k.expires_at > n.at
				AND (k.networks IS NULL OR n.client <<= ANY (k.networks::inet[]))`

	// A link may act for the subject that redeemed it until its consent is withdrawn.
	usableLink = `
		JOIN LATERAL (SELECT organization_id, member_id, subject, consented AS scopes, NULL::text AS source, NULL::int AS max_version_step,
				NULL::timestamptz AS expires_at, withdrawn_at
			FROM {oauth_links} WHERE shard = $1 AND link_id = n.id OFFSET 0) k
			ON k.subject = n.secret AND k.withdrawn_at IS NULL`

	actingMember = `
		JOIN LATERAL (SELECT role, status FROM {members}
			WHERE shard = $1 AND organization_id = k.organization_id AND member_id = k.member_id OFFSET 0) m ON m.status = 'active'
		JOIN LATERAL (SELECT plan, internal, per_minute, sequence FROM {organization_state}
			WHERE shard = $1 AND organization_id = k.organization_id OFFSET 0) o ON true
	)`

	accessColumns = `u.place, u.organization_id, u.member_id, u.role, u.scopes, u.source, u.max_version_step, u.expires_at, u.plan, u.internal, u.per_minute, u.sequence`

	counted = `, metered AS (
		INSERT INTO {meters} AS meters (shard, subject, minute, used)
		SELECT $1, organization_id, minute, of_all FROM usable WHERE requests > 0 AND so_far = requests
		ORDER BY organization_id, minute
		ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + excluded.used
		RETURNING subject, minute, used
	), old AS (
		SELECT m.place FROM usable u
		JOIN metered n ON n.subject = u.organization_id AND n.minute = u.minute AND n.used = u.of_all
		JOIN LATERAL (SELECT ctid AS place FROM {meters} AS meters
			WHERE shard = $1 AND subject = n.subject AND minute < n.minute - 1 OFFSET 0 FOR UPDATE SKIP LOCKED) m ON true
		WHERE u.requests > 0 AND u.so_far = u.requests
	), cleared AS (
		DELETE FROM {meters} AS meters USING old WHERE meters.ctid = old.place
	)
	SELECT ` + accessColumns + `, coalesce(n.used - u.of_all + u.so_far - u.requests, 0)
	FROM usable u
	LEFT JOIN metered n ON u.requests > 0 AND n.subject = u.organization_id AND n.minute = u.minute`
)

// Authenticate finds the identity behind a key and counts the request in the organization's UTC minute, in one round
// trip that concurrent requests of a shard share. Whatever is wrong with the key, the error is the same INVALID_KEY,
// and nothing is counted.
func (s IdentityReader) Authenticate(
	ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time,
) (domain.Access, error) {
	return s.access(
		ctx,
		&credential{id: key, secret: secretSHA256, client: client, at: now, counted: true, access: domain.Access{Key: key}},
	)
}

var whyKeyRefused = cluster.SQL(`SELECT k.secret_sha256 <> $3, k.revoked_at IS NOT NULL, k.expires_at <= $4,
		k.networks IS NOT NULL AND NOT coalesce($5::inet <<= ANY (k.networks::inet[]), false),
		m.status IS DISTINCT FROM 'active'
	FROM {api_keys} k
	LEFT JOIN LATERAL (SELECT status FROM {members}
		WHERE shard = $1 AND organization_id = k.organization_id AND member_id = k.member_id OFFSET 0) m ON true
	WHERE k.shard = $1 AND k.key_id = $2`)

// WhyRefused reads a key that Authenticate has refused, and describes in a few words why. It is for operators and must
// not be shown to the caller.
func (s IdentityReader) WhyRefused(
	ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time,
) string {
	if !s.Installation.Has(key.Shard()) {
		return "shard unknown"
	}
	var from *netip.Addr
	if client.IsValid() {
		from = &client
	}
	reasons := [...]string{"secret wrong", "revoked", "expired", "network", "member not active"}
	why, found, err := statement.First(ctx, s.Pool, "ask why a key is refused",
		func(row pgx.CollectableRow) (string, error) {
			var holds [len(reasons)]bool
			err := row.Scan(&holds[0], &holds[1], &holds[2], &holds[3], &holds[4])
			if first := slices.Index(holds[:], true); first >= 0 {
				return reasons[first], err
			}
			return "nothing wrong at a second look", err
		}, whyKeyRefused, key.Shard(), key, secretSHA256[:], now, from)
	switch {
	case err != nil:
		return "not known: the database did not answer"
	case !found:
		return "id unknown"
	}
	return why
}

// Reauthenticate is Authenticate for a request that was already counted and has waited since.
func (s IdentityReader) Reauthenticate(
	ctx context.Context, key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time,
) (domain.Access, error) {
	return s.access(
		ctx, &credential{id: key, secret: secretSHA256, client: client, at: now, access: domain.Access{Key: key}},
	)
}

// AuthenticateSubject finds the identity behind an OAuth subject and counts the request in the organization's UTC
// minute. It reads the current link, consent and membership. Whatever is wrong with them, the error is the same
// IDENTITY_NOT_LINKED, and nothing is counted. The scopes are the consented ones that the role still allows.
func (s IdentityReader) AuthenticateSubject(
	ctx context.Context, subject domain.OAuthSubject, now time.Time,
) (domain.Access, error) {
	link, err := s.claimed(ctx, subject)
	if err != nil {
		return domain.Access{}, err
	}
	if link.IsZero() {
		return domain.Access{}, domain.ErrLinkRefused
	}
	a, err := s.access(
		ctx, &credential{id: link, secret: subject, at: now, counted: true, access: domain.Access{Link: link}},
	)
	a.Scopes = slices.DeleteFunc(a.Scopes, func(scope domain.Scope) bool { return !a.Role.Allows(scope) })
	return a, err
}

// access authenticates a credential in a batch of its shard and kind.
func (s IdentityReader) access(ctx context.Context, c *credential) (domain.Access, error) {
	shard, batcher, sql := c.access.Key.Shard(), &s.keys, authenticateKeys
	if link := c.access.Link; !link.IsZero() {
		shard, batcher, sql = link.Shard(), &s.links, authenticateLinks
	}
	if !s.Installation.Has(shard) {
		return domain.Access{}, c.refused()
	}
	if err := batcher.Ask(ctx, shard, c, func(shard domain.Shard, batch []*credential) {
		both := &pgx.Batch{}
		queueCredentials(both, sql, shard, batch)
		err := statement.Together(context.Background(), s.Pool, "authenticate", both)
		for _, c := range batch {
			c.err = err
		}
	}); err != nil {
		return domain.Access{}, statement.Failed("authenticate", err)
	}
	return s.accessOf(c)
}

// accessOf returns what a batch has answered about a credential.
func (s *reader) accessOf(c *credential) (domain.Access, error) {
	switch {
	case c.err != nil:
		return domain.Access{}, c.err
	case !c.found:
		return domain.Access{}, c.refused()
	}
	if _, ok := s.Plans[c.access.Plan]; !ok {
		return domain.Access{}, say.Errorf(
			"authenticate: organization %s has the plan %q, which the table of plans lacks", c.access.Organization,
			c.access.Plan,
		)
	}
	c.access.PerMinute = s.Plans.PerMinute(c.access.Plan, c.perMinute)
	return c.access, nil
}

// credential is a request to authenticate, with its result.
type credential struct {
	id      [16]byte   // of a key or a link
	secret  [32]byte   // the hash of a key's secret, or a link's subject
	client  netip.Addr // for keys restricted to networks
	at      time.Time
	counted bool

	access    domain.Access // Key or Link is set from the beginning
	perMinute *int32
	found     bool
	err       error
}

func (c *credential) refused() *domain.Error {
	if c.access.Link.IsZero() {
		return domain.ErrKeyRefused
	}
	return domain.ErrLinkRefused
}

// sameCredential is equal for the requests of a batch that one row of the statement can judge.
type sameCredential struct {
	id      [16]byte
	secret  [32]byte
	client  netip.Addr
	minute  int64
	counted bool
}

func (c *credential) same() sameCredential {
	return sameCredential{c.id, c.secret, c.client, c.at.Unix() / 60, c.counted}
}

// queueCredentials adds the statement that authenticates credentials to statements. Requests with the same credential,
// such as those of one busy origin system, are one row.
func queueCredentials(to *pgx.Batch, sql string, shard domain.Shard, batch []*credential) {
	places := map[sameCredential]int{}
	var rows [][]*credential
	for _, c := range batch {
		place, known := places[c.same()]
		if !known {
			place = len(rows)
			places[c.same()], rows = place, append(rows, nil)
		}
		rows[place] = append(rows[place], c)
	}
	of := func(row []*credential) *credential { return row[0] }
	to.Queue(
		sql, shard,
		statement.Column(rows, func(row []*credential) [16]byte { return of(row).id }),
		statement.Column(rows, func(row []*credential) []byte { return of(row).secret[:] }),
		// A key that expires between two requests of a batch is refused to both: it has expired when the batch is judged.
		statement.Column(rows, func(row []*credential) time.Time {
			return slices.MaxFunc(row, func(a, b *credential) int { return a.at.Compare(b.at) }).at
		}),
		statement.Column(rows, func(row []*credential) int64 { return of(row).at.Unix() / 60 }),
		statement.Column(rows, func(row []*credential) int {
			if !of(row).counted {
				return 0
			}
			return len(row)
		}),
		statement.Column(rows, func(row []*credential) *netip.Addr {
			if !of(row).client.IsValid() {
				return nil
			}
			return &of(row).client
		}),
	).Query(func(found pgx.Rows) error {
		var place int
		var a domain.Access
		var own *int32
		_, err := pgx.ForEachRow(found, []any{
			&place, &a.Organization, &a.Member, &a.Role, &a.Scopes, &a.Limits.Source, &a.Limits.MaxVersionStep,
			(*zeronull.Timestamptz)(&a.ExpiresAt), &a.Plan, &a.Internal, &own, &a.Sequence, &a.UsedMinute,
		}, func() error {
			for _, c := range rows[place-1] {
				if c.counted {
					a.UsedMinute++
				}
				a.Key, a.Link = c.access.Key, c.access.Link
				c.access, c.perMinute, c.found = a, own, true
				c.access.Scopes = slices.Clone(a.Scopes) // callers narrow their own
			}
			return nil
		})
		return err
	})
}

// Judgement asks, together with a question, whether a remembered caller may still act, and counts the request in the
// organization's UTC minute. It comes after the question: it is then never older than the answer, and locks the count
// only until the commit.
type Judgement struct {
	credential

	left   bool // the caller has given up, and the batch may still be writing the answer
	shared *reader
}

// Asker is a reader that can judge a caller in the round trip of a question. The types convert to each other.
type Asker interface{ RecordReader | AllowanceReader }

// Judging returns a reader that judges a caller in the round trip of its first question. Use it for one Record, Lookup,
// Evidence or EvidenceAsOf, or as an AllowanceReader for one Usage.
func (s RecordReader) Judging(
	key domain.KeyID, secretSHA256 [32]byte, client netip.Addr, now time.Time,
) (RecordReader, *Judgement) {
	s.judging = &Judgement{shared: s.reader, credential: credential{
		id: key, secret: secretSHA256, client: client, at: now, counted: true, access: domain.Access{Key: key},
	}}
	return s, s.judging
}

// sendJudged sends statements together with the judgements that are not nil.
func sendJudged(
	ctx context.Context, to eventstore.Database, what string, b *pgx.Batch, shard domain.Shard, all []*Judgement,
) error {
	var batch []*credential
	for _, j := range all {
		if j != nil {
			batch = append(batch, &j.credential)
		}
	}
	if len(batch) > 0 {
		queueCredentials(b, authenticateKeys, shard, batch)
	}
	err := statement.Together(ctx, to, what, b)
	for _, c := range batch {
		c.err = err
	}
	return err
}

// giveUp records that nobody waits for the answer.
func (j *Judgement) giveUp() {
	if j != nil {
		j.left = true
	}
}

// Access is what Authenticate returns. given is false if the caller of the question has given up. The request may be
// counted then.
func (j *Judgement) Access() (access domain.Access, given bool, err error) {
	if j.left {
		return domain.Access{}, false, nil
	}
	access, err = j.shared.accessOf(&j.credential)
	return access, true, err
}

var countMinute = cluster.SQL(`INSERT INTO {meters} AS meters (shard, subject, minute, used) VALUES ($1, $2, $3, $4)
	ON CONFLICT (shard, subject, minute) DO UPDATE SET used = meters.used + $4
	RETURNING used`)

// CountMinute counts n requests of a subject (such as an organization, or a key on one path) in the UTC minute of now,
// and returns the new count. The first request of a minute deletes all minutes before the previous one.
func (s *reader) CountMinute(
	ctx context.Context, shard domain.Shard, subject [16]byte, n int, now time.Time,
) (int, error) {
	minute := now.Unix() / 60
	used, _, err := statement.First(ctx, s.Pool, "count a request", pgx.RowTo[int], countMinute, shard, subject, minute, n)
	if err == nil && used == n {
		_ = statement.Exec(
			ctx, s.Pool, "clear earlier minutes away", projections.ClearMinutes, shard, [][16]byte{subject}, minute-1,
		)
	}
	return used, err
}

// KeyUses collects the last uses of keys, to the minute, until Flush writes them, so a request costs a map entry and no
// statement. A killed process loses the uses since the last flush, but access never depends on them. It is safe for
// concurrent use. Its zero value is empty.
type KeyUses struct {
	noted notes[domain.KeyID, int64] // UTC minutes
}

// Note records a use.
func (u *KeyUses) Note(key domain.KeyID, at time.Time) { u.noted.add(key, at.Unix()/60, latest) }

func latest(a, b int64) int64 { return max(a, b) }

// Rows are written in the order of keys, so that two processes cannot deadlock.
var writeKeyUses = cluster.SQL(`INSERT INTO {api_key_uses} AS api_key_uses (shard, key_id, last_used_at)
	SELECT s.shard, n.* FROM {shard_heads} s, unnest($2::uuid[], $3::timestamptz[]) AS n(key_id, last_used_at) WHERE s.shard = $1
	ORDER BY n.key_id
	ON CONFLICT (shard, key_id) DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE api_key_uses.last_used_at < excluded.last_used_at`)

// Flush writes the uses noted since the last flush, with one statement per shard. Uses that could not be written stay
// noted.
func (u *KeyUses) Flush(ctx context.Context, s *Store) error {
	return u.noted.flush(ctx, s, domain.KeyID.Shard, latest,
		func(ctx context.Context, shard domain.Shard, keys []domain.KeyID, minutes []int64) error {
			at := statement.Column(minutes, func(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() })
			_, err := statement.Try(ctx, s.Pool, "write when keys were used", writeKeyUses, shard, keys, at)
			return err
		})
}
