// Package migrations embeds the database schema as SQL files and applies them. The first one is a baseline; a database
// created with another baseline is refused.
//
// Several processes may call Up at the same time: a session lock lets one of them migrate while the others wait.
package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"integrityledger/eventstore/cluster/connect"
)

//go:embed *.sql
var embedded embed.FS

// files holds the migrations. Tests add one.
var files fs.FS = embedded

// ErrOtherBaseline means that a program from before this baseline has made the database.
var ErrOtherBaseline = errors.New("this database holds a ledger from before the first release, which this program " +
	"cannot read: " +
	"keep its history with the integrity export of the program that made it, and give this program an empty database")

// Up brings the database at url to the newest schema, as the role of that url. In a distributed ledger it distributes
// the new tables too.
func Up(ctx context.Context, url string) error {
	if err := refuseWorker(ctx, url); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	err := withProvider(ctx, url, "migrate", func(db *sql.DB, p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return err
		}
		return record(ctx, db, p)
	})
	if err != nil {
		return err
	}
	return redistribute(ctx, url)
}

// Versions returns the number of the last migration that the database at url has, and of the last that this binary
// knows.
func Versions(ctx context.Context, url string) (database, known int64, err error) {
	err = withProvider(ctx, url, "ask for the version of the schema", func(_ *sql.DB, p *goose.Provider) (err error) {
		database, known, err = p.GetVersions(ctx)
		return err
	})
	return database, known, err
}

// Hash names the schema: the SHA-256, in hexadecimal, of all migration files.
func Hash() (string, error) {
	h := sha256.New()
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		var body []byte
		if body, err = fs.ReadFile(files, name); err != nil {
			break
		}
		fmt.Fprintf(h, "%s %d\n", name, len(body))
		h.Write(body)
	}
	if err != nil {
		return "", fmt.Errorf("hash migrations: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func withProvider(ctx context.Context, url, what string, do func(*sql.DB, *goose.Provider) error) (err error) {
	config, err := connect.Config(url)
	if err != nil {
		return fmt.Errorf("open database for migrations: %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := refuseOtherBaseline(ctx, db); err != nil {
		return err
	}
	// It tries every second for five minutes: another process may be migrating a large ledger.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := do(db, provider); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// refuseOtherBaseline returns ErrOtherBaseline if the database was migrated and its first migration is not this
// program's, whatever the number of its last one.
func refuseOtherBaseline(ctx context.Context, db *sql.DB) error {
	text, err := fs.ReadFile(files, "00001_baseline.sql")
	ask := func(question string, args ...any) (yes bool) {
		if err == nil {
			err = db.QueryRowContext(ctx, question, args...).Scan(&yes)
		}
		return yes
	}
	// Ask goose first: if another process applies the baseline meanwhile, the table of hashes exists by the last question.
	const otherHash = "SELECT EXISTS (SELECT FROM public.applied_migrations WHERE version = 1 AND sha256 <> $1)"
	other := ask("SELECT to_regclass('public.goose_db_version') IS NOT NULL") &&
		ask("SELECT EXISTS (SELECT FROM public.goose_db_version WHERE version_id > 0)") &&
		(ask("SELECT to_regclass('public.applied_migrations') IS NULL") || ask(otherHash, statementsHash(text)))
	switch {
	case err != nil:
		return fmt.Errorf("read which baseline was applied: %w", err)
	case other:
		return ErrOtherBaseline
	default:
		return nil
	}
}
