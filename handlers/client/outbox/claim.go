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

	"integrityledger/domain/say"
)

// release ends the lease of claimed rows.
func (o *Outbox) release(ctx context.Context, c claimed) error {
	_, err := o.db.ExecContext(ctx, o.dialect.bind(
		`UPDATE integrity_outbox`+o.dialect.byID+` SET lease_token = NULL, lease_until = NULL
		WHERE lease_token = ? AND id IN (`+ids(c.items)+`)`,
	), c.token)
	return err
}

// at is the expression of the time after d, by the clock of the database.
func (o *Outbox) at(d time.Duration) string {
	return o.dialect.at(strconv.FormatInt((o.skew + d).Milliseconds(), 10))
}

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

// claimable reads up to limit due rows of a lane in the order in which they were added.
func (o *Outbox) claimable(lane string, limit int) string {
	now := o.at(0)
	statement := `SELECT ` + columns + ` FROM integrity_outbox o WHERE ` + lane + `
		AND (next_attempt_at IS NULL OR next_attempt_at <= ` + now + `) AND (lease_until IS NULL OR lease_until <= ` + now + `)`
	if lane == toSend {
		statement += ` AND version = (SELECT min(p.version) FROM integrity_outbox p WHERE p.state = 'pending' AND ` + sameDocument + `)
			AND NOT EXISTS (SELECT 1 FROM integrity_outbox p WHERE p.state = 'pending' AND p.lease_until > ` + now + ` AND ` + sameDocument + `)`
	}
	return statement + ` ORDER BY id LIMIT ` + strconv.Itoa(limit) + o.dialect.skip
}

// claim takes up to limit due rows of a lane under a new token, in the order in which they were added. No claim reads
// while another writes: it could take a version of a document of which the other takes another one.
func (o *Outbox) claim(ctx context.Context, lane string, limit int) (items []Item, token string, err error) {
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
	if items, err = o.query(ctx, tx, o.claimable(lane, limit)); err != nil || len(items) == 0 {
		return nil, "", err
	}
	token = rand.Text()
	if _, err := tx.ExecContext(ctx, o.dialect.bind(
		`UPDATE integrity_outbox`+o.dialect.byID+` SET lease_token = ?, lease_until = `+o.leaseEnd()+`
		WHERE id IN (`+ids(items)+`)`,
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
		`UPDATE integrity_outbox`+o.dialect.byID+` SET sent_at = `+o.at(0)+`, attempts = attempts + 1, lease_until = `+o.leaseEnd()+`
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

// outcome is what save stores of a row. Its members are the columns that Dialect.update reads.
type outcome struct {
	ID        int64   `json:"s_id"`
	State     State   `json:"s_state"`
	Next      *int64  `json:"s_next"` // milliseconds from now; nil: never
	Code      *string `json:"s_code"`
	Problem   *string `json:"s_problem"`
	Sent      int     `json:"s_sent"`
	PublicID  *string `json:"s_public_id"`
	URL       *string `json:"s_url"`
	Record    *string `json:"s_record"`
	Evidence  *string `json:"s_evidence"`
	Completed int     `json:"s_complete"`
}

func (o *Outbox) outcomeOf(i Item) (json.RawMessage, error) {
	r := outcome{
		ID: i.ID, State: i.State, Code: text(i.Code), Problem: text(i.Problem), Evidence: text(string(i.Evidence)),
	}
	if i.next != nil {
		r.Next = new((o.skew + i.next.Round(time.Second/4)).Milliseconds())
	}
	if i.Sent {
		r.Sent = 1
	}
	if i.Complete {
		r.Completed = 1
	}
	if i.Record != nil {
		record, err := json.Marshal(i.Record)
		if err != nil {
			return nil, err
		}
		r.PublicID, r.URL, r.Record = text(i.Record.PublicID), text(i.Record.VerificationURL), text(string(record))
	}
	return json.Marshal(r)
}

// save stores the outcomes of rows in one transaction and ends their lease. It leaves rows alone that have another
// token: their lease has ended, and another worker has claimed them. It reports which rows it has stored.
func (o *Outbox) save(ctx context.Context, token string, items []Item) (stored []bool, err error) {
	stored = make([]bool, len(items))
	return stored, o.transact(ctx, func(tx *sql.Tx) error {
		ours, err := o.leased(ctx, tx, token, items)
		if err != nil {
			return err
		}
		var part []json.RawMessage
		size := 0
		for k, i := range items {
			if stored[k] = ours[i.ID]; !stored[k] {
				continue
			}
			row, err := o.outcomeOf(i)
			if err != nil {
				return err
			}
			if size += len(row); size > maxStatement && len(part) > 0 {
				if err := o.assign(ctx, tx, part); err != nil {
					return err
				}
				part, size = nil, len(row)
			}
			part = append(part, row)
		}
		if len(part) == 0 {
			return nil
		}
		return o.assign(ctx, tx, part)
	})
}

// maxStatement is the size of the outcomes in one statement, unless a single one is larger. It is less than the
// smallest limits of databases in use.
const maxStatement = 256 << 10

// assign stores outcomes.
func (o *Outbox) assign(ctx context.Context, tx *sql.Tx, outcomes []json.RawMessage) error {
	rows, err := json.Marshal(outcomes)
	if err != nil {
		return err
	}
	now := o.at(0)
	result, err := tx.ExecContext(ctx, o.dialect.bind(fmt.Sprintf(o.dialect.update,
		`state = s_state, next_attempt_at = `+o.dialect.at("s_next")+`, lease_token = NULL, lease_until = NULL,
			error_code = s_code, error_detail = s_problem, sent_at = CASE WHEN s_sent = 1 THEN sent_at END,
			public_id = coalesce(s_public_id, public_id), verification_url = coalesce(s_url, verification_url),
			record = coalesce(s_record, record), evidence = coalesce(s_evidence, evidence),
			registered_at = coalesce(registered_at, CASE WHEN s_record IS NOT NULL THEN `+now+` END),
			evidence_at = CASE WHEN s_complete = 1 THEN `+now+` ELSE evidence_at END`,
	)), string(rows))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(len(outcomes)) {
		return errors.Join(err, say.Errorf("the database stored %d of %d outcomes", n, len(outcomes)))
	}
	return nil
}

// leased returns the ids of the rows that still have the token. It locks only these rows.
func (o *Outbox) leased(ctx context.Context, tx *sql.Tx, token string, items []Item) (map[int64]bool, error) {
	rows, err := tx.QueryContext(ctx, o.dialect.bind(o.locking(items)), token)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ours := map[int64]bool{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ours[id] = true
	}
	return ours, rows.Err()
}

func (o *Outbox) locking(items []Item) string {
	return `SELECT id FROM integrity_outbox` + o.dialect.byID + ` WHERE lease_token = ? AND id IN (` + ids(items) + `)
		ORDER BY id` + o.dialect.keep
}

// text is the text of a column; an empty text is NULL. No database keeps a NUL in a text.
func text(t string) *string {
	if t == "" {
		return nil
	}
	return new(strings.ReplaceAll(t, "\x00", ""))
}
