package clientcmd

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain/say"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// originColumns are the columns of the query whose rows are compared with the ledger, in any order.
var originColumns = []string{"company_reference", "source", "document_reference", "version", "sha256"}

// against compares a copy of a feed with the database of an origin. Each version is held in temporary tables of the
// copy's connection, which SQLite keeps on disk, so memory is bounded whatever both sides hold.
type against struct {
	query, database string
	csv             bool
}

// difference is a version that both sides do not declare alike. A side that lacks the version has no hash.
type difference struct {
	Difference        string  `json:"difference"` // missing in the ledger, missing at the origin, different
	CompanyReference  string  `json:"companyReference"`
	Source            string  `json:"source"`
	DocumentReference string  `json:"documentReference"`
	Version           int64   `json:"version"`
	Origin            *string `json:"originSha256"`
	Ledger            *string `json:"ledgerSha256"`
}

const (
	missingInLedger = "missing-in-ledger"
	missingAtOrigin = "missing-at-origin"
	differentHash   = "different"
)

// compared counts what against has compared. OtherCompanies are rows of companies whose feed the copy does not hold.
type compared struct {
	Origin         int64 `json:"originVersions"`
	Ledger         int64 `json:"ledgerVersions"`
	OtherCompanies int64 `json:"otherCompanies"`

	Missing   int64 `json:"missingInLedger"`
	Extra     int64 `json:"missingAtOrigin"`
	Different int64 `json:"different"`
}

// check requires both halves of the question.
func (q against) check() error {
	if (q.query == "") != (q.database == "") {
		return say.Errorf("--against and --database must be given together")
	}
	if q.csv && q.query == "" {
		return say.Errorf("--csv needs --against")
	}
	return nil
}

// run compares, and prints every difference. Any difference is an answer of no.
func (a *app) against(ctx context.Context, q against, c *sqliteCopy, company string, asJSON bool) error {
	n, err := c.takeOrigin(ctx, q, company)
	if err != nil {
		return err
	}
	if q.csv {
		if err := a.WriteRaw(wire.AppendCSV(nil, "difference", "company_reference", "source", "document_reference", "version",
			"origin_sha256", "ledger_sha256")); err != nil {
			return err
		}
	}
	if err := c.differences(ctx, func(d difference) error {
		switch d.Difference {
		case missingInLedger:
			n.Missing++
		case missingAtOrigin:
			n.Extra++
		default:
			n.Different++
		}
		switch {
		case asJSON:
			return cli.WriteJSON(a.Out, d, "")
		case q.csv:
			return a.WriteRaw(wire.AppendCSV(nil, d.Difference, d.CompanyReference, d.Source, d.DocumentReference,
				strconv.FormatInt(d.Version, 10), text(d.Origin), text(d.Ledger)))
		}
		document := documentName(company, d.CompanyReference, d.Source, d.DocumentReference)
		_, err := fmt.Fprintln(a.Out, a.difference(d, document))
		return err
	}); err != nil {
		return err
	}
	switch {
	case asJSON:
		err = cli.WriteJSON(a.Out, n, "")
	case !q.csv:
		_, err = fmt.Fprintln(a.Out, a.Sayf(
			"%d versions at the origin, %d in the ledger: %d missing in the ledger, %d missing at the origin, %d different",
			n.Origin, n.Ledger, n.Missing, n.Extra, n.Different,
		))
	}
	if n.OtherCompanies > 0 {
		_, _ = fmt.Fprintln(a.Errs, "integrity:", a.Sayf(
			"%d rows of other companies were not compared: compare them with copies of their feeds", n.OtherCompanies,
		))
	}
	if err == nil && n.Missing+n.Extra+n.Different > 0 {
		err = cli.NegativeError("")
	}
	return err
}

func (a *app) difference(d difference, document string) string {
	version := fmt.Sprintf("%s v%d", document, d.Version)
	switch d.Difference {
	case missingInLedger:
		return a.Sayf("missing in the ledger: %s, at the origin %s", version, *d.Origin)
	case missingAtOrigin:
		return a.Sayf("missing at the origin: %s, in the ledger %s", version, *d.Ledger)
	}
	return a.Sayf("different: %s, at the origin %s, in the ledger %s", version, *d.Origin, *d.Ledger)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// takeOrigin reads both sides into temporary tables: the versions of the copy, and the query's rows, of one company
// unless company is empty.
func (c *sqliteCopy) takeOrigin(ctx context.Context, q against, company string) (n compared, err error) {
	var unknown int64
	if _, err := c.db.ExecContext(ctx, `PRAGMA temp_store = FILE;
		CREATE TEMP TABLE ledger (company_reference TEXT, source TEXT, document_reference TEXT, version INTEGER, sha256 TEXT,
			PRIMARY KEY (company_reference, source, document_reference, version)) WITHOUT ROWID;
		CREATE TEMP TABLE origin (company_reference TEXT, source TEXT, document_reference TEXT, version INTEGER, sha256 TEXT,
			PRIMARY KEY (company_reference, source, document_reference, version, sha256)) WITHOUT ROWID;
		INSERT INTO ledger SELECT company_reference, source, document_reference, version, sha256 FROM versions`); err != nil {
		return n, err
	}
	if err := c.db.QueryRowContext(
		ctx, "SELECT count(*), count(*) - count(sha256) FROM ledger",
	).Scan(&n.Ledger, &unknown); err != nil {
		return n, err
	}
	if unknown > 0 {
		return n, say.Errorf(
			"the copy holds %d versions without SHA-256, from before the service sent it: read the feed again with --from-start",
			unknown,
		)
	}
	return n, c.transact(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, "INSERT INTO origin VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING")
		if err != nil {
			return err
		}
		defer insert.Close()
		if err := q.rows(ctx, func(row originRow) error {
			if company != "" && row.company != company {
				n.OtherCompanies++
				return nil
			}
			_, err := insert.ExecContext(ctx, row.company, row.source, row.document, row.version, row.sha256)
			return err
		}); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT count(*) FROM origin").Scan(&n.Origin)
	})
}

// differences reports in bytewise order of company, source, document and version. A version to which the query gives
// two hashes is different, whichever the ledger holds.
func (c *sqliteCopy) differences(ctx context.Context, report func(difference) error) (err error) {
	rows, err := c.db.QueryContext(ctx, `
		SELECT company_reference, source, document_reference, version, o.sha256, l.sha256 FROM origin o
			LEFT JOIN ledger l USING (company_reference, source, document_reference, version) WHERE l.sha256 IS NOT o.sha256
		UNION ALL SELECT company_reference, source, document_reference, version, NULL, sha256 FROM ledger l
			WHERE NOT EXISTS (SELECT 1 FROM origin o WHERE o.company_reference = l.company_reference AND o.source = l.source
				AND o.document_reference = l.document_reference AND o.version = l.version)
		ORDER BY 1, 2, 3, 4, 5`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var d difference
		if err := rows.Scan(
			&d.CompanyReference, &d.Source, &d.DocumentReference, &d.Version, &d.Origin, &d.Ledger,
		); err != nil {
			return err
		}
		switch {
		case d.Ledger == nil:
			d.Difference = missingInLedger
		case d.Origin == nil:
			d.Difference = missingAtOrigin
		default:
			d.Difference = differentHash
		}
		if err := report(d); err != nil {
			return err
		}
	}
	return rows.Err()
}

// originRow is a version as the origin stored it. The hash is in lower-case hexadecimal digits.
type originRow struct {
	company, source, document string
	version                   int64
	sha256                    string
}

// rows runs the query in a transaction that is rolled back, and takes each row.
func (q against) rows(ctx context.Context, take func(originRow) error) (err error) {
	db, _, err := outbox.OpenDatabase(ctx, q.database)
	if err != nil {
		return say.Errorf("--database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return say.Errorf("--database: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	rows, err := tx.QueryContext(ctx, q.query)
	if err != nil {
		return say.Errorf("--against: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return say.Errorf("--against: %w", err)
	}
	values := make([]any, len(names))
	targets := make([]any, len(names))
	index := map[string]int{}
	for i, name := range names {
		targets[i] = &values[i]
		index[strings.ToLower(name)] = i
	}
	for _, name := range originColumns {
		if _, ok := index[name]; !ok || len(names) != len(originColumns) {
			return say.Errorf(
				"--against: the query must return the columns %s, and no others", strings.Join(originColumns, ", "),
			)
		}
	}
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(targets...); err != nil {
			return say.Errorf("--against: row %d: %w", n, err)
		}
		column := func(name string) any { return values[index[name]] }
		row, err := newOriginRow(column)
		if err != nil {
			return say.Errorf("--against: row %d: %w", n, err)
		}
		if err := take(row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return say.Errorf("--against: %w", err)
	}
	return nil
}

func newOriginRow(column func(name string) any) (row originRow, err error) {
	for name, to := range map[string]*string{
		"company_reference": &row.company, "source": &row.source, "document_reference": &row.document,
	} {
		if *to = textOf(column(name)); *to == "" {
			return row, say.Errorf("%s must be a text that is not empty", name)
		}
	}
	switch v := column("version").(type) {
	case int64:
		row.version = v
	default:
		row.version, err = strconv.ParseInt(textOf(v), 10, 64)
	}
	if err != nil || row.version < 1 {
		return row, say.Errorf("version must be a whole number of at least 1")
	}
	stored := column("sha256")
	if raw, ok := stored.([]byte); ok && len(raw) == sha256.Size {
		row.sha256 = hex.EncodeToString(raw)
		return row, nil
	}
	row.sha256 = strings.ToLower(textOf(stored))
	if raw, err := hex.DecodeString(row.sha256); err != nil || len(raw) != sha256.Size {
		return row, say.Errorf("sha256 must be 64 hexadecimal digits or 32 bytes")
	}
	return row, nil
}

// textOf returns a text as any of the drivers gives it.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}
