package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	immudbSet256      = "immudb Set, c = 256"
	immudbSet64       = "immudb Set, c = 64"
	immudbSet1        = "immudb Set, one caller"
	immudbVerifiedSet = "immudb VerifiedSet"
	immudbGet         = "immudb Get"
	immudbVerifiedGet = "immudb VerifiedGet"
	tesseraSlow       = "Tessera, 1 s"
	tesseraFast       = "Tessera, 5 ms"
	tesseraPublished  = "Tessera, 5 ms, published"
	plainRows         = "pgbench, one row, one index"

	peersProgram  = "peers" // cmd/lab/peers, which is a module of its own
	immudbProgram = "immudb"

	peerBytes      = 900 // of an entry or row: about as large as the data of a registration's event
	longestPeers   = 30  // seconds of a round, whose latencies are one answer of the generator
	immudbSessions = 1000
)

// besidePeers matches the names of the contenders that a run with peers measures.
var besidePeers = regexp.MustCompile(
	"^(immudb|Tessera|pgbench|over HTTP|batch endpoint|public comparison|evidence|look-up|empty JSON)",
)

// checkPeers returns an error unless the directory has the programs.
func checkPeers(dir string) error {
	for _, program := range []string{peersProgram, immudbProgram} {
		if _, err := os.Stat(filepath.Join(dir, program)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf(`--peers must be a directory with the program %s: "make bench PEERS=1" builds it`, program)
		} else if err != nil {
			return fmt.Errorf("--peers: %w", err)
		}
	}
	return nil
}

// peers returns the contenders that are other products. Each starts when earlier work is finished.
func (r *run) peers(ctx context.Context) (list []*contender, err error) {
	if r.Peers == "" {
		return nil, nil
	}
	list, err = r.immudb(ctx)
	if err != nil {
		return nil, err
	}
	logs, err := r.tessera(ctx)
	if err != nil {
		return nil, err
	}
	plain, err := r.plainRows(ctx)
	if err != nil {
		return nil, err
	}
	list = append(append(list, logs...), plain)
	for _, c := range list {
		prepare := c.before
		c.before = func(ctx context.Context) (string, error) {
			if prepare != nil {
				if _, err := prepare(ctx); err != nil {
					return "", err
				}
			}
			return r.settle(ctx)
		}
	}
	return list, nil
}

// immudb starts a server with its default durability (synced), and a load generator with immudb's own client.
func (r *run) immudb(ctx context.Context) ([]*contender, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	server, err := r.startAt(ctx, address, "immudb", filepath.Join(r.Peers, immudbProgram), nil, []string{
		"--dir", r.file("immudb"), "--address", host, "--port", port, "--synced", "--max-sessions",
		strconv.Itoa(immudbSessions), "--pgsql-server=false", "--metrics-server=false", "--web-server=false",
	}, func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	generator, err := r.start(
		ctx, "immudb-load", filepath.Join(r.Peers, peersProgram), nil, "immudb", "--server", address, "--dir",
		r.file("immudb-clients"),
	)
	if err != nil {
		return nil, err
	}
	var list []*contender
	for _, c := range []struct {
		name, call string
		workers    int
	}{
		{immudbSet256, "Set", busyConcurrency}, {immudbSet64, "Set", 64}, {immudbSet1, "Set", 1},
		{immudbVerifiedSet, "VerifiedSet", 64},
		{immudbGet, "Get", readConcurrency}, {immudbVerifiedGet, "VerifiedGet", readConcurrency},
	} {
		unit := "requests"
		if strings.HasSuffix(c.call, "Set") {
			unit = "entries"
		}
		list = append(list, &contender{
			name: c.name, workers: c.workers, unit: unit, service: server, generator: generator, foreign: true,
			measure: func(ctx context.Context, workers int, duration time.Duration) (Round, error) {
				answer, err := fetch(ctx, fmt.Sprintf("%s/run?call=%s&c=%d&for=%s", generator.base, c.call, workers, duration))
				if err != nil {
					return Round{}, err
				}
				return readLatencies(answer)
			},
		})
	}
	return list, nil
}

// readLatencies reads the generator's answer.
func readLatencies(answer []byte) (Round, error) {
	var calls struct {
		Elapsed   time.Duration   `json:"elapsedNanoseconds"`
		Latencies []time.Duration `json:"latenciesNanoseconds"`
	}
	if err := json.Unmarshal(answer, &calls); err != nil {
		return Round{}, fmt.Errorf("load generator: %w: %.300s", err, answer)
	}
	return summary(calls.Latencies, int64(len(calls.Latencies)), calls.Elapsed)
}

// tessera starts two logs with different batch ages.
func (r *run) tessera(ctx context.Context) (list []*contender, err error) {
	for _, l := range []struct {
		name, age string
	}{{tesseraSlow, "1s"}, {tesseraFast, "5ms"}} {
		server, err := r.start(
			ctx, "tessera-"+l.age, filepath.Join(r.Peers, peersProgram), nil, "tessera", "--dir", r.file("tessera-"+l.age),
			"--batch-age", l.age,
		)
		if err != nil {
			return nil, err
		}
		adding := func(name, path string, workers int) *contender {
			return &contender{
				name: name, workers: workers, unit: "entries", service: server, foreign: true, method: http.MethodPost,
				want: http.StatusOK,
				fill: func(q *caller) {
					q.path, q.body = path, append(q.body[:0], make([]byte, peerBytes)...)
					_, _ = rand.Read(q.body) // never fails
				},
			}
		}
		for _, workers := range []int{busyConcurrency, 64, 1} {
			list = append(list, adding(atConcurrency(l.name, workers), "/add", workers))
		}
		if l.name == tesseraFast {
			list = append(list, adding(tesseraPublished, "/publish", busyConcurrency))
		}
	}
	return list, nil
}

func atConcurrency(name string, workers int) string {
	if workers == 1 {
		return name + ", one caller"
	}
	return fmt.Sprintf("%s, c = %d", name, workers)
}

// plainRows is a table with one index, into which pgbench inserts one row a transaction. Every round begins with the
// empty table.
func (r *run) plainRows(ctx context.Context) (*contender, error) {
	c := &contender{name: plainRows, workers: 64, unit: "rows"}
	program, missing := r.pgbenchProgram()
	if c.missing = missing; missing != "" {
		return c, nil
	}
	const database = "plain"
	if err := r.lab.exec(ctx, "CREATE DATABASE "+database); err != nil { // dropped with the server
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.Server.URL(database))
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return conn.Close(context.WithoutCancel(ctx)) })
	if _, err := conn.Exec(ctx, "CREATE TABLE entries (id uuid PRIMARY KEY, data text NOT NULL)"); err != nil {
		return nil, err
	}
	path, log := r.file("plain.sql"), r.file("plain-log")
	script := fmt.Sprintf("INSERT INTO entries VALUES (gen_random_uuid(), repeat('x', %d));\n", peerBytes)
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	c.before = func(ctx context.Context) (string, error) {
		_, err := conn.Exec(ctx, "TRUNCATE entries")
		return "", err
	}
	c.measure = func(ctx context.Context, workers int, duration time.Duration) (round Round, err error) {
		out, err := pgbench(
			ctx, program, workers, duration, "-l", "--log-prefix", log, "-f", path, r.Server.URL(database),
		)
		if err != nil {
			return Round{}, err
		}
		if round, err = readPgbench(out); err != nil {
			return round, err
		}
		files, err := filepath.Glob(log + ".*") // one of every thread
		if err != nil {
			return round, err
		}
		var calls []time.Duration
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err := errors.Join(err, os.Remove(file)); err != nil {
				return round, err
			}
			of, err := readPgbenchLog(string(text))
			if err != nil {
				return round, err
			}
			calls = append(calls, of...)
		}
		timed, err := summary(calls, round.Done, duration)
		timed.PerSecond = round.PerSecond
		return timed, err
	}
	return c, nil
}

// readPgbenchLog reads the transactions' times, which are the third column, in microseconds.
func readPgbenchLog(text string) (list []time.Duration, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("pgbench log: unexpected line: %.100q", line)
		}
		micros, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("pgbench log: %w", err)
		}
		list = append(list, time.Duration(micros)*time.Microsecond)
	}
	return list, nil
}

// peerGoals are the ratios to the peers. The targets are by the clock, because processor time buys other things from a
// peer (see doc.go).
func (r *run) peerGoals() (list []goal) {
	if r.Peers == "" {
		return nil
	}
	add := func(name, of, to string, target, moonshot float64) {
		name += " : " + to
		if target > 0 {
			name += ", by the clock"
		}
		list = append(list, goal{name, unitRatio, atLeast, target, moonshot, byClock(of, to)})
	}
	add("registration", httpBusy, immudbSet256, 0.9, 1)
	add("registration", httpLight, immudbSet64, 1.2, 1.5)
	add("registration", httpAlone, immudbSet1, 2, 4)
	add("look-up", lookups, immudbGet, 0.6, 1)
	add("registration", httpLight, immudbVerifiedSet, 0, 0)
	add("comparison", comparisons, immudbVerifiedGet, 0, 0)
	add("evidence", evidences, immudbVerifiedGet, 0, 0)
	for _, l := range []string{tesseraSlow, tesseraFast} {
		add("registration", httpBusy, atConcurrency(l, busyConcurrency), 0, 0)
		add("registration", httpLight, atConcurrency(l, 64), 0, 0)
		add("registration", httpAlone, atConcurrency(l, 1), 0, 0)
	}
	add("registration", httpBusy, tesseraPublished, 0, 0)
	add("registration", httpLight, plainRows, 0, 0)
	return list
}
