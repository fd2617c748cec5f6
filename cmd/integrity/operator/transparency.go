package operator

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

func (a logs) logCommand() *cobra.Command {
	return cli.Group("log",
		"The transparency log: show its state, check its tree, resume it after a restore; list other logs that are "+
			"cosigned here",
		a.logStatusCommand(), a.logCheckCommand(), a.logResumeCommand(), a.logCosignedCommand())
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
	Timestamps []StampView      `json:"timestamps"`
	Checkpoint *string          `json:"checkpoint"`
	// OnlyOperator means that no witness other than this installation and no timestamp authority is configured and pinned.
	OnlyOperator bool `json:"onlyOperator"`
	// KeysPublished means that the log contains the trusted keys as they are now.
	KeysPublished bool `json:"keysPublished"`
}

func (a logs) logStatusCommand() *cobra.Command {
	v := a.verb("log status", "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE", "TRUSTED_KEYS")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		s, err := transparency.ReadStatus(ctx, l.Read)
		if err != nil {
			return err
		}
		stamps, stamped, err := a.stampViews(ctx, l)
		if err != nil {
			return err
		}
		alone, err := onlyOperator(l.Config)
		if err != nil {
			return err
		}
		trusted, err := trustedOrNone(l.Config)
		if err != nil {
			return err
		}
		unpublished, err := unpublished(ctx, l.Read, l.Installation.Issuer, trusted)
		if err != nil {
			return err
		}
		view := LogStatusView{
			OnlyOperator: alone, KeysPublished: unpublished.Format == "",
			Events: s.Events, Leaves: s.Leaves, Published: s.Published, Halted: s.Halted, Cosigned: s.Cosigned,
			Timestamps: stamps,
		}
		lines := text{
			say.Sentencef("events     %d\nleaves     %d\npublished  %d\n%s", s.Events, s.Leaves, s.Published, stamped),
		}
		if alone {
			lines.Sayf("WARNING: only this service vouches for its records: no witness other than itself and no timestamp " +
				"authority is both configured and pinned; see the operators' manual, Independence\n")
		}
		if !view.KeysPublished && l.Config.Transparency {
			lines.Sayf("WARNING: %s: integrity keys publish\n", unpublished)
		}
		if s.Checkpoint != "" {
			at := cli.TimeText(s.SignedAt)
			view.SignedAt, view.SignedBy, view.Checkpoint = &at, &s.SignedBy, &s.Checkpoint
			lines.Sayf("signed     %s by %s\n\n%s", at, s.SignedBy, s.Checkpoint)
		}
		if s.Halted {
			lines.Sayf("\nThe log is STOPPED since the database was restored: integrity log resume --help\n")
			err = cli.NegativeError("")
		}
		return cmp.Or(v.print(view, lines), err)
	})
}

func (a logs) logCheckCommand() *cobra.Command {
	v := a.ledgerVerb("log check")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		d, err := transparency.Check(ctx, l.Read, nil)
		if errors.Is(err, transparency.ErrDiffers) {
			return cli.Negative(err)
		}
		if err != nil {
			return err
		}
		trusted, err := trustedOrNone(l.Config)
		if err != nil {
			return err
		}
		var signature auditView
		note, err := (&transparency.Reader{Pool: l.Read}).Checkpoint(ctx)
		switch {
		case err == nil:
			signature.checkpoint("transparency_checkpoint", note, trusted)
		case !errors.Is(err, transparency.ErrNoCheckpoint):
			return err
		}
		var wrong []error
		for _, f := range signature.Findings {
			wrong = append(wrong, say.Errorf("%s", visible{f.Said()}))
		}
		stamps, err := transparency.CheckStamps(ctx, l.Read, trusted, func(s transparency.Stamp, fault error) {
			wrong = append(wrong, say.Errorf("the token of %s for %d leaves: %w", s.Authority, s.TreeSize, fault))
		})
		if err != nil {
			return err
		}
		if wrong != nil {
			return cli.Negative(errors.Join(wrong...))
		}
		var lines text
		lines.Sayf(
			"%d leaves, derived again from the events, agree with the tree; %d of them are published\nroot  %s\n%d tokens of "+
				"time-stamping authorities agree with it\n",
			d.Leaves, d.Published, d.Root, stamps.Tokens,
		)
		for _, n := range signature.NotChecked {
			lines.Sayf("not checked: %s\n", n)
		}
		if stamps.Unpinned != nil {
			lines.Sayf(
				"not checked: who signed the tokens of %s, under whose names the trusted keys pin no certificate\n",
				strings.Join(stamps.Unpinned, ", "),
			)
		}
		return v.print(struct {
			Leaves     int64          `json:"leaves"`
			Published  int64          `json:"published"`
			Root       string         `json:"root"`
			Tokens     int64          `json:"tokens"`
			Unpinned   []string       `json:"unpinned"`
			NotChecked []say.Sentence `json:"notChecked"`
		}{
			d.Leaves, d.Published, d.Root, stamps.Tokens, append([]string{}, stamps.Unpinned...),
			append([]say.Sentence{}, signature.NotChecked...),
		}, lines)
	})
}

func (a logs) logResumeCommand() *cobra.Command {
	v := &verb{Command: manual().Command("log resume"), app: a.app}
	config.AddFlags(v.Command, "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "TRANSPARENCY_KEY", "WITNESSES")
	published := v.Flags().String("published", "", "file with the newest published checkpoint that you can find")
	fork := v.Flags().Bool("fork", false, "resume although published leaves were lost")
	stage := v.Flags().Bool("stage", false, "with --fork: only create the log key that the fork needs")
	v.MarkFlagsMutuallyExclusive("stage", "published")
	v.must("--published FILE or --fork must be given; see integrity log resume --help", func() bool {
		return *published != "" || *fork
	})
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		if *stage {
			return ledger.With(a.App, v.Command, a.stageFork)
		}
		// Read the keys before opening the ledger, because opening creates a missing ledger.
		trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
		if err != nil {
			return err
		}
		witnesses, err := cfg.WitnessList()
		if err != nil {
			return err
		}
		return ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
			name := evidence.LogName(l.Installation.Issuer)
			known, claimed, err := publishedCheckpoint(*published, name, trusted, *fork)
			if err != nil {
				return err
			}
			signer, noKey := cfg.LogSource().LogSigner(name, trusted)
			others, err := knownLogKeys(cfg)
			if err != nil {
				return err
			}
			kept, err := keyfiles.NewSignedHead(cfg.DataDir, l.Installation.ID()).Read(trusted, 0)
			if err != nil && !*fork {
				return err
			}
			size, lost, err := transparency.Resume(ctx, l.Read, transparency.Resumption{
				Published: known, Kept: kept, Fork: *fork, Signer: signer, Keys: append(others.named(name), claimed...),
				Witnesses: witnesses,
				Unasked: func(witness string, err error) {
					a.tell("could not ask the witness %s what it has seen: %v", witness, err)
				},
			})
			switch {
			case errors.Is(err, transparency.ErrNotHalted), errors.Is(err, transparency.ErrForked),
				errors.Is(err, transparency.ErrNotNewest):
				return cli.Negative(err)
			case errors.Is(err, transparency.ErrUnasked):
				return cli.Negative(say.Errorf("%w, or take it out of INTEGRITY_WITNESSES if it is gone for good", err))
			case errors.Is(err, transparency.ErrSameKey):
				err = say.Errorf("%w: create one with integrity log resume --fork --stage, and integrity keys rotate "+
					"--transparency-log --activate", err)
				if noKey != nil {
					err = say.Errorf("%w; %w", err, noKey)
				}
				return cli.Negative(err)
			case err != nil:
				return err
			case lost:
				return v.print(
					nil,
					say.Sentencef(
						"the tree continues from %d leaves as a DIFFERENT HISTORY from the published one, under the log key %s\n", size,
						signer.KeyHash,
					),
				)
			}
			return v.print(nil, say.Sentencef("no published leaf is lost: the tree continues from %d leaves\n", size))
		})
	})
}

// publishedCheckpoint reads a checkpoint from a file, or returns nil without one. For a fork the checkpoint need not be
// signed by a trusted key, because the trusted-keys file may come from the backup. The checkpoint is then nil, and only
// the keys that it names are returned.
func publishedCheckpoint(
	file, name string, trusted *evidence.TrustedKeys, fork bool,
) (known *evidence.Checkpoint, claimed []evidence.LogKey, err error) {
	if file == "" {
		return nil, nil, nil
	}
	raw, err := keyfiles.ReadFile(file)
	if err != nil {
		return nil, nil, say.Errorf("--published: %w", err)
	}
	text := strings.TrimRight(string(raw), "\n") + "\n"
	opened, err := evidence.OpenCheckpoint(text, trusted)
	if errors.Is(err, evidence.ErrRevokedLogKey) { // signatures from before the revocation can still be compared
		err = nil
	}
	unknown := errors.Is(err, evidence.ErrUnknownLogKey)
	if (err == nil || unknown) && opened.Origin != name {
		err, unknown = say.Errorf("its origin is %s", opened.Origin), false
	}
	claimed = transparency.ClaimedKeys(text, name)
	switch {
	case unknown && fork:
		return nil, claimed, nil
	case unknown && len(claimed) > 0:
		err = say.Errorf(
			"%s+%s is not in the logKeys; if the trusted-keys file came from the backup, put the one from before the "+
				"restore in place",
			name, claimed[0].KeyHash,
		)
	}
	if err != nil {
		return nil, nil, say.Errorf("--published must be a checkpoint of %s signed by a trusted log key: %w", name, err)
	}
	return &opened, claimed, nil
}

// stageFork creates the log key of a fork and adds it to the trusted keys.
func (a logs) stageFork(ctx context.Context, l *ledger.Opened) error {
	key, err := stageLogKey(l.Config, evidence.LogName(l.Installation.Issuer), nil,
		func(key evidence.LogKey, staged bool) error {
			if !staged {
				return transparency.MakeForkKey(ctx, l.Read, key)
			}
			known, err := transparency.KnownKey(ctx, l.Read, key)
			if err == nil && (!known.Made || known.Barred) {
				err = notCreatedHere(key, l.Config, "after the restore")
			}
			return err
		})
	if errors.Is(err, transparency.ErrNotHalted) {
		return cli.Negative(err)
	}
	if err != nil {
		return err
	}
	return a.Print(
		false, nil,
		a.Sayf(
			"staged  %s\nDistribute the trusted-keys file, then: integrity keys rotate --transparency-log "+
				"--activate, integrity log resume --fork, and SIGHUP to every server\n",
			key.VerifierKey,
		),
	)
}

func notCreatedHere(key evidence.LogKey, c *config.Config, when say.Word) error {
	return cli.Negativef(
		"the staged log key %s was not created %s: remove %s and run this again", key.KeyHash, when,
		c.LogSource().StagedPath(),
	)
}

// recordedLogKey records a rotated log key in the ledger, if there is one yet. The ledger's issuer then names it.
func (a signingKeys) recordedLogKey(
	v *verb, cfg *config.Config, kept *sshagent.Address,
) (key evidence.LogKey, err error) {
	if cfg.DatabaseURL == "" && !keyfiles.Exists(cfg.InDataDir("pgdata")) {
		name, err := logName(cfg)
		if err != nil {
			return key, err
		}
		return stageLogKey(cfg, name, kept, func(evidence.LogKey, bool) error { return nil })
	}
	err = ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
		name := evidence.LogName(l.Installation.Issuer)
		key, err = stageLogKey(cfg, name, kept, func(key evidence.LogKey, staged bool) error {
			if !staged {
				// An agent's key may be recorded already, if the command was interrupted.
				if err := transparency.RecordKey(ctx, l.Read, key); kept == nil || !errors.Is(err, transparency.ErrKnownKey) {
					return err
				}
			}
			known, err := transparency.KnownKey(ctx, l.Read, key)
			if err != nil || known.Known && !known.Barred {
				return err
			}
			forked, err := transparency.Forked(ctx, l.Read)
			if err == nil && (known.Barred || forked) {
				err = notCreatedHere(key, cfg, "by this ledger since it was restored")
			}
			return err
		})
		return err
	})
	return key, err
}

// stageLogKey creates the log's next key, unless one is staged, and adds it to the trusted keys. If kept is not nil,
// that key of an agent is the next one. record runs before the new key is written to a file, so a staged key that the
// database does not know was created elsewhere.
func stageLogKey(
	cfg *config.Config, name string, kept *sshagent.Address, record func(key evidence.LogKey, staged bool) error,
) (key evidence.LogKey, err error) {
	err = cfg.LogSource().Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		next, stage, err := nextKey(cfg.LogSource(), f, kept)
		if err != nil {
			return nil, err
		}
		signer, err := transparency.NewSigner(name, next)
		if err != nil {
			return nil, err
		}
		key = signer.LogKey
		if err := record(key, stage == nil); err != nil {
			return nil, err
		}
		changed, err := trusted.AddLogKey(key)
		if err == nil && stage != nil {
			err = stage()
		}
		return changed, err
	})
	return key, err
}
