package strictjson

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"integrityledger/domain/strictjson/jsontest"
)

func decode(t *testing.T, text string) *Object {
	t.Helper()
	v, err := Parse([]byte(text), 8)
	if err != nil {
		t.Fatal(err)
	}
	return Decode(v)
}

// codes lists the problems as "pointer CODE".
func codes(problems []Problem) []string {
	var list []string
	for _, p := range problems {
		list = append(list, p.Pointer+" "+p.Code)
	}
	return list
}

func TestEveryProblemAtOnce(t *testing.T) {
	o := decode(t, `{"SHA256":"x","sha_256":1,"version":1.0,"size":-1,"when":null,"title":"","list":["a",1,"\u0000"],
		"inner":{"a/b~c":true,"x":1,"x":2},"items":[{"n":1},3,{"N":2}],"kind":"word","kind":"word","flag":"true","wrong":{}}`)
	o.String("sha256", Required)
	o.Int("version", 1, 10, Required)
	o.Int("size", 0, MaxInteger, Required)
	o.String("when", Optional)
	o.Sized("title", Required, 1, 3)
	o.StringList("list", Required, 0, AnyLength)
	inner := o.Object("inner", Required)
	inner.String("x", Required)
	for _, item := range o.Objects("items", Required, 0, AnyLength) {
		item.Int("n", 0, 9, Required)
	}
	o.Match("kind", Required, regexp.MustCompile(`^[0-9]+$`).MatchString, "must be digits")
	o.Bool("flag", Required)
	o.StringList("wrong", Required, 0, 1)
	o.ElementProblem("list", 7, "MINE", "…")
	o.Problem("", "WHOLE", "…")
	want := []string{
		"/sha256 REQUIRED", "/version INTEGER", "/size RANGE", "/when TYPE", "/title LENGTH", "/list/1 TYPE", "/list/2 NUL",
		"/inner/x TYPE", "/items/1 TYPE", "/items/2/n REQUIRED", "/kind FORMAT", "/flag TYPE", "/wrong TYPE",
		"/list/7 MINE", " WHOLE",
		"/SHA256 UNKNOWN_MEMBER", "/sha_256 UNKNOWN_MEMBER", "/kind DUPLICATE_MEMBER",
		"/inner/a~1b~0c UNKNOWN_MEMBER", "/inner/x DUPLICATE_MEMBER", "/items/2/N UNKNOWN_MEMBER",
	}
	problems := o.Problems()
	if got := codes(problems); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !reflect.DeepEqual(problems, o.Problems()) {
		t.Error("asking twice gives another answer")
	}
	for _, p := range problems {
		if p.Pointer == "/SHA256" && !strings.Contains(p.Message, "did you mean sha256?") {
			t.Errorf("no hint: %s", p.Message)
		}
	}
}

func TestReadsWhatIsRight(t *testing.T) {
	o := decode(
		t,
		`{"s":"é","n":-5,"none":null,"some":7,"yes":true,"list":["a","b"],"text":"x","inner":{"k":{}},"values":[1,"a"],"any":[{}]}`,
	)
	if got := o.String("s", Required); got != "é" {
		t.Error(got)
	}
	if got := o.Int("n", -5, 5, Required); got != -5 {
		t.Error(got)
	}
	if o.NullableInt("none", 0, 9, Required) != nil || o.NullableInt("absent", 0, 9, Optional) != nil {
		t.Error("not nil")
	}
	if got := o.NullableInt("some", 0, 9, Required); got == nil || *got != 7 {
		t.Error(got)
	}
	if got := o.NullableString("text", Required); got == nil || *got != "x" {
		t.Error(got)
	}
	if o.NullableString("none", Required) != nil {
		t.Error("not nil")
	}
	if !o.Bool("yes", Required) || o.Bool("no", Optional) || !o.Has("yes") || o.Has("no") {
		t.Error("booleans")
	}
	if got := o.StringList("list", Required, 0, AnyLength); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Error(got)
	}
	inner := o.Object("inner", Required)
	if !inner.Present() || !reflect.DeepEqual(inner.Names(), []string{"k"}) || !inner.Object("k", Required).Present() {
		t.Error("inner")
	}
	if got := o.Values("values", Required, 2, 2); len(got) != 2 || got[1].Text() != "a" {
		t.Error(got)
	}
	if o.Value("any", Required).Len() != 1 || !o.OK("s") || o.OK("absent") {
		t.Error("any")
	}
	if p := o.Problems(); p != nil {
		t.Error(p)
	}
}

func TestAnAbsentObjectIsOneProblem(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:      {"/o REQUIRED"},
		`{"o":1}`: {"/o TYPE"},
	} {
		o := decode(t, text)
		inner := o.Object("o", Required)
		inner.String("a", Required)
		inner.Object("b", Required).Int("c", 0, 1, Required)
		if got := codes(o.Problems()); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := codes(decode(t, `[]`).Problems()); !reflect.DeepEqual(got, []string{" TYPE"}) {
		t.Errorf("%q", got)
	}
}

func TestIntegers(t *testing.T) {
	for text, code := range map[string]string{
		"0": "", "-1": "", "9007199254740991": "", "-9007199254740991": "",
		"9007199254740992": CodeRange, "-9007199254740992": CodeRange, "18446744073709551616": CodeRange,
		strings.Repeat("9", 400): CodeRange,
		"-0":                     CodeInteger, "1.0": CodeInteger, "1e0": CodeInteger, "1E2": CodeInteger,
		"0.0": CodeInteger, "1e-1": CodeInteger, "-0.0": CodeInteger,
		`"1"`: CodeType, "true": CodeType, "null": CodeType, "[1]": CodeType,
	} {
		o := decode(t, fmt.Sprintf(`{"n":%s}`, text))
		n := o.Int("n", MinInteger, MaxInteger, Required)
		var got string
		if p := o.Problems(); p != nil {
			got = p[0].Code
		}
		if got != code {
			t.Errorf("%.30s: %q, want %q", text, got, code)
		}
		if want, err := strconv.ParseInt(text, 10, 64); code == "" && (err != nil || n != want) {
			t.Errorf("%s was read as %d", text, n)
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	o := decode(t, `{"a":0`+strings.Repeat(`,"a":0,"b":0`, 1)+`}`)
	if got := codes(o.Problems()); !reflect.DeepEqual(
		got, []string{"/a UNKNOWN_MEMBER", "/a DUPLICATE_MEMBER", "/b UNKNOWN_MEMBER"},
	) {
		t.Errorf("%q", got)
	}
	o = decode(t, `{"a":0,"b":0,"c":0,"b":0,"a":0,"a":0}`)
	o.Int("b", 0, 0, Required)
	if got := codes(o.Problems()); !reflect.DeepEqual(
		got, []string{"/a UNKNOWN_MEMBER", "/c UNKNOWN_MEMBER", "/b DUPLICATE_MEMBER", "/a DUPLICATE_MEMBER"},
	) {
		t.Errorf("not in the order of the text: %q", got)
	}
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	problems := decode(t, `{`+b.String()[1:]+`}`).Problems()
	if len(problems) != MaxProblems || problems[MaxProblems-1].Code != CodeMore ||
		problems[MaxProblems-2].Pointer != "/m98" {
		t.Errorf("%d problems: %v", len(problems), problems[len(problems)-2:])
	}
	if again := Listed(problems, MaxProblems); !reflect.DeepEqual(again, problems) {
		t.Errorf("listed again: %d problems", len(again))
	}
	problems = decode(t, `{`+strings.Join(strings.Split(b.String(), ",")[1:MaxProblems+1], ",")+`}`).Problems()
	if len(problems) != MaxProblems || problems[MaxProblems-1].Code != CodeUnknown {
		t.Errorf("%d problems: %v", len(problems), problems[len(problems)-1])
	}
}

// FuzzObject: reading never panics, and a text without problems has exactly the requested members.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"s":"a","n":1,"o":{"b":true},"l":["x"],"i":[{"q":null}]}`))
	f.Add([]byte(`{"s":"a","s":"b","N":1.0,"o":[],"l":{},"i":[1]}`))
	for _, shape := range jsontest.Shapes(2000, "s", "n", "o", "l", "i") {
		f.Add(shape.Text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data, 4)
		if err != nil {
			return
		}
		o := Decode(v)
		o.String("s", Required)
		o.Int("n", -10, 10, Required)
		o.Object("o", Required).Bool("b", Required)
		o.StringList("l", Optional, 0, 3)
		for _, item := range o.Objects("i", Optional, 1, 4) {
			item.NullableInt("q", 0, 1, Optional)
		}
		if len(o.Problems()) > 0 {
			return
		}
		for _, m := range v.Members() {
			if !slices.Contains([]string{"s", "n", "o", "l", "i"}, m.Name) {
				t.Fatalf("%q was let through", m.Name)
			}
		}
	})
}

// TestOKKnowsWhatIsWithin: OK reports problems at any depth within a member, but not its neighbours' problems.
func TestOKKnowsWhatIsWithin(t *testing.T) {
	o := decode(t, `{"o":{"p":{"x":1,"y":""}},"l":[{"x":""},{"x":1}],"good":{"x":""},"go":{"x":1}}`)
	inner := o.Object("o", Required)
	deep := inner.Object("p", Required)
	deep.String("x", Required)
	deep.String("y", Required)
	for _, item := range o.Objects("l", Required, 0, 9) {
		item.String("x", Required)
	}
	good := o.Object("good", Required)
	good.String("x", Required)
	o.Object("go", Required).String("x", Required)
	want := map[string]bool{"o": false, "l": false, "good": true, "go": false, "absent": false}
	for name, ok := range want {
		if o.OK(name) != ok {
			t.Errorf("%s: %t", name, !ok)
		}
	}
	if inner.OK("p") || deep.OK("x") || !deep.OK("y") || !good.OK("x") {
		t.Error("within")
	}
	deep.Problem("", "WHOLE", "…")
	if good.Problem("", "WHOLE", "…"); o.OK("good") || !good.OK("x") || !deep.OK("y") {
		t.Error("a problem of an object is one of the member that it is, and of none of its own")
	}
}

// TestBind: a bound text is read in place of a member, which is reported as unknown, after the problems of other
// members.
func TestBind(t *testing.T) {
	o := decode(t, `{"id":"of the text"}`)
	o.Also([]Problem{{Pointer: "/page", Code: CodeParameter}})
	o.Bind(map[string]string{"id": "of\x00the path"})
	if id := o.String("id", Required); id != "of\x00the path" {
		t.Errorf("read %q", id)
	}
	if got := codes(o.Problems()); !slices.Equal(got, []string{"/page " + CodeParameter, "/id " + CodeUnknown}) {
		t.Errorf("problems: %v", got)
	}
}
