package web

import (
	"cmp"
	"time"

	"integrityledger/domain"
)

// History is a page of the history.
type History struct {
	Console        Console
	Events         []Happened
	Actions        []string    // all actions
	Action, Target string      // the filter, as typed
	Author         string      // the filter, as typed
	UnknownAuthor  bool        // as Unknown
	Unknown        bool        // nothing has the typed name, so the events are not filtered by it
	Versions       []RecordRow // that have the typed reference, if there are several; the events are not filtered
	Older          string      // address of the earlier events; may be empty
	Export         string      // address of the bundle for auditors; empty if the role may not export
	Length         int64       // number of events in the history
	New            string      // address of new events; empty if the page does not show the newest
}

// Happened is an event of the history.
type Happened struct {
	At                 time.Time
	Action             string
	Target, TargetName string // an id, and what people call it, which may be empty
	TargetVersion      int32  // of a record
	Actor, ActorName   string
	Company            string // to which the target got or lost access; may be empty
	Through            string // the stored actor, if it is not Actor itself; usually empty
	Gone               bool   // the target is deleted
	Reason             string // of a revocation; may be empty
	Change             Change
	Outcome            string // what the event did, among the texts of its type; may be empty
	Sequence           int64
}

// Change is how an event left its target, as far as the event says it.
type Change struct {
	Role, Status     *string
	Enabled, Renewed *bool
}

type historyFrame struct {
	consoleFrame
	History
}

// Did returns what an event did, in the words for its outcome or else for its type.
func (f historyFrame) Did(e Happened) any {
	words := f.C["HistoryPage"].(map[string]any)
	outcomes, _ := words["Done"].(map[string]any)[e.Action].(map[string]any)
	return cmp.Or(outcomes[e.Outcome], words["Events"].(map[string]any)[e.Action])
}

// TargetPage returns the page of an event's target. A public id names a record once it is registered. A deleted
// destination has no page.
func (f historyFrame) TargetPage(e Happened) string {
	switch domain.EventType(e.Action) {
	case domain.RecordRegistered, domain.RecordHealed, domain.RecordSuperseded, domain.RecordRevoked:
		return f.Page("/records/" + e.Target)
	case domain.VersionReserved, domain.VersionReleased:
		if f.Role.Allows(domain.IntegrityWrite) {
			return f.Page("/records/" + e.Target + "/file")
		}
	}
	if e.Gone {
		return ""
	}
	return f.PageOf(e.Target)
}

// History renders a page of the history.
func (s ConsolePages) History(h History) ([]byte, error) {
	f := historyFrame{s.consoleFrame(h.Console), h}
	f.Script = "consolehistory.js"
	return s.renderConsole("history.html", f)
}

// HistoryRows renders only the rows of the events.
func (s ConsolePages) HistoryRows(h History) ([]byte, error) {
	return s.renderConsole("history-rows", historyFrame{s.consoleFrame(h.Console), h})
}
