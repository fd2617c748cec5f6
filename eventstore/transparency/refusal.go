package transparency

import (
	"errors"
	"net/http"
	"time"

	"integrityledger/domain/evidence"
)

// RefusalReason says why a witness has not cosigned a checkpoint.
type RefusalReason string

// The reasons.
const (
	Unreachable   RefusalReason = "unreachable"    // no answer, or one that says that the witness is out of order
	NotAccepted   RefusalReason = "refused"        // it refuses the request, such as for a log that it does not know
	OtherHistory  RefusalReason = "other-history"  // the checkpoint does not continue what it cosigned
	NoCosignature RefusalReason = "no-cosignature" // its answer has no valid cosignature
)

// Refusal is the last failure of a witness, as far as this process knows.
type Refusal struct {
	Reason   RefusalReason
	TreeSize int64 // of the checkpoint
	At       time.Time
}

// refused is an error with its reason.
type refused struct {
	reason RefusalReason
	error
}

func (e refused) Unwrap() error { return e.error }

func reasonOf(err error) RefusalReason {
	if known, ok := errors.AsType[refused](err); ok {
		return known.reason
	}
	if errors.Is(err, errSeenOther) { // of the size that it was said to have seen
		return OtherHistory
	}
	return Unreachable
}

// reasonOfStatus reads a status of C2SP tlog-witness.
func reasonOfStatus(status int) RefusalReason {
	switch {
	case status == http.StatusUnprocessableEntity || status == http.StatusConflict:
		return OtherHistory
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		return Unreachable
	}
	return NotAccepted
}

func (w *Witness) refuse(reason RefusalReason, size int64, now time.Time) {
	w.refusal.Store(&Refusal{reason, size, now})
}

// Key returns its key.
func (w *Witness) Key() evidence.WitnessKey { return w.key }

// Refusal returns its last failure in this process, nil if it has not failed since its last cosignature.
func (w *Witness) Refusal() *Refusal { return w.refusal.Load() }
