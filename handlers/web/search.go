package web

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/unicode/norm"
)

const (
	maxQuery   = 200 // characters of a query that are read
	maxResults = 20
	excerpt    = 180 // characters of a section that a result shows

	stem        = 5 // letters in which words of one meaning are alike
	titleWeight = 20
)

// index finds the sections of the pages of one language by the words in them. It is made from the rendered pages, so
// that it holds what a reader sees.
type index []*indexed

// indexed is a section: what follows a heading or the term of a list that has an id, up to the next one.
type indexed struct {
	Address, Page, Heading string
	text                   strings.Builder
	titles                 map[string]int // how often a folded word stands in the title of the page or in the heading
	words                  map[string]int // the same of the text
}

// add indexes a rendered page.
func (x *index) add(address string, page []byte) error {
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		return err
	}
	for node := range root.Descendants() {
		if node.DataAtom == atom.Main {
			title := ""
			for heading := range node.Descendants() {
				if heading.DataAtom == atom.H1 {
					title = plain(heading)
				}
			}
			first := len(*x)
			x.read(node, x.begin(address, title, ""))
			for _, section := range (*x)[first:] {
				section.titles, section.words = count(section.Page+" "+section.Heading), count(section.text.String())
			}
		}
	}
	return nil
}

// read adds the text below a node to a section, and returns the section that the following text belongs to. An entry of
// a list is a section of its own; after it, the one around it continues.
func (x *index) read(node *html.Node, section *indexed) *indexed {
	for child := range node.ChildNodes() {
		if child.Type == html.TextNode {
			section.text.WriteString(child.Data)
			continue
		}
		page, id := section.Address, ""
		for _, attribute := range child.Attr {
			if attribute.Key == "id" {
				id = attribute.Val
				page, _, _ = strings.Cut(page, "#")
			}
		}
		switch tag, term := child.DataAtom, termOf(child); {
		case tag == atom.H1 || tag == atom.Nav || tag == atom.Svg:
		case id != "" && (tag == atom.H2 || tag == atom.H3):
			section = x.begin(page+"#"+id, section.Page, plain(child))
		case id != "" && tag == atom.Div && term != nil:
			x.read(child, x.begin(page+"#"+id, section.Page, plain(term)))
		default:
			section = x.read(child, section)
			section.text.WriteByte(' ')
		}
	}
	return section
}

// termOf is what names an entry of a list: its term, or the summary of what is folded in it.
func termOf(entry *html.Node) *html.Node {
	for node := range entry.Descendants() {
		if node.DataAtom == atom.Dt || node.DataAtom == atom.Summary {
			return node
		}
	}
	return nil
}

// begin adds an empty section.
func (x *index) begin(address, page, heading string) *indexed {
	section := &indexed{Address: address, Page: page, Heading: heading}
	*x = append(*x, section)
	return section
}

// plain is the text of a node, with single spaces.
func plain(node *html.Node) string {
	var b strings.Builder
	for child := range node.Descendants() {
		if child.Type == html.TextNode {
			b.WriteString(child.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// splitWords cuts a text into words: letters, digits and underscores.
func splitWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !wordRune(r) })
}

func wordRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r)
}

// fold makes words comparable: without capitals and accents.
func fold(word string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFD.String(word))
}

func count(text string) map[string]int {
	counted := map[string]int{}
	for _, word := range splitWords(text) {
		counted[fold(word)]++
	}
	return counted
}

// found is a section with all words of a query.
type found struct {
	Address, Page, Heading string
	Excerpt                []excerptPart
	score                  float64
}

// excerptPart is a piece of an excerpt, marked if it is a word of the query.
type excerptPart struct {
	Text   string
	Marked bool
}

// find returns at most maxResults sections that have every word of a query, the most likely first. A word may be part
// of a longer one. If no section has them, words that begin alike count too: caducado finds caduca.
func (x index) find(query string) []found {
	if runes := []rune(query); len(runes) > maxQuery {
		query = string(runes[:maxQuery])
	}
	var wanted, stems []string
	for word := range count(query) {
		wanted = append(wanted, word)
		stems = append(stems, string([]rune(word)[:min(stem, utf8.RuneCountInString(word))]))
	}
	list := x.all(wanted)
	if len(list) == 0 {
		list = x.all(stems)
	}
	slices.SortStableFunc(list, func(a, b found) int { return cmp.Compare(b.score, a.score) })
	return list[:min(len(list), maxResults)]
}

// all returns the sections that have every wanted word, in the order of the pages.
func (x index) all(wanted []string) (list []found) {
	for _, section := range x {
		total := 0.0
		for _, word := range wanted {
			score := titleWeight*match(section.titles, word) + match(section.words, word)
			if score == 0 {
				total = 0
				break
			}
			total += score
		}
		if total > 0 {
			list = append(list, found{section.Address, section.Page, section.Heading, section.excerpt(wanted), total})
		}
	}
	return list
}

// match is how much a wanted word counts among words: whole words most, then beginnings, then other parts; in a short
// text more than in a long one.
func match(words map[string]int, wanted string) float64 {
	score := 0
	for word, times := range words {
		score += alike(word, wanted) * min(times, 4)
	}
	return float64(min(score, 60)) / float64(300+len(words))
}

// alike is the weight of a word that is or contains the wanted one, and 0 for any other. One or two letters are part of
// too many words.
func alike(word, wanted string) int {
	switch {
	case word == wanted:
		return 6
	case len(wanted) < 3:
		return 0
	case strings.HasPrefix(word, wanted):
		return 3
	case strings.Contains(word, wanted):
		return 1
	}
	return 0
}

// excerpt is the text around the first word that is wanted, with those words marked.
func (s *indexed) excerpt(wanted []string) (parts []excerptPart) {
	text := []rune(strings.Join(strings.Fields(s.text.String()), " "))
	type span struct{ from, to int }
	var spans []span
	for from := 0; from < len(text); {
		to := from
		for to < len(text) && wordRune(text[to]) {
			to++
		}
		word := fold(string(text[from:to]))
		if slices.ContainsFunc(wanted, func(part string) bool { return alike(word, part) > 0 }) {
			spans = append(spans, span{from, to})
		}
		from = max(to, from+1)
	}
	begin := 0
	if len(spans) > 0 {
		begin = max(0, spans[0].from-excerpt/3)
	}
	end := min(len(text), begin+excerpt)
	for begin > 0 && text[begin-1] != ' ' {
		begin--
	}
	for end < len(text) && text[end] != ' ' {
		end++
	}
	at := begin
	for _, marked := range spans {
		if marked.to > end {
			break
		}
		parts = append(
			parts, excerptPart{Text: string(text[at:marked.from])}, excerptPart{string(text[marked.from:marked.to]), true},
		)
		at = marked.to
	}
	parts = append(parts, excerptPart{Text: string(text[at:end])})
	if begin > 0 {
		parts[0].Text = "… " + parts[0].Text
	}
	if end < len(text) {
		parts[len(parts)-1].Text += " …"
	}
	return parts
}
