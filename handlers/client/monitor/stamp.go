package monitor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// Stamped is a page of valid tokens of pinned authorities over checkpoints of the log (RFC 3161).
type Stamped struct {
	// Kept has one stamped checkpoint of each size, for Check: the log must contain all of them.
	Kept   []Kept
	Newest map[string]time.Time // GenTime of the newest token, by authority
	// Passed is the number of tokens that were skipped: their authority is not pinned, their certificates do not lead to a
	// pinned one, or no pinned key of the log, not even a revoked one, signed their checkpoint.
	Passed int
	Next   int64 // the after of the next page; the same after if this page is empty
	More   bool
}

// Stamped fetches tokens over checkpoints of trees with more than after leaves and verifies the tokens of pinned
// authorities. The error is an *AlarmError if one is not valid. A service that has no tokens answers an empty page.
func (m Monitor) Stamped(ctx context.Context, after int64) (Stamped, error) {
	s := Stamped{Newest: map[string]time.Time{}, Next: after}
	page, err := patiently(ctx, m.Wait, func() (wire.LogTimestamps, error) { return m.Client.LogTimestamps(ctx, after) })
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
		return s, nil // a release without tokens
	}
	if err != nil {
		return s, err
	}
	for _, t := range page.Timestamps {
		if t.TreeSize < s.Next || t.TreeSize <= after {
			return s, say.Errorf("%s answers tokens out of order", m.Client.BaseURL())
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

// token verifies the token of an entry. The error is an *AlarmError if the service is wrong, otherwise it says why the
// entry is skipped.
func (m Monitor) token(t wire.LogTimestamp) (evidence.Token, error) {
	authority, pinned := m.Trusted.Authority(t.Authority)
	if !pinned {
		return evidence.Token{}, say.Errorf("%s is not pinned", t.Authority)
	}
	wrong := func(detail error) (evidence.Token, error) {
		a := alarm(BadTimestamp, say.Errorf("%s: %w", t.Authority, detail))
		a.Seen, a.Token = t.Checkpoint, t.Token
		return evidence.Token{}, a
	}
	checkpoint, err := evidence.OpenCheckpoint(t.Checkpoint, m.Trusted)
	switch {
	case errors.Is(err, evidence.ErrUnknownLogKey):
		return evidence.Token{}, err
	case err != nil && !errors.Is(err, evidence.ErrRevokedLogKey): // the log still publishes the checkpoint as its own
		return wrong(err)
	case checkpoint.Size != t.TreeSize:
		return wrong(say.Errorf("treeSize is %d, the checkpoint's size %d", t.TreeSize, checkpoint.Size))
	}
	token, err := authority.CheckToken(t.Token, sha256.Sum256([]byte(t.Checkpoint)))
	switch {
	case errors.Is(err, evidence.ErrUntrustedToken):
		return evidence.Token{}, err
	case err != nil:
		return wrong(err)
	case evidence.FormatTime(token.GenTime) != t.GenTime:
		return wrong(say.Errorf("genTime differs from the token's"))
	case token.GenTime.After(m.Now().Add(maxAhead)):
		return wrong(say.Errorf("the token's time is in the future"))
	}
	return token, nil
}
