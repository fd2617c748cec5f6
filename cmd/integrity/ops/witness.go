package ops

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
)

// Witness counts the work of an integrity witness process. It is safe for concurrent use.
type Witness struct {
	registry    *prometheus.Registry
	submissions *prometheus.CounterVec
	cosigned    *prometheus.GaugeVec
}

// NewWitness returns counters at zero in a new registry.
func NewWitness() *Witness {
	registry := newRegistry()
	in := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return in.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return in.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &Witness{
		registry: registry,
		submissions: counter(
			"integrity_witness_submissions_total",
			"Checkpoints of other logs submitted to integrity witness, by outcome; log is empty if "+
				"no known log signed it.",
			"log", "outcome",
		),
		cosigned: gauge(
			"integrity_witness_cosigned_leaves", "Leaves covered by another log's last checkpoint that this process has "+
				"cosigned.",
			"log",
		),
	}
}

// Know starts the counters of logs at zero, so that the first event shows as an increase.
func (w *Witness) Know(logs witness.Logs) {
	for log := range logs {
		for _, outcome := range handlers.WitnessOutcomes {
			w.submissions.WithLabelValues(log, string(outcome))
		}
	}
}

// Submission records a submission. The log is a known log's name, or empty.
func (w *Witness) Submission(log string, outcome handlers.WitnessOutcome, size int64) {
	w.submissions.WithLabelValues(log, string(outcome)).Inc()
	if outcome == handlers.WitnessCosigned {
		w.cosigned.WithLabelValues(log).Set(float64(size))
	}
}

// Handler serves /metrics and profiles, for operators only.
func (w *Witness) Handler(log *slog.Logger) http.Handler {
	routes := watched(w.registry, log)
	routes.Handle("GET /{$}", http.RedirectHandler("/metrics", http.StatusFound))
	return ownHost(routes)
}
