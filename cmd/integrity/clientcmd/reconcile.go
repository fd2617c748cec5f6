package clientcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // registers the driver sqlite

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// reconciled is a local copy of a company's feed. Each page is stored together with the cursor, or not at all.
type reconciled interface {
	// position returns the cursor and the epoch of the copy. Epoch 0 means that the copy is empty.
	position() (cursor, epoch int64)
	// store adds a page to the copy. Events already stored do not change, but gain the hash that they lack if an earlier
	// release of the service gave them.
	store(ctx context.Context, page client.Page) (added int, err error)
	Close() error
}

// copyHead identifies the feed in a copy.
type copyHead struct {
	Service string `json:"service"`
	Company string `json:"companyReference"`
}

// check rejects a copy of another feed.
func (h copyHead) check(asked copyHead) error {
	switch {
	case h != asked && h.Company == "":
		return say.Errorf(
			"this file contains the feed of all companies of %s: use another file for another feed", h.Service,
		)
	case h != asked:
		return say.Errorf(
			"this file contains the feed of company %s of %s: use another file for another feed", h.Company, h.Service,
		)
	}
	return nil
}

func (a *app) reconcileCommand() *cobra.Command {
	c, flags := Command("reconcile")
	company := c.Flags().String("company", "", "reference of the company; all companies of the key without it")
	follow := c.Flags().Bool("follow", false, "keep waiting for changes")
	fromStart := c.Flags().Bool(
		"from-start", false, "read the whole feed again after the service was restored (SQLite only)",
	)
	var q against
	c.Flags().StringVar(
		&q.query, "against", "", "compare the copy with the rows of this query of your database (SQLite only)",
	)
	c.Flags().StringVar(&q.database, "database", "", "address of your database, for --against")
	c.Flags().BoolVar(&q.csv, "csv", false, "print the differences as CSV")
	c.MarkFlagsMutuallyExclusive("against", "follow")
	c.MarkFlagsMutuallyExclusive("csv", "json")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if err := cmp.Or(q.check(), checkCompany(c, *company)); err != nil {
			return err
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		head := copyHead{service.BaseURL(), *company}
		var to reconciled
		if filepath.Ext(args[0]) == ".jsonl" {
			if *fromStart {
				return say.Errorf("--from-start works only with SQLite: use a new .jsonl file instead")
			}
			if q.query != "" {
				return say.Errorf("--against works only with SQLite: use a file whose name does not end in .jsonl")
			}
			if *company == "" {
				return say.Errorf(
					"a copy of all companies works only with SQLite: name a company, or a file that does not end in .jsonl",
				)
			}
			to, err = openLines(args[0], head)
		} else {
			to, err = openSQLite(ctx, args[0], head, *fromStart)
		}
		if err != nil {
			return say.Errorf("%s: %w", args[0], err)
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		added, err := a.reconcile(ctx, service, *company, to, *follow)
		if err != nil {
			return err
		}
		if q.query != "" {
			return a.against(ctx, q, to.(*sqliteCopy), *company, flags.JSON)
		}
		cursor, epoch := to.position()
		summary := struct {
			File   string `json:"file"`
			Events int    `json:"events"`
			Cursor int64  `json:"cursor"`
			Epoch  int64  `json:"epoch"`
		}{args[0], added, cursor, epoch}
		return a.Print(flags.JSON, summary,
			a.Sayf("%d new events; the copy is at sequence %d", added, cursor)+"\n")
	}
	return c
}

// reconcile follows the feed to its end, or until ctx ends. Pages stored before an error remain stored.
func (a *app) reconcile(
	ctx context.Context, service *client.Client, company string, to reconciled, follow bool,
) (added int, err error) {
	cursor, epoch := to.position()
	err = client.Follower{
		Client: service, Company: company, Cursor: cursor, Epoch: epoch, Live: follow,
		Take: func(page client.Page) error {
			n, err := to.store(context.WithoutCancel(ctx), page)
			added += n
			return err
		},
		Failed: func(err error, again time.Duration) {
			_, _ = fmt.Fprintln(a.Errs, "integrity:", a.Sayf("%v; trying again in %s", err, again.Round(time.Second)))
		},
	}.Run(ctx)
	var restored *client.RestoredError
	switch {
	case follow && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return added, nil
	case errors.As(err, &restored):
		return added, cli.Negativef(
			"%w: this copy may hold such events; read the feed again with --from-start", restored,
		)
	}
	return added, Refusal(err)
}

// sqliteSchema is the schema of a copy. The cursor is a row in the same database, written in the same transaction as
// the events.
//
//go:embed reconcile.sql
var sqliteSchema string

// sqliteCopy is a copy of a feed in a SQLite database.
type sqliteCopy struct {
	db            *sql.DB
	cursor, epoch int64
}

// OpenSQLite opens or creates a database with this schema.
func OpenSQLite(ctx context.Context, path, schema string) (*sql.DB, error) {
	// Sync to disk at every commit: committed data must survive a power failure.
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"},
		"_txlock": {"immediate"},
	}.Encode()}).String()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(
			say.Errorf("the file must be a SQLite database of this command, or not exist yet: %w", err), db.Close(),
		)
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
	if _, err := db.ExecContext(
		ctx, "INSERT INTO cursor VALUES (1, ?, ?, 0, 0) ON CONFLICT DO NOTHING", head.Service, head.Company,
	); err != nil {
		return nil, err
	}
	c := &sqliteCopy{db: db}
	var known copyHead
	if err := db.QueryRowContext(
		ctx, "SELECT service, company_reference, sequence, epoch FROM cursor",
	).Scan(&known.Service, &known.Company, &c.cursor, &c.epoch); err != nil {
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

// store writes the events and the cursor in one transaction. It fails if another process has moved the cursor.
func (c *sqliteCopy) store(ctx context.Context, page client.Page) (added int, err error) {
	if page.Cursor == c.cursor && page.Epoch == c.epoch && len(page.Events) == 0 {
		return 0, nil
	}
	err = c.transact(ctx, func(tx *sql.Tx) error {
		moved, err := tx.ExecContext(
			ctx, "UPDATE cursor SET sequence = ?, epoch = ? WHERE sequence = ?", page.Cursor, page.Epoch, page.After,
		)
		if err != nil {
			return err
		}
		if n, err := moved.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, say.Errorf("another process has moved this file's cursor: run only one process per file"))
		}
		var before int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM events").Scan(&before); err != nil {
			return err
		}
		insert, err := tx.PrepareContext(ctx, `INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
			ON CONFLICT (id) DO UPDATE SET confirmed = 1,
				event = CASE WHEN json_extract(event, '$.sha256') IS NULL THEN excluded.event ELSE event END`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, e := range page.Events {
			if _, err := insert.ExecContext(ctx, e.ID, e.Sequence, e.Type, e.OccurredAt, e.PublicID, e.Source,
				e.DocumentReference, e.Version,
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
		return 0, say.Errorf("store a page: %w", err)
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

// linesHead is the first line of a JSON-lines copy.
type linesHead struct {
	copyHead
	Epoch int64 `json:"epoch"`
}

// linesCopy is a copy in JSON lines: a head, then one event per line as the service returned it. The last complete
// line's sequence is the cursor, so events and cursor cannot disagree. A line that a crash left incomplete is removed.
type linesCopy struct {
	file          *os.File
	head          copyHead
	cursor, epoch int64
}

func openLines(path string, head copyHead) (_ *linesCopy, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c := &linesCopy{file: f, head: head}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := system.Lock(f, false); err != nil {
		return nil, say.Errorf("another process is writing this file: run only one process per file")
	}
	end, err := c.read()
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(end); err != nil {
		return nil, err
	}
	_, err = f.Seek(end, io.SeekStart)
	return c, err
}

// read returns the end of the last complete line.
func (c *linesCopy) read() (end int64, err error) {
	lines := bufio.NewReaderSize(c.file, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if number == 1 {
			var h linesHead
			if err := json.Unmarshal(line, &h); err != nil || h.Service == "" || h.Epoch == 0 {
				return 0, say.Errorf("it must be a file that this command wrote, or not exist yet")
			}
			if err := h.check(c.head); err != nil {
				return 0, err
			}
			c.epoch = h.Epoch
		} else {
			var e wire.FeedEvent
			if err := json.Unmarshal(line, &e); err != nil || e.Sequence <= c.cursor {
				return 0, say.Errorf("line %d does not continue the line before it", number)
			}
			c.cursor = e.Sequence
		}
		end += int64(len(line))
	}
}

func (c *linesCopy) position() (cursor, epoch int64) { return c.cursor, c.epoch }

// store appends the page and syncs the file.
func (c *linesCopy) store(_ context.Context, page client.Page) (added int, err error) {
	var b bytes.Buffer
	if c.epoch == 0 {
		text, err := json.Marshal(linesHead{c.head, page.Epoch})
		if err != nil {
			return 0, err
		}
		b.Write(append(text, '\n'))
	}
	for _, event := range page.Events {
		if err := json.Compact(&b, event.Raw); err != nil {
			return 0, err
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return 0, nil
	}
	if _, err := c.file.Write(b.Bytes()); err != nil {
		return 0, say.Errorf("store a page: %w", err)
	}
	if err := c.file.Sync(); err != nil {
		return 0, say.Errorf("store a page: %w", err)
	}
	c.cursor, c.epoch = page.Cursor, page.Epoch
	return len(page.Events), nil
}

func (c *linesCopy) Close() error { return c.file.Close() }

func (a *app) changesCommand() *cobra.Command {
	c, flags := Command("changes")
	company := c.Flags().String("company", "", "reference of the company; all companies of the key without it")
	after := c.Flags().Int64("after", 0, "start after this sequence")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkCompany(c, *company); err != nil {
			return err
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		return Refusal(client.Follower{Client: service, Company: *company, Cursor: *after,
			Take: func(page client.Page) error {
				for _, e := range page.Events {
					if flags.JSON {
						err = cli.WriteJSON(a.Out, e.Raw, "")
					} else {
						_, err = fmt.Fprintf(
							a.Out, "%6d  %s  %-22s  %s  %s v%d  %s\n", e.Sequence, e.OccurredAt, e.Type, e.PublicID,
							documentName(*company, e.CompanyReference, e.Source, e.DocumentReference), e.Version, e.RecordStatus,
						)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}}.Run(c.Context()))
	}
	return c
}

// checkCompany refuses an empty --company: the variable of a script may be unset.
func checkCompany(c *cobra.Command, company string) error {
	if company == "" && c.Flags().Changed("company") {
		return say.Errorf("--company must not be empty: leave it out for all companies of the key")
	}
	return nil
}

// documentName names a document in a text. The text names the company only if the caller asked for all.
func documentName(asked, company, source, document string) string {
	if asked == "" {
		return company + " " + source + " " + document
	}
	return source + " " + document
}
