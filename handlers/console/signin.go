package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/queue"
	"integrityledger/projections/session"
)

// signInPage is the page for signing in. A person who has already signed in is redirected to the console.
func (s door) signInPage(r *http.Request) (any, error) {
	if _, err := s.resume(r, edge.Policy{}); err == nil {
		return onward(r, ""), nil
	}
	return consolePageOf(s.site.SignIn(s.signInFrame(r)))
}

// signInFrame returns the page for signing in, with the ways that this browser has.
func (s door) signInFrame(r *http.Request) web.Console {
	shown := s.frameOf(r, "sign-in")
	shown.Email = ""
	s.withoutMail(r, &shown, "")
	shown.Passkey = s.passkeyWay(r)
	return shown
}

// askForLink asks for a link to an address. The answer and its cost are the same for every address: the membership is
// looked up after the answer.
func (s door) askForLink(r *http.Request) (any, error) {
	if s.LinkMailer == nil {
		return s.showCommand(r)
	}
	address, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadEmail)
	if err != nil {
		shown := s.signInFrame(r)
		shown.Invalid, shown.Typed = true, edge.Form(r).Get("email")
		return refusedForm(s.site.SignIn(shown))
	}
	browser, cookie := s.browserOf(r)
	email := domain.EmailSHA256(address)
	err = s.LinkMailer.ask(linkRequest{
		network: s.networkOf(r), email: email, known: s.knowsBrowser(r, email), browser: browser, language: edge.Language(r),
	})
	if err != nil {
		return nil, err
	}
	return onward(r, "/sign-in/sent", cookie), nil
}

// linkSent says the same whether or not a link was sent.
func (s door) linkSent(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sent")))
}

// signInLinkPage shows a button, because programs that scan mails open links but press no buttons.
func (s door) signInLinkPage(r *http.Request) (any, error) {
	link, err := s.signInLink(r)
	if err != nil || link == nil {
		return s.linkOver(r, err)
	}
	if s.signUp() && link.EmailSHA256 != nil && s.askedHere(r, link) {
		found, err := s.membershipsOf(r, link)
		if err != nil || len(found) == 0 {
			return s.chooseOrganization(r, link, found, web.NewOrganization{}, err)
		}
	}
	shown := s.frameOf(r, "link")
	if shown.LinkOf, shown.Instead, err = s.replaced(r, link); err != nil {
		return nil, err
	}
	return consolePageOf(s.site.SignInLink(shown, nil, nil))
}

// replaced returns the addresses of a link and of the signed-in member if the link belongs to another member. Both are
// empty otherwise.
func (s door) replaced(r *http.Request, link *usableLink) (of, here string, err error) {
	r, err = s.resume(r, edge.Policy{})
	if errors.Is(err, edge.ErrSignedOut) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	found, err := s.membershipsOf(r, link)
	own := edge.CallOf(r).Session
	if err != nil || len(found) == 0 || slices.ContainsFunc(found, func(m session.Membership) bool {
		return m.Organization == own.Organization && m.Member == own.Member
	}) {
		return "", "", err
	}
	return found[0].Email, own.Email, nil
}

// usableLink is a valid link, with the time at which the person proved the identity: now, by opening the mail, or
// earlier with the OpenID provider. A zero time means unknown.
type usableLink struct {
	session.SignInLink
	provedAt time.Time
	partly   bool // not all shards have answered about the memberships of the address
}

// signInLink finds the link in the path, or nil if it cannot be used any more.
func (s door) signInLink(r *http.Request) (*usableLink, error) {
	code, seconds, byProvider := strings.Cut(edge.Variable(r, "code"), "~")
	id, secret, ok := domain.ParseSignInCode(code)
	if !ok {
		return nil, nil //nolint:nilnil // a malformed code is answered like an unknown one
	}
	provedAt := edge.CallOf(r).Start
	if byProvider {
		secret, provedAt = provedSecret(secret, seconds), time.Time{}
		if n, err := strconv.ParseInt(seconds, 10, 64); err == nil && n > 0 {
			provedAt = time.Unix(n, 0)
		}
	}
	link, found, err := s.Sessions.SignInLink(r.Context(), id, secret)
	if err != nil || !found || link.UsedAt != nil || !edge.CallOf(r).Start.Before(link.ExpiresAt) {
		return nil, err
	}
	return &usableLink{SignInLink: link, provedAt: provedAt}, nil
}

// linkOver answers a link that is unknown, used or expired.
func (s door) linkOver(r *http.Request, err error) (edge.Response, error) {
	if err != nil {
		return edge.Response{}, err
	}
	return s.refusedMessage(r, "link-over", http.StatusNotFound, domain.NotFound)
}

// useSignInLink signs in. An address with several memberships chooses one first. An address without any creates an
// organization if sign-up is allowed. Both consume the link.
func (s door) useSignInLink(r *http.Request) (any, error) {
	link, err := s.signInLink(r)
	if err != nil || link == nil {
		return s.linkOver(r, err)
	}
	if !s.askedHere(r, link) {
		return s.refusedMessage(r, "other-browser", http.StatusForbidden, domain.InvalidState)
	}
	found, err := s.membershipsOf(r, link)
	if err != nil {
		return nil, err
	}
	typed := edge.Form(r)
	if s.mayFound(link, found) && typed.Has("name") {
		return s.foundOrganization(r, link, found)
	}
	chosen := choice(found, typed.Get("organization"))
	if asks := s.mayFound(link, found) && s.signUpAddress(r, link) != ""; chosen == nil ||
		asks && !typed.Has("organization") {
		return s.chooseOrganization(r, link, found, web.NewOrganization{}, nil)
	}
	used, err := s.Sessions.UseSignInLink(r.Context(), link.SignInLink, edge.CallOf(r).Start)
	if err != nil || !used {
		return s.linkOver(r, err)
	}
	return s.enter(r, *chosen, link.provedAt)
}

// enter signs a person in to a membership with a used link, and redirects to the page that asked the person for a
// proof, if one did in this browser, and otherwise to the first page.
func (s door) enter(r *http.Request, m session.Membership, provedAt time.Time) (any, error) {
	return s.enterIn(r, edge.Language(r), m, provedAt)
}

// enterIn is enter for a language that is not the path's.
func (s door) enterIn(
	r *http.Request, l evidence.Language, m session.Membership, provedAt time.Time,
) (edge.Response, error) {
	cookies, err := s.begin(r, m, provedAt)
	if err != nil {
		return edge.Response{}, err
	}
	resp := edge.Redirect(s.returnOf(r, l, m.Member))
	for _, name := range []string{browserCookie, addressCookie, returnCookie} {
		cookies = append(cookies, s.consoleCookie(name, "", 0))
	}
	for _, cookie := range cookies {
		resp.Header.Add("Set-Cookie", cookie)
	}
	return resp, nil
}

// askedHere reports whether the request comes from the browser that asked for the link.
func (s door) askedHere(r *http.Request, link *usableLink) bool {
	own := sha256.Sum256([]byte(s.cookieValue(r, browserCookie)))
	return link.BrowserSHA256 == nil || subtle.ConstantTimeCompare(own[:], link.BrowserSHA256[:]) == 1
}

// membershipsOf returns the membership of a link, or the memberships of its address. Inactive memberships are left out.
// Any membership is enough to sign in, even if other shards do not answer.
func (s door) membershipsOf(r *http.Request, link *usableLink) ([]session.Membership, error) {
	if link.Member.IsZero() {
		found, err := s.Sessions.Memberships(r.Context(), *link.EmailSHA256)
		if link.partly = err != nil; len(found) > 0 {
			err = nil
		}
		return found, err
	}
	m, err := s.Sessions.Membership(r.Context(), link.Organization, link.Member)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.InvalidState {
		return nil, nil
	}
	return []session.Membership{m}, err
}

// choice returns the only membership, or the membership in the chosen organization, or nil.
func choice(found []session.Membership, organization string) *session.Membership {
	for i, m := range found {
		if len(found) == 1 || m.Organization.String() == organization {
			return &found[i]
		}
	}
	return nil
}

// chooseOrganization shows the memberships to choose from, and if the person may create an organization, the form for
// it.
func (s door) chooseOrganization(
	r *http.Request, link *usableLink, found []session.Membership, shown web.NewOrganization, err error,
) (edge.Response, error) {
	offered := s.mayFound(link, found)
	if err != nil || len(found) == 0 && !offered {
		return s.linkOver(r, err)
	}
	name := "choose"
	if len(found) == 0 {
		name = "organization-new"
	}
	choices := wire.Each(found, func(m session.Membership) web.Choice {
		return web.Choice{Organization: m.Organization, Name: m.OrganizationName, Role: m.Role}
	})
	var form *web.NewOrganization
	if offered {
		s.describe(r, link, &shown)
		form = &shown
	}
	answer := func(body []byte, err error) (edge.Response, error) { return consolePageOf(body, err) }
	if shown.WrongName || shown.WrongAddress {
		answer = refusedForm
	}
	return answer(s.site.SignInLink(s.frameOf(r, name), choices, form))
}

// invitationOver answers an invitation that is unknown, was accepted or has ended.
func (s door) invitationOver(r *http.Request, err error) (edge.Response, error) {
	if refused := edge.Refusal(err); refused == nil || refused.Code != domain.InvalidState &&
		refused.Code != domain.NotFound {
		return edge.Response{}, err
	}
	return s.refusedMessage(r, "invitation-over", http.StatusNotFound, domain.NotFound)
}

// invitationPage shows the inviting organization and the role. It shows a button, like the page of a link.
func (s door) invitationPage(r *http.Request) (any, error) {
	found, err := s.Invitation(r.Context(), edge.CallOf(r), edge.Variable(r, "code"))
	if err != nil {
		return s.invitationOver(r, err)
	}
	return consolePageOf(s.site.Invitation(web.Invitation{
		Console: s.frameOf(r, "invitation"), Name: found.OrganizationName, Address: found.Email, As: found.Role,
		Until: *found.InvitedUntil,
	}))
}

// acceptInvitation makes the invited member active and signs the person in. Only a mailed invitation proves that the
// person reads the address; if invitations are not mailed, the pages for managers say so.
func (s door) acceptInvitation(r *http.Request) (any, error) {
	found, err := s.Invitation(r.Context(), edge.CallOf(r), edge.Variable(r, "code"))
	if err == nil {
		err = s.AcceptInvitation(r.Context(), edge.CallOf(r), found)
	}
	if err != nil { // another request may have accepted it first
		return s.invitationOver(r, err)
	}
	cookies, err := s.begin(r, session.Membership{
		Organization: found.Organization, Member: found.ID, Role: found.Role, OrganizationName: found.OrganizationName,
		Email: found.Email,
	}, s.Now())
	if err != nil {
		return nil, err
	}
	return onward(r, "", cookies...), nil
}

// signOut ends the session and makes the browser forget what it has stored.
func (s door) signOut(r *http.Request) (any, error) {
	if err := s.end(r); err != nil {
		return nil, err
	}
	return s.signedOut(r), nil
}

func (s *Console) signedOut(r *http.Request) edge.Response {
	resp := onward(
		r, saying("/sign-in", "signed-out"), s.consoleCookie(sessionCookie, "", 0), s.consoleCookie(returnCookie, "", 0),
	)
	resp.Header.Set("Clear-Site-Data", `"cache", "storage"`) // not cookies: other hosts' would be deleted too
	return resp
}

// linkRequest asks to mail a link: to a typed address, or to the signed-in member for a new proof of identity.
type linkRequest struct {
	network  netip.Prefix     // of the client: see networkOf
	turn     *fair.Claimant   // for signing up; otherwise nil
	email    [32]byte         // hash
	address  string           // to sign up with; empty if the request is for signing in
	known    bool             // the browser has signed in with the address before
	session  *session.Session // of the member who asks; nil if an address was typed
	browser  [32]byte         // hash
	language evidence.Language
	done     func() // releases the place of the request
}

// LinkMailer mails links that sign people in, one after another, after their requests were answered. When the process
// ends, it mails the waiting links for up to linkDrain. A killed process loses them. Only the mail contains the link
// itself.
type LinkMailer struct {
	Sessions *session.Store
	Send     func(context.Context, queue.Mail) error
	BaseURL  string
	Now      func() time.Time
	Log      *slog.Logger

	queue  chan linkRequest
	places *fair.Semaphore[netip.Prefix] // requests to sign in that wait, by network
	// newcomers are the places of requests to sign up. They may wait for hours, so they must not take the places of
	// members who sign in.
	newcomers *fair.Semaphore[netip.Prefix]
	signUps   *fair.Semaphore[netip.Prefix] // sign-up links of the last hour, by network
	one       *sync.Mutex                   // locked while a link is mailed
}

const (
	// maxLinkRequests is the number of requests that may wait, for signing in and for signing up each; linkRequestsShare
	// is the number of one network.
	maxLinkRequests   = 256
	linkRequestsShare = 64
	// linkTimeout bounds the mailing of one link.
	linkTimeout = 30 * time.Second
	linkDrain   = 10 * time.Second
)

// NewLinkMailer makes a mailer. Run starts it.
func NewLinkMailer(m LinkMailer) *LinkMailer {
	m.queue = make(chan linkRequest, 2*maxLinkRequests)
	m.places, m.newcomers, m.signUps, m.one = newLinkPlaces(), newLinkPlaces(), newSignUps(), &sync.Mutex{}
	return &m
}

func newLinkPlaces() *fair.Semaphore[netip.Prefix] {
	return fair.NewSemaphore[netip.Prefix](fair.Limits{Most: maxLinkRequests, Each: linkRequestsShare, Yields: true})
}

// ask accepts a request or refuses it. An accepted request is mailed if its address belongs to a member or may sign up.
func (m *LinkMailer) ask(request linkRequest) error {
	places := m.places
	if request.turn != nil {
		places = m.newcomers
	}
	done, err := places.Acquire(context.Background(), request.network, 1)
	if err != nil {
		return domain.Unavailable("Too many links are being mailed at the moment; ask again in a minute.")
	}
	request.done = done
	m.queue <- request // the channel has room for all places
	return nil
}

// Run works until ctx ends.
func (m *LinkMailer) Run(ctx context.Context) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var later sync.WaitGroup
	defer later.Wait()
	take := func(request linkRequest) {
		if request.turn == nil || request.turn.IsGranted() {
			m.work(ctx, working, request)
			return
		}
		later.Go(func() { m.work(ctx, working, request) })
	}
	for {
		select {
		case request := <-m.queue:
			take(request)
		case <-ctx.Done():
			defer time.AfterFunc(linkDrain, stop).Stop()
			for {
				select {
				case request := <-m.queue:
					take(request)
				default:
					later.Wait()
					return
				}
			}
		}
	}
}

// work mails one link. A sign-up waits for the turn of its network, but no longer than signUpPatience.
func (m *LinkMailer) work(ctx, working context.Context, request linkRequest) {
	defer request.done()
	if request.turn != nil {
		waiting, cancel := context.WithTimeout(ctx, signUpPatience)
		if release, err := m.signUps.Wait(waiting, request.network, request.turn); err == nil {
			time.AfterFunc(time.Hour, release)
		}
		cancel()
	}
	m.one.Lock()
	defer m.one.Unlock()
	if err := m.mail(working, request); err != nil && working.Err() == nil {
		m.Log.Warn("sign-in link not mailed", "error", err)
	}
}

// mail sends a link to the membership's address, not to the address as it was typed.
func (m *LinkMailer) mail(ctx context.Context, request linkRequest) error {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	link := session.SignInLink{BrowserSHA256: &request.browser, KnownBrowser: request.known}
	var to session.Membership
	var err error
	if at := request.session; at != nil {
		to, err = m.Sessions.Membership(ctx, at.Organization, at.Member)
		link.Organization, link.Member = at.Organization, at.Member
	} else {
		var found []session.Membership
		if found, err = m.Sessions.Memberships(ctx, request.email); len(found) > 0 {
			to, err = found[0], nil // memberships in shards that did not answer are looked up again when the link is used
		} else if err == nil {
			to.Email = request.address
		}
		link.EmailSHA256 = &request.email
	}
	if err != nil || to.Email == "" {
		return err
	}
	now := m.Now()
	shard, newcomer := to.Organization.Shard(), to.Member.IsZero()
	if newcomer {
		shard = m.Sessions.ShardOf(request.email)
	}
	id, code, secret := domain.NewSignInLink(now, shard)
	link.ID, link.SecretSHA256 = id, secret
	added, err := m.Sessions.AddSignInLink(ctx, link, now)
	if err != nil {
		return err
	}
	if !added {
		m.Log.Info(
			"hourly limit of sign-in links reached", "organization", to.Organization, "member", to.Member,
		)
		return nil
	}
	return m.Send(ctx, queue.Mail{
		ID: domain.EventID(id), Organization: to.Organization, Member: to.Member, To: to.Email, At: now,
		SignIn: &queue.SignIn{
			URL: SignInURL(m.BaseURL, request.language, code), Until: now.Add(session.LinkLifetime), Newcomer: newcomer,
		},
	})
}

// SignInURL returns the address of the page on which a code signs in.
func SignInURL(baseURL string, l evidence.Language, code string) string {
	return action.ConsoleURL(baseURL) + web.Path(l, web.ConsoleRoot+"/link/"+code)
}
