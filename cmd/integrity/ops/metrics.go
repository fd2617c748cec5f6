// Package ops provides monitoring of the service: Prometheus metrics, the page /ops, profiles and OpenTelemetry traces.
// Beside the code are a Grafana dashboard and alert rules, which are tested against a scrape.
//
// Labels are route templates, codes, shards, tables, pools and outcomes, never ids, references or hashes. Other
// packages report through the Observe function in their Config; everything else is collected during a scrape. A service
// that is never scraped therefore pays only for counters.
//
// Projections are written in the transaction of their events and so have no lag. Consumers run after the commit and
// have one.
package ops

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/handlers/edge"
	"integrityledger/projections"
	"integrityledger/projections/queue"
	"integrityledger/projections/queue/webhooks"
)

// Metrics counts the work of a process. Other packages call its methods for each request, group, delivery and mail. The
// methods are safe for concurrent use and do not block.
type Metrics struct {
	registry *prometheus.Registry

	requests      *prometheus.HistogramVec
	failures      *prometheus.CounterVec
	groups        *prometheus.CounterVec
	groupSize     prometheus.Histogram
	groupDuration prometheus.Histogram
	events        *prometheus.CounterVec
	refusals      *prometheus.CounterVec
	deliveries    *prometheus.CounterVec
	mails         *prometheus.CounterVec
	signing       prometheus.Histogram
}

// newRegistry returns a registry with the metrics of every process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	build := edge.ReadBuild()
	gauge("integrity_build_info", "The program's release, commit and version of Go; always 1.", "version", "commit", "go").
		WithLabelValues(build.Version, build.Commit, build.Go).Set(1)
	return registry
}

// NewMetrics returns counters at zero in a new registry.
func NewMetrics() *Metrics {
	registry := newRegistry()
	in := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return in.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets ...float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	m := &Metrics{
		registry: registry,
		requests: in.NewHistogramVec(histogram("integrity_http_request_duration_seconds",
			"Requests by route template, from the start to the end of the answer.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30), []string{"route", "method", "status"}),
		failures: counter(
			"integrity_http_failures_total",
			"Errors in answers, by code: for requests, batch items and MCP tool calls.", "route", "code",
		),
		groups: counter("integrity_groups_total", "Transactions of commands, by outcome.", "shard", "outcome"),
		groupSize: in.NewHistogram(histogram(
			"integrity_group_commands", "Commands per transaction.", 1, 2, 4, 8, 16, 32, 64, 128, 256,
		)),
		groupDuration: in.NewHistogram(histogram("integrity_group_duration_seconds",
			"Transactions of commands, from getting a connection to the answer of COMMIT.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30)),
		events: counter("integrity_events_total", "Events committed by this process, by type.", "type"),
		refusals: counter(
			"integrity_command_refusals_total", "Refused commands, by code, including batch items.", "code",
		),
		deliveries: counter(
			"integrity_webhook_deliveries_total", "Webhook deliveries by outcome of an attempt, once recorded.",
			"outcome",
		),
		mails: counter("integrity_mails_total", "Mails by outcome.", "outcome"),
		signing: in.NewHistogram(histogram(
			"integrity_signing_duration_seconds", "Signatures made.", .00002, .00005, .0001, .0002, .0005, .001, .01,
		)),
	}
	// Start at zero, so that the first event shows as an increase.
	for _, outcome := range []string{string(projections.DeliveryDelivered), webhooks.OutcomeRetried,
		string(projections.DeliveryExhausted),
		string(projections.DeliverySuppressed), string(projections.DeliveryCancelled)} {
		m.deliveries.WithLabelValues(outcome)
	}
	for _, outcome := range []string{queue.MailSent, queue.MailFailed, queue.MailDropped} {
		m.mails.WithLabelValues(outcome)
	}
	return m
}

// Request records a request.
func (m *Metrics) Request(o edge.Observation) {
	m.requests.WithLabelValues(o.Route, o.Method, statusText(o.Status)).Observe(o.Duration.Seconds())
	if o.Code != "" {
		m.failures.WithLabelValues(o.Route, string(o.Code)).Inc()
	}
	for code, items := range o.FailedItems {
		m.failures.WithLabelValues(o.Route, string(code)).Add(float64(items))
	}
}

// Group records a transaction of commands.
func (m *Metrics) Group(r eventstore.GroupReport) {
	m.groups.WithLabelValues(shardText(r.Shard), string(r.Outcome)).Inc()
	if r.Outcome != eventstore.GroupSplit { // a split group's halves are recorded separately
		m.groupSize.Observe(float64(r.Commands))
		m.groupDuration.Observe(r.Duration.Seconds())
	}
	types := map[domain.EventType]int{}
	for i := range r.Events {
		types[r.Events[i].Type]++
	}
	for name, n := range types {
		m.events.WithLabelValues(string(name)).Add(float64(n))
	}
	for _, err := range r.Refused {
		if refused, ok := errors.AsType[*domain.Error](err); ok {
			m.refusals.WithLabelValues(string(refused.Code)).Inc()
		}
	}
}

// Delivery records webhook deliveries by outcome.
func (m *Metrics) Delivery(outcome string, deliveries int) {
	m.deliveries.WithLabelValues(outcome).Add(float64(deliveries))
}

// Mail records mails by outcome.
func (m *Metrics) Mail(outcome string, mails int) {
	m.mails.WithLabelValues(outcome).Add(float64(mails))
}

// Signing measures a signature: call it before signing, and the result afterwards.
func (m *Metrics) Signing() (signed func()) {
	start := time.Now()
	return func() { m.signing.Observe(time.Since(start).Seconds()) }
}
