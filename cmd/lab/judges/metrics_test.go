package judges

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/handlers/wire"
)

// ops is the directory of the alert rules and the dashboard.
const ops = "../../integrity/ops/"

// TestMetrics runs a service through normal operation and faults, and finds both in its metrics. No series contains an
// ID, and every query of the dashboard and the alert rules finds its series.
func TestMetrics(t *testing.T) {
	t.Parallel()
	broker := integritytest.NewBroker(t) // not running at first
	address := integritytest.FreeAddress(t)
	// On a separate PostgreSQL, so that it measures the disk.
	s := serve(t, "INTEGRITY_DATABASE_URL=", "INTEGRITY_METRICS_LISTEN="+address, "INTEGRITY_NATS_URL="+broker.URL(),
		"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true", "INTEGRITY_TIMESTAMP_AUTHORITIES=unpinned https://127.0.0.1:1")
	d := s.declaration("d")
	request := func(want int, method, path, key string, body any) {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if status := s.ask(t, http.DefaultClient, method, path, key, string(text)); status != want {
			t.Fatalf("%s %s: %d", method, path, status)
		}
	}
	const records = "/api/v1/integrity/records"
	before := integritytest.ScrapeOf(t, address)
	record, err := s.worker.Register(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	request(http.StatusOK, http.MethodPost, records, s.Keys.Worker, d)
	other := d
	other.SHA256 = strings.Repeat("cd", 32)
	request(http.StatusConflict, http.MethodPost, records, s.Keys.Worker, other)
	request(http.StatusOK, http.MethodGet, records+"/"+record.PublicID, s.Keys.Worker, nil)
	request(http.StatusUnauthorized, http.MethodGet, records+"/"+record.PublicID, "", nil)
	request(http.StatusNotFound, http.MethodGet, "/nothing/"+record.PublicID+"?sha256="+d.SHA256, "", nil)
	request(http.StatusMethodNotAllowed, "BREW", records, "", nil)
	refuse := "http://" + integritytest.FreeAddress(t) // no process listens there
	hook, err := s.admin.CreateWebhook(t.Context(), wire.WebhookRequest{URL: refuse})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.TestWebhook(t.Context(), hook.ID); err != nil {
		t.Fatal(err)
	}

	rise := func(now integritytest.Scrape, want float64, name string, labels ...string) error {
		was, _ := before.Sum(name, labels...)
		return now.Want(was+want, name, labels...)
	}
	var now integritytest.Scrape
	integritytest.Eventually(t, "the metrics tell what happened", func() error {
		now = integritytest.ScrapeOf(t, address)
		head, _ := now.Sum("integrity_ledger_position")
		for _, err := range []error{
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "POST", "status", "201"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "POST", "status", "409"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records+"/{publicId}", "status", "401"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", records, "method", "other", "status", "405"),
			rise(now, 1, "integrity_http_request_duration_seconds", "route", "unknown", "status", "404"),
			rise(now, 1, "integrity_http_failures_total", "code", "VERSION_CONFLICT"),
			rise(now, 1, "integrity_command_refusals_total", "code", "VERSION_CONFLICT"),
			rise(now, 1, "integrity_events_total", "type", "integrity.registered"),
			now.Want(1, "integrity_signing_key_trusted"),
			now.Want(1, "integrity_database_up"),
			now.Want(1, "integrity_outbox_deliveries"),
			now.Want(1, "integrity_webhook_destinations_failing"),
			now.Want(0, "integrity_queue_commands"),
			now.Want(0, "integrity_waiting_readers"),
			now.Want(0, "integrity_replication_standbys"),
			now.Want(0, "integrity_archive_failing"),
			now.Want(0, "integrity_groups_total", "outcome", "unknown"), // alerts fire on an increase
			now.Want(head, "integrity_transparency_leaves"),
			now.Want(0, "integrity_transparency_lag_events"),
			now.Want(0, "integrity_transparency_lag_seconds"),
			now.Want(0, "integrity_transparency_halted"),
			now.Want(16, "integrity_pool_max_connections", "pool", "read"),
		} {
			if err != nil {
				return err
			}
		}
		if failed, _ := now.Sum("integrity_webhook_deliveries_total", "outcome", "retried"); failed < 1 { // again after 5 s
			return fmt.Errorf("%v deliveries have failed", failed)
		}
		// Nothing is forwarded while the broker is down. The consumer may pass events that the stream does not publish, such
		// as the setup's: the registration and the webhook after it remain.
		age, _ := now.Sum("integrity_consumer_lag_seconds")
		if lag, _ := now.Sum("integrity_consumer_lag_events", "consumer", "nats"); age <= 0 || lag < 2 || lag > head {
			return fmt.Errorf("the consumer is %v s and %v events behind %v", age, lag, head)
		}
		for _, name := range []string{"integrity_signing_duration_seconds", "integrity_group_commands",
			"integrity_group_duration_seconds", "integrity_groups_total",
			"integrity_table_bytes", "integrity_disk_free_bytes", "integrity_disk_size_bytes", "go_goroutines"} {
			if value, _ := now.Sum(name); value <= 0 {
				return fmt.Errorf("%s is %v", name, value)
			}
		}
		return nil
	})
	scraper := expfmt.NewTextParser(model.LegacyValidation)
	families, err := scraper.TextToMetricFamilies(strings.NewReader(string(now)))
	if err != nil {
		t.Fatal(err)
	}
	noIDs(t, families)
	answerable(t, families)
	integritytest.Eventually(t, "the page's sample tells it too", func() error { return sampled(address) })

	broker.Start()
	integritytest.Eventually(t, "the consumer is not behind once the broker is there", func() error {
		now = integritytest.ScrapeOf(t, address)
		age, _ := now.Sum("integrity_consumer_lag_seconds")
		if err := now.Want(0, "integrity_consumer_lag_events"); err != nil || age != 0 {
			return fmt.Errorf("%w; %v seconds", err, age)
		}
		return nil
	})
	integritytest.Write(t, filepath.Join(s.dir, keyfiles.TrustedKeysFile), "[]")
	if err := s.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	integritytest.Eventually(t, "no key is trusted", func() error {
		return integritytest.ScrapeOf(t, address).Want(0, "integrity_signing_key_trusted")
	})
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// noIDs checks every label: its name is known, and its value identifies no customer's data.
func noIDs(t *testing.T, s map[string]*dto.MetricFamily) {
	t.Helper()
	known := []string{
		"route", "method", "status", "code", "shard", "outcome", "type", "pool", "table", "consumer", "standby", "witness",
		"authority", "cause", "clocks",
	}
	id := regexp.MustCompile(`[a-z]{3}_[0-9a-z]{26}|\b[a-z2-7]{26}\b|[0-9a-f]{32}|BREW|nothing|example\.`)
	for name, family := range s {
		if !strings.HasPrefix(name, "integrity_") || name == "integrity_build_info" { // the labels of the program itself
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

// answerable requires every series that a query of the dashboard or an alert rule needs, with its labels.
func answerable(t *testing.T, s map[string]*dto.MetricFamily) {
	t.Helper()
	// Series from Prometheus itself, series that need a standby, a witness, a token or TLS (TestTLS), and series of
	// integrity witness.
	elsewhere := []string{
		"up", "integrity_tls_certificate_expiry_timestamp_seconds", "integrity_replication_lag_bytes",
		"integrity_replication_lag_seconds", "integrity_transparency_cosigned_leaves",
		"integrity_timestamp_token_age_seconds", "integrity_witness_submissions_total",
	}
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

// unmatched returns a selector of that name for which no series of the family has the labels. Quantiles have two forms:
// Prometheus requests OpenMetrics, which writes them as numbers with a point. Server errors have no series here.
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

// sampled checks the data that the page draws.
func sampled(address string) error {
	resp, err := http.Get("http://" + address + "/ops/sample")
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
	if sample.Requests["4xx"] < 3 || sample.Requests["2xx"] < 3 || sample.Events["integrity.registered"] < 1 ||
		sample.Lag["nats 0"]+sample.Lag["nats 1"]+
			sample.Lag["nats 2"]+sample.Lag["nats 3"] == 0 ||
		sample.Outbox["0"]+sample.Outbox["1"]+sample.Outbox["2"]+sample.Outbox["3"] != 1 ||
		sample.Tables["events"] == 0 || sample.OutboxAge == nil || !sample.Trusted || !sample.Database {
		return fmt.Errorf("sample: %+v", sample)
	}
	last := sample.Latency[len(sample.Latency)-1]
	if last.Le != nil || last.Count == nil || *last.Count < 3 {
		return fmt.Errorf("the last bucket of the latencies: %+v", last)
	}
	return nil
}

// queries returns the expressions of the dashboard and the alert rules, as Prometheus parses them.
func queries(t *testing.T) map[string]parser.Expr {
	t.Helper()
	found := map[string]parser.Expr{}
	add := func(where, text string) {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v in %s", where, err, text)
			return
		}
		found[where] = expr
	}
	groups, errs := rulefmt.ParseFile(ops+"alerts.yml", false)
	if errs != nil {
		t.Fatal(errs)
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s lacks summary, description or severity", rule.Alert)
			}
			add("alert "+rule.Alert, rule.Expr)
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct {
				RefID string
				Expr  string
			}
		}
		Templating struct{ List []struct{ Name string } }
	}
	text, err := os.ReadFile(ops + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variable := strings.NewReplacer("$__rate_interval", "5m", "$job", "integrity", "$instance", ".*")
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: want an id of its own, a title and a query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			add("panel "+p.Title+" "+target.RefID, variable.Replace(target.Expr))
		}
	}
	if len(found) < 30 {
		t.Fatalf("only %d queries were found", len(found))
	}
	return found
}

// selected returns the series that a query needs, each with the labels in the query.
func selected(t *testing.T, expr parser.Expr) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		var labels []string
		if s, ok := node.(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if m.Name != "__name__" {
					labels = append(labels, m.Name)
				}
			}
			// Labels that an aggregation keeps must exist too.
			for _, outer := range path {
				if a, ok := outer.(*parser.AggregateExpr); ok && !a.Without {
					labels = append(labels, a.Grouping...)
				}
			}
			names[s.Name] = append(names[s.Name], labels...)
		}
		return nil
	})
	if len(names) == 0 {
		t.Errorf("%s asks for nothing", expr)
	}
	return names
}

// TestRules runs the rules' own tests with Prometheus's tool, if it is installed.
func TestRules(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip(
			"promtool is not here (Debian package prometheus): TestMetrics has parsed the rules, and nobody has evaluated them",
		)
	}
	for _, args := range [][]string{{"check", "rules", ops + "alerts.yml"}, {"test", "rules", ops + "alerts_test.yml"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
