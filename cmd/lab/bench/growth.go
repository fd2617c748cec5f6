package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Growth is what a registration needs of each table and index at the beginning and in the grown ledger, in the last
// round. Statements are not timed: pg_stat_statements would have to be loaded into the server for the whole run, and
// its own cost would be measured with everything else.
type Growth struct {
	Small     int64   `json:"small"` // records
	Large     int64   `json:"large"`
	Relations []Grown `json:"relations"`          // the largest growth first
	NoLeaves  string  `json:"noLeaves,omitempty"` // why LeafPercent is unknown
}

// Grown is the growth of a table or an index.
type Grown struct {
	Relation string `json:"relation"`
	Small    Needed `json:"small"`
	Large    Needed `json:"large"`
}

// Needed is what a registration needs of a table or an index.
type Needed struct {
	Blocks      float64 `json:"blocks"`                // read from the cache or from a file
	Bytes       float64 `json:"bytes,omitempty"`       // of an index
	LeafPercent float64 `json:"leafPercent,omitempty"` // how full the leaf pages of an index are
}

// growth compares the cost of a registration in the grown ledger and in a new ledger of 50,000 records. The two take
// turns on the same server, and every round creates the small ledger again.
func (r *run) growth(ctx context.Context) error {
	if r.Growth == 0 || r.Server == nil {
		r.measured[targetGrowth] = measurement{missing: "needs --growth"}
		return nil
	}
	var wall, work []float64
	var few, many map[string]Needed
	for i := range r.Rounds {
		r.Progress(fmt.Sprintf(
			"round %d of %d: a registration at %d records and at %d", i+1, r.Rounds, r.begin, r.lab.records(),
		))
		var small, big Round
		var err error
		if small, few, err = r.smallLedger(ctx, fmt.Sprintf("small%d", i)); err != nil {
			return err
		}
		if big, many, err = r.timed(ctx, r.lab); err != nil {
			return err
		}
		wall, work = append(wall, small.PerSecond/big.PerSecond), append(
			work, float64(big.CPU.total())/float64(small.CPU.total()),
		)
	}
	if err := r.lab.measureIndexes(ctx, many); err != nil { // at the end, because it reads every page of them
		return err
	}
	r.grown = grown(few, many)
	r.grown.Small, r.grown.Large = r.begin, r.lab.records()
	cost := medianOf(work)
	r.measured[targetGrowth] = measurement{
		value: cost, wall: medianOf(wall), cpu: cost,
		note: fmt.Sprintf("a registration at %d records : at %d", r.lab.records(), r.begin),
	}
	return nil
}

// smallLedger measures a new ledger of 50,000 records.
func (r *run) smallLedger(ctx context.Context, database string) (round Round, needed map[string]Needed, err error) {
	small, drop, err := r.newDatabase(ctx, database, r.Shards)
	if err != nil {
		return round, nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := small.fill(ctx, r.begin); err != nil {
		return round, nil, err
	}
	if err := small.vacuum(ctx); err != nil {
		return round, nil, err
	}
	if round, needed, err = r.timed(ctx, small); err != nil {
		return round, nil, err
	}
	return round, needed, small.measureIndexes(ctx, needed)
}

// timed measures registrations in process, in groups, and the blocks that they need.
func (r *run) timed(ctx context.Context, l *lab) (round Round, needed map[string]Needed, err error) {
	before, err := l.blocks(ctx)
	if err != nil {
		return round, nil, err
	}
	records := l.records()
	if round, err = r.grouped(ctx, l); err != nil {
		return round, nil, err
	}
	time.Sleep(time.Second) // until the sessions that have ended have reported their blocks
	after, err := l.blocks(ctx)
	needed = map[string]Needed{}
	for name, blocks := range after {
		needed[name] = Needed{Blocks: (blocks - before[name]) / float64(l.records()-records)}
	}
	return round, needed, err
}

// grouped measures registrations in process, in groups.
func (r *run) grouped(ctx context.Context, l *lab) (Round, error) {
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		return Round{}, err
	}
	defer stop()
	c := &contender{workers: groupsConcurrency, ledger: true, call: l.registering(ledger, l.many)}
	if err := r.warm(ctx, c); err != nil {
		return Round{}, err
	}
	return r.measureOne(ctx, c, r.Duration, false)
}

// blocks returns the number of blocks of each table and index that were read so far, from the cache or from a file.
func (l *lab) blocks(ctx context.Context) (map[string]float64, error) {
	if err := l.exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil { // of this session, which has vacuumed
		return nil, err
	}
	rows, err := l.owner.Query(ctx, `SELECT relname::text, (heap_blks_hit + heap_blks_read)::float8
		FROM pg_statio_user_tables WHERE schemaname = 'public'
		UNION ALL SELECT indexrelname::text, (idx_blks_hit + idx_blks_read)::float8
		FROM pg_statio_user_indexes WHERE schemaname = 'public'`)
	if err != nil {
		return nil, err
	}
	read, name, blocks := map[string]float64{}, "", 0.0
	_, err = pgx.ForEachRow(rows, []any{&name, &blocks}, func() error {
		read[name] = blocks
		return nil
	})
	return read, err
}

// measureIndexes adds the size and the leaf pages of the indexes. Leaf pages need the extension pgstattuple.
func (l *lab) measureIndexes(ctx context.Context, needed map[string]Needed) error {
	var extended bool
	if err := l.owner.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pgstattuple')",
	).Scan(&extended); err != nil {
		return err
	}
	leaves := "0.0"
	if extended {
		leaves = "(SELECT coalesce(nullif(avg_leaf_density, 'NaN'), 0) FROM pgstatindex(oid::regclass))"
		if err := l.exec(ctx, "CREATE EXTENSION pgstattuple"); err != nil {
			return err
		}
	}
	rows, err := l.owner.Query(ctx, `SELECT relname::text, pg_relation_size(oid)::float8, `+leaves+`::float8
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'i'`)
	if err != nil {
		return err
	}
	var name string
	var bytes, full float64
	if _, err = pgx.ForEachRow(rows, []any{&name, &bytes, &full}, func() error {
		n := needed[name]
		n.Bytes, n.LeafPercent = bytes/float64(l.records()), full
		needed[name] = n
		return nil
	}); err != nil || !extended {
		return err
	}
	return l.exec(ctx, "DROP EXTENSION pgstattuple")
}

// grown joins the needs of both sizes, without relations that registrations hardly need.
func grown(small, large map[string]Needed) *Growth {
	g := &Growth{}
	leaves := false
	for _, name := range slices.Sorted(maps.Keys(large)) {
		of := Grown{name, small[name], large[name]}
		leaves = leaves || of.Large.LeafPercent > 0
		if of.Large.Blocks >= 0.01 || of.Large.Bytes >= 1 {
			g.Relations = append(g.Relations, of)
		}
	}
	slices.SortStableFunc(g.Relations, func(a, b Grown) int {
		return cmp.Compare(b.Large.Blocks-b.Small.Blocks, a.Large.Blocks-a.Small.Blocks)
	})
	if !leaves {
		g.NoLeaves = "this PostgreSQL lacks the extension pgstattuple"
	}
	return g
}

// table formats the growth for people.
func (g *Growth) table(b *strings.Builder) {
	fmt.Fprintf(b, "\nwhat a registration needs at %d records and at %d: blocks of each table and index, bytes of each "+
		"index, and how full its leaf pages are", g.Small, g.Large)
	columns(b, 46, "\tblocks\tthen\tmore\tbytes\tthen\tleaf %\tthen", func(row func(...any)) {
		number := func(v float64) string { return known(v, whole(v)) }
		for _, of := range g.Relations {
			s, l := of.Small, of.Large
			row(of.Relation, fmt.Sprintf("%.2f", s.Blocks), fmt.Sprintf("%.2f", l.Blocks),
				fmt.Sprintf("%+.2f", l.Blocks-s.Blocks), number(s.Bytes), number(l.Bytes), number(s.LeafPercent),
				number(l.LeafPercent))
		}
	})
	if g.NoLeaves != "" {
		fmt.Fprintf(b, "  leaf pages: %s: %s\n", notMeasured, g.NoLeaves)
	}
}
