package transparency

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Stamp is a stored token of a time-stamping authority over a checkpoint.
type Stamp struct {
	TreeSize   int64
	Authority  string
	GenTime    time.Time // in the token
	Checkpoint string    // with the log's signature only; the token's imprint is the SHA-256 of these bytes
	Token      []byte    // a TimeStampToken in DER
}

const (
	stampColumns = `tree_size, authority, gen_time, checkpoint, token`
	// withinTree skips tokens over a larger tree than the published one, which must be of another history.
	withinTree = `tree_size <= (SELECT size FROM transparency_checkpoint WHERE id = 1)`
)

// Timestamps lists the tokens of checkpoints with more than after leaves, by tree size and authority. It returns limit
// tokens if there are enough, and all further tokens of the last size.
func (r *Reader) Timestamps(ctx context.Context, after int64, limit int) ([]Stamp, error) {
	const query = `SELECT ` + stampColumns +
		` FROM log_timestamps WHERE tree_size > $1 ORDER BY tree_size FETCH FIRST $2 ROWS WITH TIES`
	rows, _ := r.Pool.Query(ctx, query, after, limit) // rows carry its error
	stamps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stamp])
	if err != nil {
		return nil, say.Errorf("read tokens: %w", err)
	}
	slices.SortFunc(stamps, Stamp.compare)
	return stamps, nil
}

func (s Stamp) compare(other Stamp) int {
	return cmp.Or(cmp.Compare(s.TreeSize, other.TreeSize), cmp.Compare(s.Authority, other.Authority))
}

// Stamped returns, for each authority, its token of the earliest checkpoint that contains the event at a position of a
// shard. The caller passes the event's leaf (domain.Event.Leaf). The result is ordered by checkpoint, smallest first,
// each with a proof that it contains the leaf. A token under a log key that was already revoked is skipped, as
// verifiers do, because a later token may count. A token over a tree that is not the beginning of this one is skipped
// too. Proofs are checked before they are returned, but tokens are not. If there are more than evidence has room for,
// the earliest are returned. Concurrent calls share a round trip. The error may be ErrNotIntegrated.
func (r *Reader) Stamped(
	ctx context.Context, shard domain.Shard, position int64, leaf []byte,
) ([]evidence.Timestamp, error) {
	stamped, err := r.stamped(ctx, shard, position, leaf, false)
	if errors.Is(err, ErrChanged) {
		return r.stamped(ctx, shard, position, leaf, true) // once more, now that the outdated tree is forgotten
	}
	return stamped, err
}

// stamped skips tokens over another tree only on request, because it must compute the root of each tree for that.
func (r *Reader) stamped(
	ctx context.Context, shard domain.Shard, position int64, leaf []byte, skip bool,
) (stamped []evidence.Timestamp, err error) {
	located, err := r.locate(ctx, shard, position)
	if err != nil {
		return nil, err
	}
	q := &stampQuestion{index: located.index}
	if err := r.stamps.Ask(ctx, struct{}{}, q, r.lookForStamps); err != nil {
		return nil, say.Errorf("look for tokens: %w", err)
	}
	if q.err != nil {
		return nil, q.err
	}
	for len(q.stamps) > 0 && len(stamped) < evidence.MaxTimestamps {
		first := q.stamps[0]
		same := slices.IndexFunc(q.stamps, func(s Stamp) bool {
			return s.TreeSize != first.TreeSize || s.Checkpoint != first.Checkpoint
		})
		if same < 0 {
			same = len(q.stamps)
		}
		one, err := r.proveStamped(first, q, domain.LeafHash(leaf))
		if err != nil && skip && r.ofAnotherTree(ctx, first) {
			q.stamps = q.stamps[same:]
			continue
		}
		if err != nil {
			return nil, say.Errorf(
				"leaf %d is not the event at position %d of shard %d as it was stamped: %w", q.index, position, shard, err,
			)
		}
		for _, s := range q.stamps[:min(same, evidence.MaxTokens)] {
			one.Tokens = append(
				one.Tokens,
				evidence.StampToken{
					Authority: s.Authority, GenTime: evidence.FormatTime(s.GenTime),
					Token: base64.StdEncoding.EncodeToString(s.Token),
				},
			)
		}
		stamped, q.stamps = append(stamped, one), q.stamps[same:]
	}
	return stamped, nil
}

// proveStamped proves that a stamped checkpoint contains the leaf of a question. The error is ErrChanged if it does
// not.
func (r *Reader) proveStamped(s Stamp, q *stampQuestion, leaf tlog.Hash) (one evidence.Timestamp, err error) {
	root, err := rootOf(s)
	if err != nil {
		return one, err
	}
	proof, err := proveLeaf(q.index, s.TreeSize, q.tiles)
	if err == nil {
		err = tlog.CheckRecord(proof, s.TreeSize, root, q.index, leaf)
	}
	if err != nil {
		r.forget()
		return one, say.Errorf("%w: %w", ErrChanged, err)
	}
	return evidence.Timestamp{
		LeafIndex: q.index, TreeSize: s.TreeSize, Hashes: proofTexts(proof), Checkpoint: s.Checkpoint,
	}, nil
}

// ofAnotherTree reports whether a token is over a tree that is not the beginning of the present one.
func (r *Reader) ofAnotherTree(ctx context.Context, s Stamp) bool {
	root, err := tlog.TreeHash(s.TreeSize, storedHashes(ctx, r.Pool))
	stamped, damaged := rootOf(s)
	return err == nil && (damaged != nil || root != stamped)
}

// rootOf returns the root in the checkpoint of a token, which must have the token's size.
func rootOf(s Stamp) (tlog.Hash, error) {
	c, err := evidence.OpenCheckpoint(s.Checkpoint, nil)
	if errors.Is(err, evidence.ErrUnknownLogKey) { // no keys were passed
		err = nil
	}
	if err == nil && c.Size != s.TreeSize {
		err = say.Errorf("the token is for %d leaves, but its checkpoint has %d", s.TreeSize, c.Size)
	}
	return c.Root, err
}

func proveLeaf(index, size int64, tiles knownTiles) (tlog.RecordProof, error) {
	prover, err := newProver(size, tiles)
	if err != nil {
		return nil, err
	}
	return prover.prove(index)
}

// stampQuestion asks for the tokens of checkpoints that contain a leaf.
type stampQuestion struct {
	index int64

	stamps []Stamp // the earliest of each authority, sorted by compare
	tiles  knownTiles
	err    error
}

func (r *Reader) lookForStamps(_ struct{}, batch []*stampQuestion) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.Limit, lookTimeout))
	defer cancel()
	if err := r.findStamps(ctx, batch); err != nil {
		for _, q := range batch {
			q.err = err
		}
	}
}

// stampedBy selects the authorities that have tokens, with one index lookup each, and a final null.
const stampedBy = `WITH RECURSIVE stamped(name) AS (
		(SELECT authority FROM log_timestamps ORDER BY authority LIMIT 1)
		UNION ALL SELECT (SELECT authority FROM log_timestamps WHERE authority > s.name ORDER BY authority LIMIT 1) FROM stamped s WHERE s.name IS NOT NULL
	) `

func (r *Reader) findStamps(ctx context.Context, batch []*stampQuestion) error {
	const query = stampedBy + `SELECT n.place - 1, t.tree_size, t.authority, t.gen_time, t.checkpoint, t.token
		FROM unnest($1::bigint[]) WITH ORDINALITY AS n(leaf, place) CROSS JOIN stamped s
		JOIN LATERAL (SELECT ` + stampColumns + ` FROM log_timestamps
			WHERE authority = s.name AND tree_size > n.leaf AND ` + withinTree + `
			AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::timestamptz[]) AS v(mark, since) WHERE gen_time >= v.since AND strpos(checkpoint, v.mark) > 0)
			ORDER BY tree_size LIMIT 1) t ON true`
	indexes := make([]int64, len(batch))
	for i, q := range batch {
		indexes[i] = q.index
	}
	marks, since := r.revoked()
	rows, _ := r.Pool.Query(ctx, query, indexes, marks, since) // rows carry its error
	var place, largest int64
	var s Stamp
	wanted := map[tile]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&place, &s.TreeSize, &s.Authority, &s.GenTime, &s.Checkpoint, &s.Token},
		func() error {
			q := batch[place]
			s.Token = slices.Clone(s.Token)
			q.stamps = append(q.stamps, s)
			largest = max(largest, s.TreeSize)
			for _, at := range proofTiles(q.index, s.TreeSize) {
				wanted[at] = true
			}
			return nil
		}); err != nil {
		return say.Errorf("read tokens: %w", err)
	}
	// A tile of a larger tree begins with its hashes in a smaller one.
	tiles, err := r.read(ctx, largest, slices.Collect(maps.Keys(wanted)))
	if err != nil {
		return err
	}
	for _, q := range batch {
		slices.SortFunc(q.stamps, Stamp.compare)
		q.tiles = tiles
	}
	return nil
}

// revoked returns the revoked log keys, each as the beginning of its signature line, and the times since when.
func (r *Reader) revoked() (marks, since []string) {
	if r.Trusted == nil {
		return nil, nil
	}
	trusted := r.Trusted()
	for _, k := range trusted.LogKeys() {
		revocation, revoked := trusted.LogKeyRevocation(k)
		hash, err := hex.DecodeString(k.KeyHash)
		if revoked && err == nil {
			// The base64 of four bytes shares its last character with what follows them.
			marks = append(marks, "\n— "+k.Name+" "+base64.RawStdEncoding.EncodeToString(hash)[:5])
			since = append(since, revocation.Since)
		}
	}
	return marks, since
}

// StampState is the progress of an authority in stamping the log.
type StampState struct {
	Authority string
	TreeSize  int64     // of its newest token; 0 if it has none
	GenTime   time.Time // of that token; zero if it has none
	Unstamped time.Time // time of the first published event that its tokens do not cover; zero if they cover all
}

// Age returns the age of the newest token, -1 if it has none.
func (s StampState) Age(now time.Time) time.Duration {
	if s.TreeSize == 0 {
		return -1
	}
	return max(0, now.Sub(s.GenTime))
}

// Lag returns how long the first uncovered published event has waited for a token, 0 if all are covered.
func (s StampState) Lag(now time.Time) time.Duration {
	if s.Unstamped.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Unstamped))
}

// ReadStamps reads the state of the named authorities and of all others that have tokens, by name.
func ReadStamps(ctx context.Context, from rowsQuerier, names []string) (states []StampState, err error) {
	const query = stampedBy + `SELECT n.name, coalesce(t.tree_size, 0), t.gen_time, r.from_shard, r.first_position + coalesce(t.tree_size, 0) - r.first_leaf
		FROM (SELECT unnest($1::text[]) COLLATE "C" UNION SELECT name FROM stamped WHERE name IS NOT NULL) n(name)
		LEFT JOIN LATERAL (SELECT tree_size, gen_time FROM log_timestamps WHERE authority = n.name ORDER BY tree_size DESC LIMIT 1) t ON true
		LEFT JOIN transparency_checkpoint c ON c.id = 1
		LEFT JOIN LATERAL (SELECT from_shard, first_position, first_leaf FROM transparency_runs WHERE first_leaf <= coalesce(t.tree_size, 0) AND coalesce(t.tree_size, 0) < c.size
			ORDER BY first_leaf DESC LIMIT 1) r ON true
		ORDER BY n.name`
	type first struct {
		shard    int32
		position int64
	}
	unstamped := map[int]first{}
	rows, _ := from.Query(ctx, query, names) // rows carry its error
	var s StampState
	var at *time.Time
	var shard *int32
	var position *int64
	if _, err := pgx.ForEachRow(rows, []any{&s.Authority, &s.TreeSize, &at, &shard, &position}, func() error {
		if s.GenTime = (time.Time{}); at != nil {
			s.GenTime = at.UTC()
		}
		if shard != nil {
			unstamped[len(states)] = first{*shard, *position}
		}
		states = append(states, s)
		return nil
	}); err != nil {
		return nil, say.Errorf("read the newest tokens: %w", err)
	}
	for i, first := range unstamped {
		var decided time.Time
		if err := from.QueryRow(
			ctx, cluster.SQL(`SELECT occurred_at FROM {events} WHERE shard = $1 AND position = $2`), first.shard,
			first.position,
		).Scan(&decided); err != nil {
			return nil, say.Errorf("read the first event without a token: %w", err)
		}
		states[i].Unstamped = decided.UTC()
	}
	return states, nil
}

// rowsQuerier is a pool or a transaction.
type rowsQuerier interface {
	rowQuerier
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
