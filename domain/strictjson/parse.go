// Package strictjson parses JSON from outside that will be signed, hashed or charged for, so that no two readers can
// interpret it differently. Member names are case-sensitive, duplicate and unknown members are reported rather than
// dropped, integers are plain digits, and all text is well-formed UTF-8 (RFC 8259, RFC 7493). All errors in a text are
// reported at once. The package knows nothing about the meaning of any member.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"integrityledger/domain/say"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is the JSON type of a Value.
type Kind uint8

// The JSON types. The zero Value is null.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	ObjectKind
	rawText // text of a query or a form, converted when it is read; its items are all values of the name
)

// String returns the kind's name as used in messages.
func (k Kind) String() string {
	return [...]string{
		Null: "null", Bool: "a boolean", Number: "a number", String: "a string", Array: "an array", ObjectKind: "an object",
		rawText: "a text",
	}[k]
}

// Say implements say.Phrase.
func (k Kind) Say(c say.Catalogue) (string, bool) { return say.Word(k.String()).Say(c) }

// Value is one JSON value as written: members in order, duplicates included, numbers as their raw text. It is
// immutable; the zero Value is null.
type Value struct {
	kind   Kind
	length uint32   // ObjectKind, Array: bytes of the text, white space within included
	text   string   // String: decoded; Number: raw text; Bool: "true" or "false"
	items  []Member // ObjectKind: members; Array: elements, without names
}

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Kind returns the value's JSON type.
func (v Value) Kind() Kind { return v.kind }

// Text returns the decoded text of a string, the raw text of a number, "true" or "false" for a boolean, and the empty
// string otherwise.
func (v Value) Text() string { return v.text }

// Members lists an object's members in order, duplicates included; nil for other kinds.
func (v Value) Members() []Member {
	if v.kind != ObjectKind {
		return nil
	}
	return v.items
}

// Elements lists an array's elements; nil for other kinds.
func (v Value) Elements() []Value {
	if v.kind != Array {
		return nil
	}
	return values(v.items)
}

func values(items []Member) []Value {
	list := make([]Value, len(items))
	for i, item := range items {
		list[i] = item.Value
	}
	return list
}

// Length returns the number of bytes of an object or array in the parsed text, from brace to brace; 0 for other kinds.
func (v Value) Length() int { return int(v.length) }

// Len returns the number of members or elements.
func (v Value) Len() int { return len(v.items) }

// AppendJSON appends the value without white space, with members in their order and duplicates included. Parsing the
// result gives the same Value except for its Length.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case Null:
		return append(dst, "null"...)
	case Bool, Number:
		return append(dst, v.text...)
	case String:
		return AppendString(dst, v.text)
	}
	begin, end := byte('{'), byte('}')
	if v.kind == Array {
		begin, end = '[', ']'
	}
	dst = append(dst, begin)
	for i, item := range v.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.kind == ObjectKind {
			dst = append(AppendString(dst, item.Name), ':')
		}
		dst = item.Value.AppendJSON(dst)
	}
	return append(dst, end)
}

// AppendString appends s as a JSON string in the one form of RFC 8785, section 3.2.2.2: short escapes if they exist,
// \u00xx with lower-case digits for the other controls, everything else unchanged. An invalid byte becomes U+FFFD, as
// in encoding/json, so the output is always UTF-8. Text to be signed must be checked before.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only reports that an invalid byte was replaced
	return dst
}

// maxValues bounds the memory that one text can take: a body of four million bytes of "0," would otherwise become a
// tree thirty times its size.
const maxValues = 200_000

// SyntaxError says why a text is not exactly one JSON value, and at which byte.
type SyntaxError struct {
	Offset  int
	Message say.Sentence
}

func (e *SyntaxError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *SyntaxError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

func (e *SyntaxError) sentence() say.Sentence {
	return say.Sentencef("%s (at byte %d)", e.Message, e.Offset)
}

// Parse reads exactly one JSON value. Every error is a *SyntaxError: not UTF-8, a byte order mark, anything before or
// after the value but white space, a lone surrogate escape (encoding/json would replace it silently), or objects and
// arrays nested deeper than maxDepth (a flat object has depth 1). Duplicate members stay in the Value, for Decode to
// report.
func Parse(data []byte, maxDepth int) (Value, error) { return new(Meter).Parse(data, maxDepth) }

// Parse is the function Parse, with its steps counted. It also fails with ErrStopped.
func (m *Meter) Parse(data []byte, maxDepth int) (Value, error) {
	m.add(int64(len(data)))
	r := reader{
		Decoder: jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)), maxDepth: maxDepth,
		meter: m,
	}
	v, err := r.value()
	m.add(r.steps)
	if err == nil {
		if _, err = r.ReadToken(); errors.Is(err, io.EOF) {
			return v, nil
		}
	}
	if errors.Is(err, ErrStopped) {
		return Value{}, err
	}
	return Value{}, refusal(data, err)
}

// refusal returns the reason why data was refused. A fault of the text itself takes precedence over an exceeded bound.
func refusal(data []byte, err error) error {
	var surrogate *jsontext.SyntacticError
	var grammar *json.SyntaxError
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return &SyntaxError{0, say.Sentencef("the text begins with a byte order mark")}
	case !utf8.Valid(data):
		return &SyntaxError{invalidUTF8(data), say.Sentencef("the text is not UTF-8")}
	case len(bytes.TrimLeft(data, " \t\r\n")) == 0:
		return &SyntaxError{len(data), say.Sentencef("the text must be one JSON value and is empty")}
	case errors.As(json.Unmarshal(data, new(json.RawMessage)), &grammar):
		return &SyntaxError{int(grammar.Offset), grammarFault(grammar.Error())}
	case errors.As(err, &surrogate):
		return &SyntaxError{int(surrogate.ByteOffset), say.Sentencef("a lone surrogate escape stands for no character")}
	}
	return err
}

// grammarFault is what encoding/json says of a text, which names at most one character.
func grammarFault(message string) say.Sentence {
	rest, found := strings.CutPrefix(message, "invalid character ")
	if character, where, cut := strings.Cut(rest, "' "); found && cut {
		return say.Sentencef("invalid character %s %s", character+"'", say.Sentence{Format: where})
	}
	return say.Sentence{Format: message}
}

func invalidUTF8(data []byte) int {
	for i, r := range string(data) {
		if _, size := utf8.DecodeRune(data[i:]); r == utf8.RuneError && size == 1 {
			return i
		}
	}
	return len(data)
}

// reader builds the tree of a text.
type reader struct {
	*jsontext.Decoder
	maxDepth int
	values   int
	steps    int64
	meter    *Meter
}

// stopInterval is the number of values between two calls of Meter.Stop.
const stopInterval = 1024

func (r *reader) value() (Value, error) {
	if r.values++; r.values > maxValues {
		rest := r.UnreadBuffer() // the text after the last token
		between := len(rest) - len(bytes.TrimLeft(rest, ",: \t\r\n"))
		return Value{}, &SyntaxError{int(r.InputOffset()) + between, say.Sentencef("more than %d values", maxValues)}
	}
	r.steps++
	if r.values%stopInterval == 0 && r.meter.Stop != nil && r.meter.Stop() {
		return Value{}, ErrStopped
	}
	token, err := r.ReadToken()
	if err != nil {
		return Value{}, err
	}
	switch token.Kind() {
	case '{':
		return r.items(ObjectKind, '}')
	case '[':
		return r.items(Array, ']')
	case '"':
		return Value{kind: String, text: r.text(token)}, nil
	case '0':
		return Value{kind: Number, text: r.text(token)}, nil
	case 'n':
		return Value{}, nil
	default:
		return Value{kind: Bool, text: token.String()}, nil
	}
}

// items reads the contents and the end of an object or array whose beginning was read.
func (r *reader) items(kind Kind, end jsontext.Kind) (v Value, err error) {
	start := r.InputOffset() - 1
	if r.StackDepth() > r.maxDepth {
		return v, &SyntaxError{int(start), say.Sentencef("nested deeper than %d", r.maxDepth)}
	}
	v.kind = kind
	for r.PeekKind() != end {
		var item Member
		if kind == ObjectKind {
			name, err := r.ReadToken()
			if err != nil {
				return v, err
			}
			item.Name = r.text(name)
		}
		if item.Value, err = r.value(); err != nil {
			return v, err
		}
		v.items = append(v.items, item)
	}
	_, err = r.ReadToken()
	v.length = uint32(min(r.InputOffset()-start, math.MaxUint32))
	return v, err
}

func (r *reader) text(token jsontext.Token) string {
	s := token.String()
	r.steps += int64(len(s))
	return s
}

// ErrStopped means that Meter.Stop ended the reading of a text.
var ErrStopped = errors.New("the reading was stopped") //nolint:forbidigo // callers stop a reading with it

// Meter counts the steps of reading the content of one request, and can stop the reading. A step is a processed value,
// name or problem, or a scanned byte; a text of n bytes takes a small multiple of n steps, whatever its content. The
// zero Meter counts and never stops. It is safe for concurrent use.
type Meter struct {
	// Stop, if set, is called between values. Once it returns true, Parse fails with ErrStopped.
	Stop func() bool

	steps atomic.Int64
}

// Steps returns the number of steps taken so far. The steps of an Object count once its Problems are requested.
func (m *Meter) Steps() int64 { return m.steps.Load() }

func (m *Meter) add(steps int64) { m.steps.Add(steps) }
