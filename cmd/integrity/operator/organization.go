package operator

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/projections/query"
)

// OrganizationView is an organization in JSON output.
type OrganizationView struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	Plan           string `json:"plan"`
	Internal       bool   `json:"internal"`
	PerMinuteLimit int    `json:"perMinuteLimit"`
	// Unfinalized counts versions that are reserved but not registered.
	Unfinalized      int    `json:"unfinalized"`
	UnfinalizedLimit int    `json:"unfinalizedLimit"`
	CreatedAt        string `json:"createdAt"`
}

func viewOrganization(l *ledger.Opened, o query.NamedOrganization) OrganizationView {
	return OrganizationView{
		ID: o.ID.String(), Name: o.Name, Plan: o.Plan, Internal: o.Internal,
		PerMinuteLimit: l.Store.Plans.PerMinute(o.Plan, o.PerMinute), Unfinalized: o.Unfinalized,
		UnfinalizedLimit: o.UnfinalizedMost(), CreatedAt: cli.TimeText(o.CreatedAt),
	}
}

func (v OrganizationView) line() say.Phrase {
	var internal text
	if v.Internal {
		internal.Sayf(", internal")
	}
	return say.Sentencef(
		"%s  %s  (plan %s%s, %d requests a minute, since %s)\n", v.ID, cli.Visible(v.Name), v.Plan, internal,
		v.PerMinuteLimit, v.CreatedAt,
	)
}

func (a organizations) organizationCommand() *cobra.Command {
	return cli.Group("organization", "Organizations and their plans", a.organizationCreateCommand(),
		a.organizationListCommand(), a.organizationPlanCommand(),
		a.organizationLimitsCommand(), a.organizationRetentionCommand(), a.organizationCreditsCommand(),
		a.organizationBackfillCommand(),
		a.organizationEraseCommand(),
		a.actsCommand())
}

// planFlags are the flags that set an organization's plan and limits.
type planFlags struct {
	plan      string
	internal  bool
	perMinute ownLimit
}

func (f *planFlags) add(c *cobra.Command) {
	c.Flags().StringVar(
		&f.plan, "plan", "", "name of a plan in the plan table: gratis, pro, escala or internal",
	)
	c.Flags().BoolVar(
		&f.internal, "internal", false,
		"make this an internal organization of the operator, without a quota of new versions (implied by the plan internal)",
	)
	c.Flags().Var(&f.perMinute, "per-minute", "requests per minute, instead of the plan's; \"default\" restores the "+
		"plan's")
}

// ownLimit is the value of a flag that sets one organization's limit, or removes it with "default".
type ownLimit struct{ limit *int32 }

const ownLimitDefault = "default"

func (l *ownLimit) Type() string { return "number" }

func (l *ownLimit) String() string {
	if l.limit == nil {
		return ""
	}
	return strconv.Itoa(int(*l.limit))
}

func (l *ownLimit) Set(text string) error {
	if text == ownLimitDefault {
		l.limit = nil
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return say.Errorf("must be %s, or a number from 1 to %d", ownLimitDefault, math.MaxInt32)
	}
	l.limit = new(int32(n)) // the ledger itself rejects values that are too high or low
	return nil
}

func (a organizations) organizationCreateCommand() *cobra.Command {
	v := a.ledgerVerb("organization create")
	var flags planFlags
	flags.add(v.Command)
	cli.Require(v.Command, "plan")
	var name string
	v.check(func() error {
		if name = strings.TrimSpace(v.args[0]); !domain.ValidOrganizationName(name) {
			return say.Errorf("NAME " + domain.OrganizationNameRule)
		}
		return nil
	})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		internal := flags.internal || flags.plan == domain.InternalPlan
		id, err := CreateOrganization(ctx, a.App, l.Ledger, l.Store, name, flags.plan, internal, flags.perMinute.limit)
		if err != nil {
			return err
		}
		return v.showOrganization(ctx, l, id)
	})
}

// CreateOrganization creates an organization without members.
func CreateOrganization(
	ctx context.Context, a *cli.App, to *eventstore.Ledger, store *query.Store, name, plan string, internal bool,
	perMinute *int32,
) (domain.OrganizationID, error) {
	id, err := store.NewOrganizationID(ctx, a.Now())
	if err != nil {
		return id, err
	}
	return id, to.Do(
		ctx,
		&domain.CreateOrganization{
			Origin: ledger.Origin(a, id), Name: name, Plan: plan, Internal: internal, PerMinute: perMinute,
		},
	)
}

func (v *verb) showOrganization(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
	o, err := l.Store.Organization(ctx, id)
	if err != nil {
		return err
	}
	return v.show(viewOrganization(l, o))
}

func (a organizations) organizationListCommand() *cobra.Command {
	v := a.ledgerVerb("organization list")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		all, err := l.Store.Organizations(ctx)
		if err != nil {
			return err
		}
		return showAll(v, "organizations", all, func(o query.NamedOrganization) OrganizationView {
			return viewOrganization(l, o)
		})
	})
}

func (a organizations) organizationPlanCommand() *cobra.Command {
	v := a.ledgerVerb("organization plan")
	var flags planFlags
	flags.add(v.Command)
	v.MarkFlagsOneRequired("plan", "internal", "per-minute")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		if err := l.Do(ctx, &domain.ChangePlan{
			Origin: ledger.Origin(a.App, id), Plan: flags.plan, Internal: flags.internal,
			KeepInternal: !v.Flags().Changed("internal"),
			PerMinute:    flags.perMinute.limit, KeepPerMinute: !v.Flags().Changed("per-minute"),
		}); err != nil {
			return err
		}
		return v.showOrganization(ctx, l, id)
	})
}

func (a organizations) organizationLimitsCommand() *cobra.Command {
	v := a.ledgerVerb("organization limits")
	cli.Fill(v.Command, domain.MaxUnfinalized)
	var unfinalized ownLimit
	v.Flags().Var(
		&unfinalized, "unfinalized",
		"how many versions may be reserved but not registered, expired ones included; \"default\" restores the ledger's "+
			"limit",
	)
	cli.Require(v.Command, "unfinalized")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		if err := l.Do(
			ctx, &domain.ChangeLimits{Origin: ledger.Origin(a.App, id), Unfinalized: unfinalized.limit},
		); err != nil {
			return err
		}
		return v.showOrganization(ctx, l, id)
	})
}

func (a organizations) organizationRetentionCommand() *cobra.Command {
	v := a.ledgerVerb("organization retention")
	keep := v.Flags().String("keep", "", "none, or days:N with N from 1 to 3650")
	cli.Require(v.Command, "keep")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		days, err := parseRetention(*keep)
		if err != nil {
			return err
		}
		if err := l.Do(ctx, &domain.ChangeRetention{Origin: ledger.Origin(a.App, id), Days: days}); err != nil {
			return err
		}
		return v.print(struct {
			ID        string `json:"id"`
			Retention string `json:"retention"`
		}{id.String(), *keep}, say.Sentencef("%s keeps bytes: %s\n", id, *keep))
	})
}

func parseRetention(text string) (int32, error) {
	if text == "none" {
		return 0, nil
	}
	number, ok := strings.CutPrefix(text, "days:")
	days, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil || days < 1 || days > domain.MaxRetentionDays {
		return 0, say.Errorf("--keep must be none, or days:N with N from 1 to %d", domain.MaxRetentionDays)
	}
	return int32(days), nil
}

func (a organizations) organizationCreditsCommand() *cobra.Command {
	v := a.ledgerVerb("organization credits add")
	files := v.Flags().Int64("files", 0, "registrations in the pack")
	cli.Require(v.Command, "files")
	return cli.Group("credits", "File credits of an organization",
		v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
			pack := &domain.AddCredits{Origin: ledger.Origin(a.App, id), Credits: *files}
			if err := l.Do(ctx, pack); err != nil {
				return err
			}
			return v.print(struct {
				ID      string `json:"id"`
				Added   int64  `json:"added"`
				Balance int64  `json:"balance"`
			}{id.String(), *files, pack.Balance}, say.Sentencef("%s has %d file credits\n", id, pack.Balance))
		}))
}

func (a organizations) organizationBackfillCommand() *cobra.Command {
	v := a.ledgerVerb("organization backfill")
	var versions *int64
	v.Flags().Func("versions", "versions that are left from now on; 0 takes the rest away", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > domain.MaxBackfill {
			return say.Errorf("must be a number from 0 to %d", domain.MaxBackfill)
		}
		versions = &n
		return nil
	})
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		if _, err := l.Store.Organization(ctx, id); err != nil {
			return err
		}
		if versions != nil {
			change := &domain.ChangeBackfill{Origin: ledger.Origin(a.App, id), Versions: *versions}
			if err := l.Do(ctx, change); err != nil {
				return err
			}
		}
		b, err := l.Store.Backfill(ctx, id)
		if err != nil {
			return err
		}
		return v.print(struct {
			ID        string `json:"id"`
			Versions  int64  `json:"versions"`
			Used      int64  `json:"used"`
			Remaining int64  `json:"remaining"`
		}{id.String(), b.Versions, b.Used, b.Left()}, say.Sentencef(
			"%s has used %d of %d versions of its backfill allowance, %d remaining\n", id, b.Used, b.Versions, b.Left(),
		))
	})
}

func (a organizations) organizationEraseCommand() *cobra.Command {
	v := a.ledgerVerb("organization erase")
	return v.onOrganization(func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error {
		subject := v.args[1]
		if _, err := l.Store.Organization(ctx, id); err != nil {
			return err
		}
		contents, err := l.Store.KeptContents(ctx, id, subject, a.Now())
		if err != nil {
			return err
		}
		erased := 0
		// Texts written during the search are found in the next round; erased texts cannot be published again.
		for asked := false; ; asked = true {
			texts, err := l.Store.TextsOf(ctx, id, subject)
			if err != nil {
				return err
			}
			if len(texts) == 0 && (asked || contents == 0) {
				break
			}
			if err := l.Do(
				ctx,
				&domain.EraseTexts{Origin: ledger.Origin(a.App, id), Subject: subject, Texts: append([]domain.TextID{}, texts...)},
			); err != nil {
				return err
			}
			erased += len(texts)
		}
		if erased == 0 && contents == 0 {
			return cli.Negativef(
				"all texts about this subject in this organization are already erased, and no content is kept",
			)
		}
		lines := text{say.Sentencef("erased %d texts of %s\n", erased, subject)}
		if contents > 0 {
			lines.Sayf("a running service erases the kept bytes of %d versions within a minute\n", contents)
		}
		return v.print(struct {
			ID       string `json:"id"`
			Subject  string `json:"subject"`
			Erased   int    `json:"erased"`
			Contents int    `json:"contents"` // versions whose kept bytes will be erased
		}{id.String(), subject, erased, contents}, lines)
	})
}
