package web

import (
	"html/template"
	"text/template/parse"
)

// inline writes the texts of the catalogue into templates, escaped, so that rendering a page does not look them up and
// escape them again for each row. constants are the fields of the frame that never change, such as C, by name. The
// templates must use such a name for nothing else, and only where a text is visible or the value of a quoted attribute.
// Call it before the first page is rendered.
func inline(templates *template.Template, constants map[string]map[string]any) {
	for _, t := range templates.Templates() {
		if t.Tree == nil || t.Tree.Root == nil {
			continue
		}
		c := constantTexts{fields: constants, variables: map[string]any{}, set: map[string]int{}}
		c.each(t.Tree.Root, c.count)
		c.each(t.Tree.Root, c.bind)
		c.each(t.Tree.Root, c.write)
	}
}

// constantTexts finds the constant texts of one template.
type constantTexts struct {
	fields    map[string]map[string]any
	variables map[string]any // that are declared once, as constants
	set       map[string]int // how often each variable gets a value
}

// each calls do with the place of every node.
func (c *constantTexts) each(list *parse.ListNode, do func(*parse.Node)) {
	if list == nil {
		return
	}
	for i := range list.Nodes {
		do(&list.Nodes[i])
		if branch := branchOf(list.Nodes[i]); branch != nil {
			c.each(branch.List, do)
			c.each(branch.ElseList, do)
		}
	}
}

func branchOf(n parse.Node) *parse.BranchNode {
	switch n := n.(type) {
	case *parse.IfNode:
		return &n.BranchNode
	case *parse.RangeNode:
		return &n.BranchNode
	case *parse.WithNode:
		return &n.BranchNode
	}
	return nil
}

func pipeOf(n parse.Node) *parse.PipeNode {
	if a, ok := n.(*parse.ActionNode); ok {
		return a.Pipe
	}
	if b := branchOf(n); b != nil {
		return b.Pipe
	}
	return nil
}

func (c *constantTexts) count(place *parse.Node) {
	if pipe := pipeOf(*place); pipe != nil {
		for _, v := range pipe.Decl {
			c.set[v.Ident[0]]++
		}
	}
}

func (c *constantTexts) bind(place *parse.Node) {
	action, ok := (*place).(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) != 1 || c.set[action.Pipe.Decl[0].Ident[0]] != 1 {
		return
	}
	if value, known := c.value(action.Pipe); known {
		c.variables[action.Pipe.Decl[0].Ident[0]] = value
	}
}

func (c *constantTexts) write(place *parse.Node) {
	action, ok := (*place).(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 {
		return
	}
	if value, known := c.value(action.Pipe); known {
		if text, ok := value.(string); ok {
			*place = &parse.TextNode{NodeType: parse.NodeText, Pos: action.Pos, Text: []byte(template.HTMLEscapeString(text))}
		}
	}
}

// value returns the value of a pipeline that only names a constant, such as .C.Menu, $.C.Menu or $w.Menu.
func (c *constantTexts) value(pipe *parse.PipeNode) (value any, known bool) {
	if len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return nil, false
	}
	var path []string
	switch n := pipe.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		path = n.Ident
	case *parse.VariableNode:
		if value, known = c.variables[n.Ident[0]]; known {
			return member(value, n.Ident[1:])
		}
		if n.Ident[0] != "$" {
			return nil, false
		}
		path = n.Ident[1:]
	}
	if len(path) == 0 {
		return nil, false
	}
	value, known = c.fields[path[0]]
	if !known {
		return nil, false
	}
	return member(value, path[1:])
}

// member returns the value at a path in nested objects.
func member(value any, path []string) (any, bool) {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[name]; !ok {
			return nil, false
		}
	}
	return value, true
}
