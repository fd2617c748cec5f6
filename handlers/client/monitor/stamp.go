package monitor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// Stamped is a page of the tokens of pinned authorities over checkpoints of the log (RFC 3161), all of which hold.
type Stamped struct {
	// Kept are the stamped checkpoints, one of each size, for Check: the log must contain all of them.
	Kept   []Kept
	Newest map[string]time.Time // GenTime of the newest token, by authority
	// Passed is how many tokens were passed over: of authorities that are not pinned, or whose certificates do not lead to
	// a pinned one, and over checkpoints that no pinned key of the log signed, a revoked one included.
	Passed int
	Next   int64 // to ask for more after; after itself where the page is empty
	More   bool
}

// Stamped fetches tokens over checkpoints of trees with more than after leaves and checks those of pinned authorities.
// The error is an *AlarmError where one does not hold. A service that has no tokens answers an empty page.
func (m Monitor) Stamped(ctx context.Context, after int64) (Stamped, error) {
	s := Stamped{Newest: map[string]time.Time{}, Next: after}
	page, err := patiently(ctx, m.Wait, func() (wire.LogTimestamps, error) { return m.Client.LogTimestamps(ctx, after) })
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
		return s, nil // of a release before tokens
	}
	if err != nil {
		return s, err
	}
	for _, t := range page.Timestamps {
		if t.TreeSize < s.Next || t.TreeSize <= after {
			return s, fmt.Errorf("%s answers tokens out of order", m.Client.BaseURL())
		}
		s.Next = t.TreeSize
		token, err := m.token(t)
		var alarm *AlarmError
		switch {
		case errors.As(err, &alarm):
			return s, err
		case err != nil:
			s.Passed++
			continue
		}
		if token.GenTime.After(s.Newest[t.Authority]) {
			s.Newest[t.Authority] = token.GenTime
		}
		if len(s.Kept) == 0 || s.Kept[len(s.Kept)-1].Note != t.Checkpoint {
			name := fmt.Sprintf(
				"the checkpoint that existed before %s, says %s", evidence.FormatTime(token.Latest()), t.Authority,
			)
			s.Kept = append(s.Kept, Kept{name, t.Checkpoint, t.Token})
		}
	}
	s.More = page.HasMore && len(page.Timestamps) > 0
	return s, nil
}

// token is that of an entry. The error is an *AlarmError where the service errs, else why the entry is passed over.
func (m Monitor) token(t wire.LogTimestamp) (evidence.Token, error) {
	authority, pinned := m.Trusted.Authority(t.Authority)
	if !pinned {
		return evidence.Token{}, fmt.Errorf("%s is not pinned", t.Authority)
	}
	alarm := func(detail string) (evidence.Token, error) {
		return evidence.Token{}, &AlarmError{
			Kind: BadTimestamp, Detail: t.Authority + ": " + detail, Seen: t.Checkpoint, Token: t.Token,
		}
	}
	checkpoint, err := evidence.OpenCheckpoint(t.Checkpoint, m.Trusted)
	switch {
	case errors.Is(err, evidence.ErrUnknownLogKey):
		return evidence.Token{}, err
	case err != nil && !errors.Is(err, evidence.ErrRevokedLogKey): // the log publishes it as its own still
		return alarm(err.Error())
	case checkpoint.Size != t.TreeSize:
		return alarm(fmt.Sprintf("treeSize is %d, the checkpoint's size %d", t.TreeSize, checkpoint.Size))
	}
	token, err := authority.CheckToken(t.Token, sha256.Sum256([]byte(t.Checkpoint)))
	switch {
	case errors.Is(err, evidence.ErrUntrustedToken):
		return evidence.Token{}, err
	case err != nil:
		return alarm(err.Error())
	case evidence.FormatTime(token.GenTime) != t.GenTime:
		return alarm("genTime is another than the token's")
	case token.GenTime.After(m.Now().Add(mostAhead)):
		return alarm("the token is of the future")
	}
	return token, nil
}
