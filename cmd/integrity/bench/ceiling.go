package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const ceilingRows = 64

// The tables that a registration writes: in some it makes a row, in others every
// group changes one row or two. A test fails when the ledger writes others.
var (
	insertedTables = []string{"documents", "events", "feed", "versions"}
	updatedTables  = []string{"organization_state", "shard_heads", "usage"}
)

// ceiling is what PostgreSQL itself takes: its own pgbench puts 64 rows a transaction into every table and index that a
// registration writes, in a ledger of its own. The rows are copies of such that the ledger has written, with keys and
// hashes of their own; each client writes a shard of its own, so that none waits for another. Nothing is decided,
// signed, hashed or answered.
func (r *run) ceiling(ctx context.Context) (*contender, error) {
	c := &contender{name: ceiling, tries: []int{4, 8, sixteen}, unit: registrations}
	if r.Server == nil {
		c.missing = ownServerOnly
		return c, nil
	}
	program := r.Server.Program("pgbench")
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		c.missing = "pgbench is not installed beside PostgreSQL (Debian: it is part of postgresql-contrib or of the server package)"
		return c, nil
	}
	l, _, err := r.newDatabase(ctx, "ceiling", 1+sixteen) // an organization a shard; it goes with the server
	if err != nil {
		return nil, fmt.Errorf("database of the ceiling: %w", err)
	}
	r.closers = append(r.closers, func() error { l.close(ctx); return nil })
	script, err := l.ceilingScript(ctx)
	if err != nil {
		return nil, fmt.Errorf("database of the ceiling: %w", err)
	}
	path := r.file("ceiling.sql")
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
				"-D", fmt.Sprintf("n=%d000000000", rounds), "-f", path, l.url)
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

var pgbenchResult = regexp.MustCompile(`(?s)number of transactions actually processed: (\d+).*\ntps = ([0-9.]+)`)

func readPgbench(out string) (Round, error) {
	found := pgbenchResult.FindStringSubmatch(out)
	if found == nil {
		return Round{}, fmt.Errorf("pgbench: unexpected output: %.1000s", out)
	}
	transactions, _ := strconv.ParseInt(found[1], 10, 64) // digits
	perSecond, err := strconv.ParseFloat(found[2], 64)
	return Round{PerSecond: perSecond * ceilingRows, Done: transactions * ceilingRows}, err
}

// ceilingInsert is the statement that copies the samples of a table: keys and hashes are new, the rest is as the ledger
// wrote it. Ids are in the order of time, as a UUIDv7; the index of public ids is a random one.
const ceilingInsert = `SELECT format('INSERT INTO %1$I (%2$s) SELECT %3$s FROM sample_%1$s s;', $1::text, string_agg(quote_ident(attname), ', ' ORDER BY attnum),
	string_agg(CASE
		WHEN attname = 'shard' THEN ':shard'
		WHEN attname IN ('position', 'sequence') THEN ':n::bigint + s.i'
		WHEN attname = 'public_id' THEN 'gen_random_uuid()'
		WHEN attname = 'sha256' THEN 'sha256(int8send(:n::bigint + s.i))'
		WHEN attname = 'reference' THEN '''document-'' || (:n::bigint + s.i)'
		WHEN attname NOT IN ('id', 'event_id', 'record_id', 'document_id') THEN 's.' || quote_ident(attname)
		WHEN atttypid = 'uuid'::regtype THEN 'lpad(to_hex(:n::bigint + s.i), 32, ''0'')::uuid'
		ELSE '(:n::bigint + s.i)::' || atttypid::regtype END, ', ' ORDER BY attnum))
	FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`

// ceilingScript registers 64 documents in every shard but the first, which makes the rows that the script changes, and
// keeps those of shard 1 as samples, numbered i from 0.
func (l *lab) ceilingScript(ctx context.Context) (string, error) {
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		return "", err
	}
	defer stop()
	for _, o := range l.many {
		if err := l.register(ctx, ledger, o, ceilingRows); err != nil {
			return "", err
		}
	}
	script := fmt.Sprintf("\\set n :n + %d\n\\set shard :client_id + 1\nBEGIN;\n", ceilingRows)
	for _, table := range insertedTables {
		where := "shard = 1"
		if table == "events" {
			where += " AND type = 'integrity.registered'"
		}
		if err := l.exec(ctx, fmt.Sprintf("CREATE TABLE sample_%[1]s AS SELECT row_number() OVER () - 1 AS i, t.* FROM %[1]s t WHERE %[2]s LIMIT %[3]d",
			table, where, ceilingRows)); err != nil {
			return "", err
		}
		var insert string
		if err := l.owner.QueryRow(ctx, ceilingInsert, table).Scan(&insert); err != nil {
			return "", err
		}
		script += insert + "\n"
	}
	script += "UPDATE organization_state SET sequence = :n WHERE shard = :shard;\n" +
		"UPDATE usage SET used = used + 64 WHERE shard = :shard;\n" +
		"UPDATE shard_heads SET position = :n, occurred_at = now() WHERE shard = :shard;\nCOMMIT;\n"
	return script, l.vacuum(ctx)
}
