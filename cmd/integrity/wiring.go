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
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/mail"
	manualpages "integrityledger/cmd/integrity/manual"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
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
	"integrityledger/projections/queue/webhooks"
	"integrityledger/projections/session"
)

// assembly makes the parts of a service.
type assembly struct{ *service }

// wire makes the handler of everything behind it, in steps of which each needs those before it. Requests that wait for
// the feed answer once closing is closed. After an error closePools closes what was opened.
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

// readFiles reads what can be wrong before the database is touched.
func (s assembly) readFiles(context.Context) (err error) {
	if s.plans, err = s.cfg.PlanTable(); err != nil {
		return err
	}
	if s.secretKey, err = s.readSecretKey(); err != nil {
		return err
	}
	return s.loadKeys()
}

// openLedgerData waits for a server that accepts writes, because another's database may be in the middle of a failover.
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

// await asks the database what a start must know, for up to ledger.Patience from the first question on: a failover
// may come at any point of the start.
func (s assembly) await(ctx context.Context, ask func() error) error {
	if s.database != nil {
		return ask()
	}
	if s.patience.IsZero() {
		s.patience = time.Now().Add(ledger.Patience)
	}
	err := cluster.Await(ctx, time.Until(s.patience), func(why error) {
		s.log.Warn("no server of the database accepts writes yet: waiting for one", "most", ledger.Patience, "error", why)
	}, ask)
	return cluster.Explain(s.cfg.GivenBy("DATABASE_URL"), err)
}

// prepareLedger brings the schema to its newest form and makes the ledger where it is missing.
func (s assembly) prepareLedger(ctx context.Context, source connect.Source) error {
	url := source()
	server, err := cluster.Inspect(ctx, url)
	if err != nil {
		return err
	}
	if server.Untried() {
		s.log.Warn(
			"this PostgreSQL is newer than what the tests run on", "version", server.Version, "newest",
			cluster.NewestPostgreSQL,
		)
	}
	if err := ledger.Migrate(ctx, url); err != nil {
		return err
	}
	if s.installed, err = ledger.Ensure(ctx, s.App, url, s.cfg); err != nil {
		return err
	}
	if s.cfg.Issuer != "" && s.cfg.Issuer != s.installed.Issuer {
		return fmt.Errorf(
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

// opener opens a pool of so many connections.
type opener func(*cluster.Primary, context.Context, int) (*pgxpool.Pool, error)

// onNodes gives so many connections to each node of Citus.
func (s assembly) onNodes(use string, conns int, open opener) *cluster.Nodes {
	nodes := s.holders.Nodes(conns, open)
	s.nodes[use] = nodes
	return nodes
}

// route gives as many to each as a pool has.
func (s assembly) route(use string, pool *pgxpool.Pool, open opener) eventstore.Database {
	return eventstore.Route(pool, s.onNodes(use, int(pool.Config().MaxConns), open))
}

// register shows that this process serves, before it decides anything.
func (s assembly) register(ctx context.Context) error {
	s.gate = eventstore.NewGate(eventstore.ThisProgram(), func(e *eventstore.OutdatedError) {
		s.log.Error("nothing is committed any more, and the workers stop; reads go on", "error", e)
	})
	host, _ := os.Hostname() // without one the process id must do
	s.heartbeat = &eventstore.Heartbeat{
		Pool: s.queue, Gate: s.gate, Name: strings.TrimSpace(fmt.Sprintf("%s %d", host, os.Getpid())),
	}
	return s.await(ctx, func() error { return s.heartbeat.Beat(ctx) })
}

// openStore opens what reads, and refuses a table of plans that lacks one in use.
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
		return fmt.Errorf("organizations have plans that the table of plans lacks (%s): add them to the file of %sPLANS, "+
			"or give those organizations another plan with integrity organization plan",
			strings.Join(missing, ", "), config.Prefix)
	}
	return nil
}

// openWorkers makes what works after a commit. Nothing runs yet: startWorkers starts it.
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
		Pool: queued, Shards: s.installed.Shards, Plans: s.plans, SecretKey: s.secretKey, Allows: s.egress().Allows,
		Do: do, Now: s.Now, Log: s.log, Observe: s.metrics.Delivery,
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

// openLedger opens what writes.
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

// openContents opens what looks at files and keeps them.
func (s assembly) openContents(context.Context) error {
	url, err := s.cfg.BlobStore()
	if err != nil {
		return err
	}
	s.contents = &blobs.Store{URL: url, Sync: keyfiles.Sync}
	s.analyzer, err = analyzer.New(analyzer.Config{})
	return err
}

// egress is what webhooks may be sent to; a demo, which is for one machine alone, sends them on that machine too.
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
	return handlers.New(handlers.Config{
		Edge: handlers.Edge{
			Store: s.store, Sessions: s.sessions, Installation: s.installed, BaseURL: s.cfg.BaseURL, Now: s.Now, Log: s.log,
			Requests:       s.requests,
			TrustedProxies: s.cfg.TrustedProxies, PublicPerMinute: s.cfg.PublicPerMinute,
			PublicPagesPerMinute: s.cfg.PagesPerMinute, KeyUsed: s.keyUses.Note, Spool: &edge.Spool{Dir: spool},
			OAuth: s.oauth(), Closing: closing, Observe: s.answered, Tracer: s.traces.Tracer(),
		},
		Ledger: s.ledger,
		Action: handlers.Action{
			Notifier: s.notifier, Keys: func() action.Keys { return *s.keys.Load() },
			Analyze: s.analyzer.Analyze, Keep: s.keepContent, Ready: s.ready, SecretKey: s.secretKey,
			MailsInvitations: s.cfg.SMTPURL != "", Egress: s.egress(), Queued: s.webhooks.Wake, Transparency: s.tree.reader,
			Relationship: map[evidence.Language]string{
				evidence.Spanish: s.cfg.RelationshipES, evidence.English: s.cfg.RelationshipEN,
			},
		},
		Console: handlers.Console{
			NoInvitations: !s.cfg.SignUp.Invited, SignUp: s.cfg.SignUp.Anybody, LinkMailer: s.linkMailer,
		},
		Site: handlers.Site{
			Manual: manualpages.Pages, Demo: s.asDemo,
			SecurityContact: s.cfg.SecurityContact,
		},
	}), nil
}

// keepContent announces bytes before it stores them, so that they are erased if their registration never comes.
func (s assembly) keepContent(
	ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, content io.ReaderAt,
	size int64,
) error {
	if err := s.store.AnnounceContent(ctx, o, a, v, s.Now()); err != nil {
		return err
	}
	return s.contents.Keep(ctx, o, v, content, size)
}

// warnOfFiles says at the start what would show as refused connections under load.
func (s *service) warnOfFiles() {
	limit, err := ledger.OpenFiles()
	if clients := ledger.ClientsFor(limit, ledger.DatabaseConns(s.installed.Shards)); err == nil &&
		clients < ledger.FewClients {
		s.log.Warn(
			"few files may be open, so few clients can be connected at once; "+ledger.RaiseFiles, "limit", limit, "clients",
			max(0, clients),
		)
	}
}

// oauth is the adapter of the ordinary MCP endpoint, or nil where none is configured. Nothing is asked of the provider
// yet.
func (s assembly) oauth() *oauth.Provider {
	if s.cfg.OAuthIssuer == "" {
		return nil
	}
	return oauth.New(oauth.Config{
		Issuer: s.cfg.OAuthIssuer, Audience: edge.OAuthAudience(s.cfg.BaseURL), ClientID: s.cfg.OAuthClientID,
		ClientSecret: s.cfg.OAuthClientSecret, RedirectURL: edge.OAuthRedirect(s.cfg.BaseURL), Now: s.Now,
	})
}

// tree is the process's part of the transparency log; all of it is nil without a log.
type tree struct {
	write, read *pgxpool.Pool
	keeper      *transparency.Keeper
	reader      *transparency.Reader
	signer      atomic.Pointer[transparency.Signer] // nil: this process leaves the tree to others
	authorities []*transparency.TimestampAuthority
}

// freshTree is for how long a checkpoint that was read may be the one of evidence: a new one comes every second at
// most.
const freshTree = 200 * time.Millisecond

// openTree makes what keeps the transparency log and what answers from it.
func (s assembly) openTree(ctx context.Context) error {
	if !s.cfg.Transparency {
		return nil
	}
	witnesses, err := s.cfg.WitnessList()
	if err != nil {
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
	s.tree.reader = &transparency.Reader{Pool: s.tree.read, Fresh: freshTree, Trusted: func() *evidence.TrustedKeys {
		return s.keys.Load().Trusted
	}}
	known, keep, err := s.signedHead(ctx)
	if err != nil {
		return err
	}
	s.tree.keeper, err = transparency.New(transparency.Config{
		Pool: s.tree.write, Nodes: s.onNodes("log", ledger.LogConns/2, (*cluster.Primary).ConsumerPool),
		Shards: s.installed.Shards,
		Signer: s.tree.signer.Load, Witnesses: witnesses, Now: s.Now, Log: s.log, Guard: s.guard, Gate: s.gate,
		Known: known, Keep: keep,
		Authorities: s.tree.authorities, Stamp: s.cfg.TimestampInterval,
		Pinned: func(name string) (evidence.Authority, bool) { return s.keys.Load().Trusted.Authority(name) },
	})
	return err
}

// signedHead reads the largest head of the log that this machine keeps outside the database, compares the database with
// it before anything is committed, and says how later ones are kept. A directory that cannot be written is no reason
// not to start: the process itself still notices what is lost while it runs.
func (s assembly) signedHead(ctx context.Context) (
	known transparency.Head, keep func(transparency.Head) (transparency.Head, error), err error,
) {
	file := keyfiles.NewSignedHead(s.cfg.DataDir, s.installed.ID())
	if known, err = file.Read(s.keys.Load().Trusted, s.installed.Epoch); err != nil {
		return known, nil, err
	}
	missing, err := known.Lacks(ctx, s.tree.read)
	switch {
	case err != nil: // the keeper asks again before it signs
		s.log.Warn("the database cannot be compared with the signed head of the log yet", "file", file.Path(), "error", err)
	case missing != "":
		s.guard.Missing(eventstore.BySignedHead, missing+" (known from "+file.Path()+")")
	}
	if err := file.Writable(); err != nil {
		s.log.Warn("the signed heads of the log are not kept outside the database, so a start after lost commits does "+
			"not notice them: "+
			"let "+config.Prefix+"DATA_DIR name a directory that stays and that this process may write", "directory",
			s.cfg.DataDir, "error", err)
		return known, nil, nil
	}
	return known, func(h transparency.Head) (transparency.Head, error) {
		return file.Keep(h, s.keys.Load().Trusted)
	}, nil
}
