package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// linkView is a link to an OAuth identity as the API shows it.
type linkView struct {
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

func (a *app) viewLink(l domain.OAuthLink) linkView {
	v := linkView{
		ID: l.ID.String(), MemberID: l.Member.String(), Status: l.Status(a.now()), Scopes: l.Scopes, ConsentedScopes: l.Consented,
		CreatedAt: timeText(l.CreatedAt), ExpiresAt: timeText(l.ExpiresAt),
	}
	if l.LinkedAt != nil {
		at := timeText(*l.LinkedAt)
		v.LinkedAt = &at
	}
	if l.WithdrawnAt != nil {
		at := timeText(*l.WithdrawnAt)
		v.WithdrawnAt = &at
	}
	return v
}

func (v linkView) line() string {
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
		Use: "link", Short: "Start a one-time link that ties an OAuth identity to a member", Args: arguments(0, 0),
		Long: fmt.Sprintf("Start a one-time link that ties an OAuth identity to a member. It can be redeemed once, for %s: on the page whose address\n"+
			"is printed where INTEGRITY_BASE_URL and INTEGRITY_OAUTH_CLIENT_ID are set as for the service, or with\n"+
			"POST /api/v1/oauth/links/redeem and an access token.", domain.LinkLifetime),
	}
	flags.addOne(c)
	addSettings(c, "BASE_URL", "OAUTH_ISSUER", "OAUTH_CLIENT_ID")
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
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		return a.withLedger(c, func(ctx context.Context, l *ledgerFor) error {
			start, code, err := domain.NewStartLink(domain.StartLink{Origin: a.operator(organization), Member: member, Email: flags.email, Scopes: wanted}, a.now(), a.random)
			if err != nil {
				return err
			}
			if err := l.Do(ctx, start); err != nil {
				return err
			}
			v := struct {
				linkView
				Code string  `json:"code"`
				URL  *string `json:"url"`
			}{a.viewLink(start.Outcome), code, nil}
			text := fmt.Sprintf("%s  until %s\n%s\n", v.ID, v.ExpiresAt, code)
			if cfg.BaseURL != "" && cfg.OAuthClientID != "" {
				address := handlers.LinkURL(cfg.BaseURL, code)
				v.URL, text = &address, text+address+"\n"
			}
			return a.print(flags.json, v, text)
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
	c := &cobra.Command{Use: "links", Short: fmt.Sprintf("List the links to OAuth identities of an organization, the newest %d", linksShown), Args: arguments(0, 0)}
	return a.organizationList(c, func(ctx context.Context, l *ledgerFor, id domain.OrganizationID, asJSON bool) error {
		all, _, err := l.store.Links(ctx, id, domain.MemberID{}, linksShown, 0)
		if err != nil {
			return err
		}
		return printList(a, asJSON, "links", all, a.viewLink, linkView.line)
	})
}

func (a *app) memberUnlinkCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "unlink LINK_ID", Short: "Withdraw the consent of a link, redeemed or not, for good", Args: arguments(1, 1)}
	addDatabaseFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := domain.ParseID[domain.LinkID](strings.TrimSpace(args[0]))
		if err != nil {
			return fmt.Errorf("LINK_ID: %w (it is not the code; integrity member links shows the ids)", err)
		}
		return a.withLedger(c, func(ctx context.Context, l *ledgerFor) error {
			known, err := l.store.Link(ctx, id)
			if err != nil {
				return err
			}
			withdraw, err := domain.NewWithdrawConsent(domain.WithdrawConsent{Origin: a.operator(known.Organization), Link: id}, a.now(), a.random)
			if err != nil {
				return err
			}
			if err := l.Do(ctx, withdraw); err != nil {
				return err
			}
			v := a.viewLink(withdraw.Outcome.Link)
			return a.print(asJSON, v, v.line())
		})
	}
	return c
}
