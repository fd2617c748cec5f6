package ops

import (
	"embed"
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"integrityledger/domain"
)

//go:embed page/index.html page/ops.css page/ops.js
var page embed.FS

// policy allows only the page's own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Handler serves /metrics, the page /ops and profiles. It requires no key: only operators may be able to reach its
// listener.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	routes := watched(m.registry, log)
	for path, file := range map[string]string{
		"/ops": "page/index.html", "/ops/ops.css": "page/ops.css", "/ops/ops.js": "page/ops.js",
	} {
		routes.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", policy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-store")
			http.ServeFileFS(w, r, page, file)
		})
	}
	routes.HandleFunc("GET /ops/sample", func(w http.ResponseWriter, _ *http.Request) {
		shown, err := newSample(time.Now(), m.registry)
		if err != nil {
			log.Warn("gathering metrics failed", "error", err)
			http.Error(w, "gathering metrics failed; see the log", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(shown) // the client may have gone
	})
	routes.Handle("GET /{$}", http.RedirectHandler("/ops", http.StatusFound))
	return ownHost(routes)
}

// watched serves /metrics and profiles.
func watched(registry *prometheus.Registry, log *slog.Logger) *http.ServeMux {
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), EnableOpenMetrics: true,
	}))
	routes.HandleFunc("GET /debug/pprof/", pprof.Index)
	routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	routes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return routes
}

// ownHost rejects host names other than this machine's on loopback. Otherwise a page in the operator's browser could
// point its own name here (DNS rebinding).
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if local != nil && loopback(local.String()) && r.Host != "" && !loopback(r.Host) {
			http.Error(w, "use localhost or an address of this machine", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	return domain.IsLoopbackHost(host)
}

// sample is the data that the page /ops draws, from the same metrics as a scrape. Counters start with the process; the
// page computes rates from two samples.
type sample struct {
	At       int64              `json:"at"`       // milliseconds since 1970
	Requests map[string]float64 `json:"requests"` // by status class: 2xx …
	Latency  []bucket           `json:"latency"`  // of API and public requests, except readers waiting for the feed
	Events   map[string]float64 `json:"events"`   // by type
	Groups   float64            `json:"groups"`
	Group    []bucket           `json:"group"` // duration of transactions
	Queue    map[string]float64 `json:"queue"` // by shard
	Lag      map[string]float64 `json:"lag"`   // events, by consumer and shard
	Outbox   map[string]float64 `json:"outbox"`
	// OutboxAge and MailAge are in seconds, for the worst shard.
	OutboxAge  float64            `json:"outboxAge"`
	MailAge    float64            `json:"mailAge"`
	Deliveries map[string]float64 `json:"deliveries"` // by outcome
	Tables     map[string]float64 `json:"tables"`     // bytes
	Pools      map[string]float64 `json:"pools"`      // connections in use
	Readers    float64            `json:"readers"`
	Trusted    bool               `json:"trusted"`
	Database   bool               `json:"database"`
}

// bucket is a histogram bucket: the number of values up to Le seconds. A null Le means no limit.
type bucket struct {
	Le    *float64 `json:"le"`
	Count float64  `json:"count"`
}

func newSample(now time.Time, metrics prometheus.Gatherer) (sample, error) {
	families, err := metrics.Gather()
	if err != nil {
		return sample{}, err
	}
	s := sample{At: now.UnixMilli(), Requests: map[string]float64{}, Events: map[string]float64{},
		Queue: map[string]float64{},
		Lag:   map[string]float64{}, Outbox: map[string]float64{}, Deliveries: map[string]float64{},
		Tables: map[string]float64{}, Pools: map[string]float64{}}
	latency, group := map[float64]float64{}, map[float64]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			all := m.GetHistogram().GetSampleCount()
			addTo := func(counts map[float64]float64) {
				for _, b := range m.GetHistogram().GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 1) {
						counts[b.GetUpperBound()] += float64(b.GetCumulativeCount())
					}
				}
				counts[math.Inf(1)] += float64(all) // the last bucket, which counts everything, is not always present
			}
			switch f.GetName() {
			case "integrity_http_request_duration_seconds":
				s.Requests[label["status"][:1]+"xx"] += float64(all)
				if route := label["route"]; strings.HasPrefix(route, "/api/") && route != "/api/v1/integrity/changes" {
					addTo(latency)
				}
			case "integrity_group_duration_seconds":
				s.Groups = float64(all)
				addTo(group)
			case "integrity_events_total":
				s.Events[label["type"]] = value
			case "integrity_queue_commands":
				s.Queue[label["shard"]] = value
			case "integrity_consumer_lag_events":
				s.Lag[label["consumer"]+" "+label["shard"]] = value
			case "integrity_transparency_lag_events":
				s.Lag["transparency log"] = value
			case "integrity_outbox_deliveries":
				s.Outbox[label["shard"]] = value
			case "integrity_outbox_oldest_due_seconds":
				s.OutboxAge = max(s.OutboxAge, value)
			case "integrity_mail_oldest_due_seconds":
				s.MailAge = max(s.MailAge, value)
			case "integrity_webhook_deliveries_total":
				s.Deliveries[label["outcome"]] = value
			case "integrity_table_bytes":
				s.Tables[label["table"]] = value
			case "integrity_pool_acquired_connections":
				s.Pools[label["pool"]] = value
			case "integrity_waiting_readers":
				s.Readers = value
			case "integrity_signing_key_trusted":
				s.Trusted = value == 1
			case "integrity_database_up":
				s.Database = value == 1
			}
		}
	}
	s.Latency, s.Group = buckets(latency), buckets(group)
	return s, nil
}

func buckets(counts map[float64]float64) []bucket {
	list := []bucket{}
	for _, le := range slices.Sorted(maps.Keys(counts)) {
		b := bucket{Count: counts[le]}
		if !math.IsInf(le, 1) {
			b.Le = &le
		}
		list = append(list, b)
	}
	return list
}
