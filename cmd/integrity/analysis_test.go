package main

import (
	"os"
	"path/filepath"
	"testing"

	"integrityledger/cmd/analyzer"
	"integrityledger/domain"
	"integrityledger/domain/analysis"
)

// TestAnalysisChild: this program works as the child that analyses a file.
func TestAnalysisChild(t *testing.T) {
	t.Parallel()
	// A program with the race detector needs more memory than any limit.
	a, err := analyzer.New(analyzer.Config{
		Program: os.Getenv(binaryVariable), Memory: 1 << 46, Wall: patient, CPU: patient,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	path := write(t, filepath.Join(t.TempDir(), "f"), "hidden \u200b here")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	report, err := a.Analyze(t.Context(), domain.OrganizationID{}, f, 15, "text/plain", "f.txt")
	if err != nil || report.Failure != "" {
		t.Fatal(report.Failure, err)
	}
	found := 0
	for _, r := range report.Results {
		if r.ID == "text-hidden-characters" && r.Outcome == analysis.Finding {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%+v", report.Results)
	}
}
