package handlers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
)

// signInPage is the way in. Whoever has signed in already goes on.
func (s *server) signInPage(r *http.Request) (any, error) {
	if _, err := s.resume(r, policy{}); err == nil {
		return onward(r, ""), nil
	}
	shown := s.frameOf(r, "sign-in")
	shown.Email = ""
	return consolePageOf(s.site.SignIn(shown))
}

// askForLink takes an address. The answer, and what it costs, are the same for every address: who it belongs to is
// looked for after the answer.
func (s *server) askForLink(r *http.Request) (any, error) {
	address := form(r).Get("email")
	if s.LinkMailer == nil || !domain.ValidEmail(address) {
		shown := s.frameOf(r, "sign-in")
		shown.Invalid, shown.Typed = true, address
		return refusedForm(s.site.SignIn(shown))
	}
	browser, cookie := s.browserOf(r)
	email := domain.EmailSHA256(address)
	s.LinkMailer.ask(linkRequest{email: email, known: s.knowsBrowser(r, email), browser: browser, language: language(r)})
	return onward(r, "/sign-in/sent", cookie), nil
}

// linkSent says the same whether or not there was anybody to send a link to.
func (s *server) linkSent(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sent")))
}

// signInLinkPage shows a button: programs that look into mails open links, and press no buttons.
func (s *server) signInLinkPage(r *http.Request) (any, error) {
	link, err := s.signInLink(r)
	if err != nil || link == nil {
		return s.linkOver(r, err)
	}
	return consolePageOf(s.site.SignInLink(s.frameOf(r, "link"), nil))
}

// signInLink finds the link of the path that can still be used, or nil.
func (s *server) signInLink(r *http.Request) (*query.SignInLink, error) {
	id, secret, ok := domain.ParseSignInCode(variable(r, "code"))
	if !ok {
		return nil, nil //nolint:nilnil // a malformed code is answered as an unknown one
	}
	link, found, err := s.Store.SignInLink(r.Context(), id, secret)
	if err != nil || !found || link.UsedAt != nil || !callOf(r).start.Before(link.ExpiresAt) {
		return nil, err
	}
	return &link, nil
}

// linkOver answers a link that is unknown, used or too old.
func (s *server) linkOver(r *http.Request, err error) (response, error) {
	if err != nil {
		return response{}, err
	}
	return s.refusedMessage(r, "link-over", http.StatusNotFound, domain.NotFound)
}

// useSignInLink signs in. An address with several memberships chooses one first, which uses the link.
func (s *server) useSignInLink(r *http.Request) (any, error) {
	link, err := s.signInLink(r)
	if err != nil || link == nil {
		return s.linkOver(r, err)
	}
	if link.BrowserSHA256 != nil {
		own := sha256.Sum256([]byte(s.cookieValue(r, browserCookie)))
		if subtle.ConstantTimeCompare(own[:], link.BrowserSHA256[:]) == 0 {
			return s.refusedMessage(r, "other-browser", http.StatusForbidden, domain.InvalidState)
		}
	}
	chosen, others, err := s.membershipOf(r, link)
	if err != nil {
		return nil, err
	}
	if chosen == nil && len(others) > 0 {
		return consolePageOf(s.site.SignInLink(s.frameOf(r, "choose"), each(others, func(m query.Membership) web.Choice {
			return web.Choice{Organization: m.Organization, Name: m.OrganizationName, Role: m.Role}
		})))
	}
	if chosen == nil {
		return s.linkOver(r, nil)
	}
	used, err := s.Store.UseSignInLink(r.Context(), *link, callOf(r).start)
	if err != nil || !used {
		return s.linkOver(r, err)
	}
	cookies, err := s.begin(r, *chosen)
	if err != nil {
		return nil, err
	}
	return onward(r, "", append(cookies, s.consoleCookie(browserCookie, "", 0))...), nil
}

// membershipOf is the membership that a link is for, or those from which the person chooses.
func (s *server) membershipOf(r *http.Request, link *query.SignInLink) (chosen *query.Membership, others []query.Membership, err error) {
	if !link.Member.IsZero() {
		m, err := s.Store.Membership(r.Context(), link.Organization, link.Member)
		if refusal(err) != nil && refusal(err).Code == domain.InvalidState {
			return nil, nil, nil
		}
		return &m, nil, err
	}
	others, err = s.Store.Memberships(r.Context(), *link.EmailSHA256)
	wanted := form(r).Get("organization")
	for i, m := range others {
		if len(others) == 1 || m.Organization.String() == wanted {
			return &others[i], nil, err
		}
	}
	return nil, others, err
}

// invitation finds the member whom the invitation of the path is for, where it can still be accepted; nil otherwise.
func (s *server) invitation(r *http.Request) (found *query.Membership, until time.Time, secretSHA256 [32]byte, err error) {
	organization, secretSHA256, ok := domain.ParseInvitationCode(variable(r, "code"))
	if !ok {
		return nil, until, secretSHA256, nil
	}
	member, err := s.Store.Invitation(r.Context(), organization, secretSHA256)
	if refused := refusal(err); refused != nil && refused.Code == domain.NotFound {
		return nil, until, secretSHA256, nil
	}
	if err != nil || member.Status != domain.MemberInvited || !callOf(r).start.Before(*member.InvitedUntil) {
		return nil, until, secretSHA256, err
	}
	named, err := s.Store.Organization(r.Context(), organization)
	return &query.Membership{
		Organization: organization, Member: member.ID, Role: member.Role, OrganizationName: named.Name, Email: member.Email,
	}, *member.InvitedUntil, secretSHA256, err
}

// invitationOver answers an invitation that is unknown, was accepted or has ended.
func (s *server) invitationOver(r *http.Request, err error) (response, error) {
	if err != nil {
		return response{}, err
	}
	return s.refusedMessage(r, "invitation-over", http.StatusNotFound, domain.NotFound)
}

// invitationPage says who invites, and as what. It shows a button, as the page of a link does.
func (s *server) invitationPage(r *http.Request) (any, error) {
	found, until, _, err := s.invitation(r)
	if err != nil || found == nil {
		return s.invitationOver(r, err)
	}
	return consolePageOf(s.site.Invitation(web.Invitation{
		Console: s.frameOf(r, "invitation"), Name: found.OrganizationName, Address: found.Email, As: found.Role, Until: until,
	}))
}

// acceptInvitation makes the invited member active and signs the person in: the invitation was mailed to the address.
func (s *server) acceptInvitation(r *http.Request) (any, error) {
	found, _, secret, err := s.invitation(r)
	if err != nil || found == nil {
		return s.invitationOver(r, err)
	}
	accept := &domain.AcceptInvitation{
		Origin: domain.Origin{Organization: found.Organization, Actor: domain.SystemActor, RequestID: callOf(r).requestID}, SecretSHA256: secret,
	}
	if err := s.execute(r.Context(), accept); err != nil {
		if refused := refusal(err); refused != nil && (refused.Code == domain.InvalidState || refused.Code == domain.NotFound) {
			return s.invitationOver(r, nil) // somebody was faster
		}
		return nil, err
	}
	cookies, err := s.begin(r, *found)
	if err != nil {
		return nil, err
	}
	return onward(r, "", cookies...), nil
}

// signOut ends the session, and has the browser forget what it has kept.
func (s *server) signOut(r *http.Request) (any, error) {
	if err := s.end(r); err != nil {
		return nil, err
	}
	return s.signedOut(r), nil
}

func (s *server) signedOut(r *http.Request) response {
	resp := onward(r, "/sign-in", s.consoleCookie(sessionCookie, "", 0))
	return withHeader(resp, "Clear-Site-Data", `"cache", "storage"`) // cookies would be those of other hosts too
}

// linkRequest is an address that was typed into the page, or the member who has signed in and proves it again, with the
// browser that asks.
type linkRequest struct {
	email    [32]byte       // hash
	known    bool           // the browser has signed in with the address before
	session  *query.Session // whose member asks; nil: whoever has typed the address
	browser  [32]byte       // hash
	language evidence.Language
}

// LinkMailer mails links that sign people in, one request after the other, after these were answered. Requests that a
// process has not come to when it ends are lost; so is what comes while its queue is full. The link itself stands in
// the mail alone.
type LinkMailer struct {
	Store   *query.Store
	Send    func(context.Context, queue.Mail) error
	BaseURL string
	Now     func() time.Time
	Log     *slog.Logger

	queue chan linkRequest
}

// maxLinkRequests is how many requests for a link may wait.
const maxLinkRequests = 256

// linkTimeout is how long one mail may take.
const linkTimeout = 30 * time.Second

// NewLinkMailer makes a mailer that Run starts.
func NewLinkMailer(m LinkMailer) *LinkMailer {
	m.queue = make(chan linkRequest, maxLinkRequests)
	return &m
}

func (m *LinkMailer) ask(request linkRequest) {
	select {
	case m.queue <- request:
	default:
		m.Log.Warn("a request for a sign-in link was dropped: too many wait")
	}
}

// Run works until ctx ends.
func (m *LinkMailer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-m.queue:
			if err := m.mail(ctx, request); err != nil && ctx.Err() == nil {
				m.Log.Warn("a sign-in link could not be mailed", "error", err)
			}
		}
	}
}

// mail sends a link to the address as the membership has it, not as it was typed.
func (m *LinkMailer) mail(ctx context.Context, request linkRequest) error {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	link := query.SignInLink{BrowserSHA256: &request.browser, KnownBrowser: request.known}
	var to query.Membership
	var err error
	if at := request.session; at != nil {
		to, err = m.Store.Membership(ctx, at.Organization, at.Member)
		link.Organization, link.Member = at.Organization, at.Member
	} else {
		var found []query.Membership
		if found, err = m.Store.Memberships(ctx, request.email); len(found) > 0 {
			to = found[0]
		}
		link.EmailSHA256 = &request.email
	}
	if err != nil || to.Email == "" {
		return err
	}
	now := m.Now()
	id, code, secret := domain.NewSignInLink(now, to.Organization.Shard())
	link.ID, link.SecretSHA256 = id, secret
	added, err := m.Store.AddSignInLink(ctx, link, now)
	if err != nil {
		return err
	}
	if !added {
		m.Log.Info("no more sign-in links are mailed to a member in this hour", "organization", to.Organization, "member", to.Member)
		return nil
	}
	return m.Send(ctx, queue.Mail{
		ID: domain.EventID(id), Organization: to.Organization, Member: to.Member, To: to.Email, At: now,
		SignIn: &queue.SignIn{URL: SignInURL(m.BaseURL, request.language, code), Until: now.Add(query.SignInLifetime)},
	})
}

// SignInURL is the page on which a code signs in.
func SignInURL(baseURL string, l evidence.Language, code string) string {
	return consoleURL(baseURL) + web.Path(l, web.ConsoleRoot+"/link/"+code)
}
