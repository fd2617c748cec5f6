package strictjson

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// source says where an Object comes from.
type source uint8

const (
	fromJSON source = iota
	fromQuery
	fromForm
)

// noun is the source's word for a member.
func (s source) noun() string {
	return [...]string{fromJSON: "member", fromQuery: "parameter", fromForm: "field"}[s]
}

// TextRule says what ValidText requires.
const TextRule = "must be UTF-8 without U+0000"

// ValidText reports whether s is UTF-8 without U+0000, the only text that a Query or Fields accept.
func ValidText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Query begins to read the parameters of a query, such as url.Values. The methods of Object take their texts for what
// they ask for: an integer must be digits in their one spelling, a boolean true or false, and a list has an element for
// each time the parameter appears. Problems are in the order of names, then in the order of reading.
func Query(values map[string][]string) *Object {
	return fromValues(fromQuery, values, func(text string) string { return text })
}

// Fields is Query for the fields of a form, with what browsers make of fields. Fields that are not asked for are
// ignored, since a page may be older than the program that reads its form. Space around a text is dropped, and its
// lines end with LF. An empty field is null to a Nullable method. A ticked box, "on", is true. A list of which nothing
// is ticked is not sent at all: those among lists are present all the same, and empty.
func Fields(values map[string][]string, lists ...string) *Object {
	values = maps.Clone(values)
	for _, name := range lists {
		values[name] = append([]string{}, values[name]...)
	}
	return fromValues(fromForm, values, func(text string) string {
		return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	})
}

func fromValues(s source, values map[string][]string, normalize func(string) string) *Object {
	v := Value{kind: ObjectKind}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field := Value{kind: rawText}
		valid := ValidText(name)
		for i, text := range values[name] {
			valid = valid && ValidText(text)
			element := Value{kind: String, text: normalize(text)}
			if field.items = append(field.items, Member{Value: element}); i == 0 {
				field.text = element.text
			}
		}
		if !valid {
			wrong = append(wrong, name)
		}
		if ValidText(name) {
			v.items = append(v.items, Member{Name: name, Value: field})
		}
	}
	o := newObject(&report{meter: new(Meter), source: s}, nil, "", "", v, true)
	for _, name := range wrong {
		if !ValidText(name) {
			name = ""
		}
		o.Problem(name, CodeFormat, TextRule)
	}
	return o
}

// isBlank reports whether the value is one empty text of a query or a form.
func (v Value) isBlank() bool { return v.kind == rawText && v.text == "" && len(v.items) == 1 }

// asKind takes the text of a parameter or a field for a value of the kind. A text that was found wrong before is no
// value.
func (o *Object) asKind(name string, kind Kind, v Value) (Value, bool) {
	switch {
	case !o.OK(name):
	case kind == Array:
		return v, true
	case len(v.items) > 1:
		o.Problem(name, CodeDuplicate, "the %s appears more than once", o.report.source.noun())
	case kind == Bool && o.report.source == fromForm && v.text == "on":
		return Value{kind: Bool, text: "true"}, true
	case kind == Bool && v.text != "true" && v.text != "false":
		o.Problem(name, CodeFormat, "must be true or false")
	case kind == Number:
		if n, err := strconv.ParseInt(v.text, 10, 64); err == nil && strconv.FormatInt(n, 10) == v.text {
			return v, true
		}
		o.Problem(name, CodeInteger, "must be an integer in plain digits")
	default:
		return v, true
	}
	return Value{}, false
}
