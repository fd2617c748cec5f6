// Package ledger opens the ledger that the settings describe, for the service and for operator commands.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/postgres"
	"integrityledger/migrations"
	"integrityledger/projections"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

const (
	// Patience is how long to wait for another command, or another server, to leave the data directory.
	Patience = 60 * time.Second
	// Closing is how long a command may take to finish the work that the ledger has accepted.
	Closing = 30 * time.Second
)

// Opened is an open ledger and what an operator command needs with it.
type Opened struct {
	*eventstore.Ledger
	Store        *query.Store
	Sessions     *session.Store
	Read         *pgxpool.Pool
	Installation eventstore.Installation
	URL          string
	Primary      *cluster.Primary
	Config       *config.Config // settings of the command
}

// WithServer calls do with the embedded PostgreSQL. It uses a running service's server, or starts one until do returns.
func WithServer(
	ctx context.Context, dataDir string, log *slog.Logger, purpose string, do func(*postgres.Server) error,
) (err error) {
	server, err := postgres.StartOrAttach(
		ctx, postgres.Config{DataDir: dataDir, Log: log, Purpose: purpose, Wait: Patience},
	)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), Closing)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	return do(server)
}

// WithDatabase calls do with the ledger's database: the configured one, the running server in the data directory, or a
// server started until do returns. It migrates the schema only if no other process can be using it; otherwise an old
// schema is an error.
func WithDatabase(
	ctx context.Context, a *cli.App, cfg config.Config, log *slog.Logger, purpose string, migrate bool,
	do func(connect.Source) error,
) error {
	if cfg.DatabaseURL == "" {
		return WithServer(ctx, cfg.DataDir, log, purpose, func(server *postgres.Server) error {
			return withSchema(ctx, connect.Fixed(server.URL(postgres.Database)), migrate || server.PID() != 0, do)
		})
	}
	setting, entry := cfg.GivenBy("DATABASE_URL"), cfg.Database(Unread(log))
	if _, err := cluster.Inspect(ctx, entry()); err != nil {
		return cluster.Explain(setting, err)
	}
	source, err := cluster.Coordinator(ctx, entry, cfg.NodeTemplate(Unread(log)))
	if err != nil {
		return cluster.Explain(setting, err)
	}
	return withSchema(ctx, source, migrate, do)
}

// Unread returns a function that logs why the file of a database URL could not be read again.
func Unread(log *slog.Logger) func(error) {
	return func(err error) {
		log.Warn("cannot read the file of a database URL; the previous URL stays in use", "error", err)
	}
}

// Migrate migrates the schema to the newest version. It returns an error if the ledger requires a newer program.
func Migrate(ctx context.Context, url string) error {
	if err := eventstore.ThisProgram().AdmittedAt(ctx, url); err != nil {
		return err
	}
	err := migrations.Up(ctx, url)
	if denied, ok := errors.AsType[*migrations.NotOwnerError](err); ok {
		return say.Errorf("the database lacks migrations of this program, and the role %s may not apply them: "+
			"run integrity migrate as the role that owns the tables", denied.Role)
	}
	return err
}

func withSchema(ctx context.Context, source connect.Source, migrate bool, do func(connect.Source) error) error {
	if migrate {
		if err := Migrate(ctx, source()); err != nil {
			return err
		}
		return AsOwner(do(source))
	}
	url := source()
	if err := eventstore.ThisProgram().AdmittedAt(ctx, url); err != nil {
		return err
	}
	database, known, err := migrations.Versions(ctx, url)
	if err != nil {
		return err
	}
	if database < known {
		return say.Errorf("the database lacks migrations of this program: run integrity migrate first")
	}
	return AsOwner(do(source))
}

// AsOwner adds to an error which role can do what the database denied. It returns other errors unchanged.
func AsOwner(err error) error {
	if cluster.Denied(err) && !cluster.NotConnected(err) {
		return say.Errorf("%w: the role of the database URL may not do this; run it as the role that owns the tables", err)
	}
	return err
}

// With opens the ledger for an operator command.
func With(a *cli.App, c *cobra.Command, do func(context.Context, *Opened) error) error {
	cfg, err := config.Load(a, c)
	if err != nil {
		return err
	}
	plans, err := cfg.PlanTable()
	if err != nil {
		return err
	}
	ctx := c.Context()
	log := a.WarnLog()
	return WithDatabase(ctx, a, cfg, log, c.CommandPath(), false, func(source connect.Source) (err error) {
		l := &Opened{URL: source(), Config: &cfg}
		if l.Installation, err = Ensure(ctx, a, l.URL, cfg); err != nil {
			return err
		}
		if l.Primary, err = cluster.Find(ctx, source); err != nil {
			return err
		}
		l.Primary.Reader = true
		commit, err := l.Primary.CommitPool(ctx, 2)
		if err != nil {
			return err
		}
		defer commit.Close()
		if l.Read, err = l.Primary.ReadPool(ctx, 2); err != nil {
			return err
		}
		defer l.Read.Close()
		l.Store = query.New(query.Config{Pool: l.Read, Public: l.Read, Installation: l.Installation, Plans: plans})
		l.Sessions = &session.Store{Pool: l.Read, Installation: l.Installation, Plans: plans}
		operator := projections.Operator{Person: a.Person(), Host: hostName(), Command: c.CommandPath()}
		if l.Ledger, err = eventstore.Open(eventstore.Config{
			Pool: commit, Plans: plans, Clock: Clock(a, cfg), Log: log,
			Count: projections.Count, Refund: projections.Refund, Load: projections.Load, Apply: projections.Apply,
			Enqueue: func(b *pgx.Batch, shard domain.Shard, events []domain.Event, state *domain.State, queued *bool) {
				projections.Enqueue(b, shard, events, state, queued)
				operator.Record(b, shard, events)
			},
		}); err != nil {
			return err
		}
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), Closing)
			defer cancel()
			err = errors.Join(err, l.Close(stopping))
		}()
		return do(ctx, l)
	})
}

// hostName returns this machine's name, or "unknown".
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// Ensure creates the ledger if it does not exist. In an external database this requires an explicit issuer: the issuer
// is in every signed record and can never change, so it must not default to a loopback address.
func Ensure(ctx context.Context, a *cli.App, url string, cfg config.Config) (eventstore.Installation, error) {
	settings := eventstore.Settings{
		Issuer: cmp.Or(cfg.Issuer, cfg.BaseURL, "http://"+cfg.Listen), Shards: cfg.Shards, Now: a.Now,
	}
	shards, err := existingShards(ctx, url)
	switch {
	case err != nil:
		return eventstore.Installation{}, err
	case shards == 0 && cfg.DatabaseURL != "" && cfg.Issuer == "" && config.IsLoopbackURL(settings.Issuer):
		return eventstore.Installation{}, say.Errorf(
			"set %sISSUER, or a public %sBASE_URL, to create a ledger: it names the issuer of every signed record and "+
				"cannot change later",
			config.Prefix, config.Prefix,
		)
	case shards > 0 && !cfg.ShardsGiven:
		settings.Shards = shards
	}
	return eventstore.Ensure(ctx, url, settings)
}

// existingShards returns the ledger's number of shards, or 0 if there is no ledger yet.
func existingShards(ctx context.Context, url string) (shards int, err error) {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(shards), 0) FROM ledger").Scan(&shards); err != nil {
		return 0, say.Errorf("read the ledger row: %w", err)
	}
	return shards, nil
}

// Origin returns the origin of changes that an operator command makes.
func Origin(a *cli.App, organization domain.OrganizationID) domain.Origin {
	return domain.Origin{Organization: organization, Actor: domain.OperatorActor, RequestID: a.RequestID()}
}

// Clock returns the clock that dates a ledger's events.
func Clock(a *cli.App, cfg config.Config) *eventstore.Clock {
	return eventstore.NewClock(eventstore.ClockConfig{Now: a.Now, Monotonic: sinceBoot(), Tolerance: cfg.ClockTolerance})
}

// sinceBoot returns a function for the time since the machine started. No user can set this clock, and it continues
// while the machine is suspended. sinceBoot returns nil if the kernel does not provide it.
func sinceBoot() func() time.Duration {
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, new(unix.Timespec)) != nil {
		return nil
	}
	return func() time.Duration {
		var at unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) // it has worked before
		return time.Duration(at.Nano())
	}
}

const (
	// OwnFiles is the number of files that the process has open besides connections: keys, uploads, log, listeners.
	OwnFiles = 128
	// FewClients is how many clients a service should be able to serve at once: feed readers wait up to 25 s each.
	FewClients = 1024
)

// DatabaseConns is how many database connections a service process opens.
func DatabaseConns(shards int) int {
	return cluster.CommitConns(shards) + ReadConns + PublicConns + ScanConns + QueueConns + StreamConns + LogConns +
		ProofConns + WakeConns + probeConns + watchConns
}

// ClientsFor is how many client connections an open-file limit leaves room for.
func ClientsFor(limit uint64, conns int) int {
	return int(min(limit, 1<<30)) - conns - OwnFiles
}

// OpenFiles returns this process's open-file limit, which the Go runtime has already raised as far as possible.
func OpenFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, say.Errorf("read the open-file limit: %w", err)
	}
	return limit.Cur, nil
}

// RaiseFiles tells an operator how to raise a low limit.
const RaiseFiles = "raise it: LimitNOFILE=65536 in the unit, ulimits in a container, ulimit -n in a shell"

// The size of each pool of a process; cluster.CommitConns is the size of the pool that commits. eventstore/cluster
// opens every pool. A full pool only delays its own users. The embedded PostgreSQL allows a hundred connections.
const (
	ReadConns   = 16 // authentication and authenticated reads; the same for the replica
	PublicConns = 8  // public comparisons and receipts
	ScanConns   = 2  // queries that may read many rows
	QueueConns  = 4  // webhooks, mails, warnings, heartbeats
	StreamConns = 4  // events forwarded to NATS
	LogConns    = 4  // the transparency tree, written
	ProofConns  = 4  // the transparency tree, read
	probeConns  = 1  // /readyz
	WakeConns   = 2  // notifications
	watchConns  = 1  // metrics
)
