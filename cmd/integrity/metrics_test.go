package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/handlers/wire"
)

// scrape is what /metrics answers.
type scrape map[string]*dto.MetricFamily

func scrapeOf(t *testing.T, address string) scrape {
	t.Helper()
	resp, err := plainHTTP().Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics answers %d", resp.StatusCode)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// sum adds up all series of a name with these labels; of a histogram its count.
func (s scrape) sum(name string, labels ...string) (total float64, found bool) {
	for _, m := range s[name].GetMetric() {
		have := labelsOf(m)
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && have[labels[i]] == labels[i+1]
		}
		if matches {
			found = true
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total, found
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// want requires a value of a series.
func (s scrape) want(value float64, name string, labels ...string) error {
	if got, found := s.sum(name, labels...); !found || got != value {
		return fmt.Errorf("%s %v is %v (found: %v), not %v", name, labels, got, found, value)
	}
	return nil
}

// TestMetrics runs a service through good and bad times, and finds both in its metrics; no series names an id; and
// every query of the dashboard and of the alert rules finds what it asks for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	broker := integritytest.NewBroker(t) // away at first
	address := freeAddress(t)
	s := surroundings{env: []string{"INTEGRITY_NATS_URL=" + broker.URL(), "INTEGRITY_WEBHOOK_ALLOW_INSECURE=true", "INTEGRITY_TIMESTAMP_AUTHORITIES=unpinned https://127.0.0.1:1"}}.
		start(t, dataDir(t), "--demo", "--metrics-listen", address)
	access := s.demo()
	client := plainHTTP()
	request := func(want int, method, path, key string, body, answer any) {
		t.Helper()
		if status, err := call(client, method, s.base+path, key, body, answer); err != nil || status != want {
			t.Fatalf("%s %s: %d %v", method, path, status, err)
		}
	}
	d := wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "s", DocumentReference: "d", Version: 1, SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
		MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
	const records = "/api/v1/integrity/records"
	before := scrapeOf(t, address)
	var record wire.Registration
	request(http.StatusCreated, http.MethodPost, records, access.Keys.Worker, d, &record)
	request(http.StatusOK, http.MethodPost, records, access.Keys.Worker, d, nil)
	other := d
	other.SHA256 = strings.Repeat("cd", 32)
	request(http.StatusConflict, http.MethodPost, records, access.Keys.Worker, other, nil)
	request(http.StatusOK, http.MethodGet, records+"/"+record.PublicID, access.Keys.Worker, nil, nil)
	request(http.StatusUnauthorized, http.MethodGet, records+"/"+record.PublicID, "", nil, nil)
	request(http.StatusNotFound, http.MethodGet, "/nothing/"+record.PublicID+"?sha256="+d.SHA256, "", nil, nil)
	request(http.StatusMethodNotAllowed, "BREW", records, "", nil, nil)
	refuse := "http://" + freeAddress(t) // nobody listens there
	var hook struct {
		ID string `json:"id"`
	}
	request(http.StatusCreated, http.MethodPost, "/api/v1/integrity/webhooks", access.Keys.Admin, map[string]string{"url": refuse}, &hook)
	request(http.StatusAccepted, http.MethodPost, "/api/v1/integrity/webhooks/"+hook.ID+"/test", access.Keys.Admin, nil, nil)

	rise := func(now scrape, want float64, name string, labels ...string) error {
		was, _ := before.sum(name, labels...)
		return now.want(was+want, name, labels...)
	}
	var now scrape
	eventually(t, "the metrics tell what happened", func() error {
		now = scrapeOf(t, address)
		head, _ := now.sum("integrity_ledger_position")
		for _, err := range []error{
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "POST", "status", "201"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "POST", "status", "409"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records+"/{publicId}", "status", "401"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "other", "status", "405"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", "unknown", "status", "404"),
			rise(now, 1, "integrity_http_failures_total", "code", "VERSION_CONFLICT"),
			rise(now, 1, "integrity_command_refusals_total", "code", "VERSION_CONFLICT"),
			rise(now, 1, "integrity_events_total", "type", "integrity.registered"),
			now.want(1, "integrity_signing_key_trusted"),
			now.want(1, "integrity_database_up"),
			now.want(1, "integrity_outbox_deliveries"),
			now.want(1, "integrity_webhook_destinations_failing"),
			now.want(0, "integrity_queue_commands"),
			now.want(0, "integrity_waiting_readers"),
			now.want(0, "integrity_replication_standbys"),
			now.want(0, "integrity_archive_failing"),
			now.want(0, "integrity_groups_total", "outcome", "unknown"), // a rise is what is alerted of
			now.want(head, "integrity_transparency_leaves"),
			now.want(0, "integrity_transparency_lag_events"),
			now.want(0, "integrity_transparency_lag_seconds"),
			now.want(0, "integrity_transparency_halted"),
			now.want(16, "integrity_pool_max_connections", "pool", "read"),
			// Nothing is forwarded while the broker is away.
			now.want(head, "integrity_consumer_lag_events", "consumer", "nats"),
		} {
			if err != nil {
				return err
			}
		}
		if failed, _ := now.sum("integrity_webhook_deliveries_total", "outcome", "retried"); failed < 1 { // again after 5 s
			return fmt.Errorf("%v deliveries have failed", failed)
		}
		if age, _ := now.sum("integrity_consumer_lag_seconds"); age <= 0 || head < 2 {
			return fmt.Errorf("the consumer is %v s behind %v events", age, head)
		}
		for _, name := range []string{"integrity_signing_duration_seconds", "integrity_group_commands", "integrity_group_duration_seconds", "integrity_groups_total",
			"integrity_table_bytes", "integrity_disk_free_bytes", "integrity_disk_size_bytes", "go_goroutines"} {
			if value, _ := now.sum(name); value <= 0 {
				return fmt.Errorf("%s is %v", name, value)
			}
		}
		return nil
	})
	noIDs(t, now)
	answerable(t, now)
	eventually(t, "the page's sample tells it too", func() error { return sampled(address) })

	broker.Start()
	eventually(t, "the consumer is not behind once the broker is there", func() error {
		now = scrapeOf(t, address)
		age, _ := now.sum("integrity_consumer_lag_seconds")
		if err := now.want(0, "integrity_consumer_lag_events"); err != nil || age != 0 {
			return fmt.Errorf("%w; %v seconds", err, age)
		}
		return nil
	})
	write(t, filepath.Join(s.dir, keyfiles.TrustedKeysFile), "[]")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no key is trusted", func() error { return scrapeOf(t, address).want(0, "integrity_signing_key_trusted") })
}

// noIDs looks at every label: its name is one of those that we know, its value names nothing of anybody's.
func noIDs(t *testing.T, s scrape) {
	t.Helper()
	known := []string{"route", "method", "status", "code", "shard", "outcome", "type", "pool", "table", "consumer", "standby", "witness", "authority", "cause", "clocks"}
	id := regexp.MustCompile(`[a-z]{3}_[0-9a-z]{26}|\b[a-z2-7]{26}\b|[0-9a-f]{32}|BREW|nothing|example\.`)
	for name, family := range s {
		if !strings.HasPrefix(name, "integrity_") {
			continue
		}
		for _, m := range family.GetMetric() {
			for label, value := range labelsOf(m) {
				if !slices.Contains(known, label) || id.MatchString(value) {
					t.Errorf("%s has the label %s=%q", name, label, value)
				}
			}
		}
	}
}

// answerable looks for every series that a query of the dashboard or of an alert rule asks for, with its labels.
func answerable(t *testing.T, s scrape) {
	t.Helper()
	// What Prometheus adds, what needs a standby, a witness, a token or TLS (TestTLS), and what integrity witness measures.
	elsewhere := []string{"up", "integrity_tls_certificate_expiry_timestamp_seconds", "integrity_replication_lag_bytes", "integrity_replication_lag_seconds", "integrity_transparency_cosigned_leaves", "integrity_timestamp_token_age_seconds", "integrity_witness_submissions_total"}
	added := []string{"job", "instance", "le", "quantile"}
	for where, expr := range queries(t) {
		for name, labels := range selected(t, expr) {
			if slices.Contains(elsewhere, name) {
				continue
			}
			family := s[name]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if family == nil {
					if f := s[strings.TrimSuffix(name, suffix)]; f.GetType() == dto.MetricType_HISTOGRAM {
						family = f
					}
				}
			}
			if family == nil {
				t.Errorf("%s asks for %s, which no scrape has", where, name)
				continue
			}
			if missing := unmatched(expr, name, family); missing != "" {
				t.Errorf("%s asks for %s, which no scrape has", where, missing)
			}
			have := labelsOf(family.GetMetric()[0])
			for _, label := range labels {
				if _, ok := have[label]; !ok && !slices.Contains(added, label) {
					t.Errorf("%s asks for the label %s of %s, which has %v", where, label, name, slices.Sorted(maps.Keys(have)))
				}
			}
		}
	}
}

// unmatched is a selector of that name that no series of the family has the labels for. Of quantiles there are two forms:
// Prometheus asks for OpenMetrics, which writes them as numbers with a point. Server errors have no series here.
func unmatched(expr parser.Expr, name string, family *dto.MetricFamily) (missing string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok || s.Name != name {
			return nil
		}
		fits := func(have map[string]string) bool {
			for _, m := range s.LabelMatchers {
				value, ok := have[m.Name]
				if ok && m.Name != "__name__" && !m.Matches(value) && (m.Name != "status" || !m.Matches("503")) {
					return false
				}
			}
			return true
		}
		points, found := true, false
		for _, m := range family.GetMetric() {
			found = found || m.GetSummary() == nil && fits(labelsOf(m))
			for _, text := range []string{"1", "1.0"} {
				if m.GetSummary() != nil {
					found = true
					points = points && fits(map[string]string{"quantile": text})
				}
			}
		}
		if !found || !points {
			missing = s.String()
		}
		return nil
	})
	return missing
}

// sampled looks at what the page draws.
func sampled(address string) error {
	resp, err := plainHTTP().Get("http://" + address + "/ops/sample")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var sample struct {
		Requests, Events, Lag, Outbox, Tables map[string]float64
		Latency                               []struct{ Le, Count *float64 }
		OutboxAge                             *float64
		Trusted, Database                     bool
	}
	if err := json.NewDecoder(resp.Body).Decode(&sample); err != nil {
		return err
	}
	if sample.Requests["4xx"] < 3 || sample.Requests["2xx"] < 3 || sample.Events["integrity.registered"] < 1 || sample.Lag["nats 0"]+sample.Lag["nats 1"]+
		sample.Lag["nats 2"]+sample.Lag["nats 3"] == 0 || sample.Outbox["0"]+sample.Outbox["1"]+sample.Outbox["2"]+sample.Outbox["3"] != 1 ||
		sample.Tables["events"] == 0 || sample.OutboxAge == nil || !sample.Trusted || !sample.Database {
		return fmt.Errorf("sample: %+v", sample)
	}
	last := sample.Latency[len(sample.Latency)-1]
	if last.Le != nil || last.Count == nil || *last.Count < 3 {
		return fmt.Errorf("the last bucket of the latencies: %+v", last)
	}
	return nil
}

// TestMetricsListener: metrics, page and profiles are served where the operator says, and there alone; a default address
// that is taken stops nobody.
func TestMetricsListener(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	s := start(t, dataDir(t), "--metrics-listen", address)
	for url, want := range map[string]int{
		"http://" + address + "/debug/pprof/":                  http.StatusOK,
		"http://" + address + "/debug/pprof/profile?seconds=1": http.StatusOK,
		"http://" + address + "/debug/pprof/goroutine?debug=1": http.StatusOK,
		"http://" + address + "/metrics":                       http.StatusOK,
		"http://" + address + "/ops":                           http.StatusOK,
		"http://" + address + "/ops/ops.css":                   http.StatusOK,
		"http://" + address + "/ops/ops.js":                    http.StatusOK,
		"http://" + address + "/ops/sample":                    http.StatusOK,
		"http://" + address + "/":                              http.StatusOK, // leads to /ops
		"http://" + address + "/ops/index.html":                http.StatusNotFound,
		"http://" + address + "/api/v1/integrity/records":      http.StatusNotFound,
		s.base + "/debug/pprof/":                               http.StatusNotFound,
		s.base + "/debug/pprof/profile?seconds=1":              http.StatusNotFound,
		s.base + "/metrics":                                    http.StatusNotFound,
		s.base + "/ops":                                        http.StatusNotFound,
	} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || want == http.StatusOK && len(body) == 0 {
			t.Errorf("%s answered %d, not %d: %v", url, resp.StatusCode, want, err)
		}
	}
	// A page of somebody else's whose name leads here reads nothing.
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "rebound.example"
	resp, err := plainHTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host's name: %d", resp.StatusCode)
	}
	if out := integrity(t, nil, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t), "--metrics-listen", "nowhere"); out.code != cli.ExitFailed || !strings.Contains(out.errs, "INTEGRITY_METRICS_LISTEN") {
		t.Errorf("exit code %d: %s", out.code, out.errs)
	}
	if out := integrity(t, nil, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t), "--metrics-listen", address); out.code != cli.ExitFailed || !strings.Contains(out.errs, "INTEGRITY_METRICS_LISTEN") {
		t.Errorf("a named address that is taken: exit code %d: %s", out.code, out.errs)
	}
	// Two with the default: at most one of them has it, and both serve.
	for range 2 {
		second := surroundings{env: []string{"INTEGRITY_METRICS_LISTEN="}}.start(t, dataDir(t))
		text, err := os.ReadFile(second.log)
		if err != nil {
			t.Fatal(err)
		}
		if has, taken := strings.Contains(string(text), "metrics are served"), strings.Contains(string(text), "metrics are not served"); has == taken {
			t.Errorf("metrics served: %v; address taken: %v", has, taken)
		}
	}
}
