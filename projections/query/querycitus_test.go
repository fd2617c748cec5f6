package query

import (
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/projections"
)

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	clustertest.Aimed(t, map[string]string{
		"history": cluster.SQL(auditRange + auditOrder), "registrations": cluster.SQL(auditOfRegistrations + auditOrder),
		"action": cluster.SQL(auditOfAction + auditOrderForward),
		"target": auditAbout(auditOrder, "DESC"), "author": byActors(auditRange), "member_at": memberAt, "first_actor": firstActor, "last_actor": lastActor,
		"sequence_at": sequenceAt, "all_before": allBefore, "as_of": loadAsOf,
		"records": listRecords(feedBackwards), "records_end": cluster.SQL(feedBackwards + lastRow), "document": findDocument,
		"document_versions": listRecords(documentBackwards), "versions_end": cluster.SQL(documentBackwards + lastRow),
		"reserved": listReservations, "reserved_end": lastReservation,
		"usages": findUsages, "requests": findRequests, "credits": findRegistrations,
		"month": loadMonth(domain.Access{}), "contributors": loadContributors(domain.Access{}), "entries": loadUsageEntries,
		"backfill": findBackfill, "backfilled": findBackfilled,
		"comparisons": loadComparisons, "evidence": loadEvidence, "aliases": findAliases,
		"changes": ChangesQuery, "all_changes": AllChangesQuery, "grants": grantedBetween, "references": streamEvents,
		"artifacts": listArtifacts, "artifact": findArtifact, "versions": findArtifactVersions, "reviews": findReviews,
		"certificates": findCertificates, "reviews_of_one": findReviewsOfVersion, "approval_of_one": findApprovalOfVersion,
		"certificate_of_one": findCertificateOfVersion, "certificate": storedCertificate, "analysis": findAnalysis,
		"claim": claimKey, "answer": findAnswer, "release": releaseKey, "forget": forgetAnswers,
		"sources": sourcesOf, "referenced": referenced, "record": findRecords, "lookup": lookRecordsUp, "webhooks": findWebhooks,
		"versions_named": versionsNamed, "events_of_keys": eventsOfKeys, "set_before": setBefore,
		"authorized_companies": findAuthorized, "deliveries": findDeliveries, "missing": cluster.SQL(missed),
		"authorized": findAuthorization,
		"access":     authenticateKeys, "linked": authenticateLinks, "count_minute": countMinute,
		"count_minutes": projections.CountMinutes, "clear_minutes": projections.ClearMinutes,
		"api_key_uses": writeKeyUses, "traffic": writeTraffic, "forget_traffic": forgetTraffic, "read_traffic": readTraffic,
		"acts": listOperatorActs, "redelivered": findRedelivered, "lock_ended": lockEnded, "queue_ended": queueEnded,
		"forget_ended": forgetEnded,
		"hurry":        hurryDelivery, "queue_missing": queueMissing,
		"addresses": findAddresses, "domains": findPublisherDomains, "publisher_name": findPublisherName,
	})
}
