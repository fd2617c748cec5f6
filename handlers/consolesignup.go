package handlers

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/web"
	"integrityledger/projections/query"
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
func newSignUps() *fairSemaphore {
	s := newFairSemaphore(signUpsOfAll, signUpsPerHour, signUpsLater)
	s.yields = true
	return s
}

// networkOf is the client's network, a /24 of IPv4 or a /48 of IPv6, in the place of the organization that a fairSemaphore
// serves.
func (s *server) networkOf(r *http.Request) domain.OrganizationID {
	address, bits := s.clientAddress(r), 24
	if address.Is6() {
		bits = ipv6SiteBits
	}
	network, _ := address.Prefix(bits) // malformed addresses share one
	if !network.IsValid() {
		return domain.OrganizationID{}
	}
	return network.Addr().As16()
}

// signUp reports whether anybody may make an organization.
func (s *server) signUp() bool { return s.SignUp && s.LinkMailer != nil }

// signUpPage asks for the address with which a person wants to make an organization. Whoever has signed in already goes on.
func (s *server) signUpPage(r *http.Request) (any, error) {
	if _, err := s.resume(r, policy{}); err == nil {
		return onward(r, ""), nil
	}
	shown := s.frameOf(r, "sign-up")
	shown.Email = ""
	return consolePageOf(s.site.SignUp(shown))
}

// askToSignUp takes an address. As on the page for signing in, the answer and its cost are the same for every address:
// one with a membership is mailed the usual link. That of a newcomer is not stored: only the browser keeps it, for as
// long as the link may be used.
func (s *server) askToSignUp(r *http.Request) (any, error) {
	address, err := judged(strictjson.Fields(form(r)), readEmail)
	if err != nil {
		shown := s.frameOf(r, "sign-up")
		shown.Invalid, shown.Typed = true, form(r).Get("email")
		return refusedForm(s.site.SignUp(shown))
	}
	network := s.networkOf(r)
	turn, err := s.LinkMailer.signUps.enter(network, 1)
	if err != nil {
		return nil, &domain.Error{
			Code: domain.RateLimited, RetryAfter: time.Hour,
			Message: fmt.Sprintf("At most %d links to sign up are mailed in an hour to one network, and more of them wait already.", signUpsPerHour),
		}
	}
	browser, cookie := s.browserOf(r)
	email, later := domain.EmailSHA256(address), !turn.isGranted()
	err = s.LinkMailer.ask(linkRequest{
		network: network, turn: turn, email: email, address: address, known: s.knowsBrowser(r, email), browser: browser, language: language(r),
	})
	if err != nil {
		s.LinkMailer.signUps.withdraw(network, turn)
		return nil, err
	}
	if later {
		return onward(r, "/sign-up/later", cookie, s.keepAddress(address)), nil
	}
	return onward(r, "/sign-up/sent", cookie, s.keepAddress(address)), nil
}

// signUpSent says the same whatever address was typed.
func (s *server) signUpSent(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-sent")))
}

// signUpLater says that others are mailed first.
func (s *server) signUpLater(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-later")))
}

// within counts a request against a limit of its client address that is no part of the headers of answers.
func (s *server) within(r *http.Request, limit *addressLimit, message string) error {
	state := limit.count(s.clientAddress(r), callOf(r).start)
	if state.used <= state.most {
		return nil
	}
	return &domain.Error{Code: domain.RateLimited, RetryAfter: state.reset, Message: fmt.Sprintf(message, state.most)}
}

// keepAddress is the cookie in which the browser keeps the address that signs up.
func (s *server) keepAddress(address string) string {
	return s.consoleCookie(addressCookie, base64.RawURLEncoding.EncodeToString([]byte(address)), signUpPatience+query.SignInLifetime)
}

// signUpAddress is the address that the browser keeps, if it is the one that the link is for; empty otherwise.
func (s *server) signUpAddress(r *http.Request, link *usableLink) string {
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
func (s *server) mayFound(link *usableLink, found []query.Membership) bool {
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
func (s *server) describe(r *http.Request, link *usableLink, shown *web.NewOrganization) {
	plan := s.Store.Plans[domain.FreePlan]
	shown.MaxName, shown.Plan, shown.PerMinute = domain.MaxOrganizationName, domain.FreePlan, plan.PerMinute
	shown.Address = s.signUpAddress(r, link)
	shown.Allowances = []web.Allowance{
		{Name: domain.VersionsAllowance.String(), Limit: plan.VersionsPerMonth}, {Name: domain.RequestsAllowance.String(), Limit: plan.RequestsPerMonth},
		{Name: domain.RegistrationsAllowance.String(), Limit: plan.RegistrationsPerMonth}, {Name: "webhookAttempts", Limit: plan.WebhookAttemptsPerMonth},
	}
}

// foundOrganization makes an organization whose owner is the person of the link, and signs in.
//
// The link is used first. A crash after that leaves a used link and nothing else, so the person asks for another; the
// other way round one link could make several organizations. The organization and its owner are one command. The actor
// is the service itself: the person is no member before it.
func (s *server) foundOrganization(r *http.Request, link *usableLink, found []query.Membership) (any, error) {
	typed := form(r)
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
	now := callOf(r).start
	id, err := s.Store.NewOrganizationID(r.Context(), now)
	if err != nil {
		return nil, err
	}
	used, err := s.Store.UseSignInLink(r.Context(), link.SignInLink, now)
	if err != nil || !used {
		return s.linkOver(r, err)
	}
	create := &domain.CreateOrganization{
		Origin: domain.Origin{Organization: id, Actor: domain.SystemActor, RequestID: callOf(r).requestID},
		Name:   shown.Name, Plan: domain.FreePlan, Owner: address,
	}
	if err := s.execute(r.Context(), create); err != nil {
		return nil, err
	}
	s.Log.Info("an organization was made by signing up", "organization", id, "owner", create.Outcome.ID)
	return s.enter(r, query.Membership{Organization: id, Member: create.Outcome.ID, Role: domain.Owner, OrganizationName: shown.Name, Email: address}, link.provedAt)
}
