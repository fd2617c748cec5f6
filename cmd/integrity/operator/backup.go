package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	v := a.verb("backup", "DATABASE_URL", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "SECRET_KEY", "BLOB_URL")
	var to postgres.BackupConfig
	v.Flags().IntVar(&to.Keep, "keep", 0, "remove all but this many backups, and the WAL that none of them needs; 0 removes nothing")
	withKeys := v.Flags().Bool("with-keys", false, "include the signing key and the key of webhook secrets, where they are files")
	v.Flags().BoolVar(&to.Move, "move", false, "archive below DIR from now on, where another directory was used")
	v.Flags().BoolVar(&to.Replaces, "replaces", false, "the data directory that was backed up to DIR last is stopped for ever, and this one has taken its place: --keep removes its backups too")
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		if to.Keep < 0 {
			return errors.New("--keep must be a number of at least 0")
		}
		if cfg.DatabaseURL != "" {
			return errors.New("the database of INTEGRITY_DATABASE_URL is not the embedded one: back it up with pgBackRest, or with pg_basebackup and WAL archiving, as its operator")
		}
		if _, err := os.Stat(cfg.InDataDir("pgdata")); err != nil {
			return fmt.Errorf("there is no ledger to back up in %s (--data-dir): %w", cfg.DataDir, err)
		}
		var view BackupView
		to.Dir, to.Also = v.args[0], func(dir string) (err error) {
			view.Keys, view.NotContained, err = copyKeys(cfg, dir, *withKeys)
			return err
		}
		var b postgres.Backup
		if err := ledger.WithServer(ctx, cfg.DataDir, a.WarnLog(), v.CommandPath(), func(server *postgres.Server) (err error) {
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
		view.NotContained = append(view.NotContained, "kept bytes ("+store+")")
		view.Backup, view.FinishedAt, view.Bytes = b.Dir, cli.TimeText(b.FinishedAt), b.Bytes
		view.Archive = filepath.Join(filepath.Dir(b.Dir), "wal", b.Archive)
		return v.print(view, fmt.Sprintf("%s: %.1f MB, verified; it can be restored to any time from %s on\n"+
			"changes since are archived in %s, each within a minute\nkey files in it: %s\nNOT in it: %s; keep copies of those apart\n",
			b.Dir, float64(b.Bytes)/1e6, view.FinishedAt, view.Archive, cmp.Or(strings.Join(view.Keys, ", "), "none"), strings.Join(view.NotContained, ", ")))
	})
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
