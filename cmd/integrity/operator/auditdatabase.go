package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/worm"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/say"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections"
)

// databaseAudit is an audit of a live database: of all shards, or of one organization.
type databaseAudit struct {
	*app
	auditOptions
	view   auditView
	pool   *pgxpool.Pool
	shards []domain.Shard
	count  int // events in all shards
	only   domain.OrganizationID
	tables []string // names of the projections
}

// auditDatabase checks the log of a live database, then its projections.
func (a *app) auditDatabase(
	ctx context.Context, l *ledger.Opened, only domain.OrganizationID, o auditOptions,
) (auditView, error) {
	d := databaseAudit{app: a, auditOptions: o, shards: allShards(l), count: l.Installation.Shards, only: only}
	if !only.IsZero() {
		if d.shards = []domain.Shard{only.Shard()}; int(only.Shard()) >= d.count {
			return auditView{}, domain.Refuse(domain.NotFound, "There is no organization with that id.")
		}
	}
	// Read the exports first: the tree that is derived afterwards must contain every one of them.
	exports, err := o.readWorm(ctx, l.Installation.Issuer, func() (worm.Keys, error) { return ledgerKeys(ctx, l) })
	if err != nil {
		return auditView{}, err
	}
	if err := d.checkMarks(l.Installation.Issuer, d.count); err != nil {
		return auditView{}, err
	}
	jobs := runtime.GOMAXPROCS(0)
	if d.pool, err = l.Primary.RebuildPool(ctx, jobs); err != nil {
		return auditView{}, err
	}
	defer d.pool.Close()
	if d.tables, err = projections.Projections(ctx, d.pool); err != nil {
		return auditView{}, err
	}
	report, err := d.events(ctx, l.Installation.Issuer)
	if err != nil {
		return d.view, err
	}
	if err := d.strays(ctx, report); err != nil {
		return d.view, err
	}
	var tree transparency.Prefix
	if only.IsZero() {
		tree, err = d.log(ctx, report.Logs, exports)
	} else {
		d.view.notChecked("the transparency log: it contains the events of all organizations")
	}
	if err != nil {
		return d.view, err
	}
	if o.ownKeys != "" {
		d.view.notChecked("whether the trusted keys are the ones you pinned: they were read from %s of this installation; "+
			"pass your own file (--trusted-keys)", o.ownKeys)
	}
	d.view.notChecked(
		"tables that are not projections: queues (mails, webhook deliveries, erasures), meters, requests of the month, " +
			"administrative events of the day, when keys were last used, idempotency keys, " +
			"who claimed a sign-in identity, the ledger's own row (but issuer and shards), cosignatures of the transparency log")
	switch {
	case report.Damaged:
		d.view.notChecked("the projections: a damaged log cannot say what they should hold")
	case d.since != nil:
		d.view.notChecked("the projections: only a whole audit compares the tables with the log")
	default:
		d.view.Projections = d.tables
		err = d.projections(
			ctx, &projections.Rebuild{
				Pool: d.pool, Program: "audit " + rand.Text(), Organization: only, Check: true,
				Parts: projections.PartsOf(jobs, len(d.shards)),
			}, jobs,
		)
	}
	switch {
	case err != nil || d.next == nil:
	case d.view.FindingCount > 0:
		d.tell("no mark was written: an audit with findings writes none")
	default:
		d.view.Mark, d.view.unmarked = d.next.write(l.Installation.Issuer, d.Start, d.count, report.Logs, tree, d.since)
	}
	return d.view, err
}

// events checks every event of the log on its own and against the others.
func (d *databaseAudit) events(ctx context.Context, issuer string) (report audit.Report, err error) {
	parts := &partsFile{}
	defer parts.Close()
	config := audit.Config{Issuer: issuer, Parts: parts, Whole: d.only.IsZero()}
	if err := d.config(&config); err != nil {
		return report, err
	}
	checker, err := d.newAudit(config, d.only)
	if err != nil {
		return report, err
	}
	logs := make([]history.Reader, len(d.shards))
	var total, texts int64
	for i, shard := range d.shards {
		logs[i] = history.Reader{Pool: d.pool, Shard: shard, Organization: d.only, After: history.BeforeFirst}
		if position, ok := d.since.position(shard); ok {
			logs[i].After = position
		}
		n, err := logs[i].Length(ctx)
		if err != nil {
			return report, err
		}
		total += n
	}
	bar := d.eventsBar("events", max(total, 1))
	for _, log := range logs {
		end, err := log.Walk(ctx, func(events []audit.Event) error {
			bar.Add(int64(len(events)))
			return checker.Add(events)
		})
		if err != nil {
			return report, err
		}
		if texts += end.Texts; d.only.IsZero() {
			checker.Shard(end.Beside)
		}
	}
	bar.Close()
	if d.view, report, err = d.finishAudit(checker, d.auditOptions, issuer); err != nil {
		return report, err
	}
	d.view.Source, d.view.Scope, d.view.Since = "database", wholeScope, d.since.view()
	switch {
	case d.since != nil:
		d.view.Scope = sinceScope
		d.view.notChecked(
			"events up to the mark (%d), and the texts that they name: their rows were not read again, so only a whole audit "+
				"(without --since) finds one that was changed, added or removed since", d.since.Events,
		)
		if d.otherKeys {
			d.view.notChecked("events up to the mark by the present trusted keys: other trusted keys were pinned then, so " +
				"only a whole audit (without --since) finds what these refuse, such as signatures by a key revoked since")
		}
		d.view.notChecked(
			"the transparency log before the mark, but its root: tiles, checkpoints and tokens of smaller trees",
		)
	case !d.only.IsZero():
		d.view.Scope = organizationScope
	}
	if !d.only.IsZero() && len(report.Organizations) == 0 {
		return report, domain.Refuse(domain.NotFound, "There is no organization with that id.")
	}
	if texts != report.Texts {
		d.view.found(audit.Finding{
			Check: audit.CheckText, Place: "texts",
			Expected: say.Sentencef("%d rows, the number that the events name", report.Texts),
			Found:    say.Sentencef("%d", texts),
		})
	}
	return report, nil
}

// strays reports erased texts that are back, and for rows of nonexistent shards.
func (d *databaseAudit) strays(ctx context.Context, report audit.Report) error {
	back, err := history.StillPresent(ctx, d.pool, report.Erasures)
	if err != nil {
		return err
	}
	for _, e := range back {
		d.view.found(e.Found("texts"))
	}
	if !d.only.IsZero() {
		return nil
	}
	stray, err := history.Misplaced(ctx, d.pool, append([]string{"events", "texts", "shard_heads"}, d.tables...), d.count)
	for _, table := range slices.Sorted(maps.Keys(stray)) {
		d.view.found(audit.Finding{
			Check: audit.CheckStray, Place: table, Expected: say.Sentencef("only rows of the shards 0 to %d", d.count-1),
			Found: say.Sentencef("%d rows of other shards", stray[table]),
		})
	}
	return err
}

// log derives the transparency tree from the events, or from the mark and the events after it. It checks the stored
// checkpoint and all exported ones against the tree. It returns the beginning of the tree that has only audited events.
func (d *databaseAudit) log(
	ctx context.Context, logs []audit.Log, exports *worm.Report,
) (tree transparency.Prefix, err error) {
	bar := d.eventsBar("transparency log", 1)
	x := transparency.Extent{After: d.since.prefix(), Logs: logs}
	derived, err := x.Check(ctx, d.pool, func(done, all int64) { bar.Set(done, all) })
	bar.Close()
	tree = derived.Prefix
	if errors.Is(err, transparency.ErrDiffers) {
		d.view.found(audit.Finding{
			Check: audit.CheckLog, Place: "transparency_tree",
			Expected: say.Sentencef("the tree and checkpoint derived from the events"),
			Found:    say.Sentencef("%v", err),
		})
	} else if err != nil {
		return tree, err
	}
	agrees := err == nil
	log := &transparency.Reader{Pool: d.pool}
	if exports != nil {
		if err := d.view.continues(ctx, log, exports.Heads); err != nil {
			return tree, err
		}
		d.view.exports(exports)
	}
	note, err := log.Checkpoint(ctx)
	if errors.Is(err, transparency.ErrNoCheckpoint) {
		d.view.notChecked("the transparency log: it has no checkpoint")
		return tree, nil
	}
	if err != nil {
		return tree, err
	}
	if d.view.checkpoint("transparency_checkpoint", note, d.Trusted) && agrees {
		d.view.Log = &auditedLog{derived.Leaves, derived.Published, derived.Root}
	}
	stamps, err := transparency.CheckStamps(ctx, d.pool, d.Trusted, func(s transparency.Stamp, fault error) {
		d.view.found(audit.Finding{
			Check: audit.CheckLog, Place: fmt.Sprint("log_timestamps ", s.TreeSize, " ", s.Authority),
			Expected: say.Sentencef("its authority's token for the checkpoint derived from the events"),
			Found:    say.Sentencef("%v", fault),
		})
	})
	if stamps.Unpinned != nil {
		d.view.notChecked(
			"who signed the tokens of %s: the trusted keys pin no certificate under the name",
			strings.Join(stamps.Unpinned, ", "),
		)
	}
	return tree, err
}

// projections compares every row with a fresh replay of the log; it ignores the progress of an earlier rebuild.
func (d *databaseAudit) projections(ctx context.Context, r *projections.Rebuild, jobs int) error {
	bar := d.eventsBar("projections", 1)
	r.Replayed = drawn(bar)
	r.Found = func(row projections.Difference) { d.view.found(projectionFinding(row)) }
	err := r.Shards(ctx, d.shards, jobs, func(_ projections.Rebuilt, err error) error { return err })
	bar.Close()
	if err != nil {
		return err
	}
	return r.Clear(ctx)
}

func projectionFinding(d projections.Difference) audit.Finding {
	f := audit.Finding{
		Check: audit.CheckProjection, Place: d.Place(),
		Expected: say.Sentencef("the row derived from the log"), Found: say.Sentencef("none"),
	}.InShard(d.Shard)
	switch d.Kind {
	case projections.ExtraRow:
		f.Expected, f.Found = say.Sentencef("no such row in the log"), say.Sentencef("one")
	case projections.DifferentRow:
		f.Found = say.Sentencef("a different value in %v", d.Columns)
	}
	return f
}
