package eventstore

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
)

// Program is the version of a program and the decision rules that it knows.
type Program struct {
	Version domain.Release
	Rules   []domain.RuleEntry
}

// ThisProgram returns the running program.
func ThisProgram() Program { return Program{domain.ThisRelease, domain.Rules()} }

// RuleNames lists the names of the rules that the program knows.
func (p Program) RuleNames() []domain.Rule {
	names := []domain.Rule{}
	for _, r := range p.Rules {
		names = append(names, r.Name)
	}
	return names
}

// RulesOff lists the rules of the program that a ledger does not follow yet.
func (p Program) RulesOff(in Installation) []domain.Rule {
	return slices.DeleteFunc(p.RuleNames(), func(r domain.Rule) bool { return slices.Contains(in.Rules, r) })
}

// minimum is the lowest version that may write a ledger which follows every rule of the program.
func (p Program) minimum() domain.Release {
	minimum := domain.Floor
	for _, r := range p.Rules {
		minimum = max(minimum, r.Since)
	}
	return minimum
}

// OutdatedError means that the program is too old for the ledger. It is final for the process: a ledger never accepts
// older programs again.
type OutdatedError struct {
	Program Program
	Minimum domain.Release // the lowest version that the ledger accepts
	Rule    domain.Rule    // the active rule that the program does not know; empty if its version is too low
}

// sentence also says how to fix it.
func (e *OutdatedError) sentence() say.Sentence {
	if e.Rule != "" {
		return say.Sentencef("the ledger decides by the rule %s, which this program (version %s) does not know: "+
			"install the version that the other processes run (integrity upgrade status) and start it again", e.Rule,
			e.Program.Version)
	}
	return say.Sentencef("this program is version %s and the ledger takes %s or later: install that version and start "+
		"it again",
		e.Program.Version, e.Minimum)
}

func (e *OutdatedError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *OutdatedError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// Refusal returns the error for clients.
func (e *OutdatedError) Refusal() error {
	return domain.Unavailable(
		"This process runs an older version of the program than the ledger takes; another process may take the request.",
	)
}

// admit returns an *OutdatedError if the program may not write with this minimum and these rules.
func (p Program) admit(minimum domain.Release, rules []domain.Rule) error {
	if p.Version < minimum {
		return &OutdatedError{Program: p, Minimum: minimum}
	}
	for _, r := range rules {
		if !slices.Contains(p.RuleNames(), r) {
			return &OutdatedError{Program: p, Minimum: minimum, Rule: r}
		}
	}
	return nil
}

// readLedgerGate reads the requirements that a process checks when it starts. While it runs, each shard's head repeats
// them for its shard.
const readLedgerGate = "SELECT minimum_version, rules FROM ledger WHERE id = 1"

// hasLedger is false for a database that is not migrated yet.
const hasLedger = "SELECT to_regclass('public.ledger') IS NOT NULL"

// Admitted returns an *OutdatedError if the program is too old for the ledger. A database without a ledger accepts
// every program.
func (p Program) Admitted(ctx context.Context, from history.Querier) error {
	rows, _ := from.Query(ctx, hasLedger) // CollectOneRow returns its error
	found, err := pgx.CollectOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return say.Errorf("look for the lowest version that may serve: %w", err)
	}
	if !found {
		return nil
	}
	return p.obeys(ctx, from)
}

func (p Program) obeys(ctx context.Context, from history.Querier) error {
	rows, _ := from.Query(ctx, readLedgerGate) // rows carry its error
	gates, err := pgx.CollectRows(rows, pgx.RowToStructByPos[headGate])
	if err != nil {
		return say.Errorf("ask for the lowest version that may serve: %w", err)
	}
	for _, g := range gates {
		if err := p.admit(g.Minimum, g.Rules); err != nil {
			return err
		}
	}
	return nil
}

// headGate is what a head, or the ledger, requires of programs that write.
type headGate struct {
	Minimum domain.Release
	Rules   []domain.Rule
}

// AdmittedAt connects to url and calls Admitted.
func (p Program) AdmittedAt(ctx context.Context, url string) error {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return p.Admitted(ctx, conn)
}

// Gate holds whether this process may write. It closes permanently when the process reads that the ledger accepts only
// newer programs, in a head that a group has locked or in the ledger's row (Heartbeat). It is safe for concurrent use.
type Gate struct {
	Program
	// Outdated is called once, when the gate closes. It may be nil.
	Outdated func(*OutdatedError)

	mu     sync.Mutex
	closed chan struct{}
	why    *OutdatedError
}

// NewGate returns an open gate.
func NewGate(p Program, outdated func(*OutdatedError)) *Gate {
	return &Gate{Program: p, Outdated: outdated, closed: make(chan struct{})}
}

// Closed returns a channel that is closed when the gate closes.
func (g *Gate) Closed() <-chan struct{} { return g.closed }

// Err returns an *OutdatedError if the gate is closed.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil {
		return nil
	}
	return g.why
}

// Ask reads the ledger's row and closes the gate if the ledger accepts only newer programs.
func (g *Gate) Ask(ctx context.Context, from history.Querier) error {
	return g.pass(g.obeys(ctx, from))
}

// pass closes the gate if the error is an *OutdatedError, and returns the error.
func (g *Gate) pass(err error) error {
	why, outdated := err.(*OutdatedError) //nolint:errorlint // admit wraps nothing
	if !outdated {
		return err
	}
	g.mu.Lock()
	first := g.why == nil
	if first {
		g.why = why
		close(g.closed)
	}
	g.mu.Unlock()
	if first && g.Outdated != nil {
		g.Outdated(why)
	}
	return why
}

// lockHead reads the gate in the statement that takes the lock. After a wait it returns the current row, whereas a
// query of another table, or a statement with an older snapshot, would return the row from before the wait.
var lockHead = cluster.SQL(
	"SELECT position, occurred_at, minimum_version, rules FROM {shard_heads} WHERE shard = $1 FOR UPDATE",
)

var moveHead = cluster.SQL("UPDATE {shard_heads} SET position = $2, occurred_at = $3 WHERE shard = $1")

// LockHead locks a shard for a transaction that writes its rows without appending to its log. It returns an
// *OutdatedError if the program is too old for the ledger.
func LockHead(ctx context.Context, tx pgx.Tx, shard domain.Shard) error {
	var head struct {
		position int64
		at       any
		headGate
	}
	if err := tx.QueryRow(ctx, lockHead, shard).Scan(&head.position, &head.at, &head.Minimum, &head.Rules); err != nil {
		return say.Errorf("lock shard %d: %w", shard, err)
	}
	return ThisProgram().admit(head.Minimum, head.Rules)
}
