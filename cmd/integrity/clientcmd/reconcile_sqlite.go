package clientcmd

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // registers the driver sqlite

	"integrityledger/handlers/client"
)

// sqliteSchema is what a reconciliation job reads. The cursor is one row beside the events, and written with them.
const sqliteSchema = `
CREATE TABLE IF NOT EXISTS cursor (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    service           TEXT    NOT NULL,
    company_reference TEXT    NOT NULL,
    sequence          INTEGER NOT NULL, -- of the last event that was read
    epoch             INTEGER NOT NULL  -- of the service; raised when it was restored from a backup
);
CREATE TABLE IF NOT EXISTS events (
    id                 TEXT    PRIMARY KEY,
    sequence           INTEGER NOT NULL,
    type               TEXT    NOT NULL,
    occurred_at        TEXT    NOT NULL,
    public_id          TEXT    NOT NULL,
    source             TEXT    NOT NULL,
    document_reference TEXT    NOT NULL,
    version            INTEGER NOT NULL,
    record_status      TEXT    NOT NULL, -- right after the event
    event              TEXT    NOT NULL, -- JSON as the service gave it
    confirmed          INTEGER NOT NULL  -- 0: the service does not have it any more
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS events_sequence ON events (sequence);
CREATE INDEX IF NOT EXISTS events_version ON events (source, document_reference, version, sequence);
CREATE VIEW IF NOT EXISTS versions AS
    SELECT source, document_reference, version, public_id, record_status, max(sequence) AS sequence, occurred_at AS changed_at
    FROM events WHERE confirmed = 1 GROUP BY source, document_reference, version;
`

// sqliteCopy is a copy of a feed in a SQLite database.
type sqliteCopy struct {
	db            *sql.DB
	cursor, epoch int64
}

// OpenSQLite opens a database with a schema, or makes it.
func OpenSQLite(ctx context.Context, path, schema string) (*sql.DB, error) {
	// A full disk sync at every commit: what was committed must be there after a power failure.
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}, "_txlock": {"immediate"},
	}.Encode()}).String()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("the file must be a SQLite database of this command, or not exist yet: %w", err), db.Close())
	}
	return db, nil
}

func openSQLite(ctx context.Context, path string, head copyHead, fromStart bool) (_ *sqliteCopy, err error) {
	db, err := OpenSQLite(ctx, path, sqliteSchema)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	if _, err := db.ExecContext(ctx, "INSERT INTO cursor VALUES (1, ?, ?, 0, 0) ON CONFLICT DO NOTHING", head.Service, head.Company); err != nil {
		return nil, err
	}
	c := &sqliteCopy{db: db}
	var known copyHead
	if err := db.QueryRowContext(ctx, "SELECT service, company_reference, sequence, epoch FROM cursor").Scan(&known.Service, &known.Company, &c.cursor, &c.epoch); err != nil {
		return nil, err
	}
	if err := known.check(head); err != nil {
		return nil, err
	}
	if fromStart {
		if err := c.transact(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE events SET confirmed = 0; UPDATE cursor SET sequence = 0, epoch = 0")
			return err
		}); err != nil {
			return nil, err
		}
		c.cursor, c.epoch = 0, 0
	}
	return c, nil
}

func (c *sqliteCopy) position() (cursor, epoch int64) { return c.cursor, c.epoch }

// store writes the events and the cursor in one transaction. It refuses where
// another process has moved the cursor meanwhile.
func (c *sqliteCopy) store(ctx context.Context, page client.Page) (added int, err error) {
	if page.Cursor == c.cursor && page.Epoch == c.epoch {
		return 0, nil
	}
	err = c.transact(ctx, func(tx *sql.Tx) error {
		moved, err := tx.ExecContext(ctx, "UPDATE cursor SET sequence = ?, epoch = ? WHERE sequence = ?", page.Cursor, page.Epoch, page.After)
		if err != nil {
			return err
		}
		if n, err := moved.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, errors.New("another process has moved the cursor of this file: run one at a time"))
		}
		var before int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM events").Scan(&before); err != nil {
			return err
		}
		insert, err := tx.PrepareContext(ctx, `INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET confirmed = 1`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, e := range page.Events {
			if _, err := insert.ExecContext(ctx, e.ID, e.Sequence, e.Type, e.OccurredAt, e.PublicID, e.Source, e.DocumentReference, e.Version,
				e.RecordStatus, string(e.Raw)); err != nil {
				return err
			}
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM events").Scan(&added); err != nil {
			return err
		}
		added -= before
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("store a page: %w", err)
	}
	c.cursor, c.epoch = page.Cursor, page.Epoch
	return added, nil
}

func (c *sqliteCopy) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (c *sqliteCopy) Close() error { return c.db.Close() }
