package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

const recordColumns = `SELECT i.record_id, i.public_id, i.sha256, c.reference, d.source, d.reference, i.version,
		i.previous_version, i.size_bytes, i.mime_type, i.generated_at, i.received_at, i.revoked_at, d.highest_version`

// Record finds a record by public id. A record that the key may not see, and a reserved version, are answered as
// unknown.
func (s *Store) Record(ctx context.Context, a domain.Access, id domain.PublicID) (domain.Record, error) {
	const query = recordColumns + `
		FROM versions i
		JOIN documents d ON d.shard = $1 AND d.document_id = i.document_id
		JOIN companies c ON c.shard = $1 AND c.company_id = d.company_id
		JOIN grants g ON g.shard = $1 AND g.key_id = $3 AND g.company_id = d.company_id AND g.enabled
		WHERE i.shard = $1 AND i.public_id = $2 AND i.organization_id = $4 AND i.record_id IS NOT NULL`
	return read(ctx, s, a, newEnough(a), func(from source) (domain.Record, error) {
		found, err := statement.One(ctx, from, "find record", domain.ErrUnknownRecord, scanRecord, query,
			a.Organization.Shard(), id, a.Key, a.Organization)
		if err == nil {
			err = s.stillGranted(ctx, from, a, found.CompanyReference)
		}
		return found, err
	})
}

// Lookup finds a record by the reference of its origin. The company is checked first.
func (s *Store) Lookup(ctx context.Context, a domain.Access, v domain.VersionReference) (domain.Record, error) {
	const query = recordColumns + `
		FROM companies c
		JOIN documents d ON d.shard = $1 AND d.company_id = c.company_id AND d.source = $3 AND d.reference = $4
		JOIN versions i ON i.shard = $1 AND i.document_id = d.document_id AND i.version = $5 AND i.record_id IS NOT NULL
		WHERE c.shard = $1 AND c.company_id = $2`
	company, err := s.grantedCompany(ctx, a, v.CompanyReference)
	if err != nil {
		return domain.Record{}, err
	}
	return read(ctx, s, a, newEnough(a), func(from source) (domain.Record, error) {
		return statement.One(ctx, from, "look a record up", domain.ErrUnknownRecord, scanRecord, query,
			a.Organization.Shard(), company.ID, v.Source, v.DocumentReference, v.Version)
	})
}

func scanRecord(row pgx.CollectableRow) (domain.Record, error) {
	var d domain.Document
	i := domain.Version{Document: &d}
	var company string
	err := row.Scan(&i.RecordID, &i.PublicID, &i.SHA256, &company, &d.Source, &d.Reference, &i.Version,
		&i.PreviousVersion, &i.SizeBytes, &i.MimeType, &i.GeneratedAt, &i.ReceivedAt, &i.RevokedAt, &d.Highest)
	return i.Record(company), err
}
