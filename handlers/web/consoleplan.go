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
	Reservations     []Allowance // at present
	Day              Allowance   // of this day
	Tomorrow         time.Time   // when it resets
	Months           []Month     // newest first
	Period           domain.Period
	Entries          []Entry
	Used             int64 // in the period
	First, Next, CSV string
}

// Allowance is what the month has used of one.
type Allowance struct {
	Name  string
	Used  int64
	Limit *int64 // nil: none
	Marks []Mark // lowest first
}

// Mark is a part of an allowance at which the organization is warned.
type Mark struct {
	Percent   int
	ReachedAt *time.Time // nil: not this month under this limit
}

// Remaining is what is left, nil without a limit.
func (a Allowance) Remaining() *int64 { return domain.Usage{Limit: a.Limit, Used: a.Used}.Remaining() }

// Percent is the part that was used, from 0 to 100, rounded down.
func (a Allowance) Percent() int64 {
	if a.Limit == nil || *a.Limit <= 0 || a.Used >= *a.Limit {
		return 100
	}
	return max(0, int64(float64(a.Used)/float64(*a.Limit)*100))
}

// Level says in a word how much is left.
func (a Allowance) Level() string {
	switch percent := int(a.Percent()); {
	case a.Limit == nil:
		return ""
	case percent >= 100:
		return "used-up"
	case len(a.Marks) > 0 && percent >= a.Marks[0].Percent:
		return "near"
	default:
		return ""
	}
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
func (s ConsolePages) PlanPage(p PlanPage) ([]byte, error) {
	type allowances struct {
		consoleFrame
		Allowances []Allowance
	}
	frame := s.consoleFrame(p.Console)
	return render(s.console, "plan.html", struct {
		consoleFrame
		PlanPage
		Daily, Reserved allowances
	}{frame, p, allowances{frame, []Allowance{p.Day}}, allowances{frame, p.Reservations}})
}
