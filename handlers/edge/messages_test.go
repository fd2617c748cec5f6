package edge

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources has the constants and files of each package of the product, by folder.
type sources map[string]*folder

type folder struct {
	files     map[string]*ast.File
	constants map[string]ast.Expr
}

func readSources(t *testing.T, rooms ...string) sources {
	t.Helper()
	all, positions := sources{}, token.NewFileSet()
	for _, room := range rooms {
		if err := filepath.WalkDir("../../"+room, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(positions, path, nil, 0)
			if err != nil {
				return err
			}
			at := all[filepath.Dir(path)]
			if at == nil {
				at = &folder{map[string]*ast.File{}, map[string]ast.Expr{}}
				all[filepath.Dir(path)] = at
			}
			at.files[path] = file
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
					for i, name := range spec.Names {
						at.constants[name.Name] = spec.Values[i]
					}
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// text returns the value of a constant string expression.
func (s sources) text(at *folder, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := s.text(at, e.X)
		right, also := s.text(at, e.Y)
		return left + right, ok && also
	case *ast.Ident:
		value, ok := at.constants[e.Name]
		if !ok || value == e {
			return "", false
		}
		return s.text(at, value)
	case *ast.SelectorExpr:
		for path, other := range s {
			if x, ok := e.X.(*ast.Ident); ok && filepath.Base(path) == x.Name && other.constants[e.Sel.Name] != nil {
				return s.text(other, other.constants[e.Sel.Name])
			}
		}
	}
	return "", false
}

// messageAt is the index of the argument that is a message, by function.
var messageAt = map[string]int{
	"Refuse": 1, "Unavailable": 0, "InvalidMember": 2, "NewProblem": 2, "Problem": 2, "ElementProblem": 3, "Match": 3,
	"ReadNames": 4, "within": 2, "refuse": 1, "refuseToken": 0, "MinuteUsed": 0,
}

// messageFields are the fields of composite literals that contain a message.
var messageFields = []string{"Message", "Format", "says"}

// nameOf returns the name of a function or type without its package.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// messages returns all messages in the source: arguments of these functions, values of these fields, and texts that
// these functions return as reasons.
func (s sources) messages() map[string]bool {
	found := map[string]bool{}
	for _, at := range s {
		add := func(e ast.Expr) {
			if text, ok := s.text(at, e); ok && strings.Contains(text, " ") {
				found[text] = true
			}
		}
		for path, file := range at.files {
			if strings.Contains(path, "domain/evidence/") && !strings.HasSuffix(path, "payload.go") ||
				strings.HasSuffix(path, "eventstore/cluster/nodes.go") {
				continue // texts of these files reach no answer
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					name := nameOf(n.Fun)
					if i, ok := messageAt[name]; ok && i < len(n.Args) {
						add(n.Args[i])
					}
					if strings.HasSuffix(path, "domain/evidence/payload.go") && name == "New" {
						add(n.Args[0])
					}
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(messageFields, key.Name) {
						add(n.Value)
					}
				case *ast.CompositeLit:
					if nameOf(n.Type) == "Sentence" && len(n.Elts) > 0 {
						add(n.Elts[0])
					}
				case *ast.FuncDecl:
					if slices.Contains([]string{"pathProblem", "reason", "Reason"}, n.Name.Name) {
						ast.Inspect(n, func(inner ast.Node) bool {
							if e, ok := inner.(ast.Expr); ok {
								add(e)
							}
							return true
						})
					}
				}
				return true
			})
		}
	}
	return found
}

var verb = regexp.MustCompile(`%[a-z]`)

// Each message has a Spanish text that names the same values in the same order, and there are no other Spanish texts.
func TestMessagesAreTranslated(t *testing.T) {
	spanish, err := spanishMessages()
	if err != nil {
		t.Fatal(err)
	}
	messages := readSources(t, "domain", "eventstore", "projections", "handlers").messages()
	delete(messages, "must be a timestamp of at most microseconds") // of stored data, which no caller sends
	for _, message := range slices.Sorted(maps.Keys(messages)) {
		if text, ok := spanish[message]; !ok {
			t.Errorf("messages.es.json lacks %q", message)
		} else if got, want := verb.FindAllString(text, -1), verb.FindAllString(message, -1); !slices.Equal(got, want) {
			t.Errorf("%q names %v, and %q %v", text, got, message, want)
		}
	}
	words := []string{
		" or ", "member", "parameter", "field", "null", "a boolean", "a number", "a string", "an array", "an object", "a text",
		"The body", "The part metadata", "The value of arguments",
	}
	for _, message := range slices.Sorted(maps.Keys(spanish)) {
		if !messages[message] && !slices.Contains(words, message) {
			t.Errorf("messages.es.json has %q, which is no message", message)
		}
	}
	if len(messages) < 250 {
		t.Errorf("only %d messages were found in the source", len(messages))
	}
}
