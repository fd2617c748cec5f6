package web

import (
	"time"

	"integrityledger/domain"
)

// PlanPage is the page of the plan and of its use by month.
type PlanPage struct {
	Console          Console
	Plan             string
	Resets           time.Time
	Allowances       []Allowance // of this month
	Backfill         []Allowance // empty if none is left
	Reservations     []Allowance // at present
	Day              Allowance   // of this day
	Tomorrow         time.Time   // when it resets
	Months           []Month     // newest first
	Period           domain.Period
	Entries          []Entry
	Used             int64 // in the period
	First, Next, CSV string
}

// Allowance is the use of an allowance.
type Allowance struct {
	Name  string
	Used  int64
	Limit *int64 // nil if there is no limit
	Marks []Mark // lowest first
}

// Mark is a percentage of an allowance at which the organization is warned.
type Mark struct {
	Percent     int
	ReachedAt   *time.Time // nil if not reached this month under this limit
	Used, Limit int64      // when it was reached
}

// Remaining returns the rest of the allowance, or nil without a limit.
func (a Allowance) Remaining() *int64 { return domain.Usage{Limit: a.Limit, Used: a.Used}.Remaining() }

// Percent returns the used part, from 0 to 100, rounded down.
func (a Allowance) Percent() int64 {
	if a.Limit == nil || *a.Limit <= 0 || a.Used >= *a.Limit {
		return 100
	}
	return max(0, int64(float64(a.Used)/float64(*a.Limit)*100))
}

// Level returns a word for how much is left.
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

// Month is the use of a month.
type Month struct {
	Period domain.Period
	Used   []int64 // in the order of PlanPage.Allowances
	Shown  bool    // the page shows its entries
}

// Entry is a new version that counts against the allowance.
type Entry struct {
	At                                  time.Time
	PublicID, Company, Source, Document string
	Version                             int32
}

// PlanPage renders the page of the plan.
func (s ConsolePages) PlanPage(p PlanPage) ([]byte, error) {
	type allowances struct {
		consoleFrame
		Allowances []Allowance
	}
	frame := s.consoleFrame(p.Console)
	return s.renderConsole("plan.html", struct {
		consoleFrame
		PlanPage
		Backfilled, Daily, Reserved allowances
	}{
		frame, p, allowances{frame, p.Backfill}, allowances{frame, []Allowance{p.Day}}, allowances{frame, p.Reservations},
	})
}
