package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	statements := map[string]string{
		"due": takeDue, "unwarned": unwarned,
	}
	if !pgtest.OnCitus() { // on Citus the test below runs them on the nodes
		statements["mails"], statements["contents"], statements["unwarned_anywhere"] = mailDue, contentDue, anyUnwarned
	}
	clustertest.Aimed(t, statements)
}

// TestDueIsFoundInEachCitusNode: a query of all shards returns the shards with due work, whatever their node and
// whichever of two queues has it.
func TestDueIsFoundInEachCitusNode(t *testing.T) {
	l := ledgertest.New(t)
	l.Organization(t, 1, "gratis")
	db, now := l.Routed(t), time.Now()
	limits := []any{[]string{"gratis"}, []*int64{new(int64(100))}, []*int64{nil}}
	pgtest.Exec(t, l.URL, `INSERT INTO kept_contents (shard, version_id, organization_id, artifact_id, due_at)
		SELECT shard, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now() + due * interval '1 hour' FROM unnest('{0, 1, 2, 3}'::int[], '{1, -1, 1, -1}'::int[]) AS c(shard, due);
		INSERT INTO mails (shard, mail_id, organization_id, webhook_id, reason, created_at, due_at, attempts, sent)
		SELECT shard, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'x', now(), now() - interval '1 hour', 0, '{}' FROM unnest('{0, 3}'::int[]) AS shard;
		INSERT INTO invitation_mails (shard, mail_id, organization_id, member_id, secret_sha256, sealed, created_at, expires_at, due_at, attempts)
		SELECT 2, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '', '', now(), now(), now() - interval '1 hour', 0 FROM unnest('{0, 1}'::int[]);
		INSERT INTO request_usage (shard, organization_id, period, used, reached_80, limit_80) SELECT shard, organization_id, 24321, 80, now(), 100
			FROM organization_state WHERE shard = 1`)
	for what, c := range map[string]struct {
		args     []any
		question string
		want     []domain.Shard
	}{
		"contents": {[]any{now}, contentDue, []domain.Shard{1, 3}},
		"mails":    {[]any{now}, mailDue, []domain.Shard{0, 2, 3}},
		"unwarned": {append([]any{24321, 24320, now}, limits...), anyUnwarned, []domain.Shard{1}},
		"later":    {append([]any{24322, 24320, now}, limits...), anyUnwarned, nil},
	} {
		found, err := DueIn(context.Background(), db, l.Installation.Shards, c.question, c.args...)
		if slices.Sort(found); err != nil || !slices.Equal(found, c.want) {
			t.Errorf("%s: %v, %v, want %v", what, found, err, c.want)
		}
	}
}
