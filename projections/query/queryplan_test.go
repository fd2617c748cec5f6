package query

import (
	"context"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
)

// TestSharedReadsLookUpFullKeys: statements shared by readers also look up rows by full keys. They also filter by
// rules, so only scans are checked.
func TestSharedReadsLookUpFullKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"authenticate": authenticateKeys, "why_refused": whyKeyRefused, "authenticate_link": authenticateLinks,
		"comparisons": loadComparisons, "evidence": loadEvidence, "records": findRecords, "lookups": lookRecordsUp, "aliases": findAliases,
		"keys_of_company": findKeysOfCompany, "webhooks_of_company": findWebhooksOfCompany,
		"clear_minutes": projections.ClearMinutes, "reserved_as": findReservedAs,
		"never": "SELECT d.document_id FROM unnest($2::uuid[]) AS n(id) JOIN documents d ON d.shard = $1 AND " +
			"d.company_id = n.id",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "(shard = $1)\n")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestWebhookReadsLookUpKeys: statements on destinations and deliveries also filter by rules. Their lookups must
// restrict the leading columns of an index, and more than the shard: a key with a gap is searched by scanning the
// shard.
func TestWebhookReadsLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"webhooks": findWebhooks, "missing": cluster.SQL(missed), "queue_missing": queueMissing,
		"authorized": findAuthorization, "companies": findAuthorized,
		"deliveries": findDeliveries, "sent": findSent, "redeliver": findRedelivered, "lock_ended": lockEnded, "forget_ended": forgetEnded,
		"hurry": hurryDelivery,
		"never": "SELECT delivery_id FROM webhook_log WHERE shard = $1 AND delivery_id = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestAdministrationLooksUpKeys checks the statements on an organization's members and keys.
func TestAdministrationLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"members": pageOfMembers, "addresses": findAddresses, "names": findNames, "member": findMember, "member_at": memberAt, "invitation": findInvitation,
		"keys": pageOfKeys, "living_keys": livingKeys, "key": findKey, "grants": keyGrants,
		"grants_among": grantsAmong, "usages": findUsages, "requests": findRequests, "registrations": findRegistrations, "month": findMonthlyUse, "backfill": findBackfill, "backfilled": findBackfilled,
		"domains": findPublisherDomains, "publisher_name": findPublisherName, "owners": ownersBeside, "member_keys": memberKeys,
		"never": "SELECT key_id FROM api_keys WHERE shard = $1 AND member_id = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestCertificationReadsLookUpKeys checks the certification statements of groups, readers and the erasure queue.
func TestCertificationReadsLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"list": listArtifacts, "count": countArtifacts, "artifact": findArtifact, "all_versions": findArtifactVersions,
		"one_version": findArtifactVersion,
		"reviews":     findReviews, "approvals": findApprovals, "certificates": findCertificates,
		"reviews_of_one": findReviewsOfVersion, "approval_of_one": findApprovalOfVersion,
		"certificate_of_one": findCertificateOfVersion, "certificate": storedCertificate,
		"analysis": findAnalysis, "key": findAnswer, "forget": forgetAnswers, "release": releaseKey,
		"never": "SELECT version_id FROM artifact_versions WHERE shard = $1 AND artifact_id IS NOT NULL AND version = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestConsoleLooksUpKeys checks the statements of the console.
func TestConsoleLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"sources": sourcesOf, "referenced": referenced,
		"versions_named": versionsNamed, "events_of_keys": eventsOfKeys,
		"company": findGrantedCompany(domain.Access{Console: true}),
		"never":   "SELECT document_id FROM documents WHERE shard = $1 AND source = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// byActors is a statement of the history for some actors.
func byActors(sql string) string {
	parameters := 7
	if sql == auditOfAction {
		parameters = 8
	}
	sql, _ = auditBy([]string{"operator"}, sql, auditOrder, make([]any, parameters))
	return sql
}

// TestHistoryLooksUpKeys checks the statements on an organization's history, on its feed and on a month's consumption:
// each reads a range of its own index.
func TestHistoryLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, c := range map[string]struct{ query, index string }{
		"range":          {cluster.SQL(auditRange + auditOrder), "events_shard_organization_id_sequence_key"},
		"range_forward":  {cluster.SQL(auditRange + auditOrderForward), "events_shard_organization_id_sequence_key"},
		"registrations":  {cluster.SQL(auditOfRegistrations + auditOrder), "events_shard_organization_id_sequence_key"},
		"action":         {cluster.SQL(auditOfAction + auditOrder), "events_action"},
		"action_forward": {cluster.SQL(auditOfAction + auditOrderForward), "events_action"},
		"target":         {auditAbout(auditOrder, "DESC"), "events_target"},
		"target_forward": {auditAbout(auditOrderForward, "ASC"), "events_target"},
		"author":         {byActors(auditRange), "events_shard_organization_id_sequence_key"},
		"author_action":  {byActors(auditOfAction), "events_action"},
		"first_actor":    {firstActor, "events_target"},
		"last_actor":     {lastActor, "events_target"},
		"set_before":     {setBefore, "events_target"},
		"sequence_at":    {sequenceAt, "events_shard_organization_id_sequence_key"},
		"all_before":     {allBefore, "events_shard_organization_id_sequence_key"},
		"as_of":          {loadAsOf, "events_target"},
		"month":          {loadMonth(domain.Access{}), "usage_pkey"},
		"whole_month":    {loadMonth(domain.Access{Console: true}), "usage_pkey"},
		"contributors":   {loadContributors(domain.Access{}), "usage_pkey"},
		"all_companies":  {loadContributors(domain.Access{Console: true}), "usage_pkey"},
		"entries":        {loadUsageEntries, "feed_pkey"},
		"changes":        {ChangesQuery, "feed_pkey"},
		"all_changes":    {AllChangesQuery, "events_shard_organization_id_sequence_key"},
		"granted":        {grantedBetween, "events_target"},
		"stream":         {streamEvents, "feed_pkey"},
		"records":        {listRecords(feedBackwards), "feed_pkey"},
		"records_end":    {cluster.SQL(feedBackwards + lastRow), "feed_pkey"},
		"document":       {findDocument, "documents_shard_company_id_source_reference_key"},
		"versions":       {listRecords(documentBackwards), "versions_pkey"},
		"versions_end":   {cluster.SQL(documentBackwards + lastRow), "versions_pkey"},
		"reserved":       {listReservations, "versions_pending"},
		"reserved_end":   {lastReservation, "versions_pending"},
		"never":          {cluster.SQL(auditRange + " AND request_id = $8" + auditOrder), "events_target"},
	} {
		plan := pgtest.Explain(t, pool, name, c.query)
		good := pgtest.LooksUpKeys(t, pool, plan) && strings.Contains(plan, " "+c.index+" ")
		if good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
