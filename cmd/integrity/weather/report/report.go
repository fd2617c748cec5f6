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
	"slices"

	"integrityledger/cmd/integrity/weather/history"
)

// The files of this package in the directory of a run.
const (
	FileName         = "weather.html"
	VerdictsFileName = "verdicts.json"
)

// Verdicts is what is said of a run once it is over.
type Verdicts struct {
	Again  string  `json:"again"` // the command that runs it again
	Checks []Check `json:"checks"`
}

// Check is one, with what it has found. Without findings it is passed, unless it was skipped.
type Check struct {
	Name       string    `json:"name"`
	Skipped    bool      `json:"skipped,omitempty"`
	Violations []Finding `json:"violations,omitempty"`
	Undecided  []Finding `json:"undecided,omitempty"`
}

// Finding is something that a check says: what it is about, and the numbers of the calls that show it.
type Finding struct {
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
	p.Checks, p.Verdict = judge(h, v.Checks)
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

// checked is a check as the page shows it.
type checked struct {
	Check
	Word     string // violated, undecided, skipped or passed
	Findings []finding
	More     int // findings that are not shown
}

type finding struct {
	Word, Of, Text string
	Calls          []history.Call
	More           int
}

// verdict is the one sentence about a run.
type verdict struct {
	Word                                   string // violated, undecided or passed
	Violations, Undecided, Skipped, Checks int
}

const (
	violated  = "violated"
	undecided = "undecided"
	skipped   = "skipped"
	passed    = "passed"
)

// Few findings tell what many more would.
const (
	mostFindings = 50 // of a check
	mostCalls    = 12 // of a finding
)

// judge brings the checks into the order in which they matter: violated, undecided, skipped, passed.
func judge(h *history.History, checks []Check) (all []checked, v verdict) {
	wanted := map[int64]*history.Call{}
	each := func(use func(number int64)) {
		for _, c := range checks {
			for _, found := range [][]Finding{c.Violations, c.Undecided} {
				for _, f := range found[:min(len(found), mostFindings)] {
					for _, number := range f.Calls[:min(len(f.Calls), mostCalls)] {
						use(number)
					}
				}
			}
		}
	}
	each(func(number int64) { wanted[number] = nil })
	for i := range h.Calls {
		if _, is := wanted[h.Calls[i].Number]; is {
			wanted[h.Calls[i].Number] = &h.Calls[i]
		}
	}
	for _, word := range []string{violated, undecided, skipped, passed} {
		for _, c := range checks {
			if wordOf(c) != word {
				continue
			}
			one := checked{Check: c, Word: word}
			one.take(violated, c.Violations, wanted)
			one.take(undecided, c.Undecided, wanted)
			all = append(all, one)
			v.Violations += len(c.Violations)
			v.Undecided += len(c.Undecided)
			if c.Skipped {
				v.Skipped++
			}
		}
	}
	v.Checks, v.Word = len(all), undecided
	switch {
	case v.Violations > 0:
		v.Word = violated
	case len(all) > v.Skipped && v.Undecided == 0:
		v.Word = passed
	}
	return all, v
}

func wordOf(c Check) string {
	switch {
	case len(c.Violations) > 0:
		return violated
	case len(c.Undecided) > 0:
		return undecided
	case c.Skipped:
		return skipped
	}
	return passed
}

func (c *checked) take(word string, found []Finding, calls map[int64]*history.Call) {
	for i, f := range found {
		if i == mostFindings {
			c.More += len(found) - i
			return
		}
		one := finding{Word: word, Of: f.Of, Text: f.Text, More: max(0, len(f.Calls)-mostCalls)}
		for _, number := range f.Calls[:len(f.Calls)-one.More] {
			if call := calls[number]; call != nil {
				one.Calls = append(one.Calls, *call)
			}
		}
		slices.SortFunc(one.Calls, func(a, b history.Call) int { return int(min(1, max(-1, a.Start-b.Start))) })
		c.Findings = append(c.Findings, one)
	}
}
