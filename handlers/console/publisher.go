package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/queue/publishers"
)

// endpoints adds the page of what the organization says about itself. Owners change it, and admins read it.
func (s publisherPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.OrganizationAdmin}
	act := see
	act.Body = edge.BodyForm
	both(edge.Get, "/publisher", s.page, see)
	both(edge.Post, "/publisher/domains", s.addDomain, act)
	both(edge.Post, "/publisher/domains/{statementId}/check", s.checkDomain, act)
	both(edge.Post, "/publisher/domains/{statementId}/remove", s.removeDomain, act)
	both(edge.Post, "/publisher/name", s.declareName, act)
	both(edge.Post, "/publisher/name/withdraw", s.withdrawName, act)
}

func (s publisherPages) page(r *http.Request) (any, error) {
	return s.show(r, web.PublisherPage{}, nil)
}

// show shows the page, also after a form was refused.
func (s publisherPages) show(r *http.Request, shown web.PublisherPage, failed error) (edge.Response, error) {
	problem, status, err := s.problem(r, failed)
	if err != nil {
		return edge.Response{}, err
	}
	c := edge.CallOf(r)
	found, err := s.Publisher(r.Context(), c)
	if err != nil {
		return edge.Response{}, err
	}
	shown.Console, shown.Problem = s.frameOf(r, "publisher"), problem
	shown.Console.Path = web.ConsoleRoot + "/publisher"
	shown.NotYet = errors.Is(failed, domain.ErrNoStatementsYet)
	shown.Most, shown.Days = domain.MaxPublisherDomains, domain.LapseDays
	shown.MaxName, shown.Public = domain.MaxOrganizationName, publicLines(found.Public(c.Start))
	if shown.Console.Said == "publisher-name" && shown.Public.Domains == nil {
		shown.Console.Said = "publisher-name-later"
	}
	if c.Session.Role == domain.Owner {
		shown.Prove = s.proveFirst(r, "/publisher")
	}
	shown.Domains = wire.Each(found.Domains, func(d query.CheckedDomain) web.OwnDomain {
		return ownDomain(c, d)
	})
	if found.Name != nil {
		shown.Name, shown.StatedAt = found.Name.Name.Body, &found.Name.StatedAt
		by, err := s.Store.Member(r.Context(), c.Access.Organization, found.Name.Member)
		if err != nil {
			return edge.Response{}, err
		}
		shown.StatedBy = by.Email
	}
	resp, err := consolePageOf(s.site.Publisher(shown))
	return afterForm(resp, status, edge.Refusal(failed)), err
}

func publicLines(p query.Publisher) (lines web.Publisher) {
	for _, d := range p.Domains {
		lines.Domains = append(lines.Domains, web.PublisherDomain{Domain: d.Domain.Body, CheckedAt: *d.CheckedAt})
	}
	if p.Name != nil {
		lines.Name = p.Name.Name.Body
	}
	return lines
}

func ownDomain(c *edge.Call, d query.CheckedDomain) web.OwnDomain {
	seen, id := publishers.ReadSighting(d.Found), d.Organization.String()
	return web.OwnDomain{
		ID: d.ID.String(), Domain: d.Domain.Body, State: d.State(c.Start), CheckedAt: d.CheckedAt, TriedAt: d.TriedAt,
		Method: d.Method, FailedDays: d.FailedDays, DNS: string(seen.DNS), HTTPS: string(seen.HTTPS),
		Record: domain.PublisherHost + "." + d.Domain.Body, Value: domain.PublisherToken + id,
		Address: "https://" + d.Domain.Body + domain.PublisherFile, File: `{"organizations": ["` + id + `"]}`,
	}
}

func (s publisherPages) addDomain(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	name, err := edge.Judged(strictjson.Fields(withoutScheme(edge.Form(r))), action.ReadDomain)
	if err == nil {
		err = s.AddDomain(r.Context(), edge.CallOf(r), name)
	}
	if err != nil {
		return s.show(r, web.PublisherPage{Typed: textOf(edge.Form(r), "domain")}, err)
	}
	return onward(r, saying("/publisher#domains", "domain")), nil
}

// withoutScheme returns a form whose domain is the host of the address that was typed.
func withoutScheme(form url.Values) url.Values {
	address := textOf(form, "domain")
	if !strings.Contains(address, "/") {
		return form
	}
	if _, after, found := strings.Cut(address, "://"); found {
		address = after
	}
	form = maps.Clone(form)
	host, _, _ := strings.Cut(address, "/")
	form.Set("domain", host)
	return form
}

func statementID(r *http.Request) domain.StatementID {
	return edge.PathID(r, "statementId", domain.ParseID[domain.StatementID])
}

// checkDomain looks for the proof at once. The page then says what was found. It needs no proof of identity, because it
// finds only facts.
func (s publisherPages) checkDomain(r *http.Request) (any, error) {
	id := statementID(r)
	_, err := s.CheckDomain(r.Context(), edge.CallOf(r), id)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.RateLimited && refused.Limit == nil {
		return s.show(r, web.PublisherPage{TooSoon: id.String()}, err)
	}
	if err != nil {
		return nil, err
	}
	return onward(r, "/publisher#"+id.String()), nil
}

func (s publisherPages) removeDomain(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	if err := s.RemoveDomain(r.Context(), edge.CallOf(r), statementID(r)); err != nil {
		return nil, err
	}
	return onward(r, saying("/publisher#domains", "domain-removed")), nil
}

func (s publisherPages) declareName(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	declare, err := edge.Judged(strictjson.Fields(edge.Form(r)), action.ReadPublisherName)
	if err == nil {
		err = s.DeclareName(r.Context(), edge.CallOf(r), declare)
	}
	if err != nil {
		return s.show(r, web.PublisherPage{TypedName: textOf(edge.Form(r), "name")}, err)
	}
	return onward(r, saying("/publisher#name", "publisher-name")), nil
}

func (s publisherPages) withdrawName(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	if err := s.WithdrawName(r.Context(), edge.CallOf(r)); err != nil {
		return nil, err
	}
	return onward(r, saying("/publisher#name", "publisher-name-withdrawn")), nil
}
