package web

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Parts of the manual that a page does not show: its title and table of contents, which the page has of its own, and the
// marks round what is generated.
var notShown = regexp.MustCompile(`(?s)\A# [^\n]*\n|<!-- generated: contents -->.*?<!-- end -->\n|<!-- [^>]* -->\n`)

// manual renders a text in Markdown: its headings have ids, code can be copied, and wide tables scroll by themselves. HTML
// in the text is left out, and so is where a link leads to that does not stay on the page: the files it names are not
// served. The sections are the headings of the second level.
func manual(markdown []byte) (template.HTML, []link, error) {
	markdown = notShown.ReplaceAll(markdown, nil)
	converter := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(manualBlocks{}, 1))))
	root := converter.Parser().Parse(text.NewReader(markdown))
	var sections []link
	var leaving []*ast.Link
	label, tables := "", 0
	err := ast.Walk(root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			label, tables = words(n, markdown), 0
			if id, ok := n.AttributeString("id"); ok && n.Level == 2 {
				sections = append(sections, link{Address: fmt.Sprintf("#%s", id), Text: label})
			}
		case *ast.Link:
			if !bytes.HasPrefix(n.Destination, []byte("#")) {
				leaving = append(leaving, n)
			}
		case *east.Table:
			tables++
			n.SetAttributeString("label", fmt.Sprintf("%s, table %d", label, tables))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", nil, err
	}
	for _, n := range leaving {
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, child)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
	var b bytes.Buffer
	if err := converter.Renderer().Render(&b, markdown, root); err != nil {
		return "", nil, err
	}
	return template.HTML(b.String()), sections, nil //nolint:gosec // the text is embedded in the program, and the renderer escapes it
}

// words is the text of a node without its marks.
func words(node ast.Node, source []byte) string {
	var b strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		} else {
			b.WriteString(words(child, source))
		}
	}
	return b.String()
}

// manualBlocks renders code and tables as the other pages for developers have them.
type manualBlocks struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (manualBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, err := fmt.Fprintf(w, `<div class="sample"><pre><code>%s</code></pre></div>`+"\n",
				util.EscapeHTML(bytes.TrimSuffix(node.Lines().Value(source), []byte("\n"))))
			return ast.WalkSkipChildren, err
		}
		return ast.WalkContinue, nil
	})
	r.Register(east.KindTable, func(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			_, err := w.WriteString("</table></div>\n")
			return ast.WalkContinue, err
		}
		label, _ := node.AttributeString("label")
		_, err := fmt.Fprintf(w, `<div class="scroll" role="region" aria-label="%s" tabindex="0"><table>`+"\n", template.HTMLEscapeString(fmt.Sprint(label)))
		return ast.WalkContinue, err
	})
}
