package integritytest

import (
	"fmt"
	"net/http"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Scrape is what /metrics answers, by the name of the metric.
type Scrape map[string]*dto.MetricFamily

// ScrapeOf reads the metrics that are served at an address.
func ScrapeOf(t testing.TB, address string) Scrape {
	t.Helper()
	client := &http.Client{Timeout: Patient, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/metrics")
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

// Sum adds up all series of a name with these labels; of a histogram its count.
func (s Scrape) Sum(name string, labels ...string) (total float64, found bool) {
	for _, m := range s[name].GetMetric() {
		have := LabelsOf(m)
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

// LabelsOf returns the labels of a series.
func LabelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// Want requires a value of a series.
func (s Scrape) Want(value float64, name string, labels ...string) error {
	if got, found := s.Sum(name, labels...); !found || got != value {
		return fmt.Errorf("%s %v is %v (found: %v), not %v", name, labels, got, found, value)
	}
	return nil
}
