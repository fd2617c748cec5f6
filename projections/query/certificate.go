package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// SignedCertificate is what the ledger holds of a certificate; the caller verifies it.
type SignedCertificate struct {
	Certificate
	Payload   []byte // the signed bytes; nil once erased
	KeyID     string
	Signature string
}

const certificateColumns = `SELECT c.public_id, c.version_id, c.artifact_id, c.public_fields, c.issued_at, c.revoked_at, c.replaced_at, c.replaced_by`

const storedCertificate = certificateColumns + `, t.body, c.key_id, c.signature
	FROM certificates c
	LEFT JOIN LATERAL (SELECT body FROM texts WHERE shard = $1 AND organization_id = c.organization_id AND id = c.payload_id OFFSET 0) t ON true
	WHERE c.shard = $1 AND c.public_id = $2`

// Certificate reads a certificate of the key's organization.
func (s *Store) Certificate(ctx context.Context, a domain.Access, id domain.PublicID) (SignedCertificate, error) {
	return statement.One(ctx, s.Pool, "read a certificate", domain.ErrUnknownCertificate, pgx.RowToStructByPos[SignedCertificate],
		storedCertificate+` AND c.organization_id = $3`, a.Organization.Shard(), id, a.Organization)
}

// AnyCertificate reads a certificate for any holder of its public id.
func (s *Store) AnyCertificate(ctx context.Context, id domain.PublicID) (SignedCertificate, error) {
	shard := id.Shard(s.Installation.Secret)
	if !s.known(shard) {
		return SignedCertificate{}, domain.ErrUnknownCertificate
	}
	return statement.One(ctx, s.Public, "read a certificate", domain.ErrUnknownCertificate, pgx.RowToStructByPos[SignedCertificate], storedCertificate, shard, id)
}
