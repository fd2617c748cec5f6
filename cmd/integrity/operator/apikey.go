package operator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/projections/query"
)

// KeyView is an API key as JSON shows it; the secret is shown once, by create alone.
type KeyView struct {
	ID             string         `json:"id"`
	OrganizationID string         `json:"organizationId"`
	MemberID       string         `json:"memberId"`
	Scopes         []domain.Scope `json:"scopes"`
	CreatedAt      string         `json:"createdAt"`
	ExpiresAt      string         `json:"expiresAt"`
	RevokedAt      *string        `json:"revokedAt"`
	Source         *string        `json:"source"`
	Network        *string        `json:"network"`
	MaxVersionStep *int32         `json:"maxVersionStep"`
	LastUsedAt     *string        `json:"lastUsedAt"` // to the minute
	EndsSoon       bool           `json:"endsSoon"`   // still works, and ends within keyWarning
	Key            string         `json:"key,omitempty"`
}

// KeyWarning is how long before its end a key is pointed out.
const KeyWarning = 30 * 24 * time.Hour

func (a *app) viewKey(k query.UsedKey) KeyView {
	now := a.Now()
	return KeyView{
		ID: k.ID.String(), OrganizationID: k.Organization.String(), MemberID: k.Member.String(), Scopes: k.Scopes,
		CreatedAt: cli.TimeText(k.CreatedAt), ExpiresAt: cli.TimeText(k.ExpiresAt), RevokedAt: cli.TimeOrNull(k.RevokedAt),
		Source: k.Source, Network: k.Network, MaxVersionStep: k.MaxVersionStep, LastUsedAt: cli.TimeOrNull(k.LastUsedAt),
		EndsSoon: k.RevokedAt == nil && k.ExpiresAt.After(now) && !k.ExpiresAt.After(now.Add(KeyWarning)),
	}
}

// viewNewKey is a key with the text that is shown this once.
func (a *app) viewNewKey(k domain.APIKey, text string) KeyView {
	v := a.viewKey(query.UsedKey{APIKey: k})
	v.Key = text
	return v
}

func (v KeyView) line() string {
	state := "expires " + v.ExpiresAt
	if v.RevokedAt != nil {
		state = "revoked " + *v.RevokedAt
	}
	if v.EndsSoon {
		state += ", ENDS SOON"
	}
	if v.LastUsedAt != nil {
		state += ", last used " + *v.LastUsedAt
	}
	if v.Source != nil {
		state += ", source " + *v.Source
	}
	if v.Network != nil {
		state += ", network " + *v.Network
	}
	if v.MaxVersionStep != nil {
		state += fmt.Sprintf(", version step %d", *v.MaxVersionStep)
	}
	return fmt.Sprintf("%s  of %s  (%v, %s)\n", v.ID, v.MemberID, v.Scopes, state)
}

func (a *app) keyCommand() *cobra.Command {
	return cli.Group("key", "API keys and the companies they may use",
		a.keyCreateCommand(), a.keyListCommand(), a.keyRotateCommand(), a.keyRevokeCommand(), a.keyAffectedCommand(), a.keyGrantCommand())
}

func (a *app) keyCreateCommand() *cobra.Command {
	var flags memberFlags
	var organization organizationFlag
	var limits keyLimitFlags
	var scopes []string
	var expires string
	c := &cobra.Command{
		Use: "create", Short: "Create an API key of a member; its text is shown this once",
		Long: "Creates an API key of a member and prints its text, which is shown this once and stored nowhere.\n" +
			"The key reaches no company until one is granted to it. A limit that is not given does not limit.",
		Args: cli.Arguments(0, 0),
	}
	ledger.AddFlags(c)
	organization.add(c)
	c.Flags().StringVar(&flags.email, "member", "", "id (usr_…) or address of the member")
	c.Flags().StringSliceVar(&scopes, "scopes", nil, "scopes, separated by commas")
	c.Flags().StringVar(&expires, "expires", "365d", "lifetime in days or hours, from 1h to 730d")
	limits.add(c)
	c.Flags().BoolVar(&flags.json, "json", false, "print JSON")
	cli.Require(c, "member", "scopes")
	c.RunE = func(c *cobra.Command, _ []string) error {
		id, err := organization.id()
		if err != nil {
			return err
		}
		member, email, err := readMember(flags.email)
		if err != nil {
			return err
		}
		wanted, err := readScopes(scopes)
		if err != nil {
			return err
		}
		lifetime, err := readLifetime(expires)
		if err != nil {
			return err
		}
		source, network, step, err := limits.values(c)
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			create, text := domain.NewCreateKey(domain.CreateKey{
				Origin: ledger.Origin(a.App, id), Member: member, Email: email, Scopes: wanted, Lifetime: lifetime,
				Source: source, Network: network, MaxVersionStep: step,
			}, a.Now())
			if err := l.Do(ctx, create); err != nil {
				return err
			}
			v := a.viewNewKey(create.Outcome, text)
			return a.Print(flags.json, v, v.line()+text+"\n")
		})
	}
	return c
}

// keyLimitFlags narrow what a key may declare and from where it may act.
type keyLimitFlags struct {
	source, network string
	maxVersionStep  int32
}

func (f *keyLimitFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.source, "source", "", "the only source that the key may declare (default: any)")
	c.Flags().StringVar(&f.network, "network", "", "network (CIDR) or address that the key's requests must come from (default: any)")
	c.Flags().Int32Var(&f.maxVersionStep, "max-version-step", 0, "how far a new version may be above the document's highest (default: any)")
}

func (f *keyLimitFlags) values(c *cobra.Command) (source, network *string, maxVersionStep *int32, err error) {
	if c.Flags().Changed("source") {
		if source = &f.source; !domain.ValidReference(f.source) {
			return nil, nil, nil, fmt.Errorf("--source: it %s", domain.ReferenceRule)
		}
	}
	if c.Flags().Changed("network") {
		canonical, err := domain.ParseNetwork(f.network)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--network: %w", err)
		}
		network = &canonical
	}
	if c.Flags().Changed("max-version-step") {
		if maxVersionStep = &f.maxVersionStep; f.maxVersionStep < 1 {
			return nil, nil, nil, fmt.Errorf("--max-version-step must be a whole number of at least 1")
		}
	}
	return source, network, maxVersionStep, nil
}

func readScopes(texts []string) ([]domain.Scope, error) {
	var scopes []domain.Scope
	for _, text := range texts {
		scope := domain.Scope(strings.TrimSpace(text))
		if !slices.Contains(domain.Scopes(), scope) {
			return nil, fmt.Errorf("--scopes: %q is no scope; there are %v", text, domain.Scopes())
		}
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes, nil
}

func readLifetime(text string) (time.Duration, error) {
	lifetime, err := readSpan(text)
	if err != nil || lifetime < domain.MinKeyLifetime || lifetime > domain.MaxKeyLifetime {
		return 0, fmt.Errorf("--expires must be a lifetime from 1h to 730d, such as 90d or 12h")
	}
	return lifetime, nil
}

// readSpan reads 90d or 12h.
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
		return 0, fmt.Errorf("it must be in days or hours")
	}
	return time.Duration(n) * unit, nil
}

func (a *app) keyListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the API keys of an organization, ended ones included",
		Long: "Lists the API keys of an organization, ended ones included, with the minute of their last use (which a running service\n" +
			"writes down once a minute). Keys that still work and end within 30 days are marked.",
		Args: cli.Arguments(0, 0),
	}
	return a.organizationList(c, func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error {
		all, err := l.Store.Keys(ctx, id)
		if err != nil {
			return err
		}
		return printList(a, asJSON, "keys", all, a.viewKey, KeyView.line)
	})
}

func (a *app) keyRevokeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "revoke KEY_ID", Short: "End an API key for good", Args: cli.Arguments(1, 1)}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := readKeyID(args[0])
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			known, err := l.Store.Key(ctx, id)
			if err != nil {
				return err
			}
			revoke := &domain.RevokeKey{Origin: ledger.Origin(a.App, known.Organization), Key: id}
			if err := l.Do(ctx, revoke); err != nil {
				return err
			}
			v := a.viewKey(query.UsedKey{APIKey: revoke.Outcome, LastUsedAt: known.LastUsedAt})
			return a.Print(asJSON, v, v.line())
		})
	}
	return c
}

// readKeyID never quotes what it was given: it may be the key's text.
func readKeyID(text string) (domain.KeyID, error) {
	id, err := domain.ParseID[domain.KeyID](text)
	if err != nil {
		return id, fmt.Errorf("KEY_ID: %w (it is not the text of the key; integrity key list shows the ids)", err)
	}
	return id, nil
}

// AccessView is a grant as the API shows it.
type AccessView struct {
	CompanyID string `json:"companyId"`
	KeyID     string `json:"keyId"`
	Enabled   bool   `json:"enabled"`
	UpdatedAt string `json:"updatedAt"`
}

func (a *app) keyGrantCommand() *cobra.Command {
	var asJSON, take bool
	var reference string
	c := &cobra.Command{
		Use: "grant KEY_ID", Short: "Let an API key use a company, or no longer (--revoke)", Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	c.Flags().StringVar(&reference, "company", "", "reference of an existing company of the key's organization")
	c.Flags().BoolVar(&take, "revoke", false, "take the grant back")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Require(c, "company")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := readKeyID(args[0])
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			key, err := l.Store.Key(ctx, id)
			if err != nil {
				return err
			}
			company, err := l.Store.CompanyByReference(ctx, key.Organization, reference)
			if err != nil {
				return fmt.Errorf("%w Create it with: integrity company create REFERENCE --organization %s", err, key.Organization)
			}
			grant := &domain.SetAccess{Origin: ledger.Origin(a.App, key.Organization), Company: company.ID, Key: id, Enabled: !take}
			if err := l.Do(ctx, grant); err != nil {
				return err
			}
			v := AccessView{CompanyID: company.ID.String(), KeyID: id.String(), Enabled: !take, UpdatedAt: cli.TimeText(grant.Outcome.UpdatedAt)}
			text := "%s may use %s\n"
			if take {
				text = "%s may no longer use %s\n"
			}
			return a.Print(asJSON, v, fmt.Sprintf(text, v.KeyID, v.CompanyID))
		})
	}
	return c
}
