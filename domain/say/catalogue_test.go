package say

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
	"Group": 1, "sayLine": 1, "describeJSON": 0, "organization": 0, "scopes": 2, "lifetime": 1, "must": 0, "idArgument": 1,
	"Unconfirmed": 1, "private": 0,
	"checked": 1, "withConn": 2, "parsed": 1, "between": 1, "step": 0, "stepSince": 2, "notCreatedHere": 2,
}

// unsaid are sources whose messages reach no person: they are logged, or stored as part of a report.
var unsaid = []string{"eventstore/cluster/nodes.go", "cmd/analyzer/detect/", "cmd/analyzer/child.go", "cmd/lab/"}

// evidenceCalls are functions of package evidence whose arguments are messages, or the parts of a token that they name.
var evidenceCalls = []string{
	"fail", "note", "read", "optional", "oid", "integer", "version", "boolean", "done", "one", "name", "algorithm",
	"parseNoteKey", "readNoteKeys",
}

// flagCall is a method of pflag.FlagSet that defines a flag; its last argument describes the flag.
var flagCall = regexp.MustCompile(`^(Bool|String|StringSlice|StringArray|Int|Int32|Int64|Duration)?(Var)?P?$`)

// messageFields are members of composite literals that hold a message.
var messageFields = []string{"Message", "Format", "says", "Help", "Expected", "Found"}

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
		word := func(e ast.Expr) {
			text, ok := s.text(at, e)
			if _, same := (Catalogue{texts: map[string]string{}}).lookup(text); ok && !same {
				found[text] = true
			}
		}
		add := func(e ast.Expr) {
			if text, _ := s.text(at, e); strings.Contains(text, " ") {
				word(e)
			}
		}
		for path, file := range at.files {
			if slices.ContainsFunc(unsaid, func(part string) bool { return strings.Contains(path, part) }) {
				continue
			}
			inEvidence := strings.Contains(path, "domain/evidence/")
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					name := nameOf(n.Fun)
					of, ok := n.Fun.(*ast.SelectorExpr)
					if ok && nameOf(of.X) == "say" && slices.Contains([]string{"Errorf", "Sentencef", "Word", "New"}, name) ||
						len(n.Args) > 0 && slices.Contains([]string{"Sayf", "Negativef", "tell", "line", "notChecked", "differs", "malformed"}, name) {
						word(n.Args[0])
					}
					if name == "eventsBar" || name == "wrapped" && len(n.Args) == 2 {
						word(n.Args[0])
					}
					if ok && nameOf(of.X) == "statement" && strings.Contains(path, "projections/query/") { // what failed
						for _, arg := range n.Args[:min(3, len(n.Args))] {
							word(arg)
						}
					}
					if name == "Rowf" && len(n.Args) > 1 {
						word(n.Args[0])
						word(n.Args[1])
					}
					if i, ok := messageAt[name]; ok && i < len(n.Args) {
						add(n.Args[i])
					}
					if inEvidence && slices.Contains(evidenceCalls, name) {
						for _, arg := range n.Args {
							add(arg)
						}
					}
					if name == "text" && strings.HasSuffix(path, "config/settings.go") && len(n.Args) > 1 {
						add(n.Args[1])
					}
					if len(n.Args) > 2 && flagCall.MatchString(name) && strings.Contains(path, "cmd/integrity/") {
						add(n.Args[len(n.Args)-1])
					}
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(messageFields, key.Name) {
						add(n.Value)
					}
				case *ast.CompositeLit:
					if nameOf(n.Type) == "Sentence" && len(n.Elts) > 0 {
						add(n.Elts[0])
					}
					if list, ok := n.Type.(*ast.ArrayType); ok && nameOf(list.Elt) == "Word" {
						for _, element := range n.Elts {
							word(element)
						}
					}
					if list, ok := n.Type.(*ast.ArrayType); ok && nameOf(list.Elt) == "RuleEntry" {
						for _, element := range n.Elts {
							word(element.(*ast.CompositeLit).Elts[2])
						}
					}
					if texts, ok := n.Type.(*ast.MapType); ok && nameOf(texts.Key) == "Word" {
						for _, element := range n.Elts {
							word(element.(*ast.KeyValueExpr).Key)
						}
					}
					if texts, ok := n.Type.(*ast.MapType); ok && nameOf(texts.Value) == "Word" {
						for _, element := range n.Elts {
							word(element.(*ast.KeyValueExpr).Value)
						}
					}
				case *ast.ValueSpec:
					if slices.Contains([]string{"Word", "ObjectKind"}, nameOf(n.Type)) {
						for _, value := range n.Values {
							word(value)
						}
					}
				case *ast.FuncDecl:
					if results := n.Type.Results; slices.Contains([]string{"pathProblem", "reason", "Reason"}, n.Name.Name) ||
						results != nil && nameOf(results.List[0].Type) == "Word" {
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

// literals returns all words in the source: values such as states are looked up by the word that they are.
func (s sources) literals() map[string]bool {
	found := map[string]bool{}
	for _, at := range s {
		for _, file := range at.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if e, ok := n.(*ast.BasicLit); ok {
					text, _ := s.text(at, e)
					found[text] = true
				}
				return true
			})
		}
	}
	return found
}

// jsonFaults are what encoding/json says of a text, after the character that it names.
var jsonFaults = []string{
	"looking for beginning of value", "looking for beginning of object key string", "after object key",
	"after object key:value pair", "after array element", "after top-level value", "in string literal",
	"in string escape code", `in \u hexadecimal character escape`, "in numeric literal", "in exponent of numeric literal",
	"after decimal point in numeric literal", "unexpected end of JSON input",
}

var verb = regexp.MustCompile(`%[a-z]`)

// Each message has a Spanish text that names the same values in the same order, and there are no other Spanish texts.
func TestMessagesAreTranslated(t *testing.T) {
	spanish := spanishTexts()
	all := readSources(t, "domain", "eventstore", "projections", "handlers", "migrations", "cmd")
	messages, literals := all.messages(), all.literals()
	for _, message := range slices.Sorted(maps.Keys(messages)) {
		if text, ok := spanish[message]; !ok {
			t.Errorf("es.json lacks %q", message)
		} else if got, want := verb.FindAllString(text, -1), verb.FindAllString(message, -1); !slices.Equal(got, want) {
			t.Errorf("%q names %v, and %q %v", text, got, message, want)
		}
	}
	words := append([]string{
		" or ", "member", "parameter", "field", "null", "a boolean", "a number", "a string", "an array", "an object", "a text",
		"The body", "The part metadata", "The value of arguments",
	}, jsonFaults...)
	for _, message := range slices.Sorted(maps.Keys(spanish)) {
		if !messages[message] && !literals[message] && !slices.Contains(words, message) {
			t.Errorf("es.json has %q, which nothing says", message)
		}
	}
	if len(messages) < 250 {
		t.Errorf("only %d messages were found in the source", len(messages))
	}
}

// shownCalls are functions that show a text as it is, unless its format has no words.
var shownCalls = map[string]int{
	"fmt.Fprint": 1, "fmt.Fprintf": 1, "fmt.Fprintln": 1, "fmt.Print": 0, "fmt.Printf": 0, "fmt.Println": 0,
	"io.WriteString": 1, "fmt.Sprint": 0, "fmt.Sprintf": 0, "fmt.Sprintln": 0, "fmt.Errorf": 0, "errors.New": 0,
	"cli.NegativeError": 0, "NegativeError": 0,
}

// inEnglish are files of commands whose texts are for machines (metrics, logs, documents) or part of a report.
var inEnglish = []string{
	"cmd/integrity/ops/", "cmd/integrity/mail/", "cmd/integrity/internal/", "cmd/integrity/integritytest/",
	"cmd/integrity/demo/document.go", "cmd/integrity/cli/language.go",
}

var words = regexp.MustCompile(`[A-Za-z]{2,}[^"]* [A-Za-z]{2,}|[A-Za-z]{2,}:? %|%[a-z] [A-Za-z]{2,}`)

// A command shows people no text that has not passed through this package. Functions that print, and those that make a
// text of a format, get formats without words.
func TestCommandsSayTheirTexts(t *testing.T) {
	all := readSources(t, "cmd/integrity")
	calls := 0
	for _, at := range all {
		for path, file := range at.files {
			if slices.ContainsFunc(inEnglish, func(part string) bool { return strings.Contains(path, part) }) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				name := nameOf(call.Fun)
				if of, ok := call.Fun.(*ast.SelectorExpr); ok && nameOf(of.X) != "" {
					name = nameOf(of.X) + "." + name
				}
				first, shows := shownCalls[name]
				if strings.HasSuffix(name, ".WriteString") && name != "io.WriteString" {
					first, shows = 0, true
				}
				if !shows {
					return true
				}
				calls++
				for _, arg := range call.Args[min(first, len(call.Args)):] {
					if text, ok := all.text(at, arg); ok && words.MatchString(text) {
						t.Errorf("%s: %s shows %q in English only: use say.Sentencef, App.Sayf or say.Errorf", path, name, text)
					}
				}
				return true
			})
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls were found", calls)
	}
}
