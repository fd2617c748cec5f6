package heal

import (
	"context"
	"encoding/json"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// Item is a record that an organization holds, with the place of one input that names it.
type Item struct {
	domain.Lost
	Place string
}

// Versions calls do with the items of each version, in the order of documents and versions. The items of one version
// have different public ids. Those with a receipt come first, in the order in which they were received. A declaration
// whose public id no input names comes alone.
func (s *Stage) Versions(ctx context.Context, do func(items []Item) error) error {
	rows, err := s.db.QueryContext(ctx, `SELECT company, source, document, version, public_id, place, receipt, declaration,
		revoked FROM held ORDER BY company, source, document, version, received_at, public_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var group []stagedRow
	end := func() error {
		items, err := s.join(group)
		group = group[:0]
		if err != nil || len(items) == 0 {
			return err
		}
		return do(items)
	}
	for rows.Next() {
		var r stagedRow
		var receipt []byte
		if err := rows.Scan(
			&r.reference.CompanyReference, &r.reference.Source, &r.reference.DocumentReference, &r.reference.Version,
			&r.publicID, &r.place, &receipt, &r.declaration, &r.revoked,
		); err != nil {
			return err
		}
		if receipt != nil {
			r.receipt = new(domain.SignedRecord)
			if err := json.Unmarshal(receipt, r.receipt); err != nil {
				return err
			}
			if r.payload, err = evidence.ParseRecordPayload(r.receipt.Payload); err != nil {
				return err
			}
		}
		if len(group) > 0 && group[0].reference != r.reference {
			if err := end(); err != nil {
				return err
			}
		}
		group = append(group, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return end()
}

// join makes the items of a version. A declaration adds previousVersion, which no receipt contains.
func (s *Stage) join(rows []stagedRow) (items []Item, err error) {
	var loose *stagedRow // the declaration without a public id
	for i := range rows {
		if rows[i].publicID == "" {
			loose = &rows[i]
		}
	}
	for _, r := range rows {
		if r.publicID == "" && len(rows) > 1 {
			continue
		}
		item := Item{Place: r.place, Lost: domain.Lost{Receipt: r.receipt, Revoked: r.revoked}}
		item.PublicID, _ = domain.ParsePublicID(r.publicID) // checked when it was staged; zero if it has no id
		text := r.declaration
		if text == nil && loose != nil {
			text = loose.declaration
		}
		var d *domain.Declaration
		if text != nil {
			read, err := readDeclaration(text)
			if err != nil {
				return nil, err
			}
			d = &read
		}
		if d != nil && r.receipt != nil && !agrees(r.payload, *d) { // d is loose: store joins only what agrees
			if err := s.Refused(loose.place, errOtherReceipt()); err != nil {
				return nil, err
			}
			d = nil
		}
		if d == nil {
			item.PreviousUnknown = true
			read, err := fromReceipt(r)
			if err != nil {
				return nil, err
			}
			d = &read
		}
		item.Declaration = *d
		items = append(items, item)
	}
	return items, nil
}

// declared returns the declaration that a receipt and its references contain.
func declared(r evidence.References, p evidence.RecordPayload, previous *int32) wire.Declaration {
	return wire.Declaration{
		CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference,
		Version: int32(r.Version), PreviousVersion: previous, SHA256: p.SHA256.String(), SizeBytes: p.SizeBytes,
		MimeType: p.MimeType, GeneratedAt: string(p.GeneratedAt),
	}
}

func fromReceipt(r stagedRow) (domain.Declaration, error) {
	text, err := json.Marshal(declared(r.receipt.References, r.payload, nil))
	if err != nil {
		return domain.Declaration{}, err
	}
	return readDeclaration(text)
}
