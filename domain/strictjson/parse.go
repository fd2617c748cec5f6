package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxValues bounds what one text can make us allocate: a body of four million
// bytes of "0," would otherwise become a tree thirty times its size.
const maxValues = 200_000

// SyntaxError says why a text is not exactly one JSON value, and at which byte.
type SyntaxError struct {
	Offset  int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.Message, e.Offset)
}

// Parse reads exactly one JSON value. Every error is a *SyntaxError: not UTF-8, a byte order mark, anything before or
// after the value but white space, a lone surrogate escape (encoding/json would replace it silently), or objects and
// arrays nested deeper than maxDepth (a flat object has depth 1). Duplicate members stay in the Value, for Decode to
// report.
func Parse(data []byte, maxDepth int) (Value, error) { return new(Meter).Parse(data, maxDepth) }

// Parse is Parse, counted; it also fails with ErrStopped.
func (m *Meter) Parse(data []byte, maxDepth int) (Value, error) {
	m.add(int64(len(data)))
	r := reader{Decoder: jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)), maxDepth: maxDepth, meter: m}
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

// refusal says why data was refused; a fault of the text itself comes before a bound that it is beyond.
func refusal(data []byte, err error) error {
	var surrogate *jsontext.SyntacticError
	var grammar *json.SyntaxError
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return &SyntaxError{0, "the text begins with a byte order mark"}
	case !utf8.Valid(data):
		return &SyntaxError{invalidUTF8(data), "the text is not UTF-8"}
	case len(bytes.TrimLeft(data, " \t\r\n")) == 0:
		return &SyntaxError{len(data), "the text must be one JSON value and is empty"}
	case errors.As(json.Unmarshal(data, new(json.RawMessage)), &grammar):
		return &SyntaxError{int(grammar.Offset), grammar.Error()}
	case errors.As(err, &surrogate):
		return &SyntaxError{int(surrogate.ByteOffset), "a lone surrogate escape stands for no character"}
	}
	return err
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
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

// stopInterval is after how many values the meter is asked whether to go on.
const stopInterval = 1024

func (r *reader) value() (Value, error) {
	if r.values++; r.values > maxValues {
		rest := r.UnreadBuffer() // all that follows the last token
		between := len(rest) - len(bytes.TrimLeft(rest, ",: \t\r\n"))
		return Value{}, &SyntaxError{int(r.InputOffset()) + between, fmt.Sprintf("more than %d values", maxValues)}
	}
	r.steps++
	if r.values%stopInterval == 0 && r.meter.stopped() {
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

// items reads what an object or an array holds, whose beginning was read, and its end.
func (r *reader) items(kind Kind, end jsontext.Kind) (v Value, err error) {
	start := r.InputOffset() - 1
	if r.StackDepth() > r.maxDepth {
		return v, &SyntaxError{int(start), fmt.Sprintf("nested deeper than %d", r.maxDepth)}
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
