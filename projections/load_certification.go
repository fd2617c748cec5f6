package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const loadAccounts = `SELECT a.organization_id, a.retention_days, a.credits
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT organization_id, retention_days, credits FROM artifact_accounts
		WHERE shard = $1 AND organization_id = n.id OFFSET 0) a ON true`

const loadRegistrations = `SELECT u.organization_id, u.period, u.used
	FROM unnest($2::uuid[]) AS n(id) CROSS JOIN unnest($3::int[]) AS p(period)
	JOIN LATERAL (SELECT organization_id, period, used FROM artifact_usage
		WHERE shard = $1 AND organization_id = n.id AND period = p.period OFFSET 0) u ON true`

const loadArtifacts = `SELECT a.artifact_id, a.organization_id, a.latest_version, a.certified, a.certified_by, a.created_at
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT artifact_id, organization_id, latest_version, certified, certified_by, created_at FROM artifacts
		WHERE shard = $1 AND artifact_id = n.id OFFSET 0) a ON true`

// The order makes the planner look a version up by its key.
const loadArtifactVersions = `SELECT a.artifact_id, a.organization_id, a.latest_version, a.certified, a.certified_by, a.created_at,
		v.version_id, v.version, v.kind, v.sha256, v.size_bytes, v.state, v.reviews, v.outcome, v.retain_until IS NOT NULL AND v.content_erased IS NULL
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT version_id, artifact_id, version, kind, sha256, size_bytes, state, reviews, outcome, retain_until, content_erased FROM artifact_versions
		WHERE shard = $1 AND version_id >= n.id AND version_id <= n.id ORDER BY version_id LIMIT 1) v ON true
	JOIN LATERAL (SELECT artifact_id, organization_id, latest_version, certified, certified_by, created_at FROM artifacts
		WHERE shard = $1 AND artifact_id = v.artifact_id OFFSET 0) a ON true`

const certificateOfArtifact = ` JOIN LATERAL (SELECT artifact_id, organization_id, latest_version, certified, certified_by, created_at FROM artifacts
		WHERE shard = $1 AND artifact_id = c.artifact_id OFFSET 0) a ON true`

const certificateLoaded = `SELECT a.artifact_id, a.organization_id, a.latest_version, a.certified, a.certified_by, a.created_at,
		c.public_id, c.revoked_at, c.replaced_by
	FROM unnest($2::uuid[]) AS n(id)`

const loadCertificates = certificateLoaded + `
	JOIN LATERAL (SELECT public_id, artifact_id, revoked_at, replaced_by FROM certificates
		WHERE shard = $1 AND public_id = n.id OFFSET 0) c ON true` + certificateOfArtifact

const loadFormer = certificateLoaded + `
	JOIN LATERAL (SELECT artifact_id FROM artifact_versions
		WHERE shard = $1 AND version_id >= n.id AND version_id <= n.id ORDER BY version_id LIMIT 1) v ON true
	JOIN LATERAL (SELECT certified_by FROM artifacts WHERE shard = $1 AND artifact_id = v.artifact_id OFFSET 0) f ON true
	JOIN LATERAL (SELECT public_id, artifact_id, revoked_at, replaced_by FROM certificates
		WHERE shard = $1 AND public_id = f.certified_by OFFSET 0) c ON true` + certificateOfArtifact

const loadContents = `SELECT n.id, n.sha256, c.versions
	FROM unnest($2::uuid[], $3::bytea[]) AS n(id, sha256)
	JOIN LATERAL (SELECT count(*) AS versions FROM artifact_versions
		WHERE shard = $1 AND organization_id = n.id AND sha256 = n.sha256 OFFSET 0) c ON true`

// A claim that still holds stays locked until the group is committed, so that no other request takes it over.
const loadClaims = `SELECT route, key FROM idempotency_keys
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4 AND token = $5 AND status IS NULL FOR UPDATE`

const loadWords = `SELECT v.version_id, v.title_id, coalesce(t.body, ''), v.organization_id, o.name_id, coalesce(w.body, '')
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT version_id, organization_id, title_id FROM artifact_versions
		WHERE shard = $1 AND version_id >= n.id AND version_id <= n.id ORDER BY version_id LIMIT 1) v ON true
	JOIN LATERAL (SELECT name_id FROM organization_state WHERE shard = $1 AND organization_id = v.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM texts
		WHERE shard = $1 AND organization_id = v.organization_id AND id = v.title_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT body FROM texts
		WHERE shard = $1 AND organization_id = v.organization_id AND id = o.name_id OFFSET 0) w ON true`

// loadCertification queues what commands of certification need.
func loadCertification(b *pgx.Batch, shard domain.Shard, needs domain.CertificationNeeds, periods []int32, s *domain.State) {
	lookUp(b, shard, loadAccounts, needs.Accounts, func(rows pgx.Rows) error {
		var id domain.OrganizationID
		var a domain.CertificationAccount
		err := rows.Scan(&id, &a.RetentionDays, &a.Credits)
		s.AddAccount(id, a)
		return err
	})
	lookUp(b, shard, loadRegistrations, needs.Accounts, func(rows pgx.Rows) error {
		var id domain.OrganizationID
		var period int32
		var used int64
		err := rows.Scan(&id, &period, &used)
		s.AddRegistrations(id, domain.Period(period), used)
		return err
	}, periods)
	lookUp(b, shard, loadArtifacts, needs.Artifacts, func(rows pgx.Rows) error {
		_, err := scanArtifact(rows, s)
		return err
	})
	lookUp(b, shard, loadArtifactVersions, needs.Versions, func(rows pgx.Rows) error {
		var v domain.ArtifactVersion
		var sum []byte
		a, err := scanArtifact(rows, s, &v.ID, &v.Number, &v.Kind, &sum, &v.SizeBytes, &v.State, &v.Reviews, &v.Outcome, &v.Retained)
		if err == nil {
			copy(v.SHA256[:], sum)
			v.Artifact = a
			s.AddArtifactVersion(v)
		}
		return err
	})
	addCertificate := func(rows pgx.Rows) error {
		var c domain.Certificate
		a, err := scanArtifact(rows, s, &c.PublicID, &c.RevokedAt, &c.ReplacedBy)
		if err == nil {
			c.Artifact = a
			s.AddCertificate(c)
		}
		return err
	}
	lookUp(b, shard, loadCertificates, needs.Certificates, addCertificate)
	lookUp(b, shard, loadFormer, needs.Former, addCertificate)
	if contents := distinct(needs.Contents); contents != nil {
		b.Queue(loadContents, shard,
			column(contents, func(c domain.ContentNeed) domain.OrganizationID { return c.Organization }),
			column(contents, func(c domain.ContentNeed) []byte { return c.SHA256[:] }),
		).Query(each(func(rows pgx.Rows) error {
			var n domain.ContentNeed
			var sum []byte
			var versions int64
			err := rows.Scan(&n.Organization, &sum, &versions)
			copy(n.SHA256[:], sum)
			s.AddContent(n, versions)
			return err
		}))
	}
	lookUp(b, shard, loadWords, needs.Words, func(rows pgx.Rows) error {
		var id domain.ArtifactVersionID
		var organization domain.OrganizationID
		var title, name domain.Text
		err := rows.Scan(&id, &title.ID, &title.Body, &organization, &name.ID, &name.Body)
		s.AddTitle(id, title)
		s.AddName(organization, name)
		return err
	})
	for _, c := range needs.Claims {
		b.Queue(loadClaims, shard, c.Organization, c.Route, c.Key, c.Token).Query(each(func(pgx.Rows) error {
			s.AddClaim(c)
			return nil
		}))
	}
}

// scanArtifact reads an artifact's columns, then more targets.
func scanArtifact(rows pgx.Rows, s *domain.State, more ...any) (*domain.Artifact, error) {
	var a domain.Artifact
	var certifiedBy *domain.PublicID
	targets := []any{&a.ID, &a.Organization, &a.Latest, &a.Certified, &certifiedBy, &a.CreatedAt}
	if err := rows.Scan(append(targets, more...)...); err != nil {
		return nil, err
	}
	if certifiedBy != nil {
		a.CertifiedBy = *certifiedBy
	}
	return s.AddArtifact(a), nil
}
