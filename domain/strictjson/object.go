package strictjson

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one offending member of a text.
type Problem struct {
	Pointer string `json:"pointer"` // RFC 6901; empty for the whole value
	Code    string `json:"code"`
	Message string `json:"message"` // what would be right
}

// Codes of the problems that this package finds; callers may add others.
const (
	CodeRequired  = "REQUIRED"         // the member is missing
	CodeType      = "TYPE"             // another JSON type was expected
	CodeUnknown   = "UNKNOWN_MEMBER"   // nobody asked for this member
	CodeDuplicate = "DUPLICATE_MEMBER" // the name appears more than once
	CodeInteger   = "INTEGER"          // a number that is not -?(0|[1-9][0-9]*)
	CodeRange     = "RANGE"            // an integer out of bounds
	CodeFormat    = "FORMAT"           // a string of another form
	CodeLength    = "LENGTH"           // too short or too long
	CodeNUL       = "NUL"              // U+0000 inside a string
)

// MaxInteger and MinInteger bound every integer: what a double holds exactly (RFC 7493, section 2.2).
const (
	MaxInteger int64 = 1<<53 - 1
	MinInteger int64 = -MaxInteger
)

// maxProblems bounds the answer to a body of a thousand unknown members.
const maxProblems = 100

// Presence says whether a missing member is a problem.
type Presence bool

// Whether a member must be there. An optional member that is null is a TYPE
// problem all the same, unless it is read by a Nullable method.
const (
	Required Presence = true
	Optional Presence = false
)

// Object reads the members of one JSON object and remembers all that is wrong.
// A method whose member is missing or wrong returns the zero value; callers read
// everything they know, then ask for Problems. An Object is never nil: where the
// object itself is missing or is something else, every member is absent and no
// further problem is reported. It is not safe for concurrent use.
type Object struct {
	report  *report
	pointer string
	present bool
	members []Member
	asked   []string
}

// report is shared by an object and all objects read from it.
type report struct {
	objects  []*Object
	problems []Problem
}

// Decode begins to read v, which must be an object.
func Decode(v Value) *Object {
	return newObject(&report{}, "", v, true)
}

func newObject(r *report, pointer string, v Value, given bool) *Object {
	o := &Object{report: r, pointer: pointer}
	r.objects = append(r.objects, o)
	switch {
	case !given:
	case v.kind != ObjectKind:
		o.add(pointer, CodeType, fmt.Sprintf("an object was expected, not %s", v.kind))
	default:
		o.present, o.members = true, v.items
	}
	return o
}

// Problems lists everything wrong with the object and with the objects read from
// it, at most 100: what the reading methods found, in that order, then unknown
// and duplicate members.
func (o *Object) Problems() []Problem {
	list := append([]Problem(nil), o.report.problems...)
	for _, object := range o.report.objects {
		list = append(list, object.strangers()...)
	}
	return list[:min(len(list), maxProblems)]
}

// strangers finds the members that were not asked for and those given twice.
func (o *Object) strangers() []Problem {
	var list []Problem
	count := make(map[string]int, len(o.members))
	for _, m := range o.members {
		count[m.Name]++
		switch {
		case count[m.Name] == 2:
			list = append(list, Problem{o.at(m.Name), CodeDuplicate, "the member appears more than once"})
		case count[m.Name] == 1 && !o.knows(m.Name):
			message := "there is no such member"
			if meant := o.meant(m.Name); meant != "" {
				message += fmt.Sprintf("; did you mean %s?", meant)
			}
			list = append(list, Problem{o.at(m.Name), CodeUnknown, message})
		}
	}
	return list
}

func (o *Object) knows(name string) bool {
	for _, known := range o.asked {
		if known == name {
			return true
		}
	}
	return false
}

// meant is the known member that differs from name in case, "_" and "-" only.
func (o *Object) meant(name string) string {
	plain := strings.NewReplacer("_", "", "-", "")
	for _, known := range o.asked {
		if strings.EqualFold(plain.Replace(known), plain.Replace(name)) {
			return known
		}
	}
	return ""
}

// Problem adds a problem of a member; name "" means the object itself.
func (o *Object) Problem(name, code, message string) {
	pointer := o.pointer
	if name != "" {
		pointer = o.at(name)
	}
	o.add(pointer, code, message)
}

// ElementProblem adds a problem of one element of an array member.
func (o *Object) ElementProblem(name string, index int, code, message string) {
	o.add(o.at(name)+"/"+strconv.Itoa(index), code, message)
}

// Present reports whether the object itself is there and is an object.
func (o *Object) Present() bool { return o.present }

// Has reports whether the member is there, of whatever type, null included. It
// counts as asking for the member.
func (o *Object) Has(name string) bool {
	_, ok := o.look(name)
	return ok
}

// OK reports whether the member is there, once, and nothing was found wrong with
// it or within it so far: the condition for a caller's own checks.
func (o *Object) OK(name string) bool {
	count := 0
	for _, m := range o.members {
		if m.Name == name {
			count++
		}
	}
	pointer := o.at(name)
	for _, p := range o.report.problems {
		if p.Pointer == pointer || strings.HasPrefix(p.Pointer, pointer+"/") {
			return false
		}
	}
	return count == 1
}

// Names lists the distinct member names in their order, for objects whose names
// are data. It does not count as asking for them.
func (o *Object) Names() []string {
	seen := make(map[string]bool, len(o.members))
	var names []string
	for _, m := range o.members {
		if !seen[m.Name] {
			seen[m.Name] = true
			names = append(names, m.Name)
		}
	}
	return names
}

// String reads a string without U+0000.
func (o *Object) String(name string, p Presence) string {
	v, ok := o.get(name, p)
	if !ok {
		return ""
	}
	s, _ := o.text(o.at(name), v)
	return s
}

// NullableString reads a string or null; nil where it is null or missing.
func (o *Object) NullableString(name string, p Presence) *string {
	v, ok := o.get(name, p)
	if !ok || v.kind == Null {
		return nil
	}
	s, ok := o.text(o.at(name), v)
	if !ok {
		return nil
	}
	return &s
}

// Match reads a string that must match; otherwise the problem is FORMAT with the
// message, which says what would be right.
func (o *Object) Match(name string, p Presence, matches func(string) bool, message string) string {
	v, ok := o.get(name, p)
	if !ok {
		return ""
	}
	s, ok := o.text(o.at(name), v)
	if !ok {
		return ""
	}
	if !matches(s) {
		o.add(o.at(name), CodeFormat, message)
		return ""
	}
	return s
}

// Sized reads a string of least to most characters (Unicode code points).
func (o *Object) Sized(name string, p Presence, least, most int) string {
	v, ok := o.get(name, p)
	if !ok {
		return ""
	}
	s, ok := o.text(o.at(name), v)
	if !ok {
		return ""
	}
	if n := utf8.RuneCountInString(s); n < least || n > most {
		o.add(o.at(name), CodeLength, fmt.Sprintf("%d to %d characters were expected", least, most))
		return ""
	}
	return s
}

// Int reads an integer from least to most; both must lie within MinInteger and MaxInteger.
func (o *Object) Int(name string, least, most int64, p Presence) int64 {
	v, ok := o.get(name, p)
	if !ok {
		return 0
	}
	n, _ := o.integer(o.at(name), v, least, most)
	return n
}

// NullableInt reads an integer or null; nil where it is null, missing or wrong.
func (o *Object) NullableInt(name string, least, most int64, p Presence) *int64 {
	v, ok := o.get(name, p)
	if !ok || v.kind == Null {
		return nil
	}
	n, ok := o.integer(o.at(name), v, least, most)
	if !ok {
		return nil
	}
	return &n
}

// Bool reads a boolean.
func (o *Object) Bool(name string, p Presence) bool {
	v, ok := o.get(name, p)
	if !ok || !o.want(o.at(name), v, Bool) {
		return false
	}
	return v.text == "true"
}

// StringList reads an array of strings; nil unless every element is one.
func (o *Object) StringList(name string, p Presence) []string {
	v, ok := o.get(name, p)
	if !ok || !o.want(o.at(name), v, Array) {
		return nil
	}
	list, good := make([]string, 0, len(v.items)), true
	for i, item := range v.items {
		s, ok := o.text(o.at(name)+"/"+strconv.Itoa(i), item.Value)
		list, good = append(list, s), good && ok
	}
	if !good {
		return nil
	}
	return list
}

// Object reads a member that is an object; its problems are among those of o.
func (o *Object) Object(name string, p Presence) *Object {
	v, ok := o.get(name, p)
	return newObject(o.report, o.at(name), v, ok)
}

// Objects reads an array of objects, each with problems among those of o.
func (o *Object) Objects(name string, p Presence) []*Object {
	v, ok := o.get(name, p)
	if !ok || !o.want(o.at(name), v, Array) {
		return nil
	}
	list := make([]*Object, len(v.items))
	for i, item := range v.items {
		list[i] = newObject(o.report, o.at(name)+"/"+strconv.Itoa(i), item.Value, true)
	}
	return list
}

// Values reads an array of anything, to be decoded one by one: each with problems of its own.
func (o *Object) Values(name string, p Presence) []Value {
	v, ok := o.get(name, p)
	if !ok || !o.want(o.at(name), v, Array) {
		return nil
	}
	return v.Elements()
}

// Value reads a member of any type; null where it is missing. Nothing within it is checked.
func (o *Object) Value(name string, p Presence) Value {
	v, _ := o.get(name, p)
	return v
}

func (o *Object) add(pointer, code, message string) {
	o.report.problems = append(o.report.problems, Problem{pointer, code, message})
}

func (o *Object) at(name string) string {
	if strings.ContainsAny(name, "~/") {
		name = strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return o.pointer + "/" + name
}

// look asks for a member: the first of that name.
func (o *Object) look(name string) (Value, bool) {
	if !o.knows(name) {
		o.asked = append(o.asked, name)
	}
	for _, m := range o.members {
		if m.Name == name {
			return m.Value, true
		}
	}
	return Value{}, false
}

func (o *Object) get(name string, p Presence) (Value, bool) {
	v, ok := o.look(name)
	if !ok && p == Required && o.present {
		o.add(o.at(name), CodeRequired, "the member is required")
	}
	return v, ok
}

func (o *Object) want(pointer string, v Value, kind Kind) bool {
	if v.kind == kind {
		return true
	}
	o.add(pointer, CodeType, fmt.Sprintf("%s was expected, not %s", kind, v.kind))
	return false
}

func (o *Object) text(pointer string, v Value) (string, bool) {
	if !o.want(pointer, v, String) {
		return "", false
	}
	if strings.IndexByte(v.text, 0) >= 0 {
		o.add(pointer, CodeNUL, "a string without U+0000 was expected")
		return "", false
	}
	return v.text, true
}

func (o *Object) integer(pointer string, v Value, least, most int64) (int64, bool) {
	if !o.want(pointer, v, Number) {
		return 0, false
	}
	if !integerForm(v.text) {
		o.add(pointer, CodeInteger, "an integer in plain digits was expected, without fraction, exponent or minus zero")
		return 0, false
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n < max(least, MinInteger) || n > min(most, MaxInteger) {
		o.add(pointer, CodeRange, fmt.Sprintf("an integer from %d to %d was expected", max(least, MinInteger), min(most, MaxInteger)))
		return 0, false
	}
	return n, true
}

// integerForm knows that text is a JSON number, so leading zeros are out already.
func integerForm(text string) bool {
	return text != "-0" && strings.IndexFunc(strings.TrimPrefix(text, "-"), func(r rune) bool { return r < '0' || r > '9' }) < 0
}
