package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"integrityledger/domain/strictjson/jsontest"
)

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                 "",
		"white space":             " \n",
		"byte order mark":         "\xef\xbb\xbf{}",
		"not UTF-8":               "\"\xff\"",
		"overlong UTF-8":          "\"\xc0\xaf\"",
		"surrogate in UTF-8":      "\"\xed\xa0\x80\"",
		"a second value":          "{} {}",
		"trailing comma":          `{"a":1,}`,
		"trailing NUL":            "{}\x00",
		"NUL in a string":         "\"\x00\"",
		"raw control":             "\"\n\"",
		"comment":                 `{} // no`,
		"single quotes":           `{'a':1}`,
		"leading zero":            `01`,
		"plus":                    `+1`,
		"NaN":                     `NaN`,
		"lone high surrogate":     `"\ud800"`,
		"lone low surrogate":      `"\udc00"`,
		"two high surrogates":     `"\ud800\ud800"`,
		"high, then a letter":     `"\ud800x\udc00"`,
		"lone surrogate in name":  `{"\uD83D":1}`,
		"reversed pair":           `"\udc00\ud800"`,
		"vertical tab":            "\v{}",
		"no-break space":          "\u00a0{}",
		"deeper than allowed":     `{"a":{"b":[0]}}`,
		"thousands of brackets":   strings.Repeat("[", 100_000),
		"closed, far too deep":    strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000),
		"more values than stored": "[" + strings.Repeat("0,", maxValues) + "0]",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(text), 2)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("%.40q was accepted: %v", text, err)
			}
			if syntax.Message.Format == "" || syntax.Offset < 0 || syntax.Offset > len(text)+1 {
				t.Errorf("%+v", *syntax)
			}
		})
	}
}

// TestBeyondMaxValues: the error names the offset of the first value beyond the limit.
func TestBeyondMaxValues(t *testing.T) {
	for more, begins := range map[string]int{"0": 0, " \n0": 2, "[]": 0, `"a"`: 0, `{"a": 0}`: 0} {
		text := "[" + strings.Repeat("0,", maxValues-1)
		_, err := Parse([]byte(text+more+"]"), 2)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != len(text)+begins {
			t.Errorf("%q: %v, and the value begins at %d", more, err, len(text)+begins)
		}
	}
	text := "[" + strings.Repeat("0,", maxValues-2) + `{"a" : `
	_, err := Parse([]byte(text+"0}]"), 2)
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset != len(text) {
		t.Errorf("%v, and the value begins at %d", err, len(text))
	}
}

func TestParseKeepsWhatWasWritten(t *testing.T) {
	v, err := Parse([]byte(" {\"b\" : 1.50e+1 ,\"a\":[null,true,\"\\u00e9\\/\\ud83d\\ude00\\u0000\"],\"b\":{}}\r\n"), 2)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range v.Members() {
		names = append(names, m.Name)
	}
	if strings.Join(names, " ") != "b a b" {
		t.Errorf("names %q", names)
	}
	if got := v.Members()[0].Value.Text(); got != "1.50e+1" {
		t.Errorf("number %q", got)
	}
	if got := v.Members()[1].Value.Elements()[2].Text(); got != "é/😀\x00" {
		t.Errorf("string %q", got)
	}
	const want = `{"b":1.50e+1,"a":[null,true,"é/😀\u0000"],"b":{}}`
	if got := string(v.AppendJSON(nil)); got != want {
		t.Errorf("written again: %s", got)
	}
}

// FuzzParse: no text causes a panic, an accepted text has the same meaning in encoding/json, and writing it a second
// time changes nothing.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, ` true `, `-0`, `1e5`, `"\ud83d\ude00"`, `"\ud83d"`, `{"a":[1,{"b":"\\\""}]}`,
		`{"a":1,"a":2}`, "\xef\xbb\xbf{}", `[[[[[[[[[]]]]]]]]]`, `"\u0000\b\f\u001f"`, `{"":{"":""}}`, `[1,]`,
		`"\uD800\uDC00"`,
	} {
		f.Add([]byte(seed))
	}
	for _, shape := range jsontest.Shapes(2000, "a") {
		f.Add(shape.Text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data, 8)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("%T", err)
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatal("accepted what is not JSON")
		}
		again := v.AppendJSON(nil)
		if !reflect.DeepEqual(plain(t, data), plain(t, again)) {
			t.Fatalf("%q means another thing than %q", again, data)
		}
		w, err := Parse(again, 8)
		if err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if !reflect.DeepEqual(withoutLength(v), withoutLength(w)) || !bytes.Equal(again, w.AppendJSON(nil)) {
			t.Fatalf("%q is not stable", again)
		}
		Decode(v).Problems()
	})
}

// withoutLength returns the value without its length in the text.
func withoutLength(v Value) Value {
	v.length = 0
	v.items = slices.Clone(v.items)
	for i := range v.items {
		v.items[i].Value = withoutLength(v.items[i].Value)
	}
	return v
}

// plain decodes with the standard library, numbers kept as text.
func plain(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
