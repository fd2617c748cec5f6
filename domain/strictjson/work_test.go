package strictjson

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"integrityledger/domain/strictjson/jsontest"
)

// stepsPerByte and fixedSteps bound the work of reading any text.
const (
	stepsPerByte = 16
	fixedSteps   = 50_000 // 100 problems with the longest names that are shown
)

// everything reads members of all kinds, and names that are data.
func everything(o *Object) {
	o.String("s", Required)
	o.Sized("sized", Optional, 1, 9)
	o.Match("m", Optional, func(s string) bool { return s == "m" }, "must be m")
	o.Int("n", 0, 9, Required)
	o.NullableInt("nullable", 0, 9, Optional)
	o.Bool("b", Optional)
	o.StringList("list", Optional, 0, AnyLength)
	o.Values("values", Optional, 0, AnyLength)
	for _, item := range o.Objects("items", Optional, 0, AnyLength) {
		item.String("x", Required)
		item.OK("x")
	}
	data := o.Object("data", Optional)
	for _, name := range data.Names() {
		inner := data.Object(name, Required)
		inner.String("since", Required)
		if !inner.OK("since") || !data.OK(name) {
			data.Problem(name, "MINE", "must be another")
		}
	}
	for _, name := range []string{"s", "sized", "m", "n", "list", "items", "data"} {
		o.OK(name)
	}
}

// TestWorkIsLinear: the work is proportional to the text's length. The same bound for two lengths, one sixteen times
// the other, rules out quadratic time.
func TestWorkIsLinear(t *testing.T) {
	for _, size := range []int{8 << 10, 128 << 10} {
		for _, shape := range jsontest.Shapes(size, "s", "n", "sized", "m", "list", "values", "items", "data") {
			var meter Meter
			v, err := meter.Parse(shape.Text, 32)
			problems := 0
			if err == nil {
				o := meter.Decode(v)
				everything(o)
				if collected := len(o.report.problems); collected > MaxProblems+1 {
					t.Errorf("%s: %d problems were collected", shape.Name, collected)
				}
				problems = len(o.Problems())
			}
			if steps := meter.Steps(); steps > stepsPerByte*int64(len(shape.Text))+fixedSteps {
				t.Errorf("%s: %d bytes took %d steps", shape.Name, len(shape.Text), steps)
			}
			if problems > MaxProblems {
				t.Errorf("%s: %d problems", shape.Name, problems)
			}
		}
	}
}

// TestProblemsTakeLittleMemory: steps do not measure memory, but the memory for a problem is about the length of its
// text.
func TestProblemsTakeLittleMemory(t *testing.T) {
	var text strings.Builder
	for i := range MaxProblems {
		fmt.Fprintf(&text, `,"~/_%d":0`, i)
	}
	o := decode(t, "{"+text.String()[1:]+"}")
	everything(o)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	problems := o.Problems()
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; len(problems) != MaxProblems || made > 100_000 {
		t.Errorf("%d problems took %d bytes", len(problems), made)
	}
}

func TestStop(t *testing.T) {
	asked := 0
	meter := &Meter{Stop: func() bool { asked++; return asked == 3 }}
	if _, err := meter.Parse([]byte("["+strings.Repeat("0,", 100_000)+"0]"), 8); !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
	if steps := meter.Steps(); asked != 3 || steps > 200_003+2*3*stopInterval {
		t.Errorf("asked %d times, %d steps", asked, steps)
	}
}

// TestImpossibleLists: a list that is too long or too short is one problem, and its elements are not read.
func TestImpossibleLists(t *testing.T) {
	for _, text := range []string{`{"l":[1,{"a":1},"x",null]}`, `{"l":[]}`} {
		for name, read := range map[string]func(o *Object) int{
			"strings": func(o *Object) int { return len(o.StringList("l", Required, 0, 3)) },
			"objects": func(o *Object) int { return len(o.Objects("l", Required, 1, 3)) },
			"values":  func(o *Object) int { return len(o.Values("l", Required, 1, 3)) },
		} {
			if name == "strings" && text == `{"l":[]}` {
				continue // a list of strings may be empty
			}
			o := decode(t, text)
			if n := read(o); n != 0 || o.OK("l") {
				t.Errorf("%s: %d elements were read", name, n)
			}
			if problems := o.Problems(); len(problems) != 1 || problems[0].Pointer != "/l" || problems[0].Code != CodeLength {
				t.Errorf("%s: %v", name, problems)
			}
		}
	}
}

// TestLongNamesAreNotRepeated: a problem never repeats a long name.
func TestLongNamesAreNotRepeated(t *testing.T) {
	long := strings.Repeat("a", 1<<16)
	problems := decode(t, `{"x":{"`+long+`":0,"`+long+`":1}}`).Problems()
	if len(problems) != 1 || problems[0].Pointer != "/x" {
		t.Fatalf("%.200v", problems)
	}
	o := decode(t, `{"x":{"`+long+`":0,"`+long+`":1}}`)
	o.Object("x", Required)
	problems = o.Problems()
	if len(problems) != 2 || problems[0].Pointer != "/x" || problems[0].Code != CodeUnknown ||
		problems[1].Code != CodeDuplicate || len(problems[0].Message) > 100 {
		t.Fatalf("%.200v", problems)
	}
}

func TestLengthIsThatOfTheText(t *testing.T) {
	v, err := Parse([]byte(` { "a" : [ 1 , 2 ] , "b":"x"} `), 8)
	if err != nil {
		t.Fatal(err)
	}
	list := v.Members()[0].Value
	if v.Length() != len(`{ "a" : [ 1 , 2 ] , "b":"x"}`) || list.Length() != len(`[ 1 , 2 ]`) ||
		v.Members()[1].Value.Length() != 0 {
		t.Errorf("%d, %d", v.Length(), list.Length())
	}
}
