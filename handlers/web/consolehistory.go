package web

import (
	"time"

	"integrityledger/domain"
)

// History is a page of what has happened.
type History struct {
	Console        Console
	Events         []Happened
	Actions        []string // that there are
	Action, Target string   // the filter
	Older          string   // address of the events before; empty: there are no others
	Export         string   // address of the bundle for auditors; empty: not for this role
	Length         int64    // how many events the history has
	New            string   // address of what happens after; empty: the page does not show the newest
}

// Happened is an event.
type Happened struct {
	At               time.Time
	Action, Target   string
	Actor, ActorName string // the name is the address of a member
	Gone             bool   // the target is deleted
	Sequence         int64
}

type historyFrame struct {
	consoleFrame
	History
}

// TargetPage is the page for what an event is about. A public id names a record once it is registered; a destination
// that was deleted has no page.
func (f historyFrame) TargetPage(e Happened) string {
	switch domain.EventType(e.Action) {
	case domain.RecordRegistered, domain.RecordSuperseded, domain.RecordRevoked:
		return f.Page("/records/" + e.Target)
	}
	if e.Gone {
		return ""
	}
	return f.PageOf(e.Target)
}

// History renders it.
func (s ConsolePages) History(h History) ([]byte, error) {
	f := historyFrame{s.consoleFrame(h.Console), h}
	f.Script = "consolehistory.js"
	return render(s.console, "history.html", f)
}

// HistoryRows renders the rows of the events alone.
func (s ConsolePages) HistoryRows(h History) ([]byte, error) {
	return render(s.console, "history-rows", historyFrame{s.consoleFrame(h.Console), h})
}
