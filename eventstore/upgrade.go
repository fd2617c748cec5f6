package eventstore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/history"
)

const (
	// beatEvery is how often a process renews its row.
	beatEvery = 5 * time.Second
	beatLimit = 4 * time.Second
)

const (
	renewProcess = `INSERT INTO processes (id, name, version, rules, secret_keys) VALUES ($1, left($2, 200), $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET seen_at = now(), secret_keys = excluded.secret_keys`
	// A row stops counting as a live process long before an hour. This limits the table to the starts of one hour.
	forgetProcesses = "DELETE FROM processes WHERE seen_at < now() - interval '1 hour'"
	endProcess      = "DELETE FROM processes WHERE id = $1"
	// A process counts as live for six beats after it was last seen, by the database's clock alone.
	readProcesses = `SELECT id, name, version, rules, secret_keys, started_at, extract(epoch FROM now() - seen_at)::float8 FROM processes
		WHERE seen_at >= now() - interval '30 seconds' ORDER BY version, name, id`
)

// Heartbeat shows operators and SwitchOn that this process serves. It also closes the gate of a process that commits no
// groups.
type Heartbeat struct {
	Pool Database
	Gate *Gate
	Name string // for people: host and process
	// SecretKeys lists the IDs of the keys that the process encrypts and decrypts secrets with (domain.SecretKeys).
	SecretKeys func() []string

	id   string
	soon chan struct{}
}

// NewHeartbeat returns the heartbeat of a process that has not started to serve.
func NewHeartbeat(h Heartbeat) *Heartbeat {
	h.id, h.soon = rand.Text(), make(chan struct{}, 1)
	return &h
}

// Soon makes Run call Beat at once, because the process's keys have changed.
func (h *Heartbeat) Soon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

// Beat renews the process's row and reads the ledger's gate. It returns an *OutdatedError if the gate is closed. The
// first call must come before the process serves.
func (h *Heartbeat) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(renewProcess, h.id, strings.ToValidUTF8(h.Name, "?"), h.Gate.Version, h.Gate.RuleNames(), h.SecretKeys())
	b.Queue(forgetProcesses)
	if err := h.Pool.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("renew the heartbeat of this process: %w", err)
	}
	return h.Gate.Ask(ctx, h.Pool)
}

// Run calls Beat regularly until ctx ends, then deletes the process's row. It calls failed with the error of a failed
// beat.
func (h *Heartbeat) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatLimit)
			defer cancel()
			if _, err := h.Pool.Exec(ending, endProcess, h.id); err != nil {
				failed(err)
			}
			return
		case <-tick.C:
		case <-h.soon:
		}
		var outdated *OutdatedError // the gate has logged it
		if err := h.Beat(ctx); err != nil && !errors.As(err, &outdated) && ctx.Err() == nil {
			failed(err)
		}
	}
}

// Process is a process that serves, or served less than half a minute ago.
type Process struct {
	ID      string
	Name    string
	Version domain.Release
	Rules   []domain.Rule // the rules that it knows
	// SecretKeys are the IDs of its domain.SecretKeys. Programs before they could be rotated list none.
	SecretKeys []string
	StartedAt  time.Time
	Seen       float64 // seconds ago, by the database's clock
}

// Lacks lists the rules that the process does not know.
func (p Process) Lacks(rules []domain.Rule) (unknown []domain.Rule) {
	for _, r := range rules {
		if !slices.Contains(p.Rules, r) {
			unknown = append(unknown, r)
		}
	}
	return unknown
}

// Processes lists the live processes by their heartbeats.
func Processes(ctx context.Context, from history.Querier) ([]Process, error) {
	rows, _ := from.Query(ctx, readProcesses) // rows carry its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Process])
	if err != nil {
		return nil, say.Errorf("list the processes that serve: %w", err)
	}
	return all, nil
}

// ProcessList is a list of processes that an operator has to update.
type ProcessList []Process

// Say lists the names and versions.
func (l ProcessList) Say(c say.Catalogue) (string, bool) {
	names := make([]say.Sentence, len(l))
	for i, p := range l {
		names[i] = say.Sentencef("%s (version %s)", p.Name, p.Version)
	}
	return say.Join(names, ", ").Say(c)
}

func (l ProcessList) String() string { return say.In(say.Catalogue{}, l) }

// Behind lists the processes that do not know all of the rules; nil: all know them.
func Behind(processes []Process, rules []domain.Rule) (behind ProcessList) {
	for _, p := range processes {
		if p.Lacks(rules) != nil {
			behind = append(behind, p)
		}
	}
	return behind
}

// LaggingError lists the processes that would stop if the rules were switched on.
type LaggingError struct{ Processes ProcessList }

func (e *LaggingError) sentence() say.Sentence {
	return say.Sentencef("some running processes do not know every rule: update or stop %s", e.Processes)
}

func (e *LaggingError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *LaggingError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// SwitchOn makes the ledger follow every rule of the program from each shard's next group on, and raises the lowest
// version that may serve to the version that the rules require. It returns a *LaggingError while any live process does
// not know all of them. Rules are never switched off. It connects as the role of url, which must own the tables.
//
// It changes the ledger's row first, so that no process starts that would have to stop. If this process ends before all
// heads have followed, another call or the next Ensure of any process completes the change.
func (p Program) SwitchOn(ctx context.Context, url string) (switched []domain.Rule, in Installation, err error) {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return nil, in, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM ledger WHERE id = 1 FOR UPDATE"); err != nil {
			return say.Errorf("lock the ledger row: %w", err)
		}
		if in, err = ReadInstallation(ctx, tx); err != nil {
			return err
		}
		switched = p.RulesOff(in)
		processes, err := Processes(ctx, tx)
		if err != nil {
			return err
		}
		if behind := Behind(processes, switched); behind != nil {
			return &LaggingError{behind}
		}
		in.Rules = append(in.Rules, switched...)
		in.Minimum = max(in.Minimum, p.minimum())
		if _, err := tx.Exec(
			ctx, "UPDATE ledger SET minimum_version = $1, rules = $2 WHERE id = 1", in.Minimum, in.Rules,
		); err != nil {
			return say.Errorf("switch rules on: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, in, err
	}
	return switched, in, followLedger(ctx, conn)
}

var (
	lateHeads = cluster.SQL(`SELECT h.shard FROM {shard_heads} h, ledger l
		WHERE l.id = 1 AND (h.minimum_version < l.minimum_version OR NOT h.rules @> l.rules) ORDER BY h.shard`)
	// It waits for the head's lock: a group that holds it ends before the gate is raised.
	raiseHead = cluster.SQL(`UPDATE {shard_heads} SET minimum_version = greatest(minimum_version, $2),
		rules = rules || ARRAY(SELECT r FROM unnest($3::text[]) r WHERE NOT r = ANY(rules)) WHERE shard = $1`)
)

// followLedger updates the heads to match the ledger's row, one after another. Each shard pauses for one short
// transaction.
//
// It sets lock_timeout on the connection: a session that holds the table must not block a start indefinitely.
func followLedger(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SET lock_timeout = '10s'"); err != nil {
		return say.Errorf("limit the wait for heads: %w", err)
	}
	rows, _ := conn.Query(ctx, lateHeads) // rows carry its error
	late, err := pgx.CollectRows(rows, pgx.RowTo[domain.Shard])
	if err != nil || len(late) == 0 {
		return wrapped("look for shards that decide by earlier rules", err)
	}
	in, err := ReadInstallation(ctx, conn)
	if err != nil {
		return err
	}
	for _, shard := range late {
		if _, err := conn.Exec(ctx, raiseHead, shard, in.Minimum, in.Rules); err != nil {
			return say.Errorf("switch rules on in shard %d: %w", shard, err)
		}
	}
	return nil
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return say.Errorf("%s: %w", say.Word(what), err)
}
