package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// ConsoleRoot is the path below which the console's pages are. English pages have the prefix /en.
const ConsoleRoot = "/console"

// consoleGroups are the groups of the navigation and their pages, in its order. Only these pages have an entry.
var consoleGroups = []struct {
	name  string
	pages []string
}{
	{"Ledger", []string{"", "records", "documents"}},
	{"Integration", []string{"keys", "companies", "webhooks"}},
	{"Organization", []string{"members", "publisher", "history", "plan", "security"}},
}

// consoleScopes are the scopes of pages that are not for every role.
var consoleScopes = map[string]domain.Scope{
	"keys": domain.OrganizationAdmin, "webhooks": domain.IntegrityAdmin, "documents": domain.ArtifactsRead,
	"members": domain.OrganizationAdmin, "publisher": domain.OrganizationAdmin,
}

// shownOn maps the prefix of an id to its page. If the path ends with a slash, the id follows.
var shownOn = map[string]string{
	"art": "/documents/", "com": "/companies", "key": "/keys/", "stm": "/publisher", "usr": "/members/",
	"ver": "/documents/versions/", "whk": "/webhooks/",
}

// PageOf returns the page of an id, or an empty string if this role has no such page.
func (f consoleFrame) PageOf(id string) string {
	kind, _, _ := strings.Cut(id, "_")
	path := shownOn[kind]
	if path == "" || !f.Role.Allows(consoleScopes[strings.Split(path, "/")[1]]) {
		return ""
	}
	if strings.HasSuffix(path, "/") {
		path += id
	}
	return f.Page(path)
}

// author is the actor of an event, with its page if the role may see it.
type author struct {
	Actor, Name, Page string
	Kind              string // the word for a key; otherwise empty
}

// Acted returns an actor by its text and by the name that people know it by, which may be empty.
func (f consoleFrame) Acted(actor, name string) author {
	switch actor {
	case "operator":
		name = f.C["Operator"].(string)
	case "system":
		name = f.C["System"].(string)
	}
	a := author{Actor: actor, Name: name, Page: f.PageOf(actor)}
	if domain.ParseActor(actor).Kind() == domain.ActorKey {
		a.Kind = f.C["Key"].(string)
	}
	return a
}

// Console is the content that every page of the console shares.
type Console struct {
	Language evidence.Language
	Name     string // of the page, for its title
	Path     string // the Spanish path of the page; both languages use it
	Answers  bool   // the page answers a form; the browser's history then gets Path, so that Back sends no form again
	// Of the signed-in person; otherwise empty.
	Email, Organization string
	Role                domain.Role
	Passkeys, Mail      bool   // ways to sign in to this service
	Passkey             string // how a passkey is offered here; empty means not at all
	Command             string // that prints a link, if no mail is sent
	Terminal            string // the address for which a button prints a link in the terminal of the service; may be empty
	SignUp              bool   // people may create organizations by themselves
	Provider            string // host of the OpenID provider that signs people in; may be empty
	Local               bool   // the service's links open on its own machine only

	Invalid bool   // the typed text is not an address
	Typed   string // the text in the form
	LinkOf  string // the address of a link of another member than the signed-in one; otherwise empty
	Instead string // with it: the address of the signed-in member
	To      string // the page to continue to after a proof
	Said    string // name of the last action, from the page's query; it may be any text
	Back    string // of a message: the page of the console to return to; empty means the first page
}

// Ways in which a page offers a passkey.
const (
	PasskeyHere      = "here"      // one was made or used in this browser
	PasskeyElsewhere = "elsewhere" // the person may have one
)

// consoleFrame is a page of the console.
type consoleFrame struct {
	frame
	Console
	C      map[string]any // the texts of the console
	Groups []consoleGroup
}

// consoleGroup is a group of the navigation.
type consoleGroup struct {
	Name  string // in consoleGroups
	Pages []consoleLink
}

// consoleLink is an entry of the navigation. Current is the value of aria-current: page for the page itself, and true
// for the entry above it.
type consoleLink struct{ Address, Text, Current string }

// Page returns the address of a page of the console in this language.
func (f consoleFrame) Page(path string) string { return Path(f.Language, ConsoleRoot+path) }

// Own returns the address of the page itself.
func (f consoleFrame) Own() string { return Path(f.Language, f.Path) }

// PageName returns the name of the page, even if a form on it has a name of its own.
func (f consoleFrame) PageName() string { return f.Name }

// RecordPath returns the public page of a record in this language.
func (f consoleFrame) RecordPath(publicID string) string {
	return Path(f.Language, Record.Path(publicID))
}

// Moment formats a time, or the text of a time, for people. The script rewrites it in their time zone.
func (f consoleFrame) Moment(at any) moment {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at == nil {
			return moment{}
		}
		t = *at
	case string:
		t, _ = time.Parse(time.RFC3339, at) // the service wrote it, so it is valid
	case *string:
		if at != nil {
			return f.Moment(*at)
		}
		return moment{}
	default:
		return moment{}
	}
	return moment{At: evidence.FormatTime(t), Text: shortDate(f.Language, t)}
}

// Minute is Moment without the seconds, for times that are known to the minute.
func (f consoleFrame) Minute(at any) moment {
	m := f.Moment(at)
	if i := strings.LastIndexByte(m.Text, ':'); i > 0 {
		m.Text = m.Text[:i] + " UTC"
	}
	m.ToMinute = true
	return m
}

// Text dereferences a text that may be null, for index, which accepts no pointers.
func (consoleFrame) Text(text string) string { return text }

type moment struct {
	At, Text string
	ToMinute bool
}

// Tell returns the message about the last action if its name is one of names, and nil otherwise.
func (f consoleFrame) Tell(names ...string) any {
	if !slices.Contains(names, f.Said) {
		return nil
	}
	return f.C["Said"].(map[string]any)[f.Said]
}

// MaxHashed returns the size of the largest file that a page hashes, in bytes.
func (consoleFrame) MaxHashed() int { return MaxFile }

// RoleName returns the name of a role for people.
func (f consoleFrame) RoleName(role domain.Role) any {
	return f.C["Roles"].(map[string]any)[string(role)]
}

// ConsolePages renders the pages for people who have signed in.
type ConsolePages struct{ *Site }

func (s *Site) consoleFrame(c Console) consoleFrame {
	t := s.catalogue(c.Language, Record)
	words := t.words["Console"].(map[string]any)
	f := consoleFrame{
		frame: s.newFrame(
			t, c.Language, words["Titles"].(map[string]any)[c.Name].(string), Path(Other(c.Language), c.Path),
		), Console: c, C: words,
	}
	f.Signed, f.Script = true, "console.js"
	if c.Role != "" {
		f.Home = f.Page("")
		for _, g := range consoleGroups {
			group := consoleGroup{Name: g.name}
			for _, name := range g.pages {
				if c.Role.Allows(consoleScopes[name]) {
					group.Pages = append(group.Pages, f.entry(name))
				}
			}
			f.Groups = append(f.Groups, group)
		}
	}
	return f
}

// entry returns the entry of a page in the navigation.
func (f consoleFrame) entry(name string) consoleLink {
	address := strings.TrimSuffix("/"+name, "/")
	entry := consoleLink{Address: f.Page(address), Text: f.C["Titles"].(map[string]any)[name].(string)}
	switch {
	case name == f.Name:
		entry.Current = "page"
	case name != "" && strings.HasPrefix(f.Path, ConsoleRoot+address+"/"):
		entry.Current = "true"
	}
	return entry
}

func (f consoleFrame) language() evidence.Language { return f.Language }

// renderConsole renders a page of the console, or a part of one, in the language of its frame.
func (s *Site) renderConsole(name string, data interface{ language() evidence.Language }) ([]byte, error) {
	return render(s.console[data.language()], name, data)
}

// SignIn renders the page for signing in.
func (s *Site) SignIn(c Console) ([]byte, error) {
	return s.renderConsole("sign-in.html", s.consoleFrame(c))
}

// SignUp renders the page on which a person asks for a link to create an organization.
func (s *Site) SignUp(c Console) ([]byte, error) {
	return s.renderConsole("sign-up.html", s.consoleFrame(c))
}

// providerCard is the form that leads to the OpenID provider, on the page with this name.
type providerCard struct{ Provider, Lead, Action, Button, To string }

// ProviderCard returns nil if no provider signs people in.
func (f consoleFrame) ProviderCard(name string) *providerCard {
	if f.Provider == "" {
		return nil
	}
	words := f.C["Provider"].(map[string]any)
	return &providerCard{
		f.Provider, words[name].(string), f.Page("/" + name + "/provider"), words["Button"].(string), f.To,
	}
}

// ToProvider renders the link to the OpenID provider, for browsers that do not follow the refresh.
func (s *Site) ToProvider(c Console) ([]byte, error) {
	return s.renderConsole("provider.html", s.consoleFrame(c))
}

// Message renders a message that explains why nothing was done.
func (s *Site) Message(c Console) ([]byte, error) {
	return s.Limit(Limit{Console: c})
}

// Limit is a limit that an organization or a form has reached. Without Most the page is a message without a limit.
type Limit struct {
	Console Console
	Most    int64
	Until   *time.Time    // nil if waiting does not help
	Failure *wire.Failure // another reason why a request failed; otherwise nil
}

// Limit renders a limit as a message.
func (s *Site) Limit(l Limit) ([]byte, error) {
	f := struct {
		consoleFrame
		Limit
		Text any
	}{s.consoleFrame(l.Console), l, nil}
	if f.Text = f.C["Messages"].(map[string]any)[l.Console.Name]; l.Failure != nil {
		f.Text = l.Failure.Detail
	}
	return s.renderConsole("message.html", f)
}

// Choice is a membership that a person may sign in to.
type Choice struct {
	Organization domain.OrganizationID
	Name         string
	Role         domain.Role
}

// NewOrganization is the form for creating an organization.
type NewOrganization struct {
	Plan       string // of the new organization
	Allowances []Allowance
	PerMinute  int
	MaxName    int

	Name, Typed             string // the typed name and address
	Address                 string // kept by the browser; empty if it must be typed
	WrongName, WrongAddress bool
}

// SignInLink renders the page of a mailed link: with one button, with a button for each of several organizations, or
// with the form to create one if it is not nil.
func (s *Site) SignInLink(c Console, choices []Choice, form *NewOrganization) ([]byte, error) {
	return s.renderConsole("link.html", struct {
		consoleFrame
		Choices []Choice
		Make    *NewOrganization
	}{s.consoleFrame(c), choices, form})
}

// Invitation is the content of the page of an invitation.
type Invitation struct {
	Console       Console
	Name, Address string // of the organization, and of the invited person
	As            domain.Role
	Until         time.Time
}

// Invitation renders the page of an invitation.
func (s *Site) Invitation(i Invitation) ([]byte, error) {
	return s.renderConsole("invitation.html", struct {
		consoleFrame
		Invited Invitation
	}{s.consoleFrame(i.Console), i})
}

// Step returns the title of the page that needs a proof, or an empty string if it has none of its own.
func (f consoleFrame) Step() string {
	path := strings.TrimPrefix(strings.TrimPrefix(f.To, "/en"), ConsoleRoot+"/")
	parts := strings.Split(path, "/")
	kind, last := strings.TrimSuffix(parts[0], "s"), parts[len(parts)-1]
	switch kind {
	case "", "prove":
		return ""
	case "record":
		kind = last
	}
	titles := f.C["Titles"].(map[string]any)
	for _, name := range []string{kind + "-" + last, kind, parts[0]} {
		if title, ok := titles[name].(string); ok && (len(parts) > 1 || name == parts[0]) {
			return title
		}
	}
	return ""
}

// Prove renders the page that asks for a new proof of identity.
func (s *Site) Prove(c Console) ([]byte, error) {
	return s.renderConsole("prove.html", s.consoleFrame(c))
}

// Overview is the content of the first page.
type Overview struct {
	Console    Console
	Plan       string
	Resets     time.Time
	Allowances []Allowance
	Records    []RecordRow
	Failing    []wire.Webhook
	Steps      []Step      // none once all are done
	Near       []Allowance // of the month and of reservations, from the first warning on
	MayAdd     bool        // the member may register files by hand
}

// Step is one of the first steps of an organization.
type Step struct {
	Name string // in the texts
	Page string // the page of the console where a member takes the step; empty if the guides explain it
	Done bool
}

// Done returns the number of steps that are done.
func (o Overview) Done() (n int) {
	for _, step := range o.Steps {
		if step.Done {
			n++
		}
	}
	return n
}

// Rows returns the records of the table.
func (o Overview) Rows() []RecordRow { return o.Records }

// Overview renders the first page.
func (s ConsolePages) Overview(o Overview) ([]byte, error) {
	return s.renderConsole("overview.html", struct {
		consoleFrame
		Overview
	}{s.consoleFrame(o.Console), o})
}

// Security is the page with a person's passkeys and sessions.
type Security struct {
	Console  Console
	Keys     []Passkey
	Sessions []SessionView
	MaxName  int
	Prove    string // the page for a proof of identity; empty if the last one is recent
	// OnlyOwner reports whether the person is the organization's only owner.
	OnlyOwner bool
}

// Passkey is a passkey of the person.
type Passkey struct {
	ID, Name string
	AddedAt  time.Time
	UsedAt   *time.Time
}

// SessionView is a session of the person.
type SessionView struct {
	ID, UserAgent string
	Since, UsedAt time.Time
	Own           bool // the session of this page
}

// Marks of browsers and systems in a User-Agent. The first match decides, because browsers also name others.
var (
	browserMarks = [][2]string{
		{"Edg/", "Edge"}, {"EdgA/", "Edge"}, {"EdgiOS/", "Edge"}, {"OPR/", "Opera"},
		{"SamsungBrowser/", "Samsung Internet"}, {"Firefox/", "Firefox"},
		{"FxiOS/", "Firefox"}, {"Chrome/", "Chrome"}, {"CriOS/", "Chrome"}, {"Safari/", "Safari"},
	}
	systemMarks = [][2]string{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"CrOS", "ChromeOS"},
		{"Macintosh", "macOS"}, {"Linux", "Linux"},
	}
)

// BrowserName returns the names of a browser and its system for people.
func (f consoleFrame) BrowserName(userAgent string) string {
	marked := func(marks [][2]string) string {
		for _, mark := range marks {
			if strings.Contains(userAgent, mark[0]) {
				return mark[1]
			}
		}
		return ""
	}
	browser, system := cmp.Or(marked(browserMarks), f.C["UnknownBrowser"].(string)), marked(systemMarks)
	if system == "" {
		return browser
	}
	return browser + " " + f.C["BrowserOn"].(string) + " " + system
}

// Security renders the page with passkeys and sessions.
func (s ConsolePages) Security(p Security) ([]byte, error) {
	return s.renderConsole("security.html", struct {
		consoleFrame
		Security
	}{s.consoleFrame(p.Console), p})
}

// RemovePasskey renders the page that explains the effect of removing a passkey.
func (s ConsolePages) RemovePasskey(c Console, key Passkey, last bool) ([]byte, error) {
	return s.renderConsole("passkey-remove.html", struct {
		consoleFrame
		Key  Passkey
		Last bool
	}{s.consoleFrame(c), key, last})
}
