package history

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// TestWriteAndRead: a history written concurrently is read back, with calls in order of their starts.
func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "run")
	header := Header{Seed: 7, StartedAt: "2026-11-26T10:00:00Z", Organizations: []Organization{{ID: "org_1"}}}
	w, err := Create(directory, header)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range int64(50) {
		all.Go(func() {
			w.Call(Call{
				RequestID: "r", Operation: Register, Start: 50 - i, End: 60,
				Answer: Answer{RecordAnswer: RecordAnswer{PublicID: "p"}},
			})
		})
	}
	all.Wait()
	w.Fault(Fault{Name: "kill", Target: "a", Start: 1, End: 2})
	const data = `{"payload":{"issuer":"<&>"}}`
	w.End(End{Log: &LogEvent{ID: "evt_1", Sequence: 1, Data: []byte(data)}})
	w.End(End{Usage: &Usage{Used: 3, Entries: []string{"evt_1"}}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := Read(directory)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Calls) != 50 || len(h.Faults) != 1 || len(h.End.Log) != 1 || len(h.End.Usage) != 1 ||
		!reflect.DeepEqual(h.Header, header) {
		t.Fatalf("read %d calls, %d faults, %+v, %+v", len(h.Calls), len(h.Faults), h.End, h.Header)
	}
	if got := string(h.End.Log[0].Data); got != data {
		t.Errorf("data of an event became %s", got)
	}
	for i, c := range h.Calls {
		if c.Start != int64(i+1) || c.Number == 0 || c.Answer.PublicID != "p" {
			t.Fatalf("call %d is %+v", i, c)
		}
	}
	if _, err := Create(directory, header); err == nil {
		t.Error("a second history in the same directory is not refused")
	}
}

// TestReadRefuses: an incomplete history is an error, so that no check passes for lack of entries.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const header = `{"kind":"header","header":{"startedAt":"x"}}` + "\n"
	for _, text := range []string{
		"", `{"kind":"call","call":{"requestId":"a"}}` + "\n", header + header, header + `{"kind":"call"}` + "\n",
		header + `{"kind":"end","end":{}}` + "\n",
		header + `{"kind":"end","end":{"log":{},"feed":{}}}` + "\n",
		header + `{"kind":"call","call":{"requestId":"a","start":2,"end":1}}` + "\n",
		header + `{"kind":"call","call":{"operation":"register"}}` + "\n", header + `{"kind":"fau`,
		strings.TrimSuffix(header, "\n"),
	} {
		directory := t.TempDir()
		if err := os.WriteFile(filepath.Join(directory, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(directory); err == nil {
			t.Errorf("not refused: %q", text)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status   int
		complete bool
		want     Outcome
	}{
		{200, true, Answered}, {201, true, Answered}, {201, false, Unknown}, {0, false, Unknown}, {408, true, Unknown},
		{500, true, Unknown},
		{502, false, Unknown}, {503, true, Unknown}, {409, true, Refused}, {429, true, Refused}, {401, true, Refused},
		{404, true, Refused},
	} {
		if got := Judge(c.status, c.complete); got != c.want {
			t.Errorf("%d, complete %t: %s, must be %s", c.status, c.complete, got, c.want)
		}
	}
}
