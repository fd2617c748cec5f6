package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
)

// ErrNoCitus is the answer of a database that cannot be distributed.
var ErrNoCitus = say.New("the database lacks the extension citus")

// isWorker is true of a worker of a cluster, and false of the coordinator and of a server that is in no cluster yet.
const isWorker = "SELECT (SELECT groupid <> 0 FROM pg_dist_local_group)"

var errWorker = say.New("this is a worker node of Citus: the URL must be that of its coordinator")

// Distribution is what Distribute has found and done.
type Distribution struct {
	Version string         // of Citus
	Nodes   int            // that hold shards
	Steps   []say.Sentence // steps that were done, or would be; empty if the ledger was distributed before
}

// distributeLock is the advisory lock that lets one process distribute at a time.
const distributeLock = 0x64697374

// referenceTables have a copy on every node: no group writes them, and every shard's statements may read them. Every
// table that has neither a shard nor a copy stays on the coordinator alone: the tables of the transparency log, which
// one process at a time writes, and goose's own.
var referenceTables = []string{"ledger", "oauth_subjects"}

// serviceSettings keep the plans of a node's own planner to index look-ups. On one server the settings of the serving
// connections do that, but Citus does not pass them on from the coordinator. A plan that is forbidden must not be
// compiled.
var serviceSettings = []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"}

// tenantTables lists tables whose primary key begins with the shard and that are not distributed yet. The heads come
// first: the others are placed beside them.
const tenantTables = `SELECT format('%I.%I', n.nspname, c.relname)
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace
	JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
	WHERE n.nspname IN ('public', 'rebuild') AND c.relkind = 'r' AND a.attname = 'shard'
		AND NOT EXISTS (SELECT 1 FROM pg_dist_partition p WHERE p.logicalrelid = c.oid)
	ORDER BY c.relname <> 'shard_heads', 1`

// Distribute distributes the tables of the ledger at url, the coordinator of a Citus cluster, by shard, so that all
// rows of a shard are on one node and every node has the same number of shards. Tables that every shard reads become
// reference tables. It works as the role of url, skips steps that are already done, and changes nothing with dryRun.
//
// The ledger's own tables change in one transaction, together with the function that tells a service that they are
// distributed. After a failure they are unchanged, and objects created earlier are unused. Distribute refuses a ledger
// that is being served, and unusable nodes. It returns ErrNoCitus for a database without the extension.
func Distribute(ctx context.Context, url string, dryRun bool) (d Distribution, err error) {
	do := func(part func(context.Context, pgx.Tx, doer) error) error {
		return inTransaction(ctx, url, func(tx pgx.Tx) (err error) {
			if d.Version, d.Nodes, err = askCluster(ctx, tx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", distributeLock)); err != nil {
				return err
			}
			return part(ctx, tx, func(step say.Sentence, statements ...string) error {
				d.Steps = append(d.Steps, step)
				for _, s := range statements {
					if dryRun {
						break
					}
					if _, err := tx.Exec(ctx, s); err != nil {
						return say.Errorf("distribute: %s: %w", step, err)
					}
				}
				return nil
			})
		})
	}
	parts := []func(context.Context, pgx.Tx, doer) error{
		allowed, prepare, permit, balance, tryService, distribute, tryService,
	}
	if dryRun {
		parts = []func(context.Context, pgx.Tx, doer) error{prepare, distribute}
	}
	for _, part := range parts {
		if err := do(part); err != nil {
			return d, err
		}
	}
	return d, nil
}

// undistributed is true before the ledger's own tables are distributed.
const undistributed = "NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = 'public.shard_heads'::regclass)"

// allowed refuses to distribute a ledger that could not be served afterwards.
func allowed(ctx context.Context, tx pgx.Tx, _ doer) error {
	wanted, err := ask(ctx, tx, undistributed)
	if err != nil || !wanted {
		return err
	}
	var copies int
	if err := tx.QueryRow(ctx, "SELECT current_setting('citus.shard_replication_factor')::int").Scan(&copies); err != nil {
		return err
	}
	if copies != 1 {
		return say.Errorf(
			"citus.shard_replication_factor is %d and must be 1 in this database: each piece is written on one node; its "+
				"second copy is the standby of that node",
			copies,
		)
	}
	return unserved(ctx, tx)
}

// unserved refuses a ledger that a service or another command has connected to. Such a process would go on with the
// tables as it knows them.
func unserved(ctx context.Context, tx pgx.Tx) error {
	const sessions = `SELECT string_agg(format('%s from %s: %s', name, at, n), ', ' ORDER BY name, at) FROM (
		SELECT application_name AS name, coalesce(host(client_addr), 'this machine') AS at, count(*) AS n FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'integrity %' GROUP BY 1, 2) s`
	if _, err := tx.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
		// else it is what this transaction saw first
		return err
	}
	var found *string
	if err := tx.QueryRow(ctx, sessions).Scan(&found); err != nil {
		return say.Errorf("look for those who use the ledger: %w", err)
	}
	if found != nil {
		return say.Errorf("the ledger is in use: stop the service first, everywhere (sessions: %s)", *found)
	}
	return nil
}

// doer executes the statements of a step, or only lists the step.
type doer func(step say.Sentence, statements ...string) error

// prepare creates everything that holds no rows of the ledger.
func prepare(ctx context.Context, tx pgx.Tx, do doer) error {
	if err := distributeRole(ctx, tx, do); err != nil {
		return err
	}
	if err := distributeCost(ctx, tx, do); err != nil {
		return err
	}
	return place(ctx, tx, do)
}

// redistribute distributes the tables that a migration has added to a distributed ledger.
func redistribute(ctx context.Context, url string) error {
	const heads = "SELECT EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = 'public.shard_heads'::regclass)"
	distributed, err := askCitus(ctx, url, heads)
	if err == nil && distributed {
		_, err = Distribute(ctx, url, false)
	}
	return err
}

// refuseWorker refuses a worker of a cluster: it has the tables, but not goose's record of the schema's version.
func refuseWorker(ctx context.Context, url string) error {
	worker, err := askCitus(ctx, url, isWorker)
	if err == nil && worker {
		err = errWorker
	}
	return err
}

// askCitus asks a question that a database without the extension answers with no.
func askCitus(ctx context.Context, url, question string) (yes bool, err error) {
	err = inTransaction(ctx, url, func(tx pgx.Tx) error {
		var citus bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass('pg_dist_partition') IS NOT NULL").Scan(&citus); err != nil || !citus {
			return err
		}
		return tx.QueryRow(ctx, question).Scan(&yes)
	})
	return yes, err
}

func askCluster(ctx context.Context, tx pgx.Tx) (version string, nodes int, err error) {
	if err = tx.QueryRow(
		ctx, "SELECT extversion FROM pg_extension WHERE extname = 'citus'",
	).Scan(&version); errors.Is(err, pgx.ErrNoRows) {
		return version, nodes,
			say.Errorf("%w: set shared_preload_libraries = 'citus' on every server, run CREATE EXTENSION citus in a "+
				"database of this name "+
				"on each, and citus_set_coordinator_host and citus_add_node on the coordinator", ErrNoCitus)
	}
	var worker bool
	if err == nil {
		err = tx.QueryRow(
			ctx, isWorker+", (SELECT count(*) FROM pg_dist_node WHERE isactive AND noderole = 'primary' AND shouldhaveshards)",
		).
			Scan(&worker, &nodes)
	}
	switch {
	case err != nil:
		return version, nodes, say.Errorf("ask for the nodes of the cluster: %w", err)
	case worker:
		return version, nodes, errWorker
	case nodes == 0:
		return version, nodes, say.New(
			"the cluster has no node that holds shards: add one with citus_add_node on the coordinator",
		)
	}
	return version, nodes, nil
}

// ledgerShards is what a piece costs the node that holds it. Organizations are spread over the ledger's shards, of
// which the hash of Citus puts three into one piece and none into another. Its rebalancer goes by this.
const ledgerShards = `CREATE OR REPLACE FUNCTION public.ledger_shards(piece bigint) RETURNS real
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$` + ledgerShardsBody + `$$`

const ledgerShardsBody = `
	SELECT count(*)::real FROM pg_catalog.pg_dist_shard d, public.ledger l, generate_series(0, l.shards - 1) shard
	WHERE d.shardid = piece AND worker_hash(shard) BETWEEN d.shardminvalue::int AND d.shardmaxvalue::int `

// Uneven asks the coordinator of a distributed ledger how many pieces would have to move until each node has as many of
// the ledger's shards as the next, and, as text, how many each has.
const Uneven = `SELECT (SELECT count(*) FROM get_rebalance_table_shards_plan('public.shard_heads', rebalance_strategy => 'by_ledger_shards')),
	(SELECT string_agg(format('%s:%s %s', nodename, nodeport, shards), ', ' ORDER BY nodename, nodeport) FROM (
		SELECT n.nodename, n.nodeport, coalesce(sum(public.ledger_shards(s.shardid)), 0) AS shards FROM pg_dist_node n
		LEFT JOIN (pg_dist_placement p JOIN pg_dist_shard s ON s.shardid = p.shardid AND s.logicalrelid = 'public.shard_heads'::regclass) USING (groupid)
		WHERE n.noderole = 'primary' AND n.shouldhaveshards GROUP BY 1, 2) each)`

// distributeCost makes Citus rebalance by that.
func distributeCost(ctx context.Context, tx pgx.Tx, do doer) error {
	if found, err := hasFunction(ctx, tx, "ledger_shards", ledgerShardsBody); err != nil || found {
		return err
	}
	return do(say.Sentencef("rebalancing by the ledger's shards"), ledgerShards,
		`SELECT citus_add_rebalance_strategy('by_ledger_shards', 'public.ledger_shards', 'citus_node_capacity_1', 'citus_shard_allowed_on_node_true', 0, 0, 0)
			WHERE NOT EXISTS (SELECT FROM pg_dist_rebalance_strategy WHERE name = 'by_ledger_shards')`,
		"SELECT citus_set_default_rebalance_strategy('by_ledger_shards')")
}

// place cuts an empty table into pieces, where the ledger's own are not distributed yet: these are put beside it, and
// need not move to be even.
func place(ctx context.Context, tx pgx.Tx, do doer) error {
	wanted, err := ask(ctx, tx, "to_regclass('public.placement') IS NULL AND "+undistributed)
	if err != nil || !wanted {
		return err
	}
	return do(say.Sentencef("pieces with as many shards on each node"), "CREATE TABLE public.placement (shard integer PRIMARY KEY)",
		`SELECT create_distributed_table('public.placement', 'shard', colocate_with => 'none',
			shard_count => greatest(current_setting('citus.shard_count')::int, (SELECT max(shards) FROM ledger)))`)
}

// permit lets tryService read these pieces. The moves of balance, which have connections of their own, would wait for
// it.
func permit(ctx context.Context, tx pgx.Tx, _ doer) error {
	placed, err := ask(ctx, tx, "to_regclass('public.placement') IS NOT NULL")
	if err == nil && placed {
		_, err = tx.Exec(ctx, "GRANT SELECT ON public.placement TO integrity_service")
	}
	return err
}

// balance moves these pieces, which a transaction can do once they are committed.
func balance(ctx context.Context, tx pgx.Tx, _ doer) error {
	placed, err := ask(ctx, tx, "to_regclass('public.placement') IS NOT NULL")
	if err == nil && placed {
		_, err = tx.Exec(ctx, "SELECT rebalance_table_shards('public.placement', shard_transfer_mode => 'block_writes')")
	}
	return err
}

func distribute(ctx context.Context, tx pgx.Tx, do doer) error {
	first, err := ask(ctx, tx, undistributed)
	if err != nil {
		return err
	}
	// Citus calls a trigger unsafe because it cannot know that this one, which guards the log, concerns each shard alone.
	// Distributing many tables in one transaction works only one after the other.
	if _, err := tx.Exec(
		ctx, "SET LOCAL citus.enable_unsafe_triggers = on; SET LOCAL citus.multi_shard_modify_mode = sequential",
	); err != nil {
		return err
	}
	if err := distributeHold(ctx, tx, do); err != nil {
		return err
	}
	references, err := texts(ctx, tx,
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relname = ANY($1) AND NOT EXISTS (SELECT 1 FROM pg_dist_partition p WHERE p.logicalrelid = c.oid)`, referenceTables)
	if err != nil {
		return err
	}
	tables, err := texts(ctx, tx, tenantTables)
	if err != nil {
		return err
	}
	for _, t := range references {
		if err := do(
			say.Sentencef("reference table %s", t), fmt.Sprintf("SELECT create_reference_table('%s')", t), clearLocal(t),
		); err != nil {
			return err
		}
	}
	for _, t := range tables {
		beside := "public.shard_heads"
		if t == beside {
			beside = "public.placement"
		}
		statements := []string{
			fmt.Sprintf("SELECT create_distributed_table('%s', 'shard', colocate_with => '%s')", t, beside), clearLocal(t),
		}
		switch t {
		case "public.shard_heads":
			statements = append(statements, "DROP TABLE public.placement")
		case "public.events": // its guard would refuse to be truncated
			statements = []string{
				statements[0], "ALTER TABLE events DISABLE TRIGGER events_append_only", statements[1],
				"ALTER TABLE events ENABLE TRIGGER events_append_only",
			}
		}
		if err := do(say.Sentencef("distributed table %s", t), statements...); err != nil {
			return err
		}
	}
	if still, err := ask(ctx, tx, undistributed); err != nil || still || !first { // still: with dryRun
		return err
	}
	return unserved(ctx, tx) // who has come meanwhile
}

// clearLocal removes the coordinator's own rows, which Citus has copied to the nodes and no longer shows: texts that
// are erased later must not stay there.
func clearLocal(table string) string {
	return fmt.Sprintf("SELECT truncate_local_data_after_distributing_table('%s')", table)
}

// holdPiece lets a transaction write the part of a table that its node holds, by the part's own name. A move takes the
// lock of each piece exclusively before it names another node in pg_dist_placement, and has it until that is committed.
// So a transaction that has got the lock, and then finds its own node there, is on the right node until it ends. Each
// statement of a volatile function sees everything that was committed before that statement began. The function runs
// as its owner, so every name in it is qualified, and pg_temp, where a caller may create objects, is searched last.
const holdPiece = `CREATE OR REPLACE FUNCTION public.hold_piece(piece bigint) RETURNS void
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$` + holdPieceBody + `$$`

const holdPieceBody = `
	BEGIN
		PERFORM pg_catalog.lock_shard_metadata(5, ARRAY[piece]); -- ShareLock
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_dist_placement p JOIN pg_catalog.pg_dist_local_group l USING (groupid)
			WHERE p.shardid = piece AND p.shardstate = 1)
		THEN
			RAISE EXCEPTION 'this node does not hold the piece %', piece USING ERRCODE = 'IL001';
		END IF;
	END `

// distributeHold makes that function on every node.
func distributeHold(ctx context.Context, tx pgx.Tx, do doer) error {
	if found, err := hasFunction(ctx, tx, "hold_piece", holdPieceBody); err != nil || found {
		return err
	}
	return do(say.Sentencef("function %s", "hold_piece"), holdPiece, "REVOKE ALL ON FUNCTION public.hold_piece(bigint) FROM PUBLIC",
		"GRANT EXECUTE ON FUNCTION public.hold_piece(bigint) TO integrity_service")
}

// distributeRole lets the nodes connect to each other as the role that serves.
func distributeRole(ctx context.Context, tx pgx.Tx, do doer) error {
	var login bool
	var database string
	if err := tx.QueryRow(
		ctx, "SELECT rolcanlogin, quote_ident(current_database()) FROM pg_roles WHERE rolname = 'integrity_service'",
	).Scan(&login, &database); err != nil {
		return say.Errorf("look for the role integrity_service: %w", err)
	}
	if !login {
		if err := do(say.Sentencef("role integrity_service may log in"), "ALTER ROLE integrity_service LOGIN"); err != nil {
			return err
		}
	}
	set, err := texts(ctx, tx, `SELECT unnest(s.setconfig) FROM pg_db_role_setting s
		WHERE s.setrole = 'integrity_service'::regrole AND s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		return err
	}
	for _, name := range serviceSettings {
		if slices.Contains(set, name+"=off") {
			continue
		}
		if err := do(
			say.Sentencef("role integrity_service has %s = off in this database", name),
			fmt.Sprintf("ALTER ROLE integrity_service IN DATABASE %s SET %s = off", database, name),
		); err != nil {
			return err
		}
	}
	return nil
}

// tryService reads from every node as the role that serves: from the table that places the ledger's pieces, and from
// these once they are placed.
func tryService(ctx context.Context, tx pgx.Tx, _ doer) error {
	before, err := ask(ctx, tx, undistributed)
	if err != nil {
		return err
	}
	state, table := say.Word("the tables are distributed, but the nodes cannot be used yet"), "public.shard_heads"
	if before {
		state, table = "the nodes cannot be used yet, and the ledger is as it was", "public.placement"
	}
	_, err = tx.Exec(ctx, "SET LOCAL ROLE integrity_service")
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT count(*) FROM "+table)
	}
	if err != nil {
		return say.Errorf("%s; they connect to each other as the role integrity_service, so pg_hba.conf of each must let "+
			"it in from the others, "+
			"with what it needs in their .pgpass or in pg_dist_authinfo: %w", state, err)
	}
	return nil
}

func inTransaction(ctx context.Context, url string, do func(pgx.Tx) error) error {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, conn, do)
}

func ask(ctx context.Context, tx pgx.Tx, condition string, args ...any) (yes bool, err error) {
	err = tx.QueryRow(ctx, "SELECT "+condition, args...).Scan(&yes)
	return yes, err
}

func hasFunction(ctx context.Context, tx pgx.Tx, name, body string) (bool, error) {
	return ask(ctx, tx, "EXISTS (SELECT FROM pg_proc WHERE oid = to_regproc($1) AND prosrc = $2)", "public."+name, body)
}

func texts(ctx context.Context, tx pgx.Tx, query string, args ...any) ([]string, error) {
	rows, _ := tx.Query(ctx, query, args...) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
