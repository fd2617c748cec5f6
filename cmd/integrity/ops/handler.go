package ops

import (
	"embed"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"integrityledger/domain"
)

//go:embed page/index.html page/ops.css page/ops.js
var page embed.FS

// policy lets the page run its own files and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Handler serves /metrics, the page /ops and profiles. It asks for no key:
// its listener must be within operators' reach alone.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), EnableOpenMetrics: true,
	}))
	for path, file := range map[string]string{"/ops": "page/index.html", "/ops/ops.css": "page/ops.css", "/ops/ops.js": "page/ops.js"} {
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
		families, err := m.registry.Gather()
		if err != nil {
			log.Warn("metrics could not be gathered", "error", err)
			http.Error(w, "metrics could not be gathered; the log says why", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(newSample(time.Now(), families)) // the caller may have gone away
	})
	routes.Handle("GET /{$}", http.RedirectHandler("/ops", http.StatusFound))
	routes.HandleFunc("GET /debug/pprof/", pprof.Index)
	routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	routes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return ownHost(routes)
}

// ownHost refuses, on loopback, names that are not this machine's: a page in the
// operator's browser could have its own name point here (DNS rebinding).
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
