package check

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"integrityledger/cmd/lab/weather/history"
)

// maxDrawn is the largest number of calls on a run's page. More would make it slow to open.
const maxDrawn = 400

// Draw writes porcupine's page of a run: the calls in violations, and the calls that stayed unknown or took longest, in
// rows by client, beside the faults in rows by target. The axis shows the order of times, not their distance.
func Draw(w io.Writer, h *history.History, r Report) error {
	named := map[int64]bool{}
	for _, v := range slices.Concat(r.Violations, r.Undecided) {
		for _, number := range v.Calls {
			named[number] = true
		}
	}
	rank := func(c *history.Call) int {
		switch {
		case named[c.Number]:
			return 0
		case c.Outcome == history.Unknown:
			return 1
		}
		return 2
	}
	calls := make([]*history.Call, len(h.Calls))
	for i := range h.Calls {
		calls[i] = &h.Calls[i]
	}
	slices.SortStableFunc(calls, func(a, b *history.Call) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.End-b.Start, a.End-a.Start))
	})
	list := annotations(h.Faults)
	for _, c := range calls[:min(len(calls), maxDrawn)] {
		colour := "#aed6f1"
		if rank(c) == 0 {
			colour = "#f1948a"
		}
		list = append(list, porcupine.Annotation{
			Tag: c.Client, Start: c.Start, End: c.End, BackgroundColor: colour, TextColor: "#000000",
			Description: fmt.Sprintf("%d %s: %s", c.Number, c.Operation, c.Outcome),
			Details: fmt.Sprintf("%s %d %s, asked %s, request %s",
				time.Duration(c.End-c.Start), c.Status, c.Code, c.Service, c.RequestID),
		})
	}
	// Nothing is judged here; the lines are judged one by one.
	model := porcupine.Model{Init: func() any { return 0 }, Step: func(any, any, any) (bool, any) { return true, 0 }}
	_, info := porcupine.CheckOperationsVerbose(model, nil, 0)
	info.AddAnnotations(list)
	return porcupine.Visualize(model, info, w)
}

// annotations converts the faults to porcupine's form, with a row for each target.
func annotations(faults []history.Fault) (list []porcupine.Annotation) {
	for _, f := range faults {
		list = append(list, porcupine.Annotation{
			Tag:   " " + f.Target, // porcupine sorts its rows: a space puts these above the clients
			Start: f.Start, End: f.End, Description: f.Name, Details: f.Detail,
			BackgroundColor: "#f5b7b1", TextColor: "#000000",
		})
	}
	return list
}

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// draw writes porcupine's page of an illegal line, with the faults during it.
func (c *checker) draw(name string, model porcupine.Model, info porcupine.LinearizationInfo, from, to int64) {
	elsewhere := func(f history.Fault) bool { return f.End < from || f.Start > to }
	info.AddAnnotations(annotations(slices.DeleteFunc(slices.Clone(c.Faults), elsewhere)))
	path := filepath.Join(c.Picture, unsafeName.ReplaceAllString(name, "_")+".html")
	err := os.MkdirAll(c.Picture, 0o750)
	if err == nil {
		err = porcupine.VisualizePath(model, info, path)
	}
	if err != nil {
		c.violate(Verdict, name, nil, "its picture could not be drawn: %v", err)
	}
}
