package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/postgres"
)

// TestOnce runs the single measurements, including growth, on a server with frequent checkpoints.
func TestOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "integrity")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx := context.Background()
	server, err := postgres.Start(ctx, postgres.Config{
		DataDir: dir, Purpose: "tests", Disposable: true,
		Settings: map[string]string{"max_wal_size": "32MB", "min_wal_size": "32MB"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	r := &run{
		Config: Config{Server: server, Shards: 4, Duration: 100 * time.Millisecond, Rounds: 1, Growth: 1500,
			Progress: func(line string) {
				t.Log(line)
			}},
		begin: 500, measured: map[string]measurement{},
	}
	r.signer = evidence.GenerateSigner()
	if r.lab, err = newLab(ctx, server.URL(postgres.Database), r.Shards, r.signer); err != nil {
		t.Fatal(err)
	}
	defer r.lab.close(ctx)
	for _, once := range []func(context.Context) error{r.grow, r.disk, r.checkpointCycle, r.growth} {
		if err := once(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{targetDisk, targetWAL, targetGrowth} {
		if m := r.measured[name]; m.value <= 0 || m.missing != "" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	var printed strings.Builder
	r.grown.table(&printed)
	t.Log(printed.String())
	if !slices.ContainsFunc(r.grown.Relations, func(g Grown) bool {
		leaves := g.Small.LeafPercent > 0 && g.Large.LeafPercent > 0 || r.grown.NoLeaves != ""
		return g.Relation == "versions_pkey" && g.Small.Blocks > 1 && g.Large.Blocks > 1 && g.Small.Bytes > 0 &&
			g.Large.Bytes > 0 && leaves
	}) {
		t.Errorf("growth: %s", &printed)
	}
	if n := r.lab.records(); n < 1500 {
		t.Errorf("%d records", n)
	}
}
