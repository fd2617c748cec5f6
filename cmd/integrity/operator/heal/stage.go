package heal

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"math"
	"time"

	_ "modernc.org/sqlite" // registers the driver sqlite

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

//go:embed stage.sql
var stageSchema string

// Stage holds what inputs prove and declare about the versions of one organization.
type Stage struct {
	Issuer  string
	Trusted *evidence.TrustedKeys
	Now     time.Time
	// Refused is called for each input that cannot be used.
	Refused func(place string, why error) error

	db *sql.DB
	tx *sql.Tx
}

// Open creates the temporary database. Its file has no name, so nothing of it is left, however the process ends.
func (s *Stage) Open(ctx context.Context) (err error) {
	// SQLite makes a temporary file for an empty name. Nothing in it outlives the command, so nothing is synced.
	if s.db, err = sql.Open("sqlite", "file:?_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)"); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	_, err = s.db.ExecContext(ctx, stageSchema)
	return err
}

// Close removes the temporary database.
func (s *Stage) Close() error { return s.db.Close() }

// Read stages the files and directories.
func (s *Stage) Read(ctx context.Context, paths []string) (err error) {
	if s.tx, err = s.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	defer func() { _ = s.tx.Rollback() }() // no effect after a commit
	from := source{found: func(h held) error { return s.add(ctx, h) }, refused: s.Refused}
	for _, path := range paths {
		if err := from.read(ctx, path); err != nil {
			return err
		}
	}
	return s.tx.Commit()
}

// add verifies one document and stages it.
func (s *Stage) add(ctx context.Context, h held) error {
	row := stagedRow{place: h.place, receivedAt: math.MaxInt64, publicID: h.publicID}
	var err error
	switch {
	case h.evidence != nil:
		err = s.proven(&row, h.evidence)
	case h.registered != nil:
		err = s.exported(&row, h.registered)
	}
	if err == nil && h.declaration != nil {
		err = row.declare(h.declaration)
	}
	if err == nil && row.publicID != "" {
		if _, ok := domain.ParsePublicID(row.publicID); !ok {
			err = say.Errorf("publicId must be 26 characters a-z and 2-7")
		}
	}
	if err != nil {
		return s.Refused(h.place, err)
	}
	return s.store(ctx, row)
}

// stagedRow is a row of the stage.
type stagedRow struct {
	place       string
	reference   domain.VersionReference
	publicID    string
	receivedAt  int64
	receipt     *domain.SignedRecord
	payload     evidence.RecordPayload // of the receipt
	declaration []byte
	revoked     bool
}

// proven takes what evidence proves.
func (s *Stage) proven(row *stagedRow, text []byte) error {
	f := evidence.Verify(text, s.Trusted, evidence.Options{Now: s.Now, RequireReferences: true})
	if f.Record == nil || f.Signature != evidence.Valid || f.References != evidence.Valid {
		if len(f.Reasons) > 0 {
			return say.Errorf("the evidence proves nothing: %w", say.Errorf("%s", f.Reasons[0]))
		}
		return say.Errorf("the evidence proves nothing")
	}
	e, err := evidence.ParseEnvelope(text)
	if err != nil {
		return err
	}
	revoked := func(status *evidence.Status) bool { return status != nil && *status == evidence.Revoked }
	row.revoked = revoked(f.ObservedStatus) || revoked(f.AsOfStatus)
	return s.receipt(row, &domain.SignedRecord{
		Payload: json.RawMessage(e.Payload), KeyID: e.KeyID, Signature: e.Signature, References: *e.References,
	}, *f.Record)
}

// exported takes what a registration in a bundle proves.
func (s *Stage) exported(row *stagedRow, data []byte) error {
	r, err := domain.ReadSignedRecord(data)
	if err != nil {
		return err
	}
	payload, found := evidence.VerifyRecord(s.Trusted, r.KeyID, r.Payload, r.Signature)
	if found != evidence.Valid {
		return say.Errorf("the signature of the registration is %s", say.Word(found))
	}
	if payload.ReferencesSHA256 != r.SHA256() {
		return say.Errorf("the references are not those that the record was signed with")
	}
	var unsigned struct{ PreviousVersion *int32 }
	if err := json.Unmarshal(data, &unsigned); err != nil {
		return err
	}
	row.declaration, err = json.Marshal(declared(r.References, payload, unsigned.PreviousVersion))
	if err != nil {
		return err
	}
	return s.receipt(row, &r, payload)
}

func (s *Stage) receipt(row *stagedRow, r *domain.SignedRecord, payload evidence.RecordPayload) error {
	if payload.Issuer != s.Issuer {
		return say.Errorf("the record was signed for another ledger, %s", payload.Issuer)
	}
	if row.publicID != "" && row.publicID != payload.PublicID {
		return say.Errorf("the evidence is about another record than the answer beside it")
	}
	row.receipt, row.payload, row.publicID = r, payload, payload.PublicID
	row.receivedAt = payload.ReceivedAt.UnixMicro()
	row.reference = domain.VersionReference{
		CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference,
		Version: int32(r.Version),
	}
	return nil
}

// declare takes a declaration, which must agree with the receipt beside it.
func (row *stagedRow) declare(text []byte) error {
	d, err := readDeclaration(text)
	if err != nil {
		return err
	}
	if row.receipt != nil && (row.reference != d.VersionReference || !agrees(row.payload, d)) {
		return say.Errorf("the declaration contradicts the evidence beside it")
	}
	row.reference, row.declaration = d.VersionReference, text
	return nil
}

func readDeclaration(text []byte) (d domain.Declaration, err error) {
	value, err := strictjson.Parse(text, 2)
	if err != nil {
		return d, say.Errorf("the declaration is not JSON: %w", err)
	}
	o := strictjson.Decode(value)
	d = domain.ReadDeclaration(o)
	if problems := o.Problems(); len(problems) > 0 {
		return d, say.Errorf("the declaration: %s: %s", problems[0].Pointer, problems[0].Said())
	}
	d.ReservationID = nil
	return d, nil
}

func agrees(p evidence.RecordPayload, d domain.Declaration) bool {
	return p.SHA256 == d.SHA256 && p.SizeBytes == d.SizeBytes && p.MimeType == d.MimeType &&
		p.GeneratedAt == d.GeneratedAt
}

// store adds a row, or joins it with the row of the same version and public id.
func (s *Stage) store(ctx context.Context, row stagedRow) error {
	v := row.reference
	key := []any{v.CompanyReference, v.Source, v.DocumentReference, v.Version, row.publicID}
	var known struct {
		place                string
		receipt, declaration []byte
		receivedAt           int64
		revoked              bool
	}
	err := s.tx.QueryRowContext(ctx, `SELECT place, receipt, declaration, received_at, revoked FROM held
		WHERE company = ? AND source = ? AND document = ? AND version = ? AND public_id = ?`, key...).
		Scan(&known.place, &known.receipt, &known.declaration, &known.receivedAt, &known.revoked)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	var receipt []byte
	if row.receipt != nil {
		if receipt, err = json.Marshal(row.receipt); err != nil {
			return err
		}
	}
	switch {
	case receipt != nil && known.receipt != nil && !bytes.Equal(receipt, known.receipt):
		return s.Refused(row.place, say.Errorf("another input has another receipt of this record"))
	case row.declaration != nil && known.declaration != nil && !sameDeclaration(row.declaration, known.declaration):
		return s.Refused(row.place, say.Errorf("another input declares this version with other data"))
	case row.receipt == nil && row.declaration != nil && contradicts(known.receipt, row.declaration):
		return s.Refused(row.place, errOtherReceipt())
	case contradicts(receipt, known.declaration):
		if err := s.Refused(known.place, errOtherReceipt()); err != nil {
			return err
		}
		known.declaration = nil
	}
	if receipt == nil {
		receipt = known.receipt
	}
	if row.declaration == nil {
		row.declaration = known.declaration
	}
	if known.receipt != nil {
		row.receivedAt = known.receivedAt
	}
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM held
		WHERE company = ? AND source = ? AND document = ? AND version = ? AND public_id = ?`, key...); err != nil {
		return err
	}
	_, err = s.tx.ExecContext(ctx, `INSERT INTO held (company, source, document, version, public_id, received_at, place,
		receipt, declaration, revoked) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append(key, row.receivedAt, row.place, receipt, row.declaration, row.revoked || known.revoked)...)
	return err
}

// contradicts reports whether a staged receipt and a staged declaration of one version differ. Either may be missing.
func contradicts(receipt, declaration []byte) bool {
	if receipt == nil || declaration == nil {
		return false
	}
	var r domain.SignedRecord
	wrong := json.Unmarshal(receipt, &r)
	payload, alsoWrong := evidence.ParseRecordPayload(r.Payload)
	d, stillWrong := readDeclaration(declaration)
	return errors.Join(wrong, alsoWrong, stillWrong) != nil || !agrees(payload, d)
}

func errOtherReceipt() error {
	return say.Errorf("another input has a receipt of this version with other data")
}

// sameDeclaration compares declarations by their meaning. previousVersion is unsigned, but must agree too.
func sameDeclaration(a, b []byte) bool {
	x, wrong := readDeclaration(a)
	y, alsoWrong := readDeclaration(b)
	p, q := x.PreviousVersion, y.PreviousVersion
	x.PreviousVersion, y.PreviousVersion = nil, nil
	return wrong == nil && alsoWrong == nil && x == y && (p == nil) == (q == nil) && (p == nil || *p == *q)
}
