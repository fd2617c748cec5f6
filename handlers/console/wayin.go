package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/projections/session"
)

// plainLinkCommand is the command that prints a link for signing in, as strangers see it.
const plainLinkCommand = "integrity member sign-in-link"

// printedPerMinute is how many links a person may have printed in the terminal in a minute.
const printedPerMinute = 3

// atMachine reports whether a person sits at the machine of a service that only this machine can reach. A proxy in
// front of it announces itself.
func (s *Console) atMachine(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return s.local() && domain.IsLoopbackHost(host) && edge.PeerAddress(r).IsLoopback()
}

// local reports whether the service's links open on its own machine only.
func (s *Console) local() bool {
	base, err := url.Parse(s.BaseURL)
	return err == nil && domain.IsLoopbackHost(base.Hostname())
}

// withoutMail adds to a page how to get a link for an address, or for any if it is empty, from a service that sends no
// mail. It does not depend on the address being known. Paths are shown only at the machine of the service.
func (s *Console) withoutMail(r *http.Request, shown *web.Console, address string) {
	if s.LinkMailer != nil {
		return
	}
	command, at := plainLinkCommand, s.atMachine(r)
	if at && s.LinkCommand != "" {
		command = s.LinkCommand
	}
	if address == "" {
		address = s.FirstAddress
	}
	if shown.Command = command + " --email ADDRESS"; address != "" {
		shown.Command = command + " --email " + Quoted(address)
	}
	if at && s.PrintLink != nil {
		shown.Terminal = address
	}
}

// Quoted quotes a text as one word of a POSIX shell.
func Quoted(text string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._:@-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// showCommand answers an address that was typed where no mail is sent with the command for it.
func (s door) showCommand(r *http.Request) (any, error) {
	address, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadEmail)
	shown := s.signInFrame(r)
	if shown.Typed = edge.Form(r).Get("email"); err != nil {
		shown.Invalid = true
		return refusedForm(s.site.SignIn(shown))
	}
	s.withoutMail(r, &shown, address)
	return consolePageOf(s.site.SignIn(shown))
}

// printInTerminal prints a fresh link for the address of the page in the terminal of a demo. Its answer does not depend
// on the address being known.
func (s door) printInTerminal(r *http.Request) (any, error) {
	address, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadEmail)
	if err != nil {
		shown := s.signInFrame(r)
		shown.Invalid, shown.Typed = true, edge.Form(r).Get("email")
		return refusedForm(s.site.SignIn(shown))
	}
	said, resp, err := s.printLink(r, address, "terminal")
	if said == "" {
		return resp, err
	}
	shown := s.signInFrame(r)
	shown.Path, shown.Said, shown.Typed = web.ConsoleRoot+"/sign-in", said, address
	s.withoutMail(r, &shown, address)
	return consolePageOf(s.site.SignIn(shown))
}

// printProof prints a fresh link for the signed-in member, and returns to the page that asks for the proof.
func (s door) printProof(r *http.Request) (any, error) {
	address := edge.CallOf(r).Session.Email
	if address == "" {
		return nil, domain.Refuse(domain.InvalidState, "No link can be printed for this member.")
	}
	to := consolePage(edge.Language(r), edge.Form(r).Get("to"))
	said, resp, err := s.printLink(r, address, "terminal-own")
	if said == "" {
		return resp, err
	}
	return onward(r, saying("/prove?to="+url.QueryEscape(to), said)), nil
}

// printLink prints a link in the terminal and returns the name of the message that says so: done, or another. Only a
// person at the machine of the service may ask for it: otherwise the name is empty, and the response says why.
func (s door) printLink(r *http.Request, address, done string) (said string, resp edge.Response, err error) {
	if !s.atMachine(r) {
		resp, err = s.fromOtherSite(r)
		return "", resp, err
	}
	if limit := s.printed.Count(edge.PeerAddress(r), edge.CallOf(r).Start); limit.Used > limit.Max {
		return "terminal-later", resp, nil
	}
	if err := s.PrintLink(r.Context(), edge.Language(r), address); err != nil {
		return "", resp, err
	}
	return done, resp, nil
}

// returnCookieTo makes the browser remember, while a link is valid, the page that asked a member for a proof.
func (s *Console) returnCookieTo(member domain.MemberID, page string) string {
	return s.consoleCookie(returnCookie, member.String()+"."+page, session.LinkLifetime)
}

// returnOf returns the page that asked a member for a proof in this browser, and otherwise the first page.
func (s *Console) returnOf(r *http.Request, l evidence.Language, member domain.MemberID) string {
	asked, page, _ := strings.Cut(s.cookieValue(r, returnCookie), ".")
	if asked != member.String() {
		page = ""
	}
	return consolePage(l, page)
}

// passkeysMade caches whether the ledger has a passkey. It is safe for concurrent use.
type passkeysMade struct {
	mu     sync.Mutex
	asking bool // a request is asking the ledger
	known  bool
	failed error
	until  time.Time
	forgot int // how often the answer was forgotten
}

// How long the cached answer is used. Another process may have added the first passkey, or removed the last one. A
// failure is cached for noPasskeysFor too.
const (
	passkeysFor   = time.Minute
	noPasskeysFor = 5 * time.Second
)

var errAsking = errors.New("another request is asking whether there are passkeys")

// ask returns the cached answer, or asks again. Only one request asks at a time: the others do not wait for it.
func (p *passkeysMade) ask(now time.Time, ask func() (bool, error)) (bool, error) {
	p.mu.Lock()
	if now.Before(p.until) {
		defer p.mu.Unlock()
		return p.known, p.failed
	}
	if p.asking {
		defer p.mu.Unlock()
		return false, errAsking
	}
	p.asking = true
	forgot := p.forgot
	p.mu.Unlock()
	known, err := ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking = false; p.forgot != forgot {
		return known, err
	}
	p.known, p.failed, p.until = known, err, now.Add(noPasskeysFor)
	if known {
		p.until = now.Add(passkeysFor)
	}
	return known, err
}

// forget asks anew next time: a passkey was added or removed here.
func (p *passkeysMade) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
	p.forgot++
}

// passkeyWay says how the page for signing in offers a passkey: first, if one was used in this browser; folded, if the
// ledger has one at all, since it may be on a phone or a security key; otherwise not. If the ledger does not answer, it
// may have one.
func (s *Console) passkeyWay(r *http.Request) string {
	if s.console.passkeys == nil {
		return ""
	}
	made, err := s.console.made.ask(edge.CallOf(r).Start, func() (bool, error) {
		return s.Sessions.HasPasskeys(r.Context())
	})
	switch {
	case err == nil && !made:
		return ""
	case s.cookieValue(r, passkeyCookie) != "":
		return web.PasskeyHere
	default:
		return web.PasskeyElsewhere
	}
}

// passkeyCookieFor returns the cookie of a browser in which a passkey was made or used.
func (s *Console) passkeyCookieFor() string {
	return s.consoleCookie(passkeyCookie, "1", knownBrowserFor)
}

// ownPasskeys reports whether the signed-in member has a passkey.
func (s *Console) ownPasskeys(ctx context.Context, c *edge.Call) (bool, error) {
	list, err := s.Sessions.Passkeys(ctx, c.Session.Organization, c.Session.Member)
	return len(list) > 0, err
}
