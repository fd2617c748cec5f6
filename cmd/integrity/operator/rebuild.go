package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/migrations"
	"integrityledger/projections"
)

// differenceView is a row that differs from the log.
type differenceView struct {
	Shard      domain.Shard               `json:"shard"`
	Projection string                     `json:"projection"`
	Key        map[string]string          `json:"key"`
	Kind       projections.DifferenceKind `json:"kind"`
	Columns    []string                   `json:"columns"`
}

// rebuiltView is the result of a rebuild.
type rebuiltView struct {
	Shards          int     `json:"shards"`
	Events          int64   `json:"events"`
	Resumed         int64   `json:"resumed"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	Differences     int64   `json:"differences"`
	Mended          int64   `json:"mended"`
	LongestPauseMs  float64 `json:"longestPauseMs"`
	DurationSeconds float64 `json:"durationSeconds"`
}

func (a *app) rebuildCommand() *cobra.Command {
	v := a.ledgerVerb("rebuild")
	v.describeJSON("print JSON: a line for each row that differs, then a summary line")
	names := v.Flags().StringSlice("projection", nil, "compare and repair only these tables")
	only, shards := v.shards()
	jobs := v.Flags().Int(
		"jobs", runtime.NumCPU(), "number of shards, or with --check of parts of shards, to process at once",
	)
	check := v.Flags().Bool("check", false, "compare only: print what differs, change nothing")
	v.must("--jobs must be a number of at least 1", func() bool { return *jobs >= 1 })
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		of, err := shards(l)
		if err != nil {
			return err
		}
		whole := only.IsZero() && len(of) == l.Installation.Shards && len(*names) == 0
		lost, err := a.recreate(ctx, l.URL, *check, whole)
		if err != nil {
			return err
		}
		pool, err := l.Primary.RebuildPool(ctx, *jobs)
		if err != nil {
			return err
		}
		defer pool.Close()
		known, err := projections.Projections(ctx, pool)
		if err != nil {
			return err
		}
		for _, name := range *names {
			if !slices.Contains(known, name) {
				return say.Errorf("--projection must be one of %s, not %s", strings.Join(known, ", "), name)
			}
		}
		program, err := programHash()
		if err != nil {
			return err
		}
		err = a.rebuild(
			ctx, &projections.Rebuild{
				Pool: pool, Program: program, Organization: *only, Only: *names, Check: *check,
				Parts: projections.PartsOf(*jobs, len(of)),
			}, of, *jobs, v.json,
		)
		if *check {
			return err
		}
		if err == nil && len(lost) > 0 {
			err = migrations.Release(ctx, l.URL, lost)
		}
		return errors.Join(err, a.tellReaders(ctx, l.URL))
	})
}

// recreate recreates missing projection tables and returns their names. The service must not use them until a complete
// rebuild has filled them.
func (a *app) recreate(ctx context.Context, url string, check, whole bool) ([]string, error) {
	conn, err := connect.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if denied, ok := errors.AsType[*migrations.NotOwnerError](migrations.Owned(ctx, conn)); ok && !check {
		return nil, say.Errorf(
			"the role %s may only compare (--check): run rebuild as the role that owns the tables", denied.Role,
		)
	}
	lost, err := migrations.Lost(ctx, conn)
	names := strings.Join(lost, ", ")
	switch {
	case err != nil || len(lost) == 0:
		return nil, err
	case check:
		a.tell("tables are missing: %s; integrity rebuild recreates them from the log", names)
		return nil, cli.NegativeError("")
	case !whole:
		return nil, say.Errorf(
			"tables are missing (%s): rebuild everything, without --organization, --shard and --projection", names,
		)
	}
	a.tell("recreating tables, which the service uses once they are filled: %s", names)
	return lost, migrations.Recreate(ctx, url, lost)
}

// tellReaders raises the feed's epoch if this rebuild, or an earlier one that was killed, changed rows of the feed.
func (a *app) tellReaders(ctx context.Context, url string) error {
	raised, err := eventstore.RaiseFeedEpoch(context.WithoutCancel(ctx), url, a.Now())
	if raised {
		a.tell("rows of the feed have changed: the feed's epoch was raised, so that readers read it again")
	}
	return err
}

func (a *app) rebuild(ctx context.Context, r *projections.Rebuild, shards []domain.Shard, jobs int, asJSON bool) error {
	bar := a.eventsBar("replay", 1)
	r.Replayed = drawn(bar)
	var sum rebuiltView
	var printing, busy error
	r.Found = func(d projections.Difference) {
		if asJSON {
			printing = errors.Join(
				printing, cli.WriteJSON(a.Out, differenceView{d.Shard, d.Projection, d.Key, d.Kind, d.Columns}, ""),
			)
			return
		}
		_, err := fmt.Fprintln(a.Out, a.Say(d.Said()))
		printing = errors.Join(printing, err)
	}
	start := a.Now()
	err := r.Shards(ctx, shards, jobs, func(result projections.Rebuilt, err error) error {
		sum.Events, sum.Resumed = sum.Events+result.Events, sum.Resumed+result.Resumed
		sum.Differences, sum.Mended = sum.Differences+result.Differences, sum.Mended+result.Mended
		sum.LongestPauseMs = max(sum.LongestPauseMs, float64(result.LongestPause.Microseconds())/1000)
		if errors.Is(err, projections.ErrRebuilding) {
			busy = errors.Join(busy, err)
			return nil // the other shards can still be rebuilt
		}
		if err == nil {
			sum.Shards++
		}
		return err
	})
	bar.Close()
	switch err = errors.Join(err, printing); {
	case err != nil && !r.Check && !errors.Is(err, projections.ErrNoOrganization):
		return say.Errorf("%w\n  the tables in use are correct up to here; the same command continues where this one "+
			"stopped", err)
	case err != nil:
		return err
	}
	switch err := r.Clear(ctx); {
	case errors.Is(err, projections.ErrCopyStays):
		a.tell("%v", err)
	case err != nil:
		return err
	}
	sum.DurationSeconds = a.Now().Sub(start).Seconds()
	sum.EventsPerSecond = float64(sum.Events) / max(sum.DurationSeconds, 0.001)
	if asJSON {
		err = cli.WriteJSON(a.Out, sum, "")
	} else {
		err = a.Print(false, nil, a.Say(sum.text(r.Check)))
	}
	if err != nil {
		return err
	}
	if busy != nil {
		return say.Errorf("%w\n  run the same command again when that one has ended", busy)
	}
	if r.Check && sum.Differences > 0 {
		return cli.NegativeError("")
	}
	return nil
}

func (v *rebuiltView) text(check bool) say.Phrase {
	var again, mended text
	if v.Resumed > 0 {
		again.Sayf(" (%d more by the command that was interrupted)", v.Resumed)
	}
	if !check && v.Differences > 0 {
		mended.Sayf(", %d were replaced; writers waited for %.0f ms at most", v.Mended, v.LongestPauseMs)
	}
	return say.Sentencef("%d events replayed%s in %s, %.0f/s; %d rows differ%s\n", v.Events, again,
		(time.Duration(v.DurationSeconds*1000) * time.Millisecond).String(), v.EventsPerSecond, v.Differences, mended)
}

// eventsBar returns a progress bar for a pass over the log.
func (a *app) eventsBar(what say.Word, total int64) *cli.Bar {
	return a.NewBar(a.Say(what), a.Sayf("events"), 1, total)
}

// drawn returns a function that adds up the progress of all shards, which are replayed in parallel, on one bar.
func drawn(bar *cli.Bar) func(shard domain.Shard, events, of int64) {
	var mu sync.Mutex // guards the variables below
	done, all := map[domain.Shard]int64{}, map[domain.Shard]int64{}
	return func(shard domain.Shard, events, of int64) {
		mu.Lock()
		defer mu.Unlock()
		done[shard], all[shard] = events, of
		var now, total int64
		for s := range all {
			now, total = now+done[s], total+all[s]
		}
		bar.Set(now, total)
	}
}

// programHash returns the hash of this program's binary. Another binary may project events differently, so a rebuild
// that it began cannot be continued.
func programHash() (string, error) {
	f, err := os.Open("/proc/self/exe") // works even if the file was replaced after the start
	if err != nil {
		return "", say.Errorf("read this program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", say.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
