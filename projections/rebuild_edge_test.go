package projections_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
)

// TestRebuildOfManySwappedRows: every version of a shard has the publicId of the previous one, far more rows than one
// lock copies, and other rows are wrong, too. Only rows that depend on each other are deferred.
func TestRebuildOfManySwappedRows(t *testing.T) {
	r := newDamagedLedger(t)
	const these = ` FROM public.spoiled s WHERE i.shard = 0 AND i.document_id = s.document_id AND i.version = s.version`
	for _, sql := range []string{
		`CREATE TABLE public.spoiled AS SELECT document_id, version, coalesce(lag(public_id) OVER w, last_value(public_id) OVER w) AS other,
			gen_random_uuid() AS random
			FROM public.versions WHERE shard = 0 AND record_id IS NOT NULL
			WINDOW w AS (ORDER BY document_id, version ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)`,
		"UPDATE public.versions i SET public_id = s.random, mime_type = 'text/x-wrong'" + these,
		"UPDATE public.versions i SET public_id = s.other" + these,
	} {
		r.exec(t, sql)
	}
	wrong := r.count(t, "SELECT count(*) FROM public.spoiled")
	result, _ := r.rebuild(t, 0, nil)
	if wrong < 40 || int(result.Differences) != wrong || int(result.Mended) != wrong {
		t.Errorf("%+v, want %d", result, wrong)
	}
	r.Audit(t)
}

// TestRebuildMendsAroundASwap: two of many wrong rows hold each other's unique value. The others do not wait for them,
// and no lock is held for too many rows.
func TestRebuildMendsAroundASwap(t *testing.T) {
	pgtest.OneServer(t, "a trigger counts the rows of a statement")
	r := newDamagedLedger(t)
	r.exec(t, "UPDATE public.versions SET mime_type = 'text/x-wrong' WHERE shard = 0 AND record_id IS NOT NULL")
	r.swapPublicIDs(t, 0)
	wrong := r.count(t, "SELECT count(*) FROM public.versions WHERE shard = 0 AND record_id IS NOT NULL")
	for _, sql := range []string{
		"CREATE TABLE public.replaced (rows bigint)",
		`CREATE FUNCTION public.count_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN INSERT INTO public.replaced SELECT count(*) FROM gone; RETURN NULL; END $$`,
		"CREATE TRIGGER counted AFTER DELETE ON public.versions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE " +
			"FUNCTION public.count_replaced()",
	} {
		if _, err := r.owner.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// The first and the last row are in different ranges, so that no lock has both.
	const most = 30
	result, _ := r.rebuild(t, 0, func(b *projections.Rebuild) { b.RangeRows, b.MendRows = most, most })
	if wrong <= most || int(result.Mended) != wrong {
		t.Errorf("%+v, want %d", result, wrong)
	}
	if rows := r.count(t, "SELECT max(rows) FROM public.replaced"); rows > most {
		t.Errorf("%d rows were replaced under one lock, at most %d were allowed", rows, most)
	}
	r.Audit(t)
}

// TestRebuildOfAnOrganizationWithoutItsRow: an organization is rebuilt even if its own row is missing.
func TestRebuildOfAnOrganizationWithoutItsRow(t *testing.T) {
	r := newDamagedLedger(t)
	r.exec(t, "DELETE FROM public.organization_state WHERE organization_id = $1", r.orgs[0].ID)
	r.exec(t, "DELETE FROM public.companies WHERE organization_id = $1", r.orgs[0].ID)
	r.exec(t, "DELETE FROM public.feed WHERE company_id = $1", r.orgs[0].Company.ID)
	if result, found := r.rebuild(
		t, 0, func(b *projections.Rebuild) { b.Organization = r.orgs[0].ID },
	); result.Mended < 3 {
		t.Errorf("%+v %v", result, found)
	}
	r.Audit(t)
	unknown := domain.NewOrganizationID(r.Now(), 0)
	b := &projections.Rebuild{Pool: r.owner, Program: "test", Organization: unknown}
	if _, err := b.Shard(context.Background(), 0); !errors.Is(err, projections.ErrNoOrganization) ||
		!strings.Contains(err.Error(), unknown.String()) {
		t.Errorf("an organization that there is not: %v", err)
	}
}

// TestRebuildBesideAnotherOrganizationsWrongRow: an organization that cannot be repaired alone is reported, and nothing
// is changed.
func TestRebuildBesideAnotherOrganizationsWrongRow(t *testing.T) {
	r := newDamagedLedger(t)
	const find = "SELECT public_id FROM public.versions WHERE shard = 0 AND organization_id = $1 AND record_id IS NOT " +
		"NULL ORDER BY document_id, version LIMIT 1"
	var ids [2][16]byte
	for i := range ids {
		if err := r.owner.QueryRow(context.Background(), find, r.orgs[i].ID).Scan(&ids[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range [][2][16]byte{{ids[0], {1}}, {ids[1], ids[0]}, {{1}, ids[1]}} {
		r.exec(t, "UPDATE public.versions SET public_id = $2 WHERE shard = 0 AND public_id = $1", set[0], set[1])
	}
	b := &projections.Rebuild{Pool: r.owner, Program: "test", Organization: r.orgs[0].ID}
	if result, err := b.Shard(context.Background(), 0); err == nil ||
		!strings.Contains(err.Error(), "rebuild the whole shard") || result.Mended != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if result, _ := r.rebuild(t, 0, nil); result.Mended != 2 {
		t.Errorf("the whole shard: %+v", result)
	}
	r.Audit(t)
}

// TestRebuildOverridesADatabasesTimeouts: timeouts that an administrator has set for all sessions do not end a rebuild.
// The test checks the settings of its connections, because a short timeout would already end them while they are
// opened.
func TestRebuildOverridesADatabasesTimeouts(t *testing.T) {
	r := newDamagedLedger(t)
	ctx := context.Background()
	database := func(words string) {
		r.exec(t, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I "+words+"', current_database()); END $$; SELECT 1")
	}
	database("SET statement_timeout = ''59s''")
	defer database("RESET statement_timeout")
	limited, err := cluster.At(r.URL).RebuildPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	var timeout, ofOthers string
	if err := limited.QueryRow(
		ctx,
		"SELECT current_setting('statement_timeout'), reset_val || unit FROM pg_settings WHERE name = 'statement_timeout'",
	).Scan(&timeout, &ofOthers); err != nil {
		t.Fatal(err)
	}
	if timeout != "0" || ofOthers != "59000ms" {
		t.Errorf("a rebuild's statement may take %s where all others' may take %s", timeout, ofOthers)
	}
	r.spoil(t, 0)
	b := &projections.Rebuild{Pool: limited, Program: "test"}
	if _, err := b.Shard(ctx, 0); err != nil {
		t.Error(err)
	}
}

// TestClearDisturbsNoOtherSession: the end of a rebuild does not disturb a session that reads the second copy of the
// tables or begins another rebuild.
func TestClearDisturbsNoOtherSession(t *testing.T) {
	pgtest.OneServer(t, "it looks for the waiting session, which waits on its own node there")
	r := newDamagedLedger(t)
	ctx := context.Background()
	r.rebuild(t, 0, nil)
	b := &projections.Rebuild{Pool: r.owner, Program: "test"}
	reader, err := r.owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(ctx, "SELECT 1 FROM rebuild.versions LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Clear(ctx); !errors.Is(err, projections.ErrCopyStays) {
		t.Errorf("beside a reader: %v", err)
	}
	if err := reader.Rollback(ctx); err != nil {
		t.Fatal(err)
	}

	clearing, err := r.owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = clearing.Rollback(ctx) }() // after a commit it does nothing
	if _, err := clearing.Exec(ctx, "LOCK TABLE rebuild.progress IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := b.Shard(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	pgtest.Eventually(t, "the rebuild waits", func() (bool, error) {
		return pgtest.Ask[bool](
			r.URL,
			"SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'integrity "+
				"rebuild' AND wait_event_type = 'Lock'",
		)
	})
	err = func() error {
		for _, sql := range []string{"SET LOCAL lock_timeout = '4min'", "TRUNCATE rebuild.versions"} {
			if _, err := clearing.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return clearing.Commit(ctx)
	}()
	if err != nil {
		t.Error(err)
		_ = clearing.Rollback(ctx) // lets the rebuild continue
	}
	wg.Wait()
	if err := b.Clear(ctx); err != nil {
		t.Error(err)
	}
}
