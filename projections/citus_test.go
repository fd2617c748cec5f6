package projections

import (
	"context"
	"maps"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
)

var routed = map[string]string{
	"never": cluster.SQL(
		"INSERT INTO {texts} (shard, organization_id, id, salt, body) SELECT $1, n.* FROM unnest($2::uuid[], $3::uuid[], " +
			"$4::bytea[], $5::text[]) AS n",
	),

	"organizations": loadOrganizations, "totals": loadTotals, "companies": loadCompanies,
	"contributions": loadContributions,
	"declarations":  loadDeclarations, "grants": loadGrants, "records": loadRecords, "company_ids": loadCompanyIDs,
	"keys": loadKeys, "active_keys": loadActiveKeys, "key_grants": loadKeyGrants,
	"addresses": loadAddresses, "invited": loadInvited, "memberships": loadMemberships, "pending": loadPending,
	"webhooks": loadWebhooks, "webhook_access": loadWebhookAccess, "accounts": loadAccounts,
	"registrations": loadRegistrations, "artifacts": loadArtifacts, "versions": loadArtifactVersions,
	"certificates": loadCertificates,
	"former":       loadFormer, "contents": loadContents, "claims": loadClaims,

	"insert_organization": insertOrganization, "plan": updatePlan, "limits": updateLimits,
	"update_organizations": updateOrganizations,
	"insert_member":        insertMember, "member": updateMember, "insert_key": insertKey, "invite_member": inviteMember,
	"erase_addresses": eraseAddresses, "end_sessions": EndSessions,
	"domains": loadPublisherDomains, "names": loadPublisherNames, "insert_domain": insertDomain, "prove_domain": proveDomain,
	"fail_domain": failDomain, "lapse_domain": lapseDomain, "remove_domain": removeDomain, "declare_name": declareName,
	"withdraw_name": withdrawName, "schedule_check": scheduleCheck, "end_checks": endChecks,
	"passkeys": loadPasskeys, "insert_passkey": insertPasskey, "remove_passkey": removePasskey,
	"expiry": changeKeyExpiry, "revoke_key": revokeKey,
	"backfills": loadBackfills, "upsert_backfills": upsertBackfills,
	"insert_company": insertCompany, "grant": upsertGrant, "feed": insertFeed, "usage": addUsage,
	"warnings": updateWarnings, "load_warnings": FindWarnings, "upsert_warnings": upsertWarnings,
	"requests":  loadMeters[domain.RequestsAllowance],
	"documents": upsertDocuments, "insert_documents": insertDocuments, "insert_versions": insertVersions,
	"reserve_documents": reserveDocuments, "reserve": reserveVersions,
	"finalize": finalizeVersions, "revoke": revokeVersion, "revoke_highest": revokeHighest,
	"insert_webhook": insertWebhook, "update_webhook": updateWebhook, "rotate": rotateWebhookSecret,
	"disable":        disableWebhook,
	"delete_webhook": deleteWebhook, "delete_access": deleteWebhookAccess, "upsert_access": upsertWebhookAccess,
	"count":   countWebhooks,
	"account": ensureAccount, "retention": setRetention, "credits": addCredits, "registration": countRegistration,
	"insert_artifact": insertArtifact, "advance": advanceArtifact, "insert_version": insertArtifactVersion,
	"state":           setVersionState,
	"insert_analysis": insertAnalysis, "detectors": insertDetectorRuns, "insert_review": insertReview,
	"review":          reviewVersion,
	"insert_approval": insertApproval, "insert_certificate": insertCertificate, "certify": certifyArtifact,
	"replace":            replaceCertificate,
	"revoke_certificate": revokeCertificate, "erase_content": eraseContent, "schedule": scheduleErasure,
	"erase_texts":   eraseTexts,
	"erase_answers": eraseAnswers, "erase_contents": eraseContents, "deliveries": insertDeliveries, "answer": StoreAnswer,
}

// TestStatementsAreRoutedToOneNode: on Citus a group avoids a two-phase commit only if each of its statements runs on
// one node. The same applies to the most frequent queries.
func TestStatementsAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	url := pgtest.New(t)
	commit, err := cluster.At(url).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer commit.Close()
	pgtest.Routed(t, commit, routed)
}

// Citus does not push down an INSERT that selects from no relation.
func TestInsertsSelectFromRelations(t *testing.T) { pgtest.Pushable(t, routed) }

// TestStatementsAreAimed: a group's statements use the names of the tables' parts on the node of its shard.
func TestStatementsAreAimed(t *testing.T) {
	all := maps.Clone(routed)
	maps.Copy(
		all,
		map[string]string{
			"count_minutes": CountMinutes, "clear_minutes": ClearMinutes, "return_minute": returnMinute, "links": loadLinks,
			"names": loadKeyNames,
		},
	)
	clustertest.Aimed(t, all)
}
