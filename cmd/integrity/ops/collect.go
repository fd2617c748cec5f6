package ops

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections/query"
)

// Service holds the parts of the service that every scrape reads.
type Service struct {
	Ledger    *eventstore.Ledger
	Canary    *eventstore.Canary
	Shards    int
	Lost      func() map[eventstore.Knowledge]bool
	Waiting   func() int // waiting feed readers
	Trusted   func() bool
	Signs     func() bool      // whether the agent that keeps the signing key signs; true without one
	Expires   func() time.Time // expiry of the TLS certificate; zero without one
	Pools     map[string]*pgxpool.Pool
	Nodes     map[string]*cluster.Nodes // Citus nodes, by use
	Replica   *query.Replica            // nil without a replica
	Database  *pgxpool.Pool             // a separate pool, so that busy pools do not block metrics
	Consumers []string
	Failures  map[string]func() int64 // failed pages, by consumer
	// TransparencyLog reports whether the service keeps the log.
	TransparencyLog bool
	LogTrusted      func() bool // set if TransparencyLog is true
	// Authorities are the authorities that this process requests tokens from, every StampInterval.
	Authorities   []*transparency.TimestampAuthority
	StampInterval time.Duration
	DataDir       string // of the embedded PostgreSQL; empty if this process does not run it
	Now           func() time.Time
	Log           *slog.Logger
}

// Answers of the database are cached for these times, shared by all scrapes.
const (
	rememberState = 5 * time.Second
	rememberSizes = 30 * time.Second
	askAtMost     = 4 * time.Second // Prometheus ends a scrape after ten seconds by default
)

// Watch adds the metrics that are read from a service.
func (m *Metrics) Watch(s Service) {
	m.registry.MustRegister(&collector{Service: s})
	// Start at zero, so that the first failure shows as an increase.
	for shard := range s.Shards {
		for _, outcome := range eventstore.GroupOutcomes() {
			m.groups.WithLabelValues(strconv.Itoa(shard), string(outcome))
		}
	}
}

// collector reads the service during a scrape. Its descriptions hold the metric names that the manual, the dashboard
// and the rules use.
type collector struct {
	Service
	mu    sync.Mutex
	asked time.Time
	state state
	sized time.Time
	sizes map[string]int64
	rows  []query.Backlog
}

// state is the database's answer.
type state struct {
	err      error
	watched  query.Watched
	lags     map[string]map[domain.Shard]consumer.Lag
	standbys []query.Standby
	log      transparency.Status
	stamps   []transparency.StampState
}

type metric struct {
	desc  *prometheus.Desc
	value prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Go has no struct constants, so these are variables.
var (
	queueWaiting  = gauge("integrity_queue_commands", "Commands waiting for a transaction.", "shard")
	queueCapacity = gauge("integrity_queue_capacity_commands", "Maximum number of waiting commands.", "shard")
	queueRefused  = counter(
		"integrity_queue_refused_total",
		"Commands rejected because the queue, or an organization's quarter of it, was full.", "shard",
	)
	clockApart = gauge(
		"integrity_clock_apart_seconds",
		"Clock differences at the last comparison, beyond what the round trip explains: database is the "+
			"database's minus the process's clock; process_step and database_step compare each with the monotonic clock.",
		"clocks",
	)
	clockRefused = counter(
		"integrity_clock_refused_groups_total",
		"Transactions of commands refused because clocks disagree, by the clock that is wrong.", "cause",
	)
	shardFailing = gauge(
		"integrity_shard_failing",
		"1 if the shard accepts no groups, because a trial group was refused; 0 if it does, or was not tried.", "shard",
	)
	shardAhead = gauge(
		"integrity_shard_ahead_seconds", "How far the shard's last event is ahead of the process's clock.", "shard",
	)
	readers    = gauge("integrity_waiting_readers", "Feed readers waiting for an event.")
	keyTrusted = gauge(
		"integrity_signing_key_trusted",
		"1 if the signing key is trusted; 0: nothing is signed, registrations answer 503.",
	)
	keySigns = gauge(
		"integrity_signing_key_answers",
		"1 if the signing key signs; 0: the agent that keeps it does not, and registrations answer 503.",
	)
	certificate = gauge(
		"integrity_tls_certificate_expiry_timestamp_seconds",
		"When the TLS certificate in use expires, in seconds since 1970.",
	)
	poolAcquired = gauge("integrity_pool_acquired_connections", "Connections in use.", "pool")
	poolIdle     = gauge("integrity_pool_idle_connections", "Open connections that are not in use.", "pool")
	poolMost     = gauge("integrity_pool_max_connections", "Maximum number of connections in the pool.", "pool")
	poolWaits    = counter("integrity_pool_waits_total", "Number of waits for a connection.", "pool")
	poolWaited   = counter("integrity_pool_wait_seconds_total", "Time spent waiting for a connection.", "pool")
	replicaReads = counter(
		"integrity_replica_reads_total",
		"Readers' queries for the replica: answered; left to the primary, because the replica was behind or failed; or not "+
			"answered, because the replica was unreachable.",
		"outcome",
	)
	databaseUp = gauge(
		"integrity_database_up", "1 if the database answered; otherwise the metrics read from it are missing.",
	)
	position   = gauge("integrity_ledger_position", "Events in the shard's log.", "shard")
	lagEvents  = gauge("integrity_consumer_lag_events", "Events that a consumer has not handled yet.", "consumer", "shard")
	lagSeconds = gauge(
		"integrity_consumer_lag_seconds", "Age of the oldest event that a consumer has not handled yet.", "consumer", "shard",
	)
	failures = counter(
		"integrity_consumer_failures_total", "Pages of events that a consumer failed to handle and will retry.",
		"consumer",
	)
	logEvents = gauge("integrity_transparency_lag_events", "Events that no checkpoint of the transparency log covers "+
		"yet.")
	logSeconds = gauge(
		"integrity_transparency_lag_seconds",
		"Age of the oldest event missing from the transparency log's tree, or else of the last checkpoint if leaves are "+
			"unsigned.",
	)
	logLeaves = gauge(
		"integrity_transparency_leaves", "Leaves covered by the transparency log's last checkpoint.",
	)
	logTrusted = gauge(
		"integrity_transparency_key_trusted",
		"1 if this process has a trusted log key that is not revoked; 0: it signs no checkpoint.",
	)
	logHalted = gauge(
		"integrity_transparency_halted",
		"1 if the transparency log is stopped after a restore, until integrity log resume.",
	)
	logCosigned = gauge(
		"integrity_transparency_cosigned_leaves", "Leaves covered by the last checkpoint that a witness has cosigned.",
		"witness",
	)
	stampAge = gauge(
		"integrity_timestamp_token_age_seconds",
		"Age of an authority's newest token for a checkpoint of the transparency log.", "authority",
	)
	stampLag = gauge(
		"integrity_timestamp_lag_seconds", "Age of the oldest published event that no token of the authority covers.",
		"authority",
	)
	stampInterval = gauge("integrity_timestamp_interval_seconds", "Interval between an authority's tokens.")
	stampTokens   = counter(
		"integrity_timestamp_tokens_total", "Tokens of an authority stored by this process.", "authority",
	)
	stampFailures = counter(
		"integrity_timestamp_failures_total",
		"This process's requests to an authority that brought no token to store.", "authority",
	)
	outboxRows = gauge("integrity_outbox_deliveries", "Waiting webhook deliveries.", "shard")
	outboxAge  = gauge(
		"integrity_outbox_oldest_due_seconds", "How long the oldest webhook delivery has been due.", "shard",
	)
	mailRows = gauge("integrity_mail_queue_mails", "Mails that wait.", "shard")
	mailAge  = gauge("integrity_mail_oldest_due_seconds", "How long the oldest mail has been due.", "shard")
	failing  = gauge("integrity_webhook_destinations_failing", "Active webhook destinations whose attempts are all "+
		"failing.")
	archiveFails = gauge("integrity_archive_failing", "1 if archiving the last WAL segment failed.")
	tableBytes   = gauge("integrity_table_bytes", "Size on disk, including indexes.", "table")
	diskFree     = gauge("integrity_disk_free_bytes", "Free space on the embedded PostgreSQL's disk.")
	diskSize     = gauge("integrity_disk_size_bytes", "Size of that disk.")
	historyLost  = gauge("integrity_history_lost",
		"1 if the database lacks commits of this process, or leaves that the transparency log has signed, by how it "+
			"is known.", "cause")
	standbys     = gauge("integrity_replication_standbys", "Standbys connected to the database.")
	standbyBytes = gauge("integrity_replication_lag_bytes", "WAL that a standby has not applied yet.", "standby")
	standbyTime  = gauge(
		"integrity_replication_lag_seconds", "How long a standby takes to apply a commit.", "standby",
	)
)

// Describe sends nothing: the set of metrics depends on which sources answer.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads all sources. If the database does not answer, its metrics are left out.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	send := func(m metric, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(m.desc, m.value, value, labels...)
	}
	for shard, q := range c.Ledger.Queues() {
		send(queueWaiting, float64(q.Waiting), shardText(shard))
		send(queueCapacity, float64(q.Capacity), shardText(shard))
		send(queueRefused, float64(q.Refused), shardText(shard))
	}
	for shard, fails := range c.Canary.Failing() {
		send(shardFailing, truth(fails), strconv.Itoa(shard))
	}
	clocks, refused := c.Ledger.Clock.State()
	send(clockApart, clocks.Apart.Seconds(), "database")
	send(clockApart, clocks.ProcessStep.Seconds(), "process_step")
	send(clockApart, clocks.DatabaseStep.Seconds(), "database_step")
	for cause, n := range refused {
		send(clockRefused, float64(n), string(cause))
	}
	for by, lost := range c.Lost() {
		send(historyLost, truth(lost), string(by))
	}
	send(readers, float64(c.Waiting()))
	send(keyTrusted, truth(c.Trusted()))
	send(keySigns, truth(c.Signs()))
	if end := c.Expires(); !end.IsZero() {
		send(certificate, float64(end.Unix()))
	}
	if c.TransparencyLog {
		send(logTrusted, truth(c.LogTrusted()))
	}
	for name, count := range c.Failures {
		send(failures, float64(count()), name)
	}
	for _, a := range c.Authorities {
		send(stampTokens, float64(a.Stored()), a.Name())
		send(stampFailures, float64(a.Failures()), a.Name())
	}
	pools := maps.Clone(c.Pools)
	for use, nodes := range c.Nodes {
		for node, pool := range nodes.Pools() {
			pools[use+" at node "+strconv.Itoa(int(node))] = pool
		}
	}
	for name, pool := range pools {
		stat := pool.Stat()
		send(poolAcquired, float64(stat.AcquiredConns()), name)
		send(poolIdle, float64(stat.IdleConns()), name)
		send(poolMost, float64(stat.MaxConns()), name)
		send(poolWaits, float64(stat.EmptyAcquireCount()), name)
		send(poolWaited, stat.AcquireDuration().Seconds(), name)
	}
	if c.Replica != nil {
		count := c.Replica.Count()
		send(replicaReads, float64(count.Answered), "answered")
		send(replicaReads, float64(count.Behind), "primary")
		send(replicaReads, float64(count.Failed), "failed")
	}
	if c.DataDir != "" {
		var disk unix.Statfs_t
		if err := unix.Statfs(c.DataDir, &disk); err == nil {
			send(diskFree, float64(disk.Bavail)*float64(disk.Bsize))
			send(diskSize, float64(disk.Blocks)*float64(disk.Bsize))
		}
	}
	c.collectDatabase(send)
}

func (c *collector) collectDatabase(send func(metric, float64, ...string)) {
	s, sizes, rows := c.ask()
	send(databaseUp, truth(s.err == nil))
	if s.err != nil {
		return
	}
	now := c.Now()
	age := func(at *time.Time) float64 {
		if at == nil {
			return 0
		}
		return max(0, now.Sub(*at).Seconds())
	}
	for _, w := range s.watched.Shards {
		shard := shardText(w.Shard)
		send(position, float64(w.Position), shard)
		ahead := 0.0
		if w.Last != nil {
			ahead = max(0, w.Last.Sub(now).Seconds())
		}
		send(shardAhead, ahead, shard)
		send(outboxAge, age(w.Delivery), shard)
		send(mailAge, age(w.Mail), shard)
	}
	for _, b := range rows {
		send(outboxRows, float64(b.Deliveries), shardText(b.Shard))
		send(mailRows, float64(b.Mails), shardText(b.Shard))
	}
	send(failing, float64(s.watched.FailingDestinations))
	send(archiveFails, truth(s.watched.ArchiveFails))
	for consumer, lags := range s.lags {
		for shard, lag := range lags {
			send(lagEvents, float64(lag.Events), consumer, shardText(shard))
			since := &lag.Since
			if since.IsZero() {
				since = nil
			}
			send(lagSeconds, age(since), consumer, shardText(shard))
		}
	}
	if c.TransparencyLog {
		c.collectLog(send, s.log, now)
		c.collectStamps(send, s.stamps, now)
	}
	send(standbys, float64(len(s.standbys)))
	seen := map[string]bool{} // if two have the same name, report only the first
	for _, standby := range s.standbys {
		if seen[standby.Name] {
			continue
		}
		seen[standby.Name] = true
		if standby.Bytes != nil {
			send(standbyBytes, float64(*standby.Bytes), standby.Name)
		}
		if standby.Seconds != nil {
			send(standbyTime, *standby.Seconds, standby.Name)
		}
	}
	for table, bytes := range sizes {
		send(tableBytes, float64(bytes), table)
	}
}

func (c *collector) collectLog(send func(metric, float64, ...string), s transparency.Status, now time.Time) {
	send(logEvents, float64(s.Events-s.Published))
	lag := 0.0
	switch {
	case s.Events == s.Published:
	case !s.Oldest.IsZero():
		lag = max(0, now.Sub(s.Oldest).Seconds())
	case !s.SignedAt.IsZero(): // the tree is complete, but its last leaves are not signed
		lag = max(0, now.Sub(s.SignedAt).Seconds())
	}
	send(logSeconds, lag)
	send(logLeaves, float64(s.Published))
	send(logHalted, truth(s.Halted))
	for witness, leaves := range s.Cosigned {
		send(logCosigned, float64(leaves), witness)
	}
}

func (c *collector) collectStamps(
	send func(metric, float64, ...string), states []transparency.StampState, now time.Time,
) {
	if c.Authorities != nil {
		send(stampInterval, c.StampInterval.Seconds())
	}
	for _, s := range states {
		if !slices.Contains(c.stampers(), s.Authority) {
			continue // no longer configured
		}
		if s.TreeSize > 0 {
			send(stampAge, s.Age(now).Seconds(), s.Authority)
		}
		send(stampLag, s.Lag(now).Seconds(), s.Authority)
	}
}

func (c *collector) stampers() (names []string) {
	for _, a := range c.Authorities {
		names = append(names, a.Name())
	}
	return names
}

// ask returns the database's answers, which it caches for a moment.
func (c *collector) ask() (state, map[string]int64, []query.Backlog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askAtMost)
	defer cancel()
	if now := c.Now(); now.Sub(c.asked) >= rememberState {
		c.asked = now
		if c.state = c.look(ctx); c.state.err != nil {
			c.Log.Warn("database state not read", "error", c.state.err)
		}
	}
	if now := c.Now(); c.state.err == nil && now.Sub(c.sized) >= rememberSizes {
		c.sized = now
		var err error
		if c.sizes, err = query.TableSizes(ctx, c.Database); err != nil {
			c.sizes = nil
			c.Log.Warn("table sizes not read", "error", err)
		}
		if c.rows, err = query.Backlogs(ctx, c.Database); err != nil {
			c.rows = nil
			c.Log.Warn("queue rows not counted", "error", err)
		}
	}
	return c.state, c.sizes, c.rows
}

func (c *collector) look(ctx context.Context) (s state) {
	if s.watched, s.err = query.Watch(ctx, c.Database); s.err != nil {
		return s
	}
	s.lags = map[string]map[domain.Shard]consumer.Lag{}
	for _, name := range c.Consumers {
		if s.lags[name], s.err = consumer.ReadLag(ctx, c.Database, name); s.err != nil {
			return s
		}
	}
	if c.TransparencyLog {
		if s.log, s.err = transparency.ReadStatus(ctx, c.Database); s.err != nil {
			return s
		}
		if c.Authorities != nil {
			if s.stamps, s.err = transparency.ReadStamps(ctx, c.Database, c.stampers()); s.err != nil {
				return s
			}
		}
	}
	s.standbys, s.err = query.Standbys(ctx, c.Database)
	return s
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func shardText(shard domain.Shard) string { return strconv.Itoa(int(shard)) }

func statusText(status int) string { return strconv.Itoa(status) }
