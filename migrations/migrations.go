// Package migrations embeds the database schema as SQL files and applies them. The first one is a baseline; a database
// created with another baseline is refused.
//
// Several processes may call Up at the same time: a session lock lets one of them migrate while the others wait.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
)

//go:embed *.sql
var embedded embed.FS

// files holds the migrations. Tests add one.
var files fs.FS = embedded

// ErrOtherBaseline means that a program from before this baseline has made the database.
var ErrOtherBaseline = say.New("this database holds a ledger from before the first release, which this program " +
	"cannot read: " +
	"keep its history with the integrity export of the program that made it, and give this program an empty database")

// Up brings the database at url to the newest schema, as the role of that url. In a distributed ledger it distributes
// the new tables too. A role that does not own the tables may call it as well: if a migration is pending, the result is
// a *NotOwnerError, otherwise nothing happens.
func Up(ctx context.Context, url string) error {
	if err := refuseWorker(ctx, url); err != nil {
		return say.Errorf("migrate: %w", err)
	}
	owner := false
	err := withConn(ctx, url, "migrate", func(conn *pgx.Conn) error {
		denied := Owned(ctx, conn)
		if _, not := errors.AsType[*NotOwnerError](denied); denied != nil && !not {
			return denied
		}
		owner = denied == nil
		applied, err := recorded(ctx, conn)
		if err != nil {
			return err
		}
		pending, err := known()
		if err != nil {
			return err
		}
		pending = slices.DeleteFunc(pending, func(version int64) bool { return slices.Contains(applied, version) })
		switch {
		case len(pending) == 0:
			return nil
		case !owner:
			return denied
		default:
			return apply(ctx, url)
		}
	})
	if err != nil || !owner {
		return err
	}
	return redistribute(ctx, url)
}

// NotOwnerError means that the role does not own the ledger's tables.
type NotOwnerError struct{ Role string }

func (e *NotOwnerError) sentence() say.Sentence {
	return say.Sentencef("the role %s does not own the tables", e.Role)
}

func (e *NotOwnerError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *NotOwnerError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// Owned returns a *NotOwnerError unless the role of the session owns the ledger's tables or, in a database without a
// ledger, may create them.
func Owned(ctx context.Context, conn *pgx.Conn) error {
	const query = `SELECT coalesce((SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
			WHERE oid = to_regclass('public.ledger')), has_schema_privilege('public', 'CREATE')), current_user`
	var owner bool
	var role string
	if err := conn.QueryRow(ctx, query).Scan(&owner, &role); err != nil {
		return say.Errorf("ask who owns the tables: %w", err)
	}
	if !owner {
		return &NotOwnerError{role}
	}
	return nil
}

// Versions returns the number of the last migration that the database at url has, 0 if it has none, and of the last
// that this binary knows. It changes nothing.
func Versions(ctx context.Context, url string) (database, newest int64, err error) {
	err = withConn(ctx, url, "ask for the version of the schema", func(conn *pgx.Conn) error {
		applied, err := recorded(ctx, conn)
		if err != nil {
			return err
		}
		versions, err := known()
		if err != nil {
			return err
		}
		database, newest = slices.Max(append(applied, 0)), slices.Max(versions)
		return nil
	})
	return database, newest, err
}

// known lists the numbers of the migrations of this binary.
func known() (versions []int64, err error) {
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		var version int64
		if version, err = goose.NumericComponent(name); err != nil {
			break
		}
		versions = append(versions, version)
	}
	if err != nil {
		return nil, say.Errorf("list the migrations: %w", err)
	}
	return versions, nil
}

const hasRecord = "to_regclass('public.applied_migrations') IS NOT NULL"

// recorded lists the numbers of the migrations that the database has. It reads the table that every role of the ledger
// may read; goose's table belongs to the owner alone.
func recorded(ctx context.Context, conn *pgx.Conn) (versions []int64, err error) {
	var exists bool
	if err = conn.QueryRow(ctx, "SELECT "+hasRecord).Scan(&exists); err == nil && exists {
		rows, _ := conn.Query(ctx, "SELECT version FROM public.applied_migrations") // CollectRows returns its error
		versions, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, say.Errorf("read which migrations were applied: %w", err)
	}
	return versions, nil
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
		return "", say.Errorf("hash migrations: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// withConn calls do with a connection to a database that has this program's baseline, or none.
func withConn(ctx context.Context, url string, what say.Word, do func(*pgx.Conn) error) error {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return say.Errorf("open database for migrations: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := refuseOtherBaseline(ctx, conn); err != nil {
		return err
	}
	if err := do(conn); err != nil {
		return say.Errorf("%s: %w", what, err)
	}
	return nil
}

// apply applies the pending migrations, one process at a time, and records them.
func apply(ctx context.Context, url string) (err error) {
	config, err := connect.Config(url)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	// It tries every second for five minutes: another process may be migrating a large ledger.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return say.Errorf("migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return say.Errorf("read migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}
	return record(ctx, db, provider)
}

// refuseOtherBaseline returns ErrOtherBaseline if the database was migrated and its first migration is not this
// program's, whatever the number of its last one. It reads goose's table only if our record is missing.
func refuseOtherBaseline(ctx context.Context, conn *pgx.Conn) error {
	text, err := fs.ReadFile(files, "00001_baseline.sql")
	ask := func(question string, args ...any) (yes bool) {
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT "+question, args...).Scan(&yes)
		}
		return yes
	}
	const otherHash = "EXISTS (SELECT FROM public.applied_migrations WHERE version = 1 AND sha256 <> $1)"
	recorded := ask(hasRecord)
	other := false
	if !recorded && ask("to_regclass('public.goose_db_version') IS NOT NULL") &&
		ask("EXISTS (SELECT FROM public.goose_db_version WHERE version_id > 0)") {
		// If another process applies the baseline meanwhile, the record exists by now.
		recorded = ask(hasRecord)
		other = !recorded
	}
	switch other = other || recorded && ask(otherHash, statementsHash(text)); {
	case err != nil:
		return say.Errorf("read which baseline was applied: %w", err)
	case other:
		return ErrOtherBaseline
	default:
		return nil
	}
}
