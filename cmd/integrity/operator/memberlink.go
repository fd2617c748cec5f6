package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// LinkView is a link to an OAuth subject.
type LinkView struct{ wire.OAuthLink }

func (a *app) viewLink(l domain.OAuthLink) LinkView {
	return LinkView{wire.OAuthLink{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(a.Now()), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: cli.TimeText(l.CreatedAt), ExpiresAt: cli.TimeText(l.ExpiresAt),
		LinkedAt: cli.TimeOrNull(l.LinkedAt), WithdrawnAt: cli.TimeOrNull(l.WithdrawnAt),
	}}
}

func (v LinkView) line() string {
	scopes := v.ConsentedScopes
	if scopes == nil {
		scopes = v.Scopes
	}
	return fmt.Sprintf("%s  %s  %s  %v\n", v.ID, v.MemberID, v.Status, scopes)
}

func (a *app) memberLinkCommand() *cobra.Command {
	v, organization := a.organizationVerb("member link")
	v.Long = fmt.Sprintf(v.Long, domain.LinkLifetime)
	config.AddFlags(v.Command, "BASE_URL", "OAUTH_ISSUER", "OAUTH_CLIENT_ID")
	member, email := v.member()
	start := domain.StartLink{}
	v.scopes(&start.Scopes, scopeTexts(domain.OAuthScopes()), "what can be consented to, separated by commas")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		return ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
			start.Origin, start.Member, start.Email = ledger.Origin(a.App, *organization), *member, *email
			c, code := domain.NewStartLink(start, a.Now())
			if err := l.Do(ctx, c); err != nil {
				return err
			}
			view := wire.StartedLink{OAuthLink: a.viewLink(c.Outcome).OAuthLink, Code: code}
			text := fmt.Sprintf("%s  until %s\n%s\n", view.ID, view.ExpiresAt, code)
			if cfg.BaseURL != "" && cfg.OAuthClientID != "" {
				address := handlers.LinkURL(cfg.BaseURL, code)
				view.URL, text = &address, text+address+"\n"
			}
			return v.print(view, text)
		})
	})
}

func scopeTexts(scopes []domain.Scope) []string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return texts
}

// linksShown is how many links of an organization are listed, the newest.
const linksShown = 1000

func (a *app) memberLinksCommand() *cobra.Command {
	newest := func(s *query.Store, ctx context.Context, id domain.OrganizationID) ([]domain.OAuthLink, error) {
		all, _, err := s.Links(ctx, id, domain.MemberID{}, linksShown, 0)
		return all, err
	}
	c := list(a, "member links", "links", newest, a.viewLink)
	c.Short = fmt.Sprintf(c.Short, linksShown)
	return c
}

func (a *app) memberUnlinkCommand() *cobra.Command {
	v := a.ledgerVerb("member unlink")
	var id domain.LinkID
	v.check(func() (err error) {
		if id, err = domain.ParseID[domain.LinkID](strings.TrimSpace(v.args[0])); err != nil {
			err = fmt.Errorf("LINK_ID: %w (it is not the code; integrity member links shows the ids)", err)
		}
		return err
	})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		known, err := l.Store.Link(ctx, id)
		if err != nil {
			return err
		}
		withdraw := &domain.WithdrawConsent{Origin: ledger.Origin(a.App, known.Organization), Link: id}
		if err := l.Do(ctx, withdraw); err != nil {
			return err
		}
		return v.show(a.viewLink(withdraw.Outcome))
	})
}
