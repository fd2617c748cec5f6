// Package outbox registers declarations that an origin system has stored in its own database, so that issuing a
// document never depends on the service. A program in any language inserts a row into the table integrity_outbox in the
// transaction that stores the final file, and delivers the file at once. A [Worker] registers the row, once, when it
// can, and stores the answer and the evidence in the row. PostgreSQL, MariaDB and SQLite are supported.
//
// # Crash safety
//
// A declaration is in the outbox exactly if its file is in the origin's tables, because one transaction commits both.
// It never changes after it was claimed (a trigger refuses it). The worker marks it as sent before it sends it, so any
// worker recognizes an attempt whose outcome was lost in a crash or a broken connection. It then looks up the version
// and sends the same bytes again. If the first attempt had arrived, the service answers with a replay. No second
// version is ever created. The answer is stored before evidence is requested, and a row is complete when its evidence
// is stored.
//
// # Leases
//
// Several workers may run. A worker claims rows with a token and a lease, which ends by the clock of the database. It
// stores an outcome only while the row still has its token. The rows of a worker that died are claimed by another when
// their lease has ended.
//
// # Order
//
// Declarations are sent in batches of up to 500, one request at a time. The versions of a document are registered one
// after another, the lowest first: a claim takes the lowest pending version only, and none while another version of the
// document is claimed. Different documents have no order among them.
//
// After an error that waiting may solve (408, 429, any 5xx, no answer), the worker waits, at least for Retry-After. In
// an exhausted month it looks again every hour, because a plan may be raised. After a 5xx or no answer it then looks up
// the version before it sends it again. If nothing in a batch was decided, all rows wait; otherwise only the undecided
// rows do. An error that needs correction (401, 403, 409, 422) ends the attempts of its row, and of nothing else:
// VERSION_CONFLICT makes it a conflict, any other error makes it refused. [Outbox.Retry] makes refused rows pending
// again after the correction. If the service refuses the key itself, the rows stay pending and the worker ends.
//
// Evidence is fetched while no full batch of declarations is due, so that declarations come first when they pile up
// against the rate limit. Evidence has its own backoff: a problem with evidence never delays a declaration.
package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

// State is the state of a row.
type State string

// The states of a row.
const (
	Pending    State = "pending"
	Registered State = "registered" // the answer is stored
	Conflict   State = "conflict"   // the version is registered with other data
	Refused    State = "refused"    // needs correction
)

// Item is a row of the outbox.
type Item struct {
	ID          int64
	Declaration wire.Declaration
	State       State
	Attempts    int                // registrations that began
	Sent        bool               // the outcome of the last attempt is not known
	Record      *wire.Registration // nil before Registered
	Evidence    []byte             // as fetched last; nil before
	Complete    bool               // the evidence is complete
	Halted      bool               // the evidence needs correction
	Code        string             // of the last failed attempt
	Problem     string             // of the last failed attempt

	next *time.Duration // until the next attempt; nil: none
}

// DefaultLease is longer than a request and its look-ups take.
const DefaultLease = 2 * time.Minute

// Outbox is the table integrity_outbox of an origin's database.
type Outbox struct {
	// Lease is how long a claimed row stays with a worker that does not answer; 0 means DefaultLease.
	Lease time.Duration

	db      *sql.DB
	dialect Dialect
	skew    time.Duration // of the database's clock, in tests
}

// Open opens the outbox in the database at an address (see [OpenDatabase]). It does not create the table. The caller
// must close the outbox.
func Open(ctx context.Context, address string) (*Outbox, error) {
	db, dialect, err := OpenDatabase(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Outbox{db: db, dialect: dialect}, nil
}

// New returns the outbox of a database that a Go program has opened, and creates the table unless it exists.
func New(ctx context.Context, db *sql.DB) (*Outbox, error) {
	dialect, err := dialectOf(db)
	if err != nil {
		return nil, say.Errorf("outbox: %w", err)
	}
	o := &Outbox{db: db, dialect: dialect}
	if err := o.Install(ctx); err != nil {
		return nil, err
	}
	return o, o.hasColumns(ctx)
}

// Close closes the database.
func (o *Outbox) Close() error { return o.db.Close() }

// Dialect returns the dialect of the database.
func (o *Outbox) Dialect() Dialect { return o.dialect }

// Install creates the table unless it exists, with its indexes and triggers.
func (o *Outbox) Install(ctx context.Context) error {
	if _, err := o.db.ExecContext(ctx, o.dialect.executable()); err != nil {
		return say.Errorf("outbox: %w", err)
	}
	return nil
}

// transact runs do in a transaction, which it commits unless do fails.
func (o *Outbox) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.dialect.isolation})
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
func (o *Outbox) Add(ctx context.Context, tx *sql.Tx, d wire.Declaration) error {
	if err := Validate(d); err != nil {
		return say.Errorf("outbox: %w", err)
	}
	_, err := tx.ExecContext(ctx, o.dialect.bind(
		`INSERT INTO integrity_outbox (company_reference, source, document_reference, version, previous_version, sha256,
			size_bytes, mime_type, generated_at, reservation_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	), d.CompanyReference, d.Source, d.DocumentReference, d.Version, d.PreviousVersion, d.SHA256, d.SizeBytes, d.MimeType,
		d.GeneratedAt, text(d.ReservationID))
	if err != nil {
		return say.Errorf("outbox: add version %d of %s: %w", d.Version, d.DocumentReference, err)
	}
	return nil
}

// Validate validates a declaration as the service does.
func Validate(d wire.Declaration) error {
	declaration, err := json.Marshal(d)
	if err != nil {
		return err
	}
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

const columns = `id, company_reference, source, document_reference, version, previous_version, sha256, size_bytes, mime_type,
	generated_at, reservation_id, state, attempts, sent_at IS NOT NULL, record, evidence, evidence_at IS NOT NULL,
	next_attempt_at IS NULL, error_code, error_detail`

func scan(r interface{ Scan(...any) error }) (Item, error) {
	var i Item
	d := &i.Declaration
	var reservation, record, evidence, code, problem sql.NullString
	var last bool
	if err := r.Scan(
		&i.ID, &d.CompanyReference, &d.Source, &d.DocumentReference, &d.Version, &d.PreviousVersion, &d.SHA256, &d.SizeBytes,
		&d.MimeType, &d.GeneratedAt, &reservation, &i.State, &i.Attempts, &i.Sent, &record, &evidence, &i.Complete, &last,
		&code, &problem,
	); err != nil {
		return i, err
	}
	d.ReservationID, i.Code, i.Problem = reservation.String, code.String, problem.String
	i.Halted = i.State == Registered && !i.Complete && last
	if evidence.Valid {
		i.Evidence = []byte(evidence.String)
	}
	if record.Valid {
		if err := json.Unmarshal([]byte(record.String), &i.Record); err != nil {
			return i, say.Errorf("row %d: record: %w", i.ID, err)
		}
	}
	return i, nil
}

// querier is a database, a connection or a transaction.
type querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// query reads rows.
func (o *Outbox) query(ctx context.Context, db querier, statement string, args ...any) (items []Item, err error) {
	rows, err := db.QueryContext(ctx, o.dialect.bind(statement), args...)
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

// Read calls do for every row of the outbox in a database, in the order in which they were added. It changes nothing.
func Read(ctx context.Context, db *sql.DB, do func(Item) error) error {
	rows, err := db.QueryContext(ctx, `SELECT `+columns+` FROM integrity_outbox ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		i, err := scan(rows)
		if err == nil {
			err = do(i)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// Find returns the row of a version, or sql.ErrNoRows.
func (o *Outbox) Find(ctx context.Context, v wire.VersionReference) (Item, error) {
	return o.find(ctx, o.db, v)
}

// FindIn is Find within a transaction.
func (o *Outbox) FindIn(ctx context.Context, tx *sql.Tx, v wire.VersionReference) (Item, error) {
	return o.find(ctx, tx, v)
}

func (o *Outbox) find(ctx context.Context, db querier, v wire.VersionReference) (Item, error) {
	items, err := o.query(ctx, db, `SELECT `+columns+` FROM integrity_outbox
		WHERE company_reference = ? AND source = ? AND document_reference = ? AND version = ?`,
		v.CompanyReference, v.Source, v.DocumentReference, v.Version)
	if err == nil && len(items) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Item{}, say.Errorf("outbox: %w", err)
	}
	return items[0], nil
}

// First returns the first pending rows in the order in which they were added.
func (o *Outbox) First(ctx context.Context, limit int) ([]Item, error) {
	items, err := o.query(
		ctx, o.db, `SELECT `+columns+` FROM integrity_outbox WHERE state = 'pending' ORDER BY id LIMIT `+strconv.Itoa(limit),
	)
	if err != nil {
		return nil, say.Errorf("outbox: %w", err)
	}
	return items, nil
}

// Counts is the number of rows in each state.
type Counts struct {
	Pending    int64 `json:"pending"`
	Registered int64 `json:"registered"`
	Conflict   int64 `json:"conflict"`
	Refused    int64 `json:"refused"`
	Evidence   int64 `json:"evidence"` // registered, with complete evidence
}

// Counts counts all rows.
func (o *Outbox) Counts(ctx context.Context) (c Counts, err error) {
	rows, err := o.db.QueryContext(ctx, `SELECT state, count(*), count(evidence_at) FROM integrity_outbox GROUP BY state`)
	if err != nil {
		return c, say.Errorf("outbox: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var state State
		var n, complete int64
		if err := rows.Scan(&state, &n, &complete); err != nil {
			return c, say.Errorf("outbox: %w", err)
		}
		*map[State]*int64{
			Pending: &c.Pending, Registered: &c.Registered, Conflict: &c.Conflict, Refused: &c.Refused,
		}[state] = n
		c.Evidence += complete
	}
	return c, rows.Err()
}

// Pending counts the pending rows. Unlike Counts it reads no other rows.
func (o *Outbox) Pending(ctx context.Context) (n int64, err error) {
	err = o.db.QueryRowContext(ctx, `SELECT count(*) FROM integrity_outbox WHERE state = 'pending'`).Scan(&n)
	if err != nil {
		return 0, say.Errorf("outbox: %w", err)
	}
	return n, nil
}

// Retry makes refused rows pending again and all attempts due at once, after their problem was corrected. It returns
// the number of refused rows. A running worker that waits after a failure keeps waiting.
func (o *Outbox) Retry(ctx context.Context) (n int64, err error) {
	err = o.transact(ctx, func(tx *sql.Tx) error {
		for _, statement := range []string{
			`UPDATE integrity_outbox SET next_attempt_at = ` + o.at(0) + ` WHERE state = 'pending' OR state = 'registered' AND evidence_at IS NULL`,
			`UPDATE integrity_outbox SET next_attempt_at = ` + o.at(0) + `, state = 'pending' WHERE state = 'refused'`,
		} {
			result, err := tx.ExecContext(ctx, statement)
			if err == nil {
				n, err = result.RowsAffected()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, say.Errorf("outbox: retry: %w", err)
	}
	return n, nil
}

// Release ends all leases. Call it only if no worker of this outbox runs, for example at the start of a program that
// holds a lock on the database.
func (o *Outbox) Release(ctx context.Context) error {
	_, err := o.db.ExecContext(
		ctx, `UPDATE integrity_outbox SET lease_token = NULL, lease_until = NULL WHERE lease_token IS NOT NULL`,
	)
	if err != nil {
		return say.Errorf("outbox: %w", err)
	}
	return nil
}

// Listen calls wake for every transaction that adds rows, on PostgreSQL. It returns when ctx ends or the connection is
// lost. Other databases do not tell, so it returns nil at once.
func (o *Outbox) Listen(ctx context.Context, wake func()) error {
	if o.dialect.Name != PostgreSQL().Name {
		return nil
	}
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error {
		c := driver.(*stdlib.Conn).Conn()
		if _, err := c.Exec(ctx, "LISTEN integrity_outbox"); err != nil {
			return err
		}
		wake() // rows may have come before
		for {
			if _, err := c.WaitForNotification(ctx); err != nil {
				return errors.Join(err, c.Close(context.WithoutCancel(ctx))) // the pool must not use a connection that listens
			}
			wake()
		}
	})
}

// hasColumns reports whether the table has all columns.
func (o *Outbox) hasColumns(ctx context.Context) error {
	rows, err := o.db.QueryContext(ctx, `SELECT `+columns+`, lease_token, lease_until, public_id, verification_url, registered_at
		FROM integrity_outbox WHERE 1 = 0`)
	if err == nil {
		defer rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return say.Errorf("integrity_outbox is missing, or it is the table of another program or release: %w", err)
	}
	return nil
}

// Check tries, in a transaction that it rolls back, what the worker relies on: the columns and their defaults, texts
// that compare byte by byte, one row for each version, and declarations that do not change after they were sent.
func (o *Outbox) Check(ctx context.Context) error {
	if err := o.hasColumns(ctx); err != nil {
		return err
	}
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	const add = `INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
		VALUES ('integrity.check', 'integrity.check', '%s', 1, '%s', 0)`
	const of = ` WHERE company_reference = 'integrity.check' AND source = 'integrity.check'`
	name, sum := rand.Text(), strings.Repeat("0", 64)
	for _, step := range []struct {
		statement string
		works     bool
		wrong     error
	}{
		{fmt.Sprintf(add, name, sum), true, say.New("a row with only the required columns cannot be added")},
		{
			fmt.Sprintf(add, strings.ToLower(name), sum), true,
			say.New("the texts must compare byte by byte: a and A are two references"),
		},
		{
			fmt.Sprintf(add, name, sum), false,
			say.New("a unique index of company_reference, source, document_reference and version is missing"),
		},
		{`UPDATE integrity_outbox SET attempts = 1` + of, true, say.New("the columns of the worker cannot be written")},
		{
			`UPDATE integrity_outbox SET sha256 = '` + strings.Repeat("1", 64) + `'` + of, false,
			say.New("the trigger integrity_outbox_immutable is missing: a declaration that was sent can be changed"),
		},
	} {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT integrity_check"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, step.statement)
		end := "ROLLBACK TO SAVEPOINT integrity_check"
		switch {
		case err == nil && !step.works:
			return step.wrong
		case err != nil && step.works:
			return say.Errorf("%w: %w", step.wrong, err)
		case step.works:
			end = "RELEASE SAVEPOINT integrity_check"
		}
		if _, err := tx.ExecContext(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
