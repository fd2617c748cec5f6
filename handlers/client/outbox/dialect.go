package outbox

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"integrityledger/domain/say"
)

// Dialect holds the texts and statements that differ between databases.
type Dialect struct {
	Name string
	// DDL creates the table, in the language of the database's own client.
	DDL string

	at     func(ms string) string // the expression of the database's clock plus a number of milliseconds
	wait   string                 // the milliseconds from %[2]s, the clock, to the time %[1]s
	lock   string                 // takes the lock of a claim, in its transaction; empty: transactions are serial
	unlock string                 // releases it after the commit; empty: the end of the transaction does
	skip   string                 // locks the rows that a claim reads, and skips rows that others have locked
	keep   string                 // locks the rows that a statement reads
	byID   string                 // reads rows by their ids, and locks no others, however small the table is
	update string                 // assigns %s in the rows that a JSON array of outcomes names (the type outcome)
	number bool                   // placeholders are $1, $2, …
	// isolation is the level at which a claim sees every row committed before the claim took the lock, and at which no
	// gap between rows is locked.
	isolation sql.IsolationLevel
}

//go:embed postgres.sql
var postgresDDL string

//go:embed mariadb.sql
var mariadbDDL string

//go:embed sqlite.sql
var sqliteDDL string

// PostgreSQL is the dialect of PostgreSQL 14 and newer.
func PostgreSQL() Dialect {
	return Dialect{
		Name: "PostgreSQL", DDL: postgresDDL, number: true, isolation: sql.LevelReadCommitted,
		skip: " FOR UPDATE SKIP LOCKED", keep: " FOR UPDATE",
		at:   func(ms string) string { return "(clock_timestamp() + " + ms + " * interval '1 millisecond')" },
		wait: "CAST(extract(epoch FROM %s - %s) * 1000 AS bigint)",
		// A claim reads the index of pending rows from its beginning. Without statistics of a table that was just filled,
		// the planner would look at all rows and sort them.
		lock: "SELECT pg_advisory_xact_lock(hashtext('integrity_outbox')) FROM set_config('enable_sort', 'off', true) a, " +
			"set_config('enable_bitmapscan', 'off', true) b, set_config('enable_seqscan', 'off', true) c",
		update: `UPDATE integrity_outbox SET %s FROM json_to_recordset(CAST(? AS json)) AS s (s_id bigint, s_state text,
			s_next bigint, s_code text, s_problem text, s_sent integer, s_public_id text, s_url text, s_record text,
			s_evidence text, s_complete integer) WHERE id = s_id`,
	}
}

// MariaDB is the dialect of MariaDB 10.6 and newer.
func MariaDB() Dialect {
	return Dialect{
		Name: "MariaDB", DDL: mariadbDDL, skip: " FOR UPDATE SKIP LOCKED", isolation: sql.LevelReadCommitted,
		keep:   " FOR UPDATE",
		byID:   " FORCE INDEX (PRIMARY)",
		at:     func(ms string) string { return "(UTC_TIMESTAMP(3) + INTERVAL (" + ms + " * 1000) MICROSECOND)" },
		wait:   "TIMESTAMPDIFF(MICROSECOND, %[2]s, %[1]s) DIV 1000",
		lock:   "SELECT GET_LOCK(CONCAT('integrity_outbox.', SHA1(DATABASE())), 60)",
		unlock: "SELECT RELEASE_LOCK(CONCAT('integrity_outbox.', SHA1(DATABASE())))",
		update: `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (s_id bigint PATH '$.s_id', s_next bigint PATH '$.s_next',
			s_sent integer PATH '$.s_sent', s_complete integer PATH '$.s_complete',
			s_state mediumtext CHARACTER SET utf8mb4 PATH '$.s_state',
			s_code mediumtext CHARACTER SET utf8mb4 PATH '$.s_code',
			s_problem mediumtext CHARACTER SET utf8mb4 PATH '$.s_problem',
			s_public_id mediumtext CHARACTER SET utf8mb4 PATH '$.s_public_id',
			s_url mediumtext CHARACTER SET utf8mb4 PATH '$.s_url',
			s_record mediumtext CHARACTER SET utf8mb4 PATH '$.s_record',
			s_evidence mediumtext CHARACTER SET utf8mb4 PATH '$.s_evidence')) s
			STRAIGHT_JOIN integrity_outbox FORCE INDEX (PRIMARY) ON id = s_id SET %s`,
	}
}

// SQLite is the dialect of SQLite. A claim is an immediate transaction, so claims never overlap.
func SQLite() Dialect {
	return Dialect{
		Name: "SQLite", DDL: sqliteDDL,
		at: func(ms string) string {
			return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (" + ms + " / 1000.0) || ' seconds')"
		},
		update: `UPDATE integrity_outbox SET %s FROM (SELECT value ->> 's_id' AS s_id, value ->> 's_state' AS s_state,
			value ->> 's_next' AS s_next, value ->> 's_code' AS s_code, value ->> 's_problem' AS s_problem,
			value ->> 's_sent' AS s_sent, value ->> 's_public_id' AS s_public_id, value ->> 's_url' AS s_url,
			value ->> 's_record' AS s_record, value ->> 's_evidence' AS s_evidence, value ->> 's_complete' AS s_complete
			FROM json_each(?)) s WHERE id = s_id`,
		wait: "CAST((julianday(%s) - julianday(%s)) * 86400000 AS INTEGER)",
	}
}

// bind writes the placeholders of a statement, whose texts hold no question mark, in the form of the database.
func (d *Dialect) bind(statement string) string {
	if !d.number {
		return statement
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(statement, "?")
		if b.WriteString(before); !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		statement = after
	}
}

// OpenDatabase opens the database at an address: postgres://…, mysql://… or mariadb://…, or sqlite: and the path of a
// file. A SQLite file must exist, because it holds the documents of the origin. The error never shows a password.
func OpenDatabase(ctx context.Context, address string) (*sql.DB, Dialect, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	var db *sql.DB
	var d Dialect
	var err error
	switch scheme {
	case "postgres", "postgresql":
		d = PostgreSQL()
		var config *pgx.ConnConfig
		if config, err = pgx.ParseConfig(address); err != nil {
			return nil, d, say.New("it must be postgres://user:password@host:port/database")
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip, and poolers between are no problem
		db = stdlib.OpenDB(*config)
	case "mysql", "mariadb":
		d = MariaDB()
		var config *mysql.Config
		if config, err = mariadbConfig(address); err != nil {
			return nil, d, err
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, d, errMariaDBAddress
		}
		db = sql.OpenDB(connector)
	default:
		path := strings.TrimPrefix(rest, "//")
		if scheme != "sqlite" {
			if path = address; strings.Contains(address, "://") {
				return nil, d, say.Errorf(
					"%s:// is not supported: it must be postgres://, mysql://, mariadb:// or sqlite: and the path of a file",
					scheme,
				)
			}
		}
		d = SQLite()
		if db, err = openSQLite(path); err != nil {
			return nil, d, err
		}
	}
	db.SetMaxIdleConns(4)
	if err := db.PingContext(ctx); err != nil {
		return nil, d, errors.Join(err, db.Close())
	}
	return db, d, nil
}

func openSQLite(path string) (*sql.DB, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || path == "" {
		return nil, say.Errorf("%q is not a SQLite database: name the file in which your program stores its documents", path)
	} else if err != nil {
		return nil, err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", (&url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: whole}).EscapedPath(), RawQuery: url.Values{
			"mode": {"rw"}, "_pragma": {"busy_timeout(10000)", "synchronous(FULL)"}, "_txlock": {"immediate"},
		}.Encode(),
	}).String())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

var errMariaDBAddress = say.New("it must be mysql://user:password@host:port/database")

// mariadbConfig reads mysql://user:password@host:port/database. The query may name a socket and tls.
func mariadbConfig(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil || strings.Trim(u.Path, "/") == "" || strings.Contains(strings.Trim(u.Path, "/"), "/") {
		return nil, errMariaDBAddress
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 10*time.Second, time.Minute, time.Minute
	c.MultiStatements = true // for the DDL
	c.ClientFoundRows = true // an update counts the rows that it finds, as in the other databases
	c.Logger = silent{}      // an error is reported once, by its receiver
	for name, values := range u.Query() {
		switch name {
		case "socket":
			c.Net, c.Addr = "unix", values[0]
		case "tls":
			c.TLSConfig = values[0]
		default:
			return nil, say.Errorf("the parameter %q is not known: only socket and tls are", name)
		}
	}
	if c.Net == "tcp" && u.Port() == "" {
		c.Addr = u.Hostname() + ":3306"
	}
	return c, nil
}

type silent struct{}

func (silent) Print(...any) {}

// dialectOf recognizes the database of a pool that the caller has opened.
func dialectOf(db *sql.DB) (Dialect, error) {
	switch db.Driver().(type) {
	case *stdlib.Driver:
		return PostgreSQL(), nil
	case *mysql.MySQLDriver, mysql.MySQLDriver:
		return MariaDB(), nil
	case *sqlite.Driver:
		return SQLite(), nil
	}
	return Dialect{}, say.New("the database must be opened with pgx, go-sql-driver/mysql or modernc.org/sqlite")
}

// executable is the DDL without the commands of MariaDB's own client.
func (d *Dialect) executable() string {
	return strings.NewReplacer("DELIMITER //\n", "", "DELIMITER ;\n", "", "END IF//", "END IF;").Replace(d.DDL)
}
