package wire

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"integrityledger/domain"
)

// oddStrings contain every character that a JSON string must escape, and characters that it need not.
var oddStrings = []string{
	"", "plain", `"`, `\`, "\x00\b\f\n\r\t\x1f\x7f", "<&>", "\u2028 \u2029 \u00e9 \U0001f600", "\xff", "a\xc3",
	"\xed\xa0\x80", "\ufffd",
}

// generate fills every member of a value of any type. Pointers are sometimes nil, and lists sometimes nil or empty.
func generate(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(oddStrings[r.IntN(len(oddStrings))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		switch {
		case v.Type() == reflect.TypeFor[domain.Period]():
			v.SetInt(int64(r.IntN(10_000)*100 + r.IntN(13)))
		default:
			n := []int64{0, 1, -1, 1<<31 - 1, -1 << 31, 1<<63 - 1, -1 << 63}[r.IntN(7)]
			if v.OverflowInt(n) {
				n = int64(int32(n))
			}
			v.SetInt(n)
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			generate(r, v.Elem())
		}
	case reflect.Slice:
		if r.IntN(4) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
			for i := range v.Len() {
				generate(r, v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() { // JSON has only exported fields
				generate(r, field)
			}
		}
	default:
		panic("generate knows no " + v.Type().String())
	}
}

// encodes compares the output of a type's AppendJSON with the output of encoding/json.
func encodes[T Appender](t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var e Envelope[T]
		generate(r, reflect.ValueOf(&e.Data).Elem())
		generate(r, reflect.ValueOf(&e.Meta).Elem())
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(e); err != nil {
			t.Fatal(err)
		}
		if got := AppendEnvelope(nil, e.Data, e.Meta); !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%T:\n%s must be\n%s", e.Data, got, want.Bytes())
		}
	}
}

// AppendJSON writes the same as encoding/json, so a member that it forgets is found.
func TestAppendedIsEncoded(t *testing.T) {
	encodes[Registration](t)
	encodes[Comparison](t)
	encodes[Results[Registration]](t)
	encodes[Results[Evidence]](t)
	encodes[Evidence](t)
}

func FuzzAppendString(f *testing.F) {
	for _, s := range oddStrings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := appendString(nil, s), appendValue(nil, s); !bytes.Equal(got, want) {
			t.Errorf("%s must be %s", got, want)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	var e Envelope[Registration]
	e.Data.Status, e.Data.RevokedAt, e.Data.SHA256 = domain.StatusCurrent, new("2026-11-01T10:00:00Z"),
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var room []byte
		for b.Loop() {
			room = AppendEnvelope(room[:0], &e.Data, e.Meta)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			appendValue(nil, e)
		}
	})
}
