package strictjson

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"integrityledger/domain/say"
)

// TestQueryKeepsItsWords pins the published codes, messages and their order.
func TestQueryKeepsItsWords(t *testing.T) {
	values, err := url.ParseQuery(
		"b=1&b=2&n=1.0&m=99&yes=maybe&word=x&unknown=1&unknown=2&Absent=1&empty=&list=a&list=b&a%2Fb=1&huge=99999999999999999999",
	)
	if err != nil {
		t.Fatal(err)
	}
	o := Query(values)
	o.String("b", Optional)
	if o.String("b", Optional) != "" || !o.Has("b") {
		t.Error("a repeated parameter has a value")
	}
	o.Int("n", 1, 10, Optional)
	o.Int("m", 1, 10, Optional)
	o.Int("huge", 1, 10, Optional)
	o.Bool("yes", Optional)
	o.Match("word", Optional, func(string) bool { return false }, "must be a word")
	o.String("absent", Required)
	if empty := o.NullableString("empty", Optional); empty == nil {
		t.Error("an empty parameter was taken for null")
	}
	if list := o.StringList("list", Optional, 0, 9); !slices.Equal(list, []string{"a", "b"}) {
		t.Error(list)
	}
	want := []Problem{
		NewProblem("/b", CodeDuplicate, "the %s appears more than once", say.Word("parameter")),
		NewProblem("/n", CodeInteger, "must be an integer in plain digits"),
		NewProblem("/m", CodeRange, "must be an integer from %d to %d", int64(1), int64(10)),
		NewProblem("/huge", CodeInteger, "must be an integer in plain digits"),
		NewProblem("/yes", CodeFormat, "must be true or false"),
		NewProblem("/word", CodeFormat, "must be a word"),
		NewProblem("/absent", CodeRequired, "the %s is required", say.Word("parameter")),
	}
	if wrong := o.Wrong(); !reflect.DeepEqual(wrong, want) {
		t.Errorf("wrong: %v", wrong)
	}
	for _, name := range []string{"/Absent", "/a~1b", "/unknown"} {
		want = append(want, NewProblem(name, "UNKNOWN_PARAMETER", "there is no such parameter"))
	}
	if problems := o.Problems(); !reflect.DeepEqual(problems, want) {
		t.Errorf("problems: %v", problems)
	}
}

func TestFieldsAreWhatBrowsersSend(t *testing.T) {
	o := Fields(url.Values{
		"text": {" two\r\nlines "}, "empty": {" "}, "step": {""}, "source": {""}, "n": {" 7"}, "consent": {"on"},
		"enabled": {"false"},
		"ticked":  {"a ", "b"}, "more": {"not asked for"},
	}, "ticked", "none")
	if got := o.String("text", Required); got != "two\nlines" {
		t.Errorf("%q", got)
	}
	if o.String("empty", Required) != "" || o.NullableString("source", Optional) != nil ||
		o.NullableInt("step", 1, 9, Optional) != nil {
		t.Error("an empty field is not null to a method that takes null, and empty to others")
	}
	if o.Int("n", 1, 9, Required) != 7 || !o.Bool("consent", Required) || o.Bool("enabled", Required) ||
		o.Bool("unticked", Optional) {
		t.Error("an integer and boxes")
	}
	if list := o.StringList("ticked", Required, 0, 2); !slices.Equal(list, []string{"a", "b"}) {
		t.Error(list)
	}
	if list := o.StringList("none", Required, 0, 2); !o.Has("none") || list == nil || len(list) > 0 {
		t.Errorf("a list of which nothing is ticked: %v", list)
	}
	if problems := o.Problems(); problems != nil {
		t.Errorf("%v", problems)
	}
	o = Fields(url.Values{"step": {"", ""}, "n": {""}, "consent": {"yes"}, "ticked": {"a", "b", "c"}})
	o.NullableInt("step", 1, 9, Optional)
	o.Int("n", 1, 9, Required)
	o.Bool("consent", Required)
	o.StringList("ticked", Required, 0, 2)
	o.Object("ticked", Required)
	o.String("name", Required)
	want := []string{
		"/step DUPLICATE_MEMBER", "/n INTEGER", "/consent FORMAT", "/ticked LENGTH", "/ticked TYPE", "/name REQUIRED",
	}
	problems := o.Problems()
	if got := codes(problems); !slices.Equal(got, want) || problems[5].Message != "the field is required" {
		t.Errorf("%v", problems)
	}
}

// TestNoValueIsOtherThanText: no reading method returns text that the ledger cannot store.
func TestNoValueIsOtherThanText(t *testing.T) {
	for _, bad := range []string{"\x00", "a\x00", "\xff", "\xed\xa0\x80"} {
		for name, read := range map[string]func(values map[string][]string) *Object{
			"query": Query, "form": func(values map[string][]string) *Object { return Fields(values) },
		} {
			o := read(url.Values{"s": {bad}, "l": {"a", bad}, bad: {"x"}, "n": {"1" + bad}, "good": {"é"}})
			got := o.String("s", Required) + strings.Join(
				o.StringList("l", Required, 0, 9), "",
			) + o.Match("s", Required, func(string) bool {
				return true
			}, "")
			if got != "" || o.NullableString("s", Optional) != nil || o.Int("n", 0, 9, Required) != 0 ||
				o.String("good", Required) != "é" {
				t.Errorf("%s of %q: %q", name, bad, got)
			}
			want := []Problem{
				NewProblem("", CodeFormat, TextRule), NewProblem("/l", CodeFormat, TextRule),
				NewProblem("/n", CodeFormat, TextRule), NewProblem("/s", CodeFormat, TextRule),
			}
			problems := o.Problems()
			slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Pointer, b.Pointer) })
			if !reflect.DeepEqual(problems, want) {
				t.Errorf("%s of %q: %v", name, bad, problems)
			}
		}
	}
}

// FuzzValues: no query or form causes a panic. If there are no problems, all values are valid text and every parameter
// was requested.
func FuzzValues(f *testing.F) {
	f.Add("s=a&n=1&b=true&l=x&l=y", false)
	f.Add("s=a&s=b&n=01&b=on&l=%00&%ff=1&N=1", true)
	f.Fuzz(func(t *testing.T, text string, form bool) {
		values, _ := url.ParseQuery(text)
		o := Query(values)
		if form {
			o = Fields(values, "l")
		}
		read := append(o.StringList("l", Optional, 0, 3), o.String("s", Required))
		n, b := o.Int("n", -10, 10, Required), o.Bool("b", Optional)
		if none := o.NullableString("none", Optional); none != nil {
			read = append(read, *none)
		}
		for _, s := range read {
			if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
				t.Fatalf("%q was read", s)
			}
		}
		if n < -10 || n > 10 || b && values.Get("b") == "" {
			t.Fatal(n, b)
		}
		if len(o.Problems()) > 0 || form {
			return
		}
		for name, given := range values {
			if !slices.Contains([]string{"l", "s", "n", "b", "none"}, name) || name != "l" && len(given) > 1 {
				t.Fatalf("%q was let through", name)
			}
		}
	})
}
