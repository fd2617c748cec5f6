package operator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/postgres"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections/session"
)

// BackupView is the result of a backup.
type BackupView struct {
	Backup       string   `json:"backup"`
	FinishedAt   string   `json:"finishedAt"`
	Bytes        int64    `json:"bytes"`
	DataBytes    int64    `json:"dataBytes"`
	Archive      string   `json:"archive"`
	Keys         []string `json:"keys"`
	NotContained []string `json:"notContained"`
}

func (a *app) backupCommand() *cobra.Command {
	v := a.verb("backup", "DATABASE_URL", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "SECRET_KEY", "BLOB_URL")
	var to postgres.BackupConfig
	v.Flags().IntVar(
		&to.Keep, "keep", 0, "keep this many backups, and remove older ones and the WAL that only they need; 0 removes "+
			"nothing",
	)
	withKeys := v.Flags().Bool(
		"with-keys", false, "include the signing key and the webhook secret key, if they are files",
	)
	v.Flags().BoolVar(&to.Move, "move", false, "archive below DIR from now on, instead of the directory used so far")
	v.Flags().BoolVar(
		&to.Replaces, "replaces", false,
		"the data directory last backed up to DIR is stopped for good, and this one replaces it: --keep "+
			"also removes its backups",
	)
	v.must("--keep must be a number of at least 0", func() bool { return to.Keep >= 0 })
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		if cfg.DatabaseURL != "" {
			return say.Errorf(
				"INTEGRITY_DATABASE_URL names an external database: back it up with its own tools, such as pgBackRest or " +
					"pg_basebackup with WAL archiving",
			)
		}
		if _, err := os.Stat(cfg.InDataDir("pgdata")); err != nil {
			return say.Errorf("there is no ledger to back up in %s (--data-dir): %w", cfg.DataDir, err)
		}
		var view BackupView
		to.Dir, to.Also = v.args[0], func(dir string) (err error) {
			view.Keys, view.NotContained, err = copyKeys(cfg, dir, *withKeys)
			return err
		}
		var b postgres.Backup
		if err := ledger.WithServer(ctx, cfg.DataDir, a.WarnLog(), v.CommandPath(),
			func(server *postgres.Server) (err error) {
				b, err = server.Backup(ctx, to)
				return err
			}); err != nil {
			return err
		}
		blobs, err := cfg.BlobStore()
		if err != nil {
			return err
		}
		store, _, _ := strings.Cut(blobs, "?")
		notContained := text{}
		for _, name := range view.NotContained {
			notContained = append(notContained, say.Sentencef("%s", name))
		}
		notContained.Sayf("kept bytes (%s)", store)
		view.NotContained = append(view.NotContained, "kept bytes ("+store+")")
		view.Backup, view.FinishedAt = b.Dir, cli.TimeText(b.FinishedAt)
		view.Bytes, view.DataBytes = b.Bytes, b.DataBytes
		view.Archive = filepath.Join(filepath.Dir(b.Dir), "wal", b.Archive)
		keys := text{say.Sentencef("%s", strings.Join(view.Keys, ", "))}
		if view.Keys == nil {
			keys = text{say.Word("none")}
		}
		return v.print(view, say.Sentencef("%s: %.1f MB, compressed from %.1f MB, verified; it can be restored to any time "+
			"from %s on\nchanges since are archived in %s, each within a minute\nkey files in it: %s\nNOT in it: %s; keep copies of "+
			"those apart\n",
			b.Dir, float64(b.Bytes)/1e6, float64(b.DataBytes)/1e6, view.FinishedAt, view.Archive, keys,
			say.Join(notContained, ", ")))
	})
}

// copyKeys copies the files the ledger needs besides the database. It copies private keys only if secrets is true.
func copyKeys(c *config.Config, dir string, secrets bool) (copied, left []string, err error) {
	for _, file := range []struct {
		name, path string
		secret     bool
	}{
		{keyfiles.TrustedKeysFile, c.TrustedKeysPath(), false},
		{keyfiles.SigningKeyFile, c.SigningSource().Path(), true},
		{keyfiles.LogKeyFile, c.LogSource().Path(), true},
		{keyfiles.SecretKeyFile, c.SecretSource().Path(), true},
	} {
		if file.path == "" || file.secret && !secrets {
			left = append(left, file.name)
			continue
		}
		text, err := keyfiles.ReadFile(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			left = append(left, file.name)
			continue
		}
		if err != nil {
			return nil, nil, say.Errorf("copy %s: %w", file.name, err)
		}
		if err := keyfiles.WriteNew(filepath.Join(dir, file.name), text, 0o600); err != nil {
			return nil, nil, err
		}
		copied = append(copied, file.name)
	}
	return copied, left, nil
}

// RestoredView is the result of a restore.
type RestoredView struct {
	Backup  *string  `json:"backup"`
	To      *string  `json:"to"`
	Issuer  string   `json:"issuer"`
	Shards  int      `json:"shards"`
	Epoch   int64    `json:"epoch"`
	Keys    []string `json:"keys"`
	Missing []string `json:"missing"`
}

func (a *app) restoreCommand() *cobra.Command {
	v := a.verb("restore", "DATABASE_URL", "DATA_DIR", "TRUSTED_KEYS", "TRANSPARENCY_KEY")
	v.Args = cli.Arguments(0, 1)
	to := v.Flags().String(
		"to", "", "restore up to this time, RFC 3339 (2026-11-21T17:30:00Z); by default everything in the archive",
	)
	name := v.Flags().String("backup", "", "the backup to start from (default: the newest before --to)")
	external := v.Flags().Bool(
		"external", false,
		"check a database that other tools restored, or that lost commits in a failover, and raise its epoch",
	)
	v.MarkFlagsMutuallyExclusive("external", "to")
	v.MarkFlagsMutuallyExclusive("external", "backup")
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		var view RestoredView
		finish := func(ctx context.Context, url string) error {
			known, err := knownLogKeys(cfg, v.args...)
			if err != nil {
				return err
			}
			in, err := a.finishRestore(ctx, url, known)
			view.Issuer, view.Shards, view.Epoch = in.Issuer, in.Shards, in.Epoch
			return err
		}
		switch {
		case *external && len(v.args) != 0:
			return say.Errorf("--external takes no DIR")
		case *external && cfg.DatabaseURL == "" && !keyfiles.Exists(cfg.InDataDir("pgdata")):
			return say.Errorf("there is no database in %s (--data-dir), and INTEGRITY_DATABASE_URL names none", cfg.DataDir)
		case *external:
			err := ledger.WithDatabase(ctx, a.App, *cfg, a.WarnLog(), v.CommandPath(), true, func(source connect.Source) error {
				return finish(ctx, source())
			})
			if err != nil {
				return err
			}
			return v.print(view, view.text(say.Sentencef("the database")))
		case len(v.args) != 1:
			return say.Errorf("DIR must be the directory of the backups; see integrity restore --help")
		case cfg.DatabaseURL != "":
			return say.Errorf(
				"INTEGRITY_DATABASE_URL is set: restore that database with its own tools, then run integrity restore --external",
			)
		}
		until, err := a.readPast("--to", *to)
		if err != nil {
			return err
		}
		if *to != "" {
			view.To = to
		}
		b, err := postgres.Restore(ctx, postgres.RestoreConfig{
			Config: postgres.Config{DataDir: cfg.DataDir, Purpose: v.CommandPath(), Wait: ledger.Patience, Log: a.WarnLog()},
			From:   v.args[0], Name: *name, To: until, Finish: finish,
		})
		if err != nil {
			return err
		}
		view.Backup = new(filepath.Base(b.Dir))
		if view.Keys, view.Missing, err = restoreKeys(cfg, b.Dir); err != nil {
			return err
		}
		return v.print(view, view.text(say.Sentencef("%s", cfg.DataDir)))
	})
}

// readPast parses a time in the past from a flag. An empty text gives the zero time.
func (a *app) readPast(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return at, say.Errorf("%s must be a time like 2026-11-21T17:30:00Z", flag)
	}
	if at.After(a.Now()) {
		return at, say.Errorf("%s must be a time in the past", flag)
	}
	return at, nil
}

// finishRestore prepares a restored database for serving. On error the epoch stays as it was.
func (a *app) finishRestore(ctx context.Context, url string, known logKeys) (eventstore.Installation, error) {
	if err := ledger.Migrate(ctx, url); err != nil { // a backup by an older version has an older schema
		return eventstore.Installation{}, err
	}
	pool, err := cluster.At(url).ReadPool(ctx, 1)
	if err != nil {
		return eventstore.Installation{}, err
	}
	defer pool.Close()
	if err := history.CheckHeads(ctx, pool); err != nil {
		if _, contradicts := errors.AsType[history.HeadError](err); contradicts {
			err = say.Errorf("the restored database is damaged: %w", err)
		}
		return eventstore.Installation{}, err
	}
	in, err := eventstore.ReadInstallation(ctx, pool)
	if err != nil {
		return in, err
	}
	// If the command is interrupted between these two steps, it has failed and must be run again. Until then the log is
	// not stopped.
	if err := transparency.Stop(ctx, pool, known.named(evidence.LogName(in.Issuer))); err != nil {
		return in, err
	}
	if err := session.EndSignIns(ctx, pool); err != nil {
		return in, err
	}
	return eventstore.RaiseEpoch(ctx, url, a.Now())
}

// logKeys are log keys. A private key has no name until it is combined with the ledger's issuer.
type logKeys struct {
	public  []evidence.LogKey
	private []*evidence.Signer
}

// named returns all keys as public keys of the log with this name.
func (k logKeys) named(name string) []evidence.LogKey {
	all := slices.Clone(k.public)
	for _, private := range k.private {
		if s, err := transparency.NewSigner(name, private); err == nil {
			all = append(all, s.LogKey)
		}
	}
	return all
}

// knownLogKeys collects the log keys from the data directory, from the configured files, and from every backup in dirs.
// That includes backups newer than the restored one, because all of them predate the restore. An unreadable file is an
// error: it may hold the key that signed the lost checkpoints.
func knownLogKeys(c *config.Config, dirs ...string) (known logKeys, err error) {
	of := c.LogSource()
	public, private := []string{c.TrustedKeysPath()}, []string{of.Path(), of.StagedPath()}
	for _, dir := range dirs {
		backups, err := os.ReadDir(dir)
		if err != nil {
			return known, say.Errorf("look for log keys: %w", err)
		}
		for _, b := range backups {
			public = append(public, filepath.Join(dir, b.Name(), keyfiles.TrustedKeysFile))
			private = append(private, filepath.Join(dir, b.Name(), keyfiles.LogKeyFile))
		}
	}
	for _, path := range public {
		trusted, err := keyfiles.ReadTrusted(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return known, err
		}
		known.public = append(known.public, trusted.LogKeys()...)
	}
	for _, path := range private {
		signer, err := of.ReadSigner(path)
		if err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return known, err
		}
		if signer != nil {
			known.private = append(known.private, signer)
		}
	}
	if of.Path() == "" {
		signer, err := of.Current()
		if err != nil {
			return known, err
		}
		known.private = append(known.private, signer)
	}
	return known, nil
}

// restoreKeys restores the backup's key files that do not exist yet. It returns those that it restored and those that
// are still missing.
func restoreKeys(c *config.Config, from string) (restored, missing []string, err error) {
	for _, file := range []struct {
		name string
		mode fs.FileMode
	}{
		{keyfiles.TrustedKeysFile, 0o644}, {keyfiles.SigningKeyFile, 0o600}, {keyfiles.LogKeyFile, 0o600},
		{keyfiles.SecretKeyFile, 0o600},
	} {
		text, err := keyfiles.ReadFile(filepath.Join(from, file.name))
		if err == nil {
			err = keyfiles.WriteNew(c.InDataDir(file.name), text, file.mode)
		}
		_, present := os.Lstat(c.InDataDir(file.name))
		switch {
		case err == nil:
			restored = append(restored, file.name)
		case present == nil: // a file already there is newer than the backup
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, file.name)
		default:
			return nil, nil, say.Errorf("restore %s: %w", file.name, err)
		}
	}
	return restored, missing, nil
}

func (v *RestoredView) text(where say.Phrase) say.Phrase {
	var b text
	b.Sayf(
		"restored %s: ledger of %s, %d shards, epoch %d; every head agrees with its log\n", where, v.Issuer,
		v.Shards, v.Epoch,
	)
	if v.Keys != nil {
		b.Sayf(
			"keys from the backup: %s; if the trusted-keys file has changed since (a revoked key), replace it with the "+
				"newer one\n",
			strings.Join(v.Keys, ", "),
		)
	}
	if v.Missing != nil {
		b.Sayf("MISSING: put %s in place, unless variables provide these keys\n", strings.Join(v.Missing, ", "))
	}
	b.Sayf("the transparency log is stopped until integrity log resume has compared it with a published " +
		"checkpoint (operators' manual: Disasters, The log after a restore)\n" +
		"next: integrity doctor; integrity rebuild --check; start the service")
	if v.Backup == nil {
		b.Sayf(", unless it runs: a running service continues\n")
	} else {
		b.Sayf("; integrity backup DIR --replaces, because changes are archived only from the next backup on\n" +
			"(if you restored only to test the backup, start no service on it, and do not back it up)\n")
	}
	b.Sayf("feed readers see the new epoch; webhooks and mails queued at the restored time are sent again\n")
	return b
}
