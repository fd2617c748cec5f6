package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
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
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return Value{}, &SyntaxError{0, "the text begins with a byte order mark"}
	}
	if !utf8.Valid(data) {
		return Value{}, &SyntaxError{invalidUTF8(data), "the text is not UTF-8"}
	}
	if !json.Valid(data) {
		return Value{}, grammarError(data)
	}
	w := walker{data: data, maxDepth: maxDepth, meter: m}
	v, err := w.value(0)
	m.add(w.steps)
	switch {
	case w.stopped:
		return Value{}, ErrStopped
	case err != nil:
		return Value{}, err
	}
	return v, nil
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

// grammarError asks encoding/json, which has just refused data, where and why.
func grammarError(data []byte) *SyntaxError {
	if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		return &SyntaxError{len(data), "the text must be one JSON value and is empty"}
	}
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &raw); errors.As(err, &syntax) {
		return &SyntaxError{int(syntax.Offset), syntax.Error()}
	}
	return &SyntaxError{0, "the text is not JSON"}
}

// walker builds the tree of a text that json.Valid has accepted, so it need not
// look for any error of grammar; what it refuses is depth, size and surrogates.
type walker struct {
	data     []byte
	pos      int
	maxDepth int
	values   int
	steps    int64
	meter    *Meter
	stopped  bool
}

// stopInterval is after how many values the meter is asked whether to go on.
const stopInterval = 1024

func (w *walker) space() {
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case ' ', '\t', '\r', '\n':
			w.pos++
		default:
			return
		}
	}
}

// value reads the value at pos and the white space round it; depth counts the objects and arrays that are open.
func (w *walker) value(depth int) (Value, *SyntaxError) {
	w.space()
	defer w.space()
	if w.values++; w.values > maxValues {
		return Value{}, &SyntaxError{w.pos, fmt.Sprintf("more than %d values", maxValues)}
	}
	w.steps++
	if w.values%stopInterval == 0 && w.meter.stopped() {
		w.stopped = true
		return Value{}, &SyntaxError{w.pos, ErrStopped.Error()}
	}
	switch c := w.data[w.pos]; c {
	case '{', '[':
		if depth == w.maxDepth {
			return Value{}, &SyntaxError{w.pos, fmt.Sprintf("nested deeper than %d", w.maxDepth)}
		}
		if c == '[' {
			return w.array(depth + 1)
		}
		return w.object(depth + 1)
	case '"':
		s, err := w.str()
		return Value{kind: String, text: s}, err
	case 't':
		w.pos += len("true")
		return Value{kind: Bool, text: "true"}, nil
	case 'f':
		w.pos += len("false")
		return Value{kind: Bool, text: "false"}, nil
	case 'n':
		w.pos += len("null")
		return Value{}, nil
	default:
		start := w.pos
		for w.pos < len(w.data) && strings.IndexByte("+-.0123456789Ee", w.data[w.pos]) >= 0 {
			w.pos++
		}
		w.steps += int64(w.pos - start)
		return Value{kind: Number, text: string(w.data[start:w.pos])}, nil
	}
}

func (w *walker) array(depth int) (Value, *SyntaxError) {
	v := Value{kind: Array}
	start := w.pos
	w.pos++
	w.space()
	for w.data[w.pos] != ']' {
		element, err := w.value(depth)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, Member{Value: element})
		if w.data[w.pos] == ',' {
			w.pos++
		}
	}
	w.pos++
	v.length = uint32(min(w.pos-start, math.MaxUint32))
	return v, nil
}

func (w *walker) object(depth int) (Value, *SyntaxError) {
	v := Value{kind: ObjectKind}
	start := w.pos
	w.pos++
	w.space()
	for w.data[w.pos] != '}' {
		name, err := w.str()
		if err != nil {
			return v, err
		}
		w.space()
		w.pos++ // the colon
		value, err := w.value(depth)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, Member{name, value})
		if w.data[w.pos] == ',' {
			w.pos++
			w.space()
		}
	}
	w.pos++
	v.length = uint32(min(w.pos-start, math.MaxUint32))
	return v, nil
}

// str reads the string at pos and decodes its escapes.
func (w *walker) str() (string, *SyntaxError) {
	w.pos++
	start := w.pos
	end := start + bytes.IndexByte(w.data[start:], '"')
	w.steps += int64(end - start)
	if bytes.IndexByte(w.data[start:end], '\\') < 0 {
		w.pos = end + 1
		return string(w.data[start:end]), nil
	}
	var out []byte
	for {
		switch c := w.data[w.pos]; c {
		case '"':
			w.steps += int64(w.pos - start)
			w.pos++
			return string(out), nil
		case '\\':
			if w.data[w.pos+1] != 'u' {
				out = append(out, unescape(w.data[w.pos+1]))
				w.pos += 2
				continue
			}
			r, size := w.unicode()
			if size == 0 {
				return "", &SyntaxError{w.pos, "a lone surrogate escape stands for no character"}
			}
			out = utf8.AppendRune(out, r)
			w.pos += size
		default:
			out = append(out, c)
			w.pos++
		}
	}
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default: // the quotation mark, the backslash and the slash stand for themselves
		return c
	}
}

// unicode decodes the \u escape at pos, or a surrogate pair of two; the size is that of the escapes, 0 for half a pair.
func (w *walker) unicode() (rune, int) {
	r := hex4(w.data[w.pos+2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	rest := w.data[w.pos+6:]
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, hex4(rest[2:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func hex4(digits []byte) rune {
	var r rune
	for _, c := range digits[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}
