// Package outbox registers declarations that an origin system has stored in its own database, so that issuing a
// document never depends on the service. The origin adds a declaration in the transaction that stores the final file,
// and delivers the file at once. A [Worker] registers the declaration, once, when it can, and stores the answer and the
// evidence.
//
// # Crash safety
//
// A declaration is in the outbox exactly if its file is in the origin's tables, because one transaction commits both.
// It never changes (a trigger refuses it). The worker marks it as sent before it sends it, so it recognizes an attempt
// whose outcome was lost in a crash or a broken connection. It then looks up the version and sends the same bytes
// again. If the first attempt had arrived, the service answers with a replay. No second version is ever created. The
// answer is stored before evidence is requested, and an item is done when its evidence is stored.
//
// # Order
//
// Declarations are sent in batches of up to 500, one request at a time. The versions of a document are registered in
// the order in which they were added: at most one is ready or in progress, and later versions are queued until its
// answer is stored. Different documents have no order among them.
//
// After an error that waiting may solve (408, 429, any 5xx, no answer), the worker waits, at least for Retry-After.
// After a 5xx or no answer it then looks up the version before it sends it again. If nothing in a batch was decided,
// all ready items wait; otherwise only the undecided items do. An error that needs correction (401, 403, 409, 422)
// stops that item and the later versions of its document, nothing else, and is reported. [Outbox.Retry] resumes the
// item after the correction, and [Outbox.Abandon] gives it up so that later versions can proceed.
//
// Evidence is fetched with one request per item while no full batch of declarations is due, so that declarations come
// first when they pile up against the rate limit. Evidence has its own backoff: a problem with evidence never delays a
// declaration.
//
// The tables use the SQLite dialect. One worker per outbox is enough; a second one would only send replays, which
// consume nothing.
package outbox

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

//go:embed outbox.sql
var schema string

// State is the state of an item.
type State string

// The states of an item. Sent means that an attempt began and its outcome is not known.
const (
	Queued     State = "queued" // behind an earlier version of its document
	Waiting    State = "waiting"
	Sent       State = "sent"
	Registered State = "registered" // the answer is stored, the evidence is not
	Done       State = "done"
	Stopped    State = "stopped"   // needs correction
	Abandoned  State = "abandoned" // by [Outbox.Abandon]
)

// Item is a declaration in the outbox.
type Item struct {
	ID          int64
	Declaration wire.Declaration
	State       State
	Attempts    int                // registrations that began
	Response    *wire.Registration // nil before Registered
	Evidence    []byte             // nil before Done
	Problem     string             // of the last failed attempt

	saved []byte // the bytes to send
	due   time.Time
}

// Outbox is the table integrity_outbox of an origin's database.
type Outbox struct{ db *sql.DB }

// New creates the table unless it exists.
func New(ctx context.Context, db *sql.DB) (*Outbox, error) {
	o := &Outbox{db}
	if err := o.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	}); err != nil {
		return nil, say.Errorf("outbox: %w", err)
	}
	return o, nil
}

// transact runs do in a transaction, which it commits unless do fails.
func (o *Outbox) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Add adds a declaration in the transaction that stores the final file. It fails for a version that was added before,
// and for a declaration that the service would refuse because of its form.
func (o *Outbox) Add(ctx context.Context, tx *sql.Tx, d wire.Declaration, now time.Time) error {
	text, err := json.Marshal(d)
	if err == nil {
		err = check(text)
	}
	if err != nil {
		return say.Errorf("outbox: %w", err)
	}
	_, err = tx.ExecContext(ctx,
		`INSERT INTO integrity_outbox (company_reference, source, document_reference, version, declaration, due_at, state)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, CASE WHEN EXISTS (
			SELECT 1 FROM integrity_outbox WHERE response IS NULL AND state IN ('waiting', 'sent', 'stopped')
				AND company_reference = ?1 AND source = ?2 AND document_reference = ?3) THEN 'queued' ELSE 'waiting' END)`,
		d.CompanyReference, d.Source, d.DocumentReference, d.Version, string(text), now.UnixMilli())
	if err != nil {
		return say.Errorf("outbox: add version %d of %s: %w", d.Version, d.DocumentReference, err)
	}
	return nil
}

// check validates a declaration as the service does.
func check(declaration []byte) error {
	value, err := strictjson.Parse(declaration, 2)
	if err != nil {
		return err
	}
	o := strictjson.Decode(value)
	domain.ReadDeclaration(o)
	if problems := o.Problems(); len(problems) > 0 {
		return say.Errorf("%s %s", strings.TrimPrefix(problems[0].Pointer, "/"), problems[0].Message)
	}
	return nil
}

const columns = `id, declaration, state, attempts, response, evidence, problem, due_at`

func scan(r interface{ Scan(...any) error }) (Item, error) {
	var i Item
	var declaration string
	var response, evidence, problem sql.NullString
	var due int64
	if err := r.Scan(&i.ID, &declaration, &i.State, &i.Attempts, &response, &evidence, &problem, &due); err != nil {
		return i, err
	}
	i.saved, i.Problem, i.due = []byte(declaration), problem.String, time.UnixMilli(due)
	if evidence.Valid {
		i.Evidence = []byte(evidence.String)
	}
	if err := json.Unmarshal(i.saved, &i.Declaration); err != nil {
		return i, say.Errorf("item %d: declaration: %w", i.ID, err)
	}
	if response.Valid {
		if err := json.Unmarshal([]byte(response.String), &i.Response); err != nil {
			return i, say.Errorf("item %d: response: %w", i.ID, err)
		}
	}
	return i, nil
}

// Find returns the item of a version, or sql.ErrNoRows.
func (o *Outbox) Find(ctx context.Context, v wire.VersionReference) (Item, error) {
	i, err := scan(o.db.QueryRowContext(ctx, `SELECT `+columns+` FROM integrity_outbox
		WHERE company_reference = ? AND source = ? AND document_reference = ? AND version = ?`,
		v.CompanyReference, v.Source, v.DocumentReference, v.Version))
	if err != nil {
		return i, say.Errorf("outbox: %w", err)
	}
	return i, nil
}

// Counts returns the number of items in each state.
func (o *Outbox) Counts(ctx context.Context) (map[State]int, error) {
	rows, err := o.db.QueryContext(ctx, `SELECT state, count(*) FROM integrity_outbox GROUP BY state`)
	if err != nil {
		return nil, say.Errorf("outbox: %w", err)
	}
	defer rows.Close()
	counts := map[State]int{}
	for rows.Next() {
		var state State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, say.Errorf("outbox: %w", err)
		}
		counts[state] = n
	}
	return counts, rows.Err()
}

// Retry makes all waiting and stopped items due at once, after their problem was corrected, and returns the number of
// stopped items. An item whose outcome is unknown is looked up first, as always. A running worker that waits after a
// failure keeps waiting; a worker started afterwards does not.
func (o *Outbox) Retry(ctx context.Context) (int64, error) {
	var n int64
	for _, statement := range []string{
		`UPDATE integrity_outbox SET due_at = 0 WHERE state IN ('waiting', 'sent', 'registered')`,
		`UPDATE integrity_outbox SET due_at = 0, state = CASE WHEN response IS NULL THEN 'sent' ELSE 'registered' END WHERE state = 'stopped'`,
	} {
		result, err := o.db.ExecContext(ctx, statement)
		if err != nil {
			return 0, say.Errorf("outbox: retry: %w", err)
		}
		if n, err = result.RowsAffected(); err != nil {
			return 0, say.Errorf("outbox: retry: %w", err)
		}
	}
	return n, nil
}

// Abandon gives up the stopped item of a version, so that later versions of its document can proceed. It fails if the
// item has not stopped or is already registered.
func (o *Outbox) Abandon(ctx context.Context, v wire.VersionReference) error {
	result, err := o.db.ExecContext(ctx,
		`UPDATE integrity_outbox SET state = 'abandoned' WHERE state = 'stopped' AND response IS NULL
		AND company_reference = ? AND source = ? AND document_reference = ? AND version = ?`, v.CompanyReference, v.Source,
		v.DocumentReference, v.Version)
	if err == nil {
		var n int64
		if n, err = result.RowsAffected(); err == nil && n != 1 {
			err = say.New("only an item that stopped before it was registered can be abandoned")
		}
	}
	if err != nil {
		return say.Errorf("outbox: abandon version %d of %s: %w", v.Version, v.DocumentReference, err)
	}
	return nil
}

// Conditions for the items of each lane. Each has an index.
const (
	toSend   = `state IN ('waiting', 'sent')`
	toExport = `state = 'registered'`
)

// next returns up to limit items in the order in which they are due, now or later.
func (o *Outbox) next(ctx context.Context, where string, limit int) (items []Item, err error) {
	rows, err := o.db.QueryContext(ctx, `SELECT `+columns+` FROM integrity_outbox WHERE `+where+` ORDER BY due_at, id LIMIT ?`, limit) //nolint:gosec // both are constants of this package
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		i, err := scan(rows)
		if err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, rows.Err()
}

// save stores the state of items in one transaction. It does not overwrite progress that another worker has stored.
func (o *Outbox) save(ctx context.Context, items ...Item) error {
	err := o.transact(ctx, func(tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, `UPDATE integrity_outbox SET
			state = CASE WHEN state IN ('done', 'abandoned') OR response IS NOT NULL AND ?1 IN ('waiting', 'sent') THEN state ELSE ?1 END,
			attempts = ?2, due_at = ?3, response = coalesce(response, ?4), evidence = coalesce(evidence, ?5), problem = ?6 WHERE id = ?7`)
		if err != nil {
			return err
		}
		defer statement.Close()
		for _, i := range items {
			var response []byte
			if i.Response != nil {
				if response, err = json.Marshal(i.Response); err != nil {
					return err
				}
			}
			result, err := statement.ExecContext(
				ctx, i.State, i.Attempts, i.due.UnixMilli(), text(response), text(i.Evidence), text([]byte(i.Problem)), i.ID,
			)
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n != 1 {
				return errors.Join(
					err, say.Errorf("version %d of %s is gone", i.Declaration.Version, i.Declaration.DocumentReference),
				)
			}
		}
		return nil
	})
	if err != nil {
		return say.Errorf("outbox: %w", err)
	}
	return nil
}

// text is the text of a column; an empty text is NULL.
func text(t []byte) sql.NullString { return sql.NullString{String: string(t), Valid: len(t) > 0} }
