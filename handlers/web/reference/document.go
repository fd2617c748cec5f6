package reference

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Document is an OpenAPI document as it is shown.
type Document struct {
	Title, Version string
	// Conventions are the points under that heading of the description.
	Conventions []string
	Groups      []Group
}

// Group is the operations of a tag.
type Group struct {
	Name        string
	Slug        string // Name in a path
	Description string
	Operations  []Operation
}

// Operation is a method of a path.
type Operation struct {
	ID, Method, Path     string
	Summary, Description string
	// Key says that the operation needs an API key.
	Key bool
	// Delivery says that the service makes the request, to an address of the receiver's; Path is then empty.
	Delivery   bool
	Parameters []Member
	Bodies     []Body
	Answers    []Answer
	Refusals   []Refusal
}

// Body is what is sent or answered in a media type.
type Body struct {
	MediaType string
	// Variants are the shapes that it may have; mostly one.
	Variants []Variant
	Example  string // indented JSON; empty without one
}

// Answer is a status below 400.
type Answer struct {
	Status, Description string
	Headers             []Member
	Bodies              []Body
	// SameAs is an earlier status of the operation whose body has the same members.
	SameAs string
}

// Refusal is a status from 400 on.
type Refusal struct {
	Status, Description string
	Codes               []Code
}

// Code is an error code with which a status may come.
type Code struct {
	Name   string
	Detail string // of the example
}

// raw is the document as far as it is read.
type raw struct {
	Info struct{ Title, Version, Description string }
	Tags []struct{ Name, Description string }
	// Paths in their order, each with its operations by method in theirs.
	Paths      ordered[ordered[rawOperation]]
	Webhooks   ordered[ordered[rawOperation]]
	Security   []json.RawMessage
	Components components
}

type components struct {
	Schemas    map[string]schema
	Parameters map[string]rawParameter
	Headers    map[string]rawParameter
	Responses  map[string]rawResponse
}

type rawOperation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []rawParameter
	RequestBody                       *struct{ Content ordered[rawContent] }
	Responses                         ordered[rawResponse]
	Security                          *[]json.RawMessage
}

type rawParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
	Example               json.RawMessage
}

type rawResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     ordered[rawParameter]
	Content     ordered[rawContent]
}

type rawContent struct {
	Schema   schema
	Example  json.RawMessage
	Examples ordered[struct{ Value json.RawMessage }]
}

// Parse reads a document. An error means that it uses what this package does not know, or refers to what is not there.
func Parse(text []byte) (*Document, error) {
	var r raw
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	d := &Document{Title: r.Info.Title, Version: r.Info.Version, Conventions: points(r.Info.Description, "Conventions")}
	groups := map[string]int{}
	for i, tag := range r.Tags {
		d.Groups = append(d.Groups, Group{Name: tag.Name, Slug: strings.ReplaceAll(tag.Name, " ", "-"), Description: tag.Description})
		groups[tag.Name] = i
	}
	for i, path := range slices.Concat(r.Paths, r.Webhooks) {
		for _, method := range path.Value {
			o, err := r.operation(path.Name, method.Name, method.Value)
			if err != nil {
				return nil, fmt.Errorf("reference: %s %s: %w", method.Name, path.Name, err)
			}
			if i >= len(r.Paths) {
				o.Path, o.Delivery = "", true
			}
			if len(method.Value.Tags) != 1 {
				return nil, fmt.Errorf("reference: %s has %d tags, but must have one", o.ID, len(method.Value.Tags))
			}
			group, ok := groups[method.Value.Tags[0]]
			if !ok {
				return nil, fmt.Errorf("reference: %s has the tag %q, which the document does not explain", o.ID, method.Value.Tags[0])
			}
			d.Groups[group].Operations = append(d.Groups[group].Operations, o)
		}
	}
	return d, nil
}

// points are the list items below a heading of a text in Markdown.
func points(text, heading string) (list []string) {
	_, after, _ := strings.Cut(text, "## "+heading+"\n")
	section, _, _ := strings.Cut(after, "\n## ")
	for line := range strings.Lines(section) {
		if point, ok := strings.CutPrefix(line, "- "); ok {
			list = append(list, strings.TrimSpace(point))
		}
	}
	return list
}

func (r *raw) operation(path, method string, in rawOperation) (Operation, error) {
	o := Operation{
		ID: in.OperationID, Method: strings.ToUpper(method), Path: path, Summary: in.Summary, Description: in.Description,
		Key: len(r.Security) > 0,
	}
	if in.Security != nil {
		o.Key = len(*in.Security) > 0
	}
	for _, p := range in.Parameters {
		m, err := r.parameter(p, r.Components.Parameters)
		if err != nil {
			return o, err
		}
		o.Parameters = append(o.Parameters, m)
	}
	if in.RequestBody != nil {
		var err error
		if o.Bodies, err = r.bodies(in.RequestBody.Content); err != nil {
			return o, err
		}
	}
	for _, status := range in.Responses {
		response, err := resolve(status.Value, status.Value.Ref, r.Components.Responses)
		if err != nil {
			return o, err
		}
		if status.Name >= "400" {
			o.Refusals = append(o.Refusals, refusal(status.Name, response))
			continue
		}
		answer := Answer{Status: status.Name, Description: response.Description}
		for _, header := range response.Headers {
			m, err := r.parameter(header.Value, r.Components.Headers)
			if err != nil {
				return o, err
			}
			m.Name, m.In = header.Name, ""
			answer.Headers = append(answer.Headers, m)
		}
		if answer.Bodies, err = r.bodies(response.Content); err != nil {
			return o, err
		}
		for _, earlier := range o.Answers {
			if len(answer.Bodies) > 0 && sameMembers(earlier.Bodies, answer.Bodies) {
				answer.SameAs = earlier.Status
			}
		}
		o.Answers = append(o.Answers, answer)
	}
	return o, nil
}

func sameMembers(a, b []Body) bool {
	return slices.EqualFunc(a, b, func(a, b Body) bool {
		return a.MediaType == b.MediaType && reflect.DeepEqual(a.Variants, b.Variants)
	})
}

func refusal(status string, response rawResponse) Refusal {
	f := Refusal{Status: status, Description: response.Description}
	for _, content := range response.Content {
		for _, example := range content.Value.Examples {
			var value struct{ Error struct{ Code, Detail string } }
			if json.Unmarshal(example.Value.Value, &value) == nil && value.Error.Code != "" {
				f.Codes = append(f.Codes, Code{value.Error.Code, value.Error.Detail})
			}
		}
	}
	return f
}

func (r *raw) parameter(p rawParameter, known map[string]rawParameter) (Member, error) {
	p, err := resolve(p, p.Ref, known)
	if err != nil {
		return Member{}, err
	}
	m, err := r.member(p.Name, p.Schema)
	m.In, m.Required, m.Example = p.In, p.Required, plain(p.Example)
	if p.Description != "" {
		m.Description = p.Description
	}
	return m, err
}

func (r *raw) bodies(content ordered[rawContent]) (list []Body, err error) {
	for _, c := range content {
		b := Body{MediaType: c.Name}
		if b.Variants, err = r.variants(c.Value.Schema); err != nil {
			return nil, err
		}
		example := c.Value.Example
		if example == nil && len(c.Value.Examples) > 0 {
			example = c.Value.Examples[0].Value.Value
		}
		b.Example = indented(example)
		list = append(list, b)
	}
	return list, nil
}

// resolve follows a reference to a component, or returns what is no reference.
func resolve[T any](inline T, ref string, known map[string]T) (T, error) {
	if ref == "" {
		return inline, nil
	}
	found, ok := known[ref[strings.LastIndex(ref, "/")+1:]]
	if !ok {
		return inline, fmt.Errorf("there is no %s", ref)
	}
	return found, nil
}
