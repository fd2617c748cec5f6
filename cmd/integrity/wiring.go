//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/analyzer"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/mail"
	manualpages "integrityledger/cmd/integrity/manual"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/postgres"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/console"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
	"integrityledger/projections"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
	"integrityledger/projections/queue/publishers"
	"integrityledger/projections/queue/webhooks"
	"integrityledger/projections/session"
)

// assembly opens the parts of a service.
type assembly struct{ *service }

// wire opens every part of the service and returns its HTTP handler. Each step needs the ones before it. Requests that
// wait for the feed answer when closing is closed. After an error, closePools closes the pools opened so far.
func (s assembly) wire(ctx context.Context, closing <-chan struct{}) (http.Handler, error) {
	for _, step := range []func(context.Context) error{
		s.readFiles, s.openLedgerData, s.openPools, s.register, s.openStore, s.openWorkers, s.openLedger, s.openContents,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s.handler(closing)
}

// readFiles reads the configured files, so that their errors show before the database is touched.
func (s assembly) readFiles(context.Context) (err error) {
	if s.plans, err = s.cfg.PlanTable(); err != nil {
		return err
	}
	if err = s.loadSecretKeys(); err != nil {
		return err
	}
	return s.loadKeys()
}

// openLedgerData waits for a server that accepts writes, because an external database may be in the middle of a
// failover.
func (s assembly) openLedgerData(ctx context.Context) error {
	if s.database != nil {
		return s.prepareLedger(ctx, connect.Fixed(s.database.URL(postgres.Database)))
	}
	entry, nodes := s.cfg.Database(ledger.Unread(s.log)), s.cfg.NodeTemplate(ledger.Unread(s.log))
	return s.await(ctx, func() error {
		source, err := cluster.Coordinator(ctx, entry, nodes)
		if err != nil {
			return err
		}
		if err := s.prepareLedger(ctx, source); err != nil {
			return err
		}
		s.primary.Nodes, s.primary.Entry = nodes, entry
		return nil
	})
}

// await retries a startup query until a writable server answers it. All queries of a startup share one limit,
// ledger.Patience from the first, because a failover can begin at any point.
func (s assembly) await(ctx context.Context, ask func() error) error {
	if s.database != nil {
		return ask()
	}
	if s.patience.IsZero() {
		s.patience = time.Now().Add(ledger.Patience)
	}
	err := cluster.Await(ctx, time.Until(s.patience), func(why error) {
		s.log.Warn("no server of the database accepts writes yet: waiting for one", "most", ledger.Patience, "error", why)
		s.starting.Store(domain.Unavailable("This process is starting: no server of the database accepts writes yet."))
	}, ask)
	return cluster.Explain(s.cfg.GivenBy("DATABASE_URL"), err)
}

// prepareLedger migrates the schema and creates the ledger if it does not exist.
func (s assembly) prepareLedger(ctx context.Context, source connect.Source) error {
	url := source()
	server, err := cluster.Inspect(ctx, url)
	if err != nil {
		return err
	}
	if server.Untried() {
		s.log.Warn(
			"this PostgreSQL is newer than any version the ledger is tested with", "version", server.Version, "newest",
			cluster.NewestPostgreSQL,
		)
	}
	s.starting.Store(domain.Unavailable("This process is starting: the schema is being migrated."))
	if err := ledger.Migrate(ctx, url); err != nil {
		return err
	}
	if s.installed, err = ledger.Ensure(ctx, s.App, url, s.cfg); err != nil {
		return ledger.AsOwner(err)
	}
	if s.cfg.Issuer != "" && s.cfg.Issuer != s.installed.Issuer {
		return say.Errorf(
			"%sISSUER: this ledger's issuer is %q and cannot change: set that, or unset the variable", config.Prefix,
			s.installed.Issuer,
		)
	}
	if s.primary, err = cluster.Find(ctx, source); err == nil {
		s.primary.Tracer = s.traces.Statements()
	}
	return err
}

func (s assembly) openPools(ctx context.Context) (err error) {
	for _, pool := range []struct {
		to    **pgxpool.Pool
		open  opener
		conns int
	}{
		{&s.commit, (*cluster.Primary).CommitPool, cluster.CommitConns(s.installed.Shards)},
		{&s.read, (*cluster.Primary).ReadPool, ledger.ReadConns},
		{&s.public, (*cluster.Primary).ReadPool, ledger.PublicConns},
		{&s.scans, (*cluster.Primary).ReadPool, ledger.ScanConns},
		{&s.queue, (*cluster.Primary).QueuePool, ledger.QueueConns},
		{&s.watch, (*cluster.Primary).ReadPool, 1},
	} {
		if *pool.to, err = pool.open(s.primary, ctx, pool.conns); err != nil {
			return err
		}
	}
	s.guard = eventstore.NewGuard(s.installed.Epoch, s.log)
	s.nodes = map[string]*cluster.Nodes{}
	if err := s.await(ctx, func() (err error) {
		s.holders, err = s.primary.Holders(ctx)
		return err
	}); err != nil {
		return err
	}
	if s.probe, err = eventstore.OpenProbe(ctx, s.primary, s.Now); err != nil {
		return err
	}
	return s.await(ctx, func() error { return checkHeads(ctx, s.read) })
}

// opener opens a pool with the given number of connections.
type opener func(*cluster.Primary, context.Context, int) (*pgxpool.Pool, error)

// onNodes opens pools with conns connections to each Citus node.
func (s assembly) onNodes(use string, conns int, open opener) *cluster.Nodes {
	nodes := s.holders.Nodes(conns, open)
	s.nodes[use] = nodes
	return nodes
}

// route opens pools to the Citus nodes, each as large as pool.
func (s assembly) route(use string, pool *pgxpool.Pool, open opener) eventstore.Database {
	return eventstore.Route(pool, s.onNodes(use, int(pool.Config().MaxConns), open))
}

// register announces this process to the others before it decides anything.
func (s assembly) register(ctx context.Context) error {
	s.gate = eventstore.NewGate(eventstore.ThisProgram(), func(e *eventstore.OutdatedError) {
		s.log.Error("commits and workers stopped; reads still work", "error", e)
	})
	host, _ := os.Hostname() // without a host name, the process ID identifies the process
	s.heartbeat = eventstore.NewHeartbeat(eventstore.Heartbeat{
		Pool: s.queue, Gate: s.gate, Name: strings.TrimSpace(fmt.Sprintf("%s %d", host, os.Getpid())),
		SecretKeys: func() []string { return s.loadedSecretKeys().IDs() },
	})
	return s.await(ctx, func() error { return s.heartbeat.Beat(ctx) })
}

// openStore opens the read side. It returns an error if an organization has a plan that the plan table lacks.
func (s assembly) openStore(ctx context.Context) error {
	reading := (*cluster.Primary).ReadPool
	s.store = query.New(query.Config{
		Pool: s.route("read", s.read, reading), Public: s.route("public", s.public, reading),
		Scans: s.route("scans", s.scans, reading), Installation: s.installed, Plans: s.plans,
	})
	s.sessions = &session.Store{Pool: s.store.Pool, Installation: s.installed, Plans: s.plans}
	if err := s.openReplica(ctx); err != nil {
		return err
	}
	var missing []string
	if err := s.await(ctx, func() (err error) {
		missing, err = s.store.MissingPlans(ctx)
		return err
	}); err != nil {
		return err
	}
	if missing != nil {
		return say.Errorf("organizations have plans that the table of plans lacks (%s): add them to the file of %sPLANS, "+
			"or give those organizations another plan with integrity organization plan",
			strings.Join(missing, ", "), config.Prefix)
	}
	return nil
}

// openWorkers creates the queue workers. startWorkers runs them.
func (s assembly) openWorkers(ctx context.Context) (err error) {
	if s.wake, err = s.primary.NotifyPool(ctx, ledger.WakeConns); err != nil {
		return err
	}
	if s.notifier, err = eventstore.OpenNotifier(eventstore.NotifierConfig{
		Pool: s.wake, Read: s.store.Pool, Nodes: s.onNodes("wake", ledger.WakeConns, (*cluster.Primary).NotifyPool),
		Log: s.log,
	}); err != nil {
		return err
	}
	if s.cfg.SMTPURL != "" {
		if s.send, err = mail.NewSender(s.cfg.SMTPURL, s.cfg.MailFrom, s.cfg.BaseURL, s.Now); err != nil {
			return err
		}
		s.linkMailer = console.NewLinkMailer(console.LinkMailer{
			Sessions: s.sessions, Send: s.send, BaseURL: s.cfg.BaseURL, Now: s.Now, Log: s.log,
		})
	}
	do := func(ctx context.Context, c domain.Command) error { return s.ledger.Do(ctx, c) }
	queued := s.route("queue", s.queue, (*cluster.Primary).QueuePool)
	if s.webhooks, err = webhooks.New(webhooks.Config{
		Pool: queued, Shards: s.installed.Shards, Plans: s.plans, SecretKeys: s.loadedSecretKeys, Allows: s.egress().Allows,
		Do: do, Now: s.Now, Log: s.log, Observe: s.metrics.Delivery,
	}); err != nil {
		return err
	}
	if s.publishers, err = publishers.New(publishers.Config{
		Pool: queued, Shards: s.installed.Shards, Allows: s.egress().Allows, Do: do, Now: s.Now, Log: s.log,
		Resolver: publishers.NewResolver(s.cfg.Resolver),
	}); err != nil {
		return err
	}
	s.warner = queue.NewMeterWarner(queue.MeterWarner{
		Pool: queued, Shards: s.installed.Shards, Plans: s.store.Plans, Now: s.Now, Log: s.log, Do: do,
	})
	s.store.RequestsReached = s.warner.Wake
	if s.cfg.NATSURL != "" {
		if s.stream, err = s.primary.ConsumerPool(ctx, ledger.StreamConns); err != nil {
			return err
		}
		broker, err := stream.NewNATS(s.cfg.NATSURL, s.cfg.NATSCredentials, s.log)
		if err != nil {
			return err
		}
		if s.forwarder, err = stream.New(stream.Config{
			Publisher: broker, Pool: s.stream, Store: s.store, Shards: s.installed.Shards, Log: s.log,
			Nodes: s.onNodes("stream", ledger.StreamConns/2, (*cluster.Primary).ConsumerPool),
		}); err != nil {
			return err
		}
	}
	return s.openTree(ctx)
}

// openLedger opens the write side.
func (s assembly) openLedger(context.Context) (err error) {
	if s.ledger, err = eventstore.Open(eventstore.Config{
		Pool: s.commit, Nodes: s.onNodes("commit", int(s.commit.Config().MaxConns), (*cluster.Primary).CommitPool),
		Plans: s.plans, Clock: s.clock, Log: s.log, Gate: s.gate, Guard: s.guard, Count: projections.Count,
		Refund: projections.Refund, Load: projections.Load, Apply: projections.Apply, Enqueue: projections.Enqueue,
		QueueCapacity: eventstore.Places(s.installed.Shards), Committed: s.committed, Observe: s.grouped,
		Tracer: s.traces.Tracer(),
	}); err != nil {
		return err
	}
	s.probe.Clocks = s.ledger.Ready
	s.canary = eventstore.NewCanary(s.ledger, s.installed.Shards)
	return nil
}

// openContents opens the content store and the analyzer.
func (s assembly) openContents(context.Context) error {
	url, err := s.cfg.BlobStore()
	if err != nil {
		return err
	}
	s.contents = &blobs.Store{URL: url, Sync: keyfiles.Sync}
	s.analyzer, err = analyzer.New(analyzer.Config{})
	return err
}

// egress returns the policy for webhook destinations. A demo may also send to loopback addresses.
func (s assembly) egress() webhooks.EgressPolicy {
	policy := s.cfg.Egress()
	policy.Loopback = s.asDemo
	return policy
}

func (s assembly) handler(closing <-chan struct{}) (http.Handler, error) {
	spool, err := s.cfg.SpoolDir()
	if err != nil {
		return nil, err
	}
	around := s.surroundings()
	around.Store, around.Sessions, around.Installation = s.store, s.sessions, s.installed
	around.KeyUsed, around.OAuth, around.Closing = s.keyUses.Note, s.oauth(), closing
	around.Spool = &edge.Spool{Dir: spool}
	address, printLink := "", (func(context.Context, evidence.Language, string) error)(nil)
	if s.asDemo {
		address, printLink = demo.Email, s.printDemoLink
	}
	s.loadCustody()
	return handlers.New(handlers.Config{
		Edge:   around,
		Ledger: s.ledger,
		Action: handlers.Action{
			Notifier: s.notifier, Keys: func() action.Keys { return *s.keys.Load() },
			Analyze: s.analyzer.Analyze, Keep: s.keepContent, Ready: s.ready, SecretKeys: s.loadedSecretKeys,
			MailsInvitations: s.cfg.SMTPURL != "", Egress: s.egress(), Publishers: s.publishers, Queued: s.webhooks.Wake,
			Transparency: s.tree.reader, PublicLog: s.tree.public, Parties: s.parties(),
			Relationship: map[evidence.Language]string{
				evidence.Spanish: s.cfg.RelationshipES, evidence.English: s.cfg.RelationshipEN,
			},
		},
		Console: handlers.Console{
			NoInvitations: !s.cfg.SignUp.Invited, SignUp: s.cfg.SignUp.Open, LinkMailer: s.linkMailer,
			LinkCommand: s.linkCommand(), FirstAddress: address, PrintLink: printLink,
		},
		Site: handlers.Site{
			Manual: manualpages.Pages, Demo: s.asDemo,
			OperatorName: s.cfg.OperatorName, SecurityContact: s.cfg.SecurityContact,
		},
	}), nil
}

// linkCommand returns the command that prints a link for signing in to this installation, without the member's address.
// The address of an external database may contain a password, so the command reads it from the environment.
func (s assembly) linkCommand() string {
	binary, err := os.Executable()
	if err != nil {
		binary = "integrity"
	}
	words := []string{binary, "member", "sign-in-link"}
	if s.cfg.DatabaseURL == "" {
		words = append(words, "--data-dir", keyfiles.Absolute(s.cfg.DataDir))
	}
	words = append(words, "--base-url", s.cfg.BaseURL)
	for i, word := range words {
		words[i] = console.Quoted(word)
	}
	return strings.Join(words, " ")
}

// printDemoLink prints a fresh link for an address in the terminal of the demo.
func (s assembly) printDemoLink(ctx context.Context, l evidence.Language, address string) error {
	shown := s.demo.Load()
	if shown == nil {
		return domain.Unavailable("The demo's data is not ready yet.")
	}
	return shown.PrintLink(ctx, l, address)
}

// keepContent records the content before storing it, so that it is erased if its registration never commits.
func (s assembly) keepContent(
	ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, content io.ReaderAt,
	size int64,
) error {
	if err := s.store.AnnounceContent(ctx, o, a, v, s.Now()); err != nil {
		return err
	}
	return s.contents.Keep(ctx, o, v, content, size)
}

// warnOfFiles warns at startup if the limit of open files is so low that connections would be refused under load.
func (s *service) warnOfFiles() {
	limit, err := ledger.OpenFiles()
	if clients := ledger.ClientsFor(limit, ledger.DatabaseConns(s.installed.Shards)); err == nil &&
		clients < ledger.FewClients {
		s.log.Warn(
			"the limit of open files allows few simultaneous clients; "+ledger.RaiseFiles, "limit", limit, "clients",
			max(0, clients),
		)
	}
}

// oauth returns the OAuth adapter of the standard MCP endpoint, or nil if none is configured. It does not contact the
// provider yet.
func (s assembly) oauth() *oauth.Provider {
	if s.cfg.OAuthIssuer == "" {
		return nil
	}
	return oauth.New(oauth.Config{
		Issuer: s.cfg.OAuthIssuer, Audience: edge.OAuthAudience(s.cfg.BaseURL), ClientID: s.cfg.OAuthClientID,
		ClientSecret: s.cfg.OAuthClientSecret, RedirectURL: edge.OAuthRedirect(s.cfg.BaseURL), Now: s.Now,
	})
}

// tree is the process's part of the transparency log. Without a log all fields are nil.
type tree struct {
	write, read *pgxpool.Pool
	keeper      *transparency.Keeper
	reader      *transparency.Reader
	public      *transparency.Reader                // for public pages
	signer      atomic.Pointer[transparency.Signer] // nil: this process leaves the tree to others
	witnesses   []*transparency.Witness
	authorities []*transparency.TimestampAuthority
}

// publicTree bounds a read of the tree for public pages, so that they soon return the connections that evidence needs.
const publicTree = 300 * time.Millisecond

// freshTree is how long a cached checkpoint may be used for evidence. The log makes at most one checkpoint per second.
const freshTree = 200 * time.Millisecond

// openTree creates the log's keeper and reader.
func (s assembly) openTree(ctx context.Context) error {
	if !s.cfg.Transparency {
		return nil
	}
	var err error
	if s.tree.witnesses, err = s.cfg.WitnessList(); err != nil {
		return err
	}
	if s.tree.authorities, err = s.cfg.TimestampAuthorityList(); err != nil {
		return err
	}
	if s.database != nil {
		if err := s.ensureLogKey(); err != nil {
			return err
		}
	}
	s.loadLogKey()
	if s.tree.write, err = s.primary.ConsumerPool(ctx, ledger.LogConns); err != nil {
		return err
	}
	if s.tree.read, err = s.primary.ReadPool(ctx, ledger.ProofConns); err != nil {
		return err
	}
	trusted := func() *evidence.TrustedKeys { return s.keys.Load().Trusted }
	s.tree.reader = &transparency.Reader{Pool: s.tree.read, Fresh: freshTree, Trusted: trusted}
	s.tree.public = &transparency.Reader{Pool: s.tree.read, Fresh: freshTree, Trusted: trusted, Limit: publicTree}
	known, keep, err := s.signedHead(ctx)
	if err != nil {
		return err
	}
	s.tree.keeper, err = transparency.New(transparency.Config{
		Pool: s.tree.write, Nodes: s.onNodes("log", ledger.LogConns/2, (*cluster.Primary).ConsumerPool),
		Shards: s.installed.Shards,
		Signer: s.tree.signer.Load, Witnesses: s.tree.witnesses, Now: s.Now, Log: s.log, Guard: s.guard, Gate: s.gate,
		Known: known, Keep: keep,
		Authorities: s.tree.authorities, Stamp: s.cfg.TimestampInterval,
		Pinned: func(name string) (evidence.Authority, bool) { return s.keys.Load().Trusted.Authority(name) },
	})
	return err
}

// signedHead reads the largest log head stored in the data directory and checks that the database contains it, before
// anything is committed. It also returns the function that stores later heads, or nil if the directory is not writable.
// The service starts even then: a running process still notices lost commits.
func (s assembly) signedHead(ctx context.Context) (
	known transparency.Head, keep func(transparency.Head) (transparency.Head, error), err error,
) {
	file := keyfiles.NewSignedHead(s.cfg.DataDir, s.installed.ID())
	if known, err = file.Read(s.keys.Load().Trusted, s.installed.Epoch); err != nil {
		return known, nil, err
	}
	missing, err := known.Lacks(ctx, s.tree.read)
	switch {
	case err != nil: // the keeper checks again before it signs
		s.log.Warn("database not yet compared with the signed head of the log", "file", file.Path(), "error", err)
	case missing.Format != "":
		s.guard.Missing(eventstore.BySignedHead, missing.String()+" (known from "+file.Path()+")")
	}
	if err := file.Writable(); err != nil {
		s.log.Warn("signed log heads are not stored outside the database, so a start after lost commits will not detect the "+
			"loss: set "+config.Prefix+
			"DATA_DIR to a persistent directory that this process can write", "directory",
			s.cfg.DataDir, "error", err)
		return known, nil, nil
	}
	return known, func(h transparency.Head) (transparency.Head, error) {
		return file.Keep(h, s.keys.Load().Trusted)
	}, nil
}
