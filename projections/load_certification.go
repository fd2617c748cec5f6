package projections

import (
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

const (
	artifactByKey = `artifact_id, organization_id, latest_version, created_at, certified, certified_by FROM {artifacts} WHERE shard = $1 AND artifact_id = `

	// ORDER BY makes the planner look up a version by its key.
	versionByKey = ` FROM {artifact_versions} WHERE shard = $1 AND version_id >= n.id AND version_id <= n.id ORDER BY version_id LIMIT 1) v ON true`

	certificateByKey = `
	JOIN LATERAL (SELECT public_id, artifact_id, revoked_at, replaced_by FROM {certificates} WHERE shard = $1 AND public_id = `
	certificateLoaded     = `SELECT a.*, c.public_id, c.revoked_at, c.replaced_by FROM unnest($2::uuid[]) AS n(id)`
	certificateOfArtifact = ` OFFSET 0) c ON true
	JOIN LATERAL (SELECT ` + artifactByKey + `c.artifact_id OFFSET 0) a ON true`
)

var (
	loadAccounts = cluster.SQL(
		eachID + `organization_id, retention_days, credits FROM {artifact_accounts} WHERE shard = $1 AND organization_id = n.id` + atItsKey,
	)
	loadRegistrations = cluster.SQL(eachMonth + `organization_id, period, used FROM {artifact_usage}
		WHERE shard = $1 AND organization_id = n.id AND period = p.period` + atItsKey)
	loadArtifacts        = cluster.SQL(eachID + artifactByKey + `n.id` + atItsKey)
	loadArtifactVersions = cluster.SQL(`SELECT a.*, v.version_id, v.version, v.kind, v.sha256, v.size_bytes, v.state, v.reviews, v.outcome,
		v.retain_until IS NOT NULL AND v.content_erased IS NULL
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT version_id, artifact_id, version, kind, sha256, size_bytes, state, reviews, outcome, retain_until, content_erased` + versionByKey + `
	JOIN LATERAL (SELECT ` + artifactByKey + `v.artifact_id OFFSET 0) a ON true`)
	loadCertificates = cluster.SQL(certificateLoaded + certificateByKey + `n.id` + certificateOfArtifact)
	loadFormer       = cluster.SQL(certificateLoaded + `
	JOIN LATERAL (SELECT artifact_id` + versionByKey + `
	JOIN LATERAL (SELECT certified_by FROM {artifacts} WHERE shard = $1 AND artifact_id = v.artifact_id OFFSET 0) f ON true` +
		certificateByKey + `f.certified_by` + certificateOfArtifact)
)

var loadContents = cluster.SQL(`SELECT n.id, n.sha256, c.versions
	FROM unnest($2::uuid[], $3::bytea[]) AS n(id, sha256)
	JOIN LATERAL (SELECT count(*) AS versions FROM {artifact_versions}
		WHERE shard = $1 AND organization_id = n.id AND sha256 = n.sha256 OFFSET 0) c ON true`)

// A valid claim stays locked until the group is committed, so that no other request takes it over.
var loadClaims = cluster.SQL(`SELECT key FROM {idempotency_keys}
	WHERE shard = $1 AND organization_id = $2 AND route = $3 AND key = $4 AND token = $5 AND status IS NULL FOR UPDATE`)

var loadWords = cluster.SQL(`SELECT v.version_id, v.title_id, coalesce(t.body, ''), v.organization_id, o.name_id, coalesce(w.body, '')
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT version_id, organization_id, title_id` + versionByKey + `
	JOIN LATERAL (SELECT name_id FROM {organization_state} WHERE shard = $1 AND organization_id = v.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = v.organization_id AND id = v.title_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = v.organization_id AND id = o.name_id OFFSET 0) w ON true`)

// loadCertification queues the queries for certification commands.
func loadCertification(
	b *pgx.Batch, shard domain.Shard, needs domain.CertificationNeeds, periods []int32, s *domain.State,
) {
	lookUp(b, shard, loadAccounts, needs.Accounts, func(r struct {
		Organization domain.OrganizationID
		domain.CertificationAccount
	}) {
		s.AddAccount(r.Organization, r.CertificationAccount)
	})
	lookUp(b, shard, loadRegistrations, needs.Accounts, triple(s.AddRegistrations), periods)
	lookUp(b, shard, loadArtifacts, needs.Artifacts, func(a domain.Artifact) { s.AddArtifact(a) })
	lookUp(b, shard, loadArtifactVersions, needs.Versions, func(r struct {
		domain.Artifact
		ID        domain.ArtifactVersionID
		Number    int32
		Kind      domain.ContentKind
		SHA256    [32]byte
		SizeBytes int64
		State     domain.VersionState
		Reviews   int
		Outcome   domain.ReviewOutcome
		Retained  bool
	}) {
		s.AddArtifactVersion(domain.ArtifactVersion{
			ID: r.ID, Artifact: s.AddArtifact(r.Artifact), Number: r.Number, Kind: r.Kind, SHA256: r.SHA256,
			SizeBytes: r.SizeBytes,
			State:     r.State, Reviews: r.Reviews, Outcome: r.Outcome, Retained: r.Retained,
		})
	})
	addCertificate := func(r struct {
		domain.Artifact
		PublicID   domain.PublicID
		RevokedAt  *time.Time
		ReplacedBy *domain.PublicID
	}) {
		s.AddCertificate(domain.Certificate{
			PublicID: r.PublicID, Artifact: s.AddArtifact(r.Artifact), RevokedAt: r.RevokedAt, ReplacedBy: r.ReplacedBy,
		})
	}
	lookUp(b, shard, loadCertificates, needs.Certificates, addCertificate)
	lookUp(b, shard, loadFormer, needs.Former, addCertificate)
	if contents := distinct(needs.Contents); contents != nil {
		Read(b, pgx.RowToStructByPos, func(r struct {
			domain.ContentNeed
			Versions int64
		}) {
			s.AddContent(r.ContentNeed, r.Versions)
		}, loadContents, shard,
			column(contents, func(c domain.ContentNeed) domain.OrganizationID { return c.Organization }),
			column(contents, func(c domain.ContentNeed) []byte { return c.SHA256[:] }))
	}
	lookUp(b, shard, loadWords, needs.Words, func(r struct {
		Version      domain.ArtifactVersionID
		TitleID      domain.TextID
		Title        string
		Organization domain.OrganizationID
		NameID       domain.TextID
		Name         string
	}) {
		s.AddTitle(r.Version, domain.Text{ID: r.TitleID, Body: r.Title})
		s.AddName(r.Organization, domain.Text{ID: r.NameID, Body: r.Name})
	})
	for _, c := range needs.Claims {
		Read(b, pgx.RowTo[string], func(string) { s.AddClaim(c) }, loadClaims, shard, c.Organization, c.Scope(), c.Key,
			c.Token)
	}
}
