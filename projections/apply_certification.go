package projections

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// Certification is not a hot path: every event has its own statements, in the order of the log, so nothing has to be
// folded.

const ensureAccount = `INSERT INTO artifact_accounts (shard, organization_id, retention_days, credits) VALUES ($1, $2, 0, 0)
	ON CONFLICT (shard, organization_id) DO NOTHING`

const setRetention = `UPDATE artifact_accounts SET retention_days = $3 WHERE shard = $1 AND organization_id = $2`

const addCredits = `UPDATE artifact_accounts SET credits = credits + $3 WHERE shard = $1 AND organization_id = $2`

const countRegistration = `INSERT INTO artifact_usage AS u (shard, organization_id, period, used) VALUES ($1, $2, $3, 1)
	ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = u.used + 1`

const insertArtifact = `INSERT INTO artifacts (shard, artifact_id, organization_id, latest_version, certified, created_at, updated_at)
	VALUES ($1, $2, $3, 1, 0, $4, $4)`

const advanceArtifact = `UPDATE artifacts SET latest_version = $3, updated_at = $4 WHERE shard = $1 AND artifact_id = $2`

const insertArtifactVersion = `INSERT INTO artifact_versions (shard, version_id, artifact_id, organization_id, version, kind, title_id, file_name_id,
		media_type, sha256, size_bytes, state, reviews, outcome, retain_until, registered_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, '', $13, $14)`

// oneVersion finds the row of a version by its key: the order makes the planner use that index.
const oneVersion = ` WHERE shard = $1 AND ctid = (SELECT ctid FROM artifact_versions
		WHERE shard = $1 AND version_id >= $2 AND version_id <= $2 ORDER BY version_id LIMIT 1)`

const setVersionState = `UPDATE artifact_versions SET state = $3` + oneVersion

const insertAnalysis = `INSERT INTO analyses (shard, analysis_id, version_id, organization_id, position) VALUES ($1, $2, $3, $4, $5)`

const insertDetectorRuns = `INSERT INTO detector_runs (shard, organization_id, detector, detector_version, analysis_id, outcome, micros)
	SELECT s.shard, $2, n.detector, n.version, $3, n.outcome, n.micros
	FROM shard_heads s, unnest($4::text[], $5::int[], $6::text[], $7::bigint[]) AS n(detector, version, outcome, micros) WHERE s.shard = $1`

const insertReview = `INSERT INTO reviews (shard, review_id, version_id, organization_id, key, member_id, outcome, statement_id, declared_at, sequence)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

const reviewVersion = `UPDATE artifact_versions SET state = $3, outcome = $4, reviews = reviews + 1` + oneVersion

const insertApproval = `INSERT INTO approvals (shard, approval_id, version_id, organization_id, key, member_id, statement_id, approved_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

const insertCertificate = `INSERT INTO certificates (shard, public_id, version_id, artifact_id, organization_id, public_fields, payload_id, key_id,
		signature, issued_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

const certifyArtifact = `UPDATE artifacts SET certified = $3, certified_by = $4 WHERE shard = $1 AND artifact_id = $2`

const replaceCertificate = `UPDATE certificates SET replaced_at = $3, replaced_by = $4 WHERE shard = $1 AND public_id = $2`

const revokeCertificate = `UPDATE certificates SET revoked_at = $3 WHERE shard = $1 AND public_id = $2`

const eraseContent = `UPDATE artifact_versions SET content_erased = $3` + oneVersion

// queueCertification writes what an event of certification changes.
func queueCertification(b *pgx.Batch, shard domain.Shard, e *domain.Event) error {
	organization := e.Organization
	switch body := e.Body.(type) {
	case *domain.ArtifactVersionRegisteredBody:
		return queueArtifactVersion(b, shard, e, body)
	case *domain.AnalysisCompletedBody:
		if len(body.ElapsedMicros) != len(body.Detectors) {
			return fmt.Errorf("event %s has %d detectors and %d times", e.ID, len(body.Detectors), len(body.ElapsedMicros))
		}
		b.Queue(insertAnalysis, shard, body.AnalysisID, body.VersionID, organization, e.Position)
		b.Queue(insertDetectorRuns, shard, organization, body.AnalysisID,
			column(body.Detectors, func(d domain.DetectorResult) string { return d.ID }),
			column(body.Detectors, func(d domain.DetectorResult) int32 { return int32(d.Version) }),
			column(body.Detectors, func(d domain.DetectorResult) string { return d.Outcome }), body.ElapsedMicros)
		b.Queue(setVersionState, shard, body.VersionID, domain.VersionAnalyzed)
	case *domain.ReviewDeclaredBody:
		b.Queue(insertReview, shard, body.ReviewID, body.VersionID, organization, e.Actor, body.MemberID, body.Outcome,
			body.Statement.ID, e.OccurredAt, e.Sequence)
		b.Queue(reviewVersion, shard, body.VersionID, domain.VersionReviewed, body.Outcome)
	case *domain.ArtifactVersionApprovedBody:
		b.Queue(insertApproval, shard, body.ApprovalID, body.VersionID, organization, e.Actor, body.MemberID,
			body.Statement.ID, e.OccurredAt)
		b.Queue(setVersionState, shard, body.VersionID, domain.VersionApproved)
	case *domain.CertificateIssuedBody:
		b.Queue(insertCertificate, shard, body.PublicID, body.VersionID, body.ArtifactID, organization, body.PublicFields,
			body.Payload.ID, body.KeyID, body.Signature, body.IssuedAt)
		b.Queue(setVersionState, shard, body.VersionID, domain.VersionCertified)
		b.Queue(certifyArtifact, shard, body.ArtifactID, body.Version, body.PublicID)
	case *domain.CertificateReplacedBody:
		b.Queue(replaceCertificate, shard, body.PublicID, e.OccurredAt, body.ByPublicID)
	case *domain.CertificateRevokedBody:
		b.Queue(revokeCertificate, shard, body.PublicID, e.OccurredAt)
	case *domain.ContentErasedBody:
		b.Queue(eraseContent, shard, body.VersionID, e.OccurredAt)
	case *domain.RetentionChangedBody:
		b.Queue(ensureAccount, shard, organization)
		b.Queue(setRetention, shard, organization, body.Days)
	case *domain.CreditsAddedBody:
		b.Queue(ensureAccount, shard, organization)
		b.Queue(addCredits, shard, organization, body.Credits)
	case *domain.TextsErasedBody:
		// texts are no projection
	default:
		return errNoProjection
	}
	return nil
}

func queueArtifactVersion(b *pgx.Batch, shard domain.Shard, e *domain.Event, body *domain.ArtifactVersionRegisteredBody) error {
	sum, err := hex.DecodeString(body.SHA256)
	if err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	if body.Version == 1 {
		b.Queue(insertArtifact, shard, body.ArtifactID, e.Organization, e.OccurredAt)
	} else {
		b.Queue(advanceArtifact, shard, body.ArtifactID, body.Version, e.OccurredAt)
	}
	b.Queue(insertArtifactVersion, shard, body.VersionID, body.ArtifactID, e.Organization, body.Version, body.Kind,
		body.Title.ID, textID(body.FileName), body.MediaType, sum, body.SizeBytes, domain.VersionRegistered, body.RetainUntil, e.OccurredAt)
	if body.Credit {
		b.Queue(addCredits, shard, e.Organization, int64(-1))
	} else {
		b.Queue(countRegistration, shard, e.Organization, int32(body.Period))
	}
	return nil
}

const scheduleErasure = `UPDATE kept_contents SET due_at = $3 WHERE shard = $1 AND version_id = $2`

const eraseTexts = `UPDATE texts SET body = NULL WHERE shard = $1 AND organization_id = $2 AND id = ANY($3)`

// Stored answers may repeat erased texts, and fingerprints are hashes of them. The keys stay, so that a repeated
// request is not executed again.
const eraseAnswers = `UPDATE idempotency_keys SET answer = NULL, fingerprint = '' WHERE shard = $1 AND organization_id = $2 AND status IS NOT NULL`

// Content that is announced and not yet registered is not part of the artifact.
const eraseContents = `UPDATE kept_contents k SET due_at = $4
	FROM (SELECT version_id, organization_id FROM artifact_versions
		WHERE shard = $1 AND artifact_id >= $3 AND artifact_id <= $3 ORDER BY artifact_id, version OFFSET 0) v
	WHERE v.organization_id = $2 AND k.shard = $1 AND k.version_id = v.version_id`

const eraseVersionContent = `UPDATE kept_contents k SET due_at = $4
	FROM (SELECT version_id, organization_id FROM artifact_versions
		WHERE shard = $1 AND version_id >= $3 AND version_id <= $3 ORDER BY version_id LIMIT 1) v
	WHERE v.organization_id = $2 AND k.shard = $1 AND k.version_id = v.version_id`

// enqueueCertification writes what is not a projection: the answer of an idempotent request, the deadline of kept
// content, and the erasure of texts.
func enqueueCertification(b *pgx.Batch, shard domain.Shard, e *domain.Event) {
	if a := e.Answer; a != nil {
		b.Queue(StoreAnswer, shard, a.Organization, a.Route, a.Key, a.Token, a.Status, a.Body)
	}
	switch body := e.Body.(type) {
	case *domain.ArtifactVersionRegisteredBody:
		b.Queue(scheduleErasure, shard, body.VersionID, keptUntil(body, e.OccurredAt))
	case *domain.TextsErasedBody:
		b.Queue(eraseTexts, shard, e.Organization, body.Texts)
		if _, err := domain.ParseID[domain.WebhookID](body.Subject); err == nil {
			return // no stored answer tells of a destination
		}
		b.Queue(eraseAnswers, shard, e.Organization)
		if id, err := domain.ParseID[domain.ArtifactVersionID](body.Subject); err == nil {
			b.Queue(eraseVersionContent, shard, e.Organization, id, e.OccurredAt)
		}
		if id, err := domain.ParseID[domain.ArtifactID](body.Subject); err == nil {
			b.Queue(eraseContents, shard, e.Organization, id, e.OccurredAt)
		}
	}
}

// keptUntil is the deadline of content that was stored for a registration.
func keptUntil(body *domain.ArtifactVersionRegisteredBody, now time.Time) time.Time {
	if body.RetainUntil == nil {
		return now
	}
	return *body.RetainUntil
}

// StoreAnswer stores the answer of a claimed request. In a group's transaction the first round trip has locked the
// claim (loadClaims).
const StoreAnswer = `UPDATE idempotency_keys SET status = $6, answer = $7
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4 AND token = $5`
