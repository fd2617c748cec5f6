package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Watched is the data that operators monitor, at one moment.
type Watched struct {
	Shards              []WatchedShard
	FailingDestinations int64 // webhook destinations whose recent attempts all failed
	ArchiveFails        bool  // the last attempt to archive a WAL segment failed
}

// WatchedShard is one shard's part.
type WatchedShard struct {
	Shard    domain.Shard
	Position int64      // of the last event
	Last     *time.Time // its date; nil if the shard has no event
	// Due times of the rows that are due first, which may lie in the future; nil if the queue is empty.
	Delivery, Mail *time.Time
}

// Watch reads the age of the queues. Its cost does not grow with the queues: the oldest row of each destination is
// found by the index of due rows.
func Watch(ctx context.Context, pool *pgxpool.Pool) (w Watched, err error) {
	shards := cluster.SQL(`SELECT h.shard, h.position, CASE WHEN h.position > 0 THEN h.occurred_at END,
			(SELECT min(o.due_at) FROM {webhooks} w CROSS JOIN LATERAL (SELECT d.due_at FROM {webhook_deliveries} d
				WHERE d.shard = h.shard AND d.webhook_id = w.webhook_id ORDER BY d.due_at LIMIT 1) o WHERE w.shard = h.shard),
			least((SELECT min(due_at) FROM {mails} WHERE shard = h.shard), (SELECT min(due_at) FROM {invitation_mails} WHERE shard = h.shard))
		FROM {shard_heads} h ORDER BY h.shard`)
	w.Shards, err = statement.All(ctx, pool, "look at the shards",
		func(row pgx.CollectableRow) (s WatchedShard, err error) {
			err = row.Scan(&s.Shard, &s.Position, &s.Last, &s.Delivery, &s.Mail)
			return s, err
		}, shards)
	if err != nil {
		return w, err
	}
	failing := cluster.SQL(`SELECT count(*) FROM {webhook_health} h JOIN {webhooks} w ON w.shard = h.shard AND w.webhook_id = h.webhook_id
		WHERE h.failing_since IS NOT NULL AND w.status = 'active'`)
	if w.FailingDestinations, _, err = statement.First(
		ctx, pool, "count failing destinations", pgx.RowTo[int64], failing,
	); err != nil {
		return w, err
	}
	const archive = "SELECT coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) FROM " +
		"pg_stat_archiver"
	w.ArchiveFails, _, err = statement.First(ctx, pool, "look at the archive", pgx.RowTo[bool], archive)
	return w, err
}

// Backlog is the number of rows in the queues of one shard.
type Backlog struct {
	Shard             domain.Shard
	Deliveries, Mails int64
}

// backlogCounted is the number of rows of a queue in a shard up to which Backlogs counts.
const backlogCounted = 100_000

// Backlogs counts the rows of the queues. Beyond backlogCounted rows of a queue in a shard, it returns an estimate from
// the table's statistics, which vacuuming updates, but at least backlogCounted+1: counting millions would take longer
// than a scrape waits.
func Backlogs(ctx context.Context, pool *pgxpool.Pool) ([]Backlog, error) {
	heads := cluster.SQL(`SELECT shard FROM {shard_heads} ORDER BY shard`)
	shards, err := statement.All(ctx, pool, "list the shards", pgx.RowTo[domain.Shard], heads)
	backlogs := make([]Backlog, len(shards))
	for i, shard := range shards {
		if err == nil {
			backlogs[i], err = backlog(ctx, pool, shard)
		}
	}
	return backlogs, err
}

func backlog(ctx context.Context, pool *pgxpool.Pool, shard domain.Shard) (b Backlog, err error) {
	b.Shard = shard
	for table, rows := range map[string]*int64{
		"webhook_deliveries": &b.Deliveries, "mails": &b.Mails, "invitation_mails": &b.Mails,
	} {
		count := cluster.SQL(`SELECT count(*) FROM (SELECT 1 FROM {` + table + `} WHERE shard = $1 LIMIT $2) counted`)
		n, _, err := statement.First(ctx, pool, "count the rows of a queue", pgx.RowTo[int64], count, shard, backlogCounted+1)
		if err == nil && n > backlogCounted {
			var estimate int64
			estimate, _, err = statement.First(
				ctx, pool, "estimate the rows of a queue", pgx.RowTo[int64], estimateBacklog, table, int32(shard),
			)
			n = max(n, estimate)
		}
		if err != nil {
			return b, err
		}
		*rows += n
	}
	return b, nil
}

// estimateBacklog returns a shard's share of a table's rows, according to the last ANALYZE.
const estimateBacklog = `SELECT (c.reltuples * v.share)::bigint
	FROM pg_stats s
	JOIN pg_class c ON c.relname = s.tablename AND c.relnamespace = 'public'::regnamespace
	CROSS JOIN unnest(s.most_common_vals::text::integer[], s.most_common_freqs) AS v(shard, share)
	WHERE s.schemaname = 'public' AND s.tablename = $1 AND s.attname = 'shard' AND v.shard = $2`

const (
	localSizes = `SELECT c.oid, pg_total_relation_size(c.oid) AS bytes FROM pg_class c
		WHERE c.relnamespace IN ('public'::regnamespace, 'rebuild'::regnamespace) AND c.relkind = 'r'`

	citusSizes = localSizes + ` UNION ALL SELECT s.logicalrelid, z.size FROM citus_shard_sizes() z JOIN pg_dist_shard s ON s.shardid = z.shard_id`
)

// TableSizes returns the bytes on disk of each table with its indexes and TOAST, on all nodes of a cluster. The tables
// of a rebuild are added up as "rebuild".
func TableSizes(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, statement.Failed("read the sizes of tables", err)
	}
	defer conn.Release()
	sizesOf := localSizes
	if cluster.OnCitus(conn.Conn()) {
		sizesOf = citusSizes
	}
	query := `SELECT CASE n.nspname WHEN 'public' THEN c.relname ELSE n.nspname END, sum(t.bytes)::bigint
		FROM (` + sizesOf + `) t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace GROUP BY 1`
	return statement.Map[string, int64](ctx, conn, "read the sizes of tables", query)
}

// Standby is a server that receives this server's WAL.
type Standby struct {
	Name    string // application_name, chosen by its operator
	Bytes   *int64 // of WAL that it has not applied; nil if the role of the URL may not see it
	Seconds *float64
}

// Standbys lists the standbys. It uses the role of the URL, which sees their progress if it is a superuser or has
// pg_monitor. The service role never sees it.
func Standbys(ctx context.Context, pool *pgxpool.Pool) (list []Standby, err error) {
	const query = `SELECT coalesce(application_name, ''),
			pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END, replay_lsn)::bigint,
			extract(epoch FROM replay_lag)::float8
		FROM pg_stat_replication WHERE coalesce(application_name, '') <> 'pg_basebackup' AND state IS DISTINCT FROM 'backup' ORDER BY 1, pid`
	ctx, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return statement.Failed("look at standbys", err)
		}
		list, err = statement.All(ctx, tx, "look at standbys", pgx.RowToStructByPos[Standby], query)
		return err
	})
	return list, err
}
