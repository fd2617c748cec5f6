package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers/edge"
)

// WitnessConfig configures the handler of a witness.
type WitnessConfig struct {
	Witness *witness.Witness
	Logs    func() witness.Logs // returns the current logs, which may be reloaded at any time
	Now     func() time.Time
	Log     *slog.Logger
	// TrustedProxies are the networks of proxies whose X-Forwarded-For entries are believed.
	TrustedProxies []netip.Prefix
	// PerMinute is the limit of submissions per client address, and of larger trees and split views per log.
	PerMinute int
	// Observe is called with the outcome of each submission; it must not block. log is empty until the log's signature has
	// been verified.
	Observe func(log string, outcome WitnessOutcome, size int64)
}

// WitnessOutcome is the outcome of a submission to a witness.
type WitnessOutcome string

// Outcomes of submissions. The first three may come from any client, the others only from a log.
const (
	WitnessMalformed WitnessOutcome = "malformed"
	WitnessUntrusted WitnessOutcome = "untrusted" // an unknown log, or not signed by the log
	WitnessTooMany   WitnessOutcome = "too-many"
	WitnessCosigned  WitnessOutcome = "cosigned"
	WitnessStale     WitnessOutcome = "stale"
	WitnessBadProof  WitnessOutcome = "bad-proof"
	WitnessSplitView WitnessOutcome = "split-view" // the log has signed two histories
	WitnessFailed    WitnessOutcome = "failed"
)

// WitnessOutcomes lists all outcomes.
var WitnessOutcomes = []WitnessOutcome{
	WitnessMalformed, WitnessUntrusted, WitnessTooMany, WitnessCosigned, WitnessStale, WitnessBadProof, WitnessSplitView,
	WitnessFailed,
}

// cosignTimeout is the longest time for a submission; logs wait for about ten seconds.
const cosignTimeout = 8 * time.Second

type witnessServer struct {
	WitnessConfig
	addresses *edge.AddressLimit

	mu     sync.Mutex
	minute time.Time
	signed map[string]int // larger trees and split views of each log in that minute

	asking  sync.Mutex
	asked   time.Time
	unready error
}

// NewWitness makes the handler of a witness: POST /add-checkpoint (C2SP tlog-witness), GET /healthz and GET /readyz.
func NewWitness(c WitnessConfig) http.Handler {
	s := &witnessServer{WitnessConfig: c, addresses: &edge.AddressLimit{Max: c.PerMinute}, signed: map[string]int{}}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /add-checkpoint", s.addCheckpoint)
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.health(w, nil) })
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { s.health(w, s.ready(r.Context())) })
	return routes
}

// tooManyError refuses a submission and says how long to wait.
type tooManyError time.Duration

func (e tooManyError) Error() string { return "too many submissions in this minute" }

func (s *witnessServer) addCheckpoint(w http.ResponseWriter, r *http.Request) {
	var submitted witness.Submission
	line, err := s.cosign(w, r, &submitted)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	outcome, status, text := WitnessCosigned, http.StatusOK, line
	if err != nil {
		outcome, status = judgedSubmission(err)
		text = err.Error() + "\n"
	}
	stale, isStale := errors.AsType[*witness.StaleError](err)
	wait, isTooMany := errors.AsType[tooManyError](err)
	switch {
	case isStale:
		h.Set("Content-Type", "text/x.tlog.size")
		text = strconv.FormatInt(stale.Size, 10) + "\n"
	case isTooMany:
		h.Set("Retry-After", strconv.FormatInt(int64((time.Duration(wait)+time.Second-1)/time.Second), 10))
	case outcome == WitnessFailed:
		s.Log.Warn("checkpoint not cosigned", "log", submitted.Origin, "error", cluster.Loggable(err))
		h.Set("Retry-After", "1")
		if !errors.Is(err, witness.ErrRestored) {
			text = "the witness cannot answer at the moment; send the same request again later\n"
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) //nolint:gosec // plain text, not for browsers; the caller may have gone away
	s.Observe(submitted.Origin, outcome, submitted.Size)
}

// judgedSubmission returns the outcome of an error, and its status according to C2SP tlog-witness.
func judgedSubmission(err error) (WitnessOutcome, int) {
	_, isStale := errors.AsType[*witness.StaleError](err)
	_, tooMany := errors.AsType[tooManyError](err)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	outcome, status := WitnessFailed, http.StatusServiceUnavailable
	switch {
	case tooMany:
		outcome, status = WitnessTooMany, http.StatusTooManyRequests
	case tooLarge:
		outcome, status = WitnessMalformed, http.StatusRequestEntityTooLarge
	case errors.Is(err, witness.ErrMalformed), errors.Is(err, witness.ErrOldSize):
		outcome, status = WitnessMalformed, http.StatusBadRequest
	case errors.Is(err, witness.ErrUnknownLog):
		outcome, status = WitnessUntrusted, http.StatusNotFound
	case errors.Is(err, witness.ErrUnsigned):
		outcome, status = WitnessUntrusted, http.StatusForbidden
	case isStale:
		outcome, status = WitnessStale, http.StatusConflict
	case errors.Is(err, witness.ErrOtherRoot):
		outcome, status = WitnessBadProof, http.StatusConflict
	case errors.Is(err, witness.ErrProof):
		outcome, status = WitnessBadProof, http.StatusUnprocessableEntity
	}
	if witness.SplitView(err) {
		outcome = WitnessSplitView
	}
	return outcome, status
}

// cosign reads a submission and returns the signature line. The client address is counted before the body is read. A
// log is counted only for submissions that need its signing key: a larger tree, or two histories. Other clients can
// repeat its public checkpoints without using up its limit.
func (s *witnessServer) cosign(w http.ResponseWriter, r *http.Request, submitted *witness.Submission) (string, error) {
	now := s.Now()
	if limit := s.addresses.Count(edge.ClientAddress(r, s.TrustedProxies), now); limit.Used > limit.Max {
		return "", tooManyError(limit.Reset)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, witness.MaxBodyBytes))
	if err != nil {
		return "", fmt.Errorf("%w: %w", witness.ErrMalformed, err)
	}
	opened, err := s.Logs().Open(body)
	if err != nil {
		return "", err
	}
	*submitted = opened
	if err := s.limitLog(opened.Origin, now, 0); err != nil {
		return "", err
	}
	// If the caller goes away, cosigning continues, so no database connection breaks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), cosignTimeout)
	defer cancel()
	line, err := s.Witness.Cosign(ctx, opened)
	if err == nil && opened.Grows() || witness.SplitView(err) {
		_ = s.limitLog(opened.Origin, now, 1) // only the next submission is refused
	}
	return line, err
}

// limitLog refuses submissions of a log beyond its limit, and otherwise adds n to its count.
func (s *witnessServer) limitLog(origin string, now time.Time, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if minute := now.UTC().Truncate(time.Minute); !minute.Equal(s.minute) {
		s.minute = minute
		clear(s.signed)
	}
	used := s.signed[origin]
	if s.signed[origin] += n; used >= s.PerMinute {
		return tooManyError(s.minute.Add(time.Minute).Sub(now))
	}
	return nil
}

// ready asks the database at most once a second, however many requests ask.
func (s *witnessServer) ready(ctx context.Context) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	if now := s.Now(); now.Sub(s.asked).Abs() >= time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		s.unready, s.asked = s.Witness.Ready(ctx), now
	}
	return s.unready
}

func (s *witnessServer) health(w http.ResponseWriter, unready error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if unready != nil {
		s.Log.Warn("not ready", "error", cluster.Loggable(unready))
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}
