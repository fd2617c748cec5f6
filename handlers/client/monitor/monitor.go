// Package monitor watches the transparency log of a service that it does not trust. Every checkpoint must be signed by
// a pinned key of the log and must extend every stored checkpoint, so that published history cannot be rewritten
// unnoticed. The package stores nothing: the caller stores the last checkpoint.
//
// An answer that cannot be fetched, or that is no checkpoint, is an ordinary error and says nothing about the log. An
// [AlarmError] shows misconduct of the log and never results from an outage.
//
// A monitor sees only the log that the service shows to it. To find out whether other clients see the same log, compare
// with other monitors, witnesses or stored evidence, whose checkpoints this package also accepts.
package monitor

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
)

// Kind is the kind of misconduct.
type Kind string

// The kinds of an AlarmError.
const (
	// Rewritten: the log no longer contains what it signed before.
	Rewritten Kind = "rewritten"
	// Shrunk: the log is smaller than it was, as after a restore to an earlier state.
	Shrunk Kind = "shrunk"
	// OtherLog: the checkpoint belongs to another pinned log.
	OtherLog Kind = "other-log"
	// UnknownKey: no pinned key of the log signed the checkpoint.
	UnknownKey Kind = "unknown-key"
	// BadSignature: the checkpoint names a pinned key, but the signature is not the key's.
	BadSignature Kind = "bad-signature"
	// RevokedKey: every pinned key that signed the checkpoint was revoked.
	RevokedKey Kind = "revoked-key"
	// BadTimestamp: the log serves a token in the name of a pinned authority that is not valid for its checkpoint.
	BadTimestamp Kind = "bad-timestamp"
	// BadTiles: the served hashes do not lead to the signed root.
	BadTiles Kind = "bad-tiles"
)

// Kept is a checkpoint of the log that was stored outside it.
type Kept struct {
	Name string // the place of storage, for people
	Note string // the whole signed note
	// Token is a timestamp authority's token over the note, which shows that the note existed before the token's time.
	Token []byte
}

// AlarmError needs the attention of a person. Known and Seen are whole signed notes.
type AlarmError struct {
	Kind      Kind   `json:"kind"`
	Detail    string `json:"detail"`              // in English
	KnownFrom string `json:"knownFrom,omitempty"` // Kept.Name
	Known     string `json:"known,omitempty"`     // the kept checkpoint that Seen contradicts
	Token     []byte `json:"token,omitempty"`     // Kept.Token, DER in base64
	Seen      string `json:"seen"`
	// RootAtKnownSize and Proof are set for Rewritten if Seen is larger than Known: the root of Seen's tree at Known's
	// size, which differs from Known's root, and the consistency proof from it to Seen (RFC 9162, section 2.1.4), all in
	// base64.
	RootAtKnownSize string   `json:"rootAtKnownSize,omitempty"`
	Proof           []string `json:"proof,omitempty"`

	detail error // Detail, for other languages
}

// alarm makes an alarm without the checkpoints.
func alarm(kind Kind, detail error) *AlarmError {
	return &AlarmError{Kind: kind, Detail: detail.Error(), detail: detail}
}

func (a *AlarmError) Error() string { return string(a.Kind) + ": " + a.Detail }

// Say implements say.Phrase.
func (a *AlarmError) Say(c say.Catalogue) (string, bool) {
	if a.detail == nil { // read from a file
		return a.Error(), c.IsEnglish()
	}
	text, ok := c.Error(a.detail)
	return string(a.Kind) + ": " + text, ok
}

// Seen is a checkpoint that passed all checks.
type Seen struct {
	evidence.Checkpoint
	Note string
	// Witnessed lists the pinned witnesses with a valid cosignature.
	Witnessed []string
}

// Monitor checks one log. Wait must return when ctx ends.
type Monitor struct {
	Client  *client.Client
	Trusted *evidence.TrustedKeys
	Now     func() time.Time
	Wait    func(context.Context, time.Duration) error
	// Witnesses is the number of pinned witnesses that should have cosigned. A checkpoint with fewer cosignatures is
	// fetched again, since they arrive a moment after it. It passes even so; Seen.Witnessed has the cosignatures found.
	Witnesses int
}

// maxAhead is how far ahead of Now the time of a cosignature or token may be.
const maxAhead = 300 * time.Second

const (
	staleAttempts = 3 // to fetch a checkpoint that is smaller than a kept one or lacks cosignatures
	stalePause    = 2 * time.Second
)

// Check fetches the newest checkpoint and requires that it extends every kept one. The error is an *AlarmError, or says
// why nothing could be checked. A smaller checkpoint is fetched again before it counts, because a proxy may serve an
// older one for a moment. A request that exceeds the rate limit waits for up to a minute.
func (m Monitor) Check(ctx context.Context, kept []Kept) (Seen, error) {
	known := make([]evidence.Checkpoint, len(kept))
	var largest int64
	for i, k := range kept {
		c, err := evidence.OpenCheckpoint(k.Note, m.Trusted)
		if err != nil && !errors.Is(err, evidence.ErrRevokedLogKey) {
			// The log must also extend a checkpoint signed by a key that was revoked later.
			return Seen{}, say.Errorf("%s: %w", k.Name, err)
		}
		known[i] = c
		largest = max(largest, c.Size)
	}
	var seen Seen
	for attempt := 1; ; attempt++ {
		var err error
		if seen, err = m.fetch(ctx); err != nil {
			return Seen{}, err
		}
		if seen.Size >= largest && len(seen.Witnessed) >= m.Witnesses || attempt == staleAttempts {
			break
		}
		if err := m.Wait(ctx, stalePause); err != nil {
			return Seen{}, err
		}
	}
	hashes := m.hashes(ctx, seen)
	if len(kept) == 0 {
		if _, err := hashes.root(seen.Size); err != nil {
			return Seen{}, err
		}
	}
	for i, c := range known {
		alarm, err := compare(c, seen, hashes)
		if err != nil {
			return Seen{}, err
		}
		if alarm != nil {
			alarm.KnownFrom, alarm.Known, alarm.Token, alarm.Seen = kept[i].Name, kept[i].Note, kept[i].Token, seen.Note
			return Seen{}, alarm
		}
	}
	return seen, nil
}

func (m Monitor) fetch(ctx context.Context) (Seen, error) {
	note, err := patiently(ctx, m.Wait, func() (string, error) { return m.Client.LogCheckpoint(ctx) })
	if err != nil {
		return Seen{}, err
	}
	wrong := func(kind Kind, detail error) (Seen, error) {
		a := alarm(kind, detail)
		a.Seen = note
		return Seen{}, a
	}
	c, err := evidence.OpenCheckpoint(note, m.Trusted)
	switch {
	case errors.Is(err, evidence.ErrMalformedCheckpoint):
		return Seen{}, say.Errorf("%s answered no checkpoint: %w", m.Client.BaseURL(), err)
	case errors.Is(err, evidence.ErrUnknownLogKey):
		return wrong(UnknownKey, say.Errorf("no pinned key of the log signed the checkpoint of %q", c.Origin))
	case errors.Is(err, evidence.ErrRevokedLogKey):
		return wrong(RevokedKey, err)
	case err != nil:
		return wrong(BadSignature, err)
	}
	return Seen{c, note, m.Trusted.Cosigned(note, m.Now().Add(maxAhead))}, nil
}

// maxWait is the longest wait of a request: limits by address last a minute.
const maxWait = time.Minute

// patiently repeats a request once if the service refused it for the rate limit, after the wait that the service asks
// for. Otherwise a check that needs more requests than a minute allows would never finish.
func patiently[T any](
	ctx context.Context, wait func(context.Context, time.Duration) error, ask func() (T, error),
) (T, error) {
	answer, err := ask()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || refused.RetryAfter <= 0 ||
		refused.RetryAfter > maxWait {
		return answer, err
	}
	if err := wait(ctx, refused.RetryAfter); err != nil {
		return answer, err
	}
	return ask()
}

// compare returns an alarm if seen does not extend a known checkpoint. The error says why this could not be determined.
func compare(known evidence.Checkpoint, seen Seen, hashes treeReader) (*AlarmError, error) {
	switch {
	case known.Origin != seen.Origin:
		return alarm(OtherLog, say.Errorf("the checkpoint belongs to %s, not to %s", seen.Origin, known.Origin)), nil
	case seen.Size < known.Size:
		return alarm(Shrunk, say.Errorf(
			"the log had %d entries and now has %d: it was restored to an earlier state, or replaced", known.Size, seen.Size,
		)), nil
	case seen.Size == known.Size && seen.Root != known.Root:
		return alarm(Rewritten, say.Errorf("two signed checkpoints of %d entries have different roots", known.Size)), nil
	case seen.Size == known.Size:
		return nil, nil
	}
	root, err := hashes.root(known.Size)
	if err != nil || root == known.Root {
		return nil, err
	}
	wrong := alarm(Rewritten, say.Errorf("the first %d entries differ from those of the kept checkpoint", known.Size))
	wrong.RootAtKnownSize = root.String()
	if known.Size > 0 {
		proof, err := tlog.ProveTree(seen.Size, known.Size, hashes)
		if err != nil {
			return nil, hashes.unproven(err)
		}
		for _, hash := range proof {
			wrong.Proof = append(wrong.Proof, hash.String())
		}
	}
	return wrong, nil
}

// treeReader reads hashes of seen's tree and verifies each against seen's root.
type treeReader struct {
	tlog.HashReader
	seen  Seen
	tiles *tiles
}

func (m Monitor) hashes(ctx context.Context, seen Seen) treeReader {
	t := &tiles{held: make(map[tlog.Tile][]byte), fetch: func(tile tlog.Tile) ([]byte, error) {
		return patiently(ctx, m.Wait, func() ([]byte, error) { return m.Client.LogTile(ctx, tile) })
	}}
	return treeReader{tlog.TileHashReader(tlog.Tree{N: seen.Size, Hash: seen.Root}, t), seen, t}
}

// root returns the root of the first size entries.
func (r treeReader) root(size int64) (tlog.Hash, error) {
	if size > 0 {
		root, err := tlog.TreeHash(size, r)
		return root, r.unproven(err)
	}
	empty := tlog.Hash(sha256.Sum256(nil)) // RFC 6962, section 2.1; no tile contains it
	if r.seen.Size == 0 && r.seen.Root != empty {
		return tlog.Hash{}, r.unproven(say.Errorf("the signed root is not the root of an empty log"))
	}
	return empty, nil
}

// unproven distinguishes an outage from hashes that do not match.
func (r treeReader) unproven(err error) error {
	if err == nil || r.tiles.failed != nil {
		return r.tiles.failed
	}
	a := alarm(BadTiles, say.Errorf("the served hashes do not lead to the signed root: %w", err))
	a.Seen = r.seen.Note
	return a
}

// tiles implements tlog.TileReader. It caches verified tiles.
type tiles struct {
	fetch  func(tlog.Tile) ([]byte, error)
	held   map[tlog.Tile][]byte
	failed error
}

// Height is the height in tlog-tiles.
func (t *tiles) Height() int { return client.LogTileHeight }

// ReadTiles fetches the tiles that are not in the cache.
func (t *tiles) ReadTiles(list []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(list))
	for i, tile := range list {
		if data[i] = t.held[tile]; data[i] != nil {
			continue
		}
		if data[i], t.failed = t.fetch(tile); t.failed != nil {
			return nil, t.failed
		}
	}
	return data, nil
}

// SaveTiles caches tiles that the library has verified.
func (t *tiles) SaveTiles(list []tlog.Tile, data [][]byte) {
	for i, tile := range list {
		t.held[tile] = data[i]
	}
}
