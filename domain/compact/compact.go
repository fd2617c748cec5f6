// Package compact encodes structs as bytes that depend only on their values, so that equal values have equal digests.
// The form has no names and no types: only the type that wrote it can read it.
//
// It covers every field of a struct except those with the tag `compact:"-"`, and it panics if it cannot encode one, so
// that no field is forgotten silently. Times are in UTC and have microseconds. A struct with unexported fields must
// encode itself as text.
package compact

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"

	"integrityledger/domain/say"
)

var timeType = reflect.TypeFor[time.Time]()

// Append appends the form of the value that v points to.
func Append(dst []byte, v any) []byte { return appendValue(dst, reflect.ValueOf(v).Elem()) }

// AppendAll appends the form of each value, and an end.
func AppendAll[T any](dst []byte, all iter.Seq[T]) []byte {
	for v := range all {
		dst = Append(append(dst, 1), &v)
	}
	return append(dst, 0)
}

// ReadAll reads what AppendAll has appended.
func ReadAll[T any](r *Reader, add func(T)) {
	for r.byte() == 1 {
		var v T
		if r.Read(&v); r.failed {
			return
		}
		add(v)
	}
}

// Shape describes the form of a type. Bytes of one shape must not be read as another: they may seem well formed.
func Shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + Shape(t.Elem())
	case reflect.Slice:
		return "[]" + Shape(t.Elem())
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), Shape(t.Elem()))
	case reflect.Struct:
		if t == timeType {
			return "time"
		}
	default:
		return t.Kind().String()
	}
	indexes, text := fields(t)
	if text {
		return "text"
	}
	var b strings.Builder
	for _, i := range indexes {
		f := t.Field(i)
		fmt.Fprintf(&b, " %s %s;", f.Name, Shape(f.Type))
	}
	return "{" + b.String() + " }"
}

// fields returns the indexes of a struct's fields. text reports that the struct encodes itself as text instead.
func fields(t reflect.Type) (indexes []int, text bool) {
	if known, ok := structs.Load(t); ok {
		s := known.(structForm) //nolint:forcetypeassert // the map has no other values
		return s.indexes, s.text
	}
	var s structForm
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Tag.Get("compact") == "-":
		case f.IsExported():
			s.indexes = append(s.indexes, i)
		case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
			s.text = true
		default:
			panic(fmt.Sprintf("compact: the field %s of %s is not exported", f.Name, t))
		}
	}
	structs.Store(t, s)
	return s.indexes, s.text
}

type structForm struct {
	indexes []int
	text    bool
}

var structs sync.Map // reflect.Type to structForm

func appendValue(dst []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(dst, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(dst, v.Uint())
	case reflect.String:
		return append(binary.AppendUvarint(dst, uint64(v.Len())), v.String()...)
	case reflect.Pointer:
		if v.IsNil() {
			return append(dst, 0)
		}
		return appendValue(append(dst, 1), v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return append(dst, 0)
		}
		return appendElements(binary.AppendUvarint(dst, uint64(v.Len())+1), v)
	case reflect.Array:
		return appendElements(dst, v)
	case reflect.Struct:
		return appendStruct(dst, v)
	}
	panic(fmt.Sprintf("compact: %s", v.Type()))
}

func appendElements(dst []byte, v reflect.Value) []byte {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return append(dst, v.Bytes()...)
	}
	for i := range v.Len() {
		dst = appendValue(dst, v.Index(i))
	}
	return dst
}

func appendStruct(dst []byte, v reflect.Value) []byte {
	if v.Type() == timeType {
		t := v.Addr().Interface().(*time.Time) //nolint:forcetypeassert // its type was compared
		if t.IsZero() {
			return append(dst, 0)
		}
		return binary.AppendVarint(append(dst, 1), t.UnixMicro())
	}
	indexes, text := fields(v.Type())
	if text {
		said, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			panic(fmt.Sprintf("compact: %s: %v", v.Type(), err))
		}
		return append(binary.AppendUvarint(dst, uint64(len(said))), said...)
	}
	for _, i := range indexes {
		dst = appendValue(dst, v.Field(i))
	}
	return dst
}

// Reader reads values in the order in which they were appended. After the first failure it reads zero values.
type Reader struct {
	rest   []byte
	failed bool
}

// NewReader returns a reader of bytes. The values that it reads share no memory with them.
func NewReader(from []byte) *Reader { return &Reader{rest: from} }

// End returns an error unless everything was read, and was well formed.
func (r *Reader) End() error {
	if r.failed || len(r.rest) > 0 {
		return say.New("the bytes are not those of this kind of value")
	}
	return nil
}

// Read sets the value that v points to.
func (r *Reader) Read(v any) { r.value(reflect.ValueOf(v).Elem()) }

// Bytes returns the next n bytes. They share memory with the reader's.
func (r *Reader) Bytes(n uint64) []byte {
	if r.failed || n > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *Reader) byte() byte {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Uvarint reads a number that binary.AppendUvarint has appended.
func (r *Reader) Uvarint() uint64 { return number(r, binary.Uvarint) }

func number[N int64 | uint64](r *Reader, read func([]byte) (N, int)) N {
	n, size := read(r.rest)
	if r.failed || size <= 0 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *Reader) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.byte() == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n := number(r, binary.Varint)
		r.failed = r.failed || v.OverflowInt(n)
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := r.Uvarint()
		r.failed = r.failed || v.OverflowUint(n)
		v.SetUint(n)
	case reflect.String:
		v.SetString(string(r.Bytes(r.Uvarint())))
	case reflect.Pointer:
		if r.byte() == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			r.value(v.Elem())
		}
	case reflect.Slice:
		if n := r.Uvarint(); n > uint64(len(r.rest))+1 {
			r.failed = true
		} else if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), int(n-1), int(n-1)))
			r.elements(v)
		}
	case reflect.Array:
		r.elements(v)
	case reflect.Struct:
		r.fields(v)
	default:
		panic(fmt.Sprintf("compact: %s", v.Type()))
	}
}

func (r *Reader) elements(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		copy(v.Bytes(), r.Bytes(uint64(v.Len())))
		return
	}
	for i := range v.Len() {
		r.value(v.Index(i))
	}
}

func (r *Reader) fields(v reflect.Value) {
	if v.Type() == timeType {
		if r.byte() == 1 {
			v.Set(reflect.ValueOf(time.UnixMicro(number(r, binary.Varint)).UTC()))
		}
		return
	}
	indexes, text := fields(v.Type())
	if text {
		err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(r.Bytes(r.Uvarint()))
		r.failed = r.failed || err != nil
		return
	}
	for _, i := range indexes {
		r.value(v.Field(i))
	}
}
