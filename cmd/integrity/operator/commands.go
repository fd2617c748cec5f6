// Package operator implements the commands for the operator of the service. They use the service's database, its key
// files or its data directory. For organizations that administer themselves, some commands about API keys and members
// also call the service.
package operator

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

type app struct{ *cli.App }

// The commands of each noun that has many.
type (
	organizations struct{ *app }
	members       struct{ *app }
	apikeys       struct{ *app }
	signingKeys   struct{ *app } // also log keys, and pinned witnesses and authorities
	logs          struct{ *app }
)

// Commands are all of them, in the order in which --help shows them.
func Commands(shared *cli.App) []*cobra.Command {
	a := &app{shared}
	return []*cobra.Command{
		organizations{a}.organizationCommand(),
		members{a}.memberCommand(),
		apikeys{a}.apikeyCommand(),
		a.companyCommand(),
		signingKeys{a}.keysCommand(),
		a.replayCommand(),
		a.auditCommand(),
		a.exportCommand(),
		a.rebuildCommand(),
		logs{a}.logCommand(),
		a.distributeCommand(),
		a.backupCommand(),
		a.restoreCommand(),
		a.doctorCommand(),
		a.topCommand(),
		a.upgradeCommand(),
		a.clockCommand(),
	}
}

// help is what the commands are called, and what --help says of them.
//
//go:embed help.txt
var help string

var manual = sync.OnceValue(func() cli.Manual { return cli.NewManual(help) })

// verb is one command: what its constructor does not say, it has in common with the others.
type verb struct {
	*cobra.Command
	app    *app
	json   bool
	args   []string       // of the run
	checks []func() error // of arguments and flags, in turn, before anything is opened
	// Of commands that ask a service too: its address, how, and the flags that mean the same there.
	url    string
	ask    func(ctx context.Context, service *client.Client) error
	shared []string
}

// verb makes the command that help.txt describes by that name, with the flags of the settings that it needs.
func (a *app) verb(name string, settings ...string) *verb {
	v := &verb{Command: manual().Command(name), app: a}
	config.AddFlags(v.Command, settings...)
	v.Flags().BoolVar(&v.json, "json", false, "print JSON")
	return v
}

// ledgerVerb makes a command that needs no settings but those of the ledger.
func (a *app) ledgerVerb(name string) *verb {
	return a.verb(name, "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE")
}

// organizationVerb makes a command that names its organization with a flag.
func (a *app) organizationVerb(name string) (*verb, *domain.OrganizationID) {
	v := a.ledgerVerb(name)
	return v, v.organization("id of the organization (org_…)", true)
}

// apiVerb makes a command on the database that asks the service of --url in its place, with the key of
// INTEGRITY_API_KEY. Of its other flags only the shared ones mean the same there.
func (a *app) apiVerb(name string, shared ...string) *verb {
	v := a.ledgerVerb(name)
	v.Flags().StringVar(
		&v.url, "url", "",
		"ask the service at this address, with the key of "+config.VariableAPIKey+", in place of the database",
	)
	v.shared = append(shared, "url", "json")
	return v
}

// organizationAPIVerb is apiVerb of a command that names its organization with a flag, which the key does where the
// service is asked.
func (a *app) organizationAPIVerb(name string, shared ...string) (*verb, *domain.OrganizationID) {
	v := a.apiVerb(name, shared...)
	id := v.organization("id of the organization (org_…)", false)
	v.must("name the organization with --organization, or its service with --url", func() bool {
		return v.url != "" || !id.IsZero()
	})
	return v, id
}

// checkShared refuses flags of the database where the service is asked.
func (v *verb) checkShared() (err error) {
	v.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(v.shared, f.Name) {
			err = fmt.Errorf(
				"--%s is for the database; with --url the service is asked, and its key says for which organization and member",
				f.Name,
			)
		}
	})
	return err
}

func (v *verb) askService() error {
	service, err := clientcmd.ConnectTo(v.app.App, v.url)
	if err != nil {
		return err
	}
	defer service.Close()
	return v.ask(v.Context(), service)
}

// describeJSON says what --json prints where that is no single document.
func (v *verb) describeJSON(usage string) { v.Flags().Lookup("json").Usage = usage }

// check adds what must hold of arguments and flags.
func (v *verb) check(holds func() error) { v.checks = append(v.checks, holds) }

// must adds that something must be so, else the command fails with the message.
func (v *verb) must(message string, holds func() bool) {
	v.check(func() error {
		if !holds() {
			return errors.New(message)
		}
		return nil
	})
}

// runs makes the command do that, once its checks have passed.
func (v *verb) runs(do func() error) *cobra.Command {
	v.RunE = func(_ *cobra.Command, args []string) error {
		v.args = args
		if v.url == "" && v.Flags().Changed("url") { // as from a variable that is not set: not the database in its place
			return errors.New("--url must be the address of a service")
		}
		if v.url != "" {
			do = v.askService
			v.checks = append([]func() error{v.checkShared}, v.checks...)
		}
		for _, holds := range v.checks {
			if err := holds(); err != nil {
				return err
			}
		}
		return do()
	}
	return v.Command
}

// onSettings makes the command work with the settings alone.
func (v *verb) onSettings(do func(ctx context.Context, cfg *config.Config) error) *cobra.Command {
	return v.runs(func() error {
		cfg, err := config.Load(v.app.App, v.Command)
		if err != nil {
			return err
		}
		return do(v.Context(), &cfg)
	})
}

// onDatabase makes the command work on the ledger's database, whose schema is the newest.
func (v *verb) onDatabase(
	migrate bool, do func(ctx context.Context, cfg *config.Config, url string) error,
) *cobra.Command {
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		return ledger.WithDatabase(ctx, v.app.App, *cfg, v.app.WarnLog(), v.CommandPath(), migrate,
			func(source connect.Source) error {
				return do(ctx, cfg, source())
			})
	})
}

// onLedger makes the command work on the ledger.
func (v *verb) onLedger(do func(ctx context.Context, l *ledger.Opened) error) *cobra.Command {
	return v.runs(func() error { return ledger.With(v.app.App, v.Command, do) })
}

// onKey makes the command work on the API key that its argument names.
func (v *verb) onKey(do func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error) *cobra.Command {
	id := idArgument(
		v, "KEY_ID: %w (it is not the text of the key; integrity apikey list shows the ids)", domain.ParseID[domain.KeyID],
	)
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		key, err := l.Store.Key(ctx, *id)
		if err != nil {
			return err
		}
		granted, err := l.Store.KeyOf(ctx, key.Organization, key.ID)
		if err != nil {
			return err
		}
		return do(ctx, l, granted)
	})
}

// onOrganization makes the command work on the organization that its first argument names.
func (v *verb) onOrganization(
	do func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error,
) *cobra.Command {
	id := idArgument(v, "ID: %w", domain.ParseID[domain.OrganizationID])
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error { return do(ctx, l, *id) })
}

// idArgument reads the first argument before any other check. It is never quoted: it may be a secret.
func idArgument[I any](v *verb, wrong string, parse func(string) (I, error)) *I {
	id := new(I)
	v.checks = slices.Insert(v.checks, 0, func() (err error) {
		if *id, err = parse(v.args[0]); err != nil {
			err = fmt.Errorf(wrong, err)
		}
		return err
	})
	return id
}

// organization adds the flag of an organization, which is zero where it may be missing and is.
func (v *verb) organization(usage string, required bool) *domain.OrganizationID {
	var id domain.OrganizationID
	text := v.Flags().String("organization", "", usage)
	if required {
		cli.Require(v.Command, "organization")
	}
	v.check(func() (err error) {
		if *text == "" && !required {
			return nil
		}
		if id, err = domain.ParseID[domain.OrganizationID](*text); err != nil {
			err = fmt.Errorf("--organization: %w", err)
		}
		return err
	})
	return &id
}

// shards adds the flags of one organization and of one shard, and answers which shards they leave.
func (v *verb) shards() (only *domain.OrganizationID, left func(l *ledger.Opened) ([]domain.Shard, error)) {
	only = v.organization("only this organization (org_…)", false)
	one := v.Flags().Int64("shard", 0, "only this shard")
	v.MarkFlagsMutuallyExclusive("organization", "shard")
	return only, func(l *ledger.Opened) ([]domain.Shard, error) {
		switch last := int64(l.Installation.Shards) - 1; {
		case !only.IsZero():
			return []domain.Shard{only.Shard()}, nil
		case !v.Flags().Changed("shard"):
			return allShards(l), nil
		case *one < 0 || *one > last:
			return nil, fmt.Errorf("--shard must be a number from 0 to %d", last)
		default:
			return []domain.Shard{domain.Shard(*one)}, nil
		}
	}
}

func allShards(l *ledger.Opened) []domain.Shard {
	shards := make([]domain.Shard, l.Installation.Shards)
	for i := range shards {
		shards[i] = domain.Shard(i)
	}
	return shards
}

// print writes the view with --json, else the text.
func (v *verb) print(view any, text string) error { return v.app.Print(v.json, view, text) }

// shown is a view with the line that shows it where there is no --json.
type shown interface{ line() string }

func (v *verb) show(one shown) error { return v.print(one, one.line()) }

// changes executes a command and shows what came of it.
func (v *verb) changes(ctx context.Context, l *ledger.Opened, c domain.Command, outcome func() shown) error {
	if err := l.Do(ctx, c); err != nil {
		return err
	}
	return v.show(outcome())
}

// texts shows ids or scopes.
func texts[T any](all []T) []string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = fmt.Sprint(one)
	}
	return texts
}

// showAll writes {name: [...]} with --json, else a line for each.
func showAll[T any, V shown](v *verb, name string, all []T, view func(T) V) error {
	views := make([]V, len(all))
	var text strings.Builder
	for i, one := range all {
		views[i] = view(one)
		text.WriteString(views[i].line())
	}
	return v.print(map[string]any{name: views}, text.String())
}

// list makes a command that shows what an organization, which must exist, has.
func list[T any, V shown](
	a *app, command, name string, read func(*query.Store, context.Context, domain.OrganizationID) ([]T, error),
	view func(T) V,
) *cobra.Command {
	v, id := a.organizationVerb(command)
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		if _, err := l.Store.Organization(ctx, *id); err != nil {
			return err
		}
		all, err := read(l.Store, ctx, *id)
		if err != nil {
			return err
		}
		return showAll(v, name, all, view)
	})
}

// apiList is list for a command that asks the service too. Each reads a page after a cursor, and says where the next
// one begins.
func apiList[T any, V shown](
	a *app, command, name string,
	read func(
		ctx context.Context, s *query.Store, id domain.OrganizationID, after string,
	) (page []T, more bool, next string, err error), view func(T) V,
	ask func(ctx context.Context, service *client.Client, after string) (page []V, next wire.Next, err error),
) *cobra.Command {
	v, id := a.organizationAPIVerb(command)
	v.ask = func(ctx context.Context, service *client.Client) error {
		var all []V
		err := client.Walk(func(after string) (wire.Next, error) {
			page, next, err := ask(ctx, service, after)
			all = append(all, page...)
			return next, err
		})
		if err != nil {
			return clientcmd.Refusal(err)
		}
		return showAll(v, name, all, func(one V) V { return one })
	}
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		if _, err := l.Store.Organization(ctx, *id); err != nil {
			return err
		}
		var all []T
		for after, more := "", true; more; {
			page, further, next, err := read(ctx, l.Store, *id, after)
			if err != nil {
				return err
			}
			all, more, after = append(all, page...), further, next
		}
		return showAll(v, name, all, view)
	})
}

// each views all of a list.
func each[T, V any](all []T, view func(T) V) []V {
	views := make([]V, len(all))
	for i, one := range all {
		views[i] = view(one)
	}
	return views
}
