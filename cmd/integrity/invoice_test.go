package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/client/outbox/outboxtest"
)

// invoiceSample is a program of the page about the outbox, which makes the invoices up to a number.
type invoiceSample struct {
	name    string // the source of its declarations
	file    string
	address string // of its database, for the worker
	native  string // the same, as the language writes it
	build   []string
	run     []string
	dir     string
}

// driversOfJava are the JDBC driver of MariaDB and its access to Unix sockets, as Debian installs them.
const driversOfJava = "/usr/share/java/mariadb-java-client.jar:/usr/share/java/jna.jar"

// samplesOfInvoices builds each program in a directory of its own, beside a database of its own.
func samplesOfInvoices(t *testing.T, maria *outboxtest.MariaDB, forPython, forNode string) []*invoiceSample {
	t.Helper()
	tool(t, "php", "-r", `exit(extension_loaded("pdo_mysql") ? 0 : 1);`)
	for _, name := range []string{"npm", "javac", "mcs"} {
		tool(t, name, "--version")
	}
	for jar := range strings.SplitSeq(driversOfJava, ":") {
		tool(t, "test", "-e", jar)
	}
	python := t.TempDir()
	pythonWith(t, python, "psycopg2")
	forPHP, forJava := maria.Database("php"), maria.Database("java")
	file := write(t, filepath.Join(t.TempDir(), "billing.db"), "")
	samples := []*invoiceSample{
		{
			name: "php", file: "invoice.php", address: forPHP, run: []string{"php", "invoice.php"},
			native: "mysql:dbname=php;user=root;unix_socket=" + maria.Socket(),
		},
		{
			name: "python", file: "invoice.py", address: forPython, native: forPython,
			run: []string{filepath.Join(python, "python3"), "invoice.py"},
		},
		{
			name: "node", file: "invoice.mjs", address: forNode, native: forNode,
			build: []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"},
			run:   []string{"node", "invoice.mjs"},
		},
		{
			name: "java", file: "Invoice.java", address: forJava,
			native: "jdbc:mariadb://localhost/java?user=root&localSocket=" + maria.Socket(),
			build:  []string{"javac", "Invoice.java"}, run: []string{"java", "-cp", driversOfJava + ":.", "Invoice"},
		},
		{
			name: "csharp", file: "Invoice.cs", address: "sqlite:" + file, native: "Data Source=" + file,
			build: []string{"mcs", "-r:System.Data.dll", "-r:Mono.Data.Sqlite.dll", "Invoice.cs"},
			run:   []string{"mono", "Invoice.exe"},
		},
	}
	for _, i := range samples {
		i.dir = t.TempDir()
		from := []string{filepath.Join("../../handlers/web/templates/samples/outbox/invoice", i.file)}
		if i.name == "node" {
			from = append(from, "testdata/invoice/package.json", "testdata/invoice/package-lock.json")
		}
		for _, path := range from {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(i.dir, filepath.Base(path)), string(text))
		}
		if i.build == nil {
			continue
		}
		build := exec.Command(i.build[0], i.build[1:]...)
		build.Dir = i.dir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", i.build, err, out)
		}
	}
	return samples
}

// command makes the invoices of a company up to n.
func (i *invoiceSample) command(ctx context.Context, company string, n int) *exec.Cmd {
	c := exec.CommandContext(ctx, i.run[0], append(slices.Clone(i.run[1:]), strconv.Itoa(n))...)
	c.Dir = i.dir
	c.Env = cleanEnviron("INVOICE_DATABASE="+i.native, config.Prefix+"COMPANY="+company)
	return c
}

// cancelled reports whether the programs roll an invoice back.
func cancelled(number int) bool { return number%100 == 50 }

func versionOfInvoice(number int) string { return fmt.Sprintf("invoice-%d v1", number) }

// runSample starts the program of a sample until it ends in order, as systemd would. A death at 7.4 comes after the
// seventh invoice and two fifths of the time that it took: the programs print each invoice after its commit.
func (o *origin) runSample(ctx context.Context, company string, n int, inserted func()) error {
	log, err := os.OpenFile(o.logs, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		program := o.sample.command(ctx, company, n)
		program.Stderr = log
		out, err := program.StdoutPipe()
		if err == nil {
			err = program.Start()
		}
		if err != nil {
			return err
		}
		began := time.Now()
		for lines := bufio.NewScanner(out); lines.Scan(); inserted() {
			o.acknowledged[lines.Text()+" v1"] = true
			took := time.Since(began)
			began = time.Now()
			if len(o.deaths) == 0 || float64(len(o.acknowledged)) < math.Floor(o.deaths[0]) {
				continue
			}
			_, part := math.Modf(o.deaths[0])
			_ = wait.For(ctx, time.Duration(part*float64(took))) // CommandContext kills it when ctx ends
			o.t.Logf("killing the program (%s)", o.name)
			_ = program.Process.Kill() // it may have ended
			o.deaths = o.deaths[1:]
		}
		if program.Wait() == nil {
			break
		}
		// It was killed, or its predecessor's transaction was still being committed.
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	// A program that was killed between a commit and its line has printed one less.
	for number := 1; number <= n; number++ {
		to := o.acknowledged
		if cancelled(number) {
			to = o.rolledBack
		}
		to[versionOfInvoice(number)] = true
	}
	return nil
}

// wantInvoices compares the invoices of a program's own table with the committed rows of the outbox: hashes by version.
func wantInvoices(t *testing.T, db *sql.DB, committed map[string]string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT number, pdf FROM invoices`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	left := maps.Clone(committed)
	for rows.Next() {
		var number int
		var pdf []byte
		if err := rows.Scan(&number, &pdf); err != nil {
			t.Fatal(err)
		}
		version, hash := versionOfInvoice(number), fmt.Sprintf("%x", sha256.Sum256(pdf))
		if left[version] != hash {
			t.Errorf("%s has the hash %s, in the outbox %q", version, hash, committed[version])
		}
		delete(left, version)
	}
	if err := rows.Err(); err != nil || len(left) > 0 {
		t.Errorf("rows of the outbox without an invoice: %v, %v", left, err)
	}
}

// TestInvoiceSamples runs the programs of the page about the outbox, one in each language, twice. The second run goes on
// after the last invoice of the first.
func TestInvoiceSamples(t *testing.T) {
	t.Parallel()
	for _, i := range samplesOfInvoices(t, outboxtest.NewMariaDB(t), pgtest.New(t), pgtest.New(t)) {
		t.Run(i.name, func(t *testing.T) {
			must(t, []string{"INTEGRITY_OUTBOX_DATABASE=" + i.address}, "outbox", "install", "--apply")
			db, _, err := outbox.OpenDatabase(t.Context(), i.address)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, upTo := range []int{20, 60} {
				if out, err := i.command(t.Context(), "c-1", upTo).CombinedOutput(); err != nil {
					t.Fatalf("up to %d: %v\n%s", upTo, err, out)
				}
				committed := map[string]string{}
				if err := outbox.Read(t.Context(), db, func(row outbox.Item) error {
					d := row.Declaration
					committed[fmt.Sprintf("%s v%d", d.DocumentReference, d.Version)] = d.SHA256
					return outbox.Validate(d)
				}); err != nil {
					t.Error(err)
				}
				for number := 1; number <= upTo; number++ {
					if found := committed[versionOfInvoice(number)] != ""; found == cancelled(number) {
						t.Errorf("invoice %d is in the outbox: %v", number, found)
					}
				}
				wantInvoices(t, db, committed)
			}
		})
	}
}

// TestInvoiceSamplesSurviveKills kills the programs of the page about the outbox too, beside workers, databases and the
// service.
func TestInvoiceSamplesSurviveKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills everything for a while")
	}
	t.Parallel()
	maria := outboxtest.NewMariaDB(t)
	forPython, losePython := mortalPostgres(t)
	forNode, loseNode := mortalPostgres(t)
	lose := map[string]func(){"php": maria.Lose, "python": losePython, "node": loseNode} // Java has the MariaDB of PHP
	var origins []*origin
	for _, i := range samplesOfInvoices(t, maria, forPython, forNode) {
		origins = append(origins, &origin{name: i.name, address: i.address, lose: lose[i.name], sample: i})
	}
	surviveKills(t, 60, origins)
}
