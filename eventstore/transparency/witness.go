package transparency

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/outbound"
)

const (
	maxAhead          = 300 * time.Second // the limit of evidence verifiers
	maxWitnessBackoff = time.Minute
	maxWitnessAnswer  = 16 << 10
)

// Witness is a server that cosigns checkpoints (C2SP tlog-witness). A cosignature states that the witness has seen no
// other history of this log. Its time is the witness's own statement, not a trusted timestamp.
type Witness struct {
	key    evidence.WitnessKey
	prefix string // of its addresses
	client *outbound.Client

	failures int
	next     time.Time // do not ask before this time
}

// NewWitness returns a witness with a verifier key of type 0x04 (C2SP signed-note) and a submission prefix: https, or
// http to this machine.
func NewWitness(verifierKey, prefix string) (*Witness, error) {
	key, err := evidence.ParseWitnessKey(verifierKey)
	if err != nil {
		return nil, err
	}
	w := &Witness{key: key}
	if err := checkPeer(w.Name(), prefix); err != nil {
		return nil, err
	}
	w.prefix, w.client = strings.TrimRight(prefix, "/"), newPeerClient(maxWitnessAnswer)
	return w, nil
}

// ParseWitnesses reads witnesses, one per line or separated by commas: a verifier key, a space, a submission prefix.
// Lines that begin with # are comments.
func ParseWitnesses(text string) (witnesses []*Witness, err error) {
	err = readPeers(text, "a verifier key", func(key, prefix string) (string, error) {
		w, err := NewWitness(key, prefix)
		if err != nil {
			return "", err
		}
		witnesses = append(witnesses, w)
		return w.Name(), nil
	})
	return witnesses, err
}

// Name returns the name in its verifier key. Name, KeyHash and Verify implement note.Verifier for its cosignatures.
func (w *Witness) Name() string { return w.key.Name }

// KeyHash returns the key hash in its verifier key.
func (w *Witness) KeyHash() uint32 { return keyHash(w.key.KeyHash) }

// Verify checks a cosignature of the text of a checkpoint.
func (w *Witness) Verify(text, signature []byte) bool {
	_, ok := w.key.Verify(text, signature)
	return ok
}

// asOf is a Witness that rejects cosignatures dated further ahead than verifiers accept.
type asOf struct {
	*Witness
	now time.Time
}

func (w asOf) Verify(text, signature []byte) bool {
	at, ok := w.key.Verify(text, signature)
	return ok && at.Sub(w.now) <= maxAhead
}

// ask asks all witnesses concurrently to cosign the last checkpoint, for at most Config.Witness. A witness that fails
// is not asked again for a while. The process that signed the checkpoint asks first; others step in after stepIn.
func (k *Keeper) ask(ctx context.Context) {
	if len(k.Witnesses) == 0 || k.last.size == 0 || k.Signer() == nil ||
		k.signed.Load() != k.last.size && k.Now().Sub(k.last.signedAt) < stepIn {
		return
	}
	asking, cancel := context.WithTimeout(ctx, k.Witness)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range k.Witnesses {
		if k.Now().Before(w.next) {
			continue
		}
		all.Go(func() {
			err := k.cosign(asking, w)
			if err == nil {
				w.failures, w.next = 0, time.Time{}
				return
			}
			err = errors.Join(err, k.storeRefusal(ctx, w, k.last.size, err))
			pause := min(maxWitnessBackoff, time.Second<<min(w.failures, 6))
			w.failures++
			w.next = k.Now().Add(pause)
			k.Log.Warn(
				"cosigning by a witness failed", "witness", w.key.Name, "size", k.last.size, "error", cluster.Loggable(err),
				"pause", pause,
			)
		})
	}
	all.Wait()
}

const (
	readCosigned = `SELECT size, signature FROM transparency_cosignatures WHERE witness = $1`
	// storeCosigned replaces a cosignature of a smaller tree, or the line $4, by a former key of the witness.
	storeCosigned = `WITH accepted AS (DELETE FROM transparency_refusals WHERE witness = $5)
		INSERT INTO transparency_cosignatures (witness, size, signature) VALUES ($1, $2, $3)
		ON CONFLICT (witness) DO UPDATE SET size = excluded.size, signature = excluded.signature
		WHERE transparency_cosignatures.size < excluded.size OR transparency_cosignatures.signature = $4`
)

// cosign advances a witness from the size that it has seen to the last checkpoint.
func (k *Keeper) cosign(ctx context.Context, w *Witness) error {
	old, former, err := k.lastCosigned(ctx, w)
	if err != nil {
		return err
	}
	if old >= k.last.size {
		return nil // cosigned, or another process has had a later one cosigned
	}
	line, err := k.advance(ctx, w, old)
	if err != nil || line == "" {
		return asRefused(old, err)
	}
	if _, err := k.Pool.Exec(ctx, storeCosigned, w.key.Name, k.last.size, line, former, w.key.VerifierKey); err != nil {
		return say.Errorf("store a cosignature: %w", err)
	}
	return nil
}

// lastCosigned returns the size of the tree that a witness has cosigned, 0 if none is known. If the last cosignature
// under its name is by another key, as before a rotation, it returns that line instead.
func (k *Keeper) lastCosigned(ctx context.Context, w *Witness) (size int64, former string, err error) {
	err = k.Pool.QueryRow(ctx, readCosigned, w.key.Name).Scan(&size, &former)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, "", nil
	case err != nil:
		return 0, "", say.Errorf("read the last cosignature: %w", err)
	case w.made(former):
		return size, "", nil
	}
	return 0, former, nil
}

// made reports whether a line of a signed note names the key of the witness.
func (w *Witness) made(line string) bool {
	_, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "— "+w.key.Name+" ")
	raw, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(raw) > 4 && binary.BigEndian.Uint32(raw) == w.KeyHash()
}

// advance asks a witness for a cosignature line. The line is empty if another process has published a later checkpoint.
func (k *Keeper) advance(ctx context.Context, w *Witness, old int64) (string, error) {
	line, seen, err := k.submit(ctx, w, old)
	if errors.Is(err, errSeenOther) && seen != old {
		if seen > k.last.size {
			if last, err := readCheckpoint(ctx, k.Pool); err != nil || seen <= last.size {
				return "", err // another process has published it since, and asks itself
			}
			return "", refused{OtherHistory, say.Errorf(
				"it has seen a larger tree of this log, with %d leaves: published history was lost, or "+
					"the witness is wrong",
				seen,
			)}
		}
		line, _, err = k.submit(ctx, w, seen)
	}
	return line, err
}

// errSeenOther means that the witness has last seen a tree of another size than the request names.
var errSeenOther = say.New("the witness remembers another tree of this log")

// submit sends the last checkpoint with the proof that it extends a tree of size old. It returns the verified
// cosignature line. With errSeenOther it returns the size that the witness has seen.
func (k *Keeper) submit(ctx context.Context, w *Witness, old int64) (line string, seen int64, err error) {
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", old)
	if old > 0 && old < k.last.size {
		proof, err := tlog.ProveTree(k.last.size, old, storedHashes(ctx, k.Pool))
		if err != nil {
			return "", 0, say.Errorf("prove that the tree extends the tree of %d leaves: %w", old, err)
		}
		for _, hash := range proof {
			body.WriteString(hash.String() + "\n")
		}
	}
	body.WriteString("\n" + k.last.note)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.prefix+"/add-checkpoint", &body)
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	request.Header.Set("User-Agent", "integrity-ledger")
	answer, err := w.client.Do(request)
	if err != nil {
		return "", 0, refused{Unreachable, err}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return "", 0, refused{Unreachable, err}
	case answer.StatusCode == http.StatusConflict &&
		strings.HasPrefix(answer.Header.Get("Content-Type"), "text/x.tlog.size"):
		seen, err := strconv.ParseInt(strings.TrimSuffix(string(text), "\n"), 10, 64)
		if err != nil || seen < 0 {
			return "", 0, refused{NotAccepted, say.New("it answers 409 without the size it has seen")}
		}
		return "", seen, errSeenOther
	case answer.StatusCode != http.StatusOK:
		return "", 0, refused{reasonOfStatus(answer.StatusCode), say.Errorf("it answers %d", answer.StatusCode)}
	}
	signed, _, _ := strings.Cut(k.last.note, "\n\n")
	opened, err := note.Open([]byte(signed+"\n\n"+string(text)), note.VerifierList(asOf{w, k.Now()}))
	if err != nil {
		return "", 0, refused{NoCosignature, say.Errorf("its answer contains no cosignature of this checkpoint: %w", err)}
	}
	return "— " + opened.Sigs[0].Name + " " + opened.Sigs[0].Base64 + "\n", 0, nil
}
