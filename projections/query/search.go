package query

import (
	"bytes"
	"context"

	"integrityledger/domain"
	"integrityledger/projections/statement"
)

// Search lists up to limit records of a hash, newest first, and whether more follow: those of companies granted to the
// key, received before the record that ended the page before (the zero id begins). A record's id begins with its time,
// so it gives the order. The index knows the first bytes of the hash alone.
func (s *Store) Search(ctx context.Context, a domain.Access, sum [32]byte, before domain.RecordID, limit int) (records []domain.Record, more bool, err error) {
	const query = recordColumns + `
		FROM versions i
		JOIN documents d ON d.shard = $1 AND d.document_id = i.document_id
		JOIN companies c ON c.shard = $1 AND c.company_id = d.company_id
		JOIN grants g ON g.shard = $1 AND g.key_id = $3 AND g.company_id = d.company_id AND g.enabled
		WHERE i.shard = $1 AND i.organization_id = $2 AND substring(i.sha256 from 1 for 6) = substring($4::bytea from 1 for 6)
			AND i.sha256 = $4 AND i.record_id IS NOT NULL AND i.record_id < $5
		ORDER BY i.record_id DESC LIMIT $6`
	if before.IsZero() {
		before = domain.RecordID(bytes.Repeat([]byte{0xff}, len(before)))
	}
	records, err = read(ctx, s, a, newEnough(a), func(from source) ([]domain.Record, error) {
		list, err := statement.All(ctx, from, "search records", scanRecord, query,
			a.Organization.Shard(), a.Organization, a.Key, sum[:], before, limit+1)
		if err == nil {
			err = s.stillGranted(ctx, from, a, statement.Column(list, func(r domain.Record) string { return r.CompanyReference })...)
		}
		return list, err
	})
	return statement.Page(records, limit, err)
}
