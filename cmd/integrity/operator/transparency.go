package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

func (a *app) logCommand() *cobra.Command {
	return cli.Group("log", "The transparency log: its state, its tree derived anew, its way on after a restore",
		a.logStatusCommand(), a.logCheckCommand(), a.logResumeCommand())
}

// LogStatusView is how far the log has come.
type LogStatusView struct {
	Events     int64            `json:"events"`
	Leaves     int64            `json:"leaves"`
	Published  int64            `json:"published"`
	SignedAt   *string          `json:"signedAt"`
	SignedBy   *string          `json:"signedBy"`
	Halted     bool             `json:"halted"`
	Cosigned   map[string]int64 `json:"cosigned"`
	Checkpoint *string          `json:"checkpoint"`
}

func (a *app) logStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "status", Short: "Print how far the transparency log has come, and its last checkpoint",
		Long: "Prints how many events the ledger has, how many leaves the tree and the last checkpoint have, and that checkpoint.\n" +
			"Exit code 1: the log stands still after a restore, until integrity log resume.",
		Args: cli.Arguments(0, 0),
	}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			s, err := transparency.ReadStatus(ctx, l.Read)
			if err != nil {
				return err
			}
			v := LogStatusView{Events: s.Events, Leaves: s.Leaves, Published: s.Published, Halted: s.Halted, Cosigned: s.Cosigned}
			text := fmt.Sprintf("events     %d\nleaves     %d\npublished  %d\n", s.Events, s.Leaves, s.Published)
			if s.Checkpoint != "" {
				at := cli.TimeText(s.SignedAt)
				v.SignedAt, v.SignedBy, v.Checkpoint = &at, &s.SignedBy, &s.Checkpoint
				text += fmt.Sprintf("signed     %s by %s\n\n%s", at, s.SignedBy, s.Checkpoint)
			}
			if s.Halted {
				text += "\nIt STANDS STILL since the database was restored: integrity log resume --help\n"
			}
			if err := a.Print(asJSON, v, text); err != nil {
				return err
			}
			if s.Halted {
				return cli.NegativeError("")
			}
			return nil
		})
	}
	return c
}

func (a *app) logCheckCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "check", Short: "Derive the tree anew from the events and compare it with what is stored",
		Long: "Derives the tree of the transparency log anew from the hashes of the events, in the order in which it took them, and compares\n" +
			"every tile, the root and the last checkpoint with what is stored, in one snapshot, beside a running service. It changes nothing.\n" +
			"Exit code 1: something differs, and the first difference is printed.",
		Args: cli.Arguments(0, 0),
	}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			d, err := transparency.Check(ctx, l.Read, nil)
			if errors.Is(err, transparency.ErrDiffers) {
				return cli.NegativeError(err.Error())
			}
			if err != nil {
				return err
			}
			return a.Print(asJSON, struct {
				Leaves    int64  `json:"leaves"`
				Published int64  `json:"published"`
				Root      string `json:"root"`
			}{d.Leaves, d.Published, d.Root}, fmt.Sprintf("%d leaves, derived anew from the events, agree with the tree; %d of them are published\nroot  %s\n", d.Leaves, d.Published, d.Root))
		})
	}
	return c
}

func (a *app) logResumeCommand() *cobra.Command {
	var published string
	var fork, stage bool
	c := &cobra.Command{
		Use: "resume", Short: "Let the transparency log go on after a restore",
		Long: "After integrity restore the transparency log stands still: if published leaves were lost, going on would publish another history\n" +
			"for the same numbers of leaves. Compare the tree with the newest checkpoint that is known outside: a monitor's state, a\n" +
			"witness, or a copy of /api/public/log/checkpoint from before.\n\n" +
			"  --published FILE   a checkpoint that a trusted log key has signed. Where the tree contains it nothing was lost, and it goes on.\n" +
			"  --fork             published leaves were lost, or nobody has a checkpoint: go on all the same, as another history. Tell your\n" +
			"                     auditors first: their monitors will say that history was rewritten.\n\n" +
			"A fork needs a log key that did not exist before the restore, so that no key ever signs two histories; every other key of the\n" +
			"log is barred for ever, in every process. Three steps:\n\n" +
			"  1. integrity log resume --fork --stage                     makes that key (….next.pem) and has it trusted\n" +
			"  2. integrity keys rotate --transparency-log --activate     after the trusted-keys file went to whoever pins it\n" +
			"  3. integrity log resume --fork                             and SIGHUP to every server\n\n" +
			"The file of --published must be the newest that anybody has: going on where newer ones were lost would sign a second history.",
		Args: cli.Arguments(0, 0),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "TRANSPARENCY_KEY")
	c.Flags().StringVar(&published, "published", "", "file with the newest checkpoint that is known outside")
	c.Flags().BoolVar(&fork, "fork", false, "go on although published leaves were lost")
	c.Flags().BoolVar(&stage, "stage", false, "with --fork: make the log key that the fork needs, and go on later")
	c.MarkFlagsMutuallyExclusive("stage", "published")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		if published == "" && !fork {
			return errors.New("--published FILE or --fork must be given; see integrity log resume --help")
		}
		if stage {
			return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error { return a.stageFork(ctx, &cfg, l) })
		}
		trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
		if err != nil {
			return err
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			name := transparency.LogName(l.Installation.Issuer)
			var known *evidence.Checkpoint
			if published != "" {
				text, err := os.ReadFile(published)
				if err != nil {
					return fmt.Errorf("--published: %w", err)
				}
				opened, err := evidence.OpenCheckpoint(strings.TrimRight(string(text), "\n")+"\n", trusted)
				if err == nil && opened.Origin != name {
					err = errors.New("it is that of " + opened.Origin)
				}
				if err != nil {
					return fmt.Errorf("--published must be a checkpoint of %s, signed by a trusted log key: %w", name, err)
				}
				known = &opened
			}
			signer, noKey := cfg.LogSource().LogSigner(name, trusted)
			others, err := knownLogKeys(&cfg)
			if err != nil {
				return err
			}
			size, lost, err := transparency.Resume(ctx, l.Read, transparency.Resumption{
				Published: known, Fork: fork, Signer: signer, Keys: others.named(name),
			})
			switch {
			case errors.Is(err, transparency.ErrNotHalted), errors.Is(err, transparency.ErrForked), errors.Is(err, transparency.ErrOlder):
				return cli.NegativeError(err.Error())
			case errors.Is(err, transparency.ErrSameKey):
				return cli.NegativeError(strings.TrimSuffix(fmt.Sprintf("%v: make one with integrity log resume --fork --stage, and integrity keys rotate --transparency-log --activate; %v", err, noKey), "; <nil>"))
			case err != nil:
				return err
			case lost:
				return a.Print(false, nil, fmt.Sprintf("the tree goes on from %d leaves as ANOTHER HISTORY than the published one, under the log key %s\n", size, signer.KeyHash))
			}
			return a.Print(false, nil, fmt.Sprintf("nothing that was published is lost: the tree goes on from %d leaves\n", size))
		})
	}
	return c
}

// stageFork makes the log key of a fork and has it trusted. The database knows of the key before any file holds it, so a
// staged key that the database does not know of was not made now.
func (a *app) stageFork(ctx context.Context, cfg *config.Config, l *ledger.Opened) error {
	name := transparency.LogName(l.Installation.Issuer)
	var key evidence.LogKey
	err := cfg.LogSource().Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		next, err := keyfiles.ReadSigner(f.Next)
		if err != nil {
			return nil, err
		}
		staged := next != nil
		if !staged {
			next = evidence.GenerateSigner()
		}
		signer, err := transparency.NewSigner(name, next)
		if err != nil {
			return nil, err
		}
		key = signer.LogKey
		if staged {
			known, err := transparency.KnownKey(ctx, l.Read, key)
			if err != nil {
				return nil, err
			}
			if !known.Made || known.Barred {
				return nil, cli.NegativeError(fmt.Sprintf("the staged log key %s was not made after the restore: remove %s and run this again", key.KeyHash, f.Next))
			}
			return trusted.AddLogKey(key)
		}
		if err := transparency.MakeForkKey(ctx, l.Read, key); err != nil {
			return nil, err
		}
		if err := f.WriteNext(next); err != nil {
			return nil, err
		}
		return trusted.AddLogKey(key)
	})
	if errors.Is(err, transparency.ErrNotHalted) {
		return cli.NegativeError(err.Error())
	}
	if err != nil {
		return err
	}
	return a.Print(false, nil, fmt.Sprintf("staged  %s\nGive the trusted-keys file to whoever pins it, then: integrity keys rotate --transparency-log --activate, integrity log resume --fork, and SIGHUP to every server\n", key.VerifierKey))
}
