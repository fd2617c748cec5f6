package check

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"integrityledger/cmd/lab/weather/history"
)

func newChecker(size int) *checker {
	return &checker{Options: Options{Limit: time.Minute}, small: size, report: Report{Counts: map[string]int64{}}}
}

// random returns a random line of a counter, with reads that agree with some of its states.
func random(r *rand.Rand, writes, reads int) *line[int] {
	l := &line[int]{check: Version, of: "random"}
	var latest int64
	for i := range writes {
		c := &history.Call{Number: int64(i)}
		latest += r.Int64N(6)
		w := write[int]{event: &event{LogEvent: &history.LogEvent{Sequence: int64(i + 1)}}, call: c,
			after: max(0, latest-r.Int64N(8)), apply: func(n int) (int, string) {
				return n + 1, ""
			}}
		w.before = max(latest, w.after) + r.Int64N(8)
		l.writes = append(l.writes, w)
	}
	for i := range reads {
		start := r.Int64N(latest + 10)
		c := &history.Call{Number: int64(writes + i), Start: start, End: start + r.Int64N(10)}
		if r.IntN(4) == 0 {
			c.Request.ReadAfter = new(r.Int64N(int64(writes + 1)))
		}
		first := r.IntN(writes + 1)
		last := first + r.IntN(3)
		l.observe(c, fmt.Sprint(first, last), func(n int) bool { return n >= first && n <= last })
	}
	return l
}

// plain decides a line with porcupine alone, with all of its reads.
func plain(l *line[int]) bool {
	l.place()
	var list []porcupine.Operation
	for i, w := range l.writes {
		list = append(list, porcupine.Operation{ClientId: i, Input: i, Call: w.after, Return: w.before})
	}
	for i, r := range l.reads {
		list = append(list, porcupine.Operation{ClientId: len(list), Input: -1 - i, Call: r.start, Return: r.end})
	}
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			n, i := state.(int), input.(int)
			if i >= 0 {
				return n == i, n + 1
			}
			r := l.reads[-1-i]
			return r.holds(n) && (r.least == nil || n >= r.lo), n
		},
	}, list)
}

// TestReductionsKeepTheVerdict: dropping reads, narrowing and cutting change no verdict.
func TestReductionsKeepTheVerdict(t *testing.T) {
	t.Parallel()
	verdicts := map[bool]int{}
	seeds := uint64(6000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		build := func() *line[int] {
			r := rand.New(rand.NewPCG(seed, 2))
			return random(r, 1+r.IntN(7), r.IntN(6))
		}
		want := plain(build())
		verdicts[want]++
		for _, size := range []int{small, 0} {
			c := newChecker(size)
			decide(c, build())
			if got := c.report.Good(); got != want {
				t.Fatalf("seed %d, at most %d at once: good is %t, but must be %t: %v", seed, size, got, want, c.report.Violations)
			}
		}
	}
	if verdicts[true] < 100 || verdicts[false] < 100 {
		t.Errorf("the lines are too much alike: %v", verdicts)
	}
}

// TestLongLines: a long line is decided in segments, and a single stale read in it is found.
func TestLongLines(t *testing.T) {
	t.Parallel()
	const writes = 8_000
	long := func(stale bool) *line[int] {
		r := rand.New(rand.NewPCG(1, 3))
		l := &line[int]{check: Sequence, of: "long"}
		for i := range int64(writes) {
			at := 100 * (i + 1)
			w := write[int]{event: &event{LogEvent: &history.LogEvent{Sequence: i + 1}}, call: &history.Call{},
				apply: func(n int) (int, string) {
					return n + 1, ""
				}}
			w.after, w.before = max(0, at-r.Int64N(900)), at+r.Int64N(900)
			l.writes = append(l.writes, w)
			read := &history.Call{Start: max(0, at-r.Int64N(900)), End: at + r.Int64N(900)}
			seen := int(i) + 1 // right after the write
			if stale && i == writes/2 {
				seen -= 30
			}
			if i%2 == 0 {
				l.observe(read, fmt.Sprint(seen), func(n int) bool { return n == seen })
			} else { // the text of two states
				l.observe(read, fmt.Sprint(seen, " or the next"), func(n int) bool { return n == seen || n == seen+1 })
			}
		}
		return l
	}
	for _, stale := range []bool{false, true} {
		c := newChecker(small)
		decide(c, long(stale))
		if c.report.Good() == stale || len(c.report.Undecided) > 0 {
			t.Errorf("stale %t: %v %v", stale, c.report.Violations, c.report.Undecided)
		}
	}
}

// TestUndecided: a line not decided in time is reported as undecided, not as passed.
func TestUndecided(t *testing.T) {
	t.Parallel()
	c := newChecker(small)
	c.Limit = 1 // a nanosecond
	r := rand.New(rand.NewPCG(4, 2))
	for range 50 {
		l := random(r, 200, 200)
		for i := range l.reads {
			l.reads[i].start, l.reads[i].end, l.reads[i].least = 0, never, nil
		}
		for i := range l.writes {
			l.writes[i].after, l.writes[i].before = 0, never
		}
		decide(c, l)
	}
	if len(c.report.Undecided) == 0 || c.report.Good() {
		t.Errorf("undecided: %v", c.report.Undecided)
	}
}
