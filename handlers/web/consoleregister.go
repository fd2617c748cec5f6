package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// Waiting is a reserved version whose file is not registered.
type Waiting struct {
	PublicID, Company, Source, Document string
	Version                             int32
	Status                              string
	ExpiresAt                           time.Time // or the time of its release
	Link                                string    // of the public page
}

// ChooseWay is the first page for registering a file by hand.
type ChooseWay struct {
	Console Console
	Waiting []Waiting
	All     bool // also those of programs
	More    bool // only the newest are shown
}

// ChooseWay renders the page on which a person says what they hold.
func (s ConsolePages) ChooseWay(c ChooseWay) ([]byte, error) {
	return s.renderConsole("register.html", struct {
		consoleFrame
		ChooseWay
	}{s.consoleFrame(c.Console), c})
}

// Declared are the fields of a declaration as they were typed.
type Declared struct {
	Company, Source, Document, Version, SHA256, SizeBytes, MimeType, GeneratedAt, Reservation string
}

// RegisterForm is the form of a reservation or of a declaration.
type RegisterForm struct {
	Console
	Companies     []string // that take new versions
	Many          bool     // there may be more companies
	Manages       bool     // the member may create companies
	DefaultSource string
	Typed         Declared
	Problem       Problem
	Conflict      bool   // the version is registered with another file or other data
	Corrects      string // the public id of the record that a new version corrects; may be empty
}

// WrongFields returns the ids of the fields to correct, in their order on the page.
func (f RegisterForm) WrongFields() (ids []string) {
	for _, field := range [][2]string{
		{"sha256", "sha256"}, {"sizeBytes", "sizeBytes"}, {"mimeType", "mimeType"}, {"generatedAt", "generatedAt"},
		{"companyReference", "company"}, {"documentReference", "document"}, {"version", "version"}, {"source", "source"},
	} {
		if f.Problem.Wrong(field[0]) || f.Conflict && (field[1] == "document" || field[1] == "version") {
			ids = append(ids, field[1])
		}
	}
	return ids
}

// Stray returns the first character of the typed reference, other than a space, that no reference may contain.
func (f RegisterForm) Stray() string {
	for _, r := range f.Typed.Document {
		switch {
		case r == ' ' || domain.ValidReference("x"+string(r)):
		case unicode.IsGraphic(r):
			return string(r)
		default:
			return fmt.Sprintf("%U", r)
		}
	}
	return ""
}

// WrongReference names the reason why the typed reference is wrong, if it contains no stray character.
func (f RegisterForm) WrongReference() string {
	switch {
	case f.Typed.Document == "":
		return "empty"
	case strings.Contains(f.Typed.Document, " "):
		return "space"
	case len(f.Typed.Document) > 128:
		return "long"
	}
	return "start"
}

// Only returns the company if there is only one to choose from.
func (f RegisterForm) Only() string {
	if len(f.Companies) == 1 && !f.Many {
		return f.Companies[0]
	}
	return ""
}

// Folded reports whether the optional fields may stay folded: none of them was typed or is wrong.
func (f RegisterForm) Folded() bool {
	return (f.Typed.Source == "" || f.Typed.Source == f.DefaultSource) && f.Typed.Version == "" &&
		!f.Problem.Wrong("source") && !f.Problem.Wrong("version")
}

// RegisterForm renders the page of a reservation or of a finished file.
func (s ConsolePages) RegisterForm(f RegisterForm) ([]byte, error) {
	return s.registerPage("register-form.html", "consoleregister.js", f.Console, f)
}

// registerPage renders a page of a form.
func (s ConsolePages) registerPage(template, script string, c Console, page any) ([]byte, error) {
	f := s.consoleFrame(c)
	f.Script = script
	return s.renderConsole(template, struct {
		consoleFrame
		It any
	}{f, page})
}

// Confirmation is a whole declaration before it is registered.
type Confirmation struct {
	RegisterForm
	GeneratedAt time.Time
	Known       []RecordRow // a record of the organization with the same hash
	Reserved    []Waiting   // the reservation that this declaration would use without naming it
	Later       bool        // not the first version
	Automatic   bool        // the person left the version empty
}

// ConfirmDeclaration renders the page on which a person confirms a declaration.
func (s ConsolePages) ConfirmDeclaration(c Confirmation) ([]byte, error) {
	return s.registerPage("register-confirm.html", "consoleregister.js", c.Console, c)
}

// CodeDrawings are the drawings of a public id that people put on paper.
type CodeDrawings struct {
	At    string // the address that their names follow
	Of    string // the part of a downloaded file's name that tells its document
	Sizes []CodeSize
}

// CodeSize is a size of a drawing in print, with modules of so many dots.
type CodeSize struct {
	Name          string // qr or stamp
	Module        int
	Width, Height float64 // in millimetres
}

// File returns the name of the PNG.
func (s CodeSize) File() string {
	if s.Module == LargeModule {
		return s.Name + "-large.png"
	}
	return s.Name + ".png"
}

// SavedAs returns the name with which a browser saves the PNG, after the part that tells its document.
func (s CodeSize) SavedAs(of string) string {
	return strings.Replace(s.File(), s.Name, s.Name+of, 1)
}

// Paper returns the size on paper.
func (s CodeSize) Paper() string { return fmt.Sprintf("%.0f × %.0f mm", s.Width, s.Height) }

// SizesOf returns the sizes of a drawing.
func (c CodeDrawings) SizesOf(name string) (sizes []CodeSize) {
	for _, size := range c.Sizes {
		if size.Name == name {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// StampLabel returns the text beside the code of a stamp.
func (s *Site) StampLabel(l evidence.Language) string {
	words := s.catalogue(l, Record).words["Console"].(map[string]any)
	return words["Register"].(map[string]any)["StampLabel"].(string)
}

// ReservationPage is a reservation that waits for its file.
type ReservationPage struct {
	RegisterForm
	Waiting Waiting
	Code    CodeDrawings
}

// Reservation renders the page of a reservation.
func (s ConsolePages) Reservation(p ReservationPage) ([]byte, error) {
	return s.registerPage("reservation.html", "consoleregister.js", p.Console, p)
}

// ReleaseReservation renders the page before a release.
func (s ConsolePages) ReleaseReservation(c Console, w Waiting) ([]byte, error) {
	return s.registerPage("reservation-release.html", "console.js", c, w)
}

// RecordLink is the page with the link of a record for the person who receives the document.
type RecordLink struct {
	Console
	Row          RecordRow
	SHA256, Link string
	Code         CodeDrawings
	Timestamps   bool // evidence may include timestamps
	Reserved     bool // the version was reserved, so the file may have its code already
}

// RecordLink renders the page with the link of a record.
func (s ConsolePages) RecordLink(p RecordLink) ([]byte, error) {
	return s.registerPage("record-link.html", "console.js", p.Console, p)
}

// MailTo returns a mail about a document with the link of its record, for the person's own mail program.
func (f consoleFrame) MailTo(document, link string) string {
	words := f.C["Register"].(map[string]any)
	text := func(name string) string {
		return strings.ReplaceAll(url.QueryEscape(words[name].(string)), "+", "%20")
	}
	return "mailto:?subject=" + text("MailSubject") + "%20" + url.QueryEscape(document) +
		"&body=" + text("MailBody") + "%20" + url.QueryEscape(link)
}
