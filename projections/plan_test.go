package projections

import (
	"context"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// TestGroupsLookUpFullKeys checks the plans of a group's statements on tables without statistics: each lookup must
// descend an index with its whole key. A plan that scans a shard would slow down with every registration until the next
// ANALYZE.
func TestGroupsLookUpFullKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"organizations": loadOrganizations, "totals": loadTotals, "companies": loadCompanies,
		"contributions": loadContributions,
		"declarations":  loadDeclarations, "grants": loadGrants, "records": loadRecords, "company_ids": loadCompanyIDs,
		"keys": loadKeys, "key_names": loadKeyNames, "links": loadLinks,
		"update_organizations": updateOrganizations, "pending": loadPending, "update_warnings": updateWarnings,
		"load_warnings": FindWarnings, "administered": loadAdministered, "company_grants": loadCompanyGrants,
		"member_ids": loadMemberIDs, "backfills": loadBackfills, "upsert_backfills": upsertBackfills, "upsert_warnings": upsertWarnings, "requests": loadMeters[domain.RequestsAllowance],
		"reserve_documents": reserveDocuments, "reserve": reserveVersions, "finalize": finalizeVersions,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND " +
			"d.company_id = n.id",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		good := !strings.Contains(plan, "Filter:") && !strings.Contains(plan, "Seq Scan") &&
			!strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestWebhooksLookUpKeys: statements on destinations and deliveries also filter by rules. Their lookups must restrict
// the leading columns of an index, and more than the shard: a key with a gap is searched by scanning the shard.
func TestWebhooksLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"webhooks": loadWebhooks, "webhook_access": loadWebhookAccess, "deliveries": insertDeliveries,
		"active_keys": loadActiveKeys, "key_grants": loadKeyGrants, "addresses": loadAddresses, "invited": loadInvited,
		"memberships": loadMemberships, "owners": loadOwners,
		"invitations": loadInvitations, "count_administered": countAdministered, "passkeys": loadPasskeys,
		"domains": loadPublisherDomains, "names": loadPublisherNames, "prove_domain": proveDomain, "fail_domain": failDomain,
		"lapse_domain": lapseDomain, "remove_domain": removeDomain, "withdraw_name": withdrawName, "end_checks": endChecks,
		"add_member": insertMember, "invite_member": inviteMember, "remove_passkey": removePasskey,
		"erase_addresses": eraseAddresses, "end_sessions": EndSessions,
		"never": "SELECT webhook_id FROM webhooks WHERE shard = $1 AND webhook_id = $2 AND status = 'active' AND $3",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestCertificationLooksUpKeys checks the certification statements of groups, readers and the erasure queue.
func TestCertificationLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"accounts": loadAccounts, "registrations": loadRegistrations, "artifacts": loadArtifacts,
		"versions":     loadArtifactVersions,
		"certificates": loadCertificates, "former": loadFormer, "contents": loadContents, "claims": loadClaims,
		"words":     loadWords,
		"retention": setRetention, "credits": addCredits, "advance": advanceArtifact, "state": setVersionState,
		"review":  reviewVersion,
		"certify": certifyArtifact, "replace": replaceCertificate, "revoke": revokeCertificate, "erase_content": eraseContent,
		"answer": StoreAnswer, "schedule": scheduleErasure, "erase_texts": eraseTexts, "erase_answers": eraseAnswers,
		"erase_contents": eraseContents, "erase_version_content": eraseVersionContent,
		"never": "UPDATE kept_contents SET due_at = $4 WHERE shard = $1 AND organization_id = $2 AND artifact_id = $3",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
