// Package operator implements the commands for operators of the service. They use the service's database, key files or
// data directory. Some commands about API keys and members can call the service's API instead, for organizations that
// administer themselves.
package operator

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

type app struct{ *cli.App }

// Each type groups the commands of one noun.
type (
	organizations struct{ *app }
	members       struct{ *app }
	apikeys       struct{ *app }
	signingKeys   struct{ *app } // also log keys, pinned witnesses and pinned authorities
	logs          struct{ *app }
)

// Commands returns all commands, in the order in which --help shows them.
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
		a.healCommand(),
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

// help holds the commands' names and help texts.
//
//go:embed help.txt
var help string

//go:embed help.es.txt
var spanishHelp string

var manual = sync.OnceValue(func() cli.Manual { return cli.NewManual(help).In(spanishHelp) })

// verb is a command under construction. Its methods add flags, checks and the action.
type verb struct {
	*cobra.Command
	app    *app
	json   bool
	args   []string       // arguments of the current run
	checks []func() error // run in order before anything is opened
	// Set for commands that can call the service: its address, the function that calls it, and the flags that apply to
	// both ways.
	url    string
	ask    func(ctx context.Context, service *client.Client) error
	shared []string
}

// verb creates the command that help.txt describes under this name, with the flags of the given settings.
func (a *app) verb(name string, settings ...string) *verb {
	v := &verb{Command: manual().Command(name), app: a}
	config.AddFlags(v.Command, settings...)
	v.Flags().BoolVar(&v.json, "json", false, "print JSON")
	return v
}

// ledgerVerb creates a command that needs only the ledger's settings.
func (a *app) ledgerVerb(name string) *verb {
	return a.verb(name, "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE")
}

// organizationVerb creates a command with the flag --organization.
func (a *app) organizationVerb(name string) (*verb, *domain.OrganizationID) {
	v := a.ledgerVerb(name)
	return v, v.organization("id of the organization (org_…)", true)
}

// apiVerb creates a command that uses the database or, with --url, calls the service with the key in INTEGRITY_API_KEY.
// Only the flags in shared may be combined with --url.
func (a *app) apiVerb(name string, shared ...string) *verb {
	v := a.ledgerVerb(name)
	v.Flags().StringVar(
		&v.url, "url", "",
		"ask the service at this address, with the key of "+config.VariableAPIKey+", instead of using the database",
	)
	v.shared = append(shared, "url", "json")
	return v
}

// organizationAPIVerb is apiVerb with the flag --organization. With --url the key determines the organization.
func (a *app) organizationAPIVerb(name string, shared ...string) (*verb, *domain.OrganizationID) {
	v := a.apiVerb(name, shared...)
	id := v.organization("id of the organization (org_…)", false)
	v.must("give the organization with --organization, or its service with --url", func() bool {
		return v.url != "" || !id.IsZero()
	})
	return v, id
}

// checkShared rejects --url together with flags that only apply to the database.
func (v *verb) checkShared() (err error) {
	v.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(v.shared, f.Name) {
			err = say.Errorf(
				"--%s applies to the database only; with --url the API key determines the organization and the member",
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

// describeJSON changes the usage of --json, for commands that do not print a single document.
func (v *verb) describeJSON(usage string) { v.Flags().Lookup("json").Usage = usage }

// check adds a check of arguments and flags.
func (v *verb) check(holds func() error) { v.checks = append(v.checks, holds) }

// must adds a check that fails with the message unless holds returns true.
func (v *verb) must(message string, holds func() bool) {
	v.check(func() error {
		if !holds() {
			return say.New(message)
		}
		return nil
	})
}

// runs sets the action, which runs after the checks have passed.
func (v *verb) runs(do func() error) *cobra.Command {
	v.RunE = func(_ *cobra.Command, args []string) error {
		v.args = args
		// An empty --url, as from an unset variable, must not fall back to the database.
		if v.url == "" && v.Flags().Changed("url") {
			return say.Errorf("--url must be the address of a service")
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

// onSettings sets an action that needs only the settings.
func (v *verb) onSettings(do func(ctx context.Context, cfg *config.Config) error) *cobra.Command {
	return v.runs(func() error {
		cfg, err := config.Load(v.app.App, v.Command)
		if err != nil {
			return err
		}
		return do(v.Context(), &cfg)
	})
}

// onDatabase sets an action on the ledger's database. It fails unless the schema is current.
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

// onLedger sets an action on the opened ledger.
func (v *verb) onLedger(do func(ctx context.Context, l *ledger.Opened) error) *cobra.Command {
	return v.runs(func() error { return ledger.With(v.app.App, v.Command, do) })
}

// onKey sets an action on the API key in the first argument.
func (v *verb) onKey(do func(ctx context.Context, l *ledger.Opened, key query.GrantedKey) error) *cobra.Command {
	id := idArgument(
		v, "KEY_ID: %w (give the id, not the key's text; integrity apikey list shows the ids)", domain.ParseID[domain.KeyID],
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

// onOrganization sets an action on the organization in the first argument.
func (v *verb) onOrganization(
	do func(ctx context.Context, l *ledger.Opened, id domain.OrganizationID) error,
) *cobra.Command {
	id := idArgument(v, "ID: %w", domain.ParseID[domain.OrganizationID])
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error { return do(ctx, l, *id) })
}

// idArgument parses the first argument before any other check. Its errors never quote the argument, which may be a
// secret.
func idArgument[I any](v *verb, wrong string, parse func(string) (I, error)) *I {
	id := new(I)
	v.checks = slices.Insert(v.checks, 0, func() (err error) {
		if *id, err = parse(v.args[0]); err != nil {
			err = say.Errorf(wrong, err)
		}
		return err
	})
	return id
}

// organization adds the flag --organization. An optional flag that is not given leaves the zero ID.
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
			err = say.Errorf("--organization: %w", err)
		}
		return err
	})
	return &id
}

// shards adds --organization and --shard, and returns a function that selects the shards they leave.
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
			return nil, say.Errorf("--shard must be a number from 0 to %d", last)
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

// print writes the view as JSON if --json was given, else the text.
func (v *verb) print(view any, text say.Phrase) error {
	return v.app.Print(v.json, view, v.app.Say(text))
}

// tell writes a line for people beside the output: progress, or what to do next.
func (a *app) tell(format string, args ...any) {
	_, _ = fmt.Fprintln(a.Errs, a.Say(say.Sentencef(format, args...)))
}

// text is what a command prints for people: phrases, one after another.
type text []say.Phrase

// Sayf adds a sentence.
func (t *text) Sayf(format string, args ...any) { *t = append(*t, say.Sentencef(format, args...)) }

// line adds a sentence and ends the line.
func (t *text) line(format string, args ...any) { t.Sayf("%s\n", say.Sentencef(format, args...)) }

// Say implements say.Phrase.
func (t text) Say(c say.Catalogue) (string, bool) { return say.Join(t, "").Say(c) }

// shown is a view that can print itself as one line of text.
type shown interface{ line() say.Phrase }

func (v *verb) show(one shown) error { return v.print(one, one.line()) }

// changes executes a command and prints the outcome.
func (v *verb) changes(ctx context.Context, l *ledger.Opened, c domain.Command, outcome func() shown) error {
	if err := l.Do(ctx, c); err != nil {
		return err
	}
	return v.show(outcome())
}

// texts converts IDs or scopes to strings.
func texts[T any](all []T) []string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = fmt.Sprint(one)
	}
	return texts
}

// showAll prints {name: [...]} with --json, else one line per element.
func showAll[T any, V shown](v *verb, name string, all []T, view func(T) V) error {
	views := make([]V, len(all))
	var lines text
	for i, one := range all {
		views[i] = view(one)
		lines = append(lines, views[i].line())
	}
	return v.print(map[string]any{name: views}, lines)
}

// list creates a command that lists something an existing organization has.
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

// apiList is list for a command that can also call the service. Both readers return the page after a cursor, and the
// next cursor.
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

// each applies view to every element.
func each[T, V any](all []T, view func(T) V) []V {
	views := make([]V, len(all))
	for i, one := range all {
		views[i] = view(one)
	}
	return views
}
