package operator

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/action"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// KeyView is an API key in JSON output. Only create and rotate set Key, the key's text, which is shown just once.
type KeyView struct {
	wire.APIKey
	OrganizationID string `json:"organizationId,omitempty"` // only when read from the database
	EndsSoon       bool   `json:"endsSoon"`                 // still valid, and expires within domain.KeyWarning
	Key            string `json:"key,omitempty"`
}

func (a apikeys) viewKey(k query.GrantedKey) KeyView {
	v := a.viewAPIKey(action.ViewAPIKey(k))
	v.OrganizationID = k.Organization.String()
	return v
}

// viewAPIKey converts a key from the service's API.
func (a apikeys) viewAPIKey(k wire.APIKey) KeyView {
	ends, err := time.Parse(time.RFC3339, k.ExpiresAt)
	now := a.Now()
	return KeyView{
		APIKey: k, EndsSoon: err == nil && k.RevokedAt == nil && ends.After(now) && !ends.After(now.Add(domain.KeyWarning)),
	}
}

func (v KeyView) line() say.Phrase {
	var state text
	if v.RevokedAt != nil {
		state.Sayf("revoked %s", *v.RevokedAt)
	} else {
		state.Sayf("expires %s", v.ExpiresAt)
	}
	if v.EndsSoon {
		state.Sayf(", ENDS SOON")
	}
	if v.LastUsedAt != nil {
		state.Sayf(", last used %s", *v.LastUsedAt)
	}
	if v.Source != nil {
		state.Sayf(", source %s", *v.Source)
	}
	if len(v.Networks) > 0 {
		state.Sayf(", networks %v", v.Networks)
	}
	if v.MaxVersionStep != nil {
		state.Sayf(", version step %d", *v.MaxVersionStep)
	}
	name := ""
	if v.Name != nil {
		name = "  " + cli.Visible(*v.Name)
	}
	return say.Sentencef("%s%s  of %s  (%v, %s)\n", v.ID, name, v.MemberID, v.Scopes, state)
}

func (a apikeys) apikeyCommand() *cobra.Command {
	return cli.Group("apikey", "API keys and the companies they may use",
		a.apikeyCreateCommand(), a.apikeyListCommand(), a.apikeyShowCommand(), a.apikeyRotateCommand(),
		a.apikeyRevokeCommand(),
		a.apikeyAffectedCommand(), a.apikeyGrantCommand())
}

func (a apikeys) apikeyListCommand() *cobra.Command {
	return apiList(a.app, "apikey list", "keys",
		func(
			ctx context.Context, s *query.Store, id domain.OrganizationID, after string,
		) ([]query.GrantedKey, bool, string, error) {
			from, _ := domain.ParseID[domain.KeyID](after) // empty for the first page
			page, more, err := s.KeysPage(ctx, id, from, 1000)
			if len(page) > 0 {
				after = page[len(page)-1].ID.String()
			}
			return page, more, after, err
		}, a.viewKey,
		func(ctx context.Context, service *client.Client, after string) ([]KeyView, wire.Next, error) {
			page, err := service.APIKeys(ctx, after)
			return each(page.Keys, a.viewAPIKey), page.Next, err
		})
}

func (a apikeys) apikeyShowCommand() *cobra.Command {
	v := a.apiVerb("apikey show")
	show := func(k KeyView) error {
		lines := text{k.line()}
		for _, reference := range k.Grants.Companies {
			lines.Sayf("  may use %s\n", reference)
		}
		if k.Grants.HasMore {
			lines.Sayf("  and more companies\n")
		}
		return v.print(k, lines)
	}
	v.ask = func(ctx context.Context, service *client.Client) error {
		k, err := service.APIKey(ctx, v.args[0])
		if err != nil {
			return clientcmd.Refusal(err)
		}
		return show(a.viewAPIKey(k))
	}
	return v.onKey(func(_ context.Context, _ *ledger.Opened, key query.GrantedKey) error { return show(a.viewKey(key)) })
}

func (a apikeys) apikeyCreateCommand() *cobra.Command {
	v, organization := a.organizationAPIVerb(
		"apikey create", "name", "scopes", "expires", "company", "source", "network", "max-version-step",
	)
	create := domain.CreateKey{}
	member := v.Flags().String("member", "", "id (usr_…) or address of the member")
	v.check(func() (err error) {
		create.Member, create.Email, err = readMember(*member)
		return err
	})
	v.must("name the member with --member", func() bool { return v.url != "" || *member != "" })
	v.Flags().StringVar(&create.Name, "name", "", "what the key is for, at most 100 characters")
	v.must("--name "+domain.KeyNameRule, func() bool {
		return create.Name == "" && v.url == "" || domain.ValidKeyName(create.Name)
	})
	v.Flags().StringSliceVar(
		&create.Companies, "company", nil, "references of companies to grant to the key, separated by commas",
	)
	v.scopes(&create.Scopes, nil, "scopes, separated by commas")
	v.lifetime(&create.Lifetime, "lifetime in days or hours, from 1h to 730d")
	v.keyLimits(&create)
	cli.Require(v.Command, "scopes")
	show := func(view KeyView, key string) error {
		view.Key = key
		return v.print(view, text{view.line(), say.Sentencef("%s\n", key)})
	}
	v.ask = func(ctx context.Context, service *client.Client) error {
		made, err := service.CreateAPIKey(ctx, wire.APIKeyRequest{
			Name: create.Name, Scopes: create.Scopes, ExpiresAt: v.end(create.Lifetime), Source: create.Source,
			Networks:       create.Networks,
			MaxVersionStep: create.MaxVersionStep, Companies: create.Companies,
		})
		if err != nil {
			return clientcmd.Unconfirmed(err, lostText)
		}
		return show(a.viewAPIKey(made.APIKey), made.Key)
	}
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		create.Origin = ledger.Origin(a.App, *organization)
		c, text := domain.NewCreateKey(create, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		return show(a.currentKey(ctx, l, c.Outcome), text)
	})
}

// lostText tells the user what to do if no answer came back: the key may exist all the same.
const lostText = "integrity apikey list shows whether it was created; its text is then lost, so revoke it before you " +
	"create another"

// currentKey reads a key again after a committed change. If that fails, it shows the key as the change left it.
func (a apikeys) currentKey(ctx context.Context, l *ledger.Opened, key domain.APIKey) KeyView {
	found, err := l.Store.KeyOf(ctx, key.Organization, key.ID)
	if err != nil {
		found = query.GrantedKey{UsedKey: query.UsedKey{APIKey: key}}
	}
	return a.viewKey(found)
}

// end returns the expiry that --expires gives, or an empty string without the flag, which leaves the expiry to the
// service.
func (v *verb) end(lifetime time.Duration) string {
	if !v.Flags().Changed("expires") {
		return ""
	}
	return cli.TimeText(v.app.Now().Add(lifetime))
}

// keyLimits adds the flags that restrict what a key may declare and where it may be used from.
func (v *verb) keyLimits(to *domain.CreateKey) {
	source := v.Flags().String("source", "", "the only source that the key may declare (default: any)")
	networks := v.Flags().StringSlice("network", nil, "")
	cli.DescribeFlag(v.Flags().Lookup("network"), say.Sentencef(
		"networks (CIDR) or addresses that the key's requests must come from, up to %d (default: any)",
		domain.MaxKeyNetworks,
	))
	step := v.Flags().Int32(
		"max-version-step", 0, "how far a new version may be above the document's highest (default: any)",
	)
	given := v.Flags().Changed
	v.must("--source: it "+domain.ReferenceRule, func() bool { return !given("source") || domain.ValidReference(*source) })
	v.must("--max-version-step must be a whole number of at least 1", func() bool {
		return !given("max-version-step") || *step >= 1
	})
	v.check(func() (err error) {
		if given("source") {
			to.Source = source
		}
		if given("max-version-step") {
			to.MaxVersionStep = step
		}
		for _, text := range *networks {
			network, err := domain.ParseNetwork(strings.TrimSpace(text))
			if err != nil {
				return say.Errorf("--network: %w", err)
			}
			to.Networks = append(to.Networks, network)
		}
		return nil
	})
}

// scopes adds the flag --scopes.
func (v *verb) scopes(to *[]domain.Scope, unless []string, usage string) {
	texts := v.Flags().StringSlice("scopes", unless, usage)
	v.check(func() error {
		for _, text := range *texts {
			scope := domain.Scope(strings.TrimSpace(text))
			if !slices.Contains(domain.Scopes(), scope) {
				return say.Errorf("--scopes: unknown scope %q; the scopes are %v", text, domain.Scopes())
			}
			if !slices.Contains(*to, scope) {
				*to = append(*to, scope)
			}
		}
		return nil
	})
}

// lifetime adds the flag --expires.
func (v *verb) lifetime(to *time.Duration, usage string) {
	text := v.Flags().String("expires", "365d", usage)
	v.check(func() (err error) {
		*to, err = readLifetime(*text)
		return err
	})
}

func readLifetime(text string) (time.Duration, error) {
	lifetime, err := readSpan(text)
	if err != nil || lifetime < domain.MinKeyLifetime || lifetime > domain.MaxKeyLifetime {
		return 0, say.Errorf("--expires must be a lifetime from 1h to 730d, such as 90d or 12h")
	}
	return lifetime, nil
}

// readSpan parses a span in days or hours, such as 90d or 12h.
func readSpan(text string) (time.Duration, error) {
	unit := time.Hour
	number, days := strings.CutSuffix(text, "d")
	if days {
		unit = 24 * time.Hour
	} else {
		number = strings.TrimSuffix(text, "h")
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || number == text {
		return 0, say.Errorf("it must be in days or hours")
	}
	return time.Duration(n) * unit, nil
}

// RotationView is the successor of a rotated key, and what happened to the former key.
type RotationView struct {
	KeyView
	FormerKey KeyView `json:"formerKey"`
}

func (a apikeys) apikeyRotateCommand() *cobra.Command {
	v := a.apiVerb("apikey rotate", "overlap", "copy-grants", "expires")
	rotate := domain.RotateKey{}
	overlap := v.Flags().String(
		"overlap", "24h", "how long the former key keeps working, in days or hours, from 0h to 30d",
	)
	v.Flags().BoolVar(&rotate.CopyGrants, "copy-grants", false, "grant the successor every company of the former key")
	v.lifetime(&rotate.Lifetime, "lifetime of the successor in days or hours, from 1h to 730d")
	v.check(func() (err error) {
		if rotate.Overlap, err = readSpan(*overlap); err != nil || rotate.Overlap > domain.MaxKeyOverlap {
			return say.Errorf("--overlap must be a span from 0h to 30d, such as 24h or 7d")
		}
		return nil
	})
	show := func(successor, former KeyView, key string) error {
		successor.Key = key
		lines := text{successor.line(), say.Sentencef("former key: %s", former.line())}
		if rotate.CopyGrants {
			lines.Sayf("companies granted: %d\n", len(successor.Grants.Companies))
		} else {
			lines.Sayf("no grants were copied: grant companies to the new key, or rotate with --copy-grants\n")
		}
		lines.Sayf("%s\n", key)
		return v.print(RotationView{successor, former}, lines)
	}
	v.ask = func(ctx context.Context, service *client.Client) error {
		made, err := service.RotateAPIKey(ctx, v.args[0], wire.APIKeyRotation{
			OverlapSeconds: new(int64(rotate.Overlap / time.Second)), CopyGrants: rotate.CopyGrants,
			ExpiresAt: v.end(rotate.Lifetime),
		})
		if err != nil {
			return clientcmd.Unconfirmed(err, lostText)
		}
		return show(a.viewAPIKey(made.APIKey), a.viewAPIKey(made.FormerKey), made.Key)
	}
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error {
		rotate.Origin, rotate.Key = ledger.Origin(a.App, key.Organization), key.ID
		c, text := domain.NewRotateKey(rotate, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		return show(a.currentKey(ctx, l, c.Outcome.Key), a.currentKey(ctx, l, c.Outcome.Former), text)
	})
}

func (a apikeys) apikeyRevokeCommand() *cobra.Command {
	v := a.apiVerb("apikey revoke")
	v.ask = func(ctx context.Context, service *client.Client) error {
		k, err := service.RevokeAPIKey(ctx, v.args[0])
		if err != nil {
			return clientcmd.Unconfirmed(err, "run the same command again")
		}
		return v.show(a.viewAPIKey(k))
	}
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error {
		revoke := &domain.RevokeKey{Origin: ledger.Origin(a.App, key.Organization), Key: key.ID}
		return v.changes(ctx, l, revoke, func() shown { return a.currentKey(ctx, l, revoke.Outcome) })
	})
}

func (a apikeys) apikeyGrantCommand() *cobra.Command {
	v := a.ledgerVerb("apikey grant")
	reference := v.Flags().String("company", "", "reference of an existing company of the key's organization")
	take := v.Flags().Bool("revoke", false, "revoke the grant")
	cli.Require(v.Command, "company")
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error {
		company, err := l.Store.CompanyByReference(ctx, key.Organization, *reference)
		if err != nil {
			return say.Errorf("%w Create it with: integrity company create REFERENCE --organization %s", err, key.Organization)
		}
		grant := &domain.SetAccess{
			Origin: ledger.Origin(a.App, key.Organization), Company: company.ID, Key: key.ID, Enabled: !*take,
		}
		if err := l.Do(ctx, grant); err != nil {
			return err
		}
		says := say.Sentencef("%s may use %s\n", key.ID, company.ID)
		if *take {
			says = say.Sentencef("%s may no longer use %s\n", key.ID, company.ID)
		}
		return v.print(wire.KeyAccess{
			CompanyID: company.ID.String(), KeyID: key.ID.String(), Enabled: !*take, UpdatedAt: cli.TimeText(grant.UpdatedAt),
		}, says)
	})
}

func (a apikeys) apikeyAffectedCommand() *cobra.Command {
	v := a.ledgerVerb("apikey affected")
	v.describeJSON("print JSON, one object per line")
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error {
		actor := domain.KeyActor(key.ID)
		_, err := v.printAffected(ctx, l, []domain.Shard{key.Organization.Shard()}, func(e *domain.Event) bool {
			return e.Actor == actor
		})
		return err
	})
}
