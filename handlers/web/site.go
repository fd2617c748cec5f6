// Package web renders the pages of the service: the public comparison page, the front page, the pages that explain
// codes and limits, the console, and the pages for developers.
//
// It knows no request, record or database: the caller passes the values that a page shows. All texts are in one
// catalogue with two languages. A page contains the panels of all results as templates, so that scripts contain no text
// and show the same panels as the server. A page loads nothing from elsewhere and has no inline script or style: the
// policy of [PageHeader] forbids both.
//
// The pages for developers are templates in templates/developers. Each language has its own template, with the same
// sections and anchors. Samples exist once, in templates/samples: commands (.sh) for the reader's terminal, programs to
// store under their own name, and .txt and .http files to read. A test in cmd/integrity runs them page by page, in
// order, and compares the results with the files named -output.txt. Package reference reads the published OpenAPI
// documents. A new operation needs its Spanish in reference/reference.es.json, a new download its purpose in both
// languages, and both need a line in the changelog; tests find only the first two omissions.
//
// A page has at most 1,200 words in each language; code and folded details do not count, and a test counts the rest.
// Tabs of samples need a script; without it all languages are shown. The search index is made from the rendered pages,
// and the service answers a search, so it needs no script.
//
// The hash worker is bundled from build/, and package.json there says how. The result is committed, and a test builds
// it again and compares.
package web

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

//go:embed templates
var templateFiles embed.FS

// Site renders the pages. It is immutable and safe for concurrent use.
type Site struct {
	assets    *assets
	texts     map[evidence.Language]map[Kind]*texts
	templates *template.Template
	console   map[evidence.Language]*template.Template // templates of the console, by file name
	Config
}

// Config has the properties of the service that pages show.
type Config struct {
	BaseURL      string                       // of the service
	Relationship map[evidence.Language]string // the operator's disclosure
	OperatorName string                       // of the person or company that operates the service; may be empty
	Console      bool                         // the service has a console
	Demo         bool                         // the service is a demo, whose terminal shows a link into the console
}

// New makes the site. An error means that the program itself is broken: all files are embedded.
func New(c Config) (*Site, error) {
	a, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("assets: %w", err)
	}
	words, err := loadTexts()
	if err != nil {
		return nil, fmt.Errorf("texts: %w", err)
	}
	s := &Site{assets: a, texts: words, Config: c}
	if s.templates, err = s.newTemplate().ParseFS(templateFiles, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	s.console = map[evidence.Language]*template.Template{}
	for language := range words {
		t, err := s.newTemplate().ParseFS(templateFiles, "templates/layout.html", "templates/console/*.html")
		if err != nil {
			return nil, fmt.Errorf("templates: %w", err)
		}
		all := s.catalogue(language, Record).words
		inline(t, map[string]map[string]any{"T": all, "C": all["Console"].(map[string]any)})
		s.console[language] = t
	}
	return s, nil
}

// newTemplate returns an empty template with the common functions. A missing text is an error.
func (s *Site) newTemplate() *template.Template {
	return template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"asset": s.assets.url, "codePath": func(code any) string { return codePath(domain.Code(fmt.Sprint(code))) },
	})
}

// Asset returns a file that pages load, by its hashed name.
func (s *Site) Asset(name string) (Asset, bool) {
	a, ok := s.assets.files[name]
	return a, ok
}

// frame is the content that surrounds every page.
type frame struct {
	T         map[string]any // the texts of the page
	Title     string
	Front     string // front page in this language
	Home      string // where the logo leads: the front page, or the console for a signed-in person
	Guides    string // first page for developers in this language
	Trust     string // page of witnesses, timestamps and keys, in this language
	Alternate string // this page in the other language; may be empty
	Switch    string // Alternate with the query that keeps a reader there
	BaseURL   string // of the service
	Self      string // the address of the page; empty if it must not be published
	// Description summarizes the page in a sentence for search engines.
	Description string
	Developer   bool   // a page for developers, with their style
	Script      string // asset that the page runs; may be empty
	Indexed     bool   // search engines may list it
	SigningIn   bool   // the page uses the cookie of a sign-in with a provider
	Signed      bool   // a page of the console, with its style and cookies
	Enter       string // the console in this language; may be empty
	Demo        bool   // the service is a demo
	OperatedBy  string // the operator's name; may be empty
}

func (s *Site) newFrame(t *texts, language evidence.Language, title, alternate string) frame {
	front := Path(language, "")
	f := frame{
		T: t.words, Title: title, Front: front, Home: front, Guides: Path(language, DeveloperRoot), Alternate: alternate,
		Trust:  Path(language, TrustPath),
		Switch: alternate,
		Demo:   s.Demo, BaseURL: s.BaseURL, OperatedBy: s.OperatorName,
	}
	if s.Console {
		f.Enter = Path(language, ConsoleRoot)
	}
	return f
}

// publish adds the properties of the page for search engines and link previews.
func (f *frame) publish(description string) {
	f.Description = description
	switch spanish, english := strings.CutPrefix(f.Alternate, "/en"); {
	case f.Alternate == "":
	case english:
		f.Self = cmp.Or(spanish, "/")
	default:
		f.Self = Path(evidence.English, strings.TrimSuffix(f.Alternate, "/"))
	}
}

// stay keeps a reader of the Spanish page there: without Chosen its address would redirect back.
func (f *frame) stay(language evidence.Language) {
	if language == evidence.English {
		f.Switch += "?" + Chosen
	}
}

// Translations returns the addresses of the page in each language, and of the page for readers of other languages.
func (f frame) Translations() []Point {
	if f.Self == "" || f.Alternate == "" {
		return nil
	}
	list := []Point{{f.T["Lang"].(string), f.Self}, {f.T["OtherLang"].(string), f.Alternate}}
	slices.SortFunc(list, func(a, b Point) int { return -strings.Compare(a.Name, b.Name) })
	return append(list, Point{"x-default", list[1].Text})
}

// Path returns the address of a page in a language: Spanish has no prefix.
func Path(language evidence.Language, path string) string {
	if language == evidence.Spanish {
		return cmp.Or(path, "/")
	}
	return "/en" + path
}

// Other returns the other language.
func Other(language evidence.Language) evidence.Language {
	if language == evidence.Spanish {
		return evidence.English
	}
	return evidence.Spanish
}

func (s *Site) render(name string, data any) ([]byte, error) {
	return render(s.templates, name, data)
}

func render(templates *template.Template, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return b.Bytes(), nil
}

// What the front page still wants of a person.
const (
	WantsAny  = "any"  // the text has neither a link nor a code nor a hash
	WantsCode = "code" // the text has a link or a code, but not a whole one
	WantsLink = "link" // the text has only a hash
	WantsOne  = "one"  // the text has links of several records
	WantsHash = "hash" // the text has several hashes, and no link or code
	WantsHere = "here" // the link in the text names another service
)

// Front is the front page, on which a person names a record or a certificate.
type Front struct {
	Language evidence.Language
	Wanted   string
	Host     string // of the link, if it names another service
	Text     string // that the person has entered, if the service found nothing in it; or the code in it
	SHA256   string // that the person has entered
}

// Nothing reports whether the text names nothing, so that it must be corrected.
func (f Front) Nothing() bool {
	return f.Wanted == WantsAny || f.Wanted == WantsCode || f.Wanted == WantsOne || f.Wanted == WantsHash
}

// Front renders the front page.
func (s *Site) Front(front Front) ([]byte, error) {
	t := s.catalogue(front.Language, Record)
	f := s.newFrame(t, front.Language, t.FrontTitle, Path(Other(front.Language), ""))
	f.Indexed, f.Script = true, "front.js"
	f.publish(t.FrontLead)
	f.stay(front.Language)
	return s.render("front.html", struct {
		frame
		Page   Front
		Limits limits
	}{f, front, s.limits(Record, front.Language)})
}

// section is a part of a page with both languages.
type section struct {
	Language evidence.Language
	Title    string
	Points   []Point
}

// limits is the fixed text on the limits of the evidence. Short says the most important points in plain words, and the
// page folds Points. Operator, the last point, is always shown unless it is empty.
type limits struct {
	section
	T        map[string]any
	Short    []string
	Operator string
}

// Point is a paragraph with an optional label.
type Point struct{ Name, Text string }

// LimitsPath is the address of the page on the limits of the evidence.
const LimitsPath = "/limits"

// Limits renders the fixed text on the limits of the evidence in both languages, the given one first.
func (s *Site) Limits(first evidence.Language) ([]byte, error) {
	var sections []section
	for _, kind := range []Kind{Record, Certificate} {
		for _, language := range []evidence.Language{first, Other(first)} {
			all := s.limits(kind, language)
			sections = append(sections, section{language, all.Title, append(all.Points, Point{Text: all.Operator})})
		}
	}
	return s.both(first, LimitsPath, evidence.LimitsTitle(first), "", sections)
}

// Code is an error code of the API with its explanation.
type Code struct {
	Code      domain.Code `json:"code"`
	Status    int         `json:"status"`
	Retryable bool        `json:"retryable"` // the same request may succeed later
	// RetryAfter is the number of seconds in Retry-After, unless the refusal itself says more; 0 means that the answer has
	// no such header.
	RetryAfter int64                          `json:"retryAfter"`
	Text       map[evidence.Language]CodeText `json:"text"`
}

// CodeText explains an error code in one language.
type CodeText struct {
	Title  string `json:"title"`
	Cause  string `json:"cause"`
	Remedy string `json:"remedy"`
}

// Address returns the path of the page that explains the code.
func (c Code) Address() string { return codePath(c.Code) }

func codePath(code domain.Code) string {
	return "/errors/" + strings.ReplaceAll(strings.ToLower(string(code)), "_", "-")
}

// Code renders the explanation of an error code in both languages, the given one first.
func (s *Site) Code(c Code, first evidence.Language) ([]byte, error) {
	var sections []section
	for _, language := range []evidence.Language{first, Other(first)} {
		t, text := s.catalogue(language, Record), c.Text[language]
		retry := t.CodeNoRetry
		switch {
		case c.Status >= http.StatusInternalServerError:
			retry = t.CodeLookUp
		case c.Retryable:
			retry = t.CodeRetry
		}
		sections = append(
			sections,
			section{
				language, t.CodeLanguage + ": " + text.Title,
				[]Point{{t.CodeCause, text.Cause}, {t.CodeRemedy, text.Remedy}, {t.CodeTryAgain, retry}},
			},
		)
	}
	return s.both(first, c.Address(), string(c.Code), fmt.Sprintf("HTTP %d · %s", c.Status, c.Text[first].Title), sections)
}

func (s *Site) both(first evidence.Language, path, title, subtitle string, sections []section) ([]byte, error) {
	f := s.newFrame(s.catalogue(first, Record), first, title, "")
	f.Indexed, f.Self, f.Description = true, path, sections[0].Points[0].Text
	return s.render("both.html", struct {
		frame
		Subtitle string
		Sections []section
	}{f, subtitle, sections})
}

// Failure is a request for which there is no page.
type Failure struct {
	Kind        Kind // of the requested page, if it was a public id's
	Language    evidence.Language
	Code        domain.Code
	Path        string // of the request, without a query
	Translation string // the same page in the other language; may be empty
	// Result is the result of a panel, or empty.
	Result     string
	RetryAfter string // in seconds; empty if waiting does not help
	NotFound   bool
}

// Failure renders the explanation of a failure.
func (s *Site) Failure(f Failure) ([]byte, error) {
	t := s.catalogue(f.Language, f.Kind)
	data := struct {
		frame
		Failure
		Panel *panel
		Text  string
	}{s.newFrame(t, f.Language, t.FailureTitle, f.Translation), f, nil, t.FailureText}
	switch {
	case f.Result != "":
		p := t.panel(f.Result, Values{})
		if f.Result == Unavailable {
			if p.Note = t.Failing; f.Code == domain.RateLimited {
				p.Note = t.Busy
			}
			p.Wait = f.RetryAfter
		}
		data.Panel, data.Title = &p, t.Outcomes[f.Result].Title
	case f.NotFound:
		data.Title, data.Text = t.NotFoundTitle, t.NotFoundText
	}
	return s.render("failure.html", data)
}

// date formats a time for people, in UTC, to the second.
func date(language evidence.Language, at time.Time) string {
	at = at.UTC()
	if language == evidence.Spanish {
		months := [...]string{
			"enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre", "noviembre",
			"diciembre",
		}
		return fmt.Sprintf("%d de %s de %d, %s UTC", at.Day(), months[at.Month()-1], at.Year(), at.Format("15:04:05"))
	}
	return at.Format("2 January 2006 at 15:04:05 UTC")
}

// shortDate formats a time as the console's script does in the reader's zone (Intl, dateStyle medium and timeStyle
// long), so that nothing on the page moves when it does.
func shortDate(language evidence.Language, at time.Time) string {
	at = at.UTC()
	months, clock := "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec", at.Format("15:04:05")
	if language == evidence.Spanish {
		months, clock = "ene feb mar abr may jun jul ago sept oct nov dic", strings.TrimPrefix(clock, "0")
	}
	return fmt.Sprintf("%d %s %d, %s UTC", at.Day(), strings.Fields(months)[at.Month()-1], at.Year(), clock)
}

// day formats the day of a time for people, in UTC.
func day(language evidence.Language, at time.Time) string {
	mark := ","
	if language == evidence.English {
		mark = " at"
	}
	text, _, _ := strings.Cut(date(language, at), mark)
	return text
}

// States of a Link.
const (
	LinkOffered     = "offered"       // can be redeemed by signing in
	LinkOver        = "over"          // unknown, used, expired or withdrawn, or the identity is linked elsewhere
	LinkNotSignedIn = "not-signed-in" // the provider did not confirm the identity
	Linked          = "linked"
)

// Link is the page on which a person consents to a link of their identity with an OAuth provider.
type Link struct {
	Language     evidence.Language
	Path         string // of this page in Spanish; empty if it is not known
	State        string
	Issuer       string
	Organization string
	Scopes       []domain.Scope
	ExpiresAt    time.Time
	LinkID       string
	Endpoint     string
}

// Link renders the page of a link.
func (s *Site) Link(l Link) ([]byte, error) {
	t := s.catalogue(l.Language, Record)
	alternate := ""
	if l.State == LinkOffered {
		alternate = Path(Other(l.Language), l.Path)
	}
	f := s.newFrame(t, l.Language, t.Links[l.State].Title, alternate)
	f.SigningIn = true
	again := ""
	if l.State == LinkNotSignedIn && l.Path != "" {
		again = Path(l.Language, l.Path)
	}
	data := struct {
		frame
		Link
		Text           string
		Meanings       []Point
		SignIn, Again  string
		Until, UntilAt string
	}{frame: f, Link: l, Text: t.Links[l.State].Text, SignIn: Path(l.Language, l.Path+"/sign-in"), Again: again}
	for _, scope := range l.Scopes {
		data.Meanings = append(data.Meanings, Point{Name: string(scope), Text: t.LinkScopes[string(scope)]})
	}
	if !l.ExpiresAt.IsZero() {
		data.Until, data.UntilAt = date(l.Language, l.ExpiresAt), evidence.FormatTime(l.ExpiresAt)
	}
	return s.render("link.html", data)
}

// VerifyPath is the Spanish address of the page that verifies evidence offline.
const VerifyPath = "/developers/verify"

// Verify renders the page on which a person verifies a receipt or certificate, and a file, against trusted keys. It is
// the same for every reader: its input stays in the browser.
func (s *Site) Verify(language evidence.Language) ([]byte, error) {
	t := s.catalogue(language, Record)
	f := s.newFrame(t, language, t.Verify.Title, Path(Other(language), VerifyPath))
	f.Indexed, f.Script = true, "verify.js"
	f.publish(t.Verify.Lead)
	f.stay(language)
	ofRecords := s.limits(Record, language)
	ofRecords.Operator = "" // the page says it once, with the limits of certificates
	return s.render("verify.html", struct {
		frame
		MaxFile int
		Rows    []checkRow
		Words   []Point
		Limits  []limits // of records and certificates
	}{f, MaxFile, t.Verify.rows(), t.Verify.words(), []limits{
		ofRecords, s.limits(Certificate, language),
	}})
}

func (s *Site) limits(kind Kind, language evidence.Language) limits {
	title, points := kind.Limits(language, s.Relationship[language])
	t := s.catalogue(language, kind)
	last := len(points) - 1
	part := limits{section{Language: language, Title: title}, t.words, t.LimitsShort, points[last]}
	for _, point := range points[:last] {
		part.Points = append(part.Points, Point{Text: point})
	}
	return part
}

// rows returns the findings with every value that each may have.
func (t *verifyTexts) rows() (rows []checkRow) {
	for _, name := range []string{
		"signature", "references", "observation", "status", "history", "file", "inclusion", "time", "witnesses", "keys",
	} {
		rows = append(rows, checkRow{name, t.Rows[name], choices(true, t.Findings[name])})
	}
	return rows
}

// words returns the texts that the script uses.
func (t *verifyTexts) words() (words []Point) {
	for kind, texts := range map[string]map[string]string{
		"": t.Words, "reason-": t.Reasons, "note-": t.Notes, "part-": t.Parts, "fact-": t.Facts,
		"verdict-": t.Verdicts,
		"source-":  t.Findings["keys"],
	} {
		for name, text := range texts {
			words = append(words, Point{kind + name, text})
		}
	}
	slices.SortFunc(words, func(a, b Point) int { return strings.Compare(a.Name, b.Name) })
	return words
}
