package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Artifact is an artifact with its newest version. Texts are nil once erased.
type Artifact struct {
	ID        domain.ArtifactID
	Latest    int32
	CreatedAt time.Time
	UpdatedAt time.Time
	ArtifactVersion
}

// ArtifactVersion is a version with its history.
type ArtifactVersion struct {
	ID            domain.ArtifactVersionID
	ArtifactID    domain.ArtifactID
	Version       int32
	Kind          domain.ContentKind
	Title         *string
	FileName      *string
	MediaType     *string
	SHA256        string // in hexadecimal
	SizeBytes     int64
	State         domain.VersionState
	AnalysisID    domain.AnalysisID // zero before the analysis
	RetainUntil   *time.Time
	ContentErased *time.Time
	RegisteredAt  time.Time
	LastOutcome   *domain.ReviewOutcome // of its reviews
	RevokedAt     *time.Time            // of its certificate
	ReplacedBy    *domain.PublicID      // the certificate's successor

	// Set only in the answer about one artifact.

	Reviews     []Review     `db:"-"`
	Approval    *Approval    `db:"-"`
	Certificate *Certificate `db:"-"`
}

// Review is a declared review.
type Review struct {
	ID         domain.ReviewID
	VersionID  domain.ArtifactVersionID
	By         domain.Actor
	Member     domain.MemberID
	Outcome    domain.ReviewOutcome
	Statement  *string
	DeclaredAt time.Time
}

// Approval is the approval of a version.
type Approval struct {
	ID         domain.ApprovalID
	VersionID  domain.ArtifactVersionID
	By         domain.Actor
	Member     domain.MemberID
	Statement  *string
	ApprovedAt time.Time
}

// Certificate is an issued certificate.
type Certificate struct {
	PublicID     domain.PublicID
	VersionID    domain.ArtifactVersionID
	ArtifactID   domain.ArtifactID
	PublicFields []string
	IssuedAt     time.Time
	RevokedAt    *time.Time
	ReplacedAt   *time.Time
	ReplacedBy   *domain.PublicID
}

// Status of the certificate.
func (c Certificate) Status() domain.CertificateStatus {
	return (&domain.Certificate{RevokedAt: c.RevokedAt, ReplacedBy: c.ReplacedBy}).Status()
}

const artifactVersionColumns = `v.version_id, v.artifact_id, v.version, v.kind, t.body, f.body, v.media_type, encode(v.sha256, 'hex'), v.size_bytes, v.state,
		n.analysis_id, v.retain_until, v.content_erased, v.registered_at, w.outcome, c.revoked_at, c.replaced_by`

const artifactVersionOwn = `version_id, artifact_id, organization_id, version, kind, title_id, file_name_id, media_type, sha256, size_bytes, state,
		retain_until, content_erased, registered_at`

// versionsOfArtifact and versionByID look up by key because of their ORDER BY (see eventAtPosition).
const versionsOfArtifact = ` FROM (SELECT ` + artifactVersionOwn + ` FROM {artifact_versions}
		WHERE shard = $1 AND artifact_id >= $3 AND artifact_id <= $3 ORDER BY artifact_id, version OFFSET 0) v`

const versionByID = ` FROM (SELECT ` + artifactVersionOwn + ` FROM {artifact_versions}
		WHERE shard = $1 AND version_id >= $3 AND version_id <= $3 ORDER BY version_id LIMIT 1) v`

const artifactVersionRest = `
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = v.organization_id AND id = v.title_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = v.organization_id AND id = v.file_name_id OFFSET 0) f ON true
	LEFT JOIN LATERAL (SELECT analysis_id FROM {analyses} WHERE shard = $1 AND version_id = v.version_id OFFSET 0) n ON true
	LEFT JOIN LATERAL (SELECT outcome FROM {reviews} WHERE shard = $1 AND version_id >= v.version_id AND version_id <= v.version_id
		ORDER BY version_id DESC, sequence DESC LIMIT 1) w ON true
	LEFT JOIN LATERAL (SELECT revoked_at, replaced_by FROM {certificates} WHERE shard = $1 AND version_id = v.version_id OFFSET 0) c ON true`

const artifactColumns = `SELECT a.artifact_id, a.latest_version, a.created_at, a.updated_at, ` +
	artifactVersionColumns + ` FROM `

const withNewestVersion = `
	JOIN LATERAL (SELECT ` + artifactVersionOwn + ` FROM {artifact_versions}
		WHERE shard = $1 AND artifact_id >= a.artifact_id AND artifact_id <= a.artifact_id AND version = a.latest_version
		ORDER BY artifact_id, version LIMIT 1) v ON true` + artifactVersionRest

// The page is cut before its versions are looked up.
var listArtifacts = cluster.SQL(artifactColumns + `(SELECT artifact_id, latest_version, created_at, updated_at
	FROM {artifacts}
		WHERE shard = $1 AND organization_id = $2 ORDER BY artifact_id DESC LIMIT $3 OFFSET $4) a` + withNewestVersion + `
	ORDER BY a.artifact_id DESC`)

var countArtifacts = cluster.SQL(`SELECT count(*) FROM {artifacts} WHERE shard = $1 AND organization_id = $2`)

// Artifacts lists an organization's artifacts, newest first, and returns their total number.
func (s DocumentReader) Artifacts(ctx context.Context, a domain.Access, limit, offset int) ([]Artifact, int64, error) {
	shard, id := a.Organization.Shard(), a.Organization
	var total int64
	all, err := readMuch(ctx, s.reader, a, func(from source) (_ []Artifact, err error) {
		if total, _, err = statement.First(
			ctx, from, "count artifacts", pgx.RowTo[int64], countArtifacts, shard, id,
		); err != nil {
			return nil, err
		}
		return statement.All(
			ctx, from, "list artifacts", pgx.RowToStructByPos[Artifact], listArtifacts, shard, id, limit, offset,
		)
	})
	return all, total, err
}

var findArtifact = cluster.SQL(
	artifactColumns + `{artifacts} a` + withNewestVersion +
		` WHERE a.shard = $1 AND a.organization_id = $2 AND a.artifact_id = $3`,
)

var findArtifactVersions = cluster.SQL(`SELECT ` + artifactVersionColumns + versionsOfArtifact + artifactVersionRest + `
	WHERE v.organization_id = $2 ORDER BY v.version`)

// Declarations about all versions of an artifact, or about one.
const (
	reviewColumns = `SELECT r.review_id, r.version_id, r.key, r.member_id, r.outcome, t.body, r.declared_at`
	withReviews   = `
	JOIN LATERAL (SELECT review_id, version_id, key, member_id, outcome, statement_id, declared_at, sequence FROM {reviews}
		WHERE shard = $1 AND version_id = v.version_id OFFSET 0) r ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = v.organization_id AND id = r.statement_id OFFSET 0) t ON true
	WHERE v.organization_id = $2 ORDER BY r.sequence`

	approvalColumns = `SELECT p.approval_id, p.version_id, p.key, p.member_id, t.body, p.approved_at`
	withApprovals   = `
	JOIN LATERAL (SELECT approval_id, version_id, key, member_id, statement_id, approved_at FROM {approvals}
		WHERE shard = $1 AND version_id = v.version_id OFFSET 0) p ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = v.organization_id AND id = p.statement_id OFFSET 0) t ON true
	WHERE v.organization_id = $2`

	withCertificates = `
	JOIN LATERAL (SELECT public_id, version_id, artifact_id, public_fields, issued_at, revoked_at, replaced_at, replaced_by FROM {certificates}
		WHERE shard = $1 AND version_id = v.version_id OFFSET 0) c ON true
	WHERE v.organization_id = $2`
)

var (
	findReviewsOfVersion     = cluster.SQL(reviewColumns + versionByID + withReviews)
	findApprovalOfVersion    = cluster.SQL(approvalColumns + versionByID + withApprovals)
	findCertificates         = cluster.SQL(certificateColumns + versionsOfArtifact + withCertificates)
	findCertificateOfVersion = cluster.SQL(certificateColumns + versionByID + withCertificates)
)

// A page of the statements about an artifact, newest first by id. It is cut before their texts are looked up.
var (
	findReviews = cluster.SQL(reviewColumns + ` FROM (SELECT r.* ` + versionsOfArtifact + `
		JOIN LATERAL (SELECT review_id, version_id, organization_id, key, member_id, outcome, statement_id, declared_at, sequence FROM {reviews}
			WHERE shard = $1 AND version_id = v.version_id AND review_id < $4 OFFSET 0) r ON true
		WHERE v.organization_id = $2 ORDER BY r.review_id DESC LIMIT $5) r
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = r.organization_id AND id = r.statement_id OFFSET 0) t ON true
	ORDER BY r.review_id DESC`)
	findApprovals = cluster.SQL(approvalColumns + ` FROM (SELECT p.* ` + versionsOfArtifact + `
		JOIN LATERAL (SELECT approval_id, version_id, organization_id, key, member_id, statement_id, approved_at FROM {approvals}
			WHERE shard = $1 AND version_id = v.version_id AND approval_id < $4 OFFSET 0) p ON true
		WHERE v.organization_id = $2 ORDER BY p.approval_id DESC LIMIT $5) p
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = p.organization_id AND id = p.statement_id OFFSET 0) t ON true
	ORDER BY p.approval_id DESC`)
)

// MaxStatements is the maximum number of reviews, and of approvals, in a page of an artifact's history.
const MaxStatements = 100

// StatementsBefore is the start of a page of an artifact's history. The page has the reviews and approvals with lower
// ids, which were declared earlier.
type StatementsBefore struct {
	Review   domain.ReviewID
	Approval domain.ApprovalID
}

// NewestStatements returns the start of the first page.
func NewestStatements() (b StatementsBefore) {
	for i := range b.Review {
		b.Review[i], b.Approval[i] = 0xff, 0xff
	}
	return b
}

// before cuts a page that was read with one row too many, and moves place to its end.
func before[R any, ID any](page []R, place *ID, of func(R) ID) (cut []R, more bool) {
	if more = len(page) > MaxStatements; more {
		page = page[:MaxStatements]
	}
	if n := len(page); n > 0 {
		*place = of(page[n-1])
	}
	slices.Reverse(page)
	return page, more
}

// Artifact reads an artifact with all its versions, oldest first, their certificates, and a page of the statements
// about them. next is the start of the next page, nil after the last. The versions are read after the artifact, so they
// may be newer but never older.
func (s DocumentReader) Artifact(
	ctx context.Context, a domain.Access, id domain.ArtifactID, from StatementsBefore,
) (artifact Artifact, versions []ArtifactVersion, next *StatementsBefore, err error) {
	args := []any{a.Organization.Shard(), a.Organization, id}
	versions, err = read(ctx, s.reader, a, newEnough(a), func(at source) (versions []ArtifactVersion, err error) {
		place := from
		if artifact, err = statement.One(ctx, at, "read an artifact", domain.ErrUnknownArtifact,
			pgx.RowToStructByPos[Artifact], findArtifact, args...); err != nil {
			return nil, err
		}
		if versions, err = statement.All(ctx, at, "read versions", pgx.RowToStructByPos[ArtifactVersion],
			findArtifactVersions, args...); err != nil {
			return nil, err
		}
		reviews, err := statement.All(ctx, at, "read reviews", pgx.RowToStructByPos[Review], findReviews,
			append(args, place.Review, MaxStatements+1)...)
		if err != nil {
			return nil, err
		}
		approvals, err := statement.All(ctx, at, "read approvals", pgx.RowToStructByPos[Approval], findApprovals,
			append(args, place.Approval, MaxStatements+1)...)
		if err != nil {
			return nil, err
		}
		certificates, err := statement.All(ctx, at, "read certificates", pgx.RowToStructByPos[Certificate], findCertificates,
			args...)
		if err != nil {
			return nil, err
		}
		reviews, moreReviews := before(reviews, &place.Review, func(r Review) domain.ReviewID { return r.ID })
		approvals, moreApprovals := before(approvals, &place.Approval, func(p Approval) domain.ApprovalID { return p.ID })
		if next = nil; moreReviews || moreApprovals {
			next = &place
		}
		declared(versions, reviews, approvals, certificates)
		return versions, nil
	})
	return artifact, versions, next, err
}

// ArtifactVersions reads the versions of an artifact, highest first, and the declarations about one of them, or about
// the highest if the id is zero. The declarations about all versions may have hundreds of megabytes. at is the index of
// that version.
func (s DocumentReader) ArtifactVersions(
	ctx context.Context, a domain.Access, id domain.ArtifactID, one domain.ArtifactVersionID,
) (versions []ArtifactVersion, at int, err error) {
	versions, err = read(ctx, s.reader, a, newEnough(a), func(from source) ([]ArtifactVersion, error) {
		versions, err := statement.All(
			ctx, from, "read versions", pgx.RowToStructByPos[ArtifactVersion], findArtifactVersions, a.Organization.Shard(),
			a.Organization, id,
		)
		if err != nil {
			return nil, err
		}
		slices.Reverse(versions)
		if !one.IsZero() {
			at = slices.IndexFunc(versions, func(v ArtifactVersion) bool { return v.ID == one })
		}
		if len(versions) == 0 || at < 0 {
			return nil, domain.ErrUnknownArtifact
		}
		args := []any{a.Organization.Shard(), a.Organization, versions[at].ID}
		reviews, err := statement.All(ctx, from, "read reviews", pgx.RowToStructByPos[Review], findReviewsOfVersion, args...)
		if err != nil {
			return nil, err
		}
		approvals, err := statement.All(ctx, from, "read approvals", pgx.RowToStructByPos[Approval], findApprovalOfVersion,
			args...)
		if err != nil {
			return nil, err
		}
		certificates, err := statement.All(ctx, from, "read certificates", pgx.RowToStructByPos[Certificate],
			findCertificateOfVersion, args...)
		declared(versions[at:at+1], reviews, approvals, certificates)
		return versions, err
	})
	return versions, at, err
}

// declared adds declarations to their versions. It leaves out declarations about newer versions than those read.
func declared(versions []ArtifactVersion, reviews []Review, approvals []Approval, certificates []Certificate) {
	known := map[domain.ArtifactVersionID]*ArtifactVersion{}
	for i := range versions {
		known[versions[i].ID] = &versions[i]
	}
	of := func(id domain.ArtifactVersionID) *ArtifactVersion { return cmp.Or(known[id], &ArtifactVersion{}) }
	for _, r := range reviews {
		v := of(r.VersionID)
		v.Reviews = append(v.Reviews, r)
	}
	for _, p := range approvals {
		of(p.VersionID).Approval = &p
	}
	for _, c := range certificates {
		of(c.VersionID).Certificate = &c
	}
}

// KnowsArtifact refuses an unknown artifact and one of another organization.
func (s DocumentReader) KnowsArtifact(ctx context.Context, a domain.Access, id domain.ArtifactID) error {
	query := cluster.SQL(`SELECT true FROM {artifacts} WHERE shard = $1 AND organization_id = $2 AND artifact_id = $3`)
	_, err := statement.One(
		ctx, s.Pool, "find an artifact", domain.ErrUnknownArtifact, pgx.RowTo[bool], query, a.Organization.Shard(),
		a.Organization, id,
	)
	return err
}

var findArtifactVersion = cluster.SQL(`SELECT ` + artifactVersionColumns + versionByID + artifactVersionRest + `
	WHERE v.organization_id = $2`)

// ArtifactVersion reads one version without its reviews, approval and certificate.
func (s DocumentReader) ArtifactVersion(
	ctx context.Context, a domain.Access, id domain.ArtifactVersionID,
) (ArtifactVersion, error) {
	return statement.One(
		ctx, s.Pool, "read a version", domain.ErrUnknownArtifactVersion, pgx.RowToStructByPos[ArtifactVersion],
		findArtifactVersion, a.Organization.Shard(), a.Organization, id,
	)
}

var findAnalysis = cluster.SQL(`SELECT e.type, e.v, e.data FROM {analyses} n
	JOIN LATERAL (SELECT type, v, data FROM {events}
		WHERE shard = $1 AND position >= n.position AND position <= n.position ORDER BY position LIMIT 1) e ON true
	WHERE n.shard = $1 AND n.organization_id = $2 AND n.analysis_id = $3`)

// Analysis reads a complete analysis from its event.
func (s DocumentReader) Analysis(
	ctx context.Context, a domain.Access, id domain.AnalysisID,
) (*domain.AnalysisCompletedBody, error) {
	body, err := read(ctx, s.reader, a, newEnough(a), func(from source) (domain.Body, error) {
		return statement.One(ctx, from, "read an analysis",
			domain.Refuse(domain.NotFound, "This organization has no analysis with that id."),
			scanBody, findAnalysis, a.Organization.Shard(), a.Organization, id)
	})
	if err != nil {
		return nil, err
	}
	completed, ok := body.(*domain.AnalysisCompletedBody)
	if !ok {
		err = fmt.Errorf("analysis %s leads to an event with a %T", id, body) //nolint:forbidigo // logged
	}
	return completed, err
}

// scanBody decodes the type, the version and the data of an event.
func scanBody(row pgx.CollectableRow) (domain.Body, error) {
	var kind domain.EventType
	var v int16
	var data []byte
	if err := row.Scan(&kind, &v, &data); err != nil {
		return nil, err
	}
	return domain.DecodeBody(kind, v, data)
}

// DetectorMetric sums up an organization's analyses by one version of a detector.
type DetectorMetric struct {
	ID       string
	Version  int32
	Runs     int64
	Outcomes map[string]int64
	// Median and P95 are the median and 95th percentile of the duration of a run.
	Median, P95 time.Duration
}

// DetectorMetrics reads an organization's metrics, by detector and version.
func (s DocumentReader) DetectorMetrics(ctx context.Context, a domain.Access) ([]DetectorMetric, error) {
	query := cluster.SQL(`SELECT detector, detector_version, count(*),
			count(*) FILTER (WHERE outcome = 'clear'), count(*) FILTER (WHERE outcome = 'finding'),
			count(*) FILTER (WHERE outcome = 'inconclusive'), count(*) FILTER (WHERE outcome = 'not_applicable'),
			percentile_disc(0.5) WITHIN GROUP (ORDER BY micros), percentile_disc(0.95) WITHIN GROUP (ORDER BY micros)
		FROM {detector_runs} WHERE shard = $1 AND organization_id = $2
		GROUP BY detector, detector_version ORDER BY detector, detector_version`)
	return readMuch(ctx, s.reader, a, func(from source) ([]DetectorMetric, error) {
		return statement.All(
			ctx, from, "read detector metrics", scanDetectorMetric, query, a.Organization.Shard(), a.Organization,
		)
	})
}

func scanDetectorMetric(row pgx.CollectableRow) (DetectorMetric, error) {
	var m DetectorMetric
	var clean, finding, inconclusive, notApplicable, median, p95 int64
	err := row.Scan(&m.ID, &m.Version, &m.Runs, &clean, &finding, &inconclusive, &notApplicable, &median, &p95)
	m.Outcomes = map[string]int64{
		"clear": clean, "finding": finding, "inconclusive": inconclusive, "not_applicable": notApplicable,
	}
	m.Median, m.P95 = time.Duration(median)*time.Microsecond, time.Duration(p95)*time.Microsecond
	return m, err
}

// Registrations is an organization's used and remaining certification registrations.
type Registrations struct {
	Used          int64 // of the month's allowance
	Credits       int64
	RetentionDays int32
}

var findRegistrations = cluster.SQL(`SELECT coalesce(u.used, 0), coalesce(a.credits, 0), coalesce(a.retention_days, 0)
	FROM (SELECT) one
	LEFT JOIN {artifact_usage} u ON u.shard = $1 AND u.organization_id = $2 AND u.period = $3
	LEFT JOIN {artifact_accounts} a ON a.shard = $1 AND a.organization_id = $2`)

// Registrations reads a month.
func (s AllowanceReader) Registrations(
	ctx context.Context, organization domain.OrganizationID, period domain.Period,
) (Registrations, error) {
	r, _, err := statement.First(ctx, s.Pool, "read registrations", pgx.RowToStructByPos[Registrations],
		findRegistrations, organization.Shard(), organization, int32(period))
	return r, err
}

// SignedCertificate is a stored certificate, which the caller must verify.
type SignedCertificate struct {
	Certificate
	Payload   []byte // the signed bytes; nil once erased
	KeyID     string
	Signature string
}

const certificateColumns = `SELECT c.public_id, c.version_id, c.artifact_id, c.public_fields, c.issued_at, c.revoked_at, c.replaced_at, c.replaced_by`

const certificateByID = certificateColumns + `, t.body, c.key_id, c.signature
	FROM {certificates} c
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = c.organization_id AND id = c.payload_id OFFSET 0) t ON true
	WHERE c.shard = $1 AND c.public_id = $2`

var (
	storedCertificate = cluster.SQL(certificateByID)
	ownCertificate    = cluster.SQL(certificateByID + ` AND c.organization_id = $3`)
)

// Certificate reads a certificate of the key's organization.
func (s DocumentReader) Certificate(
	ctx context.Context, a domain.Access, id domain.PublicID,
) (SignedCertificate, error) {
	return statement.One(ctx, s.Pool, "read a certificate", domain.ErrUnknownCertificate,
		pgx.RowToStructByPos[SignedCertificate],
		ownCertificate, a.Organization.Shard(), id, a.Organization)
}

// AnyCertificate reads a certificate for anyone with its public id.
func (s DocumentReader) AnyCertificate(ctx context.Context, id domain.PublicID) (SignedCertificate, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.Installation.Has(shard) {
		return SignedCertificate{}, domain.ErrUnknownCertificate
	}
	return statement.One(
		ctx, s.Public, "read a certificate", domain.ErrUnknownCertificate, pgx.RowToStructByPos[SignedCertificate],
		storedCertificate, shard, id,
	)
}

// uncommittedLife is how long content may stay in the blob store without the event of its registration, which sets the
// retention.
const uncommittedLife = time.Hour

// AnnounceContent records that content of a version will be put into the blob store, so that it is erased if it is
// never registered.
func (s DocumentReader) AnnounceContent(
	ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, now time.Time,
) error {
	insert := cluster.SQL(
		`INSERT INTO {kept_contents} (shard, version_id, organization_id, artifact_id, due_at) VALUES ($1, $2, $3, $4, $5)`,
	)
	return statement.Exec(
		ctx, s.Pool, "announce the bytes of a version", insert, o.Shard(), v, o, a, now.Add(uncommittedLife),
	)
}

// KeptContents counts the registered versions of a subject (an artifact or a version) with content that is kept beyond
// now.
func (s DocumentReader) KeptContents(
	ctx context.Context, o domain.OrganizationID, subject string, now time.Time,
) (versions int, err error) {
	query := cluster.SQL(`SELECT count(*)::int FROM {artifact_versions} v
		JOIN {kept_contents} k ON k.shard = $1 AND k.version_id = v.version_id AND k.due_at > $4
		WHERE v.shard = $1 AND v.organization_id = $2 AND `)
	var id [16]byte
	column := "v.artifact_id = $3"
	if version, parsing := domain.ParseID[domain.ArtifactVersionID](subject); parsing == nil {
		id, column = version, "v.version_id = $3"
	} else if artifact, parsing := domain.ParseID[domain.ArtifactID](subject); parsing == nil {
		id = artifact
	} else {
		return 0, nil
	}
	versions, _, err = statement.First(
		ctx, s.Pool, "count kept bytes", pgx.RowTo[int], query+column, o.Shard(), o, id, now,
	)
	return versions, err
}

// TextsOf lists the texts of a subject of an organization that are not erased yet: the texts of its own events; for an
// artifact or a version, of all events that name it, with the certificates that publish a title; for an organization,
// also the certificates that publish its name; for a member, also the names of its passkeys.
func (s DocumentReader) TextsOf(ctx context.Context, o domain.OrganizationID, subject string) ([]domain.TextID, error) {
	query := cluster.SQL(`SELECT type, v, data FROM {events}
		WHERE shard = $1 AND organization_id = $2 AND type = ANY($3)
			AND (subject = $4 OR position($5::bytea IN data) > 0 OR $6 AND type = $7)
		ORDER BY sequence`)
	known := cluster.SQL(
		`SELECT id FROM {texts} WHERE shard = $1 AND organization_id = $2 AND id = ANY($3) AND body IS NOT NULL ORDER BY id`,
	)
	whole := subject == o.String()
	member, published := "artifactId", domain.PublicTitle
	if _, err := domain.ParseID[domain.ArtifactVersionID](subject); err == nil {
		member = "versionId"
	}
	types := domain.TypesWithTexts()
	if _, err := domain.ParseID[domain.MemberID](subject); err == nil {
		// members' declarations about artifacts are not only theirs
		member, types = "memberId", []domain.EventType{domain.MemberAdded, domain.InvitationMade, domain.PasskeyAdded}
	}
	if whole {
		published = domain.PublicOrganizationName
	}
	found, err := statement.All(
		ctx, s.Pool, "look for texts", scanBody, query, o.Shard(), o, types, subject, []byte(`"`+member+`":"`+subject+`"`),
		whole, domain.CertificateIssued,
	)
	if err != nil {
		return nil, err
	}
	var ids []domain.TextID
	for _, body := range found {
		if issued, ok := body.(*domain.CertificateIssuedBody); ok && issued.PublicID.String() != subject &&
			!slices.Contains(issued.PublicFields, published) {
			continue
		}
		for _, ref := range domain.ErasableTexts(body) {
			ids = append(ids, ref.ID)
		}
	}
	return statement.All(
		ctx, s.Pool, "look for texts that are not erased", pgx.RowTo[domain.TextID], known, o.Shard(), o, ids,
	)
}
