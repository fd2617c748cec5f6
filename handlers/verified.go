package handlers

import (
	"crypto/sha256"

	lru "github.com/hashicorp/golang-lru/v2"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// verifier judges what the log holds of records, and remembers which bytes a signature belongs to: those never change,
// and checking them anew is most of a comparison. Other bytes are other checks. Trust, state and binding are never
// remembered. It is safe for concurrent use.
type verifier struct {
	valid *lru.Cache[check, evidence.RecordPayload]
}

// check names what was checked. A key id is computed from the key (RFC 7638), so it stands for the key itself.
type check struct {
	keyID, signature string
	payload          [sha256.Size]byte
}

// remembered is the most records whose check is remembered, of about 1 KiB each.
const remembered = 16 << 10

func newVerifier() *verifier {
	valid, _ := lru.New[check, evidence.RecordPayload](remembered) // fails for a size below 1 only
	return &verifier{valid}
}

// verify judges a stored record: signature, trust, and binding to the public id asked for and to the event's
// references. The payload may be used only if the finding is Valid (contract sections 4.1 and 4.2).
func (v *verifier) verify(trust *evidence.TrustedKeys, id domain.PublicID, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	payload, finding := v.signature(trust, stored)
	if finding == evidence.Valid && !bound(payload, id, stored) {
		return evidence.RecordPayload{}, evidence.Invalid
	}
	return payload, finding
}

func (v *verifier) signature(trust *evidence.TrustedKeys, stored domain.SignedRecord) (evidence.RecordPayload, evidence.Finding) {
	name := check{stored.KeyID, stored.Signature, sha256.Sum256(stored.Payload)}
	if _, trusted := trust.Lookup(stored.KeyID); trusted {
		if payload, ok := v.valid.Get(name); ok {
			return payload, evidence.Valid
		}
	}
	payload, finding := evidence.VerifyRecord(trust, stored.KeyID, stored.Payload, stored.Signature)
	if finding == evidence.Valid {
		v.valid.Add(name, payload)
	}
	return payload, finding
}

func bound(payload evidence.RecordPayload, id domain.PublicID, stored domain.SignedRecord) bool {
	references := stored.References
	return payload.PublicID == id.String() && payload.ReferencesSHA256 == references.SHA256()
}
