package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
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

func (v KeyView) line() string {
	state := "expires " + v.ExpiresAt
	if v.RevokedAt != nil {
		state = "revoked " + *v.RevokedAt
	}
	if v.EndsSoon {
		state += ", ENDS SOON"
	}
	for _, more := range []struct {
		says string
		of   *string
	}{{", last used ", v.LastUsedAt}, {", source ", v.Source}, {", network ", v.Network}} {
		if more.of != nil {
			state += more.says + *more.of
		}
	}
	if v.MaxVersionStep != nil {
		state += fmt.Sprintf(", version step %d", *v.MaxVersionStep)
	}
	return fmt.Sprintf("%s  of %s  (%v, %s)\n", v.ID, v.MemberID, v.Scopes, state)
}

func (a *app) apikeyCommand() *cobra.Command {
	return cli.Group("apikey", "API keys and the companies they may use",
		a.apikeyCreateCommand(), list(a, "apikey list", "keys", (*query.Store).Keys, a.viewKey), a.apikeyRotateCommand(), a.apikeyRevokeCommand(),
		a.apikeyAffectedCommand(), a.apikeyGrantCommand())
}

func (a *app) apikeyCreateCommand() *cobra.Command {
	v, organization := a.organizationVerb("apikey create")
	create := domain.CreateKey{}
	member := v.Flags().String("member", "", "id (usr_…) or address of the member")
	v.check(func() (err error) {
		create.Member, create.Email, err = readMember(*member)
		return err
	})
	v.scopes(&create.Scopes, nil, "scopes, separated by commas")
	v.lifetime(&create.Lifetime, "lifetime in days or hours, from 1h to 730d")
	v.keyLimits(&create)
	cli.Require(v.Command, "member", "scopes")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		create.Origin = ledger.Origin(a.App, *organization)
		c, text := domain.NewCreateKey(create, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		view := a.viewKey(query.UsedKey{APIKey: c.Outcome})
		view.Key = text
		return v.print(view, view.line()+text+"\n")
	})
}

// keyLimits adds the flags that narrow what a key may declare and from where it may act.
func (v *verb) keyLimits(to *domain.CreateKey) {
	source := v.Flags().String("source", "", "the only source that the key may declare (default: any)")
	network := v.Flags().String("network", "", "network (CIDR) or address that the key's requests must come from (default: any)")
	step := v.Flags().Int32("max-version-step", 0, "how far a new version may be above the document's highest (default: any)")
	given := v.Flags().Changed
	v.must("--source: it "+domain.ReferenceRule, func() bool { return !given("source") || domain.ValidReference(*source) })
	v.must("--max-version-step must be a whole number of at least 1", func() bool { return !given("max-version-step") || *step >= 1 })
	v.check(func() (err error) {
		if given("source") {
			to.Source = source
		}
		if given("max-version-step") {
			to.MaxVersionStep = step
		}
		if given("network") {
			if *network, err = domain.ParseNetwork(*network); err != nil {
				return fmt.Errorf("--network: %w", err)
			}
			to.Network = network
		}
		return nil
	})
}

// scopes adds the flag of that name.
func (v *verb) scopes(to *[]domain.Scope, unless []string, usage string) {
	texts := v.Flags().StringSlice("scopes", unless, usage)
	v.check(func() error {
		for _, text := range *texts {
			scope := domain.Scope(strings.TrimSpace(text))
			if !slices.Contains(domain.Scopes(), scope) {
				return fmt.Errorf("--scopes: %q is no scope; there are %v", text, domain.Scopes())
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
		return 0, errors.New("--expires must be a lifetime from 1h to 730d, such as 90d or 12h")
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
		return 0, errors.New("it must be in days or hours")
	}
	return time.Duration(n) * unit, nil
}

// RotationView is the successor, as apikey create shows a key, with what became of the former one.
type RotationView struct {
	KeyView
	FormerKey KeyView  `json:"formerKey"`
	GrantedTo []string `json:"grantedTo"` // companies whose grants were copied
}

func (a *app) apikeyRotateCommand() *cobra.Command {
	v := a.ledgerVerb("apikey rotate")
	rotate := domain.RotateKey{}
	overlap := v.Flags().String("overlap", "24h", "how long the former key goes on working, in days or hours, from 0h to 30d")
	v.Flags().BoolVar(&rotate.CopyGrants, "copy-grants", false, "grant the successor every company of the former key")
	v.lifetime(&rotate.Lifetime, "lifetime of the successor in days or hours, from 1h to 730d")
	v.check(func() (err error) {
		if rotate.Overlap, err = readSpan(*overlap); err != nil || rotate.Overlap > domain.MaxKeyOverlap {
			return errors.New("--overlap must be a span from 0h to 30d, such as 24h or 7d")
		}
		return nil
	})
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.UsedKey) error {
		rotate.Origin, rotate.Key = ledger.Origin(a.App, key.Organization), key.ID
		c, text := domain.NewRotateKey(rotate, a.Now())
		if err := l.Do(ctx, c); err != nil {
			return err
		}
		view := RotationView{
			KeyView: a.viewKey(query.UsedKey{APIKey: c.Outcome.Key}), GrantedTo: texts(c.Outcome.Granted),
			FormerKey: a.viewKey(query.UsedKey{APIKey: c.Outcome.Former, LastUsedAt: key.LastUsedAt}),
		}
		view.Key = text
		grants := fmt.Sprintf("%d grants were copied\n", len(view.GrantedTo))
		if !rotate.CopyGrants {
			grants = "no grant was copied: integrity apikey grant " + view.ID + " --company REFERENCE\n"
		}
		return v.print(view, view.line()+"former key: "+view.FormerKey.line()+grants+text+"\n")
	})
}

func (a *app) apikeyRevokeCommand() *cobra.Command {
	v := a.ledgerVerb("apikey revoke")
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.UsedKey) error {
		revoke := &domain.RevokeKey{Origin: ledger.Origin(a.App, key.Organization), Key: key.ID}
		return v.changes(ctx, l, revoke, func() shown { return a.viewKey(query.UsedKey{APIKey: revoke.Outcome, LastUsedAt: key.LastUsedAt}) })
	})
}

func (a *app) apikeyGrantCommand() *cobra.Command {
	v := a.ledgerVerb("apikey grant")
	reference := v.Flags().String("company", "", "reference of an existing company of the key's organization")
	take := v.Flags().Bool("revoke", false, "take the grant back")
	cli.Require(v.Command, "company")
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.UsedKey) error {
		company, err := l.Store.CompanyByReference(ctx, key.Organization, *reference)
		if err != nil {
			return fmt.Errorf("%w Create it with: integrity company create REFERENCE --organization %s", err, key.Organization)
		}
		grant := &domain.SetAccess{Origin: ledger.Origin(a.App, key.Organization), Company: company.ID, Key: key.ID, Enabled: !*take}
		if err := l.Do(ctx, grant); err != nil {
			return err
		}
		text := "%s may use %s\n"
		if *take {
			text = "%s may no longer use %s\n"
		}
		return v.print(wire.KeyAccess{
			CompanyID: company.ID.String(), KeyID: key.ID.String(), Enabled: !*take, UpdatedAt: cli.TimeText(grant.UpdatedAt),
		}, fmt.Sprintf(text, key.ID, company.ID))
	})
}

func (a *app) apikeyAffectedCommand() *cobra.Command {
	v := a.ledgerVerb("apikey affected")
	v.describeJSON("print JSON, one object a line")
	return v.onKey(func(ctx context.Context, l *ledger.Opened, key query.UsedKey) error {
		actor := key.ID.String()
		_, err := v.printAffected(ctx, l, []domain.Shard{key.Organization.Shard()}, func(e *domain.Event) bool { return e.Actor == actor })
		return err
	})
}
