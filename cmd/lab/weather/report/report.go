// Package report shows a recorded run of bad weather on one page: what failed when, what the clients saw meanwhile, how
// long everything took to recover, and what the checks say of it.
//
// The page needs no script, asks nobody for anything, and is readable without its drawings. Everything that comes from a
// history is foreign text. However long a run was, its page stays small: drawings have a fixed number of columns, and
// lists are cut with a note that says so.
package report

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"

	"integrityledger/cmd/lab/weather/history"
)

// The files of this package in the directory of a run.
const (
	FileName         = "weather.html"
	VerdictsFileName = "verdicts.json"
)

// Verdicts is what is said of a run once it is over. Its JSON form has that of the checker's report in it.
type Verdicts struct {
	Again      string           `json:"again"`  // the command that runs it again
	Checks     []string         `json:"checks"` // the names of all, also of those that have found nothing
	Violations []Finding        `json:"violations"`
	Undecided  []Finding        `json:"undecided"`
	Skipped    []string         `json:"skipped"`
	Counts     map[string]int64 `json:"counts"` // how much was checked of what
}

// Finding is something that a check says: what it is about, and the numbers of the calls that show it.
type Finding struct {
	Check string  `json:"check"`
	Of    string  `json:"of"`
	Text  string  `json:"text"`
	Calls []int64 `json:"calls,omitempty"`
}

// Save puts the verdicts and the page into the directory of the run.
func Save(h *history.History, v Verdicts) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.Directory, VerdictsFileName), append(text, '\n'), 0o600); err != nil {
		return err
	}
	return save(h, v)
}

// Again makes the page of a directory anew from what was recorded there. A run whose verdicts are missing was not judged.
func Again(directory string) error {
	h, err := history.Read(directory)
	if err != nil {
		return err
	}
	var v Verdicts
	text, err := os.ReadFile(filepath.Join(directory, VerdictsFileName))
	if err == nil {
		err = json.Unmarshal(text, &v)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", VerdictsFileName, err)
	}
	return save(h, v)
}

func save(h *history.History, v Verdicts) (err error) {
	file, err := os.Create(filepath.Join(h.Directory, FileName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return Write(file, h, v)
}

var (
	//go:embed page.html.tmpl
	pageText string
	//go:embed page.css
	styles string

	pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"at": clock, "count": count, "length": length, "short": short, "style": func() template.CSS { return template.CSS(styles) }, //nolint:gosec // ours
	}).Parse(pageText))
)

// Write writes the page.
func Write(w io.Writer, h *history.History, v Verdicts) error {
	return pages.Execute(w, newPage(h, v))
}

// page is what the template shows.
type page struct {
	history.Header
	Again    string
	Length   int64
	Calls    int
	Totals   tally
	Checks   []checked
	Verdict  verdict
	Counts   []counted
	Faults   faults
	Chart    chart
	Clients  clients
	Totaled  []operation
	Codes    []code
	Resolved resolution
	Commands []history.Verdict
	Monitors []history.Monitor
	Cut      int // how many organizations are not listed
}

// mostRows is where lists are cut.
const mostRows = 1000

func newPage(h *history.History, v Verdicts) page {
	a := newAxis(h)
	p := page{Header: h.Header, Again: v.Again, Length: a.length, Calls: len(h.Calls), Commands: cut(h.End.Verdicts), Monitors: cut(h.End.Monitors)}
	p.Organizations = cut(p.Organizations)
	p.Cut = len(h.Header.Organizations) - len(p.Organizations)
	p.Checks, p.Verdict = judge(h, v)
	p.Counts = newCounts(v.Counts)
	p.Faults = newFaults(h.Faults, a)
	p.Chart = newChart(h.Calls, a)
	p.Chart.mark(p.Checks, a)
	p.Clients = newClients(h.Calls, a)
	p.Totaled, p.Totals = operations(h.Calls)
	p.Codes = codes(h.Calls)
	p.Resolved = resolve(h)
	return p
}

func cut[T any](all []T) []T { return all[:min(len(all), mostRows)] }
