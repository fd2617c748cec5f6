package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/query"
)

const (
	emptyPOST   = "empty JSON POST"
	emptyGET    = "empty JSON GET"
	singleOne   = "group size one, 1 organization"
	singleMany  = "group size one, 16 organizations"
	ceiling     = "pgbench, same tables, no logic"
	groupsOne   = "in process, 1 organization"
	groupsMany  = "in process, 16 organizations"
	httpAlone   = "over HTTP, one caller"
	httpLight   = "over HTTP, latency"
	httpBusy    = "over HTTP, throughput"
	batches     = "batch endpoint, 500 a call"
	comparisons = "public comparison"
	evidences   = "evidence, a signature each"
	lookups     = "look-up by reference"
	records     = "record by public id"
	feedHTTP    = "feed over HTTP, pages of 1,000"
	feedSQL     = "the same pages by SQL"

	emptyCommand = "empty"

	busyConcurrency   = 256
	groupsConcurrency = 512 // the concurrency in the target for one busy organization
	readConcurrency   = 64
	readRecords       = 8192 // records that readers choose from
	batchSize         = 500
	pageSize          = 1000

	registrations = "registrations"
	recordsPath   = "/api/v1/integrity/records"
)

// contender is one way of doing work: in another process over HTTP (service), with a ledger in this process (ledger),
// or by a program that creates the load itself (measure).
type contender struct {
	name    string
	workers int
	tries   []int           // numbers of workers to try; the best is measured. Nil: use workers
	owners  []*organization // organizations to work for, in turn; nil: none
	unit    string
	missing string // why it cannot be measured
	// before prepares a round. It returns a note about anything that it could not do. Nil: no preparation.
	before func(context.Context) (note string, err error)

	call    operation
	measure func(ctx context.Context, workers int, duration time.Duration) (Round, error)
	ledger  bool
	weight  int // for a ledger: the maximum number of commands in a transaction; 0: the default

	service *child
	// generator creates the load in a process of its own, for measure; nil: this process or a child that has ended does
	generator *child
	foreign   bool // works without PostgreSQL, whose processor time and WAL are not counted
	method    string
	fill      func(*caller) // writes the next request's path, query and body
	want      int           // expected status
	mark      string        // text that the answer contains once per unit; empty: one unit, and no check
	units     int           // of an answer; 0: one
	seen      func(answer []byte)
}

func (c *contender) round(ctx context.Context, duration time.Duration) (Round, error) {
	if c.measure != nil {
		return c.measure(ctx, c.workers, duration)
	}
	return load{workers: c.workers, call: c.call}.lasting(ctx, duration)
}

// contenders returns the contenders that take turns.
func (r *run) contenders(ctx context.Context) ([]*contender, error) {
	empty, err := r.start(ctx, emptyCommand, r.Program, nil, emptyCommand)
	if err != nil {
		return nil, err
	}
	r.Progress("waiting for the transparency log") // then evidence includes an inclusion proof, which it never waits for
	if err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		left, err := r.lab.left(ctx)
		return left == "", err
	}); err != nil {
		return nil, err
	}
	readables, err := r.lab.readables(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := r.lab.pages(ctx)
	if err != nil {
		return nil, err
	}
	pgbench, err := r.ceiling(ctx)
	if err != nil {
		return nil, err
	}
	anyRecord := func() readable { return readables[rand.IntN(len(readables))] } //nolint:gosec // any record will do
	one, many := r.lab.one, r.lab.many
	// This contender has the machine to itself, with a warm connection and warm plans.
	alone := r.registering(r.service, httpAlone, 1, many)
	alone.before = func(ctx context.Context) (string, error) {
		note, err := r.settle(ctx)
		if err == nil {
			_, err = alone.round(ctx, r.Duration/8)
		}
		return note, err
	}
	list := []*contender{
		{name: emptyPOST, workers: busyConcurrency, unit: "requests", service: empty, method: http.MethodPost,
			want: http.StatusOK,
			fill: func(q *caller) { q.path, q.body = "/empty", append(q.body[:0], "{}"...) }},
		{name: emptyGET, workers: readConcurrency, unit: "requests", service: empty, method: http.MethodGet,
			want: http.StatusOK,
			fill: func(q *caller) { q.path = "/empty" }},
		// A separate transaction for each registration, at the best concurrency.
		{name: singleOne, tries: []int{1, 2, 4, 8, 32}, owners: one, unit: registrations, ledger: true, weight: 1},
		{name: singleMany, tries: []int{4, 8, 16, 32, 64}, owners: many, unit: registrations, ledger: true, weight: 1},
		pgbench,
		// Groups, as in the service.
		{name: groupsOne, workers: groupsConcurrency, owners: one, unit: registrations, ledger: true},
		{name: groupsMany, workers: groupsConcurrency, owners: many, unit: registrations, ledger: true},
		alone,
		r.registering(r.service, httpLight, 64, many),
		r.registering(r.service, httpBusy, busyConcurrency, many),
		r.batching(16, many),
		// The question that anyone may ask: does my file match?
		{name: comparisons, workers: readConcurrency, unit: "requests", service: r.service, method: http.MethodGet,
			want: http.StatusOK, mark: `"MATCH_CURRENT"`,
			fill: func(q *caller) {
				one := anyRecord()
				q.path, q.query = "/api/public/integrity/"+one.publicID, "sha256="+one.sha256
			}},
		// The private export, with a freshly signed observation and an inclusion proof.
		{name: evidences, workers: readConcurrency, owners: many, unit: "requests", service: r.service,
			method: http.MethodGet, want: http.StatusOK, mark: `"statusObservation":{`,
			fill: func(q *caller) {
				one := anyRecord()
				q.owner, q.path = one.owner, recordsPath+"/"+one.publicID+"/evidence"
			}, seen: func(answer []byte) {
				r.exports.Add(1)
				r.proofs.Add(int64(bytes.Count(answer, []byte(`"inclusion":{`))))
			}},
		r.reading(lookups, many, func(q *caller, one readable) {
			q.path = "/api/v1/integrity/lookup"
			q.query = "companyReference=" + company + "&source=" + origin + "&documentReference=" + one.reference + "&version=1"
		}, anyRecord),
		r.reading(records, many, func(q *caller, one readable) { q.path = recordsPath + "/" + one.publicID }, anyRecord),
		{name: feedHTTP, workers: 8, owners: many, unit: "events", service: r.service, method: http.MethodGet,
			want: http.StatusOK, mark: `"evt_`, units: pageSize,
			fill: func(q *caller) {
				p := pages[rand.IntN(len(pages))] //nolint:gosec // any page will do
				q.owner, q.path = p.owner, "/api/v1/integrity/changes"
				q.query = fmt.Sprintf("companyReference=%s&limit=%d&after=%d", company, pageSize, p.after)
			}},
		// The SQL statement behind the feed, whose rows are read and ignored.
		{name: feedSQL, workers: 8, owners: many, unit: "events", call: func(ctx context.Context, _ int) (int, error) {
			p := pages[rand.IntN(len(pages))] //nolint:gosec // any page will do
			rows, err := r.lab.read.Query(
				ctx, query.ChangesQuery, p.owner.id.Shard(), [16]byte(p.owner.company), p.after, pageSize,
			)
			if err != nil {
				return 0, err
			}
			rows.Close()
			err = rows.Err()
			if n := rows.CommandTag().RowsAffected(); err == nil && n != pageSize {
				err = fmt.Errorf("feed: %d rows in a page of %d", n, pageSize)
			}
			return pageSize, err
		}},
	}
	others, err := r.peers(ctx)
	if err != nil {
		return nil, err
	}
	list = append(list, others...)
	for _, c := range list {
		switch {
		case c.measure != nil:
		case c.service != nil:
			c.call = c.overHTTP()
		case c.ledger:
			ledger, stop, err := r.lab.open(ctx, c.weight)
			if err != nil {
				return nil, err
			}
			r.closers = append(r.closers, func() error { stop(); return nil })
			c.call = r.lab.registering(ledger, c.owners)
		}
	}
	return list, nil
}

// reading asks for a record of the caller's organization.
func (r *run) reading(
	name string, owners []*organization, ask func(*caller, readable), record func() readable,
) *contender {
	return &contender{
		name: name, workers: readConcurrency, owners: owners, unit: "requests", service: r.service,
		method: http.MethodGet, want: http.StatusOK, mark: `"status":"current"`,
		fill: func(q *caller) {
			one := record()
			q.owner = one.owner
			ask(q, one)
		},
	}
}

// registering registers through the service: authenticated with real keys, metered, parsed, decided, committed,
// answered. Status 201 shows that the document is new; a replay would be 200.
func (r *run) registering(service *child, name string, workers int, owners []*organization) *contender {
	c := &contender{
		name: name, workers: workers, owners: owners[:min(workers, len(owners))], unit: registrations, service: service,
		method: http.MethodPost, want: http.StatusCreated,
		fill: func(q *caller) { q.path, q.body = recordsPath, r.lab.appendDeclaration(q.body[:0]) },
	}
	c.call = c.overHTTP()
	return c
}

// batching registers through the batch endpoint.
func (r *run) batching(workers int, owners []*organization) *contender {
	c := &contender{
		name: batches, workers: workers, owners: owners, unit: registrations, service: r.service, method: http.MethodPost,
		want: http.StatusOK, mark: `{"status":201,`, units: batchSize,
		fill: func(q *caller) {
			q.path, q.body = recordsPath+"/batch", append(q.body[:0], `{"declarations":[`...)
			for range batchSize {
				q.body = append(r.lab.appendDeclaration(q.body), ',')
			}
			q.body = append(q.body[:len(q.body)-1], "]}"...)
		},
	}
	c.call = c.overHTTP()
	return c
}

// overHTTP makes one request per call, and counts acknowledged registrations.
func (c *contender) overHTTP() operation {
	client, units := newClient(c.service, c.workers), max(1, c.units)
	return func(ctx context.Context, worker int) (int, error) {
		q := &client.callers[worker]
		if len(c.owners) > 0 {
			q.owner = c.owners[worker%len(c.owners)]
		}
		c.fill(q)
		answer, err := client.send(ctx, worker, c.method, c.want)
		if err != nil {
			return 0, err
		}
		if n := bytes.Count(answer, []byte(c.mark)); c.mark != "" && n != units {
			return 0, fmt.Errorf("%s: the answer holds %s %d times, not %d: %.300s", c.name, c.mark, n, units, answer)
		}
		if c.seen != nil {
			c.seen(answer)
		}
		if c.unit == registrations {
			q.owner.acknowledged.Add(int64(units))
		}
		return units, nil
	}
}

// readable is a record that readers request.
type readable struct {
	publicID, sha256, reference string
	owner                       *organization
}

// readables are records of the sixteen organizations, from all over the ledger.
func (l *lab) readables(ctx context.Context) (list []readable, err error) {
	for _, o := range l.many {
		rows, err := l.read.Query(ctx,
			`SELECT v.public_id, v.sha256, d.reference FROM versions v
				JOIN documents d ON d.shard = v.shard AND d.document_id = v.document_id
				WHERE v.shard = $1 AND v.organization_id = $2 ORDER BY v.public_id LIMIT $3`,
			o.id.Shard(), [16]byte(o.id), readRecords/len(l.many))
		if err != nil {
			return nil, err
		}
		var id domain.PublicID
		var sum []byte
		var reference string
		if _, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &sum, &reference}, func() error {
			list = append(list, readable{id.String(), hex.EncodeToString(sum), reference, o})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// page is a full page of a feed: the events after a sequence.
type page struct {
	owner *organization
	after int64
}

// pages are full pages of the sixteen organizations' feeds.
func (l *lab) pages(ctx context.Context) (list []page, err error) {
	for _, o := range l.many {
		var events, first int64
		if err := l.read.QueryRow(ctx,
			`SELECT count(*), coalesce(min(sequence), 1) FROM feed WHERE shard = $1 AND company_id = $2`,
			o.id.Shard(), [16]byte(o.company)).Scan(&events, &first); err != nil {
			return nil, err
		}
		// After its first registration an organization has only registrations.
		for k := range events / pageSize {
			list = append(list, page{o, first - 1 + k*pageSize})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no feed has %d events", pageSize)
	}
	return list, nil
}

const ceilingRows = 64

// The tables that a registration writes. In some it inserts a row; in others every group updates one or two rows. A
// test fails if the ledger writes any other table.
var (
	insertedTables = []string{"documents", "events", "feed", "versions"}
	updatedTables  = []string{"organization_state", "shard_heads", "usage"}
)

// ceiling is the cost of PostgreSQL alone: pgbench inserts 64 rows per transaction into every table and index that a
// registration writes, in a separate ledger. The rows are copies of rows written by the ledger, with new keys and
// hashes. Each client writes to a separate shard, so clients do not wait for each other. Nothing is decided, signed,
// hashed or answered. Every round starts with the same rows, without dead rows, and after a checkpoint.
func (r *run) ceiling(ctx context.Context) (*contender, error) {
	c := &contender{name: ceiling, workers: min(sixteen, 4*runtime.NumCPU()), unit: registrations}
	program, missing := r.pgbenchProgram()
	if c.missing = missing; missing != "" {
		return c, nil
	}
	// One organization per shard. The database is dropped with the server
	l, _, err := r.newDatabase(ctx, "ceiling", 1+sixteen)
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
	// Every round empties the tables, which a trigger on events prevents. Autovacuum would affect only some rounds.
	if err := l.exec(ctx,
		"ALTER TABLE events DISABLE TRIGGER USER; ALTER TABLE "+strings.Join(
			insertedTables, " SET (autovacuum_enabled = off); ALTER TABLE ",
		)+
			" SET (autovacuum_enabled = off)"); err != nil {
		return nil, err
	}
	tables := strings.Join(insertedTables, ", ")
	c.before = func(ctx context.Context) (string, error) {
		if err := errors.Join(l.exec(ctx, "TRUNCATE "+tables), l.vacuum(ctx)); err != nil {
			return "", err
		}
		return r.settle(ctx)
	}
	rounds := 0
	c.measure = func(ctx context.Context, workers int, duration time.Duration) (Round, error) {
		rounds++
		// Every round counts from a different start.
		out, err := pgbench(ctx, program, workers, duration, "-D", fmt.Sprintf("n=%d000000000", rounds), "-f", path, l.url)
		if err != nil {
			return Round{}, err
		}
		round, err := readPgbench(out)
		round.PerSecond, round.Done = round.PerSecond*ceilingRows, round.Done*ceilingRows
		return round, err
	}
	return c, nil
}

// pgbench runs the program, which measures in whole seconds, and returns its output.
func pgbench(
	ctx context.Context, program string, workers int, duration time.Duration, args ...string,
) (string, error) {
	seconds := max(1, int((duration+time.Second/2)/time.Second))
	for {
		cmd := exec.CommandContext(ctx, program, append([]string{"-n", "-M", "prepared", "-c", strconv.Itoa(workers), //nolint:gosec // PostgreSQL's own pgbench
			"-j", strconv.Itoa(runtime.NumCPU()), "-T", strconv.Itoa(seconds)}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", errors.Join(ctx.Err(), fmt.Errorf("pgbench: %w: %.1000s", err, out))
		}
		if seconds >= 60 || !strings.Contains(string(out), "actually processed: 0\n") {
			return string(out), nil
		}
		seconds *= 4 // the machine was too busy for a single transaction
	}
}

var pgbenchResult = regexp.MustCompile(`(?s)number of transactions actually processed: (\d+).*\ntps = ([0-9.]+)`)

func readPgbench(out string) (Round, error) {
	found := pgbenchResult.FindStringSubmatch(out)
	if found == nil {
		return Round{}, fmt.Errorf("pgbench: unexpected output: %.1000s", out)
	}
	transactions, _ := strconv.ParseInt(found[1], 10, 64) // digits only
	perSecond, err := strconv.ParseFloat(found[2], 64)
	return Round{PerSecond: perSecond, Done: transactions}, err
}

// pgbenchProgram returns the program's path, or why it cannot be used.
func (r *run) pgbenchProgram() (program, missing string) {
	if r.Server == nil {
		return "", ownServerOnly
	}
	program = r.Server.Program("pgbench")
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return "", "pgbench is not installed beside PostgreSQL (Debian: it is part of postgresql-contrib or of the server " +
			"package)"
	}
	return program, ""
}

// ceilingInsert builds the statement that copies a table's samples, with new keys and hashes. IDs are in time order,
// like UUIDv7; the index of public IDs is in random order.
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

// ceilingScript registers 64 documents in every shard but the first, which creates the rows that the script updates,
// and keeps shard 1's documents as samples, numbered i from 0.
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
		if err := l.exec(ctx,
			fmt.Sprintf("CREATE TABLE sample_%[1]s AS SELECT row_number() OVER () - 1 AS i, t.* FROM %[1]s t WHERE %[2]s "+
				"LIMIT %[3]d",
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
