package transparency

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// CheckedStamps summarizes the tokens that CheckStamps has checked.
type CheckedStamps struct {
	Tokens   int64
	Unpinned []string // authorities without a pinned certificate, whose tokens were not checked
}

// stampPage is the number of tokens read at a time.
const stampPage = 1024

// CheckStamps checks every stored token. Its checkpoint must be signed by a pinned key of the log, which may be
// revoked, and must have the tree's root at that size. The token must cover that checkpoint under a pinned certificate.
// CheckStamps trusts the tree's tiles, which Check derives. It calls found with each faulty token and its fault. The
// returned error is a read error.
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
			root, fault, err := r.RootAt(ctx, s.TreeSize)
			if err != nil {
				return checked, err
			}
			if fault == nil {
				fault = s.Check(root, trusted)
			}
			if errors.Is(fault, ErrUnpinned) {
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

// RootAt returns the root that the stored tree had at a size, or the reason why it has none as fault. It trusts the
// tree's tiles.
func (r *Reader) RootAt(ctx context.Context, size int64) (root tlog.Hash, fault, err error) {
	if size < 1 || size >= 1<<62 { // tlog would loop forever
		return root, say.Errorf("no tree has %d leaves", size), nil
	}
	tiles, err := r.read(ctx, size, edgeOf(size))
	if err != nil {
		return root, nil, err
	}
	if root, fault = tlog.TreeHash(size, tiles); fault != nil {
		fault = say.Errorf("the tree does not have %d leaves: %w", size, fault)
	}
	return root, fault, nil
}

// ErrUnpinned means that a token was not checked, because the trusted keys do not name its authority.
var ErrUnpinned = say.New("no certificate is pinned under the name of its authority")

// Check checks a token. root is the tree's root at the token's size.
func (s Stamp) Check(root tlog.Hash, trusted *evidence.TrustedKeys) error {
	c, err := evidence.OpenCheckpoint(s.Checkpoint, trusted)
	switch {
	case errors.Is(err, evidence.ErrRevokedLogKey), errors.Is(err, evidence.ErrUnknownLogKey) &&
		len(trusted.LogKeys()) == 0:
	case err != nil:
		return err
	}
	if c.Size != s.TreeSize || c.Root != root {
		return say.Errorf("its checkpoint does not belong to the tree with %d leaves", s.TreeSize)
	}
	pinned, known := trusted.Authority(s.Authority)
	if !known {
		return ErrUnpinned
	}
	token, err := pinned.CheckToken(s.Token, sha256.Sum256([]byte(s.Checkpoint)))
	if err == nil && !token.GenTime.Equal(s.GenTime) {
		err = say.Errorf(
			"its time is %s, but stored as %s", evidence.FormatTime(token.GenTime), evidence.FormatTime(s.GenTime),
		)
	}
	return err
}
