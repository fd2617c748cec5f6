package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/history"
)

// table is a projection in two copies, the live one and the rebuilt one. Rows are addressed by the primary key, whose
// first column is the shard; keys are passed as text.
type table struct {
	name          string
	live, rebuilt string   // quoted
	key           []string // columns of the primary key after shard
	types         []string // of the key columns
	all           string   // all columns, quoted
	byCompany     bool     // has no organization_id
	divided       bool     // among the parts of a check
}

const projectedTables = `SELECT c.relname, array_agg(a.attname ORDER BY k.n), array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.n),
		(SELECT string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum) FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attnum > 0 AND NOT o.attisdropped),
		NOT EXISTS (SELECT 1 FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attname = 'organization_id' AND NOT o.attisdropped)
	FROM pg_class c
	JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
	CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
	WHERE c.relnamespace = 'rebuild'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'progress' AND a.attname <> 'shard'
	GROUP BY c.oid, c.relname ORDER BY c.relname`

// projected lists the projections: the tables of the schema rebuild.
func projected(ctx context.Context, from history.Querier) ([]table, error) {
	rows, _ := from.Query(ctx, projectedTables) // CollectRows returns its error
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		err = row.Scan(&t.name, &t.key, &t.types, &t.all, &t.byCompany)
		t.live, t.rebuilt = pgx.Identifier{"public", t.name}.Sanitize(), pgx.Identifier{"rebuild", t.name}.Sanitize()
		_, t.divided = divided[t.name]
		for i := range t.key {
			t.key[i] = pgx.Identifier{t.key[i]}.Sanitize()
		}
		return t, err
	})
	if err != nil {
		return nil, say.Errorf("list the projections: %w", err)
	}
	return tables, nil
}

// columns returns the key columns, each between before and after.
func (t table) columns(before, after string) string {
	parts := make([]string, len(t.key))
	for i, k := range t.key {
		parts[i] = before + k + after
	}
	return strings.Join(parts, ", ")
}

// compare finds the differing rows of a projection, one range of keys after another, and repairs each range before it
// continues.
func (w *rebuilding) compare(ctx context.Context, t table) error {
	for from, last := []string(nil), false; !last; {
		var to []string
		var found []Difference
		err := w.inTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
			if err = w.catchUp(ctx, tx); err != nil {
				return err
			}
			// The connection's settings only allow lookups, but this is a full join.
			if _, err = tx.Exec(ctx, "SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"); err != nil {
				return err
			}
			f, err := w.filter(ctx, tx, t)
			if err != nil {
				return err
			}
			if to, err = w.boundary(ctx, tx, t, f, from); err != nil {
				return err
			}
			found, err = w.between(ctx, tx, t, f, from, to)
			return err
		})
		if err != nil {
			return say.Errorf("compare: %w", err)
		}
		w.result.Differences += int64(len(found))
		for _, d := range found {
			if w.Found != nil {
				w.Found(d)
			}
		}
		if !w.Check {
			if err := w.mendAll(ctx, t, found, w.MendRows); err != nil {
				return err
			}
		}
		from, last = to, to == nil
	}
	return w.mendDeferred(ctx, t)
}

// filter is a condition on the rows to compare. $1 is the shard.
type filter struct {
	sql  string
	args []any
}

func (w *rebuilding) filter(ctx context.Context, tx pgx.Tx, t table) (filter, error) {
	f := filter{"shard = $1", []any{w.shard}}
	if t.divided {
		f.sql += " AND " + w.part.rows(t.name)
	}
	switch {
	case w.Organization.IsZero():
	case t.byCompany:
		in := w.tables[slices.IndexFunc(w.tables, func(t table) bool { return t.name == "companies" })]
		rows, _ := tx.Query(ctx, fmt.Sprintf(`SELECT company_id FROM %s WHERE shard = $1 AND organization_id = $2
			UNION SELECT company_id FROM %s WHERE shard = $1 AND organization_id = $2`, in.live, in.rebuilt),
			w.shard, w.Organization)
		companies, err := pgx.CollectRows(rows, pgx.RowTo[domain.CompanyID])
		if err != nil {
			return f, err
		}
		f = filter{f.sql + " AND company_id = ANY($2)", append(f.args, companies)}
	default:
		f = filter{f.sql + " AND organization_id = $2", append(f.args, w.Organization)}
	}
	return f, nil
}

// beyond restricts a filter to the keys before or after one; a nil key does not restrict it.
func (f filter) beyond(t table, operator string, key []string) filter {
	if key == nil {
		return f
	}
	values := make([]string, len(key))
	args := append([]any(nil), f.args...)
	for i, v := range key {
		args = append(args, v)
		values[i] = fmt.Sprintf("$%d::text::%s", len(args), t.types[i])
	}
	return filter{fmt.Sprintf("%s AND (%s) %s (%s)", f.sql, t.columns("", ""), operator, strings.Join(values, ", ")), args}
}

// boundary returns the last key of the range after from, or nil if the range is the last.
func (w *rebuilding) boundary(ctx context.Context, tx pgx.Tx, t table, f filter, from []string) ([]string, error) {
	f = f.beyond(t, ">", from)
	rows, _ := tx.Query(ctx, fmt.Sprintf("SELECT ARRAY[%s] FROM %s r WHERE %s ORDER BY %s OFFSET %d LIMIT 1",
		t.columns("r.", "::text"), t.rebuilt, f.sql, t.columns("r.", ""), w.RangeRows-1), f.args...)
	key, err := pgx.CollectOneRow(rows, pgx.RowTo[[]string])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return key, err
}

// between returns the differences after one key, up to another, in order.
func (w *rebuilding) between(
	ctx context.Context, tx pgx.Tx, t table, f filter, from, to []string,
) ([]Difference, error) {
	f = f.beyond(t, ">", from).beyond(t, "<=", to)
	keys, joined := make([]string, len(t.key)), make([]string, len(t.key))
	for i, k := range t.key {
		keys[i] = fmt.Sprintf("coalesce(l.%[1]s, r.%[1]s)::text", k)
		joined[i] = fmt.Sprintf("l.%[1]s = r.%[1]s", k)
	}
	rows, _ := tx.Query(ctx, fmt.Sprintf(`SELECT ARRAY[%[1]s], l.shard IS NOT NULL, r.shard IS NOT NULL,
			ARRAY(SELECT a.key FROM jsonb_each(to_jsonb(l)) a JOIN jsonb_each(to_jsonb(r)) b ON b.key = a.key WHERE a.value <> b.value ORDER BY a.key)
		FROM (SELECT %[2]s FROM %[3]s WHERE %[5]s) l FULL JOIN (SELECT %[2]s FROM %[4]s WHERE %[5]s) r ON %[6]s
		WHERE l IS DISTINCT FROM r`,
		strings.Join(keys, ", "), t.all, t.live, t.rebuilt, f.sql, strings.Join(joined, " AND ")), f.args...)
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Difference, error) {
		d := Difference{Shard: w.shard, Projection: t.name, Key: map[string]string{}, Kind: DifferentRow, order: t.name}
		var key []string
		var live, rebuilt bool
		err := row.Scan(&key, &live, &rebuilt, &d.Columns)
		switch {
		case !live:
			d.Kind = MissingRow
		case !rebuilt:
			d.Kind = ExtraRow
		}
		for i, v := range key {
			d.Key[strings.Trim(t.key[i], `"`)] = v
			d.order += "\x00" + inOrder(v)
		}
		return d, err
	})
	slices.SortFunc(found, func(a, b Difference) int { return cmp.Compare(a.order, b.order) })
	return found, err
}

// inOrder returns a text that sorts as PostgreSQL sorts the value of a divided table's key, an id or a number.
func inOrder(value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	return fmt.Sprintf("%020d", uint64(n)+1<<63)
}

// mendAll repairs rows, at most most under each lock. A row with a unique value that another wrong row still has cannot
// be written. Halving the rows isolates it, and it is deferred to the end of the table.
func (w *rebuilding) mendAll(ctx context.Context, t table, rows []Difference, most int) error {
	for some := range slices.Chunk(rows, most) {
		err := w.mend(ctx, t, some)
		switch {
		case isUniqueViolation(err) && len(some) > 1:
			err = w.mendAll(ctx, t, some, (len(some)+1)/2)
		case isUniqueViolation(err):
			w.deferred, err = append(w.deferred, some...), nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mendDeferred repairs the rows whose unique values have become free, and finally, under one lock, the rows that hold
// each other's.
func (w *rebuilding) mendDeferred(ctx context.Context, t table) error {
	for len(w.deferred) > 0 {
		rows := w.deferred
		w.deferred = nil
		if err := w.mendAll(ctx, t, rows, w.MendRows); err != nil {
			return err
		}
		if len(w.deferred) < len(rows) {
			continue
		}
		w.deferred = nil
		err := w.mend(ctx, t, rows)
		if isUniqueViolation(err) && !w.Organization.IsZero() {
			return say.Errorf(
				"a wrong row of another organization has a unique value of %s: rebuild the whole shard: %w", rows[0], err,
			)
		}
		return err
	}
	return nil
}

func isUniqueViolation(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "23505"
}

// readByCursor reports whether a reader's cursor may have passed rows of a projection, or events that its rows show or
// hide. Such readers must be told of a mended row (eventstore.RaiseFeedEpoch), even if this process ends before it does
// so.
func readByCursor(table string) bool { return table == "feed" || table == "grants" }

// mend repairs rows from the log, under the shard's lock and at its head.
func (w *rebuilding) mend(ctx context.Context, t table, rows []Difference) error {
	if err := w.replay(ctx); err != nil { // leaves little to do under the lock
		return err
	}
	args := []any{w.shard}
	var unnested, equal []string
	for i, k := range t.key {
		values := make([]string, len(rows))
		for j, d := range rows {
			values[j] = d.Key[strings.Trim(k, `"`)]
		}
		args = append(args, values)
		unnested = append(unnested, fmt.Sprintf("unnest($%d::text[])::%s AS %s", len(args), t.types[i], k))
		equal = append(equal, fmt.Sprintf("t.%[1]s = u.%[1]s", k))
	}
	// LIMIT tells the planner that the list is short, OFFSET 0 that each row must be looked up (see loadOrganizations).
	keys := fmt.Sprintf("(SELECT %s LIMIT cardinality($2::text[])) u", strings.Join(unnested, ", "))
	var locked time.Time
	err := w.inTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		// Like a writer, a rebuild that freezes while it holds the lock loses it.
		if _, err := tx.Exec(
			ctx, "SET LOCAL synchronous_commit = on; SET LOCAL idle_in_transaction_session_timeout = '5s'",
		); err != nil {
			return err
		}
		if err := eventstore.LockHead(ctx, tx, w.shard); err != nil {
			return err
		}
		locked = time.Now()
		if err := w.catchUp(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("DELETE FROM %s t USING %s WHERE t.shard = $1 AND %s",
			t.live, keys, strings.Join(equal, " AND ")), args...); err != nil {
			return err
		}
		if readByCursor(t.name) {
			if _, err := tx.Exec(
				ctx, "UPDATE public.ledger SET feed_mending = true WHERE id = 1 AND NOT feed_mending",
			); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %[1]s (%[2]s) SELECT r.* FROM %[3]s
			JOIN LATERAL (SELECT %[2]s FROM %[4]s t WHERE t.shard = $1 AND %[5]s OFFSET 0) r ON true`,
			t.live, t.all, keys, t.rebuilt, strings.Join(equal, " AND ")), args...)
		return err
	})
	if !locked.IsZero() {
		w.result.LongestPause = max(w.result.LongestPause, time.Since(locked))
	}
	if err != nil {
		return say.Errorf("repair %d rows: %w", len(rows), err)
	}
	w.result.Mended += int64(len(rows))
	return nil
}

// String describes the difference to an operator.
func (d Difference) String() string { return d.Said().String() }

// Said is String in any language.
func (d Difference) Said() say.Sentence {
	text := say.Sentencef("shard %d %s: %s", d.Shard, d.Place(), d.Kind)
	if len(d.Columns) > 0 {
		text = say.Sentencef("%s in %s", text, strings.Join(d.Columns, ", "))
	}
	return text
}

// Place returns the table and the row's key.
func (d Difference) Place() string {
	text := d.Projection
	for _, k := range slices.Sorted(maps.Keys(d.Key)) {
		text += fmt.Sprintf(" %s=%s", k, d.Key[k])
	}
	return text
}
