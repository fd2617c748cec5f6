package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/postgres"
	"integrityledger/eventstore/transparency"
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
		d.fail(check, err.Error(), "the service does not start with it")
		return
	}
	conn, err := connect.Open(ctx, url)
	if err != nil {
		d.fail(
			check, cluster.Explain(d.cfg.GivenBy("DATABASE_URL"), err).Error(),
			"start the database, or correct INTEGRITY_DATABASE_URL: without it the service answers 503",
		)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, look := range []func(context.Context, *pgx.Conn) error{
		d.server, d.durability, d.clockOffset, d.housekeeping, d.archiving, d.standbys,
	} {
		if err := look(ctx, conn); err != nil {
			d.fail(check, err.Error(), remedy(err))
			return
		}
	}
	// Check this first: reading the version creates the table if it is missing.
	var migrated bool
	err = conn.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&migrated)
	if err == nil && !migrated {
		d.warn("migrations", "the database is empty", "integrity migrate, or start the service")
		return
	}
	var has, knows int64
	if err == nil {
		has, knows, err = migrations.Versions(ctx, url)
	}
	if err != nil {
		d.fail("migrations", err.Error(), remedy(err))
		return
	}
	d.first("migrations", fmt.Sprintf("the schema is version %d, the newest", has),
		verdict{
			has < knows, stateWarn, fmt.Sprintf("the schema has version %d, this program knows %d", has, knows),
			"integrity migrate, or start the service",
		},
		verdict{
			has > knows, stateWarn, fmt.Sprintf("the schema has version %d, this program only knows %d", has, knows),
			"this program is older than the service: update it",
		})
	if has < knows {
		return // the other checks need the current schema
	}
	if has == knows { // skip if the schema is newer than this program
		if err := d.schema(ctx, conn); err != nil {
			d.fail("schema", err.Error(), remedy(err))
		}
	}
	if err := d.ledger(ctx, conn, url); err != nil {
		d.fail("ledger", err.Error(), remedy(err))
	}
	if took := d.Now().Sub(asked); took > 5*time.Second {
		d.warn(
			check, fmt.Sprintf("these checks took %s", took.Round(time.Millisecond)), "check the database's load and the "+
				"network",
		)
	}
}

// remedy suggests how to fix the error that prevented a check.
func remedy(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "42501" {
		return "grant the URL's role the missing rights, and run this again: the check did not run"
	}
	return "fix this, and run this again: the check did not run"
}

func (d *doctor) server(ctx context.Context, conn *pgx.Conn) error {
	var version, encoding, user string
	var number, size int64
	var superuser, canServe bool
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('server_version'), current_setting('server_version_num')::bigint, current_setting('server_encoding'), session_user,
		(SELECT rolsuper FROM pg_roles WHERE rolname = session_user), pg_database_size(current_database()),
		coalesce((SELECT pg_has_role(session_user, oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) FROM pg_roles WHERE rolname = 'integrity_service'), true)`).
		Scan(&version, &number, &encoding, &user, &superuser, &size, &canServe); err != nil {
		return say.Errorf("read the version: %w", err)
	}
	const check = "database"
	major, use := number/10000, fmt.Sprintf("use version %d to %d", cluster.OldestPostgreSQL, cluster.NewestPostgreSQL)
	d.first(check, fmt.Sprintf("PostgreSQL %s, %.1f MB, as role %s", version, float64(size)/1e6, user),
		verdict{major < cluster.OldestPostgreSQL, StateFail, "PostgreSQL " + version, use},
		verdict{
			major > cluster.NewestPostgreSQL, stateWarn, "PostgreSQL " + version + " is newer than any version the ledger is " +
				"tested with", use,
		})
	grant := "GRANT integrity_service TO " + pgx.Identifier{user}.Sanitize()
	if major >= 16 { // without SET TRUE a role that is already a member would not gain the option
		grant += " WITH SET TRUE"
	}
	d.every(check,
		verdict{encoding != "UTF8", StateFail, "its encoding is " + encoding, "create the database with encoding UTF8"},
		verdict{!canServe, StateFail, user + " may not SET ROLE integrity_service", grant},
		verdict{
			superuser && d.cfg.DatabaseURL != "", stateWarn, user + " is a superuser",
			"create a separate role for the service, with CREATEROLE for the first migration",
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
	const check, lost = "durability", "set it to on: otherwise acknowledged registrations can be lost"
	if d.every(check,
		verdict{fsync != "on", StateFail, "fsync is " + fsync, lost},
		verdict{synchronous == "off", StateFail, "synchronous_commit is off", lost},
		verdict{pages != "on", StateFail, "full_page_writes is " + pages, lost},
		verdict{
			checksums != "on", stateWarn, "data_checksums is " + checksums,
			"pg_checksums --enable, at the next stop: only checksums detect a bad disk",
		},
		verdict{
			level == "minimal", stateWarn, "wal_level is minimal",
			"set it to replica: otherwise neither backups nor standbys can follow",
		},
	) == 0 {
		d.ok(check, "fsync, full page writes, synchronous commit (%s), checksums", synchronous)
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
	where := "ahead of"
	if offset < 0 {
		where = "behind"
	}
	found := fmt.Sprintf(
		"this machine's is %s %s the database's (± %s)", offset.Abs().Round(time.Millisecond), where,
		half.Round(time.Millisecond),
	)
	d.first("clock", found,
		verdict{
			offset.Abs() > d.cfg.ClockTolerance, StateFail, found,
			"correct the wrong clock: nothing is committed while they differ by more than " + d.cfg.ClockTolerance.String(),
		},
		verdict{offset.Abs() > lateClock, stateWarn, found, "synchronize both with the same time servers"})
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
		found := fmt.Sprintf(
			"shard %d is dated %s, %s ahead of this machine's clock and of the database's", h.Shard, cli.TimeText(h.At),
			by.Round(time.Millisecond),
		)
		d.fail(
			check, found,
			"nothing can be committed in it. If both clocks are right, a wrong clock dated its last event: integrity clock "+
				"reset",
		)
	}
	if d.ahead.Abs() <= d.cfg.ClockTolerance {
		d.every(check, verdict{poisoned == 0, StateOK, "no shard is dated ahead of it", ""})
		return nil
	}
	behind := "is behind the last event, of " + cli.TimeText(last) + ": this clock is wrong"
	d.first(check, "",
		verdict{last.Sub(mine) > d.cfg.ClockTolerance, StateFail, "this machine's " + behind, "set this machine's clock"},
		verdict{
			last.Sub(theirs) > d.cfg.ClockTolerance, StateFail, "the database's " + behind,
			"set the clock of the database's machine",
		},
		verdict{
			true, stateWarn, "no event shows which of the two is wrong",
			"compare both with a third clock, and set the wrong one",
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
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name NOT LIKE 'integrity %' AND pid <> pg_backend_pid())::int,
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
	found := fmt.Sprintf(
		"%d usable, %d used by others, %d needed per service process: room for %d", limit, others, each, fit,
	)
	d.first("connections", found,
		verdict{fit < 1, StateFail, found, "raise max_connections"},
		verdict{
			fit < 2 && d.cfg.DatabaseURL != "", stateWarn, found, "raise max_connections: a restart without downtime needs " +
				"room for two processes",
		})
	row, open := fmt.Sprintf("the oldest row is %d transactions old", age), time.Duration(oldest)*time.Second
	d.first("vacuum", "autovacuum is on; "+row,
		verdict{
			autovacuum != "on", StateFail, "autovacuum is " + autovacuum, "set it to on: otherwise busy tables grow without " +
				"limit",
		},
		verdict{
			age > wraparound, StateFail, row,
			"VACUUM (FREEZE) the database, and find what holds it up (prepared transactions, old replication slots)",
		})
	d.every(
		"vacuum",
		verdict{
			open > longTransaction, stateWarn, fmt.Sprintf("a transaction has been open for %s", open),
			"end it: rows that died since cannot be cleaned up",
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
			"vacuum", "dead rows: "+table, "VACUUM the table, and look for a transaction or a replication slot that stays open",
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
			d.warn(check, err.Error(), "restart the service")
		} else if d.every(check,
			verdict{
				dir == "", stateWarn, "nothing is archived: if this disk fails, registrations since the last copy are lost",
				"integrity backup DIR, on another disk",
			},
			verdict{
				failing != "", StateFail, dir + ": " + failing,
				"see postgres.log in the data directory; WAL accumulates here until archiving works",
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
	d.first(check, "WAL is archived",
		verdict{
			mode == "off", stateWarn, "archive_mode is off",
			"archive the WAL (pgBackRest does both), unless the database's provider offers point-in-time recovery",
		},
		verdict{failing != "", StateFail, failing, "see the database's log; WAL accumulates there until archiving works"})
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
			check, err.Error(),
			"bring the directory back, or integrity backup --move to another: without it nothing can be restored",
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
		fmt.Sprintf("changes go to %s; the last backup finished at %s", archive, cli.TimeText(newest.FinishedAt)),
		verdict{
			newest.Dir == "", StateFail, "changes go to " + archive + ", which no complete backup in " + root + " leads to",
			"integrity backup " + root,
		},
		verdict{
			ago > oldBackup, stateWarn,
			fmt.Sprintf("changes go to %s; the last backup was %d days ago", archive, int(ago.Hours()/24)),
			"integrity backup " + root + ", daily: a restore replays everything since",
		})
}

// standbys checks the standbys that commits wait for, and replication slots that retain WAL.
func (d *doctor) standbys(ctx context.Context, conn *pgx.Conn) error {
	var wanted, synchronous string
	var connected, slots int
	if err := conn.QueryRow(ctx,
		`SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int,
		(SELECT count(*) FROM pg_replication_slots WHERE NOT active)::int`).Scan(
		&wanted, &synchronous, &connected, &slots,
	); err != nil {
		return say.Errorf("read the standbys: %w", err)
	}
	if wanted != "" {
		d.first("standby", fmt.Sprintf("%d synchronous", connected),
			verdict{synchronous == "local" ||
				synchronous == "off", stateWarn,
				"synchronous_commit is " + synchronous + ": no commit waits for synchronous_standby_names",
				"set it to on: otherwise acknowledged registrations may be lost with the primary"},
			verdict{
				connected == 0, StateFail, "commits wait for a synchronous standby, and none is connected",
				"bring it back: until then registrations answer 503",
			})
	}
	d.every(
		"standby",
		verdict{
			slots > 0, stateWarn, fmt.Sprintf("%d replication slots are unused", slots),
			"drop them, or bring their readers back: they retain WAL until the disk is full",
		},
	)
	return nil
}

// ledger checks that the database holds a ledger, and that it is intact.
func (d *doctor) ledger(ctx context.Context, conn *pgx.Conn, url string) error {
	const check = "ledger"
	var issuer string
	var shards int
	var epoch int64
	err := conn.QueryRow(ctx, "SELECT issuer, shards, epoch FROM ledger WHERE id = 1").Scan(&issuer, &shards, &epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		d.warn(check, "this database has none yet", "integrity migrate with INTEGRITY_ISSUER, or start the service")
		return nil
	}
	if err != nil {
		return say.Errorf("read the ledger row: %w", err)
	}
	d.first(check, fmt.Sprintf("issuer %s, %d shards, epoch %d", issuer, shards, epoch),
		verdict{
			d.cfg.Issuer != "" && d.cfg.Issuer != issuer, StateFail,
			fmt.Sprintf("its issuer is %q, but INTEGRITY_ISSUER is %q", issuer, d.cfg.Issuer),
			"unset the variable: an issuer cannot change",
		})
	pool, err := cluster.At(url).ReadPool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = history.CheckHeads(ctx, pool)
	switch _, contradicts := errors.AsType[history.HeadError](err); {
	case contradicts:
		d.fail(check, err.Error(), "stop the service and restore a backup: something else has changed the database")
	case err != nil:
		d.fail(check, err.Error(), remedy(err))
	default:
		d.ok(check, "every shard's head agrees with its log; integrity rebuild --check compares the rest")
	}
	for _, look := range []func(context.Context, *pgx.Conn) error{d.versions, d.heads, d.placement} {
		if err := look(ctx, conn); err != nil {
			return err
		}
	}
	d.transparency(ctx, pool, issuer)
	var changeable, disabled bool
	if err := conn.QueryRow(ctx, `SELECT has_table_privilege('integrity_service', 'events', 'UPDATE, DELETE, TRUNCATE'),
		NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal)
		OR EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal AND tgenabled = 'D')`).Scan(&changeable, &disabled); err != nil {
		return say.Errorf("read the log's protection: %w", err)
	}
	d.every(check,
		verdict{
			changeable, StateFail, "the role integrity_service may change events",
			"REVOKE UPDATE, DELETE, TRUNCATE ON events FROM integrity_service",
		},
		verdict{
			disabled, StateFail, "the trigger that keeps events from being changed is missing or disabled",
			"ALTER TABLE events ENABLE TRIGGER ALL, and integrity rebuild --check",
		})
	return nil
}

// placement checks whether the shards are spread evenly over the nodes of a Citus cluster.
func (d *doctor) placement(ctx context.Context, conn *pgx.Conn) error {
	var distributed bool
	if err := conn.QueryRow(
		ctx, "SELECT to_regproc('public.ledger_shards') IS NOT NULL",
	).Scan(&distributed); err != nil || !distributed {
		return err
	}
	var moves int
	var found string
	if err := conn.QueryRow(ctx, migrations.Uneven).Scan(&moves, &found); err != nil {
		return say.Errorf("read the nodes of the shards: %w", err)
	}
	d.first("nodes", "shards by node: "+found,
		verdict{
			moves > 0, stateWarn, fmt.Sprintf("shards by node: %s; %d moves make it even", found, moves),
			"SELECT rebalance_table_shards(), as the operators' manual says (Capacity: Citus)",
		})
	return nil
}

// transparency checks the transparency log.
func (d *doctor) transparency(ctx context.Context, pool *pgxpool.Pool, issuer string) {
	const check = "transparency"
	if !d.cfg.Transparency {
		d.ok(check, "no log is kept")
		return
	}
	status, err := transparency.ReadStatus(ctx, pool)
	if err != nil {
		d.fail(check, err.Error(), remedy(err))
		return
	}
	if trusted, err := keyfiles.ReadTrusted(d.cfg.TrustedKeysPath()); err == nil {
		d.signedHead(ctx, pool, trusted)
		signer, err := d.cfg.LogSource().LogSigner(transparency.LogName(issuer), trusted)
		if err == nil {
			var key transparency.KeyState
			if key, err = transparency.KnownKey(ctx, pool, signer.LogKey); err == nil && key.Barred {
				err = transparency.ErrBarred
			}
		}
		switch {
		case errors.Is(err, evidence.ErrRevokedKey):
			d.fail(
				check, err.Error(),
				"no checkpoint is signed: integrity keys rotate --transparency-log --stage, and --activate, then SIGHUP",
			)
		case err != nil:
			d.warn(check, err.Error(), "put the log key in place, then SIGHUP: nothing else depends on it")
		}
	}
	found := fmt.Sprintf("%d of %d events are published", status.Published, status.Events)
	age := d.Now().Sub(status.Oldest).Round(time.Second)
	d.first(check, found,
		verdict{
			status.Halted, stateWarn, "the log has been stopped since the database was restored; " + found,
			"integrity log resume",
		},
		verdict{
			!status.Oldest.IsZero() && age > lateLog, stateWarn,
			fmt.Sprintf("%s; the oldest of the rest is %s old", found, age), "start the service, or read its log",
		})
}

// signedHead compares the transparency log with the largest head stored in this data directory.
func (d *doctor) signedHead(ctx context.Context, pool *pgxpool.Pool, trusted *evidence.TrustedKeys) {
	const check = "transparency"
	in, err := eventstore.ReadInstallation(ctx, pool)
	if err != nil {
		d.fail(check, err.Error(), remedy(err))
		return
	}
	file := keyfiles.NewSignedHead(d.cfg.DataDir, in.ID())
	known, err := file.Read(trusted, in.Epoch)
	missing := ""
	if err == nil {
		missing, err = known.Lacks(ctx, pool)
	}
	switch {
	case err != nil:
		d.fail(check, err.Error(), remedy(err))
	case missing != "":
		d.fail(check, missing+" (known from "+file.Path()+")", eventstore.Remedy)
	}
}

// lateLog is how long an event may wait for the transparency log.
const lateLog = time.Minute
