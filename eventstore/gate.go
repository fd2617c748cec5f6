package eventstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
)

// Program is what a process decides with: its version, and the rules that it knows.
type Program struct {
	Version domain.Release
	Rules   []domain.RuleEntry
}

// ThisProgram is the program that runs.
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

// OutdatedError refuses a program that is older than a ledger takes. It is final for the process: a ledger never takes
// older programs again.
type OutdatedError struct {
	Program Program
	Minimum domain.Release // that the ledger takes
	Rule    domain.Rule    // that is on and unknown to the program, whose version is high enough; empty: it is not
}

// Error says what to do.
func (e *OutdatedError) Error() string {
	if e.Rule != "" {
		return fmt.Sprintf("the ledger decides by the rule %s, which this program (version %s) does not know: "+
			"install the version that the other processes run (integrity upgrade status) and start it again", e.Rule,
			e.Program.Version)
	}
	return fmt.Sprintf("this program is version %s and the ledger takes %s or later: install that version and start "+
		"it again",
		e.Program.Version, e.Minimum)
}

// Refusal is what clients of an outdated process are answered with.
func (e *OutdatedError) Refusal() error {
	return domain.Unavailable(
		"This process runs an older version of the program than the ledger takes; another process may take the request.",
	)
}

// admit answers with an *OutdatedError where the program may not write what has this minimum and these rules.
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

// readLedgerGate is what a process obeys when it starts; while it runs, each shard's head says the same of its shard.
const readLedgerGate = "SELECT minimum_version, rules FROM ledger WHERE id = 1"

// hasLedger is false for a database that is not migrated yet.
const hasLedger = "SELECT to_regclass('public.ledger') IS NOT NULL"

// Admitted returns an *OutdatedError if the program is older than the ledger takes. A database without a ledger takes
// every program.
func (p Program) Admitted(ctx context.Context, from history.Querier) error {
	rows, _ := from.Query(ctx, hasLedger) // CollectOneRow returns its error
	found, err := pgx.CollectOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return fmt.Errorf("look for the lowest version that may serve: %w", err)
	}
	if !found {
		return nil
	}
	return p.obeys(ctx, from)
}

func (p Program) obeys(ctx context.Context, from history.Querier) error {
	rows, _ := from.Query(ctx, readLedgerGate) // its error is that of the rows
	gates, err := pgx.CollectRows(rows, pgx.RowToStructByPos[headGate])
	if err != nil {
		return fmt.Errorf("ask for the lowest version that may serve: %w", err)
	}
	for _, g := range gates {
		if err := p.admit(g.Minimum, g.Rules); err != nil {
			return err
		}
	}
	return nil
}

// headGate is what a head, or the ledger, demands of those who write.
type headGate struct {
	Minimum domain.Release
	Rules   []domain.Rule
}

// AdmittedAt is Admitted for a database that is not connected to yet.
func (p Program) AdmittedAt(ctx context.Context, url string) error {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return p.Admitted(ctx, conn)
}

// Gate knows whether this process may write. It closes once and for good, by what the process reads: a head that a
// group has locked, or the ledger's row (Heartbeat). Safe for concurrent use.
type Gate struct {
	Program
	// Outdated is called once, when the gate closes. It may be nil.
	Outdated func(*OutdatedError)

	mu     sync.Mutex
	closed chan struct{}
	why    *OutdatedError
}

// NewGate makes an open gate.
func NewGate(p Program, outdated func(*OutdatedError)) *Gate {
	return &Gate{Program: p, Outdated: outdated, closed: make(chan struct{})}
}

// Closed is closed with the gate.
func (g *Gate) Closed() <-chan struct{} { return g.closed }

// Err is an *OutdatedError where the gate is closed.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil {
		return nil
	}
	return g.why
}

// Ask asks the ledger's row, in which every process can read that the ledger takes only newer programs.
func (g *Gate) Ask(ctx context.Context, from history.Querier) error {
	return g.pass(g.obeys(ctx, from))
}

// pass closes the gate where the error is an *OutdatedError, and returns it.
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

// lockHead reads the gate in the statement that locks: after a wait it returns the row as it is then, where a query of
// another table, or in another statement's snapshot, would return what was there before.
var lockHead = cluster.SQL(
	"SELECT position, occurred_at, minimum_version, rules FROM {shard_heads} WHERE shard = $1 FOR UPDATE",
)

var moveHead = cluster.SQL("UPDATE {shard_heads} SET position = $2, occurred_at = $3 WHERE shard = $1")

// LockHead locks a shard for a transaction that writes rows of it without appending to its log, and refuses programs
// that are older than the ledger takes.
func LockHead(ctx context.Context, tx pgx.Tx, shard domain.Shard) error {
	var head struct {
		position int64
		at       any
		headGate
	}
	if err := tx.QueryRow(ctx, lockHead, shard).Scan(&head.position, &head.at, &head.Minimum, &head.Rules); err != nil {
		return fmt.Errorf("lock shard %d: %w", shard, err)
	}
	return ThisProgram().admit(head.Minimum, head.Rules)
}
