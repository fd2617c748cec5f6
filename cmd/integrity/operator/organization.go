package operator

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/query"
)

// OrganizationView is an organization as JSON shows it.
type OrganizationView struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	Plan           string `json:"plan"`
	Internal       bool   `json:"internal"`
	PerMinuteLimit int    `json:"perMinuteLimit"`
	// Unfinalized counts versions that were reserved and never registered.
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

func (v OrganizationView) line() string {
	internal := ""
	if v.Internal {
		internal = ", internal"
	}
	return fmt.Sprintf("%s  %s  (plan %s%s, %d requests a minute, since %s)\n", v.ID, visible(v.Name), v.Plan, internal, v.PerMinuteLimit, v.CreatedAt)
}

func (a *app) organizationCommand() *cobra.Command {
	return cli.Group("organization", "Organizations and their plans", a.organizationCreateCommand(), a.organizationListCommand(), a.organizationPlanCommand(),
		a.organizationLimitsCommand(), a.organizationRetentionCommand(), a.organizationCreditsCommand(), a.organizationEraseCommand())
}

// planFlags are the three that say what an organization may use.
type planFlags struct {
	plan      string
	internal  bool
	perMinute ownLimit
}

func (f *planFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.plan, "plan", "", "name of the plan, as the table of plans has it: gratis, pro, escala or internal")
	c.Flags().BoolVar(&f.internal, "internal", false, "an internal organization of the operator: no quota of new versions (the plan internal implies it)")
	c.Flags().Var(&f.perMinute, "per-minute", "requests a minute, instead of the plan's; default: the plan's")
}

// ownLimit is a limit that an operator sets for one organization; "default" is nil.
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
		return fmt.Errorf("must be %s, or a number from 1 to %d", ownLimitDefault, math.MaxInt32)
	}
	l.limit = new(int32(n)) // the ledger says from where on
	return nil
}

func (a *app) organizationCreateCommand() *cobra.Command {
	var asJSON bool
	var flags planFlags
	c := &cobra.Command{Use: "create NAME", Short: "Create an organization", Args: cli.Arguments(1, 1)}
	ledger.AddFlags(c)
	flags.add(c)
	cli.Require(c, "plan")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		name := strings.TrimSpace(args[0])
		if name == "" || len([]rune(name)) > 200 || strings.ContainsFunc(name, unicode.IsControl) {
			return fmt.Errorf("NAME must be 1 to 200 characters without controls")
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			internal := flags.internal || flags.plan == domain.InternalPlan
			id, err := CreateOrganization(ctx, a.App, l.Ledger, l.Read, l.Installation, name, flags.plan, internal, flags.perMinute.limit)
			if err != nil {
				return err
			}
			return a.printOrganization(ctx, l, id, asJSON)
		})
	}
	return c
}

// CreateOrganization gives a new organization the shard with the fewest; there it stays.
func CreateOrganization(ctx context.Context, a *cli.App, to *eventstore.Ledger, read *pgxpool.Pool, in eventstore.Installation, name, plan string, internal bool, perMinute *int32) (domain.OrganizationID, error) {
	var none domain.OrganizationID
	shard, err := eventstore.EmptiestShard(ctx, read, in.Shards)
	if err != nil {
		return none, err
	}
	id := domain.NewOrganizationID(a.Now(), shard)
	return id, to.Do(ctx, &domain.CreateOrganization{Origin: ledger.Origin(a, id), Name: name, Plan: plan, Internal: internal, PerMinute: perMinute})
}

func (a *app) printOrganization(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error {
	o, err := l.Store.Organization(ctx, id)
	if err != nil {
		return err
	}
	v := viewOrganization(l, o)
	return a.Print(asJSON, v, v.line())
}

func (a *app) organizationListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "list", Short: "List all organizations", Args: cli.Arguments(0, 0)}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			all, err := l.Store.Organizations(ctx)
			if err != nil {
				return err
			}
			return printList(a, asJSON, "organizations", all, func(o query.NamedOrganization) OrganizationView { return viewOrganization(l, o) }, OrganizationView.line)
		})
	}
	return c
}

func (a *app) organizationPlanCommand() *cobra.Command {
	var asJSON bool
	var flags planFlags
	c := &cobra.Command{
		Use: "plan ID", Short: "Give an organization another plan; versions already used stay used",
		Long: "Changes what is given, and leaves what is not. Versions already used stay used. The plan internal makes an organization\n" +
			"internal until it leaves that plan; --internal makes it so on any plan, and --internal=false takes that back.",
		Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	flags.add(c)
	c.MarkFlagsOneRequired("plan", "internal", "per-minute")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := domain.ParseID[domain.OrganizationID](args[0])
		if err != nil {
			return fmt.Errorf("ID: %w", err)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			change := &domain.ChangePlan{Origin: ledger.Origin(a.App, id), Plan: flags.plan, Internal: flags.internal, PerMinute: flags.perMinute.limit}
			change.KeepInternal, change.KeepPerMinute = !c.Flags().Changed("internal"), !c.Flags().Changed("per-minute")
			if err := l.Do(ctx, change); err != nil {
				return err
			}
			return a.printOrganization(ctx, l, id, asJSON)
		})
	}
	return c
}

func (a *app) organizationLimitsCommand() *cobra.Command {
	var asJSON bool
	var unfinalized ownLimit
	c := &cobra.Command{
		Use: "limits ID", Short: "Set how many reserved versions an organization may leave unregistered",
		Long: fmt.Sprintf("Sets how many versions of an organization may be reserved without ever being registered; %d where nothing was set.\n"+
			"What is reserved already stays reserved.", domain.MaxUnfinalized),
		Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	c.Flags().Var(&unfinalized, "unfinalized", "most versions that are reserved and not registered, expired ones included; default: the ledger's own")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Require(c, "unfinalized")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := domain.ParseID[domain.OrganizationID](args[0])
		if err != nil {
			return fmt.Errorf("ID: %w", err)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			if err := l.Do(ctx, &domain.ChangeLimits{Origin: ledger.Origin(a.App, id), Unfinalized: unfinalized.limit}); err != nil {
				return err
			}
			return a.printOrganization(ctx, l, id, asJSON)
		})
	}
	return c
}

// organizationFlag is the flag that most operator's commands have.
type organizationFlag struct{ text string }

func (f *organizationFlag) add(c *cobra.Command) {
	c.Flags().StringVar(&f.text, "organization", "", "id of the organization (org_…)")
	cli.Require(c, "organization")
}

func (f *organizationFlag) id() (domain.OrganizationID, error) {
	id, err := domain.ParseID[domain.OrganizationID](f.text)
	if err != nil {
		return id, fmt.Errorf("--organization: %w", err)
	}
	return id, nil
}

// organizationList makes c list something of an organization that exists.
func (a *app) organizationList(c *cobra.Command, list func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, asJSON bool) error) *cobra.Command {
	var asJSON bool
	var organization organizationFlag
	ledger.AddFlags(c)
	organization.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		id, err := organization.id()
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			if _, err := l.Store.Organization(ctx, id); err != nil {
				return err
			}
			return list(ctx, l, id, asJSON)
		})
	}
	return c
}

// printList writes {name: [...]}, or a line for each.
func printList[T, V any](a *app, asJSON bool, name string, all []T, view func(T) V, line func(V) string) error {
	views := make([]V, len(all))
	var b strings.Builder
	for i, one := range all {
		views[i] = view(one)
		b.WriteString(line(views[i]))
	}
	return a.Print(asJSON, map[string]any{name: views}, b.String())
}

// visible quotes texts of others that a terminal would not show as they are.
func visible(s string) string {
	if s == "" {
		return "(erased)"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
