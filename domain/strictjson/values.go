package strictjson

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"integrityledger/domain/say"
)

// source is the origin of an Object.
type source uint8

const (
	fromJSON source = iota
	fromQuery
	fromForm
)

// noun returns the source's word for a member.
func (s source) noun() say.Word {
	return [...]say.Word{fromJSON: "member", fromQuery: "parameter", fromForm: "field"}[s]
}

// TextRule states the requirement of ValidText.
const TextRule = "must be UTF-8 without U+0000"

// ValidText reports whether s is UTF-8 without U+0000, the only text that Query and Fields accept.
func ValidText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Query returns an Object that reads the parameters of a query, such as url.Values. The methods of Object convert the
// texts: an integer must be in canonical decimal, a boolean true or false, and a list has one element for each
// occurrence of the parameter. Problems are in the order of names, then in the order of reading.
func Query(values map[string][]string) *Object {
	return fromValues(fromQuery, values, func(text string) string { return text })
}

// Fields is Query for the fields of a form submitted by a browser. Fields that are not requested are ignored, because a
// page may be older than the program that reads its form. Surrounding space is trimmed, and line endings become LF. An
// empty field is null to a Nullable method. A ticked checkbox, "on", is true. Browsers do not send a list with nothing
// ticked, so the names in lists are always present, possibly empty.
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

// asKind converts the text of a parameter or a field to the kind. A text already found wrong is no value.
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
