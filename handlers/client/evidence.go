package client

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// Declare reads the final bytes of a version to their end and makes its declaration; nothing is sent. The origin keeps
// the declaration with the bytes and sends that very one, however often.
func Declare(v wire.VersionReference, final io.Reader, mimeType string, generatedAt time.Time) (wire.Declaration, error) {
	sum := sha256.New()
	size, err := io.Copy(sum, final)
	if err != nil {
		return wire.Declaration{}, fmt.Errorf("hash: %w", err)
	}
	return wire.Declaration{
		CompanyReference: v.CompanyReference, Source: v.Source, DocumentReference: v.DocumentReference, Version: v.Version,
		SHA256: hex.EncodeToString(sum.Sum(nil)), SizeBytes: size, MimeType: mimeType, GeneratedAt: generatedAt.UTC().Format(time.RFC3339Nano),
	}, nil
}

// VerifyDeclared verifies saved evidence offline (contract section 4.1) and requires that it is about d: its hash and
// its references. trusted must have come through a channel that is not the evidence's own. The error is nil exactly
// when signature, references and hash are valid and the record was not revoked when observed; it says nothing about the
// present state.
func VerifyDeclared(receipt []byte, trusted *evidence.TrustedKeys, d wire.Declaration, now time.Time) (evidence.Findings, error) {
	f := evidence.Verify(receipt, trusted, evidence.Options{
		Now: now, RequireReferences: true, Document: &evidence.Document{SHA256: d.SHA256, Size: d.SizeBytes},
	})
	if len(f.Reasons) > 0 {
		return f, fmt.Errorf("evidence: %s", f.Reasons[0])
	}
	envelope, err := evidence.ParseEnvelope(receipt)
	if err != nil {
		return f, fmt.Errorf("evidence: %w", err)
	}
	r := envelope.References
	if (wire.VersionReference{CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference, Version: int32(r.Version)}) != d.VersionReference() {
		return f, errors.New("evidence: it is about another version")
	}
	return f, nil
}
