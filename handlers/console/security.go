package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// overviewRecords is the number of registrations on the first page.
const overviewRecords = 8

// overview shows the first steps, limits that are near, failing destinations, the rest of the month and the newest
// registrations.
func (s securityPages) overview(r *http.Request) (any, error) {
	ctx, c := r.Context(), edge.CallOf(r)
	period := domain.PeriodOf(c.Start)
	shown := web.Overview{
		Console: s.frameOf(r, ""), Plan: c.Access.Plan, Resets: period.End(),
		MayAdd: c.Session.Role.Allows(domain.IntegrityWrite),
	}
	months, err := s.Store.MonthlyLimits(ctx, c.Access, period)
	if err != nil {
		return nil, err
	}
	var reservations []web.Allowance
	if shown.Allowances, reservations, err = s.usesOf(ctx, c, months[0], period); err != nil {
		return nil, err
	}
	shown.Near = slices.DeleteFunc(slices.Concat(shown.Allowances, reservations), func(a web.Allowance) bool {
		return a.Level() == "" || *a.Limit == 0 // zero: the plan does not include it
	})
	page, err := s.Store.AuditEvents(
		ctx, c.Access, query.AuditQuestion{Action: domain.RecordRegistered, Limit: overviewRecords},
	)
	if err != nil {
		return nil, err
	}
	records, err := s.Store.RecordsNamed(ctx, c.Access, wire.Each(page.Events, func(e query.AuditEvent) domain.PublicID {
		return edge.PublicID(e.Subject)
	}))
	if err != nil {
		return nil, err
	}
	shown.Records = wire.Each(records, viewRow)
	var destinations []wire.Webhook
	if c.Session.Role.Allows(domain.IntegrityAdmin) {
		all, err := s.ListWebhooks(ctx, c, struct{}{})
		if err != nil {
			return nil, err
		}
		destinations = all.Webhooks
	}
	for _, w := range destinations {
		if w.DisabledReason != nil || w.Status == string(domain.WebhookActive) && w.FailingSince != nil {
			shown.Failing = append(shown.Failing, w)
		}
	}
	if shown.Steps, err = s.steps(ctx, c, len(records) > 0, len(destinations) > 0); err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Overview(shown))
}

// steps returns the first steps of an organization that the person may take, and which of them are done. It returns
// none once all are done.
func (s securityPages) steps(ctx context.Context, c *edge.Call, record, webhook bool) (steps []web.Step, err error) {
	role, organization := c.Session.Role, c.Session.Organization
	companies, _, err := s.Store.Companies(ctx, c.Access, true, "", "", 1)
	if err != nil {
		return nil, err
	}
	keys, _, err := s.Store.LivingKeys(ctx, organization, c.Start, domain.KeyID{}, 1)
	if err != nil {
		return nil, err
	}
	passkeys, err := s.Sessions.Passkeys(ctx, organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	another, err := s.Store.HasOwnerBeside(ctx, organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	undone := false
	for _, step := range []struct {
		web.Step
		offered bool
	}{
		{web.Step{Name: "company", Page: "/companies", Done: len(companies) > 0}, role.Allows(domain.IntegrityAdmin)},
		{web.Step{Name: "key", Page: "/keys/new", Done: len(keys) > 0}, role.Allows(domain.OrganizationAdmin)},
		{web.Step{Name: "record", Page: "/records/new", Done: record}, role.Allows(domain.IntegrityWrite)},
		{web.Step{Name: "webhook", Page: "/webhooks/new", Done: webhook}, role.Allows(domain.IntegrityAdmin)},
		{web.Step{Name: "passkey", Page: "/security#passkeys", Done: len(passkeys) > 0}, true},
		{web.Step{Name: "owner", Page: "/members#invite", Done: another}, role == domain.Owner},
	} {
		if step.offered {
			steps = append(steps, step.Step)
			undone = undone || !step.Done
		}
	}
	if !undone {
		return nil, nil
	}
	return steps, nil
}

// security shows the person's passkeys and sessions.
func (s securityPages) security(r *http.Request) (any, error) {
	c := edge.CallOf(r)
	passkeys, err := s.Sessions.Passkeys(r.Context(), c.Session.Organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	sessions, err := s.Sessions.SessionsOf(r.Context(), c.Session.Organization, c.Session.Member, c.Start)
	if err != nil {
		return nil, err
	}
	another, err := s.Store.HasOwnerBeside(r.Context(), c.Session.Organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	shown := s.frameOf(r, "security")
	s.withoutMail(r, &shown, shown.Email)
	return consolePageOf(s.site.Security(web.Security{
		Console: shown, OnlyOwner: c.Session.Role == domain.Owner && !another,
		Keys: wire.Each(passkeys, viewPasskey),
		Sessions: wire.Each(sessions, func(at session.Session) web.SessionView {
			return web.SessionView{
				ID: at.ID.String(), UserAgent: at.UserAgent, Since: at.CreatedAt, UsedAt: at.UsedAt, Own: at.ID == c.Session.ID,
			}
		}),
		MaxName: domain.MaxNameLength, Prove: s.proveFirst(r, "/security"),
	}))
}

// addingTakes is longer than the time between the event of a new passkey and the first counter of its authenticator,
// which is stored like a use.
const addingTakes = 10 * time.Second

func viewPasskey(p session.NamedPasskey) web.Passkey {
	v := web.Passkey{ID: p.ID.String(), Name: p.Name, AddedAt: p.CreatedAt}
	if p.LastUsedAt != nil && p.LastUsedAt.Sub(p.CreatedAt) > addingTakes {
		v.UsedAt = p.LastUsedAt
	}
	return v
}

// removePasskeyPage explains the effect of removing a passkey before it is done, and asks for the proof of identity
// first.
func (s securityPages) removePasskeyPage(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	c, id := edge.CallOf(r), edge.PathID(r, "passkeyId", domain.ParseID[domain.PasskeyID])
	list, err := s.Sessions.Passkeys(r.Context(), c.Session.Organization, c.Session.Member)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.ID == id {
			shown := s.frameOf(r, "passkey-remove")
			s.withoutMail(r, &shown, shown.Email)
			return consolePageOf(s.site.RemovePasskey(shown, viewPasskey(p), len(list) == 1))
		}
	}
	return onward(r, "/security"), nil
}

// removePasskey removes a passkey of the person.
func (s securityPages) removePasskey(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	id := edge.PathID(r, "passkeyId", domain.ParseID[domain.PasskeyID])
	if err := s.RemovePasskey(r.Context(), edge.CallOf(r), id); err != nil {
		return nil, err
	}
	s.console.made.forget()
	own, err := s.ownPasskeys(r.Context(), edge.CallOf(r))
	if err != nil || own {
		return onward(r, saying("/security", "passkey-removed")), err
	}
	return onward(r, saying("/security", "passkey-removed"), s.consoleCookie(passkeyCookie, "", 0)), nil
}

// endSession ends a session of the person, possibly this one.
func (s securityPages) endSession(r *http.Request) (any, error) {
	session, id := edge.CallOf(r).Session, edge.PathID(r, "sessionId", domain.ParseID[domain.SessionID])
	if err := s.Sessions.EndSession(r.Context(), session.Organization, session.Member, id); err != nil {
		return nil, err
	}
	if id == session.ID {
		return s.signedOut(r), nil
	}
	return onward(r, saying("/security#sessions", "session-ended")), nil
}

func (s securityPages) signOutEverywhere(r *http.Request) (any, error) {
	session := edge.CallOf(r).Session
	if err := s.Sessions.EndSessions(r.Context(), session.Organization, session.Member); err != nil {
		return nil, err
	}
	return s.signedOut(r), nil
}

// provePage asks for a new proof of identity before an action that could take over the organization.
func (s securityPages) provePage(r *http.Request) (any, error) {
	shown := s.frameOf(r, "prove")
	shown.To = consolePage(edge.Language(r), r.URL.Query().Get("to"))
	s.withoutMail(r, &shown, shown.Email)
	if s.console.passkeys != nil {
		own, err := s.ownPasskeys(r.Context(), edge.CallOf(r))
		if err != nil {
			return nil, err
		}
		if own {
			shown.Passkey = web.PasskeyHere
		}
	}
	body, err := s.site.Prove(shown)
	return consolePageOf(body, err, s.returnCookieTo(edge.CallOf(r).Session.Member, shown.To))
}

// proved sends a person who has given a proof in a new tab back to the other one.
func (s securityPages) proved(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Message(s.frameOf(r, "proved")))
}

// proveByMail mails a link to the member's own address; signing in with it is a proof of identity.
func (s securityPages) proveByMail(r *http.Request) (any, error) {
	session := edge.CallOf(r).Session
	if s.LinkMailer == nil || session.Email == "" {
		return nil, domain.Refuse(domain.InvalidState, "No link can be mailed to this member.")
	}
	browser, cookie := s.browserOf(r)
	err := s.LinkMailer.ask(linkRequest{
		network: s.networkOf(r), session: session, browser: browser, language: edge.Language(r),
	})
	if err != nil {
		return nil, err
	}
	return onward(r, "/sign-in/sent", cookie), nil
}
