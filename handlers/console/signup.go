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

// Limits of signing up, in addition to the limits of every page and the five links an hour for an address. Each process
// counts them in memory. They count every typed address, known or not, so they do not reveal which addresses exist.
const (
	signUpsOfAll        = 200           // sign-up links mailed in an hour
	signUpsPerHour      = 20            // of these for one network, while as many stay free for others
	signUpsLater        = 5             // further requests of a network that may wait
	signUpPatience      = 2 * time.Hour // the longest wait of a request, which is then mailed anyway
	organizationsPerDay = 5             // organizations created from one client address
)

// newSignUps counts the links of the last hour: each is a unit that is held for an hour. Networks yield to others, so a
// flood from a few networks delays no other network.
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
	network, _ := address.Prefix(bits) // malformed addresses share one network
	return network
}

// signUpPage asks for the address with which a person wants to create an organization. A person who has already signed
// in is redirected to the console.
func (s door) signUpPage(r *http.Request) (any, error) {
	if _, err := s.resume(r, edge.Policy{}); err == nil {
		return onward(r, ""), nil
	}
	shown := s.frameOf(r, "sign-up")
	shown.Email = ""
	return consolePageOf(s.site.SignUp(shown))
}

// askToSignUp asks for a link to sign up. As in askForLink, the answer and its cost are the same for every address: an
// address with a membership gets the usual link. The address of a newcomer is not stored. Only the browser keeps it,
// for as long as the link is valid.
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
			"At most %d sign-up links are mailed to one network in an hour, and too many requests are already waiting.",
			signUpsPerHour,
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

// signUpSent says the same for every typed address.
func (s door) signUpSent(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-sent")))
}

// signUpLater says that other requests are mailed first.
func (s door) signUpLater(r *http.Request) (any, error) {
	return consolePageOf(s.site.Message(s.frameOf(r, "sign-up-later")))
}

// within counts a request against a limit of its client address that the headers of answers do not show.
func (s door) within(r *http.Request, limit *edge.AddressLimit, message string) error {
	state := limit.Count(s.ClientAddress(r), edge.CallOf(r).Start)
	if state.Used <= state.Max {
		return nil
	}
	return domain.Refuse(domain.RateLimited, message, state.Max).After(state.Reset)
}

// keepAddress returns the cookie in which the browser keeps the address that signs up.
func (s door) keepAddress(address string) string {
	return s.consoleCookie(
		addressCookie, base64.RawURLEncoding.EncodeToString([]byte(address)), signUpPatience+session.LinkLifetime,
	)
}

// signUpAddress returns the address that the browser keeps if the link belongs to it, and otherwise an empty string.
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

// mayFound reports whether the person of a link may create an organization: the person must own none, and all shards
// must have answered.
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

// describe adds the allowances of a new organization, and asks for the address if the browser no longer has it.
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

// foundOrganization creates an organization whose owner is the person of the link, and signs the person in. Use the
// link first: a crash after that leaves a used link and nothing else, so the person asks for another. In the other
// order one link could create several organizations. The organization and its owner are created by one command. Its
// actor is the service, because the person is not a member yet.
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
	if err := s.within(r, s.founded, "At most %d organizations may be created from one network in a day."); err != nil {
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
	owner, err := s.FoundOrganization(r.Context(), edge.CallOf(r), id, shown.Name, address)
	if err != nil {
		return nil, err
	}
	s.Log.Info("organization created by sign-up", "organization", id, "owner", owner)
	return s.enter(
		r,
		session.Membership{
			Organization: id, Member: owner, Role: domain.Owner, OrganizationName: shown.Name, Email: address,
		},
		link.provedAt,
	)
}
