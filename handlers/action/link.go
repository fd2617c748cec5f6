package action

import (
	"context"
	"net/http"
	"slices"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewLink(l domain.OAuthLink, now time.Time) wire.OAuthLink {
	return wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(now), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: evidence.FormatTime(l.CreatedAt), ExpiresAt: evidence.FormatTime(l.ExpiresAt),
		LinkedAt: wire.TimeOrNull(l.LinkedAt), WithdrawnAt: wire.TimeOrNull(l.WithdrawnAt),
	}
}

// LinkURL returns the address of the page on which a code is redeemed.
func LinkURL(baseURL, code string) string { return baseURL + "/oauth/link/" + code }

// StartLink begins a link for the key's own member, with no more scopes than the key has.
func (s *Links) StartLink(ctx context.Context, c *edge.Call, scopes []domain.Scope) (wire.StartedLink, error) {
	if scopes == nil {
		scopes = slices.DeleteFunc(domain.OAuthScopes(), func(scope domain.Scope) bool {
			return c.Access.Authorize(scope) != nil
		})
	}
	if len(scopes) == 0 {
		return wire.StartedLink{}, domain.Refuse(
			domain.MissingScope, "This key does not have the scope %s, so there is nothing to consent to.",
			domain.OneOf(domain.OAuthScopes()),
		)
	}
	for _, scope := range scopes {
		if err := c.Access.Authorize(scope); err != nil {
			return wire.StartedLink{}, err
		}
	}
	command, code := domain.NewStartLink(
		domain.StartLink{Origin: c.Origin(), Member: c.Access.Member, Scopes: scopes}, s.Now(),
	)
	return done(ctx, s.Service, command, func() wire.StartedLink {
		answer := wire.StartedLink{OAuthLink: viewLink(command.Outcome, c.Start), Code: code}
		if s.OAuth.CanSignIn() {
			answer.URL = new(LinkURL(s.BaseURL, code))
		}
		return answer
	})
}

// ReadOAuthScopes reads the optional member scopes; it returns nil if scopes is absent.
func ReadOAuthScopes(o *strictjson.Object) []domain.Scope {
	scopes := edge.ReadNames(
		o, "scopes", domain.OAuthScopes(), edge.CodeUnknownValue, "must be verify:read or artifacts:read",
	)
	if o.Has("scopes") && o.OK("scopes") && len(scopes) == 0 {
		o.Problem("scopes", strictjson.CodeRange, "must name at least one scope")
	}
	return scopes
}

// LinkQuestion asks for the links of the caller's member, or of all members.
type LinkQuestion struct {
	all bool
	edge.Slice
}

// ReadLinkQuestion reads which page is wanted, and whether it lists the links of all members.
func ReadLinkQuestion(o *strictjson.Object) LinkQuestion {
	return LinkQuestion{o.Bool("all", strictjson.Optional), edge.ReadPage(o)}
}

// ListLinks lists the links of the key's member, newest first. An owner or admin may list the links of all members.
func (s *Links) ListLinks(ctx context.Context, c *edge.Call, asked LinkQuestion) (wire.OAuthLinks, error) {
	member := c.Access.Member
	if asked.all {
		if !c.Access.Role.ManagesLinks() {
			return wire.OAuthLinks{}, domain.Refuse(
				domain.RoleRequired, "Only an owner or admin may list the links of all members; the key's member is %s.",
				c.Access.Role,
			)
		}
		member = domain.MemberID{}
	}
	links, total, err := s.Store.Links(ctx, c.Access.Organization, member, asked.Limit, asked.Offset)
	views := wire.Each(links, func(l domain.OAuthLink) wire.OAuthLink { return viewLink(l, c.Start) })
	return wire.OAuthLinks{Links: views, Limit: asked.Limit, Offset: asked.Offset, Total: total}, err
}

// ReadLinkID reads the link in the path.
func ReadLinkID(o *strictjson.Object) domain.LinkID {
	return edge.ReadID(o, "linkId", domain.ParseID[domain.LinkID])
}

// WithdrawConsent ends a link of the key's member. An owner or admin may end the links of all members.
func (s *Links) WithdrawConsent(ctx context.Context, c *edge.Call, id domain.LinkID) (wire.ChangedLink, error) {
	command := &domain.WithdrawConsent{Origin: c.Origin(), Link: id, Member: c.Access.Member}
	return done(ctx, s.Service, command, func() wire.ChangedLink {
		return viewLinkChange(command.Outcome, command.Replayed, c.Start)
	})
}

func viewLinkChange(link domain.OAuthLink, replayed bool, now time.Time) wire.ChangedLink {
	return wire.ChangedLink{OAuthLink: viewLink(link, now), Replayed: replayed}
}

type redemption struct {
	code   string
	scopes []domain.Scope
}

func readRedemption(o *strictjson.Object) redemption {
	formed := func(text string) bool { _, _, ok := domain.ParseLinkCode(text); return ok }
	return redemption{
		o.Match("code", strictjson.Required, formed, "must be the code of a link (il_…)"), ReadOAuthScopes(o),
	}
}

// RedeemLink links the identity of the request's access token to the member of the link. It checks the code first, so
// that only requests with a valid code cause questions to the provider. It takes the request itself because the token
// is a credential: a missing token is refused before the body is read, and each refusal counts against the client
// address.
func (s *Links) RedeemLink(r *http.Request) (redeemed wire.ChangedLink, err error) {
	raw, ok := edge.BearerText(r.Header)
	if !ok {
		return redeemed, s.RefuseKey(
			r,
			domain.Refuse(domain.InvalidKey, "Send the access token of the identity as Authorization: Bearer <ACCESS_TOKEN>."),
		)
	}
	asked, err := edge.Read(r, readRedemption)
	if err != nil {
		return redeemed, err
	}
	ctx, c := r.Context(), edge.CallOf(r)
	link, secret, err := s.LinkOf(ctx, asked.code)
	if err != nil {
		return redeemed, err
	}
	token, err := s.OAuth.Verify(ctx, raw)
	if err != nil {
		return redeemed, s.RefuseKey(r, err)
	}
	command, err := s.Redeem(ctx, c, link, secret, s.OAuthSubject(token.Subject), asked.scopes)
	if err != nil {
		return redeemed, err
	}
	return viewLinkChange(command.Outcome, command.Replayed, c.Start), nil
}

// LinkOf finds the link of a code in any state. A wrong secret finds no link.
func (s *Links) LinkOf(ctx context.Context, code string) (link domain.OAuthLink, secretSHA256 [32]byte, err error) {
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

// Redeem claims the OAuth subject, then redeems the link in the member's name.
func (s *Links) Redeem(
	ctx context.Context, c *edge.Call, link domain.OAuthLink, secret [32]byte, subject domain.OAuthSubject,
	scopes []domain.Scope,
) (*domain.RedeemLink, error) {
	if err := link.Redeemable(secret, subject, c.Start); err != nil {
		return nil, err
	}
	if err := s.Store.ClaimOAuthSubject(ctx, subject, link, c.Start); err != nil {
		return nil, err
	}
	command := &domain.RedeemLink{
		Origin: domain.Origin{
			Organization: link.Organization, Actor: domain.MemberActor(link.Member), RequestID: c.RequestID,
		},
		Link: link.ID, SecretSHA256: secret, Subject: subject, Scopes: scopes,
	}
	return command, s.execute(ctx, command)
}
