package web

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web/reference"
	"integrityledger/schemas"
)

// DeveloperRoot is the path below which the pages for developers are. English pages have the prefix /en.
const DeveloperRoot = "/developers"

// DeveloperPages returns the names of the pages for developers below [DeveloperRoot] in the order of their list; the
// first is the root itself. The groups of the reference have pages of their own below the reference.
func DeveloperPages() []string {
	return []string{
		"", "integration", "outbox", "organization", referencePage, "webhooks", "verification", "mcp", "errors", "limits",
		"downloads", "changelog", "policy", operatingPage, operatingPage + "/on-call", operatingPage + "/install",
		operatingPage + "/kubernetes", operatingPage + "/accounts", operatingPage + "/routine",
		operatingPage + "/rotations", operatingPage + "/pgbackrest",
		operatingPage + "/disasters", operatingPage + "/capacity", operatingPage + "/independence",
		operatingPage + "/exports", operatingPage + "/concepts", operatingPage + "/reference",
	}
}

const (
	referencePage = "reference"
	searchPage    = "search"
	// The operators' manual is only in English.
	operatingPage = "operating"
)

// Developers is the content of the pages for developers, apart from their texts.
type Developers struct {
	Version   string            // of the clients
	Releases  []schemas.Release // of the program
	Contracts []Contract
	Downloads []Download
	Program   Download // the running program
	Codes     []Code
	Plans     []Plan
	// Manual is the operators' manual in Markdown, a file for each page below "operating"; index.md is that page itself.
	// Without a manual these pages do not exist.
	Manual fs.FS
}

// pages are the names of the pages that exist.
func (d *Developers) pages() []string {
	return slices.DeleteFunc(DeveloperPages(), func(name string) bool { return d.Manual == nil && isManual(name) })
}

// isManual reports whether a page is part of the operators' manual.
func isManual(name string) bool {
	return name == operatingPage || strings.HasPrefix(name, operatingPage+"/")
}

// manualPage is the name of the page of a file, without its extension.
func manualPage(file string) string {
	return strings.TrimSuffix(operatingPage+"/"+file, "/index")
}

// manualFile is the file of a page of the manual.
func manualFile(name string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, operatingPage), "/"), "index") + ".md"
}

// Contract is a published OpenAPI document.
type Contract struct {
	*reference.Document
	Address string // path of the document
}

// Download is a file to download.
type Download struct {
	Name   string // below DeveloperRoot
	Kind   string // the key of its description
	Size   int    // bytes
	SHA256 string // hexadecimal
}

// Plan is a row in the table of plans.
type Plan struct {
	Name string
	domain.Plan
}

// guidePage is a page for developers.
type guidePage struct {
	frame
	*Developers
	D           map[string]any // the texts of the pages for developers
	Name        string         // of the page, or for a group "reference/" and its slug
	Lead        string
	Chapters    []link
	Sections    []link // within the page
	LimitsTitle string
	Limits      []string
	Group       *reference.Group // only on the page of a group
	Manual      template.HTML    // only on the pages for operators
	Query       string           // only on the page of results
	Found       []found

	Language evidence.Language
	texts    *texts
	guides   *guides
}

type link struct {
	Address, Text string
	Here          bool
}

// Guides are the pages for developers, as they were rendered when the program started.
type Guides struct {
	Pages map[string][]byte // by path

	site    *Site
	sources *guides
	shown   Developers
	indexes map[evidence.Language]*index
}

// SearchPath is the address of the results of a search in the pages for developers, in Spanish. The words come as q.
const SearchPath = DeveloperRoot + "/" + searchPage

// Developers renders every page for developers, in both languages. It fails if a text or a sample that a page names is
// missing.
func (s *Site) Developers(d Developers) (*Guides, error) {
	g, err := s.loadGuides()
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	all := &Guides{
		Pages: map[string][]byte{}, site: s, sources: g, shown: d, indexes: map[evidence.Language]*index{},
	}
	for _, language := range []evidence.Language{evidence.Spanish, evidence.English} {
		all.indexes[language] = &index{}
		for _, name := range d.pages() {
			p := s.guide(g, language, name, &d)
			title := p.texts.Developers.Pages[name]
			p.Title, p.Lead = title.Title, title.Lead
			p.publish(p.Lead)
			p.Sections = g.sections[guideTemplate(language, name)]
			switch {
			case name == referencePage:
				for _, c := range d.Contracts {
					p.Sections = append(
						p.Sections, link{Address: "#" + p.Slug(c.Address), Text: p.texts.Developers.Contracts[c.Address]},
					)
				}
			case isManual(name):
				markdown, err := fs.ReadFile(d.Manual, manualFile(name))
				if err == nil {
					p.Manual, p.Sections, err = manual(markdown, p.Page)
				}
				if err != nil {
					return nil, fmt.Errorf("page: %w", err)
				}
			}
			if err := all.add(p, guideTemplate(language, name)); err != nil {
				return nil, err
			}
		}
		for i := range d.Contracts {
			for j := range d.Contracts[i].Groups {
				p, err := s.groupPage(g, language, &d, &d.Contracts[i].Groups[j])
				if err == nil {
					err = all.add(p, "operations.html")
				}
				if err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// add renders a page and indexes its words.
func (g *Guides) add(p guidePage, templateName string) error {
	body, err := render(g.sources.templates, templateName, p)
	if err != nil {
		return err
	}
	address := p.Page(p.Name)
	g.Pages[address] = body
	return g.indexes[p.Language].add(address, body)
}

// Search renders the sections of the pages of a language that have all words of a query.
func (g *Guides) Search(language evidence.Language, query string) ([]byte, error) {
	p := g.site.guide(g.sources, language, searchPage, &g.shown)
	p.Title, p.Lead = p.texts.Developers.Search, p.texts.Developers.SearchLead
	p.Indexed, p.Switch = false, p.Alternate+"?q="+url.QueryEscape(query)
	p.Query, p.Found = query, g.indexes[language].find(query)
	return render(g.sources.templates, "search.html", p)
}

// guideTemplate returns the name of a page's template in a language.
func guideTemplate(language evidence.Language, name string) string {
	switch {
	case name == "":
		name = "start"
	case name == referencePage:
		return "reference.html"
	case isManual(name):
		return "operating.html"
	}
	return string(language) + "/" + name
}

func (s *Site) guide(g *guides, language evidence.Language, name string, d *Developers) guidePage {
	t := s.catalogue(language, Record)
	p := guidePage{
		frame: s.newFrame(t, language, "", developerPath(Other(language), name)), Developers: d, Name: name,
		Language: language, texts: t,
		LimitsTitle: evidence.LimitsTitle(language), Limits: evidence.Limits(language, s.Relationship[language]), guides: g,
	}
	p.D, p.Developer, p.Indexed, p.Script = t.words["Developers"].(map[string]any), true, true, "developer.js"
	for _, chapter := range d.pages() {
		if strings.HasPrefix(chapter, operatingPage+"/") && !isManual(name) {
			continue // the manual's own pages list these
		}
		p.Chapters = append(
			p.Chapters,
			link{
				developerPath(language, chapter), p.texts.Developers.Pages[chapter].Short,
				chapter == name || chapter != "" && strings.HasPrefix(name, chapter+"/"),
			},
		)
	}
	return p
}

func (s *Site) groupPage(
	g *guides, language evidence.Language, d *Developers, group *reference.Group,
) (guidePage, error) {
	p := s.guide(g, language, referencePage+"/"+group.Slug, d)
	p.Group = group
	var err error
	if p.Lead, err = p.say(group.Description); err != nil {
		return p, err
	}
	p.Title = fmt.Sprintf("%s: %s", p.texts.Developers.Pages[referencePage].Short, p.texts.Developers.Groups[group.Name])
	p.publish(p.Title + ". " + p.texts.Developers.Pages[referencePage].Lead)
	for _, o := range group.Operations {
		summary, err := p.say(o.Summary)
		if err != nil {
			return p, err
		}
		p.Sections = append(p.Sections, link{Address: "#" + o.ID, Text: summary})
	}
	return p, nil
}

func developerPath(language evidence.Language, name string) string {
	return Path(language, strings.TrimSuffix(DeveloperRoot+"/"+name, "/"))
}

// Page returns the address of a page for developers in the language of this one.
func (p guidePage) Page(name string) string { return developerPath(p.Language, name) }

// say returns a text of the OpenAPI documents, which are in English, in the language of the page.
func (p guidePage) say(english string) (string, error) {
	if p.Language == evidence.English {
		return english, nil
	}
	text, ok := p.guides.spanish[english]
	if !ok {
		return "", fmt.Errorf("page: reference.es.json lacks %q", english)
	}
	return text, nil
}

// Quote returns a text of the OpenAPI documents in the language of the page, split at its backticks: every second part
// is code.
func (p guidePage) Quote(english string) (parts []inlinePart, err error) {
	text, err := p.say(english)
	for i, part := range strings.Split(text, "`") {
		parts = append(parts, inlinePart{part, i%2 == 1})
	}
	return parts, err
}

type inlinePart struct {
	Text string
	Code bool
}

// Slug returns the address of a document as an anchor.
func (p guidePage) Slug(address string) string {
	return strings.ReplaceAll(strings.Trim(address, "/"), "/", "-")
}

// part is the argument of the templates of operations: the page and the content to show.
type part struct {
	Page  guidePage
	Shown any
	// Answered says that the service sends the content: all members are present, and optional ones are marked. In the
	// content of a request, required members are marked.
	Answered bool
}

// Part makes the argument of a template that shows members or a body on this page.
func (p guidePage) Part(shown any, answered bool) part { return part{p, shown, answered} }

// Results returns the results of the public comparison with their texts.
func (p guidePage) Results() (list []Point) {
	for _, result := range Record.fileResults() {
		if result != Unavailable {
			list = append(list, Point{result, p.texts.Outcomes[result].Title + ". " + p.texts.Outcomes[result].Text})
		}
	}
	return list
}

// sample is a text to copy: into the terminal of the page, into another terminal, or into a file.
type sample struct {
	Name, Text, Caption string
	File                string // the file to save it as; otherwise empty
	Terminal            bool   // it keeps running, so it needs a terminal of its own
}

// Sample returns a file of samples/ with the address of the service filled in. A program is saved under the same name.
func (p guidePage) Sample(name string) (sample, error) {
	text, ok := p.guides.samples[name]
	if !ok {
		return sample{}, fmt.Errorf("there is no sample %s", name)
	}
	text = strings.TrimPrefix(text, "//go:build ignore\n") // which keeps a program out of this module
	shown := sample{
		Name: name, Text: strings.TrimSpace(strings.NewReplacer(
			"{base}", p.BaseURL, "{version}", p.Version, "{program}", p.Program.Name, "{sha256}", p.Program.SHA256,
		).Replace(text)),
	}
	if slices.Contains([]string{".py", ".mjs", ".ts", ".go", ".php", ".cs", ".java"}, path.Ext(name)) {
		shown.File, shown.Caption = path.Base(name), p.texts.Developers.SaveAs
	}
	return shown, nil
}

// Terminal returns a sample that keeps running, in the directory of the page.
func (p guidePage) Terminal(name string) (sample, error) {
	shown, err := p.Sample(name)
	shown.Terminal, shown.Caption = true, p.texts.Developers.OtherTerminal
	return shown, err
}

// tab is what one language has for a task that the page shows in several.
type tab struct {
	Key, Name string
	Samples   []sample
}

// tabs are the languages of a task.
type tabs struct {
	Label string
	Tabs  []tab
}

// languages are the names of those that samples are written in, by the extension of their files. A command alone is for
// curl.
var languages = map[string]tab{
	".sh": {Key: "curl", Name: "curl"}, ".py": {Key: "python", Name: "Python"}, ".mjs": {Key: "node", Name: "Node.js"},
	".php": {Key: "php", Name: "PHP"}, ".go": {Key: "go", Name: "Go"}, ".cs": {Key: "csharp", Name: "C#"},
	".java": {Key: "java", Name: "Java"},
}

// Tabs groups samples by language: a program in another language begins one, and the commands after it belong to it.
func (p guidePage) Tabs(names ...string) (tabs, error) {
	group := tabs{Label: p.texts.Developers.SampleLanguage}
	for _, name := range names {
		shown, err := p.Sample(name)
		if err != nil {
			return tabs{}, err
		}
		language := languages[path.Ext(name)]
		if len(group.Tabs) == 0 || language.Key != "curl" {
			group.Tabs = append(group.Tabs, language)
		}
		last := &group.Tabs[len(group.Tabs)-1]
		last.Samples = append(last.Samples, shown)
	}
	return group, nil
}

// Code returns a text to copy that is not a file of samples/.
func (p guidePage) Code(text string) sample { return sample{Text: text} }

// Count formats a number of a plan with thousands separators.
func (p guidePage) Count(n *int64) string {
	if n == nil {
		return "–"
	}
	return p.Number(int(*n))
}

// Number formats an integer with thousands separators.
func (p guidePage) Number(n int) string {
	text, separator := strconv.Itoa(n), ","
	if p.Language == evidence.Spanish {
		separator = "."
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + separator + text[i:]
	}
	return text
}

// Price formats a price in euros.
func (p guidePage) Price(euros *float64) string {
	if euros == nil {
		return "–"
	}
	text := strconv.FormatFloat(*euros, 'f', -1, 64)
	if p.Language == evidence.Spanish {
		text = strings.ReplaceAll(text, ".", ",")
	}
	return text
}

// guides are the sources of the pages for developers.
type guides struct {
	templates *template.Template
	sections  map[string][]link // headings of each page, by template
	samples   map[string]string // by name
	spanish   map[string]string // texts of the OpenAPI documents, by their English
}

// loadGuides reads the templates of the pages for developers, one for each page and language, and the samples.
func (s *Site) loadGuides() (*guides, error) {
	g := &guides{sections: map[string][]link{}, samples: map[string]string{}}
	var err error
	if g.spanish, err = reference.Spanish(); err != nil {
		return nil, err
	}
	g.templates, err = s.newTemplate().ParseFS(templateFiles, "templates/layout.html", "templates/developers/*.html")
	if err != nil {
		return nil, err
	}
	heading := regexp.MustCompile(`<h2 id="([^"]+)">([^<{]+)</h2>`)
	err = fs.WalkDir(templateFiles, "templates", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := templateFiles.ReadFile(file)
		if err != nil {
			return err
		}
		if name, ok := strings.CutPrefix(file, "templates/samples/"); ok {
			g.samples[name] = string(text)
		}
		name, ok := strings.CutPrefix(strings.TrimSuffix(file, ".html"), "templates/developers/")
		if !ok || !strings.Contains(name, "/") {
			return nil
		}
		for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
			g.sections[name] = append(g.sections[name], link{Address: "#" + found[1], Text: found[2]})
		}
		_, err = g.templates.New(name).Parse(`{{template "guide" .}}` + string(text) + `{{template "guide-end" .}}`)
		return err
	})
	return g, err
}

// notShown is what a page leaves out: the title, which the page has of its own, and the marks round generated parts.
var notShown = regexp.MustCompile(`\A# [^\n]*\n|<!-- [^>]* -->\n`)

// manual renders Markdown. Headings get ids, code can be copied, and wide tables scroll by themselves. HTML in the text
// is left out. A link to another page of the manual becomes its address. Other links to files are left out, because
// those files are not served. The sections are the second-level headings. A column without a heading is an error: a
// screen reader could not name it.
func manual(markdown []byte, address func(name string) string) (template.HTML, []link, error) {
	markdown = notShown.ReplaceAll(markdown, nil)
	converter := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
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
			file, anchor, anchored := strings.Cut(string(n.Destination), "#")
			name, isPage := strings.CutSuffix(file, ".md")
			switch {
			case file == "":
			case !isPage || strings.Contains(name, "/"):
				leaving = append(leaving, n)
			default:
				to := address(manualPage(name))
				if anchored {
					to += "#" + anchor
				}
				n.Destination = []byte(to)
			}
		case *east.Table:
			tables++
			n.SetAttributeString("label", fmt.Sprintf("%s, table %d", label, tables))
		case *east.TableCell:
			if _, ok := n.Parent().(*east.TableHeader); ok && n.FirstChild() == nil {
				return ast.WalkStop, fmt.Errorf("%s, table %d: a column has no heading", label, tables)
			}
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

// words returns the text of a node without markup.
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

// manualBlocks renders code and tables like the other pages for developers.
type manualBlocks struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (manualBlocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock,
		func(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
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
		_, err := fmt.Fprintf(
			w, `<div class="scroll" role="region" aria-label="%s" tabindex="0"><table>`+"\n",
			template.HTMLEscapeString(fmt.Sprint(label)),
		)
		return ast.WalkContinue, err
	})
}
