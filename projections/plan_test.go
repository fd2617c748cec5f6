package projections

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// TestGroupsLookUpFullKeys asks for the plans of a group's statements on tables
// without statistics: each look-up must descend an index with its whole key. A
// plan that reads a shard and filters it would slow down with every registration
// until the statistics are next taken.
func TestGroupsLookUpFullKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	explain := explainer(t, pool)
	for name, query := range map[string]string{
		"organizations": loadOrganizations, "totals": loadTotals, "companies": loadCompanies, "contributions": loadContributions,
		"declarations": loadDeclarations, "records": loadRecords, "company_ids": loadCompanyIDs, "keys": loadKeys, "links": loadLinks,
		"update_organizations": updateOrganizations, "update_plans": updatePlans, "pending": loadPending, "update_warnings": updateWarnings, "load_warnings": loadWarnings, "upsert_warnings": upsertWarnings, "requests": loadRequests,
		"reserve_documents": reserveDocuments, "reserve": reserveVersions, "finalize": finalizeVersions,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND d.company_id = n.id",
	} {
		plan := explain(name, query)
		plan = place.ReplaceAllString(head.ReplaceAllString(plan, "head"), "place")
		good := !strings.Contains(plan, "Filter:") && !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// The same of the statements that many readers share. Their filters are rules,
// so only the scans are judged.
func TestSharedReadsLookUpFullKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	explain := explainer(t, pool)
	for name, query := range map[string]string{
		"authenticate": authenticate, "authenticate_link": authenticateLink, "comparisons": loadComparisons, "evidence": loadEvidence,
		"access": findAccess, "linked": findLinked, "clear_minutes": clearMinutes,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND d.company_id = n.id",
	} {
		plan := explain(name, query)
		good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// Statements on destinations and deliveries have filters that are rules. Their
// look-ups must bind the columns of an index from the first one on, and more
// than the shard: a key with a gap is searched by reading the shard.
func TestWebhooksLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	url := pgtest.New(t)
	for _, c := range []struct {
		open    func(*cluster.Primary, context.Context, int) (*pgxpool.Pool, error)
		queries map[string]string
	}{
		{(*cluster.Primary).CommitPool, map[string]string{
			"webhooks": loadWebhooks, "webhook_access": loadWebhookAccess, "deliveries": insertDeliveries,
			"never": "SELECT webhook_id FROM webhooks WHERE shard = $1 AND webhook_id = $2 AND status = 'active' AND $3",
		}},
		{(*cluster.Primary).ReadPool, map[string]string{
			"webhooks": findWebhooks, "missing": missing, "queue_missing": queueMissing, "authorized": findAuthorization,
			"deliveries": findDeliveries, "redeliver": findRedelivered, "lock_ended": lockEnded, "forget_ended": forgetEnded, "hurry": hurryDelivery,
			"never": "SELECT delivery_id FROM webhook_log WHERE shard = $1 AND delivery_id = $2",
		}},
	} {
		pool, err := c.open(cluster.At(url), ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		explain := explainer(t, pool)
		for name, query := range c.queries {
			plan := head.ReplaceAllString(explain(name, query), "head")
			if good := !strings.Contains(plan, "Seq Scan") && keyed(t, pool, plan); good != (name != "never") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	}
}

// Statements of certification: those of the group, and those of readers and
// of the queue of erasures.
func TestCertificationLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	url := pgtest.New(t)
	for _, c := range []struct {
		open    func(*cluster.Primary, context.Context, int) (*pgxpool.Pool, error)
		queries map[string]string
	}{
		{(*cluster.Primary).CommitPool, map[string]string{
			"accounts": loadAccounts, "registrations": loadRegistrations, "artifacts": loadArtifacts, "versions": loadArtifactVersions,
			"certificates": loadCertificates, "former": loadFormer, "contents": loadContents, "claims": loadClaims, "words": loadWords,
			"retention": setRetention, "credits": addCredits, "advance": advanceArtifact, "state": setVersionState, "review": reviewVersion,
			"certify": certifyArtifact, "replace": replaceCertificate, "revoke": revokeCertificate, "erase_content": eraseContent,
			"answer": storeAnswer, "schedule": scheduleErasure, "erase_texts": eraseTexts, "erase_answers": eraseAnswers, "erase_contents": eraseContents, "erase_version_content": eraseVersionContent,
			"never": "UPDATE kept_contents SET due_at = $4 WHERE shard = $1 AND organization_id = $2 AND artifact_id = $3",
		}},
		{(*cluster.Primary).ReadPool, map[string]string{
			"list": listArtifacts, "count": countArtifacts, "artifact": findArtifact, "all_versions": findArtifactVersions, "one_version": findArtifactVersion,
			"reviews": findReviews, "approvals": findApprovals, "certificates": findCertificates, "certificate": storedCertificate,
			"analysis": findAnalysis, "key": findAnswer, "due": takeDue, "unwarned": unwarned, "forget": forgetAnswers, "settle": releaseKey,
			"never": "SELECT version_id FROM artifact_versions WHERE shard = $1 AND artifact_id IS NOT NULL AND version = $2",
		}},
	} {
		pool, err := c.open(cluster.At(url), ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		explain := explainer(t, pool)
		for name, query := range c.queries {
			plan := head.ReplaceAllString(explain(name, query), "head")
			if good := !strings.Contains(plan, "Seq Scan") && keyed(t, pool, plan); good != (name != "never") {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
	}
}

// Statements on the history of an organization, and on a month's consumption:
// each is a range of the index that was made for it.
func TestHistoryLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	explain := explainer(t, pool)
	for name, c := range map[string]struct{ query, index string }{
		"range":          {auditRange + auditOrder, "events_shard_organization_id_sequence_key"},
		"range_forward":  {auditRange + auditOrderForward, "events_shard_organization_id_sequence_key"},
		"registrations":  {auditOfRegistrations + auditOrder, "events_shard_organization_id_sequence_key"},
		"action":         {auditOfAction + auditOrder, "events_action"},
		"action_forward": {auditOfAction + auditOrderForward, "events_action"},
		"target":         {auditAbout(auditOrder, "DESC"), "events_target"},
		"target_forward": {auditAbout(auditOrderForward, "ASC"), "events_target"},
		"sequence_at":    {sequenceAt, "events_shard_organization_id_sequence_key"},
		"as_of":          {loadAsOf, "events_target"},
		"month":          {loadMonth, "usage_pkey"},
		"contributors":   {loadContributors, "usage_pkey"},
		"entries":        {loadUsageEntries, "feed_pkey"},
		"never":          {auditRange + " AND request_id = $7" + auditOrder, "events_target"},
	} {
		plan := explain(name, c.query)
		good := !strings.Contains(plan, "Seq Scan") && keyed(t, pool, plan) && strings.Contains(plan, " "+c.index+" ")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// head is the look-up of a shard's head, whose whole key is the shard.
var head = regexp.MustCompile(`Index (?:Only )?Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)`)

// place is a row at the place that a look-up has found; the shard is named for Citus.
var place = regexp.MustCompile(`Tid Scan on \w+ .*\n *TID Cond: .*\n *Filter: \(shard = \$1\)`)

// keyed reports whether every index of a plan is searched by columns from its first on, at least two.
func keyed(t *testing.T, pool *pgxpool.Pool, plan string) bool {
	t.Helper()
	scan := regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?using (\w+) on .*\n *Index Cond: (.*)`)
	found := scan.FindAllStringSubmatch(plan, -1)
	for _, m := range found {
		rows, err := pool.Query(context.Background(), `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum`, m[1])
		if err != nil {
			t.Fatal(err)
		}
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		bound := 0
		for _, column := range columns {
			if regexp.MustCompile(`\("?` + column + `"? [=<>]`).MatchString(m[2]) {
				bound++
			} else {
				break
			}
		}
		conditions := map[string]bool{}
		for _, c := range regexp.MustCompile(`\("?(\w+)"? [=<>]`).FindAllStringSubmatch(m[2], -1) {
			conditions[c[1]] = true
		}
		if bound < 2 || bound < len(conditions) {
			return false
		}
	}
	return len(found) == strings.Count(plan, " using ") && len(found) == strings.Count(plan, "Index Cond:")
}

// explainer asks for the plan of a statement, the same for all arguments.
func explainer(t *testing.T, pool *pgxpool.Pool) func(name, query string) string {
	ctx := context.Background()
	parameter := regexp.MustCompile(`\$(\d+)`)
	return func(name, query string) string {
		t.Helper()
		arguments := 0
		for _, n := range parameter.FindAllStringSubmatch(query, -1) {
			number, _ := strconv.Atoi(n[1])
			arguments = max(arguments, number)
		}
		if _, err := pool.Exec(ctx, fmt.Sprintf("PREPARE %s AS %s", name, query)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows, err := pool.Query(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s(0%s)", name, strings.Repeat(", NULL", arguments-1)), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return strings.Join(lines, "\n")
	}
}
