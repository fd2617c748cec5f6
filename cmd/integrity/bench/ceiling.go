package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/migrations"
)

const (
	ceiling         = "pgbench, same tables, no logic"
	ceilingRows     = 64
	ceilingDatabase = "ceiling"
)

// The tables that a registration writes: in some it makes a row, in others every
// group changes one row or two. ceilingTables fails when the ledger writes others.
var (
	insertedTables = []string{"documents", "events", "feed", "versions"}
	updatedTables  = []string{"organization_state", "shard_heads", "usage"}
)

// ceiling is what PostgreSQL itself takes: its own pgbench puts 64 rows a transaction into every table and index that a
// registration writes, in a database of the same schema. The rows are copies of such that the ledger has written, with
// keys and hashes of their own; each client writes a shard of its own, so that none waits for another. Nothing is
// decided, signed, hashed or answered.
func (r *run) ceiling(ctx context.Context) (*contender, error) {
	c := &contender{name: ceiling, tries: []int{4, 8, 16}, unit: "registrations"}
	if r.Server == nil {
		c.missing = ownServerOnly
		return c, nil
	}
	program := r.Server.Program("pgbench")
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		c.missing = "pgbench is not installed beside PostgreSQL (Debian: it is part of postgresql-contrib or of the server package)"
		return c, nil
	}
	if err := r.lab.ceilingTables(ctx); err != nil {
		return nil, err
	}
	script, err := r.ceilingDatabase(ctx, slices.Max(c.tries))
	if err != nil {
		return nil, fmt.Errorf("database of the ceiling: %w", err)
	}
	path := filepath.Join(r.Dir, "ceiling.sql")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	rounds := 0
	c.measure = func(ctx context.Context, workers int, duration time.Duration) (Round, error) {
		rounds++
		// Every round counts on from a number of its own. pgbench knows whole seconds only.
		seconds := max(1, int((duration+time.Second/2)/time.Second))
		for {
			cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-c", strconv.Itoa(workers), "-j", "2", "-T", strconv.Itoa(seconds), //nolint:gosec // beside the server that we run
				"-D", fmt.Sprintf("n=%d000000000", rounds), "-f", path, r.Server.URL(ceilingDatabase))
			out, err := cmd.CombinedOutput()
			if err != nil {
				return Round{}, errors.Join(ctx.Err(), fmt.Errorf("pgbench: %w: %.1000s", err, out))
			}
			if seconds < 60 && strings.Contains(string(out), "actually processed: 0\n") { // on a machine that is too busy for one in the time
				seconds *= 4
				continue
			}
			return readPgbench(string(out))
		}
	}
	return c, nil
}

var (
	pgbenchDone = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	pgbenchRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
)

func readPgbench(out string) (Round, error) {
	done, rate := pgbenchDone.FindStringSubmatch(out), pgbenchRate.FindStringSubmatch(out)
	if done == nil || rate == nil {
		return Round{}, fmt.Errorf("pgbench: unexpected output: %.1000s", out)
	}
	transactions, err := strconv.ParseInt(done[1], 10, 64)
	if err != nil {
		return Round{}, err
	}
	perSecond, err := strconv.ParseFloat(rate[1], 64)
	return Round{PerSecond: perSecond * ceilingRows, Done: transactions * ceilingRows}, err
}

// ceilingTables compares the tables that the registrations so far have written with those of the ceiling: a table that
// the ledger writes and the ceiling does not would make the ceiling a wrong one.
func (l *lab) ceilingTables(ctx context.Context) error {
	// Far more than setting up has written, far fewer than there were registrations.
	const many = 10
	if _, err := l.read.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
		return err
	}
	rows, err := l.read.Query(ctx, `SELECT relname::text FROM pg_stat_user_tables
		WHERE schemaname = 'public' AND n_tup_ins + n_tup_upd > $1 ORDER BY 1`, many*(1+sixteen))
	if err != nil {
		return err
	}
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	want := slices.Sorted(slices.Values(slices.Concat(insertedTables, updatedTables)))
	// usage, state and heads: few groups have written them, if the preparation was short.
	for _, table := range written {
		if !slices.Contains(want, table) {
			return fmt.Errorf("a registration writes the table %s, which the ceiling does not: add it to ceiling.go", table)
		}
	}
	for _, table := range insertedTables {
		if !slices.Contains(written, table) {
			return fmt.Errorf("the ceiling writes the table %s, which a registration does not: remove it from ceiling.go", table)
		}
	}
	return nil
}

// ceilingDatabase makes the database with a row of each updated table for every
// client, and 64 sample rows of the others. It returns the script.
func (r *run) ceilingDatabase(ctx context.Context, clients int) (string, error) {
	if err := r.lab.exec(ctx, "CREATE DATABASE "+ceilingDatabase); err != nil {
		return "", err
	}
	url := r.Server.URL(ceilingDatabase)
	if err := migrations.Up(ctx, url); err != nil {
		return "", err
	}
	from, err := pgx.Connect(ctx, r.lab.url)
	if err != nil {
		return "", err
	}
	defer from.Close(context.WithoutCancel(ctx))
	to, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer to.Close(context.WithoutCancel(ctx))
	owner := r.lab.many[0]
	where := fmt.Sprintf("shard = %d AND organization_id = '%x'", owner.id.Shard(), [16]byte(owner.id))
	samples := map[string]string{
		"events":             where + " AND type = 'integrity.registered'",
		"documents":          where,
		"versions":           where,
		"feed":               fmt.Sprintf("shard = %d AND company_id = '%x'", owner.id.Shard(), [16]byte(owner.company)),
		"organization_state": where,
		"usage":              where,
		"shard_heads":        fmt.Sprintf("shard = %d", owner.id.Shard()),
	}
	var script strings.Builder
	fmt.Fprintf(&script, "\\set n :n + %d\nBEGIN;\n", ceilingRows)
	for _, table := range insertedTables {
		columns, err := copySample(ctx, from, to, table, samples[table])
		if err != nil {
			return "", err
		}
		names, values := make([]string, len(columns)), make([]string, len(columns))
		for i, c := range columns {
			names[i], values[i] = c.name, c.value()
		}
		fmt.Fprintf(&script, "INSERT INTO %s (%s) SELECT %s FROM sample_%s s;\n", table, strings.Join(names, ", "), strings.Join(values, ", "), table)
	}
	for _, table := range updatedTables {
		columns, err := copySample(ctx, from, to, table, samples[table])
		if err != nil {
			return "", err
		}
		names, values := make([]string, len(columns)), make([]string, len(columns))
		for i, c := range columns {
			names[i], values[i] = c.name, "s."+c.name
			if c.name == "shard" {
				values[i] = "client"
			}
		}
		if _, err := to.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM sample_%s s, generate_series(0, %d) AS client",
			table, strings.Join(names, ", "), strings.Join(values, ", "), table, clients-1)); err != nil {
			return "", err
		}
	}
	script.WriteString("UPDATE organization_state SET sequence = :n WHERE shard = :client_id;\n" +
		"UPDATE usage SET used = used + 64 WHERE shard = :client_id;\n" +
		"UPDATE shard_heads SET position = :n, occurred_at = now() WHERE shard = :client_id;\nCOMMIT;\n")
	_, err = to.Exec(ctx, "VACUUM (ANALYZE)")
	return script.String(), err
}

type ceilingColumn struct{ name, kind string }

// value makes keys and hashes new, and leaves the rest as the ledger wrote it.
func (c ceilingColumn) value() string {
	const number = ":n::bigint + s.i"
	switch c.name {
	case "shard":
		return ":client_id"
	case "position", "sequence":
		return number
	case "public_id":
		return "gen_random_uuid()" // its index is a random one
	case "sha256":
		return "sha256(int8send(" + number + "))"
	case "reference":
		return "'document-' || (" + number + ")"
	case "id", "event_id", "record_id", "document_id":
		if c.kind != "uuid" {
			return "(" + number + ")::" + c.kind
		}
		return "lpad(to_hex(" + number + "), 32, '0')::uuid" // in order of time, as a UUIDv7
	default:
		return "s." + c.name
	}
}

// copySample makes the table sample_… of up to 64 rows, numbered i from 0.
func copySample(ctx context.Context, from, to *pgx.Conn, table, where string) ([]ceilingColumn, error) {
	rows, err := to.Query(ctx, `SELECT a.attname::text, a.atttypid::regtype::text FROM pg_attribute a
		WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`, table)
	if err != nil {
		return nil, err
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ceilingColumn, err error) {
		return c, row.Scan(&c.name, &c.kind)
	})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	list := strings.Join(names, ", ")
	if _, err := to.Exec(ctx, fmt.Sprintf("CREATE TABLE sample_%[1]s AS SELECT %[2]s FROM %[1]s LIMIT 0; "+
		"ALTER TABLE sample_%[1]s ADD COLUMN i integer GENERATED ALWAYS AS IDENTITY (MINVALUE 0)", table, list)); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if _, err := from.PgConn().CopyTo(ctx, &data, fmt.Sprintf("COPY (SELECT %s FROM %s WHERE %s LIMIT %d) TO STDOUT", list, table, where, ceilingRows)); err != nil {
		return nil, err
	}
	tag, err := to.PgConn().CopyFrom(ctx, &data, fmt.Sprintf("COPY sample_%s (%s) FROM STDIN", table, list))
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("the ledger has no row of %s", table)
	}
	return columns, err
}
