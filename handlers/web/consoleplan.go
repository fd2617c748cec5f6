package web

import (
	"time"

	"integrityledger/domain"
)

// PlanPage is the page of the plan, and of what months have used of it.
type PlanPage struct {
	Console          Console
	Plan             string
	Resets           time.Time
	Allowances       []Allowance // of this month
	Warnings         []Warning
	Months           []Month // newest first
	Period           domain.Period
	Entries          []Entry
	Used             int64 // in the period
	First, Next, CSV string
}

// Warning is a part of an allowance that was reached.
type Warning struct {
	Allowance string
	Percent   int
	At        time.Time
}

// Month is what one has used.
type Month struct {
	Period domain.Period
	Used   []int64 // in the order of PlanPage.Allowances
	Shown  bool    // its entries are
}

// Entry is a new version, which an allowance was charged with.
type Entry struct {
	At                                  time.Time
	PublicID, Company, Source, Document string
	Version                             int32
}

// PlanPage renders it.
func (s *Site) PlanPage(p PlanPage) ([]byte, error) {
	return render(s.console, "plan.html", struct {
		consoleFrame
		PlanPage
	}{s.consoleFrame(p.Console), p})
}
