package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"integrityledger/cmd/postgres"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/migrations"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

const (
	// patience is how long to wait for another command, or another server, to leave the data directory.
	patience = 60 * time.Second
	// closing is how long a command may take to finish what the ledger has accepted.
	closing = 30 * time.Second
)

// ledgerFor is what an operator's command works with.
type ledgerFor struct {
	*eventstore.Ledger
	store        *query.Store
	read         *pgxpool.Pool
	installation eventstore.Installation
	url          string
}

// addDatabaseFlags names what a command needs to find the ledger.
func addDatabaseFlags(c *cobra.Command) {
	addSettings(c, "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE")
}

// withDatabase gives do the URL of the ledger's database: the configured one, that of the running server in the data
// directory, or that of a server which runs for as long as do does. The schema is migrated where nobody else can be
// using it; elsewhere an old schema is refused.
func (a *app) withDatabase(ctx context.Context, cfg Config, log *slog.Logger, purpose string, migrate bool, do func(url string) error) (err error) {
	url := cfg.DatabaseURL
	if url == "" {
		server, err := postgres.StartOrAttach(ctx, postgres.Config{DataDir: cfg.DataDir, Log: log, Purpose: purpose, Wait: patience})
		if err != nil {
			return err
		}
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
			defer cancel()
			err = errors.Join(err, server.Stop(stopping))
		}()
		url = server.URL(postgres.Database)
		migrate = migrate || server.PID() != 0
	} else if _, err := cluster.Inspect(ctx, url); err != nil {
		return err
	}
	if migrate {
		if err := migrations.Up(ctx, url); err != nil {
			return err
		}
		return do(url)
	}
	pending, err := migrations.Pending(ctx, url)
	if err != nil {
		return err
	}
	if pending {
		return errors.New("the database lacks migrations of this program: run integrity migrate first")
	}
	return do(url)
}

// withLedger opens the ledger for one operator's command.
func (a *app) withLedger(c *cobra.Command, do func(context.Context, *ledgerFor) error) error {
	cfg, err := a.loadConfig(c)
	if err != nil {
		return err
	}
	plans, err := cfg.plans()
	if err != nil {
		return err
	}
	ctx := c.Context()
	log := slog.New(slog.NewTextHandler(a.errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return a.withDatabase(ctx, cfg, log, c.CommandPath(), false, func(url string) (err error) {
		l := &ledgerFor{url: url}
		if l.installation, err = a.ensureLedger(ctx, url, cfg); err != nil {
			return err
		}
		primary, err := cluster.Find(ctx, url)
		if err != nil {
			return err
		}
		commit, err := primary.CommitPool(ctx, 2)
		if err != nil {
			return err
		}
		defer commit.Close()
		if l.read, err = primary.ReadPool(ctx, 2); err != nil {
			return err
		}
		defer l.read.Close()
		l.store = &query.Store{Pool: l.read, Public: l.read, Installation: l.installation, Plans: plans}
		if l.Ledger, err = eventstore.Open(eventstore.Config{
			Pool: commit, Plans: plans, Clock: a.clock(cfg), Log: log, Load: projections.Load, Apply: projections.Apply, Enqueue: projections.Enqueue,
		}); err != nil {
			return err
		}
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
			defer cancel()
			err = errors.Join(err, l.Close(stopping))
		}()
		return do(ctx, l)
	})
}

// ensureLedger makes the ledger where there is none. In somebody else's database that needs a name: the issuer stands in
// every signed record and can never change, so it must not become a loopback address by default.
func (a *app) ensureLedger(ctx context.Context, url string, cfg Config) (eventstore.Installation, error) {
	settings := eventstore.Settings{Issuer: cfg.Issuer, Shards: cfg.Shards, Now: a.now, Random: a.random}
	if settings.Issuer == "" {
		settings.Issuer = cfg.BaseURL
	}
	if settings.Issuer == "" {
		settings.Issuer = "http://" + cfg.Listen
	}
	shards, err := existingShards(ctx, url)
	switch {
	case err != nil:
		return eventstore.Installation{}, err
	case shards == 0 && cfg.DatabaseURL != "" && cfg.Issuer == "" && isLoopbackURL(settings.Issuer):
		return eventstore.Installation{}, fmt.Errorf("%sISSUER, or a public %sBASE_URL, is needed to make a ledger: it names the issuer of every signed record and cannot change later", variablePrefix, variablePrefix)
	case shards > 0 && !cfg.shardsGiven:
		settings.Shards = shards
	}
	return eventstore.Ensure(ctx, url, settings)
}

// existingShards is the number that the ledger has, 0 where there is no ledger yet.
func existingShards(ctx context.Context, url string) (shards int, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, fmt.Errorf("open database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(shards), 0) FROM ledger").Scan(&shards); err != nil {
		return 0, fmt.Errorf("look for the ledger: %w", err)
	}
	return shards, nil
}

// operator is the cause of what a command changes.
func (a *app) operator(organization domain.OrganizationID) domain.Origin {
	return domain.Origin{Organization: organization, Actor: domain.OperatorActor, RequestID: a.requestID()}
}

func (a *app) migrateCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the database to the newest schema and make the ledger in it",
		Long: "Brings the database to the newest schema, as the role of its URL, and makes the ledger where there is none.\n" +
			"serve does the same when it starts.",
		Args: arguments(0, 0),
	}
	addSettings(c, "DATABASE_URL", "DATA_DIR", "BASE_URL", "ISSUER", "SHARDS")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		ctx := c.Context()
		log := slog.New(slog.NewTextHandler(a.errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		return a.withDatabase(ctx, cfg, log, c.CommandPath(), true, func(url string) error {
			in, err := a.ensureLedger(ctx, url, cfg)
			if err != nil {
				return err
			}
			return a.print(asJSON, struct {
				Issuer    string `json:"issuer"`
				Shards    int    `json:"shards"`
				Epoch     int64  `json:"epoch"`
				CreatedAt string `json:"createdAt"`
			}{in.Issuer, in.Shards, in.Epoch, timeText(in.CreatedAt)},
				fmt.Sprintf("the schema is the newest; the ledger of %s has %d shards\n", in.Issuer, in.Shards))
		})
	}
	return c
}
