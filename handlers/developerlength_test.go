package handlers_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"integrityledger/handlers/web"
)

// maxWords is how long a page for developers may be, in each language.
const maxWords = 1200

// A page for developers is read in a few minutes. What is folded, code and pictures do not count, nor does the list of
// its sections. The manual of operators and the reference of the operations are looked up and have no limit.
func TestDeveloperPagesAreShort(t *testing.T) {
	s := open(t, options{})
	for _, name := range web.DeveloperPages() {
		if strings.HasPrefix(name, "operating") {
			continue
		}
		for _, prefix := range []string{"", "/en"} {
			path := prefix + strings.TrimSuffix(web.DeveloperRoot+"/"+name, "/")
			root, err := html.Parse(bytes.NewReader(s.page(path).body))
			check(t, err)
			for node := range root.Descendants() {
				if node.DataAtom != atom.Main {
					continue
				}
				if words := wordsBelow(node); words > maxWords || words < 100 {
					t.Errorf("%s has %d words, at most %d are allowed", path, words, maxWords)
				} else {
					t.Logf("%s has %d words", path, words)
				}
			}
		}
	}
}

// wordsBelow counts the words that a reader of a page meets without opening anything.
func wordsBelow(node *html.Node) (words int) {
	for child := range node.ChildNodes() {
		switch tag := child.DataAtom; {
		case child.Type == html.TextNode:
			words += len(strings.Fields(child.Data))
		case tag == atom.Pre, tag == atom.Svg, tag == atom.Nav:
		case node.DataAtom == atom.Details && tag != atom.Summary:
		default:
			words += wordsBelow(child)
		}
	}
	return words
}
