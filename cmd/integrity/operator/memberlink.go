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
)

// LinkView is a link to an OAuth subject as the API shows it.
type LinkView struct {
	ID              string         `json:"id"`
	MemberID        string         `json:"memberId"`
	Status          string         `json:"status"`
	Scopes          []domain.Scope `json:"scopes"`
	ConsentedScopes []domain.Scope `json:"consentedScopes"`
	CreatedAt       string         `json:"createdAt"`
	ExpiresAt       string         `json:"expiresAt"`
	LinkedAt        *string        `json:"linkedAt"`
	WithdrawnAt     *string        `json:"withdrawnAt"`
}

func (a *app) viewLink(l domain.OAuthLink) LinkView {
	v := LinkView{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(a.Now()), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: cli.TimeText(l.CreatedAt), ExpiresAt: cli.TimeText(l.ExpiresAt),
	}
	if l.LinkedAt != nil {
		at := cli.TimeText(*l.LinkedAt)
		v.LinkedAt = &at
	}
	if l.WithdrawnAt != nil {
		at := cli.TimeText(*l.WithdrawnAt)
		v.WithdrawnAt = &at
	}
	return v
}

func (v LinkView) line() string {
	scopes := v.ConsentedScopes
	if scopes == nil {
		scopes = v.Scopes
	}
	return fmt.Sprintf("%s  %s  %s  %v\n", v.ID, v.MemberID, v.Status, scopes)
}

func (a *app) memberLinkCommand() *cobra.Command {
	var flags memberFlags
	var scopes []string
	c := &cobra.Command{
		Use: "link", Short: "Start a one-time link that ties an OAuth subject to a member", Args: cli.Arguments(0, 0),
		Long: fmt.Sprintf("Start a one-time link that ties an OAuth subject to a member. It can be redeemed once, for %s: on the page whose address\n"+
			"is printed where INTEGRITY_BASE_URL and INTEGRITY_OAUTH_CLIENT_ID are set as for the service, or with\n"+
			"POST /api/v1/oauth/links/redeem and an access token.", domain.LinkLifetime),
	}
	flags.addOne(c)
	config.AddFlags(c, "BASE_URL", "OAUTH_ISSUER", "OAUTH_CLIENT_ID")
	c.Flags().StringSliceVar(&scopes, "scopes", scopeTexts(domain.OAuthScopes()), "what can be consented to, separated by commas")
	c.RunE = func(c *cobra.Command, _ []string) error {
		organization, member, err := flags.readOne()
		if err != nil {
			return err
		}
		wanted, err := readScopes(scopes)
		if err != nil {
			return err
		}
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			start, code := domain.NewStartLink(domain.StartLink{Origin: ledger.Origin(a.App, organization), Member: member, Email: flags.email, Scopes: wanted}, a.Now())
			if err := l.Do(ctx, start); err != nil {
				return err
			}
			v := struct {
				LinkView
				Code string  `json:"code"`
				URL  *string `json:"url"`
			}{a.viewLink(start.Outcome), code, nil}
			text := fmt.Sprintf("%s  until %s\n%s\n", v.ID, v.ExpiresAt, code)
			if cfg.BaseURL != "" && cfg.OAuthClientID != "" {
				address := handlers.LinkURL(cfg.BaseURL, code)
				v.URL, text = &address, text+address+"\n"
			}
			return a.Print(flags.json, v, text)
		})
	}
	return c
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
	c := &cobra.Command{Use: "links", Short: fmt.Sprintf("List the links to OAuth subjects of an organization, the newest %d", linksShown), Args: cli.Arguments(0, 0)}
	return a.organizationList(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error {
		all, _, err := l.Store.Links(ctx, id, domain.MemberID{}, linksShown, 0)
		if err != nil {
			return err
		}
		return printList(a, asJSON, "links", all, a.viewLink, LinkView.line)
	})
}

func (a *app) memberUnlinkCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "unlink LINK_ID", Short: "Withdraw the consent of a link, redeemed or not, for good", Args: cli.Arguments(1, 1)}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := domain.ParseID[domain.LinkID](strings.TrimSpace(args[0]))
		if err != nil {
			return fmt.Errorf("LINK_ID: %w (it is not the code; integrity member links shows the ids)", err)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			known, err := l.Store.Link(ctx, id)
			if err != nil {
				return err
			}
			withdraw := &domain.WithdrawConsent{Origin: ledger.Origin(a.App, known.Organization), Link: id}
			if err := l.Do(ctx, withdraw); err != nil {
				return err
			}
			v := a.viewLink(withdraw.Outcome.Link)
			return a.Print(asJSON, v, v.line())
		})
	}
	return c
}
