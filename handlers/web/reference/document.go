// Package reference turns an OpenAPI 3.1 document into the content of a reference page: groups of operations with their
// parameters, bodies, answers and errors.
//
// It supports the parts of OpenAPI that the documents in package schemas use, keeps their order, and resolves every
// $ref. It refuses a document with anything else, so that no constraint is lost silently. It knows no page and no
// request.
//
// [Spanish] has the Spanish of every text that pages show. A changed text needs a new entry in reference.es.json; a
// test lists the missing and the stale ones.
package reference

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Document is the content of an OpenAPI document.
type Document struct {
	Version string
	// Conventions are the list items under the heading "Conventions" of the description.
	Conventions []string
	Groups      []Group
}

// Group holds the operations with one tag.
type Group struct {
	Name        string
	Slug        string // the name in a path
	Description string
	Operations  []Operation
}

// Operation is a method of a path.
type Operation struct {
	ID, Method, Path     string
	Summary, Description string
	// Key says that the operation needs an API key.
	Key bool
	// Delivery says that the service sends the request to the receiver; Path is then empty.
	Delivery   bool
	Parameters []Member
	Bodies     []Body
	Answers    []Answer
	Refusals   []Refusal
}

// Body is a request or answer body in one media type.
type Body struct {
	MediaType string
	// Variants are the possible shapes, usually one.
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
	Codes               []string // possible error codes
}

// raw is the part of the document that is read.
type raw struct {
	Info struct{ Version, Description string }
	Tags []struct{ Name, Description string }
	// Paths and methods keep their order.
	Paths, Webhooks ordered[ordered[rawOperation]]
	Security        []json.RawMessage
	Components      struct {
		Schemas             map[string]schema
		Parameters, Headers map[string]rawParameter
		Responses           map[string]rawResponse
	}

	err error // the first problem of an operation
}

type rawOperation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []rawParameter
	RequestBody                       struct{ Content ordered[rawContent] }
	Responses                         ordered[rawResponse]
	Security                          []json.RawMessage
}

type rawParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Shown                 bool `json:"x-shown"` // an optional parameter that the example request has
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

// Parse reads a document. An error means that the document uses a part of OpenAPI that this package does not know, or
// that a reference leads nowhere.
func Parse(text []byte) (*Document, error) {
	var r raw
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	d := &Document{Version: r.Info.Version, Conventions: points(r.Info.Description, "Conventions")}
	for _, tag := range r.Tags {
		d.Groups = append(
			d.Groups, Group{Name: tag.Name, Slug: strings.ReplaceAll(tag.Name, " ", "-"), Description: tag.Description},
		)
	}
	for i, path := range slices.Concat(r.Paths, r.Webhooks) {
		for _, method := range path.Value {
			o := r.operation(path.Name, method.Name, method.Value)
			if i >= len(r.Paths) {
				o.Path, o.Delivery = "", true
			}
			group := slices.IndexFunc(d.Groups, func(g Group) bool { return slices.Equal(method.Value.Tags, []string{g.Name}) })
			switch {
			case r.err != nil:
				return nil, fmt.Errorf("reference: %s %s: %w", method.Name, path.Name, r.err)
			case group < 0:
				return nil, fmt.Errorf(
					"reference: %s has the tags %q, but must have one that the document explains", o.ID, method.Value.Tags,
				)
			}
			d.Groups[group].Operations = append(d.Groups[group].Operations, o)
		}
	}
	return d, nil
}

// points returns the list items below a heading of a Markdown text.
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

func (r *raw) operation(path, method string, in rawOperation) Operation {
	security := in.Security
	if security == nil {
		security = r.Security
	}
	o := Operation{
		ID: in.OperationID, Method: strings.ToUpper(method), Path: path, Summary: in.Summary, Description: in.Description,
		Key: len(security) > 0, Bodies: r.bodies(in.RequestBody.Content),
	}
	for _, p := range in.Parameters {
		o.Parameters = append(o.Parameters, r.parameter(p, r.Components.Parameters))
	}
	for _, status := range in.Responses {
		response := resolve(r, status.Value, status.Value.Ref, r.Components.Responses)
		if status.Name >= "400" {
			o.Refusals = append(o.Refusals, refusal(status.Name, response))
			continue
		}
		answer := Answer{Status: status.Name, Description: response.Description, Bodies: r.bodies(response.Content)}
		for _, header := range response.Headers {
			m := r.parameter(header.Value, r.Components.Headers)
			m.Name, m.In = header.Name, ""
			answer.Headers = append(answer.Headers, m)
		}
		for _, earlier := range o.Answers {
			if len(answer.Bodies) > 0 && sameMembers(earlier.Bodies, answer.Bodies) {
				answer.SameAs = earlier.Status
			}
		}
		o.Answers = append(o.Answers, answer)
	}
	return o
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
			var value struct{ Error struct{ Code string } }
			if json.Unmarshal(example.Value.Value, &value) == nil && value.Error.Code != "" {
				f.Codes = append(f.Codes, value.Error.Code)
			}
		}
	}
	return f
}

func (r *raw) parameter(p rawParameter, known map[string]rawParameter) Member {
	p = resolve(r, p, p.Ref, known)
	m := r.member(p.Name, p.Schema)
	m.In, m.Required, m.Shown, m.Example, m.Description = p.In, p.Required, p.Shown, plain(p.Example), cmp.Or(
		p.Description, m.Description,
	)
	return m
}

func (r *raw) bodies(content ordered[rawContent]) (list []Body) {
	for _, c := range content {
		example := c.Value.Example
		if example == nil && len(c.Value.Examples) > 0 {
			example = c.Value.Examples[0].Value.Value
		}
		list = append(list, Body{MediaType: c.Name, Variants: r.variants(c.Value.Schema), Example: indented(example)})
	}
	return list
}

// resolve returns the component that ref names, or inline if ref is empty.
func resolve[T any](r *raw, inline T, ref string, known map[string]T) T {
	found, ok := known[path.Base(ref)]
	switch {
	case ref == "":
		return inline
	case !ok && r.err == nil:
		r.err = fmt.Errorf("there is no %s", ref)
	}
	return found
}

func (r *raw) resolve(s schema) schema { return resolve(r, s, s.Ref, r.Components.Schemas) }

// namedScope finds the scope in the description of an operation.
var namedScope = regexp.MustCompile(`\bScope ([a-z]+:[a-z]+)`)

// Curl returns a request for the operation with the values of its examples, for a shell with the variables
// INTEGRITY_BASE_URL, INTEGRITY_API_KEY and, for a scope that a worker's key lacks, ADMIN_KEY. It is empty if the body
// is not JSON, has no example, or the service makes the request.
func (o Operation) Curl() string {
	if o.Delivery {
		return ""
	}
	var b strings.Builder
	b.WriteString("curl -sS")
	if o.Method != http.MethodGet {
		b.WriteString(" -X " + o.Method)
	}
	path, query := o.Path, ""
	for _, p := range o.Parameters {
		switch value := p.Example; {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))
		case p.In == "query" && (p.Required || p.Shown):
			query += map[bool]string{true: "?", false: "&"}[query == ""] + p.Name + "=" + url.QueryEscape(value)
		}
	}
	b.WriteString(` "$INTEGRITY_BASE_URL` + path + query + `"`)
	if o.Key {
		key := "INTEGRITY_API_KEY"
		if found := namedScope.FindStringSubmatch(o.Description); found != nil && found[1] != "integrity:read" &&
			found[1] != "integrity:write" {
			key = "ADMIN_KEY"
		}
		b.WriteString(" \\\n  -H \"Authorization: Bearer $" + key + "\"")
	}
	if len(o.Bodies) == 0 || o.Bodies[0].Example == "{}" { // an optional body
		return b.String()
	}
	body := o.Bodies[0]
	if body.MediaType != "application/json" || body.Example == "" {
		return ""
	}
	b.WriteString(
		" \\\n  -H \"Content-Type: application/json\" \\\n  -d '" + strings.ReplaceAll(body.Example, "'", `'\''`) + "'",
	)
	return b.String()
}
