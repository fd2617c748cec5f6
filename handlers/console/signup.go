package console

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/fair"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/projections/session"
)

// What bounds signing up besides the limits of every page, and the five links an hour of an address. All are counted in
// memory, in each process, and count every address that is typed, so that they tell nothing about any.
const (
	signUpsOfAll        = 200           // links to sign up that are mailed in an hour
	signUpsPerHour      = 20            // of these, of a network, while as many stay free for others
	signUpsLater        = 5             // requests of a network that wait beyond these
	signUpPatience      = 2 * time.Hour // for which a request waits at most, and is mailed then all the same
	organizationsPerDay = 5             // organizations that are made from a client address
)

// newSignUps counts links of the last hour: each is a unit that is held for an hour. As its networks yield to others, a
// flood from a few of them delays nobody else.
func newSignUps() *fair.Semaphore[netip.Prefix] {
	return fair.NewSemaphore[netip.Prefix](fair.Limits{
		Most: signUpsOfAll, Each: signUpsPerHour, Line: signUpsLater, Yields: true,
	})
}

// networkOf is the client's network, a /24 of IPv4 or a /48 of IPv6.
func (s *Console) networkOf(r *http.Request) netip.Prefix {
	address, bits := s.ClientAddress(r), 24
	if address.Is6() {
		bits = edge.IPv6SiteBits
	}
	network, _ := address.Prefix(bits) // malformed addresses share one
	return network
}

// signUpPage asks for the address with which a person wants to make an organization. Whoever has signed in already goes
// on.
func (s door) signUpPage(r *http.Request) (any, error) {
	if _, err := s.resume(r, edge.Policy{}); err == nil {
		return onward(r, ""), nil
	}
	shown := s.frameOf(r, "sign-up")
	shown.Email = ""
	return consolePageOf(s.site.SignUp(shown))
}

// askToSignUp takes an address. As on the page for signing in, the answer and its cost are the same for every address:
// one with a membership is mailed the usual link. That of a newcomer is not stored: only the browser keeps it, for as
// long as the link may be used.
func (s door) askToSignUp(r *http.Request) (any, error) {
	address, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadEmail)
	if err != nil {
		shown := s.frameOf(r, "sign-up")
		shown.Invalid, shown.Typed = true, edge.Form(r).Get("email")
		return refusedForm(s.site.SignUp(shown))
	}
	network := s.networkOf(r)
	turn, err := s.LinkMailer.signUps.Enter(network, 1)
	if err != nil {
		return nil, domain.Refuse(
			domain.RateLimited,
			"At most %d links to sign up are mailed in an hour to one network, and more of them wait already.", signUpsPerHour,
		).After(time.Hour)
	}
	browser, cookie := s.browserOf(r)
	email, later := domain.EmailSHA256(address), !turn.IsGranted()
	err = s.LinkMailer.ask(linkRequest{
		network: network, turn: turn, email: email, address: address, known: s.knowsBrowser(r, email), browser: browser,
		language: edge.Language(r),
	})
	if err != nil {
		s.LinkMailer.signUps.Withdraw(network, turn)
		return nil, err
	}
	if later {
		return onward(r, "/sign-up/later", cookie, s.keepAddress(address)), nil
	}
	return onward(r, "/sign-up/sent", cookie, s.keepAddress(address)), nil
}

// signUpSent says the same whatever address was typed.
func (s door) signUpSent(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-sent")))
}

// signUpLater says that others are mailed first.
func (s door) signUpLater(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-later")))
}

// within counts a request against a limit of its client address that is no part of the headers of answers.
func (s door) within(r *http.Request, limit *edge.AddressLimit, message string) error {
	state := limit.Count(s.ClientAddress(r), edge.CallOf(r).Start)
	if state.Used <= state.Most {
		return nil
	}
	return domain.Refuse(domain.RateLimited, message, state.Most).After(state.Reset)
}

// keepAddress is the cookie in which the browser keeps the address that signs up.
func (s door) keepAddress(address string) string {
	return s.consoleCookie(
		addressCookie, base64.RawURLEncoding.EncodeToString([]byte(address)), signUpPatience+session.LinkLifetime,
	)
}

// signUpAddress is the address that the browser keeps, if it is the one that the link is for; empty otherwise.
func (s door) signUpAddress(r *http.Request, link *usableLink) string {
	kept, err := base64.RawURLEncoding.DecodeString(s.cookieValue(r, addressCookie))
	if err != nil || !isAddressOf(link, string(kept)) {
		return ""
	}
	return string(kept)
}

func isAddressOf(link *usableLink, address string) bool {
	return link.EmailSHA256 != nil && domain.ValidEmail(address) && domain.EmailSHA256(address) == *link.EmailSHA256
}

// mayFound reports whether the person of a link may make an organization: anybody may who owns none, as far as all
// shards tell.
func (s door) mayFound(link *usableLink, found []session.Membership) bool {
	if link.partly {
		return false
	}
	for _, m := range found {
		if m.Role == domain.Owner {
			return false
		}
	}
	return s.signUp() && link.EmailSHA256 != nil && link.Member.IsZero()
}

// describe says what a new organization gets, and asks for the address where the browser keeps it no more.
func (s door) describe(r *http.Request, link *usableLink, shown *web.NewOrganization) {
	plan := s.Store.Plans[domain.FreePlan]
	shown.MaxName, shown.Plan, shown.PerMinute = domain.MaxOrganizationName, domain.FreePlan, plan.PerMinute
	shown.Address = s.signUpAddress(r, link)
	shown.Allowances = []web.Allowance{
		{Name: domain.VersionsAllowance.String(), Limit: plan.VersionsPerMonth},
		{Name: domain.RequestsAllowance.String(), Limit: plan.RequestsPerMonth},
		{Name: domain.RegistrationsAllowance.String(), Limit: plan.RegistrationsPerMonth},
		{Name: "webhookAttempts", Limit: plan.WebhookAttemptsPerMonth},
	}
}

// foundOrganization makes an organization whose owner is the person of the link, and signs in.
//
// The link is used first. A crash after that leaves a used link and nothing else, so the person asks for another; the
// other way round one link could make several organizations. The organization and its owner are one command. The actor
// is the service itself: the person is no member before it.
func (s door) foundOrganization(r *http.Request, link *usableLink, found []session.Membership) (any, error) {
	typed := edge.Form(r)
	shown := web.NewOrganization{Name: strings.TrimSpace(typed.Get("name")), Typed: typed.Get("email")}
	address := s.signUpAddress(r, link)
	if address == "" && isAddressOf(link, shown.Typed) {
		address = shown.Typed
	}
	shown.WrongName, shown.WrongAddress = !domain.ValidOrganizationName(shown.Name), address == ""
	if shown.WrongName || shown.WrongAddress {
		return s.chooseOrganization(r, link, found, shown, nil)
	}
	if err := s.within(r, s.founded, "At most %d organizations are made in a day from one network."); err != nil {
		return nil, err
	}
	now := edge.CallOf(r).Start
	id, err := s.Store.NewOrganizationID(r.Context(), now)
	if err != nil {
		return nil, err
	}
	used, err := s.Sessions.UseSignInLink(r.Context(), link.SignInLink, now)
	if err != nil || !used {
		return s.linkOver(r, err)
	}
	owner, err := s.Found(r.Context(), edge.CallOf(r), id, shown.Name, address)
	if err != nil {
		return nil, err
	}
	s.Log.Info("an organization was made by signing up", "organization", id, "owner", owner)
	return s.enter(
		r,
		session.Membership{
			Organization: id, Member: owner, Role: domain.Owner, OrganizationName: shown.Name, Email: address,
		},
		link.provedAt,
	)
}
