package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain/say"
)

// release ends the lease of a claim.
func (o *Outbox) release(ctx context.Context, token string) error {
	_, err := o.db.ExecContext(ctx, o.dialect.bind(
		`UPDATE integrity_outbox SET lease_token = NULL, lease_until = NULL WHERE lease_token = ?`,
	), token)
	return err
}

// at is the expression of the time after d, by the clock of the database.
func (o *Outbox) at(d time.Duration) string { return o.dialect.at((o.skew + d).Milliseconds()) }

func (o *Outbox) leaseEnd() string {
	if o.Lease > 0 {
		return o.at(o.Lease)
	}
	return o.at(DefaultLease)
}

// Conditions for the rows of each lane. Each has an index.
const (
	toSend   = `state = 'pending' AND evidence_at IS NULL`
	toExport = `state = 'registered' AND evidence_at IS NULL AND next_attempt_at IS NOT NULL`
)

const sameDocument = `p.company_reference = o.company_reference AND p.source = o.source
	AND p.document_reference = o.document_reference`

// claim takes up to limit due rows of a lane under a new token, in the order in which they were added. No claim reads
// while another writes: it could take a version of a document of which the other takes another one.
func (o *Outbox) claim(ctx context.Context, lane string, limit int) (items []Item, token string, err error) {
	now := o.at(0)
	statement := `SELECT ` + columns + ` FROM integrity_outbox o WHERE ` + lane + `
		AND (next_attempt_at IS NULL OR next_attempt_at <= ` + now + `) AND (lease_until IS NULL OR lease_until <= ` + now + `)`
	if lane == toSend {
		statement += ` AND version = (SELECT min(p.version) FROM integrity_outbox p WHERE p.state = 'pending' AND ` + sameDocument + `)
			AND NOT EXISTS (SELECT 1 FROM integrity_outbox p WHERE p.state = 'pending' AND p.lease_until > ` + now + ` AND ` + sameDocument + `)`
	}
	statement += ` ORDER BY id LIMIT ` + strconv.Itoa(limit) + o.dialect.skip
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: o.dialect.isolation})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if o.dialect.lock != "" {
		var got sql.NullString
		if err := tx.QueryRowContext(ctx, o.dialect.lock).Scan(&got); err != nil {
			return nil, "", err
		}
		if o.dialect.unlock != "" {
			if got.String != "1" {
				return nil, "", say.New("another worker holds the lock of the outbox for a minute")
			}
			defer func() {
				if _, wrong := conn.ExecContext(context.WithoutCancel(ctx), o.dialect.unlock); wrong != nil && err == nil {
					err = wrong
				}
			}()
		}
	}
	if items, err = o.query(ctx, tx, statement); err != nil || len(items) == 0 {
		return nil, "", err
	}
	token = rand.Text()
	if _, err := tx.ExecContext(ctx, o.dialect.bind(
		`UPDATE integrity_outbox SET lease_token = ?, lease_until = `+o.leaseEnd()+` WHERE id IN (`+ids(items)+`)`,
	), token); err != nil {
		return nil, "", err
	}
	return items, token, tx.Commit()
}

func ids(items []Item) string {
	list := make([]string, len(items))
	for k, i := range items {
		list[k] = strconv.FormatInt(i.ID, 10)
	}
	return strings.Join(list, ",")
}

// due returns the wait until a row of a lane may be due, 0 or more; -1 means that the lane has no rows.
func (o *Outbox) due(ctx context.Context, lane string) (time.Duration, error) {
	// The end of a lease is later than the time at which the row became due.
	first := `min(CASE WHEN lease_until > ` + o.at(0) + ` THEN lease_until ELSE coalesce(next_attempt_at, ` + o.at(0) + `) END)`
	var ms sql.NullInt64
	if err := o.db.QueryRowContext(
		ctx, `SELECT `+fmt.Sprintf(o.dialect.wait, first, o.at(0))+` FROM integrity_outbox WHERE `+lane,
	).Scan(&ms); err != nil {
		return 0, err
	}
	if !ms.Valid {
		return -1, nil
	}
	return max(0, time.Duration(ms.Int64)*time.Millisecond), nil
}

// markSent notes that an attempt begins, and renews the lease. It returns the rows that still have the token.
func (o *Outbox) markSent(ctx context.Context, token string, items []Item) ([]Item, error) {
	result, err := o.db.ExecContext(ctx, o.dialect.bind(
		`UPDATE integrity_outbox SET sent_at = `+o.at(0)+`, attempts = attempts + 1, lease_until = `+o.leaseEnd()+`
		WHERE lease_token = ? AND id IN (`+ids(items)+`)`,
	), token)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err != nil || n == int64(len(items)) {
		return items, err
	}
	return o.query(ctx, o.db,
		`SELECT `+columns+` FROM integrity_outbox WHERE lease_token = ? AND id IN (`+ids(items)+`) ORDER BY id`, token)
}

// save stores the outcomes of rows in one transaction and ends their lease. It leaves rows alone that have another
// token: their lease has ended, and another worker has claimed them. It reports which rows it has stored.
func (o *Outbox) save(ctx context.Context, token string, items []Item) (stored []bool, err error) {
	stored = make([]bool, len(items))
	err = o.transact(ctx, func(tx *sql.Tx) error {
		for k, i := range items {
			next := "NULL"
			if i.next != nil {
				next = o.at(i.next.Round(time.Second / 4))
			}
			assignments := `state = ?, next_attempt_at = ` + next + `, lease_token = NULL, lease_until = NULL, error_code = ?, error_detail = ?`
			args := []any{string(i.State), text(i.Code), text(i.Problem)}
			if !i.Sent {
				assignments += `, sent_at = NULL`
			}
			if i.Record != nil {
				record, err := json.Marshal(i.Record)
				if err != nil {
					return err
				}
				assignments += `, public_id = ?, verification_url = ?, record = ?, registered_at = coalesce(registered_at, ` + o.at(0) + `)`
				args = append(args, i.Record.PublicID, i.Record.VerificationURL, string(record))
			}
			if i.Evidence != nil {
				assignments += `, evidence = ?`
				args = append(args, string(i.Evidence))
			}
			if i.Complete {
				assignments += `, evidence_at = ` + o.at(0)
			}
			result, err := tx.ExecContext(
				ctx, o.dialect.bind(`UPDATE integrity_outbox SET `+assignments+` WHERE id = ? AND lease_token = ?`),
				append(args, i.ID, token)...,
			)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return err
			}
			stored[k] = n == 1
		}
		return nil
	})
	return stored, err
}

// text is the text of a column; an empty text is NULL.
func text(t string) sql.NullString { return sql.NullString{String: t, Valid: t != ""} }
