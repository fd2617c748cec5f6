package ops

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
)

// Witness counts what a process of integrity witness does. It is safe for concurrent use.
type Witness struct {
	registry    *prometheus.Registry
	submissions *prometheus.CounterVec
	cosigned    *prometheus.GaugeVec
}

// NewWitness makes all at zero, in a registry of its own.
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
			"Checkpoints of other logs that were submitted to integrity witness, by what came of them; log is empty where "+
				"no known log has signed.",
			"log", "outcome",
		),
		cosigned: gauge(
			"integrity_witness_cosigned_leaves", "Leaves of the last checkpoint of another log that this process has cosigned.",
			"log",
		),
	}
}

// Know begins the counters of logs at zero, so that the first of them is a rise.
func (w *Witness) Know(logs witness.Logs) {
	for log := range logs {
		for _, outcome := range handlers.WitnessOutcomes {
			w.submissions.WithLabelValues(log, string(outcome))
		}
	}
}

// Submission hears of each submission. The log is one that is known, or empty.
func (w *Witness) Submission(log string, outcome handlers.WitnessOutcome, size int64) {
	w.submissions.WithLabelValues(log, string(outcome)).Inc()
	if outcome == handlers.WitnessCosigned {
		w.cosigned.WithLabelValues(log).Set(float64(size))
	}
}

// Handler serves /metrics and profiles, for operators alone.
func (w *Witness) Handler(log *slog.Logger) http.Handler {
	routes := watched(w.registry, log)
	routes.Handle("GET /{$}", http.RedirectHandler("/metrics", http.StatusFound))
	return ownHost(routes)
}
