package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections"
)

// auditDatabase checks the log of a live database, then its projections.
func (a *app) auditDatabase(ctx context.Context, l *ledger.Opened, only domain.OrganizationID, o auditOptions) (auditView, error) {
	shards := []domain.Shard{only.Shard()}
	if only.IsZero() {
		shards = nil
		for s := range l.Installation.Shards {
			shards = append(shards, domain.Shard(s))
		}
	} else if int(only.Shard()) >= l.Installation.Shards {
		return auditView{}, domain.Refuse(domain.NotFound, "There is no organization with that id.")
	}
	jobs := runtime.GOMAXPROCS(0)
	pool, err := cluster.At(l.URL).RebuildPool(ctx, jobs)
	if err != nil {
		return auditView{}, err
	}
	defer pool.Close()
	tables, err := projections.Projections(ctx, pool)
	if err != nil {
		return auditView{}, err
	}
	parts := &partsFile{}
	defer parts.Close()
	checker, err := o.newAudit(audit.Config{Issuer: l.Installation.Issuer, Parts: parts, Whole: only.IsZero()}, only)
	if err != nil {
		return auditView{}, err
	}
	logs := make([]history.Reader, len(shards))
	var total, texts int64
	for i, shard := range shards {
		logs[i] = history.Reader{Pool: pool, Shard: shard, Organization: only, After: history.BeforeFirst}
		n, err := logs[i].Length(ctx)
		if err != nil {
			return auditView{}, err
		}
		total += n
	}
	bar := a.eventsBar("events")
	bar.ChangeMax64(max(total, 1))
	for _, log := range logs {
		end, err := log.Walk(ctx, func(events []audit.Event) error {
			_ = bar.Add(len(events)) // it only draws
			return checker.Add(events)
		})
		if err != nil {
			return auditView{}, err
		}
		if texts += end.Texts; only.IsZero() {
			checker.Shard(end.Beside)
		}
	}
	_ = bar.Close()
	v, report, err := a.finishAudit(checker, o)
	if err != nil {
		return v, err
	}
	v.Source = "database"
	if !only.IsZero() && len(report.Organizations) == 0 {
		return v, domain.Refuse(domain.NotFound, "There is no organization with that id.")
	}
	if texts != report.Texts {
		v.found(audit.Finding{Check: audit.CheckText, Place: "texts", Expected: fmt.Sprintf("%d rows, as many as events name", report.Texts), Found: fmt.Sprintf("%d", texts)})
	}
	back, err := history.StillPresent(ctx, pool, report.Erasures)
	if err != nil {
		return v, err
	}
	for _, e := range back {
		v.found(e.Found("texts"))
	}
	if only.IsZero() {
		stray, err := history.Misplaced(ctx, pool, append([]string{"events", "texts", "shard_heads"}, tables...), l.Installation.Shards)
		if err != nil {
			return v, err
		}
		for _, table := range slices.Sorted(maps.Keys(stray)) {
			v.found(audit.Finding{Check: audit.CheckStray, Place: table, Expected: fmt.Sprintf("rows of the shards 0 to %d only", l.Installation.Shards-1), Found: fmt.Sprintf("%d rows of others", stray[table])})
		}
	}
	if only.IsZero() {
		if err := a.auditLog(ctx, pool, o, &v); err != nil {
			return v, err
		}
	} else {
		v.NotChecked = append(v.NotChecked, "the transparency log: it holds the events of all organizations")
	}
	v.NotChecked = append(v.NotChecked, "tables that are no projections: queues (mails, webhook deliveries, erasures), meters, requests of the month, when keys were last used, idempotency keys, "+
		"who claimed a sign-in identity, the ledger's own row (but issuer and shards), cosignatures of the transparency log")
	if report.Damaged {
		v.NotChecked = append(v.NotChecked, "the projections: a damaged log cannot say what they should hold")
		return v, nil
	}
	v.Projections = tables
	return v, a.auditProjections(ctx, &projections.Rebuild{Pool: pool, Program: "audit " + rand.Text(), Organization: only, Check: true}, shards, jobs, &v)
}

// auditLog derives the transparency tree anew and checks its checkpoint.
func (a *app) auditLog(ctx context.Context, pool *pgxpool.Pool, o auditOptions, v *auditView) error {
	bar := a.eventsBar("transparency log")
	_, err := transparency.Check(ctx, pool, func(done, all int64) {
		bar.ChangeMax64(all)
		_ = bar.Set64(done) // it only draws
	})
	_ = bar.Close()
	if errors.Is(err, transparency.ErrDiffers) {
		v.found(audit.Finding{Check: audit.CheckLog, Place: "transparency_tree", Expected: "the tree and the checkpoint that the events give", Found: err.Error()})
	} else if err != nil {
		return err
	}
	note, err := (&transparency.Reader{Pool: pool}).Checkpoint(ctx)
	if errors.Is(err, transparency.ErrNoCheckpoint) {
		v.NotChecked = append(v.NotChecked, "the transparency log: it has no checkpoint")
		return nil
	}
	if err != nil {
		return err
	}
	v.checkpoint("transparency_checkpoint", note, o.Trusted)
	return nil
}

// auditProjections compares every row with a replay of the log, which is begun anew whatever an earlier one has left.
func (a *app) auditProjections(ctx context.Context, r *projections.Rebuild, shards []domain.Shard, jobs int, v *auditView) error {
	bar := a.eventsBar("projections")
	r.Replayed = drawn(bar)
	var mu sync.Mutex // of what is found
	r.Found = func(d projections.Difference) {
		mu.Lock()
		defer mu.Unlock()
		v.found(projectionFinding(d))
	}
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for _, shard := range shards {
		group.Go(func() error {
			_, err := r.Shard(running, shard)
			return err
		})
	}
	err := group.Wait()
	_ = bar.Close()
	if err != nil {
		return err
	}
	return r.Clear(ctx)
}

func projectionFinding(d projections.Difference) audit.Finding {
	f := audit.Finding{Check: audit.CheckProjection, Place: d.Place(), Expected: "the row that the log gives", Found: "none"}.InShard(d.Shard)
	switch d.Kind {
	case projections.ExtraRow:
		f.Expected, f.Found = "no such row, by the log", "one"
	case projections.DifferentRow:
		f.Found = fmt.Sprintf("another value in %v", d.Columns)
	}
	return f
}
