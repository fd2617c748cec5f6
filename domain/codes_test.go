package domain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"integrityledger/domain"
)

// TestCodesAreAll reads the constants where they are declared.
func TestCodesAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []domain.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, domain.Code(text))
		}
		return true
	})
	if listed := slices.Sorted(slices.Values(domain.Codes())); !slices.Equal(listed, slices.Sorted(slices.Values(declared))) {
		t.Errorf("Codes lists %v, declared are %v", listed, declared)
	}
}
