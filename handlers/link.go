package handlers

import (
	"context"
	"net/http"
	"slices"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewLink(l domain.OAuthLink, now time.Time) wire.OAuthLink {
	return wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(now), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: evidence.FormatTime(l.CreatedAt), ExpiresAt: evidence.FormatTime(l.ExpiresAt),
		LinkedAt: timeOrNull(l.LinkedAt), WithdrawnAt: timeOrNull(l.WithdrawnAt),
	}
}

// LinkURL is the page on which a code is redeemed.
func LinkURL(baseURL, code string) string { return baseURL + "/oauth/link/" + code }

// startLink begins a link for the key's own member. It can have no scope that the key has not.
func (s *server) startLink(ctx context.Context, c *call, scopes []domain.Scope) (any, error) {
	if scopes == nil {
		scopes = slices.DeleteFunc(domain.OAuthScopes(), func(scope domain.Scope) bool { return c.access.Authorize(scope) != nil })
	}
	if len(scopes) == 0 {
		return nil, domain.Refuse(domain.MissingScope, "This key has none of the scopes %v, so there is nothing to consent to.", domain.OAuthScopes())
	}
	for _, scope := range scopes {
		if err := c.access.Authorize(scope); err != nil {
			return nil, err
		}
	}
	command, code := domain.NewStartLink(domain.StartLink{Origin: c.origin(), Member: c.access.Member, Scopes: scopes}, s.Now())
	return s.done(ctx, command, func() any {
		answer := wire.StartedLink{OAuthLink: viewLink(command.Outcome, c.start), Code: code}
		if s.OAuth.CanSignIn() {
			url := LinkURL(s.BaseURL, code)
			answer.URL = &url
		}
		return response{status: http.StatusCreated, data: answer}
	})
}

// readOAuthScopes reads the optional member scopes; nil where it is absent.
func readOAuthScopes(o *strictjson.Object) []domain.Scope {
	scopes := readNames(o, "scopes", domain.OAuthScopes(), codeUnknownValue, "must be verify:read or artifacts:read")
	if o.Has("scopes") && o.OK("scopes") && len(scopes) == 0 {
		o.Problem("scopes", strictjson.CodeRange, "must name at least one scope")
	}
	return scopes
}

// listLinks shows the links of the key's member, newest first; those of all members to an owner or admin.
func (s *server) listLinks(r *http.Request) (any, error) {
	q := newQuery(r)
	all := q.boolean("all")
	limit, offset := q.page()
	if err := q.refusal(); err != nil {
		return nil, err
	}
	c := callOf(r)
	member := c.access.Member
	if all {
		if !c.access.Role.ManagesLinks() {
			return nil, domain.Refuse(domain.RoleRequired, "The links of all members are for an owner or admin; the key's member is %s.", c.access.Role)
		}
		member = domain.MemberID{}
	}
	links, total, err := s.Store.Links(r.Context(), c.access.Organization, member, limit, offset)
	views := each(links, func(l domain.OAuthLink) wire.OAuthLink { return viewLink(l, c.start) })
	return wire.OAuthLinks{Links: views, Limit: limit, Offset: offset, Total: total}, err
}

// withdrawConsent ends a link of the key's member; of any member for an owner or admin.
func (s *server) withdrawConsent(r *http.Request) (any, error) {
	c := callOf(r)
	id := pathID(r, "linkId", domain.ParseID[domain.LinkID])
	command := &domain.WithdrawConsent{Origin: origin(r), Link: id, Member: c.access.Member}
	return s.done(r.Context(), command, func() any { return viewLinkChange(command.Outcome, command.Replayed, c.start) })
}

func viewLinkChange(link domain.OAuthLink, replayed bool, now time.Time) wire.ChangedLink {
	return wire.ChangedLink{OAuthLink: viewLink(link, now), Replayed: replayed}
}

// redeemLink ties the identity of the access token that it comes with to the member of the link. The code is looked at
// first, so that the provider is asked on behalf of invited people only.
func (s *server) redeemLink(r *http.Request) (any, error) {
	raw, ok := bearerText(r.Header)
	if !ok {
		return nil, s.refuseKey(r, domain.Refuse(domain.InvalidKey, "Send the access token of the identity as Authorization: Bearer <ACCESS_TOKEN>."))
	}
	var code string
	var scopes []domain.Scope
	if err := decode(r, func(o *strictjson.Object) {
		code = o.Match("code", strictjson.Required, func(text string) bool { _, _, ok := domain.ParseLinkCode(text); return ok }, "must be the code of a link (il_…)")
		scopes = readOAuthScopes(o)
	}); err != nil {
		return nil, err
	}
	c := callOf(r)
	link, secret, err := s.linkOf(r.Context(), code)
	if err != nil {
		return nil, err
	}
	token, err := s.OAuth.Verify(r.Context(), raw)
	if err != nil {
		return nil, s.refuseKey(r, err)
	}
	redeemed, err := s.redeem(r.Context(), c, link, secret, s.oauthSubject(token.Subject), scopes)
	if err != nil {
		return nil, err
	}
	return viewLinkChange(redeemed.Outcome, redeemed.Replayed, c.start), nil
}

// linkOf finds the link of a code, whatever its state; a wrong secret finds none.
func (s *server) linkOf(ctx context.Context, code string) (link domain.OAuthLink, secretSHA256 [32]byte, err error) {
	id, secretSHA256, ok := domain.ParseLinkCode(code)
	if !ok {
		return link, secretSHA256, query.UnknownLink()
	}
	link, err = s.Store.Link(ctx, id)
	if err == nil && link.SecretSHA256 != secretSHA256 {
		return domain.OAuthLink{}, secretSHA256, query.UnknownLink()
	}
	return link, secretSHA256, err
}

// redeem claims the OAuth subject, then redeems the link in the member's name.
func (s *server) redeem(ctx context.Context, c *call, link domain.OAuthLink, secret [32]byte, subject domain.OAuthSubject, scopes []domain.Scope) (*domain.RedeemLink, error) {
	if err := link.Redeemable(secret, subject, c.start); err != nil {
		return nil, err
	}
	if err := s.Store.ClaimOAuthSubject(ctx, subject, link, c.start); err != nil {
		return nil, err
	}
	command := &domain.RedeemLink{
		Origin: domain.Origin{Organization: link.Organization, Actor: link.Member.String(), RequestID: c.requestID},
		Link:   link.ID, SecretSHA256: secret, Subject: subject, Scopes: scopes,
	}
	return command, s.execute(ctx, command)
}
