package projections

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
	head := regexp.MustCompile(`Index Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)`)
	for name, query := range map[string]string{
		"organizations": loadOrganizations, "totals": loadTotals, "companies": loadCompanies, "contributions": loadContributions,
		"declarations": loadDeclarations, "records": loadRecords, "company_ids": loadCompanyIDs, "keys": loadKeys,
		"update_organizations": updateOrganizations, "update_plans": updatePlans, "pending": loadPending,
		"reserve_documents": reserveDocuments, "reserve": reserveIdentities, "finalize": finalizeIdentities,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND d.company_id = n.id",
	} {
		lists := strings.Repeat(", '{}'", strings.Count(query, "[]")-strings.Count(query, "cardinality("))
		if _, err := pool.Exec(ctx, fmt.Sprintf("PREPARE %s AS %s", name, query)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows, err := pool.Query(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s(0%s)", name, lists), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := strings.Join(lines, "\n")
		// The whole key of a shard's head is the shard.
		plan = head.ReplaceAllString(plan, "head")
		good := !strings.Contains(plan, "Filter:") && !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
