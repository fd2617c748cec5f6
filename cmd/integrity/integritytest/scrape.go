package integritytest

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
)

// Scrape is the text of a /metrics response.
type Scrape string

// ScrapeOf reads the metrics at an address.
func ScrapeOf(t testing.TB, address string) Scrape {
	t.Helper()
	client := &http.Client{Timeout: Patient, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics answers %d: %v", resp.StatusCode, err)
	}
	return Scrape(text)
}

var (
	series = regexp.MustCompile(`(?m)^(\w+?)(?:_count)?(?:\{(.*)\})? (\S+)$`)
	label  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// Sum adds up all series with this name and these labels; for a histogram it adds up the counts.
func (s Scrape) Sum(name string, labels ...string) (total float64, found bool) {
	for _, line := range series.FindAllStringSubmatch(string(s), -1) {
		have := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(line[2], -1) {
			have[l[1]] = l[2]
		}
		matches := line[1] == name
		for i := 0; i < len(labels); i += 2 {
			matches = matches && have[labels[i]] == labels[i+1]
		}
		if value, err := strconv.ParseFloat(line[3], 64); matches && err == nil {
			found = true
			total += value
		}
	}
	return total, found
}

// Want returns an error unless a series has this value.
func (s Scrape) Want(value float64, name string, labels ...string) error {
	if got, found := s.Sum(name, labels...); !found || got != value {
		return fmt.Errorf("%s %v is %v (found: %v), not %v", name, labels, got, found, value)
	}
	return nil
}
