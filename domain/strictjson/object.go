package strictjson

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"integrityledger/domain/say"
)

// Problem is one offending member of a text.
type Problem struct {
	Pointer string        `json:"pointer"` // RFC 6901; empty for the whole value
	Code    string        `json:"code"`
	Message string        `json:"message"` // what the member must be, in English
	said    *say.Sentence // nil: use Message
}

// NewProblem returns a Problem whose message is a format with its arguments (say.Sentence).
func NewProblem(pointer, code, format string, args ...any) Problem {
	said := say.Sentence{Format: format, Args: args}
	p := Problem{Pointer: pointer, Code: code, Message: said.String()}
	if len(args) > 0 {
		p.said = &said
	}
	return p
}

// Said returns the message for all languages.
func (p Problem) Said() say.Sentence {
	if p.said == nil {
		return say.Sentence{Format: p.Message}
	}
	return *p.said
}

// Codes of the problems found by this package; callers may add others.
const (
	CodeRequired  = "REQUIRED"          // the member is missing
	CodeType      = "TYPE"              // the member has the wrong JSON type
	CodeUnknown   = "UNKNOWN_MEMBER"    // the object has no such member
	CodeParameter = "UNKNOWN_PARAMETER" // the query has no such parameter
	CodeDuplicate = "DUPLICATE_MEMBER"  // the name appears more than once
	CodeInteger   = "INTEGER"           // a number that is not -?(0|[1-9][0-9]*)
	CodeRange     = "RANGE"             // an integer out of bounds
	CodeFormat    = "FORMAT"            // a string in the wrong format
	CodeLength    = "LENGTH"            // too short or too long
	CodeNUL       = "NUL"               // U+0000 inside a string
	CodeMore      = "MORE"              // stands for the problems that are not listed
)

// MaxInteger and MinInteger bound every integer: a double represents all integers between them exactly (RFC 7493,
// section 2.2).
const (
	MaxInteger int64 = 1<<53 - 1
	MinInteger int64 = -MaxInteger
)

// MaxProblems is the maximum number of problems listed in a response.
const MaxProblems = 100

// AnyLength is the bound of a list that is limited only by the length of the whole text.
const AnyLength = math.MaxInt

// Presence tells whether a missing member is a problem.
type Presence bool

// Whether a member must be present. An optional member that is null is still a TYPE problem, unless it is read by a
// Nullable method.
const (
	Required Presence = true
	Optional Presence = false
)

// Object reads the members of one JSON object, the parameters of a query or the fields of a form, and collects all
// problems. A method whose member is missing or invalid returns the zero value; callers read everything they know, then
// ask for Problems. An Object is never nil: if the object itself is missing or has another type, every member is absent
// and no further problem is reported. It is not safe for concurrent use.
//
// Reading takes time proportional to the length of the text, whatever its content: members are found by name, each
// problem is detected at its member, and a list that is too long is one problem.
type Object struct {
	report  *report
	parent  *Object // this object is its member name, or an element of that member
	name    string
	pointer string
	present bool
	members []Member
	entries []entry
	places  map[string]int // into entries, for all but the first fewEntries
	bound   map[string]string
}

// entry is one distinct name: of a member, or of a missing member that was requested.
type entry struct {
	name  string
	first int // into members
	count int // of members
	asked bool
	wrong bool // a problem was found with the member, or within it
}

// Each takes kilobytes to create, so they are created once.
var (
	plainName   = strings.NewReplacer("_", "", "-", "")
	pointerName = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901, section 4
)

// report is shared by an object and all objects read from it.
type report struct {
	meter    *Meter
	source   source
	steps    int64 // taken since they were last counted
	objects  []*Object
	problems []Problem // at most one more than MaxProblems
}

// full reports whether there are already more problems than will be listed.
func (r *report) full() bool { return len(r.problems) > MaxProblems }

// Decode returns an Object that reads v, which must be an object.
func Decode(v Value) *Object { return new(Meter).Decode(v) }

// Decode is the function Decode, with its steps counted.
func (m *Meter) Decode(v Value) *Object {
	return newObject(&report{meter: m}, nil, "", "", v, true)
}

func newObject(r *report, parent *Object, name, pointer string, v Value, given bool) *Object {
	o := &Object{report: r, parent: parent, name: name, pointer: pointer}
	r.objects = append(r.objects, o)
	r.steps++
	switch {
	case !given:
	case v.kind != ObjectKind:
		o.Problem("", CodeType, "must be an object, not %s", v.kind)
	default:
		o.present, o.members = true, v.items
		o.entries = make([]entry, 0, min(len(v.items), 4*fewEntries))
		for i, m := range v.items {
			e := o.entry(m.Name)
			if e.count++; e.count == 1 {
				e.first = i
			}
		}
	}
	return o
}

// fewEntries is the number of entries up to which comparing all names is cheaper than a map.
const fewEntries = 16

// find returns the index of the name in entries, -1 if missing.
func (o *Object) find(name string) int {
	for i := range min(len(o.entries), fewEntries) {
		o.report.steps++
		if known := o.entries[i].name; len(known) == len(name) {
			o.report.steps += int64(len(name))
			if known == name {
				return i
			}
		}
	}
	if i, ok := o.places[name]; ok {
		return i
	}
	return -1
}

// entry returns the entry of a name, created if necessary. It is valid until the next entry is created.
func (o *Object) entry(name string) *entry {
	i := o.find(name)
	if i < 0 {
		i = len(o.entries)
		o.entries = append(o.entries, entry{name: name})
		if i == fewEntries {
			o.places = map[string]int{}
		}
		if i >= fewEntries {
			o.places[name] = i
		}
	}
	return &o.entries[i]
}

// Bind supplies texts by name from outside the object, such as the variables of a path. Reading such a name returns the
// bound text, which is never a problem; a member of the same name is reported as unknown.
func (o *Object) Bind(texts map[string]string) { o.bound = texts }

// Also adds problems found elsewhere.
func (o *Object) Also(problems []Problem) { o.report.problems = append(o.report.problems, problems...) }

// Problems lists the problems of the object and of the objects read from it: first the problems found by the reading
// methods, in that order, then unknown and duplicate members, each with its pointer. If there are more than
// MaxProblems, the last entry says so.
func (o *Object) Problems() []Problem {
	r := o.report
	list := o.Wrong()
	for _, object := range r.objects {
		list = object.appendUnexpected(list)
	}
	r.meter.add(r.steps)
	r.steps = 0
	return Listed(list, MaxProblems)
}

// Wrong lists the problems that the reading methods have found so far, without unknown members.
func (o *Object) Wrong() []Problem { return append([]Problem(nil), o.report.problems...) }

// Listed returns the list of problems for display. If it has more than most entries, the last displayed entry has
// CodeMore and stands for the rest.
func Listed(problems []Problem, most int) []Problem {
	if len(problems) <= most {
		return problems
	}
	listed := most - 1
	return append(
		problems[:listed:listed],
		NewProblem("", CodeMore, "there are more problems than the first %d, which are listed", listed),
	)
}

// appendUnexpected appends problems for members that were not requested and for duplicates, until the list is longer
// than MaxProblems.
func (o *Object) appendUnexpected(list []Problem) []Problem {
	if len(list) > MaxProblems || o.report.source == fromForm || !o.hasUnexpected() {
		return list
	}
	seen := make([]int, len(o.entries))
	for _, m := range o.members {
		i := o.find(m.Name)
		seen[i]++
		switch {
		case seen[i] == 2:
			list = append(list, o.about(m.Name, CodeDuplicate, say.Sentence{Format: "the member appears more than once"}))
		case seen[i] == 1 && !o.entries[i].asked && o.report.source == fromQuery:
			list = append(list, o.about(m.Name, CodeParameter, say.Sentence{Format: "there is no such parameter"}))
		case seen[i] == 1 && !o.entries[i].asked:
			message := say.Sentence{Format: "there is no such member"}
			if similar := o.similar(m.Name); similar != "" {
				message = say.Sentencef("there is no such member; did you mean %s?", similar)
			}
			list = append(list, o.about(m.Name, CodeUnknown, message))
		}
		if len(list) > MaxProblems {
			break
		}
	}
	return list
}

// hasUnexpected reports whether a member was not requested, or appears twice.
func (o *Object) hasUnexpected() bool {
	o.report.steps += int64(len(o.entries))
	for i := range o.entries {
		if e := &o.entries[i]; e.count > 1 || e.count == 1 && !e.asked {
			return true
		}
	}
	return false
}

// maxShownName is the maximum length in bytes of a name that a response repeats.
const maxShownName = 200

// about returns a problem of a member whose name was chosen by the text's author. If the name is too long to be
// repeated, the problem is reported at the object.
func (o *Object) about(name, code string, message say.Sentence) Problem {
	if len(name) > maxShownName {
		return NewProblem(o.pointer, code, "%s (its name has %d bytes)", message, len(name))
	}
	return NewProblem(o.at(name), code, message.Format, message.Args...)
}

// similar returns the known member that differs from name only in case, "_" and "-".
func (o *Object) similar(name string) string {
	if len(name) > maxShownName {
		return ""
	}
	name = plainName.Replace(name)
	for i := range o.entries {
		o.report.steps++
		if e := &o.entries[i]; e.asked && strings.EqualFold(plainName.Replace(e.name), name) {
			return e.name
		}
	}
	return ""
}

// Problem adds a problem of a member; name "" means the object itself. format and args say what the member must be
// (say.Sentence).
func (o *Object) Problem(name, code, format string, args ...any) { o.add(name, "", code, format, args) }

// ElementProblem adds a problem of one element of an array member.
func (o *Object) ElementProblem(name string, index int, code, format string, args ...any) {
	o.add(name, "/"+strconv.Itoa(index), code, format, args)
}

// add lists a problem of the object, of a member or of an element of a member, unless enough are listed. It marks the
// member and all enclosing objects as wrong.
func (o *Object) add(name, element, code, format string, args []any) {
	at, member := o, name
	if name == "" {
		at, member = o.parent, o.name
	}
	for ; at != nil; at, member = at.parent, at.name {
		e := at.entry(member)
		if e.wrong {
			break
		}
		e.wrong = true
	}
	if o.report.steps++; o.report.full() {
		return
	}
	pointer := o.pointer
	if name != "" {
		pointer = o.at(name) + element
	}
	o.report.problems = append(o.report.problems, NewProblem(pointer, code, format, args...))
}

// at returns the pointer to a member. A name that is too long to be repeated is truncated.
func (o *Object) at(name string) string {
	if len(name) > maxShownName {
		name = strings.ToValidUTF8(name[:maxShownName], "") + "…"
	}
	o.report.steps += int64(len(o.pointer) + len(name))
	return o.pointer + "/" + pointerName.Replace(name)
}

// Present reports whether the object itself is present and is an object.
func (o *Object) Present() bool { return o.present }

// Has reports whether the member is present, of any type including null. It counts as requesting the member.
func (o *Object) Has(name string) bool {
	_, ok := o.get(name, Optional)
	return ok
}

// OK reports whether the member is present, once, and no problem was found with it or within it so far: the condition
// for a caller's own checks.
func (o *Object) OK(name string) bool {
	i := o.find(name)
	return i >= 0 && o.entries[i].count == 1 && !o.entries[i].wrong
}

// Names lists the distinct member names in their order, for objects whose names are data. It does not count as
// requesting them.
func (o *Object) Names() []string {
	var names []string
	for _, e := range o.entries {
		if e.count > 0 {
			names = append(names, e.name)
		}
	}
	return names
}

// Value reads a member of any type, null if it is missing. Its content is not checked.
func (o *Object) Value(name string, p Presence) Value {
	v, _ := o.get(name, p)
	return v
}

// String reads a string without U+0000.
func (o *Object) String(name string, p Presence) string {
	s, _ := o.text(name, p, false)
	return s
}

// NullableString reads a string or null; nil if it is null, missing or invalid.
func (o *Object) NullableString(name string, p Presence) *string {
	return given(o.text(name, p, true))
}

// Match reads a string that must match; otherwise the problem is FORMAT with the message, which says what the member
// must be.
func (o *Object) Match(
	name string, p Presence, matches func(string) bool, format string, args ...any,
) string {
	s, ok := o.text(name, p, false)
	if ok && !matches(s) {
		o.Problem(name, CodeFormat, format, args...)
		return ""
	}
	return s
}

// Sized reads a string of least to most characters (Unicode code points).
func (o *Object) Sized(name string, p Presence, least, most int) string {
	s, ok := o.text(name, p, false)
	if n := utf8.RuneCountInString(s); ok && (n < least || n > most) {
		o.Problem(name, CodeLength, "must have %d to %d characters", least, most)
		return ""
	}
	return s
}

// Int reads an integer from least to most; both must lie within MinInteger and MaxInteger.
func (o *Object) Int(name string, least, most int64, p Presence) int64 {
	n, _ := o.integer(name, p, false, least, most)
	return n
}

// NullableInt reads an integer or null; nil if it is null, missing or invalid.
func (o *Object) NullableInt(name string, least, most int64, p Presence) *int64 {
	return given(o.integer(name, p, true, least, most))
}

func given[T any](t T, ok bool) *T {
	if ok {
		return new(t)
	}
	return nil
}

// Bool reads a boolean.
func (o *Object) Bool(name string, p Presence) bool {
	v, ok := o.typed(name, p, false, Bool)
	return ok && v.text == "true"
}

// StringList reads an array of least to most strings; nil unless every element is one.
func (o *Object) StringList(name string, p Presence, least, most int) []string {
	items, ok := o.list(name, p, least, most)
	if !ok {
		return nil
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		o.report.steps += int64(len(item.Value.text))
		switch v := item.Value; {
		case v.kind != String:
			o.ElementProblem(name, i, CodeType, "must be %s, not %s", String, v.kind)
		case strings.IndexByte(v.text, 0) >= 0:
			o.ElementProblem(name, i, CodeNUL, withoutNUL)
		default:
			list = append(list, v.text)
		}
		if o.report.full() {
			break
		}
	}
	if len(list) < len(items) {
		return nil
	}
	return list
}

// Object reads a member that is an object; its problems are included in the problems of o.
func (o *Object) Object(name string, p Presence) *Object {
	v, ok := o.get(name, p)
	return newObject(o.report, o, name, o.at(name), v, ok)
}

// Objects reads an array of least to most objects. Their problems are included in the problems of o. It stops after
// finding more problems than will be listed.
func (o *Object) Objects(name string, p Presence, least, most int) []*Object {
	items, ok := o.list(name, p, least, most)
	if !ok {
		return nil
	}
	list, at := make([]*Object, 0, len(items)), o.at(name)+"/"
	for i, item := range items {
		list = append(list, newObject(o.report, o, name, at+strconv.Itoa(i), item.Value, true))
		if o.report.full() {
			break
		}
	}
	return list
}

// Values reads an array of least to most values of any kind, to be decoded one by one, each with its own problems.
func (o *Object) Values(name string, p Presence, least, most int) []Value {
	items, _ := o.list(name, p, least, most)
	return values(items)
}

// list reads an array of least to most elements. The elements of a shorter or longer array are not read.
func (o *Object) list(name string, p Presence, least, most int) ([]Member, bool) {
	v, ok := o.typed(name, p, false, Array)
	if n := len(v.items); ok && (n < least || n > most) {
		if most == AnyLength {
			o.Problem(name, CodeLength, "must have at least %d elements, not %d", least, n)
		} else {
			o.Problem(name, CodeLength, "must have %d to %d elements, not %d", least, most, n)
		}
		return nil, false
	}
	o.report.steps += int64(len(v.items))
	return v.items, ok
}

// get requests a member: the first of that name.
func (o *Object) get(name string, p Presence) (Value, bool) {
	e := o.entry(name)
	e.asked = true
	if e.count > 0 {
		return o.members[e.first].Value, true
	}
	if p == Required && o.present {
		o.Problem(name, CodeRequired, "the %s is required", o.report.source.noun())
	}
	return Value{}, false
}

// typed requests a member of a kind. If nullable, null is not a problem, but ok is false.
func (o *Object) typed(name string, p Presence, nullable bool, kind Kind) (v Value, ok bool) {
	v, ok = o.get(name, p)
	switch {
	case !ok, nullable && (v.kind == Null || o.report.source == fromForm && v.isBlank()):
		return Value{}, false
	case v.kind == rawText:
		return o.asKind(name, kind, v)
	case v.kind != kind:
		o.Problem(name, CodeType, "must be %s, not %s", kind, v.kind)
		return Value{}, false
	}
	o.report.steps += int64(len(v.text))
	return v, true
}

const withoutNUL = "must be a string without U+0000"

func (o *Object) text(name string, p Presence, nullable bool) (string, bool) {
	if text, ok := o.bound[name]; ok {
		return text, true
	}
	v, ok := o.typed(name, p, nullable, String)
	if ok && strings.IndexByte(v.text, 0) >= 0 {
		o.Problem(name, CodeNUL, withoutNUL)
		return "", false
	}
	return v.text, ok
}

func (o *Object) integer(name string, p Presence, nullable bool, least, most int64) (int64, bool) {
	v, ok := o.typed(name, p, nullable, Number)
	if !ok {
		return 0, false
	}
	if v.text == "-0" || strings.ContainsAny(v.text, ".eE") {
		o.Problem(name, CodeInteger, "must be an integer in plain digits, without fraction, exponent or minus zero")
		return 0, false
	}
	least, most = max(least, MinInteger), min(most, MaxInteger)
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n < least || n > most {
		o.Problem(name, CodeRange, "must be an integer from %d to %d", least, most)
		return 0, false
	}
	return n, true
}
