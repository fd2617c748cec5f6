package transparency

import (
	"context"
	"errors"
	"net/http"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// RefusalReason says why a witness has not cosigned a checkpoint.
type RefusalReason string

// The reasons.
const (
	Unreachable   RefusalReason = "unreachable"    // no answer, or one that says that the witness is out of order
	NotAccepted   RefusalReason = "refused"        // it refuses the request, such as for a log that it does not know
	OtherHistory  RefusalReason = "other-history"  // it says that the checkpoint does not continue what it cosigned
	NoCosignature RefusalReason = "no-cosignature" // its answer has no valid cosignature
)

// Refusal is the last failure of a witness. All processes see the failures that one of them stores.
type Refusal struct {
	Reason   RefusalReason
	TreeSize int64 // of the checkpoint
	At       time.Time
}

// refused is an error with its reason. Other errors are not the witness's.
type refused struct {
	reason RefusalReason
	error
}

func (e refused) Unwrap() error { return e.error }

// asRefused returns err with the reason of a witness that refused a checkpoint, or err itself if the witness did not.
// If no earlier cosignature by the witness is known (old is 0), its word that it knows another history is left out.
func asRefused(old int64, err error) error {
	known, told := errors.AsType[refused](err)
	if errors.Is(err, errSeenOther) { // of the size that it was said to have seen
		known, told = refused{OtherHistory, err}, true
	}
	switch {
	case !told:
		return err
	case known.reason == OtherHistory && old == 0:
		known.reason = NotAccepted
	}
	return known
}

// reasonOfStatus reads a status of C2SP tlog-witness.
func reasonOfStatus(status int) RefusalReason {
	switch {
	case status == http.StatusUnprocessableEntity:
		return OtherHistory
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		return Unreachable
	}
	return NotAccepted
}

const storeRefused = `INSERT INTO transparency_refusals (witness, size, reason, refused_at) VALUES ($1, $2, $3, $4)
	ON CONFLICT (witness) DO UPDATE SET size = excluded.size, reason = excluded.reason, refused_at = excluded.refused_at`

// storeRefusal stores that a witness did not cosign a checkpoint of some size. It does nothing if the error is not the
// witness's.
func (k *Keeper) storeRefusal(ctx context.Context, w *Witness, size int64, failure error) error {
	known, told := errors.AsType[refused](failure)
	if !told {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := k.Pool.Exec(ctx, storeRefused, w.key.VerifierKey, size, string(known.reason), k.Now()); err != nil {
		return say.Errorf("store the failure of a witness: %w", err)
	}
	return nil
}

// Key returns its key.
func (w *Witness) Key() evidence.WitnessKey { return w.key }
