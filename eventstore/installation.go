package eventstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
)

// Installation is the single row that makes a database a ledger. It is written at creation and included in backups.
type Installation struct {
	Issuer    string
	Secret    domain.LedgerSecret
	Shards    int
	Epoch     int64 // raised by every restore to a unique value
	CreatedAt time.Time
	Minimum   domain.Release // the lowest program version that may serve; 0: any
	Rules     []domain.Rule  // that are switched on
	FeedEpoch int64          // Epoch, or a later one after a rebuild of the feed
}

// Has reports whether the ledger has the shard. Use it for shards in ids that clients send.
func (in Installation) Has(shard domain.Shard) bool { return int(shard) < in.Shards }

// EachShard is [EachShard] over all shards.
func (in Installation) EachShard(ctx context.Context, db Database, do func(context.Context, domain.Shard) error) error {
	shards := make([]domain.Shard, in.Shards)
	for i := range shards {
		shards[i] = domain.Shard(i)
	}
	return EachShard(ctx, db, shards, do)
}

// ID identifies the ledger. It reveals nothing about the secret.
func (in Installation) ID() string {
	sum := sha256.Sum256(append([]byte("integrity ledger id\n"), in.Secret...))
	return hex.EncodeToString(sum[:8])
}

// Settings configure a new ledger. Issuer cannot change later. Raising the number of shards later adds empty shards,
// which new organizations fill.
type Settings struct {
	Issuer string
	Shards int
	Now    func() time.Time
}

// Ensure creates the ledger row and the shard heads that are missing, as the role of url, and returns the row. A new
// ledger follows all rules from its first event on. Several processes may call Ensure at once.
func Ensure(ctx context.Context, url string, s Settings) (Installation, error) {
	var none Installation
	if s.Shards < 1 || s.Shards > 65535 {
		return none, say.Errorf("a ledger has 1 to 65535 shards, not %d", s.Shards)
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return none, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	now := s.Now().UTC().Truncate(time.Microsecond)
	in, err := ReadInstallation(ctx, conn)
	if err == nil && in.Shards >= s.Shards {
		return in, followLedger(ctx, conn)
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return in, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO ledger (id, issuer, secret, shards, epoch, created_at, minimum_version, rules)
			VALUES (1, $1, $2, $3, 1, $4, $5, $6) ON CONFLICT (id) DO NOTHING`,
			s.Issuer, secret, s.Shards, now, ThisProgram().minimum(), ThisProgram().RuleNames()); err != nil {
			return say.Errorf("create ledger: %w", err)
		}
		if _, err := tx.Exec(ctx, `UPDATE ledger SET shards = $1 WHERE id = 1 AND shards < $1`, s.Shards); err != nil {
			return say.Errorf("raise shards: %w", err)
		}
		if in, err = ReadInstallation(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			cluster.SQL(`INSERT INTO {shard_heads} (shard, position, occurred_at, minimum_version, rules)
			SELECT shard, 0, $2, $3, $4 FROM generate_series(0, $1 - 1) AS shard ON CONFLICT (shard) DO NOTHING`),
			in.Shards, now, in.Minimum, in.Rules); err != nil {
			return say.Errorf("create shard heads: %w", err)
		}
		return nil
	})
	if err != nil {
		return in, err
	}
	return in, followLedger(ctx, conn)
}

// Epochs count time in steps of 1/epochStep minute, so that a later restore has a higher epoch. Within a millisecond
// they are random, so that two restores of one backup differ.
const (
	epochStep = 1 << 26
	maxEpoch  = 1<<53 - 1 // the largest integer that every JSON reader represents exactly
)

// epochAt returns the first epoch of a millisecond.
func epochAt(millisecond int64) int64 {
	return millisecond/60_000*epochStep + millisecond%60_000*epochStep/60_000
}

// nextEpoch returns an epoch higher than last, even if the clock is behind. In that case only randomness distinguishes
// two restores of one backup, so the range is larger. within selects the value in the range.
func nextEpoch(last int64, now time.Time, within uint32) (int64, error) {
	at := now.UnixMilli()
	begin, end := epochAt(at), epochAt(at+1)
	if begin <= last {
		begin, end = last, last+epochStep
	}
	next := begin + 1 + int64(within)%(end-begin-1)
	if next > maxEpoch {
		return 0, say.Errorf(
			"the epoch after %d must be at most %d: the clock says %s", last, int64(maxEpoch), now.UTC().Format(time.RFC3339),
		)
	}
	return next, nil
}

func freshEpoch(last int64, now time.Time) (int64, error) {
	var random [4]byte
	rand.Read(random[:])
	return nextEpoch(last, now, binary.BigEndian.Uint32(random[:]))
}

// RaiseFeedEpoch tells only the readers of the feed that a rebuild has changed its rows: rows that they have read are
// gone, or rows that they have not read lie before their cursor. It reports whether a rebuild has changed rows.
func RaiseFeedEpoch(ctx context.Context, url string, now time.Time) (raised bool, err error) {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT feed_mending FROM ledger WHERE id = 1 FOR UPDATE`).Scan(&raised)
		if err != nil || !raised {
			return err
		}
		in, err := ReadInstallation(ctx, tx)
		if err != nil {
			return err
		}
		next, err := freshEpoch(in.FeedEpoch, now)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE ledger SET feed_epoch = $1, feed_mending = false WHERE id = 1`, next)
		return err
	})
	if err != nil {
		return false, say.Errorf("raise the epoch of the feed: %w", err)
	}
	return raised, nil
}

// RaiseEpoch tells every consumer of a feed that the ledger at url was restored from a backup. Call it once per
// restore, before the ledger serves again.
func RaiseEpoch(ctx context.Context, url string, now time.Time) (Installation, error) {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return Installation{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var in Installation
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if in, err = ReadInstallation(ctx, tx); err != nil {
			return err
		}
		last := in.Epoch
		if in.Epoch, err = freshEpoch(in.FeedEpoch, now); err != nil {
			return err
		}
		in.FeedEpoch = in.Epoch
		tag, err := tx.Exec(ctx, `UPDATE ledger SET epoch = $1 WHERE id = 1 AND epoch = $2`, in.Epoch, last)
		if err != nil {
			return say.Errorf("raise the epoch: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return say.New("raise the epoch: another restore has raised it meanwhile")
		}
		return nil
	})
	return in, err
}

// ReadInstallation reads the row of a ledger.
func ReadInstallation(ctx context.Context, from history.Querier) (Installation, error) {
	const query = `SELECT issuer, secret, shards, epoch, created_at, minimum_version, rules, greatest(epoch, feed_epoch)
		FROM ledger WHERE id = 1`
	rows, _ := from.Query(ctx, query) // rows carry its error
	in, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[Installation])
	if err != nil {
		return in, say.Errorf("read ledger row: %w", err)
	}
	return in, nil
}

// EmptiestShard returns the shard with the fewest organizations, for a new one.
func EmptiestShard(ctx context.Context, db Database, shards int) (domain.Shard, error) {
	query := cluster.SQL(`SELECT n.shard FROM generate_series(0, $1 - 1) AS n(shard)
		LEFT JOIN (SELECT shard, count(*) AS organizations FROM {organization_state} GROUP BY shard) o ON o.shard = n.shard
		ORDER BY coalesce(o.organizations, 0), n.shard LIMIT 1`)
	var shard int
	if err := db.QueryRow(ctx, query, shards).Scan(&shard); err != nil {
		return 0, say.Errorf("find the emptiest shard: %w", err)
	}
	return domain.Shard(shard), nil
}
