package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/cmd/postgres"
)

// BackupView is what came of a backup.
type BackupView struct {
	Backup       string   `json:"backup"`
	FinishedAt   string   `json:"finishedAt"`
	Bytes        int64    `json:"bytes"`
	Archive      string   `json:"archive"`
	Keys         []string `json:"keys"`
	NotContained []string `json:"notContained"`
}

func (a *app) backupCommand() *cobra.Command {
	var move, replaces, withKeys, asJSON bool
	var keep int
	c := &cobra.Command{
		Use: "backup DIR", Short: "Back up the embedded PostgreSQL, and archive every change from then on",
		Long: "Copies the embedded PostgreSQL into a new directory below DIR, while the service runs, and verifies the copy. From the\n" +
			"first backup on, every change is archived in DIR/wal, at the latest a minute after it was made, also over restarts: the\n" +
			"ledger can be restored to any time since its oldest backup. DIR belongs on another disk, or is copied to another machine.\n\n" +
			"A copy of the trusted-keys file is included. The signing key and the key of webhook secrets are not, unless --with-keys is\n" +
			"given: whoever holds such a backup can sign. Kept bytes (INTEGRITY_BLOB_URL) are never included.\n\n" +
			"A database of INTEGRITY_DATABASE_URL is backed up with its own tools (pgBackRest, or pg_basebackup and WAL archiving).",
		Args: cli.Arguments(1, 1),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "SECRET_KEY", "BLOB_URL")
	c.Flags().IntVar(&keep, "keep", 0, "remove all but this many backups, and the WAL that none of them needs; 0 removes nothing")
	c.Flags().BoolVar(&withKeys, "with-keys", false, "include the signing key and the key of webhook secrets, where they are files")
	c.Flags().BoolVar(&move, "move", false, "archive below DIR from now on, where another directory was used")
	c.Flags().BoolVar(&replaces, "replaces", false, "the data directory that was backed up to DIR last is stopped for ever, and this one has taken its place: --keep removes its backups too")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		if keep < 0 {
			return errors.New("--keep must be a number of at least 0")
		}
		if cfg.DatabaseURL != "" {
			return errors.New("the database of INTEGRITY_DATABASE_URL is not the embedded one: back it up with pgBackRest, or with pg_basebackup and WAL archiving, as its operator")
		}
		if _, err := os.Stat(cfg.InDataDir("pgdata")); err != nil {
			return fmt.Errorf("there is no ledger to back up in %s (--data-dir): %w", cfg.DataDir, err)
		}
		ctx := c.Context()
		log := slog.New(slog.NewTextHandler(a.Errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		server, err := postgres.StartOrAttach(ctx, postgres.Config{DataDir: cfg.DataDir, Log: log, Purpose: c.CommandPath(), Wait: ledger.Patience})
		if err != nil {
			return err
		}
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledger.Closing)
			defer cancel()
			err = errors.Join(err, server.Stop(stopping))
		}()
		var view BackupView
		b, err := server.Backup(ctx, postgres.BackupConfig{
			Dir: args[0], Move: move, Replaces: replaces, Keep: keep,
			Also: func(dir string) error {
				view.Keys, view.NotContained, err = copyKeys(&cfg, dir, withKeys)
				return err
			},
		})
		if err != nil {
			return err
		}
		blobs, err := cfg.BlobStore()
		if err != nil {
			return err
		}
		store, _, _ := strings.Cut(blobs, "?")
		view.NotContained = append(view.NotContained, "kept bytes ("+store+")")
		view.Backup, view.FinishedAt, view.Bytes = b.Dir, cli.TimeText(b.FinishedAt), b.Bytes
		view.Archive = filepath.Join(filepath.Dir(b.Dir), "wal", b.Archive)
		return a.Print(asJSON, view, fmt.Sprintf("%s: %.1f MB, verified; it can be restored to any time from %s on\n"+
			"changes since are archived in %s, each within a minute\nkey files in it: %s\nNOT in it: %s; keep copies of those apart\n",
			b.Dir, float64(b.Bytes)/1e6, view.FinishedAt, view.Archive, cmp.Or(strings.Join(view.Keys, ", "), "none"), strings.Join(view.NotContained, ", ")))
	}
	return c
}

// copyKeys copies what the ledger needs besides the database. Secrets are copied only where that was asked for.
func copyKeys(c *config.Config, dir string, secrets bool) (copied, left []string, err error) {
	for _, file := range []struct {
		name, path string
		secret     bool
	}{
		{keyfiles.TrustedKeysFile, c.TrustedKeysPath(), false},
		{keyfiles.SigningKeyFile, c.SigningSource().Path(), true},
		{keyfiles.LogKeyFile, c.LogSource().Path(), true},
		{keyfiles.SecretKeyFile, c.SecretKeyPath(), true},
	} {
		if file.path == "" || file.secret && !secrets {
			left = append(left, file.name)
			continue
		}
		text, err := os.ReadFile(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			left = append(left, file.name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("copy %s: %w", file.name, err)
		}
		if err := keyfiles.WriteNew(filepath.Join(dir, file.name), text, 0o600); err != nil {
			return nil, nil, err
		}
		copied = append(copied, file.name)
	}
	return copied, left, nil
}
