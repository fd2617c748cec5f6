package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster/connect"
)

// ProcessView is a process that is serving.
type ProcessView struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	StartedAt string `json:"startedAt"`
	// SeenSecondsAgo is the age of the last heartbeat by the database's clock.
	SeenSecondsAgo float64       `json:"seenSecondsAgo"`
	Lacks          []domain.Rule `json:"lacks"` // rules of this program that the process does not know
}

func viewProcess(p eventstore.Process) ProcessView {
	return ProcessView{
		p.Name, p.Version.String(), cli.TimeText(p.StartedAt), p.Seen,
		append([]domain.Rule{}, p.Lacks(eventstore.ThisProgram().RuleNames())...),
	}
}

func (v ProcessView) line() say.Phrase {
	var lacks text
	if len(v.Lacks) > 0 {
		lacks.Sayf("  lacks %s", strings.Join(texts(v.Lacks), ", "))
	}
	return say.Sentencef(
		"process  %s  version %s  since %s  seen %.0f s ago%s\n", v.Name, v.Version, v.StartedAt, v.SeenSecondsAgo, lacks,
	)
}

// RuleView is a rule of this program.
type RuleView struct {
	Name    domain.Rule `json:"name"`
	Since   string      `json:"since"`
	Changes string      `json:"changes"`
	On      bool        `json:"on"`
	// HeldUpBy names the processes that do not know the rule. It is empty for a rule that is on.
	HeldUpBy []string `json:"heldUpBy"`
}

func (v RuleView) line() say.Phrase {
	var state say.Word = "off"
	if v.On {
		state = "on"
	}
	return say.Sentencef("rule     %s  %s  since %s: %s\n", v.Name, state, v.Since, v.Changes)
}

// UpgradeView is how far an upgrade has come.
type UpgradeView struct {
	Version        string        `json:"version"` // this program's version
	MinimumVersion string        `json:"minimumVersion"`
	Rules          []RuleView    `json:"rules"`
	Processes      []ProcessView `json:"processes"`
}

func viewUpgrade(in eventstore.Installation, processes []eventstore.Process) (view UpgradeView, lines text) {
	view = UpgradeView{
		Version: domain.ThisRelease.String(), MinimumVersion: in.Minimum.String(), Rules: []RuleView{},
		Processes: []ProcessView{},
	}
	lines.Sayf("program  version %s; the ledger takes %s or later\n", view.Version, view.MinimumVersion)
	for _, r := range domain.Rules() {
		rule := RuleView{r.Name, r.Since.String(), string(r.Changes), slices.Contains(in.Rules, r.Name), []string{}}
		for _, p := range processes {
			if !rule.On && p.Lacks([]domain.Rule{r.Name}) != nil {
				rule.HeldUpBy = append(rule.HeldUpBy, p.Name)
			}
		}
		view.Rules = append(view.Rules, rule)
		lines = append(lines, rule.line())
	}
	for _, p := range processes {
		view.Processes = append(view.Processes, viewProcess(p))
		lines = append(lines, viewProcess(p).line())
	}
	if len(processes) == 0 {
		lines.Sayf("process  none with a recent heartbeat\n")
	}
	lines.line("%s", next(in, processes))
	return view, lines
}

// next says what an operator does next.
func next(in eventstore.Installation, processes []eventstore.Process) say.Phrase {
	program := eventstore.ThisProgram()
	off := program.RulesOff(in)
	waiting := strings.Join(texts(off), ", ")
	held := eventstore.Behind(processes, off)
	newest := program.Version
	versions := map[domain.Release]bool{}
	for _, p := range processes {
		newest, versions[p.Version] = max(newest, p.Version), true
	}
	switch {
	case newest > program.Version:
		return say.Sentencef(
			"next: ask again with version %s, which a process runs: this program does not know its rules", newest,
		)
	case held != nil:
		return say.Sentencef("next: update or stop %s; then integrity upgrade finish switches on %s", held, waiting)
	case len(off) > 0:
		return say.Sentencef("next: every process is ready: integrity upgrade finish switches on %s, for good", waiting)
	case len(versions) > 1:
		return say.Sentencef("next: restart the processes of the earlier version; no rule waits")
	default:
		return say.Sentencef("next: nothing; no rule waits")
	}
}

func (a *app) upgradeCommand() *cobra.Command {
	status, finish := a.verb("upgrade status", "DATABASE_URL", "DATA_DIR"), a.verb(
		"upgrade finish", "DATABASE_URL", "DATA_DIR",
	)
	return cli.Group("upgrade", "Finish the upgrade to this version",
		status.onDatabase(false, func(ctx context.Context, _ *config.Config, url string) error {
			conn, err := connect.Open(ctx, url)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			in, err := eventstore.ReadInstallation(ctx, conn)
			if err != nil {
				return err
			}
			processes, err := eventstore.Processes(ctx, conn)
			if err != nil {
				return err
			}
			return status.print(viewUpgrade(in, processes))
		}),
		finish.onDatabase(false, func(ctx context.Context, _ *config.Config, url string) error {
			switched, in, err := eventstore.ThisProgram().SwitchOn(ctx, url)
			lagging, lags := errors.AsType[*eventstore.LaggingError](err)
			if lags {
				return cli.Negative(lagging)
			}
			if err != nil {
				return err
			}
			done := say.Sentencef("every rule of this version was already on\n")
			if len(switched) > 0 {
				done = say.Sentencef(
					"switched on: %s; the ledger takes %s or later from now on\n", strings.Join(texts(switched), ", "), in.Minimum,
				)
			}
			return finish.print(struct {
				SwitchedOn     []string `json:"switchedOn"`
				MinimumVersion string   `json:"minimumVersion"`
			}{texts(switched), in.Minimum.String()}, done)
		}),
	)
}

// versions shows which versions are serving and which the ledger accepts.
func (d *doctor) versions(ctx context.Context, conn *pgx.Conn) error {
	const check = "versions"
	in, err := eventstore.ReadInstallation(ctx, conn)
	if err != nil {
		return err
	}
	processes, err := eventstore.Processes(ctx, conn)
	if err != nil {
		return err
	}
	names := map[domain.Release][]string{}
	for _, p := range processes {
		names[p.Version] = append(names[p.Version], p.Name)
	}
	var found []string
	for _, p := range slices.CompactFunc(processes, func(a, b eventstore.Process) bool { return a.Version == b.Version }) {
		found = append(found, fmt.Sprintf("%s (%s)", p.Version, strings.Join(names[p.Version], ", ")))
	}
	serve := say.Sentencef("no process serves")
	if found != nil {
		serve = say.Sentencef("processes serve with %s", strings.Join(found, ", "))
	}
	off := eventstore.ThisProgram().RulesOff(in)
	if len(names) > 1 {
		d.warn(check, serve, say.Sentencef("finish the rolling restart"))
	} else {
		d.ok(check, serve)
	}
	d.every(check, verdict{
		len(off) > 0, stateWarn, say.Sentencef("rules of this version are off: %s", strings.Join(texts(off), ", ")),
		say.Sentencef("integrity upgrade finish, once every process runs this version and will not go back"),
	})
	return nil
}
