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

// ConsoleRoot is where the pages for people who have signed in begin; English ones have /en before it.
const ConsoleRoot = "/console"

// consolePages are those of the navigation, in its order. A page that is not listed is not there.
var consolePages = []string{
	"", "records", "companies", "keys", "webhooks", "documents", "members", "history", "plan", "security",
}

// consoleScopes are what pages need that are not for every role.
var consoleScopes = map[string]domain.Scope{
	"keys": domain.OrganizationAdmin, "webhooks": domain.IntegrityAdmin, "documents": domain.ArtifactsRead,
	"members": domain.OrganizationAdmin,
}

// shownOn are the pages for what an id of a kind names, by the kind's prefix. One that ends with a slash goes on with
// the id.
var shownOn = map[string]string{
	"art": "/documents/", "com": "/companies", "key": "/keys/", "usr": "/members/", "ver": "/documents/versions/",
	"whk": "/webhooks/",
}

// PageOf is the page for what an id names; empty: this role has no such page.
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

// Console is what every page of the console shows.
type Console struct {
	Language evidence.Language
	Name     string // of the page: what its title is found by
	Path     string // of the page in Spanish; the same page in the other language has it too
	// Of whoever has signed in; empty elsewhere.
	Email, Organization string
	Role                domain.Role
	Passkeys, Mail      bool   // ways to sign in that this service offers
	SignUp              bool   // anybody may make an organization
	Provider            string // host of the OpenID provider that signs people in; empty: none does

	Invalid bool   // what was typed is no address
	Typed   string // into the form
	To      string // the page that a proof leads to
	Said    string // name of what was done, as the page's query has it; anything may be in it
	Back    string // of a message, the page of the console to go back to; empty: the first one
}

// consoleFrame is a page of the console.
type consoleFrame struct {
	frame
	Console
	C     map[string]any // the words of the console
	Pages []link
}

// Page is the address of a page of the console in this language.
func (f consoleFrame) Page(path string) string { return Path(f.Language, ConsoleRoot+path) }

// PageName is the name of the page, also where a form on it has a name of its own.
func (f consoleFrame) PageName() string { return f.Name }

// RecordPath is the page of a record in this language.
func (f consoleFrame) RecordPath(publicID string) string {
	return Path(f.Language, Record.Path(publicID))
}

// Moment is a time for people, of a time or of its text: the script writes it in their own zone.
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
		t, _ = time.Parse(time.RFC3339, at) // the service has written it
	case *string:
		if at != nil {
			return f.Moment(*at)
		}
		return moment{}
	default:
		return moment{}
	}
	return moment{evidence.FormatTime(t), date(f.Language, t)}
}

// Text is a text that may be null, for index, which takes no pointers.
func (consoleFrame) Text(text string) string { return text }

type moment struct{ At, Text string }

// Tell returns the message about the last action if its name is one of names, and nil otherwise.
func (f consoleFrame) Tell(names ...string) any {
	if !slices.Contains(names, f.Said) {
		return nil
	}
	return f.C["Said"].(map[string]any)[f.Said]
}

// RoleName is a role as people call it.
func (f consoleFrame) RoleName(role domain.Role) any {
	return f.C["Roles"].(map[string]any)[string(role)]
}

// ConsolePages are the pages for people who have signed in.
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
		for _, name := range consolePages {
			if !c.Role.Allows(consoleScopes[name]) {
				continue
			}
			f.Pages = append(
				f.Pages,
				link{f.Page(strings.TrimSuffix("/"+name, "/")), words["Titles"].(map[string]any)[name].(string), name == c.Name},
			)
		}
	}
	return f
}

// SignIn renders the way in.
func (s *Site) SignIn(c Console) ([]byte, error) {
	return render(s.console, "sign-in.html", s.consoleFrame(c))
}

// SignUp renders the page on which anybody asks for a link to make an organization.
func (s *Site) SignUp(c Console) ([]byte, error) {
	return render(s.console, "sign-up.html", s.consoleFrame(c))
}

// providerCard is the way to sign in by the OpenID provider, on the page of that name.
type providerCard struct{ Provider, Lead, Action, Button, To string }

// ProviderCard is nil where no provider signs people in.
func (f consoleFrame) ProviderCard(name string) *providerCard {
	if f.Provider == "" {
		return nil
	}
	words := f.C["Provider"].(map[string]any)
	return &providerCard{
		f.Provider, words[name].(string), f.Page("/" + name + "/provider"), words["Button"].(string), f.To,
	}
}

// ToProvider renders what leads to the OpenID provider, in a browser that does not go there by itself.
func (s *Site) ToProvider(c Console) ([]byte, error) {
	return render(s.console, "provider.html", s.consoleFrame(c))
}

// Message renders what there is to say where nothing is done.
func (s *Site) Message(c Console) ([]byte, error) {
	return s.Limit(Limit{Console: c})
}

// Limit is what an organization, or a form, has reached. Without Most the page is a message without a limit.
type Limit struct {
	Console Console
	Most    int64
	Until   *time.Time // nil: waiting does not help
}

// Limit renders it as a message.
func (s *Site) Limit(l Limit) ([]byte, error) {
	f := struct {
		consoleFrame
		Limit
		Text any
	}{s.consoleFrame(l.Console), l, nil}
	f.Text = f.C["Messages"].(map[string]any)[l.Console.Name]
	return render(s.console, "message.html", f)
}

// Choice is a membership that a person may sign in to.
type Choice struct {
	Organization domain.OrganizationID
	Name         string
	Role         domain.Role
}

// NewOrganization is the form with which a person makes an organization.
type NewOrganization struct {
	Plan       string // that it gets
	Allowances []Allowance
	PerMinute  int
	MaxName    int

	Name, Typed             string // what was typed: name and address
	Address                 string // that the browser has kept; empty: it must be typed
	WrongName, WrongAddress bool
}

// SignInLink renders the page of a mailed link: with a button, or with those of several organizations, or with the form
// to make one, where that is not nil.
func (s *Site) SignInLink(c Console, choices []Choice, form *NewOrganization) ([]byte, error) {
	return render(s.console, "link.html", struct {
		consoleFrame
		Choices []Choice
		Make    *NewOrganization
	}{s.consoleFrame(c), choices, form})
}

// Invitation is what the page of an invitation shows.
type Invitation struct {
	Console       Console
	Name, Address string // of the organization, and of whom it invites
	As            domain.Role
	Until         time.Time
}

// Invitation renders it.
func (s *Site) Invitation(i Invitation) ([]byte, error) {
	return render(s.console, "invitation.html", struct {
		consoleFrame
		Invited Invitation
	}{s.consoleFrame(i.Console), i})
}

// Prove renders the page that asks again who the person is.
func (s *Site) Prove(c Console) ([]byte, error) {
	return render(s.console, "prove.html", s.consoleFrame(c))
}

// Overview is the first page.
type Overview struct {
	Console                Console
	Plan                   string
	Resets                 time.Time
	Allowances             []Allowance
	Records                []RecordRow
	Failing                []wire.Webhook
	HasPasskey, HasCompany bool
	HasKey                 bool // also where the person may make none
}

// Rows are the records of the table.
func (o Overview) Rows() []RecordRow { return o.Records }

// Overview renders it.
func (s ConsolePages) Overview(o Overview) ([]byte, error) {
	return render(s.console, "overview.html", struct {
		consoleFrame
		Overview
	}{s.consoleFrame(o.Console), o})
}

// Security is the page of a person's passkeys and sessions.
type Security struct {
	Console  Console
	Keys     []Passkey
	Sessions []SessionView
	MaxName  int
	Prove    string // where to prove first who it is; empty: needless
}

// Passkey is one of a person.
type Passkey struct {
	ID, Name string
	AddedAt  time.Time
	UsedAt   *time.Time
}

// SessionView is one of a person's sessions.
type SessionView struct {
	ID, UserAgent string
	Since, UsedAt time.Time
	Own           bool // the page is shown in it
}

// What a browser and its system are known by in what the browser says of itself: the first that is found is it, because
// browsers name others too.
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

// BrowserName is a browser and its system as people call them.
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

// Security renders it.
func (s ConsolePages) Security(p Security) ([]byte, error) {
	return render(s.console, "security.html", struct {
		consoleFrame
		Security
	}{s.consoleFrame(p.Console), p})
}
