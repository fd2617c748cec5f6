package web

import (
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// States of a Link.
const (
	LinkOffered     = "offered"       // may be redeemed by signing in
	LinkOver        = "over"          // unknown, used, expired or withdrawn, or the identity is linked elsewhere
	LinkNotSignedIn = "not-signed-in" // the provider did not confirm who the person is
	Linked          = "linked"
)

// Link is the page on which a person consents to a link of their identity at an OAuth provider.
type Link struct {
	Language     evidence.Language
	Path         string // of this page in Spanish; empty where it is not known
	State        string
	Issuer       string
	Organization string
	Scopes       []domain.Scope
	ExpiresAt    time.Time
	LinkID       string
	Endpoint     string
}

// Link renders it.
func (s *Site) Link(l Link) ([]byte, error) {
	t := s.catalogue(l.Language, Record)
	alternate := ""
	if l.State == LinkOffered {
		alternate = Path(Other(l.Language), l.Path)
	}
	f := newFrame(t, l.Language, t.Links[l.State].Title, alternate)
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
