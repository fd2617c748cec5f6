package operator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/postgres"
	"integrityledger/migrations"
)

const (
	longTransaction = 10 * time.Minute
	// oldBackup is the age from which replaying the archive takes long.
	oldBackup = 7 * 24 * time.Hour
	// deadRows is how many dead rows a table may have, if they are also a fifth of it, before autovacuum counts as behind.
	deadRows = 100_000
	// wraparound is the age of the oldest row at which freezing has fallen behind. PostgreSQL stops writing at 2^31.
	wraparound = 1_000_000_000
)

// checkDatabase checks everything in the database that a ledger's durability and speed depend on.
func (d *doctor) checkDatabase(ctx context.Context, url string) {
	const check = "database"
	asked := d.Now()
	if _, err := cluster.Inspect(ctx, url); errors.Is(err, cluster.ErrSharedSessions) {
		d.fail(check, said(err), say.Sentencef("the service does not start with it"))
		return
	}
	conn, err := connect.Open(ctx, url)
	if err != nil {
		d.fail(
			check, said(cluster.Explain(d.cfg.GivenBy("DATABASE_URL"), err)),
			say.Sentencef("start the database, or correct INTEGRITY_DATABASE_URL: without it the service answers 503"),
		)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, look := range []func(context.Context, *pgx.Conn) error{
		d.server, d.durability, d.clockOffset, d.housekeeping, d.archiving, d.standbys,
	} {
		if err := look(ctx, conn); err != nil {
			d.fail(check, said(err), remedy(err))
			return
		}
	}
	// Check this first: reading the version creates the table if it is missing.
	var migrated bool
	err = conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&migrated)
	if err == nil && !migrated {
		d.warn("migrations", say.Sentencef("the database is empty"), say.Sentencef("integrity migrate, or start the service"))
		return
	}
	var has, knows int64
	if err == nil {
		has, knows, err = migrations.Versions(ctx, url)
	}
	if err != nil {
		d.fail("migrations", said(err), remedy(err))
		return
	}
	d.first("migrations", say.Sentencef("the schema is version %d, the newest", has),
		verdict{
			has < knows, stateWarn, say.Sentencef("the schema has version %d, this program knows %d", has, knows),
			say.Sentencef("integrity migrate, or start the service"),
		},
		verdict{
			has > knows, stateWarn, say.Sentencef("the schema has version %d, this program only knows %d", has, knows),
			say.Sentencef("this program is older than the service: update it"),
		})
	if has < knows {
		return // the other checks need the current schema
	}
	if has == knows { // skip if the schema is newer than this program
		if err := d.schema(ctx, conn); err != nil {
			d.fail("schema", said(err), remedy(err))
		}
	}
	if err := d.ledger(ctx, conn, url); err != nil {
		d.fail("ledger", said(err), remedy(err))
	}
	if took := d.Now().Sub(asked); took > 5*time.Second {
		d.warn(
			check, say.Sentencef(
				"these checks took %s", took.Round(time.Millisecond),
			), say.Sentencef("check the database's load and the network"),
		)
	}
}

// remedy suggests how to fix the error that prevented a check.
func remedy(err error) say.Sentence {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42501" {
		return say.Sentencef("grant the URL's role the missing rights, and run this again: the check did not run")
	}
	return say.Sentencef("fix this, and run this again: the check did not run")
}

func (d *doctor) server(ctx context.Context, conn *pgx.Conn) error {
	var version, encoding, user string
	var number, size int64
	var superuser, canServe, reads, sees bool
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('server_version'), current_setting('server_version_num')::bigint, current_setting('server_encoding'), session_user,
		(SELECT rolsuper FROM pg_roles WHERE rolname = session_user), pg_database_size(current_database()),
		coalesce((SELECT pg_has_role(session_user, oid, needs) FROM pg_roles WHERE rolname = 'integrity_service'), true),
		coalesce((SELECT pg_has_role(session_user, oid, needs) FROM pg_roles WHERE rolname = 'integrity_reader'), false),
		pg_has_role(session_user, 'pg_read_all_stats', 'USAGE')
		FROM (SELECT CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) o (needs)`).
		Scan(&version, &number, &encoding, &user, &superuser, &size, &canServe, &reads, &sees); err != nil {
		return say.Errorf("read the version: %w", err)
	}
	const check = "database"
	major, use := number/10000, say.Sentencef("use version %d to %d", cluster.OldestPostgreSQL, cluster.NewestPostgreSQL)
	d.first(check, say.Sentencef("PostgreSQL %s, %.1f MB, as role %s", version, float64(size)/1e6, user),
		verdict{major < cluster.OldestPostgreSQL, StateFail, say.Sentencef("PostgreSQL %s", version), use},
		verdict{
			major > cluster.NewestPostgreSQL, stateWarn, say.Sentencef(
				"PostgreSQL %s is newer than any version the ledger is tested with", version,
			), use,
		})
	grant := "GRANT integrity_service TO " + pgx.Identifier{user}.Sanitize()
	if major >= 16 { // without SET TRUE a role that is already a member would not gain the option
		grant += " WITH SET TRUE"
	}
	d.every(check,
		verdict{
			encoding != "UTF8", StateFail, say.Sentencef("its encoding is %s", encoding),
			say.Sentencef("create the database with encoding UTF8"),
		},
		verdict{!canServe && !reads, StateFail, say.Sentencef("%s may not SET ROLE integrity_service", user), run(grant)},
		verdict{
			!canServe && reads, StateOK, say.Sentencef("%s may read the ledger, but not serve it", user), say.Sentence{},
		},
		verdict{
			!sees, stateWarn,
			say.Sentencef("%s lacks pg_monitor: the transactions of other roles and the state of standbys were not seen", user),
			run("GRANT pg_monitor TO " + pgx.Identifier{user}.Sanitize()),
		},
		verdict{
			superuser && d.cfg.DatabaseURL != "", stateWarn, say.Sentencef("%s is a superuser", user),
			say.Sentencef("create a separate role for the service, with CREATEROLE for the first migration"),
		})
	return nil
}

// durability checks the settings that an acknowledged registration depends on.
func (d *doctor) durability(ctx context.Context, conn *pgx.Conn) error {
	var fsync, synchronous, pages, checksums, level string
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
		current_setting('data_checksums'), current_setting('wal_level')`).Scan(
		&fsync, &synchronous, &pages, &checksums, &level,
	); err != nil {
		return say.Errorf("read the settings: %w", err)
	}
	const check = "durability"
	lost := say.Sentencef("set it to on: otherwise acknowledged registrations can be lost")
	if d.every(check,
		verdict{fsync != "on", StateFail, say.Sentencef("fsync is %s", fsync), lost},
		verdict{synchronous == "off", StateFail, say.Sentencef("synchronous_commit is off"), lost},
		verdict{pages != "on", StateFail, say.Sentencef("full_page_writes is %s", pages), lost},
		verdict{
			checksums != "on", stateWarn, say.Sentencef("data_checksums is %s", checksums),
			say.Sentencef("pg_checksums --enable, at the next stop: only checksums detect a bad disk"),
		},
		verdict{
			level == "minimal", stateWarn, say.Sentencef("wal_level is minimal"),
			say.Sentencef("set it to replica: otherwise neither backups nor standbys can follow"),
		},
	) == 0 {
		d.ok(check, say.Sentencef("fsync, full page writes, synchronous commit (%s), checksums", synchronous))
	}
	return nil
}

// clockOffset compares this machine's clock with the database's. Of a few round trips it uses the middle of the
// shortest.
func (d *doctor) clockOffset(ctx context.Context, conn *pgx.Conn) error {
	var offset, half time.Duration
	for n := range 5 {
		before := d.Now()
		var theirs time.Time
		if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&theirs); err != nil {
			return say.Errorf("read the time: %w", err)
		}
		if h := d.Now().Sub(before) / 2; n == 0 || h < half {
			offset, half = before.Add(h).Sub(theirs), h
		}
	}
	d.ahead = offset
	by, within := offset.Abs().Round(time.Millisecond), half.Round(time.Millisecond)
	found := say.Sentencef("this machine's is %s ahead of the database's (± %s)", by, within)
	if offset < 0 {
		found = say.Sentencef("this machine's is %s behind the database's (± %s)", by, within)
	}
	d.first("clock", found,
		verdict{
			offset.Abs() > d.cfg.ClockTolerance, StateFail, found,
			say.Sentencef(
				"correct the wrong clock: nothing is committed while they differ by more than %s", d.cfg.ClockTolerance,
			),
		},
		verdict{offset.Abs() > lateClock, stateWarn, found, say.Sentencef("synchronize both with the same time servers")})
	return nil
}

// heads compares both clocks with the last event of each shard. That event was dated when the clocks agreed, unless an
// older program, which did not compare clocks, dated it by a wrong one.
func (d *doctor) heads(ctx context.Context, conn *pgx.Conn) error {
	const check = "clock"
	type head struct {
		Shard int
		At    time.Time
	}
	// rows carries its own error
	rows, _ := conn.Query(
		ctx, cluster.SQL("SELECT shard, occurred_at FROM {shard_heads} WHERE position > 0 ORDER BY shard"),
	)
	heads, err := pgx.CollectRows(rows, pgx.RowToStructByPos[head])
	if err != nil {
		return say.Errorf("read the shard heads: %w", err)
	}
	mine := d.Now()
	theirs := mine.Add(-d.ahead)
	var last time.Time // the newest event that is not ahead of both clocks
	poisoned := 0
	for _, h := range heads {
		by := min(h.At.Sub(mine), h.At.Sub(theirs))
		if by <= d.cfg.ClockTolerance {
			if h.At.After(last) {
				last = h.At
			}
			continue
		}
		poisoned++
		found := say.Sentencef(
			"shard %d is dated %s, %s ahead of this machine's clock and of the database's", h.Shard, cli.TimeText(h.At),
			by.Round(time.Millisecond),
		)
		d.fail(
			check, found,
			say.Sentencef(
				"nothing can be committed in it. If both clocks are right, a wrong clock dated its last event: integrity clock reset",
			),
		)
	}
	if d.ahead.Abs() <= d.cfg.ClockTolerance {
		d.every(check, verdict{poisoned == 0, StateOK, say.Sentencef("no shard is dated ahead of it"), say.Sentence{}})
		return nil
	}
	at := cli.TimeText(last)
	d.first(check, say.Sentence{},
		verdict{
			last.Sub(mine) > d.cfg.ClockTolerance, StateFail,
			say.Sentencef("this machine's is behind the last event, of %s: this clock is wrong", at),
			say.Sentencef("set this machine's clock"),
		},
		verdict{
			last.Sub(
				theirs,
			) > d.cfg.ClockTolerance, StateFail, say.Sentencef(
				"the database's is behind the last event, of %s: this clock is wrong", at,
			),
			say.Sentencef("set the clock of the database's machine"),
		},
		verdict{
			true, stateWarn, say.Sentencef("no event shows which of the two is wrong"),
			say.Sentencef("compare both with a third clock, and set the wrong one"),
		})
	return nil
}

// housekeeping checks connections, autovacuum and whatever holds autovacuum up.
func (d *doctor) housekeeping(ctx context.Context, conn *pgx.Conn) error {
	var autovacuum string
	var limit, others int
	var age, oldest int64
	if err := conn.QueryRow(ctx, `SELECT current_setting('autovacuum'),
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
		(SELECT count(*) FROM pg_stat_activity WHERE (backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL)
			AND application_name NOT LIKE 'integrity %' AND pid <> pg_backend_pid())::int,
		(SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())::bigint,
		coalesce((SELECT extract(epoch FROM max(clock_timestamp() - xact_start)) FROM pg_stat_activity WHERE backend_type = 'client backend'), 0)::bigint`).
		Scan(&autovacuum, &limit, &others, &age, &oldest); err != nil {
		return say.Errorf("read connections and vacuum state: %w", err)
	}
	shards := d.cfg.Shards
	err := conn.QueryRow(ctx, "SELECT coalesce(max(shards), $1) FROM ledger", shards).Scan(&shards)
	if missing := (*pgconn.PgError)(nil); err != nil && (!errors.As(err, &missing) || missing.Code != "42P01") {
		// undefined_table
		return say.Errorf("read the ledger row: %w", err)
	}
	each := ledger.DatabaseConns(shards)
	fit := (limit - others) / each
	found := say.Sentencef(
		"%d usable, %d used by others, %d needed per service process: room for %d", limit, others, each, fit,
	)
	d.first("connections", found,
		verdict{fit < 1, StateFail, found, say.Sentencef("raise max_connections")},
		verdict{
			fit < 2 && d.cfg.DatabaseURL != "", stateWarn, found, say.Sentencef(
				"raise max_connections: a restart without downtime needs room for two processes",
			),
		})
	row, open := say.Sentencef("the oldest row is %d transactions old", age), time.Duration(oldest)*time.Second
	d.first("vacuum", say.Sentencef("autovacuum is on; %s", row),
		verdict{
			autovacuum != "on", StateFail, say.Sentencef(
				"autovacuum is %s", autovacuum,
			), say.Sentencef("set it to on: otherwise busy tables grow without limit"),
		},
		verdict{
			age > wraparound, StateFail, row,
			say.Sentencef(
				"VACUUM (FREEZE) the database, and find what holds it up (prepared transactions, old replication slots)",
			),
		})
	d.every(
		"vacuum",
		verdict{
			open > longTransaction, stateWarn, say.Sentencef("a transaction has been open for %s", open),
			say.Sentencef("end it: rows that died since cannot be cleaned up"),
		},
	)
	// rows carries its own error
	rows, _ := conn.Query(
		ctx,
		"SELECT relname || ' (' || n_dead_tup || ' of ' || n_live_tup || ')' FROM pg_stat_user_tables WHERE n_dead_tup > "+
			"$1 AND n_dead_tup > n_live_tup / 5",
		deadRows,
	)
	dead, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return say.Errorf("count dead rows: %w", err)
	}
	for _, table := range dead {
		d.warn(
			"vacuum", say.Sentencef("dead rows: %s", table),
			say.Sentencef("VACUUM the table, and look for a transaction or a replication slot that stays open"),
		)
	}
	return nil
}

// archiving checks whether the ledger could be restored.
func (d *doctor) archiving(ctx context.Context, conn *pgx.Conn) error {
	const check = "archive"
	if d.cfg.DatabaseURL == "" {
		dir, failing, err := postgres.Archiving(ctx, conn)
		if err != nil {
			d.warn(check, said(err), say.Sentencef("restart the service"))
		} else if d.every(check,
			verdict{
				dir == "", stateWarn, say.Sentencef(
					"nothing is archived: if this disk fails, registrations since the last copy are lost",
				),
				say.Sentencef("integrity backup DIR, on another disk"),
			},
			verdict{
				failing != "", StateFail, say.Sentencef("%s: %s", dir, failing),
				say.Sentencef("see postgres.log in the data directory; WAL accumulates here until archiving works"),
			},
		) == 0 {
			d.backups(dir)
		}
		return nil
	}
	var mode, failing string
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('archive_mode'), (SELECT CASE WHEN last_failed_time > coalesce(last_archived_time, '-infinity')
		THEN last_failed_wal || ' failed at ' || last_failed_time ELSE '' END FROM pg_stat_archiver)`).Scan(&mode, &failing); err != nil {
		return say.Errorf("read the archiving state: %w", err)
	}
	d.first(check, say.Sentencef("WAL is archived"),
		verdict{
			mode == "off", stateWarn, say.Sentencef("archive_mode is off"),
			say.Sentencef(
				"archive the WAL (pgBackRest does both), unless the database's provider offers point-in-time recovery",
			),
		},
		verdict{
			failing != "", StateFail, say.Sentencef("%s", failing),
			say.Sentencef("see the database's log; WAL accumulates there until archiving works"),
		})
	return nil
}

// backups checks whether the archive starts with a backup that exists.
func (d *doctor) backups(archive string) {
	const check = "archive"
	root := filepath.Dir(filepath.Dir(archive))
	all, err := postgres.Backups(root)
	if err == nil {
		_, err = os.Stat(archive)
	}
	if err != nil {
		d.fail(
			check, said(err),
			say.Sentencef("bring the directory back, or integrity backup --move to another: without it nothing can be restored"),
		)
		return
	}
	var newest postgres.Backup
	for _, b := range all {
		if b.Archive == filepath.Base(archive) {
			newest = b
		}
	}
	ago := d.Now().Sub(newest.FinishedAt)
	d.first(check,
		say.Sentencef("changes go to %s; the last backup finished at %s", archive, cli.TimeText(newest.FinishedAt)),
		verdict{
			newest.Dir == "", StateFail, say.Sentencef(
				"changes go to %s, which no complete backup in %s leads to", archive, root,
			),
			run("integrity backup " + root),
		},
		verdict{
			ago > oldBackup, stateWarn,
			say.Sentencef("changes go to %s; the last backup was %d days ago", archive, int(ago.Hours()/24)),
			say.Sentencef("integrity backup %s, daily: a restore replays everything since", root),
		})
}

// standbys checks the standbys that commits wait for, and replication slots that retain WAL.
func (d *doctor) standbys(ctx context.Context, conn *pgx.Conn) error {
	var wanted, synchronous string
	var connected, hidden, slots int
	// Without pg_monitor, a standby's state is null.
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int,
		(SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL)::int,
		(SELECT count(*) FROM pg_replication_slots WHERE NOT active)::int`).Scan(
		&wanted, &synchronous, &connected, &hidden, &slots,
	); err != nil {
		return say.Errorf("read the standbys: %w", err)
	}
	if wanted != "" {
		found := say.Sentencef("%d synchronous", connected)
		if hidden > 0 {
			found = say.Sentencef("%d connected; which of them are synchronous was not seen", hidden)
		}
		d.first("standby", found,
			verdict{synchronous == "local" ||
				synchronous == "off", stateWarn,
				say.Sentencef("synchronous_commit is %s: no commit waits for synchronous_standby_names", synchronous),
				say.Sentencef("set it to on: otherwise acknowledged registrations may be lost with the primary")},
			verdict{
				connected+hidden == 0, StateFail, say.Sentencef("commits wait for a synchronous standby, and none is connected"),
				say.Sentencef("bring it back: until then registrations answer 503"),
			})
	}
	d.every(
		"standby",
		verdict{
			slots > 0, stateWarn, say.Sentencef("%d replication slots are unused", slots),
			say.Sentencef("drop them, or bring their readers back: they retain WAL until the disk is full"),
		},
	)
	return nil
}
