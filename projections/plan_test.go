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
	"integrityledger/eventstore"
)

// TestGroupsLookUpFullKeys asks for the plans of a group's statements on tables
// without statistics: each look-up must descend an index with its whole key. A
// plan that reads a shard and filters it would slow down with every registration
// until the statistics are next taken.
func TestGroupsLookUpFullKeys(t *testing.T) {
	ctx := context.Background()
	pool, err := eventstore.CommitPool(ctx, pgtest.New(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	explain := explainer(t, pool)
	head := regexp.MustCompile(`Index Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)`)
	for name, query := range map[string]string{
		"organizations": loadOrganizations, "totals": loadTotals, "companies": loadCompanies, "contributions": loadContributions,
		"declarations": loadDeclarations, "records": loadRecords, "company_ids": loadCompanyIDs, "keys": loadKeys,
		"update_organizations": updateOrganizations, "update_plans": updatePlans, "pending": loadPending, "update_warnings": updateWarnings,
		"reserve_documents": reserveDocuments, "reserve": reserveIdentities, "finalize": finalizeIdentities,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND d.company_id = n.id",
	} {
		plan := explain(name, query)
		// The whole key of a shard's head is the shard.
		plan = head.ReplaceAllString(plan, "head")
		good := !strings.Contains(plan, "Filter:") && !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// The same of the statements that many readers share. Their filters are rules,
// so only the scans are judged.
func TestSharedReadsLookUpFullKeys(t *testing.T) {
	pool, err := eventstore.ReadPool(context.Background(), pgtest.New(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	explain := explainer(t, pool)
	for name, query := range map[string]string{
		"authenticate": authenticate, "comparisons": loadComparisons, "evidence": loadEvidence,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND d.company_id = n.id",
	} {
		plan := explain(name, query)
		good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
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
