package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Variant is one shape of a body: its members, flattened.
type Variant struct {
	// Type is the type of the body itself, for a body without members.
	Type        string
	Description string
	Members     []Member
}

// Member is a member of a body, a parameter or a header.
type Member struct {
	Parent, Name string // "usage." and "limit"; items of an array have the parent "events[]."
	In           string // for a parameter: path, query or header
	Type         string // the types, joined with " | "
	Required     bool
	Shown        bool // an optional parameter that the example request has
	Rules        []Rule
	Description  string
	Example      string // for a parameter
}

// Rule is a constraint on a value. A kind that says everything has no values.
type Rule struct {
	Kind   string
	Values []string
}

// Kinds of rules.
const (
	Range   = "range"   // of a number
	Length  = "length"  // of a string, in characters
	Items   = "items"   // the length of an array
	Pattern = "pattern" // ECMA 262
	Values  = "values"
	Default = "default"
	Format  = "format"
	Content = "content" // the media type of a string's content
	Unique  = "unique"
	Each    = "each" // the next rule applies to each item
)

// schema is the part of JSON Schema that the documents use. Any other keyword makes Parse fail.
type schema struct {
	Ref                                                        string `json:"$ref"`
	Type                                                       types
	Title, Description, Pattern, Format, ContentMediaType      string
	Properties                                                 ordered[schema]
	Required                                                   []string
	Items                                                      *schema
	OneOf, AnyOf                                               []schema
	Enum                                                       []json.RawMessage
	AdditionalProperties, Const, Default, Examples             json.RawMessage
	Minimum, Maximum, MinLength, MaxLength, MinItems, MaxItems *json.Number
	UniqueItems                                                bool
}

// UnmarshalJSON refuses an unknown keyword, which would be lost.
func (s *schema) UnmarshalJSON(text []byte) error {
	type plain schema // without this method
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(s)); err != nil {
		return fmt.Errorf("a schema: %w", err)
	}
	return nil
}

// types is the keyword type: one name or several.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		*t = make(types, 1)
		return json.Unmarshal(text, &(*t)[0])
	}
	return json.Unmarshal(text, (*[]string)(t))
}

const deepest = 8 // levels of members; a deeper schema contains itself

func (r *raw) variants(s schema) (list []Variant) {
	s = r.resolve(s)
	alternatives := s.OneOf
	if len(alternatives) == 0 {
		alternatives = []schema{s}
	}
	for _, a := range alternatives {
		a = r.resolve(a)
		list = append(
			list, Variant{Type: strings.Join(a.Type, " | "), Description: a.Description, Members: r.members("", a, 0)},
		)
	}
	return list
}

// members lists the members of an object and of its values, in the order of the document.
func (r *raw) members(parent string, s schema, depth int) (list []Member) {
	if depth > deepest {
		r.err = errors.New("a schema holds itself")
		return nil
	}
	for _, property := range s.Properties {
		m := r.member(property.Name, property.Value)
		m.Parent, m.Required = parent, slices.Contains(s.Required, property.Name)
		list = append(list, m)
		list = append(list, r.inside(parent+property.Name, property.Value, depth)...)
	}
	return list
}

// inside lists the members of a member's value: of an object, of its alternatives, or of the items of an array.
func (r *raw) inside(path string, s schema, depth int) (list []Member) {
	s = r.resolve(s)
	if s.Items != nil {
		return r.inside(path+"[]", *s.Items, depth)
	}
	for _, alternative := range slices.Concat([]schema{s}, s.OneOf, s.AnyOf) {
		list = append(list, r.members(path+".", r.resolve(alternative), depth+1)...)
	}
	return list
}

// member describes a value without its members.
func (r *raw) member(name string, s schema) Member {
	described := s.Description
	s = r.resolve(s)
	m := Member{Name: name, Description: cmp.Or(described, s.Description), Rules: s.rules()}
	kinds := slices.Clone(s.Type)
	for _, alternative := range slices.Concat(s.OneOf, s.AnyOf) {
		alternative = r.resolve(alternative)
		kinds = append(kinds, alternative.Type...)
		m.Rules = append(m.Rules, alternative.rules()...)
	}
	if s.Items != nil {
		item := r.member("", *s.Items)
		for i, kind := range kinds {
			if kind == "array" {
				kinds[i] = item.Type + "[]"
			}
		}
		for _, rule := range item.Rules {
			m.Rules = append(m.Rules, Rule{Kind: Each}, rule)
		}
	}
	if len(kinds) == 0 && s.Const != nil {
		kinds = types{"string"}
	}
	m.Type = strings.Join(slices.Compact(kinds), " | ")
	return m
}

func (s schema) rules() (list []Rule) {
	add := func(kind string, values ...string) {
		if strings.Join(values, "") != "" {
			list = append(list, Rule{kind, values})
		}
	}
	add(Range, between(s.Minimum, s.Maximum))
	add(Length, between(s.MinLength, s.MaxLength))
	add(Items, between(s.MinItems, s.MaxItems))
	if s.UniqueItems {
		list = append(list, Rule{Kind: Unique})
	}
	if s.Format != "date-time" { // the pattern of a date-time only repeats the format
		add(Pattern, s.Pattern)
	}
	add(Format, s.Format)
	add(Content, s.ContentMediaType)
	values := make([]string, 0, len(s.Enum)+1)
	for _, value := range s.Enum {
		values = append(values, plain(value))
	}
	if s.Const != nil {
		values = append(values, plain(s.Const))
	}
	add(Values, slices.DeleteFunc(values, func(v string) bool { return v == "" })...) // null is part of the type
	add(Default, plain(s.Default))
	return list
}

func between(low, high *json.Number) string {
	switch {
	case low != nil && high != nil && *low == *high:
		return low.String()
	case low != nil && high != nil:
		return low.String() + " … " + high.String()
	case low != nil:
		return "≥ " + low.String()
	case high != nil:
		return "≤ " + high.String()
	}
	return ""
}

// plain returns a JSON value, a string without its quotes.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func indented(value json.RawMessage) string {
	var b bytes.Buffer
	if value == nil || json.Indent(&b, value, "", "  ") != nil {
		return ""
	}
	return b.String()
}

// ordered is a JSON object whose members keep their order.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSON reads an object.
func (o *ordered[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return fmt.Errorf("must be an object, not %v (%w)", start, err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		e := entry[T]{Name: name.(string)} // a member's name is a string
		if err := d.Decode(&e.Value); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		*o = append(*o, e)
	}
	return nil
}
