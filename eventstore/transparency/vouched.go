package transparency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/say"
)

// maxVouching bounds the cosignatures, and the tokens, that Vouched reads.
const maxVouching = 64

// Vouched is what witnesses and time-stamping authorities have signed about the log. Neither signatures nor tokens are
// checked here: the caller knows the keys.
type Vouched struct {
	Checkpoint string // the newest, with the cosignatures of its size; empty if none was signed
	TreeSize   int64
	SignedAt   time.Time // by the clock of the process that signed it
	Cosigned   []Cosigned
	Refused    map[string]Refusal // by verifier key
	Stamps     []Stamp            // the newest token of each authority over a beginning of this tree, by name
}

// Cosigned is the newest cosignature of a witness.
type Cosigned struct {
	Witness  string
	TreeSize int64
	// Note is the checkpoint of that size with the cosignature, and without the log's own signature. Its root is computed
	// from the present tree, so the cosignature verifies only if the witness has seen the beginning of this tree.
	Note string
}

const (
	readSigned      = `SELECT size, note, signed_at FROM transparency_checkpoint WHERE id = 1`
	readCosignedAll = `SELECT witness, size, signature FROM transparency_cosignatures ORDER BY witness LIMIT $1`
	readRefusedAll  = `SELECT witness, reason, size, refused_at FROM transparency_refusals
		ORDER BY refused_at DESC LIMIT $1`
	readNewestStamps = stampedBy + `SELECT t.tree_size, t.authority, t.gen_time, t.checkpoint, t.token FROM stamped s
		JOIN LATERAL (SELECT ` + stampColumns + ` FROM log_timestamps WHERE authority = s.name AND ` + withinTree + `
			ORDER BY tree_size DESC LIMIT 1) t ON true
		ORDER BY s.name LIMIT $1`
)

// Vouched reads the newest checkpoint, cosignatures and tokens, in one round trip and one for each cosigned size.
func (r *Reader) Vouched(ctx context.Context) (v Vouched, err error) {
	v.Cosigned, v.Refused, v.Stamps = []Cosigned{}, map[string]Refusal{}, []Stamp{}
	var at *time.Time
	b := &pgx.Batch{}
	b.Queue(readSigned).QueryRow(func(row pgx.Row) error { return row.Scan(&v.TreeSize, &v.Checkpoint, &at) })
	b.Queue(readCosignedAll, maxVouching).Query(func(rows pgx.Rows) (err error) {
		v.Cosigned, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Cosigned])
		return err
	})
	b.Queue(readRefusedAll, maxVouching).Query(func(rows pgx.Rows) error {
		var witness string
		var r Refusal
		_, err := pgx.ForEachRow(rows, []any{&witness, &r.Reason, &r.TreeSize, &r.At}, func() error {
			v.Refused[witness] = r
			return nil
		})
		return err
	})
	b.Queue(readNewestStamps, maxVouching).Query(func(rows pgx.Rows) (err error) {
		v.Stamps, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Stamp])
		return err
	})
	if err := r.Pool.SendBatch(ctx, b).Close(); errors.Is(err, pgx.ErrNoRows) {
		return Vouched{}, nil
	} else if err != nil {
		return Vouched{}, say.Errorf("read what vouches for the log: %w", err)
	}
	if at != nil {
		v.SignedAt = at.UTC()
	}
	roots := map[int64]tlog.Hash{}
	for _, c := range v.Cosigned {
		roots[c.TreeSize] = tlog.Hash{}
	}
	for _, s := range v.Stamps {
		roots[s.TreeSize] = tlog.Hash{}
	}
	for size := range roots {
		if size > v.TreeSize {
			continue
		}
		if roots[size], err = tlog.TreeHash(size, storedHashes(ctx, r.Pool)); err != nil {
			return Vouched{}, say.Errorf("compute the root of the tree of %d leaves: %w", size, err)
		}
	}
	v.addCosignatures(roots)
	v.Stamps = slices.DeleteFunc(v.Stamps, func(s Stamp) bool {
		root, err := rootOf(s)
		return err != nil || root != roots[s.TreeSize]
	})
	return v, nil
}

// addCosignatures makes notes of the cosignature lines.
func (v *Vouched) addCosignatures(roots map[int64]tlog.Hash) {
	origin, _, _ := strings.Cut(v.Checkpoint, "\n")
	for i, c := range v.Cosigned {
		v.Cosigned[i].Note = ""
		if c.TreeSize <= v.TreeSize {
			v.Cosigned[i].Note = fmt.Sprintf("%s\n%d\n%s\n\n%s", origin, c.TreeSize, roots[c.TreeSize], c.Note)
		}
		if c.TreeSize == v.TreeSize {
			v.Checkpoint += c.Note
		}
	}
}
