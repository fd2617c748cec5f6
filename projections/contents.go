package projections

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
)

// uncommittedLife is how long bytes may lie in the blob store without the event
// of their registration, which says how long they are kept.
const uncommittedLife = time.Hour

// AnnounceContent says that bytes of a version are about to be put into the blob
// store, so that they are erased if their registration never comes.
func (s *Store) AnnounceContent(ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, now time.Time) error {
	const insert = `INSERT INTO kept_contents (shard, version_id, organization_id, artifact_id, due_at) VALUES ($1, $2, $3, $4, $5)`
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := s.Pool.Exec(ctx, insert, o.Shard(), [16]byte(v), [16]byte(o), [16]byte(a), now.Add(uncommittedLife)); err != nil {
		return databaseError("announce the bytes of a version", err)
	}
	return nil
}

// EraserConfig is what an Eraser is made of.
type EraserConfig struct {
	Pool   *pgxpool.Pool
	Ledger *eventstore.Ledger
	Shards int
	Log    *slog.Logger
	// Delete removes bytes from the blob store; bytes that are not there are no error.
	Delete func(context.Context, domain.OrganizationID, domain.ArtifactVersionID) error
}

// Eraser erases kept bytes when they are due, and records it as an event. Several
// processes may each have one: a row is taken for eraseLease by moving its due_at.
// Bytes are deleted before that is recorded, so that what the log calls erased is
// gone; a process that dies in between leaves the row to the next.
type Eraser struct {
	EraserConfig
}

const (
	eraseEvery = 30 * time.Second // between two looks at the queue
	eraseLease = 10 * time.Minute
)

// Run works until ctx ends.
func (e *Eraser) Run(ctx context.Context) {
	look := time.NewTicker(eraseEvery)
	defer look.Stop()
	for {
		if err := e.Erase(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("kept bytes could not be erased; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

type dueContent struct {
	version      domain.ArtifactVersionID
	organization domain.OrganizationID
	claimed      time.Time
}

// Erase erases everything that is due, once. A row that cannot be erased stays for
// a later look, and holds up no other.
func (e *Eraser) Erase(ctx context.Context) error {
	var failed error
	for shard := range domain.Shard(e.Shards) {
		for {
			due, found, err := e.claim(ctx, shard)
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if err := e.erase(ctx, shard, due); err != nil {
				failed = fmt.Errorf("version %s: %w", due.version, err)
			}
		}
	}
	return failed
}

const takeDue = `UPDATE kept_contents k SET due_at = $3
	FROM (SELECT version_id FROM kept_contents WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) d
	WHERE k.shard = $1 AND k.version_id = d.version_id
	RETURNING k.version_id, k.organization_id`

func (e *Eraser) claim(ctx context.Context, shard domain.Shard) (due dueContent, found bool, err error) {
	now, err := e.Ledger.Agreed(ctx) // a clock ahead would erase for ever what is to be kept
	if err != nil {
		return dueContent{}, false, err
	}
	return first(ctx, e.Pool, "take bytes to erase", func(row pgx.CollectableRow) (dueContent, error) {
		d := dueContent{claimed: now}
		err := row.Scan((*[16]byte)(&d.version), (*[16]byte)(&d.organization))
		return d, err
	}, takeDue, shard, now, now.Add(eraseLease))
}

func (e *Eraser) erase(ctx context.Context, shard domain.Shard, due dueContent) error {
	if err := e.Delete(ctx, due.organization, due.version); err != nil {
		return err
	}
	origin := domain.Origin{Organization: due.organization, Actor: domain.SystemActor, RequestID: "erasure-" + rand.Text()}
	command, err := domain.NewEraseContent(origin, due.version, due.claimed, rand.Reader)
	if err != nil {
		return err
	}
	if err := e.Ledger.Do(ctx, command); err != nil {
		return err
	}
	const forget = `DELETE FROM kept_contents WHERE shard = $1 AND version_id = $2`
	if _, err := e.Pool.Exec(ctx, forget, shard, [16]byte(due.version)); err != nil {
		return databaseError("forget erased bytes", err)
	}
	return nil
}

// KeptContents counts the registered versions of a subject (an artifact, or a version
// of one) whose bytes are kept beyond now.
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
	versions, _, err = first(ctx, s.Pool, "count kept bytes", pgx.RowTo[int], query+column, o.Shard(), [16]byte(o), id, now)
	return versions, err
}

// TextsOf lists the texts that belong to a subject of an organization and are not
// erased yet: those of its own events; of an artifact or a version of one, those of
// all events that name it, with the certificates that publish a title; of an
// organization, also the certificates that publish its name.
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
	found, err := collect(ctx, s.Pool, "look for texts", func(row pgx.CollectableRow) ([]domain.TextRef, error) {
		var kind domain.EventType
		var v int16
		var data []byte
		if err := row.Scan(&kind, &v, &data); err != nil {
			return nil, err
		}
		body, err := domain.DecodeBody(kind, v, data)
		if err != nil {
			return nil, err
		}
		if issued, ok := body.(*domain.CertificateIssuedBody); ok && issued.PublicID.String() != subject && !slices.Contains(issued.PublicFields, published) {
			return nil, nil
		}
		return domain.ErasableTexts(body), nil
	}, query, o.Shard(), [16]byte(o), domain.TypesWithTexts(), subject, []byte(`"`+member+`":"`+subject+`"`), whole, domain.CertificateIssued)
	if err != nil {
		return nil, err
	}
	var ids [][16]byte
	for _, refs := range found {
		for _, ref := range refs {
			ids = append(ids, ref.ID)
		}
	}
	return collect(ctx, s.Pool, "look for texts that are not erased", func(row pgx.CollectableRow) (domain.TextID, error) {
		var id domain.TextID
		err := row.Scan((*[16]byte)(&id))
		return id, err
	}, known, o.Shard(), [16]byte(o), ids)
}
