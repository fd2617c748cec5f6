package web

import (
	"time"

	"integrityledger/domain"
)

// Key is an API key without its text.
type Key struct {
	KeyName
	Scopes           []domain.Scope
	Companies        []string // references of the first companies that it may use
	MoreCompanies    bool
	Member           string // address of the member that it acts for
	Actor, ActorName string // the creator; the name is the address of a member
	CreatedAt        time.Time
	ExpiresAt        time.Time
	LastUsedAt       *time.Time
	RevokedAt        *time.Time
	Source           string
	Networks         []string
	MaxVersionStep   *int32
	State            string // active, soon, idle, ended or revoked
	Living           bool   // neither revoked nor ended
	Rotatable        bool   // by the signed-in person
	// Of a rotation: the former key, and the successor; otherwise nil.
	Replaces, ReplacedBy *RotatedPair
	KeyWarnings
}

// RotatedPair is the other key of a rotation. A successor has the name of the former key at first.
type RotatedPair struct {
	KeyName
	CreatedAt time.Time
}

// Rotation returns a key with the texts about the key that it replaces, or that replaces it.
func (f consoleFrame) Rotation(k Key) any {
	return struct {
		consoleFrame
		Key
	}{f, k}
}

// Pair returns the other key of a rotation with the texts that it needs.
func (f consoleFrame) Pair(p RotatedPair) any {
	return struct {
		consoleFrame
		Other RotatedPair
	}{f, p}
}

// KeyWarnings say why a key cannot do what it is meant for.
type KeyWarnings struct {
	NoCompany bool           // it has scopes for companies, and no company
	Beyond    []domain.Scope // that its member's role does not allow
}

// Warned returns the warnings of a key with the texts that they need.
func (f consoleFrame) Warned(w KeyWarnings) any {
	return struct {
		consoleFrame
		KeyWarnings
	}{f, w}
}

// Keys is a page of API keys: the active ones, or all.
type Keys struct {
	Console Console
	Rows    []Key
	All     bool
	Next    string // address of the next page; may be empty
}

// Keys renders a page of API keys.
func (s ConsolePages) Keys(p Keys) ([]byte, error) {
	return s.renderConsole("keys.html", struct {
		consoleFrame
		Keys
	}{s.consoleFrame(p.Console), p})
}

// Choosable is an entry that can be ticked.
type Choosable struct {
	Name   string
	Chosen bool
}

// ScopeGroup has the scopes for one kind of work, under a heading.
type ScopeGroup struct {
	Name   string
	Scopes []Choosable
}

// NewKey is the form of an API key, with the input and the fields that are wrong.
type NewKey struct {
	Console                            Console
	Scopes                             []ScopeGroup
	Companies                          []Choosable
	MoreCompanies                      bool // there are more companies than the form lists
	AllClosed                          bool // there are companies, but none is active
	WithoutCompany                     bool // the person wants a key that may use no company yet
	MaxName, MaxStep                   int
	Least, Most                        string // first and last date for its end
	Name, Source, Networks, Step, Ends string
	Wrong                              map[string]bool
}

// WrongCompanies returns the name of the error about companies; empty means none.
func (k NewKey) WrongCompanies() string {
	switch {
	case k.Wrong["companies"]:
		return "companies"
	case !k.Wrong["withoutCompany"]:
		return ""
	case k.WithoutCompany:
		return "eitherCompany"
	case len(k.Companies) == 0:
		return "noCompany"
	}
	return "withoutCompany"
}

// FirstWrong returns the first wrong field in the order of the form, which gets the focus; empty means none.
func (k NewKey) FirstWrong() string {
	for _, name := range []string{
		"name", "scopes", "companies", "withoutCompany", "expiresAt", "source", "networks", "maxVersionStep",
	} {
		if k.Wrong[name] {
			return name
		}
	}
	return ""
}

// Limited reports whether a field in the folded part has input or a problem.
func (k NewKey) Limited() bool {
	return k.Source+k.Networks+k.Step != "" || k.Wrong["source"] || k.Wrong["networks"] || k.Wrong["maxVersionStep"]
}

// NewKey renders the form of an API key.
func (s ConsolePages) NewKey(p NewKey) ([]byte, error) {
	f := struct {
		consoleFrame
		NewKey
	}{s.consoleFrame(p.Console), p}
	f.Script = "consolekeys.js"
	return s.renderConsole("keys-new.html", f)
}

// MadeKey is a new key or the successor of one, with its text, which is shown once.
type MadeKey struct {
	Console Console
	KeyName
	Key, BaseURL string
	ExpiresAt    time.Time
	FormerEnds   *time.Time // of a rotation
	FormerOver   bool
	Scopes       []domain.Scope
	Companies    []string // references
	KeyWarnings
}

// Try returns a command that shows that the key works.
func (k MadeKey) Try() string {
	return `curl -sS --fail-with-body -H "Authorization: Bearer $INTEGRITY_API_KEY" ` + k.BaseURL + `/api/v1/organization`
}

// MadeKey renders the page with the text of a key.
func (s ConsolePages) MadeKey(p MadeKey) ([]byte, error) {
	return s.renderConsole("keys-made.html", struct {
		consoleFrame
		Made MadeKey
	}{s.consoleFrame(p.Console), p})
}

// KeyForm is a key with its forms.
type KeyForm struct {
	Console
	Key         Key
	Typed, Ends string // name, and date of its last day
	Least, Most string // first and last possible date; a key that expires today has none
	MaxName     int
	Wrong       map[string]bool
}

// Key renders the page of a key.
func (s ConsolePages) Key(p KeyForm) ([]byte, error) { return s.keyForm("keys-key.html", p) }

// RevokeKey renders the page that explains the effect of a revocation.
func (s ConsolePages) RevokeKey(p KeyForm) ([]byte, error) { return s.keyForm("keys-revoke.html", p) }

func (s ConsolePages) keyForm(name string, p KeyForm) ([]byte, error) {
	return s.renderConsole(name, struct {
		consoleFrame
		Form KeyForm
	}{s.consoleFrame(p.Console), p})
}

// RotatedKey is the form of a rotation.
type RotatedKey struct {
	Console     Console
	Key         Key
	Overlaps    []int // in hours
	Overlap     int
	CopyGrants  bool
	Least, Most string
	Ends        string
	Wrong       map[string]bool
}

// RotateKey renders the form of a rotation.
func (s ConsolePages) RotateKey(p RotatedKey) ([]byte, error) {
	return s.renderConsole("keys-rotate.html", struct {
		consoleFrame
		Form RotatedKey
	}{s.consoleFrame(p.Console), p})
}
