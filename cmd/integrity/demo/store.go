package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"os"
	"path/filepath"
	"time"

	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/domain/say"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

//go:embed store.sql
var schema string

// open opens the data directory. Only one process at a time can open it.
func (s *System) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, deliveredDir), 0o700); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(filepath.Join(s.Dir, "origin.lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := system.Lock(s.lock, false); err != nil {
		return say.Errorf("another process is using %s: run only one per directory", s.Dir)
	}
	path := filepath.Join(s.Dir, "origin.db")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // created by SQLite, the file would be readable by others
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if s.db, err = clientcmd.OpenSQLite(ctx, path, schema); err != nil {
		return err
	}
	if s.outbox, err = outbox.New(ctx, s.db); err != nil {
		return err
	}
	if err := s.outbox.Release(ctx); err != nil { // the lock on the directory keeps other workers away
		return err
	}
	// identity is what all documents of a data directory share.
	type identity struct{ service, company, source, public string }
	about := identity{s.Client.BaseURL(), s.Company, s.Source, s.Public}
	if _, err := s.db.ExecContext(
		ctx, `INSERT INTO origin VALUES (1, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, about.service, about.company, about.source,
		about.public,
	); err != nil {
		return err
	}
	var known identity
	if err := s.db.QueryRowContext(
		ctx, `SELECT service, company, source, public FROM origin`,
	).Scan(&known.service, &known.company, &known.source, &known.public); err != nil {
		return err
	}
	if known != about {
		return say.Errorf(
			"the documents in %s belong to company %s and source %s at %s, downloaded from %s: use these values, or another "+
				"directory",
			s.Dir, known.company, known.source, known.service, known.public,
		)
	}
	return nil
}

// issued is a document in any state of its emission.
type issued struct {
	number      int
	reference   string
	version     int32
	token       string
	allocatedAt time.Time

	final       bool // the following fields are set
	sha256      string
	link        string // empty: emitted without a link
	finalizedAt time.Time
	deliveredAt time.Time // zero: not delivered yet
	pdf         []byte    // only if requested
}

const issuedColumns = `d.number, d.reference, d.version, d.token, d.allocated_at, f.sha256, f.verification_url, f.finalized_at, v.delivered_at`

const issuedTables = ` FROM documents d LEFT JOIN files f USING (number) LEFT JOIN deliveries v USING (number) `

func scanIssued(scan func(...any) error, more ...any) (issued, error) {
	var d issued
	var allocated int64
	var finalized, delivered sql.NullInt64
	var sum, link sql.NullString
	err := scan(append([]any{
		&d.number, &d.reference, &d.version, &d.token, &allocated, &sum, &link, &finalized, &delivered,
	}, more...)...)
	d.allocatedAt, d.final, d.sha256, d.link = time.UnixMilli(allocated).UTC(), sum.Valid, sum.String, link.String
	if finalized.Valid {
		d.finalizedAt = time.UnixMilli(finalized.Int64).UTC()
	}
	if delivered.Valid {
		d.deliveredAt = time.UnixMilli(delivered.Int64).UTC()
	}
	return d, err
}

// allocate finds the document with this number, or creates it. Its references never change.
func (s *System) allocate(ctx context.Context, number int, reference, token string, now time.Time) (issued, error) {
	_, err := s.db.ExecContext(ctx,
		`INSERT INTO documents (number, reference, version, token, allocated_at) VALUES (?, ?, 1, ?, ?) ON CONFLICT (number) DO NOTHING`,
		number, reference, token, now.UnixMilli())
	if err != nil {
		return issued{}, say.Errorf("allocate document %d: %w", number, err)
	}
	d, err := scanIssued(s.db.QueryRowContext(ctx, `SELECT `+issuedColumns+issuedTables+`WHERE d.number = ?`, number).Scan)
	if err != nil {
		return d, say.Errorf("read document %d: %w", number, err)
	}
	return d, nil
}

// commit is step 5: it stores the final bytes and the declaration together, or neither.
func (s *System) commit(ctx context.Context, d issued, declaration wire.Declaration) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	_, err = tx.ExecContext(ctx,
		`INSERT INTO files (number, pdf, sha256, verification_url, finalized_at) VALUES (?, ?, ?, ?, ?)`,
		d.number, d.pdf, d.sha256, d.link, d.finalizedAt.UnixMilli())
	if err == nil {
		err = s.outbox.Add(ctx, tx, declaration)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return say.Errorf("store document %d: %w", d.number, err)
	}
	return nil
}

// file reads the final bytes. It returns an error if they differ from the finalized ones.
func (s *System) file(ctx context.Context, where string, value any) (issued, error) {
	var pdf []byte
	d, err := scanIssued(
		s.db.QueryRowContext(ctx, `SELECT `+issuedColumns+`, f.pdf`+issuedTables+`WHERE `+where+` = ?`, value).Scan, &pdf,
	)
	if err != nil {
		return d, err
	}
	if !d.final {
		return d, sql.ErrNoRows
	}
	if hexSHA256(pdf) != d.sha256 {
		return d, say.Errorf("document %d differs from the finalized one: something else has changed the database", d.number)
	}
	d.pdf = pdf
	return d, nil
}

// last returns the highest document number, or 0 without documents. The numbers have no gaps.
func (s *System) last(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM documents`).Scan(&n)
	return n, err
}
