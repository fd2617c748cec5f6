package projections

import (
	"encoding/hex"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Organizations, members, API keys, companies and their access.
const (
	sameWarnings = `CASE WHEN w.period = excluded.period AND w.of_limit = excluded.of_limit THEN `
	// The database hashes the address, so that a rebuild, which has only events, writes the same.
	addressOfMember = `sha256(convert_to(lower(t.body COLLATE "C"), 'UTF8'))
	FROM {shard_heads} s
	LEFT JOIN {texts} t ON t.shard = $1 AND t.organization_id = $2 AND t.id = $4
	WHERE s.shard = $1`
)

var (
	insertOrganization = cluster.SQL(`INSERT INTO {organization_state} (shard, organization_id, sequence, name_id, plan, internal, per_minute, companies, created_at)
	VALUES ($1, $2, 0, $3, $4, $5, $6, 0, $7)`)
	updatePlan = cluster.SQL(
		`UPDATE {organization_state} SET plan = $3, internal = $4, per_minute = $5 WHERE shard = $1 AND organization_id = $2`,
	)
	updateLimits = cluster.SQL(`UPDATE {organization_state} SET unfinalized_limit = $3
		WHERE shard = $1 AND organization_id = $2`)
	// The first warning of a new month, or of another limit, replaces the previous warnings, which stay in the log. The
	// warnings about versions are columns of organization_state, which every group reads.
	updateWarnings = cluster.SQL(`UPDATE {organization_state} o SET warned_period = $3, warned_limit = $4,
		warned_80  = CASE WHEN w.same THEN coalesce(warned_80, $5) ELSE $5::timestamptz END,
		warned_95  = CASE WHEN w.same THEN coalesce(warned_95, $6) ELSE $6::timestamptz END,
		warned_100 = CASE WHEN w.same THEN coalesce(warned_100, $7) ELSE $7::timestamptz END,
		warned_used_80  = CASE WHEN w.same THEN coalesce(warned_used_80, $8) ELSE $8::bigint END,
		warned_used_95  = CASE WHEN w.same THEN coalesce(warned_used_95, $9) ELSE $9::bigint END,
		warned_used_100 = CASE WHEN w.same THEN coalesce(warned_used_100, $10) ELSE $10::bigint END
	FROM (SELECT shard, organization_id, warned_period = $3 AND warned_limit = $4 AS same
		FROM {organization_state} WHERE shard = $1 AND organization_id = $2) w
	WHERE o.shard = $1 AND o.organization_id = $2`)
	upsertWarnings = cluster.SQL(`INSERT INTO {allowance_warnings} AS w (shard, organization_id, period, of_limit, at_80, at_95, at_100, used_80, used_95, used_100, allowance)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
	ON CONFLICT (shard, organization_id, allowance) DO UPDATE SET period = excluded.period, of_limit = excluded.of_limit,
		at_80    = ` + sameWarnings + `coalesce(w.at_80, excluded.at_80) ELSE excluded.at_80 END,
		at_95    = ` + sameWarnings + `coalesce(w.at_95, excluded.at_95) ELSE excluded.at_95 END,
		at_100   = ` + sameWarnings + `coalesce(w.at_100, excluded.at_100) ELSE excluded.at_100 END,
		used_80  = ` + sameWarnings + `coalesce(w.used_80, excluded.used_80) ELSE excluded.used_80 END,
		used_95  = ` + sameWarnings + `coalesce(w.used_95, excluded.used_95) ELSE excluded.used_95 END,
		used_100 = ` + sameWarnings + `coalesce(w.used_100, excluded.used_100) ELSE excluded.used_100 END`)
	insertMember = cluster.SQL(`INSERT INTO {members} (shard, organization_id, member_id, email_id, role, status, created_at, email_sha256)
	SELECT s.shard, $2, $3, $4, $5, $6, $7, ` + addressOfMember)
	inviteMember = cluster.SQL(`INSERT INTO {members} (shard, organization_id, member_id, email_id, role, status, created_at, invitation_sha256, invited_until, email_sha256)
	SELECT s.shard, $2, $3, $4, $5, $6, $7, $8, $9, ` + addressOfMember + `
	ON CONFLICT (shard, organization_id, member_id) DO UPDATE SET email_id = excluded.email_id, role = excluded.role, status = excluded.status,
		invitation_sha256 = excluded.invitation_sha256, invited_until = excluded.invited_until, email_sha256 = excluded.email_sha256`)
	eraseAddresses = cluster.SQL(
		`UPDATE {members} SET email_sha256 = NULL WHERE shard = $1 AND organization_id = $2 AND email_id = ANY($3)`,
	)
	joinMember = cluster.SQL(`UPDATE {members} SET status = $4
		WHERE shard = $1 AND organization_id = $2 AND member_id = $3`)
	updateMember = cluster.SQL(
		`UPDATE {members} SET role = $4, status = $5 WHERE shard = $1 AND organization_id = $2 AND member_id = $3`,
	)
	insertKey = cluster.SQL(`INSERT INTO {api_keys} (shard, key_id, organization_id, member_id, secret_sha256, scopes, source, networks,
		max_version_step, name_id, created_by, created_at, expires_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`)
	renameKey       = cluster.SQL(`UPDATE {api_keys} SET name_id = $3 WHERE shard = $1 AND key_id = $2`)
	changeKeyExpiry = cluster.SQL(`UPDATE {api_keys} SET expires_at = $3 WHERE shard = $1 AND key_id = $2`)
	revokeKey       = cluster.SQL(`UPDATE {api_keys} SET revoked_at = $3 WHERE shard = $1 AND key_id = $2`)
	insertCompany   = cluster.SQL(
		`INSERT INTO {companies} (shard, company_id, organization_id, reference, created_at) VALUES ($1, $2, $3, $4, $5)`,
	)
	closeCompany = cluster.SQL(`UPDATE {companies} SET closed_at = $3 WHERE shard = $1 AND company_id = $2`)
	upsertGrant  = cluster.SQL(`INSERT INTO {grants} (shard, key_id, company_id, enabled, updated_at)
		VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (shard, key_id, company_id) DO UPDATE SET enabled = excluded.enabled, updated_at = excluded.updated_at`)
)

// Former public ids.
var insertAlias = cluster.SQL(
	`INSERT INTO {aliases} (shard, public_id, organization_id, alias_of, position) VALUES ($1, $2, $3, $4, $5)`,
)

// Passkeys.
var (
	insertPasskey = cluster.SQL(`INSERT INTO {passkeys} (shard, passkey_id, organization_id, member_id, credential_id, public_key, transports, backup_eligible,
		name_id, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`)
	removePasskey = cluster.SQL(`UPDATE {passkeys} SET removed_at = $3 WHERE shard = $1 AND passkey_id = $2`)
)

// These statements store what organizations say about themselves.
var (
	insertDomain = cluster.SQL(`INSERT INTO {publisher_domains} (shard, statement_id, organization_id, domain_id, added_at, method, failed_days)
	VALUES ($1, $2, $3, $4, $5, '', 0)`)
	proveDomain = cluster.SQL(`UPDATE {publisher_domains} SET method = $3, checked_at = $4, failed_days = 0, failed_at = NULL, lapsed_at = NULL
	WHERE shard = $1 AND statement_id = $2`)
	failDomain = cluster.SQL(
		`UPDATE {publisher_domains} SET failed_days = $3, failed_at = $4 WHERE shard = $1 AND statement_id = $2`,
	)
	lapseDomain  = cluster.SQL(`UPDATE {publisher_domains} SET lapsed_at = $3 WHERE shard = $1 AND statement_id = $2`)
	removeDomain = cluster.SQL(`UPDATE {publisher_domains} SET removed_at = $3 WHERE shard = $1 AND statement_id = $2`)
	declareName  = cluster.SQL(`INSERT INTO {publisher_names} (shard, organization_id, statement_id, name_id, member_id, stated_at)
	VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (shard, organization_id) DO UPDATE SET statement_id = excluded.statement_id, name_id = excluded.name_id,
		member_id = excluded.member_id, stated_at = excluded.stated_at, withdrawn_at = NULL`)
	withdrawName = cluster.SQL(`UPDATE {publisher_names} SET withdrawn_at = $4
	WHERE shard = $1 AND organization_id = $2 AND statement_id = $3`)
)

// Links to OAuth subjects.
var (
	insertLink = cluster.SQL(`INSERT INTO {oauth_links} (shard, link_id, organization_id, member_id, secret_sha256, scopes, created_at, expires_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)
	redeemLink = cluster.SQL(
		`UPDATE {oauth_links} SET subject = $3, consented = $4, linked_at = $5 WHERE shard = $1 AND link_id = $2`,
	)
	withdrawConsent = cluster.SQL(`UPDATE {oauth_links} SET withdrawn_at = $3 WHERE shard = $1 AND link_id = $2`)
)

// Destinations of webhooks.
var (
	insertWebhook = cluster.SQL(`INSERT INTO {webhooks} (shard, webhook_id, organization_id, url_id, description_id, types, status, secret, created_at, updated_at)
	VALUES ($1, $2, $3, $4, $5, $6, 'active', $7, $8, $8)`)
	updateWebhook = cluster.SQL(`UPDATE {webhooks} SET url_id = $3, description_id = $4, types = $5, status = $6, disabled_reason = NULL, updated_at = $7
	WHERE shard = $1 AND webhook_id = $2`)
	rotateWebhookSecret = cluster.SQL(`UPDATE {webhooks} SET previous_secret = secret, secret = $3, previous_until = $4, updated_at = $5
	WHERE shard = $1 AND webhook_id = $2`)
	reencryptWebhook = cluster.SQL(`UPDATE {webhooks} SET secret = $3, previous_secret = $4,
		previous_until = CASE WHEN $4::bytea IS NOT NULL THEN previous_until END
	WHERE shard = $1 AND webhook_id = $2`)
	disableWebhook = cluster.SQL(`UPDATE {webhooks} SET status = 'disabled', disabled_reason = $3, updated_at = $4
	WHERE shard = $1 AND webhook_id = $2`)
	deleteWebhook = cluster.SQL(`UPDATE {webhooks} SET status = 'deleted', updated_at = $3
		WHERE shard = $1 AND webhook_id = $2`)
	deleteWebhookAccess = cluster.SQL(`WITH taken AS (
		UPDATE {company_webhooks} SET enabled = false, updated_at = $3 WHERE shard = $1 AND webhook_id = $2 AND enabled RETURNING company_id
	)
	UPDATE {companies} c SET webhooks = c.webhooks - 1 FROM taken WHERE c.shard = $1 AND c.company_id = taken.company_id`)
	upsertWebhookAccess = cluster.SQL(`INSERT INTO {company_webhooks} (shard, company_id, webhook_id, enabled, updated_at)
	VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (shard, company_id, webhook_id) DO UPDATE SET enabled = excluded.enabled, updated_at = excluded.updated_at`)
	countWebhooks = cluster.SQL(`UPDATE {companies} SET webhooks = (SELECT count(*) FROM {company_webhooks} WHERE shard = $1 AND company_id = $2 AND enabled)
	WHERE shard = $1 AND company_id = $2`)
)

// Certification.
const (
	// oneVersion finds the row of a version by its key. ORDER BY makes the planner use that index.
	oneVersion = ` WHERE shard = $1 AND ctid = (SELECT ctid FROM {artifact_versions}
		WHERE shard = $1 AND version_id >= $2 AND version_id <= $2 ORDER BY version_id LIMIT 1)`
)

var (
	ensureAccount = cluster.SQL(`INSERT INTO {artifact_accounts} (shard, organization_id, retention_days, credits)
		VALUES ($1, $2, 0, 0)
	ON CONFLICT (shard, organization_id) DO NOTHING`)
	setRetention = cluster.SQL(`UPDATE {artifact_accounts} SET retention_days = $3
		WHERE shard = $1 AND organization_id = $2`)
	addCredits = cluster.SQL(`UPDATE {artifact_accounts} SET credits = credits + $3
		WHERE shard = $1 AND organization_id = $2`)
	countRegistration = cluster.SQL(`INSERT INTO {artifact_usage} AS u (shard, organization_id, period, used)
		VALUES ($1, $2, $3, 1)
	ON CONFLICT (shard, organization_id, period) DO UPDATE SET used = u.used + 1`)
	insertArtifact = cluster.SQL(`INSERT INTO {artifacts} (shard, artifact_id, organization_id, latest_version, certified, created_at, updated_at)
	VALUES ($1, $2, $3, 1, 0, $4, $4)`)
	advanceArtifact = cluster.SQL(
		`UPDATE {artifacts} SET latest_version = $3, updated_at = $4 WHERE shard = $1 AND artifact_id = $2`,
	)
	insertArtifactVersion = cluster.SQL(`INSERT INTO {artifact_versions} (shard, version_id, artifact_id, organization_id, version, kind, title_id, file_name_id,
		media_type, sha256, size_bytes, state, reviews, outcome, retain_until, registered_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, '', $13, $14)`)
	setVersionState = cluster.SQL(`UPDATE {artifact_versions} SET state = $3` + oneVersion)
	insertAnalysis  = cluster.SQL(
		`INSERT INTO {analyses} (shard, analysis_id, version_id, organization_id, position) VALUES ($1, $2, $3, $4, $5)`,
	)
	insertDetectorRuns = cluster.SQL(`INSERT INTO {detector_runs} (shard, organization_id, detector, detector_version, analysis_id, outcome, micros)
	SELECT s.shard, $2, n.detector, n.version, $3, n.outcome, n.micros
	FROM {shard_heads} s, unnest($4::text[], $5::int[], $6::text[], $7::bigint[]) AS n(detector, version, outcome, micros) WHERE s.shard = $1`)
	insertReview = cluster.SQL(`INSERT INTO {reviews} (shard, review_id, version_id, organization_id, key, member_id, outcome, statement_id, declared_at, sequence)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`)
	reviewVersion = cluster.SQL(
		`UPDATE {artifact_versions} SET state = $3, outcome = $4, reviews = reviews + 1` + oneVersion,
	)
	insertApproval = cluster.SQL(`INSERT INTO {approvals} (shard, approval_id, version_id, organization_id, key, member_id, statement_id, approved_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)
	insertCertificate = cluster.SQL(`INSERT INTO {certificates} (shard, public_id, version_id, artifact_id, organization_id, public_fields, payload_id, key_id,
		signature, issued_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`)
	certifyArtifact = cluster.SQL(`UPDATE {artifacts} SET certified = $3, certified_by = $4
		WHERE shard = $1 AND artifact_id = $2`)
	replaceCertificate = cluster.SQL(`UPDATE {certificates} SET replaced_at = $3, replaced_by = $4
		WHERE shard = $1 AND public_id = $2`)
	revokeCertificate = cluster.SQL(`UPDATE {certificates} SET revoked_at = $3 WHERE shard = $1 AND public_id = $2`)
	eraseContent      = cluster.SQL(`UPDATE {artifact_versions} SET content_erased = $3` + oneVersion)
)

// queueRare writes the changes of an event in projections that rarely change.
func queueRare(b *pgx.Batch, shard domain.Shard, e *domain.Event) error {
	organization := e.Organization
	switch body := e.Body.(type) {
	case *domain.OrganizationCreatedBody:
		b.Queue(insertOrganization, shard, organization, body.Name.ID, body.Plan, body.Internal, body.PerMinute, e.OccurredAt)
	case *domain.PlanChangedBody:
		b.Queue(updatePlan, shard, organization, body.Plan, body.Internal, body.PerMinute)
	case *domain.LimitsChangedBody:
		b.Queue(updateLimits, shard, organization, body.UnfinalizedLimit)
	case *domain.QuotaWarningReachedBody:
		w := domain.Warnings{}.With(body, e.OccurredAt)
		args := []any{shard, organization, int32(body.Period), w.Limit, w.ReachedAt[0], w.ReachedAt[1], w.ReachedAt[2],
			zeronull.Int8(w.Used[0]), zeronull.Int8(w.Used[1]), zeronull.Int8(w.Used[2])}
		if body.Allowance == domain.VersionsAllowance {
			b.Queue(updateWarnings, args...)
		} else {
			b.Queue(upsertWarnings, append(args, body.Allowance.String())...)
		}
	case *domain.MemberAddedBody:
		b.Queue(insertMember, shard, organization, body.MemberID, body.Email.ID, body.Role, domain.MemberActive, e.OccurredAt)
	case *domain.MemberInvitedBody:
		b.Queue(inviteMember, shard, organization, body.MemberID, body.Email.ID, body.Role, domain.MemberInvited,
			e.OccurredAt,
			body.SecretSHA256, body.ExpiresAt)
	case *domain.MemberJoinedBody:
		b.Queue(joinMember, shard, organization, body.MemberID, domain.MemberActive)
	case *domain.MemberChangedBody:
		b.Queue(updateMember, shard, organization, body.MemberID, body.Role, body.Status)
	case *domain.KeyCreatedBody:
		b.Queue(insertKey, shard, body.KeyID, organization, body.MemberID, body.SecretSHA256, body.Scopes,
			body.Source, body.AllNetworks(), body.MaxVersionStep, textID(body.Name), e.Actor.String(), e.OccurredAt,
			body.ExpiresAt)
	case *domain.KeyRenamedBody:
		b.Queue(renameKey, shard, body.KeyID, body.Name.ID)
	case *domain.KeyExpiryChangedBody:
		b.Queue(changeKeyExpiry, shard, body.KeyID, body.ExpiresAt)
	case *domain.KeyRevokedBody:
		b.Queue(revokeKey, shard, body.KeyID, e.OccurredAt)
	case *domain.PasskeyAddedBody:
		b.Queue(insertPasskey, shard, body.PasskeyID, organization, body.MemberID, body.CredentialID, body.PublicKey,
			append([]string{}, body.Transports...), body.BackupEligible, body.Name.ID, e.OccurredAt)
	case *domain.PasskeyRemovedBody:
		b.Queue(removePasskey, shard, body.PasskeyID, e.OccurredAt)
	case *domain.DomainAddedBody:
		b.Queue(insertDomain, shard, body.StatementID, organization, body.Domain.ID, e.OccurredAt)
	case *domain.DomainCheckedBody:
		b.Queue(proveDomain, shard, body.StatementID, body.Method, e.OccurredAt)
	case *domain.DomainFailedBody:
		b.Queue(failDomain, shard, body.StatementID, body.FailedDays, e.OccurredAt)
	case *domain.DomainLapsedBody:
		b.Queue(lapseDomain, shard, body.StatementID, e.OccurredAt)
	case *domain.DomainRemovedBody:
		b.Queue(removeDomain, shard, body.StatementID, e.OccurredAt)
	case *domain.PublisherNameDeclaredBody:
		b.Queue(declareName, shard, organization, body.StatementID, body.Name.ID, body.MemberID, e.OccurredAt)
	case *domain.PublisherNameWithdrawnBody:
		b.Queue(withdrawName, shard, organization, body.StatementID, e.OccurredAt)
	case *domain.RecordAliasedBody:
		b.Queue(insertAlias, shard, body.PublicID, e.Organization, body.AliasOf, e.Position)
	case *domain.CompanyCreatedBody:
		b.Queue(insertCompany, shard, e.Company, organization, body.Reference, e.OccurredAt)
	case *domain.CompanyStatusChangedBody:
		b.Queue(closeCompany, shard, e.Company, body.ClosedAt(e.OccurredAt))
	case *domain.AccessChangedBody:
		b.Queue(upsertGrant, shard, body.KeyID, e.Company, body.Enabled, e.OccurredAt)
	case *domain.LinkStartedBody:
		b.Queue(insertLink, shard, body.LinkID, organization, body.MemberID, body.SecretSHA256, body.Scopes,
			e.OccurredAt, body.ExpiresAt)
	case *domain.LinkedBody:
		b.Queue(redeemLink, shard, body.LinkID, body.Subject, body.Scopes, e.OccurredAt)
	case *domain.ConsentWithdrawnBody:
		b.Queue(withdrawConsent, shard, body.LinkID, e.OccurredAt)
	case *domain.WebhookCreatedBody:
		b.Queue(insertWebhook, shard, body.WebhookID, organization, body.URL.ID, textID(body.Description),
			domain.MaskOf(body.Types), body.Secret, e.OccurredAt)
	case *domain.WebhookUpdatedBody:
		b.Queue(updateWebhook, shard, body.WebhookID, body.URL.ID, textID(body.Description), domain.MaskOf(body.Types),
			body.Status, e.OccurredAt)
	case *domain.WebhookSecretRotatedBody:
		b.Queue(rotateWebhookSecret, shard, body.WebhookID, body.Secret, body.PreviousUntil, e.OccurredAt)
	case *domain.WebhookSecretReencryptedBody:
		b.Queue(reencryptWebhook, shard, body.WebhookID, body.Secret, body.PreviousSecret)
	case *domain.WebhookDisabledBody:
		b.Queue(disableWebhook, shard, body.WebhookID, body.Reason, e.OccurredAt)
	case *domain.WebhookDeletedBody:
		b.Queue(deleteWebhook, shard, body.WebhookID, e.OccurredAt)
		b.Queue(deleteWebhookAccess, shard, body.WebhookID, e.OccurredAt)
	case *domain.WebhookAccessBody:
		b.Queue(upsertWebhookAccess, shard, e.Company, body.WebhookID, body.Enabled, e.OccurredAt)
		b.Queue(countWebhooks, shard, e.Company)
	case *domain.ArtifactVersionRegisteredBody:
		return queueArtifactVersion(b, shard, e, body)
	case *domain.AnalysisCompletedBody:
		if len(body.ElapsedMicros) != len(body.Detectors) {
			return say.Errorf("event %s has %d detectors and %d times", e.ID, len(body.Detectors), len(body.ElapsedMicros))
		}
		b.Queue(insertAnalysis, shard, body.AnalysisID, body.VersionID, organization, e.Position)
		b.Queue(insertDetectorRuns, shard, organization, body.AnalysisID,
			column(body.Detectors, func(d domain.DetectorResult) string { return d.ID }),
			column(body.Detectors, func(d domain.DetectorResult) int32 { return int32(d.Version) }),
			column(body.Detectors, func(d domain.DetectorResult) string { return d.Outcome }), body.ElapsedMicros)
		b.Queue(setVersionState, shard, body.VersionID, domain.VersionAnalyzed)
	case *domain.ReviewDeclaredBody:
		b.Queue(insertReview, shard, body.ReviewID, body.VersionID, organization, e.Actor.String(), body.MemberID,
			body.Outcome,
			body.Statement.ID, e.OccurredAt, e.Sequence)
		b.Queue(reviewVersion, shard, body.VersionID, domain.VersionReviewed, body.Outcome)
	case *domain.ArtifactVersionApprovedBody:
		b.Queue(insertApproval, shard, body.ApprovalID, body.VersionID, organization, e.Actor.String(), body.MemberID,
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
		b.Queue(eraseAddresses, shard, organization, body.Texts) // texts are not a projection
	default:
		return errNoProjection
	}
	return nil
}

func queueArtifactVersion(
	b *pgx.Batch, shard domain.Shard, e *domain.Event, body *domain.ArtifactVersionRegisteredBody,
) error {
	sum, err := hex.DecodeString(body.SHA256)
	if err != nil {
		return say.Errorf("event %s: %w", e.ID, err)
	}
	if body.Version == 1 {
		b.Queue(insertArtifact, shard, body.ArtifactID, e.Organization, e.OccurredAt)
	} else {
		b.Queue(advanceArtifact, shard, body.ArtifactID, body.Version, e.OccurredAt)
	}
	b.Queue(insertArtifactVersion, shard, body.VersionID, body.ArtifactID, e.Organization, body.Version, body.Kind,
		body.Title.ID, textID(body.FileName), body.MediaType, sum, body.SizeBytes, domain.VersionRegistered,
		body.RetainUntil, e.OccurredAt)
	if body.Credit {
		b.Queue(addCredits, shard, e.Organization, int64(-1))
	} else {
		b.Queue(countRegistration, shard, e.Organization, int32(body.Period))
	}
	return nil
}

func textID(ref *domain.TextRef) *domain.TextID {
	if ref == nil {
		return nil
	}
	return &ref.ID
}
