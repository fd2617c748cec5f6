package clientcmd

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/domain/say"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// loadedAtOnce is the number of declarations that an import loads into its outbox in one transaction.
const loadedAtOnce = 10_000

// importCommand registers the declarations of a file. It loads them into an outbox of its own, a SQLite file, and runs
// the worker of all outboxes on it: whatever ends the command, the same command goes on.
func (a *app) importCommand() *cobra.Command {
	w := outboxWork{app: a}
	c, service := Command("import")
	state := c.Flags().String("state", "", "file that keeps the progress (default FILE.import)")
	retry := c.Flags().Bool("retry", false, "first make refused declarations pending again, after correcting their cause")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		read, err := declarationsOf(args[0])
		if err != nil {
			return err
		}
		if w.config.Client, err = Connect(a.App, service); err != nil {
			return err
		}
		defer w.config.Client.Close()
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		path := *state
		if path == "" {
			path = args[0] + ".import"
		}
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := system.Lock(lock, false); err != nil {
			return say.Errorf("another process is importing this file: wait until it ends")
		}
		db, _, err := outbox.OpenDatabase(ctx, "sqlite:"+path)
		if err != nil {
			return say.Errorf("%s: %w", path, err)
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if w.config.Outbox, err = outbox.New(ctx, db); err != nil {
			return say.Errorf("%s: %w", path, err)
		}
		if err := load(ctx, db, w.config.Outbox, read); err != nil {
			return say.Errorf("%s: %w", args[0], err)
		}
		if err := w.config.Outbox.Release(ctx); err != nil { // a killed run of this command has left its leases
			return err
		}
		if *retry {
			if _, err := w.config.Outbox.Retry(ctx); err != nil {
				return err
			}
		}
		w.config.WithoutEvidence, w.quiet = true, true
		if err := w.run(ctx, "", true, service.JSON); err != nil {
			return err
		}
		return w.imported(context.WithoutCancel(ctx), db, service.JSON)
	}
	return c
}

// imported reports every declaration that was not registered, and the counts. Any of them is an answer of no.
func (w *outboxWork) imported(ctx context.Context, db *sql.DB, asJSON bool) error {
	counts, err := w.config.Outbox.Counts(ctx)
	if err != nil {
		return err
	}
	if err := outbox.Read(ctx, db, func(i outbox.Item) error {
		if i.State != outbox.Conflict && i.State != outbox.Refused {
			return nil
		}
		d := i.Declaration
		if asJSON {
			return cli.WriteJSON(w.Out, struct {
				State       outbox.State     `json:"state"`
				Declaration wire.Declaration `json:"declaration"`
				Code        string           `json:"code"`
				Detail      string           `json:"detail"`
			}{i.State, d, i.Code, i.Problem}, "")
		}
		version := fmt.Sprintf("%s %s v%d, %s", d.Source, d.DocumentReference, d.Version, d.CompanyReference)
		text := w.Sayf("refused: %s: %s", version, i.Problem)
		if i.State == outbox.Conflict {
			text = w.Sayf("in conflict: %s: %s", version, i.Problem)
		}
		_, err := io.WriteString(w.Out, text+"\n")
		return err
	}); err != nil {
		return err
	}
	if asJSON {
		err = cli.WriteJSON(w.Out, counts, "")
	} else {
		_, err = io.WriteString(w.Out, w.Sayf("%d registered, %d in conflict, %d refused, %d still to register",
			counts.Registered, counts.Conflict, counts.Refused, counts.Pending)+"\n")
	}
	if err == nil && counts.Conflict+counts.Refused+counts.Pending > 0 {
		err = cli.NegativeError("")
	}
	return err
}

// load adds the declarations that the outbox does not hold yet. It fails, and names the line, if the outbox holds the
// version with other data or if a line is not a declaration. The declarations of earlier lines stay in the outbox.
func load(ctx context.Context, db *sql.DB, o *outbox.Outbox, read declarations) error {
	var tx *sql.Tx
	added := 0
	commit := func() (err error) {
		if tx != nil {
			err = tx.Commit()
		}
		tx, added = nil, 0
		return err
	}
	defer func() { _ = commit() }() // after an error, which is reported
	if err := read(func(line int, d wire.Declaration) (err error) {
		if tx == nil {
			if tx, err = db.BeginTx(ctx, nil); err != nil {
				return err
			}
		}
		known, err := o.FindIn(ctx, tx, d.VersionReference())
		switch {
		case errors.Is(err, sql.ErrNoRows):
			err = o.Add(ctx, tx, d)
			added++
		case err == nil && !sameDeclaration(known.Declaration, d):
			err = say.Errorf(
				"an earlier line, or an earlier run, has version %d of %s with other data", d.Version, d.DocumentReference,
			)
		}
		if err != nil {
			return say.Errorf("line %d: %w", line, err)
		}
		if added == loadedAtOnce {
			return commit()
		}
		return nil
	}); err != nil {
		return err
	}
	return commit()
}

func sameDeclaration(a, b wire.Declaration) bool {
	previous := func(d *wire.Declaration) (version int32) {
		if d.PreviousVersion != nil {
			version = *d.PreviousVersion
		}
		d.PreviousVersion = nil
		return version
	}
	return previous(&a) == previous(&b) && a == b
}

// importColumns are the columns of a CSV file, which are the members of a declaration.
var importColumns = []string{
	"companyReference", "source", "documentReference", "version", "previousVersion", "sha256", "sizeBytes", "mimeType",
	"generatedAt", "reservationId",
}

// declarations reads the declarations of a file one after another, each with the number of its line.
type declarations func(do func(line int, d wire.Declaration) error) error

func declarationsOf(path string) (declarations, error) {
	parse := map[string]func(io.Reader, func(int, wire.Declaration) error) error{
		".csv": readCSV, ".ndjson": readLines, ".jsonl": readLines,
	}[strings.ToLower(filepath.Ext(path))]
	if parse == nil {
		return nil, say.Errorf("%s: the name must end in .csv, .ndjson or .jsonl", path)
	}
	return func(do func(int, wire.Declaration) error) (err error) {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		return parse(bufio.NewReaderSize(file, 1<<20), do)
	}, nil
}

// readLines reads one declaration a line, in the form of the API.
func readLines(r io.Reader, do func(line int, d wire.Declaration) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		var d wire.Declaration
		parser := json.NewDecoder(strings.NewReader(text))
		parser.DisallowUnknownFields()
		if err := parser.Decode(&d); err != nil {
			return say.Errorf("line %d: %w", n, err)
		}
		if err := do(n, d); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return say.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// readCSV reads a file (RFC 4180) whose first line names the columns, in any order.
func readCSV(r io.Reader, do func(line int, d wire.Declaration) error) error {
	table := csv.NewReader(r)
	table.ReuseRecord = true
	head, err := table.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	names := slices.Clone(head)
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, "\ufeff")
		if !slices.Contains(importColumns, names[i]) {
			return say.Errorf("line 1: %q is not a column: the columns are %s", name, strings.Join(importColumns, ", "))
		}
	}
	for {
		row, err := table.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err // it names the line
		}
		line, _ := table.FieldPos(0)
		var d wire.Declaration
		for i, name := range names {
			if err := setMember(&d, name, row[i]); err != nil {
				return say.Errorf("line %d: %w", line, err)
			}
		}
		if err := do(line, d); err != nil {
			return err
		}
	}
}

// setMember sets a member of a declaration to the text of a cell.
func setMember(d *wire.Declaration, name, cell string) error {
	number := func(bits int) (int64, error) {
		n, err := strconv.ParseInt(cell, 10, bits)
		if err != nil {
			return 0, say.Errorf("%s must be a whole number", name)
		}
		return n, nil
	}
	switch name {
	case "version":
		n, err := number(32)
		d.Version = int32(n)
		return err
	case "previousVersion":
		if cell == "" {
			return nil
		}
		n, err := number(32)
		d.PreviousVersion = new(int32(n))
		return err
	case "sizeBytes":
		n, err := number(64)
		d.SizeBytes = n
		return err
	}
	*map[string]*string{
		"companyReference": &d.CompanyReference, "source": &d.Source, "documentReference": &d.DocumentReference,
		"sha256": &d.SHA256, "mimeType": &d.MimeType, "generatedAt": &d.GeneratedAt, "reservationId": &d.ReservationID,
	}[name] = strings.Clone(cell)
	return nil
}
