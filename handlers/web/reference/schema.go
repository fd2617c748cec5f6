package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Variant is one shape of a body: its members, flattened.
type Variant struct {
	// Type is that of the body itself, where it has no members to show.
	Type        string
	Description string
	Members     []Member
}

// Member is a member of a body, a parameter or a header.
type Member struct {
	Parent, Name string // "usage." and "limit"; items of an array have the parent "events[]."
	In           string // of a parameter: path, query, header
	Type         string // the types, joined with " | "
	Required     bool
	Rules        []Rule
	Description  string
	Example      string // of a parameter
}

// Rule is a constraint on a value.
type Rule struct{ Kind, Value string }

// Kinds of rules.
const (
	Range   = "range"   // of a number
	Length  = "length"  // of a string, in characters
	Items   = "items"   // how many an array may have
	Pattern = "pattern" // ECMA 262
	Values  = "values"  // separated by spaces
	Default = "default"
	Format  = "format"
	Content = "content" // the media type of what a string holds
	Unique  = "unique"
	Each    = "each" // what holds of each item
)

// schema is a JSON Schema as far as the documents use it. A keyword that is not here makes Parse fail.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 types             `json:"type"`
	Title                string            `json:"title"`
	Description          string            `json:"description"`
	Properties           ordered[schema]   `json:"properties"`
	Required             []string          `json:"required"`
	AdditionalProperties *json.RawMessage  `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	OneOf                []schema          `json:"oneOf"`
	AnyOf                []schema          `json:"anyOf"`
	Enum                 []json.RawMessage `json:"enum"`
	Const                json.RawMessage   `json:"const"`
	Default              json.RawMessage   `json:"default"`
	Examples             json.RawMessage   `json:"examples"`
	Pattern              string            `json:"pattern"`
	Format               string            `json:"format"`
	ContentMediaType     string            `json:"contentMediaType"`
	Minimum              *json.Number      `json:"minimum"`
	Maximum              *json.Number      `json:"maximum"`
	MinLength            *json.Number      `json:"minLength"`
	MaxLength            *json.Number      `json:"maxLength"`
	MinItems             *json.Number      `json:"minItems"`
	MaxItems             *json.Number      `json:"maxItems"`
	UniqueItems          bool              `json:"uniqueItems"`
}

// UnmarshalJSON refuses a keyword that would be lost.
func (s *schema) UnmarshalJSON(text []byte) error {
	type plain schema // without this method
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(s)); err != nil {
		return fmt.Errorf("a schema: %w", err)
	}
	return nil
}

// types is the member type, one name or several.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		*t = make(types, 1)
		return json.Unmarshal(text, &(*t)[0])
	}
	return json.Unmarshal(text, (*[]string)(t))
}

const deepest = 8 // levels of members; deeper ones mean that a schema holds itself

func (r *raw) variants(s schema) ([]Variant, error) {
	s, err := resolve(s, s.Ref, r.Components.Schemas)
	if err != nil {
		return nil, err
	}
	alternatives := s.OneOf
	if len(alternatives) == 0 {
		alternatives = []schema{s}
	}
	var list []Variant
	for _, a := range alternatives {
		if a, err = resolve(a, a.Ref, r.Components.Schemas); err != nil {
			return nil, err
		}
		v := Variant{Type: strings.Join(a.Type, " | "), Description: a.Description}
		if v.Members, err = r.members("", a, 0); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// members lists those of an object and of what it holds, in the order of the document.
func (r *raw) members(parent string, s schema, depth int) (list []Member, err error) {
	if depth > deepest {
		return nil, errors.New("a schema holds itself")
	}
	for _, property := range s.Properties {
		m, err := r.member(property.Name, property.Value)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", parent, property.Name, err)
		}
		m.Parent, m.Required = parent, slices.Contains(s.Required, property.Name)
		list = append(list, m)
		inner, err := r.inside(parent+property.Name, property.Value, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, inner...)
	}
	return list, nil
}

// inside lists the members of what a member holds: an object, its alternatives, or the items of an array.
func (r *raw) inside(path string, s schema, depth int) (list []Member, err error) {
	if s, err = resolve(s, s.Ref, r.Components.Schemas); err != nil {
		return nil, err
	}
	if s.Items != nil {
		return r.inside(path+"[]", *s.Items, depth)
	}
	for _, alternative := range slices.Concat([]schema{s}, s.OneOf, s.AnyOf) {
		if alternative, err = resolve(alternative, alternative.Ref, r.Components.Schemas); err != nil {
			return nil, err
		}
		inner, err := r.members(path+".", alternative, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, inner...)
	}
	return list, nil
}

// member describes a value without what is inside of it.
func (r *raw) member(name string, s schema) (Member, error) {
	described := s.Description
	s, err := resolve(s, s.Ref, r.Components.Schemas)
	if err != nil {
		return Member{}, err
	}
	if described == "" {
		described = s.Description
	}
	m := Member{Name: name, Description: described, Rules: s.rules()}
	kinds := slices.Clone(s.Type)
	for _, alternative := range slices.Concat(s.OneOf, s.AnyOf) {
		if alternative, err = resolve(alternative, alternative.Ref, r.Components.Schemas); err != nil {
			return m, err
		}
		kinds = append(kinds, alternative.Type...)
		m.Rules = append(m.Rules, alternative.rules()...)
	}
	if s.Items != nil {
		item, err := r.member("", *s.Items)
		if err != nil {
			return m, err
		}
		for i, kind := range kinds {
			if kind == "array" {
				kinds[i] = item.Type + "[]"
			}
		}
		for _, rule := range item.Rules {
			m.Rules = append(m.Rules, Rule{Each, ""}, rule)
		}
	}
	if len(kinds) == 0 && s.Const != nil {
		kinds = types{"string"}
	}
	m.Type = strings.Join(slices.Compact(kinds), " | ")
	return m, nil
}

func (s schema) rules() (list []Rule) {
	add := func(kind, value string) {
		if value != "" {
			list = append(list, Rule{kind, value})
		}
	}
	add(Range, between(s.Minimum, s.Maximum))
	add(Length, between(s.MinLength, s.MaxLength))
	add(Items, between(s.MinItems, s.MaxItems))
	if s.UniqueItems {
		list = append(list, Rule{Unique, ""})
	}
	if s.Format != "date-time" { // the pattern of a moment says the same at greater length
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
	add(Values, strings.Join(values, " "))
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

// plain is a JSON value as people write it: a string without its quotes.
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
