package projections_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// TestReplayOfEventsThatOpenNoDocument: in old logs, document ids did not share bits with their first record's id, so
// no event shows that it opens a document. They must produce the same tables, however they are divided.
func TestReplayOfEventsThatOpenNoDocument(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	for i := range 4 {
		document := fmt.Sprint("d-", i)
		if i == 3 {
			l.Must(t, l.Reserve(t, o, document, 2))
		}
		for _, version := range []int32{1, 3, 2} { // the highest is not the last
			l.Must(t, l.Register(t, o, o.Declaration(document, version, "content")))
		}
	}
	for _, after := range []string{"released", "reserved", "registered"} {
		reserved := l.Reserve(t, o, after, 1)
		l.Must(t, reserved)
		l.Must(t, l.Release(t, o, reserved.Outcome.PublicID))
		switch after {
		case "reserved":
			l.Must(t, l.Reserve(t, o, after, 1))
		case "registered":
			l.Must(t, l.Register(t, o, o.Declaration(after, 1, "content")))
		}
	}
	events := l.Events(t, 0)
	older := map[domain.DocumentID]domain.DocumentID{}
	for _, e := range events {
		var id *domain.DocumentID
		switch b := e.Body.(type) {
		case *domain.VersionReservedBody:
			id = &b.DocumentID
		case *domain.VersionReleasedBody:
			id = &b.DocumentID
		case *domain.RecordRegisteredBody:
			id = &b.DocumentID
		case *domain.RecordSupersededBody:
			id = &b.DocumentID
		default:
			continue
		}
		if older[*id].IsZero() {
			older[*id] = domain.NewID[domain.DocumentID](l.Now())
		}
		*id = older[*id]
	}
	pool, err := cluster.At(l.URL).RebuildPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, size := range []int{1, 2, 3, 5, len(events)} {
		if _, err := pool.Exec(
			ctx,
			"TRUNCATE rebuild.organization_state, rebuild.members, rebuild.api_keys, rebuild.companies, rebuild.grants, "+
				"rebuild.documents, rebuild.versions, rebuild.feed, rebuild.usage",
		); err != nil {
			t.Fatal(err)
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for from := 0; from < len(events); from += size {
				b := &pgx.Batch{}
				if err := projections.Apply(b, 0, events[from:min(from+size, len(events))]); err != nil {
					return err
				}
				if err := tx.SendBatch(ctx, b).Close(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("groups of %d: %v", size, err)
			continue
		}
		for what, sql := range map[string]string{
			"documents": `SELECT count(*) FROM (SELECT company_id, source, reference, highest_version, highest_revoked FROM public.documents EXCEPT ALL
				SELECT company_id, source, reference, highest_version, highest_revoked FROM rebuild.documents) d`,
			"versions": `SELECT count(*) FROM (SELECT public_id, version, record_id, position, expires_at, released_at FROM public.versions EXCEPT ALL
				SELECT public_id, version, record_id, position, expires_at, released_at FROM rebuild.versions JOIN rebuild.documents USING (shard, document_id)) d`,
		} {
			var differing int
			if err := pool.QueryRow(ctx, sql).Scan(&differing); err != nil || differing != 0 {
				t.Errorf("groups of %d: %d %s differ, %v", size, differing, what, err)
			}
		}
	}
}
