package check_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/check/checktest"
	"integrityledger/cmd/lab/weather/history"
)

// spoiled is a history that a test can corrupt.
type spoiled struct {
	*history.History
	t *testing.T
}

// clone returns a copy that shares the files.
func clone(t *testing.T, h *history.History) spoiled {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	next := &history.History{}
	if err := json.Unmarshal(text, next); err != nil {
		t.Fatal(err)
	}
	for i := range next.End.Log { // Marshal escapes it
		next.End.Log[i].Data = h.End.Log[i].Data
	}
	next.Directory = h.Directory
	return spoiled{next, t}
}

// find returns the first call that a test can use.
func (s spoiled) find(good func(c *history.Call) bool) *history.Call {
	for i := range s.Calls {
		if good(&s.Calls[i]) {
			return &s.Calls[i]
		}
	}
	return nil
}

// index returns the index of the first event that a test can use, or −1.
func (s spoiled) index(good func(e *history.LogEvent) bool) int {
	for i := range s.End.Log {
		if good(&s.End.Log[i]) {
			return i
		}
	}
	return -1
}

func ofType(kind string) func(*history.LogEvent) bool {
	return func(e *history.LogEvent) bool { return e.Type == kind }
}

// effect returns the index of a call's event of a type.
func (s spoiled) effect(c *history.Call, kind string) int {
	return s.index(func(e *history.LogEvent) bool { return e.RequestID == c.RequestID && e.Type == kind })
}

// renumber removes gaps from positions and sequences, in the log and in the copies of the feed.
func (s spoiled) renumber() {
	positions, sequences, of := map[int]int64{}, map[string]int64{}, map[string]int64{}
	for i := range s.End.Log {
		e := &s.End.Log[i]
		positions[e.Shard]++
		sequences[e.Organization]++
		e.Position, e.Sequence = positions[e.Shard], sequences[e.Organization]
		of[e.ID] = e.Sequence
	}
	for i := range s.End.Feed {
		s.End.Feed[i].Sequence = of[s.End.Feed[i].ID]
	}
	for i := range s.End.Stream {
		s.End.Stream[i].Event.Sequence = of[s.End.Stream[i].Event.ID]
	}
}

// drop removes an event from the log, as if it had never happened.
func (s spoiled) drop(i int) bool {
	if i < 0 {
		return false
	}
	s.End.Log = slices.Delete(s.End.Log, i, i+1)
	s.renumber()
	return true
}

// insert adds a changed copy of an event after it.
func (s spoiled) insert(i int, change func(e *history.LogEvent, data map[string]any)) bool {
	if i < 0 {
		return false
	}
	e := s.End.Log[i]
	var data map[string]any
	if err := json.Unmarshal(e.Data, &data); err != nil {
		s.t.Fatal(err)
	}
	e.ID = "evt_inserted"
	change(&e, data)
	text, err := json.Marshal(data)
	if err != nil {
		s.t.Fatal(err)
	}
	e.Data = text
	s.End.Log = slices.Insert(s.End.Log, i+1, e)
	s.renumber()
	return true
}

// setData changes a member of an event's data.
func (s spoiled) setData(i int, name string, value any) bool {
	if i < 0 {
		return false
	}
	var data map[string]any
	if err := json.Unmarshal(s.End.Log[i].Data, &data); err != nil {
		s.t.Fatal(err)
	}
	data[name] = value
	text, err := json.Marshal(data)
	if err != nil {
		s.t.Fatal(err)
	}
	s.End.Log[i].Data = text
	return true
}

// rewrite changes a file, in a separate directory.
func (s spoiled) rewrite(name string, change func([]byte) []byte) bool {
	directory := s.t.TempDir()
	err := os.CopyFS(directory, os.DirFS(s.Directory))
	s.Directory = directory
	path := filepath.Join(s.Directory, name)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = os.WriteFile(path, change(text), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return true
}

func answered(o history.Operation) func(*history.Call) bool {
	return func(c *history.Call) bool { return c.Operation == o && c.Outcome == history.Answered }
}

// created reports whether a call is a registration that created a record.
func created(c *history.Call) bool {
	return c.Operation == history.Register && c.Outcome == history.Answered && c.Status == 201 && c.Batch == 0
}

func refused(o history.Operation, code string) func(*history.Call) bool {
	return func(c *history.Call) bool { return c.Operation == o && c.Outcome == history.Refused && c.Code == code }
}

func (s spoiled) happened(o history.Operation, kind string) *history.Call {
	return s.find(func(c *history.Call) bool {
		return c.Operation == o && c.Outcome == history.Unknown && c.Batch == 0 && s.effect(c, kind) >= 0
	})
}

// TestSpoiledHistoriesFail: if a history is corrupted in one way, the intended check reports a violation.
func TestSpoiledHistoriesFail(t *testing.T) {
	t.Parallel()
	made := make([]func() *history.History, 6)
	for i := range made {
		directory := t.TempDir()
		made[i] = sync.OnceValue(func() *history.History {
			h, err := checktest.Simulate(directory, 100+uint64(i), 1500)
			if err != nil {
				panic(err)
			}
			return h
		})
	}
	for _, c := range slices.Concat(spoilWrites(), spoilLookUps(), spoilReads(), spoilCopies(), spoilProofs()) {
		t.Run(string(c.by)+": "+c.name, func(t *testing.T) {
			t.Parallel()
			for _, h := range made {
				s := clone(t, h())
				if !c.spoil(s) {
					continue
				}
				r := judge(t, s.History, options)
				if !slices.ContainsFunc(r.Violations, func(v check.Violation) bool { return v.Check == c.by }) {
					t.Errorf("not told; violations:%s", lines(r.Violations))
				}
				return
			}
			t.Fatal("no history can be spoiled in this way")
		})
	}
}

// spoil is one way to corrupt a history, and the check that must detect it. The function reports whether it could
// corrupt the history.
type spoil struct {
	name  string
	by    check.Name
	spoil func(s spoiled) bool
}
