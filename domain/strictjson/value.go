// Package strictjson reads JSON from outside that will be signed, hashed or charged for, so that no two
// readers can understand it differently: member names are case-sensitive, duplicates and unknown members are reported
// rather than dropped, integers are digits, and text is well formed UTF-8 throughout (RFC 8259, RFC 7493). All faults
// of a text are reported at once. It knows nothing about the meaning of any member.
package strictjson

import "github.com/go-json-experiment/json/jsontext"

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
)

// String names the kind as a message to a person would.
func (k Kind) String() string {
	return [...]string{Null: "null", Bool: "a boolean", Number: "a number", String: "a string", Array: "an array", ObjectKind: "an object"}[k]
}

// Value is one JSON value as it was written: members in order, duplicates
// included, numbers as their raw text. It is immutable; the zero Value is null.
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

// Kind is the value's JSON type.
func (v Value) Kind() Kind { return v.kind }

// Text is the decoded text of a string, the raw text of a number, "true" or "false" of a boolean, and empty otherwise.
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
	elements := make([]Value, len(v.items))
	for i, item := range v.items {
		elements[i] = item.Value
	}
	return elements
}

// Length is how many bytes an object or an array had where it was read, from brace to brace; 0 of other kinds.
func (v Value) Length() int { return int(v.length) }

// Len is the number of members or elements.
func (v Value) Len() int { return len(v.items) }

// MarshalJSON writes the value without white space, members in their order and
// duplicates included. Parsing the result gives the same Value but for its Length.
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// AppendJSON appends what MarshalJSON writes.
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

// AppendString appends s as a JSON string in the one form of RFC 8785, section 3.2.2.2: short escapes where they exist,
// \u00xx with lower-case digits for the other controls, everything else as it is. An invalid byte becomes U+FFFD, as in
// encoding/json, so that the output is UTF-8 whatever s holds; what is to be signed must be valid before.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error says that an invalid byte was replaced
	return dst
}
