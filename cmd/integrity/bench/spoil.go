package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"integrityledger/projections"
)

// everywhere are projections of which rows of every organization are spoiled: the
// load does not come back to those. Of the others only organizations that do
// nothing meanwhile are, because spoiling the keys of a busy organization would stop the load.
var everywhere = []string{"documents", "feed", "versions"}

// spoil makes 6 of 100 rows of each projection wrong: a third of them is taken away, in a third one column is changed,
// and a third are further rows that no event gave. Two versions get each other's publicId. It returns how many rows are
// wrong, and in how many projections.
func (l *lab) spoil(ctx context.Context) (rows int64, projected int, err error) {
	names, err := projections.Projections(ctx, l.read)
	if err != nil {
		return 0, 0, err
	}
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, name := range names {
		var n int64
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			n, err = l.spoilTable(ctx, tx, name)
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("spoil %s: %w", name, err)
		}
		if rows += n; n > 0 {
			projected++
		}
	}
	return rows, projected, nil
}

// spoiledColumns are a table's columns, whether each is in a unique index and how it is made another.
const spoiledColumns = `SELECT quote_ident(a.attname),
		EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY(i.indkey::int2[])),
		coalesce(format(CASE format_type(a.atttypid, a.atttypmod)
			WHEN 'boolean' THEN 'NOT %1$I' WHEN 'smallint' THEN '%1$I + 1' WHEN 'integer' THEN '%1$I + 1' WHEN 'bigint' THEN '%1$I + 1000000000'
			WHEN 'text' THEN '%1$I || gen_random_uuid()::text' WHEN 'bytea' THEN E'%1$I || ''\\x00''::bytea' WHEN 'uuid' THEN 'gen_random_uuid()'
			WHEN 'timestamp with time zone' THEN '%1$I + interval ''1 hour''' END, a.attname), '')
	FROM pg_attribute a WHERE a.attrelid = format('public.%I', $1::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'shard'
	ORDER BY a.attnum`

func (l *lab) spoilTable(ctx context.Context, tx pgx.Tx, name string) (wrong int64, err error) {
	type column struct {
		name   string
		unique bool
		other  string // an expression; empty: left alone
	}
	found, err := tx.Query(ctx, spoiledColumns, name)
	if err != nil {
		return 0, err
	}
	columns, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (c column, err error) {
		return c, row.Scan(&c.name, &c.unique, &c.other)
	})
	if err != nil {
		return 0, err
	}
	table := pgx.Identifier{"public", name}.Sanitize()
	where := "true"
	if !slices.Contains(everywhere, name) {
		where = "company_id = ANY($2)"
		if slices.ContainsFunc(columns, func(c column) bool { return c.name == "organization_id" }) {
			where = "organization_id = ANY($1)"
		}
	}
	var organizations, companies [][16]byte
	for _, o := range l.quiet() {
		organizations, companies = append(organizations, o.id), append(companies, o.company)
	}
	// A row's i is where it stands in a random order; of the first n some are taken away, of the second changed, of the
	// third copied.
	picks := `CREATE TEMPORARY TABLE picks ON COMMIT DROP AS SELECT ctid AS place, row_number() OVER (ORDER BY md5(ctid::text)) AS i
		FROM ` + table + ` WHERE ` + where
	// CREATE TABLE AS takes no parameters.
	picks = strings.NewReplacer("$1", uuids(organizations), "$2", uuids(companies)).Replace(picks)
	tag, err := tx.Exec(ctx, picks)
	if err != nil || tag.RowsAffected() == 0 {
		return 0, err
	}
	n := max(1, tag.RowsAffected()/50)
	exec := func(sql string, args ...any) error {
		tag, err := tx.Exec(ctx, sql, args...)
		wrong += tag.RowsAffected()
		return err
	}
	if name == "versions" {
		if err := swapPublicIDs(ctx, tx, 3*n); err != nil {
			return 0, err
		}
		wrong += 2
	}
	var all, copied []string
	var changed []column
	for _, c := range columns {
		value := c.name
		if c.unique && c.other != "" {
			value = c.other
		}
		all, copied = append(all, c.name), append(copied, value)
		if !c.unique && c.other != "" {
			changed = append(changed, c)
		}
	}
	err = exec(fmt.Sprintf("INSERT INTO %s (shard, %s) SELECT shard, %s FROM %s t JOIN picks ON place = t.ctid WHERE i > 2 * $1::bigint AND i <= 3 * $1::bigint",
		table, strings.Join(all, ", "), strings.Join(copied, ", "), table), n)
	if err != nil {
		return 0, err
	}
	for k, c := range changed {
		err := exec(fmt.Sprintf("UPDATE %s t SET %[2]s = %[3]s FROM picks WHERE place = t.ctid AND i > $1::bigint AND i <= 2 * $1::bigint AND i %% $2::bigint = $3::bigint AND %[2]s IS NOT NULL",
			table, c.name, c.other), n, len(changed), k)
		if err != nil {
			return 0, err
		}
	}
	return wrong, exec("DELETE FROM "+table+" t USING picks WHERE place = t.ctid AND i <= $1::bigint", n)
}

// busy are those of the sixteen that register while rows are wrong, quiet the others.
func (l *lab) busy() []*organization  { return l.many[:sixteen/2] }
func (l *lab) quiet() []*organization { return l.many[sixteen/2:] }

func uuids(list [][16]byte) string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = fmt.Sprintf("%x", id)
	}
	return "'{" + strings.Join(texts, ",") + "}'::uuid[]"
}

// swapPublicIDs gives the two next picks of a shard each other's publicId, which is unique.
func swapPublicIDs(ctx context.Context, tx pgx.Tx, after int64) error {
	rows, err := tx.Query(ctx, "SELECT t.public_id FROM public.versions t JOIN picks ON place = t.ctid WHERE i > $1 AND t.shard = 0 ORDER BY i LIMIT 2", after)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil {
		return err
	}
	if len(ids) != 2 {
		return errors.New("there are too few versions to swap two")
	}
	for _, set := range [][2][16]byte{{ids[0], {1}}, {ids[1], ids[0]}, {{1}, ids[1]}} {
		if _, err := tx.Exec(ctx, "UPDATE public.versions SET public_id = $2 WHERE shard = 0 AND public_id = $1", set[0], set[1]); err != nil {
			return err
		}
	}
	return nil
}
