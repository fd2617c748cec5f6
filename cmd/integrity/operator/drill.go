package operator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/transparency"
)

// drillStep is one step of the drill.
type drillStep struct {
	Step         say.Word     `json:"step"`
	At           string       `json:"at"` // when the step began
	Milliseconds int64        `json:"milliseconds"`
	Found        say.Sentence `json:"found"`
	Held         bool         `json:"held"`
}

func (s drillStep) line() say.Phrase {
	var mark say.Word = "ok"
	if !s.Held {
		mark = "FAIL"
	}
	return say.Sentencef("%-5s %-27s  %6d ms  %s: %s\n", mark, s.At, s.Milliseconds, s.Step, s.Found)
}

// drill is one drill. Its app and settings belong to the throwaway copy; none of the caller's settings reach it.
type drill struct {
	*app
	cfg *config.Config
	out func(drillStep) error
	// interrupted returns an error once the drill must stop.
	interrupted func() error

	name      string // name of the log
	ledger    *ledger.Opened
	reader    *transparency.Reader
	log       atomic.Pointer[transparency.Signer]
	keys      drillKeys
	authority *drillAuthority
	access    domain.Access
	steps     []drillStep
	over      bool  // a step failed to run; skip the rest
	err       error // from writing the output

	signingLost, logLost             time.Time
	formerSigning                    evidence.PublicKey
	formerLog                        evidence.LogKey
	before, forged, meanwhile, later evidence.Envelope
}

// drillKeys are the keys that a server read at its last SIGHUP.
type drillKeys struct {
	signer  *evidence.Signer
	trusted *evidence.TrustedKeys
}

func (a signingKeys) keysDrillCommand() *cobra.Command {
	v := a.verb("keys drill", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "TRANSPARENCY_KEY", "ISSUER")
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		began := time.Now()
		// Remove the copies however the command ends: they are private keys.
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		dir, err := os.MkdirTemp("", "integrity-drill-")
		if err != nil {
			return say.Errorf("drill: %w", err)
		}
		defer os.RemoveAll(dir)
		d := &drill{app: a.app, interrupted: ctx.Err, out: func(s drillStep) error {
			if v.json {
				return nil
			}
			_, err := io.WriteString(a.Out, a.Say(s.line()))
			return err
		}}
		if err := d.copyFrom(cfg, dir); err != nil {
			return err
		}
		at := d.Now()
		// The commands reach the database by URL, as they do with an external one.
		if err := ledger.WithDatabase(ctx, d.App, *d.cfg, d.WarnLog(), v.CommandPath(), true,
			func(source connect.Source) error {
				d.app = &app{
					&cli.App{
						Out: io.Discard, Errs: io.Discard, Environ: append(d.Environ, config.Prefix+"DATABASE_URL="+source()),
						Now: d.Now,
					},
				}
				return errors.Join(d.run(ctx, at, began), d.err)
			}); err != nil {
			return say.Errorf("drill: %w", err)
		}
		if ctx.Err() != nil {
			return say.Errorf("drill: interrupted; the copies are gone, and nothing of yours was changed")
		}
		held, verdict := true, say.Word("every step held")
		for _, s := range d.steps {
			if !s.Held {
				held, verdict = false, say.Word("A STEP FAILED")
			}
		}
		if err := v.print(struct {
			Steps []drillStep `json:"steps"`
			Held  bool        `json:"held"`
		}{d.steps, held},
			say.Sentencef(
				"%s, in %.1f s; the copies are gone, and nothing of yours was changed\n", verdict, time.Since(began).Seconds(),
			)); err != nil {
			return err
		}
		if !held {
			return cli.NegativeError("")
		}
		return nil
	})
}

// step runs a step and records the result. After a step that could not run, it skips all further steps.
func (d *drill) step(name say.Word, do func() (found say.Sentence, held bool, err error)) {
	d.stepSince(d.Now(), time.Now(), name, do)
}

// stepSince is step for a step that has already begun.
func (d *drill) stepSince(at, began time.Time, name say.Word, do func() (found say.Sentence, held bool, err error)) {
	if d.over || d.err != nil || d.interrupted() != nil {
		return
	}
	found, held, err := do()
	if err != nil {
		found, held, d.over = said(err), false, true
	}
	s := drillStep{name, evidence.FormatTime(at), time.Since(began).Milliseconds(), found, held}
	d.steps = append(d.steps, s)
	d.err = d.out(s)
}

// copyFrom copies the keys into the drill's data directory. It only reads the files of cfg.
func (d *drill) copyFrom(cfg *config.Config, dir string) error {
	_, trusted, why, err := cfg.SigningSource().Read()
	if err == nil && why != nil {
		err = why
	}
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	// If run as root, the copy's PostgreSQL runs as another user, who must be able to traverse the directory.
	if err := errors.Join(
		os.Chmod(dir, 0o711), keyfiles.MakeDataDir(data),
	); err != nil {
		return err
	}
	if _, err := cfg.SigningSource().CopyTo(filepath.Join(data, keyfiles.SigningKeyFile)); err != nil {
		return err
	}
	text, err := keyfiles.ReadFile(cfg.TrustedKeysPath())
	if err == nil {
		err = keyfiles.WriteNew(filepath.Join(data, keyfiles.TrustedKeysFile), text, 0o644)
	}
	if err != nil {
		return say.Errorf("copy the trusted keys: %w", err)
	}
	issuer := "https://drill.example"
	if keys := trusted.LogKeys(); len(keys) > 0 {
		issuer = "https://" + strings.TrimSuffix(keys[len(keys)-1].Name, "/log")
	}
	d.name = evidence.LogName(issuer)
	hasLogKey, err := cfg.LogSource().CopyTo(filepath.Join(data, keyfiles.LogKeyFile))
	if err != nil {
		return err
	}
	environ := []string{config.Prefix + "DATA_DIR=" + data, config.Prefix + "ISSUER=" + issuer}
	for _, entry := range d.Environ {
		if !strings.HasPrefix(entry, config.Prefix) {
			environ = append(environ, entry)
		}
	}
	d.app = &app{&cli.App{Out: io.Discard, Errs: io.Discard, Environ: environ, Now: d.Now}}
	of, err := config.Load(d.App, d.ledgerVerb("log status").Command)
	d.cfg = &of
	if err == nil && !hasLogKey {
		err = d.command("keys", "rotate", "--transparency-log", "--stage")
		if err == nil {
			err = d.command("keys", "rotate", "--transparency-log", "--activate")
		}
	}
	return err
}

// command runs a command of this program on the copy.
func (d *drill) command(args ...string) error {
	var out, errs bytes.Buffer
	a := &app{&cli.App{Out: &out, Errs: &errs, Environ: d.Environ, Now: d.Now}}
	root := &cobra.Command{Use: "integrity", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(a.App)...)
	if code := a.Run(context.Background(), root, args); code != cli.ExitOK {
		return say.Errorf("integrity %s: %s", strings.Join(args, " "), strings.TrimSpace(errs.String()))
	}
	return nil
}

// run opens the copy's ledger and the keeper of its log, and runs the steps.
func (d *drill) run(ctx context.Context, at, began time.Time) error {
	open := d.ledgerVerb("log status").Command
	open.SetContext(ctx)
	return ledger.With(d.App, open, func(ctx context.Context, l *ledger.Opened) error {
		d.ledger = l
		d.reader = &transparency.Reader{Pool: l.Read}
		pool, err := l.Primary.ConsumerPool(ctx, ledger.LogConns)
		if err != nil {
			return err
		}
		defer pool.Close()
		if err := d.hangUp(); err != nil {
			return err
		}
		keeper, err := transparency.New(transparency.Config{
			Pool: pool, Signer: d.log.Load, Now: d.Now, Log: d.WarnLog(), Interval: drillPoll, Poll: drillPoll,
		})
		if err != nil {
			return err
		}
		keeping, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			keeper.Run(keeping)
		}()
		defer func() {
			stop()
			<-ended
		}()
		d.stepSince(at, began, "copies are made", func() (say.Sentence, bool, error) {
			err := d.prepare(ctx)
			return say.Sentencef(
				"signing key %s, log key %s, trusted keys; an empty ledger and a timestamp authority", d.formerSigning.KeyID,
				d.formerLog.KeyHash,
			), true, err
		})
		d.loseSigningKey(ctx)
		d.loseLogKey(ctx)
		return nil
	})
}

// hangUp reads the key files again, as a server does on SIGHUP. Under a revoked key the log signs nothing.
func (d *drill) hangUp() error {
	signer, trusted, _, err := d.cfg.SigningSource().Read()
	if err != nil {
		return err
	}
	d.keys = drillKeys{signer, trusted}
	log, err := d.cfg.LogSource().LogSigner(d.name, trusted)
	d.log.Store(log)
	if errors.Is(err, evidence.ErrRevokedKey) {
		return nil
	}
	return err
}
