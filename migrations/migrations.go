// Package migrations holds the database schema as embedded SQL and applies it. It begins with the schema of the first
// release; a ledger of an earlier program is refused.
//
// Several processes may call Up at the same moment: goose's session locker lets one migrate while the others wait.
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
var files embed.FS

// ErrBeforeFirstRelease is the answer of a database that a program from before the first release has migrated.
var ErrBeforeFirstRelease = errors.New("this database holds a ledger from before the first release, which this program cannot read: " +
	"keep its history with the integrity export of the program that made it, and give this program an empty database")

// Up brings the database at url to the newest schema, as the role of that url. In a distributed ledger it distributes the
// new tables too.
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

// Versions returns the number of the last migration that the database at url has, and of the last that this binary knows.
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
		if body, err = files.ReadFile(name); err != nil {
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
	if err := refuseBeforeFirstRelease(ctx, db); err != nil {
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

// refuseBeforeFirstRelease refuses a ledger whose migrations are not those of this program, whatever their numbers: every
// one of them has the table identities, which no release has.
func refuseBeforeFirstRelease(ctx context.Context, db *sql.DB) error {
	const query = "SELECT to_regclass('public.identities') IS NOT NULL AND to_regclass('goose_db_version') IS NOT NULL"
	var found bool
	if err := db.QueryRowContext(ctx, query).Scan(&found); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if found {
		return ErrBeforeFirstRelease
	}
	return nil
}
