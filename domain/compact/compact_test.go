package compact

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// word has unexported fields, and encodes itself as text.
type word struct{ text string }

func (w word) MarshalText() ([]byte, error) { return []byte(w.text), nil }

func (w *word) UnmarshalText(text []byte) error {
	w.text = string(text)
	return nil
}

type inner struct {
	A int8
	B []string
}

// lossy has a field that nothing outside its package can set.
type lossy struct{ inner inner }

// Embedded is a part of whole.
type Embedded struct{ A, B int }

type whole struct {
	Bool    bool
	Int     int64
	Small   int16
	Uint    uint32
	Text    string
	Pointer *inner
	Nil     *inner
	Bytes   []byte
	NoBytes []byte
	Empty   []byte
	ID      [16]byte
	Inners  [2]inner
	Slice   []inner
	Time    time.Time
	Never   time.Time
	Word    word
	Embedded
	Left *whole `compact:"-"`
}

func sample() whole {
	return whole{
		Bool: true, Int: -1 << 62, Small: -3, Uint: 1 << 31, Text: "héllo", Pointer: &inner{A: 4, B: []string{"x", ""}},
		Bytes: []byte{1, 2}, Empty: []byte{}, ID: [16]byte{1, 15: 9}, Inners: [2]inner{{A: 1}, {B: []string{}}},
		Slice: []inner{{A: 7}}, Time: time.UnixMicro(1_790_000_000_123_456).UTC(), Word: word{"said"},
		Embedded: Embedded{5, 6},
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	form := Append(nil, &want)
	var got whole
	r := NewReader(form)
	if r.Read(&got); r.End() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v, %v", got, want, r.End())
	}
	if again := Append(nil, &got); !bytes.Equal(again, form) {
		t.Errorf("%x, want %x", again, form)
	}
	for cut := range form {
		r := NewReader(form[:cut])
		if r.Read(new(whole)); r.End() == nil {
			t.Errorf("%d bytes of %d were read", cut, len(form))
		}
	}
	if r := NewReader(append(form, 0)); true {
		if r.Read(new(whole)); r.End() == nil {
			t.Error("a byte after the value was accepted")
		}
	}
}

// TestEveryField: each field that is not left out changes the form.
func TestEveryField(t *testing.T) {
	base := Append(nil, new(whole))
	full := sample()
	full.Nil, full.NoBytes, full.Never = &inner{}, []byte{}, time.UnixMicro(1)
	for i := range reflect.TypeFor[whole]().NumField() {
		one := new(whole)
		reflect.ValueOf(one).Elem().Field(i).Set(reflect.ValueOf(&full).Elem().Field(i))
		name := reflect.TypeFor[whole]().Field(i).Name
		if same := bytes.Equal(Append(nil, one), base); same != (name == "Left") {
			t.Errorf("%s: its value changes the form: %t", name, !same)
		}
	}
}

func TestShape(t *testing.T) {
	type one struct {
		A *[]int8
		T time.Time
		W word
		B [2]struct{ S string }
		C *one `compact:"-"`
	}
	const want = "{ A *[]int8; T time; W text; B [2]{ S string; }; }"
	if got := Shape(reflect.TypeFor[one]()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAll(t *testing.T) {
	want := []inner{{A: 1}, {}, {B: []string{"b"}}}
	form := AppendAll(AppendAll(nil, slices.Values(want)), slices.Values(want[:1]))
	var got []inner
	r := NewReader(form)
	ReadAll(r, func(one inner) { got = append(got, one) })
	ReadAll(r, func(one inner) { got = append(got, one) })
	if r.End() != nil || !reflect.DeepEqual(got, append(want, want[0])) {
		t.Errorf("%+v, %v", got, r.End())
	}
}

// TestRefused: a type that would lose data is refused.
func TestRefused(t *testing.T) {
	for _, v := range []any{&lossy{inner{A: 1}}, new(map[string]int), new(struct{ F func() }), new(float64)} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.HasPrefix(r.(string), "compact: ") {
					t.Errorf("%T: %v", v, r)
				}
			}()
			Append(nil, v)
			t.Errorf("%T was encoded", v)
		}()
	}
}
