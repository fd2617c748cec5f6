package query

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// uncommittedLife is how long content may be in the blob store without the event of its registration, which says how
// long it is kept.
const uncommittedLife = time.Hour

// AnnounceContent notes that content of a version is about to be put into the blob store, so that it is erased if its
// registration never comes.
func (s *Store) AnnounceContent(ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, now time.Time) error {
	const insert = `INSERT INTO kept_contents (shard, version_id, organization_id, artifact_id, due_at) VALUES ($1, $2, $3, $4, $5)`
	return statement.Exec(ctx, s.Pool, "announce the bytes of a version", insert, o.Shard(), v, o, a, now.Add(uncommittedLife))
}

// KeptContents counts the registered versions of a subject (an artifact, or a version of one) whose content is kept
// beyond now.
func (s *Store) KeptContents(ctx context.Context, o domain.OrganizationID, subject string, now time.Time) (versions int, err error) {
	const query = `SELECT count(*)::int FROM artifact_versions v
		JOIN kept_contents k ON k.shard = $1 AND k.version_id = v.version_id AND k.due_at > $4
		WHERE v.shard = $1 AND v.organization_id = $2 AND `
	var id [16]byte
	column := "v.artifact_id = $3"
	if version, parsing := domain.ParseID[domain.ArtifactVersionID](subject); parsing == nil {
		id, column = version, "v.version_id = $3"
	} else if artifact, parsing := domain.ParseID[domain.ArtifactID](subject); parsing == nil {
		id = artifact
	} else {
		return 0, nil
	}
	versions, _, err = statement.First(ctx, s.Pool, "count kept bytes", pgx.RowTo[int], query+column, o.Shard(), o, id, now)
	return versions, err
}

// TextsOf lists the texts that belong to a subject of an organization and are not erased yet: those of its own events;
// of an artifact or a version of one, those of all events that name it, with the certificates that publish a title; of
// an organization, also the certificates that publish its name.
func (s *Store) TextsOf(ctx context.Context, o domain.OrganizationID, subject string) ([]domain.TextID, error) {
	const query = `SELECT type, v, data FROM events
		WHERE shard = $1 AND organization_id = $2 AND type = ANY($3)
			AND (subject = $4 OR position($5::bytea IN data) > 0 OR $6 AND type = $7)
		ORDER BY sequence`
	const known = `SELECT id FROM texts WHERE shard = $1 AND organization_id = $2 AND id = ANY($3) AND body IS NOT NULL ORDER BY id`
	whole := subject == o.String()
	member, published := "artifactId", domain.PublicTitle
	if _, err := domain.ParseID[domain.ArtifactVersionID](subject); err == nil {
		member = "versionId"
	}
	if whole {
		published = domain.PublicOrganizationName
	}
	found, err := statement.All(ctx, s.Pool, "look for texts", scanBody, query, o.Shard(), o, domain.TypesWithTexts(), subject, []byte(`"`+member+`":"`+subject+`"`), whole, domain.CertificateIssued)
	if err != nil {
		return nil, err
	}
	var ids []domain.TextID
	for _, body := range found {
		if issued, ok := body.(*domain.CertificateIssuedBody); ok && issued.PublicID.String() != subject && !slices.Contains(issued.PublicFields, published) {
			continue
		}
		for _, ref := range domain.ErasableTexts(body) {
			ids = append(ids, ref.ID)
		}
	}
	return statement.All(ctx, s.Pool, "look for texts that are not erased", pgx.RowTo[domain.TextID], known, o.Shard(), o, ids)
}
