package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// StoredCertificate is what the ledger holds of a certificate, not yet believed.
type StoredCertificate struct {
	Certificate
	Payload   []byte // the signed bytes; nil once erased
	KeyID     string
	Signature string
}

const certificateColumns = `SELECT c.public_id, c.version_id, c.artifact_id, c.public_fields, c.issued_at, c.revoked_at, c.replaced_at, c.replaced_by`

func scanCertificate(row pgx.CollectableRow) (Certificate, error) {
	var c Certificate
	err := scanCertificateAnd(row, &c)
	return c, err
}

func scanCertificateAnd(row pgx.CollectableRow, c *Certificate, more ...any) error {
	var replacedBy *[16]byte
	var issued time.Time
	targets := []any{
		(*[16]byte)(&c.PublicID), (*[16]byte)(&c.VersionID), (*[16]byte)(&c.ArtifactID), &c.PublicFields, &issued, &c.RevokedAt, &c.ReplacedAt, &replacedBy,
	}
	err := row.Scan(append(targets, more...)...)
	c.IssuedAt, c.RevokedAt, c.ReplacedAt = issued.UTC(), statement.UTC(c.RevokedAt), statement.UTC(c.ReplacedAt)
	if replacedBy != nil {
		c.ReplacedBy = (*domain.PublicID)(replacedBy)
	}
	return err
}

const storedCertificate = certificateColumns + `, t.body, c.key_id, c.signature
	FROM certificates c
	LEFT JOIN LATERAL (SELECT body FROM texts WHERE shard = $1 AND organization_id = c.organization_id AND id = c.payload_id OFFSET 0) t ON true
	WHERE c.shard = $1 AND c.public_id = $2`

// Certificate reads a certificate of the key's organization.
func (s *Store) Certificate(ctx context.Context, a domain.Access, id domain.PublicID) (StoredCertificate, error) {
	return s.certificate(ctx, s.Pool, storedCertificate+` AND c.organization_id = $3`, a.Organization.Shard(), [16]byte(id), [16]byte(a.Organization))
}

// AnyCertificate reads a certificate for anyone who has its public id.
func (s *Store) AnyCertificate(ctx context.Context, id domain.PublicID) (StoredCertificate, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return StoredCertificate{}, domain.UnknownCertificate()
	}
	return s.certificate(ctx, s.Public, storedCertificate, shard, [16]byte(id))
}

func (s *Store) certificate(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (StoredCertificate, error) {
	c, found, err := statement.First(ctx, pool, "read a certificate", func(row pgx.CollectableRow) (StoredCertificate, error) {
		var c StoredCertificate
		var payload *string
		err := scanCertificateAnd(row, &c.Certificate, &payload, &c.KeyID, &c.Signature)
		if payload != nil {
			c.Payload = []byte(*payload)
		}
		return c, err
	}, query, args...)
	if err == nil && !found {
		err = domain.UnknownCertificate()
	}
	return c, err
}
