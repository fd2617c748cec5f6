package transparency

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
)

// CheckedStamps is what CheckStamps has looked at.
type CheckedStamps struct {
	Tokens   int64
	Unpinned []string // authorities whose tokens were not checked, because no certificate is pinned under their names
}

// stampPage is how many tokens are read at a time.
const stampPage = 1024

// CheckStamps checks every stored token: its checkpoint is one that a pinned key of the log signed, a revoked one
// included, and has the root that the tree has at that size; the token is over that checkpoint and under a pinned
// certificate. It believes the tree's tiles, which Check derives. found gets each token that is wrong, with the fault;
// an error is one of reading.
func CheckStamps(
	ctx context.Context, pool *pgxpool.Pool, trusted *evidence.TrustedKeys, found func(Stamp, error),
) (checked CheckedStamps, err error) {
	r := &Reader{Pool: pool}
	for after := int64(-1); ; {
		page, err := r.Timestamps(ctx, after, stampPage)
		if err != nil || len(page) == 0 {
			slices.Sort(checked.Unpinned)
			return checked, err
		}
		for _, s := range page {
			checked.Tokens++
			root, fault, err := r.rootAt(ctx, s.TreeSize)
			if err != nil {
				return checked, err
			}
			if fault == nil {
				fault = s.check(root, trusted)
			}
			if errors.Is(fault, errUnpinned) {
				if !slices.Contains(checked.Unpinned, s.Authority) {
					checked.Unpinned = append(checked.Unpinned, s.Authority)
				}
			} else if fault != nil {
				found(s, fault)
			}
		}
		after = page[len(page)-1].TreeSize
	}
}

// rootAt is the root of the stored tree as it was with so many leaves; fault says why it has none.
func (r *Reader) rootAt(ctx context.Context, size int64) (root tlog.Hash, fault, err error) {
	if size < 1 || size >= 1<<62 { // the arithmetic of tlog would never end
		return root, fmt.Errorf("no tree has %d leaves", size), nil
	}
	tiles, err := r.read(ctx, size, edgeOf(size))
	if err != nil {
		return root, nil, err
	}
	if root, fault = tlog.TreeHash(size, tiles); fault != nil {
		fault = fmt.Errorf("the tree is not of %d leaves: %w", size, fault)
	}
	return root, fault, nil
}

var errUnpinned = errors.New("no certificate is pinned under the name of its authority")

// check judges a token of the tree that has this root at its size.
func (s Stamp) check(root tlog.Hash, trusted *evidence.TrustedKeys) error {
	c, err := evidence.OpenCheckpoint(s.Checkpoint, trusted)
	switch {
	case errors.Is(err, evidence.ErrRevokedLogKey), errors.Is(err, evidence.ErrUnknownLogKey) &&
		len(trusted.LogKeys()) == 0:
	case err != nil:
		return err
	}
	if c.Size != s.TreeSize || c.Root != root {
		return fmt.Errorf("its checkpoint is not that of the tree with %d leaves", s.TreeSize)
	}
	pinned, known := trusted.Authority(s.Authority)
	if !known {
		return errUnpinned
	}
	token, err := pinned.CheckToken(s.Token, sha256.Sum256([]byte(s.Checkpoint)))
	if err == nil && !token.GenTime.Equal(s.GenTime) {
		err = fmt.Errorf(
			"its time is %s, and stored as %s", evidence.FormatTime(token.GenTime), evidence.FormatTime(s.GenTime),
		)
	}
	return err
}
